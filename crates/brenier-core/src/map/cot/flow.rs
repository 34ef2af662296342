//! The trajectory: Runge–Kutta steps of dx/dt = −∇ₓΦ with its log-determinant and costs, and their reverse pass.
//!
//! A step of size h evaluates k_s = −∇ₓΦ(t + c_s h, x + a_s h k_{s−1}) with a = c = (0, ½, ½, 1) and adds h Σ b_s k_s,
//! b = (⅙, ⅓, ⅓, ⅙); the integrals of −ΔΦ, ½‖∇ₓΦ‖² and |−∂ₜΦ + ½‖∇ₓΦ‖²| take the same weights. The reverse pass
//! differentiates this recursion itself: with X̄ the adjoint of the step's end, from s = 4 down,
//!
//! k̄_s = h (b_s X̄ + a_{s+1} x̄_{s+1}),   x̄_s = (∂k_s/∂x_s)ᵀ k̄_s + …,   and X̄ + Σ_s x̄_s is the adjoint of its start.

use super::CotMap;
use super::adjoint::{Bars, Sums};
use super::potential::{Frame, Scratch, Stage, Times, Wanted};
use crate::kernel::Real;
use crate::map::HALF_LOG_TWO_PI;
use crate::map::batch::Contexts;
use crate::map::ode::{Journey, NODES, WEIGHTS};

impl Journey {
    /// The length of its equal steps.
    fn size(&self) -> f64 {
        if self.to_data { -1.0 / self.steps as f64 } else { 1.0 / self.steps as f64 }
    }

    /// Time of stage `s` of step `k`.
    fn time_of(&self, k: usize, s: usize) -> f64 {
        let from = if self.to_data { 1.0 } else { 0.0 };
        from + self.size() * (k as f64 + NODES[s])
    }
}

/// The weights of what the reverse pass differentiates: weight · (NLL + transport · c + hjb · r) summed over rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objective {
    pub weight: f64,
    pub transport: f64,
    pub hjb: f64,
}

/// A fixed number of rows and what comes of them; each row's numbers depend on no other row.
#[derive(Debug)]
pub(super) struct Shard<T> {
    /// The state x, n per row.
    pub x: Vec<T>,
    /// ℓ of each row.
    pub log_det: Vec<f64>,
    /// c of each row.
    pub transport: Vec<f64>,
    /// r of each row.
    pub hjb: Vec<f64>,
    /// Adjoint of the state; after the reverse pass, of the x the trajectory started from.
    pub x_bar: Vec<T>,
    /// Adjoints of the parameters, where they are wanted.
    pub sums: Option<Sums<T>>,
    /// The objective, summed over rows.
    pub loss: f64,
}

impl<T: Real> Shard<T> {
    pub(super) fn new(map: &CotMap<T>, rows: usize) -> Self {
        let n = map.layout.shape.target;
        Self {
            x: vec![T::ZERO; n * rows],
            log_det: vec![0.0; rows],
            transport: vec![0.0; rows],
            hjb: vec![0.0; rows],
            x_bar: vec![T::ZERO; n * rows],
            sums: None,
            loss: 0.0,
        }
    }

    pub(super) fn with_sums(map: &CotMap<T>, rows: usize) -> Self {
        Self { sums: Some(Sums::new(map)), ..Self::new(map, rows) }
    }

    /// ½‖x(1)‖² + (n/2) log 2π − ℓ(1) of row b.
    pub(super) fn row_loss(&self, b: usize, n: usize) -> f64 {
        let square: f64 = self.x[b * n..(b + 1) * n].iter().map(|z| z.to_f64() * z.to_f64()).sum();
        0.5 * square + n as f64 * HALF_LOG_TWO_PI - self.log_det[b]
    }

    /// The first row whose state is not finite.
    pub(super) fn broken(&self, rows: usize, n: usize) -> Option<usize> {
        (0..rows)
            .find(|&b| !self.log_det[b].is_finite() || self.x[b * n..(b + 1) * n].iter().any(|x| !x.finite()))
    }
}

