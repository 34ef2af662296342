//! The values y to condition on, from a table (`--observed`) or from the command line (`--at`).

use std::path::{Path, PathBuf};

use brenier::data::{ColumnChoice, Encoding, Format, Pick, ReadOptions, Selection, Table, short_name};
use brenier::{At, Distance, Error, Posterior};

use crate::failure::Failure;
use crate::posterior_args::ObservationArguments;
use crate::{output, tables};

/// Rows of given values in the model's order.
pub(crate) struct Observations {
    /// One row after the other.
    pub(crate) values: Vec<f64>,
    /// How many rows; 1 for an unconditional model.
    pub(crate) count: usize,
    /// The table they come from, if any.
    source: Option<PathBuf>,
}

impl Observations {
    /// The model at these values.
    pub(crate) fn place<'a>(&'a self, model: &'a Posterior) -> At<'a> {
        model.at_rows(&self.values, self.count)
    }

    /// An error about these values, with the table or flag that they come from.
    pub(crate) fn failed(&self, error: Error) -> Failure {
        match (&self.source, error) {
            (Some(path), error) => Failure::from(error).of_table(path),
            (None, Error::Domain(problem)) => {
                Failure::Usage(format!("--at: {}", problem.strip_prefix("row 1: ").unwrap_or(&problem)))
            }
            (None, error) => error.into(),
        }
    }
}

/// Observations that are warned of one by one.
const NAMED: usize = 3;

/// Reads what the flags name, checks it against the model, and warns of observations unlike the training data.
pub(crate) fn read(
    model: &Posterior,
    flags: &ObservationArguments,
    options: &ReadOptions,
) -> Result<Observations, Failure> {
    let observed = gather(model, flags, options)?;
    warn_of_extremes(&distances(model, &observed)?);
    Ok(observed)
}

/// How far each observation lies from the training data; empty where the model cannot tell.
pub(crate) fn distances(model: &Posterior, observed: &Observations) -> Result<Vec<Distance>, Failure> {
    if model.given_names().is_empty() {
        return Ok(Vec::new());
    }
    Ok(model.distances(&observed.values, observed.count)?.unwrap_or_default())
}

fn warn_of_extremes(distances: &[Distance]) {
    // Of very many rows some are extreme by chance.
    let extreme: Vec<(usize, &Distance)> =
        distances.iter().enumerate().filter(|(_, distance)| distance.is_extreme()).collect();
    if extreme.len() <= distances.len() / 200 {
        return;
    }
    for (row, distance) in extreme.iter().take(NAMED) {
        output::warning(&format!(
            "observation {} lies farther out than {:.2} % of the training distribution ({} is {} standard \
             deviations from its mean): the answer there is extrapolation",
            row + 1,
            // Never 100.00 %.
            (100.0 * distance.percentile).min(99.99),
            distance.column,
            match distance.deviations.abs() {
                few if few < 1e3 => format!("{few:.1}"),
                many => format!("{many:.0e}"),
            }
        ));
    }
    if extreme.len() > NAMED {
        output::warning(&format!("… and so do {} more observations", extreme.len() - NAMED));
    }
}

fn gather(
    model: &Posterior,
    flags: &ObservationArguments,
    options: &ReadOptions,
) -> Result<Observations, Failure> {
    let names = model.given_names();
    let raw = model.encoding().raw_names(names);
    match (&flags.observed, flags.at.is_empty()) {
        _ if names.is_empty() => {
            if flags.observed.is_some() || !flags.at.is_empty() {
                return Err(Failure::Usage(
                    "the model is unconditional: leave out --observed and --at".to_owned(),
                ));
            }
            Ok(Observations { values: Vec::new(), count: 1, source: None })
        }
        (Some(path), _) => {
            let table = columns(path, options, names, model.encoding())?;
            Ok(Observations { count: table.rows(), values: table.into_values(), source: Some(path.clone()) })
        }
        (None, false) => {
            let entries = encoded(&flags.at, model.encoding())?;
            let values = assignments("--at", "given column", &entries, names)?;
            Ok(Observations { values, count: 1, source: None })
        }
        (None, true) => Err(Failure::Usage(format!(
            "the model is conditional on {}: say at which values, with --observed TABLE or --at {}",
            listed(&raw, ", "),
            listed(&raw.iter().map(|name| format!("{}=…", quoted(name))).collect::<Vec<_>>(), ",")
        ))),
    }
}

/// The place of the column `name` among `names`, those of the table at `path`.
pub(crate) fn place(path: &Path, name: &str, names: &[String]) -> Result<usize, Error> {
    let places = Selection::Columns(vec![Pick::Name(name.to_owned())]).resolve(names);
    places.map(|places| places[0]).map_err(|error| Error::table(path, error.to_string()))
}

/// Entries of `--at` with those of categories, as `colour=red`, in the model's columns: `colour=blue=0`,
/// `colour=red=1`.
fn encoded(entries: &[String], encoding: &Encoding) -> Result<Vec<String>, Failure> {
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries.iter().flat_map(|text| split(text)) {
        let category = entry
            .split_once('=')
            .and_then(|(name, text)| Some((encoding.column(plain(name).as_ref())?, text)))
            .filter(|(column, _)| !column.names().any(|own| entry.starts_with(&format!("{own}="))));
        let Some((column, text)) = category else {
            found.push(entry.to_owned());
            continue;
        };
        let text = unquoted(text);
        let level = column
            .level(text)
            .ok_or_else(|| Failure::Usage(format!("--at {entry}: {}", column.unknown(text))))?;
        found.extend(
            column
                .names()
                .enumerate()
                .map(|(place, name)| format!("{}={}", quoted(&name), u8::from(place == level))),
        );
    }
    let given = |name: String| {
        let spelled = [format!("{name}="), format!("{}=", quoted(&name))];
        found.iter().any(|entry| spelled.iter().any(|own| entry.starts_with(own)))
    };
    match encoding.columns().iter().find(|column| !column.names().any(given)) {
        Some(column) => Err(Failure::Usage(format!(
            "--at: no value for {}; it is one of {}",
            column.name,
            column.levels.join(", ")
        ))),
        None => Ok(found),
    }
}

