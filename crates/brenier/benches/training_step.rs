//! Seconds per training step (loss, gradient, Adam, projection), one JSON line per configuration.
//!
//! The configurations carry the names of the PyTorch program they are compared with. GFLOP/s counts the
//! matrix products of the step alone; the peak is measured in the same run with the same kernel.
//!
//! usage: cargo bench --bench training_step [-- CONFIG …] [--threads 2] [--steps N]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::time::Instant;

use brenier::map::pcp::{OutputActivation, PcpMap, PcpShape};
use brenier::map::{ConditionalMap, Trainable};
use brenier::train::{Adam, AdamSettings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

struct Config {
    name: &'static str,
    shape: PcpShape,
    batch: usize,
}

fn config(
    name: &'static str,
    target: usize,
    given: usize,
    batch: usize,
    width: usize,
    depth: usize,
) -> Config {
    let shape = PcpShape {
        target,
        given,
        feature_width: width,
        context_width: width,
        depth,
        output: OutputActivation::Identity,
    };
    Config { name, shape, batch }
}

/// Multiplications and additions of the step's matrix products.
fn flops(config: &Config) -> f64 {
    let PcpShape { target: n, given: m, feature_width: w, context_width: u, depth, .. } = config.shape;
    let mut total = 0;
    for k in 0..=depth {
        let cols = if k == 0 { m } else { u };
        let outputs = if k < depth { w } else { 1 };
        let rows = if k < depth { u } else { 0 } + if k > 0 { w } else { 0 } + n + outputs;
        total += rows * cols * if k == 0 { 2 } else { 3 };
        if k > 0 && k < depth {
            total += w * w * 3 * (n + 2);
        }
    }
    total += depth * w * n * (n + 1) / 2 + depth * w * n * n;
    2.0 * total as f64 * config.batch as f64
}

/// GFLOP/s of 512³ single-precision products, one per thread side by side.
fn gemm_peak(threads: usize) -> f64 {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let size = 512;
    let rate = |_: rayon::BroadcastContext<'_>| {
        let a = faer::Mat::<f32>::from_fn(size, size, |i, j| ((i * 7 + j) % 11) as f32);
        let mut c = faer::Mat::<f32>::zeros(size, size);
        let mut best = f64::INFINITY;
        for _ in 0..60 {
            let start = Instant::now();
            faer::linalg::matmul::matmul(
                c.as_mut(),
                faer::Accum::Replace,
                a.as_ref(),
                a.as_ref(),
                1.0,
                faer::Par::Seq,
            );
            best = best.min(start.elapsed().as_secs_f64());
        }
        std::hint::black_box(&c);
        2.0 * (size * size * size) as f64 / best / 1e9
    };
    pool.broadcast(rate).iter().sum()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let option = |name: &str, default: usize| {
        arguments.iter().position(|a| a == name).map_or(default, |i| arguments[i + 1].parse().unwrap())
    };
    let (threads, steps) = (option("--threads", 2), option("--steps", 0));
    let configs = [
        config("pcp_concrete", 1, 8, 32, 128, 3),
        config("pcp_lv", 4, 9, 256, 128, 2),
        config("pcp_joint", 8, 7, 64, 256, 3),
        config("pcp_swe", 14, 3500, 64, 256, 3),
        config("pcp_swe_full", 100, 3500, 64, 512, 5),
    ];
    let named: Vec<&String> = arguments.iter().filter(|a| a.contains('_')).collect();
    let peak = gemm_peak(threads);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for config in configs.iter().filter(|c| named.is_empty() || named.iter().any(|n| *n == c.name)) {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut map = PcpMap::<f32>::initial(config.shape, Default::default(), 0).unwrap();
        let mut workspace = map.workspace(config.batch);
        let (x, y) = map.load(&mut workspace, config.batch);
        for value in x.iter_mut().chain(y) {
            *value = rng.sample::<f32, _>(StandardNormal);
        }
        let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
        let mut updates = Vec::new();
        let mut step = || {
            let loss = map.adjoints(&mut workspace).unwrap();
            let start = Instant::now();
            adam.step(&mut map, &workspace, 1e-3);
            updates.push(start.elapsed().as_secs_f64());
            loss
        };
        let mut times = Vec::new();
        pool.install(|| {
            let warm = Instant::now();
            while warm.elapsed().as_secs_f64() < 0.3 {
                step();
            }
            let start = Instant::now();
            while times.len() < if steps > 0 { steps } else { 20 }
                || (steps == 0 && start.elapsed().as_secs_f64() < 3.0)
            {
                let start = Instant::now();
                std::hint::black_box(step());
                times.push(start.elapsed().as_secs_f64());
            }
        });
        times.sort_by(f64::total_cmp);
        updates.sort_by(f64::total_cmp);
        let (median, update) = (times[times.len() / 2], updates[updates.len() / 2]);
        println!(
            "{{\"config\": \"{}\", \"median_s\": {median:.6}, \"min_s\": {:.6}, \"steps\": {}, \"threads\": {threads}, \
             \"update_s\": {update:.6}, \"gflops\": {:.1}, \"gemm_peak_gflops\": {peak:.1}}}",
            config.name,
            times[0],
            times.len(),
            flops(config) / median / 1e9,
        );
    }
}
