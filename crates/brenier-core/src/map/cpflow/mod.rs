//! Amortised CP-Flow: z = AN(∇ₓF(AN(x); y)) with F a partially input-convex network and AN activation normalisations.
//!
//! With one context c = ELU(AN_c(By + b)) for all layers, ψ the Gaussian softplus, gates p_k > 0 and q_k that are affine in c,
//!
//! w ← ψ(AN_k(P_k(p_k ⊙ w) + X_k(q_k ⊙ x) + …)),   F = a N(x, y) + ½ b‖x‖²,   P_k positive by softplus,
//!
//! F is strongly convex in x. The map is the gradient of a convex function in scaled coordinates, and its log-determinant
//! is Σ log α over both normalisations plus log det ∇²F, a Cholesky as in a PCP-Map. Several such blocks may follow each
//! other; their composition is one to one, but no longer a gradient.

mod adjoint;
mod features;
mod gradient;
mod init;
mod inverse;
mod method;
mod shape;
mod step;
mod stochastic;
mod weights;

pub use inverse::CpFlowInverter;
pub use method::CpFlowSettings;
pub use shape::CpFlowShape;
pub use step::CpFlowWorkspace;

use serde::{Deserialize, Serialize};

use super::batch::{Contexts, EVALUATION_ROWS, check_batch, check_observations, check_parameters, laid_out};
use super::{ConditionalMap, reference_density};
use crate::kernel::Real;
use crate::parallel::{each, try_each_with};
use crate::{Error, Result};
use features::{Pass, Scratch};
use shape::Layout;
use weights::{Effective, Normal};

/// How the training loss has log det ∇²F; densities have it exactly either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LogDet {
    /// From the Cholesky factor.
    #[default]
    Exact,
    /// Estimated with one random probe a row, as in the original program.
    Stochastic,
}

/// An amortised convex potential flow with its parameters.
#[derive(Clone, Debug)]
pub struct CpFlowMap<T> {
    layout: Layout,
    parameters: Vec<T>,
    /// What training uses.
    log_det: LogDet,
}

/// Everything a fixed number of rows needs, sized once; each row's numbers depend on no other row.
#[derive(Debug)]
struct Shard<T> {
    passes: Vec<Pass<T>>,
    scratch: Scratch<T>,
    /// z of each row.
    z: Vec<T>,
    /// log |det ∂z/∂x| of each row.
    log_det: Vec<f64>,
    /// Adjoint that travels from z back to x.
    bar: Vec<T>,
    /// Adjoints of the shifts of the outer normalisations, and the factors times their adjoints.
    outer: Vec<[Vec<T>; 2]>,
    /// Sum of the rows' losses.
    loss: f64,
}

impl<T: Real> Shard<T> {
    fn new(map: &CpFlowMap<T>, rows: usize, with_adjoints: bool) -> Self {
        let (n, blocks) = (map.layout.shape.target, map.layout.shape.blocks);
        Self {
            passes: (0..blocks).map(|_| Pass::new(map, rows, with_adjoints)).collect(),
            scratch: Scratch::new(map, rows, with_adjoints),
            z: vec![T::ZERO; n * rows],
            log_det: vec![0.0; rows],
            bar: vec![T::ZERO; n * rows],
            outer: (0..=blocks).map(|_| [vec![T::ZERO; n], vec![T::ZERO; n]]).collect(),
            loss: 0.0,
        }
    }

    /// −log π(x | y) of row b.
    fn row_loss(&self, b: usize, n: usize) -> f64 {
        -reference_density(&self.z[b * n..(b + 1) * n], self.log_det[b])
    }
}

