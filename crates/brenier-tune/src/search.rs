//! The search itself: draws, pilots up the ladder, full trainings, the best model.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::join::Joined;
use super::journal::{Entry, Job, Journal};
use super::training::{Made, Shared, by_loss, forget};
use super::{Final, Pilot, SearchSpace, TuneOutcome, TuneSettings};
use crate::data::{Split, Table};
use crate::kernel::side_by_side;
use crate::map::method::Problem;
use crate::train::TrainSettings;
use crate::{Error, EventKind, FitSettings, Posterior, Result, Run};

/// Parts of the pilot epochs after which the worse half is dropped; the last is the whole.
const LADDER: [f64; 4] = [0.125, 0.25, 0.5, 1.0];
/// Part of a time budget that pilots may use.
const PILOT_SHARE: f64 = 0.4;
/// How often a process that has nothing to do looks what the others have done.
const LOOK: Duration = Duration::from_millis(200);

/// An event of a search.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
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

/// Training and validation rows as `fit` would choose them; no test rows.
pub fn validation_split(rows: usize, settings: &FitSettings) -> Result<Split> {
    let (train, valid) = brenier_core::layer::split(rows, &settings.train, settings.seed)?;
    Ok(Split { train, valid, test: Vec::new() })
}

/// Searches `space` for settings, laid over `base`, that fit `table` best; see the [module](super).
///
/// Trials train on the split's training rows and are compared on its validation rows. The seed of `base` decides the
/// draws and is the first of the seeds of the full trainings.
///
/// Journal, checkpoints and models are kept in `folder`, which is made if need be; what it holds of the same search is continued.
/// As many trials run at a time as the current rayon pool has threads, unless [`TuneSettings::threads`] says otherwise.
///
/// With [`TuneSettings::join`] many processes may run the same search in one folder, at the same time: each trains what no other has
/// begun, all wait for the last, and all return the same model. One that is killed loses only what it was training.
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
    let (journal, entries) = Journal::open(folder, &identity, settings.join)?;
    let joined = settings.join.then(|| Joined::new(folder, journal.others())).transpose()?;
    let started = Instant::now();
    let after = |share: f64| {
        let minutes = settings.minutes.filter(|minutes| *minutes < 1e7)?;
        Some(started + Duration::try_from_secs_f64(60.0 * share * minutes).ok()?)
    };
    let deadlines = (after(PILOT_SHARE), after(1.0));
    let (rows, joint) = (split.train.len(), base.joint);
    let problem = Problem { target: target.len(), given: given.len(), rows, joint };
    let costs = trials.iter().map(|trial| trial.cost(problem)).collect::<Result<_>>()?;
    let mut found = Found::default();
    entries.into_iter().for_each(|entry| found.insert(entry));
    let mut search = Search {
        table,
        split,
        trials: &trials,
        costs,
        settings: &settings,
        folder,
        run,
        journal,
        joined,
        found,
        deadlines,
    };
    let complete = search.run().inspect_err(|_| {
        // Nothing was finished, so nothing is left behind.
        let only = folder.join("journal.jsonl");
        if fresh && fs::read_to_string(only).is_ok_and(|text| text.lines().count() <= 1) {
            let _ = fs::remove_dir_all(folder);
        }
    })?;
    let (pilots, finals) = search.found.into_lists();
    let best = finals.first().and_then(|best| best.model.as_ref());
    let best = best.map(|name| Posterior::load(folder.join(name))).transpose()?;
    Ok(TuneOutcome { trials, pilots, finals, best, complete })
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

/// The trainings that have ended, by whomever.
#[derive(Default)]
struct Found {
    /// By trial and rung.
    pilots: BTreeMap<(usize, usize), Pilot>,
    /// By trial and repeat.
    finals: BTreeMap<(usize, usize), Final>,
}

impl Found {
    fn insert(&mut self, entry: Entry) {
        match entry {
            Entry::Pilot(pilot) => drop(self.pilots.insert((pilot.trial, pilot.rung), pilot)),
            Entry::Final(training) => drop(self.finals.insert((training.trial, training.repeat), training)),
        }
    }

    fn has(&self, job: Job) -> bool {
        match job {
            Job::Pilot { trial, rung } => self.pilots.contains_key(&(trial, rung)),
            Job::Final { trial, repeat } => self.finals.contains_key(&(trial, repeat)),
        }
    }

    /// The pilots, and the full trainings, best first.
    fn into_lists(self) -> (Vec<Pilot>, Vec<Final>) {
        let mut finals: Vec<Final> = self.finals.into_values().collect();
        finals.sort_by(|a, b| {
            let order = by_loss(a.valid_nll, b.valid_nll);
            order.then_with(|| (a.trial, a.repeat).cmp(&(b.trial, b.repeat)))
        });
        (self.pilots.into_values().collect(), finals)
    }
}

