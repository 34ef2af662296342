//! A network that imitates a simulator: y ≈ f(x), learned from pairs by least squares.
//!
//! a₀ = x,   s_l = E_l a_{l−1} + d_l,   a_l = σ(s_l) for l < k,   f(x) = s_k,   σ(s) = s/(1 + e⁻ˢ).
//!
//! Least squares are the likelihood of N(f(x), I), so that the network is trained as a conditional map of its own: its *target*
//! is y, *given* x, z = y − f(x), and the log-determinant is 0. With s̄_k = (f(x) − y)/B for a batch of B rows,
//! s̄_l = σ'(s_l) ⊙ E_{l+1}ᵀ s̄_{l+1}, where σ'(s) = g + σ(s)(1 − g), g = 1/(1 + e⁻ˢ). Layers, and gradients from the s̄_l, are those of an
//! [`Embedding`]; σ needs s_l beside a_l.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::batch::{BLOCK_ENTRIES, batch_by_batch, check_batch};
use super::embed::{Activation, Embedding, EmbeddingPart, Layer};
use super::{ConditionalMap, Constraint, ParameterBlock, TensorSpec, Trainable, reference_density};
use crate::kernel::{Accum, Real, columns, columns_mut, logistic, product, vectorised};
use crate::parallel::{each, each_with};
use crate::{Error, Result};

/// Parameters of a network at most.
const MOST_PARAMETERS: u128 = 1 << 30;

/// Rows that one thread works on at a time.
const SHARD: usize = 64;

/// The network with its weights.
#[derive(Clone, Debug)]
pub(crate) struct Surrogate<T> {
    /// Where everything is; its activation is not used.
    network: Embedding,
    parameters: Vec<T>,
}

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub(crate) struct SurrogateWorkspace<T> {
    rows: usize,
    /// The simulator's outputs, which the network is to hit.
    x: Vec<T>,
    /// Its inputs.
    y: Vec<T>,
    records: Records<T>,
    /// All s̄_l.
    bars: Vec<T>,
    blocks: Vec<ParameterBlock>,
    parts: Vec<EmbeddingPart>,
}

/// All s_l, and all a_l, of some rows.
#[derive(Debug)]
struct Records<T> {
    before: Vec<T>,
    after: Vec<T>,
}

impl<T: Real> Records<T> {
    fn new(rows: usize, stride: usize) -> Self {
        Self { before: vec![T::ZERO; rows * stride], after: vec![T::ZERO; rows * stride] }
    }
}

impl<T: Real> Surrogate<T> {
    /// With hidden layers of the given widths between `inputs` and `outputs` numbers, and random weights.
    pub(crate) fn initial(inputs: usize, widths: &[usize], outputs: usize, seed: u64) -> Result<Self> {
        if inputs == 0 || outputs == 0 {
            return Err(Error::setting("surrogate", "there are no given columns that could be imitated"));
        }
        let widths: Vec<usize> = widths.iter().copied().chain([outputs]).collect();
        if Embedding::count(inputs, &widths) > MOST_PARAMETERS {
            let problem = "the network would have more than 2^30 parameters";
            return Err(Error::setting("surrogate_widths", problem));
        }
        let network = Embedding::new(inputs, &widths, Activation::default(), 0);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut parameters = vec![T::ZERO; network.end().unwrap_or(0)];
        let last = widths.len() - 1;
        for (l, layer) in network.layers().iter().enumerate() {
            // Half of what the others have: the first guess is not far from the mean.
            let gain: f64 = if l == 0 {
                1.0
            } else if l == last {
                0.5
            } else {
                2.0
            };
            let size = (gain / layer.inputs as f64).sqrt();
            let mut draw = |place: &Range<usize>, size: f64| {
                for value in &mut parameters[place.clone()] {
                    *value = T::from_f64(size * rng.sample::<f64, _>(StandardNormal));
                }
            };
            draw(&layer.weight, size);
            // Units of the first layer bend at different places.
            if l == 0 && l < last {
                draw(&layer.bias, 1.0);
            }
        }
        Ok(Self { network, parameters })
    }

