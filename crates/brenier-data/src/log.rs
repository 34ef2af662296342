//! Logs: files of finished work, appended piece by piece, so that a kill at any moment loses only work in hand.
//!
//! The first line is a JSON object and says what the log holds (`kind`) and what that depends on (`identity`). Records follow,
//! in the bytes that their [`LogFormat`] gives them. A record cut short by a kill ends the log.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest first line that is read.
const LONGEST_HEADER: usize = 4096;

/// How records are written.
pub trait LogFormat {
    /// A piece of finished work.
    type Record;

    /// What the log holds, as in "journal of simulations".
    fn kind(&self) -> &str;

    /// The bytes of a record.
    fn to_bytes(&self, record: &Self::Record) -> Vec<u8>;

    /// The record at the start of `bytes` and its length, or nothing where it is cut short. An error says what is wrong with it.
    fn parse(&self, bytes: &[u8]) -> Result<Option<(Self::Record, usize)>, String>;
}

#[derive(Serialize, Deserialize)]
struct Header {
    kind: String,
    identity: String,
}

/// A log that is read as it grows.
#[derive(Clone, Debug)]
pub struct LogReader<F> {
    format: F,
    path: PathBuf,
    identity: String,
    /// Bytes that have been read.
    read: u64,
}

impl<F: LogFormat> LogReader<F> {
    /// Nothing has been read yet.
    pub fn new(format: F, path: impl AsRef<Path>, identity: &str) -> Self {
        Self { format, path: path.as_ref().to_owned(), identity: identity.to_owned(), read: 0 }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole records that have been added. A file that does not exist has none; a log of something else is an error.
    pub fn news(&mut self) -> Result<Vec<F::Record>> {
        let bytes = self.bytes().map_err(|source| Error::io(&self.path, "read the journal", source))?;
        let mut at = 0;
        if self.read == 0 {
            match bytes.iter().take(LONGEST_HEADER).position(|&byte| byte == b'\n') {
                Some(end) => {
                    self.check(&bytes[..end])?;
                    at = end + 1;
                }
                // Nothing yet, or a kill while the first line was written.
                None if bytes.len() < LONGEST_HEADER && bytes.first().is_none_or(|&first| first == b'{') => {
                    return Ok(Vec::new());
                }
                None => return Err(self.stranger()),
            }
        }
        let mut records = Vec::new();
        let damaged = |problem| Error::table(&self.path, format!("a record is damaged: {problem}"));
        while let Some((record, length)) = self.format.parse(&bytes[at..]).map_err(damaged)? {
            records.push(record);
            at += length;
        }
        self.read += at as u64;
        Ok(records)
    }

    fn bytes(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.read))?;
                file.read_to_end(&mut bytes)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(bytes)
    }

    fn check(&self, line: &[u8]) -> Result<()> {
        match serde_json::from_slice::<Header>(line) {
            Ok(header) if header.kind != self.format.kind() => Err(self.stranger()),
            Ok(header) if header.identity != self.identity => Err(Error::table(
                &self.path,
                format!(
                    "is the {} with other settings or other data; repeat the original command, or delete the file and \
                     run without `resume`",
                    header.kind
                ),
            )),
            Ok(_) => Ok(()),
            Err(_) => Err(self.stranger()),
        }
    }

    fn stranger(&self) -> Error {
        Error::table(&self.path, format!("is not the {}: delete it", self.format.kind()))
    }
}

/// A log to which records are appended.
#[derive(Debug)]
pub struct Log<F> {
    format: F,
    path: PathBuf,
    file: File,
}

impl<F: LogFormat + Clone> Log<F> {
    /// Opens the log, or makes it, and reads what it holds. Without `resume` it is begun anew.
    pub fn open(
        format: F,
        path: impl AsRef<Path>,
        identity: &str,
        resume: bool,
    ) -> Result<(Self, Vec<F::Record>)> {
        let path = path.as_ref();
        let mut reader = LogReader::new(format.clone(), path, identity);
        let records = if resume { reader.news()? } else { Vec::new() };
        let failed = |source| Error::io(path, "write the journal", source);
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        file.set_len(reader.read).map_err(failed)?;
        let mut log = Self { format, path: path.to_owned(), file };
        if reader.read == 0 {
            log.begin(identity)?;
        }
        Ok((log, records))
    }

