//! The journal of a run: a [log](crate::data::Log) of finished rows.
//!
//! A record is its length and checksum (4 bytes each), then a kind (1 byte), the number of abandoned draws and the first row
//! (8 bytes each), then the rows' values, or the parameters of a failed row and the reason in words; numbers are little-endian.

use std::ops::Range;

use super::run::FailedRow;
use crate::Result;
use crate::data::LogFormat;

/// Finished rows one after the other, or one failed row, with the draws abandoned for them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Rows { row: u64, abandoned: u64, values: Vec<f64> },
    Failure { abandoned: u64, failure: FailedRow },
}

/// Rows of `width` values, the first `dim` of them parameters, with numbers in `rows`.
#[derive(Clone, Debug)]
pub(super) struct RowFormat {
    pub(super) dim: usize,
    pub(super) width: usize,
    pub(super) rows: Range<u64>,
}

impl LogFormat for RowFormat {
    type Record = Record;

    fn kind(&self) -> &str {
        "journal of a simulation"
    }

    fn to_bytes(&self, record: &Record) -> Vec<u8> {
        record.to_bytes()
    }

    /// A damaged record ends the journal: its rows are simulated again.
    fn parse(&self, bytes: &[u8]) -> Result<Option<(Record, usize)>, String> {
        Ok(Record::parse(bytes, self.dim, self.width, &self.rows))
    }
}

impl Record {
    pub(super) fn abandoned(&self) -> u64 {
        match self {
            Record::Rows { abandoned, .. } | Record::Failure { abandoned, .. } => *abandoned,
        }
    }

    /// The number of its first row.
    pub(super) fn row(&self) -> u64 {
        match self {
            Record::Rows { row, .. } => *row,
            Record::Failure { failure, .. } => failure.row,
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
