//! The field v(t, x; y), its Jacobian and divergence in x, and their derivatives by hand.
//!
//! With σ(s) = s/(1 + e⁻ˢ), e = y or its embedding, and τ(t) the sines and cosines of 2ᵏπt/2, k = 0, …, 3, a row takes
//! (c₀, …, c_K) = Ce + Tτ(t) + c from y and t. Then
//!
//! h₀ = Wx + c₀,   s_i = A_i σ(h_{i−1}) + c_i,   h_i = h_{i−1} + B_i σ(s_i) + b_i,   v = V σ(h_K) + d.
//!
//! - Forwards, value and tangents share every product: from \[h₀ | W\], a layer makes \[σ(h) | σ'(h) ⊙ H_j\], and the last
//!   n columns of a row are ∂v/∂x_j; their diagonal sums to the divergence.
//! - Backwards, with bars for adjoints, \[s̄ | M̄_j\] = \[σ'(s) ū + σ''(s) Σ_j Ū_j ⊙ M_j | σ'(s) Ū_j\] behind every activation, and
//!   products with transposed weights between them. Training needs the value alone; the gradient of a density all columns.
//!
//! With g = 1/(1 + e⁻ˢ) and p = σ(s):   σ' = g + p(1 − g),   σ'' = (1 − g)(2g + p(1 − 2g)).

use std::f64::consts::FRAC_PI_2;

use super::MatchingMap;
use crate::kernel::{Accum, Real, axpy_columns, columns, columns_mut, dot, logistic, product, vectorised};
use crate::map::batch::Contexts;

/// Sines and cosines of t.
pub(super) const TIME_FEATURES: usize = 8;

/// τ(t).
pub(super) fn time_features<T: Real>(t: f64) -> [T; TIME_FEATURES] {
    std::array::from_fn(|k| {
        let angle = FRAC_PI_2 * t * f64::from(1_u32 << (k / 2));
        T::from_f64(if k % 2 == 0 { angle.sin() } else { angle.cos() })
    })
}

/// What an evaluation must leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// v alone.
    Value,
    /// v and what the reverse pass of training needs.
    Training,
    /// v and ∂v/∂x.
    Jacobian,
    /// The same, and what the reverse pass to x needs.
    Bending,
}

impl Wanted {
    /// Columns of a block per row.
    pub(super) fn cols(self, n: usize) -> usize {
        if matches!(self, Self::Value | Self::Training) { 1 } else { n + 1 }
    }

    fn keeps(self) -> bool {
        matches!(self, Self::Training | Self::Bending)
    }
}

/// What one activation keeps of every row: even levels 2i follow h_i, odd ones 2i − 1 follow s_i.
#[derive(Debug)]
pub(super) struct Level<T> {
    /// \[s | M\], where an activation's input is not the running h itself or is needed again.
    pre: Vec<T>,
    /// \[σ(s) | σ'(s) ⊙ M\].
    pub post: Vec<T>,
    /// σ'(s), and σ''(s) where tangents are pulled back.
    slope: Vec<T>,
    curvature: Vec<T>,
}

/// One evaluation for the rows of a shard.
#[derive(Debug)]
pub(super) struct Stage<T> {
    pub wanted: Wanted,
    /// \[h_i | H_i\] of the block at hand.
    running: Vec<T>,
    /// All levels, or one that is used repeatedly.
    pub levels: Vec<Level<T>>,
    /// \[v | ∂v/∂x\], columns of n.
    pub field: Vec<T>,
}

/// Adjoints within one stage.
#[derive(Debug)]
pub(super) struct Bars<T> {
    /// Of h_i, in full, at even places, and of s_i at odd ones.
    pub levels: Vec<Vec<T>>,
    /// Of v and ∂v/∂x, to be filled before a reverse pass.
    pub field: Vec<T>,
}

impl<T: Real> Stage<T> {
    pub(super) fn new(map: &MatchingMap<T>, rows: usize, wanted: Wanted) -> Self {
        let (n, w, blocks) = (map.layout.shape.target, map.layout.shape.width, map.layout.shape.blocks);
        let (cols, keeps) = (wanted.cols(n), wanted.keeps());
        let zeros = |length: usize| vec![T::ZERO; length];
        let levels = if keeps { 2 * blocks + 1 } else { 1 };
        Self {
            wanted,
            running: zeros(w * cols * rows),
            levels: (0..levels)
                .map(|_| Level {
                    pre: zeros(w * cols * rows),
                    post: zeros(w * cols * rows),
                    slope: zeros(w * rows),
                    curvature: zeros(if wanted == Wanted::Bending { w * rows } else { 0 }),
                })
                .collect(),
            field: zeros(n * cols * rows),
        }
    }
}

