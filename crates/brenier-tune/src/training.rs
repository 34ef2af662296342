//! One training of a search: a rung of a pilot, or a full training.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::journal::{Entry, Job};
use super::{Final, Pilot};
use crate::data::{Split, Table, discard};
use crate::train::{Stop, TrainEvent};
use crate::{
    Error, Event, FitSettings, Fitted, Journal, Observer, Posterior, Prepared, Result, Run, StopToken,
};

/// Why a training did not come to its own end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    /// It reached its rung.
    Rung,
    /// The time was used up, or the user asked to stop.
    Budget,
}

/// Ends a training at a rung of the ladder or when the search ends; for joint maps block by block.
struct Pacer<'a> {
    /// Part of the steps allowed.
    part: f64,
    limit: u64,
    stop: StopToken,
    /// Either of them ends the training.
    outer: (&'a StopToken, &'a AtomicBool),
    deadline: Option<Instant>,
    cut: Option<Cut>,
}

impl Pacer<'_> {
    fn check(&mut self, step: u64) {
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if over || self.outer.0.is_stopped() || self.outer.1.load(Ordering::Relaxed) {
            self.cut = Some(Cut::Budget);
        } else if self.cut != Some(Cut::Budget) && step >= self.limit {
            self.cut = Some(Cut::Rung);
        } else {
            return;
        }
        self.stop.stop();
    }
}

impl Observer for Pacer<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        if let Some(TrainEvent::Started { resumed_at, max_steps, .. }) = event.get() {
            self.limit = match self.part {
                1.0 => u64::MAX,
                part => ((*max_steps as f64 * part).ceil() as u64).max(1),
            };
            // The second block of a joint map runs to the rung too.
            self.stop.set(self.cut == Some(Cut::Budget));
            self.check(*resumed_at);
        }
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        self.check(step);
    }
}

/// What trials on several threads read.
pub(super) struct Shared<'a> {
    pub(super) table: &'a Table,
    pub(super) split: &'a Split,
    pub(super) trials: &'a [FitSettings],
    /// Epochs of a pilot.
    pub(super) epochs: u32,
    /// Whether a pilot continues from one rung to the next.
    pub(super) resumable: bool,
    pub(super) stop: StopToken,
    pub(super) folder: PathBuf,
    /// Set when an error ends the search.
    pub(super) abandoned: AtomicBool,
    pub(super) prepared: Mutex<HashMap<String, Arc<Prepared>>>,
}

/// The outcome of a training.
pub(super) struct Made {
    pub(super) entry: Entry,
    /// Whether the deadline ended it.
    pub(super) cut: bool,
    pub(super) warnings: Vec<String>,
}

