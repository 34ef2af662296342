//! A block of a prior, checked and ready to draw from: one parameter, or several that belong together.

use rand::RngExt;
use rand_distr::{Distribution, Gamma, StandardNormal};

use super::law::Law;
use crate::data::Table;
use crate::kernel::special::log_gamma;
use crate::simulate::Stream;

#[derive(Clone, Debug)]
pub(super) enum Part {
    /// One parameter.
    Law(Law),
    Multivariate {
        mean: Vec<f64>,
        factor: Vec<f64>,
        log_det: f64,
    },
    /// Positive parameters that sum to one.
    Simplex {
        concentration: Vec<f64>,
        log_constant: f64,
    },
    Samples(Table),
    /// A Gaussian on a few directions of many parameters.
    Modes(Modes),
}

/// θ = mean + Σₖ deviationₖ uₖ vₖ for u ~ N(0, I), with orthonormal directions vₖ; the coordinates are u.
#[derive(Clone, Debug)]
pub(super) struct Modes {
    pub(super) mean: Vec<f64>,
    pub(super) deviations: Vec<f64>,
    /// One direction after the other.
    pub(super) directions: Vec<f64>,
}

impl Modes {
    fn at(&self, u: &[f64], theta: &mut [f64]) {
        theta.copy_from_slice(&self.mean);
        let directions = self.directions.chunks_exact(self.mean.len());
        for ((u, deviation), direction) in u.iter().zip(&self.deviations).zip(directions) {
            theta.iter_mut().zip(direction).for_each(|(theta, v)| *theta += u * deviation * v);
        }
    }

    fn of(&self, theta: &[f64], u: &mut [f64]) {
        let directions = self.directions.chunks_exact(self.mean.len());
        for ((u, deviation), direction) in u.iter_mut().zip(&self.deviations).zip(directions) {
            let terms = theta.iter().zip(&self.mean).zip(direction);
            *u = terms.map(|((theta, mean), v)| (theta - mean) * v).sum::<f64>() / deviation;
        }
    }
}

impl Part {
    /// Dirichlet's distribution; its concentrations are positive.
    pub(super) fn simplex(concentration: &[f64]) -> Self {
        let sum: f64 = concentration.iter().sum();
        let log_constant = log_gamma(sum) - concentration.iter().map(|&a| log_gamma(a)).sum::<f64>();
        Self::Simplex { concentration: concentration.to_vec(), log_constant }
    }

    /// How many parameters it has.
    pub(super) fn width(&self) -> usize {
        match self {
            Part::Law(_) => 1,
            Part::Multivariate { mean, .. } => mean.len(),
            Part::Simplex { concentration, .. } => concentration.len(),
            Part::Samples(table) => table.columns(),
            Part::Modes(modes) => modes.mean.len(),
        }
    }

    /// How many coordinates it has.
    pub(super) fn coordinates(&self) -> usize {
        match self {
            Part::Simplex { .. } => self.width() - 1,
            Part::Modes(modes) => modes.deviations.len(),
            _ => self.width(),
        }
    }

    pub(super) fn draw(&self, rng: &mut Stream, theta: &mut [f64]) {
        match self {
            Part::Law(law) => theta[0] = law.draw(rng),
            Part::Multivariate { mean, factor, .. } => correlated(rng, mean, factor, theta),
            Part::Simplex { concentration, .. } => on_simplex(rng, concentration, theta),
            Part::Samples(table) => {
                let row = (rng.random::<f64>() * table.rows() as f64) as usize;
                theta.copy_from_slice(table.row(row.min(table.rows() - 1)));
            }
            Part::Modes(modes) => {
                let u: Vec<f64> = modes.deviations.iter().map(|_| rng.sample(StandardNormal)).collect();
                modes.at(&u, theta);
            }
        }
    }

    pub(super) fn to_coordinates(&self, theta: &[f64], u: &mut [f64]) {
        match self {
            Part::Law(law) if law.is_log() => u[0] = theta[0].ln(),
            Part::Modes(modes) => modes.of(theta, u),
            _ => u.copy_from_slice(&theta[..u.len()]),
        }
    }

