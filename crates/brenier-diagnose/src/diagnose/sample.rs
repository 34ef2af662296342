//! The sample that every check takes: finite rows, and weights that sum to one.

use std::borrow::Cow;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::statistics::random::{shuffled, stream};
use crate::{Error, Result};

/// Rows of one distribution, all of equal weight unless weights are given.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    values: Cow<'a, [f64]>,
    dim: usize,
    /// Sums to one.
    weights: Option<Vec<f64>>,
}

impl<'a> Sample<'a> {
    /// Row-major `values` with `dim` columns: at least one row, all finite.
    pub fn new(values: &'a [f64], dim: usize) -> Result<Self> {
        Self::checked(Cow::Borrowed(values), dim)
    }

    fn checked(values: Cow<'a, [f64]>, dim: usize) -> Result<Self> {
        if dim == 0 || values.is_empty() || !values.len().is_multiple_of(dim) {
            return Err(Error::Shape {
                what: "values of a sample",
                expected: format!("one or more whole rows of {dim} columns (at least one column)"),
                got: format!("{} values", values.len()),
            });
        }
        if let Some(place) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::Domain(format!(
                "row {}, column {} of a sample is {}: every value must be finite",
                place / dim + 1,
                place % dim + 1,
                values[place]
            )));
        }
        Ok(Self { values, dim, weights: None })
    }

    /// Gives row i a weight proportional to `weights[i]` ≥ 0.
    pub fn with_weights(mut self, weights: &[f64]) -> Result<Self> {
        if weights.len() != self.rows() {
            return Err(Error::Shape {
                what: "weights of a sample",
                expected: format!("{}, one for each row", self.rows()),
                got: weights.len().to_string(),
            });
        }
        if let Some(row) = weights.iter().position(|&weight| !(weight >= 0.0 && weight.is_finite())) {
            return Err(Error::Domain(format!(
                "the weight of row {} is {}: weights must be finite and not negative",
                row + 1,
                weights[row]
            )));
        }
        let largest = weights.iter().fold(0.0_f64, |most, &weight| most.max(weight));
        if largest == 0.0 {
            return Err(Error::Domain(
                "all weights of a sample are zero: at least one must be positive".into(),
            ));
        }
        // Dividing by the largest first keeps weights near the ends of the number range finite.
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight / largest).collect();
        let sum: f64 = scaled.iter().sum();
        scaled.iter_mut().for_each(|weight| *weight /= sum);
        self.weights = Some(scaled);
        Ok(self)
    }

    /// How many rows there are; at least one.
    pub fn rows(&self) -> usize {
        self.values.len() / self.dim
    }

    /// How many columns there are; at least one.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// All values, row by row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Row `i`.
    pub fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.dim..][..self.dim]
    }

    /// Whether rows have weights of their own.
    pub fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// The weight of row `i`; all weights sum to one.
    pub fn weight(&self, i: usize) -> f64 {
        self.weights.as_ref().map_or(1.0 / self.rows() as f64, |weights| weights[i])
    }

    /// Kish's effective number of rows, 1/Σ wᵢ².
    pub fn effective_rows(&self) -> f64 {
        match &self.weights {
            None => self.rows() as f64,
            Some(weights) => 1.0 / weights.iter().map(|weight| weight * weight).sum::<f64>(),
        }
    }

    /// Weighted mean and standard deviation of each column. The latter is √(Σ w (x − x̄)² / (1 − Σ w²)), which for
    /// equal weights divides by N − 1.
    pub fn moments(&self) -> (Vec<f64>, Vec<f64>) {
        let (rows, dim) = (self.rows(), self.dim);
        // Relative to the first row, so that a constant column has exactly its value for a mean.
        let first = self.row(0);
        let mut mean = vec![0.0; dim];
        for i in 0..rows {
            let weight = self.weight(i);
            for ((mean, value), first) in mean.iter_mut().zip(self.row(i)).zip(first) {
                *mean += weight * (value - first);
            }
        }
        mean.iter_mut().zip(first).for_each(|(mean, first)| *mean += first);
        let mut variance = vec![0.0; dim];
        for i in 0..rows {
            let weight = self.weight(i);
            for ((variance, value), mean) in variance.iter_mut().zip(self.row(i)).zip(&mean) {
                *variance += weight * (value - mean) * (value - mean);
            }
        }
        let share = 1.0 - 1.0 / self.effective_rows();
        let deviation = |variance: f64| if share > 0.0 { (variance / share).sqrt() } else { 0.0 };
        (mean, variance.into_iter().map(deviation).collect())
    }

    /// The same rows as (value − shift) / scale, column by column.
    pub fn rescaled(&self, shift: &[f64], scale: &[f64]) -> Sample<'static> {
        let rows = self.values.chunks_exact(self.dim);
        let values = rows
            .flat_map(|row| {
                row.iter().zip(shift).zip(scale).map(|((value, shift), scale)| (value - shift) / scale)
            })
            .collect();
        Sample { values: Cow::Owned(values), dim: self.dim, weights: self.weights.clone() }
    }

    /// `count` rows of equal weight that stand for the weighted ones: row i comes ⌊count·wᵢ⌋ or ⌈count·wᵢ⌉ times, in
    /// order (systematic resampling). For pictures and programs that know no weights; rows given twice are no
    /// independent draws.
    pub fn resampled(&self, count: usize, seed: u64) -> Sample<'static> {
        let count = count.max(1);
        let start = stream(seed, 0).random::<f64>();
        let mut values = Vec::with_capacity(count * self.dim);
        let (mut row, mut reached) = (0, self.weight(0));
        for k in 0..count {
            let level = (k as f64 + start) / count as f64;
            while reached < level && row + 1 < self.rows() {
                row += 1;
                reached += self.weight(row);
            }
            values.extend_from_slice(self.row(row));
        }
        Sample { values: Cow::Owned(values), dim: self.dim, weights: None }
    }

    /// At most `count` rows chosen at random without replacement, in their order, weights renormalised. A sample
    /// that is small enough comes back as it is.
    pub fn thinned(&self, count: usize, seed: u64) -> Sample<'_> {
        if self.rows() <= count {
            return Sample {
                values: Cow::Borrowed(&self.values),
                dim: self.dim,
                weights: self.weights.clone(),
            };
        }
        let mut chosen = shuffled(self.rows(), &mut ChaCha8Rng::seed_from_u64(seed));
        chosen.truncate(count.max(1));
        chosen.sort_unstable();
        let values = chosen.iter().flat_map(|&i| self.row(i as usize)).copied().collect();
        let weights = self.weights.as_ref().map(|own| {
            let sum: f64 = chosen.iter().map(|&i| own[i as usize]).sum();
            // A choice that hit rows of no weight only says nothing; all equal is as good.
            let equal = 1.0 / chosen.len() as f64;
            chosen.iter().map(|&i| if sum > 0.0 { own[i as usize] / sum } else { equal }).collect()
        });
        Sample { values: Cow::Owned(values), dim: self.dim, weights }
    }
}

