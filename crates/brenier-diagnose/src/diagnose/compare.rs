//! Two samples side by side: every distance and test of this module at once.

use serde::{Deserialize, Serialize};

use super::sample::check_same_columns;
use super::{
    Bandwidth, C2st, C2stSettings, Mmd, MmdTest, MmdTestSettings, Sample, SlicedSettings, SlicedWasserstein,
    c2st_until, mmd_test_until, mmd_until, sliced_wasserstein_until, wasserstein,
};
use crate::{Error, Result, StopToken};

/// How [`compare`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompareSettings {
    /// Whether MMD and Wasserstein distances are taken between standardised columns: each minus the mean of both
    /// samples' means, divided by the root of the mean of both variances.
    pub standardise: bool,
    /// The kernel's h for MMD and its test, in standardised units if these are asked for.
    pub bandwidth: Bandwidth,
    /// Permutations of the MMD test.
    pub permutations: usize,
    /// Rows of each sample in the MMD test, at most.
    pub test_rows: usize,
    /// Rows of each sample in the classifier test, at most.
    pub classifier_rows: usize,
    /// Random directions of the sliced Wasserstein distance.
    pub directions: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for CompareSettings {
    fn default() -> Self {
        let (test, classifier) = (MmdTestSettings::default(), C2stSettings::default());
        Self {
            standardise: true,
            bandwidth: Bandwidth::Median,
            permutations: test.permutations,
            test_rows: test.max_rows,
            classifier_rows: classifier.max_rows,
            directions: SlicedSettings::default().directions,
            seed: 0,
        }
    }
}

/// One column of both samples, in its own units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ColumnComparison {
    /// Means of the first and the second sample.
    pub mean: [f64; 2],
    /// Standard deviations of both.
    pub deviation: [f64; 2],
    /// Difference of the means, second minus first, in units of the root of the mean of both variances; none where
    /// both samples are constant.
    pub shift: Option<f64>,
    /// W₁ between the two marginals.
    pub wasserstein: f64,
}

/// All that [`compare`] finds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Comparison {
    /// Rows of each sample.
    pub rows: [usize; 2],
    /// Kish's effective rows of each.
    pub effective_rows: [f64; 2],
    /// Column by column.
    pub columns: Vec<ColumnComparison>,
    /// How well a classifier tells them apart.
    pub c2st: C2st,
    /// Kernel distance of all rows.
    pub mmd: Mmd,
    /// Whether that distance can be chance.
    pub mmd_test: MmdTest,
    /// Mean transport distance over directions.
    pub sliced_wasserstein: SlicedWasserstein,
}

impl Comparison {
    /// The probability, if both samples come from one distribution, that one of the two tests speaks as clearly
    /// against it: twice the smaller of their p-values, at most one.
    pub fn p_value(&self) -> f64 {
        (2.0 * self.c2st.p_value.min(self.mmd_test.p_value)).min(1.0)
    }
}

/// Compares two samples of the same columns.
pub fn compare(p: &Sample<'_>, q: &Sample<'_>, settings: &CompareSettings) -> Result<Comparison> {
    compare_until(p, q, settings, &StopToken::new())
}

/// The same, which `stop` ends in [`Error::Stopped`].
pub fn compare_until(
    p: &Sample<'_>,
    q: &Sample<'_>,
    settings: &CompareSettings,
    stop: &StopToken,
) -> Result<Comparison> {
    check_same_columns(p, q)?;
    let (means, deviations) = ([p.moments().0, q.moments().0], [p.moments().1, q.moments().1]);
    let dim = p.dim();
    let common: Vec<f64> =
        (0..dim).map(|c| deviations[0][c].hypot(deviations[1][c]) / 2.0_f64.sqrt()).collect();
    if let Some(column) = (0..dim).find(|&c| !common[c].is_finite()) {
        return Err(Error::Domain(format!(
            "column {} is too wide to compare: its variance is beyond the range of numbers",
            column + 1
        )));
    }
    let mut columns = Vec::with_capacity(dim);
    for c in 0..dim {
        stop.go_on()?;
        let mean = [means[0][c], means[1][c]];
        columns.push(ColumnComparison {
            mean,
            deviation: [deviations[0][c], deviations[1][c]],
            shift: (common[c] > 0.0).then(|| (mean[1] - mean[0]) / common[c]),
            wasserstein: wasserstein(p, q, c, 1.0)?,
        });
    }
    let seed = settings.seed;
    let classifier = C2stSettings { max_rows: settings.classifier_rows, seed, ..C2stSettings::default() };
    let c2st = c2st_until(p, q, &classifier, stop)?;
    let middle: Vec<f64> = (0..dim).map(|c| 0.5 * means[0][c] + 0.5 * means[1][c]).collect();
    // A column that is constant in both samples has no scale of its own; any will do.
    let scale: Vec<f64> = common.iter().map(|&scale| if scale > 0.0 { scale } else { 1.0 }).collect();
    let rescaled = settings.standardise.then(|| [p, q].map(|sample| sample.rescaled(&middle, &scale)));
    let (p, q) = match &rescaled {
        Some([p, q]) => (p, q),
        None => (p, q),
    };
    // Median distances vanish where most rows are equal; the kernel still needs a width.
    let bandwidth = match settings.bandwidth {
        Bandwidth::Median if common.iter().all(|&scale| scale == 0.0) => Bandwidth::Fixed(1.0),
        other => other,
    };
    let test = MmdTestSettings {
        bandwidth,
        permutations: settings.permutations,
        max_rows: settings.test_rows,
        seed,
    };
    let sliced = SlicedSettings { directions: settings.directions, seed, ..SlicedSettings::default() };
    let mmd_test = mmd_test_until(p, q, &test, stop)?;
    Ok(Comparison {
        rows: [p.rows(), q.rows()],
        effective_rows: [p.effective_rows(), q.effective_rows()],
        columns,
        c2st,
        mmd: mmd_until(p, q, bandwidth, stop)?,
        mmd_test,
        sliced_wasserstein: sliced_wasserstein_until(p, q, &sliced, stop)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn constant_columns_are_compared_too() {
        let a: Vec<f64> = (0..40).flat_map(|i| [f64::from(i), 3.0]).collect();
        let all_constant = [3.0; 20];
        let p = Sample::new(&a, 2).unwrap();
        let found = compare(&p, &p, &CompareSettings::default()).unwrap();
        assert_eq!((found.columns[1].shift, found.columns[1].wasserstein), (None, 0.0));
        assert!(found.mmd.squared.abs() < 1e-12);
        let p = Sample::new(&all_constant, 1).unwrap();
        assert_eq!(compare(&p, &p, &CompareSettings::default()).unwrap().mmd_test.p_value, 1.0);
    }
}
