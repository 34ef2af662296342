//! Rows that are evaluated together: their states, activations and adjoints, and what the parameters make for all rows.

use crate::kernel::Accum;

use super::lanes::{LANES, apply, into_lanes, some, view};
use super::linear::Linear;
use super::shape::{FlowKind, TransformPlace};
use super::spline::{PICKED, Spline};
use super::{LEAST, NpeMap};
use crate::kernel::{MatRef, Real, Store, Weights, columns, columns_mut, logistic, product, row_products};
use crate::map::HALF_LOG_TWO_PI;

/// What is computed from the parameters once for all rows.
#[derive(Clone, Debug)]
pub(super) struct Prepared<T> {
    /// The transforms' parameters without the masked ones; empty where nothing is masked.
    weights: Vec<T>,
    pub(super) linear: Vec<Linear<T>>,
    pub(super) spline: Spline<T>,
}

/// The activations of one transform.
#[derive(Clone, Debug)]
pub(super) struct Kept<T> {
    /// Inputs of the hidden layers and of the output, each after a column of ones.
    pub(super) layers: Vec<Vec<T>>,
    /// What gates are multiplied with.
    pub(super) inner: Vec<Vec<T>>,
    /// The network's outputs, later overwritten with what the way back needs of them.
    pub(super) outputs: Vec<T>,
    /// Scales, or the parts of splines that the way back needs.
    pub(super) picked: Vec<T>,
    /// The state between coupling and linear layer, after a column of ones.
    pub(super) middle: Vec<T>,
}

/// Memory of the rows of one shard; see [`lanes`](super::lanes) for its order.
#[derive(Clone, Debug)]
pub(super) struct Shard<T> {
    pub(super) stride: usize,
    /// x, where a front makes the first state of it; empty otherwise.
    pub(super) entered: Vec<T>,
    /// States before the first, between and after the last transform, each after a column of ones.
    pub(super) states: Vec<Vec<T>>,
    /// One per transform, or one for all where nothing goes back.
    pub(super) kept: Vec<Kept<T>>,
    /// The features of y after a column of ones, where there are few enough for narrow products.
    pub(super) features: Vec<T>,
    /// What the transforms take from y: T · slots · h columns.
    pub(super) contexts: Vec<T>,
    pub(super) log_det: Vec<f64>,
    pub(super) log: Vec<T>,
    pub(super) bars: Bars<T>,
    pub(super) loss: f64,
}

/// Adjoints of one shard.
#[derive(Clone, Debug)]
pub(super) struct Bars<T> {
    /// Of the state at hand, and of the state before it.
    pub(super) state: Vec<T>,
    pub(super) before: Vec<T>,
    /// Of the hidden layer at hand, and of the one below.
    pub(super) hidden: Vec<T>,
    pub(super) below: Vec<T>,
    pub(super) outputs: Vec<T>,
    pub(super) contexts: Vec<T>,
    /// Of a linear layer's matrix.
    pub(super) matrix: Vec<T>,
    /// Memory of [`row_sums`](crate::kernel::row_sums).
    pub(super) turned: Vec<T>,
    /// Of the transforms' parameters, summed over the shard's rows; empty where they are not wanted.
    pub(super) gradient: Vec<T>,
}

/// What a shard is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Values and draws.
    Values,
    /// Adjoints of x.
    States,
    /// Adjoints of everything.
    Training,
}

/// `count` columns, the first of ones.
fn with_ones<T: Real>(stride: usize, count: usize) -> Vec<T> {
    let mut buffer = vec![T::ZERO; stride * (count + 1)];
    buffer[..stride].fill(T::ONE);
    buffer
}

