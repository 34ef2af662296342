//! From a table to a trained posterior: settings, preparation, training.

mod auto;
mod builder;
mod parts;
mod prepared;
mod scores;
mod settings;
mod surrogate;
mod warnings;

use std::sync::Arc;

use sha2::{Digest, Sha256};

use auto::Chosen;
pub use auto::{Choice, MethodChoice, Trial};
pub use builder::Fit;
use parts::{Part, train_parts};
pub use prepared::Prepared;
use prepared::SplitRows;
pub use prepared::split;
use prepared::{Alternative, Block, marginal_settings, splits};
pub use settings::FitSettings;
use surrogate::Surrogates;

use crate::data::{Encoding, Table, discard};
use crate::map::method::{Problem, Training};
use crate::map::{BASELINE, TransportMap};
use crate::posterior::{Baseline, Member, Mixture, ModelInfo, Posterior, TrainingSummary};
use crate::train::{Nearby, Outcome, Progress, Stop, TrainEvent, TrainSettings};
use crate::{Error, Result, Run};

/// From this many given variables on the baseline is fitted to this many rows for each.
const WIDE: usize = 1000;
const ROWS_PER_COLUMN: usize = 8;

/// A trained posterior and what a user should know about the table.
#[non_exhaustive]
pub struct Fitted {
    /// The model.
    pub posterior: Posterior,
    /// Whether the training got as far as its first regular validation; when it was stopped before, the model is
    /// hardly better than its initial weights. For a joint map both blocks, for an ensemble any member: a stop leaves those
    /// out that did not get as far.
    pub validated: bool,
    /// Constant or doubled columns, short tables and the like; the observer was told of each at once.
    pub warnings: Vec<String>,
}

/// Fits a map to `table`, whose columns are looked up by the settings' selections, with validation rows chosen by
/// the seed.
pub fn fit(table: &Table, settings: &FitSettings, run: Run<'_>) -> Result<Fitted> {
    Prepared::new(table, settings)?.fit(settings, run)
}

/// As [`fit()`], with the rows (from 0) to train on and to validate with given; other rows are not used.
pub fn fit_split(
    table: &Table,
    train_rows: &[u32],
    valid_rows: &[u32],
    settings: &FitSettings,
    run: Run<'_>,
) -> Result<Fitted> {
    Prepared::with_split(table, train_rows, valid_rows, settings)?.fit(settings, run)
}

impl Prepared {
    /// Trains with `settings`, of which everything that decides the preparation must be as it was.
    pub fn fit(&self, settings: &FitSettings, mut run: Run<'_>) -> Result<Fitted> {
        settings.validate()?;
        if !self.serves(settings) {
            return Err(Error::setting(
                "target",
                "columns, supports, scaling, seed or ensemble are not those that the table was prepared for",
            ));
        }
        let settings = &FitSettings {
            support: self.support.clone(),
            noise: self.noise.clone(),
            jitter: self.jitter.clone(),
            ..settings.clone()
        };
        let other = self.other.as_ref();
        let Some(marginal) = &self.marginal else { return self.own.fit(settings, other, run) };
        let half = |minutes: Option<f64>| minutes.map(|minutes| 0.5 * minutes);
        let train = TrainSettings { minutes: half(settings.train.minutes), ..settings.train.clone() };
        let settings = FitSettings { train, ..settings.clone() };
        let journal = run.plan().map(|plan| plan.part(".given"));
        let kept = journal.as_ref().map(|journal| journal.path.clone());
        let block = |number: usize, columns: &[String]| TrainEvent::Block {
            number,
            of: 2,
            columns: columns.to_vec(),
            conditional: number == 2,
        };
        run.tell(block(1, &self.own.given_names))?;
        let marginal =
            marginal.fit(&marginal_settings(&settings, &self.own.given_names), None, run.part(journal))?;
        run.tell(block(2, &self.own.target_names))?;
        let mut fitted = self.own.fit(&settings, other, run)?;
        fitted.warnings.splice(0..0, marginal.warnings);
        let ended = |posterior: &Posterior| !posterior.info().training.stop.is_resumable();
        if ended(&marginal.posterior) && ended(&fitted.posterior) {
            // Nothing is left to resume.
            if let Some(path) = kept {
                discard(&path);
            }
        }
        fitted.posterior.set_marginal(marginal.posterior);
        fitted.validated &= marginal.validated;
        Ok(fitted)
    }
}

/// The outcome of the training of one member.
struct Trained {
    /// Its number, from 0.
    member: usize,
    map: Arc<dyn TransportMap>,
    outcome: Outcome,
}

