//! Conditional optimal transport: learn a posterior map from pairs, then sample, score and maximise it.

mod error;

pub mod data;
pub mod report;
pub mod store;
pub mod transform;

pub use error::{Error, Result};
