//! The simulation-based inference benchmark: nine tasks, three sizes, draws compared with those of exact posteriors.
//!
//! Every step is a function of the settings alone, so that its outcome can be kept and reused: [`training_table`] →
//! [`fit_settings`] and [`fit`](crate::fit()) → [`judge`], which needs the [`test_table`], the [`observations`] and the
//! [`reference_draws`] at each. Observations are prior predictive draws by seed; the official ones are not used.

mod experiment;
mod published;
mod table;

pub use experiment::SbibmExperiment;
pub use published::{PUBLISHED_METHODS, PUBLISHED_SIMULATIONS, PublishedC2st};
pub use table::{OverCells, SbibmTable};

use serde::{Deserialize, Serialize};

use crate::data::{Selection, Table};
use crate::diagnose::{
    Bandwidth, C2stSettings, CalibrationSettings, PairDraws, Pairs, Sample, c2st, calibrate, mmd,
};
use crate::map::SampleSettings;
use crate::simulate::tasks::{TASKS, Task, task};
use crate::simulate::{Attempt, Outcome, SimulateSettings, Streams, run};
use crate::statistics::Estimate;
use crate::transform::{ColumnSettings, ExchangeableRule, Support, SupportRule};
use crate::{Error, FitSettings, MethodChoice, Posterior, Result, Run, baseline};

/// Seeds of the test table and of reference draws, far from those of training tables.
const TEST_SEED: u64 = 1_000_003;
const REFERENCE_SEED: u64 = 2_000_003;
/// Random streams of observations.
const OBSERVATION: u64 = 31;
/// Simulations of one observation that may be abandoned.
const ATTEMPTS: u32 = 10_000;

/// What is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SbibmSettings {
    /// Tasks, by name.
    pub tasks: Vec<String>,
    /// Numbers of simulations to learn from.
    pub simulations: Vec<u64>,
    /// Methods, each with its default settings, or the choice among them by trials, which is the default, as of a fit.
    pub methods: Vec<MethodChoice>,
    /// Whether fits are told which outputs are points in no particular order, where a task has such.
    pub exchangeable: bool,
    /// Training tables and fits for each task, size and method.
    pub seeds: u64,
    /// The first of these seeds, and the seed of test table, observations and reference draws.
    pub seed: u64,
    /// Observations of each task.
    pub observations: usize,
    /// Draws compared at each, from the model and from the reference.
    pub draws: usize,
    /// Rows of the test table.
    pub test_rows: u64,
    /// Rows of the test table at which calibration is checked, and draws at each.
    pub calibration_pairs: usize,
    /// Draws at each of these rows.
    pub calibration_draws: usize,
}

impl Default for SbibmSettings {
    fn default() -> Self {
        Self {
            tasks: TASKS.map(str::to_owned).to_vec(),
            simulations: PUBLISHED_SIMULATIONS.to_vec(),
            methods: vec![MethodChoice::Auto],
            exchangeable: false,
            seeds: 1,
            seed: 0,
            observations: 10,
            draws: 10_000,
            test_rows: 5000,
            calibration_pairs: 500,
            calibration_draws: 100,
        }
    }
}

/// One fit: a task, a size, a method and a seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SbibmCell {
    /// The task's name.
    pub task: String,
    /// Rows of the training table.
    pub simulations: u64,
    /// The method.
    pub method: MethodChoice,
    /// Whether the fit is told that points in the outputs have no particular order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exchangeable: bool,
    /// Seed of training table and fit.
    pub seed: u64,
}

impl SbibmCell {
    /// A name for files, as in `two-moons-1000-pcp-map-0` or `slcp-1000-npe-exchangeable-0`.
    pub fn name(&self) -> String {
        let told = if self.exchangeable { "-exchangeable" } else { "" };
        format!("{}-{}-{}{told}-{}", self.task, self.simulations, self.method.name(), self.seed)
    }
}

impl SbibmSettings {
    /// All fits, task by task, after a check of the settings.
    pub fn cells(&self) -> Result<Vec<SbibmCell>> {
        for (name, value, least) in [
            ("observations", self.observations as u64, 1),
            ("draws", self.draws as u64, 100),
            ("seeds", self.seeds, 1),
            ("test_rows", self.test_rows, self.calibration_pairs.max(1) as u64),
        ] {
            if value < least {
                return Err(Error::setting(name, format!("must be at least {least}, not {value}")));
            }
        }
        if let Some(rows) = self.simulations.iter().find(|rows| **rows < 20) {
            return Err(Error::setting("simulations", format!("must be at least 20, not {rows}")));
        }
        let mut cells = Vec::new();
        for name in &self.tasks {
            let task = known(name)?;
            if self.exchangeable && task.exchangeable_points().is_none() {
                let problem =
                    format!("the outputs of {name} are no points in arbitrary order; slcp has such");
                return Err(Error::setting("exchangeable", problem));
            }
            for &simulations in &self.simulations {
                for &method in &self.methods {
                    for seed in 0..self.seeds {
                        let seed = self.seed.wrapping_add(seed);
                        cells.push(SbibmCell {
                            task: name.clone(),
                            simulations,
                            method,
                            exchangeable: self.exchangeable,
                            seed,
                        });
                    }
                }
            }
        }
        Ok(cells)
    }
}

