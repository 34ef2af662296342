//! A full disk: every command that writes ends with one sentence and exit code 1, keeps what was there before, and leaves
//! no half-written file. A limit on the size of files stands for the full disk; it needs no rights.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{SMALL, folder, stderr, succeed};

/// Runs the words of `line` where no file may grow beyond `blocks` blocks of 512 or 1024 bytes.
fn limited(folder: &Path, blocks: u32, line: &str) -> Output {
    // With the signal ignored a write beyond the limit fails as one on a full disk does.
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    Command::new("sh")
        .current_dir(folder)
        .args(["-c", &script, env!("CARGO_BIN_EXE_brenier")])
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

fn contents(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap_or_default())).collect()
}

/// The command fails with one sentence that names `file`, and the folder is as before but for `state`, which holds the
/// work done so far.
fn fails(folder: &Path, line: &str, file: &str, state: Option<&str>) {
    let before = contents(folder);
    let output = limited(folder, 2, line);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{line}\n{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{line}\n{text}");
    assert!(errors[0].contains(file), "{line}\n{text}");
    let spoken = text.lines().all(|line| line.starts_with("error: ") || line.starts_with("warning: "));
    assert!(spoken, "{line}\n{text}");
    let mut after = contents(folder);
    if let Some(state) = state {
        after.remove(&OsString::from(state));
    }
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>(), "{line}");
    assert!(after == before, "{line} changed a file");
}

#[test]
fn nothing_is_lost_and_nothing_is_half_written() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::write(here.join("o.csv"), "y1,y2\n0.1,0.2\n").unwrap();
    fs::write(here.join("moons.csv"), "y_1,y_2\n0.1,-0.2\n").unwrap();
    fs::write(here.join("space.toml"), "[network]\nfeature_width = [4, 8]\n").unwrap();
    for old in ["old.csv", "old.parquet", "old.npz", "old.html", "old.json", "old.svg"] {
        fs::write(here.join(old), "what was there before\n").unwrap();
    }
    let sample = "sample m.brenier --given o.csv -n 2000 --out";
    fails(here, &format!("{sample} old.csv"), "old.csv", None);
    fails(here, &format!("{sample} old.parquet"), "old.parquet", None);
    fails(here, &format!("{sample} old.npz"), "old.npz", None);
    fails(here, &format!("{sample} new.npy"), "new.npy", None);
    fails(here, "density m.brenier data.csv --out old.csv", "old.csv", None);
    fails(here, "report m.brenier data.csv --out old.html --quiet", "old.html", None);
    fails(here, "check m.brenier data.csv --json old.json --quiet", "old.json", None);
    fails(here, "plot pairs data.csv --out old.svg", "old.svg", None);
    fails(here, "data prepare data.csv --drop id --out old.csv", "old.csv", None);
    // The model and the state of the training: the first of them to be written fails.
    let fit = format!("fit data.csv {SMALL} --seed 9 --out m.brenier");
    fails(here, &fit.replace("--seed 3", ""), "m.brenier", None);
    fails(here, &format!("{} --checkpoint-seconds 0", fit.replace("--seed 3", "")), "m.brenier", None);
    // Rows that were finished are kept beside the table, for --resume when there is room again.
    let simulate = "simulate two-moons -n 3000 --seed 1 --quiet --out old.csv";
    fails(here, simulate, "old.csv.partial", Some("old.csv.partial"));
    succeed(here, &format!("{simulate} --resume"));
    succeed(here, &simulate.replace("old.csv", "again.csv"));
    assert!(fs::read(here.join("old.csv")).unwrap() == fs::read(here.join("again.csv")).unwrap());
    fs::remove_file(here.join("again.csv")).unwrap();

    let abc = "abc two-moons --observed moons.csv --particles 300 --pilot 1000 --tolerance 0.05 --quiet --out old.csv";
    fails(here, abc, "old.csv", Some("old.csv.checkpoint.pilot"));
    succeed(here, &format!("{abc} --resume"));
    let tune = "tune data.csv --target x1,x2 --given y1..y2 --space space.toml --trials 2 --pilot-epochs 1 \
                --finalists 1 --repeats 1 --epochs 2 --quiet --out m.brenier";
    fails(here, tune, "m.brenier.tune", Some("m.brenier.tune"));
}
