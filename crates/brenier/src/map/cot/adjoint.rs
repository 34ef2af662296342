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

use faer::Accum;

use super::CotMap;
use super::potential::{Frame, Stage, row_squares};
use crate::kernel::{Real, axpy, columns, columns_mut, dot, product, vectorised};

/// Adjoints of a shard: room for one stage, and what is summed over stages and rows.
#[derive(Debug)]
pub(super) struct Bars<T> {
    /// s̄₀ of every row, or for i ≥ 1 [s̄_i | M̄_i] of every row, then δ_i of every row.
    levels: Vec<Vec<T>>,
    /// [ū_i | J̄_i], n + 1 columns a row.
    pull: Vec<T>,
    delta_bar: Vec<T>,
    scratch: Vec<T>,
    /// Whether parameters are wanted at all, or x alone.
    with_parameters: bool,
    /// Adjoints of A₀ᵗˣ, A₁, …, A_L.
    pub weights: Vec<Vec<T>>,
    /// Adjoints of b₁, …, b_L; the entry for b₀ is empty.
    pub biases: Vec<Vec<T>>,
    /// Adjoint of a.
    pub head: Vec<T>,
    /// Σ λ d₀.
    bend: Vec<T>,
    /// Adjoint of Q.
    quadratic: Vec<T>,
    /// Σ λ.
    lambda: f64,
    /// Adjoint of Aᵗˣ through Q and the trace, (n + 1) × r.
    pub quadratic_rows: Vec<T>,
}

impl<T: Real> Bars<T> {
    pub(super) fn new(map: &CotMap<T>, rows: usize, with_parameters: bool) -> Self {
        let (n, w, r) = (map.layout.shape.target, map.layout.shape.width, map.layout.shape.rank);
        let residual = map.layout.residual;
        let zeros = |length: usize| vec![T::ZERO; length];
        let sums = |length: usize| zeros(if with_parameters { length } else { 0 });
        Self {
            levels: (0..=residual).map(|i| zeros(w * rows * if i == 0 { 1 } else { n + 2 })).collect(),
            pull: zeros(w * (n + 1) * rows),
            delta_bar: zeros(w * rows),
            scratch: zeros(w),
            with_parameters,
            weights: (0..=residual).map(|i| sums(w * if i == 0 { n + 1 } else { w })).collect(),
            biases: (0..=residual).map(|i| sums(if i == 0 { 0 } else { w })).collect(),
            head: sums(w),
            bend: sums(w),
            quadratic: sums((n + 1) * (n + 1)),
            lambda: 0.0,
            quadratic_rows: sums((n + 1) * r),
        }
    }

    /// Sums back to zero.
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
    /// Pulls (v, λ) of one stage back to x (`x_bar`, replaced), to the records and to the parameters (added).
    pub(super) fn pull_stage(
        &self,
        frame: &Frame<T>,
        stage: &mut Stage<T>,
        bars: &mut Bars<T>,
        records: &mut [T],
        (t, x): (T, &[T]),
        (v, lambda): (&[T], T),
        rows: usize,
        x_bar: &mut [T],
    ) {
        bars.lambda += lambda.to_f64() * rows as f64;
        self.climb(frame, stage, bars, v, lambda, rows);
        self.descend(stage, bars, rows);
        self.close(frame, stage, bars, records, (t, x), v, rows, x_bar);
    }

