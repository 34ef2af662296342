//! Matrix products on slices: thin, length-checked views on faer's sequential kernels.
//!
//! A matrix is a slice of columns: element (i, j) is at `i + j · stride`. The batch is what we split over
//! threads, so each product runs on one.

use faer::{Accum, MatMut, MatRef};

use super::Real;

/// `cols` columns of height `rows`, `stride` apart.
#[inline]
pub fn columns<T: Real>(values: &[T], rows: usize, cols: usize, stride: usize) -> MatRef<'_, T> {
    if rows == 0 || cols == 0 {
        return MatRef::from_column_major_slice(&[], rows, cols);
    }
    MatRef::from_column_major_slice_with_stride(&values[..(cols - 1) * stride + rows], rows, cols, stride)
}

/// As [`columns`], to write to.
#[inline]
pub fn columns_mut<T: Real>(values: &mut [T], rows: usize, cols: usize, stride: usize) -> MatMut<'_, T> {
    if rows == 0 || cols == 0 {
        return MatMut::from_column_major_slice_mut(&mut [], rows, cols);
    }
    MatMut::from_column_major_slice_with_stride_mut(
        &mut values[..(cols - 1) * stride + rows],
        rows,
        cols,
        stride,
    )
}

/// dst ← lhs · rhs, or dst + lhs · rhs.
#[inline]
pub fn product<T: Real>(dst: MatMut<'_, T>, accum: Accum, lhs: MatRef<'_, T>, rhs: MatRef<'_, T>) {
    if dst.nrows() == 0 || dst.ncols() == 0 {
        return;
    }
    T::matmul(dst, accum, lhs, rhs);
}

/// As [`product`] for a symmetric result, of which the lower triangle alone is computed and written.
#[inline]
pub fn lower_product<T: Real>(dst: MatMut<'_, T>, accum: Accum, lhs: MatRef<'_, T>, rhs: MatRef<'_, T>) {
    T::lower_matmul(dst, accum, lhs, rhs, T::ONE);
}
