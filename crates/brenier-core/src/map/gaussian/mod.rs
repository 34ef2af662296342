//! The conditional Gaussian: x | y ~ N(μ(y), Σ(y)) with an affine mean, fitted in closed form.
//!
//! With V orthogonal, μ(y) = A y + b and s(y) = c + C y (C = 0 where the covariance is constant),
//!
//! z = V diag(e^{−s(y)}) Vᵀ (x − μ(y)),   log det ∂z/∂x = −Σᵢ sᵢ(y) + 2 log |det V|,
//!
//! is the gradient of a convex quadratic in x for every y, hence the Brenier map of N(μ(y), V diag(e^{2s(y)}) Vᵀ) onto the
//! reference. It is what a method without a network can do: an honest baseline, and exact where the posterior is Gaussian.

mod fit;
mod method;
#[cfg(test)]
mod tests;

pub(super) use fit::Regression;
pub use method::{Covariance, GaussianSettings};

use super::batch::{EVALUATION_ROWS, check_batch, check_parameters, laid_out};
use super::{ConditionalMap, Constraint, TensorSpec};
use crate::kernel::{Mat, Real, dense};
use crate::parallel::each;
use crate::{Error, Result};

/// Where the tensors are in the flat parameter vector; matrices are column-major.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    target: usize,
    given: usize,
    /// Whether s depends on y.
    varying: bool,
}

impl Layout {
    /// Without given variables the covariance is constant.
    fn new(target: usize, given: usize, covariance: Covariance) -> Self {
        Self { target, given, varying: covariance == Covariance::LogAffine && given > 0 }
    }

    /// (name, rows, columns or none for a vector) of A, b, V, c and C, in their order.
    fn parts(self) -> Vec<(&'static str, usize, Option<usize>)> {
        let (n, m) = (self.target, self.given);
        let mut parts = vec![("A", n, Some(m)), ("b", n, None), ("V", n, Some(n)), ("c", n, None)];
        if self.varying {
            parts.push(("C", n, Some(m)));
        }
        parts
    }

    fn parameters(self) -> usize {
        self.parts().iter().map(|(_, rows, cols)| rows * cols.unwrap_or(1)).sum()
    }

    fn tensors(self) -> Vec<TensorSpec> {
        let mut offset = 0;
        let spec = |(name, rows, cols): (&str, usize, Option<usize>)| {
            let place = offset;
            offset += rows * cols.unwrap_or(1);
            TensorSpec {
                name: name.to_owned(),
                rows,
                cols,
                offset: place,
                stride: rows,
                constraint: Constraint::Free,
            }
        };
        self.parts().into_iter().map(spec).collect()
    }
}

/// A conditional Gaussian with its parameters.
#[derive(Clone, Debug)]
pub struct GaussianMap<T> {
    layout: Layout,
    parameters: Vec<T>,
}

/// The tensors in place of the formulas.
struct Parts<'a, T> {
    mean: &'a [T],
    shift: &'a [T],
    axes: &'a [T],
    spread: &'a [T],
    growth: Option<&'a [T]>,
}

impl<T: Real> GaussianMap<T> {
    /// The identity: A, b, c and C are zero, V = I.
    pub fn initial(target: usize, given: usize, covariance: Covariance) -> Self {
        let layout = Layout::new(target, given, covariance);
        let mut parameters = vec![T::ZERO; layout.parameters()];
        let axes = target * (given + 1);
        (0..target).for_each(|i| parameters[axes + i * (target + 1)] = T::ONE);
        Self { layout, parameters }
    }

    fn from_parameters(layout: Layout, parameters: Vec<T>) -> Result<Self> {
        check_parameters("Gaussian parameters", layout.parameters(), parameters.len())?;
        Ok(Self { layout, parameters })
    }

