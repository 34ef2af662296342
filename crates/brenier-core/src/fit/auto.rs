//! The choice of a method by trials: what the methods of the list offer is trained side by side, for a short while or to the
//! end, and the best on the validation rows is fitted, as an ensemble where that pays. Trained to the end, it is the fit.
//!
//! Short trials have a budget of steps, not of time, and differ from a plain fit in nothing else but a step size that falls to
//! zero over it: the same table, settings and seed give the same choice for any number of threads. They are reported in one
//! line and recorded in the model. Of candidates that the validation rows cannot tell apart the simplest is taken, and one that
//! was trained to the end only if there is no other: a longer training and an ensemble will still improve those. Where one that
//! was trained to the end is ahead all the same, there is a final: the best of the others is trained to the end too, twice, and
//! from the mixture of the two follows what its ensemble would score; and what the leading method offers for a final is trained.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts::{Part, train_parts};
use super::prepared::{Alternative, Block, SplitRows, splits};
use super::{FitSettings, Trained, scores};
use crate::map::method::Problem;
use crate::map::{Method, MethodSettings};
use crate::statistics::{Estimate, mean};
use crate::train::{Schedule, Stop, TrainEvent, TrainSettings, spread};
use crate::{Error, Journal, Result, Run};

/// Passes over the training rows in a trial of the usual length, at most.
const TRIAL_EPOCHS: u32 = 60;
const USUAL_STEPS: u64 = 1500;
/// Folds of trials on few rows.
const FOLDS: usize = 5;
/// With fewer rows every candidate is tried on all folds.
const FOLDED_ROWS: usize = 2000;
/// Validations without improvement before a drop of the learning rate, and the last drop, for that few rows.
const FEW_ROWS_PATIENCE: u32 = 10;
const FEW_ROWS_DROPS: u32 = 2;
/// Part of a time budget that trials may use, and a final as much again.
const TRIAL_SHARE: f64 = 0.2;
/// Trainings of a final, at most.
const ENTRANTS: usize = 3;
/// Members of the ensemble that is made of a candidate whose trial was a short one.
const MEMBERS: usize = 5;

/// One method of the list, or the best of them by trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum MethodChoice {
    /// The best of some, chosen by trials.
    Auto,
    /// This one.
    One(Method),
}

impl MethodChoice {
    /// The name of the choice by trials.
    pub const AUTO: &str = "auto";

    /// As flags, settings and file names have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => Self::AUTO,
            Self::One(method) => method.name(),
        }
    }

    /// As texts have it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Auto => "chosen by trials",
            Self::One(method) => method.title(),
        }
    }

    /// All that can be chosen.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Auto].into_iter().chain(Method::ALL.iter().copied().map(Self::One))
    }

    /// Default settings of a fit with it.
    pub fn settings(self) -> FitSettings {
        match self {
            Self::Auto => FitSettings { auto: true, ..FitSettings::default() },
            Self::One(method) => FitSettings::of(method),
        }
    }
}

impl Default for MethodChoice {
    fn default() -> Self {
        Self::One(Method::default())
    }
}

impl From<Method> for MethodChoice {
    fn from(method: Method) -> Self {
        Self::One(method)
    }
}

impl fmt::Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MethodChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name == Self::AUTO { Ok(Self::Auto) } else { name.parse().map(Self::One) }
    }
}

impl TryFrom<String> for MethodChoice {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<MethodChoice> for String {
    fn from(choice: MethodChoice) -> Self {
        choice.name().to_owned()
    }
}

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Trial {
    /// The method and what of its settings is not as by default, as in `pcp-map (affine front)`.
    pub name: String,
    /// The method with its settings.
    pub method: MethodSettings,
    /// Its mean negative log-likelihood of the validation rows, standardised; none where the training broke down,
    /// or was stopped before its first validation.
    pub valid_nll: Option<f64>,
}

/// How a method was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Choice {
    /// What was tried: first what was tried for a short while, the fewest parameters first, then what was trained to the end.
    pub trials: Vec<Trial>,
    /// The place among them of the one that was chosen.
    pub chosen: usize,
    /// How the best of the short trials fared against one that was trained to the end and ahead of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Final>,
}

