//! What surrounds a long call: who observes it, what may end it, and where its state is kept.
//!
//! Fits, searches, simulations, ABC, checks, downloads and reproductions all take a [`Run`]. Its [`Observer`] receives
//! [`Event`]s and may fail, which ends the call; its [`StopToken`] ends the call from elsewhere with the best it has, or with
//! [`Error::Stopped`] where it has nothing yet; its [`Journal`] says where the state is kept, so that a call that was stopped or killed can be resumed and ends in the same bits.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::{Error, Result};

/// The events of one kind of call, such as a training: plain data that can be written to a log.
pub trait EventKind: Any + fmt::Debug + Serialize + Send + Sync {}

/// An event of a long call: a value of some [`EventKind`], which [`get`](Event::get) gives back.
///
/// ```
/// use brenier_data::{Event, EventKind};
///
/// #[derive(Debug, serde::Serialize)]
/// struct Watered {
///     plants: usize,
/// }
/// impl EventKind for Watered {}
///
/// let event = Event::new(Watered { plants: 3 });
/// assert!(matches!(event.get(), Some(Watered { plants: 3 })));
/// ```
pub struct Event(Box<dyn AnyEvent>);

/// What an [`Event`] needs of the value that it holds.
trait AnyEvent: fmt::Debug + Send + Sync {
    fn value(&self) -> &dyn Any;
    fn json(&self) -> serde_json::Result<serde_json::Value>;
}

impl<E: EventKind> AnyEvent for E {
    fn value(&self) -> &dyn Any {
        self
    }

    fn json(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(self)
    }
}

impl Event {
    /// The event that `value` describes.
    pub fn new(value: impl EventKind) -> Self {
        Self(Box::new(value))
    }

    /// The value, where it is of this kind.
    pub fn get<E: EventKind>(&self) -> Option<&E> {
        self.0.value().downcast_ref()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json().map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// Receives the events of a call: a progress bar, a log, a callback.
pub trait Observer: Send {
    /// Called from one thread at a time; keep it short. An error ends the call and becomes its own.
    fn event(&mut self, event: &Event) -> Result<()>;

    /// Called after every step of a training with the step's number; for progress bars.
    fn stepped(&mut self, _step: u64) {}
}

/// A closure is an observer.
impl<F: FnMut(&Event) -> Result<()> + Send> Observer for F {
    fn event(&mut self, event: &Event) -> Result<()> {
        self(event)
    }
}

/// Ignores every event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn event(&mut self, _event: &Event) -> Result<()> {
        Ok(())
    }
}

/// Ends long calls from elsewhere: another thread, a signal handler, a button. Clones share one state.
#[derive(Clone, Debug)]
pub struct StopToken(Flag);

#[derive(Clone, Debug)]
enum Flag {
    Shared(Arc<AtomicBool>),
    /// As a signal handler has it.
    Static(&'static AtomicBool),
}

impl Default for StopToken {
    fn default() -> Self {
        Self(Flag::Shared(Arc::default()))
    }
}

impl StopToken {
    /// A token that has not been used.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token around a flag of the program.
    pub fn from_static(flag: &'static AtomicBool) -> Self {
        Self(Flag::Static(flag))
    }

    fn flag(&self) -> &AtomicBool {
        match &self.0 {
            Flag::Shared(flag) => flag,
            Flag::Static(flag) => flag,
        }
    }

    /// Asks every call that has the token to end soon, with the best it has.
    pub fn stop(&self) {
        self.set(true);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.flag().load(Ordering::Relaxed)
    }

    /// [`Error::Stopped`] once [`stop`](Self::stop) was called, for calls that have no result before their end.
    pub fn go_on(&self) -> Result<()> {
        match self.is_stopped() {
            true => Err(Error::Stopped("stopped before there was a result".to_owned())),
            false => Ok(()),
        }
    }

    /// Sets or clears the request to stop.
    pub fn set(&self, stopped: bool) {
        self.flag().store(stopped, Ordering::Relaxed);
    }
}

/// Where the state of a call is kept while it lasts: a file or, for searches and reproductions, a folder.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal {
    /// The file or folder.
    pub path: PathBuf,
    /// Time between two writings of a state that is written as a whole.
    pub every: Duration,
    /// Whether to continue from what is there; otherwise it is replaced.
    pub resume: bool,
    /// Whether a call that came to its end leaves its state behind too, so that it need not be repeated.
    pub keep: bool,
}

impl Journal {
    /// At `path`, written every 30 seconds, continuing from what is there.
    pub fn at(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), every: Duration::from_secs(30), resume: true, keep: false }
    }

    /// That of a part of the call, whose state is kept until the whole has ended.
    pub fn part(&self, ending: &str) -> Self {
        let mut path = self.path.as_os_str().to_owned();
        path.push(ending);
        Self { path: path.into(), keep: true, ..self.clone() }
    }
}

/// What surrounds a long call.
#[derive(Default)]
pub struct Run<'a> {
    observer: Option<&'a mut dyn Observer>,
    stop: StopToken,
    journal: Option<Journal>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Run")
            .field("stop", &self.stop)
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

impl<'a> Run<'a> {
    /// Nobody observes it, nothing ends it, and no state is kept.
    pub fn silent() -> Self {
        Self::default()
    }

    /// `observer` receives the events.
    pub fn observed(observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), ..Self::default() }
    }

    /// The same, which `stop` ends.
    pub fn stop(mut self, stop: &StopToken) -> Self {
        self.stop = stop.clone();
        self
    }

    /// The same, whose state is kept.
    pub fn journal(mut self, journal: impl Into<Option<Journal>>) -> Self {
        self.journal = journal.into();
        self
    }

    /// Tells the observer.
    pub fn tell(&mut self, event: impl EventKind) -> Result<()> {
        match &mut self.observer {
            Some(observer) => observer.event(&Event::new(event)),
            None => Ok(()),
        }
    }

    /// Reports a step of a training to the observer.
    pub fn stepped(&mut self, step: u64) {
        if let Some(observer) = &mut self.observer {
            observer.stepped(step);
        }
    }

    /// Whether the call was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_stopped()
    }

    /// [`Error::Stopped`] once the call was asked to end, for calls that have no result before their end.
    pub fn go_on(&self) -> Result<()> {
        self.stop.go_on()
    }

    /// The token that ends the call.
    pub fn token(&self) -> &StopToken {
        &self.stop
    }

    /// Where the state is kept, if it is.
    pub fn plan(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// An observer that tells this run's what `translate` makes of each event, for a part of another kind.
    pub fn translating<F>(&mut self, translate: F) -> Translating<'_, F>
    where
        F: FnMut(&Event) -> Option<Event> + Send,
    {
        Translating { run: self.part(None), translate }
    }

    /// A part of the same call: the same observer and token, a journal of its own.
    pub fn part(&mut self, journal: Option<Journal>) -> Run<'_> {
        let observer = self.observer.as_mut().map(|observer| &mut **observer as &mut dyn Observer);
        Run { observer, stop: self.stop.clone(), journal }
    }
}

/// See [`Run::translating`].
pub struct Translating<'a, F> {
    run: Run<'a>,
    translate: F,
}

impl<F: FnMut(&Event) -> Option<Event> + Send> Observer for Translating<'_, F> {
    fn event(&mut self, event: &Event) -> Result<()> {
        match (self.translate)(event) {
            Some(event) => match &mut self.run.observer {
                Some(observer) => observer.event(&event),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }
}
