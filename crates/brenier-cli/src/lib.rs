//! The `brenier` command as a library: [`run`] takes the arguments and returns the exit code.
//!
//! The binary of this package is one call of it; a package in another language can be another. Parsing is in the `args`
//! modules, one module per command in `commands`, and everything that computes in the crate `brenier`.

mod args;
mod check_args;
mod cluster_args;
mod commands;
mod config;
mod failure;
mod files;
#[cfg(test)]
mod grammar;
mod interrupt;
mod lock;
mod log;
mod method_args;
mod model_args;
mod models;
mod observations;
mod output;
mod plot_args;
mod reproduce_args;
mod screen;
mod tables;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::{CommandFactory, FromArgMatches};

pub use cluster_args::shard;

use args::{Arguments, Command, with_json_files};
use failure::{Failure, UNEXPECTED};
use plot_args::PlotCommand;

/// Runs the command whose name and arguments these are; returns its exit code.
///
/// Results go to standard output, everything else to standard error. Signal handlers and a panic hook are installed for the
/// whole process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let definition = Arguments::command();
    let words = with_json_files(arguments.into_iter());
    let parsed = definition
        .clone()
        .try_get_matches_from(words)
        .and_then(|matches| Arguments::from_arg_matches(&matches).map(|arguments| (matches, arguments)));
    let (matches, arguments) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version are printed this way too, with the exit code 0.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(UNEXPECTED);
        }
    };
    // A panic is a mistake of ours: one line that can be reported, no trace over the user's terminal.
    std::panic::set_hook(Box::new(|panic| {
        if brenier::data::is_decoding() {
            return; // the file's mistake, and an error of its own
        }
        output::error(&format!("this is a mistake in brenier, please report it: {panic}").replace('\n', " "));
    }));
    output::set_quiet(arguments.everywhere.quiet);
    let threads = arguments.everywhere.threads;
    let result = catch_unwind(AssertUnwindSafe(|| {
        files::check(&definition, &matches, &arguments.command)?;
        dispatch(arguments.command, threads)
    }));
    match result {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => {
            if let Some(message) = failure.message() {
                output::error(&message);
            }
            failure.code()
        }
        Err(_) => UNEXPECTED,
    }
}

fn dispatch(command: Command, threads: Option<usize>) -> Result<(), Failure> {
    let threads = match &command {
        // Nothing is shared out there.
        Command::Info(_)
        | Command::Data { .. }
        | Command::Cluster { .. }
        | Command::Completions(_)
        | Command::Man(_) => Some(1),
        Command::Plot { command: PlotCommand::Pairs(_) | PlotCommand::Curves(_) } => Some(1),
        _ => threads,
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|error| Failure::Usage(format!("--threads: cannot start the threads: {error}")))?;
    // Inside the pool, so that the training loop itself is one of the workers.
    pool.install(|| match command {
        Command::Fit(arguments) => commands::fit::run(*arguments),
        Command::Tune(arguments) => commands::tune::run(*arguments),
        Command::Sample(arguments) => commands::sample::run(&arguments),
        Command::Density(arguments) => commands::density::run(&arguments),
        Command::Mode(arguments) => commands::mode::run(&arguments),
        Command::Straightness(arguments) => commands::straightness::run(&arguments),
        Command::Compare(arguments) => commands::compare::run(&arguments),
        Command::Check(arguments) => commands::check::run(&arguments),
        Command::Report(arguments) => commands::report::run(&arguments),
        Command::Calibrate(arguments) => commands::calibrate::run(&arguments),
        Command::Cluster { command } => commands::cluster::run(&command),
        Command::Info(arguments) => commands::info::run(&arguments),
        Command::Data { command } => commands::data::run(&command),
        Command::Demo(arguments) => commands::demo::run(&arguments),
        Command::Plot { command } => commands::plot::run(&command),
        Command::Simulate(arguments) => commands::simulate::run(&arguments),
        Command::Abc(arguments) => commands::abc::run(&arguments),
        Command::Reproduce { command } => commands::reproduce::run(&command),
        Command::Completions(arguments) => commands::completions::run(&arguments),
        Command::Man(arguments) => commands::man::run(&arguments),
    })
}
