//! A small network that tells two classes apart: two hidden layers of rectifiers, logistic output, Adam.
//!
//! h₁ = ReLU(W₁x + b₁), h₂ = ReLU(W₂h₁ + b₂), o = w₃ᵀh₂ + b₃, P(class 1 | x) = 1/(1 + e⁻ᵒ). The loss of a batch of
//! B rows with weights ωᵢ of mean one is Σ ωᵢ (softplus(oᵢ) − tᵢ oᵢ)/B + α ‖W‖²/(2B). Sizes, start, optimiser and
//! stopping rule are those of scikit-learn's `MLPClassifier` with its defaults.

use crate::kernel::Accum;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::kernel::{AdamRates, adam_step, columns, columns_mut, logistic, product, softplus, vectorised};
use crate::statistics::random::shuffled;

const LEARNING_RATE: f64 = 1e-3;
const PENALTY: f32 = 1e-4;
const BATCH: usize = 200;
/// An epoch must lower the best loss by this to count as progress …
const TOLERANCE: f64 = 1e-4;
/// … and more epochs in a row than this without it end the training.
const PATIENCE: u32 = 10;

/// Rows to learn from or to judge: `dim` numbers, a class and a weight each.
#[derive(Clone, Copy)]
pub(super) struct Labelled<'a> {
    pub values: &'a [f32],
    pub class: &'a [f32],
    pub weight: &'a [f32],
}

/// The network's parameters: W₁, b₁, W₂, b₂, w₃, b₃, matrices by columns.
pub(super) struct Classifier {
    dim: usize,
    width: usize,
    parameters: Vec<f32>,
}

/// Layers of one batch, a column for each row.
struct Batch {
    x: Vec<f32>,
    class: Vec<f32>,
    weight: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    output: Vec<f32>,
    first_bar: Vec<f32>,
    second_bar: Vec<f32>,
}

impl Batch {
    fn new(dim: usize, width: usize) -> Self {
        let zeros = |height: usize| vec![0.0; height * BATCH];
        Self {
            x: zeros(dim),
            class: zeros(1),
            weight: zeros(1),
            first: zeros(width),
            second: zeros(width),
            output: zeros(1),
            first_bar: zeros(width),
            second_bar: zeros(width),
        }
    }

    fn load(&mut self, rows: Labelled<'_>, which: &[u32], dim: usize) {
        for (place, &row) in which.iter().enumerate() {
            let row = row as usize;
            self.x[place * dim..][..dim].copy_from_slice(&rows.values[row * dim..][..dim]);
            self.class[place] = rows.class[row];
            self.weight[place] = rows.weight[row];
        }
    }
}

/// Where each tensor begins, and the length of all.
struct Places {
    b1: usize,
    w2: usize,
    b2: usize,
    w3: usize,
    b3: usize,
    end: usize,
}

impl Classifier {
    fn places(dim: usize, width: usize) -> Places {
        let b1 = dim * width;
        let w2 = b1 + width;
        let b2 = w2 + width * width;
        let w3 = b2 + width;
        let b3 = w3 + width;
        Places { b1, w2, b2, w3, b3, end: b3 + 1 }
    }

    /// Glorot's start: every entry uniform within √(6 / (inputs + outputs)) of zero.
    fn initial(dim: usize, width: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut parameters = Vec::with_capacity(Self::places(dim, width).end);
        for (inputs, outputs) in [(dim, width), (width, width), (width, 1)] {
            let bound = (6.0 / (inputs + outputs) as f64).sqrt();
            for _ in 0..(inputs + 1) * outputs {
                parameters.push((bound * (2.0 * rng.random::<f64>() - 1.0)) as f32);
            }
        }
        Self { dim, width, parameters }
    }

