//! The weights of a potential as its layers use them: positive by softplus, with the normalisations folded in.
//!
//! An activation normalisation multiplies the rows of all that stands below it by α = exp(scale) + 0.001, so that with
//!
//! Ã_k = diag(α_k) softplus(W_k)/h,   X̃_k = diag(α_k) X_k,   c̃_k = α_k ⊙ (Wc_k c + bc_k + bP_k/h + bX_k + shift_k)
//!
//! a layer is s_k = Ã_k (p_k ⊙ w_k) + X̃_k (q_k ⊙ x) + c̃_k. They are computed once a step, not once a row.

use super::CpFlowMap;
use super::shape::{Block, Norm};
use crate::kernel::{Real, softplus, vectorised};
use crate::parallel::each;

/// What keeps a normalisation's factor away from zero.
pub(super) const LEAST_FACTOR: f64 = 0.001;

/// Entries of a weight matrix that one task prepares.
const PIECE: usize = 1 << 14;

/// An activation normalisation v ↦ factor ⊙ (v + shift).
#[derive(Clone, Debug)]
pub(super) struct Normal<T> {
    pub shift: Vec<T>,
    pub factor: Vec<T>,
}

impl<T: Real> Normal<T> {
    fn new(length: usize) -> Self {
        Self { shift: vec![T::ZERO; length], factor: vec![T::ZERO; length] }
    }

    fn read(&mut self, parameters: &[T], norm: &Norm) {
        self.shift.copy_from_slice(&parameters[norm.shift.clone()]);
        for (factor, scale) in self.factor.iter_mut().zip(&parameters[norm.scale.clone()]) {
            *factor = T::from_f64(scale.to_f64().exp() + LEAST_FACTOR);
        }
    }

    /// Normalises rows of numbers.
    pub(super) fn apply(&self, values: &[T], normalised: &mut [T]) {
        let n = self.shift.len();
        for (normalised, values) in normalised.chunks_exact_mut(n).zip(values.chunks_exact(n)) {
            for i in 0..n {
                normalised[i] = self.factor[i] * (values[i] + self.shift[i]);
            }
        }
    }

    /// From the adjoint of the normalised rows to that of `values`, in place, with the sums of the adjoints of the shift and
    /// of the factor times the factor.
    pub(super) fn pull_back(&self, values: &[T], bar: &mut [T], [shift, factor]: &mut [Vec<T>; 2]) {
        let n = self.shift.len();
        shift.fill(T::ZERO);
        factor.fill(T::ZERO);
        for (bar, values) in bar.chunks_exact_mut(n).zip(values.chunks_exact(n)) {
            for i in 0..n {
                bar[i] *= self.factor[i];
                shift[i] += bar[i];
                factor[i] += bar[i] * (values[i] + self.shift[i]);
            }
        }
    }

    /// Σ log factor.
    pub(super) fn log_det(&self) -> f64 {
        self.factor.iter().map(|factor| factor.to_f64().ln()).sum()
    }
}

/// The weights of one hidden layer.
#[derive(Clone, Debug)]
pub(super) struct LayerWeights<T> {
    /// Ã_k, h × h; empty at k = 0.
    pub feature: Vec<T>,
    /// X̃_k, h × n.
    pub input: Vec<T>,
    /// bP_k/h + bX_k + shift_k.
    pub constant: Vec<T>,
    /// α_k.
    pub factor: Vec<T>,
}

/// The weights of one potential.
#[derive(Clone, Debug)]
pub(super) struct Weights<T> {
    pub context_norm: Normal<T>,
    pub layers: Vec<LayerWeights<T>>,
    /// Ã_K.
    pub head: Vec<T>,
    /// x̃_K.
    pub head_input: Vec<T>,
    /// α_K · shift_K.
    pub head_constant: T,
    /// α_K.
    pub head_factor: T,
    /// softplus(w₁), the weight of the network.
    pub a: T,
    /// softplus(w₀), the weight of ½‖x‖².
    pub b: T,
    /// ∂a/∂w₁ and ∂b/∂w₀.
    pub slopes: [T; 2],
}

/// The weights of all potentials and the normalisations around them.
#[derive(Clone, Debug)]
pub(super) struct Effective<T> {
    pub blocks: Vec<Weights<T>>,
    pub outer: Vec<Normal<T>>,
}

