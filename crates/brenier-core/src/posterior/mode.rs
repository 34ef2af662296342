//! MAP points: the highest posterior density found from several draws, by the exact gradient.

use serde::{Deserialize, Serialize};

use super::{At, Posterior};
use crate::kernel::lbfgs;
use crate::map::SampleSettings;
use crate::parallel::results;
use crate::{Error, Result};

/// Draws among which the starting points are chosen.
const CANDIDATES: usize = 256;
/// First and last step of the pattern search where the gradient does not vanish, in standardised coordinates.
const STEPS: (f64, f64) = (1e-2, 1e-7);
/// Points that it looks at, at most, for each target column and one more.
const LOOKS: usize = 100;

/// The density whose maximum is sought; for columns that are only shifted and scaled both have the same maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Units {
    /// The density in the user's units.
    #[default]
    User,
    /// The density of the transformed variable (log, logit, …) that the map sees.
    Standardised,
}

/// Settings of the search for the mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModeSettings {
    /// Starting points: the draws of highest density.
    pub starts: usize,
    /// Largest gradient entry (standardised coordinates) that counts as a maximum.
    pub tolerance: f64,
    /// Iterations of each start.
    pub max_iterations: u32,
    /// Which density is maximised.
    pub units: Units,
}

impl Default for ModeSettings {
    fn default() -> Self {
        Self { starts: 8, tolerance: 1e-6, max_iterations: 200, units: Units::User }
    }
}

/// The highest point found at one observation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mode {
    /// The point, in the user's units.
    pub point: Vec<f64>,
    /// log π(x | y) there, in the user's units.
    pub log_density: f64,
    /// The standardised log density there.
    pub log_density_standardised: f64,
    /// Largest entry of the gradient of the maximised density, in standardised coordinates.
    pub gradient: f64,
    /// Whether the gradient is within the tolerance or, where it is not, no point near by is higher: a density with kinks,
    /// as that of a spline has at its knots, can have its maximum at one of them.
    pub settled: bool,
    /// Starts that ended at this point, of all starts.
    pub agreeing: usize,
    /// Starts made.
    pub starts: usize,
}

impl Mode {
    /// What to tell a user of a point that is not certain to be a maximum; nothing where it is.
    pub fn doubt(&self, settings: &ModeSettings) -> Option<String> {
        (!self.settled).then(|| {
            format!(
                "the search ended with a gradient of {:.1e}, above {:.0e}: the point is near a maximum at best",
                self.gradient, settings.tolerance
            )
        })
    }
}

impl At<'_> {
    /// As [`mode`](At::mode), with an error of its own for each observation at which no maximum was found.
    pub fn modes(&self, settings: &ModeSettings) -> Result<Vec<Result<Mode>>> {
        if settings.starts == 0 || settings.max_iterations == 0 {
            return Err(Error::setting("starts", "must be at least 1"));
        }
        let posterior = self.posterior;
        // All at once, so that an error names the row.
        let y = posterior.transform_given(&self.given, self.observations)?;
        let k = posterior.info().given_transform.output_dim();
        let modes = results(0..self.observations, |_, o| {
            self.stop.go_on()?;
            posterior.mode_at(&y[o * k..(o + 1) * k], o, self.seed, settings)
        });
        self.stop.go_on()?;
        Ok(modes)
    }
}

impl Posterior {
    /// MAP points at each of `observations` rows of `given`; an error if there is none at one of them.
    pub fn mode(
        &self,
        given: &[f64],
        observations: usize,
        seed: u64,
        settings: &ModeSettings,
    ) -> Result<Vec<Mode>> {
        self.modes(given, observations, seed, settings)?.into_iter().collect()
    }

    /// The same, with an error of its own for each observation at which no maximum was found.
    pub fn modes(
        &self,
        given: &[f64],
        observations: usize,
        seed: u64,
        settings: &ModeSettings,
    ) -> Result<Vec<Result<Mode>>> {
        self.at_rows(given, observations).seed(seed).modes(settings)
    }

    /// Draws to start from at one observation; those that cannot be computed are left out.
    fn candidates(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let settings = SampleSettings { skip_unsolved: true, ..SampleSettings::default() };
        let (z, choice) = self.reference_from(0, 1, count, seed);
        let (draws, inversion) = self.mixture.draw(&z, &choice, y, &vec![0; count], &settings)?;
        if inversion.unsolved.is_empty() {
            return Ok(draws);
        }
        let n = self.target_names().len();
        Ok(inversion.without_unsolved(draws.chunks_exact(n)).flatten().copied().collect())
    }

