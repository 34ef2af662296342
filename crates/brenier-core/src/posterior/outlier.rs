//! How far an observation lies from the data a method has seen, as a percentile of held-out rows.
//!
//! A learned posterior answers for any y, also where it has seen nothing. Two scores are taken of a standardised
//! row v = (y − mean)/scale: Mahalanobis' distance √(vᵀΣ⁻¹v), which sees rows off the directions in which the data
//! vary, and the distance to the fifth nearest of up to 1000 stored rows, which sees gaps inside the cloud. Rows
//! that took no part in either tell how large such scores are by chance; the smaller of the two tail probabilities
//! is itself compared with theirs, so that the result is a plain percentile: 0.99 is farther out than 99 % of rows
//! from the training distribution. Beyond the top tenth of the held-out scores their tail is continued as a power
//! law (Hill's estimate), so that far rows get percentiles nearer to one than the number of held-out rows could show.
//!
//! More than 64 columns are first mixed down to 64 by random signs, which keeps distances up to some per cent.

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::kernel::spd::{self, SpdScratch};
use crate::parallel::results;
use crate::statistics::column_moments;
use crate::statistics::random::{shuffled, stream};
use crate::transform::Rows;
use crate::{Error, Result};

/// Rows stored to measure distances to, and rows held out to calibrate, at most.
const REFERENCE_ROWS: usize = 1000;
const HELD_OUT_ROWS: usize = 1000;
/// Rows that mean and covariance are taken from, at most.
const MOMENT_ROWS: usize = 20_000;
/// Columns after mixing, at most.
const MIXED: usize = 64;
/// Which neighbour's distance counts.
const NEIGHBOUR: usize = 5;
/// Fewer rows than this cannot be split into parts that say anything.
const FEWEST_ROWS: usize = 20;
/// Standardised values are kept within this, so that their squares are numbers.
const FARTHEST: f64 = 1e100;

/// Scores observations against the rows it was fitted to.
///
/// Everything but the stored rows is small and goes through serde; the rows are [`reference`](Self::reference),
/// for a model file's tensors, and come back by [`set_reference`](Self::set_reference).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OutlierScore {
    mean: Vec<f64>,
    scale: Vec<f64>,
    /// Seed of the random signs; unused for few columns.
    seed: u64,
    /// Cholesky factor of the mixed rows' covariance, by columns.
    factor: Vec<f64>,
    /// How many rows are stored.
    reference_rows: usize,
    distance_tail: Tail,
    neighbour_tail: Tail,
    both_tail: Tail,
    #[serde(skip)]
    reference: Vec<f32>,
    #[serde(skip)]
    signs: Vec<f64>,
}

/// The upper tail of a score: held-out values, and an exponential law beyond the largest tenth of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tail {
    /// Ascending.
    values: Vec<f64>,
    /// How many of the last values make up the tail.
    count: usize,
    /// Their mean excess over the value before them.
    excess: f64,
}

impl Tail {
    fn new(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let count = (values.len() / 10).max(5).min(values.len() - 1);
        let start = values[values.len() - count - 1];
        let excess = values[values.len() - count..].iter().map(|v| v - start).sum::<f64>() / count as f64;
        Self { values, count, excess: excess.max(1e-9) }
    }

    /// The probability of a value at least as large.
    fn probability(&self, value: f64) -> f64 {
        let all = self.values.len() as f64;
        let start = self.values[self.values.len() - self.count - 1];
        if value >= start {
            return self.count as f64 / all * (-(value - start) / self.excess).exp();
        }
        let above = self.values.len() - self.values.partition_point(|&own| own < value);
        (above as f64 + 0.5) / (all + 1.0)
    }

    fn is_sound(&self) -> bool {
        self.values.len() > self.count
            && self.count > 0
            && self.excess > 0.0
            && self.excess.is_finite()
            && self.values.iter().all(|value| value.is_finite())
            && self.values.is_sorted()
    }
}

