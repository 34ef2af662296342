//! Arrow files of pyarrow and polars (`fixtures/make.py`), our own, and damaged ones.

#![allow(clippy::unwrap_used)]

use std::io::{Cursor, Read as _};
use std::path::Path;

use proptest::prelude::*;

use crate::Result;
use crate::{ColumnChoice, Missing, Read, ReadOptions, Table};

const FILES: [(&str, &[u8]); 4] = [
    ("plain", include_bytes!("fixtures/plain.feather")),
    ("lz4", include_bytes!("fixtures/lz4.feather")),
    ("zstd", include_bytes!("fixtures/zstd.feather")),
    ("stream", include_bytes!("fixtures/stream.arrow")),
];
const POLARS: &[u8] = include_bytes!("fixtures/polars.arrow");

fn read(bytes: &[u8], choose: impl FnOnce(&[String]) -> Result<ColumnChoice>) -> Result<Read> {
    let (path, options) =
        (Path::new("t.arrow"), ReadOptions { missing: Missing::DropRows, ..Default::default() });
    match bytes.starts_with(super::MAGIC) {
        true => super::read_file(path, Cursor::new(bytes), bytes.len() as u64, &options, choose),
        false => super::read_stream(path, bytes, &options, choose),
    }
}

/// Reads the columns `names`, of which `categorical` are categories; rows with nulls are dropped.
fn columns(bytes: &[u8], names: &[&str], categorical: bool) -> Result<Read> {
    read(bytes, |have| {
        let columns: Vec<usize> =
            names.iter().map(|name| have.iter().position(|own| own == name).unwrap()).collect();
        Ok(ColumnChoice { categorical: if categorical { columns.clone() } else { Vec::new() }, columns })
    })
}

fn all(bytes: &[u8]) -> Result<Read> {
    read(bytes, |names| Ok((0..names.len()).collect::<Vec<_>>().into()))
}

fn written(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::write(&mut bytes, table).unwrap();
    bytes
}

#[test]
fn all_kinds_of_numbers_are_read() {
    for (name, bytes) in FILES {
        let values = |column: &str| columns(bytes, &[column], false).unwrap().table.into_values();
        assert_eq!(values("f64"), [0.1, -2.5, 1e300, 5.0], "{name}");
        assert_eq!(values("f32"), [0.5, 1.5, 2.5, 3.5, 4.5], "{name}");
        assert_eq!(values("f16"), [1.0, -2.0, 0.5, 3.0, 4.0], "{name}");
        assert_eq!(values("i8"), [-1.0, 2.0, 3.0, 4.0, 5.0], "{name}");
        assert_eq!(values("u32"), [4_294_967_295.0, 1.0, 2.0, 3.0, 4.0], "{name}");
        assert_eq!(values("yes"), [1.0, 0.0, 1.0, 1.0], "{name}");
        assert_eq!(values("dec"), [1.25, -3.5, 0.0, 7.75, 100.0], "{name}");
        assert_eq!(values("last"), [1.0, 2.0, 3.0, 4.0, 5.0], "{name}");
        let large = columns(bytes, &["i64"], false).unwrap();
        assert_eq!(large.table.value(0, 0), 2_f64.powi(60), "{name}");
        assert!(large.warnings[0].contains("beyond 2^53"), "{name}");
        let several = columns(bytes, &["last", "f64", "i8"], false).unwrap();
        assert_eq!(several.dropped_rows, 1);
        assert_eq!(several.table.row(2), [4.0, 1e300, 4.0], "{name}");
    }
}

#[test]
fn times_become_seconds_and_dates_days_with_a_warning() {
    for (name, bytes) in FILES {
        for (column, value, words) in [
            ("when", 1.5, "timestamps, read as seconds since 1970-01-01"),
            ("day", 1.0, "dates, read as days"),
            ("clock", 3600.0, "times of day"),
            ("span", 2.5, "durations"),
        ] {
            let read = columns(bytes, &[column], false).unwrap();
            assert_eq!(read.table.value(1, 0), value, "{name} {column}");
            assert!(read.warnings[0].contains(words), "{:?}", read.warnings);
        }
    }
}

