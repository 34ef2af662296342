//! One grammar of flags, columns and settings, and messages that name what is wrong.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::time::Duration;

use crate::common::{SMALL, folder, refuse, run, stderr, stdout, succeed, table};
use brenier::data::{ReadOptions, read};
use brenier::train::TrainSettings;
use brenier::{FitSettings, Journal, Run};

const FIT: &str = "--feature-width 4 --epochs 1 --quiet --out m.brenier";

#[test]
fn observations_come_from_a_table_or_from_the_command_line() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::write(here.join("obs.csv"), "y1,y2\n0.25,-1\n").unwrap();
    let draws = succeed(here, "sample m.brenier --observed obs.csv -n 3");
    for same in
        ["--given obs.csv", "--at y1=0.25,y2=-1", "--at #1=0.25,\"y2\"=-1", "--at #-1=-1 --at y1=0.25"]
    {
        assert_eq!(draws, succeed(here, &format!("sample m.brenier {same} -n 3")), "{same}");
    }
    assert_eq!(
        succeed(here, "sample m.brenier --at y1..y2=0.5 -n 3"),
        succeed(here, "sample m.brenier --at y1=0.5,y2=0.5 -n 3")
    );
    refuse(here, "sample m.brenier --at y1..y2=0,#2=1", 2, &["--at #2=1", "y2", "twice"]);
    refuse(here, "sample m.brenier --at #3=0", 2, &["--at #3=0", "#1 to #2"]);
    refuse(here, "sample m.brenier --at yy1=0,y2=0", 2, &["given column \"yy1\"", "did you mean \"y1\"?"]);
}

#[test]
fn names_with_commas_can_be_quoted_everywhere() {
    let folder = folder();
    let here = folder.path();
    let text = table(60, 1.0).replacen("y1", "\"y,1\"", 1).replacen("x1", "\"x=1..2\"", 1);
    fs::write(here.join("odd.csv"), text).unwrap();
    succeed(
        here,
        &format!(
            "fit odd.csv --target \"x=1..2\",x2 --given \"y,1\",y2 --support \"x=1..2\"=interval(-9,9) {FIT}"
        ),
    );
    assert!(succeed(here, "info m.brenier").contains("interval(-9,9)"));
    succeed(here, "sample m.brenier --at \"y,1\"=0.5,y2=0 -n 2");
    refuse(here, "sample m.brenier", 2, &["--at \"y,1\"=…,y2=…"]);
}

#[test]
fn a_support_may_be_that_of_many_columns() {
    let folder = folder();
    let here = folder.path();
    let fit = |support: &str| {
        succeed(here, &format!("fit data.csv --target x1..x2 --given y1,y2 {support} {FIT}"));
        let info = succeed(here, "info m.brenier");
        info.lines().find(|line| line.starts_with("supports")).unwrap().to_owned()
    };
    let both = fit("--support x1=interval(-9,9) --support x2=interval(-9,9)");
    assert_eq!(both, fit("--support x1..x2=interval(-9,9)"));
    assert_eq!(both, fit("--support #-2..#-1=interval(-9,9)"));
    let one = fit("--support x1,x2=interval(-9,9) --support x2=real");
    assert!(one.contains("x1=interval(-9,9)") && one.contains("x2=real"), "{one}");
    fs::write(here.join("fit.toml"), "support = [\"x1..x2=interval(-9,9)\"]\n").unwrap();
    assert_eq!(both, fit("--config fit.toml"));
    let line = format!("fit data.csv --target x1..x2 --given y1 {FIT}");
    refuse(here, &format!("{line} --support y1..x2=log"), 2, &["support", "\"y2\"", "neither"]);
    refuse(here, &format!("{line} --support x1..x3=log"), 2, &["support", "x1..x3=log", "\"x3\""]);
}

#[test]
fn settings_files_take_the_flags_names_and_say_where_a_key_belongs() {
    let folder = folder();
    let here = folder.path();
    let line = format!("fit data.csv --target x1 --given y1 --config fit.toml {FIT}");
    fs::write(here.join("fit.toml"), "[network]\noutput_activation = \"softplus\"\n").unwrap();
    succeed(here, &line);
    assert!(succeed(here, "info m.brenier").contains("output softplus"));
    fs::write(here.join("fit.toml"), "[network]\noutput = \"softplus\"\n").unwrap();
    succeed(here, &line);
    for (text, words) in [
        ("batch_size = 64\n", ["fit.toml", "line 1", "batch_size belongs in [train]"]),
        ("[train]\nfeature_width = 8\n", ["fit.toml", "line 2", "feature_width belongs in [method]"]),
        ("[train]\nweight-decay = 8\n", ["fit.toml", "line 2", "weight_decay belongs in [train.adam]"]),
        ("[network]\nseed = 8\n", ["fit.toml", "line 2", "seed belongs at the top of the file"]),
        ("output_activation = \"softplus\"\n", ["fit.toml", "line 1", "belongs in [method]"]),
        ("[train]\nbatch = 8\n", ["fit.toml", "line 2", "unknown field `batch`"]),
    ] {
        fs::write(here.join("fit.toml"), text).unwrap();
        refuse(here, &line, 2, &words);
    }
}

