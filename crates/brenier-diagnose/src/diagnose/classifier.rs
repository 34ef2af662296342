//! A small network that tells two classes apart: two hidden layers of rectifiers, logistic output, Adam.
//!
//! h₁ = ReLU(W₁x + b₁), h₂ = ReLU(W₂h₁ + b₂), o = w₃ᵀh₂ + b₃, P(class 1 | x) = 1/(1 + e⁻ᵒ). The loss of a batch of
//! B rows with weights ωᵢ of mean one is Σ ωᵢ (softplus(oᵢ) − tᵢ oᵢ)/B + α ‖W‖²/(2B). Sizes, start, optimiser and
//! stopping rule are those of scikit-learn's `MLPClassifier` with its defaults.
//!
//! A layer's unit of all rows stands side by side, for products of narrow matrices; a last unit, which is one, carries the biases.
//! A batch is two parts whatever the number of threads, so that a thread without a fold of its own helps with the steps of
//! others.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::kernel::{
    AdamRates, Columns, ROW_CHUNK, Store, Weights, adam_step, axpy_columns, dot, logistic, row_products,
    row_sums, softplus, vectorised,
};
use crate::statistics::random::shuffled;
use crate::{Result, StopToken};

const LEARNING_RATE: f64 = 1e-3;
const PENALTY: f32 = 1e-4;
const BATCH: usize = 200;
/// An epoch must lower the best loss by this to count as progress …
const TOLERANCE: f64 = 1e-4;
/// … and more epochs in a row than this without it end the training.
const PATIENCE: u32 = 10;
/// Rows of the first part of a batch: whole pairs of registers.
const FIRST_PART: usize = 96;
/// Rows of a part at most, and the distance of two units of a layer.
const PART: usize = BATCH - FIRST_PART;
const DISTANCE: usize = PART.next_multiple_of(ROW_CHUNK);
/// The parts of narrower networks stay on one thread: they are shorter than handing them over.
const SHARED_WIDTH: usize = 40;

/// Rows to learn from or to judge: `dim` numbers, a class and a weight each.
#[derive(Clone, Copy)]
pub(super) struct Labelled<'a> {
    pub values: &'a [f32],
    pub class: &'a [f32],
    pub weight: &'a [f32],
}

/// Sizes, and where each tensor begins among the parameters.
///
/// W₁ and W₂ have a row for each input and a last one, the bias. Rows are `stride` apart, and zero beyond `width`; so are
/// the gradients there, and Adam keeps the zeros.
#[derive(Clone, Copy)]
struct Shape {
    dim: usize,
    width: usize,
    stride: usize,
    w2: usize,
    b2: usize,
    w3: usize,
    b3: usize,
}

impl Shape {
    fn new(dim: usize, width: usize) -> Self {
        let stride = width.next_multiple_of(ROW_CHUNK);
        let w2 = (dim + 1) * stride;
        let b2 = w2 + width * stride;
        let (w3, b3) = (b2 + stride, b2 + 2 * stride);
        Self { dim, width, stride, w2, b2, w3, b3 }
    }

    fn parameters(&self) -> usize {
        self.b3 + 1
    }
}

/// The network's parameters: W₁, b₁, W₂, b₂, w₃, b₃.
pub(super) struct Classifier {
    shape: Shape,
    parameters: Vec<f32>,
}

/// A part of a batch: its layers, and the gradient of its loss.
struct Part {
    count: usize,
    class: [f32; DISTANCE],
    weight: [f32; DISTANCE],
    /// o, then the derivative with respect to it; zero beyond the rows.
    output: [f32; DISTANCE],
    x: Vec<f32>,
    first: Vec<f32>,
    /// The second layer, then the derivative with respect to what it rectifies.
    second: Vec<f32>,
    first_bar: Vec<f32>,
    gradient: Vec<f32>,
    turned: Vec<f32>,
    loss: f64,
}

impl Part {
    fn new(shape: Shape) -> Self {
        // The unit after the last one is the one that carries the biases.
        let layer = |width: usize| {
            let mut layer = vec![0.0; (width + 1) * DISTANCE];
            layer[width * DISTANCE..].fill(1.0);
            layer
        };
        Self {
            count: 0,
            class: [0.0; DISTANCE],
            weight: [0.0; DISTANCE],
            output: [0.0; DISTANCE],
            x: layer(shape.dim),
            first: layer(shape.width),
            second: vec![0.0; shape.width * DISTANCE],
            first_bar: vec![0.0; shape.width * DISTANCE],
            gradient: vec![0.0; shape.parameters()],
            turned: Vec::new(),
            loss: 0.0,
        }
    }

