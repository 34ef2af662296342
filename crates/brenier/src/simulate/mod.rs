//! Simulators: from a prior draw to a row of outputs, and tables of many such rows.
//!
//! A [`Simulator`] has a [`Prior`] over its parameters θ and turns θ and a random stream into outputs. Built in are
//! the stochastic [`LotkaVolterra`] model, and [`LinearGaussian`] and [`TwoMoons`], whose posteriors are known;
//! [`Program`] is a user's own program in any language. [`run`] makes a table of rows (θ, outputs):
//!
//! ```
//! use brenier::Run;
//! use brenier::simulate::{LotkaVolterra, Outcome, SimulateSettings, run};
//!
//! # fn main() -> brenier::Result<()> {
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
mod stream;
mod two_moons;
mod worker;

pub use linear_gaussian::{Gaussian, LinearGaussian};
pub use lotka_volterra::LotkaVolterra;
pub(crate) use prior::correlated;
pub use prior::{Prior, PriorBlock};
pub use program::{Program, ProgramControl, ProgramSettings};
pub use run::{FailedRow, Outcome, Shard, SimulateEvent, SimulateSettings, Simulated, merge, run};
pub use stream::{Stream, Streams};
pub use two_moons::TwoMoons;

use crate::Result;

/// How one simulation ended.
#[derive(Clone, Debug, PartialEq)]
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

    /// How many rows a thread takes at once; one where a row is slow.
    fn block_rows(&self) -> usize {
        256
    }
}

/// Names of the built-in models.
pub const MODELS: [&str; 4] = ["lotka-volterra", "lotka-volterra-paths", "linear-gaussian", "two-moons"];

/// The built-in model called `name`, one of [`MODELS`].
pub fn built_in(name: &str) -> Option<Box<dyn Simulator>> {
    match name {
        "lotka-volterra" => Some(Box::new(LotkaVolterra::default())),
        "lotka-volterra-paths" => Some(Box::new(LotkaVolterra::new(lotka_volterra::Observable::Path))),
        "linear-gaussian" => Some(Box::new(LinearGaussian::default())),
        "two-moons" => Some(Box::new(TwoMoons::default())),
        _ => None,
    }
}