/// The memory of a journey, for one shard after another: a thread's activations stay in its caches.
#[derive(Debug)]
pub(super) struct Track<T> {
    /// One stage that is used repeatedly, or every stage of the trajectory.
    pub stages: Vec<Stage<T>>,
    pub scratch: Scratch<T>,
    pub bars: Option<Bars<T>>,
    point: Vec<T>,
    slope: Vec<T>,
    /// x of every stage, where a reverse pass is to follow.
    inputs: Vec<T>,
    /// Adjoints of (∂ₜΦ, ∇ₓΦ), n + 1 a row.
    pub v: Vec<T>,
    /// Adjoints of a stage's x.
    pub stage_bar: Vec<T>,
}

impl<T: Real> Track<T> {
    /// For `rows` rows and, where a reverse pass is wanted, `kept` stages, or 0 to evaluate them again.
    pub(super) fn new(map: &CotMap<T>, rows: usize, wanted: Wanted, kept: usize) -> Self {
        let n = map.layout.shape.target;
        let reverse = |length: usize| vec![T::ZERO; if wanted.reverses() { length } else { 0 }];
        Self {
            stages: (0..kept.max(1)).map(|_| Stage::new(map, rows, wanted)).collect(),
            scratch: Scratch::new(map, rows, wanted),
            bars: wanted.reverses().then(|| Bars::new(map, rows, wanted)),
            point: vec![T::ZERO; n * rows],
            slope: vec![T::ZERO; n * rows],
            inputs: Vec::new(),
            v: reverse((n + 1) * rows),
            stage_bar: reverse(n * rows),
        }
    }

    fn keeps(&self, steps: usize) -> bool {
        self.stages.len() >= 4 * steps
    }
}

impl<T: Real> CotMap<T> {
    /// Carries `shard.x` along the journey; with `remember`, leaves what [`pull_back`](Self::pull_back) needs.
    pub(super) fn integrate(
        &self,
        frame: &Frame<T>,
        track: &mut Track<T>,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        rows: usize,
        journey: Journey,
        remember: bool,
    ) {
        let n = self.layout.shape.target;
        let size = journey.size();
        let keeps = remember && track.keeps(journey.steps);
        let Track { stages, scratch, point, slope, inputs, .. } = track;
        let Shard { x, log_det, transport, hjb, .. } = shard;
        let with_laplacian = stages[0].wanted.has_laplacian();
        let (x, point, slope) = (&mut x[..n * rows], &mut point[..n * rows], &mut slope[..n * rows]);
        if remember && inputs.len() < 4 * journey.steps * n * rows {
            inputs.resize(4 * journey.steps * n * rows, T::ZERO);
        }
        for sums in [&mut *log_det, transport, hjb] {
            sums[..rows].fill(0.0);
        }
        for k in 0..journey.steps {
            slope.fill(T::ZERO);
            point.copy_from_slice(x);
            for s in 0..4 {
                let index = 4 * k + s;
                if remember {
                    inputs[index * n * rows..(index + 1) * n * rows].copy_from_slice(point);
                }
                let stage = &mut stages[if keeps { index } else { 0 }];
                let time = Times::Common(T::from_f64(journey.time_of(k, s)));
                self.evaluate(frame, stage, scratch, contexts, time, point, rows);
                let share = T::from_f64(WEIGHTS[s]);
                let ahead = T::from_f64(if s < 3 { -size * NODES[s + 1] } else { 0.0 });
                for b in 0..rows {
                    let (gradient, row) =
                        (&stage.gradient[b * (n + 1)..(b + 1) * (n + 1)], b * n..(b + 1) * n);
                    let mut square = 0.0;
                    for (j, &gradient) in row.zip(&gradient[1..]) {
                        slope[j] -= share * gradient;
                        point[j] = ahead.fma(gradient, x[j]);
                        square += gradient.to_f64() * gradient.to_f64();
                    }
                    if with_laplacian {
                        let share = size * WEIGHTS[s];
                        log_det[b] -= share * stage.laplacian[b].to_f64();
                        transport[b] += share * 0.5 * square;
                        hjb[b] += share * (0.5 * square - gradient[0].to_f64()).abs();
                    }
                }
            }
            let size = T::from_f64(size);
            for (x, &slope) in x.iter_mut().zip(slope.iter()) {
                *x = size.fma(slope, *x);
            }
        }
    }

