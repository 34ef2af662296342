//! Tests of `store`.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::Value;

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Doc {
    title: String,
    double: f64,
    single: f32,
    list: Vec<f64>,
}

fn doc() -> Doc {
    Doc { title: "a \"quoted\" µ\u{1}".into(), double: 0.1 + 0.2, single: 0.1, list: vec![5e-324, -0.0] }
}

fn tensors() -> Vec<Tensor> {
    vec![
        Tensor {
            name: "w".into(),
            shape: vec![3, 1],
            values: TensorValues::F32(vec![1.0, -0.0, f32::from_bits(0x7fc0_0000)]),
        },
        Tensor { name: "shift".into(), shape: vec![2], values: TensorValues::F64(vec![f64::INFINITY, 0.1]) },
        Tensor { name: "none".into(), shape: vec![0, 4], values: TensorValues::F32(vec![]) },
        Tensor { name: "seed".into(), shape: vec![], values: TensorValues::U64(vec![u64::MAX]) },
    ]
}

/// NaN differs from itself, so tensors are compared by their bits.
fn bits(tensors: &[Tensor]) -> Vec<(String, Vec<usize>, &'static str, Vec<u8>)> {
    tensors
        .iter()
        .map(|t| {
            let mut bytes = Vec::new();
            t.values.append_bytes(&mut bytes);
            (t.name.clone(), t.shape.clone(), t.values.kind().name(), bytes)
        })
        .collect()
}

fn parse(bytes: &[u8]) -> Result<(Doc, Vec<Tensor>)> {
    from_bytes(bytes, Path::new("m.brenier"))
}

fn refused(bytes: &[u8]) -> String {
    match parse(bytes) {
        Err(error @ Error::Model { .. }) => error.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// A container around any header text, its length announced truthfully.
fn around(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Name, type, shape and offsets of a tensor.
type Line<'a> = (&'a str, &'a str, &'a [u64], [u64; 2]);

/// A container whose check sums are right and whose table may lie.
fn forged(entries: &[Line<'_>], data: &[u8]) -> Vec<u8> {
    let entries: Vec<(&str, Entry)> = entries
        .iter()
        .map(|&(name, dtype, shape, data_offsets)| {
            (name, Entry { dtype: dtype.into(), shape: shape.to_vec(), data_offsets })
        })
        .collect();
    let document = json(&doc()).unwrap();
    let metadata = serde_json::json!({
        "format": "brenier", "format_version": "1",
        "header_sha256": hex(&Sha256::digest(&document)), "brenier": document,
        "data_sha256": hex(&Sha256::digest(data)),
        "table_sha256": table_sha256(entries.iter().map(|(n, e)| (*n, e))),
    });
    let table: String =
        entries.iter().map(|(n, e)| format!(",{n:?}:{}", serde_json::to_string(e).unwrap())).collect();
    around(&format!("{{\"{METADATA}\":{metadata}{table}}}"), data)
}

#[test]
fn what_is_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.brenier");
    fs::write(&path, "an older file").unwrap();
    write(&path, &doc(), &tensors()).unwrap();
    let (header, read) = read::<Doc>(&path).unwrap();
    assert_eq!(header, doc());
    assert_eq!(header.list[1].to_bits(), (-0.0f64).to_bits());
    assert_eq!(bits(&read), bits(&tensors()));
    assert_eq!(read.iter().map(Tensor::all_finite).collect::<Vec<_>>(), [false, false, true, true]);
    // Nothing is left beside the file.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn a_model_is_readable_like_any_other_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, plain) = (folder.path().join("m"), folder.path().join("plain"));
    write(&path, &doc(), &[]).unwrap();
    fs::write(&plain, "").unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&plain));
}

#[test]
fn folders_and_missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("missing").join("m");
    let text = write(&nowhere, &doc(), &[]).unwrap_err().to_string();
    assert!(text.contains("missing") && text.contains("folder does not exist"), "{text}");
    assert!(matches!(read::<Doc>(&nowhere), Err(Error::Io { .. })));
    assert!(matches!(read::<Doc>(folder.path()), Err(Error::Model { .. })));
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let bytes = to_bytes(&doc(), &tensors()).unwrap();
    for _ in 0..8 {
        assert_eq!(to_bytes(&doc(), &tensors()).unwrap(), bytes);
    }
    let sum = hex(&Sha256::digest(&bytes));
    // Pinned: a change of this sum is a change of the format.
    assert_eq!(sum, "44f295c38be59109eb6fa3650aad36c188db31b4e76fec89724337976face542");
}

