//! One training step: the batch in shards, then the gradient in blocks.

use std::ops::Range;

use crate::kernel::Accum;

use super::features::Shard;
use super::shape::TAIL;
use super::{Initialisation, PcpMap};
use crate::Result;
use crate::kernel::{Real, columns, columns_mut, product, vectorised};
use crate::map::batch::{Contexts, batch_by_batch, slices, sum_into};
use crate::map::convex::{WIDE, shard_rows};
use crate::map::reference::Cost;
use crate::map::{ConditionalMap, Constraint, ParameterBlock, Trainable};
use crate::parallel::each;

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub struct PcpWorkspace<T> {
    rows: usize,
    shard_rows: usize,
    x: Vec<T>,
    y: Vec<T>,
    /// Context records of the batch.
    records: Vec<T>,
    /// Their adjoints.
    adjoints: Vec<T>,
    shards: Vec<Shard<T>>,
    blocks: Vec<ParameterBlock>,
    parts: Vec<Part>,
}

/// What a block of the parameter vector holds.
#[derive(Clone, Debug)]
enum Part {
    /// Columns of C_k.
    Context { k: usize, cols: Range<usize> },
    /// Entries of β_k.
    Bias { k: usize, rows: Range<usize> },
    /// X_k.
    Input { k: usize },
    /// Columns of A_k.
    Feature { k: usize, cols: Range<usize> },
    /// A_K.
    Head,
    /// γ.
    Gamma,
    /// A parameter of the reference's tail.
    Tail { index: usize },
}

impl<T: Real> Shard<T> {
    /// ρ(z) − log det H of row b, ρ the cost of the reference.
    pub(super) fn row_loss(&self, b: usize, n: usize, cost: &Cost) -> f64 {
        cost.at(&self.z[b * n..(b + 1) * n]) - self.log_det[b]
    }
}

impl<T: Real> PcpMap<T> {
    fn parts(&self) -> (Vec<ParameterBlock>, Vec<Part>) {
        let (depth, full) = (self.layout.shape.depth, self.layout.shape.is_full());
        let (mut blocks, mut parts) = (Vec::new(), Vec::new());
        let scale = 1.0 / self.layout.shape.feature_width as f64;
        let mut push = |range: Range<usize>, part: Part, constraint: Constraint, decays: bool| {
            let scaled = match part {
                Part::Feature { .. } | Part::Head => true,
                Part::Bias { k, ref rows } => k > 0 && *rows == self.layout.layers[k].c,
                _ => false,
            };
            let rate = if scaled && self.initialisation == Initialisation::Authors { scale } else { 1.0 };
            if !range.is_empty() {
                blocks.push(ParameterBlock { range, rate, constraint, decays });
                parts.push(part);
            }
        };
        for (k, layer) in self.layout.layers.iter().enumerate() {
            for cols in slices(layer.cols, layer.rows, 32) {
                let start = layer.weight.start;
                let range = start + cols.start * layer.rows..start + cols.end * layer.rows;
                push(range, Part::Context { k, cols }, Constraint::Free, true);
            }
            let gates = if full { 0..0 } else { 0..layer.c.start };
            for rows in
                [gates, layer.c.clone(), layer.front.clone()].into_iter().filter(|rows| !rows.is_empty())
            {
                let range = layer.bias_at(rows.start)..layer.bias_at(rows.end);
                push(range, Part::Bias { k, rows }, Constraint::Free, false);
            }
            let constraint = if k == 0 && !full { Constraint::NonNegative } else { Constraint::Free };
            push(layer.input.clone(), Part::Input { k }, constraint, true);
            if k == depth {
                push(layer.feature.clone(), Part::Head, Constraint::NonNegative, true);
            } else if k > 0 {
                let w = layer.outputs;
                for cols in slices(w, w, w / 4) {
                    let range = layer.feature.start + cols.start * w..layer.feature.start + cols.end * w;
                    push(range, Part::Feature { k, cols }, Constraint::NonNegative, true);
                }
            }
        }
        push(self.layout.gamma.clone(), Part::Gamma, Constraint::Free, false);
        for (index, (place, (_, bound))) in self.layout.tail.clone().zip(TAIL).enumerate() {
            push(place..place + 1, Part::Tail { index }, Constraint::Within(bound), false);
        }
        (blocks, parts)
    }

