//! Simple likelihood, complex posterior: four points of a Gaussian whose mean and covariance are the parameters.
//!
//! θ ~ U(−3, 3)⁵; four points of N(m, S) with m = (θ₁, θ₂), standard deviations s₁ = θ₃², s₂ = θ₄², correlation ρ = tanh θ₅, and
//! ε = 10⁻⁶ added to both variances. The signs of θ₃ and θ₄ do not matter: four modes of equal weight.
//!
//! With ε = 0 the posterior can be drawn exactly. Given S, m ~ N(ȳ, S/4) cut off at the square; m integrated out leaves
//! |S|^(−3/2) exp(−½ tr S⁻¹W), W the scatter of the points, with respect to dθ₃ dθ₄ dθ₅ = dS / (16 |S| (S₁₁ S₂₂)^¼). This is
//! (1 − ρ²)^¼ ≤ 1 times the inverse Wishart density ∝ |S|^(−(ν + 3)/2) exp(−½ tr S⁻¹W) with ν = 5/2: rejection.
//! Importance weights and Metropolis steps then account for ε, which matters where a standard deviation is near 10⁻³.

use rand::RngExt;
use rand_distr::{Distribution, Gamma, StandardNormal};

use super::population::Population;
use super::{Attempt, Prior, Simulator, Stream, Streams, Task, independent_draws, numbered, uniform_prior};
use crate::{Error, Result};

const DIM: usize = 5;
const POINTS: usize = 4;
const BOUND: f64 = 3.0;
/// Added to the variances.
const RIDGE: f64 = 1e-6;
/// Degrees of freedom of the proposals' inverse Wishart distribution.
const PROPOSAL_DF: f64 = 2.5;
/// Proposals for one draw before an observation is given up.
const MAX_PROPOSALS: u32 = 10_000_000;
const SIGNS: u64 = 24;

/// Parameters `theta_1`, …, `theta_5`, outputs `y_1`, …, `y_8`, point by point.
#[derive(Clone, Debug)]
pub struct Slcp {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for Slcp {
    fn default() -> Self {
        Self { prior: uniform_prior(DIM, BOUND), outputs: numbered("y", 2 * POINTS) }
    }
}

/// S₁₁, S₁₂, S₂₂ with `ridge` on the diagonal.
fn covariance(theta: &[f64], ridge: f64) -> [f64; 3] {
    let (s1, s2, rho) = (theta[2] * theta[2], theta[3] * theta[3], theta[4].tanh());
    [s1 * s1 + ridge, rho * s1 * s2, s2 * s2 + ridge]
}

/// |S|, without the cancellation of S₁₁ S₂₂ − S₁₂² where ρ is near ±1: with vᵢ = sᵢ²,
/// v₁ v₂ (1 − ρ²) + ε (v₁ + v₂) + ε².
fn determinant(theta: &[f64], ridge: f64) -> f64 {
    let (v1, v2) = (theta[2].powi(4), theta[3].powi(4));
    let cosh = theta[4].cosh();
    v1 * v2 / (cosh * cosh) + ridge * (v1 + v2) + ridge * ridge
}

/// Σ log N(pₖ; m, S).
fn log_density(theta: &[f64], y: &[f64], ridge: f64) -> f64 {
    let [a, b, c] = covariance(theta, ridge);
    let determinant = determinant(theta, ridge);
    let mut square = 0.0;
    for point in y.chunks_exact(2) {
        let (d, e) = (point[0] - theta[0], point[1] - theta[1]);
        square += c * d * d - 2.0 * b * d * e + a * e * e;
    }
    let points = POINTS as f64;
    -0.5 * square / determinant - 0.5 * points * determinant.ln() - points * std::f64::consts::TAU.ln()
}

impl Simulator for Slcp {
    fn identity(&self) -> String {
        "slcp".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let [a, b, _] = covariance(theta, RIDGE);
        // The Cholesky factor (√a, b/√a, √(|S|/a)).
        let (first, cross, second) = (a.sqrt(), b / a.sqrt(), (determinant(theta, RIDGE) / a).sqrt());
        for point in outputs.chunks_exact_mut(2) {
            let (z, w) = (rng.sample::<f64, _>(StandardNormal), rng.sample::<f64, _>(StandardNormal));
            point[0] = theta[0] + first * z;
            point[1] = theta[1] + cross * z + second * w;
        }
        Ok(Attempt::Done)
    }
}

/// Mean and scatter of the four points.
struct Points {
    mean: [f64; 2],
    /// W₁₁, W₁₂, W₂₂.
    scatter: [f64; 3],
}

impl Points {
    fn of(y: &[f64]) -> Self {
        let mean = [0, 1].map(|j| y.iter().skip(j).step_by(2).sum::<f64>() / POINTS as f64);
        let mut scatter = [0.0; 3];
        for point in y.chunks_exact(2) {
            let (d, e) = (point[0] - mean[0], point[1] - mean[1]);
            scatter.iter_mut().zip([d * d, d * e, e * e]).for_each(|(sum, term)| *sum += term);
        }
        Self { mean, scatter }
    }

