//! Writing Arrow's IPC file format: tables of doubles.

use std::io::{self, Write};

use super::MAGIC;
use crate::flat::{Field, FlatWriter};
use crate::table::Table;

/// Rows in a batch: a column of one is half a megabyte.
const BATCH_ROWS: usize = 1 << 16;
/// The present version of the metadata.
const VERSION: i16 = 4;

/// Writes a file of non-null doubles, uncompressed, so that readers can map it into memory.
pub(crate) fn write(writer: &mut impl Write, table: &Table) -> io::Result<()> {
    let mut place = 8_i64;
    writer.write_all(MAGIC)?;
    writer.write_all(&[0; 2])?;
    let (mut schema, root) = FlatWriter::new();
    let fields = schema.table(root, &[Field::I16(VERSION), Field::U8(1), Field::Offset, Field::I64(0)]);
    write_schema(&mut schema, fields[2], table);
    place += write_message(writer, schema)?;
    let mut blocks = Vec::new();
    let width = table.columns();
    for block in table.values().chunks(BATCH_ROWS * width) {
        let rows = block.len() / width;
        let column = (8 * rows).next_multiple_of(64);
        let (mut batch, root) = FlatWriter::new();
        let length = Field::I64((column * width) as i64);
        let fields = batch.table(root, &[Field::I16(VERSION), Field::U8(3), Field::Offset, length]);
        let fields = batch.table(fields[2], &[Field::I64(rows as i64), Field::Offset, Field::Offset]);
        batch.structs(fields[1], width, (0..width).flat_map(|_| [rows as i64, 0]));
        let buffers = (0..width).flat_map(|j| {
            let start = (j * column) as i64;
            [start, 0, start, 8 * rows as i64]
        });
        batch.structs(fields[2], 2 * width, buffers);
        let metadata = write_message(writer, batch)?;
        let mut bytes = Vec::with_capacity(column);
        for j in 0..width {
            bytes.clear();
            block[j..].iter().step_by(width).for_each(|value| bytes.extend(value.to_le_bytes()));
            bytes.resize(column, 0);
            writer.write_all(&bytes)?;
        }
        // The length of the metadata has four bytes, and four more up to the next number.
        blocks.extend([place, metadata, (column * width) as i64]);
        place += metadata + (column * width) as i64;
    }
    // The end of the stream, then the directory.
    writer.write_all(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])?;
    let (mut footer, root) = FlatWriter::new();
    let fields = footer.table(root, &[Field::I16(VERSION), Field::Offset, Field::Offset, Field::Offset]);
    write_schema(&mut footer, fields[1], table);
    footer.structs(fields[2], 0, []);
    footer.structs(fields[3], blocks.len() / 3, blocks);
    writer.write_all(&footer.bytes)?;
    writer.write_all(&(footer.bytes.len() as i32).to_le_bytes())?;
    writer.write_all(MAGIC)
}

fn write_schema(flat: &mut FlatWriter, place: usize, table: &Table) {
    let fields = flat.table(place, &[Field::I16(0), Field::Offset]);
    let places = flat.offsets(fields[1], table.columns());
    for (place, name) in places.into_iter().zip(table.names()) {
        // Name, nullable, type 3 (a number of precision 2: double), no dictionary, no children.
        let kinds = [Field::Offset, Field::U8(0), Field::U8(3), Field::Offset, Field::None, Field::Offset];
        let fields = flat.table(place, &kinds);
        flat.text(fields[0], name);
        flat.table(fields[3], &[Field::I16(2)]);
        flat.offsets(fields[5], 0);
    }
}

/// Writes the metadata of a message and returns how many bytes that took.
fn write_message(writer: &mut impl Write, mut flat: FlatWriter) -> io::Result<i64> {
    flat.bytes.resize((flat.bytes.len() + 8).next_multiple_of(64) - 8, 0);
    writer.write_all(&[0xff; 4])?;
    writer.write_all(&(flat.bytes.len() as i32).to_le_bytes())?;
    writer.write_all(&flat.bytes)?;
    Ok(flat.bytes.len() as i64 + 8)
}
