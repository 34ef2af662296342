//! The loss of a batch and its gradient by hand, in every parameter and in x.
//!
//! With z̄ and H̄ = −H⁻¹ the adjoints run in the order of the formulas: through the curvature terms d_k, up the
//! sensitivities e_k, down the Jacobians M_k and features s_k, and last back through the contexts.

use crate::kernel::Accum;

use super::PcpMap;
use super::features::{Shard, bend_weights};
use crate::kernel::{Real, columns, columns_mut, dot, product, spd, vectorised};
use crate::map::batch::Contexts;
use crate::map::convex::loops::{DENSE_FROM, bend_row, combine, input_row, reach_row};
use crate::map::{ConditionalMap, Reference};

impl<T: Real> PcpMap<T> {
    /// Adjoint of `weight`·Σ_rows (ρ(z) − log det H) after [`evaluate`](PcpMap::evaluate), ρ the cost of the reference.
    ///
    /// Leaves the adjoints of the contexts in `records` (those of v excepted), those of X_k, A_K, γ and the tail in
    /// the shard, ∂ρ/∂z in the place of z, and what the gradients of the A_k are products of in `bar` and `gated`.
    pub(super) fn pull_back(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        weight: f64,
        records: &mut [T],
        x_bar: Option<&mut [T]>,
    ) {
        self.pull_back_reference(shard, rows, weight);
        if !self.has_front() {
            return self.pull_back_inside(shard, contexts, x, rows, weight, records, x_bar);
        }
        self.pull_back_front(shard, contexts, rows, weight, records, x_bar, |shard, u, u_bar, records| {
            self.pull_back_inside(shard, contexts, u, rows, weight, records, Some(u_bar));
        });
    }

    /// z ← ∂ρ/∂z, and the adjoints of log ε/(1 − ε) and l = log (ν − 1), where dν/dl = ν − 1.
    fn pull_back_reference(&self, shard: &mut Shard<T>, rows: usize, weight: f64) {
        let (n, reference) = (self.layout.shape.target, self.reference());
        if let Reference::HeavyTailed { degrees, .. } = reference {
            let cost = reference.cost(n);
            let pulled = shard.z[..rows * n].chunks_exact_mut(n).map(|z| cost.pull(z));
            let [logit, slope] = pulled.fold([0.0; 2], |sum, row| [sum[0] + row[0], sum[1] + row[1]]);
            shard.tail_bar = [weight * logit, weight * slope * (degrees - 1.0)];
        }
    }

    /// The same for the potential behind the front, of which `x` is u and `weight`·z the adjoint of its gradient.
    fn pull_back_inside(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        weight: f64,
        records: &mut [T],
        mut x_bar: Option<&mut [T]>,
    ) {
        let depth = self.layout.shape.depth;
        for bar in &mut shard.input_bar {
            bar.fill(T::ZERO);
        }
        shard.head_bar.fill(T::ZERO);
        self.open_adjoint(shard, contexts, x, rows, weight, records, x_bar.as_deref_mut());
        self.bend_adjoint(shard, rows);
        for k in 0..depth {
            self.climb(shard, contexts, k, rows, records);
        }
        for k in (0..depth).rev() {
            self.descend(shard, contexts, k, x, rows, records, x_bar.as_deref_mut());
        }
    }

