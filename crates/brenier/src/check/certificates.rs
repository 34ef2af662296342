//! What the map is certified to do: one to one, inverted exactly, and a density that integrates to one.

use faer::{Mat, Side};
use rayon::prelude::*;
use serde::Serialize;

use super::CheckSettings;
use super::pairs::Chosen;
use crate::map::{Inversion, SampleSettings, TrainedMap};
use crate::posterior::repeated;
use crate::{Error, Posterior, Result};

/// Evaluations that the finite differences of a flow may take.
const DIFFERENCES: usize = 8192;
/// Step of the central differences, in standardised coordinates.
const STEP: f64 = 1e-4;
/// Draws whose way back a flow is asked for.
const FLOW_DRAWS: usize = 2000;
/// Observations at which paths are looked at, and draws at each.
const PATH_OBSERVATIONS: usize = 8;
const PATH_DRAWS: usize = 100;
/// Observations at which the density is integrated.
const INTEGRALS: usize = 3;
/// Grid points a column: even numbers of intervals, so that every second point is a grid again.
const LINE_POINTS: usize = 2001;
const PLANE_POINTS: usize = 241;
/// Draws that tell where the density is.
const RANGE_DRAWS: usize = 512;

/// The local stretching of the map x ↦ z over the held-out pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spectrum {
    /// Pairs looked at.
    pub rows: usize,
    /// PCP-Map: the smallest eigenvalue of ∇²ₓG, positive where the map is one to one. COT-Flow: the smallest singular
    /// value of ∂z/∂x, by central differences.
    pub smallest: f64,
    /// The largest.
    pub largest: f64,
    /// The largest ratio of both at one pair.
    pub condition: f64,
    /// PCP-Map: b of ∇²ₓG ⪰ b I, a bound for all x and y.
    pub bound: Option<f64>,
    /// COT-Flow: the largest difference between the integrated log-determinant and that of the differences.
    pub log_det_error: Option<f64>,
}

/// How the draws of the calibration were solved for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Inversions {
    /// Draws whose residual is known.
    pub draws: usize,
    /// Draws that did not reach the tolerance.
    pub unsolved: usize,
    /// The largest ‖g⁻¹(x; y) − z‖∞.
    pub worst_residual: f64,
    /// Mean number of iterations (PCP-Map) or steps (COT-Flow).
    pub mean_iterations: f64,
    /// The residual asked for; none for a COT-Flow, whose steps decide.
    pub tolerance: Option<f64>,
}

impl Inversions {
    pub(super) fn none(tolerance: Option<f64>) -> Self {
        Self { draws: 0, unsolved: 0, worst_residual: 0.0, mean_iterations: 0.0, tolerance }
    }

    pub(super) fn add(&mut self, inversion: &Inversion) {
        let total = self.mean_iterations * self.draws as f64;
        let more: f64 = inversion.iterations.iter().map(|&count| f64::from(count)).sum();
        self.draws += inversion.iterations.len();
        self.mean_iterations = (total + more) / self.draws.max(1) as f64;
        for &residual in &inversion.residuals {
            if !(residual <= self.tolerance.unwrap_or(f64::INFINITY)) {
                self.unsolved += 1;
            }
            if !(residual <= self.worst_residual) {
                self.worst_residual = residual;
            }
        }
    }
}

/// x → z → x, in standardised coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Pairs carried there and back.
    pub rows: usize,
    /// Root mean square of what is missed.
    pub rms: f64,
    /// The largest entry missed.
    pub worst: f64,
}

/// A flow's paths over some observations; see [`crate::Straightness`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Paths {
    /// Observations looked at.
    pub observations: usize,
    /// Transport cost over that of straight lines between the same ends; 1 for straight paths.
    pub cost_ratio: f64,
    /// Mean Hamilton–Jacobi–Bellman residual; 0 on optimal paths.
    pub hjb: f64,
    /// Steps that draws take.
    pub steps: usize,
    /// Root mean square change of a draw, in standard deviations of the draws, when the steps are doubled.
    pub step_error: f64,
}

/// ∫ π(x | y) dx at one observation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Normalisation {
    /// Row of the table, from 0.
    pub row: usize,
    /// The integral, by the trapezoidal rule.
    pub integral: f64,
    /// Its change from a grid of twice the spacing: what the grid does not resolve.
    pub resolution: f64,
}

/// What the map is certified to do, in the standardised coordinates it works in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Certificates {
    /// Its local stretching.
    pub spectrum: Spectrum,
    /// How well its equation was solved.
    pub inversions: Inversions,
    /// There and back.
    pub round_trip: RoundTrip,
    /// COT-Flow: how straight its paths are.
    pub paths: Option<Paths>,
    /// The total mass at some observations, where there are one or two target columns.
    pub normalisation: Vec<Normalisation>,
}

