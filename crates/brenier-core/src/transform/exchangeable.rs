//! Given columns that hold points in no particular order: symmetric features in their place, so that every map is invariant.
//!
//! Of k points u₁ … u_k ∈ ℝᵈ, each value after its column's bijection, the map sees
//!
//! | feature | formula |
//! |---|---|
//! | means | m_j = (1/k) Σ_p u_pj |
//! | log deviations | ln s_j, s_j² = (1/k) Σ_p (u_pj − m_j)² + f_j² |
//! | correlations | artanh((1 − 10⁻⁶) r_jl), r_jl = (1/k) Σ_p w_pj w_pl, w = (u − m)/s, for j < l |
//! | standardised power sums | (1/k) Σ_p w_{p j₁} ⋯ w_{p j_e}, j₁ ≤ … ≤ j_e, for every degree e from 3 to the chosen one |
//!
//! each standardised like a column of its own. f_j is 10⁻⁶ times the deviation of coordinate j over all training points. Power
//! sums up to the degree k determine the points up to their order, so nothing else need be lost. Sums run over sorted terms:
//! the order of the points changes no bit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::column::Column;
use super::exact;
use super::rows::Rows;
use crate::data::{Pick, Selection};
use crate::{Error, Result};

/// f_j as a part of the deviation of coordinate j.
const FLOOR: f64 = 1e-6;
/// Keeps artanh finite where points lie on a line.
const NEARLY_ONE: f64 = 1.0 - 1e-6;
/// The largest degree that is chosen where none is asked for.
const DEGREE: usize = 4;
/// More points, or a higher degree, are refused.
const MOST_POINTS: usize = 1 << 20;
const MOST_DEGREE: usize = 8;
/// More features than that are refused.
const MOST_FEATURES: usize = 100_000;

/// Given columns that hold `points` points in no particular order, point by point, written `y1..y8:4` (four points of two
/// numbers), or `y1..y8:4:2` with the largest degree of the power sums.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExchangeableRule {
    /// The columns, point by point.
    pub columns: Selection,
    /// How many points they hold.
    pub points: usize,
    /// Largest degree of the power sums; `None` takes up to 4, and fewer where these would be more than twice the columns.
    pub degree: Option<usize>,
}

impl ExchangeableRule {
    fn refuse(&self, problem: impl fmt::Display) -> Error {
        Error::setting("exchangeable", format!("{self}: {problem}"))
    }

    /// The places of the columns among `names`, after a check that they make whole points.
    pub(crate) fn resolve(&self, names: &[String]) -> Result<Vec<usize>> {
        if self.columns == Selection::Rest {
            return Err(self.refuse("name the columns, as in y1..y8:4"));
        }
        let places = self.columns.resolve(names).map_err(|error| self.refuse(error))?;
        if !(1..=MOST_POINTS).contains(&self.points) || !places.len().is_multiple_of(self.points) {
            let (columns, points) = (places.len(), self.points);
            return Err(self.refuse(format!("{columns} columns cannot hold {points} points of equal length")));
        }
        // Power sums beyond the number of points follow from the others; those of one coordinate may even be constant.
        let most = self.points.clamp(2, MOST_DEGREE);
        if self.degree.is_some_and(|degree| !(2..=most).contains(&degree)) {
            return Err(self.refuse(match most {
                2 => "the degree of the power sums of at most two points is 2".to_owned(),
                _ => format!(
                    "the degree of the power sums of {} points must be between 2 and {most}",
                    self.points
                ),
            }));
        }
        Ok(places)
    }

    /// Whether power sums of a degree above 2 are seen without being asked for.
    pub(crate) fn has_higher_degrees(&self) -> bool {
        self.degree.is_none() && self.points > 2
    }

    /// The same with every column by its name.
    pub(crate) fn named(&self, names: &[String]) -> Result<Self> {
        let columns =
            self.resolve(names)?.into_iter().map(|place| Pick::Name(names[place].clone())).collect();
        Ok(Self { columns: Selection::Columns(columns), ..self.clone() })
    }
}

impl fmt::Display for ExchangeableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.columns, self.points)?;
        self.degree.map_or(Ok(()), |degree| write!(f, ":{degree}"))
    }
}

