//! Help, errors and pictures, word for word: a change of any of them shows up in a review.
//!
//! `INSTA_UPDATE=always cargo test --release -p brenier-cli --test all snapshots` writes them anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::{brenier, folder, run, stderr, stdout, succeed};

/// Standard output of `brenier WORDS --help` at a fixed width.
fn help(words: &[&str]) -> String {
    let output = brenier(Path::new(".")).args(words).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success(), "{words:?}");
    stdout(&output)
}

/// The commands below `words`, as its help lists them.
fn commands(words: &[&str]) -> Vec<String> {
    let text = help(words);
    let Some((_, list)) = text.split_once("Commands:\n") else { return Vec::new() };
    list.lines()
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_texts() {
    insta::assert_snapshot!("help", help(&[]));
    let all = commands(&[]);
    assert!(all.len() > 15, "{all:?}");
    for command in &all {
        insta::assert_snapshot!(format!("help-{command}"), help(&[command]));
        for below in commands(&[command]) {
            insta::assert_snapshot!(format!("help-{command}-{below}"), help(&[command, &below]));
        }
    }
}

#[test]
fn errors() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("text.csv"), "x,y\n1,2\nhigh,3\n").unwrap();
    fs::write(here.join("gap.csv"), "x,y\n1,2\n,3\n").unwrap();
    fs::write(here.join("comma.csv"), "x;y\n1,5;2,5\n2,5;1,5\n").unwrap();
    fs::write(here.join("odd.toml"), "[method]\nname = \"pcp-map\"\ntime_steps = 4\n").unwrap();
    succeed(
        here,
        "fit data.csv --target x1,x2 --given y1..y2 --method gaussian --seed 3 --quiet --out model.brenier",
    );
    let lines = [
        "fit none.csv --target x --given rest --out m.brenier",
        "fit text.csv --target x --given rest --out m.brenier",
        "fit gap.csv --target x --given rest --out m.brenier",
        "fit comma.csv --target x --given rest --out m.brenier",
        "fit data.csv --target x9 --given rest --out m.brenier",
        "fit data.csv --target x1 --given x1 --out m.brenier",
        "fit data.csv --target x1 --given rest --support x1=log --out m.brenier",
        "fit data.csv --target x1 --given rest --out data.csv",
        "fit data.csv --target x1 --given rest --config odd.toml --out m.brenier",
        "fit data.csv --target x1 --given rest --method pcp-map --time-steps 4 --out m.brenier",
        "fit data.csv --target x1 --given rest --valid-fraction 2 --out m.brenier",
        "sample none.brenier --at y1=0,y2=0",
        "sample data.csv --at y1=0,y2=0",
        "sample model.brenier --at y1=0",
        "sample model.brenier --at y1=0,y3=0",
        "sample model.brenier --at y1=0,y2=0 --tolerance 1e-3",
        "density model.brenier text.csv",
        "simulate no-such-model --rows 10 --out s.csv",
        "plot pairs none.csv --out p.svg",
    ];
    let mut text = String::new();
    for line in lines {
        let output = run(here, line);
        let code = output.status.code().unwrap();
        assert!(stdout(&output).is_empty(), "{line}");
        writeln!(text, "$ brenier {line}\n{}exit {code}\n", stderr(&output)).unwrap();
    }
    insta::assert_snapshot!("errors", text);
}

/// A picture of fixed numbers, so that no training and no machine can change it.
#[test]
fn pictures() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut text = String::from("a,b\n");
    for i in 0..60 {
        let a = (f64::from(i) * 0.618).fract();
        writeln!(text, "{a:.6},{:.6}", (f64::from(i) * 0.383).fract() + a).unwrap();
    }
    fs::write(here.join("draws.csv"), text).unwrap();
    succeed(here, "plot pairs draws.csv --truth a=0.5,b=0.7 --out p.svg");
    insta::assert_snapshot!("pairs", fs::read_to_string(here.join("p.svg")).unwrap());
}
