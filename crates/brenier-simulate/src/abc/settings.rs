//! Settings of an ABC run: one struct for TOML, command line and library.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AbcMethod {
    /// Rounds of falling tolerance.
    #[default]
    Smc,
    /// Prior draws, kept when close enough.
    Rejection,
}

/// How particles are found.
///
/// Sequential Monte Carlo ends at [`tolerance`](Self::tolerance) or when a budget is used up. Each round's tolerance
/// is the [`quantile`](Self::quantile) of the distances of the round before or, with [`decay`](Self::decay), the last
/// one times that factor. Rejection with a tolerance draws until there are enough particles; without one it spends
/// [`max_simulations`](Self::max_simulations) and keeps the nearest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AbcSettings {
    /// The algorithm.
    pub method: AbcMethod,
    /// Particles.
    pub particles: usize,
    /// The tolerance to reach, in prior-predictive standard deviations.
    pub tolerance: Option<f64>,
    /// The part of the distances of one round that lies below the tolerance of the next.
    pub quantile: f64,
    /// Factor from one tolerance to the next; replaces `quantile`.
    pub decay: Option<f64>,
    /// The first tolerance when they decay.
    pub start_tolerance: f64,
    /// The kernel's covariance is this times the weighted covariance of the particles.
    pub kernel_factor: f64,
    /// Particles are resampled before a round when their effective number is below this part of them.
    pub resample_below: f64,
    /// Prior simulations that decide the scales of the outputs; they are also the first candidates.
    pub pilot: u64,
    /// Simulations at most (those the model abandons not counted).
    #[serde(alias = "simulations")]
    pub max_simulations: Option<u64>,
    /// Time budget in minutes, for each run of its own when a search is resumed.
    pub minutes: Option<f64>,
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for AbcSettings {
    fn default() -> Self {
        Self {
            method: AbcMethod::Smc,
            particles: 2000,
            tolerance: None,
            quantile: 0.5,
            decay: None,
            start_tolerance: 10.0,
            kernel_factor: 2.0,
            resample_below: 0.5,
            pilot: 10_000,
            max_simulations: None,
            minutes: None,
            seed: 0,
        }
    }
}

impl AbcSettings {
    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        let within = |name: &str, value: f64, low: f64, high: f64| {
            let range = match high.is_finite() {
                true => format!("above {low} and below {high}"),
                false => format!("above {low} and finite"),
            };
            if value > low && value < high { Ok(()) } else { Err(Error::outside(name, value, &range)) }
        };
        if !(2..=10_000_000).contains(&self.particles) {
            return Err(Error::setting(
                "particles",
                format!("must be at least 2 and at most 10 million, not {}", self.particles),
            ));
        }
        if self.pilot < 2 {
            return Err(Error::setting(
                "pilot",
                "at least 2 simulations are needed for a standard deviation",
            ));
        }
        if let Some(tolerance) = self.tolerance {
            within("tolerance", tolerance, 0.0, f64::INFINITY)?;
        }
        within("quantile", self.quantile, 0.0, 1.0)?;
        if let Some(decay) = self.decay {
            within("decay", decay, 0.0, 1.0)?;
        }
        within("start_tolerance", self.start_tolerance, 0.0, f64::INFINITY)?;
        within("kernel_factor", self.kernel_factor, 0.0, 1e6)?;
        if !(0.0..=1.0).contains(&self.resample_below) {
            return Err(Error::outside("resample_below", self.resample_below, "at least 0 and at most 1"));
        }
        if let Some(minutes) = self.minutes {
            within("minutes", minutes, 0.0, 1e6)?;
        }
        let endless = match self.method {
            AbcMethod::Smc => {
                self.tolerance.is_none() && self.max_simulations.is_none() && self.minutes.is_none()
            }
            AbcMethod::Rejection => self.tolerance.is_none() && self.max_simulations.is_none(),
        };
        if endless {
            return Err(Error::setting(
                "tolerance",
                match self.method {
                    AbcMethod::Smc => "say when to end: a tolerance, a number of simulations or of minutes",
                    AbcMethod::Rejection => {
                        "give a tolerance, or a number of simulations to keep the nearest of"
                    }
                },
            ));
        }
        Ok(())
    }

    /// The settings that decide the particles, budgets aside.
    pub(super) fn timeless(&self) -> Self {
        Self { minutes: None, max_simulations: None, tolerance: None, ..self.clone() }
    }
}
