//! The network forward: contexts of y, features of x, their Jacobian, the potential's gradient and Hessian.
//!
//! Every row of a batch owns n + 1 columns of height w per layer: the feature vector and its Jacobian side by
//! side, so that one product per layer carries both,
//!
//! [s_k | M_k] = A_k diag(p_k) [w_k | J_k] + X_k diag(gate_k) [x | I] + [c_k | 0],   J_k = diag(σ'(s_{k−1})) M_{k−1}.

use super::PcpMap;
use super::shape::{Layer, OutputActivation};
use crate::kernel::{Accum, Real, columns, columns_mut, dot, elu, product, softplus, spd, vectorised};
use crate::map::batch::Contexts;
use crate::map::convex::loops::{
    DENSE_FROM, by_strips, curvature_product, curvature_row, extend_row, gate_row,
};

/// What one hidden layer keeps for every row of a shard; heights are w throughout.
#[derive(Debug)]
pub(super) struct Hidden<T> {
    /// [w_{k+1} | M_k], n + 1 columns a row.
    pub block: Vec<T>,
    /// σ'(s_k); σ'' = σ'(1 − σ') and σ''' = σ''(1 − 2σ').
    pub sigmoid: Vec<T>,
    /// p_k ⊙ [w_k | J_k], n + 1 columns a row, then t_k = p_k ⊙ ē_k, one column a row; empty at k = 0.
    pub gated: Vec<T>,
    /// A_kᵀ δ_k; empty at k = 0.
    pub back: Vec<T>,
    /// δ_k = ∂s_K/∂s_k.
    pub delta: Vec<T>,
    /// Adjoint of [s_k | M_k], n + 1 columns a row, then a copy of δ_k, one column a row, so that the gradient of
    /// A_k is the one product bar · gatedᵀ; empty where only values are wanted.
    pub bar: Vec<T>,
}

/// Everything a fixed number of rows needs, sized once; each row's numbers depend on no other row.
#[derive(Debug)]
pub(crate) struct Shard<T> {
    pub(super) hidden: Vec<Hidden<T>>,
    /// A_kᵀ times the adjoint block, n + 1 columns a row.
    pub(super) pulled: Vec<T>,
    /// δ̄ of the layer at hand.
    pub(super) delta_bar: Vec<T>,
    /// d̄_k ahead of its use, one vector a row and layer.
    pub(super) curvature_bar: Vec<T>,
    /// Room for an n-column block of one row, two columns at the least.
    pub(super) scratch: Vec<T>,
    /// d_k of one row.
    pub(super) bend: Vec<T>,
    /// Room for one row's n × n matrix in the map's precision.
    pub(super) square: Vec<T>,
    /// Σ_k M_kᵀ diag(d_k) M_k, then −H⁻¹ times the loss's weight; n × n a row.
    pub(super) hessian: Vec<T>,
    /// Cholesky factor of H, n × n a row.
    pub(super) factor: Vec<f64>,
    pub(super) inverse: Vec<f64>,
    pub(super) spd: spd::SpdScratch,
    /// ∂s_K/∂x, n per row.
    pub(super) slope: Vec<T>,
    /// z = ∇G, n per row; in the reverse pass ∂ρ/∂z, ρ the cost of the reference.
    pub(super) z: Vec<T>,
    /// With a front: x − μ, u, ū, ∇ᵤF and z while ∇ᵤF's adjoint is in its place, n per row each.
    pub(super) centred: Vec<T>,
    pub(super) u: Vec<T>,
    pub(super) u_bar: Vec<T>,
    pub(super) inner: Vec<T>,
    pub(super) outer: Vec<T>,
    /// s_K of each row.
    pub(super) output: Vec<T>,
    /// log det H of each row.
    pub(super) log_det: Vec<f64>,
    /// Adjoint of each X_k, k = 0..=K, summed over the shard's rows.
    pub(super) input_bar: Vec<Vec<T>>,
    /// Adjoint of A_K.
    pub(super) head_bar: Vec<T>,
    /// Adjoint of γ.
    pub(super) gamma_bar: [f64; 3],
    /// Adjoint of the parameters of the reference's tail.
    pub(super) tail_bar: [f64; 2],
    /// Sum of the rows' losses.
    pub(super) loss: f64,
    /// The first row whose H was not positive definite, if any.
    pub(super) broken: Option<usize>,
}

