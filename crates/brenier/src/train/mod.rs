//! Training: settings, optimiser, schedule, loop, checkpoints and observers.

mod adam;
mod checkpoint;
mod observe;
mod run;
mod settings;

pub use adam::{Adam, AdamSettings};
pub use checkpoint::Checkpoint;
pub use observe::{Event, Observer, Progress, Silent, Stop};
pub use run::{Control, Dataset, Outcome, train};
pub use settings::{Schedule, TrainSettings};
