//! The benchmark as an experiment: reference draws, models and scores, so that nothing is computed twice.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    SbibmCell, SbibmResult, SbibmSettings, SbibmTable, fit_settings, judge, known, observations,
    reference_draws, test_table, training_table,
};
use crate::data::Table;
use crate::experiment::{Document, Experiment, Workbench};
use crate::{Result, Run, fit};

/// Fits for tasks, sizes, methods and seeds, each scored against exact posteriors.
///
/// A folder may be filled by several runs with other tasks, sizes, methods or numbers of seeds; its table shows all of them.
pub struct SbibmExperiment {
    settings: SbibmSettings,
    cells: Vec<SbibmCell>,
}

impl SbibmExperiment {
    /// Checks the settings.
    pub fn new(settings: SbibmSettings) -> Result<Self> {
        Ok(Self { cells: settings.cells()?, settings })
    }

    /// Reference draws at observation `index` of a task.
    fn reference(&self, bench: &mut Workbench<'_>, task: &str, index: usize) -> Result<Vec<f64>> {
        let title = format!("{task}: reference draws at observation {}", index + 1);
        let table = bench.table(&format!("reference-{task}-{}", index + 1), &title, |_: Run<'_>| {
            let observation = observations(task, &self.settings)?.swap_remove(index);
            let draws = reference_draws(task, &self.settings, index, &observation)?;
            Table::new(known(task)?.prior().names().to_vec(), draws).map(Some)
        })?;
        Ok(table.into_values())
    }

    fn fill(&self, bench: &mut Workbench<'_>, cell: &SbibmCell) -> Result<()> {
        let name = cell.name();
        if bench.folder().join(format!("{name}.json")).exists() {
            return Ok(());
        }
        let (model, training) = match bench.kept_model(&name)? {
            Some(kept) => kept,
            None => {
                let rows = format!("simulations-{}-{}-{}", cell.task, cell.simulations, cell.seed);
                let title = format!("{}: {} simulations", cell.task, cell.simulations);
                let table = bench.table(&rows, &title, |run| training_table(cell, run))?;
                let settings = fit_settings(cell)?;
                bench.model(&name, &name, |run| fit(&table, &settings, run))?
            }
        };
        let title = format!("{}: {} test rows", cell.task, self.settings.test_rows);
        let test = bench.table(&format!("test-{}", cell.task), &title, |run| {
            test_table(&cell.task, &self.settings, run)
        })?;
        let observed = observations(&cell.task, &self.settings)?;
        // For other programs that are to be compared.
        let title = format!("{}: observations", cell.task);
        bench.table(&format!("observations-{}", cell.task), &title, |_| {
            let task = known(&cell.task)?;
            let names = [task.prior().names(), task.output_names()].concat();
            let rows = observed.iter().flat_map(|own| own.truth.iter().chain(&own.y)).copied();
            Table::new(names, rows.collect()).map(Some)
        })?;
        let references = (0..observed.len())
            .map(|index| self.reference(bench, &cell.task, index))
            .collect::<Result<Vec<_>>>()?;
        bench.step(&name, &format!("{name}: scores"), |_| {
            judge(cell, &self.settings, &model, training.seconds, &test, &observed, &references).map(Some)
        })?;
        Ok(())
    }
}

impl Experiment for SbibmExperiment {
    fn name(&self) -> &'static str {
        "sbibm"
    }

    fn plan(&self) -> Vec<(&'static str, Value)> {
        let settings = &self.settings;
        vec![
            ("seed", json!(settings.seed)),
            ("observations", json!(settings.observations)),
            ("draws", json!(settings.draws)),
            ("test_rows", json!(settings.test_rows)),
            ("calibration_pairs", json!(settings.calibration_pairs)),
            ("calibration_draws", json!(settings.calibration_draws)),
        ]
    }

    fn parts(&self) -> Vec<String> {
        self.cells.iter().map(|cell| format!("{}.json", cell.name())).collect()
    }

    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
        for cell in &self.cells {
            self.fill(bench, cell)?;
            bench.publish(&held(bench.folder()).document())?;
        }
        Ok(held(bench.folder()).document())
    }
}

/// All results in a folder.
fn held(folder: &Path) -> SbibmTable {
    let mut table = SbibmTable::default();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "json")
            && let Some(result) =
                std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<SbibmResult>(&bytes).ok())
        {
            table.put(result);
        }
    }
    table
}
