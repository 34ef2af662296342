//! One potential forward: contexts of y, features of x, their Jacobian, gradient and Hessian.
//!
//! As in a PCP-Map every row owns n + 1 columns a layer, features and Jacobian side by side, so that one product a layer
//! carries both. The first layer sees x alone, s₀ = X̃₀ x + c̃₀, and its Jacobian M₀ = X̃₀ is the same for all rows.

use crate::kernel::Accum;

use super::stochastic::Probes;
use super::weights::Weights;
use super::{CpFlowMap, Parts};
use crate::kernel::{
    Real, columns, columns_mut, dot, elu, gaussian_softplus, product, softplus, spd, vectorised,
};
use crate::map::convex::loops::{
    DENSE_FROM, by_strips, curvature_product, curvature_row, extend_row, gate_row,
};

/// What one hidden layer keeps for every row; heights are h throughout.
#[derive(Debug)]
pub(super) struct Hidden<T> {
    /// [w_{k+1} | M_k], n + 1 columns a row; at k = 0 w_1 alone.
    pub block: Vec<T>,
    /// s_k.
    pub s: Vec<T>,
    /// σ'(s_k): Φ, and Φ − ½ in the symmetric first layer.
    pub first: Vec<T>,
    /// σ''(s_k) = φ; σ''' = −sφ.
    pub second: Vec<T>,
    /// p_k ⊙ [w_k | J_k], n + 1 columns a row, then t_k = p_k ⊙ ē_k, one column a row; empty at k = 0.
    pub gated: Vec<T>,
    /// Ã_kᵀ δ_k; empty at k = 0.
    pub back: Vec<T>,
    /// δ_k = ∂N/∂s_k.
    pub delta: Vec<T>,
    /// d_k = e_{k+1} ⊙ σ''(s_k), with e_{k+1} = ∂N/∂w_{k+1}.
    pub bend: Vec<T>,
    /// Adjoint of [s_k | M_k], n + 1 columns a row, then a copy of δ_k, one column a row, so that the gradient of
    /// Ã_k is the one product bar · gatedᵀ; empty where only values are wanted.
    pub bar: Vec<T>,
}

/// Everything one potential needs for a fixed number of rows; each row's numbers depend on no other row.
#[derive(Debug)]
pub(super) struct Pass<T> {
    pub hidden: Vec<Hidden<T>>,
    /// x as the potential sees it, n a row.
    pub x: Vec<T>,
    /// ∇F, n a row.
    pub gradient: Vec<T>,
    /// ∂N/∂x, n a row; then its adjoint.
    pub slope: Vec<T>,
    /// N of each row.
    pub output: Vec<T>,
    /// Σ_k M_kᵀ diag(d_k) M_k, then 2a times the adjoint of H; n × n a row.
    pub hessian: Vec<T>,
    /// Cholesky factor of H, n × n a row.
    pub factor: Vec<f64>,
    /// log det H of each row.
    pub log_det: Vec<f64>,
    /// The first row whose H was not positive definite, if any.
    pub broken: Option<usize>,
    /// Random vectors v with H⁻¹v, where log det H is estimated.
    pub probes: Option<Probes<T>>,
    pub sums: Sums<T>,
}

/// What the reverse pass sums over the rows of a shard.
#[derive(Debug)]
pub(super) struct Sums<T> {
    /// Adjoint of each X̃_k, k < K.
    pub input: Vec<Vec<T>>,
    /// Adjoint of each c̃_k, k < K.
    pub constant: Vec<Vec<T>>,
    /// α_k times the adjoint of α_k, k < K.
    pub factor: Vec<Vec<T>>,
    /// Adjoint of Ã_K.
    pub head: Vec<T>,
    /// Adjoint of x̃_K.
    pub head_input: Vec<T>,
    /// α_c times the adjoint of α_c.
    pub context_factor: Vec<T>,
    /// Adjoints of a and b.
    pub mixture: [f64; 2],
}

