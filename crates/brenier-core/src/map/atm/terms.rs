//! Multi-indices, and components as sums of products: how they stand in the parameter vector, and their values at a row.

use super::basis::{Bounds, continued, continued_slopes};
use super::line::{Line, Value};
use crate::kernel::Real;
use crate::map::{Constraint, TensorSpec};
use crate::{Error, Result};

/// A multi-index α: the columns of (y, x) with a positive degree, in order, each with its degree.
pub(super) type MultiIndex = Vec<(u32, u32)>;

/// A component's terms with their coefficients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expansion {
    pub(super) terms: Vec<MultiIndex>,
    pub(super) coefficients: Vec<f64>,
}

/// How many terms a component has, and how many (column, degree) pairs they have together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Size {
    pub(super) terms: usize,
    pub(super) pairs: usize,
}

impl Size {
    /// The most pairs that this many terms can have: of a term with k columns all 2^k terms below it are there too.
    pub(super) fn most_pairs(terms: usize) -> usize {
        terms.saturating_mul(terms.max(1).ilog2() as usize)
    }
}

/// Where the tensors are in the flat parameter vector; matrices are column-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) target: usize,
    pub(super) given: usize,
    /// Of each component.
    pub(super) sizes: Vec<Size>,
}

impl Layout {
    /// Sizes are unknown: there is no term yet.
    pub(super) fn empty(target: usize, given: usize) -> Self {
        Self { target, given, sizes: vec![Size::default(); target] }
    }

    fn columns(&self) -> usize {
        self.given + self.target
    }

    pub(super) fn parameters(&self) -> usize {
        let pairs = |size: &Size| size.terms + 3 * size.pairs;
        2 * self.target + 2 * self.columns() + self.sizes.iter().map(pairs).sum::<usize>()
    }

    /// The tensors in their order; those without entries are left out.
    pub(super) fn tensors(&self) -> Vec<TensorSpec> {
        let mut offset = 0;
        let mut tensors = Vec::new();
        let mut add = |name: String, rows: usize, cols: Option<usize>| {
            let entries = rows * cols.unwrap_or(1);
            if entries > 0 {
                tensors.push(TensorSpec {
                    name,
                    rows,
                    cols,
                    offset,
                    stride: rows,
                    constraint: Constraint::Free,
                });
            }
            offset += entries;
        };
        add("sizes".into(), self.target, Some(2));
        add("quantiles".into(), self.columns(), Some(2));
        for (k, size) in self.sizes.iter().enumerate() {
            add(format!("c.{}", k + 1), size.terms, None);
            add(format!("alpha.{}", k + 1), size.pairs, Some(3));
        }
        tensors
    }

    /// The parameter vector of components and the columns' bounds.
    pub(super) fn encode(given: usize, bounds: &[Bounds], components: &[Expansion]) -> (Self, Vec<f64>) {
        let size = |component: &Expansion| Size {
            terms: component.terms.len(),
            pairs: component.terms.iter().map(Vec::len).sum(),
        };
        let layout = Self { target: components.len(), given, sizes: components.iter().map(size).collect() };
        let mut values = Vec::with_capacity(layout.parameters());
        values.extend(layout.sizes.iter().map(|size| size.terms as f64));
        values.extend(layout.sizes.iter().map(|size| size.pairs as f64));
        values.extend(bounds.iter().map(|bounds| bounds.low));
        values.extend(bounds.iter().map(|bounds| bounds.high));
        for component in components {
            values.extend(&component.coefficients);
            let pairs = || {
                component.terms.iter().enumerate().flat_map(|(term, pairs)| {
                    pairs.iter().map(move |&(column, degree)| (term, column, degree))
                })
            };
            values.extend(pairs().map(|(term, ..)| term as f64));
            values.extend(pairs().map(|(_, column, _)| f64::from(column)));
            values.extend(pairs().map(|(.., degree)| f64::from(degree)));
        }
        (layout, values)
    }

