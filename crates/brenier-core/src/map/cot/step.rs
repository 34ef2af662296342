//! One training step: the batch in shards, then the gradient in blocks.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::kernel::Accum;

use super::CotMap;
use super::adjoint::Sums;
use super::flow::{Objective, Shard, Track};
use super::potential::{Frame, Wanted};
use super::shape::BOX;
use crate::Result;
use crate::kernel::{Real, columns, columns_mut, product};
use crate::map::batch::{BLOCK_ENTRIES, Contexts, batch_by_batch, sum_into};
use crate::map::embed::EmbeddingPart;
use crate::map::lines::Lines;
use crate::map::ode::Journey;
use crate::map::{ConditionalMap, Constraint, ParameterBlock, Trainable};
use crate::parallel::each;
use crate::train::StepRandom;

/// Memory of a training step for batches up to a fixed size.
#[derive(Debug)]
pub struct CotWorkspace<T> {
    rows: usize,
    shard_rows: usize,
    x: Vec<T>,
    y: Vec<T>,
    frame: Frame<T>,
    /// The embedding's values of every row, and their adjoints.
    embedded: Vec<T>,
    embedded_bars: Vec<T>,
    /// Records of the batch's observations.
    records: Vec<T>,
    /// Their adjoints.
    adjoints: Vec<T>,
    shards: Vec<Shard<T>>,
    /// One per thread at work, made when first needed: a shard takes one and puts it back.
    tracks: Mutex<Vec<Track<T>>>,
    /// The same for warm steps.
    warm_tracks: Mutex<Vec<Track<T>>>,
    /// Random numbers of a step that is a warm one.
    warm: Option<StepRandom>,
    /// Where a warm step evaluates every row.
    lines: Lines<T>,
    /// Stages of a track: all of a trajectory's, or 0 to evaluate them again in the reverse pass.
    kept: usize,
    blocks: Vec<ParameterBlock>,
    parts: Vec<Part>,
}

/// What a block of the parameter vector holds.
#[derive(Clone, Debug)]
enum Part {
    /// A₀ᵗˣ.
    Opening,
    /// Columns of A₀ʸ.
    Given { cols: Range<usize> },
    /// b₀.
    OpeningBias,
    /// Entries of A_i, i ≥ 1.
    Residual { i: usize, entries: Range<usize> },
    /// b_i, i ≥ 1.
    Bias { i: usize },
    /// a.
    Head,
    /// A.
    Quadratic,
    /// b.
    Linear,
    /// c, which no derivative of Φ contains.
    Constant,
    /// A part of the embedding.
    Embedding(EmbeddingPart),
}

/// What is done with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// The objective with its adjoints.
    Step,
    /// The loss of a warm step with its adjoints.
    Warm,
    /// The mean NLL alone.
    Loss,
}

/// Rows of a shard: depends on the batch alone, so that the number of threads changes no bit.
///
/// 32 rows measured fastest (n = 4, w = 128 and n = 1, w = 256): a stage's blocks still fit the second-level cache.
fn shard_rows(batch: usize) -> usize {
    batch.div_ceil(2).next_multiple_of(8).clamp(16, 32)
}

