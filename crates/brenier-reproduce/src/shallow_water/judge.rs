//! How good a map is: likelihood and calibration on fresh rows, depths at one observation, and the exact posterior.

use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::data::{CELLS, Observation, Waves, depths_of};
use super::{Recipe, SwSettings};
use crate::diagnose::{Corridor, Ranks, holm};
use crate::map::SampleSettings;
use crate::simulate::Streams;
use crate::simulate::shallow_water::exact::{
    self, ChainSettings, Laplace, NewtonSettings, WaveLikelihood, depth_moments, relative_error,
};
use crate::simulate::shallow_water::{NOISE, Projection, Solver, depth, surfaces};
use crate::statistics::{DrawSummary, Estimate};
use crate::{Error, ModeSettings, Posterior, Result, baseline};

/// Level of the simultaneous bands.
pub(super) const LEVEL: f64 = 0.05;
/// Numbers that draws of one chunk of rows take.
const CHUNK: usize = 4_000_000;
/// Draws at the observation, and those of them whose waves are computed.
const PROFILES: usize = 100;
const PREDICTED: usize = 50;
/// Hours at which the surface is shown, as published.
pub(super) const SHOWN_HOURS: [usize; 3] = [22, 69, 94];
/// Modes of the exact posterior; what others add to a depth is below a millimetre.
const EXACT_MODES: usize = 24;
/// Draws of an importance sampling.
const EXACT_DRAWS: usize = 200;

/// Ranks of one kind of quantity against their band.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankCurves {
    /// The smallest p-value, after Holm's correction.
    pub p_value: f64,
    /// Quantities whose curve leaves the band of its own at the level 5 %.
    pub outside: usize,
    /// max |F(z) − z| over all quantities.
    pub deviation: f64,
    /// F(z) − z of each quantity.
    pub curves: Vec<Vec<f64>>,
}

/// Calibration over the test rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// z at which ranks are looked at.
    pub points: Vec<f64>,
    /// The simultaneous band of one quantity.
    pub band: Vec<(f64, f64)>,
    /// The modes.
    pub modes: RankCurves,
    /// The depths of the cells.
    pub cells: RankCurves,
}

/// What is shown of one observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtObservation {
    /// The most probable depths.
    pub mode: Vec<f64>,
    /// Mean of the draws.
    pub mean: Vec<f64>,
    /// Their standard deviation, in metres.
    pub deviation: Vec<f64>,
    /// Relative errors of the most probable and of the mean depths, where the truth is known.
    pub errors: Option<[f64; 2]>,
    /// Profiles drawn, 100 depths each.
    pub profiles: Vec<Vec<f64>>,
    /// For each of the hours shown, noise-free surfaces of the first profiles.
    pub waves: Vec<Vec<f64>>,
}

/// How good a map is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// How it was learned.
    pub recipe: Recipe,
    /// Rows of the training table.
    pub rows: u64,
    /// Parameters.
    pub parameters: usize,
    /// Variables that the map was given.
    pub given: usize,
    /// Seconds of the training; none where it was interrupted.
    pub training_seconds: Option<f64>,
    /// Steps of the training.
    pub steps: u64,
    /// NLL of the validation rows, published units.
    pub valid_nll: f64,
    /// NLL of the test rows, published units, and its standard error.
    pub test_nll: (f64, f64),
    /// The same mean under the conditional Gaussian of the model file; none in old results.
    #[serde(default)]
    pub baseline: Option<f64>,
    /// Calibration; none where a draw could not be computed.
    pub calibration: Option<Calibrated>,
    /// At the observation.
    pub at: AtObservation,
}

/// Scores a map.
pub(super) fn judge(
    (recipe, rows): (Recipe, u64),
    model: &Posterior,
    (seconds, steps): (Option<f64>, u64),
    test: &Waves,
    observation: &Observation,
    projection: &Projection,
    settings: &SwSettings,
) -> Result<Scores> {
    // A recipe may look at the leading components alone.
    let test = &test.leading(model.info().given_transform.input_dim());
    let densities = model.log_density(&test.modes, &test.features)?;
    let test_nll = Estimate::of(&densities.user.iter().map(|density| -density).collect::<Vec<_>>());
    let baseline = baseline::losses(model, &test.modes, &test.features, &densities)?;
    let header = model.info();
    let calibration = match calibrated(model, test, settings) {
        Ok(found) => Some(found),
        Err(Error::Numerical(_)) => None,
        Err(error) => return Err(error),
    };
    Ok(Scores {
        recipe,
        rows,
        parameters: model.parameters(),
        given: header.given_transform.output_dim(),
        training_seconds: seconds,
        steps,
        valid_nll: header.training.best_valid_nll - header.target_transform.linear_scale_log_det(),
        test_nll: (test_nll.mean, test_nll.standard_error),
        baseline: baseline.map(|losses| Estimate::of(&losses).mean),
        calibration,
        at: at_observation(model, observation, projection, settings)?,
    })
}

