//! The training loop.

use std::time::Instant;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::average::Average;
use super::checkpoint::{self, Vectors};
use super::observe::{Progress, Stop, TrainEvent};
use super::{Adam, Nearby, Schedule, TrainSettings, keep_awake};
use crate::map::Trainable;
use crate::map::method::Training;
use crate::transform::GivenNoise;
use crate::{Error, Result, Run};

/// Recoveries from non-finite losses before a run is given up.
const MAX_RECOVERIES: u32 = 8;

/// The part of the step size that is left after a warm start, whose weights larger steps would leave again.
const AFTER_WARM_START: f64 = 0.2;

/// Standardised rows (x, y) in single precision.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Columns of x.
    pub target: usize,
    /// Columns of y.
    pub given: usize,
    /// Rows of x, one after the other.
    pub x: Vec<f32>,
    /// Rows of y, one after the other.
    pub y: Vec<f32>,
    /// Noise to draw anew for every row of every step, where some was declared. Rows of `y` have noise of their own, once and for
    /// all: validation and closed formulas see them.
    pub fresh: Option<FreshNoise>,
}

/// Rows y and the noise that a step adds to them.
#[derive(Clone, Debug)]
pub struct FreshNoise {
    /// Rows of y without noise, one after the other; `None` where those of the data get more noise.
    pub y: Option<Vec<f32>>,
    /// What is added.
    pub noise: GivenNoise,
}

impl Dataset {
    /// Copies the rows `index` into a batch.
    fn gather(&self, index: &[u32], x: &mut [f32], y: &mut [f32]) {
        self.copy(index, &self.y, x, y);
    }

    /// Rows of y before a step adds noise to them.
    pub(crate) fn plain_given(&self) -> &[f32] {
        self.fresh.as_ref().and_then(|fresh| fresh.y.as_ref()).unwrap_or(&self.y)
    }

    /// The same for a step of training: at places `nearby`, where these are wanted, at this part of the spread, and with fresh noise
    /// where some was declared.
    fn gather_step(
        &self,
        index: &[u32],
        nearby: Option<(&Nearby, f64)>,
        random: StepRandom,
        x: &mut [f32],
        y: &mut [f32],
    ) {
        match nearby {
            Some((nearby, part)) => nearby.gather(self, index, part, random, x, y),
            None => self.copy(index, self.plain_given(), x, y),
        }
        if let Some(fresh) = &self.fresh {
            fresh.noise.add(&mut y[..index.len() * self.given], |chunk| random.noise(chunk));
        }
    }

    pub(super) fn copy(&self, index: &[u32], given: &[f32], x: &mut [f32], y: &mut [f32]) {
        let (n, m) = (self.target, self.given);
        for (b, &row) in index.iter().enumerate() {
            let row = row as usize;
            x[b * n..(b + 1) * n].copy_from_slice(&self.x[row * n..(row + 1) * n]);
            y[b * m..(b + 1) * m].copy_from_slice(&given[row * m..(row + 1) * m]);
        }
    }
}

/// The random numbers of one step of a training: the same after a restart, whatever came before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRandom {
    /// The seed of the training.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
}

impl StepRandom {
    /// Far from the streams of the epochs' orders.
    const FIRST_STREAM: u64 = 1 << 40;

    /// Streams of declared noise, beyond all others: [`NOISE_CHUNKS`](Self::NOISE_CHUNKS) for each step.
    const NOISE_STREAM: u64 = 1 << 50;
    /// A batch has at most 2²⁰ rows.
    const NOISE_CHUNKS: u64 = 1 << 20;
    /// Streams of moves to places nearby, beyond all of noise.
    const MOVE_STREAM: u64 = 1 << 63;

    /// The random numbers of the noise on some rows of the step's batch.
    fn noise(self, chunk: usize) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(Self::NOISE_STREAM.wrapping_add(self.step * Self::NOISE_CHUNKS + chunk as u64));
        rng
    }

    /// The random numbers of the step's moves to places nearby.
    pub(super) fn moves(self) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(Self::MOVE_STREAM + self.step);
        rng
    }

    /// A stream of random numbers of the step's own.
    pub fn stream(self) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(Self::FIRST_STREAM + self.step);
        rng
    }
}

