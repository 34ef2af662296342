//! The container of the model file: named tensors and one JSON document in a single safetensors file.
//!
//! The layout, described for readers in other languages in `docs/model-file.md`, is
//!
//! ```text
//! u64 little endian   length n of the header
//! n bytes             JSON header, padded with spaces: "__metadata__" and one entry per tensor
//! rest                the tensors' bytes, little endian, row-major, without gaps
//! ```
//!
//! `__metadata__` maps strings to strings: `format`, `format_version`, the document itself under `brenier`, and
//! three SHA-256 sums that cover the document, the table of tensors and their bytes. The header is written here
//! and not by the safetensors crate, whose metadata is a hash map: the same model must give the same bytes.
//!
//! Nothing here knows what a map is. Floats in the document survive bit for bit (shortest printing, exact
//! parsing), except NaN and infinities, which JSON cannot hold: they are written as `null` and read back only
//! into an `Option`. Tensors hold any float.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

use crate::data::write_bytes;
use crate::{Error, Result};

/// The version of the container that this program writes, and the newest it reads.
pub const FORMAT_VERSION: u64 = 2;

/// No honest header comes near this; a hostile one must not make us allocate more.
const MAX_HEADER_BYTES: u64 = 64 << 20;
/// More axes than any tensor of ours has.
const MAX_RANK: usize = 16;
const LENGTH_BYTES: u64 = 8;
const METADATA: &str = "__metadata__";

/// A named array, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Unique within the file.
    pub name: String,
    /// The lengths of the axes; empty for a scalar.
    pub shape: Vec<usize>,
    /// As many values as the product of `shape`.
    pub values: TensorValues,
}

/// The values of a [`Tensor`], in the precision in which they are stored.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorValues {
    /// Single precision, as networks are trained in.
    F32(Vec<f32>),
    /// Double precision, as transforms are fitted in.
    F64(Vec<f64>),
    /// Counts, indices, states of random generators.
    U64(Vec<u64>),
}

impl Tensor {
    /// Whether every value is finite; integers always are.
    pub fn all_finite(&self) -> bool {
        match &self.values {
            TensorValues::F32(values) => values.iter().all(|v| v.is_finite()),
            TensorValues::F64(values) => values.iter().all(|v| v.is_finite()),
            TensorValues::U64(_) => true,
        }
    }
}

impl TensorValues {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::U64(values) => values.len(),
        }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn kind(&self) -> Kind {
        match self {
            Self::F32(_) => Kind::F32,
            Self::F64(_) => Kind::F64,
            Self::U64(_) => Kind::U64,
        }
    }

    fn append_bytes(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::F32(values) => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            Self::F64(values) => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
            Self::U64(values) => values.iter().for_each(|v| bytes.extend(v.to_le_bytes())),
        }
    }

    fn from_bytes(kind: Kind, bytes: &[u8]) -> Self {
        fn each<const WIDTH: usize, T>(bytes: &[u8], value: fn([u8; WIDTH]) -> T) -> Vec<T> {
            bytes.as_chunks::<WIDTH>().0.iter().map(|&chunk| value(chunk)).collect()
        }
        match kind {
            Kind::F32 => Self::F32(each(bytes, f32::from_le_bytes)),
            Kind::F64 => Self::F64(each(bytes, f64::from_le_bytes)),
            Kind::U64 => Self::U64(each(bytes, u64::from_le_bytes)),
        }
    }
}

/// The element types of safetensors that we use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    F64,
    U64,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::U64 => "U64",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::F32, Self::F64, Self::U64].into_iter().find(|kind| kind.name() == name)
    }

    fn width(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::F64 | Self::U64 => 8,
        }
    }
}

/// Writes `header` and `tensors` to `path`, whole or not at all: an interrupted write leaves the old file.
///
/// The same input gives the same bytes.
///
/// # Errors
///
/// When the folder does not exist or cannot be written to, and as for [`to_bytes`].
pub fn write<H: Serialize>(path: &Path, header: &H, tensors: &[Tensor]) -> Result<()> {
    write_bytes(path, &to_bytes(header, tensors)?)
}