impl OutlierScore {
    /// Fits the score to `rows` of `dim` columns; the same seed makes the same score.
    pub fn fit(rows: &impl Rows, dim: usize, seed: u64) -> Result<Self> {
        let count = rows.count();
        if dim == 0 || count < FEWEST_ROWS {
            return Err(Error::Shape {
                what: "rows for the out-of-distribution score",
                expected: format!("at least {FEWEST_ROWS} rows of at least one column"),
                got: format!("{count} rows of {dim} columns"),
            });
        }
        let order = shuffled(count, &mut stream(seed, 0));
        let (held, kept) = order.split_at((count / 3).min(HELD_OUT_ROWS));
        let moment_rows = &kept[..kept.len().min(MOMENT_ROWS)];
        let (mean, scale) = moments(rows, moment_rows, dim)?;
        let mut score = Self {
            mean,
            scale,
            seed,
            factor: Vec::new(),
            reference_rows: kept.len().min(REFERENCE_ROWS),
            distance_tail: Tail { values: Vec::new(), count: 0, excess: 1.0 },
            neighbour_tail: Tail { values: Vec::new(), count: 0, excess: 1.0 },
            both_tail: Tail { values: Vec::new(), count: 0, excess: 1.0 },
            reference: Vec::new(),
            signs: random_signs(dim, seed),
        };
        score.fit_covariance(rows, moment_rows);
        let mut row = vec![0.0; dim];
        for &index in &kept[..score.reference_rows] {
            rows.read(index as usize, &mut row);
            score.reference.extend(score.mixed(&row).iter().map(|&v| v as f32));
        }
        let mut held_rows = vec![0.0; held.len() * dim];
        for (row, &index) in held_rows.chunks_exact_mut(dim).zip(held) {
            rows.read(index as usize, row);
        }
        let scores: Vec<[f64; 2]> = results(held_rows.chunks(dim), |_, row| score.scores(&score.mixed(row)));
        score.distance_tail = Tail::new(scores.iter().map(|both| both[0]).collect());
        score.neighbour_tail = Tail::new(scores.iter().map(|both| both[1]).collect());
        score.both_tail = Tail::new(scores.iter().map(|&both| score.smaller(both)).collect());
        Ok(score)
    }

    /// Σ of the mixed rows, shrunk towards its diagonal by k/(k + rows), which keeps it positive definite.
    fn fit_covariance(&mut self, rows: &impl Rows, chosen: &[u32]) {
        let width = self.width();
        let mut covariance = vec![0.0; width * width];
        let mut row = vec![0.0; self.mean.len()];
        for &index in chosen {
            rows.read(index as usize, &mut row);
            let mixed = self.mixed(&row);
            for (line, own) in covariance.chunks_exact_mut(width).zip(&mixed) {
                line.iter_mut().zip(&mixed).for_each(|(sum, other)| *sum += own * other);
            }
        }
        let count = chosen.len() as f64;
        let shrink = width as f64 / (width as f64 + count);
        for i in 0..width {
            for j in 0..width {
                let value = &mut covariance[i * width + j];
                *value /= count;
                *value = if i == j { value.max(1e-12) * (1.0 + 1e-9) } else { (1.0 - shrink) * *value };
            }
        }
        if spd::cholesky(&mut covariance, &mut SpdScratch::new(width)).is_none() {
            // Rounding alone can do this; the diagonal is always positive.
            let diagonal: Vec<f64> = (0..width).map(|i| covariance[i * width + i].abs().max(1e-12)).collect();
            covariance.fill(0.0);
            (0..width).for_each(|i| covariance[i * width + i] = diagonal[i].sqrt());
        }
        self.factor = covariance;
    }

