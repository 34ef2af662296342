//! The files that a command reads and writes: none is written that is read, or written twice.
//!
//! Every flag that takes a path is found in clap's definition, so a new one is looked at without further ado; its
//! purpose is in [`ROLES`], and a test fails for a flag without a role.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches};

use crate::args::Command;
use crate::data_args::{DataCommand, SplitArguments, TableFormat};
use crate::failure::Failure;
use crate::reproduce_args::ReproduceCommand;

/// The state of a fit or an ABC search, beside its result.
pub(crate) const CHECKPOINT: &str = ".checkpoint";
/// The first block of a joint fit, beside its checkpoint.
pub(crate) const GIVEN: &str = ".given";
/// The finished rows of a simulation that is not complete.
pub(crate) const PARTIAL: &str = ".partial";
/// The rows of a simulation that failed.
pub(crate) const FAILED: &str = ".failed.csv";
/// The folder of a search for settings.
pub(crate) const TUNE: &str = ".tune";
/// The pilot of an ABC search, beside its checkpoint.
pub(crate) const PILOT: &str = ".pilot";
/// What was set aside.
pub(crate) const OLD: &str = ".old";
/// Held while a result is in the making.
pub(crate) const LOCK: &str = ".lock";

/// What a flag's path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A file to read.
    Input,
    /// A file to write.
    Output,
    /// A model file to write.
    Model,
    /// A folder: the files in it decide, see [`derived`].
    Folder,
    /// The beginning of files' names, see [`derived`].
    Prefix,
}

/// The role of every flag and positional argument that takes a path, by its name in clap's definition. A name means
/// the same in every command, but for those in [`EXCEPTIONS`].
const ROLES: &[(&str, Role)] = &[
    ("assignment", Role::Output),
    ("config", Role::Input),
    ("data_dir", Role::Folder),
    ("dir", Role::Folder),
    ("draws", Role::Input),
    ("first", Role::Input),
    ("given", Role::Input),
    ("json", Role::Output),
    ("log", Role::Output),
    ("merge", Role::Input),
    ("model", Role::Input),
    ("observed", Role::Input),
    ("others", Role::Input),
    ("out", Role::Output),
    ("out_prefix", Role::Prefix),
    ("pairs", Role::Input),
    ("overlay", Role::Input),
    ("parameters", Role::Input),
    ("particles", Role::Input),
    ("plot", Role::Output),
    ("posterior", Role::Input),
    ("prior", Role::Input),
    ("projection", Role::Input),
    ("scale", Role::Input),
    ("second", Role::Input),
    ("summary", Role::Output),
    ("table", Role::Input),
    ("tables", Role::Input),
    ("test", Role::Input),
    ("valid", Role::Input),
];

/// Where a name has another role than in [`ROLES`].
const EXCEPTIONS: &[(&str, &str, Role)] = &[
    ("demo", "out", Role::Folder),
    ("fit", "out", Role::Model),
    ("lotka-volterra", "out", Role::Folder),
    ("sbibm", "out", Role::Folder),
    ("shallow-water", "out", Role::Folder),
    ("shallow-water", "truth", Role::Input),
    ("tune", "out", Role::Model),
    ("uci", "out", Role::Folder),
];

/// Flags whose text may be the path of a table or settings file, if there is such a file.
const PERHAPS: &[&str] = &["mode", "space", "truth"];

/// Endings of files that are no models; a model so named would be taken for one of them.
const NOT_MODELS: &[&str] = &[
    "arrow", "csv", "dat", "feather", "gz", "htm", "html", "ipc", "json", "jsonl", "log", "md", "npy", "npz",
    "parquet", "pdf", "png", "py", "svg", "toml", "tsv", "txt", "xlsx", "zip", "zst",
];

/// The ending of models.
const MODEL: &str = "brenier";

fn role(command: &str, name: &str) -> Option<Role> {
    let exception = EXCEPTIONS.iter().find(|(own, id, _)| *own == command && *id == name);
    let role = || ROLES.iter().find(|(id, _)| *id == name).map(|(_, role)| *role);
    exception.map(|(_, _, role)| *role).or_else(role)
}

/// Refuses, before any work, what would overwrite an input or another output of the same command, and models that
/// are named like something else.
pub(crate) fn check(
    definition: &clap::Command,
    matches: &ArgMatches,
    command: &Command,
) -> Result<(), Failure> {
    let mut files = Files::default();
    files.gather(definition, matches)?;
    derived(command, &mut files);
    files.distinct()
}

