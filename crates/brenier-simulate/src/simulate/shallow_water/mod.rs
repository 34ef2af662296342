//! Waves in a basin of unknown depth: 100 depths, the surface over 100 hours, 20 000 noisy features of it.
//!
//! A basin of 100 cells of 10 km, its first and last cell walls, has its second cell raised by 10 cm at the beginning; the
//! linearised shallow-water equations with bottom drag carry the disturbance about for 100 hours (`kernel`). The depths
//! x ~ N(10 m, Σ) are smooth ([`depth`]), the observation is the Fourier transform of the surface with noise of standard
//! deviation 0.25 ([`features`]). The model is that of Ramesh et al. (2022, GATSBI), the published experiment that of
//! Wang et al. (2023); their program solves the linear system of a time step by Jacobi's iteration, ours exactly.
//!
//! [`ShallowWater`] is the [`Simulator`] behind `brenier simulate shallow-water`. Its rows are wide: the functions of
//! [`blocks`] simulate, find principal components and project without a table.

pub mod blocks;
pub mod depth;
pub mod exact;
pub mod features;
mod kernel;
mod projection;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{Attempt, Prior, Simulator, SimulatorOptions, Stream};
use crate::{Error, Result};
pub use kernel::Solver;
use kernel::{AMPLITUDES, CELLS, Field, HOURS};
pub use projection::Projection;

/// Standard deviation of the noise on every feature.
pub const NOISE: f64 = 0.25;
/// Basins side by side in double precision.
const LANES: usize = 8;

/// What is observed of the surface.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Observable {
    /// The surface itself, in metres, at 101 hours and 100 cells; it has no noise.
    Amplitudes,
    /// The 20 000 features with noise.
    #[default]
    Features,
    /// The features projected onto the columns of a matrix, with noise.
    Projected(Arc<Projection>),
}

/// The model, with parameters `x1` … `x100` (depths in metres).
#[derive(Clone, Debug)]
pub struct ShallowWater {
    prior: Prior,
    observable: Observable,
    outputs: Vec<String>,
    noise: f64,
}

impl Default for ShallowWater {
    fn default() -> Self {
        Self::new(Observable::default())
    }
}

impl ShallowWater {
    /// The model with these outputs: `z_HOUR_CELL` for amplitudes, `y1`, `y2`, … for features.
    pub fn new(observable: Observable) -> Self {
        let outputs = match &observable {
            Observable::Amplitudes => {
                (0..HOURS).flat_map(|hour| (1..=CELLS).map(move |cell| format!("z_{hour}_{cell}"))).collect()
            }
            Observable::Features => (1..=features::FEATURES).map(|i| format!("y{i}")).collect(),
            Observable::Projected(projection) => {
                (1..=projection.components()).map(|i| format!("y{i}")).collect()
            }
        };
        Self { prior: depth::prior(), observable, outputs, noise: NOISE }
    }

    /// The model with the outputs and the noise that `options` ask for.
    pub fn with_options(options: &SimulatorOptions) -> Result<Self> {
        let observable = match (options.outputs.as_deref(), &options.projection) {
            (Some("projected"), Some(path)) => Observable::Projected(Arc::new(Projection::read(path)?)),
            (Some("projected"), None) => {
                return Err(Error::setting(
                    "projection",
                    "name the table with the matrix that the outputs projected need",
                ));
            }
            (_, Some(_)) => {
                return Err(Error::setting("projection", "only the outputs projected have a projection"));
            }
            (Some("amplitudes"), None) => Observable::Amplitudes,
            (Some("features") | None, None) => Observable::Features,
            (Some(other), None) => {
                return Err(Error::setting(
                    "outputs",
                    format!("\"{other}\" is not one of amplitudes, features, projected"),
                ));
            }
        };
        let model = Self::new(observable);
        Ok(if options.noise_free { model.noise_free() } else { model })
    }

