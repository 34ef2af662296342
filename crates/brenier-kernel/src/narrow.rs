//! Products of tall, narrow matrices, as networks of some fifty units make them of a shard of rows.
//!
//! Quantity j of all rows is a column of numbers side by side, `stride` apart from the next; strides are multiples of
//! [`ROW_CHUNK`]. Such a matrix, 16 rows of it at a time, and its weights stay in the first-level cache, so that nothing is packed
//! and a product of 64 × 50 × 50 runs at the peak of the machine, where a general kernel reaches half of it. Wide products are
//! left to faer.

use std::ops::Range;

use faer::Accum;
use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};

use super::{Real, columns, columns_mut, product, vectorised};

/// Strides and padded numbers of rows are multiples of this: whole registers of every instruction set.
pub const ROW_CHUNK: usize = 16;

/// Most terms of a sum: as many columns of 16 rows leave half of a first-level cache to the weights.
const MOST_TERMS: usize = 192;

/// Fewest columns for which turning the other factor pays.
const TURNED_COLUMNS: usize = 16;

/// Columns of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a, T> {
    /// The buffer, which starts with the first of them.
    pub values: &'a [T],
    /// The distance of two columns.
    pub stride: usize,
    /// How many there are.
    pub count: usize,
}

/// A part of a matrix of weights in a slice.
#[derive(Clone, Debug)]
pub struct Weights<'a, T> {
    /// The whole matrix.
    pub values: &'a [T],
    /// The length of a run of numbers side by side: of all outputs of an input, or of all inputs of an output.
    pub stride: usize,
    /// Whether it is the inputs of one output that stand side by side.
    pub by_output: bool,
    /// What is summed over.
    pub inputs: Range<usize>,
    /// Columns of the result.
    pub outputs: Range<usize>,
}

/// What becomes of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// They are written.
    Replace,
    /// They are added to what is there.
    Add,
    /// They are written where positive, and zero elsewhere.
    Rectified,
}

/// out_j ← Σ_k x_k W_kj, stored as `store` says, for `rows` rows, where j and k count the outputs and inputs of the part.
///
/// Columns of `out` are `out_stride` apart. Of x, whole registers of rows are read, of `out` the rows alone are written.
pub fn row_products<T: Real>(
    out: &mut [T],
    out_stride: usize,
    store: Store,
    x: Columns<'_, T>,
    rows: usize,
    weights: Weights<'_, T>,
) {
    assert_eq!(x.count, weights.inputs.len(), "as many columns as weights of an output");
    if x.count > MOST_TERMS {
        let Weights { values, stride, by_output, inputs, outputs } = weights;
        let height = values.len() / stride;
        let whole = columns(values, stride, height, stride);
        let whole = if by_output { whole } else { whole.transpose() };
        let part = whole.submatrix(inputs.start, outputs.start, inputs.len(), outputs.len());
        let accum = if store == Store::Add { Accum::Add } else { Accum::Replace };
        let dst = columns_mut(out, rows, outputs.len(), out_stride);
        product(dst, accum, columns(x.values, rows, x.count, x.stride), part);
        if store == Store::Rectified {
            vectorised(
                #[inline(always)]
                || {
                    for column in out.chunks_mut(out_stride).take(outputs.len()) {
                        for value in &mut column[..rows] {
                            *value = value.at_least(T::ZERO);
                        }
                    }
                },
            );
        }
        return;
    }
    assert!(x.stride.is_multiple_of(ROW_CHUNK) && rows <= x.stride && x.values.len() >= x.count * x.stride);
    Arch::new().dispatch(Times { out, out_stride, x, rows, weights, store });
}

struct Times<'a, T> {
    out: &'a mut [T],
    out_stride: usize,
    x: Columns<'a, T>,
    rows: usize,
    weights: Weights<'a, T>,
    store: Store,
}

