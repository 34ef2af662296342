//! A table made ready for training: columns resolved, transforms fitted, rows of the split in single precision.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::{FitSettings, warnings};
use crate::data::{Pick, Selection, Split, Table};
use crate::posterior::OutlierScore;
use crate::train::{Dataset, TrainSettings};
use crate::transform::{
    ColumnSettings, GivenSettings, GivenTransform, Rows, SupportRule, TargetSettings, TargetTransform, Whiten,
};
use crate::{Error, Result};

/// Random stream of the folds of an ensemble, and of the first of its bootstrap samples.
const FOLDS: u64 = 1 << 41;

/// A table made ready for training, once for as many trainings as one likes.
///
/// It holds the rows of the split alone, transformed; the table itself is not needed any more.
pub struct Prepared {
    pub(super) own: Block,
    /// The given columns alone, where the model is to be a joint one.
    pub(super) marginal: Option<Block>,
    /// The supports, column by column.
    pub(super) support: Vec<SupportRule>,
    /// The settings that decided all this.
    key: String,
}

/// π(target | given) as a training sees it.
pub(super) struct Block {
    pub(super) target_names: Vec<String>,
    pub(super) given_names: Vec<String>,
    pub(super) target_transform: TargetTransform,
    pub(super) given_transform: GivenTransform,
    pub(super) support: Option<OutlierScore>,
    pub(super) data: Dataset,
    /// The row of the table, from 0, of each row of the data.
    pub(super) origin: Vec<u32>,
    /// Rows of the data to train on and to validate with, for each member of an ensemble or for the one map.
    pub(super) splits: Vec<(Vec<u32>, Vec<u32>)>,
    /// SHA-256 of the columns' names and values.
    pub(super) data_sha256: String,
    /// SHA-256 of the rows of the splits.
    pub(super) split_sha256: String,
    pub(super) warnings: Vec<String>,
}

/// One side's columns of some rows, named as in the user's table.
struct SomeRows<'a> {
    table: &'a Table,
    columns: &'a [usize],
    rows: &'a [u32],
}

impl Rows for SomeRows<'_> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn read(&self, index: usize, row: &mut [f64]) {
        let source = self.table.row(self.rows[index] as usize);
        for (value, &column) in row.iter_mut().zip(self.columns) {
            *value = source[column];
        }
    }

    fn describe(&self, index: usize) -> String {
        format!("row {}", self.rows[index] + 1)
    }
}

impl Prepared {
    /// With validation rows chosen by the seed.
    pub fn new(table: &Table, settings: &FitSettings) -> Result<Self> {
        settings.validate()?;
        let (train, valid) = split(table.rows(), &settings.train, settings.seed)?;
        Self::with_split(table, &train, &valid, settings)
    }

    /// With the rows (from 0) to train on and to validate with given; other rows are not even looked at.
    pub fn with_split(table: &Table, train: &[u32], valid: &[u32], settings: &FitSettings) -> Result<Self> {
        settings.validate()?;
        if let Some(row) = train.iter().chain(valid).find(|&&row| row as usize >= table.rows()) {
            return Err(Error::Columns(format!(
                "the split names row {}, but the table has {} rows",
                row + 1,
                table.rows()
            )));
        }
        let key = Self::key(settings);
        let settings = &FitSettings { support: settings.named(table.names())?.support, ..settings.clone() };
        let (target, given) = settings.columns(table.names())?;
        let marginal = match settings.joint {
            false => None,
            true if given.is_empty() => {
                return Err(Error::setting(
                    "joint",
                    "needs given columns; without them the fit is a joint one already",
                ));
            }
            true => {
                let marginal = marginal_settings(settings, &table.names_of(&given));
                Some(Block::new(table, (&given, &[]), train, valid, &marginal)?)
            }
        };
        let own = Block::new(table, (&target, &given), train, valid, settings)?;
        Ok(Self { own, marginal, support: settings.support.clone(), key })
    }

    /// What a user should know about the table.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.marginal.iter().chain([&self.own]).flat_map(|block| &block.warnings).map(String::as_str)
    }

    /// Whether a fit with `settings` needs the same preparation.
    pub fn serves(&self, settings: &FitSettings) -> bool {
        self.key == Self::key(settings)
    }

    /// What of the settings decides the preparation.
    pub fn key(settings: &FitSettings) -> String {
        let train = &settings.train;
        let parts = (
            (&settings.target, &settings.given, &settings.support, settings.scaling, settings.pca),
            (settings.joint, settings.seed, train.valid_fraction, train.max_valid_rows),
            (settings.members, settings.bootstrap),
        );
        let key = serde_json::to_string(&parts).expect("settings are plain data");
        if settings.whiten.is_none() { key } else { format!("{key} whiten {}", settings.whiten) }
    }
}

/// The settings of the given columns' own map in a joint model.
pub(super) fn marginal_settings(settings: &FitSettings, given: &[String]) -> FitSettings {
    let own = |rule: &SupportRule| SupportRule::resolve(std::slice::from_ref(rule), given).is_ok();
    FitSettings {
        target: Some(Selection::Columns(given.iter().cloned().map(Pick::Name).collect())),
        given: None,
        support: settings.support.iter().filter(|rule| own(rule)).cloned().collect(),
        pca: None,
        whiten: Whiten::None,
        joint: false,
        ..settings.clone()
    }
}

