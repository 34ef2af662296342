//! A search by many processes in one folder: who trains what, and what the others have finished.
//!
//! A process that wants to train makes the file `claims/JOB.1`, which the system lets only one of them make, and rewrites it every
//! few seconds while it trains. A claim whose process is gone, or that has not been rewritten for a minute, is void, and
//! whoever makes `claims/JOB.2` has the next. Results go to the journals, of which every process has its own. Trainings are
//! deterministic, so that one that two processes did (a claimant was suspended and woke up) does no harm.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::journal::{Entry, Job, Others};
use crate::{Error, Result};

/// How often claims are rewritten.
const BEAT: Duration = Duration::from_secs(5);
/// A claim that has not changed for so long is void.
const VOID_AFTER: Duration = Duration::from_secs(60);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One process of a joined search.
pub(super) struct Joined {
    folder: PathBuf,
    /// Host and process, the first line of our claims.
    owner: String,
    held: Arc<Held>,
    beat: Option<JoinHandle<()>>,
    /// What the claims of others said, and since when.
    seen: Mutex<HashMap<PathBuf, (String, Instant)>>,
    others: Mutex<News>,
}

struct News {
    journals: Others,
    finished: HashSet<Job>,
    /// Read, but not asked for yet.
    pending: Vec<Entry>,
}

/// The claims that the heart beats for.
#[derive(Default)]
struct Held {
    paths: Mutex<(BTreeSet<PathBuf>, bool)>,
    ended: Condvar,
}

/// The right to do a job. Dropped, the job is free again, unless it has been journaled.
pub(super) struct Claim<'a> {
    joined: &'a Joined,
    path: PathBuf,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        locked(&self.joined.held.paths).0.remove(&self.path);
        let _ = fs::remove_file(&self.path);
    }
}

impl Joined {
    /// Joins the search in `folder`, whose other journals are `journals`.
    pub(super) fn new(folder: &Path, journals: Others) -> Result<Self> {
        let folder = folder.join("claims");
        make(&folder)?;
        let owner = format!("{} {}", host(), std::process::id());
        let held = Arc::new(Held::default());
        let beat = {
            let (held, owner) = (held.clone(), owner.clone());
            std::thread::spawn(move || held.beat(&owner))
        };
        let news = News { journals, finished: HashSet::new(), pending: Vec::new() };
        Ok(Self { folder, owner, held, beat: Some(beat), seen: Mutex::default(), others: Mutex::new(news) })
    }

    /// Claims a job; none where somebody else has it or has finished it.
    pub(super) fn claim(&self, job: Job) -> Result<Option<Claim<'_>>> {
        let path = |number: usize| self.folder.join(format!("{}.{number}", job.name()));
        let mut number = 1;
        while path(number).exists() {
            number += 1;
        }
        if number > 1 && !self.is_void(&path(number - 1)) {
            return Ok(None);
        }
        let path = path(number);
        let mut file = match File::create_new(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            // Another process has ended the search and tidied up.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                make(&self.folder)?;
                return Ok(None);
            }
            Err(source) => return Err(Error::io(&path, "make the claim", source)),
        };
        let _ = writeln!(file, "{}", self.owner);
        locked(&self.held.paths).0.insert(path.clone());
        let claim = Claim { joined: self, path };
        // A claim is given up after its result was journaled: whoever gets it next finds the result.
        Ok((!self.has_finished(job)?).then_some(claim))
    }

    /// Whether nobody works on the job of the claim at `path` any more.
    fn is_void(&self, path: &Path) -> bool {
        let Ok(text) = fs::read_to_string(path) else { return false };
        if let Some((host_name, process)) = text.lines().next().and_then(|owner| owner.rsplit_once(' '))
            && host_name == host()
            && is_gone(process)
        {
            return true;
        }
        let mut seen = locked(&self.seen);
        let (known, since) = seen.entry(path.to_owned()).or_insert_with(|| (text.clone(), Instant::now()));
        if *known != text {
            (*known, *since) = (text, Instant::now());
        }
        since.elapsed() >= VOID_AFTER
    }

    fn has_finished(&self, job: Job) -> Result<bool> {
        let mut news = locked(&self.others);
        news.read()?;
        Ok(news.finished.contains(&job))
    }

    /// What others have finished since the last call.
    pub(super) fn news(&self) -> Result<Vec<Entry>> {
        let mut news = locked(&self.others);
        news.read()?;
        Ok(std::mem::take(&mut news.pending))
    }

    /// Removes the claims of a search that is complete.
    pub(super) fn tidy(&self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl News {
    fn read(&mut self) -> Result<()> {
        for entry in self.journals.read()? {
            self.finished.insert(entry.job());
            self.pending.push(entry);
        }
        Ok(())
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        locked(&self.held.paths).1 = true;
        self.held.ended.notify_all();
        if let Some(beat) = self.beat.take() {
            let _ = beat.join();
        }
    }
}

impl Held {
    /// Rewrites all claims repeatedly until the end.
    fn beat(&self, owner: &str) {
        let mut paths = locked(&self.paths);
        for beats in 1_u64.. {
            // The end may have come before this thread ran.
            if !paths.1 {
                paths = self.ended.wait_timeout(paths, BEAT).unwrap_or_else(PoisonError::into_inner).0;
            }
            if paths.1 {
                return;
            }
            for path in &paths.0 {
                let _ = fs::write(path, format!("{owner}\n{beats}\n"));
            }
        }
    }
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))
}

