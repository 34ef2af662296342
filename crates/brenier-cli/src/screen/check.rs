//! A check: a bar for every stage.

use brenier::check::{CheckEvent, Stage};

use super::display::Display;

const BAR: &str = "{bar:20} {human_pos}/{human_len} {msg}";

/// What is being done, and how often it will be.
#[derive(Default)]
pub(super) struct Face {
    name: &'static str,
    of: usize,
}

impl Face {
    pub(super) fn show(&mut self, event: &CheckEvent, display: &mut Display) {
        match *event {
            CheckEvent::Started { stage, of } => {
                let name = match stage {
                    Stage::Densities => "rows scored",
                    Stage::Calibration => "pairs drawn at",
                    Stage::Certificates => "pairs certified",
                    Stage::Predictive => "simulations",
                    Stage::Members => "models compared",
                    _ => "done",
                };
                *self = Self { name, of };
                if let Some(bar) = display.bar(BAR) {
                    bar.set_length(of as u64);
                    bar.set_position(0);
                    bar.set_message(name);
                }
            }
            CheckEvent::Advanced { done, .. } => {
                display.advance(BAR, done as u64);
                display.line(|| format!("{done}/{} {}", self.of, self.name));
            }
            // Events that are newer than this screen are not shown.
            _ => {}
        }
    }
}