impl FromStr for ExchangeableRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |problem: String| Error::setting("exchangeable", format!("{text}: {problem}"));
        let numbered = |text: &str| -> Option<(String, usize)> {
            let (rest, number) = text.rsplit_once(':')?;
            Some((rest.to_owned(), number.trim().parse().ok()?))
        };
        let (columns, points, degree) = match numbered(text) {
            None => {
                let problem = "write the columns and the number of points in them, as in y1..y8:4";
                return Err(refuse(problem.to_owned()));
            }
            Some((rest, last)) => match numbered(&rest) {
                None => (rest, last, None),
                Some((columns, points)) => (columns, points, Some(last)),
            },
        };
        let columns = columns.parse().map_err(|error: Error| refuse(error.to_string()))?;
        Ok(Self { columns, points, degree })
    }
}

impl TryFrom<String> for ExchangeableRule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<ExchangeableRule> for String {
    fn from(rule: ExchangeableRule) -> Self {
        rule.to_string()
    }
}

/// A fitted group of columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchangeable {
    /// Places among the given columns, point by point.
    pub(super) columns: Vec<usize>,
    points: usize,
    degree: usize,
    /// f_j.
    #[serde(with = "exact::list")]
    floors: Vec<f64>,
}

impl Exchangeable {
    /// Finds the f_j from the training rows; `columns` are all given columns.
    pub(super) fn fit(
        rule: &ExchangeableRule,
        names: &[String],
        columns: &[Column],
        rows: &dyn Rows,
    ) -> Result<Self> {
        let places = rule.resolve(names)?;
        let dim = places.len() / rule.points;
        for (own, &place) in places.iter().enumerate() {
            let first = places[own % dim];
            if columns[place].support != columns[first].support {
                let (a, b) = (&names[first], &names[place]);
                return Err(rule.refuse(format!(
                    "{a} and {b} are the same coordinate of two points but have different supports"
                )));
            }
        }
        let degree = rule.degree.unwrap_or_else(|| {
            let fits = |degree: &usize| count(dim, rule.points, *degree) <= 2 * places.len();
            (2..=DEGREE.min(rule.points)).rev().find(fits).unwrap_or(2)
        });
        if count(dim, rule.points, degree) > MOST_FEATURES {
            return Err(
                rule.refuse(format!("power sums up to the degree {degree} are too many: ask for fewer"))
            );
        }
        let mut group = Self { columns: places, points: rule.points, degree, floors: vec![0.0; dim] };
        let mut row = vec![0.0; names.len()];
        let mut sums = vec![(0.0, 0.0, 0.0); dim];
        for index in 0..rows.count() {
            rows.read(index, &mut row);
            for (own, &place) in group.columns.iter().enumerate() {
                let (u, _) = columns[place].forward(row[place])?;
                // Welford's recurrence.
                let (count, mean, square) = &mut sums[own % dim];
                *count += 1.0;
                let rest = u - *mean;
                *mean += rest / *count;
                *square += rest * (u - *mean);
            }
        }
        for (floor, (count, _, square)) in group.floors.iter_mut().zip(sums) {
            let deviation = f64::sqrt(square / count);
            *floor = FLOOR * if deviation > 0.0 { deviation } else { 1.0 };
        }
        Ok(group)
    }

    fn dim(&self) -> usize {
        self.floors.len()
    }

    /// How many features there are.
    pub(super) fn len(&self) -> usize {
        count(self.dim(), self.points, self.degree)
    }

    /// The features' names, for messages.
    pub(super) fn names(&self, names: &[String]) -> Vec<String> {
        let first = names.get(self.columns[0]).map_or("", String::as_str);
        (1..=self.len()).map(|number| format!("symmetric feature {number} of {first}…")).collect()
    }

