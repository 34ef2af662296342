//! The only way to the terminal: results on standard output, everything else on standard error.

use std::io::{self, Write};
use std::path::Path;

use std::sync::atomic::{AtomicBool, Ordering};

use brenier::Error;
use brenier::data::write_bytes;

use crate::failure::Failure;
use crate::flags::with_flags;
use crate::tables::Output;

/// Whether `--quiet` was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Sets what [`quiet`] answers.
pub(crate) fn set_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether only errors, warnings and results are to be printed.
pub(crate) fn quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// An error's sentence.
pub(crate) fn error(text: &str) {
    to_stderr("error: ", text);
}

/// Something the user should know although the command continues.
pub(crate) fn warning(text: &str) {
    to_stderr("warning: ", &with_flags(text));
}

/// News of no consequence; nothing when quiet.
pub(crate) fn note(text: &str) {
    if !quiet() {
        to_stderr("", text);
    }
}

/// Says that `what` is now in a file.
pub(crate) fn wrote(what: &str, target: &Output) {
    if let Output::Path(path) = target {
        note(&format!("{what} written to {}", path.display()));
    }
}

/// A number of things: `1 row`, `2 rows`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// The lines of a description, headings in a column of their own.
pub(crate) fn lines(description: impl IntoIterator<Item = (&'static str, String)>) -> String {
    description.into_iter().map(|(heading, text)| format!("{heading:16}{text}\n")).collect()
}

/// A closed standard error is no reason to stop: there is nobody left to tell.
fn to_stderr(prefix: &str, text: &str) {
    let _ = writeln!(io::stderr().lock(), "{prefix}{text}");
}

/// A result, as it is.
pub(crate) fn result(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Checks, before work is spent on it, that `--json` can be written.
pub(crate) fn check_json(json: Option<&Path>) -> Result<(), Error> {
    match json.filter(|path| *path != Path::new("-")) {
        Some(path) => check_writable(path),
        None => Ok(()),
    }
}

/// Prints a result: its `text`, or the `document` where `--json` has no file; with a file, both.
pub(crate) fn result_or_json(
    json: Option<&Path>,
    document: impl FnOnce() -> String,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    match json {
        None => result(&text())?,
        Some(path) if path == Path::new("-") => result(&document())?,
        Some(path) => {
            write_bytes(path, document().as_bytes())?;
            result(&text())?;
            wrote("JSON", &Output::Path(path.to_owned()));
        }
    }
    Ok(())
}

/// Where `--out` points: `-` or nothing is standard output.
pub(crate) fn destination(out: Option<&Path>) -> Output {
    match out {
        Some(path) if path != Path::new("-") => Output::Path(path.to_owned()),
        _ => Output::Stdout,
    }
}

/// Checks, before work is spent on it, that a file can be made at `path`.
pub(crate) fn check_writable(path: &Path) -> Result<(), Error> {
    let refuse = |source: io::Error| Err(Error::io(path, "write the file", source));
    if path.is_dir() {
        return refuse(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if path.exists() && !path.is_file() {
        return Ok(()); // a device or a pipe: the write itself will show
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let text = format!("its folder {} does not exist; create it first", folder.display());
        return refuse(io::Error::new(io::ErrorKind::NotFound, text));
    }
    brenier::data::check_folder(path).or_else(refuse)
}

/// Checks the destination of a table before the table is computed.
pub(crate) fn check_destination(target: &Output) -> Result<(), Error> {
    match target {
        Output::Stdout => Ok(()),
        Output::Path(path) => {
            brenier::data::Format::of(path)?;
            check_writable(path)
        }
    }
}

/// Warns of what the reader of a table noticed.
pub(crate) fn noticed(path: &std::path::Path, read: &brenier::data::Read) {
    for text in read.notices(path) {
        warning(&text);
    }
}
