//! Seconds per training step (loss, gradient, Adam, projection), one JSON line per configuration.
//!
//! The configurations carry the names of the PyTorch program they are compared with. GFLOP/s counts the
//! matrix products of the step alone; the peak is measured in the same run with the same kernel.
//!
//! With `--only-steps N` it takes N steps of each configuration, on one thread, and measures nothing: for programs that count instructions
//! (`tools/instruction_counts.py`).
//!
//! usage: cargo bench --bench training_step [-- CONFIG …] [--threads 2] [--steps N] [--activation-mib 256] [--only-steps N]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod common;

use std::time::Instant;

use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::cpflow::{CpFlowMap, CpFlowShape, LogDet};
use brenier::map::npe::{FlowKind, NpeMap, NpeShape};
use brenier::map::pcp::{OutputActivation, PcpMap, PcpShape};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use common::{Steps, measure};

struct Config {
    name: &'static str,
    shape: Shape,
    batch: usize,
}

/// A method's sizes, and for the flow its Runge–Kutta steps.
enum Shape {
    Pcp(PcpShape),
    Cot(CotShape, usize),
    Npe(NpeShape),
    CpFlow(CpFlowShape, LogDet),
}

fn npe(name: &'static str, flow: FlowKind, hidden_width: usize) -> Config {
    let shape = NpeShape { hidden_width, ..NpeShape::new(flow, 4, 9) };
    Config { name, shape: Shape::Npe(shape), batch: 256 }
}

fn cot(name: &'static str, target: usize, given: usize, batch: usize, width: usize, steps: usize) -> Config {
    Config { name, shape: Shape::Cot(CotShape::new(target, given, width, 2), steps), batch }
}

fn embedded(mut config: Config, widths: &[usize]) -> Config {
    if let Shape::Cot(shape, _) = &mut config.shape {
        *shape = shape.clone().with_embedding(widths.to_vec());
    }
    config
}

fn pcp(name: &'static str, target: usize, given: usize, batch: usize, width: usize, depth: usize) -> Config {
    let shape = PcpShape {
        target,
        given,
        feature_width: width,
        context_width: width,
        depth,
        output: OutputActivation::Identity,
        convexity: Default::default(),
        reference: Default::default(),
        front: Default::default(),
    };
    Config { name, shape: Shape::Pcp(shape), batch }
}

fn cpflow(
    name: &'static str,
    target: usize,
    batch: usize,
    width: usize,
    depth: usize,
    log_det: LogDet,
) -> Config {
    let shape = CpFlowShape { target, given: 3500, width, depth, blocks: 1 };
    Config { name, shape: Shape::CpFlow(shape, log_det), batch }
}

/// Multiplications and additions of the step's matrix products.
fn flops(config: &Config) -> f64 {
    let per_row = match &config.shape {
        Shape::Pcp(shape) => pcp_products(*shape),
        // Forward [s | M] and g, reverse δ̄ and [ū | J̄], and the gradient of A₁, per stage; A₀ʸ once and back; the
        // embedding forwards, its gradient and, above the first layer, its adjoints.
        Shape::Cot(shape, steps) => {
            let CotShape { target: n, given: m, width: w, embedding, .. } = shape;
            let inputs = std::iter::once(m).chain(embedding);
            let layers = inputs.zip(embedding).enumerate();
            let embed: usize = layers.map(|(l, (i, o))| i * o * if l == 0 { 2 } else { 3 }).sum();
            let given = if embedding.is_empty() { 2 } else { 3 } * w * shape.features();
            4 * steps * w * w * (3 * n + 6) + given + embed
        }
        Shape::Npe(shape) => npe_products(shape),
        Shape::CpFlow(shape, _) => {
            let &CpFlowShape { target: n, given: m, width: h, depth, .. } = shape;
            let gates = depth * (h + n) + (depth - 1) * h;
            let features = (depth - 1) * h * h * 3 * (n + 2) + h * n;
            2 * h * m + 3 * gates * h + features + depth * h * n * (n + 1) / 2 + depth * h * n * n
        }
    };
    2.0 * per_row as f64 * config.batch as f64
}

/// Multiplications of one row.
fn pcp_products(shape: PcpShape) -> usize {
    let PcpShape { target: n, given: m, feature_width: w, context_width: u, depth, .. } = shape;
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
    total + depth * w * n * (n + 1) / 2 + depth * w * n * n
}

