//! The vector–Jacobian product of one evaluation: (θ, x) ↦ (∂Φ/∂(t, x), ΔₓΦ), by hand.
//!
//! With v the adjoint of ∂Φ/∂(t, x) and λ that of ΔₓΦ, the reverse pass climbs the sensitivities g_i, which were
//! computed last, and then descends the Jacobians and features, which were computed first:
//!
//! - S_i = rowsum(M_i²), δ̄₀ = A₀ᵗˣ v, δ̄_i = A_i ḡ_{i−1},
//!   ḡ_i = ḡ_{i−1} + h(τ_i δ̄_i + λS_i(1 − τ_i²)),   s̄_i = h g_i (1 − τ_i²)(δ̄_i − 2λτ_i S_i)   (h = 1, ḡ₋₁ = 0 at i = 0),
//!   M̄_i = 2λ h g_i (1 − τ_i²) M_i,   Ā_i += δ_i ḡ_{i−1}ᵀ,   ā += ḡ_L;
//! - from ū_L = 0, J̄_L = 0:   s̄_i += h(τ_i ū_i + (1 − τ_i²) rowsum(J̄_i M_i)),   M̄_i += hτ_i J̄_i,
//!   Ā_i += [s̄_i | M̄_i][u_{i−1} | J_{i−1}]ᵀ,   [ū_{i−1} | J̄_{i−1}] = [ū_i | J̄_i] + A_iᵀ[s̄_i | M̄_i];
//! - s̄₀ += τ₀ū₀ + (1 − τ₀²) rowsum(J̄₀ A₀ˣ),   Ā₀ᵗˣ += s̄₀pᵀ + δ₀vᵀ,   Ā₀ˣ += τ₀J̄₀ + 2λd₀A₀ˣ,   p̄ = A₀ᵗˣᵀs̄₀ + Qv.
//!
//! Where λ = 0, M̄ and J̄ vanish, and a stage without Jacobians is enough: blocks then have one column a row instead of n + 1.

use crate::kernel::{Accum, MatMut};

use super::CotMap;
use super::potential::{Frame, Scratch, Stage, Times, Wanted, residual_jacobian};
use crate::kernel::{Real, axpy, axpy_columns, columns, columns_mut, dot, product, row_dots, vectorised};

/// Adjoints within one stage.
#[derive(Debug)]
pub(super) struct Bars<T> {
    /// s̄₀ of every row, or for i ≥ 1 [s̄_i | M̄_i] of every row, then δ_i of every row.
    levels: Vec<Vec<T>>,
    /// [ū_i | J̄_i] of every row.
    pull: Vec<T>,
    delta_bar: Vec<T>,
    /// w numbers of the row at hand.
    row: Vec<T>,
}

impl<T: Real> Bars<T> {
    pub(super) fn new(map: &CotMap<T>, rows: usize, wanted: Wanted) -> Self {
        let (cols, w) = (wanted.cols(map.layout.shape.target), map.layout.shape.width);
        let zeros = |length: usize| vec![T::ZERO; length];
        Self {
            levels: (0..=map.layout.residual)
                .map(|i| zeros(w * rows * if i == 0 { 1 } else { cols + 1 }))
                .collect(),
            pull: zeros(w * cols * rows),
            delta_bar: zeros(w * rows),
            row: zeros(w),
        }
    }
}

/// The parameters' adjoints, summed over the stages and rows of a shard.
#[derive(Debug)]
pub(super) struct Sums<T> {
    /// Of A₀ᵗˣ, A₁, …, A_L.
    pub weights: Vec<Vec<T>>,
    /// Of b₁, …, b_L; the entry for b₀ is empty.
    pub biases: Vec<Vec<T>>,
    /// Of a.
    pub head: Vec<T>,
    /// Σ λ d₀.
    bend: Vec<T>,
    /// Of Q.
    quadratic: Vec<T>,
    /// Σ λ.
    lambda: f64,
    /// Of Aᵗˣ through Q and the trace, (n + 1) × r.
    pub quadratic_rows: Vec<T>,
}

