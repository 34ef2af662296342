//! Writing a file so that readers see the old contents or the new, never a half.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

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
    let mut builder = tempfile::Builder::new();
    builder.prefix(".brenier-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666)); // less the umask
    let mut temporary = builder.tempfile_in(folder)?;
    through_buffer(temporary.as_file_mut(), fill)?;
    if let Some(old) = old {
        temporary.as_file().set_permissions(old.permissions())?;
    }
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|failed| failed.error)?;
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