#[test]
fn categories_are_read_from_texts_dictionaries_and_numbers() {
    for (name, bytes) in FILES {
        for (column, values, levels) in [
            ("text", &[0.0, 1.0, 0.0, 2.0][..], "red, blue, a text longer than twelve bytes"),
            ("large", &[0.0, 1.0, 0.0, 1.0, 2.0], "x, y, z"),
            ("view", &[0.0, 1.0, 2.0, 0.0], "x, short, a text longer than twelve bytes"),
            ("cat", &[0.0, 1.0, 0.0, 1.0], "b, a"),
            ("i8", &[0.0, 1.0, 2.0, 3.0, 4.0], "-1, 2, 3, 4, 5"),
        ] {
            let read = columns(bytes, &[column], true).unwrap_or_else(|e| panic!("{name} {column}: {e}"));
            assert_eq!(read.table.values(), values, "{name} {column}");
            assert_eq!(read.levels[0].as_ref().unwrap().names.join(", "), levels, "{name} {column}");
        }
    }
    let read = columns(POLARS, &["s"], true).unwrap();
    assert_eq!(read.levels[0].as_ref().unwrap().names, ["red", "a text longer than twelve bytes"]);
    let read = columns(POLARS, &["c"], true).unwrap();
    assert_eq!(read.levels[0].as_ref().unwrap().names, ["u", "v"]);
    assert_eq!(columns(POLARS, &["i", "a"], false).unwrap().table.values(), [1.0, 1.5, 2.0, 2.5]);
}

#[test]
fn what_is_no_number_is_refused_when_chosen() {
    let bytes = FILES[0].1;
    for (column, categorical, words) in [
        ("text", false, "column \"text\" holds text, which is not a number"),
        ("cat", false, "holds text"),
        ("list", true, "holds lists"),
        ("nested", false, "holds a nested structure"),
        ("nothing", false, "holds nothing but nulls"),
        ("bytes", true, "holds bytes"),
    ] {
        let error = columns(bytes, &[column], categorical).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_file_cut_short_or_damaged_never_panics() {
    for (_, bytes) in FILES {
        for length in 0..bytes.len() {
            read_column(&bytes[..length], length);
        }
        for place in 0..bytes.len() {
            for (turn, flip) in [0x01, 0xff].into_iter().enumerate() {
                let mut bytes = bytes.to_vec();
                bytes[place] ^= flip;
                read_column(&bytes, place + turn);
            }
        }
    }
    assert!(all(b"").unwrap_err().to_string().contains("no schema"));
    assert!(all(b"ARROW1\0\0").unwrap_err().to_string().contains("not a readable Arrow file"));
}

/// Reads a column that a damaged file still has, in turn one of doubles, decimals, texts, views, a dictionary.
fn read_column(bytes: &[u8], turn: usize) {
    let column = [0, 11, 16, 18, 19][turn % 5];
    let _ = read(bytes, |names| {
        let columns = vec![column.min(names.len().saturating_sub(1))];
        Ok(ColumnChoice { categorical: columns.clone(), columns })
    });
}

#[test]
fn long_tables_are_written_in_batches() {
    let rows = (1 << 16) + 7;
    let table = Table::new(vec!["a".into(), "b c".into()], (0..2 * rows).map(f64::from).collect()).unwrap();
    assert_eq!(all(&written(&table)).unwrap().table, table);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read_back_to_the_bit(bits in prop::collection::vec(any::<u64>(), 3..90)) {
        let mut values: Vec<f64> =
            bits.into_iter().map(f64::from_bits).map(|v| if v.is_finite() { v } else { -0.0 }).collect();
        values.truncate(values.len() / 3 * 3);
        let table = Table::new(vec!["a".into(), "b.c".into(), "d é".into()], values).unwrap();
        let back = all(&written(&table)).unwrap().table;
        prop_assert_eq!(back.names(), table.names());
        prop_assert_eq!(back.hash(), table.hash());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = all(&bytes);
        let _ = all(&[b"ARROW1\0\0\xff\xff\xff\xff".as_slice(), &bytes].concat());
    }
}

/// The places of many buffers may be the same few bytes.
#[test]
fn a_batch_whose_columns_share_a_bomb_is_refused() {
    let length = super::LONG / 2;
    let mut body = length.to_le_bytes().to_vec();
    body.extend(zstd::encode_all(std::io::repeat(0).take(length), 1).unwrap());
    let buffers = vec![(0, body.len() as i64); 3].into_iter();
    let (nodes, views) = (Vec::new().into_iter(), Vec::new().into_iter());
    let mut parts = super::Parts { rows: 1, nodes, buffers, views, body: &body, codec: Some(1), taken: 0 };
    assert_eq!(parts.buffer().unwrap().len() as u64, length);
    parts.buffer().unwrap();
    assert_eq!(parts.buffer(), Err("a batch is implausibly long once decompressed"));
    // One text in every row.
    let (mut parts, text) = (super::Parts { rows: 1 << 24, taken: 0, ..parts }, "x".repeat(200));
    assert!(parts.texts(|_| Ok(Some(text.clone()))).is_err());
}
