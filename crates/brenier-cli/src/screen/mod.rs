//! The screen of every long command: one observer that shows the events of any kind.
//!
//! On a terminal there is a bar, elsewhere a line now and then; when quiet there are only warnings. A kind of event has a
//! file of its own, which says what its bar and lines are; [`Display`] knows how they are drawn.

mod abc;
mod check;
mod display;
mod fetch;
mod simulate;
mod train;
mod tune;
mod waiting;

pub(crate) use waiting::waiting;

use brenier::abc::AbcEvent;
use brenier::check::CheckEvent;
use brenier::data::FetchEvent;
use brenier::reproduce::UciEvent;
use brenier::reproduce::experiment::ExperimentEvent;
use brenier::simulate::SimulateEvent;
use brenier::train::TrainEvent;
use brenier::tune::TuneEvent;
use brenier::{Error, Event, Observer};

use display::Display;

/// Shows what a command does, until it is dropped.
pub(crate) struct Screen {
    display: Display,
    /// What is fetched.
    name: String,
    /// The time budget of a training.
    minutes: Option<f64>,
    training: train::Face,
    search: tune::Face,
    simulation: simulate::Face,
    check: check::Face,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self {
            display: Display::new(),
            name: String::new(),
            minutes: None,
            training: train::Face::new(),
            search: tune::Face::new(),
            simulation: simulate::Face::new(),
            check: check::Face::default(),
        }
    }

    /// The same for a training that may take so long.
    pub(crate) fn minutes(mut self, minutes: Option<f64>) -> Self {
        self.minutes = minutes;
        self
    }

    /// The same for a download of `name`.
    pub(crate) fn fetching(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }
}

impl Observer for Screen {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        if let Some(event) = event.get::<TrainEvent>() {
            self.training.show(event, self.minutes, &mut self.display);
        } else if let Some(event) = event.get::<TuneEvent>() {
            self.search.show(event, &mut self.display);
        } else if let Some(event) = event.get::<SimulateEvent>() {
            self.simulation.show(event, &mut self.display);
        } else if let Some(event) = event.get::<AbcEvent>() {
            abc::show(event, &mut self.display);
        } else if let Some(event) = event.get::<CheckEvent>() {
            self.check.show(event, &mut self.display);
        } else if let Some(event) = event.get::<FetchEvent>() {
            fetch::show(event, &self.name, &mut self.display);
        } else if let Some(event) = event.get::<UciEvent>() {
            match event {
                UciEvent::Folds { count } => self.search.stage("folds", 0, *count, &mut self.display),
                UciEvent::Fold { nll } => self.search.step(Some(*nll), None, &mut self.display),
                // Events that are newer than this screen are not shown.
                _ => {}
            }
        } else if let Some(ExperimentEvent::Step { title, .. }) = event.get() {
            // Clocks and bars begin anew.
            *self = Self::new();
            self.display.say(&format!("{title}:"));
        }
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        self.display.advance(train::BAR, step);
    }
}
