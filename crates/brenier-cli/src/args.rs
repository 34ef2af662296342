//! The command line as clap sees it. Parsing only: what is done with it is in `commands`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brenier::MethodChoice;
use brenier::data::{Decimal, Format, Missing, ReadOptions, Selection, SplitProtocol};
use brenier::diagnose::Bandwidth;
use brenier::map::{Precision, Solver};
use brenier::train::Schedule;
use brenier::transform::{ExchangeableRule, NoiseRule, PcaSettings, Scaling, SupportRule, Whiten};
use brenier::tune::TuneSettings;
use brenier::{FitSettings, Units};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::de::DeserializeOwned;

use crate::check_args::{
    CALIBRATE_HELP, CHECK_HELP, CalibrateArguments, CheckArguments, REPORT_HELP, ReportArguments,
};
use crate::cluster_args::{CLUSTER_HELP, ClusterCommand};
use crate::method_args::{MethodFlags, by_method, method_choice, of_draws, published_pilots};
use crate::model_args::{ABC_HELP, AbcArguments, SIMULATE_HELP, SimulateArguments};
use crate::plot_args::{PLOT_HELP, PlotCommand};
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

const FIT_HELP: &str = "\
Columns are named as in x1,x2 or x1..x4 (in the table's order), by position as in #1..#4 or #-1, in quotation marks \
as in '\"a,b\"', or rest. \
Tables may be .csv, .tsv, .txt, .dat (also .gz or .zst), .parquet, .arrow, .feather, .npy or .npz; - is standard input. \
Without an extension, as for <(zcat ...), the first bytes decide.

Without a method, trials of several choose the best on validation rows, and an ensemble of it is fitted where that pays: about a \
minute for 10 000 rows of a few columns on two cores. --quick is one plain training.

Examples:
  brenier fit simulations.csv --target theta1..theta3 --given rest \\
      --out model.brenier
  brenier fit data.parquet --target rate,share --given y1..y9 \\
      --support rate=log --support 'share=interval(0,1)' --seed 7 \\
      --out model.brenier
  brenier fit simulations.csv --method cot-flow --target theta1..theta3 \\
      --given rest --out flow.brenier
  brenier fit trial.csv --target effect --given dose,sex,centre \\
      --categorical sex,centre --out model.brenier
  brenier sample model.brenier --at dose=3,sex=female,centre=Oslo
  brenier fit data.csv --config fit.toml --learning-rate 0.001 \\
      --out model.brenier
  # after an interruption
  brenier fit data.csv --config fit.toml --out model.brenier --resume

