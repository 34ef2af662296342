//! The journals of a search: [logs](crate::data::Log) with one JSON object per line, flushed to disk.
//!
//! A search by one process has `journal.jsonl`; every process of a joined search has one of its own beside it.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::join::host;
use super::{Final, Pilot};
use crate::data::{Log, LogFormat, LogReader};
use crate::{Error, Result};

/// A line after the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    Pilot(Pilot),
    Final(Final),
}

/// One JSON object per line.
#[derive(Clone, Copy, Debug)]
struct Lines;

impl LogFormat for Lines {
    type Record = Entry;

    fn kind(&self) -> &str {
        "journal of a search"
    }

    fn to_bytes(&self, entry: &Entry) -> Vec<u8> {
        let mut line = serde_json::to_vec(entry).expect("entries are plain data");
        line.push(b'\n');
        line
    }

    fn parse(&self, bytes: &[u8]) -> Result<Option<(Entry, usize)>, String> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        let entry = serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        Ok(Some((entry, end + 1)))
    }
}

/// A training of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Job {
    Pilot { trial: usize, rung: usize },
    Final { trial: usize, repeat: usize },
}

impl Job {
    /// Its name in the folder.
    pub(super) fn name(self) -> String {
        match self {
            Self::Pilot { trial, rung } => format!("pilot-{trial:04}-{rung}"),
            Self::Final { trial, repeat } => format!("final-{trial:04}-{repeat}"),
        }
    }
}

impl Entry {
    /// The training that ended.
    pub(super) fn job(&self) -> Job {
        match self {
            Self::Pilot(pilot) => Job::Pilot { trial: pilot.trial, rung: pilot.rung },
            Self::Final(training) => Job::Final { trial: training.trial, repeat: training.repeat },
        }
    }
}

pub(super) struct Journal {
    log: Log<Lines>,
    others: Others,
}

impl Journal {
    /// Opens the journal of this process in `folder`, and returns what all journals hold of this search. A last line cut short by
    /// a kill is dropped; a journal of another search is an error.
    pub(super) fn open(folder: &Path, identity: &str, joined: bool) -> Result<(Self, Vec<Entry>)> {
        let mut others = Others {
            folder: folder.to_owned(),
            own: None,
            identity: identity.to_owned(),
            journals: BTreeMap::new(),
        };
        let entries = others.read()?;
        let log = if joined {
            let unused =
                (0..).map(|number| format!("journal-{}-{}-{number}.jsonl", host(), std::process::id()));
            let mut made = unused.map(|name| Log::create(Lines, folder.join(name), identity));
            made.find_map(Result::transpose).expect("some number is free")?
        } else {
            // What it holds has been read with the others.
            Log::open(Lines, folder.join(SINGLE), identity, true)?.0
        };
        others.own = Some(log.path().to_owned());
        Ok((Self { log, others }, entries))
    }

    pub(super) fn append(&mut self, entry: &Entry) -> Result<()> {
        self.log.append(entry)?;
        self.log.sync()
    }

    /// The journals of other processes, from where they were when this one was opened.
    pub(super) fn others(&self) -> Others {
        self.others.clone()
    }
}

/// The journals of a folder but for that of this process, and how far they have been read.
#[derive(Clone)]
pub(super) struct Others {
    folder: PathBuf,
    own: Option<PathBuf>,
    identity: String,
    journals: BTreeMap<PathBuf, LogReader<Lines>>,
}

impl Others {
    /// What has been added to them, journal by journal.
    pub(super) fn read(&mut self) -> Result<Vec<Entry>> {
        let found = match fs::read_dir(&self.folder) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::io(&self.folder, "read the folder", source)),
        };
        for path in found.filter_map(|file| Some(file.ok()?.path())).filter(|path| is_journal(path)) {
            let reader = || LogReader::new(Lines, &path, &self.identity);
            self.journals.entry(path.clone()).or_insert_with(reader);
        }
        let mut entries = Vec::new();
        for (path, journal) in &mut self.journals {
            if self.own.as_ref() != Some(path) {
                entries.extend(journal.news()?);
            }
        }
        Ok(entries)
    }
}

/// The journal of a search by one process.
const SINGLE: &str = "journal.jsonl";

fn is_journal(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == SINGLE || (name.starts_with("journal-") && name.ends_with(".jsonl")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn pilot(trial: usize) -> Entry {
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
        let (folder, path) = (folder.path(), folder.path().join("journal.jsonl"));
        let (mut journal, old) = Journal::open(folder, "one", false).unwrap();
        assert!(old.is_empty());
        (0..3).for_each(|trial| journal.append(&pilot(trial)).unwrap());
        drop(journal);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
        let (mut journal, old) = Journal::open(folder, "one", false).unwrap();
        assert_eq!(old, [pilot(0), pilot(1)]);
        journal.append(&pilot(2)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert!(Journal::open(folder, "two", false).err().unwrap().to_string().contains("`resume`"));
        std::fs::write(&path, "{}\n").unwrap();
        assert!(Journal::open(folder, "one", false).err().unwrap().to_string().contains("delete it"));
        std::fs::write(&path, [&bytes[..], b"{}\n"].concat()).unwrap();
        assert!(Journal::open(folder, "one", false).err().unwrap().to_string().contains("damaged"));
    }

    #[test]
    fn processes_read_the_whole_lines_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (mut first, _) = Journal::open(folder, "one", true).unwrap();
        let (mut second, old) = Journal::open(folder, "one", true).unwrap();
        assert!(old.is_empty() && first.log.path() != second.log.path());
        let mut others = second.others();
        first.append(&pilot(0)).unwrap();
        second.append(&pilot(1)).unwrap();
        assert_eq!(others.read().unwrap(), [pilot(0)]);
        assert!(others.read().unwrap().is_empty());
        // One process that continues alone finds all that was finished.
        let (_, all) = Journal::open(folder, "one", false).unwrap();
        assert_eq!(all, [pilot(0), pilot(1)]);
        assert!(Journal::open(folder, "two", true).is_err());
    }
}
