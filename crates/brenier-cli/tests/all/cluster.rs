//! Clusters: parts of a table by the tasks of an array, scripts that submit them, and searches that processes share.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::{brenier, folder, refuse, run, stderr, stdout, succeed, wait_until};

/// A stand-in for SLURM that runs jobs at once: the tasks of an array one after the other, the last first. Its words are kept in
/// `sbatch.log`.
const SBATCH: &str = r#"#!/usr/bin/env bash
set -euo pipefail
echo "$*" >> sbatch.log
script=$(cat)
tasks=
for word in "$@"; do
  case $word in
    --array=*) tasks=${word##*-} ;;
    --cpus-per-task=*) export SLURM_CPUS_PER_TASK=${word#*=} ;;
  esac
done
if [ -n "$tasks" ]; then
  for task in $(seq "$tasks" -1 1); do
    SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_COUNT=$tasks SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=$tasks bash -c "$script" >&2
  done
else
  bash -c "$script" >&2
fi
echo "17;cluster"
"#;

/// A folder on whose path `sbatch` and `brenier` are.
fn with_sbatch(here: &Path, line: &str) -> Output {
    let bin = here.join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("sbatch"), SBATCH).unwrap();
        fs::set_permissions(bin.join("sbatch"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_brenier"), bin.join("brenier")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    Command::new("bash").args(["-c", line]).current_dir(here).env("PATH", path).output().unwrap()
}

#[test]
fn the_tasks_of_an_array_make_the_table_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, "simulate two-moons -n 101 --seed 3 --out whole.csv --quiet");
    let task = |id: &str| {
        let line = format!("simulate two-moons -n 101 --seed 3 --shard slurm --out part{id}.csv --quiet");
        let mut command = brenier(here);
        command.args(line.split_whitespace()).env("SLURM_ARRAY_TASK_ID", id);
        for (name, value) in [("COUNT", "4"), ("MIN", "0"), ("MAX", "6"), ("STEP", "2")] {
            command.env(format!("SLURM_ARRAY_TASK_{name}"), value);
        }
        command.output().unwrap()
    };
    for id in ["0", "2", "4", "6"] {
        let output = task(id);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(task("3").status.code(), Some(2));
    succeed(here, "simulate --merge part0.csv part2.csv part4.csv part6.csv --out merged.csv --quiet");
    assert_eq!(fs::read(here.join("whole.csv")).unwrap(), fs::read(here.join("merged.csv")).unwrap());
    let outside = run(here, "simulate two-moons -n 101 --shard slurm --out part.csv");
    assert_eq!(outside.status.code(), Some(2));
    assert!(stderr(&outside).contains("SLURM_ARRAY_TASK_ID is not set"), "{}", stderr(&outside));
}

#[test]
fn a_script_submits_parts_and_their_merge() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let words = "simulate two-moons -n 60 --seed 3 --out 'my table.csv'";
    let flags = "--tasks 11 --cpus 2 --time 1:00 --partition long --setup 'export MARK=1'";
    let line = format!("brenier cluster script {flags} -- {words} > submit.sh && bash submit.sh");
    let submitted = with_sbatch(here, &line);
    assert!(submitted.status.success(), "{}", stderr(&submitted));
    succeed(here, "simulate two-moons -n 60 --seed 3 --out whole.csv --quiet");
    let made = || fs::read(here.join("my table.csv")).unwrap();
    assert_eq!(made(), fs::read(here.join("whole.csv")).unwrap());
    let log = fs::read_to_string(here.join("sbatch.log")).unwrap();
    for word in
        ["--array=1-11", "--cpus-per-task=2", "--time=1:00", "--partition=long", "--dependency=afterok:17 "]
    {
        assert!(log.contains(word), "{word}: {log}");
    }
    let script = fs::read_to_string(here.join("submit.sh")).unwrap();
    assert_eq!(script.matches("export MARK=1\n").count(), 2, "{script}");

    // Again: only the part that is missing is made.
    let part = |number: u32| here.join(format!("my table.csv.parts/{number:02}.csv"));
    let time = |number: u32| fs::metadata(part(number)).unwrap().modified().unwrap();
    let before = time(1);
    fs::remove_file(part(4)).unwrap();
    fs::remove_file(here.join("my table.csv")).unwrap();
    assert!(with_sbatch(here, "bash submit.sh").status.success());
    assert_eq!((time(1), made()), (before, fs::read(here.join("whole.csv")).unwrap()));
    assert!(part(4).exists());

    // Parts of another table are not mixed with them.
    let other = line.replace("--seed 3", "--seed 4");
    let refused = with_sbatch(here, &other);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("parts of another table"), "{}", stderr(&refused));
}

