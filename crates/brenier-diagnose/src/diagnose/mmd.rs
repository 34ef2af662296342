//! Maximum mean discrepancy with a Gaussian kernel: exact, blocked, weighted, and a test by permutations.
//!
//! With k(a, b) = exp(−‖a − b‖² / (2h²)) and weights that sum to one in each sample,
//!
//! MMD²(P, Q) = Σᵢⱼ wᵢ wⱼ k(pᵢ, pⱼ) + Σᵢⱼ vᵢ vⱼ k(qᵢ, qⱼ) − 2 Σᵢⱼ wᵢ vⱼ k(pᵢ, qⱼ),
//!
//! the V-statistic: pairs i = j count, so it is never negative and, for two samples of one distribution, about
//! (1/N + 1/M)(1 − E k) rather than 0. Papers print MMD² or its root; [`Mmd`] holds both by name.

use std::str::FromStr;

use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Sample;
use super::sample::check_same_columns;
use crate::kernel::{Real, columns, columns_mut, fold, product, vectorised};
use crate::statistics::random::{shuffled, stream};
use crate::{Error, Result, StopToken};

/// Rows of one tile: small enough for a tile of a few columns to stay in the first cache.
const TILE: usize = 256;
/// Independent partial sums.
const LANES: usize = 16;
/// Rows of each sample that the median of distances is taken over, at most.
const MEDIAN_ROWS: usize = 1000;

/// The width h of the kernel exp(−‖a − b‖² / (2h²)).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Text", into = "Text")]
#[non_exhaustive]
pub enum Bandwidth {
    /// This h > 0.
    Fixed(f64),
    /// The median of the distances between all pairs of pooled rows, at most 1000 of each sample.
    Median,
}

impl Default for Bandwidth {
    /// h = 1.
    fn default() -> Self {
        Self::Fixed(1.0)
    }
}

/// A bandwidth as settings files write it: a number or "median".
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Number(f64),
    Word(String),
}

impl TryFrom<Text> for Bandwidth {
    type Error = Error;

    fn try_from(text: Text) -> Result<Self> {
        match text {
            Text::Number(width) if width > 0.0 && width.is_finite() => Ok(Self::Fixed(width)),
            Text::Number(width) => Err(wrong_width(&width.to_string())),
            Text::Word(word) => word.parse(),
        }
    }
}

impl From<Bandwidth> for Text {
    fn from(bandwidth: Bandwidth) -> Self {
        match bandwidth {
            Bandwidth::Fixed(width) => Self::Number(width),
            Bandwidth::Median => Self::Word("median".into()),
        }
    }
}

impl FromStr for Bandwidth {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "median" {
            return Ok(Self::Median);
        }
        match text.parse::<f64>() {
            Ok(width) if width > 0.0 && width.is_finite() => Ok(Self::Fixed(width)),
            _ => Err(wrong_width(text)),
        }
    }
}

fn wrong_width(text: &str) -> Error {
    Error::setting("bandwidth", format!("must be a number above 0 or \"median\", not {text:?}"))
}

/// A distance between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mmd {
    /// MMD², the V-statistic.
    pub squared: f64,
    /// √MMD².
    pub root: f64,
    /// The kernel's h.
    pub bandwidth: f64,
}

/// MMD² and its root between all rows of two samples.
///
/// Pairs are walked tile by tile, so that memory is that of the samples whatever their size; distances are sums
/// of squared differences, with no cancellation.
///
/// ```
/// use brenier_diagnose::diagnose::{Bandwidth, Sample, mmd};
///
/// let (p, q) = ([0.0, 1.0], [0.5]);
/// let distance = mmd(&Sample::new(&p, 1)?, &Sample::new(&q, 1)?, Bandwidth::Fixed(1.0))?;
/// let k = |d: f64| (-0.5 * d * d).exp();
/// assert!((distance.squared - ((1.0 + k(1.0)) / 2.0 + 1.0 - 2.0 * k(0.5))).abs() < 1e-15);
/// # Ok::<(), brenier_core::Error>(())
/// ```
pub fn mmd(p: &Sample<'_>, q: &Sample<'_>, bandwidth: Bandwidth) -> Result<Mmd> {
    mmd_until(p, q, bandwidth, &StopToken::new())
}

