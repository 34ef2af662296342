//! What the training history says, whether other fits agree, and what is likelier to help.

use serde::Serialize;

use super::likelihood::{RowScores, robust};
use super::pairs::{Chosen, HeldOut};
use super::{CheckEvent, CheckSettings, Likelihood, Stage, thresholds};
use crate::diagnose::{C2stSettings, Sample, SlicedSettings, c2st_until, sliced_wasserstein_until};
use crate::map::Method;
use crate::map::method::SizeAdvice;
use crate::statistics::{Estimate, mean};
use crate::train::{Progress, Stop};
use crate::{Error, Posterior, Result, Run, TrainingScores};

/// Observations at which two models' draws are compared, and those of them that a classifier judges.
const MEMBER_OBSERVATIONS: usize = 20;
const CLASSIFIED: usize = 3;
/// Draws of each model at each.
const MEMBER_DRAWS: usize = 1000;

/// What is likelier to make the model better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Advice {
    /// The training was cut short while the validation loss still fell.
    MoreTraining,
    /// Training rows fit better than held-out ones.
    MoreSimulations,
    /// Neither: training has settled and there is no gap.
    Neither,
}

/// How much better training rows fit than validation rows: validation minus training NLL, standardised nats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Gap {
    /// Difference of the means. A row that alone dominates its mean is left out: [`crate::statistics::Carrier`].
    pub mean: f64,
    /// Difference of the medians; none for [`GapSource::LastSteps`].
    pub median: Option<f64>,
    /// Rows left out of the means.
    pub left_out: usize,
    /// What it was computed from.
    pub source: GapSource,
}

/// Where the figures of a [`Gap`] come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum GapSource {
    /// The rows of the fit, scored with the weights that the model holds.
    SavedModel,
    /// Losses of the steps before the best one: an estimate, for models of versions that stored no scores. Each loss is
    /// that of weights which were left behind at once, so it can be far off.
    LastSteps,
}

impl Gap {
    /// The gap and one standard deviation of chance, from the scores in the model file.
    fn of_scores(scores: &TrainingScores) -> (Self, f64) {
        let (train, valid) = (&scores.train.nll, &scores.valid.nll);
        let gap = Self {
            mean: valid.robust_mean() - train.robust_mean(),
            median: Some(valid.median - train.median),
            left_out: [train, valid].iter().filter(|nll| nll.carrier.is_some()).count(),
            source: GapSource::SavedModel,
        };
        (gap, valid.robust_error().hypot(train.robust_error()))
    }

    /// An estimate from the tenth of the steps before the best one. None where the training loss has penalties in it, and without a history.
    fn of_history(model: &Posterior) -> Option<Self> {
        let training = &model.info().training;
        let window = training.steps.div_ceil(10);
        let near = |p: &&Progress| p.step <= training.best_step && p.step + window >= training.best_step;
        let gaps: Vec<f64> = model.history().iter().filter(near).map(|p| p.valid_nll - p.train_nll).collect();
        (!model.method().info().penalised && !gaps.is_empty()).then(|| Self {
            mean: mean(&gaps),
            median: None,
            left_out: 0,
            source: GapSource::LastSteps,
        })
    }

    /// What the figure is based on, in words.
    fn basis(&self, noise: f64) -> String {
        let mut text = format!("chance: ±{noise:.3}");
        if let Some(median) = self.median {
            text.push_str(&format!("; medians differ by {median:.3}"));
        }
        match self.left_out {
            0 => {}
            1 => text.push_str("; one row that alone would dominate its mean is left out"),
            _ => text.push_str("; two rows that alone would dominate their means are left out"),
        }
        if self.source == GapSource::LastSteps {
            text.push_str(
                "; estimated from the losses of the last steps, which can be far off, because this model file is older \
                 than the scores of the saved weights: fit again for the true figure",
            );
        }
        text
    }
}

