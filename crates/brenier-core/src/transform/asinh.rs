//! Given columns on an asinh scale: a column whose values span orders of magnitude reaches a network as
//!
//! ```text
//! s = asinh((u − a)/b)
//! ```
//!
//! centred and scaled like any other: linear for |u − a| below b, logarithmic beyond. Centred and scaled alone, most rows of such
//! a column would be one number to the network, and a few lie so far out that they decide the fit.
//!
//! **Which columns.** How straight a normal probability plot of the sorted values is, tells how far a column is from a scale on
//! which a network sees it well: r, the correlation of the values with normal scores, as a part of the largest that any
//! increasing function of the values reaches (less than 1 where values are repeated). A column has its place on an asinh scale
//! if r < 0.9 as it is, and 1 − r is at most half as large for s. The origin a is 0 if no value is negative, otherwise the median,
//! and then it must not be a value that many rows share: next to one, a logarithm would show differences that mean nothing. The
//! width b is the one with the largest r among some quantiles of |u − a|.
//!
//! **In place of the column, or beside it.** A continuous column is replaced. If at least half of the values are repetitions of
//! others, as of counts, the column also stays as it is: on a logarithmic scale the noise of small counts is the largest of all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::column::Column;
use super::exact;
use super::rows::Rows;
use super::support::Support;
use crate::data::{Pick, Selection};
use crate::kernel::special::normal_tail_inverse;
use crate::statistics::{mean, moments, quantile, unsorted_quantile};
use crate::{Error, Result};

/// Columns whose normal probability plot is straighter than this stay as they are.
const STRAIGHT: f64 = 0.9;
/// What of 1 − r may be left.
const LEFT: f64 = 0.5;
/// The part of repeated values from which a column also stays as it is.
const REPEATED: f64 = 0.5;
/// The part of rows that may have the median, where it is the origin.
const SHARED: f64 = 0.05;
/// Levels of the quantiles of |u − a| that are tried as widths.
const LEVELS: [f64; 9] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9];
/// Values of (u − a)/b beyond are as good as this: the standard library's asinh overflows near the largest number.
const FARTHEST: f64 = 1e300;
/// Rows that are looked at.
const ROWS: usize = 5000;
/// Values that are gathered at a time.
const GATHER: usize = 1 << 24;

/// Which given columns a map sees on an asinh scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Asinh {
    /// Those whose values span orders of magnitude, found from the training rows.
    #[default]
    Auto,
    /// None.
    None,
    /// These, in place of the columns.
    Columns(Selection),
}

impl Asinh {
    /// Whether the training rows decide.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// The same with columns by their names, given the `names` of a table.
    pub(crate) fn named(&self, names: &[String]) -> Result<Self> {
        let Self::Columns(columns) = self else { return Ok(self.clone()) };
        let refuse = |problem: String| Error::setting("asinh", problem);
        if *columns == Selection::Rest {
            return Err(refuse("name the columns, as in y1..y4; auto looks at all".to_owned()));
        }
        let places = columns.resolve(names).map_err(|error| refuse(error.to_string()))?;
        let picks = places.into_iter().map(|place| Pick::Name(names[place].clone()));
        Ok(Self::Columns(Selection::Columns(picks.collect())))
    }
}

impl fmt::Display for Asinh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Columns(columns) => columns.fmt(f),
        }
    }
}

impl FromStr for Asinh {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            columns => columns.parse().map(Self::Columns),
        }
    }
}

impl TryFrom<String> for Asinh {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Asinh> for String {
    fn from(asinh: Asinh) -> Self {
        asinh.to_string()
    }
}

/// What a model file with impossible scales gets.
pub(super) fn damaged() -> Error {
    Error::Domain("the asinh scales of the given transform are damaged".to_owned())
}

/// Why columns cannot be named.
pub(crate) fn not_alone() -> Error {
    Error::setting(
        "asinh",
        "goes neither with symmetric features, a reduction or principal components nor with noise, jitter or a surrogate: leave one of them out",
    )
}

/// A given column on an asinh scale: (asinh((u − origin)/width) − centre)/scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AsinhColumn {
    /// The column's place among the given ones.
    pub(super) column: usize,
    /// Whether the map sees the column as it is, too.
    pub(super) beside: bool,
    #[serde(with = "exact")]
    origin: f64,
    #[serde(with = "exact")]
    width: f64,
    #[serde(with = "exact")]
    centre: f64,
    #[serde(with = "exact")]
    scale: f64,
}

impl AsinhColumn {
    /// What the map sees of the value u.
    pub(super) fn forward(&self, u: f64) -> f64 {
        // Halves, whose difference cannot overflow.
        let place = (0.5 * u - 0.5 * self.origin) / (0.5 * self.width);
        (place.clamp(-FARTHEST, FARTHEST).asinh() - self.centre) / self.scale
    }

    /// What a damaged or hostile file may have got wrong.
    pub(super) fn validate(&self, columns: usize) -> Result<()> {
        let finite = [self.origin, self.width, self.centre, self.scale].iter().all(|value| value.is_finite());
        if self.column >= columns || !finite || self.width < f64::MIN_POSITIVE || self.scale <= 0.0 {
            return Err(damaged());
        }
        Ok(())
    }
}

