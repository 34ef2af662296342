//! Stochastic Lotka–Volterra: two observations, posteriors by maps and by SMC-ABC, and what draws cost.
//!
//! The parameters θ are learned in log θ, and everything is compared there. [`LvExperiment`] puts the pieces together.

mod experiment;
mod results;
mod settings;

pub use experiment::{LvExperiment, LvSettings};
pub use settings::settings;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::data::Table;
use crate::diagnose::{CompareSettings, Comparison, Sample, compare};
use crate::map::SampleSettings;
use crate::report::{PairPlot, PictureSize, PredictivePlot, PredictiveSeries};
use crate::simulate::lotka_volterra::{INTERVAL, POINTS, SUMMARIES, path, summarise};
use crate::simulate::{LotkaVolterra, Outcome, SimulateSettings, Simulator, Streams, run};
use crate::statistics::Estimate;
use crate::{Error, Posterior, Result, Run};

/// The parameters at which the published posteriors were found.
pub const TRUTHS: [[f64; 4]; 2] = [[0.01, 0.5, 1.0, 0.01], [0.02, 0.02, 0.02, 0.02]];
/// Names of the parameters.
pub const PARAMETERS: [&str; 4] = ["theta_1", "theta_2", "theta_3", "theta_4"];
/// What the parameters stand for.
pub const MEANINGS: [&str; 4] =
    ["predators' births", "predators' deaths", "prey's births", "prey eaten by predators"];
/// Tolerances that the published SMC-ABC runs reached at the two observations.
pub const ABC_TOLERANCES: [f64; 2] = [0.1, 0.15];
/// Published seconds for 2000 draws of a COT-Flow on a GPU, by the number of steps.
pub const PUBLISHED_FLOW_SECONDS: [(usize, f64); 6] =
    [(32, 0.538), (16, 0.187), (8, 0.044), (4, 0.025), (2, 0.012), (1, 0.006)];
/// Published seconds for 2000 draws of a PCP-Map on a GPU, at tolerances 10⁻⁶ and 10⁻¹.
pub const PUBLISHED_MAP_SECONDS: [(f64, f64); 2] = [(1e-6, 0.069), (1e-1, 0.049)];

/// Random streams of observations and of predictions.
const OBSERVATION: u64 = 11;
const PREDICTION: u64 = 12;
/// Paths that may be abandoned before the parameters are given up.
const ATTEMPTS: u64 = 1000;

/// What was observed, and what is known of where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct LvObservation {
    /// The nine summaries.
    pub summaries: Vec<f64>,
    /// The parameters it was simulated with.
    pub truth: [f64; 4],
    /// Predators and prey at the recorded times, where the path itself is known.
    pub path: Option<[Vec<f64>; 2]>,
}

impl LvObservation {
    /// The observation simulated with `truth` under `seed`.
    pub fn simulate(truth: [f64; 4], seed: u64) -> Result<Self> {
        let streams = Streams::new(seed, OBSERVATION);
        for attempt in 0..ATTEMPTS {
            let Some(path) = path(&truth, &mut streams.get(attempt)) else { continue };
            let mut summaries = vec![0.0; SUMMARIES.len()];
            if summarise(&path.predators, &path.prey, &mut summaries) {
                let path = Some([path.predators.to_vec(), path.prey.to_vec()]);
                return Ok(Self { summaries, truth, path });
            }
        }
        Err(Error::Numerical(format!("no path at {truth:?} ended")))
    }

    /// Summaries that were observed, for what we take to be `truth`: a table of one row.
    pub fn from_table(table: &Table, truth: [f64; 4]) -> Result<Self> {
        if table.rows() != 1 {
            return Err(Error::Domain(format!("has {} rows instead of one", table.rows())));
        }
        let value = |name: &&str| match table.column(name) {
            Some(column) => Ok(table.value(0, column)),
            None => Err(Error::Columns(format!("an observation needs a column {name}"))),
        };
        Ok(Self { summaries: SUMMARIES.iter().map(value).collect::<Result<_>>()?, truth, path: None })
    }
}

