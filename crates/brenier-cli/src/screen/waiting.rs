//! Work that has no steps to report: what, and for how long.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::display::LINE_TIME;
use crate::output;

/// Shows, until it is dropped, that work is going on.
pub(crate) struct Waiting {
    bar: Option<ProgressBar>,
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

/// A line with the time on a terminal, one every [`LINE_TIME`] elsewhere, nothing when quiet.
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
        while ended.recv_timeout(LINE_TIME) == Err(RecvTimeoutError::Timeout) {
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
