//! Leading eigenvectors of large second moments, by subspace iteration with Chebyshev filters.
//!
//! For C = S/N, about the mean or about 0, and an orthonormal basis X of somewhat more columns than asked for, XᵀCX = U Θ Uᵀ
//! (Rayleigh–Ritz) gives vectors XU with values θ₁ ≥ … ≥ θ_w. What the wanted ones miss of the variance is, to first order,
//!
//! ```text
//! Σ_k ‖C x_k − θ_k x_k‖² / (θ_k − b),   b = θ_w
//! ```
//!
//! and the iteration ends when this is a small part of what they have. A small gain of one pass would say little: where a spectrum
//! is flat, a pass of plain multiplication gains little however much is missing. Otherwise X ← T₄(2C/b − I) X, a Chebyshev polynomial that stays
//! within ±1 on [0, b] and grows as fast as one can above. Directions far above b would drown the others in single precision:
//! those with θ > 16 b are multiplied by C once, which is enough for them, and kept out of the rest.
//!
//! It starts from C times a sparse random sign matrix, which costs no product. A basis is made orthonormal by Cholesky factors of its Gram
//! matrix, R⁻¹ from double precision first, then once more. Eigenvalues close to one another at the end of the list are known less well
//! than the variance that they explain together.

use crate::parallel::{each, results};
use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::moments::{Products, SecondMoments, Tiles};
use crate::kernel::eigen::{lower_inverse, sign_of, symmetric_eigen, symmetric_eigen_single};
use crate::kernel::spd::{self, SpdScratch};
use crate::kernel::{Accum, Mat, MatRef, columns, columns_mut, product};
use crate::{Error, Result};

/// Columns that one product makes.
const PANEL: usize = 256;
/// Orders up to this are decomposed as a whole.
const SMALL: usize = 1024;
/// Seed of the random signs.
const SIGNS: u64 = 0x5eed;
/// Degree of the filter.
const DEGREE: usize = 4;
/// Ritz values above this many times the least stay out of the filter: T₄(2 · 16 − 1) is 7·10⁶, and single precision has seven digits.
const APART: f64 = 16.0;

/// What [`SecondMoments::leading`] looks for.
#[derive(Clone, Debug, PartialEq)]
pub struct LeadingSettings {
    /// How many eigenvectors.
    pub components: usize,
    /// Whether about the mean of the rows, or about 0.
    pub centred: bool,
    /// Columns of the iteration's basis beyond `components`; an eighth of them by default.
    pub oversampling: Option<usize>,
    /// The iteration ends when the variance still missing is estimated at less than this fraction of the variance captured.
    pub tolerance: f64,
    /// Or when the basis was multiplied by the matrix this many times.
    pub most_passes: usize,
}

impl Default for LeadingSettings {
    fn default() -> Self {
        Self { components: 1, centred: true, oversampling: None, tolerance: 1e-4, most_passes: 50 }
    }
}

/// The leading eigenvectors of a second moment S/N.
#[derive(Clone, Debug)]
pub struct Leading {
    /// Their eigenvalues, largest first.
    pub values: Vec<f64>,
    /// The orthonormal vectors, one after the other.
    pub vectors: Vec<f32>,
    /// The sum of all eigenvalues.
    pub total: f64,
    /// How often the basis was multiplied by the matrix; 0 where the whole matrix was decomposed.
    pub passes: usize,
}

impl Leading {
    /// The fraction of the total that the vectors explain.
    pub fn explained(&self) -> f64 {
        self.values.iter().sum::<f64>() / self.total
    }
}

