//! What an experiment works with: steps that are kept, tables, models, pictures and the document.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::folder::{CHECKPOINT, beside, forget, kept, states};
use super::{Document, ExperimentEvent};
use crate::data::{self, Table, write_bytes};
use crate::report::{DOTS_PER_INCH, PictureFormat, write_picture};
use crate::{Error, Fitted, Journal, Posterior, Result, Run};

/// The result of a step, with the time it took. It is kept as one JSON object, so its result is a struct.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step<T> {
    /// On the clock; none where the step was interrupted and only its last part was timed.
    pub seconds: Option<f64>,
    /// Threads that it had; 0 in old folders that do not say.
    #[serde(default)]
    pub threads: usize,
    /// The result.
    #[serde(flatten)]
    pub result: T,
}

impl<T> Step<T> {
    /// The time in words.
    pub fn clock(&self) -> String {
        self.seconds.map_or("interrupted, not timed".to_owned(), |seconds| format!("{seconds:.0} s"))
    }
}

/// What is kept about a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// Steps taken.
    pub steps: u64,
}

/// A value that a step leaves as a file.
pub trait Artifact: Sized {
    /// Reads it.
    fn load(path: &Path) -> Result<Self>;
    /// Writes it, complete or not at all.
    fn save(&self, path: &Path) -> Result<()>;
}

impl Artifact for Table {
    fn load(path: &Path) -> Result<Self> {
        Table::read(path)
    }

    fn save(&self, path: &Path) -> Result<()> {
        data::write(path, self)
    }
}

impl Artifact for Posterior {
    fn load(path: &Path) -> Result<Self> {
        Posterior::load(path)
    }

    fn save(&self, path: &Path) -> Result<()> {
        Posterior::save(self, path)
    }
}

/// A step at work.
pub struct Part<'a> {
    path: PathBuf,
    run: Run<'a>,
    started: Instant,
    /// Whether no earlier run has left a state of it.
    fresh: bool,
}

impl Part<'_> {
    /// What surrounds the long calls of the step: the experiment's observer and stop token, and a journal at
    /// `NAME.checkpoint` that is removed when the step has ended.
    pub fn run(&mut self) -> Run<'_> {
        self.run.part(Some(Journal::at(self.file(CHECKPOINT))))
    }

    /// Says that an earlier run did some of the work and left it elsewhere than in the journal: the time is then not the whole.
    pub fn continued(&mut self) {
        self.fresh = false;
    }

    /// A file or folder under the step's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file beside it, with `ending` added to its name.
    pub fn file(&self, ending: &str) -> PathBuf {
        beside(&self.path, ending)
    }

    fn ended<T>(&self, result: T) -> Step<T> {
        let seconds = self.fresh.then(|| self.started.elapsed().as_secs_f64());
        Step { seconds, threads: rayon::current_num_threads(), result }
    }

    /// Keeps the result; from here on the step is not repeated.
    fn keep<T: Serialize>(&self, step: &Step<T>) -> Result<()> {
        let text = serde_json::to_string(step).expect("the result of a step is a struct of plain data");
        write_bytes(&self.file(RESULT), text.as_bytes())?;
        forget(&self.path);
        Ok(())
    }
}

/// The ending of a step's result.
const RESULT: &str = ".json";

/// The error of a run that was stopped.
pub(super) fn stopped() -> Error {
    Error::Stopped("stopped; re-run the same command with `resume` to continue".to_owned())
}

/// The folder of a run and what surrounds it.
///
/// Every kind of step is repeated unless the folder holds what it left. The work of a step returns `None` where it was
/// stopped before its end, or [`Error::Stopped`]; the run then ends with that.
pub struct Workbench<'a> {
    folder: PathBuf,
    run: Run<'a>,
}

impl<'a> Workbench<'a> {
    pub(super) fn new(folder: &Path, run: Run<'a>) -> Self {
        Self { folder: folder.to_owned(), run }
    }

