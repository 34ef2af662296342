//! The columns that an Arrow schema declares, and how much of a batch each takes.

use crate::flat::Flat;
use crate::rows::Clock;

/// Fields, nested ones included, beyond which a schema is taken for damaged.
const MOST_FIELDS: usize = 1 << 20;
/// Nesting beyond which a schema is taken for damaged.
const DEEPEST: usize = 64;

/// What a column holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Integer {
        bytes: usize,
        signed: bool,
    },
    Float {
        bytes: usize,
    },
    Bool,
    /// Integers to be divided by a power of ten.
    Decimal {
        bytes: usize,
        power: f64,
    },
    /// Integers, of which `units` make a second (a day, for dates).
    Clock {
        bytes: usize,
        units: f64,
        clock: Clock,
    },
    /// Texts, found by offsets of 4 or 8 bytes.
    Text {
        bytes: usize,
    },
    /// Texts, the short ones in place.
    View,
    /// What cannot be read.
    Other(&'static str),
}

/// A column of the schema.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The dictionary that holds the values, and the type of the positions in it.
    pub(super) dictionary: Option<(i64, Kind)>,
    /// Nodes and buffers that it takes in a batch, and how many of its parts have buffers as many as the batch says.
    pub(super) nodes: usize,
    pub(super) buffers: usize,
    pub(super) views: usize,
}

/// The columns of a schema.
pub(super) fn columns(schema: Flat<'_>) -> Result<Vec<Column>, &'static str> {
    if schema.i16(0).unwrap_or(0) != 0 {
        return Err("its numbers are big-endian");
    }
    let mut budget = MOST_FIELDS;
    schema.tables(1).map(|field| column(field, 0, &mut budget)).collect()
}

fn column(field: Flat<'_>, depth: usize, budget: &mut usize) -> Result<Column, &'static str> {
    *budget = budget.checked_sub(1).ok_or("it has too many columns")?;
    if depth > DEEPEST {
        return Err("its columns are nested too deeply");
    }
    let name = field.text(0).unwrap_or_default().to_owned();
    let dictionary = field.table(4).map(|dictionary| {
        let index = dictionary.table(1).map_or(Kind::Integer { bytes: 4, signed: true }, integer);
        (dictionary.i64(0).unwrap_or(0), index)
    });
    let kind = kind(field.u8(2).unwrap_or(0), field.table(3));
    let (mut nodes, mut buffers, mut views) = match (&dictionary, field.u8(2).unwrap_or(0)) {
        (Some(_), _) => (1, 2, 0),
        (None, 1 | 22) => (1, 0, 0),
        (None, 4 | 5 | 19 | 20 | 25 | 26) => (1, 3, 0),
        (None, 13 | 16) => (1, 1, 0),
        // A dense union has offsets beside the types.
        (None, 14) => (1, if field.table(3).and_then(|union| union.i16(0)) == Some(1) { 2 } else { 1 }, 0),
        (None, 23 | 24) => (1, 2, 1),
        (None, _) => (1, 2, 0),
    };
    if dictionary.is_none() {
        for child in field.tables(5) {
            let child = column(child, depth + 1, budget)?;
            nodes += child.nodes;
            buffers += child.buffers;
            views += child.views;
        }
    }
    Ok(Column { name, kind, dictionary, nodes, buffers, views })
}

fn integer(kind: Flat<'_>) -> Kind {
    match kind.i32(0).unwrap_or(0) {
        bits @ (8 | 16 | 32 | 64) => {
            Kind::Integer { bytes: bits as usize / 8, signed: kind.u8(1).unwrap_or(0) != 0 }
        }
        _ => Kind::Other("integers of an unknown width"),
    }
}

/// What the type numbered `code` of the format's union, with its details, is to us.
fn kind(code: u8, details: Option<Flat<'_>>) -> Kind {
    let short = |default: i16| details.and_then(|details| details.i16(0)).unwrap_or(default);
    let units = |unit: i16| [1.0, 1e3, 1e6, 1e9].get(unit as usize).copied().unwrap_or(f64::NAN);
    match code {
        2 => details.map_or(Kind::Other("integers"), integer),
        3 => match short(0) {
            precision @ 0..=2 => Kind::Float { bytes: 2 << precision },
            _ => Kind::Other("numbers of an unknown precision"),
        },
        5 => Kind::Text { bytes: 4 },
        6 => Kind::Bool,
        7 => {
            let detail = |slot: usize, default: i32| details.and_then(|d| d.i32(slot)).unwrap_or(default);
            match detail(2, 128) {
                bits @ (32 | 64 | 128) => {
                    Kind::Decimal { bytes: bits as usize / 8, power: 10_f64.powi(detail(1, 0)) }
                }
                _ => Kind::Other("decimals of 256 bits"),
            }
        }
        8 => match short(1) {
            0 => Kind::Clock { bytes: 4, units: 1.0, clock: Clock::Date },
            _ => Kind::Clock { bytes: 8, units: 86_400_000.0, clock: Clock::Date },
        },
        9 => {
            let bits = details.and_then(|details| details.i32(1)).unwrap_or(32);
            let bytes = if bits == 64 { 8 } else { 4 };
            Kind::Clock { bytes, units: units(short(1)), clock: Clock::Time }
        }
        10 => Kind::Clock { bytes: 8, units: units(short(0)), clock: Clock::Timestamp },
        18 => Kind::Clock { bytes: 8, units: units(short(1)), clock: Clock::Duration },
        20 => Kind::Text { bytes: 8 },
        24 => Kind::View,
        1 => Kind::Other("nothing but nulls"),
        4 | 15 | 19 | 23 => Kind::Other("bytes"),
        11 => Kind::Other("calendar intervals"),
        12 | 16 | 17 | 21 | 25 | 26 => Kind::Other("lists"),
        13 | 14 | 22 => Kind::Other("a nested structure"),
        _ => Kind::Other("values of an unknown type"),
    }
}

impl Column {
    /// Refuses what cannot be read, by a description of it.
    pub(super) fn check(&self, categorical: bool) -> Result<(), &'static str> {
        match &self.kind {
            Kind::Other(what) => Err(what),
            Kind::Text { .. } | Kind::View if !categorical => Err("text"),
            _ => match &self.dictionary {
                Some((_, Kind::Integer { .. })) | None => Ok(()),
                Some(_) => Err("a dictionary with unknown positions"),
            },
        }
    }
}