impl<T: Real> Shard<T> {
    pub(super) fn new(map: &NpeMap<T>, rows: usize, purpose: Use) -> Self {
        let (shape, layout) = (&map.layout.shape, &map.layout);
        let (n, h, blocks) = (shape.target, shape.hidden_width, shape.blocks);
        let stride = rows.max(1).next_multiple_of(LANES);
        let zeros = |columns: usize| vec![T::ZERO; stride * columns];
        let (layers, inner, outputs, picked, middle) = match (shape.flow, n) {
            (FlowKind::Maf, _) => (blocks + 1, 0, 2 * n, n, 0),
            (FlowKind::Nsf, 1) => (blocks, 0, shape.spline_parameters(), PICKED, 0),
            (FlowKind::Nsf, _) => {
                let moved = n.div_ceil(2);
                (2 * blocks + 1, blocks, shape.spline_parameters() * moved, PICKED * moved, n)
            }
        };
        let kept = Kept {
            layers: (0..layers).map(|_| with_ones(stride, h)).collect(),
            inner: (0..inner).map(|_| zeros(h)).collect(),
            outputs: zeros(outputs),
            picked: zeros(picked),
            middle: with_ones(stride, middle),
        };
        let back = |columns: usize| zeros(if purpose == Use::Values { 0 } else { columns });
        Self {
            stride,
            entered: zeros(if map.has_front() { n } else { 0 }),
            states: (0..=shape.transforms).map(|_| with_ones(stride, n)).collect(),
            kept: vec![kept; if purpose == Use::Values { 1 } else { shape.transforms }],
            features: Vec::new(),
            contexts: zeros(layout.record),
            log_det: vec![0.0; stride],
            log: zeros(1),
            bars: Bars {
                state: back(n),
                before: back(n),
                hidden: back(h),
                below: back(h),
                outputs: back(outputs),
                contexts: back(layout.record),
                matrix: vec![T::ZERO; middle * (middle + 1)],
                turned: Vec::new(),
                gradient: vec![T::ZERO; if purpose == Use::Training { layout.core } else { 0 }],
            },
            loss: 0.0,
        }
    }

    /// `rows` rounded up to whole chunks.
    pub(super) fn padded(&self, rows: usize) -> usize {
        rows.next_multiple_of(LANES).min(self.stride)
    }

    /// Rows x as what the flow starts from.
    pub(super) fn load(&mut self, x: &[T], n: usize) {
        let stride = self.stride;
        let place = if self.entered.is_empty() { &mut self.states[0][stride..] } else { &mut self.entered };
        into_lanes(x, n, place, stride);
    }

    /// The columns x that the flow starts from.
    pub(super) fn start(&self) -> &[T] {
        if self.entered.is_empty() { &self.states[0][self.stride..] } else { &self.entered }
    }

    /// The columns z of the state after the last transform.
    pub(super) fn end(&self) -> &[T] {
        &self.states[self.states.len() - 1][self.stride..]
    }

    /// ½‖z‖² + (n/2) log 2π − log |det| of row b.
    pub(super) fn row_loss(&self, b: usize, n: usize) -> f64 {
        let z = self.end();
        let square: f64 = (0..n).map(|i| z[i * self.stride + b].to_f64().powi(2)).sum();
        0.5 * square + n as f64 * HALF_LOG_TWO_PI - self.log_det[b]
    }

    /// Adds the column `log` to the log-determinants and clears it.
    pub(super) fn settle_log(&mut self, rows: usize, constant: f64) {
        for (sum, log) in self.log_det[..rows].iter_mut().zip(&mut self.log) {
            *sum += log.to_f64() + constant;
        }
        self.log.fill(T::ZERO);
    }
}

impl<T: Real> NpeMap<T> {
    /// What the parameters make for all rows.
    pub(super) fn prepared(&self) -> Prepared<T> {
        let masked = self.layout.shape.flow == FlowKind::Maf;
        let mut prepared = Prepared {
            weights: vec![T::ZERO; if masked { self.layout.core } else { 0 }],
            linear: vec![Linear::new(self.layout.shape.target); self.layout.transforms.len()],
            spline: Spline::new(&self.layout.shape),
        };
        self.prepare(&mut prepared);
        prepared
    }

