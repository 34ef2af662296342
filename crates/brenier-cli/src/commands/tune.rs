//! `brenier tune`: settings found by pilot trainings, the best model saved.

use std::path::{Path, PathBuf};

use brenier::data::{self, Split, Table};
use brenier::tune::{SearchSpace, TuneOutcome, TuneSettings, search, validation_split};
use brenier::{Error, FitSettings, Run};

use crate::failure::Failure;
use crate::files::{OLD, TUNE, beside};
use crate::fit_args::TuneArguments;
use crate::interrupt::stop_on_interrupt;
use crate::lock::Lock;
use crate::screen::Screen;
use crate::{config, observations, output, tables};

pub(crate) fn run(arguments: TuneArguments) -> Result<(), Failure> {
    let mut settings = match &arguments.config {
        // Where no method is named, the settings of the default method are searched.
        Some(path) => FitSettings { auto: false, ..config::read(path)? },
        None => FitSettings::default(),
    };
    arguments.settings.overlay(&mut settings)?;
    let text = space(&arguments.space, &settings)?;
    if arguments.print_space {
        output::result(&text)?;
        return Ok(());
    }
    let (Some(path), Some(out)) = (&arguments.table, &arguments.out) else {
        return Err(Failure::Usage("a search needs a TABLE and --out MODEL".to_owned()));
    };
    let space = SearchSpace::from_toml(&text).map_err(|error| in_space(error, &arguments.space, &[]))?;
    let searched: Vec<String> = space.names().map(str::to_owned).collect();
    settings.train.validate()?;
    let minutes = settings.train.minutes.take();
    let tune = arguments.tune.settings();
    tune.resolved(settings.method.method())?;
    output::check_writable(out)?;
    let _lock = if arguments.join { Lock::shared_file(out)? } else { Lock::file(out)? };

    let options = arguments.tables.options();
    let (table, encoding) = tables::selected(path, &options, &mut settings)?;
    let further = |path: &Option<PathBuf>| -> Result<Option<Table>, Failure> {
        Ok(path
            .as_ref()
            .map(|path| observations::columns(path, &options, table.names(), &encoding))
            .transpose()?)
    };
    let (valid, test) = (further(&arguments.valid)?, further(&arguments.test)?);
    let (table, split) = together(table, valid, test, &settings)?;

    let folder = beside(out, TUNE);
    set_aside(&folder, arguments.resume || arguments.join)?;
    let stop = stop_on_interrupt()?;
    let mut screen = Screen::new();
    let tune = TuneSettings { minutes, join: arguments.join, ..tune };
    let run = Run::observed(&mut screen).stop(&stop);
    let outcome = search(&table, &split, &settings, &space, &tune, &folder, run)
        .map_err(|error| in_space(error, &arguments.space, &searched).of_table(path))?;
    drop(screen);

    let results = folder.join("results.csv");
    data::write_bytes(&results, outcome.to_csv().as_bytes())?;
    let Some(model) = &outcome.best else {
        return Err(match outcome.finals.iter().find_map(|training| training.failure.as_ref()) {
            Some(failure) => Error::Numerical(format!("no training run produced a model: {failure}")).into(),
            None => Failure::Interrupted(format!(
                "the search was stopped before any full training, so no model was written; what it found is kept in {}: \
                 re-run the same command with --resume to continue",
                folder.display()
            )),
        });
    };
    model.clone().with_encoding(encoding)?.save(out)?;
    if !output::quiet() {
        output::result(&summary(&outcome, &space, out, &results))?;
    }
    Ok(())
}

/// The search space as TOML: a built-in one by its name, or a file.
fn space(name: &str, settings: &FitSettings) -> Result<String, Failure> {
    if SearchSpace::PRESETS.contains(&name) {
        return Ok(SearchSpace::preset(name, settings.method.method())?.to_owned());
    }
    std::fs::read_to_string(name).map_err(|source| {
        if source.kind() == std::io::ErrorKind::NotFound && !name.contains(['.', '/']) {
            let known = SearchSpace::PRESETS.join(", ");
            return Failure::Usage(format!(
                "--space: there is no file \"{name}\", and the built-in spaces are {known}"
            ));
        }
        Failure::Library(Error::io(Path::new(name), "read the search space", source))
    })
}

