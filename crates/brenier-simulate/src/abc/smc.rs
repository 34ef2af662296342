//! The rounds of a run: pilot, proposals in batches, acceptance in order, weights, the next tolerance.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::checkpoint;
use super::observe::{AbcEvent, Round};
use super::population::{Kernel, Population};
use super::settings::{AbcMethod, AbcSettings};
use crate::data::{Table, discard};
use crate::simulate::{
    self, Attempt, Outcome, SimulateEvent, SimulateSettings, Simulator, Stream, Streams, Tell,
};
use crate::statistics::moments;
use crate::{Error, Result};
use crate::{Event, Journal, Run, StopToken};

/// Proposals a thread takes at once.
const BLOCK: usize = 64;
/// Blocks of a batch at most.
const BATCH_BLOCKS: u64 = 128;
/// Batches of a model whose simulations are slow.
const SLOW_BATCH: u64 = 256;
/// Purposes of random streams: the pilot, then one for each round, then resampling.
const PILOT: u64 = 1 << 32;
const RESAMPLING: u64 = 2 << 32;
/// A tolerance that does not fall by quantiles (outputs are discrete) falls by this factor.
const LEAST_FALL: f64 = 0.999;
/// Failures, without any simulation that ended, that end a run.
const HOPELESS: u64 = 20;

/// What the name of the pilot's journal ends in; it is kept until the first round begins.
const PILOT_ENDING: &str = ".pilot";

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AbcStop {
    /// The tolerance was reached, or there are enough particles.
    Finished,
    /// The simulations were used up.
    Simulations,
    /// The time was used up.
    Minutes,
    /// The user asked for it.
    Interrupted,
}

/// Particles and how they were found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AbcOutcome {
    /// The last finished round (of a rejection run: what was accepted); none if there is none.
    pub population: Option<Population>,
    /// Every finished round.
    pub rounds: Vec<Round>,
    /// Why the run ended.
    pub stop: AbcStop,
    /// Simulations that ended, with the pilot.
    pub simulations: u64,
    /// Simulations that the model abandoned.
    pub abandoned: u64,
    /// Simulations that failed, and the last reason.
    pub failed: (u64, String),
    /// Standard deviations by which the outputs were divided.
    pub scale: Vec<f64>,
    /// Things the user may want to know, one sentence each.
    pub warnings: Vec<String>,
}

/// Everything a run remembers between two batches.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    round: u32,
    /// None accepts everything.
    tolerance: Option<f64>,
    /// The next proposal of the round.
    next: u64,
    /// Simulations of the round that ended.
    simulations: u64,
    total: u64,
    abandoned: u64,
    failed: u64,
    last_failure: String,
    rounds: Vec<Round>,
    #[serde(skip)]
    scale: Vec<f64>,
    /// The round before.
    #[serde(skip)]
    coordinates: Vec<f64>,
    #[serde(skip)]
    weights: Vec<f64>,
    #[serde(skip)]
    distances: Vec<f64>,
    /// Accepted so far.
    #[serde(skip)]
    accepted: Vec<f64>,
    #[serde(skip)]
    accepted_distances: Vec<f64>,
}

