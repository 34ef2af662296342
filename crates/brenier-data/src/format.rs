//! Which format a file has, what to do with missing cells, and the way from a file to a table and back.

use std::io::{self, Cursor, Write};
use std::path::Path;
use std::str::FromStr;

use flate2::write::GzEncoder;

use super::atomic::atomic_write;
use super::encode::Read;
use super::source::Source;
use super::table::Table;
use super::{arrow, csv, npy, parquet};
use crate::{Error, Result};

/// A file format for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Delimited text. Reading finds out the delimiter: a comma, semicolon, tab, bar, or runs of white space.
    /// Writing uses commas for `.csv`, and tabs for `.tsv`, `.txt` and `.dat`.
    Text,
    /// Delimited text in which a tab is the likeliest delimiter.
    Tsv,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow's IPC format, file or stream; Feather (version 2) is the same.
    Arrow,
    /// One array of NumPy.
    Npy,
    /// A zip archive of NumPy arrays.
    Npz,
}

/// How the bytes of a file are compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstd,
}

const SUPPORTED: &str =
    ".csv, .tsv, .txt, .dat (also with .gz or .zst after it), .parquet, .arrow, .feather, .npy or .npz";

impl Format {
    /// The names by which [`from_str`](Format::from_str) knows the formats.
    pub const NAMES: [&str; 6] = ["csv", "tsv", "parquet", "arrow", "npy", "npz"];

    /// The format in which a table is written to `path`, by its extension.
    pub fn of(path: &Path) -> Result<Format> {
        match Self::by_name(path)? {
            (Some(format), None) => Ok(format),
            (Some(format @ (Format::Text | Format::Tsv)), Some(_)) => Ok(format),
            (Some(_), Some(_)) => Err(Error::table(
                path,
                "only text is written with .gz or .zst: leave this ending out, the format has compression of its own",
            )),
            (None, _) => Err(Error::table(
                path,
                format!("a table needs an extension that tells its format: {SUPPORTED}"),
            )),
        }
    }

    /// The format and the compression that the name of a file stands for; no format without an extension.
    pub(super) fn by_name(path: &Path) -> Result<(Option<Format>, Option<Compression>)> {
        let extension =
            |path: &Path| path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
        let compression = match extension(path).as_deref() {
            Some("gz" | "gzip") => Some(Compression::Gzip),
            Some("zst" | "zstd") => Some(Compression::Zstd),
            _ => None,
        };
        let stem = path.with_extension("");
        let inner = if compression.is_some() { stem.as_path() } else { path };
        let format = match extension(inner).as_deref() {
            Some("csv" | "txt" | "dat") => Format::Text,
            Some("tsv") => Format::Tsv,
            Some("parquet") => Format::Parquet,
            Some("arrow" | "feather" | "ipc") => Format::Arrow,
            Some("npy") => Format::Npy,
            Some("npz") => Format::Npz,
            Some(other) => {
                return Err(Error::table(
                    path,
                    format!(
                        "unknown table format \".{other}\": use {SUPPORTED}, or say what it is with `format`"
                    ),
                ));
            }
            None => return Ok((None, compression)),
        };
        Ok((Some(format), compression))
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "csv" => Format::Text,
            "tsv" => Format::Tsv,
            "parquet" => Format::Parquet,
            "arrow" => Format::Arrow,
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            other => {
                let problem = format!("\"{other}\" is none of {}", Self::NAMES.join(", "));
                return Err(Error::setting("format", problem));
            }
        })
    }
}

/// What to do with a row that has an empty, null, NaN or infinite cell in a chosen column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// Stop with an error naming the first such cell.
    #[default]
    Fail,
    /// The same, and the error advises to drop such rows: for a command that has the flag `--drop-missing`.
    Advise,
    /// Leave the row out and count it.
    DropRows,
}

impl Missing {
    /// What a command with the flag `--drop-missing` does.
    pub fn dropped_if(flag: bool) -> Self {
        if flag { Self::DropRows } else { Self::Advise }
    }

    /// What to do about a missing cell, as the end of a sentence.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Advise => "fill it in, or leave out such rows with `drop_missing`",
            Self::Fail | Self::DropRows => "fill it in, or remove the row",
        }
    }
}

