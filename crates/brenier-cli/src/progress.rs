//! Observers of a training run: the terminal, a log file, and several of them at once.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brenier::train::{Progress, TrainEvent};
use brenier::{Error, Event, Observer};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Seconds between the lines of a run whose standard error is not a terminal.
pub(crate) const LINE_SECONDS: u64 = 15;
/// Names of columns that a line lists at most.
const LISTED: usize = 8;

/// Passes every event on to each of its members.
pub(crate) struct FanOut(pub(crate) Vec<Box<dyn Observer>>);

impl Observer for FanOut {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.0.iter_mut().try_for_each(|observer| observer.event(event))
    }

    fn stepped(&mut self, step: u64) {
        self.0.iter_mut().for_each(|observer| observer.stepped(step));
    }
}

/// The observer for the screen: a bar on a terminal, a line now and then elsewhere, warnings only when quiet.
pub(crate) fn screen(quiet: bool, minutes: Option<f64>) -> Box<dyn Observer> {
    if quiet {
        Box::new(Quiet)
    } else if std::io::stderr().is_terminal() {
        Box::new(Bar::new(minutes))
    } else {
        Box::new(Lines { started: Instant::now(), last: None })
    }
}

/// Shows, until it is dropped, that work is going on that has no steps to report: what, and for how long.
pub(crate) struct Waiting {
    bar: Option<ProgressBar>,
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A line with the time on a terminal, one every [`LINE_SECONDS`] elsewhere, nothing when quiet.
pub(crate) fn waiting(doing: impl Into<String>) -> Waiting {
    let doing = doing.into();
    if output::quiet() {
        return Waiting { bar: None, lines: None };
    }
    if std::io::stderr().is_terminal() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {msg} … {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(doing);
        bar.enable_steady_tick(Duration::from_millis(250));
        return Waiting { bar: Some(bar), lines: None };
    }
    let (end, ended) = channel();
    let started = Instant::now();
    let lines = std::thread::spawn(move || {
        while ended.recv_timeout(Duration::from_secs(LINE_SECONDS)) == Err(RecvTimeoutError::Timeout) {
            output::note(&format!("{doing} … {:.0} s", started.elapsed().as_secs_f64()));
        }
    });
    Waiting { bar: None, lines: Some((end, lines)) }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some((end, lines)) = self.lines.take() {
            drop(end);
            let _ = lines.join();
        }
    }
}

fn recovery(step: u64, cause: &str, learning_rate: f64) -> String {
    format!("step {step}: {cause}; back to the best weights with step size {learning_rate:.2e}")
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

/// The first line of a run, or of a block of a joint map.
fn opening(event: &TrainEvent) -> Option<String> {
    if let TrainEvent::Block { number, of, columns, conditional } = event {
        let names = match columns.as_slice() {
            [first, .., last] if columns.len() > LISTED => format!("{first} … {last} ({})", columns.len()),
            all => all.join(", "),
        };
        let given = if *conditional { " given the rest" } else { "" };
        return Some(format!("block {number} of {of}: {names}{given}"));
    }
    match event {
        TrainEvent::Members { of } => {
            return Some(format!("training {of} members side by side, one thread each"));
        }
        TrainEvent::Member { number, of, best_valid_nll } => {
            return Some(format!(
                "member {number} of {of}: validation NLL {best_valid_nll:.4} (standardised)"
            ));
        }
        _ => {}
    }
    let TrainEvent::Started { train_rows, valid_rows, parameters, resumed_at, .. } = event else {
        return None;
    };
    let resumed = match resumed_at {
        0 => String::new(),
        step => format!(", resumed at step {step}"),
    };
    Some(format!(
        "training {parameters} parameters on {train_rows} rows, {valid_rows} more to validate{resumed} \
         (standardised; train: the loss of the steps, penalties included; valid, best: mean NLL)"
    ))
}

struct Quiet;

impl Observer for Quiet {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let Event::Train(event) = event else { return Ok(()) };
        match event {
            TrainEvent::Recovered { step, cause, learning_rate } => {
                output::warning(&recovery(*step, cause, *learning_rate));
            }
            TrainEvent::Warning { text } => output::warning(text),
            _ => {}
        }
        Ok(())
    }
}

struct Lines {
    started: Instant,
    last: Option<Instant>,
}