    /// All s_l and a_l of `rows` inputs.
    fn evaluate(&self, inputs: &[T], records: (&mut [T], &mut [T]), rows: usize) {
        let (before, after) = records;
        for (l, layer) in self.layers().iter().enumerate() {
            let weight =
                columns(&self.parameters[layer.weight.clone()], layer.outputs, layer.inputs, layer.outputs);
            let input = match l.checked_sub(1) {
                None => columns(inputs, layer.inputs, rows, layer.inputs),
                Some(below) => {
                    columns(&after[self.layers()[below].place..], layer.inputs, rows, self.stride())
                }
            };
            let dst = columns_mut(&mut before[layer.place..], layer.outputs, rows, self.stride());
            product(dst, Accum::Replace, weight, input);
            let bias = &self.parameters[layer.bias.clone()];
            let (place, hidden) = (layer.place..layer.place + layer.outputs, l + 1 < self.layers().len());
            vectorised(
                #[inline(always)]
                || {
                    let both =
                        before.chunks_exact_mut(self.stride()).zip(after.chunks_exact_mut(self.stride()));
                    for (before, after) in both.take(rows) {
                        let (before, after) = (&mut before[place.clone()], &mut after[place.clone()]);
                        for ((s, a), &bias) in before.iter_mut().zip(after).zip(bias) {
                            *s += bias;
                            if hidden {
                                *a = *s * logistic(*s);
                            }
                        }
                    }
                },
            );
        }
    }

    fn layers(&self) -> &[Layer] {
        self.network.layers()
    }

    /// Numbers of all s_l, or all a_l, of a row.
    fn stride(&self) -> usize {
        self.network.stride()
    }

    /// The last layer, whose s are the answers.
    fn last(&self) -> &Layer {
        self.layers().last().expect("at least one layer")
    }

    /// Replaces `outputs` by f(x) or by outputs − f(x), as `combine` says, for rows x of `inputs`.
    fn with_outputs(&self, inputs: &[T], outputs: &mut [T], combine: impl Fn(&mut T, T) + Sync) {
        let (n, m, place) = (self.layers()[0].inputs, self.last().outputs, self.last().place);
        each_with(
            inputs.chunks(SHARD * n).zip(outputs.chunks_mut(SHARD * m)),
            || Records::new(SHARD, self.stride()),
            |records, _, (inputs, outputs)| {
                let rows = outputs.len() / m;
                self.evaluate(inputs, (&mut records.before, &mut records.after), rows);
                let each = outputs.chunks_exact_mut(m).zip(records.before.chunks_exact(self.stride()));
                for (outputs, record) in each {
                    outputs.iter_mut().zip(&record[place..]).for_each(|(out, &own)| combine(out, own));
                }
            },
        );
    }

    /// Adds f(x) of every row x of `inputs` to `outputs`.
    pub(crate) fn add(&self, inputs: &[T], outputs: &mut [T]) {
        self.with_outputs(inputs, outputs, |out, own| *out += own);
    }

    /// Subtracts f(x) of every row x of `inputs` from `outputs`.
    pub(crate) fn subtract(&self, inputs: &[T], outputs: &mut [T]) {
        self.with_outputs(inputs, outputs, |out, own| *out -= own);
    }
}

impl<T: Real> ConditionalMap<T> for Surrogate<T> {
    fn target_dim(&self) -> usize {
        self.last().outputs
    }

    fn given_dim(&self) -> usize {
        self.layers()[0].inputs
    }

    fn parameters(&self) -> &[T] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [T] {
        &mut self.parameters
    }

    fn tensors(&self) -> Vec<TensorSpec> {
        self.network.tensors()
    }

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        check_batch(x, y, self.target_dim(), self.given_dim())?;
        z.copy_from_slice(x);
        self.subtract(y, z);
        log_det.fill(0.0);
        Ok(())
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        self.forward(x, y, gradient, out)?;
        for (out, z) in out.iter_mut().zip(gradient.chunks_exact_mut(self.target_dim())) {
            *out = reference_density(z, 0.0);
            z.iter_mut().for_each(|z| *z = -*z);
        }
        Ok(())
    }
}

impl<T: Real> Trainable<T> for Surrogate<T> {
    type Workspace = SurrogateWorkspace<T>;

