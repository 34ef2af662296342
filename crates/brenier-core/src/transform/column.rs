//! One column's fitted transform, and how its centre and scale are found from the training rows.

use super::exact;
use super::rows::Rows;
use super::support::{Link, Support};
use crate::data::short_name;
use crate::statistics::unsorted_quantile;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How many values the robust scaling gathers at a time: 128 MiB.
const GATHER: usize = 1 << 24;

/// The interquartile range of N(0, 1), so that a robust scale estimates the same quantity as the other.
const NORMAL_IQR: f64 = 1.349;

/// A spread of this many times the magnitude or less is rounding noise on a constant.
const CONSTANT: f64 = 32.0 * f64::EPSILON;

/// What the user asks for one column: its name and its support, written `rate=log` or `share=interval(0,1)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ColumnSettings {
    /// The column's name in the table.
    pub name: String,
    /// The values it may take.
    pub support: Support,
}

impl fmt::Display for ColumnSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.support)
    }
}

impl FromStr for ColumnSettings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A support has no equals sign, a column's name may.
        match text.rsplit_once('=') {
            Some((name, support)) if !name.trim().is_empty() => {
                Ok(Self { name: name.trim().to_owned(), support: support.parse()? })
            }
            _ => Err(Error::setting(
                "support",
                format!("{text:?} should be a column and its support, as in rate=log or share=interval(0,1)"),
            )),
        }
    }
}

impl TryFrom<String> for ColumnSettings {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ColumnSettings> for String {
    fn from(column: ColumnSettings) -> Self {
        column.to_string()
    }
}

/// How the columns are centred and scaled after their support's bijection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Scaling {
    /// Mean and (population) standard deviation of the training rows.
    #[default]
    Standard,
    /// Median and interquartile range / 1.349, for heavy tails; a column whose interquartile range is 0 takes
    /// the standard deviation for scale.
    Robust,
    /// Given columns keep their sizes relative to one another: the mean of each, and for all of them one scale, the root of
    /// their mean variance. For columns in one unit, as time series, spectra or principal components: those that vary little, with more noise in
    /// them than signal, are not blown up. Target columns as in [`Standard`](Self::Standard).
    Common,
    /// Centre 0 and scale 1.
    None,
}

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standard => "standard",
            Self::Robust => "robust",
            Self::Common => "common",
            Self::None => "none",
        })
    }
}

impl FromStr for Scaling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "standard" => Ok(Self::Standard),
            "robust" => Ok(Self::Robust),
            "common" => Ok(Self::Common),
            "none" => Ok(Self::None),
            _ => Err(Error::setting(
                "scaling",
                format!("{text:?} is not one of standard, robust, common, none"),
            )),
        }
    }
}

/// Which side of the model a column is on; they differ in what a constant column means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Target,
    Given,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Target { "target" } else { "given" })
    }
}

/// t = (u(x) − centre)/scale.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) support: Support,
    /// How an interval becomes the whole line.
    #[serde(default, skip_serializing_if = "Link::is_logit")]
    pub(super) link: Link,
    #[serde(with = "exact")]
    pub(super) centre: f64,
    #[serde(with = "exact")]
    pub(super) scale: f64,
}

impl Column {
    /// u of the raw value x, or nothing when x lies outside the support.
    fn bijection(&self, x: f64) -> Option<f64> {
        self.support.forward(x, self.link)
    }

    /// The raw value of t, strictly inside the support.
    pub(super) fn inverse(&self, t: f64) -> f64 {
        self.support.inverse(self.unscale(t), self.link)
    }

    /// log du/dx at u.
    pub(super) fn log_det(&self, u: f64) -> f64 {
        self.support.log_det(u, self.link)
    }

    /// d/du of [`log_det`](Self::log_det).
    pub(super) fn log_det_slope(&self, u: f64) -> f64 {
        self.support.log_det_slope(u, self.link)
    }

    /// The pair (u, t) for the raw value x.
    pub(super) fn forward(&self, x: f64) -> Result<(f64, f64)> {
        let Some(u) = self.bijection(x) else {
            return Err(Error::Domain(format!(
                "column {:?}: the value {x} {}",
                short_name(&self.name),
                self.support.refusal(x)
            )));
        };
        let t = (u - self.centre) / self.scale;
        if !t.is_finite() {
            return Err(Error::Domain(format!(
                "column {:?}: the value {x} is too far from the training rows to be standardised (centre {}, \
                 scale {}): correct it",
                short_name(&self.name),
                self.centre,
                self.scale
            )));
        }
        Ok((u, t))
    }

