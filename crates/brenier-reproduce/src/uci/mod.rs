//! The table of six UCI data sets: pilot search, full trainings with several seeds, test NLL and MMD.
//!
//! **Units.** The published figures are those of standardised columns: by the training rows where x given y is
//! estimated, by all rows where (x, y) is. Models here learn the raw table, so that they serve in its own units; with
//! s the standard deviations of the columns whose density it is, the figure in published units follows exactly,
//!
//! NLL_published = NLL_raw − Σⱼ log sⱼ.
//!
//! **MMD.** At every test row yᵢ one x̃ᵢ is drawn; compared are the rows (x̃ᵢ, yᵢ) and (xᵢ, yᵢ), in published units, with
//! the kernel exp(−‖·‖²/2). The formula printed in the paper is MMD²; figures of the size of its table come out as the
//! root. Both are reported. For joint maps the same with (x̃, ỹ) drawn together is reported besides, and, since the published
//! figures of joint maps are below what as few rows as the test rows can give, with as many draws as training rows.
//!
//! **Selection** uses the validation rows alone. The test rows are read once for every fully trained model.
//!
//! **Adaptive transport maps** have nothing to search: one training on the split, and ten folds, which is what is published of
//! them. A fold's map grows on all rows but the fold's, because the method validates by parts of its own; joint test rows with a
//! log density below −10⁴ are left out, as published, and counted.

mod experiment;
mod protocol;
mod published;
mod table;
#[cfg(test)]
mod tests;
mod variant;

pub use experiment::UciExperiment;
pub use published::{Published, PublishedFolds};
pub use table::{OverSeeds, UciTable};
pub use variant::Variant;

use protocol::MethodProtocol;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::data::{Split, Table, UciSet};
use crate::diagnose::{Bandwidth, Mmd, Sample, mmd};
use crate::map::SampleSettings;
use crate::statistics::{Estimate, moments};
use crate::transform::Asinh;
use crate::tune::{Final, SearchSpace, TuneOutcome, TuneSettings, search};
use crate::{Error, EventKind, FitSettings, Journal, Posterior, Result, Run, StopToken, baseline, fit_split};
use brenier_core::kernel::side_by_side;

/// Seed of the fold that a row belongs to.
const FOLD_SEED: u64 = 42;

/// How the table is reproduced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UciSettings {
    /// The published protocol: its search space, 100 pilots (COT-Flow: 50) each run to its end, the best ten settings
    /// trained with five seeds each, its schedule. Otherwise a shorter one.
    pub exact: bool,
    /// Settings drawn for pilots.
    pub trials: Option<usize>,
    /// How many of the best are trained to the end.
    pub finalists: Option<usize>,
    /// Seeds with which each of them is trained.
    pub repeats: Option<usize>,
    /// Seed of the draws, and the first of the seeds of full trainings.
    pub seed: u64,
    /// Parts of a cross-validation with the settings that were chosen; 0 for none, or ten for adaptive transport maps, whose
    /// published figures are such.
    pub folds: usize,
}

/// An event of a cell that is filled.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UciEvent {
    /// The cross-validation begins: this many trainings.
    Folds {
        /// How many.
        count: usize,
    },
    /// A fold's test NLL, in published units.
    Fold {
        /// The figure.
        nll: f64,
    },
}

impl EventKind for UciEvent {}

/// The figures of one fully trained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UciScore {
    /// The training.
    #[serde(flatten)]
    pub training: Final,
    /// Mean negative log-likelihood of the test rows, in published units.
    pub nll: f64,
    /// The lowest log density of a test row, in published units; none in old results.
    #[serde(default)]
    pub lowest: Option<f64>,
    /// The mean under the conditional Gaussian of the model file; none where that is the map, and in old results.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// Distance of draws at the test rows' y and the test rows: (MMD², its root).
    pub mmd: (f64, f64),
    /// Draws left out of it because they could not be computed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsolved: usize,
    /// For joint maps: the same for draws of (x, y).
    pub joint_mmd: Option<(f64, f64)>,
    /// For joint maps: draws of (x, y), as many as training rows, and the training rows.
    pub training_mmd: Option<(f64, f64)>,
}

/// A cross-validated figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UciFolds {
    /// Test NLL of each fold, in published units.
    pub nll: Vec<f64>,
    /// Their mean.
    pub mean: f64,
    /// Its standard error, from the scatter of the folds.
    pub standard_error: f64,
    /// Test rows that were left out of it because of their density, where the protocol says so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UciResult {
    /// Name of the data set.
    pub dataset: String,
    /// The method, with what was fixed of its settings.
    pub method: Variant,
    /// Settings of the protocol.
    pub protocol: UciSettings,
    /// Whether every training of the protocol ran to its end.
    pub complete: bool,
    /// Pilots run.
    pub pilots: usize,
    /// Seconds of all trainings on one thread each, pilots included.
    pub seconds: f64,
    /// Settings of the model that validation chose.
    pub chosen: Option<FitSettings>,
    /// All full trainings, best validation loss first.
    pub scores: Vec<UciScore>,
    /// The cross-validation.
    pub folds: Option<UciFolds>,
}

