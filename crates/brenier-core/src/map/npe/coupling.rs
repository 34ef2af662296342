//! Spline couplings: coordinates of one parity pass through splines whose numbers a network makes of the others and of y.
//!
//! With u' the coordinates that stay, slots c₀ = C₀y + …, g_j = σ(C_j y + …) of the context and blocks j = 1, …, J,
//!
//! r₀ = W₀u' + c₀,   r_j = r_{j−1} + g_j ⊙ (W_{2j} relu(W_{2j−1} relu(r_{j−1}) + b_{2j−1}) + b_{2j}),   numbers = P r_J + p,
//!
//! and a linear layer follows (`linear.rs`). Of one coordinate nothing stays: its network is r₀ = relu(c₀),
//! r_l = relu(W_l r_{l−1} + b_l), and no linear layer follows.

use super::NpeMap;
use super::lanes::{LANES, Lanes, backwards, combine, onwards, read, some, write};
use super::linear::LinearGradient;
use super::shape::{Layer, LinearPlace, TransformPlace};
use super::shard::{Bars, Kept, Prepared, Shard};
use super::spline::PICKED;
use crate::kernel::{Columns, Real, Store, Weights, row_products, row_sums, vectorised};

/// The parts of a coupling.
struct Coupling<'a> {
    parity: usize,
    /// Coordinates that pass through splines.
    moved: usize,
    input: std::ops::Range<usize>,
    layers: &'a [Layer],
    output: &'a Layer,
    linear: &'a LinearPlace,
}

#[inline(always)]
fn relu<T: Real>(s: T) -> T {
    s.at_least(T::ZERO)
}

/// A bar where the rectified value is positive; by a product, since a choice in place becomes slow masked writes.
#[inline(always)]
fn open<T: Real>(bar: T, value: T) -> T {
    bar * if value > T::ZERO { T::ONE } else { T::ZERO }
}

