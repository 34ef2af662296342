//! Seconds for 2000 posterior draws at one observation, one JSON line per method and tolerance or number of steps.
//!
//! The maps have the sizes of the Lotka–Volterra experiment (n = 4, m = 9, width 128, depth 2). PCP-Map is trained
//! here for a few seconds on a simulator of those sizes whose posterior is curved and correlated; the flow's
//! time does not depend on its weights, so it is drawn from as it is initialised.
//!
//! usage: cargo bench --bench sampling [-- pcp-map | cot-flow | npe-maf | npe-nsf] [--threads 2] [--repeats 40]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::time::Instant;

use brenier::data::Table;
use brenier::map::Method;
use brenier::map::SampleSettings;
use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::npe::{FlowKind, NpeMap, NpeShape};
use brenier::train::TrainSettings;
use brenier::{FitSettings, Run, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const DRAWS: usize = 2000;

/// Nine noisy, nonlinear statistics of four parameters.
fn statistics(x: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    (0..9)
        .map(|i| {
            let (a, b) = (x[i % 4], x[(i + 1 + i / 4) % 4]);
            a + 0.4 * b * b - 0.3 * a * b + (0.3 + 0.1 * a * a) * rng.sample::<f64, _>(StandardNormal)
        })
        .collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: usize| {
        arguments.iter().position(|a| a == name).map_or(default, |i| arguments[i + 1].parse().unwrap())
    };
    let (threads, repeats) = (option("--threads", 2), option("--repeats", 40) as u64);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let named = |name: &str| {
        let mut methods = arguments.iter().filter(|a| !a.starts_with("--") && a.contains('-')).peekable();
        methods.peek().is_none() || methods.any(|a| a == name)
    };
    if named("cot-flow") {
        flow(&pool, threads, repeats);
    }
    for (name, kind) in [("npe-maf", FlowKind::Maf), ("npe-nsf", FlowKind::Nsf)] {
        if named(name) {
            transforms(name, kind, &pool, threads, repeats);
        }
    }
    if named("pcp-map") {
        newton(&pool, threads, repeats);
    }
}

/// COT-Flow in single precision, n_t steps from the reference to the data.
fn flow(pool: &rayon::ThreadPool, threads: usize, repeats: u64) {
    let (n, m, w) = (4, 9, 128);
    let map = CotMap::<f32>::initial(CotShape::new(n, m, w, 2), CotSettings::default(), 0).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut normals = |count: usize| -> Vec<f32> { (0..count).map(|_| rng.sample(StandardNormal)).collect() };
    let given = normals(m);
    let observation = vec![0; DRAWS];
    for steps in [8, 32] {
        let (mut times, mut worst) = (Vec::new(), 0.0_f64);
        for _ in 0..repeats {
            let z = normals(DRAWS * n);
            let start = Instant::now();
            let x = pool.install(|| map.draw(&z, &given, &observation, steps)).unwrap();
            times.push(start.elapsed().as_secs_f64());
            let residuals = pool.install(|| map.residuals(&x, &z, &given, &observation, steps)).unwrap();
            worst = residuals.into_iter().fold(worst, f64::max);
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let flops = (DRAWS * 4 * steps * 2 * w * w * 2) as f64;
        println!(
            "{{\"bench\": \"sample\", \"method\": \"cot-flow\", \"draws\": {DRAWS}, \"time_steps\": {steps}, \
             \"median_s\": {median:.6}, \"min_s\": {:.6}, \"gflops\": {:.1}, \"worst_residual\": {worst:.1e}, \
             \"threads\": {threads}}}",
            times[0],
            flops / median / 1e9,
        );
    }
}

/// A normalising flow of sbi's sizes in double precision, inverted transform by transform.
fn transforms(name: &str, kind: FlowKind, pool: &rayon::ThreadPool, threads: usize, repeats: u64) {
    let map = NpeMap::<f64>::initial(NpeShape::new(kind, 4, 9), 0).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut normals = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.sample(StandardNormal)).collect() };
    let (given, observation) = (normals(9), vec![0; DRAWS]);
    let (mut times, mut worst) = (Vec::new(), 0.0_f64);
    for _ in 0..repeats {
        let z = normals(DRAWS * 4);
        let start = Instant::now();
        let x = pool.install(|| map.draw(&z, &given, &observation)).unwrap();
        times.push(start.elapsed().as_secs_f64());
        let (back, _) = pool.install(|| map.forward_at(&x, &given, &observation)).unwrap();
        worst = back.iter().zip(&z).fold(worst, |worst, (back, z)| worst.max((back - z).abs()));
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{{\"bench\": \"sample\", \"method\": \"{name}\", \"draws\": {DRAWS}, \"median_s\": {:.6}, \
         \"min_s\": {:.6}, \"worst_residual\": {worst:.1e}, \"threads\": {threads}}}",
        times[times.len() / 2],
        times[0],
    );
}

/// PCP-Map by Newton's method, every draw certified.
fn newton(pool: &rayon::ThreadPool, threads: usize, repeats: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let names = (1..=4).map(|i| format!("x{i}")).chain((1..=9).map(|i| format!("y{i}"))).collect();
    let mut values = Vec::new();
    for _ in 0..50_000 {
        let x: Vec<f64> = (0..4).map(|_| rng.sample(StandardNormal)).collect();
        values.extend(&x);
        values.extend(statistics(&x, &mut rng));
    }
    let settings = FitSettings {
        target: Some("x1..x4".parse().unwrap()),
        given: Some("y1..y9".parse().unwrap()),
        method: Method::PcpMap.defaults().with("feature_width", 128).unwrap(),
        train: TrainSettings { batch_size: Some(256), epochs: 10, ..Default::default() },
        ..Default::default()
    };
    let table = Table::new(names, values).unwrap();
    let posterior = pool.install(|| fit(&table, &settings, Run::silent())).unwrap().posterior;
    let observation = statistics(&[0.5, -0.8, 0.3, 1.0], &mut rng);
    for tolerance in [1e-6, 1e-10, 1e-3] {
        let inverse = SampleSettings { tolerance: Some(tolerance), ..Default::default() };
        let mut times = Vec::new();
        let mut last = None;
        for seed in 0..repeats {
            let start = Instant::now();
            last = Some(pool.install(|| posterior.sample(&observation, 1, DRAWS, seed, &inverse)).unwrap());
            times.push(start.elapsed().as_secs_f64());
        }
        let draws = last.unwrap();
        times.sort_by(f64::total_cmp);
        let evaluations: u32 = draws.iterations.iter().sum();
        println!(
            "{{\"bench\": \"sample\", \"method\": \"pcp-map\", \"draws\": {DRAWS}, \"tolerance\": {tolerance:e}, \
             \"median_s\": {:.6}, \"min_s\": {:.6}, \"worst_residual\": {:.1e}, \"evaluations_per_draw\": {:.2}, \
             \"threads\": {threads}}}",
            times[times.len() / 2],
            times[0],
            draws.residuals.iter().fold(0.0_f64, |worst, r| worst.max(*r)),
            f64::from(evaluations) / DRAWS as f64,
        );
    }
}
