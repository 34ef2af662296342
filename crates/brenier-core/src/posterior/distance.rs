//! Whether an observation lies within the training distribution of a posterior.

use super::{Posterior, check_length};
use crate::Result;
use crate::parallel::results;

/// Where an observation lies with respect to the training rows.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Distance {
    /// The part of the rows of the training distribution that lie less far out.
    pub percentile: f64,
    /// The given column that is farthest from its mean.
    pub column: String,
    /// How many standard deviations it is away.
    pub deviations: f64,
}

impl Distance {
    /// Percentiles beyond this deserve a warning: one row in a thousand reaches it by chance.
    pub const EXTREME: f64 = 0.999;

    /// Whether the observation lies outside the training distribution.
    pub fn is_extreme(&self) -> bool {
        self.percentile > Self::EXTREME
    }
}

impl Posterior {
    /// How far each of `observations` rows of `given` lies from the training rows; `None` where the model cannot
    /// tell (no given columns, or a fit to very few rows).
    pub fn distances(&self, given: &[f64], observations: usize) -> Result<Option<Vec<Distance>>> {
        let m = self.header.given_transform.input_dim();
        check_length("given values", observations, m, given.len())?;
        let Some(score) = &self.header.outlier else { return Ok(None) };
        let rows = results(given.chunks_exact(m), |_, row| {
            let (column, deviations) = score.farthest_column(row);
            Ok(Distance {
                percentile: score.percentile(row)?,
                column: self.header.given_names[column].clone(),
                deviations,
            })
        });
        rows.into_iter().collect::<Result<Vec<_>>>().map(Some)
    }
}
