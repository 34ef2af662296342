//! One verdict in plain words from all figures, by thresholds that are stated once, here.

use std::fmt;

use serde::Serialize;

use super::{Check, capital, probability};
use crate::diagnose::{Calibration, Quantity, REGRESSION_COLUMNS, RankCheck};

/// Where figures turn into words. Each is explained in `docs/diagnostics.md`.
pub mod thresholds {
    /// A deviation of coverage, max |F(z) − z|, up to this is of no consequence even where it is significant.
    pub const NEGLIGIBLE_DEVIATION: f64 = 0.02;
    /// From this deviation on a posterior is not calibrated, if it is also [`CLEAR`].
    pub const SERIOUS_DEVIATION: f64 = 0.06;
    /// p-value, corrected for all checks, that a serious deviation must have.
    pub const CLEAR: f64 = 0.01;
    /// Fewer pairs than this cannot clear a posterior.
    pub const FEW_PAIRS: usize = 200;
    /// Fewer pairs than this make no fault of a distance, however clear: most of the box that TARP's points lie in is then
    /// of a few posteriors.
    pub const FEW_FOR_TARP: usize = 20;
    /// Held-out NLL above the validation NLL by more than this, in nats a target column, and three standard errors.
    pub const NLL_DIFFERENCE: f64 = 0.05;
    /// Part of the held-out observations outside the training data.
    pub const EXTREME_PART: f64 = 0.01;
    /// Root mean square of the way there and back, in standardised coordinates.
    pub const ROUND_TRIP: f64 = 1e-3;
    /// The same beyond which the map is not inverted at all.
    pub const ROUND_TRIP_BROKEN: f64 = 0.05;
    /// Distance of ∫π(x|y)dx from one, beyond what the grid does not resolve.
    pub const NORMALISATION: f64 = 0.01;
    /// Largest difference of a flow's log-determinant from that of its Jacobian.
    pub const LOG_DET: f64 = 0.05;
    /// Change of a flow's draws when its steps are doubled, in standard deviations.
    pub const STEP_ERROR: f64 = 0.02;
    /// Part of the simulations from the posterior that may fail.
    pub const FAILED_SIMULATIONS: f64 = 0.1;
    /// Validation minus training NLL, in nats, that counts as overfitting.
    pub const GAP: f64 = 0.05;
    /// Fall of the validation loss in the last fifth of the steps, in nats, that counts as still learning.
    pub const STILL_FALLING: f64 = 0.01;
    /// Sliced Wasserstein distance between fits, in posterior standard deviations beyond chance.
    pub const DISAGREEMENT: f64 = 0.2;
    /// Accuracy with which a classifier tells the draws of two fits apart.
    pub const TOLD_APART: f64 = 0.65;
}

use thresholds::{
    CLEAR, DISAGREEMENT, EXTREME_PART, FAILED_SIMULATIONS, FEW_FOR_TARP, FEW_PAIRS, LOG_DET,
    NEGLIGIBLE_DEVIATION, NLL_DIFFERENCE, NORMALISATION, ROUND_TRIP, ROUND_TRIP_BROKEN, SERIOUS_DEVIATION,
    STEP_ERROR, TOLD_APART,
};

/// Whether to trust a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// No check speaks against it, and there were enough pairs for that to mean something.
    Trustworthy,
    /// Something is to be kept in mind.
    Care,
    /// A check speaks clearly against it.
    Untrustworthy,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trustworthy => "trustworthy",
            Self::Care => "usable with care",
            Self::Untrustworthy => "not to be trusted",
        })
    }
}

/// What a finding means for the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Good,
    /// Good to know; changes nothing.
    Note,
    /// Care is needed.
    Care,
    /// Speaks clearly against the model.
    Bad,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Topic {
    /// The held-out table itself.
    Data,
    /// Likelihood of held-out rows.
    Likelihood,
    /// Calibration.
    Calibration,
    /// Map certificates.
    Map,
    /// Out-of-distribution rows.
    Support,
    /// Posterior predictive checks.
    Predictive,
    /// Training history.
    Learning,
    /// Other fits.
    Members,
}

/// One reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What it means.
    pub severity: Severity,
    /// What it is about.
    pub topic: Topic,
    /// One sentence with its figures.
    pub text: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// In one word.
    pub trust: Trust,
    /// In one sentence.
    pub headline: String,
    /// All reasons, the gravest first.
    pub findings: Vec<Finding>,
}

