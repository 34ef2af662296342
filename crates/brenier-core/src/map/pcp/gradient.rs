//! The potential's gradient without Jacobians: two columns of product a row instead of n + 2.

use crate::kernel::Accum;

use super::PcpMap;
use super::features::Shard;
use super::shape::OutputActivation;
use crate::kernel::{Real, axpy, columns, columns_mut, dot, logistic, product, softplus, vectorised};
use crate::map::batch::Contexts;

impl<T: Real> PcpMap<T> {
    /// ∇G alone, without Jacobians: features up, δ down, ∂s_K/∂x = Σ_k gate_k ⊙ X_kᵀ δ_k (δ_K = 1).
    ///
    /// The value s_K, and the last features it needs, only `with_value` or where the output activation bends it.
    pub(super) fn gradient(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        with_value: bool,
    ) {
        let with_value = with_value || self.layout.shape.output != OutputActivation::Identity;
        let (n, w, depth) =
            (self.layout.shape.target, self.layout.shape.feature_width, self.layout.shape.depth);
        for k in 0..depth {
            let (layer, above) = (&self.layout.layers[k], &self.layout.layers[k + 1]);
            let input = &self.parameters[layer.input.clone()];
            let (this, rest) = shard.hidden[k..].split_first_mut().expect("k < depth");
            if k > 0 {
                let weight = columns(&self.parameters[layer.feature.clone()], w, w, w);
                let dst = columns_mut(&mut this.block, w, rows, w);
                product(dst, Accum::Replace, weight, columns(&this.gated, w, rows, w));
            }
            let mut gated = rest.first_mut().map(|next| next.gated.as_mut_slice());
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let here = layer.of(record);
                        let features = &mut this.block[b * w..(b + 1) * w];
                        let sigmoid = &mut this.sigmoid[b * w..(b + 1) * w];
                        let c = &here[layer.c.clone()];
                        if k == 0 {
                            features.copy_from_slice(c);
                        } else {
                            axpy(T::ONE, c, features);
                        }
                        for j in 0..n {
                            axpy(
                                here[layer.gate.start + j] * x[b * n + j],
                                &input[j * w..(j + 1) * w],
                                features,
                            );
                        }
                        if with_value || k + 1 < depth {
                            for (feature, slope) in features.iter_mut().zip(sigmoid.iter_mut()) {
                                (*feature, *slope) = softplus(*feature);
                            }
                        } else {
                            for (&feature, slope) in features.iter().zip(sigmoid.iter_mut()) {
                                *slope = logistic(feature);
                            }
                        }
                        if let Some(gated) = gated.as_deref_mut() {
                            let p = &above.of(record)[above.p.clone()];
                            for ((gated, &p), &feature) in
                                gated[b * w..(b + 1) * w].iter_mut().zip(p).zip(features.iter())
                            {
                                *gated = p * feature;
                            }
                        }
                    }
                },
            );
        }
        let mixture = self.mixture();
        let head = &self.layout.layers[depth];
        for k in (0..depth).rev() {
            let above = &self.layout.layers[k + 1];
            let (lower, upper) = shard.hidden.split_at_mut(k + 1);
            if let Some(next) = upper.first_mut() {
                let weight = columns(&self.parameters[above.feature.clone()], w, w, w);
                let dst = columns_mut(&mut next.back, w, rows, w);
                product(dst, Accum::Replace, weight.transpose(), columns(&next.delta, w, rows, w));
            }
            let layer = &self.layout.layers[k];
            let input = &self.parameters[layer.input.clone()];
            let head_weight = &self.parameters[head.feature.clone()];
            let head_input = &self.parameters[head.input.clone()];
            let (this, next) = (&mut lower[k], upper.first());
            let (z, output) = (&mut shard.z, &mut shard.output);
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let row = b * w..(b + 1) * w;
                        let p = &above.of(record)[above.p.clone()];
                        let back = next.map_or(head_weight, |next| &next.back[row.clone()]);
                        let delta = &mut this.delta[row.clone()];
                        let z = &mut z[b * n..(b + 1) * n];
                        for ((delta, &p), &back) in delta.iter_mut().zip(p).zip(back) {
                            *delta = p * back;
                        }
                        if k + 1 == depth {
                            let here = head.of(record);
                            output[b] = dot(delta, &this.block[row.clone()]) + here[head.c.start];
                            for j in 0..n {
                                z[j] = head_input[j] * here[head.gate.start + j];
                                output[b] += z[j] * x[b * n + j];
                            }
                        }
                        for (delta, &s) in delta.iter_mut().zip(&this.sigmoid[row]) {
                            *delta *= s;
                        }
                        let gate = &layer.of(record)[layer.gate.clone()];
                        for j in 0..n {
                            z[j] += gate[j] * dot(delta, &input[j * w..(j + 1) * w]);
                        }
                    }
                },
            );
        }
        for b in 0..rows {
            let outlet = self.outlet(shard.output[b]);
            for j in b * n..(b + 1) * n {
                shard.z[j] = mixture.a * outlet.first * shard.z[j] + mixture.b * x[j];
            }
        }
    }

    /// G of row b at x after [`gradient`](Self::gradient) with its value or [`evaluate`](Self::evaluate), and the size of the
    /// terms it is the sum of.
    pub(super) fn potential(&self, shard: &Shard<T>, b: usize, x: &[T]) -> (f64, f64) {
        let mixture = self.mixture();
        let network = mixture.a.to_f64() * self.outlet(shard.output[b]).value.to_f64();
        let square: f64 = x.iter().map(|x| x.to_f64() * x.to_f64()).sum();
        let quadratic = 0.5 * mixture.b.to_f64() * square;
        (network + quadratic, network.abs() + quadratic)
    }
}
