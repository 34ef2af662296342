//! Conditional optimal transport: learn a posterior map from pairs, then sample, score and maximise it.

mod error;
mod fit;
mod kernel;
mod posterior;

pub mod data;
pub mod demo;
pub mod map;
pub mod report;
pub mod store;
pub mod train;
pub mod transform;

pub use error::{Error, Result};
pub use fit::{FitControl, FitSettings, Fitted, Method, NetworkSettings, fit};
pub use kernel::Real;
pub use posterior::{Draws, Header, LogDensities, Mode, ModeSettings, Posterior, TrainingSummary, Units};
