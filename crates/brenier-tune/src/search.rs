//! The search itself: draws, pilots up the ladder, full trainings, the best model.

use crate::EventKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::journal::{Entry, Journal as Finished};
use super::{Final, Pilot, SearchSpace, TuneSettings};
use crate::data::{Split, Table, discard};
use crate::kernel::side_by_side;
use crate::map::method::Problem;
use crate::train::{Stop, TrainEvent, TrainSettings};
use crate::{Error, FitSettings, Fitted, Posterior, Prepared, Result};
use crate::{Event, Journal, Observer, Run, StopToken};

/// Parts of the pilot epochs after which the worse half is dropped; the last is the whole.
const LADDER: [f64; 4] = [0.125, 0.25, 0.5, 1.0];
/// Part of a time budget that pilots may use.
const PILOT_SHARE: f64 = 0.4;

/// An event of a search.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TuneEvent {
    /// `jobs` trainings begin: a rung of pilots, or the full trainings.
    Started {
        /// The rung, or `None` for the full trainings.
        rung: Option<usize>,
        /// How many, those finished in an earlier run not counted.
        jobs: usize,
        /// How many an earlier run had finished.
        finished: usize,
    },
    /// A pilot reached its rung.
    Pilot(Pilot),
    /// A full training ended.
    Final(Final),
    /// Something the user should know.
    Warning {
        /// In one sentence.
        text: String,
    },
}

impl EventKind for TuneEvent {}

/// Everything a search found.
#[derive(Debug)]
pub struct TuneOutcome {
    /// The settings of each trial.
    pub trials: Vec<FitSettings>,
    /// The pilots, by trial and rung.
    pub pilots: Vec<Pilot>,
    /// The full trainings, best validation loss first.
    pub finals: Vec<Final>,
    /// The model with the best validation loss, if any training got that far.
    pub best: Option<Posterior>,
    /// Whether every training that belongs to the search ran to its end.
    pub complete: bool,
}

/// Training and validation rows as [`fit`](crate::fit()) would choose them; no test rows.
pub fn validation_split(rows: usize, settings: &FitSettings) -> Result<Split> {
    let (train, valid) = brenier_core::layer::split(rows, &settings.train, settings.seed)?;
    Ok(Split { train, valid, test: Vec::new() })
}

/// Searches `space` for settings, laid over `base`, that fit `table` best; see the [module](super).
///
/// Trials train on the split's training rows and are compared on its validation rows. The seed of `base` decides the
/// draws and is the first of the seeds of the full trainings.
///
/// Journal, checkpoints and models are kept in `folder`, which is made if need be; what it holds of the same search is taken up.
/// As many trials run at a time as the current rayon pool has threads.
pub fn search(
    table: &Table,
    split: &Split,
    base: &FitSettings,
    space: &SearchSpace,
    settings: &TuneSettings,
    folder: &Path,
    run: Run<'_>,
) -> Result<TuneOutcome> {
    if base.auto {
        let problem = "auto makes its own trials: choose the method whose settings are to be searched";
        return Err(Error::setting("method", problem));
    }
    let settings = settings.resolved(base.method.method())?;
    let base = FitSettings { train: TrainSettings { minutes: None, ..base.train.clone() }, ..base.clone() };
    let (target, given) = base.columns(table.names())?;
    let trials = space.draw(&base, given.len(), settings.trials.unwrap_or(1), base.seed)?;
    let fresh = !folder.exists();
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))?;
    let identity = identity(table, split, &base, space, &settings, trials.len());
    let (journal, entries) = Finished::open(&folder.join("journal.jsonl"), &identity)?;
    let started = Instant::now();
    let after = |share: f64| {
        let minutes = settings.minutes.filter(|minutes| *minutes < 1e7)?;
        Some(started + Duration::try_from_secs_f64(60.0 * share * minutes).ok()?)
    };
    let deadlines = (after(PILOT_SHARE), after(1.0));
    let problem = Problem { target: target.len(), given: given.len(), rows: split.train.len() };
    let costs = trials.iter().map(|trial| trial.cost(problem)).collect::<Result<_>>()?;
    let search =
        Search { table, split, trials: &trials, costs, settings: &settings, folder, run, journal, deadlines };
    let journal = folder.join("journal.jsonl");
    let (pilots, finals, complete) = search.run(entries).inspect_err(|_| {
        // Nothing was finished, so nothing is left behind.
        if fresh && fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() <= 1) {
            let _ = journal.parent().map(fs::remove_dir_all);
        }
    })?;
    let best = finals.0.first().and_then(|best| best.model.as_ref());
    let best = best.map(|name| Posterior::load(finals.1.join(name))).transpose()?;
    Ok(TuneOutcome { trials, pilots, finals: finals.0, best, complete })
}