/// `rows` pairs (θ, summaries) with θ from the prior; `None` when told to stop.
pub fn pairs(rows: u64, seed: u64, surrounding: Run<'_>) -> Result<Option<Table>> {
    let settings = SimulateSettings { rows, seed, ..Default::default() };
    match run(&LotkaVolterra::default(), &settings, None, surrounding)? {
        Outcome::Complete(simulated) => Ok(Some(simulated.table)),
        Outcome::Interrupted { .. } => Ok(None),
    }
}

/// Paths simulated with parameters drawn from a posterior.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictedPaths {
    /// Numbers of predators at the recorded times, path by path.
    pub predators: Vec<f64>,
    /// Numbers of prey.
    pub prey: Vec<f64>,
    /// Simulations that were abandoned for their number of reactions; the draw is left out, as in the training data.
    pub abandoned: usize,
}

impl PredictedPaths {
    /// One path for each of the first `count` rows of `draws`.
    pub fn simulate(draws: &[f64], count: usize, seed: u64) -> Self {
        let streams = Streams::new(seed, PREDICTION);
        let mut paths = Self { predators: Vec::new(), prey: Vec::new(), abandoned: 0 };
        for (row, theta) in draws.chunks_exact(4).take(count).enumerate() {
            let theta = [theta[0], theta[1], theta[2], theta[3]];
            match path(&theta, &mut streams.get(row as u64)) {
                Some(path) => {
                    paths.predators.extend_from_slice(&path.predators);
                    paths.prey.extend_from_slice(&path.prey);
                }
                None => paths.abandoned += 1,
            }
        }
        paths
    }

    /// The picture: bands of the paths, and over them the observed path where it is known.
    pub fn picture(&self, observation: &LvObservation, size: PictureSize) -> Result<String> {
        let times: Vec<f64> = (0..POINTS).map(|k| k as f64 * INTERVAL).collect();
        let series = |name: &str, paths: &[f64], which: usize| {
            let series = PredictiveSeries::new(name, paths.to_vec());
            match &observation.path {
                Some(path) => series.line("observed path", &times, &path[which]),
                None => series,
            }
        };
        PredictivePlot::new("time", times.clone())
            .series(series("predators", &self.predators, 0))
            .series(series("prey", &self.prey, 1))
            .to_svg(size)
    }
}

/// A weighted sample of θ, as SMC-ABC leaves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Particles {
    /// θ, row by row.
    pub theta: Vec<f64>,
    /// A weight for each row.
    pub weights: Vec<f64>,
}

impl Particles {
    /// From a table with the parameters and a column of weights, `weight` or `weight_reconstructed`; rows without
    /// weight are left out.
    pub fn from_table(table: &Table) -> Result<Self> {
        let column = |name: &str| {
            table.column(name).ok_or_else(|| Error::Columns(format!("particles need a column {name}")))
        };
        let weight = column("weight").or_else(|_| column("weight_reconstructed"))?;
        let columns = PARAMETERS.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
        let mut particles = Self { theta: Vec::new(), weights: Vec::new() };
        for (number, row) in table.iter().enumerate().filter(|(_, row)| row[weight] > 0.0) {
            if columns.iter().any(|&column| row[column] <= 0.0) {
                return Err(Error::Domain(format!("row {}: a rate is not positive", number + 1)));
            }
            particles.theta.extend(columns.iter().map(|&column| row[column]));
            particles.weights.push(row[weight]);
        }
        Ok(particles)
    }
}

/// How draws compare with particles, in log θ.
pub fn against(draws: &[f64], particles: &Particles, seed: u64) -> Result<Comparison> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (draws, reference) = (logs(draws), logs(&particles.theta));
    let p = Sample::new(&draws, PARAMETERS.len())?;
    let q = Sample::new(&reference, PARAMETERS.len())?.with_weights(&particles.weights)?;
    compare(&p, &q, &CompareSettings { seed, ..Default::default() })
}