impl<T: Real> Bars<T> {
    pub(super) fn new(map: &MatchingMap<T>, rows: usize, wanted: Wanted) -> Self {
        let (n, w, blocks) = (map.layout.shape.target, map.layout.shape.width, map.layout.shape.blocks);
        let cols = wanted.cols(n);
        Self {
            levels: (0..=2 * blocks).map(|_| vec![T::ZERO; w * cols * rows]).collect(),
            field: vec![T::ZERO; n * cols * rows],
        }
    }
}

impl<T: Real> MatchingMap<T> {
    /// Adds Tτ(t) to a record.
    pub(super) fn add_time(&self, t: f64, record: &mut [T]) {
        let features = time_features::<T>(t);
        vectorised(
            #[inline(always)]
            || axpy_columns(&features, &self.parameters[self.layout.time.clone()], record),
        );
    }

    /// \[v | ∂v/∂x\] of every row; `time` is added to every record.
    pub(super) fn evaluate(
        &self,
        stage: &mut Stage<T>,
        contexts: Contexts<'_, T>,
        time: &[T],
        x: &[T],
        rows: usize,
    ) {
        let (n, w, blocks) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.blocks);
        let cols = stage.wanted.cols(n);
        let (span, all, keeps) = (cols * w, cols * rows, stage.wanted.keeps());
        let weight = |range: &std::ops::Range<usize>| columns(&self.parameters[range.clone()], w, w, w);
        let opening = &self.parameters[self.layout.opening.clone()];
        let Stage { running, levels, field, .. } = stage;
        vectorised(
            #[inline(always)]
            || {
                for (b, block) in running.chunks_exact_mut(span).take(rows).enumerate() {
                    let (h, tangents) = block.split_at_mut(w);
                    for ((h, &c), &time) in h.iter_mut().zip(&contexts.row(b)[..w]).zip(time) {
                        *h = c + time;
                    }
                    axpy_columns(&x[b * n..(b + 1) * n], opening, h);
                    if cols > 1 {
                        tangents.copy_from_slice(opening);
                    }
                }
            },
        );
        levels[0].follow(running, (w, cols, rows), keeps);
        for i in 1..=blocks {
            let slot = i * w..(i + 1) * w;
            let (below, own) = if keeps { (2 * i - 2, 2 * i - 1) } else { (0, 0) };
            // The level below is read and the own one written; without a reverse pass both are one.
            let mut pre = std::mem::take(&mut levels[own].pre);
            let source = columns(&levels[below].post, w, all, w);
            product(
                columns_mut(&mut pre, w, all, w),
                Accum::Replace,
                weight(&self.layout.inner[i - 1]),
                source,
            );
            vectorised(
                #[inline(always)]
                || {
                    for (b, block) in pre.chunks_exact_mut(span).take(rows).enumerate() {
                        let shift = contexts.row(b)[slot.clone()].iter().zip(&time[slot.clone()]);
                        for (s, (&c, &time)) in block[..w].iter_mut().zip(shift) {
                            *s += c + time;
                        }
                    }
                },
            );
            levels[own].pre = pre;
            levels[own].activate((w, cols, rows));
            let bias = &self.parameters[self.layout.outer_bias[i - 1].clone()];
            let source = columns(&levels[own].post, w, all, w);
            product(columns_mut(running, w, all, w), Accum::Add, weight(&self.layout.outer[i - 1]), source);
            vectorised(
                #[inline(always)]
                || {
                    for block in running.chunks_exact_mut(span).take(rows) {
                        for (h, &bias) in block[..w].iter_mut().zip(bias) {
                            *h += bias;
                        }
                    }
                },
            );
            levels[if keeps { 2 * i } else { 0 }].follow(running, (w, cols, rows), keeps);
        }
        let last = &levels[levels.len() - 1];
        let head = columns(&self.parameters[self.layout.head.clone()], n, w, n);
        product(columns_mut(field, n, all, n), Accum::Replace, head, columns(&last.post, w, all, w));
        let bias = &self.parameters[self.layout.head_bias.clone()];
        for block in field.chunks_exact_mut(n * cols).take(rows) {
            block[..n].iter_mut().zip(bias).for_each(|(v, &bias)| *v += bias);
        }
    }

    /// From the adjoints of \[v | ∂v/∂x\] in `bars.field` those of every h_i and s_i, and of x, which is replaced.
    pub(super) fn pull(&self, stage: &Stage<T>, bars: &mut Bars<T>, rows: usize, x_bar: &mut [T]) {
        let (n, w, blocks) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.blocks);
        let cols = stage.wanted.cols(n);
        let (all, sizes) = (cols * rows, (w, cols, rows));
        let turned =
            |range: &std::ops::Range<usize>| columns(&self.parameters[range.clone()], w, w, w).transpose();
        let Bars { levels, field } = bars;
        let head = columns(&self.parameters[self.layout.head.clone()], n, w, n).transpose();
        let top = &mut levels[2 * blocks];
        product(columns_mut(top, w, all, w), Accum::Replace, head, columns(field, n, all, n));
        stage.levels[2 * blocks].pull(top, sizes);
        for i in (1..=blocks).rev() {
            let (below, above) = levels.split_at_mut(2 * i);
            let (lower, own) = below.split_at_mut(2 * i - 1);
            let (lower, own, upper) = (&mut lower[2 * i - 2], &mut own[0], &above[0]);
            let dst = columns_mut(own, w, all, w);
            product(dst, Accum::Replace, turned(&self.layout.outer[i - 1]), columns(upper, w, all, w));
            stage.levels[2 * i - 1].pull(own, sizes);
            let dst = columns_mut(lower, w, all, w);
            product(dst, Accum::Replace, turned(&self.layout.inner[i - 1]), columns(own, w, all, w));
            stage.levels[2 * i - 2].pull(lower, sizes);
            vectorised(
                #[inline(always)]
                || {
                    for (lower, &upper) in lower[..w * all].iter_mut().zip(&upper[..w * all]) {
                        *lower += upper;
                    }
                },
            );
        }
        let opening = &self.parameters[self.layout.opening.clone()];
        vectorised(
            #[inline(always)]
            || {
                for (b, x_bar) in x_bar.chunks_exact_mut(n).take(rows).enumerate() {
                    let bar = &levels[0][b * cols * w..b * cols * w + w];
                    for (x_bar, column) in x_bar.iter_mut().zip(opening.chunks_exact(w)) {
                        *x_bar = dot(column, bar);
                    }
                }
            },
        );
    }
}

