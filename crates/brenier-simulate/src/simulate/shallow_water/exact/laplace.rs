//! A forward model with Gaussian noise and prior, and the Gaussian approximation of its posterior at the mode.
//!
//! With y = f(θ) + ε, θ ~ N(0, I), ε ~ N(0, I), the negative log posterior is, up to a constant,
//!
//! ```text
//! Φ(θ) = ½‖f(θ) − y‖² + ½‖θ‖²
//! ```
//!
//! Gauss–Newton steps with Levenberg's damping, (H + μ I) δ = −∇Φ with ∇Φ = Jᵀ(f − y) + θ and H = JᵀJ + I, find a mode θ̂; there
//! N(θ̂, H⁻¹) is Laplace's approximation, exact where f is affine.

use std::f64::consts::TAU;

use rand::RngExt;
use rand_distr::StandardNormal;

use crate::kernel::spd::{self, SpdScratch};
use crate::simulate::Stream;
use crate::{Error, Result};

/// Steps that may fail one after the other before the search ends.
const MOST_REFUSALS: usize = 12;

/// f: parameters θ with prior N(0, I) to outputs in units of their noise.
pub trait Forward: Sync {
    /// The number of parameters.
    fn dim(&self) -> usize;

    /// The number of outputs.
    fn outputs(&self) -> usize;

    /// f at several points, rows of [`dim`](Self::dim) values; rows of `out` have [`outputs`](Self::outputs).
    fn evaluate(&self, points: &[f64], out: &mut [f64]);

    /// Φ at several points for the observation `y`; infinite where f is not finite.
    fn potentials(&self, y: &[f64], points: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; points.len() / self.dim() * self.outputs()];
        self.evaluate(points, &mut out);
        let rows = out.chunks_exact(self.outputs()).zip(points.chunks_exact(self.dim()));
        rows.map(|(f, theta)| potential(f, y, theta)).collect()
    }
}

fn potential(f: &[f64], y: &[f64], theta: &[f64]) -> f64 {
    let misfit: f64 = f.iter().zip(y).map(|(f, y)| (f - y).powi(2)).sum();
    let length: f64 = theta.iter().map(|t| t * t).sum();
    let value = 0.5 * (misfit + length);
    if value.is_finite() { value } else { f64::INFINITY }
}

/// How the mode is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct NewtonSettings {
    /// The step of the central differences that make J, in prior standard deviations.
    pub difference: f64,
    /// The search ends when a full step would lower Φ by less than this.
    pub tolerance: f64,
    /// Or after this many Jacobians.
    pub most_steps: usize,
}

impl Default for NewtonSettings {
    fn default() -> Self {
        Self { difference: 1e-4, tolerance: 1e-6, most_steps: 60 }
    }
}

/// N(mode, H⁻¹).
#[derive(Clone, Debug)]
pub struct Laplace {
    /// The mode θ̂.
    pub mode: Vec<f64>,
    /// Φ(θ̂).
    pub potential: f64,
    /// ‖f(θ̂) − y‖², which is about the number of outputs at the right mode.
    pub misfit: f64,
    /// Jacobians that were computed.
    pub steps: usize,
    /// Whether the search ended by its tolerance.
    pub converged: bool,
    /// Cholesky factor of H, column-major, lower triangle.
    factor: Vec<f64>,
    log_det: f64,
}