A settings file holds the same settings; a flag overrides it:
  target = \"theta1..theta3\"
  given = \"rest\"
  support = [\"theta1=log\"]
  seed = 7
  [method]
  feature_width = 128
  [train]
  batch_size = 128
  learning_rate = 0.002

While it runs, the state is kept in MODEL.checkpoint; it is removed after success and kept when Ctrl-C, SIGTERM, \
SIGHUP, --minutes or a crash ends the fit: re-run the same command with --resume to continue, to the same bits. An older \
model is kept until the new one is complete. MODEL.lock keeps a second fit from writing the same model at the same time.";

const TUNE_HELP: &str = "\
Settings are drawn at random from a search space, laid over those of --config and of the flags, and tried in short \
pilot trainings, one thread each; the best are trained to the end with several seeds, and the model with the best \
validation NLL is saved. Unpromising pilots are stopped early unless --exact-protocol.

Examples:
  brenier tune data.csv --target x --given rest --minutes 10 --out model.brenier
  brenier tune train.csv --valid valid.csv --test test.csv --target x \\
      --given rest --exact-protocol --space uci --out model.brenier
  # a space to edit
  brenier tune --method cot-flow --print-space > space.toml
  brenier tune data.csv --target x --given rest --space space.toml \\
      --out model.brenier
  # on each of several machines that see the same folder
  brenier tune data.csv --target x --given rest --out model.brenier --join

A search space has the shape of a settings file, with lists or ranges in place of values:
  [method]
  feature_width = [32, 64, 128]
  # of the feature width, down to the number of given columns
  context_width = \"halvings\"
  [train]
  batch_size = [32, 64]
  learning_rate = { log_uniform = [1e-3, 1e-2] }

--minutes is for the whole search; pilots get at most 40 % of it. Journal, models and results.csv, a table of all \
trainings with every setting, are in MODEL.tune; --resume continues after an interruption without repeating what was \
finished. With --join each process trains what no other has begun, all wait for the last, and all write the same model.";

const SAMPLE_HELP: &str = "\
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

const DENSITY_HELP: &str = "\
Examples:
  brenier density model.brenier test.csv
  brenier density model.brenier test.csv --out densities.parquet

For a model fitted with --joint the densities are those of target and given columns together, with both \
factors beside them.";

const MODE_HELP: &str = "\
Examples:
  brenier mode model.brenier --at y1=0.3,y2=-1
  brenier mode model.brenier --observed observed.csv --starts 32 --out modes.csv";

const STRAIGHTNESS_HELP: &str = "\
Straight paths at constant speed cost no more than the straight line between their ends, satisfy the \
Hamilton-Jacobi-Bellman equation (residual 0) and need a single step. The table shows how much a draw \
still changes when the number of steps is doubled.

Examples:
  brenier straightness flow.brenier --at y1=0.3,y2=-1
  brenier straightness flow.brenier --observed observed.csv --steps 2,4,8 --json";

const COMPARE_HELP: &str = "\
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

const DATA_HELP: &str = "\
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
pub(crate) struct ObservationArguments {
    /// Table with the model's given columns, one observation per row; other columns are ignored
    #[arg(long, alias = "given", value_name = "TABLE", conflicts_with = "at")]
    pub(crate) observed: Option<PathBuf>,
    /// One observation: a value for each given column, named as for --target: y1=0.3, '"a,b"=1', '#2=0', y1..y3=0
    #[arg(long, value_name = "NAME=VALUE,…", allow_hyphen_values = true)]
    pub(crate) at: Vec<String>,
}

#[derive(Args)]
pub(crate) struct FitArguments {
    /// Table to learn from
    pub(crate) table: PathBuf,
    /// Model file to write, as model.brenier; an older one is replaced when the new one is complete
    #[arg(long, value_name = "MODEL")]
    pub(crate) out: PathBuf,
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    /// One plain training instead of trials and an ensemble; the same as --method pcp-map
    #[arg(long, conflicts_with = "method")]
    pub(crate) quick: bool,
    /// Table to score after the fit
    #[arg(long, value_name = "TABLE")]
    pub(crate) test: Option<PathBuf>,
    /// Continue from MODEL.checkpoint if there is one
    #[arg(long)]
    pub(crate) resume: bool,
    /// Seconds between checkpoints
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub(crate) checkpoint_seconds: f64,
    /// Write every event of the training to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

#[derive(Args)]
pub(crate) struct TuneArguments {
    /// Table to learn from
    #[arg(required_unless_present = "print_space")]
    pub(crate) table: Option<PathBuf>,
    /// Model file to write, as model.brenier; an older one is replaced when the new one is complete
    #[arg(long, value_name = "MODEL", required_unless_present = "print_space")]
    pub(crate) out: Option<PathBuf>,
    /// Settings file (TOML) for what is not searched; flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Table to validate with, instead of a part of the rows
    #[arg(long, value_name = "TABLE")]
    pub(crate) valid: Option<PathBuf>,
    /// Table to score each finished model on; it decides nothing
    #[arg(long, value_name = "TABLE")]
    pub(crate) test: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    /// Continue the search in MODEL.tune if there is one
    #[arg(long)]
    pub(crate) resume: bool,
    /// Share the search in MODEL.tune with other processes that run the same command, on this machine or others
    #[arg(long, help_heading = "Search")]
    pub(crate) join: bool,
    /// Search space: default, uci or paper (as published), or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = "default", help_heading = "Search")]
    pub(crate) space: String,
    /// Print the search space and stop
    #[arg(long, help_heading = "Search")]
    pub(crate) print_space: bool,
    #[command(flatten)]
    pub(crate) tune: TuneFlags,
    #[command(flatten)]
    pub(crate) settings: SettingFlags,
}

/// The fields of [`TuneSettings`] as flags.
#[derive(Args)]
pub(crate) struct TuneFlags {
    /// Settings to draw [default: 24]
    #[arg(long, value_name = "N", help_heading = "Search")]
    trials: Option<usize>,
    /// Epochs of a pilot training [default: 15]
    #[arg(long, value_name = "N", help_heading = "Search")]
    pilot_epochs: Option<u32>,
    /// How many of the best are trained to the end [default: 3]
    #[arg(long, value_name = "N", help_heading = "Search")]
    finalists: Option<usize>,
    /// Seeds with which each of them is trained [default: 2]
    #[arg(long, value_name = "N", help_heading = "Search")]
    repeats: Option<usize>,
    #[arg(long, help = format!("As published: {}, none stopped early, the 10 best trained with 5 seeds each", published_pilots()), help_heading = "Search")]
    exact_protocol: bool,
}

impl TuneFlags {
    pub(crate) fn settings(&self) -> TuneSettings {
        TuneSettings {
            trials: self.trials,
            pilot_epochs: self.pilot_epochs,
            finalists: self.finalists,
            repeats: self.repeats,
            exact: self.exact_protocol,
            ..TuneSettings::default()
        }
    }
}

/// The fields of [`FitSettings`] as flags; what is not given is left as it was.
#[derive(Args)]
pub(crate) struct SettingFlags {
    /// Columns x to learn the distribution of
    #[arg(long, value_name = "COLUMNS", help_heading = "Columns")]
    target: Option<Selection>,
    /// Columns y to condition on; without them the fit is unconditional
    #[arg(long, value_name = "COLUMNS", help_heading = "Columns")]
    given: Option<Selection>,
    /// Given columns that hold categories (text or numbers): each category becomes a column of zeros and ones
    #[arg(long, value_name = "COLUMNS", help_heading = "Columns")]
    categorical: Option<Selection>,
    /// Learn the distribution of the given columns too: joint densities and joint draws
    #[arg(long, help_heading = "Columns")]
    joint: bool,
    /// Values that columns may take: log, interval(a,b), log-interval(a,b) or real, as in rate=log or
    /// theta_1..theta_4=log; may be repeated, and the last one for a column counts
    #[arg(long, value_name = "COLUMNS=SUPPORT", value_parser = setting::<SupportRule>, help_heading = "Columns")]
    support: Vec<SupportRule>,
    /// Centring and scaling of the columns [default: standard]; common: one scale for all given columns, for series, spectra and
    /// components
    #[arg(long, help_heading = "Columns", value_parser = one_of::<Scaling>(&["standard", "robust", "common", "none"]))]
    scaling: Option<Scaling>,
    /// Standard deviation of the noise of given columns that are free of it in the table, as in 0.25 for all, or y1..y9=0.25; training
    /// adds it anew to every row of every step. May be repeated; rest stands for the columns that no other one names
    #[arg(long, value_name = "[COLUMNS=]SD", value_parser = setting::<NoiseRule>, help_heading = "Columns")]
    noise: Vec<NoiseRule>,
    /// Further noise of given columns in training alone, against overfitting the noise of the table; written as --noise
    #[arg(long, value_name = "[COLUMNS=]SD", value_parser = setting::<NoiseRule>, help_heading = "Columns")]
    jitter: Vec<NoiseRule>,
    /// Reduce many given columns to at most this many directions, those that tell most about the target
    #[arg(long, value_name = "COUNT", help_heading = "Columns", conflicts_with = "pca")]
    reduce: Option<usize>,
    /// Given columns that hold points in no particular order, as in y1..y8:4 for four points of two numbers; repeatable
    #[arg(long, value_name = "COLUMNS:POINTS", value_parser = setting::<ExchangeableRule>, help_heading = "Columns")]
    exchangeable: Vec<ExchangeableRule>,
    /// Principal components of the given columns: a count (8) or a part of their variance (0.99)
    #[arg(long, value_name = "COUNT|PART", value_parser = setting::<PcaSettings>, help_heading = "Columns")]
    pca: Option<PcaSettings>,
    /// Make the target columns uncorrelated before the map sees them, where they nearly depend on one another [default: none]
    #[arg(long, help_heading = "Columns", value_parser = one_of::<Whiten>(&["none", "target"]))]
    whiten: Option<Whiten>,

    /// Kind of map; auto tries several and fits the best, as an ensemble where that pays [default of fit: auto, or pcp-map
    /// where a setting of a method is given; of tune: pcp-map]
    #[arg(long, help_heading = "Map", value_parser = method_choice())]
    method: Option<MethodChoice>,
    #[command(flatten)]
    map: MethodFlags,

    /// Members of an ensemble: maps trained side by side, each validated on rows of its own [default: 1; where trials choose: 5]
    #[arg(long, value_name = "N", help_heading = "Training")]
    members: Option<usize>,
    /// Train the members on bootstrap samples of the rows instead of folds
    #[arg(long, help_heading = "Training")]
    bootstrap: bool,
    /// Seed of split, initial weights and batches [default: 0]
    #[arg(long, value_name = "N", help_heading = "Training")]
    seed: Option<u64>,
    /// Rows per step [default: by method and table]
    #[arg(long, value_name = "ROWS", help_heading = "Training")]
    batch_size: Option<usize>,
    /// Step size at the start [default: by method]
    #[arg(long, value_name = "RATE", help_heading = "Training")]
    learning_rate: Option<f64>,
    /// Passes over the training rows at most [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Training")]
    epochs: Option<u32>,
    #[arg(long, help = by_method("Steps at most, whatever the epochs", "no limit", |train| train.max_steps), value_name = "STEPS", help_heading = "Training")]
    max_steps: Option<u64>,
    /// Steps between validations [default: by the number of validation rows]
    #[arg(long, value_name = "STEPS", help_heading = "Training")]
    validate_every: Option<usize>,
    #[arg(long, help = by_method("How the learning rate falls: plateau drops it when validations bring nothing better and ends the run \
        at the last drop; cosine lowers it to zero over all --epochs or --max-steps", "plateau", |train| train.schedule.map(|schedule| format!("{schedule:?}").to_lowercase())), help_heading = "Training", value_parser = one_of::<Schedule>(&["plateau", "cosine"]))]
    schedule: Option<Schedule>,
    #[arg(long, help = by_method("Validations without improvement before the step size drops", "20", |train| train.patience), value_name = "N", help_heading = "Training")]
    patience: Option<u32>,
    #[arg(long, help = by_method("Factor of a drop", "0.5", |train| train.drop_factor), value_name = "FACTOR", help_heading = "Training")]
    drop_factor: Option<f64>,
    #[arg(long, help = by_method("The drop that ends the fit", "4", |train| train.max_drops), value_name = "N", help_heading = "Training")]
    max_drops: Option<u32>,
    /// Whether a drop goes back to the best weights so far [default: true]
    #[arg(long, value_name = "BOOL", help_heading = "Training")]
    rewind: Option<bool>,
    /// Part of the rows held out for validation [default: 0.1]
    #[arg(long, value_name = "PART", help_heading = "Training")]
    valid_fraction: Option<f64>,
    /// Rows held out for validation at most [default: 20000]
    #[arg(long, value_name = "ROWS", help_heading = "Training")]
    max_valid_rows: Option<usize>,
    #[arg(long, help = by_method("Decoupled weight decay, against overfitting", "0", |train| train.adam.weight_decay), value_name = "DECAY", help_heading = "Training")]
    weight_decay: Option<f64>,
    #[arg(long, help = by_method("Largest norm of a step's gradient; 0 for no limit", "none", |train| train.clip), value_name = "NORM", help_heading = "Training")]
    clip: Option<f64>,
    #[arg(long, help = by_method("Decay of a moving average of the weights, validated beside them; 0 for none", "0", |train| train.weight_average), value_name = "DECAY", help_heading = "Training")]
    weight_average: Option<f64>,
    /// End the fit after this many minutes with the best model so far
    #[arg(long, value_name = "M", help_heading = "Training")]
    minutes: Option<f64>,
}

impl SettingFlags {
    /// Lays the flags over `settings`.
    pub(crate) fn overlay(self, settings: &mut FitSettings) -> brenier::Result<()> {
        fn set<T>(slot: &mut T, flag: Option<T>) {
            if let Some(value) = flag {
                *slot = value;
            }
        }
        fn fill<T>(slot: &mut Option<T>, flag: Option<T>) {
            if flag.is_some() {
                *slot = flag;
            }
        }
        fill(&mut settings.target, self.target);
        fill(&mut settings.given, self.given);
        fill(&mut settings.categorical, self.categorical);
        // The last one for a column counts.
        settings.support.extend(self.support);
        set(&mut settings.scaling, self.scaling);
        settings.noise.rules.extend(self.noise);
        settings.jitter.rules.extend(self.jitter);
        fill(&mut settings.reduce, self.reduce);
        settings.exchangeable.extend(self.exchangeable);
        fill(&mut settings.pca, self.pca);
        set(&mut settings.whiten, self.whiten);
        settings.joint |= self.joint;
        fill(&mut settings.members, self.members);
        settings.bootstrap |= self.bootstrap;
        set(&mut settings.seed, self.seed);
        self.map.overlay(self.method, settings)?;
        let train = &mut settings.train;
        fill(&mut train.batch_size, self.batch_size);
        fill(&mut train.learning_rate, self.learning_rate);
        set(&mut train.epochs, self.epochs);
        fill(&mut train.max_steps, self.max_steps);
        set(&mut train.validate_every, self.validate_every);
        fill(&mut train.schedule, self.schedule);
        fill(&mut train.patience, self.patience);
        fill(&mut train.drop_factor, self.drop_factor);
        fill(&mut train.max_drops, self.max_drops);
        set(&mut train.rewind, self.rewind);
        set(&mut train.valid_fraction, self.valid_fraction);
        set(&mut train.max_valid_rows, self.max_valid_rows);
        fill(&mut train.adam.weight_decay, self.weight_decay);
        train.clip = self.clip.or(train.clip);
        fill(&mut train.weight_average, self.weight_average);
        fill(&mut train.minutes, self.minutes);
        Ok(())
    }
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

#[derive(Args)]
pub(crate) struct InfoArguments {
    /// Model file
    pub(crate) model: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
}

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
