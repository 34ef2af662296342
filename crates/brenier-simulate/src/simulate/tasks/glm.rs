//! A neuron that fires with a probability that depends on a stimulus: a Bernoulli generalised linear model.
//!
//! In each of 100 bins a spike comes with probability σ(V θ); the rows of V hold a one and the stimulus of this and of the eight
//! bins before. θ ~ N(0, B⁻¹) in ten dimensions, B = blockdiag(½, FᵀF), F = D² + diag(√(i/9), i = 0, …, 8), D = I −
//! subdiagonal: a smooth filter. What is seen are the spikes z themselves, or the ten summaries Vᵀz: their number, and their
//! cross-correlation with the stimulus at the lags 0 to 8. Since
//!
//! log p(z | θ) = θᵀVᵀz − Σₜ log(1 + exp(V θ)ₜ),
//!
//! the summaries are sufficient and both tasks have the same posterior.

use rand::RngExt;
use rand_distr::{ChiSquared, Distribution, StandardNormal};

use super::{Attempt, CHAINS, Prior, PriorBlock, Simulator, Stream, Streams, Task, numbered, prior_of};
use crate::kernel::spd::{self, SpdScratch};
use crate::{Error, Result};
use rayon::prelude::*;

const BINS: usize = 100;
const DIM: usize = 10;
const LAGS: usize = DIM - 1;

/// Steps of each independence chain.
const STEPS: usize = 200;
/// Degrees of freedom of its proposals.
const PROPOSAL_DF: f64 = 10.0;

/// Standard normal numbers, `numpy.random.RandomState(42).randn(100)` in single precision, as in the benchmark.
#[rustfmt::skip]
const STIMULUS: [f32; BINS] = [
    0.496_714_14, -0.138_264_3, 0.647_688_57, 1.523_029_8, -0.234_153_38, -0.234_136_95, 1.579_212_8,
    0.767_434_7, -0.469_474_38, 0.542_560_04, -0.463_417_68, -0.465_729_74, 0.241_962_27, -1.913_280_2,
    -1.724_917_9, -0.562_287_5, -1.012_831_1, 0.314_247_34, -0.908_024_1, -1.412_303_7, 1.465_648_8,
    -0.225_776_3, 0.067_528_2, -1.424_748_2, -0.544_382_75, 0.110_922_59, -1.150_993_6, 0.375_698_03,
    -0.600_638_7, -0.291_693_75, -0.601_706_6, 1.852_278_2, -0.013_497_225, -1.057_710_9, 0.822_544_93,
    -1.220_843_7, 0.208_863_6, -1.959_670_1, -1.328_186, 0.196_861_24, 0.738_466_56, 0.171_368_29,
    -0.115_648_285, -0.301_103_68, -1.478_522, -0.719_844_2, -0.460_638_76, 1.057_122_2, 0.343_618_3,
    -1.763_040_2, 0.324_083_98, -0.385_082_27, -0.676_922, 0.611_676_3, 1.030_999_5, 0.931_280_14,
    -0.839_217_54, -0.309_212_4, 0.331_263_42, 0.975_545_1, -0.479_174_23, -0.185_658_98, -1.106_334_9,
    -1.196_206_6, 0.812_525_8, 1.356_24, -0.072_010_12, 1.003_532_9, 0.361_636, -0.645_119_7,
    0.361_395_6, 1.538_036_6, -0.035_826_04, 1.564_643_6, -2.619_745, 0.821_902_5, 0.087_047_07,
    -0.299_007_36, 0.091_760_78, -1.987_568_9, -0.219_671_89, 0.357_112_56, 1.477_894_1, -0.518_270_2,
    -0.808_493_6, -0.501_757, 0.915_402_1, 0.328_751_12, -0.529_760_2, 0.513_267_46, 0.097_077_55,
    0.968_645, -0.702_053_07, -0.327_662_14, -0.392_108_14, -1.463_514_9, 0.296_120_3, 0.261_055_26,
    0.005_113_457, -0.234_587_13,
];

/// Parameters `theta_1`, …, `theta_10`, and as outputs ten summaries or 100 spikes `y_1`, ….
#[derive(Clone, Debug)]
pub struct BernoulliGlm {
    prior: Prior,
    outputs: Vec<String>,
    /// V, row by row.
    design: Vec<[f64; DIM]>,
    /// B, column-major.
    precision: Vec<f64>,
    raw: bool,
}

/// V: ones, and the stimulus delayed by 0 to 8 bins.
fn design() -> Vec<[f64; DIM]> {
    let entry = |bin: usize, column: usize| match column {
        0 => 1.0,
        _ => bin.checked_sub(column - 1).map_or(0.0, |source| f64::from(STIMULUS[source])),
    };
    (0..BINS).map(|bin| std::array::from_fn(|column| entry(bin, column))).collect()
}

