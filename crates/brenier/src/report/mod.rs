//! Pictures of samples, as SVG text: pair plots and panels of conditional densities.
//!
//! The same input gives the same bytes. Text stays text, so that a figure can be searched and edited, and colours
//! are those of Okabe and Ito, which colour-blind readers can tell apart.

mod canvas;
mod curves;
pub mod density;
mod file;
mod pairs;
mod panels;
#[cfg(feature = "png")]
mod png;

pub use canvas::{Colour, PALETTE, PictureSize};
pub use curves::{Curve, CurvePlot};
pub use file::{DOTS_PER_INCH, PictureFormat, write_picture};
pub use pairs::{PairPlot, SampleLayer};
pub use panels::{ConditionalPanel, ConditionalPanels};
#[cfg(feature = "png")]
pub use png::png;
