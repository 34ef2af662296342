//! A supervised reduction of many given columns: the directions of y that x has most to say about.
//!
//! Thousands of noisy columns drown a map: it overfits the noise of the training rows. What matters are the linear
//! functions of y that are functions of x, whatever their shape, plus little noise. They are the canonical directions between y and
//! features φ(x) of the target: polynomials of its columns, by degree up to 3 as far as there are rows for them, then waves cos(w·x + b)
//! of random directions and lengths. With covariances C about the means,
//!
//! ```text
//! K = L_t⁻¹ C_tφ L_φ⁻ᵀ,   L_t L_tᵀ = C_tt + η I,   L_φ L_φᵀ = C_φφ + ε I,   K = Σₖ pₖ ρₖ uₖᵀ
//! aₖ = L_t⁻ᵀ pₖ,   bₖ = L_φ⁻ᵀ uₖ
//! ```
//!
//! aₖᵀt and bₖᵀφ have the correlation ρₖ over the rows. The ridge η, which keeps small samples from finding correlations in noise, is the
//! one with the largest Σ ρ̂ₖ², where ρ̂ₖ is the correlation over rows that were left out (every tenth). Directions that show none there
//! are dropped, and the others are scaled to the standard deviation ρ̂ₖ: what x says little about is small.
//!
//! Both covariances are sums of [`SecondMoments`], so that nothing of the table's size is kept.

use crate::parallel::each;
use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use super::moments::SecondMoments;
use super::{check_matrix, exact};
use crate::kernel::eigen::{lower_inverse, sign_of, symmetric_eigen};
use crate::kernel::spd::{self, SpdScratch};
use crate::kernel::{Accum, Mat, MatRef, columns, columns_mut, product};
use crate::{Error, Result};

/// Ridges η, as parts of the mean variance of a column.
const RIDGES: [f64; 5] = [1e-3, 1e-2, 0.1, 0.3, 1.0];
/// ε, as a part of the mean variance of a feature.
const FEATURE_RIDGE: f64 = 1e-4;
/// Most features, and rows that there are for each.
const MOST_FEATURES: usize = 1024;
const ROWS_PER_FEATURE: usize = 20;
/// Polynomials are those of values between plus and minus this many standard deviations.
const REACH: f64 = 4.0;
/// Lengths of the waves' directions: a target column has the variance 1.
const LENGTHS: [f64; 3] = [0.5, 1.0, 2.0];
/// Seed of the waves.
const WAVES: u64 = 0xca90;
/// One row in this many is held out of the fit.
const LEFT_OUT: usize = 10;
/// Fewest rows.
const FEWEST: usize = 100;
/// Rows that are added to the sums at a time.
const BLOCK: usize = 1024;
/// Columns that one product makes.
const PANEL: usize = 128;

/// A fitted reduction: sₖ = wₖᵀ(t − μ).
///
/// The weights are not written by serde: they belong into a binary tensor of the model file, taken from [`weights`](Self::weights) and
/// put back by [`set_weights`](Self::set_weights).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduction {
    /// μ, one entry per input.
    #[serde(with = "exact::list")]
    mean: Vec<f64>,
    /// ρ̂ₖ, largest first.
    #[serde(with = "exact::list")]
    correlations: Vec<f64>,
    /// One row per input, one column per direction, rows contiguous.
    #[serde(skip)]
    weights: Vec<f64>,
}

/// Rows of scaled given values t and of the target as the map sees it.
pub(crate) trait PairRows {
    /// How many rows there are.
    fn count(&self) -> usize;
    /// Writes t of a row.
    fn given(&self, index: usize, t: &mut [f64]) -> Result<()>;
    /// Writes x of a row.
    fn target(&self, index: usize, x: &mut [f64]) -> Result<()>;
}