/// The columns that are to be seen on an asinh scale, with the scales.
pub(super) fn fit(asinh: &Asinh, columns: &[Column], rows: &dyn Rows) -> Result<Vec<AsinhColumn>> {
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let wanted: Vec<usize> = match asinh {
        Asinh::None => return Ok(Vec::new()),
        Asinh::Auto => (0..columns.len()).filter(|&place| columns[place].support == Support::Real).collect(),
        Asinh::Columns(chosen) => {
            let places =
                chosen.resolve(&names).map_err(|error| Error::setting("asinh", error.to_string()))?;
            if let Some(&place) = places.iter().find(|&&place| columns[place].support != Support::Real) {
                let (name, support) = (&names[place], &columns[place].support);
                return Err(Error::setting(
                    "asinh",
                    format!("the given column {name:?} has the support {support}: leave one of the two out"),
                ));
            }
            let mut places = places;
            places.sort_unstable();
            places
        }
    };
    let every = rows.count().div_ceil(ROWS).max(1);
    let count = rows.count().div_ceil(every);
    let scores = normal_scores(count);
    let mut row = vec![0.0; columns.len()];
    let mut found = Vec::new();
    for some in wanted.chunks((GATHER / count.max(1)).max(1)) {
        let mut gathered = vec![Vec::with_capacity(count); some.len()];
        for index in (0..rows.count()).step_by(every) {
            rows.read(index, &mut row);
            for (values, &place) in gathered.iter_mut().zip(some) {
                values.push(row[place]);
            }
        }
        for (mut values, &column) in gathered.into_iter().zip(some) {
            values.sort_unstable_by(f64::total_cmp);
            found.extend(scale_of(&values, &scores, column, asinh.is_auto()));
        }
    }
    Ok(found)
}

/// Φ⁻¹((i + ½)/n) for i = 0, …, n − 1.
fn normal_scores(count: usize) -> Vec<f64> {
    let score = |i: usize| {
        let (below, above) = (i as f64 + 0.5, (count - i) as f64 - 0.5);
        let distance = normal_tail_inverse(below.min(above) / count as f64);
        if below < above { -distance } else { distance }
    };
    (0..count).map(score).collect()
}

/// The scale of a column with these sorted values; none where they vary too little, or where the rows decide and it stays as it is.
fn scale_of(sorted: &[f64], scores: &[f64], column: usize, auto: bool) -> Option<AsinhColumn> {
    let most = straightness(shared_scores(sorted, scores).into_iter(), scores)?;
    let straightness = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        straightness(values.into_iter(), scores).map(|straight| straight / most)
    };
    let plain = straightness(&mut sorted.iter().copied())?;
    if auto && plain >= STRAIGHT {
        return None;
    }
    let origin = if sorted[0] >= 0.0 { 0.0 } else { unsorted_quantile(&mut sorted.to_vec(), 0.5) };
    let mut distances: Vec<f64> = sorted.iter().map(|u| (u - origin).abs()).collect();
    distances.retain(|&distance| distance > 0.0 && distance.is_finite());
    distances.sort_unstable_by(f64::total_cmp);
    let shared = (sorted.len() - distances.len()) as f64 > SHARED * sorted.len() as f64;
    if distances.is_empty() || auto && origin != 0.0 && shared {
        return None;
    }
    let of_width = |width: f64| {
        let own = AsinhColumn { column, beside: false, origin, width, centre: 0.0, scale: 1.0 };
        straightness(&mut sorted.iter().map(|&u| own.forward(u))).map(|straight| (straight, width))
    };
    // Half of the smallest numbers is zero.
    let widths = LEVELS.iter().map(|&level| quantile(&distances, level).max(f64::MIN_POSITIVE));
    let widths = widths.filter_map(of_width);
    let (best, width) = widths.max_by(|a, b| a.0.total_cmp(&b.0))?;
    if auto && 1.0 - best > LEFT * (1.0 - plain) {
        return None;
    }
    let repeated = sorted.windows(2).filter(|pair| pair[0] == pair[1]).count();
    let beside = auto && repeated as f64 >= REPEATED * sorted.len() as f64;
    let own = AsinhColumn { column, beside, origin, width, centre: 0.0, scale: 1.0 };
    let (centre, scale) = moments(sorted.iter().map(|&u| own.forward(u)));
    (scale > 0.0 && scale.is_finite()).then_some(AsinhColumn { centre, scale, ..own })
}

/// The scores with equal values sharing their mean: of all increasing functions of the values the one that correlates most.
fn shared_scores(sorted: &[f64], scores: &[f64]) -> Vec<f64> {
    let mut shared = Vec::with_capacity(scores.len());
    for equal in sorted.chunk_by(|a, b| a == b) {
        let mean = mean(&scores[shared.len()..][..equal.len()]);
        shared.resize(shared.len() + equal.len(), mean);
    }
    shared
}