    fn load(&mut self, rows: Labelled<'_>, which: &[u32], dim: usize) {
        self.count = which.len();
        for (place, &row) in which.iter().enumerate() {
            let row = row as usize;
            for (x, &value) in self.x.chunks_exact_mut(DISTANCE).zip(&rows.values[row * dim..][..dim]) {
                x[place] = value;
            }
            self.class[place] = rows.class[row];
            self.weight[place] = rows.weight[row];
        }
    }
}

/// out_j ← Σ_k x_k M_kj for `count` rows, where `terms` rows of the matrix M are `stride` apart.
fn times(
    out: &mut [f32],
    store: Store,
    x: &[f32],
    terms: usize,
    matrix: &[f32],
    stride: usize,
    outputs: usize,
    count: usize,
) {
    let x = Columns { values: x, stride: DISTANCE, count: terms };
    let weights = Weights { values: matrix, stride, by_output: false, inputs: 0..terms, outputs: 0..outputs };
    row_products(out, DISTANCE, store, x, count.next_multiple_of(8), weights);
}

/// The first `length` numbers of `count` columns, `stride` apart, into rows, `out_stride` apart.
fn turn(values: &[f32], stride: usize, count: usize, length: usize, out: &mut [f32], out_stride: usize) {
    for (k, eight) in values.chunks(8 * stride).enumerate().take(count / 8) {
        let column = |c: usize| &eight[c * stride..][..length];
        let columns =
            [column(0), column(1), column(2), column(3), column(4), column(5), column(6), column(7)];
        for (i, out) in out.chunks_exact_mut(out_stride).enumerate().take(length) {
            out[8 * k..8 * k + 8].copy_from_slice(&columns.map(|column| column[i]));
        }
    }
    for k in count - count % 8..count {
        for (out, &value) in out.chunks_exact_mut(out_stride).zip(&values[k * stride..][..length]) {
            out[k] = value;
        }
    }
}

impl Classifier {
    /// Glorot's start: every entry uniform within √(6 / (inputs + outputs)) of zero.
    fn initial(dim: usize, width: usize, rng: &mut ChaCha8Rng) -> Self {
        let shape = Shape::new(dim, width);
        let mut parameters = vec![0.0; shape.parameters()];
        for (start, inputs, outputs) in [(0, dim, width), (shape.w2, width, width)] {
            let bound = (6.0 / (inputs + outputs) as f64).sqrt();
            for row in parameters[start..].chunks_mut(shape.stride).take(inputs + 1) {
                row[..outputs].fill_with(|| (bound * (2.0 * rng.random::<f64>() - 1.0)) as f32);
            }
        }
        let bound = (6.0 / (width + 1) as f64).sqrt();
        let last = (shape.w3..shape.w3 + width).chain([shape.b3]);
        last.for_each(|i| parameters[i] = (bound * (2.0 * rng.random::<f64>() - 1.0)) as f32);
        Self { shape, parameters }
    }

    /// Trains on `rows` of `dim` columns with hidden layers of `width`; returns the network and the epochs taken, before each
    /// of which it looks whether to `stop`.
    pub(super) fn train(
        rows: Labelled<'_>,
        dim: usize,
        width: usize,
        max_epochs: u32,
        mut rng: ChaCha8Rng,
        stop: &StopToken,
    ) -> Result<(Self, u32)> {
        let count = rows.class.len();
        let mut network = Self::initial(dim, width, &mut rng);
        let shape = network.shape;
        let mut adam = Adam::new(shape.parameters());
        let mut turned = vec![0.0; width * shape.stride];
        let (mut one, mut other) = (Part::new(shape), Part::new(shape));
        let (mut best, mut idle, mut steps, mut epochs) = (f64::INFINITY, 0, 0, 0);
        while epochs < max_epochs && idle <= PATIENCE {
            stop.go_on()?;
            epochs += 1;
            let mut loss = 0.0;
            for which in shuffled(count, &mut rng).chunks(BATCH) {
                turn(&network.parameters[shape.w2..], shape.stride, width, width, &mut turned, shape.stride);
                let scale = 1.0 / which.len() as f32;
                let (mine, others) = which.split_at(which.len().min(FIRST_PART));
                let mut first = || network.gradient(&mut one, rows, mine, &turned, scale);
                let mut second = || network.gradient(&mut other, rows, others, &turned, scale);
                if width < SHARED_WIDTH {
                    first();
                    second();
                } else {
                    rayon::join(first, second);
                }
                steps += 1;
                let penalty = adam.step(&mut network, &mut one.gradient, &other.gradient, scale, steps);
                loss += (one.loss + other.loss + penalty) * which.len() as f64;
            }
            loss /= count as f64;
            idle = if loss > best - TOLERANCE { idle + 1 } else { 0 };
            best = best.min(loss);
        }
        Ok((network, epochs))
    }

