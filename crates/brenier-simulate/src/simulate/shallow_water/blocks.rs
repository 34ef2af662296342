//! Many basins without a table: blocks of time-centred surfaces in single precision, their second moments, projections.
//!
//! 100 000 surfaces are 4 GB in single precision. Nothing here keeps them: [`second_moments`] streams blocks of
//! [`BLOCK`] rows (160 MB) into a matrix of 9898 × 9898 sums, and [`project`] simulates the same rows again, which takes
//! less time than reading them from a disk. Row i of a seed has the depths that `brenier simulate` draws for it.

use std::ops::Range;

use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;

use super::depth;
use super::features::centre_in_time;
use super::kernel::{self, CELLS, Field, Solver};
use super::projection::{INSIDE, Projection};
use crate::simulate::{SimulateEvent, Streams};
use crate::transform::{Leading, LeadingSettings, SecondMoments};
use crate::{Error, Result, Run};

pub use super::projection::INTERIOR;

/// Rows that are simulated and multiplied together.
pub const BLOCK: usize = 4096;
/// Basins side by side in single precision.
const LANES: usize = 16;
/// The purpose of the random streams that make noise, apart from those of the rows.
const NOISE_STREAMS: u64 = 1;

/// The depths of rows of a seed, 100 each, as the prior draws them.
pub fn draw_depths(seed: u64, rows: Range<u64>) -> Vec<f64> {
    let prior = depth::prior();
    let streams = Streams::new(seed, 0);
    let mut depths = vec![0.0; (rows.end - rows.start) as usize * CELLS];
    depths.par_chunks_exact_mut(CELLS).enumerate().for_each(|(i, depths)| {
        prior.draw(&mut streams.get(rows.start + i as u64), depths);
    });
    depths
}

/// Simulates basins of the given depths (rows of 100) and writes their surfaces inside the walls, with the time mean of
/// each cell taken off: rows of [`INTERIOR`] values. The work is spread over the threads of the current rayon pool.
pub fn centred_surfaces(depths: &[f64], out: &mut [f32]) {
    assert_eq!(depths.len() / CELLS, out.len() / INTERIOR, "a row of depths for each surface");
    let groups = out.par_chunks_mut(LANES * INTERIOR).zip(depths.par_chunks(LANES * CELLS));
    groups.for_each(|(out, depths)| {
        let basins = depths.len() / CELLS;
        let mut field: Box<Field<f32, LANES>> = Box::new([[0.0; LANES]; CELLS]);
        for lane in 0..LANES {
            // Empty lanes repeat the first.
            let from = if lane < basins { lane * CELLS } else { 0 };
            for cell in 0..CELLS {
                field[cell][lane] = depths[from + cell] as f32;
            }
        }
        kernel::run(&field, Solver::Exact, |hour, surface, _| {
            for (lane, out) in out.chunks_exact_mut(INTERIOR).enumerate() {
                let row = &mut out[hour * INSIDE..][..INSIDE];
                row.iter_mut().zip(&surface[1..]).for_each(|(out, surface)| *out = surface[lane]);
            }
        });
        out.chunks_exact_mut(INTERIOR).for_each(|surface| centre_in_time(surface, INSIDE));
    });
}

/// Simulates the rows of a seed block by block and hands depths and surfaces to `take`.
fn stream(
    seed: u64,
    rows: u64,
    run: &mut Run<'_>,
    mut take: impl FnMut(Range<u64>, &[f64], &[f32]) -> Result<()>,
) -> Result<()> {
    if rows == 0 {
        return Err(Error::setting("rows", "there are none to simulate: ask for at least 1"));
    }
    run.tell(SimulateEvent::Started { rows, resumed: 0 })?;
    let mut surfaces = vec![0.0_f32; BLOCK.min(rows as usize) * INTERIOR];
    for first in (0..rows).step_by(BLOCK) {
        if run.token().is_stopped() {
            return Err(Error::Stopped(format!("stopped after {first} of {rows} simulations")));
        }
        let block = first..rows.min(first + BLOCK as u64);
        let depths = draw_depths(seed, block.clone());
        let surfaces = &mut surfaces[..depths.len() / CELLS * INTERIOR];
        centred_surfaces(&depths, surfaces);
        if let Some(bad) = surfaces.iter().position(|z| !z.is_finite()) {
            let row = first + (bad / INTERIOR) as u64;
            return Err(Error::Numerical(format!("row {}: the surface grew without bound", row + 1)));
        }
        take(block.clone(), &depths, surfaces)?;
        run.tell(SimulateEvent::Progress { done: block.end, abandoned: 0, failed: 0 })?;
    }
    Ok(())
}

