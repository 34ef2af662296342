//! Sampling: x with ∇ₓG(x; y) = z, a smooth and strongly convex problem for every row.
//!
//! **Newton** (default) minimises φ(x) = G(x) − zᵀx with the Hessian at hand ([`newton`](super::newton)). Rows run
//! together, one evaluation per round, and drop out as they converge. The first rounds are in single precision; once a
//! row is close, double-precision gradients (two columns of product per row instead of n + 2) polish it with the factor
//! already at hand, and certify the residual. Rows that do not contract continue with Newton in double precision, and
//! the rare row that it leaves unsolved is tried again by L-BFGS.
//!
//! **L-BFGS** with a strong Wolfe line search on φ, the paper's choice, in double precision: kept for comparison. Rows
//! that it cannot finish are finished by Newton.

use serde::{Deserialize, Serialize};

use super::newton::{Goal, newton, polish};
use super::rows::{ROWS, Rows, largest};
use super::{ConvexPotential, Shards, context_records};
use crate::kernel::lbfgs::Lbfgs;
use crate::map::Inversion;
use crate::map::batch::Contexts;
use crate::parallel::each_with;
use crate::{Error, Result};

/// Single-precision rounds stop at this residual: the next Newton step, taken for free, squares it.
const COARSE: f64 = 4e-2;
/// … and at this decrement FᵀH⁻¹F: in the gap between two modes H is so small that a small residual alone says little.
const COARSE_DECREMENT: f64 = 0.1;
/// Evaluations in single precision; what they do not solve is a matter for double precision.
const COARSE_EVALUATIONS: u32 = 40;

/// How ∇ₓG(x; y) = z is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Solver {
    /// Damped Newton per row.
    #[default]
    Newton,
    /// L-BFGS with a strong Wolfe line search on blocks of rows.
    Lbfgs,
}

/// The arithmetic of the Newton solver; the answer is certified in double precision either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Precision {
    /// Single precision first, then double.
    #[default]
    Mixed,
    /// Double precision throughout, from x = 0.
    Double,
}

/// Settings of the inversion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseSettings {
    /// The solver.
    pub solver: Solver,
    /// Largest ‖∇G − z‖∞ that counts as solved.
    pub tolerance: f64,
    /// Evaluations of the map that a row may take with one solver.
    pub max_iterations: u32,
    /// Arithmetic of the Newton solver.
    pub precision: Precision,
}

/// The points of some rows, with the residual and the evaluations of each.
type Solved = (Vec<f64>, Vec<(f64, u32)>);

impl Default for InverseSettings {
    fn default() -> Self {
        Self { solver: Solver::Newton, tolerance: 1e-6, max_iterations: 500, precision: Precision::Mixed }
    }
}

impl InverseSettings {
    /// The names of the fields.
    pub(in crate::map) const NAMES: &[&str] = &["solver", "tolerance", "max_iterations", "precision"];

    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        if !(self.tolerance >= 1e-13 && self.tolerance < 1.0) {
            return Err(Error::setting(
                "tolerance",
                format!("{} is not between 1e-13 and 1", self.tolerance),
            ));
        }
        if self.max_iterations == 0 {
            return Err(Error::setting("max_iterations", "must be at least 1"));
        }
        Ok(())
    }
}

/// A potential in both precisions, ready to be inverted.
pub(in crate::map) struct Inverse<'a, C, F> {
    pub(in crate::map) coarse: &'a C,
    pub(in crate::map) fine: &'a F,
}