    fn workspace(&self, rows: usize) -> SurrogateWorkspace<T> {
        let block = |(range, part, decays): (Range<usize>, EmbeddingPart, bool)| {
            (ParameterBlock { range, rate: 1.0, constraint: Constraint::Free, decays }, part)
        };
        let (blocks, parts) = self.network.parts(BLOCK_ENTRIES).into_iter().map(block).unzip();
        let records = Records::new(rows, self.stride());
        SurrogateWorkspace {
            rows: 0,
            x: vec![T::ZERO; rows * self.target_dim()],
            y: vec![T::ZERO; rows * self.given_dim()],
            bars: records.before.clone(),
            records,
            blocks,
            parts,
        }
    }

    batch_by_batch!(SurrogateWorkspace);

    fn adjoints(&self, workspace: &mut SurrogateWorkspace<T>) -> Result<f64> {
        let (n, m, stride) = (self.given_dim(), self.target_dim(), self.stride());
        let SurrogateWorkspace { rows, x, y, records, bars, .. } = workspace;
        let rows = *rows;
        let weight = T::from_f64(1.0 / rows as f64);
        let mut losses = vec![0.0; rows.div_ceil(SHARD)];
        let shards = records
            .before
            .chunks_mut(SHARD * stride)
            .zip(records.after.chunks_mut(SHARD * stride))
            .zip(bars.chunks_mut(SHARD * stride))
            .zip(x[..rows * m].chunks(SHARD * m).zip(y.chunks(SHARD * n)))
            .zip(&mut losses);
        each(shards, |_, ((((before, after), bars), (wanted, inputs)), loss)| {
            let rows = wanted.len() / m;
            self.evaluate(inputs, (before, after), rows);
            let place = self.last().place;
            let each = before.chunks_exact(stride).zip(bars.chunks_exact_mut(stride));
            for ((before, bars), wanted) in each.zip(wanted.chunks_exact(m)) {
                for ((&got, bar), &wanted) in before[place..].iter().zip(&mut bars[place..]).zip(wanted) {
                    let miss = got - wanted;
                    *loss += 0.5 * miss.to_f64() * miss.to_f64();
                    *bar = weight * miss;
                }
            }
            for pair in self.layers().windows(2).rev() {
                let (lower, upper) = (&pair[0], &pair[1]);
                let weights = columns(
                    &self.parameters[upper.weight.clone()],
                    upper.outputs,
                    upper.inputs,
                    upper.outputs,
                );
                let all = columns_mut(bars, stride, rows, stride);
                let (left, right) = all.split_at_row_mut(upper.place);
                let dst = left.subrows_mut(lower.place, lower.outputs);
                product(dst, Accum::Replace, weights.transpose(), right.as_ref().subrows(0, upper.outputs));
                let place = lower.place..lower.place + lower.outputs;
                vectorised(
                    #[inline(always)]
                    || {
                        let records = before.chunks_exact(stride).zip(after.chunks_exact(stride));
                        for (bars, (before, after)) in bars.chunks_exact_mut(stride).zip(records).take(rows) {
                            let known = before[place.clone()].iter().zip(&after[place.clone()]);
                            for (bar, (&s, &a)) in bars[place.clone()].iter_mut().zip(known) {
                                let g = logistic(s);
                                *bar *= g + a * (T::ONE - g);
                            }
                        }
                    },
                );
            }
        });
        let constant = m as f64 * super::HALF_LOG_TWO_PI;
        Ok(losses.iter().sum::<f64>() / rows as f64 + constant)
    }

    fn loss(&self, workspace: &mut SurrogateWorkspace<T>) -> Result<f64> {
        let m = self.target_dim();
        let SurrogateWorkspace { rows, x, y, .. } = workspace;
        let (rows, n) = (*rows, self.given_dim());
        let misses = &mut x[..rows * m];
        self.subtract(&y[..rows * n], misses);
        Ok(-misses.chunks_exact(m).map(|miss| reference_density(miss, 0.0)).sum::<f64>() / rows as f64)
    }

