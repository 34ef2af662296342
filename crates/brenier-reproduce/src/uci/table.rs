//! The table of results beside the published figures, and the folder's record of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{Published, PublishedFolds, UciResult, UciScore, UciSettings, Variant};
use crate::data::uci_sets;
use crate::experiment::{Document, ResultTable};
use crate::map::Method;
use crate::statistics::ColumnSummary;
use crate::{Error, Result, baseline, tune};

/// A mean over seeds and its standard deviation; not a number where there is one seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverSeeds {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

impl UciResult {
    /// NLL of the test rows under the conditional Gaussian beside the model that validation chose.
    pub fn baseline(&self) -> Option<f64> {
        self.scores.first()?.baseline
    }

    /// The lowest log density of a test row: under the model that validation chose, and under any of all trainings.
    pub fn lowest(&self) -> Option<[f64; 2]> {
        let all = self.scores.iter().map(|score| score.lowest).collect::<Option<Vec<f64>>>()?;
        Some([*all.first()?, all.iter().copied().reduce(f64::min)?])
    }

    /// Best, median and worst of a figure over all trainings.
    pub fn spread(&self, figure: impl Fn(&UciScore) -> f64) -> Option<[f64; 3]> {
        tune::spread(self.scores.iter().map(figure).collect())
    }

    /// Best, median and worst setting by a figure's mean over its seeds; of two in the middle the worse.
    pub fn settings(&self, figure: impl Fn(&UciScore) -> f64) -> Option<[OverSeeds; 3]> {
        let mut by_trial = BTreeMap::<usize, Vec<f64>>::new();
        for score in &self.scores {
            by_trial.entry(score.training.trial).or_default().push(figure(score));
        }
        let mut settings = by_trial.into_values().map(OverSeeds::of).collect::<Option<Vec<_>>>()?;
        settings.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let last = settings.len().checked_sub(1)?;
        Some([settings[0], settings[last.div_ceil(2)], settings[last]])
    }
}

impl OverSeeds {
    /// None of none.
    fn of(mut values: Vec<f64>) -> Option<Self> {
        let ColumnSummary { mean, sd, .. } = ColumnSummary::of(&mut values).ok()?;
        Some(Self { mean, deviation: if values.len() > 1 { sd } else { f64::NAN } })
    }
}

/// The results of a folder, in the order of the published table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UciTable {
    results: Vec<UciResult>,
}

