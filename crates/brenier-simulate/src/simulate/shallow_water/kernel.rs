//! The time stepping of the shallow-water model, several basins side by side: lane l of every value belongs to basin l.
//!
//! Surface ζ and depth d live in the cells i, velocity u on the edges between cells i and i + 1, and h = d + ζ:
//!
//! ```text
//! u_t = −g ζ_x − c_d u|u|/h,   ζ_t = −(h u)_x
//! ```
//!
//! One step from level n to n + 1, with the weight w = ½ of the new level, and h̄ᵢ = (hᵢ + hᵢ₊₁)/2:
//!
//! ```text
//! u*ᵢ = uᵢ − Δt c_d uᵢ|uᵢ|/h̄ᵢ − (1 − w) Δt g (ζᵢ₊₁ − ζᵢ)/Δx
//! rᵢ  = ζᵢ − Δt/Δx (Fᵢ − Fᵢ₋₁),   Fᵢ = h̄ᵢ ((1 − w) uᵢ + w u*ᵢ)
//! (1 + cᵢ + cᵢ₋₁) ζ'ᵢ − cᵢ ζ'ᵢ₊₁ − cᵢ₋₁ ζ'ᵢ₋₁ = rᵢ,   cᵢ = w² Δt² g h̄ᵢ/Δx²
//! u'ᵢ = u*ᵢ − w Δt g (ζ'ᵢ₊₁ − ζ'ᵢ)/Δx
//! ```
//!
//! A cell is wet where d > 0.1 m, an edge is active between two wet cells; u, F and c vanish on other edges, so that dry
//! cells are walls, the surface of a dry cell stays 0 and Σᵢ ζᵢ is conserved. No lane depends on another.

use crate::kernel::{Real, vectorised};

/// Cells of a basin.
pub(crate) const CELLS: usize = 100;
/// Records of the surface: at the whole hours 0 to 100.
pub(crate) const HOURS: usize = 101;
/// Numbers in all records of one basin.
pub(crate) const AMPLITUDES: usize = HOURS * CELLS;

const STEPS_PER_HOUR: usize = 12;
/// Width of a cell in metres.
const DX: f64 = 1e4;
/// Time step in seconds.
const DT: f64 = 300.0;
/// Bottom drag.
const DRAG: f64 = 1e-3;
const GRAVITY: f64 = 9.81;
/// Weight of the new time level.
const W: f64 = 0.5;
/// Cells are wet where they are deeper than this.
const WET_ABOVE: f64 = 0.1;
/// What the first and last cell are set to: dry walls.
const WALL: f64 = -10.0;
/// The cell, from 0, that is raised at the beginning, and by how much.
const RAISED: usize = 1;
const RAISED_BY: f64 = 0.1;
/// Sweeps of the Jacobi iteration before it is given up; about 5 are needed.
const MOST_SWEEPS: usize = 10_000;

/// How the linear system of a time step is solved.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Solver {
    /// Exactly, by elimination (Thomas's algorithm).
    #[default]
    Exact,
    /// By Jacobi's iteration, as published, until no value changes by more than `tolerance` metres.
    Jacobi {
        /// 1e-6 in the published program.
        tolerance: f64,
    },
}

/// One number for each cell and lane.
pub(super) type Field<T, const L: usize> = [[T; L]; CELLS];

/// Runs `L` basins of the given depths and hands hour, surface and velocity to `record` at every whole hour.
///
/// The first and last cell are walls whatever their depth.
pub(super) fn run<T: Real, const L: usize>(
    depths: &Field<T, L>,
    solver: Solver,
    mut record: impl FnMut(usize, &Field<T, L>, &Field<T, L>),
) {
    let mut state = Box::new(State::new(depths));
    // The records show the raised cell even where it is dry and stays at rest.
    let at_rest = state.surface;
    state.surface[RAISED] = [T::from_f64(RAISED_BY); L];
    record(0, &state.surface, &state.velocity);
    for l in 0..L {
        if !(depths[RAISED][l].to_f64() > WET_ABOVE) {
            state.surface[RAISED][l] = at_rest[RAISED][l];
        }
    }
    for hour in 1..HOURS {
        match solver {
            Solver::Exact => vectorised(
                #[inline(always)]
                || {
                    // A plain loop: in a closure of its own the step would miss the instruction set.
                    for _ in 0..STEPS_PER_HOUR {
                        state.step();
                    }
                },
            ),
            Solver::Jacobi { tolerance } => {
                for step in 0..STEPS_PER_HOUR {
                    state.jacobi_step(T::from_f64(tolerance), hour == 1 && step == 0);
                }
            }
        }
        record(hour, &state.surface, &state.velocity);
    }
}

