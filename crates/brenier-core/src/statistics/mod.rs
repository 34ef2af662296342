//! What numbers say in short: means that tell what they rest on, quantiles, intervals, correlations.
//!
//! [`Estimate`] is the mean of rows' scores and names the row that dominates it, if one does. [`DrawSummary`] describes the
//! draws of a posterior. Nothing here knows where the numbers come from.

mod draws;
mod estimate;
pub mod random;

pub use draws::{ColumnSummary, DrawSummary, HPD_MASS, LEVELS};
pub use estimate::{Carrier, Estimate};

/// The mean, summed in order; zero of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean and population standard deviation, with N below, both summed in order.
pub fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    (mean, (values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / count).sqrt())
}

/// Mean and population variance of each of `dim` columns over `count` rows, which `read` writes one by one, twice. Terms are
/// divided before they are added, so that no sum of large numbers overflows.
pub fn column_moments(
    count: usize,
    dim: usize,
    mut read: impl FnMut(usize, &mut [f64]),
) -> (Vec<f64>, Vec<f64>) {
    let rows = count as f64;
    let mut row = vec![0.0; dim];
    let (mut mean, mut variance) = (vec![0.0; dim], vec![0.0; dim]);
    for index in 0..count {
        read(index, &mut row);
        mean.iter_mut().zip(&row).for_each(|(mean, x)| *mean += x / rows);
    }
    for index in 0..count {
        read(index, &mut row);
        for ((variance, x), mean) in variance.iter_mut().zip(&row).zip(&mean) {
            *variance += (x - mean) * (x - mean) / rows;
        }
    }
    (mean, variance)
}

/// The quantile at `level` in [0, 1] of `sorted`, which must not be empty.
///
/// It interpolates linearly between order statistics: with N values, place (N − 1)·`level` counted from 0 (type 7 of
/// Hyndman and Fan, the default of NumPy and R).
pub fn quantile(sorted: &[f64], level: f64) -> f64 {
    let (below, weight) = place(sorted.len(), level);
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + weight * (sorted[above] - sorted[below])
}

/// As [`quantile`] of values in any order, which are rearranged: for one level or a few this is quicker than to sort. The difference
/// of neighbours is not taken, which could be too large for a number.
pub fn unsorted_quantile(values: &mut [f64], level: f64) -> f64 {
    let (below, weight) = place(values.len(), level);
    let (_, &mut lower, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    match above.iter().copied().min_by(f64::total_cmp) {
        Some(upper) if weight > 0.0 => (1.0 - weight) * lower + weight * upper,
        _ => lower,
    }
}

/// The order statistic below the quantile at `level` of `count` values, from 0, and the weight of the one above.
fn place(count: usize, level: f64) -> (usize, f64) {
    let position = level * (count - 1) as f64;
    (position.floor() as usize, position - position.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_or_not_a_quantile_is_the_same() {
        let mut values = [5.0, 1.0, 4.0, 2.0, 8.0, 3.0];
        let mut sorted = values;
        sorted.sort_by(f64::total_cmp);
        for level in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0] {
            assert!(
                (unsorted_quantile(&mut values, level) - quantile(&sorted, level)).abs() < 1e-14,
                "{level}"
            );
        }
        assert_eq!(unsorted_quantile(&mut [f64::MAX, -f64::MAX], 0.5), 0.0);
    }

    #[test]
    fn moments_are_those_of_the_textbook() {
        let values = [1.0, 2.0, 3.0, 6.0];
        assert_eq!((mean(&values), mean(&[])), (3.0, 0.0));
        assert_eq!(moments(values.into_iter()), (3.0, 3.5_f64.sqrt()));
        // Columns (1, 3) and (2, 6).
        let columns = column_moments(2, 2, |row, out| out.copy_from_slice(&values[2 * row..][..2]));
        assert_eq!(columns, (vec![2.0, 4.0], vec![1.0, 4.0]));
    }

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