/// B = blockdiag(½, FᵀF).
fn precision() -> Vec<f64> {
    let difference = |i: usize, j: usize| f64::from(i == j) - f64::from(i == j + 1);
    let filter = |i: usize, j: usize| {
        let square: f64 = (0..LAGS).map(|k| difference(i, k) * difference(k, j)).sum();
        square + if i == j { (i as f64 / LAGS as f64).sqrt() } else { 0.0 }
    };
    let mut precision = vec![0.0; DIM * DIM];
    precision[0] = 0.5;
    for i in 0..LAGS {
        for j in 0..LAGS {
            precision[(i + 1) + (j + 1) * DIM] = (0..LAGS).map(|k| filter(k, i) * filter(k, j)).sum();
        }
    }
    precision
}

/// The inverse of a matrix that is positive definite.
fn inverse(matrix: &[f64]) -> Option<Vec<f64>> {
    let (mut factor, mut scratch) = (matrix.to_vec(), SpdScratch::new(DIM));
    spd::cholesky(&mut factor, &mut scratch)?;
    let mut inverse = vec![0.0; DIM * DIM];
    spd::invert(&factor, &mut inverse, &mut scratch);
    Some(inverse)
}

impl BernoulliGlm {
    /// The task whose outputs are the ten summaries.
    pub fn summaries() -> Self {
        Self::new(false)
    }

    /// The task whose outputs are the 100 spikes.
    pub fn raw() -> Self {
        Self::new(true)
    }

    fn new(raw: bool) -> Self {
        let precision = precision();
        let covariance = inverse(&precision).expect("a sum of squares");
        let block = PriorBlock::MultivariateNormal {
            names: numbered("theta", DIM),
            mean: vec![0.0; DIM],
            covariance: covariance.chunks(DIM).map(<[f64]>::to_vec).collect(),
        };
        let outputs = numbered("y", if raw { BINS } else { DIM });
        Self { prior: prior_of(&[block]), outputs, design: design(), precision, raw }
    }

