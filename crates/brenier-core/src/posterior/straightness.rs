//! How straight a flow's paths are, and so how few steps its draws need.
//!
//! On the optimal paths every point moves along a straight line at constant speed: the transport cost
//! ∫½‖∇ₓΦ‖² dt equals ½‖x(1) − x(0)‖², the Hamilton–Jacobi–Bellman residual vanishes, and one Runge–Kutta step is
//! exact. Elsewhere the cost is larger, and the change of a draw from n_t to 2·n_t steps tells what n_t leaves.

use serde::Serialize;

use super::{At, Posterior};
use crate::map::SampleSettings;
use crate::statistics::{mean, moments};
use crate::{Error, Result};

/// What the paths of a flow cost, averaged over draws, in the standardised coordinates of the map.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Straightness {
    /// E ∫½‖∇ₓΦ‖² dt.
    pub transport: f64,
    /// E ½‖x(1) − x(0)‖², the cost of straight lines between the same ends.
    pub straight_line: f64,
    /// E ∫|−∂ₜΦ + ½‖∇ₓΦ‖²| dt.
    pub hjb: f64,
    /// What each number of steps leaves.
    pub steps: Vec<StepError>,
}

/// The difference between draws with n_t and with 2·n_t steps from the same reference points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepError {
    /// n_t.
    pub steps: usize,
    /// Root mean square over draws and columns, in standard deviations of the draws of a column.
    pub rms: f64,
    /// The largest, in the same units.
    pub worst: f64,
}

impl Posterior {
    /// The straightness of the paths at each of `observations` rows of `given`, over `draws` draws each.
    ///
    /// An error for a map without paths. Of an ensemble, those of its first member.
    pub fn straightness(
        &self,
        given: &[f64],
        observations: usize,
        draws: usize,
        seed: u64,
        steps: &[usize],
    ) -> Result<Vec<Straightness>> {
        self.at_rows(given, observations).seed(seed).straightness(draws, steps)
    }
}

impl At<'_> {
    /// The straightness of the paths at each observation, over `draws` draws each; see [`Posterior::straightness`].
    pub fn straightness(&self, draws: usize, steps: &[usize]) -> Result<Vec<Straightness>> {
        let posterior = self.posterior;
        let flow = posterior.map().paths().ok_or_else(|| {
            let title = posterior.method().title();
            Error::setting("model", format!("has no paths ({title}); only flows have"))
        })?;
        if draws < 2 {
            return Err(Error::setting("draws", "straightness needs at least 2"));
        }
        // All at once, so that an error names the row.
        let given = posterior.transform_given(&self.given, self.observations)?;
        let k = posterior.header.given_transform.output_dim();
        let n = posterior.header.target_transform.dim();
        let observation = vec![0; draws];
        let mut reports = Vec::with_capacity(self.observations);
        for o in 0..self.observations {
            let y = &given[o * k..(o + 1) * k];
            // Flows have a Gaussian reference.
            let z = posterior.normals_from(0, 1, draws, self.seed.wrapping_add(o as u64));
            let draw = |steps: usize| {
                self.stop.go_on()?;
                let settings = SampleSettings { steps: Some(steps), ..SampleSettings::default() };
                posterior.map().draw(&z, y, &observation, &settings).map(|(x, _)| x)
            };
            let evaluation = flow.evaluation_steps();
            let x = draw(evaluation)?;
            let spread: Vec<f64> = (0..draws).flat_map(|_| y.iter().copied()).collect();
            let mut back = vec![0.0; draws * n];
            let costs = flow.costs(&x, &spread, evaluation, &mut back)?;
            let squares = x.iter().zip(&back).map(|(x, z)| 0.5 * (x - z) * (x - z)).sum::<f64>();
            let deviations = deviations(&x, n);
            let mut errors = Vec::with_capacity(steps.len());
            for &steps in steps {
                let twice = steps.checked_mul(2).ok_or_else(|| Error::setting("steps", "too many"))?;
                let (coarse, fine) = (draw(steps)?, draw(twice)?);
                let misses = coarse.chunks_exact(n).zip(fine.chunks_exact(n)).flat_map(|(coarse, fine)| {
                    let columns = coarse.iter().zip(fine).zip(&deviations);
                    columns.map(|((coarse, fine), deviation)| (coarse - fine).abs() / deviation)
                });
                let (square, worst) = misses
                    .fold((0.0, 0.0), |(sum, worst): (f64, f64), miss| (sum + miss * miss, worst.max(miss)));
                errors.push(StepError { steps, rms: (square / (draws * n) as f64).sqrt(), worst });
            }
            reports.push(Straightness {
                transport: mean(&costs.transport),
                straight_line: squares / draws as f64,
                hjb: mean(&costs.hjb),
                steps: errors,
            });
        }
        Ok(reports)
    }
}

/// Standard deviations of the columns of rows of `n`; at least the smallest positive number.
fn deviations(rows: &[f64], n: usize) -> Vec<f64> {
    let column = |j: usize| rows.iter().skip(j).step_by(n).copied();
    (0..n).map(|j| moments(column(j)).1.max(f64::MIN_POSITIVE)).collect()
}
