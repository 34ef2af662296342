//! PCP-Map: z = ∇ₓG(x; y) with G a partially input-convex network.
//!
//! With contexts v₀ = y, v_{k+1} = ELU(Lᵛ_k v_k + bᵛ_k) and features w₀ = x,
//!
//! s_k = A_k (p_k ⊙ w_k) + X_k (q_k ⊙ x) + c_k,   w_{k+1} = softplus(s_k),   A_k ≥ 0,
//!
//! G = a·s_K + ½ b‖x‖² is convex in x for every y, so z = ∇ₓG is the Brenier map of the conditional
//! distribution onto its reference, H = ∇²G is symmetric positive definite, and log det ∂z/∂x is a Cholesky.
//!
//! A front u = L(y)(x − μ(y)) may stand before it (`front.rs`): then G is that potential of u.
//!
//! The reference is Gaussian, or has heavy tails, whose share and exponent are parameters of the map.
//!
//! Without y the network may be fully input-convex ([`Convexity::Full`]): the same formulas with all gates open.

mod adjoint;
mod features;
mod front;
mod gradient;
mod init;
mod inverse;
mod method;
mod shape;
mod step;

pub use init::Initialisation;
pub use inverse::PcpInverter;
pub use method::PcpSettings;
pub use shape::{Convexity, Front, OutputActivation, PcpShape};
pub use step::PcpWorkspace;

use shape::Layout;

use super::batch::{Contexts, EVALUATION_ROWS, check_batch, check_observations, check_parameters, laid_out};
use super::convex::context_records;
use super::{ConditionalMap, Reference, TensorSpec};
use crate::kernel::Real;
use crate::parallel::try_each_with;
use crate::{Error, Result};
use features::Shard;

/// A partially convex potential map with its parameters.
#[derive(Clone, Debug)]
pub struct PcpMap<T> {
    layout: Layout,
    parameters: Vec<T>,
    /// How it started, which decides the step size of the scaled tensors.
    initialisation: Initialisation,
}

