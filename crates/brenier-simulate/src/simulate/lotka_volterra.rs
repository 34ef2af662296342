//! Stochastic predators and prey: a Markov jump process simulated exactly, seen through nine summaries.
//!
//! The state (X predators, Y prey) starts at (50, 100) and jumps by
//!
//! | rate | effect |
//! |---|---|
//! | θ₁ X Y | X + 1 |
//! | θ₂ X | X − 1 |
//! | θ₃ Y | Y + 1 |
//! | θ₄ X Y | Y − 1 |
//!
//! until T = 30 (Gillespie's direct method). It is recorded at t = 0, 0.2, …, 29.8. A path of more than 10 000
//! reactions is abandoned and drawn again, parameters too, and so is one with a constant series, whose
//! correlations do not exist: the joint distribution of parameters and summaries is that of finished paths.
//! Prior: ln θᵢ ~ U(−5, 2), independent.

use rand::Rng;

use super::{Attempt, Prior, PriorBlock, Simulator, Stream};
use crate::Result;
use crate::kernel::{Real, vectorised};
use crate::statistics::mean;

/// Points in time at which a path is recorded.
pub const POINTS: usize = 150;
/// Time between them.
pub const INTERVAL: f64 = 0.2;
/// Paths with more reactions than this are abandoned.
pub const MAX_REACTIONS: u32 = 10_000;
/// The time at which a path ends.
pub const END: f64 = 30.0;
/// Predators and prey at the start.
pub const START: [u32; 2] = [50, 100];
/// The summaries, in their order.
pub const SUMMARIES: [&str; 9] = [
    "mean_predators",
    "mean_prey",
    "log_var_predators",
    "log_var_prey",
    "autocorr_lag1_predators",
    "autocorr_lag2_predators",
    "autocorr_lag1_prey",
    "autocorr_lag2_prey",
    "crosscorr",
];

/// What the model gives back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observable {
    /// The nine [`SUMMARIES`].
    #[default]
    Summaries,
    /// The recorded path: predators at the 150 points, then prey, as columns `predators_0`, …, `prey_29.8`.
    Path,
}

/// The model, with its prior.
#[derive(Clone, Debug)]
pub struct LotkaVolterra {
    prior: Prior,
    outputs: Vec<String>,
    observable: Observable,
}

/// Numbers of predators and prey at t = 0, 0.2, …, 29.8.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Predators.
    pub predators: [f64; POINTS],
    /// Prey.
    pub prey: [f64; POINTS],
    /// Reactions that happened until T.
    pub reactions: u32,
}

impl LotkaVolterra {
    /// The model, giving back `observable`.
    pub fn new(observable: Observable) -> Self {
        let blocks: Vec<_> = (1..=4)
            .map(|i| PriorBlock::LogUniform {
                name: format!("theta_{i}"),
                low: (-5.0_f64).exp(),
                high: 2.0_f64.exp(),
            })
            .collect();
        let outputs = match observable {
            Observable::Summaries => SUMMARIES.map(str::to_owned).into(),
            Observable::Path => ["predators", "prey"]
                .iter()
                .flat_map(|name| (0..POINTS).map(move |k| format!("{name}_{}", k as f64 / 5.0)))
                .collect(),
        };
        let prior = Prior::new(&blocks, "".as_ref()).expect("the blocks are valid");
        Self { prior, outputs, observable }
    }
}

impl LotkaVolterra {
    /// Turns the record of a path, if it ended, into outputs.
    fn observe(&self, record: Option<&Record>, outputs: &mut [f64]) -> Attempt {
        let Some(record) = record else { return Attempt::Abandoned };
        let mut summaries = [0.0; 9];
        if !summarise(&record.predators, &record.prey, &mut summaries) {
            return Attempt::Abandoned;
        }
        match self.observable {
            Observable::Summaries => outputs.copy_from_slice(&summaries),
            Observable::Path => {
                outputs[..POINTS].copy_from_slice(&record.predators);
                outputs[POINTS..].copy_from_slice(&record.prey);
            }
        }
        Attempt::Done
    }
}

impl Default for LotkaVolterra {
    fn default() -> Self {
        Self::new(Observable::Summaries)
    }
}

/// One path at the rates θ; `None` when it takes more than [`MAX_REACTIONS`] reactions.
pub fn path(theta: &[f64; 4], rng: &mut Stream) -> Option<Path> {
    path_from(theta, START, MAX_REACTIONS, rng)
}

/// One path from any start, with any limit on the reactions.
fn path_from(theta: &[f64; 4], start: [u32; 2], limit: u32, rng: &mut Stream) -> Option<Path> {
    let mut path = None;
    simulate_lanes::<1>(theta, std::slice::from_mut(rng), start, limit, |_, end| {
        path =
            end.map(|(record, reactions)| Path { predators: record.predators, prey: record.prey, reactions });
    });
    path
}

/// Paths that run side by side, so that one SIMD instruction serves all.
const LANES: usize = 8;