impl SecondMoments {
    /// The leading eigenvectors. Besides the moments it needs 4 bytes for each entry of the matrix (8 where all of it is
    /// decomposed), and 16 for each entry of the basis.
    pub fn leading(mut self, settings: &LeadingSettings) -> Result<Leading> {
        let (dim, rows) = (self.dim(), self.rows());
        let LeadingSettings { components, .. } = *settings;
        if components == 0 || components > dim || rows == 0 {
            return Err(Error::setting(
                "components",
                format!(
                    "{components} of {dim} columns and {rows} rows: ask for at least 1, at most as many as there are columns"
                ),
            ));
        }
        if settings.centred {
            let mean = self.mean();
            self.tiles.add_outer(&mean, -(rows as f64));
        }
        let weight = 1.0 / rows as f64;
        let total = weight * self.tiles.diagonal().iter().sum::<f64>();
        if !(total.is_finite() && total > 0.0) {
            return Err(Error::Numerical(
                "the rows do not vary, or their second moments overflow: there are no principal components"
                    .to_owned(),
            ));
        }
        let width = components + settings.oversampling.unwrap_or(components / 8 + 8);
        let found = match dim <= SMALL || width >= dim / 2 {
            true => None,
            false => {
                let matrix = self.tiles.full(|value| (weight * value) as f32);
                iterate(&matrix, dim, width, total, settings)
            }
        };
        match found {
            Some(leading) => Ok(leading),
            // Small, nearly all asked for, or of lower rank than the basis.
            None => whole(&self.tiles, dim, weight, total, components),
        }
    }
}

/// Decomposes the whole matrix in double precision.
fn whole(tiles: &Tiles, dim: usize, weight: f64, total: f64, components: usize) -> Result<Leading> {
    let full = tiles.full(|value| weight * value);
    let matrix = MatRef::from_column_major_slice(&full, dim, dim);
    let (mut values, vectors) = symmetric_eigen(matrix).ok_or_else(failed)?;
    values.truncate(components);
    let mut kept = Vec::with_capacity(dim * components);
    for k in 0..components {
        let vector = vectors.col_as_slice(k);
        let sign = sign_of(vector);
        kept.extend(vector.iter().map(|v| (sign * v) as f32));
    }
    Ok(Leading { values, vectors: kept, total, passes: 0 })
}

fn failed() -> Error {
    Error::Numerical("the eigenvalues of the second moments did not converge".to_owned())
}

/// Subspace iteration; `None` where the matrix has a lower rank than `width` in single precision.
fn iterate(
    matrix: &[f32],
    dim: usize,
    width: usize,
    total: f64,
    settings: &LeadingSettings,
) -> Option<Leading> {
    let components = settings.components;
    let mut basis = sketch(matrix, dim, width);
    let mut image = vec![0.0_f32; dim * width];
    let mut scratch = vec![0.0_f32; dim * width];
    let mut passes = 0;
    let values = loop {
        orthonormalise(&mut basis, dim, &mut scratch)?;
        multiply(matrix, dim, &basis, &mut image);
        passes += 1;
        let values = ritz(dim, &mut basis, &mut image, &mut scratch)?;
        let captured: f64 = values[..components].iter().sum();
        let least = values[width - 1].max(f64::from(f32::EPSILON) * values[0]);
        let missing = missing(dim, &values[..components], least, &basis, &image);
        if missing <= settings.tolerance * captured || passes + DEGREE > settings.most_passes {
            break values;
        }
        let apart = values.iter().take_while(|&&value| value > APART * least).count();
        filter(matrix, dim, least as f32, apart, [&mut basis, &mut image, &mut scratch])?;
        passes += DEGREE - 1;
    };
    // Single precision may have exchanged neighbours.
    let mut order: Vec<usize> = (0..components).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]));
    let vectors = &mut scratch[..dim * components];
    each(vectors.chunks_exact_mut(dim).zip(&order), |_, (out, &k)| {
        let vector = &basis[k * dim..][..dim];
        let double: Vec<f64> = vector.iter().map(|&v| f64::from(v)).collect();
        let sign = sign_of(&double) as f32;
        out.iter_mut().zip(vector).for_each(|(out, v)| *out = sign * v);
    });
    scratch.truncate(dim * components);
    Some(Leading { values: order.iter().map(|&k| values[k]).collect(), vectors: scratch, total, passes })
}

