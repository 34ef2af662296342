//! One training step: times and noise of the batch, its shards, then the gradient in blocks.

use std::ops::Range;

use super::MatchingMap;
use super::field::{Bars, Stage, TIME_FEATURES, Wanted, time_features};
use super::flow::{Cargo, Track};
use crate::Result;
use crate::kernel::{Accum, MatRef, Real, columns, columns_mut, product};
use crate::map::batch::{BLOCK_ENTRIES, Contexts, batch_by_batch, sum_into};
use crate::map::embed::EmbeddingPart;
use crate::map::lines::Lines;
use crate::map::ode::{Journey, broken_trajectory};
use crate::map::{ConditionalMap, Constraint, ParameterBlock, Trainable, reference_density};
use crate::parallel::{each, try_each_with};
use crate::train::StepRandom;

/// Columns of Jacobians that a validation within training looks at, at most.
const VALIDATION_COLUMNS: usize = 1500;

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub struct MatchingWorkspace<T> {
    rows: usize,
    shard_rows: usize,
    x: Vec<T>,
    y: Vec<T>,
    random: StepRandom,
    /// Where every row is evaluated, and what the field should be there.
    lines: Lines<T>,
    /// τ(t) of every row.
    times: Vec<T>,
    /// The embedding's values of every row, and their adjoints.
    embedded: Vec<T>,
    embedded_bars: Vec<T>,
    shards: Vec<Shard<T>>,
    blocks: Vec<ParameterBlock>,
    parts: Vec<Part>,
}

/// Some rows of a batch.
#[derive(Debug)]
struct Shard<T> {
    stage: Stage<T>,
    bars: Bars<T>,
    records: Vec<T>,
    x_bar: Vec<T>,
    loss: f64,
}

/// What a block of the parameter vector holds.
#[derive(Clone, Debug)]
enum Part {
    /// Columns of C.
    Context { cols: Range<usize> },
    /// T.
    Time,
    /// c.
    ContextBias,
    /// W.
    Opening,
    /// Columns of A_i.
    Inner { i: usize, cols: Range<usize> },
    /// Columns of B_i.
    Outer { i: usize, cols: Range<usize> },
    /// b_i.
    OuterBias { i: usize },
    /// V.
    Head,
    /// d.
    HeadBias,
    /// A part of the embedding.
    Embedding(EmbeddingPart),
}

/// Rows of a shard: depends on the batch alone, so that the number of threads changes no bit.
fn shard_rows(batch: usize) -> usize {
    batch.div_ceil(4).next_multiple_of(8).clamp(16, 64)
}

impl<T: Real> MatchingMap<T> {
    fn parts(&self) -> (Vec<ParameterBlock>, Vec<Part>) {
        let layout = &self.layout;
        let (mut blocks, mut parts) = (Vec::new(), Vec::new());
        let mut push = |range: Range<usize>, part: Part, decays: bool| {
            blocks.push(ParameterBlock { range, rate: 1.0, constraint: Constraint::Free, decays });
            parts.push(part);
        };
        /// Column ranges of about a block's entries, with their places.
        fn slices(
            matrix: &Range<usize>,
            rows: usize,
            cols: usize,
        ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
            let (start, width) = (matrix.start, (BLOCK_ENTRIES / rows).max(1));
            (0..cols).step_by(width).map(move |first| {
                let cols = first..(first + width).min(cols);
                (start + cols.start * rows..start + cols.end * rows, cols)
            })
        }
        for (range, cols) in slices(&layout.context, layout.record, layout.features) {
            push(range, Part::Context { cols }, true);
        }
        push(layout.time.clone(), Part::Time, true);
        push(layout.bias.clone(), Part::ContextBias, false);
        push(layout.opening.clone(), Part::Opening, true);
        let w = layout.shape.width;
        for i in 1..=layout.shape.blocks {
            for (range, cols) in slices(&layout.inner[i - 1], w, w) {
                push(range, Part::Inner { i, cols }, true);
            }
            for (range, cols) in slices(&layout.outer[i - 1], w, w) {
                push(range, Part::Outer { i, cols }, true);
            }
            push(layout.outer_bias[i - 1].clone(), Part::OuterBias { i }, false);
        }
        push(layout.head.clone(), Part::Head, true);
        push(layout.head_bias.clone(), Part::HeadBias, false);
        for (range, part, is_weight) in layout.embedding.parts(BLOCK_ENTRIES) {
            push(range, Part::Embedding(part), is_weight);
        }
        (blocks, parts)
    }

