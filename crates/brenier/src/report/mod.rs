//! Pictures of samples and checks, as SVG text, and a page that holds them: pair plots, panels of conditional densities,
//! curves, histograms of ranks, and [`ReportPage`].
//!
//! The same input gives the same bytes. Text stays text, so that a figure can be searched and edited, and colours
//! are those of Okabe and Ito, which colour-blind readers can tell apart.

mod canvas;
mod curves;
pub mod density;
mod html;
mod judged;
mod page;
mod pairs;
mod panels;

pub use canvas::{Colour, PALETTE, PictureSize};
pub use curves::{Curve, CurvePlot};
pub use html::{Block, Picture, Section, TextTable};
pub use judged::rank_histogram;
pub use page::{ObservationView, ReportPage, predictive_picture};
pub use pairs::{PairPlot, SampleLayer};
pub use panels::{ConditionalPanel, ConditionalPanels};
