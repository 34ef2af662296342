//! What the tests of the command share: the binary, a small table, and how to look at an answer.

#![allow(dead_code, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A folder of its own with `data.csv`: columns id, y1, y2, x1, x2, 400 rows.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.csv"), table(400, 1.0)).unwrap();
    folder
}

/// Reproducible rows in which x depends on y, everything times `scale`.
pub(crate) fn table(rows: usize, scale: f64) -> String {
    let mut state = 12345_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
    };
    let mut text = String::from("id,y1,y2,x1,x2\n");
    for id in 1..=rows {
        let (y1, y2) = (uniform() * 2.0, uniform() * 2.0);
        let x1 = y1 + uniform() + uniform();
        let x2 = 0.5 * x1 * y2 + uniform() + uniform();
        let row = [y1, y2, x1, x2].map(|value| format!("{:e}", value * scale));
        writeln!(text, "{id},{}", row.join(",")).unwrap();
    }
    text
}

/// The program in `folder`.
pub(crate) fn brenier(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_brenier"));
    command.current_dir(folder);
    command
}

/// Runs the words of `line`.
pub(crate) fn run(folder: &Path, line: &str) -> Output {
    brenier(folder).args(line.split_whitespace()).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs the words of `line`, which must succeed, and returns standard output.
pub(crate) fn succeed(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}\n{}", stderr(&output));
    stdout(&output)
}

/// Runs the words of `line`, which must fail with `code` and one sentence on standard error that holds `words`;
/// no file may appear or vanish.
pub(crate) fn refuse(folder: &Path, line: &str, code: i32, words: &[&str]) {
    // The lock of a process that was killed is taken over and removed.
    let files =
        || listing(folder).into_iter().filter(|path| path.extension().is_none_or(|own| own != "lock"));
    let before: Vec<PathBuf> = files().collect();
    let output = run(folder, line);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{line}\n{text}");
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{line}\n{text}");
    assert!(text.trim_end().ends_with(errors[0]), "the error should be the last line: {line}\n{text}");
    for word in words {
        assert!(errors[0].contains(word), "{line}: no {word:?} in\n{text}");
    }
    assert!(output.stdout.is_empty(), "{line}\n{}", stdout(&output));
    assert_eq!(files().collect::<Vec<_>>(), before, "{line}");
}

pub(crate) fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Waits until `ready`, however slow the machine is; what never comes is a failure all the same.
pub(crate) fn wait_until(mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(300), "waited too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal, named as in -INT, to a process.
pub(crate) fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// The numbers of a CSV file or text, without its header.
pub(crate) fn numbers(text: &str) -> Vec<Vec<f64>> {
    let row = |line: &str| line.split(',').map(|cell| cell.parse().unwrap()).collect();
    text.lines().skip(1).map(row).collect()
}

/// Columns and sizes of a fit that takes a moment.
pub(crate) const SMALL: &str =
    "--target x1,x2 --given y1..y2 --feature-width 8 --epochs 4 --validate-every 4 --seed 3 --quiet";
