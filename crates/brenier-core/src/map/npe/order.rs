//! The order of coordinates that an autoregressive front reads them in: what y tells most of comes first.
//!
//! A coordinate is found after the other among the directions that are left: the one whose regression on
//!
//! ```text
//! (1, s) ⊗ (1, r_1, …, r_k)
//! ```
//!
//! leaves least, over rows that the regression did not see, where s are leading principal components of y and r_1, …, r_k the
//! coordinates before. With these known, y may tell what it could not tell alone: where a wave is late depends on how fast it was before.

use super::NpeMap;
use crate::kernel::dense::{multiply, positive_definite_solve};
use crate::kernel::eigen::{sign_of, symmetric_eigen};
use crate::kernel::{Mat, MatRef, Real};
use crate::map::method::Training;
use crate::parallel::results;
use crate::transform::{LeadingSettings, SecondMoments};
use crate::{Error, Result};

/// Rows that are looked at.
const ROWS: usize = 20_000;
/// One row in this many is held out of the regression.
const LEFT_OUT: usize = 10;
/// Components of y.
const COMPONENTS: usize = 100;
/// Most products in a regression.
const FEATURES: usize = 1600;
/// Added to the variance 1 of every product.
const RIDGE: f64 = 0.02;

/// Q, row by row: orthonormal, the first row first.
pub(super) fn rotation(training: &Training<'_>) -> Result<Vec<f64>> {
    let Training { data, train_rows, .. } = training;
    let (n, every) = (data.target, train_rows.len().div_ceil(ROWS).max(1));
    let rows: Vec<usize> = train_rows.iter().step_by(every).map(|&row| row as usize).collect();
    let identity: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
    if n == 1 || rows.len() < 2 * LEFT_OUT {
        return Ok(identity);
    }
    let Some(scores) = scores(&data.y, data.given, &rows)? else { return Ok(identity) };
    let x = Mat::from_fn(rows.len(), n, |i, j| f64::from(data.x[rows[i] * n + j]));
    let found = greedy(&x, &scores)?;
    Ok(found.into_iter().flatten().collect())
}

