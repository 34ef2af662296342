//! An embedding of the given variables: a network y ↦ e whose output a map reads in place of y.
//!
//! a₀ = y,   s_l = E_l a_{l−1} + d_l,   a_l = φ(s_l) for l < k,   e = s_k,   φ = tanh, relu or ELU.
//!
//! It is evaluated once per row, whatever the map does with e, and trained with the map. With ē the adjoint of e,
//! s̄_k = ē and s̄_l = φ'(s_l) ⊙ E_{l+1}ᵀ s̄_{l+1}, where a_l tells φ'; then Ē_l = Σ s̄_l a_{l−1}ᵀ and d̄_l = Σ s̄_l over the rows.

use std::ops::Range;

use crate::kernel::{Accum, MatRef};

use serde::{Deserialize, Serialize};

use super::batch::sum_into;
use super::{Constraint, TensorSpec};
use crate::kernel::{Real, columns, columns_mut, elu, product, vectorised};

/// What a hidden layer of an embedding ends in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Activation {
    /// tanh s, which is bounded.
    #[default]
    Tanh,
    /// max(s, 0), which never saturates above.
    Relu,
    /// s above zero, eˢ − 1 below: relu's smooth relative.
    Elu,
}

impl Activation {
    /// The names of all, as in a settings file.
    pub const NAMES: [&'static str; 3] = ["tanh", "relu", "elu"];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Bound of the starting values of a weight with this many inputs: 1/√inputs for tanh, and what keeps the size of the values for the
    /// others.
    fn bound(self, inputs: usize) -> f64 {
        let gain = if self == Self::Tanh { 1.0 } else { 6.0 };
        (gain / inputs as f64).sqrt()
    }

    /// a = φ(s + bias) in the place of s.
    #[inline(always)]
    fn close<T: Real>(self, values: &mut [T], bias: &[T]) {
        let each = values.iter_mut().zip(bias);
        match self {
            Self::Tanh => each.for_each(|(a, &bias)| *a = (*a + bias).tanh_vec()),
            Self::Relu => each.for_each(|(a, &bias)| {
                let s = *a + bias;
                // NaN stays NaN.
                *a = if s > T::ZERO { s } else { T::ZERO * s };
            }),
            Self::Elu => each.for_each(|(a, &bias)| *a = elu(*a + bias)),
        }
    }

    /// s̄ = φ'(s) ā in the place of ā: 1 − a², or 1 above zero and 0 or a + 1 below.
    #[inline(always)]
    fn pull<T: Real>(self, bars: &mut [T], values: &[T]) {
        let each = bars.iter_mut().zip(values);
        match self {
            Self::Tanh => each.for_each(|(bar, &a)| *bar *= T::ONE - a * a),
            Self::Relu => each.for_each(|(bar, &a)| *bar = if a > T::ZERO { *bar } else { T::ZERO }),
            Self::Elu => {
                each.for_each(|(bar, &a)| *bar = if a > T::ZERO { *bar } else { *bar * (a + T::ONE) });
            }
        }
    }
}

/// Where one layer's tensors and values stand.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// E_l, column-major.
    pub(super) weight: Range<usize>,
    /// d_l.
    pub(super) bias: Range<usize>,
    /// The place of a_l in a row's record.
    pub(super) place: usize,
}

/// An embedding's layers; without any, e = y.
#[derive(Clone, Debug)]
pub(super) struct Embedding {
    layers: Vec<Layer>,
    activation: Activation,
    /// Length of a row's record (a₁, …, a_k).
    stride: usize,
}

/// What a block of the embedding's parameters holds.
#[derive(Clone, Debug)]
pub(super) enum EmbeddingPart {
    /// Columns of a weight.
    Weight { layer: usize, cols: Range<usize> },
    /// A bias.
    Bias { layer: usize },
}

impl Embedding {
    /// Layers of the given widths for y in Rᵐ, whose parameters stand from `start` on.
    pub(super) fn new(given: usize, widths: &[usize], activation: Activation, start: usize) -> Self {
        let (mut inputs, mut next, mut place) = (given, start, 0);
        let mut layers = Vec::with_capacity(widths.len());
        for &outputs in widths {
            let weight = next..next + inputs * outputs;
            let bias = weight.end..weight.end + outputs;
            next = bias.end;
            layers.push(Layer { inputs, outputs, weight, bias, place });
            place += outputs;
            inputs = outputs;
        }
        Self { layers, activation, stride: place }
    }

    /// The number of parameters of such an embedding.
    pub(super) fn count(given: usize, widths: &[usize]) -> u128 {
        let inputs = std::iter::once(given).chain(widths.iter().copied());
        inputs.zip(widths).map(|(inputs, &outputs)| (inputs as u128 + 1) * outputs as u128).sum()
    }

    /// The layers, from that of y to that of e.
    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Whether e = y.
    pub(super) fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Numbers that the values, or the adjoints, of one row take.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The end of the parameters, where there are any.
    pub(super) fn end(&self) -> Option<usize> {
        self.layers.last().map(|layer| layer.bias.end)
    }

    /// The tensors E_l, d_l for l = 1, …, k.
    pub(super) fn tensors(&self) -> Vec<TensorSpec> {
        let mut specs = Vec::with_capacity(2 * self.layers.len());
        for (l, layer) in (1..).zip(&self.layers) {
            let spec = |name: String, cols: Option<usize>, place: &Range<usize>| TensorSpec {
                name,
                rows: layer.outputs,
                cols,
                offset: place.start,
                stride: layer.outputs,
                constraint: Constraint::Free,
            };
            specs.push(spec(format!("E{l}"), Some(layer.inputs), &layer.weight));
            specs.push(spec(format!("d{l}"), None, &layer.bias));
        }
        specs
    }

