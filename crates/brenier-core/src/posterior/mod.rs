//! A trained posterior π(x | y) in the user's units: transforms around a transport map.
//!
//! With t the target's transform, log π(x | y) = log π_std(t(x) | y) + log |det ∂t/∂x|. The first term is the
//! "standardised" log density, that of the variable the map sees; the sum is in the user's units.

mod at;
mod description;
mod distance;
mod file;
mod joint;
mod members;
mod mixture;
mod mode;
mod outlier;
mod standard;
mod straightness;
mod summary;

use std::ops::Range;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

pub use at::{At, Observed};
pub use distance::Distance;
pub use file::{Baseline, ModelInfo, ScoredRows, TrainingScores, TrainingSummary};
pub use joint::{JointDraws, JointLogDensities};
pub use members::Member;
pub(crate) use mixture::Mixture;
pub use mode::{Mode, ModeSettings, Units};
pub use outlier::OutlierScore;
pub use standard::repeated;
pub use straightness::{StepError, Straightness};
pub use summary::Summaries;

use crate::data::Encoding;
use crate::map::{Inversion, Method, Reference, SampleSettings, TransportMap};
use crate::parallel::each;
use crate::statistics::mean;
use crate::train::Progress;
use crate::{Error, Result, StopToken};

/// The first of the random streams that choose members of an ensemble.
const CHOICES: u64 = 1 << 42;
/// The first of the random streams that stretch normal numbers to a reference with heavier tails.
const STRETCHES: u64 = 1 << 43;
/// Draws, or rows to score, between two looks at a stop token: some tenths of a second.
const BLOCK: usize = 1 << 15;
/// Draws that one task brings back to the user's units.
const ROWS_AT_A_TIME: usize = 256;

/// A trained model: settings, transforms and map.
#[derive(Clone, Debug)]
pub struct Posterior {
    header: ModelInfo,
    mixture: Mixture,
    /// Every validation, of each member.
    histories: Vec<Vec<Progress>>,
    /// The map of the header's baseline.
    pub(crate) baseline: Option<Arc<dyn TransportMap>>,
    /// The map of the given columns alone, in a joint model.
    marginal: Option<Box<Posterior>>,
}

/// Draws from the posterior at one or more observations, observation by observation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Draws {
    /// Names of the target columns.
    pub names: Vec<String>,
    /// Draws in the user's units, n numbers per row.
    pub values: Vec<f64>,
    /// The observation (row of the given table, from 0) of each draw.
    pub observation: Vec<u32>,
    /// ‖g⁻¹(x; y) − z‖∞ of each draw; empty where they do not come for free unless [`SampleSettings::residuals`] asks
    /// for them.
    pub residuals: Vec<f64>,
    /// Evaluations of the map, or integration steps, of each draw.
    pub iterations: Vec<u32>,
    /// Residuals of the draws that could not be computed and are left out, infinite where they are not known: none unless
    /// [`SampleSettings::skip_unsolved`] allows it.
    pub unsolved: Vec<f64>,
}

/// Log densities of rows, in both units.
#[derive(Clone, Debug, PartialEq)]
pub struct LogDensities {
    /// In the units of the user's columns.
    pub user: Vec<f64>,
    /// Of the transformed variable that the map sees.
    pub standardised: Vec<f64>,
}

impl LogDensities {
    /// Mean negative log-likelihoods: (user's units, standardised).
    pub fn mean_nll(&self) -> (f64, f64) {
        (-mean(&self.user), -mean(&self.standardised))
    }
}

impl Posterior {
    pub(crate) fn new(header: ModelInfo, mixture: Mixture, histories: Vec<Vec<Progress>>) -> Self {
        Self { header, mixture, histories, baseline: None, marginal: None }
    }

    /// Settings, names, transforms and training summary.
    pub fn info(&self) -> &ModelInfo {
        &self.header
    }

