//! The command line as clap sees it: the list of commands and what several of them take. Parsing only: what is done with it is in
//! `commands`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brenier::data::{Decimal, Format, Missing, ReadOptions};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;

use crate::check_args::{
    CALIBRATE_HELP, CHECK_HELP, CalibrateArguments, CheckArguments, REPORT_HELP, ReportArguments,
};
use crate::cluster_args::{CLUSTER_HELP, ClusterCommand};
use crate::compare_args::{COMPARE_HELP, CompareArguments};
use crate::data_args::{DATA_HELP, DataCommand};
use crate::fit_args::{FIT_HELP, FitArguments, TUNE_HELP, TuneArguments};
use crate::model_args::{ABC_HELP, AbcArguments, SIMULATE_HELP, SimulateArguments};
use crate::plot_args::{PLOT_HELP, PlotCommand};
use crate::posterior_args::{
    DENSITY_HELP, DensityArguments, MODE_HELP, ModeArguments, SAMPLE_HELP, STRAIGHTNESS_HELP,
    SampleArguments, StraightnessArguments,
};
use crate::reproduce_args::{REPRODUCE_HELP, ReproduceCommand};

const AFTER_HELP: &str = "\
Exit codes:
  0    success; also a fit that Ctrl-C, SIGTERM, SIGHUP or --minutes ended early
       with its best model saved, and a broken pipe
  1    unexpected failure: input and output, arithmetic that broke down
  2    bad input or usage: flags, settings, tables, models, paths
  3, 4 check --strict: usable with care, not to be trusted
       (calibrate --strict: 3, not calibrated)
  130  a second Ctrl-C; also the first, SIGTERM or SIGHUP where there is no
       result yet (simulate, abc, a fit before its first validation): re-run
       the same command with --resume to continue

Results go to standard output, everything else to standard error. A file that a command reads is never \
overwritten: an output that is an input or another output of the same command is refused.

Try it without any data:  brenier demo";

const COMPLETIONS_HELP: &str = "\
Example:
  brenier completions bash > ~/.local/share/bash-completion/completions/brenier";

const MAN_HELP: &str = "\
Examples:
  brenier man | man -l -
  brenier man --dir ~/.local/share/man/man1";

const INFO_HELP: &str = "\
Examples:
  brenier info model.brenier
  brenier info model.brenier --json | jq .training";

const DEMO_HELP: &str = "\
Simulates a predator-prey process, learns the posterior of its four rates, looks at two observed paths, checks the map \
and writes report.html, a page with pictures and a verdict, beside tables and the model. A minute or two on two cores.

Examples:
  brenier demo --out demo
  brenier demo --rows 5000 --epochs 10 --out quick";

/// Conditional optimal transport: learn a posterior from a table of pairs (x, y), then sample, score and
/// maximise it at any y.
#[derive(Parser)]
#[command(
    name = "brenier",
    version,
    propagate_version = true,
    after_help = AFTER_HELP,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) everywhere: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Learn π(target | given) from a table
    #[command(after_help = FIT_HELP, allow_negative_numbers = true)]
    Fit(Box<FitArguments>),
    /// Search for good settings, then fit with them
    #[command(after_help = TUNE_HELP, allow_negative_numbers = true)]
    Tune(Box<TuneArguments>),
    /// Draw from the posterior at observed values
    #[command(after_help = SAMPLE_HELP, allow_negative_numbers = true)]
    Sample(SampleArguments),
    /// Score the rows of a table: log densities and mean negative log-likelihood
    #[command(after_help = DENSITY_HELP, allow_negative_numbers = true)]
    Density(DensityArguments),
    /// Find the points of highest posterior density (MAP)
    #[command(after_help = MODE_HELP, allow_negative_numbers = true)]
    Mode(ModeArguments),
    /// See how straight a COT-Flow's paths are and how few steps its draws need
    #[command(after_help = STRAIGHTNESS_HELP, allow_negative_numbers = true)]
    Straightness(StraightnessArguments),
    /// Tell whether a model can be trusted, from held-out pairs
    #[command(after_help = CHECK_HELP, allow_negative_numbers = true)]
    Check(CheckArguments),
    /// Write a page about a model: verdict, calibration, posteriors, how to reproduce
    #[command(after_help = REPORT_HELP, allow_negative_numbers = true)]
    Report(Box<ReportArguments>),
    /// Tell whether draws of any program at many pairs are calibrated
    #[command(after_help = CALIBRATE_HELP, allow_negative_numbers = true)]
    Calibrate(CalibrateArguments),
    /// Tell whether two tables of draws, from any program, come from one distribution
    #[command(after_help = COMPARE_HELP, allow_negative_numbers = true)]
    Compare(CompareArguments),
    /// Draw pictures: pair plots, predictions, curves
    #[command(after_help = PLOT_HELP, subcommand_required = true, arg_required_else_help = true)]
    Plot {
        #[command(subcommand)]
        command: PlotCommand,
    },
    /// Simulate a table of parameters and outputs, with a built-in model or a program of your own
    #[command(after_help = SIMULATE_HELP, allow_negative_numbers = true)]
    Simulate(SimulateArguments),
    /// Find weighted particles at an observation by simulation alone (SMC-ABC, rejection)
    #[command(after_help = ABC_HELP, allow_negative_numbers = true)]
    Abc(Box<AbcArguments>),
    /// Spread simulations and searches over the machines of a cluster
    #[command(after_help = CLUSTER_HELP, subcommand_required = true, arg_required_else_help = true)]
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Say what a model file holds
    #[command(after_help = INFO_HELP)]
    Info(InfoArguments),
    /// Fetch public tables, drop columns, split rows into training, validation and test tables
    #[command(after_help = DATA_HELP, subcommand_required = true, arg_required_else_help = true)]
    Data {
        #[command(subcommand)]
        command: DataCommand,
    },
    /// Run published experiments again and set the figures beside the published ones
    #[command(after_help = REPRODUCE_HELP, subcommand_required = true, arg_required_else_help = true)]
    Reproduce {
        #[command(subcommand)]
        command: ReproduceCommand,
    },
    /// From a simulator to a posterior that was checked, with pictures and a page
    #[command(after_help = DEMO_HELP, allow_negative_numbers = true)]
    Demo(DemoArguments),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArguments),
    /// Print the man page, or write those of all commands
    #[command(after_help = MAN_HELP)]
    Man(ManArguments),
}

