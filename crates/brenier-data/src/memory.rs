//! Tables that are in memory already, as those of a notebook: chosen from and checked as the readers of files do.

use std::path::Path;

use super::encode::Read;
use super::format::{ColumnChoice, ReadOptions};
use super::rows::Rows;
use super::table::Table;
use crate::{Error, Result};

/// What a column in memory holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// Numbers; NaN where one is missing.
    #[default]
    Numbers,
    /// Texts: the table holds their positions here, and NaN where one is missing.
    Texts(Vec<String>),
    /// Something else, which is refused if the column is chosen; says what it is.
    Other(String),
}

/// As [`read_categories`](crate::read_categories), from a table in memory that errors call `name`; `contents` has one entry for
/// each of its columns.
pub fn take_categories(
    name: &Path,
    table: &Table,
    contents: &[Content],
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    if contents.len() != table.columns() {
        let problem = format!("{} columns have the contents of {}", table.columns(), contents.len());
        return Err(Error::Columns(problem));
    }
    let (mut rows, chosen) = Rows::new(name, options, table.names(), choose)?;
    for (j, &column) in chosen.iter().enumerate() {
        let problem = match &contents[column] {
            Content::Texts(_) if !rows.is_categorical(j) => {
                "holds text where numbers are needed: choose other columns, or name a given column of categories in `categorical`"
            }
            Content::Other(what) => what,
            _ => continue,
        };
        return Err(Error::Columns(format!("column \"{}\" {problem}", table.names()[column])));
    }
    rows.reserve(table.rows())?;
    for (i, row) in table.iter().enumerate() {
        for (j, &column) in chosen.iter().enumerate() {
            let value = match &contents[column] {
                Content::Texts(texts) => match texts.get(row[column] as usize) {
                    Some(text) if row[column] >= 0.0 => rows.place_text(j, text, i + 1)?,
                    _ => f64::NAN,
                },
                _ => row[column],
            };
            rows.values.push(value);
        }
    }
    rows.settle(0)?;
    rows.finish(Vec::new())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Encoding, Missing};

    #[test]
    fn columns_in_memory_are_read_as_those_of_files() {
        let names = ["a", "kind", "when", "code"].map(String::from).to_vec();
        let nan = f64::NAN;
        let values = vec![1.0, 1.0, 0.0, 7.0, 2.0, 0.0, 0.0, 7.5, nan, 1.0, 0.0, 7.0, 4.0, nan, 0.0, 7.0];
        let table = Table::new(names, values).unwrap();
        let texts = Content::Texts(vec!["blue".into(), "red".into()]);
        let contents = [Content::Numbers, texts, Content::Other("holds dates".into()), Content::Numbers];
        let take = |columns: Vec<usize>, categorical: Vec<usize>, missing| {
            let options = ReadOptions { missing, ..ReadOptions::default() };
            take_categories(Path::new("the table"), &table, &contents, &options, |_| {
                Ok(ColumnChoice { columns, categorical })
            })
        };
        let read = take(vec![1, 0, 3], vec![1, 3], Missing::DropRows).unwrap();
        assert_eq!((read.dropped_rows, read.table.rows()), (2, 2));
        let encoded = Encoding::learn(&read).unwrap().encode(Path::new("the table"), read).unwrap();
        assert_eq!(encoded.names(), ["kind=blue", "kind=red", "a", "code=7", "code=7.5"]);
        assert_eq!(encoded.row(0), [0.0, 1.0, 1.0, 1.0, 0.0]);
        let text = |result: Result<Read>| result.unwrap_err().to_string();
        assert!(text(take(vec![0, 1], vec![], Missing::Fail)).contains("column \"kind\" holds text"));
        assert!(text(take(vec![2], vec![], Missing::Fail)).contains("column \"when\" holds dates"));
        assert!(text(take(vec![0], vec![], Missing::Fail)).contains("row 3, column \"a\" is missing"));
        assert!(text(take(vec![1], vec![1], Missing::Fail)).contains("row 4, column \"kind\" is missing"));
    }
}
