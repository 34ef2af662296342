//! NumPy's files: one array (`.npy`) or a zip archive of arrays (`.npz`).

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek, SeekFrom, Write};
use std::path::Path;

use zip::result::ZipError;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime, ZipArchive};

use super::encode::Read;
use super::format::{ColumnChoice, ReadOptions};
use super::rows::{EXACT_INTEGERS, Rows, guarded, half_to_f64, rounded_warning};
use super::table::Table;
use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// A header of a table takes a few hundred bytes.
const LONGEST_HEADER: u64 = 1 << 20;
/// More columns than this are a sign of damage, and their names alone would fill the memory.
const MOST_COLUMNS: usize = 1 << 20;

/// Makes the bytes of one value a number.
type Decode = fn(&[u8]) -> f64;

/// What the header of an array declares.
#[derive(Debug, PartialEq)]
struct Header {
    /// NumPy's type, such as `<f8`.
    kind: String,
    fortran: bool,
    shape: Vec<u64>,
    /// Bytes taken by the header itself.
    length: u64,
}

impl Header {
    /// Reads a header, leaving `input` at the first value.
    fn read(input: &mut impl io::Read) -> Result<Header, String> {
        let short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the header is cut short".to_owned(),
            _ => error.to_string(),
        };
        let mut start = [0; 8];
        input.read_exact(&mut start).map_err(short)?;
        if start[..6] != MAGIC[..] {
            return Err("it does not begin as an array of NumPy does".into());
        }
        let (size, size_bytes) = match start[6] {
            1 => {
                let mut size = [0; 2];
                input.read_exact(&mut size).map_err(short)?;
                (u64::from(u16::from_le_bytes(size)), 2)
            }
            2 | 3 => {
                let mut size = [0; 4];
                input.read_exact(&mut size).map_err(short)?;
                (u64::from(u32::from_le_bytes(size)), 4)
            }
            version => return Err(format!("version {version} of the format is not known")),
        };
        if size > LONGEST_HEADER {
            return Err(format!("a header of {size} bytes is not plausible"));
        }
        let mut text = Vec::new();
        input.take(size).read_to_end(&mut text).map_err(short)?;
        if text.len() as u64 != size {
            return Err("the header is cut short".into());
        }
        let (kind, fortran, shape) = Literal { left: &text }
            .header()
            .ok_or("the header does not give descr, fortran_order and shape")?;
        let kind = kind.ok_or("it is a structured array; save its fields as separate arrays")?;
        Ok(Header { kind, fortran, shape, length: 8 + size_bytes + size })
    }

    /// Rows and columns: an array with one dimension is a column.
    fn rows_and_columns(&self) -> Result<(usize, usize), String> {
        let (rows, columns) = match self.shape[..] {
            [rows] => (rows, 1),
            [rows, columns] => (rows, columns),
            _ => return Err(format!("it has {} dimensions; a table has 1 or 2", self.shape.len())),
        };
        match (usize::try_from(rows), usize::try_from(columns)) {
            (_, Ok(columns)) if columns > MOST_COLUMNS => Err(format!("{columns} columns are too many")),
            (Ok(rows), Ok(columns)) if rows.checked_mul(columns.max(1)).is_some() => Ok((rows, columns)),
            _ => Err(format!("a shape of {rows} × {columns} is not plausible")),
        }
    }

    /// Bytes of one value and the function that makes them a number.
    fn decoder(&self) -> Result<(usize, Decode), String> {
        macro_rules! number {
            ($type:ty, $from:ident) => {{
                const SIZE: usize = size_of::<$type>();
                fn decode(bytes: &[u8]) -> f64 {
                    let bytes = bytes.try_into().expect("values are cut to their size");
                    <$type>::$from(bytes) as f64
                }
                (SIZE, decode as Decode)
            }};
        }
        let native = if cfg!(target_endian = "big") { ">" } else { "<" };
        Ok(match self.kind.replace('=', native).as_str() {
            "|b1" | "<b1" | ">b1" => (1, |bytes| f64::from(u8::from(bytes[0] != 0))),
            "|i1" | "<i1" | ">i1" => number!(i8, from_le_bytes),
            "|u1" | "<u1" | ">u1" => number!(u8, from_le_bytes),
            "<i2" => number!(i16, from_le_bytes),
            ">i2" => number!(i16, from_be_bytes),
            "<u2" => number!(u16, from_le_bytes),
            ">u2" => number!(u16, from_be_bytes),
            "<i4" => number!(i32, from_le_bytes),
            ">i4" => number!(i32, from_be_bytes),
            "<u4" => number!(u32, from_le_bytes),
            ">u4" => number!(u32, from_be_bytes),
            "<i8" => number!(i64, from_le_bytes),
            ">i8" => number!(i64, from_be_bytes),
            "<u8" => number!(u64, from_le_bytes),
            ">u8" => number!(u64, from_be_bytes),
            "<f2" => (2, |bytes| half_to_f64(u16::from_le_bytes([bytes[0], bytes[1]]))),
            ">f2" => (2, |bytes| half_to_f64(u16::from_be_bytes([bytes[0], bytes[1]]))),
            "<f4" => number!(f32, from_le_bytes),
            ">f4" => number!(f32, from_be_bytes),
            "<f8" => number!(f64, from_le_bytes),
            ">f8" => number!(f64, from_be_bytes),
            other => return Err(format!("values of NumPy's type '{other}' are not real numbers")),
        })
    }

    fn is_text(&self) -> bool {
        self.kind.trim_start_matches(['<', '>', '|', '=']).starts_with(['U', 'S', 'T'])
    }

    /// Checks that `available` bytes can hold the values declared, before any memory is taken for them.
    fn check_size(&self, available: u64) -> Result<(), String> {
        let (size, _) = self.decoder()?;
        let needed = self.shape.iter().try_fold(size as u64, |bytes, &length| bytes.checked_mul(length));
        match needed {
            Some(needed) if needed <= available => Ok(()),
            Some(needed) => {
                Err(format!("its header declares {needed} bytes of values but only {available} follow"))
            }
            None => Err("its header declares an impossible shape".into()),
        }
    }

    /// Reads the values that follow and puts column `from` into slot `to` of rows `width` wide, for every pair in
    /// `picks`. Says for each pick whether integers had to be rounded.
    fn load(
        &self,
        input: &mut impl io::Read,
        picks: &[(usize, usize)],
        values: &mut [f64],
        width: usize,
    ) -> Result<Vec<bool>, String> {
        let short = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the values are cut short".to_owned(),
            _ => error.to_string(),
        };
        const BLOCK: usize = 1 << 18;
        let (rows, columns) = self.rows_and_columns()?;
        let (size, decode) = self.decoder()?;
        let wide = self.kind.ends_with("i8") || self.kind.ends_with("u8");
        let mut rounded = vec![false; picks.len()];
        let mut put = |pick: usize, slot: &mut f64, bytes: &[u8]| {
            *slot = decode(bytes);
            rounded[pick] |= wide && slot.abs() >= EXACT_INTEGERS;
        };
        let mut buffer = Vec::new();
        if self.fortran {
            // Column after column; those after the last one wanted are left unread.
            let end = picks.iter().map(|&(from, _)| from + 1).max().unwrap_or(0);
            for column in 0..end {
                let pick = picks.iter().position(|&(from, _)| from == column);
                let mut row = 0;
                while row < rows {
                    let count = (rows - row).min((BLOCK / size).max(1));
                    buffer.resize(count * size, 0);
                    input.read_exact(&mut buffer).map_err(short)?;
                    if let Some(pick) = pick {
                        let slots = values[row * width + picks[pick].1..].iter_mut().step_by(width);
                        slots.zip(buffer.chunks_exact(size)).for_each(|(slot, bytes)| put(pick, slot, bytes));
                    }
                    row += count;
                }
            }
        } else {
            let row_bytes = columns * size;
            let mut row = 0;
            while row < rows {
                let count = (rows - row).min((BLOCK / row_bytes).max(1));
                buffer.resize(count * row_bytes, 0);
                input.read_exact(&mut buffer).map_err(short)?;
                let slots = values[row * width..].chunks_exact_mut(width);
                for (slots, bytes) in slots.zip(buffer.chunks_exact(row_bytes)) {
                    for (pick, &(from, to)) in picks.iter().enumerate() {
                        put(pick, &mut slots[to], &bytes[from * size..(from + 1) * size]);
                    }
                }
                row += count;
            }
        }
        Ok(rounded)
    }
}

