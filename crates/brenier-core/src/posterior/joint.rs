//! Joint models: the block-triangular map T⁻¹(x, y) = (h⁻¹(y), g⁻¹(x; y)).
//!
//! The map h of the given columns is learned on its own, so that log π(x, y) = log π(y) + log π(x | y), and a joint
//! draw is y = h(z₁), x = g(z₂; y).

use super::{LogDensities, Posterior, check_length};
use crate::map::SampleSettings;
use crate::{Error, Result, StopToken};

/// Draws of (x, y), one row each.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JointDraws {
    /// x in the user's units, n numbers per row.
    pub target: Vec<f64>,
    /// y in the user's units, m numbers per row.
    pub given: Vec<f64>,
    /// The larger of both blocks' residuals, for each row.
    pub residuals: Vec<f64>,
    /// Both blocks' evaluations or steps, for each row.
    pub iterations: Vec<u32>,
    /// Residuals of the draws that could not be computed and are left out: see
    /// [`Draws::unsolved`](super::Draws::unsolved).
    pub unsolved: Vec<f64>,
}

/// The parts of log π(x, y).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct JointLogDensities {
    /// log π(x | y).
    pub conditional: LogDensities,
    /// log π(y).
    pub marginal: LogDensities,
}

impl JointLogDensities {
    /// log π(x, y).
    pub fn joint(&self) -> LogDensities {
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
        LogDensities {
            user: sum(&self.conditional.user, &self.marginal.user),
            standardised: sum(&self.conditional.standardised, &self.marginal.standardised),
        }
    }
}

impl Posterior {
    /// The map of the given columns alone, where the model is a joint one.
    pub fn marginal(&self) -> Option<&Posterior> {
        self.marginal.as_deref()
    }

    /// Makes the model a joint one.
    pub(crate) fn set_marginal(&mut self, marginal: Posterior) {
        self.header.marginal = Some(Box::new(marginal.header.clone()));
        self.marginal = Some(Box::new(marginal));
    }

    fn needs_marginal(&self) -> Result<&Posterior> {
        self.marginal().ok_or_else(|| {
            Error::setting(
                "joint",
                "the model knows the target given the other columns only; fit it with `joint`",
            )
        })
    }

    /// `draws` draws of (x, y).
    pub fn sample_joint(&self, draws: usize, seed: u64, settings: &SampleSettings) -> Result<JointDraws> {
        self.sample_joint_until(draws, seed, settings, &StopToken::new())
    }

    /// The same, which `stop` ends in [`Error::Stopped`].
    pub fn sample_joint_until(
        &self,
        draws: usize,
        seed: u64,
        settings: &SampleSettings,
        stop: &StopToken,
    ) -> Result<JointDraws> {
        let marginal = self.needs_marginal()?;
        // Seeds of both blocks from one, far apart from those a user counts up.
        let first = marginal.at_rows(&[], 1).seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        let first = first.settings(*settings).stop(stop).sample(draws)?;
        let m = self.given_names().len();
        let second = self.at_rows(&first.values, first.values.len() / m).seed(seed);
        let second = second.settings(*settings).stop(stop).sample(1)?;
        // Row by row the second block's draws belong to these of the first.
        let of_first = || second.observation.iter().map(|&row| row as usize);
        let residuals =
            of_first().zip(&second.residuals).map(|(row, b)| first.residuals[row].max(*b)).collect();
        let iterations =
            of_first().zip(&second.iterations).map(|(row, b)| first.iterations[row] + b).collect();
        let given = of_first().flat_map(|row| &first.values[row * m..(row + 1) * m]).copied().collect();
        let unsolved = [first.unsolved, second.unsolved].concat();
        Ok(JointDraws { target: second.values, given, residuals, iterations, unsolved })
    }

    /// log π(x | y) and log π(y) of every row (x, y).
    pub fn log_density_joint(&self, target: &[f64], given: &[f64]) -> Result<JointLogDensities> {
        self.log_density_joint_until(target, given, &StopToken::new())
    }

    /// The same, which `stop` ends in [`Error::Stopped`].
    pub fn log_density_joint_until(
        &self,
        target: &[f64],
        given: &[f64],
        stop: &StopToken,
    ) -> Result<JointLogDensities> {
        let marginal = self.needs_marginal()?;
        let (n, m) = (self.target_names().len(), self.given_names().len());
        check_length("given values", target.len() / n, m, given.len())?;
        Ok(JointLogDensities {
            conditional: self.log_density_until(target, given, stop)?,
            marginal: marginal.log_density_until(given, &[], stop)?,
        })
    }
}
