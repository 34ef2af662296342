//! The command line of `plot`. Parsing only.

use std::path::PathBuf;
use std::str::FromStr;

use brenier::data::Selection;
use brenier::report::DOTS_PER_INCH;
use brenier::simulate::SIMULATORS;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use crate::args::{TableArguments, whole};

pub(crate) const PLOT_HELP: &str = "\
Pictures are SVG or PNG, by the ending of --out. See docs/figures.md.";

const PAIRS_HELP: &str = "\
Examples:
  brenier plot pairs draws.csv --out posterior.svg
  brenier plot pairs draws.csv particles.csv --weights weight \\
      --labels PCP-Map,SMC-ABC --log-columns rest \\
      --truth theta_1=0.01,theta_2=0.5,theta_3=1,theta_4=0.01 \\
      --names θ₁,θ₂,θ₃,θ₄ --out posterior.png
  brenier mode model.brenier --observed observed.csv --out mode.csv
  brenier plot pairs draws.csv --mode mode.csv --out posterior.svg

Lines bound the regions of highest density, by a kernel estimate, that hold 50 % and 90 % of the draws, by weight \
where they have weights. On a logarithmic axis the density is that of the logarithm; a mode beside it is found by \
brenier mode --density standardised.";

const PREDICTIVE_HELP: &str = "\
Examples:
  brenier plot predictive --posterior lv.brenier --observed observed.csv \\
      --simulator lotka-volterra-paths \\
      --truth theta_1=0.01,theta_2=0.5,theta_3=1,theta_4=0.01 \\
      --out predictive.svg
  brenier plot predictive --posterior lv.brenier --observed observed.csv \\
      --simulator lotka-volterra --out fit.svg
  brenier plot predictive --posterior m.brenier --at y=1 \\
      --command 'python3 sim.py' --prior prior.toml --out p.png

  # or in two steps
  brenier simulate lotka-volterra-paths --parameters draws.csv --out paths.csv
  brenier plot predictive paths.csv --observed path.csv --time-unit years \\
      --out predictive.svg

Outputs named STEM_TIME, as prey_0, prey_0.2 and so on, are a time series: the picture shows their median, bands \
of 50 % and 90 % and a few single draws. Other outputs get a histogram each, with the observed value and the part \
of the draws below it.";

const CURVES_HELP: &str = "\
Examples:
  brenier plot curves errors.csv --x steps --y error --log-x --log-y \\
      --out error.svg
  brenier plot curves times.csv --x seconds --y pcp,cot \\
      --error pcp_sd,cot_sd --out times.png
  brenier fit data.csv --target x --given rest --quick --log run.jsonl \\
      --out model.brenier
  brenier plot curves run.jsonl --x step --y train_nll,valid_nll --log-x \\
      --y-name NLL --out training.svg";

#[derive(Subcommand)]
pub(crate) enum PlotCommand {
    /// Marginal and joint densities of the columns of one or more tables of draws
    #[command(after_help = PAIRS_HELP, allow_negative_numbers = true)]
    Pairs(PairsArguments),
    /// What the posterior predicts: bands over time, or histograms, with what was observed
    #[command(after_help = PREDICTIVE_HELP, allow_negative_numbers = true)]
    Predictive(Box<PredictiveArguments>),
    /// Columns of a table, or of a training log, against another
    #[command(after_help = CURVES_HELP, allow_negative_numbers = true)]
    Curves(CurvesArguments),
}

#[derive(Args)]
pub(crate) struct PictureArguments {
    /// Picture to write, .svg or .png
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Dots an inch of a .png
    #[arg(long, value_name = "N", default_value_t = DOTS_PER_INCH)]
    pub(crate) dpi: f64,
    /// Width and height in points, 1/72 inch [default: by the content]
    #[arg(long, value_name = "W,H", value_parser = two::<u32>)]
    pub(crate) size: Option<[u32; 2]>,
}

