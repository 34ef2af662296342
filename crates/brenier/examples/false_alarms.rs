//! How often each diagnostic raises an alarm, rightly and wrongly, on a problem whose posterior is known.
//!
//! x ~ N(0, I₂), y = x + N(0, I₂), so that π(x | y) = N(y/2, I/2). Candidates are that posterior, the same with
//! other variances or means, and the prior, which ignores y. Figures stand in docs/diagnostics.md.
//!
//! The exact posterior is judged `repetitions` times with two samples of 1000 rows, the others a tenth as often with 5000.
//!
//!     cargo run --release -p brenier --example false_alarms [repetitions] [exact] [calibration | classifier | kernel]
//!
//! With the word `exact` only the exact posterior is judged; each of the other words leaves all other checks out.

#![allow(clippy::print_stdout)]

use brenier::diagnose::{
    Bandwidth, C2stSettings, Calibration, CalibrationSettings, MmdTestSettings, PairDraws, Pairs, Quantity,
    Sample, c2st, calibrate, mmd_test,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;

const PAIRS: usize = 4000;
const DRAWS: usize = 100;
const LEVEL: f64 = 0.05;

/// N(part · y/2 + shift · √½, variance factor · I/2).
#[derive(Clone, Copy)]
struct Candidate {
    name: &'static str,
    part: f64,
    shift: f64,
    factor: f64,
}

const CANDIDATES: [Candidate; 5] = [
    Candidate { name: "exact", part: 1.0, shift: 0.0, factor: 1.0 },
    Candidate { name: "variance × 0.8", part: 1.0, shift: 0.0, factor: 0.8 },
    Candidate { name: "variance × 1.2", part: 1.0, shift: 0.0, factor: 1.2 },
    Candidate { name: "mean + 0.2 sd", part: 1.0, shift: 0.2, factor: 1.0 },
    Candidate { name: "ignores y", part: 0.0, shift: 0.0, factor: 2.0 },
];

impl Candidate {
    fn mean(&self, y: f64) -> f64 {
        self.part * 0.5 * y + self.shift * 0.5_f64.sqrt()
    }

    fn deviation(&self) -> f64 {
        (0.5 * self.factor).sqrt()
    }
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}

fn calibration(candidate: Candidate, seed: u64) -> Calibration {
    let mut rng = generator(seed, 0);
    let x: Vec<f64> = (0..2 * PAIRS).map(|_| rng.sample(StandardNormal)).collect();
    let y: Vec<f64> = x.iter().map(|x| x + rng.sample::<f64, _>(StandardNormal)).collect();
    let pairs = Pairs::new(&x, 2, &y, 2).expect("finite pairs");
    let settings = CalibrationSettings { draws: DRAWS, level: LEVEL, seed };
    let found = calibrate(&pairs, &settings, |range| {
        let mut rng = generator(seed, 1 + range.start as u64);
        let (mut draws, mut at_truth, mut at_draws) = (Vec::new(), Vec::new(), Vec::new());
        for pair in range {
            let mean = [0, 1].map(|j| candidate.mean(y[2 * pair + j]));
            let density = |x: [f64; 2]| -((x[0] - mean[0]).powi(2) + (x[1] - mean[1]).powi(2));
            at_truth.push(density([x[2 * pair], x[2 * pair + 1]]));
            for _ in 0..DRAWS {
                let x = mean.map(|mean| mean + candidate.deviation() * rng.sample::<f64, _>(StandardNormal));
                at_draws.push(density(x));
                draws.extend(x);
            }
        }
        Ok(PairDraws { draws, log_densities: Some((at_truth, at_draws)) })
    });
    found.expect("finite draws")
}

/// The samples of the two-sample tests at y = (1, −1): from the exact posterior and from the candidate.
fn two_samples(candidate: Candidate, rows: usize, seed: u64) -> [Vec<f64>; 2] {
    let mut rng = generator(seed, u64::MAX);
    [CANDIDATES[0], candidate].map(|candidate| {
        let mut value = |i: usize| {
            let y = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
            candidate.mean(y) + candidate.deviation() * rng.sample::<f64, _>(StandardNormal)
        };
        (0..2 * rows).map(&mut value).collect()
    })
}

/// Names and p-values of the checks asked for.
fn judge(candidate: Candidate, rows: usize, seed: u64, wanted: impl Fn(&str) -> bool) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    if wanted("calibration") {
        let found = calibration(candidate, seed);
        all.push(("all checks of calibration together".to_owned(), found.p_value()));
        for check in &found.checks {
            let name = match check.quantity {
                Quantity::Parameter(j) => format!("SBC of parameter {}", j + 1),
                Quantity::Density => "expected coverage".to_owned(),
                Quantity::Tarp => "TARP, random points".to_owned(),
                Quantity::Predicted => "TARP, predicted points".to_owned(),
                other => format!("{other:?}"),
            };
            all.push((format!("{name}: band"), check.uniformity.band_p_value));
            all.push((format!("{name}: moments"), check.uniformity.smooth_p_value));
        }
    }
    let [a, b] = two_samples(candidate, rows, seed);
    let (p, q) = (Sample::new(&a, 2).expect("rows"), Sample::new(&b, 2).expect("rows"));
    if wanted("classifier") {
        let settings = C2stSettings { seed, ..Default::default() };
        all.push(("C2ST".to_owned(), c2st(&p, &q, &settings).expect("two samples").p_value));
    }
    if wanted("kernel") {
        let settings =
            MmdTestSettings { bandwidth: Bandwidth::Median, permutations: 199, seed, ..Default::default() };
        all.push(("MMD test".to_owned(), mmd_test(&p, &q, &settings).expect("two samples").p_value));
    }
    all
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|own| own == word);
    let repetitions: u64 = words.iter().find_map(|word| word.parse().ok()).unwrap_or(200);
    let chosen = ["calibration", "classifier", "kernel"].into_iter().any(has);
    let candidates = if has("exact") { 1 } else { CANDIDATES.len() };
    println!("alarms at level {LEVEL}, %; {PAIRS} pairs of {DRAWS} draws");
    for candidate in CANDIDATES.into_iter().take(candidates) {
        let exact = candidate.name == CANDIDATES[0].name;
        let (repetitions, rows) = if exact { (repetitions, 1000) } else { (repetitions.div_ceil(10), 5000) };
        let p_values: Vec<Vec<(String, f64)>> = (0..repetitions)
            .into_par_iter()
            .map(|seed| judge(candidate, rows, seed, |check| !chosen || has(check)))
            .collect();
        println!("\n{} ({repetitions} repetitions, two samples of {rows} rows)", candidate.name);
        for check in 0..p_values[0].len() {
            let alarms = p_values.iter().filter(|all| all[check].1 <= LEVEL).count();
            println!("  {:<36} {:5.1}", p_values[0][check].0, 100.0 * alarms as f64 / repetitions as f64);
        }
    }
}
