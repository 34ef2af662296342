//! The autoregressive front of a flow: w_k = (r_k − μ_k) exp ℓ_k with r = Qx, where μ_k and ℓ_k come from y and from r_1, …, r_{k−1}.
//!
//! Additive noise makes a likelihood linear in y with factors that x decides. So what y says, v_k = C_k e + c_k, is multiplied by
//! factors of the coordinates before, in a network of its own for every coordinate:
//!
//! ```text
//! a = tanh(F_a r_{<k} + f_a),   (α, β) = F_g a + f_g,   m = φ(α ⊙ v_k + β),   q = m + φ(F_h m + f_h),
//! (μ, t) = F_o q + f_o,   ℓ = B tanh(t/B),   φ = ELU,   log det = Σ ℓ_k
//! ```
//!
//! Q is a rotation that is not trained: coordinates that y tells most of come first ([`order`](super::order)), and the later ones are read with
//! these known.
//!
//! With w̄ the adjoint of w_k: μ̄ = −w̄ exp ℓ, r̄_k = w̄ exp ℓ and, of a loss with −log det, ℓ̄ = w̄ w − weight; then through the
//! network, whose values are computed once more on the way back.

use super::NpeMap;
use super::lanes::{LANES, Lanes, apply, backwards, combine, onwards, read, some, write};
use super::shape::Layer;
use super::shard::Shard;
use crate::kernel::{Real, Store, elu, row_products, row_sums, vectorised};

/// B: a scale stays between e^−8 and e^8, however far y is from the training rows.
const BOUND: f64 = 8.0;

/// Where the tensors of one coordinate's network are.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub open: Layer,
    pub gates: Layer,
    pub hidden: Layer,
    pub output: Layer,
}

impl Head {
    /// The layers in order, each with the letter of its tensors.
    pub(super) fn layers(&self) -> [(char, &Layer); 4] {
        [('a', &self.open), ('g', &self.gates), ('h', &self.hidden), ('o', &self.output)]
    }
}

/// The number of parameters of all networks for n coordinates, and of Q.
pub(super) fn count(n: u128, width: u128) -> u128 {
    let each = 2 * width * (width + 1) + width * (width + 1) + 2 * (width + 1) + width;
    n * each + width * n * n.saturating_sub(1) / 2 + n * n
}

/// Values of one network, as columns; those that a layer reads stand after a column of ones.
struct Values<T> {
    stride: usize,
    padded: usize,
    /// r after a column of ones.
    r: Vec<T>,
    a: Vec<T>,
    gates: Vec<T>,
    m: Vec<T>,
    /// φ(F_h m + f_h).
    bent: Vec<T>,
    q: Vec<T>,
    /// μ, then ℓ.
    out: Vec<T>,
}

impl<T: Real> Values<T> {
    fn new(n: usize, width: usize, stride: usize, padded: usize) -> Self {
        let zeros = |count: usize| vec![T::ZERO; stride * count];
        let ones = |count: usize| {
            let mut buffer = zeros(count + 1);
            buffer[..stride].fill(T::ONE);
            buffer
        };
        Self {
            stride,
            padded,
            r: ones(n),
            a: ones(width),
            gates: zeros(2 * width),
            m: ones(width),
            bent: zeros(width),
            q: ones(width),
            out: zeros(2),
        }
    }

