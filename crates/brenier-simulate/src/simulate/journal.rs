//! The journal of a run: finished rows, appended as they come, so that a kill at any moment loses only work in hand.
//!
//! A line of JSON says what the journal belongs to. Records follow: length and checksum (4 bytes each), then a kind
//! (1 byte), the number of abandoned draws and the first row (8 bytes each), then the rows' values, or the parameters
//! of a failed row and the reason in words; numbers are little-endian. A record cut short by a kill ends the journal.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::run::FailedRow;
use crate::{Error, Journal as Plan, Result};

/// Finished rows one after the other, or one failed row, with the draws abandoned for them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Rows { row: u64, abandoned: u64, values: Vec<f64> },
    Failure { abandoned: u64, failure: FailedRow },
}

#[derive(Serialize, Deserialize)]
struct Header {
    kind: String,
    identity: String,
}

const KIND: &str = "brenier simulation journal 1";
/// Longest first line that is read.
const LONGEST_HEADER: usize = 4096;

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Record {
    pub(super) fn abandoned(&self) -> u64 {
        match self {
            Record::Rows { abandoned, .. } | Record::Failure { abandoned, .. } => *abandoned,
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (kind, abandoned, row, values, reason) = match self {
            Record::Rows { row, abandoned, values } => (0, abandoned, row, values, ""),
            Record::Failure { abandoned, failure } => {
                (1, abandoned, &failure.row, &failure.parameters, failure.reason.as_str())
            }
        };
        let mut bytes = vec![0; 8];
        bytes.push(kind);
        bytes.extend(abandoned.to_le_bytes());
        bytes.extend(row.to_le_bytes());
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes.extend(reason.as_bytes());
        let length = (bytes.len() - 8) as u32;
        let sum = checksum(&bytes[8..]);
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record at the start of `bytes` and its length; `None` where it is cut short or damaged.
    fn parse(bytes: &[u8], dim: usize, width: usize, rows: &Range<u64>) -> Option<(Record, usize)> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let length = word(0)? as usize;
        let payload = bytes.get(8..8 + length)?;
        if checksum(payload) != word(4)? {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        let (kind, abandoned, row) = (*payload.first()?, number(1)?, number(9)?);
        let rest = payload.get(17..)?;
        let numbers = |bytes: &[u8]| -> Vec<f64> {
            bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap_or_default())).collect()
        };
        let (record, count) = if kind == 0 {
            let count = rest.len() / (8 * width);
            (Record::Rows { row, abandoned, values: numbers(&rest[..count * 8 * width]) }, count)
        } else {
            let reason = String::from_utf8_lossy(rest.get(8 * dim..)?).into_owned();
            let parameters = numbers(&rest[..8 * dim]);
            (Record::Failure { abandoned, failure: FailedRow { row, parameters, reason } }, 1)
        };
        let inside = row >= rows.start && row.checked_add(count as u64)? <= rows.end;
        inside.then_some((record, 8 + length))
    }
}

/// FNV-1a, which tells a half-written record from a whole one.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

impl Journal {
    /// Opens the journal for rows of `width` values, the first `dim` of them parameters, and reads what it holds.
    pub(super) fn open(
        plan: &Plan,
        identity: &str,
        dim: usize,
        width: usize,
        rows: &Range<u64>,
    ) -> Result<(Self, Vec<Record>)> {
        let path = &plan.path;
        let failed = |source| Error::io(path, "keep the journal", source);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(!plan.resume)
            .open(path)
            .map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let header_end = bytes.iter().take(LONGEST_HEADER).position(|&byte| byte == b'\n');
        let mut records = Vec::new();
        let end = match header_end {
            // Nothing yet, or a kill while the first line was written.
            None if bytes.len() < LONGEST_HEADER && (bytes.is_empty() || bytes[0] == b'{') => {
                let header = Header { kind: KIND.into(), identity: identity.into() };
                let mut line = serde_json::to_vec(&header).expect("a header is plain data");
                line.push(b'\n');
                file.set_len(0).map_err(failed)?;
                file.rewind().map_err(failed)?;
                file.write_all(&line).map_err(failed)?;
                line.len()
            }
            None => return Err(Error::model(path, "is not a journal of simulations: delete it")),
            Some(header_end) => {
                let header: Option<Header> = serde_json::from_slice(&bytes[..header_end]).ok();
                match header {
                    Some(header) if header.kind == KIND && header.identity == identity => {}
                    Some(header) if header.kind == KIND => {
                        return Err(Error::model(
                            path,
                            "belongs to a run with other settings; repeat the original command, or delete the file \
                             and run without `resume`",
                        ));
                    }
                    _ => return Err(Error::model(path, "is not a journal of simulations: delete it")),
                }
                let mut end = header_end + 1;
                let mut seen = std::collections::HashSet::new();
                while let Some((record, length)) = Record::parse(&bytes[end..], dim, width, rows) {
                    end += length;
                    let key = match &record {
                        Record::Rows { row, .. } => *row,
                        Record::Failure { failure, .. } => failure.row,
                    };
                    if seen.insert(key) {
                        records.push(record);
                    }
                }
                end
            }
        };
        file.set_len(end as u64).map_err(failed)?;
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok((Self { path: path.clone(), file }, records))
    }

    /// Adds a record in one write.
    pub(super) fn append(&mut self, record: &Record) -> Result<()> {
        self.file
            .write_all(&record.to_bytes())
            .map_err(|source| Error::io(&self.path, "add rows to the journal", source))
    }
}
