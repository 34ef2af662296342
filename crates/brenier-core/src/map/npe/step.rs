//! One training step: the batch in shards, then the gradient in blocks.

use std::ops::Range;

use crate::kernel::Accum;

use super::NpeMap;
use super::lanes::{LANES, some, view};
use super::shape::{Layer, TransformPlace};
use super::shard::{Prepared, Shard, Use};
use crate::Result;
use crate::kernel::{Real, columns, columns_mut, product, summed_row_sums, vectorised};
use crate::map::batch::{BLOCK_ENTRIES, batch_by_batch, sum_into};
use crate::map::embed::EmbeddingPart;
use crate::map::{ConditionalMap, Constraint, ParameterBlock, Trainable};
use crate::parallel::each;

/// Most rows of a shard; of a small network more, because what a shard costs whatever its rows then counts: its gradient is written
/// and added to the others', and its weights are read.
const SHARD_ROWS: usize = 64;
const SMALL_SHARD_ROWS: usize = 128;
/// Parameters of the transforms of a small network, at most.
const SMALL: usize = 1 << 18;

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub struct NpeWorkspace<T> {
    rows: usize,
    shard_rows: usize,
    x: Vec<T>,
    y: Vec<T>,
    prepared: Prepared<T>,
    /// The embedding's values of every row, and their adjoints.
    embedded: Vec<T>,
    embedded_bars: Vec<T>,
    shards: Vec<Shard<T>>,
    blocks: Vec<ParameterBlock>,
    parts: Vec<Part>,
}

/// What a block of the parameter vector holds.
#[derive(Clone, Debug)]
enum Part {
    /// Parameters of the transforms, whose gradients the shards have summed.
    Core,
    /// Parameters that stay as they are.
    Fixed,
    /// Entries of c.
    ContextBias,
    /// Columns of C.
    Context { cols: Range<usize> },
    /// A part of the embedding.
    Embedding(EmbeddingPart),
}

/// Rows of a shard: depends on the batch and the parameters alone, so that the number of threads changes no bit.
///
/// A batch makes at least two shards, which are as large as they can be with an even number of them: a shard's activations
/// fit the second-level cache.
fn shard_rows(batch: usize, parameters: usize) -> usize {
    let most = if parameters <= SMALL { SMALL_SHARD_ROWS } else { SHARD_ROWS };
    let shards = batch.div_ceil(most).next_multiple_of(2);
    batch.div_ceil(shards).next_multiple_of(LANES)
}

impl<T: Real> NpeMap<T> {
    fn parts(&self) -> (Vec<ParameterBlock>, Vec<Part>) {
        let layout = &self.layout;
        let (mut blocks, mut parts) = (Vec::new(), Vec::new());
        let mut push = |range: Range<usize>, part: Part, decays: bool| {
            if !range.is_empty() {
                blocks.push(ParameterBlock { range, rate: 1.0, constraint: Constraint::Free, decays });
                parts.push(part);
            }
        };
        let mut core = |range: Range<usize>, decays: bool| {
            for start in range.clone().step_by(BLOCK_ENTRIES) {
                push(start..(start + BLOCK_ENTRIES).min(range.end), Part::Core, decays);
            }
        };
        let layer = |core: &mut dyn FnMut(Range<usize>, bool), layer: &Layer| {
            core(layer.bias(), false);
            core(layer.weight(), true);
        };
        for place in &layout.transforms {
            match place {
                TransformPlace::Autoregressive { layers, .. } => {
                    layers.iter().for_each(|at| layer(&mut core, at));
                }
                TransformPlace::Spline { layers, output } => {
                    layers.iter().chain([output]).for_each(|at| layer(&mut core, at));
                }
                TransformPlace::Coupling { input, layers, output, linear, .. } => {
                    layers.iter().chain([output]).for_each(|at| layer(&mut core, at));
                    core(linear.lower.start..linear.upper.end, true);
                    core(linear.diagonal.start..linear.bias.end, false);
                    core(input.clone(), true);
                }
            }
        }
        for head in &layout.heads {
            head.layers().into_iter().for_each(|(_, at)| layer(&mut core, at));
        }
        push(layout.rotation.clone(), Part::Fixed, false);
        push(layout.context_bias.clone(), Part::ContextBias, false);
        let width = (BLOCK_ENTRIES / layout.record).max(1);
        for first in (0..layout.features).step_by(width) {
            let cols = first..(first + width).min(layout.features);
            let start = layout.context_weight.start;
            let range = start + cols.start * layout.record..start + cols.end * layout.record;
            push(range, Part::Context { cols }, true);
        }
        for (range, part, is_weight) in layout.embedding.parts(BLOCK_ENTRIES) {
            push(range, Part::Embedding(part), is_weight);
        }
        (blocks, parts)
    }

