//! From a table to a trained posterior: settings, split, transforms, training.

mod scores;
mod warnings;

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::data::{Encoding, Pick, Selection, Split, Table, discard, resolve_pair, short_name};
use crate::diagnose::SupportScore;
use crate::map::cot::{CotMap, CotSettings, CotShape};
use crate::map::pcp::{Convexity, Initialisation, OutputActivation, PcpMap, PcpShape};
use crate::map::{MapShape, Method, Trainable, TrainedMap};
use crate::posterior::{Header, Posterior, TrainingSummary};
use crate::train::{self, Checkpoint, Control, Dataset, Event, Observer, TrainSettings};
use crate::transform::{
    ColumnSettings, GivenSettings, GivenTransform, PcaSettings, Rows, Scaling, SupportRule, TargetSettings,
    TargetTransform,
};
use crate::{Error, Result};

/// The sizes of the network; `None` chooses by the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkSettings {
    /// Width of the layers that carry the target; COT-Flow: of every layer.
    pub feature_width: Option<usize>,
    /// PCP-Map: width of the layers that carry the given variables.
    pub context_width: Option<usize>,
    /// Number of hidden layers.
    pub depth: Option<usize>,
    /// COT-Flow: widths of a tanh network that embeds y, trained with the potential; empty for none. It pays where
    /// there are very many given columns.
    pub embedding: Vec<usize>,
    /// PCP-Map: activation of the network's output.
    #[serde(alias = "output_activation")]
    pub output: OutputActivation,
    /// PCP-Map: how the parameters start.
    pub initialisation: Initialisation,
    /// PCP-Map: the network where nothing is given, as in the first block of a joint map.
    pub unconditional: Option<Convexity>,
}

/// Everything that decides a fit besides the table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// The method.
    pub method: Method,
    /// The columns x to learn the distribution of.
    pub target: Option<Selection>,
    /// The columns y it is conditioned on; none for an unconditional map.
    pub given: Option<Selection>,
    /// Those of the given columns that hold categories. [`fit()`] sees numbers only: whoever reads the table encodes
    /// them, see [`Encoding`](crate::data::Encoding), and lets the model know ([`Posterior::with_encoding`]).
    pub categorical: Option<Selection>,
    /// Supports of columns, as in `rate=log`, `p=interval(0,1)` or `x1..x4=log`; the last for a column counts.
    pub support: Vec<SupportRule>,
    /// Scaling of the columns.
    pub scaling: Scaling,
    /// Principal components of the given columns: a count, or a fraction of the variance to keep.
    pub pca: Option<PcaSettings>,
    /// Whether to learn the distribution of the given columns too, as the first block of a block-triangular map, so
    /// that the joint density of target and given columns is at hand.
    pub joint: bool,
    /// Seed of split, initial weights and batches.
    pub seed: u64,
    /// The network.
    pub network: NetworkSettings,
    /// COT-Flow: integration and penalties.
    pub flow: CotSettings,
    /// The training.
    pub train: TrainSettings,
}

impl FitSettings {
    /// Indices of the target and given columns among `names`.
    pub fn columns(&self, names: &[String]) -> Result<(Vec<usize>, Vec<usize>)> {
        let target = self.target.as_ref().ok_or_else(|| {
            Error::setting("target", "name the columns to learn, as in --target x1,x2 or --target x1..x4")
        })?;
        let (target, given) = match &self.given {
            Some(given) => resolve_pair(target, given, names)?,
            None => (target.resolve(names)?, Vec::new()),
        };
        if target.is_empty() {
            return Err(Error::setting("target", "names no column"));
        }
        Ok((target, given))
    }

    /// The same with every column by its name, given the `names` of the table: in a table with fewer columns, ranges
    /// and positions would mean others.
    pub fn named(&self, names: &[String]) -> Result<Self> {
        let (target, given) = self.columns(names)?;
        let by_name = |columns: &[usize]| {
            Selection::Columns(columns.iter().map(|&column| Pick::Name(names[column].clone())).collect())
        };
        let support = SupportRule::resolve(&self.support, names)?;
        for column in &support {
            if !target.iter().chain(&given).any(|&place| names[place] == column.name) {
                let name = short_name(&column.name);
                return Err(Error::setting(
                    "support",
                    format!("\"{name}\" is neither a target nor a given column"),
                ));
            }
        }
        Ok(Self {
            target: Some(by_name(&target)),
            given: (!given.is_empty()).then(|| by_name(&given)),
            support: support.into_iter().map(SupportRule::from).collect(),
            ..self.clone()
        })
    }

    /// An error for settings that only the other method has.
    pub(crate) fn validate(&self) -> Result<()> {
        self.train.validate()?;
        if self.joint && self.categorical.is_some() {
            return Err(Error::setting(
                "categorical",
                "categories have no density, which joint asks for: leave one of the two out",
            ));
        }
        let (network, default) = (&self.network, NetworkSettings::default());
        if self.method == Method::PcpMap {
            if !network.embedding.is_empty() {
                return Err(Error::setting("embedding", "belongs to the method cot-flow; leave it out"));
            }
            return match self.flow == CotSettings::default() {
                true => Ok(()),
                false => Err(Error::setting(
                    "flow",
                    "time steps and penalties belong to the method cot-flow; leave them out or choose it",
                )),
            };
        }
        self.flow.validate()?;
        let foreign = [
            ("context_width", network.context_width.is_some()),
            ("output_activation", network.output != default.output),
            ("initialisation", network.initialisation != default.initialisation),
            ("unconditional", network.unconditional.is_some()),
        ];
        match foreign.iter().find(|(_, set)| *set) {
            Some((name, _)) => Err(Error::setting(name, "belongs to the method pcp-map; leave it out")),
            None => Ok(()),
        }
    }