impl<T: Real> WithSimd for Times<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let lanes = size_of::<T::Vector<S>>() / size_of::<T>();
        let (whole, outputs) = (self.rows / lanes, self.weights.outputs.len());
        let (mut first, mut column) = (0, 0);
        // With thirty-two registers, twenty-four sums in four registers of rows: a weight is read for four products.
        if S::REGISTER_COUNT >= 32 {
            while first + 4 <= whole {
                column = 0;
                while column + 6 <= outputs {
                    self.tile::<S, 4, 6>(simd, first, column, lanes);
                    column += 6;
                }
                match outputs - column {
                    5 => self.tile::<S, 4, 5>(simd, first, column, lanes),
                    4 => self.tile::<S, 4, 4>(simd, first, column, lanes),
                    3 => self.tile::<S, 4, 3>(simd, first, column, lanes),
                    2 => self.tile::<S, 4, 2>(simd, first, column, lanes),
                    1 => self.tile::<S, 4, 1>(simd, first, column, lanes),
                    _ => {}
                }
                first += 4;
            }
        }
        let fours = first;
        // Ten sums in two registers of rows; with the rows and a weight they fill thirteen of the sixteen of AVX2.
        while first + 2 <= whole {
            column = 0;
            while column + 5 <= outputs {
                self.tile::<S, 2, 5>(simd, first, column, lanes);
                column += 5;
            }
            match outputs - column {
                4 => self.tile::<S, 2, 4>(simd, first, column, lanes),
                3 => self.tile::<S, 2, 3>(simd, first, column, lanes),
                // Fewer sums than cover the latency of an addition: together with the next rows, below.
                _ => {}
            }
            first += 2;
        }
        let (paired, rest) = (first, outputs - column);
        if paired > fours && (rest == 1 || rest == 2) {
            first = fours;
            while first + 4 <= paired {
                match rest {
                    1 => self.tile::<S, 4, 1>(simd, first, column, lanes),
                    _ => self.tile::<S, 4, 2>(simd, first, column, lanes),
                }
                first += 4;
            }
            if first < paired {
                match rest {
                    1 => self.tile::<S, 2, 1>(simd, first, column, lanes),
                    _ => self.tile::<S, 2, 2>(simd, first, column, lanes),
                }
            }
        }
        first = paired;
        while first * lanes < self.rows {
            // One register, perhaps not all of its lanes.
            let used = (self.rows - first * lanes).min(lanes);
            column = 0;
            while column + 8 <= outputs {
                self.tile::<S, 1, 8>(simd, first, column, used);
                column += 8;
            }
            while column + 2 <= outputs {
                self.tile::<S, 1, 2>(simd, first, column, used);
                column += 2;
            }
            if column < outputs {
                self.tile::<S, 1, 1>(simd, first, column, used);
            }
            first += 1;
        }
    }
}

impl<T: Real> Times<'_, T> {
    /// R registers of rows and C columns; of the last register the first `used` lanes are written.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(
        &mut self,
        simd: S,
        first: usize,
        column: usize,
        used: usize,
    ) {
        let lanes = size_of::<T::Vector<S>>() / size_of::<T>();
        let Weights { values, stride, by_output, ref inputs, ref outputs } = self.weights;
        let x = T::vectors::<S>(self.x.values).chunks_exact(self.x.stride / lanes);
        let mut sums = [[T::splat(simd, T::ZERO); R]; C];
        let (place, count) = (outputs.start + column, inputs.len());
        if by_output {
            let mut columns = [&values[..0]; C];
            for c in 0..C {
                columns[c] = &values[(place + c) * stride + inputs.start..][..count];
            }
            for (k, x) in x.take(count).enumerate() {
                accumulate(simd, &x[first..first + R], |c| columns[c][k], &mut sums);
            }
        } else {
            let weights = values.chunks_exact(stride).skip(inputs.start);
            for (x, weights) in x.zip(weights).take(count) {
                let weights = &weights[place..place + C];
                accumulate(simd, &x[first..first + R], |c| weights[c], &mut sums);
            }
        }
        if self.store == Store::Rectified {
            for sums in &mut sums {
                for sum in sums {
                    *sum = T::vector_max(simd, *sum, T::splat(simd, T::ZERO));
                }
            }
        }
        let add = self.store == Store::Add;
        for (c, sums) in sums.iter().enumerate() {
            let out = &mut self.out[(column + c) * self.out_stride + first * lanes..];
            if R == 1 && used < lanes {
                let out = &mut out[..used];
                let before = if add { T::load_part(simd, out) } else { T::splat(simd, T::ZERO) };
                T::store_part(simd, out, T::vector_sum(simd, sums[0], before));
                continue;
            }
            let out = &mut T::vectors_mut::<S>(&mut out[..R * lanes])[..R];
            for r in 0..R {
                out[r] = if add { T::vector_sum(simd, sums[r], out[r]) } else { sums[r] };
            }
        }
    }
}