/// A cell of the table, ready to be filled: data, split, and all that its trainings depend on.
pub struct UciReproduction {
    set: UciSet,
    method: Variant,
    protocol: UciSettings,
    /// Parts of the cross-validation.
    folds: usize,
    /// The log density below which a test row of a fold is left out.
    floor: Option<f64>,
    /// Whether a fold's map is trained on its validation rows too.
    trains_on_all: bool,
    table: Table,
    split: Split,
    base: FitSettings,
    space: SearchSpace,
    tune: TuneSettings,
}

impl UciReproduction {
    /// Reads the raw table from `folder` and prepares it as published.
    pub fn new(set: &UciSet, method: &Variant, folder: &Path, protocol: &UciSettings) -> Result<Self> {
        let table = set.prepare(&set.read(folder)?)?;
        Self::with_table(set, method, table, protocol)
    }

    /// As [`new`](Self::new), with a prepared table.
    fn with_table(set: &UciSet, method: &Variant, table: Table, protocol: &UciSettings) -> Result<Self> {
        let own = MethodProtocol::of(method, set.joint, protocol.exact)?;
        let folds = if protocol.folds == 0 { own.folds } else { protocol.folds };
        if (1..3).contains(&folds) || folds > set.rows / 10 {
            return Err(Error::setting(
                "folds",
                format!("must be 0, or between 3 and {} for {}", set.rows / 10, set.name),
            ));
        }
        let (target, given) = set.columns(&table);
        let base = FitSettings {
            target: Some(target),
            given: Some(given),
            joint: set.joint,
            // As published: the table's methods all see the columns as they are.
            asinh: Asinh::None,
            seed: protocol.seed,
            ..own.settings
        };
        // Epochs of a pilot, as published: fewer where there are more rows.
        let pilot_epochs = match set.name {
            "parkinsons" | "white_wine" => 3,
            "red_wine" => 4,
            _ => 15,
        };
        let by = |asked: Option<usize>, exact: usize, short: usize| match own.searches {
            true => asked.unwrap_or(if protocol.exact { exact } else { short }),
            false => 1,
        };
        let pilots = method.method().info().published_pilots.unwrap_or(100);
        let tune = TuneSettings {
            trials: Some(by(protocol.trials, pilots, 16)),
            pilot_epochs: Some(pilot_epochs),
            finalists: Some(by(protocol.finalists, 10, 3)),
            repeats: Some(by(protocol.repeats, 5, 2)),
            exact: protocol.exact,
            ..TuneSettings::default()
        };
        tune.resolved(method.method())?;
        let space = method.narrow(SearchSpace::from_toml(own.space)?);
        Ok(Self {
            set: set.clone(),
            method: method.clone(),
            protocol: protocol.clone(),
            folds,
            floor: own.floor.filter(|_| set.joint),
            trains_on_all: !own.searches,
            table,
            split: set.split(),
            base,
            space,
            tune,
        })
    }

    /// The name of its result: one with other folds is another.
    fn step(&self) -> String {
        match self.folds {
            0 => "cell".to_owned(),
            folds => format!("cell-{folds}-folds"),
        }
    }

    /// Runs what the folder does not hold yet, and scores every fully trained model.
    ///
    /// Journal, checkpoints and models are kept in `folder`; what it holds of the same run is continued.
    pub fn run(&self, folder: &Path, mut run: Run<'_>) -> Result<(UciResult, TuneOutcome)> {
        // No test rows: they must not even be within reach of the search.
        let split = Split { test: Vec::new(), ..self.split.clone() };
        let outcome =
            search(&self.table, &split, &self.base, &self.space, &self.tune, folder, run.part(None))?;
        let mut scores = Vec::new();
        for training in &outcome.finals {
            let Some(name) = &training.model else { continue };
            let model = Posterior::load(folder.join(name))?;
            let units = Units::new(&self.set, &self.table, &self.split.train);
            scores.push(self.score(&model, &units, &self.split.test, training.clone())?);
        }
        let chosen = scores.first().map(|best| outcome.trials[best.training.trial].clone());
        let folds = match &chosen {
            Some(settings) if self.folds > 0 && !run.is_stopped() => {
                self.cross_validate(settings, folder, &mut run)?
            }
            _ => None,
        };
        let seconds = outcome.pilots.iter().map(|pilot| pilot.seconds);
        let result = UciResult {
            dataset: self.set.name.to_owned(),
            method: self.method.clone(),
            protocol: self.protocol.clone(),
            complete: outcome.complete && (folds.is_some() || self.folds == 0),
            pilots: outcome.trials.len(),
            seconds: seconds.chain(outcome.finals.iter().map(|training| training.seconds)).sum(),
            chosen,
            scores,
            folds,
        };
        Ok((result, outcome))
    }

