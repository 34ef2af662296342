//! `brenier plot`: pictures of tables and of what a posterior predicts.

mod curves;
mod pairs;
mod predictive;

use std::path::Path;

use brenier::data::ReadOptions;
use brenier::report::{PictureFormat, PictureSize, write_picture};

use crate::failure::Failure;
use crate::plot_args::{PictureArguments, PlotCommand};
use crate::tables::{Output, load};
use crate::{observations, output};

pub(crate) fn run(command: &PlotCommand) -> Result<(), Failure> {
    match command {
        PlotCommand::Pairs(arguments) => pairs::run(arguments),
        PlotCommand::Predictive(arguments) => predictive::run(arguments),
        PlotCommand::Curves(arguments) => curves::run(arguments),
    }
}

/// Refuses, before anything is read, what could not be written.
fn check(picture: &PictureArguments) -> Result<(), Failure> {
    if !(1.0..=10_000.0).contains(&picture.dpi) {
        return Err(Failure::Usage(format!("--dpi {}: ask for 1 to 10000 dots an inch", picture.dpi)));
    }
    if picture.size.iter().flatten().any(|side| !(50..=20_000).contains(side)) {
        return Err(Failure::Usage("--size: ask for 50 to 20000 points each way".to_owned()));
    }
    PictureFormat::of(&picture.out)?;
    Ok(output::check_writable(&picture.out)?)
}

/// The size asked for, or the usual one.
fn size(picture: &PictureArguments, width: usize, height: usize) -> PictureSize {
    match picture.size {
        Some([width, height]) => PictureSize { width, height },
        None => PictureSize { width: width as u32, height: height as u32 },
    }
}

fn write(picture: &PictureArguments, svg: &str) -> Result<(), Failure> {
    write_picture(&picture.out, svg, picture.dpi)?;
    output::wrote("picture", &Output::Path(picture.out.clone()));
    Ok(())
}

/// As many `given` texts as there are `own` names, or these names.
fn texts(flag: &str, given: &[String], own: &[String]) -> Result<Vec<String>, Failure> {
    match given.len() {
        0 => Ok(own.to_vec()),
        count if count == own.len() => Ok(given.to_vec()),
        count => Err(Failure::Usage(format!(
            "{flag}: {count} given for {}: {}",
            own.len(),
            own.iter().map(String::as_str).take(20).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// One value for each of `names`: from `name=value,…` or from a table of one row.
fn point(flag: &str, text: &str, names: &[String], options: &ReadOptions) -> Result<Vec<f64>, Failure> {
    let path = Path::new(text);
    if text.contains('=') && !path.exists() {
        return observations::assignments(flag, "column", &[text.to_owned()], names);
    }
    if !path.exists() {
        return Err(Failure::Usage(format!(
            "{flag} {text}: there is no such table; write name=value,… or name a table of one row"
        )));
    }
    let table = load(path, None, options, |_| Ok(names.to_vec()))?;
    if table.values.len() != names.len() {
        let rows = table.values.len() / names.len().max(1);
        return Err(Failure::Usage(format!("{flag} {text}: the table must have one row, it has {rows}")));
    }
    Ok(table.values)
}
