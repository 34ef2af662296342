//! `brenier compare`: whether two tables hold draws from one distribution.

use std::fmt::Write;
use std::path::Path;

use brenier::Error;
use brenier::check::probability;
use brenier::data::Selection;
use brenier::diagnose::{C2stSettings, CompareSettings, Comparison, Sample, compare_until};
use brenier::report::{DOTS_PER_INCH, PairPlot, PictureFormat, PictureSize, write_picture};
use serde::Serialize;

use crate::compare_args::CompareArguments;
use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::pictures::{PLOT_COLUMNS, pair_plot_side};
use crate::tables::{Loaded, Output, load};
use crate::{observations, output, screen};

pub(crate) fn run(arguments: &CompareArguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.plot {
        PictureFormat::of(path)?;
        output::check_writable(path)?;
    }
    output::check_json(arguments.json.json.as_deref())?;
    let (first, second) = read(arguments)?;
    let settings = CompareSettings {
        standardise: !arguments.raw,
        bandwidth: arguments.bandwidth,
        permutations: arguments.permutations,
        seed: arguments.seed,
        ..CompareSettings::default()
    };
    let samples = [first.sample(&arguments.first)?, second.sample(&arguments.second)?];
    let least = C2stSettings::default().folds;
    for (path, sample) in [&arguments.first, &arguments.second].into_iter().zip(&samples) {
        if sample.rows() < least {
            let problem = format!(
                "has {}; comparing needs at least {least} in each table",
                output::count(sample.rows(), "row")
            );
            return Err(Error::table(path, problem).into());
        }
    }
    let stop = stop_without_result()?;
    let waiting = screen::waiting("comparing");
    let found = compare_until(&samples[0], &samples[1], &settings, &stop)?;
    drop(waiting);
    let names = &first.names;
    if let Some(path) = &arguments.plot {
        write_picture(path, &picture(arguments, names, &samples)?, DOTS_PER_INCH)?;
        output::wrote("picture", &Output::Path(path.clone()));
    }
    output::result_or_json(
        arguments.json.json.as_deref(),
        || json(arguments, names, &settings, &found),
        || table(arguments, names, &settings, &found),
    )
}

/// Reads both tables: the columns asked for, or all that both have except weights.
fn read(arguments: &CompareArguments) -> Result<(Loaded, Loaded), Failure> {
    let stdin = Path::new("-");
    if arguments.second == stdin {
        return Err(Failure::Usage(
            "only the first of the two tables can come from standard input: give a file for the second"
                .to_owned(),
        ));
    }
    let weights = [&arguments.weights_a, &arguments.weights_b]
        .map(|own| own.as_ref().or(arguments.weights.as_ref()).map(String::as_str));
    let options = arguments.tables.options();
    let nameless = [&arguments.first, &arguments.second].map(|path| observations::nameless(path, &options));
    let mut first = None;
    // The first table is read while the second waits behind its header: a pipe can be opened only once.
    let second = load(&arguments.second, weights[1], &options, |other| {
        let loaded = load(&arguments.first, weights[0], &options, |names| {
            shared(arguments, [names, other], weights, nameless != [false, false])
        })?;
        let free: Vec<&String> = other.iter().filter(|name| Some(name.as_str()) != weights[1]).collect();
        let chosen = match nameless != [false, false] && free.len() == loaded.names.len() {
            true => free.into_iter().cloned().collect(),
            false => loaded.names.clone(),
        };
        first = Some(loaded);
        Ok(chosen)
    })?;
    Ok((first.expect("the second table was read after the first"), second))
}

/// The columns of the first table to compare, by the names of both.
fn shared(
    arguments: &CompareArguments,
    [first, second]: [&[String]; 2],
    weights: [Option<&str>; 2],
    in_order: bool,
) -> Result<Vec<String>, Error> {
    let free = |names: &[String], weight: Option<&str>| -> Vec<String> {
        names.iter().filter(|name| Some(name.as_str()) != weight).cloned().collect()
    };
    let (own, theirs) = (free(first, weights[0]), free(second, weights[1]));
    if let Selection::Columns(_) = &arguments.columns {
        let places = arguments.columns.resolve(first);
        let places = places.map_err(|error| Error::table(&arguments.first, error.to_string()))?;
        return Ok(places.into_iter().map(|place| first[place].clone()).collect());
    }
    // Without names of its own a table is taken column by column.
    if in_order && own.len() == theirs.len() {
        return Ok(own);
    }
    let shared: Vec<String> = own.iter().filter(|name| theirs.contains(name)).cloned().collect();
    if shared.is_empty() {
        return Err(Error::Columns(format!(
            "{} and {} share no column: name the columns to compare alike in both",
            arguments.first.display(),
            arguments.second.display()
        )));
    }
    for (path, names) in [(&arguments.first, &own), (&arguments.second, &theirs)] {
        let left: Vec<&str> =
            names.iter().filter(|name| !shared.contains(name)).map(String::as_str).collect();
        if !left.is_empty() {
            output::warning(&format!(
                "{}: not compared, for the other table has no such column: {}",
                path.display(),
                left.join(", ")
            ));
        }
    }
    Ok(shared)
}