    /// Vᵀz for the outputs y, which are z or already Vᵀz.
    fn sufficient(&self, y: &[f64]) -> [f64; DIM] {
        let mut sums = [0.0; DIM];
        match self.raw {
            false => sums.copy_from_slice(y),
            true => {
                for (row, spike) in self.design.iter().zip(y) {
                    sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += v * spike);
                }
            }
        }
        sums
    }

    /// θᵀVᵀz − Σₜ log(1 + exp(V θ)ₜ).
    fn log_likelihood_of(&self, theta: &[f64], sufficient: &[f64; DIM]) -> f64 {
        let mut sum = dot(theta, sufficient);
        // One logarithm for all bins: the product of 100 factors between 1 and 2 is a finite number.
        let mut product = 1.0;
        for row in &self.design {
            let drive = dot(row, theta);
            sum -= drive.max(0.0);
            product *= 1.0 + (-drive.abs()).exp();
        }
        sum - f64::ln(product)
    }

    /// log p(z | θ) − ½ θᵀBθ.
    fn log_posterior(&self, theta: &[f64], sufficient: &[f64; DIM]) -> f64 {
        let penalty: f64 =
            self.precision.chunks_exact(DIM).zip(theta).map(|(column, t)| t * dot(column, theta)).sum();
        self.log_likelihood_of(theta, sufficient) - 0.5 * penalty
    }

    /// The posterior's mode by Newton's method, and the Cholesky factor of the inverse of its curvature
    /// B + Vᵀ diag(σ (1 − σ)) V.
    fn mode(&self, sufficient: &[f64; DIM]) -> Result<(Vec<f64>, Vec<f64>)> {
        let failed = || {
            Error::Numerical("the mode of the posterior of a generalised linear model was not found".into())
        };
        let mut theta = vec![0.0; DIM];
        let mut height = self.log_posterior(&theta, sufficient);
        for _ in 0..100 {
            let mut curvature = self.precision.clone();
            let mut gradient: Vec<f64> = sufficient.to_vec();
            for (column, t) in self.precision.chunks_exact(DIM).zip(&theta) {
                gradient.iter_mut().zip(column).for_each(|(gradient, b)| *gradient -= b * t);
            }
            for row in &self.design {
                let p = 1.0 / (1.0 + (-dot(row, &theta)).exp());
                gradient.iter_mut().zip(row).for_each(|(gradient, v)| *gradient -= p * v);
                for (column, v) in curvature.chunks_exact_mut(DIM).zip(row) {
                    column.iter_mut().zip(row).for_each(|(entry, w)| *entry += p * (1.0 - p) * v * w);
                }
            }
            let covariance = inverse(&curvature).ok_or_else(failed)?;
            let step: Vec<f64> = covariance.chunks_exact(DIM).map(|column| dot(column, &gradient)).collect();
            let decrement = dot(&step, &gradient);
            if decrement < 1e-16 {
                let mut factor = covariance;
                spd::cholesky(&mut factor, &mut SpdScratch::new(DIM)).ok_or_else(failed)?;
                return Ok((theta, factor));
            }
            let mut length = 1.0;
            loop {
                let next: Vec<f64> = theta.iter().zip(&step).map(|(t, s)| t + length * s).collect();
                let reached = self.log_posterior(&next, sufficient);
                if reached >= height || length < 1e-6 {
                    (theta, height) = (next, reached);
                    break;
                }
                length *= 0.5;
            }
        }
        Err(failed())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Simulator for BernoulliGlm {
    fn identity(&self) -> String {
        if self.raw { "bernoulli-glm-raw".into() } else { "bernoulli-glm".into() }
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        outputs.fill(0.0);
        for (bin, row) in self.design.iter().enumerate() {
            let spike = rng.random::<f64>() * (1.0 + (-dot(row, theta)).exp()) < 1.0;
            if spike && self.raw {
                outputs[bin] = 1.0;
            } else if spike {
                outputs.iter_mut().zip(row).for_each(|(y, v)| *y += v);
            }
        }
        Ok(Attempt::Done)
    }
}

impl Task for BernoulliGlm {
    fn log_likelihood(&self, theta: &[f64], y: &[f64]) -> f64 {
        self.log_likelihood_of(theta, &self.sufficient(y))
    }

    /// An independence chain for each draw. The proposals are Student-t around the mode, whose tails are heavier than the
    /// posterior's: the weights are bounded by some M, and after k steps a chain is within (1 − 1/M)ᵏ of the posterior.
    fn posterior_draws(&self, y: &[f64], count: usize, seed: u64) -> Result<Vec<f64>> {
        let sufficient = self.sufficient(y);
        let (mode, factor) = self.mode(&sufficient)?;
        let chi_squared = ChiSquared::new(PROPOSAL_DF).expect("positive");
        let streams = Streams::new(seed, CHAINS);
        let mut draws = vec![0.0; DIM * count];
        draws.par_chunks_mut(DIM).enumerate().for_each(|(chain, theta)| {
            let mut rng = streams.get(chain as u64);
            let mut log_weight = f64::NEG_INFINITY;
            let mut proposal = [0.0; DIM];
            for _ in 0..=STEPS {
                let stretch = (PROPOSAL_DF / chi_squared.sample(&mut rng)).sqrt();
                let mut square = 0.0;
                proposal.copy_from_slice(&mode);
                for j in 0..DIM {
                    let z = stretch * rng.sample::<f64, _>(StandardNormal);
                    square += z * z;
                    for i in j..DIM {
                        proposal[i] += factor[i + j * DIM] * z;
                    }
                }
                let log_proposal = -0.5 * (PROPOSAL_DF + DIM as f64) * (square / PROPOSAL_DF).ln_1p();
                let proposed = self.log_posterior(&proposal, &sufficient) - log_proposal;
                if rng.random::<f64>().ln() < proposed - log_weight {
                    theta.copy_from_slice(&proposal);
                    log_weight = proposed;
                }
            }
        });
        Ok(draws)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_design_is_the_benchmarks() {
        let design = design();
        assert_eq!(design[0][..3], [1.0, f64::from(0.496_714_14_f32), 0.0]);
        assert_eq!(design[8][9], design[0][1]);
        assert_eq!(design[99][1], f64::from(STIMULUS[99]));
        // The first values of F: D² has 1 on its diagonal and −2 below it.
        let precision = precision();
        assert_eq!(precision[0], 0.5);
        assert!(precision[1..DIM].iter().all(|b| *b == 0.0));
        // (FᵀF)₁₁ = F₁₁² + F₂₁² + F₃₁² = 1 + 4 + 1, (FᵀF)₂₁ = −2 (1 + 1/3) + 1 · (−2).
        assert!((precision[DIM + 1] - 6.0).abs() < 1e-12);
        assert!((precision[DIM + 2] - (-2.0 * (1.0 + 1.0 / 3.0) - 2.0)).abs() < 1e-12);
    }

    #[test]
    fn spikes_and_summaries_have_the_same_likelihood() {
        let (spikes, summaries) = (BernoulliGlm::raw(), BernoulliGlm::summaries());
        let streams = Streams::new(4, 0);
        let (mut theta, mut z, mut y) = ([0.0; DIM], [0.0; BINS], [0.0; DIM]);
        for row in 0..20 {
            spikes.prior().draw(&mut streams.get(row), &mut theta);
            spikes.simulate(&theta, &mut streams.get(1000 + row), &mut z).unwrap();
            summaries.simulate(&theta, &mut streams.get(1000 + row), &mut y).unwrap();
            assert_eq!(y[0], z.iter().sum::<f64>());
            let lag = (0..BINS - 3).map(|t| f64::from(STIMULUS[t]) * z[t + 3]).sum::<f64>();
            assert!((y[4] - lag).abs() < 1e-10);
            // The probability of these spikes, bin by bin.
            let direct: f64 = (0..BINS)
                .map(|bin| {
                    let p = 1.0 / (1.0 + (-dot(&spikes.design[bin], &theta)).exp());
                    if z[bin] == 1.0 { p.ln() } else { (-p).ln_1p() }
                })
                .sum();
            assert!((spikes.log_likelihood(&theta, &z) - direct).abs() < 1e-8);
            assert!((summaries.log_likelihood(&theta, &y) - direct).abs() < 1e-8);
        }
    }
}