/// Room that the passes of a shard share.
#[derive(Debug)]
pub(super) struct Scratch<T> {
    /// Ã_kᵀ times the adjoint block, n + 1 columns a row.
    pub pulled: Vec<T>,
    /// δ̄ of the layer at hand.
    pub delta_bar: Vec<T>,
    /// d̄_k ahead of its use, one vector a row and layer.
    pub curvature_bar: Vec<T>,
    /// An n-column block of one row, two columns at the least.
    pub columns: Vec<T>,
    /// The inverse of one row's H.
    pub inverse: Vec<f64>,
    pub spd: spd::SpdScratch,
}

impl<T: Real> Scratch<T> {
    pub(super) fn new(map: &CpFlowMap<T>, rows: usize, with_adjoints: bool) -> Self {
        let (n, h, depth) = map.sizes();
        let adjoint = |length: usize| vec![T::ZERO; if with_adjoints { length } else { 0 }];
        Self {
            pulled: adjoint(h * (n + 1) * rows),
            delta_bar: adjoint(h * rows),
            curvature_bar: adjoint(h * rows * depth),
            columns: vec![T::ZERO; h * n.max(2)],
            inverse: vec![0.0; n * n],
            spd: spd::SpdScratch::new(n),
        }
    }
}

impl<T: Real> Pass<T> {
    pub(super) fn new(map: &CpFlowMap<T>, rows: usize, with_adjoints: bool) -> Self {
        let (n, h, depth) = map.sizes();
        let zeros = |length: usize| vec![T::ZERO; length];
        let adjoint = |length: usize| zeros(if with_adjoints { length } else { 0 });
        let each = |length: usize| (0..depth).map(|_| adjoint(length)).collect();
        Self {
            hidden: (0..depth)
                .map(|k| Hidden {
                    block: zeros(if k > 0 { h * (n + 1) * rows } else { h * rows }),
                    s: zeros(h * rows),
                    first: zeros(h * rows),
                    second: zeros(h * rows),
                    gated: zeros(if k > 0 { h * (n + 2) * rows } else { 0 }),
                    back: zeros(if k > 0 { h * rows } else { 0 }),
                    delta: zeros(h * rows),
                    bend: zeros(h * rows),
                    bar: adjoint(h * (n + 2) * rows),
                })
                .collect(),
            x: zeros(n * rows),
            gradient: zeros(n * rows),
            slope: zeros(n * rows),
            output: zeros(rows),
            hessian: zeros(n * n * rows),
            factor: vec![0.0; n * n * rows],
            log_det: vec![0.0; rows],
            broken: None,
            probes: None,
            sums: Sums {
                input: each(h * n),
                constant: each(h),
                factor: each(h),
                head: adjoint(h),
                head_input: adjoint(n),
                context_factor: adjoint(h),
                mixture: [0.0; 2],
            },
        }
    }
}

impl<T> Hidden<T> {
    /// M_k of row b; `input` is X̃_k.
    #[inline(always)]
    pub(super) fn jacobian<'a>(&'a self, k: usize, b: usize, h: usize, input: &'a [T]) -> &'a [T] {
        match k {
            0 => input,
            _ => &self.block[b * (input.len() + h) + h..(b + 1) * (input.len() + h)],
        }
    }
}