    /// z̄, H̄ and what follows for the head: γ̄, ḡ of ∂s_K/∂x, s̄_K and the head's own parameters.
    ///
    /// `z` holds z̄/`weight`, before and after. On return `hessian` holds 2a·o'·H̄ (symmetric), `slope` the adjoint of
    /// ∂s_K/∂x and `output` that of s_K.
    fn open_adjoint(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        weight: f64,
        records: &mut [T],
        mut x_bar: Option<&mut [T]>,
    ) {
        let n = self.layout.shape.target;
        let mixture = self.mixture();
        let (a, b_quadratic) = (mixture.a.to_f64(), mixture.b.to_f64());
        let stride = self.layout.record;
        let head = &self.layout.layers[self.layout.shape.depth];
        let input = &self.parameters[head.input.clone()];
        let (mut a_bar, mut b_bar) = (0.0, 0.0);
        for b in 0..rows {
            let outlet = self.outlet(shard.output[b]);
            let (first, second, third) =
                (outlet.first.to_f64(), outlet.second.to_f64(), outlet.third.to_f64());
            let factor = &shard.factor[b * n * n..(b + 1) * n * n];
            spd::invert(factor, &mut shard.inverse, &mut shard.spd);
            let hessian = &mut shard.hessian[b * n * n..(b + 1) * n * n];
            let slope = &mut shard.slope[b * n..(b + 1) * n];
            let z = &shard.z[b * n..(b + 1) * n];
            // ⟨H̄, Σ MᵀdM⟩, gᵀH̄g, tr H̄ and z̄·g with H̄ = −weight·H⁻¹, z̄ = weight·z.
            let (mut bend, mut along, mut trace, mut reach) = (0.0, 0.0, 0.0, 0.0);
            for j in 0..n {
                trace -= shard.inverse[j + j * n];
                reach += z[j].to_f64() * slope[j].to_f64();
                for i in j..n {
                    let twice = if i == j { 1.0 } else { 2.0 };
                    bend -= twice * shard.inverse[i + j * n] * hessian[i + j * n].to_f64();
                    along -= twice * shard.inverse[i + j * n] * slope[i].to_f64() * slope[j].to_f64();
                }
            }
            let quadratic: f64 = (0..n).map(|j| z[j].to_f64() * x[b * n + j].to_f64()).sum();
            a_bar += weight * (first * (reach + bend) + second * along);
            b_bar += weight * (quadratic + trace);
            let s_bar = weight * a * (second * (reach + bend) + third * along);
            // ḡ = a o' z̄ + 2a o'' H̄ g.
            for i in 0..n {
                let turned: f64 = (0..n).map(|j| -shard.inverse[i + j * n] * slope[j].to_f64()).sum();
                shard.square[i] = T::from_f64(weight * a * (first * z[i].to_f64() + 2.0 * second * turned));
            }
            slope.copy_from_slice(&shard.square[..n]);
            for (hessian, &inverse) in hessian.iter_mut().zip(&shard.inverse) {
                *hessian = T::from_f64(-2.0 * a * first * weight * inverse);
            }
            shard.output[b] = T::from_f64(s_bar);

            let record = head.of(contexts.row(b));
            let gate = &record[head.gate.clone()];
            let target = head.of_mut(&mut records[b * stride..(b + 1) * stride]);
            target[head.c.start] = shard.output[b];
            for j in 0..n {
                let direct = slope[j] + shard.output[b] * x[b * n + j];
                target[head.gate.start + j] = input[j] * direct;
                shard.input_bar[self.layout.shape.depth][j] += gate[j] * direct;
                if let Some(x_bar) = x_bar.as_deref_mut() {
                    let reference = T::from_f64(weight * b_quadratic * z[j].to_f64());
                    x_bar[b * n + j] = reference + gate[j] * input[j] * shard.output[b];
                }
            }
        }
        shard.gamma_bar = [
            a_bar * mixture.slopes[0].to_f64(),
            b_bar * mixture.slopes[1].to_f64(),
            b_bar * mixture.slopes[2].to_f64(),
        ];
    }