/// What the observer sees of a training.
fn event(entry: Entry) -> TuneEvent {
    match entry {
        Entry::Pilot(pilot) => TuneEvent::Pilot(pilot),
        Entry::Final(training) => TuneEvent::Final(training),
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
    journal: Journal,
    joined: Option<Joined>,
    found: Found,
    /// Of the pilots, and of everything.
    deadlines: (Option<Instant>, Option<Instant>),
}

impl<'a, 'b: 'a> Search<'a, 'b> {
    /// All trainings; whether every one came to its end.
    fn run(&mut self) -> Result<bool> {
        let (chosen, mut complete) = self.pilots()?;
        complete &= !self.run.is_stopped() && self.finals(&chosen)?;
        if let (true, Some(joined)) = (complete, &self.joined) {
            joined.tidy();
        }
        Ok(complete)
    }

    /// Climbs the ladder; returns the trials to train fully, best first, and whether all pilots were run.
    fn pilots(&mut self) -> Result<(Vec<usize>, bool)> {
        let finalists = self.settings.finalists.unwrap_or(1);
        let ladder: &[f64] = if self.settings.exact { &[1.0] } else { &LADDER };
        let mut alive: Vec<usize> = (0..self.trials.len()).collect();
        if alive.len() <= finalists {
            // All of them will be trained to the end: there is nothing to find out before.
            return Ok((alive, true));
        }
        let mut complete = true;
        for (rung, &part) in ladder.iter().enumerate() {
            let mut trials = alive.clone();
            let deadline = self.deadlines.0;
            if deadline.is_none() {
                // All will be run: the long ones first, so that no thread waits for another at the end.
                trials.sort_by_key(|&trial| Reverse(self.costs[trial]));
            }
            let jobs = trials.into_iter().map(|trial| Job::Pilot { trial, rung }).collect();
            self.stage(Some(rung), jobs, deadline, |shared, job, _| match job {
                Job::Pilot { trial, rung } => shared.pilot(trial, rung, part, deadline),
                Job::Final { .. } => Ok(None),
            })?;
            let pilots = &self.found.pilots;
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
    fn finals(&mut self, chosen: &[usize]) -> Result<bool> {
        let repeats = self.settings.repeats.unwrap_or(1);
        let job = |trial: usize, repeat: usize| Job::Final { trial, repeat };
        let mut jobs: Vec<Job> =
            (0..repeats).flat_map(|repeat| chosen.iter().map(move |&trial| job(trial, repeat))).collect();
        let deadline = self.deadlines.1;
        if repeats > 1 && deadline.is_none() {
            // The best first while the search may be stopped; the last round as the pilots.
            let mut last = chosen.to_vec();
            last.sort_by_key(|&trial| Reverse(self.costs[trial]));
            jobs.truncate(jobs.len() - chosen.len());
            jobs.extend(last.into_iter().map(|trial| job(trial, repeats - 1)));
        }
        self.stage(None, jobs, deadline, |shared, job, first| match job {
            Job::Final { trial, repeat } => shared.training(trial, repeat, deadline, first),
            Job::Pilot { .. } => Ok(None),
        })
    }

    /// Runs those of `jobs` that nobody has finished; in a joined search, those that no other process has begun, and then waits
    /// for the others. `work` learns whether a job is the first of all. Returns whether all came to their end.
    fn stage(
        &mut self,
        rung: Option<usize>,
        jobs: Vec<Job>,
        deadline: Option<Instant>,
        work: impl Fn(&Shared<'a>, Job, bool) -> Result<Option<Made>> + Sync,
    ) -> Result<bool> {
        let shared = self.shared();
        let threads = self.settings.threads.unwrap_or_else(rayon::current_num_threads);
        let of = jobs.len();
        let mut missing: Vec<Job> = jobs.into_iter().filter(|&job| !self.found.has(job)).collect();
        self.run.tell(TuneEvent::Started { rung, jobs: missing.len(), finished: of - missing.len() })?;
        let first = (missing.len() == of).then(|| missing.first().copied()).flatten();
        let mut whole = true;
        let mut told = Vec::new();
        loop {
            let before = missing.len();
            let (journal, run, found) = (&mut self.journal, &mut self.run, &mut self.found);
            let joined = self.joined.as_ref();
            side_by_side(
                threads,
                &shared.abandoned,
                &missing,
                |&job| {
                    let claim = match joined.map(|joined| joined.claim(job)).transpose()? {
                        Some(None) => return Ok(None),
                        claim => claim.flatten(),
                    };
                    Ok(work(&shared, job, first == Some(job))?.map(|made| (made, claim)))
                },
                |done| {
                    let Some((made, claim)) = done? else { return Ok(()) };
                    for text in made.warnings {
                        if !told.contains(&text) {
                            run.tell(TuneEvent::Warning { text: text.clone() })?;
                            told.push(text);
                        }
                    }
                    if made.cut {
                        whole = false;
                    } else {
                        journal.append(&made.entry)?;
                    }
                    drop(claim);
                    run.tell(event(made.entry.clone()))?;
                    found.insert(made.entry);
                    Ok(())
                },
            )?;
            for entry in joined.map(Joined::news).transpose()?.into_iter().flatten() {
                let job = entry.job();
                if missing.contains(&job) && !found.has(job) {
                    run.tell(event(entry.clone()))?;
                }
                found.insert(entry);
            }
            missing.retain(|&job| !found.has(job));
            if missing.is_empty() || joined.is_none() || shared.over(deadline) {
                return Ok(whole && missing.is_empty());
            }
            if missing.len() == before {
                std::thread::sleep(LOOK);
            }
        }
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
            abandoned: AtomicBool::new(false),
            prepared: Mutex::default(),
        }
    }
}
