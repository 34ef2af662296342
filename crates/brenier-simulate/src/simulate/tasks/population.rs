//! A population of Markov chains on prior times likelihood: tempered sequential Monte Carlo.
//!
//! Particles start as prior draws and pass through π(θ) p(y | θ)^t for t from 0 to 1. Each next t keeps half of the effective number of
//! particles; they are resampled and moved by Metropolis steps until they have forgotten where they were, so that at the end the
//! particles are as good as independent. Everything happens in the prior's coordinates u.
//!
//! Half of the steps are independence proposals from a Student-t distribution with the population's mean and covariance, which
//! forget at once where the posterior is nearly Gaussian. The others are random walks in the population's covariance and
//! differences of two particles of a snapshot (differential evolution), which know the shape of the posterior; both are
//! symmetric, and short and long ones alternate.

use rand::RngExt;
use rand_distr::{ChiSquared, Distribution};
use rayon::prelude::*;

use super::{CHAINS, RESAMPLING, Stream, Streams, Task, correlated};
use crate::kernel::spd::{self, SpdScratch};
use crate::statistics::mean;
use crate::{Error, Result};

/// The smallest population.
const FEWEST: usize = 4000;
/// Share of the effective number that a change of temperature leaves.
const EFFECTIVE_SHARE: f64 = 0.5;
/// Temperatures before the search is given up.
const MOST_TEMPERATURES: usize = 500;
/// Correlation with the earlier positions below which a population has moved on: on the way, and at the end.
const LOOSE_MEMORY: f64 = 0.5;
const LAST_MEMORY: f64 = 0.05;
/// Sweeps that may take.
const MOST_SWEEPS: usize = 40;
const MOST_LAST_SWEEPS: usize = 200;
/// After the last of them the population moves for this many times as long again.
const LAST_REPEATS: usize = 2;
/// Degrees of freedom of independence proposals.
const PROPOSAL_DF: f64 = 5.0;
/// Steps are as long as is best for a Gaussian, or down to e^−2 of it.
const SHORTENING: f64 = 2.0;
/// Probability of a difference of two particles at full length.
const JUMPS: f64 = 0.1;

struct Particle {
    u: Vec<f64>,
    log_prior: f64,
    log_likelihood: f64,
    rng: Stream,
}

/// Particles of a task's posterior at one observation.
pub(super) struct Population<'a, T: Task + ?Sized> {
    task: &'a T,
    y: &'a [f64],
    particles: Vec<Particle>,
    temperature: f64,
    resampling: Stream,
}

/// `count` draws from the posterior of `task` at `y`.
pub(super) fn tempered<T: Task + ?Sized>(task: &T, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
    let mut population = Population::from_prior(task, y, count, seed)?;
    for _ in 0..MOST_TEMPERATURES {
        population.warm()?;
        if population.temperature == 1.0 {
            population.forget();
            return Ok(population.draws(count));
        }
        population.mix(LOOSE_MEMORY, MOST_SWEEPS);
    }
    Err(Error::Numerical(format!(
        "the posterior was not reached after {MOST_TEMPERATURES} temperatures, at {}",
        population.temperature
    )))
}

impl<'a, T: Task + ?Sized> Population<'a, T> {
    /// How many particles `count` draws need.
    pub(super) fn size_for(count: usize) -> usize {
        count.max(FEWEST)
    }

    /// Prior draws, at temperature 0.
    fn from_prior(task: &'a T, y: &'a [f64], count: usize, seed: u64) -> Result<Self> {
        let dim = task.prior().dim();
        let thetas = super::independent_draws(dim, Self::size_for(count), seed, |rng, theta| {
            task.prior().draw(rng, theta);
            Ok(())
        })?;
        let population = Self::from_draws(task, y, &thetas, seed)?;
        Ok(Self { temperature: 0.0, ..population })
    }

    /// Particles at the rows of `thetas`, at temperature 1.
    pub(super) fn from_draws(task: &'a T, y: &'a [f64], thetas: &[f64], seed: u64) -> Result<Self> {
        if y.len() != task.output_names().len() {
            return Err(Error::Shape {
                what: "observation",
                expected: format!("the {} outputs of {}", task.output_names().len(), task.identity()),
                got: format!("{} values", y.len()),
            });
        }
        let streams = Streams::new(seed, CHAINS);
        let particles = thetas
            .par_chunks_exact(task.prior().dim())
            .enumerate()
            .map(|(row, theta)| {
                let mut u = vec![0.0; task.prior().coordinates()];
                task.prior().to_coordinates(theta, &mut u);
                Particle {
                    log_prior: task.prior().log_density(&u),
                    log_likelihood: task.log_likelihood(theta, y),
                    rng: streams.get(row as u64),
                    u,
                }
            })
            .collect();
        Ok(Self { task, y, particles, temperature: 1.0, resampling: Streams::new(seed, RESAMPLING).get(0) })
    }

