//! The potential's gradient in (t, x) and its Laplacian in x, in closed form for any depth.
//!
//! With s₀ = A₀q + b₀, u₀ = σ(s₀), s_i = A_i u_{i−1} + b_i, u_i = u_{i−1} + hσ(s_i) and τ_i = tanh s_i,
//!
//! - forwards, the Jacobians J_i = ∂u_i/∂x and M_i = ∂s_i/∂x: M₀ = A₀ˣ, J₀ = diag(τ₀)A₀ˣ, M_i = A_i J_{i−1},
//!   J_i = J_{i−1} + h diag(τ_i) M_i. Vector and Jacobian share a product: [s_i | M_i] = A_i [u_{i−1} | J_{i−1}] + [b_i | 0];
//! - backwards, g_i = ∂(aᵀu_L)/∂u_i: g_L = a, g_{i−1} = g_i + A_iᵀδ_i with δ_i = hτ_i ⊙ g_i and δ₀ = τ₀ ⊙ g₀;
//! - ∇Φ = A₀ᵀδ₀ + AAᵀq + b,   ΔₓΦ = Σ_i d_iᵀ rowsum(M_i²) + ‖Aˣ‖²_F,  d₀ = g₀ ⊙ (1 − τ₀²), d_i = h g_i ⊙ (1 − τ_i²).
//!
//! Only p = (t, x) moves along a trajectory, so y, or its embedding e, enters through A₀ʸe + b₀ and κ = AᵗˣAʸᵀe + bᵗˣ alone, computed
//! once per observation; ∂Φ/∂p = (A₀ᵗˣ)ᵀδ₀ + Qp + κ with Q = Aᵗˣ(Aᵗˣ)ᵀ.

use crate::kernel::{Accum, MatRef};

use super::CotMap;
use crate::kernel::{
    Real, axpy, axpy_columns, columns, columns_mut, dot, fold, log_cosh, product, row_dots, vectorised,
};
use crate::map::batch::Contexts;

/// What depends on the parameters alone, refreshed once per pass.
#[derive(Clone, Debug)]
pub(super) struct Frame<T> {
    /// Row sums of (A₀ˣ)².
    pub squares: Vec<T>,
    /// Q, of order n + 1.
    pub quadratic: Vec<T>,
    /// ‖Aˣ‖²_F.
    pub trace: T,
    /// A₁ᵀ, …, A_Lᵀ, so that every product reads its left factor by columns.
    pub turned: Vec<Vec<T>>,
}

/// What layer i keeps of one evaluation.
#[derive(Debug)]
pub(super) struct Level<T> {
    /// i < L, where a reverse pass is to follow: u_i of every row.
    pub value: Vec<T>,
    /// τ₀ of every row, or [τ_i | M_i] for i ≥ 1.
    pub turn: Vec<T>,
    /// i < L: g_i of every row.
    pub back: Vec<T>,
}

/// One evaluation of the potential's derivatives at (t, x) for the rows of a shard.
#[derive(Debug)]
pub(super) struct Stage<T> {
    pub levels: Vec<Level<T>>,
    /// (∂ₜΦ, ∇ₓΦ), n + 1 a row.
    pub gradient: Vec<T>,
    /// ΔₓΦ of each row.
    pub laplacian: Vec<T>,
    pub wanted: Wanted,
}

/// What a stage must leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// ∇ₓΦ alone.
    Gradient,
    /// ∂ₜΦ, ∇ₓΦ and ΔₓΦ.
    Laplacian,
    /// The same, and what the reverse pass needs.
    Adjoint,
    /// ∇ₓΦ alone, and what its reverse pass needs.
    GradientAdjoint,
}

impl Wanted {
    /// Columns of a block per row: n + 1, or 1 where no Laplacian is wanted.
    pub(super) fn cols(self, n: usize) -> usize {
        if self.has_laplacian() { n + 1 } else { 1 }
    }

    /// Whether ∂ₜΦ and ΔₓΦ are wanted.
    pub(super) fn has_laplacian(self) -> bool {
        matches!(self, Self::Laplacian | Self::Adjoint)
    }

    /// Whether a reverse pass is to follow.
    pub(super) fn reverses(self) -> bool {
        matches!(self, Self::Adjoint | Self::GradientAdjoint)
    }
}

/// The time at which every row is evaluated.
#[derive(Clone, Copy)]
pub(super) enum Times<'a, T> {
    /// That of a stage of the scheme.
    Common(T),
    /// Each row's own.
    Own(&'a [f64]),
}

