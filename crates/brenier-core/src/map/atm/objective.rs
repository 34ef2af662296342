//! The loss of one component over some rows, its gradient in all coefficients, and its curvature.
//!
//! Given a row, f is a polynomial of its own variable alone, f(…, t) = Σ_d a_d h_d(t) with a_d = Σ_{α: α_k = d} c_α P_α and
//! P_α = Π_{j<k} h_{α_j}, the *stem* of α. So a pass over the rows is a product of the stems with the coefficients, a
//! quadrature along t for as many rows at a time as have their place in a block, and a product of the stems with what
//! that leaves behind:
//!
//! loss = mean(½S² − log ∂S),   ∂loss/∂c_α = mean(P_α w_{α_k}),   w_d = S ∂S/∂a_d − g'(f') h_d'(x_k)/∂S.
//!
//! Here S and ∂S are those of the map plus ε x_k and ε with ε = 1e-9, so that the logarithm stays bounded.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

use crate::kernel::Accum;

use super::basis::{Bounds, Rule, continued, continued_slopes};
use super::block::{Block, Constants, Quadrature, inner};
use super::terms::MultiIndex;
use crate::kernel::{columns, columns_mut, product, vectorised, vectorised_operation};
use crate::map::HALF_LOG_TWO_PI;
use crate::train::Dataset;

/// Rows of a block.
const LANES: usize = 64;
/// Intervals of the coarsest quadrature rule; each level doubles them.
const COARSEST: usize = 4;
/// Levels of quadrature rules.
const LEVELS: usize = 7;
/// The level that every row begins with.
const FIRST_LEVEL: u8 = 1;
/// Rows that are integrated together where they need a finer rule than their block.
const FEW: usize = 8;
/// Rows of a product for the curvature.
const CURVATURE_ROWS: usize = 8 * LANES;

/// The quadrature rules of all levels, made once for all objectives of a training.
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    pub(super) fn new() -> Self {
        Self((0..LEVELS).map(|level| Rule::new(COARSEST << level)).collect())
    }
}

/// A product over the variables before a component's own, at every row.
struct Stem {
    index: MultiIndex,
    values: Vec<f64>,
}

/// The loss of a component over some rows.
pub(super) struct Objective<'a> {
    data: &'a Dataset,
    rules: &'a Rules,
    bounds: &'a [Bounds],
    /// The component's own column of (y, x).
    last: usize,
    /// The rows, in the order of their x_k: those of a block have similar intervals. Columns are padded to whole blocks.
    rows: Vec<u32>,
    x: Vec<f64>,
    /// From the interval's start to the nearest point within the bounds, and from there to x.
    length: Vec<f64>,
    tail: Vec<f64>,
    /// Where the interval starts: 0, or the nearest point within the bounds.
    start: f64,
    /// Largest change from a rule to the next, relative to 1 or the integral.
    tolerance: f64,
    /// Level of each row's rule.
    levels: Vec<u8>,
    /// Values of h_1, h_2, … of the columns in use.
    tables: BTreeMap<u32, Vec<Vec<f64>>>,
    stems: Vec<Stem>,
    /// Stem and degree in the own variable of each term.
    terms: Vec<(usize, usize)>,
}

/// Memory of a pass.
struct Workspace {
    constants: Constants,
    block: Block<LANES>,
    few: Block<FEW>,
}

/// Everything that one pass can say about the loss around some coefficients.
pub(super) struct Survey {
    pub(super) value: f64,
    /// w_d/rows of every row, by degree: up to one more than any term has.
    weights: Vec<Vec<f64>>,
    /// ∂S/∂a_d.
    adjoint: Vec<Vec<f64>>,
    /// h_d'(x_k) times the root of the curvature of −log ∂S in f'.
    ends: Vec<Vec<f64>>,
}

impl<'a> Objective<'a> {
    /// Of the component of column `last` over `rows`, without any term.
    pub(super) fn new(
        data: &'a Dataset,
        rows: &[u32],
        last: usize,
        bounds: &'a [Bounds],
        rules: &'a Rules,
        tolerance: f64,
    ) -> Self {
        let own = bounds[last];
        let value = |row: u32| f64::from(data.x[row as usize * data.target + last - data.given]);
        let mut rows = rows.to_vec();
        rows.sort_by(|&a, &b| value(a).total_cmp(&value(b)).then(a.cmp(&b)));
        let start = own.clamp(0.0);
        let padded = rows.len().div_ceil(LANES) * LANES;
        // A padded row stays where the interval starts and counts for nothing.
        let mut x: Vec<f64> = rows.iter().map(|&row| value(row)).collect();
        x.resize(padded, start);
        Self {
            length: x.iter().map(|&x| own.clamp(x) - start).collect(),
            tail: x.iter().map(|&x| x - own.clamp(x)).collect(),
            levels: vec![FIRST_LEVEL; padded],
            tables: BTreeMap::new(),
            stems: Vec::new(),
            terms: Vec::new(),
            data,
            rules,
            bounds,
            last,
            rows,
            x,
            start,
            tolerance,
        }
    }

