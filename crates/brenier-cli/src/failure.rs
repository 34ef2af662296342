//! What can end a command early, and the exit code each stands for.

use std::io;
use std::path::Path;

use brenier::Error;

use crate::flags;

/// Everything went well, or the reader of our output has gone.
pub(crate) const SUCCESS: u8 = 0;
/// The machine failed us: input and output, memory, arithmetic.
pub(crate) const UNEXPECTED: u8 = 1;
/// Fixable by the user: flags, settings, tables, models.
pub(crate) const BAD_INPUT: u8 = 2;
/// A second Ctrl-C, or the first where there is no result yet.
pub(crate) const INTERRUPTED: i32 = 130;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Flags that do not go together or with the files; one sentence.
    Usage(String),
    /// Ctrl-C before there was a result; what is kept, and how to continue.
    Interrupted(String),
    /// The library's answer.
    Library(Error),
    /// Standard output refused.
    Stdout(io::Error),
    /// A verdict that was asked for as an exit code.
    Verdict(u8),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

/// Only writes to standard output leave us with a bare `io::Error`; files are named in [`Error::Io`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Stdout(error)
    }
}

impl Failure {
    /// The sentence for the user; none on a broken pipe.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            _ if self.is_broken_pipe() => None,
            Self::Verdict(_) => None,
            Self::Usage(text) | Self::Interrupted(text) => Some(text.clone()),
            Self::Library(error) => Some(flags::message(error)),
            Self::Stdout(error) => Some(format!("cannot write to standard output: {error}")),
        }
    }

    /// The same, naming the table at `path` where it is about values or columns of a table that is not named yet.
    pub(crate) fn of_table(self, path: &Path) -> Self {
        match self {
            Self::Library(Error::Domain(problem) | Error::Columns(problem)) => {
                Self::Library(Error::table(path, problem))
            }
            other => other,
        }
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            _ if self.is_broken_pipe() => SUCCESS,
            Self::Usage(_) => BAD_INPUT,
            Self::Verdict(code) => *code,
            Self::Interrupted(_) | Self::Library(Error::Stopped(_)) => INTERRUPTED as u8,
            Self::Library(Error::Io { source, .. }) => match source.kind() {
                // The path is wrong, not the machine.
                io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory => BAD_INPUT,
                _ => UNEXPECTED,
            },
            Self::Library(Error::Numerical(_) | Error::Download(_)) | Self::Stdout(_) => UNEXPECTED,
            Self::Library(_) => BAD_INPUT,
        }
    }

    fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Usage(_) | Self::Interrupted(_) | Self::Verdict(_) => false,
            Self::Library(Error::Io { source, .. }) | Self::Stdout(source) => {
                source.kind() == io::ErrorKind::BrokenPipe
            }
            Self::Library(_) => false,
        }
    }
}
