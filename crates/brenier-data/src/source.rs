//! Opening the bytes of a table: a file, a pipe or any reader, decompressed, with its format found out.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Cursor, Read as _, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

use super::format::{Compression, Format};
use crate::{Error, Result};

/// Bytes that tell formats apart.
const HEAD: usize = 8;
/// Text this long that shrank to less than a [`IMPLAUSIBLE`]th of it is refused: no table of numbers does.
const LONG: u64 = 1 << 26;
const IMPLAUSIBLE: u64 = 500;

/// The bytes of a table.
pub(super) struct Source {
    /// The file as errors name it.
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// How many bytes there are, where that is known.
    pub(super) size: Option<u64>,
    /// The first bytes, fewer only where there are no more.
    pub(super) head: Vec<u8>,
    input: Input,
}

enum Input {
    /// A regular file, at its beginning.
    File(File),
    Stream(Box<dyn io::Read>),
}

impl Source {
    /// Opens `path` and finds out its format, unless that is given.
    pub(super) fn open(path: &Path, format: Option<Format>) -> Result<Self> {
        let failed = |source| Error::io(path, "open the table", source);
        let mut file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(Error::table(path, "is a folder: give a file"));
        }
        let by_name = match (format, metadata.is_file()) {
            (Some(_), _) => None,
            (None, true) => Format::by_name(path)?.0,
            (None, false) => Format::by_name(path).unwrap_or_default().0,
        };
        if !metadata.is_file() {
            return Self::stream(path.to_owned(), Box::new(file), format.or(by_name), format.is_none());
        }
        if metadata.len() == 0 {
            return Err(Error::table(path, "the file is empty"));
        }
        let head = head(path, &mut file)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        if compression(path, &head)?.is_some() {
            return Self::stream(path.to_owned(), Box::new(file), format.or(by_name), format.is_none());
        }
        let format = decided(path, &head, format.or(by_name), format.is_none())?;
        Ok(Self { path: path.to_owned(), format, size: Some(metadata.len()), head, input: Input::File(file) })
    }

    /// A stream, decompressed; `guessed` says that the format, if any, is only what the file's name stands for.
    pub(super) fn stream(
        path: PathBuf,
        mut input: Box<dyn io::Read>,
        format: Option<Format>,
        guessed: bool,
    ) -> Result<Self> {
        let mut first = head(&path, &mut input)?;
        if first.is_empty() {
            return Err(Error::table(&path, "the file is empty"));
        }
        let compression = compression(&path, &first)?;
        let mut input: Box<dyn io::Read> = Box::new(Cursor::new(first.clone()).chain(input));
        if let Some(compression) = compression {
            let compressed = Rc::new(Cell::new(0));
            let counted = Counted { inner: input, count: Rc::clone(&compressed) };
            let inner: Box<dyn io::Read> = match compression {
                Compression::Gzip => Box::new(MultiGzDecoder::new(counted)),
                Compression::Zstd => Box::new(
                    zstd::stream::read::Decoder::new(counted).map_err(|error| read_error(&path, error))?,
                ),
            };
            let mut bounded = Bounded { inner, given: 0, compressed };
            first = head(&path, &mut bounded)?;
            if first.is_empty() {
                return Err(Error::table(&path, "the file is empty once decompressed"));
            }
            input = Box::new(Cursor::new(first.clone()).chain(bounded));
        }
        let format = decided(&path, &first, format, guessed)?;
        Ok(Self { path, format, size: None, head: first, input: Input::Stream(input) })
    }

    /// The bytes in their order.
    pub(super) fn into_reader(self) -> Box<dyn io::Read> {
        match self.input {
            Input::File(file) => Box::new(file),
            Input::Stream(input) => input,
        }
    }

    /// A file to jump about in, and its length; a stream is copied into a temporary file, which has no name.
    pub(super) fn into_file(self) -> Result<(File, u64)> {
        match (self.input, self.size) {
            (Input::File(file), Some(size)) => Ok((file, size)),
            (input, _) => {
                let mut input: Box<dyn io::Read> = match input {
                    Input::File(file) => Box::new(file),
                    Input::Stream(input) => input,
                };
                let keep = |source| Error::io(&self.path, "keep the table in a temporary file", source);
                let mut file = tempfile::tempfile().map_err(keep)?;
                let mut block = vec![0; 1 << 17];
                let mut size = 0;
                loop {
                    let count = match input.read(&mut block) {
                        Ok(0) => break,
                        Ok(count) => count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                        Err(error) => return Err(read_error(&self.path, error)),
                    };
                    io::Write::write_all(&mut file, &block[..count]).map_err(keep)?;
                    size += count as u64;
                }
                file.seek(SeekFrom::Start(0)).map_err(keep)?;
                Ok((file, size))
            }
        }
    }
}

