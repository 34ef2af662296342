//! Which format a file has, what to do with missing cells, and the way from a file to a table and back.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::atomic::atomic_write;
use super::contain::contain;
use super::table::{Table, name_problem, short_name};
use super::{csv, npy, parquet};
use crate::{Error, Result};

/// A file format for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Delimited text. Reading finds out the delimiter: a comma, semicolon, tab, bar, or runs of white space.
    /// Writing uses commas for `.csv`, and tabs for `.tsv`, `.txt` and `.dat`.
    Text,
    /// Apache Parquet.
    Parquet,
    /// One array of NumPy.
    Npy,
    /// A zip archive of NumPy arrays.
    Npz,
}

const SUPPORTED: &str = ".csv, .tsv, .txt, .dat, .parquet, .npy or .npz";

impl Format {
    /// The format that the extension of `path` stands for.
    pub fn of(path: &Path) -> Result<Format> {
        let extension = path.extension().map(|text| text.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("csv" | "tsv" | "txt" | "dat") => Ok(Format::Text),
            Some("parquet") => Ok(Format::Parquet),
            Some("npy") => Ok(Format::Npy),
            Some("npz") => Ok(Format::Npz),
            Some(other) => {
                Err(Error::table(path, format!("unknown table format \".{other}\": use {SUPPORTED}")))
            }
            None => Err(Error::table(
                path,
                format!("a table needs an extension that tells its format: {SUPPORTED}"),
            )),
        }
    }
}

/// What to do with a row that has an empty, null, NaN or infinite cell in a chosen column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
            Self::Advise => "fill it in, or leave out such rows with --drop-missing",
            Self::Fail | Self::DropRows => "fill it in, or remove the row",
        }
    }
}

/// How to read a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format, if not the one the extension stands for.
    pub format: Option<Format>,
    /// What to do with missing cells.
    pub missing: Missing,
}

/// A table read, and what the reader noticed.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The chosen columns, in the order chosen; at least one row.
    pub table: Table,
    /// Rows left out because of missing cells; zero with [`Missing::Fail`].
    pub dropped_rows: usize,
    /// Things the user may want to know, one sentence each.
    pub warnings: Vec<String>,
}

/// Reads a table. `choose` is shown the names of all columns and returns the positions of those to load; only
/// these are parsed and held, row by row in one buffer. The path `-` is delimited text on standard input.
pub fn read(
    path: &Path,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<Vec<usize>>,
) -> Result<Read> {
    if path == Path::new("-") {
        return match options.format {
            None | Some(Format::Text) => {
                csv::read(Path::new("standard input"), io::stdin(), None, false, options.missing, choose)
            }
            Some(_) => Err(Error::table(
                Path::new("standard input"),
                "only delimited text can be read from standard input: give a file for other formats",
            )),
        };
    }
    let format = options.format.map_or_else(|| Format::of(path), Ok)?;
    let file = std::fs::File::open(path).map_err(|source| Error::io(path, "open the table", source))?;
    let metadata = file.metadata().map_err(|source| Error::io(path, "open the table", source))?;
    if metadata.is_dir() {
        return Err(Error::table(path, "is a folder: give a file"));
    }
    if metadata.is_file() && metadata.len() == 0 {
        return Err(Error::table(path, "the file is empty"));
    }
    match format {
        Format::Text => {
            let size = metadata.is_file().then_some(metadata.len());
            let tabs = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tsv"));
            csv::read(path, file, size, tabs, options.missing, choose)
        }
        Format::Parquet => parquet::read(path, file, metadata.len(), options.missing, choose),
        Format::Npy => npy::read_npy(path, file, metadata.len(), options.missing, choose),
        Format::Npz => npy::read_npz(path, file, metadata.len(), options.missing, choose),
    }
}

/// Where a table goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A file, in the format of its extension; it appears complete or not at all.
    Path(PathBuf),
    /// Standard output, as comma-separated text.
    Stdout,
}

