//! Calibration of posteriors: simulation-based calibration, expected coverage and TARP, from held-out pairs.
//!
//! A pair (x, y) was simulated; a method draws x⁽¹⁾, …, x⁽ᴰ⁾ from what it believes π(· | y) to be. If it is right,
//! truth and draws are D + 1 draws of one distribution given y, and so are f(x, y) and f(x⁽ⁱ⁾, y) for any function f
//! that was fixed without looking at them: the rank of the truth's value among the draws' is uniform. Each check is
//! such a function.
//!
//! | check | f(x, y) | finds |
//! |---|---|---|
//! | SBC (Talts et al. 2018) | one parameter xⱼ | shifted or wrongly wide marginals |
//! | expected coverage (Hermans et al. 2022) | the method's own log density at x | regions too small or too large |
//! | TARP (Lemos et al. 2023) | distance from x to a random point | wrong shapes, without any density |
//! | TARP at predicted points | distance from x to a prediction of x from y | draws that do not depend on y as they should |
//!
//! The prior itself, drawn whatever y is, has uniform ranks in the first three: truth and draws both come from the
//! prior. Only a function of x *and* y can tell (Modrák et al. 2023), which is what the last row is for. The
//! prediction is a ridge regression of the true x on y and y², each pair predicted from the others' folds, so
//! that truth and draws stay exchangeable; how much it explains is reported, for where it explains nothing the check
//! is blind to a method that ignores y.
//!
//! TARP's random points fill a box whose sides are found from both truths and draws, taken by lot: a box of the truths
//! alone would know which of the D + 1 is the truth, and refuse right methods where there are few pairs.

use std::ops::Range;

use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::ranks::{Corridor, Ranks, Uniformity, holm};
use crate::kernel::spd::{self, SpdScratch};
use crate::statistics::column_moments;
use crate::statistics::random::{below, stream};
use crate::{Error, Result, StopToken};

/// Numbers of draws held at one time.
const CHUNK_NUMBERS: usize = 4_000_000;
/// Given columns that enter the regression as they are; more are projected on as many random directions.
pub(crate) const REGRESSION_COLUMNS: usize = 30;
/// Points, at least, from which the box of TARP's random points is found.
const BOX_POINTS: usize = 1000;
/// Folds of the regression.
const FOLDS: usize = 5;
/// Random streams of one pair: one for each parameter and these.
const DENSITY_STREAM: u64 = 0;
const TARP_STREAM: u64 = 1;
const PREDICTED_STREAM: u64 = 2;
const REFERENCE_STREAM: u64 = 3;
const PARAMETER_STREAM: u64 = 4;
/// Random streams of all pairs together.
const MIXING_STREAM: u64 = u64::MAX;
const BOX_STREAM: u64 = u64::MAX - 1;

/// How [`calibrate`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CalibrationSettings {
    /// Draws for each pair.
    pub draws: usize,
    /// Level α of bands and verdict.
    pub level: f64,
    /// Seed of reference points and ties.
    pub seed: u64,
}

impl Default for CalibrationSettings {
    fn default() -> Self {
        Self { draws: 1000, level: 0.05, seed: 0 }
    }
}

/// Held-out pairs: row-major true parameters and given values.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    target: &'a [f64],
    target_dim: usize,
    given: &'a [f64],
    given_dim: usize,
}