    /// What [`Trainable::adjoints`] does, with given times t and noise z of the loaded rows in place of random ones: the mean of
    /// ½‖v(t, x_t; y) − (z − x)‖².
    pub fn adjoints_at(&self, workspace: &mut MatchingWorkspace<T>, t: &[f64], z: &[T]) -> Result<f64> {
        let MatchingWorkspace { rows, x, lines, .. } = workspace;
        let n = self.layout.shape.target;
        lines.scatter_at(&x[..*rows * n], n, t, z)?;
        Ok(self.regress(workspace))
    }

    /// The loss of the placed rows, and their adjoints.
    fn regress(&self, workspace: &mut MatchingWorkspace<T>) -> f64 {
        let MatchingWorkspace { rows, shard_rows, y, lines, times, shards, .. } = workspace;
        let MatchingWorkspace { embedded, embedded_bars, .. } = workspace;
        let (rows, shard_rows) = (*rows, *shard_rows);
        for (features, &t) in times.chunks_exact_mut(TIME_FEATURES).zip(&lines.times[..rows]) {
            features.copy_from_slice(&time_features::<T>(t));
        }
        let Lines { moved, wanted, .. } = &*lines;
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let (w, slots) = (self.layout.shape.width, self.layout.shape.blocks + 1);
        let (weight, embedding) = (T::from_f64(1.0 / rows as f64), &self.layout.embedding);
        let no_time = vec![T::ZERO; stride];
        let of_time = columns(&self.parameters[self.layout.time.clone()], stride, TIME_FEATURES, stride);
        // Without an embedding a shard still gets its (unused) number, so that the iterators go in step.
        let width = shard_rows * embedding.stride().max(1);
        let both = embedded.chunks_mut(width).zip(embedded_bars.chunks_mut(width));
        each(
            shards.iter_mut().zip(both).take(rows.div_ceil(shard_rows)),
            |place, (shard, (values, value_bars))| {
                let Shard { stage, bars, records, x_bar, loss } = shard;
                let own = place * shard_rows..((place + 1) * shard_rows).min(rows);
                let count = own.len();
                let y = &y[own.start * m..own.end * m];
                if embedding.is_empty() {
                    self.records_of(columns(y, m, count, m), records, count);
                } else {
                    embedding.forward(&self.parameters, y, values, count);
                    self.records_of(embedding.output(values, count), records, count);
                }
                let times = columns(&times[own.start * TIME_FEATURES..], TIME_FEATURES, count, TIME_FEATURES);
                product(columns_mut(records, stride, count, stride), Accum::Add, of_time, times);
                let contexts = Contexts { records, stride, index: None };
                self.evaluate(stage, contexts, &no_time, &moved[own.start * n..own.end * n], count);
                *loss = 0.0;
                let each = bars.field.iter_mut().zip(&stage.field).zip(&wanted[own.start * n..own.end * n]);
                for ((bar, &got), &wanted) in each {
                    let miss = got - wanted;
                    *loss += 0.5 * miss.to_f64() * miss.to_f64();
                    *bar = weight * miss;
                }
                self.pull(stage, bars, count, x_bar);
                if !embedding.is_empty() {
                    let context = &self.parameters[self.layout.context.clone()];
                    let features = self.layout.features;
                    for slot in 0..slots {
                        let accum = if slot == 0 { Accum::Replace } else { Accum::Add };
                        let weight = columns(context, stride, features, stride).subrows(slot * w, w);
                        let bars = columns(&bars.levels[level_of(slot)], w, count, w);
                        product(embedding.output_mut(value_bars, count), accum, weight.transpose(), bars);
                    }
                    embedding.backward(&self.parameters, values, value_bars, count);
                }
            },
        );
        workspace.used().map(|(shard, _)| shard.loss).sum::<f64>() / rows as f64
    }
}

impl<T: Real> MatchingWorkspace<T> {
    /// The shards in use, with the rows of each.
    fn used(&self) -> impl Iterator<Item = (&Shard<T>, Range<usize>)> {
        let (rows, size) = (self.rows, self.shard_rows);
        self.shards
            .iter()
            .enumerate()
            .map(move |(place, shard)| (shard, place * size..((place + 1) * size).min(rows)))
            .take_while(|(_, rows)| !rows.is_empty())
    }

