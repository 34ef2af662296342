//! The shallow-water pipeline: simulate, second moments, leading components, projection, and the exact posterior.
//!
//!     cargo bench --bench shallow_water -- simulate [--rows 20000]
//!     cargo bench --bench shallow_water -- pipeline [--rows 100000] [--components 3500] [--out W.npy]
//!     cargo bench --bench shallow_water -- posterior [--observations 20] [--modes 24] [--chains 1] [--projection W.npy]
//!
//! One JSON line per stage, with seconds on the clock and of the processor (Linux).
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::time::Instant;

use brenier::Run;
use brenier::simulate::shallow_water::blocks::{self, FeatureComponents};
use brenier::simulate::shallow_water::exact::{
    ChainSettings, Laplace, NewtonSettings, WaveLikelihood, depth_moments, marginal_log_density,
    relative_error, sample,
};
use brenier::simulate::shallow_water::{Projection, ShallowWater, depth};
use brenier::simulate::{Simulator, Streams};
use brenier::transform::LeadingSettings;

/// Processor seconds of this process so far; clock ticks are hundredths.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The largest memory of this process so far, in GB.
fn peak_memory() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

fn timed<R>(stage: &str, rows: u64, work: impl FnOnce() -> R) -> R {
    let (start, used) = (Instant::now(), processor_seconds());
    let result = work();
    println!(
        "{{\"bench\": \"shallow_water\", \"stage\": \"{stage}\", \"rows\": {rows}, \"seconds\": {:.2}, \
         \"processor_seconds\": {:.2}, \"peak_gb\": {:.2}}}",
        start.elapsed().as_secs_f64(),
        processor_seconds() - used,
        peak_memory()
    );
    result
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = |name: &str| arguments.iter().position(|a| a == name).map(|i| arguments[i + 1].clone());
    let option = |name: &str, default: u64| text(name).map_or(default, |value| value.parse().unwrap());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(option("--threads", 2) as usize).build().unwrap();
    pool.install(|| match arguments.first().map(String::as_str) {
        Some("pipeline") => {
            let (rows, components) = (option("--rows", 100_000), option("--components", 3500) as usize);
            pipeline(rows, components, text("--out"));
        }
        Some("posterior") => posterior(
            option("--observations", 20),
            option("--modes", 24) as usize,
            option("--chains", 1) > 0,
            text("--projection").map(|path| Projection::read(path.as_ref()).unwrap()),
        ),
        _ => {
            let rows = option("--rows", 20_000);
            let depths = blocks::draw_depths(0, 0..rows);
            let mut surfaces = vec![0.0; blocks::BLOCK * blocks::INTERIOR];
            timed("simulate", rows, || {
                for depths in depths.chunks(blocks::BLOCK * 100) {
                    blocks::centred_surfaces(depths, &mut surfaces[..depths.len() / 100 * blocks::INTERIOR]);
                }
            });
        }
    });
}

fn pipeline(rows: u64, components: usize, out: Option<String>) {
    timed("all", rows, || {
        let moments =
            timed("simulate and sum", rows, || blocks::second_moments(0, rows, Run::silent()).unwrap());
        let settings = LeadingSettings { components, centred: false, ..Default::default() };
        let found = timed("components", rows, || FeatureComponents::of(moments, &settings).unwrap());
        let pairs =
            timed("project", rows, || blocks::project(0, rows, &found.projection, Run::silent()).unwrap());
        println!("{{\"rows\": {}, \"total\": {:.2}}}", pairs.rows(), found.total);
        for count in [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 3000, 3500] {
            if count <= components {
                println!(
                    "{{\"components\": {count}, \"eigenvalue\": {:.4}, \"explained\": {:.5}}}",
                    found.eigenvalues[count - 1],
                    found.explained(count)
                );
            }
        }
        if let Some(path) = out {
            found.projection.write(path.as_ref()).unwrap();
        }
    });
}