impl<T: Real> Times<'_, T> {
    #[inline(always)]
    pub(super) fn row(&self, b: usize) -> T {
        match self {
            Self::Common(t) => *t,
            Self::Own(times) => T::from_f64(times[b]),
        }
    }
}

impl<T: Real> Stage<T> {
    pub(super) fn new(map: &CotMap<T>, rows: usize, wanted: Wanted) -> Self {
        let (n, w, residual) = (map.layout.shape.target, map.layout.shape.width, map.layout.residual);
        let cols = wanted.cols(n);
        let zeros = |length: usize| vec![T::ZERO; length];
        let levels = (0..=residual)
            .map(|i| Level {
                value: zeros(if i < residual && wanted.reverses() { w * rows } else { 0 }),
                turn: zeros(if i == 0 { w * rows } else { w * cols * rows }),
                back: zeros(if i < residual { w * rows } else { 0 }),
            })
            .collect();
        Self { levels, gradient: zeros((n + 1) * rows), laplacian: zeros(rows), wanted }
    }
}

/// What one evaluation needs on the way and nobody afterwards.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    /// i < L: [u_i | J_i] of every row, then, for the reverse pass, ḡ_i of every row.
    pub blocks: Vec<Vec<T>>,
    /// δ_i of every row.
    pub delta: Vec<T>,
}

impl<T: Real> Scratch<T> {
    pub(super) fn new(map: &CotMap<T>, rows: usize, wanted: Wanted) -> Self {
        let (n, w) = (map.layout.shape.target, map.layout.shape.width);
        let cols = wanted.cols(n) + usize::from(wanted.reverses());
        let blocks = (0..map.layout.residual).map(|_| vec![T::ZERO; w * cols * rows]).collect();
        Self { blocks, delta: vec![T::ZERO; w * rows] }
    }
}

impl<T: Real> CotMap<T> {
    /// Bytes of a [`Stage`] for the reverse pass of `rows` rows.
    pub(super) fn stage_bytes(&self, rows: usize) -> usize {
        let (n, w, residual) = (self.layout.shape.target, self.layout.shape.width, self.layout.residual);
        let per_row = residual * w * (n + 3) + w + n + 2;
        per_row.saturating_mul(rows).saturating_mul(size_of::<T>())
    }

    /// h = 1/L, the weight of a residual layer.
    pub(super) fn residual_weight(&self) -> T {
        T::from_f64(1.0 / self.layout.residual as f64)
    }

    pub(super) fn frame(&self) -> Frame<T> {
        let (n, w) = (self.layout.shape.target, self.layout.shape.width);
        let zeros = |length: usize| vec![T::ZERO; length];
        let mut frame = Frame {
            squares: zeros(w),
            quadratic: zeros((n + 1) * (n + 1)),
            trace: T::ZERO,
            turned: (0..self.layout.residual).map(|_| zeros(w * w)).collect(),
        };
        self.refresh(&mut frame);
        frame
    }

    /// Brings a frame up to date with the parameters.
    pub(super) fn refresh(&self, frame: &mut Frame<T>) {
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let opening = &self.parameters[self.layout.weights[0].clone()];
        frame.squares.fill(T::ZERO);
        for column in opening[w..w * (n + 1)].chunks_exact(w) {
            for (sum, &value) in frame.squares.iter_mut().zip(column) {
                *sum = value.fma(value, *sum);
            }
        }
        let quadratic =
            columns(&self.parameters[self.layout.quadratic.clone()], n + 1, r, self.layout.inputs);
        let dst = columns_mut(&mut frame.quadratic, n + 1, n + 1, n + 1);
        product(dst, Accum::Replace, quadratic, quadratic.transpose());
        frame.trace = (1..=n).map(|j| frame.quadratic[j * (n + 2)]).sum();
        for (turned, weight) in frame.turned.iter_mut().zip(&self.layout.weights[1..]) {
            let weight = columns(&self.parameters[weight.clone()], w, w, w);
            columns_mut(turned, w, w, w).copy_from(weight.transpose());
        }
    }

    /// The records (A₀ʸe + b₀, ρ = Aʸᵀe, κ = Aᵗˣρ + bᵗˣ) of `count` observations y, embedded here.
    pub(super) fn contexts(&self, y: &[T], records: &mut [T], count: usize) {
        let (m, embedding) = (self.layout.shape.given, &self.layout.embedding);
        if embedding.is_empty() {
            return self.contexts_of(columns(y, m, count, m), records, count);
        }
        let mut values = vec![T::ZERO; embedding.stride() * count];
        embedding.forward(&self.parameters, y, &mut values, count);
        self.contexts_of(embedding.output(&values, count), records, count);
    }