    /// With P = 2a o' M_k H̄: M̄_k = diag(d_k) P and d̄_k = ½ rowsum(P ⊙ M_k), for every layer.
    fn bend_adjoint(&self, shard: &mut Shard<T>, rows: usize) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.feature_width);
        let span = w * (n + 1);
        let Shard { hidden, scratch, hessian, curvature_bar, .. } = shard;
        for (k, layer) in hidden.iter_mut().enumerate() {
            layer.bar[span * rows..(span + w) * rows].copy_from_slice(&layer.delta[..w * rows]);
            let bars = &mut curvature_bar[k * w * rows..][..w * rows];
            if n >= DENSE_FROM {
                for b in 0..rows {
                    let turn = columns(&hessian[b * n * n..(b + 1) * n * n], n, n, n);
                    let jacobian = columns(&layer.block[b * span + w..(b + 1) * span], w, n, w);
                    let dst = columns_mut(&mut layer.bar[b * span + w..(b + 1) * span], w, n, w);
                    product(dst, Accum::Replace, jacobian, turn);
                }
            }
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * w..(b + 1) * w;
                        let (delta, sigmoid) = (&layer.delta[row.clone()], &layer.sigmoid[row.clone()]);
                        let jacobian = &layer.block[b * span + w..(b + 1) * span];
                        let bar = &mut layer.bar[b * span + w..(b + 1) * span];
                        let turn = &hessian[b * n * n..(b + 1) * n * n];
                        let (turned, bend) = scratch.split_at_mut(w);
                        bend_weights(bend, delta, sigmoid);
                        let total = &mut bars[row];
                        total.fill(T::ZERO);
                        for (j, bar) in bar.chunks_exact_mut(w).enumerate() {
                            if n < DENSE_FROM {
                                combine(turned, jacobian, &turn[j * n..(j + 1) * n]);
                            } else {
                                turned.copy_from_slice(bar);
                            }
                            bend_row(bar, total, turned, &jacobian[j * w..(j + 1) * w], bend);
                        }
                    }
                },
            );
        }
    }

    /// Layer k on the way up the sensitivities: s̄_k's share of d̄_k and δ̄_k, p̄_{k+1}, t_{k+1} and δ̄_{k+1}.
    ///
    /// e = e_{k+1} = δ_k/σ', R = A_{k+1}ᵀδ_{k+1}:
    /// s̄_k = e (d̄ σ''' + δ̄ σ''),  ē = d̄ σ'' + δ̄ σ',  p̄_{k+1} = ē R,  t = p_{k+1} ē,  δ̄_{k+1} = A_{k+1} t.
    fn climb(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        k: usize,
        rows: usize,
        records: &mut [T],
    ) {
        let (n, w, depth) =
            (self.layout.shape.target, self.layout.shape.feature_width, self.layout.shape.depth);
        let (span, stride) = (w * (n + 1), self.layout.record);
        let above = &self.layout.layers[k + 1];
        let is_top = k + 1 == depth;
        let head = &self.parameters[self.layout.layers[depth].feature.clone()];
        let Shard { hidden, delta_bar, curvature_bar, slope, output, scratch, head_bar, .. } = shard;
        let bars = &curvature_bar[k * w * rows..][..w * rows];
        let (this, rest) = hidden[k..].split_first_mut().expect("k < depth");
        let mut next = rest.first_mut();
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * w..(b + 1) * w;
                    let p = &above.of(contexts.row(b))[above.p.clone()];
                    let p_bar =
                        &mut above.of_mut(&mut records[b * stride..(b + 1) * stride])[above.p.clone()];
                    let delta_bar = &mut delta_bar[row.clone()];
                    let (features, jacobian) = this.block[b * span..(b + 1) * span].split_at(w);
                    let (s_bar, m_bar) = this.bar[b * span..(b + 1) * span].split_at_mut(w);
                    let (sigmoid, delta) = (&this.sigmoid[row.clone()], &this.delta[row.clone()]);
                    if k == 0 {
                        delta_bar.fill(T::ZERO);
                    }
                    if is_top {
                        // ∂s_K/∂x = M_{K−1}ᵀ δ_{K−1} + …
                        for j in 0..n {
                            let column = j * w..(j + 1) * w;
                            reach_row(
                                slope[b * n + j],
                                &jacobian[column.clone()],
                                delta,
                                delta_bar,
                                &mut m_bar[column],
                            );
                        }
                    }
                    let (back, top) = match next.as_deref_mut() {
                        Some(next) => (&next.back[row.clone()], &mut next.gated[span * rows + b * w..][..w]),
                        None => (head, &mut scratch[..w]),
                    };
                    let bars = &bars[row];
                    climb_row(s_bar, p_bar, top, [sigmoid, delta, bars, delta_bar, back, p]);
                    if is_top {
                        head_row(s_bar, p_bar, head_bar, output[b], [delta, head, features, p, top]);
                        rectify(p_bar, p);
                    }
                }
            },
        );
        if let Some(next) = next {
            let weight = columns(&self.parameters[above.feature.clone()], w, w, w);
            let dst = columns_mut(delta_bar, w, rows, w);
            product(dst, Accum::Replace, weight, columns(&next.gated[span * rows..], w, rows, w));
        }
    }

    /// Layer k on the way down: X̄_k, gate and c adjoints, then through A_k into layer k − 1.
    fn descend(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        k: usize,
        x: &[T],
        rows: usize,
        records: &mut [T],
        mut x_bar: Option<&mut [T]>,
    ) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.feature_width);
        let (span, stride) = (w * (n + 1), self.layout.record);
        let layer = &self.layout.layers[k];
        let input = &self.parameters[layer.input.clone()];
        let Shard { hidden, pulled, input_bar, scratch, .. } = shard;
        let (lower, upper) = hidden.split_at_mut(k);
        let this = &upper[0];
        if k > 0 {
            let weight = columns(&self.parameters[layer.feature.clone()], w, w, w);
            let dst = columns_mut(pulled, w, (n + 1) * rows, w);
            product(dst, Accum::Replace, weight.transpose(), columns(&this.bar, w, (n + 1) * rows, w));
        }
        let input_bar = &mut input_bar[k];
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let here = layer.of(contexts.row(b));
                    let target = layer.of_mut(&mut records[b * stride..(b + 1) * stride]);
                    let (s_bar, m_bar) = this.bar[b * span..(b + 1) * span].split_at(w);
                    target[layer.c.clone()].copy_from_slice(s_bar);
                    for j in 0..n {
                        let column = j * w..(j + 1) * w;
                        let (gate, x) = (here[layer.gate.start + j], x[b * n + j]);
                        let gate_bar = input_row(
                            &mut input_bar[column.clone()],
                            [s_bar, &m_bar[column.clone()], &input[column.clone()]],
                            gate,
                            x,
                        );
                        let open = k > 0 || gate > T::ZERO;
                        target[layer.gate.start + j] = if open { gate_bar } else { T::ZERO };
                        if let Some(x_bar) = x_bar.as_deref_mut() {
                            x_bar[b * n + j] += gate * dot(&input[column], s_bar);
                        }
                    }
                    if k > 0 {
                        let below = &mut lower[k - 1];
                        let pulled = &pulled[b * span..(b + 1) * span];
                        let p = &here[layer.p.clone()];
                        let p_bar = &mut target[layer.p.clone()];
                        let sigmoid = &below.sigmoid[b * w..(b + 1) * w];
                        let block = &below.block[b * span..(b + 1) * span];
                        let bar = &mut below.bar[b * span..(b + 1) * span];
                        sink_row(bar, p_bar, pulled, block, sigmoid, p, &mut scratch[..w]);
                        rectify(p_bar, p);
                    }
                }
            },
        );
    }

    /// Back through the contexts: v̄_{k+1} = C_{k+1}ᵀ (adjoint of layer k + 1), times ELU', into layer k's rows.
    pub(super) fn pull_back_contexts(&self, records: &[T], adjoints: &mut [T], rows: usize) {
        if self.layout.shape.is_full() {
            return;
        }
        let stride = self.layout.record;
        for k in (0..self.layout.shape.depth).rev() {
            let (layer, above) = (&self.layout.layers[k], &self.layout.layers[k + 1]);
            let weight = columns(&self.parameters[above.weight.clone()], above.rows, above.cols, above.rows);
            let all = columns_mut(adjoints, stride, rows, stride);
            let (mut here, there) = all.split_at_row_mut(above.record);
            let dst = here.as_mut().subrows_mut(layer.record, layer.v.len());
            product(dst, Accum::Replace, weight.transpose(), there.as_ref().subrows(0, above.rows));
            vectorised(
                #[inline(always)]
                || {
                    for (adjoint, record) in
                        adjoints.chunks_exact_mut(stride).zip(records.chunks_exact(stride)).take(rows)
                    {
                        let v = &layer.of(record)[layer.v.clone()];
                        for (adjoint, &v) in layer.of_mut(adjoint)[layer.v.clone()].iter_mut().zip(v) {
                            *adjoint *= if v > T::ZERO { T::ONE } else { v + T::ONE };
                        }
                    }
                },
            );
        }
    }
}

