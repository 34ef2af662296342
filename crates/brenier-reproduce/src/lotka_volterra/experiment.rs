//! The experiment: tables, maps and particles, each kept in the folder, and how they compare.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::results::{LvFit, LvPosterior, document};
use super::settings::protocol;
use super::{
    ABC_TOLERANCES, LvObservation, PARAMETERS, Particles, PredictedPaths, TRUTHS, against, draw_times,
    output_names, pair_picture, pairs, settings,
};
use crate::abc::{self, AbcSettings, AbcStop};
use crate::data::Table;
use crate::experiment::{Document, Experiment, Step, Training, Workbench};
use crate::map::{Method, SampleSettings};
use crate::report::{Curve, CurvePlot, PictureSize};
use crate::simulate::{LotkaVolterra, Simulator};
use crate::statistics::{DrawSummary, Estimate};
use crate::{ModeSettings, Posterior, Result, Units, fit};

/// Seeds of the held-out table and of the observations, far from those of the training tables.
const TEST_SEED: u64 = 1_000_003;
const OBSERVED_SEED: u64 = 2_000_003;
const TEST_ROWS: u64 = 5000;
const PATHS: usize = 400;
/// Runs whose median is the time of the draws.
const REPEATS: usize = 7;

/// How the experiment is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LvSettings {
    /// Sizes of the training tables.
    pub rows: Vec<u64>,
    /// The methods that learn from each.
    pub methods: Vec<Method>,
    /// Whether to find particles by SMC-ABC.
    pub abc: bool,
    /// Tolerance of SMC-ABC at both observations; by default [`ABC_TOLERANCES`].
    pub tolerance: Option<f64>,
    /// Epochs of every training, fewer for a quick look.
    pub epochs: Option<u32>,
    /// Posterior draws at each observation, which are compared and timed.
    pub draws: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for LvSettings {
    fn default() -> Self {
        Self {
            rows: vec![50_000, 500_000],
            methods: Method::published().collect(),
            abc: true,
            tolerance: None,
            epochs: None,
            draws: 2000,
            seed: 0,
        }
    }
}

/// Maps on tables of several sizes against SMC-ABC at two observations, and what draws cost.
#[derive(Clone, Debug)]
pub struct LvExperiment {
    settings: LvSettings,
    observed: [LvObservation; 2],
    /// Particles of another program, one set for each observation.
    references: Option<[Particles; 2]>,
}

/// What is kept about an SMC-ABC run beside its particles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Search {
    pub(super) tolerance: f64,
    pub(super) simulations: u64,
    rounds: usize,
}

/// A search and what it found.
pub(super) type Found = (Step<Search>, Particles);

impl LvExperiment {
    /// The experiment at simulated observations.
    pub fn new(settings: LvSettings) -> Result<Self> {
        let simulated = |truth| LvObservation::simulate(truth, OBSERVED_SEED.wrapping_add(settings.seed));
        let [first, second] = TRUTHS;
        Ok(Self { observed: [simulated(first)?, simulated(second)?], settings, references: None })
    }

    /// The same at other observations.
    pub fn observed(mut self, observed: [LvObservation; 2]) -> Self {
        self.observed = observed;
        self
    }

    /// The same, compared with another program's particles at these observations too.
    pub fn references(mut self, particles: [Particles; 2]) -> Self {
        self.references = Some(particles);
        self
    }

    /// Our own SMC-ABC particles at an observation.
    fn search(&self, which: usize, bench: &mut Workbench<'_>) -> Result<Found> {
        let tolerance = self.settings.tolerance.unwrap_or(ABC_TOLERANCES[which]);
        let number = which + 1;
        let title = format!("SMC-ABC at observation {number} to {tolerance}");
        let (table, step) = bench.artifact::<Table, _>(&format!("abc-{number}.csv"), &title, |run| {
            let simulator = LotkaVolterra::default();
            let settings =
                AbcSettings { tolerance: Some(tolerance), seed: self.settings.seed, ..Default::default() };
            let outcome = abc::run(&simulator, &self.observed[which].summaries, &settings, None, run)?;
            let (AbcStop::Finished, Some(population)) = (outcome.stop, &outcome.population) else {
                return Ok(None);
            };
            let simulations = outcome.simulations;
            let search = Search { tolerance, simulations, rounds: outcome.rounds.len() };
            Ok(Some((population.to_table(simulator.prior())?, search)))
        })?;
        Ok((step, Particles::from_table(&table)?))
    }

