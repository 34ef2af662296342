//! The fit in closed form: ridge regression of the mean, the residuals' principal axes, and Newton for a varying spread.

use super::{GaussianMap, Layout};
use crate::kernel::dense::{multiply, positive_definite_solve, symmetric_eigen};
use crate::kernel::{Mat, MatRef};
use crate::map::ConditionalMap;
use crate::map::method::Training;
use crate::train::Dataset;
use crate::{Error, Result};

/// Ridge weights per row, of which validation rows choose one.
const RIDGES: [f64; 7] = [1e-9, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3];
/// Newton steps for the spread along one axis.
const NEWTON_STEPS: usize = 50;
/// Given variables from which on a regression is too much for a start.
const MOST_GIVEN: usize = 2000;
/// The smallest variance along an axis, in standardised units.
const LEAST_VARIANCE: f64 = 1e-12;

/// Rows in double precision.
pub(super) struct Rows {
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) count: usize,
}

impl Rows {
    pub(super) fn of(data: &Dataset, rows: &[u32]) -> Self {
        let take = |values: &[f32], width: usize| -> Vec<f64> {
            let row = |&row: &u32| &values[row as usize * width..(row as usize + 1) * width];
            rows.iter().flat_map(row).map(|&value| f64::from(value)).collect()
        };
        Self { x: take(&data.x, data.target), y: take(&data.y, data.given), count: rows.len() }
    }

    /// Mean negative log-likelihood under `map`.
    pub(super) fn nll(&self, map: &GaussianMap<f64>) -> Result<f64> {
        let mut density = vec![0.0; self.count];
        map.log_density(&self.x, &self.y, &mut density)?;
        Ok(-density.iter().sum::<f64>() / self.count as f64)
    }
}

/// A linear regression of the target on the given variables, for maps to start from.
pub(in crate::map) struct Regression {
    /// A, column-major: the mean of x is A y + b.
    pub(in crate::map) slopes: Vec<f64>,
    /// b.
    pub(in crate::map) shift: Vec<f64>,
    /// Σ^(−1/2) of the residuals, symmetric.
    pub(in crate::map) root_precision: Vec<f64>,
}

