//! A small conditional problem whose exact density is known, to try the library without any data.
//!
//! y is uniform on [−1.5, 1.5]. Given y, a fair coin s = ±1 picks an arm of x₁, and x₂ bends with x₁:
//!
//! x₁ = a s + σ ε₁,   x₂ = c (x₁² − 1) + 0.3 s + 0.4 ε₂,   a = 0.8 + 0.5 y,   σ = 0.7 − 0.2 y,   c = 0.4 y,
//!
//! so that one wide arch at low y becomes two arms of a bowl at high y. With φ_τ the density of N(0, τ²),
//!
//! π(x | y) = ½ Σ_s φ_σ(x₁ − a s) φ_0.4(x₂ − c (x₁² − 1) − 0.3 s).

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use crate::data::Table;

/// Names of the table's columns: the given one, then the two target columns.
pub const NAMES: [&str; 3] = ["y", "x1", "x2"];

/// y lies between minus this and this.
pub const LARGEST_GIVEN: f64 = 1.5;

/// Spread of x₂ about its arch.
const THICKNESS: f64 = 0.4;
/// Half the distance of the two arms in x₂.
const LIFT: f64 = 0.3;

/// The numbers that y decides.
struct Shape {
    arm: f64,
    spread: f64,
    bend: f64,
}

impl Shape {
    fn at(y: f64) -> Self {
        Self { arm: 0.8 + 0.5 * y, spread: 0.7 - 0.2 * y, bend: 0.4 * y }
    }

    /// The middle of x₂ where x₁ is given, on the arm `side` = ±1.
    fn arch(&self, x1: f64, side: f64) -> f64 {
        self.bend * (x1 * x1 - 1.0) + LIFT * side
    }
}

/// `rows` independent draws of (y, x₁, x₂), the same for the same seed.
pub fn simulate(rows: usize, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut values = Vec::with_capacity(rows * NAMES.len());
    for _ in 0..rows {
        let y = LARGEST_GIVEN * (2.0 * rng.random::<f64>() - 1.0);
        let shape = Shape::at(y);
        let side = if rng.random::<f64>() < 0.5 { -1.0 } else { 1.0 };
        let mut normal = || rng.sample::<f64, _>(StandardNormal);
        let x1 = shape.arm * side + shape.spread * normal();
        let x2 = shape.arch(x1, side) + THICKNESS * normal();
        values.extend([y, x1, x2]);
    }
    Table::new(NAMES.map(str::to_owned).into(), values).expect("three values a row for three names")
}

/// The exact log π(x | y).
pub fn log_density(x: [f64; 2], y: f64) -> f64 {
    let shape = Shape::at(y);
    let log_normal = |distance: f64, spread: f64| {
        -0.5 * (distance / spread).powi(2) - spread.ln() - 0.5 * std::f64::consts::TAU.ln()
    };
    let arm = |side: f64| {
        log_normal(x[0] - shape.arm * side, shape.spread)
            + log_normal(x[1] - shape.arch(x[0], side), THICKNESS)
    };
    let (low, high) = (arm(-1.0), arm(1.0));
    let most = low.max(high);
    most + (0.5 * ((low - most).exp() + (high - most).exp())).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ∫ exp(log π) = 1 by the rectangle rule, exact to many digits for smooth functions that vanish at the ends.
    #[test]
    fn the_density_is_normalised() {
        for y in [-1.5, -0.4, 0.0, 1.5] {
            let step = 0.02;
            let sum: f64 = (-300..300)
                .flat_map(|i| (-800..800).map(move |j| [f64::from(i) * step, f64::from(j) * step]))
                .map(|x| log_density(x, y).exp())
                .sum();
            assert!((sum * step * step - 1.0).abs() < 1e-6, "{y}: {}", sum * step * step);
        }
    }

    /// Mean and variance of x₁ follow from the formula: 0 and E(a² + σ²); draws and density agree on the entropy.
    #[test]
    fn the_draws_follow_the_density() {
        let table = simulate(20_000, 3);
        assert_eq!(table, simulate(20_000, 3));
        let rows = table.rows() as f64;
        let mean = |of: &dyn Fn(&[f64]) -> f64| table.iter().map(of).sum::<f64>() / rows;
        // E y² = 1.5²/3, so E(a² + σ²) = 0.64 + 0.49 + (0.25 + 0.04) 0.75.
        assert!(mean(&|row| row[1]).abs() < 0.03);
        assert!((mean(&|row| row[1] * row[1]) - 1.3475).abs() < 0.04);
        assert!(mean(&|row| row[2] - 0.4 * row[0] * (row[1] * row[1] - 1.0)).abs() < 0.02);
        // Entropy by draws at y = 0 against the same by quadrature.
        let step = 0.02;
        let entropy: f64 = (-300..300)
            .flat_map(|i| (-300..300).map(move |j| [f64::from(i) * step, f64::from(j) * step]))
            .map(|x| -log_density(x, 0.0) * log_density(x, 0.0).exp() * step * step)
            .sum();
        let near: Vec<f64> = table
            .iter()
            .filter(|row| row[0].abs() < 0.1)
            .map(|row| -log_density([row[1], row[2]], row[0]))
            .collect();
        let drawn = near.iter().sum::<f64>() / near.len() as f64;
        assert!((drawn - entropy).abs() < 0.1, "{drawn} {entropy}");
    }
}