impl Layer {
    /// This layer's part of a record.
    #[inline(always)]
    pub(super) fn of<'a, T>(&self, record: &'a [T]) -> &'a [T] {
        &record[self.record..self.record + self.rows]
    }

    #[inline(always)]
    pub(super) fn of_mut<'a, T>(&self, record: &'a mut [T]) -> &'a mut [T] {
        &mut record[self.record..self.record + self.rows]
    }
}

impl<T: Real> Shard<T> {
    /// Room for `rows` rows; the adjoint half only `with_adjoints`.
    pub(crate) fn new(map: &PcpMap<T>, rows: usize, with_adjoints: bool) -> Self {
        let (n, w, depth) = (map.layout.shape.target, map.layout.shape.feature_width, map.layout.shape.depth);
        let zeros = |length: usize| vec![T::ZERO; length];
        let adjoint = |length: usize| zeros(if with_adjoints { length } else { 0 });
        let front = if map.has_front() { n * rows } else { 0 };
        let hidden = (0..depth)
            .map(|k| Hidden {
                block: zeros(w * (n + 1) * rows),
                sigmoid: zeros(w * rows),
                gated: zeros(if k > 0 { w * (n + 2) * rows } else { 0 }),
                back: zeros(if k > 0 { w * rows } else { 0 }),
                delta: zeros(w * rows),
                bar: adjoint(w * (n + 2) * rows),
            })
            .collect();
        Self {
            hidden,
            pulled: adjoint(w * (n + 1) * rows),
            delta_bar: adjoint(w * rows),
            curvature_bar: adjoint(w * rows * depth),
            scratch: zeros(w * n.max(2)),
            bend: zeros(w),
            square: zeros(n * n),
            hessian: zeros(n * n * rows),
            factor: vec![0.0; n * n * rows],
            inverse: vec![0.0; n * n],
            spd: spd::SpdScratch::new(n),
            slope: zeros(n * rows),
            z: zeros(n * rows),
            centred: zeros(front),
            u: zeros(front),
            u_bar: adjoint(front),
            inner: zeros(front),
            outer: adjoint(front),
            output: zeros(rows),
            log_det: vec![0.0; rows],
            input_bar: map.layout.layers.iter().map(|layer| adjoint(layer.outputs * n)).collect(),
            head_bar: adjoint(w),
            gamma_bar: [0.0; 3],
            tail_bar: [0.0; 2],
            loss: 0.0,
            broken: None,
        }
    }
}

/// The scalars of the potential: a = softplus(γ₁), b = ReLU(γ₂) + softplus(γ₃).
#[derive(Clone, Copy, Debug)]
pub(super) struct Mixture<T> {
    pub a: T,
    pub b: T,
    /// ∂a/∂γ₁, ∂b/∂γ₂, ∂b/∂γ₃.
    pub slopes: [T; 3],
}

/// o = act(s_K) with three derivatives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlet<T> {
    pub value: T,
    pub first: T,
    pub second: T,
    pub third: T,
}

impl<T: Real> PcpMap<T> {
    pub(super) fn mixture(&self) -> Mixture<T> {
        let gamma = &self.parameters[self.layout.gamma.clone()];
        let ((a, slope_a), (c, slope_c)) = (softplus(gamma[0]), softplus(gamma[2]));
        let positive = gamma[1] > T::ZERO;
        Mixture {
            a,
            b: c + if positive { gamma[1] } else { T::ZERO },
            slopes: [slope_a, if positive { T::ONE } else { T::ZERO }, slope_c],
        }
    }

    #[inline(always)]
    pub(super) fn outlet(&self, s: T) -> Outlet<T> {
        match self.layout.shape.output {
            OutputActivation::Identity => Outlet { value: s, first: T::ONE, second: T::ZERO, third: T::ZERO },
            OutputActivation::Softplus => {
                let (value, first) = softplus(s);
                let second = first * (T::ONE - first);
                Outlet { value, first, second, third: second * (T::ONE - first - first) }
            }
        }
    }

