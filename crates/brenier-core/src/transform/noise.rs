//! Noise that a user declares for given columns, whose values in the table are free of it.
//!
//! A simulator with known additive noise needs to be run once: its noise-free outputs are kept, and a training adds noise of its own to
//! every row of every step. Column j gets σⱼ εⱼ, ε ~ N(0, I). All steps from a given column to what the map sees are affine for columns
//! of the support `real`, t = A y + b, so that the noise there is N(0, A diag(σ²) Aᵀ) exactly: independent columns where
//! A is diagonal, a root of the covariance elsewhere ([`GivenNoise`]).

use std::fmt;
use std::str::FromStr;

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use crate::data::{Pick, Selection, short_name};
use crate::kernel::eigen::symmetric_eigen;
use crate::kernel::{Accum, Mat, columns, columns_mut, product};
use crate::parallel::each;
use crate::{Error, Result};

/// Stream of the noise that a row keeps; far from those of training steps and folds.
const KEPT: u64 = 1 << 44;
/// Rows whose noise one product mixes.
const ROWS: usize = 64;

/// A standard deviation and the given columns whose noise has it, written `y1..y9=0.25`, `rest=0.1`, or `0.25` for all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NoiseRule {
    /// The columns; [`Selection::Rest`] stands for the given columns that no other rule names.
    pub columns: Selection,
    /// Standard deviation of the noise, in the units of the columns.
    pub sd: f64,
}

impl fmt::Display for NoiseRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.columns, self.sd)
    }
}

impl FromStr for NoiseRule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |problem: &str| Error::setting("noise", format!("{text}: {problem}"));
        // A number has no equals sign, a column's name may.
        let (columns, sd) = match text.rsplit_once('=') {
            None => (Selection::Rest, text),
            Some((columns, sd)) => (columns.parse().map_err(|error: Error| refuse(&error.to_string()))?, sd),
        };
        let sd = sd.trim().parse::<f64>().ok().filter(|sd| sd.is_finite() && *sd >= 0.0);
        let sd = sd.ok_or_else(|| {
            refuse(
                "write columns and the standard deviation of their noise, as in y1..y9=0.25, or 0.25 for all",
            )
        })?;
        Ok(Self { columns, sd })
    }
}

impl TryFrom<String> for NoiseRule {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<NoiseRule> for String {
    fn from(rule: NoiseRule) -> Self {
        rule.to_string()
    }
}

/// The noise of all given columns, as a list of rules of which the last for a column counts. Settings files have a number, a rule
/// or a list of rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Vec<NoiseRule>")]
pub struct NoiseSettings {
    /// The rules.
    pub rules: Vec<NoiseRule>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(f64),
    Rule(NoiseRule),
    Rules(Vec<NoiseRule>),
}

impl From<Written> for NoiseSettings {
    fn from(written: Written) -> Self {
        let rules = match written {
            Written::Number(sd) => vec![NoiseRule { columns: Selection::Rest, sd }],
            Written::Rule(rule) => vec![rule],
            Written::Rules(rules) => rules,
        };
        Self { rules }
    }
}

impl From<NoiseSettings> for Vec<NoiseRule> {
    fn from(settings: NoiseSettings) -> Self {
        settings.rules
    }
}

impl fmt::Display for NoiseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<String> = self.rules.iter().map(ToString::to_string).collect();
        f.write_str(&rules.join(", "))
    }
}

impl NoiseSettings {
    /// Whether no noise was declared.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Checks every standard deviation.
    pub fn validate(&self) -> Result<()> {
        match self.rules.iter().find(|rule| !(rule.sd >= 0.0 && rule.sd.is_finite())) {
            None => Ok(()),
            Some(rule) => Err(Error::setting(
                "noise",
                format!("{rule}: a standard deviation is a number that is not negative"),
            )),
        }
    }

    /// The standard deviation for each of the given columns, which are those at the places `given` of `names`.
    pub fn resolve(&self, names: &[String], given: &[usize]) -> Result<Vec<f64>> {
        self.validate()?;
        let mut found: Vec<Option<f64>> = vec![None; given.len()];
        for rule in self.rules.iter().filter(|rule| rule.columns != Selection::Rest) {
            let refuse = |problem: String| Error::setting("noise", format!("{rule}: {problem}"));
            for place in rule.columns.resolve(names).map_err(|error| refuse(error.to_string()))? {
                let column = given.iter().position(|&own| own == place).ok_or_else(|| {
                    refuse(format!("\"{}\" is not a given column", short_name(&names[place])))
                })?;
                found[column] = Some(rule.sd);
            }
        }
        let rest = self.rules.iter().rev().find(|rule| rule.columns == Selection::Rest);
        let rest = rest.map_or(0.0, |rule| rule.sd);
        Ok(found.into_iter().map(|sd| sd.unwrap_or(rest)).collect())
    }

