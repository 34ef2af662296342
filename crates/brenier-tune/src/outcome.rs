//! What a search found, as figures and as a table.

use std::collections::BTreeMap;

use serde_json::Value;

use super::training::{epochs, valid_nll};
use super::{Final, Pilot};
use crate::statistics::quantile;
use crate::{FitSettings, Posterior};

/// Everything a search found.
#[derive(Debug)]
#[non_exhaustive]
pub struct TuneOutcome {
    /// The settings of each trial.
    pub trials: Vec<FitSettings>,
    /// The pilots, by trial and rung.
    pub pilots: Vec<Pilot>,
    /// The full trainings, best validation loss first.
    pub finals: Vec<Final>,
    /// The model with the best validation loss, if any training got that far.
    pub best: Option<Posterior>,
    /// Whether every training that belongs to the search ran to its end.
    pub complete: bool,
}

impl Final {
    /// A training by its trial and repeat that came to `posterior`.
    pub fn of(posterior: &Posterior, trial: usize, repeat: usize) -> Self {
        let summary = &posterior.info().training;
        Self {
            trial,
            repeat,
            seed: posterior.info().seed,
            epochs: epochs(posterior),
            steps: summary.steps,
            best_step: summary.best_step,
            stop: Some(summary.stop),
            seconds: 0.0,
            valid_nll: Some(valid_nll(posterior)),
            test_nll: None,
            failure: None,
            model: None,
        }
    }

    pub(super) fn failed(trial: usize, repeat: usize, seed: u64, seconds: f64, problem: String) -> Self {
        Self {
            trial,
            repeat,
            seed,
            epochs: 0.0,
            steps: 0,
            best_step: 0,
            stop: None,
            seconds,
            valid_nll: None,
            test_nll: None,
            failure: Some(problem),
            model: None,
        }
    }
}

/// Best, median and worst of figures of which less is better; none of none.
pub fn spread(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    Some([*values.first()?, quantile(&values, 0.5), *values.last()?])
}

impl TuneOutcome {
    /// Best, median and worst of a figure over the full trainings that have it.
    pub fn spread(&self, figure: impl Fn(&Final) -> Option<f64>) -> Option<[f64; 3]> {
        spread(self.finals.iter().filter_map(figure).collect())
    }

    /// Every training with its figures and all its settings, as CSV.
    pub fn to_csv(&self) -> String {
        let rows: Vec<BTreeMap<String, String>> = self
            .trials
            .iter()
            .map(|settings| {
                let mut cells = BTreeMap::new();
                flatten("", &serde_json::to_value(settings).expect("settings are plain data"), &mut cells);
                cells.remove("seed");
                cells
            })
            .collect();
        let mut names: Vec<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
        names.sort_unstable();
        names.dedup();
        let mut text = String::from(
            "stage,trial,rung,repeat,seed,valid_nll,test_nll,epochs,steps,best_step,stop,seconds,failure",
        );
        names.iter().for_each(|name| text.extend([",", name.as_str()]));
        text.push('\n');
        let mut line = |trial: usize, cells: [String; 13]| {
            let settings = names.iter().map(|name| rows[trial].get(*name).cloned().unwrap_or_default());
            let cells: Vec<String> = cells.into_iter().chain(settings).map(|cell| quoted(&cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        };
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for pilot in &self.pilots {
            let cells = [
                "pilot".into(),
                pilot.trial.to_string(),
                pilot.rung.to_string(),
                String::new(),
                self.trials[pilot.trial].seed.to_string(),
                number(pilot.valid_nll),
                String::new(),
                pilot.epochs.to_string(),
                pilot.steps.to_string(),
                String::new(),
                String::new(),
                format!("{:.3}", pilot.seconds),
                pilot.failure.clone().unwrap_or_default(),
            ];
            line(pilot.trial, cells);
        }
        for training in &self.finals {
            let stop = training.stop.map(|stop| serde_json::to_value(stop).expect("a word"));
            let cells = [
                "final".into(),
                training.trial.to_string(),
                String::new(),
                training.repeat.to_string(),
                training.seed.to_string(),
                number(training.valid_nll),
                number(training.test_nll),
                training.epochs.to_string(),
                training.steps.to_string(),
                training.best_step.to_string(),
                stop.as_ref().and_then(Value::as_str).unwrap_or_default().into(),
                format!("{:.3}", training.seconds),
                training.failure.clone().unwrap_or_default(),
            ];
            line(training.trial, cells);
        }
        text
    }
}

/// Leaves of a JSON document under their dotted names.
fn flatten(prefix: &str, value: &Value, cells: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, cells);
            }
        }
        Value::Null => drop(cells.insert(prefix.to_owned(), String::new())),
        Value::String(text) => drop(cells.insert(prefix.to_owned(), text.clone())),
        other => drop(cells.insert(prefix.to_owned(), other.to_string())),
    }
}

/// A cell of a CSV file.
fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
