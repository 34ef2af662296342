//! An experiment as a value: what it is decided by, its steps, and the document that it ends in.
//!
//! An [`Experiment`] says what its results depend on (its plan) and how to come to them, step by step. [`run`] gives it a
//! folder: steps that the folder already holds are not repeated, a folder of another plan is refused, and the document is
//! written as Markdown, HTML and JSON. A run that was stopped or killed ends, when it is resumed, in the same figures.
//!
//! ```
//! use brenier_core::{Result, Run};
//! use brenier_reproduce::experiment::{self, Document, Experiment, ResultTable, Workbench};
//! use serde_json::{Value, json};
//!
//! /// The sum of the first numbers.
//! struct Sum {
//!     count: u64,
//! }
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Found {
//!     sum: u64,
//! }
//!
//! impl Experiment for Sum {
//!     fn name(&self) -> &'static str {
//!         "sum"
//!     }
//!
//!     fn plan(&self) -> Vec<(&'static str, Value)> {
//!         vec![("count", json!(self.count))]
//!     }
//!
//!     fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
//!         // Kept as sum.json; not repeated when the run is resumed.
//!         let found = bench.step("sum", "adding", |_| Ok(Some(Found { sum: (1..=self.count).sum() })))?;
//!         let table = ResultTable::new(["up to", "sum"]).row([self.count.to_string(), found.result.sum.to_string()]);
//!         Ok(Document::new("A sum").table(table))
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let place = tempfile::tempdir().expect("a folder for the test");
//! # let folder = place.path().join("sum");
//! let document = experiment::run(&Sum { count: 4 }, &folder, false, Run::silent())?;
//! assert!(document.to_markdown().contains("| 4 | 10 |"));
//! assert!(folder.join("results.md").exists());
//! # Ok(())
//! # }
//! ```

mod bench;
mod document;
mod folder;
#[cfg(test)]
mod tests;

pub use bench::{Artifact, Part, Step, Training, Workbench};
pub use document::{Align, Block, Document, ResultTable};

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::{Error, EventKind, Result, Run};

/// A computation whose results belong in a folder.
pub trait Experiment {
    /// Its name, as in a command.
    fn name(&self) -> &'static str;

    /// The settings that decide the results, by name. A folder holds the results of one plan; what may change when a run is
    /// resumed, such as a further method, does not belong here.
    fn plan(&self) -> Vec<(&'static str, Value)>;

    /// Folders of parts that can be run one after the other. Such an experiment adds to a folder of its plan; without
    /// `resume` it is refused only where one of its parts is there already. Without parts, one run fills the folder.
    fn parts(&self) -> Vec<String> {
        Vec::new()
    }

    /// Refuses a folder for a reason of its own, before anything is written into it.
    fn accept(&self, _folder: &Path) -> Result<()> {
        Ok(())
    }

    /// Takes the steps. The document that it returns is published; earlier versions of it may be published on the way.
    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document>;
}

/// An event of an experiment; its steps have events of their own kinds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ExperimentEvent {
    /// A step begins that the folder does not hold yet.
    Step {
        /// The name of its files.
        name: String,
        /// What it does, in a few words.
        title: String,
    },
}

impl EventKind for ExperimentEvent {}

/// Runs `experiment` in `folder`, which is made if need be, and writes its document there.
///
/// # Errors
///
/// [`Error::Folder`] where the folder holds results of another plan, or an earlier run and `resume` is
/// not set; [`Error::Stopped`] where the run was stopped between its steps or in one: the same call
/// with `resume` continues.
pub fn run(experiment: &dyn Experiment, folder: &Path, resume: bool, run: Run<'_>) -> Result<Document> {
    folder::open(experiment, folder, resume)?;
    let mut bench = Workbench::new(folder, run);
    let document = experiment.run(&mut bench).map_err(|error| match error {
        // A call that was stopped knows nothing of the folder, from which the run continues.
        Error::Stopped(_) if bench.is_stopped() => bench::stopped(),
        other => other,
    })?;
    bench.publish(&document)?;
    Ok(document)
}