    /// The network of coordinate k, whose v are the columns `v`.
    fn run(&mut self, head: &Head, parameters: &[T], k: usize, v: &[T]) {
        let Self { stride, padded, r, a, gates, m, bent, q, out } = self;
        let (stride, padded, width) = (*stride, *padded, head.hidden.outputs);
        let inner = 0..width + 1;
        let layer = |layer: &Layer| onwards(layer, parameters);
        row_products(
            &mut a[stride..],
            stride,
            Store::Replace,
            some(r, stride, 0..k + 1),
            padded,
            layer(&head.open),
        );
        apply(&mut a[stride..], stride, padded, |s| s.tanh_vec());
        row_products(
            gates,
            stride,
            Store::Replace,
            some(a, stride, inner.clone()),
            padded,
            layer(&head.gates),
        );
        m[stride..].copy_from_slice(&gates[width * stride..]);
        let (alpha, own) = (&gates[..width * stride], &mut m[stride..]);
        vectorised(
            #[inline(always)]
            || {
                for column in 0..width {
                    let at = column * stride;
                    for start in (at..at + padded).step_by(LANES) {
                        let (alpha, v): (Lanes<T>, Lanes<T>) = (read(alpha, start), read(v, start));
                        let mut values: Lanes<T> = read(own, start);
                        for l in 0..LANES {
                            values[l] = elu(alpha[l].fma(v[l], values[l]));
                        }
                        write(own, start, &values);
                    }
                }
            },
        );
        row_products(
            bent,
            stride,
            Store::Replace,
            some(m, stride, inner.clone()),
            padded,
            layer(&head.hidden),
        );
        apply(bent, stride, padded, elu);
        q[stride..].copy_from_slice(&m[stride..]);
        combine(&mut q[stride..], bent, stride, padded, |m, bent| m + bent);
        row_products(out, stride, Store::Replace, some(q, stride, inner), padded, layer(&head.output));
        let bound = T::from_f64(BOUND);
        apply(&mut out[stride..], stride, padded, |t| bound * (t / bound).tanh_vec());
    }
}

/// φ' times an adjoint, from the value of φ.
#[inline(always)]
fn through_elu<T: Real>(bar: T, value: T) -> T {
    if value > T::ZERO { bar } else { bar * (value + T::ONE) }
}

impl<T: Real> NpeMap<T> {
    /// r = Qx into columns after one of ones, or x = Qᵀr where `back`.
    fn rotate(&self, from: &[T], to: &mut [T], stride: usize, padded: usize, back: bool) {
        let n = self.layout.shape.target;
        let rotation = &self.parameters[self.layout.rotation.clone()];
        to[..n * stride].fill(T::ZERO);
        vectorised(
            #[inline(always)]
            || {
                for i in 0..n {
                    let out = &mut to[i * stride..][..padded];
                    for j in 0..n {
                        let factor = if back { rotation[j + i * n] } else { rotation[i + j * n] };
                        for (out, &from) in out.iter_mut().zip(&from[j * stride..][..padded]) {
                            *out = factor.fma(from, *out);
                        }
                    }
                }
            },
        );
    }

    /// The columns v_k of coordinate k among a shard's contexts.
    fn said(&self, contexts: &[T], k: usize, stride: usize) -> std::ops::Range<usize> {
        let width = self.layout.shape.front_width;
        let start = (self.layout.flow_record() + k * width) * stride;
        debug_assert!(start + width * stride <= contexts.len());
        start..start + width * stride
    }

    /// w as the state before the first transform, and its log-determinant, from x.
    pub(super) fn enter_heads(&self, shard: &mut Shard<T>, rows: usize) {
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let mut values = Values::new(n, self.layout.shape.front_width, stride, padded);
        let Shard { entered, states, contexts, log, .. } = shard;
        self.rotate(entered, &mut values.r[stride..], stride, padded, false);
        for (k, head) in self.layout.heads.iter().enumerate() {
            values.run(head, &self.parameters, k, &contexts[self.said(contexts, k, stride)]);
            let (mean, scale) = values.out.split_at(stride);
            let (r, w) = (&values.r[(k + 1) * stride..], &mut states[0][(k + 1) * stride..]);
            for b in 0..padded {
                w[b] = (r[b] - mean[b]) * scale[b].exp_vec();
                log[b] += scale[b];
            }
        }
        shard.settle_log(rows, 0.0);
    }

    /// x from w, the state before the first transform.
    pub(super) fn leave_heads(&self, shard: &mut Shard<T>, rows: usize) {
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let mut values = Values::new(n, self.layout.shape.front_width, stride, padded);
        let Shard { entered, states, contexts, .. } = shard;
        for (k, head) in self.layout.heads.iter().enumerate() {
            values.run(head, &self.parameters, k, &contexts[self.said(contexts, k, stride)]);
            let (mean, scale) = values.out.split_at(stride);
            let (r, w) = (&mut values.r[(k + 1) * stride..], &states[0][(k + 1) * stride..]);
            for b in 0..padded {
                r[b] = (-scale[b]).exp_vec().fma(w[b], mean[b]);
            }
        }
        self.rotate(&values.r[stride..], entered, stride, padded, true);
    }