/// Reads back what [`write()`] wrote.
///
/// # Errors
///
/// [`Error::Model`] when the file is not a Brenier file, is damaged, or was written by a newer version.
pub fn read<H: DeserializeOwned>(path: &Path) -> Result<(H, Vec<Tensor>)> {
    // Asked before opening: opening a pipe would wait for ever, and /dev/zero has no end.
    let about = fs::metadata(path).map_err(|e| Error::io(path, "open the model file", e))?;
    if !about.is_file() {
        return Err(Error::model(path, "this is a folder or a device; give the model file itself"));
    }
    let file = File::open(path).map_err(|e| Error::io(path, "open the model file", e))?;
    let length = file.metadata().map_err(|e| Error::io(path, "open the model file", e))?.len();
    decode(io::BufReader::new(file), length).map_err(|fault| fault.into_error(path))
}

/// The bytes that [`write()`] puts into the file.
///
/// # Errors
///
/// [`Error::Shape`] when a tensor's shape does not match its values, a name occurs twice or is reserved, or the
/// header cannot be expressed in JSON.
pub fn to_bytes<H: Serialize>(header: &H, tensors: &[Tensor]) -> Result<Vec<u8>> {
    let document = json(header)?;
    let table = lay_out(tensors)?;

    // The data follow the order of the offsets: 8-byte values first, so that everything is aligned.
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| table[i].data_offsets);
    let mut data = Vec::with_capacity(table.iter().map(|e| e.data_offsets[1]).max().unwrap_or(0) as usize);
    for &i in &order {
        tensors[i].values.append_bytes(&mut data);
    }

    let metadata = BTreeMap::from([
        ("brenier", document.clone()),
        ("data_sha256", hex(&Sha256::digest(&data))),
        ("format", "brenier".to_owned()),
        ("format_version", FORMAT_VERSION.to_string()),
        ("header_sha256", hex(&Sha256::digest(&document))),
        ("table_sha256", table_sha256(tensors.iter().map(|t| t.name.as_str()).zip(&table))),
    ]);
    let mut text = format!("{{\"{METADATA}\":{}", json(&metadata)?);
    for (tensor, entry) in tensors.iter().zip(&table) {
        text.push_str(&format!(",{}:{}", json(&tensor.name)?, json(entry)?));
    }
    text.push('}');
    let padded = text.len().next_multiple_of(LENGTH_BYTES as usize);
    text.extend(std::iter::repeat_n(' ', padded - text.len()));
    if padded as u64 > MAX_HEADER_BYTES {
        return Err(Error::Shape {
            what: "model file header",
            expected: format!("at most {MAX_HEADER_BYTES} bytes of JSON"),
            got: format!("{padded} bytes"),
        });
    }

    let mut bytes = Vec::with_capacity(LENGTH_BYTES as usize + padded + data.len());
    bytes.extend((padded as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    Ok(bytes)
}

/// Reads what [`to_bytes`] wrote; `origin` names the source in errors.
///
/// # Errors
///
/// As for [`read`].
pub fn from_bytes<H: DeserializeOwned>(bytes: &[u8], origin: &Path) -> Result<(H, Vec<Tensor>)> {
    decode(bytes, bytes.len() as u64).map_err(|fault| fault.into_error(origin))
}

/// One line of the table of tensors, as safetensors spells it.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

/// Gives each tensor its place in the data: 8-byte types before 4-byte ones, else in the order given.
fn lay_out(tensors: &[Tensor]) -> Result<Vec<Entry>> {
    let mut names = HashSet::new();
    for tensor in tensors {
        if tensor.name == METADATA || !names.insert(tensor.name.as_str()) {
            return Err(Error::Shape {
                what: "names of the tensors of a model file",
                expected: format!("unique names other than {METADATA}"),
                got: format!("{:?} again", tensor.name),
            });
        }
        let count = tensor.shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        if count != Some(tensor.values.len()) || tensor.shape.len() > MAX_RANK {
            return Err(Error::Shape {
                what: "shape of a tensor of a model file",
                expected: format!("the {} values of {:?}", tensor.values.len(), tensor.name),
                got: format!("{:?}", tensor.shape),
            });
        }
    }

    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(tensors[i].values.kind().width()));
    let mut starts = vec![0; tensors.len()];
    let mut end = 0;
    for i in order {
        starts[i] = end;
        end += tensors[i].values.len() as u64 * tensors[i].values.kind().width();
    }
    Ok(tensors
        .iter()
        .zip(starts)
        .map(|(tensor, start)| {
            let kind = tensor.values.kind();
            Entry {
                dtype: kind.name().to_owned(),
                shape: tensor.shape.iter().map(|&n| n as u64).collect(),
                data_offsets: [start, start + tensor.values.len() as u64 * kind.width()],
            }
        })
        .collect())
}

