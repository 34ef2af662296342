//! Whitening of the target columns: from correlated columns t to uncorrelated variables w of variance one, and back.
//!
//! With the covariance Σₖ λₖ vₖ vₖᵀ of the training rows about their mean μ,
//!
//! ```text
//! wₖ = vₖᵀ(t − μ)/sₖ,   t = μ + Σₖ sₖ wₖ vₖ,   log|det ∂w/∂t| = −Σₖ ln sₖ
//! ```
//!
//! sₖ = √λₖ, but at least a millionth of s₁: columns that depend on one another have directions without variance, which
//! the map then sees as nearly constant. All directions are kept, so densities in the user's units stay exact.

use super::exact;
use super::pca::accumulate;
use crate::kernel::Mat;
use crate::kernel::eigen::{sign_of, symmetric_eigen};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Rows that enter the covariance by one matrix product.
const BLOCK: usize = 256;
/// The smallest sₖ, as a part of s₁.
const FLOOR: f64 = 1e-6;

/// Which columns are whitened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Whiten {
    /// None: each column is centred and scaled by itself.
    #[default]
    None,
    /// The target columns, together.
    Target,
}

impl Whiten {
    /// Whether nothing is whitened.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl std::fmt::Display for Whiten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_none() { "none" } else { "target" })
    }
}

impl std::str::FromStr for Whiten {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "target" => Ok(Self::Target),
            _ => Err(Error::setting("whiten", format!("{text:?} is not one of none, target"))),
        }
    }
}

/// A fitted whitening.
///
/// The directions are not written by serde: they belong into a binary tensor of the model file, taken from
/// [`directions`](Self::directions) and put back by [`set_directions`](Self::set_directions).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Whitening {
    /// μ.
    #[serde(with = "exact::list")]
    mean: Vec<f64>,
    /// sₖ, largest first.
    #[serde(with = "exact::list")]
    deviations: Vec<f64>,
    /// vₖ, one after the other.
    #[serde(skip)]
    directions: Vec<f64>,
}

impl Whitening {
    /// From `count` rows of `dim` values, which `read(index, row)` writes.
    pub(super) fn fit(
        count: usize,
        dim: usize,
        mut read: impl FnMut(usize, &mut [f64]) -> Result<()>,
    ) -> Result<Self> {
        let mut row = vec![0.0; dim];
        let mut mean = vec![0.0; dim];
        for index in 0..count {
            read(index, &mut row)?;
            let weight = 1.0 / (index + 1) as f64;
            mean.iter_mut().zip(&row).for_each(|(mean, t)| *mean += (t - *mean) * weight);
        }
        let mut covariance = Mat::<f64>::zeros(dim, dim);
        let mut table = Mat::<f64>::zeros(dim, BLOCK.min(count));
        for first in (0..count).step_by(BLOCK) {
            let rows = BLOCK.min(count - first);
            for offset in 0..rows {
                let column = table.col_as_slice_mut(offset);
                read(first + offset, column)?;
                column.iter_mut().zip(&mean).for_each(|(t, mean)| *t -= mean);
            }
            let block = table.subcols(0, rows);
            accumulate(&mut covariance, block, block.transpose(), 1.0 / count as f64);
        }
        let found = symmetric_eigen(covariance.as_ref())
            .filter(|(values, _)| values[0] > 0.0 && values[0].is_finite());
        let Some((values, vectors)) = found else {
            return Err(Error::Numerical(
                "the covariance of the target columns cannot be decomposed: do without `whiten`".to_owned(),
            ));
        };
        let mut directions = Vec::with_capacity(dim * dim);
        for k in 0..dim {
            let vector = vectors.col_as_slice(k);
            let sign = sign_of(vector);
            directions.extend(vector.iter().map(|v| sign * v));
        }
        // An eigenvalue is off by rounding of the largest one; the variance of the rows along its direction is not.
        let mut variances = vec![0.0; dim];
        for index in 0..count {
            read(index, &mut row)?;
            row.iter_mut().zip(&mean).for_each(|(t, mean)| *t -= mean);
            for (variance, direction) in variances.iter_mut().zip(directions.chunks_exact(dim)) {
                *variance += dot(direction, &row).powi(2) / count as f64;
            }
        }
        let floor = FLOOR * values[0].sqrt();
        let deviations = variances.iter().map(|variance| variance.sqrt().max(floor)).collect();
        Ok(Self { mean, deviations, directions })
    }

    /// The number of columns.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// sₖ, largest first.
    pub fn deviations(&self) -> &[f64] {
        &self.deviations
    }

    /// vₖ, one after the other.
    pub fn directions(&self) -> &[f64] {
        &self.directions
    }

    /// Puts back the directions after reading a model file.
    pub fn set_directions(&mut self, directions: Vec<f64>) {
        self.directions = directions;
    }

    /// log|det ∂w/∂t|.
    pub(super) fn log_det(&self) -> f64 {
        -self.deviations.iter().map(|deviation| deviation.ln()).sum::<f64>()
    }

    /// t becomes w.
    pub(super) fn forward(&self, values: &mut [f64]) {
        let centred: Vec<f64> = values.iter().zip(&self.mean).map(|(t, mean)| t - mean).collect();
        for ((w, direction), deviation) in values.iter_mut().zip(self.each()).zip(&self.deviations) {
            *w = dot(direction, &centred) / deviation;
        }
    }

    /// t for w.
    pub(super) fn inverse(&self, w: &[f64]) -> Vec<f64> {
        let mut t = self.mean.clone();
        for ((w, direction), deviation) in w.iter().zip(self.each()).zip(&self.deviations) {
            t.iter_mut().zip(direction).for_each(|(t, v)| *t += w * deviation * v);
        }
        t
    }

    /// The gradient with respect to t becomes that with respect to w.
    pub(super) fn gradient_forward(&self, gradient: &mut [f64]) {
        let before = gradient.to_vec();
        for ((g, direction), deviation) in gradient.iter_mut().zip(self.each()).zip(&self.deviations) {
            *g = deviation * dot(direction, &before);
        }
    }

    /// The gradient with respect to w becomes that with respect to t.
    pub(super) fn gradient_back(&self, gradient: &mut [f64]) {
        let before = gradient.to_vec();
        gradient.fill(0.0);
        for ((g, direction), deviation) in before.iter().zip(self.each()).zip(&self.deviations) {
            gradient.iter_mut().zip(direction).for_each(|(out, v)| *out += g / deviation * v);
        }
    }

    fn each(&self) -> std::slice::ChunksExact<'_, f64> {
        self.directions.chunks_exact(self.dim().max(1))
    }

    /// What a damaged or hostile file may have got wrong.
    pub(super) fn validate(&self, columns: usize) -> Result<()> {
        let refuse = |problem: &str| Err(Error::Domain(format!("the whitening {problem}; it is damaged")));
        let n = self.dim();
        if n != columns || self.deviations.len() != n || Some(self.directions.len()) != n.checked_mul(n) {
            return refuse("does not have as many directions as there are target columns");
        }
        if !self.mean.iter().all(|mean| mean.is_finite()) {
            return refuse("has a mean that is not finite");
        }
        if !self.deviations.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0) {
            return refuse("has a standard deviation that is not positive and finite");
        }
        for (k, v) in self.each().enumerate() {
            for (l, other) in self.each().take(k + 1).enumerate() {
                let expected = if k == l { 1.0 } else { 0.0 };
                if !((dot(v, other) - expected).abs() < 1e-8) {
                    return refuse("has directions that are not orthonormal");
                }
            }
        }
        Ok(())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