    /// A map and its training; the table is made only where there is a map to be trained on it.
    fn model(
        &self,
        method: Method,
        rows: u64,
        bench: &mut Workbench<'_>,
    ) -> Result<(Posterior, Step<Training>)> {
        let name = format!("{}-{rows}", method.name());
        if let Some(kept) = bench.kept_model(&name)? {
            protocol(method, rows).accept(&kept.0, bench.folder(), &format!("{name}.brenier"))?;
            return Ok(kept);
        }
        let seed = self.settings.seed;
        let title = format!("{rows} simulations");
        let table = bench.table(&format!("train-{rows}"), &title, |run| pairs(rows, seed, run))?;
        let mut settings = settings(method, rows, seed)?;
        if let Some(epochs) = self.settings.epochs {
            settings.train.epochs = epochs;
        }
        let title = format!("{} on {rows} rows", method.name());
        bench.model(&name, &title, |run| fit(&table, &settings, run))
    }

    /// Draws, modes, comparisons and pictures of one map at both observations.
    fn judge(
        &self,
        method: Method,
        rows: u64,
        (model, training): (Posterior, Step<Training>),
        test: &Table,
        searches: Option<&[Found]>,
        bench: &mut Workbench<'_>,
    ) -> Result<LvFit> {
        let (seed, count) = (self.settings.seed, self.settings.draws);
        let name = format!("{}-{rows}", method.name());
        bench.part(&name, &format!("draws and comparisons of {} on {rows} rows", method.name()))?;
        let mut posteriors = Vec::new();
        for (which, observation) in self.observed.iter().enumerate() {
            let draws =
                model.sample(&observation.summaries, 1, count, seed, &SampleSettings::default())?.values;
            let how = ModeSettings { units: Units::Standardised, ..Default::default() };
            let mode = model.mode(&observation.summaries, 1, seed, &how)?.remove(0).point;
            let logs: Vec<f64> = draws.iter().map(|value| value.ln()).collect();
            let columns = DrawSummary::of(&logs, PARAMETERS.len())?.columns;
            let own = searches.map(|all| &all[which].1);
            let reference = self.references.as_ref().map(|all| &all[which]);
            let mut abc = None;
            if let Some(particles) = own {
                let step = format!("comparison-{name}-{}", which + 1);
                let title =
                    format!("{} on {rows} rows beside SMC-ABC at observation {}", method.name(), which + 1);
                let compared = bench.step(&step, &title, |_| against(&draws, particles, seed).map(Some))?;
                abc = Some(compared.result);
            }
            // Particles of another program may be others the next time, so nothing is kept of them.
            let given = reference.map(|particles| against(&draws, particles, seed)).transpose()?;
            let label = format!("{} on {rows} rows", method.title());
            let shown = own.map(|particles| ("SMC-ABC", particles));
            let shown = shown.or(reference.map(|particles| ("the authors' SMC-ABC", particles)));
            let layers = [(label.as_str(), draws.as_slice())];
            let svg = pair_picture(&layers, shown, observation.truth, Some(&mode))?;
            bench.picture(&format!("pairs-{name}-{}", which + 1), &svg)?;
            let paths = PredictedPaths::simulate(&draws, PATHS, seed);
            let svg = paths.picture(observation, PictureSize { width: 620, height: 420 })?;
            bench.picture(&format!("predictive-{name}-{}", which + 1), &svg)?;
            posteriors.push(LvPosterior {
                mode,
                mean: columns.iter().map(|column| column.mean).collect(),
                deviation: columns.iter().map(|column| column.sd).collect(),
                abc,
                given,
            });
        }
        let times = draw_times(&model, &self.observed[0].summaries, count, REPEATS, seed)?;
        let settings = model.info().settings.clone();
        let (nll, baseline) = nll(&model, test)?;
        Ok(LvFit { method, rows, settings, training, nll, baseline, posteriors, times })
    }

