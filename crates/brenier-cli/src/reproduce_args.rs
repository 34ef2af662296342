//! The command line of `reproduce`. Parsing only.

use std::path::PathBuf;

use brenier::MethodChoice;
use brenier::map::Method;
use brenier::reproduce::lotka_volterra::LvSettings;
use brenier::reproduce::sbibm::{PUBLISHED_SIMULATIONS, SbibmSettings};
use brenier::reproduce::shallow_water::{Recipe, SwSettings};
use brenier::reproduce::{UciSettings, Variant};
use brenier::simulate::tasks::TASKS;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};

use crate::args::setting;
use crate::method_args::{method, method_choice};

pub(crate) const REPRODUCE_HELP: &str = "\
Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht --method pcp-map --exact-protocol \\
      --folds 10 --out uci
  brenier reproduce lotka-volterra --rows 50000 --out lv
  brenier reproduce sbibm --task two-moons --simulations 1000 --out sbibm
  brenier reproduce shallow-water --rows 20000 --method fresh --out waves";

pub(crate) const SBIBM_HELP: &str = "\
For every task, number of simulations, method and seed: a fit with default settings, held-out NLL, calibration, and \
C2ST and MMD of its draws against draws from the exact posterior at observations drawn from the prior predictive. Published \
C2ST are shown beside them; they belong to the official observations, which are not used here.

Examples:
  brenier reproduce sbibm --out sbibm
  brenier reproduce sbibm --task slcp,sir --simulations 1000,10000 --seeds 3 \\
      --method auto,npe --out sbibm --resume

OUT holds results.md, results.html, results.json, models, observations and reference draws. --resume repeats nothing that was finished; tasks, \
sizes, methods and the number of seeds may be others then.";

pub(crate) const UCI_HELP: &str = "\
For every data set and method: pilots on settings drawn at random, the best trained to the end with several seeds, and \
each of these models scored once on the test rows of the published split. NLL and MMD are shown beside the published \
figures, in the published (standardised) units. Validation rows alone decide. Any method may be named, with settings that \
the search leaves alone; of atm, which has nothing to search, ten folds are run, as published.

                  by default                 --exact-protocol
  pilots          16, the worse halved away  as many as published, to the end
  full trainings  3 settings x 2 seeds       10 settings x 5 seeds
  search space    narrow networks            as published

Examples:
  brenier reproduce uci --out uci
  brenier reproduce uci --dataset yacht,energy --data-dir tables --out uci \\
      --resume
  brenier reproduce uci --exact-protocol --folds 10 --out full
  brenier reproduce uci --method atm,npe:flow=nsf,npe:flow=maf,cp-flow \\
      --out rivals
  # one training of the table again
  brenier reproduce uci --dataset yacht --method pcp-map --training 11/1 \\
      --out uci

OUT holds results.md, results.html, results.json and a folder for each data set and method with its result, journal, models, \
scores.csv and results.csv (every training with its settings). --resume repeats nothing that was finished. Other data sets and \
methods that OUT holds of the same protocol stay in its table.";

pub(crate) const LV_HELP: &str = "\
Simulates training tables, trains the chosen methods on each, finds particles by SMC-ABC at two observations and compares: held-out \
NLL, posterior means, standard deviations and MAP points of log θ, C2ST and MMD against the particles, seconds for 2000 \
draws beside the published ones. Writes results.md, results.html, results.json, tables, models and pictures (SVG and PNG) into OUT.

Settings:
  pcp-map, cot-flow  those that did well here
  npe                sbi's: its maf, sizes and training
  cp-flow            its authors' for a conditional density
  atm                the published ones; it is meant for fewer rows
  others             their own

Examples:
  brenier reproduce lotka-volterra --out lv
  brenier reproduce lotka-volterra --rows 50000 --method pcp-map --out lv
  brenier reproduce lotka-volterra --observed obs1.csv,obs2.csv \\
      --other-particles abc1.csv,abc2.csv --out lv --resume

