//! Priors over parameters: drawn from, evaluated, and read from a TOML file.
//!
//! A prior is a product of blocks. Each block has *coordinates* u in which proposals are made and densities are
//! evaluated: u = ln θ for a log-uniform block, u = θ otherwise. In them a uniform or log-uniform block is flat.

use std::path::Path;

use rand::RngExt;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use super::Stream;
use crate::data::{ReadOptions, Selection, Table, read};
use crate::kernel::spd::{self, SpdScratch};
use crate::transform::Support;
use crate::{Error, Result};

/// One distribution of a prior file, as in
///
/// ```toml
/// [[prior]]
/// name = "rate"
/// kind = "log-uniform"
/// low = 0.01
/// high = 10.0
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PriorBlock {
    /// θ ~ U(low, high).
    Uniform {
        /// The parameter's name.
        name: String,
        /// The lower bound.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// ln θ ~ U(ln low, ln high).
    LogUniform {
        /// The parameter's name.
        name: String,
        /// The lower bound, positive.
        low: f64,
        /// The upper bound.
        high: f64,
    },
    /// θ ~ N(mean, sd²).
    Normal {
        /// The parameter's name.
        name: String,
        /// The mean.
        mean: f64,
        /// The standard deviation.
        sd: f64,
    },
    /// Several parameters together, θ ~ N(mean, covariance).
    MultivariateNormal {
        /// The parameters' names.
        names: Vec<String>,
        /// The mean.
        mean: Vec<f64>,
        /// The covariance, row by row.
        covariance: Vec<Vec<f64>>,
    },
    /// A row, drawn with replacement, of a table of samples; it has no density.
    Table {
        /// The table's path, relative to the folder of the prior file.
        file: std::path::PathBuf,
        /// Its columns; all of them when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        columns: Option<Selection>,
    },
}

/// The file: a list of blocks.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorFile {
    prior: Vec<PriorBlock>,
}

/// A block checked and ready to draw from.
#[derive(Clone, Debug)]
enum Part {
    Uniform { low: f64, high: f64 },
    LogUniform { low: f64, high: f64 },
    Normal { mean: f64, sd: f64 },
    Multivariate { mean: Vec<f64>, factor: Vec<f64>, log_det: f64 },
    Samples(Table),
}

/// Where a coordinate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Plain,
    Log,
}

/// The prior π(θ) of named parameters.
#[derive(Clone, Debug)]
pub struct Prior {
    names: Vec<String>,
    parts: Vec<Part>,
    scales: Vec<Scale>,
    /// What identifies it in checkpoints.
    identity: String,
}

