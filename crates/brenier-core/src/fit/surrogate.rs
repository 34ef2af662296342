//! The surrogates of the simulator that a fit learns first, where they are wanted.

use super::FitSettings;
use super::prepared::{Block, SplitRows};
use crate::data::discard;
use crate::map::Surrogate;
use crate::map::method::Training;
use crate::train::{AdamSettings, Dataset, Nearby, Schedule, TrainEvent, TrainSettings, spread};
use crate::{Journal, Result, Run};

/// The part of a time budget that all surrogates may take.
const TIME: f64 = 1.0 / 3.0;
/// The part of the rows that may be held out of a surrogate for all members.
const HELD_OUT: f64 = 0.25;
/// Rows that a surrogate is validated with, at most.
const VALIDATED: usize = 2000;
const LEARNING_RATE: f64 = 1e-3;
/// Passes over the rows by default, or as many as make this many steps.
const EPOCHS: u32 = 30;
const STEPS: usize = 5000;

/// The surrogates of a fit: one for all members, or one for each.
#[derive(Default)]
pub(super) struct Surrogates {
    learned: Vec<Nearby>,
}

impl Surrogates {
    /// What moves the rows of a member.
    pub(super) fn of(&self, member: usize) -> Option<&Nearby> {
        self.learned.get(member).or(self.learned.last())
    }

    /// The settings with what is left of a time budget.
    pub(super) fn left(&self, settings: &FitSettings) -> FitSettings {
        let left = if self.learned.is_empty() { 1.0 } else { 1.0 - TIME };
        let minutes = settings.train.minutes.map(|minutes| left * minutes);
        FitSettings { train: TrainSettings { minutes, ..settings.train.clone() }, ..settings.clone() }
    }

    /// Discards the state of their trainings.
    pub(super) fn discard_state(&self, journal: &Journal) {
        (0..self.learned.len()).for_each(|number| discard(&state(journal, number).path));
    }
}

/// Where the training of a surrogate keeps its state.
fn state(journal: &Journal, number: usize) -> Journal {
    journal.part(&format!(".surrogate-{}", number + 1))
}

impl Block {
    /// Learns y ≈ f(x): once, from the rows that no member is validated with, or, where these are too few, once for every member, from
    /// the rows that it is not validated with.
    pub(super) fn surrogates(
        &self,
        splits: &[SplitRows],
        settings: &FitSettings,
        mut run: Run<'_>,
    ) -> Result<Surrogates> {
        let Some(distance) = settings.surrogate else { return Ok(Surrogates::default()) };
        let all = self.rows.0 + self.rows.1;
        let held_out = |splits: &[SplitRows]| {
            let mut held_out = vec![false; all];
            splits.iter().flat_map(|(_, valid)| valid).for_each(|&row| held_out[row as usize] = true);
            held_out
        };
        let shared = held_out(splits).iter().filter(|&&out| out).count() as f64 <= HELD_OUT * all as f64;
        let groups: Vec<&[SplitRows]> = if shared { vec![splits] } else { splits.chunks(1).collect() };
        let (n, m, of) = (self.data.target, self.data.given, groups.len());
        let swapped = Dataset {
            target: m,
            given: n,
            x: self.data.plain_given().to_vec(),
            y: self.data.x.clone(),
            fresh: None,
        };
        let mut learned = Vec::with_capacity(of);
        for (number, splits) in groups.into_iter().enumerate() {
            let held_out = held_out(splits);
            let rows = |out: bool| -> Vec<u32> {
                (0..).zip(&held_out).filter(|(_, held)| **held == out).map(|(row, _)| row).collect()
            };
            let (train_rows, valid_rows) = (rows(false), spread(&rows(true), VALIDATED));
            let mut train = TrainSettings {
                learning_rate: Some(LEARNING_RATE),
                schedule: Some(Schedule::Cosine),
                minutes: settings.train.minutes.map(|minutes| TIME * minutes / of as f64),
                adam: AdamSettings { weight_decay: Some(0.0), ..AdamSettings::default() },
                ..TrainSettings::default()
            };
            train.resolve(train_rows.len(), 64);
            train.epochs = settings.surrogate_epochs.unwrap_or_else(|| {
                let per_epoch = train_rows.len().div_ceil(train.batch_size());
                EPOCHS.max(STEPS.div_ceil(per_epoch) as u32)
            });
            run.tell(TrainEvent::Surrogate { number: number + 1, of, inputs: n, outputs: m })?;
            let seed = settings.seed.wrapping_add(number as u64);
            let mut surrogate = Surrogate::initial(n, &settings.surrogate_widths, m, seed)?;
            let identity = self.identity(settings, usize::MAX - number);
            let journal = run.plan().map(|journal| state(journal, number));
            let training = Training {
                data: &swapped,
                nearby: None,
                train_rows: &train_rows,
                valid_rows: &valid_rows,
                settings: &train,
                seed,
                identity: &identity,
                run: run.part(journal),
            };
            training.descend(&mut surrogate)?;
            let nearby = Nearby::new(surrogate, &self.data, &train_rows, distance);
            run.tell(TrainEvent::Imitated { explained: nearby.explained(&self.data, &valid_rows) })?;
            learned.push(nearby);
        }
        Ok(Surrogates { learned })
    }
}