impl<T: Real> Sums<T> {
    pub(super) fn new(map: &CotMap<T>) -> Self {
        let (n, w, r) = (map.layout.shape.target, map.layout.shape.width, map.layout.shape.rank);
        let residual = map.layout.residual;
        let zeros = |length: usize| vec![T::ZERO; length];
        Self {
            weights: (0..=residual).map(|i| zeros(w * if i == 0 { n + 1 } else { w })).collect(),
            biases: (0..=residual).map(|i| zeros(if i == 0 { 0 } else { w })).collect(),
            head: zeros(w),
            bend: zeros(w),
            quadratic: zeros((n + 1) * (n + 1)),
            lambda: 0.0,
            quadratic_rows: zeros((n + 1) * r),
        }
    }

    /// Back to zero.
    pub(super) fn clear(&mut self) {
        for sum in self.weights.iter_mut().chain(&mut self.biases) {
            sum.fill(T::ZERO);
        }
        for sum in [&mut self.head, &mut self.bend, &mut self.quadratic] {
            sum.fill(T::ZERO);
        }
        self.lambda = 0.0;
    }
}

impl<T: Real> CotMap<T> {
    /// Pulls (v, λ) of one stage back to x (`x_bar`, replaced) and, where `sums` are given, to the records and to
    /// the parameters (added). A stage without a Laplacian has λ = 0.
    pub(super) fn pull_stage(
        &self,
        frame: &Frame<T>,
        stage: &Stage<T>,
        scratch: &mut Scratch<T>,
        bars: &mut Bars<T>,
        mut sums: Option<&mut Sums<T>>,
        records: &mut [T],
        (times, x): (Times<'_, T>, &[T]),
        (v, lambda): (&[T], T),
        rows: usize,
        x_bar: &mut [T],
    ) {
        if let Some(sums) = sums.as_deref_mut() {
            sums.lambda += lambda.to_f64() * rows as f64;
        }
        self.climb(frame, stage, scratch, bars, sums.as_deref_mut(), (v, lambda), rows);
        self.descend(frame, stage, scratch, bars, sums.as_deref_mut(), rows);
        self.close(frame, stage, bars, sums, records, (times, x), v, rows, x_bar);
    }

    /// Up the sensitivities: ḡ_i, the shares of s̄_i and M̄_i that come from δ_i and d_i, and again [u_i | J_i].
    fn climb(
        &self,
        frame: &Frame<T>,
        stage: &Stage<T>,
        scratch: &mut Scratch<T>,
        bars: &mut Bars<T>,
        mut sums: Option<&mut Sums<T>>,
        (v, lambda): (&[T], T),
        rows: usize,
    ) {
        let (n, w, top) = (self.layout.shape.target, self.layout.shape.width, self.layout.residual);
        let (h, span) = (self.residual_weight(), w * stage.wanted.cols(n));
        let opening = &self.parameters[self.layout.weights[0].clone()][..w * (n + 1)];
        let head = &self.parameters[self.layout.head.clone()];
        let Bars { levels, delta_bar, row: spare, .. } = bars;
        let first = &stage.levels[0];
        let (block, climbing) = scratch.blocks[0].split_at_mut(span * rows);
        let s_bars = &mut levels[0];
        let mut bend = sums.as_deref_mut().map(|sums| &mut sums.bend[..]);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let (row, v) = (b * w..(b + 1) * w, &v[b * (n + 1)..(b + 1) * (n + 1)]);
                    let from =
                        [&first.value[row.clone()], &first.turn[row.clone()], &first.back[row.clone()]];
                    let to =
                        [&mut s_bars[row.clone()], &mut climbing[row], &mut block[b * span..(b + 1) * span]];
                    climb_opening(to, from, opening, &frame.squares, v, lambda, spare, bend.as_deref_mut());
                }
            },
        );
        for i in 1..=top {
            let (below, above) = scratch.blocks.split_at_mut(i);
            let (block_below, g_below) = below[i - 1].split_at(span * rows);
            let here = &stage.levels[i];
            let weight = columns(&self.parameters[self.layout.weights[i].clone()], w, w, w);
            let dst = columns_mut(delta_bar, w, rows, w);
            product(dst, Accum::Replace, weight, columns(g_below, w, rows, w));
            let (bar, deltas) = levels[i].split_at_mut(span * rows);
            let mut next = above.first_mut().map(|block| block.split_at_mut(span * rows));
            let mut ends = sums.as_deref_mut().map(|sums| (&mut sums.head[..], &mut sums.biases[i][..]));
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let (row, wide) = (b * w..(b + 1) * w, b * span..(b + 1) * span);
                        let back = if i == top { head } else { &here.back[row.clone()] };
                        let (bar, delta) = (&mut bar[wide.clone()], &mut deltas[row.clone()]);
                        let turn = &here.turn[wide.clone()];
                        let delta_bar = &mut delta_bar[row.clone()];
                        // ḡ_i takes the room of δ̄_i.
                        climb_row(bar, delta, delta_bar, turn, back, &g_below[row.clone()], lambda, h, spare);
                        if let Some((block, climbing)) = &mut next {
                            climbing[row.clone()].copy_from_slice(delta_bar);
                            let (u, jacobian) = block[wide.clone()].split_at_mut(w);
                            u.copy_from_slice(&here.value[row]);
                            residual_jacobian(jacobian, &block_below[wide][w..], turn, h);
                        } else if let Some((head, bias)) = &mut ends {
                            axpy(T::ONE, delta_bar, head);
                            axpy(T::ONE, &bar[..w], bias);
                        }
                    }
                },
            );
        }
    }

    /// Down the Jacobians and features, with Ā_i and b̄_i on the way, to [ū₀ | J̄₀].
    fn descend(
        &self,
        frame: &Frame<T>,
        stage: &Stage<T>,
        scratch: &Scratch<T>,
        bars: &mut Bars<T>,
        mut sums: Option<&mut Sums<T>>,
        rows: usize,
    ) {
        let (w, top) = (self.layout.shape.width, self.layout.residual);
        let cols = stage.wanted.cols(self.layout.shape.target);
        let (h, span) = (self.residual_weight(), w * cols);
        let Bars { levels, pull, row: spare, .. } = bars;
        for i in (1..=top).rev() {
            let (here, bar) = (&stage.levels[i], &mut levels[i]);
            if i < top {
                let mut bias = sums.as_deref_mut().map(|sums| &mut sums.biases[i][..]);
                vectorised(
                    #[inline(always)]
                    || {
                        for b in 0..rows {
                            let row = b * span..(b + 1) * span;
                            let bar = &mut bar[row.clone()];
                            descend_row(bar, &pull[row.clone()], &here.turn[row], h, spare);
                            if let Some(bias) = &mut bias {
                                axpy(T::ONE, &bar[..w], bias);
                            }
                        }
                    },
                );
            }
            if let Some(sums) = sums.as_deref_mut() {
                let left = columns(bar, w, (cols + 1) * rows, w);
                let right = columns(&scratch.blocks[i - 1], w, (cols + 1) * rows, w);
                product(columns_mut(&mut sums.weights[i], w, w, w), Accum::Add, left, right.transpose());
            }
            let turned = columns(&frame.turned[i - 1], w, w, w);
            let accum = if i == top { Accum::Replace } else { Accum::Add };
            let dst = columns_mut(pull, w, cols * rows, w);
            product(dst, accum, turned, columns(bar, w, cols * rows, w));
        }
    }

    /// The opening layer and the quadratic term: Ā₀ᵗˣ, Q̄, the records' adjoints and x̄.
    fn close(
        &self,
        frame: &Frame<T>,
        stage: &Stage<T>,
        bars: &mut Bars<T>,
        mut sums: Option<&mut Sums<T>>,
        records: &mut [T],
        (times, x): (Times<'_, T>, &[T]),
        v: &[T],
        rows: usize,
        x_bar: &mut [T],
    ) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.width);
        let (span, stride, kappa) = (w * stage.wanted.cols(n), self.layout.record, self.layout.kappa());
        let opening = &self.parameters[self.layout.weights[0].clone()][..w * (n + 1)];
        let (first, Bars { levels, pull, row: spare, .. }) = (&stage.levels[0], bars);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * w..(b + 1) * w;
                    let (tanh, back) = (&first.turn[row.clone()], &first.back[row.clone()]);
                    let (pull, s_bar) = (&pull[b * span..(b + 1) * span], &mut levels[0][row]);
                    let (x, v) = (&x[b * n..(b + 1) * n], &v[b * (n + 1)..(b + 1) * (n + 1)]);
                    close_row(s_bar, tanh, pull, &opening[w..span], spare);
                    let x_bar = &mut x_bar[b * n..(b + 1) * n];
                    for (j, x_bar) in x_bar.iter_mut().enumerate() {
                        let turned = dot(&frame.quadratic[(j + 1) * (n + 1)..(j + 2) * (n + 1)], v);
                        *x_bar = turned + dot(&opening[(j + 1) * w..(j + 2) * w], s_bar);
                    }
                    let Some(sums) = sums.as_deref_mut() else { continue };
                    let t = times.row(b);
                    let record = &mut records[b * stride..(b + 1) * stride];
                    sum_opening(&mut sums.weights[0], &mut record[..w], [s_bar, tanh, back], pull, (t, x), v);
                    axpy(T::ONE, v, &mut record[kappa.clone()]);
                    axpy(t, v, &mut sums.quadratic[..n + 1]);
                    for (&x, sum) in x.iter().zip(sums.quadratic[n + 1..].chunks_exact_mut(n + 1)) {
                        axpy(x, v, sum);
                    }
                }
            },
        );
    }

    /// ē = (A₀ʸ)ᵀ s̄ + Aʸρ̄ of every row, from its record's adjoint.
    pub(super) fn pull_features(&self, mut e_bar: MatMut<'_, T>, records: &[T], rows: usize) {
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let (features, stride) = (self.layout.features, self.layout.record);
        let opening = &self.parameters[self.layout.weights[0].clone()][w * (n + 1)..];
        let quadratic = &self.parameters[self.layout.quadratic.clone()][n + 1..];
        let opening = columns(opening, w, features, w);
        product(e_bar.as_mut(), Accum::Replace, opening.transpose(), columns(records, w, rows, stride));
        let rho_bar = columns(&records[self.layout.rho().start..], r, rows, stride);
        product(e_bar, Accum::Add, columns(quadratic, features, r, self.layout.inputs), rho_bar);
    }

    /// After the last stage: what the constants of the trajectory pass on, and ρ̄ in the records.
    pub(super) fn close_parameters(&self, sums: &mut Sums<T>, records: &mut [T], rows: usize) {
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let (d, stride) = (self.layout.inputs, self.layout.record);
        let two = T::from_f64(2.0);
        let opening = &self.parameters[self.layout.weights[0].clone()][w..w * (n + 1)];
        // ‖A₀ˣ_j‖²: Ā₀ˣ += 2 diag(Σλd₀) A₀ˣ.
        for (sum, column) in sums.weights[0][w..].chunks_exact_mut(w).zip(opening.chunks_exact(w)) {
            for ((sum, &a), &bend) in sum.iter_mut().zip(column).zip(&sums.bend) {
                *sum = (two * a).fma(bend, *sum);
            }
        }
        // Q = Aᵗˣ(Aᵗˣ)ᵀ: Āᵗˣ = (Q̄ + Q̄ᵀ)Aᵗˣ; ‖Aˣ‖²_F: Āˣ += 2(Σλ)Aˣ.
        let quadratic = &self.parameters[self.layout.quadratic.clone()];
        let rows_of = columns(quadratic, n + 1, r, d);
        let bar = columns(&sums.quadratic, n + 1, n + 1, n + 1);
        product(columns_mut(&mut sums.quadratic_rows, n + 1, r, n + 1), Accum::Replace, bar, rows_of);
        product(columns_mut(&mut sums.quadratic_rows, n + 1, r, n + 1), Accum::Add, bar.transpose(), rows_of);
        let trace_bar = T::from_f64(2.0 * sums.lambda);
        for (sum, column) in sums.quadratic_rows.chunks_exact_mut(n + 1).zip(quadratic.chunks_exact(d)) {
            axpy(trace_bar, &column[1..n + 1], &mut sum[1..]);
        }
        // κ = Aᵗˣρ + bᵗˣ: ρ̄ = (Aᵗˣ)ᵀκ̄.
        let all = columns_mut(records, stride, rows, stride);
        let (mut before, kappa) = all.split_at_row_mut(w + r);
        product(before.as_mut().subrows_mut(w, r), Accum::Replace, rows_of.transpose(), kappa.as_ref());
    }
}

