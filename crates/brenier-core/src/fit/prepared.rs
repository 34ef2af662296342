//! A table made ready for training: columns resolved, transforms fitted, rows of the split in single precision.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use super::{FitSettings, warnings};
use crate::data::{Pick, Selection, Split, Table};
use crate::parallel::try_each_with;
use crate::posterior::OutlierScore;
use crate::train::{Dataset, FreshNoise, TrainSettings};
use crate::transform::{
    Asinh, ColumnSettings, ExchangeableRule, GivenSettings, GivenTransform, KeptNoise, NoiseSettings,
    PairRows, Reduction, Rows, SupportRule, TargetSettings, TargetTransform, Whiten,
};
use crate::{Error, Result};

/// Random stream of the folds of an ensemble, and of the first of its bootstrap samples.
const FOLDS: u64 = 1 << 41;

/// Numbers of given columns for which trials also see them reduced to this many directions, with at least this many rows.
const WIDE: std::ops::RangeInclusive<usize> = 100..=2000;
const REDUCED: usize = 50;
const REDUCED_ROWS: usize = 1000;

/// Rows that a thread transforms at a time.
const CHUNK: usize = 256;

/// A table made ready for training, once for any number of trainings.
///
/// It holds the rows of the split alone, transformed; the table itself is not needed any more.
pub struct Prepared {
    pub(super) own: Block,
    /// Another view of the given columns, for trials to choose from.
    pub(super) other: Option<Alternative>,
    /// The given columns alone, where the model is to be a joint one.
    pub(super) marginal: Option<Block>,
    /// The supports, column by column.
    pub(super) support: Vec<SupportRule>,
    /// Noise and jitter, their columns by name.
    pub(super) noise: NoiseSettings,
    pub(super) jitter: NoiseSettings,
    /// The settings that decided all this.
    key: String,
}

/// The block with its given columns seen in another way.
pub(super) struct Alternative {
    pub(super) block: Block,
    /// What is different, in a few words.
    pub(super) name: String,
    /// The settings that make it.
    pub(super) reduce: Option<usize>,
    pub(super) exchangeable: Vec<ExchangeableRule>,
}

impl Alternative {
    /// Many given columns reduced, or points without order by means, deviations and correlations alone: power sums of a higher
    /// degree say little where the points are few or Gaussian, and much where they are not.
    fn of(
        table: &Table,
        columns: (&[usize], &[usize]),
        rows: (&[u32], &[u32]),
        settings: &FitSettings,
    ) -> Result<Option<Self>> {
        let mut other = settings.clone();
        if tries_reduction(settings, columns.1.len(), rows.0.len()) {
            other.reduce = Some(REDUCED);
        } else if settings.auto && settings.exchangeable.iter().any(ExchangeableRule::has_higher_degrees) {
            let of_free = |rule: &mut ExchangeableRule| _ = rule.degree.get_or_insert(2);
            other.exchangeable.iter_mut().for_each(of_free);
        } else {
            return Ok(None);
        }
        let block = Block::new(table, columns, rows.0, rows.1, &other)?;
        let FitSettings { mut reduce, exchangeable, .. } = other;
        let name = match &mut reduce {
            Some(reduce) => {
                *reduce = block.data.given;
                format!("reduced to {reduce} columns")
            }
            None => "degree 2".to_owned(),
        };
        Ok(Some(Self { block, name, reduce, exchangeable }))
    }

    /// The settings of a fit with it.
    pub(super) fn settings(&self, settings: &FitSettings) -> FitSettings {
        FitSettings { reduce: self.reduce, exchangeable: self.exchangeable.clone(), ..settings.clone() }
    }
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
    /// How many rows of the data are to train on and, after them, to validate with.
    pub(super) rows: (usize, usize),
    /// SHA-256 of the columns' names and values.
    pub(super) data_sha256: String,
    /// SHA-256 of the rows of the splits.
    pub(super) split_sha256: String,
    pub(super) warnings: Vec<String>,
}

/// Rows of the data to train on and to validate with.
pub(super) type SplitRows = (Vec<u32>, Vec<u32>);

