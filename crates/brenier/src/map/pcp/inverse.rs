//! Sampling: x with ∇ₓG(x; y) = z, a smooth and strongly convex problem for every row.
//!
//! **Newton** (default). F(x) = ∇G(x) − z has the symmetric positive definite Jacobian H at hand, so x ← x − tH⁻¹F
//! with backtracking on ‖F‖ converges from anywhere. Rows run together, one evaluation a round, and drop out as
//! they converge. The first rounds are in single precision; once a row is close, double-precision gradients
//! (two columns of product a row instead of n + 2) polish it with the factor already at hand, and certify the
//! residual. Rows that do not contract so go on with Newton in double precision.
//!
//! **L-BFGS** with strong Wolfe line search on G(x) − zᵀx, the paper's choice: kept for comparison.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PcpMap;
use super::features::{Shard, Shards};
use super::rows::{ROWS, Rows};
use crate::kernel::{Real, lbfgs, spd};
use crate::map::Inversion;
use crate::map::batch::Contexts;
use crate::{Error, Result};

/// Single-precision rounds stop at this residual: the next Newton step, taken for free, squares it.
pub(super) const COARSE: f64 = 4e-2;
/// Polishing steps with a fixed factor before Newton takes over again.
const POLISH_ROUNDS: u32 = 4;

/// How ∇ₓG(x; y) = z is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Solver {
    /// Damped Newton per row.
    #[default]
    Newton,
    /// L-BFGS with a strong Wolfe line search on blocks of rows.
    Lbfgs,
}

/// Settings of the inversion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InverseSettings {
    /// The solver.
    pub solver: Solver,
    /// Largest ‖∇G − z‖∞ that counts as solved.
    pub tolerance: f64,
    /// Iterations a row may take.
    pub max_iterations: u32,
}

impl Default for InverseSettings {
    fn default() -> Self {
        Self { solver: Solver::Newton, tolerance: 1e-6, max_iterations: 200 }
    }
}

impl InverseSettings {
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

/// A trained map in both precisions, ready to be inverted.
#[derive(Clone, Debug)]
pub struct PcpInverter {
    pub(super) coarse: PcpMap<f32>,
    pub(super) fine: PcpMap<f64>,
}

impl PcpInverter {
    /// Both precisions of a trained map.
    pub fn new(map: &PcpMap<f32>) -> Self {
        Self { coarse: map.clone(), fine: map.cast() }
    }

    /// The map as it was trained.
    pub fn single(&self) -> &PcpMap<f32> {
        &self.coarse
    }

    /// The map in double precision.
    pub fn map(&self) -> &PcpMap<f64> {
        &self.fine
    }

    /// x with ∇ₓG(x; y) = z for every row z, `observation` telling which row of `given` belongs to it.
    ///
    /// Contexts are computed once per observation. A row that cannot be solved to the tolerance is an error
    /// that names it.
    pub fn invert(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        let (x, inversion) = self.attempt(z, given, observation, settings)?;
        let worst = inversion.residuals.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        match worst {
            Some((row, &residual)) if !(residual <= settings.tolerance) => Err(Error::Numerical(format!(
                "draw {} at observation {} did not converge: residual {residual:.1e} after {} iterations, \
                 tolerance {:.0e}; the observation may lie far outside the training data, or the tolerance \
                 below what double precision allows",
                row + 1,
                observation[row] + 1,
                inversion.iterations[row],
                settings.tolerance,
            ))),
            _ => Ok((x, inversion)),
        }
    }

    /// As [`invert`](Self::invert), but a row that did not converge is returned as it is, with its residual.
    pub fn attempt(
        &self,
        z: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        settings.validate()?;
        let (n, m) = (self.fine.layout.shape.target, self.fine.layout.shape.given);
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
        let fine = self.fine.context_records(given, observations);
        let mut answer = Answer {
            x: vec![0.0; count * n],
            inversion: Inversion { iterations: vec![0; count], residuals: vec![f64::INFINITY; count] },
        };
        if settings.solver == Solver::Lbfgs {
            self.lbfgs(z, &fine, observation, settings, &mut answer)?;
        } else {
            let coarse_given: Vec<f32> = given.iter().map(|&y| y as f32).collect();
            let coarse = self.coarse.context_records(&coarse_given, observations);
            let shards = Shards::new(ROWS.min(count.max(observations)));
            let mut rows = self.start(z, observation, observations, &coarse, settings, &shards);
            self.solve(&mut rows, &coarse, &fine, settings, &shards, &mut answer);
        }
        Ok((answer.x, answer.inversion))
    }