impl Block {
    fn new(
        table: &Table,
        (target, given): (&[usize], &[usize]),
        train: &[u32],
        valid: &[u32],
        settings: &FitSettings,
    ) -> Result<Self> {
        let (target_names, given_names) = (table.names_of(target), table.names_of(given));
        // Training rows first, in their order, then validation rows.
        let origin: Vec<u32> = train.iter().chain(valid).copied().collect();
        let splits = splits(train.len(), valid.len(), settings);
        // Members of an ensemble share their transforms, so these see all rows.
        let seen = if splits.len() > 1 { &origin[..] } else { train };
        let mut warnings = warnings::of_table(table, target, given)?;
        warnings.extend(warnings::of_values(table, target));

        let supports = |columns: &[usize]| -> Result<Vec<ColumnSettings>> {
            let mut all = SupportRule::resolve(&settings.support, table.names())?;
            all.retain(|column| columns.iter().any(|&place| table.names()[place] == column.name));
            Ok(all)
        };
        let rows = SomeRows { table, columns: target, rows: seen };
        let target_settings =
            TargetSettings { columns: supports(target)?, scaling: settings.scaling, whiten: settings.whiten };
        let target_transform = TargetTransform::fit(&target_names, &target_settings, &rows)?;
        let rows = SomeRows { table, columns: given, rows: seen };
        let given_settings =
            GivenSettings { columns: supports(given)?, scaling: settings.scaling, pca: settings.pca };
        let (given_transform, given_warnings) = GivenTransform::fit(&given_names, &given_settings, &rows)?;
        warnings.extend(given_warnings);
        let support = match given.is_empty() {
            true => None,
            false => match OutlierScore::fit(&rows, given.len(), settings.seed) {
                Ok(score) => Some(score),
                // Too few rows to tell what is far away are no reason not to fit.
                Err(Error::Shape { .. }) => None,
                Err(error) => {
                    warnings.push(format!(
                        "observations far from the training data will not be noticed: {error}"
                    ));
                    None
                }
            },
        };
        Ok(Self {
            data: dataset(table, &origin, (target, given), &target_transform, &given_transform)?,
            data_sha256: table.select_columns(&[target, given].concat()).hash(),
            split_sha256: digest_of_rows([train, valid]),
            target_names,
            given_names,
            target_transform,
            given_transform,
            support,
            origin,
            splits,
            warnings,
        })
    }
}

/// Rows of the data for each member: folds or bootstrap samples of an ensemble, or the split as it is.
fn splits(train: usize, valid: usize, settings: &FitSettings) -> Vec<(Vec<u32>, Vec<u32>)> {
    let members = settings.members.unwrap_or(1);
    let all = (train + valid) as u32;
    if members <= 1 {
        return vec![((0..train as u32).collect(), (train as u32..all).collect())];
    }
    let stream = |number: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
        rng.set_stream(FOLDS + number);
        rng
    };
    let most = settings.train.max_valid_rows;
    let mut order: Vec<u32> = (0..all).collect();
    order.shuffle(&mut stream(0));
    (0..members)
        .map(|member| {
            let mut inside = vec![false; all as usize];
            let train: Vec<u32> = match settings.bootstrap {
                true => sample(all, &mut stream(1 + member as u64)),
                false => {
                    let fold = |place: usize| place * members / all as usize;
                    let rows = order.iter().enumerate();
                    rows.filter(|(place, _)| fold(*place) != member).map(|(_, &row)| row).collect()
                }
            };
            train.iter().for_each(|&row| inside[row as usize] = true);
            let outside = order.iter().copied().filter(|&row| !inside[row as usize]).take(most);
            let outside: Vec<u32> = outside.collect();
            (train, outside)
        })
        .collect()
}

/// As many rows as there are, drawn with replacement.
fn sample(rows: u32, rng: &mut impl Rng) -> Vec<u32> {
    (0..rows).map(|_| rng.random_range(0..rows)).collect()
}

/// SHA-256 of lists of rows.
fn digest_of_rows<const N: usize>(parts: [&[u32]; N]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        part.iter().for_each(|row| hasher.update(row.to_le_bytes()));
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Training and validation rows by the seed.
pub fn split(rows: usize, settings: &TrainSettings, seed: u64) -> Result<(Vec<u32>, Vec<u32>)> {
    if rows < 10 {
        return Err(Error::Columns(format!(
            "the table has {rows} {}: a fit needs at least 10, and hundreds to be useful",
            if rows == 1 { "row" } else { "rows" }
        )));
    }
    let fraction = settings.valid_fraction.min(settings.max_valid_rows as f64 / rows as f64);
    let split = Split::random(rows, fraction, 0.0, seed)?;
    Ok((split.train, split.valid))
}

/// The rows `origin` of the table as the map sees them, in single precision.
fn dataset(
    table: &Table,
    origin: &[u32],
    (target, given): (&[usize], &[usize]),
    target_transform: &TargetTransform,
    given_transform: &GivenTransform,
) -> Result<Dataset> {
    let (n, m) = (target_transform.dim(), given_transform.output_dim());
    let mut data = Dataset {
        target: n,
        given: m,
        x: Vec::with_capacity(origin.len() * n),
        y: Vec::with_capacity(origin.len() * m),
    };
    let (mut raw_x, mut raw_y) = (vec![0.0; n], vec![0.0; given.len()]);
    let (mut x, mut y) = (vec![0.0; n], vec![0.0; m]);
    for &place in origin {
        let row = table.row(place as usize);
        for (value, &column) in raw_x.iter_mut().zip(target) {
            *value = row[column];
        }
        for (value, &column) in raw_y.iter_mut().zip(given) {
            *value = row[column];
        }
        let named = |error: Error| match error {
            Error::Domain(problem) => Error::Domain(format!("row {}: {problem}", place + 1)),
            other => other,
        };
        target_transform.forward(&raw_x, &mut x).map_err(named)?;
        given_transform.forward(&raw_y, &mut y).map_err(named)?;
        data.x.extend(x.iter().map(|&value| value as f32));
        data.y.extend(y.iter().map(|&value| value as f32));
    }
    Ok(data)
}