/// SHA-256 of all that decides a search.
fn identity(
    table: &Table,
    split: &Split,
    base: &FitSettings,
    space: &SearchSpace,
    settings: &TuneSettings,
    drawn: usize,
) -> String {
    let text = serde_json::to_string(&(base, space, settings)).expect("settings are plain data");
    let mut hasher = Sha256::new().chain_update(text).chain_update(table.hash());
    if settings.trials != Some(drawn) {
        // A small space: its trials were once drawn several times over, under other numbers.
        hasher.update((drawn as u64).to_le_bytes());
    }
    for part in [&split.train, &split.valid, &split.test] {
        hasher.update((part.len() as u64).to_le_bytes());
        part.iter().for_each(|row| hasher.update(row.to_le_bytes()));
    }
    hasher.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String accepts all writes");
        text
    })
}

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

struct Search<'a, 'b: 'a> {
    table: &'a Table,
    split: &'a Split,
    trials: &'a [FitSettings],
    /// What an epoch of each costs, in units of its own.
    costs: Vec<usize>,
    settings: &'a TuneSettings,
    folder: &'a Path,
    run: Run<'b>,
    journal: Finished,
    /// Of the pilots, and of everything.
    deadlines: (Option<Instant>, Option<Instant>),
}

/// The full trainings, best first, and the folder their models are in.
type Finals = (Vec<Final>, PathBuf);