/// One row of the opening layer, with `to` = (s̄₀, ḡ₀, [u₀ | J₀]) and `from` = (u₀, τ₀, g₀): δ̄₀ = A₀ᵗˣ v,
/// s̄₀ = g₀(1 − τ₀²)(δ̄₀ − 2λτ₀S₀), ḡ₀ = τ₀δ̄₀ + λS₀(1 − τ₀²), J₀ = τ₀A₀ˣ, and `bend` grows by λg₀(1 − τ₀²).
#[inline(always)]
fn climb_opening<T: Real>(
    to: [&mut [T]; 3],
    from: [&[T]; 3],
    opening: &[T],
    squares: &[T],
    v: &[T],
    lambda: T,
    delta_bar: &mut [T],
    bend: Option<&mut [T]>,
) {
    let ([s_bar, g_bar, block], [value, tanh, back]) = (to, from);
    let w = s_bar.len();
    let (u, jacobian) = block.split_at_mut(w);
    delta_bar.fill(T::ZERO);
    axpy_columns(v, opening, delta_bar);
    let (g_bar, tanh, back, squares) = (&mut g_bar[..w], &tanh[..w], &back[..w], &squares[..w]);
    let delta_bar = &delta_bar[..w];
    for i in 0..w {
        let (slope, bent) = (tanh[i], lambda * squares[i]);
        let second = T::ONE - slope * slope;
        s_bar[i] = back[i] * second * (delta_bar[i] - (slope + slope) * bent);
        g_bar[i] = slope.fma(delta_bar[i], second * bent);
    }
    if let Some(bend) = bend {
        for ((sum, &tanh), &back) in bend.iter_mut().zip(tanh).zip(back) {
            *sum = (lambda * back).fma(T::ONE - tanh * tanh, *sum);
        }
    }
    u.copy_from_slice(value);
    for (j, column) in jacobian.chunks_exact_mut(w).zip(opening[w..].chunks_exact(w)) {
        for ((j, &tanh), &a) in j.iter_mut().zip(tanh).zip(column) {
            *j = tanh * a;
        }
    }
}