impl Reduction {
    /// At most `most` directions of `inputs` values, from pairs with targets of `target` values.
    pub(crate) fn fit(most: usize, inputs: usize, target: usize, rows: &dyn PairRows) -> Result<Self> {
        if most == 0 {
            return Err(Error::setting("reduce", "0 directions leave nothing: ask for at least 1"));
        }
        if inputs == 0 {
            return Err(Error::setting("reduce", "there are no given columns to reduce; drop `reduce`"));
        }
        if rows.count() < FEWEST {
            return Err(Error::setting(
                "reduce",
                format!(
                    "{} training rows are too few to find directions: {FEWEST} are the least",
                    rows.count()
                ),
            ));
        }
        let features = Features::new(target, rows.count());
        let [seen, left_out] = moments(&features, inputs, rows)?;
        let mut best: Option<Found> = None;
        for ridge in RIDGES {
            let Some(found) = canonical(&seen, &left_out, ridge, most) else { continue };
            if best.as_ref().is_none_or(|best| found.score > best.score) {
                best = Some(found);
            }
        }
        let best = best.ok_or_else(|| {
            Error::Numerical(
                "the covariances of the given columns cannot be decomposed: choose the scaling standard, or drop `reduce`"
                    .to_owned(),
            )
        })?;
        Self::of(best, seen.mean_t, target, left_out.rows)
    }

    /// Keeps what shows a correlation, and as many as there are target columns where it is any at all.
    fn of(found: Found, mean: Vec<f64>, target: usize, left_out: f64) -> Result<Self> {
        let Found { directions, correlations, deviations, .. } = found;
        // Three standard errors of a correlation that is none.
        let least = 3.0 / left_out.sqrt();
        let mut kept: Vec<usize> = (0..correlations.len()).filter(|&k| correlations[k] > 0.0).collect();
        kept.sort_by(|&a, &b| correlations[b].total_cmp(&correlations[a]));
        let clear = kept.iter().take_while(|&&k| correlations[k] > least).count();
        kept.truncate(clear.max(target));
        if kept.is_empty() {
            return Err(Error::setting(
                "reduce",
                "no direction of the given columns has to do with the target, as far as rows that were left out tell; drop `reduce`",
            ));
        }
        let mut weights = vec![0.0; mean.len() * kept.len()];
        for (place, &k) in kept.iter().enumerate() {
            let direction = directions.col_as_slice(k);
            let factor = sign_of(direction) * correlations[k] / deviations[k];
            for (j, a) in direction.iter().enumerate() {
                weights[j * kept.len() + place] = factor * a;
            }
        }
        Ok(Self { mean, correlations: kept.iter().map(|&k| correlations[k]).collect(), weights })
    }

    /// The number of values reduced.
    pub fn input_dim(&self) -> usize {
        self.mean.len()
    }

    /// The number of directions.
    pub fn output_dim(&self) -> usize {
        self.correlations.len()
    }

    /// ρ̂ₖ, the correlation of each direction with a function of the target over rows that were left out, largest first. It is the standard
    /// deviation of the direction's values too.
    pub fn correlations(&self) -> &[f64] {
        &self.correlations
    }

    /// wₖ as the columns of a matrix of [`weights_shape`](Self::weights_shape), row-major.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Rows and columns of [`weights`](Self::weights): inputs and directions.
    pub fn weights_shape(&self) -> [usize; 2] {
        [self.input_dim(), self.output_dim()]
    }

    /// Puts back the weights after reading a model file.
    pub fn set_weights(&mut self, weights: Vec<f64>) -> Result<()> {
        self.check_weights(&weights)?;
        self.weights = weights;
        Ok(())
    }

    /// Checks a reduction read from a file, its weights included.
    pub fn validate(&self) -> Result<()> {
        self.check_weights(&self.weights)?;
        let refuse = |problem: &str| Err(Error::Domain(format!("the reduction {problem}; it is damaged")));
        if self.output_dim() == 0 {
            return refuse("should have at least one direction");
        }
        if !self.mean.iter().all(|mean| mean.is_finite()) {
            return refuse("has a mean that is not finite");
        }
        if !self.correlations.iter().all(|rho| *rho > 0.0 && *rho <= 1.0) {
            return refuse("has a correlation outside (0, 1]");
        }
        Ok(())
    }

    fn check_weights(&self, weights: &[f64]) -> Result<()> {
        check_matrix("weights of the reduction", "the reduction has a weight", self.weights_shape(), weights)
    }

    /// The values of all directions for rows t.
    pub(super) fn apply(&self, t: &[f64], out: &mut [f64]) -> Result<()> {
        self.check_weights(&self.weights)?;
        let [m, k] = self.weights_shape();
        let centred: Vec<f64> = t
            .chunks_exact(m.max(1))
            .flat_map(|row| row.iter().zip(&self.mean).map(|(t, mean)| t - mean))
            .collect();
        let rows = centred.len() / m.max(1);
        let weights = columns(&self.weights, k, m, k);
        product(columns_mut(out, k, rows, k), Accum::Replace, weights, columns(&centred, m, rows, m));
        Ok(())
    }
}

