//! `brenier reproduce`: published experiments, run again and set beside their figures.

mod lotka_volterra;
mod uci;

use std::path::Path;

use brenier::Error;

use crate::failure::Failure;
use crate::reproduce_args::ReproduceCommand;

pub(crate) fn run(command: &ReproduceCommand) -> Result<(), Failure> {
    match command {
        ReproduceCommand::Uci(arguments) => uci::run(arguments),
        ReproduceCommand::LotkaVolterra(arguments) => lotka_volterra::run(arguments),
    }
}

fn make(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|source| Error::io(folder, "make the folder", source))
}