impl Block {
    /// Fits π(target | given), or the density of the target where nothing is given; trials may prefer the `other` view of
    /// the given columns.
    fn fit(&self, settings: &FitSettings, other: Option<&Alternative>, mut run: Run<'_>) -> Result<Fitted> {
        let (target, given) = (self.target_names.len(), self.given_names.len());
        let (train_rows, valid_rows) = self.plain_split();
        let problem = Problem { target, given, rows: train_rows.len(), joint: settings.joint };
        let mut warnings = match other {
            // Trials see to many given columns.
            Some(other) if other.reduce.is_some() => Vec::new(),
            _ => warnings::of_sizes(settings, train_rows.len(), valid_rows.len(), given),
        };
        warnings.extend(self.warnings.iter().cloned());
        // What is wrong with the table should be known before hours are spent on it.
        for text in &warnings {
            run.tell(TrainEvent::Warning { text: text.clone() })?;
        }
        let journal = run.plan().cloned();
        let chosen = match settings.auto {
            true => self.choose(settings, problem, other, run.part(journal))?,
            false => {
                let rows = splits(self.rows, settings)[0].0.len();
                let settings = settings.resolved(Problem { rows, ..problem });
                Chosen { settings, other: false, choice: None, maps: None, stopped: false }
            }
        };
        let block = other.filter(|_| chosen.other).map_or(self, |other| &other.block);
        block.fit_chosen(chosen, warnings, run)
    }

    /// Fits with every choice made.
    fn fit_chosen(
        &self,
        Chosen { settings, choice, maps, stopped, .. }: Chosen,
        mut warnings: Vec<String>,
        mut run: Run<'_>,
    ) -> Result<Fitted> {
        let settings = &settings;
        let journal = run.plan().cloned();
        let splits = splits(self.rows, settings);
        let surrogates = self.surrogates(&splits, settings, run.part(journal.clone()))?;
        let timed = &surrogates.left(settings);
        let mut trained = match (maps, splits.as_slice()) {
            (Some(maps), _) => maps,
            (None, [split]) => {
                vec![self.train(0, split, timed, surrogates.of(0), run.part(journal.clone()))?]
            }
            (None, _) => self.train_members(&splits, timed, &surrogates, run.part(journal.clone()))?,
        };
        // Cut short in its trials, a fit is not at its end even where the best of them is.
        let unfinished = match stopped {
            true => Some(Stop::Interrupted),
            false => trained.iter().map(|member| member.outcome.stop).find(|stop| stop.is_resumable()),
        };
        if let (Some(choice), Some(journal), None) = (&choice, &journal, unfinished) {
            self.discard_trials(journal, choice);
        }
        if let (Some(journal), None) = (&journal, unfinished) {
            surrogates.discard_state(journal);
        }
        let validated = trained.iter().any(|member| member.outcome.validated);
        // Members that a stop has kept from their first validation would spoil the mixture.
        trained.retain(|member| member.outcome.validated || !validated);
        if trained.iter().any(|member| member.outcome.stop == Stop::Diverged) {
            let text = "the training loss repeatedly became NaN or infinite; the best weights before that were kept \
                        (a lower learning rate or a robust scaling may help)"
                .to_owned();
            run.tell(TrainEvent::Warning { text: text.clone() })?;
            warnings.push(text);
        }
        let weight = 1.0 / trained.len() as f64;
        let mut members = Vec::new();
        let mut histories: Vec<Vec<Progress>> = Vec::new();
        let mut maps = Vec::new();
        for Trained { member, map, outcome } in trained {
            let (train_rows, valid_rows) = &splits[member];
            let rows = scores::Rows { data: &self.data, origin: &self.origin };
            let stopped = unfinished == Some(Stop::Interrupted);
            let scores = scores::of_fit(&*map, rows, (train_rows, valid_rows), stopped, settings.seed)?;
            members.push(Member {
                weight,
                seed: settings.seed.wrapping_add(member as u64),
                training: TrainingSummary {
                    stop: outcome.stop,
                    steps: outcome.steps,
                    best_step: outcome.best_step,
                    best_valid_nll: outcome.best_valid_nll,
                    train_rows: train_rows.len(),
                    valid_rows: valid_rows.len(),
                    scores,
                },
            });
            histories.push(outcome.history);
            maps.push(map);
        }
        let baseline = self.baseline(&splits[0], settings)?;
        let mixture = Mixture::new(maps, members.iter().map(|member| member.weight).collect());
        let header = ModelInfo {
            kind: ModelInfo::KIND.into(),
            brenier_version: env!("CARGO_PKG_VERSION").into(),
            settings: settings.timeless(),
            target_names: self.target_names.clone(),
            given_names: self.given_names.clone(),
            target_transform: self.target_transform.clone(),
            given_transform: self.given_transform.clone(),
            training: Member::together(&members, unfinished),
            members: if members.len() > 1 { members } else { Vec::new() },
            seed: settings.seed,
            data_sha256: self.data_sha256.clone(),
            outlier: self.support.clone(),
            baseline: baseline.as_ref().map(|(baseline, _)| baseline.clone()),
            encoding: Encoding::default(),
            choice,
            marginal: None,
        };
        let mut posterior = Posterior::new(header, mixture, histories);
        posterior.baseline = baseline.map(|(_, map)| map);
        Ok(Fitted { posterior, validated, warnings })
    }

