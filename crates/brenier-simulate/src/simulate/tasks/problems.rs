//! Small problems with exact conditional densities, for studies of methods: how far is a fit from the truth, in nats?
//!
//! | name | definition |
//! |---|---|
//! | `linear-gaussian-5d` | x ~ N(0, I₅), y = A x + L e, A 8 × 5 normal, L = 0.4 tril(normal) + ½ I |
//! | `bent-banana` | y ~ N(0, I₂), a = y₁ + 0.5 e₁, x = (a, a² + y₂ + 0.2 e₂, sin 3a + 0.1 e₃) |
//! | `wide-target` | x ~ N(0, I₃₀), y = Aᵀx + 0.5 e, A = normal(30 × 20)/5 |
//! | `wide-given` | x ~ N(0, I₂), y(t) = x₁ sin 6t + x₂ cos 9t + 0.3 e at 300 points of [0, 1] |
//! | `four-modes` | y ~ N(0, I₂), x = (±4, ±4) + y + 0.3 e |
//! | `ring` | x = 3 (cos φ, sin φ) + 0.05 e, φ uniform; y ~ N(0, I₂) says nothing |
//!
//! The random matrices are drawn once, from a seed of ours, and are part of the definition.
//!
//! ```
//! use brenier_simulate::simulate::tasks::problems::Problem;
//!
//! let banana = Problem::named("bent-banana").expect("one of the six");
//! let table = banana.table(1000, 1)?;
//! assert!((banana.exact_nll(&table)? + 0.35).abs() < 0.2);
//! # Ok::<(), brenier_data::Error>(())
//! ```

use std::f64::consts::{LN_2, TAU};

use rand::RngExt;
use rand_distr::StandardNormal;

use super::{Stream, Streams, log_normal_density};
use crate::data::Table;
use crate::kernel::spd::{self, SpdScratch};
use crate::{Error, Result};

/// Names of the problems.
pub const PROBLEMS: [&str; 6] =
    ["linear-gaussian-5d", "bent-banana", "wide-target", "wide-given", "four-modes", "ring"];

/// Seeds of the matrices, with which the exact NLL of the two problems is near −4.64 and 26.81.
const LINEAR_SEED: u64 = 1156;
const WIDE_SEED: u64 = 1106;
/// Random streams of matrices, far from those of rows.
const MATRICES: u64 = 25;

const MODE: f64 = 4.0;
const MODE_WIDTH: f64 = 0.3;
const RADIUS: f64 = 3.0;
const RING_WIDTH: f64 = 0.05;

/// Pairs (x, y) whose conditional density p(x | y) is known.
#[derive(Clone, Debug)]
pub struct Problem {
    name: &'static str,
    target: usize,
    given: usize,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Linear(Linear),
    Banana,
    FourModes,
    Ring,
}

/// x ~ N(0, I), y = A x + L e: x | y ~ N(K y, P⁻¹) with P = I + AᵀΣ⁻¹A, Σ = LLᵀ and K = P⁻¹AᵀΣ⁻¹.
#[derive(Clone, Debug)]
struct Linear {
    /// A, column-major.
    matrix: Vec<f64>,
    /// L, column-major.
    noise: Vec<f64>,
    /// Kᵀ, column-major: a column for each entry of x.
    gain: Vec<f64>,
    /// Cholesky factor of P, and log det P.
    factor: Vec<f64>,
    log_det: f64,
}

fn normal(rng: &mut Stream) -> f64 {
    rng.sample(StandardNormal)
}