/// φ: polynomials of the target's columns, then waves.
struct Features {
    target: usize,
    /// The highest degree of the polynomials.
    degree: usize,
    count: usize,
    /// Directions w, one after the other, and phases b.
    directions: Vec<f64>,
    phases: Vec<f64>,
}

impl Features {
    fn new(target: usize, rows: usize) -> Self {
        let most = (rows / ROWS_PER_FEATURE).min(MOST_FEATURES).max(target);
        // Monomials of degrees 1, 2 and 3 in n variables.
        let n = target as u128;
        let counts = [n, n * (n + 1) / 2, n * (n + 1) * (n + 2) / 6];
        let (mut degree, mut polynomials) = (1, n);
        while degree < counts.len() && polynomials + counts[degree] <= most as u128 {
            polynomials += counts[degree];
            degree += 1;
        }
        let waves = most - polynomials as usize;
        let mut rng = ChaCha8Rng::seed_from_u64(WAVES);
        let mut directions = Vec::with_capacity(waves * target);
        let mut phases = Vec::with_capacity(waves);
        for wave in 0..waves {
            let w: Vec<f64> = (0..target).map(|_| rng.sample(StandardNormal)).collect();
            let norm = w.iter().map(|w| w * w).sum::<f64>().sqrt();
            directions.extend(w.iter().map(|w| LENGTHS[wave % LENGTHS.len()] * w / norm));
            phases.push(std::f64::consts::TAU * rng.random::<f64>());
        }
        Self { target, degree, count: most, directions, phases }
    }

    fn count(&self) -> usize {
        self.count
    }

    /// φ(x), in single precision.
    fn push(&self, x: &[f64], out: &mut Vec<f32>) {
        out.extend(x.iter().map(|&x| x as f32));
        if self.degree > 1 {
            let u: Vec<f64> = x.iter().map(|x| x.clamp(-REACH, REACH)).collect();
            for i in 0..u.len() {
                for j in i..u.len() {
                    let second = u[i] * u[j] - if i == j { 1.0 } else { 0.0 };
                    out.push(second as f32);
                    if self.degree > 2 {
                        // Hermite polynomials are nearly uncorrelated with those of lower degree.
                        let third = |k: usize| match (i == j, j == k) {
                            (true, true) => u[i] * (u[i] * u[i] - 3.0),
                            (true, false) => second * u[k],
                            (false, true) => u[i] * (u[j] * u[j] - 1.0),
                            (false, false) => second * u[k],
                        };
                        out.extend((j..u.len()).map(|k| third(k) as f32));
                    }
                }
            }
        }
        for (w, phase) in self.directions.chunks_exact(self.target.max(1)).zip(&self.phases) {
            let along: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
            out.push((along + phase).cos() as f32);
        }
    }
}

/// Covariances over some rows.
struct Covariances {
    rows: f64,
    mean_t: Vec<f64>,
    phi: Mat<f64>,
    /// One row per input, one column per feature.
    cross: Mat<f64>,
    t: Mat<f64>,
}

/// Covariances of the rows that the fit sees, and of those left out.
fn moments(features: &Features, inputs: usize, rows: &dyn PairRows) -> Result<[Covariances; 2]> {
    let width = features.count() + inputs;
    let mut sums = [SecondMoments::new(width), SecondMoments::new(width)];
    let mut blocks: [Vec<f32>; 2] = [Vec::new(), Vec::new()];
    let (mut x, mut t) = (vec![0.0; features.target], vec![0.0; inputs]);
    for index in 0..rows.count() {
        let part = usize::from(index % LEFT_OUT == LEFT_OUT - 1);
        rows.target(index, &mut x)?;
        rows.given(index, &mut t)?;
        let block = &mut blocks[part];
        features.push(&x, block);
        block.extend(t.iter().map(|&t| t as f32));
        if block.len() == BLOCK * width {
            sums[part].add(block);
            block.clear();
        }
    }
    for (sums, block) in sums.iter_mut().zip(&blocks) {
        if !block.is_empty() {
            sums.add(block);
        }
    }
    Ok(sums.map(|sums| Covariances::of(&sums, features.count())))
}

