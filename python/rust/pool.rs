//! The threads that the package computes with: a pool of its own, built when it is first needed, anew in every process.
//!
//! After `fork` the threads of the parent do not exist in the child, and a pool that believes in them would wait forever. The
//! pool is therefore kept together with the id of the process that built it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brenier::StopToken;
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::exception;

struct Pools {
    /// Threads asked for; 0 for as many as the machine has.
    threads: usize,
    /// The process, its number of threads, and its pool.
    current: Option<(u32, usize, Arc<ThreadPool>)>,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools { threads: 0, current: None });

/// The pool of this process.
pub(crate) fn pool() -> PyResult<Arc<ThreadPool>> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let (id, threads) = (std::process::id(), pools.threads);
    match &pools.current {
        Some((owner, own, pool)) if (*owner, *own) == (id, threads) => return Ok(pool.clone()),
        _ => {}
    }
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|number| format!("brenier-{number}"))
        .build()
        .map_err(|error| exception("BrenierError", format!("cannot start the threads: {error}")))?;
    let pool = Arc::new(pool);
    if let Some((owner, _, old)) = pools.current.replace((id, threads, pool.clone()))
        && owner != id
    {
        // Its threads stayed in the parent; to end them would be to wait for them.
        std::mem::forget(old);
    }
    Ok(pool)
}

/// Computes in the pool with the interpreter released.
pub(crate) fn compute<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let pool = pool()?;
    Ok(py.detach(|| pool.install(work)))
}

/// The same for work that a signal may end, such as Ctrl-C: its exception is raised when the work has ended.
pub(crate) fn compute_until<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&StopToken) -> T + Send,
) -> PyResult<T> {
    let (pool, token) = (pool()?, StopToken::new());
    let (sender, result) = mpsc::channel();
    py.detach(|| {
        let stop = &token;
        std::thread::scope(move |scope| {
            scope.spawn(move || sender.send(pool.install(|| work(stop))));
            let mut signal = None;
            loop {
                match result.recv_timeout(Duration::from_millis(100)) {
                    Ok(value) => return signal.map_or(Ok(value), Err),
                    Err(RecvTimeoutError::Timeout) if signal.is_none() => {
                        signal = Python::attach(|py| py.check_signals()).err();
                        stop.set(signal.is_some());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(exception("BrenierError", "the call ended without a result".to_owned()));
                    }
                }
            }
        })
    })
}

/// Sets the number of threads; 0 for as many as the machine has.
#[pyfunction]
pub(crate) fn set_threads(threads: usize) {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner).threads = threads;
}

/// The number of threads.
#[pyfunction]
pub(crate) fn threads() -> PyResult<usize> {
    Ok(pool()?.current_num_threads())
}
