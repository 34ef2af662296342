//! Delimited text: finding out the delimiter and the header, reading numbers, writing them.

use std::io::{self, BufRead, BufReader, Cursor, Read as _, Write};
use std::path::Path;

use ::csv::{ByteRecord, Reader, ReaderBuilder};

use super::format::{Missing, Read, Rows};
use super::table::{Table, short_name};
use crate::{Error, Result};

/// A header or row longer than this is taken for a file that is not text.
const LONGEST_LINE: usize = 1 << 26;
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
    missing: Missing,
    choose: impl FnOnce(&[String]) -> Result<Vec<usize>>,
) -> Result<Read> {
    let failed = |source| Error::io(path, "read the table", source);
    let start = Start::read(path, input)?;
    let (delimiter, mean_length) = start.delimiter(tabs);
    let skipped = start.skipped;
    let mut records = Records::new(Cursor::new(start.sample).chain(start.rest), delimiter);
    let mut record = ByteRecord::new();
    if !records.next(&mut record).map_err(failed)? {
        return Err(Error::table(path, "the file is empty"));
    }
    let (header, first_is_data) = header(path, &record)?;
    let (mut rows, chosen) = Rows::new(path, missing, &header, choose)?;
    if let Some(size) = size {
        // Room for 2 % more rows than the sample suggests, but never more numbers than the bytes could hold.
        let numbers = (size as f64 / mean_length * 1.02 + 16.0) * chosen.len() as f64;
        // A guess that is too large for memory costs nothing: the buffer then grows as rows arrive.
        let _ = rows.values.try_reserve_exact((numbers as usize).min(size as usize / 2 + 1));
    }

    let mut pending = first_is_data;
    let mut previous = records.line(&record);
    while std::mem::take(&mut pending) || records.next(&mut record).map_err(failed)? {
        if record.len() == 1 && header.len() > 1 && record[0].trim_ascii().is_empty() {
            continue;
        }
        if header.len() == 1 {
            // Between the rows of a single column an empty line is an empty cell.
            let line = records.line(&record);
            let empty = line.saturating_sub(previous + 1) as usize;
            if empty > 0 && missing != Missing::DropRows {
                let (line, name) = (skipped + previous + 1, &header[0]);
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
        let place = || format!("row {} (line {})", rows.seen, skipped + records.line(&record));
        if record.len() != header.len() {
            let problem = format!(
                "{} has {} fields where {} were expected{}",
                place(),
                record.len(),
                header.len(),
                if first_is_data { ", as in the first row" } else { ", as in the header" }
            );
            return Err(Error::table(path, problem));
        }
        let row_start = rows.values.len();
        for &column in &chosen {
            let found = || {
                let text = String::from_utf8_lossy(record[column].trim_ascii());
                let short: String = text.chars().take(40).collect();
                let dots = if short.len() < text.len() { "…" } else { "" };
                format!("{}, column \"{}\": found \"{short}{dots}\"", place(), short_name(&header[column]))
            };
            match Cell::of(&record[column]) {
                Cell::Number(value) => rows.values.push(value),
                Cell::Missing if missing == Missing::DropRows => {
                    rows.values.truncate(row_start);
                    rows.dropped += 1;
                    break;
                }
                Cell::Missing => {
                    let advice = missing.advice();
                    let problem = format!("{}, a missing or infinite value; {advice}", found());
                    return Err(Error::table(path, problem));
                }
                Cell::DecimalComma => {
                    let why = "a number with a decimal comma; write numbers with a decimal point";
                    return Err(Error::table(path, format!("{}, {why}", found())));
                }
                Cell::Text => {
                    let why = "which is not a number; correct it or choose other columns";
                    return Err(Error::table(path, format!("{}, {why}", found())));
                }
            }
        }
    }
    rows.finish(Vec::new())
}

/// The column names, and whether the first record is already data.
fn header(path: &Path, first: &ByteRecord) -> Result<(Vec<String>, bool)> {
    let cells = || first.iter().map(Cell::of);
    if cells().any(|cell| matches!(cell, Cell::Number(_)))
        && cells().all(|cell| matches!(cell, Cell::Number(_) | Cell::Missing))
    {
        return Ok(((1..=first.len()).map(|position| format!("c{position}")).collect(), true));
    }
    if cells().all(|cell| matches!(cell, Cell::DecimalComma | Cell::Number(_))) {
        let text = String::from_utf8_lossy(&first[0]);
        let problem =
            format!("the numbers have decimal commas (\"{text}\"); write them with a decimal point");
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

/// What one field holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Number(f64),
    Missing,
    DecimalComma,
    Text,
}

impl Cell {
    fn of(field: &[u8]) -> Cell {
        let Ok(text) = std::str::from_utf8(field.trim_ascii()) else { return Cell::Text };
        if let Ok(value) = text.parse::<f64>() {
            return if value.is_finite() { Cell::Number(value) } else { Cell::Missing };
        }
        const NOTHING: [&str; 6] = ["", "na", "n/a", "#n/a", "null", "none"];
        if NOTHING.iter().any(|word| text.eq_ignore_ascii_case(word)) {
            return Cell::Missing;
        }
        if text.len() > 64 || !text.contains(|letter: char| letter.is_ascii_digit()) {
            return Cell::Text;
        }
        // Fortran writes 1.5D+03, always with the point.
        match text.replace(['d', 'D'], "e").parse::<f64>() {
            Ok(value) if value.is_finite() && text.contains('.') => Cell::Number(value),
            _ if text.matches(',').count() == 1 && text.replace(',', ".").parse::<f64>().is_ok() => {
                Cell::DecimalComma
            }
            _ => Cell::Text,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Delimiter {
    Byte(u8),
    Blanks,
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
            .map_err(|source| Error::io(path, "read the table", source))?;
        self.whole = (got as u64) < wanted;
        Ok(())
    }

    /// The delimiter under which the sample looks most like a table of numbers, and the mean length of a record.
    ///
    /// A punctuation mark in the first line is preferred to blanks and blanks to a single column; among several
    /// the one wins that gives most rows as many fields as the first, then the one that yields most numbers.
    fn delimiter(&self, tabs: bool) -> (Delimiter, f64) {
        let marks = if tabs { [b'\t', b',', b';', b'|'] } else { [b',', b';', b'\t', b'|'] };
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
                .filter(|field| match Cell::of(field) {
                    Cell::Number(_) => true,
                    Cell::DecimalComma => delimiter != Delimiter::Byte(b','),
                    Cell::Missing | Cell::Text => false,
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

/// A stream of records that knows on which line each begins.
enum Records<R> {
    Marked(Box<Reader<PlainLines<R>>>),
    Blanks { input: BufReader<R>, text: Vec<u8>, line: u64 },
}

impl<R: io::Read> Records<R> {
    fn new(input: R, delimiter: Delimiter) -> Self {
        const BUFFER: usize = 1 << 17;
        match delimiter {
            Delimiter::Byte(mark) => {
                let mut builder = ReaderBuilder::new();
                builder.has_headers(false).flexible(true).delimiter(mark).buffer_capacity(BUFFER);
                Records::Marked(Box::new(builder.from_reader(PlainLines::new(input))))
            }
            Delimiter::Blanks => {
                let input = BufReader::with_capacity(BUFFER, input);
                Records::Blanks { input, text: Vec::new(), line: 0 }
            }
        }
    }

    /// Reads the next record that is not an empty line, if there is one.
    fn next(&mut self, record: &mut ByteRecord) -> io::Result<bool> {
        match self {
            Records::Marked(reader) => Ok(reader.read_byte_record(record)?),
            Records::Blanks { input, text, line } => loop {
                text.clear();
                if input.read_until(b'\n', text)? == 0 {
                    return Ok(false);
                }
                *line += 1;
                split_blanks(text, record);
                if !record.is_empty() {
                    return Ok(true);
                }
            },
        }
    }

    /// The line on which `record`, the last one read, begins, counted from 1.
    fn line(&self, record: &ByteRecord) -> u64 {
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
struct PlainLines<R> {
    inner: R,
    /// A `\r` at the end of the last block, kept until its successor is known.
    held: bool,
    ended: bool,
}

impl<R> PlainLines<R> {
    fn new(inner: R) -> Self {
        Self { inner, held: false, ended: false }
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
        Ok(end)
    }
}

/// Splits a line at runs of white space, except inside quotation marks.
fn split_blanks(line: &[u8], record: &mut ByteRecord) {
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
        record.push_field(field);
        left = after.trim_ascii_start();
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(names: &[String]) -> Result<Vec<usize>> {
        Ok((0..names.len()).collect())
    }

    fn parse(text: impl AsRef<[u8]>) -> Result<Table> {
        let text = text.as_ref();
        let size = Some(text.len() as u64);
        read(Path::new("t.csv"), text, size, false, Missing::Fail, all).map(|read| read.table)
    }

    fn problem(text: impl AsRef<[u8]>) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn delimiters_are_found_out() {
        for text in [
            "a,b,c\n1,2,3\n4,5,6\n",
            "a;b;c\n1;2;3\n4;5;6",
            "a\tb\tc\n1\t2\t3\n4\t5\t6\n",
            "a|b|c\n1|2|3\n4|5|6\n",
            "a b c\n1 2 3\n4 5 6\n",
            "  a   b\tc\n 1  2 \t3  \n\n4 5 6\n",
            "a, b, c\n1, 2, 3\n4, 5, 6\n",
            "a,b,c\r\n1,2,3\r\n4,5,6\r\n",
            "\u{feff}a,b,c\n1,2,3\n4,5,6\n",
            "# made by x; on monday, 2 | 3\n#\n\n\"a\",\"b\",\"c\"\n1,2,3\n4,5,6\n",
            "a,b,c\n1,2,3\n\n4,5,6\n  \n",
            "\"a\" b c\n1 2 3\n\"4\" 5 6\n",
        ] {
            let table = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(table.names(), ["a", "b", "c"], "{text:?}");
            assert_eq!(table.values(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{text:?}");
        }
    }

    #[test]
    fn a_delimiter_inside_quotation_marks_or_names_does_not_mislead() {
        let table = parse("\"mass; kg\",\"a,b\"\n1,2\n3,4\n").unwrap();
        assert_eq!(table.names(), ["mass; kg", "a,b"]);
        let table = parse("solar mass,b\n1,2\n").unwrap();
        assert_eq!(table.names(), ["solar mass", "b"]);
        let table = parse("solar mass\n1\n2\n").unwrap();
        assert_eq!(table.names(), ["solar mass"]);
        let table = parse("\"a\nb\",c\n1,2\n").unwrap();
        assert_eq!(table.names(), ["a\nb", "c"]);
    }

    #[test]
    fn a_first_line_of_numbers_is_data() {
        let table = parse("1,2e3\n-.5,+4\n").unwrap();
        assert_eq!(table.names(), ["c1", "c2"]);
        assert_eq!(table.values(), [1.0, 2000.0, -0.5, 4.0]);
        assert_eq!(parse("7").unwrap().values(), [7.0]);
        assert_eq!(parse("1.5D+03 2.d0\n1 2").unwrap().values(), [1500.0, 2.0, 1.0, 2.0]);
        assert!(problem("1,NA\n1,2\n").contains("row 1 (line 1), column \"c2\": found \"NA\""));
    }

    #[test]
    fn headers_must_name_every_column_once() {
        assert!(problem("a,b,a\n1,2,3\n").contains("columns 1 and 3 are both called \"a\""));
        assert!(problem(",a,b\n0,1,2\n").contains("the header has no name for column 1 of 3"));
        assert!(problem("a,b,\n0,1,\n").contains("the header has no name for column 3 of 3"));
        assert!(problem(b"a,\xff\xc0\n1,2\n").contains("not UTF-8"));
        assert!(problem(b"\xff\xfea\0,\0").contains("UTF-16"));
    }

    #[test]
    fn an_empty_line_in_a_single_column_is_a_missing_cell_except_at_the_end() {
        let text = "a\n1\n\n3\n\n\n";
        let error = problem(text);
        assert!(error.contains("row 2 (line 3), column \"a\""), "{error}");
        let read = read(Path::new("t.csv"), text.as_bytes(), None, false, Missing::DropRows, all).unwrap();
        assert_eq!((read.table.values(), read.dropped_rows), (&[1.0, 3.0][..], 1));
    }

    #[test]
    fn ragged_rows_are_errors_with_their_line() {
        let error = problem("a,b,c\n1,2,3\n1,2\n");
        assert_eq!(error, "t.csv: row 2 (line 3) has 2 fields where 3 were expected, as in the header");
        assert!(problem("# x\na b c\n1 2 3 4\n").contains("row 1 (line 3) has 4 fields where 3"));
        assert!(
            problem("1,2\n1\n")
                .contains("row 2 (line 2) has 1 fields where 2 were expected, as in the first row")
        );
    }

    #[test]
    fn line_numbers_survive_comments_blank_lines_and_line_endings() {
        for text in [
            "# c\n\na,b\n1,2\n1,x\n",
            "# c\r\n\r\na,b\r\n1,2\r\n1,x\r\n",
            "# c\na,b\n\n1,2\n1,x\n",
            "a,b\n1,2\n\n\n1,x\n",
            "a,b\r\n1,2\r\n\r\n\r\n1,x\r\n",
            "a,\"b\n\"\n\n1,2\n1,x\n",
            "# c\n\na b\n1 2\n1 x\n",
        ] {
            let error = problem(text);
            assert!(error.contains("row 2 (line 5)"), "{text:?}: {error}");
        }
    }

    #[test]
    fn text_in_a_number_column_is_named() {
        assert_eq!(
            problem("a,b\n1,2\n3,hello\n"),
            "t.csv: row 2 (line 3), column \"b\": found \"hello\", which is not a number; correct it or choose other columns"
        );
        assert!(
            problem(format!("a,b\n1,{}\n", "x".repeat(99))).contains(&format!("\"{}…\"", "x".repeat(40)))
        );
        // Text in a column nobody asked for is fine.
        let text = "id,b\nfoo,2\n\"bar, the second\",3\n";
        let table =
            read(Path::new("t"), text.as_bytes(), None, false, Missing::Fail, |_| Ok(vec![1])).unwrap().table;
        assert_eq!((table.names(), table.values()), (&["b".to_owned()][..], &[2.0, 3.0][..]));
    }

    #[test]
    fn missing_cells_are_refused_or_dropped() {
        for word in ["", "NA", "n/a", "#N/A", "NaN", "nan", "-inf", "Infinity", "null", "None", "  "] {
            let text = format!("a,b\n1,2\n{word},4\n5,6\n");
            let error = problem(&text);
            assert!(
                error.contains("row 2 (line 3), column \"a\"") && error.contains("remove the row"),
                "{error}"
            );
            let read = read(Path::new("t"), text.as_bytes(), None, false, Missing::DropRows, all).unwrap();
            assert_eq!(read.dropped_rows, 1);
            assert_eq!(read.table.values(), [1.0, 2.0, 5.0, 6.0]);
        }
        // The second column may hold the gap, too, and text before a gap is still an error.
        let text = "a,b\n1,NA\n2,3\n";
        let read = read(Path::new("t"), text.as_bytes(), None, false, Missing::DropRows, all).unwrap();
        assert_eq!(read.table.values(), [2.0, 3.0]);
    }

    #[test]
    fn decimal_commas_are_explained() {
        for text in
            ["a;b\n1,5;2,5\n", "1,5;2,5\n3,5;4,5\n", "a b\n1,5 2,5\n", "a\tb\n1,5\t2\n", "a,b\n\"1,5\",2\n"]
        {
            assert!(problem(text).contains("decimal comma"), "{text:?}: {}", problem(text));
        }
    }

    #[test]
    fn empty_tables_are_errors() {
        assert!(problem("").contains("empty"));
        assert!(problem("\n\n# only\n  # comments").contains("empty but for blank lines and comments"));
        assert!(problem("a,b\n").ends_with("the table has no rows"));
        assert!(problem("a").ends_with("the table has no rows"));
        assert!(problem("\u{feff}").contains("empty"));
    }

    #[test]
    fn tables_longer_and_wider_than_the_sample_are_read_whole() {
        let long: String = (0..50_000).map(|i| format!("{i};{}\n", f64::from(i) / 7.0)).collect();
        let table = parse(format!("# {}\ni;x\n{long}", "long comment ".repeat(20_000))).unwrap();
        assert_eq!(table.rows(), 50_000);
        assert_eq!(table.row(49_999), [49_999.0, 49_999.0 / 7.0]);
        let wide = |letter: &str| (0..30_000).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join("\t");
        let table = parse(format!("{}\n{}\n{}\n", wide("x"), wide("1"), wide("2"))).unwrap();
        assert_eq!((table.rows(), table.columns()), (2, 30_000));
    }

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
                let mut lines = PlainLines::new(Drip(text.as_bytes(), step));
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
        let table =
            read(Path::new("t"), Drip(b"a,b\r\n1,2\r\n", 1), None, false, Missing::Fail, all).unwrap().table;
        assert_eq!(table.values(), [1.0, 2.0]);
    }

    #[test]
    fn endless_input_without_lines_ends_in_an_error() {
        let error = read(Path::new("t"), io::repeat(b'x'), None, false, Missing::Fail, all).unwrap_err();
        assert!(error.to_string().contains("longer than 64 MB"), "{error}");
    }

    #[test]
    fn a_closed_pipe_keeps_its_kind() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let table = Table::new(vec!["a".into()], vec![1.0]).unwrap();
        assert_eq!(write(&mut Closed, b',', &table).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn numbers_are_written_short() {
        let table = Table::new(vec!["a".into(), "b,c".into()], vec![1.0, 0.1, 1e300, -2.5e-8]).unwrap();
        let mut text = Vec::new();
        write(&mut text, b',', &table).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), "a,\"b,c\"\n1,0.1\n1e300,-2.5e-8\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_to_the_bit(
            bits in prop::collection::vec(any::<u64>(), 1..40),
            width in 1_usize..5,
            odd in "[a-z;,|\" #\t]{0,4}",
            delimiter in prop::sample::select(vec![b',', b'\t', b';', b'|']),
        ) {
            let names: Vec<_> = (0..width).map(|j| format!("{}{odd}n{j}", if j == 0 { "" } else { "x" })).collect();
            prop_assume!(names[0].trim() == names[0]);
            let mut values: Vec<f64> =
                bits.into_iter().map(f64::from_bits).map(|v| if v.is_finite() { v } else { 0.5 }).collect();
            values.resize(values.len().next_multiple_of(width), -0.0);
            let table = Table::new(names, values).unwrap();
            let mut text = Vec::new();
            write(&mut text, delimiter, &table).unwrap();
            let back = parse(&text).unwrap();
            prop_assert_eq!(back.names(), table.names());
            for (a, b) in back.values().iter().zip(table.values()) {
                prop_assert_eq!(a.to_bits(), b.to_bits());
            }
            prop_assert_eq!(back.rows(), table.rows());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-b0-2,; \t|\"\r\n#.-]{0,60}") {
            let _ = parse(&text);
        }
    }
}