    fn cast<U: Real>(&self) -> GaussianMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        GaussianMap { layout: self.layout, parameters }
    }

    fn parts(&self) -> Parts<'_, T> {
        let (n, m) = (self.layout.target, self.layout.given);
        let (mean, rest) = self.parameters.split_at(n * m);
        let (shift, rest) = rest.split_at(n);
        let (axes, rest) = rest.split_at(n * n);
        let (spread, growth) = rest.split_at(n);
        Parts { mean, shift, axes, spread, growth: self.layout.varying.then_some(growth) }
    }

    /// μ(y) and s(y) of one row.
    fn moments(&self, parts: &Parts<'_, T>, y: &[T], mean: &mut [T], spread: &mut [T]) {
        let n = self.layout.target;
        mean.copy_from_slice(parts.shift);
        spread.copy_from_slice(parts.spread);
        for (j, &y) in y.iter().enumerate() {
            for i in 0..n {
                mean[i] += parts.mean[i + j * n] * y;
                if let Some(growth) = parts.growth {
                    spread[i] += growth[i + j * n] * y;
                }
            }
        }
    }

    /// log |det V|: 0 up to the rounding of V.
    fn log_volume(&self) -> f64 {
        let n = self.layout.target;
        let axes = self.parts().axes;
        dense::determinant(Mat::from_fn(n, n, |i, j| axes[i + j * n].to_f64()).as_ref()).abs().ln()
    }

    /// z, log det and, where `slope` has room, −(∂z/∂x)ᵀz of each row.
    fn evaluate(
        &self,
        x: &[T],
        y: &[T],
        z: &mut [T],
        log_det: &mut [f64],
        slope: Option<&mut [T]>,
    ) -> Result<()> {
        let (n, m) = (self.layout.target, self.layout.given);
        check_batch(x, y, n, m)?;
        let (parts, volume) = (self.parts(), 2.0 * self.log_volume());
        let mut none = Vec::new();
        let wanted = slope.is_some();
        let slope = slope.unwrap_or(&mut none);
        let pieces: Vec<&mut [T]> = match wanted {
            true => slope.chunks_mut(EVALUATION_ROWS * n).collect(),
            false => (0..log_det.len().div_ceil(EVALUATION_ROWS)).map(|_| <&mut [T]>::default()).collect(),
        };
        let outputs = z.chunks_mut(EVALUATION_ROWS * n).zip(log_det.chunks_mut(EVALUATION_ROWS));
        each(outputs.zip(pieces), |place, ((z, log_det), slope)| {
            let [mut mean, mut spread, mut along] = [(); 3].map(|()| vec![T::ZERO; n]);
            for (b, log_det) in log_det.iter_mut().enumerate() {
                let row = place * EVALUATION_ROWS + b;
                let x = &x[row * n..(row + 1) * n];
                self.moments(&parts, &y[row * m..(row + 1) * m], &mut mean, &mut spread);
                for (mean, &x) in mean.iter_mut().zip(x) {
                    *mean = x - *mean;
                }
                let z = &mut z[b * n..(b + 1) * n];
                stretch(parts.axes, &spread, &mean, &mut along, z);
                *log_det = volume - spread.iter().map(|s| s.to_f64()).sum::<f64>();
                if wanted {
                    let slope = &mut slope[b * n..(b + 1) * n];
                    stretch(parts.axes, &spread, z, &mut along, slope);
                    slope.iter_mut().for_each(|slope| *slope = T::ZERO - *slope);
                }
            }
        });
        Ok(())
    }
}

/// An error that names the first row whose image is not finite: e^{−s(y)} overflows for y far enough out.
fn check_finite<T: Real>(z: &[T], log_det: &[f64], n: usize) -> Result<()> {
    let finite = |(z, log_det): (&[T], &f64)| log_det.is_finite() && z.iter().all(|z| z.finite());
    match z.chunks_exact(n).zip(log_det).position(|row| !finite(row)) {
        None => Ok(()),
        Some(row) => Err(Error::Numerical(format!(
            "row {}: the image under the map is not finite (a value far outside the training data)",
            row + 1
        ))),
    }
}

/// out = V diag(e^{−s}) Vᵀ x.
fn stretch<T: Real>(axes: &[T], spread: &[T], x: &[T], along: &mut [T], out: &mut [T]) {
    let n = x.len();
    for (j, along) in along.iter_mut().enumerate() {
        let dot: T = (0..n).map(|i| axes[i + j * n] * x[i]).sum();
        *along = dot * T::from_f64((-spread[j].to_f64()).exp());
    }
    for (i, out) in out.iter_mut().enumerate() {
        *out = (0..n).map(|j| axes[i + j * n] * along[j]).sum();
    }
}

impl GaussianMap<f64> {
    /// x with V diag(e^{−s}) Vᵀ (x − μ) = z, for every row.
    fn invert(&self, z: &[f64], given: &[f64], observation: &[u32]) -> Vec<f64> {
        let (n, m) = (self.layout.target, self.layout.given);
        let parts = self.parts();
        let inverse = dense::inverse(Mat::from_fn(n, n, |i, j| parts.axes[i + j * n]).as_ref());
        let mut x = vec![0.0; z.len()];
        let blocks = x.chunks_mut(EVALUATION_ROWS * n).zip(z.chunks(EVALUATION_ROWS * n));
        each(blocks.zip(observation.chunks(EVALUATION_ROWS)), |_, ((x, z), observation)| {
            let [mut mean, mut spread, mut along] = [(); 3].map(|()| vec![0.0; n]);
            for ((x, z), &row) in x.chunks_exact_mut(n).zip(z.chunks_exact(n)).zip(observation) {
                let y = &given[row as usize * m..(row as usize + 1) * m];
                self.moments(&parts, y, &mut mean, &mut spread);
                for j in 0..n {
                    along[j] = spread[j].exp() * (0..n).map(|i| inverse[(j, i)] * z[i]).sum::<f64>();
                }
                for (i, x) in x.iter_mut().enumerate() {
                    *x = mean[i] + (0..n).map(|j| inverse[(j, i)] * along[j]).sum::<f64>();
                }
            }
        });
        x
    }
}

impl<T: Real> ConditionalMap<T> for GaussianMap<T> {
    laid_out!(layout);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        self.evaluate(x, y, z, log_det, None)?;
        check_finite(z, log_det, self.layout.target)
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let n = self.layout.target;
        let mut z = vec![T::ZERO; x.len()];
        self.evaluate(x, y, &mut z, out, Some(gradient))?;
        check_finite(&z, out, n)?;
        for (out, z) in out.iter_mut().zip(z.chunks_exact(n)) {
            *out = super::reference_density(z, *out);
        }
        Ok(())
    }
}
