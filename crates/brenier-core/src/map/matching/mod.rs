//! Flow matching: z = x(1) of dx/dt = v(t, x; y), x(0) = x, with v a residual network that was trained by regression.
//!
//! For pairs (x, y), independent z ~ N(0, I) and x_t = (1 − t)x + tz, the field v*(t, x; y) = E\[z − x | x_t = x, y\] carries π(· | y)
//! to N(0, I). Training minimises
//!
//! E ½‖v(t, x_t; y) − (z − x)‖²,   t = 1 − u^0.4,   u uniform,
//!
//! with a fresh t and z for every row of every step: no trajectory is integrated and no determinant computed. Every row is
//! seen with ever new noise, so that the field is slow to overfit. Densities come from the trajectory, with the exact
//! divergence of v; validation rows are scored by them, so that all methods are compared by the same figure.

mod field;
mod flow;
mod init;
mod method;
mod shape;
mod step;

pub use method::{FlowMatching, FlowMatchingSettings};
pub use shape::MatchingShape;
pub use step::MatchingWorkspace;

use serde::{Deserialize, Serialize};

use super::batch::{
    Contexts, EVALUATION_ROWS, check_batch, check_observations, check_outputs, check_parameters, laid_out,
};
use super::ode::{Flow, Journey, broken_trajectory, check_steps, journeys};
use super::{ConditionalMap, reference_density};
use crate::Result;
use crate::kernel::{Accum, MatRef, Real, columns, columns_mut, product};
use crate::parallel::{each, try_each_with};
use flow::{Cargo, Track};
use shape::Layout;

/// How the flow is integrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MatchingSettings {
    /// The Runge–Kutta steps of validation losses, densities and draws.
    pub evaluation_steps: usize,
}

impl Default for MatchingSettings {
    fn default() -> Self {
        Self { evaluation_steps: 16 }
    }
}

impl MatchingSettings {
    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        check_steps("evaluation_steps", self.evaluation_steps)
    }
}

/// A flow-matching map with its parameters.
#[derive(Clone, Debug)]
pub struct MatchingMap<T> {
    layout: Layout,
    parameters: Vec<T>,
    settings: MatchingSettings,
}

impl<T: Real> MatchingMap<T> {
    /// A map with the given parameters, in the order of [`ConditionalMap::tensors`]' places.
    pub fn from_parameters(
        shape: MatchingShape,
        settings: MatchingSettings,
        parameters: Vec<T>,
    ) -> Result<Self> {
        shape.validate()?;
        settings.validate()?;
        let layout = Layout::new(shape);
        check_parameters("flow-matching parameters", layout.parameters, parameters.len())?;
        Ok(Self { layout, parameters, settings })
    }

    /// The field's sizes.
    pub fn shape(&self) -> MatchingShape {
        self.layout.shape.clone()
    }

    /// How the flow is integrated.
    pub fn settings(&self) -> MatchingSettings {
        self.settings
    }

