//! The nine tasks of the simulation-based inference benchmark (Lueckmann et al. 2021): simulators whose likelihood is known,
//! with draws from the exact posterior at any observation.
//!
//! A [`Task`] is a [`Simulator`] with a log-likelihood. Its reference draws are independent where the posterior has a closed
//! form or can be drawn by rejection; otherwise they come from a population of Markov chains on the exact likelihood:
//!
//! | task | posterior draws |
//! |---|---|
//! | `gaussian-linear`, `gaussian-linear-uniform`, `gaussian-mixture` | closed forms |
//! | `two-moons` | the construction inverted, by rejection |
//! | `slcp` | inverse Wishart by rejection, then Metropolis steps for the last 10⁻⁶ of the variances |
//! | `bernoulli-glm`, `bernoulli-glm-raw` | independence Metropolis, Student-t around the mode |
//! | `sir`, `lotka-volterra-ode` | tempered sequential Monte Carlo |
//!
//! [`problems`] holds further small problems with exact conditional densities.
//!
//! ```
//! use brenier_simulate::simulate::tasks::task;
//!
//! let moons = task("two-moons").expect("one of the nine");
//! let draws = moons.posterior_draws(&[0.0, 0.0], 100, 1)?;
//! assert!(draws.chunks(2).all(|theta| moons.log_likelihood(theta, &[0.0, 0.0]).is_finite()));
//! # Ok::<(), brenier_data::Error>(())
//! ```

mod gaussian;
mod glm;
mod mixture;
mod ode;
mod population;
mod predator_prey;
pub mod problems;
mod sir;
mod slcp;
mod two_moons;

pub use gaussian::{GaussianLinear, GaussianLinearUniform};
pub use glm::BernoulliGlm;
pub use mixture::GaussianMixture;
pub use predator_prey::LotkaVolterraOde;
pub use sir::Sir;
pub use slcp::Slcp;

use rayon::prelude::*;

use super::{Attempt, Prior, PriorBlock, Simulator, Stream, Streams, TwoMoons, correlated};
use crate::Result;

/// A simulator whose likelihood, and so whose posterior, is known.
pub trait Task: Simulator {
    /// log p(y | θ); −∞ where θ cannot produce y.
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64;

    /// `count` draws from the posterior at `y`, row by row. The work is spread over the threads of the current rayon pool;
    /// one seed gives the same draws on any number of them.
    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>>;

    /// The number of points in the outputs, point by point, where their order says nothing about θ.
    fn exchangeable_points(&self) -> Option<usize> {
        None
    }
}

/// `count` draws from the posterior of any task at `y`, by a population of Markov chains on the exact likelihood: what tasks without
/// a better way use themselves, and a check of those that have one.
pub fn tempered_draws(task: &dyn Task, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
    population::tempered(task, y, count, seed)
}

/// Names of the tasks, all of them [built-in models](super::SIMULATORS).
pub const TASKS: [&str; 9] = [
    "gaussian-linear",
    "gaussian-linear-uniform",
    "gaussian-mixture",
    "two-moons",
    "slcp",
    "bernoulli-glm",
    "bernoulli-glm-raw",
    "sir",
    "lotka-volterra-ode",
];

/// The task called `name`, one of [`TASKS`].
pub fn task(name: &str) -> Option<Box<dyn Task>> {
    Some(match name {
        "gaussian-linear" => Box::new(GaussianLinear::default()),
        "gaussian-linear-uniform" => Box::new(GaussianLinearUniform::default()),
        "gaussian-mixture" => Box::new(GaussianMixture::default()),
        "two-moons" => Box::new(TwoMoons::default()),
        "slcp" => Box::new(Slcp::default()),
        "bernoulli-glm" => Box::new(BernoulliGlm::summaries()),
        "bernoulli-glm-raw" => Box::new(BernoulliGlm::raw()),
        "sir" => Box::new(Sir::default()),
        "lotka-volterra-ode" => Box::new(LotkaVolterraOde::default()),
        _ => return None,
    })
}

/// Streams of reference draws; those of rows have purpose 0.
const INDEPENDENT_DRAWS: u64 = 21;
const CHAINS: u64 = 22;
const RESAMPLING: u64 = 23;

/// `letter_1`, …, `letter_count`.
fn numbered(letter: &str, count: usize) -> Vec<String> {
    (1..=count).map(|i| format!("{letter}_{i}")).collect()
}

/// A prior of blocks that are known to be valid.
fn prior_of(blocks: &[PriorBlock]) -> Prior {
    Prior::new(blocks, "".as_ref()).expect("the blocks are valid")
}

/// θ ~ U(−bound, bound) in each of `dim` dimensions.
fn uniform_prior(dim: usize, bound: f64) -> Prior {
    let block = |name| PriorBlock::Uniform { name, low: -bound, high: bound };
    prior_of(&numbered("theta", dim).into_iter().map(block).collect::<Vec<_>>())
}

/// `count` rows of `dim` values, each drawn from a stream of its own.
fn independent_draws(
    dim: usize,
    count: usize,
    seed: u64,
    draw: impl Fn(&mut Stream, &mut [f64]) -> Result<()> + Sync,
) -> Result<Vec<f64>> {
    let streams = Streams::new(seed, INDEPENDENT_DRAWS);
    let mut values = vec![0.0; dim * count];
    values
        .par_chunks_mut(dim)
        .enumerate()
        .try_for_each(|(row, theta)| draw(&mut streams.get(row as u64), theta))?;
    Ok(values)
}

/// −½ (z² + log 2π) − log sd for z = (x − mean)/sd.
fn log_normal_density(x: f64, mean: f64, sd: f64) -> f64 {
    let z = (x - mean) / sd;
    -0.5 * (z * z + std::f64::consts::TAU.ln()) - sd.ln()
}
