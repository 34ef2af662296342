//! A million draws from each of five hard posteriors, by both solvers and both precisions: how many are unsolved?
//!
//! Each table has 10 000 rows and is fitted with the default settings. Prints a Markdown table.
//!
//! usage: cargo run --release --example hard_draws [-- --draws 1000000] [four-modes two-moons ring funnel spiral]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::time::Instant;

use brenier::data::Table;
use brenier::map::SampleSettings;
use brenier::map::{InverseSettings, Precision, Solver};
use brenier::{FitSettings, Posterior, Run, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const ROWS: usize = 10_000;

/// One row (x₁, x₂, y₁, y₂) of a problem.
fn row(problem: &str, rng: &mut ChaCha8Rng) -> [f64; 4] {
    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        rng.sample(StandardNormal)
    }
    let (y1, y2) = (normal(rng), normal(rng));
    match problem {
        "four-modes" => {
            let mut sign = || if rng.random::<bool>() { 4.0 } else { -4.0 };
            let (a, b) = (sign(), sign());
            [a + y1 + 0.3 * normal(rng), b + y2 + 0.3 * normal(rng), y1, y2]
        }
        "two-moons" => {
            let (x1, x2) = (rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
            let angle = rng.random_range(-0.5..0.5) * std::f64::consts::PI;
            let radius = 0.1 + 0.01 * normal(rng);
            let half = std::f64::consts::FRAC_1_SQRT_2;
            let first = radius * angle.cos() + 0.25 - half * f64::abs(x1 + x2);
            [x1, x2, first, radius * angle.sin() + half * (x2 - x1)]
        }
        "ring" => {
            let angle = rng.random_range(0.0..std::f64::consts::TAU);
            [3.0 * angle.cos() + 0.05 * normal(rng), 3.0 * angle.sin() + 0.05 * normal(rng), y1, y2]
        }
        "funnel" => {
            let x1 = 3.0 * normal(rng);
            [x1, (0.5 * x1).exp() * normal(rng), y1, y2]
        }
        "spiral" => {
            let t = 3.0 * std::f64::consts::PI * rng.random::<f64>().sqrt();
            [t * t.cos() / 3.0 + 0.1 * normal(rng), t * t.sin() / 3.0 + 0.1 * normal(rng), y1, y2]
        }
        other => panic!("there is no problem {other}"),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let place = arguments.iter().position(|argument| argument == "--draws");
    let draws = place.map_or(1_000_000, |place| arguments[place + 1].parse().unwrap());
    let names: Vec<&str> = ["four-modes", "two-moons", "ring", "funnel", "spiral"]
        .into_iter()
        .filter(|name| arguments.len() == 2 * place.iter().count() || arguments.iter().any(|own| own == name))
        .collect();
    println!(
        "| posterior | solver | precision | unsolved | largest residual | evaluations per draw, mean | most | seconds |"
    );
    println!("|---|---|---|---:|---:|---:|---:|---:|");
    for name in names {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let values: Vec<f64> = (0..ROWS).flat_map(|_| row(name, &mut rng)).collect();
        let observed: Vec<f64> = (0..10).flat_map(|_| row(name, &mut rng)[2..].to_vec()).collect();
        let table = Table::new(["x1", "x2", "y1", "y2"].map(String::from).to_vec(), values).unwrap();
        let settings = FitSettings {
            target: Some("x1,x2".parse().unwrap()),
            given: Some("y1,y2".parse().unwrap()),
            ..Default::default()
        };
        let model = fit(&table, &settings, Run::silent()).unwrap().posterior;
        for (solver, precision) in [
            (Solver::Newton, Precision::Mixed),
            (Solver::Newton, Precision::Double),
            (Solver::Lbfgs, Precision::Double),
        ] {
            let (solver, precision) = (Some(solver), Some(precision));
            let settings = SampleSettings { solver, precision, ..Default::default() };
            report(name, &model, &observed, draws, settings);
        }
    }
}

/// Draws at every observation and prints a line of the table.
fn report(name: &str, model: &Posterior, observed: &[f64], draws: usize, settings: SampleSettings) {
    let settings = SampleSettings { skip_unsolved: true, ..settings };
    let started = Instant::now();
    let (mut unsolved, mut worst, mut most, mut sum) = (0, 0.0_f64, 0, 0_u64);
    for (seed, given) in observed.chunks_exact(2).enumerate() {
        let found = model.sample(given, 1, draws / 10, seed as u64, &settings).unwrap();
        unsolved += found.unsolved.len();
        worst = found.residuals.iter().fold(worst, |worst, residual| worst.max(*residual));
        most = found.iterations.iter().fold(most, |most, count| most.max(*count));
        sum += found.iterations.iter().map(|&count| u64::from(count)).sum::<u64>();
    }
    let InverseSettings { solver, precision, .. } = settings.inverse();
    println!(
        "| {name} | {} | {} | {unsolved} of {draws} | {worst:.1e} | {:.1} | {most} | {:.1} |",
        format!("{solver:?}").to_lowercase(),
        format!("{precision:?}").to_lowercase(),
        sum as f64 / draws as f64,
        started.elapsed().as_secs_f64()
    );
}
