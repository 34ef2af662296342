//! `brenier density`: how well a model describes the rows of a table.

use brenier::data::{self, Missing, Output, ReadOptions, Table};
use brenier::{LogDensities, Posterior};

use crate::args::DensityArguments;
use crate::failure::Failure;
use crate::{observations, output};

pub(crate) fn run(arguments: &DensityArguments) -> Result<(), Failure> {
    let target = arguments.out.as_deref().map(|path| output::destination(Some(path)));
    if let Some(target) = &target {
        output::check_destination(target)?;
    }
    let model = Posterior::load(&arguments.model)?;
    let names = [model.target_names(), model.given_names()].concat();
    let missing = if arguments.drop_missing { Missing::DropRows } else { Missing::Fail };
    let table =
        observations::columns(&arguments.table, ReadOptions { missing, ..ReadOptions::default() }, &names)?;
    let densities = score(&model, &table)?;
    let figures = figures(&densities);
    match target {
        Some(target) => {
            let names = vec!["log_density".to_owned(), "log_density_standardised".to_owned()];
            let rows = densities.user.iter().zip(&densities.standardised);
            let values = rows.flat_map(|(&user, &standardised)| [user, standardised]).collect();
            data::write(&target, &Table::new(names, values)?)?;
            if target == Output::Stdout {
                output::note(figures.trim_end());
            } else {
                output::result(&figures)?;
            }
        }
        None => output::result(&figures)?,
    }
    Ok(())
}

/// Log densities of a table whose columns are the model's target and given columns.
pub(crate) fn score(model: &Posterior, table: &Table) -> Result<LogDensities, Failure> {
    let n = model.target_names().len();
    let side = |from: usize, to: usize| -> Vec<f64> {
        table.iter().flat_map(|row| &row[from..to]).copied().collect()
    };
    Ok(model.log_density(&side(0, n), &side(n, table.columns()))?)
}

/// Rows, and both mean NLLs with their standard errors.
pub(crate) fn figures(densities: &LogDensities) -> String {
    let (user, standardised) = densities.mean_nll();
    format!(
        "rows                     {}\n\
         mean NLL, your units     {user:.6} ± {:.6} (standard error)\n\
         mean NLL, standardised   {standardised:.6} ± {:.6}\n",
        densities.user.len(),
        standard_error(&densities.user),
        standard_error(&densities.standardised),
    )
}

/// √(Σ (v − v̄)² / (N (N − 1))).
pub(crate) fn standard_error(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count * (count - 1.0).max(1.0))).sqrt()
}