    /// The map itself; of an ensemble the first of [`maps`](Self::maps).
    pub fn map(&self) -> &dyn TransportMap {
        self.mixture.first()
    }

    /// The method it was fitted with.
    pub fn method(&self) -> Method {
        self.header.settings.method.method()
    }

    /// The number of parameters of all maps.
    pub fn parameters(&self) -> usize {
        self.maps().map(|map| map.parameters()).sum::<usize>()
            + self.marginal.as_ref().map_or(0, |marginal| marginal.parameters())
    }

    /// Every validation of the training; of an ensemble, that of its first member.
    pub fn history(&self) -> &[Progress] {
        &self.histories[0]
    }

    /// Names of the target columns.
    pub fn target_names(&self) -> &[String] {
        &self.header.target_names
    }

    /// Names of the given columns.
    pub fn given_names(&self) -> &[String] {
        &self.header.given_names
    }

    /// Which columns each target column's part of the map depends on besides its own, where the map leaves some out: pairs of a
    /// target column and the names of the others. Of an ensemble that of its first member.
    pub fn dependence(&self) -> Option<Vec<(&str, Vec<String>)>> {
        let inputs = self.map().inputs()?;
        let given = self.header.given_transform.output_names();
        let names: Vec<&String> = given.iter().chain(&self.header.target_names).collect();
        let named = |places: Vec<usize>| places.into_iter().map(|place| names[place].clone()).collect();
        Some(self.header.target_names.iter().map(String::as_str).zip(inputs.into_iter().map(named)).collect())
    }

    /// The columns of categories behind the given columns; see [`Encoding::encode`].
    pub fn encoding(&self) -> &Encoding {
        &self.header.encoding
    }

    /// The same model, which knows that some of its given columns are the categories of `encoding`.
    pub fn with_encoding(mut self, encoding: Encoding) -> Result<Self> {
        encoding.validate(&self.header.given_names).map_err(Error::Columns)?;
        self.header.encoding = encoding;
        Ok(self)
    }

    /// Transforms rows of given values (as many as the model has given columns each).
    pub fn transform_given(&self, given: &[f64], rows: usize) -> Result<Vec<f64>> {
        let transform = &self.header.given_transform;
        let (m, k) = (transform.input_dim(), transform.output_dim());
        check_length("given values", rows, m, given.len())?;
        let mut transformed = vec![0.0; rows * k];
        for row in 0..rows {
            transform
                .forward(&given[row * m..(row + 1) * m], &mut transformed[row * k..(row + 1) * k])
                .map_err(|error| at_row(error, row))?;
        }
        Ok(transformed)
    }

    /// `draws` draws from π(· | y) at each of `observations` rows of `given`.
    ///
    /// Each observation has a random stream of its own: its draws do not depend on the other observations.
    pub fn sample(
        &self,
        given: &[f64],
        observations: usize,
        draws: usize,
        seed: u64,
        settings: &SampleSettings,
    ) -> Result<Draws> {
        self.at_rows(given, observations).seed(seed).settings(*settings).sample(draws)
    }

    /// Reference points z of the draws at the observations from `first` on, and the numbers that choose their members.
    fn reference_from(
        &self,
        first: usize,
        observations: usize,
        draws: usize,
        seed: u64,
    ) -> (Vec<f64>, Vec<f64>) {
        let mut z = self.normals_from(first, observations, draws, seed);
        let choice = self.choices_from(first, observations, draws, seed);
        let references: Vec<Reference> = self.maps().map(|map| map.reference()).collect();
        if references.iter().any(|reference| *reference != Reference::Gaussian) {
            self.stretch(&mut z, first, draws, seed, |row| references[self.mixture.member(&choice, row)]);
        }
        (z, choice)
    }

