//! Pilot search: settings found by short trainings, the best of them trained to the end.
//!
//! [`search`] draws settings at random from a declared [`SearchSpace`], trains each for a few epochs on the same rows,
//! trains the best to the end with several seeds, and returns every figure and the model with the best validation
//! loss. Trials run side by side, one thread each; the same search gives the same figures for any number of threads.
//!
//! Unless [`TuneSettings::exact`] is set, pilots are thinned out by successive halving: after ⅛, ¼ and ½ of the pilot
//! epochs the worse half is dropped.
//!
//! Finished trials are appended to a journal in the search's folder, so that a search that was killed continues where it
//! was, and many processes may share one ([`TuneSettings::join`]). Rows of the split's test part decide nothing: each finished model is scored on them once, for the report.

use brenier_core::{
    Error, Event, EventKind, FitSettings, Fitted, Journal, Observer, Posterior, Prepared, Result, Run,
    StopToken, kernel, map, statistics, train,
};
use brenier_data as data;

mod join;
mod journal;
mod outcome;
mod search;
mod space;
mod training;

pub use outcome::{TuneOutcome, spread};
pub use search::{TuneEvent, search, validation_split};
pub use space::{Domain, SearchSpace};

use serde::{Deserialize, Serialize};

use crate::map::Method;
use crate::train::Stop;

/// How a search is run; `None` chooses by [`exact`](Self::exact) and the method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TuneSettings {
    /// Settings drawn for pilots: 24, or under the published protocol those of [`MethodInfo::published_pilots`](map::method::MethodInfo), else 100.
    pub trials: Option<usize>,
    /// Epochs of a pilot.
    pub pilot_epochs: Option<u32>,
    /// How many of the best are trained to the end: 3, or 10.
    pub finalists: Option<usize>,
    /// Seeds with which each of them is trained: 2, or 5.
    pub repeats: Option<usize>,
    /// The published protocol: every pilot runs to its end, and its numbers of trials, finalists and repeats.
    pub exact: bool,
    /// Minutes after which the search ends with what there is. Which trials are finished by then depends on the machine, so a
    /// search that runs out of time is not reproducible; one that does not is.
    #[serde(skip_serializing)]
    pub minutes: Option<f64>,
    /// Share the search with other processes that run it in the same folder.
    #[serde(skip_serializing)]
    pub join: bool,
    /// Trainings at a time in this process: as many as the current rayon pool has threads. With `join`, 0 watches the others.
    #[serde(skip_serializing)]
    pub threads: Option<usize>,
}

/// Epochs of a pilot by default.
const PILOT_EPOCHS: u32 = 15;

impl TuneSettings {
    /// The same with every choice made.
    pub fn resolved(&self, method: Method) -> Result<Self> {
        let by = |exact: usize, short: usize| if self.exact { exact } else { short };
        let pilots = method.info().published_pilots.unwrap_or(100);
        let finalists = self.finalists.unwrap_or(by(10, 3));
        let resolved = Self {
            trials: Some(self.trials.unwrap_or(by(pilots, 24).max(finalists))),
            pilot_epochs: Some(self.pilot_epochs.unwrap_or(PILOT_EPOCHS)),
            finalists: Some(finalists),
            repeats: Some(self.repeats.unwrap_or(by(5, 2))),
            exact: self.exact,
            minutes: self.minutes,
            join: self.join,
            threads: self.threads,
        };
        let counts = [
            ("trials", resolved.trials),
            ("pilot_epochs", resolved.pilot_epochs.map(|epochs| epochs as usize)),
            ("finalists", resolved.finalists),
            ("repeats", resolved.repeats),
        ];
        for (name, count) in counts {
            if !count.is_some_and(|count| (1..=100_000).contains(&count)) {
                return Err(Error::setting(name, "must be between 1 and 100000"));
            }
        }
        if resolved.threads == Some(0) && !resolved.join {
            return Err(Error::setting("threads", "must be at least 1, unless the search is joined"));
        }
        if resolved.finalists > resolved.trials {
            return Err(Error::setting(
                "finalists",
                format!("{finalists} cannot be chosen from {} trials", resolved.trials.unwrap_or(0)),
            ));
        }
        Ok(resolved)
    }
}

/// The outcome of a pilot at one rung of the ladder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pilot {
    /// Number of the trial, from 0.
    pub trial: usize,
    /// The rung, from 0; a search under the published protocol has one.
    pub rung: usize,
    /// Epochs trained.
    pub epochs: f64,
    /// Steps taken.
    pub steps: u64,
    /// Seconds this rung took on one thread.
    pub seconds: f64,
    /// Best validation loss so far (standardised units), or none when the training broke down.
    pub valid_nll: Option<f64>,
    /// Why it broke down.
    pub failure: Option<String>,
}

/// The outcome of a full training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Final {
    /// Number of the trial whose settings these are.
    pub trial: usize,
    /// Which of the trainings with these settings, from 0.
    pub repeat: usize,
    /// Seed of initial weights and batches.
    pub seed: u64,
    /// Epochs trained.
    pub epochs: f64,
    /// Steps taken.
    pub steps: u64,
    /// The step of the best validation loss.
    pub best_step: u64,
    /// Why it ended.
    pub stop: Option<Stop>,
    /// Seconds it took on one thread, from its last start.
    pub seconds: f64,
    /// Best validation loss (standardised units), or none when the training broke down.
    pub valid_nll: Option<f64>,
    /// Mean negative log-likelihood of the test rows (standardised units), where there are any.
    pub test_nll: Option<f64>,
    /// Why it broke down.
    pub failure: Option<String>,
    /// The model's file in the search's folder.
    pub model: Option<String>,
}
