//! An epidemic: susceptible, infected and recovered people, of whom some are tested.
//!
//! log β ~ N(log 0.4, 0.5²), log γ ~ N(log 0.125, 0.2²); of N = 10⁶ people one is infected at the start, and with the shares
//! s = S/N and i = I/N,
//!
//! ṡ = −β s i, i̇ = β s i − γ i.
//!
//! On the days 0, 17, …, 153 the infected among 1000 people are counted: yₖ ~ Binomial(1000, i(17 k)). Integrated are s and
//! log i, so that small shares are as accurate as large ones.

use rand_distr::{Binomial, Distribution};

use super::{Attempt, Prior, PriorBlock, Simulator, Stream, Task, ode, population, prior_of};
use crate::kernel::special::log_gamma;
use crate::{Error, Result};

const DAYS: [f64; 10] = [0.0, 17.0, 34.0, 51.0, 68.0, 85.0, 102.0, 119.0, 136.0, 153.0];
const TESTED: u64 = 1000;
const FIRST_SHARE: f64 = 1e-6;

/// Parameters `beta` and `gamma`, outputs `infected_0`, `infected_17`, …, `infected_153`.
#[derive(Clone, Debug)]
pub struct Sir {
    prior: Prior,
    outputs: Vec<String>,
}

impl Default for Sir {
    fn default() -> Self {
        let block = |name: &str, median: f64, log_sd| PriorBlock::LogNormal {
            name: name.into(),
            log_mean: median.ln(),
            log_sd,
        };
        Self {
            prior: prior_of(&[block("beta", 0.4, 0.5), block("gamma", 0.125, 0.2)]),
            outputs: DAYS.iter().map(|day| format!("infected_{day}")).collect(),
        }
    }
}

/// log i on the days of the tests.
fn log_shares(theta: &[f64]) -> Option<[f64; DAYS.len()]> {
    let (beta, gamma) = (theta[0], theta[1]);
    let start = [1.0 - FIRST_SHARE, FIRST_SHARE.ln()];
    let path = ode::solve(|u| [-beta * u[0] * u[1].exp(), beta * u[0] - gamma], start, DAYS)?;
    Some(path.map(|state| state[1].min(0.0)))
}

impl Simulator for Sir {
    fn identity(&self) -> String {
        "sir".into()
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let Some(shares) = log_shares(theta) else { return Ok(Attempt::Abandoned) };
        for (y, share) in outputs.iter_mut().zip(shares) {
            let law =
                Binomial::new(TESTED, share.exp()).map_err(|error| Error::Numerical(error.to_string()))?;
            *y = law.sample(rng) as f64;
        }
        Ok(Attempt::Done)
    }
}

impl Task for Sir {
    /// Σ log C(1000, yₖ) + yₖ log i + (1000 − yₖ) log(1 − i).
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        let Some(shares) = log_shares(theta) else { return f64::NEG_INFINITY };
        let tested = TESTED as f64;
        let term = |(&y, share): (&f64, f64)| {
            let choices = log_gamma(tested + 1.0) - log_gamma(y + 1.0) - log_gamma(tested - y + 1.0);
            let healthy = tested - y;
            choices + y * share + if healthy > 0.0 { healthy * (-share.exp()).ln_1p() } else { 0.0 }
        };
        y.iter().zip(shares).map(term).sum()
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

    /// log i on days 17, 68 and 153 by SciPy's DOP853 with tolerances of 3e-14.
    #[test]
    fn solutions_agree_with_another_integrator() {
        for (theta, expected) in [
            ([0.4, 0.125], [-9.140_732_202_831_478, -2.049_201_299_678_793_4, -10.952_680_740_307_976]),
            ([0.9, 0.09], [-0.837_824_092_480_018_8, -4.554_144_061_257_52, -12.200_620_282_225_117]),
            ([0.2, 0.21], [-13.985_519_423_868_782, -14.495_598_803_280_282, -15.345_839_755_891_28]),
        ] {
            let shares = log_shares(&theta).unwrap();
            for (found, expected) in [shares[1], shares[4], shares[9]].iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{theta:?}: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn counts_have_the_mean_and_the_probabilities_of_the_likelihood() {
        let (task, theta, rows) = (Sir::default(), [0.35, 0.12], 4000);
        let streams = Streams::new(2, 0);
        let shares = log_shares(&theta).unwrap();
        let (mut sums, mut y) = ([0.0; 10], [0.0; 10]);
        let mut log_likelihoods = 0.0;
        for row in 0..rows {
            task.simulate(&theta, &mut streams.get(row), &mut y).unwrap();
            sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += y / rows as f64);
            log_likelihoods += task.log_likelihood(&theta, &y) / rows as f64;
        }
        let mut negative_entropy = 0.0;
        for (sum, log_share) in sums.iter().zip(shares) {
            let share = log_share.exp();
            let error = (1000.0 * share * (1.0 - share) / rows as f64).sqrt();
            assert!((sum - 1000.0 * share).abs() < 5.0 * error + 1e-3, "{sum} {share}");
            // Σ p log p over all counts, with p built up from one count to the next.
            let mut p = (1000.0 * (-share).ln_1p()).exp();
            for k in 0..=1000 {
                negative_entropy += if p > 0.0 { p * p.ln() } else { 0.0 };
                p *= f64::from(1000 - k) / f64::from(k + 1) * share / (1.0 - share);
            }
        }
        assert!((log_likelihoods - negative_entropy).abs() < 0.2, "{log_likelihoods} {negative_entropy}");
    }
}
