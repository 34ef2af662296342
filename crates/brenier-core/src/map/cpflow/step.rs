//! One training step: the batch in shards, then the gradient in blocks.

use std::ops::Range;

use crate::kernel::Accum;

use super::stochastic::Probes;
use super::weights::{Effective, LEAST_FACTOR, softplus_slope};
use super::{CpFlowMap, LogDet, Shard};
use crate::Result;
use crate::kernel::{Real, columns, columns_mut, product, vectorised};
use crate::map::batch::{Contexts, batch_by_batch, slices, sum_into};
use crate::map::convex::{WIDE, shard_rows};
use crate::map::{ConditionalMap, Constraint, ParameterBlock, Trainable};
use crate::parallel::each;

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub struct CpFlowWorkspace<T> {
    rows: usize,
    shard_rows: usize,
    x: Vec<T>,
    y: Vec<T>,
    weights: Effective<T>,
    /// Context records of the batch.
    records: Vec<T>,
    /// Their adjoints.
    adjoints: Vec<T>,
    shards: Vec<Shard<T>>,
    blocks: Vec<ParameterBlock>,
    parts: Vec<Part>,
}

/// What a block of the parameter vector holds; `l` is the potential, `k` the layer.
#[derive(Clone, Debug)]
enum Part {
    /// Shift of an outer normalisation.
    OuterShift { l: usize },
    /// Scale of an outer normalisation.
    OuterScale { l: usize },
    /// Columns of B.
    Context { l: usize, cols: Range<usize> },
    /// b, or the shift of AN_c.
    ContextConstant { l: usize },
    /// Scale of AN_c.
    ContextScale { l: usize },
    /// Columns of the stacked gates.
    Gates { l: usize, cols: Range<usize> },
    /// Biases of the gates.
    GatesBias { l: usize },
    /// Columns of W_k.
    Feature { l: usize, k: usize, cols: Range<usize> },
    /// bP_k.
    FeatureBias { l: usize, k: usize },
    /// X_k.
    Input { l: usize, k: usize },
    /// bX_k, or the shift of AN_k.
    Constant { l: usize, k: usize },
    /// Scale of AN_k.
    Scale { l: usize, k: usize },
    /// W_K.
    Head { l: usize },
    /// x_K.
    HeadInput { l: usize },
    /// Shift of AN_K, which moves the potential but not its gradient.
    HeadShift,
    /// Scale of AN_K.
    HeadScale { l: usize },
    /// w₀ and w₁.
    Mixture { l: usize },
}

impl<T: Real> CpFlowMap<T> {
    fn parts_of_gradient(&self) -> (Vec<ParameterBlock>, Vec<Part>) {
        let (layout, h, m) = (&self.layout, self.layout.shape.width, self.layout.shape.given);
        let (mut blocks, mut parts) = (Vec::new(), Vec::new());
        let mut push = |range: Range<usize>, part: Part, decays: bool| {
            if !range.is_empty() {
                blocks.push(ParameterBlock { range, rate: 1.0, constraint: Constraint::Free, decays });
                parts.push(part);
            }
        };
        for (l, norm) in layout.outer.iter().enumerate() {
            push(norm.shift.clone(), Part::OuterShift { l }, false);
            push(norm.scale.clone(), Part::OuterScale { l }, false);
            let Some(block) = layout.blocks.get(l) else { break };
            for cols in slices(m, h, 32) {
                let range = block.context.start + cols.start * h..block.context.start + cols.end * h;
                push(range, Part::Context { l, cols }, true);
            }
            push(block.context_bias.clone(), Part::ContextConstant { l }, false);
            push(block.context_norm.shift.clone(), Part::ContextConstant { l }, false);
            push(block.context_norm.scale.clone(), Part::ContextScale { l }, false);
            let rows = layout.gate_rows;
            for cols in slices(h, rows, 32) {
                let range = block.gates.start + cols.start * rows..block.gates.start + cols.end * rows;
                push(range, Part::Gates { l, cols }, true);
            }
            push(block.gates_bias.clone(), Part::GatesBias { l }, false);
            for (k, layer) in block.layers.iter().enumerate() {
                if k > 0 {
                    for cols in slices(h, h, h / 4) {
                        let range = layer.feature.start + cols.start * h..layer.feature.start + cols.end * h;
                        push(range, Part::Feature { l, k, cols }, true);
                    }
                    push(layer.feature_bias.clone(), Part::FeatureBias { l, k }, false);
                }
                push(layer.input.clone(), Part::Input { l, k }, true);
                push(layer.input_bias.clone(), Part::Constant { l, k }, false);
                push(layer.norm.shift.clone(), Part::Constant { l, k }, false);
                push(layer.norm.scale.clone(), Part::Scale { l, k }, false);
            }
            push(block.head.clone(), Part::Head { l }, true);
            push(block.head_input.clone(), Part::HeadInput { l }, true);
            push(block.head_norm.shift.clone(), Part::HeadShift, false);
            push(block.head_norm.scale.clone(), Part::HeadScale { l }, false);
            push(block.mixture.clone(), Part::Mixture { l }, false);
        }
        (blocks, parts)
    }

