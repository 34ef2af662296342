//! From the flags of `simulate` and `abc` to a simulator.

use std::path::Path;
use std::time::Duration;

use brenier::simulate::{
    Prior, PriorBlock, Program, ProgramSettings, Simulator, SimulatorOptions, WithPrior, built_in,
    built_in_with,
};
use brenier::{Error, Run, StopToken};

use crate::check_args::SimulatorArguments;
use crate::failure::Failure;
use crate::files::{OLD, beside};
use crate::model_args::ModelArguments;
use crate::output;
use crate::screen::Screen;

/// A built-in model or a program, whose restarts can be told.
pub(crate) enum Model {
    BuiltIn(Box<dyn Simulator>),
    Program(Box<Program>),
}

impl Model {
    /// What the flags name; a program is started.
    pub(crate) fn start(flags: &ModelArguments, stop: &StopToken) -> Result<Self, Failure> {
        Self::start_with(flags, &SimulatorOptions::default(), stop)
    }

    /// The same with options of a built-in model.
    pub(crate) fn start_with(
        flags: &ModelArguments,
        options: &SimulatorOptions,
        stop: &StopToken,
    ) -> Result<Self, Failure> {
        if let (Some(command), Some(prior)) = (&flags.command, &flags.prior) {
            let settings = ProgramSettings {
                command: command.clone(),
                timeout: time("--timeout", flags.timeout)?,
                start_timeout: time("--start-timeout", flags.start_timeout)?,
                retries: flags.retries,
                ..ProgramSettings::default()
            };
            return Self::program(settings, read_prior(prior)?, stop);
        }
        let model = flags.model.as_deref().map(|name| built_in_with(name, options)).transpose()?;
        match (model.flatten(), &flags.prior) {
            (Some(model), None) => Ok(Self::BuiltIn(model)),
            (Some(model), Some(prior)) => {
                Ok(Self::BuiltIn(Box::new(WithPrior::new(model, read_prior(prior)?)?)))
            }
            (None, _) => Err(Failure::Usage(
                "name a model, as in brenier simulate lotka-volterra, or your own program with --command and --prior"
                    .to_owned(),
            )),
        }
    }

    /// The model or program that made the data of a posterior with parameters `names`, if the flags name one.
    pub(crate) fn for_posterior(
        flags: &SimulatorArguments,
        names: &[String],
        stop: &StopToken,
    ) -> Result<Option<Self>, Failure> {
        if let Some(command) = &flags.command {
            let prior = match &flags.prior {
                Some(path) => read_prior(path)?,
                None => {
                    // Nothing is drawn from it: it only names the parameters.
                    let block =
                        |name: &String| PriorBlock::Uniform { name: name.clone(), low: 0.0, high: 1.0 };
                    Prior::new(&names.iter().map(block).collect::<Vec<_>>(), "".as_ref())?
                }
            };
            let settings = ProgramSettings {
                command: command.clone(),
                timeout: time("--timeout", flags.timeout)?,
                start_timeout: time("--start-timeout", flags.start_timeout)?,
                ..ProgramSettings::default()
            };
            return Self::program(settings, prior, stop).map(Some);
        }
        Ok(flags.simulator.as_deref().and_then(built_in).map(Self::BuiltIn))
    }

    /// A program that is started, and whose silence the user hears of.
    fn program(settings: ProgramSettings, prior: Prior, stop: &StopToken) -> Result<Self, Failure> {
        let mut screen = Screen::new();
        let run = Run::observed(&mut screen).stop(stop);
        Ok(Self::Program(Box::new(Program::start(settings, prior, run)?)))
    }

    pub(crate) fn simulator(&self) -> &dyn Simulator {
        match self {
            Self::BuiltIn(model) => model.as_ref(),
            Self::Program(program) => program.as_ref(),
        }
    }

    /// Warns of workers that died.
    pub(crate) fn tell_restarts(&self) {
        if let Self::Program(program) = self
            && program.restarts() > 0
        {
            let count = program.restarts();
            let workers = if count == 1 { "1 worker".to_owned() } else { format!("{count} workers") };
            output::warning(&format!("{workers} of the program had to be replaced"));
        }
    }
}

/// Reads a prior. An error keeps the names of the file, which are not flags.
fn read_prior(path: &Path) -> Result<Prior, Failure> {
    Prior::read(path).map_err(|error| match error {
        Error::Model { .. } => Failure::Usage(error.to_string()),
        other => Failure::Library(other),
    })
}

/// The seconds of a flag.
fn time(flag: &str, seconds: Option<f64>) -> Result<Option<Duration>, Failure> {
    match seconds.map(Duration::try_from_secs_f64) {
        None => Ok(None),
        Some(Ok(time)) if !time.is_zero() => Ok(Some(time)),
        _ => Err(Failure::Usage(format!("{flag}: ask for a positive number of seconds"))),
    }
}

/// Sets the state of an earlier, unfinished run aside unless it is to be resumed: it may be hours of work.
pub(crate) fn set_aside(path: &Path, resume: bool, quiet: bool) -> Result<(), Failure> {
    match (path.exists(), resume) {
        (false, true) if !quiet => output::note(&format!("there is no {}: starting afresh", path.display())),
        (true, false) => {
            let old = beside(path, OLD);
            std::fs::rename(path, &old)
                .map_err(|source| Error::io(path, "set the old state aside", source))?;
            output::warning(&format!(
                "{} of an unfinished run is now {}; --resume would have continued it",
                path.display(),
                old.display()
            ));
        }
        _ => {}
    }
    Ok(())
}