    /// One full training alone, by its trial and repeat: the same bits as within a run.
    pub fn one(&self, trial: usize, repeat: usize, stop: &StopToken) -> Result<(Posterior, UciScore)> {
        let trials = self.tune.trials.unwrap_or(1).max(trial + 1);
        let (_, given) = self.base.columns(self.table.names())?;
        let drawn = self.space.draw(&self.base, given.len(), trials, self.base.seed)?;
        let mut settings = drawn.get(trial).cloned().ok_or_else(|| {
            Error::setting("training", format!("there is no trial {trial}: the space has {}", drawn.len()))
        })?;
        settings.seed = settings.seed.wrapping_add(repeat as u64);
        let (train, valid) = (&self.split.train, &self.split.valid);
        let started = Instant::now();
        let model = fit_split(&self.table, train, valid, &settings, Run::silent().stop(stop))?.posterior;
        let seconds = started.elapsed().as_secs_f64();
        let mut training = Final::of(&model, trial, repeat);
        training.seconds = seconds;
        let units = Units::new(&self.set, &self.table, train);
        let score = self.score(&model, &units, &self.split.test, training)?;
        Ok((model, score))
    }

    /// The given and target columns of `rows`.
    fn sides(&self, rows: &[u32]) -> Result<(Vec<f64>, Vec<f64>)> {
        let (target, given) = self.base.columns(self.table.names())?;
        Ok((self.table.gather(rows, &target), self.table.gather(rows, &given)))
    }

    fn score(&self, model: &Posterior, units: &Units, rows: &[u32], training: Final) -> Result<UciScore> {
        let (target, given) = self.sides(rows)?;
        let (losses, baseline) = self.losses(model, units, &target, &given)?;
        let seed = training.seed;
        // Draws that cannot be computed are left out and counted.
        let settings = SampleSettings { skip_unsolved: true, ..Default::default() };
        let draws = model.sample(&given, rows.len(), 1, seed, &settings)?;
        let truth = units.standardised(&given, &target);
        let unsolved = draws.unsolved.len();
        let at = draws.observation.iter().map(|&row| &given[row as usize * units.given..][..units.given]);
        let drawn = units.standardised(&at.collect::<Vec<_>>().concat(), &draws.values);
        let distance = |drawn: &[f64], truth: &[f64]| -> Result<(f64, f64)> {
            let dim = units.mean.len();
            let Mmd { squared, root, .. } =
                mmd(&Sample::new(drawn, dim)?, &Sample::new(truth, dim)?, Bandwidth::Fixed(1.0))?;
            Ok((squared, root))
        };
        let joint = |rows: &[u32]| -> Result<Option<(f64, f64)>> {
            if !self.set.joint {
                return Ok(None);
            }
            let (target, given) = self.sides(rows)?;
            let draws = model.sample_joint(rows.len(), seed, &settings)?;
            let drawn = units.standardised(&draws.given, &draws.target);
            distance(&drawn, &units.standardised(&given, &target)).map(Some)
        };
        Ok(UciScore {
            nll: Estimate::of(&losses).mean,
            lowest: losses.iter().map(|loss| -loss).reduce(f64::min),
            baseline: baseline.map(|losses| Estimate::of(&losses).mean),
            mmd: distance(&drawn, &truth)?,
            unsolved,
            joint_mmd: joint(rows)?,
            training_mmd: joint(&self.split.train)?,
            training,
        })
    }

    /// Negative log densities of rows in published units: under the map, and under the conditional Gaussian of its file.
    fn losses(
        &self,
        model: &Posterior,
        units: &Units,
        target: &[f64],
        given: &[f64],
    ) -> Result<(Vec<f64>, Option<Vec<f64>>)> {
        let (densities, baseline) = match self.set.joint {
            true => {
                let found = model.log_density_joint(target, given)?;
                let of_target = baseline::losses(model, target, given, &found.conditional)?;
                let of_given =
                    model.marginal().map(|of_y| baseline::losses(of_y, given, &[], &found.marginal));
                let both = of_target.zip(of_given.transpose()?.flatten());
                let sum = |(x, y): (Vec<f64>, Vec<f64>)| x.iter().zip(&y).map(|(x, y)| x + y).collect();
                (found.joint(), both.map(sum))
            }
            false => {
                let found = model.log_density(target, given)?;
                let baseline = baseline::losses(model, target, given, &found)?;
                (found, baseline)
            }
        };
        let log_scale = units.log_scale(&self.set);
        let published = |losses: Vec<f64>| losses.iter().map(|loss| loss - log_scale).collect();
        let losses = densities.user.iter().map(|density| -density).collect();
        Ok((published(losses), baseline.map(published)))
    }