impl State {
    pub(super) fn vectors(&self) -> [(&'static str, &Vec<f64>); 6] {
        [
            ("scale", &self.scale),
            ("coordinates", &self.coordinates),
            ("weights", &self.weights),
            ("distances", &self.distances),
            ("accepted", &self.accepted),
            ("accepted_distances", &self.accepted_distances),
        ]
    }

    pub(super) fn vectors_mut(&mut self) -> [(&'static str, &mut Vec<f64>); 6] {
        [
            ("scale", &mut self.scale),
            ("coordinates", &mut self.coordinates),
            ("weights", &mut self.weights),
            ("distances", &mut self.distances),
            ("accepted", &mut self.accepted),
            ("accepted_distances", &mut self.accepted_distances),
        ]
    }

    pub(super) fn is_consistent(&self, dim: usize) -> bool {
        self.coordinates.len() == dim * self.weights.len()
            && self.distances.len() == self.weights.len()
            && self.accepted.len() == dim * self.accepted_distances.len()
            && (self.round == 0) == self.weights.is_empty()
    }

    fn population(&self, dim: usize) -> Population {
        Population {
            dim,
            coordinates: self.coordinates.clone(),
            weights: self.weights.clone(),
            distances: self.distances.clone(),
        }
    }

    fn within(&self, distance: f64) -> bool {
        self.tolerance.is_none_or(|tolerance| distance <= tolerance) && distance < f64::INFINITY
    }
}

/// What one block of proposals brought.
#[derive(Default)]
struct Block {
    ended: u64,
    abandoned: u64,
    failed: u64,
    last_failure: Option<String>,
    /// Coordinates and distances within the tolerance, in order.
    near: Vec<f64>,
    distances: Vec<f64>,
    /// Whether every proposal had its turn.
    complete: bool,
}

/// Runs `settings.method` at the observation `observed`, in the order of the simulator's outputs.
pub fn run<S: Simulator + ?Sized>(
    simulator: &S,
    observed: &[f64],
    settings: &AbcSettings,
    scale: Option<&Table>,
    run: Run<'_>,
) -> Result<AbcOutcome> {
    settings.validate()?;
    let names = simulator.output_names();
    if observed.len() != names.len() || observed.iter().any(|value| !value.is_finite()) {
        return Err(Error::Shape {
            what: "observation",
            expected: format!("{} finite numbers", names.len()),
            got: format!("{observed:?}"),
        });
    }
    if settings.method == AbcMethod::Smc && !simulator.prior().has_density() {
        return Err(Error::setting(
            "method",
            "smc needs a prior with a density, which a table of samples has not; use rejection",
        ));
    }
    if scale.is_some_and(|table| table.columns() != names.len() || table.rows() < 2) {
        return Err(Error::setting("scale", "needs a table of all outputs with at least two rows"));
    }
    let problem = Problem {
        simulator,
        observed,
        settings,
        dim: simulator.prior().coordinates(),
        stop: run.token().clone(),
        began: Instant::now(),
    };
    let mut search = Search {
        identity: identity(simulator, observed, settings, scale),
        saved: Instant::now(),
        problem,
        scale,
        run,
        warnings: Vec::new(),
    };
    let Some(mut state) = search.begin()? else {
        let stop = search.interruption(0).unwrap_or(AbcStop::Interrupted);
        return Ok(search.outcome(&State::default(), None, stop));
    };
    let resumed_rounds = state.rounds.len();
    search.tell(AbcEvent::Started { particles: settings.particles, resumed_rounds })?;
    match settings.method {
        AbcMethod::Smc => search.rounds(&mut state),
        AbcMethod::Rejection => search.rejection(&mut state),
    }
}

/// What a checkpoint belongs to.
fn identity<S: Simulator + ?Sized>(
    simulator: &S,
    observed: &[f64],
    settings: &AbcSettings,
    scale: Option<&Table>,
) -> String {
    let mut digest = Sha256::new();
    let settings = serde_json::to_string(&settings.timeless()).expect("settings are plain data");
    let scale = scale.map(Table::hash).unwrap_or_default();
    let names = simulator.output_names().join("\n");
    for text in [&simulator.identity(), simulator.prior().identity(), &settings, &scale, &names] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    observed.iter().for_each(|value| digest.update(value.to_le_bytes()));
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What all threads see.
struct Problem<'a, S: Simulator + ?Sized> {
    simulator: &'a S,
    observed: &'a [f64],
    settings: &'a AbcSettings,
    dim: usize,
    stop: StopToken,
    began: Instant,
}

impl<S: Simulator + ?Sized> Problem<'_, S> {
    fn late(&self) -> bool {
        self.settings.minutes.is_some_and(|minutes| self.began.elapsed().as_secs_f64() > 60.0 * minutes)
    }

    /// Whether the run has to end, and why.
    fn interruption(&self, total: u64) -> Option<AbcStop> {
        if self.stop.is_stopped() {
            Some(AbcStop::Interrupted)
        } else if self.late() {
            Some(AbcStop::Minutes)
        } else if self.settings.max_simulations.is_some_and(|most| total >= most) {
            Some(AbcStop::Simulations)
        } else {
            None
        }
    }

    fn at_least_target(&self, tolerance: f64) -> f64 {
        self.settings.tolerance.map_or(tolerance, |target| tolerance.max(target))
    }

    fn distance(&self, outputs: &[f64], scale: &[f64]) -> f64 {
        let mut sum = 0.0;
        for ((output, observed), scale) in outputs.iter().zip(self.observed).zip(scale) {
            if *scale > 0.0 && scale.is_finite() {
                let z = (output - observed) / scale;
                sum += z * z;
            }
        }
        sum.sqrt()
    }

    /// Proposals `range` of the round: from the kernel, or from the prior without one.
    fn block(
        &self,
        range: Range<u64>,
        streams: &Streams,
        kernel: Option<&Kernel<'_>>,
        state: &State,
        tell: &Tell<'_>,
    ) -> Result<Block> {
        if self.stop.is_stopped() || self.late() {
            return Ok(Block::default());
        }
        let prior = self.simulator.prior();
        let (count, width) = ((range.end - range.start) as usize, self.observed.len());
        let mut rngs: Vec<Stream> = range.map(|i| streams.get(i)).collect();
        let mut coordinates = vec![0.0; count * self.dim];
        let parameters = prior.dim();
        let mut thetas = vec![0.0; count * parameters];
        for (i, rng) in rngs.iter_mut().enumerate() {
            let u = &mut coordinates[i * self.dim..(i + 1) * self.dim];
            let theta = &mut thetas[i * parameters..(i + 1) * parameters];
            match kernel {
                None => {
                    prior.draw(rng, theta);
                    prior.to_coordinates(theta, u);
                }
                Some(kernel) => {
                    if !kernel.propose(prior, rng, u) {
                        return Err(Error::Numerical(
                            "10000 proposals one after the other lie outside the prior: ask for more particles".into(),
                        ));
                    }
                    prior.at_coordinates(u, theta);
                }
            }
        }
        let mut outputs = vec![0.0; count * width];
        let attempts = self.simulator.simulate_telling(&thetas, &mut rngs, &mut outputs, tell)?;
        let mut block = Block { complete: true, ..Block::default() };
        for (i, attempt) in attempts.into_iter().enumerate() {
            match attempt {
                Attempt::Done => {
                    block.ended += 1;
                    let distance = self.distance(&outputs[i * width..(i + 1) * width], &state.scale);
                    if state.within(distance) {
                        block.near.extend_from_slice(&coordinates[i * self.dim..(i + 1) * self.dim]);
                        block.distances.push(distance);
                    }
                }
                Attempt::Abandoned => block.abandoned += 1,
                Attempt::Failed(reason) => {
                    block.failed += 1;
                    block.last_failure = Some(reason);
                }
                Attempt::Interrupted => block.complete = false,
            }
        }
        Ok(block)
    }
}

/// A run: the problem, and what only the thread that leads it touches.
struct Search<'a, 'c, S: Simulator + ?Sized> {
    problem: Problem<'a, S>,
    identity: String,
    saved: Instant,
    scale: Option<&'a Table>,
    run: Run<'c>,
    warnings: Vec<String>,
}

impl<'a, S: Simulator + ?Sized> std::ops::Deref for Search<'a, '_, S> {
    type Target = Problem<'a, S>;

