//! Whether samples can be trusted: distances and tests between samples, calibration of posteriors.
//!
//! Nothing here knows how a sample was made. A [`Sample`] is a table of rows, with weights where it came from
//! importance sampling, so that every check judges any method, any program's output and the truth alike.
//!
//! All results are the same bits for the same seed, whatever the number of threads. What takes long has a form that a
//! [`StopToken`](crate::StopToken) ends, such as [`compare_until`].

mod c2st;
mod calibration;
mod classifier;
mod compare;
mod mmd;
mod ranks;
mod sample;
mod special;
mod wasserstein;

pub use c2st::{C2st, C2stSettings, c2st, c2st_until};
pub(crate) use calibration::REGRESSION_COLUMNS;
pub use calibration::{
    Calibration, CalibrationSettings, PairDraws, Pairs, Quantity, RankCheck, calibrate, calibrate_until,
};
pub use compare::{ColumnComparison, CompareSettings, Comparison, compare, compare_until};
pub use mmd::{Bandwidth, Mmd, MmdTest, MmdTestSettings, mmd, mmd_test, mmd_test_until, mmd_until};
pub use ranks::{Corridor, RankHistogram, Ranks, Uniformity, holm};
pub use sample::Sample;
pub(crate) use special::binomial_tail;
pub use wasserstein::{
    SlicedSettings, SlicedWasserstein, sliced_wasserstein, sliced_wasserstein_until, wasserstein,
};
