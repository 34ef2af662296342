//! Newton's method on many rows at once, in either precision.
//!
//! Each row minimises φ(x) = G(x) − zᵀx, which is smooth and strongly convex: its gradient F = ∇G − z vanishes at
//! exactly one point, and d = −H⁻¹F is a direction of descent. Every step is judged by φ and its slope along d before it
//! is taken, so a row never leaves the best point it has found, however fast H changes on the way.

use super::rows::{ROWS, Rows, Search, Span, largest};
use super::{ConvexPotential, Shards};
use crate::kernel::Real;
use crate::map::batch::Contexts;
use crate::parallel::each_with;

/// Polishing steps with a fixed factor before Newton takes over again.
const POLISH_ROUNDS: u32 = 4;
/// A line search that comes down to this step has reached the precision's limit.
const SHORTEST_STEP: f64 = 1e-12;

/// When a row of Newton's method is finished.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// Largest residual ‖F‖∞.
    pub(super) residual: f64,
    /// Largest decrement FᵀH⁻¹F: twice what φ can still fall by if H stays as it is.
    pub(super) decrement: f64,
    /// Evaluations a row may take, those before included.
    pub(super) evaluations: u32,
}

impl Goal {
    /// Whether the row's point is good enough.
    pub(super) fn reached(&self, search: &Search) -> bool {
        search.residual <= self.residual && -search.slope <= self.decrement
    }

    /// Whether the row is done with, solved or not.
    fn ends(&self, search: &Search) -> bool {
        let spent = search.step.is_nan() || (search.step > 0.0 && search.step < SHORTEST_STEP);
        self.reached(search) || spent || search.evaluations >= self.evaluations
    }
}

/// Damped Newton on all rows until each reaches its goal or cannot be improved in this precision.
///
/// Finished rows rest while the others continue; in the end all are back, in no particular order, each at its best
/// point with the factor of H there and the next direction.
pub(super) fn newton<T: Real, P: ConvexPotential<T>>(
    map: &P,
    rows: &mut Rows,
    records: &[T],
    goal: Goal,
    shards: &Shards<P::Shard>,
) {
    let (n, stride) = (map.target(), map.record());
    let mut resting = Vec::new();
    loop {
        let finished: Vec<bool> = rows.search.iter().map(|search| goal.ends(search)).collect();
        resting.push(rows.take_where(&finished));
        if rows.len() == 0 {
            break;
        }
        each_with(
            rows.spans(),
            || (vec![T::ZERO; ROWS * n], vec![0.0; n]),
            |(trial, misfit), _, mut span| {
                shards.with(map, |shard| {
                    let count = span.observation.len();
                    span.trials(trial, n);
                    let contexts = Contexts { records, stride, index: Some(span.observation) };
                    map.evaluate(shard, contexts, trial, count);
                    for b in 0..count {
                        take_trial(map, shard, &mut span, b, &trial[b * n..(b + 1) * n], misfit);
                    }
                })
            },
        );
    }
    for rested in resting {
        rows.append(rested);
    }
}

/// Accepts row b's trial as its point, with the next direction, or sets a shorter step.
fn take_trial<T: Real, P: ConvexPotential<T>>(
    map: &P,
    shard: &P::Shard,
    span: &mut Span<'_>,
    b: usize,
    trial: &[T],
    misfit: &mut [f64],
) {
    let point = map.evaluated(shard);
    let n = trial.len();
    let row = b * n..(b + 1) * n;
    let square = b * n * n..(b + 1) * n * n;
    span.misfit(b, &point.gradient[row.clone()], misfit);
    let slope: f64 = span.direction[row.clone()].iter().zip(misfit.iter()).map(|(d, f)| d * f).sum();
    let (potential, size) = map.potential(shard, b, trial);
    let linear: f64 = trial.iter().zip(&span.z[row.clone()]).map(|(x, z)| x.to_f64() * z).sum();
    let noise = 16.0 * T::UNIT_ROUNDOFF * (size + linear.abs());
    let usable = point.log_det[b].is_finite() && misfit.iter().all(|f| f.is_finite());
    let merit = if usable { potential - linear } else { f64::INFINITY };
    let search = &mut span.search[b];
    search.evaluations += 1;
    let Some(mut next) = search.judge(merit, slope, noise) else { return };
    let best = &mut span.x[row];
    let moved = best.iter().zip(trial).any(|(x, trial)| *x != trial.to_f64());
    if search.step > 0.0 && !moved {
        // The step is below the spacing of the numbers: x is as good as this precision can tell.
        next = f64::NAN;
    }
    for (x, trial) in best.iter_mut().zip(trial) {
        *x = trial.to_f64();
    }
    search.merit = merit;
    span.factor[square.clone()].copy_from_slice(&point.factor[square]);
    span.aim(b, misfit, next);
}

/// Gradient steps with the factor at hand, x ← x − (LLᵀ)⁻¹F, while they contract; `done` takes the solved rows.
///
/// The rows that are left over keep the best point they have.
pub(super) fn polish<T: Real, P: ConvexPotential<T>>(
    map: &P,
    rows: &mut Rows,
    records: &[T],
    tolerance: f64,
    shards: &Shards<P::Shard>,
    mut done: impl FnMut(&Rows, usize),
) {
    let (n, stride) = (map.target(), map.record());
    let mut leftover = Vec::new();
    for _ in 0..POLISH_ROUNDS {
        if rows.len() == 0 {
            break;
        }
        each_with(
            rows.spans(),
            || (vec![T::ZERO; ROWS * n], vec![0.0; n]),
            |(trial, misfit), _, mut span| {
                shards.with(map, |shard| {
                    let count = span.observation.len();
                    span.trials(trial, n);
                    let contexts = Contexts { records, stride, index: Some(span.observation) };
                    map.gradient(shard, contexts, trial, count, false);
                    for b in 0..count {
                        let row = b * n..(b + 1) * n;
                        span.misfit(b, &map.evaluated(shard).gradient[row.clone()], misfit);
                        let search = &mut span.search[b];
                        search.evaluations += 1;
                        let residual = largest(misfit);
                        if residual <= tolerance || residual < 0.5 * search.residual {
                            for (x, trial) in span.x[row.clone()].iter_mut().zip(&trial[row]) {
                                *x = trial.to_f64();
                            }
                            span.aim(b, misfit, 1.0);
                        } else {
                            search.step = 0.0;
                        }
                    }
                })
            },
        );
        let solved: Vec<bool> = rows.search.iter().map(|search| search.residual <= tolerance).collect();
        (0..rows.len()).filter(|&row| solved[row]).for_each(|row| done(rows, row));
        rows.drop_where(&solved);
        let stalled: Vec<bool> = rows.search.iter().map(|search| search.step == 0.0).collect();
        if stalled.iter().any(|&stalled| stalled) {
            leftover.push(rows.take_where(&stalled));
        }
    }
    for rested in leftover {
        rows.append(rested);
    }
}
