//! Parquet: chosen columns of numbers, read in blocks of rows straight into the table; tables of doubles written.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use ::parquet::basic::{
    Compression, ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::{ByteArray, DataType, DoubleType, FixedLenByteArray, Int96};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::{ColumnDescriptor, Type};

use super::encode::Read;
use super::format::{ColumnChoice, ReadOptions};
use super::rows::{Clock, EXACT_INTEGERS, NOT_A_NUMBER, Rows, guarded, half_to_f64, rounded_warning};
use super::table::Table;
use super::thrift::Inspected;
use crate::{Error, Result};

/// Reads the columns that `choose` picks from a parquet file of `size` bytes.
pub(super) fn read(
    path: &Path,
    file: File,
    size: u64,
    options: &ReadOptions,
    choose: impl FnOnce(&[String]) -> Result<ColumnChoice>,
) -> Result<Read> {
    let damaged = |error: ParquetError| damaged(path, &error);
    let (reader, header) = guarded(path, || {
        let reader = SerializedFileReader::new(Inspected(file)).map_err(damaged)?;
        let columns = reader.metadata().file_metadata().schema_descr().columns();
        let header: Vec<_> = columns.iter().map(|column| column.path().parts().join(".")).collect();
        Ok((reader, header))
    })?;
    let (mut rows, chosen) = Rows::new(path, options, &header, choose)?;
    let warnings = guarded(path, || load(&reader, size, &chosen, &mut rows))?;
    rows.finish(warnings)
}

fn damaged(path: &Path, error: &ParquetError) -> Error {
    Error::table(path, format!("is not a readable parquet file ({error}): write it again"))
}

fn load(
    reader: &SerializedFileReader<Inspected>,
    size: u64,
    chosen: &[usize],
    rows: &mut Rows<'_>,
) -> Result<Vec<String>> {
    let path = rows.path;
    let damaged = |error: ParquetError| damaged(path, &error);
    let schema = reader.metadata().file_metadata().schema_descr();
    let width = chosen.len();
    let mut columns = Vec::with_capacity(width);
    for (&column, name) in chosen.iter().zip(&rows.names) {
        let descriptor = schema.column(column);
        let text = rows.is_categorical(columns.len()) && Decode::is_text(&descriptor);
        let decode = if text { Ok(Decode::Text) } else { Decode::of(&descriptor) };
        let decode = decode.map_err(|found| {
            Error::table(path, format!("column \"{name}\" holds {found}, {NOT_A_NUMBER}"))
        })?;
        columns.push((column, decode, false));
    }

    let mut declared = 0_u64;
    for group in reader.metadata().row_groups() {
        // Negative places make the decoder panic.
        let sane = chosen.iter().map(|&column| group.column(column)).all(|chunk| {
            chunk.data_page_offset() >= 0
                && chunk.compressed_size() >= 0
                && chunk.dictionary_page_offset().is_none_or(|offset| offset >= 0)
        });
        let count = u64::try_from(group.num_rows()).ok().filter(|_| sane);
        declared = count.and_then(|count| declared.checked_add(count)).ok_or_else(|| {
            Error::table(path, "is damaged: its footer declares impossible numbers; write it again")
        })?;
    }
    // Repeated values take next to no space, so a small file may be a long table, but not without limit.
    let bytes = u128::from(declared) * 8 * width as u128;
    if bytes > 1 << 30 && bytes > 1000 * u128::from(size) {
        let problem = format!("declares {declared} rows in only {size} bytes, which is not plausible");
        return Err(Error::table(path, problem));
    }
    rows.reserve(usize::try_from(declared).unwrap_or(usize::MAX))?;

    // All columns of a block of rows are decoded before the next block, so only one page of each is in memory.
    let block_rows = ((1 << 20) / width).clamp(64, 8192);
    let mut buffers = Buffers::default();
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(damaged)?;
        let mut readers = Vec::with_capacity(width);
        for &(column, ..) in &columns {
            readers.push(group.get_column_reader(column).map_err(damaged)?);
        }
        let mut left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        while left > 0 {
            let count = left.min(block_rows);
            let start = rows.values.len();
            rows.values.resize(start + count * width, f64::NAN);
            for (j, (source, (_, decode, rounded))) in readers.iter_mut().zip(&mut columns).enumerate() {
                if *decode == Decode::Text {
                    let seen = rows.seen;
                    let texts = buffers.texts(source, count).map_err(damaged)?;
                    for (row, text) in texts {
                        let place =
                            rows.place_text(j, &String::from_utf8_lossy(text.data()), seen + row + 1)?;
                        rows.values[start + row * width + j] = place;
                    }
                    continue;
                }
                let slots = rows.values[start + j..].iter_mut().step_by(width);
                *rounded |= buffers.read(source, *decode, count, slots).map_err(damaged)?;
            }
            rows.settle(start)?;
            left -= count;
        }
    }
    let mut warnings = Vec::new();
    for ((_, decode, rounded), name) in columns.iter().zip(&rows.names) {
        if *rounded {
            warnings.push(rounded_warning(path, name));
        }
        if let Decode::Clock(_, clock) = decode {
            warnings.push(clock.warning(path, name));
        }
    }
    Ok(warnings)
}