    /// Runs the loaded batch shard by shard and returns the mean loss.
    fn run(&self, workspace: &mut CpFlowWorkspace<T>, with_adjoints: bool) -> Result<f64> {
        let CpFlowWorkspace { rows, shard_rows, x, y, weights, records, adjoints, shards, .. } = workspace;
        let (rows, shard_rows) = (*rows, *shard_rows);
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let used = rows.div_ceil(shard_rows);
        let weight = 1.0 / rows as f64;
        self.prepare(weights);
        // A wide B is read once for the whole batch; a narrow one goes with the shards.
        let wide = m > WIDE;
        if wide {
            (0..weights.blocks.len()).for_each(|l| self.open_contexts(l, &y[..rows * m], records, rows));
        }
        let weights = &*weights;
        let estimated = with_adjoints && self.log_det == LogDet::Stochastic;
        let both = records.chunks_mut(shard_rows * stride).zip(adjoints.chunks_mut(shard_rows * stride));
        each(shards[..used].iter_mut().zip(both), |index, (shard, (records, adjoints))| {
            let first = index * shard_rows;
            let count = shard_rows.min(rows - first);
            let x = &x[first * n..(first + count) * n];
            for (l, block) in weights.blocks.iter().enumerate() {
                if !wide {
                    self.open_contexts(l, &y[first * m..(first + count) * m], records, count);
                }
                self.close_contexts(l, block, records, count);
            }
            for pass in &mut shard.passes {
                // Only the loss of a step is estimated.
                match estimated {
                    true => _ = pass.probes.get_or_insert_with(|| Probes::new(n, shard_rows)),
                    false => pass.probes = None,
                }
            }
            let contexts = Contexts { records, stride, index: None };
            self.run_shard(shard, weights, contexts, x, count);
            shard.loss = (0..count).map(|b| shard.row_loss(b, n)).sum();
            if with_adjoints && shard.passes.iter().all(|pass| pass.broken.is_none()) {
                self.pull_back(shard, weights, contexts, x, count, weight, adjoints);
                for (l, (pass, block)) in shard.passes.iter_mut().zip(&weights.blocks).enumerate() {
                    let sum = &mut pass.sums.context_factor;
                    self.pull_back_contexts(l, block, records, adjoints, count, sum);
                }
            }
        });
        for (index, shard) in shards[..used].iter().enumerate() {
            self.check_shard(shard, index * shard_rows)?;
        }
        Ok(shards[..used].iter().map(|shard| shard.loss).sum::<f64>() * weight)
    }
}

/// From α times the adjoint of α = exp(scale) + 0.001 to the adjoint of the scale.
fn through_scale<T: Real>(gradient: &mut [T], factor: &[T]) {
    let least = T::from_f64(LEAST_FACTOR);
    for (gradient, &factor) in gradient.iter_mut().zip(factor) {
        *gradient *= (factor - least) / factor;
    }
}

/// gradient ⊙ factor, column by column.
fn times<T: Real>(gradient: &mut [T], factor: &[T]) {
    for column in gradient.chunks_exact_mut(factor.len()) {
        for (gradient, &factor) in column.iter_mut().zip(factor) {
            *gradient *= factor;
        }
    }
}

impl<T: Real> Trainable<T> for CpFlowMap<T> {
    type Workspace = CpFlowWorkspace<T>;

