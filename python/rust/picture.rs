//! Pictures as SVG, and the command.

use std::ffi::OsString;

use brenier::report::{Curve, CurvePlot, Histogram, Histograms, PairPlot, PictureSize};
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::error::Raise;
use crate::table::rows_of;

/// A layer of a pair plot: its label, its rows, and a weight for each.
type Layer<'py> = (String, PyReadonlyArray2<'py, f64>, Option<PyReadonlyArray1<'py, f64>>);

/// Every pair of columns of one or more samples.
#[pyfunction]
#[pyo3(signature = (names, layers, width, height, truth=None, mode=None, log=Vec::new(), limits=Vec::new(), units=Vec::new()))]
pub(crate) fn pair_plot(
    names: Vec<String>,
    layers: Vec<Layer<'_>>,
    width: u32,
    height: u32,
    truth: Option<Vec<f64>>,
    mode: Option<Vec<f64>>,
    log: Vec<usize>,
    limits: Vec<(usize, f64, f64)>,
    units: Vec<String>,
) -> PyResult<String> {
    let mut plot = PairPlot::new(names).log(log).units(units);
    for (label, rows, weights) in layers {
        let values = rows_of(&rows);
        plot = match weights {
            None => plot.layer(label, values),
            Some(weights) => plot.weighted_layer(label, values, weights.as_array().to_vec()),
        };
    }
    if let Some(truth) = truth {
        plot = plot.truth(truth);
    }
    if let Some(mode) = mode {
        plot = plot.mode(mode);
    }
    for (column, low, high) in limits {
        plot = plot.limits(column, low, high);
    }
    plot.to_svg(PictureSize { width, height }).or_raise()
}

/// Histograms of columns, each with a value marked or not.
#[pyfunction]
pub(crate) fn histograms(
    columns: Vec<(String, Vec<f64>, Option<f64>)>,
    width: u32,
    height: u32,
) -> PyResult<String> {
    let one = |(name, values, observed): (String, Vec<f64>, Option<f64>)| {
        let histogram = Histogram::new(name, values);
        match observed {
            Some(value) => histogram.observed(value),
            None => histogram,
        }
    };
    let plot = columns.into_iter().map(one).fold(Histograms::new(), Histograms::panel);
    plot.to_svg(PictureSize { width, height }).or_raise()
}

/// Lines over a common axis: label, x, y, and whether dashed.
#[pyfunction]
#[pyo3(signature = (x, y, lines, width, height, title=None, log_x=false, log_y=false))]
pub(crate) fn curve_plot(
    x: String,
    y: String,
    lines: Vec<(String, Vec<f64>, Vec<f64>, bool)>,
    width: u32,
    height: u32,
    title: Option<String>,
    log_x: bool,
    log_y: bool,
) -> PyResult<String> {
    let mut plot = CurvePlot::new(x, y);
    for (label, x, y, dashed) in lines {
        let line = Curve::line(label, x, y);
        plot = plot.curve(if dashed { line.dashed() } else { line });
    }
    if let Some(title) = title {
        plot = plot.title(title);
    }
    let plot = if log_x { plot.log_x() } else { plot };
    let plot = if log_y { plot.log_y() } else { plot };
    plot.to_svg(PictureSize { width, height }).or_raise()
}

/// A picture as PNG, with this many dots per inch.
#[pyfunction]
pub(crate) fn png(svg: &str, dots: f64) -> PyResult<Vec<u8>> {
    brenier::report::png(svg, dots / 72.0).or_raise()
}

/// Runs the command with these arguments, the first of which is its name; returns the exit code.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| brenier_cli::run(arguments))
}
