//! Tables as several commands read them: chosen columns, with weights or as the settings of a fit select them.

use std::path::Path;

use brenier::data::{self, ColumnChoice, Encoding, Pick, ReadOptions, Selection, Table};
use brenier::diagnose::Sample;
use brenier::{Error, FitSettings};

use crate::failure::Failure;
use crate::{observations, output};

/// Columns of a table, row by row, and the weights if there are any.
pub(crate) struct Loaded {
    pub(crate) names: Vec<String>,
    pub(crate) values: Vec<f64>,
    pub(crate) weights: Option<Vec<f64>>,
}

impl Loaded {
    /// The same as a sample; errors name the table at `path`.
    pub(crate) fn sample(&self, path: &Path) -> Result<Sample<'_>, Error> {
        let named = |error: Error| Error::table(path, error.to_string());
        let sample = Sample::new(&self.values, self.names.len()).map_err(named)?;
        match &self.weights {
            None => Ok(sample),
            Some(weights) => sample.with_weights(weights).map_err(named),
        }
    }
}

/// The columns `choose` names, in that order, with `weight` apart.
pub(crate) fn load(
    path: &Path,
    weight: Option<&str>,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<Vec<String>, Error>,
) -> Result<Loaded, Error> {
    let mut chosen = Vec::new();
    let read = data::read(path, options, |names| {
        chosen = choose(names)?;
        if let Some(weight) = weight.filter(|weight| chosen.iter().any(|name| name == weight)) {
            return Err(Error::Columns(format!(
                "column \"{weight}\" holds the weights: leave it out of --columns"
            )));
        }
        let wanted = chosen.iter().map(String::as_str).chain(weight);
        wanted.map(|name| observations::place(path, name, names)).collect()
    })?;
    output::noticed(path, &read);
    let Some(_) = weight else {
        return Ok(Loaded { names: chosen, values: read.table.into_values(), weights: None });
    };
    let columns: Vec<usize> = (0..chosen.len()).collect();
    let weights = read.table.iter().map(|row| row[chosen.len()]).collect();
    let values = Table::select_columns(&read.table, &columns).into_values();
    Ok(Loaded { names: chosen, values, weights: Some(weights) })
}

/// The names of a table's columns; its rows are not read.
pub(crate) fn column_names(path: &Path, options: &ReadOptions) -> Result<Vec<String>, Error> {
    let mut found = None;
    let answer = data::read(path, options, |names| {
        found = Some(names.to_vec());
        Err(Error::Columns("only the names are wanted".to_owned()))
    });
    match (found, answer) {
        (Some(names), _) => Ok(names),
        (None, Err(error)) => Err(error),
        (None, Ok(_)) => unreachable!("a table is read by choosing among its columns"),
    }
}

/// Reads the columns that the settings select, with numbers in place of categories, and writes their names into
/// the settings: in the smaller table ranges and positions would mean other columns.
pub(crate) fn selected(
    path: &Path,
    options: &ReadOptions,
    settings: &mut FitSettings,
) -> Result<(Table, Encoding), Failure> {
    let mut columns = None;
    let read = data::read_categories(path, options, |names| {
        let (target, given) = settings.columns(names)?;
        let categorical = match &settings.categorical {
            Some(columns) => columns.resolve(names)?,
            None => Vec::new(),
        };
        if let Some(&column) = categorical.iter().find(|column| !given.contains(column)) {
            let name = &names[column];
            let why = match target.contains(&column) {
                true => format!(
                    "{name} is a target column, and categories have no density: only given columns may be"
                ),
                false => {
                    format!("{name} is not among the given columns: name it there too, or leave it out here")
                }
            };
            return Err(Error::setting("categorical", why));
        }
        let name = |columns: &[usize]| columns.iter().map(|&c| names[c].clone()).collect::<Vec<_>>();
        columns = Some((settings.named(names)?, name(&target), name(&categorical)));
        Ok(ColumnChoice { columns: [target, given].concat(), categorical })
    })
    .map_err(|error| match error {
        Error::Columns(problem) => Error::table(path, problem),
        other => other,
    })?;
    output::noticed(path, &read);
    let encoding = Encoding::learn(&read)?;
    let table = encoding.encode(path, read)?;
    let (named, target, categorical) = columns.unwrap_or_default();
    *settings = named;
    let pick = |names: &[String]| Selection::Columns(names.iter().cloned().map(Pick::Name).collect());
    let given = &table.names()[target.len()..];
    settings.given = (!given.is_empty()).then(|| pick(given));
    settings.categorical = (!categorical.is_empty()).then(|| pick(&categorical));
    Ok((table, encoding))
}

/// `name`, with underscores after it if a target column already has the name.
pub(crate) fn free_name(name: &str, taken: &[String]) -> String {
    let mut name = name.to_owned();
    while taken.contains(&name) {
        name.push('_');
    }
    name
}
