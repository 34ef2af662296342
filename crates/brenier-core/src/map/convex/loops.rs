//! Loops over the rows of input-convex networks, and the assembly of H = Σ MᵀDM, for every map that is made of them.
//!
//! A row's block [s | M] has n + 1 columns of the layer's height: the features and their Jacobian side by side.

use crate::kernel::{
    Accum, MatMut, MatRef, Real, columns, columns_mut, dot, dot2, fold, lower_product, product, vectorised,
};
use crate::parallel::each;

/// Target dimension from which per-row n × n work is left to matrix products.
pub(in crate::map) const DENSE_FROM: usize = 16;

/// dst = weight · y in strips of rows, a task each where that is worth it.
///
/// A strip is wide enough that packing all of y for it is a small part of its product.
pub(in crate::map) fn by_strips<T: Real>(dst: MatMut<'_, T>, weight: MatRef<'_, T>, y: MatRef<'_, T>) {
    const WORTH_A_TASK: usize = 1 << 22;
    const STRIP_ROWS: usize = 64;
    let rows = dst.nrows();
    let strips = (rows * y.nrows() * y.ncols() / WORTH_A_TASK).min(rows / STRIP_ROWS).max(1);
    let strip_rows = rows.div_ceil(strips).next_multiple_of(16);
    let mut rest = Some(dst);
    let strips = (0..rows).step_by(strip_rows.max(1)).map_while(|first| {
        let dst = rest.take()?;
        let (strip, behind) = dst.split_at_row_mut(strip_rows.min(rows - first));
        rest = Some(behind);
        Some((strip, weight.subrows(first, strip_rows.min(rows - first))))
    });
    each(strips, |_, (dst, weight)| product(dst, Accum::Replace, weight, y));
}

/// Layer k ≥ 1: adds c + X(gate ⊙ x) to s and X diag(gate) to M.
#[inline(always)]
pub(in crate::map) fn extend_row<T: Real>(block: &mut [T], input: &[T], gate: &[T], c: &[T], x: &[T]) {
    let w = c.len();
    let (s, jacobian) = block.split_at_mut(w);
    for (s, &c) in s.iter_mut().zip(c) {
        *s += c;
    }
    for (((column, m), &gate), &x) in input.chunks_exact(w).zip(jacobian.chunks_exact_mut(w)).zip(gate).zip(x)
    {
        for ((m, s), &weight) in m.iter_mut().zip(s.iter_mut()).zip(column) {
            let direct = weight * gate;
            *m += direct;
            *s = direct.fma(x, *s);
        }
    }
}

/// p ⊙ [w | J] with J = diag(σ') M.
#[inline(always)]
pub(in crate::map) fn gate_row<T: Real>(
    gated: &mut [T],
    p: &[T],
    features: &[T],
    sigmoid: &[T],
    jacobian: &[T],
) {
    let w = p.len();
    let (first, rest) = gated.split_at_mut(w);
    for ((gated, &p), &feature) in first.iter_mut().zip(p).zip(features) {
        *gated = p * feature;
    }
    for (gated, m) in rest.chunks_exact_mut(w).zip(jacobian.chunks_exact(w)) {
        for (((gated, &p), &s), &m) in gated.iter_mut().zip(p).zip(sigmoid).zip(m) {
            *gated = p * s * m;
        }
    }
}

/// d ⊙ column.
#[inline(always)]
fn weigh<T: Real>(scaled: &mut [T], column: &[T], bend: &[T]) {
    for ((scaled, &m), &bend) in scaled.iter_mut().zip(column).zip(bend) {
        *scaled = bend * m;
    }
}

/// Adds Mᵀ diag(d) M to the lower triangle.
#[inline(always)]
pub(in crate::map) fn curvature_row<T: Real>(
    hessian: &mut [T],
    jacobian: &[T],
    bend: &[T],
    scratch: &mut [T],
) {
    let w = bend.len();
    let n = jacobian.len() / w;
    let scaled = &mut scratch[..w];
    for i in 0..n {
        weigh(scaled, &jacobian[i * w..(i + 1) * w], bend);
        let mut j = 0;
        while j < i {
            let (left, right) =
                dot2(scaled, &jacobian[j * w..(j + 1) * w], &jacobian[(j + 1) * w..(j + 2) * w]);
            hessian[i + j * n] += left;
            hessian[i + (j + 1) * n] += right;
            j += 2;
        }
        if j == i {
            hessian[i + i * n] += dot(scaled, &jacobian[i * w..(i + 1) * w]);
        }
    }
}

