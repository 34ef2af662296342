//! `brenier report`: a page about a model, with the verdict first and the posterior at chosen observations.

use std::path::Path;

use brenier::check::Predictive;
use brenier::data::{self, ReadOptions, write_bytes};
use brenier::report::{ObservationView, ReportPage};
use brenier::{Error, ModeSettings, Posterior, Run, Units};

use crate::check_args::ReportArguments;
use crate::checked::Checked;
use crate::failure::Failure;
use crate::observations;
use crate::output;
use crate::screen::Screen;
use crate::tables;

/// Draws shown at an observation.
const DRAWS: usize = 2000;
/// Observations on one page, at most.
const MOST: usize = 20;

pub(crate) fn run(arguments: &ReportArguments) -> Result<(), Failure> {
    if !arguments.out.extension().is_some_and(|ending| ending == "html" || ending == "htm") {
        return Err(Failure::Usage(format!(
            "--out {}: the page is HTML; end its name in .html",
            arguments.out.display()
        )));
    }
    output::check_writable(&arguments.out)?;
    let checking = &arguments.checking;
    // Mistakes in the observations come before the work of the check.
    let model = Posterior::load(&checking.model)?;
    let asked = asked_for(&model, arguments)?;
    drop(model);
    let checked = Checked::make(checking)?;
    let views = match asked {
        Some(views) => views,
        None => held_out(&checked, &arguments.rows)?,
    };
    let name = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let title =
        arguments.title.clone().unwrap_or_else(|| format!("Can {} be trusted?", name(&checking.model)));
    let mut page = ReportPage::new(title, &checked.model, &checked.found)
        .source("Model file", name(&checking.model))
        .source("Held-out table", name(&checking.table))
        .command(format!(
            "brenier fit TABLE --config fit.toml --out {}   # the table and settings below",
            name(&checking.model)
        ))
        .command(typed());
    for view in completed(&checked, views, arguments)? {
        page = page.observation(view);
    }
    write_bytes(&arguments.out, page.to_html()?.as_bytes())?;
    let verdict = &checked.found.verdict;
    output::result(&format!(
        "{}: {}\nreport written to {}\n",
        verdict.trust.to_string().to_uppercase(),
        verdict.headline,
        arguments.out.display()
    ))?;
    Ok(())
}

/// The observations that the flags name, with the truth where the table has it; none where they name no values.
fn asked_for(
    model: &Posterior,
    arguments: &ReportArguments,
) -> Result<Option<Vec<ObservationView>>, Failure> {
    let flags = &arguments.observations;
    let options = &arguments.checking.tables.options();
    if flags.observed.is_none() && flags.at.is_empty() {
        return Ok(None);
    }
    if !arguments.rows.is_empty() {
        return Err(Failure::Usage(
            "--row names rows of the held-out table: leave it out with --observed and --at".to_owned(),
        ));
    }
    let observed = observations::read(model, flags, options)?;
    if observed.count > MOST {
        return Err(Failure::Usage(format!(
            "a page shows at most {MOST} observations, not {}: take fewer rows",
            observed.count
        )));
    }
    let truth = match &flags.observed {
        Some(path) => truths(path, options, model.target_names(), observed.count),
        None => None,
    };
    let (n, m) = (model.target_names().len(), model.given_names().len());
    let views = (0..observed.count).map(|row| ObservationView {
        name: match observed.count {
            1 => "the observation".to_owned(),
            _ => format!("observation {}", row + 1),
        },
        given: observed.values[row * m..(row + 1) * m].to_vec(),
        truth: truth.as_ref().map(|truth| truth[row * n..(row + 1) * n].to_vec()),
        ..ObservationView::default()
    });
    Ok(Some(views.collect()))
}

/// The target columns of a table of observations, where it has all of them and every value is there.
fn truths(path: &Path, options: &ReadOptions, names: &[String], rows: usize) -> Option<Vec<f64>> {
    if !path.is_file() {
        return None; // a pipe has been read to its end
    }
    let read = tables::read(path, options, |have| {
        let place = |name: &String| have.iter().position(|own| own == name);
        let places: Option<Vec<usize>> = names.iter().map(place).collect();
        places.ok_or_else(|| Error::Columns("no truth".to_owned()))
    });
    read.ok().map(|read| read.table).filter(|table| table.rows() == rows).map(data::Table::into_values)
}

/// Rows of the held-out table, whose truth is known.
fn held_out(checked: &Checked, rows: &[usize]) -> Result<Vec<ObservationView>, Failure> {
    let (table, n) = (&checked.table, checked.model.target_names().len());
    if checked.model.given_names().is_empty() {
        let name = "the distribution learned".to_owned();
        return Ok(vec![ObservationView { name, ..ObservationView::default() }]);
    }
    let rows = match rows.is_empty() {
        true => vec![1, table.rows() / 2 + 1],
        false => rows.to_vec(),
    };
    if rows.len() > MOST {
        return Err(Failure::Usage(format!("a page shows at most {MOST} observations, not {}", rows.len())));
    }
    rows.iter()
        .map(|&row| {
            if row == 0 || row > table.rows() {
                return Err(Failure::Usage(format!(
                    "--row {row}: the held-out table has rows 1 to {}",
                    table.rows()
                )));
            }
            let values = table.row(row - 1);
            Ok(ObservationView {
                name: format!("held-out row {row}"),
                given: values[n..].to_vec(),
                truth: Some(values[..n].to_vec()),
                ..ObservationView::default()
            })
        })
        .collect()
}

/// Draws, modes and predictives for the views.
fn completed(
    checked: &Checked,
    mut views: Vec<ObservationView>,
    arguments: &ReportArguments,
) -> Result<Vec<ObservationView>, Failure> {
    let (model, settings) = (&checked.model, arguments.checking.settings());
    let n = model.target_names().len();
    let given: Vec<f64> = views.iter().flat_map(|view| view.given.iter().copied()).collect();
    let at = model.at_rows(&given, views.len()).seed(settings.seed).stop(&checked.stop);
    let draws = at.sample(DRAWS)?;
    // On the map's scale, where no bound attracts the highest point.
    let how = ModeSettings { units: Units::Standardised, ..ModeSettings::default() };
    let modes = at.modes(&how)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    for ((view, draws), mode) in views.iter_mut().zip(draws.values.chunks_exact(DRAWS * n)).zip(modes) {
        view.draws = draws.to_vec();
        view.mode = Some(mode.point);
    }
    if let Some(simulator) = &checked.simulator {
        let mut screen = Screen::new();
        let run = Run::observed(&mut screen).stop(&checked.stop);
        let found = Predictive::at(model, &given, simulator.simulator(), &settings, run)?;
        for row in found.rows {
            let place = row.row;
            views[place].predictive = Some(row);
        }
    }
    Ok(views)
}

/// The command as it was typed.
fn typed() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            return word;
        }
        format!("'{}'", word.replace('\'', "'\\''"))
    };
    let words = std::env::args_os().skip(1).map(|word| quoted(word.to_string_lossy().into_owned()));
    std::iter::once("brenier".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
