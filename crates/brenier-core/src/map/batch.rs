//! What every map does with batches of rows: check their sizes, find a row's context, sum over shards, find rows without a draw.

use crate::kernel::Real;
use crate::{Error, Result};

/// Rows that are evaluated together where no batch size says otherwise.
pub(super) const EVALUATION_ROWS: usize = 64;

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

/// ‖a − b‖∞ of every row of n numbers.
pub(super) fn distances(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let largest = |(a, b): (&[f64], &[f64])| {
        a.iter().zip(b).fold(0.0_f64, |most, (a, b)| {
            let apart = (a - b).abs();
            if apart <= most { most } else { apart }
        })
    };
    a.chunks_exact(n).zip(b.chunks_exact(n)).map(largest).collect()
}

/// The rows that are not finite, in order.
pub(super) fn not_finite(x: &[f64], n: usize) -> Vec<u32> {
    let rows = x.chunks_exact(n).enumerate();
    rows.filter(|(_, x)| !x.iter().all(|x| x.is_finite())).map(|(row, _)| row as u32).collect()
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