    fn deref(&self) -> &Self::Target {
        &self.problem
    }
}

impl<S: Simulator + ?Sized> Search<'_, '_, S> {
    fn tell(&mut self, event: AbcEvent) -> Result<()> {
        self.run.tell(event)
    }

    fn outcome(&self, state: &State, population: Option<Population>, stop: AbcStop) -> AbcOutcome {
        let mut warnings = self.warnings.clone();
        if state.failed > 0 {
            warnings.push(format!(
                "{} simulations failed and count as outside the tolerance, the last because: {}",
                state.failed, state.last_failure
            ));
        }
        AbcOutcome {
            population,
            rounds: state.rounds.clone(),
            stop,
            simulations: state.total,
            abandoned: state.abandoned,
            failed: (state.failed, state.last_failure.clone()),
            scale: state.scale.clone(),
            warnings,
        }
    }

    /// Saves the state, at once or when it is time.
    fn save(&mut self, state: &State, at_once: bool) -> Result<()> {
        let Some(plan) = self.run.plan() else { return Ok(()) };
        if at_once || self.saved.elapsed() >= plan.every {
            checkpoint::save(&plan.path, &self.identity, state)?;
            self.saved = Instant::now();
        }
        Ok(())
    }

    /// The state of a checkpoint, or that after a pilot; none when the run was told to stop during it.
    fn begin(&mut self) -> Result<Option<State>> {
        if let Some(plan) = self.run.plan()
            && plan.resume
            && plan.path.exists()
        {
            let state = checkpoint::load(&plan.path, &self.identity, self.dim)?;
            self.check_scale(&state)?;
            return Ok(Some(state));
        }
        let mut state = State::default();
        let pilot = match self.scale {
            Some(table) => {
                state.scale = standard_deviations(table, 0);
                None
            }
            None => match self.pilot()? {
                None => return Ok(None),
                Some(pilot) => {
                    state.scale = standard_deviations(&pilot.table, self.simulator.prior().dim());
                    state.total = pilot.table.rows() as u64;
                    state.abandoned = pilot.abandoned;
                    state.failed = pilot.failures.len() as u64;
                    state.last_failure =
                        pilot.failures.last().map(|failure| failure.reason.clone()).unwrap_or_default();
                    Some(pilot.table)
                }
            },
        };
        self.check_scale(&state)?;
        // The pilot's simulations are prior draws like any other: the first candidates.
        let mut candidates = Vec::new();
        if let Some(table) = &pilot {
            if table.rows() < 2 {
                return Err(Error::Numerical("the pilot has fewer than two simulations that ended".into()));
            }
            let prior = self.simulator.prior();
            let mut u = vec![0.0; self.dim];
            for row in table.iter() {
                let (theta, outputs) = row.split_at(prior.dim());
                prior.to_coordinates(theta, &mut u);
                candidates.push((self.distance(outputs, &state.scale), u.clone()));
            }
            state.simulations = state.total;
        }
        state.tolerance = match (self.settings.method, self.settings.decay) {
            (AbcMethod::Rejection, _) => self.settings.tolerance,
            (AbcMethod::Smc, Some(_)) => Some(self.at_least_target(self.settings.start_tolerance)),
            (AbcMethod::Smc, None) if candidates.len() >= self.settings.particles => {
                let mut distances: Vec<f64> = candidates.iter().map(|(distance, _)| *distance).collect();
                distances.sort_by(f64::total_cmp);
                Some(self.at_least_target(distances[self.settings.particles - 1]))
            }
            (AbcMethod::Smc, None) => None,
        };
        for (distance, u) in candidates {
            if state.within(distance) {
                state.accepted.extend(u);
                state.accepted_distances.push(distance);
            }
        }
        self.save(&state, true)?;
        if let Some(plan) = self.run.plan() {
            discard(&plan.part(PILOT_ENDING).path);
        }
        Ok(Some(state))
    }

