//! Columns of categories as numbers: one column of zeros and ones for each category (one-hot).
//!
//! The categories are learned from the table that is fitted and belong to the model: tables that it meets later are
//! encoded in the same way, and a category that it has not met is an error.

#[cfg(feature = "files")]
use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::table::Table;
use crate::{Error, Result};

/// Different texts of a column of categories; more are taken for a column of identifiers.
#[cfg(feature = "files")]
pub(crate) const MOST_LEVELS: usize = 1000;

/// A table read, and what the reader noticed.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The chosen columns, in the order chosen; at least one row.
    pub table: Table,
    /// Rows left out because of missing cells; zero with `Missing::Fail`.
    pub dropped_rows: usize,
    /// Things the user may want to know, one sentence each.
    pub warnings: Vec<String>,
    /// For each column of the table its categories, if it was read as such; the table then holds their positions.
    pub levels: Vec<Option<Levels>>,
}

impl Read {
    /// What the reader of the table called `name` noticed, with the rows that it left out: one sentence each.
    pub fn notices(&self, name: &Path) -> Vec<String> {
        let dropped = match self.dropped_rows {
            0 => None,
            1 => Some(format!("{}: 1 row with missing values left out", name.display())),
            rows => Some(format!("{}: {rows} rows with missing values left out", name.display())),
        };
        self.warnings.iter().cloned().chain(dropped).collect()
    }
}

/// The different texts of a column that was read as categories; the table holds their positions in `names`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Levels {
    /// The texts, in the order in which they were met.
    pub names: Vec<String>,
    /// The row of the file, from 1, in which each was met first.
    pub rows: Vec<usize>,
    #[cfg(feature = "files")]
    places: HashMap<String, usize>,
}

#[cfg(feature = "files")]
impl Levels {
    /// The position of `text`, which `row` holds.
    pub(super) fn place(&mut self, text: &str, row: usize) -> Option<f64> {
        if let Some(&place) = self.places.get(text) {
            return Some(place as f64);
        }
        if self.names.len() == MOST_LEVELS {
            return None;
        }
        let place = self.names.len();
        self.names.push(text.to_owned());
        self.rows.push(row);
        self.places.insert(text.to_owned(), place);
        Some(place as f64)
    }
}

/// The text of a number that serves as a category: 1 and 1.0 are the same.
pub(crate) fn number_text(value: f64) -> String {
    let mut text = format!("{:?}", value + 0.0);
    if text.ends_with(".0") {
        text.truncate(text.len() - 2);
    }
    text
}

/// A column of categories and what they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CategoricalColumn {
    /// The column's name in the user's tables.
    pub name: String,
    /// Its categories, sorted; numbers as their shortest decimal.
    pub levels: Vec<String>,
}

impl CategoricalColumn {
    /// The names of the columns that take its place, as `colour=red`.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.levels.iter().map(|level| format!("{}={level}", self.name))
    }

    /// The position of the category that a user wrote as `text`.
    pub fn level(&self, text: &str) -> Option<usize> {
        let text = text.trim();
        let number = text.parse::<f64>().ok().filter(|value| value.is_finite()).map(number_text);
        let text = number.as_deref().unwrap_or(text);
        self.levels.iter().position(|level| level == text)
    }

    /// What to say of a category that is not among them.
    pub fn unknown(&self, text: &str) -> String {
        const FEW: usize = 20;
        let mut list = self.levels.iter().take(FEW).map(String::as_str).collect::<Vec<_>>().join(", ");
        if self.levels.len() > FEW {
            list.push_str(&format!(", … ({} in all)", self.levels.len()));
        }
        let short: String = text.chars().take(40).collect();
        format!("\"{short}\" is not a category that the model knows; it knows {list}")
    }
}

/// The columns of categories of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Encoding {
    columns: Vec<CategoricalColumn>,
}

impl Encoding {
    /// The categories of a table that was read with some: those that are left in its rows.
    pub fn learn(read: &Read) -> Result<Self> {
        let mut columns = Vec::new();
        for (j, levels) in read.levels.iter().enumerate() {
            let Some(levels) = levels else { continue };
            let mut used = vec![false; levels.names.len()];
            for row in read.table.iter() {
                used[row[j] as usize] = true;
            }
            let mut names: Vec<String> = levels
                .names
                .iter()
                .zip(used)
                .filter(|(_, used)| *used)
                .map(|(name, _)| name.clone())
                .collect();
            names.sort_unstable();
            columns.push(CategoricalColumn { name: read.table.names()[j].clone(), levels: names });
        }
        Ok(Self { columns })
    }

    /// Whether there are no categories at all.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The columns of categories.
    pub fn columns(&self) -> &[CategoricalColumn] {
        &self.columns
    }

    /// The column of categories called `name`.
    pub fn column(&self, name: &str) -> Option<&CategoricalColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The columns of a user's table behind the columns `names` of a model, each once and in order.
    pub fn raw_names(&self, names: &[String]) -> Vec<String> {
        let mut raw: Vec<String> = Vec::with_capacity(names.len());
        for name in names {
            let column = self.columns.iter().find(|column| column.names().any(|own| own == *name));
            let name = column.map_or(name, |column| &column.name);
            if raw.last() != Some(name) {
                raw.push(name.clone());
            }
        }
        raw
    }

