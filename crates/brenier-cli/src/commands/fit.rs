//! `brenier fit`: from a table to a model file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brenier::data::{self, Missing, Pick, ReadOptions, Selection, Table};
use brenier::train::{Checkpoint, Stop};
use brenier::{FitControl, FitSettings, Posterior};

use super::{density, info};
use crate::args::FitArguments;
use crate::failure::{Failure, INTERRUPTED};
use crate::progress::{self, FanOut, JsonLog};
use crate::{config, observations, output};

/// Set by the first Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

/// Lets the first Ctrl-C end the training with its best model, and the second end the program.
pub(crate) fn stop_on_interrupt() -> Result<&'static AtomicBool, Failure> {
    stop_on_interrupt_saying("stopping: the best model so far will be saved (press Ctrl-C again to abort)")
}

/// Lets the first Ctrl-C set the flag and say `news`, and the second end the program.
pub(crate) fn stop_on_interrupt_saying(news: &'static str) -> Result<&'static AtomicBool, Failure> {
    ctrlc::set_handler(move || {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
        output::note(&format!("\n{news}"));
    })
    .map_err(|error| Failure::Usage(format!("cannot watch for Ctrl-C: {error}")))?;
    Ok(&STOP)
}

pub(crate) fn run(arguments: FitArguments) -> Result<(), Failure> {
    let mut settings = match &arguments.config {
        Some(path) => config::read(path)?,
        None => FitSettings::default(),
    };
    arguments.settings.overlay(&mut settings);
    settings.train.validate()?;
    let every = Duration::try_from_secs_f64(arguments.checkpoint_seconds).map_err(|_| {
        Failure::Usage(format!("--checkpoint-seconds: {} is not a time", arguments.checkpoint_seconds))
    })?;
    output::check_writable(&arguments.out)?;

    let missing = if arguments.drop_missing { Missing::DropRows } else { Missing::Fail };
    let options = ReadOptions { missing, ..ReadOptions::default() };
    let table = read(&arguments.table, &options, &mut settings)?;
    let test = match &arguments.test {
        Some(path) => Some(observations::columns(path, options, table.names())?),
        None => None,
    };

    let checkpoint = checkpoint(&arguments.out, arguments.resume, every, arguments.quiet)?;
    let resuming = checkpoint.as_ref().is_some_and(|plan| plan.resume && plan.path.exists());
    let mut observers = FanOut(vec![progress::screen(arguments.quiet, settings.train.minutes)]);
    if let Some(path) = &arguments.log {
        observers.0.push(Box::new(JsonLog::create(path, resuming)?));
    }
    let stop = stop_on_interrupt()?;
    let kept = checkpoint.as_ref().map(|plan| plan.path.clone());
    let fitted = brenier::fit(table, &settings, FitControl { observer: &mut observers, stop, checkpoint })?;
    drop(observers);
    for text in &fitted.warnings {
        output::warning(text);
    }
    let model = fitted.posterior;
    model.save(&arguments.out)?;

    let marginal = model.marginal().map(|marginal| marginal.header().training.stop);
    let resumable = model.header().training.stop.is_resumable() || marginal.is_some_and(Stop::is_resumable);
    if let Some(path) = kept.as_ref().filter(|_| !resumable) {
        data::discard(path);
    }
    let kept = kept.filter(|path| path.exists());
    if !arguments.quiet {
        output::result(&summary(&model, &arguments.out, kept.as_deref().filter(|_| resumable)))?;
    }
    if let Some(test) = test {
        let figures = density::score(&model, &test)?.figures();
        output::result(&format!("test table:\n{figures}"))?;
    }
    Ok(())
}

/// Reads the columns that the settings select, and writes their names into the settings: in the smaller table
/// ranges and positions would mean other columns.
pub(crate) fn read(path: &Path, options: &ReadOptions, settings: &mut FitSettings) -> Result<Table, Failure> {
    let mut selected = None;
    let read = data::read(path, options, |names| {
        let (target, given) = settings.columns(names)?;
        let pick = |columns: &[usize]| columns.iter().map(|&c| Pick::Name(names[c].clone())).collect();
        let all = [target.as_slice(), &given].concat();
        selected = Some((pick(&target), pick(&given)));
        Ok(all)
    })?;
    let (target, given): (Vec<Pick>, Vec<Pick>) = selected.unwrap_or_default();
    settings.target = Some(Selection::Columns(target));
    settings.given = (!given.is_empty()).then_some(Selection::Columns(given));
    output::noticed(path, &read);
    Ok(read.table)
}

/// `path` with `ending` after its whole name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Where the state of the run is kept; nowhere when the model goes to a device.
fn checkpoint(out: &Path, resume: bool, every: Duration, quiet: bool) -> Result<Option<Checkpoint>, Failure> {
    if out.exists() && !out.is_file() {
        return Ok(None);
    }
    let path = beside(out, ".checkpoint");
    match (path.exists(), resume) {
        (false, true) if !quiet => {
            output::note(&format!("there is no {}: starting afresh", path.display()));
        }
        (true, false) => {
            // An earlier run's state may be hours of work.
            let old = beside(&path, ".old");
            std::fs::rename(&path, &old)
                .map_err(|source| brenier::Error::io(&path, "set the old checkpoint aside", source))?;
            output::warning(&format!(
                "{} of an unfinished fit is now {}; --resume would have gone on from it",
                path.display(),
                old.display()
            ));
        }
        _ => {}
    }
    Ok(Some(Checkpoint { path, every, resume, keep: false, identity: String::new() }))
}

fn summary(model: &Posterior, out: &Path, checkpoint: Option<&Path>) -> String {
    let header = model.header();
    let training = &header.training;
    let ended = match training.stop {
        Stop::Converged => "the validation loss no longer improved",
        Stop::Epochs => "the last epoch was reached; with more --epochs it may still improve",
        Stop::Minutes => "the time was used up; it may still improve",
        Stop::Interrupted => "Ctrl-C; it may still improve",
        Stop::Diverged => "the loss was not finite again and again",
    };
    let mut text = format!(
        "target          {}\n\
         given           {}\n\
         rows            {} trained on, {} held out for validation\n\
         validation NLL  {}\n{}\
         ended           after {} steps (best at {}): {ended}\n\
         model           {}\n",
        info::listed(&header.target_names),
        info::listed(&header.given_names),
        training.train_rows,
        training.valid_rows,
        info::validation(model),
        model.marginal().map_or(String::new(), |marginal| format!(
            "                {} for the given columns alone\n",
            info::validation(marginal)
        )),
        training.steps,
        training.best_step,
        out.display(),
    );
    if let Some(path) = checkpoint {
        let path = path.display();
        text.push_str(&format!("checkpoint      {path} (the same command with --resume goes on)\n"));
    }
    text
}