    /// The same with every column by its name: in a table with fewer columns, ranges and positions would mean others.
    pub(crate) fn named(&self, names: &[String]) -> Result<Self> {
        let mut rules = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let Selection::Columns(_) = &rule.columns else {
                rules.push(rule.clone());
                continue;
            };
            let places = rule.columns.resolve(names);
            let places =
                places.map_err(|error| Error::setting("noise", format!("{rule}: {error}")))?.into_iter();
            let picks = places.map(|place| Pick::Name(names[place].clone())).collect();
            rules.push(NoiseRule { columns: Selection::Columns(picks), sd: rule.sd });
        }
        Ok(Self { rules })
    }
}

/// The noise that a row of a table keeps: the same for everything that looks at a row once, such as scaling, validation and scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptNoise<'a> {
    /// Standard deviations of the columns.
    pub(crate) sd: &'a [f64],
    pub(crate) seed: u64,
}

impl KeptNoise<'_> {
    /// Adds the noise of row `index` of the table.
    pub(crate) fn add(&self, index: u32, values: &mut [f64]) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(KEPT + u64::from(index));
        for (value, sd) in values.iter_mut().zip(self.sd) {
            *value += sd * rng.sample::<f64, _>(StandardNormal);
        }
    }
}

/// Declared noise in the variables that a map sees.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GivenNoise {
    /// Independent noise of each variable with these standard deviations.
    Columns(Vec<f32>),
    /// R ξ, ξ ~ N(0, I), with a symmetric matrix R of this many rows, column-major.
    Mixed(usize, Vec<f32>),
}

impl GivenNoise {
    /// Noise of the covariance A diag(variances) Aᵀ for A with the rows `weights`, one for each input, that hold a column of A each.
    pub(super) fn mixed(weights: &[f64], outputs: usize, variances: &[f64]) -> Result<Self> {
        let scaled: Vec<f64> = weights
            .chunks_exact(outputs.max(1))
            .zip(variances)
            .flat_map(|(row, variance)| row.iter().map(|w| w * variance.sqrt()))
            .collect();
        let a = columns(&scaled, outputs, variances.len(), outputs);
        let mut covariance = Mat::<f64>::zeros(outputs, outputs);
        product(covariance.as_mut(), Accum::Replace, a, a.transpose());
        let largest = (0..outputs).map(|k| covariance[(k, k)]).fold(0.0, f64::max);
        let mixes = (0..outputs).any(|j| (0..j).any(|i| covariance[(i, j)].abs() > 1e-12 * largest));
        if !mixes {
            return Ok(Self::Columns((0..outputs).map(|k| covariance[(k, k)].sqrt() as f32).collect()));
        }
        let (values, vectors) = symmetric_eigen(covariance.as_ref()).ok_or_else(|| {
            Error::Numerical("the covariance of the declared noise cannot be decomposed".to_owned())
        })?;
        let half = Mat::from_fn(outputs, outputs, |i, k| vectors[(i, k)] * values[k].max(0.0).powf(0.25));
        product(covariance.as_mut(), Accum::Replace, half.as_ref(), half.transpose());
        let entries = (0..outputs * outputs).map(|at| covariance[(at % outputs, at / outputs)] as f32);
        Ok(Self::Mixed(outputs, entries.collect()))
    }

