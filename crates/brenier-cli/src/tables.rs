//! Tables of the command line, where `-` is standard input or standard output.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use brenier::Error;
use brenier::data::{self, ColumnChoice, Format, Read, ReadOptions, Table};

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
