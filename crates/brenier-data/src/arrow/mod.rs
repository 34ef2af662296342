//! Arrow's IPC format, file (Feather version 2) or stream: columns of numbers and categories, batch after batch.
//!
//! A stream is a schema, then dictionaries and batches of rows; a file is much the same between two magic words, with
//! a directory at its end. The reader is our own because it must never take
//! memory for lengths that a file only declares, and needs little: no nested columns, no arithmetic on arrays.

mod schema;
mod write;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufReader, Read as _, Seek, SeekFrom};
use std::path::Path;

use super::encode::Read;
use super::flat::Flat;
use super::format::{ColumnChoice, ReadOptions};
use super::rows::{EXACT_INTEGERS, LONGEST_LEVEL, NOT_A_NUMBER, Rows, guarded, half_to_f64, rounded_warning};
use super::source::{Source, read_error};
use crate::{Error, Result};

use schema::{Column, Kind, columns};
pub(super) use write::write;

const MAGIC: &[u8; 6] = b"ARROW1";
/// A batch that grows to this and by [`IMPLAUSIBLE`] is taken for hostile.
const LONG: u64 = 1 << 28;
const IMPLAUSIBLE: u64 = 1000;

/// Reads the columns that `choose` picks from a stream or file.
pub(super) fn read(
    path: &Path,
    source: Source,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    if source.head.starts_with(MAGIC) {
        let (file, size) = source.into_file()?;
        return read_file(path, BufReader::with_capacity(1 << 17, file), size, options, choose);
    }
    read_stream(path, source.into_reader(), options, choose)
}

/// Reads a stream: one message after the other.
fn read_stream(
    path: &Path,
    mut input: impl io::Read,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let metadata = message(path, &mut input, &mut Vec::new())?.unwrap_or_default();
    let schema = Flat::root(&metadata).filter(|message| message.u8(1) == Some(1)).and_then(|m| m.table(2));
    load(path, schema, options, choose, |body| message(path, &mut input, body))
}

/// Reads a file of `size` bytes by the directory at its end: some writers leave out parts of the stream inside.
fn read_file(
    path: &Path,
    mut input: impl io::Read + Seek,
    size: u64,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let end = MAGIC.len() as u64 + 4;
    let place = size.checked_sub(end).ok_or_else(|| damaged(path, "it is cut short"))?;
    let last = bytes_at(path, &mut input, place, end)?;
    let (length, magic) = last.split_first_chunk::<4>().ok_or_else(|| damaged(path, "it is cut short"))?;
    if magic != MAGIC {
        return Err(damaged(path, "it is cut short"));
    }
    let length = u64::try_from(i32::from_le_bytes(*length)).ok().filter(|&length| length <= place);
    let length = length.ok_or_else(|| damaged(path, "its directory has an impossible length"))?;
    let footer = bytes_at(path, &mut input, place - length, length)?;
    let footer = Flat::root(&footer).ok_or_else(|| damaged(path, "its directory is cut short"))?;
    // Offset, length of the metadata and length of the body of each message, dictionaries first.
    let mut blocks: Vec<[u64; 3]> = Vec::new();
    let mut total = 0_u64;
    for block in
        [2, 3].into_iter().flat_map(|slot| footer.items(slot, 24).unwrap_or_default().chunks_exact(24))
    {
        let [offset, metadata, body] =
            [&block[..8], &block[8..12], &block[16..]].map(|bytes| unsigned(bytes) as u64);
        total = total.saturating_add(metadata).saturating_add(body);
        if total > size || offset > size {
            return Err(damaged(path, "its directory declares more bytes than it has"));
        }
        blocks.push([offset, metadata, body]);
    }
    let mut blocks = blocks.into_iter();
    load(path, footer.table(1), options, choose, |body| {
        let Some([offset, length, body_length]) = blocks.next() else { return Ok(None) };
        let mut metadata = bytes_at(path, &mut input, offset, length)?;
        *body = bytes_at(path, &mut input, offset.saturating_add(length), body_length)?;
        // The mark of the present format and the length come before the metadata.
        let mark = if metadata.starts_with(&[0xff; 4]) { 8 } else { 4 };
        metadata.drain(..mark.min(metadata.len()));
        Ok(Some(metadata))
    })
}