impl Prior {
    /// A prior of `blocks`; paths of tables are taken relative to `folder`.
    pub fn new(blocks: &[PriorBlock], folder: &Path) -> Result<Self> {
        let mut prior =
            Self { names: Vec::new(), parts: Vec::new(), scales: Vec::new(), identity: String::new() };
        for block in blocks {
            prior.push(block, folder)?;
        }
        if prior.names.is_empty() {
            return Err(Error::setting("prior", "names no parameter: add a [[prior]] block"));
        }
        for (i, name) in prior.names.iter().enumerate() {
            if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return Err(Error::setting(
                    "prior",
                    format!("the parameter name \"{name}\" must not be empty or hold white space"),
                ));
            }
            if prior.names[..i].contains(name) {
                return Err(Error::setting("prior", format!("the parameter \"{name}\" is declared twice")));
            }
        }
        Ok(prior)
    }

    /// Reads a prior file; a mistake is one sentence with file and line.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::io(path, "read the prior", source))?;
        let file: PriorFile = toml::from_str(&text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text.get(..span.start).unwrap_or_default().matches('\n').count() + 1)
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            Error::model(path, format!("{line}{}", error.message().replace('\n', " ")))
        })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::new(&file.prior, folder).map_err(|error| match error {
            Error::Settings { problem, .. } => Error::model(path, problem),
            other => other,
        })
    }

    fn push(&mut self, block: &PriorBlock, folder: &Path) -> Result<()> {
        let refuse = |name: &str, problem: String| Err(Error::setting("prior", format!("{name}: {problem}")));
        let finite = |name: &str, key: &str, value: f64| {
            if value.is_finite() { Ok(()) } else { refuse(name, format!("{key} = {value} must be finite")) }
        };
        self.identity.push_str(&serde_json::to_string(block).expect("a block is plain data"));
        match block {
            PriorBlock::Uniform { name, low, high } | PriorBlock::LogUniform { name, low, high } => {
                finite(name, "low", *low)?;
                finite(name, "high", *high)?;
                if low >= high {
                    return refuse(name, format!("low = {low} must lie below high = {high}"));
                }
                let log = matches!(block, PriorBlock::LogUniform { .. });
                if log && *low <= 0.0 {
                    return refuse(name, format!("low = {low} must be positive for a log-uniform prior"));
                }
                if !(high - low).is_finite() {
                    return refuse(name, "the bounds are too far apart".into());
                }
                self.names.push(name.clone());
                if log {
                    self.parts.push(Part::LogUniform { low: low.ln(), high: high.ln() });
                    self.scales.push(Scale::Log);
                } else {
                    self.parts.push(Part::Uniform { low: *low, high: *high });
                    self.scales.push(Scale::Plain);
                }
            }
            PriorBlock::Normal { name, mean, sd } => {
                finite(name, "mean", *mean)?;
                finite(name, "sd", *sd)?;
                if *sd <= 0.0 {
                    return refuse(name, format!("sd = {sd} must be positive"));
                }
                self.names.push(name.clone());
                self.parts.push(Part::Normal { mean: *mean, sd: *sd });
                self.scales.push(Scale::Plain);
            }
            PriorBlock::MultivariateNormal { names, mean, covariance } => {
                let n = names.len();
                let all = names.join(", ");
                if n == 0 || mean.len() != n || covariance.len() != n {
                    return refuse(
                        &format!("names = [{all}]"),
                        format!(
                            "{n} names need {n} means and a {n} × {n} covariance, got {} and {} rows",
                            mean.len(),
                            covariance.len()
                        ),
                    );
                }
                let mut factor = vec![0.0; n * n];
                for (i, row) in covariance.iter().enumerate() {
                    if row.len() != n {
                        return refuse(
                            &all,
                            format!("row {} of the covariance has {} of {n} values", i + 1, row.len()),
                        );
                    }
                    for (j, &value) in row.iter().enumerate() {
                        finite(&all, "covariance", value)?;
                        if value != covariance[j].get(i).copied().unwrap_or(f64::NAN) {
                            return refuse(&all, "the covariance must be symmetric".into());
                        }
                        factor[i + j * n] = value;
                    }
                    finite(&all, "mean", mean[i])?;
                }
                let Some(log_det) = spd::cholesky(&mut factor, &mut SpdScratch::new(n)) else {
                    return refuse(&all, "the covariance must be positive definite".into());
                };
                self.names.extend_from_slice(names);
                self.scales.extend(std::iter::repeat_n(Scale::Plain, n));
                self.parts.push(Part::Multivariate { mean: mean.clone(), factor, log_det });
            }
            PriorBlock::Table { file, columns } => {
                let table = read(&folder.join(file), &ReadOptions::default(), |names| match columns {
                    Some(columns) => columns.resolve(names),
                    None => Ok((0..names.len()).collect()),
                })?
                .table;
                self.identity.push_str(&table.hash());
                self.names.extend_from_slice(table.names());
                self.scales.extend(std::iter::repeat_n(Scale::Plain, table.columns()));
                self.parts.push(Part::Samples(table));
            }
        }
        Ok(())
    }

    /// The parameters' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The coordinates' names: `log NAME` for log-uniform parameters, the parameter's name for others.
    pub fn coordinate_names(&self) -> Vec<String> {
        let name = |(name, scale): (&String, &Scale)| match scale {
            Scale::Log => format!("log {name}"),
            Scale::Plain => name.clone(),
        };
        self.names.iter().zip(&self.scales).map(name).collect()
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.names.len()
    }

    /// Text that is equal for equal priors.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// One draw.
    pub fn draw(&self, rng: &mut Stream, theta: &mut [f64]) {
        let mut rest = theta;
        for part in &self.parts {
            let (own, others) = rest.split_at_mut(part.width());
            part.draw(rng, own);
            rest = others;
        }
    }

    /// Whether the prior has a density; a table of samples has none.
    pub fn has_density(&self) -> bool {
        !self.parts.iter().any(|part| matches!(part, Part::Samples(_)))
    }

    /// The coordinates u of θ: ln θᵢ for log-uniform parameters, θᵢ for others.
    pub fn to_coordinates(&self, theta: &[f64], u: &mut [f64]) {
        for ((u, theta), scale) in u.iter_mut().zip(theta).zip(&self.scales) {
            *u = if *scale == Scale::Log { theta.ln() } else { *theta };
        }
    }

    /// θ from its coordinates.
    pub fn from_coordinates(&self, u: &[f64], theta: &mut [f64]) {
        for ((theta, u), scale) in theta.iter_mut().zip(u).zip(&self.scales) {
            *theta = if *scale == Scale::Log { u.exp() } else { *u };
        }
    }

    /// Log density *of the coordinates* at u; −∞ outside the bounds.
    ///
    /// Panics for a prior without a density ([`has_density`](Self::has_density)).
    pub fn log_density(&self, u: &[f64]) -> f64 {
        let mut rest = u;
        let mut sum = 0.0;
        for part in &self.parts {
            let (own, others) = rest.split_at(part.width());
            sum += part.log_density(own);
            rest = others;
        }
        sum
    }

    /// The support of each parameter for a map that never draws outside the prior; see
    /// [`FitSettings::support`](crate::FitSettings::support).
    pub fn supports(&self) -> Vec<Support> {
        let of = |part: &Part| match part {
            Part::Uniform { low, high } => vec![Support::Interval { low: *low, high: *high }],
            Part::LogUniform { low, high } => {
                vec![Support::LogInterval { low: low.exp(), high: high.exp() }]
            }
            other => vec![Support::Real; other.width()],
        };
        self.parts.iter().flat_map(of).collect()
    }
}