/// The little of Python's syntax that headers use.
struct Literal<'a> {
    left: &'a [u8],
}

impl Literal<'_> {
    /// The values of `descr` (none if it is not a string), `fortran_order` and `shape`.
    fn header(mut self) -> Option<(Option<String>, bool, Vec<u64>)> {
        let (mut kind, mut fortran, mut shape) = (None, None, None);
        self.mark(b'{').then_some(())?;
        while !self.mark(b'}') {
            let key = self.string()?;
            self.mark(b':').then_some(())?;
            match key.as_str() {
                "descr" => match self.string() {
                    Some(name) => kind = Some(Some(name)),
                    // A list of fields: nothing of it is needed.
                    None => return self.mark(b'[').then_some((None, false, Vec::new())),
                },
                "fortran_order" => fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                _ => return None,
            }
            if !self.mark(b',') {
                self.mark(b'}').then_some(())?;
                break;
            }
        }
        self.left.trim_ascii().is_empty().then_some((kind?, fortran?, shape?))
    }

    fn mark(&mut self, mark: u8) -> bool {
        let left = self.left.trim_ascii_start();
        let found = left.first() == Some(&mark);
        self.left = if found { &left[1..] } else { left };
        found
    }

    fn word(&mut self) -> &[u8] {
        let left = self.left.trim_ascii_start();
        let end = left.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(left.len());
        let (word, after) = left.split_at(end);
        self.left = after;
        word
    }

    fn string(&mut self) -> Option<String> {
        let mark = [b'\'', b'"'].into_iter().find(|&mark| self.mark(mark))?;
        let end = self.left.iter().position(|&byte| byte == mark)?;
        let text = std::str::from_utf8(&self.left[..end]).ok()?.to_owned();
        self.left = &self.left[end + 1..];
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.word() {
            b"True" => Some(true),
            b"False" => Some(false),
            _ => None,
        }
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut lengths = Vec::new();
        self.mark(b'(').then_some(())?;
        while !self.mark(b')') {
            // Python 2 wrote 10L.
            let word = self.word();
            let digits = word.strip_suffix(b"L").unwrap_or(word);
            lengths.push(std::str::from_utf8(digits).ok()?.parse().ok()?);
            if !self.mark(b',') {
                self.mark(b')').then_some(())?;
                break;
            }
        }
        Some(lengths)
    }
}