impl<'a, 'b: 'a> Search<'a, 'b> {
    fn run(mut self, entries: Vec<Entry>) -> Result<(Vec<Pilot>, Finals, bool)> {
        let mut pilots = BTreeMap::new();
        let mut finals = BTreeMap::new();
        for entry in entries {
            match entry {
                Entry::Pilot(pilot) => drop(pilots.insert((pilot.trial, pilot.rung), pilot)),
                Entry::Final(training) => drop(finals.insert((training.trial, training.repeat), training)),
                Entry::Search { .. } => {}
            }
        }
        let (chosen, mut complete) = self.pilots(&mut pilots)?;
        if !self.run.is_stopped() {
            complete &= self.finals(&chosen, &mut finals)?;
        } else {
            complete = false;
        }
        let mut finals: Vec<Final> = finals.into_values().collect();
        finals.sort_by(|a, b| {
            let order = by_loss(a.valid_nll, b.valid_nll);
            order.then_with(|| (a.trial, a.repeat).cmp(&(b.trial, b.repeat)))
        });
        Ok((pilots.into_values().collect(), (finals, self.folder.to_owned()), complete))
    }

    /// Climbs the ladder; returns the trials to train fully, best first, and whether all pilots were run.
    fn pilots(&mut self, pilots: &mut BTreeMap<(usize, usize), Pilot>) -> Result<(Vec<usize>, bool)> {
        let finalists = self.settings.finalists.unwrap_or(1);
        let ladder: &[f64] = if self.settings.exact { &[1.0] } else { &LADDER };
        let mut alive: Vec<usize> = (0..self.trials.len()).collect();
        if alive.len() <= finalists {
            // All of them will be trained to the end: there is nothing to find out before.
            return Ok((alive, true));
        }
        let mut complete = true;
        for (rung, &part) in ladder.iter().enumerate() {
            let mut missing: Vec<usize> =
                alive.iter().copied().filter(|&trial| !pilots.contains_key(&(trial, rung))).collect();
            if self.deadlines.0.is_none() {
                // All will be run: the long ones first, so that no thread waits for another at the end.
                missing.sort_by_key(|&trial| Reverse(self.costs[trial]));
            }
            let (jobs, finished) = (missing.len(), alive.len() - missing.len());
            self.run.tell(TuneEvent::Started { rung: Some(rung), jobs, finished })?;
            let (shared, deadline) = (self.shared(), self.deadlines.0);
            let journal = &mut self.journal;
            let run = &mut self.run;
            side_by_side(
                shared.threads,
                &shared.abandoned,
                &missing,
                |&trial| shared.pilot(trial, rung, part, deadline),
                |pilot| {
                    if let Some(pilot) = pilot? {
                        journal.append(&Entry::Pilot(pilot.clone()))?;
                        run.tell(TuneEvent::Pilot(pilot.clone()))?;
                        pilots.insert((pilot.trial, rung), pilot);
                    }
                    Ok(())
                },
            )?;
            let loss = |trial: usize| pilots.get(&(trial, rung)).map(|pilot| pilot.valid_nll);
            if alive.iter().any(|&trial| loss(trial).is_none()) {
                // Out of time: those that got furthest go first, then those that did better there.
                complete = false;
                let reached = |trial: usize| {
                    let last = pilots.range((trial, 0)..=(trial, rung)).next_back();
                    (last.map(|(&(_, rung), _)| rung), last.and_then(|(_, pilot)| pilot.valid_nll))
                };
                alive.sort_by(|&a, &b| {
                    let (a, b) = (reached(a), reached(b));
                    b.0.cmp(&a.0).then_with(|| by_loss(a.1, b.1))
                });
                break;
            }
            alive.sort_by(|&a, &b| by_loss(loss(a).flatten(), loss(b).flatten()));
            let kept =
                if rung + 1 == ladder.len() { finalists } else { finalists.max(alive.len().div_ceil(2)) };
            for trial in alive.drain(kept.min(alive.len())..) {
                forget(self.folder, trial);
            }
            if rung + 1 < ladder.len() {
                alive.sort_unstable();
            }
        }
        alive.truncate(finalists);
        if complete {
            alive.iter().for_each(|&trial| forget(self.folder, trial));
        }
        Ok((alive, complete))
    }

    /// Trains each of `chosen` to the end with every seed; returns whether all came to their end.
    fn finals(&mut self, chosen: &[usize], finals: &mut BTreeMap<(usize, usize), Final>) -> Result<bool> {
        let repeats = self.settings.repeats.unwrap_or(1);
        let mut all: Vec<(usize, usize)> =
            (0..repeats).flat_map(|repeat| chosen.iter().map(move |&trial| (trial, repeat))).collect();
        if repeats > 1 && self.deadlines.1.is_none() {
            // The best first while the search may be stopped; the last round as the pilots.
            let last = all.len() - chosen.len();
            all[last..].sort_by_key(|&(trial, _)| Reverse(self.costs[trial]));
        }
        let missing: Vec<(usize, usize)> =
            all.iter().copied().filter(|job| !finals.contains_key(job)).collect();
        let (jobs, finished) = (missing.len(), all.len() - missing.len());
        self.run.tell(TuneEvent::Started { rung: None, jobs, finished })?;
        let (shared, deadline) = (self.shared(), self.deadlines.1);
        let journal = &mut self.journal;
        let run = &mut self.run;
        let first = (finished == 0).then(|| missing.first()).flatten();
        let mut complete = true;
        let mut told = Vec::new();
        side_by_side(
            shared.threads,
            &shared.abandoned,
            &missing,
            |job| shared.training(job.0, job.1, deadline, first == Some(job)),
            |training| {
                match training? {
                    None => complete = false,
                    Some((training, cut, warnings)) => {
                        for text in warnings {
                            if !told.contains(&text) {
                                run.tell(TuneEvent::Warning { text: text.clone() })?;
                                told.push(text);
                            }
                        }
                        if cut {
                            complete = false;
                        } else {
                            journal.append(&Entry::Final(training.clone()))?;
                        }
                        run.tell(TuneEvent::Final(training.clone()))?;
                        finals.insert((training.trial, training.repeat), training);
                    }
                }
                Ok(())
            },
        )?;
        Ok(complete)
    }

    fn shared(&self) -> Shared<'a> {
        Shared {
            table: self.table,
            split: self.split,
            trials: self.trials,
            epochs: self.settings.pilot_epochs.unwrap_or(1),
            resumable: !self.settings.exact,
            stop: self.run.token().clone(),
            folder: self.folder.to_owned(),
            threads: rayon::current_num_threads(),
            abandoned: AtomicBool::new(false),
            prepared: Mutex::default(),
        }
    }
}