impl UciTable {
    /// What `results.json` in `folder` holds; refused where it belongs to another protocol. Folds, which come after all
    /// else, may be others.
    pub fn open(folder: &Path, protocol: &UciSettings) -> Result<Self> {
        let path = folder.join("results.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        let bytes = std::fs::read(&path).map_err(|source| Error::io(&path, "read", source))?;
        let results: Vec<UciResult> = serde_json::from_slice(&bytes).map_err(|error| {
            Error::table(&path, format!("is not a table of results ({error}): choose another `out`"))
        })?;
        let plain = |protocol: &UciSettings| UciSettings { folds: 0, ..protocol.clone() };
        match results.iter().find(|result| plain(&result.protocol) != plain(protocol)) {
            None => Ok(Self { results }),
            Some(other) => Err(Error::table(
                &path,
                format!(
                    "{} was run with another protocol or seed: repeat these settings, or choose another `out`",
                    other.dataset
                ),
            )),
        }
    }

    /// Adds a result, in place of an earlier one of its data set and method.
    pub fn put(&mut self, result: UciResult) {
        let place = |result: &UciResult| {
            let set = uci_sets().iter().position(|set| set.name == result.dataset);
            (result.method.clone(), set)
        };
        self.results.retain(|other| place(other) != place(&result));
        self.results.push(result);
        self.results.sort_by_cached_key(place);
    }

    /// Ours beside the published figures: a table of NLL and one of MMD.
    pub fn document(&self) -> Document {
        let settings_over_seeds = "settings, mean ± sd over seeds: best / median / worst";
        let trainings = "trainings: best / median / worst";
        let header = [
            "NLL",
            settings_over_seeds,
            "published",
            trainings,
            "chosen by validation",
            "lowest log density of a test row: chosen / any training",
            baseline::TITLE,
            "cross-validated",
        ];
        let mut likelihoods = ResultTable::new(header).aligned("llllrrrr");
        for result in &self.results {
            let published = Published::find(&result.dataset, result.method.method());
            let chosen = result.scores.first().map(|score| format!("{:.2}", score.nll));
            let lowest = result.lowest().map(|[chosen, any]| format!("{chosen:.1} / {any:.1}"));
            let baseline = result.baseline().map(|nll| format!("{nll:.2}"));
            let folds = result.folds.as_ref().map(|folds| {
                let dropped = match folds.dropped {
                    0 => String::new(),
                    count => format!(", {count} rows left out"),
                };
                let (mean, error) = (folds.mean, folds.standard_error);
                format!("{mean:.2} ± {error:.2}, {} folds{dropped}", folds.nll.len())
            });
            let folded = PublishedFolds::find(&result.dataset, result.method.method());
            likelihoods.push([
                name(result),
                settings(result.settings(|score| score.nll), 2),
                match folded {
                    Some(folded) => format!("{:.2} ± {:.2}, 10 folds", folded.nll, folded.interval / 1.96),
                    None => settings(published.map(|published| published.nll), 2),
                },
                triple(result.spread(|score| score.nll), 2),
                chosen.unwrap_or_else(none),
                lowest.unwrap_or_else(none),
                baseline.unwrap_or_else(none),
                folds.unwrap_or_else(none),
            ]);
        }
        let joint = "of as many (x, y) as training rows: best / median / worst";
        let header =
            ["root MMD ×10⁻²", settings_over_seeds, "published", trainings, "MMD² ×10⁻⁴: best", joint];
        let mut distances = ResultTable::new(header).aligned("llllrl");
        for result in &self.results {
            let published = Published::find(&result.dataset, result.method.method());
            let squared = result.spread(|score| 1e4 * score.mmd.0);
            let joint = result.scores.iter().map(|score| score.training_mmd).collect::<Option<Vec<_>>>();
            let joint = joint.map(|all| all.iter().map(|(_, root)| 100.0 * root).collect());
            distances.push([
                name(result),
                settings(result.settings(|score| 100.0 * score.mmd.1), 1),
                settings(published.map(|published| published.mmd), 1),
                triple(result.spread(|score| 100.0 * score.mmd.1), 1),
                squared.map_or_else(none, |all| format!("{:.1}", all[0])),
                triple(joint.and_then(tune::spread), 1),
            ]);
        }
        Document::new("Densities of six UCI tables")
            .text(ALL_METHODS)
            .table(self.all_methods())
            .text("Every cell, and the published one beside it.")
            .table(likelihoods)
            .table(distances)
            .figures(&self.results)
    }

    /// NLL of all methods on all tables: the published rows, then ours.
    fn all_methods(&self) -> ResultTable {
        let sets = uci_sets();
        let header = ["NLL".to_owned()].into_iter().chain(sets.iter().map(|set| words(set.name)));
        let mut table = ResultTable::new(header).aligned("lrrrrrr");
        let mut line = |title: String, cell: &dyn Fn(&str) -> Option<String>| {
            let cells: Vec<Option<String>> = sets.iter().map(|set| cell(set.name)).collect();
            if cells.iter().any(Option::is_some) {
                table
                    .push([title].into_iter().chain(cells.into_iter().map(|cell| cell.unwrap_or_else(none))));
            }
        };
        for &method in Method::ALL {
            line(format!("{}, published, 10 folds", method.title()), &|set| {
                let PublishedFolds { nll, interval } = PublishedFolds::find(set, method)?;
                Some(format!("{nll:.2} ± {:.2}", interval / 1.96))
            });
            line(format!("{}, published, best of 10 settings", method.title()), &|set| {
                Published::find(set, method).map(|published| one(published.nll[0], 2))
            });
        }
        let mut methods: Vec<&Variant> = self.results.iter().map(|result| &result.method).collect();
        methods.dedup();
        for method in methods {
            let find = |set: &str| {
                self.results.iter().find(|result| &result.method == method && result.dataset == set)
            };
            line(format!("{}, best setting", method.title()), &|set| {
                let settings = find(set)?.settings(|score| score.nll)?;
                (find(set)?.scores.len() > 1).then(|| one(settings[0], 2))
            });
            line(format!("{}, chosen by validation", method.title()), &|set| {
                Some(format!("{:.2}", find(set)?.scores.first()?.nll))
            });
            line(format!("{}, cross-validated", method.title()), &|set| {
                let folds = find(set)?.folds.as_ref()?;
                Some(format!("{:.2} ± {:.2}", folds.mean, folds.standard_error))
            });
        }
        line(format!("{}, beside every map", baseline::TITLE), &|set| {
            let mut own = self.results.iter().filter(|result| result.dataset == set);
            own.find_map(UciResult::baseline).map(|nll| format!("{nll:.2}"))
        });
        table
    }
}

const ALL_METHODS: &str = "Mean negative log-likelihood of test rows in units of the columns' standard deviations, lower is better. \
    Best setting: mean ± standard deviation over seeds of the setting that did best on the test rows, as published. Chosen by \
    validation: the one model that a user gets. Cross-validated: mean ± standard error of the folds. The conditional Gaussian \
    has an affine mean and is fitted to the same rows as each map. Adaptive transport maps \
    were published with ± 1.96 standard errors and, on concrete, energy and yacht, in the target's own units (3.1, 1.5 and \
    0.5): here ± is one standard error, and the logarithm of the target's standard deviation is subtracted.";

impl UciScore {
    /// The scores as comma-separated text, one line each, with every digit: two runs can be told apart or found equal.
    pub fn csv(scores: &[Self]) -> String {
        let mut text = String::from(
            "trial,repeat,seed,valid_nll,test_nll,lowest_log_density,mmd_squared,mmd_root,joint_mmd_root,training_mmd_root,\
             epochs,steps,seconds\n",
        );
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for score in scores {
            let training = &score.training;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{},{:.2}",
                training.trial,
                training.repeat,
                training.seed,
                number(training.valid_nll),
                score.nll,
                number(score.lowest),
                score.mmd.0,
                score.mmd.1,
                number(score.joint_mmd.map(|mmd| mmd.1)),
                number(score.training_mmd.map(|mmd| mmd.1)),
                training.epochs,
                training.steps,
                training.seconds
            );
        }
        text
    }
}