    fn pilot(&mut self) -> Result<Option<simulate::Simulated>> {
        let journal = self.run.plan().map(|plan| plan.part(PILOT_ENDING));
        let settings =
            SimulateSettings { rows: self.settings.pilot, seed: self.stream_seed(PILOT), shard: None };
        let simulator = self.simulator;
        let rows = self.settings.pilot;
        let stop = self.run.token().clone();
        let mut observer = self.run.translating(move |event| match event.get() {
            Some(SimulateEvent::Progress { done, .. }) => {
                Some(Event::new(AbcEvent::Pilot { done: *done, rows }))
            }
            Some(silent @ SimulateEvent::Silent { .. }) => Some(Event::new(silent.clone())),
            _ => None,
        });
        let run = Run::observed(&mut observer).stop(&stop).journal(journal);
        match simulate::run(simulator, &settings, None, run)? {
            Outcome::Complete(simulated) => Ok(Some(simulated)),
            Outcome::Interrupted { .. } => Ok(None),
        }
    }

    /// A seed of its own for a table of simulations, so that it is not the table of `simulate` with the same seed.
    fn stream_seed(&self, purpose: u64) -> u64 {
        rand::Rng::next_u64(&mut Streams::new(self.settings.seed, purpose).get(0))
    }

    /// Outputs that never change cannot be compared; they must at least agree with the observation.
    fn check_scale(&mut self, state: &State) -> Result<()> {
        for (i, name) in self.simulator.output_names().iter().enumerate() {
            if !(state.scale[i] > 0.0 && state.scale[i].is_finite()) {
                self.warnings.push(format!(
                    "the output {name} is the same in all prior simulations and is left out of the distance"
                ));
            }
        }
        if state.scale.iter().all(|scale| !(*scale > 0.0 && scale.is_finite())) {
            return Err(Error::Numerical("no output changes from one prior simulation to another".into()));
        }
        Ok(())
    }