impl<T: Real> NpeMap<T> {
    fn coupling(&self, t: usize) -> Coupling<'_> {
        match &self.layout.transforms[t] {
            TransformPlace::Coupling { parity, input, layers, output, linear } => {
                let moved = (self.layout.shape.target - parity).div_ceil(2);
                Coupling { parity: *parity, moved, input: input.clone(), layers, output, linear }
            }
            _ => unreachable!("a coupling"),
        }
    }

    /// The numbers of all splines of coupling t, from the coordinates of `state` that stay.
    fn condition(
        &self,
        prepared: &Prepared<T>,
        kept: &mut Kept<T>,
        state: &[T],
        contexts: &[T],
        t: usize,
        (stride, rows): (usize, usize),
    ) {
        let h = self.layout.shape.hidden_width;
        let padded = rows.next_multiple_of(LANES).min(stride);
        let coupling = self.coupling(t);
        let weights = self.weights(prepared);
        let slot = |slot: usize| &contexts[self.layout.slot(t, slot) * stride..][..h * stride];
        let stream = kept.layers.len() - 1;
        let (blocks, stream) = kept.layers.split_at_mut(stream);
        let stream = &mut stream[0];
        let (opening, base) = (&weights[coupling.input.clone()], slot(0));
        let first_kept = 2 - coupling.parity;
        let staying = self.layout.shape.target - coupling.moved;
        let first = &mut blocks[0];
        vectorised(
            #[inline(always)]
            || {
                for unit in 0..h {
                    for start in (0..padded).step_by(LANES) {
                        let mut sum: Lanes<T> = read(&base[unit * stride..], start);
                        for input in 0..staying {
                            let weight = opening[unit + input * h];
                            let values: Lanes<T> = read(&state[(first_kept + 2 * input) * stride..], start);
                            for l in 0..LANES {
                                sum[l] = values[l].fma(weight, sum[l]);
                            }
                        }
                        write(&mut stream[(unit + 1) * stride..], start, &sum);
                        for value in &mut sum {
                            *value = relu(*value);
                        }
                        write(&mut first[(unit + 1) * stride..], start, &sum);
                    }
                }
            },
        );
        for (j, inner) in kept.inner.iter_mut().enumerate() {
            let (lower, upper) = blocks[2 * j..].split_at_mut(1);
            let layer = onwards(&coupling.layers[2 * j], weights);
            let (input, out) = (some(&lower[0], stride, 0..h + 1), &mut upper[0][stride..]);
            row_products(out, stride, Store::Rectified, input, padded, layer);
            let layer = onwards(&coupling.layers[2 * j + 1], weights);
            let input = some(&upper[0], stride, 0..h + 1);
            row_products(inner, stride, Store::Replace, input, padded, layer);
            // r += g ⊙ inner, and its rectified copy for the next block.
            let gates = slot(j + 1);
            let mut none = Vec::new();
            let next = upper.get_mut(1).map_or(&mut none[..], |next| &mut next[stride..]);
            vectorised(
                #[inline(always)]
                || {
                    for unit in 0..h {
                        let column = unit * stride..unit * stride + padded;
                        let (gates, inner) = (&gates[column.clone()], &inner[column.clone()]);
                        let stream = &mut stream[stride..][column.clone()];
                        for b in 0..padded {
                            stream[b] = gates[b].fma(inner[b], stream[b]);
                        }
                        if let Some(next) = next.get_mut(column) {
                            for b in 0..padded {
                                next[b] = relu(stream[b]);
                            }
                        }
                    }
                },
            );
        }
        let layer = onwards(coupling.output, weights);
        let input = some(stream, stride, 0..h + 1);
        row_products(&mut kept.outputs, stride, Store::Replace, input, padded, layer);
    }

    /// Coupling and linear layer t, forwards.
    pub(super) fn couple(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, t: usize, rows: usize) {
        let (n, numbers) = (self.layout.shape.target, self.layout.shape.spline_parameters());
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let coupling = self.coupling(t);
        let Shard { states, kept, contexts, log, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        let (before, after) = states.split_at_mut(t + 1);
        let (state, next) = (&before[t], &mut after[0]);
        self.condition(prepared, kept, state, contexts, t, (stride, rows));
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || {
                for which in 0..coupling.moved {
                    let column = (1 + coupling.parity + 2 * which) * stride;
                    spline.forward(
                        &mut kept.outputs[which * numbers * stride..],
                        stride,
                        padded,
                        &state[column..],
                        &mut kept.middle[column..],
                        &mut kept.picked[which * PICKED * stride..],
                        log,
                    );
                }
            },
        );
        for column in (2 - coupling.parity..=n).step_by(2) {
            let column = column * stride..column * stride + padded;
            kept.middle[column.clone()].copy_from_slice(&state[column]);
        }
        prepared.linear[t].forward(&kept.middle, &mut next[stride..], stride, rows);
    }

    /// The way back through linear layer and coupling t.
    pub(super) fn couple_back(
        &self,
        prepared: &Prepared<T>,
        shard: &mut Shard<T>,
        t: usize,
        rows: usize,
        weight: T,
    ) {
        let (h, numbers) = (self.layout.shape.hidden_width, self.layout.shape.spline_parameters());
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let coupling = self.coupling(t);
        let weights = self.weights(prepared);
        let Shard { states, kept, contexts, bars, .. } = shard;
        let (state, kept) = (&states[t], &mut kept[t]);
        let train = !bars.gradient.is_empty();
        let gradient = train.then_some(LinearGradient {
            place: coupling.linear,
            gradient: &mut bars.gradient,
            whole: &mut bars.matrix,
            turned: &mut bars.turned,
        });
        prepared.linear[t].backward(
            &kept.middle,
            &bars.state,
            &mut bars.before,
            (stride, rows),
            weight,
            gradient,
        );
        std::mem::swap(&mut bars.state, &mut bars.before);
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || {
                for which in 0..coupling.moved {
                    spline.backward(
                        &mut kept.outputs[which * numbers * stride..],
                        stride,
                        padded,
                        &kept.picked[which * PICKED * stride..],
                        &mut bars.state[(coupling.parity + 2 * which) * stride..],
                        -weight,
                    );
                }
            },
        );
        let stream = kept.layers.len() - 1;
        let sizes = (stride, rows);
        self.output_back(weights, kept, coupling.output, bars, sizes);
        // bars.hidden is r̄ from here on, bars.below what passes through a block.
        for j in (0..stream / 2).rev() {
            let place = self.layout.slot(t, j + 1) * stride;
            let gates = &contexts[place..place + h * stride];
            let inner = &mut kept.inner[j];
            let gate_bars = bars.contexts.get_mut(place..place + h * stride);
            if let Some(gate_bars) = gate_bars {
                vectorised(
                    #[inline(always)]
                    || {
                        for unit in 0..h {
                            let column = unit * stride..unit * stride + padded;
                            let (bar, inner) = (&bars.hidden[column.clone()], &mut inner[column.clone()]);
                            let (gate, gate_bar) = (&gates[column.clone()], &mut gate_bars[column]);
                            for b in 0..padded {
                                gate_bar[b] = bar[b] * inner[b];
                                inner[b] = bar[b] * gate[b];
                            }
                        }
                    },
                );
            }
            let inner_bar = some(inner, stride, 0..h);
            let upper = &kept.layers[2 * j + 1];
            let layer = &coupling.layers[2 * j + 1];
            if train {
                let (dst, input) = (&mut bars.gradient[layer.all()], some(upper, stride, 0..h + 1));
                row_sums(dst, h, inner_bar, input, rows, &mut bars.turned);
            }
            let layer = backwards(layer, weights);
            row_products(&mut bars.below, stride, Store::Replace, inner_bar, padded, layer);
            combine(&mut bars.below, &upper[stride..], stride, padded, open);
            let lower = &kept.layers[2 * j];
            let layer = &coupling.layers[2 * j];
            let bar = some(&bars.below, stride, 0..h);
            if train {
                let (dst, input) = (&mut bars.gradient[layer.all()], some(lower, stride, 0..h + 1));
                row_sums(dst, h, bar, input, rows, &mut bars.turned);
            }
            let layer = backwards(layer, weights);
            row_products(&mut kept.inner[j], stride, Store::Replace, bar, padded, layer);
            let (through, lower) = (&kept.inner[j], &kept.layers[2 * j][stride..]);
            vectorised(
                #[inline(always)]
                || {
                    for unit in 0..h {
                        let column = unit * stride..unit * stride + padded;
                        let (bar, value) = (&through[column.clone()], &lower[column.clone()]);
                        for ((sum, &bar), &value) in bars.hidden[column].iter_mut().zip(bar).zip(value) {
                            *sum += open(bar, value);
                        }
                    }
                },
            );
        }
        let staying = self.layout.shape.target - coupling.moved;
        let first = 1 - coupling.parity;
        let r_bar = some(&bars.hidden, stride, 0..h);
        if train {
            let inputs =
                Columns { values: &state[(first + 1) * stride..], stride: 2 * stride, count: staying };
            let dst = &mut bars.gradient[coupling.input.clone()];
            row_sums(dst, h, r_bar, inputs, rows, &mut bars.turned);
            let place = self.layout.slot(t, 0) * stride;
            bars.contexts[place..place + h * stride].copy_from_slice(&bars.hidden);
        }
        let weights = Weights {
            values: &weights[coupling.input.clone()],
            stride: h,
            by_output: true,
            inputs: 0..h,
            outputs: 0..staying,
        };
        let dst = &mut bars.state[first * stride..];
        row_products(dst, 2 * stride, Store::Add, r_bar, padded, weights);
    }

    /// From the adjoints of a network's outputs (in `kept.outputs`) to those of its last hidden values, in `bars.hidden`.
    fn output_back(
        &self,
        weights: &[T],
        kept: &Kept<T>,
        output: &Layer,
        bars: &mut Bars<T>,
        (stride, rows): (usize, usize),
    ) {
        let (h, count) = (self.layout.shape.hidden_width, output.outputs);
        let padded = rows.next_multiple_of(LANES).min(stride);
        let bar = some(&kept.outputs, stride, 0..count);
        if !bars.gradient.is_empty() {
            let input = some(&kept.layers[kept.layers.len() - 1], stride, 0..h + 1);
            row_sums(&mut bars.gradient[output.all()], count, bar, input, rows, &mut bars.turned);
        }
        let layer = backwards(output, weights);
        row_products(&mut bars.hidden, stride, Store::Replace, bar, padded, layer);
    }

    /// From v back to u: linear layer, then splines with the numbers that the staying coordinates make.
    pub(super) fn couple_inverse(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, t: usize, rows: usize) {
        let (n, numbers) = (self.layout.shape.target, self.layout.shape.spline_parameters());
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let coupling = self.coupling(t);
        let Shard { states, kept, contexts, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        let (before, after) = states.split_at_mut(t + 1);
        let (state, next) = (&mut before[t], &mut after[0]);
        let linear = &prepared.linear[t];
        vectorised(
            #[inline(always)]
            || linear.inverse(&mut next[stride..], stride, padded),
        );
        for column in (2 - coupling.parity..=n).step_by(2) {
            let column = column * stride..column * stride + padded;
            state[column.clone()].copy_from_slice(&next[column]);
        }
        self.condition(prepared, kept, state, contexts, t, (stride, rows));
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || {
                for which in 0..coupling.moved {
                    let column = (1 + coupling.parity + 2 * which) * stride;
                    let raw = &mut kept.outputs[which * numbers * stride..];
                    spline.inverse(raw, stride, padded, &next[column..], &mut state[column..]);
                }
            },
        );
    }

    /// The layers and the output of the network of y alone.
    fn network(&self, t: usize) -> (&[Layer], &Layer) {
        match &self.layout.transforms[t] {
            TransformPlace::Spline { layers, output } => (layers, output),
            _ => unreachable!("a spline of one coordinate"),
        }
    }

    /// The numbers of spline t of a lone coordinate.
    fn condition_lone(
        &self,
        prepared: &Prepared<T>,
        kept: &mut Kept<T>,
        contexts: &[T],
        t: usize,
        (stride, rows): (usize, usize),
    ) {
        let h = self.layout.shape.hidden_width;
        let padded = rows.next_multiple_of(LANES).min(stride);
        let (layers, output) = self.network(t);
        let weights = self.weights(prepared);
        let base = &contexts[self.layout.slot(t, 0) * stride..];
        combine(&mut kept.layers[0][stride..], base, stride, padded, |_, c| relu(c));
        for (l, layer) in layers.iter().enumerate() {
            let (lower, upper) = kept.layers.split_at_mut(l + 1);
            let (input, out) = (some(&lower[l], stride, 0..h + 1), &mut upper[0][stride..]);
            row_products(out, stride, Store::Rectified, input, padded, onwards(layer, weights));
        }
        let (input, layer) = (some(&kept.layers[layers.len()], stride, 0..h + 1), onwards(output, weights));
        row_products(&mut kept.outputs, stride, Store::Replace, input, padded, layer);
    }

    /// Spline t of a lone coordinate, forwards.
    pub(super) fn bend(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, t: usize, rows: usize) {
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let Shard { states, kept, contexts, log, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        self.condition_lone(prepared, kept, contexts, t, (stride, rows));
        let (before, after) = states.split_at_mut(t + 1);
        let (x, v) = (&before[t][stride..], &mut after[0][stride..]);
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || spline.forward(&mut kept.outputs, stride, padded, x, v, &mut kept.picked, log),
        );
    }

    /// The way back through spline t of a lone coordinate.
    pub(super) fn bend_back(
        &self,
        prepared: &Prepared<T>,
        shard: &mut Shard<T>,
        t: usize,
        rows: usize,
        weight: T,
    ) {
        let h = self.layout.shape.hidden_width;
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let (layers, output) = self.network(t);
        let weights = self.weights(prepared);
        let Shard { kept, bars, .. } = shard;
        let kept = &mut kept[t];
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || spline.backward(&mut kept.outputs, stride, padded, &kept.picked, &mut bars.state, -weight),
        );
        if bars.gradient.is_empty() {
            return;
        }
        self.output_back(weights, kept, output, bars, (stride, rows));
        for l in (0..=layers.len()).rev() {
            combine(&mut bars.hidden, &kept.layers[l][stride..], stride, padded, open);
            let Some(layer) = l.checked_sub(1).map(|l| &layers[l]) else { break };
            let (bar, input) =
                (some(&bars.hidden, stride, 0..h), some(&kept.layers[l - 1], stride, 0..h + 1));
            row_sums(&mut bars.gradient[layer.all()], h, bar, input, rows, &mut bars.turned);
            let layer = backwards(layer, weights);
            row_products(&mut bars.below, stride, Store::Replace, bar, padded, layer);
            std::mem::swap(&mut bars.hidden, &mut bars.below);
        }
        let place = self.layout.slot(t, 0) * stride;
        bars.contexts[place..place + h * stride].copy_from_slice(&bars.hidden);
    }

    /// From v back to u through spline t of a lone coordinate.
    pub(super) fn bend_inverse(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, t: usize, rows: usize) {
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let Shard { states, kept, contexts, .. } = shard;
        let kept_at = t.min(kept.len() - 1);
        let kept = &mut kept[kept_at];
        self.condition_lone(prepared, kept, contexts, t, (stride, rows));
        let (before, after) = states.split_at_mut(t + 1);
        let (x, v) = (&mut before[t][stride..], &after[0][stride..]);
        let spline = prepared.spline;
        vectorised(
            #[inline(always)]
            || spline.inverse(&mut kept.outputs, stride, padded, v, x),
        );
    }
}
