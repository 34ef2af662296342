//! How likely the held-out pairs are, against the validation rows of the training and against knowing nothing.

use serde::Serialize;

use super::pairs::HeldOut;
use crate::map::HALF_LOG_TWO_PI;
use crate::statistics::Estimate;
use crate::{Error, LogDensities, Posterior, Result, Run};

/// Mean negative log-likelihoods of one factor, in both units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Scored {
    /// In the units of the user's columns.
    pub user: Estimate,
    /// Of the transformed variable that the map sees.
    pub standardised: Estimate,
}

impl Scored {
    fn of(densities: &LogDensities, usable: &[bool]) -> Self {
        let rows: Vec<usize> = (0..usable.len()).filter(|&row| usable[row]).collect();
        let estimate = |values: &[f64]| {
            let kept: Vec<f64> = rows.iter().map(|&row| -values[row]).collect();
            Estimate::of_rows(&rows, &kept)
        };
        Self { user: estimate(&densities.user), standardised: estimate(&densities.standardised) }
    }
}

/// How likely the held-out rows are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Likelihood {
    /// Rows scored.
    pub rows: usize,
    /// Rows whose density could not be computed; they are in no mean.
    pub failed: usize,
    /// −log π(x | y).
    pub target: Scored,
    /// −log π(y), for a joint model.
    pub given: Option<Scored>,
    /// −log π(x, y), for a joint model.
    pub joint: Option<Scored>,
    /// The best mean NLL of the validation rows in training, π(x | y), standardised.
    pub validation: f64,
    /// Their median NLL; none where the model file does not hold it.
    pub validation_median: Option<f64>,
    /// Held-out minus validation NLL.
    pub difference: f64,
    /// Its standard error, with rows of equal scatter in both.
    pub difference_error: f64,
    /// What the conditional Gaussian of the model file scores on the same rows, standardised; in models of version 1, which
    /// have none, a standard Gaussian that ignores y: n (½ log 2π + ½).
    pub baseline: f64,
    /// What a standard Gaussian that ignores y scores.
    pub ignorant: f64,
    /// Whether the baseline is the conditional Gaussian.
    pub baseline_is_conditional: bool,
}

/// log π(x | y) in the user's units, row by row, and whether it could be computed.
pub(super) struct RowScores {
    pub(super) user: Vec<f64>,
    pub(super) usable: Vec<bool>,
}

impl Likelihood {
    /// The baseline in words.
    pub fn baseline_name(&self) -> &'static str {
        match self.baseline_is_conditional {
            true => "a conditional Gaussian",
            false => "a Gaussian that ignores the given columns",
        }
    }

    pub(super) fn measure(model: &Posterior, held_out: &HeldOut, run: &Run<'_>) -> Result<(Self, RowScores)> {
        let densities = robust(model, &held_out.target, &held_out.given, held_out.rows, run)?;
        let marginal = match model.marginal() {
            None => None,
            Some(marginal) => Some(robust(marginal, &held_out.given, &[], held_out.rows, run)?),
        };
        let finite = |densities: &LogDensities, row: usize| densities.user[row].is_finite();
        let usable: Vec<bool> = (0..held_out.rows)
            .map(|row| finite(&densities, row) && marginal.as_ref().is_none_or(|m| finite(m, row)))
            .collect();
        let target = Scored::of(&densities, &usable);
        let joint = marginal.as_ref().map(|marginal| {
            let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
            let joint = LogDensities {
                user: sum(&densities.user, &marginal.user),
                standardised: sum(&densities.standardised, &marginal.standardised),
            };
            Scored::of(&joint, &usable)
        });
        let training = &model.info().training;
        let kept = usable.iter().filter(|usable| **usable).count();
        let error = target.standardised.standard_error;
        let ratio = kept as f64 / training.valid_rows.max(1) as f64;
        let ignorant = model.target_names().len() as f64 * (HALF_LOG_TWO_PI + 0.5);
        let baseline = model.baseline_nll(&held_out.target, &held_out.given)?.map(|nll| {
            let kept = nll.iter().zip(&usable).filter(|(_, usable)| **usable).map(|(nll, _)| nll);
            kept.sum::<f64>() / kept_count(&usable)
        });
        let likelihood = Self {
            rows: held_out.rows,
            failed: held_out.rows - kept,
            target,
            given: marginal.as_ref().map(|marginal| Scored::of(marginal, &usable)),
            joint,
            validation: training.best_valid_nll,
            validation_median: training.scores.as_ref().map(|scores| scores.valid.nll.median),
            difference: target.standardised.mean - training.best_valid_nll,
            difference_error: error * (1.0 + ratio).sqrt(),
            baseline: baseline.unwrap_or(ignorant),
            ignorant,
            baseline_is_conditional: baseline.is_some(),
        };
        Ok((likelihood, RowScores { user: densities.user, usable }))
    }
}

fn kept_count(usable: &[bool]) -> f64 {
    usable.iter().filter(|usable| **usable).count() as f64
}

/// Rows between two looks whether to stop: whole batches of every map.
const BLOCK: usize = 4096;

/// Log densities of all rows, those that break the arithmetic as NaN.
pub(super) fn robust(
    model: &Posterior,
    target: &[f64],
    given: &[f64],
    rows: usize,
    run: &Run<'_>,
) -> Result<LogDensities> {
    // All at once, so that an error names the row.
    model.transform_given(given, rows)?;
    let (n, m) = (model.target_names().len(), given.len() / rows);
    let densities = |first: usize, count: usize| {
        model.log_density(&target[first * n..(first + count) * n], &given[first * m..(first + count) * m])
    };
    let nothing = LogDensities { user: vec![f64::NAN], standardised: vec![f64::NAN] };
    let mut all = LogDensities { user: Vec::with_capacity(rows), standardised: Vec::with_capacity(rows) };
    let mut add = |more: &LogDensities| {
        all.user.extend_from_slice(&more.user);
        all.standardised.extend_from_slice(&more.standardised);
    };
    for first in (0..rows).step_by(BLOCK) {
        run.go_on()?;
        let count = BLOCK.min(rows - first);
        match densities(first, count) {
            Ok(block) => add(&block),
            // Row by row, for most of them can be computed.
            Err(Error::Numerical(_)) => {
                for row in first..first + count {
                    run.go_on()?;
                    match densities(row, 1) {
                        Ok(one) => add(&one),
                        Err(Error::Numerical(_)) => add(&nothing),
                        Err(other) => return Err(other),
                    }
                }
            }
            Err(other) => return Err(other),
        }
    }
    Ok(all)
}
