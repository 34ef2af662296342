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

/// Where the iteration stopped.
#[derive(Clone, Debug)]
pub struct Minimum {
    /// The best point.
    pub x: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// The gradient there.
    pub gradient: Vec<f64>,
}

/// Minimises `f`, which returns its value and fills the gradient; a non-finite value marks a forbidden point.
pub fn minimise<E>(
    start: &[f64],
    tolerance: f64,
    max_iterations: u32,
    mut f: impl FnMut(&[f64], &mut [f64]) -> Result<f64, E>,
) -> Result<Minimum, E> {
    let mut search = Lbfgs::new(start, tolerance);
    let mut gradient = vec![0.0; start.len()];
    // An iteration has begun with the evaluation of its first trial.
    while !search.finished() && search.iterations <= max_iterations {
        let value = f(search.point(), &mut gradient)?;
        search.tell(value, &gradient);
    }
    Ok(Minimum { x: search.x, value: search.value, gradient: search.gradient })
}

/// A minimisation that receives the function's values where it asks for them, so that many can be evaluated together.
#[derive(Clone, Debug)]
pub struct Lbfgs {
    tolerance: f64,
    /// The best point so far, with value and gradient.
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    pairs: VecDeque<(Vec<f64>, Vec<f64>, f64)>,
    line: Line,
    /// Where the function is to be evaluated next; empty when there is nothing more to ask.
    trial: Vec<f64>,
    iterations: u32,
    evaluations: u32,
}

/// A line search in progress along `direction`.
#[derive(Clone, Debug, Default)]
struct Line {
    direction: Vec<f64>,
    slope: f64,
    t: f64,
    low: f64,
    high: f64,
    low_value: f64,
    low_slope: f64,
    best: Option<Point>,
    evaluations: usize,
}

#[derive(Clone, Debug)]
struct Point {
    t: f64,
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    slope: f64,
}

impl Lbfgs {
    /// A minimisation from `start` to a gradient of at most `tolerance` in every entry.
    pub fn new(start: &[f64], tolerance: f64) -> Self {
        Self {
            tolerance,
            x: start.to_vec(),
            value: f64::INFINITY,
            gradient: vec![f64::INFINITY; start.len()],
            pairs: VecDeque::with_capacity(MEMORY),
            line: Line::default(),
            trial: start.to_vec(),
            iterations: 0,
            evaluations: 0,
        }
    }

    /// Where to evaluate the function.
    pub fn point(&self) -> &[f64] {
        &self.trial
    }

    /// Whether the gradient is small enough or no step leads down any more.
    pub fn finished(&self) -> bool {
        self.trial.is_empty()
    }

    /// The best point so far.
    pub fn best(&self) -> &[f64] {
        &self.x
    }

    /// The gradient there.
    pub fn gradient(&self) -> &[f64] {
        &self.gradient
    }

    /// How often the function was evaluated.
    pub fn evaluations(&self) -> u32 {
        self.evaluations
    }

    /// Value and gradient at [`point`](Self::point); the next point is set.
    pub fn tell(&mut self, value: f64, gradient: &[f64]) {
        self.evaluations += 1;
        if self.evaluations == 1 {
            self.value = value;
            self.gradient.copy_from_slice(gradient);
            self.next_line();
            return;
        }
        let line = &mut self.line;
        line.evaluations += 1;
        let t = line.t;
        let slope = inner(gradient, &line.direction);
        // Near the minimum values differ by rounding alone; there the slopes decide.
        let slack = 1e-11 * (1.0 + self.value.abs());
        let decreased = value <= self.value + C1 * t * line.slope + slack;
        if !(value.is_finite() && slope.is_finite() && decreased) || value > line.low_value + slack {
            // Too far: the bracket's upper end comes down to t, by a quadratic model where there is one.
            line.high = t;
            let width = t - line.low;
            let model =
                line.low_slope * width * width / (2.0 * (value - line.low_value - line.low_slope * width));
            let guess = line.low - model;
            let (left, right) = (line.low + 0.1 * width, line.low + 0.5 * width);
            line.t = if guess.is_finite() { guess.clamp(left, right) } else { right };
        } else {
            let wolfe = slope.abs() <= -C2 * line.slope;
            let found = Point { t, x: self.trial.clone(), value, gradient: gradient.to_vec(), slope };
            if wolfe {
                self.accept(found);
                return;
            }
            if line.best.as_ref().is_none_or(|best| value < best.value) {
                line.best = Some(found);
            }
            if slope > 0.0 {
                line.high = t;
                line.t = 0.5 * (line.low + line.high);
            } else {
                (line.low, line.low_value, line.low_slope) = (t, value, slope);
                line.t = if line.high.is_finite() { 0.5 * (line.low + line.high) } else { 2.0 * t };
            }
        }
        if line.evaluations < LINE_EVALUATIONS {
            self.trial = self.x.iter().zip(&line.direction).map(|(x, d)| x + line.t * d).collect();
            return;
        }
        let best = line.best.take();
        match best.filter(|best| best.value < self.value && best.t > 0.0 && best.slope.is_finite()) {
            Some(best) => self.accept(best),
            None if self.pairs.is_empty() => self.trial.clear(),
            None => {
                self.pairs.clear();
                self.next_line();
            }
        }
    }

    /// Moves to a point and begins the next line search.
    fn accept(&mut self, next: Point) {
        let step: Vec<f64> = next.x.iter().zip(&self.x).map(|(new, old)| new - old).collect();
        let change: Vec<f64> = next.gradient.iter().zip(&self.gradient).map(|(new, old)| new - old).collect();
        let curvature = inner(&step, &change);
        if curvature > f64::EPSILON * inner(&change, &change) {
            if self.pairs.len() == MEMORY {
                self.pairs.pop_front();
            }
            self.pairs.push_back((step, change, 1.0 / curvature));
        }
        (self.x, self.value, self.gradient) = (next.x, next.value, next.gradient);
        self.next_line();
    }

    fn next_line(&mut self) {
        let steepest = self.gradient.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
        if !(steepest > self.tolerance && self.value.is_finite()) {
            self.trial.clear();
            return;
        }
        self.iterations += 1;
        let mut direction = two_loops(&self.gradient, &self.pairs);
        let mut slope = inner(&direction, &self.gradient);
        if slope >= 0.0 || !slope.is_finite() {
            self.pairs.clear();
            direction = self.gradient.iter().map(|g| -g).collect();
            slope = inner(&direction, &self.gradient);
        }
        let t = if self.pairs.is_empty() { (1.0 / steepest).min(1.0) } else { 1.0 };
        self.trial = self.x.iter().zip(&direction).map(|(x, d)| x + t * d).collect();
        self.line = Line {
            direction,
            slope,
            t,
            low: 0.0,
            high: f64::INFINITY,
            low_value: self.value,
            low_slope: slope,
            best: None,
            evaluations: 0,
        };
    }
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
    fn finds_the_minimum_of_rosenbrock_in_few_evaluations() {
        let mut evaluations = 0;
        let rosenbrock = |x: &[f64], g: &mut [f64]| -> Result<f64, Infallible> {
            evaluations += 1;
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            g[0] = -2.0 * a - 400.0 * x[0] * b;
            g[1] = 200.0 * b;
            Ok(a * a + 100.0 * b * b)
        };
        let Ok(minimum) = minimise(&[-1.2, 1.0], 1e-9, 200, rosenbrock);
        assert!(evaluations < 80, "{evaluations}");
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
