//! `brenier fit`: from a table to a model file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brenier::data;
use brenier::map::Method;
use brenier::train::Stop;
use brenier::{Error, Journal, MethodChoice, Posterior, Prepared, Run, StopToken};

use crate::failure::Failure;
use crate::files::{CHECKPOINT, OLD, beside};
use crate::fit_args::FitArguments;
use crate::interrupt::stop_on_interrupt;
use crate::lock::Lock;
use crate::log::{FanOut, JsonLog};
use crate::scores::score;
use crate::screen::Screen;
use crate::{config, observations, output, tables};

pub(crate) fn run(arguments: FitArguments) -> Result<(), Failure> {
    let mut settings = match &arguments.config {
        Some(path) => config::read(path)?,
        None => MethodChoice::Auto.settings(),
    };
    if arguments.quick {
        settings.auto = false;
        if settings.method.method() != Method::default() {
            settings.method = Method::default().defaults();
        }
    }
    arguments.settings.overlay(&mut settings)?;
    settings.validate()?;
    let every = Duration::try_from_secs_f64(arguments.checkpoint_seconds).map_err(|_| {
        Failure::Usage(format!("--checkpoint-seconds: {} is not a time", arguments.checkpoint_seconds))
    })?;
    output::check_writable(&arguments.out)?;
    let _lock = Lock::file(&arguments.out)?;

    let options = arguments.tables.options();
    let (table, encoding) = tables::selected(&arguments.table, &options, &mut settings)?;
    let test = match &arguments.test {
        Some(path) => Some(observations::columns(path, &options, table.names(), &encoding)?),
        None => None,
    };

    let checkpoint = checkpoint(&arguments.out, arguments.resume, every, output::quiet())?;
    let resuming = checkpoint.as_ref().is_some_and(|plan| plan.resume && !states(&plan.path).is_empty());
    let mut observers = FanOut(vec![Box::new(Screen::new().minutes(settings.train.minutes))]);
    if let Some(path) = &arguments.log {
        observers.0.push(Box::new(JsonLog::create(path, resuming)?));
    }
    let stop = stop_on_interrupt()?;
    let kept = checkpoint.as_ref().map(|plan| plan.path.clone());
    let run = Run::observed(&mut observers).stop(&stop).journal(checkpoint);
    let named = |error: Error| Failure::from(error).of_table(&arguments.table);
    let prepared = Prepared::new(&table, &settings).map_err(named)?;
    // A large table is not kept while its rows are trained on.
    drop(table);
    let fitted = prepared.fit(&settings, run).map_err(named)?;
    drop(observers);
    let model = fitted.posterior.with_encoding(encoding)?;
    let kept_states = |kept: &Option<PathBuf>| kept.as_deref().map(states).unwrap_or_default();
    if !fitted.validated && stop.is_stopped() {
        return Err(unfinished(&arguments.out, &kept_states(&kept)));
    }
    model.save(&arguments.out)?;

    let marginal = model.marginal().map(|marginal| marginal.info().training.stop);
    let resumable = model.info().training.stop.is_resumable() || marginal.is_some_and(Stop::is_resumable);
    if let Some(path) = kept.as_ref().filter(|_| !resumable) {
        data::discard(path);
    }
    if !output::quiet() {
        let kept = if resumable { kept_states(&kept) } else { Vec::new() };
        output::result(&summary(&model, &arguments.out, &kept))?;
    }
    if let Some(test) = test {
        let figures = score(&model, &test, &StopToken::new())?.figures();
        output::result(&format!("test table:\n{figures}"))?;
    }
    Ok(())
}

/// Where the state of the run is kept; nowhere when the model goes to a device.
fn checkpoint(out: &Path, resume: bool, every: Duration, quiet: bool) -> Result<Option<Journal>, Failure> {
    if out.exists() && !out.is_file() {
        return Ok(None);
    }
    let path = beside(out, CHECKPOINT);
    let kept = states(&path);
    if kept.is_empty() && resume && !quiet {
        output::note(&format!("there is no {}: starting afresh", path.display()));
    }
    if !resume {
        // An earlier run's state may be hours of work.
        for path in &kept {
            std::fs::rename(path, beside(path, OLD))
                .map_err(|source| Error::io(path, "set the old checkpoint aside", source))?;
        }
        if let Some(first) = kept.first() {
            output::warning(&format!(
                "{} of an unfinished fit is now {}; --resume would have continued it",
                named(&kept),
                beside(first, OLD).display()
            ));
        }
    }
    Ok(Some(Journal { path, every, resume, keep: false }))
}

/// The files that hold the state of an unfinished fit: that of `checkpoint` and those of its parts, such as the members of an
/// ensemble, in the order of their names.
fn states(checkpoint: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (checkpoint.parent(), checkpoint.file_name()) else { return Vec::new() };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let is_state = |other: &str| {
        let rest = name.to_str().and_then(|name| other.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.')) && !other.ends_with(OLD)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name()).filter(|other| other.to_str().is_some_and(is_state)).collect();
    names.sort();
    names.into_iter().map(|name| checkpoint.with_file_name(name)).collect()
}

/// Files by their first, and how many more there are.
fn named(paths: &[PathBuf]) -> String {
    match paths {
        [] => String::new(),
        [one] => one.display().to_string(),
        [first, rest @ ..] => format!("{} (and {} more)", first.display(), rest.len()),
    }
}

/// A fit that was stopped before there was anything to save.
fn unfinished(out: &Path, kept: &[PathBuf]) -> Failure {
    let old = match out.is_file() {
        true => format!("{} is the old one", out.display()),
        false => format!("there is no {}", out.display()),
    };
    let resume = match kept {
        [] => String::new(),
        kept => format!(
            "; the state is kept in {}: re-run the same command with --resume to continue",
            named(kept)
        ),
    };
    Failure::Interrupted(format!(
        "stopped before the first validation, so no model was written and {old}{resume}"
    ))
}

fn summary(model: &Posterior, out: &Path, kept: &[PathBuf]) -> String {
    let header = model.info();
    let training = &header.training;
    let ended = match training.stop {
        Stop::Converged => "the validation loss no longer improved",
        Stop::ClosedForm => "the fit has a closed form",
        Stop::Epochs => "the last epoch was reached; with more --epochs it may still improve",
        Stop::Steps => "the last step was reached; with more --max-steps it may still improve",
        Stop::Minutes => "the time was used up; it may still improve",
        Stop::Interrupted => "it was stopped (Ctrl-C or a signal); it may still improve",
        Stop::Diverged => "the loss repeatedly became NaN or infinite",
        _ => "for another reason",
    };
    const SHOWN: [&str; 5] = ["target", "given", "rows", "validation NLL", "given NLL"];
    let description = model.description().into_iter().filter(|(heading, _)| SHOWN.contains(heading));
    let mut text = output::lines(description);
    text.push_str(&format!(
        "ended           after {} (best at {}): {ended}\nmodel           {}\n",
        output::count(training.steps as usize, "step"),
        training.best_step,
        out.display(),
    ));
    if !kept.is_empty() {
        text.push_str(&format!(
            "checkpoint      {} (re-run the same command with --resume to continue)\n",
            named(kept)
        ));
    }
    text
}