fn known(name: &str) -> Result<Box<dyn Task>> {
    task(name).ok_or_else(|| {
        Error::setting("tasks", format!("there is no \"{name}\": choose from {}", TASKS.join(", ")))
    })
}

/// A prior predictive draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SbibmObservation {
    /// The parameters it was simulated with.
    pub truth: Vec<f64>,
    /// The outputs.
    pub y: Vec<f64>,
}

/// The observations of a task: the first ones are the same whatever their number.
pub fn observations(name: &str, settings: &SbibmSettings) -> Result<Vec<SbibmObservation>> {
    let task = known(name)?;
    let streams = Streams::new(settings.seed, OBSERVATION);
    let one = |index: usize| {
        let mut rng = streams.get(index as u64);
        let mut truth = vec![0.0; task.prior().dim()];
        let mut y = vec![0.0; task.output_names().len()];
        for _ in 0..ATTEMPTS {
            task.prior().draw(&mut rng, &mut truth);
            if task.simulate(&truth, &mut rng, &mut y)? == Attempt::Done {
                return Ok(SbibmObservation { truth, y });
            }
        }
        Err(Error::Numerical(format!("{name}: {ATTEMPTS} simulations of an observation were abandoned")))
    };
    (0..settings.observations).map(one).collect()
}

/// Draws from the exact posterior at the observation number `index`, row by row.
pub fn reference_draws(
    name: &str,
    settings: &SbibmSettings,
    index: usize,
    observation: &SbibmObservation,
) -> Result<Vec<f64>> {
    let seed = settings.seed.wrapping_add(REFERENCE_SEED).wrapping_add(index as u64);
    known(name)?.posterior_draws(&observation.y, settings.draws, seed)
}

/// How well two runs of the reference sampler, with seeds of their own, agree at an observation: their C2ST.
pub fn reference_agreement(
    name: &str,
    settings: &SbibmSettings,
    index: usize,
    observation: &SbibmObservation,
) -> Result<f64> {
    let task = known(name)?;
    let other = settings.seed.wrapping_add(2 * REFERENCE_SEED).wrapping_add(index as u64);
    let p = reference_draws(name, settings, index, observation)?;
    let q = task.posterior_draws(&observation.y, settings.draws, other)?;
    let dim = task.prior().dim();
    Ok(c2st(&Sample::new(&p, dim)?, &Sample::new(&q, dim)?, &classifier(settings, index))?.accuracy)
}

fn classifier(settings: &SbibmSettings, index: usize) -> C2stSettings {
    C2stSettings { seed: settings.seed.wrapping_add(index as u64), ..Default::default() }
}

fn simulated(name: &str, rows: u64, seed: u64, surrounding: Run<'_>) -> Result<Option<Table>> {
    let settings = SimulateSettings { rows, seed, ..Default::default() };
    match run(known(name)?.as_ref(), &settings, None, surrounding)? {
        Outcome::Complete(simulated) => Ok(Some(simulated.table)),
        Outcome::Interrupted { .. } => Ok(None),
    }
}

/// The pairs that a fit learns from; `None` when told to stop.
pub fn training_table(cell: &SbibmCell, surrounding: Run<'_>) -> Result<Option<Table>> {
    simulated(&cell.task, cell.simulations, cell.seed, surrounding)
}

/// Held-out pairs of a task; `None` when told to stop.
pub fn test_table(name: &str, settings: &SbibmSettings, surrounding: Run<'_>) -> Result<Option<Table>> {
    simulated(name, settings.test_rows, settings.seed.wrapping_add(TEST_SEED), surrounding)
}

/// The method's defaults, with the prior's supports for the parameters.
pub fn fit_settings(cell: &SbibmCell) -> Result<FitSettings> {
    let task = known(&cell.task)?;
    let prior = task.prior();
    let support = |(name, support): (&String, Support)| {
        SupportRule::from(ColumnSettings { name: name.clone(), support })
    };
    let given = task.output_names().join(",").parse::<Selection>()?;
    let told = task.exchangeable_points().filter(|_| cell.exchangeable);
    Ok(FitSettings {
        exchangeable: told
            .map(|points| ExchangeableRule { columns: given.clone(), points, degree: None })
            .into_iter()
            .collect(),
        target: Some(prior.names().join(",").parse::<Selection>()?),
        given: Some(given),
        support: prior
            .names()
            .iter()
            .zip(prior.supports())
            .filter(|(_, support)| *support != Support::Real)
            .map(support)
            .collect(),
        seed: cell.seed,
        ..cell.method.settings()
    })
}

