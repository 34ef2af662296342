//! A look at Parquet's headers before its decoder sees them.
//!
//! Headers are structures in Thrift's compact protocol. The decoder passes over a field that it does not know by passing
//! over its elements one by one, and it takes no bytes for an element that is a boolean: seven bytes that declare two
//! thousand million booleans keep it busy for seconds. No header of Parquet holds such a list, so one is a sign of damage.
//! So is a long list of doubles that the end of the file cuts short: the decoder asks the file for each of those missing.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use ::bytes::Bytes;
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};

/// The end of a file: the length of the footer and the magic number.
const TAIL: u64 = 8;
/// Deeper than any header.
const DEEPEST: u32 = 64;

/// A Parquet file whose headers are looked at when the decoder asks for them.
pub(super) struct Inspected(pub(super) File);

impl Length for Inspected {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Inspected {
    type T = BufReader<File>;

    /// The decoder reads a page's header from here, or the last bytes of the file.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut reader = self.0.get_read(start)?;
        if start.saturating_add(TAIL) != self.len() {
            inspect(&mut reader)?;
            reader.seek(SeekFrom::Start(start))?;
        }
        Ok(reader)
    }

    /// The decoder takes the contents of pages from here, and the footer, which ends where the last bytes begin.
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start.checked_add(length as u64).filter(|&end| end <= self.len());
        let end = end.ok_or_else(|| ParquetError::EOF(format!("{length} bytes at {start} are not there")))?;
        let bytes = self.0.get_bytes(start, length)?;
        if end + TAIL == self.len() {
            inspect(&mut &bytes[..])?;
        }
        Ok(bytes)
    }
}

/// Refuses a structure with many booleans, or more doubles than there are, in a list, set or map. Other faults are left
/// to the decoder.
fn inspect(input: &mut impl BufRead) -> Result<()> {
    match structure(input, DEEPEST) {
        Err(fault) if fault.kind() == io::ErrorKind::InvalidData => {
            Err(ParquetError::General("a header declares a list that Parquet does not have".into()))
        }
        _ => Ok(()),
    }
}

/// Types of the compact protocol.
const STOP: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INTEGERS: std::ops::RangeInclusive<u8> = 4..=6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// Something that the decoder will refuse.
fn strange() -> io::Error {
    io::ErrorKind::Other.into()
}

fn structure(input: &mut impl BufRead, depth: u32) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(strange)?;
    loop {
        let head = byte(input)?;
        if head & 0x0f == STOP {
            return Ok(());
        }
        if head >> 4 == 0 {
            number(input)?; // the field's identifier in full
        }
        match head & 0x0f {
            TRUE | FALSE => {} // the type is the value
            kind => value(input, kind, depth)?,
        }
    }
}

fn value(input: &mut impl BufRead, kind: u8, depth: u32) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(strange)?;
    match kind {
        BYTE => skip(input, 1),
        kind if INTEGERS.contains(&kind) => number(input).map(drop),
        DOUBLE => skip(input, 8),
        BINARY => {
            let length = number(input)?;
            skip(input, length)
        }
        UUID => skip(input, 16),
        STRUCT => structure(input, depth),
        LIST | SET => {
            let head = byte(input)?;
            let count = match head >> 4 {
                15 => number(input)?,
                count => count.into(),
            };
            elements(input, count, &[head & 0x0f], depth)
        }
        MAP => match number(input)? {
            0 => Ok(()),
            count => {
                let kinds = byte(input)?;
                elements(input, count, &[kinds >> 4, kinds & 0x0f], depth)
            }
        },
        _ => Err(strange()),
    }
}

fn elements(input: &mut impl BufRead, count: u64, kinds: &[u8], depth: u32) -> io::Result<()> {
    const MANY: u64 = 1 << 16;
    if count > MANY && kinds.iter().all(|kind| matches!(*kind, TRUE | FALSE)) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    for _ in 0..count {
        for &kind in kinds.iter().filter(|kind| !matches!(**kind, TRUE | FALSE)) {
            value(input, kind, depth).map_err(|fault| match (fault.kind(), kind) {
                (io::ErrorKind::UnexpectedEof, DOUBLE | UUID) if count > MANY => {
                    io::ErrorKind::InvalidData.into()
                }
                _ => fault,
            })?;
        }
    }
    Ok(())
}

fn byte(input: &mut impl BufRead) -> io::Result<u8> {
    let mut byte = [0];
    input.read_exact(&mut byte)?;
    Ok(byte[0])
}

/// A number of seven bits a byte, the lowest first.
fn number(input: &mut impl BufRead) -> io::Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let next = byte(input)?;
        number |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(strange())
}

fn skip(input: &mut impl BufRead, count: u64) -> io::Result<()> {
    match io::copy(&mut input.take(count), &mut io::sink())? {
        skipped if skipped == count => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_booleans_are_refused_and_all_else_is_left_to_the_decoder() {
        let refused = |bytes: &[u8]| inspect(&mut &*bytes).is_err();
        let many = [0xff, 0xff, 0xff, 0xff, 0x07];
        for start in [
            &[0x19, 0xf1][..],                     // field 1, a list of booleans
            &[0x1a, 0xf2],                         // a set
            &[0x15, 0x02, 0x19, 0xf1],             // after an integer
            &[0x18, 0x01, 0x00, 0x09, 0x02, 0xf1], // after a text, with the identifier in full
            &[0x1c, 0x19, 0xf1],                   // in a structure
            &[0x19, 0x29, 0xf1],                   // in a list of lists
        ] {
            assert!(refused(&[start, &many].concat()), "{start:x?}");
            // The same cut short is the decoder's business.
            assert!(!refused(start), "{start:x?}");
        }
        assert!(refused(&[&[0x1b][..], &many, &[0x12]].concat()));
        // Doubles that are not there, in a list and as the keys of a map.
        assert!(refused(&[&[0x19, 0xf7][..], &many, &[0; 20]].concat()));
        assert!(refused(&[&[0x1b][..], &many, &[0x71], &[0; 20]].concat()));
        let few = [0x19, 0xf1, 0x05, 0x00];
        let integers = [&[0x19, 0xf5][..], &many].concat();
        let deep = [0x1c; 200];
        for fine in [&[][..], &[0x00], &few, &integers, &deep, b"PAR1", &[0x1f; 9], &[0x15; 40]] {
            assert!(!refused(fine), "{fine:x?}");
        }
    }
}