/// Draws with the particles, the truth and the mode over them, on logarithmic axes.
pub fn pair_picture(
    layers: &[(&str, &[f64])],
    particles: Option<(&str, &Particles)>,
    truth: [f64; 4],
    mode: Option<&[f64]>,
) -> Result<String> {
    let mut plot = PairPlot::new(["θ₁", "θ₂", "θ₃", "θ₄"]).log(0..PARAMETERS.len()).truth(truth);
    for (label, draws) in layers {
        plot = plot.layer(*label, draws.to_vec());
    }
    if let Some((label, particles)) = particles {
        plot = plot.weighted_layer(label, particles.theta.clone(), particles.weights.clone());
    }
    if let Some(mode) = mode {
        plot = plot.mode(mode);
    }
    plot.to_svg(PictureSize { width: 620, height: 620 })
}

/// What 2000 draws cost at one accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrawTime {
    /// COT-Flow: Runge–Kutta steps.
    pub steps: Option<usize>,
    /// PCP-Map: tolerance.
    pub tolerance: Option<f64>,
    /// Median seconds.
    pub seconds: f64,
    /// Root mean square distance from the most accurate draws of the same reference points, in log θ.
    pub error: f64,
    /// What was published for a GPU.
    pub published: Option<f64>,
}

/// Times `draws` draws at `given`, at every accuracy the paper has, as medians of `repeats`.
pub fn draw_times(
    model: &Posterior,
    given: &[f64],
    draws: usize,
    repeats: usize,
    seed: u64,
) -> Result<Vec<DrawTime>> {
    let by_steps = |steps| SampleSettings { steps: Some(steps), ..Default::default() };
    let by_tolerance = |tolerance| SampleSettings { tolerance: Some(tolerance), ..Default::default() };
    let map = model.map();
    let (accuracies, finest): (Vec<(SampleSettings, Option<f64>)>, _) = if map.takes_steps() {
        let published = PUBLISHED_FLOW_SECONDS.iter();
        (published.map(|&(steps, published)| (by_steps(steps), Some(published))).collect(), by_steps(64))
    } else if map.tolerance(&SampleSettings::default()).is_some() {
        let accuracies = (1..=6).rev().map(|power| {
            let tolerance = 0.1_f64.powi(power);
            let published = PUBLISHED_MAP_SECONDS
                .iter()
                .find(|(other, _)| (other / tolerance - 1.0).abs() < 1e-6)
                .map(|(_, seconds)| *seconds);
            (by_tolerance(tolerance), published)
        });
        (accuracies.collect(), by_tolerance(1e-10))
    } else {
        (vec![(SampleSettings::default(), None)], SampleSettings::default())
    };
    let exact = model.sample(given, 1, draws, seed, &finest)?.values;
    accuracies
        .into_iter()
        .map(|(settings, published)| {
            let mut seconds = Vec::new();
            let mut drawn = Vec::new();
            for _ in 0..repeats.max(1) {
                let started = Instant::now();
                drawn = model.sample(given, 1, draws, seed, &settings)?.values;
                seconds.push(started.elapsed().as_secs_f64());
            }
            let square: f64 =
                drawn.iter().zip(&exact).map(|(drawn, exact)| (drawn.ln() - exact.ln()).powi(2)).sum();
            Ok(DrawTime {
                steps: settings.steps,
                tolerance: settings.tolerance,
                seconds: Estimate::of(&seconds).median,
                error: (square / exact.len() as f64).sqrt(),
                published,
            })
        })
        .collect()
}

