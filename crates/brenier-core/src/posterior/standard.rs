//! The posterior in the standardised coordinates of its map, where checks of many rows are made.

use super::{Posterior, at_row, check_length};
use crate::Result;
use crate::map::{Inversion, SampleSettings};

impl Posterior {
    /// An error that names the first row of target values outside a column's support.
    pub fn check_target(&self, target: &[f64]) -> Result<()> {
        self.transform_target(target).map(|_| ())
    }

    /// Rows of target values as the map sees them.
    pub fn transform_target(&self, target: &[f64]) -> Result<Vec<f64>> {
        let transform = &self.header.target_transform;
        let n = transform.dim();
        let rows = target.len() / n;
        check_length("target values", rows, n, target.len())?;
        let mut x = vec![0.0; rows * n];
        for (row, (raw, x)) in target.chunks_exact(n).zip(x.chunks_exact_mut(n)).enumerate() {
            transform.forward(raw, x).map_err(|error| at_row(error, row))?;
        }
        Ok(x)
    }

    /// Draws at the observations of transformed `given` values, of which the first has the random stream `first`; rows
    /// that could not be solved are returned as they are, with their residuals.
    pub fn attempt_standardised(
        &self,
        given: &[f64],
        first: usize,
        observations: usize,
        draws: usize,
        seed: u64,
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        let (z, choice) = self.reference_from(first, observations, draws, seed);
        let observation = repeated(observations, draws);
        let settings = SampleSettings { skip_unsolved: true, ..*settings };
        self.mixture.draw(&z, &choice, given, &observation, &settings)
    }
}

impl Posterior {
    /// −log π(x | y) of rows in the user's units under the baseline, standardised; none without a baseline.
    pub fn baseline_nll(&self, target: &[f64], given: &[f64]) -> Result<Option<Vec<f64>>> {
        let Some(baseline) = &self.baseline else { return Ok(None) };
        let x = self.transform_target(target)?;
        let rows = x.len() / self.target_names().len();
        let y = self.transform_given(given, rows)?;
        let mut density = vec![0.0; rows];
        baseline.double().log_density(&x, &y, &mut density)?;
        Ok(Some(density.into_iter().map(|density| -density).collect()))
    }

    /// log π(x | y) in single precision; see [`TransportMap::log_density_at`](crate::map::TransportMap::log_density_at).
    pub fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        self.mixture.log_density_at(x, given, observation)
    }
}

/// 0 `each` times, 1 `each` times, …
pub fn repeated(observations: usize, each: usize) -> Vec<u32> {
    (0..observations as u32).flat_map(|observation| std::iter::repeat_n(observation, each)).collect()
}
