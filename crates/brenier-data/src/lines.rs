//! Lines of delimited text: records, the fields in them and the lines they begin on.

use std::io::{self, BufRead, BufReader, Read as _};

use ::csv::{ByteRecord, Reader, ReaderBuilder};

/// Bytes of a line, and fields of a record, beyond which a file is taken for one that is not a table.
pub(super) const LONGEST_LINE: usize = 1 << 26;
const MOST_FIELDS: usize = 1 << 20;

fn too_long() -> io::Error {
    let text = "a line has more than 64 MB or a million fields: is this really a text table?";
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// What stands between the fields of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Delimiter {
    Byte(u8),
    Blanks,
}

/// A stream of records that knows on which line each begins.
pub(super) enum Records<R> {
    Marked(Box<Reader<PlainLines<R>>>),
    Blanks { input: BufReader<R>, text: Vec<u8>, line: u64 },
}

impl<R: io::Read> Records<R> {
    pub(super) fn new(input: R, delimiter: Delimiter) -> Self {
        const BUFFER: usize = 1 << 17;
        match delimiter {
            Delimiter::Byte(mark) => {
                let mut builder = ReaderBuilder::new();
                builder.has_headers(false).flexible(true).delimiter(mark).buffer_capacity(BUFFER);
                Records::Marked(Box::new(builder.from_reader(PlainLines::new(input, mark))))
            }
            Delimiter::Blanks => {
                let input = BufReader::with_capacity(BUFFER, input);
                Records::Blanks { input, text: Vec::new(), line: 0 }
            }
        }
    }

    /// Reads the next record that is not an empty line, if there is one.
    pub(super) fn next(&mut self, record: &mut ByteRecord) -> io::Result<bool> {
        match self {
            Records::Marked(reader) => Ok(reader.read_byte_record(record)?),
            Records::Blanks { input, text, line } => loop {
                text.clear();
                if input.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', text)? == 0 {
                    return Ok(false);
                }
                *line += 1;
                if text.len() > LONGEST_LINE || !split_blanks(text, record) {
                    return Err(too_long());
                }
                if !record.is_empty() {
                    return Ok(true);
                }
            },
        }
    }

    /// The line on which `record`, the last one read, begins, counted from 1.
    pub(super) fn line(&self, record: &ByteRecord) -> u64 {
        match self {
            // The reader stands behind the line break of the record, and quoted fields may hold others.
            Records::Marked(reader) => {
                let inside = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
                reader.position().line().saturating_sub(1 + inside)
            }
            Records::Blanks { line, .. } => *line,
        }
    }
}

/// Passes text on with line breaks `\n` for `\r\n` and one more at the end, so that every record ends in one: the
/// csv crate counts a line when it meets the `\n`, which for `\r\n` is a record late.
pub(super) struct PlainLines<R> {
    inner: R,
    /// A `\r` at the end of the last block, kept until its successor is known.
    held: bool,
    ended: bool,
    /// What separates fields, and how many of these and of all bytes the present line has had.
    mark: u8,
    marks: usize,
    length: usize,
}

impl<R> PlainLines<R> {
    fn new(inner: R, mark: u8) -> Self {
        Self { inner, held: false, ended: false, mark, marks: 0, length: 0 }
    }

    /// Refuses a line without end. Marks and breaks inside quotation marks count too: they make no difference here.
    fn watch(&mut self, text: &[u8]) -> io::Result<()> {
        let count = |text: &[u8]| text.iter().filter(|byte| **byte == self.mark).count();
        match text.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) {
            Some(last) => (self.length, self.marks) = (text.len() - last, count(&text[last..])),
            None => (self.length, self.marks) = (self.length + text.len(), self.marks + count(text)),
        }
        if self.length > LONGEST_LINE || self.marks > MOST_FIELDS { Err(too_long()) } else { Ok(()) }
    }
}