impl Laplace {
    /// Looks for the mode near `start`.
    pub fn find(forward: &dyn Forward, y: &[f64], start: &[f64], settings: &NewtonSettings) -> Result<Self> {
        let (n, m) = (forward.dim(), forward.outputs());
        if start.len() != n || y.len() != m {
            return Err(Error::Shape {
                what: "Laplace approximation",
                expected: format!("{n} parameters and {m} outputs"),
                got: format!("{} and {}", start.len(), y.len()),
            });
        }
        let mut theta = start.to_vec();
        let mut value = forward.potentials(y, &theta)[0];
        if !value.is_finite() {
            return Err(Error::Numerical("the model is not finite at the start of the search".to_owned()));
        }
        let mut damping = 0.0_f64;
        let mut steps = 0;
        loop {
            let (f, jacobian) = linearise(forward, &theta, settings.difference);
            steps += 1;
            let (hessian, gradient) = normal_equations(&jacobian, &f, y, &theta);
            let mut factor = hessian.clone();
            let log_det = spd::cholesky(&mut factor, &mut SpdScratch::new(n)).ok_or_else(|| {
                Error::Numerical("the Jacobian of the model is not finite near the mode".to_owned())
            })?;
            let mut newton = gradient.clone();
            spd::solve(&factor, &mut newton);
            let decrement = 0.5 * gradient.iter().zip(&newton).map(|(g, d)| g * d).sum::<f64>();
            let converged = decrement < settings.tolerance;
            let moved = match converged || steps >= settings.most_steps {
                true => None,
                false => descend(forward, y, &theta, value, &hessian, &gradient, &mut damping),
            };
            match moved {
                Some((next, lower)) => (theta, value) = (next, lower),
                None => {
                    let misfit = f.iter().zip(y).map(|(f, y)| (f - y).powi(2)).sum();
                    return Ok(Self {
                        mode: theta,
                        potential: value,
                        misfit,
                        steps,
                        converged,
                        factor,
                        log_det,
                    });
                }
            }
        }
    }

    /// The number of parameters.
    pub fn dim(&self) -> usize {
        self.mode.len()
    }

    /// H⁻¹, both triangles.
    pub fn covariance(&self) -> Vec<f64> {
        let mut covariance = vec![0.0; self.factor.len()];
        spd::invert(&self.factor, &mut covariance, &mut SpdScratch::new(self.dim()));
        covariance
    }

    /// log of the Gaussian's density.
    pub fn log_density(&self, theta: &[f64]) -> f64 {
        0.5 * self.log_det - 0.5 * self.dim() as f64 * TAU.ln() - 0.5 * self.squared_distance(theta)
    }

    /// (θ − θ̂)ᵀ H (θ − θ̂).
    pub fn squared_distance(&self, theta: &[f64]) -> f64 {
        let n = self.dim();
        let along =
            |j: usize| -> f64 { (j..n).map(|i| self.factor[i + j * n] * (theta[i] - self.mode[i])).sum() };
        (0..n).map(|j| along(j).powi(2)).sum()
    }

    /// Adds `scale` · L⁻ᵀξ, ξ ~ N(0, I), to `point`: a draw of N(0, scale² H⁻¹).
    pub(super) fn perturb(&self, scale: f64, rng: &mut Stream, point: &mut [f64]) {
        let n = self.dim();
        let mut step: Vec<f64> = (0..n).map(|_| rng.sample(StandardNormal)).collect();
        for i in (0..n).rev() {
            for j in i + 1..n {
                step[i] -= self.factor[j + i * n] * step[j];
            }
            step[i] /= self.factor[i + i * n];
            point[i] += scale * step[i];
        }
    }

    /// Log density of the first parameters, as many as `theta` has, after the others are integrated out.
    pub fn marginal_log_density(&self, theta: &[f64]) -> f64 {
        let (n, k) = (self.dim(), theta.len());
        let covariance = self.covariance();
        let mut block = vec![0.0; k * k];
        for j in 0..k {
            block[j * k..][..k].copy_from_slice(&covariance[j * n..][..k]);
        }
        let log_det = spd::cholesky(&mut block, &mut SpdScratch::new(k)).expect("a block of a covariance");
        let offset: Vec<f64> = theta.iter().zip(&self.mode).map(|(t, m)| t - m).collect();
        let mut solved = offset.clone();
        spd::solve(&block, &mut solved);
        let square: f64 = offset.iter().zip(&solved).map(|(a, b)| a * b).sum();
        -0.5 * (square + log_det + k as f64 * TAU.ln())
    }