    /// How many columns a row has.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    fn width(&self) -> usize {
        self.mean.len().min(MIXED)
    }

    /// The stored rows, row-major, [`reference_shape`](Self::reference_shape) of them.
    pub fn reference(&self) -> &[f32] {
        &self.reference
    }

    /// Rows and columns of [`reference`](Self::reference).
    pub fn reference_shape(&self) -> [usize; 2] {
        [self.reference_rows, self.width()]
    }

    /// Gives a deserialised score its stored rows back, and checks the whole of it.
    pub fn set_reference(&mut self, reference: Vec<f32>) -> Result<()> {
        self.reference = reference;
        self.validate()?;
        self.signs = random_signs(self.dim(), self.seed);
        Ok(())
    }

    /// Whether all parts fit together, as those of a fitted score do.
    pub fn validate(&self) -> Result<()> {
        let width = self.width();
        let wrong =
            |what: &str| Err(Error::Domain(format!("the out-of-distribution score is damaged: {what}")));
        if self.mean.is_empty() || self.scale.len() != self.mean.len() {
            return wrong("means and scales do not match");
        }
        let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
        if !finite(&self.mean) || !self.scale.iter().all(|&s| s > 0.0 && s.is_finite()) {
            return wrong("a mean or scale is out of range");
        }
        if self.factor.len() != width * width || !finite(&self.factor) {
            return wrong("the covariance has the wrong size");
        }
        if (0..width).any(|i| !(self.factor[i * width + i] > 0.0)) {
            return wrong("the covariance is not positive definite");
        }
        if self.reference_rows == 0
            || self.reference.len() != self.reference_rows * width
            || !self.reference.iter().all(|value| value.is_finite())
        {
            return wrong("the stored rows do not match");
        }
        if ![&self.distance_tail, &self.neighbour_tail, &self.both_tail].iter().all(|tail| tail.is_sound()) {
            return wrong("a table of held-out scores is unsound");
        }
        Ok(())
    }

    /// The part of rows from the training distribution that are less extreme than `row`: uniform on [0, 1] for
    /// such rows, close to one far away.
    pub fn percentile(&self, row: &[f64]) -> Result<f64> {
        if row.len() != self.dim() {
            return Err(Error::Shape {
                what: "observation to score",
                expected: format!("{} values", self.dim()),
                got: row.len().to_string(),
            });
        }
        if let Some(place) = row.iter().position(|value| !value.is_finite()) {
            return Err(Error::Domain(format!("value {} of an observation is {}", place + 1, row[place])));
        }
        Ok(1.0 - self.both_tail.probability(self.smaller(self.scores(&self.mixed(row)))))
    }

    /// The column in which `row` is farthest from the mean of the rows fitted to, and by how many of their standard
    /// deviations. Panics when `row` has fewer than [`dim`](Self::dim) values.
    pub fn farthest_column(&self, row: &[f64]) -> (usize, f64) {
        let deviations = (0..self.dim()).map(|j| (j, (row[j] - self.mean[j]) / self.scale[j]));
        deviations.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).expect("at least one column")
    }

    /// Standardised, and mixed down if there are many columns.
    fn mixed(&self, row: &[f64]) -> Vec<f64> {
        let standard = row.iter().zip(&self.mean).zip(&self.scale);
        let standard = standard.map(|((x, mean), scale)| ((x - mean) / scale).clamp(-FARTHEST, FARTHEST));
        if self.signs.is_empty() {
            return standard.collect();
        }
        let mut mixed = vec![0.0; MIXED];
        let shrink = 1.0 / (MIXED as f64).sqrt();
        for (value, signs) in standard.zip(self.signs.chunks_exact(MIXED)) {
            mixed.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += shrink * sign * value);
        }
        mixed
    }

    /// Logarithms of Mahalanobis' distance and of the distance to the fifth nearest stored row.
    fn scores(&self, mixed: &[f64]) -> [f64; 2] {
        let mut solved = mixed.to_vec();
        spd::solve(&self.factor, &mut solved);
        let square: f64 = mixed.iter().zip(&solved).map(|(a, b)| a * b).sum();
        let mut nearest = [f64::INFINITY; NEIGHBOUR];
        for reference in self.reference.chunks_exact(mixed.len()) {
            let parts = mixed.iter().zip(reference).map(|(a, b)| (a - f64::from(*b)).powi(2));
            let mut square: f64 = parts.sum();
            // Into its place among the nearest so far.
            for slot in &mut nearest {
                if square < *slot {
                    std::mem::swap(slot, &mut square);
                }
            }
        }
        // Distances of zero, as between rows given twice, are small but have a logarithm.
        [square, nearest[NEIGHBOUR - 1]].map(|square| 0.5 * square.clamp(1e-24, 1e300).ln())
    }

    /// −log of the smaller tail probability of the two scores.
    fn smaller(&self, scores: [f64; 2]) -> f64 {
        let distance = self.distance_tail.probability(scores[0]);
        -distance.min(self.neighbour_tail.probability(scores[1])).max(1e-300).ln()
    }
}