/// The mark between the integer part and the fraction of numbers in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decimal {
    /// As in 1.5.
    #[default]
    Point,
    /// As in 1,5.
    Comma,
}

/// How to read a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format, if not the one that the extension, or without one the content, stands for.
    pub format: Option<Format>,
    /// What to do with missing cells.
    pub missing: Missing,
    /// Further texts that stand for a missing value, as `?` or `-999`; those that are numbers do so in every format.
    pub missing_texts: Vec<String>,
    /// The decimal mark of numbers in text.
    pub decimal: Decimal,
}

impl ReadOptions {
    /// The numbers among the texts that stand for a missing value.
    pub(super) fn sentinels(&self) -> Vec<f64> {
        let number = |text: &String| text.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        self.missing_texts.iter().filter_map(number).collect()
    }
}

/// The columns of a table to read, by their positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnChoice {
    /// All columns to read, in the order wanted.
    pub columns: Vec<usize>,
    /// Those of them whose texts are categories.
    pub categorical: Vec<usize>,
}

/// Columns of numbers.
impl From<Vec<usize>> for ColumnChoice {
    fn from(columns: Vec<usize>) -> Self {
        Self { columns, categorical: Vec::new() }
    }
}

/// Reads a table. `choose` is shown the names of all columns and returns the positions of those to load; only
/// these are parsed and held, row by row in one buffer.
///
/// The format is that of `options`, or that of the file's extension; without an extension, as for a pipe, the first
/// bytes decide. Files compressed with gzip or zstd are decompressed on the way.
pub fn read(
    path: &Path,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<Vec<usize>>,
) -> Result<Read> {
    read_categories(path, options, |names| Ok(choose(names)?.into()))
}

/// As [`read()`], with columns of categories: see [`Read::levels`].
pub fn read_categories(
    path: &Path,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    read_source(Source::open(path, options.format)?, options, choose)
}

/// As [`read()`], from bytes that errors call `name`, such as a socket or standard input. Without a format in `options` the
/// first bytes decide; they are decompressed if need be. `choose` returns positions, or a [`ColumnChoice`].
///
/// Formats that are not read from their beginning to their end go through a temporary file.
///
/// ```
/// use brenier_data::{ReadOptions, read_from};
///
/// # fn main() -> brenier_data::Result<()> {
/// let text = "a,b\n1,2\n".as_bytes();
/// let table = read_from("numbers".as_ref(), text, &ReadOptions::default(), |_| Ok(vec![1]))?.table;
/// assert_eq!(table.values(), [2.0]);
/// # Ok(())
/// # }
/// ```
pub fn read_from<C: Into<ColumnChoice>>(
    name: &Path,
    input: impl io::Read + 'static,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<C>,
) -> Result<Read> {
    let source = Source::stream(name.to_owned(), Box::new(input), options.format, false)?;
    read_source(source, options, |names| Ok(choose(names)?.into()))
}

fn read_source(
    source: Source,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let path = &source.path.clone();
    match source.format {
        Format::Text | Format::Tsv => {
            let (tabs, size) = (source.format == Format::Tsv, source.size);
            csv::read(path, source.into_reader(), size, tabs, options, choose)
        }
        Format::Arrow => arrow::read(path, source, options, choose),
        Format::Parquet => {
            let (file, size) = source.into_file()?;
            parquet::read(path, file, size, options, choose)
        }
        Format::Npy => {
            let (file, size) = source.into_file()?;
            npy::read_npy(path, file, size, options, choose)
        }
        Format::Npz => {
            let (file, size) = source.into_file()?;
            npy::read_npz(path, file, size, options, choose)
        }
    }
}

