//! The little of the FlatBuffers format that Arrow's messages use. Reading checks every offset and never panics: what
//! is absent or out of bounds is `None`, whoever wrote the bytes. Writing goes front to back.

/// A table inside a flatbuffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flat<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The `N` bytes at `at`.
fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

impl<'a> Flat<'a> {
    /// The table that the flatbuffer `bytes` is about.
    pub(super) fn root(bytes: &'a [u8]) -> Option<Self> {
        Self { bytes, at: 0 }.jump(0)
    }

    /// The table at which the offset at `at` points.
    fn jump(&self, at: usize) -> Option<Self> {
        let offset = u32::from_le_bytes(array(self.bytes, at)?);
        let at = at.checked_add(offset as usize)?;
        (at < self.bytes.len()).then_some(Self { bytes: self.bytes, at })
    }

    /// Where field `slot` of the table is.
    fn field(&self, slot: usize) -> Option<usize> {
        let back = i64::from(i32::from_le_bytes(array(self.bytes, self.at)?));
        let directory = usize::try_from(self.at as i64 - back).ok()?;
        let length = usize::from(u16::from_le_bytes(array(self.bytes, directory)?));
        let entry = 4 + 2 * slot;
        if entry + 2 > length {
            return None;
        }
        match u16::from_le_bytes(array(self.bytes, directory.checked_add(entry)?)?) {
            0 => None,
            offset => self.at.checked_add(usize::from(offset)),
        }
    }

    pub(super) fn u8(&self, slot: usize) -> Option<u8> {
        self.field(slot).and_then(|at| self.bytes.get(at).copied())
    }

    pub(super) fn i16(&self, slot: usize) -> Option<i16> {
        self.field(slot).and_then(|at| array(self.bytes, at)).map(i16::from_le_bytes)
    }

    pub(super) fn i32(&self, slot: usize) -> Option<i32> {
        self.field(slot).and_then(|at| array(self.bytes, at)).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&self, slot: usize) -> Option<i64> {
        self.field(slot).and_then(|at| array(self.bytes, at)).map(i64::from_le_bytes)
    }

    pub(super) fn table(&self, slot: usize) -> Option<Flat<'a>> {
        self.field(slot).and_then(|at| self.jump(at))
    }

    pub(super) fn text(&self, slot: usize) -> Option<&'a str> {
        std::str::from_utf8(self.items(slot, 1)?).ok()
    }

    /// The bytes of a vector whose items have `size` bytes each.
    pub(super) fn items(&self, slot: usize, size: usize) -> Option<&'a [u8]> {
        let at = self.jump(self.field(slot)?)?.at;
        let count = u32::from_le_bytes(array(self.bytes, at)?) as usize;
        let start = at.checked_add(4)?;
        self.bytes.get(start..start.checked_add(count.checked_mul(size)?)?)
    }

    /// The tables of a vector of tables; those out of bounds are left out.
    pub(super) fn tables(&self, slot: usize) -> impl Iterator<Item = Flat<'a>> + use<'a> {
        let whole = Self { bytes: self.bytes, at: 0 };
        let start = self.field(slot).and_then(|at| self.jump(at)).map_or(0, |vector| vector.at + 4);
        let count = self.items(slot, 4).map_or(0, |items| items.len() / 4);
        (0..count).filter_map(move |item| whole.jump(start + 4 * item))
    }

    /// The pairs of integers of a vector of structs that begin with two of them.
    pub(super) fn pairs(&self, slot: usize) -> Option<Vec<(i64, i64)>> {
        let number = |bytes: &[u8], at: usize| array(bytes, at).map_or(0, i64::from_le_bytes);
        let items = self.items(slot, 16)?;
        Some(items.chunks_exact(16).map(|item| (number(item, 0), number(item, 8))).collect())
    }
}

/// A field of a table to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    /// Not there: the default.
    None,
    U8(u8),
    I16(i16),
    I64(i64),
    /// An offset, filled in by [`FlatWriter::point`] once its end is written.
    Offset,
}

/// Writes a flatbuffer: first a table, then what its offsets point at.
#[derive(Default)]
pub(super) struct FlatWriter {
    pub(super) bytes: Vec<u8>,
}