/// Reads a `.npy` file of `size` bytes; its columns are called c1, c2, ….
pub(super) fn read_npy(
    path: &Path,
    file: File,
    size: u64,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let wrong = |why: String| Error::table(path, format!("cannot be read as .npy: {why}"));
    let mut input = BufReader::with_capacity(1 << 18, file);
    let header = Header::read(&mut input).map_err(wrong)?;
    let (count, columns) = header.rows_and_columns().map_err(wrong)?;
    header.check_size(size.saturating_sub(header.length)).map_err(wrong)?;
    let names: Vec<_> = (1..=columns).map(|position| format!("c{position}")).collect();
    let (mut rows, chosen) = Rows::new(path, options, &names, choose)?;
    rows.reserve(count)?;
    rows.values.resize(count * chosen.len(), f64::NAN);
    let picks: Vec<_> = chosen.iter().enumerate().map(|(to, &from)| (from, to)).collect();
    let rounded = header.load(&mut input, &picks, &mut rows.values, chosen.len()).map_err(wrong)?;
    let warnings = rounded_warnings(path, &rows.names, &rounded);
    rows.settle(0)?;
    rows.finish(warnings)
}

fn rounded_warnings(path: &Path, names: &[String], rounded: &[bool]) -> Vec<String> {
    names
        .iter()
        .zip(rounded)
        .filter(|(_, rounded)| **rounded)
        .map(|(name, _)| rounded_warning(path, name))
        .collect()
}

/// An array of an archive: where it is, what it is called, and its header or what is wrong with it.
struct Member {
    index: usize,
    name: String,
    /// How many columns it makes.
    columns: usize,
    header: Result<Header, String>,
}

