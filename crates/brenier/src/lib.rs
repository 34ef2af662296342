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
//! let pairs = brenier::example::simulate(1000, 0);
//! let posterior = Fit::of("x1,x2").given("y").quick().epochs(5).run(&pairs)?;
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

pub use brenier_core::{example, map, statistics, store, train, transform};
pub use brenier_data as data;
pub use brenier_diagnose::{check, diagnose};
pub use brenier_report as report;
pub use brenier_reproduce as reproduce;
pub use brenier_simulate::{abc, simulate};
pub use brenier_tune as tune;

pub use brenier_core::{
    At, Baseline, Choice, Distance, Draws, Fit, FitSettings, Fitted, JointDraws, JointLogDensities,
    LogDensities, Member, MethodChoice, Mode, ModeSettings, ModelInfo, Observed, OutlierScore, Posterior,
    Prepared, Real, ScoredRows, StepError, Straightness, Summaries, TrainingScores, TrainingSummary, Trial,
    Units, fit, fit_split,
};
pub use brenier_data::{Error, Event, EventKind, Journal, Observer, Result, Run, Silent, StopToken, Table};

/// The README's example must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
