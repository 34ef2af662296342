//! Small symmetric positive definite systems, one per row of a batch, always in double precision.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::{MatMut, MatRef, Par};

/// Order from which faer's blocked routines beat plain loops.
const BLOCKED_FROM: usize = 20;

/// Scratch memory for matrices of one order.
pub struct SpdScratch {
    order: usize,
    buffer: MemBuffer,
}

impl std::fmt::Debug for SpdScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpdScratch").field("order", &self.order).finish_non_exhaustive()
    }
}

impl SpdScratch {
    /// Scratch for matrices of order `order`.
    pub fn new(order: usize) -> Self {
        let size = if order < BLOCKED_FROM {
            faer::dyn_stack::StackReq::EMPTY
        } else {
            llt::factor::cholesky_in_place_scratch::<f64>(order, Par::Seq, Default::default())
                .or(llt::inverse::inverse_scratch::<f64>(order, Par::Seq))
        };
        Self { order, buffer: MemBuffer::new(size) }
    }
}

/// Overwrites the lower triangle of `matrix` (column-major, order n) with its Cholesky factor L and returns
/// log det = 2 Σ log Lᵢᵢ, or `None` where the matrix is not positive definite in double precision.
pub fn cholesky(matrix: &mut [f64], scratch: &mut SpdScratch) -> Option<f64> {
    let n = scratch.order;
    if n >= BLOCKED_FROM {
        let factor = MatMut::from_column_major_slice_mut(&mut *matrix, n, n);
        let stack = MemStack::new(&mut scratch.buffer);
        llt::factor::cholesky_in_place(factor, Default::default(), Par::Seq, stack, Default::default())
            .ok()?;
    } else {
        for j in 0..n {
            let mut pivot = matrix[j + j * n];
            for k in 0..j {
                pivot -= matrix[j + k * n] * matrix[j + k * n];
            }
            if !(pivot > 0.0 && pivot.is_finite()) {
                return None;
            }
            let root = pivot.sqrt();
            matrix[j + j * n] = root;
            for i in j + 1..n {
                let mut sum = matrix[i + j * n];
                for k in 0..j {
                    sum -= matrix[i + k * n] * matrix[j + k * n];
                }
                matrix[i + j * n] = sum / root;
            }
        }
    }
    let mut log_det = 0.0;
    for i in 0..n {
        log_det += matrix[i + i * n].ln();
    }
    log_det.is_finite().then_some(2.0 * log_det)
}

/// Solves L Lᵀ x = b in place.
pub fn solve(factor: &[f64], rhs: &mut [f64]) {
    let n = rhs.len();
    for i in 0..n {
        let solved = rhs[i] / factor[i + i * n];
        rhs[i] = solved;
        for j in i + 1..n {
            rhs[j] -= factor[j + i * n] * solved;
        }
    }
    for i in (0..n).rev() {
        let mut sum = rhs[i];
        for j in i + 1..n {
            sum -= factor[j + i * n] * rhs[j];
        }
        rhs[i] = sum / factor[i + i * n];
    }
}

/// L Lᵀ v into `product`.
pub fn multiply(factor: &[f64], v: &[f64], product: &mut [f64]) {
    let n = v.len();
    for i in 0..n {
        product[i] = (i..n).map(|j| factor[j + i * n] * v[j]).sum();
    }
    for i in (0..n).rev() {
        product[i] = (0..=i).map(|j| factor[i + j * n] * product[j]).sum();
    }
}

/// Writes (L Lᵀ)⁻¹, both triangles, to `inverse`.
pub fn invert(factor: &[f64], inverse: &mut [f64], scratch: &mut SpdScratch) {
    let n = scratch.order;
    if n >= BLOCKED_FROM {
        let stack = MemStack::new(&mut scratch.buffer);
        let l = MatRef::from_column_major_slice(factor, n, n);
        llt::inverse::inverse(MatMut::from_column_major_slice_mut(&mut *inverse, n, n), l, Par::Seq, stack);
    } else {
        // Columns of L⁻¹ into the lower triangle, then (L⁻¹)ᵀ L⁻¹ from the first column on.
        for j in 0..n {
            inverse[j + j * n] = 1.0 / factor[j + j * n];
            for i in j + 1..n {
                let mut sum = 0.0;
                for k in j..i {
                    sum -= factor[i + k * n] * inverse[k + j * n];
                }
                inverse[i + j * n] = sum / factor[i + i * n];
            }
        }
        for j in 0..n {
            for i in j..n {
                let mut sum = 0.0;
                for k in i..n {
                    sum += inverse[k + i * n] * inverse[k + j * n];
                }
                inverse[i + j * n] = sum;
            }
        }
    }
    for j in 0..n {
        for i in j + 1..n {
            inverse[j + i * n] = inverse[i + j * n];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(n: usize) -> Vec<f64> {
        let root: Vec<f64> = (0..n * n).map(|i| ((i * i + 3 * i) as f64 * 0.7).sin()).collect();
        let mut matrix = vec![0.0; n * n];
        for j in 0..n {
            for i in 0..n {
                let sum: f64 = (0..n).map(|k| root[i + k * n] * root[j + k * n]).sum();
                matrix[i + j * n] = sum + if i == j { 1.0 } else { 0.0 };
            }
        }
        matrix
    }

    #[test]
    fn inverse_solve_and_determinant_agree_with_the_matrix() {
        for n in [1, 2, 3, 5, 14, 19, 20, 21, 37, 100] {
            let matrix = example(n);
            let mut factor = matrix.clone();
            let mut scratch = SpdScratch::new(n);
            let log_det = cholesky(&mut factor, &mut scratch).expect("positive definite");
            let mut inverse = vec![f64::NAN; n * n];
            invert(&factor, &mut inverse, &mut scratch);
            for j in 0..n {
                let mut unit = vec![0.0; n];
                unit[j] = 1.0;
                solve(&factor, &mut unit);
                let mut back = vec![0.0; n];
                multiply(&factor, &unit, &mut back);
                let expected = |i: usize| if i == j { 1.0 } else { 0.0 };
                assert!((0..n).all(|i| (back[i] - expected(i)).abs() < 1e-10));
                for i in 0..n {
                    assert!((unit[i] - inverse[i + j * n]).abs() < 1e-10);
                    let product: f64 = (0..n).map(|k| matrix[i + k * n] * inverse[k + j * n]).sum();
                    assert!((product - if i == j { 1.0 } else { 0.0 }).abs() < 1e-9, "order {n}");
                }
            }
            let dense = MatRef::from_column_major_slice(&matrix, n, n).determinant();
            assert!((log_det - dense.ln()).abs() < 1e-9 * log_det.abs().max(1.0));
        }
    }

    #[test]
    fn an_indefinite_matrix_is_refused() {
        for n in [2, 30] {
            let mut matrix = example(n);
            matrix[n + 1] = -1.0;
            assert!(cholesky(&mut matrix, &mut SpdScratch::new(n)).is_none());
            let mut nan = vec![f64::NAN; n * n];
            assert!(cholesky(&mut nan, &mut SpdScratch::new(n)).is_none());
        }
    }
}