/// What an ensemble of a candidate would score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Final {
    /// The place of the candidate among the trials.
    pub trial: usize,
    /// The mean negative log-likelihood of the validation rows that its ensemble would have, standardised, by two of its members.
    pub valid_nll: f64,
}

impl Choice {
    /// The choice in one line.
    pub fn describe(&self) -> String {
        let figure = |trial: &Trial| match trial.valid_nll {
            Some(nll) => format!("{} {nll:.3}", trial.name),
            None => format!("{} without a score", trial.name),
        };
        let figures: Vec<String> = self.trials.iter().map(figure).collect();
        let chosen = self.trials.get(self.chosen);
        let own = chosen.and_then(|trial| trial.valid_nll);
        let ensemble = self.last.as_ref().map(|last| {
            let name = self.trials.get(last.trial).map_or("", |trial| trial.name.as_str());
            (last, format!("an ensemble of {name} would have {:.3}, by two members", last.valid_nll))
        });
        if let Some((last, text)) = &ensemble
            && let Some(trial) = chosen
        {
            let why = if last.trial == self.chosen { "as an ensemble" } else { "by validation NLL" };
            return format!("{}, {why} after trials: {}; {text}", trial.name, figures.join(", "));
        }
        let why = match self.trials.iter().filter_map(|trial| trial.valid_nll).any(|nll| Some(nll) < own) {
            true => "the first within a standard error of the best validation NLL",
            false => "by validation NLL",
        };
        let name = chosen.map_or("", |trial| trial.name.as_str());
        format!("{name}, {why} after trials: {}", figures.join(", "))
    }

    /// Checks what a file said.
    pub(crate) fn is_sound(&self) -> bool {
        let of_trial = |place: usize| place < self.trials.len();
        of_trial(self.chosen) && self.last.as_ref().is_none_or(|last| of_trial(last.trial))
    }
}

/// Something to try.
struct Candidate {
    name: String,
    settings: FitSettings,
    parameters: usize,
    /// None for a trial that is the whole training.
    trial_steps: Option<u64>,
    /// Whether it is tried only where its method, trained to the end, is ahead.
    in_final: bool,
    /// Whether it has the other view of the given columns.
    other: bool,
}

impl Candidate {
    /// Its place among the candidates: the simpler comes first. What has been trained to the end comes last, because a longer
    /// training and an ensemble will still improve the others.
    fn order(&self) -> (bool, usize) {
        (self.trial_steps.is_none(), self.parameters)
    }
}

/// A map of a final, and its losses of the validation rows.
type Entrant = (Trained, Vec<f64>);

/// A fit with every choice made.
pub(super) struct Chosen {
    pub(super) settings: FitSettings,
    /// Whether they are for the other view of the given columns.
    pub(super) other: bool,
    /// How they were found, where trials have chosen.
    pub(super) choice: Option<Choice>,
    /// The maps of the trials where they are all there will be: they were trained to the end, or the run was stopped.
    pub(super) maps: Option<Vec<Trained>>,
    /// Whether the run was stopped in the trials.
    pub(super) stopped: bool,
}

/// `base` with the values of `changes` in place of its own, table by table.
fn overlay(base: &mut Value, changes: &Value) {
    match (base, changes) {
        (Value::Object(base), Value::Object(changes)) => {
            for (name, change) in changes {
                overlay(base.entry(name).or_insert(Value::Null), change);
            }
        }
        (base, changes) => *base = changes.clone(),
    }
}

