//! Principal components of the standardised given columns, scaled to unit variance.
//!
//! For standardised rows tᵢ with mean μ, the covariance C = (1/N) Σᵢ (tᵢ − μ)(tᵢ − μ)ᵀ = Σₖ λₖ vₖ vₖᵀ, λ₁ ≥ λ₂ ≥ …;
//! the scores are sₖ = vₖᵀ(t − μ)/√λₖ, of mean 0 and covariance I over the training rows.

use super::leading::LeadingSettings;
use super::moments::SecondMoments;
use super::{check_matrix, exact};
use crate::kernel::{Accum, Mat, MatRef, Real, dense};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How many rows enter the covariance by one matrix product.
const BLOCK: usize = 256;

/// Tables with at least this many columns, and rows, are decomposed by [`SecondMoments`] where few components are asked for.
const MANY: usize = 2048;
/// How many of their rows are added at a time.
const MANY_ROWS: usize = 1024;

/// How many principal components to keep: a count (`8`) or a fraction of the variance (`0.99`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum PcaSettings {
    /// This many components.
    Count(usize),
    /// The fewest components that explain this fraction of the variance, in (0, 1].
    Variance(f64),
}

impl PcaSettings {
    /// Checks the count or fraction.
    pub fn validate(&self) -> Result<()> {
        match *self {
            Self::Count(0) => Err(Error::setting("pca", "0 components leave nothing: ask for at least 1")),
            Self::Variance(fraction) if !(fraction > 0.0 && fraction <= 1.0) => Err(Error::setting(
                "pca",
                format!(
                    "the fraction of variance {fraction:?} should be above 0 and at most 1; a number of \
                         components has no decimal point"
                ),
            )),
            Self::Count(_) | Self::Variance(_) => Ok(()),
        }
    }
}

impl fmt::Display for PcaSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            // Debug keeps the decimal point of 1.0, which tells a fraction from a count.
            Self::Variance(fraction) => write!(f, "{fraction:?}"),
        }
    }
}

impl FromStr for PcaSettings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let settings = match (text.parse(), text.parse()) {
            (Ok(count), _) => Self::Count(count),
            (_, Ok(fraction)) => Self::Variance(fraction),
            _ => {
                return Err(Error::setting(
                    "pca",
                    format!(
                        "{text:?} should be a number of components, as in 8, or a fraction of the variance, \
                             as in 0.99"
                    ),
                ));
            }
        };
        settings.validate()?;
        Ok(settings)
    }
}

/// A fitted projection: sₖ = vₖᵀ(t − μ)/√λₖ.
///
/// The components vₖ are not written by serde: they belong into a binary tensor of the model file, taken from
/// [`components`](Self::components) and put back by [`set_components`](Self::set_components).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pca {
    /// μ, one entry per input.
    #[serde(with = "exact::list")]
    mean: Vec<f64>,
    /// √λₖ, largest first.
    #[serde(with = "exact::list")]
    deviations: Vec<f64>,
    /// Σ λₖ over those kept / Σ λₖ over all.
    #[serde(with = "exact")]
    explained: f64,
    /// One row per input, one column per component, rows contiguous: a projection then needs no scratch space.
    #[serde(skip)]
    components: Vec<f64>,
}