/// One row of layer i ≥ 1: s̄ = h g σ''(δ̄ − 2λτS), M̄ = 2λ h g σ'' M, δ = hτg, and δ̄ becomes
/// ḡ_i = ḡ_{i−1} + h(τδ̄ + λSσ''), S = rowsum(M²).
#[inline(always)]
fn climb_row<T: Real>(
    bar: &mut [T],
    delta: &mut [T],
    delta_bar: &mut [T],
    turn: &[T],
    back: &[T],
    g_below: &[T],
    lambda: T,
    h: T,
    spare: &mut [T],
) {
    let w = delta.len();
    let (s_bar, m_bar) = bar.split_at_mut(w);
    let (tanh, jacobian) = turn.split_at(w);
    // S, until 2λ h g σ'' takes its place.
    row_dots(jacobian, jacobian, spare);
    let (delta_bar, spare) = (&mut delta_bar[..w], &mut spare[..w]);
    let (tanh, back, g_below) = (&tanh[..w], &back[..w], &g_below[..w]);
    let twice = lambda + lambda;
    for i in 0..w {
        let slope = tanh[i];
        let (second, bent) = (h * (T::ONE - slope * slope), lambda * spare[i]);
        let curved = back[i] * second;
        s_bar[i] = curved * (delta_bar[i] - (slope + slope) * bent);
        delta_bar[i] = (h * slope).fma(delta_bar[i], second * bent) + g_below[i];
        delta[i] = h * slope * back[i];
        spare[i] = twice * curved;
    }
    for (m_bar, m) in m_bar.chunks_exact_mut(w).zip(jacobian.chunks_exact(w)) {
        for ((m_bar, &m), &scale) in m_bar.iter_mut().zip(m).zip(spare.iter()) {
            *m_bar = scale * m;
        }
    }
}