/// Everything a run remembers between two steps besides the big vectors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    epoch: u32,
    /// Rows of the epoch already used.
    position: usize,
    step: u64,
    adam_steps: u64,
    learning_rate: f64,
    drops: u32,
    /// Validations since the last improvement or drop.
    idle: u32,
    recoveries: u32,
    /// Steps since the average of the weights was started.
    #[serde(default)]
    averaged: u64,
    best_valid: Option<f64>,
    best_step: u64,
    /// Loss summed over the rows since the last validation, and their number.
    running: (f64, u64),
    stop: Option<Stop>,
    history: Vec<Progress>,
}

/// What a run produced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Why it ended.
    pub stop: Stop,
    /// Steps taken.
    pub steps: u64,
    /// The best validation loss, whose weights the map now has.
    pub best_valid_nll: f64,
    /// The step it was reached at.
    pub best_step: u64,
    /// Whether the run got as far as its first regular validation; one that was stopped before has hardly begun.
    pub validated: bool,
    /// Every validation.
    pub history: Vec<Progress>,
}

/// Trains `map` by gradient steps, keeping the weights, or the average of weights, that score best on the validation rows.
///
/// The same map, data, settings and `seed` give the same bits, whatever the number of threads.
pub fn train<M: Trainable<f32>>(map: &mut M, training: Training<'_>) -> Result<Outcome> {
    let Training { data, nearby, train_rows, valid_rows, settings, seed, identity, run: surrounding } =
        training;
    settings.validate()?;
    if train_rows.is_empty() || valid_rows.is_empty() {
        return Err(Error::setting("valid_fraction", "leaves no row to train on or none to validate with"));
    }
    let batch = settings.batch_size().min(train_rows.len());
    let scored = spread(valid_rows, map.validation_rows());
    let average = Average::new(settings.weight_average(), map.parameters());
    // Two sets of weights cost two validations.
    let loss_cost = if average.is_wanted() { 2.0 * map.loss_cost() } else { map.loss_cost() };
    let mut run = Descent {
        workspace: map.workspace(batch),
        adam: Adam::new(map.parameters().len(), settings.adam).with_clip(settings.clip),
        average,
        best: map.parameters().to_vec(),
        order: Vec::new(),
        batch,
        interval: settings.validation_interval(scored.len(), loss_cost),
        scored,
        started: Instant::now(),
        state: State {
            epoch: 0,
            position: 0,
            step: 0,
            adam_steps: 0,
            learning_rate: settings.learning_rate(),
            drops: 0,
            idle: 0,
            recoveries: 0,
            averaged: 0,
            best_valid: None,
            best_step: 0,
            running: (0.0, 0),
            stop: None,
            history: Vec::new(),
        },
        map,
        data,
        nearby,
        train_rows,
        valid_rows,
        settings,
        seed,
        identity,
        run: surrounding,
    };
    keep_awake(|| run.go())
}

/// At most `most` of `rows`, from all over.
pub(crate) fn spread(rows: &[u32], most: usize) -> Vec<u32> {
    let count = rows.len().min(most);
    (0..count).map(|place| rows[place * rows.len() / count]).collect()
}

impl Training<'_> {
    /// Trains `map` by gradient steps; see [`train`].
    pub fn descend<M: Trainable<f32>>(self, map: &mut M) -> Result<Outcome> {
        train(map, self)
    }
}

struct Descent<'a, 'b, M: Trainable<f32>> {
    map: &'a mut M,
    data: &'a Dataset,
    nearby: Option<&'a Nearby>,
    train_rows: &'a [u32],
    valid_rows: &'a [u32],
    settings: &'a TrainSettings,
    seed: u64,
    identity: &'a str,
    run: Run<'b>,
    workspace: M::Workspace,
    adam: Adam<f32>,
    average: Average,
    best: Vec<f32>,
    order: Vec<u32>,
    /// The validation rows that are scored while training.
    scored: Vec<u32>,
    batch: usize,
    interval: usize,
    started: Instant,
    state: State,
}

