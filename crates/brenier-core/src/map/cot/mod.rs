//! COT-Flow: z = x(1) of dx/dt = −∇ₓΦ(t, x; y), x(0) = x, with Φ a residual network plus a quadratic.
//!
//! With q = (t, x, e), e = y or an embedding of it (tanh layers trained with the rest), h = 1/L and σ = log(2 cosh),
//!
//! Φ = aᵀu_L + ½‖Aᵀq‖² + bᵀq + c,   u₀ = σ(A₀q + b₀),   u_i = u_{i−1} + hσ(A_i u_{i−1} + b_i),
//!
//! and along a trajectory log det ∂x(t)/∂x(0) grows by −ΔₓΦ. Training minimises
//!
//! E\[½‖x(1)‖² + (n/2) log 2π − ℓ(1)\] + α₁ E\[∫½‖∇ₓΦ‖²\] + α₂ E\[∫|−∂ₜΦ + ½‖∇ₓΦ‖²|\],
//!
//! whose last two terms, the transport cost and the violation of the Hamilton–Jacobi–Bellman equation, make the
//! trajectories straight and the map optimal. Cheap steps of flow matching may come first (`warm.rs`).

mod adjoint;
mod flow;
mod init;
mod inverse;
mod method;
mod potential;
mod shape;
mod step;
mod warm;

pub use method::{Flow, FlowSettings};
pub use shape::CotShape;
pub use step::CotWorkspace;

use serde::{Deserialize, Serialize};

use super::batch::{
    Contexts, EVALUATION_ROWS, check_batch, check_observations, check_outputs, check_parameters, laid_out,
};
use super::ode::{Journey, broken_trajectory, check_steps};
use super::{ConditionalMap, FlowCosts};
use crate::kernel::Real;
use crate::parallel::{each, try_each_with};
use crate::{Error, Result};
use flow::{Objective, Shard, Track};
use potential::Wanted;
use shape::Layout;

/// How the flow is integrated and what training adds to the likelihood.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CotSettings {
    /// n_t, the Runge–Kutta steps of a training step.
    pub time_steps: usize,
    /// The Runge–Kutta steps of validation losses, densities and the way from x to z.
    pub evaluation_steps: usize,
    /// α₁, the weight of the transport cost beside the mean negative log-likelihood.
    pub alpha_transport: f64,
    /// α₂, the weight of the Hamilton–Jacobi–Bellman penalty.
    pub alpha_hjb: f64,
    /// Bytes that a training workspace may spend to keep activations; beyond, they are computed again in the
    /// reverse pass. The gradient is the same.
    pub activation_bytes: usize,
    /// Steps of flow matching at the start of a training, before those of the likelihood.
    pub warm_steps: u64,
}

impl Default for CotSettings {
    fn default() -> Self {
        Self {
            time_steps: 8,
            evaluation_steps: 32,
            alpha_transport: 0.01,
            alpha_hjb: 0.1,
            activation_bytes: 256 << 20,
            warm_steps: 0,
        }
    }
}

impl CotSettings {
    /// (α₁, α₂) from the weights of the authors' programs, which minimise transport + α_C·NLL + α_R·HJB:
    /// α₁ = 1/α_C, α₂ = α_R/α_C.
    pub fn from_authors(alpha_c: f64, alpha_r: f64) -> (f64, f64) {
        (1.0 / alpha_c, alpha_r / alpha_c)
    }

    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        check_steps("time_steps", self.time_steps)?;
        check_steps("evaluation_steps", self.evaluation_steps)?;
        for (name, value) in [("alpha_transport", self.alpha_transport), ("alpha_hjb", self.alpha_hjb)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::setting(name, format!("{value} is not a number of at least 0")));
            }
        }
        Ok(())
    }
}

/// A conditional optimal-transport flow with its parameters.
#[derive(Clone, Debug)]
pub struct CotMap<T> {
    layout: Layout,
    parameters: Vec<T>,
    settings: CotSettings,
}

impl<T: Real> CotMap<T> {
    /// A map with the given parameters, in the order of [`ConditionalMap::tensors`]' places.
    pub fn from_parameters(shape: CotShape, settings: CotSettings, parameters: Vec<T>) -> Result<Self> {
        shape.validate()?;
        settings.validate()?;
        let layout = Layout::new(shape);
        check_parameters("COT-Flow parameters", layout.parameters, parameters.len())?;
        Ok(Self { layout, parameters, settings })
    }

    /// The potential's sizes.
    pub fn shape(&self) -> CotShape {
        self.layout.shape.clone()
    }

    /// How the flow is integrated.
    pub fn settings(&self) -> CotSettings {
        self.settings
    }

    /// The same map, integrated otherwise. A workspace made before keeps its size.
    pub fn with_settings(mut self, settings: CotSettings) -> Result<Self> {
        settings.validate()?;
        self.settings = settings;
        Ok(self)
    }

