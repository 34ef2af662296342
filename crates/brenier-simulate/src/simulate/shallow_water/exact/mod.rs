//! The exact posterior of the depths: a yardstick for every learned map.
//!
//! Noise and prior are Gaussian, so the likelihood is known and cheap. [`Laplace`] approximates the posterior at a mode,
//! [`sample`] draws from it without approximation, and [`marginal_log_density`] gives exact densities of the leading modes, and with
//! them the negative log-likelihood that no map can fall below on average.

mod laplace;
mod sampler;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use super::depth;
use super::features::{FEATURES, centre_in_time, gain, to_surface};
use super::kernel::{AMPLITUDES, CELLS, Solver};
use super::projection::{INSIDE, INTERIOR, Projection, interior};
use super::{LANES, NOISE, side_by_side};
use crate::kernel::{Accum, Mat, columns, columns_mut, product};
use crate::{Error, Result};
pub use laplace::{Forward, Laplace, NewtonSettings};
pub use sampler::{ChainSettings, Chains, Estimate, marginal_log_density, sample};

/// The likelihood of the leading modes θ of the depths, from all features or from a projection of them.
#[derive(Clone, Debug)]
pub struct WaveLikelihood {
    modes: usize,
    /// Wᵀ, if only a projection is observed.
    weights: Option<Mat<f64>>,
}

impl WaveLikelihood {
    /// For the first `modes` modes (24 are enough: what the others add to a depth is below a millimetre) and all features.
    pub fn new(modes: usize) -> Result<Self> {
        if modes == 0 || modes > depth::MODES {
            return Err(Error::setting("modes", format!("{modes} is not between 1 and {}", depth::MODES)));
        }
        Ok(Self { modes, weights: None })
    }

    /// The same when only a projection of the features is observed; the matrix takes 8 bytes for each of its entries.
    #[must_use]
    pub fn projected(self, projection: &Projection) -> Self {
        let k = projection.components();
        let matrix = columns(projection.matrix(), k, INTERIOR, k);
        let weights = Mat::from_fn(k, INTERIOR, |i, j| f64::from(matrix[(i, j)]));
        Self { weights: Some(weights), ..self }
    }

    /// What the likelihood sees of an observation of all 20 000 features.
    pub fn observation(&self, features: &[f64]) -> Result<Vec<f64>> {
        if features.len() != FEATURES {
            return Err(Error::Shape {
                what: "features",
                expected: FEATURES.to_string(),
                got: features.len().to_string(),
            });
        }
        let mut surface = vec![0.0; AMPLITUDES];
        to_surface(features, &mut surface);
        let mut seen = vec![0.0; self.outputs()];
        self.reduce(&interior(&surface), 1.0 / NOISE, &mut seen);
        Ok(seen)
    }

    /// factor · Wᵀ values, or the values themselves, for rows of [`INTERIOR`] values.
    fn reduce(&self, values: &[f64], factor: f64, out: &mut [f64]) {
        match &self.weights {
            None => out.iter_mut().zip(values).for_each(|(out, value)| *out = factor * value),
            Some(weights) => {
                let (rows, k) = (values.len() / INTERIOR, weights.nrows());
                let values = columns(values, INTERIOR, rows, INTERIOR);
                product(columns_mut(out, k, rows, k), Accum::Replace, weights.as_ref(), values);
                out.iter_mut().for_each(|out| *out *= factor);
            }
        }
    }
}

impl Forward for WaveLikelihood {
    fn dim(&self) -> usize {
        self.modes
    }

    fn outputs(&self) -> usize {
        self.weights.as_ref().map_or(INTERIOR, Mat::nrows)
    }

    fn evaluate(&self, points: &[f64], out: &mut [f64]) {
        let groups = out.par_chunks_mut(LANES * self.outputs()).zip(points.par_chunks(LANES * self.modes));
        groups.for_each(|(out, points)| {
            let count = points.len() / self.modes;
            let mut depths = vec![0.0; count * CELLS];
            for (depths, theta) in depths.chunks_exact_mut(CELLS).zip(points.chunks_exact(self.modes)) {
                depth::of_modes(theta, depths);
            }
            let mut surfaces = vec![0.0; count * AMPLITUDES];
            side_by_side(&depths, Solver::Exact, &mut surfaces);
            let mut inside = Vec::with_capacity(count * INTERIOR);
            for surface in surfaces.chunks_exact(AMPLITUDES) {
                let mut surface = interior(surface);
                centre_in_time(&mut surface, INSIDE);
                inside.extend(surface);
            }
            self.reduce(&inside, gain() / NOISE, out);
        });
    }
}

/// Mean and standard deviation of each depth in metres, from mean and covariance (column-major) of the leading modes.
pub fn depth_moments(mean: &[f64], covariance: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let modes = mean.len();
    let mut depths = vec![0.0; CELLS];
    depth::of_modes(mean, &mut depths);
    let sd = (0..CELLS).map(|cell| {
        let weight: Vec<f64> =
            (0..modes).map(|k| depth::deviations()[k] * depth::direction(k)[cell]).collect();
        let variance: f64 = (0..modes)
            .map(|j| weight[j] * (0..modes).map(|i| weight[i] * covariance[i + j * modes]).sum::<f64>())
            .sum();
        variance.max(0.0).sqrt()
    });
    (depths, sd.collect())
}

/// ‖x − truth‖/‖truth‖.
pub fn relative_error(depths: &[f64], truth: &[f64]) -> f64 {
    let error: f64 = depths.iter().zip(truth).map(|(a, b)| (a - b).powi(2)).sum();
    (error / truth.iter().map(|b| b * b).sum::<f64>()).sqrt()
}