/// The files that a split writes: for training, validation and test.
pub(crate) fn parts(arguments: &SplitArguments) -> [PathBuf; 3] {
    let extension = match arguments.out_format {
        Some(TableFormat::Csv) => "csv",
        Some(TableFormat::Parquet) => "parquet",
        Some(TableFormat::Arrow) => "arrow",
        Some(TableFormat::Npy) => "npy",
        Some(TableFormat::Npz) => "npz",
        None => arguments.table.extension().and_then(|extension| extension.to_str()).unwrap_or("csv"),
    };
    let prefix = arguments.out_prefix.clone().unwrap_or_else(|| match arguments.table.to_str() {
        Some("-") => PathBuf::from("split"),
        _ => arguments.table.with_extension(""),
    });
    ["train", "valid", "test"].map(|name| beside(&prefix, &format!("-{name}.{extension}")))
}

/// Files that follow from flags: side files, the parts of a split, what a prior or a program's command line names.
fn derived(command: &Command, files: &mut Files) {
    match command {
        Command::Fit(fit) => {
            let state = beside(&fit.out, CHECKPOINT);
            let given = beside(&state, GIVEN);
            files.sides("--out", &fit.out, [beside(&state, OLD), state, given, beside(&fit.out, LOCK)]);
        }
        Command::Tune(tune) => {
            if let Some(out) = &tune.out {
                files.sides("--out", out, [beside(out, LOCK)]);
                files.owned("--out", out, beside(out, TUNE));
            }
        }
        Command::Simulate(simulate) => {
            let out = &simulate.out;
            let partial = beside(out, PARTIAL);
            files.sides(
                "--out",
                out,
                [beside(&partial, OLD), partial, beside(out, FAILED), beside(out, LOCK)],
            );
            files.program(simulate.model.command.as_deref(), simulate.model.prior.as_deref());
        }
        Command::Abc(abc) => {
            let state = beside(&abc.out, CHECKPOINT);
            let pilot = beside(&state, PILOT);
            let old = [beside(&state, OLD), beside(&pilot, OLD)];
            files.sides("--out", &abc.out, old);
            files.sides("--out", &abc.out, [state, pilot, beside(&abc.out, LOCK)]);
            files.program(abc.model.command.as_deref(), abc.model.prior.as_deref());
        }
        Command::Check(check) => {
            let simulator = &check.checking.simulator;
            files.program(simulator.command.as_deref(), simulator.prior.as_deref());
        }
        Command::Report(report) => {
            let simulator = &report.checking.simulator;
            files.program(simulator.command.as_deref(), simulator.prior.as_deref());
        }
        Command::Plot { command: crate::plot_args::PlotCommand::Predictive(predictive) } => {
            files.program(predictive.command.as_deref(), predictive.prior.as_deref());
        }
        Command::Data { command: DataCommand::Split(split) } => {
            let flag = if split.out_prefix.is_some() { "--out-prefix" } else { "the split" };
            for part in parts(split) {
                files.output(flag, part);
            }
        }
        Command::Reproduce { command: ReproduceCommand::LotkaVolterra(experiment) } => {
            // Only tables can be mistaken for its inputs.
            let out = &experiment.out;
            let names = ["observed.csv", "test.parquet", "abc-1.csv", "abc-2.csv"].map(str::to_owned);
            let trained = experiment.rows.iter().map(|rows| format!("train-{rows}.parquet"));
            for name in names.into_iter().chain(trained) {
                files.output("--out", out.join(name));
            }
        }
        // Nothing besides what the flags name, or folders in which nothing can be an input.
        Command::Sample(_)
        | Command::Density(_)
        | Command::Mode(_)
        | Command::Straightness(_)
        | Command::Calibrate(_)
        | Command::Compare(_)
        | Command::Plot { .. }
        | Command::Cluster { .. }
        | Command::Info(_)
        | Command::Data { .. }
        | Command::Reproduce { .. }
        | Command::Demo(_)
        | Command::Completions(_)
        | Command::Man(_) => {}
    }
}

/// A file and the flag it comes from.
#[derive(Debug)]
struct Entry {
    /// As in `--out m.brenier`.
    what: String,
    flag: String,
    place: Place,
    written: bool,
    /// Whether everything below it belongs to the command too.
    folder: bool,
}

/// All files of one command.
#[derive(Debug, Default)]
struct Files(Vec<Entry>);

