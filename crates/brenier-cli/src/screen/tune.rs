//! A search for settings: the trainings of a stage as a bar, a line for every full training.

use std::time::Instant;

use brenier::tune::TuneEvent;
use indicatif::HumanDuration;

use super::display::Display;

const BAR: &str = "{bar:20} {pos}/{len} {msg}";

/// The stage at hand.
pub(super) struct Face {
    started: Instant,
    stage: String,
    done: usize,
    jobs: usize,
    best: f64,
}

impl Face {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), stage: String::new(), done: 0, jobs: 0, best: f64::INFINITY }
    }

    pub(super) fn show(&mut self, event: &TuneEvent, display: &mut Display) {
        match event {
            TuneEvent::Started { rung, jobs, finished } => {
                let stage = match rung {
                    Some(rung) => format!("pilots, round {}", rung + 1),
                    None => "full trainings".to_owned(),
                };
                self.stage(&stage, *finished, jobs + finished, display);
            }
            TuneEvent::Pilot(pilot) => self.step(pilot.valid_nll, None, display),
            TuneEvent::Final(training) => {
                let nll = training.valid_nll.map_or("none".to_owned(), |nll| format!("{nll:.4}"));
                let test = training.test_nll.map(|nll| format!(", test {nll:.4}")).unwrap_or_default();
                let line = format!(
                    "trial {} seed {}: validation NLL {nll}{test}, {:.0} epochs, {:.0} s",
                    training.trial, training.seed, training.epochs, training.seconds
                );
                self.step(training.valid_nll, Some(&line), display);
            }
            TuneEvent::Warning { text } => display.warn(text),
            // Events that are newer than this screen are not shown.
            _ => {}
        }
    }

    /// A stage of `jobs` trainings begins, of which some were finished in an earlier run.
    pub(super) fn stage(&mut self, name: &str, finished: usize, jobs: usize, display: &mut Display) {
        name.clone_into(&mut self.stage);
        (self.done, self.jobs, self.best) = (finished, jobs, f64::INFINITY);
        if let Some(bar) = display.bar(BAR) {
            bar.set_length(jobs as u64);
            bar.set_position(finished as u64);
            bar.set_message(self.stage.clone());
        }
        let earlier = match finished {
            0 => String::new(),
            count => format!(", {count} of them finished earlier"),
        };
        display.say(&format!("{}: {jobs}{earlier}", self.stage));
    }

    /// A training ended with this validation NLL.
    pub(super) fn step(&mut self, nll: Option<f64>, line: Option<&str>, display: &mut Display) {
        self.done += 1;
        self.best = nll.map_or(self.best, |nll| self.best.min(nll));
        if let Some(bar) = display.bar(BAR) {
            let elapsed = HumanDuration(self.started.elapsed());
            bar.set_position(self.done as u64);
            bar.set_message(format!("{}, best validation NLL {:.4}, {elapsed:#}", self.stage, self.best));
        }
        match line {
            Some(line) => display.say(line),
            None => display
                .line(|| format!("{}: {} of {}, best {:.4}", self.stage, self.done, self.jobs, self.best)),
        }
    }
}
