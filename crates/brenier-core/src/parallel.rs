//! Jobs side by side, one thread each, so that what a job computes does not depend on how many run at a time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::{Error, Result};

/// Does all `jobs`, `threads` at a time, and hands the results to `finished` on this thread as they come. An error
/// of `finished` sets `abandoned`, after which no further job is started.
pub fn side_by_side<J: Sync, R: Send>(
    threads: usize,
    abandoned: &AtomicBool,
    jobs: &[J],
    work: impl Fn(&J) -> Result<R> + Sync,
    finished: impl FnMut(Result<R>) -> Result<()>,
) -> Result<()> {
    side_by_side_reporting(threads, abandoned, jobs, |job, _| work(job), finished)
}

/// The same for jobs that also send something while they work; it comes to `finished` as results do.
pub fn side_by_side_reporting<J: Sync, R: Send>(
    threads: usize,
    abandoned: &AtomicBool,
    jobs: &[J],
    work: impl Fn(&J, &mpsc::Sender<Result<R>>) -> Result<R> + Sync,
    mut finished: impl FnMut(Result<R>) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (next, work) = (&next, &work);
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads.min(jobs.len()) {
            let sender = sender.clone();
            scope.spawn(move || {
                let pool = match rayon::ThreadPoolBuilder::new().num_threads(1).build() {
                    Ok(pool) => pool,
                    Err(error) => {
                        let _ = sender.send(Err(Error::setting("threads", error.to_string())));
                        return;
                    }
                };
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if abandoned.load(Ordering::Relaxed)
                        || sender.send(pool.install(|| work(job, &sender))).is_err()
                    {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut outcome = Ok(());
        for result in results {
            if outcome.is_ok() {
                outcome = finished(result);
                abandoned.store(outcome.is_err(), Ordering::Relaxed);
            }
        }
        outcome
    })
}