    /// Turns normal numbers into points of the reference of each row, which takes random streams of its own.
    fn stretch(
        &self,
        z: &mut [f64],
        first: usize,
        draws: usize,
        seed: u64,
        reference: impl Fn(usize) -> Reference + Sync,
    ) {
        let n = self.header.target_transform.dim();
        each(z.chunks_mut((draws * n).max(1)), |observation, z| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(STRETCHES + (first + observation) as u64);
            for (draw, z) in z.chunks_exact_mut(n).enumerate() {
                reference(observation * draws + draw).stretch(&mut rng, z);
            }
        });
    }

    /// Normal numbers z ~ N(0, I) for the draws at the observations from `first` on, a random stream for each observation.
    fn normals_from(&self, first: usize, observations: usize, draws: usize, seed: u64) -> Vec<f64> {
        let n = self.header.target_transform.dim();
        let mut z = vec![0.0; observations * draws * n];
        if draws > 0 {
            each(z.chunks_mut(draws * n), |observation, z| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream((first + observation) as u64);
                for z in z {
                    *z = rng.sample(StandardNormal);
                }
            });
        }
        z
    }

    /// Numbers in [0, 1) that choose the member of an ensemble of each draw, from streams of their own; none for a single
    /// map.
    fn choices_from(&self, first: usize, observations: usize, draws: usize, seed: u64) -> Vec<f64> {
        if self.mixture.is_single() {
            return Vec::new();
        }
        let one = |observation: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(CHOICES + (first + observation) as u64);
            (0..draws).map(move |_| rng.random::<f64>())
        };
        (0..observations).flat_map(one).collect()
    }

    /// log π(x | y) of every row (x, y), in both units: −∞ where x lies outside the support of a column.
    pub fn log_density(&self, target: &[f64], given: &[f64]) -> Result<LogDensities> {
        self.log_density_until(target, given, &StopToken::new())
    }

    /// The same, which `stop` ends in [`Error::Stopped`].
    pub fn log_density_until(&self, target: &[f64], given: &[f64], stop: &StopToken) -> Result<LogDensities> {
        let transform = &self.header.target_transform;
        let n = transform.dim();
        let rows = target.len() / n;
        check_length("target values", rows, n, target.len())?;
        let y = self.transform_given(given, rows)?;
        let (x, log_det) = self.target_or_outside(target)?;
        let mut standardised = vec![0.0; rows];
        let k = self.header.given_transform.output_dim();
        for own in blocks(rows) {
            stop.go_on()?;
            let (x, y) = (&x[own.start * n..own.end * n], &y[own.start * k..own.end * k]);
            let scored = self.mixture.log_density(x, y, &mut standardised[own.clone()]);
            scored.map_err(|error| in_block(error, own.start))?;
        }
        for (density, log_det) in standardised.iter_mut().zip(&log_det) {
            if *log_det == f64::NEG_INFINITY {
                *density = f64::NEG_INFINITY;
            }
        }
        let user = standardised.iter().zip(&log_det).map(|(density, log_det)| density + log_det).collect();
        Ok(LogDensities { user, standardised })
    }

    /// log π(x | y) of every row (x, y) and its gradient in x, both in the user's units. Outside a support the density is
    /// −∞ and the gradient NaN.
    pub fn log_density_gradient(&self, target: &[f64], given: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        self.log_density_gradient_until(target, given, &StopToken::new())
    }

    /// The same, which `stop` ends in [`Error::Stopped`].
    pub fn log_density_gradient_until(
        &self,
        target: &[f64],
        given: &[f64],
        stop: &StopToken,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let transform = &self.header.target_transform;
        let n = transform.dim();
        let rows = target.len() / n;
        check_length("target values", rows, n, target.len())?;
        let y = self.transform_given(given, rows)?;
        let (x, log_det) = self.target_or_outside(target)?;
        let (mut density, mut gradient) = (vec![0.0; rows], vec![0.0; rows * n]);
        let k = self.header.given_transform.output_dim();
        for own in blocks(rows) {
            stop.go_on()?;
            let numbers = own.start * n..own.end * n;
            let (x, y) = (&x[numbers.clone()], &y[own.start * k..own.end * k]);
            let scored =
                self.mixture.log_density_gradient(x, y, &mut density[own.clone()], &mut gradient[numbers]);
            scored.map_err(|error| in_block(error, own.start))?;
        }
        let mut slope = vec![0.0; n];
        for row in 0..rows {
            let own = &mut gradient[row * n..(row + 1) * n];
            density[row] += log_det[row];
            if log_det[row] == f64::NEG_INFINITY {
                own.fill(f64::NAN);
                continue;
            }
            let x = &x[row * n..(row + 1) * n];
            transform.log_det_gradient(x, &mut slope);
            own.iter_mut().zip(&slope).for_each(|(own, slope)| *own += slope);
            transform.gradient_in_raw(x, own);
        }
        Ok((density, gradient))
    }

    /// Rows of target values as the map sees them with log |det ∂t/∂x|, which is −∞ for rows outside a support: these
    /// are replaced by zeros. Values that are not finite are an error.
    fn target_or_outside(&self, target: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        let transform = &self.header.target_transform;
        let n = transform.dim();
        let (mut x, mut log_det) = (vec![0.0; target.len()], Vec::with_capacity(target.len() / n));
        for (row, (raw, x)) in target.chunks_exact(n).zip(x.chunks_exact_mut(n)).enumerate() {
            log_det.push(match transform.forward(raw, x) {
                Err(Error::Domain(_)) if raw.iter().all(|value| value.is_finite()) => {
                    x.fill(0.0);
                    f64::NEG_INFINITY
                }
                other => other.map_err(|error| at_row(error, row))?,
            });
        }
        Ok((x, log_det))
    }
}

