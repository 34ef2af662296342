//! From a table to a trained posterior: settings, split, transforms, training.

mod scores;
mod settings;
mod warnings;

pub use settings::FitSettings;

use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};

use crate::data::{Encoding, Pick, Selection, Split, Table, discard};
use crate::diagnose::SupportScore;
use crate::map::method::{Problem, Training};
use crate::posterior::{Header, Posterior, TrainingSummary};
use crate::train::{self, Checkpoint, Control, Dataset, Event, Observer, TrainSettings};
use crate::transform::{
    ColumnSettings, GivenSettings, GivenTransform, Rows, SupportRule, TargetSettings, TargetTransform,
};
use crate::{Error, Result};

/// What surrounds a fit.
pub struct FitControl<'a> {
    /// Receives the training's events.
    pub observer: &'a mut dyn Observer,
    /// Set from elsewhere to end the training with the best weights so far.
    pub stop: &'a AtomicBool,
    /// Where the state is saved (its `identity` is filled in), if anywhere.
    pub checkpoint: Option<Checkpoint>,
}

/// A trained posterior and what a user should know about the table.
pub struct Fitted {
    /// The model.
    pub posterior: Posterior,
    /// Whether the training got as far as its first regular validation; when it was stopped before, the model is
    /// hardly better than its initial weights. For a joint map both blocks.
    pub validated: bool,
    /// Constant or doubled columns, short tables and the like; the observer was told of each at once.
    pub warnings: Vec<String>,
}

/// One side's columns of the training rows, named as in the user's table.
struct TrainingRows<'a> {
    table: &'a Table,
    columns: &'a [usize],
    rows: &'a [u32],
}

impl Rows for TrainingRows<'_> {
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

/// Fits a map to `table`, whose columns are looked up by the settings' selections, with validation rows chosen by
/// the seed.
///
/// The table is consumed: it is dropped before training starts.
pub fn fit(table: Table, settings: &FitSettings, control: FitControl<'_>) -> Result<Fitted> {
    settings.validate()?;
    let (train_rows, valid_rows) = split(table.rows(), &settings.train, settings.seed)?;
    fit_split(table, &train_rows, &valid_rows, settings, control)
}

/// As [`fit()`], with the rows (from 0) to train on and to validate with given; other rows are not learned from.
pub fn fit_split(
    table: Table,
    train_rows: &[u32],
    valid_rows: &[u32],
    settings: &FitSettings,
    control: FitControl<'_>,
) -> Result<Fitted> {
    settings.validate()?;
    if let Some(row) = train_rows.iter().chain(valid_rows).find(|&&row| row as usize >= table.rows()) {
        return Err(Error::Columns(format!(
            "the split names row {}, but the table has {} rows",
            row + 1,
            table.rows()
        )));
    }
    let settings = &FitSettings { support: settings.named(table.names())?.support, ..settings.clone() };
    if !settings.joint {
        return fit_block(table, train_rows, valid_rows, settings, control);
    }
    let (target, given) = settings.columns(table.names())?;
    if given.is_empty() {
        return Err(Error::setting(
            "joint",
            "needs given columns; without them the fit is a joint one already",
        ));
    }
    let half = |minutes: Option<f64>| minutes.map(|minutes| 0.5 * minutes);
    let train = TrainSettings { minutes: half(settings.train.minutes), ..settings.train.clone() };
    let (names, target_names) = (table.names_of(&given), table.names_of(&target));
    let marginal = FitSettings {
        target: Some(Selection::Columns(names.iter().cloned().map(Pick::Name).collect())),
        given: None,
        support: supports(settings, &table, &given)?.into_iter().map(SupportRule::from).collect(),
        pca: None,
        joint: false,
        train: train.clone(),
        ..settings.clone()
    };
    let plan = control.checkpoint.as_ref().map(|plan| {
        let mut path = plan.path.as_os_str().to_owned();
        path.push(".given");
        Checkpoint { path: path.into(), keep: true, ..plan.clone() }
    });
    let kept = plan.as_ref().map(|plan| plan.path.clone());
    let block = |number: usize, columns: &[String]| Event::Block {
        number,
        of: 2,
        columns: columns.to_vec(),
        conditional: number == 2,
    };
    control.observer.event(&block(1, &names));
    let first = FitControl { observer: &mut *control.observer, stop: control.stop, checkpoint: plan };
    let marginal = fit_block(table.select_columns(&given), train_rows, valid_rows, &marginal, first)?;
    let settings = FitSettings { train, ..settings.clone() };
    control.observer.event(&block(2, &target_names));
    let mut fitted = fit_block(table, train_rows, valid_rows, &settings, control)?;
    fitted.warnings.splice(0..0, marginal.warnings);
    let ended = |posterior: &Posterior| !posterior.header().training.stop.is_resumable();
    if ended(&marginal.posterior) && ended(&fitted.posterior) {
        // Nothing is left to resume.
        if let Some(path) = kept {
            discard(&path);
        }
    }
    fitted.posterior.set_marginal(marginal.posterior);
    fitted.validated &= marginal.validated;
    Ok(fitted)
}