    /// The next temperature, with particles resampled to it.
    fn warm(&mut self) -> Result<()> {
        let log_likelihoods: Vec<f64> = self.particles.iter().map(|p| p.log_likelihood).collect();
        let possible = log_likelihoods.iter().filter(|l| l.is_finite()).count();
        let weights = |step: f64| log_likelihoods.iter().map(|l| step * l).collect::<Vec<f64>>();
        let enough = |step: f64| effective_number(&weights(step)) >= EFFECTIVE_SHARE * possible as f64;
        let (mut low, mut high) = (0.0, 1.0 - self.temperature);
        if !enough(high) {
            for _ in 0..60 {
                let middle = 0.5 * (low + high);
                *(if enough(middle) { &mut low } else { &mut high }) = middle;
            }
            high = low;
        }
        self.resample(&weights(high))?;
        self.temperature = if high == 1.0 - self.temperature { 1.0 } else { self.temperature + high };
        Ok(())
    }

    /// Systematic resampling; the slots keep their random streams.
    pub(super) fn resample(&mut self, log_weights: &[f64]) -> Result<()> {
        let most = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !most.is_finite() {
            return Err(Error::Domain(format!(
                "no parameters of {} explain the observation",
                self.task.identity()
            )));
        }
        let weights: Vec<f64> = log_weights.iter().map(|w| (w - most).exp()).collect();
        let spacing = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut point = self.resampling.random::<f64>() * spacing;
        let (mut sum, mut source) = (weights[0], 0);
        let copies: Vec<(Vec<f64>, f64, f64)> = (0..weights.len())
            .map(|_| {
                while sum <= point && source + 1 < weights.len() {
                    source += 1;
                    sum += weights[source];
                }
                point += spacing;
                let particle = &self.particles[source];
                (particle.u.clone(), particle.log_prior, particle.log_likelihood)
            })
            .collect();
        for (particle, (u, log_prior, log_likelihood)) in self.particles.iter_mut().zip(copies) {
            (particle.u, particle.log_prior, particle.log_likelihood) = (u, log_prior, log_likelihood);
        }
        Ok(())
    }

    /// Moves until the particles have forgotten where they were, and then for twice as long again.
    pub(super) fn forget(&mut self) {
        let sweeps = self.mix(LAST_MEMORY, MOST_LAST_SWEEPS);
        self.mix(0.0, LAST_REPEATS * sweeps);
    }

    /// Sweeps until the correlation with the first positions is below `memory`; returns their number.
    fn mix(&mut self, memory: f64, most: usize) -> usize {
        let before = self.features();
        let shape = self.shape();
        for sweep in 1..=most {
            self.sweep(&shape);
            if correlation(&before, &self.features()) < memory {
                return sweep;
            }
        }
        most
    }

    /// Coordinates and log-likelihood of every particle, column by column.
    fn features(&self) -> Vec<Vec<f64>> {
        let mut columns: Vec<Vec<f64>> = (0..self.task.prior().coordinates())
            .map(|j| self.particles.iter().map(|p| p.u[j]).collect())
            .collect();
        columns.push(self.particles.iter().map(|p| p.log_likelihood).collect());
        columns
    }

    /// Mean of the particles and Cholesky factor of their covariance; that of its diagonal where the particles lie in a plane.
    fn shape(&self) -> Shape {
        let n = self.task.prior().coordinates();
        let columns = self.features();
        let mut mean: Vec<f64> = columns.iter().map(|column| mean(column)).collect();
        mean.truncate(n);
        let mut factor = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..n {
                let products = columns[i].iter().zip(&columns[j]).map(|(a, b)| (a - mean[i]) * (b - mean[j]));
                factor[i + j * n] = products.sum::<f64>() / columns[i].len() as f64;
            }
        }
        let diagonal: Vec<f64> = (0..n).map(|i| factor[i + i * n].sqrt().max(f64::MIN_POSITIVE)).collect();
        if spd::cholesky(&mut factor, &mut SpdScratch::new(n)).is_none() {
            factor.fill(0.0);
            (0..n).for_each(|i| factor[i + i * n] = diagonal[i]);
        }
        Shape { mean, factor, chi_squared: ChiSquared::new(PROPOSAL_DF).expect("positive") }
    }

    /// One Metropolis step of every particle.
    fn sweep(&mut self, shape: &Shape) {
        let (task, y, temperature) = (self.task, self.y, self.temperature);
        let n = task.prior().coordinates();
        let snapshot: Vec<f64> = self.particles.iter().flat_map(|p| p.u.iter().copied()).collect();
        self.particles.par_iter_mut().for_each_init(
            || (vec![0.0; n], vec![0.0; task.prior().dim()]),
            |(proposal, theta), particle| {
                let correction = shape.propose(&particle.u, &snapshot, &mut particle.rng, proposal);
                let height = particle.rng.random::<f64>().ln();
                let log_prior = task.prior().log_density(proposal);
                if log_prior == f64::NEG_INFINITY {
                    return;
                }
                task.prior().at_coordinates(proposal, theta);
                let log_likelihood = task.log_likelihood(theta, y);
                let gain =
                    log_prior - particle.log_prior + temperature * (log_likelihood - particle.log_likelihood);
                if height < gain + correction {
                    particle.u.copy_from_slice(proposal);
                    (particle.log_prior, particle.log_likelihood) = (log_prior, log_likelihood);
                }
            },
        );
    }

    /// `count` of the particles' θ, evenly spread over the population.
    pub(super) fn draws(&self, count: usize) -> Vec<f64> {
        let dim = self.task.prior().dim();
        let mut draws = vec![0.0; dim * count];
        for (i, theta) in draws.chunks_exact_mut(dim).enumerate() {
            self.task.prior().at_coordinates(&self.particles[i * self.particles.len() / count].u, theta);
        }
        draws
    }
}

