//! Greedy growth of a component: which term comes next, and the best coefficients of those that are there.
//!
//! The terms Λ are downward closed: with α come all multi-indices below it. The next term is taken from the reduced margin of
//! Λ (all α outside Λ whose α − e_j are inside) by the largest |∂loss/∂c_α| at c_α = 0. Then all coefficients are
//! optimised from the last ones.

use std::collections::{BTreeMap, BTreeSet};

use super::block::inner;
use super::objective::{Objective, Survey};
use super::terms::{Expansion, MultiIndex};
use crate::kernel::dense::Cholesky;
use crate::kernel::lbfgs::minimise;
use crate::kernel::{Mat, columns, vectorised};

/// The condition number of the basis at which growth ends.
const MOST_CONDITION: f64 = 1e9;
/// A gradient at which no candidate promises anything.
const LEAST_GRADIENT: f64 = 1e-9;
/// Gradient, in coordinates that make the curvature the identity, at which coefficients are good enough to grow from.
const GROWTH_TOLERANCE: f64 = 1e-4;
/// The same for the coefficients of the finished component.
const FINAL_TOLERANCE: f64 = 1e-7;
/// Iterations of the optimiser before the curvature is computed anew.
const ITERATIONS: u32 = 30;
/// How often the curvature may be computed anew for one set of terms.
const ROUNDS: usize = 4;
/// A loss that stands for one that is not finite.
const WORST: f64 = 1e300;

/// A component that grows.
pub(super) struct Growth<'a> {
    objective: Objective<'a>,
    /// Rows that are only scored.
    held_out: Option<Objective<'a>>,
    expansion: Expansion,
    margin: Margin,
    basis: Orthonormal,
    survey: Survey,
    /// Loss of the rows, and of those held out, for one term, two terms, …
    pub(super) losses: Vec<f64>,
    pub(super) held_out_losses: Vec<f64>,
}

impl<'a> Growth<'a> {
    /// With the constant term alone.
    pub(super) fn new(
        mut objective: Objective<'a>,
        mut held_out: Option<Objective<'a>>,
        columns: u32,
    ) -> Self {
        let constant = MultiIndex::new();
        objective.push(&constant);
        if let Some(held_out) = &mut held_out {
            held_out.push(&constant);
        }
        let mut basis = Orthonormal::default();
        basis.push(objective.last_basis());
        let survey = objective.survey(&[0.0]);
        let mut growth = Self {
            objective,
            held_out,
            expansion: Expansion { terms: vec![constant], coefficients: vec![0.0] },
            margin: Margin::new(columns),
            basis,
            survey,
            losses: Vec::new(),
            held_out_losses: Vec::new(),
        };
        growth.optimise(GROWTH_TOLERANCE);
        growth.record();
        growth
    }

    /// The number of terms.
    pub(super) fn terms(&self) -> usize {
        self.expansion.terms.len()
    }

    /// Adds the most promising term and optimises all coefficients; `false` where growth has come to its end.
    pub(super) fn step(&mut self) -> bool {
        if self.terms() >= self.objective.count() {
            return false;
        }
        let Some(term) = self.margin.best(&mut self.objective, &self.survey) else { return false };
        self.objective.push(&term);
        if self.basis.push(self.objective.last_basis()) > MOST_CONDITION {
            self.objective.pop();
            return false;
        }
        if let Some(held_out) = &mut self.held_out {
            held_out.push(&term);
        }
        self.margin.add(&term);
        self.expansion.terms.push(term);
        self.expansion.coefficients.push(0.0);
        self.optimise(GROWTH_TOLERANCE);
        self.record();
        true
    }

    /// The component, its coefficients optimised to the end.
    pub(super) fn finish(mut self) -> (Expansion, Vec<f64>, Vec<f64>) {
        self.optimise(FINAL_TOLERANCE);
        self.losses.pop();
        self.held_out_losses.pop();
        self.record();
        (self.expansion, self.losses, self.held_out_losses)
    }

    fn record(&mut self) {
        let finite = |loss: f64| if loss.is_finite() { loss } else { WORST };
        self.losses.push(finite(self.survey.value));
        if let Some(held_out) = &mut self.held_out {
            self.held_out_losses.push(finite(held_out.value(&self.expansion.coefficients)));
        }
    }