    /// h₁, h₂ and o of a part.
    fn forward(&self, part: &mut Part) {
        let Shape { dim, width, stride, w2, w3, b3, .. } = self.shape;
        let (p, Part { x, first, second, output, count, .. }) = (&self.parameters, part);
        times(first, Store::Rectified, x, dim + 1, p, stride, width, *count);
        times(second, Store::Rectified, first, width + 1, &p[w2..w3], stride, width, *count);
        output.fill(p[b3]);
        vectorised(
            #[inline(always)]
            || axpy_columns(&p[w3..w3 + width], second, output),
        );
    }

    /// The loss and gradient of rows `which`, both times `scale`, without the penalty; `turned` is the transpose of W₂.
    fn gradient(&self, part: &mut Part, rows: Labelled<'_>, which: &[u32], turned: &[f32], scale: f32) {
        let Shape { dim, width, stride, w2, w3, b3, .. } = self.shape;
        part.load(rows, which, dim);
        self.forward(part);
        let (p, count) = (&self.parameters, part.count);
        let Part { class, weight, output, x, first, second, first_bar, gradient, .. } = part;
        let mut losses = [0.0; DISTANCE];
        vectorised(
            #[inline(always)]
            || {
                for i in 0..DISTANCE {
                    let o = output[i];
                    losses[i] = weight[i] * (softplus(o).0 - class[i] * o) * scale;
                    output[i] = weight[i] * (logistic(o) - class[i]) * scale;
                }
            },
        );
        part.loss = losses[..count].iter().map(|&loss| f64::from(loss)).sum();
        output[count..].fill(0.0);
        gradient[b3] = output.iter().sum();
        // w₃ δᵀ, where the unit was on.
        vectorised(
            #[inline(always)]
            || {
                let units = second.chunks_exact_mut(DISTANCE).zip(&p[w3..]).zip(&mut gradient[w3..]);
                for ((unit, &weight), bar) in units.take(width) {
                    *bar = dot(unit, output);
                    for i in 0..DISTANCE {
                        unit[i] = if unit[i] > 0.0 { weight * output[i] } else { 0.0 };
                    }
                }
            },
        );
        times(first_bar, Store::Replace, second, width, turned, stride, width, count);
        vectorised(
            #[inline(always)]
            || {
                for (bar, value) in first_bar.iter_mut().zip(first.iter()) {
                    *bar = if *value > 0.0 { *bar } else { 0.0 };
                }
            },
        );
        let columns = |values, count| Columns { values, stride: DISTANCE, count };
        let padded = count.next_multiple_of(8);
        row_sums(gradient, stride, columns(first_bar, width), columns(x, dim + 1), padded, &mut part.turned);
        // W₂'s gradient, of which the last row is that of b₂.
        let (left, right) = (columns(second, width), columns(first, width + 1));
        row_sums(&mut gradient[w2..w3], stride, left, right, padded, &mut part.turned);
    }

    /// Whether each row is taken for class 1.
    pub(super) fn predict(&self, rows: Labelled<'_>) -> Vec<bool> {
        let mut part = Part::new(self.shape);
        let all: Vec<u32> = (0..rows.class.len() as u32).collect();
        let mut answers = Vec::with_capacity(all.len());
        for which in all.chunks(PART) {
            part.load(rows, which, self.shape.dim);
            self.forward(&mut part);
            answers.extend(part.output[..which.len()].iter().map(|&o| o > 0.0));
        }
        answers
    }
}

/// Adam's running means of the gradients and of their squares.
struct Adam {
    mean: Vec<f32>,
    square: Vec<f32>,
}