#[test]
fn tables_are_named_when_their_values_do_not_fit() {
    let folder = folder();
    let here = folder.path();
    let line = format!("--target x --given y {FIT}");
    let rows = |x: &dyn Fn(usize) -> f64| -> String {
        (0..200).map(|i| format!("{},{}\n", x(i), (i * 7 % 11) as f64)).collect()
    };
    let some = |i: usize| if i.is_multiple_of(4) { 0.0 } else { 1.0 + (i % 13) as f64 };
    fs::write(here.join("rain.csv"), format!("x,y\n{}", rows(&some))).unwrap();
    let words = ["rain.csv", "column \"x\"", "training rows have the value 0, a bound", "no density"];
    refuse(here, &format!("fit rain.csv --support x=log {line}"), 2, &words);
    refuse(here, &format!("fit rain.csv --support x=interval(0,20) {line}"), 2, &words);
    let one = |i: usize| if i == 50 { -2.0 } else { 1.0 + (i % 13) as f64 };
    fs::write(here.join("one.csv"), format!("x,y\n{}", rows(&one))).unwrap();
    refuse(here, &format!("fit one.csv --support x=log {line}"), 2, &["one.csv: row 51, column \"x\"", "-2"]);
    let good = |i: usize| 1.0 + (i % 13) as f64;
    fs::write(here.join("good.csv"), format!("x,y\n{}", rows(&good))).unwrap();
    succeed(here, &format!("fit good.csv --support x=log {line}"));
    succeed(
        here,
        &format!("fit good.csv --target y --given x --support x=log {}", FIT.replace("m.b", "given.b")),
    );
    fs::write(here.join("obs.csv"), "x\n1\n-2\n").unwrap();
    for command in ["sample", "mode"] {
        let line = format!("{command} given.brenier");
        refuse(here, &format!("{line} --observed obs.csv"), 2, &["obs.csv: row 2: column \"x\"", "-2"]);
        refuse(here, &format!("{line} --at x=-2"), 2, &["--at: column \"x\"", "-2"]);
    }
    refuse(here, "density m.brenier one.csv", 2, &["one.csv: row 51", "\"x\"", "-2"]);
    refuse(here, "check m.brenier one.csv", 2, &["one.csv"]);
    refuse(here, &format!("fit good.csv --target z {FIT}"), 2, &["good.csv: there is no column \"z\""]);
}

#[test]
fn drop_missing_is_advised_where_it_exists() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::write(here.join("hole.csv"), "y1,y2,x1,x2\n1,,1,1\n").unwrap();
    refuse(here, "density m.brenier hole.csv", 2, &["hole.csv", "row 1", "y2", "--drop-missing"]);
    refuse(here, "sample m.brenier --observed hole.csv", 2, &["row 1", "fill it in", "--drop-missing"]);
    // A prior's table is read without flags of its own.
    fs::write(here.join("prior.toml"), "[[prior]]\nkind = \"table\"\nfile = \"hole.csv\"\n").unwrap();
    let output = run(here, "simulate --command cat --prior prior.toml -n 5 --out t.csv");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("fill it in") && !text.contains("--drop-missing"), "{text}");
}

#[test]
fn files_of_ours_that_are_no_models_are_recognised() {
    let folder = folder();
    let here = folder.path();
    let settings = FitSettings {
        target: Some("x1".parse().unwrap()),
        given: Some("y1".parse().unwrap()),
        train: TrainSettings { epochs: 1, ..TrainSettings::default() },
        ..FitSettings::default()
    };
    let everything = |names: &[String]| Ok((0..names.len()).collect());
    let table = read(&here.join("data.csv"), &ReadOptions::default(), everything).unwrap().table;
    let journal = Journal {
        every: Duration::ZERO,
        resume: false,
        keep: true,
        ..Journal::at(here.join("m.brenier.checkpoint"))
    };
    brenier::fit(&table, &settings, Run::silent().journal(journal)).unwrap();
    assert!(here.join("m.brenier.checkpoint").exists());
    let words = ["m.brenier.checkpoint", "holds a checkpoint of a training, not a model", "--resume"];
    refuse(here, "info m.brenier.checkpoint", 2, &words);
    refuse(here, "sample m.brenier.checkpoint --at y1=0,y2=0", 2, &words);
    refuse(here, &format!("fit data.csv {SMALL} --out -"), 2, &["--out -", "model.brenier"]);
}