impl<T: Real> CpFlowMap<T> {
    /// Room for the weights, to be filled by [`prepare`](Self::prepare).
    pub(super) fn room_for_weights(&self) -> Effective<T> {
        let (n, h) = (self.layout.shape.target, self.layout.shape.width);
        let zeros = |length: usize| vec![T::ZERO; length];
        let block = |block: &Block| Weights {
            context_norm: Normal::new(h),
            layers: block
                .layers
                .iter()
                .map(|layer| LayerWeights {
                    feature: zeros(layer.feature.len()),
                    input: zeros(h * n),
                    constant: zeros(h),
                    factor: zeros(h),
                })
                .collect(),
            head: zeros(h),
            head_input: zeros(n),
            head_constant: T::ZERO,
            head_factor: T::ZERO,
            a: T::ZERO,
            b: T::ZERO,
            slopes: [T::ZERO; 2],
        };
        Effective {
            blocks: self.layout.blocks.iter().map(block).collect(),
            outer: self.layout.outer.iter().map(|_| Normal::new(n)).collect(),
        }
    }

    /// The weights of the map as it is.
    pub(super) fn weights(&self) -> Effective<T> {
        let mut weights = self.room_for_weights();
        self.prepare(&mut weights);
        weights
    }

    /// Computes the weights from the parameters.
    pub(super) fn prepare(&self, weights: &mut Effective<T>) {
        let h = self.layout.shape.width;
        let parameters = &self.parameters;
        for (normal, norm) in weights.outer.iter_mut().zip(&self.layout.outer) {
            normal.read(parameters, norm);
        }
        let fan_in = T::from_f64(1.0 / h as f64);
        for (weights, block) in weights.blocks.iter_mut().zip(&self.layout.blocks) {
            weights.context_norm.read(parameters, &block.context_norm);
            for (layer, places) in weights.layers.iter_mut().zip(&block.layers) {
                for (factor, scale) in layer.factor.iter_mut().zip(&parameters[places.norm.scale.clone()]) {
                    *factor = T::from_f64(scale.to_f64().exp() + LEAST_FACTOR);
                }
                layer.constant.copy_from_slice(&parameters[places.norm.shift.clone()]);
                for (constant, &bias) in layer.constant.iter_mut().zip(&parameters[places.input_bias.clone()])
                {
                    *constant += bias;
                }
                for (constant, &bias) in
                    layer.constant.iter_mut().zip(&parameters[places.feature_bias.clone()])
                {
                    *constant += bias * fan_in;
                }
                let factor = &layer.factor;
                let raw = &parameters[places.input.clone()];
                for (scaled, raw) in layer.input.chunks_exact_mut(h).zip(raw.chunks_exact(h)) {
                    for ((scaled, &raw), &factor) in scaled.iter_mut().zip(raw).zip(factor) {
                        *scaled = factor * raw;
                    }
                }
                let piece = PIECE.next_multiple_of(h);
                let raw = &parameters[places.feature.clone()];
                each(layer.feature.chunks_mut(piece).zip(raw.chunks(piece)), |_, (scaled, raw)| {
                    vectorised(
                        #[inline(always)]
                        || {
                            for (scaled, raw) in scaled.chunks_exact_mut(h).zip(raw.chunks_exact(h)) {
                                for ((scaled, &raw), &factor) in scaled.iter_mut().zip(raw).zip(factor) {
                                    *scaled = factor * fan_in * softplus(raw).0;
                                }
                            }
                        },
                    );
                });
            }
            let factor = parameters[block.head_norm.scale.start].to_f64().exp() + LEAST_FACTOR;
            weights.head_factor = T::from_f64(factor);
            weights.head_constant = weights.head_factor * parameters[block.head_norm.shift.start];
            for (head, &raw) in weights.head.iter_mut().zip(&parameters[block.head.clone()]) {
                *head = weights.head_factor * fan_in * softplus(raw).0;
            }
            for (input, &raw) in weights.head_input.iter_mut().zip(&parameters[block.head_input.clone()]) {
                *input = weights.head_factor * raw;
            }
            let mixture = &parameters[block.mixture.clone()];
            let ((b, slope_b), (a, slope_a)) = (softplus(mixture[0]), softplus(mixture[1]));
            (weights.a, weights.b, weights.slopes) = (a, b, [slope_a, slope_b]);
        }
    }
}

/// softplus' where softplus is v: 1 − e^{−v}, by its series where the difference would cancel.
#[inline(always)]
pub(super) fn softplus_slope<T: Real>(v: T) -> T {
    let [half, third, fourth, fifth] = [1.0 / 2.0, 1.0 / 3.0, 1.0 / 4.0, 1.0 / 5.0].map(T::from_f64);
    let series =
        v * (T::ONE - v * half * (T::ONE - v * third * (T::ONE - v * fourth * (T::ONE - v * fifth))));
    if v < T::from_f64(0.01) { series } else { T::ONE - (-v).exp_vec() }
}
