//! The command line of `cluster`, and what batch systems tell of a task. Parsing only.

use brenier::simulate::Shard;
use clap::{Args, Subcommand};

pub(crate) const CLUSTER_HELP: &str = "\
Example:
  brenier cluster script --tasks 50 --time 2:00:00 -- \\
      simulate lotka-volterra -n 1000000 --out lv.parquet > submit.sh
  bash submit.sh";

pub(crate) const SCRIPT_HELP: &str = "\
simulate: every task of the array makes one part of the table (--shard slurm), and a job that waits for all of them puts the parts \
together. The table is the one that a single run makes. Run the script again to make parts that are missing.

tune: every task of the array works on the same search (--join), and all end with the same model.

Examples:
  brenier cluster script --tasks 50 --cpus 4 --time 2:00:00 -- \\
      simulate lotka-volterra -n 1000000 --out lv.parquet > submit.sh
  bash submit.sh

  brenier cluster script --tasks 16 --setup 'source venv/bin/activate' -- \\
      simulate --command 'python3 sim.py' --prior prior.toml -n 50000 \\
      --out sims.parquet > submit.sh

  brenier cluster script --tasks 8 --sbatch=--qos=long -- \\
      tune sims.parquet --target x1..x3 --given rest --out model.brenier

Paths are those of the folder that the script is run in, which must be on a file system that all machines see. See docs/clusters.md.";

#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Print a script that submits a simulation or a search to SLURM
    #[command(after_help = SCRIPT_HELP)]
    Script(ScriptArguments),
}

#[derive(Args)]
pub(crate) struct ScriptArguments {
    /// Tasks of the array
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) tasks: u32,
    /// Cores of a task
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) cpus: u32,
    /// Time limit of a task, as SLURM writes it: minutes, H:MM:SS or D-HH:MM:SS
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// Memory of a task, as in 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Partition to submit to
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Account to charge
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Another flag of sbatch, as in --sbatch=--qos=long; may be repeated
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,
    /// A line of shell that every job runs first, as in 'module load python'; may be repeated
    #[arg(long, value_name = "LINE")]
    pub(crate) setup: Vec<String>,
    /// The command to spread: simulate … or tune …, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) words: Vec<String>,
}

/// A part of a table: `I/K`, or `slurm` for that of the task of a SLURM array that this process is.
pub fn shard(text: &str) -> Result<Shard, String> {
    match text {
        "slurm" => slurm_shard(|name| std::env::var(name).ok()),
        text => text.parse().map_err(|error: brenier::Error| error.to_string()),
    }
}

/// The part of an array's task, from the variables that SLURM sets.
fn slurm_shard(variable: impl Fn(&str) -> Option<String>) -> Result<Shard, String> {
    let number = |name: &str, otherwise: Option<u64>| match variable(name) {
        Some(text) => text.trim().parse::<u64>().map_err(|_| format!("{name} is \"{text}\", not a number")),
        None => otherwise.ok_or_else(|| {
            format!("{name} is not set: submit the command with sbatch --array=1-K, or say --shard I/K")
        }),
    };
    let task = number("SLURM_ARRAY_TASK_ID", None)?;
    let count = number("SLURM_ARRAY_TASK_COUNT", None)?;
    let least = number("SLURM_ARRAY_TASK_MIN", Some(1))?;
    let step = number("SLURM_ARRAY_TASK_STEP", Some(1))?.max(1);
    let most = number("SLURM_ARRAY_TASK_MAX", Some(least + count.saturating_sub(1) * step))?;
    let spans = most.checked_sub(least).is_some_and(|span| span % step == 0 && span / step + 1 == count);
    let place = task.checked_sub(least).filter(|place| place % step == 0).map(|place| place / step + 1);
    match place.filter(|place| spans && *place <= count) {
        Some(place) => format!("{place}/{count}").parse().map_err(|error: brenier::Error| error.to_string()),
        None => Err(format!(
            "the array has {count} tasks from {least} to {most}, of which this is {task}: number them without gaps, as \
             in --array=1-{count}"
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<String, String> {
        let find = |name: &str| {
            let full = |short: &str| format!("SLURM_ARRAY_TASK_{short}");
            variables.iter().find(|(short, _)| full(short) == name).map(|(_, value)| (*value).to_owned())
        };
        slurm_shard(find).map(String::from)
    }

    #[test]
    fn a_task_is_a_part() {
        assert_eq!(read(&[("ID", "3"), ("COUNT", "8"), ("MIN", "1"), ("MAX", "8")]).unwrap(), "3/8");
        assert_eq!(
            read(&[("ID", "0"), ("COUNT", "8"), ("MIN", "0"), ("MAX", "7"), ("STEP", "1")]).unwrap(),
            "1/8"
        );
        assert_eq!(
            read(&[("ID", "7"), ("COUNT", "4"), ("MIN", "1"), ("MAX", "10"), ("STEP", "3")]).unwrap(),
            "3/4"
        );
        // Older versions set no bounds.
        assert_eq!(read(&[("ID", "2"), ("COUNT", "2")]).unwrap(), "2/2");
    }

    #[test]
    fn what_is_no_part_is_refused_in_a_sentence() {
        assert!(read(&[]).unwrap_err().contains("sbatch --array=1-K"));
        assert!(read(&[("ID", "one"), ("COUNT", "2")]).unwrap_err().contains("not a number"));
        // --array=1,5,9: the variables do not say which of them came first.
        let gaps = read(&[("ID", "5"), ("COUNT", "3"), ("MIN", "1"), ("MAX", "9")]);
        assert!(gaps.unwrap_err().contains("--array=1-3"));
        assert!(read(&[("ID", "9"), ("COUNT", "2"), ("MIN", "1"), ("MAX", "2")]).is_err());
        assert_eq!(shard("2/8").map(String::from), Ok("2/8".to_owned()));
        assert!(shard("9/8").is_err());
    }
}