/// How the stored form of a column becomes a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decode {
    Plain,
    Unsigned,
    /// An integer to be divided by this power of ten.
    Decimal(f64),
    /// Half precision in two bytes.
    Half,
    /// A time, to be divided by the number of its units in a second (in a day, for dates).
    Clock(f64, Clock),
    /// A category.
    Text,
}

impl Decode {
    /// Whether `column` holds texts.
    fn is_text(column: &ColumnDescriptor) -> bool {
        let logical = column.logical_type_ref();
        let flat = column.max_rep_level() == 0 && column.path().parts().len() == 1;
        flat && column.physical_type() == Physical::BYTE_ARRAY
            && (matches!(logical, Some(LogicalType::String | LogicalType::Enum))
                || matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::ENUM)
                || (logical.is_none() && column.converted_type() == ConvertedType::NONE))
    }

    /// The clock by which `column` counts, if it does.
    fn clock(column: &ColumnDescriptor) -> Option<Decode> {
        let units = |unit: &TimeUnit| match unit {
            TimeUnit::MILLIS => 1e3,
            TimeUnit::MICROS => 1e6,
            TimeUnit::NANOS => 1e9,
        };
        Some(match (column.logical_type_ref(), column.converted_type()) {
            (Some(LogicalType::Timestamp(kind)), _) => Decode::Clock(units(&kind.unit), Clock::Timestamp),
            (Some(LogicalType::Time(kind)), _) => Decode::Clock(units(&kind.unit), Clock::Time),
            (Some(LogicalType::Date), _) => Decode::Clock(1.0, Clock::Date),
            (Some(_), _) => return None,
            (None, ConvertedType::TIMESTAMP_MILLIS) => Decode::Clock(1e3, Clock::Timestamp),
            (None, ConvertedType::TIMESTAMP_MICROS) => Decode::Clock(1e6, Clock::Timestamp),
            (None, ConvertedType::TIME_MILLIS) => Decode::Clock(1e3, Clock::Time),
            (None, ConvertedType::TIME_MICROS) => Decode::Clock(1e6, Clock::Time),
            (None, ConvertedType::DATE) => Decode::Clock(1.0, Clock::Date),
            (None, _) if column.physical_type() == Physical::INT96 => Decode::Clock(1.0, Clock::Timestamp),
            (None, _) => return None,
        })
    }

    /// The rule for `column`, or a description of its contents if they are not numbers.
    fn of(column: &ColumnDescriptor) -> Result<Decode, String> {
        if column.max_rep_level() > 0 {
            return Err("lists".into());
        }
        if column.path().parts().len() > 1 {
            return Err("a part of a nested structure".into());
        }
        if let (Some(clock), Physical::INT32 | Physical::INT64 | Physical::INT96) =
            (Self::clock(column), column.physical_type())
        {
            return Ok(clock);
        }
        let logical = column.logical_type_ref();
        let decimal = match logical {
            Some(LogicalType::Decimal(decimal)) => Some(decimal.scale),
            None if column.converted_type() == ConvertedType::DECIMAL => Some(column.type_scale()),
            _ => None,
        };
        let unsigned = match logical {
            Some(LogicalType::Integer(integer)) => !integer.is_signed,
            _ => matches!(
                column.converted_type(),
                ConvertedType::UINT_8
                    | ConvertedType::UINT_16
                    | ConvertedType::UINT_32
                    | ConvertedType::UINT_64
            ),
        };
        match (column.physical_type(), decimal) {
            (Physical::INT32 | Physical::INT64, Some(scale)) => Ok(Decode::Decimal(10_f64.powi(scale))),
            (Physical::FIXED_LEN_BYTE_ARRAY, Some(scale)) if column.type_length() <= 16 => {
                Ok(Decode::Decimal(10_f64.powi(scale)))
            }
            (Physical::INT32 | Physical::INT64, None) if unsigned => Ok(Decode::Unsigned),
            (
                Physical::BOOLEAN | Physical::INT32 | Physical::INT64 | Physical::FLOAT | Physical::DOUBLE,
                None,
            ) => Ok(Decode::Plain),
            (Physical::FIXED_LEN_BYTE_ARRAY, None) if matches!(logical, Some(LogicalType::Float16)) => {
                Ok(Decode::Half)
            }
            _ if matches!(logical, Some(LogicalType::String))
                || column.converted_type() == ConvertedType::UTF8 =>
            {
                Err("text".into())
            }
            (physical, _) => Err(format!("{physical} values")),
        }
    }
}

