//! Adam with decoupled weight decay, projection onto constraints, and a step size per block.

use rayon::join;
use serde::{Deserialize, Serialize};

use crate::kernel::{AdamRates, Real, adam_step, dot, vectorised};
use crate::map::{Constraint, ParameterBlock, Trainable};

/// The constants of Adam.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamSettings {
    /// β₁, the memory of the mean gradient.
    pub beta1: f64,
    /// β₂, the memory of the squared gradient.
    pub beta2: f64,
    /// ε, added to the root of the squared gradient.
    pub epsilon: f64,
    /// Decoupled weight decay λ: weights shrink by η·λ a step; biases and γ do not. `None` leaves it to the method.
    pub weight_decay: Option<f64>,
}

impl Default for AdamSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: None }
    }
}

/// The optimiser's memory: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², θ ← θ − η m̂ / (√v̂ + ε).
#[derive(Clone, Debug)]
pub struct Adam<T> {
    /// The constants.
    pub settings: AdamSettings,
    /// Steps taken.
    pub steps: u64,
    /// First moments.
    pub mean: Vec<T>,
    /// Second moments.
    pub square: Vec<T>,
    gradient: Vec<T>,
    clip: Option<f64>,
}

impl<T: Real> Adam<T> {
    /// A fresh optimiser for `parameters` numbers.
    pub fn new(parameters: usize, settings: AdamSettings) -> Self {
        let zeros = vec![T::ZERO; parameters];
        Self { settings, steps: 0, mean: zeros.clone(), square: zeros.clone(), gradient: zeros, clip: None }
    }

    /// The same with gradients of a norm above `clip` scaled down to it; 0 or `None` for no limit.
    pub fn with_clip(self, clip: Option<f64>) -> Self {
        Self { clip: clip.filter(|&clip| clip > 0.0), ..self }
    }

    /// Changes `map` by one step of size `rate`, from the adjoints in `workspace`.
    pub fn step<M: Trainable<T>>(&mut self, map: &mut M, workspace: &M::Workspace, rate: f64) {
        self.steps += 1;
        let mut parameters = map.take_parameters();
        let blocks = map.blocks(workspace);
        let correction = (1.0 - self.settings.beta2.powf(self.steps as f64)).sqrt();
        let step = rate * correction / (1.0 - self.settings.beta1.powf(self.steps as f64));
        let mut walk = Walk { map, workspace, settings: self.settings, rate, step, correction, shrink: None };
        if let Some(clip) = self.clip {
            let norm = walk.gradient(blocks, 0, &mut self.gradient).sqrt();
            // Not a number if the norm is not: the step then shows as a loss that is not finite.
            walk.shrink = Some(if norm <= clip { 1.0 } else { clip / norm });
        }
        walk.descend(blocks, 0, &mut parameters, &mut self.mean, &mut self.square, &mut self.gradient);
        map.restore_parameters(parameters);
    }
}

struct Walk<'a, T: Real, M: Trainable<T>> {
    map: &'a M,
    workspace: &'a M::Workspace,
    settings: AdamSettings,
    rate: f64,
    step: f64,
    correction: f64,
    /// What the gradients, already computed, are multiplied with; `None` where they are computed on the way.
    shrink: Option<f64>,
}

impl<T: Real, M: Trainable<T>> Walk<'_, T, M> {
    /// Computes the gradient of all blocks and returns the square of its norm, summed in an order that the blocks alone decide.
    fn gradient(&self, blocks: &[ParameterBlock], first: usize, g: &mut [T]) -> f64 {
        if let [_] = blocks {
            self.map.block_gradient(self.workspace, first, g);
            return vectorised(
                #[inline(always)]
                || dot(g, g).to_f64(),
            );
        }
        let (half, cut) = halves(blocks);
        let (g0, g1) = g.split_at_mut(cut);
        let (low, high) = join(
            || self.gradient(&blocks[..half], first, g0),
            || self.gradient(&blocks[half..], first + half, g1),
        );
        low + high
    }

    /// Halves the list of blocks (by entries) until one is left, each half a task of its own.
    fn descend(
        &self,
        blocks: &[ParameterBlock],
        first: usize,
        p: &mut [T],
        m: &mut [T],
        v: &mut [T],
        g: &mut [T],
    ) {
        if let [block] = blocks {
            match self.shrink {
                None => self.map.block_gradient(self.workspace, first, g),
                Some(1.0) => {}
                Some(factor) => {
                    let factor = T::from_f64(factor);
                    g.iter_mut().for_each(|g| *g *= factor);
                }
            }
            let rates = AdamRates {
                beta1: T::from_f64(self.settings.beta1),
                beta2: T::from_f64(self.settings.beta2),
                step: T::from_f64(self.step * block.rate),
                // Scaling a block's parameters by `rate` scales its gradient, and so ε, the other way.
                epsilon: T::from_f64(self.settings.epsilon * self.correction / block.rate),
                keep: T::from_f64(if block.decays {
                    1.0 - self.rate * self.settings.weight_decay.unwrap_or(0.0)
                } else {
                    1.0
                }),
            };
            vectorised(
                #[inline(always)]
                || adam_step(p, m, v, g, &rates),
            );
            match block.constraint {
                Constraint::Free => {}
                Constraint::NonNegative => vectorised(
                    #[inline(always)]
                    || {
                        for value in p {
                            *value = value.at_least(T::ZERO);
                        }
                    },
                ),
                Constraint::Within(bound) => {
                    let bound = T::from_f64(bound);
                    vectorised(
                        #[inline(always)]
                        || {
                            for value in p {
                                let above = if *value < -bound { -bound } else { *value };
                                *value = if above > bound { bound } else { above };
                            }
                        },
                    );
                }
            }
            return;
        }
        let (half, cut) = halves(blocks);
        let ((p0, p1), (m0, m1)) = (p.split_at_mut(cut), m.split_at_mut(cut));
        let ((v0, v1), (g0, g1)) = (v.split_at_mut(cut), g.split_at_mut(cut));
        join(
            || self.descend(&blocks[..half], first, p0, m0, v0, g0),
            || self.descend(&blocks[half..], first + half, p1, m1, v1, g1),
        );
    }
}

/// Where a list of at least two blocks is halved by entries: the number of blocks, and of entries, before the cut.
fn halves(blocks: &[ParameterBlock]) -> (usize, usize) {
    let (start, end) = (blocks[0].range.start, blocks[blocks.len() - 1].range.end);
    let middle = start + (end - start) / 2;
    let half = blocks.partition_point(|block| block.range.end <= middle).clamp(1, blocks.len() - 1);
    (half, blocks[half].range.start - start)
}
