//! Priors over parameters: drawn from, evaluated, and read from a TOML file.
//!
//! A prior is a product of blocks. Each block has *coordinates* u in which proposals are made and densities are
//! evaluated: u = ln θ where the density of ln θ is the better behaved (log-uniform, log-normal, gamma), a real number
//! that is rounded for integers, all but the last component on a simplex, independent standard normals for a Gaussian on a few directions, and
//! u = θ otherwise.

mod law;
mod part;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Stream;
use crate::data::{ReadOptions, Selection, read};
use crate::kernel::spd::{self, SpdScratch};
use crate::transform::Support;
use crate::{Error, Result};
use law::Law;
pub(crate) use part::correlated;
use part::{Modes, Part};

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
#[non_exhaustive]
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
    /// ln θ ~ N(log_mean, log_sd²).
    LogNormal {
        /// The parameter's name.
        name: String,
        /// The mean of ln θ.
        log_mean: f64,
        /// The standard deviation of ln θ.
        log_sd: f64,
    },
    /// |θ| of θ ~ N(0, sd²).
    HalfNormal {
        /// The parameter's name.
        name: String,
        /// The standard deviation of the whole normal distribution.
        sd: f64,
    },
    /// N(mean, sd²) cut off below `low` and above `high`.
    TruncatedNormal {
        /// The parameter's name.
        name: String,
        /// The mean before the cut.
        mean: f64,
        /// The standard deviation before the cut.
        sd: f64,
        /// The lower bound, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<f64>,
        /// The upper bound, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<f64>,
    },
    /// location + scale · t with df degrees of freedom.
    StudentT {
        /// The parameter's name.
        name: String,
        /// The degrees of freedom.
        df: f64,
        /// The centre.
        #[serde(default)]
        location: f64,
        /// The scale.
        #[serde(default = "one")]
        scale: f64,
    },
    /// Density ∝ exp(−rate · θ) on θ > 0.
    Exponential {
        /// The parameter's name.
        name: String,
        /// The rate, 1/mean.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<f64>,
        /// The mean, in place of the rate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mean: Option<f64>,
    },
    /// Density ∝ θ^(shape − 1) exp(−θ/scale) on θ > 0.
    Gamma {
        /// The parameter's name.
        name: String,
        /// The shape.
        shape: f64,
        /// The scale.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scale: Option<f64>,
        /// The rate, in place of the scale.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rate: Option<f64>,
    },
    /// Density ∝ θ^(alpha − 1) (1 − θ)^(beta − 1) on 0 < θ < 1.
    Beta {
        /// The parameter's name.
        name: String,
        /// The first shape.
        alpha: f64,
        /// The second shape.
        beta: f64,
    },
    /// An integer, each from `low` to `high` as likely as any other.
    IntegerUniform {
        /// The parameter's name.
        name: String,
        /// The smallest.
        low: i64,
        /// The largest.
        high: i64,
    },
    /// Several parameters that are positive and sum to one, with density ∝ Π θᵢ^(concentrationᵢ − 1).
    Dirichlet {
        /// The parameters' names.
        names: Vec<String>,
        /// The concentrations.
        concentration: Vec<f64>,
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

fn one() -> f64 {
    1.0
}

/// The file: a list of blocks.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorFile {
    prior: Vec<PriorBlock>,
}

/// The prior π(θ) of named parameters.
#[derive(Clone, Debug)]
pub struct Prior {
    names: Vec<String>,
    parts: Vec<Part>,
    /// What identifies it in checkpoints.
    identity: String,
}