    /// gradient = Σ bars · inputsᵀ over the shards in use, columns of both being rows of the batch.
    fn products<'a>(
        &'a self,
        gradient: &mut [T],
        (height, width): (usize, usize),
        pair: impl Fn(&'a Shard<T>, Range<usize>) -> (MatRef<'a, T>, MatRef<'a, T>),
    ) {
        for (place, (shard, rows)) in self.used().enumerate() {
            let (bars, inputs) = pair(shard, rows);
            let accum = if place == 0 { Accum::Replace } else { Accum::Add };
            product(columns_mut(gradient, height, width, height), accum, bars, inputs.transpose());
        }
    }

    /// gradient = Σ bars · inputsᵀ, slot by slot of a record: h₀ and every s_i.
    fn record_products<'a>(
        &'a self,
        gradient: &mut [T],
        (w, slots, width): (usize, usize, usize),
        inputs: impl Fn(Range<usize>) -> MatRef<'a, T>,
    ) {
        let record = w * slots;
        for (place, (shard, rows)) in self.used().enumerate() {
            let accum = if place == 0 { Accum::Replace } else { Accum::Add };
            for slot in 0..slots {
                let bars = columns(&shard.bars.levels[level_of(slot)], w, rows.len(), w);
                let dst = columns_mut(gradient, record, width, record).subrows_mut(slot * w, w);
                product(dst, accum, bars, inputs(rows.clone()).transpose());
            }
        }
    }
}

/// The level whose adjoint is that of a slot of the record.
fn level_of(slot: usize) -> usize {
    (2 * slot).saturating_sub(1)
}

impl<T: Real> Trainable<T> for MatchingMap<T> {
    type Workspace = MatchingWorkspace<T>;

    fn workspace(&self, rows: usize) -> MatchingWorkspace<T> {
        let (shape, layout) = (&self.layout.shape, &self.layout);
        let shard_rows = shard_rows(rows);
        let count = rows.div_ceil(shard_rows);
        let (blocks, parts) = self.parts();
        let embedded = vec![T::ZERO; count * shard_rows * layout.embedding.stride().max(1)];
        MatchingWorkspace {
            rows: 0,
            shard_rows,
            x: vec![T::ZERO; rows * shape.target],
            y: vec![T::ZERO; rows * shape.given],
            random: StepRandom { seed: 0, step: 0 },
            lines: Lines::new(rows, shape.target),
            times: vec![T::ZERO; rows * TIME_FEATURES],
            embedded_bars: embedded.clone(),
            embedded,
            shards: (0..count)
                .map(|_| Shard {
                    stage: Stage::new(self, shard_rows, Wanted::Training),
                    bars: Bars::new(self, shard_rows, Wanted::Training),
                    records: vec![T::ZERO; shard_rows * layout.record],
                    x_bar: vec![T::ZERO; shard_rows * shape.target],
                    loss: 0.0,
                })
                .collect(),
            blocks,
            parts,
        }
    }

    batch_by_batch!(MatchingWorkspace);

    fn begin_step(&self, workspace: &mut MatchingWorkspace<T>, random: StepRandom) {
        workspace.random = random;
    }

    fn adjoints(&self, workspace: &mut MatchingWorkspace<T>) -> Result<f64> {
        let MatchingWorkspace { rows, x, lines, random, .. } = workspace;
        let n = self.layout.shape.target;
        lines.scatter(&x[..*rows * n], n, *random);
        Ok(self.regress(workspace))
    }

