//! `brenier completions`: a script for the user's shell.

use clap::CommandFactory;

use crate::args::{Arguments, CompletionsArguments};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &CompletionsArguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "brenier", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(())
}