    /// The table with numbers in place of categories; `path` is the file it was read from.
    pub fn encode(&self, path: &Path, read: Read) -> Result<Table> {
        if read.levels.iter().all(Option::is_none) {
            return Ok(read.table);
        }
        let mut names = Vec::new();
        // For each column: how many take its place and, for categories, which of them each one is.
        let mut plan: Vec<(usize, Option<Vec<usize>>)> = Vec::new();
        for (j, (name, levels)) in read.table.names().iter().zip(&read.levels).enumerate() {
            let Some(levels) = levels else {
                names.push(name.clone());
                plan.push((1, None));
                continue;
            };
            let column = self.column(name).ok_or_else(|| {
                Error::table(
                    path,
                    format!("column \"{name}\" holds categories, which the model does not know"),
                )
            })?;
            names.extend(column.names());
            plan.push((column.levels.len(), Some(self.places(path, &read.table, j, column, levels)?)));
        }
        let mut values = Vec::with_capacity(read.table.rows() * names.len());
        for row in read.table.iter() {
            for (value, (width, places)) in row.iter().zip(&plan) {
                match places {
                    None => values.push(*value),
                    Some(places) => {
                        let place = places[*value as usize];
                        values.extend((0..*width).map(|level| f64::from(u8::from(level == place))));
                    }
                }
            }
        }
        Table::new(names, values).map_err(|error| Error::table(path, error.to_string()))
    }

    /// The position in `column` of each of `levels`; those that no row of column `j` of `table` holds may be unknown.
    fn places(
        &self,
        path: &Path,
        table: &Table,
        j: usize,
        column: &CategoricalColumn,
        levels: &Levels,
    ) -> Result<Vec<usize>> {
        let places = levels.names.iter().enumerate().map(|(position, text)| match column.level(text) {
            Some(place) => Ok(place),
            None if table.iter().all(|row| row[j] as usize != position) => Ok(0),
            None => {
                let (row, problem) = (levels.rows[position], column.unknown(text));
                Err(Error::table(path, format!("row {row}, column \"{}\": {problem}", column.name)))
            }
        });
        places.collect()
    }

    /// An error unless these are the categories behind some of the columns `names`.
    pub fn validate(&self, names: &[String]) -> Result<(), String> {
        for column in &self.columns {
            let own: Vec<String> = column.names().collect();
            let fits = names.windows(own.len().max(1)).any(|names| names == own);
            if own.is_empty() || !fits {
                return Err(format!(
                    "the categories of {} and the given columns do not fit together",
                    column.name
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{ColumnChoice, Missing, ReadOptions, read_categories};

    fn parse(text: &str) -> Read {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
        read_categories(&path, &options, |_| {
            Ok(ColumnChoice { columns: vec![2, 0, 1], categorical: vec![0] })
        })
        .unwrap()
    }

    #[test]
    fn categories_become_columns_of_zeros_and_ones() {
        let read = parse("colour,y,x\nred,1,2\nblue,3,4\ngreen,NA,6\nred,7,8\n");
        let encoding = Encoding::learn(&read).unwrap();
        // Green was met in a row without a value only.
        assert_eq!(encoding.columns()[0].levels, ["blue", "red"]);
        let table = encoding.encode(Path::new("t.csv"), read).unwrap();
        assert_eq!(table.names(), ["x", "colour=blue", "colour=red", "y"]);
        assert_eq!(table.values(), [2.0, 0.0, 1.0, 1.0, 4.0, 1.0, 0.0, 3.0, 8.0, 0.0, 1.0, 7.0]);
        assert_eq!(encoding.raw_names(table.names()), ["x", "colour", "y"]);
        encoding.validate(table.names()).unwrap();
        assert!(encoding.validate(&["colour=blue".into()]).is_err());

        let later = parse("colour,y,x\nblue,1,2\n");
        let table = encoding.encode(Path::new("t.csv"), later).unwrap();
        assert_eq!(table.values(), [2.0, 1.0, 0.0, 1.0]);
        let error =
            encoding.encode(Path::new("t.csv"), parse("colour,y,x\nred,1,2\nviolet,1,2\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "t.csv: row 2, column \"colour\": \"violet\" is not a category that the model knows; it knows blue, red"
        );
    }

    #[test]
    fn numbers_may_be_categories_in_any_spelling() {
        let read = parse("group,y,x\n1,1,2\n2.0,3,4\n1.0,3,4\n");
        let encoding = Encoding::learn(&read).unwrap();
        let group = encoding.column("group").unwrap();
        assert_eq!(group.levels, ["1", "2"]);
        assert_eq!((group.level("1.00"), group.level(" 2"), group.level("3")), (Some(0), Some(1), None));
    }

    #[test]
    fn it_is_stored_as_a_list() {
        let encoding = Encoding::learn(&parse("c,y,x\nb,1,2\na,3,4\n")).unwrap();
        let text = serde_json::to_string(&encoding).unwrap();
        assert_eq!(text, r#"[{"name":"c","levels":["a","b"]}]"#);
        assert_eq!(serde_json::from_str::<Encoding>(&text).unwrap(), encoding);
    }
}