impl<T: Real> CpFlowMap<T> {
    /// n, h and K.
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.layout.shape.target, self.layout.shape.width, self.layout.shape.depth)
    }

    /// B y into the records of block `index`, rows of B side by side on all threads.
    pub(super) fn open_contexts(&self, index: usize, y: &[T], records: &mut [T], cols: usize) {
        let (m, h, stride) = (self.layout.shape.given, self.layout.shape.width, self.layout.record);
        let weight = &self.parameters[self.layout.blocks[index].context.clone()];
        let start = index * self.layout.part;
        if m > 0 {
            let dst = columns_mut(records, stride, cols, stride).subrows_mut(start, h);
            by_strips(dst, columns(weight, h, m, h), columns(y, m, cols, m));
        } else {
            records
                .chunks_exact_mut(stride)
                .take(cols)
                .for_each(|record| record[start..start + h].fill(T::ZERO));
        }
    }

    /// c = ELU(AN_c(By + b)) and all gates, after [`open_contexts`](Self::open_contexts).
    pub(super) fn close_contexts(&self, index: usize, weights: &Weights<T>, records: &mut [T], cols: usize) {
        let (layout, block, stride) = (&self.layout, &self.layout.blocks[index], self.layout.record);
        let (h, depth) = (layout.shape.width, layout.shape.depth);
        let part = index * layout.part..(index + 1) * layout.part;
        let bias = &self.parameters[block.context_bias.clone()];
        let norm = &weights.context_norm;
        vectorised(
            #[inline(always)]
            || {
                for record in records.chunks_exact_mut(stride).take(cols) {
                    let (raw, rest) = record[part.clone()].split_at_mut(h);
                    for i in 0..h {
                        raw[i] = norm.factor[i] * (raw[i] + bias[i] + norm.shift[i]);
                        rest[i] = elu(raw[i]);
                    }
                }
            },
        );
        let rows = layout.gate_rows;
        let (before, mut here) =
            columns_mut(records, stride, cols, stride).split_at_row_mut(part.start + 2 * h);
        let gates = columns(&self.parameters[block.gates.clone()], rows, h, rows);
        product(
            here.as_mut().subrows_mut(0, rows),
            Accum::Replace,
            gates,
            before.as_ref().subrows(part.start + h, h),
        );
        let bias = &self.parameters[block.gates_bias.clone()];
        vectorised(
            #[inline(always)]
            || {
                for record in records.chunks_exact_mut(stride).take(cols) {
                    let record = &mut record[part.clone()];
                    for (value, &bias) in record[layout.gates()].iter_mut().zip(bias) {
                        *value += bias;
                    }
                    for k in 1..=depth {
                        let start = T::from_f64(if k < depth { GATE } else { HEAD_GATE });
                        for value in &mut record[layout.p(k)] {
                            *value = softplus(*value + start).0;
                        }
                        for value in &mut record[layout.q(k)] {
                            *value += T::ONE;
                        }
                    }
                    for (k, layer) in weights.layers.iter().enumerate().skip(1) {
                        for (i, value) in record[layout.c(k)].iter_mut().enumerate() {
                            *value = layer.factor[i] * (*value + layer.constant[i]);
                        }
                    }
                }
            },
        );
    }

    /// Features and Jacobians: fills `block`, `s`, `first`, `second` and `gated` of every hidden layer.
    fn features(&self, pass: &mut Pass<T>, weights: &Weights<T>, contexts: Parts<'_, T>, rows: usize) {
        let (n, h, depth) = self.sizes();
        let (layout, span) = (&self.layout, h * (n + 1));
        let Pass { hidden, x, .. } = pass;
        for k in 0..depth {
            let layer = &weights.layers[k];
            let (this, rest) = hidden[k..].split_first_mut().expect("k < depth");
            if k == 0 {
                let dst = columns_mut(&mut this.block, h, rows, h);
                product(dst, Accum::Replace, columns(&layer.input, h, n, h), columns(x, n, rows, n));
            } else {
                let dst = columns_mut(&mut this.block, h, (n + 1) * rows, h);
                let weight = columns(&layer.feature, h, h, h);
                product(dst, Accum::Replace, weight, columns(&this.gated, h, (n + 1) * rows, h));
            }
            let mut gated = rest.first_mut().map(|next| next.gated.as_mut_slice());
            let Hidden { block, s, first, second, .. } = this;
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let row = b * h..(b + 1) * h;
                        let (s, first, second) =
                            (&mut s[row.clone()], &mut first[row.clone()], &mut second[row]);
                        let block = match k {
                            0 => &mut block[b * h..(b + 1) * h],
                            _ => &mut block[b * span..(b + 1) * span],
                        };
                        if k == 0 {
                            for (value, (&constant, &factor)) in
                                block.iter_mut().zip(layer.constant.iter().zip(&layer.factor))
                            {
                                *value = factor.fma(constant, *value);
                            }
                        } else {
                            let (q, c) = (&record[layout.q(k)], &record[layout.c(k)]);
                            extend_row(block, &layer.input, q, c, &x[b * n..(b + 1) * n]);
                        }
                        let (features, jacobian) = block.split_at_mut(h);
                        activate(k == 0, features, s, first, second);
                        if let Some(gated) = gated.as_deref_mut() {
                            let jacobian = if k == 0 { &layer.input } else { &*jacobian };
                            let p = &record[layout.p(k + 1)];
                            gate_row(&mut gated[b * span..(b + 1) * span], p, features, first, jacobian);
                        }
                    }
                },
            );
        }
    }

    /// δ_k and d_k from the head down, with Ã_kᵀδ_k kept; then N and ∂N/∂x.
    fn sensitivities(&self, pass: &mut Pass<T>, weights: &Weights<T>, contexts: Parts<'_, T>, rows: usize) {
        let (n, h, depth) = self.sizes();
        let (layout, span) = (&self.layout, h * (n + 1));
        let Pass { hidden, x, slope, output, .. } = pass;
        let top = &mut hidden[depth - 1];
        let input = &weights.layers[depth - 1].input;
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let record = contexts.row(b);
                    let row = b * h..(b + 1) * h;
                    let (p, q) = (&record[layout.p(depth)], &record[layout.q(depth)]);
                    let e = &mut top.delta[row.clone()];
                    for ((e, &p), &a) in e.iter_mut().zip(p).zip(&weights.head) {
                        *e = p * a;
                    }
                    let start = b * if depth == 1 { h } else { span };
                    let mut value = dot(e, &top.block[start..start + h]) + weights.head_constant;
                    split_sensitivity(
                        e,
                        &mut top.bend[row.clone()],
                        &top.first[row.clone()],
                        &top.second[row],
                    );
                    let jacobian = if depth == 1 { input } else { &top.block[start + h..start + span] };
                    let e = &top.delta[b * h..(b + 1) * h];
                    for j in 0..n {
                        let direct = weights.head_input[j] * q[j];
                        slope[b * n + j] = dot(e, &jacobian[j * h..(j + 1) * h]) + direct;
                        value += direct * x[b * n + j];
                    }
                    output[b] = value;
                }
            },
        );
        for k in (1..depth).rev() {
            let (lower, upper) = hidden.split_at_mut(k);
            let (below, this) = (&mut lower[k - 1], &mut upper[0]);
            let weight = columns(&weights.layers[k].feature, h, h, h);
            let dst = columns_mut(&mut this.back, h, rows, h);
            product(dst, Accum::Replace, weight.transpose(), columns(&this.delta, h, rows, h));
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let p = &contexts.row(b)[layout.p(k)];
                        let row = b * h..(b + 1) * h;
                        let e = &mut below.delta[row.clone()];
                        for ((e, &p), &back) in e.iter_mut().zip(p).zip(&this.back[row.clone()]) {
                            *e = p * back;
                        }
                        let bend = &mut below.bend[row.clone()];
                        split_sensitivity(e, bend, &below.first[row.clone()], &below.second[row]);
                    }
                },
            );
        }
    }

    /// Σ_k M_kᵀ diag(d_k) M_k, lower triangle, for every row.
    fn curvature(&self, pass: &mut Pass<T>, weights: &Weights<T>, scratch: &mut Scratch<T>, rows: usize) {
        let (n, h, _) = self.sizes();
        let Pass { hidden, hessian, .. } = pass;
        let layers = || hidden.iter().zip(&weights.layers).enumerate();
        if n < DENSE_FROM {
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let hessian = &mut hessian[b * n * n..(b + 1) * n * n];
                        hessian.fill(T::ZERO);
                        for (k, (layer, weights)) in layers() {
                            let jacobian = layer.jacobian(k, b, h, &weights.input);
                            curvature_row(
                                hessian,
                                jacobian,
                                &layer.bend[b * h..(b + 1) * h],
                                &mut scratch.columns,
                            );
                        }
                    }
                },
            );
            return;
        }
        for b in 0..rows {
            let hessian = &mut hessian[b * n * n..(b + 1) * n * n];
            for (k, (layer, weights)) in layers() {
                let jacobian = layer.jacobian(k, b, h, &weights.input);
                let accum = if k == 0 { Accum::Replace } else { Accum::Add };
                let bend = &layer.bend[b * h..(b + 1) * h];
                curvature_product(hessian, accum, jacobian, bend, &mut scratch.columns);
            }
        }
    }

    /// The Cholesky factor and log determinant of H = b I + a Σ_k M_kᵀ diag(d_k) M_k, in double precision.
    fn factorise(&self, pass: &mut Pass<T>, weights: &Weights<T>, scratch: &mut Scratch<T>, rows: usize) {
        let n = self.layout.shape.target;
        let (a, quadratic) = (weights.a.to_f64(), weights.b.to_f64());
        pass.broken = None;
        for b in 0..rows {
            let hessian = &pass.hessian[b * n * n..(b + 1) * n * n];
            let factor = &mut pass.factor[b * n * n..(b + 1) * n * n];
            for j in 0..n {
                for i in j..n {
                    factor[i + j * n] =
                        a * hessian[i + j * n].to_f64() + if i == j { quadratic } else { 0.0 };
                }
            }
            pass.log_det[b] = spd::cholesky(factor, &mut scratch.spd).unwrap_or_else(|| {
                pass.broken.get_or_insert(b);
                f64::NAN
            });
        }
    }

    /// Everything up to ∇F and the log determinant at the points `x` of the pass: exact, or estimated where there are probes.
    pub(super) fn evaluate(
        &self,
        pass: &mut Pass<T>,
        weights: &Weights<T>,
        scratch: &mut Scratch<T>,
        contexts: Parts<'_, T>,
        rows: usize,
    ) {
        let n = self.layout.shape.target;
        self.features(pass, weights, contexts, rows);
        self.sensitivities(pass, weights, contexts, rows);
        self.curvature(pass, weights, scratch, rows);
        for (gradient, (&slope, &x)) in
            pass.gradient[..rows * n].iter_mut().zip(pass.slope.iter().zip(&pass.x))
        {
            *gradient = weights.a * slope + weights.b * x;
        }
        match pass.probes.is_some() {
            true => self.estimate(pass, weights, rows),
            false => self.factorise(pass, weights, scratch, rows),
        }
    }

    /// F of row b and the size of the terms it is the sum of, after an evaluation that left N.
    pub(super) fn value(&self, pass: &Pass<T>, weights: &Weights<T>, b: usize) -> (f64, f64) {
        let n = self.layout.shape.target;
        let network = weights.a.to_f64() * pass.output[b].to_f64();
        let square: f64 = pass.x[b * n..(b + 1) * n].iter().map(|x| x.to_f64() * x.to_f64()).sum();
        let quadratic = 0.5 * weights.b.to_f64() * square;
        (network + quadratic, network.abs() + quadratic)
    }
}