    fn block_gradient(&self, workspace: &SurrogateWorkspace<T>, index: usize, gradient: &mut [T]) {
        let SurrogateWorkspace { rows, y, records, bars, parts, .. } = workspace;
        self.network.gradient(&parts[index], y, &records.after, bars, *rows, gradient);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count).map(|_| rng.sample(StandardNormal)).collect()
    }

    /// f(x) of one row by plain loops.
    fn plain(network: &Surrogate<f64>, x: &[f64]) -> Vec<f64> {
        let mut a = x.to_vec();
        for (l, layer) in network.layers().iter().enumerate() {
            let s: Vec<f64> = (0..layer.outputs)
                .map(|i| {
                    let weight = |j: usize| network.parameters[layer.weight.start + i + j * layer.outputs];
                    let product: f64 = a.iter().enumerate().map(|(j, a)| weight(j) * a).sum();
                    product + network.parameters[layer.bias.start + i]
                })
                .collect();
            let hidden = l + 1 < network.layers().len();
            a = s.into_iter().map(|s| if hidden { s / (1.0 + (-s).exp()) } else { s }).collect();
        }
        a
    }

    #[test]
    fn outputs_match_plain_loops_at_every_depth() {
        for widths in [&[][..], &[5], &[7, 3, 9]] {
            let mut network = Surrogate::<f64>::initial(3, widths, 4, 1).unwrap();
            let random = numbers(network.parameters.len(), 2);
            network.parameters.copy_from_slice(&random);
            let x = numbers(3 * 150, 3);
            let mut y = vec![0.0; 4 * 150];
            network.add(&x, &mut y);
            for (x, y) in x.chunks_exact(3).zip(y.chunks_exact(4)) {
                let error = plain(&network, x).iter().zip(y).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(error < 1e-12, "{error}");
            }
            network.subtract(&x, &mut y);
            assert!(y.iter().all(|y| *y == 0.0));
        }
        assert!(Surrogate::<f64>::initial(3, &[5], 0, 1).is_err());
        let error = Surrogate::<f64>::initial(3, &[16_384; 20], 4, 1).unwrap_err().to_string();
        assert!(error.contains("surrogate_widths"), "{error}");
    }

    /// The loss along a random direction: what the gradient leaves falls with the square of the step.
    #[test]
    fn the_gradient_is_that_of_the_loss_at_random_parameters() {
        let rows = 100;
        for (seed, widths) in [(1, &[6, 8][..]), (2, &[5]), (3, &[])] {
            let network = Surrogate::<f64>::initial(3, widths, 4, seed).unwrap();
            let count = network.parameters.len();
            let (start, direction) = (numbers(count, 10 + seed), numbers(count, 20 + seed));
            let mut workspace = network.workspace(rows);
            let mut value = |network: &Surrogate<f64>, step: f64| {
                let mut moved = network.clone();
                let along = start.iter().zip(&direction).map(|(a, d)| a + step * d);
                moved.parameters.iter_mut().zip(along).for_each(|(p, a)| *p = a);
                let (x, y) = moved.load(&mut workspace, rows);
                x.copy_from_slice(&numbers(4 * rows, 30));
                y.copy_from_slice(&numbers(3 * rows, 31));
                let with_adjoints = moved.adjoints(&mut workspace).unwrap();
                let slope: f64 = (0..moved.blocks(&workspace).len())
                    .map(|index| {
                        let range = moved.blocks(&workspace)[index].range.clone();
                        let mut gradient = vec![0.0; range.len()];
                        moved.block_gradient(&workspace, index, &mut gradient);
                        gradient.iter().zip(&direction[range]).map(|(g, d)| g * d).sum::<f64>()
                    })
                    .sum();
                let alone = moved.loss(&mut workspace).unwrap();
                assert!((with_adjoints - alone).abs() < 1e-10 * alone.abs());
                (alone, slope)
            };
            let (at, slope) = value(&network, 0.0);
            let rest = |value: f64, step: f64| (value - at - step * slope).abs();
            let (large, small) = (1e-3, 1e-4);
            let rests = [large, small].map(|step| rest(value(&network, step).0, step));
            let order = (rests[0] / rests[1]).ln() / f64::ln(large / small);
            assert!((order - 2.0).abs() < 0.1, "{widths:?}: {order}, {rests:?}");
        }
    }
}
