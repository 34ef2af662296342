//! Eigenvectors of symmetric matrices with the largest eigenvalue first, and the signs that make them reproducible.

use faer::traits::RealField;
use faer::{Mat, MatRef, Par};

use super::dense;

/// Eigenvalues, largest first, and the eigenvectors in the same order, from the lower triangle; `None` where they do not
/// converge.
pub fn symmetric_eigen(matrix: MatRef<'_, f64>) -> Option<(Vec<f64>, Mat<f64>)> {
    largest_first(matrix)
}

/// The same in single precision, for matrices of thousands of rows.
pub fn symmetric_eigen_single(matrix: MatRef<'_, f32>) -> Option<(Vec<f32>, Mat<f32>)> {
    largest_first(matrix)
}

fn largest_first<T: RealField + Copy>(matrix: MatRef<'_, T>) -> Option<(Vec<T>, Mat<T>)> {
    let (mut values, vectors) = dense::symmetric_eigen(matrix)?;
    values.reverse();
    Some((values, vectors.as_ref().reverse_cols().to_owned()))
}

/// L⁻¹ of the lower triangle of a matrix.
pub fn lower_inverse(factor: MatRef<'_, f64>) -> Mat<f64> {
    let mut inverse = Mat::<f64>::zeros(factor.nrows(), factor.ncols());
    faer::linalg::triangular_inverse::invert_lower_triangular(inverse.as_mut(), factor, Par::Seq);
    inverse
}

/// +1 or −1: the sign that makes the first entry of at least half the largest magnitude positive.
///
/// An eigenvector's sign is arbitrary. The rule does not depend on which of two entries of equal magnitude, as symmetric
/// problems have them, rounding makes the larger.
pub fn sign_of(vector: &[f64]) -> f64 {
    let largest = vector.iter().fold(0.0_f64, |best, v| best.max(v.abs()));
    let leading = vector.iter().find(|v| v.abs() >= 0.5 * largest);
    if leading.is_some_and(|&v| v < 0.0) { -1.0 } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_and_vectors_rebuild_the_matrix() {
        let matrix = Mat::<f64>::from_fn(6, 6, |i, j| 1.0 / (1.0 + (i + j) as f64));
        let single = Mat::<f32>::from_fn(6, 6, |i, j| matrix[(i, j)] as f32);
        let (values, vectors) = symmetric_eigen(matrix.as_ref()).expect("converges");
        let (rough, rough_vectors) = symmetric_eigen_single(single.as_ref()).expect("converges");
        assert!(values.is_sorted_by(|a, b| a >= b) && rough.is_sorted_by(|a, b| a >= b));
        for i in 0..6 {
            assert!((values[i] - f64::from(rough[i])).abs() < 1e-6);
            for j in 0..6 {
                let sum: f64 = (0..6).map(|k| values[k] * vectors[(i, k)] * vectors[(j, k)]).sum();
                assert!((sum - matrix[(i, j)]).abs() < 1e-14);
                let sum: f32 = (0..6).map(|k| rough[k] * rough_vectors[(i, k)] * rough_vectors[(j, k)]).sum();
                assert!((sum - single[(i, j)]).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn the_inverse_of_a_triangle_undoes_it() {
        let lower = Mat::from_fn(5, 5, |i, j| if j > i { 0.0 } else { 1.0 + (i * 3 + j) as f64 });
        let identity = dense::multiply(lower_inverse(lower.as_ref()).as_ref(), lower.as_ref());
        for i in 0..5 {
            for j in 0..5 {
                assert!((identity[(i, j)] - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn signs_do_not_depend_on_rounding() {
        assert_eq!(sign_of(&[0.1, -0.7, 0.7 + 1e-15]), -1.0);
        assert_eq!(sign_of(&[0.1, -0.7 - 1e-15, 0.7]), -1.0);
        assert_eq!(sign_of(&[0.1, 0.5, -0.7]), 1.0);
    }
}