struct State<T, const L: usize> {
    depth: Field<T, L>,
    surface: Field<T, L>,
    velocity: Field<T, L>,
    /// 1 on active edges, else 0; edge i is between the cells i and i + 1, the last is never active.
    active: Field<T, L>,
    /// h̄ at rest: the mean depth of the two cells on active edges, 1 on others, where any positive number will do.
    still: Field<T, L>,
    /// e of the eliminated system ζ'ᵢ = sᵢ + eᵢ ζ'ᵢ₊₁.
    upper: Field<T, L>,
}

impl<T: Real, const L: usize> State<T, L> {
    fn new(depths: &Field<T, L>) -> Self {
        let zero = [[T::ZERO; L]; CELLS];
        let mut depth = *depths;
        depth[0] = [T::from_f64(WALL); L];
        depth[CELLS - 1] = [T::from_f64(WALL); L];
        let wet = |depth: T| depth.to_f64() > WET_ABOVE;
        let mut active = zero;
        let mut still = [[T::ONE; L]; CELLS];
        for i in 0..CELLS - 1 {
            for l in 0..L {
                if wet(depth[i][l]) && wet(depth[i + 1][l]) {
                    active[i][l] = T::ONE;
                    still[i][l] = T::from_f64(0.5) * (depth[i][l] + depth[i + 1][l]);
                }
            }
        }
        Self { depth, surface: zero, velocity: zero, active, still, upper: zero }
    }

    /// One time step with an exact solve: elimination from the first cell to the last, then back.
    ///
    /// With pᵢ = 1 + cᵢ + cᵢ₋₁ − cᵢ₋₁²/pᵢ₋₁: eᵢ = cᵢ/pᵢ, sᵢ = (rᵢ + cᵢ₋₁ sᵢ₋₁)/pᵢ, ζ'ᵢ = sᵢ + eᵢ ζ'ᵢ₊₁. One division,
    /// 1/(h̄ᵢ pᵢ), serves both 1/h̄ᵢ and 1/pᵢ, and from pᵢ₋₁ to pᵢ there are three operations: the speed of the loop. On the way
    /// forward s takes the place of ζ and u* that of u, so that 16 basins in single precision stay in the first cache.
    #[inline(always)]
    fn step(&mut self) {
        let half = T::from_f64(0.5);
        let drag = T::from_f64(-DT * DRAG);
        let pull = T::from_f64(-(1.0 - W) * DT * GRAVITY / DX);
        let new_pull = T::from_f64(-W * DT * GRAVITY / DX);
        // (1 − w) u + w u* = ½ (u + u*).
        let ratio = T::from_f64(-0.5 * DT / DX);
        let coupling = T::from_f64(DT * DT * W * W * GRAVITY / (DX * DX));
        let tiny = T::from_f64(if T::UNIT_ROUNDOFF > 1e-10 { 1e-18 } else { 1e-150 });

        // Of the edge before: flux, c, −c² h̄, 1/(h̄ p) and s.
        let (mut flux_before, mut c_before, mut taken) = ([T::ZERO; L], [T::ZERO; L], [T::ZERO; L]);
        let (mut inverse_before, mut solved_before) = ([T::ZERO; L], [T::ZERO; L]);
        for i in 0..CELLS {
            // The last edge is not active: what is beyond does not matter.
            let next_surface = self.surface[if i + 1 < CELLS { i + 1 } else { i }];
            let (surface, velocity) = (&mut self.surface[i], &mut self.velocity[i]);
            let (active, still, upper) = (&self.active[i], &self.still[i], &mut self.upper[i]);
            for l in 0..L {
                let on = active[l];
                let u = velocity[l];
                let height = half.fma(surface[l] + next_surface[l], still[l]);
                let c = on * coupling * height;
                let before = c_before[l];
                let pivot = taken[l].fma(inverse_before[l], (T::ONE + before) + c);
                let inverse = T::ONE / (height * pivot);
                let (per_height, per_pivot) = (inverse * pivot, inverse * height);
                let slope = next_surface[l] - surface[l];
                let slowed = (drag * per_height).fma(u * u.magnitude(), u);
                let star = on * pull.fma(slope, slowed);
                let flux = height * (u + star);
                let right = ratio.fma(flux - flux_before[l], surface[l]);
                let e = c * per_pivot;
                let s = before.fma(solved_before[l], right) * per_pivot;
                velocity[l] = star;
                upper[l] = e;
                surface[l] = s;
                flux_before[l] = flux;
                c_before[l] = c;
                taken[l] = -(c * c * height);
                inverse_before[l] = inverse;
                solved_before[l] = s;
            }
        }
        // Ahead of the wave the surface falls off exponentially; what could not be told from 0 is 0, since arithmetic on
        // denormal numbers is slow.
        let mut after = [T::ZERO; L];
        for i in (0..CELLS).rev() {
            let (surface, velocity) = (&mut self.surface[i], &mut self.velocity[i]);
            let (active, upper) = (&self.active[i], &self.upper[i]);
            for l in 0..L {
                let exact = upper[l].fma(after[l], surface[l]);
                let new = if exact.magnitude() > tiny { exact } else { T::ZERO };
                let u = (active[l] * new_pull).fma(after[l] - new, velocity[l]);
                surface[l] = new;
                velocity[l] = if u.magnitude() > tiny { u } else { T::ZERO };
                after[l] = new;
            }
        }
    }

