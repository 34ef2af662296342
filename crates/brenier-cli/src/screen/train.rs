//! A training: its steps as a bar, with the figures of the last validation.

use std::time::{Duration, Instant};

use brenier::train::{Progress, TrainEvent};
use indicatif::HumanDuration;

use super::display::Display;

/// Over the steps allowed; a run usually ends earlier, when the validation loss no longer improves.
pub(super) const BAR: &str = "{bar:6} {msg}";
/// Length of the bar of trainings side by side.
const PARTS: u64 = 1000;
/// Names of columns that a line lists at most.
const LISTED: usize = 8;

pub(super) struct Face {
    /// When the command, or the step of an experiment, began.
    begun: Instant,
    /// When the block at hand began.
    started: Instant,
    /// When its first step of the usual cost began: a warm start is over by then.
    paced: Instant,
    /// First step of the usual cost in this run, and the last allowed.
    steps: (u64, u64),
    /// Whether a line was written: the first comes at once.
    told: bool,
    /// What trains side by side.
    part: &'static str,
    /// Members that are still to come.
    left: usize,
}

impl Face {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            started: Instant::now(),
            paced: Instant::now(),
            steps: (0, 0),
            told: false,
            part: "training",
            left: 0,
        }
    }

    pub(super) fn show(&mut self, event: &TrainEvent, minutes: Option<f64>, display: &mut Display) {
        if let Some(text) = opening(event) {
            display.say(&text);
        }
        match event {
            TrainEvent::Imitated { .. } => display.clear(),
            TrainEvent::Started { resumed_at, max_steps, .. } => {
                (self.started, self.paced) = (Instant::now(), Instant::now());
                self.steps = (*resumed_at, *max_steps);
                if let Some(bar) = display.bar(BAR) {
                    bar.reset();
                    bar.set_length(*max_steps);
                    bar.set_position(*resumed_at);
                }
            }
            TrainEvent::Trials { of } | TrainEvent::Members { of } => {
                (self.started, self.paced) = (Instant::now(), Instant::now());
                self.part = if matches!(event, TrainEvent::Trials { .. }) { "trial" } else { "member" };
                self.left = *of;
                if let Some(bar) = display.bar(BAR) {
                    bar.reset();
                    bar.set_length(PARTS);
                    bar.set_message(format!("{of} {}s", self.part));
                }
            }
            TrainEvent::Warmed { step, .. } => (self.paced, self.steps.0) = (Instant::now(), *step),
            TrainEvent::Validated(progress) => {
                let done = (progress.step.saturating_sub(self.steps.0)) as f64;
                let done = done / self.steps.1.saturating_sub(self.steps.0).max(1) as f64;
                self.validated(figures(progress), done, minutes, display);
            }
            TrainEvent::PartValidated { number, of, done, progress } => {
                display.advance(BAR, (done * PARTS as f64) as u64);
                let figures = format!(
                    "{} {number} of {of}: step {} valid {:.3} best {:.3}",
                    self.part, progress.step, progress.valid_nll, progress.best_valid_nll
                );
                self.validated(figures, *done, minutes, display);
            }
            TrainEvent::Recovered { step, cause, learning_rate } => display.warn(&format!(
                "step {step}: {cause}; back to the best weights with step size {learning_rate:.2e}"
            )),
            TrainEvent::Warning { text } => display.warn(text),
            TrainEvent::Member { .. } => {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    display.clear();
                }
            }
            TrainEvent::Finished { .. } | TrainEvent::Chosen { .. } => display.clear(),
            _ => {}
        }
    }

    /// Shows the figures of a validation, after this part of the work.
    fn validated(&mut self, figures: String, done: f64, minutes: Option<f64>, display: &mut Display) {
        if let Some(bar) = display.bar(BAR) {
            let left = match self.time_left(done, minutes) {
                Some(left) => format!(" <{:#}", HumanDuration(left)),
                None => String::new(),
            };
            let elapsed = HumanDuration(self.started.elapsed());
            bar.set_message(format!("{figures} {elapsed:#}{left}"));
            return;
        }
        let line = || format!("{figures} {:.0}s", self.begun.elapsed().as_secs_f64());
        match self.told {
            true => display.line(line),
            false => display.say(&line()),
        }
        self.told = true;
    }

    /// The longest the run may still take, when this part of it is done: by the steps allowed and by the time budget.
    fn time_left(&self, done: f64, minutes: Option<f64>) -> Option<Duration> {
        let by_steps =
            (done > 0.0).then(|| self.paced.elapsed().as_secs_f64() * (1.0 - done).max(0.0) / done);
        let by_budget =
            minutes.map(|minutes| (60.0 * minutes - self.started.elapsed().as_secs_f64()).max(0.0));
        let least = by_steps.into_iter().chain(by_budget).reduce(f64::min)?;
        Duration::try_from_secs_f64(least).ok()
    }
}

/// Epoch, losses and step size of a validation; with the bar and the times still within 80 letters.
fn figures(progress: &Progress) -> String {
    format!(
        "epoch {:.0} step {} train {:.3} valid {:.3} best {:.3} rate {:.0e}",
        progress.epoch,
        progress.step,
        progress.train_nll,
        progress.valid_nll,
        progress.best_valid_nll,
        progress.learning_rate
    )
}

/// The first line of a run, or of a part of it.
fn opening(event: &TrainEvent) -> Option<String> {
    match event {
        TrainEvent::Block { number, of, columns, conditional } => {
            let names = match columns.as_slice() {
                [first, .., last] if columns.len() > LISTED => {
                    format!("{first} … {last} ({})", columns.len())
                }
                all => all.join(", "),
            };
            let given = if *conditional { " given the rest" } else { "" };
            Some(format!("block {number} of {of}: {names}{given}"))
        }
        TrainEvent::Surrogate { number, of, inputs, outputs } => {
            let which = if *of > 1 { format!(" {number} of {of}") } else { String::new() };
            Some(format!("surrogate{which} of the simulator: {outputs} given numbers from {inputs} targets"))
        }
        TrainEvent::Imitated { explained } => Some(format!(
            "the surrogate explains {:.1} % of the variance of the given columns, in rows that it did not learn from",
            100.0 * explained
        )),
        TrainEvent::Trials { of } => Some(format!("{of} trials of methods side by side, one thread each")),
        TrainEvent::Chosen { text } => Some(format!("chosen: {text} (standardised)")),
        TrainEvent::Members { of } => Some(format!("training {of} members side by side, one thread each")),
        TrainEvent::Member { number, of, best_valid_nll } => {
            Some(format!("member {number} of {of}: validation NLL {best_valid_nll:.4} (standardised)"))
        }
        TrainEvent::Warmed { step, best_valid_nll } => {
            Some(format!("warm start of {step} steps: validation NLL {best_valid_nll:.4} (standardised)"))
        }
        TrainEvent::Started { train_rows, valid_rows, parameters, resumed_at, .. } => {
            let resumed = match resumed_at {
                0 => String::new(),
                step => format!(", resumed at step {step}"),
            };
            Some(format!(
                "training {parameters} parameters on {train_rows} rows, {valid_rows} more to validate{resumed} \
                 (standardised; train: the loss of the steps, penalties included; valid, best: mean NLL)"
            ))
        }
        _ => None,
    }
}
