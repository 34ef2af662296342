//! Tests of `npy`.

use super::*;
use proptest::prelude::*;
use std::io::Cursor;

fn all(names: &[String]) -> Result<Vec<usize>> {
    Ok((0..names.len()).collect())
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn npy_with(bytes: &[u8], choose: impl FnOnce(&[String]) -> Result<Vec<usize>>) -> Result<Read> {
    let (path, options) = (Path::new("t.npy"), ReadOptions::default());
    read_npy(path, file_of(bytes), bytes.len() as u64, &options, |names| Ok(choose(names)?.into()))
}

fn npy(bytes: &[u8]) -> Result<Read> {
    npy_with(bytes, all)
}

fn npz_with(bytes: &[u8], choose: impl FnOnce(&[String]) -> Result<Vec<usize>>) -> Result<Read> {
    let (path, options) = (Path::new("t.npz"), ReadOptions::default());
    read_npz(path, file_of(bytes), bytes.len() as u64, &options, |names| Ok(choose(names)?.into()))
}

fn npz(bytes: &[u8]) -> Result<Read> {
    npz_with(bytes, all)
}

fn array(kind: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    raw(&text, data)
}

fn raw(text: &str, data: &[u8]) -> Vec<u8> {
    let size = (text.len() as u16).to_le_bytes();
    [MAGIC, &[1, 0][..], &size, text.as_bytes(), data].concat()
}

fn archive(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let mut archive = ZipWriter::new(&mut bytes);
    for (name, data) in members {
        archive.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        archive.write_all(data).unwrap();
    }
    archive.finish().unwrap();
    bytes.into_inner()
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn all_kinds_of_numbers_are_read() {
    let cases: [(&str, Vec<u8>, f64); 24] = [
        ("|b1", vec![1], 1.0),
        ("|i1", vec![0xff], -1.0),
        ("|u1", vec![0xff], 255.0),
        ("<i2", (-2_i16).to_le_bytes().into(), -2.0),
        (">i2", (-2_i16).to_be_bytes().into(), -2.0),
        ("<u2", 65_000_u16.to_le_bytes().into(), 65_000.0),
        (">u2", 65_000_u16.to_be_bytes().into(), 65_000.0),
        ("<i4", (-70_000_i32).to_le_bytes().into(), -70_000.0),
        (">i4", (-70_000_i32).to_be_bytes().into(), -70_000.0),
        ("<u4", u32::MAX.to_le_bytes().into(), 4_294_967_295.0),
        (">u4", u32::MAX.to_be_bytes().into(), 4_294_967_295.0),
        ("<i8", (-1_i64 << 40).to_le_bytes().into(), -1_099_511_627_776.0),
        (">i8", (-1_i64 << 40).to_be_bytes().into(), -1_099_511_627_776.0),
        ("<u8", (1_u64 << 40).to_le_bytes().into(), 1_099_511_627_776.0),
        (">u8", (1_u64 << 40).to_be_bytes().into(), 1_099_511_627_776.0),
        ("<f2", vec![0x00, 0x3e], 1.5),
        (">f2", vec![0x3e, 0x00], 1.5),
        ("<f4", 0.1_f32.to_le_bytes().into(), f64::from(0.1_f32)),
        (">f4", 0.1_f32.to_be_bytes().into(), f64::from(0.1_f32)),
        ("<f8", 0.1_f64.to_le_bytes().into(), 0.1),
        (">f8", 0.1_f64.to_be_bytes().into(), 0.1),
        ("=f8", 0.1_f64.to_ne_bytes().into(), 0.1),
        ("<b1", vec![0], 0.0),
        ("<i1", vec![5], 5.0),
    ];
    for (kind, bytes, value) in cases {
        let read = npy(&array(kind, false, "(2, 1)", &[&bytes[..], &bytes[..]].concat())).unwrap();
        assert_eq!(read.table.values(), [value, value], "{kind}");
        assert!(read.warnings.is_empty());
    }
    let read = npy(&array("<i8", false, "(1,)", &i64::MAX.to_le_bytes())).unwrap();
    assert!(read.warnings[0].contains("column \"c1\" holds integers beyond 2^53"));
}

#[test]
fn both_orders_and_both_dimensions_are_read() {
    let data = doubles(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = npy(&array("<f8", false, "(3, 2)", &data)).unwrap().table;
    assert_eq!((rows.names(), rows.row(1)), (&["c1".to_owned(), "c2".to_owned()][..], &[3.0, 4.0][..]));
    let columns = npy(&array("<f8", true, "(3, 2)", &data)).unwrap().table;
    assert_eq!(columns.values(), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let one = npy(&array("<f8", false, "(6,)", &data)).unwrap().table;
    assert_eq!((one.rows(), one.columns()), (6, 1));
    let long: Vec<f64> = (0..200_000).map(f64::from).collect();
    for fortran in [false, true] {
        let bytes = array("<f8", fortran, "(100000, 2)", &doubles(&long));
        let read = npy_with(&bytes, |_| Ok(vec![1])).unwrap();
        let value = |i: usize| if fortran { long[100_000 + i] } else { long[2 * i + 1] };
        assert!(read.table.values().iter().enumerate().all(|(i, &found)| found == value(i)));
    }
}

#[test]
fn odd_but_valid_headers_are_understood() {
    let one = 1_f64.to_le_bytes();
    for text in [
        "{\"shape\": (1L,), \"fortran_order\": False, \"descr\": \"<f8\"}",
        "{'descr':'<f8','fortran_order':False,'shape':(1,1)}   \n",
    ] {
        assert_eq!(npy(&raw(text, &one)).unwrap().table.values(), [1.0], "{text}");
    }
    let text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }";
    let size = (text.len() as u32).to_le_bytes();
    let second = [MAGIC, &[2, 0][..], &size, text, &one].concat();
    assert_eq!(npy(&second).unwrap().table.values(), [1.0]);
}

#[test]
fn hostile_headers_are_errors() {
    let huge = u64::MAX.to_string();
    for (bytes, why) in [
        (b"not an array at all".to_vec(), "does not begin as an array of NumPy"),
        (
            array("<f8", false, "(1000000000000, 2)", &[0; 16]),
            "declares 16000000000000 bytes of values but only 16",
        ),
        (array("<f8", false, &format!("({huge}, {huge})"), &[]), "too many"),
        (array("<f8", false, &format!("({huge}, 2)"), &[]), "not plausible"),
        (array("<f8", false, &format!("({huge}0,)"), &[]), "does not give"),
        (array("<f8", false, "(0, 999999999999)", &[]), "999999999999 columns are too many"),
        (array("<f8", false, "(-1, 2)", &[]), "does not give"),
        (array("<f8", false, "(1, 1, 1)", &[0; 8]), "3 dimensions"),
        (array("<f8", false, "()", &[0; 8]), "0 dimensions"),
        (array("<c16", false, "(1,)", &[0; 16]), "'<c16' are not real numbers"),
        (array("|O", false, "(1,)", &[0; 16]), "'|O' are not real numbers"),
        (array("<U3", false, "(1,)", &[0; 16]), "'<U3' are not real numbers"),
        (
            raw("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", &[0; 8]),
            "structured array",
        ),
        (raw("{'descr': '<f8', 'shape': (1,)", &[]), "does not give"),
        (raw("{'x': {{{{{{{{{", &[]), "does not give"),
        (raw("", &[]), "does not give"),
        ([MAGIC, &[2, 0, 0xff, 0xff, 0xff, 0xff][..]].concat(), "a header of 4294967295 bytes"),
        ([MAGIC, &[9, 0, 0, 0][..]].concat(), "version 9"),
    ] {
        let error = npy(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("t.npy: ") && error.contains(why), "{error}");
    }
    assert!(npy(&array("<f8", false, "(0, 2)", &[])).unwrap_err().to_string().contains("no rows"));
    assert!(npy(&array("<f8", false, "(2, 0)", &[])).unwrap_err().to_string().contains("no columns"));
}

#[test]
fn files_cut_short_are_errors_wherever_they_are_cut() {
    let bytes = array("<f8", false, "(2, 2)", &doubles(&[1.0, 2.0, 3.0, 4.0]));
    for length in 0..bytes.len() {
        assert!(npy(&bytes[..length]).is_err(), "{length}");
    }
    let bytes = archive(&[("x.npy", bytes)], CompressionMethod::Deflated);
    for length in 0..bytes.len() {
        assert!(npz(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_damaged_byte_never_panics() {
    let good = array("<f8", false, "(2, 2)", &doubles(&[1.0, 2.0, 3.0, 4.0]));
    for bytes in [archive(&[("x.npy", good.clone())], CompressionMethod::Deflated), good] {
        for place in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[place] ^= flip;
                let _ = npy(&bytes);
                let _ = npz(&bytes);
            }
        }
    }
}

#[test]
fn arrays_of_an_archive_become_columns() {
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let bytes = archive(
            &[
                ("t.npy", array("<f8", false, "(2,)", &doubles(&[1.0, 2.0]))),
                ("x.npy", array("<f8", true, "(2, 3)", &doubles(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))),
                ("u.npy", array("|i1", false, "(2, 1)", &[7, 8])),
                ("readme.txt", b"hello".to_vec()),
                ("names.npy", array("<U1", false, "(5,)", &[0; 20])),
                ("seed.npy", array("<i8", false, "()", &[0; 8])),
            ],
            method,
        );
        let table = npz(&bytes).unwrap().table;
        assert_eq!(table.names(), ["t", "x1", "x2", "x3", "u"]);
        assert_eq!(table.values(), [1.0, 1.0, 3.0, 5.0, 7.0, 2.0, 2.0, 4.0, 6.0, 8.0]);
        let some = npz_with(&bytes, |_| Ok(vec![3, 0])).unwrap().table;
        assert_eq!(some, table.select_columns(&[3, 0]));
    }
}

#[test]
fn archives_that_make_no_table_are_errors() {
    let two = || array("<f8", false, "(2,)", &doubles(&[1.0, 2.0]));
    let store = |members: &[(&str, Vec<u8>)]| archive(members, CompressionMethod::Stored);
    let problem = |bytes: &[u8]| npz(bytes).unwrap_err().to_string();
    assert!(problem(&store(&[])).contains("no arrays"));
    let three = array("<f8", false, "(3,)", &doubles(&[1.0, 2.0, 3.0]));
    let bytes = store(&[("a.npy", two()), ("b.npy", three)]);
    assert!(problem(&bytes).contains("array \"a\" has 2 rows but array \"b\" has 3"));
    assert_eq!(npz_with(&bytes, |_| Ok(vec![1])).unwrap().table.rows(), 3);
    let block = array("<f8", false, "(1, 2)", &doubles(&[1.0, 2.0]));
    let bytes = store(&[("x.npy", block), ("x2.npy", two())]);
    assert!(problem(&bytes).contains("columns 2 and 3 are both called \"x2\""));
    let bytes = store(&[("who.npy", array("<U1", false, "(2,)", &[0; 8])), ("a.npy", two())]);
    assert!(problem(&bytes).contains("array \"who\": values of NumPy's type '<U1'"));
    assert_eq!(npz_with(&bytes, |_| Ok(vec![1])).unwrap().table.rows(), 2);
    let bytes = store(&[("a.npy", array("<f8", false, "(99999999999,)", &[0; 8]))]);
    assert!(problem(&bytes).contains("array \"a\": its header declares 799999999992 bytes"));
    assert!(problem(b"PK but not really").contains("not a readable .npz archive"));
    let mut bytes = store(&[("a.npy", two())]);
    let place = bytes.windows(8).position(|window| window == 2_f64.to_le_bytes()).unwrap();
    bytes[place] ^= 1;
    assert!(problem(&bytes).contains("checksum"), "{}", problem(&bytes));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_to_the_bit(
        bits in prop::collection::vec(any::<u64>(), 1..40),
        width in 1_usize..4,
    ) {
        let mut values: Vec<f64> =
            bits.into_iter().map(f64::from_bits).map(|v| if v.is_finite() { v } else { 0.5 }).collect();
        values.resize(values.len().next_multiple_of(width), -0.0);
        let names: Vec<_> = (1..=width).map(|j| format!("c{j}")).collect();
        let table = Table::new(names, values).unwrap();
        let mut bytes = Vec::new();
        write_npy(&mut bytes, &table).unwrap();
        prop_assert_eq!(bytes.len(), 128 + 8 * table.values().len());
        prop_assert_eq!(npy(&bytes).unwrap().table.hash(), table.hash());
        let mut bytes = Cursor::new(Vec::new());
        write_npz(&mut bytes, &table).unwrap();
        prop_assert_eq!(npz(&bytes.into_inner()).unwrap().table.hash(), table.hash());
    }

    #[test]
    fn no_header_makes_the_reader_panic(text in "[{}()\\[\\]':,<f8descrshapofn_T 0-9-]{0,80}") {
        let _ = npy(&raw(&text, &[0; 64]));
    }
}