/// The same, which `stop` ends in [`Error::Stopped`].
pub fn mmd_until(p: &Sample<'_>, q: &Sample<'_>, bandwidth: Bandwidth, stop: &StopToken) -> Result<Mmd> {
    check_same_columns(p, q)?;
    let width = width(p, q, bandwidth)?;
    let (left, right) = (Tiles::new(p, width), Tiles::new(q, width));
    let squared = left.own_sum(stop)? + right.own_sum(stop)? - 2.0 * left.sum_with(&right, stop)?;
    Ok(Mmd { squared, root: squared.max(0.0).sqrt(), bandwidth: width })
}

/// h itself, the median computed where it is asked for.
fn width(p: &Sample<'_>, q: &Sample<'_>, bandwidth: Bandwidth) -> Result<f64> {
    match bandwidth {
        Bandwidth::Fixed(width) if width > 0.0 && width.is_finite() => Ok(width),
        Bandwidth::Fixed(width) => Err(wrong_width(&width.to_string())),
        Bandwidth::Median => {
            let (p, q) = (p.thinned(MEDIAN_ROWS, 0), q.thinned(MEDIAN_ROWS, 1));
            let rows: Vec<&[f64]> =
                p.values().chunks_exact(p.dim()).chain(q.values().chunks_exact(q.dim())).collect();
            let mut squares: Vec<f64> = (1..rows.len())
                .into_par_iter()
                .flat_map_iter(|i| {
                    rows[..i].iter().map(|other| squared_distance(rows[i], other)).collect::<Vec<_>>()
                })
                .collect();
            let middle = squares.len() / 2;
            let (_, median, _) = squares.select_nth_unstable_by(middle, f64::total_cmp);
            let width = median.sqrt();
            if width > 0.0 && width.is_finite() {
                return Ok(width);
            }
            Err(Error::Domain(format!(
                "the median distance between rows is {width}, which is no bandwidth: give a number instead"
            )))
        }
    }
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// A sample divided by h, cut into tiles of [`TILE`] rows that stand column by column.
struct Tiles<'a> {
    sample: &'a Sample<'a>,
    scale: f64,
    /// Tile t holds its column c at (t·dim + c)·TILE; the last tile is filled up with its own first row.
    columns: Vec<f64>,
    /// Zero for rows that only fill up.
    weights: Vec<f64>,
}

impl<'a> Tiles<'a> {
    fn new(sample: &'a Sample<'a>, width: f64) -> Self {
        let (rows, dim, scale) = (sample.rows(), sample.dim(), 1.0 / width);
        let tiles = rows.div_ceil(TILE);
        let mut columns = vec![0.0; tiles * TILE * dim];
        let mut weights = vec![0.0; tiles * TILE];
        for place in 0..tiles * TILE {
            let (tile, within) = (place / TILE, place % TILE);
            let row = if place < rows { place } else { tile * TILE };
            if place < rows {
                weights[place] = sample.weight(row);
            }
            for (c, value) in sample.row(row).iter().enumerate() {
                columns[(tile * dim + c) * TILE + within] = value * scale;
            }
        }
        Self { sample, scale, columns, weights }
    }

    fn count(&self) -> usize {
        self.weights.len() / TILE
    }

    /// Σᵢⱼ wᵢ wⱼ k(pᵢ, pⱼ): tiles above the diagonal count twice.
    fn own_sum(&self, stop: &StopToken) -> Result<f64> {
        let sums: Vec<f64> = (0..self.count())
            .into_par_iter()
            .map(|tile| {
                stop.go_on()?;
                let beyond: f64 =
                    (tile + 1..self.count()).map(|other| self.tile_sum(tile, self, other)).sum();
                Ok(self.tile_sum(tile, self, tile) + 2.0 * beyond)
            })
            .collect::<Result<_>>()?;
        Ok(sums.iter().sum())
    }

    /// Σᵢⱼ wᵢ vⱼ k(pᵢ, qⱼ).
    fn sum_with(&self, other: &Tiles<'_>, stop: &StopToken) -> Result<f64> {
        let sums: Vec<f64> = (0..self.count())
            .into_par_iter()
            .map(|tile| {
                stop.go_on()?;
                Ok((0..other.count()).map(|with| self.tile_sum(tile, other, with)).sum())
            })
            .collect::<Result<_>>()?;
        Ok(sums.iter().sum())
    }