/// One side's columns of some rows, named as in the user's table.
struct SomeRows<'a> {
    table: &'a Table,
    columns: &'a [usize],
    rows: &'a [u32],
    noise: Option<KeptNoise<'a>>,
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
        if let Some(noise) = &self.noise {
            noise.add(self.rows[index], row);
        }
    }

    fn describe(&self, index: usize) -> String {
        format!("row {}", self.rows[index] + 1)
    }
}

/// Pairs of a split as the reduction sees them.
struct ScaledPairs<'a> {
    x: &'a SomeRows<'a>,
    y: &'a SomeRows<'a>,
    of_x: &'a TargetTransform,
    of_y: &'a GivenTransform,
}

impl PairRows for ScaledPairs<'_> {
    fn count(&self) -> usize {
        self.x.count()
    }

    fn given(&self, index: usize, t: &mut [f64]) -> Result<()> {
        let mut raw = vec![0.0; t.len()];
        self.y.read(index, &mut raw);
        self.of_y.forward(&raw, t)
    }

    fn target(&self, index: usize, x: &mut [f64]) -> Result<()> {
        let mut raw = vec![0.0; x.len()];
        self.x.read(index, &mut raw);
        self.of_x.forward(&raw, x).map(|_| ())
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
        let named = settings.named(table.names())?;
        let settings = &FitSettings {
            support: named.support,
            asinh: named.asinh,
            noise: named.noise,
            jitter: named.jitter,
            exchangeable: named.exchangeable,
            ..settings.clone()
        };
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
        let other = Alternative::of(table, (&target, &given), (train, valid), settings)?;
        let FitSettings { support, noise, jitter, .. } = settings.clone();
        Ok(Self { own, other, marginal, support, noise, jitter, key })
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
        let mut key = serde_json::to_string(&parts).expect("settings are plain data");
        if !settings.whiten.is_none() {
            key += &format!(" whiten {}", settings.whiten);
        }
        if !settings.noise.is_empty() {
            key += &format!(" noise {}", settings.noise);
        }
        if !settings.jitter.is_empty() {
            key += &format!(" jitter {}", settings.jitter);
        }
        if !settings.asinh.is_auto() {
            key += &format!(" asinh {}", settings.asinh);
        }
        if let Some(most) = settings.reduce {
            key += &format!(" reduce {most}");
        }
        if settings.auto {
            key.push_str(" auto");
        }
        for rule in &settings.exchangeable {
            key += &format!(" exchangeable {rule}");
        }
        key
    }
}

/// Whether trials are worth a look at reduced given columns.
fn tries_reduction(settings: &FitSettings, given: usize, rows: usize) -> bool {
    let free = settings.reduce.is_none() && settings.pca.is_none() && settings.exchangeable.is_empty();
    settings.auto && free && WIDE.contains(&given) && rows >= REDUCED_ROWS
}

