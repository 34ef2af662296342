//! Conditional transport maps: the layer that knows no file formats, pictures, programs or networks.
//!
//! Tables come from [`brenier_data`]. [`transform`] makes them fit for a map, [`map`] holds the methods and their
//! derivatives, [`train`] the loop that gradient-trained methods share, [`store`] the model file. A [`Fit`] leads from a
//! table to a [`Posterior`], which answers for any observation in the user's units. The crate `brenier` re-exports all of this.

use brenier_data as data;

mod fit;
#[doc(hidden)]
pub mod kernel;
mod parallel;
mod posterior;

pub mod example;
pub mod map;
pub mod statistics;
pub mod store;
pub mod train;
pub mod transform;

pub use brenier_data::{Error, Event, EventKind, Journal, Observer, Result, Run, Silent, StopToken, Table};
/// What other layers of the library share with this one; not for its users.
#[doc(hidden)]
pub mod layer {
    pub use crate::fit::split;
    pub use crate::posterior::repeated;
}

pub use fit::{Choice, Fit, FitSettings, Fitted, MethodChoice, Prepared, Trial, fit, fit_split};
pub use kernel::Real;
pub use posterior::{
    At, Baseline, Distance, Draws, JointDraws, JointLogDensities, LogDensities, Member, Mode, ModeSettings,
    ModelInfo, Observed, OutlierScore, Posterior, ScoredRows, StepError, Straightness, Summaries,
    TrainingScores, TrainingSummary, Units,
};
