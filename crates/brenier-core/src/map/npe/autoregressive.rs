//! Masked affine autoregressive transforms: v_i = s_i u_i + m_i, s_i = softplus(a_i) + ε, ε = 10⁻³.
//!
//! a_i and m_i are outputs of one network that reads u_1, …, u_{i−1} and y,
//!
//! h₁ = tanh(W₀u + b₀ + tanh(C y + c)),   h_{l+1} = tanh(W_l h_l + b_l),   (a, m) = W h_L + b,
//!
//! with weights masked by degrees (see `Degrees`). Units are sorted by degree, so that a unit reads a prefix of the layer
//! below: products are over prefixes, and a draw computes every unit once, as soon as the variables it reads are known. After
//! the transform the coordinates are permuted. log det = Σ log s_i.

use super::NpeMap;
use super::lanes::{LANES, Lanes, apply, backwards, combine, onwards, read, some, write};
use super::shape::{Layer, TransformPlace};
use super::shard::{Prepared, Shard, scale};
use crate::kernel::{Real, Store, Weights, row_products, row_sums, vectorised};

impl<T: Real> NpeMap<T> {
    /// The layers and the permutation of transform t.
    fn masked(&self, t: usize) -> (&[Layer], &[usize]) {
        match &self.layout.transforms[t] {
            TransformPlace::Autoregressive { layers, permutation } => (layers, permutation),
            _ => unreachable!("an autoregressive transform"),
        }
    }

    /// tanh(W₀u + b₀ + context) for some units.
    fn open_units(
        &self,
        layer: &[T],
        state: &[T],
        contexts: &[T],
        out: &mut [T],
        units: std::ops::Range<usize>,
        (stride, padded): (usize, usize),
    ) {
        let h = self.layout.shape.hidden_width;
        let degrees = &self.layout.degrees.of_unit;
        let (bias, weight) = layer.split_at(h);
        vectorised(
            #[inline(always)]
            || {
                for unit in units {
                    let context = &contexts[unit * stride..];
                    let out = &mut out[(unit + 1) * stride..];
                    for start in (0..padded).step_by(LANES) {
                        let mut sum: Lanes<T> = read(context, start);
                        for value in &mut sum {
                            *value += bias[unit];
                        }
                        for input in 0..degrees[unit] {
                            let weight = weight[unit + input * h];
                            let values: Lanes<T> = read(&state[(input + 1) * stride..], start);
                            for l in 0..LANES {
                                sum[l] = values[l].fma(weight, sum[l]);
                            }
                        }
                        for value in &mut sum {
                            *value = value.tanh_vec();
                        }
                        write(out, start, &sum);
                    }
                }
            },
        );
    }

