//! The choice of a method by trials: what the methods of the list offer is trained for a short while, side by side, and the
//! best on the validation rows is fitted, as an ensemble where that pays.
//!
//! Trials have a budget of steps, not of time, and differ from a plain fit in nothing else but a step size that falls to zero
//! over it: the same table, settings and seed give the same choice for any number of threads. They are reported in one line and
//! recorded in the model.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::FitSettings;
use super::Trained;
use super::prepared::Block;
use crate::kernel::side_by_side;
use crate::map::method::{Problem, Training};
use crate::map::{Method, MethodSettings};
use crate::train::{Schedule, Stop, TrainEvent, TrainSettings};
use crate::{Error, Result, Run};

/// Steps of a trial.
const TRIAL_STEPS: u64 = 1500;
/// Passes over the training rows in a trial, at most.
const TRIAL_EPOCHS: u32 = 60;
/// Members of the ensemble that is made of the best.
const MEMBERS: usize = 5;
/// Part of a time budget that trials may use.
const TRIAL_SHARE: f64 = 0.2;

/// One method of the list, or the best of them by trials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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
pub struct Trial {
    /// The method and what of its settings is not as by default, as in `pcp-map (affine front)`.
    pub name: String,
    /// The method with its settings.
    pub method: MethodSettings,
    /// Its best mean negative log-likelihood of the validation rows, standardised; none where the training broke down.
    pub valid_nll: Option<f64>,
}

/// How a method was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// What was tried, in the order of the list of methods.
    pub trials: Vec<Trial>,
    /// The place among them of the one that was chosen.
    pub chosen: usize,
}

impl Choice {
    /// The choice in one line.
    pub fn describe(&self) -> String {
        let figure = |trial: &Trial| match trial.valid_nll {
            Some(nll) => format!("{} {nll:.3}", trial.name),
            None => format!("{} failed", trial.name),
        };
        let figures: Vec<String> = self.trials.iter().map(figure).collect();
        let chosen = self.trials.get(self.chosen).map_or("", |trial| trial.name.as_str());
        format!("{chosen}, by validation NLL after short trials: {}", figures.join(", "))
    }

    /// Checks what a file said.
    pub(crate) fn is_sound(&self) -> bool {
        self.chosen < self.trials.len()
    }
}

/// Something to try.
struct Candidate {
    name: String,
    settings: FitSettings,
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

/// What the methods offer, laid over `settings`.
fn candidates(settings: &FitSettings, problem: Problem) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    for &method in Method::ALL {
        for offer in method.info().candidates {
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
            all.push(Candidate { name, settings: own.resolved(problem) });
        }
    }
    Ok(all)
}

/// The settings of a trial, one of so many in turn on a thread, with those of a fit.
fn short(settings: &FitSettings, in_turn: usize) -> FitSettings {
    let train = TrainSettings {
        schedule: Schedule::Cosine,
        epochs: settings.train.epochs.min(TRIAL_EPOCHS),
        max_steps: Some(settings.train.max_steps.map_or(TRIAL_STEPS, |most| most.min(TRIAL_STEPS))),
        minutes: settings.train.minutes.map(|minutes| TRIAL_SHARE * minutes / in_turn as f64),
        ..settings.train.clone()
    };
    FitSettings { train, ..settings.clone() }
}