fn take<R>(pool: &Mutex<Vec<R>>) -> Option<R> {
    pool.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn put_back<R>(pool: &Mutex<Vec<R>>, item: R) {
    pool.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

impl<T: Real> CotMap<T> {
    fn parts(&self) -> (Vec<ParameterBlock>, Vec<Part>) {
        let (n, m, w) = (self.layout.shape.target, self.layout.features, self.layout.shape.width);
        let (mut blocks, mut parts) = (Vec::new(), Vec::new());
        let mut push = |range: Range<usize>, part: Part, constraint: Constraint, decays: bool| {
            blocks.push(ParameterBlock { range, rate: 1.0, constraint, decays });
            parts.push(part);
        };
        let start = self.layout.weights[0].start;
        push(start..start + w * (n + 1), Part::Opening, BOX, true);
        let width = (BLOCK_ENTRIES / w).max(1);
        for first in (0..m).step_by(width) {
            let cols = first..(first + width).min(m);
            let range = start + w * (n + 1 + cols.start)..start + w * (n + 1 + cols.end);
            push(range, Part::Given { cols }, BOX, true);
        }
        push(self.layout.biases[0].clone(), Part::OpeningBias, BOX, false);
        for i in 1..=self.layout.residual {
            let weight = &self.layout.weights[i];
            for first in (0..w * w).step_by(BLOCK_ENTRIES) {
                let entries = first..(first + BLOCK_ENTRIES).min(w * w);
                let range = weight.start + entries.start..weight.start + entries.end;
                push(range, Part::Residual { i, entries }, BOX, true);
            }
            push(self.layout.biases[i].clone(), Part::Bias { i }, BOX, false);
        }
        push(self.layout.head.clone(), Part::Head, BOX, true);
        push(self.layout.quadratic.clone(), Part::Quadratic, Constraint::Free, true);
        push(self.layout.linear.clone(), Part::Linear, Constraint::Free, false);
        push(self.layout.constant.clone(), Part::Constant, Constraint::Free, false);
        for (range, part, is_weight) in self.layout.embedding.parts(BLOCK_ENTRIES) {
            push(range, Part::Embedding(part), Constraint::Free, is_weight);
        }
        (blocks, parts)
    }

    /// The loss of the placed rows of a warm step, and its adjoints.
    pub(super) fn warm_adjoints(&self, workspace: &mut CotWorkspace<T>) -> Result<f64> {
        self.run(workspace, Pass::Warm)
    }

    /// Runs the loaded batch shard by shard.
    fn run(&self, workspace: &mut CotWorkspace<T>, pass: Pass) -> Result<f64> {
        let CotWorkspace { rows, shard_rows, x, y, lines, frame, shards, kept, .. } = workspace;
        let CotWorkspace { embedded, embedded_bars, records, adjoints, tracks, warm_tracks, .. } = workspace;
        let (rows, shard_rows, lines) = (*rows, *shard_rows, &*lines);
        let (tracks, wanted, kept) = match pass {
            Pass::Step | Pass::Loss => (&*tracks, Wanted::Adjoint, *kept),
            Pass::Warm => (&*warm_tracks, Wanted::GradientAdjoint, 0),
        };
        let (n, m, stride) = (self.layout.shape.target, self.layout.shape.given, self.layout.record);
        let used = rows.div_ceil(shard_rows);
        let objective = Objective {
            weight: 1.0 / rows as f64,
            transport: self.settings.alpha_transport,
            hjb: self.settings.alpha_hjb,
        };
        let steps = match pass {
            Pass::Step | Pass::Warm => self.settings.time_steps,
            Pass::Loss => self.settings.evaluation_steps,
        };
        let journey = Journey::to_reference(steps);
        self.refresh(frame);
        let (frame, embedding) = (&*frame, &self.layout.embedding);
        // Without an embedding a shard still gets its (unused) number, so that the iterators go in step.
        let width = shard_rows * embedding.stride().max(1);
        let (values, bars) = (embedded.chunks_mut(width), embedded_bars.chunks_mut(width));
        let both = records.chunks_mut(shard_rows * stride).zip(adjoints.chunks_mut(shard_rows * stride));
        each(
            shards[..used].iter_mut().zip(both).zip(values.zip(bars)),
            |index, ((shard, (records, adjoints)), (values, bars))| {
                let mut track = take(tracks).unwrap_or_else(|| Track::new(self, shard_rows, wanted, kept));
                let first = index * shard_rows;
                let count = shard_rows.min(rows - first);
                let y = &y[first * m..(first + count) * m];
                if embedding.is_empty() {
                    self.contexts_of(columns(y, m, count, m), records, count);
                } else {
                    embedding.forward(&self.parameters, y, values, count);
                    self.contexts_of(embedding.output(values, count), records, count);
                }
                let contexts = Contexts { records, stride, index: None };
                if pass == Pass::Warm {
                    let (own, weight) = ((first, count), objective.weight);
                    self.match_rows(frame, &mut track, shard, contexts, lines, own, weight, adjoints);
                } else {
                    shard.x[..count * n].copy_from_slice(&x[first * n..(first + count) * n]);
                    self.integrate(frame, &mut track, shard, contexts, count, journey, pass == Pass::Step);
                    shard.loss = (0..count).map(|b| shard.row_loss(b, n)).sum();
                }
                if pass == Pass::Step {
                    for b in 0..count {
                        shard.loss += objective.transport * shard.transport[b] + objective.hjb * shard.hjb[b];
                    }
                    self.pull_back(frame, &mut track, shard, contexts, count, journey, objective, adjoints);
                }
                if pass != Pass::Loss {
                    let sums = shard.sums.as_mut().expect("a shard that sums adjoints");
                    self.close_parameters(sums, adjoints, count);
                    if !embedding.is_empty() {
                        self.pull_features(embedding.output_mut(bars, count), adjoints, count);
                        embedding.backward(&self.parameters, values, bars, count);
                    }
                }
                put_back(tracks, track);
            },
        );
        if pass != Pass::Warm {
            for (index, shard) in shards[..used].iter().enumerate() {
                self.check_shard(shard, shard_rows.min(rows - index * shard_rows), index * shard_rows)?;
            }
        }
        Ok(shards[..used].iter().map(|shard| shard.loss).sum::<f64>() * objective.weight)
    }

    /// The gradient of the last [`adjoints`](Trainable::adjoints) in the batch's x, n per row.
    pub fn target_gradient(&self, workspace: &CotWorkspace<T>, gradient: &mut [T]) {
        let n = self.layout.shape.target;
        for (gradient, shard) in gradient.chunks_mut(workspace.shard_rows * n).zip(&workspace.shards) {
            gradient.copy_from_slice(&shard.x_bar[..gradient.len()]);
        }
    }
}

impl<T: Real> CotWorkspace<T> {
    /// The loaded rows x, and where a warm step is to evaluate them.
    pub(super) fn rows_and_lines(&mut self, n: usize) -> (&[T], &mut Lines<T>) {
        (&self.x[..self.rows * n], &mut self.lines)
    }

    fn sums<'a>(&'a self, pick: impl Fn(&'a Sums<T>) -> &'a [T]) -> impl Iterator<Item = &'a [T]> {
        let used = self.rows.div_ceil(self.shard_rows);
        let sums = self.shards[..used].iter().map(|shard| shard.sums.as_ref());
        sums.map(move |sums| pick(sums.expect("a shard that sums adjoints")))
    }
}

impl<T: Real> Trainable<T> for CotMap<T> {
    type Workspace = CotWorkspace<T>;

    fn workspace(&self, rows: usize) -> CotWorkspace<T> {
        let shape = &self.layout.shape;
        let shard_rows = shard_rows(rows);
        let count = rows.div_ceil(shard_rows);
        let (blocks, parts) = self.parts();
        let steps = self.settings.time_steps;
        let tracks = count.min(rayon::current_num_threads());
        let all = self.stage_bytes(shard_rows).saturating_mul(4 * steps).saturating_mul(tracks);
        let kept = if all <= self.settings.activation_bytes { 4 * steps } else { 0 };
        CotWorkspace {
            rows: 0,
            shard_rows,
            x: vec![T::ZERO; rows * shape.target],
            y: vec![T::ZERO; rows * shape.given],
            frame: self.frame(),
            embedded: vec![T::ZERO; count * shard_rows * self.layout.embedding.stride().max(1)],
            embedded_bars: vec![T::ZERO; count * shard_rows * self.layout.embedding.stride().max(1)],
            records: vec![T::ZERO; count * shard_rows * self.layout.record],
            adjoints: vec![T::ZERO; count * shard_rows * self.layout.record],
            shards: (0..count).map(|_| Shard::with_sums(self, shard_rows)).collect(),
            tracks: Mutex::new(Vec::new()),
            warm_tracks: Mutex::new(Vec::new()),
            warm: None,
            lines: Lines::new(rows, shape.target),
            kept,
            blocks,
            parts,
        }
    }

    batch_by_batch!(CotWorkspace);

    fn warm_steps(&self) -> u64 {
        self.settings.warm_steps
    }

    fn begin_step(&self, workspace: &mut CotWorkspace<T>, random: StepRandom) {
        workspace.warm = (random.step <= self.settings.warm_steps).then_some(random);
    }

    /// NLL + α₁ transport + α₂ HJB, averaged over the batch, with `time_steps` steps; in a warm step the mean of
    /// ½‖∇ₓΦ(t, x_t; y) + z − x‖².
    fn adjoints(&self, workspace: &mut CotWorkspace<T>) -> Result<f64> {
        let Some(random) = workspace.warm else { return self.run(workspace, Pass::Step) };
        let n = self.layout.shape.target;
        let (x, lines) = workspace.rows_and_lines(n);
        lines.scatter(x, n, random);
        self.warm_adjoints(workspace)
    }

    /// The mean NLL alone, with `evaluation_steps` steps.
    fn loss(&self, workspace: &mut CotWorkspace<T>) -> Result<f64> {
        self.run(workspace, Pass::Loss)
    }

    fn loss_cost(&self) -> f64 {
        self.settings.evaluation_steps as f64 / (3 * self.settings.time_steps) as f64
    }

    fn block_gradient(&self, workspace: &CotWorkspace<T>, index: usize, gradient: &mut [T]) {
        let CotWorkspace { rows, y, embedded, embedded_bars, records, adjoints, .. } = workspace;
        let (rows, stride) = (*rows, self.layout.record);
        let (n, w, r) = (self.layout.shape.target, self.layout.shape.width, self.layout.shape.rank);
        let (embedding, features, given) =
            (&self.layout.embedding, self.layout.features, self.layout.shape.given);
        let e = || match embedding.is_empty() {
            true => columns(y, given, rows, given),
            false => embedding.output(embedded, rows),
        };
        let (rho, kappa) = (self.layout.rho(), self.layout.kappa());
        match &workspace.parts[index] {
            Part::Opening => sum_into(gradient, workspace.sums(|sums| &sums.weights[0])),
            Part::Given { cols } => {
                let e = e().subrows(cols.start, cols.len());
                let dst = columns_mut(gradient, w, cols.len(), w);
                product(dst, Accum::Replace, columns(adjoints, w, rows, stride), e.transpose());
            }
            Part::OpeningBias => {
                sum_into(gradient, adjoints.chunks_exact(stride).take(rows).map(|record| &record[..w]));
            }
            Part::Residual { i, entries } => {
                sum_into(gradient, workspace.sums(|sums| &sums.weights[*i][entries.clone()]));
            }
            Part::Bias { i } => sum_into(gradient, workspace.sums(|sums| &sums.biases[*i])),
            Part::Head => sum_into(gradient, workspace.sums(|sums| &sums.head)),
            Part::Quadratic => {
                let d = self.layout.inputs;
                let moving = columns(&adjoints[kappa.start..], n + 1, rows, stride);
                let still = columns(&records[rho.start..], r, rows, stride);
                let dst = columns_mut(gradient, n + 1, r, d);
                product(dst, Accum::Replace, moving, still.transpose());
                for part in workspace.sums(|sums| &sums.quadratic_rows) {
                    for (sum, part) in gradient.chunks_exact_mut(d).zip(part.chunks_exact(n + 1)) {
                        for (sum, &part) in sum.iter_mut().zip(part) {
                            *sum += part;
                        }
                    }
                }
                if features > 0 {
                    let still = columns(&adjoints[rho.start..], r, rows, stride);
                    let dst = columns_mut(&mut gradient[n + 1..], features, r, d);
                    product(dst, Accum::Replace, e(), still.transpose());
                }
            }
            Part::Linear => {
                let (moving, still) = gradient.split_at_mut(n + 1);
                sum_into(
                    moving,
                    adjoints.chunks_exact(stride).take(rows).map(|record| &record[kappa.clone()]),
                );
                still.fill(T::ZERO);
            }
            Part::Constant => gradient.fill(T::ZERO),
            Part::Embedding(part) => embedding.gradient(part, y, embedded, embedded_bars, rows, gradient),
        }
    }
}