impl Certificates {
    pub(super) fn measure(
        model: &Posterior,
        chosen: &Chosen,
        inversions: Inversions,
        settings: &CheckSettings,
    ) -> Result<Self> {
        let x = model.transform_target(&chosen.target)?;
        let y = model.transform_given(&chosen.given, chosen.count)?;
        let n = model.target_names().len();
        let (spectrum, inversions) = match model.map() {
            TrainedMap::PcpMap(inverter) => {
                let map = inverter.map();
                let (_, hessians) = map.potential_and_hessian(&x, &y)?;
                let (smallest, largest, condition) = extremes(&hessians, n, eigenvalues)?;
                let bound = Some(map.strong_convexity());
                let rows = chosen.count;
                (Spectrum { rows, smallest, largest, condition, bound, log_det_error: None }, inversions)
            }
            TrainedMap::CotFlow { .. } => (jacobians(model, &x, &y)?, flow_residuals(model, &y, settings)?),
        };
        Ok(Self {
            spectrum,
            inversions,
            round_trip: round_trip(model, &x, &y)?,
            paths: paths(model, chosen, settings)?,
            normalisation: if n <= 2 { normalisation(model, chosen, settings)? } else { Vec::new() },
        })
    }
}

/// Smallest and largest value of all n × n matrices, and the largest ratio within one.
fn extremes(
    matrices: &[f64],
    n: usize,
    values: fn(&[f64], usize) -> Result<Vec<f64>>,
) -> Result<(f64, f64, f64)> {
    let each: Vec<(f64, f64)> = matrices
        .par_chunks_exact(n * n)
        .map(|matrix| {
            let values = values(matrix, n)?;
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Ok((low, high))
        })
        .collect::<Result<_>>()?;
    let low = each.iter().map(|pair| pair.0).fold(f64::INFINITY, f64::min);
    let high = each.iter().map(|pair| pair.1).fold(f64::NEG_INFINITY, f64::max);
    let condition = each.iter().map(|pair| pair.1 / pair.0.abs()).fold(0.0, f64::max);
    Ok((low, high, condition))
}

fn eigenvalues(matrix: &[f64], n: usize) -> Result<Vec<f64>> {
    let matrix = Mat::from_fn(n, n, |i, j| matrix[i + j * n]);
    let failed = |_| Error::Numerical("the eigenvalues of a Hessian did not converge".to_owned());
    matrix.self_adjoint_eigenvalues(Side::Lower).map_err(failed)
}

fn singular_values(matrix: &[f64], n: usize) -> Result<Vec<f64>> {
    let matrix = Mat::from_fn(n, n, |i, j| matrix[i + j * n]);
    let failed = |_| Error::Numerical("the singular values of a Jacobian did not converge".to_owned());
    matrix.singular_values().map_err(failed)
}

/// ∂z/∂x of a flow by central differences, on as many pairs as are affordable.
fn jacobians(model: &Posterior, x: &[f64], y: &[f64]) -> Result<Spectrum> {
    let map = model.map().double();
    let (n, k) = (map.target_dim(), map.given_dim());
    let rows = (DIFFERENCES / (2 * n)).clamp(1, x.len() / n);
    let (x, y) = (&x[..rows * n], &y[..rows * k]);
    let mut jacobians = vec![0.0; rows * n * n];
    let mut ends = [vec![0.0; rows * n], vec![0.0; rows * n]];
    let mut log_det = vec![0.0; rows];
    for j in 0..n {
        for (end, step) in ends.iter_mut().zip([STEP, -STEP]) {
            let mut moved = x.to_vec();
            moved.iter_mut().skip(j).step_by(n).for_each(|x| *x += step);
            map.forward(&moved, y, end, &mut log_det)?;
        }
        for row in 0..rows {
            for i in 0..n {
                let difference = ends[0][row * n + i] - ends[1][row * n + i];
                jacobians[row * n * n + i + j * n] = difference / (2.0 * STEP);
            }
        }
    }
    let (smallest, largest, condition) = extremes(&jacobians, n, singular_values)?;
    map.forward(x, y, &mut ends[0], &mut log_det)?;
    let mut worst = 0.0;
    for (matrix, log_det) in jacobians.chunks_exact(n * n).zip(&log_det) {
        let sum: f64 = singular_values(matrix, n)?.iter().map(|value| value.ln()).sum();
        let error = (sum - log_det).abs();
        if !(error <= worst) {
            worst = error;
        }
    }
    Ok(Spectrum { rows, smallest, largest, condition, bound: None, log_det_error: Some(worst) })
}

