//! One posterior by every method: two moons at the observation (0, 0), learned from 10 000 simulations with default settings in at
//! most one minute each.
//!
//! usage: cargo run --release -p brenier --example all_methods -- PICTURE.png FOLDER
//!
//! Draws a panel for each method over contour lines of the exact posterior, and prints held-out NLL, C2ST of 4000 draws against
//! as many exact ones, and the part of the draws in the upper crescent as a Markdown table. FOLDER keeps the models and the
//! state of a training that was ended: the same command continues.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::path::{Path, PathBuf};

use brenier::diagnose::{C2stSettings, Sample, c2st};
use brenier::map::{Method, SampleSettings};
use brenier::report::{ConditionalPanel, ConditionalPanels, PictureSize, write_picture};
use brenier::reproduce::Variant;
use brenier::simulate::tasks::Task;
use brenier::simulate::{Outcome, SimulateSettings, TwoMoons, run};
use brenier::train::TrainSettings;
use brenier::{FitSettings, Journal, Posterior, Run, fit};

const OBSERVED: [f64; 2] = [0.0, 0.0];
const DRAWS: usize = 4000;

/// Rows (theta_1, theta_2, y_1, y_2).
fn simulated(rows: u64, seed: u64) -> brenier::data::Table {
    let settings = SimulateSettings { rows, seed, ..Default::default() };
    match run(&TwoMoons::default(), &settings, None, Run::silent()).unwrap() {
        Outcome::Complete(simulated) => simulated.table,
        _ => unreachable!("nothing stops it"),
    }
}

/// The model of a variant, from the folder or trained.
fn model(variant: &Variant, table: &brenier::data::Table, folder: &Path) -> Posterior {
    let path = folder.join(format!("{}.brenier", variant.name()));
    if path.exists() {
        return Posterior::load(&path).unwrap();
    }
    let settings = FitSettings {
        method: variant.settings().unwrap(),
        target: Some("theta_1,theta_2".parse().unwrap()),
        given: Some("y_1,y_2".parse().unwrap()),
        train: TrainSettings { minutes: Some(1.0), ..Default::default() },
        ..Default::default()
    };
    let checkpoint = path.with_extension("checkpoint");
    let posterior = fit(table, &settings, Run::silent().journal(Journal::at(&checkpoint))).unwrap().posterior;
    posterior.save(&path).unwrap();
    let _ = std::fs::remove_file(checkpoint);
    posterior
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let (Some(path), Some(folder)) = (arguments.next(), arguments.next()) else {
        println!("usage: all_methods PICTURE.png FOLDER");
        return;
    };
    std::fs::create_dir_all(&folder).unwrap();
    let (table, fresh) = (simulated(10_000, 1), simulated(5000, 2));
    let side =
        |columns: [usize; 2]| -> Vec<f64> { fresh.iter().flat_map(|row| columns.map(|c| row[c])).collect() };
    let (theta, y) = (side([0, 1]), side([2, 3]));
    let moons = TwoMoons::default();
    let exact = moons.posterior_draws(&OBSERVED, DRAWS, 3).unwrap();
    // Both flows of neural posterior estimation, and every other method once.
    let variants = Method::ALL.iter().flat_map(|&method| match method {
        Method::Npe => vec![
            ("NPE (NSF)", "npe:flow=nsf".parse().unwrap()),
            ("NPE (MAF)", "npe:flow=maf".parse().unwrap()),
        ],
        Method::Atm => vec![("ATM", Variant::from(method))],
        Method::Gaussian => vec![("Gaussian", Variant::from(method))],
        _ => vec![(method.title(), Variant::from(method))],
    });
    println!("| method | held-out NLL | C2ST | draws in the upper crescent |");
    println!("|---|---:|---:|---:|");
    let mut panels = ConditionalPanels::new(["θ₁", "θ₂"])
        .labels("draws", "exact posterior (50, 90, 99 %)")
        .limits([-0.45, 0.45], [-0.45, 0.45]);
    for (title, variant) in variants {
        let posterior = model(&variant, &table, &folder);
        let draws = posterior.sample(&OBSERVED, 1, DRAWS, 4, &SampleSettings::default()).unwrap().values;
        let (nll, _) = posterior.log_density(&theta, &y).unwrap().mean_nll();
        let (ours, theirs) = (Sample::new(&draws, 2).unwrap(), Sample::new(&exact, 2).unwrap());
        let told = c2st(&ours, &theirs, &C2stSettings::default()).unwrap();
        let upper = draws.chunks_exact(2).filter(|theta| theta[0] + theta[1] > 0.0).count();
        let share = 100.0 * upper as f64 / DRAWS as f64;
        println!("| {title} | {nll:.3} | {:.3} | {share:.1} % |", told.accuracy);
        let density = |a: f64, b: f64| moons.log_likelihood(&[a, b], &OBSERVED);
        panels = panels.panel(ConditionalPanel::new(title, draws).log_density(density));
    }
    write_picture(&path, &panels.to_svg(PictureSize { width: 1000, height: 210 }).unwrap(), 144.0).unwrap();
}