    /// Σ over rows i of our tile and j of the other's, in a fixed order.
    fn tile_sum(&self, tile: usize, other: &Tiles<'_>, with: usize) -> f64 {
        let dim = self.sample.dim();
        let columns = &other.columns[with * dim * TILE..][..dim * TILE];
        let weights: &[f64; TILE] = other.weights[with * TILE..][..TILE].try_into().expect("a tile");
        let rows = tile * TILE..((tile + 1) * TILE).min(self.sample.rows());
        vectorised(
            #[inline(always)]
            || {
                let mut sum = 0.0;
                let mut squares = [0.0; TILE];
                for i in rows {
                    squares.fill(0.0);
                    for (column, value) in columns.chunks_exact(TILE).zip(self.sample.row(i)) {
                        let value = value * self.scale;
                        for (square, other) in squares.iter_mut().zip(column) {
                            let difference = other - value;
                            *square = difference.fma(difference, *square);
                        }
                    }
                    let mut lanes = [0.0; LANES];
                    for (squares, weights) in squares.chunks_exact(LANES).zip(weights.chunks_exact(LANES)) {
                        for lane in 0..LANES {
                            lanes[lane] = (-0.5 * squares[lane]).exp_vec().fma(weights[lane], lanes[lane]);
                        }
                    }
                    sum += self.weights[i] * fold(lanes);
                }
                sum
            },
        )
    }
}

/// How [`mmd_test`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MmdTestSettings {
    /// The kernel's h.
    pub bandwidth: Bandwidth,
    /// Permutations; the smallest p-value is 1/(permutations + 1).
    pub permutations: usize,
    /// Rows of each sample that take part, at most: a random choice, for the test holds the matrix of kernels.
    pub max_rows: usize,
    /// Seed of choice and permutations.
    pub seed: u64,
}

impl Default for MmdTestSettings {
    fn default() -> Self {
        Self { bandwidth: Bandwidth::default(), permutations: 999, max_rows: 2000, seed: 0 }
    }
}

/// The outcome of [`mmd_test`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MmdTest {
    /// The distance between the rows that took part.
    pub mmd: Mmd,
    /// The probability, if both samples come from one distribution, of a distance at least as large.
    pub p_value: f64,
    /// Rows of each sample that took part.
    pub rows: [usize; 2],
}

/// Tests whether two samples come from one distribution, by MMD².
///
/// At most [`max_rows`](MmdTestSettings::max_rows) rows of each sample, chosen at random, are pooled in a matrix
/// K of kernels; with c = (w, −v) MMD² = cᵀKc. Without weights the labels of the pooled rows are permuted, and
/// p = (1 + #{permutations with MMD² at least as large}) / (permutations + 1), exact at every sample size.
///
/// Weighted rows are not exchangeable. There the null distribution is that of Σᵢⱼ cᵢcⱼξᵢξⱼK̃ᵢⱼ with ξ ~ N(0, I)
/// and K̃ the kernel centred at the pooled mean, the multiplier bootstrap: right for many effective rows.
pub fn mmd_test(p: &Sample<'_>, q: &Sample<'_>, settings: &MmdTestSettings) -> Result<MmdTest> {
    mmd_test_until(p, q, settings, &StopToken::new())
}