    fn solve(
        &self,
        rows: &mut Rows,
        coarse: &[f32],
        fine: &[f64],
        settings: &InverseSettings,
        shards: &Shards<f32>,
        answer: &mut Answer,
    ) {
        let coarse_tolerance = COARSE.max(settings.tolerance);
        self.coarse.newton(rows, coarse, coarse_tolerance, settings.max_iterations, shards);
        rows.take_free_step(coarse_tolerance);
        let fine_shards = Shards::new(ROWS.min(rows.len()));
        self.fine.polish(rows, fine, settings.tolerance, &fine_shards, |rows, row| answer.take(rows, row));
        if rows.len() > 0 {
            self.fine.newton(rows, fine, settings.tolerance, settings.max_iterations, &fine_shards);
        }
        for row in 0..rows.len() {
            answer.take(rows, row);
        }
    }

    fn lbfgs(
        &self,
        z: &[f64],
        records: &[f64],
        observation: &[u32],
        settings: &InverseSettings,
        answer: &mut Answer,
    ) -> Result<()> {
        let map = &self.fine;
        let (n, stride) = (map.layout.shape.target, map.layout.record);
        let spans =
            z.par_chunks(ROWS * n).zip(observation.par_chunks(ROWS)).zip(answer.x.par_chunks_mut(ROWS * n));
        let outputs = answer
            .inversion
            .iterations
            .par_chunks_mut(ROWS)
            .zip(answer.inversion.residuals.par_chunks_mut(ROWS));
        spans.zip(outputs).try_for_each_init(
            || Shard::new(map, ROWS, false),
            |shard, (((z, observation), x), (iterations, residuals))| {
                let contexts = Contexts { records, stride, index: Some(observation) };
                let count = observation.len();
                let mut objective = |x: &[f64], gradient: &mut [f64]| -> Result<f64> {
                    map.gradient(shard, contexts, x, count, true);
                    for (gradient, (value, z)) in gradient.iter_mut().zip(shard.z.iter().zip(z)) {
                        *gradient = value - z;
                    }
                    let linear: f64 = x.iter().zip(z).map(|(x, z)| x * z).sum();
                    Ok(map.potential_sum(shard, x, count) - linear)
                };
                let start = vec![0.0; count * n];
                let minimum =
                    lbfgs::minimise(&start, settings.tolerance, settings.max_iterations, &mut objective)?;
                x.copy_from_slice(&minimum.x);
                iterations.fill(minimum.iterations);
                for (residual, row) in residuals.iter_mut().zip(minimum.gradient.chunks_exact(n)) {
                    *residual = largest(row);
                }
                Ok(())
            },
        )
    }
}

struct Answer {
    x: Vec<f64>,
    inversion: Inversion,
}

impl Answer {
    fn take(&mut self, rows: &Rows, row: usize) {
        let (n, id) = (rows.n, rows.id[row] as usize);
        self.x[id * n..(id + 1) * n].copy_from_slice(&rows.x[row * n..(row + 1) * n]);
        self.inversion.iterations[id] = rows.rounds[row];
        self.inversion.residuals[id] = rows.residual[row];
    }
}

fn largest(values: &[f64]) -> f64 {
    values
        .iter()
        .fold(0.0, |most, value| if value.abs() > most || value.is_nan() { value.abs() } else { most })
}

impl<T: Real> PcpMap<T> {
    /// Context records of many observations.
    pub(super) fn context_records(&self, given: &[T], observations: usize) -> Vec<T> {
        let (m, stride) = (self.layout.shape.given, self.layout.record);
        let mut records = vec![T::ZERO; observations * stride];
        records.par_chunks_mut(ROWS * stride).enumerate().for_each(|(index, records)| {
            let count = records.len() / stride;
            self.contexts(&given[index * ROWS * m..][..count * m], records, count);
        });
        records
    }

