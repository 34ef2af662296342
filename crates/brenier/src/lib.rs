//! Conditional optimal transport: learn a posterior map from pairs, then sample, score and maximise it.

mod error;
mod kernel;

pub mod data;
pub mod map;
pub mod report;
pub mod store;
pub mod train;
pub mod transform;

pub use error::{Error, Result};
pub use kernel::Real;