/// Rayleigh–Ritz: XᵀCX = U Θ Uᵀ, X ← XU and CX ← CXU. Largest first, the values xᵀCx/xᵀx of the new columns: those of the
/// decomposition in single precision are off by 10⁻⁵ of the largest of thousands.
fn ritz(dim: usize, basis: &mut Vec<f32>, image: &mut Vec<f32>, scratch: &mut Vec<f32>) -> Option<Vec<f64>> {
    let width = basis.len() / dim;
    let mut small = Tiles::zeros(width);
    let (x, y) = (columns(basis.as_slice(), dim, width, dim), columns(image.as_slice(), dim, width, dim));
    small.add(x.transpose(), y.transpose(), Products::Single);
    let small = small.full(|value| value as f32);
    let (_, rotation) = symmetric_eigen_single(MatRef::from_column_major_slice(&small, width, width))?;
    for buffer in [&mut *basis, &mut *image] {
        let from = columns(buffer.as_slice(), dim, width, dim);
        each(scratch.chunks_mut(PANEL * dim), |panel, out| {
            let count = out.len() / dim;
            let rotation = rotation.as_ref().subcols(panel * PANEL, count);
            product(columns_mut(out, dim, count, dim), Accum::Replace, from, rotation);
        });
        std::mem::swap(buffer, scratch);
    }
    let vectors = basis.chunks_exact(dim).zip(image.chunks_exact(dim));
    Some(results(vectors, |_, (x, y)| dot(x, y) / dot(x, x)))
}

/// xᵀy, summed in double precision.
fn dot(x: &[f32], y: &[f32]) -> f64 {
    x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

/// Σ_k ‖C x_k − θ_k x_k‖² / (θ_k − b): see the head of this file.
fn missing(dim: usize, values: &[f64], least: f64, basis: &[f32], image: &[f32]) -> f64 {
    let vectors = basis.chunks_exact(dim).zip(image.chunks_exact(dim)).zip(values);
    let terms = results(vectors, |_, ((x, y), &value)| {
        let square = |(&x, &y): (&f32, &f32)| (f64::from(y) - value * f64::from(x)).powi(2);
        x.iter().zip(y).map(square).sum::<f64>() / (value - least).max(1e-6 * least)
    });
    terms.iter().sum()
}

/// X ← [C X₁ made orthonormal, T₄(2C/b − I) X₂ without what lies in it], where X₁ are the first `apart` columns of Ritz vectors X and the
/// second buffer has CX. T_{k+1}(A) = 2 A T_k(A) − T_{k−1}(A).
fn filter(
    matrix: &[f32],
    dim: usize,
    least: f32,
    apart: usize,
    [basis, image, scratch]: [&mut Vec<f32>; 3],
) -> Option<()> {
    let first = apart * dim;
    let mut locked = image[..first].to_vec();
    if apart > 0 {
        orthonormalise(&mut locked, dim, &mut vec![0.0; first])?;
    }
    let width = 2.0 / least;
    let panels = basis[first..].chunks_mut(PANEL * dim).zip(image[first..].chunks_mut(PANEL * dim));
    each(panels, |_, (before, now)| {
        now.iter_mut().zip(&*before).for_each(|(now, before)| *now = width * *now - before);
        deflate(&locked, dim, before);
        deflate(&locked, dim, now);
    });
    for _ in 1..DEGREE {
        multiply(matrix, dim, &image[first..], &mut scratch[first..]);
        let panels = basis[first..].chunks_mut(PANEL * dim).zip(image[first..].chunks(PANEL * dim));
        each(panels.zip(scratch[first..].chunks_mut(PANEL * dim)), |_, ((before, now), next)| {
            next.iter_mut().zip(now).for_each(|(next, now)| *next = 2.0 * (width * *next - now));
            deflate(&locked, dim, next);
            before.iter_mut().zip(&*next).for_each(|(before, next)| *before = next - *before);
        });
        std::mem::swap(basis, image);
    }
    std::mem::swap(basis, image);
    basis[..first].copy_from_slice(&locked);
    Some(())
}

/// P ← P − Q QᵀP for orthonormal columns Q.
fn deflate(locked: &[f32], dim: usize, panel: &mut [f32]) {
    let (apart, count) = (locked.len() / dim, panel.len() / dim);
    if apart == 0 {
        return;
    }
    let q = columns(locked, dim, apart, dim);
    let mut inside = Mat::<f32>::zeros(apart, count);
    product(inside.as_mut(), Accum::Replace, q.transpose(), columns(panel, dim, count, dim));
    for column in 0..count {
        inside.col_as_slice_mut(column).iter_mut().for_each(|value| *value = -*value);
    }
    product(columns_mut(panel, dim, count, dim), Accum::Add, q, inside.as_ref());
}

/// C S for a random matrix S with one ±1 in each row: every column of C goes to one column of the product.
fn sketch(matrix: &[f32], dim: usize, width: usize) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(SIGNS);
    // A shuffled round robin: no column of the product stays empty.
    let mut order: Vec<usize> = (0..dim).collect();
    for i in (1..dim).rev() {
        order.swap(i, rng.random_range(0..=i));
    }
    let signs: Vec<f32> = (0..dim).map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 }).collect();
    let mut image = vec![0.0; dim * width];
    each(image.chunks_exact_mut(dim), |column, out| {
        for place in (column..dim).step_by(width) {
            let (own, sign) = (order[place], signs[place]);
            let from = &matrix[own * dim..][..dim];
            out.iter_mut().zip(from).for_each(|(out, &value)| *out += sign * value);
        }
    });
    image
}

