//! The journal of a search: one JSON object per line, written in one piece and flushed to disk.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Final, Pilot};
use crate::{Error, Result};

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// The first line: what the search depends on.
    Search {
        /// SHA-256 of settings, space, table and split.
        identity: String,
    },
    Pilot(Pilot),
    Final(Final),
}

pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal at `path`, and returns what it holds of this search. A last line cut short by a kill is
    /// dropped; a journal of another search is an error.
    pub(super) fn open(path: &Path, identity: &str) -> Result<(Self, Vec<Entry>)> {
        let failed = |source| Error::io(path, "read the journal", source);
        let text = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut entries = Vec::new();
        for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            entries.push(serde_json::from_slice(line).map_err(|error| {
                let problem = format!("line {} of the journal is damaged: {error}", number + 1);
                Error::table(path, problem)
            })?);
        }
        match entries.first() {
            None => {}
            Some(Entry::Search { identity: own }) if own == identity => {}
            Some(_) => {
                return Err(Error::table(
                    path,
                    "is the journal of a search with other settings or other data; repeat the original command, or \
                     leave out `resume`",
                ));
            }
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|source| Error::io(path, "write the journal", source))?;
        file.set_len(whole as u64).map_err(|source| Error::io(path, "write the journal", source))?;
        let mut journal = Self { path: path.to_owned(), file };
        if entries.is_empty() {
            journal.append(&Entry::Search { identity: identity.to_owned() })?;
        } else {
            entries.remove(0);
        }
        Ok((journal, entries))
    }

    pub(super) fn append(&mut self, entry: &Entry) -> Result<()> {
        let mut line = serde_json::to_vec(entry).expect("entries are plain data");
        line.push(b'\n');
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| Error::io(&self.path, "write the journal", source))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pilot(trial: usize) -> Entry {
        Entry::Pilot(Pilot {
            trial,
            rung: 0,
            epochs: 1.5,
            steps: 7,
            seconds: 0.1,
            valid_nll: (trial > 0).then_some(0.1 + 0.2),
            failure: None,
        })
    }

    #[test]
    fn what_was_written_is_read_and_a_cut_line_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let (mut journal, old) = Journal::open(&path, "one").unwrap();
        assert!(old.is_empty());
        (0..3).for_each(|trial| journal.append(&pilot(trial)).unwrap());
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let (mut journal, old) = Journal::open(&path, "one").unwrap();
        assert_eq!(old, [pilot(0), pilot(1)]);
        journal.append(&pilot(2)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(Journal::open(&path, "two").err().unwrap().to_string().contains("`resume`"));
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Journal::open(&path, "one").err().unwrap().to_string().contains("line 1"));
    }
}