    fn document(&self, fits: &[LvFit], searches: Option<&[Found]>) -> Result<Document> {
        document(fits, searches, &self.observed, self.settings.draws)
    }
}

/// Mean NLL of the rows of a table of pairs, standardised, with its standard error; and the mean under the baseline.
fn nll(model: &Posterior, table: &Table) -> Result<((f64, f64), Option<f64>)> {
    let n = PARAMETERS.len();
    let side = |of: fn(&[f64], usize) -> &[f64]| -> Vec<f64> {
        table.iter().flat_map(|row| of(row, n)).copied().collect()
    };
    let (target, given) = (side(|row, n| &row[..n]), side(|row, n| &row[n..]));
    let densities = model.log_density(&target, &given)?.standardised;
    let estimate = Estimate::of(&densities.iter().map(|value| -value).collect::<Vec<_>>());
    let baseline = model.baseline_nll(&target, &given)?.map(|losses| Estimate::of(&losses).mean);
    Ok(((estimate.mean, estimate.standard_error), baseline))
}

/// The flows' error against the number of steps, where there is a flow.
fn accuracy(fits: &[LvFit]) -> Result<Option<String>> {
    let mut plot = CurvePlot::new("Runge–Kutta steps", "rms error of log θ").log_x().log_y();
    let mut any = false;
    for fit in fits.iter().filter(|fit| fit.times.iter().any(|time| time.steps.is_some())) {
        let (steps, errors): (Vec<f64>, Vec<f64>) =
            fit.times.iter().filter_map(|time| Some((time.steps? as f64, time.error))).unzip();
        let label = format!("{} on {} rows", fit.method.title(), fit.rows);
        plot = plot.curve(Curve::line(label, steps, errors).with_markers());
        any = true;
    }
    any.then(|| plot.to_svg(PictureSize { width: 460, height: 320 })).transpose()
}

/// Truths and summaries of the observations, as comma-separated text.
fn observed_table(observed: &[LvObservation]) -> String {
    let names: Vec<String> = PARAMETERS.iter().map(|&name| name.to_owned()).chain(output_names()).collect();
    let mut text = names.join(",") + "\n";
    for observation in observed {
        let values = observation.truth.iter().chain(&observation.summaries);
        text.push_str(&(values.map(f64::to_string).collect::<Vec<_>>().join(",") + "\n"));
    }
    text
}

impl Experiment for LvExperiment {
    fn name(&self) -> &'static str {
        "lotka-volterra"
    }

    fn plan(&self) -> Vec<(&'static str, Value)> {
        let observed: Vec<&[f64]> = self.observed.iter().map(|one| one.summaries.as_slice()).collect();
        vec![
            ("seed", json!(self.settings.seed)),
            ("epochs", json!(self.settings.epochs)),
            ("tolerance", json!(self.settings.tolerance)),
            ("posterior_draws", json!(self.settings.draws)),
            ("observed", json!(observed)),
        ]
    }

    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
        bench.write("observed.csv", &observed_table(&self.observed))?;
        let searches = match self.settings.abc {
            true => {
                Some((0..TRUTHS.len()).map(|which| self.search(which, bench)).collect::<Result<Vec<_>>>()?)
            }
            false => None,
        };
        let searches = searches.as_deref();
        let title = format!("{TEST_ROWS} simulations");
        let test = bench.table("test", &title, |run| pairs(TEST_ROWS, TEST_SEED, run))?;
        let mut fits = Vec::new();
        for &rows in &self.settings.rows {
            for &method in &self.settings.methods {
                let model = self.model(method, rows, bench)?;
                fits.push(self.judge(method, rows, model, &test, searches, bench)?);
                bench.publish(&self.document(&fits, searches)?)?;
            }
        }
        let mut document = self.document(&fits, searches)?;
        if let Some(svg) = accuracy(&fits)? {
            bench.picture("accuracy", &svg)?;
            document = document.picture("accuracy", "Accuracy of draws: error against the number of steps");
        }
        Ok(document)
    }
}