/// Two samples that are to be compared must have the same columns.
pub(super) fn check_same_columns(p: &Sample<'_>, q: &Sample<'_>) -> Result<()> {
    if p.dim == q.dim {
        return Ok(());
    }
    Err(Error::Shape {
        what: "columns of the second sample",
        expected: format!("{}, as many as the first has", p.dim),
        got: q.dim.to_string(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_weights() {
        let values = [1.0, 10.0, 2.0, 20.0, 4.0, 40.0];
        let plain = Sample::new(&values, 2).unwrap();
        let (mean, deviation) = plain.moments();
        assert!((mean[0] - 7.0 / 3.0).abs() < 1e-15 && (mean[1] - 70.0 / 3.0).abs() < 1e-14);
        assert!((deviation[0] - (7.0_f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!((plain.effective_rows() - 3.0).abs() < 1e-15);
        let weighted = plain.clone().with_weights(&[2e300, 1e300, 1e300]).unwrap();
        assert!((weighted.moments().0[0] - 2.0).abs() < 1e-15);
        assert!((weighted.effective_rows() - 1.0 / 0.375).abs() < 1e-14);
        let moved = weighted.rescaled(&[1.0, 10.0], &[2.0, 10.0]);
        assert_eq!(moved.row(2), [1.5, 3.0]);
        assert_eq!(Sample::new(&[5.0], 1).unwrap().moments(), (vec![5.0], vec![0.0]));
    }

    #[test]
    fn bad_samples_are_named() {
        let text = |result: Result<Sample<'_>>| result.unwrap_err().to_string();
        assert!(text(Sample::new(&[], 1)).contains("got 0 values"));
        assert!(text(Sample::new(&[1.0; 3], 2)).contains("whole rows of 2 columns"));
        assert!(
            text(Sample::new(&[1.0, 2.0, 3.0, f64::NAN], 2)).contains("row 2, column 2 of a sample is NaN")
        );
        let sample = Sample::new(&[1.0, 2.0], 1).unwrap();
        assert!(text(sample.clone().with_weights(&[1.0])).contains("expected 2"));
        assert!(text(sample.clone().with_weights(&[1.0, -1.0])).contains("the weight of row 2 is -1"));
        assert!(text(sample.with_weights(&[0.0, 0.0])).contains("all weights"));
    }

    #[test]
    fn thinning_keeps_order_and_renormalises() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let sample = Sample::new(&values, 1).unwrap().with_weights(&values).unwrap();
        let few = sample.thinned(10, 3);
        assert_eq!(few.rows(), 10);
        assert!(few.values().windows(2).all(|pair| pair[0] < pair[1]));
        assert!(((0..10).map(|i| few.weight(i)).sum::<f64>() - 1.0).abs() < 1e-14);
        assert!((few.weight(9) / few.weight(0) - few.values()[9] / few.values()[0]).abs() < 1e-9);
        assert_eq!(sample.thinned(100, 3).values(), sample.values());
        let values = [1.0, 2.0, 3.0];
        let sample = Sample::new(&values, 1).unwrap().with_weights(&[0.5, 0.0, 1.5]).unwrap();
        assert_eq!(sample.resampled(4, 7).values(), [1.0, 3.0, 3.0, 3.0]);
        assert_eq!(Sample::new(&values, 1).unwrap().resampled(3, 7).values(), values);
    }
}
