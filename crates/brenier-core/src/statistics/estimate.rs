//! A mean with its standard error and its median, and the row that dominates the mean, if one does.

use serde::{Deserialize, Serialize};

use super::quantile;

/// A row dominates a mean only if the mean is farther than this from what it is without the row. In nats, for scores.
const SHIFT: f64 = 0.1;
/// … and farther than so many standard errors of the other rows, by their interquartile range, which no row moves.
const ERRORS: f64 = 2.0;
/// Interquartile range of a Gaussian in standard deviations.
const QUARTILES: f64 = 1.349;

/// A mean with its standard error, and how far it is to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// √(Σ (v − v̄)² / (N (N − 1))).
    pub standard_error: f64,
    /// The median, which no single row moves far.
    pub median: f64,
    /// The row that dominates the mean, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<Carrier>,
}

/// A single row without which a mean would be another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Carrier {
    /// Its number, from 0.
    pub row: usize,
    /// Its value.
    pub value: f64,
    /// The mean of the others.
    pub mean_without: f64,
    /// The standard error of that.
    pub standard_error_without: f64,
}

impl Estimate {
    /// Of `values`, whose places are the rows; the standard error of fewer than two is zero.
    ///
    /// A row dominates the mean if it moves it by more than 0.1 and by more than two standard errors of the other rows
    /// (from their interquartile range).
    pub fn of(values: &[f64]) -> Self {
        let (mean, standard_error) = moments(values.iter().copied(), values.len());
        if values.is_empty() {
            return Self { mean, standard_error, median: 0.0, carrier: None };
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let spread = (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / QUARTILES;
        let distance = |row: usize| (values[row] - mean).abs();
        // The first of equals.
        let farthest = (0..values.len()).rev().max_by(|&a, &b| distance(a).total_cmp(&distance(b)));
        let others = (values.len() - 1) as f64;
        let carries = |row: &usize| {
            let limit = SHIFT.max(ERRORS * spread / others.max(1.0).sqrt());
            others >= 2.0 && distance(*row) / others > limit
        };
        let carrier = farthest.filter(carries).map(|row| {
            let rest = values.iter().enumerate().filter(|(other, _)| *other != row).map(|(_, value)| *value);
            let (mean_without, standard_error_without) = moments(rest, values.len() - 1);
            Carrier { row, value: values[row], mean_without, standard_error_without }
        });
        Self { mean, standard_error, median: quantile(&sorted, 0.5), carrier }
    }

    /// Of the values in the rows `rows`: as [`of`](Self::of), but the carrier's number is that of its row.
    pub fn of_rows(rows: &[usize], values: &[f64]) -> Self {
        let mut estimate = Self::of(values);
        if let Some(carrier) = &mut estimate.carrier {
            carrier.row = rows[carrier.row];
        }
        estimate
    }

    /// The mean, without the row that carries it.
    pub fn robust_mean(&self) -> f64 {
        self.carrier.map_or(self.mean, |carrier| carrier.mean_without)
    }

    /// The standard error of [`robust_mean`](Self::robust_mean).
    pub fn robust_error(&self) -> f64 {
        self.carrier.map_or(self.standard_error, |carrier| carrier.standard_error_without)
    }
}

impl Carrier {
    /// What to say of it where the mean of `name` is printed, as in "row 17 as read dominates the mean NLL: …".
    pub fn sentence(&self, name: &str, estimate: &Estimate) -> String {
        format!(
            "row {} as read dominates the mean {name}: it has {:.1} itself, without it the mean is {:.4} ± {:.4}; the median \
             is {:.4}",
            self.row + 1,
            self.value,
            self.mean_without,
            self.standard_error_without,
            estimate.median
        )
    }
}

/// The mean of `count` values and its standard error.
fn moments(values: impl Iterator<Item = f64> + Clone, count: usize) -> (f64, f64) {
    let count = count as f64;
    let mean = values.clone().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / (count * (count - 1.0)).max(1.0)).sqrt())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    #[test]
    fn mean_error_and_median_are_those_of_the_textbook() {
        let found = Estimate::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!((found.mean, found.median, found.carrier), (3.0, 2.5, None));
        assert!((found.standard_error - (14.0_f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(
            Estimate::of(&[4.0]),
            Estimate { mean: 4.0, standard_error: 0.0, median: 4.0, carrier: None }
        );
        assert_eq!(Estimate::of(&[]).mean, 0.0);
    }

    #[test]
    fn the_row_that_carries_a_mean_is_named() {
        let mut values: Vec<f64> = (0..200).map(|i| 1.0 + f64::from(i % 7) / 7.0).collect();
        let clean = Estimate::of(&values);
        assert_eq!(clean.carrier, None);
        values[31] = 500.0;
        let found = Estimate::of(&values);
        let carrier = found.carrier.unwrap();
        assert_eq!((carrier.row, carrier.value), (31, 500.0));
        assert!((found.robust_mean() - clean.mean).abs() < 0.01 && found.mean > 3.0);
        assert!((found.robust_error() / clean.standard_error - 1.0).abs() < 0.05);
        assert!((found.median - clean.median).abs() < 0.15);
        assert!(
            carrier
                .sentence("NLL", &found)
                .starts_with("row 32 as read dominates the mean NLL: it has 500.0")
        );
        let rows: Vec<usize> = (0..200).map(|row| 2 * row).collect();
        assert_eq!(Estimate::of_rows(&rows, &values).carrier.unwrap().row, 62);
        // In ten thousand rows the same row moves the mean by 0.05, which is of no consequence.
        values.resize(10_000, 1.5);
        assert_eq!(Estimate::of(&values).carrier, None);
    }

    #[test]
    fn scores_of_a_right_model_have_no_carrier() {
        // −log N(z; 0, I) of d columns: ½‖z‖² and a constant.
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut named = 0;
        for run in 0..600 {
            let (rows, columns) = ([20, 40, 100, 1000][run % 4], [1, 3, 10][run % 3]);
            let values: Vec<f64> = (0..rows)
                .map(|_| (0..columns).map(|_| 0.5 * rng.sample::<f64, _>(StandardNormal).powi(2)).sum())
                .collect();
            named += usize::from(Estimate::of(&values).carrier.is_some());
        }
        assert!(named <= 12, "{named} of 600");
    }
}