/// The settings of the given columns' own map in a joint model.
pub(super) fn marginal_settings(settings: &FitSettings, given: &[String]) -> FitSettings {
    let own = |rule: &SupportRule| SupportRule::resolve(std::slice::from_ref(rule), given).is_ok();
    FitSettings {
        target: Some(Selection::Columns(given.iter().cloned().map(Pick::Name).collect())),
        given: None,
        support: settings.support.iter().filter(|rule| own(rule)).cloned().collect(),
        asinh: Asinh::None,
        noise: NoiseSettings::default(),
        jitter: NoiseSettings::default(),
        surrogate: None,
        reduce: None,
        exchangeable: Vec::new(),
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
        // Members of an ensemble share their transforms, so these see all rows.
        let shared = settings.auto || settings.members.unwrap_or(1) > 1;
        let seen = if shared { &origin[..] } else { train };
        let mut warnings = warnings::of_table(table, target, given)?;
        warnings.extend(warnings::of_values(table, target));

        let supports = |columns: &[usize]| -> Result<Vec<ColumnSettings>> {
            let mut all = SupportRule::resolve(&settings.support, table.names())?;
            all.retain(|column| columns.iter().any(|&place| table.names()[place] == column.name));
            Ok(all)
        };
        let rows = SomeRows { table, columns: target, rows: seen, noise: None };
        let target_settings =
            TargetSettings { columns: supports(target)?, scaling: settings.scaling, whiten: settings.whiten };
        let target_transform = TargetTransform::fit(&target_names, &target_settings, &rows)?;
        let deviations = |name: &str, noise: &NoiseSettings| match noise.is_empty() {
            true => Ok(None),
            false if given.is_empty() => {
                Err(Error::setting(name, "there are no given columns that could have it"))
            }
            false => noise.resolve(table.names(), given).map(Some),
        };
        let sd = deviations("noise", &settings.noise)?;
        let jitter = deviations("jitter", &settings.jitter)?;
        let kept = sd.as_deref().map(|sd| KeptNoise { sd, seed: settings.seed });
        let rows = SomeRows { table, columns: given, rows: seen, noise: kept };
        let given_settings = GivenSettings {
            columns: supports(given)?,
            scaling: settings.scaling,
            asinh: if settings.sees_columns_alone() { settings.asinh.clone() } else { Asinh::None },
            exchangeable: settings.exchangeable.clone(),
            pca: settings.pca,
        };
        let (mut given_transform, given_warnings) =
            GivenTransform::fit(&given_names, &given_settings, &rows)?;
        warnings.extend(given_warnings);
        if let Some(most) = settings.reduce {
            // Directions that have seen the validation rows would win every trial.
            let seen = if settings.auto { train } else { seen };
            let x = SomeRows { table, columns: target, rows: seen, noise: None };
            let y = SomeRows { table, columns: given, rows: seen, noise: kept };
            let pairs = ScaledPairs { x: &x, y: &y, of_x: &target_transform, of_y: &given_transform };
            let reduction = Reduction::fit(most, given.len(), target_transform.dim(), &pairs)?;
            given_transform = given_transform.reduced(reduction);
        }
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
        let sides =
            Sides { table, origin: &origin, target, given, of_x: &target_transform, of_y: &given_transform };
        let fresh = match (&sd, &jitter) {
            (None, None) => None,
            (Some(sd), None) => {
                Some(FreshNoise { noise: given_transform.noise(sd)?, y: Some(sides.given(None)?) })
            }
            (None, Some(jitter)) => Some(FreshNoise { noise: given_transform.noise(jitter)?, y: None }),
            (Some(sd), Some(jitter)) => {
                let both: Vec<f64> = sd.iter().zip(jitter).map(|(a, b)| a.hypot(*b)).collect();
                Some(FreshNoise { noise: given_transform.noise(&both)?, y: Some(sides.given(None)?) })
            }
        };
        let (x, y) = (sides.target()?, sides.given(kept)?);
        let (n, m) = (target_transform.dim(), given_transform.output_dim());
        Ok(Self {
            data: Dataset { target: n, given: m, x, y, fresh },
            data_sha256: table.select_columns(&[target, given].concat()).hash(),
            split_sha256: digest_of_rows([train, valid]),
            target_names,
            given_names,
            target_transform,
            given_transform,
            support,
            origin,
            rows: (train.len(), valid.len()),
            warnings,
        })
    }

    /// The split as the table was prepared with, whatever the members of an ensemble.
    pub(super) fn plain_split(&self) -> SplitRows {
        let (train, valid) = (self.rows.0 as u32, self.rows.1 as u32);
        ((0..train).collect(), (train..train + valid).collect())
    }
}

/// Validation rows of a member of an ensemble at least, if its fold has that many.
const FEWEST_VALID_ROWS: usize = 400;