    /// Simulates the next batch and adds what is near enough; `false` when it was interrupted and did not count.
    fn batch(&mut self, state: &mut State, streams: &Streams, kernel: Option<&Kernel<'_>>) -> Result<bool> {
        let slow = self.simulator.block_rows() == 1;
        let (block, most) = if slow { (1, SLOW_BATCH) } else { (BLOCK as u64, BLOCK as u64 * BATCH_BLOCKS) };
        // As many as will probably be needed, by what this round has shown so far.
        let wanted = self.settings.particles.saturating_sub(state.accepted_distances.len()) as f64;
        let rate = (state.accepted_distances.len() as f64 + 1.0) / (state.next as f64 + 2.0);
        let mut size = ((1.1 * wanted / rate) as u64).clamp(block, most).div_ceil(block) * block;
        if self.settings.method == AbcMethod::Rejection && self.settings.tolerance.is_none() {
            let left = self.settings.max_simulations.unwrap_or(u64::MAX).saturating_sub(state.total);
            size = most.min(left.max(1));
        }
        let first = state.next;
        let blocks: Vec<Range<u64>> = (first..first + size)
            .step_by(block as usize)
            .map(|start| start..(start + block).min(first + size))
            .collect();
        let problem = &self.problem;
        let frozen = &*state;
        let run = Mutex::new(self.run.part(None));
        let tell = |event| run.lock().unwrap_or_else(PoisonError::into_inner).tell(event);
        let results: Result<Vec<Block>> = blocks
            .into_par_iter()
            .map(|range| problem.block(range, streams, kernel, frozen, &tell))
            .collect();
        let results = results?;
        if results.iter().any(|block| !block.complete) {
            return Ok(false);
        }
        for block in results {
            state.simulations += block.ended;
            state.total += block.ended;
            state.abandoned += block.abandoned;
            state.failed += block.failed;
            if let Some(reason) = block.last_failure {
                state.last_failure = reason;
            }
            state.accepted.extend(block.near);
            state.accepted_distances.extend(block.distances);
        }
        state.next += size;
        if state.total == 0 && state.failed >= HOPELESS {
            return Err(Error::Domain(format!(
                "all of the first {} simulations failed, the last because: {}",
                state.failed, state.last_failure
            )));
        }
        if state.simulations == 0 && state.abandoned > 1_000_000 {
            return Err(Error::Domain(
                "the model abandoned a million proposals of one round and ended none".into(),
            ));
        }
        let accepted = state.accepted_distances.len();
        let event = AbcEvent::Progress {
            round: state.round,
            tolerance: state.tolerance.unwrap_or(f64::INFINITY),
            accepted: accepted.min(self.settings.particles),
            wanted: self.settings.particles,
            acceptance: accepted as f64 / state.simulations.max(1) as f64,
            total_simulations: state.total,
        };
        self.tell(event)?;
        Ok(true)
    }

    /// Sequential Monte Carlo.
    fn rounds(&mut self, state: &mut State) -> Result<AbcOutcome> {
        let n = self.settings.particles;
        loop {
            let previous = (state.round > 0).then(|| state.population(self.dim));
            // A checkpoint may be that of the last round.
            if let Some(population) = &previous
                && self.reached(state)
            {
                return Ok(self.outcome(state, Some(population.clone()), AbcStop::Finished));
            }
            let mut ancestors = previous.clone();
            if let (Some(ancestors), Some(last)) = (&mut ancestors, state.rounds.last())
                && last.resampled
            {
                ancestors
                    .resample(&mut Streams::new(self.settings.seed, RESAMPLING).get(u64::from(state.round)));
            }
            let kernel = match &ancestors {
                Some(ancestors) => Some(Kernel::new(ancestors, self.settings.kernel_factor)?),
                None => None,
            };
            let streams = Streams::new(self.settings.seed, u64::from(state.round));
            while state.accepted_distances.len() < n {
                if let Some(stop) = self.interruption(state.total) {
                    self.save(state, true)?;
                    return Ok(self.outcome(state, previous, stop));
                }
                if self.batch(state, &streams, kernel.as_ref())? {
                    self.save(state, false)?;
                }
            }
            self.end_round(state, kernel.as_ref())?;
        }
    }

    /// Whether the last round's tolerance was the one to reach.
    fn reached(&self, state: &State) -> bool {
        match (state.rounds.last(), self.settings.tolerance) {
            (Some(last), Some(target)) => last.tolerance <= target,
            _ => false,
        }
    }