impl<T: Real> CpFlowMap<T> {
    /// A map with the given parameters, in the order of [`ConditionalMap::tensors`]' places.
    pub fn from_parameters(shape: CpFlowShape, parameters: Vec<T>) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        check_parameters("CP-Flow parameters", layout.parameters, parameters.len())?;
        Ok(Self { layout, parameters, log_det: LogDet::Exact })
    }

    /// The same map, trained with another log-determinant.
    pub fn with_log_det(mut self, log_det: LogDet) -> Self {
        self.log_det = log_det;
        self
    }

    /// The network's sizes.
    pub fn shape(&self) -> CpFlowShape {
        self.layout.shape
    }

    /// The same map in another precision.
    pub fn cast<U: Real>(&self) -> CpFlowMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        CpFlowMap { layout: self.layout.clone(), parameters, log_det: self.log_det }
    }

    /// Records of `cols` observations y, for all blocks.
    fn contexts(&self, weights: &Effective<T>, y: &[T], records: &mut [T], cols: usize) {
        for (index, weights) in weights.blocks.iter().enumerate() {
            self.open_contexts(index, y, records, cols);
            self.close_contexts(index, weights, records, cols);
        }
    }

    /// The parts of the records that belong to block `index`.
    fn parts<'a>(&self, contexts: Contexts<'a, T>, index: usize) -> Parts<'a, T> {
        Parts { contexts, start: index * self.layout.part, length: self.layout.part }
    }

    /// z and log |det ∂z/∂x| of the rows, whose contexts are at hand.
    fn run_shard(
        &self,
        shard: &mut Shard<T>,
        weights: &Effective<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
    ) {
        let n = self.layout.shape.target;
        let constant: f64 = weights.outer.iter().map(Normal::log_det).sum();
        let Shard { passes, scratch, z, log_det, .. } = shard;
        log_det[..rows].fill(constant);
        for (index, block) in weights.blocks.iter().enumerate() {
            let (before, here) = passes.split_at_mut(index);
            let pass = &mut here[0];
            let input = before.last().map_or(x, |before| &before.gradient);
            weights.outer[index].apply(&input[..rows * n], &mut pass.x[..rows * n]);
            self.evaluate(pass, block, scratch, self.parts(contexts, index), rows);
            for (log_det, own) in log_det.iter_mut().zip(&pass.log_det[..rows]) {
                *log_det += own;
            }
        }
        let last = passes.len();
        weights.outer[last].apply(&passes[last - 1].gradient[..rows * n], &mut z[..rows * n]);
    }

    /// Adjoint of `weight` times the sum of the rows' losses after [`run_shard`](Self::run_shard); that of x ends up in `bar`.
    fn pull_back(
        &self,
        shard: &mut Shard<T>,
        weights: &Effective<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
        weight: f64,
        adjoints: &mut [T],
    ) {
        let n = self.layout.shape.target;
        let Shard { passes, scratch, z, bar, outer, .. } = shard;
        let factor = T::from_f64(weight);
        for (bar, &z) in bar[..rows * n].iter_mut().zip(z.iter()) {
            *bar = factor * z;
        }
        for index in (0..=passes.len()).rev() {
            let (before, norm) = (&mut passes[..index], &weights.outer[index]);
            let input = before.last().map_or(x, |before| &before.gradient);
            norm.pull_back(&input[..rows * n], &mut bar[..rows * n], &mut outer[index]);
            if let Some(pass) = before.last_mut() {
                let parts = self.parts(contexts, index - 1);
                let block = &weights.blocks[index - 1];
                self.pull_back_potential(pass, block, scratch, parts, rows, weight, bar, adjoints);
            }
        }
    }

    /// An error naming the first row whose Hessian broke down.
    fn check_shard(&self, shard: &Shard<T>, first_row: usize) -> Result<()> {
        match shard.passes.iter().filter_map(|pass| pass.broken).min() {
            None => Ok(()),
            Some(row) => Err(Error::Numerical(format!(
                "row {}: the Hessian of the potential is not positive definite in floating point \
                 (a value far outside the training data, or weights that diverged)",
                first_row + row + 1
            ))),
        }
    }

    /// Evaluates all rows in shards side by side and hands each shard and its outputs to `read`.
    fn for_each_shard<O: Send>(
        &self,
        x: &[T],
        y: &[T],
        outputs: impl Iterator<Item = O>,
        read: impl Fn(&mut Shard<T>, O) -> Result<()> + Sync,
    ) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        check_batch(x, y, n, m)?;
        let weights = &self.weights();
        let most = EVALUATION_ROWS.min(x.len() / n);
        let room = || (Shard::new(self, most, false), vec![T::ZERO; stride * most]);
        try_each_with(
            x.chunks(EVALUATION_ROWS * n).zip(outputs),
            room,
            |(shard, records), index, (x, outputs)| {
                let rows = x.len() / n;
                self.contexts(weights, &y[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
                self.run_shard(shard, weights, Contexts { records, stride, index: None }, x, rows);
                self.check_shard(shard, index * EVALUATION_ROWS)?;
                read(shard, outputs)
            },
        )
    }

    /// The potential F and its Hessian (n × n, column-major) at the points where every row enters the last block.
    pub fn potential_and_hessian(&self, x: &[T], y: &[T]) -> Result<(Vec<f64>, Vec<f64>)> {
        let n = self.layout.shape.target;
        let rows = x.len() / n;
        let (mut potential, mut hessian) = (vec![0.0; rows], vec![0.0; rows * n * n]);
        let outputs = potential.chunks_mut(EVALUATION_ROWS).zip(hessian.chunks_mut(EVALUATION_ROWS * n * n));
        let weights = self.weights();
        self.for_each_shard(x, y, outputs, |shard, (potential, hessian)| {
            let (Some(pass), Some(block)) = (shard.passes.last(), weights.blocks.last()) else {
                return Ok(());
            };
            for (b, potential) in potential.iter_mut().enumerate() {
                *potential = self.value(pass, block, b).0;
                for j in 0..n {
                    for i in j..n {
                        let quadratic = if i == j { block.b.to_f64() } else { 0.0 };
                        let place = b * n * n;
                        let value = block.a.to_f64() * pass.hessian[place + i + j * n].to_f64() + quadratic;
                        hessian[place + i + j * n] = value;
                        hessian[place + j + i * n] = value;
                    }
                }
            }
            Ok(())
        })?;
        Ok((potential, hessian))
    }

    /// log π(x | y) of every row x, `observation` telling which row of `given` belongs to it; contexts are computed once per
    /// observation.
    pub fn log_density_at(&self, x: &[T], given: &[T], observation: &[u32], out: &mut [f64]) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let observations = check_observations(x, given, observation, out, n, m)?;
        let weights = &self.weights();
        let mut records = vec![T::ZERO; observations * stride];
        each(records.chunks_mut(EVALUATION_ROWS * stride), |index, records| {
            let count = records.len() / stride;
            self.contexts(weights, &given[index * EVALUATION_ROWS * m..][..count * m], records, count);
        });
        let most = EVALUATION_ROWS.min(out.len());
        let shards = x.chunks(EVALUATION_ROWS * n).zip(observation.chunks(EVALUATION_ROWS));
        try_each_with(
            shards.zip(out.chunks_mut(EVALUATION_ROWS)),
            || Shard::new(self, most, false),
            |shard, place, ((x, observation), out)| {
                let contexts = Contexts { records: &records, stride, index: Some(observation) };
                self.run_shard(shard, weights, contexts, x, out.len());
                self.check_shard(shard, place * EVALUATION_ROWS)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n);
                }
                Ok(())
            },
        )
    }
}