/// What a flow's draws miss their reference points by.
fn flow_residuals(model: &Posterior, y: &[f64], settings: &CheckSettings) -> Result<Inversions> {
    let k = model.map().double().given_dim();
    let observations = y.len().checked_div(k).map_or(1, |rows| rows.min(FLOW_DRAWS / 20));
    let how = SampleSettings { residuals: true, ..SampleSettings::default() };
    let each = FLOW_DRAWS / observations;
    let given = &y[..observations * k];
    let (_, inversion) = model.attempt_standardised(given, 0, observations, each, settings.seed, &how)?;
    let mut found = Inversions::none(None);
    found.add(&inversion);
    Ok(found)
}

fn round_trip(model: &Posterior, x: &[f64], y: &[f64]) -> Result<RoundTrip> {
    let n = model.target_names().len();
    let rows = x.len() / n;
    let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; rows]);
    model.map().double().forward(x, y, &mut z, &mut log_det)?;
    let (back, _) = model.map().attempt(&z, y, &repeated(rows, 1), &SampleSettings::default())?;
    let (mut square, mut worst) = (0.0, 0.0);
    for (x, back) in x.iter().zip(&back) {
        let miss = (x - back).abs();
        square += miss * miss;
        if !(miss <= worst) {
            worst = miss;
        }
    }
    Ok(RoundTrip { rows, rms: (square / x.len() as f64).sqrt(), worst })
}

fn paths(model: &Posterior, chosen: &Chosen, settings: &CheckSettings) -> Result<Option<Paths>> {
    let Some(flow) = model.map().flow() else { return Ok(None) };
    let some = chosen.spread(if model.given_names().is_empty() { 1 } else { PATH_OBSERVATIONS });
    let steps = flow.settings().evaluation_steps;
    let all = model.straightness(&some.given, some.count, PATH_DRAWS, settings.seed, &[steps])?;
    let count = all.len() as f64;
    let sum = |of: &dyn Fn(&crate::Straightness) -> f64| all.iter().map(of).sum::<f64>();
    let squares = sum(&|s| s.steps.iter().map(|error| error.rms * error.rms).sum());
    Ok(Some(Paths {
        observations: all.len(),
        cost_ratio: sum(&|s| s.transport) / sum(&|s| s.straight_line).max(f64::MIN_POSITIVE),
        hjb: sum(&|s| s.hjb) / count,
        steps,
        step_error: (squares / count).sqrt(),
    }))
}

/// The integral of the density over a box one half wider on every side than where draws fall.
fn normalisation(model: &Posterior, chosen: &Chosen, settings: &CheckSettings) -> Result<Vec<Normalisation>> {
    let n = model.target_names().len();
    let some = chosen.spread(if model.given_names().is_empty() { 1 } else { INTEGRALS });
    let y = model.transform_given(&some.given, some.count)?;
    let k = y.len() / some.count;
    let how = SampleSettings::default();
    let (draws, _) = model.attempt_standardised(&y, 0, some.count, RANGE_DRAWS, settings.seed, &how)?;
    let points = if n == 1 { LINE_POINTS } else { PLANE_POINTS };
    let mut found = Vec::with_capacity(some.count);
    for place in 0..some.count {
        let drawn = &draws[place * RANGE_DRAWS * n..(place + 1) * RANGE_DRAWS * n];
        let axes: Vec<(f64, f64)> = (0..n)
            .map(|j| {
                let column = drawn.iter().skip(j).step_by(n);
                let (low, high) =
                    column.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
                let margin = 0.5 * (high - low).max(1e-6);
                (low - margin, (high - low + 2.0 * margin) / (points - 1) as f64)
            })
            .collect();
        let at = |i: usize, j: usize| axes[j].0 + axes[j].1 * i as f64;
        let grid: Vec<f64> = match n {
            1 => (0..points).map(|i| at(i, 0)).collect(),
            _ => (0..points)
                .flat_map(|i| (0..points).flat_map(move |j| [i, j]))
                .collect::<Vec<_>>()
                .chunks_exact(2)
                .flat_map(|place| [at(place[0], 0), at(place[1], 1)])
                .collect(),
        };
        let observation = vec![0; grid.len() / n];
        let density = model.map().log_density_at(&grid, &y[place * k..(place + 1) * k], &observation)?;
        let cell: f64 = axes.iter().map(|axis| axis.1).product();
        // At the ends of the box the density is negligible, so that ends need no weights of their own.
        let sum = |every: usize| -> f64 {
            let line = (0..points).step_by(every);
            let values = match n {
                1 => line.map(|i| density[i].exp()).sum::<f64>(),
                _ => line
                    .map(|i| (0..points).step_by(every).map(|j| density[i * points + j].exp()).sum::<f64>())
                    .sum(),
            };
            values * cell * every.pow(n as u32) as f64
        };
        let (fine, coarse) = (sum(1), sum(2));
        found.push(Normalisation {
            row: some.rows[place],
            integral: fine,
            resolution: (fine - coarse).abs(),
        });
    }
    Ok(found)
}
