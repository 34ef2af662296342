//! Draws and densities of many rows at few observations: what y alone decides is computed once per observation.

use super::NpeMap;
use super::lanes::{LANES, from_lanes, into_lanes};
use super::shard::{Prepared, Shard, Use};
use crate::Result;
use crate::kernel::Real;
use crate::map::batch::{EVALUATION_ROWS, check_observations};
use crate::parallel::{each, each_with, results};

/// Rows that are drawn together.
const DRAW_ROWS: usize = EVALUATION_ROWS;

/// Contexts of many observations, as columns.
struct Records<T> {
    values: Vec<T>,
    stride: usize,
}

impl<T: Real> NpeMap<T> {
    /// x with g⁻¹(x; y) = z for every row z, `observation` telling which row of `given` belongs to it.
    ///
    /// A row that leaves the finite numbers is returned as it is.
    pub fn draw(&self, z: &[T], given: &[T], observation: &[u32]) -> Result<Vec<T>> {
        let (n, mut x) = (self.layout.shape.target, vec![T::ZERO; z.len()]);
        let mut none = vec![0.0; observation.len()];
        self.for_each_at(z, given, observation, &mut x, &mut none, |prepared, shard, z, x, _| {
            let (rows, stride) = (z.len() / n, shard.stride);
            let last = shard.states.len() - 1;
            into_lanes(z, n, &mut shard.states[last][stride..], stride);
            self.invert(prepared, shard, rows);
            from_lanes(shard.start(), stride, x, n);
        })?;
        Ok(x)
    }

    /// z = g⁻¹(x; y) and log π(x | y) of every row x, `observation` telling which row of `given` belongs to it.
    pub fn forward_at(&self, x: &[T], given: &[T], observation: &[u32]) -> Result<(Vec<T>, Vec<f64>)> {
        let (n, mut z) = (self.layout.shape.target, vec![T::ZERO; x.len()]);
        let mut density = vec![0.0; observation.len()];
        self.for_each_at(x, given, observation, &mut z, &mut density, |prepared, shard, x, z, density| {
            shard.load(x, n);
            self.evaluate(prepared, shard, density.len());
            from_lanes(shard.end(), shard.stride, z, n);
            for (b, density) in density.iter_mut().enumerate() {
                *density = -shard.row_loss(b, n);
            }
        })?;
        Ok((z, density))
    }

    /// Gives every shard of rows its contexts and hands it to `work` with its part of both outputs.
    fn for_each_at(
        &self,
        points: &[T],
        given: &[T],
        observation: &[u32],
        images: &mut [T],
        numbers: &mut [f64],
        work: impl Fn(&Prepared<T>, &mut Shard<T>, &[T], &mut [T], &mut [f64]) + Sync,
    ) -> Result<()> {
        let (n, m) = (self.layout.shape.target, self.layout.shape.given);
        let observations = check_observations(points, given, observation, numbers, n, m)?;
        let records = &self.records(&given[..observations * m], observations);
        let (prepared, most) = (&self.prepared(), DRAW_ROWS.min(observation.len()));
        let outputs = images.chunks_mut(DRAW_ROWS * n).zip(numbers.chunks_mut(DRAW_ROWS));
        let inputs = points.chunks(DRAW_ROWS * n).zip(observation.chunks(DRAW_ROWS));
        each_with(
            inputs.zip(outputs),
            || (Shard::new(self, most, Use::Values), None),
            |(shard, filled), _, ((points, observation), (images, numbers))| {
                self.gather(records, observation, shard, filled);
                work(prepared, shard, points, images, numbers);
            },
        );
        Ok(())
    }

    /// Contexts of all observations.
    fn records(&self, given: &[T], observations: usize) -> Records<T> {
        let (m, record) = (self.layout.shape.given, self.layout.record);
        let stride = observations.max(1).next_multiple_of(LANES);
        let mut values = vec![T::ZERO; stride * record];
        if m == 0 || stride <= EVALUATION_ROWS {
            let memory = (&mut Vec::new(), &mut Vec::new());
            self.contexts_of(given, memory, &mut values, stride, observations);
            return Records { values, stride };
        }
        // Many observations: in shards, whose columns are then put side by side.
        let parts: Vec<Vec<T>> = results(given.chunks(EVALUATION_ROWS * m), |_, y| {
            let mut part = vec![T::ZERO; EVALUATION_ROWS * record];
            let memory = (&mut Vec::new(), &mut Vec::new());
            self.contexts_of(y, memory, &mut part, EVALUATION_ROWS, y.len() / m);
            part
        });
        each(values.chunks_exact_mut(stride), |column, values| {
            let place = column * EVALUATION_ROWS..(column + 1) * EVALUATION_ROWS;
            for (values, part) in values.chunks_mut(EVALUATION_ROWS).zip(&parts) {
                values.copy_from_slice(&part[place.clone()][..values.len()]);
            }
        });
        Records { values, stride }
    }

    /// The contexts of the rows' observations; `filled` is the one that all rows of the shard already have.
    fn gather(
        &self,
        records: &Records<T>,
        observation: &[u32],
        shard: &mut Shard<T>,
        filled: &mut Option<u32>,
    ) {
        let first = observation[0];
        let same = observation.iter().all(|&other| other == first);
        if same && *filled == Some(first) {
            return;
        }
        let columns = shard.contexts.chunks_exact_mut(shard.stride);
        for (column, record) in columns.zip(records.values.chunks_exact(records.stride)) {
            if same {
                column.fill(record[first as usize]);
            } else {
                for (value, &row) in column.iter_mut().zip(observation) {
                    *value = record[row as usize];
                }
            }
        }
        *filled = same.then_some(first);
    }
}
