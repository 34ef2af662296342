//! Adaptive transport maps on the six UCI tables by the published protocol: ten folds, standardised units.
//!
//! `cargo run --release -p brenier --example atm_uci -- FOLDER [TABLE …]`, where `brenier data fetch` filled the folder.
//!
//! A fold is tested on its tenth of the rows by the map that the other nine tenths gave, validation rows included: the method
//! chooses its number of terms by a cross-validation of its own and only scores them. Joint tables are estimated as y and x given
//! y with at most 80 terms a component, conditional ones as x given y with at most 150. Units are those of columns
//! standardised by all rows (joint) or by the training rows (conditional); ± is 1.96 standard errors over the folds. Joint test
//! rows with a log density below −10⁴ are dropped, as published, and counted.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use brenier::data::{Split, Table, UciSet, uci_sets};
use brenier::map::Method;
use brenier::{FitSettings, Posterior, Result, Run, fit_split};

/// Seed of the folds.
const FOLD_SEED: u64 = 42;
/// The published figures: data set, NLL, 1.96 standard errors.
const PUBLISHED: [(&str, f64, f64); 6] = [
    ("parkinsons", 2.8, 0.4),
    ("white_wine", 11.0, 0.2),
    ("red_wine", 9.8, 0.4),
    ("concrete", 0.28, 0.1),
    ("energy", -0.75, 0.1),
    ("yacht", -2.22, 0.2),
];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        println!("usage: atm_uci FOLDER [TABLE …]");
        return Ok(());
    };
    let wanted: Vec<String> = arguments.collect();
    println!(
        "| table | NLL, ten folds | published | terms of the components (first fold) | rows dropped | seconds |"
    );
    println!("|---|---:|---:|---|---:|---:|");
    let started = Instant::now();
    for set in uci_sets().iter().filter(|set| wanted.is_empty() || wanted.iter().any(|name| name == set.name))
    {
        let table = set.prepare(&set.read(Path::new(&folder))?)?;
        run(set, &table)?;
    }
    println!("\n{:.0} s in all", started.elapsed().as_secs_f64());
    Ok(())
}

fn run(set: &UciSet, table: &Table) -> Result<()> {
    let started = Instant::now();
    let (target, given) = set.columns(table);
    let settings = FitSettings {
        method: Method::Atm.defaults().with("max_terms", if set.joint { 80 } else { 150 })?,
        target: Some(target),
        given: Some(given),
        joint: set.joint,
        ..Default::default()
    };
    let (mut figures, mut dropped, mut terms) = (Vec::new(), 0, String::new());
    for split in Split::folds(table.rows(), 10, FOLD_SEED)? {
        let train = [&split.train[..], &split.valid].concat();
        let model = fit_split(table, &train, &split.valid, &settings, Run::silent())?.posterior;
        let mut densities = densities(set, &model, table, &settings, &split.test)?;
        let rows = densities.len();
        if set.joint {
            densities.retain(|&density| density >= -1e4);
        }
        dropped += rows - densities.len();
        figures.push(-densities.iter().sum::<f64>() / densities.len() as f64);
        if terms.is_empty() {
            let blocks = model.marginal().into_iter().chain([&model]);
            terms = blocks.map(|block| block.map().describe()).collect::<Vec<_>>().join(" + ");
        }
    }
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    let square: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    let interval = 1.96 * (square / (count - 1.0) / count).sqrt();
    let published =
        PUBLISHED.iter().find(|row| row.0 == set.name).map_or((f64::NAN, f64::NAN), |row| (row.1, row.2));
    println!(
        "| {} | {mean:.2} ± {interval:.2} | {} ± {} | {terms} | {dropped} | {:.0} |",
        set.name,
        published.0,
        published.1,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Log densities of the test rows in the protocol's units.
fn densities(
    set: &UciSet,
    model: &Posterior,
    table: &Table,
    settings: &FitSettings,
    rows: &[u32],
) -> Result<Vec<f64>> {
    let (target, given) = settings.columns(table.names())?;
    let gather = |columns: &[usize]| -> Vec<f64> {
        rows.iter()
            .flat_map(|&row| columns.iter().map(move |&column| table.value(row as usize, column)))
            .collect()
    };
    let (x, y) = (gather(&target), gather(&given));
    if !set.joint {
        return Ok(model.log_density(&x, &y)?.standardised);
    }
    let log_scale: f64 = (0..table.columns())
        .map(|column| {
            let values: Vec<f64> = table.iter().map(|row| row[column]).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt().ln()
        })
        .sum();
    Ok(model.log_density_joint(&x, &y)?.joint().user.iter().map(|density| density + log_scale).collect())
}
