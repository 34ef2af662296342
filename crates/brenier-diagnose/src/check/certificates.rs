//! What the map is certified to do: one to one, inverted exactly, and a density that integrates to one.

use serde::Serialize;

use super::CheckSettings;
use super::pairs::Chosen;
use crate::map::{Certificate, Inversion, SampleSettings, TransportMap};
use crate::{Posterior, Result, Run};
use brenier_core::layer::repeated;

/// Draws that are carried back to their reference points where no equation was solved.
const RESIDUAL_DRAWS: usize = 2000;
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

/// How the draws of the calibration were solved for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Inversions {
    /// Draws whose residual is known.
    pub draws: usize,
    /// Draws that did not reach the tolerance.
    pub unsolved: usize,
    /// The largest ‖g⁻¹(x; y) − z‖∞.
    pub worst_residual: f64,
    /// Mean number of iterations or steps.
    pub mean_iterations: f64,
    /// The residual asked for; none where no equation is solved.
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
#[non_exhaustive]
pub struct RoundTrip {
    /// Pairs carried there and back.
    pub rows: usize,
    /// Root mean square of what is missed.
    pub rms: f64,
    /// The largest entry missed.
    pub worst: f64,
}

/// A flow's paths over some observations; see [`brenier_core::Straightness`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
pub struct Certificates {
    /// Its local stretching.
    pub spectrum: Certificate,
    /// How well its equation was solved.
    pub inversions: Inversions,
    /// There and back.
    pub round_trip: RoundTrip,
    /// How straight the paths of a flow are.
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
        run: &Run<'_>,
    ) -> Result<Self> {
        let x = model.transform_target(&chosen.target)?;
        let y = model.transform_given(&chosen.given, chosen.count)?;
        let n = model.target_names().len();
        let certify = |map: &dyn TransportMap| run.go_on().and_then(|()| map.certify(&x, &y));
        let each = model.maps().map(certify).collect::<Result<Vec<Certificate>>>()?;
        let spectrum = Certificate::of_all(&each);
        let inversions = match inversions.tolerance {
            Some(_) => inversions,
            None => residuals(model, &y, settings)?,
        };
        Ok(Self {
            spectrum,
            inversions,
            round_trip: round_trip(model, &x, &y, run)?,
            paths: paths(model, chosen, settings, run)?,
            normalisation: if n <= 2 { normalisation(model, chosen, settings, run)? } else { Vec::new() },
        })
    }
}

/// What draws that solve no equation miss their reference points by.
fn residuals(model: &Posterior, y: &[f64], settings: &CheckSettings) -> Result<Inversions> {
    let k = model.map().given_dim();
    let observations = y.len().checked_div(k).map_or(1, |rows| rows.min(RESIDUAL_DRAWS / 20));
    let how = SampleSettings { residuals: true, ..SampleSettings::default() };
    let each = RESIDUAL_DRAWS / observations;
    let given = &y[..observations * k];
    let (_, inversion) = model.attempt_standardised(given, 0, observations, each, settings.seed, &how)?;
    let mut found = Inversions::none(None);
    found.add(&inversion);
    Ok(found)
}

fn round_trip(model: &Posterior, x: &[f64], y: &[f64], run: &Run<'_>) -> Result<RoundTrip> {
    let n = model.target_names().len();
    let rows = x.len() / n;
    let (mut square, mut worst) = (0.0, 0.0);
    for map in model.maps() {
        run.go_on()?;
        let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; rows]);
        map.double().forward(x, y, &mut z, &mut log_det)?;
        let (back, _) = map.attempt(&z, y, &repeated(rows, 1), &SampleSettings::default())?;
        for (x, back) in x.iter().zip(&back) {
            let miss = (x - back).abs();
            square += miss * miss;
            if !(miss <= worst) {
                worst = miss;
            }
        }
    }
    let square = square / model.maps().len() as f64;
    Ok(RoundTrip { rows, rms: (square / x.len() as f64).sqrt(), worst })
}

fn paths(
    model: &Posterior,
    chosen: &Chosen,
    settings: &CheckSettings,
    run: &Run<'_>,
) -> Result<Option<Paths>> {
    let Some(flow) = model.map().paths() else { return Ok(None) };
    let some = chosen.spread(if model.given_names().is_empty() { 1 } else { PATH_OBSERVATIONS });
    let steps = flow.evaluation_steps();
    let all = some.place(model, run).seed(settings.seed).straightness(PATH_DRAWS, &[steps])?;
    let count = all.len() as f64;
    let sum = |of: &dyn Fn(&brenier_core::Straightness) -> f64| all.iter().map(of).sum::<f64>();
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
fn normalisation(
    model: &Posterior,
    chosen: &Chosen,
    settings: &CheckSettings,
    run: &Run<'_>,
) -> Result<Vec<Normalisation>> {
    let n = model.target_names().len();
    let some = chosen.spread(if model.given_names().is_empty() { 1 } else { INTEGRALS });
    let y = model.transform_given(&some.given, some.count)?;
    let k = y.len() / some.count;
    let how = SampleSettings::default();
    let (draws, _) = model.attempt_standardised(&y, 0, some.count, RANGE_DRAWS, settings.seed, &how)?;
    let points = if n == 1 { LINE_POINTS } else { PLANE_POINTS };
    let mut found = Vec::with_capacity(some.count);
    for place in 0..some.count {
        run.go_on()?;
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
        let density = model.log_density_at(&grid, &y[place * k..(place + 1) * k], &observation)?;
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