/// Rows of the data for each member: folds or bootstrap samples of an ensemble, or the split as it is.
pub(super) fn splits((train, valid): (usize, usize), settings: &FitSettings) -> Vec<SplitRows> {
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
    // Members learn from as many rows as a single map does; of few rows all are needed to validate with.
    let share = (settings.train.valid_fraction * f64::from(all)).ceil() as usize;
    let enough = share.max(FEWEST_VALID_ROWS).min(settings.train.max_valid_rows);
    let mut order: Vec<u32> = (0..all).collect();
    order.shuffle(&mut stream(0));
    (0..members)
        .map(|member| {
            if settings.bootstrap {
                let mut inside = vec![false; all as usize];
                let train = sample(all, &mut stream(1 + member as u64));
                train.iter().for_each(|&row| inside[row as usize] = true);
                let outside = order.iter().copied().filter(|&row| !inside[row as usize]);
                let outside = outside.take(settings.train.max_valid_rows);
                return (train, outside.collect());
            }
            let start = (member * all as usize).div_ceil(members);
            let end = ((member + 1) * all as usize).div_ceil(members);
            // Of a large fold some rows are enough; the others are trained on.
            let (before, rest) = order.split_at(start);
            let (valid, after) = rest.split_at(enough.min(end - start));
            ([before, after].concat(), valid.to_vec())
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

/// The rows of a split, and how the map sees them.
struct Sides<'a> {
    table: &'a Table,
    /// Rows of the table.
    origin: &'a [u32],
    target: &'a [usize],
    given: &'a [usize],
    of_x: &'a TargetTransform,
    of_y: &'a GivenTransform,
}

impl Sides<'_> {
    /// All x in single precision.
    fn target(&self) -> Result<Vec<f32>> {
        let n = self.of_x.dim();
        self.transformed(self.target, n, None, |raw, out| {
            for (index, (raw, out)) in raw.chunks_exact(n).zip(out.chunks_exact_mut(n)).enumerate() {
                self.of_x.forward(raw, out).map_err(|error| (index, error))?;
            }
            Ok(())
        })
    }

    /// All y in single precision, with the noise that rows keep or without.
    fn given(&self, noise: Option<KeptNoise<'_>>) -> Result<Vec<f32>> {
        self.transformed(self.given, self.of_y.output_dim(), noise, |raw, out| {
            self.of_y.forward_rows(raw, out)
        })
    }

    /// Chunks of rows side by side, the same ones for any number of threads.
    fn transformed(
        &self,
        columns: &[usize],
        width: usize,
        noise: Option<KeptNoise<'_>>,
        transform: impl Fn(&[f64], &mut [f64]) -> Result<(), (usize, Error)> + Sync,
    ) -> Result<Vec<f32>> {
        let mut values = vec![0.0_f32; self.origin.len() * width];
        if width == 0 {
            return Ok(values);
        }
        let chunks = values.chunks_mut(CHUNK * width).zip(self.origin.chunks(CHUNK));
        // The first row with a problem is named, whatever the threads.
        try_each_with(
            chunks,
            || (),
            |(), _, (values, origin)| {
                let (mut raw, mut seen) = (vec![0.0; origin.len() * columns.len()], vec![0.0; values.len()]);
                for (raw, &place) in raw.chunks_exact_mut(columns.len()).zip(origin) {
                    let row = self.table.row(place as usize);
                    raw.iter_mut().zip(columns).for_each(|(value, &column)| *value = row[column]);
                    if let Some(noise) = &noise {
                        noise.add(place, raw);
                    }
                }
                transform(&raw, &mut seen).map_err(|(index, error)| match error {
                    Error::Domain(problem) => Error::Domain(format!("row {}: {problem}", origin[index] + 1)),
                    other => other,
                })?;
                values.iter_mut().zip(&seen).for_each(|(value, &seen)| *value = seen as f32);
                Ok(())
            },
        )?;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows that a member is trained on and rows that it is validated with are all there are, and none is both.
    #[test]
    fn every_row_is_validated_with_by_one_member_at_most_and_trains_the_others() {
        for (rows, most, validated) in [
            ((80, 23), 20_000, 103),
            ((80, 23), 7, 28),
            ((1000, 800), 20_000, 1600),
            ((7500, 2500), 20_000, 4000),
        ] {
            let train = TrainSettings { max_valid_rows: most, ..TrainSettings::default() };
            let settings = FitSettings { members: Some(4), train, ..FitSettings::default() };
            let (splits, count) = (splits(rows, &settings), (rows.0 + rows.1) as u32);
            assert_eq!(splits.len(), 4);
            let mut held_out = Vec::new();
            for (train, valid) in splits {
                let mut all = [train, valid.clone()].concat();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<u32>>());
                assert!(valid.len() <= most && !valid.is_empty());
                held_out.extend(valid);
            }
            assert_eq!(held_out.len(), validated);
            held_out.sort_unstable();
            held_out.dedup();
            assert_eq!(held_out.len(), validated);
        }
    }
}
