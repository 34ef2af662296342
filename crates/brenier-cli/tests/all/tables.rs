//! Tables as people have them: compressed, Arrow, through pipes, with commas, marks for missing values, categories.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::{SMALL, brenier, folder, refuse, run, stderr, stdout, succeed, table};

/// Runs a line of bash in which $B is the program.
fn bash(folder: &Path, line: &str) -> std::process::Output {
    let mut command = std::process::Command::new("bash");
    command.current_dir(folder).args(["-c", line]).env("B", env!("CARGO_BIN_EXE_brenier"));
    command.output().unwrap()
}

#[test]
fn every_format_gives_the_same_model() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out csv.brenier"));
    let model = fs::read(here.join("csv.brenier")).unwrap();
    for ending in ["csv.gz", "csv.zst", "tsv.gz", "arrow", "feather", "parquet"] {
        succeed(here, &format!("data prepare data.csv --out t.{ending}"));
        succeed(here, &format!("fit t.{ending} {SMALL} --out m.brenier"));
        assert_eq!(fs::read(here.join("m.brenier")).unwrap(), model, "{ending}");
        // Without the name to go by.
        fs::rename(here.join(format!("t.{ending}")), here.join("plain")).unwrap();
        succeed(here, &format!("fit plain {SMALL} --out m.brenier"));
        assert_eq!(fs::read(here.join("m.brenier")).unwrap(), model, "{ending} without an extension");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_standard_input_are_sniffed() {
    let folder = folder();
    let here = folder.path();
    if !bash(here, "true").status.success() {
        return; // no bash here
    }
    succeed(here, "data prepare data.csv --out t.parquet");
    succeed(here, "data prepare data.csv --out t.arrow");
    succeed(here, "data prepare data.csv --out t.csv.gz");
    let plain = succeed(here, "data prepare data.csv");
    for file in ["data.csv", "t.parquet", "t.arrow", "t.csv.gz"] {
        for line in
            [format!("\"$B\" data prepare <(cat {file})"), format!("cat {file} | \"$B\" data prepare -")]
        {
            let output = bash(here, &line);
            assert!(output.status.success(), "{line}: {}", stderr(&output));
            assert_eq!(stdout(&output), plain, "{line}");
        }
    }
    let output =
        bash(here, "\"$B\" compare <(cat t.parquet) <(cat data.csv) --columns x1,x2 --permutations 19");
    assert!(output.status.success(), "{}", stderr(&output));
    let output = bash(here, "\"$B\" data prepare <(cat data.csv) --format parquet");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/fd/"), "{}", stderr(&output));
    let mut child = brenier(here)
        .args(["data", "prepare", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn commas_and_marks_for_missing_values_on_request() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("comma.csv"), "a;b\n1,5;2\n?;3\n-;4\n3,25;-999\n0,5;6\n").unwrap();
    refuse(here, "data prepare comma.csv", 2, &["comma.csv", "row 1", "a", "--decimal comma"]);
    refuse(here, "data prepare comma.csv --decimal comma", 2, &["row 2", "\"?\"", "not a number"]);
    let line = "data prepare comma.csv --decimal comma --missing ?,-,-999";
    refuse(here, line, 2, &["row 2", "missing", "--drop-missing"]);
    assert_eq!(succeed(here, &format!("{line} --drop-missing")), "a,b\n1.5,2\n0.5,6\n");
    let output = run(here, "data prepare comma.csv --format excel");
    assert!(
        output.status.code() == Some(2) && stderr(&output).contains("possible values: csv, tsv, parquet")
    );
    fs::write(here.join("when.csv"), "day,b\n2024-05-31,1\n").unwrap();
    refuse(here, "data prepare when.csv", 2, &["row 1", "day", "date or time"]);
}

#[test]
fn read_options_reach_every_command() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    // The same rows with commas, semicolons, a question mark in one of them, and no extension.
    let mut text = table(40, 1.0).replace(',', ";").replace('.', ",");
    text.push_str("41;?;1;1;1\n");
    fs::write(here.join("odd"), &text).unwrap();
    let odd = "--decimal comma --missing ? --drop-missing --format csv";
    for line in [
        format!("fit odd {SMALL} --out n.brenier {odd}"),
        format!(
            "tune odd {SMALL} --out n.brenier --trials 1 --finalists 1 --repeats 1 --pilot-epochs 1 {odd}"
        ),
        format!("sample m.brenier --given odd -n 2 {odd}"),
        format!("density m.brenier odd {odd}"),
        format!("mode m.brenier --given odd --starts 1 {odd}"),
        format!("check m.brenier odd --draws 20 --quiet {odd}"),
        format!("report m.brenier odd --draws 20 --quiet --out r.html {odd}"),
        format!("compare odd odd --columns x1 --permutations 9 {odd}"),
        format!("plot pairs odd --columns x1,x2 --out p.svg {odd}"),
        format!("plot curves odd --x id --y y2 --out c.svg {odd}"),
        format!("data split odd --out-prefix part {odd}"),
    ] {
        succeed(here, &line);
    }
    let line = "abc linear-gaussian --observed odd --tolerance 1 --out p.csv --decimal comma";
    refuse(here, line, 2, &["odd", "y_1"]);
}

/// Rows in which x depends on y and on a colour.
fn colours(rows: usize) -> String {
    let numbers = table(rows, 1.0);
    let mut text = String::from("colour,group,y,x\n");
    for (i, line) in numbers.lines().skip(1).enumerate() {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().unwrap()).collect();
        let (colour, shift) = [("red", 5.0), ("blue", 0.0), ("dark green", -5.0)][i % 3];
        writeln!(text, "{colour},{},{},{}", i % 2, cells[1], cells[3] + shift).unwrap();
    }
    text
}

