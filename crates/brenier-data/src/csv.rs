//! Delimited text: finding out the delimiter and the header, reading numbers, writing them.

use std::io::{self, Cursor, Read as _, Write};
use std::path::Path;

use ::csv::ByteRecord;

use super::cell::{Cell, Dialect};
use super::encode::Read;
use super::format::{ColumnChoice, Decimal, Missing, ReadOptions};
use super::lines::{Delimiter, LONGEST_LINE, Records};
use super::rows::{NOT_A_NUMBER, Rows};
use super::source::read_error;
use super::table::{Table, short_name};
use crate::{Error, Result};

mod blocks;

/// How much text decides about the delimiter.
const SAMPLE: usize = 1 << 16;
/// How many rows of it do.
const SAMPLE_ROWS: usize = 50;

/// Reads delimited text from `input`; `size` is its length where known, `tabs` a hint from the file's name.
pub(super) fn read(
    path: &Path,
    input: impl io::Read,
    size: Option<u64>,
    tabs: bool,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let failed = |source| read_error(path, source);
    let dialect = Dialect::new(options);
    let start = Start::read(path, input)?;
    let (delimiter, mean_length) = start.delimiter(tabs, &dialect);
    let mut record = ByteRecord::new();
    let open = |record: &ByteRecord| -> Result<Body<'_>> {
        let (header, first_is_data) = header(path, record, &dialect)?;
        let (mut rows, chosen) = Rows::new(path, options, &header, choose)?;
        if let Some(size) = size {
            // Room for 2 % more rows than the sample suggests, but never more numbers than the bytes could hold.
            let numbers = (size as f64 / mean_length * 1.02 + 16.0) * chosen.len() as f64;
            // A guess that is too large for memory costs nothing: the buffer then grows as rows arrive.
            let _ = rows.values.try_reserve_exact((numbers as usize).min(size as usize / 2 + 1));
        }
        Ok(Body { dialect, header, chosen, first_is_data, rows, lines: start.skipped })
    };
    let body = match (delimiter, start.plain_line()) {
        (Delimiter::Byte(mark), Some(length)) => {
            Records::new(&start.sample[..length], delimiter).next(&mut record).map_err(failed)?;
            let mut body = open(&record)?;
            let mut text = Cursor::new(start.sample);
            if !body.first_is_data {
                text.set_position(length as u64);
                body.lines += 1;
            }
            body.read_blocks(text.chain(start.rest), mark)?;
            body
        }
        _ => {
            let mut records = Records::new(Cursor::new(start.sample).chain(start.rest), delimiter);
            if !records.next(&mut record).map_err(failed)? {
                return Err(Error::table(path, "the file is empty"));
            }
            let mut body = open(&record)?;
            body.read_records(&mut records, &mut record, body.first_is_data)?;
            body
        }
    };
    body.rows.finish(Vec::new())
}

/// The rows below the header, and what is known of them.
struct Body<'a> {
    dialect: Dialect<'a>,
    header: Vec<String>,
    /// The columns to load.
    chosen: Vec<usize>,
    first_is_data: bool,
    rows: Rows<'a>,
    /// Lines of the text before the records that are read.
    lines: u64,
}

impl Body<'_> {
    /// Reads all records from the next one on, or from `record` where that is `pending`.
    fn read_records(
        &mut self,
        records: &mut Records<impl io::Read>,
        record: &mut ByteRecord,
        mut pending: bool,
    ) -> Result<()> {
        let Self { dialect, header, chosen, first_is_data, rows, lines } = self;
        let (path, missing) = (rows.path, rows.missing);
        let failed = |source| read_error(path, source);
        let mut previous = records.line(record);
        while std::mem::take(&mut pending) || records.next(record).map_err(failed)? {
            if record.len() == 1 && header.len() > 1 && record[0].trim_ascii().is_empty() {
                continue;
            }
            if header.len() == 1 {
                // Between the rows of a single column an empty line is an empty cell.
                let line = records.line(record);
                let empty = line.saturating_sub(previous + 1) as usize;
                if empty > 0 && missing != Missing::DropRows {
                    let (line, name) = (*lines + previous + 1, &header[0]);
                    let problem = format!(
                        "row {} (line {line}), column \"{}\": the line is empty, a missing value; {}",
                        rows.seen + 1,
                        short_name(name),
                        missing.advice()
                    );
                    return Err(Error::table(path, problem));
                }
                rows.seen += empty;
                rows.dropped += empty;
                previous = line;
            }
            rows.seen += 1;
            let place = || format!("row {} (line {})", rows.seen, *lines + records.line(record));
            if record.len() != header.len() {
                let problem = format!(
                    "{} has {} fields where {} were expected{}",
                    place(),
                    record.len(),
                    header.len(),
                    if *first_is_data { ", as in the first row" } else { ", as in the header" }
                );
                return Err(Error::table(path, problem));
            }
            let row_start = rows.values.len();
            for (j, &column) in chosen.iter().enumerate() {
                let seen = rows.seen;
                let found = |problem: &str| {
                    let text = String::from_utf8_lossy(record[column].trim_ascii());
                    let short: String = text.chars().take(40).collect();
                    let dots = if short.len() < text.len() { "…" } else { "" };
                    let place = format!("row {seen} (line {})", *lines + records.line(record));
                    let problem = format!(
                        "{place}, column \"{}\": found \"{short}{dots}\", {problem}",
                        short_name(&header[column])
                    );
                    Err(Error::table(path, problem))
                };
                let cell = match rows.is_categorical(j) {
                    false => dialect.cell(&record[column]),
                    true => match dialect.category(&record[column]) {
                        Some(text) => Cell::Number(rows.place_text(j, &text, seen)?),
                        None => Cell::Missing,
                    },
                };
                match cell {
                    Cell::Number(value) => rows.values.push(value),
                    Cell::Missing if missing == Missing::DropRows => {
                        rows.values.truncate(row_start);
                        rows.dropped += 1;
                        break;
                    }
                    Cell::Missing => return found(&format!("{MISSING}; {}", missing.advice())),
                    Cell::OtherDecimal => return found(other_decimal(dialect)),
                    Cell::Date => {
                        return found(
                            "a date or time; write it as a number, say days since the first, or choose other columns",
                        );
                    }
                    Cell::Text => return found(NOT_A_NUMBER),
                }
            }
        }
        Ok(())
    }
}

