//! The command line of `simulate` and `abc`, the commands that run models. Parsing only.

use std::path::PathBuf;

use brenier::abc::{AbcMethod, AbcSettings};
use brenier::simulate::{SIMULATORS, Shard, SimulatorOptions};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::args::{TableArguments, one_of, whole};
use crate::cluster_args::shard;

pub(crate) const SIMULATE_HELP: &str = "\
Models:
  lotka-volterra        predators and prey, a jump process; parameters
                        theta_1..theta_4 (log-uniform between e^-5 and e^2),
                        nine summaries of the path
  lotka-volterra-paths  the same, with the numbers at t = 0, 0.2, …, 29.8
  linear-gaussian       three parameters, four outputs; Gaussian posterior
  two-moons             two parameters, two outputs; the posterior is two
                        crescents
  shallow-water         100 depths x1..x100 of a basin (metres), 20 000
                        Fourier features y1.. of its waves, with noise

Examples:
  brenier simulate lotka-volterra -n 50000 --out lv.parquet
  brenier fit lv.parquet --target theta_1..theta_4 --given rest \\
      --support theta_1..theta_4=log --out lv.brenier

  brenier simulate --command 'python3 sim.py' --prior prior.toml -n 50000 \\
      --out sims.csv
  brenier simulate --command 'python3 sim.py' --prior prior.toml -n 50000 \\
      --out sims.csv --resume

  # on one machine
  brenier simulate lotka-volterra -n 1000000 --shard 1/2 --out part1.parquet
  # on another
  brenier simulate lotka-volterra -n 1000000 --shard 2/2 --out part2.parquet
  brenier simulate --merge part1.parquet part2.parquet --out lv.parquet

  brenier simulate lotka-volterra-paths --parameters draws.csv \\
      --out predictive.csv

  # near an observation: a narrower prior than the model's own
  brenier simulate lotka-volterra --prior box.toml -n 100000 --out near.npy

  brenier simulate shallow-water -n 1000 --out waves.parquet
  brenier simulate shallow-water --parameters depths.csv --noise-free \\
      --outputs amplitudes --out surfaces.npy

A prior file declares every parameter:
  [[prior]]
  name = \"rate\"
  kind = \"log-uniform\"
  low = 0.01
  high = 10.0
Other kinds and their keys:
  uniform, integer-uniform    low, high
  normal                      mean, sd
  log-normal                  log_mean, log_sd
  half-normal                 sd
  truncated-normal            mean, sd, low, high
  student-t                   df, location, scale
  exponential                 rate or mean
  gamma                       shape, scale or rate
  beta                        alpha, beta
  dirichlet                   names, concentration
  multivariate-normal         names, mean, covariance
  table                       file, columns

A program of your own reads standard input and answers each line with one line, flushed:
  brenier 1 rate …          outputs NAME…                    once, at the start
  run SEED VALUE…           done VALUE…  or  abandon  or  fail WORDS

One worker runs for each of --threads. While it runs, finished rows are kept in TABLE.partial; it is removed \
after success and kept when Ctrl-C or a crash ends the run, so that --resume continues. Rows that failed are \
listed in TABLE.failed.csv, with their parameters and the reason. See docs/simulate.md.";

/// A built-in model, or a user's own program with its prior.
#[derive(Args)]
pub(crate) struct ModelArguments {
    /// Built-in model
    #[arg(value_parser = PossibleValuesParser::new(SIMULATORS), conflicts_with = "command")]
    pub(crate) model: Option<String>,
    /// Program to simulate with, and its arguments
    #[arg(long, value_name = "COMMAND", requires = "prior", help_heading = "Your own program")]
    pub(crate) command: Option<String>,
    /// Prior of the program's parameters, or one for a built-in model in place of its own (TOML)
    #[arg(long, value_name = "FILE", help_heading = "Your own program")]
    pub(crate) prior: Option<PathBuf>,
    /// Seconds after which a row without an answer has failed; also for the program's first line [default: none]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Your own program")]
    pub(crate) timeout: Option<f64>,
    /// Seconds that a program may take until its first line [default: --timeout, or 120]
    #[arg(long, value_name = "S", requires = "command", help_heading = "Your own program")]
    pub(crate) start_timeout: Option<f64>,
    /// Times a row is tried again when its worker dies
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Your own program")]
    pub(crate) retries: u32,
}

