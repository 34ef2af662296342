//! The classifier two-sample test: how often a network tells, of rows it has not seen, which sample they came from.
//!
//! An accuracy of ½ means that the samples cannot be told apart, 1 that they share nothing. The classifier is that
//! of the simulation-based inference benchmark (Lueckmann et al. 2021): two hidden layers of 10·dim rectifiers,
//! trained as scikit-learn's `MLPClassifier` is by default, columns standardised by the first sample, accuracy
//! over the held-out rows of five folds.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Sample;
use super::classifier::{Classifier, Labelled, fold_rng};
use super::sample::check_same_columns;
use super::special::normal_tail;
use crate::statistics::random::{shuffled, stream};
use crate::{Error, Result, StopToken};

/// Variance of the accuracy of one distribution's samples, in units of that of tossing coins.
///
/// The folds share training rows, so that held-out answers are not independent: if i and j lie side by side in two
/// folds and have the same label, each makes the other's answer right. For a classifier whose score is a symmetric linear
/// smoother u = K s of the labels s = ±1, with Σⱼ Kᵢⱼ² = σ² and scores of correlation ρᵢⱼ,
/// E\[sᵢ sign(uᵢ) sⱼ sign(uⱼ)\] ≈ (2/π) Kᵢⱼ²/(σ² √(1 − ρᵢⱼ²)), and the sum over j is at least 2/π: the variance grows by
/// the factor 1 + 2/π ≈ 1.64 or somewhat more. Measured figures are in `docs/diagnostics.md`.
const FOLD_INFLATION: f64 = 1.7;
/// Standardised values are kept within this, so that single precision holds their squares.
const FARTHEST: f64 = 1e6;

/// How [`c2st`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct C2stSettings {
    /// Folds of the cross-validation.
    pub folds: usize,
    /// Passes over the training rows at most; few trainings need them.
    pub max_epochs: u32,
    /// Rows of each sample that take part, at most: a random choice.
    pub max_rows: usize,
    /// Seed of choice, folds, starts and batches.
    pub seed: u64,
}

impl Default for C2stSettings {
    fn default() -> Self {
        Self { folds: 5, max_epochs: 1000, max_rows: 10_000, seed: 1 }
    }
}

/// The outcome of [`c2st`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct C2st {
    /// Share of held-out rows told rightly, each sample counting for one half.
    pub accuracy: f64,
    /// The probability, if both samples come from one distribution, of an accuracy at least as large: in the normal
    /// approximation, with 1.7 times the variance of tossing coins, because the folds share training rows.
    pub p_value: f64,
    /// The accuracy of each fold.
    pub folds: Vec<f64>,
    /// Epochs the training of each fold took.
    pub epochs: Vec<u32>,
    /// Rows of each sample that took part.
    pub rows: [usize; 2],
}

/// Trains and judges the classifier.
///
/// Weights of rows enter loss and accuracy. Samples of unequal size are balanced in the same way: each weighs one
/// half, so that ½ is the accuracy of guessing whatever the sizes.
pub fn c2st(p: &Sample<'_>, q: &Sample<'_>, settings: &C2stSettings) -> Result<C2st> {
    c2st_until(p, q, settings, &StopToken::new())
}