/// s̄ += h(τū + σ'' rowsum(J̄M)), M̄ += hτJ̄.
#[inline(always)]
fn descend_row<T: Real>(bar: &mut [T], pull: &[T], turn: &[T], h: T, mixed: &mut [T]) {
    let w = mixed.len();
    let (s_bar, m_bar) = bar.split_at_mut(w);
    let ((u_bar, j_bar), (tanh, m)) = (pull.split_at(w), turn.split_at(w));
    row_dots(j_bar, m, mixed);
    for (m_bar, j_bar) in m_bar.chunks_exact_mut(w).zip(j_bar.chunks_exact(w)) {
        for ((m_bar, &j_bar), &tanh) in m_bar.iter_mut().zip(j_bar).zip(tanh) {
            *m_bar = (h * tanh).fma(j_bar, *m_bar);
        }
    }
    for (((s_bar, &tanh), &u_bar), &mixed) in s_bar.iter_mut().zip(tanh).zip(u_bar).zip(mixed.iter()) {
        *s_bar = h.fma(tanh.fma(u_bar, (T::ONE - tanh * tanh) * mixed), *s_bar);
    }
}

/// s̄₀ += τ₀ū₀ + (1 − τ₀²) rowsum(J̄₀A₀ˣ).
#[inline(always)]
fn close_row<T: Real>(s_bar: &mut [T], tanh: &[T], pull: &[T], space: &[T], mixed: &mut [T]) {
    let (u_bar, j_bar) = pull.split_at(mixed.len());
    row_dots(j_bar, space, mixed);
    for (((s_bar, &tanh), &u_bar), &mixed) in s_bar.iter_mut().zip(tanh).zip(u_bar).zip(mixed.iter()) {
        *s_bar += tanh.fma(u_bar, (T::ONE - tanh * tanh) * mixed);
    }
}

