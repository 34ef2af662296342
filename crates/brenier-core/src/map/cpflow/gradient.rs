//! The gradient of one potential without Jacobians: two columns of product a row instead of n + 2.

use crate::kernel::Accum;

use super::features::{Hidden, Pass, activate};
use super::weights::Weights;
use super::{CpFlowMap, Parts};
use crate::kernel::{Real, axpy, columns, columns_mut, dot, product, vectorised};

impl<T: Real> CpFlowMap<T> {
    /// ∇F and N at the points `x` of the pass: features up, δ down, ∂N/∂x = Σ_k q_k ⊙ X̃_kᵀ δ_k (q₀ = 1, δ_K = 1).
    pub(super) fn slope(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        contexts: Parts<'_, T>,
        rows: usize,
    ) {
        let (n, h, depth) = self.sizes();
        let layout = &self.layout;
        let Pass { hidden, x, slope, output, gradient, .. } = pass;
        for k in 0..depth {
            let layer = &weights.layers[k];
            let (this, rest) = hidden[k..].split_first_mut().expect("k < depth");
            let Hidden { block, s, first, second, gated, .. } = this;
            let dst = columns_mut(block, h, rows, h);
            if k == 0 {
                product(dst, Accum::Replace, columns(&layer.input, h, n, h), columns(x, n, rows, n));
            } else {
                product(dst, Accum::Replace, columns(&layer.feature, h, h, h), columns(gated, h, rows, h));
            }
            let mut gated = rest.first_mut().map(|next| next.gated.as_mut_slice());
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let row = b * h..(b + 1) * h;
                        let features = &mut block[row.clone()];
                        if k == 0 {
                            for (value, (&constant, &factor)) in
                                features.iter_mut().zip(layer.constant.iter().zip(&layer.factor))
                            {
                                *value = factor.fma(constant, *value);
                            }
                        } else {
                            axpy(T::ONE, &record[layout.c(k)], features);
                            for (j, &q) in record[layout.q(k)].iter().enumerate() {
                                axpy(q * x[b * n + j], &layer.input[j * h..(j + 1) * h], features);
                            }
                        }
                        let (s, first) = (&mut s[row.clone()], &mut first[row.clone()]);
                        activate(k == 0, features, s, first, &mut second[row.clone()]);
                        if let Some(gated) = gated.as_deref_mut() {
                            let p = &record[layout.p(k + 1)];
                            for ((gated, &p), &feature) in gated[row].iter_mut().zip(p).zip(features.iter()) {
                                *gated = p * feature;
                            }
                        }
                    }
                },
            );
        }
        for k in (0..depth).rev() {
            let (lower, upper) = hidden.split_at_mut(k + 1);
            if let Some(next) = upper.first_mut() {
                let weight = columns(&weights.layers[k + 1].feature, h, h, h);
                let dst = columns_mut(&mut next.back, h, rows, h);
                product(dst, Accum::Replace, weight.transpose(), columns(&next.delta, h, rows, h));
            }
            let (this, next) = (&mut lower[k], upper.first());
            let input = &weights.layers[k].input;
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let row = b * h..(b + 1) * h;
                        let back = next.map_or(weights.head.as_slice(), |next| &next.back[row.clone()]);
                        let delta = &mut this.delta[row.clone()];
                        for ((delta, &p), &back) in delta.iter_mut().zip(&record[layout.p(k + 1)]).zip(back) {
                            *delta = p * back;
                        }
                        let slope = &mut slope[b * n..(b + 1) * n];
                        if k + 1 == depth {
                            output[b] = dot(delta, &this.block[row.clone()]) + weights.head_constant;
                            for (j, &q) in record[layout.q(depth)].iter().enumerate() {
                                slope[j] = weights.head_input[j] * q;
                                output[b] += slope[j] * x[b * n + j];
                            }
                        }
                        for (delta, &first) in delta.iter_mut().zip(&this.first[row]) {
                            *delta *= first;
                        }
                        for (j, slope) in slope.iter_mut().enumerate() {
                            let q = if k > 0 { record[layout.q(k).start + j] } else { T::ONE };
                            *slope += q * dot(delta, &input[j * h..(j + 1) * h]);
                        }
                    }
                },
            );
        }
        for (gradient, (&slope, &x)) in gradient[..rows * n].iter_mut().zip(slope.iter().zip(x.iter())) {
            *gradient = weights.a * slope + weights.b * x;
        }
    }
}
