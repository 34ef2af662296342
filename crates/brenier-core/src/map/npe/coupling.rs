//! Spline couplings: coordinates of one parity pass through splines whose numbers a network makes of the others and of y.
//!
//! With u' the coordinates that stay, slots c₀ = C₀y + …, g_j = σ(C_j y + …) of the context and blocks j = 1, …, J,
//!
//! r₀ = W₀u' + c₀,   r_j = r_{j−1} + g_j ⊙ (W_{2j} relu(W_{2j−1} relu(r_{j−1}) + b_{2j−1}) + b_{2j}),   numbers = P r_J + p,
//!
//! and a linear layer follows (`linear.rs`). Of one coordinate nothing stays: its network is r₀ = relu(c₀),
//! r_l = relu(W_l r_{l−1} + b_l), and no linear layer follows.

use crate::kernel::Accum;

use super::NpeMap;
use super::lanes::{LANES, Lanes, apply, combine, read, through, view, view_mut, write};
use super::shape::{Layer, LinearPlace, TransformPlace};
use super::shard::{Kept, Prepared, Shard};
use super::spline::PICKED;
use crate::kernel::{Real, columns, columns_mut, product, vectorised};

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

/// A bar where the rectified value is positive.
#[inline(always)]
fn open<T: Real>(bar: T, value: T) -> T {
    if value > T::ZERO { bar } else { T::ZERO }
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
            let layer = columns(&weights[coupling.layers[2 * j].all()], h, h + 1, h);
            let dst = view_mut(&mut upper[0], stride, rows, 1..h + 1);
            through(dst, view(&lower[0], stride, rows, 0..h + 1), layer);
            apply(&mut upper[0][stride..], stride, padded, relu);
            let layer = columns(&weights[coupling.layers[2 * j + 1].all()], h, h + 1, h);
            through(view_mut(inner, stride, rows, 0..h), view(&upper[0], stride, rows, 0..h + 1), layer);
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
        let outputs = coupling.output.outputs;
        let layer = columns(&weights[coupling.output.all()], outputs, h + 1, outputs);
        let dst = view_mut(&mut kept.outputs, stride, rows, 0..outputs);
        through(dst, view(stream, stride, rows, 0..h + 1), layer);
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
        let gradient = train.then_some((coupling.linear, &mut bars.gradient[..], &mut bars.matrix[..]));
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
        let gradient = train.then_some(&mut bars.gradient[..]);
        self.output_back(weights, kept, coupling.output, &mut bars.hidden, gradient, sizes);
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
            let inner_bar = view(inner, stride, rows, 0..h);
            let upper = &kept.layers[2 * j + 1];
            let layer = &coupling.layers[2 * j + 1];
            if train {
                let dst = columns_mut(&mut bars.gradient[layer.all()], h, h + 1, h);
                product(dst, Accum::Replace, inner_bar.transpose(), view(upper, stride, rows, 0..h + 1));
            }
            let dst = view_mut(&mut bars.below, stride, rows, 0..h);
            product(dst, Accum::Replace, inner_bar, columns(&weights[layer.weight()], h, h, h));
            combine(&mut bars.below, &upper[stride..], stride, padded, open);
            let lower = &kept.layers[2 * j];
            let layer = &coupling.layers[2 * j];
            let bar = view(&bars.below, stride, rows, 0..h);
            if train {
                let dst = columns_mut(&mut bars.gradient[layer.all()], h, h + 1, h);
                product(dst, Accum::Replace, bar.transpose(), view(lower, stride, rows, 0..h + 1));
            }
            let dst = view_mut(&mut kept.inner[j], stride, rows, 0..h);
            product(dst, Accum::Replace, bar, columns(&weights[layer.weight()], h, h, h));
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
        let r_bar = view(&bars.hidden, stride, rows, 0..h);
        if train {
            let inputs = columns(&state[(first + 1) * stride..], rows, staying, 2 * stride);
            let dst = columns_mut(&mut bars.gradient[coupling.input.clone()], h, staying, h);
            product(dst, Accum::Replace, r_bar.transpose(), inputs);
            let place = self.layout.slot(t, 0) * stride;
            bars.contexts[place..place + h * stride].copy_from_slice(&bars.hidden);
        }
        let dst = columns_mut(&mut bars.state[first * stride..], rows, staying, 2 * stride);
        product(dst, Accum::Add, r_bar, columns(&weights[coupling.input.clone()], h, staying, h));
    }

    /// From the adjoints of a network's outputs (in `kept.outputs`) to those of its last hidden values.
    fn output_back(
        &self,
        weights: &[T],
        kept: &Kept<T>,
        output: &Layer,
        hidden: &mut [T],
        gradient: Option<&mut [T]>,
        (stride, rows): (usize, usize),
    ) {
        let (h, count) = (self.layout.shape.hidden_width, output.outputs);
        let bar = view(&kept.outputs, stride, rows, 0..count);
        if let Some(gradient) = gradient {
            let dst = columns_mut(&mut gradient[output.all()], count, h + 1, count);
            let input = view(&kept.layers[kept.layers.len() - 1], stride, rows, 0..h + 1);
            product(dst, Accum::Replace, bar.transpose(), input);
        }
        let dst = view_mut(hidden, stride, rows, 0..h);
        product(dst, Accum::Replace, bar, columns(&weights[output.weight()], count, h, count));
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
            let dst = view_mut(&mut upper[0], stride, rows, 1..h + 1);
            let weight = columns(&weights[layer.all()], h, h + 1, h);
            through(dst, view(&lower[l], stride, rows, 0..h + 1), weight);
            apply(&mut upper[0][stride..], stride, padded, relu);
        }
        let (last, count) = (&kept.layers[layers.len()], output.outputs);
        let dst = view_mut(&mut kept.outputs, stride, rows, 0..count);
        let weight = columns(&weights[output.all()], count, h + 1, count);
        through(dst, view(last, stride, rows, 0..h + 1), weight);
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
        let gradient = Some(&mut bars.gradient[..]);
        self.output_back(weights, kept, output, &mut bars.hidden, gradient, (stride, rows));
        for l in (0..=layers.len()).rev() {
            combine(&mut bars.hidden, &kept.layers[l][stride..], stride, padded, open);
            let Some(layer) = l.checked_sub(1).map(|l| &layers[l]) else { break };
            let bar = view(&bars.hidden, stride, rows, 0..h);
            let dst = columns_mut(&mut bars.gradient[layer.all()], h, h + 1, h);
            product(dst, Accum::Replace, bar.transpose(), view(&kept.layers[l - 1], stride, rows, 0..h + 1));
            let dst = view_mut(&mut bars.below, stride, rows, 0..h);
            product(dst, Accum::Replace, bar, columns(&weights[layer.weight()], h, h, h));
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
