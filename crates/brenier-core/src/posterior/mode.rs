//! MAP points: the highest posterior density found from several draws, by the exact gradient.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Posterior;
use crate::kernel::lbfgs;
use crate::map::SampleSettings;
use crate::{Error, Result};

/// Draws among which the starting points are chosen.
const CANDIDATES: usize = 256;

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
pub struct Mode {
    /// The point, in the user's units.
    pub point: Vec<f64>,
    /// log π(x | y) there, in the user's units.
    pub log_density: f64,
    /// The standardised log density there.
    pub log_density_standardised: f64,
    /// Largest entry of the gradient of the maximised density, in standardised coordinates.
    pub gradient: f64,
    /// Starts that ended at this point, of all starts.
    pub agreeing: usize,
    /// Starts made.
    pub starts: usize,
}

impl Posterior {
    /// MAP points at each of `observations` rows of `given`.
    pub fn mode(
        &self,
        given: &[f64],
        observations: usize,
        seed: u64,
        settings: &ModeSettings,
    ) -> Result<Vec<Mode>> {
        if settings.starts == 0 || settings.max_iterations == 0 {
            return Err(Error::setting("starts", "must be at least 1"));
        }
        // All at once, so that an error names the row.
        let (y, k) = (self.transform_given(given, observations)?, self.header().given_transform.output_dim());
        (0..observations)
            .into_par_iter()
            .map(|o| self.mode_at(&y[o * k..(o + 1) * k], o, seed, settings))
            .collect()
    }

    /// Draws to start from at one observation; those that cannot be computed are left out.
    fn candidates(&self, z: &[f64], y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let settings = SampleSettings { skip_unsolved: true, ..SampleSettings::default() };
        let choice = self.choices_from(0, 1, count, seed);
        let (draws, inversion) = self.mixture.draw(z, &choice, y, &vec![0; count], &settings)?;
        if inversion.unsolved.is_empty() {
            return Ok(draws);
        }
        let n = self.target_names().len();
        Ok(inversion.without_unsolved(draws.chunks_exact(n)).flatten().copied().collect())
    }

    /// The same for one observation, whose given values are transformed.
    fn mode_at(&self, y: &[f64], observation: usize, seed: u64, settings: &ModeSettings) -> Result<Mode> {
        let transform = &self.header().target_transform;
        let n = transform.dim();
        let seed = seed.wrapping_add(observation as u64);
        let count = CANDIDATES.max(settings.starts);
        let z = self.reference(1, count, seed);
        let x = self.candidates(&z, y, count, seed)?;
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
        let mut found = Vec::new();
        for (_, start) in &candidates {
            let minimum =
                lbfgs::minimise(start, settings.tolerance, settings.max_iterations, |x, gradient| {
                    let mut density = [0.0];
                    if self.mixture.log_density_gradient(x, y, &mut density, gradient).is_err() {
                        return Ok::<f64, Error>(f64::INFINITY);
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
                    Ok(-density[0])
                })?;
            if minimum.value.is_finite() {
                found.push(minimum);
            }
        }
        let best = found.iter().min_by(|a, b| a.value.total_cmp(&b.value)).ok_or_else(|| {
            Error::Numerical(format!(
                "observation {}: no start reached a finite density; it may lie far outside the training data",
                observation + 1
            ))
        })?;
        let near = |other: &lbfgs::Minimum| other.x.iter().zip(&best.x).all(|(a, b)| (a - b).abs() < 1e-3);
        let log_det = transform.log_det(&best.x);
        let maximised = -best.value;
        let standardised = if settings.units == Units::User { maximised - log_det } else { maximised };
        let mut point = vec![0.0; n];
        transform.inverse(&best.x, &mut point);
        Ok(Mode {
            point,
            log_density: standardised + log_det,
            log_density_standardised: standardised,
            gradient: best.gradient.iter().fold(0.0, |most, g| g.abs().max(most)),
            agreeing: found.iter().filter(|minimum| near(minimum)).count(),
            starts: candidates.len(),
        })
    }
}