impl Linear {
    fn new(matrix: Vec<f64>, noise: Vec<f64>, target: usize, given: usize) -> Self {
        // Σ⁻¹A, column by column.
        let mut gain = matrix.clone();
        gain.chunks_exact_mut(given).for_each(|column| spd::solve(&noise, column));
        let mut factor = vec![0.0; target * target];
        for i in 0..target {
            for j in 0..target {
                let product = dot(&matrix[i * given..][..given], &gain[j * given..][..given]);
                factor[i + j * target] = product + f64::from(i == j);
            }
        }
        let log_det = spd::cholesky(&mut factor, &mut SpdScratch::new(target)).expect("I plus a square");
        // Row k of Σ⁻¹A becomes column k of K.
        for k in 0..given {
            let mut row: Vec<f64> = (0..target).map(|i| gain[k + i * given]).collect();
            spd::solve(&factor, &mut row);
            row.iter().enumerate().for_each(|(i, value)| gain[k + i * given] = *value);
        }
        Self { matrix, noise, gain, factor, log_det }
    }

    fn draw(&self, rng: &mut Stream, x: &mut [f64], y: &mut [f64]) {
        let given = y.len();
        x.iter_mut().for_each(|x| *x = normal(rng));
        y.fill(0.0);
        for (x, column) in x.iter().zip(self.matrix.chunks_exact(given)) {
            y.iter_mut().zip(column).for_each(|(y, a)| *y += a * x);
        }
        for (j, column) in self.noise.chunks_exact(given).enumerate() {
            let e = normal(rng);
            y[j..].iter_mut().zip(&column[j..]).for_each(|(y, l)| *y += l * e);
        }
    }