/// A value without quotation marks around it, which keep its commas.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// A column's name without the quotation marks of a selection.
fn plain(text: &str) -> String {
    match text.trim().parse() {
        Ok(Selection::Columns(picks)) => match picks.as_slice() {
            [Pick::Name(name)] => name.clone(),
            _ => text.trim().to_owned(),
        },
        _ => text.trim().to_owned(),
    }
}

/// Whether a table is an array of NumPy, whose columns have no names.
pub(crate) fn nameless(path: &Path, options: &ReadOptions) -> bool {
    matches!(options.format.map_or_else(|| Format::of(path), Ok), Ok(Format::Npy))
}

/// The columns `names` of the table at `path`, in this order; its other columns are not read. Those behind which
/// there are categories are encoded.
///
/// A `.npy` file has no names: one with exactly as many columns is taken in order.
pub(crate) fn columns(
    path: &Path,
    options: &ReadOptions,
    names: &[String],
    encoding: &Encoding,
) -> Result<Table, Error> {
    let nameless = nameless(path, options);
    let mut in_order = false;
    let raw = encoding.raw_names(names);
    let read = tables::read(path, options, |have| {
        let place = |name: &String| have.iter().position(|own| own == name);
        let mut choice = ColumnChoice::default();
        for (position, name) in raw.iter().enumerate() {
            let category = encoding.column(name);
            // Draws of a model hold categories as its own columns of numbers.
            let encoded = || category.and_then(|column| column.names().map(|own| place(&own)).collect());
            if let Some(place) = place(name) {
                choice.columns.push(place);
                choice.categorical.extend(category.map(|_| place));
            } else if let Some(places) = encoded() {
                let places: Vec<usize> = places;
                choice.columns.extend(places);
            } else if nameless && have.len() == raw.len() {
                in_order = true;
                let category = |&place: &usize| encoding.column(&raw[place]).is_some();
                let columns: Vec<usize> = (0..raw.len()).collect();
                return Ok(ColumnChoice {
                    categorical: columns.iter().copied().filter(category).collect(),
                    columns,
                });
            } else {
                let (name, list) = (short_name(&raw[position]), listed(have, ", "));
                return Err(Error::table(
                    path,
                    format!("there is no column \"{name}\", which the model needs; it has {list}"),
                ));
            }
        }
        Ok(choice)
    })?;
    if in_order {
        output::note(&format!("{}: columns taken in order as {}", path.display(), listed(&raw, ", ")));
    }
    output::noticed(path, &read);
    encoding.encode(path, read)
}

/// At most twenty `names`, cut where they are very long.
pub(crate) fn listed(names: &[String], between: &str) -> String {
    const FEW: usize = 20;
    let mut list = names.iter().take(FEW).map(|name| short_name(name)).collect::<Vec<_>>().join(between);
    if names.len() > FEW {
        list.push_str(&format!("{between}… ({} in all)", names.len()));
    }
    list
}

/// A name as a selection has it.
fn quoted(name: &str) -> String {
    Pick::Name(name.to_owned()).to_string()
}

/// `name=value` entries of `flag` in any order, each of `names` exactly once; `kind` says what these are.
///
/// The names are written as in a [`Selection`], with quotation marks, positions and ranges.
pub(crate) fn assignments(
    flag: &str,
    kind: &str,
    entries: &[String],
    names: &[String],
) -> Result<Vec<f64>, Failure> {
    let mut values: Vec<Option<f64>> = vec![None; names.len()];
    for entry in entries.iter().flat_map(|text| split(text)) {
        let wrong = |why: String| Failure::Usage(format!("{flag} {entry}: {why}"));
        let (name, value) = entry
            .rsplit_once('=')
            .ok_or_else(|| wrong("write name=value, with commas between entries".to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let places = match names.iter().position(|own| own == name) {
            Some(place) => vec![place],
            None => match name.parse::<Selection>().and_then(|selection| selection.resolve(names)) {
                Ok(places) => places,
                Err(error) => {
                    return Err(wrong(error.to_string().replacen("no column", &format!("no {kind}"), 1)));
                }
            },
        };
        let number: f64 = value
            .parse()
            .map_err(|_| wrong(format!("\"{value}\" is not a number (column \"{}\")", short_name(name))))?;
        if !number.is_finite() {
            return Err(wrong(format!("the value of \"{}\" must be finite", short_name(name))));
        }
        for place in places {
            if values[place].replace(number).is_some() {
                return Err(wrong(format!("\"{}\" is given twice", short_name(&names[place]))));
            }
        }
    }
    let missing: Vec<String> = names
        .iter()
        .zip(&values)
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    if !missing.is_empty() {
        return Err(Failure::Usage(format!(
            "{flag}: no value for {}; every {kind} needs one",
            listed(&missing, ", ")
        )));
    }
    Ok(values.into_iter().flatten().collect())
}

/// The parts of `text` between the commas that are not in quotation marks.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(|letter| {
        inside ^= letter == '"';
        letter == ',' && !inside
    })
    .collect()
}
