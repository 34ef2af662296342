//! `brenier mode`: the highest points of the posterior density.

use std::fmt::Write;

use brenier::data::Table;
use brenier::{Error, Mode, ModeSettings, Posterior, Units};

use crate::failure::Failure;
use crate::interrupt::stop_without_result;
use crate::posterior_args::ModeArguments;
use crate::tables::free_name;
use crate::{observations, output, screen, tables};

pub(crate) fn run(arguments: &ModeArguments) -> Result<(), Failure> {
    let target = arguments.out.as_deref().map(|path| output::destination(Some(path)));
    if let Some(target) = &target {
        output::check_destination(target)?;
    }
    let model = Posterior::load(&arguments.model)?;
    let observed = observations::read(&model, &arguments.observations, &arguments.tables.options())?;
    let settings = ModeSettings {
        starts: arguments.starts,
        units: arguments.units.unwrap_or_default(),
        ..ModeSettings::default()
    };
    let stop = stop_without_result()?;
    let waiting = screen::waiting(format!("searching at {}", output::count(observed.count, "observation")));
    let modes = observed.place(&model).seed(arguments.seed).stop(&stop).modes(&settings);
    drop(waiting);
    let mut modes = modes.map_err(|error| observed.failed(error))?;
    // What can be answered is; nothing at all is an error.
    if modes.iter().all(Result::is_err)
        && let Some(Err(error)) = modes.pop()
    {
        return Err(observed.failed(spoken(error)));
    }
    let mut found = Vec::with_capacity(modes.len());
    for mode in modes {
        found.push(mode.map_err(|error| output::warning(&spoken(error).to_string())).ok());
    }
    let modes = found;
    for (row, mode) in modes.iter().enumerate() {
        if let Some(doubt) = mode.as_ref().and_then(|mode| mode.doubt(&settings)) {
            output::warning(&format!("observation {}: {doubt}", row + 1));
        }
    }
    match target {
        Some(target) => {
            tables::write(&target, &table(&model, &modes)?)?;
            output::wrote(&output::count(modes.iter().flatten().count(), "point"), &target);
        }
        None => output::result(&text(&model, &modes, &settings))?,
    }
    Ok(())
}

/// The error with the flag of this command in place of the setting's name.
fn spoken(error: Error) -> Error {
    match error {
        Error::Numerical(text) => Error::Numerical(text.replace("`units =", "`density =")),
        other => other,
    }
}

/// A row for each observation, of NaN where no maximum was found.
fn table(model: &Posterior, modes: &[Option<Mode>]) -> Result<Table, Failure> {
    let mut names = model.target_names().to_vec();
    for name in ["log_density", "log_density_standardised", "gradient", "agreeing_starts", "starts"] {
        names.push(free_name(name, &names));
    }
    let numbered = modes.len() > 1;
    if numbered {
        names.insert(0, free_name("observation", &names));
    }
    let mut values = Vec::with_capacity(modes.len() * names.len());
    for (row, mode) in modes.iter().enumerate() {
        values.extend(numbered.then_some(row as f64 + 1.0));
        let Some(mode) = mode else {
            values.resize((row + 1) * names.len(), f64::NAN);
            continue;
        };
        values.extend_from_slice(&mode.point);
        values.extend([mode.log_density, mode.log_density_standardised, mode.gradient]);
        values.extend([mode.agreeing as f64, mode.starts as f64]);
    }
    Ok(Table::new(names, values)?)
}

/// One paragraph an observation.
fn text(model: &Posterior, modes: &[Option<Mode>], settings: &ModeSettings) -> String {
    let mut text = String::new();
    let width = model.target_names().iter().map(|name| name.chars().count()).max().unwrap_or(0).max(12);
    let maximised = match settings.units {
        Units::User => "the density in your units",
        Units::Standardised => "the density of the standardised variable",
    };
    for (row, mode) in modes.iter().enumerate() {
        let Some(mode) = mode else {
            let _ = writeln!(text, "observation {}: no maximum of {maximised} was found", row + 1);
            continue;
        };
        let _ = writeln!(text, "observation {}: maximum of {maximised}", row + 1);
        for (name, value) in model.target_names().iter().zip(&mode.point) {
            let _ = writeln!(text, "  {name:width$}  {}", number(*value));
        }
        let _ = writeln!(
            text,
            "  {:width$}  {:.6} in your units, {:.6} standardised",
            "log density", mode.log_density, mode.log_density_standardised
        );
        let _ = writeln!(
            text,
            "  {:width$}  {:.1e} (largest entry{}), {} of {} starts agree",
            "gradient",
            mode.gradient,
            match mode.settled && mode.gradient > settings.tolerance {
                true => "; no point near by is higher",
                false => "",
            },
            mode.agreeing,
            mode.starts
        );
    }
    text
}

/// All digits of a number, with an exponent where it would have many zeros.
fn number(value: f64) -> String {
    match value == 0.0 || (1e-5..1e16).contains(&value.abs()) {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_printed_without_rows_of_zeros() {
        let printed = [0.0, -0.25, 1e-30, -1e30, 123456.789, 2.5e-5].map(number);
        assert_eq!(printed, ["0", "-0.25", "1e-30", "-1e30", "123456.789", "0.000025"]);
    }
}
