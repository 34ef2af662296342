//! The table of results beside the published figures.

use super::{PUBLISHED_METHODS, PublishedC2st, SbibmCell, SbibmResult};
use crate::experiment::{Document, ResultTable};
use crate::simulate::tasks::TASKS;
use crate::statistics::Estimate;
use crate::{MethodChoice, baseline};

/// A mean over seeds, and its standard error where there are two or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverCells {
    /// The mean.
    pub mean: f64,
    /// Its standard error; none for one seed.
    pub error: Option<f64>,
}

impl OverCells {
    fn of(values: &[f64]) -> Self {
        let Estimate { mean, standard_error, .. } = Estimate::of(values);
        Self { mean, error: (values.len() > 1).then_some(standard_error) }
    }

    fn text(self, digits: usize) -> String {
        match self.error {
            None => format!("{:.digits$}", self.mean),
            Some(error) => format!("{:.digits$} ± {error:.digits$}", self.mean),
        }
    }
}

/// The results of a folder, task by task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SbibmTable {
    results: Vec<SbibmResult>,
}

/// Task, simulations, method and seed, in the order of the table.
fn place(cell: &SbibmCell) -> (Option<usize>, u64, MethodChoice, bool, u64) {
    let task = TASKS.iter().position(|task| *task == cell.task);
    (task, cell.simulations, cell.method, cell.exchangeable, cell.seed)
}

impl SbibmTable {
    /// Adds a result, in place of an earlier one of its cell.
    pub fn put(&mut self, result: SbibmResult) {
        self.results.retain(|other| other.cell != result.cell);
        self.results.push(result);
        self.results.sort_by_key(|result| place(&result.cell));
    }

    /// A row for each task, size and method, means over seeds.
    pub fn document(&self) -> Document {
        let published = [1, 2, 4].map(|method| (method, PUBLISHED_METHODS[method]));
        let titles = published.map(|(_, title)| format!("C2ST published: {title}"));
        let own = [
            "task",
            "simulations",
            "method",
            "NLL",
            baseline::TITLE,
            "C2ST",
            "√MMD²",
            "calibration p",
            "seconds",
        ];
        let header = own.into_iter().map(str::to_owned).chain(titles).chain(["best".to_owned()]);
        let mut table = ResultTable::new(header).aligned("lrlrrrrrrrrrr");
        let same = |a: &SbibmResult, b: &SbibmResult| {
            let of = |cell: &SbibmCell| (cell.simulations, cell.method, cell.exchangeable);
            a.cell.task == b.cell.task && of(&a.cell) == of(&b.cell)
        };
        for group in self.results.chunk_by(same) {
            let cell = &group[0].cell;
            let over = |figure: fn(&SbibmResult) -> f64| {
                OverCells::of(&group.iter().map(figure).collect::<Vec<_>>())
            };
            let baseline = group.iter().map(|result| result.baseline).collect::<Option<Vec<f64>>>();
            let worst = group.iter().map(|result| result.calibration).collect::<Option<Vec<f64>>>();
            let seconds = group.iter().map(|result| result.fit_seconds).collect::<Option<Vec<f64>>>();
            let row = PublishedC2st::find(&cell.task);
            let figure = |value: Option<f64>| value.map_or_else(none, |value| format!("{value:.3}"));
            let others =
                published.map(|(method, _)| figure(row.and_then(|row| row.at(method, cell.simulations))));
            let figures = [
                if cell.exchangeable { format!("{}, exchangeable", cell.task) } else { cell.task.clone() },
                cell.simulations.to_string(),
                cell.method.title().to_owned(),
                over(|result| result.nll.0).text(3),
                baseline.map_or_else(none, |all| OverCells::of(&all).text(3)),
                over(SbibmResult::mean_c2st).text(3),
                over(SbibmResult::mean_mmd).text(3),
                worst.map_or_else(none, |all| format!("{:.2}", all.iter().copied().fold(1.0, f64::min))),
                seconds.map_or_else(none, |all| format!("{:.0}", OverCells::of(&all).mean)),
            ];
            let best = figure(row.and_then(|row| row.best_at(cell.simulations)));
            table.push(figures.into_iter().chain(others).chain([best]));
        }
        Document::new("The benchmark of simulation-based inference").table(table).figures(&self.results)
    }
}

fn none() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(task: &str, simulations: u64, seed: u64, c2st: f64) -> SbibmResult {
        let method = MethodChoice::default();
        let cell = SbibmCell { task: task.into(), simulations, method, exchangeable: false, seed };
        SbibmResult {
            cell,
            nll: (-1.5, 0.01),
            baseline: (simulations > 500).then_some(-0.25),
            c2st: vec![c2st, c2st],
            mmd: vec![0.25],
            calibration: Some(0.3),
            unsolved: 0,
            fit_seconds: Some(12.0),
        }
    }

    #[test]
    fn results_of_earlier_versions_are_read() {
        let new = result("two-moons", 10_000, 0, 0.6);
        let mut value = serde_json::to_value(&new).expect("plain data");
        value.as_object_mut().expect("a struct").remove("baseline");
        let old: SbibmResult = serde_json::from_value(value).expect("all that is needed");
        assert_eq!(old, SbibmResult { baseline: None, ..new });
    }

    #[test]
    fn seeds_are_averaged_and_published_figures_stand_beside() {
        let mut table = SbibmTable::default();
        table.put(result("two-moons", 10_000, 1, 0.58));
        table.put(result("two-moons", 10_000, 0, 0.9));
        table.put(result("two-moons", 10_000, 0, 0.54));
        table.put(result("gaussian-linear", 500, 0, 0.6));
        let text = table.document().to_markdown();
        let rows: Vec<&str> =
            text.lines().filter(|line| line.starts_with("| gaussian") || line.starts_with("| two")).collect();
        assert_eq!(
            rows,
            [
                "| gaussian-linear | 500 | PCP-Map | -1.500 | – | 0.600 | 0.250 | 0.30 | 12 | – | – | – | – |",
                "| two-moons | 10000 | PCP-Map | -1.500 ± 0.000 | -0.250 ± 0.000 | 0.560 ± 0.020 | 0.250 ± 0.000 | 0.30 \
                 | 12 | 0.554 | 0.543 | 0.632 | 0.513 |",
            ]
        );
    }
}
