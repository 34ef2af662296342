//! A bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Time between the lines of a run whose standard error is not a terminal.
pub(super) const LINE_TIME: Duration = Duration::from_secs(15);

/// At most one bar, on a terminal; the last line, elsewhere.
pub(super) struct Display {
    terminal: bool,
    /// The bar and what it looks like.
    bar: Option<(&'static str, ProgressBar)>,
    last: Instant,
}

impl Display {
    pub(super) fn new() -> Self {
        let terminal = !output::quiet() && std::io::stderr().is_terminal();
        Self { terminal, bar: None, last: Instant::now() }
    }

    /// The bar that looks like `template`, in place of another; none where there is no terminal.
    pub(super) fn bar(&mut self, template: &'static str) -> Option<&ProgressBar> {
        if !self.terminal {
            return None;
        }
        if self.bar.as_ref().is_none_or(|(own, _)| *own != template) {
            self.clear();
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style);
            bar.enable_steady_tick(Duration::from_millis(250));
            self.bar = Some((template, bar));
        }
        self.bar.as_ref().map(|(_, bar)| bar)
    }

    /// Moves the bar, if it is the one that looks like `template`.
    pub(super) fn advance(&self, template: &'static str, position: u64) {
        if let Some((_, bar)) = self.bar.as_ref().filter(|(own, _)| *own == template) {
            bar.set_position(position);
        }
    }

    /// Takes the bar away.
    pub(super) fn clear(&mut self) {
        if let Some((_, bar)) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    /// A line that stays, above the bar; nothing when quiet.
    pub(super) fn say(&mut self, text: &str) {
        self.last = Instant::now();
        self.above(|| output::note(text));
    }

    /// A line that would be the bar's on a terminal; elsewhere one now and then.
    pub(super) fn line(&mut self, text: impl FnOnce() -> String) {
        if !self.terminal && self.last.elapsed() >= LINE_TIME {
            self.say(&text());
        }
    }

    /// A warning, also when quiet.
    pub(super) fn warn(&mut self, text: &str) {
        self.above(|| output::warning(text));
    }

    fn above(&self, write: impl FnOnce()) {
        match &self.bar {
            Some((_, bar)) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.clear();
    }
}