impl Block {
    /// The settings of the best candidate, with every choice made, and how it was found; where the run was stopped, the map of
    /// its trial is all there will be.
    pub(super) fn choose(
        &self,
        settings: &FitSettings,
        problem: Problem,
        mut run: Run<'_>,
    ) -> Result<(FitSettings, Choice, Option<Trained>)> {
        let candidates = candidates(settings, problem)?;
        let (stop, journal) = (run.token().clone(), run.plan().cloned());
        let part =
            |number: usize| journal.as_ref().map(|journal| journal.part(&format!(".trial-{}", number + 1)));
        let split = self.plain_split();
        let jobs: Vec<usize> = (0..candidates.len()).collect();
        let mut found: Vec<Option<Trained>> = jobs.iter().map(|_| None).collect();
        let in_turn = jobs.len().div_ceil(rayon::current_num_threads());
        run.tell(TrainEvent::Trials { of: jobs.len() })?;
        side_by_side(
            rayon::current_num_threads(),
            &AtomicBool::new(false),
            &jobs,
            |&number| {
                let run = Run::silent().stop(&stop).journal(part(number));
                let settings = short(&candidates[number].settings, in_turn);
                let identity = self.identity(&settings, number);
                let outcome = settings.method.spec().train(Training {
                    data: &self.data,
                    train_rows: &split.0,
                    valid_rows: &split.1,
                    settings: &settings.train,
                    seed: settings.seed,
                    identity: &identity,
                    run,
                });
                match outcome {
                    Ok((map, outcome)) => Ok((number, Some(Trained { map, outcome }))),
                    Err(Error::Numerical(_)) => Ok((number, None)),
                    Err(error) => Err(error),
                }
            },
            |result| {
                let (number, trained) = result?;
                found[number] = trained.filter(|trained| trained.outcome.best_valid_nll.is_finite());
                Ok(())
            },
        )?;
        let scores: Vec<Option<f64>> =
            found.iter().map(|found| Some(found.as_ref()?.outcome.best_valid_nll)).collect();
        let mut best: Option<(usize, f64)> = None;
        for (number, nll) in scores.iter().enumerate().filter_map(|(number, nll)| Some((number, (*nll)?))) {
            if best.is_none_or(|(_, least)| nll < least) {
                best = Some((number, nll));
            }
        }
        let (chosen, _) = best.ok_or_else(|| {
            Error::Numerical(
                "no method reached a finite validation loss in its trial; look for extreme values in the table (a \
                 robust scaling may help)"
                    .to_owned(),
            )
        })?;
        let mut settings = candidates[chosen].settings.clone();
        settings.train.minutes = settings.train.minutes.map(|minutes| (1.0 - TRIAL_SHARE) * minutes);
        let best = found.swap_remove(chosen);
        let stopped = stop.is_stopped();
        // Members of a closed form would differ in nothing but their rows.
        let closed = best.as_ref().is_some_and(|best| best.outcome.stop == Stop::ClosedForm);
        if stopped {
            settings.members = None;
        } else if !closed {
            settings.members.get_or_insert(MEMBERS);
        }
        let trials = candidates
            .into_iter()
            .zip(scores)
            .map(|(candidate, valid_nll)| Trial {
                name: candidate.name,
                method: candidate.settings.method,
                valid_nll,
            })
            .collect();
        let choice = Choice { trials, chosen };
        run.tell(TrainEvent::Chosen { text: choice.describe() })?;
        Ok((settings, choice, best.filter(|_| stopped)))
    }

    /// Forgets the states of the trials.
    pub(super) fn discard_trials(&self, journal: &crate::Journal, trials: usize) {
        for number in 1..=trials {
            crate::data::discard(&journal.part(&format!(".trial-{number}")).path);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::demo;
    use crate::fit;

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
    fn every_offer_of_the_list_is_sound() {
        let problem = Problem { target: 2, given: 3, rows: 1000 };
        let all = candidates(&FitSettings::default(), problem).unwrap();
        let mut names: Vec<&str> = all.iter().map(|candidate| candidate.name.as_str()).collect();
        names.dedup();
        assert!(names.len() == all.len() && names.len() >= 3, "{names:?}");
        for candidate in &all {
            candidate.settings.validate().unwrap();
        }
    }

    /// Few rows and steps: what counts is that the best of the trials is taken, told and kept, whatever the threads.
    #[test]
    fn the_best_trial_is_fitted_and_the_choice_is_the_same_for_any_number_of_threads() {
        let table = demo::simulate(300, 0);
        let mut settings = FitSettings {
            target: Some("x1,x2".parse().unwrap()),
            given: Some("y".parse().unwrap()),
            ..MethodChoice::Auto.settings()
        };
        settings.train.epochs = 2;
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| fit(&table, &settings, Run::silent())).unwrap().posterior
        };
        let model = run(1);
        let choice = model.header().choice.clone().unwrap();
        let best = choice.trials[choice.chosen].valid_nll.unwrap();
        assert!(choice.trials.iter().filter_map(|trial| trial.valid_nll).all(|nll| nll >= best));
        let kept = &model.header().settings;
        assert_eq!(kept.method, choice.trials[choice.chosen].method);
        assert!(!kept.auto);
        let densities = |model: &crate::Posterior| model.log_density(&[0.3, 0.4], &[0.5]).unwrap().user;
        let other = run(3);
        assert_eq!(other.header().choice, Some(choice));
        assert_eq!(densities(&model), densities(&other));
    }

    /// What is in closed form needs no time: a fit that is stopped at once still ends with a map that means something.
    #[test]
    fn a_fit_that_is_stopped_in_its_trials_ends_with_the_best_of_them() {
        let table = demo::simulate(300, 0);
        let settings = FitSettings {
            target: Some("x1,x2".parse().unwrap()),
            given: Some("y".parse().unwrap()),
            ..MethodChoice::Auto.settings()
        };
        let stop = crate::StopToken::new();
        stop.stop();
        let fitted = fit(&table, &settings, Run::silent().stop(&stop)).unwrap();
        let header = fitted.posterior.header();
        let choice = header.choice.as_ref().unwrap();
        assert!(header.members.is_empty() && header.settings.members.is_none());
        assert_eq!(header.settings.method, choice.trials[choice.chosen].method);
        let best = choice.trials[choice.chosen].valid_nll.unwrap();
        assert!(choice.trials.iter().filter_map(|trial| trial.valid_nll).all(|nll| nll >= best));
        assert_eq!(header.training.best_valid_nll, best);
    }
}