    /// The gradient of `objective` after [`integrate`](Self::integrate) with `remember`: in the starting x, left
    /// in `shard.x_bar`, and, where the shard sums them, in the parameters and in the contexts (`records`).
    pub(super) fn pull_back(
        &self,
        frame: &Frame<T>,
        track: &mut Track<T>,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        rows: usize,
        journey: Journey,
        objective: Objective,
        records: &mut [T],
    ) {
        let n = self.layout.shape.target;
        let size = journey.size();
        let keeps = track.keeps(journey.steps);
        let Track { stages, scratch, bars, inputs, v, stage_bar, slope: next, .. } = track;
        let Shard { x, x_bar, sums, .. } = shard;
        let bars = bars.as_mut().expect("a track for the reverse pass");
        if let Some(sums) = sums {
            sums.clear();
        }
        records.fill(T::ZERO);
        let (x_bar, stage_bar, next) =
            (&mut x_bar[..n * rows], &mut stage_bar[..n * rows], &mut next[..n * rows]);
        let weight = T::from_f64(objective.weight);
        for (x_bar, &z) in x_bar.iter_mut().zip(x.iter()) {
            *x_bar = weight * z;
        }
        for k in (0..journey.steps).rev() {
            next.copy_from_slice(x_bar);
            for s in (0..4).rev() {
                let index = 4 * k + s;
                let x = &inputs[index * n * rows..(index + 1) * n * rows];
                let time = Times::Common(T::from_f64(journey.time_of(k, s)));
                let stage = &mut stages[if keeps { index } else { 0 }];
                if !keeps {
                    self.evaluate(frame, stage, scratch, contexts, time, x, rows);
                }
                let share = objective.weight * size * WEIGHTS[s];
                let (direct, onward) = (
                    T::from_f64(size * WEIGHTS[s]),
                    T::from_f64(if s < 3 { size * NODES[s + 1] } else { 0.0 }),
                );
                for b in 0..rows {
                    let gradient = &stage.gradient[b * (n + 1)..(b + 1) * (n + 1)];
                    let v = &mut v[b * (n + 1)..(b + 1) * (n + 1)];
                    let square: f64 = gradient[1..].iter().map(|g| g.to_f64() * g.to_f64()).sum();
                    let excess = 0.5 * square - gradient[0].to_f64();
                    let sign = if excess == 0.0 { 0.0 } else { objective.hjb * excess.signum() };
                    v[0] = T::from_f64(-share * sign);
                    let cost = T::from_f64(share * (objective.transport + sign));
                    for j in 0..n {
                        let passed = if s < 3 { onward * stage_bar[b * n + j] } else { T::ZERO };
                        let slope_bar = direct.fma(x_bar[b * n + j], passed);
                        v[j + 1] = cost.fma(gradient[j + 1], -slope_bar);
                    }
                }
                let adjoint = (&v[..(n + 1) * rows], T::from_f64(share));
                let (at, sums) = ((time, x), sums.as_mut());
                self.pull_stage(frame, stage, scratch, bars, sums, records, at, adjoint, rows, stage_bar);
                for (next, &bar) in next.iter_mut().zip(stage_bar.iter()) {
                    *next += bar;
                }
            }
            x_bar.copy_from_slice(next);
        }
    }
}
