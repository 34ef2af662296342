//! Whether samples and posteriors can be trusted: [`diagnose`] sees samples alone, [`check`] a posterior.
//!
//! The crate `brenier` re-exports both.

use brenier_core::{
    At, Distance, Error, Event, EventKind, LogDensities, Posterior, Result, Run, StopToken, TrainingScores,
    kernel, map, statistics, train,
};
use brenier_data as data;
use brenier_simulate::simulate;

pub mod check;
pub mod diagnose;