/// One row of [`PcpMap::climb`].
#[inline(always)]
fn climb_row<T: Real>(s_bar: &mut [T], p_bar: &mut [T], top: &mut [T], from: [&[T]; 6]) {
    let w = s_bar.len();
    let [sigmoid, delta, bars, delta_bar, back, p] = from.map(|slice| &slice[..w]);
    let (p_bar, top) = (&mut p_bar[..w], &mut top[..w]);
    for i in 0..w {
        let first = sigmoid[i];
        let complement = T::ONE - first;
        let e_bar = bars[i].fma(first * complement, delta_bar[i] * first);
        // e σ'' = δ(1 − σ'), e σ''' = δ(1 − σ')(1 − 2σ')
        s_bar[i] = delta[i] * complement * bars[i].fma(complement - first, delta_bar[i]);
        p_bar[i] = e_bar * back[i];
        top[i] = p[i] * e_bar;
    }
}

/// What s̄_K (zero under the identity output) and t_K add at the head.
#[inline(always)]
fn head_row<T: Real>(s_bar: &mut [T], p_bar: &mut [T], head_bar: &mut [T], output_bar: T, from: [&[T]; 5]) {
    let w = s_bar.len();
    let [delta, head, features, p, top] = from.map(|slice| &slice[..w]);
    let (p_bar, head_bar) = (&mut p_bar[..w], &mut head_bar[..w]);
    for i in 0..w {
        s_bar[i] = delta[i].fma(output_bar, s_bar[i]);
        p_bar[i] = (head[i] * features[i]).fma(output_bar, p_bar[i]);
        head_bar[i] += (p[i] * features[i]).fma(output_bar, top[i]);
    }
}