    /// Contexts of `cols` observations y (m each) into their records: v_{k+1}, p_k, gate_k and c_k of every layer.
    pub(super) fn contexts(&self, y: &[T], records: &mut [T], cols: usize) {
        self.open_contexts(y, records, cols);
        self.close_contexts(records, cols);
    }

    /// C₀ y into the first layer's part of the records, rows of C₀ side by side on all threads.
    ///
    /// The halving depends on the height of C₀ alone, and so does every bit.
    pub(super) fn open_contexts(&self, y: &[T], records: &mut [T], cols: usize) {
        let (layer, stride) = (&self.layout.layers[0], self.layout.record);
        if layer.cols == 0 {
            return;
        }
        let weight = columns(&self.parameters[layer.weight.clone()], layer.rows, layer.cols, layer.rows);
        let dst = columns_mut(records, stride, cols, stride).subrows_mut(layer.record, layer.rows);
        by_strips(dst, weight, columns(y, layer.cols, cols, layer.cols));
    }

    /// The rest of [`contexts`](Self::contexts), after [`open_contexts`](Self::open_contexts).
    pub(super) fn close_contexts(&self, records: &mut [T], cols: usize) {
        let stride = self.layout.record;
        for (k, layer) in self.layout.layers.iter().enumerate() {
            if k > 0 && layer.cols > 0 {
                let weight =
                    columns(&self.parameters[layer.weight.clone()], layer.rows, layer.cols, layer.rows);
                let all = columns_mut(records, stride, cols, stride);
                let (before, mut here) = all.split_at_row_mut(layer.record);
                let v = before.as_ref().subrows(self.layout.layers[k - 1].record, layer.cols);
                product(here.as_mut().subrows_mut(0, layer.rows), Accum::Replace, weight, v);
            }
            let bias = &self.parameters[layer.bias.clone()];
            vectorised(
                #[inline(always)]
                || {
                    for record in records.chunks_exact_mut(stride).take(cols) {
                        let here = layer.of_mut(record);
                        if layer.cols == 0 {
                            // Without y the contexts are constants; without contexts the gates stand open.
                            let (open, constant) = here.split_at_mut(layer.rows - bias.len());
                            open.fill(T::ONE);
                            constant.copy_from_slice(bias);
                        } else {
                            for (value, &bias) in here.iter_mut().zip(bias) {
                                *value += bias;
                            }
                        }
                        for value in &mut here[layer.v.clone()] {
                            *value = elu(*value);
                        }
                        let rectified = if k == 0 { layer.gate.clone() } else { layer.p.clone() };
                        for value in &mut here[rectified] {
                            *value = value.at_least(T::ZERO);
                        }
                    }
                },
            );
        }
        if self.has_front() {
            records.chunks_exact_mut(stride).take(cols).for_each(|record| self.close_front(record));
        }
    }