/// Signs ±1, [`MIXED`] for each of `dim` columns, from the bits of the generator; none where nothing is mixed.
fn random_signs(dim: usize, seed: u64) -> Vec<f64> {
    if dim <= MIXED {
        return Vec::new();
    }
    let mut rng = stream(seed, 1);
    let words = (0..dim).map(|_| rng.next_u64());
    words.flat_map(|bits| (0..MIXED).map(move |k| if bits >> k & 1 == 1 { 1.0 } else { -1.0 })).collect()
}

/// Mean and standard deviation of each column over some rows. A constant column gets a scale so small that any
/// other value there is far out.
fn moments(rows: &impl Rows, chosen: &[u32], dim: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut row = vec![0.0; dim];
    for &index in chosen {
        rows.read(index as usize, &mut row);
        if let Some(place) = row.iter().position(|value| !value.is_finite()) {
            let name = rows.describe(index as usize);
            return Err(Error::Domain(format!("{name}, given column {} is {}", place + 1, row[place])));
        }
    }
    let (mean, variance) =
        column_moments(chosen.len(), dim, |place, row| rows.read(chosen[place] as usize, row));
    let scale = variance.iter().zip(&mean).map(|(&variance, mean)| {
        let least = 1e-9 * mean.abs().max(f64::MIN_POSITIVE * 1e12);
        let scale = variance.sqrt().max(least);
        if scale.is_finite() { scale } else { f64::MAX }
    });
    let scale = scale.collect();
    Ok((mean, scale))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::transform::RowMajor;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    /// Correlated rows with one skewed column.
    fn cloud(rows: usize, dim: usize, seed: u64) -> Vec<f64> {
        let mut rng = stream(seed, 21);
        (0..rows)
            .flat_map(|_| {
                let common: f64 = rng.sample(StandardNormal);
                (0..dim)
                    .map(|j| {
                        let own: f64 = rng.sample(StandardNormal);
                        if j == 1 { (0.5 * own).exp() } else { 3.0 + common + 0.3 * own }
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    fn percentiles(score: &OutlierScore, rows: &[f64]) -> Vec<f64> {
        rows.chunks_exact(score.dim()).map(|row| score.percentile(row).unwrap()).collect()
    }

    #[test]
    fn rows_of_the_same_kind_have_uniform_percentiles() {
        for (rows, dim, slack) in [(5000, 3, 1.0), (5000, 1, 1.0), (3000, 100, 1.0), (300, 3, 2.5)] {
            let score =
                OutlierScore::fit(&RowMajor::new(&cloud(rows, dim, 1), dim).unwrap(), dim, 0).unwrap();
            let found = percentiles(&score, &cloud(2000, dim, 2));
            for level in [0.1, 0.5, 0.9, 0.95, 0.99] {
                let part = found.iter().filter(|&&p| p <= level).count() as f64 / 2000.0;
                // Noise of 1000 held-out rows and of these 2000, four standard deviations.
                let noise = slack * 4.0 * (level * (1.0_f64 - level) * (1.0 / 1000.0 + 1.0 / 2000.0)).sqrt();
                assert!((part - level).abs() < noise, "{rows} × {dim}: {part} at {level}");
            }
        }
    }

    #[test]
    fn far_rows_stand_out_in_every_direction() {
        let score = OutlierScore::fit(&RowMajor::new(&cloud(3000, 3, 1), 3).unwrap(), 3, 0).unwrap();
        // Far along one column; off the common direction though each column is ordinary; off the skewed one's side.
        for row in [[30.0, 1.0, 3.0], [5.0, 1.0, 1.0], [3.0, -5.0, 3.0], [1e300, 1.0, 3.0], [3.0, 40.0, 3.0]]
        {
            let found = score.percentile(&row).unwrap();
            assert!(found > 0.999, "{row:?}: {found}");
        }
        assert!(score.percentile(&[3.0, 1.0, 3.0]).unwrap() < 0.7);
        let (column, deviations) = score.farthest_column(&[3.0, 1.0, -20.0]);
        assert!(column == 2 && deviations < -10.0);
        // A hole in the middle of a ring is seen by the neighbours alone.
        let mut rng = stream(3, 3);
        let ring: Vec<f64> = (0..2000)
            .flat_map(|_| {
                let (angle, radius) =
                    (std::f64::consts::TAU * rng.random::<f64>(), 5.0 + 0.3 * rng.random::<f64>());
                [radius * angle.cos(), radius * angle.sin()]
            })
            .collect();
        let score = OutlierScore::fit(&RowMajor::new(&ring, 2).unwrap(), 2, 0).unwrap();
        assert!(score.percentile(&[0.0, 0.0]).unwrap() > 0.999);
        // A constant column that changes.
        let flat: Vec<f64> = cloud(200, 1, 5).iter().flat_map(|&x| [x, 7.0]).collect();
        let score = OutlierScore::fit(&RowMajor::new(&flat, 2).unwrap(), 2, 0).unwrap();
        assert!(score.percentile(&[3.0, 7.0]).unwrap() < 0.99);
        assert!(score.percentile(&[3.0, 7.1]).unwrap() > 0.999);
    }

    #[test]
    fn many_columns_are_mixed_and_still_watched() {
        let dim = 100;
        let score = OutlierScore::fit(&RowMajor::new(&cloud(2000, dim, 1), dim).unwrap(), dim, 0).unwrap();
        assert_eq!(score.reference_shape(), [1000, 64]);
        let mut row = cloud(1, dim, 9);
        assert!(score.percentile(&row).unwrap() < 0.999);
        (0..dim).step_by(2).for_each(|j| row[j] += 2.0);
        assert!(score.percentile(&row).unwrap() > 0.999);
    }

    #[test]
    fn it_survives_a_file_and_refuses_damage() {
        let values = cloud(400, 70, 1);
        let score = OutlierScore::fit(&RowMajor::new(&values, 70).unwrap(), 70, 3).unwrap();
        let text = serde_json::to_string(&score).unwrap();
        let mut back: OutlierScore = serde_json::from_str(&text).unwrap();
        assert!(back.validate().is_err());
        back.set_reference(score.reference().to_vec()).unwrap();
        assert_eq!(back, score);
        let row = &values[..70];
        assert_eq!(back.percentile(row).unwrap(), score.percentile(row).unwrap());
        assert!(back.set_reference(vec![0.0; 3]).is_err());
        let damaged = text.replacen("\"scale\":[", "\"scale\":[-1.0,", 1);
        let mut damaged: OutlierScore = serde_json::from_str(&damaged).unwrap();
        assert!(damaged.set_reference(score.reference().to_vec()).is_err());
        assert!(score.percentile(&[0.0; 3]).is_err());
        assert!(score.percentile(&[f64::NAN; 70]).is_err());
        let few = OutlierScore::fit(&RowMajor::new(&values[..70], 70).unwrap(), 70, 3);
        assert!(few.unwrap_err().to_string().contains("at least 20 rows"));
    }
}