    /// Trains on `rows` of `dim` columns with hidden layers of `width`; returns the network and the epochs taken.
    pub(super) fn train(
        rows: Labelled<'_>,
        dim: usize,
        width: usize,
        max_epochs: u32,
        mut rng: ChaCha8Rng,
    ) -> (Self, u32) {
        let count = rows.class.len();
        let mut network = Self::initial(dim, width, &mut rng);
        let size = network.parameters.len();
        let (mut mean, mut square, mut gradient) = (vec![0.0; size], vec![0.0; size], vec![0.0; size]);
        let mut batch = Batch::new(dim, width);
        let (mut best, mut idle, mut steps, mut epochs) = (f64::INFINITY, 0, 0, 0);
        while epochs < max_epochs && idle <= PATIENCE {
            epochs += 1;
            let mut loss = 0.0;
            for which in shuffled(count, &mut rng).chunks(BATCH) {
                batch.load(rows, which, dim);
                loss += network.gradient(&mut batch, which.len(), &mut gradient) * which.len() as f64;
                steps += 1;
                let correction = (1.0 - 0.999_f64.powi(steps)).sqrt() / (1.0 - 0.9_f64.powi(steps));
                let rates = AdamRates {
                    beta1: 0.9,
                    beta2: 0.999,
                    step: (LEARNING_RATE * correction) as f32,
                    epsilon: 1e-8,
                    keep: 1.0,
                };
                vectorised(
                    #[inline(always)]
                    || adam_step(&mut network.parameters, &mut mean, &mut square, &gradient, &rates),
                );
            }
            loss /= count as f64;
            idle = if loss > best - TOLERANCE { idle + 1 } else { 0 };
            best = best.min(loss);
        }
        (network, epochs)
    }

    /// o for the first `count` columns of the batch.
    fn forward(&self, batch: &mut Batch, count: usize) {
        let (dim, width, at) = (self.dim, self.width, Self::places(self.dim, self.width));
        let p = &self.parameters;
        let layer = |weights: &[f32], bias: &[f32], input: &[f32], inputs: usize, output: &mut [f32]| {
            product(
                columns_mut(output, width, count, width),
                Accum::Replace,
                columns(weights, width, inputs, width),
                columns(input, inputs, count, inputs),
            );
            vectorised(
                #[inline(always)]
                || {
                    for column in output[..count * width].chunks_exact_mut(width) {
                        for (value, bias) in column.iter_mut().zip(bias) {
                            *value = (*value + bias).max(0.0);
                        }
                    }
                },
            );
        };
        layer(p, &p[at.b1..at.w2], &batch.x, dim, &mut batch.first);
        layer(&p[at.w2..], &p[at.b2..at.w3], &batch.first, width, &mut batch.second);
        product(
            columns_mut(&mut batch.output, 1, count, 1),
            Accum::Replace,
            columns(&p[at.w3..], 1, width, 1),
            columns(&batch.second, width, count, width),
        );
        batch.output[..count].iter_mut().for_each(|o| *o += p[at.b3]);
    }

