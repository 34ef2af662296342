//! The reverse pass through one potential, by hand: from the adjoints of ∇F and of log det H to those of every weight and of x.
//!
//! With ḡ the adjoint of ∇F and H̄ that of H the order is that of a PCP-Map: through the curvature terms d_k, up the
//! sensitivities e_k, down the Jacobians M_k and features s_k, and last back through the contexts.

use crate::kernel::Accum;

use super::features::{Pass, Scratch, Sums};
use super::weights::{Weights, softplus_slope};
use super::{CpFlowMap, Parts};
use crate::kernel::{Real, columns, columns_mut, dot, product, spd, vectorised};
use crate::map::convex::loops::{DENSE_FROM, bend_row, combine, input_row, reach_row};

impl<T: Real> CpFlowMap<T> {
    /// Adjoint of Σ_rows (ḡᵀ∇F − `weight`·log det H) after [`evaluate`](CpFlowMap::evaluate), or, where the log determinant is
    /// estimated, with an unbiased estimate of H⁻¹ in place of H⁻¹.
    ///
    /// `bar` holds ḡ before and the adjoint of x after. Leaves the adjoints of the contexts in `records`, sums over the
    /// rows in the pass, and what the gradients of the Ã_k are products of in `bar` and `gated`.
    pub(super) fn pull_back_potential(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        scratch: &mut Scratch<T>,
        contexts: Parts<'_, T>,
        rows: usize,
        weight: f64,
        bar: &mut [T],
        records: &mut [T],
    ) {
        let depth = self.layout.shape.depth;
        let Sums { input, constant, factor, head, head_input, context_factor, mixture } = &mut pass.sums;
        for sums in input.iter_mut().chain(constant).chain(factor) {
            sums.fill(T::ZERO);
        }
        head.fill(T::ZERO);
        head_input.fill(T::ZERO);
        context_factor.fill(T::ZERO);
        *mixture = [0.0; 2];
        self.open_adjoint(pass, weights, scratch, contexts, rows, weight, bar, records);
        self.bend_adjoint(pass, weights, scratch, rows);
        for k in 0..depth {
            self.climb(pass, weights, scratch, contexts, k, rows, records);
        }
        for k in (0..depth).rev() {
            self.descend(pass, weights, scratch, contexts, k, rows, bar, records);
        }
    }

    /// The adjoints of a, b, ∂N/∂x and of what the head does to x.
    ///
    /// On return `hessian` holds 2a H̄ (symmetric), `slope` the adjoint a ḡ of ∂N/∂x, and `bar` b ḡ.
    fn open_adjoint(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        scratch: &mut Scratch<T>,
        contexts: Parts<'_, T>,
        rows: usize,
        weight: f64,
        bar: &mut [T],
        records: &mut [T],
    ) {
        let (n, _, depth) = self.sizes();
        let (layout, stride) = (&self.layout, self.layout.record);
        let a = weights.a.to_f64();
        for b in 0..rows {
            let square = b * n * n..(b + 1) * n * n;
            match &pass.probes {
                Some(probes) => probes.inverse(b, &mut scratch.inverse),
                None => spd::invert(&pass.factor[square.clone()], &mut scratch.inverse, &mut scratch.spd),
            }
            let hessian = &mut pass.hessian[square];
            let (slope, bar) = (&mut pass.slope[b * n..(b + 1) * n], &mut bar[b * n..(b + 1) * n]);
            let x = &pass.x[b * n..(b + 1) * n];
            let (mut bend, mut trace, mut reach, mut quadratic) = (0.0, 0.0, 0.0, 0.0);
            for j in 0..n {
                trace -= scratch.inverse[j + j * n];
                reach += bar[j].to_f64() * slope[j].to_f64();
                quadratic += bar[j].to_f64() * x[j].to_f64();
                for i in j..n {
                    let twice = if i == j { 1.0 } else { 2.0 };
                    bend -= twice * scratch.inverse[i + j * n] * hessian[i + j * n].to_f64();
                }
            }
            pass.sums.mixture[0] += reach + weight * bend;
            pass.sums.mixture[1] += quadratic + weight * trace;
            for (hessian, &inverse) in hessian.iter_mut().zip(&scratch.inverse) {
                *hessian = T::from_f64(-2.0 * a * weight * inverse);
            }
            let q = &contexts.row(b)[layout.q(depth)];
            let q_bar = &mut records[b * stride + contexts.start..][..layout.part][layout.q(depth)];
            for j in 0..n {
                slope[j] = weights.a * bar[j];
                q_bar[j] = weights.head_input[j] * slope[j];
                pass.sums.head_input[j] += q[j] * slope[j];
                bar[j] *= weights.b;
            }
        }
    }

