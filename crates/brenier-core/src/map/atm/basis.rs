//! The functions that a component is made of: Hermite polynomials with linear tails, the rectifier, quadrature rules.

use std::f64::consts::{LN_2, PI};

use crate::kernel::softplus;

/// Where the polynomials of a column end and their linear continuation begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Bounds {
    /// The nearest point at which the polynomials hold.
    #[inline(always)]
    pub(super) fn clamp(self, x: f64) -> f64 {
        // Not f64::clamp: NaN must stay NaN, and bounds that a file holds must not panic.
        if x < self.low {
            self.low
        } else if x > self.high {
            self.high
        } else {
            x
        }
    }
}

/// h_d(t) = He_d(t)/√d! for d = 0, 1, …, as many as `out` has room for:
/// h₀ = 1, h₁ = t, √(d+1) h_{d+1} = t h_d − √d h_{d−1}.
pub(super) fn hermite(t: f64, out: &mut [f64]) {
    for d in 0..out.len() {
        out[d] = match d {
            0 => 1.0,
            1 => t,
            _ => (t * out[d - 1] - ((d - 1) as f64).sqrt() * out[d - 2]) / (d as f64).sqrt(),
        };
    }
}

/// h_d at x with the linear continuation, h_d(c) + h_d'(c)(x − c) with c the nearest point within the bounds.
///
/// h_d' = √d h_{d−1}.
pub(super) fn continued(x: f64, bounds: Bounds, out: &mut [f64]) {
    let inside = bounds.clamp(x);
    hermite(inside, out);
    if inside != x {
        for d in (1..out.len()).rev() {
            out[d] += (d as f64).sqrt() * out[d - 1] * (x - inside);
        }
    }
}

/// Derivatives of the continued h_d at x: h_d'(c).
pub(super) fn continued_slopes(x: f64, bounds: Bounds, out: &mut [f64]) {
    hermite(bounds.clamp(x), out);
    for d in (1..out.len()).rev() {
        out[d] = (d as f64).sqrt() * out[d - 1];
    }
    if let Some(first) = out.first_mut() {
        *first = 0.0;
    }
}

/// g(s) = log(1 + 2^s)/log 2 and g'(s) = 2^s/(1 + 2^s); g'' = log 2 · g'(1 − g').
#[inline(always)]
pub(super) fn rectifier(s: f64) -> (f64, f64) {
    let (value, slope) = softplus(s * LN_2);
    (value * (1.0 / LN_2), slope)
}

/// A Clenshaw–Curtis rule on [0, 1] with an even number of intervals, and the rule of half as many inside it.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// (1 − cos(iπ/Q))/2, i = 0..=Q.
    pub(super) nodes: Vec<f64>,
    pub(super) weights: Vec<f64>,
    /// Weights of the rule of Q/2 intervals, at every other node; 0 elsewhere.
    pub(super) half: Vec<f64>,
}

impl Rule {
    pub(super) fn new(intervals: usize) -> Self {
        let nodes = (0..=intervals).map(|i| 0.5 * (1.0 - (i as f64 * PI / intervals as f64).cos())).collect();
        let mut half = vec![0.0; intervals + 1];
        for (i, weight) in clenshaw_curtis(intervals / 2).into_iter().enumerate() {
            half[2 * i] = weight;
        }
        Self { nodes, weights: clenshaw_curtis(intervals), half }
    }
}

/// Weights w_i of the rule of Q intervals on [0, 1], Q even:
/// w_i = (c_i/Q) (1 − Σ_{j=1}^{Q/2} b_j cos(2πij/Q)/(4j² − 1)), b_{Q/2} = 1 and else 2, c_0 = c_Q = ½ and else 1.
fn clenshaw_curtis(intervals: usize) -> Vec<f64> {
    let q = intervals as f64;
    (0..=intervals)
        .map(|i| {
            let sum: f64 = (1..=intervals / 2)
                .map(|j| {
                    let b = if 2 * j == intervals { 1.0 } else { 2.0 };
                    // The angle modulo a turn keeps the cosine exact for large rules.
                    let turn = ((i * j) % intervals) as f64 / q;
                    b * (2.0 * PI * turn).cos() / ((4 * j * j - 1) as f64)
                })
                .sum();
            let c = if i == 0 || i == intervals { 0.5 } else { 1.0 };
            c / q * (1.0 - sum)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_integrate_polynomials_exactly() {
        for intervals in [4, 8, 16, 64] {
            let rule = Rule::new(intervals);
            for (weights, degree) in [(&rule.weights, intervals), (&rule.half, intervals / 2)] {
                for power in 0..=degree as i32 {
                    let sum: f64 = rule.nodes.iter().zip(weights).map(|(t, w)| w * t.powi(power)).sum();
                    let exact = 1.0 / f64::from(power + 1);
                    assert!((sum - exact).abs() < 1e-14, "{intervals}, {power}: {sum} {exact}");
                }
            }
        }
    }

    #[test]
    fn polynomials_are_orthonormal_and_continue_linearly() {
        // E[h_i h_j] = δ_ij under the standard Gaussian, by a fine trapezoidal rule.
        let (mut values, step) = ([0.0; 7], 1e-3);
        let mut products = [[0.0; 7]; 7];
        for i in -12_000..=12_000 {
            let t = f64::from(i) * step;
            hermite(t, &mut values);
            let weight = step * (-0.5 * t * t).exp() / (2.0 * PI).sqrt();
            for i in 0..7 {
                for j in 0..7 {
                    products[i][j] += weight * values[i] * values[j];
                }
            }
        }
        for (i, row) in products.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                assert!((value - f64::from(u8::from(i == j))).abs() < 1e-10, "{i} {j}: {value}");
            }
        }
        let bounds = Bounds { low: -1.2, high: 2.1 };
        for x in [-5.0, -1.2, 0.3, 2.1, 7.0] {
            let (mut at, mut up, mut down, mut slopes) = ([0.0; 6], [0.0; 6], [0.0; 6], [0.0; 6]);
            continued(x, bounds, &mut at);
            continued(x + 1e-6, bounds, &mut up);
            continued(x - 1e-6, bounds, &mut down);
            continued_slopes(x, bounds, &mut slopes);
            for d in 0..6 {
                let slope = (up[d] - down[d]) / 2e-6;
                assert!((slope - slopes[d]).abs() < 1e-4, "{x}, {d}: {slope} {}", slopes[d]);
                let outside = !(bounds.low..=bounds.high).contains(&x);
                assert!(!outside || (up[d] + down[d] - 2.0 * at[d]).abs() < 1e-12 * (1.0 + at[d].abs()));
            }
            // The first polynomial is x itself everywhere.
            assert!((at[1] - x).abs() < 1e-15);
        }
    }

    #[test]
    fn the_rectifier_is_one_at_zero() {
        assert!((rectifier(0.0).0 - 1.0).abs() < 1e-15);
        for s in [-900.0_f64, -40.0, -3.0, 0.4, 2.0, 60.0] {
            let (value, slope) = rectifier(s);
            // The rounding of s log 2 alone is worth |s| units in the last place of 2^s.
            let tolerance = 1e-15 * (4.0 + s.abs());
            let exact = s.exp2().ln_1p() / LN_2;
            assert!((value - exact).abs() <= tolerance * exact, "{s}: {value:e} {exact:e}");
            let exact = s.exp2() / (1.0 + s.exp2());
            assert!((slope - exact).abs() <= tolerance * exact, "{s}: {slope:e} {exact:e}");
        }
    }
}
