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

mod checkpoint;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::de::{self, DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

pub use checkpoint::{read_checkpoint, write_checkpoint};

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
#[non_exhaustive]
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
    // Asked before opening: opening a pipe would wait forever, and /dev/zero has no end.
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
mod tests;
