//! The posterior in the standardised coordinates of its map, where checks of many rows are made.

use super::{Posterior, at_row, check_length};
use crate::Result;
use crate::map::{Inversion, SampleSettings};

impl Posterior {
    /// Rows of target values as the map sees them.
    pub(crate) fn transform_target(&self, target: &[f64]) -> Result<Vec<f64>> {
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
    pub(crate) fn attempt_standardised(
        &self,
        given: &[f64],
        first: usize,
        observations: usize,
        draws: usize,
        seed: u64,
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        let z = self.reference_from(first, observations, draws, seed);
        let observation = repeated(observations, draws);
        self.map.attempt(&z, given, &observation, settings)
    }
}

/// 0 `each` times, 1 `each` times, …
pub(crate) fn repeated(observations: usize, each: usize) -> Vec<u32> {
    (0..observations as u32).flat_map(|observation| std::iter::repeat_n(observation, each)).collect()
}
