//! Can this posterior be trusted? Every check of a model on held-out pairs, and one verdict with its reasons.
//!
//! [`check()`] takes a model and a table of pairs (x, y) that it was not fitted to, and asks in turn: how likely are
//! the pairs ([`Likelihood`]); are the posteriors calibrated ([`crate::diagnose::calibrate`]); does the map pass
//! its own checks ([`Certificates`]); do the pairs lie within the training distribution ([`OutlierCount`]); do simulations from
//! its draws look like the data ([`Predictive`], with a simulator); would more training or more simulations help
//! ([`Learning`]); and do other fits agree ([`OtherFit`]). [`Verdict`] turns the figures into words by thresholds that
//! are in `docs/diagnostics.md`.
//!
//! ```
//! use brenier_diagnose::check::{Against, CheckSettings, check};
//! use brenier_core::{Fit, Run};
//!
//! # fn main() -> brenier_core::Result<()> {
//! let posterior = Fit::of("x1,x2").given("y").quick().epochs(5).run(&brenier_core::example::simulate(1000, 0))?;
//! let held_out = brenier_core::example::simulate(200, 1);
//! let settings = CheckSettings { draws: Some(100), ..Default::default() };
//! let found = check(&posterior, &held_out, &settings, Against::default(), Run::silent())?;
//! println!("{}: {}", found.verdict.trust, found.verdict.headline);
//! # Ok(())
//! # }
//! ```

mod certificates;
mod learning;
mod likelihood;
mod pairs;
mod predictive;
mod verdict;
mod words;

use crate::EventKind;
use serde::{Deserialize, Serialize};

pub use certificates::{Certificates, Inversions, Normalisation, Paths, RoundTrip};
pub use learning::{Advice, Gap, GapSource, Learning, OtherFit};
pub use likelihood::{Likelihood, Scored};
pub use predictive::{Predictive, PredictiveOutput, PredictiveRow};
pub use verdict::{Finding, Severity, Topic, Trust, Verdict, quantity_name, thresholds};
pub use words::{capital, probability};

use crate::data::Table;
use crate::diagnose::Calibration;
use crate::map::Method;
use crate::simulate::Simulator;
use crate::statistics::mean;
use crate::train::Stop;
use crate::{Distance, Error, Posterior, Result, Run};
use pairs::HeldOut;

/// How [`check()`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckSettings {
    /// Held-out pairs that calibration and certificates look at, at most: a random choice. The likelihood uses all.
    pub pairs: usize,
    /// Draws at each pair; `None` takes those of the method, fewer where densities are expensive.
    pub draws: Option<usize>,
    /// Level α of bands and tests, all tests of calibration together.
    pub level: f64,
    /// Observations whose predictive is simulated, at most.
    pub predictive_observations: usize,
    /// Simulations at each of them.
    pub predictive_draws: usize,
    /// Seed of choices and draws.
    pub seed: u64,
}

impl Default for CheckSettings {
    fn default() -> Self {
        Self {
            pairs: 1000,
            draws: None,
            level: 0.05,
            predictive_observations: 100,
            predictive_draws: 100,
            seed: 0,
        }
    }
}

impl CheckSettings {
    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        let least = |name: &str, value: usize, least: usize| match value >= least {
            true => Ok(()),
            false => Err(Error::setting(name, format!("must be at least {least}, not {value}"))),
        };
        least("pairs", self.pairs, 2)?;
        least("draws", self.draws.unwrap_or(1000), 10)?;
        least("predictive_observations", self.predictive_observations, 1)?;
        least("predictive_draws", self.predictive_draws, 19)?;
        if !(self.level > 0.0 && self.level < 1.0) {
            return Err(Error::setting("level", format!("must be above 0 and below 1, not {}", self.level)));
        }
        Ok(())
    }

    fn draws_of(&self, method: Method) -> usize {
        self.draws.unwrap_or(method.info().check_draws)
    }
}

/// Pairs at which the members of an ensemble are compared.
const DISAGREEMENTS: usize = 200;

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stage {
    /// Log densities of all held-out rows.
    Densities,
    /// Draws and ranks at the pairs.
    Calibration,
    /// The map's certificates.
    Certificates,
    /// Simulations from the posterior.
    Predictive,
    /// Comparison with other models.
    Members,
}

/// What a check tells while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CheckEvent {
    /// A stage begins.
    Started {
        /// Which.
        stage: Stage,
        /// How many units of work it has.
        of: usize,
    },
    /// Some of it is done.
    Advanced {
        /// Which.
        stage: Stage,
        /// Units done.
        done: usize,
    },
}

impl EventKind for CheckEvent {}

