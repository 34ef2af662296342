//! `brenier plot curves`: columns of a table or of a training log against another.

use std::path::Path;

use brenier::Error;
use brenier::data::ReadOptions;
use brenier::report::{Curve, CurvePlot};
use serde_json::Value;

use super::{check, size, texts, write};
use crate::failure::Failure;
use crate::output;
use crate::plot_args::CurvesArguments;
use crate::tables::load;

/// Points up to which each is marked.
const MARKED: usize = 30;

pub(super) fn run(arguments: &CurvesArguments) -> Result<(), Failure> {
    check(&arguments.picture)?;
    let count = arguments.y.len();
    if !arguments.error.is_empty() && arguments.error.len() != count {
        return Err(Failure::Usage(format!(
            "--error: name one column for each of the {count} of --y, not {}",
            arguments.error.len()
        )));
    }
    let labels = texts("--labels", &arguments.labels, &arguments.y)?;
    let names: Vec<String> =
        std::iter::once(&arguments.x).chain(&arguments.y).chain(&arguments.error).cloned().collect();
    let values = read(&arguments.table, &arguments.tables.options(), &names)?;
    let column =
        |place: usize| -> Vec<f64> { values.iter().skip(place).step_by(names.len()).copied().collect() };

    let x_name = arguments.x_name.clone().unwrap_or_else(|| arguments.x.clone());
    let only = if count == 1 { labels[0].clone() } else { String::new() };
    let mut plot = CurvePlot::new(x_name, arguments.y_name.clone().unwrap_or(only));
    if let Some([x, y]) = &arguments.units {
        plot = plot.units(x, y);
    }
    if arguments.log_x {
        plot = plot.log_x();
    }
    if arguments.log_y {
        plot = plot.log_y();
    }
    if let Some([low, high]) = arguments.x_limits {
        plot = plot.limits_x(low, high);
    }
    if let Some([low, high]) = arguments.y_limits {
        plot = plot.limits_y(low, high);
    }
    let x = column(0);
    for (i, label) in labels.iter().enumerate() {
        // A single curve that the axis names needs no legend.
        let alone = count == 1 && arguments.y_name.is_none() && arguments.line.is_empty();
        let mut curve = Curve::line(if alone { "" } else { label }, x.clone(), column(1 + i));
        if x.len() <= MARKED {
            curve = curve.with_markers();
        }
        if !arguments.error.is_empty() {
            curve = curve.errors(&column(1 + count + i));
        }
        plot = plot.curve(curve);
    }
    for text in &arguments.line {
        let parts =
            text.rsplit_once('=').and_then(|(label, value)| Some((label, value.trim().parse().ok()?)));
        let Some((label, value)) = parts else {
            return Err(Failure::Usage(format!("--line {text}: write LABEL=VALUE, the value a number")));
        };
        plot = plot.horizontal(label.trim(), value);
    }
    let svg = plot
        .to_svg(size(&arguments.picture, 440, 300))
        .map_err(|error| Error::table(&arguments.table, error.to_string()))?;
    write(&arguments.picture, &svg)
}

/// The columns `names`, row by row, of a table or of the events of a log that have them all.
fn read(path: &Path, options: &ReadOptions, names: &[String]) -> Result<Vec<f64>, Failure> {
    if path.extension().is_none_or(|ending| ending != "jsonl") {
        // The same column may be asked for twice.
        let mut distinct: Vec<String> = Vec::new();
        names.iter().for_each(|name| {
            if !distinct.contains(name) {
                distinct.push(name.clone());
            }
        });
        let table = load(path, None, options, |_| Ok(distinct.clone()))?;
        let places: Vec<usize> =
            names.iter().filter_map(|name| distinct.iter().position(|own| own == name)).collect();
        let rows = table.values.chunks_exact(distinct.len());
        return Ok(rows.flat_map(|row| places.iter().map(move |&place| row[place])).collect());
    }
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, "read the log", source))?;
    let mut values = Vec::new();
    let mut fields: Vec<String> = Vec::new();
    for (line, content) in text.lines().enumerate().filter(|(_, content)| !content.trim().is_empty()) {
        let Ok(Value::Object(event)) = serde_json::from_str(content) else {
            return Err(Error::table(path, format!("line {} is no JSON object", line + 1)).into());
        };
        if event.get("event").and_then(Value::as_str) == Some("block") && !values.is_empty() {
            // Its steps begin again.
            values.clear();
            output::note(&format!("{}: the last block of the joint fit is drawn", path.display()));
        }
        let row: Option<Vec<f64>> = names.iter().map(|name| event.get(name)?.as_f64()).collect();
        values.extend(row.into_iter().flatten());
        for (field, value) in &event {
            if value.is_number() && !fields.contains(field) {
                fields.push(field.clone());
            }
        }
    }
    if values.is_empty() {
        let problem =
            format!("no line has numbers for {}; there are {}", names.join(", "), fields.join(", "));
        return Err(Error::table(path, problem).into());
    }
    Ok(values)
}