impl<'a> Pairs<'a> {
    /// Pairs of `target_dim` true parameters and `given_dim` given values (none for an unconditional method).
    pub fn new(target: &'a [f64], target_dim: usize, given: &'a [f64], given_dim: usize) -> Result<Self> {
        let pairs = target.len() / target_dim.max(1);
        if target_dim == 0 || pairs == 0 || target.len() != pairs * target_dim {
            return Err(Error::Shape {
                what: "true parameters of held-out pairs",
                expected: format!("one or more whole rows of {target_dim} (at least one column)"),
                got: format!("{} values", target.len()),
            });
        }
        if given.len() != pairs * given_dim {
            return Err(Error::Shape {
                what: "given values of held-out pairs",
                expected: format!("{pairs} rows of {given_dim}"),
                got: format!("{} values", given.len()),
            });
        }
        for (what, values, dim) in [("true parameter", target, target_dim), ("given value", given, given_dim)]
        {
            if let Some(place) = values.iter().position(|value| !value.is_finite()) {
                return Err(Error::Domain(format!(
                    "{what} {} of pair {} is {}: every value must be finite",
                    place % dim + 1,
                    place / dim + 1,
                    values[place]
                )));
            }
        }
        Ok(Self { target, target_dim, given, given_dim })
    }

    /// How many pairs there are; at least one.
    pub fn count(&self) -> usize {
        self.target.len() / self.target_dim
    }

    fn target(&self, pair: usize) -> &'a [f64] {
        &self.target[pair * self.target_dim..][..self.target_dim]
    }
}

/// A method's draws for some pairs, and its log densities where it has any.
#[derive(Clone, Debug, Default)]
pub struct PairDraws {
    /// Pair by pair, draw by draw.
    pub draws: Vec<f64>,
    /// Log densities at the true parameters, one per pair, and at the draws; up to a constant of each pair.
    pub log_densities: Option<(Vec<f64>, Vec<f64>)>,
}

/// What a check ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Quantity {
    /// This parameter, from 0: SBC.
    Parameter(usize),
    /// Draws of higher density than the truth: expected coverage.
    Density,
    /// Distance to a random point: TARP.
    Tarp,
    /// Distance to a prediction from the given values.
    Predicted,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankCheck {
    /// What was ranked.
    pub quantity: Quantity,
    /// The ranks, pair by pair.
    pub ranks: Ranks,
    /// F(z) − z at the [`points`](Calibration::points).
    pub difference: Vec<f64>,
    /// How uniform they are.
    pub uniformity: Uniformity,
    /// Its p-value after Holm's correction for all checks of the run.
    pub adjusted_p_value: f64,
}

/// All checks of one method.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Calibration {
    /// Pairs.
    pub pairs: usize,
    /// Draws for each.
    pub draws: usize,
    /// Level α of the bands.
    pub level: f64,
    /// z at which ranks are looked at.
    pub points: Vec<f64>,
    /// For each z, lowest and highest F(z) − z of a walk that stays inside with probability 1 − α.
    pub band: Vec<(f64, f64)>,
    /// Parameters in order, then density, TARP and TARP at predicted points, as far as there were.
    pub checks: Vec<RankCheck>,
    /// Part of the parameters' variance that the prediction from given values explains; none without them.
    pub explained: Option<f64>,
}

impl Calibration {
    /// The probability that a calibrated method looks as bad in any check.
    pub fn p_value(&self) -> f64 {
        self.checks.iter().map(|check| check.adjusted_p_value).fold(1.0, f64::min)
    }

    /// Whether no check speaks against the method at the level asked for.
    pub fn passes(&self) -> bool {
        self.p_value() > self.level
    }
}

impl RankCheck {
    /// max |F(z) − z|: by how much coverage is off at the worst level.
    pub fn deviation(&self) -> f64 {
        self.difference.iter().fold(0.0, |most, difference| difference.abs().max(most))
    }

    /// The part of the pairs whose truth lies in the method's region of probability `nominal`: the central interval of
    /// a parameter, the highest-density region, the ball around TARP's point.
    pub fn coverage(&self, nominal: f64) -> f64 {
        let all = f64::from(self.ranks.draws()) + 1.0;
        let inside = |rank: &&u32| {
            let place = (f64::from(**rank) + 0.5) / all;
            match self.quantity {
                Quantity::Parameter(_) => (place - 0.5).abs() <= 0.5 * nominal,
                _ => place <= nominal,
            }
        };
        let ranks = self.ranks.ranks();
        ranks.iter().filter(inside).count() as f64 / ranks.len() as f64
    }

