//! What an ABC run tells while it runs.

use crate::EventKind;
use serde::{Deserialize, Serialize};

/// One finished round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Round {
    /// The round, from 0.
    pub round: u32,
    /// Its tolerance ε.
    pub tolerance: f64,
    /// Simulations of the round that ended (the model did not abandon them).
    pub simulations: u64,
    /// The same, from the start of the run, with the pilot.
    pub total_simulations: u64,
    /// Accepted particles by simulations.
    pub acceptance: f64,
    /// Effective number of particles, 1/Σw².
    pub effective: f64,
    /// Whether the particles were resampled before the next round.
    pub resampled: bool,
}

/// An event of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AbcEvent {
    /// The run begins or continues.
    Started {
        /// Particles asked for.
        particles: usize,
        /// Rounds that a checkpoint already held.
        resumed_rounds: usize,
    },
    /// Some simulations of the pilot are ready.
    Pilot {
        /// Ready.
        done: u64,
        /// Asked for.
        rows: u64,
    },
    /// A batch of proposals was simulated.
    Progress {
        /// The round, from 0.
        round: u32,
        /// Its tolerance ε.
        tolerance: f64,
        /// Particles accepted so far.
        accepted: usize,
        /// Particles wanted.
        wanted: usize,
        /// Accepted by simulations, in this round.
        acceptance: f64,
        /// Simulations since the start of the run.
        total_simulations: u64,
    },
    /// A round ended.
    Round(Round),
}

impl EventKind for AbcEvent {}