    /// Runs the loaded batch shard by shard and returns the mean loss.
    fn run(&self, workspace: &mut NpeWorkspace<T>, with_adjoints: bool) -> Result<f64> {
        let NpeWorkspace { rows, shard_rows, x, y, prepared, embedded, embedded_bars, shards, .. } =
            workspace;
        let (rows, shard_rows) = (*rows, *shard_rows);
        let (n, m) = (self.layout.shape.target, self.layout.shape.given);
        let used = rows.div_ceil(shard_rows);
        let weight = 1.0 / rows as f64;
        self.prepare(prepared);
        let (prepared, embedding) = (&*prepared, &self.layout.embedding);
        // Without an embedding a shard still gets its (unused) number, so that the iterators go in step.
        let width = shard_rows * embedding.stride().max(1);
        let (values, bars) = (embedded.chunks_mut(width), embedded_bars.chunks_mut(width));
        each(shards[..used].iter_mut().zip(values.zip(bars)), |index, (shard, (values, bars))| {
            let first = index * shard_rows;
            let count = shard_rows.min(rows - first);
            let y = &y[first * m..(first + count) * m];
            let stride = shard.stride;
            let features = match embedding.is_empty() {
                true => columns(y, m, count, m),
                false => {
                    embedding.forward(&self.parameters, y, values, count);
                    embedding.output(values, count)
                }
            };
            self.contexts(features, &mut shard.features, &mut shard.contexts, stride);
            shard.load(&x[first * n..(first + count) * n], n);
            self.evaluate(prepared, shard, count);
            shard.loss = (0..count).map(|b| shard.row_loss(b, n)).sum();
            if with_adjoints && shard.loss.is_finite() {
                self.pull_back(prepared, shard, count, weight);
                self.close_contexts(shard, count);
                if !embedding.is_empty() {
                    self.pull_features(embedding.output_mut(bars, count), shard, count);
                    embedding.backward(&self.parameters, values, bars, count);
                }
            }
        });
        for (index, shard) in shards[..used].iter().enumerate() {
            self.check_shard(shard, shard_rows.min(rows - index * shard_rows), index * shard_rows)?;
        }
        Ok(shards[..used].iter().map(|shard| shard.loss).sum::<f64>() * weight)
    }
}

impl<T: Real> NpeWorkspace<T> {
    /// The shards in use, each with its rows.
    fn used(&self) -> impl Iterator<Item = (&Shard<T>, Range<usize>)> {
        let used = self.rows.div_ceil(self.shard_rows);
        self.shards[..used].iter().enumerate().map(|(index, shard)| {
            let first = index * self.shard_rows;
            (shard, first..(first + self.shard_rows).min(self.rows))
        })
    }

    /// The sums over all rows of the contexts' adjoints times some columns of a buffer of each shard.
    fn context_sums(
        &self,
        gradient: &mut [T],
        record: usize,
        cols: Range<usize>,
        buffer: impl Fn(&Shard<T>) -> &[T],
    ) {
        let shards: Vec<_> = self
            .used()
            .map(|(shard, rows)| {
                let bars = some(&shard.bars.contexts, shard.stride, 0..record);
                (bars, some(buffer(shard), shard.stride, cols.clone()), rows.len())
            })
            .collect();
        summed_row_sums(gradient, record, record, cols.len(), &shards);
    }
}

impl<T: Real> Trainable<T> for NpeMap<T> {
    type Workspace = NpeWorkspace<T>;

    fn workspace(&self, rows: usize) -> NpeWorkspace<T> {
        let shape = &self.layout.shape;
        let shard_rows = shard_rows(rows, self.layout.core);
        let count = rows.div_ceil(shard_rows);
        let (blocks, parts) = self.parts();
        let embedded = vec![T::ZERO; count * shard_rows * self.layout.embedding.stride().max(1)];
        NpeWorkspace {
            rows: 0,
            shard_rows,
            x: vec![T::ZERO; rows * shape.target],
            y: vec![T::ZERO; rows * shape.given],
            prepared: self.prepared(),
            embedded_bars: embedded.clone(),
            embedded,
            shards: (0..count).map(|_| Shard::new(self, shard_rows, Use::Training)).collect(),
            blocks,
            parts,
        }
    }

    batch_by_batch!(NpeWorkspace);

    fn adjoints(&self, workspace: &mut NpeWorkspace<T>) -> Result<f64> {
        self.run(workspace, true)
    }

    fn loss(&self, workspace: &mut NpeWorkspace<T>) -> Result<f64> {
        self.run(workspace, false)
    }

    fn block_gradient(&self, workspace: &NpeWorkspace<T>, index: usize, gradient: &mut [T]) {
        let layout = &self.layout;
        let NpeWorkspace { rows, y, embedded, embedded_bars, .. } = workspace;
        let (rows, range) = (*rows, &workspace.blocks[index].range);
        match &workspace.parts[index] {
            Part::Core => vectorised(
                #[inline(always)]
                || sum_into(gradient, workspace.used().map(|(shard, _)| &shard.bars.gradient[range.clone()])),
            ),
            Part::Fixed => gradient.fill(T::ZERO),
            Part::ContextBias => {
                // A column of ones stands before every state.
                workspace.context_sums(gradient, layout.record, 0..1, |shard| &shard.states[0]);
            }
            Part::Context { cols } if layout.few_features() => {
                let cols = cols.start + 1..cols.end + 1;
                workspace.context_sums(gradient, layout.record, cols, |shard| &shard.features);
            }
            Part::Context { cols } => {
                let (m, record) = (layout.shape.given, layout.record);
                for (place, (shard, rows)) in workspace.used().enumerate() {
                    let features = match layout.embedding.is_empty() {
                        true => columns(&y[rows.start * m..], m, rows.len(), m),
                        false => {
                            let values = &embedded[rows.start * layout.embedding.stride()..];
                            layout.embedding.output(values, rows.len())
                        }
                    };
                    let features = features.subrows(cols.start, cols.len()).transpose();
                    let bars = view(&shard.bars.contexts, shard.stride, rows.len(), 0..record);
                    let accum = if place == 0 { Accum::Replace } else { Accum::Add };
                    let dst = columns_mut(gradient, record, cols.len(), record);
                    product(dst, accum, bars.transpose(), features);
                }
            }
            Part::Embedding(part) => {
                layout.embedding.gradient(part, y, embedded, embedded_bars, rows, gradient);
            }
        }
    }
}