    pub(super) fn at_coordinates(&self, u: &[f64], theta: &mut [f64]) {
        match self {
            Part::Law(law) => theta[0] = law.parameter(u[0]),
            Part::Simplex { .. } => {
                theta[..u.len()].copy_from_slice(u);
                theta[u.len()] = (1.0 - u.iter().sum::<f64>()).max(0.0);
            }
            Part::Modes(modes) => modes.at(u, theta),
            _ => theta.copy_from_slice(u),
        }
    }

    /// Log density of the coordinates.
    pub(super) fn log_density(&self, u: &[f64]) -> f64 {
        match self {
            Part::Law(law) => law.log_density(u[0]),
            Part::Multivariate { mean, factor, log_det } => {
                let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
                let offset: Vec<f64> = u.iter().zip(mean).map(|(u, mean)| u - mean).collect();
                -0.5 * squared_length(&offset, factor) - 0.5 * log_det - mean.len() as f64 * half_log_tau
            }
            Part::Simplex { concentration, log_constant } => {
                let last = 1.0 - u.iter().sum::<f64>();
                let values = || u.iter().chain([&last]);
                if !values().all(|&value| value > 0.0) {
                    return f64::NEG_INFINITY;
                }
                log_constant + values().zip(concentration).map(|(x, a)| (a - 1.0) * x.ln()).sum::<f64>()
            }
            Part::Modes(_) => u.iter().map(|u| -0.5 * u * u - 0.5 * std::f64::consts::TAU.ln()).sum(),
            Part::Samples(_) => panic!("a table of samples has no density"),
        }
    }
}

/// Gamma variables divided by their sum. They are drawn as logarithms, Γ(a) = Γ(a + 1) · U^(1/a), so that small
/// concentrations cannot make all of them zero.
fn on_simplex(rng: &mut Stream, concentration: &[f64], theta: &mut [f64]) {
    for (theta, &a) in theta.iter_mut().zip(concentration) {
        *theta = log_gamma_variable(rng, a);
    }
    let most = theta.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    theta.iter_mut().for_each(|value| *value = (*value - most).exp());
    let sum: f64 = theta.iter().sum();
    theta.iter_mut().for_each(|value| *value = (*value / sum).clamp(f64::MIN_POSITIVE, BELOW_ONE));
}

/// The largest number below one.
pub(super) const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// ln of a gamma variable of this shape and scale 1.
pub(super) fn log_gamma_variable(rng: &mut Stream, shape: f64) -> f64 {
    let gamma = |shape: f64| Gamma::new(shape, 1.0).expect("shapes are positive and finite");
    if shape >= 1.0 {
        return gamma(shape).sample(rng).max(f64::MIN_POSITIVE).ln();
    }
    let power = (1.0 - rng.random::<f64>()).ln() / shape;
    gamma(shape + 1.0).sample(rng).max(f64::MIN_POSITIVE).ln() + power
}

/// centre + L z for z ~ N(0, I); L is the lower triangle of `factor`, column-major.
pub(crate) fn correlated(rng: &mut Stream, centre: &[f64], factor: &[f64], draw: &mut [f64]) {
    let n = centre.len();
    draw.copy_from_slice(centre);
    for j in 0..n {
        let z = rng.sample::<f64, _>(StandardNormal);
        for i in j..n {
            draw[i] += factor[i + j * n] * z;
        }
    }
}

/// ‖L⁻¹ v‖² for the lower triangle L of `factor`, column-major.
pub(crate) fn squared_length(v: &[f64], factor: &[f64]) -> f64 {
    let n = v.len();
    let mut solved = v.to_vec();
    let mut sum = 0.0;
    for j in 0..n {
        let z = solved[j] / factor[j + j * n];
        sum += z * z;
        for i in j + 1..n {
            solved[i] -= factor[i + j * n] * z;
        }
    }
    sum
}