    fn loss(&self, workspace: &mut MatchingWorkspace<T>) -> Result<f64> {
        let MatchingWorkspace { rows, shard_rows, x, y, .. } = workspace;
        let (n, rows, shard_rows) = (self.layout.shape.target, *rows, *shard_rows);
        let records = self.records(&y[..rows * self.layout.shape.given], rows);
        let journey = Journey::to_reference(self.settings.evaluation_steps);
        let stride = self.layout.record;
        let mut sums = vec![0.0; rows.div_ceil(shard_rows)];
        try_each_with(
            x[..rows * n].chunks(shard_rows * n).zip(&mut sums),
            || Track::new(self, shard_rows, Cargo::Density),
            |track, place, (x, sum)| {
                let (first, count) = (place * shard_rows, x.len() / n);
                let contexts = Contexts { records: &records[first * stride..], stride, index: None };
                track.load(x, n);
                self.integrate(track, contexts, count, journey);
                if let Some(row) = track.broken(count, n) {
                    return Err(broken_trajectory(first + row));
                }
                let density = |b: usize| {
                    let row = track.row(b, n);
                    reference_density(&row[..n], row[n].to_f64())
                };
                *sum = -(0..count).map(density).sum::<f64>();
                Ok(())
            },
        )?;
        Ok(sums.iter().sum::<f64>() / rows as f64)
    }

    fn loss_cost(&self) -> f64 {
        4.0 * (self.settings.evaluation_steps * (self.layout.shape.target + 1)) as f64 / 3.0
    }

    fn validation_rows(&self) -> usize {
        (VALIDATION_COLUMNS / (self.layout.shape.target + 1)).max(100)
    }

    fn block_gradient(&self, workspace: &MatchingWorkspace<T>, index: usize, gradient: &mut [T]) {
        let (layout, shape) = (&self.layout, &self.layout.shape);
        let (n, m, w, slots) = (shape.target, shape.given, shape.width, shape.blocks + 1);
        let MatchingWorkspace { rows, y, lines, times, embedded, embedded_bars, .. } = workspace;
        let features = |rows: Range<usize>| match layout.embedding.is_empty() {
            true => columns(&y[rows.start * m..], m, rows.len(), m),
            false => {
                let values = &embedded[rows.start * layout.embedding.stride()..];
                layout.embedding.output(values, rows.len())
            }
        };
        // Sums over rows of the adjoints of a level.
        let sums = |gradient: &mut [T], level: usize| {
            let each = workspace.used();
            sum_into(
                gradient,
                each.flat_map(|(shard, rows)| shard.bars.levels[level][..w * rows.len()].chunks_exact(w)),
            );
        };
        match &workspace.parts[index] {
            Part::Context { cols } => {
                workspace.record_products(gradient, (w, slots, cols.len()), |rows| {
                    features(rows).subrows(cols.start, cols.len())
                });
            }
            Part::Time => workspace.record_products(gradient, (w, slots, TIME_FEATURES), |rows| {
                columns(&times[rows.start * TIME_FEATURES..], TIME_FEATURES, rows.len(), TIME_FEATURES)
            }),
            Part::ContextBias => {
                gradient.chunks_exact_mut(w).enumerate().for_each(|(slot, part)| sums(part, level_of(slot)));
            }
            Part::Opening => workspace.products(gradient, (w, n), |shard, rows| {
                let x = columns(&lines.moved[rows.start * n..], n, rows.len(), n);
                (columns(&shard.bars.levels[0], w, rows.len(), w), x)
            }),
            Part::Inner { i, cols } => workspace.products(gradient, (w, cols.len()), |shard, rows| {
                let inputs = columns(&shard.stage.levels[2 * i - 2].post, w, rows.len(), w);
                let bars = columns(&shard.bars.levels[2 * i - 1], w, rows.len(), w);
                (bars, inputs.subrows(cols.start, cols.len()))
            }),
            Part::Outer { i, cols } => workspace.products(gradient, (w, cols.len()), |shard, rows| {
                let inputs = columns(&shard.stage.levels[2 * i - 1].post, w, rows.len(), w);
                let bars = columns(&shard.bars.levels[2 * i], w, rows.len(), w);
                (bars, inputs.subrows(cols.start, cols.len()))
            }),
            Part::OuterBias { i } => sums(gradient, 2 * i),
            Part::Head => workspace.products(gradient, (n, w), |shard, rows| {
                let inputs = columns(&shard.stage.levels[2 * shape.blocks].post, w, rows.len(), w);
                (columns(&shard.bars.field, n, rows.len(), n), inputs)
            }),
            Part::HeadBias => {
                let each = workspace.used();
                sum_into(
                    gradient,
                    each.flat_map(|(shard, rows)| shard.bars.field[..n * rows.len()].chunks_exact(n)),
                );
            }
            Part::Embedding(part) => {
                layout.embedding.gradient(part, y, embedded, embedded_bars, *rows, gradient);
            }
        }
    }
}