/// Everything found, and what it was found in.
#[derive(Serialize)]
struct Document<'a> {
    first: String,
    second: String,
    columns: &'a [String],
    settings: &'a CompareSettings,
    p_value: f64,
    comparison: &'a Comparison,
}

fn json(
    arguments: &CompareArguments,
    names: &[String],
    settings: &CompareSettings,
    found: &Comparison,
) -> String {
    let document = Document {
        first: arguments.first.display().to_string(),
        second: arguments.second.display().to_string(),
        columns: names,
        settings,
        p_value: found.p_value(),
        comparison: found,
    };
    serde_json::to_string_pretty(&document).expect("plain numbers and names") + "\n"
}

fn table(
    arguments: &CompareArguments,
    names: &[String],
    settings: &CompareSettings,
    found: &Comparison,
) -> String {
    let mut text = String::new();
    for (letter, path, i) in [("A", &arguments.first, 0), ("B", &arguments.second, 1)] {
        let rows = found.rows[i];
        let effective = found.effective_rows[i];
        let weighted = if effective < rows as f64 - 1e-6 * rows as f64 {
            format!(", {effective:.1} effective by their weights")
        } else {
            String::new()
        };
        let _ = writeln!(text, "{letter}  {}: {rows} rows{weighted}", path.display());
    }
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("column".len());
    let _ = writeln!(
        text,
        "\n{:width$}  {:>12} {:>12}  {:>12} {:>12}  {:>10} {:>12}",
        "column", "mean A", "mean B", "sd A", "sd B", "shift/sd", "W1"
    );
    for (name, column) in names.iter().zip(&found.columns) {
        let shift = column.shift.map_or_else(|| "-".to_owned(), |shift| format!("{shift:.4}"));
        let _ = writeln!(
            text,
            "{name:width$}  {:>12} {:>12}  {:>12} {:>12}  {shift:>10} {:>12}",
            number(column.mean[0]),
            number(column.mean[1]),
            number(column.deviation[0]),
            number(column.deviation[1]),
            number(column.wasserstein),
        );
    }
    let units = if settings.standardise { "standardised columns" } else { "the columns' own units" };
    let (c2st, test) = (&found.c2st, &found.mmd_test);
    let _ = write!(
        text,
        "\nC2ST accuracy       {:.4}   {:9}   0.5: cannot be told apart, 1: never alike; {} and {} rows\n\
         MMD                 {:.6}   MMD² {:.4e}, bandwidth {}, {units}\n\
         MMD test            {:.6}   {:9}   {} permutations, {} and {} rows\n\
         sliced Wasserstein  {:.6}   ± {:.6} for {} directions, order 2, {units}\n\n",
        c2st.accuracy,
        probability(c2st.p_value),
        c2st.rows[0],
        c2st.rows[1],
        found.mmd.root,
        found.mmd.squared,
        number(found.mmd.bandwidth),
        test.mmd.root,
        probability(test.p_value),
        settings.permutations,
        test.rows[0],
        test.rows[1],
        found.sliced_wasserstein.distance,
        found.sliced_wasserstein.standard_error,
        if names.len() == 1 { 1 } else { settings.directions },
    );
    let p = found.p_value();
    text.push_str(&if p <= 0.05 {
        format!("The samples differ ({}, both tests taken together).\n", probability(p))
    } else {
        format!("No difference found ({}, both tests taken together).\n", probability(p))
    });
    text
}

/// Six significant digits, in powers of ten only where that is shorter.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-4..1e7).contains(&size) {
        return format!("{value:.4e}");
    }
    let before = if size >= 1.0 { size.log10() as usize } else { 0 };
    format!("{value:.*}", 5_usize.saturating_sub(before))
}

fn picture(
    arguments: &CompareArguments,
    names: &[String],
    samples: &[Sample<'_>; 2],
) -> Result<String, Error> {
    if names.len() > PLOT_COLUMNS {
        output::warning(&format!(
            "--plot: the first {PLOT_COLUMNS} of {} columns are drawn; choose others with --columns",
            names.len()
        ));
    }
    let shown = names.len().min(PLOT_COLUMNS);
    let mut plot = PairPlot::new(&names[..shown]);
    for (path, sample) in [&arguments.first, &arguments.second].into_iter().zip(samples) {
        let rows = sample.values().chunks_exact(names.len());
        let values = rows.flat_map(|row| &row[..shown]).copied().collect();
        let name = path.file_name().map_or_else(|| "standard input".into(), |name| name.to_string_lossy());
        plot = match sample.is_weighted() {
            true => plot.weighted_layer(name, values, (0..sample.rows()).map(|i| sample.weight(i)).collect()),
            false => plot.layer(name, values),
        };
    }
    let side = pair_plot_side(shown) as u32;
    plot.to_svg(PictureSize { width: side, height: side })
}
