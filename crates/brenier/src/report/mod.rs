//! Pictures of samples, as SVG text: pair plots and panels of conditional densities.
//!
//! The same input gives the same bytes. Text stays text, so that a figure can be searched and edited, and colours
//! are those of Okabe and Ito, which colour-blind readers can tell apart.

mod canvas;
mod curves;
pub mod density;
mod pairs;
mod panels;

pub use canvas::{Colour, PALETTE, PictureSize};
pub use curves::{Curve, CurvePlot};
pub use pairs::{PairPlot, SampleLayer};
pub use panels::{ConditionalPanel, ConditionalPanels};