    /// One draw with θ₃, θ₄ > 0 from the posterior without the ridge.
    fn draw(&self, rng: &mut Stream, theta: &mut [f64]) -> Result<()> {
        let gamma = |shape: f64| Gamma::new(shape, 1.0).expect("a positive shape");
        let (of_first, of_rest) = (gamma(0.5 * (PROPOSAL_DF - 1.0)), gamma(0.5 * PROPOSAL_DF));
        let [w11, w12, w22] = self.scatter;
        let rest = w22 - w12 * w12 / w11;
        let normal = |rng: &mut Stream| rng.sample::<f64, _>(StandardNormal);
        for _ in 0..MAX_PROPOSALS {
            // S₁₁ and S₂₂ − S₁₂²/S₁₁ are inverse gamma, S₁₂/S₁₁ given the latter is normal.
            let first = 0.5 * w11 / of_first.sample(rng);
            let remainder = 0.5 * rest / of_rest.sample(rng);
            let slope = w12 / w11 + (remainder / w11).sqrt() * normal(rng);
            let (cross, second) = (slope * first, remainder + slope * slope * first);
            // 1 − ρ² = remainder / S₂₂.
            let apart = remainder / second;
            let spread = [first.sqrt().sqrt(), second.sqrt().sqrt()];
            let correlation = cross.signum() * (1.0 - apart).max(0.0).sqrt();
            let fisher = 0.5 * ((1.0 + correlation).powi(2) / apart).ln();
            if !(spread.iter().all(|s| *s < BOUND) && fisher.abs() < BOUND)
                || rng.random::<f64>() > apart.sqrt().sqrt()
            {
                continue;
            }
            let (z, w) = (normal(rng), normal(rng));
            theta[0] = self.mean[0] + 0.5 * first.sqrt() * z;
            theta[1] = self.mean[1] + 0.5 * (slope * first.sqrt() * z + remainder.sqrt() * w);
            if theta[..2].iter().all(|m| m.abs() < BOUND) {
                theta[2..].copy_from_slice(&[spread[0], spread[1], fisher]);
                return Ok(());
            }
        }
        Err(Error::Numerical(format!(
            "no parameters within the prior's bounds were found for points around {:?}",
            self.mean
        )))
    }
}

impl Task for Slcp {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        log_density(theta, y, RIDGE)
    }

