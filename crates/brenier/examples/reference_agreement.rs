//! Do two independent runs of a task's reference sampler agree? Their C2ST must be ½ up to noise (0.005 for 10 000 draws).
//!
//! Prints a Markdown table.
//!
//! usage: cargo run --release --example reference_agreement [-- two-moons slcp …]
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::time::Instant;

use brenier::reproduce::sbibm::{SbibmSettings, observations, reference_agreement};
use brenier::simulate::tasks::TASKS;

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let settings = SbibmSettings { observations: 3, ..Default::default() };
    println!("| task | C2ST of two runs at three observations | seconds in all |\n|---|---|---:|");
    for task in TASKS.into_iter().filter(|task| named.is_empty() || named.iter().any(|name| name == task)) {
        let started = Instant::now();
        let found: Vec<String> = observations(task, &settings)
            .unwrap()
            .iter()
            .enumerate()
            .map(|(index, observation)| {
                format!("{:.3}", reference_agreement(task, &settings, index, observation).unwrap())
            })
            .collect();
        println!("| {task} | {} | {:.0} |", found.join(", "), started.elapsed().as_secs_f64());
    }
}