After an interruption --resume continues with what OUT holds, half-finished trainings and searches too. --rows and --method \
may be others then, not --seed, --epochs, --tolerance, --posterior-draws and --observed.";

pub(crate) const SW_HELP: &str = "\
Simulates waves in basins of random depth, finds the principal components of their noise-free features, and learns the posterior of the \
depths' leading modes from projected noisy features. Every map is judged on fresh rows: NLL in the units of the published tables beside \
the published figures, ranks of modes and depths against simultaneous bands, most probable and mean depths at one observation. The \
exact posterior, which this model allows to compute, says what could be reached.

Methods:
  pcp-map, cot-flow, cp-flow  with the published settings
  npe                         as published: sbi's nsf, 14 hidden units
  pairs                       ours: one scale, an autoregressive front, a flow
  fresh                       the same with fresh noise in every step

Adaptive transport maps (atm) are not among them: with 3500 given columns every step of their growth would have to try thousands of \
terms on all rows.

Examples:
  brenier reproduce shallow-water --out waves
  brenier reproduce shallow-water --rows 20000,50000,100000 --out waves
  brenier reproduce shallow-water --rows 2000 --components 100 --epochs 3 \\
      --test-rows 100 --rank-draws 100 --exact-rows 3 --out look

OUT holds results.md, results.html, results.json, components, models, scores and pictures (SVG and PNG). --resume continues with what OUT \
holds; --rows and --method may be others then. 100000 rows of 3500 components need about 8 GB of memory.";

#[derive(Subcommand)]
pub(crate) enum ReproduceCommand {
    /// Densities of six UCI tables: NLL and MMD beside the published ones
    #[command(after_help = UCI_HELP, allow_negative_numbers = true)]
    Uci(UciArguments),
    /// Stochastic Lotka–Volterra: maps against SMC-ABC, and what draws cost
    #[command(after_help = LV_HELP, allow_negative_numbers = true)]
    LotkaVolterra(LvArguments),
    /// Nine benchmark tasks: draws against exact posteriors, beside published figures
    #[command(after_help = SBIBM_HELP)]
    Sbibm(SbibmArguments),
    /// Depths of a basin from its waves: 14 modes from 3500 noisy features, and the exact posterior
    #[command(after_help = SW_HELP)]
    ShallowWater(SwArguments),
}

#[derive(Args)]
pub(crate) struct SwArguments {
    /// Simulations to learn from, one or more sizes
    #[arg(short = 'n', long, value_name = "N,…", value_delimiter = ',', default_values_t = SwSettings::default().rows)]
    rows: Vec<u64>,
    /// What learns from them
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(Recipe::all().map(Recipe::name)),
        default_values_t = SwSettings::default().recipes.iter().map(ToString::to_string).collect::<Vec<_>>())]
    method: Vec<String>,
    /// Principal components of the features
    #[arg(long, value_name = "N", default_value_t = SwSettings::default().components)]
    components: usize,
    /// Modes of the depths
    #[arg(long, value_name = "N", default_value_t = SwSettings::default().modes)]
    modes: usize,
    /// Fresh rows to judge maps on
    #[arg(long, value_name = "N", default_value_t = SwSettings::default().test_rows)]
    test_rows: u64,
    /// Draws for each of them, among which ranks are counted
    #[arg(long, value_name = "N", default_value_t = SwSettings::default().draws)]
    rank_draws: usize,
    /// Fresh rows at which the exact posterior is computed; 0 for none
    #[arg(long, value_name = "N", default_value_t = SwSettings::default().exact_rows)]
    exact_rows: usize,
    /// Observed features, a table of one row and 20000 columns [default: a simulated observation]
    #[arg(long, value_name = "TABLE")]
    pub(crate) observed: Option<PathBuf>,
    /// The depths behind the observed features, a table of one row and 100 columns
    #[arg(long = "true-depths", value_name = "TABLE", requires = "observed")]
    pub(crate) truth: Option<PathBuf>,
    /// Write the training tables as noisy-N.npy and noise-free-N.npy, modes first, to fit them with other settings
    #[arg(long)]
    tables: bool,
    /// Epochs of every training, fewer for a quick look
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Steps of every training at most
    #[arg(long, value_name = "N")]
    max_steps: Option<u64>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Continue with what OUT holds
    #[arg(long)]
    pub(crate) resume: bool,
}

