//! `brenier man`: manual pages, of the program or of every command.

use brenier::Error;
use brenier::data::write_bytes;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::args::{Arguments, ManArguments};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &ManArguments) -> Result<(), Failure> {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    let Some(dir) = &arguments.dir else {
        output::result(&page(Man::new(root))?)?;
        return Ok(());
    };
    std::fs::create_dir_all(dir).map_err(|source| Error::io(dir, "make the folder", source))?;
    let mut commands: Vec<Command> = vec![root];
    while let Some(command) = commands.pop() {
        commands.extend(command.get_subcommands().filter(|own| !own.is_hide_set()).cloned());
        let man = Man::new(command);
        write_bytes(&dir.join(man.get_filename()), page(man)?.as_bytes())?;
    }
    output::note(&format!("manual pages written to {}", dir.display()));
    Ok(())
}

/// The page in roff, its examples kept line by line.
fn page(man: Man) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    man.render(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let Some((before, extra)) = text.split_once(".SH EXTRA\n") else { return Ok(text.into_owned()) };
    let mut page = format!("{before}.SH NOTES\n");
    let mut literal = false;
    for line in extra.lines() {
        if line.starts_with("  ") != literal {
            literal = !literal;
            page.push_str(if literal { ".nf\n" } else { ".fi\n" });
        }
        page.push_str(line);
        page.push('\n');
    }
    Ok(page)
}