    /// Adds noise to rows of variables; `stream(chunk)` has the random numbers of 64 rows.
    pub(crate) fn add(&self, rows: &mut [f32], stream: impl Fn(usize) -> ChaCha8Rng + Sync) {
        let width = match self {
            Self::Columns(sd) => sd.len(),
            Self::Mixed(width, _) => *width,
        };
        if width == 0 {
            return;
        }
        each(rows.chunks_mut(ROWS * width), |chunk, rows| {
            let mut rng = stream(chunk);
            match self {
                Self::Columns(sd) => {
                    for row in rows.chunks_exact_mut(width) {
                        for (value, sd) in row.iter_mut().zip(sd) {
                            *value += sd * rng.sample::<f32, _>(StandardNormal);
                        }
                    }
                }
                Self::Mixed(_, root) => {
                    let count = rows.len() / width;
                    let normals: Vec<f32> = (0..rows.len()).map(|_| rng.sample(StandardNormal)).collect();
                    let root = columns(root, width, width, width);
                    let normals = columns(&normals, width, count, width);
                    product(columns_mut(rows, width, count, width), Accum::Add, root, normals);
                }
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split('|').map(str::to_owned).collect()
    }

    fn settings(rules: &[&str]) -> NoiseSettings {
        NoiseSettings { rules: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
    }

    #[test]
    fn rules_are_numbers_columns_and_the_rest() {
        let names = names("x|a|b|c");
        let given = [1, 2, 3];
        let of = |rules: &[&str]| settings(rules).resolve(&names, &given);
        assert_eq!(of(&["0.25"]).unwrap(), [0.25; 3]);
        assert_eq!(of(&["b=0.5", "rest=0.1"]).unwrap(), [0.1, 0.5, 0.1]);
        assert_eq!(of(&["0.2", "a..c=0.5", "c=1"]).unwrap(), [0.5, 0.5, 1.0]);
        assert_eq!(of(&["#3=2"]).unwrap(), [0.0, 2.0, 0.0]);
        let problem = |rules: &[&str]| of(rules).unwrap_err().to_string();
        assert!(problem(&["x=1"]).contains("\"x\" is not a given column"));
        assert!(problem(&["d=1"]).contains('d'));
        for text in ["a", "a=", "a=-1", "nan", "a=inf"] {
            assert!(text.parse::<NoiseRule>().unwrap_err().to_string().contains("standard deviation"));
        }
    }

    #[test]
    fn files_have_a_number_a_rule_or_a_list() {
        #[derive(Deserialize, Serialize)]
        struct File {
            noise: NoiseSettings,
        }
        let read = |text: &str| toml::from_str::<File>(text).unwrap().noise;
        assert_eq!(read("noise = 0.25"), settings(&["0.25"]));
        assert_eq!(read("noise = \"a=0.5\""), settings(&["a=0.5"]));
        let list = read("noise = [\"a=0.5\", \"rest=0.1\"]");
        assert_eq!(list, settings(&["a=0.5", "rest=0.1"]));
        let text = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<NoiseSettings>(&text).unwrap(), list, "{text}");
    }

    /// Covariance of many draws against A diag(σ²) Aᵀ, for two outputs of three inputs.
    #[test]
    fn mixed_noise_has_the_covariance_of_the_transformed_noise() {
        let weights = [1.0, 0.5, -0.3, 2.0, 0.0, 1.0];
        let variances = [0.5, 0.25, 2.0];
        let noise = GivenNoise::mixed(&weights, 2, &variances).unwrap();
        assert!(matches!(noise, GivenNoise::Mixed(2, _)));
        let count = 200_000;
        let mut rows = vec![0.0_f32; 2 * count];
        noise.add(&mut rows, |chunk| {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            rng.set_stream(chunk as u64);
            rng
        });
        let moment = |i: usize, j: usize| {
            rows.chunks_exact(2).map(|row| f64::from(row[i]) * f64::from(row[j])).sum::<f64>() / count as f64
        };
        let exact = |i: usize, j: usize| -> f64 {
            (0..3).map(|k| weights[2 * k + i] * weights[2 * k + j] * variances[k]).sum()
        };
        for (i, j) in [(0, 0), (0, 1), (1, 1)] {
            let error = (exact(i, i) * exact(j, j) + exact(i, j).powi(2)).sqrt() / (count as f64).sqrt();
            assert!(
                (moment(i, j) - exact(i, j)).abs() < 4.0 * error,
                "{i} {j}: {} {}",
                moment(i, j),
                exact(i, j)
            );
        }
        // An orthogonal mixture of equal variances stays independent.
        let rotation = [0.6, 0.8, -0.8, 0.6];
        let GivenNoise::Columns(sd) = GivenNoise::mixed(&rotation, 2, &[0.25, 0.25]).unwrap() else {
            panic!("independent columns");
        };
        assert!(sd.iter().all(|sd| (sd - 0.5).abs() < 1e-6));
    }

    #[test]
    fn a_row_keeps_its_noise() {
        let sd = [0.5, 0.0, 2.0];
        let noise = KeptNoise { sd: &sd, seed: 9 };
        let row = |index| {
            let mut values = [1.0; 3];
            noise.add(index, &mut values);
            values
        };
        assert_eq!(row(4), row(4));
        assert_ne!(row(4), row(5));
        assert_eq!(row(4)[1], 1.0);
    }
}
