//! The `brenier` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(brenier_cli::run(std::env::args_os()))
}
