//! Whether samples can be trusted: distances and tests between samples, calibration of posteriors.
//!
//! Nothing here knows how a sample was made. A [`Sample`] is a table of rows, with weights where it came from
//! importance sampling, so that every check judges any method, any program's output and the truth alike.
//!
//! All results are the same bits for the same seed, whatever the number of threads.

mod mmd;
mod sample;

pub use mmd::{Bandwidth, Mmd, MmdTest, MmdTestSettings, mmd, mmd_test};
pub use sample::Sample;