/// ReLU' on the adjoint of a rectified context.
#[inline(always)]
fn rectify<T: Real>(adjoint: &mut [T], value: &[T]) {
    for (adjoint, &value) in adjoint.iter_mut().zip(value) {
        *adjoint = if value > T::ZERO { *adjoint } else { T::ZERO };
    }
}

/// With N = A_kᵀ[s̄_k | M̄_k] = [N₀ | N_j] and r = Σ_j N_j ⊙ M_{k−1,j}:
/// p̄ += N₀ w + σ' r,  s̄ += p (σ' N₀ + σ'' r),  M̄_j += p σ' N_j.
#[inline(always)]
fn sink_row<T: Real>(
    bar: &mut [T],
    p_bar: &mut [T],
    pulled: &[T],
    block: &[T],
    sigmoid: &[T],
    p: &[T],
    mixed: &mut [T],
) {
    let w = p.len();
    let (features, jacobian) = block.split_at(w);
    let (first, rest) = pulled.split_at(w);
    let (s_bar, m_bar) = bar.split_at_mut(w);
    let (sigmoid, features, first) = (&sigmoid[..w], &features[..w], &first[..w]);
    let (p_bar, s_bar, mixed) = (&mut p_bar[..w], &mut s_bar[..w], &mut mixed[..w]);
    mixed.fill(T::ZERO);
    let columns = rest.chunks_exact(w).zip(jacobian.chunks_exact(w)).zip(m_bar.chunks_exact_mut(w));
    for ((pulled, m), m_bar) in columns {
        let (pulled, m, m_bar) = (&pulled[..w], &m[..w], &mut m_bar[..w]);
        for i in 0..w {
            mixed[i] = pulled[i].fma(m[i], mixed[i]);
            m_bar[i] = (p[i] * sigmoid[i]).fma(pulled[i], m_bar[i]);
        }
    }
    for i in 0..w {
        let slope = sigmoid[i];
        p_bar[i] += first[i].fma(features[i], slope * mixed[i]);
        let through = first[i].fma(slope, slope * (T::ONE - slope) * mixed[i]);
        s_bar[i] = p[i].fma(through, s_bar[i]);
    }
}