/// Collects findings.
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, topic: Topic, text: String) {
        self.0.push(Finding { severity, topic, text });
    }
}

impl Verdict {
    pub(super) fn undecided() -> Self {
        Self { trust: Trust::Care, headline: String::new(), findings: Vec::new() }
    }

    /// The verdict of the figures in `found`.
    pub(super) fn of(found: &Check) -> Self {
        let mut findings = Findings(Vec::new());
        data(found, &mut findings);
        let joint = found.marginal_calibration.is_some();
        let block = if joint { "target given the rest: " } else { "" };
        let given = found.subject.given.len();
        calibration(&found.calibration, &found.subject.target, given, block, &mut findings);
        if let Some(marginal) = &found.marginal_calibration {
            calibration(marginal, &found.subject.given, 0, "given columns alone: ", &mut findings);
        }
        likelihood(found, &mut findings);
        certificates(found, &mut findings);
        support(found, &mut findings);
        predictive(found, &mut findings);
        learning(found, &mut findings);
        members(found, &mut findings);
        let mut findings = findings.0;
        // What is good to know, and changes nothing, comes last.
        findings.sort_by_key(|finding| match finding.severity {
            Severity::Bad => 0,
            Severity::Care => 1,
            Severity::Good => 2,
            Severity::Note => 3,
        });
        let worst = findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Good);
        let trust = match worst {
            Severity::Good | Severity::Note => Trust::Trustworthy,
            Severity::Care => Trust::Care,
            Severity::Bad => Trust::Untrustworthy,
        };
        let grave: Vec<&Finding> = findings.iter().filter(|finding| finding.severity == worst).collect();
        let headline = match trust {
            Trust::Trustworthy => format!(
                "No miscalibration detected with {} held-out pairs; all map checks pass.",
                found.calibration.pairs
            ),
            _ => {
                let more = match grave.len() - 1 {
                    0 => String::new(),
                    1 => " (and 1 more reason)".to_owned(),
                    more => format!(" (and {more} more reasons)"),
                };
                format!("{}{more}.", capital(&grave[0].text))
            }
        };
        Self { trust, headline, findings }
    }
}

fn data(found: &Check, findings: &mut Findings) {
    if found.held_out.trained_on {
        findings.add(
            Severity::Care,
            Topic::Data,
            "the table is the one the model was fitted to, so nothing in it is held out and every figure is optimistic; check \
             with rows that the fit has not seen"
                .to_owned(),
        );
    }
    if found.likelihood.failed > 0 {
        let severity = if 100 * found.likelihood.failed > found.likelihood.rows {
            Severity::Bad
        } else {
            Severity::Care
        };
        findings.add(
            severity,
            Topic::Data,
            format!(
                "the density of {} of {} held-out rows cannot be computed: they lie far outside the training distribution",
                found.likelihood.failed, found.likelihood.rows
            ),
        );
    }
}

/// The name of what a check ranks, parameters by their `names`.
pub fn quantity_name(quantity: Quantity, names: &[String]) -> String {
    match quantity {
        Quantity::Parameter(j) => names.get(j).cloned().unwrap_or_else(|| format!("column {}", j + 1)),
        Quantity::Density => "expected coverage".to_owned(),
        Quantity::Tarp => "TARP".to_owned(),
        Quantity::Predicted => "TARP at predicted points".to_owned(),
    }
}

/// The one of 50 % and 90 % whose region holds the truth more wrongly, and the per cent of pairs in which it does, so that the
/// figure in a sentence speaks for what the sentence says.
fn telling(check: &RankCheck) -> (f64, f64) {
    let [half, most] = [0.5, 0.9].map(|level| (100.0 * level, 100.0 * check.coverage(level)));
    let off = |(level, share): (f64, f64)| (share - level).abs();
    if off(half) > off(most) { half } else { most }
}