    /// One time step as published, operation by operation: `first` is the very first, which starts the iteration at 0.
    fn jacobi_step(&mut self, tolerance: T, first: bool) {
        let of = T::from_f64;
        let (dt, dx, gravity, w, half) = (of(DT), of(DX), of(GRAVITY), of(W), of(0.5));
        let rest = T::ONE - w;
        for l in 0..L {
            let zeta: [T; CELLS] = std::array::from_fn(|i| self.surface[i][l]);
            let h: [T; CELLS] = std::array::from_fn(|i| self.depth[i][l] + zeta[i]);
            let active = |i: usize| self.active[i][l] > T::ZERO;
            let wet = |i: usize| self.depth[i][l].to_f64() > WET_ABOVE;
            let (mut star, mut flux, mut star_flux, mut c) =
                ([T::ZERO; CELLS], [T::ZERO; CELLS], [T::ZERO; CELLS], [T::ZERO; CELLS]);
            for i in (0..CELLS - 1).filter(|&i| active(i)) {
                let u = self.velocity[i][l];
                let mean = half * (h[i] + h[i + 1]);
                let pull = rest * dt * gravity * (zeta[i + 1] - zeta[i]) / dx;
                star[i] = u - dt * of(DRAG) / mean * u * u.magnitude() - pull;
                flux[i] = mean * u;
                star_flux[i] = mean * star[i];
                c[i] = dt * dt * w * w * gravity * half * (h[i] + h[i + 1]) / (dx * dx);
            }
            let mut right = [T::ZERO; CELLS];
            for i in (1..CELLS - 1).filter(|&i| wet(i)) {
                right[i] = -dt * rest * (flux[i] - flux[i - 1]) / dx
                    - dt * w * (star_flux[i] - star_flux[i - 1]) / dx;
            }
            let mut guess = if first { [T::ZERO; CELLS] } else { zeta };
            let mut compared = zeta;
            for _ in 0..MOST_SWEEPS {
                let mut swept = [T::ZERO; CELLS];
                let mut largest = T::ZERO;
                for i in (1..CELLS - 1).filter(|&i| wet(i)) {
                    let sum = zeta[i] + right[i] + c[i] * guess[i + 1] + c[i - 1] * guess[i - 1];
                    swept[i] = T::ONE / (T::ONE + c[i] + c[i - 1]) * sum;
                    largest = (swept[i] - compared[i]).magnitude().at_least(largest);
                }
                (guess, compared) = (swept, swept);
                if !(largest > tolerance) {
                    break;
                }
            }
            for i in 0..CELLS {
                self.surface[i][l] = guess[i];
                if active(i) {
                    self.velocity[i][l] = star[i] - w * dt * gravity * (guess[i + 1] - guess[i]) / dx;
                }
            }
        }
    }
}