impl<C: ConvexPotential<f32>, F: ConvexPotential<f64>> Inverse<'_, C, F> {
    /// x with ∇ₓG(x; y) = z for every row z, `observation` telling which row of `given` belongs to it; rows that are not solved to
    /// the tolerance are returned at their best point and marked.
    ///
    /// Contexts are computed once per observation.
    pub(in crate::map) fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.validate()?;
        let (n, m) = (self.fine.target(), self.fine.given());
        let count = observation.len();
        let observations = observation.iter().max().map_or(0, |&last| last as usize + 1);
        if z.len() != count * n || given.len() < observations * m {
            return Err(Error::Shape {
                what: "reference points",
                expected: format!("{count} rows of {n} and at least {observations} observations of {m}"),
                got: format!("{} and {} numbers", z.len(), given.len()),
            });
        }
        let given = &given[..observations * m];
        let fine = context_records(self.fine, given, observations);
        let mut answer = Answer::new(count, n);
        match (settings.solver, settings.precision) {
            (Solver::Lbfgs, _) => self.lbfgs(z, &fine, observation, settings, &mut answer),
            (Solver::Newton, Precision::Double) => {
                let mut rows =
                    Rows::at_rest(n, (0..count as u32).collect(), observation.to_vec(), z.to_vec());
                self.finish(&mut rows, &fine, settings, &mut answer);
            }
            (Solver::Newton, Precision::Mixed) => {
                let coarse_given: Vec<f32> = given.iter().map(|&y| y as f32).collect();
                let coarse = context_records(self.coarse, &coarse_given, observations);
                let shards = Shards::new(ROWS.min(count.max(observations)));
                let goal = coarse_goal(settings);
                let mut rows = self.start(z, observation, observations, &coarse, goal, &shards);
                newton(self.coarse, &mut rows, &coarse, goal, &shards);
                self.polish(&mut rows, &fine, settings, goal, &mut answer);
                self.finish(&mut rows, &fine, settings, &mut answer);
            }
        }
        if settings.solver == Solver::Newton {
            self.retry(z, &fine, observation, settings, &mut answer);
        }
        let unsolved = answer.unsolved(settings.tolerance);
        let Answer { x, mut inversion } = answer;
        inversion.unsolved = unsolved;
        Ok((x, inversion))
    }

    /// About one draw in a million ends where Newton's line search can no longer tell better from worse: L-BFGS tries it
    /// again from the start.
    fn retry(
        &self,
        z: &[f64],
        records: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
        answer: &mut Answer,
    ) {
        let n = self.fine.target();
        let left = answer.unsolved(settings.tolerance);
        if left.is_empty() {
            return;
        }
        let rows = || left.iter().map(|&row| row as usize);
        let own: Vec<f64> = rows().flat_map(|row| &z[row * n..(row + 1) * n]).copied().collect();
        let at: Vec<u32> = rows().map(|row| observation[row]).collect();
        let mut again = Answer::new(left.len(), n);
        self.lbfgs(&own, records, &at, settings, &mut again);
        for (place, row) in rows().enumerate() {
            answer.inversion.iterations[row] += again.inversion.iterations[place];
            if again.inversion.residuals[place] < answer.inversion.residuals[row] {
                answer.inversion.residuals[row] = again.inversion.residuals[place];
                answer.x[row * n..(row + 1) * n].copy_from_slice(&again.x[place * n..(place + 1) * n]);
            }
        }
    }

    /// Takes the step at hand of every row that came close in single precision, and polishes it.
    fn polish(
        &self,
        rows: &mut Rows,
        records: &[f64],
        settings: &InverseSettings,
        goal: Goal,
        answer: &mut Answer,
    ) {
        let far: Vec<bool> = rows.search.iter().map(|search| !goal.reached(search)).collect();
        let far = rows.take_where(&far);
        for search in &mut rows.search {
            // A small residual in single precision may be an accident of rounding: it certifies nothing.
            search.residual = search.residual.max(4.0 * settings.tolerance);
            search.step = 1.0;
        }
        let shards = Shards::new(ROWS.min(rows.len()));
        polish(self.fine, rows, records, settings.tolerance, &shards, |rows, row| answer.take(rows, row));
        rows.append(far);
    }

    /// Newton in double precision from the best points known.
    fn finish(&self, rows: &mut Rows, records: &[f64], settings: &InverseSettings, answer: &mut Answer) {
        let goal = Goal {
            residual: settings.tolerance,
            decrement: f64::INFINITY,
            evaluations: settings.max_iterations,
        };
        rows.forget();
        let shards = Shards::new(ROWS.min(rows.len()));
        newton(self.fine, rows, records, goal, &shards);
        (0..rows.len()).for_each(|row| answer.take(rows, row));
    }

    /// Every row by L-BFGS from x = 0, evaluated side by side; what is left unsolved is finished by Newton.
    fn lbfgs(
        &self,
        z: &[f64],
        records: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
        answer: &mut Answer,
    ) {
        let map = self.fine;
        let (n, stride) = (map.target(), map.record());
        let mut found: Vec<Solved> = vec![(Vec::new(), Vec::new()); observation.len().div_ceil(ROWS)];
        let inputs = z.chunks(ROWS * n).zip(observation.chunks(ROWS));
        each_with(
            inputs.zip(&mut found),
            || map.room(ROWS),
            |shard, _, ((z, observation), found)| {
                let start = vec![0.0; n];
                let mut rows: Vec<Lbfgs> =
                    observation.iter().map(|_| Lbfgs::new(&start, settings.tolerance)).collect();
                let mut misfit = vec![0.0; n];
                loop {
                    let open = |row: &Lbfgs| !row.finished() && row.evaluations() < settings.max_iterations;
                    let active: Vec<usize> = (0..rows.len()).filter(|&row| open(&rows[row])).collect();
                    if active.is_empty() {
                        break;
                    }
                    let index: Vec<u32> = active.iter().map(|&row| observation[row]).collect();
                    let points: Vec<f64> =
                        active.iter().flat_map(|&row| rows[row].point()).copied().collect();
                    let contexts = Contexts { records, stride, index: Some(&index) };
                    map.gradient(shard, contexts, &points, active.len(), true);
                    for (b, &row) in active.iter().enumerate() {
                        let (x, z) = (&points[b * n..(b + 1) * n], &z[row * n..(row + 1) * n]);
                        for (misfit, (gradient, z)) in
                            misfit.iter_mut().zip(map.evaluated(shard).gradient[b * n..].iter().zip(z))
                        {
                            *misfit = gradient - z;
                        }
                        let linear: f64 = x.iter().zip(z).map(|(x, z)| x * z).sum();
                        rows[row].tell(map.potential(shard, b, x).0 - linear, &misfit);
                    }
                }
                let (mut x, mut ends) = (Vec::with_capacity(z.len()), Vec::with_capacity(rows.len()));
                for row in rows {
                    let (residual, evaluations) = (largest(row.gradient()), row.evaluations());
                    x.extend_from_slice(row.best());
                    ends.push((residual, evaluations));
                }
                *found = (x, ends);
            },
        );
        let count = observation.len();
        let mut rows = Rows::at_rest(n, (0..count as u32).collect(), observation.to_vec(), z.to_vec());
        rows.x = found.iter().flat_map(|(x, _)| x).copied().collect();
        let ends = found.iter().flat_map(|(_, ends)| ends);
        for (search, &(residual, evaluations)) in rows.search.iter_mut().zip(ends) {
            (search.residual, search.evaluations) = (residual, evaluations);
        }
        let solved: Vec<bool> =
            rows.search.iter().map(|search| search.residual <= settings.tolerance).collect();
        (0..count).filter(|&row| solved[row]).for_each(|row| answer.take(&rows, row));
        rows.drop_where(&solved);
        // A new allowance: Newton's method is another attempt.
        let settings = InverseSettings { max_iterations: 2 * settings.max_iterations, ..*settings };
        self.finish(&mut rows, records, &settings, answer);
    }
}