    /// The same for one observation, whose given values are transformed.
    fn mode_at(&self, y: &[f64], observation: usize, seed: u64, settings: &ModeSettings) -> Result<Mode> {
        let transform = &self.info().target_transform;
        let n = transform.dim();
        let seed = seed.wrapping_add(observation as u64);
        let count = CANDIDATES.max(settings.starts);
        let x = self.candidates(y, count, seed)?;
        let rows = x.len() / n;
        let mut density = vec![0.0; rows];
        let contexts: Vec<f64> = (0..rows).flat_map(|_| y.iter().copied()).collect();
        self.mixture.log_density(&x, &contexts, &mut density)?;
        let bonus = |x: &[f64]| if settings.units == Units::User { transform.log_det(x) } else { 0.0 };
        let mut candidates: Vec<(f64, &[f64])> =
            x.chunks_exact(n).zip(&density).map(|(x, density)| (density + bonus(x), x)).collect();
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        candidates.truncate(settings.starts);

        let mut slope = vec![0.0; n];
        let mut objective = |x: &[f64], gradient: &mut [f64]| {
            let mut density = [0.0];
            if self.mixture.log_density_gradient(x, y, &mut density, gradient).is_err() {
                return f64::INFINITY;
            }
            for gradient in gradient.iter_mut() {
                *gradient = -*gradient;
            }
            if settings.units == Units::User {
                transform.log_det_gradient(x, &mut slope);
                for (gradient, slope) in gradient.iter_mut().zip(&slope) {
                    *gradient -= slope;
                }
                density[0] += transform.log_det(x);
            }
            -density[0]
        };
        let mut found = Vec::new();
        for (_, start) in &candidates {
            let (tolerance, most) = (settings.tolerance, settings.max_iterations);
            let minimum = lbfgs::minimise(start, tolerance, most, |x, g| Ok::<f64, Error>(objective(x, g)))?;
            if minimum.value.is_finite() {
                found.push(minimum);
            }
        }
        let mut best = found.iter().min_by(|a, b| a.value.total_cmp(&b.value)).cloned().ok_or_else(|| {
            Error::Numerical(format!(
                "observation {}: no start reached a finite density; it may lie far outside the training data",
                observation + 1
            ))
        })?;
        let mut point = vec![0.0; n];
        transform.inverse(&best.x, &mut point);
        if settings.units == Units::User
            && let Some((name, bound)) = self.run_out(&point)
        {
            return Err(Error::Numerical(format!(
                "observation {}: the density in your units grows towards {bound} of \"{name}\" as far as numbers reach, so \
                 that it has no maximum; that of the standardised variable has one (`units = standardised`)",
                observation + 1
            )));
        }
        let settled = steepest(&best) <= settings.tolerance || look_around(&mut best, &mut objective);
        transform.inverse(&best.x, &mut point);
        let near = |other: &lbfgs::Minimum| other.x.iter().zip(&best.x).all(|(a, b)| (a - b).abs() < 1e-3);
        let log_det = transform.log_det(&best.x);
        let maximised = -best.value;
        let standardised = if settings.units == Units::User { maximised - log_det } else { maximised };
        Ok(Mode {
            point,
            log_density: standardised + log_det,
            log_density_standardised: standardised,
            gradient: steepest(&best),
            settled,
            agreeing: found.iter().filter(|minimum| near(minimum)).count().max(1),
            starts: candidates.len(),
        })
    }

    /// The column, and its bound, which a point has reached as nearly as its numbers can.
    fn run_out(&self, point: &[f64]) -> Option<(&str, String)> {
        let transform = &self.info().target_transform;
        let places = transform.names().zip(transform.supports()).zip(point);
        places.into_iter().find_map(|((name, support), &x)| Some((name, support.reached(x)?)))
    }
}

/// The largest entry of the gradient.
fn steepest(point: &lbfgs::Minimum) -> f64 {
    point.gradient.iter().fold(0.0, |most, g| g.abs().max(most))
}