    /// u = centre + scale·t, kept within the range of finite numbers.
    pub(super) fn unscale(&self, t: f64) -> f64 {
        (self.centre + self.scale * t).clamp(-f64::MAX, f64::MAX)
    }

    /// What a damaged or hostile file may have got wrong.
    pub(super) fn validate(&self) -> Result<()> {
        self.support.validate()?;
        if !(self.centre.is_finite() && self.scale.is_finite() && self.scale > 0.0) {
            return Err(Error::Domain(format!(
                "column {:?}: centre {} and scale {} should be finite, the scale positive; the transform is \
                 damaged",
                self.name, self.centre, self.scale
            )));
        }
        Ok(())
    }
}

/// Fits the columns, and says what the user should know about them.
pub(super) fn fit(
    side: Side,
    names: &[String],
    settings: &[ColumnSettings],
    scaling: Scaling,
    rows: &dyn Rows,
) -> Result<(Vec<Column>, Vec<String>)> {
    let supports = supports(side, names, settings)?;
    let count = rows.count();
    if count < 2 {
        return Err(Error::Shape {
            what: "training rows",
            expected: "at least 2, to find each column's centre and spread".to_owned(),
            got: count.to_string(),
        });
    }
    let mut columns: Vec<Column> = names
        .iter()
        .zip(supports)
        .map(|(name, support)| Column {
            name: name.clone(),
            support,
            link: support.link(),
            centre: 0.0,
            scale: 1.0,
        })
        .collect();
    let moments = moments(&columns, rows)?;
    let quartiles = match scaling {
        Scaling::Robust => quartiles(&columns, rows, GATHER),
        Scaling::Standard | Scaling::Common | Scaling::None => Vec::new(),
    };
    let common = if side == Side::Given { common_scale(&moments) } else { None };
    let mut warnings = Vec::new();
    for (index, (column, moments)) in columns.iter_mut().zip(&moments).enumerate() {
        if moments.is_constant() {
            if side == Side::Target {
                return Err(Error::Columns(format!(
                    "target column {:?} is constant over the training rows: it has no density; drop it from \
                     `target`",
                    short_name(&column.name)
                )));
            }
            warnings.push(format!(
                "given column {:?} is constant over the training rows: it carries no information; drop it from \
                 `given`",
                short_name(&column.name)
            ));
            if scaling != Scaling::None {
                column.centre = moments.centre();
            }
            continue;
        }
        (column.centre, column.scale) = match scaling {
            Scaling::None => (0.0, 1.0),
            Scaling::Standard => (moments.mean(), moments.deviation()),
            Scaling::Common => (moments.mean(), common.unwrap_or_else(|| moments.deviation())),
            Scaling::Robust => {
                let [lower, median, upper] = quartiles[index];
                let scale = upper / NORMAL_IQR - lower / NORMAL_IQR;
                let noise = CONSTANT * lower.abs().max(upper.abs());
                (median, if scale > noise { scale } else { moments.deviation() })
            }
        };
    }
    Ok((columns, warnings))
}

/// Each column's support: the one asked for, else [`Support::Real`].
fn supports(side: Side, names: &[String], settings: &[ColumnSettings]) -> Result<Vec<Support>> {
    let mut supports = vec![None; names.len()];
    for ColumnSettings { name, support } in settings {
        support.validate()?;
        let Some(index) = names.iter().position(|known| known == name) else {
            return Err(Error::Columns(format!(
                "support {support} is declared for the column {name:?}, which is not a {side} column: correct \
                 the name or add it to --{side}"
            )));
        };
        if supports[index].replace(*support).is_some() {
            return Err(Error::Columns(format!(
                "the support of the {side} column {name:?} is declared twice: keep one"
            )));
        }
    }
    Ok(supports.into_iter().map(Option::unwrap_or_default).collect())
}

/// Mean and variance of w = (u − middle)/half ∈ [−1, 1], where no square can overflow or underflow.
#[derive(Debug, Clone, Copy)]
struct Moments {
    low: f64,
    high: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn centre(&self) -> f64 {
        // The clamp keeps a constant's own value, which rounding of the halves may lose.
        (0.5 * self.low + 0.5 * self.high).clamp(self.low, self.high)
    }