/// What the methods offer, laid over `settings`, in their order.
fn candidates(settings: &FitSettings, problem: Problem) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    for &method in Method::ALL {
        let offers = method.info().candidates.iter().filter(|offer| {
            let (least, most) = offer.rows;
            (least..=most).contains(&problem.rows)
        });
        for offer in offers {
            let wrong = |error: serde_json::Error| Error::setting("method", error.to_string());
            let changes: Value = serde_json::from_str(offer.changes).map_err(wrong)?;
            let values = changes.get("method").and_then(Value::as_object).cloned().unwrap_or_default();
            let mut train = serde_json::to_value(&settings.train).map_err(wrong)?;
            overlay(&mut train, changes.get("train").unwrap_or(&Value::Object(Default::default())));
            let own = FitSettings {
                auto: false,
                method: method.defaults().with_values(values)?,
                train: serde_json::from_value(train).map_err(wrong)?,
                ..settings.clone()
            };
            let name = match offer.name {
                "" => method.name().to_owned(),
                name => format!("{} ({name})", method.name()),
            };
            let settings = own.resolved(problem);
            let parameters = settings.method.spec().parameters(problem.target, problem.given)?;
            all.push(Candidate {
                name,
                settings,
                parameters,
                trial_steps: offer.trial_steps,
                in_final: offer.in_final,
                other: false,
            });
        }
    }
    all.sort_by_key(Candidate::order);
    Ok(all)
}

/// The settings of a trial, one of `in_turn` on the same thread, from those of a fit.
fn trial_settings(Candidate { settings, trial_steps, .. }: &Candidate, in_turn: usize) -> FitSettings {
    let minutes = settings.train.minutes.map(|minutes| TRIAL_SHARE * minutes / in_turn as f64);
    let whole = TrainSettings { minutes, ..settings.train.clone() };
    let train = match *trial_steps {
        None => whole,
        Some(steps) => TrainSettings {
            schedule: Some(Schedule::Cosine),
            epochs: whole.epochs.min(TRIAL_EPOCHS.saturating_mul(steps.div_ceil(USUAL_STEPS) as u32)),
            max_steps: Some(whole.max_steps.map_or(steps, |most| most.min(steps))),
            ..whole
        },
    };
    FitSettings { train, ..settings.clone() }
}

/// The place of the best of some candidates, the simplest first, by the losses of each at the same rows: the first whose
/// mean is within one standard error of the least, both taken from the differences row by row.
fn best(losses: &[Option<Vec<f64>>]) -> Option<usize> {
    let known = || losses.iter().enumerate().filter_map(|(place, own)| Some((place, own.as_ref()?)));
    let (_, least) = known().min_by(|a, b| mean(a.1).total_cmp(&mean(b.1)))?;
    let near = |own: &[f64]| {
        let differences: Vec<f64> = own.iter().zip(least).map(|(own, least)| own - least).collect();
        let excess = Estimate::of(&differences);
        excess.mean <= excess.standard_error || excess.mean <= 0.0
    };
    known().find(|(_, own)| near(own)).map(|(place, _)| place)
}

/// The loss of a row under a mixture of this many members, by its losses under two of them: the gain of the mixture of two, in
/// proportion to 1 − 1/K.
fn ensemble_loss((one, two): (f64, f64), members: usize) -> f64 {
    let single = 0.5 * (one + two);
    let both = one.min(two) - (0.5 + 0.5 * (-(one - two).abs()).exp()).ln();
    single - 2.0 * (1.0 - 1.0 / members.max(1) as f64) * (single - both)
}

/// Leaves out the losses of trials that were stopped before their first validation, unless there are no others: weights that
/// were never validated may score well and still make no model.
fn prefer_validated(losses: &mut [Option<Vec<f64>>], validated: &[bool]) {
    if losses.iter().zip(validated).any(|(own, &validated)| own.is_some() && validated) {
        for (own, _) in losses.iter_mut().zip(validated).filter(|(_, validated)| !**validated) {
            *own = None;
        }
    }
}

/// Whether maps of this many folds are the members that were asked for.
fn are_members(folds: usize, wanted: Option<usize>, bootstrap: bool) -> bool {
    match wanted {
        None => !bootstrap,
        Some(members) => members == folds && (members == 1 || !bootstrap),
    }
}