/// True negative log-likelihood of 14 modes in published units, and how the Laplace approximation and the chains agree.
fn posterior(observations: u64, modes: usize, chains: bool, projection: Option<Projection>) {
    const SHOWN: usize = 14;
    let mut likelihood = WaveLikelihood::new(modes).unwrap();
    if let Some(projection) = &projection {
        likelihood = likelihood.projected(projection);
    }
    let model = ShallowWater::default();
    let streams = Streams::new(20_000, 0);
    let shift = depth::published_log_scale(SHOWN);
    let (mut by_laplace, mut by_integral) = (Vec::new(), Vec::new());
    for row in 0..observations {
        let mut rng = streams.get(row);
        let (mut x, mut y) = (vec![0.0; 100], vec![0.0; 20_000]);
        model.prior().draw(&mut rng, &mut x);
        model.simulate(&x, &mut rng, &mut y).unwrap();
        let shallowest = x[1..99].iter().copied().fold(f64::INFINITY, f64::min);
        let mut truth = vec![0.0; modes];
        depth::to_modes(&x, &mut truth);
        let seen = likelihood.observation(&y).unwrap();
        let start = Instant::now();
        let found = Laplace::find(&likelihood, &seen, &truth, &NewtonSettings::default()).unwrap();
        let blind = Laplace::find(&likelihood, &seen, &vec![0.0; modes], &NewtonSettings::default());
        let blind = blind.map_or(f64::NAN, |blind| blind.potential);
        let laplace = -found.marginal_log_density(&truth[..SHOWN]) + shift;
        let (density, constant) =
            marginal_log_density(&likelihood, &seen, &found, &truth[..SHOWN], 1000, row);
        let integral = -density.log + shift;
        by_laplace.push(laplace);
        by_integral.push(integral);
        let (centre, sd) = depth_moments(&found.mode, &found.covariance());
        let mut widths = sd.clone();
        widths.sort_by(f64::total_cmp);
        let mut line = format!(
            "{{\"row\": {row}, \"shallowest\": {shallowest:.2}, \"steps\": {}, \"converged\": {}, \"misfit\": {:.0}, \
             \"distance\": {:.1}, \"blind_excess\": {:.2}, \"nll_laplace\": {laplace:.2}, \"nll\": {integral:.2}, \
             \"effective\": {:.2}, \"median_sd\": {:.4}, \"sd_cell_10\": {:.4}, \"sd_cell_100\": {:.4}, \
             \"relative_error\": {:.4}",
            found.steps,
            found.converged,
            found.misfit,
            found.squared_distance(&truth),
            blind - found.potential,
            constant.effective,
            widths[50],
            sd[9],
            sd[99],
            relative_error(&centre, &x),
        );
        if chains {
            let settings = ChainSettings { seed: row, steps: 200, burn_in: 50, ..Default::default() };
            let chains = sample(&likelihood, &seen, &found, &settings).unwrap();
            let (mean, spread) = chains.moments();
            let covariance = found.covariance();
            // Largest shift of a mean and largest ratio of widths over the leading modes, in Laplace's deviations.
            let deviation = |k: usize| covariance[k + k * modes].sqrt();
            let shift =
                (0..SHOWN).map(|k| ((mean[k] - found.mode[k]) / deviation(k)).abs()).fold(0.0, f64::max);
            let ratios = (0..SHOWN).map(|k| spread[k + k * modes].sqrt() / deviation(k));
            line += &format!(
                ", \"acceptance\": {:.2}, \"r_hat\": {:.3}, \"largest_shift\": {shift:.2}, \"width_ratio\": {:.3}",
                chains.acceptance,
                chains.largest_r_hat,
                ratios.sum::<f64>() / SHOWN as f64
            );
        }
        println!("{line}, \"seconds\": {:.1}}}", start.elapsed().as_secs_f64());
    }
    let report = |name: &str, values: &[f64]| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
        println!(
            "{{\"estimate\": \"{name}\", \"mean_nll\": {mean:.2}, \"standard_error\": {:.2}}}",
            (variance / count).sqrt()
        );
    };
    report("laplace", &by_laplace);
    report("integral", &by_integral);
}
