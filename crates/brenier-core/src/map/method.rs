//! What a method is: its settings, their description, its training, and the way back from a model file.
//!
//! A method lives in a folder of its own and is entered once, in the list behind [`Method`](super::Method). Its settings type
//! implements [`MethodSpec`] (what the settings do) and [`ListedMethod`] (its description). Everything else,
//! such as flags, settings files, search spaces, checks, pages and the contract test, is driven by the list.

use std::sync::Arc;

use super::{ConditionalMap, TransportMap};
use crate::train::{Dataset, Nearby, Outcome, TrainSettings};
use crate::{Result, Run};

/// The kind of value that a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SettingKind {
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// A list of whole numbers.
    WholeList,
    /// This many numbers.
    Numbers(usize),
}

/// A setting of a method, as flags, settings files and help texts know it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingInfo {
    /// Its key in a settings file; the flag is the same with hyphens.
    pub name: &'static str,
    /// What it takes.
    pub kind: SettingKind,
    /// What it is, in a few words, without a full stop.
    pub help: &'static str,
    /// The default in words; empty where there is none or `help` says it.
    pub default: &'static str,
}

/// Settings that a method offers where trials choose among the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What is not as by default, in a word or two; empty where everything is.
    pub name: &'static str,
    /// Settings that differ from the defaults, as a JSON object with the tables `method` and `train`.
    pub changes: &'static str,
    /// Numbers of rows to train on for which it is worth a trial: from the first to the second.
    pub rows: (usize, usize),
    /// Steps of its trial; none where the trial is the whole training, whose map then needs no other.
    pub trial_steps: Option<u64>,
    /// Whether it is tried only where its method, trained to the end in another trial, is ahead of all others.
    pub in_final: bool,
}

/// Steps of a trial by default.
const TRIAL_STEPS: u64 = 1500;

impl Candidate {
    /// The defaults.
    pub const PLAIN: Self = Self::always("", "{}");

    /// Worth a trial whatever the rows.
    pub const fn always(name: &'static str, changes: &'static str) -> Self {
        Self { name, changes, rows: (0, usize::MAX), trial_steps: Some(TRIAL_STEPS), in_final: false }
    }

    /// The same, worth a trial for this many rows to train on, from `least` to `most`.
    pub const fn for_rows(self, least: usize, most: usize) -> Self {
        Self { rows: (least, most), ..self }
    }

    /// The same with a trial of this many steps.
    pub const fn tried_for(self, trial_steps: u64) -> Self {
        Self { trial_steps: Some(trial_steps), ..self }
    }

    /// The same, trained to the end in its trial: for a method whose training falls to its best over a fixed number of steps, and
    /// whose short trials say little about it.
    pub const fn tried_wholly(self) -> Self {
        Self { trial_steps: None, ..self }
    }

    /// The same, tried only where its method, trained to the end in another trial, is ahead of all others.
    pub const fn in_final(self) -> Self {
        Self { in_final: true, ..self }
    }
}

/// How a check speaks of a method's size, where a map is too large or too small for its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeAdvice {
    /// What makes a map smaller, as in "a smaller network"; empty where nothing does.
    pub smaller: &'static str,
    /// What is left when training has settled, and what to try, as in "the network's, try a wider one".
    pub larger: &'static str,
}

impl SizeAdvice {
    /// That of a network.
    pub const NETWORK: Self = Self {
        smaller: "a smaller network",
        larger: "the network's, search its settings or try a wider one",
    };
}