impl<R: io::Read> io::Read for PlainLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        assert!(buffer.len() > 1, "the csv reader has a larger buffer");
        let start = usize::from(self.held);
        let got = self.inner.read(&mut buffer[start..])?;
        if self.held {
            buffer[0] = b'\r';
        }
        if got == 0 {
            self.ended = true;
            buffer[start] = b'\n';
            return Ok(start + 1);
        }
        let mut end = start + got;
        if end == 1 && buffer[0] == b'\r' {
            // Nothing but the `\r` to hold back: zero bytes would mean the end, so read on.
            self.held = true;
            return self.read(buffer);
        }
        self.held = buffer[end - 1] == b'\r';
        end -= usize::from(self.held);
        if buffer[..end].contains(&b'\r') {
            let mut kept = 0;
            for at in 0..end {
                if !(buffer[at] == b'\r' && at + 1 < end && buffer[at + 1] == b'\n') {
                    buffer[kept] = buffer[at];
                    kept += 1;
                }
            }
            end = kept;
        }
        self.watch(&buffer[..end])?;
        Ok(end)
    }
}

/// Splits a line at runs of white space, except inside quotation marks; false if there are too many fields.
fn split_blanks(line: &[u8], record: &mut ByteRecord) -> bool {
    record.clear();
    let mut left = line.trim_ascii();
    while !left.is_empty() {
        let quoted = left.strip_prefix(b"\"").and_then(|inside| {
            let end = inside.iter().position(|&byte| byte == b'"')?;
            Some((&inside[..end], &inside[end + 1..]))
        });
        let (field, after) = quoted.unwrap_or_else(|| {
            left.split_at(left.iter().position(u8::is_ascii_whitespace).unwrap_or(left.len()))
        });
        if record.len() > MOST_FIELDS {
            return false;
        }
        record.push_field(field);
        left = after.trim_ascii_start();
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_are_made_plain_however_the_text_arrives() {
        struct Drip<'a>(&'a [u8], usize);
        impl io::Read for Drip<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = self.1.min(self.0.len()).min(buffer.len());
                let (now, later) = self.0.split_at(count);
                buffer[..count].copy_from_slice(now);
                self.0 = later;
                Ok(count)
            }
        }
        for (text, plain) in [
            ("a\r\nb\r\n", "a\nb\n\n"),
            ("a\r\r\nb\r", "a\r\nb\r\n"),
            ("\r\n\r\n\r\r", "\n\n\r\r\n"),
            ("", "\n"),
            ("\r", "\r\n"),
        ] {
            for step in 1..6 {
                let mut got = Vec::new();
                let mut lines = PlainLines::new(Drip(text.as_bytes(), step), b',');
                let mut buffer = [0; 4];
                loop {
                    let count = lines.read(&mut buffer).unwrap();
                    if count == 0 {
                        break;
                    }
                    got.extend(&buffer[..count]);
                }
                assert_eq!(String::from_utf8(got).unwrap(), plain, "{text:?} in steps of {step}");
            }
        }
    }
    #[test]
    fn a_line_without_end_is_refused_and_many_lines_are_not() {
        let long = |text: &[u8], delimiter| {
            let mut records = Records::new(text, delimiter);
            let mut record = ByteRecord::new();
            let mut seen = 0;
            loop {
                match records.next(&mut record) {
                    Ok(true) => seen += 1,
                    Ok(false) => return Ok(seen),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let (comma, blanks) = (Delimiter::Byte(b','), Delimiter::Blanks);
        for (piece, delimiter) in [(",", comma), ("1 ", blanks)] {
            let error = long(piece.repeat(MOST_FIELDS + 2).as_bytes(), delimiter).unwrap_err();
            assert!(error.contains("a million fields"), "{error}");
            assert_eq!(long(piece.repeat(MOST_FIELDS).as_bytes(), delimiter), Ok(1));
        }
        for delimiter in [comma, blanks] {
            assert!(long(&vec![b'1'; LONGEST_LINE + (1 << 18)], delimiter).is_err());
        }
        // However a line ends.
        for end in ["\n", "\r\n", "\r"] {
            let text = format!("1,2,3,4{end}").repeat(MOST_FIELDS / 2);
            assert_eq!(long(text.as_bytes(), comma), Ok(MOST_FIELDS / 2));
        }
    }
}
