//! Summaries of draws at any number of observations; the draws are not kept.

use super::{At, Draws, Posterior};
use crate::Result;
use crate::map::SampleSettings;
use crate::parallel::results;
use crate::statistics::DrawSummary;

/// Numbers that are drawn at a time.
const AT_ONCE: usize = 4_000_000;

/// Summaries of draws at many observations.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summaries {
    /// One for each observation; [`DrawSummary::none`] where no draw could be computed.
    pub summaries: Vec<DrawSummary>,
    /// Residuals of the draws that could not be computed and are left out: see [`Draws::unsolved`].
    pub unsolved: Vec<f64>,
}

impl Posterior {
    /// Summaries of `draws` draws from π(· | y) at each of `observations` rows of `given`: of those that
    /// [`sample`](Self::sample) gives for the same seed, up to the tolerance to which draws are solved.
    ///
    /// Memory grows with the number of observations and target columns, not with the number of draws.
    pub fn summarise(
        &self,
        given: &[f64],
        observations: usize,
        draws: usize,
        seed: u64,
        settings: &SampleSettings,
    ) -> Result<Summaries> {
        self.at_rows(given, observations).seed(seed).settings(*settings).summarise(draws)
    }
}

impl At<'_> {
    /// Summaries of `draws` draws at each observation, which are not kept.
    pub fn summarise(&self, draws: usize) -> Result<Summaries> {
        let n = self.posterior.target_names().len();
        let each = (AT_ONCE / (n * draws).max(1)).max(1);
        // All at once, so that an error names the row.
        let given = self.posterior.transform_given(&self.given, self.observations)?;
        let mut found = Summaries { summaries: Vec::with_capacity(self.observations), unsolved: Vec::new() };
        for first in (0..self.observations).step_by(each) {
            let rows = first..self.observations.min(first + each);
            let draws = self.sample_rows(&given, rows.clone(), draws)?;
            found.summaries.extend(draws.summaries(n, rows.len())?);
            found.unsolved.extend(draws.unsolved);
        }
        Ok(found)
    }
}

impl Draws {
    /// Summaries of the draws of each of `observations` observations of `n` target columns; [`DrawSummary::none`] of those that
    /// have no draws.
    pub fn summaries(&self, n: usize, observations: usize) -> Result<Vec<DrawSummary>> {
        // Observation by observation; of some there may be fewer, where draws were left out.
        let end = |o: usize| self.observation.partition_point(|&own| own as usize <= o);
        let summary = |o: usize| match &self.values[o.checked_sub(1).map_or(0, end) * n..end(o) * n] {
            [] => Ok(DrawSummary::none(n)),
            own => DrawSummary::of(own, n),
        };
        results(0..observations, |_, o| summary(o)).into_iter().collect()
    }
}