    /// The sizes that a parameter vector names; an error for impossible ones.
    pub(super) fn sizes_in<T: Real>(&self, parameters: &[T], most_terms: usize) -> Result<Vec<Size>> {
        let n = self.target;
        (0..n)
            .map(|k| {
                let terms = whole(parameters[k], 1, most_terms)?;
                let pairs = whole(parameters[n + k], 0, Size::most_pairs(terms))?;
                Ok(Size { terms, pairs })
            })
            .collect()
    }

    /// The components that a parameter vector stands for, and the bounds of each column.
    pub(super) fn decode<T: Real>(&self, parameters: &[T]) -> Result<(Vec<Component>, Vec<Bounds>)> {
        let (n, columns) = (self.target, self.columns());
        let (ends, mut rest) = parameters[2 * n..].split_at(2 * columns);
        let bounds = (0..columns)
            .map(|j| Bounds { low: ends[j].to_f64(), high: ends[columns + j].to_f64() })
            .map(|bounds| match bounds.low <= bounds.high {
                true => Ok(bounds),
                false => Err(damaged("its quantiles are not in order")),
            })
            .collect::<Result<Vec<Bounds>>>()?;
        let mut components = Vec::with_capacity(n);
        for (k, size) in self.sizes.iter().enumerate() {
            let (coefficients, after) = rest.split_at(size.terms);
            let (pairs, after) = after.split_at(3 * size.pairs);
            rest = after;
            let last = self.given + k;
            let mut expansion = Expansion {
                terms: vec![MultiIndex::new(); size.terms],
                coefficients: coefficients.iter().map(|c| c.to_f64()).collect(),
            };
            let mut before = 0;
            for e in 0..size.pairs {
                let term = whole(pairs[e], before, size.terms.saturating_sub(1))?;
                let column = whole(pairs[size.pairs + e], 0, last)? as u32;
                // A degree that training can reach with its terms.
                let degree = whole(pairs[2 * size.pairs + e], 1, size.terms)? as u32;
                before = term;
                let pairs = &mut expansion.terms[term];
                if pairs.last().is_some_and(|&(other, _)| other >= column) {
                    return Err(damaged("the columns of a term are not in order"));
                }
                pairs.push((column, degree));
            }
            components.push(Component::new(&expansion, last));
        }
        Ok((components, bounds))
    }
}

fn damaged(problem: &str) -> Error {
    Error::Numerical(format!("the adaptive transport map is damaged: {problem}"))
}

/// A whole number within a range.
fn whole<T: Real>(value: T, low: usize, high: usize) -> Result<usize> {
    let number = value.to_f64();
    if number.fract() == 0.0 && number >= low as f64 && number <= high as f64 {
        return Ok(number as usize);
    }
    Err(damaged(&format!("{number} is not a whole number between {low} and {high}")))
}

/// A term: c · Π h_{α_j} over its factors, times h_d of the component's own variable.
#[derive(Clone, Debug)]
struct Term {
    coefficient: f64,
    /// (place of the column among those used, degree).
    factors: Vec<(usize, usize)>,
    degree: usize,
}

/// A component, ready to be evaluated.
#[derive(Clone, Debug)]
pub(super) struct Component {
    /// Its own variable's column of (y, x).
    last: usize,
    /// The columns before it that it uses, with the highest degree of each and the place of its values in the scratch.
    columns: Vec<(usize, usize, usize)>,
    terms: Vec<Term>,
    /// The highest degree in its own variable.
    degree: usize,
}

/// Memory for the evaluation of components, row by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    basis: Vec<f64>,
    slopes: Vec<f64>,
    a: Vec<f64>,
    adjoint: Vec<f64>,
}