/// The same, which `stop` ends in [`Error::Stopped`].
pub fn mmd_test_until(
    p: &Sample<'_>,
    q: &Sample<'_>,
    settings: &MmdTestSettings,
    stop: &StopToken,
) -> Result<MmdTest> {
    check_same_columns(p, q)?;
    if settings.permutations == 0 {
        return Err(Error::setting("permutations", "must be at least 1, not 0"));
    }
    if !(2..=20_000).contains(&settings.max_rows) {
        let problem = format!("must be between 2 and 20000, not {}", settings.max_rows);
        return Err(Error::setting("max_rows", problem));
    }
    let width = width(p, q, settings.bandwidth)?;
    let (p, q) =
        (p.thinned(settings.max_rows, settings.seed), q.thinned(settings.max_rows, settings.seed ^ 1));
    let (first, all) = (p.rows(), p.rows() + q.rows());
    let mut kernel = kernel_matrix(&p, &q, width);
    let signed: Vec<f64> =
        (0..first).map(|i| p.weight(i)).chain((0..q.rows()).map(|i| -q.weight(i))).collect();
    stop.go_on()?;
    let squared = quadratic_forms(&kernel, &signed, all, stop)?[0];
    let weighted = p.is_weighted() || q.is_weighted();
    if weighted {
        centre(&mut kernel, &pooled_weights(&p, &q));
    }
    // Columns of coefficients, a stream of random numbers for each.
    let mut coefficients = vec![0.0; all * settings.permutations];
    coefficients.par_chunks_mut(all).enumerate().for_each(|(permutation, column)| {
        let mut rng = stream(settings.seed, permutation as u64 + 1);
        if weighted {
            for (value, signed) in column.iter_mut().zip(&signed) {
                let factor: f64 = rng.sample(StandardNormal);
                *value = factor * signed;
            }
        } else {
            for (place, from) in shuffled(all, &mut rng).into_iter().enumerate() {
                column[place] = signed[from as usize];
            }
        }
    });
    let null = quadratic_forms(&kernel, &coefficients, all, stop)?;
    // Equal up to rounding counts as equal: samples with ties give the same sum in another order.
    let threshold = squared - 1e-12;
    let beyond = null.iter().filter(|&&value| value >= threshold).count();
    let mmd = Mmd { squared, root: squared.max(0.0).sqrt(), bandwidth: width };
    let p_value = (1 + beyond) as f64 / (1 + settings.permutations) as f64;
    Ok(MmdTest { mmd, p_value, rows: [first, q.rows()] })
}

/// k of all pairs of pooled rows.
fn kernel_matrix(p: &Sample<'_>, q: &Sample<'_>, width: f64) -> Vec<f64> {
    let rows: Vec<&[f64]> =
        p.values().chunks_exact(p.dim()).chain(q.values().chunks_exact(q.dim())).collect();
    let mut kernel = vec![0.0; rows.len() * rows.len()];
    let factor = -0.5 / (width * width);
    kernel.par_chunks_mut(rows.len()).enumerate().for_each(|(i, line)| {
        for (value, other) in line.iter_mut().zip(&rows) {
            *value = (factor * squared_distance(rows[i], other)).exp();
        }
    });
    kernel
}

/// Weights of the pooled rows, each sample in proportion to its effective size.
fn pooled_weights(p: &Sample<'_>, q: &Sample<'_>) -> Vec<f64> {
    let (own, other) = (p.effective_rows(), q.effective_rows());
    let share = own / (own + other);
    let first = (0..p.rows()).map(|i| share * p.weight(i));
    first.chain((0..q.rows()).map(|i| (1.0 - share) * q.weight(i))).collect()
}

/// K̃ᵢⱼ = Kᵢⱼ − mᵢ − mⱼ + mᵀu with m = Ku: the kernel of φ − Σ uᵢ φ(xᵢ).
fn centre(kernel: &mut [f64], weights: &[f64]) {
    let size = weights.len();
    let inner = |line: &[f64]| line.iter().zip(weights).map(|(a, b)| a * b).sum::<f64>();
    let means: Vec<f64> = kernel.par_chunks(size).map(inner).collect();
    let middle = inner(&means);
    kernel.par_chunks_mut(size).enumerate().for_each(|(i, line)| {
        line.iter_mut().zip(&means).for_each(|(value, mean)| *value += middle - means[i] - mean);
    });
}