#[derive(Args)]
pub(crate) struct PairsArguments {
    /// Tables of draws, one colour each
    #[arg(required = true, value_name = "TABLE")]
    pub(crate) tables: Vec<PathBuf>,
    /// Columns to draw, as in x1,x2 or x1..x4 [default: all that the tables share, weights apart]
    #[arg(long, value_name = "COLUMNS", default_value = "rest", hide_default_value = true)]
    pub(crate) columns: Selection,
    /// Column of weights, in the tables that have it
    #[arg(long, value_name = "COLUMN")]
    pub(crate) weights: Option<String>,
    /// Row, from 1, of the observations drawn at, where a table has the column observation
    #[arg(long, value_name = "N")]
    pub(crate) observation: Option<usize>,
    /// Values to mark as the truth: name=value,… or a table of one row
    #[arg(long, value_name = "VALUES|TABLE")]
    pub(crate) truth: Option<String>,
    /// Values to mark as the mode: name=value,… or a table of one row, as mode writes
    #[arg(long, value_name = "VALUES|TABLE")]
    pub(crate) mode: Option<String>,
    /// Columns with a logarithmic axis; rest is all
    #[arg(long, alias = "log", value_name = "COLUMNS")]
    pub(crate) log_columns: Option<Selection>,
    /// What the legend calls the tables [default: their names]
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// What the axes call the columns [default: their names]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// Units of the columns; empty for none
    #[arg(long, value_name = "UNIT,…", value_delimiter = ',')]
    pub(crate) units: Vec<String>,
    #[command(flatten)]
    pub(crate) reading: TableArguments,
    #[command(flatten)]
    pub(crate) picture: PictureArguments,
}

#[derive(Args)]
pub(crate) struct PredictiveArguments {
    /// Table of simulated outputs, one draw per row, instead of --posterior
    #[arg(value_name = "TABLE", required_unless_present = "posterior", conflicts_with = "posterior")]
    pub(crate) table: Option<PathBuf>,
    /// Model to draw parameters from
    #[arg(long, value_name = "MODEL", help_heading = "Simulation")]
    pub(crate) posterior: Option<PathBuf>,
    /// Table of observations: the posterior is taken at its given columns, and its outputs are laid over the predicted
    /// ones
    #[arg(long, value_name = "TABLE")]
    pub(crate) observed: Option<PathBuf>,
    /// The old name of --observed, when --observed was the table to lay over
    #[arg(long, value_name = "TABLE", hide = true, conflicts_with_all = ["at", "overlay"], requires = "posterior")]
    pub(crate) given: Option<PathBuf>,
    /// One observation: a value for each given column, named as for --target: y1=0.3, '"a,b"=1', '#2=0', y1..y3=0
    #[arg(long, value_name = "NAME=VALUE,…", allow_hyphen_values = true)]
    pub(crate) at: Vec<String>,
    /// Row, from 1, of the --observed table to take as the observation [default: its only row]
    #[arg(long, alias = "observation", value_name = "N")]
    pub(crate) row: Option<usize>,
    /// Built-in model to simulate with
    #[arg(
        long,
        value_name = "NAME",
        requires = "posterior",
        conflicts_with = "command",
        value_parser = PossibleValuesParser::new(SIMULATORS),
        help_heading = "Simulation"
    )]
    pub(crate) simulator: Option<String>,
    /// Program to simulate with, as for simulate
    #[arg(long, value_name = "COMMAND", requires_all = ["posterior", "prior"], help_heading = "Simulation")]
    pub(crate) command: Option<String>,
    /// Names of the program's parameters: its prior (TOML)
    #[arg(long, value_name = "FILE", requires = "command", help_heading = "Simulation")]
    pub(crate) prior: Option<PathBuf>,
    /// Seconds after which a row of the program without an answer has failed; also for its first line [default: none]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Simulation")]
    pub(crate) timeout: Option<f64>,
    /// Seconds that the program may take until its first line [default: --timeout, or 120]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Simulation")]
    pub(crate) start_timeout: Option<f64>,
    /// Draws from the posterior, each simulated once
    #[arg(
        short,
        long = "draws",
        value_name = "N",
        default_value = "1000",
        value_parser = whole,
        help_heading = "Simulation"
    )]
    pub(crate) n: usize,
    /// Seed of draws and simulations
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Simulation")]
    pub(crate) seed: u64,
    /// Parameters to simulate one path at and lay over the others: name=value,… or a table of one row
    #[arg(long, value_name = "VALUES|TABLE", requires = "posterior", help_heading = "Simulation")]
    pub(crate) truth: Option<String>,
    /// Table of one row with outputs to lay over the predicted ones, where they are not in the --observed table
    #[arg(long, value_name = "TABLE")]
    pub(crate) overlay: Option<PathBuf>,
    /// Time series to draw, by the stems of their columns [default: all of the longest]
    #[arg(long, value_name = "STEM,…", value_delimiter = ',', conflicts_with = "histograms")]
    pub(crate) series: Vec<String>,
    /// Histograms of these outputs, even if they are time series
    #[arg(long, value_name = "COLUMNS", num_args = 0..=1, default_missing_value = "rest")]
    pub(crate) histograms: Option<Selection>,
    /// What the axes call series or outputs [default: their names]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// Units of series or outputs; empty for none
    #[arg(long, value_name = "UNIT,…", value_delimiter = ',')]
    pub(crate) units: Vec<String>,
    /// Unit of the times
    #[arg(long, value_name = "UNIT")]
    pub(crate) time_unit: Option<String>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    #[command(flatten)]
    pub(crate) picture: PictureArguments,
}

