//! Long calls: on a thread of their own, watched and stopped from Python.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brenier::{Event, Observer, Run, StopToken};
use pyo3::prelude::*;

use crate::error::{exception, raised};
use crate::pool::pool;

/// Makes the Python object from what a call has computed.
type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

#[derive(Default)]
struct State {
    events: Vec<String>,
    step: u64,
    ended: bool,
    result: Option<PyResult<Finish>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects events as JSON until Python asks for them.
struct Collector(Arc<Shared>);

impl Observer for Collector {
    fn event(&mut self, event: &Event) -> brenier::Result<()> {
        if let Ok(text) = serde_json::to_string(event) {
            self.0.lock().events.push(text);
        }
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        self.0.lock().step = step;
    }
}

/// What a Python callable raised inside of a call; it takes the place of the call's own error.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

/// A long call on a thread of its own.
#[pyclass(frozen, module = "brenier._core")]
pub(crate) struct Job {
    shared: Arc<Shared>,
    stop: StopToken,
}

impl Job {
    /// Starts `work` in the pool; `finish` makes a Python object of its result.
    pub(crate) fn start<T: Send + 'static>(
        raised_inside: Raised,
        work: impl FnOnce(Run<'_>) -> brenier::Result<T> + Send + 'static,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Self> {
        let (pool, shared, stop) = (pool()?, Arc::new(Shared::default()), StopToken::new());
        let job = Self { shared: shared.clone(), stop: stop.clone() };
        let body = move || {
            let mut collector = Collector(shared.clone());
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| work(Run::observed(&mut collector).stop(&stop)))
            }));
            let inside = raised_inside.lock().unwrap_or_else(PoisonError::into_inner).take();
            let result = match (inside, result) {
                (Some(error), _) => Err(error),
                (None, Ok(Ok(value))) => Ok(Box::new(move |py: Python<'_>| finish(py, value)) as Finish),
                (None, Ok(Err(error))) => Err(raised(error)),
                (None, Err(panic)) => Err(exception("BrenierError", panic_text(&*panic))),
            };
            let mut state = shared.lock();
            (state.result, state.ended) = (Some(result), true);
            shared.changed.notify_all();
        };
        std::thread::Builder::new()
            .name("brenier-call".to_owned())
            .spawn(body)
            .map_err(|error| exception("BrenierError", format!("cannot start a thread: {error}")))?;
        Ok(job)
    }
}

/// What a panic says, for a report of it.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    format!("this is a mistake in brenier, please report it: {text}")
}

#[pymethods]
impl Job {
    /// Waits at most this many seconds; returns whether the call has ended.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        py.detach(|| {
            let state = self.shared.lock();
            let waited = self.shared.changed.wait_timeout_while(state, time, |state| !state.ended);
            waited.unwrap_or_else(PoisonError::into_inner).0.ended
        })
    }

    /// The events since the last time, as JSON.
    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().events)
    }

    /// The last training step.
    #[getter]
    fn step(&self) -> u64 {
        self.shared.lock().step
    }

    /// Asks the call to end with the best it has.
    fn stop(&self) {
        self.stop.stop();
    }

    /// The result of a call that has ended; it can be taken once.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let result = self.shared.lock().result.take();
        match result {
            Some(finish) => finish?(py),
            None => Err(exception("BrenierError", "the call has no result to take".to_owned())),
        }
    }
}