/// Decoded values of one block of one column, before they are distributed to rows.
#[derive(Default)]
struct Buffers {
    levels: Vec<i16>,
    bools: Vec<bool>,
    ints: Vec<i32>,
    longs: Vec<i64>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    bytes: Vec<FixedLenByteArray>,
    moments: Vec<Int96>,
    texts: Vec<ByteArray>,
}

impl Buffers {
    /// Reads `count` values into `slots`, leaving those of nulls as they are; says whether integers were rounded.
    fn read<'v>(
        &mut self,
        source: &mut ColumnReader,
        decode: Decode,
        count: usize,
        slots: impl Iterator<Item = &'v mut f64>,
    ) -> Result<bool, ParquetError> {
        let levels = &mut self.levels;
        let mut rounded = false;
        let mut integer = |value: f64| {
            rounded |= value.abs() >= EXACT_INTEGERS;
            value
        };
        match source {
            ColumnReader::BoolColumnReader(source) => {
                deal(source, count, levels, &mut self.bools, slots, |&value| f64::from(u8::from(value)))
            }
            ColumnReader::Int32ColumnReader(source) => {
                deal(source, count, levels, &mut self.ints, slots, |&value| match decode {
                    Decode::Unsigned => f64::from(value as u32),
                    Decode::Clock(power, _) | Decode::Decimal(power) => f64::from(value) / power,
                    _ => f64::from(value),
                })
            }
            ColumnReader::Int64ColumnReader(source) => {
                deal(source, count, levels, &mut self.longs, slots, |&value| match decode {
                    Decode::Unsigned => integer(value as u64 as f64),
                    Decode::Clock(power, _) | Decode::Decimal(power) => value as f64 / power,
                    _ => integer(value as f64),
                })
            }
            ColumnReader::FloatColumnReader(source) => {
                deal(source, count, levels, &mut self.floats, slots, |&value| f64::from(value))
            }
            ColumnReader::DoubleColumnReader(source) => {
                deal(source, count, levels, &mut self.doubles, slots, |&value| value)
            }
            ColumnReader::FixedLenByteArrayColumnReader(source) => {
                deal(source, count, levels, &mut self.bytes, slots, |value| match (decode, value.data()) {
                    (Decode::Half, &[low, high]) => half_to_f64(u16::from_le_bytes([low, high])),
                    (Decode::Decimal(power), bytes) => big_endian(bytes) as f64 / power,
                    _ => f64::NAN,
                })
            }
            ColumnReader::Int96ColumnReader(source) => {
                deal(source, count, levels, &mut self.moments, slots, seconds)
            }
            _ => Err(ParquetError::General("a column changed its type".into())),
        }?;
        Ok(rounded)
    }

    /// Reads `count` texts: the place of each that is not null, and the text.
    fn texts(
        &mut self,
        source: &mut ColumnReader,
        count: usize,
    ) -> Result<Vec<(usize, &ByteArray)>, ParquetError> {
        let ColumnReader::ByteArrayColumnReader(source) = source else {
            return Err(ParquetError::General("a column changed its type".into()));
        };
        read_block(source, count, &mut self.levels, &mut self.texts)?;
        let full = self.texts.len() == count;
        let places = (0..count).filter(|&row| full || self.levels.get(row).is_some_and(|&level| level > 0));
        Ok(places.zip(&self.texts).collect())
    }
}