impl Block {
    /// Tries the candidates, with the `other` view of the given columns too where there is one.
    pub(super) fn choose(
        &self,
        settings: &FitSettings,
        problem: Problem,
        other: Option<&Alternative>,
        mut run: Run<'_>,
    ) -> Result<Chosen> {
        let mut candidates = candidates(settings, problem)?;
        if let Some(other) = other {
            let problem = Problem { given: other.block.data.given, ..problem };
            let all = self::candidates(&other.settings(settings), problem)?;
            candidates.extend(all.into_iter().map(|candidate| Candidate {
                name: format!("{}, {}", candidate.name, other.name),
                other: true,
                ..candidate
            }));
            candidates.sort_by_key(Candidate::order);
        }
        let (finalists, mut candidates): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|own| own.in_final);
        let block = |candidate: &Candidate| match other {
            Some(other) if candidate.other => &other.block,
            _ => self,
        };
        let journal = run.plan().cloned();
        let stop = run.token().clone();
        // One validation set of some dozen rows would choose by luck; all rows, fold by fold, take little time if they are few.
        let reduces = other.is_some_and(|other| other.reduce.is_some());
        let folds = (self.data_rows() < FOLDED_ROWS && !reduces).then_some(FOLDS);
        let splits = splits(self.rows, &FitSettings { members: folds, bootstrap: false, ..settings.clone() });
        let in_turn = (candidates.len() * splits.len()).div_ceil(rayon::current_num_threads());
        // The longest trials first, so that no thread is left alone with one of them.
        let places: Vec<(usize, usize)> = (0..candidates.len())
            .rev()
            .flat_map(|candidate| (0..splits.len()).map(move |fold| (candidate, fold)))
            .collect();
        let part = |&(candidate, fold): &(usize, usize)| Part {
            block: block(&candidates[candidate]),
            settings: trial_settings(&candidates[candidate], in_turn),
            split: &splits[fold],
            member: fold,
            nearby: None,
            journal: trial_journal(journal.as_ref(), candidate, fold),
        };
        let parts: Vec<Part<'_>> = places.iter().map(part).collect();
        let mut found: Vec<Vec<Trained>> = candidates.iter().map(|_| Vec::new()).collect();
        run.tell(TrainEvent::Trials { of: parts.len() })?;
        train_parts(&parts, run.part(None), |number, trained, _| match trained {
            Ok(trained) => {
                found[places[number].0].push(trained);
                Ok(())
            }
            Err(Error::Numerical(_)) => Ok(()),
            Err(error) => Err(error),
        })?;
        let stopped = stop.is_stopped();
        // The same rows for all of them; of a fit that was stopped no more than the slowest can score at once.
        let few = found.iter().flatten().map(|trial| scores::most_rows(&*trial.map, true)).min();
        let most = few.filter(|_| stopped).unwrap_or(usize::MAX);
        let mut losses = Vec::new();
        for (candidate, trained) in candidates.iter().zip(&mut found) {
            trained.sort_by_key(|trial| trial.member);
            losses.push(block(candidate).trial_losses(trained, &splits, most)?);
        }
        let validated = |trained: &Vec<Trained>| trained.iter().all(|trial| trial.outcome.validated);
        prefer_validated(&mut losses, &found.iter().map(validated).collect::<Vec<_>>());
        let mut chosen = best(&losses).ok_or_else(|| {
            Error::Numerical(
                "no method reached a finite validation loss in its trial; look for extreme values in the table (a \
                 robust scaling may help)"
                    .to_owned(),
            )
        })?;
        let wanted = settings.members;
        let (mut last, mut rounds) = (None, 1.0);
        if candidates[chosen].trial_steps.is_none() && folds.is_none() && !stopped {
            let ahead = &candidates[chosen];
            let same = |own: &Candidate| {
                own.other == ahead.other && own.settings.method.method() == ahead.settings.method.method()
            };
            let refined = finalists.into_iter().find(same);
            let short = candidates.iter().zip(&losses).zip(&found).map(|((own, losses), trained)| {
                let closed = trained.iter().all(|trial| trial.outcome.stop == Stop::ClosedForm);
                losses.clone().filter(|_| own.trial_steps.is_some() && !closed)
            });
            let contender = best(&short.collect::<Vec<_>>()).filter(|_| wanted != Some(1));
            let entrants: Vec<(&Candidate, usize)> = refined
                .iter()
                .map(|own| (own, 0))
                .chain(
                    contender.into_iter().flat_map(|place| [0, 1].map(|member| (&candidates[place], member))),
                )
                .collect();
            rounds += if entrants.is_empty() { 0.0 } else { 1.0 };
            let ends = Self::finals(&entrants, block, &splits[0], run.part(journal.clone()))?;
            // A final that was cut short decides nothing.
            if !stop.is_stopped() {
                let mut ends = ends.into_iter();
                let end = refined.as_ref().and_then(|_| ends.next().flatten());
                if let (Some(place), Some(Some((_, one))), Some(Some((_, two)))) =
                    (contender, ends.next(), ends.next())
                {
                    let members = wanted.unwrap_or(MEMBERS);
                    let both = one.into_iter().zip(two);
                    let own: Vec<f64> = both.map(|both| ensemble_loss(both, members)).collect();
                    let valid_nll = mean(&own);
                    last = Some(Final { trial: place, valid_nll });
                    if losses[chosen].as_ref().is_some_and(|others| valid_nll < mean(others)) {
                        chosen = place;
                    }
                }
                if let (Some(refined), Some((trained, own))) = (refined, end) {
                    let ahead = last.as_ref().filter(|last| last.trial == chosen).map(|last| last.valid_nll);
                    let ahead = ahead.or(losses[chosen].as_deref().map(mean));
                    if ahead.is_some_and(|ahead| mean(&own) < ahead) {
                        chosen = candidates.len();
                    }
                    candidates.push(refined);
                    losses.push(Some(own));
                    found.push(vec![trained]);
                }
            }
        }
        let stopped = stop.is_stopped();
        let mut settings = candidates[chosen].settings.clone();
        let best = found.swap_remove(chosen);
        let whole = candidates[chosen].trial_steps.is_none();
        let is_other = candidates[chosen].other;
        // Trained to the end on the rows that were asked for, the maps of the trials are the fit.
        let serves = are_members(splits.len(), wanted, settings.bootstrap);
        let ended = best.iter().all(|trial| !trial.outcome.stop.is_resumable());
        let is_fit = whole && serves && ended;
        if stopped || is_fit {
            settings.members = folds.or(wanted.filter(|_| is_fit));
        } else {
            let left = 1.0 - TRIAL_SHARE * rounds;
            settings.train.minutes = settings.train.minutes.map(|minutes| left * minutes);
            if folds.is_some() {
                // Few rows are overfitted soon, and then there is nothing to wait for.
                settings.train.patience.get_or_insert(FEW_ROWS_PATIENCE);
                settings.train.max_drops.get_or_insert(FEW_ROWS_DROPS);
            }
            // Members of a closed form would differ in nothing but their rows.
            let closed = best.iter().all(|trial| trial.outcome.stop == Stop::ClosedForm);
            if !closed && (!whole || settings.bootstrap) {
                settings.members.get_or_insert(MEMBERS);
            }
        }
        let trials = candidates
            .into_iter()
            .zip(losses)
            .map(|(candidate, losses)| Trial {
                name: candidate.name,
                method: candidate.settings.method,
                valid_nll: losses.map(|losses| Estimate::of(&losses).mean),
            })
            .collect();
        let choice = Choice { trials, chosen, last };
        run.tell(TrainEvent::Chosen { text: choice.describe() })?;
        Ok(Chosen {
            settings,
            other: is_other,
            choice: Some(choice),
            maps: (stopped || is_fit).then_some(best),
            stopped,
        })
    }

    /// Trains all `entrants`, each with the number of its member, to the end: their maps and losses of the validation rows; none of
    /// one that broke down or was stopped before its first validation.
    fn finals<'a>(
        entrants: &[(&Candidate, usize)],
        block: impl Fn(&Candidate) -> &'a Block,
        split: &SplitRows,
        mut run: Run<'_>,
    ) -> Result<Vec<Option<Entrant>>> {
        let in_turn = entrants.len().div_ceil(rayon::current_num_threads()) as f64;
        let journal = run.plan().cloned();
        let part = |(number, &(candidate, member)): (usize, &(&Candidate, usize))| {
            let mut settings = candidate.settings.clone();
            settings.train.minutes = settings.train.minutes.map(|minutes| TRIAL_SHARE * minutes / in_turn);
            let journal = final_journal(journal.as_ref(), number);
            Part { block: block(candidate), settings, split, member, nearby: None, journal }
        };
        let parts: Vec<Part<'_>> = entrants.iter().enumerate().map(part).collect();
        run.tell(TrainEvent::Trials { of: parts.len() })?;
        let mut ends: Vec<Option<Entrant>> = parts.iter().map(|_| None).collect();
        train_parts(&parts, run, |number, trained, _| match trained {
            Ok(trained) if trained.outcome.validated => {
                let losses = scores::losses(&*trained.map, &parts[number].block.data, &split.1)?;
                let finite = losses.iter().all(|loss| loss.is_finite());
                ends[number] = finite.then_some((trained, losses));
                Ok(())
            }
            Ok(_) | Err(Error::Numerical(_)) => Ok(()),
            Err(error) => Err(error),
        })?;
        Ok(ends)
    }

    fn data_rows(&self) -> usize {
        self.rows.0 + self.rows.1
    }

    /// The losses of the validation rows in the trials of a candidate, of `most` in each fold; none where one of them broke down.
    fn trial_losses(
        &self,
        trained: &[Trained],
        splits: &[SplitRows],
        most: usize,
    ) -> Result<Option<Vec<f64>>> {
        if trained.len() < splits.len() {
            return Ok(None);
        }
        let mut all = Vec::new();
        for trial in trained {
            let rows = spread(&splits[trial.member].1, most);
            all.extend(scores::losses(&*trial.map, &self.data, &rows)?);
        }
        Ok(Some(all).filter(|all| all.iter().all(|loss| loss.is_finite())))
    }

    /// Forgets the states of the trials.
    pub(super) fn discard_trials(&self, journal: &Journal, choice: &Choice) {
        for candidate in 0..choice.trials.len() {
            for journal in (0..FOLDS).filter_map(|fold| trial_journal(Some(journal), candidate, fold)) {
                crate::data::discard(&journal.path);
            }
        }
        for journal in (0..ENTRANTS).filter_map(|number| final_journal(Some(journal), number)) {
            crate::data::discard(&journal.path);
        }
    }
}