    fn exchangeable_points(&self) -> Option<usize> {
        Some(POINTS)
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let points = Points::of(y);
        let size = Population::<Self>::size_for(count);
        let starts = independent_draws(DIM, size, seed, |rng, theta| points.draw(rng, theta))?;
        let log_weights: Vec<f64> = starts
            .chunks_exact(DIM)
            .map(|theta| log_density(theta, y, RIDGE) - log_density(theta, y, 0.0))
            .collect();
        let mut population = Population::from_draws(self, y, &starts, seed)?;
        population.resample(&log_weights)?;
        population.forget();
        let mut draws = population.draws(count);
        let mut rng = Streams::new(seed, SIGNS).get(0);
        for theta in draws.chunks_exact_mut(DIM) {
            for spread in &mut theta[2..4] {
                *spread = if rng.random::<bool>() { spread.abs() } else { -spread.abs() };
            }
        }
        Ok(draws)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn points_have_the_mean_and_covariance_of_the_parameters() {
        let (task, theta, rows) = (Slcp::default(), [0.7, -2.9, -1.2, 0.8, 0.6], 10_000);
        let streams = Streams::new(1, 0);
        let mut y = [0.0; 8];
        let (mut means, mut products, mut surprise) = ([0.0; 2], [0.0; 3], 0.0);
        for row in 0..rows {
            task.simulate(&theta, &mut streams.get(row), &mut y).unwrap();
            surprise += task.log_likelihood(&theta, &y) / rows as f64;
            for point in y.chunks_exact(2) {
                let (d, e) = (point[0] - theta[0], point[1] - theta[1]);
                means.iter_mut().zip([d, e]).for_each(|(sum, value)| *sum += value);
                products.iter_mut().zip([d * d, d * e, e * e]).for_each(|(sum, value)| *sum += value);
            }
        }
        let count = 4.0 * rows as f64;
        let exact = [1.44 * 1.44, 1.44 * 0.64 * 0.6_f64.tanh(), 0.64 * 0.64];
        for (found, exact) in products.iter().zip(exact) {
            assert!((found / count - exact).abs() < 0.03 * exact.abs(), "{} {exact}", found / count);
        }
        assert!(means.iter().all(|mean| (mean / count).abs() < 0.04), "{means:?}");
        let log_det = determinant(&theta, RIDGE).ln();
        let entropy = 4.0 * (1.0 + std::f64::consts::TAU.ln()) + 2.0 * log_det;
        assert!((surprise + entropy).abs() < 0.1, "{surprise} {entropy}");
    }

    #[test]
    fn the_determinant_is_that_of_the_covariance() {
        for theta in [[0.0, 0.0, 1.3, -0.7, 0.4], [0.0, 0.0, 0.01, 2.0, -1.0], [0.0, 0.0, -2.0, 2.5, 1.5]] {
            let [a, b, c] = covariance(&theta, RIDGE);
            assert!((determinant(&theta, RIDGE) / (a * c - b * b) - 1.0).abs() < 1e-9, "{theta:?}");
        }
    }

    /// Over pairs (θ, y) of the model, θ and a draw by rejection at y have the same distribution given y, up to signs.
    #[test]
    fn rejection_draws_are_exchangeable_with_the_parameters() {
        let (task, streams, rows) = (Slcp::default(), Streams::new(6, 0), 3000);
        let (mut theta, mut y, mut other) = ([0.0; DIM], [0.0; 8], [0.0; DIM]);
        let mut sums = [[0.0; 2]; 3 * DIM];
        for row in 0..rows {
            let mut rng = streams.get(row);
            task.prior().draw(&mut rng, &mut theta);
            task.simulate(&theta, &mut rng, &mut y).unwrap();
            let points = Points::of(&y);
            points.draw(&mut rng, &mut other).unwrap();
            theta[2..4].iter_mut().for_each(|t| *t = t.abs());
            for j in 0..DIM {
                let size = (points.scatter[0] * points.scatter[2]).sqrt().ln();
                let slope = points.scatter[1] / (points.scatter[0] * points.scatter[2]).sqrt();
                let of = |t: &[f64]| [t[j], t[j] * size, t[j] * slope];
                for (k, (a, b)) in of(&theta).into_iter().zip(of(&other)).enumerate() {
                    let sum = &mut sums[3 * j + k];
                    *sum = [sum[0] + (a - b), sum[1] + (a - b) * (a - b)];
                }
            }
        }
        for [sum, square] in sums {
            assert!(sum.abs() < 4.5 * square.sqrt(), "{sum} ± {}", square.sqrt());
        }
    }
}
