//! The journals of a search: one JSON object per line, written in one piece and flushed to disk.
//!
//! A search by one process has `journal.jsonl`; every process of a joined search has one of its own beside it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::join::host;
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
    pub(super) fn job(&self) -> Option<Job> {
        match self {
            Self::Search { .. } => None,
            Self::Pilot(pilot) => Some(Job::Pilot { trial: pilot.trial, rung: pilot.rung }),
            Self::Final(training) => Some(Job::Final { trial: training.trial, repeat: training.repeat }),
        }
    }
}

pub(super) struct Journal {
    path: PathBuf,
    file: File,
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
            read: BTreeMap::new(),
        };
        let entries = others.read()?;
        let single = folder.join("journal.jsonl");
        let (path, opened) = if joined {
            let unused =
                || (0..).map(|number| format!("journal-{}-{}-{number}.jsonl", host(), std::process::id()));
            unused()
                .map(|name| folder.join(name))
                .map(|path| (path.clone(), OpenOptions::new().create_new(true).append(true).open(path)))
                .find(|(_, opened)| {
                    opened.as_ref().err().map(std::io::Error::kind) != Some(ErrorKind::AlreadyExists)
                })
                .expect("some number is free")
        } else {
            let opened = OpenOptions::new().create(true).append(true).open(&single);
            (single, opened)
        };
        let failed = |source| Error::io(&path, "write the journal", source);
        let file = opened.map_err(failed)?;
        let whole = others.read.get(&path).copied().unwrap_or(0);
        file.set_len(whole).map_err(failed)?;
        others.own = Some(path.clone());
        let mut journal = Self { path, file, others };
        if whole == 0 {
            journal.append(&Entry::Search { identity: identity.to_owned() })?;
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
    read: BTreeMap<PathBuf, u64>,
}

impl Others {
    /// What has been added to them, journal by journal.
    pub(super) fn read(&mut self) -> Result<Vec<Entry>> {
        let mut paths: Vec<PathBuf> = match fs::read_dir(&self.folder) {
            Ok(found) => {
                found.filter_map(|file| Some(file.ok()?.path())).filter(|path| is_journal(path)).collect()
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::io(&self.folder, "read the folder", source)),
        };
        paths.retain(|path| self.own.as_ref() != Some(path));
        paths.sort();
        let mut entries = Vec::new();
        for path in paths {
            let from = self.read.get(&path).copied().unwrap_or(0);
            let new =
                new_lines(&path, from).map_err(|source| Error::io(&path, "read the journal", source))?;
            for (number, line) in
                new.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
            {
                let entry = serde_json::from_slice(line).map_err(|error| {
                    let place = if from == 0 { format!("line {}", number + 1) } else { "a line".to_owned() };
                    Error::table(&path, format!("{place} of the journal is damaged: {error}"))
                })?;
                match (&entry, from == 0 && number == 0) {
                    (Entry::Search { identity }, true) if *identity == self.identity => {}
                    (_, true) => {
                        return Err(Error::table(
                            &path,
                            "is the journal of a search with other settings or other data; repeat the original command, or \
                             leave out `resume`",
                        ));
                    }
                    _ => entries.push(entry),
                }
            }
            self.read.insert(path, from + new.len() as u64);
        }
        Ok(entries)
    }
}

/// The whole lines of a file from a byte on.
fn new_lines(path: &Path, from: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1));
    Ok(bytes)
}

fn is_journal(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        name == "journal.jsonl" || (name.starts_with("journal-") && name.ends_with(".jsonl"))
    })
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
        assert!(Journal::open(folder, "one", false).err().unwrap().to_string().contains("line 1"));
    }

    #[test]
    fn processes_read_the_whole_lines_of_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let (mut first, _) = Journal::open(folder, "one", true).unwrap();
        let (mut second, old) = Journal::open(folder, "one", true).unwrap();
        assert!(old.is_empty() && first.path != second.path);
        let mut others = second.others();
        first.append(&pilot(0)).unwrap();
        second.append(&pilot(1)).unwrap();
        assert_eq!(others.read().unwrap(), [pilot(0)]);
        first.file.write_all(b"{\"entry\":").unwrap();
        assert!(others.read().unwrap().is_empty());
        // One process that continues alone finds all that was finished.
        let (_, all) = Journal::open(folder, "one", false).unwrap();
        assert_eq!(all, [pilot(0), pilot(1)]);
        assert!(Journal::open(folder, "two", true).is_err());
    }
}
