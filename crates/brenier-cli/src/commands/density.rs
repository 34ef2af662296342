//! `brenier density`: how well a model describes the rows of a table.

use brenier::data::Table;
use brenier::{Distance, Posterior};

use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::posterior_args::DensityArguments;
use crate::scores::score;
use crate::tables::Output;
use crate::{observations, output, screen, tables};

pub(crate) fn run(arguments: &DensityArguments) -> Result<(), Failure> {
    let target = arguments.out.as_deref().map(|path| output::destination(Some(path)));
    if let Some(target) = &target {
        output::check_destination(target)?;
    }
    let stop = stop_without_result()?;
    let model = Posterior::load(&arguments.model)?;
    let names = [model.target_names(), model.given_names()].concat();
    let table =
        observations::columns(&arguments.table, &arguments.tables.options(), &names, model.encoding())?;
    warn_of_extremes(&model, &table)?;
    let waiting = screen::waiting(format!("scoring {} rows", table.rows()));
    let scores = score(&model, &table, &stop).map_err(|failure| failure.of_table(&arguments.table))?;
    drop(waiting);
    match target {
        Some(target) => {
            tables::write(&target, &scores.table()?)?;
            if target == Output::Stdout {
                output::note(scores.figures().trim_end());
            } else {
                output::result(&scores.figures())?;
                output::wrote("log densities", &target);
            }
        }
        None => output::result(&scores.figures())?,
    }
    Ok(())
}

/// Rows whose distance from the training data is looked at.
const LOOKED_AT: usize = 2000;

/// A warning when more rows than chance would bring lie outside the training data.
fn warn_of_extremes(model: &Posterior, table: &Table) -> Result<(), Failure> {
    let n = model.target_names().len();
    if n == table.columns() {
        return Ok(());
    }
    let every = table.rows().div_ceil(LOOKED_AT).max(1);
    let given: Vec<f64> = table.iter().step_by(every).flat_map(|row| &row[n..]).copied().collect();
    let rows = given.len() / (table.columns() - n);
    let distances = model.distances(&given, rows)?.unwrap_or_default();
    let extreme = distances.iter().filter(|distance| distance.is_extreme()).count();
    if extreme > rows / 100 {
        output::warning(&format!(
            "{extreme} of {rows} rows looked at lie farther out than {} % of the training distribution: densities \
             there are extrapolation",
            100.0 * Distance::EXTREME
        ));
    }
    Ok(())
}
