//! `brenier mode`: the highest points of the posterior density.

use std::fmt::Write;

use brenier::data::{self, Table};
use brenier::{Mode, ModeSettings, Posterior, Units};

use super::sample::free_name;
use crate::args::ModeArguments;
use crate::failure::Failure;
use crate::{observations, output, screen};

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
    let waiting = screen::waiting(format!("searching at {}", output::count(observed.count, "observation")));
    let modes = model.mode(&observed.values, observed.count, arguments.seed, &settings);
    drop(waiting);
    let modes = modes.map_err(|error| observed.failed(error))?;
    for (row, mode) in modes.iter().enumerate() {
        if mode.gradient > settings.tolerance {
            output::warning(&format!(
                "observation {}: the search ended with a gradient of {:.1e}, above {:.0e}: the point is near a \
                 maximum at best",
                row + 1,
                mode.gradient,
                settings.tolerance
            ));
        }
    }
    match target {
        Some(target) => {
            data::write(&target, &table(&model, &modes)?)?;
            output::wrote(&output::count(modes.len(), "point"), &target);
        }
        None => output::result(&text(&model, &modes, settings.units))?,
    }
    Ok(())
}

fn table(model: &Posterior, modes: &[Mode]) -> Result<Table, Failure> {
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
        values.extend_from_slice(&mode.point);
        values.extend([mode.log_density, mode.log_density_standardised, mode.gradient]);
        values.extend([mode.agreeing as f64, mode.starts as f64]);
    }
    Ok(Table::new(names, values)?)
}

/// One paragraph an observation.
fn text(model: &Posterior, modes: &[Mode], units: Units) -> String {
    let mut text = String::new();
    let width = model.target_names().iter().map(|name| name.chars().count()).max().unwrap_or(0).max(12);
    let maximised = match units {
        Units::User => "the density in your units",
        Units::Standardised => "the density of the standardised variable",
    };
    for (row, mode) in modes.iter().enumerate() {
        let _ = writeln!(text, "observation {}: maximum of {maximised}", row + 1);
        for (name, value) in model.target_names().iter().zip(&mode.point) {
            let _ = writeln!(text, "  {name:width$}  {value}");
        }
        let _ = writeln!(
            text,
            "  {:width$}  {:.6} in your units, {:.6} standardised",
            "log density", mode.log_density, mode.log_density_standardised
        );
        let _ = writeln!(
            text,
            "  {:width$}  {:.1e} (largest entry), {} of {} starts agree",
            "gradient", mode.gradient, mode.agreeing, mode.starts
        );
    }
    text
}