/// What was recorded of a path.
#[derive(Clone, Copy)]
struct Record {
    predators: [f64; POINTS],
    prey: [f64; POINTS],
    points: usize,
}

/// The state of `L` paths, each in its own lane.
struct Lanes<const L: usize> {
    /// xoshiro256++, seeded from the path's stream.
    random: [[u64; L]; 4],
    theta: [[f64; L]; 4],
    predators: [f64; L],
    prey: [f64; L],
    time: [f64; L],
    /// The time of the next record, or the end.
    next: [f64; L],
    reactions: [f64; L],
}

/// Adds one exponential waiting time to each lane's time and says which lanes need attention, because their time has
/// passed the next record or their reactions the limit, and how the next reaction changes predators and prey.
///
/// Nothing in here branches: which reaction happens could not be foreseen.
#[inline(always)]
fn step<const L: usize>(lanes: &mut Lanes<L>, limit: f64) -> ([bool; L], [f64; L], [f64; L]) {
    let (mut attention, mut predators, mut prey) = ([false; L], [0.0; L], [0.0; L]);
    for l in 0..L {
        let (x, y) = (lanes.predators[l], lanes.prey[l]);
        let waiting = (-log_of_unit(uniform(&mut lanes.random, l))).at_least(f64::MIN_POSITIVE);
        // Rates added up in the order 2, 3, 1, 4.
        let xy = x * y;
        let one = lanes.theta[1][l] * x;
        let two = one + lanes.theta[2][l] * y;
        let three = two + lanes.theta[0][l] * xy;
        let total = three + lanes.theta[3][l] * xy;
        let choice = uniform(&mut lanes.random, l) * total;
        // Without any rate nothing happens any more: the time is infinite, because no waiting time is 0.
        lanes.time[l] += waiting / total;
        attention[l] = (lanes.time[l] > lanes.next[l]) | (lanes.reactions[l] == limit);
        lanes.reactions[l] += 1.0;
        let step = |yes: bool| if yes { 1.0 } else { 0.0 };
        predators[l] = step((choice >= two) & (choice < three)) - step(choice < one);
        prey[l] = step((choice >= one) & (choice < two)) - step(choice >= three);
    }
    (attention, predators, prey)
}

/// The next number of lane `l`, in (0, 1): a multiple of 2⁻⁵² plus 2⁻⁵³.
#[inline(always)]
fn uniform<const L: usize>(random: &mut [[u64; L]; 4], l: usize) -> f64 {
    let [s0, s1, s2, s3] = [random[0][l], random[1][l], random[2][l], random[3][l]];
    let result = s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0);
    let (s2, s3) = (s2 ^ s0, s3 ^ s1);
    random[1][l] = s1 ^ s2;
    random[0][l] = s0 ^ s3;
    random[2][l] = s2 ^ (s1 << 17);
    random[3][l] = s3.rotate_left(45);
    f64::from_bits((result >> 12) | 1.0_f64.to_bits()) - (1.0 - 0.5 * f64::EPSILON)
}

/// log w for 2⁻⁵³ ≤ w < 1: with w = 2ᵉ m, e log 2 + log m.
#[inline(always)]
fn log_of_unit(w: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let bits = w.to_bits();
    // The exponent as the last digits of a number between 2⁵² and 2⁵³.
    let exponent = f64::from_bits((bits >> 52) | TWO_52.to_bits()) - (TWO_52 + 1023.0);
    let mantissa = f64::from_bits((bits & MANTISSA) | 1.0_f64.to_bits());
    exponent * std::f64::consts::LN_2 + (mantissa - 1.0).log1p_unit()
}

