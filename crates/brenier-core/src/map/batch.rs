//! What every map does with batches of rows: check their sizes, find a row's context, sum over shards, find rows without a draw;
//! and the accessors that maps with a layout and a parameter vector have in common.

use std::ops::Range;

use crate::kernel::Real;
use crate::{Error, Result};

/// Rows that are evaluated together where no batch size says otherwise.
pub(super) const EVALUATION_ROWS: usize = 64;

/// Entries of a gradient block: small enough to stay in a core's cache with its optimiser state.
pub(super) const BLOCK_ENTRIES: usize = 16_384;

/// The part of [`ConditionalMap`](super::ConditionalMap) that a map answers from its layout, whose sizes are in `$shape`, and from its
/// parameter vector.
macro_rules! laid_out {
    ($($shape:ident).+) => {
        fn target_dim(&self) -> usize {
            self.$($shape).+.target
        }

        fn given_dim(&self) -> usize {
            self.$($shape).+.given
        }

        fn parameters(&self) -> &[T] {
            &self.parameters
        }

        fn parameters_mut(&mut self) -> &mut [T] {
            &mut self.parameters
        }

        fn tensors(&self) -> Vec<$crate::map::TensorSpec> {
            self.layout.tensors()
        }
    };
}
pub(super) use laid_out;

/// The part of [`Trainable`](super::Trainable) that is the same for every map with a parameter vector and a workspace of a batch.
macro_rules! batch_by_batch {
    ($workspace:ident) => {
        fn load<'a>(&self, workspace: &'a mut $workspace<T>, rows: usize) -> (&'a mut [T], &'a mut [T]) {
            workspace.rows = rows;
            let (n, m) = (self.target_dim(), self.given_dim());
            (&mut workspace.x[..rows * n], &mut workspace.y[..rows * m])
        }

        fn blocks<'a>(&self, workspace: &'a $workspace<T>) -> &'a [$crate::map::ParameterBlock] {
            &workspace.blocks
        }

        fn take_parameters(&mut self) -> Vec<T> {
            std::mem::take(&mut self.parameters)
        }

        fn restore_parameters(&mut self, parameters: Vec<T>) {
            self.parameters = parameters;
        }
    };
}
pub(super) use batch_by_batch;

/// The part of [`TransportMap`](super::TransportMap) that a map in two fields answers, one of each precision.
macro_rules! both_precisions {
    ($single:ident, $double:ident) => {
        fn single(&self) -> &dyn $crate::map::ConditionalMap<f32> {
            &self.$single
        }

        fn double(&self) -> &dyn $crate::map::ConditionalMap<f64> {
            &self.$double
        }
    };
}
pub(super) use both_precisions;

/// Which observation's record, computed once from y, belongs to which row.
#[derive(Clone, Copy)]
pub(super) struct Contexts<'a, T> {
    pub(super) records: &'a [T],
    pub(super) stride: usize,
    /// Record of each row; `None` when row b has record b.
    pub(super) index: Option<&'a [u32]>,
}

impl<'a, T> Contexts<'a, T> {
    #[inline(always)]
    pub(super) fn row(&self, b: usize) -> &'a [T] {
        let record = self.index.map_or(b, |index| index[b] as usize);
        &self.records[record * self.stride..(record + 1) * self.stride]
    }
}

/// Number of rows, where x (n each) and y (m each) agree on it.
pub(super) fn check_batch<T>(x: &[T], y: &[T], n: usize, m: usize) -> Result<usize> {
    let rows = x.len() / n;
    if x.len() != rows * n || y.len() != rows * m {
        return Err(Error::Shape {
            what: "batch",
            expected: format!("rows of {n} target and {m} given numbers"),
            got: format!("{} and {} numbers", x.len(), y.len()),
        });
    }
    Ok(rows)
}

/// An error unless vectors of n a row and numbers of one a row have room for `rows` rows.
pub(super) fn check_outputs(rows: usize, n: usize, vectors: usize, scalars: usize) -> Result<()> {
    if vectors == rows * n && scalars == rows {
        return Ok(());
    }
    Err(Error::Shape {
        what: "outputs",
        expected: format!("{} and {rows} numbers", rows * n),
        got: format!("{vectors} and {scalars}"),
    })
}

