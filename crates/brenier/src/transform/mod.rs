//! Invertible preprocessing with log-determinants (being written).

mod exact;
mod support;

pub use support::Support;
