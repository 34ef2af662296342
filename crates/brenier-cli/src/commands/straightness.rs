//! `brenier straightness`: how straight a flow's paths are, and how few steps are enough.

use std::fmt::Write;

use brenier::{Posterior, Straightness};

use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::posterior_args::StraightnessArguments;
use crate::{observations, output, screen};

/// A draw that moves by less than this part of the posterior's standard deviation is as good as exact.
const ENOUGH: f64 = 0.01;

pub(crate) fn run(arguments: &StraightnessArguments) -> Result<(), Failure> {
    output::check_json(arguments.json.json.as_deref())?;
    let model = Posterior::load(&arguments.model)?;
    if model.map().paths().is_none() {
        return Err(Failure::Usage(format!(
            "{}: the model is a {}, which has no paths; straightness is about flows",
            arguments.model.display(),
            model.method().title()
        )));
    }
    let observed = observations::read(&model, &arguments.observations, &arguments.tables.options())?;
    let stop = stop_without_result()?;
    let waiting = screen::waiting("following paths");
    let at = observed.place(&model).seed(arguments.seed).stop(&stop);
    let reports = at.straightness(arguments.n, &arguments.steps);
    drop(waiting);
    let reports = reports.map_err(|error| observed.failed(error))?;
    output::result_or_json(
        arguments.json.json.as_deref(),
        || serde_json::to_string_pretty(&reports).expect("numbers can be written") + "\n",
        || reports.iter().enumerate().map(|(row, report)| text(row, report)).collect(),
    )
}

fn text(row: usize, report: &Straightness) -> String {
    let mut text = format!(
        "observation {}\n\
         \x20 transport cost      {:.5}\n\
         \x20 straight-line cost  {:.5} (the flow pays {:.2} % more)\n\
         \x20 HJB residual        {:.5}\n\
         \x20 steps   change of a draw when the steps are doubled, in posterior standard deviations\n",
        row + 1,
        report.transport,
        report.straight_line,
        100.0 * (report.transport / report.straight_line - 1.0),
        report.hjb,
    );
    for error in &report.steps {
        let _ =
            writeln!(text, "  {:5}   {:.1e} rms, {:.1e} at the worst", error.steps, error.rms, error.worst);
    }
    let enough = report.steps.iter().filter(|error| error.rms < ENOUGH).map(|error| error.steps).min();
    let _ = match enough {
        Some(steps) => writeln!(text, "  {steps} steps are enough: draws move by less than 1 % beyond them"),
        None => writeln!(text, "  none of these step counts is enough for draws good to 1 %"),
    };
    text
}