/// Second moments of the time-centred surfaces of the first `rows` rows of a seed; 400 MB of sums.
///
/// The features Ψ have 10100 times these moments in the directions that vary, see
/// [`features`](super::features).
pub fn second_moments(seed: u64, rows: u64, mut run: Run<'_>) -> Result<SecondMoments> {
    let mut moments = SecondMoments::new(INTERIOR);
    stream(seed, rows, &mut run, |_, _, surfaces| {
        moments.add(surfaces);
        Ok(())
    })?;
    Ok(moments)
}

/// Principal components of noise-free features, about 0 as published.
#[derive(Clone, Debug)]
pub struct FeatureComponents {
    /// The projection onto the leading components.
    pub projection: Projection,
    /// Their eigenvalues of ΨᵀΨ/(N − 1), largest first.
    pub eigenvalues: Vec<f64>,
    /// The sum of all eigenvalues.
    pub total: f64,
}

impl FeatureComponents {
    /// The fraction of the features' second moment that the leading `count` components explain.
    pub fn explained(&self, count: usize) -> f64 {
        self.eigenvalues[..count].iter().sum::<f64>() / self.total
    }

    /// The leading components of features with these second moments of their surfaces.
    pub fn of(moments: SecondMoments, settings: &LeadingSettings) -> Result<Self> {
        let rows = moments.rows();
        let Leading { values, vectors, total, .. } = moments.leading(settings)?;
        let projection = Projection::of_columns(values.len(), &vectors)?;
        // Moments divide by N.
        let factor = super::kernel::AMPLITUDES as f64 * rows as f64 / (rows.max(2) - 1) as f64;
        let eigenvalues = values.iter().map(|value| value * factor).collect();
        Ok(Self { projection, eigenvalues, total: total * factor })
    }
}

/// Simulated pairs: depths, and noise-free projected features.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// Rows of 100 depths.
    pub depths: Vec<f64>,
    /// Rows of projected features, one per component.
    pub features: Vec<f32>,
    /// Features per row.
    pub components: usize,
}

/// Simulates the first `rows` rows of a seed and projects them, without noise.
pub fn project(seed: u64, rows: u64, projection: &Projection, mut run: Run<'_>) -> Result<Pairs> {
    let components = projection.components();
    let mut depths = Vec::with_capacity(rows as usize * CELLS);
    let mut features = vec![0.0; rows as usize * components];
    stream(seed, rows, &mut run, |block, drawn, surfaces| {
        depths.extend_from_slice(drawn);
        let (start, end) = (block.start as usize, block.end as usize);
        projection.apply_block(surfaces, &mut features[start * components..end * components]);
        Ok(())
    })?;
    Ok(Pairs { depths, features, components })
}

impl Pairs {
    /// How many there are.
    pub fn rows(&self) -> usize {
        self.depths.len() / CELLS
    }

    /// The first `modes` modes of the depths' prior, whitened: N(0, I) under the prior.
    pub fn modes(&self, modes: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.rows() * modes];
        for (theta, depths) in out.chunks_exact_mut(modes.max(1)).zip(self.depths.chunks_exact(CELLS)) {
            depth::to_modes(depths, theta);
        }
        out
    }

    /// The same in the units of the published tables.
    pub fn published_modes(&self, modes: usize) -> Vec<f64> {
        let mut out = self.modes(modes);
        for row in out.chunks_exact_mut(modes.max(1)) {
            row.iter_mut().enumerate().for_each(|(mode, value)| *value *= depth::published_scale(mode));
        }
        out
    }

    /// The features with fresh noise: another `epoch` has other noise, the same epoch the same.
    pub fn noisy(&self, sd: f64, seed: u64, epoch: u64) -> Vec<f32> {
        let streams = Streams::new(seed, NOISE_STREAMS + epoch);
        let mut out = self.features.clone();
        out.par_chunks_exact_mut(self.components.max(1)).enumerate().for_each(|(row, values)| {
            let mut rng = streams.get(row as u64);
            values.iter_mut().for_each(|value| *value += (sd * rng.sample::<f64, _>(StandardNormal)) as f32);
        });
        out
    }
}
