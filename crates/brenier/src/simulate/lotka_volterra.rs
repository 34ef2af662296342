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

use rand::RngExt;
use rand_distr::Exp1;

use super::{Attempt, Prior, PriorBlock, Simulator, Stream};
use crate::Result;

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
    // Steps of the reactions 2, 3, 1, 4.
    const PREDATORS: [f64; 4] = [-1.0, 0.0, 1.0, 0.0];
    const PREY: [f64; 4] = [0.0, 1.0, 0.0, -1.0];
    let mut path = Path { predators: [0.0; POINTS], prey: [0.0; POINTS], reactions: 0 };
    let (mut x, mut y) = (f64::from(start[0]), f64::from(start[1]));
    let mut time = 0.0;
    let mut recorded = 0;
    let mut next = 0.0;
    let both = theta[0] + theta[3];
    loop {
        let waiting: f64 = rng.sample(Exp1);
        let uniform: f64 = rng.random();
        let xy = x * y;
        // Rates added up in the order of the steps above.
        let one = theta[1] * x;
        let two = one + theta[2] * y;
        let three = two + theta[0] * xy;
        let total = two + both * xy;
        time += waiting / total;
        if time > next || total == 0.0 {
            // Without any rate nothing happens any more.
            time = if total == 0.0 { f64::INFINITY } else { time };
            while time > next {
                if recorded == POINTS {
                    return Some(path);
                }
                path.predators[recorded] = x;
                path.prey[recorded] = y;
                recorded += 1;
                next = if recorded == POINTS { END } else { recorded as f64 * INTERVAL };
            }
        }
        if path.reactions == limit {
            return None;
        }
        path.reactions += 1;
        // No branch, because it could not be foreseen.
        let choice = uniform * total;
        let reaction = usize::from(choice >= one) + usize::from(choice >= two) + usize::from(choice >= three);
        x += PREDATORS[reaction];
        y += PREY[reaction];
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
        let mean = series.iter().sum::<f64>() / n;
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
        let theta = [theta[0], theta[1], theta[2], theta[3]];
        let Some(path) = path(&theta, rng) else { return Ok(Attempt::Abandoned) };
        let mut summaries = [0.0; 9];
        if !summarise(&path.predators, &path.prey, &mut summaries) {
            return Ok(Attempt::Abandoned);
        }
        match self.observable {
            Observable::Summaries => outputs.copy_from_slice(&summaries),
            Observable::Path => {
                outputs[..POINTS].copy_from_slice(&path.predators);
                outputs[POINTS..].copy_from_slice(&path.prey);
            }
        }
        Ok(Attempt::Done)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::Streams;

    const NEVER: u32 = u32::MAX;

    /// Prey alone, rate λ each: a Yule process with mean y₀ e^{λt} and variance y₀ e^{λt} (e^{λt} − 1).
    #[test]
    fn pure_birth_grows_as_its_mean_and_variance_say() {
        let (rate, start, count) = (0.1, 5, 4000);
        let streams = Streams::new(1, 0);
        let paths: Vec<Path> = (0..count)
            .map(|i| path_from(&[0.0, 0.0, rate, 0.0], [0, start], NEVER, &mut streams.get(i)).unwrap())
            .collect();
        for k in [0, 1, 50, 149] {
            let growth = (rate * k as f64 * INTERVAL).exp();
            let (mean, variance) = (f64::from(start) * growth, f64::from(start) * growth * (growth - 1.0));
            let got = paths.iter().map(|path| path.prey[k]).sum::<f64>() / count as f64;
            let spread = paths.iter().map(|path| (path.prey[k] - mean).powi(2)).sum::<f64>() / count as f64;
            assert!((got - mean).abs() <= 4.0 * (variance / count as f64).sqrt(), "{k}: {got} {mean}");
            assert!((spread - variance).abs() <= 0.12 * variance, "{k}: {spread} {variance}");
        }
        // Growth until the end of the time, not of the records.
        assert!(paths.iter().all(|path| path.reactions >= (path.prey[149] as u32 - start)));
    }

    /// Predators alone die independently: binomial with probability e^{−θ₂ t}.
    #[test]
    fn pure_death_is_binomial() {
        let (rate, start, count) = (0.1, 50, 4000);
        let streams = Streams::new(2, 0);
        let paths: Vec<Path> = (0..count)
            .map(|i| path_from(&[0.0, rate, 0.0, 0.0], [start, 0], NEVER, &mut streams.get(i)).unwrap())
            .collect();
        for k in [1, 20, 100, 149] {
            let alive = (-rate * k as f64 * INTERVAL).exp();
            let (mean, variance) = (f64::from(start) * alive, f64::from(start) * alive * (1.0 - alive));
            let got = paths.iter().map(|path| path.predators[k]).sum::<f64>() / count as f64;
            let spread =
                paths.iter().map(|path| (path.predators[k] - mean).powi(2)).sum::<f64>() / count as f64;
            assert!((got - mean).abs() <= 4.0 * (variance / count as f64).sqrt(), "{k}: {got} {mean}");
            assert!((spread - variance).abs() <= 0.12 * variance, "{k}: {spread} {variance}");
        }
    }

    /// dp/dt of the master equation on a grid of states (x, y), p row by row in x; jumps off the grid are kept out.
    fn master(theta: &[f64; 4], p: &[f64], size: [usize; 2]) -> Vec<f64> {
        let mut rate = vec![0.0; p.len()];
        for x in 0..size[0] {
            for y in 0..size[1] {
                let here = x * size[1] + y;
                let (a, b) = (x as f64, y as f64);
                let mut flow = |to: Option<usize>, strength: f64| {
                    if let Some(to) = to {
                        rate[here] -= strength * p[here];
                        rate[to] += strength * p[here];
                    }
                };
                flow((x + 1 < size[0]).then(|| here + size[1]), theta[0] * a * b);
                flow((x > 0).then(|| here - size[1]), theta[1] * a);
                flow((y + 1 < size[1]).then(|| here + 1), theta[2] * b);
                flow((y > 0).then(|| here - 1), theta[3] * a * b);
            }
        }
        rate
    }

    /// A few individuals: the distribution of (X, Y) against the master equation, integrated by Runge–Kutta, by χ².
    #[test]
    fn few_individuals_follow_the_master_equation() {
        let (theta, start, size) = ([0.02, 0.5, 0.1, 0.08], [3, 4], [20, 40]);
        let count = 20_000_u32;
        let streams = Streams::new(3, 0);
        let paths: Vec<Path> = (0..count)
            .map(|i| path_from(&theta, start, NEVER, &mut streams.get(u64::from(i))).unwrap())
            .collect();
        let mut p = vec![0.0; size[0] * size[1]];
        p[start[0] as usize * size[1] + start[1] as usize] = 1.0;
        let step = 0.02;
        for k in 1..=20 {
            for _ in 0..10 {
                let add = |p: &[f64], rate: &[f64], h: f64| -> Vec<f64> {
                    p.iter().zip(rate).map(|(p, rate)| p + h * rate).collect()
                };
                let k1 = master(&theta, &p, size);
                let k2 = master(&theta, &add(&p, &k1, step / 2.0), size);
                let k3 = master(&theta, &add(&p, &k2, step / 2.0), size);
                let k4 = master(&theta, &add(&p, &k3, step), size);
                for i in 0..p.len() {
                    p[i] += step / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
                }
            }
            if ![1, 5, 20].contains(&k) {
                continue;
            }
            let mut seen = vec![0.0; p.len()];
            for path in &paths {
                let (x, y) = (path.predators[k] as usize, path.prey[k] as usize);
                seen[x.min(size[0] - 1) * size[1] + y.min(size[1] - 1)] += 1.0;
            }
            let (mut statistic, mut cells, mut rare) = (0.0, 0.0_f64, [0.0; 2]);
            for (seen, p) in seen.iter().zip(&p) {
                let expected = p * f64::from(count);
                if expected >= 8.0 {
                    statistic += (seen - expected).powi(2) / expected;
                    cells += 1.0;
                } else {
                    rare = [rare[0] + seen, rare[1] + expected];
                }
            }
            statistic += (rare[0] - rare[1]).powi(2) / rare[1];
            // χ² with `cells` degrees of freedom: mean `cells`, variance 2 `cells`.
            assert!(
                cells > 3.0 && statistic < cells + 5.0 * (2.0 * cells).sqrt(),
                "{k}: {statistic} {cells}"
            );
        }
    }

    /// The summaries of a short pair of series, by hand.
    #[test]
    fn summaries_of_a_known_series() {
        let mut got = [0.0; 9];
        assert!(summarise(&[1.0, 2.0, 3.0, 6.0], &[2.0, 0.0, 0.0, 2.0], &mut got));
        // Centred: (−2, −1, 0, 3), variance 14/4; (1, −1, −1, 1), variance 1.
        let expected = [
            3.0,
            1.0,
            4.5_f64.ln(),
            2.0_f64.ln(),
            (2.0 + 0.0 + 0.0) / 3.5 / 3.0,
            (0.0 - 3.0) / 3.5 / 3.0,
            (-1.0 + 1.0 - 1.0) / 3.0,
            (-1.0 - 1.0) / 3.0,
            (-2.0 + 1.0 + 0.0 + 3.0) / 4.0 / 3.5_f64.sqrt(),
        ];
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-14, "{got} {expected}");
        }
        assert!(!summarise(&[1.0, 1.0], &[1.0, 2.0], &mut got));
        assert!(!summarise(&[1.0, 2.0], &[0.0, 0.0], &mut got));
    }

    /// The published observations must be ordinary draws at their parameters.
    #[test]
    fn published_observations_are_unremarkable() {
        let model = LotkaVolterra::default();
        let cases = [
            (
                [0.01, 0.5, 1.0, 0.01],
                [
                    28.886666666666667,
                    9.14,
                    8.203119820275296,
                    6.873302264934192,
                    0.9988166865376336,
                    0.9790397835236928,
                    0.9668411507834976,
                    0.895913541661916,
                    0.5278054027304466,
                ],
            ),
            (
                [0.02; 4],
                [
                    115.69333333333333,
                    2.3466666666666667,
                    5.650097863308985,
                    4.944399253975897,
                    0.9330758436036537,
                    0.8652644907101258,
                    0.736647768581715,
                    0.5061329588692244,
                    -0.38603302157400426,
                ],
            ),
        ];
        for (theta, observed) in cases {
            let streams = Streams::new(4, 0);
            let mut draws: Vec<[f64; 9]> = Vec::new();
            for row in 0.. {
                let mut summaries = [0.0; 9];
                if model.simulate(&theta, &mut streams.get(row), &mut summaries).unwrap() == Attempt::Done {
                    draws.push(summaries);
                }
                if draws.len() == 2000 {
                    break;
                }
            }
            let count = draws.len() as f64;
            let mut scale = [0.0; 9];
            for i in 0..9 {
                let below = draws.iter().filter(|draw| draw[i] < observed[i]).count() as f64 / count;
                assert!((0.001..0.999).contains(&below), "{theta:?} {}: {below}", SUMMARIES[i]);
                let mean = draws.iter().map(|draw| draw[i]).sum::<f64>() / count;
                scale[i] = (draws.iter().map(|draw| (draw[i] - mean).powi(2)).sum::<f64>() / count).sqrt();
            }
            // All together: the observation lies no farther from its tenth neighbour than draws do.
            let tenth = |point: &[f64; 9]| {
                let mut distances: Vec<f64> = draws
                    .iter()
                    .map(|draw| (0..9).map(|i| ((draw[i] - point[i]) / scale[i]).powi(2)).sum())
                    .collect();
                *distances.select_nth_unstable_by(10, f64::total_cmp).1
            };
            let own = tenth(&observed);
            let nearer = draws.iter().filter(|draw| tenth(draw) < own).count() as f64 / count;
            assert!(nearer < 0.99, "{theta:?}: nearer to the others than {nearer} of the draws");
        }
    }

    #[test]
    fn about_an_eighth_of_the_prior_draws_is_abandoned() {
        let model = LotkaVolterra::default();
        let streams = Streams::new(5, 0);
        let mut theta = [0.0; 4];
        let count = 5000;
        let abandoned = (0..count)
            .filter(|&row| {
                let mut rng = streams.get(row);
                model.prior().draw(&mut rng, &mut theta);
                path(&theta, &mut rng).is_none()
            })
            .count();
        let part = abandoned as f64 / count as f64;
        assert!((part - 0.123).abs() < 0.015, "{part}");
    }
}