fn name(result: &UciResult) -> String {
    let unfinished = if result.complete { "" } else { " (unfinished)" };
    format!("{}, {}{unfinished}", words(&result.dataset), result.method.title())
}

fn words(dataset: &str) -> String {
    dataset.replace('_', " ")
}

fn none() -> String {
    "–".to_owned()
}

fn triple(figures: Option<[f64; 3]>, digits: usize) -> String {
    figures.map_or_else(none, |figures| figures.map(|value| format!("{value:.digits$}")).join(" / "))
}

fn one(OverSeeds { mean, deviation }: OverSeeds, digits: usize) -> String {
    match deviation.is_nan() {
        true => format!("{mean:.digits$}"),
        false => format!("{mean:.digits$} ± {deviation:.digits$}"),
    }
}

fn settings(figures: Option<[OverSeeds; 3]>, digits: usize) -> String {
    figures.map_or_else(none, |figures| figures.map(|figure| one(figure, digits)).join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_have_a_mean_and_where_there_are_two_a_deviation() {
        assert_eq!(OverSeeds::of(vec![1.0, 3.0]), Some(OverSeeds { mean: 2.0, deviation: 2.0_f64.sqrt() }));
        let one = [OverSeeds { mean: 1.25, deviation: f64::NAN }; 3];
        assert_eq!(settings(Some(one), 1), "1.2 / 1.2 / 1.2");
        let two = OverSeeds { mean: -1.0, deviation: 0.5 };
        assert_eq!(settings(Some([two; 3]), 1), "-1.0 ± 0.5 / -1.0 ± 0.5 / -1.0 ± 0.5");
        assert!(OverSeeds::of(vec![1.0]).is_some_and(|one| one.deviation.is_nan()));
        assert_eq!(OverSeeds::of(Vec::new()), None);
    }
}