    /// Features and Jacobians of `rows` rows: fills `block`, `sigmoid` and `gated` of every hidden layer.
    pub(super) fn features(&self, shard: &mut Shard<T>, contexts: Contexts<'_, T>, x: &[T], rows: usize) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.feature_width);
        let span = w * (n + 1);
        for k in 0..self.layout.shape.depth {
            let (layer, above) = (&self.layout.layers[k], &self.layout.layers[k + 1]);
            let (this, rest) = shard.hidden[k..].split_first_mut().expect("k < depth");
            if k > 0 {
                let weight = columns(&self.parameters[layer.feature.clone()], w, w, w);
                let dst = columns_mut(&mut this.block, w, (n + 1) * rows, w);
                product(dst, Accum::Replace, weight, columns(&this.gated, w, (n + 1) * rows, w));
            }
            let input = &self.parameters[layer.input.clone()];
            let mut gated = rest.first_mut().map(|next| next.gated.as_mut_slice());
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let record = contexts.row(b);
                        let here = layer.of(record);
                        let block = &mut this.block[b * span..(b + 1) * span];
                        let sigmoid = &mut this.sigmoid[b * w..(b + 1) * w];
                        let (gate, c) = (&here[layer.gate.clone()], &here[layer.c.clone()]);
                        if k == 0 {
                            open_row(block, input, gate, c, &x[b * n..(b + 1) * n]);
                        } else {
                            extend_row(block, input, gate, c, &x[b * n..(b + 1) * n]);
                        }
                        let (features, jacobian) = block.split_at_mut(w);
                        for (feature, slope) in features.iter_mut().zip(sigmoid.iter_mut()) {
                            (*feature, *slope) = softplus(*feature);
                        }
                        if let Some(gated) = gated.as_deref_mut() {
                            let p = &above.of(record)[above.p.clone()];
                            gate_row(&mut gated[b * span..(b + 1) * span], p, features, sigmoid, jacobian);
                        }
                    }
                },
            );
        }
    }

    /// δ_k = ∂s_K/∂s_k from the head down, with A_kᵀδ_k kept; then s_K and ∂s_K/∂x.
    pub(super) fn sensitivities(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
    ) {
        let (n, w, depth) =
            (self.layout.shape.target, self.layout.shape.feature_width, self.layout.shape.depth);
        let span = w * (n + 1);
        let head = &self.layout.layers[depth];
        let weight = &self.parameters[head.feature.clone()];
        let input = &self.parameters[head.input.clone()];
        let top = &mut shard.hidden[depth - 1];
        let (slope, output) = (&mut shard.slope, &mut shard.output);
        vectorised(
            #[inline(always)]
            || {
                for b in 0..rows {
                    let here = head.of(contexts.row(b));
                    let (p, gate) = (&here[head.p.clone()], &here[head.gate.clone()]);
                    let sigmoid = &top.sigmoid[b * w..(b + 1) * w];
                    let delta = &mut top.delta[b * w..(b + 1) * w];
                    let (features, jacobian) = top.block[b * span..(b + 1) * span].split_at(w);
                    for ((delta, &p), &a) in delta.iter_mut().zip(p).zip(weight) {
                        *delta = p * a;
                    }
                    let mut s_k = dot(delta, features) + here[head.c.start];
                    for (delta, &s) in delta.iter_mut().zip(sigmoid) {
                        *delta *= s;
                    }
                    for j in 0..n {
                        let gated = input[j] * gate[j];
                        slope[b * n + j] = dot(delta, &jacobian[j * w..(j + 1) * w]) + gated;
                        s_k += gated * x[b * n + j];
                    }
                    output[b] = s_k;
                }
            },
        );
        for k in (1..depth).rev() {
            let layer = &self.layout.layers[k];
            let weight = columns(&self.parameters[layer.feature.clone()], w, w, w);
            let (lower, upper) = shard.hidden.split_at_mut(k);
            let (below, this) = (&mut lower[k - 1], &mut upper[0]);
            let delta = columns(&this.delta, w, rows, w);
            product(columns_mut(&mut this.back, w, rows, w), Accum::Replace, weight.transpose(), delta);
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let p = &layer.of(contexts.row(b))[layer.p.clone()];
                        let row = b * w..(b + 1) * w;
                        let factors = this.back[row.clone()].iter().zip(p).zip(&below.sigmoid[row.clone()]);
                        for (delta, ((&back, &p), &s)) in below.delta[row].iter_mut().zip(factors) {
                            *delta = s * p * back;
                        }
                    }
                },
            );
        }
    }

    /// Σ_k M_kᵀ diag(d_k) M_k with d_k = δ_k(1 − σ'_k), lower triangle, for every row.
    pub(super) fn curvature(&self, shard: &mut Shard<T>, rows: usize) {
        let (n, w) = (self.layout.shape.target, self.layout.shape.feature_width);
        let span = w * (n + 1);
        let Shard { hidden, scratch, bend, hessian, .. } = shard;
        if n < DENSE_FROM {
            vectorised(
                #[inline(always)]
                || {
                    for b in 0..rows {
                        let hessian = &mut hessian[b * n * n..(b + 1) * n * n];
                        hessian.fill(T::ZERO);
                        for layer in hidden.iter() {
                            let jacobian = &layer.block[b * span + w..(b + 1) * span];
                            let row = b * w..(b + 1) * w;
                            bend_weights(bend, &layer.delta[row.clone()], &layer.sigmoid[row]);
                            curvature_row(hessian, jacobian, bend, scratch);
                        }
                    }
                },
            );
            return;
        }
        for b in 0..rows {
            let hessian = &mut hessian[b * n * n..(b + 1) * n * n];
            for (k, layer) in hidden.iter().enumerate() {
                let jacobian = &layer.block[b * span + w..(b + 1) * span];
                let row = b * w..(b + 1) * w;
                bend_weights(bend, &layer.delta[row.clone()], &layer.sigmoid[row]);
                let accum = if k == 0 { Accum::Replace } else { Accum::Add };
                curvature_product(hessian, accum, jacobian, bend, scratch);
            }
        }
    }

    /// z = ∇G, and the Cholesky factor and log determinant of H = ∇²G, for every row.
    ///
    /// H = b I + a (o' Σ_k M_kᵀ diag(d_k) M_k + o'' g gᵀ), g = ∂s_K/∂x, factorised in double precision.
    pub(super) fn factorise(&self, shard: &mut Shard<T>, x: &[T], rows: usize) {
        let n = self.layout.shape.target;
        let mixture = self.mixture();
        let (a, b_quadratic) = (mixture.a.to_f64(), mixture.b.to_f64());
        shard.broken = None;
        for b in 0..rows {
            let outlet = self.outlet(shard.output[b]);
            let (first, second) = (outlet.first.to_f64(), outlet.second.to_f64());
            let slope = &shard.slope[b * n..(b + 1) * n];
            let hessian = &shard.hessian[b * n * n..(b + 1) * n * n];
            let factor = &mut shard.factor[b * n * n..(b + 1) * n * n];
            for j in 0..n {
                for i in j..n {
                    let bend =
                        first * hessian[i + j * n].to_f64() + second * slope[i].to_f64() * slope[j].to_f64();
                    factor[i + j * n] = a * bend + if i == j { b_quadratic } else { 0.0 };
                }
                shard.z[b * n + j] = mixture.a * outlet.first * slope[j] + mixture.b * x[b * n + j];
            }
            shard.log_det[b] = spd::cholesky(factor, &mut shard.spd).unwrap_or_else(|| {
                shard.broken.get_or_insert(b);
                f64::NAN
            });
        }
    }

    /// Everything up to z, the factorised Hessian (with a front that of the potential in u) and the log-determinant, for rows
    /// whose contexts are at hand.
    pub(super) fn evaluate(&self, shard: &mut Shard<T>, contexts: Contexts<'_, T>, x: &[T], rows: usize) {
        if !self.has_front() {
            return self.evaluate_inside(shard, contexts, x, rows);
        }
        self.enter_front(shard, contexts, x, rows);
        let u = std::mem::take(&mut shard.u);
        self.evaluate_inside(shard, contexts, &u, rows);
        shard.u = u;
        self.leave_front(shard, contexts, rows);
    }

    /// The same for the potential behind the front, of which `x` is u.
    pub(super) fn evaluate_inside(
        &self,
        shard: &mut Shard<T>,
        contexts: Contexts<'_, T>,
        x: &[T],
        rows: usize,
    ) {
        self.features(shard, contexts, x, rows);
        self.sensitivities(shard, contexts, x, rows);
        self.curvature(shard, rows);
        self.factorise(shard, x, rows);
    }
}

/// Layer 0: s = c + X(gate ⊙ x), M = X diag(gate).
#[inline(always)]
fn open_row<T: Real>(block: &mut [T], input: &[T], gate: &[T], c: &[T], x: &[T]) {
    let w = c.len();
    let (s, jacobian) = block.split_at_mut(w);
    s.copy_from_slice(c);
    for (((column, m), &gate), &x) in input.chunks_exact(w).zip(jacobian.chunks_exact_mut(w)).zip(gate).zip(x)
    {
        for ((m, s), &weight) in m.iter_mut().zip(s.iter_mut()).zip(column) {
            *m = weight * gate;
            *s = m.fma(x, *s);
        }
    }
}

/// d = δ(1 − σ').
#[inline(always)]
pub(super) fn bend_weights<T: Real>(bend: &mut [T], delta: &[T], sigmoid: &[T]) {
    for ((bend, &delta), &s) in bend.iter_mut().zip(delta).zip(sigmoid) {
        *bend = delta * (T::ONE - s);
    }
}