/// `length` bytes from `place` on; memory grows with the bytes that come, not with the length declared.
fn bytes_at(path: &Path, input: &mut (impl io::Read + Seek), place: u64, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let got = input
        .seek(SeekFrom::Start(place))
        .and_then(|_| input.take(length).read_to_end(&mut bytes))
        .map_err(|error| read_error(path, error))?;
    if got as u64 == length { Ok(bytes) } else { Err(damaged(path, "it is cut short")) }
}

/// Reads the messages that `next` gives, metadata by metadata with the body beside, of a table with this schema.
fn load(
    path: &Path,
    schema: Option<Flat<'_>>,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
    mut next: impl FnMut(&mut Vec<u8>) -> Result<Option<Vec<u8>>>,
) -> Result<Read> {
    let schema = schema.ok_or_else(|| damaged(path, "it has no schema"))?;
    let columns = columns(schema).map_err(|why| damaged(path, why))?;
    let header: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let (mut rows, chosen) = Rows::new(path, options, &header, choose)?;
    for (j, &column) in chosen.iter().enumerate() {
        columns[column].check(rows.is_categorical(j)).map_err(|found| {
            Error::table(path, format!("column \"{}\" holds {found}, {NOT_A_NUMBER}", columns[column].name))
        })?;
    }
    let mut reader = Reader {
        columns: &columns,
        chosen: &chosen,
        dictionaries: HashMap::new(),
        rounded: vec![false; chosen.len()],
    };
    let mut body = Vec::new();
    while let Some(metadata) = next(&mut body)? {
        guarded(path, || reader.take(&metadata, &body, &mut rows))?;
    }
    let mut warnings = Vec::new();
    for (&column, rounded) in chosen.iter().zip(&reader.rounded) {
        let column = &columns[column];
        if *rounded {
            warnings.push(rounded_warning(path, &column.name));
        }
        if let Kind::Clock { clock, .. } = column.kind {
            warnings.push(clock.warning(path, &column.name));
        }
    }
    rows.finish(warnings)
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::table(path, format!("is not a readable Arrow file ({why}): write it again"))
}

/// The metadata of the next message of a stream, with its body in `body`; none at the end.
fn message(path: &Path, input: &mut impl io::Read, body: &mut Vec<u8>) -> Result<Option<Vec<u8>>> {
    let mut fill = |length: u64, bytes: &mut Vec<u8>| -> Result<bool> {
        bytes.clear();
        let got = input.take(length).read_to_end(bytes).map_err(|error| read_error(path, error))?;
        match got as u64 {
            0 if length > 0 => Ok(false),
            got if got == length => Ok(true),
            _ => Err(damaged(path, "it is cut short")),
        }
    };
    let short = |complete: bool| if complete { Ok(()) } else { Err(damaged(path, "it is cut short")) };
    let mut word = Vec::with_capacity(4);
    if !fill(4, &mut word)? {
        return Ok(None);
    }
    if word == [0xff; 4] {
        // The mark of the present format; before it, a message began with its length.
        short(fill(4, &mut word)?)?;
    }
    let length = i32::from_le_bytes(word[..].try_into().unwrap_or_default());
    if length == 0 {
        return Ok(None);
    }
    let length = u64::try_from(length).map_err(|_| damaged(path, "a message has a negative length"))?;
    let mut metadata = Vec::new();
    short(fill(length, &mut metadata)?)?;
    let declared = Flat::root(&metadata).and_then(|message| message.i64(3)).unwrap_or(0);
    let declared = u64::try_from(declared).map_err(|_| damaged(path, "a message has a negative length"))?;
    short(fill(declared, body)?)?;
    Ok(Some(metadata))
}

/// Values before they are distributed to rows; null is NaN or none.
#[derive(Clone, Debug)]
enum Values {
    Numbers(Vec<f64>),
    Texts(Vec<Option<String>>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Values::Numbers(values) => values.len(),
            Values::Texts(values) => values.len(),
        }
    }
}

struct Reader<'s> {
    columns: &'s [Column],
    chosen: &'s [usize],
    dictionaries: HashMap<i64, Values>,
    /// For each chosen column whether integers had to be rounded.
    rounded: Vec<bool>,
}