/// What a model is checked against besides the held-out pairs.
#[derive(Clone, Copy, Default)]
pub struct Against<'a> {
    /// Makes outputs from draws, for predictive checks: its parameters are the model's target columns, and its outputs
    /// hold the model's given columns.
    pub simulator: Option<&'a dyn Simulator>,
    /// Other models of the same problem, say of other seeds, with the names they are called by.
    pub others: &'a [(String, Posterior)],
}

/// What was checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Subject {
    /// The kind of map.
    pub method: Method,
    /// Whether the given columns have a map of their own.
    pub joint: bool,
    /// Target columns.
    pub target: Vec<String>,
    /// Given columns.
    pub given: Vec<String>,
    /// Parameters of the map, all blocks together.
    pub parameters: usize,
    /// Rows trained on.
    pub train_rows: usize,
    /// Rows that decided when to stop.
    pub valid_rows: usize,
    /// Why the training ended.
    pub stop: Stop,
    /// Seed of the fit.
    pub seed: u64,
    /// SHA-256 of the table it was fitted to.
    pub data_sha256: String,
    /// Version of the program that fitted it.
    pub brenier_version: String,
}

/// The rows it was checked with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HeldOutRows {
    /// Rows of the table.
    pub rows: usize,
    /// Pairs that calibration looked at.
    pub pairs: usize,
    /// SHA-256 of the table's target and given columns.
    pub sha256: String,
    /// Whether that is the very table that the model was fitted to.
    pub trained_on: bool,
}

/// How many held-out observations lie outside the training distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutlierCount {
    /// Observations looked at.
    pub rows: usize,
    /// Those beyond [`Distance::EXTREME`] of the training distribution.
    pub extreme: usize,
    /// The part that is expected there by chance.
    pub expected: f64,
    /// The given column that is most often the farthest out in those rows.
    pub column: Option<String>,
}

/// How far the members of an ensemble disagree at the pairs, in nats; see [`Posterior::disagreement`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Disagreement {
    /// Members of the ensemble.
    pub members: usize,
    /// Pairs looked at.
    pub pairs: usize,
    /// The mean over pairs.
    pub mean: f64,
    /// The largest.
    pub largest: f64,
}

/// All that [`check()`] finds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Version of the program.
    pub brenier_version: &'static str,
    /// Whether to trust the model, and why.
    pub verdict: Verdict,
    /// The model.
    pub subject: Subject,
    /// The held-out rows.
    pub held_out: HeldOutRows,
    /// The settings used.
    pub settings: CheckSettings,
    /// Log densities of the held-out rows.
    pub likelihood: Likelihood,
    /// Calibration of π(x | y), in the coordinates that the map sees.
    pub calibration: Calibration,
    /// Calibration of π(y), for a joint model.
    pub marginal_calibration: Option<Calibration>,
    /// What the map is certified to do.
    pub certificates: Certificates,
    /// Whether the rows lie within the training distribution; none where the model cannot tell.
    #[serde(rename = "support")]
    pub outliers: Option<OutlierCount>,
    /// Posterior predictive checks, with a simulator.
    pub predictive: Option<Predictive>,
    /// How far the members of an ensemble disagree; none for a single map.
    pub disagreement: Option<Disagreement>,
    /// What the training history says.
    pub learning: Learning,
    /// How other models compare.
    pub members: Vec<OtherFit>,
}

