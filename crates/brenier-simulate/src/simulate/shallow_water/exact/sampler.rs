//! Draws from the exact posterior, and its exact density, with Laplace's approximation as a guide.
//!
//! The chains move by θ' = θ̂ + √(1 − β²) (θ − θ̂) + β ξ, ξ ~ N(0, H⁻¹), which leaves N(θ̂, H⁻¹) as it is, and accept with
//! probability min(1, exp(Ψ(θ) − Ψ(θ'))) for Ψ(θ) = Φ(θ) − ½(θ − θ̂)ᵀH(θ − θ̂) (preconditioned Crank–Nicolson): draws are from the
//! exact posterior, and all are accepted where Laplace's approximation is exact.
//!
//! Densities come from importance sampling: with q the approximation,
//! Z = E_q[e^{−Φ}/q], p(θ_k | y) = E_{q(θ_r | θ_k)}[e^{−Φ}/q(θ_r | θ_k)]/Z.

use rand::RngExt;

use super::laplace::{Forward, Laplace};
use crate::simulate::{Stream, Streams};
use crate::{Error, Result};

/// How the posterior is sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainSettings {
    /// Chains, whose models are run side by side.
    pub chains: usize,
    /// Steps of a chain that are kept.
    pub steps: usize,
    /// Steps before.
    pub burn_in: usize,
    /// β: 1 for independent proposals, smaller for smaller steps.
    pub step: f64,
    /// The seed.
    pub seed: u64,
}

impl Default for ChainSettings {
    fn default() -> Self {
        Self { chains: 32, steps: 400, burn_in: 100, step: 0.5, seed: 0 }
    }
}

/// Draws of all chains.
#[derive(Clone, Debug)]
pub struct Chains {
    /// Rows of parameters, step by step, in each step chain by chain.
    pub draws: Vec<f64>,
    /// Part of the proposals that was accepted.
    pub acceptance: f64,
    /// The largest split R̂ over the parameters: 1 when the chains agree.
    pub largest_r_hat: f64,
    dim: usize,
}

impl Chains {
    /// Mean and covariance (column-major) of the draws.
    pub fn moments(&self) -> (Vec<f64>, Vec<f64>) {
        let n = self.dim;
        let count = (self.draws.len() / n) as f64;
        let mut mean = vec![0.0; n];
        for draw in self.draws.chunks_exact(n) {
            mean.iter_mut().zip(draw).for_each(|(mean, t)| *mean += t / count);
        }
        let mut covariance = vec![0.0; n * n];
        for draw in self.draws.chunks_exact(n) {
            for j in 0..n {
                let weight = (draw[j] - mean[j]) / (count - 1.0);
                for i in 0..n {
                    covariance[i + j * n] += weight * (draw[i] - mean[i]);
                }
            }
        }
        (mean, covariance)
    }
}

/// Runs the chains, from draws of the approximation.
pub fn sample(
    forward: &dyn Forward,
    y: &[f64],
    laplace: &Laplace,
    settings: &ChainSettings,
) -> Result<Chains> {
    let (n, chains) = (forward.dim(), settings.chains);
    if chains == 0 || settings.steps < 4 || !(settings.step > 0.0 && settings.step <= 1.0) {
        return Err(Error::setting("chains", "ask for at least 1 chain, 4 steps and a step in (0, 1]"));
    }
    let streams = Streams::new(settings.seed, 0);
    let mut rngs: Vec<Stream> = (0..chains as u64).map(|chain| streams.get(chain)).collect();
    // Ψ = Φ − ½ distance².
    let excess = |points: &[f64]| -> Vec<f64> {
        let potentials = forward.potentials(y, points).into_iter().zip(points.chunks_exact(n));
        potentials.map(|(phi, theta)| phi - 0.5 * laplace.squared_distance(theta)).collect()
    };
    let mut state = Vec::with_capacity(chains * n);
    for rng in &mut rngs {
        let mut point = laplace.mode.clone();
        laplace.perturb(1.0, rng, &mut point);
        state.extend(point);
    }
    let mut current = excess(&state);
    let keep = (1.0 - settings.step * settings.step).sqrt();
    let mut draws = Vec::with_capacity(settings.steps * chains * n);
    let mut accepted = 0;
    for step in 0..settings.burn_in + settings.steps {
        let mut proposal = state.clone();
        for (point, rng) in proposal.chunks_exact_mut(n).zip(&mut rngs) {
            point.iter_mut().zip(&laplace.mode).for_each(|(t, mode)| *t = mode + keep * (*t - mode));
            laplace.perturb(settings.step, rng, point);
        }
        let proposed = excess(&proposal);
        for (chain, rng) in rngs.iter_mut().enumerate() {
            if rng.random::<f64>().ln() < current[chain] - proposed[chain] {
                let own = chain * n..(chain + 1) * n;
                state[own.clone()].copy_from_slice(&proposal[own]);
                current[chain] = proposed[chain];
                accepted += usize::from(step >= settings.burn_in);
            }
        }
        if step >= settings.burn_in {
            draws.extend_from_slice(&state);
        }
    }
    let acceptance = accepted as f64 / (settings.steps * chains) as f64;
    let largest_r_hat = (0..n).map(|k| r_hat(&draws, n, chains, k)).fold(0.0, f64::max);
    Ok(Chains { draws, acceptance, largest_r_hat, dim: n })
}

