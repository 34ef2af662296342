//! `brenier cluster`: scripts that submit simulations and searches to a batch system.

use std::fmt::Write as _;
use std::path::Path;

use clap::Parser;

use crate::args::{Arguments, Command};
use crate::cluster_args::{ClusterCommand, ScriptArguments};
use crate::failure::Failure;
use crate::files::beside;
use crate::output;

pub(crate) fn run(command: &ClusterCommand) -> Result<(), Failure> {
    let ClusterCommand::Script(arguments) = command;
    output::result(&script(arguments)?)?;
    Ok(())
}

fn script(arguments: &ScriptArguments) -> Result<String, Failure> {
    let words = std::iter::once("brenier").chain(arguments.words.iter().map(String::as_str));
    let parsed = Arguments::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Failure::Usage(format!("the command to spread is not understood: {reason}"))
    })?;
    let own_threads = parsed.everywhere.threads.is_some();
    match parsed.command {
        Command::Simulate(simulate) => {
            if !simulate.merge.is_empty() {
                return Err(Failure::Usage("--merge is one job: there is nothing to spread".to_owned()));
            }
            if simulate.shard.is_some() {
                return Err(Failure::Usage(
                    "leave out --shard: the script gives every task its own".to_owned(),
                ));
            }
            if simulate.out == Path::new("-") {
                return Err(Failure::Usage("--out: name a file, which the tasks make parts of".to_owned()));
            }
            Ok(simulation(arguments, &simulate.out, own_threads))
        }
        Command::Tune(tune) if tune.print_space => {
            Err(Failure::Usage("--print-space: there is nothing to spread".to_owned()))
        }
        Command::Tune(tune) => {
            let mut words = quoted(&arguments.words);
            if !tune.join {
                words.push_str(" --join");
            }
            Ok(search(arguments, &words, own_threads))
        }
        _ => {
            Err(Failure::Usage("only simulate and tune can be spread over the tasks of an array".to_owned()))
        }
    }
}

/// An array that makes the parts, and a job that puts them together.
fn simulation(arguments: &ScriptArguments, out: &Path, own_threads: bool) -> String {
    let parts = quote(&beside(out, ".parts").to_string_lossy());
    let ending = out.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let ending = ending.find('.').filter(|&at| at > 0).map_or("", |at| &ending[at..]).to_owned();
    let tasks = arguments.tasks;
    let digits = tasks.to_string().len();
    let plan = quote(&format!("{tasks} parts of: brenier {}", quoted(&without_resume(&arguments.words))));
    let rest = quoted(&without_out(&without_resume(&arguments.words)));
    let whole = quote(&out.to_string_lossy());
    let job = quote(&format!("--job-name=brenier {}", out.display()).replace(['/', ' '], "_"));
    let mut text = head(&format!(
        "Makes {whole} as {tasks} tasks of a SLURM array and a job that puts their parts together"
    ));
    let _ = write!(
        text,
        "parts={parts}\n\
         plan={plan}\n\
         if [ -e \"$parts/plan\" ] && [ \"$(cat \"$parts/plan\")\" != \"$plan\" ]; then\n\
         \x20 echo \"error: $parts holds parts of another table: remove it, or choose another --out\" >&2\n\
         \x20 exit 2\n\
         fi\n\
         mkdir -p \"$parts\"\n\
         printf '%s\\n' \"$plan\" > \"$parts/plan\"\n\
         array=$(sbatch --parsable {job}{flags} --array=1-{tasks} --output=\"$parts/%a.log\" <<'END'\n\
         #!/usr/bin/env bash\n\
         set -euo pipefail\n\
         {setup}\
         part={parts}/$(printf %0{digits}d \"$SLURM_ARRAY_TASK_ID\"){ending}\n\
         # A part appears when it is complete.\n\
         [ -e \"$part\" ] || exec brenier {rest} --shard slurm --out \"$part\" --resume{threads}\n\
         END\n\
         )\n\
         sbatch {job}{flags} --dependency=\"afterok:${{array%%;*}}\" --kill-on-invalid-dep=yes --output=\"$parts/merge.log\" <<'END'\n\
         #!/usr/bin/env bash\n\
         set -euo pipefail\n\
         {setup}\
         brenier simulate --merge {parts}/*[0-9]{ending} --out {whole}\n\
         END\n",
        flags = flags(arguments),
        setup = setup(arguments),
        ending = quote_ending(&ending),
        threads = threads(own_threads),
    );
    text
}

/// An array whose tasks share a search.
fn search(arguments: &ScriptArguments, words: &str, own_threads: bool) -> String {
    let tasks = arguments.tasks;
    let mut text = head(&format!(
        "A search for settings by {tasks} tasks of a SLURM array, which end with the same model"
    ));
    let _ = write!(
        text,
        "sbatch --job-name=brenier_tune{flags} --array=1-{tasks} <<'END'\n\
         #!/usr/bin/env bash\n\
         set -euo pipefail\n\
         {setup}\
         exec brenier {words}{threads}\n\
         END\n",
        flags = flags(arguments),
        setup = setup(arguments),
        threads = threads(own_threads),
    );
    text
}

fn head(what: &str) -> String {
    format!("#!/usr/bin/env bash\n# {what}.\nset -euo pipefail\n")
}

/// The flags of sbatch that all jobs have.
fn flags(arguments: &ScriptArguments) -> String {
    let mut flags = vec![format!("--cpus-per-task={}", arguments.cpus)];
    let named = [
        ("time", &arguments.time),
        ("mem", &arguments.memory),
        ("partition", &arguments.partition),
        ("account", &arguments.account),
    ];
    flags.extend(named.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))));
    flags.extend(arguments.sbatch.iter().cloned());
    flags.iter().fold(String::new(), |text, flag| text + " " + &quote(flag))
}

fn setup(arguments: &ScriptArguments) -> String {
    arguments.setup.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// As many threads as the task has cores, unless the command says how many.
fn threads(own: bool) -> &'static str {
    if own { "" } else { " --threads \"${SLURM_CPUS_PER_TASK:-1}\"" }
}

fn without_resume(words: &[String]) -> Vec<String> {
    words.iter().filter(|word| *word != "--resume").cloned().collect()
}

/// The words without `--out TABLE`.
fn without_out(words: &[String]) -> Vec<String> {
    let mut kept = Vec::with_capacity(words.len());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--out" => drop(words.next()),
            word if word.starts_with("--out=") => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

fn quoted(words: &[String]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell reads it back.
fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+@%".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// An ending of a file's name, quoted where it must be.
fn quote_ending(ending: &str) -> String {
    if ending.is_empty() { String::new() } else { quote(ending) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_them_otherwise() {
        assert_eq!(quote("lv.parquet"), "lv.parquet");
        assert_eq!(quote("python3 sim.py"), "'python3 sim.py'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("$HOME"), "'$HOME'");
        let words = ["simulate", "--out", "a b", "x", "--out=c"].map(str::to_owned);
        assert_eq!(without_out(&words), ["simulate", "x"]);
    }
}