    /// v = s u + m and the permutation, forwards; see the head of this file.
    pub(super) fn autoregress(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, t: usize, rows: usize) {
        let (n, h) = (self.layout.shape.target, self.layout.shape.hidden_width);
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let (layers, permutation) = self.masked(t);
        let weights = self.weights(prepared);
        let Shard { states, kept, contexts, log, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        let (before, after) = states.split_at_mut(t + 1);
        let (state, next) = (&before[t], &mut after[0]);
        let contexts = &contexts[self.layout.slot(t, 0) * stride..];
        let open = &weights[layers[0].all()];
        self.open_units(open, state, contexts, &mut kept.layers[0], 0..h, (stride, padded));
        for (l, layer) in layers[1..layers.len() - 1].iter().enumerate() {
            let (lower, upper) = kept.layers.split_at_mut(l + 1);
            let (input, out) = (&lower[l], &mut upper[0]);
            for (units, prefix) in &self.layout.degrees.groups {
                let dst = &mut out[(units.start + 1) * stride..];
                let part =
                    Weights { inputs: 0..prefix + 1, outputs: units.clone(), ..onwards(layer, weights) };
                let input = some(input, stride, 0..prefix + 1);
                row_products(dst, stride, Store::Replace, input, padded, part);
            }
            apply(&mut out[stride..], stride, padded, |s| s.tanh_vec());
        }
        let output = &layers[layers.len() - 1];
        let last = &kept.layers[kept.layers.len() - 1];
        let (input, layer) = (some(last, stride, 0..h + 1), onwards(output, weights));
        row_products(&mut kept.outputs, stride, Store::Replace, input, padded, layer);
        let (bends, shifts) = kept.outputs.split_at_mut(n * stride);
        vectorised(
            #[inline(always)]
            || {
                for (to, &i) in permutation.iter().enumerate() {
                    let column = i * stride..i * stride + padded;
                    let (bend, shift) = (&mut bends[column.clone()], &shifts[column.clone()]);
                    let (u, scales) = (&state[stride..][column.clone()], &mut kept.picked[column]);
                    let v = &mut next[(to + 1) * stride..][..padded];
                    let log = &mut log[..padded];
                    for b in 0..padded {
                        let (s, slope) = scale(bend[b]);
                        v[b] = s.fma(u[b], shift[b]);
                        scales[b] = s;
                        bend[b] = slope;
                        log[b] += s.ln_vec();
                    }
                }
            },
        );
    }

    /// The way back through transform t: ā_i = (v̄_i u_i − w/s_i) σ(a_i), m̄_i = v̄_i, then through the network;
    /// ū_i = v̄_i s_i + what the network takes.
    pub(super) fn autoregress_back(
        &self,
        prepared: &Prepared<T>,
        shard: &mut Shard<T>,
        t: usize,
        rows: usize,
        weight: T,
    ) {
        let (n, h) = (self.layout.shape.target, self.layout.shape.hidden_width);
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let (layers, permutation) = self.masked(t);
        let weights = self.weights(prepared);
        let Shard { states, kept, bars, .. } = shard;
        let (state, kept) = (&states[t], &kept[t]);
        let train = !bars.gradient.is_empty();
        let (a_bars, m_bars) = bars.outputs.split_at_mut(n * stride);
        vectorised(
            #[inline(always)]
            || {
                for (to, &i) in permutation.iter().enumerate() {
                    let v_bar = &bars.state[to * stride..][..padded];
                    let column = i * stride..i * stride + padded;
                    let (u, scales) = (&state[stride..][column.clone()], &kept.picked[column.clone()]);
                    let slopes = &kept.outputs[column.clone()];
                    let (a_bar, m_bar) = (&mut a_bars[column.clone()], &mut m_bars[column.clone()]);
                    let u_bar = &mut bars.before[column];
                    for b in 0..padded {
                        a_bar[b] = (v_bar[b] * u[b] - weight / scales[b]) * slopes[b];
                        m_bar[b] = v_bar[b];
                        u_bar[b] = v_bar[b] * scales[b];
                    }
                }
            },
        );
        std::mem::swap(&mut bars.state, &mut bars.before);
        let output = &layers[layers.len() - 1];
        let count = kept.layers.len();
        if train {
            let input = some(&kept.layers[count - 1], stride, 0..h + 1);
            let o_bar = some(&bars.outputs, stride, 0..2 * n);
            row_sums(&mut bars.gradient[output.all()], 2 * n, o_bar, input, rows, &mut bars.turned);
        }
        let (o_bar, layer) = (some(&bars.outputs, stride, 0..2 * n), backwards(output, weights));
        row_products(&mut bars.hidden, stride, Store::Replace, o_bar, padded, layer);
        for l in (0..count).rev() {
            let slope = |bar: T, h: T| bar * (T::ONE - h * h);
            combine(&mut bars.hidden, &kept.layers[l][stride..], stride, padded, slope);
            if l == 0 {
                break;
            }
            let layer = &layers[l];
            if train {
                for (units, prefix) in &self.layout.degrees.groups {
                    let dst = &mut bars.gradient[layer.start + units.start..layer.end()];
                    let bar = some(&bars.hidden, stride, units.clone());
                    let input = some(&kept.layers[l - 1], stride, 0..prefix + 1);
                    row_sums(dst, h, bar, input, rows, &mut bars.turned);
                }
            }
            for (units, _) in &self.layout.degrees.groups {
                // Units from here on read these.
                let readers = units.start..h;
                let bar = some(&bars.hidden, stride, readers.clone());
                let part = Weights { inputs: readers, outputs: units.clone(), ..backwards(layer, weights) };
                let dst = &mut bars.below[units.start * stride..];
                row_products(dst, stride, Store::Replace, bar, padded, part);
            }
            std::mem::swap(&mut bars.hidden, &mut bars.below);
        }
        if train {
            let (s_bar, input) = (some(&bars.hidden, stride, 0..h), some(state, stride, 0..n + 1));
            row_sums(&mut bars.gradient[layers[0].all()], h, s_bar, input, rows, &mut bars.turned);
            for (index, layer) in layers.iter().enumerate() {
                self.layout.mask(index, &mut bars.gradient[layer.all()]);
            }
            let place = self.layout.slot(t, 0) * stride;
            bars.contexts[place..place + h * stride].copy_from_slice(&bars.hidden);
        }
        let (s_bar, layer) = (some(&bars.hidden, stride, 0..h), backwards(&layers[0], weights));
        row_products(&mut bars.state, stride, Store::Add, s_bar, padded, layer);
    }

    /// From v back to u, one variable after the other: once u_1, …, u_d are known, so are the units of degree d, and with them
    /// s_{d+1} and m_{d+1}.
    pub(super) fn autoregress_inverse(
        &self,
        prepared: &Prepared<T>,
        shard: &mut Shard<T>,
        t: usize,
        rows: usize,
    ) {
        let n = self.layout.shape.target;
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let (layers, permutation) = self.masked(t);
        let (weights, degrees) = (self.weights(prepared), &self.layout.degrees);
        let Shard { states, kept, contexts, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        let (before, after) = states.split_at_mut(t + 1);
        let (state, next) = (&mut before[t], &after[0]);
        let contexts = &contexts[self.layout.slot(t, 0) * stride..];
        let (output, last) = (&weights[layers[layers.len() - 1].all()], kept.layers.len() - 1);
        for d in 0..n {
            let units = degrees.group(d);
            if !units.is_empty() {
                let open = &weights[layers[0].all()];
                self.open_units(open, state, contexts, &mut kept.layers[0], units.clone(), (stride, padded));
                for (l, layer) in layers[1..layers.len() - 1].iter().enumerate() {
                    let (lower, upper) = kept.layers.split_at_mut(l + 1);
                    let (input, out) = (&lower[l], &mut upper[0]);
                    let fresh = &mut out[(units.start + 1) * stride..(units.end + 1) * stride];
                    let part = Weights {
                        inputs: 0..units.end + 1,
                        outputs: units.clone(),
                        ..onwards(layer, weights)
                    };
                    let input = some(input, stride, 0..units.end + 1);
                    row_products(fresh, stride, Store::Replace, input, padded, part);
                    apply(fresh, stride, padded, |s| s.tanh_vec());
                }
            }
            let to = permutation.iter().position(|&from| from == d).unwrap_or(d);
            let (v, u) = (&next[(to + 1) * stride..], &mut state[(d + 1) * stride..]);
            let hidden = &kept.layers[last];
            vectorised(
                #[inline(always)]
                || {
                    for start in (0..padded).step_by(LANES) {
                        let (mut a, mut m) = ([T::ZERO; LANES], [T::ZERO; LANES]);
                        for (unit, weight) in output.chunks_exact(2 * n).take(degrees.ends[d] + 1).enumerate()
                        {
                            let values: Lanes<T> = read(&hidden[unit * stride..], start);
                            for l in 0..LANES {
                                a[l] = values[l].fma(weight[d], a[l]);
                                m[l] = values[l].fma(weight[n + d], m[l]);
                            }
                        }
                        let v: Lanes<T> = read(v, start);
                        let mut value = [T::ZERO; LANES];
                        for l in 0..LANES {
                            value[l] = (v[l] - m[l]) / scale(a[l]).0;
                        }
                        write(u, start, &value);
                    }
                },
            );
        }
    }
}