/// `given` counts the columns that the target was predicted from.
fn calibration(found: &Calibration, names: &[String], given: usize, block: &str, findings: &mut Findings) {
    // Half the width of the band in the middle: what could have been seen.
    let visible = found.band.iter().map(|(low, high)| 0.5 * (high - low)).fold(0.0, f64::max);
    let mut quiet = true;
    let mut worst: Vec<&RankCheck> = found.checks.iter().collect();
    worst.sort_by(|a, b| a.adjusted_p_value.total_cmp(&b.adjusted_p_value));
    let too_few = |check: &RankCheck| {
        matches!(check.quantity, Quantity::Tarp | Quantity::Predicted) && found.pairs < FEW_FOR_TARP
    };
    for check in worst {
        if check.adjusted_p_value > found.level {
            continue;
        }
        quiet = false;
        let deviation = check.deviation();
        let severity = if deviation <= NEGLIGIBLE_DEVIATION {
            Severity::Note
        } else if deviation > SERIOUS_DEVIATION && check.adjusted_p_value <= CLEAR && !too_few(check) {
            Severity::Bad
        } else {
            Severity::Care
        };
        let (level, share) = telling(check);
        let coverage = match check.quantity {
            Quantity::Parameter(_) if check.is_shifted() => {
                let above = 100.0 * check.above_median();
                let (side, part) = if above >= 50.0 { ("above", above) } else { ("below", 100.0 - above) };
                format!("the truth lies {side} the median in {part:.1} % of pairs")
            }
            Quantity::Parameter(_) => {
                format!("{level:.0} % intervals hold the truth in {share:.1} % of pairs")
            }
            Quantity::Density => {
                format!("{level:.0} % highest-density regions hold the truth in {share:.1} % of pairs")
            }
            Quantity::Tarp | Quantity::Predicted => {
                format!("{level:.0} % balls hold the truth in {share:.1} % of pairs")
            }
        };
        let how = if severity == Severity::Note { ", a negligible deviation" } else { "" };
        findings.add(
            severity,
            Topic::Calibration,
            format!(
                "{block}{} ({}): {coverage}, coverage is off by up to {:.1} points, {}{how}",
                match check.quantity {
                    Quantity::Parameter(_) => {
                        format!("\"{}\" is not calibrated", quantity_name(check.quantity, names))
                    }
                    _ => format!("{} is off", quantity_name(check.quantity, names)),
                },
                check.reading(),
                100.0 * deviation,
                probability(check.adjusted_p_value)
            ),
        );
    }
    if quiet {
        findings.add(
            Severity::Good,
            Topic::Calibration,
            format!(
                "{block}no calibration check speaks against the posterior ({} checks, {} pairs × {} draws, smallest \
                 corrected {}); coverage errors above about {:.1} points would have been detected",
                found.checks.len(),
                found.pairs,
                found.draws,
                probability(found.p_value()),
                100.0 * visible
            ),
        );
    }
    if found.pairs < FEW_PAIRS {
        findings.add(
            Severity::Care,
            Topic::Calibration,
            format!(
                "{block}only {} pairs: coverage errors below {:.0} points cannot be detected; give {FEW_PAIRS} rows or \
                 more, better 1000",
                found.pairs,
                100.0 * visible
            ),
        );
    }
    if let Some(explained) = found.explained.filter(|&explained| explained < 0.02) {
        let regressors = match given > REGRESSION_COLUMNS {
            true => format!("{REGRESSION_COLUMNS} random mixtures of the {given} given columns"),
            false => "the given columns".to_owned(),
        };
        findings.add(
            Severity::Note,
            Topic::Calibration,
            format!(
                "{block}a regression on {regressors} explains {:.1} % of the target's variance, so that no calibration \
                 check could detect a model that ignores them",
                100.0 * explained
            ),
        );
    }
}

