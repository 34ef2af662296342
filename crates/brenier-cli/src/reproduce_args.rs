//! The command line of `reproduce`. Parsing only.

use std::path::PathBuf;

use brenier::map::Method;
use brenier::reproduce::UciSettings;
use clap::{Args, Subcommand};

use crate::args::{ThreadArguments, one_of};

pub(crate) const REPRODUCE_HELP: &str = "\
Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht --method pcp-map --exact-protocol --folds 10 --out uci";

pub(crate) const UCI_HELP: &str = "\
For every data set and method: pilots on settings drawn at random, the best trained to the end with several seeds, and
each of these models scored once on the test rows of the published split. NLL and MMD stand beside the published
figures, in the published (standardised) units. Validation rows alone decide.

                     by default                       --exact-protocol
  pilots             16, the worse halved away        100 (COT-Flow: 50), each run to its end
  full trainings     3 settings x 2 seeds             10 settings x 5 seeds
  search space       narrow networks                  as published

Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht,energy --data-dir tables --out uci --resume
  brenier reproduce uci --exact-protocol --folds 10 --out full
  brenier reproduce uci --dataset yacht --method pcp-map --row 11/1 --out uci    # one training of the table again

OUT holds table.md, results.json and a folder for each data set and method with journal, models, scores.csv and
results.csv (every training with its settings). --resume repeats nothing that was finished.";

#[derive(Subcommand)]
pub(crate) enum ReproduceCommand {
    /// Densities of six UCI tables: NLL and MMD beside the published ones
    #[command(after_help = UCI_HELP)]
    Uci(UciArguments),
}

#[derive(Args)]
pub(crate) struct UciArguments {
    /// Data sets [default: all six]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) dataset: Vec<String>,
    /// Methods [default: both]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = one_of::<Method>(&["pcp-map", "cot-flow"]))]
    pub(crate) method: Vec<Method>,
    /// Folder with the tables as NAME.csv [default: OUT/data, fetched from the UCI archive]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Go on with what OUT holds
    #[arg(long)]
    pub(crate) resume: bool,
    /// The published protocol
    #[arg(long)]
    exact_protocol: bool,
    /// Settings drawn for pilots
    #[arg(long, value_name = "N")]
    trials: Option<usize>,
    /// How many of the best are trained to the end
    #[arg(long, value_name = "N")]
    finalists: Option<usize>,
    /// Seeds with which each of them is trained
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// Also cross-validate the settings that were chosen, in this many parts
    #[arg(long, value_name = "N", default_value_t = 0)]
    folds: usize,
    /// Seed of the draws and of the first training
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Train again, alone, the trial and repeat of one row of scores.csv
    #[arg(long, value_name = "TRIAL/REPEAT", value_parser = row, conflicts_with_all = ["resume", "folds"])]
    pub(crate) row: Option<(usize, usize)>,
    /// Print errors, warnings and the table only
    #[arg(long, short)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) threads: ThreadArguments,
}

impl UciArguments {
    pub(crate) fn protocol(&self) -> UciSettings {
        UciSettings {
            exact: self.exact_protocol,
            trials: self.trials,
            finalists: self.finalists,
            repeats: self.repeats,
            seed: self.seed,
            folds: self.folds,
        }
    }
}

fn row(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').map(|(trial, repeat)| (trial.parse().ok(), repeat.parse().ok()));
    match parts {
        Some((Some(trial), Some(repeat))) if trial < 100_000 => Ok((trial, repeat)),
        _ => Err("a trial and a repeat as in scores.csv, for example 11/1".into()),
    }
}