    /// The part of the pairs whose truth lies above the median of the draws; for other quantities than parameters, outside
    /// of the method's region of probability one half.
    pub fn above_median(&self) -> f64 {
        let ranks = self.ranks.ranks();
        let draws = self.ranks.draws();
        // A rank in the very middle counts for one half.
        let twice: u64 = ranks
            .iter()
            .map(|&rank| (2 * u64::from(rank)).cmp(&u64::from(draws)) as i8)
            .map(|side| (side + 1) as u64)
            .sum();
        twice as f64 / (2.0 * ranks.len() as f64)
    }

    /// Whether the ranks lean to one side more than they gather in the middle or at the ends.
    pub fn is_shifted(&self) -> bool {
        self.uniformity.bias.abs() >= self.uniformity.spread.abs()
    }

    /// In a few words, what the ranks say if they are not uniform.
    pub fn reading(&self) -> &'static str {
        let Uniformity { bias, spread, .. } = self.uniformity;
        let by_spread = !self.is_shifted();
        match (self.quantity, by_spread, if by_spread { spread > 0.0 } else { bias > 0.0 }) {
            (Quantity::Parameter(_), true, true) => "draws too narrow",
            (Quantity::Parameter(_), true, false) => "draws too wide",
            (Quantity::Parameter(_), false, true) => "draws too low",
            (Quantity::Parameter(_), false, false) => "draws too high",
            (Quantity::Density, false, true) => "overconfident: the truth lies too far out",
            (Quantity::Density, false, false) => "underconfident: the truth lies too far in",
            (Quantity::Density, true, _) => "regions of some levels too small, of others too large",
            (Quantity::Tarp, true, true) => "overconfident or biased",
            (Quantity::Tarp, true, false) => "underconfident",
            (Quantity::Tarp, false, _) => "biased",
            (Quantity::Predicted, false, true) => "draws too near to the prediction from the given values",
            (Quantity::Predicted, false, false) => {
                "draws too far from the prediction: the given values are not used enough"
            }
            (Quantity::Predicted, true, _) => "spread around the prediction from the given values is wrong",
        }
    }
}

/// Runs all checks. `draw` is asked for one range of pairs after another, in order, and returns
/// [`draws`](CalibrationSettings::draws) draws for each.
///
/// Memory is bounded by the draws of one range, about four million numbers, whatever the number of pairs.
///
/// ```
/// use brenier_diagnose::diagnose::{CalibrationSettings, PairDraws, Pairs, calibrate};
///
/// // x ~ N(0, 1) and draws from N(0, 1): calibrated. A generator good enough for an example:
/// let mut state = 1_u64;
/// let mut normal = || {
///     let mut uniform = || {
///         state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
///         (state >> 11) as f64 / (1_u64 << 53) as f64
///     };
///     (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
/// };
/// let truth: Vec<f64> = (0..500).map(|_| normal()).collect();
/// let settings = CalibrationSettings { draws: 99, ..Default::default() };
/// let found = calibrate(&Pairs::new(&truth, 1, &[], 0)?, &settings, |pairs| {
///     let draws = (0..99 * pairs.len()).map(|_| normal()).collect();
///     Ok(PairDraws { draws, log_densities: None })
/// })?;
/// assert!(found.passes());
/// # Ok::<(), brenier_core::Error>(())
/// ```
pub fn calibrate(
    pairs: &Pairs<'_>,
    settings: &CalibrationSettings,
    draw: impl FnMut(Range<usize>) -> Result<PairDraws>,
) -> Result<Calibration> {
    calibrate_until(pairs, settings, &StopToken::new(), draw)
}