/// The sum over the table: one line `[name,dtype,shape,data_offsets]` of compact JSON per tensor, sorted by name.
fn table_sha256<'a>(table: impl Iterator<Item = (&'a str, &'a Entry)>) -> String {
    let lines: BTreeMap<&str, &Entry> = table.collect();
    let mut sum = Sha256::new();
    for (name, entry) in lines {
        let line = serde_json::to_string(&(name, &entry.dtype, &entry.shape, &entry.data_offsets))
            .expect("strings and integers are always JSON");
        sum.update(line.as_bytes());
        sum.update(b"\n");
    }
    hex(&sum.finalize())
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Shape {
        what: "model file header",
        expected: "a document that JSON can hold".to_owned(),
        got: e.to_string(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Why a file was refused, before its name is known.
enum Fault {
    NotOurs(String),
    Damaged(String),
    Version(String),
    Io(io::Error),
}

impl Fault {
    fn into_error(self, path: &Path) -> Error {
        match self {
            Self::NotOurs(why) => {
                Error::model(path, format!("not a Brenier model ({why}); give a file written by Brenier"))
            }
            Self::Damaged(why) => Error::model(
                path,
                format!("the model file is damaged ({why}); copy it again from its source or train again"),
            ),
            Self::Version(why) => Error::model(path, why),
            Self::Io(e) => Error::io(path, "read the model file", e),
        }
    }
}

fn damaged(why: impl Into<String>) -> Fault {
    Fault::Damaged(why.into())
}

/// Reads a container of `length` bytes. Every size is checked against `length` before memory is asked for.
fn decode<H: DeserializeOwned>(mut source: impl Read, length: u64) -> Result<(H, Vec<Tensor>), Fault> {
    if length < LENGTH_BYTES + 2 {
        return Err(Fault::NotOurs(format!("it has only {length} bytes")));
    }
    let mut prefix = [0; LENGTH_BYTES as usize + 1];
    fill(&mut source, &mut prefix)?;
    let [size @ .., first] = prefix;
    let size = u64::from_le_bytes(size);
    if !(2..=MAX_HEADER_BYTES).contains(&size) || first != b'{' {
        return Err(Fault::NotOurs("it does not begin with a safetensors header".to_owned()));
    }
    let present = length - LENGTH_BYTES;
    if size > present {
        return Err(damaged(format!("its header should have {size} bytes and only {present} are there")));
    }
    let mut text = vec![0; size as usize];
    text[0] = first;
    fill(&mut source, &mut text[1..])?;
    let text = String::from_utf8(text).map_err(|_| damaged("its header is not UTF-8 text"))?;
    let header: Header =
        serde_json::from_str(&text).map_err(|e| damaged(format!("its header is not valid: {e}")))?;
    drop(text);

    let document = check_metadata(&header.metadata)?;
    let parsed = checked_table(&header, present - size)?;
    let tensors = read_tensors(source, &header, parsed)?;
    let header = serde_json::from_str(document)
        .map_err(|e| damaged(format!("its description of the model cannot be read: {e}")))?;
    Ok((header, tensors))
}

/// Checks format and version, and that the document is intact; returns the document.
fn check_metadata(metadata: &HashMap<String, String>) -> Result<&str, Fault> {
    let get = |key: &str| metadata.get(key).map(String::as_str);
    if get("format") != Some("brenier") {
        return Err(Fault::NotOurs("it is a safetensors file of another program".to_owned()));
    }
    match get("format_version").and_then(|v| v.parse::<u64>().ok()) {
        Some(1..=FORMAT_VERSION) => {}
        Some(newer) if newer > FORMAT_VERSION => {
            return Err(Fault::Version(format!(
                "written by a newer Brenier (format_version {newer}, this program reads {FORMAT_VERSION}); update Brenier"
            )));
        }
        _ => return Err(damaged("its format_version is not a version")),
    }
    let document = get("brenier").ok_or_else(|| damaged("it does not describe a model"))?;
    if get("header_sha256") != Some(hex(&Sha256::digest(document)).as_str()) {
        return Err(damaged("the check sum of its description differs"));
    }
    Ok(document)
}

/// Checks that the tensors tile exactly the `data_bytes` at hand; returns their kinds and shapes.
fn checked_table(header: &Header, data_bytes: u64) -> Result<Vec<(Kind, Vec<usize>)>, Fault> {
    let table = header.tensors.iter().map(|(name, entry)| (name.as_str(), entry));
    if header.metadata.get("table_sha256") != Some(&table_sha256(table)) {
        return Err(damaged("the check sum of its table of tensors differs"));
    }
    let mut checked = Vec::with_capacity(header.tensors.len());
    for (name, Entry { dtype, shape, data_offsets: [start, end] }) in &header.tensors {
        let kind =
            Kind::parse(dtype).ok_or_else(|| damaged(format!("tensor {name:?} has type {dtype:?}")))?;
        let bytes = shape.iter().try_fold(kind.width(), |product, &n| product.checked_mul(n));
        let sizes: Option<Vec<usize>> = shape.iter().map(|&n| usize::try_from(n).ok()).collect();
        match (bytes, sizes) {
            (Some(bytes), Some(sizes))
                if end.checked_sub(*start) == Some(bytes)
                    && *end <= data_bytes
                    && sizes.len() <= MAX_RANK =>
            {
                checked.push((kind, sizes));
            }
            _ => {
                return Err(damaged(format!(
                    "tensor {name:?} of shape {shape:?} does not fit bytes {start} to {end} of {data_bytes}"
                )));
            }
        }
    }
    let mut spans: Vec<[u64; 2]> = header.tensors.iter().map(|(_, entry)| entry.data_offsets).collect();
    spans.sort_unstable();
    let mut reached = 0;
    for [start, end] in spans {
        if start != reached {
            return Err(damaged(format!("its tensors overlap or leave a gap at byte {reached}")));
        }
        reached = end;
    }
    if reached != data_bytes {
        return Err(damaged(format!("its tensors need {reached} bytes and {data_bytes} are there")));
    }
    Ok(checked)
}

/// Reads the tensors one by one, in the order of their bytes, and checks the sum over all of them.
fn read_tensors(
    mut source: impl Read,
    header: &Header,
    parsed: Vec<(Kind, Vec<usize>)>,
) -> Result<Vec<Tensor>, Fault> {
    let mut order: Vec<usize> = (0..parsed.len()).collect();
    order.sort_by_key(|&i| header.tensors[i].1.data_offsets);
    let mut sum = Sha256::new();
    let mut bytes = Vec::new();
    let mut tensors: Vec<Tensor> = header
        .tensors
        .iter()
        .zip(&parsed)
        .map(|((name, _), (_, shape))| Tensor {
            name: name.clone(),
            shape: shape.clone(),
            values: TensorValues::F32(Vec::new()),
        })
        .collect();
    for i in order {
        let [start, end] = header.tensors[i].1.data_offsets;
        let size =
            usize::try_from(end - start).map_err(|_| damaged("it is larger than this machine's memory"))?;
        bytes.resize(size, 0);
        fill(&mut source, &mut bytes)?;
        sum.update(&bytes);
        tensors[i].values = TensorValues::from_bytes(parsed[i].0, &bytes);
    }
    if header.metadata.get("data_sha256") != Some(&hex(&sum.finalize())) {
        return Err(damaged("the check sum of its tensors differs"));
    }
    Ok(tensors)
}

fn fill(source: &mut impl Read, buffer: &mut [u8]) -> Result<(), Fault> {
    source.read_exact(buffer).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => Fault::Io(e),
    })
}

/// The JSON header, tensors in the order of the text. Keys that occur twice are refused.
#[derive(Default)]
struct Header {
    metadata: HashMap<String, String>,
    tensors: Vec<(String, Entry)>,
}

/// A map of strings that refuses a key given twice.
struct Metadata(HashMap<String, String>);

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = Metadata;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from strings to strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
                let mut strings = HashMap::new();
                while let Some((key, value)) = map.next_entry::<String, String>()? {
                    if strings.insert(key, value).is_some() {
                        return Err(de::Error::custom("a key of the metadata occurs twice"));
                    }
                }
                Ok(Metadata(strings))
            }
        }
        deserializer.deserialize_map(Strings)
    }
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a safetensors header")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header::default();
                let mut names = HashSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        header.metadata = map.next_value::<Metadata>()?.0;
                    } else {
                        header.tensors.push((name.clone(), map.next_value()?));
                    }
                    if !names.insert(name) {
                        return Err(de::Error::custom("a name occurs twice"));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
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
            Tensor {
                name: "shift".into(),
                shape: vec![2],
                values: TensorValues::F64(vec![f64::INFINITY, 0.1]),
            },
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
}