    fn workspace(&self, rows: usize) -> CpFlowWorkspace<T> {
        let shape = self.layout.shape;
        let shard_rows = shard_rows(rows);
        let count = rows.div_ceil(shard_rows);
        let (blocks, parts) = self.parts_of_gradient();
        CpFlowWorkspace {
            rows: 0,
            shard_rows,
            x: vec![T::ZERO; rows * shape.target],
            y: vec![T::ZERO; rows * shape.given],
            weights: self.room_for_weights(),
            records: vec![T::ZERO; count * shard_rows * self.layout.record],
            adjoints: vec![T::ZERO; count * shard_rows * self.layout.record],
            shards: (0..count).map(|_| Shard::new(self, shard_rows, true)).collect(),
            blocks,
            parts,
        }
    }

    batch_by_batch!(CpFlowWorkspace);

    fn adjoints(&self, workspace: &mut CpFlowWorkspace<T>) -> Result<f64> {
        self.run(workspace, true)
    }

    fn loss(&self, workspace: &mut CpFlowWorkspace<T>) -> Result<f64> {
        self.run(workspace, false)
    }

    fn block_gradient(&self, workspace: &CpFlowWorkspace<T>, index: usize, gradient: &mut [T]) {
        let CpFlowWorkspace { rows, shard_rows, y, weights, records, adjoints, shards, .. } = workspace;
        let (rows, layout, stride) = (*rows, &self.layout, self.layout.record);
        let (n, h, m) = (layout.shape.target, layout.shape.width, layout.shape.given);
        let shards = &shards[..rows.div_ceil(*shard_rows)];
        let fan_in = T::from_f64(1.0 / h as f64);
        let sums = |l: usize| shards.iter().map(move |shard| &shard.passes[l].sums);
        let part = |l: usize| l * layout.part;
        let sum_records = |gradient: &mut [T], start: usize| {
            gradient.fill(T::ZERO);
            vectorised(
                #[inline(always)]
                || {
                    for record in adjoints.chunks_exact(stride).take(rows) {
                        for (sum, &adjoint) in gradient.iter_mut().zip(&record[start..]) {
                            *sum += adjoint;
                        }
                    }
                },
            );
        };
        match &workspace.parts[index] {
            &Part::OuterShift { l } => sum_into(gradient, shards.iter().map(|s| s.outer[l][0].as_slice())),
            &Part::OuterScale { l } => {
                sum_into(gradient, shards.iter().map(|shard| shard.outer[l][1].as_slice()));
                // The log-determinant has Σ log α.
                gradient.iter_mut().for_each(|gradient| *gradient -= T::ONE);
                through_scale(gradient, &weights.outer[l].factor);
            }
            Part::Context { l, cols } => {
                let adjoint = columns(&adjoints[part(*l)..], h, rows, stride);
                let y = columns(y, m, rows, m).subrows(cols.start, cols.len());
                let dst = columns_mut(gradient, h, cols.len(), h);
                product(dst, Accum::Replace, adjoint, y.transpose());
            }
            &Part::ContextConstant { l } => sum_records(gradient, part(l)),
            &Part::ContextScale { l } => {
                sum_into(gradient, sums(l).map(|sums| sums.context_factor.as_slice()));
                through_scale(gradient, &weights.blocks[l].context_norm.factor);
            }
            Part::Gates { l, cols } => {
                let adjoint = columns(&adjoints[part(*l) + 2 * h..], layout.gate_rows, rows, stride);
                let c = columns(&records[part(*l) + h..], h, rows, stride);
                let c = c.subrows(cols.start, cols.len());
                let dst = columns_mut(gradient, layout.gate_rows, cols.len(), layout.gate_rows);
                product(dst, Accum::Replace, adjoint, c.transpose());
            }
            &Part::GatesBias { l } => sum_records(gradient, part(l) + 2 * h),
            Part::Feature { l, k, cols } => {
                for (index, shard) in shards.iter().enumerate() {
                    let count = (*shard_rows).min(rows - index * shard_rows);
                    let hidden = &shard.passes[*l].hidden[*k];
                    let accum = if index == 0 { Accum::Replace } else { Accum::Add };
                    let bar = columns(&hidden.bar, h, (n + 2) * count, h);
                    let gated = columns(&hidden.gated, h, (n + 2) * count, h).subrows(cols.start, cols.len());
                    product(columns_mut(gradient, h, cols.len(), h), accum, bar, gated.transpose());
                }
                let layer = &weights.blocks[*l].layers[*k];
                let positive = &layer.feature[cols.start * h..cols.end * h];
                vectorised(
                    #[inline(always)]
                    || {
                        for (gradient, positive) in gradient.chunks_exact_mut(h).zip(positive.chunks_exact(h))
                        {
                            for ((gradient, &positive), &factor) in
                                gradient.iter_mut().zip(positive).zip(&layer.factor)
                            {
                                let scale = factor * fan_in;
                                *gradient *= scale * softplus_slope(positive / scale);
                            }
                        }
                    },
                );
            }
            &Part::FeatureBias { l, k } => {
                sum_into(gradient, sums(l).map(|sums| sums.constant[k].as_slice()));
                times(gradient, &weights.blocks[l].layers[k].factor);
                gradient.iter_mut().for_each(|gradient| *gradient *= fan_in);
            }
            &Part::Input { l, k } => {
                sum_into(gradient, sums(l).map(|sums| sums.input[k].as_slice()));
                times(gradient, &weights.blocks[l].layers[k].factor);
            }
            &Part::Constant { l, k } => {
                sum_into(gradient, sums(l).map(|sums| sums.constant[k].as_slice()));
                times(gradient, &weights.blocks[l].layers[k].factor);
            }
            &Part::Scale { l, k } => {
                sum_into(gradient, sums(l).map(|sums| sums.factor[k].as_slice()));
                through_scale(gradient, &weights.blocks[l].layers[k].factor);
            }
            &Part::Head { l } => {
                sum_into(gradient, sums(l).map(|sums| sums.head.as_slice()));
                let scale = weights.blocks[l].head_factor * fan_in;
                for (gradient, &positive) in gradient.iter_mut().zip(&weights.blocks[l].head) {
                    *gradient *= scale * softplus_slope(positive / scale);
                }
            }
            &Part::HeadInput { l } => {
                sum_into(gradient, sums(l).map(|sums| sums.head_input.as_slice()));
                gradient.iter_mut().for_each(|gradient| *gradient *= weights.blocks[l].head_factor);
            }
            Part::HeadShift => gradient.fill(T::ZERO),
            &Part::HeadScale { l } => {
                let block = &weights.blocks[l];
                let share = |bar: &[T], weight: &[T]| -> f64 {
                    bar.iter().zip(weight).map(|(bar, weight)| bar.to_f64() * weight.to_f64()).sum()
                };
                let total: f64 = sums(l)
                    .map(|sums| share(&sums.head, &block.head) + share(&sums.head_input, &block.head_input))
                    .sum();
                gradient[0] = T::from_f64(total);
                through_scale(gradient, &[block.head_factor]);
            }
            &Part::Mixture { l } => {
                let [slope_a, slope_b] = weights.blocks[l].slopes;
                let total = |i: usize| T::from_f64(sums(l).map(|sums| sums.mixture[i]).sum());
                gradient[0] = slope_b * total(1);
                gradient[1] = slope_a * total(0);
            }
        }
    }
}

impl<T: Real> CpFlowWorkspace<T> {
    /// `length` numbers per row of the batch, from where `of` finds them in each shard.
    pub(super) fn gather(&self, length: usize, of: impl Fn(&Shard<T>) -> &[T]) -> Vec<T> {
        let mut values = Vec::with_capacity(self.rows * length);
        for (index, shard) in self.shards.iter().enumerate().take(self.rows.div_ceil(self.shard_rows)) {
            let count = self.shard_rows.min(self.rows - index * self.shard_rows);
            values.extend_from_slice(&of(shard)[..count * length]);
        }
        values
    }

    /// AN_c(By + b) of every row, as block `l` has it.
    pub(super) fn raw_contexts(&self, map: &CpFlowMap<T>, l: usize) -> Vec<T> {
        let (start, h) = (l * map.layout.part, map.layout.shape.width);
        let records = self.records.chunks_exact(map.layout.record).take(self.rows);
        records.flat_map(|record| &record[start..start + h]).copied().collect()
    }
}