/// Seconds since 1970 of a moment as Spark and Impala wrote it: nanoseconds of the day, and the Julian day.
fn seconds(moment: &Int96) -> f64 {
    let &[low, high, day] = moment.data() else { return f64::NAN };
    let nanoseconds = (u64::from(high) << 32 | u64::from(low)) as f64;
    (f64::from(day) - 2_440_588.0) * 86_400.0 + nanoseconds / 1e9
}

/// A two's complement number of at most sixteen bytes, the highest first.
fn big_endian(bytes: &[u8]) -> i128 {
    let sign = if bytes.first().is_some_and(|&first| first >= 0x80) { -1 } else { 0 };
    bytes.iter().fold(sign, |number, &byte| (number << 8) | i128::from(byte))
}

/// Reads `count` rows of a column: levels, if it has any, and the values that are not null.
fn read_block<T: DataType>(
    source: &mut ColumnReaderImpl<T>,
    count: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<(), ParquetError> {
    levels.clear();
    values.clear();
    let (records, ..) = source.read_records(count, Some(levels), None, values)?;
    if records != count || !(levels.is_empty() || levels.len() == count) {
        return Err(ParquetError::General("a column has fewer rows than the file declares".into()));
    }
    Ok(())
}

fn deal<'v, T: DataType>(
    source: &mut ColumnReaderImpl<T>,
    count: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
    slots: impl Iterator<Item = &'v mut f64>,
    mut number: impl FnMut(&T::T) -> f64,
) -> Result<(), ParquetError> {
    read_block(source, count, levels, values)?;
    if values.len() == count {
        slots.zip(&*values).for_each(|(slot, value)| *slot = number(value));
    } else {
        // Nulls have definition level 0 and no value.
        let present = slots.zip(&*levels).filter(|(_, level)| **level > 0);
        present.zip(&*values).for_each(|((slot, _), value)| *slot = number(value));
    }
    Ok(())
}

/// Rows per row group: a column of one is a megabyte.
const GROUP_ROWS: usize = 1 << 17;

/// Writes required DOUBLE columns, compressed with zstd.
pub(super) fn write(writer: &mut (impl Write + Send), table: &Table) -> io::Result<()> {
    write_groups(writer, table).map_err(|error| match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => *source,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    })
}

fn write_groups(writer: &mut (impl Write + Send), table: &Table) -> Result<(), ParquetError> {
    let mut fields = Vec::with_capacity(table.columns());
    for name in table.names() {
        let field =
            Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::REQUIRED);
        fields.push(Arc::new(field.build()?));
    }
    let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_created_by(concat!("brenier ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_dictionary_enabled(false)
        .build();
    let mut file = SerializedFileWriter::new(writer, schema, Arc::new(properties))?;
    let mut buffer = Vec::with_capacity(GROUP_ROWS.min(table.rows()));
    for block in table.values().chunks(GROUP_ROWS * table.columns()) {
        let mut group = file.next_row_group()?;
        let mut j = 0;
        while let Some(mut column) = group.next_column()? {
            buffer.clear();
            buffer.extend(block[j..].iter().step_by(table.columns()));
            column.typed::<DoubleType>().write_batch(&buffer, None, None)?;
            column.close()?;
            j += 1;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