/// An error that names the worst of the rows that were not solved, if there are any.
pub(in crate::map) fn demand_solved(
    inversion: &Inversion,
    observation: &[u32],
    tolerance: f64,
) -> Result<()> {
    let residual = |&row: &u32| inversion.residuals[row as usize];
    let worst = inversion.unsolved.iter().max_by(|a, b| residual(a).total_cmp(&residual(b)));
    let Some(worst) = worst else { return Ok(()) };
    Err(Error::Numerical(format!(
        "{} of {} draws could not be solved to a residual of {:.0e}; the worst, draw {} at observation {}, has {:.1e} \
         after {} evaluations: is the observation far outside the training data, or the tolerance too strict?",
        inversion.unsolved.len(),
        observation.len(),
        tolerance,
        worst + 1,
        observation[*worst as usize] + 1,
        residual(worst),
        inversion.iterations[*worst as usize],
    )))
}

/// When single precision has done its part.
fn coarse_goal(settings: &InverseSettings) -> Goal {
    Goal {
        residual: COARSE.max(settings.tolerance),
        decrement: COARSE_DECREMENT,
        evaluations: COARSE_EVALUATIONS.min(settings.max_iterations),
    }
}

struct Answer {
    x: Vec<f64>,
    inversion: Inversion,
}

impl Answer {
    fn new(count: usize, n: usize) -> Self {
        let inversion = Inversion {
            iterations: vec![0; count],
            residuals: vec![f64::INFINITY; count],
            unsolved: Vec::new(),
        };
        Self { x: vec![0.0; count * n], inversion }
    }

    /// The rows that are not solved to the tolerance, in order.
    fn unsolved(&self, tolerance: f64) -> Vec<u32> {
        let rows = (0..).zip(&self.inversion.residuals);
        rows.filter(|(_, residual)| !(**residual <= tolerance)).map(|(row, _)| row).collect()
    }

    fn take(&mut self, rows: &Rows, row: usize) {
        let (n, id) = (rows.n, rows.id[row] as usize);
        self.x[id * n..(id + 1) * n].copy_from_slice(&rows.x[row * n..(row + 1) * n]);
        self.inversion.iterations[id] = rows.search[row].evaluations;
        self.inversion.residuals[id] = rows.search[row].residual;
    }
}