/// Reads a `.npz` archive of `size` bytes. An array with one dimension, or one column, is a column of its name; the
/// columns of a wider array `x` are called x1, x2, …. Arrays not chosen may hold anything; text arrays called
/// `names` or `columns` and arrays without dimensions are passed over.
pub(super) fn read_npz(
    path: &Path,
    file: File,
    size: u64,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let damaged = |error: ZipError| Error::table(path, format!("is not a readable .npz archive ({error})"));
    let input = BufReader::with_capacity(1 << 16, file);
    let mut archive = guarded(path, || ZipArchive::new(input).map_err(damaged))?;
    let members = guarded(path, || members(path, &mut archive, size))?;

    let mut header = Vec::new();
    let mut origin = Vec::new();
    for (m, member) in members.iter().enumerate() {
        for column in 0..member.columns {
            header.push(match member.columns {
                1 => member.name.clone(),
                _ => format!("{}{}", member.name, column + 1),
            });
            origin.push((m, column));
        }
    }
    if header.is_empty() {
        return Err(Error::table(path, "the archive holds no arrays"));
    }
    let (mut rows, chosen) = Rows::new(path, options, &header, choose)?;

    let mut picks = vec![Vec::new(); members.len()];
    for (to, &column) in chosen.iter().enumerate() {
        let (member, from) = origin[column];
        picks[member].push((from, to));
    }
    let mut agreed: Option<(usize, &str)> = None;
    for (member, _) in members.iter().zip(&picks).filter(|(_, picks)| !picks.is_empty()) {
        let wrong = |why: &String| Error::table(path, format!("array \"{}\": {why}", member.name));
        let array = member.header.as_ref().map_err(wrong)?;
        let (count, _) = array.rows_and_columns().map_err(|why| wrong(&why))?;
        match agreed {
            Some((rows, first)) if rows != count => {
                let problem = format!(
                    "array \"{first}\" has {rows} rows but array \"{}\" has {count}: choose arrays of equal length",
                    member.name
                );
                return Err(Error::table(path, problem));
            }
            _ => agreed = Some((count, &member.name)),
        }
    }
    let width = chosen.len();
    let count = agreed.map_or(0, |(count, _)| count);
    rows.reserve(count)?;
    rows.values.resize(count * width, f64::NAN);
    let mut rounded = vec![false; width];
    guarded(path, || {
        for (member, picks) in members.iter().zip(&picks).filter(|(_, picks)| !picks.is_empty()) {
            let wrong = |why: String| Error::table(path, format!("array \"{}\": {why}", member.name));
            let mut input = BufReader::new(archive.by_index(member.index).map_err(damaged)?);
            let array = Header::read(&mut input).map_err(wrong)?;
            if member.header.as_ref().ok() != Some(&array) {
                return Err(wrong("it changed while it was read".into()));
            }
            let flags = array.load(&mut input, picks, &mut rows.values, width).map_err(wrong)?;
            picks.iter().zip(flags).for_each(|(&(_, to), flag)| rounded[to] = flag);
            // The checksum is verified at the end of the member.
            io::copy(&mut input, &mut io::sink()).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(())
    })?;
    let warnings = rounded_warnings(path, &rows.names, &rounded);
    rows.settle(0)?;
    rows.finish(warnings)
}

fn members(path: &Path, archive: &mut ZipArchive<BufReader<File>>, size: u64) -> Result<Vec<Member>> {
    let mut members = Vec::new();
    let mut compressed = 0_u64;
    for index in 0..archive.len() {
        let file = archive
            .by_index(index)
            .map_err(|error| Error::table(path, format!("is not a readable .npz archive ({error})")))?;
        let name = file
            .name()
            .map_err(|error| Error::table(path, format!("is not a readable .npz archive ({error})")))?;
        let Some(name) = name.strip_suffix(".npy").map(str::to_owned) else { continue };
        compressed = compressed.saturating_add(file.compressed_size());
        if compressed > size {
            return Err(Error::table(path, "is damaged: its arrays declare more bytes than the file has"));
        }
        // Deflate shrinks by at most 1032, so an honest length is bounded by the bytes present.
        let bound = match file.compression() {
            CompressionMethod::Stored => file.compressed_size(),
            CompressionMethod::Deflated => file.compressed_size().saturating_mul(1032),
            _ => 0,
        };
        let length = file.size();
        let header = match Header::read(&mut BufReader::new(file)) {
            _ if length > bound => Err("its length or compression is not one that NumPy writes".into()),
            Ok(header) if header.shape.is_empty() => continue,
            Ok(header) if header.is_text() && matches!(name.as_str(), "names" | "columns") => continue,
            Ok(header) => header.check_size(length.saturating_sub(header.length)).map(|()| header),
            Err(why) => Err(why),
        };
        let columns =
            header.as_ref().ok().and_then(|header| header.rows_and_columns().ok()).map_or(1, |(_, c)| c);
        members.push(Member { index, name, columns, header });
        if members.iter().map(|member| member.columns).sum::<usize>() > MOST_COLUMNS {
            return Err(Error::table(path, format!("more than {MOST_COLUMNS} columns are too many")));
        }
    }
    Ok(members)
}

/// The header of an array of doubles, padded so that the values begin at a multiple of 64 bytes.
fn header_bytes(shape: &str) -> Vec<u8> {
    let text = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}");
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let size = u16::try_from(length).expect("two numbers are short");
    let mut bytes = Vec::with_capacity(10 + length);
    bytes.extend(MAGIC);
    bytes.extend([1, 0]);
    bytes.extend(size.to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(10 + length - 1, b' ');
    bytes.push(b'\n');
    bytes
}

fn write_values<'v>(writer: &mut impl Write, mut values: impl Iterator<Item = &'v f64>) -> io::Result<()> {
    let mut block = Vec::with_capacity(1 << 16);
    loop {
        block.clear();
        values.by_ref().take(1 << 13).for_each(|value| block.extend(value.to_le_bytes()));
        if block.is_empty() {
            return Ok(());
        }
        writer.write_all(&block)?;
    }
}

