//! Invertible preprocessing with log-determinants (being written).

mod column;
mod exact;
mod rows;
mod support;
mod target;

pub use column::{ColumnSettings, Scaling};
pub use rows::{FnRows, RowMajor, Rows};
pub use support::Support;
pub use target::{TargetSettings, TargetTransform};