    /// The number of rows.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// The highest degree in the own variable.
    fn degree(&self) -> usize {
        self.terms.iter().map(|&(_, degree)| degree).max().unwrap_or(0)
    }

    /// Values of a column of (y, x) at the rows.
    fn column(&self, column: u32) -> impl Iterator<Item = f64> + '_ {
        let (column, m, n) = (column as usize, self.data.given, self.data.target);
        self.rows.iter().map(move |&row| {
            let row = row as usize;
            f64::from(if column < m {
                self.data.y[row * m + column]
            } else {
                self.data.x[row * n + column - m]
            })
        })
    }

    /// Makes h_1..h_degree of a column.
    fn prepare(&mut self, column: u32, degree: u32) {
        let degree = degree as usize;
        if self.tables.get(&column).is_some_and(|table| table.len() >= degree) {
            return;
        }
        let bounds = self.bounds[column as usize];
        let padded = self.x.len();
        let mut table = vec![vec![0.0; padded]; degree];
        let mut values = vec![0.0; degree + 1];
        for (place, x) in self.column(column).enumerate() {
            continued(x, bounds, &mut values);
            for (column, &value) in table.iter_mut().zip(&values[1..]) {
                column[place] = value;
            }
        }
        self.tables.insert(column, table);
    }

    /// The stem of a term and its degree in the own variable.
    pub(super) fn split(&self, term: &MultiIndex) -> (MultiIndex, usize) {
        let own = self.last as u32;
        let stem = term.iter().copied().filter(|&(column, _)| column != own).collect();
        let degree = term.iter().find(|(column, _)| *column == own).map_or(0, |&(_, degree)| degree as usize);
        (stem, degree)
    }

    /// Adds a term.
    pub(super) fn push(&mut self, term: &MultiIndex) {
        let (index, degree) = self.split(term);
        let known = self.stems.iter().position(|stem| stem.index == index);
        let stem = known.unwrap_or_else(|| {
            for &(column, degree) in &index {
                self.prepare(column, degree);
            }
            let mut values = vec![1.0; self.x.len()];
            values[self.rows.len()..].fill(0.0);
            for &(column, degree) in &index {
                let factor = &self.tables[&column][degree as usize - 1];
                values.iter_mut().zip(factor).for_each(|(value, factor)| *value *= factor);
            }
            self.stems.push(Stem { index, values });
            self.stems.len() - 1
        });
        self.terms.push((stem, degree));
    }

    /// Takes the last term away.
    pub(super) fn pop(&mut self) {
        self.terms.pop();
    }

    /// The values of the last term's basis function at the rows.
    pub(super) fn last_basis(&mut self) -> Vec<f64> {
        let Some(&(stem, degree)) = self.terms.last() else { return Vec::new() };
        let own = self.last as u32;
        if degree == 0 {
            return self.stems[stem].values.clone();
        }
        self.prepare(own, degree as u32);
        let factor = &self.tables[&own][degree - 1];
        self.stems[stem].values.iter().zip(factor).map(|(stem, factor)| stem * factor).collect()
    }

    fn constants(&self, degrees: usize) -> Constants {
        let own = self.bounds[self.last];
        let (mut origin, mut start_slopes) = (vec![0.0; degrees], vec![0.0; degrees]);
        continued(0.0, own, &mut origin);
        continued_slopes(self.start, own, &mut start_slopes);
        Constants { roots: (0..degrees).map(|d| (d as f64).sqrt()).collect(), origin, start_slopes }
    }

    fn workspace(&self, degrees: usize) -> Workspace {
        Workspace { constants: self.constants(degrees), block: Block::new(degrees), few: Block::new(degrees) }
    }

    fn blocks(&self) -> usize {
        self.x.len() / LANES
    }

    /// One block of a pass. Rows whose rule is too coarse get a finer one where `refine` allows it.
    fn pass<const ADJOINT: bool>(
        &mut self,
        number: usize,
        coefficients: &[f64],
        refine: bool,
        workspace: &mut Workspace,
    ) {
        let Workspace { constants, block, few } = workspace;
        let place = number * LANES;
        let rows = place..place + LANES;
        let (start, tolerance) = (self.start, self.tolerance);
        block.length.copy_from_slice(&self.length[rows.clone()]);
        block.tail.copy_from_slice(&self.tail[rows.clone()]);
        block.x.copy_from_slice(&self.x[rows.clone()]);
        let rule = &self.rules.0[FIRST_LEVEL as usize];
        vectorised(|| {
            block.a.iter_mut().for_each(|a| a.fill(0.0));
            for (&(stem, degree), &c) in self.terms.iter().zip(coefficients) {
                let stem = &self.stems[stem].values[place..place + LANES];
                for (a, stem) in block.a[degree].iter_mut().zip(stem) {
                    *a += stem * c;
                }
            }
        });
        vectorised_operation(Quadrature::<ADJOINT, LANES> { start, tolerance, rule, constants, block });
        let levels = &mut self.levels[rows];
        if refine {
            for (level, settled) in levels.iter_mut().zip(&block.settled) {
                *level = (*level).max(FIRST_LEVEL + u8::from(!settled));
            }
        }
        if levels.iter().all(|&level| level == FIRST_LEVEL) {
            return;
        }
        for level in FIRST_LEVEL + 1..LEVELS as u8 {
            let rule = &self.rules.0[level as usize];
            let chosen: Vec<usize> = (0..LANES).filter(|&row| levels[row] == level).collect();
            for chosen in chosen.chunks(FEW) {
                for (i, place) in few.x.iter_mut().enumerate() {
                    // The last one fills up what is left.
                    let row = chosen[i.min(chosen.len() - 1)];
                    *place = block.x[row];
                    (few.length[i], few.tail[i]) = (block.length[row], block.tail[row]);
                    few.a.iter_mut().zip(&block.a).for_each(|(few, all)| few[i] = all[row]);
                }
                vectorised_operation(Quadrature::<ADJOINT, FEW> {
                    start,
                    tolerance,
                    rule,
                    constants,
                    block: few,
                });
                for (i, &row) in chosen.iter().enumerate() {
                    block.s[row] = few.s[i];
                    if ADJOINT {
                        block.adjoint.iter_mut().zip(&few.adjoint).for_each(|(all, few)| all[row] = few[i]);
                    }
                    if refine && !few.settled[i] && level as usize + 1 < LEVELS {
                        levels[row] = level + 1;
                    }
                }
            }
        }
    }

    /// Σ (½S² − log ∂S) over the block's rows.
    fn block_loss(&self, number: usize, block: &Block<LANES>) -> f64 {
        let count = (self.rows.len() - number * LANES).min(LANES);
        let squares: f64 = block.s[..count].iter().map(|s| 0.5 * s * s).sum();
        // One logarithm for four slopes, which are at least ε, as long as their product can be represented.
        let logs: f64 = block.slope[..count]
            .chunks(4)
            .map(|slopes| match slopes.iter().product::<f64>() {
                product if product < f64::MAX => product.ln(),
                _ => slopes.iter().map(|slope| slope.ln()).sum(),
            })
            .sum();
        squares - logs
    }

    fn mean(&self, sum: f64) -> f64 {
        sum / self.rows.len() as f64 + HALF_LOG_TWO_PI
    }

    /// The loss, with as fine a quadrature as it needs.
    pub(super) fn value(&mut self, coefficients: &[f64]) -> f64 {
        let mut workspace = self.workspace(self.degree() + 1);
        let mut sum = 0.0;
        for number in 0..self.blocks() {
            self.pass::<false>(number, coefficients, true, &mut workspace);
            sum += self.block_loss(number, &workspace.block);
        }
        self.mean(sum)
    }

    /// The loss and its gradient, with the quadrature as it is.
    pub(super) fn value_and_gradient(&mut self, coefficients: &[f64], gradient: &mut [f64]) -> f64 {
        let mut workspace = self.workspace(self.degree() + 1);
        gradient.fill(0.0);
        let mut sum = 0.0;
        let scale = 1.0 / self.rows.len() as f64;
        for number in 0..self.blocks() {
            self.pass::<true>(number, coefficients, false, &mut workspace);
            let block = &mut workspace.block;
            sum += self.block_loss(number, block);
            vectorised(|| {
                block.weigh(scale);
                let place = number * LANES;
                for (&(stem, degree), gradient) in self.terms.iter().zip(gradient.iter_mut()) {
                    let stem = &self.stems[stem].values[place..place + LANES];
                    *gradient += inner(stem, &block.adjoint[degree]);
                }
            });
        }
        self.mean(sum)
    }

    /// The loss and all that the next term is chosen by, with as fine a quadrature as it needs.
    pub(super) fn survey(&mut self, coefficients: &[f64]) -> Survey {
        let degrees = self.degree() + 2;
        let mut workspace = self.workspace(degrees);
        let columns = || vec![vec![0.0; self.x.len()]; degrees];
        let [mut weights, mut adjoint, mut ends] = [columns(), columns(), columns()];
        let mut sum = 0.0;
        let scale = 1.0 / self.rows.len() as f64;
        for number in 0..self.blocks() {
            self.pass::<true>(number, coefficients, true, &mut workspace);
            let block = &mut workspace.block;
            sum += self.block_loss(number, block);
            let place = number * LANES..(number + 1) * LANES;
            for d in 0..degrees {
                adjoint[d][place.clone()].copy_from_slice(&block.adjoint[d]);
                for (i, end) in ends[d][place.clone()].iter_mut().enumerate() {
                    // −(log g)'' = (g'/g)² − g''/g.
                    let rate = block.rate[i] / block.slope[i];
                    let curvature = rate * (rate - LN_2 * (1.0 - block.rate[i]));
                    *end = block.ends[d][i] * curvature.max(0.0).sqrt();
                }
            }
            vectorised(|| block.weigh(scale));
            for (weights, block) in weights.iter_mut().zip(&block.adjoint) {
                weights[place.clone()].copy_from_slice(block);
            }
        }
        Survey { value: self.mean(sum), weights, adjoint, ends }
    }

    /// The gradient at the survey's coefficients, of the terms that there are now.
    pub(super) fn gradient(&self, survey: &Survey) -> Vec<f64> {
        let dots = |&(stem, degree): &(usize, usize)| {
            vectorised(|| inner(&self.stems[stem].values, &survey.weights[degree]))
        };
        self.terms.iter().map(dots).collect()
    }

    /// A positive approximation of the loss's second derivatives around a survey, of the terms that there are now:
    /// mean(∂S ∂Sᵀ) and the exact curvature of −log ∂S; what S times the second derivatives of S adds is left out.
    pub(super) fn curvature(&self, survey: &Survey) -> Vec<f64> {
        let size = self.terms.len();
        let mut total = vec![0.0; size * size];
        let mut factors = vec![0.0; 2 * CURVATURE_ROWS * size];
        let root = (1.0 / self.rows.len() as f64).sqrt();
        for place in (0..self.x.len()).step_by(CURVATURE_ROWS) {
            let end = (place + CURVATURE_ROWS).min(self.x.len());
            let rows = end - place;
            for (&(stem, degree), column) in
                self.terms.iter().zip(factors.chunks_exact_mut(2 * CURVATURE_ROWS))
            {
                let stem = &self.stems[stem].values[place..end];
                let parts = [&survey.adjoint[degree][place..end], &survey.ends[degree][place..end]];
                for (part, column) in parts.into_iter().zip(column.chunks_exact_mut(CURVATURE_ROWS)) {
                    for ((out, stem), part) in column.iter_mut().zip(stem).zip(part) {
                        *out = root * stem * part;
                    }
                    column[rows..].fill(0.0);
                }
            }
            let factors = columns(&factors, 2 * CURVATURE_ROWS, size, 2 * CURVATURE_ROWS);
            product(columns_mut(&mut total, size, size, size), Accum::Add, factors.transpose(), factors);
        }
        total
    }

    /// ∂loss/∂c at c = 0 of the terms x_j for every column j before the own one.
    pub(super) fn linear_gradients(&self, survey: &Survey) -> Vec<f64> {
        let (m, n, before) = (self.data.given, self.data.target, self.last - self.data.given);
        let mut gradients = vec![0.0; self.last];
        vectorised(|| {
            for (&row, &weight) in self.rows.iter().zip(&survey.weights[0]) {
                let row = row as usize;
                let (given, target) = gradients.split_at_mut(m);
                for (sum, &y) in given.iter_mut().zip(&self.data.y[row * m..(row + 1) * m]) {
                    *sum += weight * f64::from(y);
                }
                for (sum, &x) in target.iter_mut().zip(&self.data.x[row * n..row * n + before]) {
                    *sum += weight * f64::from(x);
                }
            }
        });
        gradients
    }

    /// ∂loss/∂c at c = 0 of terms that have this stem, by their degrees in the own variable.
    pub(super) fn stem_gradients(
        &mut self,
        survey: &Survey,
        stem: &MultiIndex,
        degrees: &[usize],
    ) -> Vec<f64> {
        for &(column, degree) in stem {
            self.prepare(column, degree);
        }
        let factors: Vec<&[f64]> = match self.stems.iter().find(|known| &known.index == stem) {
            Some(known) => vec![&known.values],
            None => {
                stem.iter().map(|(column, degree)| &self.tables[column][*degree as usize - 1][..]).collect()
            }
        };
        let mut gradients = vec![0.0; degrees.len()];
        vectorised(|| {
            for place in (0..self.x.len()).step_by(LANES) {
                let mut values = [1.0; LANES];
                for factor in &factors {
                    for (value, factor) in values.iter_mut().zip(&factor[place..place + LANES]) {
                        *value *= factor;
                    }
                }
                for (sum, &degree) in gradients.iter_mut().zip(degrees) {
                    *sum += inner(&values, &survey.weights[degree][place..place + LANES]);
                }
            }
        });
        gradients
    }
}
