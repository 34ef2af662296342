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
mod results;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::json;

pub use data::{Components, Observation, TARGET_PREFIX, Waves};
pub use experiment::SwExperiment;
pub use judge::{AtObservation, Calibrated, ExactAt, RankCurves, Scores, Yardstick};

use crate::map::Method;
use crate::simulate::shallow_water::{NOISE, depth};
use crate::train::{AdamSettings, Schedule, TrainSettings};
use crate::transform::{NoiseRule, NoiseSettings, Scaling};
use crate::{Error, FitSettings, Result};

/// How a map is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// PCP-Map with the published settings.
    PcpMap,
    /// COT-Flow with the published settings.
    CotFlow,
    /// CP-Flow with the settings of the published comparison.
    CpFlow,
    /// NPE as the package sbi does it, without an embedding.
    Npe,
    /// Ours, from noisy pairs as they are.
    Pairs,
    /// Ours, from noise-free features with fresh noise in every step.
    Fresh,
}

impl Recipe {
    /// All recipes.
    pub const ALL: [Self; 6] =
        [Self::PcpMap, Self::CotFlow, Self::CpFlow, Self::Npe, Self::Pairs, Self::Fresh];
    /// Their names.
    pub const NAMES: [&'static str; 6] = ["pcp-map", "cot-flow", "cp-flow", "npe", "pairs", "fresh"];

    /// Its name, as in a command.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Its name, as in a table.
    pub fn title(self) -> &'static str {
        match self {
            Self::PcpMap => "PCP-Map, published settings",
            Self::CotFlow => "COT-Flow, published settings",
            Self::CpFlow => "CP-Flow, published settings",
            Self::Npe => "NPE, settings of sbi",
            Self::Pairs => "ours, from pairs",
            Self::Fresh => "ours, with fresh noise",
        }
    }

    /// Whether it learns from noise-free features and a declared noise.
    pub fn is_fresh(self) -> bool {
        self == Self::Fresh
    }

    /// Published validation and training NLL at 100 000 rows and 14 modes, and seconds on a GPU.
    pub fn published(self) -> Option<[f64; 3]> {
        match self {
            Self::PcpMap => Some([8.5, -5.8, 713.0]),
            Self::CpFlow => Some([6.1, -6.6, 1999.7]),
            _ => None,
        }
    }

    /// The settings of a fit.
    pub fn settings(self, settings: &SwSettings) -> Result<FitSettings> {
        let of = |method: Method, values: serde_json::Value| match values {
            serde_json::Value::Object(values) => method.defaults().with_values(values),
            _ => unreachable!("a table of settings"),
        };
        // Validations every 70 steps; 21 without improvement halve the step, the fourth time ends the run.
        let plateau = TrainSettings {
            validate_every: 70,
            patience: Some(21),
            drop_factor: Some(0.5),
            max_drops: Some(4),
            rewind: false,
            epochs: 1000,
            ..TrainSettings::default()
        };
        let (method, train) = match self {
            Self::PcpMap => (
                of(
                    Method::PcpMap,
                    json!({"feature_width": 256, "context_width": 256, "depth": 3, "initialisation": "authors"}),
                )?,
                TrainSettings { batch_size: Some(64), learning_rate: Some(1e-3), ..plateau },
            ),
            Self::CpFlow => (
                of(Method::CpFlow, json!({"feature_width": 256, "depth": 3}))?,
                TrainSettings { batch_size: Some(64), learning_rate: Some(1e-3), ..plateau },
            ),
            Self::CotFlow => (
                of(
                    Method::CotFlow,
                    json!({
                        "feature_width": 1024, "depth": 2, "time_steps": 8, "evaluation_steps": 32,
                        "embedding": [128, 128, 64], "authors_alphas": [6727.60, 212.55],
                    }),
                )?,
                TrainSettings { batch_size: Some(512), learning_rate: Some(1e-4), ..plateau },
            ),
            Self::Npe => {
                (of(Method::Npe, json!({"preset": "sbi", "flow": "maf"}))?, TrainSettings::default())
            }
            Self::Pairs | Self::Fresh => {
                let cosine = TrainSettings {
                    batch_size: Some(256),
                    learning_rate: Some(1e-3),
                    schedule: Some(Schedule::Cosine),
                    epochs: if self.is_fresh() { OUR_FRESH_EPOCHS } else { OUR_EPOCHS },
                    adam: AdamSettings { weight_decay: OUR_DECAY, ..AdamSettings::default() },
                    ..TrainSettings::default()
                };
                let flow = json!({
                    "flow": "nsf", "transforms": 2, "hidden_width": 64, "blocks": 1, "front": "autoregressive",
                    "front_width": OUR_FRONT, "embedding": OUR_EMBEDDING, "embedding_activation": "relu",
                });
                (of(Method::Npe, flow)?, cosine)
            }
        };
        let all =
            |sd: f64| NoiseSettings { rules: vec![NoiseRule { columns: crate::data::Selection::Rest, sd }] };
        Ok(FitSettings {
            target: Some(format!("{TARGET_PREFIX}1..{TARGET_PREFIX}{}", settings.modes).parse()?),
            given: Some(match self {
                Self::Pairs | Self::Fresh => {
                    format!("y1..y{}", OUR_COMPONENTS.min(settings.components)).parse()?
                }
                _ => "rest".parse()?,
            }),
            scaling: match self {
                Self::Pairs | Self::Fresh => Scaling::Common,
                _ => Scaling::Standard,
            },
            noise: if self == Self::Fresh { all(NOISE) } else { NoiseSettings::default() },
            jitter: if self == Self::Pairs { all(OUR_JITTER) } else { NoiseSettings::default() },
            seed: settings.seed,
            members: (self == Self::Fresh).then_some(OUR_MEMBERS),
            method,
            train: TrainSettings {
                valid_fraction: 0.05,
                max_valid_rows: 5000,
                minutes: None,
                epochs: settings.epochs.unwrap_or(train.epochs),
                max_steps: settings.max_steps,
                ..train
            },
            ..FitSettings::default()
        })
    }
}

/// Layers of the network that embeds the given variables in our recipes.
const OUR_EMBEDDING: [usize; 3] = [512, 512, 256];
/// Width of the front's networks.
const OUR_FRONT: usize = 64;
/// Leading components that our recipes look at: the others say little, and cost time.
const OUR_COMPONENTS: usize = 1000;
/// Noise added to noisy pairs in training.
const OUR_JITTER: f64 = 0.125;
/// Epochs from pairs, and with fresh noise.
const OUR_EPOCHS: u32 = 10;
const OUR_FRESH_EPOCHS: u32 = 24;
/// Members of the ensemble with fresh noise.
const OUR_MEMBERS: usize = 4;
/// Weight decay: without it even fresh noise ends in overfitting, to the basins.
const OUR_DECAY: f64 = 1.0;

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|recipe| recipe.name() == text);
        found.ok_or_else(|| {
            Error::setting("method", format!("{text:?} is not one of {}", Self::NAMES.join(", ")))
        })
    }
}

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
            recipes: vec![Recipe::PcpMap, Recipe::Pairs, Recipe::Fresh],
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