/// The name of this machine, as far as it is known.
pub(super) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let name: String = name
        .unwrap_or_default()
        .trim()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' })
        .collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// Whether a process of this machine has ended; where that cannot be known, its claims must grow old.
fn is_gone(process: &str) -> bool {
    Path::new("/proc/self").exists()
        && process.bytes().all(|byte| byte.is_ascii_digit())
        && !Path::new("/proc").join(process).exists()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    const JOB: Job = Job::Pilot { trial: 3, rung: 0 };

    fn join(folder: &Path) -> (Journal, Joined) {
        let (journal, _) = Journal::open(folder, "one", true).unwrap();
        let others = journal.others();
        (journal, Joined::new(folder, others).unwrap())
    }

    #[test]
    fn a_job_has_one_owner_until_it_is_given_up_or_finished() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, first) = join(folder.path());
        let (_, second) = join(folder.path());
        let claim = first.claim(JOB).unwrap().unwrap();
        assert!(second.claim(JOB).unwrap().is_none());
        assert!(second.claim(Job::Pilot { trial: 3, rung: 1 }).unwrap().is_some());
        drop(claim);
        drop(second.claim(JOB).unwrap().unwrap());
        let claim = first.claim(JOB).unwrap().unwrap();
        journal.append(&crate::journal::tests::pilot(3)).unwrap();
        drop(claim);
        assert!(second.claim(JOB).unwrap().is_none());
        assert_eq!(second.news().unwrap(), [crate::journal::tests::pilot(3)]);
        assert!(second.news().unwrap().is_empty());
        assert_eq!(fs::read_dir(folder.path().join("claims")).unwrap().count(), 0);
    }

    #[test]
    fn the_claim_of_a_process_that_is_gone_passes_to_one_other() {
        let folder = tempfile::tempdir().unwrap();
        let (_, first) = join(folder.path());
        let (_, second) = join(folder.path());
        // No process has this number.
        fs::write(folder.path().join("claims/pilot-0003-0.1"), format!("{} 4999999\n", host())).unwrap();
        let taken = first.claim(JOB).unwrap();
        assert_eq!(taken.is_some(), cfg!(target_os = "linux"));
        assert!(second.claim(JOB).unwrap().is_none());
        // On another machine only its age tells.
        fs::write(folder.path().join("claims/pilot-0004-0.1"), "elsewhere 1\n").unwrap();
        let path = folder.path().join("claims/pilot-0004-0.1");
        let other = Job::Pilot { trial: 4, rung: 0 };
        assert!(first.claim(other).unwrap().is_none());
        let long_ago = Instant::now().checked_sub(VOID_AFTER).unwrap();
        locked(&first.seen).get_mut(&path).unwrap().1 = long_ago;
        fs::write(&path, "elsewhere 1\n7\n").unwrap();
        assert!(first.claim(other).unwrap().is_none(), "it has been rewritten");
        locked(&first.seen).get_mut(&path).unwrap().1 = long_ago;
        assert!(first.claim(other).unwrap().is_some());
    }
}