    fn half(&self) -> f64 {
        0.5 * self.high - 0.5 * self.low
    }

    fn mean(&self) -> f64 {
        self.centre() + self.half() * self.mean
    }

    fn deviation(&self) -> f64 {
        self.half() * self.variance.sqrt()
    }

    fn is_constant(&self) -> bool {
        self.half() <= CONSTANT * self.low.abs().max(self.high.abs()) || self.deviation() <= 0.0
    }
}

/// The root of the mean variance of the columns that vary, by way of the largest so that no square overflows; nothing where none varies.
fn common_scale(moments: &[Moments]) -> Option<f64> {
    let varying = || moments.iter().filter(|moments| !moments.is_constant()).map(Moments::deviation);
    let largest = varying().fold(0.0, f64::max);
    let (sum, count) =
        varying().fold((0.0, 0.0), |(sum, count), sd| (sum + (sd / largest).powi(2), count + 1.0));
    (count > 0.0).then(|| largest * (sum / count).sqrt())
}

/// Two passes over the rows: the range of each column's u, with every value checked, then Welford's recurrence.
fn moments(columns: &[Column], rows: &dyn Rows) -> Result<Vec<Moments>> {
    let mut row = vec![0.0; columns.len()];
    let start = Moments { low: f64::INFINITY, high: f64::NEG_INFINITY, mean: 0.0, variance: 0.0 };
    let mut moments = vec![start; columns.len()];
    for index in 0..rows.count() {
        rows.read(index, &mut row);
        for (place, (&x, moments)) in row.iter().zip(&mut moments).enumerate() {
            let column = &columns[place];
            let Some(u) = column.bijection(x) else {
                let at = format!("{}, column {:?}", rows.describe(index), short_name(&column.name));
                return Err(Error::Domain(match mass(columns, rows, place, x) {
                    Some(found) => format!("{at}: {found}"),
                    None => format!("{at}: the value {x} {}", column.support.refusal(x)),
                }));
            };
            moments.low = moments.low.min(u);
            moments.high = moments.high.max(u);
        }
    }
    for index in 0..rows.count() {
        rows.read(index, &mut row);
        let weight = 1.0 / (index + 1) as f64;
        for ((column, &x), moments) in columns.iter().zip(&row).zip(&mut moments) {
            let half = moments.half();
            if half > 0.0 {
                let w = (checked(column, x) - moments.centre()) / half;
                let before = w - moments.mean;
                moments.mean += before * weight;
                // The running variance, not the sum of squares: nothing grows with the number of rows.
                moments.variance += (before * (w - moments.mean) - moments.variance) * weight;
            }
        }
    }
    Ok(moments)
}

/// What is wrong with the column at `place` when many of its values equal `x`, a bound of its support: a mass there.
fn mass(columns: &[Column], rows: &dyn Rows, place: usize, x: f64) -> Option<String> {
    let support = columns[place].support;
    if !support.is_bound(x) {
        return None;
    }
    let mut row = vec![0.0; columns.len()];
    let equal = (0..rows.count()).filter(|&index| {
        rows.read(index, &mut row);
        row[place] == x
    });
    let count = equal.count();
    (count > 1).then(|| {
        // Not -0.
        let bound = x + 0.0;
        format!(
            "{count} of {} training rows have the value {bound}, a bound of the support {support}: there is no density at \
             a bound; leave such rows out and learn from the others, or declare another support",
            rows.count()
        )
    })
}

/// u of a value that an earlier pass has already accepted.
fn checked(column: &Column, x: f64) -> f64 {
    column.bijection(x).expect("the first pass accepted this value and rows do not change")
}