fn likelihood(found: &Check, findings: &mut Findings) {
    let likelihood = &found.likelihood;
    let own = likelihood.target.standardised;
    let n = found.subject.target.len() as f64;
    // Where one row carries a mean, the median stands beside it, and beside the one it is compared with.
    let median = |median: Option<f64>| match median.filter(|_| own.carrier.is_some()) {
        Some(median) => format!(" (median {median:.3})"),
        None => String::new(),
    };
    let text = format!(
        "held-out NLL {:.3} ± {:.3}{}, validation in training {:.3}{}, {} {:.3} (standardised)",
        own.mean,
        own.standard_error,
        median(Some(own.median)),
        likelihood.validation,
        median(likelihood.validation_median),
        likelihood.baseline_name(),
        likelihood.baseline
    );
    if let Some(carrier) = own.carrier {
        let text = format!("{}, standardised", carrier.sentence("held-out NLL", &own));
        findings.add(Severity::Note, Topic::Likelihood, text);
    }
    let off = likelihood.difference > (3.0 * likelihood.difference_error).max(NLL_DIFFERENCE * n);
    if off {
        let text = format!(
            "held-out rows are less likely than the validation rows of the training by {:.3} ± {:.3} nats: they may come \
             from another distribution ({text})",
            likelihood.difference, likelihood.difference_error
        );
        findings.add(Severity::Care, Topic::Likelihood, text);
    } else {
        findings.add(Severity::Good, Topic::Likelihood, text);
    }
    let worse = |than: f64| own.mean > than + 3.0 * own.standard_error;
    if !found.subject.given.is_empty() && worse(likelihood.ignorant) {
        let text = format!(
            "the model scores worse ({:.3}) than a Gaussian that ignores the given columns ({:.3})",
            own.mean, likelihood.ignorant
        );
        findings.add(Severity::Bad, Topic::Likelihood, text);
    } else if likelihood.baseline_is_conditional && worse(likelihood.baseline) {
        let text = format!(
            "the model scores worse ({:.3}) than a conditional Gaussian fitted to the same rows ({:.3}), which needs no \
             training: train longer, with a smaller network, or use the method gaussian",
            own.mean, likelihood.baseline
        );
        findings.add(Severity::Care, Topic::Likelihood, text);
    }
    if let Some(disagreement) = &found.disagreement {
        let text = format!(
            "the {} members of the ensemble disagree by {:.3} nats on average over {} pairs, {:.3} at most (of {:.3} for \
             members that have nothing in common)",
            disagreement.members,
            disagreement.mean,
            disagreement.pairs,
            disagreement.largest,
            (disagreement.members as f64).ln()
        );
        findings.add(Severity::Note, Topic::Members, text);
    }
}

fn certificates(found: &Check, findings: &mut Findings) {
    let own = &found.certificates;
    let spectrum = &own.spectrum;
    match spectrum.bound {
        Some(bound) => {
            let text = format!(
                "the Hessian of the potential has eigenvalues from {} to {} over {} pairs, and nowhere below {}",
                short(spectrum.smallest),
                short(spectrum.largest),
                spectrum.rows,
                short(bound)
            );
            let fine = spectrum.smallest > 0.0 && bound > 0.0;
            let note = if fine { ": the map is one to one" } else { ": the map is not one to one" };
            findings.add(if fine { Severity::Good } else { Severity::Bad }, Topic::Map, text + note);
        }
        None => {
            let error = spectrum.log_det_error.unwrap_or(0.0);
            let text = format!(
                "the Jacobian of the map has singular values from {} to {} over {} pairs; its log-determinant is that of \
                 central differences to {}",
                short(spectrum.smallest),
                short(spectrum.largest),
                spectrum.rows,
                short(error)
            );
            let fine = error <= LOG_DET && spectrum.smallest > 0.0;
            let note = if fine { "" } else { ": densities are off, take more evaluation steps" };
            findings.add(if fine { Severity::Good } else { Severity::Care }, Topic::Map, text + note);
        }
    }
    let inversions = &own.inversions;
    if inversions.unsolved > 0 {
        let severity =
            if 1000 * inversions.unsolved > inversions.draws { Severity::Bad } else { Severity::Care };
        findings.add(
            severity,
            Topic::Map,
            format!(
                "{} of {} draws were not solved to the tolerance (largest residual {})",
                inversions.unsolved,
                inversions.draws,
                short(inversions.worst_residual)
            ),
        );
    }
    let trip = &own.round_trip;
    let text = format!(
        "there and back, x → z → x, has an error of {} (root mean square; {} at the worst of {} pairs, standardised)",
        short(trip.rms),
        short(trip.worst),
        trip.rows
    );
    let severity = match trip.rms {
        rms if rms <= ROUND_TRIP => Severity::Good,
        rms if rms <= ROUND_TRIP_BROKEN => Severity::Care,
        _ => Severity::Bad,
    };
    findings.add(severity, Topic::Map, text);
    if let Some(paths) = &own.paths {
        let fine = paths.step_error <= STEP_ERROR;
        findings.add(
            if fine { Severity::Good } else { Severity::Care },
            Topic::Map,
            format!(
                "paths cost {:.3} times straight ones; {} steps leave an error of {} posterior standard deviations",
                paths.cost_ratio,
                paths.steps,
                short(paths.step_error)
            ),
        );
    }
    if !own.normalisation.is_empty() {
        let off = |n: &super::Normalisation| (n.integral - 1.0).abs() - 2.0 * n.resolution;
        let list =
            own.normalisation.iter().map(|n| format!("{:.4}", n.integral)).collect::<Vec<_>>().join(", ");
        let unresolved = own.normalisation.iter().any(|n| n.resolution > NORMALISATION);
        let severity = match own.normalisation.iter().map(off).fold(f64::NEG_INFINITY, f64::max) {
            off if !(off <= NORMALISATION) => Severity::Care,
            _ if unresolved => Severity::Note,
            _ => Severity::Good,
        };
        let note = if unresolved { ", on a grid too coarse for a density so narrow" } else { "" };
        findings.add(severity, Topic::Map, format!("the density integrates to {list}{note}"));
    }
}