/// C X, a panel of columns at a time.
fn multiply(matrix: &[f32], dim: usize, basis: &[f32], image: &mut [f32]) {
    let matrix = columns(matrix, dim, dim, dim);
    each(image.chunks_mut(PANEL * dim).zip(basis.chunks(PANEL * dim)), |_, (image, basis)| {
        let count = basis.len() / dim;
        let basis = columns(basis, dim, count, dim);
        product(columns_mut(image, dim, count, dim), Accum::Replace, matrix, basis);
    });
}

/// X ← X R⁻¹ with XᵀX = RᵀR, twice; `scratch` has the size of X. `None` where X has not full rank.
fn orthonormalise(basis: &mut Vec<f32>, dim: usize, scratch: &mut Vec<f32>) -> Option<()> {
    let width = basis.len() / dim;
    each(basis.chunks_exact_mut(dim), |_, column| {
        let norm = column.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        column.iter_mut().for_each(|v| *v = (f64::from(*v) / norm) as f32);
    });
    for products in [Products::Double, Products::Single] {
        let mut gram = Tiles::zeros(width);
        let x = columns(basis.as_slice(), dim, width, dim);
        gram.add(x.transpose(), x.transpose(), products);
        let mut gram = gram.full(|value| value);
        spd::cholesky(&mut gram, &mut SpdScratch::new(width))?;
        let smallest = (0..width).map(|i| gram[i + i * width]).fold(f64::INFINITY, f64::min);
        // Below this, a column is rounding noise of the others.
        if !(smallest > 1e-6) {
            return None;
        }
        let factor = MatRef::from_column_major_slice(&gram, width, width);
        let inverse = lower_inverse(factor);
        // R⁻¹ is upper triangular: a panel needs the columns up to its own last.
        each(scratch.chunks_mut(PANEL * dim), |panel, out| {
            let count = out.len() / dim;
            let start = panel * PANEL;
            let used = start + count;
            let right = Mat::<f32>::from_fn(used, count, |i, j| match i <= start + j {
                true => inverse[(start + j, i)] as f32,
                false => 0.0,
            });
            let x = columns(basis.as_slice(), dim, used, dim);
            product(columns_mut(out, dim, count, dim), Accum::Replace, x, right.as_ref());
        });
        std::mem::swap(basis, scratch);
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::*;

    /// Rows with variance `spread(k)` along rotated axes k, about `offset` in every column.
    fn rows(count: usize, dim: usize, offset: f32, spread: impl Fn(usize) -> f64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        // A Householder reflection mixes all axes.
        let mut mirror: Vec<f64> = (0..dim).map(|_| StandardNormal.sample(&mut rng)).collect();
        let norm = mirror.iter().map(|v| v * v).sum::<f64>().sqrt();
        mirror.iter_mut().for_each(|v| *v /= norm);
        let mut out = Vec::with_capacity(count * dim);
        for _ in 0..count {
            let t: Vec<f64> = (0..dim)
                .map(|k| {
                    let z: f64 = StandardNormal.sample(&mut rng);
                    spread(k).sqrt() * z
                })
                .collect();
            let along: f64 = t.iter().zip(&mirror).map(|(t, v)| t * v).sum();
            out.extend(t.iter().zip(&mirror).map(|(t, v)| (t - 2.0 * along * v) as f32 + offset));
        }
        out
    }

    fn moments(rows: &[f32], dim: usize, block: usize) -> SecondMoments {
        let mut moments = SecondMoments::new(dim);
        rows.chunks(block * dim).for_each(|rows| moments.add(rows));
        moments
    }

    #[test]
    fn sums_are_those_of_plain_loops_about_the_mean_and_about_zero() {
        let dim = 5;
        let rows = rows(40, dim, 1.5, |k| 1.0 / (1 + k) as f64);
        let moments = moments(&rows, dim, 7);
        assert_eq!((moments.rows(), moments.dim()), (40, dim));
        let mean = moments.mean();
        for centred in [false, true] {
            let plain = Mat::<f64>::from_fn(dim, dim, |i, j| {
                let at = |row: &[f32], i: usize| f64::from(row[i]) - if centred { mean[i] } else { 0.0 };
                rows.chunks_exact(dim).map(|row| at(row, i) * at(row, j)).sum::<f64>() / 40.0
            });
            let (values, vectors) = symmetric_eigen(plain.as_ref()).unwrap();
            let settings = LeadingSettings { components: 3, centred, ..Default::default() };
            let leading = moments.clone().leading(&settings).unwrap();
            assert!((leading.total - values.iter().sum::<f64>()).abs() < 1e-5);
            for k in 0..3 {
                assert!((leading.values[k] - values[k]).abs() < 1e-5, "{:?} {values:?}", leading.values);
                let dot: f64 =
                    (0..dim).map(|i| vectors[(i, k)] * f64::from(leading.vectors[k * dim + i])).sum();
                assert!((dot.abs() - 1.0).abs() < 1e-5);
            }
        }
    }

    /// The iteration against the decomposition of the whole matrix, with a slowly falling spectrum.
    #[test]
    fn the_iteration_captures_what_the_whole_decomposition_does() {
        let (dim, count, components) = (1100, 1500, 60);
        let rows = rows(count, dim, 0.0, |k| 10.0 / (1.0 + k as f64).powf(1.2));
        let moments = moments(&rows, dim, 512);
        let all = LeadingSettings { components: 520, centred: false, ..Default::default() };
        let whole = moments.clone().leading(&all).unwrap();
        assert_eq!(whole.passes, 0);
        let settings = LeadingSettings { components, tolerance: 1e-6, ..all };
        let leading = moments.clone().leading(&settings).unwrap();
        assert!(leading.passes > 1 && leading.passes < 50, "{}", leading.passes);
        let best: f64 = whole.values[..components].iter().sum::<f64>() / whole.total;
        assert!((leading.explained() - best).abs() < 1e-4, "{} {best}", leading.explained());
        for k in 0..20 {
            assert!((leading.values[k] / whole.values[k] - 1.0).abs() < 1e-3, "{k}");
        }
        // Orthonormal vectors, the same bits on any number of threads.
        for k in [0, 7, 59] {
            for l in 0..components {
                let (a, b) = (&leading.vectors[k * dim..][..dim], &leading.vectors[l * dim..][..dim]);
                let dot: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
                assert!((dot - f64::from(u8::from(k == l))).abs() < 2e-5, "{k} {l}: {dot}");
            }
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = pool.install(|| {
            let mut again = SecondMoments::new(dim);
            rows.chunks(512 * dim).for_each(|rows| again.add(rows));
            again.leading(&settings).unwrap()
        });
        assert_eq!(alone.vectors, leading.vectors);
        assert_eq!(alone.values, leading.values);
    }

    /// Rows √(n λₖ) qₖ with cosines qₖ and random signs of the columns: their second moments have the eigenvalues λₖ.
    fn with_spectrum(values: &[f64]) -> Vec<f32> {
        let dim = values.len();
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let signs: Vec<f64> = (0..dim).map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 }).collect();
        let step = std::f64::consts::PI / dim as f64;
        let row = |(k, value): (usize, &f64)| -> Vec<f32> {
            let size = value.sqrt() * if k == 0 { 1.0 } else { 2.0_f64.sqrt() };
            let entry = |(j, sign): (usize, &f64)| size * sign * (step * (j as f64 + 0.5) * k as f64).cos();
            signs.iter().enumerate().map(|at| entry(at) as f32).collect()
        };
        values.iter().enumerate().flat_map(row).collect()
    }

    /// A pass of plain multiplication adds less than 5·10⁻⁴ here while 35·10⁻⁴ of the variance are still missing.
    #[test]
    fn a_flat_spectrum_does_not_end_the_iteration_early() {
        let (dim, components) = (1100, 200);
        let values: Vec<f64> = (0..dim).map(|k| 1.0 - 0.5 * k as f64 / dim as f64).collect();
        let best: f64 = values[..components].iter().sum();
        let settings = LeadingSettings { components, centred: false, ..Default::default() };
        let leading = moments(&with_spectrum(&values), dim, 512).leading(&settings).unwrap();
        let found: f64 = leading.values.iter().sum();
        assert!((1.0 - found / best).abs() < 1.5e-4, "{found} of {best} after {} passes", leading.passes);
        assert!(leading.passes < 30, "{}", leading.passes);
    }

    /// Eigenvalues of 10⁵ times the last wanted: rounding of the leading directions must not hide the others.
    #[test]
    fn a_steep_beginning_leaves_the_flat_end_as_it_is() {
        let (dim, components) = (1100, 300);
        let value = |k: usize| 1e4 / (1.0 + k as f64).powi(3) + (-0.003 * k as f64).exp();
        let values: Vec<f64> = (0..dim).map(|k| 0.1 * value(k)).collect();
        let best: f64 = values[20..components].iter().sum();
        let settings = LeadingSettings { components, centred: false, ..Default::default() };
        let leading = moments(&with_spectrum(&values), dim, 512).leading(&settings).unwrap();
        let found: f64 = leading.values[20..].iter().sum();
        assert!((1.0 - found / best).abs() < 2e-3, "{found} of {best} after {} passes", leading.passes);
        assert!((leading.values[0] / values[0] - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_matrix_of_low_rank_is_decomposed_as_a_whole() {
        let (dim, count) = (1100, 40);
        let rows = rows(count, dim, 0.0, |_| 1.0);
        let settings = LeadingSettings { components: 45, centred: false, ..Default::default() };
        let leading = moments(&rows, dim, 64).leading(&settings).unwrap();
        assert!((leading.explained() - 1.0).abs() < 1e-5 && leading.values[40] < 1e-4, "{leading:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let ask = |components: usize, rows: &[f32]| {
            let settings = LeadingSettings { components, ..Default::default() };
            moments(rows, 2, 4).leading(&settings).unwrap_err().to_string()
        };
        assert!(ask(3, &[1.0, 2.0, 3.0, 4.0]).contains("components"));
        assert!(ask(1, &[1.0, 2.0, 1.0, 2.0]).contains("do not vary"));
    }
}
