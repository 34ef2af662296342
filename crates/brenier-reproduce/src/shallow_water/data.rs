//! Simulated features, their principal components, and tables of pairs.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::SwSettings;
use crate::data::Table;
use crate::experiment::Artifact;
use crate::simulate::shallow_water::blocks::{self, FeatureComponents, INTERIOR, Pairs};
use crate::simulate::shallow_water::features::FEATURES;
use crate::simulate::shallow_water::{NOISE, Projection, ShallowWater, depth};
use crate::simulate::{Attempt, Simulator, Streams};
use crate::transform::LeadingSettings;
use crate::{Error, Result, Run};

/// What the names of the target columns begin with: modes of the depths in the units of the published tables.
pub const TARGET_PREFIX: &str = "mode_";
/// Depths of a profile.
pub(super) const CELLS: usize = 100;
/// Seeds of fresh rows and of the observation, far from those of the training tables.
const TEST_SEED: u64 = 1_000_003;
const STAR_SEED: u64 = 77_777;
/// Noise streams of pairs that stay as they are.
const KEPT_NOISE: u64 = 0;
/// Basins that the speed of the simulator is measured with.
const TIMED: u64 = 4096;

impl Artifact for Projection {
    fn load(path: &Path) -> Result<Self> {
        Self::read(path)
    }

    fn save(&self, path: &Path) -> Result<()> {
        self.write(path)
    }
}

/// What principal components explain, and what they cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Components {
    /// Numbers of components, and the part of the second moment of noise-free features that they explain, about 0.
    pub explained: Vec<(usize, f64)>,
    /// Eigenvalues of the first.
    pub eigenvalues: Vec<f64>,
    /// Trace of the second moments.
    pub total: f64,
    /// Seconds of a simulation, with all threads.
    pub seconds_per_simulation: f64,
    /// Seconds of simulation and second moments, and of the components.
    pub moment_seconds: f64,
    /// Seconds of the components.
    pub component_seconds: f64,
}

/// Numbers of components that tables show.
const SHOWN: [usize; 9] = [1, 10, 100, 500, 1000, 2000, 3000, 3500, 5000];

/// Simulates, and finds the components.
pub(super) fn components(rows: u64, settings: &SwSettings, run: Run<'_>) -> Result<(Projection, Components)> {
    let depths = blocks::draw_depths(settings.seed, 0..TIMED);
    let mut surfaces = vec![0.0_f32; TIMED as usize * INTERIOR];
    let started = Instant::now();
    blocks::centred_surfaces(&depths, &mut surfaces);
    let seconds_per_simulation = started.elapsed().as_secs_f64() / TIMED as f64;
    drop(surfaces);
    let started = Instant::now();
    let moments = blocks::second_moments(settings.seed, rows, run)?;
    let moment_seconds = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let leading =
        LeadingSettings { components: settings.components, centred: false, ..LeadingSettings::default() };
    let found = FeatureComponents::of(moments, &leading)?;
    let shown = SHOWN.into_iter().filter(|count| *count < settings.components).chain([settings.components]);
    let about = Components {
        explained: shown.map(|count| (count, found.explained(count))).collect(),
        eigenvalues: found.eigenvalues.iter().take(10).copied().collect(),
        total: found.total,
        seconds_per_simulation,
        moment_seconds,
        component_seconds: started.elapsed().as_secs_f64(),
    };
    Ok((found.projection, about))
}

/// A table of `rows` pairs: modes in published units, then projected features, with noise or without.
pub(super) fn training_table(
    rows: u64,
    noisy: bool,
    projection: &Projection,
    settings: &SwSettings,
    run: Run<'_>,
) -> Result<Table> {
    let pairs = blocks::project(settings.seed, rows, projection, run)?;
    table(&pairs, noisy.then_some(settings.seed), settings.modes)
}

