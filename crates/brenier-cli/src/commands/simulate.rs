//! `brenier simulate`: tables of simulations, and putting parts of them together.

use std::path::Path;
use std::time::{Duration, Instant};

use brenier::data::{self, Encoding, Table, write_bytes};
use brenier::simulate::{FailedRow, Outcome, SimulateSettings, Simulated, merge, run as simulate};
use brenier::{Journal, Run};

use crate::failure::Failure;
use crate::files::{FAILED, PARTIAL, beside};
use crate::interrupt::stop_on_interrupt_saying;
use crate::lock::Lock;
use crate::model_args::SimulateArguments;
use crate::models::{Model, set_aside};
use crate::screen::Screen;
use crate::tables::Output;
use crate::{observations, output, tables};

pub(crate) fn run(arguments: &SimulateArguments) -> Result<(), Failure> {
    let target = output::destination(Some(&arguments.out));
    output::check_destination(&target)?;
    let _lock = Lock::file(&arguments.out)?;
    if !arguments.merge.is_empty() {
        return merge_tables(arguments, &target);
    }
    let rows = match (arguments.n, &arguments.parameters) {
        (Some(0), _) => return Err(Failure::Usage("-n: ask for at least 1 row".to_owned())),
        (Some(rows), _) => rows as u64,
        (None, Some(_)) => 0,
        (None, None) => return Err(Failure::Usage("say how many rows to simulate, with -n".to_owned())),
    };
    let stop = stop_on_interrupt_saying("stopping: finished rows are kept (press Ctrl-C again to abort)")?;
    let model = Model::start_with(&arguments.model, &arguments.options(), &stop)?;
    let simulator = model.simulator();
    let parameters = match &arguments.parameters {
        Some(path) => Some(observations::columns(
            path,
            &arguments.tables.options(),
            simulator.prior().names(),
            &Encoding::default(),
        )?),
        None => None,
    };
    // The state goes beside the table, unless that is a device.
    let partial = match &target {
        Output::Path(path) if !path.exists() || path.is_file() => Some(beside(path, PARTIAL)),
        _ => None,
    };
    if let Some(path) = &partial {
        set_aside(path, arguments.resume, output::quiet())?;
    }
    let journal = partial.as_ref().map(|path| Journal { resume: arguments.resume, ..Journal::at(path) });
    let settings = SimulateSettings { rows, seed: arguments.seed, shard: arguments.shard };
    let started = Instant::now();
    let mut screen = Screen::new();
    let surrounding = Run::observed(&mut screen).stop(&stop).journal(journal);
    let outcome = simulate(simulator, &settings, parameters.as_ref(), surrounding);
    drop(screen);
    model.tell_restarts();
    let simulated = match outcome {
        Ok(Outcome::Complete(simulated)) => simulated,
        Ok(Outcome::Interrupted { done, rows }) => {
            let kept = match &partial {
                Some(path) => {
                    format!("kept in {}; re-run the same command with --resume to continue", path.display())
                }
                None => "lost, because there is no table file to keep them beside".to_owned(),
            };
            return Err(Failure::Interrupted(format!("stopped after {done} of {rows} rows, {kept}")));
        }
        Err(error) => {
            // What the journal holds is of no use when the program is wrong.
            if let (brenier::Error::Domain(_), Some(path)) = (&error, &partial) {
                data::discard(path);
            }
            return Err(error.into());
        }
    };
    finish(&simulated, simulator.prior().names(), &target)?;
    if let Some(path) = &partial {
        data::discard(path);
    }
    if !output::quiet() && target != Output::Stdout {
        output::note(&summary(&simulated, &arguments.out, started.elapsed()));
    }
    Ok(())
}

/// Writes the table, and the failed rows beside it.
fn finish(simulated: &Simulated, parameters: &[String], target: &Output) -> Result<(), Failure> {
    if let Output::Path(path) = target {
        let list = beside(path, FAILED);
        if simulated.failures.is_empty() {
            data::discard(&list); // of an earlier run
        } else {
            write_bytes(&list, failed_rows(&simulated.failures, parameters).as_bytes())?;
        }
    }
    if !simulated.failures.is_empty() {
        let count = simulated.failures.len();
        let first = &simulated.failures[0];
        let place = match target {
            Output::Path(path) => format!("; all are in {}", beside(path, FAILED).display()),
            Output::Stdout => String::new(),
        };
        output::warning(&format!(
            "{count} {} failed and {} not in the table, the first (row {}) because: {}{place}",
            if count == 1 { "row" } else { "rows" },
            if count == 1 { "is" } else { "are" },
            first.row + 1,
            first.reason
        ));
    }
    tables::write(target, &simulated.table)?;
    Ok(())
}

/// Row (from 1), parameters and reason of every failure, as comma-separated text.
fn failed_rows(failures: &[FailedRow], parameters: &[String]) -> String {
    use std::fmt::Write;
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " "));
    let plain = |text: &String| if text.contains([',', '"']) { quoted(text) } else { text.clone() };
    let mut text = String::from("row");
    parameters.iter().for_each(|name| {
        let _ = write!(text, ",{}", plain(name));
    });
    text.push_str(",reason\n");
    for failure in failures {
        let _ = write!(text, "{}", failure.row + 1);
        for value in &failure.parameters {
            let _ = write!(text, ",{value:?}");
        }
        let _ = writeln!(text, ",{}", quoted(&failure.reason));
    }
    text
}

fn summary(simulated: &Simulated, out: &Path, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    let rows = simulated.table.rows();
    let mut text = format!(
        "{} in {seconds:.1} s ({:.0} per second), written to {}",
        output::count(rows, "row"),
        rows as f64 / seconds.max(1e-9),
        out.display()
    );
    if simulated.abandoned > 0 {
        let part = 100.0 * simulated.abandoned as f64
            / (simulated.abandoned as f64 + rows as f64 + simulated.failures.len() as f64);
        text.push_str(&format!(
            "; {} draws ({part:.1} %) were abandoned by the model and drawn again",
            simulated.abandoned
        ));
    }
    text
}

fn merge_tables(arguments: &SimulateArguments, target: &Output) -> Result<(), Failure> {
    let paths = &arguments.merge;
    let mut parts = Vec::with_capacity(paths.len());
    for path in paths {
        let everything = |names: &[String]| Ok((0..names.len()).collect::<Vec<_>>());
        let read = tables::read(path, &arguments.tables.options(), everything)?;
        output::noticed(path, &read);
        parts.push((path.clone(), read.table));
    }
    let (table, warnings): (Table, Vec<String>) = merge(parts)?;
    warnings.iter().for_each(|text| output::warning(text));
    tables::write(target, &table)?;
    if let (Output::Path(path), false) = (target, output::quiet()) {
        let (rows, tables) = (output::count(table.rows(), "row"), output::count(paths.len(), "table"));
        output::note(&format!("{rows} of {tables} written to {}", path.display()));
    }
    Ok(())
}
