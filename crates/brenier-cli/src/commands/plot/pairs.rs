//! `brenier plot pairs`: the pair plot of one or more tables.

use std::path::Path;

use brenier::Error;
use brenier::data::Selection;
use brenier::report::PairPlot;

use super::{check, point, size, texts, write};
use crate::failure::Failure;
use crate::output;
use crate::pictures::{PLOT_COLUMNS, pair_plot_side};
use crate::plot_args::PairsArguments;
use crate::tables::{Loaded, column_names, load};

/// The column in which `sample` says which observation a draw belongs to.
const OBSERVATION: &str = "observation";

pub(super) fn run(arguments: &PairsArguments) -> Result<(), Failure> {
    check(&arguments.picture)?;
    if arguments.tables.iter().any(|path| path == Path::new("-")) {
        return Err(Failure::Usage("plot reads tables from files, not from standard input".to_owned()));
    }
    if let Some(pipe) = arguments.tables.iter().find(|path| path.exists() && !path.is_file()) {
        return Err(Failure::Usage(format!(
            "{}: plot pairs reads its tables twice, which a pipe does not allow: save it as a file first",
            pipe.display()
        )));
    }
    let options = arguments.reading.options();
    let have = arguments
        .tables
        .iter()
        .map(|path| column_names(path, &options))
        .collect::<Result<Vec<_>, Error>>()?;
    let columns = columns(arguments, &have)?;
    let weighted: Vec<bool> =
        have.iter().map(|names| arguments.weights.iter().any(|w| names.contains(w))).collect();
    if let (Some(weights), false) = (&arguments.weights, weighted.contains(&true)) {
        return Err(Failure::Usage(format!("--weights: there is no column \"{weights}\" in any table")));
    }
    let stems: Vec<String> = arguments
        .tables
        .iter()
        .map(|path| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned())
        .collect();
    let labels = texts("--labels", &arguments.labels, &stems)?;
    let mut plot = PairPlot::new(texts("--names", &arguments.names, &columns)?);
    if !arguments.units.is_empty() {
        plot = plot.units(texts("--units", &arguments.units, &columns)?);
    }
    if let Some(log) = &arguments.log_columns {
        plot = plot.log(log.resolve(&columns)?);
    }
    for (flag, text) in [("--truth", &arguments.truth), ("--mode", &arguments.mode)] {
        let Some(text) = text else { continue };
        let values = point(flag, text, &columns, &options)?;
        plot = if flag == "--truth" { plot.truth(values) } else { plot.mode(values) };
    }
    for (i, path) in arguments.tables.iter().enumerate() {
        if arguments.weights.is_some() && !weighted[i] {
            output::note(&format!("{}: no column of weights, so its rows count alike", path.display()));
        }
        let numbered =
            have[i].iter().any(|name| name == OBSERVATION) && !columns.iter().any(|name| name == OBSERVATION);
        let weights = arguments.weights.as_deref().filter(|_| weighted[i]);
        let mut wanted = columns.clone();
        wanted.extend(numbered.then(|| OBSERVATION.to_owned()));
        let table = load(path, weights, &options, |_| Ok(wanted))?;
        let Loaded { values, weights, .. } = match numbered {
            true => one_observation(path, table, arguments.observation)?,
            false => table,
        };
        let named = |error: Error| Failure::Library(Error::table(path, error.to_string()));
        brenier::diagnose::Sample::new(&values, columns.len()).map_err(named)?;
        plot = match weights {
            Some(weights) => plot.weighted_layer(&labels[i], values, weights),
            None => plot.layer(&labels[i], values),
        };
    }
    let side = pair_plot_side(columns.len());
    write(&arguments.picture, &plot.to_svg(size(&arguments.picture, side, side))?)
}

/// The columns asked for, or all that the tables share except weights and the number of the observation.
fn columns(arguments: &PairsArguments, have: &[Vec<String>]) -> Result<Vec<String>, Failure> {
    let first = &have[0];
    let mut columns: Vec<String> = match &arguments.columns {
        Selection::Columns(_) => {
            let places = arguments.columns.resolve(first);
            let places = places.map_err(|error| Error::table(&arguments.tables[0], error.to_string()))?;
            places.into_iter().map(|place| first[place].clone()).collect()
        }
        Selection::Rest => first
            .iter()
            .filter(|name| Some(*name) != arguments.weights.as_ref() && *name != OBSERVATION)
            .filter(|name| have.iter().all(|names| names.contains(name)))
            .cloned()
            .collect(),
    };
    if columns.is_empty() {
        return Err(Failure::Usage(match have.len() {
            1 => format!("{}: there is no column to draw", arguments.tables[0].display()),
            _ => "the tables share no column: name the columns to draw alike in all".to_owned(),
        }));
    }
    if columns.len() > PLOT_COLUMNS {
        output::warning(&format!(
            "the first {PLOT_COLUMNS} of {} columns are drawn; choose others with --columns",
            columns.len()
        ));
        columns.truncate(PLOT_COLUMNS);
    }
    Ok(columns)
}

/// The rows of one observation, whose number is in the last column, without that column.
fn one_observation(path: &Path, table: Loaded, wanted: Option<usize>) -> Result<Loaded, Failure> {
    let width = table.names.len();
    let number = |row: &[f64]| row[width - 1];
    let first = table.values.first_chunk::<1>().map_or(1.0, |_| number(&table.values[..width]));
    let wanted = match wanted {
        Some(wanted) => wanted as f64,
        None if table.values.chunks_exact(width).all(|row| number(row) == first) => first,
        None => {
            return Err(Failure::Usage(format!(
                "{}: its draws belong to several observations; choose one with --observation N",
                path.display()
            )));
        }
    };
    let rows: Vec<usize> = (0..table.values.len() / width)
        .filter(|&i| number(&table.values[i * width..][..width]) == wanted)
        .collect();
    if rows.is_empty() {
        return Err(Failure::Usage(format!("{}: there is no observation {wanted}", path.display())));
    }
    Ok(Loaded {
        names: table.names[..width - 1].to_vec(),
        values: rows.iter().flat_map(|&i| &table.values[i * width..][..width - 1]).copied().collect(),
        weights: table.weights.map(|weights| rows.iter().map(|&i| weights[i]).collect()),
    })
}
