//! What went wrong, where, what was expected and what was found.
//!
//! A mistake of the user is an [`Error`] whose text is one clear sentence naming the file, row, column or
//! setting and what to do; a mistake of ours is a panic.

use std::path::{Path, PathBuf};

/// Everything that can go wrong through no fault of the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused to read or write a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// What was attempted, as in "open the table".
        action: &'static str,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A table whose contents cannot be used; `problem` names row and column where there is one.
    #[error("{}: {problem}", path.display())]
    Table {
        /// The file concerned.
        path: PathBuf,
        /// The row and column, what was found there and what to do.
        problem: String,
    },
    /// Columns asked for that the table does not have, or has twice.
    #[error("{0}")]
    Columns(String),
    /// A value outside the range on which a transform is defined.
    #[error("{0}")]
    Domain(String),
    /// A model or checkpoint file that is damaged, hostile or of another version.
    #[error("{}: {problem}", path.display())]
    Model {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// A setting outside its range; `name` is the name used in TOML and, with dashes, on the command line.
    #[error("setting {name}: {problem}")]
    Settings {
        /// The setting's name.
        name: String,
        /// The value found, the range allowed.
        problem: String,
    },
    /// Inputs whose shapes do not fit the model.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// The quantity concerned.
        what: &'static str,
        /// What the model needs.
        expected: String,
        /// What was given.
        got: String,
    },
    /// A file that could not be downloaded, or is not the one expected.
    #[error("{0}")]
    Download(String),
    /// A folder that holds the results of another run; `problem` follows the folder's name in a sentence.
    #[error("{} {problem}", path.display())]
    Folder {
        /// The folder concerned.
        path: PathBuf,
        /// What it holds and what to do.
        problem: String,
    },
    /// The call was asked to stop before it had a result; what it had finished is kept where the text says so.
    #[error("{0}")]
    Stopped(String),
    /// Arithmetic that broke down: a loss or a sample that is not finite, a solver that did not converge.
    #[error("{0}")]
    Numerical(String),
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An [`Error::Io`] for `path`.
    pub fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), action, source }
    }

    /// An [`Error::Table`] for `path`.
    pub fn table(path: &Path, problem: impl Into<String>) -> Self {
        Self::Table { path: path.to_owned(), problem: problem.into() }
    }

    /// An [`Error::Model`] for `path`.
    pub fn model(path: &Path, problem: impl Into<String>) -> Self {
        Self::Model { path: path.to_owned(), problem: problem.into() }
    }

    /// An [`Error::Folder`] for `path`.
    pub fn folder(path: &Path, problem: impl Into<String>) -> Self {
        Self::Folder { path: path.to_owned(), problem: problem.into() }
    }

    /// An [`Error::Settings`] for a value outside a range, which is described in words: its ends may or may not belong
    /// to it.
    pub fn outside(name: &str, value: f64, range: &str) -> Self {
        Self::setting(name, format!("must be {range}, not {value}"))
    }

    /// An [`Error::Settings`] for the setting `name`.
    pub fn setting(name: &str, problem: impl Into<String>) -> Self {
        Self::Settings { name: name.to_owned(), problem: problem.into() }
    }
}