impl Reader<'_> {
    /// Takes in a message: a dictionary or a batch of rows; others do not matter.
    fn take(&mut self, metadata: &[u8], body: &[u8], rows: &mut Rows<'_>) -> Result<()> {
        let path = rows.path;
        let damaged = |why: &'static str| damaged(path, why);
        let Some(message) = Flat::root(metadata) else { return Err(damaged("a message is cut short")) };
        match (message.u8(1), message.table(2)) {
            (Some(2), Some(dictionary)) => self.dictionary(dictionary, body).map_err(damaged),
            (Some(3), Some(batch)) => self.batch(batch, body, rows),
            _ => Ok(()),
        }
    }

    fn dictionary(&mut self, dictionary: Flat<'_>, body: &[u8]) -> Result<(), &'static str> {
        let id = dictionary.i64(0).unwrap_or(0);
        let mut users = self.chosen.iter().map(|&column| &self.columns[column]);
        let Some(user) = users.find(|column| column.dictionary.as_ref().is_some_and(|own| own.0 == id))
        else {
            return Ok(());
        };
        let batch = dictionary.table(1).ok_or("a dictionary has no values")?;
        let views = usize::from(user.kind == Kind::View);
        let plain = Column { dictionary: None, nodes: 1, buffers: 0, views, ..user.clone() };
        let mut parts = Parts::new(batch, body, 1)?;
        let (values, _) = parts.values(&plain)?;
        match (dictionary.u8(2).unwrap_or(0) != 0, self.dictionaries.get_mut(&id), values) {
            (true, Some(Values::Texts(own)), Values::Texts(more)) => own.extend(more),
            (true, Some(Values::Numbers(own)), Values::Numbers(more)) => own.extend(more),
            (_, _, values) => drop(self.dictionaries.insert(id, values)),
        }
        Ok(())
    }

    fn batch(&mut self, batch: Flat<'_>, body: &[u8], rows: &mut Rows<'_>) -> Result<()> {
        let path = rows.path;
        let wrong = |why: &'static str| damaged(path, why);
        let mut parts = Parts::new(batch, body, rows.width()).map_err(wrong)?;
        let (width, start) = (rows.width(), rows.values.len());
        let mut loaded: Vec<Option<(Values, bool)>> = vec![None; width];
        for (place, column) in self.columns.iter().enumerate() {
            match self.chosen.iter().position(|&chosen| chosen == place) {
                Some(j) => loaded[j] = Some(parts.values(column).map_err(wrong)?),
                None => parts.skip(column).map_err(wrong)?,
            }
        }
        // Every column has been found to hold as many rows as the batch declares.
        let count = parts.rows;
        rows.reserve(count)?;
        rows.values.resize(start + count * width, f64::NAN);
        for (j, loaded) in loaded.into_iter().enumerate() {
            let Some((values, rounded)) = loaded else { continue };
            self.rounded[j] |= rounded;
            let column = &self.columns[self.chosen[j]];
            let own = values;
            let (positions, values) = match &column.dictionary {
                None => (None, &own),
                Some((id, _)) => {
                    let values = self.dictionaries.get(id).ok_or_else(|| wrong("a dictionary is missing"))?;
                    (Some(&own), values)
                }
            };
            let position = |row: usize| match positions {
                None => Ok(Some(row)),
                Some(Values::Numbers(positions)) => match positions[row] {
                    null if null.is_nan() => Ok(None),
                    at if at >= 0.0 && at < values.len() as f64 => Ok(Some(at as usize)),
                    _ => Err(wrong("a position lies outside its dictionary")),
                },
                Some(Values::Texts(_)) => Err(wrong("a dictionary is missing")),
            };
            for row in 0..count {
                let Some(at) = position(row)? else { continue };
                rows.values[start + row * width + j] = match values {
                    Values::Numbers(values) => values[at],
                    Values::Texts(values) => match &values[at] {
                        Some(text) => rows.place_text(j, text, rows.seen + row + 1)?,
                        None => f64::NAN,
                    },
                };
            }
        }
        rows.settle(start)
    }
}

/// The parts of a batch, taken in the order of the columns.
struct Parts<'a> {
    rows: usize,
    nodes: std::vec::IntoIter<(i64, i64)>,
    buffers: std::vec::IntoIter<(i64, i64)>,
    views: std::vec::IntoIter<usize>,
    body: &'a [u8],
    codec: Option<u8>,
    /// Bytes of memory taken for decompressed columns and texts.
    taken: u64,
}

