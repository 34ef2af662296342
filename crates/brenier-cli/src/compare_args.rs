//! The flags of `brenier compare`.

use std::path::PathBuf;

use brenier::data::Selection;
use brenier::diagnose::Bandwidth;
use clap::Args;

use crate::args::{JsonArguments, TableArguments};

pub(crate) const COMPARE_HELP: &str = "\
Examples:
  brenier compare draws.csv reference.csv
  brenier compare draws.parquet particles.npz --columns theta1..theta4 \\
      --weights-b weight --plot overlay.svg
  brenier compare a.csv b.csv --json | jq .comparison.c2st.accuracy

What the figures mean, and how they are computed: docs/diagnostics.md.
  C2ST         accuracy of a network that guesses which table a row came from:
               0.5 is what you want, 1 the worst
  MMD          kernel distance; its test permutes the tables' rows (multiplier
               bootstrap for weighted ones)
  Wasserstein  (W1, sliced) how far mass must be moved, in the column's units
               or in standard deviations

At most 10000 rows of each table take part in C2ST and 2000 in the MMD test, chosen at random; the distances use \
all rows.";

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// First table of draws (A); - is standard input
    #[arg(value_name = "A")]
    pub(crate) first: PathBuf,
    /// Second table of draws (B)
    #[arg(value_name = "B")]
    pub(crate) second: PathBuf,
    /// Columns to compare, as in x1,x2 or x1..x4 [default: all that both tables have, weights apart]
    #[arg(long, value_name = "COLUMNS", default_value = "rest", hide_default_value = true)]
    pub(crate) columns: Selection,
    /// Column of weights, in both tables
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["weights_a", "weights_b"])]
    pub(crate) weights: Option<String>,
    /// Column of weights in A alone
    #[arg(long, value_name = "COLUMN")]
    pub(crate) weights_a: Option<String>,
    /// Column of weights in B alone
    #[arg(long, value_name = "COLUMN")]
    pub(crate) weights_b: Option<String>,
    /// Width h of the kernel exp(-d^2/(2 h^2)) of MMD: a number, or median for the median distance of rows
    #[arg(long, value_name = "H|median", default_value = "median")]
    pub(crate) bandwidth: Bandwidth,
    /// Permutations of the MMD test
    #[arg(long, value_name = "N", default_value_t = 999)]
    pub(crate) permutations: usize,
    /// Take MMD and sliced Wasserstein in the columns' own units instead of standardised ones
    #[arg(long)]
    pub(crate) raw: bool,
    /// Draw both tables into one pair plot, .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    /// Seed of folds, networks, permutations and directions
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}
