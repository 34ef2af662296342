//! Adaptive transport maps: monotone triangular maps whose terms are chosen one by one (Baptista, Marzouk, Zahm).
//!
//! Component k carries x_k, given y and the variables before it, to a standard Gaussian z_k = S_k(y, x_1..x_k):
//!
//! S_k = f_k(…, 0) + ∫₀^{x_k} g(∂_k f_k(…, t)) dt,   g(s) = log(1 + 2^s)/log 2 > 0,   f_k = Σ_α c_α Π_j h_{α_j}
//!
//! with normalised Hermite polynomials h_d = He_d/√d! that continue linearly outside the 1 % and 99 % quantiles of each
//! column. ∂z/∂x is triangular, so log det ∂z/∂x = Σ_k log g(∂_k f_k), and the map is inverted one variable at a time.
//! Which α are there is learned: see `grow.rs`.

mod basis;
mod block;
mod grow;
mod line;
mod method;
mod objective;
mod terms;
#[cfg(test)]
mod tests;
mod train;

pub use method::AtmSettings;

use self::basis::Bounds;
use self::terms::{Component, Expansion, Layout, Scratch};
use super::batch::{EVALUATION_ROWS, check_batch, check_parameters, laid_out};
use super::{ConditionalMap, reference_density};
use crate::kernel::Real;
use crate::parallel::try_each_with;
use crate::{Error, Result};

/// An adaptive transport map with its parameters: sizes, quantiles, coefficients and multi-indices.
#[derive(Clone, Debug)]
pub(crate) struct AtmMap<T> {
    layout: Layout,
    parameters: Vec<T>,
}

impl AtmMap<f64> {
    /// From components and the bounds of each column of (y, x).
    fn from_components(given: usize, bounds: &[Bounds], components: &[Expansion]) -> Self {
        let (layout, parameters) = Layout::encode(given, bounds, components);
        Self { layout, parameters }
    }
}

impl<T: Real> AtmMap<T> {
    fn from_parameters(layout: Layout, parameters: Vec<T>) -> Result<Self> {
        check_parameters("transport map parameters", layout.parameters(), parameters.len())?;
        Ok(Self { layout, parameters })
    }

    fn cast<U: Real>(&self) -> AtmMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        AtmMap { layout: self.layout.clone(), parameters }
    }

    /// The components and bounds that the parameters stand for.
    fn decode(&self) -> Result<(Vec<Component>, Vec<Bounds>)> {
        self.layout.decode(&self.parameters)
    }

    /// Runs `row` on every row (y, x) in double precision, with a scratch and that row's part of the outputs; it returns the
    /// log density there, which may be −∞ far out. The first row at which it is no number is an error.
    fn each_row<O: Send>(
        &self,
        x: &[T],
        y: &[T],
        outputs: Vec<O>,
        row: impl Fn(&[Component], &[Bounds], &[f64], &mut Scratch, O) -> f64 + Sync,
    ) -> Result<()> {
        let (n, m) = (self.layout.target, self.layout.given);
        check_batch(x, y, n, m)?;
        let (components, bounds) = self.decode()?;
        let mut outputs = outputs.into_iter();
        let rows = outputs.len();
        let blocks = (0..rows).step_by(EVALUATION_ROWS).map(|first| {
            let own: Vec<O> = outputs.by_ref().take(EVALUATION_ROWS).collect();
            (first, own)
        });
        try_each_with(
            blocks,
            || (Scratch::default(), vec![0.0; m + n]),
            |(scratch, values), _, (first, outputs)| {
                for (b, output) in (first..).zip(outputs) {
                    let inputs = y[b * m..(b + 1) * m].iter().chain(&x[b * n..(b + 1) * n]);
                    values.iter_mut().zip(inputs).for_each(|(value, input)| *value = input.to_f64());
                    let density = row(&components, &bounds, values, scratch, output);
                    if !(density < f64::INFINITY) {
                        return Err(Error::Numerical(format!(
                            "row {}: the density cannot be computed (a value far outside the training data)",
                            b + 1
                        )));
                    }
                }
                Ok(())
            },
        )
    }
}

impl<T: Real> ConditionalMap<T> for AtmMap<T> {
    laid_out!(layout);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        let n = self.layout.target;
        let m = self.layout.given;
        let outputs: Vec<_> = z.chunks_exact_mut(n).zip(log_det).collect();
        self.each_row(x, y, outputs, |components, bounds, row, scratch, (z, log_det)| {
            *log_det = 0.0;
            let mut square = 0.0;
            for (k, (component, z)) in components.iter().zip(z).enumerate() {
                let value = component.line(row, bounds, scratch).at(row[m + k]);
                *z = T::from_f64(value.s);
                *log_det += value.slope.ln();
                square += value.s * value.s;
            }
            *log_det - square
        })
    }

    /// As from [`forward`](ConditionalMap::forward), but of z in double precision.
    fn log_density(&self, x: &[T], y: &[T], out: &mut [f64]) -> Result<()> {
        let (n, m) = (self.layout.target, self.layout.given);
        self.each_row(x, y, out.iter_mut().collect(), |components, bounds, row, scratch, out| {
            let (mut z, mut log_det) = (vec![0.0; n], 0.0);
            for (k, component) in components.iter().enumerate() {
                let value = component.line(row, bounds, scratch).at(row[m + k]);
                z[k] = value.s;
                log_det += value.slope.ln();
            }
            *out = reference_density(&z, log_det);
            *out
        })
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let (n, m) = (self.layout.target, self.layout.given);
        let outputs: Vec<_> = gradient.chunks_exact_mut(n).zip(out).collect();
        self.each_row(x, y, outputs, |components, bounds, row, scratch, (gradient, out)| {
            let (mut z, mut slopes, mut log_det) = (vec![0.0; n], vec![0.0; n], 0.0);
            for (k, component) in components.iter().enumerate() {
                let value = component.gradient(row, bounds, m, scratch, &mut slopes);
                z[k] = value.s;
                log_det += value.slope.ln();
            }
            *out = reference_density(&z, log_det);
            gradient.iter_mut().zip(&slopes).for_each(|(gradient, &slope)| *gradient = T::from_f64(slope));
            *out
        })
    }
}