    /// With P = 2a M_k H̄: M̄_k = diag(d_k) P and d̄_k = ½ rowsum(P ⊙ M_k), for every layer.
    fn bend_adjoint(&self, pass: &mut Pass<T>, weights: &Weights<T>, scratch: &mut Scratch<T>, rows: usize) {
        let (n, h, _) = self.sizes();
        let span = h * (n + 1);
        let Pass { hidden, hessian, .. } = pass;
        for (k, layer) in hidden.iter_mut().enumerate() {
            let input = &weights.layers[k].input;
            let mut bars = std::mem::take(&mut layer.bar);
            bars[span * rows..(span + h) * rows].copy_from_slice(&layer.delta[..h * rows]);
            if n >= DENSE_FROM {
                for b in 0..rows {
                    let turn = columns(&hessian[b * n * n..(b + 1) * n * n], n, n, n);
                    let jacobian = columns(layer.jacobian(k, b, h, input), h, n, h);
                    let dst = columns_mut(&mut bars[b * span + h..(b + 1) * span], h, n, h);
                    product(dst, Accum::Replace, jacobian, turn);
                }
            }
            let totals = &mut scratch.curvature_bar[k * h * rows..][..h * rows];
            let turned = &mut scratch.columns[..h];
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * h..(b + 1) * h;
                        let jacobian = layer.jacobian(k, b, h, input);
                        let bar = &mut bars[b * span + h..(b + 1) * span];
                        let turn = &hessian[b * n * n..(b + 1) * n * n];
                        let (bend, total) = (&layer.bend[row.clone()], &mut totals[row]);
                        total.fill(T::ZERO);
                        for (j, bar) in bar.chunks_exact_mut(h).enumerate() {
                            if n < DENSE_FROM {
                                combine(turned, jacobian, &turn[j * n..(j + 1) * n]);
                            } else {
                                turned.copy_from_slice(bar);
                            }
                            bend_row(bar, total, turned, &jacobian[j * h..(j + 1) * h], bend);
                        }
                    }
                },
            );
            layer.bar = bars;
        }
    }

    /// Layer k on the way up the sensitivities: s̄_k's share of d̄_k and δ̄_k, p̄_{k+1}, t_{k+1} and δ̄_{k+1}.
    ///
    /// With σ''' = −sσ'' and R = Ã_{k+1}ᵀδ_{k+1}:
    /// s̄_k = d_k (δ̄ − s d̄),  ē = d̄ σ'' + δ̄ σ',  p̄_{k+1} = ē R,  t = p_{k+1} ē,  δ̄_{k+1} = Ã_{k+1} t.
    fn climb(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        scratch: &mut Scratch<T>,
        contexts: Parts<'_, T>,
        k: usize,
        rows: usize,
        records: &mut [T],
    ) {
        let (n, h, depth) = self.sizes();
        let (layout, stride, span) = (&self.layout, self.layout.record, h * (n + 1));
        let is_top = k + 1 == depth;
        let Scratch { delta_bar, curvature_bar, columns: room, .. } = scratch;
        let bars = &curvature_bar[k * h * rows..][..h * rows];
        let Pass { hidden, slope, sums, .. } = pass;
        let (this, rest) = hidden[k..].split_first_mut().expect("k < depth");
        let mut next = rest.first_mut();
        let input = &weights.layers[k].input;
        let factor_sum = &mut sums.factor[k];
        let mut adjoint = std::mem::take(&mut this.bar);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * h..(b + 1) * h;
                    let p = &contexts.row(b)[layout.p(k + 1)];
                    let p_bar = &mut records[b * stride + contexts.start..][..layout.part][layout.p(k + 1)];
                    let delta_bar = &mut delta_bar[row.clone()];
                    let delta = &this.delta[row.clone()];
                    let (s_bar, m_bar) = adjoint[b * span..(b + 1) * span].split_at_mut(h);
                    if k == 0 {
                        delta_bar.fill(T::ZERO);
                    }
                    // δ_k Ã_k t_k, the share of α_k in e_k = p_k ⊙ Ã_kᵀδ_k.
                    for ((sum, &delta), &bar) in factor_sum.iter_mut().zip(delta).zip(delta_bar.iter()) {
                        *sum = delta.fma(bar, *sum);
                    }
                    if is_top {
                        // ∂N/∂x = M_{K−1}ᵀ δ_{K−1} + …
                        let jacobian = this.jacobian(k, b, h, input);
                        for j in 0..n {
                            let column = j * h..(j + 1) * h;
                            let m = &jacobian[column.clone()];
                            reach_row(slope[b * n + j], m, delta, delta_bar, &mut m_bar[column]);
                        }
                    }
                    let (back, top) = match next.as_deref_mut() {
                        Some(next) => (&next.back[row.clone()], &mut next.gated[span * rows + b * h..][..h]),
                        None => (weights.head.as_slice(), &mut room[..h]),
                    };
                    let (first, second) = (&this.first[row.clone()], &this.second[row.clone()]);
                    let from = [
                        &this.s[row.clone()],
                        first,
                        second,
                        &this.bend[row.clone()],
                        &bars[row],
                        delta_bar,
                        back,
                        p,
                    ];
                    climb_row(s_bar, p_bar, top, from);
                    if is_top {
                        for (sum, &top) in sums.head.iter_mut().zip(top.iter()) {
                            *sum += top;
                        }
                    }
                }
            },
        );
        this.bar = adjoint;
        if let Some(next) = next {
            let weight = columns(&weights.layers[k + 1].feature, h, h, h);
            let dst = columns_mut(delta_bar, h, rows, h);
            product(dst, Accum::Replace, weight, columns(&next.gated[span * rows..], h, rows, h));
        }
    }

    /// Layer k on the way down: the sums of its weights, the adjoints of q_k and c_k and of x, then through Ã_k into layer
    /// k − 1.
    fn descend(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        scratch: &mut Scratch<T>,
        contexts: Parts<'_, T>,
        k: usize,
        rows: usize,
        x_bar: &mut [T],
        records: &mut [T],
    ) {
        let (n, h, _) = self.sizes();
        let (layout, stride, span) = (&self.layout, self.layout.record, h * (n + 1));
        let layer = &weights.layers[k];
        let Pass { hidden, x, sums, .. } = pass;
        let Scratch { pulled, columns: room, .. } = scratch;
        let (lower, upper) = hidden.split_at_mut(k);
        let this = &upper[0];
        if k > 0 {
            let dst = columns_mut(pulled, h, (n + 1) * rows, h);
            let weight = columns(&layer.feature, h, h, h);
            product(dst, Accum::Replace, weight.transpose(), columns(&this.bar, h, (n + 1) * rows, h));
        }
        let (input_sum, constant_sum, factor_sum) =
            (&mut sums.input[k], &mut sums.constant[k], &mut sums.factor[k]);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let record = contexts.row(b);
                    let target = &mut records[b * stride + contexts.start..][..layout.part];
                    let (s_bar, m_bar) = this.bar[b * span..(b + 1) * span].split_at(h);
                    let jacobian = this.jacobian(k, b, h, &layer.input);
                    share_row(factor_sum, s_bar, &this.s[b * h..(b + 1) * h]);
                    for (sum, &s_bar) in constant_sum.iter_mut().zip(s_bar) {
                        *sum += s_bar;
                    }
                    if k > 0 {
                        let scaled = target[layout.c(k)].iter_mut().zip(&layer.factor);
                        for ((c_bar, &factor), &s_bar) in scaled.zip(s_bar) {
                            *c_bar = factor * s_bar;
                        }
                    }
                    for j in 0..n {
                        let column = j * h..(j + 1) * h;
                        let gate = if k > 0 { record[layout.q(k).start + j] } else { T::ONE };
                        share_row(factor_sum, &m_bar[column.clone()], &jacobian[column.clone()]);
                        let from = [s_bar, &m_bar[column.clone()], &layer.input[column.clone()]];
                        let gate_bar = input_row(&mut input_sum[column.clone()], from, gate, x[b * n + j]);
                        if k > 0 {
                            target[layout.q(k).start + j] = gate_bar;
                        }
                        x_bar[b * n + j] += gate * dot(&layer.input[column], s_bar);
                    }
                    if k > 0 {
                        let below = &mut lower[k - 1];
                        let pulled = &pulled[b * span..(b + 1) * span];
                        let p_bar = &mut target[layout.p(k)];
                        let bar = &mut below.bar[b * span..(b + 1) * span];
                        let start = b * if k == 1 { h } else { span };
                        let features = &below.block[start..start + h];
                        let jacobian = match k {
                            1 => &weights.layers[0].input,
                            _ => &below.block[start + h..start + span],
                        };
                        let row = b * h..(b + 1) * h;
                        let slopes = [&below.first[row.clone()], &below.second[row], &record[layout.p(k)]];
                        sink_row(bar, p_bar, pulled, (features, jacobian), slopes, &mut room[..h]);
                    }
                }
            },
        );
    }

    /// Back through the contexts of block `index`: the gates' own activations, c̄ = gatesᵀ, ELU and AN_c, down to B y.
    pub(super) fn pull_back_contexts(
        &self,
        index: usize,
        weights: &Weights<T>,
        records: &[T],
        adjoints: &mut [T],
        rows: usize,
        factor_sum: &mut [T],
    ) {
        let (layout, block, stride) = (&self.layout, &self.layout.blocks[index], self.layout.record);
        let (h, depth) = (layout.shape.width, layout.shape.depth);
        let part = index * layout.part..(index + 1) * layout.part;
        let each = |adjoints: &mut [T], op: &mut dyn FnMut(&mut [T], &[T])| {
            for (adjoint, record) in
                adjoints.chunks_exact_mut(stride).zip(records.chunks_exact(stride)).take(rows)
            {
                op(&mut adjoint[part.clone()], &record[part.clone()]);
            }
        };
        each(adjoints, &mut |adjoint, record| {
            vectorised(
                #[inline(always)]
                || {
                    let range = layout.p(1).start..layout.p(depth).end;
                    for (bar, &p) in adjoint[range.clone()].iter_mut().zip(&record[range]) {
                        *bar *= softplus_slope(p);
                    }
                },
            );
        });
        let gates = columns(&self.parameters[block.gates.clone()], layout.gate_rows, h, layout.gate_rows);
        let (mut before, here) =
            columns_mut(adjoints, stride, rows, stride).split_at_row_mut(part.start + 2 * h);
        let context = before.as_mut().subrows_mut(part.start + h, h);
        product(context, Accum::Replace, gates.transpose(), here.as_ref().subrows(0, layout.gate_rows));
        let factor = &weights.context_norm.factor;
        each(adjoints, &mut |adjoint, record| {
            vectorised(
                #[inline(always)]
                || elu_row(adjoint, record, factor, factor_sum),
            );
        });
    }
}

