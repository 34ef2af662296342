//! Accepted simulations a second from the prior, for every built-in model, as one JSON line each.
//!
//!     cargo bench --bench simulate -- [--threads 2] [--rows 40000] [--repeats 9]
//!
//! `cpu` divides by the processor time of the threads instead of the time on the clock (Linux), which tells what
//! the program needs when others use the machine too.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::time::Instant;

use brenier::Run;
use brenier::simulate::{Outcome, SIMULATORS, SimulateSettings, built_in, run};

/// Processor seconds of this process so far; clock ticks are hundredths.
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str, default: u64| {
        arguments.iter().position(|a| a == name).map_or(default, |i| arguments[i + 1].parse().unwrap())
    };
    let (threads, rows) = (option("--threads", 2), option("--rows", 40_000));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build().unwrap();
    // Rows of shallow-water are wide: benches/shallow_water.rs.
    for name in
        SIMULATORS.into_iter().filter(|name| !["lotka-volterra-paths", "shallow-water"].contains(name))
    {
        let model = built_in(name).unwrap();
        let mut clock = Vec::new();
        let mut processor = Vec::new();
        let mut abandoned = 0;
        for seed in 0..option("--repeats", 9) {
            let settings = SimulateSettings { rows, seed, shard: None };
            let (start, used) = (Instant::now(), processor_seconds());
            let outcome = pool.install(|| run(model.as_ref(), &settings, None, Run::silent())).unwrap();
            clock.push(rows as f64 / start.elapsed().as_secs_f64());
            if let (Some(before), Some(after)) = (used, processor_seconds()) {
                processor.push(rows as f64 / (after - before).max(0.01) * threads as f64);
            }
            let Outcome::Complete(simulated) = outcome else { unreachable!() };
            abandoned = simulated.abandoned;
        }
        clock.sort_by(f64::total_cmp);
        processor.sort_by(f64::total_cmp);
        let median = |values: &[f64]| values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
        println!(
            "{{\"bench\": \"simulate\", \"model\": \"{name}\", \"threads\": {threads}, \"rows\": {rows}, \
             \"rows_per_s\": {:.0}, \"best\": {:.0}, \"rows_per_s_cpu\": {:.0}, \"abandoned\": {:.4}}}",
            median(&clock),
            clock[clock.len() - 1],
            median(&processor),
            abandoned as f64 / (rows + abandoned) as f64,
        );
    }
}
