//! The observed features: the two-dimensional discrete Fourier transform of the surface, without frequency 0 in time.
//!
//! ```text
//! F[k, l] = Σ_t Σ_s z[t, s] e^{−2πi (kt/101 + ls/100)},   k = 1 … 100, l = 0 … 99
//! ```
//!
//! The 20 000 features are Re F, then Im F, each row by row in k. With the time mean of each cell taken off, zc = z − z̄,
//! they are Ψ = √10100 Q zc with QᵀQ = 1, because dropping k = 0 removes the time mean and 101 is odd: a linear function of the features
//! that is taken through Qᵀ needs no Fourier transform at all.
//!
//! Both directions are products with the matrices of cosines and sines, 6 MFLOP per surface: a fast transform of lengths 100
//! and 101 (a prime) would gain nothing over products at the speed of the machine. F[101 − k, 100 − l] is the conjugate of F[k, l], so only
//! l = 0 … 50 is computed.

use std::sync::LazyLock;

use super::kernel::{AMPLITUDES, CELLS, HOURS};
use crate::kernel::{Accum, Mat, columns, columns_mut, product};

/// Features of a surface.
pub const FEATURES: usize = 2 * (HOURS - 1) * CELLS;
/// Spatial frequencies that are computed; the others are conjugates.
const HALF: usize = CELLS / 2 + 1;
const FREQUENCIES: usize = HOURS - 1;

/// √10100, the factor of the isometry.
pub fn gain() -> f64 {
    (AMPLITUDES as f64).sqrt()
}

struct Waves {
    /// cos and sin of 2π l s/100, rows l = 0 … 50.
    space: [Mat<f64>; 2],
    /// cos and sin of 2π k t/101, rows t, columns k = 1 … 100.
    time: [Mat<f64>; 2],
}

static WAVES: LazyLock<Waves> = LazyLock::new(|| {
    let angle =
        |product: usize, period: usize| std::f64::consts::TAU * (product % period) as f64 / period as f64;
    let space = |f: fn(f64) -> f64| Mat::from_fn(HALF, CELLS, |l, s| f(angle(l * s, CELLS)));
    let time = |f: fn(f64) -> f64| Mat::from_fn(HOURS, FREQUENCIES, |t, k| f(angle(t * (k + 1), HOURS)));
    Waves { space: [space(f64::cos), space(f64::sin)], time: [time(f64::cos), time(f64::sin)] }
});

/// The features of a surface of 101 × 100 values, row by row in time.
pub fn features(surface: &[f64], out: &mut [f64]) {
    assert!(surface.len() == AMPLITUDES && out.len() == FEATURES);
    let surface = columns(surface, CELLS, HOURS, CELLS);
    // Σ_s z e^{−iφ} = a − i b, one column per hour.
    let [mut a, mut b] = [(); 2].map(|()| Mat::<f64>::zeros(HALF, HOURS));
    product(a.as_mut(), Accum::Replace, WAVES.space[0].as_ref(), surface);
    product(b.as_mut(), Accum::Replace, WAVES.space[1].as_ref(), surface);
    // (a − i b)(cos − i sin) = (a cos − b sin) − i (a sin + b cos).
    let [cos, sin] = [WAVES.time[0].as_ref(), WAVES.time[1].as_ref()];
    let [mut re, mut im] = [(); 2].map(|()| Mat::<f64>::zeros(HALF, FREQUENCIES));
    product(re.as_mut(), Accum::Replace, b.as_ref(), sin);
    re *= -1.0;
    product(re.as_mut(), Accum::Add, a.as_ref(), cos);
    product(im.as_mut(), Accum::Replace, a.as_ref(), sin);
    product(im.as_mut(), Accum::Add, b.as_ref(), cos);
    im *= -1.0;
    let (real, imaginary) = out.split_at_mut(FEATURES / 2);
    for k in 0..FREQUENCIES {
        let mirror = FREQUENCIES - 1 - k;
        for l in 0..CELLS {
            let (re, im) = match l < HALF {
                true => (re[(l, k)], im[(l, k)]),
                false => (re[(CELLS - l, mirror)], -im[(CELLS - l, mirror)]),
            };
            real[k * CELLS + l] = re;
            imaginary[k * CELLS + l] = im;
        }
    }
}

/// Qᵀy: the features seen as √10100 times a time-centred surface of 101 × 100 values.
///
/// For y = Ψ + 0.25 ε it is √10100 zc plus white noise of standard deviation 0.25 among the time-centred surfaces, and it is
/// sufficient: what it drops of y is independent of the surface.
pub fn to_surface(features: &[f64], out: &mut [f64]) {
    assert!(features.len() == FEATURES && out.len() == AMPLITUDES);
    let [cos, sin] = [WAVES.time[0].transpose(), WAVES.time[1].transpose()];
    let (real, imaginary) = features.split_at(FEATURES / 2);
    let real = columns(real, CELLS, FREQUENCIES, CELLS);
    let imaginary = columns(imaginary, CELLS, FREQUENCIES, CELLS);
    // Σ_k (p + i q)(cos + i sin) = (p cos − q sin) + i (q cos + p sin), one column per hour.
    let [mut re, mut im] = [(); 2].map(|()| Mat::<f64>::zeros(CELLS, HOURS));
    product(re.as_mut(), Accum::Replace, imaginary, sin);
    re *= -1.0;
    product(re.as_mut(), Accum::Add, real, cos);
    product(im.as_mut(), Accum::Replace, imaginary, cos);
    product(im.as_mut(), Accum::Add, real, sin);
    // The real part of Σ_l (re + i im)(cos + i sin); l and 100 − l share their cosine, and their sine up to its sign.
    let [mut even, mut odd] = [(); 2].map(|()| Mat::<f64>::zeros(HALF, HOURS));
    for t in 0..HOURS {
        for l in 0..HALF {
            let other = (CELLS - l) % CELLS;
            let (a, b) = match other == l {
                true => (re[(l, t)], im[(l, t)]),
                false => (re[(l, t)] + re[(other, t)], im[(l, t)] - im[(other, t)]),
            };
            even[(l, t)] = a / gain();
            odd[(l, t)] = -b / gain();
        }
    }
    product(columns_mut(out, CELLS, HOURS, CELLS), Accum::Replace, WAVES.space[0].transpose(), even.as_ref());
    product(columns_mut(out, CELLS, HOURS, CELLS), Accum::Add, WAVES.space[1].transpose(), odd.as_ref());
}

/// Takes the time mean of each cell off a surface of 101 rows of `cells` values.
pub fn centre_in_time<T: crate::kernel::Real>(surface: &mut [T], cells: usize) {
    let mut mean = vec![0.0; cells];
    for row in surface.chunks_exact(cells) {
        mean.iter_mut().zip(row).for_each(|(mean, z)| *mean += z.to_f64());
    }
    for row in surface.chunks_exact_mut(cells) {
        for (z, mean) in row.iter_mut().zip(&mean) {
            *z -= T::from_f64(mean / HOURS as f64);
        }
    }
}
