//! What maps that integrate a differential equation share: the Runge–Kutta scheme, draws and their residuals.

use super::batch::{misses, not_finite};
use super::convex::Precision;
use super::method::MethodInfo;
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

/// What a [`Flow`] of either precision offers everyone: draws, and by how much the way back misses their start.
macro_rules! journeys {
    () => {
        /// x carried to every row z, `observation` telling which row of `given` belongs to it, in `steps` steps.
        ///
        /// What y alone decides is computed once per observation. In single precision rounding moves a draw by some 1e-6, far
        /// less than a step of the scheme does for the few steps a straight flow needs; [`residuals`](Self::residuals) tells.
        pub fn draw(
            &self,
            z: &[T],
            given: &[T],
            observation: &[u32],
            steps: usize,
        ) -> $crate::Result<Vec<T>> {
            let ends = $crate::map::ode::Flow::carry(self, z, given, observation, Journey::to_data(steps))?;
            $crate::map::ode::arrived(ends, self.layout.shape.target)
        }

        /// ‖z − z(x)‖∞ of every row: what the way back from x misses z by, in `steps` steps and in the map's precision.
        pub fn residuals(
            &self,
            x: &[T],
            z: &[T],
            given: &[T],
            observation: &[u32],
            steps: usize,
        ) -> $crate::Result<Vec<f64>> {
            $crate::map::ode::residuals(self, x, z, given, observation, steps)
        }
    };
}
pub(super) use journeys;

/// Draws and densities at observations of a trained flow, whose fields are `single` and `double`.
macro_rules! travels {
    ($method:expr) => {
        fn draw(
            &self,
            z: &[f64],
            given: &[f64],
            observation: &[u32],
            settings: &$crate::map::SampleSettings,
        ) -> $crate::Result<(Vec<f64>, $crate::map::Inversion)> {
            $crate::map::ode::draw(&self.single, &self.double, z, given, observation, settings, $method)
        }

        fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> $crate::Result<Vec<f64>> {
            use $crate::map::narrow;
            let mut out = vec![0.0; observation.len()];
            let steps = self.double.settings().evaluation_steps;
            self.single.log_density_at(&narrow(x), &narrow(given), observation, steps, &mut out)?;
            Ok(out)
        }
    };
}
pub(super) use travels;

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

/// Steps of the first integration of a draw of a given accuracy, repeatedly doubled, and of the last.
const FIRST_STEPS: usize = 2;
const LAST_STEPS: usize = 1024;
/// Where steps are short, a scheme of fourth order moves this many times less with every doubling.
const PER_DOUBLING: f64 = 16.0;

/// Rows z carried to the data, each in as few steps, repeatedly doubled, as its accuracy needs, and how many these were.
///
/// A draw of N steps is accurate enough if it moved by at most the accuracy from N/2 to N steps, and by at most sixteen times as much
/// from N/4 to N/2: two coarse draws may be close by accident. Where steps are short, the error is then 1/15 of the accuracy.
/// Rows that [`LAST_STEPS`] are not enough for come back as they are, with twice that number.
fn carry_accurately<T: Real>(
    map: &impl Flow<T>,
    z: &[T],
    given: &[T],
    observation: &[u32],
    accuracy: f64,
) -> Result<(Vec<T>, Vec<u32>)> {
    let n = map.target_dim();
    let mut x = map.carry(z, given, observation, Journey::to_data(FIRST_STEPS))?;
    let mut taken = vec![2 * LAST_STEPS as u32; observation.len()];
    let mut moved = vec![f64::INFINITY; observation.len()];
    // Rows that are still open, and what leads there.
    let mut open: Vec<usize> = (0..observation.len()).collect();
    let (mut z, mut observation) = (z.to_vec(), observation.to_vec());
    let mut steps = 2 * FIRST_STEPS;
    while !open.is_empty() && steps <= LAST_STEPS {
        let finer = map.carry(&z, given, &observation, Journey::to_data(steps))?;
        let mut left = Vec::new();
        for (place, (&row, finer)) in open.iter().zip(finer.chunks_exact(n)).enumerate() {
            let own = &mut x[row * n..(row + 1) * n];
            let before = std::mem::replace(&mut moved[row], misses(finer, own, n)[0]);
            own.copy_from_slice(finer);
            if moved[row] <= accuracy && before <= PER_DOUBLING * accuracy {
                taken[row] = steps as u32;
            } else {
                left.push(place);
            }
        }
        z = left.iter().flat_map(|&place| &z[place * n..(place + 1) * n]).copied().collect();
        observation = left.iter().map(|&place| observation[place]).collect();
        open = left.into_iter().map(|place| open[place]).collect();
        steps *= 2;
    }
    Ok((x, taken))
}

/// The fields of [`SampleSettings`] that draws of a flow know.
pub(super) const DRAW_SETTINGS: &[&str] = &["steps", "accuracy", "precision"];

/// Draws by the trained map, or by its copy in double precision where that is asked for or needed.
pub(super) fn draw(
    single: &impl Flow<f32>,
    double: &impl Flow<f64>,
    z: &[f64],
    given: &[f64],
    observation: &[u32],
    settings: &SampleSettings,
    method: &MethodInfo,
) -> Result<(Vec<f64>, Inversion)> {
    settings.only(method)?;
    let in_double = match settings.precision {
        Some(precision) => precision == Precision::Double,
        // Single precision rounds far below what a fixed number of steps leaves of the flow, but knows no error bound.
        None => settings.accuracy.is_some(),
    };
    let widened = |x: Vec<f32>| x.into_iter().map(f64::from).collect::<Vec<f64>>();
    let steps = settings.steps.unwrap_or(double.evaluation_steps());
    let (mut x, iterations) = match settings.accuracy {
        None => {
            let journey = Journey::to_data(steps);
            let x = match in_double {
                true => double.carry(z, given, observation, journey)?,
                false => widened(single.carry(&narrow(z), &narrow(given), observation, journey)?),
            };
            (x, vec![steps as u32; observation.len()])
        }
        Some(_) if settings.steps.is_some() => {
            return Err(Error::setting("accuracy", "chooses the steps itself: leave out one of the two"));
        }
        Some(accuracy) if accuracy > 0.0 && accuracy < 1.0 => match in_double {
            true => carry_accurately(double, z, given, observation, accuracy)?,
            false => {
                let (x, taken) = carry_accurately(single, &narrow(z), &narrow(given), observation, accuracy)?;
                (widened(x), taken)
            }
        },
        Some(accuracy) => return Err(Error::outside("accuracy", accuracy, "above 0 and below 1")),
    };
    let n = double.target_dim();
    if !settings.skip_unsolved {
        x = arrived(x, n)?;
    }
    if let Some(accuracy) = settings.accuracy {
        let missed = (0..observation.len()).filter(|&row| iterations[row] > LAST_STEPS as u32);
        for row in missed {
            if !settings.skip_unsolved {
                return Err(Error::Numerical(format!(
                    "draw {}: {LAST_STEPS} steps are not enough for an accuracy of {accuracy:e}: ask for less, or \
                     for double precision",
                    row + 1
                )));
            }
            x[row * n..(row + 1) * n].fill(f64::NAN);
        }
    }
    let unsolved = not_finite(&x, n);
    let residuals = match settings.residuals {
        true => {
            let most =
                iterations.iter().max().map_or(steps, |&most| (most as usize).min(LAST_STEPS.max(steps)));
            residuals(double, &x, z, given, observation, most)?
        }
        false => Vec::new(),
    };
    Ok((x, Inversion { iterations, residuals, unsolved }))
}
