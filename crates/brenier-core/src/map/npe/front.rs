//! The conditional affine front of a flow: u = (I + N(y)) D(y) (x − μ(y)), so that place and scale come straight from y.
//!
//! Before the first transform, with w = D(x − μ), D = diag(exp ℓ) and N strictly lower triangular,
//!
//! u_i = w_i + Σ_{j<i} N_ij w_j,   log det = Σ ℓ_j.
//!
//! (μ, t, N) = C e + c are columns of what the flow takes from y, linear in the embedding's output, and ℓ = B tanh(t/B). With
//! ū the adjoint of u: w̄_j = ū_j + Σ_{i>j} N_ij ū_i, N̄_ij = ū_i w_j, x̄_j = w̄_j exp ℓ_j = −μ̄_j and, of a loss with −log det,
//! ℓ̄_j = w̄_j w_j − weight.

use std::ops::Range;

use super::NpeMap;
use super::lanes::{apply, combine};
use super::shard::Shard;
use crate::kernel::{Real, vectorised};
use crate::map::pcp::Front;

/// B: a scale stays between e^−8 and e^8, however far y is from the training rows.
const BOUND: f64 = 8.0;

/// Columns that a front takes from y: μ, ℓ, then the rows of N; or those of the networks of an autoregressive one, of the width `heads`.
pub(super) fn width(front: Front, target: usize, heads: usize) -> usize {
    match front {
        Front::None => 0,
        Front::Affine => target.saturating_mul(target.saturating_add(3)) / 2,
        Front::Autoregressive => target.saturating_mul(heads),
    }
}

/// The place of N_i0 among the columns of a front.
fn row(n: usize, i: usize) -> usize {
    2 * n + i * i.saturating_sub(1) / 2
}

impl<T: Real> NpeMap<T> {
    /// Whether the front has a network for every coordinate.
    fn has_heads(&self) -> bool {
        self.layout.shape.front == Front::Autoregressive
    }

    /// Whether there is a front.
    pub(super) fn has_front(&self) -> bool {
        self.layout.shape.front != Front::None
    }

    /// The entries of a shard's contexts that belong to the front.
    fn front_columns(&self, stride: usize) -> Range<usize> {
        self.layout.flow_record() * stride..self.layout.record * stride
    }

    /// From t to ℓ, where the front's columns have their biases.
    pub(super) fn close_front(&self, columns: &mut [T], stride: usize, padded: usize) {
        if self.has_heads() {
            return;
        }
        let (n, bound) = (self.layout.shape.target, T::from_f64(BOUND));
        let scales = &mut columns[n * stride..2 * n * stride];
        apply(scales, stride, padded, |t| bound * (t / bound).tanh_vec());
    }

    /// From ℓ̄ to t̄, in place.
    pub(super) fn open_front_bars(&self, bars: &mut [T], values: &[T], stride: usize, padded: usize) {
        if self.has_heads() {
            return;
        }
        let (n, bound) = (self.layout.shape.target, T::from_f64(BOUND));
        let place = n * stride..2 * n * stride;
        let slope = |bar: T, log: T| bar * (T::ONE - (log / bound) * (log / bound));
        combine(&mut bars[place.clone()], &values[place], stride, padded, slope);
    }

    /// u as the state before the first transform, and its log-determinant, from x.
    pub(super) fn enter_front(&self, shard: &mut Shard<T>, rows: usize) {
        if self.has_heads() {
            return self.enter_heads(shard, rows);
        }
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let place = self.front_columns(stride);
        let Shard { entered, states, contexts, log, .. } = shard;
        let (front, u) = (&contexts[place], &mut states[0][stride..]);
        vectorised(
            #[inline(always)]
            || {
                // w in the place of u, then u from the last coordinate down, whose w no other one needs.
                for j in 0..n {
                    let (mean, scale) = (&front[j * stride..], &front[(n + j) * stride..]);
                    let (x, w) = (&entered[j * stride..], &mut u[j * stride..]);
                    for b in 0..padded {
                        w[b] = (x[b] - mean[b]) * scale[b].exp_vec();
                        log[b] += scale[b];
                    }
                }
                for i in (1..n).rev() {
                    let (below, own) = u.split_at_mut(i * stride);
                    for j in 0..i {
                        let factor = &front[(row(n, i) + j) * stride..];
                        for b in 0..padded {
                            own[b] = factor[b].fma(below[j * stride + b], own[b]);
                        }
                    }
                }
            },
        );
        shard.settle_log(rows, 0.0);
    }

    /// x̄ in the place of ū in `bars.state`, and the adjoints of the front's columns; the head of this file has the formulas.
    pub(super) fn pull_front(&self, shard: &mut Shard<T>, rows: usize, weight: T) {
        if self.has_heads() {
            return self.pull_heads(shard, rows, weight);
        }
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let place = self.front_columns(stride);
        let Shard { entered, contexts, bars, .. } = shard;
        let front = &contexts[place.clone()];
        let (state, out) = (&mut bars.state, &mut bars.contexts[place]);
        vectorised(
            #[inline(always)]
            || {
                for j in 0..n {
                    let (mean, scale) = (&front[j * stride..], &front[(n + j) * stride..]);
                    let x = &entered[j * stride..];
                    // From the first coordinate up: ū of those above is still in its place.
                    let (own, above) = state[j * stride..].split_at_mut(stride);
                    for i in j + 1..n {
                        let u_bar = &above[(i - j - 1) * stride..];
                        let at = (row(n, i) + j) * stride;
                        let (factor, bar) = (&front[at..], &mut out[at..]);
                        for b in 0..padded {
                            own[b] = factor[b].fma(u_bar[b], own[b]);
                            bar[b] = u_bar[b] * (x[b] - mean[b]) * scale[b].exp_vec();
                        }
                    }
                    for b in 0..padded {
                        let scale = scale[b].exp_vec();
                        let w = (x[b] - mean[b]) * scale;
                        out[(n + j) * stride + b] = own[b] * w - weight;
                        own[b] *= scale;
                        out[j * stride + b] = -own[b];
                    }
                }
            },
        );
    }

    /// x from u, the state before the first transform.
    pub(super) fn leave_front(&self, shard: &mut Shard<T>, rows: usize) {
        if self.has_heads() {
            return self.leave_heads(shard, rows);
        }
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let place = self.front_columns(stride);
        let Shard { entered, states, contexts, .. } = shard;
        let (front, u) = (&contexts[place], &mut states[0][stride..]);
        vectorised(
            #[inline(always)]
            || {
                for i in 0..n {
                    let (below, own) = u.split_at_mut(i * stride);
                    for j in 0..i {
                        let factor = &front[(row(n, i) + j) * stride..];
                        for b in 0..padded {
                            own[b] = (-factor[b]).fma(below[j * stride + b], own[b]);
                        }
                    }
                    let (mean, scale) = (&front[i * stride..], &front[(n + i) * stride..]);
                    let x = &mut entered[i * stride..];
                    for b in 0..padded {
                        x[b] = (-scale[b]).exp_vec().fma(own[b], mean[b]);
                    }
                }
            },
        );
    }
}