    /// Where the results go.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the run was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.run.is_stopped()
    }

    /// Announces work whose result is not kept as a step's is, because it is cheap to repeat.
    pub fn part(&mut self, name: &str, title: &str) -> Result<Part<'_>> {
        self.run.tell(ExperimentEvent::Step { name: name.to_owned(), title: title.to_owned() })?;
        let path = self.folder.join(name);
        let fresh = states(&path).is_empty();
        Ok(Part { path, run: self.run.part(None), started: Instant::now(), fresh })
    }

    /// The same for work that makes no sense once the run was stopped.
    fn begin(&mut self, name: &str, title: &str) -> Result<Part<'_>> {
        match self.is_stopped() {
            true => Err(stopped()),
            false => self.part(name, title),
        }
    }

    /// A result that is kept as `NAME.json`.
    pub fn step<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        title: &str,
        work: impl FnOnce(&mut Part<'_>) -> Result<Option<T>>,
    ) -> Result<Step<T>> {
        let path = self.folder.join(name);
        if let Some(step) = kept(&beside(&path, RESULT)) {
            forget(&path); // a kill may have come before
            return Ok(step);
        }
        let mut part = self.begin(name, title)?;
        let step = match work(&mut part)? {
            Some(result) => part.ended(result),
            None => return Err(stopped()),
        };
        part.keep(&step)?;
        Ok(step)
    }

    /// A value that is kept as the file `name`, with a result about it as `NAME.json`.
    pub fn artifact<A: Artifact, T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        title: &str,
        work: impl FnOnce(Run<'_>) -> Result<Option<(A, T)>>,
    ) -> Result<(A, Step<T>)> {
        if let Some(kept) = self.kept_artifact(name)? {
            return Ok(kept);
        }
        let mut part = self.begin(name, title)?;
        let (artifact, result) = work(part.run())?.ok_or_else(stopped)?;
        let step = part.ended(result);
        artifact.save(part.path())?;
        part.keep(&step)?;
        Ok((artifact, step))
    }

    fn kept_artifact<A: Artifact, T: DeserializeOwned>(&self, name: &str) -> Result<Option<(A, Step<T>)>> {
        let path = self.folder.join(name);
        let result = kept(&beside(&path, RESULT)).filter(|_| path.exists());
        let Some(result) = result else { return Ok(None) };
        forget(&path); // a kill may have come before
        Ok(Some((A::load(&path)?, result)))
    }

    /// A table that is kept as `NAME.parquet`.
    pub fn table(
        &mut self,
        name: &str,
        title: &str,
        make: impl FnOnce(Run<'_>) -> Result<Option<Table>>,
    ) -> Result<Table> {
        let name = format!("{name}.parquet");
        let path = self.folder.join(&name);
        if path.exists() {
            forget(&path); // a kill may have come before
            return Table::load(&path);
        }
        let mut part = self.begin(&name, title)?;
        let table = make(part.run())?.ok_or_else(stopped)?;
        table.save(&path)?;
        forget(&path);
        Ok(table)
    }

    /// A posterior that is kept as `NAME.brenier`, trained to its end.
    pub fn model(
        &mut self,
        name: &str,
        title: &str,
        fit: impl FnOnce(Run<'_>) -> Result<Fitted>,
    ) -> Result<(Posterior, Step<Training>)> {
        self.artifact(&model_file(name), title, |run| {
            let model = fit(run)?.posterior;
            let blocks = [Some(&model), model.marginal()];
            if blocks.into_iter().flatten().any(|block| block.info().training.stop.is_resumable()) {
                return Ok(None);
            }
            let steps = model.info().training.steps;
            Ok(Some((model, Training { steps })))
        })
    }

    /// The posterior that [`model`](Self::model) would not train again, so that its table need not be made.
    pub fn kept_model(&self, name: &str) -> Result<Option<(Posterior, Step<Training>)>> {
        self.kept_artifact(&model_file(name))
    }

    /// Writes a picture as `STEM.svg` and, where the build has it, as `STEM.png`.
    pub fn picture(&self, stem: &str, svg: &str) -> Result<()> {
        for ending in ["svg", "png"] {
            let path = self.folder.join(format!("{stem}.{ending}"));
            if PictureFormat::of(&path).is_ok() {
                write_picture(&path, svg, 0.5 * DOTS_PER_INCH)?;
            }
        }
        Ok(())
    }

    /// Writes a file that is cheap to make again.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        write_bytes(&self.folder.join(name), text.as_bytes())
    }

    /// Writes the document as it is now: `results.md`, `results.json` and, with its pictures inside, `results.html`.
    pub fn publish(&self, document: &Document) -> Result<()> {
        self.write("results.json", &document.to_json())?;
        self.write("results.md", &document.to_markdown())?;
        self.write("results.html", &document.to_html(&self.folder)?)
    }
}

fn model_file(name: &str) -> String {
    format!("{name}.brenier")
}
