//! How a map is learned: the published methods with their settings and recipes of our own, as data.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{SwSettings, TARGET_PREFIX};
use crate::protocol::Protocol;
use crate::train::TrainSettings;
use crate::{Error, FitSettings, Result};

/// How a map is learned, by name: one of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Recipe {
    /// Its place in the list.
    place: usize,
}

/// A line of the list.
struct Listed {
    name: &'static str,
    title: &'static str,
    method: &'static str,
    /// Lines of a settings file.
    settings: &'static [&'static str],
    /// Whether it learns from noise-free features and a declared noise.
    fresh: bool,
    /// Leading components that it looks at; none for all.
    leading: Option<usize>,
    /// Validation and training NLL at 100 000 rows and 14 modes, and seconds on a GPU.
    published: Option<[f64; 3]>,
}

impl Listed {
    /// As published, with a table of noisy pairs and all components.
    const PUBLISHED: Self =
        Self { name: "", title: "", method: "", settings: &[], fresh: false, leading: None, published: None };
}

const RECIPES: [Listed; 6] = [
    Listed {
        name: "pcp-map",
        title: "PCP-Map, published settings",
        method: "pcp-map",
        settings: &[
            "method.feature_width = 256
            method.context_width = 256
            method.depth = 3
            method.initialisation = 'authors'
            train.batch_size = 64
            train.learning_rate = 1e-3",
            PLATEAU,
            VALIDATION,
        ],
        published: Some([8.5, -5.8, 713.0]),
        ..Listed::PUBLISHED
    },
    Listed {
        name: "cot-flow",
        title: "COT-Flow, published settings",
        method: "cot-flow",
        settings: &[
            "method.feature_width = 1024
            method.depth = 2
            method.time_steps = 8
            method.evaluation_steps = 32
            method.embedding = [128, 128, 64]
            method.authors_alphas = [6727.60, 212.55]
            train.batch_size = 512
            train.learning_rate = 1e-4",
            PLATEAU,
            VALIDATION,
        ],
        ..Listed::PUBLISHED
    },
    Listed {
        name: "cp-flow",
        title: "CP-Flow, published settings",
        method: "cp-flow",
        settings: &[
            "method.feature_width = 256
            method.depth = 3
            train.batch_size = 64
            train.learning_rate = 1e-3",
            PLATEAU,
            VALIDATION,
        ],
        published: Some([6.1, -6.6, 1999.7]),
        ..Listed::PUBLISHED
    },
    // As the authors ran it: no embedding, 14 hidden units, and whatever the package sbi does otherwise, its validation included.
    Listed {
        name: "npe",
        title: "NPE, published settings",
        method: "npe",
        settings: &["method.preset = 'sbi'
            method.flow = 'nsf'
            method.hidden_width = 14
            train.batch_size = 100
            asinh = 'none'"],
        ..Listed::PUBLISHED
    },
    // The jitter is noise that training adds to the noisy pairs.
    Listed {
        name: "pairs",
        title: "ours, from pairs",
        method: "npe",
        settings: &[OURS, "jitter = 0.125\ntrain.epochs = 10\ntrain.adam.weight_decay = 1.0", VALIDATION],
        leading: Some(OUR_COMPONENTS),
        ..Listed::PUBLISHED
    },
    Listed {
        name: "fresh",
        title: "ours, with fresh noise",
        method: "npe",
        settings: &[
            OURS,
            "noise = 0.25
            surrogate = 0.1
            surrogate_widths = [1024, 1024, 1024]
            surrogate_epochs = 30
            members = 2
            train.epochs = 60
            train.adam.weight_decay = 0.1",
            VALIDATION,
        ],
        fresh: true,
        leading: Some(OUR_COMPONENTS),
        published: None,
    },
];

/// Validations every 70 steps; 21 without improvement halve the step, the fourth time ends the run.
const PLATEAU: &str = "train.validate_every = 70
    train.patience = 21
    train.drop_factor = 0.5
    train.max_drops = 4
    train.rewind = false
    train.epochs = 1000
    asinh = 'none'";

/// A twentieth of the rows validates.
const VALIDATION: &str = "train.valid_fraction = 0.05
    train.max_valid_rows = 5000";

/// Rows of the published training table, for which epochs are given.
const PUBLISHED_ROWS: f64 = 100_000.0;

/// Leading components that our recipes look at: the others say little, and cost time.
const OUR_COMPONENTS: usize = 1000;

/// A network embeds the given variables, an autoregressive front and two couplings follow. Even fresh noise ends in overfitting, to the
/// basins: against that, `fresh` has a surrogate, which allows a longer training with less weight decay.
const OURS: &str = "scaling = 'common'
    method.flow = 'nsf'
    method.transforms = 2
    method.hidden_width = 64
    method.blocks = 1
    method.front = 'autoregressive'
    method.front_width = 64
    method.embedding = [512, 512, 256]
    method.embedding_activation = 'relu'
    train.batch_size = 256
    train.learning_rate = 1e-3
    train.schedule = 'cosine'";

impl Recipe {
    /// All recipes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..RECIPES.len()).map(|place| Self { place })
    }

    /// The first of the published ones and both of ours.
    pub(super) fn usual() -> Vec<Self> {
        Self::all().filter(|recipe| ["pcp-map", "pairs", "fresh"].contains(&recipe.name())).collect()
    }

    fn listed(self) -> &'static Listed {
        &RECIPES[self.place]
    }

    /// Its name, as in a command.
    pub fn name(self) -> &'static str {
        self.listed().name
    }

    /// Its name, as in a table.
    pub fn title(self) -> &'static str {
        self.listed().title
    }

    /// Whether it learns from noise-free features and a declared noise.
    pub fn is_fresh(self) -> bool {
        self.listed().fresh
    }

    /// Published validation and training NLL at 100 000 rows and 14 modes, and seconds on a GPU.
    pub fn published(self) -> Option<[f64; 3]> {
        self.listed().published
    }

    pub(super) fn protocol(self) -> Protocol {
        Protocol::new(self.listed().method, self.listed().settings)
    }

    /// The settings of a fit to `rows` basins.
    pub fn settings(self, settings: &SwSettings, rows: u64) -> Result<FitSettings> {
        let read = self.protocol().settings()?;
        let epochs = |own: u32| match self.is_fresh() {
            // As many steps, whatever the rows.
            true => (f64::from(own) * PUBLISHED_ROWS / rows as f64).ceil() as u32,
            false => own,
        };
        let given = match self.listed().leading {
            Some(count) => format!("y1..y{}", count.min(settings.components)),
            None => "rest".to_owned(),
        };
        Ok(FitSettings {
            surrogate_epochs: read
                .surrogate_epochs
                .map(|own| epochs(own).min(settings.epochs.unwrap_or(u32::MAX))),
            target: Some(format!("{TARGET_PREFIX}1..{TARGET_PREFIX}{}", settings.modes).parse()?),
            given: Some(given.parse()?),
            seed: settings.seed,
            train: TrainSettings {
                epochs: settings.epochs.unwrap_or_else(|| epochs(read.train.epochs)),
                max_steps: settings.max_steps,
                ..read.train
            },
            ..read
        })
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Recipe {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::all().find(|recipe| recipe.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::all().map(Self::name).collect();
            Error::setting("method", format!("{text:?} is not one of {}", names.join(", ")))
        })
    }
}

impl From<Recipe> for String {
    fn from(recipe: Recipe) -> Self {
        recipe.to_string()
    }
}

impl TryFrom<String> for Recipe {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}
