//! Help, errors and pictures, word for word: a change of any of them shows up in a review.
//!
//! `INSTA_UPDATE=always cargo test -p brenier-cli --test all snapshots` writes them anew.

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
    fs::write(here.join("zero.toml"), "[train]\nbatch_size = 0\n").unwrap();
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
        "fit data.csv --target x1 --given rest --batch-size 0 --out m.brenier",
        "fit data.csv --target x1 --given rest --config zero.toml --out m.brenier",
        "fit data.csv --target x1 --given rest --method cot-flow --depth 99999 --out m.brenier",
        "sample none.brenier --at y1=0,y2=0",
        "sample data.csv --at y1=0,y2=0",
        "sample model.brenier --at y1=0",
        "sample model.brenier --at y1=0,y3=0",
        "sample model.brenier --at y1=0,y2=0 --tolerance 1e-3",
        "density model.brenier text.csv",
        "simulate no-such-model --rows 10 --out s.csv",
        "plot pairs none.csv --out p.svg",
    ];
    insta::assert_snapshot!("errors", transcript(here, &lines));
}

/// What each of `lines` answers: one sentence and exit code 2.
fn transcript(here: &Path, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        let output = run(here, line);
        let (code, error) = (output.status.code().unwrap(), stderr(&output));
        assert!(stdout(&output).is_empty() && code == 2, "{line}: {code}\n{error}");
        assert_eq!(error.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{line}\n{error}");
        writeln!(text, "$ brenier {line}\n{error}exit {code}\n").unwrap();
    }
    text
}

#[test]
fn errors_of_searches_checks_and_tables() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("two.csv"), "x,y\n1,2\n2,3\n").unwrap();
    fs::write(here.join("one.csv"), "x1,x2,y1,y2\n1,2,3,4\n").unwrap();
    fs::write(here.join("text.csv"), "x1,x2\n1,2\nhigh,3\n1,1\n2,2\n3,3\n").unwrap();
    fs::write(here.join("moons.csv"), "y_1,y_2\n0.1,0.2\n0.3,0.4\n").unwrap();
    fs::write(here.join("uneven.csv"), "observation,x\n1,0.5\n1,0.7\n2,5\n").unwrap();
    fs::write(here.join("zero.toml"), "[train]\nbatch_size = [0]\n").unwrap();
    fs::write(here.join("space.toml"), "[train]\nbatches = [3]\n").unwrap();
    succeed(
        here,
        "fit data.csv --target x1,x2 --given y1..y2 --method gaussian --seed 3 --quiet --out model.brenier",
    );
    let lines = [
        "tune data.csv --target x1 --given y1 --space space.toml --out m.brenier",
        "tune data.csv --target x1 --given y1 --space zero.toml --out m.brenier",
        "tune data.csv --target x1 --given y1 --space big --out m.brenier",
        "tune data.csv --target x1 --given y1 --trials 2 --finalists 3 --out m.brenier",
        "tune data.csv --given y1 --out m.brenier",
        "check none.brenier data.csv",
        "check model.brenier none.csv",
        "check model.brenier two.csv",
        "check model.brenier one.csv",
        "check model.brenier data.csv --pairs 1",
        "check model.brenier data.csv --simulator two-moons",
        "calibrate two.csv uneven.csv --target x",
        "calibrate two.csv two.csv --target x",
        "calibrate two.csv uneven.csv --target z",
        "compare data.csv none.csv",
        "compare data.csv two.csv",
        "compare data.csv one.csv --columns x1,x2",
        "compare data.csv text.csv --columns x1,x2",
        "compare data.csv data.csv --permutations 0",
        "abc two-moons --observed moons.csv --tolerance 1 --out p.csv",
        "abc two-moons --observed moons.csv --row 3 --tolerance 1 --out p.csv",
        "abc two-moons --observed moons.csv --row 1 --out p.csv",
        "abc lotka-volterra --observed moons.csv --row 1 --tolerance 1 --out p.csv",
        "data prepare text.csv",
        "data prepare data.csv --drop x9",
        "data prepare data.csv --max-correlation 2",
        "data split none.csv",
        "data split data.csv --valid-fraction 0.6 --test-fraction 0.5",
        "data split one.csv",
        "data fetch uci --dir uci --dataset boat",
        "reproduce uci --dataset boston --out uci",
        "reproduce uci --dataset yacht --method no-such --out uci",
    ];
    insta::assert_snapshot!("errors-of-searches-checks-and-tables", transcript(here, &lines));
}

/// Pictures of fixed numbers, so that no training and no machine can change them.
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
    // Two quantities at three times, and what was observed of them.
    let mut text = String::from("prey_0,prey_1,prey_2,hares_0,hares_1,hares_2\n");
    for i in 0..40 {
        let wave = |j: usize| 10.0 + j as f64 + 2.0 * (f64::from(i) * (0.618 + 0.1 * j as f64)).fract();
        let row: Vec<String> = (0..6).map(|j| format!("{:.6}", wave(j))).collect();
        writeln!(text, "{}", row.join(",")).unwrap();
    }
    fs::write(here.join("paths.csv"), text).unwrap();
    fs::write(here.join("seen.csv"), "prey_0,prey_1,prey_2,hares_0,hares_1,hares_2\n11,12,12.5,14,15,15.5\n")
        .unwrap();
    fs::write(
        here.join("errors.csv"),
        "steps,error,bar\n1,0.5,0.1\n2,0.13,0.03\n4,0.031,0.01\n8,0.008,0.002\n",
    )
    .unwrap();
    for (name, line) in [
        ("pairs", "plot pairs draws.csv --truth a=0.5,b=0.7"),
        ("curves", "plot curves errors.csv --x steps --y error --error bar --log-x --log-y --line goal=0.01"),
        ("predictive", "plot predictive paths.csv --observed seen.csv --time-unit years"),
        ("histograms", "plot predictive draws.csv --histograms a,b"),
    ] {
        succeed(here, &format!("{line} --out {name}.svg"));
        insta::assert_snapshot!(name, fs::read_to_string(here.join(format!("{name}.svg"))).unwrap());
    }
}
