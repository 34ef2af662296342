//! L-BFGS with a strong Wolfe line search, for smooth functions of a few to a few thousand variables.

use std::collections::VecDeque;

/// Pairs kept for the inverse Hessian approximation.
const MEMORY: usize = 10;
/// Sufficient decrease: φ(t) ≤ φ(0) + C1·t·φ'(0).
const C1: f64 = 1e-4;
/// Curvature: |φ'(t)| ≤ C2·|φ'(0)|.
const C2: f64 = 0.9;
/// Evaluations a line search may take.
const LINE_EVALUATIONS: usize = 25;

/// Why and where the iteration stopped.
#[derive(Clone, Debug)]
pub(crate) struct Minimum {
    pub x: Vec<f64>,
    pub value: f64,
    pub gradient: Vec<f64>,
    pub iterations: u32,
}

/// Minimises `f`, which returns its value and fills the gradient; a non-finite value marks a forbidden point.
pub(crate) fn minimise<E>(
    start: &[f64],
    tolerance: f64,
    max_iterations: u32,
    mut f: impl FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
) -> Result<Minimum, E> {
    let n = start.len();
    let mut x = start.to_vec();
    let mut gradient = vec![0.0; n];
    let mut value = f(&x, &mut gradient)?;
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)> = VecDeque::with_capacity(MEMORY);
    let mut iterations = 0;
    let norm = |g: &[f64]| g.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
    while norm(&gradient) > tolerance && iterations < max_iterations && value.is_finite() {
        iterations += 1;
        let mut direction = two_loops(&gradient, &pairs);
        let mut slope = inner(&direction, &gradient);
        if slope >= 0.0 || !slope.is_finite() {
            pairs.clear();
            direction = gradient.iter().map(|g| -g).collect();
            slope = inner(&direction, &gradient);
        }
        let first = if pairs.is_empty() { (1.0 / norm(&gradient)).min(1.0) } else { 1.0 };
        let Some(next) = line_search(&x, value, slope, &direction, first, &mut f)? else {
            if pairs.is_empty() {
                break;
            }
            pairs.clear();
            continue;
        };
        let step: Vec<f64> = next.x.iter().zip(&x).map(|(new, old)| new - old).collect();
        let change: Vec<f64> = next.gradient.iter().zip(&gradient).map(|(new, old)| new - old).collect();
        let curvature = inner(&step, &change);
        if curvature > f64::EPSILON * inner(&change, &change) {
            if pairs.len() == MEMORY {
                pairs.pop_front();
            }
            pairs.push_back((step, change, 1.0 / curvature));
        }
        (x, value, gradient) = (next.x, next.value, next.gradient);
    }
    Ok(Minimum { x, value, gradient, iterations })
}

struct Point {
    t: f64,
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    slope: f64,
}

/// A step that satisfies the strong Wolfe conditions, or the best decrease found; `None` without any decrease.
fn line_search<E>(
    x: &[f64],
    value: f64,
    slope: f64,
    direction: &[f64],
    first: f64,
    f: &mut impl FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
) -> Result<Option<Point>, E> {
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let (mut low_value, mut low_slope) = (value, slope);
    let mut t = first;
    let mut best: Option<Point> = None;
    // Near the minimum values differ by rounding alone; there the slopes decide.
    let slack = 1e-11 * (1.0 + value.abs());
    for _ in 0..LINE_EVALUATIONS {
        let point: Vec<f64> = x.iter().zip(direction).map(|(x, d)| x + t * d).collect();
        let mut gradient = vec![0.0; x.len()];
        let here = f(&point, &mut gradient)?;
        let here_slope = inner(&gradient, direction);
        let decreased = here <= value + C1 * t * slope + slack;
        if !(here.is_finite() && here_slope.is_finite() && decreased) || here > low_value + slack {
            // Too far: the bracket's upper end comes down to t, by a quadratic model where there is one.
            high = t;
            let model =
                low_slope * (t - low) * (t - low) / (2.0 * (here - low_value - low_slope * (t - low)));
            let guess = low - model;
            let (left, right) = (low + 0.1 * (high - low), low + 0.5 * (high - low));
            t = if guess.is_finite() { guess.clamp(left, right) } else { right };
            continue;
        }
        let wolfe = here_slope.abs() <= -C2 * slope;
        let found = Point { t, x: point, value: here, gradient, slope: here_slope };
        if wolfe {
            return Ok(Some(found));
        }
        if best.as_ref().is_none_or(|best| found.value < best.value) {
            best = Some(found);
        }
        if here_slope > 0.0 {
            high = t;
            t = 0.5 * (low + high);
        } else {
            (low, low_value, low_slope) = (t, here, here_slope);
            t = if high.is_finite() { 0.5 * (low + high) } else { 2.0 * t };
        }
    }
    Ok(best.filter(|best| best.value < value && best.t > 0.0 && best.slope.is_finite()))
}

/// −H⁻¹ g by the two-loop recursion.
fn two_loops(gradient: &[f64], pairs: &VecDeque<(Vec<f64>, Vec<f64>, f64)>) -> Vec<f64> {
    let mut q: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut weights = Vec::with_capacity(pairs.len());
    for (step, change, inverse) in pairs.iter().rev() {
        let weight = inverse * inner(step, &q);
        weights.push(weight);
        for (q, change) in q.iter_mut().zip(change) {
            *q -= weight * change;
        }
    }
    if let Some((_, change, inverse)) = pairs.back() {
        let scale = 1.0 / (inverse * inner(change, change));
        for q in &mut q {
            *q *= scale;
        }
    }
    for ((step, change, inverse), weight) in pairs.iter().zip(weights.into_iter().rev()) {
        let correction = weight - inverse * inner(change, &q);
        for (q, step) in q.iter_mut().zip(step) {
            *q += correction * step;
        }
    }
    q
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn finds_the_minimum_of_rosenbrock_and_counts_its_iterations() {
        let rosenbrock = |x: &[f64], g: &mut [f64]| -> Result<f64, Infallible> {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            g[0] = -2.0 * a - 400.0 * x[0] * b;
            g[1] = 200.0 * b;
            Ok(a * a + 100.0 * b * b)
        };
        let Ok(minimum) = minimise(&[-1.2, 1.0], 1e-9, 200, rosenbrock);
        assert!(minimum.iterations < 60, "{minimum:?}");
        assert!(minimum.x.iter().all(|x| (x - 1.0).abs() < 1e-8));
    }

    #[test]
    fn stays_away_from_forbidden_points() {
        // −log x + x is infinite at x ≤ 0; its minimum is x = 1.
        let barrier = |x: &[f64], g: &mut [f64]| -> Result<f64, Infallible> {
            g[0] = 1.0 - 1.0 / x[0];
            Ok(if x[0] > 0.0 { x[0] - x[0].ln() } else { f64::INFINITY })
        };
        let Ok(minimum) = minimise(&[1e-3], 1e-10, 100, barrier);
        assert!((minimum.x[0] - 1.0).abs() < 1e-9, "{minimum:?}");
    }
}
