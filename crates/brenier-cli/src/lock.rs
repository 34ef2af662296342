//! One writer at a time for a result and the files that go with it.

use std::fs::{File, TryLockError, remove_file};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use brenier::Error;

use crate::failure::Failure;
use crate::files::{LOCK, beside, resolved};

/// Held while a command works towards an output. The system lets go of it when the process ends, however it ends;
/// the file is removed when the lock is dropped, and one that a kill left behind locks nobody out.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    /// None where the file system has no locks.
    file: Option<File>,
    kind: Kind,
}

/// Whether others may have the same lock.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Alone,
    /// With others that share it.
    Shared,
}

impl Lock {
    /// Takes the lock of a file that is going to be written at `out`; none for a device or a pipe.
    pub(crate) fn file(out: &Path) -> Result<Option<Self>, Failure> {
        Self::of(out, Kind::Alone)
    }

    /// The same for processes that work together: they lock out those that do not.
    pub(crate) fn shared_file(out: &Path) -> Result<Option<Self>, Failure> {
        Self::of(out, Kind::Shared)
    }

    fn of(out: &Path, kind: Kind) -> Result<Option<Self>, Failure> {
        if out == Path::new("-") || (out.exists() && !out.is_file()) {
            return Ok(None);
        }
        // Two names of one file share the lock.
        Self::take(beside(&resolved(out), LOCK), out, kind).map(Some)
    }

    /// Takes the lock of a folder that results are written into; the folder is there.
    pub(crate) fn folder(out: &Path) -> Result<Self, Failure> {
        Self::take(out.join(".brenier.lock"), out, Kind::Alone)
    }

    fn take(path: PathBuf, out: &Path, kind: Kind) -> Result<Self, Failure> {
        let failed = |source: io::Error| Error::io(&path, "make the lock file", source);
        loop {
            let mut options = File::options();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
            let locked = match kind {
                Kind::Alone => file.try_lock(),
                Kind::Shared => file.try_lock_shared(),
            };
            match locked {
                Ok(()) if !is_at(&file, &path) => {} // its owner has just removed it
                Ok(()) => {
                    // For the message that another process gives; the lock itself needs no contents.
                    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
                    return Ok(Self { path, file: Some(file), kind });
                }
                Err(TryLockError::WouldBlock) => {
                    let mut owner = String::new();
                    let _ = file.rewind().and_then(|()| file.read_to_string(&mut owner));
                    let owner = match owner.trim() {
                        "" => String::new(),
                        id => format!(" (process {id})"),
                    };
                    return Err(Failure::Usage(format!(
                        "{}: another brenier{owner} is writing to it: wait for its end, or choose another --out",
                        out.display()
                    )));
                }
                Err(TryLockError::Error(_)) => {
                    // Some network file systems have no locks: better none than no work.
                    let _ = remove_file(&path);
                    return Ok(Self { path, file: None, kind });
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Before the lock is let go of, so that nobody else's file is removed; of a shared lock the last one does it.
        let last = match (&self.file, self.kind) {
            (Some(file), Kind::Shared) => file.try_lock().is_ok() && is_at(file, &self.path),
            _ => true,
        };
        if last {
            let _ = remove_file(&self.path);
        }
    }
}

/// Whether `file` is still the one at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |data: std::fs::Metadata| (data.dev(), data.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(own), Ok(there)) => number(own) == number(there),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_until_the_first_is_gone_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.brenier");
        let first = Lock::file(&out).unwrap();
        let text = Lock::file(&out).unwrap_err().message().unwrap();
        assert!(text.contains("m.brenier") && text.contains(&std::process::id().to_string()), "{text}");
        assert!(Lock::file(&folder.path().join("n.brenier")).is_ok());
        drop(first);
        // A file without an owner, as a kill leaves it, is no lock.
        std::fs::write(folder.path().join("m.brenier.lock"), "1\n").unwrap();
        drop(Lock::file(&out).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Lock::file(Path::new("-")).unwrap().is_none());
        let held = Lock::folder(folder.path()).unwrap();
        assert!(Lock::folder(folder.path()).is_err());
        drop(held);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn those_who_share_a_lock_keep_others_out_until_the_last_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.brenier");
        let first = Lock::shared_file(&out).unwrap();
        let second = Lock::shared_file(&out).unwrap();
        assert!(Lock::file(&out).is_err());
        drop(first);
        assert!(Lock::file(&out).is_err());
        drop(second);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let alone = Lock::file(&out).unwrap();
        assert!(Lock::shared_file(&out).is_err());
        drop(alone);
    }

    #[cfg(unix)]
    #[test]
    fn two_names_of_one_file_share_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (out, link) = (folder.path().join("m.brenier"), folder.path().join("link.brenier"));
        std::os::unix::fs::symlink("m.brenier", &link).unwrap();
        let held = Lock::file(&link).unwrap();
        assert!(Lock::file(&out).is_err());
        drop(held);
        assert!(Lock::file(&out).is_ok());
    }

    /// Many at once: never two owners, and those who are refused can try again.
    #[test]
    fn locks_that_come_and_go_have_one_owner() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.brenier");
        let owners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut taken = 0;
                    while taken < 50 {
                        let Ok(lock) = Lock::file(&out) else { continue };
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                        owners.fetch_sub(1, Ordering::SeqCst);
                        taken += 1;
                        drop(lock);
                    }
                });
            }
        });
    }
}