    /// The same without noise.
    #[must_use]
    pub fn noise_free(self) -> Self {
        Self { noise: 0.0, ..self }
    }

    /// Writes the outputs of one surface, with noise from `rng`.
    fn observe(&self, surface: &[f64], rng: &mut Stream, outputs: &mut [f64]) {
        match &self.observable {
            Observable::Amplitudes => return outputs.copy_from_slice(surface),
            Observable::Features => features::features(surface, outputs),
            Observable::Projected(projection) => projection.apply(surface, outputs),
        }
        if self.noise > 0.0 {
            for output in outputs {
                *output += self.noise * rng.sample::<f64, _>(StandardNormal);
            }
        }
    }
}

/// The surfaces of several basins in double precision, 101 × 100 values each; `depths` are rows of 100.
pub fn surfaces(depths: &[f64], solver: Solver) -> Result<Vec<f64>> {
    if !depths.len().is_multiple_of(CELLS) {
        return Err(Error::Shape {
            what: "depths",
            expected: format!("rows of {CELLS}"),
            got: format!("{} values", depths.len()),
        });
    }
    let mut out = vec![0.0; depths.len() / CELLS * AMPLITUDES];
    for (depths, out) in depths.chunks(LANES * CELLS).zip(out.chunks_mut(LANES * AMPLITUDES)) {
        side_by_side(depths, solver, out);
    }
    Ok(out)
}

/// At most [`LANES`] basins; empty lanes repeat the first.
fn side_by_side(depths: &[f64], solver: Solver, out: &mut [f64]) {
    let mut field: Box<Field<f64, LANES>> = Box::new([[0.0; LANES]; CELLS]);
    let basins = depths.len() / CELLS;
    for lane in 0..LANES {
        let from = if lane < basins { lane * CELLS } else { 0 };
        for cell in 0..CELLS {
            field[cell][lane] = depths[from + cell];
        }
    }
    kernel::run(&field, solver, |hour, surface, _| {
        for (lane, out) in out.chunks_exact_mut(AMPLITUDES).enumerate() {
            let row = &mut out[hour * CELLS..][..CELLS];
            row.iter_mut().zip(surface).for_each(|(out, surface)| *out = surface[lane]);
        }
    });
}

impl Simulator for ShallowWater {
    fn identity(&self) -> String {
        let observable = match &self.observable {
            Observable::Amplitudes => "amplitudes".to_owned(),
            Observable::Features => "features".to_owned(),
            Observable::Projected(projection) => format!("projected {}", projection.hash()),
        };
        // The word for the exact solver, as journals have it.
        format!("shallow-water {observable} Exact noise {}", self.noise)
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        Ok(self.simulate_many(theta, std::slice::from_mut(rng), outputs)?.remove(0))
    }

    fn simulate_many(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
    ) -> Result<Vec<Attempt>> {
        let width = self.outputs.len();
        let mut attempts = Vec::with_capacity(rngs.len());
        let mut surfaces = vec![0.0; LANES * AMPLITUDES];
        let groups = thetas.chunks(LANES * CELLS).zip(rngs.chunks_mut(LANES));
        for ((thetas, rngs), outputs) in groups.zip(outputs.chunks_mut(LANES * width)) {
            let surfaces = &mut surfaces[..rngs.len() * AMPLITUDES];
            side_by_side(thetas, Solver::Exact, surfaces);
            let rows = surfaces.chunks_exact(AMPLITUDES).zip(rngs).zip(outputs.chunks_exact_mut(width));
            for ((surface, rng), outputs) in rows {
                attempts.push(match surface.iter().all(|z| z.is_finite()) {
                    true => {
                        self.observe(surface, rng, outputs);
                        Attempt::Done
                    }
                    false => Attempt::Failed("the surface grew without bound at these depths".to_owned()),
                });
            }
        }
        Ok(attempts)
    }

    fn block_rows(&self) -> usize {
        64
    }
}