impl Regression {
    /// Fits the rows of a training, with the ridge that its validation rows prefer; none where it is singular, or the given
    /// variables are too many for a start.
    pub(in crate::map) fn fit(training: &Training<'_>) -> Result<Option<Self>> {
        let Training { data, train_rows, valid_rows, .. } = training;
        if data.given > MOST_GIVEN {
            return Ok(None);
        }
        let layout = Layout { target: data.target, given: data.given, varying: false };
        let (train, valid) = (Rows::of(data, train_rows), Rows::of(data, valid_rows));
        let map = match fit(layout, &train, &valid) {
            Ok((map, _)) => map,
            Err(Error::Numerical(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (n, parts) = (data.target, map.parts());
        let root_precision = (0..n * n)
            .map(|place| {
                let (i, j) = (place % n, place / n);
                (0..n).map(|k| parts.axes[i + k * n] * (-parts.spread[k]).exp() * parts.axes[j + k * n]).sum()
            })
            .collect();
        Ok(Some(Self { slopes: parts.mean.to_vec(), shift: parts.shift.to_vec(), root_precision }))
    }
}

/// The map that fits `train` best, its ridge chosen by `valid`, and the loss of `valid`.
pub(super) fn fit(layout: Layout, train: &Rows, valid: &Rows) -> Result<(GaussianMap<f64>, f64)> {
    let (n, m) = (layout.target, layout.given);
    let x = MatRef::from_row_major_slice(&train.x, train.count, n);
    // (y, 1), so that b is a column of the same product.
    let y = Mat::from_fn(train.count, m + 1, |row, j| if j < m { train.y[row * m + j] } else { 1.0 });
    let (square, cross) = (multiply(y.transpose(), y.as_ref()), multiply(y.transpose(), x));
    // Without given columns there is nothing to shrink.
    let ridges = if m == 0 { &RIDGES[..1] } else { &RIDGES };
    let mut best: Option<(GaussianMap<f64>, f64)> = None;
    for ridge in ridges {
        let penalised = Mat::from_fn(m + 1, m + 1, |i, j| {
            square[(i, j)] + if i == j && i < m { ridge * train.count as f64 } else { 0.0 }
        });
        let Some(coefficients) = positive_definite_solve(penalised.as_ref(), cross.as_ref()) else {
            continue;
        };
        let residuals = x - multiply(y.as_ref(), coefficients.as_ref());
        let map = of_residuals(layout, train, &coefficients, &residuals)?;
        // A spread that overflows at a validation row is no candidate.
        let loss = match valid.nll(&map) {
            Err(Error::Numerical(_)) => continue,
            loss => loss?,
        };
        if loss.is_finite() && best.as_ref().is_none_or(|(_, least)| loss < *least) {
            best = Some((map, loss));
        }
    }
    best.ok_or_else(|| {
        Error::Numerical("the regression of the target on the given columns is singular".to_owned())
    })
}

fn of_residuals(
    layout: Layout,
    train: &Rows,
    coefficients: &Mat<f64>,
    residuals: &Mat<f64>,
) -> Result<GaussianMap<f64>> {
    let (n, m) = (layout.target, layout.given);
    let covariance = {
        let mut square = multiply(residuals.transpose(), residuals.as_ref());
        for i in 0..n {
            for j in 0..n {
                square[(i, j)] *= 1.0 / train.count as f64;
            }
        }
        square
    };
    let failed = || Error::Numerical("the covariance of the residuals has no eigenvectors".to_owned());
    let (eigenvalues, axes) = symmetric_eigen(covariance.as_ref()).ok_or_else(failed)?;
    let along = multiply(residuals.as_ref(), axes.as_ref());
    let mut parameters = Vec::with_capacity(layout.parameters());
    for j in 0..=m {
        parameters.extend((0..n).map(|i| coefficients[(j, i)]));
    }
    for j in 0..n {
        parameters.extend((0..n).map(|i| axes[(i, j)]));
    }
    let variances: Vec<f64> = (0..n).map(|i| eigenvalues[i].max(LEAST_VARIANCE)).collect();
    match layout.varying {
        false => parameters.extend(variances.iter().map(|variance| 0.5 * variance.ln())),
        true => {
            let spreads: Vec<Vec<f64>> = (0..n)
                .map(|i| {
                    let along: Vec<f64> = (0..train.count).map(|row| along[(row, i)]).collect();
                    Spread { along: &along, y: &train.y, given: m }.minimise(variances[i])
                })
                .collect();
            for j in (0..=m).rev().take(1).chain(0..m) {
                parameters.extend(spreads.iter().map(|spread| spread[j]));
            }
        }
    }
    GaussianMap::from_parameters(layout, parameters)
}

/// The loss of the spread along one axis: the mean of s + ½ u² e^{−2s} over rows, with s = C y + c. It is convex in w = (C, c).
pub(super) struct Spread<'a> {
    /// u, the residuals along the axis.
    pub(super) along: &'a [f64],
    pub(super) y: &'a [f64],
    pub(super) given: usize,
}

impl Spread<'_> {
    fn feature(&self, row: usize, j: usize) -> f64 {
        if j < self.given { self.y[row * self.given + j] } else { 1.0 }
    }

    fn linear(&self, w: &[f64], row: usize) -> f64 {
        (0..=self.given).map(|j| w[j] * self.feature(row, j)).sum()
    }

    pub(super) fn loss(&self, w: &[f64]) -> f64 {
        let rows = self.along.iter().enumerate().map(|(row, u)| {
            let s = self.linear(w, row);
            s + 0.5 * u * u * (-2.0 * s).exp()
        });
        // The same small ridge as the mean keeps directions without information at rest.
        let ridge = 0.5 * RIDGES[2] * w[..self.given].iter().map(|w| w * w).sum::<f64>();
        rows.sum::<f64>() / self.along.len() as f64 + ridge
    }

    /// The gradient in w, and the lower triangle of the Hessian.
    pub(super) fn derivatives(&self, w: &[f64]) -> (Mat<f64>, Mat<f64>) {
        let (m, count) = (self.given, self.along.len() as f64);
        let mut gradient = Mat::<f64>::zeros(m + 1, 1);
        let mut hessian = Mat::<f64>::zeros(m + 1, m + 1);
        for (row, u) in self.along.iter().enumerate() {
            let heat = u * u * (-2.0 * self.linear(w, row)).exp();
            for j in 0..=m {
                let of_j = self.feature(row, j);
                gradient[(j, 0)] += (1.0 - heat) * of_j / count;
                for i in j..=m {
                    hessian[(i, j)] += 2.0 * heat * of_j * self.feature(row, i) / count;
                }
            }
        }
        for j in 0..m {
            hessian[(j, j)] += RIDGES[2];
            gradient[(j, 0)] += RIDGES[2] * w[j];
        }
        (gradient, hessian)
    }

    /// The w of the least loss, by damped Newton steps from a constant spread of this variance.
    pub(super) fn minimise(&self, variance: f64) -> Vec<f64> {
        let m = self.given;
        let mut w = vec![0.0; m + 1];
        w[m] = 0.5 * variance.ln();
        let mut value = self.loss(&w);
        for _ in 0..NEWTON_STEPS {
            let (gradient, mut hessian) = self.derivatives(&w);
            hessian[(m, m)] += 1e-9;
            let Some(step) = positive_definite_solve(hessian.as_ref(), gradient.as_ref()) else { break };
            let slope: f64 = (0..=m).map(|j| step[(j, 0)] * gradient[(j, 0)]).sum();
            if slope < 1e-14 {
                break;
            }
            let mut size = 1.0;
            let moved = loop {
                let moved: Vec<f64> = (0..=m).map(|j| w[j] - size * step[(j, 0)]).collect();
                let tried = self.loss(&moved);
                if tried <= value - 1e-4 * size * slope {
                    break Some((moved, tried));
                }
                size *= 0.5;
                if size < 1e-8 {
                    break None;
                }
            };
            let Some((moved, tried)) = moved else { break };
            (w, value) = (moved, tried);
        }
        w
    }
}
