//! The flags of `brenier fit` and `brenier tune`.

use std::path::PathBuf;

use brenier::data::Selection;
use brenier::train::Schedule;
use brenier::transform::{Asinh, ExchangeableRule, NoiseRule, PcaSettings, Scaling, SupportRule, Whiten};
use brenier::tune::TuneSettings;
use brenier::{FitSettings, MethodChoice};
use clap::Args;

use crate::args::{TableArguments, one_of, setting};
use crate::method_args::{MethodFlags, by_method, method_choice, published_pilots};

pub(crate) const FIT_HELP: &str = "\
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

pub(crate) const TUNE_HELP: &str = "\
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
    /// Given columns that the map sees on an asinh scale, linear near the centre and logarithmic far out: auto finds those whose
    /// values span orders of magnitude; none; or columns by name [default: auto]
    #[arg(long, value_name = "auto|none|COLUMNS", value_parser = setting::<Asinh>, help_heading = "Columns")]
    asinh: Option<Asinh>,
    /// Standard deviation of the noise of given columns that are free of it in the table, as in 0.25 for all, or y1..y9=0.25; training
    /// adds it anew to every row of every step. May be repeated; rest stands for the columns that no other one names
    #[arg(long, value_name = "[COLUMNS=]SD", value_parser = setting::<NoiseRule>, help_heading = "Columns")]
    noise: Vec<NoiseRule>,
    /// Further noise of given columns in training alone, against overfitting the noise of the table; written as --noise
    #[arg(long, value_name = "[COLUMNS=]SD", value_parser = setting::<NoiseRule>, help_heading = "Columns")]
    jitter: Vec<NoiseRule>,
    /// Learn a network that imitates the simulator first; training then moves every row a little in every step, by this part of the
    /// spread of all rows, as in 0.1. Against overfitting too few simulations
    #[arg(long, value_name = "SPREAD", help_heading = "Columns")]
    surrogate: Option<f64>,
    /// Widths of that network [default: 512,512,512]
    #[arg(
        long,
        value_name = "WIDTH,…",
        value_delimiter = ',',
        help_heading = "Columns",
        requires = "surrogate"
    )]
    surrogate_widths: Option<Vec<usize>>,
    /// Passes over the rows by that network [default: 30, more where rows are few]
    #[arg(long, value_name = "N", help_heading = "Columns")]
    surrogate_epochs: Option<u32>,
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
        set(&mut settings.asinh, self.asinh);
        settings.noise.rules.extend(self.noise);
        settings.jitter.rules.extend(self.jitter);
        fill(&mut settings.surrogate, self.surrogate);
        set(&mut settings.surrogate_widths, self.surrogate_widths);
        fill(&mut settings.surrogate_epochs, self.surrogate_epochs);
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
