//! Pictures, as SVG or PNG, and a page that holds them: pair plots, conditional densities, predictions over time,
//! histograms, curves, and [`ReportPage`].
//!
//! The same input gives the same bytes. In SVG text stays text, so that a figure can be searched and edited; colours
//! are those of Okabe and Ito, which colour-blind readers can tell apart. Every picture takes plain numbers and gives
//! SVG text ([`PairPlot::to_svg`] and its like); [`png`](png()) rasterises it and [`write_picture`] writes either.

use brenier_core::{Error, Posterior, Result, statistics, transform};
use brenier_data as data;
use brenier_diagnose::{check, diagnose};

mod canvas;
mod curves;
pub mod density;
mod file;
mod histograms;
mod html;
mod judged;
mod page;
mod pairs;
mod panels;
#[cfg(feature = "png")]
mod png;
mod predictive;

pub use canvas::{Colour, PALETTE, PictureSize};
pub use curves::{Curve, CurvePlot};
pub use file::{DOTS_PER_INCH, PictureFormat, write_picture};
pub use histograms::{Histogram, Histograms};
pub use html::{Picture, Piece, Section, TextTable, page};
pub use judged::rank_histogram;
pub use page::{ObservationView, ReportPage, predictive_picture};
pub use pairs::{PairPlot, SampleLayer};
pub use panels::{ConditionalPanel, ConditionalPanels};
#[cfg(feature = "png")]
pub use png::png;
pub use predictive::{PredictivePlot, PredictiveSeries};
