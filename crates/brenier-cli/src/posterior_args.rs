//! The flags of the commands that ask a posterior: `sample`, `density`, `mode` and `straightness`.

use std::path::PathBuf;

use brenier::Units;
use brenier::map::{Precision, Solver};
use clap::{Args, ValueEnum};

use crate::args::{JsonArguments, TableArguments, one_of, whole};
use crate::method_args::of_draws;

pub(crate) const SAMPLE_HELP: &str = "\
Examples:
  brenier sample model.brenier --at y1=0.3,y2=-1 -n 5000 --out draws.csv
  brenier sample model.brenier --observed observed.csv -n 1000 --seed 3 \\
      --out draws.parquet
  # a flow in fewer steps
  brenier sample flow.brenier --at y=1 -n 1000 --steps 8
  # CSV on standard output
  brenier sample model.brenier --at y=1 -n 10
  brenier sample model.brenier --observed observed.csv -n 1e4 --summary
  brenier sample model.brenier --observed observed.csv --summary=summary.csv \\
      --json=summary.json --out draws.parquet

--summary gives, for each observation, mean, standard deviation, quantiles (5, 25, 50, 75, 95 %; linear between order \
statistics), the shortest interval with 90 % of the draws (HPD) and the correlations of the target columns. The text \
shows the first 20 observations; table and JSON hold all.

A model fitted with --joint draws target and given columns together when no observation is named. \
With several observations the first column, observation, is the row (from 1) of the --observed table.";

pub(crate) const DENSITY_HELP: &str = "\
Examples:
  brenier density model.brenier test.csv
  brenier density model.brenier test.csv --out densities.parquet

For a model fitted with --joint the densities are those of target and given columns together, with both \
factors beside them.";

pub(crate) const MODE_HELP: &str = "\
Examples:
  brenier mode model.brenier --at y1=0.3,y2=-1
  brenier mode model.brenier --observed observed.csv --starts 32 --out modes.csv";

pub(crate) const STRAIGHTNESS_HELP: &str = "\
Straight paths at constant speed cost no more than the straight line between their ends, satisfy the \
Hamilton-Jacobi-Bellman equation (residual 0) and need a single step. The table shows how much a draw \
still changes when the number of steps is doubled.

Examples:
  brenier straightness flow.brenier --at y1=0.3,y2=-1
  brenier straightness flow.brenier --observed observed.csv --steps 2,4,8 --json";

#[derive(Args)]
pub(crate) struct ObservationArguments {
    /// Table with the model's given columns, one observation per row; other columns are ignored
    #[arg(long, alias = "given", value_name = "TABLE", conflicts_with = "at")]
    pub(crate) observed: Option<PathBuf>,
    /// One observation: a value for each given column, named as for --target: y1=0.3, '"a,b"=1', '#2=0', y1..y3=0
    #[arg(long, value_name = "NAME=VALUE,…", allow_hyphen_values = true)]
    pub(crate) at: Vec<String>,
}

#[derive(Args)]
pub(crate) struct SampleArguments {
    /// Model file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) observations: ObservationArguments,
    /// Draws for each observation
    #[arg(short, long = "draws", value_name = "N", default_value = "1000", value_parser = whole)]
    pub(crate) n: usize,
    /// Table of draws to write; - or none is CSV on standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Further columns
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) with: Vec<Extra>,
    /// Summarise the draws of each observation instead of printing them, as text or, with =TABLE, one row per
    /// observation; draws are then written only to --out
    #[arg(long, value_name = "TABLE", num_args = 0..=1, require_equals = true)]
    pub(crate) summary: Option<Option<PathBuf>>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[arg(long, help = of_draws("steps", "Runge-Kutta steps from reference to draw [default: the model's evaluation steps]"), value_name = "N")]
    pub(crate) steps: Option<usize>,
    #[arg(long, help = of_draws("accuracy", "error that a draw may have in standardised units, as 1e-4; each draw takes as few steps as that needs"), value_name = "ERROR", conflicts_with = "steps")]
    pub(crate) accuracy: Option<f64>,
    #[arg(long, help = of_draws("solver", "how draws are computed [default: newton]"), value_parser = one_of::<Solver>(&["newton", "lbfgs"]))]
    pub(crate) solver: Option<Solver>,
    #[arg(long, help = of_draws("tolerance", "largest residual that counts as solved [default: by the method]"), value_name = "RESIDUAL")]
    pub(crate) tolerance: Option<f64>,
    #[arg(long, help = of_draws("precision", "arithmetic of the Newton solver or of the Runge-Kutta steps [default: mixed]"), value_parser = one_of::<Precision>(&["mixed", "double"]))]
    pub(crate) precision: Option<Precision>,
    /// End with an error if any draw cannot be solved, instead of leaving it out with a warning
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

/// A column of `sample` beside the draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Extra {
    /// The row, from 1, of the table of observations
    Observation,
    /// What the solver left of the equation
    Residual,
    /// Evaluations of the map that the solver took
    Iterations,
    /// Log density of the draw, in the user's units
    LogDensity,
    /// How far out the observation lies: the part of the training distribution that lies less far out
    SupportPercentile,
    /// How far the members of an ensemble disagree at the observation, in nats
    Disagreement,
}

#[derive(Args)]
pub(crate) struct DensityArguments {
    /// Model file
    pub(crate) model: PathBuf,
    /// Table with the model's target and given columns; other columns are ignored
    pub(crate) table: PathBuf,
    /// Write the log density of every row to this table; - is CSV on standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

#[derive(Args)]
pub(crate) struct ModeArguments {
    /// Model file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) observations: ObservationArguments,
    /// Starting points of the search: the best of 256 draws
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) starts: usize,
    /// Density to maximise; they differ when a column has a support such as log [default: user]
    #[arg(long = "density", alias = "units", value_name = "UNITS", value_parser = one_of::<Units>(&["user", "standardised"]))]
    pub(crate) units: Option<Units>,
    /// Seed of the draws to start from
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write the points to this table; - is CSV on standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

#[derive(Args)]
pub(crate) struct StraightnessArguments {
    /// Model file of a COT-Flow
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) observations: ObservationArguments,
    /// Draws for each observation
    #[arg(short, long = "draws", value_name = "N", default_value = "1000", value_parser = whole)]
    pub(crate) n: usize,
    /// Numbers of steps to look at
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    pub(crate) steps: Vec<usize>,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}
