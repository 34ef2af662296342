//! What maps that integrate a differential equation share: the Runge–Kutta scheme, draws and their residuals.

use super::batch::{misses, not_finite};
use super::convex::Precision;
use super::transport::narrow;
use super::{ConditionalMap, Inversion, SampleSettings};
use crate::kernel::Real;
use crate::{Error, Result};

/// c_s, and a_s, of the classical Runge–Kutta scheme.
pub(super) const NODES: [f64; 4] = [0.0, 0.5, 0.5, 1.0];
/// b_s.
pub(super) const WEIGHTS: [f64; 4] = [1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0];

/// Most Runge–Kutta steps we are willing to take.
const MOST_STEPS: usize = 1 << 20;

/// An error unless the setting `name` is a sensible number of steps.
pub(super) fn check_steps(name: &str, steps: usize) -> Result<()> {
    match steps {
        1..=MOST_STEPS => Ok(()),
        _ => Err(Error::setting(name, format!("{steps} is not between 1 and {MOST_STEPS}"))),
    }
}

/// From the data at t = 0 to the reference at t = 1 or back, and in how many steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Journey {
    pub(super) to_data: bool,
    pub(super) steps: usize,
}

impl Journey {
    /// From the data to the reference.
    pub(super) fn to_reference(steps: usize) -> Self {
        Self { to_data: false, steps }
    }

    /// From the reference back to the data.
    pub(super) fn to_data(steps: usize) -> Self {
        Self { to_data: true, steps }
    }
}

/// A map whose points travel along the solutions of a differential equation.
pub(super) trait Flow<T: Real>: ConditionalMap<T> {
    /// Steps of densities and draws.
    fn evaluation_steps(&self) -> usize;

    /// The end of every row's journey; `observation` says which row of `given` belongs to it. Rows that leave the finite numbers on
    /// the way are returned as they are.
    fn carry(&self, start: &[T], given: &[T], observation: &[u32], journey: Journey) -> Result<Vec<T>>;
}

/// The error of a row, from 0, whose trajectory left the finite numbers.
pub(super) fn broken_trajectory(row: usize) -> Error {
    Error::Numerical(format!(
        "row {}: the trajectory of the flow is not finite (a value far outside the training data, or weights that \
         diverged)",
        row + 1
    ))
}

/// The draws of every row, or an error that names the first that is not finite.
pub(super) fn arrived<T: Real>(ends: Vec<T>, n: usize) -> Result<Vec<T>> {
    match not_finite(&ends, n).first() {
        None => Ok(ends),
        Some(&row) => Err(broken_trajectory(row as usize)),
    }
}

/// ‖z − z(x)‖∞ of every row: what the way back from x misses z by, in `steps` steps and in the map's precision.
pub(super) fn residuals<T: Real>(
    map: &impl Flow<T>,
    x: &[T],
    z: &[T],
    given: &[T],
    observation: &[u32],
    steps: usize,
) -> Result<Vec<f64>> {
    let back = map.carry(x, given, observation, Journey::to_reference(steps))?;
    if z.len() != back.len() {
        return Err(Error::Shape {
            what: "reference points",
            expected: format!("{} numbers", back.len()),
            got: z.len().to_string(),
        });
    }
    Ok(misses(&back, z, map.target_dim()))
}

/// Draws by the trained map, or by its copy in double precision where that is asked for.
pub(super) fn draw(
    single: &impl Flow<f32>,
    double: &impl Flow<f64>,
    z: &[f64],
    given: &[f64],
    observation: &[u32],
    settings: &SampleSettings,
    title: &str,
) -> Result<(Vec<f64>, Inversion)> {
    settings.only(&["steps", "precision"], title)?;
    let steps = settings.steps.unwrap_or(double.evaluation_steps());
    let journey = Journey::to_data(steps);
    let x = match settings.precision {
        Some(Precision::Double) => double.carry(z, given, observation, journey)?,
        // Single precision rounds far below what the steps leave of the flow.
        Some(Precision::Mixed) | None => {
            let x = single.carry(&narrow(z), &narrow(given), observation, journey)?;
            x.into_iter().map(f64::from).collect()
        }
    };
    let n = double.target_dim();
    let x = if settings.skip_unsolved { x } else { arrived(x, n)? };
    let unsolved = not_finite(&x, n);
    let residuals = match settings.residuals {
        true => residuals(double, &x, z, given, observation, steps)?,
        false => Vec::new(),
    };
    let iterations = vec![steps as u32; observation.len()];
    Ok((x, Inversion { iterations, residuals, unsolved }))
}
