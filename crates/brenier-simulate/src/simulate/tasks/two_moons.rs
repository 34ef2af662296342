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
pub(super) mod tests {
    use super::*;

    /// Compares draws with quadrature of prior times likelihood: the probabilities of 40 × 40 boxes that cover the posterior at
    /// y, by a χ² statistic. `cells` is the number of quadrature cells in each
    /// direction, a multiple of 40, `count` that of draws.
    pub(in super::super) fn assert_probabilities(
        task: &dyn Task,
        y: &[f64],
        low: [f64; 2],
        high: [f64; 2],
        (cells, count): (usize, usize),
    ) {
        const BOXES: usize = 40;
        let draws = task.posterior_draws(y, count, 5).unwrap();
        let width = [0, 1].map(|j| (high[j] - low[j]) / cells as f64);
        let (mut exact, mut found) = ([0.0; BOXES * BOXES], [0.0; BOXES * BOXES]);
        let mut u = [0.0; 2];
        for i in 0..cells {
            for j in 0..cells {
                let at = |j: usize, i: usize| low[j] + (i as f64 + 0.5) * width[j];
                let theta = [at(0, i), at(1, j)];
                task.prior().to_coordinates(&theta, &mut u);
                let jacobian: f64 =
                    u.iter().zip(&theta).map(|(u, t)| if u == t { 0.0 } else { -t.ln() }).sum();
                let density = task.prior().log_density(&u) + jacobian + task.log_likelihood(&theta, y);
                exact[i * BOXES / cells * BOXES + j * BOXES / cells] += density.exp();
            }
        }
        let whole: f64 = exact.iter().sum();
        for theta in draws.chunks_exact(2) {
            let place = [0, 1].map(|j| (theta[j] - low[j]) / (high[j] - low[j]) * BOXES as f64);
            if place.iter().all(|place| (0.0..BOXES as f64).contains(place)) {
                found[place[0] as usize * BOXES + place[1] as usize] += 1.0;
            }
        }
        let inside: f64 = found.iter().sum();
        assert!(inside > 0.999 * count as f64, "only {inside} draws lie where the density was integrated");
        let (mut chi_square, mut boxes) = (0.0, 0.0);
        let mut rare = (0.0, 0.0);
        for (exact, found) in exact.iter().zip(found) {
            let expected = exact / whole * inside;
            if expected >= 5.0 {
                chi_square += (found - expected).powi(2) / expected;
                boxes += 1.0;
            } else {
                rare = (rare.0 + expected, rare.1 + found);
            }
        }
        assert!(boxes > 8.0, "the posterior fills {boxes} boxes only");
        let normal = (chi_square - boxes) / (2.0 * boxes).sqrt();
        assert!(normal.abs() < 4.5, "χ² = {chi_square} in {boxes} boxes");
        assert!((rare.0 - rare.1).abs() < 5.0 * rare.0.sqrt() + 5.0, "{rare:?}");
    }

    #[test]
    fn draws_have_the_probabilities_of_the_density() {
        let task = TwoMoons::default();
        for y in [[0.0, 0.0], [-0.3, 0.4], [0.25, -0.1], [-1.0, 0.05]] {
            assert_probabilities(&task, &y, [-1.0, -1.0], [1.0, 1.0], (1600, 20_000));
        }
    }

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