/// What was found about one fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SbibmResult {
    /// The fit.
    #[serde(flatten)]
    pub cell: SbibmCell,
    /// Mean negative log-likelihood of the test rows in the parameters' units, and its standard error.
    pub nll: (f64, f64),
    /// The same mean under the conditional Gaussian of the model file; none where that is the map, and in old results.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// C2ST against the reference draws at each observation; ½ is perfect.
    pub c2st: Vec<f64>,
    /// √MMD², with the median distance as bandwidth, at each observation.
    pub mmd: Vec<f64>,
    /// The probability that a calibrated method looks as bad in any check; none where draws could not be computed.
    pub calibration: Option<f64>,
    /// Draws at the observations that could not be computed and were left out.
    pub unsolved: usize,
    /// Seconds of the fit; none where it was interrupted and only its last part was timed.
    pub fit_seconds: Option<f64>,
}

impl SbibmResult {
    /// The mean C2ST over the observations.
    pub fn mean_c2st(&self) -> f64 {
        Estimate::of(&self.c2st).mean
    }

    /// The mean √MMD² over the observations.
    pub fn mean_mmd(&self) -> f64 {
        Estimate::of(&self.mmd).mean
    }
}

/// Scores a fit: likelihood and calibration on the test table, draws against `references`, one for each observation.
pub fn judge(
    cell: &SbibmCell,
    settings: &SbibmSettings,
    model: &Posterior,
    seconds: Option<f64>,
    test: &Table,
    observations: &[SbibmObservation],
    references: &[Vec<f64>],
) -> Result<SbibmResult> {
    let dim = known(&cell.task)?.prior().dim();
    let (mut target, mut given) = (Vec::new(), Vec::new());
    for row in test.iter() {
        target.extend_from_slice(&row[..dim]);
        given.extend_from_slice(&row[dim..]);
    }
    let densities = model.log_density(&target, &given)?;
    let nll = Estimate::of(&densities.user.iter().map(|density| -density).collect::<Vec<_>>());
    let baseline = baseline::losses(model, &target, &given, &densities)?;
    let (mut found_c2st, mut found_mmd, mut unsolved) = (Vec::new(), Vec::new(), 0);
    let how = SampleSettings { skip_unsolved: true, ..Default::default() };
    for (index, (observation, reference)) in observations.iter().zip(references).enumerate() {
        let draws = model.sample(&observation.y, 1, settings.draws, cell.seed, &how)?;
        unsolved += draws.unsolved.len();
        let (p, q) = (Sample::new(reference, dim)?, Sample::new(&draws.values, dim)?);
        found_c2st.push(c2st(&p, &q, &classifier(settings, index))?.accuracy);
        found_mmd.push(mmd(&p, &q, Bandwidth::Median)?.root);
    }
    Ok(SbibmResult {
        cell: cell.clone(),
        nll: (nll.mean, nll.standard_error),
        baseline: baseline.map(|losses| Estimate::of(&losses).mean),
        c2st: found_c2st,
        mmd: found_mmd,
        calibration: calibration(settings, model, (&target, &given), dim, cell.seed)?,
        unsolved,
        fit_seconds: seconds,
    })
}

