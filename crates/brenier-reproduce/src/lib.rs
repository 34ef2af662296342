//! Published experiments as programs: the protocol, the figures that were printed, and ours beside them.
//!
//! An experiment is a value ([`experiment`]): it says what its results depend on and how to come to them; the frame
//! resumes it, refuses the folder of another and renders what it found.

use brenier_core::{
    Error, EventKind, FitSettings, Fitted, Journal, LogDensities, MethodChoice, ModeSettings, Posterior,
    Result, Run, StopToken, Units, fit, fit_split, map, statistics, train, transform,
};
use brenier_data as data;
use brenier_diagnose::diagnose;
use brenier_report as report;
use brenier_simulate::{abc, simulate};
use brenier_tune as tune;

mod baseline;
pub mod experiment;
pub mod lotka_volterra;
mod protocol;
pub mod sbibm;
pub mod shallow_water;
mod uci;

pub use uci::{
    OverSeeds, Published, PublishedFolds, UciEvent, UciExperiment, UciFolds, UciReproduction, UciResult,
    UciScore, UciSettings, UciTable, Variant,
};
