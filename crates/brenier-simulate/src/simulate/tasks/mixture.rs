//! A location seen through a mixture of a wide and a narrow Gaussian noise.
//!
//! θ ~ U(−10, 10)², y ~ ½ N(θ, I) + ½ N(θ, 0.01 I). The posterior is the same mixture around y, cut off at the square: a
//! component keeps the weight of its mass inside.

use rand::RngExt;
use rand_distr::StandardNormal;

use super::gaussian::truncated_normals;
use super::{
    Attempt, Prior, Simulator, Stream, Task, independent_draws, log_normal_density, numbered, uniform_prior,
};
use crate::kernel::special::normal_tail;
use crate::{Error, Result};

const DIM: usize = 2;
const BOUND: f64 = 10.0;
/// Standard deviations of the two noises, each with probability ½.
const SCALES: [f64; 2] = [1.0, 0.1];

/// θ ~ U(−10, 10)², y ~ ½ N(θ, I) + ½ N(θ, 0.01 I).
#[derive(Clone, Debug)]
pub struct GaussianMixture {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for GaussianMixture {
    fn default() -> Self {
        Self { prior: uniform_prior(DIM, BOUND), outputs: numbered("y", DIM) }
    }
}

/// P(|θ| < bound) for θ ~ N(mean, sd²).
fn mass_inside(mean: f64, sd: f64, bound: f64) -> f64 {
    // Both ends on the side where the tail is small.
    let mean = -mean.abs();
    normal_tail((-bound - mean) / sd) - normal_tail((bound - mean) / sd)
}

impl Simulator for GaussianMixture {
    fn identity(&self) -> String {
        "gaussian-mixture".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let scale = SCALES[usize::from(rng.random::<bool>())];
        for (y, theta) in outputs.iter_mut().zip(theta) {
            *y = theta + scale * rng.sample::<f64, _>(StandardNormal);
        }
        Ok(Attempt::Done)
    }
}

impl Task for GaussianMixture {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        let [wide, narrow] = SCALES.map(|scale| {
            y.iter().zip(theta).map(|(&y, &theta)| log_normal_density(y, theta, scale)).sum::<f64>()
        });
        let most = wide.max(narrow);
        most + (0.5 * (wide - most).exp() + 0.5 * (narrow - most).exp()).ln()
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let [wide, narrow] =
            SCALES.map(|scale| y.iter().map(|&y| mass_inside(y, scale, BOUND)).product::<f64>());
        let share = narrow / (wide + narrow);
        if !share.is_finite() {
            return Err(Error::Domain(format!("no θ in the square produces y = {y:?}")));
        }
        let around = truncated_normals(y, SCALES[0], BOUND)?;
        // Where no draw can come from the narrow component its law need not exist.
        let near = match share > 0.0 {
            true => truncated_normals(y, SCALES[1], BOUND)?,
            false => around.clone(),
        };
        independent_draws(DIM, count, seed, |rng, theta| {
            let component = if rng.random::<f64>() < share { &near } else { &around };
            component.draw(rng, theta);
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
        let task = GaussianMixture::default();
        let (steps, width) = (1200, 12.0);
        let cell = width / f64::from(steps);
        let mut whole = 0.0;
        for i in 0..steps {
            for j in 0..steps {
                let y = [i, j].map(|i| (f64::from(i) + 0.5) * cell - 0.5 * width + 1.0);
                whole += task.log_likelihood(&[1.0, 1.0], &y).exp() * cell * cell;
            }
        }
        assert!((whole - 1.0).abs() < 1e-6, "{whole}");
    }
}