/// Writes a table to a file in the format of its extension; it appears complete or not at all. Text holds the shortest
/// decimals that read back as the same numbers.
///
/// Text cannot hold a table whose names all look like numbers: its header would be read back as a row.
pub fn write(path: &Path, table: &Table) -> Result<()> {
    let format = Format::of(path)?;
    let (_, compression) = Format::by_name(path)?;
    let name = if compression.is_some() { path.with_extension("") } else { path.to_owned() };
    let comma = name.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let mark = if comma { b',' } else { b'\t' };
    atomic_write(path, |writer| match (format, compression) {
        (Format::Text | Format::Tsv, None) => csv::write(writer, mark, table),
        (Format::Text | Format::Tsv, Some(Compression::Gzip)) => {
            let mut encoder = GzEncoder::new(writer, flate2::Compression::default());
            csv::write(&mut encoder, mark, table)?;
            encoder.finish().map(|_| ())
        }
        (Format::Text | Format::Tsv, Some(Compression::Zstd)) => {
            let mut encoder = zstd::stream::write::Encoder::new(writer, 3)?;
            csv::write(&mut encoder, mark, table)?;
            encoder.finish().map(|_| ())
        }
        (Format::Parquet, _) => parquet::write(writer, table),
        (Format::Arrow, _) => arrow::write(writer, table),
        (Format::Npy, _) => npy::write_npy(writer, table),
        (Format::Npz, _) => npy::write_npz(writer, table),
    })
}