    /// Trains `settings` on every fold's complement; `None` when stopped on the way.
    fn cross_validate(
        &self,
        settings: &FitSettings,
        folder: &Path,
        run: &mut Run<'_>,
    ) -> Result<Option<UciFolds>> {
        let splits = Split::folds(self.table.rows(), self.folds, FOLD_SEED)?;
        run.tell(UciEvent::Folds { count: splits.len() })?;
        let stop = &run.token().clone();
        let jobs: Vec<usize> = (0..splits.len()).collect();
        let mut parts = vec![None; splits.len()];
        side_by_side(
            rayon::current_num_threads(),
            &AtomicBool::new(false),
            &jobs,
            |&fold| Ok((fold, self.fold(settings, &splits[fold], fold, stop, folder)?)),
            |done| {
                let (fold, part) = done?;
                parts[fold] = part;
                part.into_iter().try_for_each(|(nll, _)| run.tell(UciEvent::Fold { nll }))
            },
        )?;
        let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let (nll, dropped): (Vec<f64>, Vec<usize>) = parts.into_iter().unzip();
        let Estimate { mean, standard_error, .. } = Estimate::of(&nll);
        Ok(Some(UciFolds { nll, mean, standard_error, dropped: dropped.iter().sum() }))
    }

    /// The test NLL of one fold and the number of rows left out of it; `None` when stopped.
    fn fold(
        &self,
        settings: &FitSettings,
        split: &Split,
        fold: usize,
        stop: &StopToken,
        folder: &Path,
    ) -> Result<Option<(f64, usize)>> {
        let name = format!("fold-{fold}-of-{}", self.folds);
        let path = folder.join(format!("{name}.brenier"));
        let train = match self.trains_on_all {
            true => [&split.train[..], &split.valid].concat(),
            false => split.train.clone(),
        };
        let model = match path.exists() {
            true => Posterior::load(&path)?,
            false if stop.is_stopped() => return Ok(None),
            false => {
                let journal = Journal::at(folder.join(format!("{name}.checkpoint")));
                let run = Run::silent().stop(stop).journal(journal);
                let model = fit_split(&self.table, &train, &split.valid, settings, run)?.posterior;
                let blocks = [Some(&model), model.marginal()];
                if blocks.into_iter().flatten().any(|block| block.info().training.stop.is_resumable()) {
                    return Ok(None);
                }
                model.save(&path)?;
                model
            }
        };
        let (target, given) = self.sides(&split.test)?;
        let units = Units::new(&self.set, &self.table, &train);
        let (mut losses, _) = self.losses(&model, &units, &target, &given)?;
        losses.retain(|loss| self.floor.is_none_or(|floor| -loss >= floor));
        if losses.is_empty() {
            return Err(Error::Numerical(format!("{name}: no test row has a density that counts")));
        }
        Ok(Some((Estimate::of(&losses).mean, split.test.len() - losses.len())))
    }
}

/// The published units of a table whose columns are (y, x): mean and standard deviation of every column.
struct Units {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    given: usize,
}

impl Units {
    /// By the `train` rows where x given y is estimated, by all rows where (x, y) is.
    fn new(set: &UciSet, table: &Table, train: &[u32]) -> Self {
        let all: Vec<u32> = (0..table.rows() as u32).collect();
        let rows = if set.joint { &all } else { train };
        let columns = 0..table.columns();
        let (mean, deviation) =
            columns.map(|column| moments(rows.iter().map(|&row| table.value(row as usize, column)))).unzip();
        Self { mean, deviation, given: table.columns() - set.targets }
    }

    /// Σ log s over the columns whose density is estimated.
    fn log_scale(&self, set: &UciSet) -> f64 {
        let from = if set.joint { 0 } else { self.given };
        self.deviation[from..].iter().map(|deviation| deviation.ln()).sum()
    }

    /// Rows (y, x).
    fn standardised(&self, given: &[f64], target: &[f64]) -> Vec<f64> {
        let targets = self.mean.len() - self.given;
        let rows = given.chunks_exact(self.given).zip(target.chunks_exact(targets));
        rows.flat_map(|(y, x)| {
            let row = y.iter().chain(x).zip(self.mean.iter().zip(&self.deviation));
            row.map(|(value, (mean, deviation))| (value - mean) / deviation)
        })
        .collect()
    }
}
