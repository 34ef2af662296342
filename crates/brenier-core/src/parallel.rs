//! Loops and jobs on several threads.
//!
//! The loops ([`each`], [`each_with`], [`try_each_with`], [`results`]) hand out items one by one, so that what an item computes does not depend on
//! the number of threads. The splitting itself is compiled once, for all callers: chains of rayon's adaptors are compiled
//! again for every chain and every closure, which was a fifth of this crate.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use crate::{Error, Result};

/// Calls `work` with the place and the value of every item, on the threads of the current pool.
///
/// An item should be worth some microseconds: a block of rows, not a row.
pub(crate) fn each<I: Send>(items: impl IntoIterator<Item = I>, work: impl Fn(usize, I) + Sync) {
    let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    split(0, items.len(), &|index| {
        if let Some(item) = lock(&items[index]).take() {
            work(index, item);
        }
    });
}

/// The same with memory that a call of `work` may use: made by `room` when none is free, and used again by later calls.
pub(crate) fn each_with<I: Send, S: Send>(
    items: impl IntoIterator<Item = I>,
    room: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, I) + Sync,
) {
    let free = Mutex::new(Vec::new());
    each(items, |index, item| {
        let reused = lock(&free).pop();
        let mut memory = reused.unwrap_or_else(&room);
        work(&mut memory, index, item);
        lock(&free).push(memory);
    });
}

/// The same for work that may fail. The error is that of the first item that has one; items behind it may not have been
/// worked on.
pub(crate) fn try_each_with<I: Send, S: Send>(
    items: impl IntoIterator<Item = I>,
    room: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize, I) -> Result<()> + Sync,
) -> Result<()> {
    let first_error = Mutex::new(None::<(usize, Error)>);
    each_with(items, room, |memory, index, item| {
        if lock(&first_error).as_ref().is_some_and(|(other, _)| *other < index) {
            return;
        }
        if let Err(error) = work(memory, index, item) {
            let mut first = lock(&first_error);
            if first.as_ref().is_none_or(|(other, _)| index < *other) {
                *first = Some((index, error));
            }
        }
    });
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// What `work` returns for every item, in the order of the items.
pub(crate) fn results<I: Send, R: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(usize, I) -> R + Sync,
) -> Vec<R> {
    let items: Vec<I> = items.into_iter().collect();
    let mut out: Vec<Option<R>> = items.iter().map(|_| None).collect();
    each(items.into_iter().zip(&mut out), |index, (item, out)| *out = Some(work(index, item)));
    out.into_iter().map(|result| result.expect("every item was worked on")).collect()
}

/// Calls `work` with start, start + 1, …, end − 1, splitting the range in halves that idle threads may take.
fn split(start: usize, end: usize, work: &(dyn Fn(usize) + Sync)) {
    match end - start {
        0 => {}
        1 => work(start),
        count if rayon::current_num_threads() > 1 => {
            let middle = start + count / 2;
            rayon::join(|| split(start, middle, work), || split(middle, end, work));
        }
        _ => (start..end).for_each(work),
    }
}

/// Threads that are kept awake at most: more would hinder each other in their search for tasks.
const AWAKE: usize = 8;
/// Searches in a row that find nothing before a thread lets others run after each, and before it sleeps between them.
const SEARCHES: (u32, u32) = (256, 4096);

/// Does `work`, a long sequence of short loops, while the other threads of the pool look for its tasks without going to sleep:
/// to wake a thread takes longer than many a loop.
///
/// Where nothing is to be done for some milliseconds (a file is written), they sleep between their searches. Of several such
/// calls at a time in a process, the first alone keeps threads awake: they would look after each other.
pub fn keep_awake<R>(work: impl FnOnce() -> R) -> R {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let leader = rayon::current_thread_index().filter(|_| rayon::current_num_threads() > 1);
    let Some(leader) = leader.filter(|_| !TAKEN.swap(true, Ordering::AcqRel)) else {
        return work();
    };
    let _free = AtEnd(&TAKEN, false);
    let finished = AtomicBool::new(false);
    rayon::in_place_scope(|scope| {
        // Set by a panic, too: the scope waits for the other threads.
        let _end = AtEnd(&finished, true);
        let finished = &finished;
        scope.spawn_broadcast(move |_, context| {
            if context.index() != leader && context.index() < AWAKE {
                look_for_tasks(finished);
            }
        });
        work()
    })
}

/// Sets a flag to this at its end.
struct AtEnd<'a>(&'a AtomicBool, bool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Release);
    }
}

fn look_for_tasks(finished: &AtomicBool) {
    let mut idle = 0;
    while !finished.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(rayon::Yield::Executed) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle > SEARCHES.1 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        } else if idle > SEARCHES.0 {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A lock whose value is good whatever became of other threads: a panic of one ends the loop anyway.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sum_of_loops() -> usize {
        let total = AtomicUsize::new(0);
        for round in 0..200 {
            each(0..10_usize, |_, item| {
                total.fetch_add(round * item, Ordering::Relaxed);
            });
        }
        total.into_inner()
    }

    /// Also from several threads at a time and one inside the other, and after a panic.
    #[test]
    fn threads_that_are_kept_awake_do_the_work_and_are_let_go() {
        let expected = 199 * 200 / 2 * 45;
        for threads in [1, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        assert_eq!(pool.install(|| keep_awake(|| keep_awake(sum_of_loops))), expected)
                    });
                }
            });
            let panics = || pool.install(|| keep_awake(|| panic!("on purpose")));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
            assert_eq!(pool.install(|| keep_awake(sum_of_loops)), expected);
        }
        assert_eq!(keep_awake(sum_of_loops), expected);
    }
}