impl Adam {
    fn new(size: usize) -> Self {
        Self { mean: vec![0.0; size], square: vec![0.0; size] }
    }

    /// A step along the sum of both gradients and that of the penalty, which is returned.
    fn step(
        &mut self,
        network: &mut Classifier,
        one: &mut [f32],
        other: &[f32],
        scale: f32,
        steps: i32,
    ) -> f64 {
        let Shape { stride, w2, b2, w3, b3, .. } = network.shape;
        let correction = (1.0 - 0.999_f64.powi(steps)).sqrt() / (1.0 - 0.9_f64.powi(steps));
        let rates = AdamRates {
            beta1: 0.9,
            beta2: 0.999,
            step: (LEARNING_RATE * correction) as f32,
            epsilon: 1e-8,
            keep: 1.0,
        };
        let b1 = w2 - stride;
        let weights = [(0..b1, PENALTY), (w2..b2, PENALTY), (w3..b3, PENALTY)];
        let biases = [(b1..w2, 0.0), (b2..w3, 0.0), (b3..b3 + 1, 0.0)];
        let mut total = 0.0;
        for (tensor, penalty) in weights.into_iter().chain(biases) {
            let penalty = penalty * scale;
            // As much at a time as a first-level cache holds.
            for start in tensor.clone().step_by(1024) {
                let range = start..tensor.end.min(start + 1024);
                let p = &mut network.parameters[range.clone()];
                let (mean, square) = (&mut self.mean[range.clone()], &mut self.square[range.clone()]);
                let (one, other) = (&mut one[range.clone()], &other[range]);
                let squares = vectorised(
                    #[inline(always)]
                    || {
                        let squares = dot(p, p);
                        for ((one, other), p) in one.iter_mut().zip(other).zip(p.iter()) {
                            *one += penalty.mul_add(*p, *other);
                        }
                        adam_step(p, mean, square, one, &rates);
                        squares
                    },
                );
                total += f64::from(0.5 * penalty * squares);
            }
        }
        total
    }
}

/// A generator for fold `fold` of the run with `seed`.
pub(super) fn fold_rng(seed: u64, fold: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1 + fold as u64);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gradient against central differences, at random parameters, weights and classes, for both parts of a batch.
    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let (dim, width, count) = (3, 5, 150);
        let mut rng = fold_rng(5, 0);
        let mut network = Classifier::initial(dim, width, &mut rng);
        let values: Vec<f32> = (0..dim * count).map(|_| 2.0 * rng.random::<f32>() - 1.0).collect();
        let class: Vec<f32> = (0..count).map(|i| (i % 2) as f32).collect();
        let weight: Vec<f32> = (0..count).map(|_| 0.5 + rng.random::<f32>()).collect();
        let rows = Labelled { values: &values, class: &class, weight: &weight };
        let which: Vec<u32> = (0..count as u32).collect();
        let shape = network.shape;
        let (scale, size) = (1.0 / count as f32, shape.parameters());
        let (mut one, mut other) = (Part::new(shape), Part::new(shape));
        let mut loss_and_gradient = |network: &Classifier| {
            let mut turned = vec![0.0; width * shape.stride];
            turn(&network.parameters[shape.w2..], shape.stride, width, width, &mut turned, shape.stride);
            network.gradient(&mut one, rows, &which[..FIRST_PART], &turned, scale);
            network.gradient(&mut other, rows, &which[FIRST_PART..], &turned, scale);
            let mut moved = Classifier { shape, parameters: network.parameters.clone() };
            let (gradient, rest) = (&mut one.gradient, &other.gradient);
            let penalty = Adam::new(size).step(&mut moved, gradient, rest, scale, 1);
            (one.loss + other.loss + penalty, one.gradient.clone())
        };
        let gradient = loss_and_gradient(&network).1;
        for i in 0..size {
            let step = 2e-4;
            let old = network.parameters[i];
            network.parameters[i] = old + step;
            let above = loss_and_gradient(&network).0;
            network.parameters[i] = old - step;
            let below = loss_and_gradient(&network).0;
            network.parameters[i] = old;
            let slope = (above - below) / (2.0 * f64::from(step));
            assert!((slope - f64::from(gradient[i])).abs() < 3e-4, "{i}: {slope} {}", gradient[i]);
        }
        let real = dim * width + width + width * width + width + width + 1;
        assert!(gradient.iter().filter(|g| g.abs() > 1e-4).count() > real / 2);
    }
}