/// One block's parts of the records.
#[derive(Clone, Copy)]
struct Parts<'a, T> {
    contexts: Contexts<'a, T>,
    start: usize,
    length: usize,
}

impl<'a, T> Parts<'a, T> {
    #[inline(always)]
    fn row(&self, b: usize) -> &'a [T] {
        &self.contexts.row(b)[self.start..self.start + self.length]
    }
}

impl<T: Real> ConditionalMap<T> for CpFlowMap<T> {
    laid_out!(layout.shape);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        let n = self.layout.shape.target;
        let outputs = z.chunks_mut(EVALUATION_ROWS * n).zip(log_det.chunks_mut(EVALUATION_ROWS));
        self.for_each_shard(x, y, outputs, |shard, (z, log_det)| {
            z.copy_from_slice(&shard.z[..z.len()]);
            log_det.copy_from_slice(&shard.log_det[..log_det.len()]);
            Ok(())
        })
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        check_batch(x, y, n, m)?;
        let weights = &self.weights();
        let most = EVALUATION_ROWS.min(out.len());
        let room = || {
            let records = || vec![T::ZERO; stride * most];
            (Shard::new(self, most, true), records(), records())
        };
        let outputs = out.chunks_mut(EVALUATION_ROWS).zip(gradient.chunks_mut(EVALUATION_ROWS * n));
        try_each_with(
            x.chunks(EVALUATION_ROWS * n).zip(outputs),
            room,
            |(shard, records, adjoints), index, (x, (out, gradient))| {
                let rows = out.len();
                self.contexts(weights, &y[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
                let contexts = Contexts { records, stride, index: None };
                self.run_shard(shard, weights, contexts, x, rows);
                self.check_shard(shard, index * EVALUATION_ROWS)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n);
                }
                self.pull_back(shard, weights, contexts, x, rows, -1.0, adjoints);
                gradient.copy_from_slice(&shard.bar[..rows * n]);
                Ok(())
            },
        )
    }
}
