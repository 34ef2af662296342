//! `brenier reproduce`: published experiments, run again and set beside their figures.

use std::path::{Path, PathBuf};

use brenier::data::{Encoding, ReadOptions, UciSet, uci_sets};
use brenier::reproduce::experiment::{self, Experiment};
use brenier::reproduce::lotka_volterra::{LvExperiment, LvObservation, Particles, TRUTHS, output_names};
use brenier::reproduce::sbibm::SbibmExperiment;
use brenier::reproduce::shallow_water::{Observation, SwExperiment};
use brenier::reproduce::{UciExperiment, UciScore};
use brenier::{Error, Run};

use crate::failure::Failure;
use crate::fetching::fetch_sets;
use crate::interrupt::{stop_on_interrupt, stop_on_interrupt_saying};
use crate::lock::Lock;
use crate::reproduce_args::{LvArguments, ReproduceCommand, SwArguments, UciArguments};
use crate::screen::Screen;
use crate::{observations, output, tables};

pub(crate) fn run(command: &ReproduceCommand) -> Result<(), Failure> {
    match command {
        ReproduceCommand::Uci(arguments) => {
            let experiment = uci(arguments)?;
            match arguments.row {
                Some((trial, repeat)) => training(&experiment, &arguments.out, trial, repeat),
                None => reproduce(&experiment, &arguments.out, arguments.resume),
            }
        }
        ReproduceCommand::Sbibm(arguments) => {
            reproduce(&SbibmExperiment::new(arguments.settings())?, &arguments.out, arguments.resume)
        }
        ReproduceCommand::ShallowWater(arguments) => {
            reproduce(&shallow_water(arguments)?, &arguments.out, arguments.resume)
        }
        ReproduceCommand::LotkaVolterra(arguments) => {
            reproduce(&lotka_volterra(arguments)?, &arguments.out, arguments.resume)
        }
    }
}

/// Runs any experiment in the folder `out` and prints what it found.
fn reproduce(experiment: &dyn Experiment, out: &Path, resume: bool) -> Result<(), Failure> {
    make(out)?;
    let _lock = Lock::folder(out)?;
    let stop = stop_on_interrupt_saying(
        "stopping: what is finished is kept, --resume continues (Ctrl-C again to abort)",
    )?;
    let mut screen = Screen::new();
    let document = experiment::run(experiment, out, resume, Run::observed(&mut screen).stop(&stop))?;
    drop(screen);
    output::result(&document.to_text())?;
    document.warnings.iter().for_each(|text| output::warning(text));
    output::note(&format!("everything, with results.html and results.json, is in {}", out.display()));
    Ok(())
}

fn make(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))
}

fn shallow_water(arguments: &SwArguments) -> Result<SwExperiment, Failure> {
    let experiment = SwExperiment::new(arguments.settings()?)?;
    let Some(path) = &arguments.observed else { return Ok(experiment) };
    let truth = arguments.truth.as_ref().map(|path| tables::read_all(path)).transpose()?;
    let observation = Observation::from_tables(&tables::read_all(path)?, truth.as_ref())
        .map_err(|error| Failure::from(error).of_table(path))?;
    Ok(experiment.observed(observation))
}

fn lotka_volterra(arguments: &LvArguments) -> Result<LvExperiment, Failure> {
    let observed = two(&arguments.observed, "--observed")?;
    let particles = two(&arguments.particles, "--other-particles")?;
    if particles.is_some() && observed.is_none() {
        return Err(Failure::Usage(
            "--other-particles belong to the observations they were found at: name these with --observed"
                .into(),
        ));
    }
    let mut experiment = LvExperiment::new(arguments.settings())?;
    if let Some([first, second]) = observed {
        let read = |path: &PathBuf, truth| -> Result<LvObservation, Failure> {
            let none = Encoding::default();
            let table = observations::columns(path, &ReadOptions::default(), &output_names(), &none)?;
            LvObservation::from_table(&table, truth).map_err(|error| Failure::from(error).of_table(path))
        };
        experiment = experiment.observed([read(first, TRUTHS[0])?, read(second, TRUTHS[1])?]);
    }
    if let Some([first, second]) = particles {
        let read = |path: &PathBuf| -> Result<Particles, Failure> {
            Particles::from_table(&tables::read_all(path)?)
                .map_err(|error| Failure::from(error).of_table(path))
        };
        experiment = experiment.references([read(first)?, read(second)?]);
    }
    Ok(experiment)
}

/// The two files of a flag, where it is given.
fn two<'a>(files: &'a [PathBuf], flag: &str) -> Result<Option<[&'a PathBuf; 2]>, Failure> {
    match files {
        [] => Ok(None),
        [first, second] => Ok(Some([first, second])),
        more => Err(Failure::Usage(format!(
            "{flag} takes 2 files, one for each of the two parameter vectors, not {}",
            more.len()
        ))),
    }
}

/// Every table is read and checked before the first training.
fn uci(arguments: &UciArguments) -> Result<UciExperiment, Failure> {
    let sets: Vec<&'static UciSet> = match arguments.dataset.as_slice() {
        [] => uci_sets().iter().collect(),
        names => names.iter().map(|name| UciSet::find(name)).collect::<Result<_, _>>()?,
    };
    let data = match &arguments.data_dir {
        Some(folder) => folder.clone(),
        None => {
            let folder = arguments.out.join("data");
            fetch_sets(&sets, &folder, None, output::quiet())?;
            folder
        }
    };
    Ok(UciExperiment::new(&sets, &arguments.methods(), &data, &arguments.protocol())?)
}

/// One training of a cell again, alone.
fn training(experiment: &UciExperiment, out: &Path, trial: usize, repeat: usize) -> Result<(), Failure> {
    let Some((name, cell)) = experiment.only() else {
        return Err(Failure::Usage("--training needs one --dataset and one --method".to_owned()));
    };
    let stop = stop_on_interrupt()?;
    make(out)?;
    let _lock = Lock::folder(out)?;
    let (model, score) = cell.one(trial, repeat, &stop)?;
    if stop.is_stopped() {
        return Err(Failure::Interrupted(
            "stopped before the training was complete: no model was written".to_owned(),
        ));
    }
    let path = out.join(format!("{name}-{trial}-{repeat}.brenier"));
    model.save(&path)?;
    output::result(&format!("{}model {}\n", UciScore::csv(&[score]), path.display()))?;
    Ok(())
}