/// The same, which `stop` ends in [`Error::Stopped`].
pub fn c2st_until(p: &Sample<'_>, q: &Sample<'_>, settings: &C2stSettings, stop: &StopToken) -> Result<C2st> {
    check_same_columns(p, q)?;
    let folds = settings.folds;
    if !(2..=100).contains(&folds) {
        return Err(Error::setting("folds", format!("must be between 2 and 100, not {folds}")));
    }
    if settings.max_epochs == 0 {
        return Err(Error::setting("max_epochs", "must be at least 1, not 0"));
    }
    if settings.max_rows < 2 {
        return Err(Error::setting("max_rows", format!("must be at least 2, not {}", settings.max_rows)));
    }
    let (p, q) =
        (p.thinned(settings.max_rows, settings.seed), q.thinned(settings.max_rows, settings.seed ^ 1));
    if p.rows().min(q.rows()) < folds {
        return Err(Error::Shape {
            what: "rows of a sample for a classifier",
            expected: format!("at least {folds}, one for each fold"),
            got: p.rows().min(q.rows()).to_string(),
        });
    }
    let dim = p.dim();
    let pooled = Pooled::new(&p, &q);
    let count = pooled.class.len();
    let order = shuffled(count, &mut stream(settings.seed, 0));
    let judged: Vec<Judged> = (0..folds)
        .into_par_iter()
        .map(|fold| {
            let held = order[count * fold / folds..count * (fold + 1) / folds].to_vec();
            let kept = [&order[..count * fold / folds], &order[count * (fold + 1) / folds..]].concat();
            let (train, test) = (pooled.take(&kept), pooled.take(&held));
            let rng = fold_rng(settings.seed, fold);
            let (network, epochs) =
                Classifier::train(train.labelled(), dim, 10 * dim, settings.max_epochs, rng, stop)?;
            let mut judged = Judged { right: 0.0, weight: 0.0, squares: 0.0, epochs };
            for (i, answer) in network.predict(test.labelled()).into_iter().enumerate() {
                let weight = f64::from(test.weight[i]);
                judged.weight += weight;
                judged.squares += weight * weight;
                if answer == (test.class[i] > 0.5) {
                    judged.right += weight;
                }
            }
            Ok(judged)
        })
        .collect::<Result<_>>()?;
    let sum = |of: &dyn Fn(&Judged) -> f64| judged.iter().map(of).sum::<f64>();
    let (right, weight, squares) = (sum(&|j| j.right), sum(&|j| j.weight), sum(&|j| j.squares));
    let accuracy = right / weight;
    // Var = ¼ Σω² / (Σω)² for answers by the toss of a coin.
    let p_value = normal_tail((accuracy - 0.5) * 2.0 * weight / (FOLD_INFLATION * squares).sqrt());
    Ok(C2st {
        accuracy,
        p_value,
        folds: judged.iter().map(|j| j.right / j.weight.max(f64::MIN_POSITIVE)).collect(),
        epochs: judged.iter().map(|j| j.epochs).collect(),
        rows: [p.rows(), q.rows()],
    })
}

/// Weights of one fold's held-out rows: told rightly, all, squares of all.
struct Judged {
    right: f64,
    weight: f64,
    squares: f64,
    epochs: u32,
}

/// Rows of both samples, standardised, with class (0 the first) and weight (mean one, half of all for each class).
struct Pooled {
    dim: usize,
    values: Vec<f32>,
    class: Vec<f32>,
    weight: Vec<f32>,
}

impl Pooled {
    fn new(p: &Sample<'_>, q: &Sample<'_>) -> Self {
        let dim = p.dim();
        let (mean, mut deviation) = p.moments();
        for (own, other) in deviation.iter_mut().zip(q.moments().1) {
            if !(*own > 0.0) {
                *own = if other > 0.0 { other } else { 1.0 };
            }
        }
        let mut pooled = Self { dim, values: Vec::new(), class: Vec::new(), weight: Vec::new() };
        let half = 0.5 * (p.rows() + q.rows()) as f64;
        for (class, sample) in [(0.0, p), (1.0, q)] {
            for i in 0..sample.rows() {
                let row = sample.row(i).iter().zip(&mean).zip(&deviation);
                let standardised = row.map(|((value, mean), deviation)| {
                    ((value - mean) / deviation).clamp(-FARTHEST, FARTHEST) as f32
                });
                pooled.values.extend(standardised);
                pooled.class.push(class);
                pooled.weight.push((half * sample.weight(i)) as f32);
            }
        }
        pooled
    }

    fn take(&self, rows: &[u32]) -> Self {
        let row = |&i: &u32| &self.values[i as usize * self.dim..][..self.dim];
        Self {
            dim: self.dim,
            values: rows.iter().flat_map(row).copied().collect(),
            class: rows.iter().map(|&i| self.class[i as usize]).collect(),
            weight: rows.iter().map(|&i| self.weight[i as usize]).collect(),
        }
    }

    fn labelled(&self) -> Labelled<'_> {
        Labelled { values: &self.values, class: &self.class, weight: &self.weight }
    }
}