impl<T: Real> PcpMap<T> {
    /// A map with the given parameters, in the order of [`ConditionalMap::tensors`]' places; what lies between them,
    /// the zero rows of augmented layers, is made zero.
    pub fn from_parameters(shape: PcpShape, mut parameters: Vec<T>) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        check_parameters("PCP-Map parameters", layout.parameters, parameters.len())?;
        if shape.convexity == Convexity::Augmented {
            let mut kept = vec![T::ZERO; parameters.len()];
            layout.tensors().iter().flat_map(TensorSpec::indices).for_each(|i| kept[i] = parameters[i]);
            parameters = kept;
        }
        Ok(Self { layout, parameters, initialisation: Initialisation::default() })
    }

    /// The network's sizes.
    pub fn shape(&self) -> PcpShape {
        self.layout.shape
    }

    /// The same map in another precision.
    pub fn cast<U: Real>(&self) -> PcpMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        PcpMap { layout: self.layout.clone(), parameters, initialisation: self.initialisation }
    }

    /// The potential G and the Hessian ∇²G (n × n, column-major) of every row.
    pub fn potential_and_hessian(&self, x: &[T], y: &[T]) -> Result<(Vec<T>, Vec<T>)> {
        let n = self.layout.shape.target;
        let rows = self.check_batch(x, y)?;
        let (mut potential, mut hessian) = (vec![T::ZERO; rows], vec![T::ZERO; rows * n * n]);
        let mixture = self.mixture();
        let outputs = potential.chunks_mut(EVALUATION_ROWS).zip(hessian.chunks_mut(EVALUATION_ROWS * n * n));
        self.for_each_shard(x, y, outputs, |shard, contexts, x, (potential, hessian)| {
            for b in 0..potential.len() {
                let outlet = self.outlet(shard.output[b]);
                let inside = if self.has_front() { &shard.u[..] } else { x };
                let square: T = inside[b * n..(b + 1) * n].iter().map(|&x| x * x).sum();
                potential[b] = mixture.a * outlet.value + T::from_f64(0.5) * mixture.b * square;
                let slope = &shard.slope[b * n..(b + 1) * n];
                for j in 0..n {
                    for i in j..n {
                        let bend = outlet.first * shard.hessian[b * n * n + i + j * n];
                        let value = mixture.a * (bend + outlet.second * slope[i] * slope[j])
                            + if i == j { mixture.b } else { T::ZERO };
                        hessian[b * n * n + i + j * n] = value;
                        hessian[b * n * n + j + i * n] = value;
                    }
                }
                if self.has_front() {
                    self.turn_hessian(contexts.row(b), &mut hessian[b * n * n..(b + 1) * n * n]);
                }
            }
            Ok(())
        })?;
        Ok((potential, hessian))
    }

    /// log π(x | y) of every row x, `observation` telling which row of `given` belongs to it.
    ///
    /// Contexts are computed once per observation, so that many x at few y cost a fraction of
    /// [`log_density`](ConditionalMap::log_density).
    pub fn log_density_at(&self, x: &[T], given: &[T], observation: &[u32], out: &mut [f64]) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let observations = check_observations(x, given, observation, out, n, m)?;
        let records = &context_records(self, &given[..observations * m], observations);
        let cost = self.reference().cost(n);
        let most = EVALUATION_ROWS.min(out.len());
        let shards = x.chunks(EVALUATION_ROWS * n).zip(observation.chunks(EVALUATION_ROWS));
        try_each_with(
            shards.zip(out.chunks_mut(EVALUATION_ROWS)),
            || Shard::new(self, most, false),
            |shard, place, ((x, observation), out)| {
                let contexts = Contexts { records, stride, index: Some(observation) };
                self.evaluate(shard, contexts, x, out.len());
                self.check_shard(shard, place * EVALUATION_ROWS)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n, &cost);
                }
                Ok(())
            },
        )
    }

    /// b > 0, the weight of ½‖x‖²: ∇²G ⪰ b I wherever G is evaluated, so the map is one to one for every y; none with a front,
    /// where the bound is b times the smallest eigenvalue of LᵀL, positive for every y.
    pub fn strong_convexity(&self) -> Option<f64> {
        (!self.has_front()).then(|| self.mixture().b.to_f64())
    }

    /// Number of rows, where x and y agree on it.
    fn check_batch(&self, x: &[T], y: &[T]) -> Result<usize> {
        check_batch(x, y, self.layout.shape.target, self.layout.shape.given)
    }

    /// Evaluates all rows in shards side by side and hands each shard and its outputs to `read`.
    fn for_each_shard<O: Send>(
        &self,
        x: &[T],
        y: &[T],
        outputs: impl Iterator<Item = O>,
        read: impl Fn(&mut Shard<T>, Contexts<'_, T>, &[T], O) -> Result<()> + Sync,
    ) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let most = EVALUATION_ROWS.min(x.len() / n);
        let room = || (Shard::new(self, most, false), vec![T::ZERO; stride * most]);
        try_each_with(
            x.chunks(EVALUATION_ROWS * n).zip(outputs),
            room,
            |(shard, records), index, (x, outputs)| {
                let rows = x.len() / n;
                let y = &y[index * EVALUATION_ROWS * m..][..rows * m];
                self.contexts(y, records, rows);
                let contexts = Contexts { records, stride, index: None };
                self.evaluate(shard, contexts, x, rows);
                self.check_shard(shard, index * EVALUATION_ROWS)?;
                read(shard, contexts, x, outputs)
            },
        )
    }

    /// An error naming the first row whose Hessian broke down.
    fn check_shard(&self, shard: &Shard<T>, first_row: usize) -> Result<()> {
        match shard.broken {
            None => Ok(()),
            Some(row) => Err(Error::Numerical(format!(
                "row {}: the Hessian of the potential is not positive definite in floating point \
                 (a value far outside the training data, or weights that diverged)",
                first_row + row + 1
            ))),
        }
    }
}

impl<T: Real> ConditionalMap<T> for PcpMap<T> {
    laid_out!(layout.shape);

    fn reference(&self) -> Reference {
        match self.parameters[self.layout.tail.clone()] {
            [logit, log] => Reference::HeavyTailed {
                share: 1.0 / (1.0 + (-logit.to_f64()).exp()),
                degrees: 1.0 + log.to_f64().exp(),
            },
            _ => Reference::Gaussian,
        }
    }

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        let n = self.layout.shape.target;
        self.check_batch(x, y)?;
        let outputs = z.chunks_mut(EVALUATION_ROWS * n).zip(log_det.chunks_mut(EVALUATION_ROWS));
        self.for_each_shard(x, y, outputs, |shard, _, _, (z, log_det)| {
            z.copy_from_slice(&shard.z[..z.len()]);
            log_det.copy_from_slice(&shard.log_det[..log_det.len()]);
            Ok(())
        })
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        self.check_batch(x, y)?;
        let cost = self.reference().cost(n);
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
                self.contexts(&y[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
                let contexts = Contexts { records, stride, index: None };
                self.evaluate(shard, contexts, x, rows);
                self.check_shard(shard, index * EVALUATION_ROWS)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n, &cost);
                }
                self.pull_back(shard, contexts, x, rows, -1.0, adjoints, Some(gradient));
                Ok(())
            },
        )
    }
}