/// What proposals know of the population.
struct Shape {
    mean: Vec<f64>,
    /// Cholesky factor of the covariance, column-major.
    factor: Vec<f64>,
    chi_squared: ChiSquared<f64>,
}

impl Shape {
    /// Writes a proposal from `u`; returns log q(u) − log q(proposal), 0 for symmetric steps.
    fn propose(&self, u: &[f64], snapshot: &[f64], rng: &mut Stream, proposal: &mut [f64]) -> f64 {
        let n = u.len();
        if rng.random::<bool>() {
            let stretch = (PROPOSAL_DF / self.chi_squared.sample(rng)).sqrt();
            correlated(rng, &self.mean, &self.factor, proposal);
            for (value, mean) in proposal.iter_mut().zip(&self.mean) {
                *value = mean + stretch * (*value - mean);
            }
            return self.log_density(u) - self.log_density(proposal);
        }
        let length = 2.38 / (n as f64).sqrt() * (-SHORTENING * rng.random::<f64>()).exp();
        if rng.random::<bool>() {
            correlated(rng, &self.mean, &self.factor, proposal);
            for ((value, mean), u) in proposal.iter_mut().zip(&self.mean).zip(u) {
                *value = u + length * (*value - mean);
            }
        } else {
            let count = snapshot.len() / n;
            let one = &snapshot[n * rng.random_range(0..count)..][..n];
            let other = &snapshot[n * rng.random_range(0..count)..][..n];
            let length = if rng.random::<f64>() < JUMPS { 1.0 } else { length / 2.0_f64.sqrt() };
            for (i, value) in proposal.iter_mut().enumerate() {
                *value = u[i] + length * (one[i] - other[i]);
            }
        }
        0.0
    }

    /// −½ (df + n) log(1 + ‖L⁻¹(u − mean)‖²/df), the Student-t density up to a constant.
    fn log_density(&self, u: &[f64]) -> f64 {
        let n = u.len();
        let mut rest: Vec<f64> = u.iter().zip(&self.mean).map(|(u, mean)| u - mean).collect();
        let mut square = 0.0;
        for j in 0..n {
            let z = rest[j] / self.factor[j + j * n];
            square += z * z;
            for i in j + 1..n {
                rest[i] -= self.factor[i + j * n] * z;
            }
        }
        -0.5 * (PROPOSAL_DF + n as f64) * (square / PROPOSAL_DF).ln_1p()
    }
}

/// Kish's (Σ w)² / Σ w² of weights given by their logarithms.
fn effective_number(log_weights: &[f64]) -> f64 {
    let most = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut squares) = (0.0, 0.0);
    for weight in log_weights.iter().map(|w| (w - most).exp()) {
        sum += weight;
        squares += weight * weight;
    }
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// The largest correlation between columns before and after.
fn correlation(before: &[Vec<f64>], after: &[Vec<f64>]) -> f64 {
    let one = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let count = a.len() as f64;
        let (mean_a, mean_b) = (a.iter().sum::<f64>() / count, b.iter().sum::<f64>() / count);
        let (mut product, mut square_a, mut square_b) = (0.0, 0.0, 0.0);
        for (a, b) in a.iter().zip(b) {
            let (a, b) = (a - mean_a, b - mean_b);
            (product, square_a, square_b) = (product + a * b, square_a + a * a, square_b + b * b);
        }
        let scale = (square_a * square_b).sqrt();
        if scale > 0.0 { (product / scale).abs() } else { 0.0 }
    };
    before.iter().zip(after).map(one).fold(0.0, f64::max)
}