/// As [`calibrate`], which `stop` ends in [`Error::Stopped`].
pub fn calibrate_until(
    pairs: &Pairs<'_>,
    settings: &CalibrationSettings,
    stop: &StopToken,
    mut draw: impl FnMut(Range<usize>) -> Result<PairDraws>,
) -> Result<Calibration> {
    stop.go_on()?;
    let (count, dim, draws) = (pairs.count(), pairs.target_dim, settings.draws);
    let corridor = match u32::try_from(draws) {
        Ok(draws) if (1..=1_000_000).contains(&draws) => Corridor::new(count, draws, settings.level)?,
        _ => return Err(Error::setting("draws", format!("must be between 1 and 1000000, not {draws}"))),
    };
    let mut references = None;
    let mut rows: Vec<PairRanks> = Vec::with_capacity(count);
    let step = (CHUNK_NUMBERS / (draws * dim)).clamp(1, count);
    let mut start = 0;
    while start < count {
        stop.go_on()?;
        let range = start..(start + step).min(count);
        let chunk = draw(range.clone())?;
        check_chunk(&chunk, &range, draws, dim)?;
        // Found from the first draws, and fixed for all that follow.
        let references = &*references.get_or_insert_with(|| References::new(pairs, &range, &chunk, settings));
        let ranked = range
            .clone()
            .into_par_iter()
            .map(|pair| rank_pair(pairs, references, &chunk, pair, pair - range.start, settings));
        rows.par_extend(ranked);
        start = range.end;
    }
    let mut quantities: Vec<(Quantity, Vec<u32>)> = (0..dim)
        .map(|j| (Quantity::Parameter(j), rows.iter().map(|row| row.parameters[j]).collect()))
        .collect();
    let optional = |of: &dyn Fn(&PairRanks) -> Option<u32>| rows.iter().map(of).collect::<Option<Vec<u32>>>();
    for (quantity, ranks) in [
        (Quantity::Density, optional(&|row| row.density)),
        (Quantity::Tarp, optional(&|row| Some(row.tarp))),
        (Quantity::Predicted, optional(&|row| row.predicted)),
    ] {
        quantities.extend(ranks.map(|ranks| (quantity, ranks)));
    }
    let mut checks = Vec::with_capacity(quantities.len());
    for (quantity, ranks) in quantities {
        stop.go_on()?;
        let ranks = Ranks::new(ranks, draws as u32)?;
        let (difference, uniformity) = (corridor.difference(&ranks)?, corridor.test(&ranks)?);
        checks.push(RankCheck { quantity, ranks, difference, uniformity, adjusted_p_value: 1.0 });
    }
    let p_values: Vec<f64> = checks.iter().map(|check| check.uniformity.p_value).collect();
    for (check, adjusted) in checks.iter_mut().zip(holm(&p_values)) {
        check.adjusted_p_value = adjusted;
    }
    Ok(Calibration {
        pairs: count,
        draws,
        level: settings.level,
        points: corridor.points(),
        band: corridor.band(),
        checks,
        explained: references.and_then(|references| references.explained),
    })
}

fn check_chunk(chunk: &PairDraws, range: &Range<usize>, draws: usize, dim: usize) -> Result<()> {
    let pairs = range.len();
    let check = |what, got: usize, expected: usize| {
        if got == expected {
            return Ok(());
        }
        let expected = format!("{expected} numbers for {pairs} pairs of {draws} draws");
        Err(Error::Shape { what, expected, got: got.to_string() })
    };
    check("draws for held-out pairs", chunk.draws.len(), pairs * draws * dim)?;
    if let Some(place) = chunk.draws.iter().position(|value| !value.is_finite()) {
        let pair = range.start + place / (draws * dim) + 1;
        return Err(Error::Numerical(format!("a draw for pair {pair} is {}", chunk.draws[place])));
    }
    if let Some((truth, drawn)) = &chunk.log_densities {
        check("log densities of true parameters", truth.len(), pairs)?;
        check("log densities of draws", drawn.len(), pairs * draws)?;
        let bad = truth.iter().position(|value| value.is_nan());
        let bad = bad.or(drawn.iter().position(|value| value.is_nan()).map(|place| place / draws));
        if let Some(pair) = bad {
            let pair = range.start + pair + 1;
            return Err(Error::Numerical(format!("a log density of pair {pair} is not a number")));
        }
    }
    Ok(())
}