impl PredictiveArguments {
    /// The table of observations at which the posterior is taken.
    pub(crate) fn conditions(&self) -> Option<&PathBuf> {
        let observed = self.observed.as_ref().filter(|_| self.posterior.is_some() && self.at.is_empty());
        self.given.as_ref().or(observed)
    }

    /// The table of outputs to lay over the predicted ones.
    pub(crate) fn overlay(&self) -> Option<&PathBuf> {
        let observed = self.observed.as_ref();
        self.overlay.as_ref().or(observed.filter(|observed| self.conditions() != Some(observed)))
    }
}

#[derive(Args)]
pub(crate) struct CurvesArguments {
    /// Table, or training log (.jsonl)
    pub(crate) table: PathBuf,
    /// Column of the horizontal axis
    #[arg(long, value_name = "COLUMN")]
    pub(crate) x: String,
    /// Columns to draw, one curve each
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', required = true)]
    pub(crate) y: Vec<String>,
    /// Columns of half lengths of error bars, one for each of --y
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) error: Vec<String>,
    /// What the legend calls the curves [default: the columns' names]
    #[arg(long, value_name = "LABEL,…", value_delimiter = ',')]
    pub(crate) labels: Vec<String>,
    /// Logarithmic horizontal axis
    #[arg(long)]
    pub(crate) log_x: bool,
    /// Logarithmic vertical axis
    #[arg(long)]
    pub(crate) log_y: bool,
    /// Name of the horizontal axis [default: the column's]
    #[arg(long, value_name = "NAME")]
    pub(crate) x_name: Option<String>,
    /// Name of the vertical axis [default: that of the only column]
    #[arg(long, value_name = "NAME")]
    pub(crate) y_name: Option<String>,
    /// Units of the two axes; empty for none
    #[arg(long, value_name = "X,Y", value_parser = two::<String>)]
    pub(crate) units: Option<[String; 2]>,
    /// Part of the horizontal axis to show
    #[arg(long, value_name = "LOW,HIGH", value_parser = two::<f64>, allow_hyphen_values = true)]
    pub(crate) x_limits: Option<[f64; 2]>,
    /// Part of the vertical axis to show
    #[arg(long, value_name = "LOW,HIGH", value_parser = two::<f64>, allow_hyphen_values = true)]
    pub(crate) y_limits: Option<[f64; 2]>,
    /// Horizontal line to compare with, as in 'unit Gaussian=1.42'
    #[arg(long, value_name = "LABEL=VALUE", allow_hyphen_values = true)]
    pub(crate) line: Vec<String>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    #[command(flatten)]
    pub(crate) picture: PictureArguments,
}

/// Two values with a comma between them.
fn two<T: FromStr>(text: &str) -> Result<[T; 2], String> {
    let parts: Option<Vec<T>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    parts
        .and_then(|parts| parts.try_into().ok())
        .ok_or_else(|| "write two values with a comma between".to_owned())
}