    /// Minimises the loss in all coefficients, from where they are, by quasi-Newton steps in coordinates v with
    /// c = c₀ + L⁻ᵀv, where L Lᵀ is the curvature at c₀. Leaves a survey of the minimum.
    fn optimise(&mut self, tolerance: f64) {
        for _ in 0..ROUNDS {
            let start = self.expansion.coefficients.clone();
            let gradient = self.objective.gradient(&self.survey);
            let factor = Whitening::new(self.objective.curvature(&self.survey), start.len());
            let mut first = Some((self.survey.value, factor.pull(gradient)));
            let mut gradient = vec![0.0; start.len()];
            let moved = |v: &[f64]| -> Vec<f64> {
                factor.push(v.to_vec()).iter().zip(&start).map(|(step, start)| start + step).collect()
            };
            let objective = &mut self.objective;
            let found = minimise(&vec![0.0; start.len()], tolerance, ITERATIONS, |v, out| {
                let value = match first.take() {
                    Some((value, gradient)) => {
                        out.copy_from_slice(&gradient);
                        value
                    }
                    None => {
                        let value = objective.value_and_gradient(&moved(v), &mut gradient);
                        out.copy_from_slice(&factor.pull(gradient.clone()));
                        value
                    }
                };
                Ok::<f64, std::convert::Infallible>(value)
            });
            let Ok(found) = found;
            self.expansion.coefficients = moved(&found.x);
            self.survey = self.objective.survey(&self.expansion.coefficients);
            // A finer quadrature than before is a slightly different loss.
            let same = (self.survey.value - found.value).abs() <= 1e-12 * (1.0 + found.value.abs());
            let steepest = found.gradient.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
            if steepest <= tolerance && (same || tolerance == GROWTH_TOLERANCE) {
                return;
            }
        }
    }
}

/// Coordinates in which the curvature is the identity.
struct Whitening {
    factor: Cholesky,
    scale: Vec<f64>,
}

impl Whitening {
    /// From a positive semidefinite matrix: scaled to a unit diagonal, and lifted as little as lets it be factorised.
    fn new(matrix: Vec<f64>, size: usize) -> Self {
        let scale: Vec<f64> = (0..size)
            .map(|i| match matrix[i + i * size] {
                diagonal if diagonal > 0.0 && diagonal.is_finite() => 1.0 / diagonal.sqrt(),
                _ => 1.0,
            })
            .collect();
        let matrix = columns(&matrix, size, size, size);
        let mut lift = 1e-13;
        loop {
            let scaled = Mat::from_fn(size, size, |i, j| match i == j {
                true => 1.0 + lift,
                false if lift < 1.0 => matrix[(i, j)] * scale[i] * scale[j],
                false => 0.0,
            });
            if let Some(factor) = Cholesky::new(scaled.as_ref()) {
                return Self { factor, scale };
            }
            lift *= 100.0;
        }
    }

    /// L⁻¹ g.
    fn pull(&self, mut gradient: Vec<f64>) -> Vec<f64> {
        gradient.iter_mut().zip(&self.scale).for_each(|(g, scale)| *g *= scale);
        self.factor.solve_lower(&mut gradient);
        gradient
    }

    /// L⁻ᵀ v.
    fn push(&self, mut v: Vec<f64>) -> Vec<f64> {
        self.factor.solve_upper(&mut v);
        v.iter_mut().zip(&self.scale).for_each(|(v, scale)| *v *= scale);
        v
    }
}

/// The reduced margin of the terms.
struct Margin {
    /// The component's own column, after all that it may use.
    own: u32,
    terms: BTreeSet<MultiIndex>,
    /// Columns of which x_j is a term.
    active: BTreeSet<u32>,
    /// Candidates other than x_j of columns that are not active.
    candidates: BTreeSet<MultiIndex>,
}

impl Margin {
    /// Of the constant alone.
    fn new(own: u32) -> Self {
        Self {
            own,
            terms: BTreeSet::from([MultiIndex::new()]),
            active: BTreeSet::new(),
            candidates: BTreeSet::from([vec![(own, 1)]]),
        }
    }