/// p_k starts at softplus(e⁻¹) …
const GATE: f64 = 0.367_879_441_171_442_33;
/// … and p_K at softplus(log(e − 1)) = 1.
const HEAD_GATE: f64 = 0.541_324_854_612_918_1;

/// s ↦ ψ(s) with two derivatives, or ψ(s) − s/2 in the symmetric first layer.
#[inline(always)]
pub(super) fn activate<T: Real>(
    symmetric: bool,
    features: &mut [T],
    s: &mut [T],
    first: &mut [T],
    second: &mut [T],
) {
    let h = features.len();
    let (s, first, second) = (&mut s[..h], &mut first[..h], &mut second[..h]);
    let half = T::from_f64(if symmetric { 0.5 } else { 0.0 });
    for i in 0..h {
        s[i] = features[i];
        let (value, slope, bend) = gaussian_softplus(features[i]);
        features[i] = value - half * s[i];
        first[i] = slope - half;
        second[i] = bend;
    }
}

/// d = e σ'' and δ = e σ', the latter in place of e.
#[inline(always)]
fn split_sensitivity<T: Real>(e: &mut [T], bend: &mut [T], first: &[T], second: &[T]) {
    let h = e.len();
    let (bend, first, second) = (&mut bend[..h], &first[..h], &second[..h]);
    for i in 0..h {
        bend[i] = e[i] * second[i];
        e[i] *= first[i];
    }
}
