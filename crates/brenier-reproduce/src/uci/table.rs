//! The table of results beside the published figures, and the folder's record of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{UciResult, UciScore, UciSettings};
use crate::data::uci_sets;
use crate::experiment::{Document, ResultTable};
use crate::map::Method;
use crate::{Error, Result, tune};

/// A mean over seeds and its standard deviation; not a number where there is one seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverSeeds {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// Published figures: best, median and worst of ten settings, with the deviation over five seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Mean negative log-likelihood.
    pub nll: [OverSeeds; 3],
    /// MMD in hundredths, on the scale of the root.
    pub mmd: [OverSeeds; 3],
}

/// Data set; then NLL and MMD ×10⁻² of PCP-Map, and of COT-Flow: best, median, worst.
type PublishedRow = (&'static str, [[[(f64, f64); 3]; 2]; 2]);

#[rustfmt::skip]
#[allow(clippy::approx_constant)] // −3.14 is a published figure, not π
const PUBLISHED: [PublishedRow; 6] = [
    ("parkinsons", [
        [[(1.59, 0.08), (1.96, 0.08), (2.34, 0.09)], [(3.3, 0.3), (3.5, 0.4), (4.0, 0.6)]],
        [[(1.58, 0.09), (2.72, 0.34), (3.27, 0.15)], [(3.4, 0.3), (4.1, 0.4), (4.8, 0.2)]],
    ]),
    ("white_wine", [
        [[(10.81, 0.15), (10.99, 0.24), (12.53, 2.68)], [(2.8, 0.1), (3.1, 0.3), (3.3, 0.2)]],
        [[(10.45, 0.08), (10.73, 0.05), (11.04, 0.28)], [(3.0, 0.1), (3.2, 0.1), (4.4, 0.1)]],
    ]),
    ("red_wine", [
        [[(8.80, 0.11), (9.90, 0.53), (11.08, 0.72)], [(4.3, 0.3), (4.7, 0.3), (5.5, 0.3)]],
        [[(8.54, 0.13), (8.71, 0.12), (9.00, 0.05)], [(4.2, 0.1), (4.6, 0.3), (6.7, 0.3)]],
    ]),
    ("concrete", [
        [[(0.19, 0.14), (0.28, 0.07), (1.18, 0.54)], [(2.7, 1.1), (4.0, 1.1), (4.8, 1.0)]],
        [[(0.15, 0.05), (0.21, 0.04), (0.35, 0.04)], [(2.9, 1.4), (4.3, 0.9), (7.1, 3.0)]],
    ]),
    ("energy", [
        [[(-1.15, 0.08), (-1.02, 0.16), (0.30, 0.63)], [(1.4, 0.4), (1.9, 0.5), (3.8, 1.7)]],
        [[(-1.19, 0.09), (-0.83, 0.05), (-0.56, 0.04)], [(1.5, 0.3), (3.1, 1.4), (7.4, 1.9)]],
    ]),
    ("yacht", [
        [[(-2.76, 0.18), (-2.42, 0.25), (-0.27, 1.28)], [(0.7, 0.1), (1.2, 0.5), (1.7, 0.6)]],
        [[(-3.14, 0.14), (-2.77, 0.12), (-2.38, 0.11)], [(1.0, 0.3), (1.6, 0.7), (2.7, 0.3)]],
    ]),
];

impl Published {
    /// The figures printed for a data set.
    pub fn find(dataset: &str, method: Method) -> Option<Self> {
        let (_, methods) = PUBLISHED.iter().find(|(name, _)| *name == dataset)?;
        let column = [Method::PcpMap, Method::CotFlow].iter().position(|&other| other == method)?;
        let [nll, mmd] = methods[column];
        let figures = |row: [(f64, f64); 3]| row.map(|(mean, deviation)| OverSeeds { mean, deviation });
        Some(Self { nll: figures(nll), mmd: figures(mmd) })
    }
}

impl UciResult {
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
        let mut settings: Vec<OverSeeds> = by_trial.into_values().map(|values| over_seeds(&values)).collect();
        settings.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let last = settings.len().checked_sub(1)?;
        Some([settings[0], settings[last.div_ceil(2)], settings[last]])
    }
}

