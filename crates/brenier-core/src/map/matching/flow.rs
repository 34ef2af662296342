//! The trajectory: Runge–Kutta steps of dx/dt = v(t, x; y), alone or with what a density needs.
//!
//! Steps are short where the data are: t_k = (k/N)², because the field bends most next to sharp posteriors. Beside x a
//! row can carry ℓ = log det J with J = ∂x(t)/∂x(0), and its gradient γ in x(0):
//!
//! dℓ/dt = div v,   dJ/dt = (∂v/∂x) J,   dγ/dt = Jᵀ∇ div v.
//!
//! A Runge–Kutta step of these equations is the derivative of a step of the first, so that J and γ are the exact derivatives
//! of what is computed, not of what it approximates.

use super::MatchingMap;
use super::field::{Bars, Stage, Wanted};
use crate::kernel::{Real, axpy, dot};
use crate::map::batch::Contexts;
use crate::map::ode::{Journey, NODES, WEIGHTS};

impl Journey {
    /// Time after k steps.
    fn time_after(&self, k: usize) -> f64 {
        let k = if self.to_data { self.steps - k } else { k };
        (k as f64 / self.steps as f64).powi(2)
    }
}

/// What a row carries along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// x.
    Point,
    /// (x, ℓ).
    Density,
    /// (x, ℓ, J, γ).
    Gradient,
}

impl Cargo {
    /// Numbers of a row.
    pub(super) fn len(self, n: usize) -> usize {
        match self {
            Self::Point => n,
            Self::Density => n + 1,
            Self::Gradient => n + 1 + n * n + n,
        }
    }

    fn wanted(self) -> Wanted {
        match self {
            Self::Point => Wanted::Value,
            Self::Density => Wanted::Jacobian,
            Self::Gradient => Wanted::Bending,
        }
    }
}

/// The memory of a journey, for one shard after another.
#[derive(Debug)]
pub(super) struct Track<T> {
    cargo: Cargo,
    stage: Stage<T>,
    bars: Option<Bars<T>>,
    /// States of the rows, to fill before and to read after a journey.
    pub state: Vec<T>,
    point: Vec<T>,
    slope: Vec<T>,
    total: Vec<T>,
    x: Vec<T>,
    x_bar: Vec<T>,
    time: Vec<T>,
}

impl<T: Real> Track<T> {
    pub(super) fn new(map: &MatchingMap<T>, rows: usize, cargo: Cargo) -> Self {
        let n = map.layout.shape.target;
        let zeros = |length: usize| vec![T::ZERO; length * rows];
        let length = cargo.len(n);
        let bends = cargo == Cargo::Gradient;
        Self {
            cargo,
            stage: Stage::new(map, rows, cargo.wanted()),
            bars: bends.then(|| Bars::new(map, rows, Wanted::Bending)),
            state: zeros(length),
            point: zeros(length),
            slope: zeros(length),
            total: zeros(length),
            x: zeros(n),
            x_bar: zeros(if bends { n } else { 0 }),
            time: vec![T::ZERO; map.layout.record],
        }
    }

    /// Rows x as the start of a journey: ℓ = 0, J = 1, γ = 0.
    pub(super) fn load(&mut self, x: &[T], n: usize) {
        let length = self.cargo.len(n);
        for (state, x) in self.state.chunks_exact_mut(length).zip(x.chunks_exact(n)) {
            state[..n].copy_from_slice(x);
            state[n..].fill(T::ZERO);
            if self.cargo == Cargo::Gradient {
                state[n + 1..].iter_mut().step_by(n + 1).take(n).for_each(|entry| *entry = T::ONE);
            }
        }
    }

    /// What row b carries.
    pub(super) fn row(&self, b: usize, n: usize) -> &[T] {
        let length = self.cargo.len(n);
        &self.state[b * length..(b + 1) * length]
    }

    /// The first row that is not finite.
    pub(super) fn broken(&self, rows: usize, n: usize) -> Option<usize> {
        (0..rows).find(|&b| self.row(b, n).iter().any(|value| !value.finite()))
    }
}

impl<T: Real> MatchingMap<T> {
    /// Carries the loaded rows along the journey.
    pub(super) fn integrate(
        &self,
        track: &mut Track<T>,
        contexts: Contexts<'_, T>,
        rows: usize,
        journey: Journey,
    ) {
        let used = rows * track.cargo.len(self.layout.shape.target);
        for k in 0..journey.steps {
            let (start, end) = (journey.time_after(k), journey.time_after(k + 1));
            let size = end - start;
            track.point[..used].copy_from_slice(&track.state[..used]);
            track.total[..used].fill(T::ZERO);
            for s in 0..4 {
                self.derivative(track, contexts, rows, start + size * NODES[s]);
                axpy(T::from_f64(size * WEIGHTS[s]), &track.slope[..used], &mut track.total[..used]);
                if s < 3 {
                    track.point[..used].copy_from_slice(&track.state[..used]);
                    let ahead = T::from_f64(size * NODES[s + 1]);
                    axpy(ahead, &track.slope[..used], &mut track.point[..used]);
                }
            }
            axpy(T::ONE, &track.total[..used], &mut track.state[..used]);
        }
    }

    /// The slopes of all that the rows carry at time t.
    fn derivative(&self, track: &mut Track<T>, contexts: Contexts<'_, T>, rows: usize, t: f64) {
        let n = self.layout.shape.target;
        let Track { cargo, stage, bars, point, slope, x, x_bar, time, .. } = track;
        let (length, cols) = (cargo.len(n), cargo.wanted().cols(n));
        for (x, point) in x.chunks_exact_mut(n).zip(point.chunks_exact(length)).take(rows) {
            x.copy_from_slice(&point[..n]);
        }
        time.fill(T::ZERO);
        self.add_time(t, time);
        self.evaluate(stage, contexts, time, x, rows);
        if let Some(bars) = bars {
            // The adjoint of the divergence: 1 on the diagonal of ∂v/∂x.
            bars.field.fill(T::ZERO);
            for field in bars.field.chunks_exact_mut(n * cols).take(rows) {
                field[n..].iter_mut().step_by(n + 1).for_each(|entry| *entry = T::ONE);
            }
            self.pull(stage, bars, rows, x_bar);
        }
        for b in 0..rows {
            let field = &stage.field[b * n * cols..(b + 1) * n * cols];
            let slope = &mut slope[b * length..(b + 1) * length];
            slope[..n].copy_from_slice(&field[..n]);
            if *cargo == Cargo::Point {
                continue;
            }
            let jacobian = &field[n..];
            slope[n] = jacobian.iter().step_by(n + 1).copied().sum();
            if *cargo == Cargo::Gradient {
                let carried = &point[b * length + n + 1..][..n * n];
                let (turns, gradient) = slope[n + 1..].split_at_mut(n * n);
                turns.fill(T::ZERO);
                let bend = &x_bar[b * n..(b + 1) * n];
                let each = turns.chunks_exact_mut(n).zip(carried.chunks_exact(n)).zip(gradient);
                for ((turn, carried), gradient) in each {
                    for (&factor, column) in carried.iter().zip(jacobian.chunks_exact(n)) {
                        axpy(factor, column, turn);
                    }
                    *gradient = dot(carried, bend);
                }
            }
        }
    }
}
