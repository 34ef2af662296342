//! The command line of `check` and `report`, the commands that judge models, and of `calibrate`. Parsing only.

use std::path::PathBuf;

use brenier::check::CheckSettings;
use brenier::data::Selection;
use brenier::simulate::SIMULATORS;
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::args::{JsonArguments, TableArguments, whole};
use crate::method_args::check_draws;
use crate::posterior_args::ObservationArguments;

pub(crate) const CHECK_HELP: &str = "\
The table holds pairs (x, y) that the fit has not seen, a thousand or so, with the model's columns.

Examples:
  brenier check model.brenier held_out.csv
  brenier check model.brenier held_out.csv --against seed2.brenier \\
      --against seed3.brenier
  # posterior predictive checks too
  brenier check lv.brenier held_out.parquet --simulator lotka-volterra
  brenier check model.brenier held_out.csv --command 'python3 sim.py'
  brenier check model.brenier held_out.csv --json check.json --strict \\
      && echo fit for use

What is looked at: the likelihood of the held-out rows; calibration by ranks (SBC, expected coverage, TARP), corrected \
for their number; whether the map is one to one, is inverted exactly and its density integrates to one; rows \
outside the training data; predictives; whether more training or more simulations would help.

With --strict the exit code is the verdict:
  0  trustworthy        no check speaks against the model, and there were
                        enough pairs for that to mean something
  3  usable with care   a reason is named
  4  not to be trusted  a check speaks clearly against it

The thresholds behind these words are in docs/diagnostics.md.";

pub(crate) const CALIBRATE_HELP: &str = "\
PAIRS holds the truth, one pair (x, y) per row. DRAWS holds, for every pair, the same number of draws that some program \
took from its posterior given y, one draw per row, with the pair's row (from 1) in the column observation. A column with \
the log density of each draw allows expected coverage too, if PAIRS has one with that of the truth.

Examples:
  brenier calibrate pairs.csv draws.parquet --target theta1..theta3 \\
      --given s1..s9
  brenier calibrate pairs.csv draws.csv --target theta --log-density log_q \\
      --json calibration.json";

pub(crate) const REPORT_HELP: &str = "\
Examples:
  brenier report model.brenier held_out.csv --out report.html
  brenier report model.brenier held_out.csv --at y1=0.3,y2=-1 --out report.html
  brenier report lv.brenier held_out.parquet --observed observed.csv \\
      --simulator lotka-volterra --out report.html

One file that needs nothing else: the verdict of brenier check and its reasons, the model and its data, the \
posterior at chosen observations, calibration, predictives, the map's certificates, the training, and how to make it \
all again. Without --observed, --at and --row the posteriors at two held-out rows are shown. A table of observations \
that has the target columns too shows them as the truth.";

/// What both commands that check a model have in common.
#[derive(Args)]
pub(crate) struct CheckingArguments {
    /// Model file
    pub(crate) model: PathBuf,
    /// Table of held-out pairs with the model's target and given columns; other columns are ignored
    pub(crate) table: PathBuf,
    /// Maximum number of held-out pairs to draw at
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pairs: usize,
    #[arg(short = 'n', long, help = format!("Draws at each pair [default: {}]", check_draws()), value_name = "N", value_parser = whole)]
    draws: Option<usize>,
    /// Level of bands and tests, all tests of calibration together
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    level: f64,
    /// Seed of choices and draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Another model of the same columns, say of another seed, to compare with; may be given more than once
    #[arg(long = "against", alias = "with", value_name = "MODEL")]
    pub(crate) others: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    #[command(flatten)]
    pub(crate) simulator: SimulatorArguments,
}

impl CheckingArguments {
    pub(crate) fn settings(&self) -> CheckSettings {
        CheckSettings {
            pairs: self.pairs,
            draws: self.draws,
            level: self.level,
            predictive_observations: self.simulator.predictive_observations,
            predictive_draws: self.simulator.predictive_draws,
            seed: self.seed,
        }
    }
}

/// What makes outputs from posterior draws.
#[derive(Args)]
pub(crate) struct SimulatorArguments {
    /// Built-in model that made the data: simulate from the posterior and compare with what was observed
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(SIMULATORS),
        conflicts_with = "command",
        help_heading = "Posterior predictive checks",
    )]
    pub(crate) simulator: Option<String>,
    /// The same with a program of your own (see brenier simulate)
    #[arg(long, value_name = "COMMAND", help_heading = "Posterior predictive checks")]
    pub(crate) command: Option<String>,
    /// Prior file that names the program's parameters in its order [default: the model's target columns]
    #[arg(long, value_name = "FILE", requires = "command", help_heading = "Posterior predictive checks")]
    pub(crate) prior: Option<PathBuf>,
    /// Seconds after which a simulation without an answer has failed; also for the program's first line
    /// [default: none]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Posterior predictive checks")]
    pub(crate) timeout: Option<f64>,
    /// Seconds that a program may take until its first line [default: --timeout, or 120]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Posterior predictive checks")]
    pub(crate) start_timeout: Option<f64>,
    /// Observations to simulate at
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Posterior predictive checks")]
    predictive_observations: usize,
    /// Simulations at each
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Posterior predictive checks")]
    predictive_draws: usize,
}

#[derive(Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) checking: CheckingArguments,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    /// Exit with 0, 3 or 4 according to the verdict
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Args)]
pub(crate) struct ReportArguments {
    #[command(flatten)]
    pub(crate) checking: CheckingArguments,
    /// Page to write (HTML)
    #[arg(long, value_name = "FILE.html")]
    pub(crate) out: PathBuf,
    /// Heading of the page
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    #[command(flatten)]
    pub(crate) observations: ObservationArguments,
    /// Row, from 1, of the held-out table to take as the observation; may be given more than once
    #[arg(long = "row", value_name = "N")]
    pub(crate) rows: Vec<usize>,
}

#[derive(Args)]
pub(crate) struct CalibrateArguments {
    /// Table of pairs: the truth
    #[arg(value_name = "PAIRS")]
    pub(crate) pairs: PathBuf,
    /// Table of draws
    #[arg(value_name = "DRAWS")]
    pub(crate) draws: PathBuf,
    /// Columns of the parameters, in both tables
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) target: Selection,
    /// Columns of PAIRS that the draws are conditional on; without them a method that ignores them passes
    #[arg(long, value_name = "COLUMNS")]
    pub(crate) given: Option<Selection>,
    /// Column of DRAWS with the row, from 1, of the pair
    #[arg(long, alias = "observation", value_name = "COLUMN", default_value = "observation")]
    pub(crate) observation_column: String,
    /// Column of both tables with the method's log density, up to a constant of each pair
    #[arg(long, value_name = "COLUMN")]
    pub(crate) log_density: Option<String>,
    /// Level of bands and tests, all tests together
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub(crate) level: f64,
    /// Seed of reference points and ties
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) json: JsonArguments,
    /// Exit with 3 if a check speaks against the draws
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}
