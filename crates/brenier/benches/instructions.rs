//! Fixed pieces of work for `tools/instructions.py`, which counts their instructions with callgrind.
//!
//! Each runs in [`measured`] on the one thread of its pool; what comes before, such as the start of a map, is not counted.
//! Without a name the program prints what decides about the counts besides the code: the compiler's version is left to the tool.
//!
//! usage: instructions [NAME]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use brenier::diagnose::{C2stSettings, Sample, c2st};
use brenier::map::Trainable;
use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::npe::{FlowKind, NpeMap, NpeShape};
use brenier::map::pcp::{InverseSettings, OutputActivation, PcpInverter, PcpMap, PcpShape};
use brenier::train::{Adam, AdamSettings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const NAMES: [&str; 7] =
    ["pcp_concrete", "pcp_lv", "cot_lv", "npe_nsf_50", "draws_pcp_map", "draws_cot_flow", "c2st"];

/// What is counted: callgrind collects between entering and leaving this function.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}

fn normals(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

fn pcp(target: usize, given: usize, depth: usize) -> PcpMap<f32> {
    let shape = PcpShape {
        target,
        given,
        feature_width: 128,
        context_width: 128,
        depth,
        output: OutputActivation::Identity,
        convexity: Default::default(),
        front: Default::default(),
    };
    PcpMap::initial(shape, Default::default(), 0).unwrap()
}

fn cot() -> CotMap<f32> {
    CotMap::initial(CotShape::new(4, 9, 128, 2), CotSettings::default(), 0).unwrap()
}

/// Training steps, after one that makes the memory.
fn steps<M: Trainable<f32>>(mut map: M, batch: usize, count: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut workspace = map.workspace(batch);
    let (x, y) = map.load(&mut workspace, batch);
    for value in x.iter_mut().chain(y) {
        *value = rng.sample::<f32, _>(StandardNormal);
    }
    let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
    let mut step = || {
        map.adjoints(&mut workspace).unwrap();
        adam.step(&mut map, &workspace, 1e-3);
    };
    step();
    measured(&mut || (0..count).for_each(|_| step()));
}

fn work(name: &str) {
    match name {
        "pcp_concrete" => steps(pcp(1, 8, 3), 32, 4),
        "pcp_lv" => steps(pcp(4, 9, 2), 256, 1),
        "cot_lv" => steps(cot(), 16, 1),
        "npe_nsf_50" => {
            let shape = NpeShape { hidden_width: 50, ..NpeShape::new(FlowKind::Nsf, 4, 9) };
            steps(NpeMap::<f32>::initial(shape, 0).unwrap(), 256, 1);
        }
        "draws_pcp_map" => {
            let inverter = PcpInverter::new(&pcp(4, 9, 2));
            let (z, given, observation) = (normals(4 * 700, 1), normals(9, 2), vec![0; 700]);
            let settings = InverseSettings::default();
            measured(&mut || drop(inverter.invert(&z, &given, &observation, &settings).unwrap()));
        }
        "draws_cot_flow" => {
            let (map, observation) = (cot(), vec![0; 200]);
            let single =
                |values: Vec<f64>| -> Vec<f32> { values.iter().map(|&value| value as f32).collect() };
            let (z, given) = (single(normals(4 * 200, 1)), single(normals(9, 2)));
            measured(&mut || drop(map.draw(&z, &given, &observation, 8).unwrap()));
        }
        "c2st" => {
            let (a, b) = (normals(1000 * 5, 1), normals(1000 * 5, 2));
            let (p, q) = (Sample::new(&a, 5).unwrap(), Sample::new(&b, 5).unwrap());
            let settings = C2stSettings { folds: 2, max_epochs: 2, ..C2stSettings::default() };
            measured(&mut || drop(c2st(&p, &q, &settings).unwrap()));
        }
        other => panic!("no work is called {other}: choose one of {}", NAMES.join(", ")),
    }
}

/// The instruction sets that kernels are chosen by, as this process sees them.
fn features() -> String {
    #[cfg(target_arch = "x86_64")]
    let found = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let found: [(&str, bool); 0] = [];
    let names: Vec<&str> = found.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect();
    format!("{} {}", std::env::consts::ARCH, names.join(" "))
}

fn main() {
    let name = std::env::args().skip(1).find(|a| a != "--bench");
    let Some(name) = name else {
        println!("{}", features());
        NAMES.iter().for_each(|name| println!("{name}"));
        return;
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| work(&name));
}