impl Files {
    /// What the flags of the command, or of its subcommand, name.
    fn gather(&mut self, definition: &clap::Command, matches: &ArgMatches) -> Result<(), Failure> {
        if let Some((name, further)) = matches.subcommand()
            && let Some(subcommand) = definition.find_subcommand(name)
        {
            self.gather(subcommand, further)?;
        }
        for argument in definition.get_arguments() {
            let (id, flag) = (argument.get_id().as_str(), spelled(argument));
            if PERHAPS.contains(&id) {
                let texts = matches.try_get_many::<String>(id).ok().flatten().into_iter().flatten();
                texts.filter(|text| Path::new(text).is_file()).for_each(|text| self.input(&flag, text));
            }
            // Of another type: no path.
            let Ok(Some(paths)) = matches.try_get_many::<PathBuf>(id) else { continue };
            for path in paths {
                match role(definition.get_name(), id).unwrap_or(Role::Input) {
                    Role::Input => self.input(&flag, path),
                    Role::Output => {
                        refuse_ending(&flag, path, &[MODEL], "the ending .brenier is for models")?;
                        self.output(&flag, path.clone());
                    }
                    Role::Model => {
                        if path == Path::new("-") {
                            return Err(Failure::Usage(format!(
                                "{flag} -: a model cannot be written to standard output; name a file such as \
                                 model.{MODEL}"
                            )));
                        }
                        let advice = format!(
                            "a model must not be named like another kind of file; call it {}",
                            path.with_extension(MODEL).display()
                        );
                        refuse_ending(&flag, path, NOT_MODELS, &advice)?;
                        self.output(&flag, path.clone());
                    }
                    Role::Folder | Role::Prefix => {}
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, flag: &str, path: &Path, what: String, written: bool, folder: bool) {
        if path == Path::new("-") {
            return;
        }
        if let Some(place) = Place::of(path) {
            self.0.push(Entry { what, flag: flag.to_owned(), place, written, folder });
        }
    }

    fn input(&mut self, flag: &str, path: impl AsRef<Path>) {
        let path = path.as_ref();
        self.add(flag, path, format!("{flag} {}", path.display()), false, false);
    }

    fn output(&mut self, flag: &str, path: PathBuf) {
        self.add(flag, &path, format!("{flag} {}", path.display()), true, false);
    }

    /// Files that are written beside the output `of` a flag.
    fn sides<const N: usize>(&mut self, flag: &str, of: &Path, paths: [PathBuf; N]) {
        for path in paths.into_iter().filter(|_| of != Path::new("-")) {
            let what = format!("{}, which belongs to {flag} {},", path.display(), of.display());
            self.add(flag, &path, what, true, false);
        }
    }

    /// A folder beside the output `of` a flag that nothing else has any business in.
    fn owned(&mut self, flag: &str, of: &Path, path: PathBuf) {
        let what = format!("{}, which belongs to {flag} {},", path.display(), of.display());
        self.add(flag, &path, what, true, true);
    }

    /// The files that a user's program is started with, and the tables its prior draws from.
    fn program(&mut self, command: Option<&str>, prior: Option<&Path>) {
        for word in command.into_iter().flat_map(str::split_whitespace) {
            let word = word.trim_matches(['"', '\'']);
            if Path::new(word).is_file() {
                self.input("--command", word);
            }
        }
        // A prior with a mistake is refused in words by its own reader.
        let Some(path) = prior else { return };
        let text = fs::read_to_string(path).unwrap_or_default();
        let Ok(document) = toml::from_str::<toml::Table>(&text) else { return };
        let blocks = document.get("prior").and_then(toml::Value::as_array).into_iter().flatten();
        for file in blocks.filter_map(|block| block.get("file")?.as_str()) {
            let table = path.parent().unwrap_or(Path::new("")).join(file);
            let what = format!("{}, a table of --prior {},", table.display(), path.display());
            self.add("--prior", &table, what, false, false);
        }
    }

    /// Refuses an output that is an input or another output.
    fn distinct(&self) -> Result<(), Failure> {
        let pairs =
            || self.0.iter().enumerate().flat_map(|(i, a)| self.0[i + 1..].iter().map(move |b| (a, b)));
        if let Some((a, b)) = pairs().find(|(a, b)| a.touches(b) && a.written != b.written) {
            let (output, input) = if a.written { (a, b) } else { (b, a) };
            return Err(Failure::Usage(format!(
                "{} would overwrite {}: choose another name for {}",
                output.what.trim_end_matches(','),
                input.what.trim_end_matches(','),
                output.flag
            )));
        }
        if let Some((a, b)) = pairs().find(|(a, b)| a.touches(b) && a.written && b.written) {
            return Err(Failure::Usage(format!(
                "{} and {} are one file: choose another name for one of them",
                a.what,
                b.what.trim_end_matches(',')
            )));
        }
        Ok(())
    }
}

impl Entry {
    fn touches(&self, other: &Self) -> bool {
        let below =
            |folder: &Self, file: &Self| folder.folder && file.place.path.starts_with(&folder.place.path);
        self.place.is(&other.place) || below(self, other) || below(other, self)
    }
}

/// A file, whatever it is called.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Device and number, which hard links share; none where there is no file yet.
    #[cfg(unix)]
    number: Option<(u64, u64)>,
}

impl Place {
    /// The place of `path`; none for devices and pipes, which hold nothing that could be lost.
    fn of(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok();
        if data.as_ref().is_some_and(|data| !data.is_file() && !data.is_dir()) {
            return None;
        }
        #[cfg(unix)]
        let number = data.map(|data| {
            use std::os::unix::fs::MetadataExt;
            (data.dev(), data.ino())
        });
        Some(Self {
            path: resolved(path),
            #[cfg(unix)]
            number,
        })
    }

    fn is(&self, other: &Self) -> bool {
        #[cfg(unix)]
        let linked = self.number.is_some() && self.number == other.number;
        #[cfg(not(unix))]
        let linked = false;
        linked || self.path == other.path
    }
}

/// The file that writing to `path` would write, without links; also where there is none yet.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    /// Links that lead to links, as far as the systems follow them.
    const MOST_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(real) = fs::canonicalize(&path) {
            return real;
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => {
                let folder = fs::canonicalize(folder).or_else(|_| std::path::absolute(folder));
                return match (folder, path.file_name()) {
                    (Ok(folder), Some(name)) => folder.join(name),
                    _ => path,
                };
            }
        }
    }
    path
}

