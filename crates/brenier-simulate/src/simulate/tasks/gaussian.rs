//! Ten parameters seen through Gaussian noise, with a Gaussian prior and with a uniform one.
//!
//! y ~ N(θ, 0.1 I). For θ ~ N(0, 0.1 I) the posterior is N(y/2, 0.05 I); for θ ~ U(−1, 1)¹⁰ it is N(y, 0.1 I) cut off at the
//! cube, which factorises.

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{
    Attempt, Prior, PriorBlock, Simulator, Stream, Task, independent_draws, log_normal_density, numbered,
    prior_of, uniform_prior,
};
use crate::Result;

const DIM: usize = 10;
/// Variance of the noise, and of the Gaussian prior.
const VARIANCE: f64 = 0.1;

/// θ ~ N(0, 0.1 I), y ~ N(θ, 0.1 I), in ten dimensions.
#[derive(Clone, Debug)]
pub struct GaussianLinear {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for GaussianLinear {
    fn default() -> Self {
        let block = |name| PriorBlock::Normal { name, mean: 0.0, sd: VARIANCE.sqrt() };
        let blocks: Vec<_> = numbered("theta", DIM).into_iter().map(block).collect();
        Self { prior: prior_of(&blocks), outputs: numbered("y", DIM) }
    }
}

/// θ ~ U(−1, 1)¹⁰, y ~ N(θ, 0.1 I).
#[derive(Clone, Debug)]
pub struct GaussianLinearUniform {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for GaussianLinearUniform {
    fn default() -> Self {
        Self { prior: uniform_prior(DIM, 1.0), outputs: numbered("y", DIM) }
    }
}

fn add_noise(theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) {
    for (y, theta) in outputs.iter_mut().zip(theta) {
        *y = theta + VARIANCE.sqrt() * rng.sample::<f64, _>(StandardNormal);
    }
}

fn log_likelihood(theta: &[f64], y: &[f64]) -> f64 {
    y.iter().zip(theta).map(|(&y, &theta)| log_normal_density(y, theta, VARIANCE.sqrt())).sum()
}

impl Simulator for GaussianLinear {
    fn identity(&self) -> String {
        "gaussian-linear".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        add_noise(theta, rng, outputs);
        Ok(Attempt::Done)
    }
}

impl Task for GaussianLinear {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        log_likelihood(theta, y)
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let sd = (0.5 * VARIANCE).sqrt();
        independent_draws(DIM, count, seed, |rng, theta| {
            for (theta, y) in theta.iter_mut().zip(y) {
                *theta = 0.5 * y + sd * rng.sample::<f64, _>(StandardNormal);
            }
            Ok(())
        })
    }
}

impl Simulator for GaussianLinearUniform {
    fn identity(&self) -> String {
        "gaussian-linear-uniform".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        add_noise(theta, rng, outputs);
        Ok(Attempt::Done)
    }
}

impl Task for GaussianLinearUniform {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        log_likelihood(theta, y)
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let posterior = truncated_normals(y, VARIANCE.sqrt(), 1.0)?;
        independent_draws(DIM, count, seed, |rng, theta| {
            posterior.draw(rng, theta);
            Ok(())
        })
    }
}

/// The product of N(meanᵢ, sd²) cut off at ±`bound`.
pub(super) fn truncated_normals(means: &[f64], sd: f64, bound: f64) -> Result<Prior> {
    let block = |(name, &mean): (String, &f64)| PriorBlock::TruncatedNormal {
        name,
        mean,
        sd,
        low: Some(-bound),
        high: Some(bound),
    };
    let blocks: Vec<_> = numbered("theta", means.len()).into_iter().zip(means).map(block).collect();
    Prior::new(&blocks, "".as_ref())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kernel::special::normal_tail;

    #[test]
    fn draws_have_the_moments_of_the_closed_form() {
        let y = [0.1, -0.7, 0.4, 0.0, 1.2, -0.3, 0.2, 0.6, -1.1, 0.05];
        let count = 20_000;
        let draws = GaussianLinear::default().posterior_draws(&y, count, 3).unwrap();
        for j in 0..DIM {
            let column: Vec<f64> = draws.iter().skip(j).step_by(DIM).copied().collect();
            let mean = column.iter().sum::<f64>() / count as f64;
            let variance = column.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / count as f64;
            assert!((mean - 0.5 * y[j]).abs() < 5.0 * (0.05 / count as f64).sqrt(), "{j}: {mean}");
            assert!((variance / 0.05 - 1.0).abs() < 5.0 * (2.0 / count as f64).sqrt(), "{j}: {variance}");
        }
    }

    /// P(θⱼ < c | y) by normal tails.
    #[test]
    fn draws_under_the_uniform_prior_have_the_probabilities_of_cut_off_normals() {
        let y = [0.1, -0.7, 0.4, 0.0, 1.2, -0.3, 0.2, 0.6, -1.6, 0.05];
        let count = 20_000;
        let draws = GaussianLinearUniform::default().posterior_draws(&y, count, 3).unwrap();
        let sd = VARIANCE.sqrt();
        for j in 0..DIM {
            let below = |bound: f64| normal_tail((y[j] - bound) / sd);
            for c in [-0.9, -0.3, 0.2, 0.8] {
                let exact = (below(c) - below(-1.0)) / (below(1.0) - below(-1.0));
                let column = draws.iter().skip(j).step_by(DIM);
                let found = column.filter(|&&t| t < c).count() as f64 / count as f64;
                let error = (exact * (1.0 - exact) / count as f64).sqrt();
                assert!((found - exact).abs() < 5.0 * error + 1e-9, "{j} {c}: {found}, not {exact}");
            }
        }
    }
}
