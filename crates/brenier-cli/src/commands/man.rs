//! `brenier man`: manual pages, of the program or of every command.

use brenier::Error;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Arguments, ManArguments};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    let Some(dir) = &arguments.dir else {
        let mut page = Vec::new();
        Man::new(Arguments::command()).render(&mut page)?;
        output::result(&String::from_utf8_lossy(&page))?;
        return Ok(());
    };
    std::fs::create_dir_all(dir).map_err(|source| Error::io(dir, "make the folder", source))?;
    clap_mangen::generate_to(Arguments::command(), dir)
        .map_err(|source| Error::io(dir, "write the pages", source))?;
    output::note(&format!("manual pages written to {}", dir.display()));
    Ok(())
}