impl<M: Trainable<f32>> Descent<'_, '_, M> {
    fn go(&mut self) -> Result<Outcome> {
        let resumed_at = self.resume()?;
        let per_epoch = self.train_rows.len().div_ceil(self.batch) as u64;
        self.run.tell(TrainEvent::Started {
            train_rows: self.train_rows.len(),
            valid_rows: self.valid_rows.len(),
            parameters: self.best.len(),
            resumed_at,
            max_steps: (self.map.warm_steps().saturating_add(per_epoch * u64::from(self.settings.epochs)))
                .min(self.settings.max_steps.unwrap_or(u64::MAX)),
        })?;
        self.shuffle();
        let mut last_saved = Instant::now();
        if self.state.best_valid.is_none() {
            self.validate()?;
        }
        while self.state.stop.is_none() {
            if self.run.is_stopped() {
                self.state.stop = Some(Stop::Interrupted);
            } else if self
                .settings
                .minutes
                .is_some_and(|minutes| self.started.elapsed().as_secs_f64() > 60.0 * minutes)
            {
                self.state.stop = Some(Stop::Minutes);
            } else {
                let warm = self.is_warm();
                self.step()?;
                if warm && !self.is_warm() {
                    self.end_warm_start()?;
                }
                if self.state.step.is_multiple_of(self.interval as u64) {
                    // The likelihood would take longer than the warm steps between two looks at it.
                    if !warm {
                        self.validate()?;
                        self.schedule();
                    }
                    if self.run.plan().is_some_and(|plan| last_saved.elapsed() >= plan.every) {
                        self.save()?;
                        last_saved = Instant::now();
                    }
                }
            }
        }
        let stop = self.state.stop.expect("the loop ended");
        if stop.is_resumable() {
            // So that a later run whose journal has `resume` continues from this very step.
            let resumable = self.state.stop.take();
            self.save()?;
            self.state.stop = resumable;
        }
        // Whoever stops a training waits for it: with a validation behind it, the best weights are known.
        let in_a_hurry = stop == Stop::Interrupted && self.is_validated();
        if self.state.running.1 > 0 && stop != Stop::Diverged && !in_a_hurry {
            self.validate()?;
        }
        if !stop.is_resumable() && self.run.plan().is_some_and(|plan| plan.keep) {
            self.save()?;
        }
        self.map.parameters_mut().copy_from_slice(&self.best);
        let best_valid_nll = self.state.best_valid.ok_or_else(|| {
            Error::Numerical(
                "training never reached a finite validation loss; lower the learning rate or look for extreme \
                 values in the table (a robust scaling may help)"
                    .into(),
            )
        })?;
        // What was chosen by some of the validation rows is reported for all of them.
        let whole = match self.scored.len() < self.valid_rows.len() && stop != Stop::Interrupted {
            true => self.score_rows(self.valid_rows),
            false => best_valid_nll,
        };
        let best_valid_nll = if whole.is_finite() { whole } else { best_valid_nll };
        let (steps, best_step) = (self.state.step, self.state.best_step);
        self.run.tell(TrainEvent::Finished { stop, steps, best_valid_nll, best_step })?;
        Ok(Outcome {
            stop,
            steps,
            best_valid_nll,
            best_step,
            validated: self.is_validated() || !stop.is_resumable(),
            history: std::mem::take(&mut self.state.history),
        })
    }

    /// Whether the next step is a warm one.
    fn is_warm(&self) -> bool {
        self.state.step < self.map.warm_steps()
    }

    /// Whether the run got as far as its first validation, that of the start not counted.
    fn is_validated(&self) -> bool {
        let first = match self.map.warm_steps() {
            0 => self.interval as u64,
            warm => warm,
        };
        self.state.step >= first
    }

    /// From the weights of the warm steps, or better ones, to the epochs of the likelihood: smaller steps, a fresh memory.
    fn end_warm_start(&mut self) -> Result<()> {
        // Losses of two kinds have no common mean.
        self.state.running = (0.0, 0);
        self.validate()?;
        self.rewind();
        self.adam = Adam::new(self.best.len(), self.settings.adam).with_clip(self.settings.clip);
        self.state.learning_rate *= AFTER_WARM_START;
        (self.state.epoch, self.state.position, self.state.idle) = (0, 0, 0);
        self.shuffle();
        let (step, best_valid_nll) = (self.state.step, self.state.best_valid.unwrap_or(f64::NAN));
        self.run.tell(TrainEvent::Warmed { step, best_valid_nll })
    }

