//! Sampling: x(0) from x(1) = z, by integrating dx/dt = −∇ₓΦ from t = 1 back to t = 0.

use super::CotMap;
use super::flow::{Shard, Track};
use super::potential::Wanted;
use crate::Result;
use crate::kernel::Real;
use crate::map::Inversion;
use crate::map::batch::{Contexts, EVALUATION_ROWS, check_reference};
use crate::map::ode::{Flow, Journey, check_steps, journeys};
use crate::parallel::each_with;

/// Rows that travel together: a stage needs one column a row, so twice the usual number fits the same caches.
const TRAVEL_ROWS: usize = 2 * EVALUATION_ROWS;

impl<T: Real> CotMap<T> {
    // Neither ∂ₜΦ nor ΔₓΦ is evaluated on the way: a stage costs two products of w² a layer and row.
    journeys!();

    /// [`draw`](Self::draw) with the [`residuals`](Self::residuals) of every row, which take as long again.
    pub fn sample(
        &self,
        z: &[T],
        given: &[T],
        observation: &[u32],
        steps: usize,
    ) -> Result<(Vec<T>, Inversion)> {
        let x = self.draw(z, given, observation, steps)?;
        let residuals = self.residuals(&x, z, given, observation, steps)?;
        let iterations = vec![steps as u32; observation.len()];
        Ok((x, Inversion { iterations, residuals, unsolved: Vec::new() }))
    }
}

impl<T: Real> Flow<T> for CotMap<T> {
    fn evaluation_steps(&self) -> usize {
        self.settings.evaluation_steps
    }

    /// The end of every row's journey, state alone.
    fn carry(&self, start: &[T], given: &[T], observation: &[u32], journey: Journey) -> Result<Vec<T>> {
        check_steps("steps", journey.steps)?;
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        check_reference(start, given, observation, n, m)?;
        let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
        let records = self.context_records(&given[..observations * m], observations);
        let frame = self.frame();
        let mut end = start.to_vec();
        each_with(
            end.chunks_mut(TRAVEL_ROWS * n),
            || {
                let track = Track::new(self, TRAVEL_ROWS, Wanted::Gradient, 0);
                (track, Shard::new(self, TRAVEL_ROWS))
            },
            |(track, shard), index, x| {
                let (rows, first) = (x.len() / n, index * TRAVEL_ROWS);
                let index = Some(&observation[first..first + rows]);
                let contexts = Contexts { records: &records, stride, index };
                shard.x[..rows * n].copy_from_slice(x);
                self.integrate(&frame, track, shard, contexts, rows, journey, false);
                x.copy_from_slice(&shard.x[..rows * n]);
            },
        );
        Ok(end)
    }
}