/// Simulates paths at `thetas` (four numbers each) and calls `done` with each one's number and record, or nothing when
/// it took too many reactions. A path depends on its own rates and stream alone, whatever runs beside it.
fn simulate_lanes<const L: usize>(
    thetas: &[f64],
    rngs: &mut [Stream],
    start: [u32; 2],
    limit: u32,
    mut done: impl FnMut(usize, Option<(&Record, u32)>),
) {
    let limit = f64::from(limit);
    let mut lanes = Lanes::<L> {
        random: [[0; L]; 4],
        theta: [[0.0; L]; 4],
        predators: [0.0; L],
        prey: [0.0; L],
        time: [0.0; L],
        next: [f64::INFINITY; L],
        reactions: [f64::NEG_INFINITY; L],
    };
    let mut records = [Record { predators: [0.0; POINTS], prey: [0.0; POINTS], points: 0 }; L];
    let mut paths = [0; L];
    let mut waiting = rngs.iter_mut().enumerate();
    let mut running = 0;
    // Puts the next path into a lane, or rest: no rate, nothing to record, no limit.
    let mut load = |lanes: &mut Lanes<L>, records: &mut [Record; L], paths: &mut [usize; L], l: usize| {
        let Some((path, rng)) = waiting.next() else {
            (lanes.predators[l], lanes.prey[l]) = (0.0, 0.0);
            lanes.next[l] = f64::INFINITY;
            lanes.reactions[l] = f64::NEG_INFINITY;
            return 0;
        };
        for k in 0..4 {
            lanes.random[k][l] = rng.next_u64();
            lanes.theta[k][l] = thetas[4 * path + k];
        }
        (lanes.predators[l], lanes.prey[l]) = (f64::from(start[0]), f64::from(start[1]));
        (lanes.time[l], lanes.next[l], lanes.reactions[l]) = (0.0, 0.0, 0.0);
        records[l].points = 0;
        paths[l] = path;
        1
    };
    for l in 0..L {
        running += load(&mut lanes, &mut records, &mut paths, l);
    }
    while running > 0 {
        // Many steps at a time in code for the best instruction set.
        let (attention, mut predators, mut prey) = vectorised(
            #[inline(always)]
            || loop {
                let (attention, predators, prey) = step(&mut lanes, limit);
                if attention.iter().fold(false, |any, one| any | one) {
                    break (attention, predators, prey);
                }
                for l in 0..L {
                    lanes.predators[l] += predators[l];
                    lanes.prey[l] += prey[l];
                }
            },
        );
        for l in (0..L).filter(|&l| attention[l]) {
            let record = &mut records[l];
            let mut ended = false;
            while lanes.time[l] > lanes.next[l] {
                if record.points == POINTS {
                    ended = true;
                    break;
                }
                record.predators[record.points] = lanes.predators[l];
                record.prey[record.points] = lanes.prey[l];
                record.points += 1;
                lanes.next[l] = if record.points == POINTS { END } else { record.points as f64 * INTERVAL };
            }
            // The step counted a reaction that comes after the end, or after the limit.
            let reactions = lanes.reactions[l] - 1.0;
            if ended || reactions == limit {
                done(paths[l], ended.then_some((&*record, reactions as u32)));
                running -= 1;
                (predators[l], prey[l]) = (0.0, 0.0);
                running += load(&mut lanes, &mut records, &mut paths, l);
            }
        }
        for l in 0..L {
            lanes.predators[l] += predators[l];
            lanes.prey[l] += prey[l];
        }
    }
}

/// The nine summaries of two series of equal length; `false` when a series is constant, so that its correlations
/// do not exist.
///
/// With population variances and z the standardised series of N points: means, log(variance + 1), Σₜ zₜ zₜ₊ₗ/(N−1)
/// for lags ℓ = 1, 2, and the correlation of the two series.
pub fn summarise(predators: &[f64], prey: &[f64], summaries: &mut [f64]) -> bool {
    let n = predators.len() as f64;
    let mut scales = [0.0; 2];
    let mut centred = [[0.0; POINTS]; 2];
    for (i, series) in [predators, prey].into_iter().enumerate() {
        let mean = mean(series);
        let z = &mut centred[i][..series.len()];
        let mut variance = 0.0;
        for (z, value) in z.iter_mut().zip(series) {
            *z = value - mean;
            variance += *z * *z;
        }
        variance /= n;
        if variance == 0.0 {
            return false;
        }
        scales[i] = variance;
        summaries[i] = mean;
        summaries[2 + i] = variance.ln_1p();
        for lag in 1..=2 {
            let products: f64 = z[lag..].iter().zip(&*z).map(|(a, b)| a * b).sum();
            summaries[3 + 2 * i + lag] = products / variance / (n - 1.0);
        }
    }
    let cross: f64 = centred[0][..predators.len()].iter().zip(&centred[1]).map(|(a, b)| a * b).sum();
    summaries[8] = cross / n / (scales[0] * scales[1]).sqrt();
    true
}

impl Simulator for LotkaVolterra {
    fn identity(&self) -> String {
        match self.observable {
            Observable::Summaries => "lotka-volterra".into(),
            Observable::Path => "lotka-volterra-paths".into(),
        }
    }

    fn prior(&self) -> &Prior {
        &self.prior
    }

    fn output_names(&self) -> &[String] {
        &self.outputs
    }

    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        let mut attempt = Attempt::Abandoned;
        simulate_lanes::<1>(theta, std::slice::from_mut(rng), START, MAX_REACTIONS, |_, end| {
            attempt = self.observe(end.map(|(record, _)| record), outputs);
        });
        Ok(attempt)
    }

    fn simulate_many(
        &self,
        thetas: &[f64],
        rngs: &mut [Stream],
        outputs: &mut [f64],
    ) -> Result<Vec<Attempt>> {
        let width = self.outputs.len();
        let mut attempts = vec![Attempt::Abandoned; rngs.len()];
        simulate_lanes::<LANES>(thetas, rngs, START, MAX_REACTIONS, |path, end| {
            let outputs = &mut outputs[path * width..(path + 1) * width];
            attempts[path] = self.observe(end.map(|(record, _)| record), outputs);
        });
        Ok(attempts)
    }

    fn block_rows(&self) -> usize {
        512
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
