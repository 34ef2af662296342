//! Flow-based neural posterior estimation: z = T_T ∘ … ∘ T_1 (x), a normalising flow whose transforms read y.
//!
//! Two kinds of transforms: masked affine autoregressive ones, each followed by a permutation (`autoregressive.rs`), and
//! couplings of rational-quadratic splines, each followed by a linear layer (`coupling.rs`, `spline.rs`, `linear.rs`); for one
//! target column splines alone, whose numbers depend on y. Either way
//!
//! log π(x | y) = −½‖z‖² − (n/2) log 2π + Σ log |det ∂T_t|
//!
//! is exact in one pass, and draws invert the transforms exactly. The map is monotone in the order of each transform, not the
//! gradient of a potential: no optimal transport, but what simulation-based inference commonly uses.

mod autoregressive;
mod coupling;
mod draw;
mod front;
mod heads;
mod init;
mod lanes;
mod linear;
mod method;
mod order;
mod shape;
mod shard;
mod spline;
mod step;
#[cfg(test)]
mod tests;

pub use super::embed::Activation;
pub use super::pcp::Front;
pub use method::{FlowPosterior, NpeSettings, Preset};
pub use shape::{FlowKind, NpeShape};
pub use step::NpeWorkspace;

use super::ConditionalMap;
use super::batch::{EVALUATION_ROWS, check_batch, check_outputs, check_parameters, laid_out};
use crate::kernel::{Real, columns};
use crate::parallel::try_each_with;
use crate::{Error, Result};
use lanes::from_lanes;
use shape::{Layout, TransformPlace};
use shard::{Prepared, Shard, Use};

/// ε, the least scale, slope and part of the interval that a bin has.
const LEAST: f64 = 1e-3;

/// A flow with its parameters.
#[derive(Clone, Debug)]
pub struct NpeMap<T> {
    layout: Layout,
    parameters: Vec<T>,
}

impl<T: Real> NpeMap<T> {
    /// A map with the given parameters, in the order of [`ConditionalMap::tensors`]' places.
    pub fn from_parameters(shape: NpeShape, parameters: Vec<T>) -> Result<Self> {
        shape.validate()?;
        let layout = Layout::new(shape);
        check_parameters("parameters of the flow", layout.parameters, parameters.len())?;
        Ok(Self { layout, parameters })
    }

    /// The flow's sizes.
    pub fn shape(&self) -> &NpeShape {
        &self.layout.shape
    }

    /// Of every autoregressive transform, which of its coordinates each of the next one is.
    pub fn permutations(&self) -> impl Iterator<Item = &[usize]> {
        self.layout.transforms.iter().filter_map(|place| match place {
            TransformPlace::Autoregressive { permutation, .. } => Some(permutation.as_slice()),
            _ => None,
        })
    }

    /// The same map in another precision.
    pub fn cast<U: Real>(&self) -> NpeMap<U> {
        let parameters = self.parameters.iter().map(|value| U::from_f64(value.to_f64())).collect();
        NpeMap { layout: self.layout.clone(), parameters }
    }

    /// Contexts of `rows` rows y, by way of the embedding where there is one (`values` and `lanes` are memory).
    fn contexts_of(
        &self,
        y: &[T],
        (values, lanes): (&mut Vec<T>, &mut Vec<T>),
        out: &mut [T],
        stride: usize,
        rows: usize,
    ) {
        let (m, embedding) = (self.layout.shape.given, &self.layout.embedding);
        if embedding.is_empty() {
            self.contexts(columns(y, m, rows, m), lanes, out, stride);
        } else {
            values.resize(rows * embedding.stride(), T::ZERO);
            embedding.forward(&self.parameters, y, values, rows);
            self.contexts(embedding.output(values, rows), lanes, out, stride);
        }
    }

    /// Evaluates all rows in shards side by side and hands each shard and its outputs to `read`.
    fn for_each_shard<O: Send>(
        &self,
        x: &[T],
        y: &[T],
        outputs: impl Iterator<Item = O>,
        purpose: Use,
        read: impl Fn(&Prepared<T>, &mut Shard<T>, usize, O) + Sync,
    ) -> Result<()> {
        let (n, m) = (self.layout.shape.target, self.layout.shape.given);
        let most = EVALUATION_ROWS.min(x.len() / n);
        let prepared = self.prepared();
        try_each_with(
            x.chunks(EVALUATION_ROWS * n).zip(outputs),
            || (Shard::new(self, most, purpose), Vec::new()),
            |(shard, values), index, (x, outputs)| {
                let rows = x.len() / n;
                let y = &y[index * EVALUATION_ROWS * m..][..rows * m];
                let stride = shard.stride;
                let memory = (values, &mut shard.features);
                self.contexts_of(y, memory, &mut shard.contexts, stride, rows);
                shard.load(x, n);
                self.evaluate(&prepared, shard, rows);
                self.check_shard(shard, rows, index * EVALUATION_ROWS)?;
                read(&prepared, shard, rows, outputs);
                Ok(())
            },
        )
    }

    /// An error naming the first row whose image is not finite.
    fn check_shard(&self, shard: &Shard<T>, rows: usize, first_row: usize) -> Result<()> {
        let (n, z) = (self.layout.shape.target, shard.end());
        let broken =
            |&b: &usize| !(shard.log_det[b].is_finite() && (0..n).all(|i| z[i * shard.stride + b].finite()));
        (0..rows).find(broken).map_or(Ok(()), |row| Err(broken_row(first_row + row)))
    }
}

/// The error of a row whose image is not finite.
fn broken_row(row: usize) -> Error {
    Error::Numerical(format!(
        "row {}: the image under the flow is not finite (a value far outside the training data, or weights that diverged)",
        row + 1
    ))
}

impl<T: Real> ConditionalMap<T> for NpeMap<T> {
    laid_out!(layout.shape);

    fn forward(&self, x: &[T], y: &[T], z: &mut [T], log_det: &mut [f64]) -> Result<()> {
        let n = self.layout.shape.target;
        let rows = check_batch(x, y, n, self.layout.shape.given)?;
        check_outputs(rows, n, z.len(), log_det.len())?;
        let outputs = z.chunks_mut(EVALUATION_ROWS * n).zip(log_det.chunks_mut(EVALUATION_ROWS));
        self.for_each_shard(x, y, outputs, Use::Values, |_, shard, rows, (z, log_det)| {
            from_lanes(shard.end(), shard.stride, z, n);
            log_det.copy_from_slice(&shard.log_det[..rows]);
        })
    }

    fn log_density_gradient(&self, x: &[T], y: &[T], out: &mut [f64], gradient: &mut [T]) -> Result<()> {
        let n = self.layout.shape.target;
        let rows = check_batch(x, y, n, self.layout.shape.given)?;
        check_outputs(rows, n, gradient.len(), out.len())?;
        let outputs = out.chunks_mut(EVALUATION_ROWS).zip(gradient.chunks_mut(EVALUATION_ROWS * n));
        self.for_each_shard(x, y, outputs, Use::States, |prepared, shard, rows, (out, gradient)| {
            for (b, out) in out.iter_mut().enumerate() {
                *out = -shard.row_loss(b, n);
            }
            self.pull_back(prepared, shard, rows, -1.0);
            from_lanes(&shard.bars.state, shard.stride, gradient, n);
        })
    }
}