    /// Adds the features of raw given values to `out`.
    pub(super) fn push(&self, columns: &[Column], raw: &[f64], out: &mut Vec<f64>) -> Result<()> {
        let (k, d) = (self.points, self.dim());
        let mut w = Vec::with_capacity(k * d);
        for &place in &self.columns {
            w.push(columns[place].forward(raw[place])?.0);
        }
        let means: Vec<f64> = (0..d).map(|j| mean((0..k).map(|p| w[p * d + j]))).collect();
        out.extend_from_slice(&means);
        if k == 1 {
            return Ok(());
        }
        for j in 0..d {
            (0..k).for_each(|p| w[p * d + j] -= means[j]);
            let variance = mean((0..k).map(|p| w[p * d + j] * w[p * d + j]));
            let deviation = (variance + self.floors[j] * self.floors[j]).sqrt();
            (0..k).for_each(|p| w[p * d + j] /= deviation);
            out.push(deviation.ln());
        }
        for degree in 2..=self.degree {
            for_each_product(d, degree, |factors| {
                if degree == 2 && factors[0] == factors[1] {
                    return;
                }
                let sum = mean((0..k).map(|p| factors.iter().map(|&j| w[p * d + j]).product()));
                out.push(if degree == 2 { (NEARLY_ONE * sum).atanh() } else { sum });
            });
        }
        Ok(())
    }

    /// Checks a group read from a file for a transform of `columns` columns.
    pub(super) fn validate(&self, columns: usize) -> Result<()> {
        let sound = self.points >= 1
            && !self.columns.is_empty()
            && self.columns.len() == self.points.saturating_mul(self.dim())
            && (2..=MOST_DEGREE).contains(&self.degree)
            && self.columns.iter().all(|&place| place < columns)
            && self.floors.iter().all(|floor| floor.is_finite() && *floor > 0.0)
            && self.len() <= MOST_FEATURES;
        match sound {
            true => Ok(()),
            false => {
                Err(Error::Domain("the exchangeable columns of the given transform are damaged".to_owned()))
            }
        }
    }
}

/// Features of k points in d dimensions with power sums up to `degree`.
fn count(d: usize, k: usize, degree: usize) -> usize {
    if k == 1 {
        return d;
    }
    let mut products: u128 = 1;
    let mut total = d as u128;
    for e in 1..=degree as u128 {
        products = products.saturating_mul(d as u128 + e - 1) / e;
        if e >= 2 {
            total = total.saturating_add(products);
        }
    }
    usize::try_from(total).unwrap_or(usize::MAX)
}

/// Calls `with` for every j₁ ≤ … ≤ j_e below d, in lexicographic order.
fn for_each_product(d: usize, degree: usize, mut with: impl FnMut(&[usize])) {
    let mut factors = vec![0; degree];
    loop {
        with(&factors);
        let Some(place) = (0..degree).rev().find(|&place| factors[place] + 1 < d) else { return };
        let next = factors[place] + 1;
        factors[place..].fill(next);
    }
}