    /// Up the sensitivities: ḡ_i, and the shares of s̄_i and M̄_i that come from δ_i and d_i.
    fn climb(
        &self,
        frame: &Frame<T>,
        stage: &mut Stage<T>,
        bars: &mut Bars<T>,
        v: &[T],
        lambda: T,
        rows: usize,
    ) {
        let (n, w, top) = (self.layout.shape.target, self.layout.shape.width, self.layout.residual);
        let (h, span) = (self.residual_weight(), w * (n + 1));
        let opening = &self.parameters[self.layout.weights[0].clone()][..span];
        let head = &self.parameters[self.layout.head.clone()];
        let Bars { levels, delta_bar, scratch, bend, head: head_bar, with_parameters, .. } = bars;
        let first = &mut stage.levels[0];
        let (_, climbing) = first.block.split_at_mut(span * rows);
        let s_bars = &mut levels[0];
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * w..(b + 1) * w;
                    let v = &v[b * (n + 1)..(b + 1) * (n + 1)];
                    scratch.fill(T::ZERO);
                    for (&v, column) in v.iter().zip(opening.chunks_exact(w)) {
                        axpy(v, column, scratch);
                    }
                    let (tanh, back) = (&first.turn[row.clone()], &first.back[row.clone()]);
                    let (s_bar, g_bar) = (&mut s_bars[row.clone()], &mut climbing[row]);
                    climb_row(s_bar, g_bar, [&*scratch, tanh, back, &frame.squares], lambda, T::ONE);
                    if *with_parameters {
                        for ((sum, &tanh), &back) in bend.iter_mut().zip(tanh).zip(back) {
                            *sum = (lambda * back).fma(T::ONE - tanh * tanh, *sum);
                        }
                    }
                }
            },
        );
        for i in 1..=top {
            let (below, above) = stage.levels.split_at_mut(i);
            let (below, here) = (&below[i - 1], &mut above[0]);
            let g_below = &below.block[span * rows..(span + w) * rows];
            let weight = columns(&self.parameters[self.layout.weights[i].clone()], w, w, w);
            let dst = columns_mut(delta_bar, w, rows, w);
            product(dst, Accum::Replace, weight, columns(g_below, w, rows, w));
            let (blocks, deltas) = levels[i].split_at_mut(span * rows);
            let mut climbing = (i < top).then(|| &mut here.block[span * rows..]);
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * w..(b + 1) * w;
                        let (tanh, jacobian) = here.turn[b * span..(b + 1) * span].split_at(w);
                        let back = if i == top { head } else { &here.back[row.clone()] };
                        let (s_bar, m_bar) = blocks[b * span..(b + 1) * span].split_at_mut(w);
                        row_squares(scratch, jacobian);
                        let delta_bar = &mut delta_bar[row.clone()];
                        let delta = &mut deltas[row.clone()];
                        // ḡ_i − ḡ_{i−1}, in δ_i's room until δ_i is formed.
                        climb_row(s_bar, delta, [delta_bar, tanh, back, scratch], lambda, h);
                        match climbing.as_deref_mut() {
                            Some(g_bar) => {
                                let sums = delta.iter().zip(&g_below[row.clone()]);
                                for (g_bar, (&own, &lower)) in g_bar[row].iter_mut().zip(sums) {
                                    *g_bar = own + lower;
                                }
                            }
                            None if *with_parameters => {
                                let sums = delta.iter().zip(&g_below[row]);
                                for (sum, (&own, &lower)) in head_bar.iter_mut().zip(sums) {
                                    *sum += own + lower;
                                }
                            }
                            None => {}
                        }
                        let twice = (lambda + lambda) * h;
                        for (((scaled, delta), &tanh), &back) in
                            scratch.iter_mut().zip(delta.iter_mut()).zip(tanh).zip(back)
                        {
                            *delta = h * tanh * back;
                            *scaled = twice * back * (T::ONE - tanh * tanh);
                        }
                        for (m_bar, m) in m_bar.chunks_exact_mut(w).zip(jacobian.chunks_exact(w)) {
                            for ((m_bar, &m), &scaled) in m_bar.iter_mut().zip(m).zip(scratch.iter()) {
                                *m_bar = scaled * m;
                            }
                        }
                    }
                },
            );
        }
    }

    /// Down the Jacobians and features, with Ā_i and b̄_i on the way, to [ū₀ | J̄₀].
    fn descend(&self, stage: &Stage<T>, bars: &mut Bars<T>, rows: usize) {
        let (n, w, top) = (self.layout.shape.target, self.layout.shape.width, self.layout.residual);
        let (h, span) = (self.residual_weight(), w * (n + 1));
        for i in (1..=top).rev() {
            let (here, below) = (&stage.levels[i], &stage.levels[i - 1]);
            let Bars { levels, pull, scratch, weights, biases, with_parameters, .. } = bars;
            let bar = &mut levels[i];
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let row = b * span..(b + 1) * span;
                        let bar = &mut bar[row.clone()];
                        if i < top {
                            descend_row(bar, &pull[row.clone()], &here.turn[row], scratch, h);
                        }
                        if *with_parameters {
                            for (sum, &s_bar) in biases[i].iter_mut().zip(&bar[..w]) {
                                *sum += s_bar;
                            }
                        }
                    }
                },
            );
            if *with_parameters {
                let left = columns(bar, w, (n + 2) * rows, w);
                let right = columns(&below.block, w, (n + 2) * rows, w);
                product(columns_mut(&mut weights[i], w, w, w), Accum::Add, left, right.transpose());
            }
            let weight = columns(&self.parameters[self.layout.weights[i].clone()], w, w, w);
            let accum = if i == top { Accum::Replace } else { Accum::Add };
            let dst = columns_mut(pull, w, (n + 1) * rows, w);
            product(dst, accum, weight.transpose(), columns(bar, w, (n + 1) * rows, w));
        }
    }

    /// The opening layer and the quadratic term: Ā₀ᵗˣ, Q̄, the records' adjoints and x̄.
    fn close(
        &self,
        frame: &Frame<T>,
        stage: &Stage<T>,
        bars: &mut Bars<T>,
        records: &mut [T],
        (t, x): (T, &[T]),
        v: &[T],
        rows: usize,
        x_bar: &mut [T],
    ) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.width);
        let (span, stride, kappa) = (w * (n + 1), self.layout.record, self.layout.kappa());
        let opening = &self.parameters[self.layout.weights[0].clone()][..span];
        let (first, Bars { levels, pull, scratch, weights, quadratic, with_parameters, .. }) =
            (&stage.levels[0], bars);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let row = b * w..(b + 1) * w;
                    let (tanh, back) = (&first.turn[row.clone()], &first.back[row.clone()]);
                    let (u_bar, j_bar) = pull[b * span..(b + 1) * span].split_at(w);
                    let (s_bar, v) = (&mut levels[0][row], &v[b * (n + 1)..(b + 1) * (n + 1)]);
                    let x = &x[b * n..(b + 1) * n];
                    scratch.fill(T::ZERO);
                    for (j_bar, column) in j_bar.chunks_exact(w).zip(opening[w..].chunks_exact(w)) {
                        for ((sum, &j_bar), &a) in scratch.iter_mut().zip(j_bar).zip(column) {
                            *sum = j_bar.fma(a, *sum);
                        }
                    }
                    for (((s_bar, &tanh), &u_bar), &mixed) in
                        s_bar.iter_mut().zip(tanh).zip(u_bar).zip(scratch.iter())
                    {
                        *s_bar += tanh.fma(u_bar, (T::ONE - tanh * tanh) * mixed);
                    }
                    let x_bar = &mut x_bar[b * n..(b + 1) * n];
                    for (j, x_bar) in x_bar.iter_mut().enumerate() {
                        let turned = dot(&frame.quadratic[(j + 1) * (n + 1)..(j + 2) * (n + 1)], v);
                        *x_bar = turned + dot(&opening[(j + 1) * w..(j + 2) * w], s_bar);
                    }
                    if !*with_parameters {
                        continue;
                    }
                    let record = &mut records[b * stride..(b + 1) * stride];
                    for (sum, &s_bar) in record[..w].iter_mut().zip(s_bar.iter()) {
                        *sum += s_bar;
                    }
                    for (sum, &v) in record[kappa.clone()].iter_mut().zip(v) {
                        *sum += v;
                    }
                    axpy(t, v, &mut quadratic[..n + 1]);
                    for (&x, sum) in x.iter().zip(quadratic[n + 1..].chunks_exact_mut(n + 1)) {
                        axpy(x, v, sum);
                    }
                    let (time, space) = weights[0].split_at_mut(w);
                    for (((sum, &s_bar), &tanh), &back) in
                        time.iter_mut().zip(s_bar.iter()).zip(tanh).zip(back)
                    {
                        *sum += s_bar.fma(t, tanh * back * v[0]);
                    }
                    let points = x.iter().zip(&v[1..]);
                    for ((sum, j_bar), (&x, &v)) in
                        space.chunks_exact_mut(w).zip(j_bar.chunks_exact(w)).zip(points)
                    {
                        let bars = s_bar.iter().zip(j_bar);
                        for (((sum, (&s_bar, &j_bar)), &tanh), &back) in
                            sum.iter_mut().zip(bars).zip(tanh).zip(back)
                        {
                            *sum += s_bar.fma(x, tanh * back.fma(v, j_bar));
                        }
                    }
                }
            },
        );
    }

    /// After the last stage: what the constants of the trajectory pass on, and ρ̄ in the records.
    pub(super) fn close_parameters(&self, bars: &mut Bars<T>, records: &mut [T], rows: usize) {
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let (d, stride) = (self.layout.inputs, self.layout.record);
        let two = T::from_f64(2.0);
        let opening = &self.parameters[self.layout.weights[0].clone()][w..w * (n + 1)];
        // ‖A₀ˣ_j‖²: Ā₀ˣ += 2 diag(Σλd₀) A₀ˣ.
        for (sum, column) in bars.weights[0][w..].chunks_exact_mut(w).zip(opening.chunks_exact(w)) {
            for ((sum, &a), &bend) in sum.iter_mut().zip(column).zip(&bars.bend) {
                *sum = (two * a).fma(bend, *sum);
            }
        }
        // Q = Aᵗˣ(Aᵗˣ)ᵀ: Āᵗˣ = (Q̄ + Q̄ᵀ)Aᵗˣ; ‖Aˣ‖²_F: Āˣ += 2(Σλ)Aˣ.
        let quadratic = &self.parameters[self.layout.quadratic.clone()];
        let rows_of = columns(quadratic, n + 1, r, d);
        let bar = columns(&bars.quadratic, n + 1, n + 1, n + 1);
        product(columns_mut(&mut bars.quadratic_rows, n + 1, r, n + 1), Accum::Replace, bar, rows_of);
        product(columns_mut(&mut bars.quadratic_rows, n + 1, r, n + 1), Accum::Add, bar.transpose(), rows_of);
        let trace_bar = T::from_f64(2.0 * bars.lambda);
        for (sum, column) in bars.quadratic_rows.chunks_exact_mut(n + 1).zip(quadratic.chunks_exact(d)) {
            axpy(trace_bar, &column[1..n + 1], &mut sum[1..]);
        }
        // κ = Aᵗˣρ + bᵗˣ: ρ̄ = (Aᵗˣ)ᵀκ̄.
        let all = columns_mut(records, stride, rows, stride);
        let (mut before, kappa) = all.split_at_row_mut(w + r);
        product(before.as_mut().subrows_mut(w, r), Accum::Replace, rows_of.transpose(), kappa.as_ref());
    }
}