    /// As [`contexts`](Self::contexts), of the columns e.
    pub(super) fn contexts_of(&self, e: MatRef<'_, T>, records: &mut [T], count: usize) {
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let (features, stride, d) = (self.layout.features, self.layout.record, self.layout.inputs);
        let kappa = self.layout.kappa();
        let quadratic = &self.parameters[self.layout.quadratic.clone()];
        if features == 0 {
            records[..count * stride].fill(T::ZERO);
        } else {
            let opening = &self.parameters[self.layout.weights[0].clone()];
            let all = columns_mut(records, stride, count, stride);
            let (still, mut rest) = all.split_at_row_mut(w);
            product(still, Accum::Replace, columns(&opening[w * (n + 1)..], w, features, w), e);
            let given = columns(&quadratic[n + 1..], features, r, d);
            product(rest.as_mut().subrows_mut(0, r), Accum::Replace, given.transpose(), e);
            let (rho, kappa) = rest.split_at_row_mut(r);
            product(kappa, Accum::Replace, columns(quadratic, n + 1, r, d), rho.as_ref());
        }
        let bias = &self.parameters[self.layout.biases[0].clone()];
        let linear = &self.parameters[self.layout.linear.clone()][..n + 1];
        for record in records.chunks_exact_mut(stride).take(count) {
            for (value, &bias) in record[..w].iter_mut().zip(bias) {
                *value += bias;
            }
            for (value, &linear) in record[kappa.clone()].iter_mut().zip(linear) {
                *value += linear;
            }
        }
    }