impl Component {
    pub(super) fn new(expansion: &Expansion, last: usize) -> Self {
        let own = last as u32;
        let mut columns: Vec<(usize, usize, usize)> = Vec::new();
        for &(column, degree) in expansion.terms.iter().flatten().filter(|(column, _)| *column != own) {
            let (column, degree) = (column as usize, degree as usize);
            match columns.iter_mut().find(|(other, ..)| *other == column) {
                Some((_, most, _)) => *most = degree.max(*most),
                None => columns.push((column, degree, 0)),
            }
        }
        columns.sort_unstable();
        let mut place = 0;
        for (_, degree, start) in &mut columns {
            *start = place;
            place += *degree + 1;
        }
        let position = |column: u32| columns.iter().position(|&(other, ..)| other == column as usize);
        let terms: Vec<Term> = expansion
            .terms
            .iter()
            .zip(&expansion.coefficients)
            .map(|(pairs, &coefficient)| Term {
                coefficient,
                factors: pairs
                    .iter()
                    .filter_map(|&(column, degree)| Some((position(column)?, degree as usize)))
                    .collect(),
                degree: pairs
                    .iter()
                    .find(|(column, _)| *column == own)
                    .map_or(0, |&(_, degree)| degree as usize),
            })
            .collect();
        let degree = terms.iter().map(|term| term.degree).max().unwrap_or(0);
        Self { last, columns, terms, degree }
    }

    /// The columns before its own that it uses.
    pub(super) fn uses(&self) -> impl Iterator<Item = usize> + '_ {
        self.columns.iter().map(|&(column, ..)| column)
    }

    /// a_d = Σ c_α Π_{j<k} h_{α_j} over the terms of degree d in the own variable, at a row of (y, x).
    pub(super) fn line<'a>(&self, row: &[f64], bounds: &[Bounds], scratch: &'a mut Scratch) -> Line<'a> {
        self.load(row, bounds, scratch);
        Line { a: &scratch.a, bounds: bounds[self.last] }
    }

    fn load(&self, row: &[f64], bounds: &[Bounds], scratch: &mut Scratch) {
        scratch.basis.clear();
        for &(column, degree, start) in &self.columns {
            scratch.basis.resize(start + degree + 1, 0.0);
            continued(row[column], bounds[column], &mut scratch.basis[start..]);
        }
        scratch.a.clear();
        scratch.a.resize(self.degree + 1, 0.0);
        for term in &self.terms {
            let factor = |&(place, degree): &(usize, usize)| scratch.basis[self.columns[place].2 + degree];
            scratch.a[term.degree] += term.coefficient * term.factors.iter().map(factor).product::<f64>();
        }
    }

    /// S and its slope at a row; the gradient of −½S² + log ∂S in the columns from `first` on is added to `gradient`.
    ///
    /// With ā_d = −S ∂S/∂a_d + g'/g · h_d'(x_k) it is Σ_α c_α ā_{α_k} ∂Π/∂x_j for j < k and −S g + g'/g · f'' for k.
    pub(super) fn gradient(
        &self,
        row: &[f64],
        bounds: &[Bounds],
        first: usize,
        scratch: &mut Scratch,
        gradient: &mut [f64],
    ) -> Value {
        self.load(row, bounds, scratch);
        let x = row[self.last];
        scratch.adjoint.clear();
        scratch.adjoint.resize(self.degree + 1, 0.0);
        let line = Line { a: &scratch.a, bounds: bounds[self.last] };
        let value = line.with_adjoint(x, &mut scratch.adjoint);
        let relative = value.rate / value.slope;
        gradient[self.last - first] += relative * value.bend - value.s * value.slope;
        // The slopes of the own variable take the place of a, which is not needed any more.
        continued_slopes(x, bounds[self.last], &mut scratch.a);
        for (adjoint, slope) in scratch.adjoint.iter_mut().zip(&scratch.a) {
            *adjoint = relative * slope - value.s * *adjoint;
        }
        scratch.slopes.clear();
        for &(column, degree, start) in &self.columns {
            scratch.slopes.resize(start + degree + 1, 0.0);
            if column >= first {
                continued_slopes(row[column], bounds[column], &mut scratch.slopes[start..]);
            }
        }
        for term in &self.terms {
            let weight = term.coefficient * scratch.adjoint[term.degree];
            for (i, &(place, degree)) in term.factors.iter().enumerate() {
                let (column, _, start) = self.columns[place];
                if column < first {
                    continue;
                }
                let others = term.factors.iter().enumerate().filter(|(j, _)| *j != i);
                let product: f64 = others
                    .map(|(_, &(place, degree))| scratch.basis[self.columns[place].2 + degree])
                    .product();
                gradient[column - first] += weight * product * scratch.slopes[start + degree];
            }
        }
        value
    }
}