/// The p-value of all calibration checks on the first rows of the test table.
fn calibration(
    settings: &SbibmSettings,
    model: &Posterior,
    (target, given): (&[f64], &[f64]),
    dim: usize,
    seed: u64,
) -> Result<Option<f64>> {
    let (pairs, draws) = (settings.calibration_pairs, settings.calibration_draws);
    if pairs == 0 {
        return Ok(None);
    }
    let width = given.len() / (target.len() / dim);
    let (target, given) = (&target[..pairs * dim], &given[..pairs * width]);
    let how = CalibrationSettings { draws, seed, ..Default::default() };
    let found = calibrate(&Pairs::new(target, dim, given, width)?, &how, |range| {
        let given = &given[range.start * width..range.end * width];
        // A seed of its own for each range: the streams of a call count from its first observation.
        let seed = seed.wrapping_add(range.start as u64);
        let draws = model.sample(given, range.len(), draws, seed, &SampleSettings::default())?.values;
        Ok(PairDraws { draws, log_densities: None })
    });
    match found {
        Ok(found) => Ok(Some(found.p_value())),
        Err(Error::Numerical(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::experiment;
    use crate::map::Method;

    fn small() -> SbibmSettings {
        SbibmSettings {
            tasks: vec!["gaussian-mixture".into()],
            simulations: vec![200],
            methods: vec![Method::Gaussian.into()],
            observations: 2,
            draws: 300,
            test_rows: 100,
            calibration_pairs: 50,
            calibration_draws: 20,
            ..Default::default()
        }
    }

    #[test]
    fn cells_are_all_combinations_and_wrong_settings_are_refused() {
        let settings = SbibmSettings { seeds: 2, seed: 5, ..Default::default() };
        let cells = settings.cells().unwrap();
        assert_eq!(cells.len(), 9 * 3 * 2);
        assert_eq!(cells[1].name(), "gaussian-linear-1000-auto-6");
        for (settings, says) in [
            (SbibmSettings { tasks: vec!["slpc".into()], ..small() }, "choose from gaussian-linear"),
            (SbibmSettings { exchangeable: true, ..small() }, "gaussian-mixture are no points"),
            (SbibmSettings { draws: 10, ..small() }, "draws: must be at least 100"),
            (SbibmSettings { test_rows: 10, ..small() }, "test_rows: must be at least 50"),
            (SbibmSettings { simulations: vec![3], ..small() }, "simulations: must be at least 20"),
        ] {
            let error = settings.cells().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn observations_are_the_same_for_the_same_seed_and_whatever_their_number() {
        for name in TASKS {
            let settings = small();
            let two = observations(name, &settings).unwrap();
            let three = observations(name, &SbibmSettings { observations: 3, ..small() }).unwrap();
            assert_eq!(two, three[..2]);
            assert!(two[0] != two[1]);
            assert!(known(name).unwrap().log_likelihood(&two[0].truth, &two[0].y).is_finite(), "{name}");
        }
    }

    #[test]
    fn fits_know_the_prior_s_bounds_and_points_without_order() {
        let of = |task: &str| {
            let exchangeable = task == "slcp";
            let method = Method::PcpMap.into();
            let cell = SbibmCell { task: task.into(), simulations: 100, method, exchangeable, seed: 1 };
            fit_settings(&cell).unwrap()
        };
        assert_eq!(
            of("sir").support.iter().map(|rule| rule.to_string()).collect::<Vec<_>>(),
            ["beta=log", "gamma=log"]
        );
        assert!(of("two-moons").support[1].to_string().contains("interval(-1,1)"));
        assert!(of("bernoulli-glm").support.is_empty() && of("sir").exchangeable.is_empty());
        assert_eq!(of("slcp").exchangeable[0].points, 4);
    }

    #[test]
    fn two_runs_of_a_reference_agree() {
        let settings = SbibmSettings { draws: 2000, ..small() };
        let found = observations("two-moons", &settings).unwrap();
        let accuracy = reference_agreement("two-moons", &settings, 0, &found[0]).unwrap();
        assert!((accuracy - 0.5).abs() < 0.04, "{accuracy}");
    }

    /// A fit that knows little of the mixture is told from it, and a folder repeats nothing.
    #[test]
    fn a_folder_takes_up_what_it_holds() {
        let (settings, folder) = (small(), tempfile::tempdir().unwrap());
        let place = folder.path().join("out");
        let run = |resume| {
            let experiment = SbibmExperiment::new(settings.clone()).unwrap();
            experiment::run(&experiment, &place, resume, Run::silent()).unwrap();
            let cell = settings.cells().unwrap().remove(0);
            let bytes = std::fs::read(place.join(format!("{}.json", cell.name()))).unwrap();
            serde_json::from_slice::<SbibmResult>(&bytes).unwrap()
        };
        let first = run(false);
        assert!(first.c2st.len() == 2 && first.mean_c2st() > 0.55, "{first:?}");
        assert!(
            first.mmd.iter().all(|mmd| *mmd > 0.0) && first.nll.0.is_finite() && first.fit_seconds.is_some()
        );
        assert_eq!(run(true), first);
        let cell = settings.cells().unwrap().remove(0);
        std::fs::remove_file(place.join(format!("{}.json", cell.name()))).unwrap();
        // Scored again from model and references: the same figures.
        let again = run(true);
        assert_eq!((again.nll, &again.c2st, &again.mmd), (first.nll, &first.c2st, &first.mmd));
        let text = std::fs::read_to_string(place.join("results.md")).unwrap();
        assert!(text.contains("gaussian-mixture"), "{text}");
        let other = SbibmExperiment::new(SbibmSettings { draws: 400, ..settings.clone() }).unwrap();
        let error = experiment::run(&other, &place, true, Run::silent()).unwrap_err().to_string();
        assert!(error.contains("another `draws`"), "{error}");
    }
}