#[test]
fn a_script_for_a_search_and_what_cannot_be_spread() {
    let folder = folder();
    let here = folder.path();
    let search = "tune data.csv --target x1 --given y1,y2 --out m.brenier";
    let text = succeed(here, &format!("cluster script --tasks 3 --sbatch=--qos=long -- {search}"));
    let line = "exec brenier tune data.csv --target x1 --given y1,y2 --out m.brenier --join --threads \"${SLURM_CPUS_PER_TASK:-1}\"";
    assert!(text.contains(line) && text.contains("--array=1-3") && text.contains("--qos=long"), "{text}");
    refuse(here, "cluster script -- info m.brenier", 2, &["only simulate and tune"]);
    refuse(here, "cluster script -- simulate two-moons -n 9 --shard 1/2 --out t.csv", 2, &["--shard"]);
    refuse(here, "cluster script -- simulate two-moons -n 9 --out -", 2, &["--out"]);
    refuse(here, "cluster script -- simulate --merge a.csv b.csv --out t.csv", 2, &["--merge"]);
    refuse(here, "cluster script -- simulate two-worlds -n 9 --out t.csv", 2, &["two-worlds"]);
}

const SPACE: &str = "[network]\nfeature_width = [4, 8]\n[train]\nlearning_rate = [0.01, 0.02, 0.005]\n";
const SEARCH: &str = "tune data.csv --target x1,x2 --given y1..y2 --space space.toml --trials 6 --pilot-epochs 3 \
                      --finalists 2 --repeats 2 --epochs 40 --validate-every 5 --seed 3 --quiet";

fn join(here: &Path, out: &str) -> Child {
    let line = format!("{SEARCH} --out {out} --join --threads 1");
    brenier(here).args(line.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The lines of all journals but the first of each.
fn journaled(tune: &Path) -> Vec<String> {
    let Ok(files) = fs::read_dir(tune) else { return Vec::new() };
    let names = files.map(|file| file.unwrap().path());
    let journals = names.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    let lines = |path| {
        fs::read_to_string(path).unwrap_or_default().lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    journals.flat_map(lines).collect()
}

#[test]
fn four_processes_share_a_search_and_a_killed_one_loses_nothing() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("space.toml"), SPACE).unwrap();
    succeed(here, &format!("{SEARCH} --out alone.brenier"));
    let alone = fs::read(here.join("alone.brenier")).unwrap();

    let four: Vec<Child> = (0..4).map(|_| join(here, "four.brenier")).collect();
    for child in four {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
    }
    assert_eq!(fs::read(here.join("four.brenier")).unwrap(), alone);
    let tune = here.join("four.brenier.tune");
    // Every training was done once: by claims, and not by all.
    let mut trained: Vec<String> = journaled(&tune)
        .iter()
        .map(|line| {
            line.split(',').take(3).filter(|cell| !cell.contains("epochs")).collect::<Vec<_>>().join(",")
        })
        .collect();
    trained.sort();
    let count = trained.len();
    trained.dedup();
    assert_eq!(trained.len(), count, "{trained:?}");
    assert!(!tune.join("claims").exists());

    // Killed while it trains; the other three take over, and one that comes late finds everything done.
    let mut four: Vec<Child> = (0..4).map(|_| join(here, "cut.brenier")).collect();
    let tune = here.join("cut.brenier.tune");
    wait_until(|| journaled(&tune).len() >= 5 || four[0].try_wait().unwrap().is_some());
    let _ = four[0].kill();
    for child in four {
        let _ = child.wait_with_output().unwrap();
    }
    assert_eq!(fs::read(here.join("cut.brenier")).unwrap(), alone);
    fs::remove_file(here.join("cut.brenier")).unwrap();
    let late = join(here, "cut.brenier").wait_with_output().unwrap();
    assert!(late.status.success() && stdout(&late).is_empty(), "{}", stderr(&late));
    assert_eq!(fs::read(here.join("cut.brenier")).unwrap(), alone);
    // One process alone continues from what many found.
    succeed(here, &format!("{SEARCH} --out cut.brenier --resume"));
    assert_eq!(fs::read(here.join("cut.brenier")).unwrap(), alone);
}

#[test]
fn a_search_alone_and_a_shared_one_exclude_each_other() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("space.toml"), SPACE).unwrap();
    let long = SEARCH.replace("--epochs 40", "--epochs 4000").replace("--trials 6", "--trials 40");
    let mut first = brenier(here)
        .args(format!("{long} --out m.brenier --join --threads 1").split_whitespace())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| here.join("m.brenier.tune/claims").exists());
    let second = run(here, &format!("{long} --out m.brenier --resume"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(stderr(&second).contains("another brenier"), "{}", stderr(&second));
}