#[test]
fn ranges_are_said_as_they_are_and_long_names_are_cut() {
    let folder = folder();
    let here = folder.path();
    let line = format!("fit data.csv --target x1 --given y1 {FIT}");
    refuse(here, &format!("{line} --valid-fraction 1"), 2, &["must be above 0 and below 1, not 1"]);
    refuse(here, &format!("{line} --weight-decay -1"), 2, &["must be at least 0 and below 1000, not -1"]);
    let long = "n".repeat(5000);
    let output = run(here, &format!("fit data.csv --target {long} {FIT}"));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).len() < 300 && stderr(&output).contains("nnn…"), "{}", stderr(&output));
}

#[test]
fn commands_say_what_they_wrote_unless_quiet() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    for (line, says) in [
        ("sample m.brenier --at y1=0,y2=0 -n 7 --out d.csv", "7 draws at 1 observation written to d.csv"),
        ("density m.brenier data.csv --out l.csv", "log densities written to l.csv"),
        ("mode m.brenier --at y1=0,y2=0 --starts 1 --out o.csv", "1 point written to o.csv"),
        ("plot pairs d.csv --out p.svg", "picture written to p.svg"),
        ("info m.brenier --json=i.json", "JSON written to i.json"),
        ("data prepare data.csv --drop id --out e.csv", "400 rows of 4 columns written to e.csv"),
    ] {
        let output = run(here, line);
        assert!(output.status.success() && stderr(&output).contains(says), "{line}: {}", stderr(&output));
        for quiet in [format!("{line} --quiet"), format!("-q --threads 1 {line}")] {
            let output = run(here, &quiet);
            assert!(output.status.success() && stderr(&output).is_empty(), "{quiet}: {}", stderr(&output));
        }
    }
    succeed(here, "compare --json c.json --permutations 9 data.csv data.csv");
    assert!(here.join("c.json").exists());
    succeed(here, "compare --permutations 9 --json data.csv data.csv");
    refuse(here, "compare data.csv data.csv --columns x9", 2, &["data.csv: there is no column \"x9\""]);
    refuse(here, "report m.brenier data.csv --out r.pdf", 2, &["r.pdf", ".html"]);
    refuse(here, "straightness m.brenier --at y1=0,y2=0", 2, &["m.brenier", "PCP-Map"]);
    assert_eq!(
        succeed(here, "sample m.brenier --at y1=0,y2=0 -n 1e1"),
        succeed(here, "sample m.brenier --at y1=0,y2=0 -n 10")
    );
    for count in ["-5", "1.5", "many"] {
        let output = run(here, &format!("sample m.brenier --at y1=0,y2=0 -n {count}"));
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("write a whole number"), "{}", stderr(&output));
    }
    let text: serde_json::Value = serde_json::from_str(&succeed(here, "info --json m.brenier")).unwrap();
    let file: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("i.json")).unwrap()).unwrap();
    assert_eq!(text, file);
}

#[test]
fn versions_and_manual_pages() {
    let folder = folder();
    let here = folder.path();
    let version = env!("CARGO_PKG_VERSION");
    for command in ["", "fit ", "plot pairs ", "reproduce uci ", "man "] {
        assert!(succeed(here, &format!("{command}--version")).contains(version), "{command}");
    }
    assert!(succeed(here, "man").contains(".TH brenier 1"));
    let output = run(here, "man --dir pages");
    assert!(output.status.success() && stdout(&output).is_empty());
    for page in ["brenier.1", "brenier-fit.1", "brenier-plot-pairs.1", "brenier-data-split.1"] {
        let text = fs::read_to_string(here.join("pages").join(page)).unwrap();
        assert!(text.contains(".SH NAME") && text.contains("quiet"), "{page}");
    }
    // Examples are kept line by line.
    let text = fs::read_to_string(here.join("pages/brenier-sample.1")).unwrap();
    assert!(text.contains("\n.nf\n  brenier sample model.brenier \\-\\-at y1"), "{text}");
    assert_eq!(text.matches("\n.nf\n").count(), text.matches("\n.fi\n").count());
    refuse(here, "man --dir data.csv", 2, &["data.csv"]);
}