/// What every command takes.
#[derive(Args)]
pub(crate) struct GlobalArguments {
    /// Print only errors, warnings and results: no progress, no notes
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Number of threads [default: all cores]; results are identical for any number
    #[arg(long, value_name = "N", global = true, help_heading = "Global options")]
    pub(crate) threads: Option<usize>,
}

/// A result as JSON.
#[derive(Args)]
pub(crate) struct JsonArguments {
    /// Print the result as JSON, or write it to FILE as well: --json FILE.json, or --json=FILE for any name
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
}

/// How tables are read, the same for every command that reads any.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TableArguments {
    /// Leave out rows with missing or infinite values instead of stopping
    #[arg(long, help_heading = "Reading tables")]
    pub(crate) drop_missing: bool,
    /// Further texts or numbers that stand for a missing value, as in '?,-' or -999
    #[arg(
        long,
        value_name = "TEXT,…",
        value_delimiter = ',',
        allow_hyphen_values = true,
        help_heading = "Reading tables"
    )]
    pub(crate) missing: Vec<String>,
    /// Decimal mark of numbers in text [default: point]
    #[arg(long, value_name = "MARK", help_heading = "Reading tables")]
    pub(crate) decimal: Option<DecimalMark>,
    /// Format of the tables [default: by the file's extension or, as for a pipe, by its first bytes]
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = PossibleValuesParser::new(Format::NAMES).try_map(|name| name.parse::<Format>()),
        help_heading = "Reading tables"
    )]
    pub(crate) format: Option<Format>,
}

/// The mark between the integer part and the fraction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecimalMark {
    Point,
    Comma,
}

impl TableArguments {
    /// The same for the library.
    pub(crate) fn options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            missing: Missing::dropped_if(self.drop_missing),
            missing_texts: self.missing.clone(),
            decimal: match self.decimal {
                None | Some(DecimalMark::Point) => Decimal::Point,
                Some(DecimalMark::Comma) => Decimal::Comma,
            },
        }
    }
}

#[derive(Args)]
pub(crate) struct InfoArguments {
    /// Model file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Folder for the files; made if it does not exist
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub(crate) out: PathBuf,
    /// Simulations to learn from, fewer for a quick look
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value = "50000",
        value_parser = demo_rows
    )]
    pub(crate) rows: u64,
    /// Passes over them
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) epochs: u32,
}

#[derive(Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct ManArguments {
    /// Write the pages of all commands into this folder; made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// A whole number, which may be written 1000000, 1_000_000 or 1e6.
pub(crate) fn whole(text: &str) -> Result<usize, String> {
    let digits = text.replace('_', "");
    let exact =
        || digits.parse::<f64>().ok().filter(|number| (0.0..9e15).contains(number) && number.fract() == 0.0);
    digits
        .parse()
        .ok()
        .or_else(|| exact().map(|number| number as usize))
        .ok_or_else(|| "write a whole number, as in 1000 or 1e6".to_owned())
}

/// Rows that the demo can learn from.
fn demo_rows(text: &str) -> Result<u64, String> {
    match whole(text)? {
        rows @ 100.. => Ok(rows as u64),
        _ => Err("the demo needs at least 100".to_owned()),
    }
}

/// Parses a setting; clap names the flag, so that the error need not.
pub(crate) fn setting<T: FromStr<Err = brenier::Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| match error {
        brenier::Error::Settings { problem, .. } => problem,
        other => other.to_string(),
    })
}

/// The arguments with `--json FILE.json` joined by an equals sign. Any other word after `--json` is an argument of its
/// own: a model or table that is to be read must not be taken for a file to write.
pub(crate) fn with_json_files(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let mut flags = true;
    for argument in arguments {
        flags &= argument != "--";
        let file = argument == "-" || Path::new(&argument).extension().is_some_and(|ending| ending == "json");
        match joined.last_mut() {
            Some(last) if flags && file && last == "--json" => {
                last.push("=");
                last.push(argument);
            }
            _ => joined.push(argument),
        }
    }
    joined
}

/// Parses one of `names` into the library's type by the spelling that TOML uses too.
pub(crate) fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value::<T>(name.into()))
}
