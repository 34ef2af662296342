//! Tests of `parquet`.

use super::*;
use crate::Missing;
use ::parquet::basic::{BrotliLevel, GzipLevel};
use ::parquet::data_type::*;
use ::parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

fn all(names: &[String]) -> Result<Vec<usize>> {
    Ok((0..names.len()).collect())
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn parse_with(
    bytes: &[u8],
    missing: Missing,
    choose: impl FnOnce(&[String]) -> Result<Vec<usize>>,
) -> Result<Read> {
    let options = ReadOptions { missing, ..Default::default() };
    let choose = |names: &[String]| Ok(choose(names)?.into());
    super::read(Path::new("t.parquet"), file_of(bytes), bytes.len() as u64, &options, choose)
}

fn categories(bytes: &[u8]) -> Result<Read> {
    let options = ReadOptions { missing: Missing::DropRows, ..Default::default() };
    let choose = |_: &[String]| Ok(ColumnChoice { columns: vec![0], categorical: vec![0] });
    super::read(Path::new("t.parquet"), file_of(bytes), bytes.len() as u64, &options, choose)
}

fn parse(bytes: &[u8]) -> Result<Read> {
    parse_with(bytes, Missing::Fail, all)
}

fn written(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    super::write(&mut bytes, table).unwrap();
    bytes
}

/// A file with one row group of one column of type `T`.
fn one_column<T: DataType>(schema: &str, values: &[T::T], levels: Option<&[i16]>, c: Compression) -> Vec<u8> {
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(&format!("message m {{ {schema} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(c).build());
    let mut file = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, levels, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    bytes
}

fn values<T: DataType>(schema: &str, stored: &[T::T]) -> Vec<f64> {
    let bytes = one_column::<T>(schema, stored, None, Compression::SNAPPY);
    parse(&bytes).unwrap().table.into_values()
}

#[test]
fn all_kinds_of_numbers_are_read() {
    assert_eq!(values::<BoolType>("required boolean a;", &[true, false, true]), [1.0, 0.0, 1.0]);
    assert_eq!(values::<Int32Type>("required int32 a;", &[-1, i32::MAX]), [-1.0, 2_147_483_647.0]);
    assert_eq!(values::<Int32Type>("required int32 a (INTEGER(32,false));", &[-1]), [4_294_967_295.0]);
    assert_eq!(values::<Int32Type>("required int32 a (UINT_32);", &[-1]), [4_294_967_295.0]);
    assert_eq!(values::<Int32Type>("required int32 a (INTEGER(8,true));", &[-1]), [-1.0]);
    assert_eq!(values::<Int64Type>("required int64 a;", &[-5, 1 << 40]), [-5.0, 1_099_511_627_776.0]);
    assert_eq!(values::<Int64Type>("required int64 a (INTEGER(64,false));", &[-1]), [u64::MAX as f64]);
    assert_eq!(values::<Int32Type>("required int32 a (DECIMAL(9,2));", &[12345, -1]), [123.45, -0.01]);
    assert_eq!(values::<Int64Type>("required int64 a (DECIMAL(18,4));", &[12345]), [1.2345]);
    assert_eq!(values::<FloatType>("required float a;", &[0.1]), [f64::from(0.1_f32)]);
    assert_eq!(values::<DoubleType>("required double a;", &[0.1]), [0.1]);
    let fixed = |bytes: &[u8]| FixedLenByteArray::from(bytes.to_vec());
    let decimals = [fixed(&[0xff, 0xff, 0x9c]), fixed(&[0, 1, 0])];
    let schema = "required fixed_len_byte_array(3) a (DECIMAL(6,1));";
    assert_eq!(values::<FixedLenByteArrayType>(schema, &decimals), [-10.0, 25.6]);
    let halves = [fixed(&[0x00, 0x3c]), fixed(&[0x00, 0xc0])];
    let schema = "required fixed_len_byte_array(2) a (FLOAT16);";
    assert_eq!(values::<FixedLenByteArrayType>(schema, &halves), [1.0, -2.0]);
}

#[test]
#[ignore = "writes the seeds of the fuzz target"]
fn seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/parquet");
    let fixed = |bytes: &[u8]| FixedLenByteArray::from(bytes.to_vec());
    let plain = Compression::UNCOMPRESSED;
    let some = Some(&[1, 0, 1, 1][..]);
    let gzip = Compression::GZIP(GzipLevel::default());
    for (name, bytes) in [
        ("nulls", one_column::<Int64Type>("optional int64 a;", &[1, 2, i64::MAX], some, Compression::SNAPPY)),
        ("float", one_column::<FloatType>("required float a;", &[0.5; 40], None, gzip)),
        ("decimal", one_column::<Int32Type>("required int32 a (DECIMAL(9,2));", &[12345, -1], None, plain)),
        ("bool", one_column::<BoolType>("required boolean a;", &[true, false], None, Compression::LZ4_RAW)),
        (
            "half",
            one_column::<FixedLenByteArrayType>(
                "required fixed_len_byte_array(2) a (FLOAT16);",
                &[fixed(&[0, 0x3c])],
                None,
                plain,
            ),
        ),
    ] {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

#[test]
fn large_integers_are_announced() {
    let bytes =
        one_column::<Int64Type>("required int64 id;", &[1, i64::MAX], None, Compression::UNCOMPRESSED);
    let warnings = parse(&bytes).unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("\"id\" holds integers beyond 2^53"), "{warnings:?}");
}

#[test]
fn all_compressions_are_read() {
    let stored: Vec<f64> = (0..3000).map(|i| f64::from(i % 7)).collect();
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::ZSTD(ZstdLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let bytes = one_column::<DoubleType>("required double a;", &stored, None, compression);
        assert_eq!(parse(&bytes).unwrap().table.values(), stored, "{compression}");
    }
}

#[test]
fn nulls_are_missing_cells() {
    let bytes = one_column::<DoubleType>(
        "optional double a;",
        &[1.0, 2.0, 3.0],
        Some(&[1, 0, 1, 0, 1]),
        Compression::SNAPPY,
    );
    let error = parse(&bytes).unwrap_err().to_string();
    assert_eq!(
        error,
        "t.parquet: row 2, column \"a\" is missing (null or NaN); fill it in, or remove the row"
    );
    let read = parse_with(&bytes, Missing::DropRows, all).unwrap();
    assert_eq!((read.table.values(), read.dropped_rows), (&[1.0, 2.0, 3.0][..], 2));
    let full = one_column::<Int64Type>("optional int64 a;", &[4, 5], Some(&[1, 1]), Compression::SNAPPY);
    assert_eq!(parse(&full).unwrap().table.values(), [4.0, 5.0]);
}

#[test]
fn text_and_lists_are_errors_only_when_chosen() {
    let text = one_column::<ByteArrayType>(
        "required binary who (STRING);",
        &[ByteArray::from("x")],
        None,
        Compression::SNAPPY,
    );
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("column \"who\" holds text, which is not a number"), "{error}");
    let nested = one_column::<DoubleType>(
        "required group g { required double a; }",
        &[1.0],
        None,
        Compression::SNAPPY,
    );
    let error = parse(&nested).unwrap_err().to_string();
    assert!(error.contains("column \"g.a\" holds a part of a nested structure"), "{error}");

    let mut bytes = Vec::new();
    let schema = "message m { repeated double l; required double a; required int96 t; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Default::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[1.0, 2.0], Some(&[1, 1]), Some(&[0, 1])).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[7.0], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int96Type>().write_batch(&[Int96::new()], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    file.close().unwrap();
    assert_eq!(parse_with(&bytes, Missing::Fail, |_| Ok(vec![1])).unwrap().table.values(), [7.0]);
    let error = parse_with(&bytes, Missing::Fail, |_| Ok(vec![0])).unwrap_err().to_string();
    assert!(error.contains("column \"l\" holds lists"), "{error}");
    let read = parse_with(&bytes, Missing::Fail, |_| Ok(vec![2])).unwrap();
    assert_eq!(read.table.values(), [-210_866_803_200.0]);
}

#[test]
fn times_become_seconds_and_dates_days_with_a_warning() {
    let read = |schema: &str, values: &[i64]| {
        let bytes = one_column::<Int64Type>(schema, values, None, Compression::SNAPPY);
        let read = parse(&bytes).unwrap();
        (read.table.into_values(), read.warnings.concat())
    };
    let (values, warning) = read("required int64 t (TIMESTAMP(MICROS,true));", &[1_500_000, -1]);
    assert_eq!(values, [1.5, -1e-6]);
    assert_eq!(warning, "t.parquet: column \"t\" holds timestamps, read as seconds since 1970-01-01 (UTC)");
    assert_eq!(read("required int64 t (TIMESTAMP(NANOS,false));", &[2_000_000_000]).0, [2.0]);
    assert_eq!(read("required int64 t (TIMESTAMP_MILLIS);", &[2_500]).0, [2.5]);
    let (values, warning) = read("required int64 t (TIME(MICROS,true));", &[3_600_000_000]);
    assert!(values == [3600.0] && warning.contains("times of day, read as seconds since midnight"));
    let bytes = one_column::<Int32Type>("required int32 d (DATE);", &[19_000], None, Compression::SNAPPY);
    let read = parse(&bytes).unwrap();
    assert_eq!(read.table.values(), [19_000.0]);
    assert!(read.warnings[0].contains("dates, read as days since 1970-01-01"));
    let mut moment = Int96::new();
    moment.set_data(500_000_000, 0, 2_440_589);
    let bytes = one_column::<Int96Type>("required int96 t;", &[moment], None, Compression::SNAPPY);
    assert_eq!(parse(&bytes).unwrap().table.values(), [86_400.5]);
}

#[test]
fn categories_are_read_from_text_and_from_numbers() {
    let texts = ["red", "blue", "red"].map(ByteArray::from);
    let schema = "optional binary colour (STRING);";
    let levels = [1, 0, 1, 1];
    let bytes = one_column::<ByteArrayType>(schema, &texts, Some(&levels), Compression::SNAPPY);
    let read = categories(&bytes).unwrap();
    assert_eq!((read.table.values(), read.dropped_rows), (&[0.0, 1.0, 0.0][..], 1));
    let levels = read.levels[0].as_ref().unwrap();
    assert_eq!((levels.names.join(" "), &levels.rows[..]), ("red blue".to_owned(), &[1, 3][..]));
    let bytes = one_column::<Int64Type>("required int64 a;", &[7, 7, -1], None, Compression::SNAPPY);
    let read = categories(&bytes).unwrap();
    assert_eq!(read.table.values(), [0.0, 0.0, 1.0]);
    assert_eq!(read.levels[0].as_ref().unwrap().names, ["7", "-1"]);
}

#[test]
fn several_row_groups_and_projection() {
    let rows = 2 * GROUP_ROWS + 5;
    let values: Vec<f64> = (0..3 * rows).map(|i| i as f64).collect();
    let table = Table::new(vec!["a".into(), "b".into(), "c".into()], values).unwrap();
    let bytes = written(&table);
    let back = parse_with(&bytes, Missing::Fail, |names| {
        assert_eq!(names, ["a", "b", "c"]);
        Ok(vec![2, 0])
    });
    assert_eq!(back.unwrap().table, table.select_columns(&[2, 0]));
}

fn small() -> Vec<u8> {
    written(&Table::new(vec!["a".into(), "b".into()], (0..20).map(f64::from).collect()).unwrap())
}

#[test]
fn a_file_cut_short_is_an_error_wherever_it_is_cut() {
    let bytes = small();
    for length in 1..bytes.len() {
        let error = parse(&bytes[..length]).unwrap_err().to_string();
        assert!(error.starts_with("t.parquet: "), "{error}");
    }
}

#[test]
fn a_damaged_byte_never_panics() {
    let bytes = small();
    for place in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[place] ^= flip;
            let _ = parse(&bytes);
        }
    }
}

/// Found by fuzzing: passing over two thousand million booleans in the header of a page took seconds, and so did
/// asking for as many doubles beyond the end of the file.
#[test]
fn a_page_header_with_an_endless_list_is_refused_at_once() {
    for (bytes, column) in [
        (&include_bytes!("../../tests/hostile/endless-booleans.parquet")[..], 1),
        (&include_bytes!("../../tests/hostile/endless-doubles.parquet")[..], 0),
    ] {
        let error = parse_with(bytes, Missing::Fail, |_| Ok(vec![column])).unwrap_err().to_string();
        assert!(error.contains("declares a list that Parquet does not have"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_is_read_back_to_the_bit(bits in prop::collection::vec(any::<u64>(), 3..90)) {
        let mut values: Vec<f64> =
            bits.into_iter().map(f64::from_bits).map(|v| if v.is_finite() { v } else { -0.0 }).collect();
        values.truncate(values.len() / 3 * 3);
        let table = Table::new(vec!["a".into(), "b.c".into(), "d e".into()], values).unwrap();
        let back = parse(&written(&table)).unwrap().table;
        prop_assert_eq!(back.names(), table.names());
        prop_assert_eq!(back.hash(), table.hash());
    }
}
