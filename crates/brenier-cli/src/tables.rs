//! Tables of the command line, where `-` is standard input or standard output, as several commands read them: chosen columns, with
//! weights or as the settings of a fit select them.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use brenier::data::{self, ColumnChoice, Encoding, Format, Pick, Read, ReadOptions, Selection, Table};
use brenier::diagnose::Sample;
use brenier::{Error, FitSettings};

use crate::failure::Failure;
use crate::{observations, output};

/// Where a table goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// A file, in the format of its extension; it appears complete or not at all.
    Path(PathBuf),
    /// Standard output, as comma-separated text.
    Stdout,
}

/// As [`data::read_categories`]; the path `-` is standard input.
pub(crate) fn read<C: Into<ColumnChoice>>(
    path: &Path,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<C, Error>,
) -> Result<Read, Error> {
    match path == Path::new("-") {
        true => data::read_from(Path::new("standard input"), io::stdin(), options, choose),
        false => data::read_categories(path, options, |names| Ok(choose(names)?.into())),
    }
}

/// All columns of a table.
pub(crate) fn read_all(path: &Path) -> Result<Table, Error> {
    let everything = |names: &[String]| Ok((0..names.len()).collect::<Vec<_>>());
    Ok(read(path, &ReadOptions::default(), everything)?.table)
}

/// Writes a table; a closed pipe on standard output is an [`Error::Io`] whose source is of kind
/// [`BrokenPipe`](io::ErrorKind::BrokenPipe).
pub(crate) fn write(target: &Output, table: &Table) -> Result<(), Error> {
    match target {
        Output::Path(path) => data::write(path, table),
        Output::Stdout => {
            let writer = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            data::write_to(writer, Format::Text, table)
                .map_err(|source| Error::io(Path::new("standard output"), "write the table", source))
        }
    }
}

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
    let found = read::<Vec<usize>>(path, options, |names| {
        chosen = choose(names)?;
        if let Some(weight) = weight.filter(|weight| chosen.iter().any(|name| name == weight)) {
            return Err(Error::Columns(format!(
                "column \"{weight}\" holds the weights: leave it out of --columns"
            )));
        }
        let wanted = chosen.iter().map(String::as_str).chain(weight);
        wanted.map(|name| observations::place(path, name, names)).collect()
    })?;
    output::noticed(path, &found);
    let Some(_) = weight else {
        return Ok(Loaded { names: chosen, values: found.table.into_values(), weights: None });
    };
    let columns: Vec<usize> = (0..chosen.len()).collect();
    let weights = found.table.iter().map(|row| row[chosen.len()]).collect();
    let values = Table::select_columns(&found.table, &columns).into_values();
    Ok(Loaded { names: chosen, values, weights: Some(weights) })
}

/// The names of a table's columns; its rows are not read.
pub(crate) fn column_names(path: &Path, options: &ReadOptions) -> Result<Vec<String>, Error> {
    let mut found = None;
    let answer = read::<Vec<usize>>(path, options, |names| {
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
    let found = read(path, options, |names| {
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
    output::noticed(path, &found);
    let encoding = Encoding::learn(&found)?;
    let table = encoding.encode(path, found)?;
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
