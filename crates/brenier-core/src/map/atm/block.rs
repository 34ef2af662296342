//! The quadrature of some rows at a time: S, its slope and its derivatives in the coefficients of a row's polynomial.

use super::basis::{Rule, rectifier};
use crate::kernel::NullaryFnOnce;

/// What is added to ∂S.
const EPSILON: f64 = 1e-9;

/// What a pass leaves behind of some rows; arrays by degree in the own variable.
pub(super) struct Block<const ROWS: usize> {
    pub(super) length: [f64; ROWS],
    pub(super) tail: [f64; ROWS],
    pub(super) x: [f64; ROWS],
    pub(super) a: Vec<[f64; ROWS]>,
    pub(super) basis: Vec<[f64; ROWS]>,
    pub(super) adjoint: Vec<[f64; ROWS]>,
    pub(super) ends: Vec<[f64; ROWS]>,
    pub(super) s: [f64; ROWS],
    pub(super) slope: [f64; ROWS],
    pub(super) rate: [f64; ROWS],
    /// Whether the quadrature was fine enough.
    pub(super) settled: [bool; ROWS],
}

impl<const ROWS: usize> Block<ROWS> {
    /// For degrees below `degrees`.
    pub(super) fn new(degrees: usize) -> Self {
        let zero = [0.0; ROWS];
        let by_degree = || vec![zero; degrees];
        Self {
            length: zero,
            tail: zero,
            x: zero,
            a: by_degree(),
            basis: by_degree(),
            adjoint: by_degree(),
            ends: by_degree(),
            s: zero,
            slope: zero,
            rate: zero,
            settled: [true; ROWS],
        }
    }

    /// adjoint_d ← scale · (S adjoint_d − g' h_d'/∂S): what a stem is multiplied with to give the gradient.
    #[inline(always)]
    pub(super) fn weigh(&mut self, scale: f64) {
        for (adjoint, end) in self.adjoint.iter_mut().zip(&self.ends) {
            for i in 0..ROWS {
                let barrier = self.rate[i] * end[i] / self.slope[i];
                adjoint[i] = scale * (self.s[i] * adjoint[i] - barrier);
            }
        }
    }
}

/// Constants of the own variable by degree: √d, h_d(0) and h_d' at the interval's start.
pub(super) struct Constants {
    pub(super) roots: Vec<f64>,
    pub(super) origin: Vec<f64>,
    pub(super) start_slopes: Vec<f64>,
}

/// S, ∂S and, where asked for, ∂S/∂a_d of a block by one quadrature rule on the part within the bounds; beyond them f' is
/// constant.
pub(super) struct Quadrature<'a, const ADJOINT: bool, const ROWS: usize> {
    pub(super) start: f64,
    pub(super) tolerance: f64,
    pub(super) rule: &'a Rule,
    pub(super) constants: &'a Constants,
    pub(super) block: &'a mut Block<ROWS>,
}

impl<const ADJOINT: bool, const ROWS: usize> NullaryFnOnce for Quadrature<'_, ADJOINT, ROWS> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { start, tolerance, rule, constants, block } = self;
        let degrees = block.a.len();
        let (length, tail, x) = (block.length, block.tail, block.x);
        let (mut sum, mut half) = ([0.0; ROWS], [0.0; ROWS]);
        let mut first = ([0.0; ROWS], [0.0; ROWS]);
        if ADJOINT {
            block.adjoint.iter_mut().for_each(|adjoint| adjoint.fill(0.0));
        }
        for (q, &node) in rule.nodes.iter().enumerate() {
            let (weight, half_weight) = (rule.weights[q], rule.half[q]);
            let mut t = [0.0; ROWS];
            for i in 0..ROWS {
                t[i] = length[i].mul_add(node, start);
            }
            // basis_d = h_{d−1}(t), f' = Σ a_d √d h_{d−1}(t).
            let mut f = [0.0; ROWS];
            for d in 1..degrees {
                match d {
                    1 => block.basis[1] = [1.0; ROWS],
                    2 => block.basis[2] = t,
                    _ => {
                        let (before, root) = (constants.roots[d - 2], 1.0 / constants.roots[d - 1]);
                        let (known, rest) = block.basis.split_at_mut(d);
                        let (older, newer) = (&known[d - 2], &known[d - 1]);
                        for i in 0..ROWS {
                            rest[0][i] = (t[i] * newer[i] - before * older[i]) * root;
                        }
                    }
                }
                let root = constants.roots[d];
                let (a, basis) = (&block.a[d], &block.basis[d]);
                for i in 0..ROWS {
                    f[i] = (a[i] * root).mul_add(basis[i], f[i]);
                }
            }
            for i in 0..ROWS {
                let (value, rate) = rectifier(f[i]);
                sum[i] = value.mul_add(weight, sum[i]);
                half[i] = value.mul_add(half_weight, half[i]);
                block.slope[i] = value;
                block.rate[i] = rate;
            }
            if q == 0 {
                first = (block.slope, block.rate);
            }
            if ADJOINT {
                for d in 1..degrees {
                    let factor = weight * constants.roots[d];
                    let (adjoint, basis) = (&mut block.adjoint[d], &block.basis[d]);
                    for i in 0..ROWS {
                        adjoint[i] = (factor * block.rate[i]).mul_add(basis[i], adjoint[i]);
                    }
                }
            }
        }
        // The last node is the end of the interval: slope and rate there are at hand, and so is h_d' = √d h_{d−1}.
        if ADJOINT {
            for d in 0..degrees {
                let (origin, root, start_slope) =
                    (constants.origin[d], constants.roots[d], constants.start_slopes[d]);
                let (adjoint, end, basis) = (&mut block.adjoint[d], &mut block.ends[d], &block.basis[d]);
                for i in 0..ROWS {
                    end[i] = root * basis[i];
                    let inside = length[i].mul_add(adjoint[i], origin);
                    let outside = (tail[i] * block.rate[i]).mul_add(end[i], start * first.1[i] * start_slope);
                    adjoint[i] = inside + outside;
                }
            }
        }
        let mut s = [0.0; ROWS];
        for d in 0..degrees {
            let (a, origin) = (&block.a[d], constants.origin[d]);
            for i in 0..ROWS {
                s[i] = a[i].mul_add(origin, s[i]);
            }
        }
        for i in 0..ROWS {
            let (integral, change) = (length[i] * sum[i], (length[i] * (sum[i] - half[i])).abs());
            // Where the integral is not finite no rule would ever do.
            block.settled[i] = change <= tolerance * integral.abs().max(1.0) || !change.is_finite();
            let slope = block.slope[i];
            s[i] += integral + tail[i].mul_add(slope, start * first.0[i]) + EPSILON * x[i];
            block.slope[i] = slope + EPSILON;
        }
        block.s = s;
    }
}

/// Σ aᵢ bᵢ of slices whose length is a multiple of 8, in a fixed order of summation.
#[inline(always)]
pub(super) fn inner(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h))
}