/// The mean, summed from the least value to the largest.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    crate::statistics::mean(&values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::given::{GivenSettings, GivenTransform};
    use super::super::rows::RowMajor;
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    fn fitted(rule: &str, columns: usize, seed: u64) -> (GivenTransform, Vec<f64>) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let values: Vec<f64> = (0..400 * columns).map(|_| rng.sample(StandardNormal)).collect();
        let names: Vec<String> = (1..=columns).map(|j| format!("y{j}")).collect();
        let settings =
            GivenSettings { exchangeable: vec![rule.parse().unwrap()], ..GivenSettings::default() };
        let rows = RowMajor::new(&values, columns).unwrap();
        let (transform, warnings) = GivenTransform::fit(&names, &settings, &rows).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        (transform, values)
    }

    fn seen(transform: &GivenTransform, raw: &[f64]) -> Vec<f64> {
        let mut out = vec![f64::NAN; transform.output_dim()];
        transform.forward(raw, &mut out).unwrap();
        out
    }

    #[test]
    fn the_order_of_the_points_changes_no_bit_and_nothing_else_is_lost() {
        let (transform, values) = fitted("y2..y9:4", 10, 1);
        // Two other columns, two means, two deviations, a correlation, 4 + 5 products of degrees 3 and 4.
        assert_eq!(transform.output_dim(), 2 + 5 + 9);
        let names = transform.output_names();
        assert_eq!((names.len(), &*names[0], &*names[1]), (16, "y1", "y10"));
        assert_eq!(names[2], "symmetric feature 1 of y2…");
        let row = &values[..10];
        let mut turned = row.to_vec();
        turned[1..9].rotate_left(2);
        turned.swap(1, 5);
        turned.swap(2, 6);
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&seen(&transform, row)), bits(&seen(&transform, &turned)));
        // Coordinates of two points exchanged are other points.
        let mut mixed = row.to_vec();
        mixed.swap(1, 3);
        assert!(
            seen(&transform, row)[6..]
                .iter()
                .zip(&seen(&transform, &mixed)[6..])
                .any(|(a, b)| (a - b).abs() > 1e-3)
        );
        // A column that is not one of them passes as ever.
        let mut other = row.to_vec();
        other[9] += 1.0;
        assert!(seen(&transform, row)[1] != seen(&transform, &other)[1]);
    }

    #[test]
    fn known_features_of_a_few_points() {
        // (0, 1), (2, 3), (4, 2): means 2 and 2, variances 8/3 and 2/3, covariance 2/3.
        let group = Exchangeable { columns: (0..6).collect(), points: 3, degree: 3, floors: vec![1e-9; 2] };
        let column = |j: usize| Column {
            name: format!("y{j}"),
            support: Default::default(),
            link: Default::default(),
            centre: 5.0,
            scale: 3.0,
        };
        let columns: Vec<Column> = (0..6).map(column).collect();
        let mut out = Vec::new();
        group.push(&columns, &[0.0, 1.0, 2.0, 3.0, 4.0, 2.0], &mut out).unwrap();
        assert_eq!(out.len(), group.len());
        let r = (2.0 / 3.0) / ((8.0_f64 / 3.0) * (2.0 / 3.0)).sqrt();
        let expected =
            [2.0, 2.0, 0.5 * (8.0_f64 / 3.0).ln(), 0.5 * (2.0_f64 / 3.0).ln(), (NEARLY_ONE * r).atanh(), 0.0];
        for (got, expected) in out.iter().zip(expected) {
            assert!((got - expected).abs() < 1e-9, "{out:?}");
        }
        // Σ w₁²w₂/3: the second coordinate is −1, 1, 0 times √(3/2), the first ∓√(3/2)·…
        assert!((out[6] - (1.5 * -(1.5_f64.sqrt())) / 3.0).abs() < 1e-9, "{out:?}");
    }

    #[test]
    fn one_point_two_points_and_equal_points_are_fine() {
        assert_eq!(fitted("y1..y3:1", 3, 2).0.output_dim(), 3);
        let (pair, values) = fitted("y1..y4:2", 4, 3);
        assert_eq!(pair.output_dim(), 5);
        let row = &values[..4];
        assert_eq!(seen(&pair, row), seen(&pair, &[row[2], row[3], row[0], row[1]]));
        let equal = seen(&pair, &[1.0, 2.0, 1.0, 2.0]);
        assert!(equal.iter().all(|value| value.is_finite()), "{equal:?}");
    }

    #[test]
    fn mistakes_are_named() {
        let names: Vec<String> = (1..=8).map(|j| format!("y{j}")).collect();
        let problem = |text: &str| match text.parse::<ExchangeableRule>() {
            Err(error) => error.to_string(),
            Ok(rule) => rule.resolve(&names).unwrap_err().to_string(),
        };
        assert!(problem("y1..y8").contains("y1..y8:4"));
        assert!(problem("y1..y8:3").contains("8 columns cannot hold 3 points"));
        assert!(problem("y1..y9:3").contains("y9"));
        assert!(problem("rest:2").contains("name the columns"));
        assert!(problem("y1..y8:4:1").contains("between 2 and 4"));
        assert!(problem("y1..y8:4:5").contains("between 2 and 4"));
        assert!(problem("y1..y8:2:3").contains("is 2"));
        let rule: ExchangeableRule = "y1..y8:4".parse().unwrap();
        assert_eq!(rule.named(&names).unwrap().to_string(), "y1,y2,y3,y4,y5,y6,y7,y8:4");
        assert_eq!(serde_json::to_string(&rule).unwrap(), "\"y1..y8:4\"");
    }
}