/// What the training history says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Learning {
    /// Why the training ended.
    pub stop: Stop,
    /// Steps taken.
    pub steps: u64,
    /// The step whose weights the model holds.
    pub best_step: u64,
    /// Passes over the training rows.
    pub epochs: f64,
    /// How much better training rows fit than validation rows, if that can be told.
    pub gap: Option<Gap>,
    /// What one standard deviation of chance does to the gap, or without one to the validation loss.
    pub noise: f64,
    /// How much the best validation loss fell in the last fifth of the steps; none without a history.
    pub last_gain: Option<f64>,
    /// How far the last validations lie above the best one; large when training overfits.
    pub rise: Option<f64>,
    /// What is likelier to help.
    pub advice: Advice,
    /// Why, with the figures.
    pub reason: String,
}

impl Learning {
    pub(super) fn read(model: &Posterior, likelihood: &Likelihood) -> Self {
        let (header, history) = (model.info(), model.history());
        let training = &header.training;
        let (gap, noise) = match &training.scores {
            Some(scores) => {
                let (gap, noise) = Gap::of_scores(scores);
                (Some(gap), noise)
            }
            None => {
                let kept = (likelihood.rows - likelihood.failed).max(1) as f64;
                let scatter = likelihood.target.standardised.standard_error * kept.sqrt();
                (Gap::of_history(model), scatter / (training.valid_rows.max(1) as f64).sqrt())
            }
        };
        let last_gain = history
            .iter()
            .rev()
            .find(|p| 5 * p.step <= 4 * training.steps)
            .map(|p| p.best_valid_nll - training.best_valid_nll);
        let tail: Vec<f64> = history.iter().rev().take(5).map(|p| p.valid_nll).collect();
        let rise = (!tail.is_empty()).then(|| (mean(&tail) - training.best_valid_nll).max(0.0));
        let mut found = Self {
            stop: training.stop,
            steps: training.steps,
            best_step: training.best_step,
            epochs: history.last().map_or(0.0, |p| p.epoch),
            gap,
            noise,
            last_gain,
            rise,
            advice: Advice::Neither,
            reason: String::new(),
        };
        (found.advice, found.reason) = found.advise(model.method(), training.train_rows);
        found
    }

    /// What is likelier to help a map of this method, fitted to this many rows, and why.
    fn advise(&self, method: Method, rows: usize) -> (Advice, String) {
        let cut_short = !matches!(self.stop, Stop::Converged | Stop::ClosedForm);
        let ended = match self.stop {
            Stop::Minutes => "the time budget",
            Stop::Interrupted => "the user",
            Stop::Diverged => "a loss that was not finite",
            Stop::Steps => "the number of steps",
            _ => "the number of epochs",
        };
        let SizeAdvice { smaller, larger } = method.info().size;
        let (smaller, more) = match smaller {
            "" => (String::new(), "another method"),
            smaller => (format!(", or {smaller},"), "more training"),
        };
        let gaping = |gap: f64| gap > thresholds::GAP.max(2.0 * self.noise);
        if cut_short && self.last_gain.is_none() {
            let reason = format!(
                "training was ended by {ended} after {} steps, with too few validations to tell whether the validation NLL \
                 had settled",
                self.steps
            );
            return (Advice::MoreTraining, reason);
        }
        if let Some(gain) = self.last_gain.filter(|&gain| cut_short && gain > thresholds::STILL_FALLING) {
            let reason = format!(
                "training was ended by {ended} while the validation NLL still fell, by {gain:.3} in the last fifth of \
                 the steps"
            );
            return (Advice::MoreTraining, reason);
        }
        if let Some(gap) = self.gap.filter(|gap| gaping(gap.mean)) {
            let reason = format!(
                "training rows fit better than validation rows by {:.3} nats ({}): the map is overfitting its {rows} rows, \
                 so more simulations{smaller} are likelier to help than {more}",
                gap.mean,
                gap.basis(self.noise),
            );
            return (Advice::MoreSimulations, reason);
        }
        if let Some(rise) = self.rise.filter(|&rise| gaping(rise)) {
            let reason = format!(
                "after its best step the validation NLL rose by {rise:.3} nats: training overfits the {rows} rows, so \
                 more simulations{smaller} are likelier to help than {more}"
            );
            return (Advice::MoreSimulations, reason);
        }
        let settled = match self.stop {
            Stop::ClosedForm => "the fit has a closed form, which more training cannot change,",
            _ => "the validation NLL had settled",
        };
        let gap = match self.gap {
            Some(gap) => format!(
                "training and validation rows fit alike (gap {:.3}, {})",
                gap.mean,
                gap.basis(self.noise)
            ),
            None => "validation did not get worse after its best step".to_owned(),
        };
        (Advice::Neither, format!("{settled} and {gap}: what is left is {larger}"))
    }
}

