//! Draws in short: mean, standard deviation, quantiles, highest-density interval and correlations.

use serde::Serialize;

use super::quantile;
use crate::{Error, Result};

/// The levels of [`ColumnSummary::quantiles`].
pub const LEVELS: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// The part of the draws in [`ColumnSummary::hpd`].
pub const HPD_MASS: f64 = 0.9;

/// One column of draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// The mean.
    pub mean: f64,
    /// The standard deviation, with N − 1 below.
    pub sd: f64,
    /// Quantiles at [`LEVELS`], interpolated linearly between order statistics (see [`quantile`]).
    pub quantiles: [f64; 5],
    /// The shortest interval that holds [`HPD_MASS`] of the draws, [low, high]: of N draws in order, ⌊0.9 N⌋ + 1
    /// neighbours, the lowest of equals. It is one interval, even where the density has several peaks.
    pub hpd: [f64; 2],
}

impl ColumnSummary {
    /// Of `values`, in any order; they are sorted. An error without any.
    pub fn of(values: &mut [f64]) -> Result<Self> {
        let count = values.len();
        if count == 0 {
            return Err(Error::Shape {
                what: "draws to summarise",
                expected: "at least one".to_owned(),
                got: "none".to_owned(),
            });
        }
        values.sort_unstable_by(f64::total_cmp);
        let (mean, sd) = moments(values);
        let reach = ((HPD_MASS * count as f64).floor() as usize).min(count - 1);
        let width = |low: usize| values[low + reach] - values[low];
        let low = (0..count - reach).min_by(|&a, &b| width(a).total_cmp(&width(b))).unwrap_or(0);
        let quantiles = LEVELS.map(|level| quantile(values, level));
        Ok(Self { mean, sd, quantiles, hpd: [values[low], values[low + reach]] })
    }
}

/// Mean and standard deviation, with N − 1 below, of sorted values. They are divided by powers of two, which changes no digit,
/// so that neither sums nor squares leave the range of numbers.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len();
    let size = power_of_two(values[0].abs().max(values[count - 1].abs()));
    let mean = values.iter().map(|value| value / size).sum::<f64>() / count as f64;
    let deviations = || values.iter().map(|value| value / size - mean);
    let width = power_of_two(deviations().fold(0.0, |most: f64, deviation| most.max(deviation.abs())));
    let squares: f64 = deviations().map(|deviation| (deviation / width) * (deviation / width)).sum();
    let sd = (squares / (count - 1).max(1) as f64).sqrt();
    (mean * size, sd * width * size)
}

/// The power of two below `value`, as far as it and its reciprocal are normal numbers; one for zero and infinity.
fn power_of_two(value: f64) -> f64 {
    match value > 0.0 && value.is_finite() {
        true => f64::from_bits(((value.to_bits() >> 52) & 0x7ff).clamp(2, 2044) << 52),
        false => 1.0,
    }
}

/// The draws of one posterior.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DrawSummary {
    /// How many draws there are.
    pub draws: usize,
    /// The columns, in order.
    pub columns: Vec<ColumnSummary>,
    /// Pearson's correlations, a row for each column; not a number (null in JSON) with a column that does not vary.
    pub correlation: Vec<Vec<f64>>,
}

impl DrawSummary {
    /// Of no draws at all: every figure of the `width` columns is not a number (null in JSON).
    pub fn none(width: usize) -> Self {
        let nothing =
            ColumnSummary { mean: f64::NAN, sd: f64::NAN, quantiles: [f64::NAN; 5], hpd: [f64::NAN; 2] };
        Self { draws: 0, columns: vec![nothing; width], correlation: vec![vec![f64::NAN; width]; width] }
    }

    /// Of `values`, rows of `width` numbers.
    pub fn of(values: &[f64], width: usize) -> Result<Self> {
        if width == 0 || !values.len().is_multiple_of(width) {
            return Err(Error::Shape {
                what: "draws to summarise",
                expected: format!("rows of {width}"),
                got: format!("{} numbers", values.len()),
            });
        }
        let mut columns = Vec::with_capacity(width);
        let mut column = Vec::with_capacity(values.len() / width);
        for j in 0..width {
            column.clear();
            column.extend(values.iter().skip(j).step_by(width).copied());
            columns.push(ColumnSummary::of(&mut column)?);
        }
        let mut correlation = vec![vec![0.0; width]; width];
        let mut centred = vec![0.0; width];
        for row in values.chunks_exact(width) {
            for ((centred, value), column) in centred.iter_mut().zip(row).zip(&columns) {
                *centred = (value - column.mean) / column.sd;
            }
            for (i, sums) in correlation.iter_mut().enumerate() {
                for (sum, other) in sums.iter_mut().zip(&centred).take(i) {
                    *sum += centred[i] * other;
                }
            }
        }
        let draws = values.len() / width;
        for i in 0..width {
            for j in 0..i {
                let rho = (correlation[i][j] / (draws as f64 - 1.0)).clamp(-1.0, 1.0);
                (correlation[i][j], correlation[j][i]) = (rho, rho);
            }
            correlation[i][i] = if columns[i].sd > 0.0 { 1.0 } else { f64::NAN };
        }
        Ok(Self { draws, columns, correlation })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Exp1, StandardNormal};