/// The ranks of one pair.
struct PairRanks {
    parameters: Vec<u32>,
    density: Option<u32>,
    tarp: u32,
    predicted: Option<u32>,
}

/// `pair` counts from the first of all pairs, `place` from the first of the chunk.
fn rank_pair(
    pairs: &Pairs<'_>,
    references: &References,
    chunk: &PairDraws,
    pair: usize,
    place: usize,
    settings: &CalibrationSettings,
) -> PairRanks {
    let (dim, count) = (pairs.target_dim, settings.draws);
    let draws = &chunk.draws[place * count * dim..][..count * dim];
    let truth = pairs.target(pair);
    let streams = PARAMETER_STREAM + dim as u64;
    let ties = |which: u64| stream(settings.seed, pair as u64 * streams + which);
    // Draws below the truth; those equal to it fall on either side by chance.
    let rank = |own: f64, values: &mut dyn Iterator<Item = f64>, which: u64| {
        let (mut lower, mut equal) = (0, 0);
        for value in values {
            lower += usize::from(value < own);
            equal += usize::from(value == own);
        }
        let among = if equal > 0 { below(equal + 1, &mut ties(which)) } else { 0 };
        (lower + among) as u32
    };
    let distance_rank = |reference: &[f64], which: u64| {
        let distance = |row: &[f64]| -> f64 {
            let parts = row.iter().zip(reference).zip(&references.scale);
            parts.map(|((x, r), scale)| ((x - r) / scale).powi(2)).sum()
        };
        rank(distance(truth), &mut draws.chunks_exact(dim).map(distance), which)
    };
    let parameters = (0..dim)
        .map(|j| rank(truth[j], &mut draws.iter().skip(j).step_by(dim).copied(), PARAMETER_STREAM + j as u64))
        .collect();
    let density = chunk.log_densities.as_ref().map(|(at_truth, at_draws)| {
        let densities = &at_draws[place * count..][..count];
        rank(-at_truth[place], &mut densities.iter().map(|density| -density), DENSITY_STREAM)
    });
    let mut rng = ties(REFERENCE_STREAM);
    let random: Vec<f64> =
        references.limits.iter().map(|(low, high)| low + rng.random::<f64>() * (high - low)).collect();
    let predicted = references
        .predicted
        .as_ref()
        .map(|predicted| distance_rank(&predicted[pair * dim..][..dim], PREDICTED_STREAM));
    PairRanks { parameters, density, tarp: distance_rank(&random, TARP_STREAM), predicted }
}

/// Points that TARP measures distances to.
struct References {
    /// Standard deviation of each parameter, one where it is constant.
    scale: Vec<f64>,
    /// Smallest and largest value of each parameter.
    limits: Vec<(f64, f64)>,
    /// For each pair a prediction of its parameters from its given values.
    predicted: Option<Vec<f64>>,
    explained: Option<f64>,
}

impl References {
    /// Box and scale from the draws of the first pairs, `range`, and their truths; predictions from all truths.
    fn new(
        pairs: &Pairs<'_>,
        range: &Range<usize>,
        chunk: &PairDraws,
        settings: &CalibrationSettings,
    ) -> Self {
        let (count, dim) = (pairs.count(), pairs.target_dim);
        let points = by_lot(pairs, range, chunk, settings);
        let (_, scale) = moments(&points, dim);
        let limits = (0..dim)
            .map(|j| {
                let values = points.iter().skip(j).step_by(dim);
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &x| (low.min(x), high.max(x)))
            })
            .collect();
        // Fewer pairs than this leave nothing to learn from.
        if pairs.given_dim == 0 || count < 4 * FOLDS {
            return Self { scale, limits, predicted: None, explained: None };
        }
        let (mean, deviation) = moments(pairs.target, dim);
        let standard: Vec<f64> = standardised(pairs.target, &mean, &deviation);
        let mut predicted = predict(&standard, dim, &features(pairs, settings.seed), count);
        let (mut left, mut all) = (0.0, 0.0);
        for (guess, truth) in predicted.iter().zip(&standard) {
            left += (truth - guess).powi(2);
            all += truth * truth;
        }
        let explained = if all > 0.0 { (1.0 - left / all).max(0.0) } else { 0.0 };
        for (place, value) in predicted.iter_mut().enumerate() {
            *value = mean[place % dim] + deviation[place % dim] * *value;
        }
        Self { scale, limits, predicted: Some(predicted), explained: Some(explained) }
    }
}

