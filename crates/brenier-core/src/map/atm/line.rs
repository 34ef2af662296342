//! A component along its own variable: t ↦ S(…, t) where the variables before it are fixed.
//!
//! With f(…, t) = Σ_d a_d h_d(t) and the polynomials continued linearly outside their bounds,
//!
//! S(t) = f(0) + ∫₀ᵗ g(f'(s)) ds,   ∂S = g(f'(t)),   ∂S/∂a_d = h_d(0) + ∫₀ᵗ g'(f'(s)) h_d'(s) ds.
//!
//! Outside the bounds f' is constant, so S is affine there and only the part inside needs quadrature.

use std::sync::LazyLock;

use super::basis::{Bounds, Rule, continued, rectifier};

/// Intervals of the rules that an integral tries in turn.
const LEVELS: [usize; 3] = [16, 32, 64];
const MOST: usize = LEVELS[LEVELS.len() - 1];
/// Change from one rule to the next that ends an integral, relative to 1 + its size.
const TOLERANCE: f64 = 1e-12;
/// Halvings of an interval where the largest rule is not enough.
const HALVINGS: u32 = 24;
/// Steps of Newton or bisection: enough to halve any interval down to neighbouring numbers.
const STEPS: u32 = 200;

static RULES: LazyLock<[Rule; LEVELS.len()]> = LazyLock::new(|| LEVELS.map(Rule::new));

/// f(…, t) = Σ_d a_d h_d(t) as a function of t.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) a: &'a [f64],
    pub(super) bounds: Bounds,
}

/// S, its slope g(f'), g'(f') and f'' at a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) s: f64,
    pub(super) slope: f64,
    pub(super) rate: f64,
    pub(super) bend: f64,
}

/// The point that solves S = z, and how it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solution {
    pub(super) x: f64,
    pub(super) iterations: u32,
    /// S(x) − z as the solver knows it.
    pub(super) residual: f64,
}

