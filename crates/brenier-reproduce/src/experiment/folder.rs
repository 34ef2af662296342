//! The folder of an experiment: whose results it holds, and what a step left there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Experiment;
use crate::data::write_bytes;
use crate::{Error, Result};

/// Holds the plan, beside the name of the experiment.
const RECORD: &str = "run.json";
/// The key of the experiment's name; folders of version 0.1 do not have it.
const NAME: &str = "experiment";
/// The state of a step that has not ended.
pub(super) const CHECKPOINT: &str = ".checkpoint";

/// Makes the folder, or refuses the one that is there; the plan is written into it.
pub(super) fn open(experiment: &dyn Experiment, folder: &Path, resume: bool) -> Result<()> {
    let record = folder.join(RECORD);
    let earlier = match experiment.parts().as_slice() {
        [] => record.exists().then(|| folder.to_owned()),
        parts => parts.iter().map(|part| folder.join(part)).find(|part| part.exists()),
    };
    if let Some(path) = earlier.filter(|_| !resume) {
        let advice = "holds an earlier run: add `resume` to continue it, or choose another `out`";
        return Err(Error::folder(&path, advice));
    }
    let plan = experiment.plan();
    if record.exists() {
        compare(experiment.name(), &plan, folder, &record)?;
    }
    experiment.accept(folder)?;
    fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))?;
    let own = (NAME.to_owned(), Value::from(experiment.name()));
    let plan = plan.into_iter().map(|(name, value)| (name.to_owned(), value));
    let text = Value::Object(plan.chain([own]).collect()).to_string();
    write_bytes(&record, text.as_bytes())
}

/// Refuses the folder of another experiment or plan, and names the settings that differ.
fn compare(name: &str, plan: &[(&'static str, Value)], folder: &Path, record: &Path) -> Result<()> {
    let other = |what: String| Err(Error::folder(folder, what));
    let Some(stored) = kept::<Map<String, Value>>(record) else {
        return other(format!("holds a {RECORD} that cannot be read: choose another `out`"));
    };
    match stored.get(NAME) {
        Some(stored) if stored != name => {
            let stored = stored.as_str().unwrap_or("another experiment");
            return other(format!("holds a run of {stored}: choose another `out`"));
        }
        _ => {}
    }
    let differ: Vec<String> = plan
        .iter()
        .filter(|(name, value)| stored.get(*name) != Some(value))
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    match differ.as_slice() {
        [] => Ok(()),
        [one] => other(format!("holds a run with another {one}: repeat it, or choose another `out`")),
        [first @ .., last] => other(format!(
            "holds a run with another {} and {last}: repeat them, or choose another `out`",
            first.join(", ")
        )),
    }
}

/// A JSON file, if it is there and whole.
pub(super) fn kept<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// `path` with `ending` added to its name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The files in which a step at `path` keeps its state until it has ended, and what a killed write of them has left.
pub(super) fn states(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Vec::new() };
    let own = format!("{}{CHECKPOINT}", name.to_string_lossy());
    let half = format!(".brenier-{own}");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_state = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(&own) || name.starts_with(&half)
    };
    entries.filter(is_state).map(|entry| entry.path()).collect()
}

/// Removes the state of a step that has ended. A file that cannot be removed only takes up room.
pub(super) fn forget(path: &Path) {
    for state in states(path) {
        let _ = if state.is_dir() { fs::remove_dir_all(&state) } else { fs::remove_file(&state) };
    }
}