impl Pca {
    /// The components of `count` rows of `dim` values, which `read(index, row)` writes.
    pub(super) fn fit(
        settings: PcaSettings,
        count: usize,
        dim: usize,
        mut read: impl FnMut(usize, &mut [f64]) -> Result<()>,
    ) -> Result<Self> {
        settings.validate()?;
        if dim == 0 || count == 0 {
            return Err(Error::setting("pca", "there are no given columns to project; drop `pca`"));
        }
        let mut row = vec![0.0; dim];
        let mut mean = vec![0.0; dim];
        for index in 0..count {
            read(index, &mut row)?;
            let weight = 1.0 / (index + 1) as f64;
            mean.iter_mut().zip(&row).for_each(|(mean, t)| *mean += (t - *mean) * weight);
        }
        let mut centred = |index: usize, row: &mut [f64]| -> Result<()> {
            read(index, row)?;
            row.iter_mut().zip(&mean).for_each(|(t, mean)| *t -= mean);
            Ok(())
        };
        if let PcaSettings::Count(kept) = settings
            && dim >= MANY
            && count >= dim
            && kept <= dim / 4
            && let Some(found) = Self::of_many(kept, count, &mean, &mut centred)?
        {
            return Ok(found);
        }
        // The nonzero eigenvalues of XXᵀ and XᵀX are the same: decompose the smaller.
        let few_rows = count < dim;
        let mut table = Mat::<f64>::zeros(dim, if few_rows { count } else { BLOCK.min(count) });
        let order = dim.min(count);
        let mut covariance = Mat::<f64>::zeros(order, order);
        let weight = 1.0 / count as f64;
        if few_rows {
            for index in 0..count {
                centred(index, table.col_as_slice_mut(index))?;
            }
            accumulate(&mut covariance, table.transpose(), table.as_ref(), weight);
        } else {
            for first in (0..count).step_by(BLOCK) {
                let rows = BLOCK.min(count - first);
                for offset in 0..rows {
                    centred(first + offset, table.col_as_slice_mut(offset))?;
                }
                let block = table.subcols(0, rows);
                accumulate(&mut covariance, block, block.transpose(), weight);
            }
        }
        let total: f64 = (0..order).map(|i| covariance[(i, i)]).sum();
        if !total.is_finite() {
            return Err(Error::Numerical(
                "the covariance of the given columns overflows: choose the scaling standard, or drop `pca`"
                    .to_owned(),
            ));
        }
        let (values, vectors) = decompose(covariance)?;
        let kept = choose(settings, &values, total, dim.max(count))?;
        let leading = vectors.get(.., ..kept);
        let vectors = if few_rows {
            // vₖ = X uₖ / ‖X uₖ‖.
            let mut vectors = Mat::<f64>::zeros(dim, kept);
            f64::matmul(vectors.as_mut(), Accum::Replace, table.as_ref(), leading);
            vectors
        } else {
            leading.to_owned()
        };
        let mut components = vec![0.0; dim * kept];
        for k in 0..kept {
            let vector = vectors.col_as_slice(k);
            let norm = vectors.col(k).norm_l2();
            // An eigenvector's sign is arbitrary: the entry of largest magnitude, the first of equals, is positive.
            let largest = vector.iter().fold(0.0_f64, |best, &v| if v.abs() > best.abs() { v } else { best });
            for (j, v) in vector.iter().enumerate() {
                components[j * kept + k] = v / norm.copysign(largest);
            }
        }
        let explained = (values[..kept].iter().sum::<f64>() / total).min(1.0);
        let deviations = values[..kept].iter().map(|value| value.sqrt()).collect();
        Ok(Self { mean, deviations, explained, components })
    }

    /// The components of many columns, from sums in single precision over blocks of rows, by subspace iteration; `None` where the last
    /// of them is so small that its variance would be rounding.
    fn of_many(
        kept: usize,
        count: usize,
        mean: &[f64],
        mut centred: impl FnMut(usize, &mut [f64]) -> Result<()>,
    ) -> Result<Option<Self>> {
        let dim = mean.len();
        let mut moments = SecondMoments::new(dim);
        let mut row = vec![0.0; dim];
        let mut block: Vec<f32> = Vec::with_capacity(MANY_ROWS * dim);
        for index in 0..count {
            centred(index, &mut row)?;
            block.extend(row.iter().map(|&t| t as f32));
            if block.len() == MANY_ROWS * dim || index + 1 == count {
                moments.add(&block);
                block.clear();
            }
        }
        // Rows are centred already, to double precision.
        let settings =
            LeadingSettings { components: kept, centred: false, tolerance: 1e-5, ..Default::default() };
        let leading = moments.leading(&settings)?;
        if !(leading.values[kept - 1] > 1e-5 * leading.values[0]) {
            return Ok(None);
        }
        let mut components = vec![0.0; dim * kept];
        for (k, vector) in leading.vectors.chunks_exact(dim).enumerate() {
            vector.iter().enumerate().for_each(|(j, &v)| components[j * kept + k] = f64::from(v));
        }
        let explained = leading.explained().min(1.0);
        let deviations = leading.values.iter().map(|value| value.sqrt()).collect();
        Ok(Some(Self { mean: mean.to_vec(), deviations, explained, components }))
    }

    /// The number of values projected.
    pub fn input_dim(&self) -> usize {
        self.mean.len()
    }

    /// The number of components kept.
    pub fn output_dim(&self) -> usize {
        self.deviations.len()
    }

    /// The fraction of the training rows' variance that the kept components explain, in (0, 1].
    pub fn explained_variance(&self) -> f64 {
        self.explained
    }

    /// √λₖ, the standard deviation of the training rows along each component, largest first.
    pub fn deviations(&self) -> &[f64] {
        &self.deviations
    }

    /// The unit vectors vₖ as the columns of a matrix of [`components_shape`](Self::components_shape), row-major.
    pub fn components(&self) -> &[f64] {
        &self.components
    }

    /// vₖ/√λₖ as the columns of a matrix like [`components`](Self::components).
    pub(super) fn weights(&self) -> Vec<f64> {
        let rows = self.components.chunks_exact(self.output_dim().max(1));
        rows.flat_map(|row| row.iter().zip(&self.deviations).map(|(v, deviation)| v / deviation)).collect()
    }