/// Writes one array of shape (rows, columns); names are lost.
pub(super) fn write_npy(writer: &mut impl Write, table: &Table) -> io::Result<()> {
    writer.write_all(&header_bytes(&format!("{}, {}", table.rows(), table.columns())))?;
    write_values(writer, table.values().iter())
}

/// Writes an uncompressed archive with one array per column.
pub(super) fn write_npz(writer: &mut (impl Write + Seek), table: &Table) -> io::Result<()> {
    let mut patient = Patient::new(writer);
    let mut archive = ZipWriter::new(&mut patient);
    let large = table.rows() as u64 * 8 >= u64::from(u32::MAX) - 1024;
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(DateTime::default()) // the same table makes the same file
        .large_file(large);
    for (j, name) in table.names().iter().enumerate() {
        archive.start_file(format!("{name}.npy"), options)?;
        archive.write_all(&header_bytes(&format!("{},", table.rows())))?;
        write_values(&mut archive, table.values().iter().skip(j).step_by(table.columns()))?;
    }
    archive.finish()?;
    patient.failure.map_or(Ok(()), Err)
}

/// Keeps the first failure of a writer to itself and goes through the motions from then on: an archive that cannot be
/// completed would complain on standard error.
struct Patient<'a, W> {
    writer: &'a mut W,
    failure: Option<io::Error>,
    /// Where the next byte goes, and where the last one went: what the archive believes after a failure.
    place: u64,
    end: u64,
}

impl<'a, W> Patient<'a, W> {
    fn new(writer: &'a mut W) -> Self {
        Self { writer, failure: None, place: 0, end: 0 }
    }

    /// Does `work` unless something has failed before.
    fn attempt<T>(&mut self, work: impl FnOnce(&mut W) -> io::Result<T>) -> Option<T> {
        if self.failure.is_some() {
            return None;
        }
        work(self.writer).map_err(|error| self.failure = Some(error)).ok()
    }
}

impl<W: Write> Write for Patient<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|writer| writer.write_all(bytes));
        self.place += bytes.len() as u64;
        self.end = self.end.max(self.place);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(W::flush);
        Ok(())
    }
}

impl<W: Seek> Seek for Patient<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.place = match (self.attempt(|writer| writer.seek(to)), to) {
            (Some(place), _) | (None, SeekFrom::Start(place)) => place,
            (None, SeekFrom::Current(by)) => self.place.saturating_add_signed(by),
            (None, SeekFrom::End(by)) => self.end.saturating_add_signed(by),
        };
        Ok(self.place)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
