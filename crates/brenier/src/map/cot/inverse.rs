//! Sampling: x(0) from x(1) = z, by integrating dx/dt = −∇ₓΦ from t = 1 back to t = 0.

use rayon::prelude::*;

use super::flow::{Journey, Shard, Track};
use super::potential::Wanted;
use super::{CotMap, check_steps};
use crate::kernel::Real;
use crate::map::Inversion;
use crate::map::batch::{Contexts, EVALUATION_ROWS};
use crate::{Error, Result};

impl<T: Real> CotMap<T> {
    /// x carried to every row z, `observation` telling which row of `given` belongs to it, in `steps` steps.
    ///
    /// What y alone decides is computed once per observation, and the Laplacian is left out. The residuals are
    /// those of the way there and back: ‖z − z(x)‖∞ with the same number of steps, in the map's own precision.
    pub fn sample(
        &self,
        z: &[T],
        given: &[T],
        observation: &[u32],
        steps: usize,
    ) -> Result<(Vec<T>, Inversion)> {
        check_steps("steps", steps)?;
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let count = observation.len();
        let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
        if z.len() != count * n || given.len() < observations * m {
            return Err(Error::Shape {
                what: "reference points",
                expected: format!("{count} rows of {n} numbers and {observations} observations of {m}"),
                got: format!("{} and {} numbers", z.len(), given.len()),
            });
        }
        let mut records = vec![T::ZERO; observations * stride];
        records.par_chunks_mut(EVALUATION_ROWS * stride).enumerate().for_each(|(index, records)| {
            let rows = records.len() / stride;
            self.contexts(&given[index * EVALUATION_ROWS * m..][..rows * m], records, rows);
        });
        let frame = self.frame();
        let (mut x, mut residuals) = (vec![T::ZERO; count * n], vec![0.0; count]);
        let outputs =
            x.par_chunks_mut(EVALUATION_ROWS * n).zip(residuals.par_chunks_mut(EVALUATION_ROWS)).enumerate();
        outputs.try_for_each_init(
            || {
                let track = Track::new(self, EVALUATION_ROWS, Wanted::Gradient, 0);
                (track, Shard::new(self, EVALUATION_ROWS))
            },
            |(track, shard), (index, (x, residuals))| {
                let (rows, first) = (residuals.len(), index * EVALUATION_ROWS);
                let index = Some(&observation[first..first + rows]);
                let contexts = Contexts { records: &records, stride, index };
                let z = &z[first * n..(first + rows) * n];
                shard.x[..rows * n].copy_from_slice(z);
                self.integrate(&frame, track, shard, contexts, rows, Journey::to_data(steps), false);
                self.check_shard(shard, rows, first)?;
                x.copy_from_slice(&shard.x[..rows * n]);
                self.integrate(&frame, track, shard, contexts, rows, Journey::to_reference(steps), false);
                self.check_shard(shard, rows, first)?;
                for (b, residual) in residuals.iter_mut().enumerate() {
                    let pairs = shard.x[b * n..(b + 1) * n].iter().zip(&z[b * n..(b + 1) * n]);
                    let misses = pairs.map(|(got, z)| (got.to_f64() - z.to_f64()).abs());
                    *residual = misses.fold(0.0, f64::max);
                }
                Ok(())
            },
        )?;
        Ok((x, Inversion { iterations: vec![steps as u32; count], residuals }))
    }
}
