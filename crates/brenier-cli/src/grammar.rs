//! One grammar for all commands: what holds of every flag of every command, checked on clap's definition.

use std::collections::BTreeMap;

use brenier::FitSettings;
use brenier::abc::AbcSettings;
use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::args::{Arguments, with_json_files};
use crate::config::is_key;

/// Every command that does something, by its whole name.
fn leaves() -> Vec<(String, Command)> {
    fn gather(name: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        let below: Vec<&Command> = command.get_subcommands().filter(|own| own.get_name() != "help").collect();
        if below.is_empty() {
            found.push((name.to_owned(), command.clone()));
        }
        for command in below {
            gather(&format!("{name} {}", command.get_name()), command, found);
        }
    }
    let mut root = Arguments::command();
    root.build();
    let mut found = Vec::new();
    gather("brenier", &root, &mut found);
    found
}

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Switch,
    File,
    Columns,
    Assignments,
    Choice,
    Other,
}

fn kind(argument: &Arg) -> Kind {
    if !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
        return Kind::Switch;
    }
    if !argument.get_possible_values().is_empty() {
        return Kind::Choice;
    }
    let name = argument.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
    match name.as_str() {
        "COLUMNS" | "COLUMN" | "COLUMN,…" => Kind::Columns,
        _ if name.starts_with("FILE") || name.starts_with("TABLE") => Kind::File,
        "MODEL" | "DIR" | "PREFIX" => Kind::File,
        // A method may come with settings, so that clap cannot list all values.
        "METHOD" | "METHOD,…" => Kind::Choice,
        _ if name.contains('=') => Kind::Assignments,
        _ => Kind::Other,
    }
}

#[test]
fn clap_accepts_the_definition() {
    Arguments::command().debug_assert();
}

#[test]
fn a_flag_means_the_same_everywhere() {
    let mut seen: BTreeMap<String, (Kind, String)> = BTreeMap::new();
    for (name, command) in leaves() {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let Some(flag) = argument.get_long() else { continue };
            let own = kind(argument);
            if let Some((kind, elsewhere)) = seen.get(flag) {
                assert_eq!(*kind, own, "--{flag} of {name} and of {elsewhere}");
            }
            seen.insert(flag.to_owned(), (own, name.clone()));
        }
    }
    assert_eq!(seen["given"].0, Kind::Columns);
    assert_eq!(seen["observed"].0, Kind::File);
    assert_eq!(seen["log"].0, Kind::File);
}

#[test]
fn every_command_has_what_is_global() {
    let leaves = leaves();
    assert!(leaves.len() > 20);
    for (name, command) in leaves {
        let has = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
        for flag in ["quiet", "threads", "version", "help"] {
            assert!(has(flag), "{name} has no --{flag}");
        }
    }
}

#[test]
fn the_same_words_for_the_same_flag() {
    for (name, command) in leaves() {
        let find = |flag: &str| command.get_arguments().find(|argument| argument.get_long() == Some(flag));
        if let Some(json) = find("json") {
            let least = json.get_num_args().map(|range| range.min_values());
            assert!(least == Some(0) && json.is_require_equals_set(), "{name} --json [FILE]");
        }
        for flag in ["draws", "rows"] {
            let Some(argument) = find(flag).filter(|argument| !argument.is_hide_set()) else { continue };
            assert_eq!(argument.get_short(), Some('n'), "{name} --{flag} is -n");
        }
        for argument in command.get_arguments().filter(|argument| argument.get_short() == Some('n')) {
            assert!(matches!(argument.get_long(), Some("draws" | "rows")), "{name} -n");
        }
        for (flag, words) in [
            ("drop-missing", "Leave out rows with missing"),
            ("seed", "Seed"),
            ("resume", ""),
            ("row", "Row, from 1, of the"),
        ] {
            if let Some(argument) = find(flag) {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.starts_with(words), "{name} --{flag}: {help}");
            }
        }
    }
}

#[test]
fn old_spellings_are_read_and_not_shown() {
    for line in [
        "sample m.brenier --given obs.csv",
        "mode m.brenier --given obs.csv --units user",
        "straightness m.brenier --given obs.csv --json",
        "report m.brenier t.csv --given obs.csv --with n.brenier --out r.html",
        "plot predictive --posterior m.brenier --given s.csv --observed p.csv --observation 2 --out p.svg",
        "plot pairs d.csv --log rest --out p.svg",
        "calibrate p.csv d.csv --target x --observation pair",
        "data split t.csv --rows rows.csv",
        "reproduce uci --row 11/1 --out uci",
        "reproduce lotka-volterra --particles a.csv,b.csv --out lv",
    ] {
        let words = std::iter::once("brenier").chain(line.split(' '));
        Arguments::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for (name, command) in leaves() {
        let help = command.clone().render_long_help().to_string();
        for old in ["--given <TABLE>", "--given observed", "--rows <FILE>", "--row <TRIAL", "--with <MODEL"] {
            assert!(!help.contains(old), "{name}: {old}");
        }
    }
}

#[test]
fn json_takes_a_json_file_and_nothing_else() {
    let joined = |line: &str| -> String {
        let words = with_json_files(line.split(' ').map(Into::into));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(joined("info --json m.brenier"), "info --json m.brenier");
    assert_eq!(joined("check m t.csv --json c.json --strict"), "check m t.csv --json=c.json --strict");
    assert_eq!(joined("check m t.csv --json -"), "check m t.csv --json=-");
    assert_eq!(joined("info -- --json c.json"), "info -- --json c.json");
}

#[test]
fn flags_and_settings_files_have_the_same_names() {
    for (name, keys) in
        [("brenier fit", is_key::<FitSettings> as fn(&str) -> bool), ("brenier abc", is_key::<AbcSettings>)]
    {
        let leaves = leaves();
        let (_, command) = leaves.iter().find(|(own, _)| own == name).expect("the command exists");
        for argument in command.get_arguments() {
            let heading = argument.get_help_heading().unwrap_or_default();
            let Some(flag) = argument.get_long() else { continue };
            if matches!(heading, "Columns" | "Map" | "Training" | "Search") {
                assert!(keys(&flag.replace('-', "_")), "{name}: --{flag} is no key of a settings file");
            }
        }
    }
}

/// Lines of examples and tables are indented and must survive a terminal of 80 columns unbroken, so that they can be
/// pasted; all other text is left to clap to wrap, and must not be wrapped by hand as well.
#[test]
fn help_is_wrapped_once() {
    let mut root = Arguments::command();
    root.build();
    let mut all = vec![root];
    while let Some(command) = all.pop() {
        let name = command.get_name().to_owned();
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut previous = "";
        for line in help.lines() {
            let indented = line.starts_with("  ");
            assert!(!indented || line.chars().count() <= 80, "{name}: too long to paste: {line}");
            let text = |line: &str| !line.is_empty() && !line.starts_with("  ") && !line.ends_with(':');
            assert!(!(text(previous) && text(line)), "{name}: wrapped by hand:\n{previous}\n{line}");
            previous = line;
        }
        all.extend(command.get_subcommands().filter(|own| own.get_name() != "help").cloned());
    }
}