impl At<'_> {
    /// `draws` draws at each observation.
    pub fn sample(&self, draws: usize) -> Result<Draws> {
        let given = self.posterior.transform_given(&self.given, self.observations)?;
        self.sample_rows(&given, 0..self.observations, draws)
    }

    /// The same at some of the observations, numbered from 0, whose given values are transformed.
    fn sample_rows(&self, given: &[f64], rows: Range<usize>, draws: usize) -> Result<Draws> {
        let Self { posterior, seed, .. } = *self;
        let (transform, k) =
            (&posterior.header.target_transform, posterior.header.given_transform.output_dim());
        let (n, observations) = (transform.dim(), rows.len());
        let total = observations.checked_mul(draws).filter(|&total| total < u32::MAX as usize);
        let total = total.ok_or_else(|| Error::setting("n", "too many draws for one call"))?;
        let given = &given[rows.start * k..rows.end * k];
        let (z, choice) = posterior.reference_from(rows.start, observations, draws, seed);
        let observation: Vec<u32> = (0..total).map(|row| (row / draws.max(1)) as u32).collect();
        let (values, inversion) = self.draw(&z, &choice, given, &observation)?;
        // A map that solves no equation has no residual of a draw that left the finite numbers.
        let residual = |&row: &u32| inversion.residuals.get(row as usize).copied().unwrap_or(f64::INFINITY);
        let mut draws = Draws {
            names: posterior.target_names().to_vec(),
            values,
            observation,
            unsolved: inversion.unsolved.iter().map(residual).collect(),
            residuals: Vec::new(),
            iterations: Vec::new(),
        };
        if !inversion.unsolved.is_empty() {
            draws.values =
                inversion.without_unsolved(draws.values.chunks_exact(n)).flatten().copied().collect();
            draws.observation = inversion.without_unsolved(draws.observation).collect();
            draws.residuals = inversion.without_unsolved(inversion.residuals.iter().copied()).collect();
            draws.iterations = inversion.without_unsolved(inversion.iterations.iter().copied()).collect();
        } else {
            (draws.residuals, draws.iterations) = (inversion.residuals, inversion.iterations);
        }
        each(draws.values.chunks_mut(ROWS_AT_A_TIME * n), |_, rows| {
            let mut standardised = vec![0.0; n];
            for row in rows.chunks_exact_mut(n) {
                standardised.copy_from_slice(row);
                transform.inverse(&standardised, row);
            }
        });
        Ok(draws)
    }

    /// [`Mixture::draw`] block by block, so that a stop is heard: observations of a block are numbered from its first.
    fn draw(
        &self,
        z: &[f64],
        choice: &[f64],
        given: &[f64],
        observation: &[u32],
    ) -> Result<(Vec<f64>, Inversion)> {
        let Self { posterior, settings, .. } = self;
        let (n, k) = (posterior.map().target_dim(), posterior.map().given_dim());
        let count = observation.len();
        if count <= BLOCK {
            self.stop.go_on()?;
            return posterior.mixture.draw(z, choice, given, observation, settings);
        }
        let attempt = SampleSettings { skip_unsolved: true, ..*settings };
        let mut x = Vec::with_capacity(z.len());
        let mut all =
            Inversion { iterations: Vec::with_capacity(count), residuals: Vec::new(), unsolved: Vec::new() };
        for rows in blocks(count) {
            self.stop.go_on()?;
            let start = rows.start;
            let (first, last) = (observation[start], observation[rows.end - 1]);
            let own: Vec<u32> = observation[rows.clone()].iter().map(|row| row - first).collect();
            let (drawn, inversion) = posterior.mixture.draw(
                &z[rows.start * n..rows.end * n],
                choice.get(rows.clone()).unwrap_or_default(),
                &given[first as usize * k..(last as usize + 1) * k],
                &own,
                &attempt,
            )?;
            if let (Some(&row), false) = (inversion.unsolved.first(), settings.skip_unsolved) {
                return Err(Error::Numerical(format!(
                    "{} of the first {} draws could not be computed, the first of them number {} at observation {}: is the \
                     observation far outside the training data, or the tolerance too strict?",
                    inversion.unsolved.len(),
                    rows.end,
                    start + row as usize + 1,
                    observation[start + row as usize] + 1,
                )));
            }
            x.extend(drawn);
            all.iterations.extend(inversion.iterations);
            all.residuals.extend(inversion.residuals);
            all.unsolved.extend(inversion.unsolved.iter().map(|row| row + start as u32));
        }
        Ok((x, all))
    }
}