    /// The epoch's order of rows: a stream of its own, so that it can be drawn again after a restart.
    fn shuffle(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(u64::from(self.state.epoch) + 1);
        self.order.clear();
        self.order.extend_from_slice(self.train_rows);
        self.order.shuffle(&mut rng);
    }

    /// Epochs that are over.
    fn elapsed_epochs(&self) -> f64 {
        f64::from(self.state.epoch) + self.state.position as f64 / self.train_rows.len() as f64
    }

    /// Step size of the next step: that of the warm steps falls by a cosine, whatever the schedule of those that follow.
    fn learning_rate(&self) -> f64 {
        let (step, warm) = (self.state.step, self.map.warm_steps());
        let over = match self.settings.schedule() {
            _ if self.is_warm() => step as f64 / warm as f64,
            Schedule::Plateau => return self.state.learning_rate,
            Schedule::Cosine => {
                let epochs = self.elapsed_epochs() / f64::from(self.settings.epochs);
                let steps = |most: u64| (step - warm) as f64 / most.saturating_sub(warm).max(1) as f64;
                epochs.max(self.settings.max_steps.map_or(0.0, steps)).min(1.0)
            }
        };
        0.5 * self.state.learning_rate * (1.0 + (std::f64::consts::PI * over).cos())
    }

    fn step(&mut self) -> Result<()> {
        let (learning_rate, warm) = (self.learning_rate(), self.is_warm());
        let state = &mut self.state;
        let rows = self.batch.min(self.order.len() - state.position);
        let index = &self.order[state.position..state.position + rows];
        let (x, y) = self.map.load(&mut self.workspace, rows);
        state.step += 1;
        let random = StepRandom { seed: self.seed, step: state.step };
        // Rows are at their own places again when the steps are small, so that errors of a surrogate do not stay in the map.
        let part = learning_rate / self.settings.learning_rate();
        self.data.gather_step(index, self.nearby.map(|nearby| (nearby, part)), random, x, y);
        self.run.stepped(state.step);
        self.map.begin_step(&mut self.workspace, random);
        match self.map.adjoints(&mut self.workspace) {
            Ok(loss) if loss.is_finite() => {
                self.adam.step(self.map, &self.workspace, learning_rate);
                if self.average.is_wanted() {
                    state.averaged += 1;
                    self.average.follow(self.map.parameters(), state.averaged);
                }
                state.running.0 += loss * rows as f64;
                state.running.1 += rows as u64;
            }
            Ok(loss) => self.recover(format!("the training loss was {loss}"))?,
            Err(error) => self.recover(error.to_string())?,
        }
        let state = &mut self.state;
        state.position += rows;
        // A last batch of less than half the size would only add noise.
        let left = self.order.len() - state.position;
        if left == 0 || (left < self.batch / 2 && state.position > 0) {
            state.epoch += 1;
            state.position = 0;
            if !warm && state.epoch >= self.settings.epochs {
                state.stop.get_or_insert(Stop::Epochs);
            } else {
                self.shuffle();
            }
        }
        if self.settings.max_steps.is_some_and(|most| self.state.step >= most) {
            self.state.stop.get_or_insert(Stop::Steps);
        }
        Ok(())
    }

    /// Back to the best weights with half the step size and a fresh memory.
    fn recover(&mut self, cause: String) -> Result<()> {
        self.state.recoveries += 1;
        self.state.learning_rate *= 0.5;
        self.rewind();
        self.adam = Adam::new(self.best.len(), self.settings.adam).with_clip(self.settings.clip);
        self.state.running = (0.0, 0);
        let (step, learning_rate) = (self.state.step, self.state.learning_rate);
        self.run.tell(TrainEvent::Recovered { step, cause, learning_rate })?;
        if self.state.recoveries >= MAX_RECOVERIES {
            self.state.stop = Some(Stop::Diverged);
        }
        Ok(())
    }

    /// Back to the best weights, which the average starts again from.
    fn rewind(&mut self) {
        self.map.parameters_mut().copy_from_slice(&self.best);
        self.average.restart(&self.best);
        self.state.averaged = 0;
    }

    /// Mean negative log-likelihood of `rows` under the map's weights; not a number where it breaks down.
    fn score_rows(&mut self, rows: &[u32]) -> f64 {
        let mut total = 0.0;
        for index in rows.chunks(self.batch) {
            let (x, y) = self.map.load(&mut self.workspace, index.len());
            self.data.gather(index, x, y);
            match self.map.loss(&mut self.workspace) {
                Ok(loss) => total += loss * index.len() as f64,
                Err(_) => total = f64::NAN,
            }
        }
        total / rows.len() as f64
    }