/// Writes a table. Text holds the shortest decimals that read back as the same numbers; a closed pipe on standard
/// output is an [`Error::Io`] whose source is of kind [`BrokenPipe`](io::ErrorKind::BrokenPipe).
///
/// Text cannot hold a table whose names all look like numbers: its header would be read back as a row.
pub fn write(target: &Output, table: &Table) -> Result<()> {
    match target {
        Output::Stdout => {
            let mut writer = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            csv::write(&mut writer, b',', table)
                .and_then(|()| writer.flush())
                .map_err(|source| Error::io(Path::new("standard output"), "write the table", source))
        }
        Output::Path(path) => {
            let format = Format::of(path)?;
            let comma = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
            atomic_write(path, |writer| match format {
                Format::Text => csv::write(writer, if comma { b',' } else { b'\t' }, table),
                Format::Parquet => parquet::write(writer, table),
                Format::Npy => npy::write_npy(writer, table),
                Format::Npz => npy::write_npz(writer, table),
            })
        }
    }
}

/// The rows being read: chosen columns only, straight into the table's buffer.
pub(super) struct Rows<'a> {
    pub(super) path: &'a Path,
    pub(super) missing: Missing,
    pub(super) names: Vec<String>,
    pub(super) values: Vec<f64>,
    /// Rows met in the file so far, kept or not.
    pub(super) seen: usize,
    pub(super) dropped: usize,
}

impl<'a> Rows<'a> {
    /// Asks `choose` which of `header` to load and checks both.
    pub(super) fn new(
        path: &'a Path,
        missing: Missing,
        header: &[String],
        choose: impl FnOnce(&[String]) -> Result<Vec<usize>>,
    ) -> Result<(Self, Vec<usize>)> {
        if let Some(problem) = name_problem(header) {
            return Err(Error::table(path, problem));
        }
        let chosen = choose(header)?;
        let mut taken = vec![false; header.len()];
        for &column in &chosen {
            match taken.get_mut(column) {
                Some(taken) if !*taken => *taken = true,
                Some(_) => {
                    let name = &header[column];
                    return Err(Error::Columns(format!("column \"{name}\" is chosen twice: choose it once")));
                }
                None => {
                    return Err(Error::Columns(format!(
                        "column {} is chosen but {} has only {}",
                        column + 1,
                        path.display(),
                        header.len()
                    )));
                }
            }
        }
        if chosen.is_empty() {
            return Err(Error::Columns(format!("no column of {} is chosen", path.display())));
        }
        let names = chosen.iter().map(|&column| header[column].clone()).collect();
        Ok((Self { path, missing, names, values: Vec::new(), seen: 0, dropped: 0 }, chosen))
    }

    /// How many columns are loaded.
    pub(super) fn width(&self) -> usize {
        self.names.len()
    }

    /// Makes room for `rows` rows, or says that memory does not suffice.
    pub(super) fn reserve(&mut self, rows: usize) -> Result<()> {
        rows.checked_mul(self.width()).and_then(|count| self.values.try_reserve_exact(count).ok()).ok_or_else(
            || {
                let problem = format!(
                    "{rows} rows of {} columns do not fit in memory: choose fewer columns",
                    self.width()
                );
                Error::table(self.path, problem)
            },
        )
    }

    /// Settles the rows appended from value `start` on, in which a missing cell is NaN or infinite: refuses the
    /// first such cell or closes the gaps that dropped rows leave.
    pub(super) fn settle(&mut self, start: usize) -> Result<()> {
        let width = self.width();
        let end = self.values.len();
        let mut kept = start;
        for row in (start..end).step_by(width) {
            self.seen += 1;
            match self.values[row..row + width].iter().position(|value| !value.is_finite()) {
                None => {
                    if kept != row {
                        self.values.copy_within(row..row + width, kept);
                    }
                    kept += width;
                }
                Some(_) if self.missing == Missing::DropRows => self.dropped += 1,
                Some(column) => {
                    let what = match self.values[row + column] {
                        value if value.is_nan() => "missing (null or NaN)".to_owned(),
                        value => format!("infinite ({value})"),
                    };
                    let problem = format!(
                        "row {}, column \"{}\" is {what}; {}",
                        self.seen,
                        short_name(&self.names[column]),
                        self.missing.advice()
                    );
                    return Err(Error::table(self.path, problem));
                }
            }
        }
        self.values.truncate(kept);
        Ok(())
    }

