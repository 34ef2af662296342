//! Simulators and their priors, tables of simulations, and approximate Bayesian computation by sequential Monte Carlo.
//!
//! The crate `brenier` re-exports [`simulate`] and [`abc`].

use brenier_core::{
    Error, Event, EventKind, Journal, Result, Run, StopToken, kernel, statistics, store, transform,
};
use brenier_data as data;

pub mod abc;
pub mod simulate;
