//! The command line of `reproduce`. Parsing only.

use std::path::PathBuf;

use brenier::map::Method;
use brenier::reproduce::UciSettings;
use clap::{Args, Subcommand};

use crate::method_args::method;

pub(crate) const REPRODUCE_HELP: &str = "\
Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht --method pcp-map --exact-protocol \\
      --folds 10 --out uci
  brenier reproduce lotka-volterra --rows 50000 --out lv";

pub(crate) const UCI_HELP: &str = "\
For every data set and method: pilots on settings drawn at random, the best trained to the end with several seeds, and \
each of these models scored once on the test rows of the published split. NLL and MMD stand beside the published \
figures, in the published (standardised) units. Validation rows alone decide.

                  by default                 --exact-protocol
  pilots          16, the worse halved away  100 (COT-Flow: 50), run to the end
  full trainings  3 settings x 2 seeds       10 settings x 5 seeds
  search space    narrow networks            as published

Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht,energy --data-dir tables --out uci \\
      --resume
  brenier reproduce uci --exact-protocol --folds 10 --out full
  # one training of the table again
  brenier reproduce uci --dataset yacht --method pcp-map --training 11/1 \\
      --out uci

OUT holds table.md, results.json and a folder for each data set and method with journal, models, scores.csv and \
results.csv (every training with its settings). --resume repeats nothing that was finished. Other data sets and methods \
that OUT holds of the same protocol stay in its table.";

pub(crate) const LV_HELP: &str = "\
Simulates training tables, trains both maps on each, finds particles by SMC-ABC at two observations and compares: held-out \
NLL, posterior means, standard deviations and MAP points of log θ, C2ST and MMD against the particles, seconds for 2000 \
draws beside the published ones. Writes results.md, results.json, tables, models and pictures (SVG and PNG) into OUT.

Examples:
  brenier reproduce lotka-volterra --out lv
  brenier reproduce lotka-volterra --rows 50000 --method pcp-map --out lv
  brenier reproduce lotka-volterra --observed obs1.csv,obs2.csv \\
      --other-particles abc1.csv,abc2.csv --out lv --resume

After an interruption --resume continues with what OUT holds, half-finished trainings and searches too. --rows and --method \
may be others then, not --seed, --epochs, --tolerance and --observed.";

#[derive(Subcommand)]
pub(crate) enum ReproduceCommand {
    /// Densities of six UCI tables: NLL and MMD beside the published ones
    #[command(after_help = UCI_HELP, allow_negative_numbers = true)]
    Uci(UciArguments),
    /// Stochastic Lotka–Volterra: both maps against SMC-ABC, and what draws cost
    #[command(after_help = LV_HELP, allow_negative_numbers = true)]
    LotkaVolterra(LvArguments),
}

#[derive(Args)]
pub(crate) struct LvArguments {
    /// Simulations to train on, one or more sizes
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_values_t = [50_000, 500_000])]
    pub(crate) rows: Vec<u64>,
    /// Methods [default: those of the paper]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = method())]
    method: Vec<Method>,
    /// Observed summaries, two tables of one row: at θ = (0.01, 0.5, 1, 0.01) and at (0.02, 0.02, 0.02, 0.02)
    /// [default: simulated ones]
    #[arg(long, value_name = "TABLE,TABLE", value_delimiter = ',')]
    pub(crate) observed: Vec<PathBuf>,
    /// Weighted particles of another SMC-ABC to compare with, two tables
    #[arg(long = "other-particles", alias = "particles", value_name = "TABLE,TABLE", value_delimiter = ',')]
    pub(crate) particles: Vec<PathBuf>,
    /// Leave our own SMC-ABC out
    #[arg(long)]
    pub(crate) no_abc: bool,
    /// Tolerance of SMC-ABC at both observations [default: 0.1 and 0.15]
    #[arg(long, value_name = "DISTANCE")]
    pub(crate) tolerance: Option<f64>,
    /// Epochs of every training, fewer for a quick look
    #[arg(long, value_name = "N")]
    pub(crate) epochs: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Continue with what OUT holds
    #[arg(long)]
    pub(crate) resume: bool,
}

impl LvArguments {
    pub(crate) fn methods(&self) -> Vec<Method> {
        chosen(&self.method)
    }
}

/// The methods named, or those of the paper.
fn chosen(methods: &[Method]) -> Vec<Method> {
    match methods {
        [] => Method::published().collect(),
        methods => methods.to_vec(),
    }
}

#[derive(Args)]
pub(crate) struct UciArguments {
    /// Data sets [default: all six]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) dataset: Vec<String>,
    /// Methods [default: those of the paper]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = method())]
    method: Vec<Method>,
    /// Folder with the tables as NAME.csv [default: OUT/data, fetched from the UCI archive]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Continue with what OUT holds
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
    #[arg(long = "training", alias = "row", value_name = "TRIAL/REPEAT", value_parser = row, conflicts_with_all = ["resume", "folds"])]
    pub(crate) row: Option<(usize, usize)>,
}

impl UciArguments {
    pub(crate) fn methods(&self) -> Vec<Method> {
        chosen(&self.method)
    }

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
