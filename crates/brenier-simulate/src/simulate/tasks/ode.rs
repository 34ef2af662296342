//! Small autonomous differential equations by the Runge–Kutta pair of Dormand and Prince, order 5 with an error estimate of
//! order 4.

/// Error of a step that is accepted, absolute.
const TOLERANCE: f64 = 1e-8;
/// Steps after which an integration has failed.
const MAX_STEPS: usize = 20_000;
/// The first step, and the shortest.
const FIRST_STEP: f64 = 1e-2;
const SHORTEST_STEP: f64 = 1e-12;

const A: [[f64; 6]; 6] = [
    [1.0 / 5.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    [3.0 / 40.0, 9.0 / 40.0, 0.0, 0.0, 0.0, 0.0],
    [44.0 / 45.0, -56.0 / 15.0, 32.0 / 9.0, 0.0, 0.0, 0.0],
    [19372.0 / 6561.0, -25360.0 / 2187.0, 64448.0 / 6561.0, -212.0 / 729.0, 0.0, 0.0],
    [9017.0 / 3168.0, -355.0 / 33.0, 46732.0 / 5247.0, 49.0 / 176.0, -5103.0 / 18656.0, 0.0],
    [35.0 / 384.0, 0.0, 500.0 / 1113.0, 125.0 / 192.0, -2187.0 / 6784.0, 11.0 / 84.0],
];
/// Weights of the fifth order less those of the fourth.
const E: [f64; 7] =
    [71.0 / 57600.0, 0.0, -71.0 / 16695.0, 71.0 / 1920.0, -17253.0 / 339200.0, 22.0 / 525.0, -1.0 / 40.0];

/// The solution of u̇ = f(u), u(0) = `start`, at increasing `times`; none where it does not stay finite or takes too many
/// steps.
pub(super) fn solve<const N: usize, const T: usize>(
    f: impl Fn(&[f64; N]) -> [f64; N],
    start: [f64; N],
    times: [f64; T],
) -> Option<[[f64; N]; T]> {
    let (mut time, mut u, mut step, mut left) = (0.0, start, FIRST_STEP, MAX_STEPS);
    let mut k = [[0.0; N]; 7];
    k[0] = f(&u);
    let mut path = [[0.0; N]; T];
    for (end, state) in times.into_iter().zip(&mut path) {
        while time < end {
            left = left.checked_sub(1)?;
            let last = end - time <= step * (1.0 + 1e-10);
            let h = if last { end - time } else { step };
            let mut next = u;
            for (stage, row) in A.iter().enumerate() {
                next = u;
                for (a, k) in row.iter().zip(&k[..=stage]) {
                    next.iter_mut().zip(k).for_each(|(next, k)| *next += h * a * k);
                }
                k[stage + 1] = f(&next);
            }
            let mut error = 0.0_f64;
            for i in 0..N {
                let sum: f64 = E.iter().zip(&k).map(|(e, k)| e * k[i]).sum();
                error = error.max((h * sum).abs());
            }
            if error.is_finite() && error <= TOLERANCE {
                (time, u) = (if last { end } else { time + h }, next);
                k[0] = k[6];
            }
            let factor = match error.is_finite() {
                true => (0.9 * (TOLERANCE / error.max(1e-300)).powf(0.2)).clamp(0.2, 5.0),
                false => 0.1,
            };
            // A step that was cut short to end at an observation says little about the next one.
            if !last || error > TOLERANCE || !error.is_finite() {
                step = h * factor;
            }
            if step < SHORTEST_STEP {
                return None;
            }
        }
        *state = u;
    }
    path.iter().flatten().all(|value| value.is_finite()).then_some(path)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_and_a_decay_are_followed() {
        let path = solve(|u| [-u[1], u[0], -3.0 * u[2]], [1.0, 0.0, 2.0], [0.0, 0.5, 7.3]).unwrap();
        assert_eq!(path[0], [1.0, 0.0, 2.0]);
        for (time, state) in [(0.5_f64, path[1]), (7.3, path[2])] {
            let exact = [time.cos(), time.sin(), 2.0 * (-3.0 * time).exp()];
            assert!(state.iter().zip(exact).all(|(a, b)| (a - b).abs() < 1e-7), "{state:?} {exact:?}");
        }
    }

    #[test]
    fn a_solution_that_explodes_is_none() {
        assert_eq!(solve(|u| [u[0] * u[0]], [1.0], [2.0]), None);
        assert_eq!(solve(|_| [f64::NAN], [1.0], [2.0]), None);
    }
}
