//! The log of a long command, and several observers at once.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use brenier::abc::AbcEvent;
use brenier::{Error, Event, Observer};

use crate::output;

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

/// One JSON object per line and event, with the `seconds` since the command began.
pub(crate) struct JsonLog {
    path: PathBuf,
    file: Option<File>,
    started: Instant,
}

impl JsonLog {
    /// A fresh log; `append` adds to an older one, for runs that are resumed.
    pub(crate) fn create(path: &Path, append: bool) -> Result<Self, Error> {
        let mut options = File::options();
        let options = if append { options.append(true) } else { options.write(true).truncate(true) };
        let file =
            options.create(true).open(path).map_err(|source| Error::io(path, "write the log", source))?;
        Ok(Self { path: path.to_owned(), file: Some(file), started: Instant::now() })
    }
}

impl Observer for JsonLog {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        // The pilot and the batches of ABC are too many for a log.
        if let Some(AbcEvent::Pilot { .. } | AbcEvent::Progress { .. }) = event.get() {
            return Ok(());
        }
        let Some(file) = &mut self.file else { return Ok(()) };
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
        Ok(())
    }
}
