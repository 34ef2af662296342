//! A posterior at given observations: `posterior.at(&observed)?.sample(2000)?`.

use std::borrow::Cow;
use std::fmt;

use super::{Draws, LogDensities, Mode, ModeSettings, Posterior};
use crate::data::Table;
use crate::map::SampleSettings;
use crate::statistics::DrawSummary;
use crate::{Error, Result, StopToken};

/// What can be observed: values in the order of the model's given columns, or a table that has them by name.
pub trait Observed {
    /// Rows of the model's given columns, one after another, and their number.
    fn rows(&self, posterior: &Posterior) -> Result<(Vec<f64>, usize)>;
}

impl Observed for [f64] {
    fn rows(&self, posterior: &Posterior) -> Result<(Vec<f64>, usize)> {
        let m = posterior.given_names().len();
        let rows = self.len().checked_div(m).unwrap_or(1);
        if self.len() != rows * m || rows == 0 {
            return Err(Error::Shape {
                what: "observed values",
                expected: format!("rows of the {m} given columns {}", posterior.given_names().join(", ")),
                got: format!("{} numbers", self.len()),
            });
        }
        Ok((self.to_vec(), rows))
    }
}

impl<const N: usize> Observed for [f64; N] {
    fn rows(&self, posterior: &Posterior) -> Result<(Vec<f64>, usize)> {
        self[..].rows(posterior)
    }
}

impl Observed for Vec<f64> {
    fn rows(&self, posterior: &Posterior) -> Result<(Vec<f64>, usize)> {
        self[..].rows(posterior)
    }
}

impl Observed for Table {
    fn rows(&self, posterior: &Posterior) -> Result<(Vec<f64>, usize)> {
        let place = |name: &String| {
            self.column(name).ok_or_else(|| {
                Error::Columns(format!(
                    "the observations have no column \"{name}\", which the model is given"
                ))
            })
        };
        let columns = posterior.given_names().iter().map(place).collect::<Result<Vec<usize>>>()?;
        if self.rows() == 0 {
            return Err(Error::Columns("the table of observations has no rows".to_owned()));
        }
        let values = self.iter().flat_map(|row| columns.iter().map(|&column| row[column])).collect();
        Ok((values, self.rows()))
    }
}

/// A posterior at one or more observations.
#[derive(Clone, Debug)]
pub struct At<'a> {
    pub(super) posterior: &'a Posterior,
    /// Not transformed yet; of any length, which the first use checks.
    pub(super) given: Cow<'a, [f64]>,
    pub(super) observations: usize,
    pub(super) seed: u64,
    pub(super) settings: SampleSettings,
    pub(super) stop: StopToken,
}

impl Posterior {
    /// The posterior at `observed`: values of the given columns in order, one row or several, or a table with these columns.
    pub fn at<O: Observed + ?Sized>(&self, observed: &O) -> Result<At<'_>> {
        let (given, observations) = observed.rows(self)?;
        Ok(self.at_rows(given, observations))
    }

    /// The same at `observations` rows of `given`, of which a model without given columns may have any number too.
    pub fn at_rows<'a>(&'a self, given: impl Into<Cow<'a, [f64]>>, observations: usize) -> At<'a> {
        let (settings, stop) = (SampleSettings::default(), StopToken::new());
        At { posterior: self, given: given.into(), observations, seed: 0, settings, stop }
    }
}

impl At<'_> {
    /// Seed of the draws; 0 where nothing is said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How draws are computed.
    pub fn settings(mut self, settings: SampleSettings) -> Self {
        self.settings = settings;
        self
    }

    /// What ends a long call: draws, log densities, summaries, modes, straightness and disagreement then end in
    /// [`Error::Stopped`].
    pub fn stop(mut self, stop: &StopToken) -> Self {
        self.stop = stop.clone();
        self
    }

    /// log π(x | y) of rows x at the only observation, or of one row x at each of several.
    pub fn log_density(&self, target: &[f64]) -> Result<LogDensities> {
        self.posterior.log_density_until(target, &self.given_for(target.len()), &self.stop)
    }

    /// The same with the gradient in x, in the user's units.
    pub fn log_density_gradient(&self, target: &[f64]) -> Result<(Vec<f64>, Vec<f64>)> {
        self.posterior.log_density_gradient_until(target, &self.given_for(target.len()), &self.stop)
    }

    /// The highest point of the density found at each observation.
    pub fn mode(&self) -> Result<Vec<Mode>> {
        self.modes(&ModeSettings::default())?.into_iter().collect()
    }

    fn given_for(&self, numbers: usize) -> Vec<f64> {
        let rows = numbers / self.posterior.target_names().len().max(1);
        match self.observations {
            1 => (0..rows).flat_map(|_| &*self.given).copied().collect(),
            _ => self.given.to_vec(),
        }
    }
}

impl Draws {
    /// Names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of draws.
    pub fn len(&self) -> usize {
        self.observation.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.observation.is_empty()
    }

    /// The draws, one row each.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.names.len().max(1))
    }

    /// One column; an error where there is none of that name.
    pub fn column(&self, name: &str) -> Result<Vec<f64>> {
        let place = self.names.iter().position(|own| own == name).ok_or_else(|| {
            Error::Columns(format!("there is no column \"{name}\" among {}", self.names.join(", ")))
        })?;
        Ok(self.rows().map(|row| row[place]).collect())
    }

    /// The quantile of every column over all draws, by linear interpolation.
    pub fn quantile(&self, probability: f64) -> Vec<f64> {
        let place = |j: usize| {
            let mut column: Vec<f64> = self.rows().map(|row| row[j]).collect();
            column.sort_by(f64::total_cmp);
            crate::statistics::quantile(&column, probability)
        };
        (0..self.names.len()).map(place).collect()
    }

    /// The draws as a table.
    pub fn to_table(&self) -> Result<Table> {
        Table::new(self.names.clone(), self.values.clone())
    }
}

/// Mean, standard deviation and 5–95 % of every column, observation by observation.
impl fmt::Display for Draws {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let observations = self.observation.last().map_or(0, |&last| last as usize + 1);
        let summaries = self.summaries(self.names.len(), observations).map_err(|_| fmt::Error)?;
        let width = self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(9);
        for (number, summary) in summaries.iter().enumerate() {
            if observations > 1 {
                writeln!(out, "observation {}", number + 1)?;
            }
            writeln!(
                out,
                "{:width$}  {:>11}  {:>11}  {:>11}  {:>11}",
                "parameter", "mean", "sd", "5 %", "95 %"
            )?;
            for (name, column) in self.names.iter().zip(columns(summary)) {
                let [mean, sd, low, high] = column;
                writeln!(out, "{name:width$}  {mean:>11.5}  {sd:>11.5}  {low:>11.5}  {high:>11.5}")?;
            }
        }
        Ok(())
    }
}

/// Mean, sd, 5 % and 95 % of each column of a summary.
fn columns(summary: &DrawSummary) -> impl Iterator<Item = [f64; 4]> + '_ {
    summary.columns.iter().map(|column| [column.mean, column.sd, column.quantiles[0], column.quantiles[4]])
}
