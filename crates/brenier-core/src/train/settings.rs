//! Settings of a training run: one struct for TOML, command line and library.

use serde::{Deserialize, Serialize};

use super::AdamSettings;
use crate::{Error, Result};

/// How the learning rate falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Schedule {
    /// It drops when validations bring nothing better, and the last drop ends the run.
    #[default]
    Plateau,
    /// λ ½ (1 + cos πt) where t is the part of the epochs that is over: the run lasts all its epochs, and is best when
    /// it ends.
    Cosine,
}

/// How a map is trained.
///
/// Minibatch Adam; every [`validate_every`](Self::validate_every) steps the validation rows are scored, the
/// best weights, or the best [average](Self::weight_average) of weights, copied, and, unless the [`schedule`](Self::schedule()) says otherwise, the learning rate multiplied by
/// [`drop_factor`](Self::drop_factor) when [`patience`](Self::patience) validations in a row brought nothing better. The
/// run ends at the drop number [`max_drops`](Self::max_drops), after [`epochs`](Self::epochs) epochs,
/// [`max_steps`](Self::max_steps) steps or [`minutes`](Self::minutes) minutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainSettings {
    /// Rows per step; `None` chooses by the method and the table.
    pub batch_size: Option<usize>,
    /// Adam's step size at the start; `None` chooses by the method.
    pub learning_rate: Option<f64>,
    /// Largest norm of a step's gradient, which is scaled down to it; 0 for no such limit, `None` leaves it to the method.
    pub clip: Option<f64>,
    /// Decay of the moving average of the weights that is validated beside the weights, the better of the two being kept;
    /// 0 for none, `None` leaves it to the method.
    pub weight_average: Option<f64>,
    /// How the learning rate falls; `None` leaves it to the method.
    pub schedule: Option<Schedule>,
    /// Passes over the training rows at most, after a warm start.
    pub epochs: u32,
    /// Steps at most, whatever the epochs and those of a warm start included; the cosine falls over the smaller of the two budgets.
    pub max_steps: Option<u64>,
    /// Steps between validations; 0 chooses at least 50, and as many as keep validation below a fifth of the time.
    pub validate_every: usize,
    /// Validations without improvement before the learning rate drops; `None` leaves it to the method.
    pub patience: Option<u32>,
    /// Factor of a drop; `None` leaves it to the method.
    pub drop_factor: Option<f64>,
    /// The drop that ends the run; `None` leaves it to the method.
    pub max_drops: Option<u32>,
    /// Whether a drop goes back to the best weights so far.
    pub rewind: bool,
    /// Fraction of the rows held out for validation.
    pub valid_fraction: f64,
    /// Rows held out for validation at most.
    pub max_valid_rows: usize,
    /// Time budget in minutes, for each run of its own when a fit is resumed.
    pub minutes: Option<f64>,
    /// Adam's constants and the weight decay.
    pub adam: AdamSettings,
}

impl Default for TrainSettings {
    fn default() -> Self {
        Self {
            batch_size: None,
            learning_rate: None,
            clip: None,
            weight_average: None,
            schedule: None,
            epochs: 1000,
            max_steps: None,
            validate_every: 0,
            patience: None,
            drop_factor: None,
            max_drops: None,
            rewind: true,
            valid_fraction: 0.1,
            max_valid_rows: 20_000,
            minutes: None,
            adam: AdamSettings::default(),
        }
    }
}

/// Rows per step by default.
const BATCH_SIZE: usize = 64;
/// Adam's step size by default.
const LEARNING_RATE: f64 = 0.005;
/// Validations without improvement before a drop, its factor, and the last of them, by default.
const PATIENCE: u32 = 20;
const DROP_FACTOR: f64 = 0.5;
const MAX_DROPS: u32 = 4;

impl TrainSettings {
    /// Rows per step.
    pub fn batch_size(&self) -> usize {
        self.batch_size.unwrap_or(BATCH_SIZE)
    }

    /// Adam's step size at the start.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate.unwrap_or(LEARNING_RATE)
    }

    /// Decay of the average of the weights; 0 for none.
    pub fn weight_average(&self) -> f64 {
        self.weight_average.unwrap_or(0.0)
    }

    /// How the learning rate falls.
    pub fn schedule(&self) -> Schedule {
        self.schedule.unwrap_or_default()
    }

    /// Validations without improvement before the learning rate drops.
    pub fn patience(&self) -> u32 {
        self.patience.unwrap_or(PATIENCE)
    }

    /// Factor of a drop.
    pub fn drop_factor(&self) -> f64 {
        self.drop_factor.unwrap_or(DROP_FACTOR)
    }

    /// The drop that ends the run.
    pub fn max_drops(&self) -> u32 {
        self.max_drops.unwrap_or(MAX_DROPS)
    }

    /// Checks every value.
    pub fn validate(&self) -> Result<()> {
        let above = |name: &str, value: f64, low: f64, high: f64| {
            let range = format!("above {low} and below {high}");
            if value > low && value < high { Ok(()) } else { Err(Error::outside(name, value, &range)) }
        };
        let from = |name: &str, value: f64, low: f64, high: f64| {
            let range = format!("at least {low} and below {high}");
            if value >= low && value < high { Ok(()) } else { Err(Error::outside(name, value, &range)) }
        };
        let positive = |name: &str, value: usize| {
            if value > 0 { Ok(()) } else { Err(Error::setting(name, "must be at least 1")) }
        };
        let batch_size = self.batch_size();
        positive("batch_size", batch_size)?;
        if batch_size > 1 << 20 {
            return Err(Error::setting("batch_size", format!("{batch_size} is more than 1048576")));
        }
        positive("epochs", self.epochs as usize)?;
        if self.max_steps == Some(0) {
            return Err(Error::setting("max_steps", "must be at least 1"));
        }
        positive("patience", self.patience() as usize)?;
        positive("max_drops", self.max_drops() as usize)?;
        positive("max_valid_rows", self.max_valid_rows)?;
        above("learning_rate", self.learning_rate(), 0.0, 10.0)?;
        from("clip", self.clip.unwrap_or(0.0), 0.0, f64::INFINITY)?;
        from("weight_average", self.weight_average(), 0.0, 1.0)?;
        above("drop_factor", self.drop_factor(), 0.0, 1.0)?;
        above("valid_fraction", self.valid_fraction, 0.0, 1.0)?;
        from("beta1", self.adam.beta1, 0.0, 1.0)?;
        from("beta2", self.adam.beta2, 0.0, 1.0)?;
        above("epsilon", self.adam.epsilon, 0.0, 1.0)?;
        from("weight_decay", self.adam.weight_decay.unwrap_or(0.0), 0.0, 1e3)?;
        if let Some(minutes) = self.minutes {
            above("minutes", minutes, 0.0, 1e6)?;
        }
        Ok(())
    }

    /// Steps between validations for a validation set of `valid_rows` rows, of which each costs `loss_cost` times as
    /// much as a row of a step.
    pub(crate) fn validation_interval(&self, valid_rows: usize, loss_cost: f64) -> usize {
        match self.validate_every {
            0 => 50.max((6.0 * loss_cost * valid_rows.div_ceil(self.batch_size()) as f64).round() as usize),
            steps => steps,
        }
    }
}
