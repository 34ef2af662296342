//! Depths of a basin from the waves in it: the paper's largest experiment, and what a better representation of the data brings.
//!
//! Simulated pairs of depth profiles and noisy Fourier features are reduced as published (the leading principal components of noise-free
//! features, the leading modes of the prior) and learned by recipes: the published methods with their settings, and two of our own,
//! from pairs as they are and from noise-free features with fresh noise in every step. Every map is judged on fresh rows, by
//! calibration on modes and depths, at one observation, and against the exact posterior, which the model allows to compute.
//!
//! Arxiv 2310.16975, section 4.3 and the comparison with CP-Flow; the model is that of Ramesh et al. (2022, GATSBI).

mod data;
mod experiment;
mod judge;
mod pictures;
mod recipe;
mod results;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use data::{Components, Observation, TARGET_PREFIX, Waves};
pub use experiment::SwExperiment;
pub use judge::{AtObservation, Calibrated, ExactAt, RankCurves, Scores, Yardstick};
pub use recipe::Recipe;

use crate::simulate::shallow_water::depth;
use crate::{Error, Result};

/// How the experiment is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwSettings {
    /// Sizes of the training tables.
    pub rows: Vec<u64>,
    /// Principal components of the features.
    pub components: usize,
    /// Modes of the depths.
    pub modes: usize,
    /// What learns from each table.
    pub recipes: Vec<Recipe>,
    /// Fresh rows that every map is judged on.
    pub test_rows: u64,
    /// Draws for each of them.
    pub draws: usize,
    /// Test rows at which the exact posterior is computed; 0 for none.
    pub exact_rows: usize,
    /// Whether training tables are written as arrays, to fit them with other settings.
    pub tables: bool,
    /// Epochs of every training, fewer for a quick look.
    pub epochs: Option<u32>,
    /// Steps of every training at most.
    pub max_steps: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for SwSettings {
    fn default() -> Self {
        Self {
            rows: vec![100_000],
            components: 3500,
            modes: 14,
            recipes: Recipe::usual(),
            test_rows: 1000,
            draws: 1000,
            exact_rows: 25,
            tables: false,
            epochs: None,
            max_steps: None,
            seed: 0,
        }
    }
}

impl SwSettings {
    /// Refuses impossible sizes.
    pub fn validate(&self) -> Result<()> {
        let between = |name: &str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(Error::setting(name, format!("{value} is not between {low} and {high}"))),
        };
        if self.rows.is_empty() || self.recipes.is_empty() {
            return Err(Error::setting("rows", "name at least one size and one method"));
        }
        for &rows in &self.rows {
            between("rows", rows, 200, 10_000_000)?;
        }
        let most = self.rows.iter().copied().min().unwrap_or(0).min(9000);
        between("components", self.components as u64, 2, most)?;
        between("modes", self.modes as u64, 1, depth::MODES as u64 - 1)?;
        between("test_rows", self.test_rows, 20, 1_000_000)?;
        between("rank_draws", self.draws as u64, 20, 1_000_000)?;
        between("exact_rows", self.exact_rows as u64, 0, self.test_rows)
    }
}
