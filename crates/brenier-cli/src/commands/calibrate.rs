//! `brenier calibrate`: whether any program's draws are calibrated, from the truth and the draws at each pair.

use std::path::Path;

use brenier::Error;
use brenier::check::probability;
use brenier::data::{Selection, Table};
use brenier::diagnose::{Calibration, CalibrationSettings, PairDraws, Pairs, calibrate_until};
use serde::Serialize;

use crate::check_args::CalibrateArguments;
use crate::checked::ranks;
use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::{observations, output, screen, tables};

/// Everything found, and what it was found in.
#[derive(Serialize)]
struct Document<'a> {
    pairs: String,
    draws: String,
    target: &'a [String],
    given: &'a [String],
    p_value: f64,
    passes: bool,
    calibration: &'a Calibration,
}

pub(crate) fn run(arguments: &CalibrateArguments) -> Result<(), Failure> {
    let json = arguments.json.json.as_deref();
    output::check_json(json)?;
    let stop = stop_without_result()?;
    let truth = Truth::read(arguments)?;
    let count = truth.table.rows();
    let drawn = Drawn::read(arguments, &truth)?;
    let (n, m) = (truth.target.len(), truth.given.len());
    let side = |from: usize, to: usize| -> Vec<f64> {
        truth.table.iter().flat_map(|row| &row[from..to]).copied().collect()
    };
    let (target, given) = (side(0, n), side(n, n + m));
    let densities = arguments.log_density.as_ref().map(|_| side(n + m, n + m + 1));
    let settings = CalibrationSettings { draws: drawn.each, level: arguments.level, seed: arguments.seed };
    let pairs = Pairs::new(&target, n, &given, m)?;
    let waiting = screen::waiting("ranking");
    let found = calibrate_until(&pairs, &settings, &stop, |range| {
        let rows = range.clone().flat_map(|pair| &drawn.rows[pair]);
        let row = |&row: &u32| drawn.table.row(row as usize);
        let draws = rows.clone().flat_map(|at| &row(at)[..n]).copied().collect();
        let log_densities = densities.as_ref().map(|truth| {
            let at_draws = rows.map(|at| row(at)[n + 1]).collect();
            (truth[range.clone()].to_vec(), at_draws)
        });
        Ok(PairDraws { draws, log_densities })
    })?;
    drop(waiting);
    let document = Document {
        pairs: arguments.pairs.display().to_string(),
        draws: arguments.draws.display().to_string(),
        target: &truth.target,
        given: &truth.given,
        p_value: found.p_value(),
        passes: found.passes(),
        calibration: &found,
    };
    let text = || {
        let p = probability(found.p_value());
        let verdict = match (found.passes(), found.explained) {
            (false, _) => format!("NOT CALIBRATED ({p}, corrected for {} checks)", found.checks.len()),
            (true, Some(explained)) if explained >= 0.02 => {
                format!(
                    "No check speaks against the draws ({p}, corrected for {} checks)",
                    found.checks.len()
                )
            }
            (true, _) => format!(
                "No check speaks against the draws ({p}, corrected for {} checks), but none here could tell draws that \
                 ignore the given values",
                found.checks.len()
            ),
        };
        format!("{verdict}; {count} pairs\n\n{}", ranks(&found, &truth.target))
    };
    let document = || serde_json::to_string_pretty(&document).expect("plain numbers and names") + "\n";
    output::result_or_json(json, document, text)?;
    if arguments.strict && !found.passes() { Err(Failure::Verdict(3)) } else { Ok(()) }
}

/// The pairs: target columns, given columns, log density where asked for.
struct Truth {
    table: Table,
    target: Vec<String>,
    given: Vec<String>,
}

impl Truth {
    fn read(arguments: &CalibrateArguments) -> Result<Self, Failure> {
        let mut named = (Vec::new(), Vec::new());
        let read = tables::read(&arguments.pairs, &arguments.tables.options(), |names| {
            let target = arguments.target.resolve(names)?;
            let extra = place(names, arguments.log_density.as_deref(), &arguments.pairs)?;
            let given: Vec<usize> = match &arguments.given {
                None => Vec::new(),
                Some(Selection::Rest) => {
                    (0..names.len()).filter(|c| !target.contains(c) && !extra.contains(c)).collect()
                }
                Some(columns) => columns.resolve(names)?,
            };
            if let Some(&both) = given.iter().find(|column| target.contains(column)) {
                return Err(Error::Columns(format!(
                    "column \"{}\" is both a target and a given column",
                    names[both]
                )));
            }
            let name = |columns: &[usize]| columns.iter().map(|&c| names[c].clone()).collect::<Vec<_>>();
            named = (name(&target), name(&given));
            Ok([target, given, extra].concat())
        })?;
        output::noticed(&arguments.pairs, &read);
        Ok(Self { table: read.table, target: named.0, given: named.1 })
    }
}

/// The draws, pair by pair.
struct Drawn {
    table: Table,
    /// Rows of the table that belong to each pair.
    rows: Vec<Vec<u32>>,
    /// How many each pair has.
    each: usize,
}

impl Drawn {
    fn read(arguments: &CalibrateArguments, truth: &Truth) -> Result<Self, Failure> {
        let path = &arguments.draws;
        let read = tables::read(path, &arguments.tables.options(), |names| {
            let target = truth.target.iter().map(|name| place(names, Some(name), path));
            let mut columns = target.collect::<Result<Vec<_>, _>>()?.concat();
            columns.extend(place(names, Some(&arguments.observation_column), path)?);
            columns.extend(place(names, arguments.log_density.as_deref(), path)?);
            Ok(columns)
        })?;
        output::noticed(path, &read);
        let (table, n, count) = (read.table, truth.target.len(), truth.table.rows());
        let mut rows = vec![Vec::new(); count];
        for (row, values) in table.iter().enumerate() {
            let pair = values[n];
            if !(pair >= 1.0 && pair <= count as f64 && pair.fract() == 0.0) {
                return Err(Error::table(
                    path,
                    format!(
                        "row {}: {} is {pair}, which is not a row (1 to {count}) of {}",
                        row + 1,
                        arguments.observation_column,
                        arguments.pairs.display()
                    ),
                )
                .into());
            }
            rows[pair as usize - 1].push(row as u32);
        }
        let each = rows[0].len();
        if let Some(pair) = rows.iter().position(|own| own.len() != each || own.is_empty()) {
            return Err(Error::table(
                path,
                format!(
                    "pair {} has {} draws and pair 1 has {each}: every pair needs the same number, at least 1",
                    pair + 1,
                    rows[pair].len()
                ),
            )
            .into());
        }
        Ok(Self { table, rows, each })
    }
}

/// The place of the column called `name`, if one is asked for.
fn place(names: &[String], name: Option<&str>, path: &Path) -> Result<Vec<usize>, Error> {
    let Some(name) = name else { return Ok(Vec::new()) };
    Ok(vec![observations::place(path, name, names)?])
}