/// `path` with `ending` after its whole name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// How the user writes an argument: `--out`, or `TABLE`.
fn spelled(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        (None, _) => argument.get_id().as_str().to_uppercase(),
    }
}

fn refuse_ending(flag: &str, path: &Path, endings: &[&str], why: &str) -> Result<(), Failure> {
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    match ending {
        Some(ending) if endings.contains(&ending.as_str()) => {
            Err(Failure::Usage(format!("{flag} {}: {why}", path.display())))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::CommandFactory;
    use clap::builder::ValueParser;

    use super::*;
    use crate::args::Arguments;

    /// Every argument that takes a path, with the command it belongs to.
    fn paths(definition: &clap::Command, found: &mut Vec<(String, String)>) {
        let path: ValueParser = clap::value_parser!(PathBuf);
        for argument in definition.get_arguments() {
            if argument.get_value_parser().type_id() == path.type_id() {
                found.push((definition.get_name().to_owned(), argument.get_id().to_string()));
            }
        }
        definition.get_subcommands().for_each(|command| paths(command, found));
    }

    #[test]
    fn every_path_of_the_command_line_has_a_role() {
        let mut found = Vec::new();
        paths(&Arguments::command(), &mut found);
        for (command, name) in &found {
            assert!(role(command, name).is_some(), "say in files.rs what {name} of {command} is for");
        }
        // No role without a flag.
        for (name, _) in ROLES {
            assert!(found.iter().any(|(_, own)| own == name), "{name}");
        }
        for (command, name, _) in EXCEPTIONS {
            assert!(found.contains(&((*command).to_owned(), (*name).to_owned())), "{command} {name}");
        }
        let mut strings = Vec::new();
        texts(&Arguments::command(), &mut strings);
        assert!(PERHAPS.iter().all(|name| strings.iter().any(|own| own == name)), "{strings:?}");
    }

    /// Names of arguments that take text.
    fn texts(definition: &clap::Command, found: &mut Vec<String>) {
        let text: ValueParser = ValueParser::string();
        let arguments = definition.get_arguments();
        let own = arguments.filter(|argument| argument.get_value_parser().type_id() == text.type_id());
        found.extend(own.map(|argument| argument.get_id().to_string()));
        definition.get_subcommands().for_each(|command| texts(command, found));
    }

    #[test]
    fn names_that_lead_to_one_file_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let same = |a: &str, b: &str| Place::of(&at(a)).unwrap().is(&Place::of(&at(b)).unwrap());
        fs::write(at("a"), "").unwrap();
        fs::create_dir(at("sub")).unwrap();
        assert!(same("a", "a") && same("a", "sub/../a") && !same("a", "b"));
        assert!(same("new", "sub/../new") && !same("new", "sub/new"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::symlink;
            fs::hard_link(at("a"), at("hard")).unwrap();
            symlink("a", at("soft")).unwrap();
            symlink("new", at("dangling")).unwrap();
            symlink("dangling", at("twice")).unwrap();
            symlink("sub", at("folder")).unwrap();
            symlink("round", at("round")).unwrap();
            assert!(same("a", "hard") && same("a", "soft") && same("hard", "soft"));
            assert!(same("dangling", "new") && same("twice", "new") && !same("twice", "a"));
            assert!(same("folder/new", "sub/new") && same("round", "round"));
            assert!(Place::of(Path::new("/dev/null")).is_none());
        }
    }
}