impl Part {
    fn width(&self) -> usize {
        match self {
            Part::Multivariate { mean, .. } => mean.len(),
            Part::Samples(table) => table.columns(),
            _ => 1,
        }
    }

    fn draw(&self, rng: &mut Stream, theta: &mut [f64]) {
        match self {
            Part::Uniform { low, high } => theta[0] = low + (high - low) * rng.random::<f64>(),
            Part::LogUniform { low, high } => theta[0] = (low + (high - low) * rng.random::<f64>()).exp(),
            Part::Normal { mean, sd } => theta[0] = mean + sd * rng.sample::<f64, _>(StandardNormal),
            Part::Multivariate { mean, factor, .. } => correlated(rng, mean, factor, theta),
            Part::Samples(table) => {
                let row = (rng.random::<f64>() * table.rows() as f64) as usize;
                theta.copy_from_slice(table.row(row.min(table.rows() - 1)));
            }
        }
    }

    fn log_density(&self, u: &[f64]) -> f64 {
        let half_log_tau = 0.5 * std::f64::consts::TAU.ln();
        match self {
            Part::Uniform { low, high } | Part::LogUniform { low, high } => {
                if (*low..=*high).contains(&u[0]) { -(high - low).ln() } else { f64::NEG_INFINITY }
            }
            Part::Normal { mean, sd } => -0.5 * ((u[0] - mean) / sd).powi(2) - sd.ln() - half_log_tau,
            Part::Multivariate { mean, factor, log_det } => {
                let offset: Vec<f64> = u.iter().zip(mean).map(|(u, mean)| u - mean).collect();
                -0.5 * squared_length(&offset, factor) - 0.5 * log_det - mean.len() as f64 * half_log_tau
            }
            Part::Samples(_) => panic!("a table of samples has no density"),
        }
    }
}

/// centre + L z for z ~ N(0, I); L is the lower triangle of `factor`, column-major.
pub(crate) fn correlated(rng: &mut Stream, centre: &[f64], factor: &[f64], draw: &mut [f64]) {
    let n = centre.len();
    draw.copy_from_slice(centre);
    for j in 0..n {
        let z = rng.sample::<f64, _>(StandardNormal);
        for i in j..n {
            draw[i] += factor[i + j * n] * z;
        }
    }
}