    /// The same map in another precision.
    pub fn cast<U: Real>(&self) -> MatchingMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        MatchingMap { layout: self.layout.clone(), parameters, settings: self.settings }
    }

    /// v(t, x; y) of every row: plain, for inspection.
    pub fn field(&self, t: f64, x: &[T], y: &[T]) -> Result<Vec<T>> {
        let rows = self.check_batch(x, y)?;
        let mut stage = field::Stage::new(self, rows, field::Wanted::Value);
        let records = self.records(y, rows);
        let contexts = Contexts { records: &records, stride: self.layout.record, index: None };
        let mut time = vec![T::ZERO; self.layout.record];
        self.add_time(t, &mut time);
        self.evaluate(&mut stage, contexts, &time, x, rows);
        Ok(stage.field)
    }

    journeys!();

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
        let n = self.layout.shape.target;
        let observations = check_observations(x, given, observation, out, n, self.layout.shape.given)?;
        let records = self.records(&given[..observations * self.layout.shape.given], observations);
        let journey = Journey::to_reference(steps);
        self.travel(x, &records, Some(observation), Cargo::Density, journey, out, |row, out| {
            *out = reference_density(&row[..n], row[n].to_f64());
        })
    }

    /// Carries rows x along a journey, shard by shard, and hands what each carries at the end to `finish` with its place in
    /// `out`.
    fn travel<O: Send>(
        &self,
        x: &[T],
        records: &[T],
        observation: Option<&[u32]>,
        cargo: Cargo,
        journey: Journey,
        out: &mut [O],
        finish: impl Fn(&[T], &mut O) + Sync,
    ) -> Result<()> {
        let (n, stride) = (self.layout.shape.target, self.layout.record);
        let shard_rows = EVALUATION_ROWS.min(out.len().max(1));
        let shards = x.chunks(shard_rows * n).zip(out.chunks_mut(shard_rows));
        try_each_with(
            shards,
            || Track::new(self, shard_rows, cargo),
            |track, place, (x, out)| {
                let (first, rows) = (place * shard_rows, out.len());
                let contexts = match observation {
                    Some(all) => Contexts { records, stride, index: Some(&all[first..first + rows]) },
                    None => Contexts { records: &records[first * stride..], stride, index: None },
                };
                track.load(x, n);
                self.integrate(track, contexts, rows, journey);
                // Points are returned as they are.
                if let (Cargo::Density | Cargo::Gradient, Some(row)) = (cargo, track.broken(rows, n)) {
                    return Err(broken_trajectory(first + row));
                }
                for (b, out) in out.iter_mut().enumerate() {
                    finish(track.row(b, n), out);
                }
                Ok(())
            },
        )
    }

    /// The records Ce + c of many observations y.
    fn records(&self, y: &[T], count: usize) -> Vec<T> {
        let (m, stride) = (self.layout.shape.given, self.layout.record);
        let mut records = vec![T::ZERO; count * stride];
        each(records.chunks_mut(EVALUATION_ROWS * stride), |index, records| {
            let rows = records.len() / stride;
            let y = &y[index * EVALUATION_ROWS * m..][..rows * m];
            let embedding = &self.layout.embedding;
            if embedding.is_empty() {
                return self.records_of(columns(y, m, rows, m), records, rows);
            }
            let mut values = vec![T::ZERO; embedding.stride() * rows];
            embedding.forward(&self.parameters, y, &mut values, rows);
            self.records_of(embedding.output(&values, rows), records, rows);
        });
        records
    }

    /// The same, of the columns e.
    fn records_of(&self, e: MatRef<'_, T>, records: &mut [T], count: usize) {
        let (features, stride) = (self.layout.features, self.layout.record);
        let bias = &self.parameters[self.layout.bias.clone()];
        for record in records.chunks_exact_mut(stride).take(count) {
            record.copy_from_slice(bias);
        }
        if features > 0 {
            let context = columns(&self.parameters[self.layout.context.clone()], stride, features, stride);
            product(columns_mut(records, stride, count, stride), Accum::Add, context, e);
        }
    }

    /// Number of rows, where x and y agree on it.
    fn check_batch(&self, x: &[T], y: &[T]) -> Result<usize> {
        check_batch(x, y, self.layout.shape.target, self.layout.shape.given)
    }
}

impl<T: Real> Flow<T> for MatchingMap<T> {
    fn evaluation_steps(&self) -> usize {
        self.settings.evaluation_steps
    }

    fn carry(&self, start: &[T], given: &[T], observation: &[u32], journey: Journey) -> Result<Vec<T>> {
        check_steps("steps", journey.steps)?;
        let (n, m) = (self.layout.shape.target, self.layout.shape.given);
        let answers = vec![0.0; observation.len()];
        let observations = check_observations(start, given, observation, &answers, n, m)?;
        let records = self.records(&given[..observations * m], observations);
        let mut ends: Vec<Vec<T>> = vec![Vec::new(); observation.len()];
        self.travel(start, &records, Some(observation), Cargo::Point, journey, &mut ends, |row, end| {
            *end = row.to_vec();
        })?;
        Ok(ends.concat())
    }
}

impl<T: Real> ConditionalMap<T> for MatchingMap<T> {
    laid_out!(layout.shape);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        let (n, rows) = (self.layout.shape.target, self.check_batch(x, y)?);
        check_outputs(rows, n, z.len(), log_det.len())?;
        let journey = Journey::to_reference(self.settings.evaluation_steps);
        let mut out: Vec<(&mut [T], &mut f64)> = z.chunks_exact_mut(n).zip(log_det).collect();
        self.travel(
            x,
            &self.records(y, rows),
            None,
            Cargo::Density,
            journey,
            &mut out,
            |row, (z, log_det)| {
                z.copy_from_slice(&row[..n]);
                **log_det = row[n].to_f64();
            },
        )
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let (n, rows) = (self.layout.shape.target, self.check_batch(x, y)?);
        check_outputs(rows, n, gradient.len(), out.len())?;
        let journey = Journey::to_reference(self.settings.evaluation_steps);
        let mut out: Vec<(&mut [T], &mut f64)> = gradient.chunks_exact_mut(n).zip(out).collect();
        self.travel(
            x,
            &self.records(y, rows),
            None,
            Cargo::Gradient,
            journey,
            &mut out,
            |row, (gradient, out)| {
                let (z, rest) = row.split_at(n);
                let (jacobian, bend) = rest[1..].split_at(n * n);
                **out = reference_density(z, rest[0].to_f64());
                // −Jᵀz + γ.
                for ((gradient, column), &bend) in gradient.iter_mut().zip(jacobian.chunks_exact(n)).zip(bend)
                {
                    *gradient = column.iter().zip(z).fold(bend, |sum, (&entry, &z)| sum - entry * z);
                }
            },
        )
    }
}