/// What trials on several threads read.
struct Shared<'a> {
    table: &'a Table,
    split: &'a Split,
    trials: &'a [FitSettings],
    /// Epochs of a pilot.
    epochs: u32,
    /// Whether a pilot continues from one rung to the next.
    resumable: bool,
    stop: StopToken,
    folder: PathBuf,
    threads: usize,
    /// Set when an error ends the search.
    abandoned: AtomicBool,
    prepared: Mutex<HashMap<String, Arc<Prepared>>>,
}

impl Shared<'_> {
    fn over(&self, deadline: Option<Instant>) -> bool {
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
    fn pilot(
        &self,
        trial: usize,
        rung: usize,
        part: f64,
        deadline: Option<Instant>,
    ) -> Result<Option<Pilot>> {
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
                pilot.steps = posterior.header().training.steps;
                pilot.valid_nll = Some(valid_nll(&posterior));
            }
            Err(Error::Numerical(problem)) => pilot.failure = Some(problem),
            Err(error) => return Err(error),
        }
        Ok(Some(pilot))
    }

    /// A training to the end, whether the deadline cut it short, and the fit's warnings; `None` when the time was used
    /// up before, unless it `must` run.
    fn training(
        &self,
        trial: usize,
        repeat: usize,
        deadline: Option<Instant>,
        must: bool,
    ) -> Result<Option<(Final, bool, Vec<String>)>> {
        if self.over(deadline) && !must {
            return Ok(None);
        }
        let mut settings = self.trials[trial].clone();
        settings.seed = settings.seed.wrapping_add(repeat as u64);
        let name = format!("final-{trial:04}-{repeat}");
        let path = self.folder.join(format!("{name}.checkpoint"));
        let plan = Journal::at(&path);
        let started = Instant::now();
        let fitted = self.fit(&settings, 1.0, deadline, Some(plan));
        let seconds = started.elapsed().as_secs_f64();
        let (mut cut, mut told) = (false, Vec::new());
        let training = match fitted {
            // The user does not want to wait: what has hardly begun is no model.
            Ok((fitted, Some(Cut::Budget))) if !fitted.validated && self.stop.is_stopped() => {
                return Ok(None);
            }
            Ok((Fitted { posterior, warnings, .. }, ended)) => {
                let model = format!("{name}.brenier");
                posterior.save(self.folder.join(&model))?;
                cut = ended == Some(Cut::Budget);
                told = warnings;
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
        Ok(Some((training, cut, told)))
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

impl Final {
    /// A training by its trial and repeat that came to `posterior`.
    pub fn of(posterior: &Posterior, trial: usize, repeat: usize) -> Self {
        let summary = &posterior.header().training;
        Self {
            trial,
            repeat,
            seed: posterior.header().seed,
            epochs: epochs(posterior),
            steps: summary.steps,
            best_step: summary.best_step,
            stop: Some(summary.stop),
            seconds: 0.0,
            valid_nll: Some(valid_nll(posterior)),
            test_nll: None,
            failure: None,
            model: None,
        }
    }

    fn failed(trial: usize, repeat: usize, seed: u64, seconds: f64, problem: String) -> Self {
        Self {
            trial,
            repeat,
            seed,
            epochs: 0.0,
            steps: 0,
            best_step: 0,
            stop: None,
            seconds,
            valid_nll: None,
            test_nll: None,
            failure: Some(problem),
            model: None,
        }
    }
}

/// The best validation loss; of all columns for a joint model.
fn valid_nll(posterior: &Posterior) -> f64 {
    let own = |posterior: &Posterior| posterior.header().training.best_valid_nll;
    own(posterior) + posterior.marginal().map_or(0.0, own)
}

fn epochs(posterior: &Posterior) -> f64 {
    posterior.history().last().map_or(0.0, |last| last.epoch)
}

fn pilot_path(folder: &Path, trial: usize) -> PathBuf {
    folder.join(format!("pilot-{trial:04}.checkpoint"))
}

/// Removes what a pilot left for the next rung.
fn forget(folder: &Path, trial: usize) {
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
fn by_loss(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY))
}

/// Best, median and worst of figures of which less is better; none of none.
pub fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let median = 0.5 * (values.get(count.checked_sub(1)? / 2)? + values.get(count / 2)?);
    Some([values[0], median, values[count - 1]])
}

impl TuneOutcome {
    /// Best, median and worst of a figure over the full trainings that have it.
    pub fn spread(&self, figure: impl Fn(&Final) -> Option<f64>) -> Option<[f64; 3]> {
        spread(self.finals.iter().filter_map(figure).collect())
    }

    /// Every training with its figures and all its settings, as CSV.
    pub fn to_csv(&self) -> String {
        let rows: Vec<BTreeMap<String, String>> = self
            .trials
            .iter()
            .map(|settings| {
                let mut cells = BTreeMap::new();
                flatten("", &serde_json::to_value(settings).expect("settings are plain data"), &mut cells);
                cells.remove("seed");
                cells
            })
            .collect();
        let mut names: Vec<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
        names.sort_unstable();
        names.dedup();
        let mut text = String::from(
            "stage,trial,rung,repeat,seed,valid_nll,test_nll,epochs,steps,best_step,stop,seconds,failure",
        );
        names.iter().for_each(|name| text.extend([",", name.as_str()]));
        text.push('\n');
        let mut line = |trial: usize, cells: [String; 13]| {
            let settings = names.iter().map(|name| rows[trial].get(*name).cloned().unwrap_or_default());
            let cells: Vec<String> = cells.into_iter().chain(settings).map(|cell| quoted(&cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        };
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for pilot in &self.pilots {
            let cells = [
                "pilot".into(),
                pilot.trial.to_string(),
                pilot.rung.to_string(),
                String::new(),
                self.trials[pilot.trial].seed.to_string(),
                number(pilot.valid_nll),
                String::new(),
                pilot.epochs.to_string(),
                pilot.steps.to_string(),
                String::new(),
                String::new(),
                format!("{:.3}", pilot.seconds),
                pilot.failure.clone().unwrap_or_default(),
            ];
            line(pilot.trial, cells);
        }
        for training in &self.finals {
            let stop = training.stop.map(|stop| serde_json::to_value(stop).expect("a word"));
            let cells = [
                "final".into(),
                training.trial.to_string(),
                String::new(),
                training.repeat.to_string(),
                training.seed.to_string(),
                number(training.valid_nll),
                number(training.test_nll),
                training.epochs.to_string(),
                training.steps.to_string(),
                training.best_step.to_string(),
                stop.as_ref().and_then(Value::as_str).unwrap_or_default().into(),
                format!("{:.3}", training.seconds),
                training.failure.clone().unwrap_or_default(),
            ];
            line(training.trial, cells);
        }
        text
    }
}

/// Leaves of a JSON document under their dotted names.
fn flatten(prefix: &str, value: &Value, cells: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, cells);
            }
        }
        Value::Null => drop(cells.insert(prefix.to_owned(), String::new())),
        Value::String(text) => drop(cells.insert(prefix.to_owned(), text.clone())),
        other => drop(cells.insert(prefix.to_owned(), other.to_string())),
    }
}

/// A cell of a CSV file.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