/// One row of [`CpFlowMap::climb`].
#[inline(always)]
fn climb_row<T: Real>(s_bar: &mut [T], p_bar: &mut [T], top: &mut [T], from: [&[T]; 8]) {
    let h = s_bar.len();
    let [s, first, second, bend, bars, delta_bar, back, p] = from.map(|slice| &slice[..h]);
    let (p_bar, top) = (&mut p_bar[..h], &mut top[..h]);
    for i in 0..h {
        let e_bar = bars[i].fma(second[i], delta_bar[i] * first[i]);
        s_bar[i] = bend[i] * (delta_bar[i] - s[i] * bars[i]);
        p_bar[i] = e_bar * back[i];
        top[i] = p[i] * e_bar;
    }
}

/// From c̄ to the adjoint of B y through ELU and AN_c: with v = AN_c(By + b), v̄ = c̄ ELU'(v) and α ᾱ += v̄ v.
#[inline(always)]
fn elu_row<T: Real>(adjoint: &mut [T], record: &[T], factor: &[T], factor_sum: &mut [T]) {
    let h = factor.len();
    let (raw_bar, rest) = adjoint.split_at_mut(h);
    let (raw, c) = record.split_at(h);
    let (raw, c, c_bar, factor_sum) = (&raw[..h], &c[..h], &rest[..h], &mut factor_sum[..h]);
    for i in 0..h {
        let through = c_bar[i] * if c[i] > T::ZERO { T::ONE } else { c[i] + T::ONE };
        factor_sum[i] = through.fma(raw[i], factor_sum[i]);
        raw_bar[i] = through * factor[i];
    }
}

