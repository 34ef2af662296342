//! Simulators: from a prior draw to a row of outputs, and tables of many such rows.
//!
//! A [`Simulator`] has a [`Prior`] over its parameters θ and turns θ and a random stream into outputs. Built in are
//! the stochastic [`LotkaVolterra`] model, [`LinearGaussian`], whose posterior is known, [`ShallowWater`] with 100 parameters
//! and 20 000 outputs, and nine [`tasks`] of a benchmark, [`TwoMoons`] among them; [`Program`] is a user's own program in any
//! language. [`run`] makes a table of rows (θ, outputs):
//!
//! ```
//! use brenier_core::Run;
//! use brenier_simulate::simulate::{LotkaVolterra, Outcome, SimulateSettings, run};
//!
//! # fn main() -> brenier_core::Result<()> {
//! let settings = SimulateSettings { rows: 100, seed: 1, ..Default::default() };
//! if let Outcome::Complete(simulated) = run(&LotkaVolterra::default(), &settings, None, Run::silent())? {
//!     assert_eq!(simulated.table.rows(), 100);
//!     assert_eq!(simulated.table.names()[..2], ["theta_1", "theta_2"]);
//! }
//! # Ok(())
//! # }
//! ```

mod journal;
mod linear_gaussian;
pub mod lotka_volterra;
mod prior;
mod program;
pub mod protocol;
mod run;
pub mod shallow_water;
mod stream;
pub mod tasks;
mod two_moons;
mod with_prior;
mod worker;

pub use linear_gaussian::{Gaussian, LinearGaussian};
pub use lotka_volterra::LotkaVolterra;
pub(crate) use prior::correlated;
pub use prior::{Prior, PriorBlock};
pub use program::{Program, ProgramSettings};
pub use run::{
    FailedRow, Outcome, Shard, SimulateEvent, SimulateSettings, Simulated, merge, run, run_predictive,
};
pub use shallow_water::ShallowWater;
pub use stream::{Stream, Streams};
pub use two_moons::TwoMoons;
pub use with_prior::WithPrior;

use crate::{Error, Result};

/// How one simulation ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Attempt {
    /// The outputs are there.
    Done,
    /// The model has no output here; the row is drawn again, parameters too, so that the table holds draws from the
    /// joint distribution of those simulations that end.
    Abandoned,
    /// Something went wrong, in words; the row is recorded as failed.
    Failed(String),
    /// The run was told to stop before there was an answer; the row is still to be made.
    Interrupted,
}

/// Passes what a simulator has to say to the observer of a run; called from any thread.
pub type Tell<'a> = dyn Fn(SimulateEvent) -> Result<()> + Sync + 'a;

/// A model to draw pairs (θ, outputs) from.
pub trait Simulator: Send + Sync {
    /// What the rows depend on besides prior, seed and row: equal for equal models, in checkpoints.
    fn identity(&self) -> String;

    /// The distribution of the parameters, with their names.
    fn prior(&self) -> &Prior;

    /// The outputs' names.
    fn output_names(&self) -> &[String];

    /// Runs the model at `theta` with random numbers from `rng` alone. An `Err` ends the whole run.
    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt>;

    /// Runs the model at several `thetas`, one after the other in the slice, each with its own stream; the answers
    /// must not depend on what is run together.
    fn simulate_many(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
    ) -> Result<Vec<Attempt>> {
        let thetas = thetas.chunks_exact(self.prior().dim());
        let outputs = outputs.chunks_exact_mut(self.output_names().len());
        thetas
            .zip(rngs)
            .zip(outputs)
            .map(|((theta, rng), outputs)| self.simulate(theta, rng, outputs))
            .collect()
    }

    /// As [`simulate_many`](Self::simulate_many), for a model that may have something to say meanwhile: `tell` passes an event
    /// to the observer of the run, and its error ends the run.
    fn simulate_telling(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
        tell: &Tell<'_>,
    ) -> Result<Vec<Attempt>> {
        let _ = tell;
        self.simulate_many(thetas, rngs, outputs)
    }

    /// How many rows a thread takes at once; one where a row is slow.
    fn block_rows(&self) -> usize {
        256
    }
}