    /// A log in a new file; none where there is such a file already.
    pub fn create(format: F, path: impl AsRef<Path>, identity: &str) -> Result<Option<Self>> {
        let path = path.as_ref().to_owned();
        match OpenOptions::new().create_new(true).append(true).open(&path) {
            Ok(file) => {
                let mut log = Self { format, path, file };
                log.begin(identity)?;
                Ok(Some(log))
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(source) => Err(Error::io(&path, "write the journal", source)),
        }
    }

    fn begin(&mut self, identity: &str) -> Result<()> {
        let header = Header { kind: self.format.kind().to_owned(), identity: identity.to_owned() };
        let mut line = serde_json::to_vec(&header).expect("a header is plain data");
        line.push(b'\n');
        self.write(&line)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a record in one write.
    pub fn append(&mut self, record: &F::Record) -> Result<()> {
        self.write(&self.format.to_bytes(record))
    }

    /// Waits until all is on the disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| Error::io(&self.path, "write the journal", source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|source| Error::io(&self.path, "write the journal", source))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    /// Words, each after its length.
    #[derive(Clone, Copy, Debug)]
    struct Words;

    impl LogFormat for Words {
        type Record = String;

        fn kind(&self) -> &str {
            "journal of words"
        }

        fn to_bytes(&self, word: &String) -> Vec<u8> {
            [&[word.len() as u8], word.as_bytes()].concat()
        }

        fn parse(&self, bytes: &[u8]) -> Result<Option<(String, usize)>, String> {
            let Some((&length, rest)) = bytes.split_first() else { return Ok(None) };
            let Some(word) = rest.get(..length as usize) else { return Ok(None) };
            let word = std::str::from_utf8(word).map_err(|_| "it is no text".to_owned())?;
            Ok(Some((word.to_owned(), 1 + word.len())))
        }
    }

    fn open(path: &Path, identity: &str, resume: bool) -> Result<(Log<Words>, Vec<String>)> {
        Log::open(Words, path, identity, resume)
    }

    #[test]
    fn whatever_a_kill_leaves_the_whole_records_are_read_and_the_log_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let words = ["one", "", "three"].map(str::to_owned);
        let (mut log, none) = open(&path, "a", true).unwrap();
        assert!(none.is_empty());
        words.iter().for_each(|word| log.append(word).unwrap());
        log.sync().unwrap();
        let bytes = fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let (mut log, found) = open(&path, "a", true).unwrap();
            assert_eq!(found, words[..found.len()], "{cut}");
            words[found.len()..].iter().for_each(|word| log.append(word).unwrap());
            assert_eq!(fs::read(&path).unwrap(), bytes, "{cut}");
        }
        assert_eq!(open(&path, "a", true).unwrap().1, words);
        assert!(open(&path, "a", false).unwrap().1.is_empty());
        assert!(open(&path, "a", true).unwrap().1.is_empty());
    }

    #[test]
    fn readers_see_what_is_added_and_only_whole_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut reader = LogReader::new(Words, &path, "a");
        assert!(reader.news().unwrap().is_empty());
        let mut log = Log::create(Words, &path, "a").unwrap().unwrap();
        assert!(Log::create(Words, &path, "a").unwrap().is_none());
        assert!(reader.news().unwrap().is_empty());
        log.append(&"one".to_owned()).unwrap();
        log.file.write_all(b"\x03tw").unwrap();
        assert_eq!(reader.news().unwrap(), ["one"]);
        log.file.write_all(b"o").unwrap();
        assert_eq!(reader.news().unwrap(), ["two"]);
        assert!(reader.news().unwrap().is_empty());
    }

    #[test]
    fn other_files_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        open(&path, "a", true).unwrap();
        let own = fs::read(&path).unwrap();
        let error = open(&path, "b", true).unwrap_err().to_string();
        assert!(error.contains("journal of words with other settings or other data"), "{error}");
        for other in [b"x,y\n1,2\n".to_vec(), b"no line".to_vec(), vec![b'{'; 5000], b"{}\n".to_vec()] {
            fs::write(&path, &other).unwrap();
            let error = open(&path, "a", true).unwrap_err().to_string();
            assert!(error.contains("is not the journal of words: delete it"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), other);
        }
        fs::write(&path, [&own[..], b"\x01\xff"].concat()).unwrap();
        let error = open(&path, "a", true).unwrap_err().to_string();
        assert!(error.contains("a record is damaged: it is no text"), "{error}");
    }
}