impl Covariances {
    fn of(sums: &SecondMoments, features: usize) -> Self {
        let (width, rows) = (sums.dim(), sums.rows() as f64);
        let mean = sums.mean();
        let full = sums.tiles.full(|value| value / rows);
        let at = |i: usize, j: usize| full[i + j * width] - mean[i] * mean[j];
        let inputs = width - features;
        Self {
            rows,
            phi: Mat::from_fn(features, features, at),
            cross: Mat::from_fn(inputs, features, |i, j| at(features + i, j)),
            t: Mat::from_fn(inputs, inputs, |i, j| at(features + i, features + j)),
            mean_t: mean[features..].to_vec(),
        }
    }
}

/// Directions for one ridge.
struct Found {
    /// aₖ as columns.
    directions: Mat<f64>,
    /// ρ̂ₖ, over the rows left out; 0 where they are not positive.
    correlations: Vec<f64>,
    /// Standard deviations of aₖᵀt over the rows seen.
    deviations: Vec<f64>,
    /// Σ ρ̂ₖ².
    score: f64,
}

/// The leading canonical directions for a ridge; `None` where a covariance cannot be factorised.
fn canonical(seen: &Covariances, left_out: &Covariances, ridge: f64, most: usize) -> Option<Found> {
    let of_t = inverse_factor(&seen.t, ridge)?;
    let of_phi = inverse_factor(&seen.phi, FEATURE_RIDGE)?;
    let k = times(times(of_t.as_ref(), seen.cross.as_ref()).as_ref(), of_phi.transpose());
    let square = times(k.transpose(), k.as_ref());
    let (values, vectors) = symmetric_eigen(square.as_ref())?;
    let kept = most.min(k.nrows()).min(k.ncols());
    let kept = values.iter().take(kept).take_while(|value| **value > 1e-12).count();
    let u = vectors.as_ref().subcols(0, kept);
    let directions = times(of_t.transpose(), times(k.as_ref(), u).as_ref());
    let combinations = times(of_phi.transpose(), u);
    let quadratic = |matrix: &Mat<f64>, left: &Mat<f64>, right: &Mat<f64>| -> Vec<f64> {
        let image = times(matrix.as_ref(), right.as_ref());
        (0..kept).map(|k| dot(left.col_as_slice(k), image.col_as_slice(k))).collect()
    };
    let deviations: Vec<f64> = quadratic(&seen.t, &directions, &directions)
        .into_iter()
        .map(|variance| variance.max(0.0).sqrt())
        .collect();
    let own = quadratic(&left_out.t, &directions, &directions);
    let others = quadratic(&left_out.phi, &combinations, &combinations);
    let shared = quadratic(&left_out.cross, &directions, &combinations);
    let correlations: Vec<f64> = (0..kept)
        .map(|k| match deviations[k] > 0.0 && own[k] > 0.0 && others[k] > 0.0 {
            true => (shared[k] / (own[k] * others[k]).sqrt()).clamp(0.0, 1.0),
            false => 0.0,
        })
        .collect();
    let score = correlations.iter().map(|rho| rho * rho).sum();
    Some(Found { directions, correlations, deviations, score })
}

/// L⁻¹ for L Lᵀ = matrix + ridge · mean diagonal · I.
fn inverse_factor(matrix: &Mat<f64>, ridge: f64) -> Option<Mat<f64>> {
    let n = matrix.nrows();
    let level = ridge * (0..n).map(|i| matrix[(i, i)]).sum::<f64>() / n as f64;
    let mut factor: Vec<f64> =
        (0..n * n).map(|at| matrix[(at % n, at / n)] + if at % n == at / n { level } else { 0.0 }).collect();
    spd::cholesky(&mut factor, &mut SpdScratch::new(n))?;
    Some(lower_inverse(MatRef::from_column_major_slice(&factor, n, n)))
}