/// [`BOX_POINTS`] or more points, as many of each pair of `range`, each the truth or one of its draws by lot.
///
/// The lot does not know which of the D + 1 is the truth. So given these points the truth is still each of the D + 1
/// with the same probability, in every pair apart from the others, and ranks stay uniform and independent.
fn by_lot(
    pairs: &Pairs<'_>,
    range: &Range<usize>,
    chunk: &PairDraws,
    settings: &CalibrationSettings,
) -> Vec<f64> {
    let (dim, draws) = (pairs.target_dim, settings.draws);
    let each = BOX_POINTS.div_ceil(range.len().max(1));
    let mut rng = stream(settings.seed, BOX_STREAM);
    let mut points = Vec::with_capacity(range.len() * each * dim);
    for (place, pair) in range.clone().enumerate() {
        for _ in 0..each {
            points.extend_from_slice(match below(draws + 1, &mut rng).checked_sub(1) {
                Some(draw) => &chunk.draws[(place * draws + draw) * dim..][..dim],
                None => pairs.target(pair),
            });
        }
    }
    points
}

/// Mean and standard deviation of each column, one where it is constant.
fn moments(values: &[f64], dim: usize) -> (Vec<f64>, Vec<f64>) {
    let (mean, variance) = column_moments(values.len() / dim, dim, |row, out| {
        out.copy_from_slice(&values[row * dim..][..dim]);
    });
    let scale = variance.iter().map(|s| if *s > 0.0 && s.is_finite() { s.sqrt() } else { 1.0 }).collect();
    (mean, scale)
}

fn standardised(values: &[f64], mean: &[f64], scale: &[f64]) -> Vec<f64> {
    let rows = values.chunks_exact(mean.len());
    rows.flat_map(|row| row.iter().zip(mean).zip(scale).map(|((x, m), s)| (x - m) / s)).collect()
}

/// One, the standardised given columns (or random mixtures of them) within ±4, and their squares; row-major.
fn features(pairs: &Pairs<'_>, seed: u64) -> Vec<f64> {
    let dim = pairs.given_dim;
    let (mean, scale) = moments(pairs.given, dim);
    let mut columns = standardised(pairs.given, &mean, &scale);
    let mut width = dim;
    if dim > REGRESSION_COLUMNS {
        width = REGRESSION_COLUMNS;
        let mut rng = stream(seed, MIXING_STREAM);
        let mixing: Vec<f64> = (0..dim * width).map(|_| rng.sample(StandardNormal)).collect();
        let mut mixed = vec![0.0; pairs.count() * width];
        mixed.par_chunks_mut(width).zip(columns.par_chunks(dim)).for_each(|(mixed, row)| {
            for (x, weights) in row.iter().zip(mixing.chunks_exact(width)) {
                mixed.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += x * weight);
            }
        });
        let (mean, scale) = moments(&mixed, width);
        columns = standardised(&mixed, &mean, &scale);
    }
    let rows = columns.chunks_exact(width);
    rows.flat_map(|row| {
        let bounded = row.iter().map(|x| x.clamp(-4.0, 4.0));
        std::iter::once(1.0).chain(bounded.clone()).chain(bounded.map(|x| x * x))
    })
    .collect()
}

