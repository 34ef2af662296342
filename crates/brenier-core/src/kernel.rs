//! Arithmetic that knows no statistics, of the crate `brenier-kernel`, and jobs side by side.

pub use brenier_kernel::*;

pub use crate::parallel::{side_by_side, side_by_side_reporting};