/// The blocks of `rows` rows between which a stop token is asked.
fn blocks(rows: usize) -> impl Iterator<Item = Range<usize>> {
    (0..rows).step_by(BLOCK).map(move |start| start..rows.min(start + BLOCK))
}

fn check_length(what: &'static str, rows: usize, columns: usize, got: usize) -> Result<()> {
    if got == rows * columns {
        return Ok(());
    }
    Err(Error::Shape { what, expected: format!("{rows} rows of {columns}"), got: format!("{got} numbers") })
}

/// Names the row of the whole call in a map's error about a block, whose first row this is.
fn in_block(error: Error, first: usize) -> Error {
    let Error::Numerical(problem) = error else { return error };
    let named = problem.strip_prefix("row ").and_then(|rest| rest.split_once(": "));
    let whole =
        named.and_then(|(row, text)| Some(format!("row {}: {text}", first + row.parse::<usize>().ok()?)));
    Error::Numerical(whole.unwrap_or(problem))
}

/// Names the row of the table in a transform's error.
fn at_row(error: Error, row: usize) -> Error {
    match error {
        Error::Domain(problem) => Error::Domain(format!("row {}: {problem}", row + 1)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_block_name_the_row_of_the_call() {
        let text = |problem: &str| in_block(Error::Numerical(problem.to_owned()), 100).to_string();
        assert!(text("row 7: far outside").ends_with("row 107: far outside"));
        assert!(text("row x: odd").ends_with("row x: odd") && text("rows: odd").ends_with("rows: odd"));
        assert!(
            matches!(in_block(Error::Stopped("row 1: ended".into()), 9), Error::Stopped(text) if text == "row 1: ended")
        );
    }
}