/// Names of the model's outputs, for tables of observations.
pub fn output_names() -> Vec<String> {
    LotkaVolterra::default().output_names().to_vec()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::map::Method;
    use brenier_core::fit;

    #[test]
    fn observations_come_with_their_path_and_are_the_same_for_the_same_seed() {
        for truth in TRUTHS {
            let observation = LvObservation::simulate(truth, 3).unwrap();
            assert_eq!(observation, LvObservation::simulate(truth, 3).unwrap());
            let [predators, prey] = observation.path.as_ref().unwrap();
            assert_eq!((predators[0], prey[0]), (50.0, 100.0));
            let mean = predators.iter().sum::<f64>() / POINTS as f64;
            assert!((mean - observation.summaries[0]).abs() < 1e-9);
        }
    }

    #[test]
    fn particles_are_read_with_their_weights() {
        let names = [&PARAMETERS[..], &["weight_reconstructed"]].concat();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let values =
            [[1.0, 2.0, 3.0, 4.0, 0.5], [9.0, 9.0, 9.0, 9.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.5]].concat();
        let particles = Particles::from_table(&Table::new(names.clone(), values).unwrap()).unwrap();
        assert_eq!(particles.weights, [0.5, 0.5]);
        assert_eq!(particles.theta[4..], [1.0; 4]);
        let wrong = Table::new(names[..4].to_vec(), vec![1.0; 4]).unwrap();
        assert!(Particles::from_table(&wrong).unwrap_err().to_string().contains("weight_reconstructed"));
        let negative = Table::new(names, vec![-1.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
        assert!(Particles::from_table(&negative).unwrap_err().to_string().contains("row 1"));
    }

    #[test]
    fn an_observation_is_one_row_of_all_summaries_in_any_order() {
        let mut names: Vec<String> = SUMMARIES.iter().rev().map(|&name| name.to_owned()).collect();
        let values: Vec<f64> = (0..SUMMARIES.len()).rev().map(|value| value as f64).collect();
        let table = Table::new(names.clone(), values.clone()).unwrap();
        let observation = LvObservation::from_table(&table, TRUTHS[1]).unwrap();
        assert_eq!(observation.summaries, (0..SUMMARIES.len()).map(|value| value as f64).collect::<Vec<_>>());
        assert_eq!((observation.truth, observation.path), (TRUTHS[1], None));
        let two = Table::new(names.clone(), [values.clone(), values.clone()].concat()).unwrap();
        let text = LvObservation::from_table(&two, TRUTHS[1]).unwrap_err().to_string();
        assert!(text.contains("2 rows instead of one"), "{text}");
        names[0] = "other".to_owned();
        let text = LvObservation::from_table(&Table::new(names, values).unwrap(), TRUTHS[1]).unwrap_err();
        assert!(text.to_string().contains(SUMMARIES[SUMMARIES.len() - 1]), "{text}");
    }

    /// From pairs to comparison with few rows: the pieces fit together, and a draw compared with itself is alike.
    #[test]
    fn the_pieces_fit_together_for_both_methods() {
        let observation = LvObservation::simulate(TRUTHS[0], 1).unwrap();
        for method in Method::published() {
            let table = pairs(400, 1, Run::silent()).unwrap().unwrap();
            let mut settings = settings(method, 400, 1).unwrap();
            settings.train.epochs = 2;
            settings.method = settings.method.with("feature_width", 16).unwrap();
            let model = fit(&table, &settings, Run::silent()).unwrap().posterior;
            let draws =
                model.sample(&observation.summaries, 1, 300, 1, &SampleSettings::default()).unwrap().values;
            let times = draw_times(&model, &observation.summaries, 50, 1, 1).unwrap();
            assert_eq!(times.len(), 6);
            assert!(times.windows(2).all(|pair| pair[0].error <= pair[1].error + 1e-5), "{times:?}");
            let particles = Particles { theta: draws.clone(), weights: vec![1.0 / 300.0; 300] };
            let same = against(&draws, &particles, 0).unwrap();
            assert!(same.mmd.root < 1e-6 && same.columns.iter().all(|column| column.wasserstein < 1e-9));
            let paths = PredictedPaths::simulate(&draws, 20, 1);
            assert_eq!(paths.predators.len(), (20 - paths.abandoned) * POINTS);
            if paths.abandoned < 20 {
                let picture = paths.picture(&observation, PictureSize { width: 500, height: 400 }).unwrap();
                assert!(picture.contains("observed path"));
            }
            let layers = [("draws", draws.as_slice())];
            let mode = draws[..4].to_vec();
            pair_picture(&layers, Some(("particles", &particles)), TRUTHS[0], Some(&mode)).unwrap();
        }
    }
}