    /// Rows and columns of [`components`](Self::components): inputs and components kept.
    pub fn components_shape(&self) -> [usize; 2] {
        [self.input_dim(), self.output_dim()]
    }

    /// Puts back the components after reading a model file.
    pub fn set_components(&mut self, components: Vec<f64>) -> Result<()> {
        self.check_components(&components)?;
        self.components = components;
        Ok(())
    }

    /// Checks a projection read from a file, its components included.
    pub fn validate(&self) -> Result<()> {
        self.check_components(&self.components)?;
        let refuse = |problem: &str| Err(Error::Domain(format!("the PCA {problem}; it is damaged")));
        if self.output_dim() == 0 || self.output_dim() > self.input_dim() {
            return refuse("should keep at least one component and no more than there are columns");
        }
        if !self.mean.iter().all(|mean| mean.is_finite()) {
            return refuse("has a mean that is not finite");
        }
        if !self.deviations.iter().all(|deviation| deviation.is_finite() && *deviation > 0.0) {
            return refuse("has a standard deviation that is not positive and finite");
        }
        if !(self.explained > 0.0 && self.explained <= 1.0) {
            return refuse("explains a fraction of variance outside (0, 1]");
        }
        Ok(())
    }

    fn check_components(&self, components: &[f64]) -> Result<()> {
        check_matrix("PCA components", "the PCA has a component entry", self.components_shape(), components)
    }

    /// Starts a projection: `out` becomes zero.
    pub(super) fn begin(&self, out: &mut [f64]) -> Result<()> {
        if self.output_dim() == 0 || self.components.len() / self.output_dim() != self.input_dim() {
            return Err(Error::Shape {
                what: "PCA components",
                expected: format!("{} x {}", self.input_dim(), self.output_dim()),
                got: format!("{} values", self.components.len()),
            });
        }
        out.fill(0.0);
        Ok(())
    }

    /// Adds the contribution (tⱼ − μⱼ) vⱼₖ of input j to every score.
    pub(super) fn add(&self, j: usize, t: f64, out: &mut [f64]) {
        let entries = &self.components[j * self.output_dim()..][..self.output_dim()];
        let deviation = t - self.mean[j];
        out.iter_mut().zip(entries).for_each(|(out, entry)| *out += deviation * entry);
    }

    /// Ends a projection: divides by √λₖ.
    pub(super) fn finish(&self, out: &mut [f64]) {
        out.iter_mut().zip(&self.deviations).for_each(|(out, deviation)| *out /= deviation);
    }
}

/// Adds weight · lhs · rhs, a symmetric matrix, to the lower triangle of `sum`.
pub(super) fn accumulate(sum: &mut Mat<f64>, lhs: MatRef<'_, f64>, rhs: MatRef<'_, f64>, weight: f64) {
    f64::lower_matmul(sum.as_mut(), Accum::Add, lhs, rhs, weight);
}

/// Eigenvalues, largest first, and the eigenvectors in the same order, from the lower triangle.
fn decompose(matrix: Mat<f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let (mut values, vectors) = dense::symmetric_eigen(matrix.as_ref()).ok_or_else(|| {
        Error::Numerical(
            "the eigenvalues of the given columns' covariance did not converge: drop `pca`".to_owned(),
        )
    })?;
    values.reverse();
    Ok((values, vectors.as_ref().reverse_cols().to_owned()))
}

/// How many components to keep, given all eigenvalues in decreasing order.
fn choose(settings: PcaSettings, values: &[f64], total: f64, size: usize) -> Result<usize> {
    // Eigenvalues are known to about ε λ₁: smaller ones are zero, and no score can be scaled by them.
    let noise = values.first().map_or(0.0, |largest| largest * size as f64 * f64::EPSILON);
    let rank = values.iter().take_while(|&&value| value > noise && value.sqrt() > 0.0).count();
    if rank == 0 || total <= 0.0 {
        return Err(Error::setting(
            "pca",
            "the given columns do not vary over the training rows: there is nothing to project; drop `pca`",
        ));
    }
    match settings {
        PcaSettings::Count(count) if count > rank => Err(Error::setting(
            "pca",
            format!(
                "{count} components were asked for, but the given columns vary in only {rank} independent \
                 directions over the training rows: ask for at most {rank}"
            ),
        )),
        PcaSettings::Count(count) => Ok(count),
        PcaSettings::Variance(fraction) => {
            let mut sum = 0.0;
            let reached = values[..rank].iter().position(|value| {
                sum += value;
                sum >= fraction * total
            });
            Ok(reached.map_or(rank, |last| last + 1))
        }
    }
}