/// 1 and the standardised leading components of y; nothing where y does not vary.
fn scores(y: &[f32], given: usize, rows: &[usize]) -> Result<Option<Mat<f64>>> {
    let row = |row: usize| &y[row * given..(row + 1) * given];
    let mut moments = SecondMoments::new(given);
    for rows in rows.chunks(1024) {
        let block: Vec<f32> = rows.iter().flat_map(|&at| row(at).iter().copied()).collect();
        moments.add(&block);
    }
    let (mean, components) = (moments.mean(), COMPONENTS.min(given).min(rows.len() / 20).max(1));
    let leading = match moments.leading(&LeadingSettings { components, ..LeadingSettings::default() }) {
        Ok(leading) => leading,
        Err(Error::Numerical(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let used = leading.values.iter().take_while(|value| **value > 1e-6 * leading.values[0]).count();
    let all: Vec<Vec<f64>> = results(rows, |_, &at| {
        let score = |k: usize| {
            let vector = &leading.vectors[k * given..(k + 1) * given];
            let terms = row(at).iter().zip(vector).zip(&mean);
            let sum: f64 = terms.map(|((&y, &v), mean)| (f64::from(y) - mean) * f64::from(v)).sum();
            sum / leading.values[k].sqrt()
        };
        (0..used).map(score).collect()
    });
    Ok(Some(Mat::from_fn(rows.len(), used + 1, |i, j| if j == 0 { 1.0 } else { all[i][j - 1] })))
}

/// The directions of x, one after the other; see the head of this file.
fn greedy(x: &Mat<f64>, scores: &Mat<f64>) -> Result<Vec<Vec<f64>>> {
    let (count, n, width) = (x.nrows(), x.ncols(), scores.ncols());
    let blocks = (FEATURES / width).clamp(1, n);
    let is_seen = |row: usize| row % LEFT_OUT != LEFT_OUT - 1;
    let seen: Vec<usize> = (0..count).filter(|&row| is_seen(row)).collect();
    let others: Vec<usize> = (0..count).filter(|&row| !is_seen(row)).collect();
    let pick =
        |from: &Mat<f64>, rows: &[usize]| Mat::from_fn(rows.len(), from.ncols(), |i, j| from[(rows[i], j)]);
    let (x_seen, x_other) = (pick(x, &seen), pick(x, &others));
    // Products with the coordinates found so far, and their squares.
    let (mut seen_features, mut other_features) = (Mat::zeros(seen.len(), 0), Mat::zeros(others.len(), 0));
    let mut along = vec![1.0; count];
    // The directions that are left, as rows.
    let mut left = Mat::<f64>::identity(n, n);
    let mut found = Vec::with_capacity(n);
    for k in 0..n {
        if k < blocks {
            let with = |features: &Mat<f64>, rows: &[usize]| {
                let old = features.ncols();
                Mat::from_fn(rows.len(), old + width, |i, j| match j < old {
                    true => features[(i, j)],
                    false => along[rows[i]] * scores[(rows[i], j - old)],
                })
            };
            (seen_features, other_features) = (with(&seen_features, &seen), with(&other_features, &others));
        }
        let features = seen_features.ncols();
        let target = multiply(x_seen.as_ref(), left.transpose());
        let mut square = multiply(seen_features.transpose(), seen_features.as_ref());
        (0..features).for_each(|j| square[(j, j)] += RIDGE * seen.len() as f64);
        let cross = multiply(seen_features.transpose(), target.as_ref());
        let residuals = match positive_definite_solve(square.as_ref(), cross.as_ref()) {
            Some(slopes) => {
                multiply(x_other.as_ref(), left.transpose())
                    - multiply(other_features.as_ref(), slopes.as_ref())
            }
            None => multiply(x_other.as_ref(), left.transpose()),
        };
        let spread = multiply(residuals.transpose(), residuals.as_ref());
        let failed = || Error::Numerical("the target's residuals have no principal directions".to_owned());
        let (_, axes) = symmetric_eigen(spread.as_ref()).ok_or_else(failed)?;
        // Largest residual first: the last direction is the best predicted.
        let turned = multiply(axes.transpose(), left.as_ref());
        let own: Vec<f64> = (0..n).map(|j| turned[(n - k - 1, j)]).collect();
        let sign = sign_of(&own);
        found.push(own.iter().map(|q| sign * q).collect::<Vec<f64>>());
        left = turned.subrows(0, n - k - 1).to_owned();
        for (row, along) in along.iter_mut().enumerate() {
            *along = (0..n).map(|j| x[(row, j)] * found[k][j]).sum();
        }
    }
    Ok(found)
}

impl<T: Real> NpeMap<T> {
    /// Sets Q, given row by row.
    pub(super) fn set_order(&mut self, rotation: &[f64]) {
        let n = self.layout.shape.target;
        let rows = MatRef::from_row_major_slice(rotation, n, n);
        let place = self.layout.rotation.clone();
        for (at, value) in self.parameters[place].iter_mut().enumerate() {
            *value = T::from_f64(rows[(at % n, at / n)]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    use super::*;

    /// y has r₁ plain, and r₂ only as r₁ r₂: alone it says nothing of r₂, nor of r₃.
    #[test]
    fn coordinates_come_in_the_order_in_which_they_can_be_read() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        // A tenth of them is left out, and must tell a residual variance of 2/3 from 1 in all directions.
        let count = 20_000;
        let mut normal = || rng.sample::<f64, _>(StandardNormal);
        let (mut x, mut scores) = (Mat::zeros(count, 3), Mat::zeros(count, 4));
        // r = Qx with the rows of Q.
        let q = [[0.6, 0.0, 0.8], [0.8, 0.0, -0.6], [0.0, 1.0, 0.0]];
        for i in 0..count {
            let r = [normal(), normal(), normal()];
            for j in 0..3 {
                x[(i, j)] = (0..3).map(|k| q[k][j] * r[k]).sum();
            }
            let y = [1.0, r[0] + 0.1 * normal(), r[0] * r[1] + 0.1 * normal(), normal()];
            (0..4).for_each(|k| scores[(i, k)] = y[k]);
        }
        let found = greedy(&x, &scores).unwrap();
        for k in 0..3 {
            let dot: f64 = found[k].iter().zip(q[k]).map(|(a, b)| a * b).sum();
            assert!(dot.abs() > 0.99, "{k}: {found:?}");
            for l in 0..3 {
                let dot: f64 = found[k].iter().zip(&found[l]).map(|(a, b)| a * b).sum();
                assert!((dot - f64::from(u8::from(k == l))).abs() < 1e-12);
            }
        }
    }
}
