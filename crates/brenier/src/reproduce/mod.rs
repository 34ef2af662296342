//! Published experiments as programs: the protocol, the figures that were printed, and ours beside them.

pub mod lotka_volterra;
mod uci;

pub use uci::{
    OverSeeds, Published, UciEvent, UciFolds, UciReproduction, UciResult, UciScore, UciSettings, UciTable,
};
