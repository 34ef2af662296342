//! The library's names of settings as the flags of the running command.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use brenier::Error;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// A flag, its other spellings, and whether it was given.
#[derive(Clone, Debug)]
struct Flag {
    long: String,
    aliases: Vec<String>,
    given: bool,
}

/// The flags that messages may name.
#[derive(Clone, Debug)]
struct Flags {
    /// Those of the running command.
    own: Vec<Flag>,
    /// Those of all commands.
    all: Vec<Flag>,
    /// The settings file that was read, and its keys.
    file: Option<(PathBuf, Vec<String>)>,
}

impl Flags {
    const NONE: Self = Self { own: Vec::new(), all: Vec::new(), file: None };

    /// The flags of the command that `matches` chose in `definition`.
    fn of(definition: &Command, matches: &ArgMatches) -> Self {
        let global = definition.get_arguments().filter_map(|argument| flag(argument, false));
        let mut flags = Self { all: every(definition), own: global.collect(), file: None };
        let (mut command, mut matches) = (definition, matches);
        while let Some((name, below)) = matches.subcommand()
            && let Some(chosen) = command.find_subcommand(name)
        {
            (command, matches) = (chosen, below);
        }
        let typed = |argument: &Arg| {
            matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        flags.own.extend(command.get_arguments().filter_map(|argument| flag(argument, typed(argument))));
        flags
    }

    /// The flag of the setting `name`: the command's own, or one of another command.
    fn named(&self, name: &str) -> Option<&str> {
        let flag = find(&self.own, name).or_else(|| find(&self.all, name))?;
        Some(&flag.long)
    }

    /// [`message`] with these flags.
    fn message(&self, error: &Error) -> String {
        let Error::Settings { name, problem } = error else { return self.spoken(&error.to_string()) };
        let own = find(&self.own, name);
        match &self.file {
            Some((path, keys)) if keys.contains(name) && !own.is_some_and(|flag| flag.given) => {
                format!("{}: {error}", path.display())
            }
            _ => match own {
                Some(flag) => format!("--{}: {}", flag.long, self.spoken(problem)),
                None => self.spoken(&error.to_string()),
            },
        }
    }

    /// [`with_flags`] with these flags.
    fn spoken(&self, text: &str) -> String {
        let mut spoken = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, quoted, after)) = next_quoted(rest) {
            let (name, value) = match quoted.split_once(" = ") {
                Some((name, value)) => (name, Some(value)),
                None => (quoted, None),
            };
            spoken.push_str(before);
            match (self.named(name), value) {
                (Some(flag), None) => spoken.push_str(&format!("--{flag}")),
                (Some(flag), Some(value)) => spoken.push_str(&format!("--{flag} {value}")),
                (None, _) => spoken.push_str(&format!("`{quoted}`")),
            }
            rest = after;
        }
        spoken.push_str(rest);
        spoken
    }
}

static FLAGS: RwLock<Flags> = RwLock::new(Flags::NONE);

/// Sets the flags by which messages name settings: those of the command that `matches` chose in `definition`.
pub(crate) fn set_flags(definition: &Command, matches: &ArgMatches) {
    *FLAGS.write().unwrap_or_else(PoisonError::into_inner) = Flags::of(definition, matches);
}

/// Sets the settings file, whose keys keep their names in messages.
pub(crate) fn set_file(path: &Path, keys: Vec<String>) {
    FLAGS.write().unwrap_or_else(PoisonError::into_inner).file = Some((path.to_owned(), keys));
}

fn flags() -> Flags {
    FLAGS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// An error's sentence, in which a setting that is a flag of the command is named so. A setting that was read from the
/// settings file keeps the name that it has there.
pub(crate) fn message(error: &Error) -> String {
    flags().message(error)
}

/// The library names settings as in a settings file, in backticks; here they are flags: `` `pca = 20` `` is `--pca 20`.
pub(crate) fn with_flags(text: &str) -> String {
    flags().spoken(text)
}

/// An argument as a flag, if it is one.
fn flag(argument: &Arg, given: bool) -> Option<Flag> {
    let aliases = argument.get_all_aliases().unwrap_or_default();
    let mut aliases: Vec<String> = aliases.into_iter().map(str::to_owned).collect();
    // A field of the settings may have a longer name than its flag.
    aliases.push(argument.get_id().as_str().replace('_', "-"));
    Some(Flag { long: argument.get_long()?.to_owned(), aliases, given })
}

/// The flags of a command and of all commands below it.
fn every(command: &Command) -> Vec<Flag> {
    let own = command.get_arguments().filter_map(|argument| flag(argument, false));
    own.chain(command.get_subcommands().flat_map(every)).collect()
}

/// The flag with the name of a setting, if not by its name then by another spelling.
fn find<'a>(flags: &'a [Flag], name: &str) -> Option<&'a Flag> {
    let long = name.replace('_', "-");
    let exact = flags.iter().find(|flag| flag.long == long);
    exact.or_else(|| flags.iter().find(|flag| flag.aliases.contains(&long)))
}

/// What is before, between and after the first two backticks.
fn next_quoted(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (quoted, after) = rest.split_once('`')?;
    Some((before, quoted, after))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    fn flags(line: &str) -> Flags {
        let definition = Arguments::command();
        let words = std::iter::once("brenier").chain(line.split(' '));
        let matches = definition.clone().try_get_matches_from(words);
        Flags::of(&definition, &matches.unwrap_or_else(|error| panic!("{line}: {error}")))
    }

    #[test]
    fn settings_become_flags_and_other_quotations_stay() {
        let fit = flags("fit t.csv --target x --out m.brenier");
        let text = "use `pca = 0.99` or `drop_missing`; `A` and `a b` and `adam` and a lone ` stay";
        let spoken = "use --pca 0.99 or --drop-missing; `A` and `a b` and `adam` and a lone ` stay";
        assert_eq!(fit.spoken(text), spoken);
        // A flag of another command, and one with another name than the setting's.
        let mode = flags("mode m.brenier --at y=1");
        assert_eq!(mode.spoken("fit it with `joint`"), "fit it with --joint");
        assert_eq!(mode.spoken("(`units = standardised`)"), "(--density standardised)");
    }

    #[test]
    fn a_setting_of_the_command_is_named_as_its_flag() {
        let error = Error::setting("batch_size", "must be at least 1");
        let flag = "--batch-size: must be at least 1";
        assert_eq!(flags("fit t.csv --out m.brenier").message(&error), flag);
        assert_eq!(flags("density m.brenier t.csv").message(&error), error.to_string());
        let abc = flags("abc two-moons --observed y.csv --out p.csv");
        let simulations = Error::setting("max_simulations", "must be at least 1");
        assert_eq!(abc.message(&simulations), "--simulations: must be at least 1");
        // A settings file keeps its names, unless the flag was given too.
        let with_file = |line: &str, key: &str| {
            let file = Some((PathBuf::from("fit.toml"), vec![key.to_owned()]));
            Flags { file, ..flags(line) }.message(&error)
        };
        assert_eq!(with_file("fit t.csv --out m.brenier", "batch_size"), format!("fit.toml: {error}"));
        assert_eq!(with_file("fit t.csv --batch-size 0 --out m.brenier", "batch_size"), flag);
        assert_eq!(with_file("fit t.csv --out m.brenier", "epochs"), flag);
    }
}