fn table(pairs: &Pairs, noise: Option<u64>, modes: usize) -> Result<Table> {
    let noisy = noise.map(|seed| pairs.noisy(NOISE, seed, KEPT_NOISE));
    let features = noisy.as_ref().unwrap_or(&pairs.features);
    let target = pairs.published_modes(modes);
    let mut values = Vec::with_capacity(target.len() + features.len());
    for (target, features) in target.chunks_exact(modes).zip(features.chunks_exact(pairs.components)) {
        values.extend_from_slice(target);
        values.extend(features.iter().map(|&feature| f64::from(feature)));
    }
    let names = (1..=modes).map(|mode| format!("{TARGET_PREFIX}{mode}"));
    Table::new(names.chain((1..=pairs.components).map(|k| format!("y{k}"))).collect(), values)
}

/// Fresh rows, each with its depths, modes and noisy projected features.
#[derive(Clone, Debug)]
pub struct Waves {
    /// Depths in metres, 100 for each row.
    pub depths: Vec<f64>,
    /// Modes in published units.
    pub modes: Vec<f64>,
    /// Projected features with noise.
    pub features: Vec<f64>,
}

impl Waves {
    /// Simulates the rows that maps are judged on.
    pub fn simulate(projection: &Projection, settings: &SwSettings, run: Run<'_>) -> Result<Self> {
        let seed = TEST_SEED.wrapping_add(settings.seed);
        let pairs = blocks::project(seed, settings.test_rows, projection, run)?;
        let features = pairs.noisy(NOISE, seed, KEPT_NOISE).iter().map(|&y| f64::from(y)).collect();
        Ok(Self { modes: pairs.published_modes(settings.modes), depths: pairs.depths, features })
    }

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.depths.len() / CELLS
    }

    /// The same with the leading `count` features of each row.
    pub(super) fn leading(&self, count: usize) -> Self {
        let width = self.features.len() / self.rows().max(1);
        let features =
            self.features.chunks_exact(width.max(1)).flat_map(|row| &row[..count]).copied().collect();
        Self { depths: self.depths.clone(), modes: self.modes.clone(), features }
    }
}

/// One observation of all 20 000 features, and the depths behind it where they are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The features.
    pub features: Vec<f64>,
    /// The true depths.
    pub truth: Option<Vec<f64>>,
}

impl Observation {
    /// A simulated one.
    pub fn simulate(seed: u64) -> Result<Self> {
        let truth = blocks::draw_depths(STAR_SEED.wrapping_add(seed), 0..1);
        let mut features = vec![0.0; FEATURES];
        let mut rng = Streams::new(STAR_SEED.wrapping_add(seed), 1).get(0);
        match ShallowWater::default().simulate(&truth, &mut rng, &mut features)? {
            Attempt::Done => Ok(Self { features, truth: Some(truth) }),
            _ => Err(Error::Numerical("the waves of the observation grew without bound".to_owned())),
        }
    }

    /// From tables of one row: features `y1` … `y20000` and, where they are known, depths `x1` … `x100`.
    pub fn from_tables(features: &Table, truth: Option<&Table>) -> Result<Self> {
        let one = |table: &Table, what: &str, columns: usize| match (table.rows(), table.columns()) {
            (1, found) if found == columns => Ok(table.values().to_vec()),
            (rows, found) => Err(Error::Columns(format!(
                "{what} are one row of {columns} columns; the table has {rows} rows and {found} columns"
            ))),
        };
        Ok(Self {
            features: one(features, "observed features", FEATURES)?,
            truth: truth.map(|table| one(table, "true depths", CELLS)).transpose()?,
        })
    }

    /// What a map sees of it.
    pub fn projected(&self, projection: &Projection) -> Vec<f64> {
        let mut out = vec![0.0; projection.components()];
        projection.of_features(&self.features, &mut out);
        out
    }
}

/// The depths of modes in published units.
pub(super) fn depths_of(modes: &[f64]) -> Vec<f64> {
    let theta: Vec<f64> =
        modes.iter().enumerate().map(|(mode, value)| value / depth::published_scale(mode)).collect();
    let mut depths = vec![0.0; CELLS];
    depth::of_modes(&theta, &mut depths);
    depths
}
