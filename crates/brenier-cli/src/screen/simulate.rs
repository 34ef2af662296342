//! A simulation: its rows as a bar, with their rate and the time left.

use std::time::{Duration, Instant};

use brenier::simulate::SimulateEvent;
use indicatif::{HumanCount, HumanDuration};

use super::display::Display;

const BAR: &str = "{bar:20} {human_pos}/{human_len} rows {msg}";

pub(super) struct Face {
    started: Instant,
    rows: u64,
    resumed: u64,
}

impl Face {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), rows: 0, resumed: 0 }
    }

    pub(super) fn show(&mut self, event: &SimulateEvent, display: &mut Display) {
        match event {
            SimulateEvent::Started { rows, resumed } => {
                *self = Self { started: Instant::now(), rows: *rows, resumed: *resumed };
                if let Some(bar) = display.bar(BAR) {
                    bar.set_length(*rows);
                    bar.set_position(*resumed);
                }
                if *resumed > 0 {
                    display.say(&format!("continuing after {resumed} of {rows} rows"));
                }
            }
            SimulateEvent::Progress { done, abandoned, failed } => {
                let text = self.text(*done, *abandoned, *failed);
                if let Some(bar) = display.bar(BAR) {
                    bar.set_position(*done);
                    bar.set_message(text);
                } else {
                    display.line(|| format!("{done}/{} rows, {text}", self.rows));
                }
            }
            SimulateEvent::Silent { notice } => display.warn(notice),
            // Events that are newer than this screen are not shown.
            _ => {}
        }
    }

    fn text(&self, done: u64, abandoned: u64, failed: u64) -> String {
        let rate = (done - self.resumed) as f64 / self.started.elapsed().as_secs_f64().max(1e-9);
        let left = Duration::try_from_secs_f64((self.rows - done) as f64 / rate.max(1e-9));
        let mut text = match rate < 10.0 {
            true => format!("{rate:.2}/s"),
            false => format!("{}/s", HumanCount(rate as u64)),
        };
        if abandoned > 0 {
            let part = 100.0 * abandoned as f64 / (abandoned + done) as f64;
            text.push_str(&format!(", {part:.0} % abandoned"));
        }
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
        if let Ok(left) = left {
            text.push_str(&format!(", {:#} left", HumanDuration(left)));
        }
        text
    }
}
