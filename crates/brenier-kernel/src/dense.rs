//! Dense algorithms, most in double precision: eigenvalues, singular values, factorisations of whole matrices.

use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::solvers::{DenseSolveCore, Llt, Solve};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::traits::RealField;
use faer::{Mat, MatMut, MatRef, Par, Side};

/// lhs · rhs.
pub fn multiply(lhs: MatRef<'_, f64>, rhs: MatRef<'_, f64>) -> Mat<f64> {
    lhs * rhs
}

/// Eigenvalues, smallest first, and eigenvectors of a symmetric matrix by its lower triangle, on one thread; `None` where
/// they do not converge.
pub fn symmetric_eigen<T: RealField + Copy>(matrix: MatRef<'_, T>) -> Option<(Vec<T>, Mat<T>)> {
    let order = matrix.nrows();
    let mut values = Diag::<T>::zeros(order);
    let mut vectors = Mat::<T>::zeros(order, order);
    let scratch =
        self_adjoint_evd_scratch::<T>(order, ComputeEigenvectors::Yes, Par::Seq, Default::default());
    self_adjoint_evd(
        matrix,
        values.as_mut(),
        Some(vectors.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .ok()?;
    Some((values.column_vector().iter().copied().collect(), vectors))
}

/// The eigenvalues of a symmetric matrix by its lower triangle, smallest first; `None` where they do not converge.
pub fn symmetric_eigenvalues(matrix: MatRef<'_, f64>) -> Option<Vec<f64>> {
    matrix.self_adjoint_eigenvalues(Side::Lower).ok()
}

/// The singular values, largest first; `None` where they do not converge.
pub fn singular_values(matrix: MatRef<'_, f64>) -> Option<Vec<f64>> {
    matrix.singular_values().ok()
}

/// The solution of matrix · x = rhs for a positive definite matrix, by its lower triangle; `None` where it is not.
pub fn positive_definite_solve(matrix: MatRef<'_, f64>, rhs: MatRef<'_, f64>) -> Option<Mat<f64>> {
    Some(matrix.llt(Side::Lower).ok()?.solve(rhs))
}

/// L with L Lᵀ a positive definite matrix.
#[derive(Clone, Debug)]
pub struct Cholesky(Llt<f64>);

impl Cholesky {
    /// The factor of a matrix by its lower triangle; `None` where it is not positive definite.
    pub fn new(matrix: MatRef<'_, f64>) -> Option<Self> {
        matrix.llt(Side::Lower).ok().map(Self)
    }

    /// v ← L⁻¹ v.
    pub fn solve_lower(&self, v: &mut [f64]) {
        let size = v.len();
        solve_lower_triangular_in_place(
            self.0.L(),
            MatMut::from_column_major_slice_mut(v, size, 1),
            Par::Seq,
        );
    }

    /// v ← L⁻ᵀ v.
    pub fn solve_upper(&self, v: &mut [f64]) {
        let size = v.len();
        solve_upper_triangular_in_place(
            self.0.L().transpose(),
            MatMut::from_column_major_slice_mut(v, size, 1),
            Par::Seq,
        );
    }
}

/// The inverse of a square matrix, by row pivots.
pub fn inverse(matrix: MatRef<'_, f64>) -> Mat<f64> {
    matrix.partial_piv_lu().inverse()
}

/// The determinant of a square matrix.
pub fn determinant(matrix: MatRef<'_, f64>) -> f64 {
    matrix.determinant()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompositions_agree_with_each_other() {
        let square = Mat::from_fn(5, 5, |i, j| ((3 * i + 7 * j) % 11) as f64 - 4.0);
        let symmetric = multiply(square.transpose(), square.as_ref());
        let (values, vectors) = symmetric_eigen(symmetric.as_ref()).expect("it converges");
        let again = symmetric_eigenvalues(symmetric.as_ref()).expect("it converges");
        let singular = singular_values(square.as_ref()).expect("they converge");
        for i in 0..5 {
            assert!((values[i] - again[i]).abs() < 1e-10);
            assert!((singular[4 - i].powi(2) - values[i]).abs() < 1e-9);
            let image = multiply(symmetric.as_ref(), vectors.as_ref());
            for j in 0..5 {
                assert!((image[(j, i)] - values[i] * vectors[(j, i)]).abs() < 1e-9);
            }
        }
        let product: f64 = values.iter().product();
        assert!((determinant(square.as_ref()).powi(2) - product).abs() < 1e-6 * product.abs().max(1.0));
        let identity = multiply(inverse(square.as_ref()).as_ref(), square.as_ref());
        let solved =
            positive_definite_solve(symmetric.as_ref(), symmetric.as_ref()).expect("positive definite");
        for i in 0..5 {
            for j in 0..5 {
                let unit = f64::from(u8::from(i == j));
                assert!((identity[(i, j)] - unit).abs() < 1e-9 && (solved[(i, j)] - unit).abs() < 1e-7);
            }
        }
        let factor = Cholesky::new(symmetric.as_ref()).expect("positive definite");
        let mut v: Vec<f64> = (0..5).map(|i| symmetric[(i, 2)]).collect();
        factor.solve_lower(&mut v);
        factor.solve_upper(&mut v);
        assert!((0..5).all(|i| (v[i] - f64::from(u8::from(i == 2))).abs() < 1e-7), "{v:?}");
        assert!(positive_definite_solve((-&symmetric).as_ref(), symmetric.as_ref()).is_none());
    }
}