    /// What the stage is made for: ∂Φ/∂(t, x) and ΔₓΦ of every row, or ∇ₓΦ alone.
    pub(super) fn evaluate(
        &self,
        frame: &Frame<T>,
        stage: &mut Stage<T>,
        scratch: &mut Scratch<T>,
        contexts: Contexts<'_, T>,
        times: Times<'_, T>,
        x: &[T],
        rows: usize,
    ) {
        let (n, w, top) = (self.layout.shape.target, self.layout.shape.width, self.layout.residual);
        let h = self.residual_weight();
        let cols = stage.wanted.cols(n);
        let span = cols * w;
        let keeps = stage.wanted.reverses();
        let opening = &self.parameters[self.layout.weights[0].clone()][..w * (n + 1)];
        let Scratch { blocks, delta } = scratch;
        let Level { value, turn, .. } = &mut stage.levels[0];
        let block = &mut blocks[0];
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let block = &mut block[b * span..(b + 1) * span];
                    let (turn, x) = (&mut turn[b * w..(b + 1) * w], &x[b * n..(b + 1) * n]);
                    open_row(block, turn, opening, &contexts.row(b)[..w], times.row(b), x);
                    if keeps {
                        value[b * w..(b + 1) * w].copy_from_slice(&block[..w]);
                    }
                }
            },
        );
        for i in 1..=top {
            let (below, above) = blocks.split_at_mut(i);
            let below = &below[i - 1];
            let weight = columns(&self.parameters[self.layout.weights[i].clone()], w, w, w);
            let Level { value, turn, .. } = &mut stage.levels[i];
            let dst = columns_mut(turn, w, cols * rows, w);
            product(dst, Accum::Replace, weight, columns(below, w, cols * rows, w));
            if i == top {
                break;
            }
            let bias = &self.parameters[self.layout.biases[i].clone()];
            let block = &mut above[0];
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * span..(b + 1) * span;
                        let block = &mut block[row.clone()];
                        residual_row(block, &mut turn[row.clone()], &below[row], bias, h);
                        if keeps {
                            value[b * w..(b + 1) * w].copy_from_slice(&block[..w]);
                        }
                    }
                },
            );
        }
        let head = &self.parameters[self.layout.head.clone()];
        let Stage { levels, laplacian, gradient, wanted } = stage;
        for i in (1..=top).rev() {
            let (below, above) = levels.split_at_mut(i);
            let (below, Level { turn, back, .. }) = (&mut below[i - 1], &mut above[0]);
            let bias = &self.parameters[self.layout.biases[i].clone()];
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * w..(b + 1) * w;
                        let (tanh, jacobian) = turn[b * span..(b + 1) * span].split_at_mut(w);
                        if i == top {
                            for (s, &bias) in tanh.iter_mut().zip(bias) {
                                *s = (*s + bias).tanh_vec();
                            }
                            laplacian[b] = T::ZERO;
                        }
                        let back = if i == top { head } else { &back[row.clone()] };
                        laplacian[b] += h * turn_row(&mut delta[row], tanh, jacobian, back, h);
                    }
                },
            );
            let dst = columns_mut(&mut below.back, w, rows, w);
            let turned = columns(&frame.turned[i - 1], w, w, w);
            product(dst, Accum::Replace, turned, columns(delta, w, rows, w));
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * w..(b + 1) * w;
                        let upper = if i == top { head } else { &back[row.clone()] };
                        for (lower, &upper) in below.back[row].iter_mut().zip(upper) {
                            *lower += upper;
                        }
                    }
                },
            );
        }
        let first = &levels[0];
        let kappa = self.layout.kappa();
        let skipped = usize::from(!wanted.has_laplacian());
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * w..(b + 1) * w;
                    let (tanh, back) = (&first.turn[row.clone()], &first.back[row.clone()]);
                    let delta = &mut delta[row];
                    if cols > 1 {
                        laplacian[b] += bend(&frame.squares, tanh, back) + frame.trace;
                    }
                    for ((delta, &tanh), &back) in delta.iter_mut().zip(tanh).zip(back) {
                        *delta = tanh * back;
                    }
                    let gradient = &mut gradient[b * (n + 1)..(b + 1) * (n + 1)];
                    gradient.copy_from_slice(&contexts.row(b)[kappa.clone()]);
                    axpy(times.row(b), &frame.quadratic[..n + 1], gradient);
                    for (j, &x) in x[b * n..(b + 1) * n].iter().enumerate() {
                        axpy(x, &frame.quadratic[(j + 1) * (n + 1)..(j + 2) * (n + 1)], gradient);
                    }
                    for (gradient, column) in gradient.iter_mut().zip(opening.chunks_exact(w)).skip(skipped) {
                        *gradient += dot(column, delta);
                    }
                }
            },
        );
    }

    /// Φ(t, x; y), its gradient in q = (t, x, e) and ΔₓΦ of every row: plain, for inspection. Without an embedding
    /// e is y.
    pub fn potential(&self, t: T, x: &[T], y: &[T]) -> crate::Result<(Vec<T>, Vec<T>, Vec<T>)> {
        let rows = self.check_batch(x, y)?;
        let (n, m, w) = (self.layout.shape.target, self.layout.shape.given, self.layout.shape.width);
        let (d, r, top) = (self.layout.inputs, self.layout.shape.rank, self.layout.residual);
        let mut stage = Stage::new(self, rows, Wanted::Laplacian);
        let mut scratch = Scratch::new(self, rows, Wanted::Laplacian);
        let mut records = vec![T::ZERO; self.layout.record * rows];
        let embedding = &self.layout.embedding;
        let mut values = vec![T::ZERO; embedding.stride() * rows];
        embedding.forward(&self.parameters, y, &mut values, rows);
        let e = if embedding.is_empty() { columns(y, m, rows, m) } else { embedding.output(&values, rows) };
        self.contexts_of(e, &mut records, rows);
        let contexts = Contexts { records: &records, stride: self.layout.record, index: None };
        self.evaluate(&self.frame(), &mut stage, &mut scratch, contexts, Times::Common(t), x, rows);
        let of = |range: &std::ops::Range<usize>| &self.parameters[range.clone()];
        let (mut value, mut gradient) = (vec![T::ZERO; rows], vec![T::ZERO; rows * d]);
        let (mut u, mut s) = (vec![T::ZERO; w], vec![T::ZERO; w]);
        for b in 0..rows {
            let q: Vec<T> = std::iter::once(t)
                .chain(x[b * n..(b + 1) * n].iter().copied())
                .chain((0..self.layout.features).map(|j| e[(j, b)]))
                .collect();
            for i in 0..=top {
                let input = if i == 0 { &q } else { &u };
                s.copy_from_slice(of(&self.layout.biases[i]));
                for (&input, column) in input.iter().zip(of(&self.layout.weights[i]).chunks_exact(w)) {
                    axpy(input, column, &mut s);
                }
                for (u, &s) in u.iter_mut().zip(&s) {
                    *u = if i == 0 { log_cosh(s).0 } else { *u + self.residual_weight() * log_cosh(s).0 };
                }
            }
            let linear = of(&self.layout.linear);
            let gradient = &mut gradient[b * d..(b + 1) * d];
            gradient[..n + 1].copy_from_slice(&stage.gradient[b * (n + 1)..(b + 1) * (n + 1)]);
            gradient[n + 1..].copy_from_slice(&linear[n + 1..]);
            let mut quadratic = T::ZERO;
            for column in of(&self.layout.quadratic).chunks_exact(d).take(r) {
                let along = dot(column, &q);
                quadratic += T::from_f64(0.5) * along * along;
                axpy(along, &column[n + 1..], &mut gradient[n + 1..]);
            }
            for (gradient, column) in
                gradient.iter_mut().zip(of(&self.layout.weights[0]).chunks_exact(w)).skip(n + 1)
            {
                *gradient += dot(column, &scratch.delta[b * w..(b + 1) * w]);
            }
            value[b] =
                dot(of(&self.layout.head), &u) + quadratic + dot(linear, &q) + of(&self.layout.constant)[0];
        }
        stage.laplacian.truncate(rows);
        Ok((value, gradient, stage.laplacian))
    }
}

