//! A model checked with a table, for `check` and `report`, and the lines of calibration checks.

use std::fmt::Write;

use brenier::check::{Against, Check, check, quantity_name};
use brenier::data::Table;
use brenier::diagnose::Calibration;
use brenier::{Error, Posterior, Run, StopToken};

use crate::check_args::CheckingArguments;
use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::models::Model;
use crate::observations;
use crate::screen::Screen;

/// A model, the table it was checked with, what was found, and the simulator if there is one.
pub(crate) struct Checked {
    pub(crate) model: Posterior,
    pub(crate) table: Table,
    pub(crate) simulator: Option<Model>,
    pub(crate) found: Check,
    /// Ends what follows, too.
    pub(crate) stop: StopToken,
}

impl Checked {
    /// Reads what the flags name and checks it.
    pub(crate) fn make(arguments: &CheckingArguments) -> Result<Self, Failure> {
        let settings = arguments.settings();
        settings.validate()?;
        let model = Posterior::load(&arguments.model)?;
        let others = arguments
            .others
            .iter()
            .map(|path| Ok((path.display().to_string(), Posterior::load(path)?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let names = [model.target_names(), model.given_names()].concat();
        let table =
            observations::columns(&arguments.table, &arguments.tables.options(), &names, model.encoding())?;
        let stop = stop_without_result()?;
        let simulator = Model::for_posterior(&arguments.simulator, model.target_names(), &stop)?;
        let mut screen = Screen::new();
        let against = Against { simulator: simulator.as_ref().map(Model::simulator), others: &others };
        let named = |error| Failure::from(error).of_table(&arguments.table);
        let run = Run::observed(&mut screen).stop(&stop);
        let found = check(&model, &table, &settings, against, run).map_err(named)?;
        drop(screen);
        simulator.iter().for_each(Model::tell_restarts);
        Ok(Self { model, table, simulator, found, stop })
    }
}

/// A line for each check of calibration.
pub(crate) fn ranks(found: &Calibration, names: &[String]) -> String {
    let named: Vec<String> = found.checks.iter().map(|check| quantity_name(check.quantity, names)).collect();
    let width = named.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:>9} {:>9}  {:>9} {:>9}  reading ({} pairs × {} draws)\n",
        "check", "50 % hold", "90 % hold", "max |F-z|", "p, corr.", found.pairs, found.draws
    );
    for (check, name) in found.checks.iter().zip(&named) {
        let p = check.adjusted_p_value;
        let reading = if p <= found.level { check.reading() } else { "fine" };
        let p = if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") };
        let _ = writeln!(
            text,
            "{name:width$}  {:>7.1} % {:>7.1} %  {:>9.3} {p:>9}  {reading}",
            100.0 * check.coverage(0.5),
            100.0 * check.coverage(0.9),
            check.deviation()
        );
    }
    text
}