impl Prior {
    /// A prior of `blocks`; paths of tables are taken relative to `folder`.
    pub fn new(blocks: &[PriorBlock], folder: &Path) -> Result<Self> {
        let mut prior = Self { names: Vec::new(), parts: Vec::new(), identity: String::new() };
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

    /// The Gaussian θ = mean + Σₖ deviationₖ uₖ vₖ, u ~ N(0, I), on the orthonormal `directions` vₖ, one after the other;
    /// its coordinates are u. For covariances that are singular, at least in floating-point arithmetic.
    pub(crate) fn on_modes(
        names: Vec<String>,
        mean: Vec<f64>,
        deviations: Vec<f64>,
        directions: Vec<f64>,
        identity: String,
    ) -> Self {
        assert!(mean.len() == names.len() && directions.len() == mean.len() * deviations.len());
        Self { names, parts: vec![Part::Modes(Modes { mean, deviations, directions })], identity }
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
        let finite = |name: &str, key: &str, value: f64| match value.is_finite() {
            true => Ok(()),
            false => refuse(name, format!("{key} = {value} must be finite")),
        };
        self.identity.push_str(&serde_json::to_string(block).expect("a block is plain data"));
        if let Some((name, law)) = Law::of(block) {
            match law {
                Ok(law) => self.parts.push(Part::Law(law)),
                Err(problem) => return refuse(name, problem),
            }
            self.names.push(name.clone());
            return Ok(());
        }
        match block {
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
                self.parts.push(Part::Multivariate { mean: mean.clone(), factor, log_det });
            }
            PriorBlock::Dirichlet { names, concentration } => {
                let all = names.join(", ");
                if names.len() < 2 || concentration.len() != names.len() {
                    return refuse(
                        &format!("names = [{all}]"),
                        format!(
                            "a Dirichlet prior needs two names or more and a concentration for each, got {} and {}",
                            names.len(),
                            concentration.len()
                        ),
                    );
                }
                for &value in concentration {
                    finite(&all, "concentration", value)?;
                    if value <= 0.0 {
                        return refuse(&all, format!("concentration = {value} must be positive"));
                    }
                }
                self.names.extend_from_slice(names);
                self.parts.push(Part::simplex(concentration));
            }
            PriorBlock::Table { file, columns } => {
                let path = folder.join(file);
                let table = read(&path, &ReadOptions::default(), |names| match columns {
                    Some(columns) => {
                        columns.resolve(names).map_err(|error| Error::table(&path, error.to_string()))
                    }
                    None => Ok((0..names.len()).collect()),
                })?
                .table;
                self.identity.push_str(&table.hash());
                self.names.extend_from_slice(table.names());
                self.parts.push(Part::Samples(table));
            }
            other => unreachable!("{other:?} is a law of one parameter"),
        }
        Ok(())
    }

    /// The parameters' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The coordinates' names: `log NAME` where the coordinate is ln θ, the parameter's name for others.
    pub fn coordinate_names(&self) -> Vec<String> {
        let mut names = self.names.as_slice();
        let mut found = Vec::with_capacity(names.len());
        for part in &self.parts {
            let (own, others) = names.split_at(part.width());
            if let Part::Modes(modes) = part {
                found.extend((1..=modes.deviations.len()).map(|k| format!("mode {k} of {}", own[0])));
                names = others;
                continue;
            }
            let log = matches!(part, Part::Law(law) if law.is_log());
            let name = |name: &String| if log { format!("log {name}") } else { name.clone() };
            found.extend(own[..part.coordinates()].iter().map(name));
            names = others;
        }
        found
    }

    /// How many coordinates there are: one fewer than parameters for each simplex.
    pub fn coordinates(&self) -> usize {
        self.parts.iter().map(Part::coordinates).sum()
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

    /// The coordinates u of θ.
    pub fn to_coordinates(&self, theta: &[f64], u: &mut [f64]) {
        let (mut theta, mut u) = (theta, u);
        for part in &self.parts {
            let (own, others) = theta.split_at(part.width());
            let (target, rest) = std::mem::take(&mut u).split_at_mut(part.coordinates());
            part.to_coordinates(own, target);
            (theta, u) = (others, rest);
        }
    }

    /// θ from its coordinates.
    pub fn at_coordinates(&self, u: &[f64], theta: &mut [f64]) {
        let (mut u, mut theta) = (u, theta);
        for part in &self.parts {
            let (own, others) = u.split_at(part.coordinates());
            let (target, rest) = std::mem::take(&mut theta).split_at_mut(part.width());
            part.at_coordinates(own, target);
            (u, theta) = (others, rest);
        }
    }

    /// Log density *of the coordinates* at u; −∞ outside the bounds.
    ///
    /// Panics for a prior without a density ([`has_density`](Self::has_density)).
    pub fn log_density(&self, u: &[f64]) -> f64 {
        let mut rest = u;
        let mut sum = 0.0;
        for part in &self.parts {
            let (own, others) = rest.split_at(part.coordinates());
            sum += part.log_density(own);
            rest = others;
        }
        sum
    }

    /// The support of each parameter for a map that never draws outside the prior; see
    /// `FitSettings::support`.
    pub fn supports(&self) -> Vec<Support> {
        let of = |part: &Part| match part {
            Part::Law(law) => vec![law.support()],
            Part::Simplex { .. } => vec![Support::Interval { low: 0.0, high: 1.0 }; part.width()],
            other => vec![Support::Real; other.width()],
        };
        self.parts.iter().flat_map(of).collect()
    }
}