fn trial_journal(journal: Option<&Journal>, candidate: usize, fold: usize) -> Option<Journal> {
    journal.map(|journal| journal.part(&format!(".trial-{}-{}", candidate + 1, fold + 1)))
}

fn final_journal(journal: Option<&Journal>, number: usize) -> Option<Journal> {
    journal.map(|journal| journal.part(&format!(".final-{}", number + 1)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_word_among_the_methods() {
        for choice in MethodChoice::all() {
            assert_eq!(choice.name().parse::<MethodChoice>().unwrap(), choice);
            let text = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<MethodChoice>(&text).unwrap(), choice);
        }
        assert!("automatic".parse::<MethodChoice>().is_err());
        assert!(MethodChoice::Auto.settings().auto && !MethodChoice::default().settings().auto);
    }

    #[test]
    fn every_offer_of_the_list_is_sound_and_the_simplest_comes_first() {
        let offers = |rows: usize| {
            let problem = Problem { target: 2, given: 3, rows, joint: false };
            candidates(&FitSettings::default(), problem).unwrap()
        };
        let (few, many) = (offers(1000), offers(10_000));
        assert!(many.len() >= 3 && few.len() > many.len());
        for all in [few, many] {
            let mut names: Vec<&str> = all.iter().map(|candidate| candidate.name.as_str()).collect();
            assert_eq!(names[0], "gaussian");
            assert!(all.is_sorted_by_key(Candidate::order));
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len(), "{names:?}");
            for candidate in &all {
                candidate.settings.validate().unwrap();
            }
        }
    }

    /// A trial of flow matching is its whole training, which then needs no other; others are short and end in small steps.
    #[test]
    fn a_trial_is_short_or_the_whole_training() {
        let problem = Problem { target: 2, given: 3, rows: 10_000, joint: false };
        let all = candidates(&FitSettings::default(), problem).unwrap();
        let (whole, short): (Vec<_>, Vec<_>) = all.iter().partition(|own| own.trial_steps.is_none());
        let names: Vec<_> = whole.iter().map(|own| (own.name.as_str(), own.in_final)).collect();
        assert_eq!(names, [("flow-matching", false), ("flow-matching (weight decay)", true)]);
        assert!(all[all.len() - 2..].iter().all(|own| own.trial_steps.is_none()));
        for own in whole {
            assert_eq!(trial_settings(own, 3), own.settings);
        }
        for own in short {
            let train = trial_settings(own, 3).train;
            assert_eq!((train.schedule, train.max_steps), (Some(Schedule::Cosine), own.trial_steps));
        }
        assert!(are_members(1, None, false) && are_members(5, None, false));
        assert!(are_members(1, Some(1), false) && are_members(5, Some(5), false));
        assert!(!are_members(1, Some(5), false) && !are_members(5, Some(3), false));
        assert!(
            !are_members(5, Some(5), true) && !are_members(1, None, true) && are_members(1, Some(1), true)
        );
    }

    /// Losses are compared row by row: what all candidates find hard counts for none of them.
    #[test]
    fn the_simplest_candidate_within_a_standard_error_is_the_best() {
        let hard = |row: usize| 100.0 * (row % 7) as f64;
        let losses =
            |excess: &dyn Fn(usize) -> f64| Some((0..400).map(|row| hard(row) + excess(row)).collect());
        let noisy = |size: f64| move |row: usize| if row.is_multiple_of(2) { size } else { -size };
        let least = losses(&|_| 0.0);
        assert_eq!(best(&[losses(&|_| 0.01), least.clone()]), Some(1));
        // 0.04 ± 0.05 is no difference, 0.06 ± 0.05 is one.
        assert_eq!(best(&[losses(&|row| 0.04 + noisy(1.0)(row)), least.clone()]), Some(0));
        assert_eq!(best(&[losses(&|row| 0.06 + noisy(1.0)(row)), least.clone()]), Some(1));
        assert_eq!(best(&[None, least.clone(), losses(&|_| 0.0)]), Some(1));
        assert_eq!(best(&[None, None]), None);
    }

    /// One member has the mean of the losses, two that of their mixture, and five gain more.
    #[test]
    fn a_mixture_of_two_tells_what_more_of_them_would_gain() {
        for (one, two) in [(1.0, 1.0), (0.5, 2.5), (30.0, -3.0)] {
            let density = |members| ensemble_loss((one, two), members);
            assert!((density(1) - 0.5 * (one + two)).abs() < 1e-12);
            let mixture = -(0.5 * (-one).exp() + 0.5 * (-two).exp()).ln();
            assert!((density(2) - mixture).abs() < 1e-12);
            assert!(density(5) <= density(2) && density(2) <= density(1));
        }
        let trial = |name: &str, valid_nll: f64| Trial {
            name: name.into(),
            method: MethodSettings::default(),
            valid_nll: Some(valid_nll),
        };
        let mut choice = Choice {
            trials: vec![trial("npe", 0.5), trial("flow-matching", 0.25)],
            chosen: 0,
            last: Some(Final { trial: 0, valid_nll: 0.125 }),
        };
        assert_eq!(
            choice.describe(),
            "npe, as an ensemble after trials: npe 0.500, flow-matching 0.250; an ensemble of npe would have 0.125, by two members"
        );
        assert!(choice.is_sound());
        choice.last = Some(Final { trial: 2, valid_nll: 0.125 });
        assert!(!choice.is_sound());
    }

    /// Stopped early, a trial that was never validated is not taken, however well it scores, if another was.
    #[test]
    fn trials_that_were_validated_come_first() {
        let (good, poor) = (Some(vec![0.0, 0.0]), Some(vec![1.0, 1.0]));
        let chosen = |losses: [&Option<Vec<f64>>; 3], validated: [bool; 3]| {
            let mut losses = losses.map(Clone::clone);
            prefer_validated(&mut losses, &validated);
            best(&losses)
        };
        assert_eq!(chosen([&poor, &good, &None], [true, false, true]), Some(0));
        assert_eq!(chosen([&poor, &good, &None], [false, true, false]), Some(1));
        assert_eq!(chosen([&poor, &good, &None], [false, false, true]), Some(1));
        assert_eq!(chosen([&None, &None, &poor], [true, true, false]), Some(2));
    }
}
