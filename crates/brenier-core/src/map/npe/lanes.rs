//! Batches as columns of rows: column j of a buffer holds quantity j of all rows of a shard, side by side for SIMD.
//!
//! A buffer has a stride, a multiple of [`LANES`]; loops run over whole chunks of [`LANES`] rows, products over the rows
//! there are, so that what is in the rows between is never read.

use std::ops::Range;

use super::shape::Layer;
use crate::kernel::{Columns, MatRef, ROW_CHUNK, Real, Weights, columns, vectorised};

/// Rows of a chunk: two AVX2 registers in single precision.
pub(super) const LANES: usize = ROW_CHUNK;

/// One number for each row of a chunk.
pub(super) type Lanes<T> = [T; LANES];

#[inline(always)]
pub(super) fn read<T: Real>(column: &[T], start: usize) -> Lanes<T> {
    let mut lanes = [T::ZERO; LANES];
    lanes.copy_from_slice(&column[start..start + LANES]);
    lanes
}

#[inline(always)]
pub(super) fn write<T: Real>(column: &mut [T], start: usize, lanes: &Lanes<T>) {
    column[start..start + LANES].copy_from_slice(lanes);
}

/// Columns of a buffer as a matrix of `rows` rows.
#[inline]
pub(super) fn view<T: Real>(buffer: &[T], stride: usize, rows: usize, which: Range<usize>) -> MatRef<'_, T> {
    columns(&buffer[(which.start * stride).min(buffer.len())..], rows, which.len(), stride)
}

/// Columns of a buffer, for products of narrow matrices.
#[inline]
pub(super) fn some<T: Real>(buffer: &[T], stride: usize, which: Range<usize>) -> Columns<'_, T> {
    Columns { values: &buffer[(which.start * stride).min(buffer.len())..], stride, count: which.len() }
}

/// \[b | W\] of a layer, which takes a column of ones and the inputs to the outputs.
#[inline]
pub(super) fn onwards<'a, T: Real>(layer: &Layer, parameters: &'a [T]) -> Weights<'a, T> {
    Weights {
        values: &parameters[layer.all()],
        stride: layer.outputs,
        by_output: false,
        inputs: 0..layer.inputs + 1,
        outputs: 0..layer.outputs,
    }
}

/// W of a layer, which takes adjoints of the outputs to those of the inputs.
#[inline]
pub(super) fn backwards<'a, T: Real>(layer: &Layer, parameters: &'a [T]) -> Weights<'a, T> {
    Weights {
        values: &parameters[layer.weight()],
        stride: layer.outputs,
        by_output: true,
        inputs: 0..layer.outputs,
        outputs: 0..layer.inputs,
    }
}

/// f of the first `rows` rows of every column.
#[inline(always)]
pub(super) fn apply<T: Real>(buffer: &mut [T], stride: usize, rows: usize, f: impl Fn(T) -> T + Copy) {
    vectorised(
        #[inline(always)]
        || {
            for column in buffer.chunks_exact_mut(stride) {
                for value in &mut column[..rows] {
                    *value = f(*value);
                }
            }
        },
    );
}

/// f(a, b) into the first buffer, for the first `rows` rows of every column.
#[inline(always)]
pub(super) fn combine<T: Real>(
    a: &mut [T],
    b: &[T],
    stride: usize,
    rows: usize,
    f: impl Fn(T, T) -> T + Copy,
) {
    vectorised(
        #[inline(always)]
        || {
            for (a, b) in a.chunks_exact_mut(stride).zip(b.chunks_exact(stride)) {
                for (a, &b) in a[..rows].iter_mut().zip(&b[..rows]) {
                    *a = f(*a, b);
                }
            }
        },
    );
}

/// Rows of `width` numbers into columns.
pub(super) fn into_lanes<T: Copy>(rows: &[T], width: usize, buffer: &mut [T], stride: usize) {
    for (row, values) in rows.chunks_exact(width).enumerate() {
        for (column, &value) in values.iter().enumerate() {
            buffer[column * stride + row] = value;
        }
    }
}

/// Columns into rows of `width` numbers.
pub(super) fn from_lanes<T: Copy>(buffer: &[T], stride: usize, rows: &mut [T], width: usize) {
    for (row, values) in rows.chunks_exact_mut(width).enumerate() {
        for (column, value) in values.iter_mut().enumerate() {
            *value = buffer[column * stride + row];
        }
    }
}
