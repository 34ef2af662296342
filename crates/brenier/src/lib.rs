//! Conditional optimal transport: learn a posterior map from pairs, then sample, score and maximise it.
//!
//! A [`Posterior`] is fitted to a table of pairs (x, y) by a [`Fit`] and then answers for any y: draws
//! ([`Posterior::sample`]), exact log densities in the user's units ([`Posterior::log_density`]) and MAP points
//! ([`Posterior::mode`]).
//!
//! ```
//! use brenier::Fit;
//!
//! # fn main() -> brenier::Result<()> {
//! // Pairs from a simulator; `Table::read` reads them from a file.
//! let pairs = brenier::demo::simulate(1000, 0);
//! let posterior = Fit::of("x1,x2").given("y").seed(1).epochs(5).run(&pairs)?;
//!
//! let at = posterior.at(&[0.5])?;
//! let draws = at.sample(100)?;
//! println!("{draws}"); // mean, sd, 5–95 % of each parameter
//! let density = at.log_density(&draws.values[..2])?;
//! println!("log density {} in user units, {} standardised", density.user[0], density.standardised[0]);
//! # Ok(())
//! # }
//! ```
//!
//! The modules follow the data: [`data`] (tables) → [`transform`] (invertible steps with log-determinants) →
//! [`map`] (the transport maps and their derivatives) ← [`train`] → [`store`] (the model file) → [`Posterior`] →
//! [`diagnose`] (two-sample tests, calibration) → [`mod@check`] (one verdict) → [`report`] (pictures and a page).
//! [`statistics`] holds the summaries of numbers that several of them use. [`tune`] searches for good settings.
//! [`simulate`] makes tables from models, and [`abc`] finds particles by simulation alone. [`reproduce`] runs published
//! experiments. Methods are listed in one place, [`map::Method`].

mod error;
mod fit;
mod kernel;
mod posterior;
mod run;

pub mod abc;
pub mod check;
pub mod data;
pub mod demo;
pub mod diagnose;
pub mod map;
pub mod report;
pub mod reproduce;
pub mod simulate;
pub mod statistics;
pub mod store;
pub mod train;
pub mod transform;
pub mod tune;

pub use error::{Error, Result};
pub use fit::{Fit, FitSettings, Fitted, Prepared, fit, fit_split};
pub use kernel::Real;
pub use posterior::{
    At, Baseline, Distance, Draws, Header, JointDraws, JointLogDensities, LogDensities, Member, Mode,
    ModeSettings, Observed, Posterior, ScoredRows, StepError, Straightness, Summaries, TrainingScores,
    TrainingSummary, Units,
};
pub use run::{Event, Journal, Observer, Run, Silent, StopToken};

/// The README's example must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