/// Fits one block: π(target | given), or the density of the target where nothing is given.
fn fit_block(
    table: Table,
    train_rows: &[u32],
    valid_rows: &[u32],
    settings: &FitSettings,
    control: FitControl<'_>,
) -> Result<Fitted> {
    let (target_columns, given_columns) = settings.columns(table.names())?;
    let problem =
        Problem { target: target_columns.len(), given: given_columns.len(), rows: train_rows.len() };
    let settings = &settings.resolved(problem);
    let (target_names, given_names) = (table.names_of(&target_columns), table.names_of(&given_columns));
    let mut warnings = warnings::of_table(&table, &target_columns, &given_columns)?;
    warnings.extend(warnings::of_sizes(settings, train_rows.len(), valid_rows.len(), given_columns.len()));
    warnings.extend(warnings::of_values(&table, &target_columns));

    let target_support = supports(settings, &table, &target_columns)?;
    let given_support = supports(settings, &table, &given_columns)?;
    let rows = TrainingRows { table: &table, columns: &target_columns, rows: train_rows };
    let target_settings = TargetSettings { columns: target_support, scaling: settings.scaling };
    let target_transform = TargetTransform::fit(&target_names, &target_settings, &rows)?;
    let rows = TrainingRows { table: &table, columns: &given_columns, rows: train_rows };
    let given_settings =
        GivenSettings { columns: given_support, scaling: settings.scaling, pca: settings.pca };
    let (given_transform, given_warnings) = GivenTransform::fit(&given_names, &given_settings, &rows)?;
    warnings.extend(given_warnings);
    let support = match given_columns.is_empty() {
        true => None,
        false => match SupportScore::fit(&rows, given_columns.len(), settings.seed) {
            Ok(score) => Some(score),
            // Too few rows to tell what is far away are no reason not to fit.
            Err(Error::Shape { .. }) => None,
            Err(error) => {
                warnings
                    .push(format!("observations far from the training data will not be noticed: {error}"));
                None
            }
        },
    };

    let data = dataset(&table, &target_columns, &given_columns, &target_transform, &given_transform)?;
    let data_sha256 = table.hash();
    drop(table);

    let FitControl { observer, stop, checkpoint } = control;
    let checkpoint = checkpoint.map(|plan| Checkpoint { identity: identity(settings, &data_sha256), ..plan });
    // What is wrong with the table should be known before hours are spent on it.
    warnings.iter().for_each(|text| observer.event(&Event::Warning { text: text.clone() }));
    let control = Control { observer: &mut *observer, stop, checkpoint };
    let (map, outcome) = settings.method.spec().train(Training {
        data: &data,
        train_rows,
        valid_rows,
        settings: &settings.train,
        seed: settings.seed,
        control,
    })?;
    if outcome.stop == train::Stop::Diverged {
        let text =
            "the training loss repeatedly became NaN or infinite; the best weights before that were kept \
                    (a lower learning rate or a robust scaling may help)"
                .to_owned();
        observer.event(&Event::Warning { text: text.clone() });
        warnings.push(text);
    }
    let scores = scores::of_fit(&*map, &data, (train_rows, valid_rows), settings.seed)?;
    let header = Header {
        kind: Header::KIND.into(),
        brenier_version: env!("CARGO_PKG_VERSION").into(),
        settings: settings.timeless(),
        target_names,
        given_names,
        target_transform,
        given_transform,
        training: TrainingSummary {
            stop: outcome.stop,
            steps: outcome.steps,
            best_step: outcome.best_step,
            best_valid_nll: outcome.best_valid_nll,
            train_rows: train_rows.len(),
            valid_rows: valid_rows.len(),
            scores,
        },
        seed: settings.seed,
        data_sha256,
        support,
        encoding: Encoding::default(),
        marginal: None,
    };
    let validated = outcome.validated;
    Ok(Fitted { posterior: Posterior::new(header, map, outcome.history), validated, warnings })
}

/// What a checkpoint belongs to: the settings (the time budget aside) and the data.
fn identity(settings: &FitSettings, data_sha256: &str) -> String {
    let text = serde_json::to_string(&settings.timeless()).expect("settings are plain data");
    let digest = Sha256::new().chain_update(text).chain_update(data_sha256).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The supports declared for some of the table's columns.
fn supports(settings: &FitSettings, table: &Table, columns: &[usize]) -> Result<Vec<ColumnSettings>> {
    let mut all = SupportRule::resolve(&settings.support, table.names())?;
    all.retain(|column| columns.iter().any(|&place| table.names()[place] == column.name));
    Ok(all)
}

/// Training and validation rows by the seed.
pub(crate) fn split(rows: usize, settings: &TrainSettings, seed: u64) -> Result<(Vec<u32>, Vec<u32>)> {
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

/// Every row as the map sees it, in single precision.
fn dataset(
    table: &Table,
    target: &[usize],
    given: &[usize],
    target_transform: &TargetTransform,
    given_transform: &GivenTransform,
) -> Result<Dataset> {
    let (n, m) = (target_transform.dim(), given_transform.output_dim());
    let mut data = Dataset {
        target: n,
        given: m,
        x: Vec::with_capacity(table.rows() * n),
        y: Vec::with_capacity(table.rows() * m),
    };
    let (mut raw_x, mut raw_y) = (vec![0.0; n], vec![0.0; given.len()]);
    let (mut x, mut y) = (vec![0.0; n], vec![0.0; m]);
    for (index, row) in table.iter().enumerate() {
        for (value, &column) in raw_x.iter_mut().zip(target) {
            *value = row[column];
        }
        for (value, &column) in raw_y.iter_mut().zip(given) {
            *value = row[column];
        }
        let named = |error: Error| match error {
            Error::Domain(problem) => Error::Domain(format!("row {}: {problem}", index + 1)),
            other => other,
        };
        target_transform.forward(&raw_x, &mut x).map_err(named)?;
        given_transform.forward(&raw_y, &mut y).map_err(named)?;
        data.x.extend(x.iter().map(|&value| value as f32));
        data.y.extend(y.iter().map(|&value| value as f32));
    }
    Ok(data)
}
