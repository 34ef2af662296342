//! Two moons: a posterior of two crescents that can be drawn from exactly.
//!
//! θ ~ U(−1, 1)², and with α ~ U(−π/2, π/2), r ~ N(0.1, 0.01²),
//!
//! y = (r cos α + 0.25 − |θ₁ + θ₂|/√2, r sin α + (θ₂ − θ₁)/√2).
//!
//! Given y, the shift p = (r cos α + 0.25, r sin α) determines θ up to the sign of θ₁ + θ₂ and with a constant
//! Jacobian, so a draw of p, turned into one of the two θ and kept when it lies in the square, is a draw from the
//! posterior (Greenberg, Nonnenmacher, Macke 2019).

use std::f64::consts::{FRAC_PI_2, SQRT_2};

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{Attempt, Prior, PriorBlock, Simulator, Stream};
use crate::{Error, Result};

/// The model, with parameters `theta_1`, `theta_2` and outputs `y_1`, `y_2`.
#[derive(Clone, Debug)]
pub struct TwoMoons {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for TwoMoons {
    fn default() -> Self {
        let blocks = [1, 2].map(|i| PriorBlock::Uniform { name: format!("theta_{i}"), low: -1.0, high: 1.0 });
        let prior = Prior::new(&blocks, "".as_ref()).expect("the blocks are valid");
        Self { prior, outputs: vec!["y_1".into(), "y_2".into()] }
    }
}

/// The random shift (r cos α + 0.25, r sin α).
fn shift(rng: &mut Stream) -> [f64; 2] {
    let angle = FRAC_PI_2 * (2.0 * rng.random::<f64>() - 1.0);
    let radius = 0.1 + 0.01 * rng.sample::<f64, _>(StandardNormal);
    [radius * angle.cos() + 0.25, radius * angle.sin()]
}

impl TwoMoons {
    /// One exact draw from the posterior at y.
    pub fn posterior_draw(&self, y: [f64; 2], rng: &mut Stream) -> Result<[f64; 2]> {
        for _ in 0..100_000 {
            let p = shift(rng);
            let sum = SQRT_2 * (p[0] - y[0]);
            let difference = SQRT_2 * (y[1] - p[1]);
            let sum = if rng.random::<f64>() < 0.5 { sum } else { -sum };
            let theta = [0.5 * (sum - difference), 0.5 * (sum + difference)];
            if p[0] >= y[0] && theta.iter().all(|t| t.abs() <= 1.0) {
                return Ok(theta);
            }
        }
        Err(Error::Domain(format!("no θ in the square produces y = {y:?}")))
    }
}

impl Simulator for TwoMoons {
    fn identity(&self) -> String {
        "two-moons".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let p = shift(rng);
        outputs[0] = p[0] - (theta[0] + theta[1]).abs() / SQRT_2;
        outputs[1] = p[1] + (theta[1] - theta[0]) / SQRT_2;
        Ok(Attempt::Done)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::Streams;

    /// For pairs (θ, y) of the model, θ and a posterior draw at y have the same distribution given y.
    #[test]
    fn posterior_draws_are_exchangeable_with_the_parameters() {
        let model = TwoMoons::default();
        let streams = Streams::new(1, 0);
        let count = 20_000;
        let (mut theta, mut y) = ([0.0; 2], [0.0; 2]);
        let mut means = [0.0; 6];
        for row in 0..count {
            let mut rng = streams.get(row);
            model.prior().draw(&mut rng, &mut theta);
            model.simulate(&theta, &mut rng, &mut y).unwrap();
            let other = model.posterior_draw(y, &mut rng).unwrap();
            // Functions of (θ, y) must have the same mean for both.
            let of = |t: &[f64; 2]| {
                [
                    t[0],
                    t[0] * t[1],
                    t[0] * t[0],
                    t[1].powi(4),
                    (t[1] - t[0]) * y[1],
                    (t[0] + t[1]).abs() * y[0],
                ]
            };
            for (mean, (a, b)) in means.iter_mut().zip(of(&theta).iter().zip(of(&other))) {
                *mean += (a - b) / count as f64;
            }
            // And the other point must explain y: its shift has length r near 0.1.
            let p =
                [y[0] + (other[0] + other[1]).abs() / SQRT_2 - 0.25, y[1] - (other[1] - other[0]) / SQRT_2];
            assert!((p[0].hypot(p[1]) - 0.1).abs() < 0.06 && p[0] > -0.001, "{p:?}");
        }
        assert!(means.iter().all(|mean| mean.abs() < 0.02), "{means:?}");
    }
}