/// Looks around `best`, along the axes and away from the kinks near by, in ever shorter steps, and moves to what is lower.
/// Whether in the end nothing near by is.
///
/// At a kink the gradient is large on every side, and a line search along it finds no way down. The way down, if there is
/// one, goes against the shortest vector among all mixtures of the gradients near by (Burke, Lewis and Overton 2005).
fn look_around(best: &mut lbfgs::Minimum, objective: &mut impl FnMut(&[f64], &mut [f64]) -> f64) -> bool {
    let n = best.x.len();
    let mut look = |from: &[f64], way: &[f64], by: f64| {
        let x: Vec<f64> = from.iter().zip(way).map(|(x, d)| x + by * d).collect();
        let mut gradient = vec![0.0; n];
        let value = objective(&x, &mut gradient);
        lbfgs::Minimum { x, value, gradient }
    };
    let (mut step, mut looks) = (STEPS.0, 0);
    while step >= STEPS.1 {
        // Less than rounding is no way down.
        let lowest = best.value - 1e-12 * (1.0 + best.value.abs());
        let mut seen = Vec::with_capacity(2 * n + 3);
        let mut way = vec![0.0; n];
        for j in 0..n {
            way[j] = 1.0;
            seen.extend([step, -step].map(|by| look(&best.x, &way, by)));
            way[j] = 0.0;
        }
        let gradients: Vec<&[f64]> =
            seen.iter().chain([&*best]).map(|point| point.gradient.as_slice()).collect();
        let shortest = shortest_mixture(&gradients);
        let length = shortest.iter().map(|g| g * g).sum::<f64>().sqrt();
        if length.is_finite() && length > 0.0 {
            way = shortest.iter().map(|g| -g / length).collect();
            seen.extend([1.0, 0.25].map(|part| look(&best.x, &way, part * step)));
        }
        looks += seen.len();
        match seen.into_iter().filter(|point| point.value < lowest).min_by(|a, b| a.value.total_cmp(&b.value))
        {
            Some(lower) => *best = lower,
            None => step *= 0.25,
        }
        if looks > LOOKS * (n + 1) {
            return false;
        }
    }
    true
}

/// The vector of least length among all Σ wᵢ gᵢ with wᵢ ≥ 0 and Σ wᵢ = 1, by the method of Frank and Wolfe.
fn shortest_mixture(gradients: &[&[f64]]) -> Vec<f64> {
    const ROUNDS: usize = 1000;
    let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let finite = || gradients.iter().filter(|gradient| gradient.iter().all(|g| g.is_finite()));
    let Some(first) = finite().next() else { return vec![f64::NAN; gradients[0].len()] };
    let mut mixture = first.to_vec();
    for _ in 0..ROUNDS {
        let least = finite().map(|gradient| (inner(&mixture, gradient), *gradient));
        let Some((product, toward)) = least.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        let gap = inner(&mixture, &mixture) - product;
        let apart: f64 = mixture.iter().zip(toward).map(|(m, t)| (m - t) * (m - t)).sum();
        if !(gap > 1e-12 && apart > 0.0) {
            break;
        }
        let part = (gap / apart).min(1.0);
        mixture.iter_mut().zip(toward).for_each(|(m, t)| *m += part * (t - *m));
    }
    mixture
}

#[cfg(test)]
mod tests {
    use super::*;

    /// |x| + |y − x|/2 + x²: a kink at the origin, in an oblique valley.
    fn kinked(x: &[f64], gradient: &mut [f64]) -> f64 {
        let (own, other) = (x[0].signum(), 0.5 * (x[1] - x[0]).signum());
        gradient[0] = own - other + 2.0 * x[0];
        gradient[1] = other;
        x[0].abs() + 0.5 * (x[1] - x[0]).abs() + x[0] * x[0]
    }

    #[test]
    fn a_kink_is_told_from_a_search_that_has_not_ended() {
        let at = |x: [f64; 2]| {
            let mut gradient = vec![0.0; 2];
            let value = kinked(&x, &mut gradient);
            lbfgs::Minimum { x: x.to_vec(), value, gradient }
        };
        let mut near = at([1e-4, -2e-4]);
        assert!(look_around(&mut near, &mut kinked));
        assert!(near.x.iter().all(|x| x.abs() < 1e-5), "{near:?}");
        // A steep ridge at 0.3 to the axes, on which the way down is narrow.
        let (sine, cosine) = 0.3_f64.sin_cos();
        let mut ridge = |x: &[f64], gradient: &mut [f64]| {
            let (across, along) = (cosine * x[0] - sine * x[1], sine * x[0] + cosine * x[1]);
            let slopes = (20.0 * across.signum(), 0.3 * along.signum());
            gradient[0] = cosine * slopes.0 + sine * slopes.1;
            gradient[1] = cosine * slopes.1 - sine * slopes.0;
            20.0 * across.abs() + 0.3 * along.abs()
        };
        let mut gradient = vec![0.0; 2];
        let start = [3e-3 * sine, 3e-3 * cosine];
        let value = ridge(&start, &mut gradient);
        let mut on_it = lbfgs::Minimum { x: start.to_vec(), value, gradient };
        assert!(look_around(&mut on_it, &mut ridge));
        assert!(on_it.x.iter().all(|x| x.abs() < 1e-5), "{on_it:?}");
        // A slope without end.
        let mut slope = |x: &[f64], gradient: &mut [f64]| {
            gradient[0] = 1.0;
            x[0]
        };
        let mut far = lbfgs::Minimum { x: vec![0.0], value: 0.0, gradient: vec![1.0] };
        assert!(!look_around(&mut far, &mut slope));
    }
}