fn support(found: &Check, findings: &mut Findings) {
    let Some(support) = &found.outliers else { return };
    let part = support.extreme as f64 / support.rows as f64;
    let text = format!(
        "{} of {} held-out observations lie outside the training data (expected by chance: {:.1})",
        support.extreme,
        support.rows,
        support.expected * support.rows as f64
    );
    if part > EXTREME_PART && support.extreme > 2 {
        let column = support.column.as_deref().unwrap_or_default();
        findings.add(Severity::Care, Topic::Support, format!("{text}; most often \"{column}\" is far out"));
    } else {
        findings.add(Severity::Good, Topic::Support, text);
    }
}

fn predictive(found: &Check, findings: &mut Findings) {
    let Some(predictive) = &found.predictive else { return };
    let level = found.settings.level;
    let bad: Vec<String> = predictive
        .outputs
        .iter()
        .filter(|output| output.adjusted_p_value <= level)
        .map(|output| format!("{} ({:.0} %)", output.name, 100.0 * output.extreme))
        .collect();
    if predictive.observations == 0 {
        findings.add(
            Severity::Care,
            Topic::Predictive,
            "no observation could be compared with its predictive: too many simulations failed".to_owned(),
        );
    } else if bad.is_empty() {
        findings.add(
            Severity::Good,
            Topic::Predictive,
            format!(
                "simulations from the posterior look like the {} observations in every output (weak evidence: the data are \
                 used twice)",
                predictive.observations
            ),
        );
    } else {
        findings.add(
            Severity::Care,
            Topic::Predictive,
            format!(
                "observed values lie at the edge of their predictive more often than a right posterior allows (10 %) in {}",
                bad.join(", ")
            ),
        );
    }
    if predictive.failed > 0 {
        let all = predictive.observations + predictive.left_out;
        let asked = predictive.draws * all;
        let few = predictive.left_out == 0 && predictive.failed as f64 <= FAILED_SIMULATIONS * asked as f64;
        let mut text = format!("{} of {asked} simulations from the posterior failed", predictive.failed);
        if predictive.left_out > 0 {
            text.push_str(&format!(
                "; {} of {all} observations, where more than half of them did, are left out",
                predictive.left_out
            ));
        }
        if let Some(reason) = &predictive.failure {
            text.push_str(&format!(" (the first: {reason})"));
        }
        findings.add(if few { Severity::Note } else { Severity::Care }, Topic::Predictive, text);
    }
}

fn learning(found: &Check, findings: &mut Findings) {
    use super::Advice;
    let learning = &found.learning;
    let advice = match learning.advice {
        Advice::MoreTraining => "more training is likely to help",
        Advice::MoreSimulations => "more simulations are likely to help",
        Advice::Neither => "neither more training nor more simulations are likely to help much",
    };
    findings.add(Severity::Note, Topic::Learning, format!("{advice}: {}", learning.reason));
}