    /// The same again, after the parameters changed.
    pub(super) fn prepare(&self, prepared: &mut Prepared<T>) {
        let count = prepared.weights.len();
        prepared.weights.copy_from_slice(&self.parameters[..count]);
        for (place, linear) in self.layout.transforms.iter().zip(&mut prepared.linear) {
            match place {
                TransformPlace::Autoregressive { layers, .. } => {
                    for (index, layer) in layers.iter().enumerate() {
                        self.layout.mask(index, &mut prepared.weights[layer.all()]);
                    }
                }
                TransformPlace::Coupling { linear: place, .. } => linear.prepare(place, &self.parameters),
                TransformPlace::Spline { .. } => {}
            }
        }
    }

    /// The transforms' parameters, masked ones zero.
    pub(super) fn weights<'a>(&'a self, prepared: &'a Prepared<T>) -> &'a [T] {
        if prepared.weights.is_empty() { &self.parameters } else { &prepared.weights }
    }

    /// Columns of what the transforms take from `features`, one row of e each: C e + c, behind tanh for autoregressive
    /// transforms, and gates behind the logistic function. Few features are left in `lanes` as columns after one of ones.
    pub(super) fn contexts(&self, features: MatRef<'_, T>, lanes: &mut Vec<T>, out: &mut [T], stride: usize) {
        let (layout, rows) = (&self.layout, features.ncols());
        let (h, record) = (layout.shape.hidden_width, layout.record);
        let padded = rows.next_multiple_of(LANES).min(stride);
        if layout.few_features() {
            let count = layout.features + 1;
            lanes.resize(count * stride, T::ZERO);
            lanes[..stride].fill(T::ONE);
            for b in 0..rows {
                for (j, column) in lanes[stride..].chunks_exact_mut(stride).enumerate() {
                    column[b] = features[(j, b)];
                }
            }
            // [c | C] stand side by side.
            let weights = Weights {
                values: &self.parameters[layout.context_bias.start..layout.context_weight.end],
                stride: record,
                by_output: false,
                inputs: 0..count,
                outputs: 0..record,
            };
            row_products(out, stride, Store::Replace, some(lanes, stride, 0..count), padded, weights);
        } else {
            let bias = &self.parameters[layout.context_bias.clone()];
            for (column, &bias) in out.chunks_exact_mut(stride).zip(bias) {
                column.fill(bias);
            }
            let weight = &self.parameters[layout.context_weight.clone()];
            let weight = columns(weight, record, layout.features, record);
            let dst = columns_mut(out, rows, record, stride);
            product(dst, Accum::Add, features.transpose(), weight.transpose());
        }
        let (flow, front) = out.split_at_mut(layout.flow_record() * stride);
        for (slot, out) in flow.chunks_exact_mut(stride * h).enumerate() {
            match (layout.shape.flow, slot % layout.slots) {
                (FlowKind::Maf, _) => apply(out, stride, padded, |s| s.tanh_vec()),
                (FlowKind::Nsf, 0) => {}
                (FlowKind::Nsf, _) => apply(out, stride, padded, logistic),
            }
        }
        if self.has_front() {
            self.close_front(front, stride, padded);
        }
    }

    /// z and log |det ∂z/∂x| of the rows that were loaded, with their contexts.
    pub(super) fn evaluate(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, rows: usize) {
        shard.log_det[..rows].fill(0.0);
        if self.has_front() {
            self.enter_front(shard, rows);
        }
        for (t, place) in self.layout.transforms.iter().enumerate() {
            match place {
                TransformPlace::Autoregressive { .. } => self.autoregress(prepared, shard, t, rows),
                TransformPlace::Coupling { .. } => self.couple(prepared, shard, t, rows),
                TransformPlace::Spline { .. } => self.bend(prepared, shard, t, rows),
            }
            let constant = prepared.linear[t].log_det;
            shard.settle_log(rows, constant);
        }
    }