/// MᵀDM of one row, lower triangle, as a product: for the dimensions from [`DENSE_FROM`] on.
///
/// `scratch` has room for an n-column block.
pub(in crate::map) fn curvature_product<T: Real>(
    hessian: &mut [T],
    accum: Accum,
    jacobian: &[T],
    bend: &[T],
    scratch: &mut [T],
) {
    let w = bend.len();
    let n = jacobian.len() / w;
    vectorised(
        #[inline(always)]
        || {
            for (scaled, column) in scratch.chunks_exact_mut(w).zip(jacobian.chunks_exact(w)) {
                weigh(scaled, column, bend);
            }
        },
    );
    lower_product(
        columns_mut(hessian, n, n, n),
        accum,
        columns(jacobian, w, n, w).transpose(),
        columns(scratch, w, n, w),
    );
}

/// target = Σ_l columnₗ · coefficientₗ, four columns at a time.
#[inline(always)]
pub(in crate::map) fn combine<T: Real>(target: &mut [T], matrix: &[T], coefficients: &[T]) {
    let w = target.len();
    let mut columns = matrix.chunks_exact(w);
    let mut coefficients = coefficients.iter().copied();
    let mut fresh = true;
    while columns.len() >= 4 {
        let mut next = || (columns.next().expect("four left"), coefficients.next().expect("one a column"));
        let ((m0, c0), (m1, c1), (m2, c2), (m3, c3)) = (next(), next(), next(), next());
        let (m0, m1, m2, m3) = (&m0[..w], &m1[..w], &m2[..w], &m3[..w]);
        for i in 0..w {
            let start = if fresh { T::ZERO } else { target[i] };
            target[i] = m0[i].fma(c0, m1[i].fma(c1, m2[i].fma(c2, m3[i].fma(c3, start))));
        }
        fresh = false;
    }
    for (column, c) in columns.zip(coefficients) {
        let column = &column[..w];
        for i in 0..w {
            let start = if fresh { T::ZERO } else { target[i] };
            target[i] = column[i].fma(c, start);
        }
        fresh = false;
    }
}

/// One column of P = 2a M H̄ in the adjoint of H: M̄ = d ⊙ P, d̄ += ½ P ⊙ M.
#[inline(always)]
pub(in crate::map) fn bend_row<T: Real>(bar: &mut [T], total: &mut [T], turned: &[T], m: &[T], bend: &[T]) {
    let w = bar.len();
    let (turned, m, bend, total) = (&turned[..w], &m[..w], &bend[..w], &mut total[..w]);
    let half = T::from_f64(0.5);
    for i in 0..w {
        bar[i] = turned[i] * bend[i];
        total[i] = (turned[i] * half).fma(m[i], total[i]);
    }
}

/// δ̄ += ḡ M and M̄ += ḡ δ for one column of ∂s_K/∂x = M_{K−1}ᵀδ_{K−1}.
#[inline(always)]
pub(in crate::map) fn reach_row<T: Real>(
    slope: T,
    m: &[T],
    delta: &[T],
    delta_bar: &mut [T],
    m_bar: &mut [T],
) {
    let w = m.len();
    let (delta, delta_bar, m_bar) = (&delta[..w], &mut delta_bar[..w], &mut m_bar[..w]);
    for i in 0..w {
        delta_bar[i] = m[i].fma(slope, delta_bar[i]);
        m_bar[i] = delta[i].fma(slope, m_bar[i]);
    }
}

/// With Y = M̄_j + s̄ x_j: adds gate·Y to X̄'s column and returns the gate's adjoint X_jᵀ Y.
#[inline(always)]
pub(in crate::map) fn input_row<T: Real>(input_bar: &mut [T], from: [&[T]; 3], gate: T, x: T) -> T {
    const LANES: usize = 16;
    let w = input_bar.len();
    let [s_bar, m_bar, input] = from.map(|slice| &slice[..w]);
    let mut sums = [T::ZERO; LANES];
    let whole = w - w % LANES;
    for start in (0..whole).step_by(LANES) {
        let s_bar = &s_bar[start..start + LANES];
        let m_bar = &m_bar[start..start + LANES];
        let input = &input[start..start + LANES];
        let input_bar = &mut input_bar[start..start + LANES];
        for i in 0..LANES {
            let direct = s_bar[i].fma(x, m_bar[i]);
            input_bar[i] = direct.fma(gate, input_bar[i]);
            sums[i] = direct.fma(input[i], sums[i]);
        }
    }
    let mut total = T::ZERO;
    for i in whole..w {
        let direct = s_bar[i].fma(x, m_bar[i]);
        input_bar[i] = direct.fma(gate, input_bar[i]);
        total = direct.fma(input[i], total);
    }
    total + fold(sums)
}