impl SwArguments {
    pub(crate) fn settings(&self) -> brenier::Result<SwSettings> {
        Ok(SwSettings {
            rows: self.rows.clone(),
            components: self.components,
            modes: self.modes,
            recipes: self.method.iter().map(|name| name.parse()).collect::<brenier::Result<_>>()?,
            test_rows: self.test_rows,
            draws: self.rank_draws,
            exact_rows: self.exact_rows,
            tables: self.tables,
            epochs: self.epochs,
            max_steps: self.max_steps,
            seed: self.seed,
        })
    }
}

#[derive(Args)]
pub(crate) struct SbibmArguments {
    /// Tasks [default: all nine]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(TASKS))]
    task: Vec<String>,
    /// Simulations to learn from, one or more sizes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = PUBLISHED_SIMULATIONS)]
    simulations: Vec<u64>,
    /// Methods; auto tries several and fits the best, as an ensemble where that pays [default: auto]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = method_choice())]
    method: Vec<MethodChoice>,
    /// Tell the fits that the points in an observation have no order (slcp)
    #[arg(long, alias = "exchangeable")]
    exchangeable_points: bool,
    /// Training tables and fits for each task, size and method
    #[arg(long, value_name = "K", default_value_t = 1)]
    seeds: u64,
    /// Observations of each task
    #[arg(long, value_name = "N", default_value_t = 10)]
    observations: usize,
    /// Draws compared at each observation
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10_000)]
    draws: usize,
    /// Seed of test rows, observations and reference draws, and the first seed of tables and fits
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Folder to write
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Continue with what OUT holds
    #[arg(long)]
    pub(crate) resume: bool,
}

impl SbibmArguments {
    pub(crate) fn settings(&self) -> SbibmSettings {
        let defaults = SbibmSettings::default();
        let or = |named: &[String], other: Vec<String>| if named.is_empty() { other } else { named.to_vec() };
        SbibmSettings {
            tasks: or(&self.task, defaults.tasks),
            simulations: self.simulations.clone(),
            methods: if self.method.is_empty() { defaults.methods } else { self.method.clone() },
            exchangeable: self.exchangeable_points,
            seeds: self.seeds,
            seed: self.seed,
            observations: self.observations,
            draws: self.draws,
            ..SbibmSettings::default()
        }
    }
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
    no_abc: bool,
    /// Tolerance of SMC-ABC at both observations [default: 0.1 and 0.15]
    #[arg(long, value_name = "DISTANCE")]
    tolerance: Option<f64>,
    /// Epochs of every training, fewer for a quick look
    #[arg(long, value_name = "N")]
    epochs: Option<u32>,
    /// Draws at each observation, which are compared and timed; the published times are those of 2000
    #[arg(long, value_name = "N", default_value_t = 2000)]
    posterior_draws: usize,
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
    pub(crate) fn settings(&self) -> LvSettings {
        LvSettings {
            rows: self.rows.clone(),
            methods: chosen(&self.method),
            abc: !self.no_abc,
            tolerance: self.tolerance,
            epochs: self.epochs,
            draws: self.posterior_draws,
            seed: self.seed,
        }
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
    /// Methods, each with settings to fix where wanted, as in npe:flow=maf [default: those of the paper]
    #[arg(long, value_name = "METHOD,…", value_delimiter = ',', value_parser = setting::<Variant>)]
    method: Vec<Variant>,
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
    pub(crate) fn methods(&self) -> Vec<Variant> {
        match self.method.as_slice() {
            [] => Method::published().map(Variant::from).collect(),
            methods => methods.to_vec(),
        }
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
