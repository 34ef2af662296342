//! The experiment: a folder for every data set and method, and one table of all.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{UciReproduction, UciResult, UciScore, UciSettings, UciTable, Variant};
use crate::Result;
use crate::data::{UciSet, write_bytes};
use crate::experiment::{Document, Experiment, Workbench};

/// What is kept of a cell.
#[derive(Serialize, Deserialize)]
struct Filled {
    /// Not flat: it has a time of its own, that of the trainings.
    result: UciResult,
}

/// The cells of the table to fill, for some data sets and methods.
///
/// A folder may be filled by several runs of the same protocol; its table shows all of them, and of a cell that was stopped what
/// there is.
pub struct UciExperiment {
    protocol: UciSettings,
    /// Each with the name of its folder.
    cells: Vec<(String, UciReproduction)>,
}

impl UciExperiment {
    /// Reads the raw tables of all `sets` from `data` and prepares them as published.
    pub fn new(sets: &[&UciSet], methods: &[Variant], data: &Path, protocol: &UciSettings) -> Result<Self> {
        let mut cells = Vec::new();
        for set in sets {
            for method in methods {
                let cell = UciReproduction::new(set, method, data, protocol)?;
                cells.push((format!("{}-{}", set.name, method.name()), cell));
            }
        }
        Ok(Self::of(cells, protocol))
    }

    pub(super) fn of(cells: Vec<(String, UciReproduction)>, protocol: &UciSettings) -> Self {
        Self { protocol: protocol.clone(), cells }
    }

    /// The cell and its name, where there is only one.
    pub fn only(&self) -> Option<(&str, &UciReproduction)> {
        match self.cells.as_slice() {
            [(name, cell)] => Some((name, cell)),
            _ => None,
        }
    }
}

impl Experiment for UciExperiment {
    fn name(&self) -> &'static str {
        "uci"
    }

    /// Folds, which come after all else, may be others when the run is resumed.
    fn plan(&self) -> Vec<(&'static str, Value)> {
        let protocol = &self.protocol;
        vec![
            ("exact_protocol", json!(protocol.exact)),
            ("trials", json!(protocol.trials)),
            ("finalists", json!(protocol.finalists)),
            ("repeats", json!(protocol.repeats)),
            ("seed", json!(protocol.seed)),
        ]
    }

    fn parts(&self) -> Vec<String> {
        self.cells.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Folders of version 0.1 have no plan, but their results do.
    fn accept(&self, folder: &Path) -> Result<()> {
        UciTable::open(folder, &self.protocol).map(drop)
    }

    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
        let mut table = UciTable::open(bench.folder(), &self.protocol)?;
        for (name, cell) in &self.cells {
            let folder = bench.folder().join(name);
            let mut unfinished = None;
            let step = bench.step(&format!("{name}/{}", cell.step()), name, |part| {
                if folder.exists() {
                    part.continued();
                }
                let run = part.run();
                let token = run.token().clone();
                let (result, outcome) = cell.run(&folder, run)?;
                write_bytes(&folder.join("results.csv"), outcome.to_csv().as_bytes())?;
                write_bytes(&folder.join("scores.csv"), UciScore::csv(&result.scores).as_bytes())?;
                if token.is_stopped() && !result.complete {
                    unfinished = Some(result);
                    return Ok(None);
                }
                Ok(Some(Filled { result }))
            });
            let (found, error) = match step {
                Ok(step) => (Some(step.result.result), None),
                Err(error) => (unfinished, Some(error)),
            };
            if let Some(result) = found {
                table.put(result);
                bench.publish(&table.document())?;
            }
            error.map_or(Ok(()), Err)?;
        }
        Ok(table.document())
    }
}