    /// Gives `draw` every tensor with the bound of its starting values.
    pub(super) fn initialise<T>(&self, parameters: &mut [T], mut draw: impl FnMut(&mut [T], f64)) {
        for layer in &self.layers {
            draw(&mut parameters[layer.weight.clone()], self.activation.bound(layer.inputs));
            draw(&mut parameters[layer.bias.clone()], Activation::Tanh.bound(layer.inputs));
        }
    }

    /// The records (a₁, …, a_k) of `rows` rows y.
    pub(super) fn forward<T: Real>(&self, parameters: &[T], y: &[T], values: &mut [T], rows: usize) {
        let mut below: Option<usize> = None;
        for (l, layer) in self.layers.iter().enumerate() {
            let weight =
                columns(&parameters[layer.weight.clone()], layer.outputs, layer.inputs, layer.outputs);
            let all = columns_mut(values, self.stride, rows, self.stride);
            let (before, after) = all.split_at_row_mut(layer.place);
            let input = match below {
                None => columns(y, layer.inputs, rows, layer.inputs),
                Some(place) => before.as_ref().subrows(place, layer.inputs),
            };
            product(after.subrows_mut(0, layer.outputs), Accum::Replace, weight, input);
            let (bias, hidden) = (&parameters[layer.bias.clone()], l + 1 < self.layers.len());
            vectorised(
                #[inline(always)]
                || {
                    for record in values.chunks_exact_mut(self.stride).take(rows) {
                        let outputs = &mut record[layer.place..layer.place + layer.outputs];
                        if hidden {
                            self.activation.close(outputs, bias);
                        } else {
                            for (a, &bias) in outputs.iter_mut().zip(bias) {
                                *a += bias;
                            }
                        }
                    }
                },
            );
            below = Some(layer.place);
        }
    }

    /// e of `rows` rows, one column each, from their records.
    pub(super) fn output<'a, T: Real>(&self, values: &'a [T], rows: usize) -> MatRef<'a, T> {
        let last = self.layers.last().expect("an embedding with layers");
        columns(&values[last.place..], last.outputs, rows, self.stride)
    }

    /// As [`output`](Self::output), of the adjoints, to write ē to.
    pub(super) fn output_mut<'a, T: Real>(
        &self,
        bars: &'a mut [T],
        rows: usize,
    ) -> crate::kernel::MatMut<'a, T> {
        let last = self.layers.last().expect("an embedding with layers");
        columns_mut(&mut bars[last.place..], last.outputs, rows, self.stride)
    }

    /// Completes the adjoints (s̄₁, …, s̄_k), whose last part holds ē.
    pub(super) fn backward<T: Real>(&self, parameters: &[T], values: &[T], bars: &mut [T], rows: usize) {
        for pair in self.layers.windows(2).rev() {
            let (lower, upper) = (&pair[0], &pair[1]);
            let weight =
                columns(&parameters[upper.weight.clone()], upper.outputs, upper.inputs, upper.outputs);
            let all = columns_mut(bars, self.stride, rows, self.stride);
            let (before, after) = all.split_at_row_mut(upper.place);
            let dst = before.subrows_mut(lower.place, lower.outputs);
            product(dst, Accum::Replace, weight.transpose(), after.as_ref().subrows(0, upper.outputs));
            let place = lower.place..lower.place + lower.outputs;
            vectorised(
                #[inline(always)]
                || {
                    let records = bars.chunks_exact_mut(self.stride).zip(values.chunks_exact(self.stride));
                    for (bars, values) in records.take(rows) {
                        self.activation.pull(&mut bars[place.clone()], &values[place.clone()]);
                    }
                },
            );
        }
    }

    /// Blocks of about `entries` entries that tile the parameters, each with whether it is a weight.
    pub(super) fn parts(&self, entries: usize) -> Vec<(Range<usize>, EmbeddingPart, bool)> {
        let mut parts = Vec::new();
        for (layer, at) in self.layers.iter().enumerate() {
            let width = (entries / at.outputs).max(1);
            for first in (0..at.inputs).step_by(width) {
                let cols = first..(first + width).min(at.inputs);
                let place =
                    at.weight.start + cols.start * at.outputs..at.weight.start + cols.end * at.outputs;
                parts.push((place, EmbeddingPart::Weight { layer, cols }, true));
            }
            parts.push((at.bias.clone(), EmbeddingPart::Bias { layer }, false));
        }
        parts
    }

    /// The gradient of one block, from y, the values and the adjoints of `rows` rows.
    pub(super) fn gradient<T: Real>(
        &self,
        part: &EmbeddingPart,
        y: &[T],
        values: &[T],
        bars: &[T],
        rows: usize,
        gradient: &mut [T],
    ) {
        match part {
            EmbeddingPart::Weight { layer, cols } => {
                let at = &self.layers[*layer];
                let input = match layer.checked_sub(1) {
                    None => columns(y, at.inputs, rows, at.inputs),
                    Some(below) => columns(&values[self.layers[below].place..], at.inputs, rows, self.stride),
                };
                let bars = columns(&bars[at.place..], at.outputs, rows, self.stride);
                let dst = columns_mut(gradient, at.outputs, cols.len(), at.outputs);
                product(dst, Accum::Replace, bars, input.subrows(cols.start, cols.len()).transpose());
            }
            EmbeddingPart::Bias { layer } => {
                let at = &self.layers[*layer];
                let place = at.place..at.place + at.outputs;
                sum_into(
                    gradient,
                    bars.chunks_exact(self.stride).take(rows).map(|bars| &bars[place.clone()]),
                );
            }
        }
    }
}
