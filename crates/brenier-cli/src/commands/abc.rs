//! `brenier abc`: weighted particles at an observation, without any map.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use brenier::abc::{AbcMethod, AbcOutcome, AbcSettings, AbcStop, Population, remove_journal, run as search};
use brenier::data::{Encoding, ReadOptions};
use brenier::simulate::Prior;
use brenier::{Error, Journal, Run};

use crate::failure::Failure;
use crate::files::{CHECKPOINT, PILOT, beside};
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::log::{FanOut, JsonLog};
use crate::model_args::AbcArguments;
use crate::models::{Model, set_aside};
use crate::screen::Screen;
use crate::tables::Output;
use crate::{config, observations, output, tables};

pub(crate) fn run(arguments: &AbcArguments) -> Result<(), Failure> {
    let mut settings = match &arguments.config {
        Some(path) => config::read(path)?,
        None => AbcSettings::default(),
    };
    arguments.settings.overlay(&mut settings);
    settings.validate()?;
    let target = output::destination(Some(&arguments.out));
    output::check_destination(&target)?;
    let _lock = Lock::file(&arguments.out)?;
    let every = Duration::try_from_secs_f64(arguments.checkpoint_seconds).map_err(|_| {
        Failure::Usage(format!("--checkpoint-seconds: {} is not a time", arguments.checkpoint_seconds))
    })?;
    let stop = stop_on_interrupt_saying(
        "stopping: the last finished round will be written (press Ctrl-C again to abort)",
    )?;
    let model = Model::start(&arguments.model, &stop)?;
    let simulator = model.simulator();
    let observed = observation(
        &arguments.observed,
        &arguments.tables.options(),
        arguments.row,
        simulator.output_names(),
    )?;
    let scale = match &arguments.scale {
        Some(path) => {
            let (options, none) = (arguments.tables.options(), Encoding::default());
            Some(observations::columns(path, &options, simulator.output_names(), &none)?)
        }
        None => None,
    };
    let checkpoint = match &target {
        Output::Path(path) if !path.exists() || path.is_file() => {
            let path = beside(path, CHECKPOINT);
            // A pilot that was interrupted is kept beside it.
            let pilot = beside(&path, PILOT);
            if path.exists() || !pilot.exists() {
                set_aside(&path, arguments.resume, output::quiet())?;
            } else {
                set_aside(&pilot, arguments.resume, output::quiet())?;
            }
            Some(Journal { path, every, resume: arguments.resume, keep: false })
        }
        _ => None,
    };
    let started = Instant::now();
    let mut observers = FanOut(vec![Box::new(Screen::new())]);
    if let Some(path) = &arguments.log {
        observers.0.push(Box::new(JsonLog::create(path, arguments.resume)?));
    }
    let run = Run::observed(&mut observers).stop(&stop).journal(checkpoint.clone());
    let outcome = search(simulator, &observed, &settings, scale.as_ref(), run);
    drop(observers);
    model.tell_restarts();
    // What was kept is of no use when the model or the program is wrong.
    if let (Err(Error::Domain(_) | Error::Numerical(_)), Some(plan), false) =
        (&outcome, &checkpoint, arguments.resume)
    {
        remove_journal(plan);
    }
    let outcome = outcome?;
    outcome.warnings.iter().for_each(|text| output::warning(text));
    let kept = checkpoint.as_ref().filter(|_| outcome.stop != AbcStop::Finished);
    let Some(population) = &outcome.population else {
        let kept = match kept {
            Some(plan) => format!("; its state is in {}, and --resume continues", plan.path.display()),
            None => String::new(),
        };
        return Err(Failure::Interrupted(format!(
            "{} before there were any particles{kept}",
            ended(outcome.stop)
        )));
    };
    tables::write(&target, &population.to_table(simulator.prior())?)?;
    if let (Some(plan), None) = (&checkpoint, kept) {
        remove_journal(plan);
    }
    if settings.method == AbcMethod::Rejection && population.len() < settings.particles {
        output::warning(&format!("{} particles instead of {}", population.len(), settings.particles));
    }
    if !output::quiet() && target != Output::Stdout {
        let text = summary(&outcome, population, simulator.prior(), &arguments.out, started.elapsed());
        output::result(&text)?;
        if let Some(plan) = kept {
            let path = plan.path.display();
            output::result(&format!(
                "checkpoint   {path} (re-run the same command with --resume to continue)\n"
            ))?;
        }
    }
    Ok(())
}

/// The row of the observed table, in the order of the outputs.
fn observation(
    path: &Path,
    options: &ReadOptions,
    row: Option<usize>,
    names: &[String],
) -> Result<Vec<f64>, Failure> {
    let table = observations::columns(path, options, names, &Encoding::default())?;
    match row {
        Some(row) if (1..=table.rows()).contains(&row) => Ok(table.row(row - 1).to_vec()),
        Some(row) => {
            Err(Failure::Usage(format!("--row {row}: {} has the rows 1 to {}", path.display(), table.rows())))
        }
        None if table.rows() == 1 => Ok(table.row(0).to_vec()),
        None => Err(Failure::Usage(format!(
            "{} has {} rows and ABC takes one observation: choose it with --row",
            path.display(),
            table.rows()
        ))),
    }
}

fn ended(stop: AbcStop) -> &'static str {
    match stop {
        AbcStop::Finished => "finished",
        AbcStop::Simulations => "the simulations were used up",
        AbcStop::Minutes => "the time was used up",
        AbcStop::Interrupted => "stopped",
        _ => "ended early",
    }
}

fn summary(
    outcome: &AbcOutcome,
    population: &Population,
    prior: &Prior,
    out: &Path,
    elapsed: Duration,
) -> String {
    let last = outcome.rounds.last();
    let mut text = format!(
        "particles    {}, effective {:.0}, written to {}\n\
         tolerance    {:.4}{}\n\
         rounds       {}\n\
         simulations  {} that ended, {} abandoned, {:.1} s\n\n",
        population.len(),
        population.effective(),
        out.display(),
        last.map_or(f64::NAN, |round| round.tolerance),
        if outcome.stop == AbcStop::Finished { String::new() } else { format!(" ({})", ended(outcome.stop)) },
        outcome.rounds.len(),
        outcome.simulations,
        outcome.abandoned,
        elapsed.as_secs_f64(),
    );
    let names = prior.coordinate_names();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(9);
    let _ = writeln!(text, "{:width$}  {:>10}  {:>10}", "parameter", "mean", "sd");
    for ((name, mean), sd) in names.iter().zip(population.mean()).zip(population.sd()) {
        let _ = writeln!(text, "{name:width$}  {mean:>10.4}  {sd:>10.4}");
    }
    text
}