    /// Sizes of the network for n target and m given (transformed) variables.
    fn shape(&self, target: usize, given: usize, rows: usize) -> MapShape {
        // Small tables overfit wide networks; see docs/performance.md.
        let width = self.network.feature_width.unwrap_or(if rows >= 5000 || target > 8 { 128 } else { 64 });
        let depth = self.network.depth.unwrap_or(2);
        match self.method {
            Method::PcpMap => MapShape::PcpMap(PcpShape {
                target,
                given,
                feature_width: width,
                context_width: self.network.context_width.unwrap_or(width),
                depth,
                output: self.network.output,
                convexity: match given {
                    0 => self.network.unconditional.unwrap_or(Convexity::Full),
                    _ => Convexity::Partial,
                },
            }),
            Method::CotFlow => MapShape::CotFlow(
                CotShape::new(target, given, width, depth).with_embedding(self.network.embedding.clone()),
            ),
        }
    }

    /// What an epoch costs, in units of its own: good for telling a long training from a short one.
    pub(crate) fn cost(&self, target: usize, given: usize, rows: usize) -> usize {
        let steps = if self.method == Method::CotFlow { self.flow.time_steps } else { 1 };
        self.shape(target, given, rows).parameters() * steps
    }

    /// The same with every choice made that depends on the method and the number of training rows.
    fn resolved(&self, rows: usize) -> Self {
        let batch_size = match (self.method, rows) {
            (_, 20_000..) => 256,
            (_, 5_000..) => 128,
            (Method::PcpMap, _) => 64,
            (Method::CotFlow, _) => 32,
        };
        let mut settings = self.clone();
        settings.train.batch_size.get_or_insert(batch_size);
        settings.train.learning_rate.get_or_insert(0.005);
        settings
    }
}

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
        network: NetworkSettings { embedding: Vec::new(), ..settings.network.clone() },
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
    let settings = &settings.resolved(train_rows.len());
    let (target_columns, given_columns) = settings.columns(table.names())?;
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

    let shape = settings.shape(data.target, data.given, train_rows.len());
    let FitControl { observer, stop, checkpoint } = control;
    let checkpoint = checkpoint.map(|plan| Checkpoint { identity: identity(settings, &data_sha256), ..plan });
    // What is wrong with the table should be known before hours are spent on it.
    warnings.iter().for_each(|text| observer.event(&Event::Warning { text: text.clone() }));
    let control = Control { observer: &mut *observer, stop, checkpoint };
    let rows = (train_rows, valid_rows);
    let (map, outcome) = match &shape {
        MapShape::PcpMap(shape) => {
            let map = PcpMap::initial(*shape, settings.network.initialisation, settings.seed)?;
            trained(map, &data, rows, settings, control)?
        }
        MapShape::CotFlow(shape) => trained(
            CotMap::initial(shape.clone(), settings.flow, settings.seed)?,
            &data,
            rows,
            settings,
            control,
        )?,
    };
    if outcome.stop == train::Stop::Diverged {
        let text =
            "the training loss repeatedly became NaN or infinite; the best weights before that were kept \
                    (a lower --learning-rate or --scaling robust may help)"
                .to_owned();
        observer.event(&Event::Warning { text: text.clone() });
        warnings.push(text);
    }
    let scores = scores::of_fit(&map, &data, rows, settings.seed)?;
    let header = Header {
        kind: Header::KIND.into(),
        brenier_version: env!("CARGO_PKG_VERSION").into(),
        method: settings.method,
        // How long a run may take decides no bit of it unless it was cut short.
        settings: FitSettings {
            train: TrainSettings { minutes: None, ..settings.train.clone() },
            ..settings.clone()
        },
        target_names,
        given_names,
        shape,
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

/// Trains `map` and hands it over as a posterior needs it.
fn trained<M: Trainable<f32> + Into<TrainedMap>>(
    mut map: M,
    data: &Dataset,
    (train_rows, valid_rows): (&[u32], &[u32]),
    settings: &FitSettings,
    control: Control<'_>,
) -> Result<(TrainedMap, train::Outcome)> {
    let outcome =
        train::train(&mut map, data, train_rows, valid_rows, &settings.train, settings.seed, control)?;
    Ok((map.into(), outcome))
}

/// What a checkpoint belongs to: the settings (the time budget aside) and the data.
fn identity(settings: &FitSettings, data_sha256: &str) -> String {
    let timeless =
        FitSettings { train: TrainSettings { minutes: None, ..settings.train.clone() }, ..settings.clone() };
    let text = serde_json::to_string(&timeless).expect("settings are plain data");
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