    /// The adjoints of `weight` times the rows' losses, after [`evaluate`](Self::evaluate).
    ///
    /// x̄ is left in `bars.state`.
    pub(super) fn pull_back(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, rows: usize, weight: f64) {
        let (n, stride, padded) = (self.layout.shape.target, shard.stride, shard.padded(rows));
        let weight = T::from_f64(weight);
        let Shard { states, bars, .. } = shard;
        let z = &states[states.len() - 1][stride..];
        super::lanes::combine(&mut bars.state[..n * stride], z, stride, padded, |_, z| weight * z);
        for (t, place) in self.layout.transforms.iter().enumerate().rev() {
            match place {
                TransformPlace::Autoregressive { .. } => {
                    self.autoregress_back(prepared, shard, t, rows, weight)
                }
                TransformPlace::Coupling { .. } => self.couple_back(prepared, shard, t, rows, weight),
                TransformPlace::Spline { .. } => self.bend_back(prepared, shard, t, rows, weight),
            }
        }
        if self.has_front() {
            self.pull_front(shard, rows, weight);
        }
    }

    /// The other way: from z after the last transform to x before the first.
    pub(super) fn invert(&self, prepared: &Prepared<T>, shard: &mut Shard<T>, rows: usize) {
        for (t, place) in self.layout.transforms.iter().enumerate().rev() {
            match place {
                TransformPlace::Autoregressive { .. } => self.autoregress_inverse(prepared, shard, t, rows),
                TransformPlace::Coupling { .. } => self.couple_inverse(prepared, shard, t, rows),
                TransformPlace::Spline { .. } => self.bend_inverse(prepared, shard, t, rows),
            }
        }
        if self.has_front() {
            self.leave_front(shard, rows);
        }
    }

    /// From the adjoints of slot values, and of the front's, to those of C e + c, in place: tanh' = 1 − c², σ' = g(1 − g).
    pub(super) fn close_contexts(&self, shard: &mut Shard<T>, rows: usize) {
        let (stride, padded) = (shard.stride, shard.padded(rows));
        let (layout, h) = (&self.layout, self.layout.shape.hidden_width);
        let Shard { contexts, bars, .. } = shard;
        let (flow, front) = bars.contexts.split_at_mut(layout.flow_record() * stride);
        let (values, front_values) = contexts.split_at(flow.len());
        if self.has_front() {
            self.open_front_bars(front, front_values, stride, padded);
        }
        let slots = flow.chunks_exact_mut(stride * h).zip(values.chunks_exact(stride * h));
        for (slot, (bar, value)) in slots.enumerate() {
            match (layout.shape.flow, slot % layout.slots) {
                (FlowKind::Maf, _) => {
                    super::lanes::combine(bar, value, stride, padded, |bar, c| bar * (T::ONE - c * c));
                }
                (FlowKind::Nsf, 0) => {}
                (FlowKind::Nsf, _) => {
                    super::lanes::combine(bar, value, stride, padded, |bar, g| bar * g * (T::ONE - g));
                }
            }
        }
    }

    /// ē of a shard's rows, one column each, from the adjoints of C e + c.
    pub(super) fn pull_features(&self, dst: crate::kernel::MatMut<'_, T>, shard: &Shard<T>, rows: usize) {
        let (layout, record) = (&self.layout, self.layout.record);
        let weight = &self.parameters[layout.context_weight.clone()];
        let weight = columns(weight, record, layout.features, record);
        let bars = view(&shard.bars.contexts, shard.stride, rows, 0..record);
        product(dst, Accum::Replace, weight.transpose(), bars.transpose());
    }
}

/// softplus(a) + ε and the derivative of softplus.
#[inline(always)]
pub(super) fn scale<T: Real>(a: T) -> (T, T) {
    let (value, slope) = crate::kernel::softplus(a);
    (value + T::from_f64(LEAST), slope)
}