/// Names of the built-in models.
pub const SIMULATORS: [&str; 13] = [
    "lotka-volterra",
    "lotka-volterra-paths",
    "linear-gaussian",
    "two-moons",
    "gaussian-linear",
    "gaussian-linear-uniform",
    "gaussian-mixture",
    "slcp",
    "bernoulli-glm",
    "bernoulli-glm-raw",
    "sir",
    "lotka-volterra-ode",
    "shallow-water",
];

/// The built-in model called `name`, one of [`SIMULATORS`].
pub fn built_in(name: &str) -> Option<Box<dyn Simulator>> {
    match name {
        "lotka-volterra" => Some(Box::new(LotkaVolterra::default())),
        "lotka-volterra-paths" => Some(Box::new(LotkaVolterra::new(lotka_volterra::Observable::Path))),
        "linear-gaussian" => Some(Box::new(LinearGaussian::default())),
        "shallow-water" => Some(Box::new(ShallowWater::default())),
        other => tasks::task(other).map(|task| task as Box<dyn Simulator>),
    }
}

/// What some built-in models leave open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulatorOptions {
    /// Which outputs: `amplitudes`, `features` or `projected` for `shallow-water`.
    pub outputs: Option<String>,
    /// The table with the matrix of the outputs `projected`.
    pub projection: Option<std::path::PathBuf>,
    /// Whether to leave out the noise of the observation.
    pub noise_free: bool,
}

/// The built-in model called `name` with these options; `None` for an unknown name.
///
/// # Errors
/// Options that the model does not have.
pub fn built_in_with(name: &str, options: &SimulatorOptions) -> Result<Option<Box<dyn Simulator>>> {
    if name == "shallow-water" {
        return ShallowWater::with_options(options).map(|model| Some(Box::new(model) as Box<dyn Simulator>));
    }
    if options.outputs.is_some() || options.projection.is_some() {
        let setting = if options.outputs.is_some() { "outputs" } else { "projection" };
        return Err(Error::setting(setting, format!("{name} has one set of outputs and no choice of them")));
    }
    match (options.noise_free, name) {
        (true, "linear-gaussian") => Ok(Some(Box::new(LinearGaussian::default().noise_free()))),
        (true, _) => Err(Error::setting(
            "noise_free",
            format!("{name} has no noise-free version: its outputs are random in themselves"),
        )),
        (false, _) => Ok(built_in(name)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_built_and_options_it_does_not_have_are_refused() {
        for name in SIMULATORS {
            let model = built_in_with(name, &SimulatorOptions::default()).unwrap().unwrap();
            assert_eq!(model.identity(), built_in(name).unwrap().identity());
            let silent = built_in_with(name, &SimulatorOptions { noise_free: true, ..Default::default() });
            match name {
                "linear-gaussian" | "shallow-water" => {
                    assert_ne!(silent.unwrap().unwrap().identity(), model.identity());
                }
                _ => assert!(silent.err().unwrap().to_string().contains("no noise-free version")),
            }
        }
        let choose = |name: &str, outputs: &str| {
            let options = SimulatorOptions { outputs: Some(outputs.to_owned()), ..Default::default() };
            built_in_with(name, &options).map(|model| model.unwrap().output_names().len())
        };
        assert_eq!(choose("shallow-water", "amplitudes").unwrap(), 10_100);
        assert_eq!(choose("shallow-water", "features").unwrap(), 20_000);
        for (name, outputs, part) in [
            ("shallow-water", "waves", "amplitudes, features, projected"),
            ("shallow-water", "projected", "projection"),
            ("two-moons", "features", "no choice"),
        ] {
            let error = choose(name, outputs).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(built_in_with("no such model", &SimulatorOptions::default()).unwrap().is_none());
    }

    /// Without noise the linear model is its matrix.
    #[test]
    fn a_noise_free_linear_model_repeats_itself() {
        let model = LinearGaussian::default().noise_free();
        let streams = Streams::new(1, 0);
        let (mut a, mut b) = ([0.0; 4], [0.0; 4]);
        model.simulate(&[1.0, 0.0, 0.0], &mut streams.get(0), &mut a).unwrap();
        model.simulate(&[1.0, 0.0, 0.0], &mut streams.get(1), &mut b).unwrap();
        assert_eq!((a, b), ([1.0, -0.3, 0.2, 0.0], [1.0, -0.3, 0.2, 0.0]));
    }
}