fn members(found: &Check, findings: &mut Findings) {
    for member in &found.members {
        let beyond = member.distance - member.chance_distance;
        let better = member.nll_difference;
        let text = format!(
            "{} (seed {}): draws {:.2} posterior standard deviations apart (chance {:.2}), a classifier tells them apart with \
             {:.0} %, held-out NLL {:+.3} ± {:.3}",
            member.name,
            member.seed,
            member.distance,
            member.chance_distance,
            100.0 * member.c2st,
            better.mean,
            better.standard_error
        );
        if beyond > DISAGREEMENT || member.c2st > TOLD_APART {
            findings.add(Severity::Care, Topic::Members, format!("the answer depends on the fit: {text}"));
        } else {
            findings.add(Severity::Good, Topic::Members, format!("another fit agrees: {text}"));
        }
        if better.mean < -(3.0 * better.standard_error).max(NLL_DIFFERENCE) {
            let text = format!(
                "{} is the better of the two: its held-out NLL is lower by {:.3}",
                member.name, -better.mean
            );
            findings.add(Severity::Note, Topic::Members, text);
        }
    }
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e4).contains(&size) => {
            let digits = (2 - size.log10().floor() as i32).max(0) as usize;
            format!("{value:.digits$}")
        }
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::diagnose::{CalibrationSettings, PairDraws, Pairs, calibrate};

    /// What is found of `pairs` truths at the places of `quantile` among the same 99 draws, 1 to 99.
    fn found(pairs: usize, quantile: impl Fn(f64) -> f64) -> Vec<Finding> {
        let truth: Vec<f64> =
            (0..pairs).map(|pair| 100.0 * quantile((pair as f64 + 0.5) / pairs as f64)).collect();
        let settings = CalibrationSettings { draws: 99, ..CalibrationSettings::default() };
        let calibration = calibrate(&Pairs::new(&truth, 1, &[], 0).unwrap(), &settings, |range| {
            let draws = range.flat_map(|_| (1..100).map(f64::from)).collect();
            Ok(PairDraws { draws, log_densities: None })
        })
        .unwrap();
        let mut findings = Findings(Vec::new());
        super::calibration(&calibration, &["p".to_owned()], 0, "", &mut findings);
        findings.0
    }

    /// Draws too narrow in the middle, while the 90 % intervals hold more than 90 %.
    #[test]
    fn a_reason_quotes_the_level_that_speaks_for_it() {
        // Part 0.3 of the truths in the middle half, 0.64 between it and the middle 92 %.
        let quantile = |u: f64| match (u - 0.5).abs() {
            d if d < 0.15 => 0.5 + (u - 0.5) / 0.6,
            d if d < 0.47 => 0.5 + (u - 0.5).signum() * (0.25 + (d - 0.15) * 0.2 / 0.32),
            d => 0.5 + (u - 0.5).signum() * (0.45 + (d - 0.47) * 0.05 / 0.03),
        };
        let findings = found(1000, quantile);
        let own = findings.iter().find(|f| f.text.contains("\"p\" is not calibrated")).unwrap();
        assert!(own.text.contains("draws too narrow"), "{own:?}");
        assert!(own.text.contains("50 % intervals hold the truth in 30."), "{own:?}");
    }

    #[test]
    fn distances_make_no_fault_of_few_pairs() {
        // Every truth far below all draws: clear in every check.
        let tarp = |pairs: usize| {
            let findings = found(pairs, |_| -50.0);
            let of_tarp = |f: &&Finding| f.text.starts_with("TARP");
            findings.iter().find(of_tarp).map(|f| f.severity)
        };
        assert_eq!(tarp(FEW_FOR_TARP), Some(Severity::Bad));
        assert_eq!(tarp(FEW_FOR_TARP - 1), Some(Severity::Care));
    }

    #[test]
    fn a_regression_on_mixtures_is_called_so() {
        let text = |given: usize| {
            let mut calibration = calibrate(
                &Pairs::new(&[0.5, 1.5], 1, &[], 0).unwrap(),
                &CalibrationSettings { draws: 1, ..CalibrationSettings::default() },
                |range| Ok(PairDraws { draws: vec![1.0; range.len()], log_densities: None }),
            )
            .unwrap();
            calibration.explained = Some(0.0);
            let mut findings = Findings(Vec::new());
            super::calibration(&calibration, &["p".to_owned()], given, "", &mut findings);
            let own = findings.0.into_iter().find(|f| f.text.contains("explains 0.0 %"));
            own.map(|f| f.text).unwrap_or_default()
        };
        assert!(text(300).starts_with("a regression on 30 random mixtures of the 300 given columns"));
        assert!(text(30).starts_with("a regression on the given columns"));
    }
}