    /// That of the rows that are scored while training.
    fn score(&mut self) -> f64 {
        let scored = std::mem::take(&mut self.scored);
        let score = self.score_rows(&scored);
        self.scored = scored;
        score
    }

    /// The same under the averaged weights.
    fn score_average(&mut self) -> f64 {
        let own = self.map.take_parameters();
        self.map.restore_parameters(std::mem::take(&mut self.average.weights));
        let score = self.score();
        self.average.weights = self.map.take_parameters();
        self.map.restore_parameters(own);
        score
    }

    /// Scores the validation rows and keeps a copy of the weights, or of their average, if they are the best.
    fn validate(&mut self) -> Result<()> {
        let own = self.score();
        let averaged = match self.state.averaged {
            0 => f64::NAN,
            _ => self.score_average(),
        };
        let smoother = averaged < own || !own.is_finite() && averaged.is_finite();
        let valid_nll = if smoother { averaged } else { own };
        let finite = valid_nll.is_finite();
        if finite && self.state.best_valid.is_none_or(|best| valid_nll < best) {
            self.state.best_valid = Some(valid_nll);
            self.state.best_step = self.state.step;
            let weights = if smoother { &self.average.weights } else { self.map.parameters() };
            self.best.copy_from_slice(weights);
            self.state.idle = 0;
        } else {
            self.state.idle += 1;
        }
        let (learning_rate, epoch) = (self.learning_rate(), self.elapsed_epochs());
        let state = &mut self.state;
        let (sum, rows) = std::mem::take(&mut state.running);
        if finite && rows > 0 {
            let progress = Progress {
                step: state.step,
                epoch,
                train_nll: sum / rows as f64,
                valid_nll,
                best_valid_nll: state.best_valid.unwrap_or(valid_nll),
                learning_rate,
                drops: state.drops,
            };
            state.history.push(progress);
            self.run.tell(TrainEvent::Validated(progress))?;
        } else if !finite {
            self.recover(format!("the validation loss was {valid_nll}"))?;
        }
        Ok(())
    }

    /// Drops the learning rate on a plateau; the last drop ends the run.
    fn schedule(&mut self) {
        if self.settings.schedule() == Schedule::Cosine || self.state.idle < self.settings.patience() {
            return;
        }
        self.state.idle = 0;
        self.state.drops += 1;
        self.state.learning_rate *= self.settings.drop_factor();
        if self.state.drops >= self.settings.max_drops() {
            self.state.stop.get_or_insert(Stop::Converged);
        } else if self.settings.rewind {
            self.rewind();
        }
    }

    fn save(&mut self) -> Result<()> {
        let Some(plan) = self.run.plan() else { return Ok(()) };
        let mut state = self.state.clone();
        state.adam_steps = self.adam.steps;
        let vectors = Vectors {
            parameters: self.map.parameters().into(),
            best: (&self.best).into(),
            mean: (&self.adam.mean).into(),
            square: (&self.adam.square).into(),
            average: (&self.average.weights).into(),
        };
        checkpoint::save(&plan.path, self.identity, &state, &vectors)
    }

    /// Takes up the state of the checkpoint, if there is one to take up; returns its step.
    fn resume(&mut self) -> Result<u64> {
        let Some(plan) = self.run.plan().filter(|plan| plan.resume && plan.path.exists()) else {
            return Ok(0);
        };
        let (state, vectors) =
            checkpoint::load(&plan.path, self.identity, (self.best.len(), self.average.weights.len()))?;
        if state.position >= self.train_rows.len() || state.history.len() as u64 > state.step {
            return Err(Error::model(&plan.path, "the checkpoint does not fit the table"));
        }
        self.map.parameters_mut().copy_from_slice(&vectors.parameters);
        self.adam.steps = state.adam_steps;
        (self.best, self.adam.mean) = (vectors.best.into_owned(), vectors.mean.into_owned());
        (self.adam.square, self.average.weights) =
            (vectors.square.into_owned(), vectors.average.into_owned());
        self.state = state;
        Ok(self.state.step)
    }
}