/// The correlation of sorted values with normal scores; none where they do not vary.
fn straightness(sorted: impl Iterator<Item = f64> + Clone, scores: &[f64]) -> Option<f64> {
    // Within [−1, 1], where no square overflows.
    let largest = sorted.clone().fold(0.0_f64, |most, value| most.max(value.abs()));
    if !(largest > 0.0 && largest.is_finite()) {
        return None;
    }
    let sorted = sorted.map(|value| value / largest);
    let (mean, deviation) = moments(sorted.clone());
    let (_, of_scores) = moments(scores.iter().copied());
    let product: f64 = sorted.zip(scores).map(|(value, score)| (value - mean) * score).sum();
    let straight = product / (scores.len() as f64 * deviation * of_scores);
    straight.is_finite().then_some(straight)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::rows::RowMajor;
    use super::*;
    use crate::statistics::random::stream;
    use rand::RngExt;
    use rand_distr::StandardNormal;

    fn column(name: &str, support: Support) -> Column {
        Column { name: name.to_owned(), support, link: support.link(), centre: 0.0, scale: 1.0 }
    }

    fn found(values: &[f64], asinh: &Asinh) -> Result<Vec<AsinhColumn>> {
        let rows = RowMajor::new(values, 1)?;
        fit(asinh, &[column("y", Support::Real)], &rows)
    }

    fn draws(count: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut rng = stream(3, 0);
        (0..count).map(|_| of(rng.sample(StandardNormal))).collect()
    }

    #[test]
    fn values_of_many_sizes_are_found_and_replaced() {
        let steep = draws(3000, |e| (3.0 * e).exp());
        let one = &found(&steep, &Asinh::Auto).unwrap()[0];
        assert!(!one.beside && one.origin == 0.0 && one.width < 1.0, "{one:?}");
        let seen: Vec<f64> = steep.iter().map(|&u| one.forward(u)).collect();
        let (mean, deviation) = moments(seen.iter().copied());
        assert!(mean.abs() < 1e-12 && (deviation - 1.0).abs() < 1e-12);
        let mut sorted = seen;
        sorted.sort_unstable_by(f64::total_cmp);
        let straight = straightness(sorted.into_iter(), &normal_scores(3000)).unwrap();
        assert!(straight > 0.98, "{straight}");
        // Of both signs: about the median.
        let both = draws(3000, |e| 5.0 + e.signum() * (e.abs() * 3.0).exp());
        let one = &found(&both, &Asinh::Auto).unwrap()[0];
        assert!((one.origin - 5.0).abs() < 2.0, "{one:?}");
    }

    #[test]
    fn ordinary_columns_stay_as_they_are() {
        let normal = draws(2000, |e| 7.0 + 0.1 * e);
        let uniform: Vec<f64> = (0..2000).map(|i| i as f64).collect();
        let binary: Vec<f64> = (0..2000).map(|i| f64::from(u8::from(i % 50 == 0))).collect();
        for values in [normal, uniform, binary, vec![3.0; 100], vec![0.0; 100]] {
            assert_eq!(found(&values, &Asinh::Auto).unwrap(), Vec::new());
        }
        let steep = draws(2000, |e| (3.0 * e).exp());
        assert_eq!(found(&steep, &Asinh::None).unwrap(), Vec::new());
    }

    #[test]
    fn counts_also_stay_as_they_are() {
        let counts = draws(4000, |e| (2.0 + 2.0 * e).exp().floor());
        let one = &found(&counts, &Asinh::Auto).unwrap()[0];
        assert!(one.beside, "{one:?}");
        // Three quarters of the values are one number.
        let mostly_zero = draws(4000, |e| if e < 0.7 { 0.0 } else { (3.0 * e).exp() });
        assert!(found(&mostly_zero, &Asinh::Auto).unwrap()[0].beside);
        let mostly_one: Vec<f64> = mostly_zero.iter().map(|value| 1.0 - value).collect();
        assert!(found(&mostly_one, &Asinh::Auto).unwrap().is_empty());
        let asked = Asinh::Columns("y".parse().unwrap());
        assert!(!found(&counts, &asked).unwrap()[0].beside);
    }

    #[test]
    fn columns_may_be_named_whatever_their_values() {
        let values = draws(500, |e| e);
        let asked = Asinh::Columns("y".parse().unwrap());
        assert_eq!(found(&values, &asked).unwrap().len(), 1);
        let rows = RowMajor::new(&values, 1).unwrap();
        let error = fit(&asked, &[column("y", Support::Log)], &rows).unwrap_err().to_string();
        assert!(error.contains("support"), "{error}");
        for text in ["auto", "none", "y1..y4", "a,b"] {
            assert_eq!(text.parse::<Asinh>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn extreme_values_stay_finite() {
        for factor in [5e-324, 1e-300, 1.0, 1e300] {
            let values = draws(1000, |e| factor * (3.0 * e).exp().min(1e5));
            let asked = Asinh::Columns("y".parse().unwrap());
            let one = &found(&values, &asked).unwrap()[0];
            for u in [0.0, f64::MAX, -f64::MAX, f64::MIN_POSITIVE] {
                assert!(one.forward(u).is_finite(), "{u} {one:?}");
            }
        }
    }
}
