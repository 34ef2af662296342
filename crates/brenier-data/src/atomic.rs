//! Writing a file so that readers see the old contents or the new, never a half.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Fills `path` through `fill`: a temporary file beside it is written, flushed to disk and renamed over it, and
/// removed if anything fails. What is not a regular file, such as `/dev/null` or a named pipe, is written to
/// directly, because renaming would replace the device.
pub(crate) fn atomic_write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> Result<()> {
    replace(path, fill).map_err(|source| Error::io(path, "write the file", source))
}

/// The name of the temporary file for `path`. It is always the same: what a killed process left behind is used up by the
/// next write of `path`, or removed with [`discard`].
fn temporary_path(path: &Path) -> PathBuf {
    /// File systems take names of 255 bytes.
    const LONGEST: usize = 200;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let cut = (0..=LONGEST.min(name.len())).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    let mut own = OsString::from(".brenier-");
    own.push(&name[..cut]);
    own.push(".tmp");
    path.with_file_name(own)
}

/// Removes the file at `path` if there is one, and what a write of it that was killed may have left. A file that cannot be
/// removed only takes up room.
pub fn discard(path: &Path) {
    let _ = fs::remove_file(path);
    drop(Temporary::claim(temporary_path(path), false));
}

/// Checks that a file can be made beside `path`, where [`write_bytes`] makes one.
pub fn check_folder(path: &Path) -> io::Result<()> {
    Temporary::beside(&fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())).map(drop)
}

/// A file to be written and then renamed; removed when dropped before that.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn beside(path: &Path) -> io::Result<Self> {
        if let Some(temporary) = Self::claim(temporary_path(path), true) {
            return Ok(temporary);
        }
        Self::unnamed(path)
    }

    /// For when another process is writing the same file, or files cannot be locked here.
    #[cfg(feature = "files")]
    fn unnamed(path: &Path) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".brenier-").suffix(".tmp");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // less the umask
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let (file, path) = builder.tempfile_in(folder.unwrap_or(Path::new(".")))?.keep()?;
        Ok(Self { path, file })
    }

    #[cfg(not(feature = "files"))]
    fn unnamed(_: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::WouldBlock, "the file is being written by another process"))
    }

    /// The file at `path`, empty and locked; none where somebody else is writing it, or where it is not a file of its own.
    #[cfg(unix)]
    fn claim(path: PathBuf, create: bool) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let file = File::options().write(true).create(create).truncate(false).open(&path).ok()?;
        file.try_lock().ok()?;
        // The last writer may have renamed it before we held the lock; and a link must not lead us elsewhere.
        let (held, named) = (file.metadata().ok()?, fs::symlink_metadata(&path).ok()?);
        let same = (held.dev(), held.ino(), held.nlink()) == (named.dev(), named.ino(), 1);
        (same && held.is_file()).then_some(())?;
        file.set_len(0).ok()?;
        Some(Self { path, file })
    }

    #[cfg(not(unix))]
    fn claim(_: PathBuf, _: bool) -> Option<Self> {
        None
    }

    fn rename(mut self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces `path` by `bytes` in one step, so that readers see the old contents or the new, never a half.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    atomic_write(path, |writer| writer.write_all(bytes))
}

fn replace(path: &Path, fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> io::Result<()> {
    // A symbolic link keeps pointing where it did; the file behind it is the one replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let old = fs::metadata(path).ok();
    if old.as_ref().is_some_and(|old| old.is_dir()) {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let mut file = File::options().write(true).open(path)?;
        return through_buffer(&mut file, fill);
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "its folder does not exist; create it first"));
    }
    let mut temporary = Temporary::beside(path)?;
    through_buffer(&mut temporary.file, fill)?;
    if let Some(old) = old {
        temporary.file.set_permissions(old.permissions())?;
    }
    temporary.file.sync_all()?;
    temporary.rename(path)?;
    // The rename itself lives in the folder; not every file system lets a folder be flushed.
    #[cfg(unix)]
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn through_buffer(
    file: &mut File,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 18, file);
    fill(&mut writer)?;
    writer.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn replaces_a_file_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        for text in ["first", "second"] {
            atomic_write(&path, |writer| writer.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_keeps_the_old_file_and_removes_the_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let error = atomic_write(&path, |writer| {
            writer.write_all(b"half")?;
            Err(io::Error::other("disk on fire"))
        });
        assert!(error.unwrap_err().to_string().contains("disk on fire"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_a_killed_writer_left_is_used_up() {
        let folder = tempfile::tempdir().unwrap();
        let here = || {
            let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        for name in ["a.txt".to_owned(), "ä".repeat(120)] {
            let path = folder.path().join(&name);
            fs::write(temporary_path(&path), "a long half of an earlier file").unwrap();
            write_bytes(&path, b"new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "new");
            assert_eq!(here(), [name]);
            fs::write(temporary_path(&path), "half").unwrap();
            discard(&path);
            assert_eq!(here(), [""; 0]);
            discard(&path);
        }
        // Somebody is writing: another name serves, and theirs stays.
        let path = folder.path().join("a.txt");
        let other = Temporary::beside(&path).unwrap();
        write_bytes(&path, b"ours").unwrap();
        assert_eq!(here(), [".brenier-a.txt.tmp", "a.txt"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours");
        other.rename(&path).unwrap();
        assert_eq!(here(), ["a.txt"]);
        // A link with the temporary file's name leads nowhere.
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, temporary_path(&path)).unwrap();
        write_bytes(&path, b"again").unwrap();
        check_folder(&path).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&path).unwrap(), "again");
    }

    #[test]
    fn a_missing_folder_is_an_error_naming_the_file() {
        let error = atomic_write(Path::new("/no/such/folder/a.csv"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/folder/a.csv: cannot write the file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn permissions_are_those_of_an_ordinary_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, ordinary) = (folder.path().join("a"), folder.path().join("b"));
        atomic_write(&ours, |_| Ok(())).unwrap();
        fs::write(&ordinary, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&ordinary));
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o600)).unwrap();
        atomic_write(&ours, |_| Ok(())).unwrap();
        assert_eq!(mode(&ours) & 0o777, 0o600);
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_and_a_device_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        atomic_write(&link, |writer| writer.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        atomic_write(Path::new("/dev/null"), |writer| writer.write_all(b"gone")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