/// R̂ of one parameter, each chain split into halves: √(((s − 1)/s W + B)/W) for s draws per half, W the mean variance within halves, B
/// the variance of their means.
fn r_hat(draws: &[f64], dim: usize, chains: usize, parameter: usize) -> f64 {
    let steps = draws.len() / (dim * chains);
    let half = steps / 2;
    let mut means = Vec::new();
    let mut within = 0.0;
    for chain in 0..chains {
        for start in [0, steps - half] {
            let value = |step: usize| draws[((start + step) * chains + chain) * dim + parameter];
            let mean = (0..half).map(value).sum::<f64>() / half as f64;
            within += (0..half).map(|step| (value(step) - mean).powi(2)).sum::<f64>() / (half - 1) as f64;
            means.push(mean);
        }
    }
    let count = means.len() as f64;
    within /= count;
    let centre = means.iter().sum::<f64>() / count;
    let between = means.iter().map(|mean| (mean - centre).powi(2)).sum::<f64>() / (count - 1.0);
    let size = half as f64;
    (((size - 1.0) / size * within + between) / within).sqrt()
}

/// An estimate by importance sampling, and the part of its draws that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The logarithm of the quantity.
    pub log: f64,
    /// Effective draws, (Σw)²/Σw², as a fraction of all.
    pub effective: f64,
}

/// log mean e^w.
fn log_mean_exp(log_weights: &[f64]) -> Estimate {
    let most = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut squares) = (0.0, 0.0);
    for w in log_weights {
        let weight = (w - most).exp();
        sum += weight;
        squares += weight * weight;
    }
    let count = log_weights.len() as f64;
    Estimate { log: most + (sum / count).ln(), effective: sum * sum / squares / count }
}

/// E_q[e^{−Φ}/q] over the parameters that `guide` has, the first being fixed.
fn integral(
    forward: &dyn Forward,
    y: &[f64],
    first: &[f64],
    guide: &Laplace,
    draws: usize,
    streams: &Streams,
) -> Estimate {
    let n = forward.dim();
    let mut points = Vec::with_capacity(draws * n);
    let mut densities = Vec::with_capacity(draws);
    for draw in 0..draws {
        let mut rest = guide.mode.clone();
        guide.perturb(1.0, &mut streams.get(draw as u64), &mut rest);
        densities.push(guide.log_density(&rest));
        points.extend_from_slice(first);
        points.extend(rest);
    }
    let potentials = forward.potentials(y, &points);
    let weights: Vec<f64> = potentials.iter().zip(&densities).map(|(phi, log_q)| -phi - log_q).collect();
    log_mean_exp(&weights)
}

/// log p(θ_k | y) of the first parameters, as many as `first` has, by importance sampling with `draws` draws for the
/// integral over the others and as many for the normalising constant. The second estimate is that of the constant.
pub fn marginal_log_density(
    forward: &dyn Forward,
    y: &[f64],
    laplace: &Laplace,
    first: &[f64],
    draws: usize,
    seed: u64,
) -> (Estimate, Estimate) {
    let constant = integral(forward, y, &[], laplace, draws, &Streams::new(seed, 1));
    let here = match first.len() == forward.dim() {
        true => Estimate { log: -forward.potentials(y, first)[0], effective: 1.0 },
        false => integral(forward, y, first, &laplace.given_first(first), draws, &Streams::new(seed, 2)),
    };
    (Estimate { log: here.log - constant.log, ..here }, constant)
}