/// A mistake in a search space that was read from a file names the file, and keeps the file's names: `searched` are the settings
/// that it draws.
fn in_space(error: Error, space: &str, searched: &[String]) -> Failure {
    let of_space = |name: &str| searched.iter().any(|own| own.rsplit('.').next() == Some(name));
    match error {
        _ if SearchSpace::PRESETS.contains(&space) => Failure::Library(error),
        Error::Settings { name, problem } if name == "space" => Failure::Usage(format!("{space}: {problem}")),
        Error::Settings { name, problem } if of_space(&name) => {
            Failure::Usage(format!("{space}: setting {name}: {problem}"))
        }
        other => Failure::Library(other),
    }
}

/// One table of all rows, and which of them are for what.
fn together(
    table: Table,
    valid: Option<Table>,
    test: Option<Table>,
    settings: &FitSettings,
) -> Result<(Table, Split), Failure> {
    let rows = |from: usize, count: usize| (from as u32..(from + count) as u32).collect();
    let mut split = match &valid {
        Some(valid) => {
            Split { train: rows(0, table.rows()), valid: rows(table.rows(), valid.rows()), test: Vec::new() }
        }
        None => validation_split(table.rows(), settings)?,
    };
    let names = table.names().to_vec();
    let mut values = table.into_values();
    values.extend(valid.into_iter().flat_map(Table::into_values));
    if let Some(test) = test {
        split.test = rows(values.len() / names.len(), test.rows());
        values.extend(test.into_values());
    }
    Ok((Table::new(names, values)?, split))
}

/// Moves the folder of an earlier search out of the way, unless it is to be resumed.
fn set_aside(folder: &Path, resume: bool) -> Result<(), Failure> {
    if resume || !folder.exists() {
        return Ok(());
    }
    let free = (1..).map(|number| beside(folder, &format!("{OLD}{number}"))).find(|path| !path.exists());
    let old = free.expect("some number is free");
    std::fs::rename(folder, &old).map_err(|source| Error::io(folder, "set the old search aside", source))?;
    output::warning(&format!(
        "the folder of an earlier search is now {}; --resume would have continued it",
        old.display()
    ));
    Ok(())
}

fn summary(outcome: &TuneOutcome, space: &SearchSpace, out: &Path, results: &Path) -> String {
    let best = &outcome.finals[0];
    let mut text = format!(
        "trials          {}, {}{}\n",
        output::count(outcome.trials.len(), "pilot"),
        output::count(outcome.finals.len(), "full training"),
        if outcome.complete {
            ""
        } else {
            " (not all that were asked for; re-run with --resume to continue)"
        }
    );
    let spread = |nll: Option<[f64; 3]>| match nll {
        Some([best, median, worst]) => format!("{best:.4} best, {median:.4} median, {worst:.4} worst"),
        None => "none".to_owned(),
    };
    text.push_str(&format!("validation NLL  {}\n", spread(outcome.spread(|training| training.valid_nll))));
    if let Some(baseline) = outcome.best.as_ref().and_then(|model| model.info().baseline.as_ref()) {
        let title = baseline.method.method().title();
        text.push_str(&format!("                {:.4} of the baseline, {title}\n", baseline.valid_nll));
    }
    if let Some(test) = best.test_nll {
        text.push_str(&format!("test NLL        {}\n", spread(outcome.spread(|training| training.test_nll))));
        text.push_str(&format!("                {test:.4} of the model chosen by validation\n"));
    }
    let settings = serde_json::to_value(&outcome.trials[best.trial]).unwrap_or_default();
    let mut chosen: Vec<String> = Vec::new();
    for name in space.names() {
        let names: &[&str] = match name {
            "flow.penalties" => &["flow.alpha_transport", "flow.alpha_hjb"],
            other => &[other],
        };
        chosen.extend(names.iter().map(|name| {
            let value = name.split('.').fold(&settings, |value, key| &value[key]);
            format!("{} = {value}", name.rsplit('.').next().unwrap_or(name))
        }));
    }
    text.push_str(&format!(
        "best            trial {}, seed {}: {}\n",
        best.trial,
        best.seed,
        chosen.join(", ")
    ));
    text.push_str(&format!("all figures     {}\nmodel           {}\n", results.display(), out.display()));
    text
}