/// lhs · rhs, panels of columns side by side.
fn times(lhs: MatRef<'_, f64>, rhs: MatRef<'_, f64>) -> Mat<f64> {
    let (rows, cols) = (lhs.nrows(), rhs.ncols());
    let mut values = vec![0.0; rows * cols];
    if rows > 0 {
        each(values.chunks_mut(PANEL * rows), |panel, out| {
            let count = out.len() / rows;
            let right = rhs.subcols(panel * PANEL, count);
            product(columns_mut(out, rows, count, rows), Accum::Replace, lhs, right);
        });
    }
    MatRef::from_column_major_slice(&values, rows, cols).to_owned()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// x of two columns; y has x₁, the bend of x₂ and noise, mixed over `inputs` columns by a reflection.
    struct Pairs {
        x: Vec<f64>,
        y: Vec<f64>,
        inputs: usize,
    }

    impl PairRows for Pairs {
        fn count(&self) -> usize {
            self.x.len() / 2
        }
        fn given(&self, index: usize, t: &mut [f64]) -> Result<()> {
            t.copy_from_slice(&self.y[index * self.inputs..][..self.inputs]);
            Ok(())
        }
        fn target(&self, index: usize, x: &mut [f64]) -> Result<()> {
            x.copy_from_slice(&self.x[2 * index..][..2]);
            Ok(())
        }
    }

    fn mirror(inputs: usize) -> Vec<f64> {
        let v: Vec<f64> = (0..inputs).map(|j| 1.0 + (j as f64).sin()).collect();
        let norm = dot(&v, &v).sqrt();
        v.iter().map(|v| v / norm).collect()
    }

    fn reflect(values: &mut [f64], v: &[f64]) {
        let along = 2.0 * dot(values, v);
        values.iter_mut().zip(v).for_each(|(value, v)| *value -= along * v);
    }

    fn pairs(count: usize, inputs: usize, seed: u64) -> Pairs {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let v = mirror(inputs);
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let own: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
            let mut row: Vec<f64> = (0..inputs).map(|_| rng.sample::<f64, _>(StandardNormal)).collect();
            row[0] = own[0] + 0.1 * row[0];
            row[1] = (2.0 * own[1]).cos() + 0.1 * row[1];
            reflect(&mut row, &v);
            x.extend(own);
            y.extend(row);
        }
        Pairs { x, y, inputs }
    }

    #[test]
    fn the_directions_of_the_signal_are_found_and_noise_is_dropped() {
        let inputs = 120;
        let rows = pairs(4000, inputs, 1);
        let reduction = Reduction::fit(50, inputs, 2, &rows).unwrap();
        let found = reduction.correlations();
        assert!(found[0] > 0.98 && found[1] > 0.9, "{found:?}");
        assert!(found.len() < 20 && found[2..].iter().all(|rho| *rho < 0.25), "{found:?}");
        // On fresh rows, two regressions on the first two values give the signals back.
        let fresh = pairs(2000, inputs, 2);
        let k = reduction.output_dim();
        let mut values = vec![0.0; 2000 * k];
        reduction.apply(&fresh.y, &mut values).unwrap();
        let v = mirror(inputs);
        for signal in 0..2 {
            let truth: Vec<f64> = (0..2000)
                .map(|i| {
                    let mut row = fresh.y[i * inputs..][..inputs].to_vec();
                    reflect(&mut row, &v);
                    row[signal]
                })
                .collect();
            let best = (0..2)
                .map(|k_| {
                    let own: Vec<f64> = (0..2000).map(|i| values[i * k + k_]).collect();
                    let centre = |v: &[f64]| -> Vec<f64> {
                        let mean = v.iter().sum::<f64>() / 2000.0;
                        v.iter().map(|v| v - mean).collect()
                    };
                    let (a, b) = (centre(&own), centre(&truth));
                    (dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()).abs()
                })
                .fold(0.0, f64::max);
            assert!(best > 0.97, "signal {signal}: {best}");
        }
        // The standard deviation of a value is its correlation.
        for place in 0..2 {
            let square = (0..2000).map(|i| values[i * k + place].powi(2)).sum::<f64>() / 2000.0;
            assert!((square.sqrt() / found[place] - 1.0).abs() < 0.1, "{place}: {square}");
        }
    }

    #[test]
    fn threads_change_no_bit_and_mistakes_are_named() {
        let rows = pairs(300, 10, 3);
        let here = Reduction::fit(4, 10, 2, &rows).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(pool.install(|| Reduction::fit(4, 10, 2, &rows)).unwrap(), here);
        assert!(here.validate().is_ok());
        assert!(Reduction::fit(4, 10, 2, &pairs(40, 10, 3)).unwrap_err().to_string().contains("too few"));
        let mut noise = pairs(300, 10, 3);
        noise.x = pairs(300, 10, 4).x;
        let error = Reduction::fit(4, 10, 2, &noise);
        assert!(error.is_err() || error.unwrap().correlations()[0] < 0.7);
        let mut damaged = here.clone();
        assert!(damaged.set_weights(vec![0.0; 3]).is_err());
        damaged.correlations[0] = 2.0;
        assert!(damaged.validate().is_err());
    }
}