    /// Turns the accepted particles into a population and sets the next tolerance.
    fn end_round(&mut self, state: &mut State, kernel: Option<&Kernel<'_>>) -> Result<()> {
        let n = self.settings.particles;
        // In round 0 everything within the tolerance is a draw; the first n are enough.
        let accepted = state.accepted_distances.len();
        state.accepted.truncate(n * self.dim);
        state.accepted_distances.truncate(n);
        state.coordinates = std::mem::take(&mut state.accepted);
        state.distances = std::mem::take(&mut state.accepted_distances);
        state.weights = match kernel {
            None => vec![1.0 / n as f64; n],
            Some(kernel) => kernel.weights(self.simulator.prior(), &state.coordinates),
        };
        let population = state.population(self.dim);
        let effective = population.effective();
        let largest = state.distances.iter().copied().fold(0.0, f64::max);
        let tolerance = state.tolerance.unwrap_or(largest);
        let round = Round {
            round: state.round,
            tolerance,
            simulations: state.simulations,
            total_simulations: state.total,
            acceptance: accepted as f64 / state.simulations.max(1) as f64,
            effective,
            resampled: effective < self.settings.resample_below * n as f64,
        };
        state.rounds.push(round.clone());
        let next = match self.settings.decay {
            Some(decay) => decay * tolerance,
            None => population.distance_quantile(self.settings.quantile).min(LEAST_FALL * tolerance),
        };
        state.tolerance = Some(self.at_least_target(next));
        state.round += 1;
        state.next = 0;
        state.simulations = 0;
        self.tell(AbcEvent::Round(round))?;
        self.save(state, true)
    }

    /// Prior draws within the tolerance, or the nearest of all.
    fn rejection(&mut self, state: &mut State) -> Result<AbcOutcome> {
        let n = self.settings.particles;
        let nearest = self.settings.tolerance.is_none();
        let streams = Streams::new(self.settings.seed, 0);
        let stop = loop {
            if nearest {
                keep_nearest(state, self.dim, n, 4 * n);
            } else if state.accepted_distances.len() >= n {
                break AbcStop::Finished;
            }
            match self.interruption(state.total) {
                Some(AbcStop::Simulations) if nearest => break AbcStop::Finished,
                Some(stop) => break stop,
                None => {}
            }
            if self.batch(state, &streams, None)? {
                self.save(state, false)?;
            }
        };
        if stop != AbcStop::Finished {
            self.save(state, true)?;
        }
        if nearest {
            keep_nearest(state, self.dim, n, n);
        }
        let count = state.accepted_distances.len().min(n);
        if count == 0 {
            return Ok(self.outcome(state, None, stop));
        }
        let population = Population {
            dim: self.dim,
            coordinates: state.accepted[..count * self.dim].to_vec(),
            weights: vec![1.0 / count as f64; count],
            distances: state.accepted_distances[..count].to_vec(),
        };
        let largest = population.distances.iter().copied().fold(0.0, f64::max);
        let accepted = state.accepted_distances.len();
        let round = Round {
            round: 0,
            tolerance: state.tolerance.unwrap_or(largest),
            simulations: state.simulations,
            total_simulations: state.total,
            acceptance: accepted as f64 / state.simulations.max(1) as f64,
            effective: count as f64,
            resampled: false,
        };
        self.tell(AbcEvent::Round(round.clone()))?;
        let mut outcome = self.outcome(state, Some(population), stop);
        outcome.rounds = vec![round];
        Ok(outcome)
    }
}

/// Keeps the `n` nearest of the accepted when there are more than `most`; of equal distances the earlier ones.
fn keep_nearest(state: &mut State, dim: usize, n: usize, most: usize) {
    let count = state.accepted_distances.len();
    if count <= most {
        return;
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| {
        state.accepted_distances[a].total_cmp(&state.accepted_distances[b]).then(a.cmp(&b))
    });
    order.truncate(n);
    order.sort_unstable();
    state.accepted = order.iter().flat_map(|&i| &state.accepted[i * dim..(i + 1) * dim]).copied().collect();
    state.accepted_distances = order.iter().map(|&i| state.accepted_distances[i]).collect();
}

/// Standard deviation (population) of each column from `first` on.
fn standard_deviations(table: &Table, first: usize) -> Vec<f64> {
    (first..table.columns()).map(|j| moments(table.iter().map(|row| row[j])).1).collect()
}

/// Removes the files that the journal of a finished run has left.
pub fn remove_journal(journal: &Journal) {
    discard(&journal.path);
    discard(&journal.part(PILOT_ENDING).path);
}