/// The error for bytes that could not be read: the file's fault where a decoder gave up, else the machine's.
pub(super) fn read_error(path: &Path, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Other => {
            Error::table(path, format!("is damaged or cut short ({source}): make the file again"))
        }
        _ => Error::io(path, "read the table", source),
    }
}

/// The first bytes, fewer only where there are no more.
fn head(path: &Path, input: &mut impl io::Read) -> Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    input.take(HEAD as u64).read_to_end(&mut head).map_err(|error| read_error(path, error))?;
    Ok(head)
}

/// The compression that the first bytes announce.
fn compression(path: &Path, head: &[u8]) -> Result<Option<Compression>> {
    let unknown = |name: &str, command: &str| {
        Err(Error::table(path, format!("is compressed by {name}: decompress it first ({command})")))
    };
    match head {
        [0x1f, 0x8b, 8, ..] => Ok(Some(Compression::Gzip)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Some(Compression::Zstd)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => unknown("xz", "unxz"),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => unknown("bzip2", "bunzip2"),
        _ => Ok(None),
    }
}

/// The format asked for, or the one that the first bytes announce; a name that stands for text may be wrong.
fn decided(path: &Path, head: &[u8], wanted: Option<Format>, guessed: bool) -> Result<Format> {
    let control = |byte: u8| byte < b' ' && !b"\t\n\r".contains(&byte);
    let found = match head {
        [b'F', b'E', b'A', b'1', byte, ..] if control(*byte) => {
            return Err(Error::table(
                path,
                "is Feather version 1, which is out of date: write it again as version 2 (Arrow)",
            ));
        }
        [b'P', b'A', b'R', b'1' | b'E', byte, ..] if control(*byte) => Some(Format::Parquet),
        b"ARROW1\0\0" | [0xff, 0xff, 0xff, 0xff, ..] => Some(Format::Arrow),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Format::Npy),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Format::Npz),
        _ => None,
    };
    match (wanted, found) {
        (Some(Format::Text | Format::Tsv), Some(found @ (Format::Parquet | Format::Arrow | Format::Npy)))
            if guessed =>
        {
            Ok(found)
        }
        (Some(wanted), _) => Ok(wanted),
        (None, Some(found)) => Ok(found),
        (None, None) if head.contains(&0) => Err(Error::table(
            path,
            format!(
                "is neither text nor any format known by its first bytes: use a file name with an extension, or say \
                 `format = {}`",
                Format::NAMES.join("|")
            ),
        )),
        (None, None) => Ok(Format::Text),
    }
}

/// Counts what is read.
struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}

/// Decompressed bytes, as long as there are not implausibly many.
struct Bounded<R> {
    inner: R,
    given: u64,
    compressed: Rc<Cell<u64>>,
}