/// What is said of a missing cell.
const MISSING: &str = "a missing or infinite value";

/// What is said of a number with the wrong decimal mark.
fn other_decimal(dialect: &Dialect<'_>) -> &'static str {
    match dialect.decimal {
        Decimal::Point => "a number with a decimal comma; read such tables with `decimal = comma`",
        Decimal::Comma => "a number with a decimal point, where `decimal = comma` announces commas",
    }
}

/// The column names, and whether the first record is already data.
fn header(path: &Path, first: &ByteRecord, dialect: &Dialect<'_>) -> Result<(Vec<String>, bool)> {
    let cells = || first.iter().map(|field| dialect.cell(field));
    if cells().any(|cell| matches!(cell, Cell::Number(_)))
        && cells().all(|cell| matches!(cell, Cell::Number(_) | Cell::Missing))
    {
        return Ok(((1..=first.len()).map(|position| format!("c{position}")).collect(), true));
    }
    if cells().all(|cell| matches!(cell, Cell::OtherDecimal | Cell::Number(_))) {
        let text = String::from_utf8_lossy(&first[0]);
        let problem =
            format!("the first line begins with \"{}\", {}", short_name(&text), other_decimal(dialect));
        return Err(Error::table(path, problem));
    }
    let mut names = Vec::with_capacity(first.len());
    for (j, field) in first.iter().enumerate() {
        let name = std::str::from_utf8(field.trim_ascii()).ok().filter(|name| !name.contains('\0'));
        let Some(name) = name else {
            return Err(Error::table(path, "the header is not UTF-8 text: is this really a text table?"));
        };
        if name.is_empty() {
            let problem = format!(
                "the header has no name for column {} of {}; name it, or leave out a row index when writing the file",
                j + 1,
                first.len()
            );
            return Err(Error::table(path, problem));
        }
        names.push(name.to_owned());
    }
    Ok((names, false))
}

/// The first lines of the text, from the header on, and what follows them.
struct Start<R> {
    sample: Vec<u8>,
    /// Whether the sample is all there is.
    whole: bool,
    /// Comment and empty lines before the header.
    skipped: u64,
    rest: R,
}

impl<R: io::Read> Start<R> {
    fn read(path: &Path, input: R) -> Result<Self> {
        let mut start = Start { sample: Vec::new(), whole: false, skipped: 0, rest: input };
        start.grow(path, 3)?;
        match start.sample[..] {
            [0xef, 0xbb, 0xbf, ..] => drop(start.sample.drain(..3)),
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
                return Err(Error::table(path, "the text is UTF-16; save it as UTF-8"));
            }
            _ => {}
        }
        let is_break = |byte: &u8| *byte == b'\n';
        loop {
            start.grow(path, 1)?;
            let mut from = 0;
            while let Some(length) = start.sample[from..].iter().position(is_break) {
                let line = start.sample[from..from + length].trim_ascii();
                if !(line.is_empty() || line.starts_with(b"#")) {
                    break;
                }
                start.skipped += 1;
                from += length + 1;
            }
            start.sample.drain(..from);
            let line = start.sample.trim_ascii_start();
            if start.sample.iter().any(is_break) {
                break;
            }
            if start.whole {
                if line.is_empty() || line.starts_with(b"#") {
                    return Err(Error::table(path, "the file is empty but for blank lines and comments"));
                }
                break;
            }
            let more = (2 * start.sample.len()).max(SAMPLE);
            start.grow(path, more)?;
        }
        start.grow(path, SAMPLE)?;
        // Two lines at least, however wide the table is.
        while !start.whole && start.sample.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() < 3 {
            let more = 2 * start.sample.len();
            start.grow(path, more)?;
        }
        Ok(start)
    }

    /// The length of the first line, if it ends where its record does: there are no quotation marks.
    fn plain_line(&self) -> Option<usize> {
        let length = 1 + self.sample.iter().position(|&byte| byte == b'\n')?;
        let line = &self.sample[..length];
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        (!line.contains(&b'"') && !line.contains(&b'\r')).then_some(length)
    }

    /// Reads on until the sample has `length` bytes or all of the text.
    fn grow(&mut self, path: &Path, length: usize) -> Result<()> {
        let wanted = length.saturating_sub(self.sample.len()) as u64;
        if wanted == 0 || self.whole {
            return Ok(());
        }
        if length > LONGEST_LINE {
            return Err(Error::table(
                path,
                "the first lines are longer than 64 MB: is this really a text table?",
            ));
        }
        let got = (&mut self.rest)
            .take(wanted)
            .read_to_end(&mut self.sample)
            .map_err(|error| read_error(path, error))?;
        self.whole = (got as u64) < wanted;
        Ok(())
    }

    /// The delimiter under which the sample looks most like a table of numbers, and the mean length of a record.
    ///
    /// A punctuation mark in the first line is preferred to blanks and blanks to a single column; among several
    /// the one wins that gives most rows as many fields as the first, then the one that yields most numbers.
    fn delimiter(&self, tabs: bool, dialect: &Dialect<'_>) -> (Delimiter, f64) {
        let mut marks = if tabs { *b"\t,;|" } else { *b",;\t|" };
        if dialect.decimal == Decimal::Comma && !self.sample.contains(&b'"') {
            // Where numbers have commas, these separate fields only if the numbers are quoted.
            marks = if tabs { *b"\t;||" } else { *b";\t||" };
        }
        let mut best = (Delimiter::Byte(marks[0]), (0.0, 0.0));
        let mut decided = false;
        for delimiter in marks.map(Delimiter::Byte).into_iter().chain([Delimiter::Blanks]) {
            let sample = self.sample(delimiter);
            let width = sample.first().map_or(0, |first| first.len());
            let data = sample.get(1..).unwrap_or_default();
            if width < 2
                || (delimiter == Delimiter::Blanks
                    && !decided
                    && !data.is_empty()
                    && data.iter().all(|record| record.len() < 2))
            {
                continue;
            }
            let even = data.iter().filter(|record| record.len() == width).count() as f64;
            let judged = if data.is_empty() { &sample[..] } else { data };
            let fields = judged.iter().map(|record| record.len()).sum::<usize>() as f64;
            let numbers = judged
                .iter()
                .flat_map(|record| record.iter())
                .filter(|field| match dialect.cell(field) {
                    Cell::Number(_) => true,
                    Cell::OtherDecimal => delimiter != Delimiter::Byte(b','),
                    Cell::Missing | Cell::Date | Cell::Text => false,
                })
                .count() as f64;
            let score = (even / data.len().max(1) as f64, numbers / fields.max(1.0));
            if !decided || score > best.1 {
                best = (delimiter, score);
            }
            decided = true;
        }
        let breaks = self.sample.iter().filter(|byte| **byte == b'\n').count();
        (best.0, self.sample.len() as f64 / breaks.max(1) as f64)
    }

    /// The first records of the sample, without one that the sample cuts short.
    fn sample(&self, delimiter: Delimiter) -> Vec<ByteRecord> {
        let mut records = Records::new(&self.sample[..], delimiter);
        let mut sample = Vec::new();
        let mut record = ByteRecord::new();
        while sample.len() < SAMPLE_ROWS && matches!(records.next(&mut record), Ok(true)) {
            sample.push(record.clone());
        }
        if !self.whole && sample.len() > 1 && sample.len() < SAMPLE_ROWS {
            sample.pop();
        }
        sample
    }
}

/// Writes a header and rows; each number is the shortest decimal that reads back as the same one.
pub(super) fn write(writer: &mut impl Write, delimiter: u8, table: &Table) -> io::Result<()> {
    for (j, name) in table.names().iter().enumerate() {
        if j > 0 {
            writer.write_all(&[delimiter])?;
        }
        // Quotation marks around everything that might be taken for a delimiter or a comment.
        if name.contains(|letter: char| letter.is_whitespace() || ",;|\"".contains(letter))
            || name.starts_with('#')
        {
            write!(writer, "\"{}\"", name.replace('"', "\"\""))?;
        } else {
            writer.write_all(name.as_bytes())?;
        }
    }
    writer.write_all(b"\n")?;
    let mut text = String::new();
    for row in table.iter() {
        text.clear();
        for (j, value) in row.iter().enumerate() {
            use std::fmt::Write as _;
            if j > 0 {
                text.push(char::from(delimiter));
            }
            write!(text, "{value:?}").expect("a String accepts all writes");
            if text.ends_with(".0") {
                text.truncate(text.len() - 2);
            }
        }
        text.push('\n');
        writer.write_all(text.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
