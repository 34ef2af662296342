//! A linear model with Gaussian prior and noise, whose posterior is known in closed form.
//!
//! θ ~ N(m, Γ), y = A θ + ε, ε ~ N(0, Σ). With the gain K = Γ Aᵀ (A Γ Aᵀ + Σ)⁻¹,
//!
//! θ | y ~ N(m + K (y − A m), Γ − K A Γ).

use super::prior::correlated;
use super::{Attempt, Prior, PriorBlock, Simulator, Stream};
use crate::kernel::spd::{self, SpdScratch};
use crate::{Error, Result};

/// The model, with parameters `theta_1`, … and outputs `y_1`, ….
#[derive(Clone, Debug)]
pub struct LinearGaussian {
    prior: Prior,
    outputs: Vec<String>,
    mean: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    matrix: Vec<Vec<f64>>,
    noise: Vec<Vec<f64>>,
    /// Cholesky factor of the noise's covariance, column-major.
    noise_factor: Vec<f64>,
    noise_free: bool,
}

/// Mean and covariance of a Gaussian.
#[derive(Clone, Debug, PartialEq)]
pub struct Gaussian {
    /// The mean.
    pub mean: Vec<f64>,
    /// The covariance, row by row.
    pub covariance: Vec<Vec<f64>>,
}

impl LinearGaussian {
    /// The model y = `matrix` θ + noise for θ ~ N(`mean`, `covariance`) and noise ~ N(0, `noise`).
    pub fn new(
        mean: Vec<f64>,
        covariance: Vec<Vec<f64>>,
        matrix: Vec<Vec<f64>>,
        noise: Vec<Vec<f64>>,
    ) -> Result<Self> {
        let (n, m) = (mean.len(), matrix.len());
        if matrix.iter().any(|row| row.len() != n) || noise.len() != m || m == 0 {
            return Err(Error::Shape {
                what: "linear-Gaussian model",
                expected: format!("a matrix of {n} columns, and as many rows as the noise's covariance"),
                got: format!("{m} rows and a noise covariance of {} rows", noise.len()),
            });
        }
        let names = |letter: &str, count: usize| (1..=count).map(|i| format!("{letter}_{i}")).collect();
        // Both covariances are checked as priors are.
        let block = |names: Vec<String>, mean: &[f64], covariance: &[Vec<f64>]| {
            let block = PriorBlock::MultivariateNormal {
                names,
                mean: mean.to_vec(),
                covariance: covariance.to_vec(),
            };
            Prior::new(&[block], "".as_ref())
        };
        let prior = block(names("theta", n), &mean, &covariance)?;
        block(names("y", m), &vec![0.0; m], &noise)?;
        let mut noise_factor: Vec<f64> = noise.concat();
        spd::cholesky(&mut noise_factor, &mut SpdScratch::new(m)).expect("checked as a prior");
        Ok(Self {
            prior,
            outputs: names("y", m),
            mean,
            covariance,
            matrix,
            noise,
            noise_factor,
            noise_free: false,
        })
    }

    /// The same without noise in its outputs: y = A θ.
    #[must_use]
    pub fn noise_free(self) -> Self {
        Self { noise_free: true, ..self }
    }

    /// The exact posterior, of the model with its noise, at the outputs `y`.
    pub fn posterior(&self, y: &[f64]) -> Gaussian {
        let (n, m) = (self.mean.len(), self.matrix.len());
        // Γ Aᵀ, n × m.
        let cross: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                (0..m).map(|k| (0..n).map(|j| self.covariance[i][j] * self.matrix[k][j]).sum()).collect()
            })
            .collect();
        let mut system: Vec<f64> = vec![0.0; m * m];
        for k in 0..m {
            for l in 0..m {
                let spread: f64 = (0..n).map(|i| self.matrix[k][i] * cross[i][l]).sum();
                system[k + l * m] = self.noise[k][l] + spread;
            }
        }
        spd::cholesky(&mut system, &mut SpdScratch::new(m)).expect("the sum of two covariances");
        let mut surprise: Vec<f64> = (0..m)
            .map(|k| y[k] - self.matrix[k].iter().zip(&self.mean).map(|(a, m)| a * m).sum::<f64>())
            .collect();
        spd::solve(&system, &mut surprise);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mean = (0..n).map(|i| self.mean[i] + dot(&cross[i], &surprise)).collect();
        let covariance = (0..n)
            .map(|i| {
                let mut gain = cross[i].clone();
                spd::solve(&system, &mut gain);
                (0..n).map(|j| self.covariance[i][j] - dot(&gain, &cross[j])).collect()
            })
            .collect();
        Gaussian { mean, covariance }
    }
}

/// Three correlated parameters and four outputs.
impl Default for LinearGaussian {
    fn default() -> Self {
        Self::new(
            vec![1.0, 0.0, -1.0],
            vec![vec![1.0, 0.5, 0.0], vec![0.5, 2.0, 0.3], vec![0.0, 0.3, 0.5]],
            vec![vec![1.0, 0.5, 0.0], vec![-0.3, 0.8, 0.4], vec![0.2, -1.0, 1.0], vec![0.0, 0.3, -0.6]],
            vec![
                vec![0.25, 0.05, 0.0, 0.0],
                vec![0.05, 0.25, 0.0, 0.0],
                vec![0.0, 0.0, 0.5, 0.1],
                vec![0.0, 0.0, 0.1, 0.25],
            ],
        )
        .expect("the numbers are valid")
    }
}

impl Simulator for LinearGaussian {
    fn identity(&self) -> String {
        let noise = if self.noise_free { " noise-free" } else { "" };
        format!("linear-gaussian {:?} {:?}{noise}", self.matrix, self.noise)
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let mean: Vec<f64> =
            self.matrix.iter().map(|row| row.iter().zip(theta).map(|(a, t)| a * t).sum()).collect();
        match self.noise_free {
            true => outputs.copy_from_slice(&mean),
            false => correlated(rng, &mean, &self.noise_factor, outputs),
        }
        Ok(Attempt::Done)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::Streams;

    /// For every y, θ − E(θ|y) is independent of y with the posterior covariance.
    #[test]
    fn residuals_of_the_posterior_mean_have_the_posterior_covariance() {
        let model = LinearGaussian::default();
        let streams = Streams::new(1, 0);
        let count = 20_000;
        let (mut theta, mut y) = ([0.0; 3], [0.0; 4]);
        let mut second = [[0.0; 7]; 3];
        let exact = model.posterior(&[0.0; 4]).covariance;
        for row in 0..count {
            let mut rng = streams.get(row);
            model.prior().draw(&mut rng, &mut theta);
            model.simulate(&theta, &mut rng, &mut y).unwrap();
            let mean = model.posterior(&y).mean;
            let rest: Vec<f64> = theta.iter().zip(&mean).map(|(t, m)| t - m).collect();
            for i in 0..3 {
                for (j, other) in rest.iter().chain(&y).enumerate() {
                    second[i][j] += rest[i] * other / count as f64;
                }
            }
        }
        for i in 0..3 {
            for j in 0..7 {
                let expected = if j < 3 { exact[i][j] } else { 0.0 };
                assert!((second[i][j] - expected).abs() < 0.04, "{i} {j}: {} {expected}", second[i][j]);
            }
        }
    }
}