    /// Damped Newton on all rows until each has ‖F‖∞ ≤ tolerance or cannot be improved in this precision.
    ///
    /// Finished rows rest while the others go on; in the end all are back, in no particular order, each at its
    /// best point with the factor of H there.
    pub(super) fn newton(
        &self,
        rows: &mut Rows,
        records: &[T],
        tolerance: f64,
        max_rounds: u32,
        shards: &Shards<T>,
    ) {
        let (n, stride) = (self.layout.shape.target, self.layout.record);
        rows.step.fill(0.0);
        rows.merit.fill(f64::INFINITY);
        let mut resting = Vec::new();
        for _ in 0..max_rounds {
            rows.spans().for_each_init(
                || (vec![T::ZERO; ROWS * n], vec![0.0; n]),
                |(trial, misfit), span| {
                    shards.with(self, |shard| {
                        let count = span.observation.len();
                        for (i, trial) in trial[..count * n].iter_mut().enumerate() {
                            *trial = T::from_f64(span.x[i] + span.step[i / n] * span.direction[i]);
                        }
                        let contexts = Contexts { records, stride, index: Some(span.observation) };
                        self.evaluate(shard, contexts, trial, count);
                        for b in 0..count {
                            let row = b * n..(b + 1) * n;
                            for (misfit, (z, target)) in
                                misfit.iter_mut().zip(shard.z[row.clone()].iter().zip(&span.z[row.clone()]))
                            {
                                *misfit = z.to_f64() - target;
                            }
                            let merit: f64 = misfit.iter().map(|f| f * f).sum();
                            span.rounds[b] += 1;
                            let usable = merit.is_finite() && shard.log_det[b].is_finite();
                            if usable && merit <= span.merit[b] * (1.0 - 1e-4 * span.step[b]) {
                                for (x, trial) in span.x[row.clone()].iter_mut().zip(&trial[row.clone()]) {
                                    *x = trial.to_f64();
                                }
                                span.merit[b] = merit;
                                span.residual[b] = largest(misfit);
                                let square = b * n * n..(b + 1) * n * n;
                                span.factor[square.clone()].copy_from_slice(&shard.factor[square.clone()]);
                                let direction = &mut span.direction[row];
                                for (direction, misfit) in direction.iter_mut().zip(misfit.iter()) {
                                    *direction = -misfit;
                                }
                                spd::solve(&span.factor[square], direction);
                                span.step[b] = 1.0;
                            } else {
                                span.step[b] *= 0.5;
                            }
                        }
                    })
                },
            );
            // A start that cannot be evaluated at all halves a zero step for ever: it is given up as well.
            let stuck = |rows: &Rows, row: usize| rows.step[row] < 1e-6;
            let finished: Vec<bool> =
                (0..rows.len()).map(|row| rows.residual[row] <= tolerance || stuck(rows, row)).collect();
            resting.push(rows.take_where(&finished));
            if rows.len() == 0 {
                break;
            }
        }
        for rested in resting {
            rows.append(rested);
        }
    }

    /// Double-precision gradient steps with the factor at hand, x ← x − (LLᵀ)⁻¹F, while they contract.
    fn polish(
        &self,
        rows: &mut Rows,
        records: &[T],
        tolerance: f64,
        shards: &Shards<T>,
        mut done: impl FnMut(&Rows, usize),
    ) {
        let (n, stride) = (self.layout.shape.target, self.layout.record);
        let mut leftover = Vec::new();
        for round in 0..POLISH_ROUNDS {
            if rows.len() == 0 {
                break;
            }
            rows.spans().for_each_init(
                || vec![T::ZERO; ROWS * n],
                |point, span| {
                    shards.with(self, |shard| {
                        let count = span.observation.len();
                        for (point, &x) in point.iter_mut().zip(span.x.iter()) {
                            *point = T::from_f64(x);
                        }
                        let contexts = Contexts { records, stride, index: Some(span.observation) };
                        self.gradient(shard, contexts, point, count, false);
                        for b in 0..count {
                            let row = b * n..(b + 1) * n;
                            let direction = &mut span.direction[row.clone()];
                            for (direction, (z, target)) in direction
                                .iter_mut()
                                .zip(shard.z[row.clone()].iter().zip(&span.z[row.clone()]))
                            {
                                *direction = target - z.to_f64();
                            }
                            let residual = largest(direction);
                            span.rounds[b] += 1;
                            // step < 0 marks a row that stopped contracting.
                            span.step[b] =
                                if round > 0 && !(residual < 0.5 * span.residual[b]) { -1.0 } else { 1.0 };
                            span.residual[b] = residual;
                            if residual > tolerance && span.step[b] > 0.0 {
                                spd::solve(&span.factor[b * n * n..(b + 1) * n * n], direction);
                                for (x, d) in span.x[row].iter_mut().zip(direction.iter()) {
                                    *x += *d;
                                }
                            }
                        }
                    })
                },
            );
            for row in 0..rows.len() {
                if rows.residual[row] <= tolerance {
                    done(rows, row);
                }
            }
            let solved: Vec<bool> = rows.residual.iter().map(|&residual| residual <= tolerance).collect();
            rows.retain(|row| !solved[row]);
            let stalled: Vec<bool> = rows.step.iter().map(|&step| !(step > 0.0)).collect();
            if stalled.iter().any(|&stalled| stalled) {
                leftover.push(rows.take_where(&stalled));
            }
        }
        for rested in leftover {
            rows.append(rested);
        }
    }
}