/// First quartile, median and third quartile of each column's u, gathering at most `budget` values (or one
/// column) at a time.
fn quartiles(columns: &[Column], rows: &dyn Rows, budget: usize) -> Vec<[f64; 3]> {
    let count = rows.count();
    let together = (budget / count).clamp(1, columns.len().max(1));
    let mut row = vec![0.0; columns.len()];
    let mut gathered = vec![Vec::with_capacity(count); together.min(columns.len())];
    let mut result = Vec::with_capacity(columns.len());
    for first in (0..columns.len()).step_by(together) {
        let some = &columns[first..columns.len().min(first + together)];
        gathered.iter_mut().for_each(Vec::clear);
        for index in 0..count {
            rows.read(index, &mut row);
            for ((column, &x), values) in some.iter().zip(&row[first..]).zip(&mut gathered) {
                values.push(checked(column, x));
            }
        }
        result.extend(
            gathered
                .iter_mut()
                .take(some.len())
                .map(|values| [0.25, 0.5, 0.75].map(|level| unsorted_quantile(values, level))),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::rows::{FnRows, RowMajor};
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn fit_one(values: &[f64], side: Side, scaling: Scaling) -> Result<(Column, Vec<String>)> {
        let rows = RowMajor::new(values, 1).expect("one column");
        fit(side, &names(&["a"]), &[], scaling, &rows)
            .map(|(mut columns, warnings)| (columns.remove(0), warnings))
    }

    #[test]
    fn standard_is_the_population_mean_and_deviation() {
        let (column, _) = fit_one(&[1.0, 2.0, 3.0, 6.0], Side::Target, Scaling::Standard).expect("fits");
        assert!((column.centre - 3.0).abs() < 1e-15);
        assert!((column.scale - 3.5_f64.sqrt()).abs() < 1e-15);
    }

    #[test]
    fn moments_survive_offsets_and_extreme_units() {
        for factor in [1e-300, 1e-160, 1.0, 1e160, 1e307] {
            let values = [1.0, 2.0, 3.0, 6.0].map(|v| v * factor);
            let (column, _) = fit_one(&values, Side::Target, Scaling::Standard).expect("fits");
            assert!((column.centre / factor - 3.0).abs() < 1e-14, "factor {factor}");
            assert!((column.scale / factor - 3.5_f64.sqrt()).abs() < 1e-14, "factor {factor}");
        }
        let values = [1.0, 2.0, 3.0, 6.0].map(|v| v + 1e12);
        let (column, _) = fit_one(&values, Side::Target, Scaling::Standard).expect("fits");
        assert!((column.scale - 3.5_f64.sqrt()).abs() < 1e-12);
        let opposite = [-f64::MAX, f64::MAX];
        let (column, _) = fit_one(&opposite, Side::Target, Scaling::Standard).expect("fits");
        assert_eq!((column.centre, column.scale), (0.0, f64::MAX));
    }

    #[test]
    fn robust_is_the_median_and_quartile_range() {
        let mut values: Vec<f64> = (0..101).map(f64::from).collect();
        values[100] = 1e9;
        let (column, _) = fit_one(&values, Side::Target, Scaling::Robust).expect("fits");
        assert_eq!(column.centre, 50.0);
        assert!((column.scale - 50.0 / 1.349).abs() < 1e-12);
        // More than half of the values equal: the quartiles say nothing about the spread.
        let (column, _) = fit_one(&[0.0, 0.0, 0.0, 0.0, 5.0], Side::Target, Scaling::Robust).expect("fits");
        assert_eq!((column.centre, column.scale), (0.0, 2.0));
    }

    #[test]
    fn common_is_one_scale_for_all_given_columns_that_vary() {
        let rows = FnRows::new(2, |index: usize, row: &mut [f64]| {
            let sign = if index == 0 { 1.0 } else { -1.0 };
            row.copy_from_slice(&[5.0 + 3.0 * sign, 4.0 * sign, 7.0]);
        });
        let found = |side: Side, count: usize| {
            let rows = FnRows::new(2, |index: usize, row: &mut [f64]| {
                let mut all = [0.0; 3];
                rows.read(index, &mut all);
                row.copy_from_slice(&all[..count]);
            });
            let fitted = fit(side, &names(&["a", "b", "c"])[..count], &[], Scaling::Common, &rows);
            fitted.expect("fits").0.iter().map(|column| (column.centre, column.scale)).collect::<Vec<_>>()
        };
        let scale = 12.5_f64.sqrt();
        let given = found(Side::Given, 3);
        for ((centre, own), (expected, expected_scale)) in
            given.iter().zip([(5.0, scale), (0.0, scale), (7.0, 1.0)])
        {
            assert!((centre - expected).abs() < 1e-14 && (own - expected_scale).abs() < 1e-14, "{given:?}");
        }
        assert_eq!(found(Side::Target, 2), [(5.0, 3.0), (0.0, 4.0)]);
    }

    #[test]
    fn robust_agrees_with_sorting_when_columns_are_gathered_in_turns() {
        let columns = 3;
        let rows = FnRows::new(57, |index: usize, row: &mut [f64]| {
            for (j, value) in row.iter_mut().enumerate() {
                *value = ((index * 31 + j * 17) % 57) as f64 * (j + 1) as f64;
            }
        });
        let (fitted, _) =
            fit(Side::Target, &names(&["a", "b", "c"]), &[], Scaling::Robust, &rows).expect("fits");
        // One, two (the last turn is not full) and all columns at a time.
        for budget in [0, 57, 2 * 57, GATHER] {
            for (j, [lower, median, upper]) in quartiles(&fitted, &rows, budget).into_iter().enumerate() {
                assert_eq!([lower, median, upper], [14.0, 28.0, 42.0].map(|q| q * (j + 1) as f64));
            }
            assert_eq!(quartiles(&fitted, &rows, budget).len(), columns);
        }
        for (j, column) in fitted.iter().enumerate().take(columns) {
            assert_eq!(column.centre, 28.0 * (j + 1) as f64);
            assert!((column.scale - 28.0 * (j + 1) as f64 / 1.349).abs() < 1e-12);
        }
    }

    #[test]
    fn constant_columns() {
        for values in [[3.7; 3], [0.0; 3], [1e9, 1e9 + 1e-7, 1e9], [0.1, 0.1, 0.3 - 0.2]] {
            for scaling in [Scaling::Standard, Scaling::Robust, Scaling::Common, Scaling::None] {
                let message = fit_one(&values, Side::Target, scaling).expect_err("constant").to_string();
                assert!(message.contains("\"a\" is constant") && message.contains("`target`"), "{message}");
                let (column, warnings) = fit_one(&values, Side::Given, scaling).expect("allowed");
                assert_eq!((column.scale, warnings.len()), (1.0, 1));
                assert!(warnings[0].contains("\"a\" is constant"));
            }
        }
        let (column, _) = fit_one(&[3.7; 3], Side::Given, Scaling::Standard).expect("allowed");
        assert_eq!(column.centre, 3.7);
    }

    #[test]
    fn few_rows_and_bad_values_are_named() {
        for values in [&[][..], &[1.0]] {
            let message = fit_one(values, Side::Target, Scaling::Standard).expect_err("few").to_string();
            assert!(message.contains("at least 2") && message.contains("training rows"), "{message}");
        }
        let message = fit_one(&[1.0, f64::NAN], Side::Given, Scaling::Standard).expect_err("nan").to_string();
        assert!(message.contains("training row 2") && message.contains("\"a\""), "{message}");
        let rows = RowMajor::new(&[0.5, 1.0], 1).expect("one column");
        let settings = ["a=interval(0,1)".parse().expect("parses")];
        let message = fit(Side::Target, &names(&["a"]), &settings, Scaling::Standard, &rows)
            .expect_err("on the bound")
            .to_string();
        assert!(
            message.contains("training row 2") && message.contains("widen the bounds slightly"),
            "{message}"
        );
        assert!(message.contains("interval(0,1)"), "{message}");
    }

    #[test]
    fn supports_must_name_columns_once() {
        let rows = RowMajor::new(&[0.5, 1.0], 1).expect("one column");
        for (settings, says) in [(&["b=log"][..], "not a target column"), (&["a=log", "a=real"], "twice")] {
            let settings: Vec<ColumnSettings> =
                settings.iter().map(|text| text.parse().expect("parses")).collect();
            let message = fit(Side::Target, &names(&["a"]), &settings, Scaling::Standard, &rows)
                .expect_err("refused")
                .to_string();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn settings_as_text() {
        let column: ColumnSettings = "k=1 rate = log-interval(1e-3,10)".parse().expect("parses");
        assert_eq!(column.name, "k=1 rate");
        assert_eq!(column.to_string(), "k=1 rate=log-interval(0.001,10)");
        assert!("log".parse::<ColumnSettings>().is_err() && "=log".parse::<ColumnSettings>().is_err());
        for scaling in [Scaling::Standard, Scaling::Robust, Scaling::None] {
            assert_eq!(scaling.to_string().parse::<Scaling>().expect("parses"), scaling);
        }
        assert!("mad".parse::<Scaling>().is_err());
    }
}