/// Multiplications of one row by unmasked weights: forwards, back, and for the gradient; those of y not back.
fn npe_products(shape: &NpeShape) -> usize {
    let NpeShape { target: n, hidden_width: h, blocks, transforms, bins, .. } = *shape;
    let m = shape.features();
    let each = |t: usize| match shape.flow {
        // Units of degree d read d inputs and the units of degree 1, …, d; output i reads those of degree < i.
        FlowKind::Maf => {
            let of_degree = |d: usize| (0..h).filter(|unit| unit % (n - 1) + 1 == d).count();
            let up_to = |d: usize| (1..=d).map(of_degree).sum::<usize>();
            let units: usize = (1..n).map(|d| of_degree(d) * (d + blocks * up_to(d))).sum();
            let outputs: usize = (1..=n).map(|i| 2 * up_to(i - 1)).sum();
            3 * (units + outputs) + 2 * m * h
        }
        FlowKind::Nsf => {
            let moved = (n - t % 2).div_ceil(2);
            let network = (n - moved) * h + 2 * blocks * h * h + (3 * bins - 1) * moved * h;
            3 * (network + n * n) + 2 * m * h * (blocks + 1)
        }
        other => panic!("products of {other:?} are not counted"),
    };
    (0..transforms).map(each).sum()
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
    let steps = match (option("--only-steps", usize::MAX), option("--steps", 0)) {
        (usize::MAX, 0) => Steps::Enough,
        (usize::MAX, count) => Steps::Timed(count),
        (count, _) => Steps::Only(count),
    };
    let only = matches!(steps, Steps::Only(_));
    let threads = if only { 1 } else { option("--threads", 2) };
    let configs = [
        pcp("pcp_concrete", 1, 8, 32, 128, 3),
        pcp("pcp_wide", 1, 8, 32, 512, 3),
        pcp("pcp_lv", 4, 9, 256, 128, 2),
        pcp("pcp_joint", 8, 7, 64, 256, 3),
        pcp("pcp_swe", 14, 3500, 64, 256, 3),
        pcp("pcp_swe_full", 100, 3500, 64, 512, 5),
        cot("cot_concrete", 1, 8, 64, 256, 8),
        cot("cot_lv", 4, 9, 256, 128, 8),
        embedded(cot("cot_swe", 14, 3500, 256, 512, 8), &[128, 128, 64]),
        npe("npe_maf_50", FlowKind::Maf, 50),
        npe("npe_maf_100", FlowKind::Maf, 100),
        npe("npe_nsf_50", FlowKind::Nsf, 50),
        npe("npe_nsf_100", FlowKind::Nsf, 100),
        cpflow("cpflow_swe", 14, 64, 256, 3, LogDet::Exact),
        cpflow("cpflow_swe_stochastic", 14, 64, 256, 3, LogDet::Stochastic),
        cpflow("cpflow_swe_full", 100, 64, 512, 5, LogDet::Exact),
    ];
    let named: Vec<&String> = arguments.iter().filter(|a| a.contains('_')).collect();
    let peak = if only { 0.0 } else { gemm_peak(threads) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for config in configs.iter().filter(|c| named.is_empty() || named.iter().any(|n| *n == c.name)) {
        let times = match &config.shape {
            Shape::Pcp(shape) => {
                let map = PcpMap::<f32>::initial(*shape, Default::default(), 0).unwrap();
                measure(map, config.batch, steps, &pool)
            }
            Shape::Npe(shape) => {
                measure(NpeMap::<f32>::initial(shape.clone(), 0).unwrap(), config.batch, steps, &pool)
            }
            &Shape::Cot(ref shape, time_steps) => {
                let activation_bytes = option("--activation-mib", 256) << 20;
                let settings = CotSettings { time_steps, activation_bytes, ..CotSettings::default() };
                let map = CotMap::<f32>::initial(shape.clone(), settings, 0).unwrap();
                measure(map, config.batch, steps, &pool)
            }
            &Shape::CpFlow(shape, log_det) => {
                let mut map = CpFlowMap::<f32>::initial(shape, 0).unwrap().with_log_det(log_det);
                let mut rng = ChaCha8Rng::seed_from_u64(1);
                let mut normals = |count: usize| -> Vec<f32> {
                    (0..count).map(|_| rng.sample::<f32, _>(StandardNormal)).collect()
                };
                let (x, y) = (normals(config.batch * shape.target), normals(config.batch * shape.given));
                map.normalise(&x, &y).unwrap();
                measure(map, config.batch, steps, &pool)
            }
        };
        if only {
            continue;
        }
        let median = times[times.len() / 2];
        println!(
            "{{\"config\": \"{}\", \"median_s\": {median:.6}, \"min_s\": {:.6}, \"steps\": {}, \"threads\": {threads}, \
             \"gflops\": {:.1}, \"gemm_peak_gflops\": {peak:.1}}}",
            config.name,
            times[0],
            times.len(),
            flops(config) / median / 1e9,
        );
    }
}