/// With `from` = (s̄₀, τ₀, g₀): Ā₀ᵗ += s̄₀t + δ₀v₀, Ā₀ˣ += s̄₀xᵀ + δ₀vᵀ + τ₀J̄₀, the last where there is a J̄₀, and the record
/// grows by s̄₀.
#[inline(always)]
fn sum_opening<T: Real>(
    sums: &mut [T],
    record: &mut [T],
    from: [&[T]; 3],
    pull: &[T],
    (t, x): (T, &[T]),
    v: &[T],
) {
    let w = record.len();
    let [s_bar, tanh, back] = from.map(|values| &values[..w]);
    let (time, space) = sums.split_at_mut(w);
    let v_time = v[0];
    for i in 0..w {
        record[i] += s_bar[i];
        time[i] += s_bar[i].fma(t, tanh[i] * back[i] * v_time);
    }
    let each = space.chunks_exact_mut(w).zip(x.iter().zip(&v[1..]));
    if pull.len() == w {
        for (sum, (&x, &v)) in each {
            let sum = &mut sum[..w];
            for i in 0..w {
                sum[i] += s_bar[i].fma(x, tanh[i] * back[i] * v);
            }
        }
        return;
    }
    for ((sum, (&x, &v)), j_bar) in each.zip(pull[w..].chunks_exact(w)) {
        let (sum, j_bar) = (&mut sum[..w], &j_bar[..w]);
        for i in 0..w {
            sum[i] += s_bar[i].fma(x, tanh[i] * back[i].fma(v, j_bar[i]));
        }
    }
}
