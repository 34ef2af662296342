//! Settings files: TOML with the fields of a settings struct of the library.

use std::path::Path;

use brenier::Error;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Reads the settings; a mistake is one sentence with file, line and key.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::Library(Error::io(path, "read the settings", source)))?;
    toml::from_str(&text).map_err(|error| {
        let place = error.span().map(|span| place(&text, span.start)).unwrap_or_default();
        Failure::Usage(format!("{}{place}: {}", path.display(), error.message().replace('\n', " ")))
    })
}

/// `, line 3, key "epochs"` for the byte at which the reader stopped.
fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or_default();
    match line.split_once('=') {
        Some((key, _)) => format!(", line {number}, key \"{}\"", key.trim()),
        None => format!(", line {number}"),
    }
}