/// Checks `model` on the rows of `table`, which holds its target and given columns (others are ignored).
///
/// The same bits for the same seed, whatever the number of threads. A run that is stopped ends in [`Error::Stopped`]: half of
/// the checks make no verdict.
pub fn check(
    model: &Posterior,
    table: &Table,
    settings: &CheckSettings,
    against: Against<'_>,
    mut run: Run<'_>,
) -> Result<Check> {
    settings.validate()?;
    let Against { simulator, others } = against;
    let held_out = HeldOut::new(model, table)?;
    // Mistakes of the caller come before the work.
    let plan = simulator.map(|simulator| predictive::Plan::new(model, simulator)).transpose()?;
    learning::check_members(model, others)?;

    // A row outside a support is a mistake of the table, not of the model.
    model.check_target(&held_out.target)?;
    run.tell(CheckEvent::Started { stage: Stage::Densities, of: held_out.rows })?;
    let (likelihood, scored) = Likelihood::measure(model, &held_out, &run)?;
    run.tell(CheckEvent::Advanced { stage: Stage::Densities, done: held_out.rows })?;

    let chosen = held_out.choose(settings, |row| scored.usable[row])?;
    let (calibration, inversions) = pairs::calibrate_block(model, &chosen, settings, &mut run)?;
    let marginal_calibration = match model.marginal() {
        None => None,
        Some(marginal) => {
            let block = chosen.marginal();
            Some(pairs::calibrate_block(marginal, &block, settings, &mut run)?.0)
        }
    };

    run.tell(CheckEvent::Started { stage: Stage::Certificates, of: chosen.count })?;
    let certificates = Certificates::measure(model, &chosen, inversions, settings, &run)?;
    run.tell(CheckEvent::Advanced { stage: Stage::Certificates, done: chosen.count })?;
    run.go_on()?;
    let outliers = outliers(model, &chosen)?;
    let predictive =
        plan.map(|plan| Predictive::measure(model, &chosen, &plan, settings, &mut run)).transpose()?;
    let learning = Learning::read(model, &likelihood);
    let members = learning::compare_members(model, others, &held_out, &chosen, &scored, settings, &mut run)?;

    let header = model.info();
    let subject = Subject {
        method: model.method(),
        joint: model.marginal().is_some(),
        target: header.target_names.clone(),
        given: header.given_names.clone(),
        parameters: model.parameters(),
        train_rows: header.training.train_rows,
        valid_rows: header.training.valid_rows,
        stop: header.training.stop,
        seed: header.seed,
        data_sha256: header.data_sha256.clone(),
        brenier_version: header.brenier_version.clone(),
    };
    let rows = HeldOutRows {
        rows: held_out.rows,
        pairs: chosen.count,
        trained_on: [&held_out.sha256, &held_out.sha256_in_order].contains(&&header.data_sha256),
        sha256: held_out.sha256,
    };
    let mut found = Check {
        brenier_version: env!("CARGO_PKG_VERSION"),
        verdict: Verdict::undecided(),
        subject,
        held_out: rows,
        settings: CheckSettings { draws: Some(settings.draws_of(model.method())), ..settings.clone() },
        likelihood,
        calibration,
        marginal_calibration,
        certificates,
        outliers,
        predictive,
        disagreement: disagreement(model, &chosen, settings, &run)?,
        learning,
        members,
    };
    found.verdict = Verdict::of(&found);
    Ok(found)
}

fn disagreement(
    model: &Posterior,
    chosen: &pairs::Chosen,
    settings: &CheckSettings,
    run: &Run<'_>,
) -> Result<Option<Disagreement>> {
    if model.members().is_empty() {
        return Ok(None);
    }
    let some = chosen.spread(DISAGREEMENTS);
    let found = some.place(model, run).seed(settings.seed).disagreement()?;
    Ok(Some(Disagreement {
        members: model.members().len(),
        pairs: found.len(),
        mean: mean(&found),
        largest: found.iter().copied().fold(0.0, f64::max),
    }))
}

fn outliers(model: &Posterior, chosen: &pairs::Chosen) -> Result<Option<OutlierCount>> {
    if model.given_names().is_empty() {
        return Ok(None);
    }
    let Some(distances) = model.distances(&chosen.given, chosen.count)? else { return Ok(None) };
    let extreme: Vec<&Distance> = distances.iter().filter(|distance| distance.is_extreme()).collect();
    let votes = |name: &str| extreme.iter().filter(|distance| distance.column == name).count();
    let names = model.given_names().iter();
    // The first of equals.
    let column = names.rev().max_by_key(|name| votes(name)).filter(|_| !extreme.is_empty()).cloned();
    let expected = 1.0 - Distance::EXTREME;
    Ok(Some(OutlierCount { rows: chosen.count, extreme: extreme.len(), expected, column }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Event, StopToken};

    /// At the first block of the calibration, and before anything.
    #[test]
    fn a_check_that_is_stopped_says_so_before_its_next_block() {
        let fit = brenier_core::Fit::of("x1,x2").given("y").quick().epochs(1);
        let model = fit.run(&brenier_core::example::simulate(300, 0)).unwrap();
        let held_out = brenier_core::example::simulate(200, 1);
        let settings = CheckSettings { draws: Some(1000), ..Default::default() };
        let stop = StopToken::new();
        let mut events = Vec::new();
        let mut observer = |event: &Event| {
            events.extend(event.get::<CheckEvent>().copied());
            if let Some(CheckEvent::Advanced { stage: Stage::Calibration, .. }) = event.get() {
                stop.stop();
            }
            Ok(())
        };
        let run = Run::observed(&mut observer).stop(&stop);
        let error = check(&model, &held_out, &settings, Against::default(), run).unwrap_err();
        assert!(matches!(error, Error::Stopped(_)), "{error}");
        let last = CheckEvent::Advanced { stage: Stage::Calibration, done: 50 };
        assert_eq!(events.last(), Some(&last));
        let run = Run::silent().stop(&stop);
        let error = check(&model, &held_out, &settings, Against::default(), run).unwrap_err();
        assert!(matches!(error, Error::Stopped(_)), "{error}");
    }
}