/// Adds R registers times each of C weights to the sums.
#[inline(always)]
fn accumulate<T: Real, S: Simd, const R: usize, const C: usize>(
    simd: S,
    x: &[T::Vector<S>],
    weight: impl Fn(usize) -> T,
    sums: &mut [[T::Vector<S>; R]; C],
) {
    let x = &x[..R];
    for c in 0..C {
        let weight = T::splat(simd, weight(c));
        for r in 0..R {
            sums[c][r] = T::multiply_add(simd, x[r], weight, sums[c][r]);
        }
    }
}

/// out_ij ← Σ_b a_bi c_bj, sums over `rows` rows; columns of `out` are `out_stride` apart. `turned` is memory.
pub fn row_sums<T: Real>(
    out: &mut [T],
    out_stride: usize,
    a: Columns<'_, T>,
    c: Columns<'_, T>,
    rows: usize,
    turned: &mut Vec<T>,
) {
    let general = a.count.min(c.count) > MOST_TERMS || (c.count >= TURNED_COLUMNS && many_registers());
    if general {
        let (a, c) = (columns(a.values, rows, a.count, a.stride), columns(c.values, rows, c.count, c.stride));
        return product(columns_mut(out, a.ncols(), c.ncols(), out_stride), Accum::Replace, a.transpose(), c);
    }
    if c.count < TURNED_COLUMNS {
        return summed_row_sums(out, out_stride, a.count, c.count, &[(a, c, rows)]);
    }
    // With the rows of a one after the other this is a product of theirs with the columns of c.
    let width = a.count.next_multiple_of(ROW_CHUNK);
    turned.resize((rows * width).max(turned.len()), T::ZERO);
    Arch::new().dispatch(Turn { columns: a, rows, out: turned, width });
    // In parts whose turned rows stay in the cache.
    for start in (0..rows).step_by(MOST_TERMS) {
        let part = start..(start + MOST_TERMS).min(rows);
        let store = if start == 0 { Store::Replace } else { Store::Add };
        let x = Columns { values: &turned[start * width..], stride: width, count: part.len() };
        let weights = Weights {
            values: c.values,
            stride: c.stride,
            by_output: true,
            inputs: part,
            outputs: 0..c.count,
        };
        row_products(out, out_stride, store, x, a.count, weights);
    }
}

/// Whether this machine has 32 registers, as AVX-512 does. The general kernel then turns a factor faster than [`Turn`].
fn many_registers() -> bool {
    struct Registers;
    impl WithSimd for Registers {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::REGISTER_COUNT
        }
    }
    Arch::new().dispatch(Registers) >= 32
}

/// Columns into rows of `width` numbers.
struct Turn<'a, T> {
    columns: Columns<'a, T>,
    rows: usize,
    out: &'a mut [T],
    width: usize,
}

impl<T: Real> NullaryFnOnce for Turn<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Columns { values, stride, count } = self.columns;
        let column = |c: usize| &values[c * stride..][..self.rows];
        // Four columns at a time: a write costs as much as four reads.
        for c in (0..count - count % 4).step_by(4) {
            let (first, second, third, fourth) = (column(c), column(c + 1), column(c + 2), column(c + 3));
            let pairs = first.iter().zip(second).zip(third.iter().zip(fourth));
            for (out, ((&first, &second), (&third, &fourth))) in
                self.out.chunks_exact_mut(self.width).zip(pairs)
            {
                out[c..c + 4].copy_from_slice(&[first, second, third, fourth]);
            }
        }
        for c in count - count % 4..count {
            for (out, &value) in self.out.chunks_exact_mut(self.width).zip(column(c)) {
                out[c] = value;
            }
        }
    }
}