impl Line<'_> {
    /// f'(t) and f''(t) at a point within the bounds: Σ a_d √d h_{d−1}(t), Σ a_d √(d(d−1)) h_{d−2}(t).
    fn derivatives(&self, t: f64) -> (f64, f64) {
        let (mut before, mut current) = (0.0, 1.0);
        let (mut first, mut second) = (0.0, 0.0);
        for (d, &a) in self.a.iter().enumerate().skip(1) {
            // current = h_{d−1}, before = h_{d−2}.
            let degree = d as f64;
            first += a * degree.sqrt() * current;
            second += a * (degree * (degree - 1.0)).sqrt() * before;
            let next = (t * current - (degree - 1.0).sqrt() * before) / degree.sqrt();
            (before, current) = (current, next);
        }
        (first, second)
    }

    fn rectified(&self, t: f64) -> (f64, f64) {
        rectifier(self.derivatives(t).0)
    }

    /// f(…, 0).
    fn origin(&self) -> f64 {
        let mut values = vec![0.0; self.a.len()];
        continued(0.0, self.bounds, &mut values);
        self.a.iter().zip(&values).map(|(a, h)| a * h).sum()
    }

    /// S at the point within the bounds that is nearest to 0, and that point.
    fn anchor(&self) -> (f64, f64) {
        let start = self.bounds.clamp(0.0);
        let tail = if start == 0.0 { 0.0 } else { start * self.rectified(start).0 };
        (start, self.origin() + tail)
    }

    /// S and its derivatives at x.
    pub(super) fn at(&self, x: f64) -> Value {
        self.evaluate(x, None)
    }

    /// The same, with ∂S/∂a_d added into `adjoint`.
    pub(super) fn with_adjoint(&self, x: f64, adjoint: &mut [f64]) -> Value {
        self.evaluate(x, Some(adjoint))
    }

    fn evaluate(&self, x: f64, mut adjoint: Option<&mut [f64]>) -> Value {
        let (start, mut s) = self.anchor();
        let inside = self.bounds.clamp(x);
        s += self.integral(start, inside, adjoint.as_deref_mut(), HALVINGS);
        let (first, second) = self.derivatives(inside);
        let (slope, rate) = rectifier(first);
        s += slope * (x - inside);
        if let Some(adjoint) = adjoint {
            let mut values = vec![0.0; self.a.len()];
            continued(0.0, self.bounds, &mut values);
            adjoint.iter_mut().zip(&values).for_each(|(sum, h)| *sum += h);
            self.add_slopes(inside, rate * (x - inside), adjoint);
            if start != 0.0 {
                self.add_slopes(start, self.rectified(start).1 * start, adjoint);
            }
        }
        Value { s, slope, rate, bend: if inside == x { second } else { 0.0 } }
    }

    /// out_d += weight · h_d'(t).
    fn add_slopes(&self, t: f64, weight: f64, out: &mut [f64]) {
        let (mut before, mut current) = (0.0, 1.0);
        for (d, out) in out.iter_mut().enumerate().skip(1) {
            let degree = d as f64;
            *out += weight * degree.sqrt() * current;
            let next = (t * current - (degree - 1.0).sqrt() * before) / degree.sqrt();
            (before, current) = (current, next);
        }
    }

    /// ∫ g(f') from `from` to `to`, both within the bounds; ∫ g'(f') h_d' is added into `adjoint`.
    ///
    /// Clenshaw–Curtis rules, each inside the next, until the integrals stand still; else the interval is halved.
    fn integral(&self, from: f64, to: f64, mut adjoint: Option<&mut [f64]>, halvings: u32) -> f64 {
        let length = to - from;
        if length == 0.0 {
            return 0.0;
        }
        let degrees = if adjoint.is_some() { self.a.len() } else { 0 };
        let (mut values, mut rates) = ([0.0; MOST + 1], [0.0; MOST + 1]);
        let (mut sums, mut halves) = (vec![0.0; degrees], vec![0.0; degrees]);
        for (level, rule) in RULES.iter().enumerate() {
            let intervals = LEVELS[level];
            let stride = MOST / intervals;
            for (i, &node) in rule.nodes.iter().enumerate() {
                // Every other node was a node of the rule before.
                if level == 0 || i % 2 == 1 {
                    (values[i * stride], rates[i * stride]) = self.rectified(from + length * node);
                }
            }
            let (mut sum, mut half) = (0.0, 0.0);
            sums.fill(0.0);
            halves.fill(0.0);
            for (i, &node) in rule.nodes.iter().enumerate() {
                sum += rule.weights[i] * values[i * stride];
                half += rule.half[i] * values[i * stride];
                if degrees > 0 {
                    let rate = rates[i * stride];
                    self.add_slopes(from + length * node, rule.weights[i] * rate, &mut sums);
                    if rule.half[i] != 0.0 {
                        self.add_slopes(from + length * node, rule.half[i] * rate, &mut halves);
                    }
                }
            }
            let still = |sum: f64, half: f64| {
                (length * (sum - half)).abs() <= TOLERANCE * (1.0 + (length * sum).abs())
            };
            let all = still(sum, half) && sums.iter().zip(&halves).all(|(&sum, &half)| still(sum, half));
            // Where f' is not finite no rule would ever do.
            if all || !sum.is_finite() || (halvings == 0 && intervals == MOST) {
                if let Some(adjoint) = adjoint {
                    adjoint.iter_mut().zip(&sums).for_each(|(total, sum)| *total += length * sum);
                }
                return length * sum;
            }
        }
        let middle = from + 0.5 * length;
        self.integral(from, middle, adjoint.as_deref_mut(), halvings - 1)
            + self.integral(middle, to, adjoint, halvings - 1)
    }

    /// The x with S(x) = z: in closed form outside the bounds, else by Newton steps within a bracket that only shrinks.
    pub(super) fn invert(&self, z: f64, tolerance: f64) -> Solution {
        let (start, s) = self.anchor();
        let upwards = z >= s;
        let end = if upwards { self.bounds.high } else { self.bounds.low };
        let last = s + self.integral(start, end, None, HALVINGS);
        if (z >= last) == upwards {
            // At or beyond the end: S is affine there, and beyond 0 too where 0 is outside the bounds.
            let x = end + (z - last) / self.rectified(end).0;
            return Solution { x, iterations: 1, residual: 0.0 };
        }
        let (mut low, mut high) = if upwards { ((start, s), (end, last)) } else { ((end, last), (start, s)) };
        // The chord's root begins; from there each step integrates over the distance moved alone.
        let mut x = low.0 + (high.0 - low.0) * ((z - low.1) / (high.1 - low.1)).clamp(0.0, 1.0);
        let mut known = if x - low.0 < high.0 - x { low } else { high };
        let mut residual = f64::INFINITY;
        let mut iterations = 0;
        while iterations < STEPS {
            iterations += 1;
            let value = known.1 + self.integral(known.0, x, None, HALVINGS);
            known = (x, value);
            residual = value - z;
            if residual.abs() <= tolerance * (1.0 + z.abs()) {
                break;
            }
            if residual > 0.0 {
                high = known;
            } else {
                low = known;
            }
            let newton = x - residual / self.rectified(x).0;
            let inside = newton > low.0 && newton < high.0;
            let next = if inside && !(iterations > 8 && iterations % 4 == 0) {
                newton
            } else {
                0.5 * (low.0 + high.0)
            };
            if next == x || next <= low.0 || next >= high.0 {
                // Neighbouring numbers: no x is closer.
                residual = 0.0;
                break;
            }
            x = next;
        }
        Solution { x, iterations, residual }
    }
}