#[test]
fn mistakes_in_tensors_are_refused_on_writing() {
    let tensor = |name: &str, shape: &[usize]| Tensor {
        name: name.into(),
        shape: shape.to_vec(),
        values: TensorValues::F32(vec![0.0; 2]),
    };
    for bad in [
        vec![tensor("a", &[3])],
        vec![tensor("a", &[usize::MAX, 4])],
        vec![tensor("a", &[2]), tensor("a", &[2])],
        vec![tensor(METADATA, &[2])],
    ] {
        assert!(matches!(to_bytes(&doc(), &bad), Err(Error::Shape { .. })), "{bad:?}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = to_bytes(&doc(), &tensors()).unwrap();
    for end in 0..bytes.len() {
        refused(&bytes[..end]);
    }
    let mut longer = bytes;
    longer.push(0);
    refused(&longer);
}

/// Only the padding and the case of an escape may change without a trace; the contents may not.
#[test]
fn every_changed_byte_is_noticed() {
    let bytes = to_bytes(&doc(), &tensors()).unwrap();
    let mut unnoticed = 0;
    for position in 0..bytes.len() {
        for change in (0..8).map(|b| 1u8 << b).chain([b' ' ^ b'\t', b' ' ^ b'\n', 0xff]) {
            let mut flipped = bytes.clone();
            flipped[position] ^= change;
            match parse(&flipped) {
                Err(Error::Model { .. }) => {}
                Err(other) => panic!("byte {position}: {other:?}"),
                Ok((header, read)) => {
                    unnoticed += 1;
                    assert_eq!(header, doc());
                    assert_eq!(bits(&read), bits(&tensors()));
                }
            }
        }
    }
    assert!(unnoticed <= 16, "{unnoticed}");
}

#[test]
fn hostile_headers_are_refused() {
    for length in [u64::MAX, 1 << 63, (1 << 63) - 1, MAX_HEADER_BYTES + 1, MAX_HEADER_BYTES, 0, 1] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{}      ");
        refused(&bytes);
    }
    refused(b"");
    refused(b"x,y\n1,2\n3,4\n5,6\n");
    refused(&around("{}", b""));
    refused(&around(&"{\"a\":".repeat(1_000_000), b""));
    refused(&around(&format!("{{\"a\":{}", "[".repeat(1_000_000)), b""));
    refused(&around(r#"{"__metadata__":{"format":"brenier","format":"brenier"}}"#, b""));
    refused(&around(r#"{"__metadata__":{"format":7}}"#, b""));
    refused(&around(r#"{"__metadata__":{"format":"brenier"}}"#, b""));
    refused(&around(r#"{"__metadata__":{},"__metadata__":{}}"#, b""));
}

#[test]
fn nesting_inside_the_document_is_refused() {
    let document = "[".repeat(1_000_000);
    let metadata = serde_json::json!({
        "format": "brenier", "format_version": "1",
        "header_sha256": hex(&Sha256::digest(&document)), "brenier": document,
        "data_sha256": hex(&Sha256::digest(b"")), "table_sha256": hex(&Sha256::digest(b"")),
    });
    let bytes = around(&format!("{{\"{METADATA}\":{metadata}}}"), b"");
    assert!(refused(&bytes).contains("description of the model"));
    assert!(from_bytes::<Value>(&bytes, Path::new("m")).is_err());
}

#[test]
fn lying_tables_are_refused() {
    let data = [0; 16];
    let good: &[Line<'_>] = &[("a", "F32", &[2], [0, 8]), ("b", "F64", &[], [8, 16])];
    parse(&forged(good, &data)).unwrap();
    let bad: &[&[Line<'_>]] = &[
        &[("a", "F32", &[2], [0, 8])],                                 // bytes left over
        &[("a", "F32", &[2], [0, 8]), ("b", "F32", &[3], [4, 16])],    // overlap
        &[("a", "F32", &[1], [0, 4]), ("b", "F64", &[], [8, 16])],     // gap
        &[("a", "F64", &[3], [0, 24])],                                // past the end
        &[("a", "F64", &[2], [16, 0])],                                // backwards
        &[("a", "F64", &[1 << 62, 1 << 62], [0, 16])],                 // product overflows
        &[("a", "F64", &[1 << 40], [0, 1 << 43])],                     // would allocate terabytes
        &[("a", "F64", &[u64::MAX], [u64::MAX - 8, u64::MAX])],        // all of it
        &[("a", "BF16", &[8], [0, 16])],                               // a type that we do not read
        &[("a", "U64", &[2], [0, 16]), ("a", "U64", &[0], [16, 16])],  // twice the same name
        &[("a", "U64", &[1; 17], [0, 8]), ("b", "U64", &[], [8, 16])], // too many axes
    ];
    for table in bad {
        refused(&forged(table, &data));
    }
}

#[test]
fn a_newer_version_asks_for_an_update() {
    let header = r#"{"__metadata__":{"format":"brenier","format_version":"3"},
        "w":{"dtype":"Q3","shape":[1],"data_offsets":[0,1],"block":32}}"#;
    let text = refused(&around(header, b"\0"));
    assert!(text.contains("format_version 3, this program reads 2") && text.contains("update"), "{text}");
}

#[test]
fn other_safetensors_files_are_not_ours() {
    let values = [1.0f32.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2], &values).unwrap();
    let bytes = safetensors::serialize([("w", view)], None).unwrap();
    assert!(refused(&bytes).contains("not a Brenier model"));
}

#[test]
fn any_safetensors_reader_opens_the_file() {
    let bytes = to_bytes(&doc(), &tensors()).unwrap();
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.len(), 4);
    for (name, shape, dtype, data) in bits(&tensors()) {
        let view = read.tensor(&name).unwrap();
        assert_eq!((view.shape(), view.data()), (&shape[..], &data[..]));
        assert_eq!(view.dtype().to_string(), dtype);
    }
    let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let document = &metadata.metadata().as_ref().unwrap()["brenier"];
    assert_eq!(serde_json::from_str::<Doc>(document).unwrap(), doc());
}

/// The recipe of docs/model-file.md, followed by hand.
#[test]
fn the_documented_recipe_reads_the_file() {
    let bytes = to_bytes(&doc(), &tensors()).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert_eq!(n % 8, 0);
    let header: Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    let data = &bytes[8 + n..];
    let metadata = &header[METADATA];
    assert_eq!(metadata["format"], "brenier");
    assert_eq!(metadata["format_version"], "2");
    assert_eq!(metadata["data_sha256"], hex(&Sha256::digest(data)));
    let document = metadata["brenier"].as_str().unwrap();
    assert_eq!(metadata["header_sha256"], hex(&Sha256::digest(document)));
    let at = |name: &str| {
        let offsets = &header[name]["data_offsets"];
        let [start, end] = [0, 1].map(|i| offsets[i].as_u64().unwrap() as usize);
        // Aligned in the file for its type.
        assert_eq!(start % if header[name]["dtype"] == "F32" { 4 } else { 8 }, 0);
        &data[start..end]
    };
    assert_eq!(at("w")[..4], 1.0f32.to_le_bytes());
    assert_eq!(at("shift")[8..], 0.1f64.to_le_bytes());
    assert_eq!(at("seed"), [0xff; 8]);
    assert!(at("none").is_empty());
}

fn any_tensor() -> impl Strategy<Value = (Vec<usize>, TensorValues)> {
    (prop::collection::vec(0usize..4, 0..4), 0..3).prop_flat_map(|(shape, kind)| {
        let count = shape.iter().product::<usize>();
        let values = prop::collection::vec(any::<u64>(), count).prop_map(move |bits| match kind {
            0 => TensorValues::F32(bits.iter().map(|&b| f32::from_bits(b as u32)).collect()),
            1 => TensorValues::F64(bits.iter().map(|&b| f64::from_bits(b)).collect()),
            _ => TensorValues::U64(bits),
        });
        (Just(shape), values)
    })
}

proptest! {
    #[test]
    fn round_trips_are_exact_to_the_bit(
        title in any::<String>(),
        double in prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        single in prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO,
        list in prop::collection::vec(prop::num::f64::NORMAL, 0..5),
        arrays in prop::collection::btree_map(any::<String>(), any_tensor(), 0..5),
    ) {
        let header = Doc { title, double, single, list };
        let tensors: Vec<Tensor> = arrays
            .into_iter()
            .map(|(name, (shape, values))| Tensor { name, shape, values })
            .collect();
        let bytes = to_bytes(&header, &tensors).unwrap();
        prop_assert!(safetensors::SafeTensors::deserialize(&bytes).is_ok());
        let (back, read) = parse(&bytes).unwrap();
        prop_assert_eq!(back.double.to_bits(), header.double.to_bits());
        prop_assert_eq!(back.single.to_bits(), header.single.to_bits());
        prop_assert_eq!(&back, &header);
        prop_assert_eq!(bits(&read), bits(&tensors));
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        if honest && bytes.len() > 9 {
            let n = (bytes.len() - 8) as u64;
            bytes[..8].copy_from_slice(&n.to_le_bytes());
            bytes[8] = b'{';
        }
        prop_assert!(parse(&bytes).is_err());
    }
}