/// out_ij ← Σ a_bi c_bj over the rows b of several shards (a, c, rows), which agree on the numbers of columns.
pub fn summed_row_sums<T: Real>(
    out: &mut [T],
    out_stride: usize,
    a_count: usize,
    c_count: usize,
    shards: &[(Columns<'_, T>, Columns<'_, T>, usize)],
) {
    Arch::new().dispatch(Sums { out, out_stride, a_count, c_count, shards });
}

struct Sums<'a, T> {
    out: &'a mut [T],
    out_stride: usize,
    a_count: usize,
    c_count: usize,
    shards: &'a [(Columns<'a, T>, Columns<'a, T>, usize)],
}

impl<T: Real> WithSimd for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let mut i = 0;
        while i + 4 <= self.a_count {
            self.panel::<S, 4>(simd, i);
            i += 4;
        }
        while i < self.a_count {
            self.panel::<S, 1>(simd, i);
            i += 1;
        }
    }
}

impl<T: Real> Sums<'_, T> {
    /// R columns of a with all of c, which are few and stay in the cache.
    #[inline(always)]
    fn panel<S: Simd, const R: usize>(&mut self, simd: S, i: usize) {
        let mut j = 0;
        while j + 2 <= self.c_count {
            self.tile::<S, R, 2>(simd, i, j);
            j += 2;
        }
        if j < self.c_count {
            self.tile::<S, R, 1>(simd, i, j);
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(&mut self, simd: S, i: usize, j: usize) {
        let lanes = size_of::<T::Vector<S>>() / size_of::<T>();
        let mut sums = [[T::splat(simd, T::ZERO); R]; C];
        for &(a, c, rows) in self.shards {
            let whole = rows / lanes;
            let (mut x, mut y) = ([&a.values[..0]; R], [&c.values[..0]; C]);
            for r in 0..R {
                x[r] = &a.values[(i + r) * a.stride..][..rows];
            }
            for (y, j) in y.iter_mut().zip(j..) {
                *y = &c.values[j * c.stride..][..rows];
            }
            let (mut xs, mut ys) = ([&T::vectors::<S>(x[0])[..0]; R], [&T::vectors::<S>(y[0])[..0]; C]);
            for r in 0..R {
                xs[r] = &T::vectors::<S>(x[r])[..whole];
            }
            for c in 0..C {
                ys[c] = &T::vectors::<S>(y[c])[..whole];
            }
            for k in 0..whole {
                for c in 0..C {
                    for r in 0..R {
                        sums[c][r] = T::multiply_add(simd, xs[r][k], ys[c][k], sums[c][r]);
                    }
                }
            }
            if whole * lanes < rows {
                for c in 0..C {
                    let y = T::load_part(simd, &y[c][whole * lanes..]);
                    for r in 0..R {
                        let x = T::load_part(simd, &x[r][whole * lanes..]);
                        sums[c][r] = T::multiply_add(simd, x, y, sums[c][r]);
                    }
                }
            }
        }
        for c in 0..C {
            let out = &mut self.out[i + (j + c) * self.out_stride..][..R];
            for r in 0..R {
                out[r] = T::lane_sum(simd, sums[c][r]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<T: Real>(count: usize, salt: usize) -> Vec<T> {
        (0..count).map(|i| T::from_f64(((i * 7919 + salt) % 101) as f64 / 50.0 - 1.0)).collect()
    }

    fn products_match_plain_sums<T: Real>(tolerance: f64) {
        for (rows, terms, outputs) in [
            (1, 1, 1),
            (7, 3, 4),
            (16, 5, 8),
            (33, 11, 13),
            (64, 51, 50),
            (50, 64, 17),
            (40, 200, 9),
            (70, 20, 9),
            (130, 12, 10),
            (64, 9, 11),
        ] {
            let stride = usize::next_multiple_of(rows, ROW_CHUNK) + ROW_CHUNK;
            let mut x = numbers::<T>(stride * terms, 1);
            // What is in the rows between is not used.
            for column in x.chunks_exact_mut(stride) {
                column[rows..].fill(T::from_f64(f64::NAN));
            }
            let (inputs, outputs) = (2..2 + terms, 3..3 + outputs);
            for by_output in [false, true] {
                let run = if by_output { inputs.end + 1 } else { outputs.end + 1 };
                let height = if by_output { outputs.end } else { inputs.end };
                let values = numbers::<T>(run * height, 5);
                for store in [Store::Replace, Store::Add, Store::Rectified] {
                    let mut out = numbers::<T>(stride * outputs.len(), 9);
                    let before = out.clone();
                    let weights = Weights {
                        values: &values,
                        stride: run,
                        by_output,
                        inputs: inputs.clone(),
                        outputs: outputs.clone(),
                    };
                    let columns = Columns { values: &x, stride, count: terms };
                    row_products(&mut out, stride, store, columns, rows, weights);
                    for (j, output) in outputs.clone().enumerate() {
                        for b in 0..stride {
                            let at = b + j * stride;
                            let start = if store == Store::Add { before[at].to_f64() } else { 0.0 };
                            let sum: f64 = inputs
                                .clone()
                                .enumerate()
                                .map(|(k, input)| {
                                    let place =
                                        if by_output { output * run + input } else { input * run + output };
                                    x[b + k * stride].to_f64() * values[place].to_f64()
                                })
                                .sum();
                            let sum = if store == Store::Rectified { sum.max(0.0) } else { sum };
                            let expected = if b < rows { start + sum } else { before[at].to_f64() };
                            assert!(
                                (out[at].to_f64() - expected).abs() < tolerance,
                                "{rows} {terms} {j} {b}"
                            );
                        }
                    }
                }
            }
        }
    }

    fn sums_match_plain_sums<T: Real>(tolerance: f64) {
        for (rows, height, width) in
            [(1, 1, 1), (7, 3, 4), (16, 9, 17), (33, 50, 21), (300, 19, 20), (64, 200, 196)]
        {
            let stride = usize::next_multiple_of(rows, ROW_CHUNK);
            let (mut a, mut c) = (numbers::<T>(stride * height, 1), numbers::<T>(stride * width, 5));
            for column in a.chunks_exact_mut(stride).chain(c.chunks_exact_mut(stride)) {
                column[rows..].fill(T::from_f64(f64::NAN));
            }
            let (left, right) =
                (Columns { values: &a, stride, count: height }, Columns { values: &c, stride, count: width });
            let out_stride = height + 2;
            let fresh = vec![T::from_f64(f64::NAN); out_stride * width];
            let (mut one, mut two) = (fresh.clone(), fresh);
            row_sums(&mut one, out_stride, left, right, rows, &mut Vec::new());
            summed_row_sums(&mut two, out_stride, height, width, &[(left, right, rows), (left, right, rows)]);
            for j in 0..width {
                for i in 0..height {
                    let sum: f64 =
                        (0..rows).map(|b| a[b + i * stride].to_f64() * c[b + j * stride].to_f64()).sum();
                    let at = i + j * out_stride;
                    assert!((one[at].to_f64() - sum).abs() < tolerance, "{rows} {i} {j}");
                    assert!((two[at].to_f64() - 2.0 * sum).abs() < 2.0 * tolerance, "{rows} {i} {j}");
                }
                assert!(one[height + j * out_stride].to_f64().is_nan(), "no more than the result is written");
            }
        }
    }

    #[test]
    fn narrow_products_match_plain_sums_in_both_precisions() {
        products_match_plain_sums::<f64>(1e-13);
        products_match_plain_sums::<f32>(2e-5);
        sums_match_plain_sums::<f64>(1e-12);
        sums_match_plain_sums::<f32>(1e-4);
    }
}