impl Shared<'_> {
    pub(super) fn over(&self, deadline: Option<Instant>) -> bool {
        self.stop.is_stopped() || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The table made ready for `settings`: once for all trainings that differ in method and training alone.
    fn prepared(&self, settings: &FitSettings) -> Result<Arc<Prepared>> {
        let key = Prepared::key(settings);
        let known = |all: &HashMap<String, Arc<Prepared>>| all.get(&key).cloned();
        let locked = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = known(&locked()) {
            return Ok(prepared);
        }
        let (train, valid) = (&self.split.train, &self.split.valid);
        let prepared = Arc::new(Prepared::with_split(self.table, train, valid, settings)?);
        let mut all = locked();
        // Few are in use at a time, and each holds the whole table.
        if all.len() >= 4 {
            all.clear();
        }
        Ok(all.entry(key).or_insert(prepared).clone())
    }

    /// Trains with `settings` up to `part` of the steps, or until the deadline.
    fn fit(
        &self,
        settings: &FitSettings,
        part: f64,
        deadline: Option<Instant>,
        journal: Option<Journal>,
    ) -> Result<(Fitted, Option<Cut>)> {
        let stop = StopToken::new();
        let outer = (&self.stop, &self.abandoned);
        let mut pacer = Pacer { part, limit: u64::MAX, stop: stop.clone(), outer, deadline, cut: None };
        let run = Run::observed(&mut pacer).stop(&stop).journal(journal);
        let fitted = self.prepared(settings)?.fit(settings, run)?;
        Ok((fitted, pacer.cut))
    }

    /// One rung of a pilot; `None` when the time was used up before.
    pub(super) fn pilot(
        &self,
        trial: usize,
        rung: usize,
        part: f64,
        deadline: Option<Instant>,
    ) -> Result<Option<Made>> {
        if self.over(deadline) {
            return Ok(None);
        }
        let mut settings = self.trials[trial].clone();
        settings.train.epochs = settings.train.epochs.min(self.epochs);
        let journal = self.resumable.then(|| Journal {
            path: pilot_path(&self.folder, trial),
            every: Duration::MAX,
            resume: true,
            keep: true,
        });
        let started = Instant::now();
        let fitted = self.fit(&settings, part, deadline, journal);
        let mut pilot = Pilot {
            trial,
            rung,
            epochs: 0.0,
            steps: 0,
            seconds: started.elapsed().as_secs_f64(),
            valid_nll: None,
            failure: None,
        };
        match fitted {
            Ok((_, Some(Cut::Budget))) => return Ok(None),
            Ok((Fitted { posterior, .. }, _)) => {
                pilot.epochs = epochs(&posterior);
                pilot.steps = posterior.info().training.steps;
                pilot.valid_nll = Some(valid_nll(&posterior));
            }
            Err(Error::Numerical(problem)) => pilot.failure = Some(problem),
            Err(error) => return Err(error),
        }
        Ok(Some(Made { entry: Entry::Pilot(pilot), cut: false, warnings: Vec::new() }))
    }

    /// A training to the end; `None` when the time was used up before, unless it `must` run.
    pub(super) fn training(
        &self,
        trial: usize,
        repeat: usize,
        deadline: Option<Instant>,
        must: bool,
    ) -> Result<Option<Made>> {
        if self.over(deadline) && !must {
            return Ok(None);
        }
        let mut settings = self.trials[trial].clone();
        settings.seed = settings.seed.wrapping_add(repeat as u64);
        let name = Job::Final { trial, repeat }.name();
        let path = self.folder.join(format!("{name}.checkpoint"));
        let plan = Journal::at(&path);
        let started = Instant::now();
        let fitted = self.fit(&settings, 1.0, deadline, Some(plan));
        let seconds = started.elapsed().as_secs_f64();
        let (mut cut, mut warnings) = (false, Vec::new());
        let training = match fitted {
            // The user does not want to wait: what has hardly begun is no model.
            Ok((fitted, Some(Cut::Budget))) if !fitted.validated && self.stop.is_stopped() => {
                return Ok(None);
            }
            Ok((Fitted { posterior, warnings: own, .. }, ended)) => {
                let model = format!("{name}.brenier");
                posterior.save(self.folder.join(&model))?;
                cut = ended == Some(Cut::Budget);
                warnings = own;
                let training = Final::of(&posterior, trial, repeat);
                Final {
                    stop: if cut { Some(Stop::Minutes) } else { training.stop },
                    seconds,
                    test_nll: self.test_nll(&posterior, &settings)?,
                    model: Some(model),
                    ..training
                }
            }
            Err(Error::Numerical(problem)) => Final::failed(trial, repeat, settings.seed, seconds, problem),
            Err(error) => return Err(error),
        };
        if !cut {
            remove(&path);
        }
        Ok(Some(Made { entry: Entry::Final(training), cut, warnings }))
    }

    /// Mean negative log-likelihood of the test rows, standardised; of all columns for a joint model.
    fn test_nll(&self, posterior: &Posterior, settings: &FitSettings) -> Result<Option<f64>> {
        if self.split.test.is_empty() {
            return Ok(None);
        }
        let (target, given) = settings.columns(self.table.names())?;
        let side = |columns: &[usize]| self.table.gather(&self.split.test, columns);
        let (target, given) = (side(&target), side(&given));
        let densities = match posterior.marginal() {
            None => posterior.log_density(&target, &given)?,
            Some(_) => posterior.log_density_joint(&target, &given)?.joint(),
        };
        Ok(Some(densities.mean_nll().1))
    }
}

/// The best validation loss; of all columns for a joint model.
pub(super) fn valid_nll(posterior: &Posterior) -> f64 {
    let own = |posterior: &Posterior| posterior.info().training.best_valid_nll;
    own(posterior) + posterior.marginal().map_or(0.0, own)
}

pub(super) fn epochs(posterior: &Posterior) -> f64 {
    posterior.history().last().map_or(0.0, |last| last.epoch)
}

fn pilot_path(folder: &Path, trial: usize) -> PathBuf {
    folder.join(format!("pilot-{trial:04}.checkpoint"))
}

/// Removes what a pilot left for the next rung.
pub(super) fn forget(folder: &Path, trial: usize) {
    remove(&pilot_path(folder, trial));
}

/// Removes a checkpoint, and that of a joint map's first block.
fn remove(path: &Path) {
    let mut first = path.as_os_str().to_owned();
    first.push(".given");
    discard(path);
    discard(Path::new(&first));
}

/// Smaller is better, none is worst.
pub(super) fn by_loss(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY))
}
