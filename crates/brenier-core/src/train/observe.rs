//! What a training run tells while it runs; the library itself never prints.

use serde::{Deserialize, Serialize};

use crate::EventKind;

/// One validation of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// Steps taken.
    pub step: u64,
    /// Passes over the training rows, with fraction.
    pub epoch: f64,
    /// Mean training loss since the last validation (standardised units).
    pub train_nll: f64,
    /// Mean negative log-likelihood of the validation rows (standardised units).
    pub valid_nll: f64,
    /// The best so far.
    pub best_valid_nll: f64,
    /// Adam's step size.
    pub learning_rate: f64,
    /// Drops of the learning rate so far.
    pub drops: u32,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stop {
    /// The validation loss no longer improved.
    Converged,
    /// There was nothing to train: the fit has a closed form.
    ClosedForm,
    /// The last epoch was reached.
    Epochs,
    /// The budget of steps was used up.
    Steps,
    /// The time budget was used up.
    Minutes,
    /// The user asked for it.
    Interrupted,
    /// The loss repeatedly became NaN or infinite; the best weights were kept.
    Diverged,
}

impl Stop {
    /// In a few words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::ClosedForm => "closed form",
            Self::Epochs => "last epoch reached",
            Self::Steps => "last step reached",
            Self::Minutes => "time used up",
            Self::Interrupted => "interrupted",
            Self::Diverged => "loss not finite, best weights kept",
        }
    }

    /// Whether the run was cut short and a checkpoint can take it up again.
    pub fn is_resumable(self) -> bool {
        matches!(self, Self::Minutes | Self::Interrupted)
    }
}

/// An event of a training run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TrainEvent {
    /// Something the user should know about the table, before the training, or about the training, after it.
    Warning {
        /// In one sentence.
        text: String,
    },
    /// A block of a joint map comes next: first the given columns alone, then the target given them.
    Block {
        /// Its number, from 1.
        number: usize,
        /// How many blocks there are.
        of: usize,
        /// The columns whose density it learns.
        columns: Vec<String>,
        /// Whether that is their density given the others.
        conditional: bool,
    },
    /// Methods are tried side by side from here on.
    Trials {
        /// How many there are.
        of: usize,
    },
    /// The trials have chosen a method.
    Chosen {
        /// Which, and how it compared with the others, in one line.
        text: String,
    },
    /// The members of an ensemble are trained side by side from here on.
    Members {
        /// How many there are.
        of: usize,
    },
    /// A trial or a member of an ensemble was validated, while others train beside it.
    PartValidated {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// The part of the work of all that is done, between 0 and 1: by the steps allowed and the drops of the learning rate, of
        /// which there are usually fewer, so that it ends with a leap.
        done: f64,
        /// The validation.
        #[serde(flatten)]
        progress: Progress,
    },
    /// A member of an ensemble was trained.
    Member {
        /// Its number, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Its best validation loss.
        best_valid_nll: f64,
    },
    /// The run begins or continues.
    Started {
        /// Rows trained on.
        train_rows: usize,
        /// Rows held out.
        valid_rows: usize,
        /// Parameters of the map.
        parameters: usize,
        /// The step a checkpoint was resumed at; 0 for a fresh run.
        resumed_at: u64,
        /// Steps at most.
        max_steps: u64,
    },
    /// The steps of a warm start are over; those of the likelihood follow.
    Warmed {
        /// Steps taken.
        step: u64,
        /// The best validation loss so far.
        best_valid_nll: f64,
    },
    /// A surrogate of the simulator is learned first: its training follows, with events of its own.
    Surrogate {
        /// Its number, from 1.
        number: usize,
        /// How many there are: one for all members of an ensemble, or one for each.
        of: usize,
        /// Numbers that it takes.
        inputs: usize,
        /// Numbers that it gives.
        outputs: usize,
    },
    /// The surrogate was learned.
    Imitated {
        /// The part of the variance of the given variables that it explains, in rows that it did not learn from.
        explained: f64,
    },
    /// A validation.
    Validated(Progress),
    /// A loss or gradient that was not finite: the run went back to the best weights with a smaller step.
    Recovered {
        /// The step at which it happened.
        step: u64,
        /// What was not finite, and where.
        cause: String,
        /// The step size from here on.
        learning_rate: f64,
    },
    /// The run ended.
    Finished {
        /// Why.
        stop: Stop,
        /// Steps taken.
        steps: u64,
        /// The best validation loss.
        best_valid_nll: f64,
        /// The step it was reached at.
        best_step: u64,
    },
}

impl EventKind for TrainEvent {}