    fn add(&mut self, term: &MultiIndex) {
        if let [(column, 1)] = term[..] {
            self.active.insert(column);
        }
        self.candidates.remove(term);
        self.terms.insert(term.clone());
        for &column in &self.active {
            let raised = shifted(term, column, 1);
            let admissible =
                raised.iter().all(|&(column, _)| self.terms.contains(&shifted(&raised, column, -1)));
            if admissible && !self.terms.contains(&raised) {
                self.candidates.insert(raised);
            }
        }
    }

    /// The candidate with the largest gradient; the first of equals.
    fn best(&self, objective: &mut Objective<'_>, survey: &Survey) -> Option<MultiIndex> {
        let mut best = (LEAST_GRADIENT, None);
        let mut consider = |gradient: f64, term: &dyn Fn() -> MultiIndex| {
            if gradient.abs() > best.0 {
                best = (gradient.abs(), Some(term()));
            }
        };
        for (column, gradient) in objective.linear_gradients(survey).into_iter().enumerate() {
            let column = column as u32;
            if !self.active.contains(&column) {
                consider(gradient, &|| vec![(column, 1)]);
            }
        }
        let mut stems: BTreeMap<MultiIndex, Vec<usize>> = BTreeMap::new();
        for candidate in &self.candidates {
            let (stem, degree) = objective.split(candidate);
            stems.entry(stem).or_default().push(degree);
        }
        for (stem, degrees) in stems {
            let gradients = objective.stem_gradients(survey, &stem, &degrees);
            for (gradient, &degree) in gradients.into_iter().zip(&degrees) {
                consider(gradient, &|| {
                    let own = (degree > 0).then_some((self.own, degree as u32));
                    stem.iter().copied().chain(own).collect()
                });
            }
        }
        best.1
    }
}

/// α + e_j or α − e_j.
fn shifted(term: &MultiIndex, column: u32, by: i32) -> MultiIndex {
    let mut all: BTreeMap<u32, u32> = term.iter().copied().collect();
    let degree = all.entry(column).or_insert(0);
    *degree = degree.saturating_add_signed(by);
    all.into_iter().filter(|&(_, degree)| degree > 0).collect()
}

/// The basis functions at the rows, scaled to unit length, as Q R; of R the inverse is kept.
#[derive(Default)]
struct Orthonormal {
    q: Vec<Vec<f64>>,
    /// Columns of R⁻¹.
    inverse: Vec<Vec<f64>>,
    /// ‖R‖² and ‖R⁻¹‖² (Frobenius).
    squares: (f64, f64),
}

impl Orthonormal {
    /// Adds a column and returns the condition number ‖R‖ ‖R⁻¹‖, an upper bound of that of the scaled basis.
    fn push(&mut self, mut column: Vec<f64>) -> f64 {
        let length = |column: &[f64]| column.iter().map(|value| value * value).sum::<f64>().sqrt();
        let size = length(&column);
        if !(size > 0.0) {
            return f64::INFINITY;
        }
        column.iter_mut().for_each(|value| *value /= size);
        let mut coefficients = vec![0.0; self.q.len()];
        // Twice is enough for orthogonality to rounding.
        for _ in 0..2 {
            for (q, coefficient) in self.q.iter().zip(&mut coefficients) {
                let along = vectorised(|| inner(q, &column));
                vectorised(|| column.iter_mut().zip(q).for_each(|(value, q)| *value -= along * q));
                *coefficient += along;
            }
        }
        let rest = length(&column);
        // R⁻¹ gets the column (−R⁻¹ r/ρ, 1/ρ).
        let mut inverse = vec![0.0; self.q.len() + 1];
        for (known, r) in self.inverse.iter().zip(&coefficients) {
            inverse.iter_mut().zip(known).for_each(|(sum, value)| *sum -= value * r / rest);
        }
        inverse[self.q.len()] = 1.0 / rest;
        self.squares.0 += 1.0;
        self.squares.1 += inverse.iter().map(|value| value * value).sum::<f64>();
        column.iter_mut().for_each(|value| *value /= rest);
        self.q.push(column);
        self.inverse.push(inverse);
        let condition = (self.squares.0 * self.squares.1).sqrt();
        if condition.is_nan() { f64::INFINITY } else { condition }
    }
}