/// The description of a method.
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo {
    /// As texts have it.
    pub title: &'static str,
    /// What it is, in one sentence without a full stop.
    pub summary: &'static str,
    /// Its settings.
    pub settings: &'static [SettingInfo],
    /// Built-in search spaces as TOML, by the names of `tune::SearchSpace::PRESETS`.
    pub spaces: &'static [(&'static str, &'static str)],
    /// What the method offers where trials choose; nothing where it is left out of them.
    pub candidates: &'static [Candidate],
    /// Pilots of the published search, where the method is one of the paper's.
    pub published_pilots: Option<usize>,
    /// Draws per pair that a check makes by default; fewer where densities are expensive.
    pub check_draws: usize,
    /// The fields of [`SampleSettings`](super::SampleSettings) that its draws know.
    pub draw_settings: &'static [&'static str],
    /// How a check speaks of its size.
    pub size: SizeAdvice,
    /// Whether what training minimises has penalties beside the negative log-likelihood.
    pub penalised: bool,
}

/// The sizes of a fitting problem, as far as defaults depend on them.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// n, the number of target variables.
    pub target: usize,
    /// m, the number of given variables.
    pub given: usize,
    /// Rows to train on.
    pub rows: usize,
    /// Whether a density of all columns is wanted: the other factor, that of the given variables, is learned too.
    pub joint: bool,
}

/// A training: data, split, settings and what surrounds it.
pub struct Training<'a> {
    /// Standardised rows.
    pub data: &'a Dataset,
    /// What moves the rows of every step, where a surrogate of the simulator was learned.
    pub nearby: Option<&'a Nearby>,
    /// The rows to train on.
    pub train_rows: &'a [u32],
    /// The rows to validate with.
    pub valid_rows: &'a [u32],
    /// The settings of the training loop.
    pub settings: &'a TrainSettings,
    /// Seed of initial weights and batches.
    pub seed: u64,
    /// What a checkpoint belongs to: settings, data and split.
    pub identity: &'a str,
    /// Observer, stop token and journal.
    pub run: Run<'a>,
}

/// Writes the parameters of a model file into a map.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn ConditionalMap<f32>) -> Result<()>;

/// What the settings of a method do.
pub trait MethodSpec: Send + Sync {
    /// Checks every value.
    fn validate(&self) -> Result<()>;

    /// Makes every choice that was left open, here and in the settings of the training.
    fn resolve(&mut self, problem: Problem, train: &mut TrainSettings);

    /// The number of parameters of a map of n target and m given variables; an error for impossible sizes.
    fn parameters(&self, target: usize, given: usize) -> Result<usize>;

    /// Whether training decides the number of parameters; [`parameters`](Self::parameters) is then the most there can be, and
    /// the stored tensors say how many there are.
    fn grows(&self) -> bool {
        false
    }

    /// Whether the given variables pass through a network that shortens them.
    fn embeds(&self) -> bool {
        false
    }

    /// Whether it is trained by steps on batches of rows, which may see other noise, or other rows nearby, in every step.
    fn descends(&self) -> bool {
        true
    }

    /// What an epoch costs, in units of its own: to tell a long training from a short one.
    fn cost(&self, target: usize, given: usize) -> Result<usize> {
        self.parameters(target, given)
    }

    /// Trains a map.
    fn train(&self, training: Training<'_>) -> Result<(Arc<dyn TransportMap>, Outcome)>;

    /// A map whose parameters `fill` writes into their places.
    fn assemble(&self, target: usize, given: usize, fill: Fill<'_>) -> Result<Arc<dyn TransportMap>>;
}

/// A method that can be entered into the list.
pub trait ListedMethod: MethodSpec + Default {
    /// Its description.
    const INFO: MethodInfo;
}

impl TrainSettings {
    /// Fills in what was left open: the step size, and the batch size by the rows, from `small` for a small table.
    pub(crate) fn resolve(&mut self, rows: usize, small: usize) {
        self.batch_size.get_or_insert(match rows {
            20_000.. => 256,
            5_000.. => 128,
            _ => small,
        });
        self.learning_rate.get_or_insert(0.005);
    }
}

/// Width of a network for a problem. Small tables overfit wide networks; see docs/performance.md.
pub(crate) fn default_width(problem: Problem) -> usize {
    if problem.rows >= 5000 || problem.target > 8 { 128 } else { 64 }
}
