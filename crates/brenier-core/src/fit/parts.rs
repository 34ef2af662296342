//! Trainings side by side, one thread each: the members of an ensemble, or trials. Their validations reach the observer of the
//! run on the thread of the call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::prepared::{Block, SplitRows};
use super::{FitSettings, Trained};
use crate::kernel::side_by_side_reporting;
use crate::train::{Nearby, Progress, Schedule, TrainEvent, TrainSettings};
use crate::{Error, Event, Journal, Observer, Result, Run};

/// One of the trainings.
pub(super) struct Part<'a> {
    pub(super) block: &'a Block,
    pub(super) settings: FitSettings,
    pub(super) split: &'a SplitRows,
    /// Its number among the members, which its seed depends on.
    pub(super) member: usize,
    /// What moves its rows, where a surrogate was learned.
    pub(super) nearby: Option<&'a Nearby>,
    pub(super) journal: Option<Journal>,
}

/// What comes from a training's thread.
enum News {
    /// It was validated, after this part of its work.
    Validated {
        number: usize,
        done: f64,
        progress: Progress,
    },
    Ended {
        number: usize,
        outcome: Box<Result<Trained>>,
    },
}

/// Observes one training on its thread and passes its validations on.
struct Relay<'a> {
    number: usize,
    train: &'a TrainSettings,
    /// The last step of a warm start, whose steps hardly count, and the last allowed.
    steps: (u64, u64),
    news: mpsc::Sender<Result<News>>,
    abandoned: &'a AtomicBool,
}

impl Observer for Relay<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(Error::Stopped("a training beside this one failed".to_owned()));
        }
        match event.get() {
            Some(TrainEvent::Started { max_steps, .. }) => self.steps = (0, *max_steps),
            Some(TrainEvent::Warmed { step, .. }) => self.steps.0 = *step,
            Some(TrainEvent::Validated(progress)) => {
                let (first, last) = self.steps;
                let by_steps =
                    progress.step.saturating_sub(first) as f64 / last.saturating_sub(first).max(1) as f64;
                let by_drops = match self.train.schedule() {
                    Schedule::Plateau => f64::from(progress.drops) / f64::from(self.train.max_drops()),
                    Schedule::Cosine => 0.0,
                };
                let done = by_steps.max(by_drops).min(1.0);
                // Nobody receives it when the call is at its end, and then nobody needs it.
                let _ =
                    self.news.send(Ok(News::Validated { number: self.number, done, progress: *progress }));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Trains all `parts`; `ended` receives the outcome of each, by its place, as they come.
pub(super) fn train_parts(
    parts: &[Part<'_>],
    mut run: Run<'_>,
    mut ended: impl FnMut(usize, Result<Trained>, &mut Run<'_>) -> Result<()>,
) -> Result<()> {
    let of = parts.len();
    let (stop, abandoned) = (run.token().clone(), AtomicBool::new(false));
    let numbers: Vec<usize> = (0..of).collect();
    let mut done = vec![0.0; of];
    side_by_side_reporting(
        rayon::current_num_threads(),
        &abandoned,
        &numbers,
        |&number, news| {
            let Part { block, settings, split, member, nearby, journal } = &parts[number];
            let train = &settings.train;
            let mut relay = Relay { number, train, steps: (0, 0), news: news.clone(), abandoned: &abandoned };
            let run = Run::observed(&mut relay).stop(&stop).journal(journal.clone());
            let outcome = Box::new(block.train(*member, split, settings, *nearby, run));
            Ok(News::Ended { number, outcome })
        },
        |news| match news? {
            News::Validated { number, done: own, progress } => {
                done[number] = own;
                let done = done.iter().sum::<f64>() / of as f64;
                run.tell(TrainEvent::PartValidated { number: number + 1, of, done, progress })
            }
            News::Ended { number, outcome } => {
                done[number] = 1.0;
                ended(number, *outcome, &mut run)
            }
        },
    )
}