/// With `from` = (δ̄, τ, g, S): s̄ = h g σ''(δ̄ − 2λτS) and the layer's own share h(τδ̄ + λSσ'') of ḡ.
#[inline(always)]
fn climb_row<T: Real>(s_bar: &mut [T], g_bar: &mut [T], from: [&[T]; 4], lambda: T, h: T) {
    let w = s_bar.len();
    let [delta_bar, tanh, back, squares] = from.map(|slice| &slice[..w]);
    let g_bar = &mut g_bar[..w];
    for i in 0..w {
        let slope = tanh[i];
        let second = h * (T::ONE - slope * slope);
        let bend = lambda * squares[i];
        s_bar[i] = back[i] * second * (delta_bar[i] - (slope + slope) * bend);
        g_bar[i] = (h * slope).fma(delta_bar[i], second * bend);
    }
}

/// s̄ += h(τū + σ'' rowsum(J̄M)), M̄ += hτJ̄.
#[inline(always)]
fn descend_row<T: Real>(bar: &mut [T], pull: &[T], turn: &[T], scratch: &mut [T], h: T) {
    let w = scratch.len();
    let (s_bar, m_bar) = bar.split_at_mut(w);
    let ((u_bar, j_bar), (tanh, m)) = (pull.split_at(w), turn.split_at(w));
    scratch.fill(T::ZERO);
    for ((m_bar, j_bar), m) in m_bar.chunks_exact_mut(w).zip(j_bar.chunks_exact(w)).zip(m.chunks_exact(w)) {
        let (m_bar, j_bar, m, tanh) = (&mut m_bar[..w], &j_bar[..w], &m[..w], &tanh[..w]);
        for i in 0..w {
            scratch[i] = j_bar[i].fma(m[i], scratch[i]);
            m_bar[i] = (h * tanh[i]).fma(j_bar[i], m_bar[i]);
        }
    }
    for (((s_bar, &tanh), &u_bar), &mixed) in s_bar.iter_mut().zip(tanh).zip(u_bar).zip(scratch.iter()) {
        *s_bar = h.fma(tanh.fma(u_bar, (T::ONE - tanh * tanh) * mixed), *s_bar);
    }
}