/// Number of observations that rows x (n each) refer to, where there are as many in `given` (m each) and room for the
/// answers in `out`.
pub(super) fn check_observations<T>(
    x: &[T],
    given: &[T],
    observation: &[u32],
    out: &[f64],
    n: usize,
    m: usize,
) -> Result<usize> {
    let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
    let rows = observation.len();
    if x.len() != rows * n || out.len() != rows || given.len() < observations * m {
        return Err(Error::Shape {
            what: "rows at observations",
            expected: format!(
                "{rows} rows of {n} and {rows} answers, at least {observations} observations of {m}"
            ),
            got: format!("{}, {} and {} numbers", x.len(), out.len(), given.len()),
        });
    }
    Ok(observations)
}

/// An error unless there are n reference points per row and every row's observation is in `given` (m each).
pub(super) fn check_reference<T>(
    z: &[T],
    given: &[T],
    observation: &[u32],
    n: usize,
    m: usize,
) -> Result<()> {
    let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
    if z.len() == observation.len() * n && given.len() >= observations * m {
        return Ok(());
    }
    Err(Error::Shape {
        what: "reference points",
        expected: format!("{} rows of {n} and {observations} observations of {m}", observation.len()),
        got: format!("{} and {} numbers", z.len(), given.len()),
    })
}

/// The row of `given` (m each) that belongs to each observation.
pub(super) fn rows_of<T: Copy>(given: &[T], observation: &[u32], m: usize) -> Vec<T> {
    let rows = observation.iter().flat_map(|&row| &given[row as usize * m..(row as usize + 1) * m]);
    rows.copied().collect()
}

/// ‖a − b‖∞ of every row of n numbers, NaN where one of them is.
pub(super) fn misses<T: Real>(a: &[T], b: &[T], n: usize) -> Vec<f64> {
    let largest = |(a, b): (&[T], &[T])| {
        a.iter().zip(b).fold(0.0_f64, |most, (a, b)| {
            let apart = (a.to_f64() - b.to_f64()).abs();
            // What is no number stays.
            if apart <= most || most.is_nan() { most } else { apart }
        })
    };
    a.chunks_exact(n).zip(b.chunks_exact(n)).map(largest).collect()
}

/// Columns of a matrix of `rows` rows in pieces of about [`BLOCK_ENTRIES`] entries, but of at least `least` columns.
pub(super) fn slices(cols: usize, rows: usize, least: usize) -> impl Iterator<Item = Range<usize>> {
    let width = (BLOCK_ENTRIES / rows.max(1)).max(least).clamp(1, cols.max(1)).next_multiple_of(8);
    (0..cols).step_by(width).map(move |start| start..(start + width).min(cols))
}

/// An error unless a map gets as many parameters as its shape has.
pub(super) fn check_parameters(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got {
        return Ok(());
    }
    Err(Error::Shape { what, expected: expected.to_string(), got: got.to_string() })
}

/// gradient = Σ parts, in order.
pub(super) fn sum_into<'a, T: Real>(gradient: &mut [T], parts: impl Iterator<Item = &'a [T]>) {
    gradient.fill(T::ZERO);
    for part in parts {
        for (sum, &value) in gradient.iter_mut().zip(part) {
            *sum += value;
        }
    }
}

/// The rows that are not finite, in order.
pub(super) fn not_finite<T: Real>(x: &[T], n: usize) -> Vec<u32> {
    (0..).zip(x.chunks_exact(n)).filter(|(_, x)| !x.iter().all(|x| x.finite())).map(|(row, _)| row).collect()
}

/// An error that names the first of the rows without a draw.
pub(super) fn refuse(unsolved: &[u32]) -> Result<()> {
    match unsolved.first() {
        None => Ok(()),
        Some(row) => Err(Error::Numerical(format!(
            "{} of the draws, the first of them draw {}, are not finite: the observation is far outside the training data",
            unsolved.len(),
            row + 1
        ))),
    }
}