#[derive(Args)]
pub(crate) struct SimulateArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Rows of the table
    #[arg(short, long = "rows", value_name = "N", value_parser = whole, conflicts_with = "parameters")]
    pub(crate) n: Option<usize>,
    /// Table to write; - is CSV on standard output
    #[arg(long, value_name = "TABLE")]
    pub(crate) out: PathBuf,
    /// Seed: the same rows for the same seed, whatever the number of threads
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Make only part I of K of the table; slurm: the part of this task of a SLURM array
    #[arg(long, value_name = "I/K|slurm", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
    /// Simulate at the parameters in the rows of this table instead of prior draws
    #[arg(long, value_name = "TABLE")]
    pub(crate) parameters: Option<PathBuf>,
    /// Leave out the noise of the observation (linear-gaussian, shallow-water)
    #[arg(long, conflicts_with = "command")]
    noise_free: bool,
    /// Outputs of shallow-water: amplitudes, features or projected [default: features]
    #[arg(long, value_name = "KIND", conflicts_with = "command")]
    outputs: Option<String>,
    /// Table with the matrix of the projected outputs: a row for each hour 0…100 and cell 2…99, a column for each output
    #[arg(long, value_name = "TABLE", conflicts_with = "command")]
    projection: Option<PathBuf>,
    /// Continue from TABLE.partial if there is one
    #[arg(long)]
    pub(crate) resume: bool,
    /// Put tables made with --shard together, in this order
    #[arg(
        long,
        value_name = "TABLE",
        num_args = 1..,
        conflicts_with_all = ["model", "command", "n", "shard", "parameters", "resume"],
    )]
    pub(crate) merge: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
}

impl SimulateArguments {
    /// What the flags ask of a built-in model.
    pub(crate) fn options(&self) -> SimulatorOptions {
        SimulatorOptions {
            outputs: self.outputs.clone(),
            projection: self.projection.clone(),
            noise_free: self.noise_free,
        }
    }
}

pub(crate) const ABC_HELP: &str = "\
Distances are Euclidean, each output divided by its standard deviation over prior simulations.

Examples:
  brenier abc lotka-volterra --observed observed.csv --tolerance 0.1 \\
      --out particles.csv
  brenier abc two-moons --observed observed.csv --tolerance 0.02 \\
      --particles 5000 --out p.parquet
  brenier abc --command 'python3 sim.py' --prior prior.toml --timeout 10 \\
      --observed observed.csv --minutes 60 --out particles.csv
  brenier abc linear-gaussian --observed observed.csv --method rejection \\
      --particles 1000 --simulations 1000000 --out nearest.csv

The table holds the parameters, their weight (the weights sum to 1) and the distance of their simulation.

A settings file holds the same settings; a flag overrides it:
  particles = 2000
  tolerance = 0.1
  decay = 0.85
  seed = 7

While it runs, the state is kept in TABLE.checkpoint; it is removed after success and kept when Ctrl-C, a \
budget or a crash ends the run, so that --resume continues and ends in the same bits. Ctrl-C and budgets write \
the particles of the last finished round. See docs/abc.md.";

