//! The likelihood of two moons, whose simulator and posterior are those of [`TwoMoons`].
//!
//! With the shift p = y + (|θ₁ + θ₂|/√2 − 0.25, (θ₁ − θ₂)/√2) and its length r, in polar coordinates
//!
//! p(y | θ) = N(r; 0.1, 0.01²) / (π r) for p₁ > 0, and 0 otherwise.

use std::f64::consts::{PI, SQRT_2};

use super::{Task, TwoMoons, independent_draws, log_normal_density};
use crate::Result;

impl Task for TwoMoons {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        let p = [y[0] + (theta[0] + theta[1]).abs() / SQRT_2 - 0.25, y[1] + (theta[0] - theta[1]) / SQRT_2];
        let radius = p[0].hypot(p[1]);
        match p[0] > 0.0 {
            true => log_normal_density(radius, 0.1, 0.01) - (PI * radius).ln(),
            false => f64::NEG_INFINITY,
        }
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        independent_draws(2, count, seed, |rng, theta| {
            theta.copy_from_slice(&self.posterior_draw([y[0], y[1]], rng)?);
            Ok(())
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_likelihood_integrates_to_one() {
        let task = TwoMoons::default();
        let (steps, width) = (1000, 0.4);
        let cell = width / f64::from(steps);
        let mut whole = 0.0;
        for i in 0..steps {
            for j in 0..steps {
                let y = [f64::from(i) + 0.5, f64::from(j) + 0.5].map(|k| k * cell - 0.5 * width);
                let theta = [0.3, -0.1];
                let y = [y[0] + 0.3 - 0.2 / SQRT_2, y[1] - 0.4 / SQRT_2];
                whole += task.log_likelihood(&theta, &y).exp() * cell * cell;
            }
        }
        assert!((whole - 1.0).abs() < 1e-3, "{whole}");
    }
}
