//! The prior of the depths: x ~ N(10, Σ) with Σᵢⱼ = 15 exp(−(i − j)²/200), on its leading directions.
//!
//! Σ is singular in floating-point arithmetic (26 eigenvalues exceed 10⁻¹⁰ of the largest), so draws use its
//! eigenvectors: x = 10 + Σₖ √λₖ θₖ vₖ, θ ~ N(0, I), k = 1 … 32. What is left out has a standard deviation of less than a
//! hundredth of a millimetre.

use std::sync::LazyLock;

use super::kernel::CELLS;
use crate::kernel::Mat;
use crate::kernel::eigen::{sign_of, symmetric_eigen};
use crate::simulate::Prior;

/// Mean depth in metres.
pub const MEAN: f64 = 10.0;
/// Variance of a depth, in square metres.
pub const VARIANCE: f64 = 15.0;
/// Correlation length in cells.
const LENGTH: f64 = 10.0;
/// How many modes a draw has.
pub const MODES: usize = 32;

struct Decomposition {
    deviations: Vec<f64>,
    /// One direction after the other.
    directions: Vec<f64>,
}

static DECOMPOSITION: LazyLock<Decomposition> = LazyLock::new(|| {
    let covariance = Mat::<f64>::from_fn(CELLS, CELLS, |i, j| {
        let apart = i as f64 - j as f64;
        VARIANCE * (-apart * apart / (2.0 * LENGTH * LENGTH)).exp()
    });
    let (values, vectors) = symmetric_eigen(covariance.as_ref()).expect("a constant matrix, tested");
    let mut directions = Vec::with_capacity(CELLS * MODES);
    for k in 0..MODES {
        let vector = vectors.col_as_slice(k);
        let sign = sign_of(vector);
        directions.extend(vector.iter().map(|v| sign * v));
    }
    Decomposition { deviations: values[..MODES].iter().map(|value| value.sqrt()).collect(), directions }
});

/// √λₖ in metres, largest first.
pub fn deviations() -> &'static [f64] {
    &DECOMPOSITION.deviations
}

/// The direction vₖ of mode k, from 0.
pub fn direction(k: usize) -> &'static [f64] {
    &DECOMPOSITION.directions[k * CELLS..][..CELLS]
}

/// The depths of the modes θ, which may be fewer than [`MODES`].
pub fn of_modes(theta: &[f64], depths: &mut [f64]) {
    depths.fill(MEAN);
    for (k, theta) in theta.iter().enumerate() {
        let step = theta * deviations()[k];
        depths.iter_mut().zip(direction(k)).for_each(|(depth, v)| *depth += step * v);
    }
}

/// The first modes θ of the depths, as many as `theta` has room for.
pub fn to_modes(depths: &[f64], theta: &mut [f64]) {
    for (k, theta) in theta.iter_mut().enumerate() {
        let sum: f64 = depths.iter().zip(direction(k)).map(|(depth, v)| (depth - MEAN) * v).sum();
        *theta = sum / deviations()[k];
    }
}

/// sⱼ = √(λⱼ/15): a mode in the units of the published tables is sⱼ θⱼ.
///
/// Those tables standardise each depth and project onto eigenvectors of the correlation matrix without scaling again, so
/// that NLL(published units) = NLL(θ) + Σⱼ log sⱼ.
pub fn published_scale(mode: usize) -> f64 {
    deviations()[mode] / VARIANCE.sqrt()
}

/// Σⱼ log sⱼ over the first `modes`.
pub fn published_log_scale(modes: usize) -> f64 {
    (0..modes).map(|mode| published_scale(mode).ln()).sum()
}

/// The prior over the columns `x1` … `x100`.
pub(super) fn prior() -> Prior {
    let names = (1..=CELLS).map(|i| format!("x{i}")).collect();
    let Decomposition { deviations, directions } = &*DECOMPOSITION;
    let identity = format!("shallow water depths {MEAN} {VARIANCE} {LENGTH} {MODES}");
    Prior::on_modes(names, vec![MEAN; CELLS], deviations.clone(), directions.clone(), identity)
}