/// cᵀKc for every column c, some columns at a time.
fn quadratic_forms(kernel: &[f64], columns_of: &[f64], size: usize, stop: &StopToken) -> Result<Vec<f64>> {
    const COLUMNS: usize = 32;
    let forms: Vec<Vec<f64>> = columns_of
        .par_chunks(size * COLUMNS)
        .map(|block| {
            stop.go_on()?;
            let count = block.len() / size;
            let mut image = vec![0.0; block.len()];
            product(
                columns_mut(&mut image, size, count, size),
                crate::kernel::Accum::Replace,
                columns(kernel, size, size, size),
                columns(block, size, count, size),
            );
            let forms = block.chunks_exact(size).zip(image.chunks_exact(size));
            Ok(forms.map(|(c, image)| c.iter().zip(image).map(|(a, b)| a * b).sum()).collect())
        })
        .collect::<Result<_>>()?;
    Ok(forms.concat())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::statistics::random::stream;

    fn normal(rows: usize, dim: usize, shift: f64, seed: u64) -> Vec<f64> {
        let mut rng = stream(seed, 7);
        (0..rows * dim).map(|_| shift + rng.sample::<f64, _>(StandardNormal)).collect()
    }

    /// The definition, pair by pair.
    fn plain(p: &Sample<'_>, q: &Sample<'_>, width: f64) -> f64 {
        let sum = |a: &Sample<'_>, b: &Sample<'_>| {
            let mut sum = 0.0;
            for i in 0..a.rows() {
                for j in 0..b.rows() {
                    let square = squared_distance(a.row(i), b.row(j));
                    sum += a.weight(i) * b.weight(j) * (-0.5 * square / (width * width)).exp();
                }
            }
            sum
        };
        sum(p, p) + sum(q, q) - 2.0 * sum(p, q)
    }

    #[test]
    fn tiles_give_the_sum_over_all_pairs() {
        for (rows, others, dim) in [(1, 1, 1), (255, 3, 2), (256, 257, 3), (700, 513, 1)] {
            let (a, b) = (normal(rows, dim, 0.0, 1), normal(others, dim, 0.7, 2));
            let weights: Vec<f64> = (0..others).map(|i| (i as f64).sin().abs() + 0.01).collect();
            let p = Sample::new(&a, dim).unwrap();
            let q = Sample::new(&b, dim).unwrap().with_weights(&weights).unwrap();
            for width in [0.3, 1.0, 5.0] {
                let fast = mmd(&p, &q, Bandwidth::Fixed(width)).unwrap();
                assert!((fast.squared - plain(&p, &q, width)).abs() < 1e-13, "{rows} {others} {dim} {width}");
                assert!((fast.root * fast.root - fast.squared).abs() < 1e-15);
            }
        }
    }

    #[test]
    fn a_weight_of_two_is_a_row_given_twice() {
        let (a, b) = ([0.1, 0.5, 2.0], [0.0, 1.0]);
        let twice = [0.1, 0.5, 0.5, 2.0];
        let weighted = Sample::new(&a, 1).unwrap().with_weights(&[1.0, 2.0, 1.0]).unwrap();
        let (twice, b) = (Sample::new(&twice, 1).unwrap(), Sample::new(&b, 1).unwrap());
        let one = mmd(&weighted, &b, Bandwidth::default()).unwrap();
        let two = mmd(&twice, &b, Bandwidth::default()).unwrap();
        assert!((one.squared - two.squared).abs() < 1e-15);
    }

    #[test]
    fn bandwidths_are_read_and_checked() {
        assert_eq!("median".parse::<Bandwidth>().unwrap(), Bandwidth::Median);
        assert_eq!("0.5".parse::<Bandwidth>().unwrap(), Bandwidth::Fixed(0.5));
        for text in ["0", "-1", "inf", "wide"] {
            assert!(text.parse::<Bandwidth>().unwrap_err().to_string().contains(text));
        }
        let settings: MmdTestSettings = toml::from_str("bandwidth = \"median\"\nseed = 3").unwrap();
        assert_eq!((settings.bandwidth, settings.seed), (Bandwidth::Median, 3));
        assert!(toml::from_str::<MmdTestSettings>("bandwidth = -1.0").is_err());
        // The median of |i − j| over 0, 1, …, 4: distances 1×4, 2×3, 3×2, 4×1.
        let (a, b) = ([0.0, 1.0, 2.0], [3.0, 4.0]);
        let (p, q) = (Sample::new(&a, 1).unwrap(), Sample::new(&b, 1).unwrap());
        assert_eq!(mmd(&p, &q, Bandwidth::Median).unwrap().bandwidth, 2.0);
        let same = Sample::new(&[1.0, 1.0], 1).unwrap();
        assert!(mmd(&same, &same, Bandwidth::Median).unwrap_err().to_string().contains("median distance"));
    }
}