#[test]
fn categories_belong_to_the_model() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("c.csv"), colours(600)).unwrap();
    let small = "--feature-width 8 --epochs 30 --seed 3 --quiet";
    let fit = format!("fit c.csv --target x --given colour,group,y {small} --out m.brenier");
    refuse(here, &fit, 2, &["c.csv", "row 1", "colour", "red", "--categorical"]);
    refuse(
        here,
        &format!("fit c.csv --target colour --given y --categorical colour {small} --out m.brenier"),
        2,
        &["categorical", "colour", "target"],
    );
    refuse(
        here,
        &format!("fit c.csv --target x --given y --categorical colour {small} --out m.brenier"),
        2,
        &["categorical", "colour", "not among the given"],
    );
    refuse(here, &format!("{fit} --joint --categorical colour,group"), 2, &["categorical", "joint"]);
    succeed(here, &format!("{fit} --categorical colour,group --test c.csv"));

    let info = succeed(here, "info m.brenier");
    assert!(info.contains("colour: blue, dark green, red"), "{info}");
    assert!(info.contains("group: 0, 1"), "{info}");
    let json = succeed(here, "info m.brenier --json");
    assert!(json.contains("\"encoding\"") && json.contains("dark green"), "{json}");

    // The colour shifts x by 5 to either side.
    let mean = |at: &str| {
        let output = brenier(here).args(["sample", "m.brenier", "-n", "200", "--at", at]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let draws: Vec<f64> = stdout(&output).lines().skip(1).map(|line| line.parse().unwrap()).collect();
        draws.iter().sum::<f64>() / draws.len() as f64
    };
    let means = [mean("colour=red,group=0,y=0"), mean("y=0,group=1.0,colour=dark green")];
    assert!(means[0] > 2.0 && means[1] < -2.0, "{means:?}");
    refuse(
        here,
        "sample m.brenier --at colour=pink,group=0,y=0",
        2,
        &["--at", "pink", "blue, dark green, red"],
    );
    refuse(here, "sample m.brenier --at group=0,y=0", 2, &["no value for colour"]);
    refuse(here, "sample m.brenier", 2, &["colour=…,group=…,y=…"]);

    // A category with a comma is named in quotation marks, and others may be.
    let places = colours(60).replace("dark green", "\"green, dark\"");
    fs::write(here.join("places.csv"), places).unwrap();
    succeed(
        here,
        "fit places.csv --method gaussian --target x --given colour,y --categorical colour --quiet --out g.brenier",
    );
    for at in ["colour=\"green, dark\",y=0", "y=0,colour=\"red\""] {
        let output = brenier(here).args(["sample", "g.brenier", "-n", "2", "--at", at]).output().unwrap();
        assert!(output.status.success(), "{at}: {}", stderr(&output));
    }

    fs::write(here.join("obs.csv"), "y,group,colour\n0,1,blue\n0.5,0,red\n").unwrap();
    let draws = succeed(here, "sample m.brenier --given obs.csv -n 3");
    assert_eq!(draws.lines().count(), 7, "{draws}");
    fs::write(here.join("odd.csv"), "y,group,colour\n0,1,blue\n0.5,0,violet\n").unwrap();
    refuse(
        here,
        "sample m.brenier --given odd.csv -n 3",
        2,
        &["odd.csv", "row 2", "colour", "violet", "blue, dark green, red"],
    );
    succeed(here, "mode m.brenier --given obs.csv --starts 2");
    let density = succeed(here, "density m.brenier c.csv");
    assert!(density.contains("rows                     600"), "{density}");
    succeed(here, "check m.brenier c.csv --draws 20 --pairs 50 --quiet");
    succeed(here, "report m.brenier c.csv --draws 20 --pairs 50 --quiet --given obs.csv --out r.html");

    // From a settings file, and by a search.
    fs::write(here.join("fit.toml"), "target = \"x\"\ngiven = \"rest\"\ncategorical = \"colour,group\"\n")
        .unwrap();
    succeed(here, &format!("fit c.csv --config fit.toml {small} --out n.brenier"));
    assert_eq!(fs::read(here.join("m.brenier")).unwrap(), fs::read(here.join("n.brenier")).unwrap());
    let search = "--trials 1 --finalists 1 --repeats 1 --pilot-epochs 1 --epochs 2 --quiet --valid c.csv";
    succeed(here, &format!("tune c.csv --config fit.toml {search} --out t.brenier"));
    assert!(succeed(here, "info t.brenier").contains("colour: blue, dark green, red"));
    assert!(run(here, "sample t.brenier --at colour=red,group=0,y=0 -n 1").status.success());
}
