//! The local stretching of a map x ↦ z, which certifies that it is one to one.

use crate::kernel::{Mat, dense};
use serde::Serialize;

use super::ConditionalMap;
use crate::parallel::results;
use crate::{Error, Result};

/// Evaluations that finite differences may take.
const DIFFERENCES: usize = 8192;
/// Step of the central differences, in standardised coordinates.
const STEP: f64 = 1e-4;

/// The local stretching of the map x ↦ z over some rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Certificate {
    /// Rows looked at.
    pub rows: usize,
    /// The smallest singular value of ∂z/∂x; of a symmetric ∂z/∂x (the gradient of a potential) the smallest
    /// eigenvalue, positive where the map is one to one.
    pub smallest: f64,
    /// The largest.
    pub largest: f64,
    /// The largest ratio of both at one row.
    pub condition: f64,
    /// A lower bound of the smallest value for all x and y, where the method has one.
    pub bound: Option<f64>,
    /// The largest difference between the map's log-determinant and that of finite differences, where these were taken.
    pub log_det_error: Option<f64>,
}

impl Certificate {
    /// From the symmetric matrices ∂z/∂x (n × n each) of some rows, and a bound for all where there is one.
    pub(crate) fn of_symmetric(matrices: &[f64], n: usize, bound: Option<f64>) -> Result<Self> {
        let (smallest, largest, condition) = extremes(matrices, n, eigenvalues)?;
        let rows = matrices.len() / (n * n);
        Ok(Self { rows, smallest, largest, condition, bound, log_det_error: None })
    }

    /// The worst of several, of which there is at least one.
    pub fn of_all(each: &[Self]) -> Self {
        let fold = |of: fn(&Self) -> f64, pick: fn(f64, f64) -> f64| each.iter().map(of).reduce(pick);
        let optional = |of: fn(&Self) -> Option<f64>, pick: fn(f64, f64) -> f64| {
            each.iter().map(of).collect::<Option<Vec<f64>>>()?.into_iter().reduce(pick)
        };
        Self {
            rows: each[0].rows,
            smallest: fold(|one| one.smallest, f64::min).unwrap_or(f64::NAN),
            largest: fold(|one| one.largest, f64::max).unwrap_or(f64::NAN),
            condition: fold(|one| one.condition, f64::max).unwrap_or(f64::NAN),
            bound: optional(|one| one.bound, f64::min),
            log_det_error: optional(|one| one.log_det_error, f64::max),
        }
    }

    /// From central differences, on as many of the rows as are affordable.
    pub(crate) fn by_differences(map: &dyn ConditionalMap<f64>, x: &[f64], y: &[f64]) -> Result<Self> {
        let (n, k) = (map.target_dim(), map.given_dim());
        let rows = (DIFFERENCES / (2 * n)).clamp(1, x.len() / n);
        let (x, y) = (&x[..rows * n], &y[..rows * k]);
        let mut jacobians = vec![0.0; rows * n * n];
        let mut ends = [vec![0.0; rows * n], vec![0.0; rows * n]];
        let mut log_det = vec![0.0; rows];
        for j in 0..n {
            for (end, step) in ends.iter_mut().zip([STEP, -STEP]) {
                let mut moved = x.to_vec();
                moved.iter_mut().skip(j).step_by(n).for_each(|x| *x += step);
                map.forward(&moved, y, end, &mut log_det)?;
            }
            for row in 0..rows {
                for i in 0..n {
                    let difference = ends[0][row * n + i] - ends[1][row * n + i];
                    jacobians[row * n * n + i + j * n] = difference / (2.0 * STEP);
                }
            }
        }
        let (smallest, largest, condition) = extremes(&jacobians, n, singular_values)?;
        map.forward(x, y, &mut ends[0], &mut log_det)?;
        let mut worst = 0.0;
        for (matrix, log_det) in jacobians.chunks_exact(n * n).zip(&log_det) {
            let sum: f64 = singular_values(matrix, n)?.iter().map(|value| value.ln()).sum();
            let error = (sum - log_det).abs();
            if !(error <= worst) {
                worst = error;
            }
        }
        Ok(Self { rows, smallest, largest, condition, bound: None, log_det_error: Some(worst) })
    }
}

/// Smallest and largest value of all n × n matrices, and the largest ratio within one.
fn extremes(
    matrices: &[f64],
    n: usize,
    values: fn(&[f64], usize) -> Result<Vec<f64>>,
) -> Result<(f64, f64, f64)> {
    let each = results(matrices.chunks_exact(n * n), |_, matrix| {
        let values = values(matrix, n)?;
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ok((low, high))
    });
    let each: Vec<(f64, f64)> = each.into_iter().collect::<Result<_>>()?;
    let low = each.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
    let high = each.iter().map(|pair| pair.1).fold(f64::NEG_INFINITY, f64::max);
    let condition = each.iter().map(|pair| pair.1 / pair.0.abs()).fold(0.0, f64::max);
    Ok((low, high, condition))
}

fn eigenvalues(matrix: &[f64], n: usize) -> Result<Vec<f64>> {
    let matrix = Mat::from_fn(n, n, |i, j| matrix[i + j * n]);
    let failed = || Error::Numerical("the eigenvalues of a Hessian did not converge".to_owned());
    dense::symmetric_eigenvalues(matrix.as_ref()).ok_or_else(failed)
}

fn singular_values(matrix: &[f64], n: usize) -> Result<Vec<f64>> {
    let matrix = Mat::from_fn(n, n, |i, j| matrix[i + j * n]);
    let failed = || Error::Numerical("the singular values of a Jacobian did not converge".to_owned());
    dense::singular_values(matrix.as_ref()).ok_or_else(failed)
}