/// Ranks of the true modes and depths among draws. What the learned modes leave out of a depth is drawn from the prior.
fn calibrated(model: &Posterior, test: &Waves, settings: &SwSettings) -> Result<Calibrated> {
    let (modes, draws, rows) = (settings.modes, settings.draws, test.rows());
    let width = test.features.len() / rows;
    let step = (CHUNK / (draws * modes)).clamp(1, rows);
    let mut ranks: Vec<Vec<u32>> = Vec::with_capacity(rows);
    for first in (0..rows).step_by(step) {
        let count = step.min(rows - first);
        let given = &test.features[first * width..][..count * width];
        let seed = settings.seed.wrapping_add(first as u64);
        let drawn = model.sample(given, count, draws, seed, &SampleSettings::default())?.values;
        let streams = Streams::new(settings.seed, 5);
        let of_row = |row: usize| {
            let place = first + row;
            let mut rng = streams.get(place as u64);
            let (truth, depths) =
                (&test.modes[place * modes..][..modes], &test.depths[place * CELLS..][..CELLS]);
            let mut below = vec![0_u32; modes + CELLS];
            for draw in drawn[row * draws * modes..][..draws * modes].chunks_exact(modes) {
                let mut profile = depths_of(draw);
                for mode in modes..depth::MODES {
                    let step = depth::deviations()[mode] * rng.sample::<f64, _>(StandardNormal);
                    profile.iter_mut().zip(depth::direction(mode)).for_each(|(x, v)| *x += step * v);
                }
                let all = draw.iter().zip(truth).chain(profile.iter().zip(depths));
                below
                    .iter_mut()
                    .zip(all)
                    .for_each(|(below, (drawn, truth))| *below += u32::from(drawn < truth));
            }
            below
        };
        ranks.extend((0..count).into_par_iter().map(of_row).collect::<Vec<_>>());
    }
    let corridor = Corridor::new(rows, draws as u32, LEVEL)?;
    let curves = |range: std::ops::Range<usize>| -> Result<RankCurves> {
        let (mut curves, mut p_values, mut outside) = (Vec::new(), Vec::new(), 0);
        for quantity in range {
            let own = Ranks::new(ranks.iter().map(|row| row[quantity]).collect(), draws as u32)?;
            let curve = corridor.difference(&own)?;
            let inside = curve.iter().zip(corridor.band()).all(|(f, (low, high))| *f >= low && *f <= high);
            outside += usize::from(!inside);
            p_values.push(corridor.test(&own)?.p_value);
            curves.push(curve);
        }
        let p_value = holm(&p_values).into_iter().fold(1.0, f64::min);
        let deviation = curves.iter().flatten().fold(0.0, |most: f64, f: &f64| most.max(f.abs()));
        Ok(RankCurves { p_value, outside, deviation, curves })
    };
    Ok(Calibrated {
        points: corridor.points(),
        band: corridor.band(),
        modes: curves(0..modes)?,
        cells: curves(modes..modes + CELLS)?,
    })
}

fn at_observation(
    model: &Posterior,
    observation: &Observation,
    projection: &Projection,
    settings: &SwSettings,
) -> Result<AtObservation> {
    let mut y = observation.projected(projection);
    y.truncate(model.info().given_transform.input_dim());
    let mode = model.mode(&y, 1, settings.seed, &ModeSettings::default())?.remove(0).point;
    let drawn = model.sample(&y, 1, PROFILES, settings.seed, &SampleSettings::default())?.values;
    let mode = depths_of(&mode);
    let profiles: Vec<Vec<f64>> = drawn.chunks_exact(settings.modes).map(depths_of).collect();
    let depths = DrawSummary::of(&profiles.concat(), CELLS)?.columns;
    let (mean, deviation): (Vec<f64>, Vec<f64>) = depths.iter().map(|depth| (depth.mean, depth.sd)).unzip();
    let errors = observation.truth.as_ref().map(|truth| [&mode, &mean].map(|x| relative_error(x, truth)));
    let waves = surfaces_at(&profiles[..PREDICTED.min(profiles.len())])?;
    Ok(AtObservation { mode, mean, deviation, errors, profiles, waves })
}

/// For each of the hours shown, noise-free surfaces of the profiles, one after the other.
pub(super) fn surfaces_at(profiles: &[Vec<f64>]) -> Result<Vec<Vec<f64>>> {
    let all = surfaces(&profiles.concat(), Solver::Exact)?;
    let size = all.len() / profiles.len().max(1);
    Ok(SHOWN_HOURS
        .iter()
        .map(|hour| {
            all.chunks_exact(size.max(1)).flat_map(|z| &z[hour * CELLS..][..CELLS]).copied().collect()
        })
        .collect())
}