pub(super) fn over_seeds(values: &[f64]) -> OverSeeds {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    OverSeeds { mean, deviation: (square / (count - 1.0)).sqrt() }
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

    /// Adds a result, in the place of an earlier one of its data set and method.
    pub fn put(&mut self, result: UciResult) {
        let place = |result: &UciResult| {
            let set = uci_sets().iter().position(|set| set.name == result.dataset);
            (result.method, set)
        };
        self.results.retain(|other| place(other) != place(&result));
        self.results.push(result);
        self.results.sort_by_key(place);
    }

    /// Ours beside the published figures: a table of NLL and one of MMD.
    pub fn document(&self) -> Document {
        let settings_over_seeds = "settings, mean ± sd over seeds: best / median / worst";
        let trainings = "trainings: best / median / worst";
        let header =
            ["NLL", settings_over_seeds, "published", trainings, "chosen by validation", "cross-validated"];
        let mut likelihoods = ResultTable::new(header).aligned("llllrr");
        for result in &self.results {
            let published = Published::find(&result.dataset, result.method);
            let chosen = result.scores.first().map(|score| format!("{:.2}", score.nll));
            let folds = result.folds.as_ref().map(|folds| {
                format!("{:.2} ± {:.2}, {} folds", folds.mean, folds.standard_error, folds.nll.len())
            });
            likelihoods.push([
                name(result),
                settings(result.settings(|score| score.nll), 2),
                settings(published.map(|published| published.nll), 2),
                triple(result.spread(|score| score.nll), 2),
                chosen.unwrap_or_else(none),
                folds.unwrap_or_else(none),
            ]);
        }
        let joint = "of as many (x, y) as training rows: best / median / worst";
        let header =
            ["root MMD ×10⁻²", settings_over_seeds, "published", trainings, "MMD² ×10⁻⁴: best", joint];
        let mut distances = ResultTable::new(header).aligned("llllrl");
        for result in &self.results {
            let published = Published::find(&result.dataset, result.method);
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
        let document = Document::new("Densities of six UCI tables");
        document.table(likelihoods).table(distances).figures(&self.results)
    }
}

impl UciScore {
    /// The scores as comma-separated text, one line each, with every digit: two runs can be told apart or found equal.
    pub fn csv(scores: &[Self]) -> String {
        let mut text = String::from(
            "trial,repeat,seed,valid_nll,test_nll,mmd_squared,mmd_root,joint_mmd_root,training_mmd_root,epochs,steps,\
             seconds\n",
        );
        let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
        for score in scores {
            let training = &score.training;
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{:.2}",
                training.trial,
                training.repeat,
                training.seed,
                number(training.valid_nll),
                score.nll,
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
    format!("{}, {}{unfinished}", result.dataset.replace('_', " "), result.method.title())
}

fn none() -> String {
    "–".to_owned()
}

fn triple(figures: Option<[f64; 3]>, digits: usize) -> String {
    figures.map_or_else(none, |figures| figures.map(|value| format!("{value:.digits$}")).join(" / "))
}

fn settings(figures: Option<[OverSeeds; 3]>, digits: usize) -> String {
    let text = |OverSeeds { mean, deviation }: OverSeeds| match deviation.is_nan() {
        true => format!("{mean:.digits$}"),
        false => format!("{mean:.digits$} ± {deviation:.digits$}"),
    };
    figures.map_or_else(none, |figures| figures.map(text).join(" / "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_published_figures() {
        for set in uci_sets() {
            for method in [Method::PcpMap, Method::CotFlow] {
                let published = Published::find(set.name, method).expect(set.name);
                for figures in [published.nll, published.mmd] {
                    assert!(figures.map(|figure| figure.mean).is_sorted(), "{}", set.name);
                    assert!(figures.iter().all(|figure| figure.deviation > 0.0), "{}", set.name);
                }
            }
        }
        assert_eq!(Published::find("boston", Method::PcpMap), None);
    }

    #[test]
    fn seeds_have_a_mean_and_where_there_are_two_a_deviation() {
        assert_eq!(over_seeds(&[1.0, 3.0]), OverSeeds { mean: 2.0, deviation: 2.0_f64.sqrt() });
        let one = [OverSeeds { mean: 1.25, deviation: f64::NAN }; 3];
        assert_eq!(settings(Some(one), 1), "1.2 / 1.2 / 1.2");
        let two = OverSeeds { mean: -1.0, deviation: 0.5 };
        assert_eq!(settings(Some([two; 3]), 1), "-1.0 ± 0.5 / -1.0 ± 0.5 / -1.0 ± 0.5");
        assert!(over_seeds(&[1.0]).deviation.is_nan());
    }
}