/// sum += u ⊙ v.
#[inline(always)]
fn share_row<T: Real>(sum: &mut [T], u: &[T], v: &[T]) {
    let h = sum.len();
    let (u, v) = (&u[..h], &v[..h]);
    for i in 0..h {
        sum[i] = u[i].fma(v[i], sum[i]);
    }
}

/// With N = Ã_kᵀ[s̄_k | M̄_k] = [N₀ | N_j] and r = Σ_j N_j ⊙ M_{k−1,j}:
/// p̄ += N₀ w + σ' r,  s̄ += p (σ' N₀ + σ'' r),  M̄_j += p σ' N_j.
#[inline(always)]
fn sink_row<T: Real>(
    bar: &mut [T],
    p_bar: &mut [T],
    pulled: &[T],
    (features, jacobian): (&[T], &[T]),
    slopes: [&[T]; 3],
    mixed: &mut [T],
) {
    let h = p_bar.len();
    let [first, second, p] = slopes.map(|slice| &slice[..h]);
    let (pulled_s, pulled_m) = pulled.split_at(h);
    let (s_bar, m_bar) = bar.split_at_mut(h);
    let (features, pulled_s) = (&features[..h], &pulled_s[..h]);
    let (s_bar, mixed) = (&mut s_bar[..h], &mut mixed[..h]);
    mixed.fill(T::ZERO);
    let columns = pulled_m.chunks_exact(h).zip(jacobian.chunks_exact(h)).zip(m_bar.chunks_exact_mut(h));
    for ((pulled, m), m_bar) in columns {
        let (pulled, m, m_bar) = (&pulled[..h], &m[..h], &mut m_bar[..h]);
        for i in 0..h {
            mixed[i] = pulled[i].fma(m[i], mixed[i]);
            m_bar[i] = (p[i] * first[i]).fma(pulled[i], m_bar[i]);
        }
    }
    for i in 0..h {
        p_bar[i] += pulled_s[i].fma(features[i], first[i] * mixed[i]);
        let through = pulled_s[i].fma(first[i], second[i] * mixed[i]);
        s_bar[i] = p[i].fma(through, s_bar[i]);
    }
}
