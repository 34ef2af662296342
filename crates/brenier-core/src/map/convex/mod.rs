//! What the gradient maps of convex potentials share: the assembly of their Hessians ([`loops`]), and the inversion
//! x with ∇ₓG(x; y) = z for any G that can be evaluated with its gradient and Hessian on some rows at a time.

mod inverse;
pub(super) mod loops;
mod newton;
mod rows;
mod start;

pub use inverse::{InverseSettings, Precision, Solver};

pub(super) use inverse::{Inverse, demand_solved};

use std::sync::{Mutex, PoisonError};

use super::batch::Contexts;
use crate::kernel::Real;
use crate::parallel::each;
use rows::ROWS;

/// Given variables from which on the first weights of the contexts are too large to be read by every shard.
pub(super) const WIDE: usize = 512;

/// Rows of a shard of a training step: depends on the batch alone, so that the number of threads changes no bit.
///
/// Few enough that a batch makes at least two shards (four where it can), enough for efficient products.
pub(super) fn shard_rows(batch: usize) -> usize {
    if batch < 64 { batch.div_ceil(2).next_multiple_of(8) } else { 32 }
}

/// A potential G(x; y), smooth and strongly convex in x for every y.
///
/// What depends on y alone is computed once per observation, into a record; rows then refer to their records.
pub(super) trait ConvexPotential<T: Real>: Sync {
    /// Memory for a fixed number of rows and the results of their last evaluation.
    type Shard: Send;

    /// n, the length of x.
    fn target(&self) -> usize;

    /// m, the length of y.
    fn given(&self) -> usize;

    /// Length of an observation's record.
    fn record(&self) -> usize;

    /// Memory for `rows` rows.
    fn room(&self, rows: usize) -> Self::Shard;

    /// Records of `count` observations y.
    fn contexts(&self, y: &[T], records: &mut [T], count: usize);

    /// G, ∇G and the Cholesky factor and log determinant of ∇²G, for every row.
    fn evaluate(&self, shard: &mut Self::Shard, contexts: Contexts<'_, T>, x: &[T], rows: usize);

    /// ∇G alone, and G where it is asked for.
    fn gradient(
        &self,
        shard: &mut Self::Shard,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        with_value: bool,
    );

    /// G of row b at x after an evaluation, and the size of the terms it is the sum of.
    fn potential(&self, shard: &Self::Shard, b: usize, x: &[T]) -> (f64, f64);

    /// The results of the last evaluation.
    fn evaluated<'a>(&self, shard: &'a Self::Shard) -> Evaluated<'a, T>;
}

/// What an evaluation of some rows left behind.
pub(super) struct Evaluated<'a, T> {
    /// ∇G, n numbers per row.
    pub(super) gradient: &'a [T],
    /// Cholesky factor of ∇²G, n × n a row; after an evaluation of the gradient alone that of an earlier one.
    pub(super) factor: &'a [f64],
    /// log det ∇²G, NaN where it is not positive definite in floating point.
    pub(super) log_det: &'a [f64],
}

/// Records of many observations.
pub(super) fn context_records<T: Real, P: ConvexPotential<T>>(
    map: &P,
    given: &[T],
    observations: usize,
) -> Vec<T> {
    let (m, stride) = (map.given(), map.record());
    let mut records = vec![T::ZERO; observations * stride];
    each(records.chunks_mut(ROWS * stride), |index, records| {
        let count = records.len() / stride;
        map.contexts(&given[index * ROWS * m..][..count * m], records, count);
    });
    records
}

/// One shard a thread, made when first needed and used again by later calls.
#[derive(Debug)]
struct Shards<S> {
    rows: usize,
    slots: Vec<Mutex<Option<S>>>,
}

impl<S> Shards<S> {
    /// Shards of `rows` rows.
    fn new(rows: usize) -> Self {
        // One slot more for a thread outside the pool.
        Self { rows, slots: (0..=rayon::current_num_threads()).map(|_| Mutex::new(None)).collect() }
    }

    /// Runs `op` with this thread's shard. `op` must not start parallel work of its own.
    fn with<T: Real, P: ConvexPotential<T, Shard = S>, R>(&self, map: &P, op: impl FnOnce(&mut S) -> R) -> R {
        let own = rayon::current_thread_index().unwrap_or(self.slots.len() - 1).min(self.slots.len() - 1);
        let mut slot = self.slots[own].lock().unwrap_or_else(PoisonError::into_inner);
        op(slot.get_or_insert_with(|| map.room(self.rows)))
    }
}