    /// The conditional Gaussian of the other parameters given the first, as many as `first` has.
    ///
    /// With H split into blocks, its precision is H_rr and its mean θ̂_r − H_rr⁻¹ H_rk (θ_k − θ̂_k).
    pub(super) fn given_first(&self, first: &[f64]) -> Self {
        let (n, k) = (self.dim(), first.len());
        let entry = |i: usize, j: usize| -> f64 {
            (0..=i.min(j)).map(|l| self.factor[i + l * n] * self.factor[j + l * n]).sum()
        };
        let rest = n - k;
        let mut factor = vec![0.0; rest * rest];
        for j in 0..rest {
            (0..rest).for_each(|i| factor[i + j * rest] = entry(k + i, k + j));
        }
        let log_det =
            spd::cholesky(&mut factor, &mut SpdScratch::new(rest)).expect("a block of a positive matrix");
        let mut shift: Vec<f64> =
            (0..rest).map(|i| (0..k).map(|j| entry(k + i, j) * (first[j] - self.mode[j])).sum()).collect();
        spd::solve(&factor, &mut shift);
        let mode = self.mode[k..].iter().zip(&shift).map(|(m, s)| m - s).collect();
        Self { mode, factor, log_det, ..self.clone() }
    }
}

/// f and J at θ; J by central differences, one row of outputs for each parameter.
fn linearise(forward: &dyn Forward, theta: &[f64], difference: f64) -> (Vec<f64>, Vec<f64>) {
    let (n, m) = (forward.dim(), forward.outputs());
    let mut points = Vec::with_capacity((2 * n + 1) * n);
    points.extend_from_slice(theta);
    for k in 0..n {
        for sign in [1.0, -1.0] {
            points.extend_from_slice(theta);
            let last = points.len() - n + k;
            points[last] += sign * difference;
        }
    }
    let mut out = vec![0.0; (2 * n + 1) * m];
    forward.evaluate(&points, &mut out);
    let mut rest = out.split_off(m);
    for k in 0..n {
        for i in 0..m {
            rest[k * m + i] = (rest[2 * k * m + i] - rest[(2 * k + 1) * m + i]) / (2.0 * difference);
        }
    }
    rest.truncate(n * m);
    (out, rest)
}

/// H = JᵀJ + I, column-major, and ∇Φ = Jᵀ(f − y) + θ.
fn normal_equations(jacobian: &[f64], f: &[f64], y: &[f64], theta: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (n, m) = (theta.len(), f.len());
    let rows: Vec<&[f64]> = jacobian.chunks_exact(m).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut hessian = vec![0.0; n * n];
    for j in 0..n {
        for i in j..n {
            let value = dot(rows[i], rows[j]) + if i == j { 1.0 } else { 0.0 };
            hessian[i + j * n] = value;
            hessian[j + i * n] = value;
        }
    }
    let residual: Vec<f64> = f.iter().zip(y).map(|(f, y)| f - y).collect();
    let gradient = rows.iter().zip(theta).map(|(row, theta)| dot(row, &residual) + theta).collect();
    (hessian, gradient)
}

/// The first damped step that lowers Φ, and Φ there.
fn descend(
    forward: &dyn Forward,
    y: &[f64],
    theta: &[f64],
    value: f64,
    hessian: &[f64],
    gradient: &[f64],
    damping: &mut f64,
) -> Option<(Vec<f64>, f64)> {
    let n = theta.len();
    for _ in 0..MOST_REFUSALS {
        let mut system = hessian.to_vec();
        (0..n).for_each(|i| system[i + i * n] += *damping);
        spd::cholesky(&mut system, &mut SpdScratch::new(n))?;
        let mut step = gradient.to_vec();
        spd::solve(&system, &mut step);
        let next: Vec<f64> = theta.iter().zip(&step).map(|(t, s)| t - s).collect();
        let lower = forward.potentials(y, &next)[0];
        if lower < value {
            *damping = if *damping < 1e-3 { 0.0 } else { 0.1 * *damping };
            return Some((next, lower));
        }
        *damping = (10.0 * *damping).max(1.0);
    }
    None
}