/// Ridge regression of `dim` standardised targets on the features, each fold predicted from the others.
fn predict(target: &[f64], dim: usize, features: &[f64], count: usize) -> Vec<f64> {
    let width = features.len() / count;
    let fold_of = |pair: usize| pair % FOLDS;
    let folds: Vec<Vec<f64>> = (0..FOLDS)
        .into_par_iter()
        .map(|fold| {
            // Normal equations FᵀF + ridge and Fᵀx of the other folds.
            let mut matrix = vec![0.0; width * width];
            let mut right = vec![0.0; width * dim];
            for pair in (0..count).filter(|&pair| fold_of(pair) != fold) {
                let row = &features[pair * width..][..width];
                for (i, &own) in row.iter().enumerate() {
                    matrix[i * width..][..width].iter_mut().zip(row).for_each(|(m, other)| *m += own * other);
                }
                for (right, &x) in right.chunks_exact_mut(width).zip(&target[pair * dim..][..dim]) {
                    right.iter_mut().zip(row).for_each(|(r, f)| *r += x * f);
                }
            }
            for i in 0..width {
                matrix[i * width + i] += 1.0 + 1e-6 * count as f64;
            }
            if spd::cholesky(&mut matrix, &mut SpdScratch::new(width)).is_none() {
                return vec![0.0; width * dim];
            }
            right.chunks_exact_mut(width).for_each(|right| spd::solve(&matrix, right));
            right
        })
        .collect();
    let mut predicted = vec![0.0; count * dim];
    for (pair, predicted) in predicted.chunks_exact_mut(dim).enumerate() {
        let row = &features[pair * width..][..width];
        for (guess, coefficients) in predicted.iter_mut().zip(folds[fold_of(pair)].chunks_exact(width)) {
            *guess = row.iter().zip(coefficients).map(|(f, c)| f * c).sum();
        }
    }
    predicted
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Between two ranges of pairs, and before the first.
    #[test]
    fn a_token_ends_the_checks() {
        let truth = vec![0.5; 3000];
        let pairs = Pairs::new(&truth, 1, &[], 0).unwrap();
        let settings = CalibrationSettings { draws: 2000, ..Default::default() };
        let (stop, mut ranges) = (StopToken::new(), 0);
        let mut draw = |range: Range<usize>| {
            ranges += 1;
            stop.stop();
            Ok(PairDraws { draws: vec![0.0; 2000 * range.len()], log_densities: None })
        };
        assert!(matches!(calibrate_until(&pairs, &settings, &stop, &mut draw), Err(Error::Stopped(_))));
        assert!(matches!(calibrate_until(&pairs, &settings, &stop, &mut draw), Err(Error::Stopped(_))));
        assert_eq!(ranges, 1);
    }

    #[test]
    fn coverage_and_sides_can_be_counted_by_hand() {
        let check = |quantity, ranks: Vec<u32>| RankCheck {
            quantity,
            ranks: Ranks::new(ranks, 4).unwrap(),
            difference: vec![0.1, -0.3],
            uniformity: Uniformity {
                band_p_value: 1.0,
                bias: 1.0,
                spread: -2.0,
                smooth_p_value: 1.0,
                p_value: 1.0,
            },
            adjusted_p_value: 1.0,
        };
        // Places 0.1, 0.3, 0.5, 0.7, 0.9 of ranks 0 to 4.
        let parameter = check(Quantity::Parameter(0), vec![0, 2, 2, 3, 4]);
        assert_eq!((parameter.coverage(0.5), parameter.coverage(0.9)), (0.6, 1.0));
        assert_eq!((parameter.above_median(), parameter.deviation()), (0.6, 0.3));
        assert!(!parameter.is_shifted());
        let density = check(Quantity::Density, vec![0, 2, 2, 3, 4]);
        assert_eq!((density.coverage(0.5), density.coverage(0.2)), (0.6, 0.2));
    }
}
