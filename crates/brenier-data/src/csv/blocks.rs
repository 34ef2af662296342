//! Plain lines of numbers, parsed in pieces side by side.
//!
//! A piece is some lines of the text. Where each of them holds as many fields as the header and a number in every chosen column,
//! the numbers are all there is to it. Any other piece goes to the reader of records, which knows quotation marks, empty lines
//! and missing cells, and what to say of a mistake.

use std::io::{self, Cursor, Read as _};

use ::csv::ByteRecord;
use memchr::{memchr, memchr_iter};
use rayon::prelude::*;

use super::{Body, Cell, Delimiter, Records, read_error};
use crate::Result;

/// Bytes of text that are read, and then parsed, at a time; few in tests, so that short texts have several.
const BLOCK: usize = if cfg!(test) { 1 << 7 } else { 1 << 23 };
/// Bytes of a piece, at least.
const PIECE: usize = BLOCK >> 6;

impl Body<'_> {
    /// Reads all of `input`, which begins with a line and whose fields `mark` separates.
    pub(super) fn read_blocks(&mut self, mut input: impl io::Read, mark: u8) -> Result<()> {
        if self.header.len() == 1 || (0..self.chosen.len()).any(|j| self.rows.is_categorical(j)) {
            return self.read_text(input, mark);
        }
        let mut text = Vec::new();
        loop {
            let wanted = (BLOCK - text.len()) as u64;
            (&mut input)
                .take(wanted)
                .read_to_end(&mut text)
                .map_err(|error| read_error(self.rows.path, error))?;
            let whole = text.len() < BLOCK;
            let end = match text.iter().rposition(|&byte| byte == b'\n') {
                _ if whole => text.len(),
                Some(last) => last + 1,
                // No line is that long, or lines end otherwise.
                None => return self.read_text(Cursor::new(text).chain(input), mark),
            };
            let pieces = pieces(&text[..end]);
            let numbers: Vec<Option<Vec<f64>>> =
                pieces.par_iter().map(|piece| self.plain_numbers(piece, mark)).collect();
            let mut start = 0;
            for (piece, numbers) in pieces.into_iter().zip(numbers) {
                match numbers {
                    Some(numbers) => {
                        let count = numbers.len() / self.chosen.len();
                        self.rows.values.extend_from_slice(&numbers);
                        self.rows.seen += count;
                        self.lines += count as u64;
                    }
                    // What is quoted may end in another piece.
                    None if piece.contains(&b'"') => {
                        return self.read_text(Cursor::new(&text[start..]).chain(input), mark);
                    }
                    None => {
                        self.read_text(piece, mark)?;
                        self.lines += piece.iter().filter(|&&byte| byte == b'\n').count() as u64;
                    }
                }
                start += piece.len();
            }
            if whole {
                return Ok(());
            }
            text.drain(..end);
        }
    }

    /// Reads the records of `text`, one after the other.
    fn read_text(&mut self, text: impl io::Read, mark: u8) -> Result<()> {
        let mut records = Records::new(text, Delimiter::Byte(mark));
        self.read_records(&mut records, &mut ByteRecord::new(), false)
    }

    /// The numbers of the chosen columns, row by row, if the lines hold nothing out of the ordinary.
    fn plain_numbers(&self, piece: &[u8], mark: u8) -> Option<Vec<f64>> {
        if piece.contains(&b'"') {
            return None;
        }
        let returns = piece.contains(&b'\r');
        let mut numbers = Vec::new();
        let mut ends = Vec::with_capacity(self.header.len());
        let mut rest = piece;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            if line.is_empty() || (returns && line.contains(&b'\r')) {
                return None;
            }
            ends.clear();
            ends.extend(memchr_iter(mark, line));
            ends.push(line.len());
            if ends.len() != self.header.len() {
                return None;
            }
            if numbers.is_empty() {
                numbers.reserve(self.chosen.len() * (piece.len() / line.len() + 1));
            }
            for &column in &self.chosen {
                let begin = if column == 0 { 0 } else { ends[column - 1] + 1 };
                let Cell::Number(value) = self.dialect.cell(&line[begin..ends[column]]) else { return None };
                numbers.push(value);
            }
        }
        Some(numbers)
    }
}

/// Cuts text behind the first line break after every [`PIECE`] bytes.
fn pieces(mut text: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(text.len() / PIECE + 1);
    while !text.is_empty() {
        let from = PIECE.min(text.len());
        let end = text[from..].iter().position(|&byte| byte == b'\n').map_or(text.len(), |at| from + at + 1);
        let (piece, rest) = text.split_at(end);
        pieces.push(piece);
        text = rest;
    }
    pieces
}