    /// From w̄ in `bars.state` to x̄ there, v̄ among the contexts' adjoints, and the gradients of the networks where they are wanted.
    pub(super) fn pull_heads(&self, shard: &mut Shard<T>, rows: usize, weight: T) {
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let width = self.layout.shape.front_width;
        let mut values = Values::new(n, width, stride, padded);
        let zeros = |count: usize| vec![T::ZERO; stride * count];
        let (mut r_bar, mut out_bar, mut m_bar) = (zeros(n), zeros(2), zeros(width));
        let (mut bent_bar, mut gate_bar, mut a_bar) = (zeros(width), zeros(2 * width), zeros(width));
        let Shard { entered, contexts, bars, .. } = shard;
        self.rotate(entered, &mut values.r[stride..], stride, padded, false);
        let (train, bound) = (!bars.gradient.is_empty(), T::from_f64(BOUND));
        for (k, head) in self.layout.heads.iter().enumerate() {
            let said = self.said(contexts, k, stride);
            let v = &contexts[said.clone()];
            values.run(head, &self.parameters, k, v);
            let (mean, scale) = values.out.split_at(stride);
            let w_bar = &bars.state[k * stride..];
            for b in 0..padded {
                let (factor, r) = (scale[b].exp_vec(), values.r[(k + 1) * stride + b]);
                let slope = T::ONE - (scale[b] / bound) * (scale[b] / bound);
                out_bar[b] = -w_bar[b] * factor;
                out_bar[stride + b] = (w_bar[b] * (r - mean[b]) * factor - weight) * slope;
                r_bar[k * stride + b] += w_bar[b] * factor;
            }
            let back = |layer: &Layer| backwards(layer, &self.parameters);
            let all = |columns: usize| 0..columns;
            let out = some(&out_bar, stride, all(2));
            row_products(&mut m_bar, stride, Store::Replace, out, padded, back(&head.output));
            bent_bar.copy_from_slice(&m_bar);
            combine(&mut bent_bar, &values.bent, stride, padded, through_elu);
            let bent = some(&bent_bar, stride, all(width));
            row_products(&mut m_bar, stride, Store::Add, bent, padded, back(&head.hidden));
            combine(&mut m_bar, &values.m[stride..], stride, padded, through_elu);
            // s = α ⊙ v + β.
            let (alpha_bar, beta_bar) = gate_bar.split_at_mut(width * stride);
            beta_bar.copy_from_slice(&m_bar);
            alpha_bar.copy_from_slice(&m_bar);
            combine(alpha_bar, v, stride, padded, |bar, v| bar * v);
            let v_bar = &mut bars.contexts[said];
            v_bar.copy_from_slice(&m_bar);
            combine(v_bar, &values.gates[..width * stride], stride, padded, |bar, alpha| bar * alpha);
            let gates = some(&gate_bar, stride, all(2 * width));
            row_products(&mut a_bar, stride, Store::Replace, gates, padded, back(&head.gates));
            combine(&mut a_bar, &values.a[stride..], stride, padded, |bar, a| bar * (T::ONE - a * a));
            let opened = some(&a_bar, stride, all(width));
            if k > 0 {
                row_products(&mut r_bar, stride, Store::Add, opened, padded, back(&head.open));
            }
            if train {
                let sums = [
                    (&head.output, out, some(&values.q, stride, all(width + 1))),
                    (&head.hidden, bent, some(&values.m, stride, all(width + 1))),
                    (&head.gates, gates, some(&values.a, stride, all(width + 1))),
                    (&head.open, opened, some(&values.r, stride, all(k + 1))),
                ];
                for (layer, bar, input) in sums {
                    let gradient = &mut bars.gradient[layer.all()];
                    row_sums(gradient, layer.outputs, bar, input, rows, &mut bars.turned);
                }
            }
        }
        self.rotate(&r_bar, &mut bars.state, stride, padded, true);
    }
}