/// ‖L⁻¹ v‖² for the lower triangle L of `factor`, column-major.
pub(crate) fn squared_length(v: &[f64], factor: &[f64]) -> f64 {
    let n = v.len();
    let mut solved = v.to_vec();
    let mut sum = 0.0;
    for j in 0..n {
        let z = solved[j] / factor[j + j * n];
        sum += z * z;
        for i in j + 1..n {
            solved[i] -= factor[i + j * n] * z;
        }
    }
    sum
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::Streams;

    const ALL: &str = r#"
        [[prior]]
        name = "a"
        kind = "uniform"
        low = -1
        high = 3.0
        [[prior]]
        name = "b"
        kind = "log-uniform"
        low = 0.1
        high = 10.0
        [[prior]]
        name = "c"
        kind = "normal"
        mean = 2.0
        sd = 0.5
        [[prior]]
        names = ["d", "e"]
        kind = "multivariate-normal"
        mean = [1.0, -1.0]
        covariance = [[2.0, 0.6], [0.6, 1.0]]
        [[prior]]
        kind = "table"
        file = "samples.csv"
    "#;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("samples.csv"), "f,g\n1,10\n2,20\n3,30\n").unwrap();
        folder
    }

    fn parse(text: &str) -> Result<Prior> {
        let folder = folder();
        let path = folder.path().join("prior.toml");
        std::fs::write(&path, text).unwrap();
        Prior::read(&path)
    }

    #[test]
    fn draws_have_the_declared_moments() {
        let prior = parse(ALL).unwrap();
        assert_eq!(prior.names(), ["a", "b", "c", "d", "e", "f", "g"]);
        assert!(!prior.has_density());
        let count = 40_000;
        let mut rng = Streams::new(3, 0).get(0);
        let (mut theta, mut u) = ([0.0; 7], [0.0; 7]);
        let (mut mean, mut square, mut cross) = ([0.0; 7], [0.0; 7], 0.0);
        for _ in 0..count {
            prior.draw(&mut rng, &mut theta);
            prior.to_coordinates(&theta, &mut u);
            assert_eq!(theta[6], 10.0 * theta[5]);
            for i in 0..7 {
                mean[i] += u[i] / f64::from(count);
                square[i] += u[i] * u[i] / f64::from(count);
            }
            cross += u[3] * u[4] / f64::from(count);
        }
        let log_range = 100_f64.ln();
        let means = [1.0, 0.0, 2.0, 1.0, -1.0, 2.0, 20.0];
        let variances = [16.0 / 12.0, log_range * log_range / 12.0, 0.25, 2.0, 1.0, 2.0 / 3.0, 200.0 / 3.0];
        for i in 0..7 {
            let (sd, variance) = (f64::sqrt(variances[i]), square[i] - mean[i] * mean[i]);
            assert!((mean[i] - means[i]).abs() < 5.0 * sd / f64::from(count).sqrt(), "mean {i}: {}", mean[i]);
            assert!((variance / variances[i] - 1.0).abs() < 0.05, "variance {i}: {variance}");
        }
        assert!((cross - mean[3] * mean[4] - 0.6).abs() < 0.05);
    }

    #[test]
    fn densities_integrate_to_one_and_vanish_outside() {
        let prior = parse(&ALL.replace("samples.csv", "")[..ALL.rfind("[[prior]]").unwrap()]).unwrap();
        assert!(prior.has_density());
        // By importance sampling in a box that holds nearly everything.
        let mut rng = Streams::new(5, 0).get(0);
        let bounds = [(-1.5, 3.5), (-2.5, 2.5), (0.0, 4.0), (-6.0, 8.0), (-6.0, 4.0)];
        let volume: f64 = bounds.iter().map(|(low, high)| high - low).product();
        let count = 400_000;
        let sum: f64 = (0..count)
            .map(|_| {
                let u = bounds.map(|(low, high)| low + (high - low) * rng.random::<f64>());
                prior.log_density(&u).exp()
            })
            .sum();
        assert!((sum * volume / f64::from(count) - 1.0).abs() < 0.05, "{}", sum * volume / f64::from(count));
        let theta = [0.5, 2.0, 2.0, 1.0, -1.0];
        let mut u = [0.0; 5];
        prior.to_coordinates(&theta, &mut u);
        assert!(prior.log_density(&u).is_finite());
        let mut back = [0.0; 5];
        prior.from_coordinates(&u, &mut back);
        assert!(theta.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12));
        for (i, out) in [(0, 3.1), (0, -1.1), (1, 2.31), (1, -2.31)] {
            let mut outside = u;
            outside[i] = out;
            assert_eq!(prior.log_density(&outside), f64::NEG_INFINITY);
        }
    }

    #[test]
    fn mistakes_name_the_parameter() {
        for (text, says) in [
            ("", "missing field `prior`"),
            ("prior = []", "names no parameter"),
            ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=1\nhigh=0", "a: low = 1 must lie below high = 0"),
            ("[[prior]]\nname=\"a\"\nkind=\"log-uniform\"\nlow=0\nhigh=1", "must be positive"),
            ("[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=0", "sd = 0 must be positive"),
            ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=0\nhigh=inf", "finite"),
            ("[[prior]]\nname=\"a b\"\nkind=\"uniform\"\nlow=0\nhigh=1", "white space"),
            ("[[prior]]\nname=\"a\"\nkind=\"gamma\"", "line 3: unknown variant"),
            ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=0\nhigh=1\nlower=3", "lower"),
            (
                "[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=1\n[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=1",
                "declared twice",
            ),
            (
                "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0,0]\ncovariance=[[1,2],[2,1]]",
                "positive definite",
            ),
            (
                "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0,0]\ncovariance=[[1,0.5],[0.4,1]]",
                "symmetric",
            ),
            (
                "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0]\ncovariance=[[1,0],[0,1]]",
                "2 names need 2 means",
            ),
            ("[[prior]]\nkind=\"table\"\nfile=\"none.csv\"", "none.csv"),
            ("[[prior]]\nkind=\"table\"\nfile=\"samples.csv\"\ncolumns=\"z\"", "z"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}\n{message}");
        }
    }
}