impl Observer for Lines {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let Event::Train(event) = event else { return Ok(()) };
        if let Some(text) = opening(event) {
            output::note(&text);
        }
        match event {
            TrainEvent::Validated(progress) => {
                let due = |last: Instant| last.elapsed() >= Duration::from_secs(LINE_SECONDS);
                if self.last.is_none_or(due) {
                    self.last = Some(Instant::now());
                    output::note(&format!(
                        "{} {:.0}s",
                        figures(progress),
                        self.started.elapsed().as_secs_f64()
                    ));
                }
            }
            TrainEvent::Recovered { step, cause, learning_rate } => {
                output::warning(&recovery(*step, cause, *learning_rate));
            }
            TrainEvent::Warning { text } => output::warning(text),
            _ => {}
        }
        Ok(())
    }
}

/// A bar over the steps allowed; the run usually ends earlier, when the validation loss no longer improves.
struct Bar {
    bar: ProgressBar,
    started: Instant,
    /// First step of this run, and the last allowed.
    steps: (u64, u64),
    minutes: Option<f64>,
}

impl Bar {
    fn new(minutes: Option<f64>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style =
            ProgressStyle::with_template("{bar:6} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, started: Instant::now(), steps: (0, 0), minutes }
    }

    /// The longest the run may still take: by the steps allowed and by the time budget.
    fn time_left(&self, step: u64) -> Option<Duration> {
        let elapsed = self.started.elapsed().as_secs_f64();
        let done = step.saturating_sub(self.steps.0);
        let by_steps = (done > 0).then(|| elapsed / done as f64 * self.steps.1.saturating_sub(step) as f64);
        let by_budget = self.minutes.map(|minutes| (60.0 * minutes - elapsed).max(0.0));
        let least = by_steps.into_iter().chain(by_budget).reduce(f64::min)?;
        Duration::try_from_secs_f64(least).ok()
    }
}

impl Observer for Bar {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let Event::Train(event) = event else { return Ok(()) };
        if let Some(text) = opening(event) {
            self.bar.println(text);
        }
        match event {
            TrainEvent::Started { resumed_at, max_steps, .. } => {
                self.started = Instant::now();
                self.steps = (*resumed_at, *max_steps);
                self.bar.reset();
                self.bar.set_length(*max_steps);
                self.bar.set_position(*resumed_at);
                self.bar.enable_steady_tick(Duration::from_millis(250));
            }
            TrainEvent::Validated(progress) => {
                let left = match self.time_left(progress.step) {
                    Some(left) => format!(" <{:#}", HumanDuration(left)),
                    None => String::new(),
                };
                let elapsed = HumanDuration(self.started.elapsed());
                self.bar.set_message(format!("{} {elapsed:#}{left}", figures(progress)));
            }
            TrainEvent::Recovered { step, cause, learning_rate } => {
                self.bar.println(format!("warning: {}", recovery(*step, cause, *learning_rate)));
            }
            TrainEvent::Warning { text } => self.bar.suspend(|| output::warning(text)),
            TrainEvent::Finished { .. } => self.bar.finish_and_clear(),
            _ => {}
        }
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        self.bar.set_position(step);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One JSON object a line and event, with the `seconds` since the command began.
pub(crate) struct JsonLog {
    path: PathBuf,
    file: Option<File>,
    started: Instant,
}

impl JsonLog {
    /// A fresh log; `append` adds to an older one, for runs that go on.
    pub(crate) fn create(path: &Path, append: bool) -> Result<Self, Error> {
        let mut options = File::options();
        let options = if append { options.append(true) } else { options.write(true).truncate(true) };
        let file =
            options.create(true).open(path).map_err(|source| Error::io(path, "write the log", source))?;
        Ok(Self { path: path.to_owned(), file: Some(file), started: Instant::now() })
    }
}

impl JsonLog {
    /// Adds a line for `event`.
    pub(crate) fn write(&mut self, event: &impl serde::Serialize) {
        let Some(file) = &mut self.file else { return };
        let seconds = self.started.elapsed().as_secs_f64();
        let line = serde_json::to_value(event).map(|mut object| {
            object["seconds"] = seconds.into();
            format!("{object}\n")
        });
        // In one write, so that a reader never sees half a line; nothing stays behind in a buffer.
        let written = line.map_err(std::io::Error::from).and_then(|line| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            output::warning(&format!("{}: the log ends here: {error}", self.path.display()));
            self.file = None;
        }
    }
}

impl Observer for JsonLog {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        self.write(event);
        Ok(())
    }
}
