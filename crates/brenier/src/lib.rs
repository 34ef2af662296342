//! Conditional optimal transport: learn a posterior map from pairs, then sample, score and maximise it.
//!
//! A [`Posterior`] is fitted to a table of pairs (x, y) by [`fit()`] and then answers for any y: draws
//! ([`Posterior::sample`]), exact log densities in the user's units ([`Posterior::log_density`]) and MAP points
//! ([`Posterior::mode`]).
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use brenier::map::SampleSettings;
//! use brenier::train::{Silent, TrainSettings};
//! use brenier::{FitControl, FitSettings, fit};
//!
//! # fn main() -> brenier::Result<()> {
//! // Pairs from a simulator; `brenier::data::read` reads them from a file.
//! let table = brenier::demo::simulate(1000, 0);
//! let settings = FitSettings {
//!     target: Some("x1,x2".parse()?),
//!     given: Some("y".parse()?),
//!     train: TrainSettings { epochs: 5, ..Default::default() },
//!     ..Default::default()
//! };
//! let stop = AtomicBool::new(false);
//! let control = FitControl { observer: &mut Silent, stop: &stop, checkpoint: None };
//! let posterior = fit(table, &settings, control)?.posterior;
//!
//! let draws = posterior.sample(&[0.5], 1, 100, 0, &SampleSettings::default())?;
//! assert_eq!(draws.values.len(), 100 * 2);
//! let density = posterior.log_density(&draws.values[..2], &[0.5])?;
//! println!("log density {} in user units, {} standardised", density.user[0], density.standardised[0]);
//! # Ok(())
//! # }
//! ```
//!
//! The modules follow the data: [`data`] (tables) → [`transform`] (invertible steps with log-determinants) →
//! [`map`] (the transport maps and their derivatives) ← [`train`] → [`store`] (the model file) → [`Posterior`] →
//! [`diagnose`] (two-sample tests, calibration) → [`mod@check`] (one verdict) → [`report`] (pictures and a page).
//! [`statistics`] holds the summaries of numbers that several of them use. [`tune`] searches for good settings. [`simulate`] makes tables from models, and [`abc`] finds particles by simulation
//! alone. [`reproduce`] runs published experiments.

mod error;
mod fit;
mod kernel;
mod posterior;

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
pub use fit::{FitControl, FitSettings, Fitted, NetworkSettings, fit, fit_split};
pub use kernel::Real;
pub use posterior::{
    Distance, Draws, Header, JointDraws, JointLogDensities, LogDensities, Mode, ModeSettings, Posterior,
    ScoredRows, StepError, Straightness, Summaries, TrainingScores, TrainingSummary, Units,
};

/// The README's example must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
