//! Training: settings, optimiser, schedule, loop, checkpoints and observers.

mod adam;

pub use adam::{Adam, AdamSettings};
