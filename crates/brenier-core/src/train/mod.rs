//! Training: settings, optimiser, schedule, loop, checkpoints and observers.

mod adam;
mod average;
mod checkpoint;
mod nearby;
mod observe;
mod run;
mod settings;
#[cfg(test)]
mod tests;

pub use crate::parallel::keep_awake;
pub use adam::{Adam, AdamSettings};
pub use nearby::Nearby;
pub use observe::{Progress, Stop, TrainEvent};
pub(crate) use run::spread;
pub use run::{Dataset, FreshNoise, Outcome, StepRandom, train};
pub use settings::{Schedule, TrainSettings};
