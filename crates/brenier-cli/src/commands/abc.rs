//! `brenier abc`: weighted particles at an observation, without any map.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use brenier::abc::{
    AbcEvent, AbcMethod, AbcOutcome, AbcSettings, AbcStop, Population, Round, remove_journal, run as search,
};
use brenier::data::{self, Encoding, Output, ReadOptions};
use brenier::simulate::Prior;
use brenier::{Error, Event, Journal, Observer, Run};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::files::{CHECKPOINT, PILOT, beside};
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::model_args::AbcArguments;
use crate::models::{Model, set_aside};
use crate::progress::JsonLog;
use crate::{config, observations, output};

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
    let mut screen = Screen::new(output::quiet());
    if let Some(path) = &arguments.log {
        screen.log = Some(JsonLog::create(path, arguments.resume)?);
    }
    let run = Run::observed(&mut screen).stop(&stop).journal(checkpoint.clone());
    let outcome = search(simulator, &observed, &settings, scale.as_ref(), run);
    drop(screen);
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
    data::write(&target, &population.to_table(simulator.prior())?)?;
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

/// A bar on a terminal and a line for every round; the log, if any.
pub(crate) struct Screen {
    quiet: bool,
    bar: Option<ProgressBar>,
    log: Option<JsonLog>,
}

impl Screen {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:20} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self { quiet, bar, log: None }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => output::note(text),
        }
    }
}

fn line(round: &Round) -> String {
    format!(
        "round {:2}  ε {:<8.4}  {:7.3} % accepted  {:>9} simulations  effective {:.0}{}",
        round.round,
        round.tolerance,
        100.0 * round.acceptance,
        HumanCount(round.total_simulations).to_string(),
        round.effective,
        if round.resampled { ", resampled" } else { "" }
    )
}

impl Observer for Screen {
    fn event(&mut self, event: &Event) -> Result<(), Error> {
        let Event::Abc(event) = event else { return Ok(()) };
        if let Some(log) = &mut self.log {
            // The pilot and the batches are too many for a log.
            if !matches!(event, AbcEvent::Pilot { .. } | AbcEvent::Progress { .. }) {
                log.write(event);
            }
        }
        if self.quiet {
            return Ok(());
        }
        match event {
            AbcEvent::Started { resumed_rounds, .. } => {
                if *resumed_rounds > 0 {
                    self.say(&format!("continuing after {resumed_rounds} rounds"));
                }
            }
            AbcEvent::Pilot { done, rows } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(*rows);
                    bar.set_position(*done);
                    bar.set_message(format!("pilot {done}/{rows}"));
                }
            }
            AbcEvent::Progress { round, tolerance, accepted, wanted, acceptance, total_simulations } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(*wanted as u64);
                    bar.set_position(*accepted as u64);
                    bar.set_message(format!(
                        "round {round} ε {tolerance:.4} {accepted}/{wanted} ({:.3} %), {} simulations",
                        100.0 * acceptance,
                        HumanCount(*total_simulations)
                    ));
                }
            }
            AbcEvent::Round(round) => self.say(&line(round)),
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