/// Writes a table to any writer, in small pieces: give it a buffer. [`Format::Text`] has commas here. Parquet and `.npz` are put
/// together in memory first.
pub fn write_to(mut writer: impl Write, format: Format, table: &Table) -> io::Result<()> {
    match format {
        Format::Text => csv::write(&mut writer, b',', table)?,
        Format::Tsv => csv::write(&mut writer, b'\t', table)?,
        Format::Arrow => arrow::write(&mut writer, table)?,
        Format::Npy => npy::write_npy(&mut writer, table)?,
        Format::Parquet => {
            let mut bytes = Vec::new();
            parquet::write(&mut bytes, table)?;
            writer.write_all(&bytes)?;
        }
        Format::Npz => {
            let mut bytes = Cursor::new(Vec::new());
            npy::write_npz(&mut bytes, table)?;
            writer.write_all(bytes.get_ref())?;
        }
    }
    writer.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    fn table(columns: &[&str], values: &[f64]) -> Table {
        Table::new(columns.iter().map(|&name| name.into()).collect(), values.to_vec()).unwrap()
    }

    fn all(names: &[String]) -> Result<Vec<usize>> {
        Ok((0..names.len()).collect())
    }

    fn text(result: Result<Read>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn every_format_gives_back_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&["a", "b c"], &[1.0, -0.0, 0.1, 1e300, 5e-324, -1.5]);
        for file in [
            "t.csv",
            "t.tsv",
            "t.TXT",
            "t.dat",
            "t.parquet",
            "t.npz",
            "t.npy",
            "t.arrow",
            "t.feather",
            "t.ipc",
            "t.csv.gz",
            "t.tsv.zst",
            "t.txt.gz",
        ] {
            let path = folder.path().join(file);
            write(&path, &table).unwrap();
            let back = read(&path, &ReadOptions::default(), all).unwrap();
            let bits = |table: &Table| table.values().iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&back.table), bits(&table), "{file}");
            assert_eq!((back.dropped_rows, back.warnings.len()), (0, 0));
            let names: &[&str] = if file == "t.npy" { &["c1", "c2"] } else { &["a", "b c"] };
            assert_eq!(back.table.names(), names, "{file}");
            let one = read(&path, &ReadOptions::default(), |_| Ok(vec![1])).unwrap().table;
            assert_eq!(one, back.table.select_columns(&[1]), "{file}");
            let swapped = read(&path, &ReadOptions::default(), |_| Ok(vec![1, 0])).unwrap().table;
            assert_eq!(swapped, back.table.select_columns(&[1, 0]), "{file}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 13);
    }

    #[test]
    fn streams_hold_every_format() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(&["a", "b"], &[1.0, -0.0, 0.1, 1e300]);
        for name in Format::NAMES {
            let format: Format = name.parse().unwrap();
            let mut bytes = Vec::new();
            write_to(&mut bytes, format, &table).unwrap();
            let path = folder.path().join(format!("t.{name}"));
            write(&path, &table).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes, "{name}");
            let options = ReadOptions::default();
            let back = read_from("stream".as_ref(), Cursor::new(bytes), &options, |_| Ok(vec![1])).unwrap();
            assert_eq!(back.table.values(), [-0.0, 1e300], "{name}");
        }
        let empty = read_from("stream".as_ref(), io::empty(), &ReadOptions::default(), all);
        assert_eq!(text(empty), "stream: the file is empty");
        // `-` is a file like any other: only the command gives it a meaning.
        assert!(text(read("-".as_ref(), &ReadOptions::default(), all)).contains("-: cannot open the table"));
    }

    #[test]
    fn missing_values_are_refused_or_dropped_in_every_format() {
        let folder = tempfile::tempdir().unwrap();
        let holes = [1.0, 2.0, f64::NAN, 3.0, 4.0, 5.0, 6.0, f64::INFINITY, 7.0, 8.0];
        for file in ["t.csv", "t.parquet", "t.npz", "t.npy", "t.arrow", "t.csv.gz"] {
            let path = folder.path().join(file);
            write(&path, &table(&["c1", "c2"], &holes)).unwrap();
            let error = text(read(&path, &ReadOptions::default(), all));
            assert!(error.contains("row 2") && error.contains("column \"c1\""), "{error}");
            assert!(error.contains("remove the row") && !error.contains("`drop_missing`"), "{error}");
            let options = ReadOptions { missing: Missing::dropped_if(false), ..Default::default() };
            let error = text(read(&path, &options, all));
            assert!(error.contains("leave out such rows with `drop_missing`"), "{error}");
            let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
            let back = read(&path, &options, all).unwrap();
            assert_eq!(back.dropped_rows, 2);
            assert_eq!(back.table.values(), [1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
            // A number may stand for a missing value, in every format.
            let sentinel = ReadOptions { missing_texts: vec!["4".into()], ..options.clone() };
            assert_eq!(read(&path, &sentinel, all).unwrap().table.values(), [1.0, 2.0, 7.0, 8.0]);
            // A hole in a column that is not chosen does not matter.
            assert_eq!(read(&path, &options, |_| Ok(vec![0])).unwrap().table.rows(), 4);
            write(&path, &table(&["c1"], &[f64::NAN; 2])).unwrap();
            assert!(text(read(&path, &options, all)).contains("all 2 rows have missing values"));
        }
    }

    #[test]
    fn formats_follow_extensions_and_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.xlsx");
        fs::write(&path, "a,b\n1,2\n").unwrap();
        let error = text(read(&path, &ReadOptions::default(), all));
        assert!(error.contains("unknown table format \".xlsx\": use .csv, .tsv"), "{error}");
        let options = ReadOptions { format: Some(Format::Text), ..Default::default() };
        assert_eq!(read(&path, &options, all).unwrap().table.values(), [1.0, 2.0]);
        assert!(write(&path, &table(&["a"], &[1.0])).unwrap_err().to_string().contains(".xlsx"));
        let write = |name: &str| write(&folder.path().join(name), &table(&["a"], &[1.0]));
        assert!(write("table").unwrap_err().to_string().contains("needs an extension"));
        assert!(write("t.parquet.gz").unwrap_err().to_string().contains("only text is written with .gz"));
    }

    #[test]
    fn absent_empty_and_folder_paths_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for extension in ["csv", "parquet", "npy", "npz", "arrow", "csv.zst"] {
            let path = folder.path().join(format!("t.{extension}"));
            assert!(text(read(&path, &ReadOptions::default(), all)).contains("cannot open the table"));
            fs::write(&path, "").unwrap();
            assert!(text(read(&path, &ReadOptions::default(), all)).ends_with("the file is empty"));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert!(text(read(&path, &ReadOptions::default(), all)).contains("is a folder"));
        }
    }

    #[test]
    fn a_table_without_rows_is_an_error_in_every_format() {
        let folder = tempfile::tempdir().unwrap();
        for extension in ["csv", "parquet", "npy", "npz", "arrow", "csv.zst"] {
            let path = folder.path().join(format!("t.{extension}"));
            write(&path, &table(&["a", "b"], &[])).unwrap();
            assert!(text(read(&path, &ReadOptions::default(), all)).ends_with("the table has no rows"));
        }
    }

    #[test]
    fn a_bad_choice_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        fs::write(&path, "a,b\n1,2\n").unwrap();
        let chosen = |list: &[usize]| text(read(&path, &ReadOptions::default(), |_| Ok(list.to_vec())));
        assert!(chosen(&[]).contains("no column of"));
        assert!(chosen(&[2]).contains("column 3 is chosen but"));
        assert!(chosen(&[1, 1]).contains("column \"b\" is chosen twice"));
    }
}