/// u₀ = σ(c + A₀ᵗt + A₀ˣx), τ₀ and, where the block has room, J₀ = diag(τ₀)A₀ˣ.
#[inline(always)]
fn open_row<T: Real>(block: &mut [T], tanh: &mut [T], opening: &[T], c: &[T], t: T, x: &[T]) {
    let w = tanh.len();
    let (u, jacobian) = block.split_at_mut(w);
    let (time, space) = opening.split_at(w);
    for ((u, &c), &a) in u.iter_mut().zip(c).zip(time) {
        *u = a.fma(t, c);
    }
    axpy_columns(x, space, u);
    for (u, tanh) in u.iter_mut().zip(tanh.iter_mut()) {
        (*u, *tanh) = log_cosh(*u);
    }
    for (j, column) in jacobian.chunks_exact_mut(w).zip(space.chunks_exact(w)) {
        for ((j, &tanh), &a) in j.iter_mut().zip(tanh.iter()).zip(column) {
            *j = tanh * a;
        }
    }
}

/// [s | M] becomes [τ | M], and [u_i | J_i] = [u_{i−1} + hσ(s) | J_{i−1} + hτM].
#[inline(always)]
fn residual_row<T: Real>(block: &mut [T], turn: &mut [T], below: &[T], bias: &[T], h: T) {
    let w = bias.len();
    let (u, jacobian) = block.split_at_mut(w);
    let (u_below, jacobian_below) = below.split_at(w);
    for (((u, s), &lower), &bias) in u.iter_mut().zip(turn.iter_mut()).zip(u_below).zip(bias) {
        let (value, slope) = log_cosh(*s + bias);
        *u = value.fma(h, lower);
        *s = slope;
    }
    residual_jacobian(jacobian, jacobian_below, turn, h);
}

/// J_i = J_{i−1} + hτ_i M_i, from [τ_i | M_i].
#[inline(always)]
pub(super) fn residual_jacobian<T: Real>(jacobian: &mut [T], below: &[T], turn: &[T], h: T) {
    if jacobian.is_empty() {
        return;
    }
    let w = turn.len() - jacobian.len();
    let (tanh, m) = turn.split_at(w);
    let all = jacobian.chunks_exact_mut(w).zip(below.chunks_exact(w)).zip(m.chunks_exact(w));
    for ((j, lower), m) in all {
        for (((j, &lower), &m), &tanh) in j.iter_mut().zip(lower).zip(m).zip(tanh) {
            *j = (h * tanh).fma(m, lower);
        }
    }
}

/// δ = hτ ⊙ g, and, where there is a Jacobian M, Σ_j g_j (1 − τ_j²) rowsum(M²)_j.
#[inline(always)]
fn turn_row<T: Real>(delta: &mut [T], tanh: &[T], jacobian: &[T], back: &[T], h: T) -> T {
    let mut curvature = T::ZERO;
    if !jacobian.is_empty() {
        // δ's room holds rowsum(M²) until δ is formed.
        row_dots(jacobian, jacobian, delta);
        curvature = bend(delta, tanh, back);
    }
    for ((delta, &tanh), &back) in delta.iter_mut().zip(tanh).zip(back) {
        *delta = h * tanh * back;
    }
    curvature
}

/// Σ_j squares_j (1 − τ_j²) g_j.
#[inline(always)]
fn bend<T: Real>(squares: &[T], tanh: &[T], back: &[T]) -> T {
    const LANES: usize = 16;
    let mut sums = [T::ZERO; LANES];
    let mut tail = T::ZERO;
    let (s, t, g) = (squares.chunks_exact(LANES), tanh.chunks_exact(LANES), back.chunks_exact(LANES));
    for ((&s, &t), &g) in s.remainder().iter().zip(t.remainder()).zip(g.remainder()) {
        tail += s * (T::ONE - t * t) * g;
    }
    for ((s, t), g) in s.zip(t).zip(g) {
        for i in 0..LANES {
            sums[i] = (s[i] * g[i]).fma(T::ONE - t[i] * t[i], sums[i]);
        }
    }
    fold(sums) + tail
}