    /// The baseline, fitted to the rows of the first split; none where the method is the baseline, or it cannot be fitted.
    fn baseline(
        &self,
        (train_rows, valid_rows): &SplitRows,
        settings: &FitSettings,
    ) -> Result<Option<(Baseline, Arc<dyn TransportMap>)>> {
        if settings.method.method() == BASELINE {
            return Ok(None);
        }
        let method = BASELINE.defaults();
        // A regression on thousands of columns is a yardstick with some of the rows too, and a tenth of the time and memory.
        let step = match self.data.given >= WIDE {
            true => (train_rows.len() / (ROWS_PER_COLUMN * self.data.given)).max(1),
            false => 1,
        };
        let train_rows: &Vec<u32> = &train_rows.iter().copied().step_by(step).collect();
        let fitted = method.spec().train(Training {
            data: &self.data,
            nearby: None,
            train_rows,
            valid_rows,
            settings: &settings.train,
            seed: settings.seed,
            identity: "",
            run: Run::silent(),
        });
        match fitted {
            Ok((map, outcome)) => Ok(Some((Baseline { method, valid_nll: outcome.best_valid_nll }, map))),
            Err(Error::Numerical(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Trains the members of an ensemble side by side, one thread each.
    fn train_members(
        &self,
        splits: &[SplitRows],
        settings: &FitSettings,
        surrogates: &Surrogates,
        mut run: Run<'_>,
    ) -> Result<Vec<Trained>> {
        let of = splits.len();
        // A time budget is for all members, of which a thread trains one after the other.
        let in_turn = of.div_ceil(rayon::current_num_threads()) as f64;
        let minutes = settings.train.minutes.map(|minutes| minutes / in_turn);
        let settings =
            &FitSettings { train: TrainSettings { minutes, ..settings.train.clone() }, ..settings.clone() };
        let journal = run.plan().cloned();
        let part = |(member, split)| Part {
            block: self,
            settings: settings.clone(),
            split,
            member,
            nearby: surrogates.of(member),
            journal: journal.as_ref().map(|journal| journal.part(&format!(".member-{}", member + 1))),
        };
        let parts: Vec<Part<'_>> = splits.iter().enumerate().map(part).collect();
        run.tell(TrainEvent::Members { of })?;
        let mut found: Vec<Option<Trained>> = parts.iter().map(|_| None).collect();
        train_parts(&parts, run, |number, trained, run| {
            let trained = trained?;
            let best_valid_nll = trained.outcome.best_valid_nll;
            run.tell(TrainEvent::Member { number: number + 1, of, best_valid_nll })?;
            found[number] = Some(trained);
            Ok(())
        })?;
        let trained: Vec<Trained> = found.into_iter().flatten().collect();
        if trained.iter().all(|member| !member.outcome.stop.is_resumable()) {
            parts.iter().filter_map(|part| part.journal.as_ref()).for_each(|journal| discard(&journal.path));
        }
        Ok(trained)
    }

    /// Trains one member.
    fn train(
        &self,
        member: usize,
        (train_rows, valid_rows): &SplitRows,
        settings: &FitSettings,
        nearby: Option<&Nearby>,
        mut run: Run<'_>,
    ) -> Result<Trained> {
        let seed = settings.seed.wrapping_add(member as u64);
        let (identity, journal) = (self.identity(settings, member), run.plan().cloned());
        let (map, outcome) = settings.method.spec().train(Training {
            data: &self.data,
            nearby,
            train_rows,
            valid_rows,
            settings: &settings.train,
            seed,
            identity: &identity,
            run: run.part(journal),
        })?;
        Ok(Trained { member, map, outcome })
    }

    /// What a checkpoint belongs to: the settings (the time budget aside), the data, the split and the member.
    fn identity(&self, settings: &FitSettings, member: usize) -> String {
        let text = serde_json::to_string(&(settings.timeless(), member)).expect("settings are plain data");
        let parts = [text.as_str(), &self.data_sha256, &self.split_sha256];
        let digest = parts.iter().fold(Sha256::new(), |hasher, part| hasher.chain_update(part)).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