    /// The loss of the first `count` columns, and its gradient.
    fn gradient(&self, batch: &mut Batch, count: usize, gradient: &mut [f32]) -> f64 {
        self.forward(batch, count);
        let (dim, width, at) = (self.dim, self.width, Self::places(self.dim, self.width));
        let p = &self.parameters;
        let inverse = 1.0 / count as f32;
        let mut loss = 0.0;
        for i in 0..count {
            let (o, class, weight) = (batch.output[i], batch.class[i], batch.weight[i]);
            loss += f64::from(weight * (softplus(o).0 - class * o) * inverse);
            batch.output[i] = weight * (logistic(o) - class) * inverse;
        }
        let delta = &batch.output[..count];
        gradient[at.b3] = delta.iter().sum();
        product(
            columns_mut(&mut gradient[at.w3..at.b3], width, 1, width),
            Accum::Replace,
            columns(&batch.second, width, count, width),
            columns(delta, count, 1, count),
        );
        // w₃ δᵀ, where the unit was on.
        for ((bar, value), delta) in
            batch.second_bar.chunks_exact_mut(width).zip(batch.second.chunks_exact(width)).zip(delta)
        {
            for ((bar, value), weight) in bar.iter_mut().zip(value).zip(&p[at.w3..at.b3]) {
                *bar = if *value > 0.0 { weight * delta } else { 0.0 };
            }
        }
        let inward = |bar: &[f32], input: &[f32], inputs: usize, weights: &mut [f32]| {
            product(
                columns_mut(weights, width, inputs, width),
                Accum::Replace,
                columns(bar, width, count, width),
                columns(input, inputs, count, inputs).transpose(),
            );
        };
        let sums = |bar: &[f32], bias: &mut [f32]| {
            bias.fill(0.0);
            for column in bar[..count * width].chunks_exact(width) {
                bias.iter_mut().zip(column).for_each(|(bias, bar)| *bias += bar);
            }
        };
        inward(&batch.second_bar, &batch.first, width, &mut gradient[at.w2..at.b2]);
        sums(&batch.second_bar, &mut gradient[at.b2..at.w3]);
        product(
            columns_mut(&mut batch.first_bar, width, count, width),
            Accum::Replace,
            columns(&p[at.w2..], width, width, width).transpose(),
            columns(&batch.second_bar, width, count, width),
        );
        for (bar, value) in batch.first_bar[..count * width].iter_mut().zip(&batch.first) {
            *bar = if *value > 0.0 { *bar } else { 0.0 };
        }
        inward(&batch.first_bar, &batch.x, dim, &mut gradient[..at.b1]);
        sums(&batch.first_bar, &mut gradient[at.b1..at.w2]);
        for range in [0..at.b1, at.w2..at.b2, at.w3..at.b3] {
            let mut squares = 0.0;
            for (gradient, weight) in gradient[range.clone()].iter_mut().zip(&p[range]) {
                *gradient += PENALTY * inverse * weight;
                squares += weight * weight;
            }
            loss += f64::from(0.5 * PENALTY * inverse * squares);
        }
        loss
    }

    /// Whether each row is taken for class 1.
    pub(super) fn predict(&self, rows: Labelled<'_>) -> Vec<bool> {
        let mut batch = Batch::new(self.dim, self.width);
        let all: Vec<u32> = (0..rows.class.len() as u32).collect();
        let mut answers = Vec::with_capacity(all.len());
        for which in all.chunks(BATCH) {
            batch.load(rows, which, self.dim);
            self.forward(&mut batch, which.len());
            answers.extend(batch.output[..which.len()].iter().map(|&o| o > 0.0));
        }
        answers
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

    /// The gradient against central differences, at random parameters, weights and classes.
    #[test]
    fn the_gradient_is_that_of_the_loss() {
        let (dim, width, count) = (3, 5, 7);
        let mut rng = fold_rng(5, 0);
        let mut network = Classifier::initial(dim, width, &mut rng);
        let mut batch = Batch::new(dim, width);
        batch.x[..dim * count].iter_mut().for_each(|x| *x = 2.0 * rng.random::<f32>() - 1.0);
        for i in 0..count {
            batch.class[i] = (i % 2) as f32;
            batch.weight[i] = 0.5 + rng.random::<f32>();
        }
        let size = network.parameters.len();
        let (mut gradient, mut unused) = (vec![0.0; size], vec![0.0; size]);
        network.gradient(&mut batch, count, &mut gradient);
        for i in 0..size {
            let step = 1e-2;
            let old = network.parameters[i];
            network.parameters[i] = old + step;
            let above = network.gradient(&mut batch, count, &mut unused);
            network.parameters[i] = old - step;
            let below = network.gradient(&mut batch, count, &mut unused);
            network.parameters[i] = old;
            let slope = (above - below) / (2.0 * f64::from(step));
            assert!((slope - f64::from(gradient[i])).abs() < 2e-3, "{i}: {slope} {}", gradient[i]);
        }
        assert!(gradient.iter().filter(|g| g.abs() > 1e-4).count() > size / 2);
    }
}