    fn near(found: f64, exact: f64, by: f64) {
        assert!((found - exact).abs() < by, "{found} instead of {exact}");
    }

    #[test]
    fn a_gaussian_has_its_moments_quantiles_and_correlation() {
        // x = 3 + 2 a, y = −1 + ½ (0.8 a + 0.6 b): correlation 0.8.
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let values: Vec<f64> = (0..100_000)
            .flat_map(|_| {
                let [a, b]: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
                [3.0 + 2.0 * a, -1.0 + 0.5 * (0.8 * a + 0.6 * b)]
            })
            .collect();
        let found = DrawSummary::of(&values, 2).unwrap();
        assert_eq!(found.draws, 100_000);
        for (column, (mean, sd)) in found.columns.iter().zip([(3.0, 2.0), (-1.0, 0.5)]) {
            near(column.mean, mean, 0.02 * sd);
            near(column.sd, sd, 0.01 * sd);
            let z = [-1.644_854, -0.674_490, 0.0, 0.674_490, 1.644_854];
            for (found, z) in column.quantiles.iter().zip(z) {
                near(*found, mean + z * sd, 0.03 * sd);
            }
            // Symmetric: the highest-density interval is the central one. Its ends are flat, so they scatter.
            near(column.hpd[0], mean - 1.644_854 * sd, 0.1 * sd);
            near(column.hpd[1], mean + 1.644_854 * sd, 0.1 * sd);
        }
        near(found.correlation[0][1], 0.8, 0.01);
        assert_eq!(found.correlation[0][1], found.correlation[1][0]);
        assert_eq!((found.correlation[0][0], found.correlation[1][1]), (1.0, 1.0));
    }

    #[test]
    fn the_interval_of_a_skewed_density_sits_at_its_peak() {
        // Exponential: the highest-density interval is [0, −log 0.1], the central one [0.0513, 2.9957].
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut values: Vec<f64> = (0..100_000).map(|_| rng.sample(Exp1)).collect();
        let found = ColumnSummary::of(&mut values).unwrap();
        near(found.hpd[0], 0.0, 0.01);
        near(found.hpd[1], 10.0_f64.ln(), 0.05);
        near(found.quantiles[0], -(0.95_f64.ln()), 0.01);
        near(found.quantiles[4], 20.0_f64.ln(), 0.05);
    }

    #[test]
    fn small_and_odd_samples_follow_the_conventions() {
        // Eleven draws: ⌊9.9⌋ + 1 = 10 neighbours.
        let mut values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0];
        let found = ColumnSummary::of(&mut values).unwrap();
        assert_eq!((found.hpd, found.quantiles[2]), ([0.0, 9.0], 5.0));
        let two = DrawSummary::of(&[1.0, 5.0, 1.0, 7.0], 2).unwrap();
        assert_eq!((two.columns[1].mean, two.columns[1].hpd), (6.0, [5.0, 7.0]));
        assert!((two.columns[1].sd - 2.0_f64.sqrt()).abs() < 1e-12);
        // Squares of these are no numbers, their moments are.
        for size in [1e300, 1e-300, 1.0] {
            let found = DrawSummary::of(&[-size, 1.0, size, 2.0, 0.0, 3.0], 2).unwrap();
            assert_eq!((found.columns[0].mean, found.columns[0].sd), (0.0, size));
            near(found.correlation[0][1], 0.5, 1e-12);
        }
        let none = DrawSummary::none(2);
        assert!(none.draws == 0 && none.columns.len() == 2 && none.columns[1].hpd[0].is_nan());
        // A column that does not vary has no correlation.
        assert!(two.correlation[0][1].is_nan() && two.correlation[0][0].is_nan());
        assert!(ColumnSummary::of(&mut []).is_err() && DrawSummary::of(&[1.0, 2.0, 3.0], 2).is_err());
    }
}
