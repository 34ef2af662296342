//! The flags of `brenier data`.

use std::path::PathBuf;

use brenier::data::{Selection, SplitProtocol};
use clap::{Args, Subcommand, ValueEnum};

use crate::args::{TableArguments, one_of};

pub(crate) const DATA_HELP: &str = "\
Examples:
  brenier data fetch uci --dir uci
  brenier data prepare uci/parkinsons.csv --drop subject,age,sex \\
      --max-correlation 0.98 --out parkinsons.csv
  brenier data split parkinsons.csv --protocol sklearn --seed 42";

const FETCH_HELP: &str = "\
Examples:
  brenier data fetch uci --dir uci
  brenier data fetch uci --dir uci --dataset yacht,energy

The tables are written as DIR/NAME.csv once their values have been checked. After an interruption the same command \
continues where the download broke; tables that are there already are checked and kept.";

const PREPARE_HELP: &str = "\
Examples:
  brenier data prepare raw.csv --drop id,label --out table.csv
  brenier data prepare raw.csv --drop '#1..#3' --max-correlation 0.98 \\
      --out table.parquet

--max-correlation: while any pair of columns has a Pearson correlation above the limit (signed, not absolute), the \
first column that is part of such a pair is dropped. Columns named by --drop may hold text.";

const SPLIT_HELP: &str = "\
Examples:
  brenier data split table.csv --seed 7 --out-prefix parts/table
  brenier data split table.csv --protocol sklearn --seed 42 \\
      --assignment rows.csv

Writes PREFIX-train, PREFIX-valid and PREFIX-test; a part of 0 is not written. The protocol sklearn gives the rows \
that scikit-learn's train_test_split(..., random_state=SEED) gives when applied twice, test rows first, in its order; \
brenier's own keeps the table's order.";

#[derive(Subcommand)]
pub(crate) enum DataCommand {
    /// Download public tables, checked and converted to CSV
    #[command(after_help = FETCH_HELP)]
    Fetch(FetchArguments),
    /// Drop columns of a table: named ones, and those that repeat others
    #[command(after_help = PREPARE_HELP, allow_negative_numbers = true)]
    Prepare(PrepareArguments),
    /// Split the rows of a table into training, validation and test tables
    #[command(after_help = SPLIT_HELP, allow_negative_numbers = true)]
    Split(SplitArguments),
}

#[derive(Args)]
pub(crate) struct FetchArguments {
    /// The collection: uci, six tables of the UCI Machine Learning Repository
    #[arg(value_parser = ["uci"])]
    pub(crate) collection: String,
    /// Folder for the tables; made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only these: parkinsons, white_wine, red_wine, concrete, energy, yacht [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) dataset: Vec<String>,
    /// Server to download from [default: https://archive.ics.uci.edu]
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Option<String>,
}

#[derive(Args)]
pub(crate) struct PrepareArguments {
    /// Table to read
    pub(crate) table: PathBuf,
    /// Table to write; - or none is CSV on standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Columns to drop
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) drop: Option<Selection>,
    /// Drop the first column of each pair with a correlation above this
    #[arg(long, value_name = "LIMIT")]
    pub(crate) max_correlation: Option<f64>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

#[derive(Args)]
pub(crate) struct SplitArguments {
    /// Table to read
    pub(crate) table: PathBuf,
    /// Beginning of the files' names [default: the table's name]
    #[arg(long, value_name = "PREFIX")]
    pub(crate) out_prefix: Option<PathBuf>,
    /// Format of the files [default: that of the table]
    #[arg(long)]
    pub(crate) out_format: Option<TableFormat>,
    /// Part of the rows for validation
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    pub(crate) valid_fraction: f64,
    /// Part of the rows for the test
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    pub(crate) test_fraction: f64,
    /// Seed of the split
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Which random numbers split the rows
    #[arg(long, default_value = "brenier", value_parser = one_of::<SplitProtocol>(&["brenier", "sklearn"]))]
    pub(crate) protocol: SplitProtocol,
    /// Write which row, from 0, went into which set to this CSV file
    #[arg(long, alias = "rows", value_name = "FILE")]
    pub(crate) assignment: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

/// A format to write tables in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    Csv,
    Parquet,
    Arrow,
    Npy,
    Npz,
}