/// The exact posterior at the observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExactAt {
    /// Mean depths by the sampler, and their standard deviations in metres.
    pub mean: Vec<f64>,
    /// Standard deviations.
    pub deviation: Vec<f64>,
    /// The same by Laplace's approximation.
    pub laplace_deviation: Vec<f64>,
    /// Relative errors of the mode and of the mean, where the truth is known.
    pub errors: Option<[f64; 2]>,
    /// Part of the sampler's proposals that was accepted, and its largest R̂.
    pub acceptance: f64,
    /// R̂.
    pub largest_r_hat: f64,
}

/// What no map can do better than.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yardstick {
    /// NLL of each row in published units by importance sampling; none where the search for the mode failed.
    pub nll: Vec<Option<f64>>,
    /// The same by Laplace's approximation.
    pub laplace_nll: Vec<Option<f64>>,
    /// The smallest part of the draws that counted, over the rows.
    pub least_effective: f64,
    /// The exact posterior at the observation, from all features.
    pub at: Option<ExactAt>,
}

impl Yardstick {
    /// Mean NLL, its standard error, and how many rows it is over.
    pub fn mean(&self) -> Option<(f64, f64, usize)> {
        let found: Vec<f64> = self.nll.iter().flatten().copied().collect();
        let estimate = (found.len() > 1).then(|| Estimate::of(&found));
        estimate.map(|estimate| (estimate.mean, estimate.standard_error, found.len()))
    }
}

/// Exact NLL of the first test rows, given what the maps see.
pub(super) fn yardstick(
    test: &Waves,
    observation: &Observation,
    projection: &Projection,
    settings: &SwSettings,
) -> Result<Yardstick> {
    let modes = EXACT_MODES.max(settings.modes);
    let likelihood = WaveLikelihood::new(modes)?.projected(projection);
    let width = projection.components();
    let shift = depth::published_log_scale(settings.modes);
    let mut found = Yardstick { nll: Vec::new(), laplace_nll: Vec::new(), least_effective: 1.0, at: None };
    for row in 0..settings.exact_rows {
        let mut truth = vec![0.0; modes];
        depth::to_modes(&test.depths[row * CELLS..][..CELLS], &mut truth);
        let y: Vec<f64> = test.features[row * width..][..width].iter().map(|y| y / NOISE).collect();
        let first = &truth[..settings.modes];
        match Laplace::find(&likelihood, &y, &truth, &NewtonSettings::default()) {
            Ok(laplace) => {
                let seed = settings.seed.wrapping_add(row as u64);
                let (here, constant) =
                    exact::marginal_log_density(&likelihood, &y, &laplace, first, EXACT_DRAWS, seed);
                found.least_effective = found.least_effective.min(here.effective).min(constant.effective);
                found.nll.push(Some(shift - here.log).filter(|nll| nll.is_finite()));
                found.laplace_nll.push(Some(shift - laplace.marginal_log_density(first)));
            }
            Err(_) => {
                found.nll.push(None);
                found.laplace_nll.push(None);
            }
        }
    }
    found.at = exact_at(observation, settings)?;
    Ok(found)
}

/// The sampler at the observation, started near the truth or, where it is not known, at the mean of the prior.
fn exact_at(observation: &Observation, settings: &SwSettings) -> Result<Option<ExactAt>> {
    let likelihood = WaveLikelihood::new(EXACT_MODES)?;
    let y = likelihood.observation(&observation.features)?;
    let mut start = vec![0.0; EXACT_MODES];
    if let Some(truth) = &observation.truth {
        depth::to_modes(truth, &mut start);
    }
    let Ok(laplace) = Laplace::find(&likelihood, &y, &start, &NewtonSettings::default()) else {
        return Ok(None);
    };
    let chains = ChainSettings { seed: settings.seed, ..ChainSettings::default() };
    let chains = exact::sample(&likelihood, &y, &laplace, &chains)?;
    let (mean, covariance) = chains.moments();
    let (mean, deviation) = depth_moments(&mean, &covariance);
    let (mode, laplace_deviation) = depth_moments(&laplace.mode, &laplace.covariance());
    let errors = observation.truth.as_ref().map(|truth| [&mode, &mean].map(|x| relative_error(x, truth)));
    Ok(Some(ExactAt {
        mean,
        deviation,
        laplace_deviation,
        errors,
        acceptance: chains.acceptance,
        largest_r_hat: chains.largest_r_hat,
    }))
}