impl<'a> Parts<'a> {
    /// The parts of `batch`, of which `width` columns are wanted.
    fn new(batch: Flat<'_>, body: &'a [u8], width: usize) -> Result<Self, &'static str> {
        let rows = batch.i64(0).unwrap_or(0);
        let rows = usize::try_from(rows).map_err(|_| "a batch has a negative length")?;
        // Compressed columns may be small, but not without limit.
        let bytes = rows as u128 * width as u128 * 8;
        if bytes > u128::from(LONG) && bytes / u128::from(IMPLAUSIBLE) > body.len() as u128 {
            return Err("a batch declares an implausible number of rows");
        }
        let views = batch.items(4, 8).unwrap_or_default().chunks_exact(8);
        let views: Vec<usize> = views
            .map(|count| {
                usize::try_from(i64::from_le_bytes(count.try_into().unwrap_or_default()))
                    .unwrap_or(usize::MAX)
            })
            .collect();
        Ok(Self {
            rows,
            nodes: batch.pairs(1).unwrap_or_default().into_iter(),
            buffers: batch.pairs(2).unwrap_or_default().into_iter(),
            views: views.into_iter(),
            body,
            codec: batch.table(3).map(|compression| compression.u8(0).unwrap_or(0)),
            taken: 0,
        })
    }

    /// Counts memory that is about to be taken. Several columns may lie in the same few bytes, and many rows may share
    /// one text, so the sum counts.
    fn take(&mut self, bytes: u64) -> Result<(), &'static str> {
        self.taken = self.taken.saturating_add(bytes);
        match self.taken > LONG && self.taken / IMPLAUSIBLE > self.body.len() as u64 {
            true => Err("a batch is implausibly long once decompressed"),
            false => Ok(()),
        }
    }

    /// The texts that `one` gives for each row.
    fn texts(
        &mut self,
        mut one: impl FnMut(usize) -> Result<Option<String>, &'static str>,
    ) -> Result<Values, &'static str> {
        let mut texts = Vec::new();
        for row in 0..self.rows {
            let text = one(row)?;
            let length = text.as_ref().map_or(0, String::len);
            self.take((size_of::<Option<String>>() + length) as u64)?;
            texts.push(text);
        }
        Ok(Values::Texts(texts))
    }

    /// Passes over the parts of a column.
    fn skip(&mut self, column: &Column) -> Result<(), &'static str> {
        for _ in 0..column.nodes {
            self.nodes.next().ok_or("a column is missing")?;
        }
        let mut count = column.buffers;
        for _ in 0..column.views {
            count = count.saturating_add(self.views.next().ok_or("a column is missing")?);
        }
        for _ in 0..count {
            self.buffers.next().ok_or("a column is missing")?;
        }
        Ok(())
    }

    /// The next buffer, decompressed.
    fn buffer(&mut self) -> Result<Cow<'a, [u8]>, &'static str> {
        let (offset, length) = self.buffers.next().ok_or("a column is missing")?;
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let bytes = range
            .and_then(|(offset, length)| self.body.get(offset..offset.checked_add(length)?))
            .ok_or("a column lies outside the file")?;
        let Some(codec) = self.codec.filter(|_| !bytes.is_empty()) else { return Ok(bytes.into()) };
        let (length, stored) = bytes.split_first_chunk::<8>().ok_or("a compressed column is cut short")?;
        let length = match i64::from_le_bytes(*length) {
            -1 => return Ok(stored.into()),
            length => u64::try_from(length).map_err(|_| "a compressed column has a negative length")?,
        };
        self.take(length)?;
        // Memory grows with the bytes that come; one more than declared is read to see that there is none.
        let mut bytes = Vec::new();
        let limit = length.saturating_add(1);
        let got = match codec {
            0 => lz4_flex::frame::FrameDecoder::new(stored).take(limit).read_to_end(&mut bytes),
            1 => zstd::stream::read::Decoder::new(stored)
                .and_then(|decoder| decoder.take(limit).read_to_end(&mut bytes)),
            _ => return Err("its compression is not known"),
        };
        match got {
            Ok(got) if got as u64 == length => Ok(bytes.into()),
            _ => Err("a compressed column is damaged"),
        }
    }

    /// The values of a column without its dictionary, whose positions they are if it has one, and whether integers
    /// had to be rounded.
    fn values(&mut self, column: &Column) -> Result<(Values, bool), &'static str> {
        let rows = self.rows;
        let (length, nulls) = self.nodes.next().ok_or("a column is missing")?;
        if usize::try_from(length) != Ok(rows) {
            return Err("a column is shorter than its batch");
        }
        let validity = self.buffer()?;
        // Without nulls the bits may be left out.
        let all = nulls == 0 || validity.is_empty();
        if !all && validity.len() < rows.div_ceil(8) {
            return Err("a column is shorter than its batch");
        }
        let bit = |bits: &[u8], row: usize| bits[row / 8] >> (row % 8) & 1 == 1;
        let valid = |row: usize| all || bit(&validity, row);
        let kind = column.dictionary.as_ref().map_or(&column.kind, |(_, index)| index);
        if let Kind::Text { bytes } = *kind {
            let (offsets, text) = (self.buffer()?, self.buffer()?);
            if rows > 0 && offsets.len() / bytes <= rows {
                return Err("a column is shorter than its batch");
            }
            let offset = |row: usize| unsigned(&offsets[row * bytes..(row + 1) * bytes]);
            let texts = self.texts(|row| match valid(row) {
                false => Ok(None),
                true => string(&text, offset(row), offset(row + 1)).map(Some),
            });
            return Ok((texts?, false));
        }
        if *kind == Kind::View {
            let views = self.buffer()?;
            let count = self.views.next().ok_or("a column is missing")?;
            if count > self.buffers.len() || views.len() / 16 < rows {
                return Err("a column is shorter than its batch");
            }
            let texts = (0..count).map(|_| self.buffer()).collect::<Result<Vec<_>, _>>()?;
            let texts = self.texts(|row| {
                let view = &views[16 * row..16 * (row + 1)];
                let length = unsigned(&view[..4]);
                match (valid(row), length) {
                    (false, _) => Ok(None),
                    (true, 0..=12) => string(&view[4..], 0, length).map(Some),
                    (true, _) => {
                        let text =
                            texts.get(unsigned(&view[8..12])).ok_or("a text lies outside its column")?;
                        let start = unsigned(&view[12..]);
                        string(text, start, start.saturating_add(length)).map(Some)
                    }
                }
            });
            return Ok((texts?, false));
        }
        let data = self.buffer()?;
        let bytes = match *kind {
            Kind::Integer { bytes, .. }
            | Kind::Float { bytes }
            | Kind::Decimal { bytes, .. }
            | Kind::Clock { bytes, .. } => bytes,
            _ => 0,
        };
        let enough = match bytes {
            0 => data.len() >= rows.div_ceil(8),
            bytes => data.len() / bytes >= rows,
        };
        if !enough {
            return Err("a column is shorter than its batch");
        }
        let mut rounded = false;
        let number = |row: usize| {
            let stored = &data[row * bytes..(row + 1) * bytes];
            match *kind {
                Kind::Bool => f64::from(u8::from(bit(&data, row))),
                Kind::Integer { signed: false, .. } => {
                    let value = unsigned(stored) as f64;
                    rounded |= value >= EXACT_INTEGERS;
                    value
                }
                Kind::Integer { .. } => {
                    let value = signed(stored) as f64;
                    rounded |= value.abs() >= EXACT_INTEGERS;
                    value
                }
                Kind::Float { .. } => float(stored),
                Kind::Decimal { power, .. } => signed(stored) as f64 / power,
                Kind::Clock { units, .. } => signed(stored) as f64 / units,
                Kind::Text { .. } | Kind::View | Kind::Other(_) => f64::NAN,
            }
        };
        let mut number = number;
        let numbers = (0..rows).map(|row| if valid(row) { number(row) } else { f64::NAN }).collect();
        Ok((Values::Numbers(numbers), rounded))
    }
}

/// A little-endian number of at most eight bytes.
fn unsigned(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0_u64, |number, &byte| number << 8 | u64::from(byte)) as usize
}

/// A little-endian two's complement number of at most sixteen bytes.
fn signed(bytes: &[u8]) -> i128 {
    let sign = if bytes.last().is_some_and(|&last| last >= 0x80) { -1 } else { 0 };
    bytes.iter().rev().fold(sign, |number, &byte| number << 8 | i128::from(byte))
}

fn float(bytes: &[u8]) -> f64 {
    match *bytes {
        [a, b] => half_to_f64(u16::from_le_bytes([a, b])),
        [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => f64::NAN,
    }
}

fn string(text: &[u8], start: usize, end: usize) -> Result<String, &'static str> {
    let text = text.get(start..end).ok_or("a text lies outside its column")?;
    // Many rows may share one long text, of which there is no need to make many copies.
    if text.len() > LONGEST_LEVEL {
        return Err("a text is too long for a category");
    }
    Ok(String::from_utf8_lossy(text).into_owned())
}