impl<T: Real> Level<T> {
    /// The activation of the running h.
    fn follow(&mut self, running: &[T], sizes: (usize, usize, usize), keeps: bool) {
        let Self { pre, post, slope, curvature } = self;
        // What is pulled back needs its tangents again.
        if keeps && sizes.1 > 1 {
            pre.copy_from_slice(running);
        }
        activate(running, post, slope, curvature, sizes);
    }

    /// The activation of its own `pre`.
    fn activate(&mut self, sizes: (usize, usize, usize)) {
        let Self { pre, post, slope, curvature } = self;
        activate(pre, post, slope, curvature, sizes);
    }

    /// \[ū | Ū\] becomes \[s̄ | M̄\].
    fn pull(&self, bars: &mut [T], (w, cols, rows): (usize, usize, usize)) {
        let span = cols * w;
        vectorised(
            #[inline(always)]
            || {
                for (b, bars) in bars.chunks_exact_mut(span).take(rows).enumerate() {
                    let slope = &self.slope[b * w..(b + 1) * w];
                    let (value, tangents) = bars.split_at_mut(w);
                    value.iter_mut().zip(slope).for_each(|(bar, &slope)| *bar *= slope);
                    if tangents.is_empty() {
                        continue;
                    }
                    let curvature = &self.curvature[b * w..(b + 1) * w];
                    let pre = &self.pre[b * span + w..(b + 1) * span];
                    for (bar, pre) in tangents.chunks_exact_mut(w).zip(pre.chunks_exact(w)) {
                        let each = value.iter_mut().zip(bar).zip(pre).zip(curvature).zip(slope);
                        for ((((value, bar), &pre), &curvature), &slope) in each {
                            *value = (*bar * pre).fma(curvature, *value);
                            *bar *= slope;
                        }
                    }
                }
            },
        );
    }
}

/// \[σ(s) | σ'(s) ⊙ M\] of every row, with σ' and, where there is room, σ''.
fn activate<T: Real>(
    pre: &[T],
    post: &mut [T],
    slope: &mut [T],
    curvature: &mut [T],
    (w, cols, rows): (usize, usize, usize),
) {
    let span = cols * w;
    vectorised(
        #[inline(always)]
        || {
            let blocks = pre.chunks_exact(span).zip(post.chunks_exact_mut(span)).take(rows);
            for (b, (pre, post)) in blocks.enumerate() {
                let slope = &mut slope[b * w..(b + 1) * w];
                let (value, tangents) = post.split_at_mut(w);
                for ((p, slope), &s) in value.iter_mut().zip(slope.iter_mut()).zip(pre) {
                    let g = logistic(s);
                    *p = s * g;
                    *slope = (*p).fma(T::ONE - g, g);
                }
                if !curvature.is_empty() {
                    let curvature = &mut curvature[b * w..(b + 1) * w];
                    for ((curvature, &p), &s) in curvature.iter_mut().zip(value.iter()).zip(pre) {
                        let g = logistic(s);
                        let twice = g + g;
                        *curvature = (T::ONE - g) * p.fma(T::ONE - twice, twice);
                    }
                }
                for (post, pre) in tangents.chunks_exact_mut(w).zip(pre[w..].chunks_exact(w)) {
                    for ((post, &pre), &slope) in post.iter_mut().zip(pre).zip(slope.iter()) {
                        *post = slope * pre;
                    }
                }
            }
        },
    );
}