/// Another model of the same problem beside the one that was checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OtherFit {
    /// Its name.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Held-out NLL of the other minus that of the checked model, row by row, in the user's units.
    pub nll_difference: Estimate,
    /// Sliced Wasserstein distance (order 1) of their draws, mean over observations, in standard deviations of the checked
    /// model's posterior.
    pub distance: f64,
    /// What two sets of draws of one model are apart by chance, the same way.
    pub chance_distance: f64,
    /// How well a classifier tells their draws apart, mean over some observations; ½ is not at all.
    pub c2st: f64,
}

/// An error unless all are models of the same columns.
pub(super) fn check_members(model: &Posterior, others: &[(String, Posterior)]) -> Result<()> {
    for (name, other) in others {
        if other.target_names() != model.target_names() || other.given_names() != model.given_names() {
            let problem = format!(
                "{name} is a model of {} given {}, the one to check of {} given {}: only models of the same columns, in \
                 the same order, can be compared",
                other.target_names().join(", "),
                other.given_names().join(", "),
                model.target_names().join(", "),
                model.given_names().join(", "),
            );
            return Err(Error::setting("against", problem));
        }
    }
    Ok(())
}

pub(super) fn compare_members(
    model: &Posterior,
    others: &[(String, Posterior)],
    held_out: &HeldOut,
    chosen: &Chosen,
    scored: &RowScores,
    settings: &CheckSettings,
    run: &mut Run<'_>,
) -> Result<Vec<OtherFit>> {
    if others.is_empty() {
        return Ok(Vec::new());
    }
    let stage = Stage::Members;
    run.tell(CheckEvent::Started { stage, of: others.len() })?;
    let unconditional = model.given_names().is_empty();
    let some = chosen.spread(if unconditional { 1 } else { MEMBER_OBSERVATIONS });
    let stop = run.token().clone();
    let draw = |of: &Posterior, seed: u64, run: &Run<'_>| {
        let draws = some.place(of, run).seed(seed).sample(MEMBER_DRAWS)?;
        // In the checked model's coordinates, where distances make sense whatever the supports.
        model.transform_target(&draws.values)
    };
    let (own, again) = (draw(model, settings.seed, run)?, draw(model, !settings.seed, run)?);
    let n = model.target_names().len();
    let mut members = Vec::with_capacity(others.len());
    for (done, (name, other)) in others.iter().enumerate() {
        let theirs = draw(other, settings.seed ^ 0x5bd1_e995, run)?;
        let densities = robust(other, &held_out.target, &held_out.given, held_out.rows, run)?;
        // Both in the user's units: the two models standardise differently.
        let differences: Vec<f64> = (0..held_out.rows)
            .filter(|&row| scored.usable[row] && densities.user[row].is_finite())
            .map(|row| scored.user[row] - densities.user[row])
            .collect();
        let (mut distance, mut chance, mut accuracy) = (0.0, 0.0, 0.0);
        let classified = CLASSIFIED.min(some.count);
        for place in 0..some.count {
            let part = |draws: &'_ [f64]| -> Vec<f64> {
                draws[place * MEMBER_DRAWS * n..(place + 1) * MEMBER_DRAWS * n].to_vec()
            };
            let (own, again, theirs) = (part(&own), part(&again), part(&theirs));
            let own = Sample::new(&own, n)?;
            let (mean, mut deviation) = own.moments();
            deviation.iter_mut().for_each(|d| *d = if *d > 0.0 { *d } else { 1.0 });
            let [own, again, theirs] = [own, Sample::new(&again, n)?, Sample::new(&theirs, n)?]
                .map(|sample| sample.rescaled(&mean, &deviation));
            // Of order one: single draws far out, which heavy tails have, would decide the order two.
            let slices = SlicedSettings { seed: settings.seed, order: 1.0, ..SlicedSettings::default() };
            distance += sliced_wasserstein_until(&own, &theirs, &slices, &stop)?.distance;
            chance += sliced_wasserstein_until(&own, &again, &slices, &stop)?.distance;
            if place < classified {
                let judge = C2stSettings { seed: settings.seed, ..C2stSettings::default() };
                accuracy += c2st_until(&own, &theirs, &judge, &stop)?.accuracy;
            }
        }
        members.push(OtherFit {
            name: name.clone(),
            seed: other.info().seed,
            nll_difference: Estimate::of(&differences),
            distance: distance / some.count as f64,
            chance_distance: chance / some.count as f64,
            c2st: accuracy / classified as f64,
        });
        run.tell(CheckEvent::Advanced { stage, done: done + 1 })?;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_says_what_it_rests_on() {
        let own = Gap { mean: 0.5, median: Some(0.25), left_out: 1, source: GapSource::SavedModel };
        let text = own.basis(0.125);
        assert!(text.starts_with("chance: ±0.125; medians differ by 0.250; one row"), "{text}");
        let old = Gap { median: None, left_out: 0, source: GapSource::LastSteps, ..own }.basis(0.125);
        assert!(
            old.contains("estimated from the losses of the last steps") && old.contains("fit again"),
            "{old}"
        );
        assert!(!old.contains("medians") && !text.contains("estimated"));
    }

    /// A fit of 1000 rows that ended so, in words.
    fn advice(stop: Stop, last_gain: Option<f64>, gap: f64, method: Method) -> (Advice, String) {
        let gap = Gap { mean: gap, median: None, left_out: 0, source: GapSource::SavedModel };
        let learning = Learning {
            stop,
            steps: 40,
            best_step: 40,
            epochs: 1.0,
            gap: Some(gap),
            noise: 0.01,
            last_gain,
            rise: Some(0.0),
            advice: Advice::Neither,
            reason: String::new(),
        };
        learning.advise(method, 1000)
    }

    #[test]
    fn a_fit_that_had_barely_begun_is_not_said_to_have_settled() {
        let (found, text) = advice(Stop::Steps, None, 0.0, Method::PcpMap);
        assert_eq!(found, Advice::MoreTraining, "{text}");
        assert!(text.contains("too few validations to tell") && text.contains("after 40 steps"), "{text}");
        let (found, text) = advice(Stop::Steps, Some(0.5), 0.0, Method::PcpMap);
        assert_eq!(found, Advice::MoreTraining);
        assert!(text.contains("ended by the number of steps") && !text.contains("epochs"), "{text}");
        assert!(advice(Stop::Epochs, Some(0.5), 0.0, Method::PcpMap).1.contains("the number of epochs"));
        // One that was told to stop after it had settled, and one that stopped by itself.
        for stop in [Stop::Steps, Stop::Converged] {
            let (found, text) = advice(stop, Some(0.0), 0.0, Method::PcpMap);
            assert!(found == Advice::Neither && text.contains("had settled"), "{text}");
        }
        assert_eq!(advice(Stop::Converged, None, 0.0, Method::PcpMap).0, Advice::Neither);
    }

    #[test]
    fn a_network_is_spoken_of_only_where_there_is_one() {
        let (found, text) = advice(Stop::ClosedForm, None, 0.0, Method::Gaussian);
        assert!(found == Advice::Neither && text.contains("closed form"), "{text}");
        assert!(!text.contains("network") && !text.contains("settled"), "{text}");
        let (found, text) = advice(Stop::ClosedForm, None, 0.5, Method::Gaussian);
        assert!(found == Advice::MoreSimulations && !text.contains("network"), "{text}");
        let (_, text) = advice(Stop::Converged, None, 0.5, Method::Atm);
        assert!(text.contains("fewer terms") && !text.contains("network"), "{text}");
        assert!(advice(Stop::Converged, None, 0.5, Method::Npe).1.contains("a smaller network"));
    }
}
