//! Predators and prey by the Lotka–Volterra differential equations, with noise on what is counted.
//!
//! log α, log γ ~ N(−0.125, 0.5²), log β, log δ ~ N(−3, 0.5²); from (30, 1),
//!
//! ẋ = α x − β x y, ẏ = −γ y + δ x y.
//!
//! On the days 0, 2.1, …, 18.9 both are counted with log-normal noise of width 0.1. Integrated are log x and log y, so that
//! small populations are as accurate as large ones.

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{
    Attempt, Prior, PriorBlock, Simulator, Stream, Task, log_normal_density, ode, population, prior_of,
};
use crate::Result;

const COUNTS: usize = 10;
const INTERVAL: f64 = 2.1;
const START: [f64; 2] = [30.0, 1.0];
/// Populations are kept within these before the noise.
const FEWEST: f64 = 1e-10;
const MOST: f64 = 1e4;
/// Standard deviation of the logarithm of a count.
const NOISE: f64 = 0.1;

/// Parameters `alpha`, `beta`, `gamma`, `delta`, outputs `prey_0`, …, `prey_18.9`, `predators_0`, …, `predators_18.9`.
#[derive(Clone, Debug)]
pub struct LotkaVolterraOde {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for LotkaVolterraOde {
    fn default() -> Self {
        let block = |(name, log_mean): (&str, f64)| PriorBlock::LogNormal {
            name: name.into(),
            log_mean,
            log_sd: 0.5,
        };
        let blocks = [("alpha", -0.125), ("beta", -3.0), ("gamma", -0.125), ("delta", -3.0)].map(block);
        let name =
            |animal: &str, k: usize| format!("{animal}_{}", (k as f64 * INTERVAL * 10.0).round() / 10.0);
        let outputs = ["prey", "predators"]
            .iter()
            .flat_map(|animal| (0..COUNTS).map(move |k| name(animal, k)))
            .collect();
        Self { prior: prior_of(&blocks), outputs }
    }
}

/// Logarithms of the populations on the days of the counts: prey, then predators.
fn log_populations(theta: &[f64]) -> Option<[f64; 2 * COUNTS]> {
    let (alpha, beta, gamma, delta) = (theta[0], theta[1], theta[2], theta[3]);
    let times: [f64; COUNTS] = std::array::from_fn(|k| k as f64 * INTERVAL);
    let path =
        ode::solve(|u| [alpha - beta * u[1].exp(), -gamma + delta * u[0].exp()], START.map(f64::ln), times)?;
    let clamped = |value: f64| value.clamp(FEWEST.ln(), MOST.ln());
    Some(std::array::from_fn(|i| clamped(path[i % COUNTS][i / COUNTS])))
}

impl Simulator for LotkaVolterraOde {
    fn identity(&self) -> String {
        "lotka-volterra-ode".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let Some(logs) = log_populations(theta) else { return Ok(Attempt::Abandoned) };
        for (y, log) in outputs.iter_mut().zip(logs) {
            *y = (log + NOISE * rng.sample::<f64, _>(StandardNormal)).exp();
        }
        Ok(Attempt::Done)
    }
}

impl Task for LotkaVolterraOde {
    /// Σ log N(log yₖ; log xₖ, 0.1²) − log yₖ.
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        let Some(logs) = log_populations(theta) else { return f64::NEG_INFINITY };
        y.iter().zip(logs).map(|(&y, log)| log_normal_density(y.ln(), log, NOISE) - y.ln()).sum()
    }

    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        population::tempered(self, y, count, seed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::Streams;

    /// Days 2.1, 10.5 and 18.9 by SciPy's DOP853 with tolerances of 3e-14.
    #[test]
    fn solutions_agree_with_another_integrator() {
        for (theta, expected) in [
            (
                [0.9, 0.05, 0.8, 0.04],
                [
                    4.251_105_965_063_675,
                    3.617_723_922_355_71,
                    2.051_177_713_796_523,
                    3.995_998_686_056_750_7,
                    0.138_100_635_540_018_2,
                    0.226_449_908_930_279_16,
                ],
            ),
            (
                [2.5, 0.12, 0.4, 0.02],
                [
                    -0.575_706_647_882_609_2,
                    -4.305_202_519_052_892,
                    -10.946_819_703_332_176,
                    4.445_841_958_527_466,
                    1.087_547_409_354_783,
                    3.267_601_034_691_841,
                ],
            ),
            (
                [0.4, 0.02, 2.0, 0.15],
                [
                    1.784_862_668_968_584_5,
                    3.543_200_488_104_909_5,
                    2.882_600_427_208_072_5,
                    4.740_440_562_621_003_6,
                    1.107_913_775_566_718_3,
                    -2.002_518_666_130_796_5,
                ],
            ),
        ] {
            let logs = log_populations(&theta).unwrap();
            for (place, expected) in [1, 5, 9, 11, 15, 19].into_iter().zip(expected) {
                assert!((logs[place] - expected).abs() < 1e-6, "{theta:?}: {}, not {expected}", logs[place]);
            }
        }
    }

    #[test]
    fn counts_have_the_moments_of_the_noise_and_the_likelihood_its_mean() {
        let (task, theta, rows) = (LotkaVolterraOde::default(), [0.9, 0.05, 0.8, 0.04], 4000);
        assert_eq!(task.output_names()[13], "predators_6.3");
        let logs = log_populations(&theta).unwrap();
        let streams = Streams::new(2, 0);
        let (mut moments, mut y) = ([[0.0; 2]; 20], [0.0; 20]);
        let mut surprise = 0.0;
        for row in 0..rows {
            task.simulate(&theta, &mut streams.get(row), &mut y).unwrap();
            for i in 0..20 {
                let noise = y[i].ln() - logs[i];
                moments[i][0] += noise / rows as f64;
                moments[i][1] += noise * noise / rows as f64;
            }
            surprise += task.log_likelihood(&theta, &y) / rows as f64;
        }
        let root = (rows as f64).sqrt();
        for [mean, square] in moments {
            assert!(mean.abs() < 5.0 * 0.1 / root && (square - 0.01).abs() < 5.0 * 0.01 * 1.5 / root);
        }
        // Minus the entropy of the counts: 20 normals of width 0.1 for their logarithms, and the logarithms themselves.
        let entropy =
            20.0 * (0.5 * (1.0 + std::f64::consts::TAU.ln()) + 0.1_f64.ln()) + logs.iter().sum::<f64>();
        assert!(
            (surprise + entropy).abs() < 5.0 * (20.0 * 0.5 + 0.2_f64).sqrt() / root,
            "{surprise} {entropy}"
        );
    }
}