    /// Runs the loaded batch shard by shard and returns the mean loss.
    fn run(&self, workspace: &mut PcpWorkspace<T>, with_adjoints: bool) -> Result<f64> {
        let PcpWorkspace { rows, shard_rows, x, y, records, adjoints, shards, .. } = workspace;
        let (rows, shard_rows) = (*rows, *shard_rows);
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let used = rows.div_ceil(shard_rows);
        let weight = 1.0 / rows as f64;
        let cost = self.reference().cost(n);
        // A wide C₀ is read once for the whole batch; a narrow one goes with the shards.
        let wide = m > WIDE;
        if wide {
            self.open_contexts(&y[..rows * m], records, rows);
        }
        let both = records.chunks_mut(shard_rows * stride).zip(adjoints.chunks_mut(shard_rows * stride));
        each(shards[..used].iter_mut().zip(both), |index, (shard, (records, adjoints))| {
            let first = index * shard_rows;
            let count = shard_rows.min(rows - first);
            let x = &x[first * n..(first + count) * n];
            if !wide {
                self.open_contexts(&y[first * m..(first + count) * m], records, count);
            }
            self.close_contexts(records, count);
            let contexts = Contexts { records, stride, index: None };
            self.evaluate(shard, contexts, x, count);
            shard.loss = (0..count).map(|b| shard.row_loss(b, n, &cost)).sum();
            if with_adjoints && shard.broken.is_none() {
                self.pull_back(shard, contexts, x, count, weight, adjoints, None);
                self.pull_back_contexts(records, adjoints, count);
            }
        });
        for (index, shard) in shards[..used].iter().enumerate() {
            self.check_shard(shard, index * shard_rows)?;
        }
        Ok(shards[..used].iter().map(|shard| shard.loss).sum::<f64>() * weight)
    }
}

impl<T: Real> Trainable<T> for PcpMap<T> {
    type Workspace = PcpWorkspace<T>;

    fn workspace(&self, rows: usize) -> PcpWorkspace<T> {
        let shape = self.layout.shape;
        let shard_rows = shard_rows(rows);
        let count = rows.div_ceil(shard_rows);
        let (blocks, parts) = self.parts();
        PcpWorkspace {
            rows: 0,
            shard_rows,
            x: vec![T::ZERO; rows * shape.target],
            y: vec![T::ZERO; rows * shape.given],
            records: vec![T::ZERO; count * shard_rows * self.layout.record],
            adjoints: vec![T::ZERO; count * shard_rows * self.layout.record],
            shards: (0..count).map(|_| Shard::new(self, shard_rows, true)).collect(),
            blocks,
            parts,
        }
    }

    batch_by_batch!(PcpWorkspace);

    fn adjoints(&self, workspace: &mut PcpWorkspace<T>) -> Result<f64> {
        self.run(workspace, true)
    }

    fn loss(&self, workspace: &mut PcpWorkspace<T>) -> Result<f64> {
        self.run(workspace, false)
    }

    fn block_gradient(&self, workspace: &PcpWorkspace<T>, index: usize, gradient: &mut [T]) {
        let PcpWorkspace { rows, shard_rows, y, records, adjoints, shards, .. } = workspace;
        let (rows, stride) = (*rows, self.layout.record);
        let (n, w) = (self.layout.shape.target, self.layout.shape.feature_width);
        let used = rows.div_ceil(*shard_rows);
        match &workspace.parts[index] {
            Part::Context { k, cols } => {
                let layer = &self.layout.layers[*k];
                let adjoint = columns(&adjoints[layer.record..], layer.rows, rows, stride);
                let v = if *k == 0 {
                    columns(y, layer.cols, rows, layer.cols)
                } else {
                    columns(&records[self.layout.layers[k - 1].record..], layer.cols, rows, stride)
                };
                let v = v.subrows(cols.start, cols.len());
                let dst = columns_mut(gradient, layer.rows, cols.len(), layer.rows);
                product(dst, Accum::Replace, adjoint, v.transpose());
            }
            Part::Bias { k, rows: entries } => {
                let layer = &self.layout.layers[*k];
                gradient.fill(T::ZERO);
                vectorised(
                    #[inline(always)]
                    || {
                        for record in adjoints.chunks_exact(stride).take(rows) {
                            for (sum, &adjoint) in gradient.iter_mut().zip(&layer.of(record)[entries.clone()])
                            {
                                *sum += adjoint;
                            }
                        }
                    },
                );
            }
            Part::Input { k } => {
                sum_into(gradient, shards[..used].iter().map(|shard| shard.input_bar[*k].as_slice()))
            }
            Part::Head => sum_into(gradient, shards[..used].iter().map(|shard| shard.head_bar.as_slice())),
            Part::Feature { k, cols } => {
                for (index, shard) in shards[..used].iter().enumerate() {
                    let count = (*shard_rows).min(rows - index * shard_rows);
                    let hidden = &shard.hidden[*k];
                    let accum = if index == 0 { Accum::Replace } else { Accum::Add };
                    let bar = columns(&hidden.bar, w, (n + 2) * count, w);
                    let gated = columns(&hidden.gated, w, (n + 2) * count, w).subrows(cols.start, cols.len());
                    product(columns_mut(gradient, w, cols.len(), w), accum, bar, gated.transpose());
                }
                let fed = self.layout.shape.fed_width();
                for column in gradient.chunks_exact_mut(w) {
                    column[fed..].fill(T::ZERO);
                }
            }
            Part::Gamma => {
                for (j, gradient) in gradient.iter_mut().enumerate() {
                    *gradient = T::from_f64(shards[..used].iter().map(|shard| shard.gamma_bar[j]).sum());
                }
            }
            Part::Tail { index } => {
                gradient[0] = T::from_f64(shards[..used].iter().map(|shard| shard.tail_bar[*index]).sum());
            }
        }
    }
}
