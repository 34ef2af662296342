//! What numbers say in short: means that tell what they rest on, quantiles, intervals, correlations.
//!
//! [`Estimate`] is the mean of rows' scores and names the row that carries it, if one does. [`DrawSummary`] describes the
//! draws of a posterior. Nothing here knows where the numbers come from.

mod draws;
mod estimate;
pub mod random;

pub use draws::{ColumnSummary, DrawSummary, HPD_MASS, LEVELS};
pub use estimate::{Carrier, Estimate};

/// The quantile at `level` in [0, 1] of `sorted`, which must not be empty.
///
/// It interpolates linearly between order statistics: with N values, place (N − 1)·`level` counted from 0 (type 7 of
/// Hyndman and Fan, the default of NumPy and R).
pub fn quantile(sorted: &[f64], level: f64) -> f64 {
    let position = level * (sorted.len() - 1) as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (position - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_follow_the_convention_of_numpy() {
        // numpy.quantile([1, 2, 4, 8], [0, .1, .5, .75, 1])
        let sorted = [1.0, 2.0, 4.0, 8.0];
        for (level, expected) in [(0.0, 1.0), (0.1, 1.3), (0.5, 3.0), (0.75, 5.0), (1.0, 8.0)] {
            assert!((quantile(&sorted, level) - expected).abs() < 1e-12, "{level}");
        }
        assert_eq!(quantile(&[7.0], 0.3), 7.0);
    }
}