    /// ½ log det P − ½ (x − K y)ᵀP(x − K y) − (n/2) log 2π.
    fn log_density(&self, x: &[f64], y: &[f64]) -> f64 {
        let rest: Vec<f64> =
            x.iter().zip(self.gain.chunks_exact(y.len())).map(|(x, gain)| x - dot(gain, y)).collect();
        let mut product = vec![0.0; x.len()];
        spd::multiply(&self.factor, &rest, &mut product);
        0.5 * (self.log_det - dot(&rest, &product) - x.len() as f64 * TAU.ln())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn scaled_identity(n: usize, scale: f64) -> Vec<f64> {
    (0..n * n).map(|k| if k % (n + 1) == 0 { scale } else { 0.0 }).collect()
}

/// A is 8 × 5 normal, L = 0.4 tril(normal) + ½ I.
fn linear_gaussian(seed: u64) -> Linear {
    let mut rng = Streams::new(seed, MATRICES).get(0);
    let matrix = (0..8 * 5).map(|_| normal(&mut rng)).collect();
    let mut noise = scaled_identity(8, 0.5);
    for j in 0..8 {
        (j..8).for_each(|i| noise[i + j * 8] += 0.4 * normal(&mut rng));
    }
    Linear::new(matrix, noise, 5, 8)
}

/// y = Aᵀx + 0.5 e with A = normal(30 × 20)/5.
fn wide_target(seed: u64) -> Linear {
    let mut rng = Streams::new(seed, MATRICES).get(1);
    let matrix = (0..30 * 20).map(|_| normal(&mut rng) / 5.0).collect();
    Linear::new(matrix, scaled_identity(20, 0.5), 30, 20)
}

/// y(t) = x₁ sin 6t + x₂ cos 9t + 0.3 e.
fn wide_given() -> Linear {
    let time = |k: usize| k as f64 / 299.0;
    let matrix =
        (0..300).map(|k| (6.0 * time(k)).sin()).chain((0..300).map(|k| (9.0 * time(k)).cos())).collect();
    Linear::new(matrix, scaled_identity(300, 0.3), 2, 300)
}

/// log I₀(z) for z ≥ 0: by its power series, or by the asymptotic one from 30 on.
fn log_bessel(z: f64) -> f64 {
    let (mut term, mut sum, mut k) = (1.0, 1.0, 0.0);
    if z < 30.0 {
        while term > 1e-17 * sum {
            k += 1.0;
            term *= z * z / (4.0 * k * k);
            sum += term;
        }
        return f64::ln(sum);
    }
    while term > 1e-17 * sum && k < 30.0 {
        k += 1.0;
        term *= (2.0 * k - 1.0) * (2.0 * k - 1.0) / (8.0 * k * z);
        sum += term;
    }
    z - 0.5 * (TAU * z).ln() + f64::ln(sum)
}

impl Problem {
    /// The problem called `name`, one of [`PROBLEMS`].
    pub fn named(name: &str) -> Option<Self> {
        let name = PROBLEMS.into_iter().find(|own| *own == name)?;
        let (target, given, law) = match name {
            "linear-gaussian-5d" => (5, 8, Law::Linear(linear_gaussian(LINEAR_SEED))),
            "bent-banana" => (3, 2, Law::Banana),
            "wide-target" => (30, 20, Law::Linear(wide_target(WIDE_SEED))),
            "wide-given" => (2, 300, Law::Linear(wide_given())),
            "four-modes" => (2, 2, Law::FourModes),
            _ => (2, 2, Law::Ring),
        };
        Some(Self { name, target, given, law })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Names of the columns x: `x_1`, ….
    pub fn target_names(&self) -> Vec<String> {
        super::numbered("x", self.target)
    }

    /// Names of the columns y: `y_1`, ….
    pub fn given_names(&self) -> Vec<String> {
        super::numbered("y", self.given)
    }

    fn draw(&self, rng: &mut Stream, x: &mut [f64], y: &mut [f64]) {
        if let Law::Linear(linear) = &self.law {
            return linear.draw(rng, x, y);
        }
        y.iter_mut().for_each(|y| *y = normal(rng));
        match self.law {
            Law::Linear(_) => {}
            Law::Banana => {
                let a = y[0] + 0.5 * normal(rng);
                x[0] = a;
                x[1] = a * a + y[1] + 0.2 * normal(rng);
                x[2] = (3.0 * a).sin() + 0.1 * normal(rng);
            }
            Law::FourModes => {
                for (x, y) in x.iter_mut().zip(y) {
                    let centre = if rng.random::<bool>() { MODE } else { -MODE };
                    *x = centre + *y + MODE_WIDTH * normal(rng);
                }
            }
            Law::Ring => {
                let (sin, cos) = (TAU * rng.random::<f64>()).sin_cos();
                x[0] = RADIUS * cos + RING_WIDTH * normal(rng);
                x[1] = RADIUS * sin + RING_WIDTH * normal(rng);
            }
        }
    }

    /// A table of `rows` pairs, columns x first; row i depends on the seed and i alone.
    pub fn table(&self, rows: usize, seed: u64) -> Result<Table> {
        let streams = Streams::new(seed, 0);
        let width = self.target + self.given;
        let mut values = vec![0.0; rows * width];
        for (row, pair) in values.chunks_exact_mut(width).enumerate() {
            let (x, y) = pair.split_at_mut(self.target);
            self.draw(&mut streams.get(row as u64), x, y);
        }
        Table::new([self.target_names(), self.given_names()].concat(), values)
    }

    /// log p(x | y).
    pub fn log_density(&self, x: &[f64], y: &[f64]) -> f64 {
        match &self.law {
            Law::Linear(linear) => linear.log_density(x, y),
            Law::Banana => {
                log_normal_density(x[0], y[0], 0.5)
                    + log_normal_density(x[1], x[0] * x[0] + y[1], 0.2)
                    + log_normal_density(x[2], (3.0 * x[0]).sin(), 0.1)
            }
            Law::FourModes => x
                .iter()
                .zip(y)
                .map(|(x, y)| {
                    let [left, right] = [-MODE, MODE].map(|c| log_normal_density(x - y, c, MODE_WIDTH));
                    let (most, least) = (left.max(right), left.min(right));
                    most + (least - most).exp().ln_1p() - LN_2
                })
                .sum(),
            // (2πs²)⁻¹ exp(−(ρ² + R²)/(2s²)) I₀(ρR/s²) at distance ρ.
            Law::Ring => {
                let (rho, variance) = (x[0].hypot(x[1]), RING_WIDTH * RING_WIDTH);
                log_bessel(rho * RADIUS / variance)
                    - 0.5 * (rho * rho + RADIUS * RADIUS) / variance
                    - (TAU * variance).ln()
            }
        }
    }

    /// The mean of −log p(x | y) over the rows of a table of this problem.
    pub fn exact_nll(&self, table: &Table) -> Result<f64> {
        if table.names() != [self.target_names(), self.given_names()].concat() || table.rows() == 0 {
            return Err(Error::Columns(format!(
                "a table of the problem {} has rows of {} columns x_1, … and {} columns y_1, …",
                self.name, self.target, self.given
            )));
        }
        let sum: f64 =
            table.iter().map(|row| self.log_density(&row[..self.target], &row[self.target..])).sum();
        Ok(-sum / table.rows() as f64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Mean and standard error of the exact NLL over fresh rows.
    fn nll(name: &str, rows: usize) -> (f64, f64) {
        let problem = Problem::named(name).unwrap();
        let table = problem.table(rows, 1).unwrap();
        let mean = problem.exact_nll(&table).unwrap();
        let square: f64 = table
            .iter()
            .map(|row| (-problem.log_density(&row[..problem.target], &row[problem.target..]) - mean).powi(2))
            .sum();
        (mean, square.sqrt() / rows as f64)
    }

    fn assert_entropy(name: &str, rows: usize, entropy: f64) {
        let (mean, error) = nll(name, rows);
        assert!((mean - entropy).abs() < 5.0 * error, "{name}: {mean} ± {error}, not {entropy}");
    }

    /// The mean NLL is the conditional entropy, known in closed form: −½ log det P for the linear problems.
    #[test]
    fn the_exact_nll_is_the_entropy() {
        let unit = 0.5 * (1.0 + TAU.ln());
        assert_entropy("bent-banana", 20_000, 3.0 * unit + (0.5 * 0.2 * 0.1_f64).ln());
        assert_entropy("four-modes", 20_000, 2.0 * (unit + 0.3_f64.ln() + LN_2));
        // A thin ring: its length times a normal distribution across it.
        assert_entropy("ring", 20_000, unit + 0.05_f64.ln() + (TAU * 3.0).ln());
        for (name, rows) in [("linear-gaussian-5d", 20_000), ("wide-target", 4000), ("wide-given", 1000)] {
            let Law::Linear(linear) = Problem::named(name).unwrap().law else { panic!("{name} is linear") };
            let n = Problem::named(name).unwrap().target as f64;
            assert_entropy(name, rows, n * unit - 0.5 * linear.log_det);
        }
    }

    /// Conditional entropies near those that earlier studies had with matrices of their own.
    #[test]
    fn the_matrices_are_as_hard_as_those_of_earlier_studies() {
        let unit = 0.5 * (1.0 + TAU.ln());
        let entropy = |linear: &Linear, n: f64| n * unit - 0.5 * linear.log_det;
        assert!((entropy(&linear_gaussian(LINEAR_SEED), 5.0) + 4.643).abs() < 0.02);
        assert!((entropy(&wide_target(WIDE_SEED), 30.0) - 26.807).abs() < 0.02);
        assert!((entropy(&wide_given(), 2.0) + 4.407_360_163_604_524).abs() < 1e-9);
    }

    #[test]
    fn bessel_functions_match_tables_on_both_sides_of_the_seam() {
        for (z, value) in [(0.0, 1.0), (1.0, 1.266_065_877_752_008_4), (10.0, 2_815.716_628_466_254)] {
            assert!((log_bessel(z) - f64::ln(value)).abs() < 1e-13, "{z}");
        }
        assert!((log_bessel(30.0) - log_bessel(30.0 - 1e-12)).abs() < 1e-10);
    }
}