impl FlatWriter {
    /// A writer, and the place of the offset of its root.
    pub(super) fn new() -> (Self, usize) {
        (Self { bytes: vec![0; 4] }, 0)
    }

    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    /// Lets the offset at `place` point at what is written next.
    fn point(&mut self, place: usize) {
        let offset = (self.bytes.len() - place) as u32;
        self.bytes[place..place + 4].copy_from_slice(&offset.to_le_bytes());
    }

    /// Writes a table at which the offset at `place` points, and returns the places of its fields.
    pub(super) fn table(&mut self, place: usize, fields: &[Field]) -> Vec<usize> {
        let size = |field: &Field| match field {
            Field::None => 0,
            Field::U8(_) => 1,
            Field::I16(_) => 2,
            Field::Offset => 4,
            Field::I64(_) => 8,
        };
        // Directory, then the table, whose own offset is at a multiple of 8 so that the fields can be, too.
        let mut offset = 4_usize;
        let offsets: Vec<usize> = fields
            .iter()
            .map(|field| match size(field) {
                0 => 0,
                size => {
                    let at = offset.next_multiple_of(size);
                    offset = at + size;
                    at
                }
            })
            .collect();
        let directory_length = 4 + 2 * fields.len();
        while !(self.bytes.len() + directory_length).is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes.extend((directory_length as u16).to_le_bytes());
        self.bytes.extend((offset as u16).to_le_bytes());
        offsets.iter().for_each(|&offset| self.bytes.extend((offset as u16).to_le_bytes()));
        self.point(place);
        let start = self.bytes.len();
        self.bytes.resize(start + offset, 0);
        self.bytes[start..start + 4].copy_from_slice(&(directory_length as i32).to_le_bytes());
        for (field, &offset) in fields.iter().zip(&offsets) {
            let slot = &mut self.bytes[start + offset..][..size(field)];
            match field {
                Field::None | Field::Offset => {}
                Field::U8(value) => slot.copy_from_slice(&value.to_le_bytes()),
                Field::I16(value) => slot.copy_from_slice(&value.to_le_bytes()),
                Field::I64(value) => slot.copy_from_slice(&value.to_le_bytes()),
            }
        }
        offsets.iter().map(|offset| start + offset).collect()
    }

    /// Writes a text at which the offset at `place` points.
    pub(super) fn text(&mut self, place: usize, text: &str) {
        self.align(4);
        self.point(place);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// Writes a vector of offsets at which the offset at `place` points, and returns their places.
    pub(super) fn offsets(&mut self, place: usize, count: usize) -> Vec<usize> {
        self.align(4);
        self.point(place);
        self.bytes.extend((count as u32).to_le_bytes());
        let start = self.bytes.len();
        self.bytes.resize(start + 4 * count, 0);
        (0..count).map(|item| start + 4 * item).collect()
    }

    /// Writes a vector of `count` structs that consist of `numbers`, at which the offset at `place` points.
    pub(super) fn structs(&mut self, place: usize, count: usize, numbers: impl IntoIterator<Item = i64>) {
        self.align(4);
        if self.bytes.len().is_multiple_of(8) {
            self.bytes.extend([0; 4]);
        }
        self.point(place);
        self.bytes.extend((count as u32).to_le_bytes());
        numbers.into_iter().for_each(|number| self.bytes.extend(number.to_le_bytes()));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let (mut writer, root) = FlatWriter::new();
        let fields = [
            Field::U8(7),
            Field::None,
            Field::I64(-5),
            Field::I16(3),
            Field::Offset,
            Field::Offset,
            Field::Offset,
        ];
        let places = writer.table(root, &fields);
        writer.text(places[4], "naïve");
        let items = writer.offsets(places[5], 2);
        for (item, value) in items.into_iter().zip([11, 12]) {
            writer.table(item, &[Field::I16(value)]);
        }
        writer.structs(places[6], 2, [1, 2, 3, 4]);
        let flat = Flat::root(&writer.bytes).unwrap();
        assert_eq!((flat.u8(0), flat.i32(1), flat.i64(2), flat.i16(3)), (Some(7), None, Some(-5), Some(3)));
        assert_eq!(flat.text(4), Some("naïve"));
        assert_eq!(flat.tables(5).map(|item| item.i16(0)).collect::<Vec<_>>(), [Some(11), Some(12)]);
        assert_eq!(flat.pairs(6), Some(vec![(1, 2), (3, 4)]));
        assert!(flat.field(7).is_none() && flat.table(100).is_none());
    }
}