impl<R: io::Read> io::Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.given += count as u64;
        if self.given > LONG && self.given / IMPLAUSIBLE > self.compressed.get() {
            let text = "the contents are more than 500 times as long as the compressed file; decompress it first if \
                        that is right";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(count)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Read, ReadOptions, Table, read, write};
    use std::io::Write;

    fn all(names: &[String]) -> Result<Vec<usize>> {
        Ok((0..names.len()).collect())
    }

    fn table() -> Table {
        Table::new(vec!["a".into(), "b".into()], (0..40).map(|i| f64::from(i) / 7.0).collect()).unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read_bytes(name: &str, bytes: &[u8], options: &ReadOptions) -> Result<Read> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&path, options, all)
    }

    fn problem(name: &str, bytes: &[u8]) -> String {
        read_bytes(name, bytes, &ReadOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn formats_without_an_extension_are_found_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.csv", "t.tsv", "t.parquet", "t.arrow", "t.npz", "t.npy", "t.csv.gz", "t.csv.zst"] {
            let path = folder.path().join(name);
            write(&path, &table()).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let values = |name: &str, bytes: &[u8]| {
                let read = read_bytes(name, bytes, &ReadOptions::default());
                read.unwrap_or_else(|error| panic!("{name}: {error}")).table.into_values()
            };
            assert_eq!(values("plain", &bytes), table().values(), "{name}");
            if !name.contains("csv.") {
                assert_eq!(values("t.gz", &gzip(&bytes)), table().values(), "{name}");
            }
        }
    }

    #[test]
    fn a_name_that_says_text_may_be_wrong_but_a_flag_is_obeyed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write(&path, &table()).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let read = read_bytes("t.csv", &bytes, &ReadOptions::default()).unwrap();
        assert_eq!(read.table, table());
        let options = ReadOptions { format: Some(Format::Text), ..Default::default() };
        assert!(read_bytes("t.parquet", &bytes, &options).is_err());
        let options = ReadOptions { format: Some(Format::Parquet), ..Default::default() };
        assert_eq!(read_bytes("t.xyz", &bytes, &options).unwrap().table, table());
        // Text that only looks like a magic number.
        let read = read_bytes("plain", b"PAR1,b\n1,2\n", &ReadOptions::default()).unwrap();
        assert_eq!(read.table.names(), ["PAR1", "b"]);
    }

    #[test]
    fn unknown_and_damaged_bytes_are_refused_in_words() {
        assert!(problem("t.csv.xz", b"\xfd7zXZ\0\0\0").contains("xz"));
        assert!(problem("plain", b"\xfd7zXZ\0\0\0").contains("compressed by xz: decompress it first (unxz)"));
        assert!(problem("plain", b"BZh91AY&SY").contains("bzip2"));
        assert!(problem("plain", b"FEA1\0\0\0\0").contains("Feather version 1"));
        assert!(problem("plain", b"\0\x01\x02\x03").contains("`format = csv|tsv|parquet|"));
        assert!(problem("t.csv.gz", &gzip(b"")).contains("empty once decompressed"));
        let good = gzip(&"a,b\n1,2\n".repeat(100).into_bytes());
        for length in 3..good.len() {
            let error = problem("t.csv.gz", &good[..length]);
            assert!(error.contains("t.csv.gz: is damaged or cut short"), "{error}");
        }
        let zstd = zstd::encode_all(&b"a,b\n1,2\n"[..], 3).unwrap();
        for length in 4..zstd.len() {
            let error = problem("t.csv.zst", &zstd[..length]);
            assert!(error.contains("t.csv.zst: is damaged or cut short"), "{error}");
        }
        for place in 0..good.len() {
            let mut bytes = good.clone();
            bytes[place] ^= 0x55;
            let _ = read_bytes("t.csv.gz", &bytes, &ReadOptions::default());
        }
    }

    #[test]
    fn several_members_are_one_text() {
        let bytes = [gzip(b"a,b\n1,2\n"), gzip(b"3,4\n")].concat();
        let read = read_bytes("t.txt.gz", &bytes, &ReadOptions::default()).unwrap();
        assert_eq!(read.table.values(), [1.0, 2.0, 3.0, 4.0]);
        let frame = |text: &[u8]| zstd::encode_all(text, 3).unwrap();
        let bytes = [frame(b"a,b\n1,2\n"), frame(b"3,4\n")].concat();
        let read = read_bytes("t.tsv.zst", &bytes, &ReadOptions::default()).unwrap();
        assert_eq!(read.table.values(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn text_that_grows_beyond_belief_is_refused() {
        let mut bounded = Bounded { inner: io::repeat(b'1'), given: 0, compressed: Rc::new(Cell::new(1000)) };
        let copied = io::copy(&mut bounded, &mut io::sink());
        assert!(copied.unwrap_err().to_string().contains("more than 500 times"));
        assert!(bounded.given < LONG + (1 << 20));
        // As long as what is read keeps pace, any length is fine.
        let compressed = Rc::new(Cell::new(LONG));
        let mut bounded = Bounded { inner: io::repeat(b'1').take(2 * LONG), given: 0, compressed };
        assert_eq!(io::copy(&mut bounded, &mut io::sink()).unwrap(), 2 * LONG);
    }

    #[test]
    fn a_small_file_with_one_endless_row_is_refused() {
        let mut bytes = zstd::encode_all(&b"a,b\n1,2\n"[..], 1).unwrap();
        bytes.extend(zstd::encode_all(io::repeat(b',').take(LONG - 1000), 1).unwrap());
        assert!(bytes.len() < 20_000);
        let error = problem("t.csv.zst", &bytes);
        assert!(error.contains("a line has more than 64 MB or a million fields"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_read_whatever_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.csv", "t.parquet", "t.arrow", "t.npz", "t.npy", "t.csv.gz"] {
            let path = folder.path().join(name);
            write(&path, &table()).unwrap();
            let pipe = folder.path().join(format!("pipe-{}", name.replace('.', "-")));
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let feeder = std::thread::spawn({
                let (path, pipe) = (path.clone(), pipe.clone());
                move || std::fs::write(pipe, std::fs::read(path).unwrap()).unwrap()
            });
            let read = read(&pipe, &ReadOptions::default(), all).unwrap();
            feeder.join().unwrap();
            assert_eq!(read.table.values(), table().values(), "{name}");
        }
    }
}