    /// The table, if a row is left.
    pub(super) fn finish(mut self, warnings: Vec<String>) -> Result<Read> {
        if self.seen == 0 {
            return Err(Error::table(self.path, "the table has no rows"));
        }
        if self.values.is_empty() {
            let problem =
                format!("all {} rows have missing values in the chosen columns: choose others", self.seen);
            return Err(Error::table(self.path, problem));
        }
        if self.values.capacity() / 5 * 4 > self.values.len() {
            self.values.shrink_to_fit();
        }
        Ok(Read { table: Table::new(self.names, self.values)?, dropped_rows: self.dropped, warnings })
    }
}

/// Integers from here on may have no exact `f64`: 2⁵³.
pub(super) const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// The warning for a column of integers beyond [`EXACT_INTEGERS`].
pub(super) fn rounded_warning(path: &Path, column: &str) -> String {
    format!(
        "{}: column \"{column}\" holds integers beyond 2^53, which were rounded to the nearest double",
        path.display()
    )
}

/// The value of an IEEE half-precision number.
pub(super) fn half_to_f64(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f64::from(bits & 0x3ff);
    sign * match (bits >> 10) & 0x1f {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1024.0 + fraction) * 2f64.powi(i32::from(exponent) - 25),
    }
}

/// Runs a decoder of somebody else's on a file that may be hostile: should it panic, that is an error of the file.
pub(super) fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    contain(decode).unwrap_or_else(|| {
        Err(Error::table(path, "the file is damaged: its decoder gave up; write the file again"))
    })
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
        for file in ["t.csv", "t.tsv", "t.TXT", "t.dat", "t.parquet", "t.npz", "t.npy"] {
            let path = folder.path().join(file);
            write(&Output::Path(path.clone()), &table).unwrap();
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
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 7);
    }

    #[test]
    fn missing_values_are_refused_or_dropped_in_every_format() {
        let folder = tempfile::tempdir().unwrap();
        let holes = [1.0, 2.0, f64::NAN, 3.0, 4.0, 5.0, 6.0, f64::INFINITY, 7.0, 8.0];
        for file in ["t.csv", "t.parquet", "t.npz", "t.npy"] {
            let path = folder.path().join(file);
            write(&Output::Path(path.clone()), &table(&["c1", "c2"], &holes)).unwrap();
            let error = text(read(&path, &ReadOptions::default(), all));
            assert!(error.contains("row 2") && error.contains("column \"c1\""), "{error}");
            assert!(error.contains("remove the row") && !error.contains("--drop-missing"), "{error}");
            let options = ReadOptions { missing: Missing::dropped_if(false), ..Default::default() };
            let error = text(read(&path, &options, all));
            assert!(error.contains("leave out such rows with --drop-missing"), "{error}");
            let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
            let back = read(&path, &options, all).unwrap();
            assert_eq!(back.dropped_rows, 2);
            assert_eq!(back.table.values(), [1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
            // A hole in a column that is not chosen does not matter.
            assert_eq!(read(&path, &options, |_| Ok(vec![0])).unwrap().table.rows(), 4);
            write(&Output::Path(path.clone()), &table(&["c1"], &[f64::NAN; 2])).unwrap();
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
        assert!(
            write(&Output::Path(path), &table(&["a"], &[1.0])).unwrap_err().to_string().contains(".xlsx")
        );
        assert!(text(read(Path::new("table"), &ReadOptions::default(), all)).contains("needs an extension"));
        let stdin = ReadOptions { format: Some(Format::Npy), ..Default::default() };
        assert!(text(read(Path::new("-"), &stdin, all)).contains("only delimited text"));
    }

    #[test]
    fn absent_empty_and_folder_paths_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        for extension in ["csv", "parquet", "npy", "npz"] {
            let path = folder.path().join("t").with_extension(extension);
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
        for extension in ["csv", "parquet", "npy", "npz"] {
            let path = folder.path().join("t").with_extension(extension);
            write(&Output::Path(path.clone()), &table(&["a", "b"], &[])).unwrap();
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

    #[test]
    fn halves() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_477_539_063e-8),
            (0x3555, 0.333_251_953_125),
            (0x7c00, f64::INFINITY),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half_to_f64(bits), value);
        }
        assert!(half_to_f64(0x7e00).is_nan());
    }
}