    /// The same map in another precision.
    pub fn cast<U: Real>(&self) -> CotMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        CotMap { layout: self.layout.clone(), parameters, settings: self.settings }
    }

    /// As [`forward`](ConditionalMap::forward) in `steps` steps, with the costs of every trajectory.
    pub fn forward_with_costs(
        &self,
        x: &[T],
        y: &[T],
        steps: usize,
        z: &mut [T],
        log_det: &mut [f64],
    ) -> Result<FlowCosts> {
        check_steps("steps", steps)?;
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let rows = self.check_batch(x, y)?;
        check_outputs(rows, n, z.len(), log_det.len())?;
        let mut costs = FlowCosts { transport: vec![0.0; rows], hjb: vec![0.0; rows] };
        let frame = self.frame();
        let outputs = z
            .chunks_mut(EVALUATION_ROWS * n)
            .zip(log_det.chunks_mut(EVALUATION_ROWS))
            .zip(costs.transport.chunks_mut(EVALUATION_ROWS))
            .zip(costs.hjb.chunks_mut(EVALUATION_ROWS));
        try_each_with(
            x.chunks(EVALUATION_ROWS * n).zip(outputs),
            || {
                let track = Track::new(self, EVALUATION_ROWS, Wanted::Laplacian, 0);
                (track, Shard::new(self, EVALUATION_ROWS), vec![T::ZERO; EVALUATION_ROWS * stride])
            },
            |(track, shard, records), index, (x, (((z, log_det), transport), hjb))| {
                let rows = log_det.len();
                self.contexts(&y[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
                let contexts = Contexts { records, stride, index: None };
                shard.x[..rows * n].copy_from_slice(x);
                self.integrate(&frame, track, shard, contexts, rows, Journey::to_reference(steps), false);
                self.check_shard(shard, rows, index * EVALUATION_ROWS)?;
                z.copy_from_slice(&shard.x[..rows * n]);
                log_det.copy_from_slice(&shard.log_det[..rows]);
                transport.copy_from_slice(&shard.transport[..rows]);
                hjb.copy_from_slice(&shard.hjb[..rows]);
                Ok(())
            },
        )?;
        Ok(costs)
    }

    /// log π(x | y) of every row x in `steps` steps, `observation` telling which row of `given` belongs to it.
    pub fn log_density_at(
        &self,
        x: &[T],
        given: &[T],
        observation: &[u32],
        steps: usize,
        out: &mut [f64],
    ) -> Result<()> {
        check_steps("steps", steps)?;
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let observations = check_observations(x, given, observation, out, n, m)?;
        let records = &self.context_records(&given[..observations * m], observations);
        let frame = self.frame();
        let shards = x.chunks(EVALUATION_ROWS * n).zip(observation.chunks(EVALUATION_ROWS));
        try_each_with(
            shards.zip(out.chunks_mut(EVALUATION_ROWS)),
            || {
                let track = Track::new(self, EVALUATION_ROWS, Wanted::Laplacian, 0);
                (track, Shard::new(self, EVALUATION_ROWS))
            },
            |(track, shard), place, ((x, observation), out)| {
                let rows = out.len();
                let contexts = Contexts { records, stride, index: Some(observation) };
                shard.x[..rows * n].copy_from_slice(x);
                self.integrate(&frame, track, shard, contexts, rows, Journey::to_reference(steps), false);
                self.check_shard(shard, rows, place * EVALUATION_ROWS)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n);
                }
                Ok(())
            },
        )
    }

    /// Context records of many observations.
    fn context_records(&self, given: &[T], observations: usize) -> Vec<T> {
        let (m, stride) = (self.layout.shape.given, self.layout.record);
        let mut records = vec![T::ZERO; observations * stride];
        each(records.chunks_mut(EVALUATION_ROWS * stride), |index, records| {
            let rows = records.len() / stride;
            self.contexts(&given[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
        });
        records
    }

    /// Number of rows, where x and y agree on it.
    fn check_batch(&self, x: &[T], y: &[T]) -> Result<usize> {
        check_batch(x, y, self.layout.shape.target, self.layout.shape.given)
    }

    /// An error naming the first row whose trajectory left the finite numbers.
    fn check_shard(&self, shard: &Shard<T>, rows: usize, first_row: usize) -> Result<()> {
        let broken = shard.broken(rows, self.layout.shape.target);
        broken.map_or(Ok(()), |row| Err(broken_trajectory(first_row + row)))
    }
}

impl<T: Real> ConditionalMap<T> for CotMap<T> {
    laid_out!(layout.shape);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        self.forward_with_costs(x, y, self.settings.evaluation_steps, z, log_det).map(|_| ())
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let rows = self.check_batch(x, y)?;
        check_outputs(rows, n, gradient.len(), out.len())?;
        let steps = self.settings.evaluation_steps;
        let (journey, frame) = (Journey::to_reference(steps), self.frame());
        let objective = Objective { weight: -1.0, transport: 0.0, hjb: 0.0 };
        let shard_rows = EVALUATION_ROWS.min(rows.max(1));
        let outputs = out.chunks_mut(shard_rows).zip(gradient.chunks_mut(shard_rows * n));
        try_each_with(
            x.chunks(shard_rows * n).zip(outputs),
            || {
                let track = Track::new(self, shard_rows, Wanted::Adjoint, 0);
                (track, Shard::new(self, shard_rows), vec![T::ZERO; shard_rows * stride])
            },
            |(track, shard, records), index, (x, (out, gradient))| {
                let rows = out.len();
                self.contexts(&y[index * shard_rows * m..][..rows * m], records, rows);
                let contexts = Contexts { records, stride, index: None };
                shard.x[..rows * n].copy_from_slice(x);
                self.integrate(&frame, track, shard, contexts, rows, journey, true);
                self.check_shard(shard, rows, index * shard_rows)?;
                for (b, out) in out.iter_mut().enumerate() {
                    *out = -shard.row_loss(b, n);
                }
                self.pull_back(&frame, track, shard, contexts, rows, journey, objective, &mut []);
                gradient.copy_from_slice(&shard.x_bar[..rows * n]);
                Ok(())
            },
        )
    }
}