#[derive(Args)]
pub(crate) struct AbcArguments {
    #[command(flatten)]
    pub(crate) model: ModelArguments,
    /// Table with the model's outputs; other columns are ignored
    #[arg(long, value_name = "TABLE")]
    pub(crate) observed: PathBuf,
    /// Row, from 1, of the --observed table to take as the observation [default: its only row]
    #[arg(long, value_name = "N")]
    pub(crate) row: Option<usize>,
    /// Table of weighted particles to write; - is CSV on standard output
    #[arg(long, value_name = "TABLE")]
    pub(crate) out: PathBuf,
    /// Settings file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Table of prior simulations whose standard deviations scale the outputs, instead of a pilot
    #[arg(long, value_name = "TABLE")]
    pub(crate) scale: Option<PathBuf>,
    /// Continue from TABLE.checkpoint if there is one
    #[arg(long)]
    pub(crate) resume: bool,
    /// Seconds between checkpoints
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub(crate) checkpoint_seconds: f64,
    /// Write every event of the run to this file, one JSON object per line
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tables: TableArguments,
    #[command(flatten)]
    pub(crate) settings: AbcFlags,
}

/// The fields of [`AbcSettings`] as flags; what is not given is left as it was.
#[derive(Args)]
pub(crate) struct AbcFlags {
    /// Algorithm [default: smc]
    #[arg(long, help_heading = "Search", value_parser = one_of::<AbcMethod>(&["smc", "rejection"]))]
    method: Option<AbcMethod>,
    /// Particles [default: 2000]
    #[arg(long, value_name = "N", help_heading = "Search")]
    particles: Option<usize>,
    /// Distance to reach, in prior standard deviations
    #[arg(long, value_name = "DISTANCE", help_heading = "Search")]
    tolerance: Option<f64>,
    /// Part of one round's distances below the next tolerance [default: 0.5]
    #[arg(long, value_name = "PART", help_heading = "Search", conflicts_with = "decay")]
    quantile: Option<f64>,
    /// Factor from one tolerance to the next, instead of a quantile
    #[arg(long, value_name = "FACTOR", help_heading = "Search")]
    decay: Option<f64>,
    /// First tolerance with --decay [default: 10]
    #[arg(long, value_name = "DISTANCE", help_heading = "Search")]
    start_tolerance: Option<f64>,
    /// Covariance of the moves, in covariances of the particles [default: 2]
    #[arg(long, value_name = "FACTOR", help_heading = "Search")]
    kernel_factor: Option<f64>,
    /// Resample when the effective part of the particles is below this [default: 0.5]
    #[arg(long, value_name = "PART", help_heading = "Search")]
    resample_below: Option<f64>,
    /// Prior simulations that decide the outputs' scales [default: 10000]
    #[arg(long, value_name = "N", help_heading = "Search")]
    pilot: Option<u64>,
    /// Maximum number of simulations
    #[arg(long = "simulations", value_name = "N", help_heading = "Search")]
    max_simulations: Option<u64>,
    /// Time limit in minutes
    #[arg(long, value_name = "M", help_heading = "Search")]
    minutes: Option<f64>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_name = "N", help_heading = "Search")]
    seed: Option<u64>,
}

impl AbcFlags {
    /// Writes the flags that were given over `settings`.
    pub(crate) fn overlay(&self, settings: &mut AbcSettings) {
        fn set<T: Copy>(field: &mut T, flag: Option<T>) {
            *field = flag.unwrap_or(*field);
        }
        set(&mut settings.method, self.method);
        set(&mut settings.particles, self.particles);
        set(&mut settings.quantile, self.quantile);
        set(&mut settings.start_tolerance, self.start_tolerance);
        set(&mut settings.kernel_factor, self.kernel_factor);
        set(&mut settings.resample_below, self.resample_below);
        set(&mut settings.pilot, self.pilot);
        set(&mut settings.seed, self.seed);
        settings.tolerance = self.tolerance.or(settings.tolerance);
        settings.decay = if self.quantile.is_some() { None } else { self.decay.or(settings.decay) };
        settings.max_simulations = self.max_simulations.or(settings.max_simulations);
        settings.minutes = self.minutes.or(settings.minutes);
    }
}
