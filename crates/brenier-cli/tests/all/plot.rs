//! `brenier plot` on good and odd tables.

#![allow(clippy::unwrap_used)]

use crate::common;
use std::fmt::Write as _;
use std::fs;

use crate::common::{refuse, run, stderr, succeed};

/// Rows of a, b > 0 and a weight that is zero for large a.
fn draws(rows: usize) -> String {
    let mut text = String::from("a,b,weight\n");
    for i in 0..rows {
        let a = (i as f64 * 0.618).fract();
        let b = (i as f64 * 0.383).fract() + 0.1 + a;
        writeln!(text, "{a},{b},{}", if a < 0.5 { 1.0 } else { 0.0 }).unwrap();
    }
    text
}

#[test]
fn pairs_of_tables_are_drawn_with_weights_marks_and_log_axes() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("draws.csv"), draws(200).replace(",weight", ",other")).unwrap();
    fs::write(here.join("particles.csv"), draws(150)).unwrap();
    fs::write(here.join("mode.csv"), "log_density,b,a\n1,0.7,0.4\n").unwrap();
    let line = "plot pairs draws.csv particles.csv --weights weight --labels map,ABC --log b --names α,β \
                --units m, --truth a=0.3,b=0.5 --mode mode.csv --out p.svg";
    let output = run(here, line);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("draws.csv: no column of weights"), "{}", stderr(&output));
    let svg = fs::read_to_string(here.join("p.svg")).unwrap();
    for word in ["α (m)", "β", "map", "ABC", "truth", "mode (MAP)"] {
        assert!(svg.contains(word), "{word}");
    }
    // The weights decide what is seen.
    succeed(here, "plot pairs particles.csv --columns a --out without.svg");
    succeed(here, "plot pairs particles.csv --columns a --weights weight --out with.svg");
    assert_ne!(fs::read(here.join("without.svg")).unwrap(), fs::read(here.join("with.svg")).unwrap());
    succeed(here, "plot pairs draws.csv --columns a,b --dpi 72 --size 300,280 --out p.png");
    let png = fs::read(here.join("p.png")).unwrap();
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(png[16..24], [0, 0, 1, 44, 0, 0, 1, 24], "300 × 280");
    succeed(
        here,
        "compare draws.csv particles.csv --columns a,b --weights-b weight --permutations 19 --plot c.png",
    );
    assert!(here.join("c.png").exists());
}

#[test]
fn draws_of_several_observations_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("d.csv"), "observation,x\n1,0.5\n1,0.7\n2,5\n2,6\n").unwrap();
    refuse(here, "plot pairs d.csv --out p.svg", 2, &["d.csv", "--observation"]);
    refuse(here, "plot pairs d.csv --observation 3 --out p.svg", 2, &["no observation 3"]);
    succeed(here, "plot pairs d.csv --observation 2 --out p.svg");
    assert!(!fs::read_to_string(here.join("p.svg")).unwrap().contains("observation"));
}

#[test]
fn mistakes_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("d.csv"), draws(20)).unwrap();
    fs::write(here.join("two.csv"), "a,b\n1,2\n3,4\n").unwrap();
    fs::write(here.join("zero.csv"), "a,b\n1,2\n3,0\n").unwrap();
    fs::write(here.join("gap.csv"), "a,b\n1,2\n3,\n").unwrap();
    for (line, words) in [
        ("plot pairs d.csv --out p.pdf", &["p.pdf", ".svg or .png"] as &[&str]),
        ("plot pairs d.csv --out nowhere/p.svg", &["nowhere"]),
        ("plot pairs none.csv --out p.svg", &["none.csv"]),
        ("plot pairs - --out p.svg", &["standard input"]),
        ("plot pairs d.csv --columns z --out p.svg", &["\"z\""]),
        ("plot pairs d.csv --weights w --out p.svg", &["--weights", "\"w\""]),
        ("plot pairs d.csv --truth a=1 --out p.svg", &["--truth", "b, weight"]),
        ("plot pairs d.csv --columns a --truth b=1 --out p.svg", &["--truth b=1", "\"b\""]),
        ("plot pairs d.csv --columns a --truth none.csv --out p.svg", &["--truth none.csv"]),
        ("plot pairs d.csv --columns a,b --truth two.csv --out p.svg", &["one row, it has 2"]),
        ("plot pairs zero.csv --log rest --out p.svg", &["sample 2", "b = 0", "logarithmic"]),
        ("plot pairs gap.csv --out p.svg", &["gap.csv", "row 2"]),
        ("plot pairs d.csv --labels x,y --out p.svg", &["--labels", "2 given for 1"]),
        ("plot pairs d.csv --size 1,1 --out p.svg", &["--size"]),
        ("plot pairs d.csv --dpi 0 --out p.png", &["--dpi"]),
        ("plot curves d.csv --x a --y z --out p.svg", &["d.csv", "\"z\""]),
        ("plot curves zero.csv --x a --y b --log-y --out p.svg", &["zero.csv", "point 2", "b = 0"]),
        ("plot curves d.csv --x a --y b --error a,b --out p.svg", &["--error", "not 2"]),
        ("plot curves d.csv --x a --y b --line x --out p.svg", &["--line x"]),
        ("plot curves two.csv --x a --y b --y-limits 3,1 --out p.svg", &["low < high"]),
        ("plot predictive d.csv --at a=1 --out p.svg", &["--posterior"]),
        ("plot predictive d.csv --series q --out p.svg", &["--series", "q_TIME"]),
        ("plot predictive d.csv --observed none.csv --out p.svg", &["none.csv"]),
        (
            "plot predictive --posterior none.brenier --simulator two-moons --at y=1 --out p.svg",
            &["none.brenier"],
        ),
        ("compare d.csv d.csv --plot p.jpg", &["p.jpg", ".svg or .png"]),
    ] {
        refuse(here, line, 2, words);
        assert!(!here.join("p.svg").exists() && !here.join("p.png").exists(), "{line}");
    }
}

#[test]
fn predictions_are_bands_over_time_or_histograms() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, "simulate lotka-volterra-paths -n 40 --seed 3 --out paths.csv");
    succeed(here, "simulate lotka-volterra-paths -n 1 --seed 4 --out one.csv");
    succeed(
        here,
        "plot predictive paths.csv --observed one.csv --time-unit years --units animals, --out p.svg",
    );
    let svg = fs::read_to_string(here.join("p.svg")).unwrap();
    for word in ["time (years)", "predators (animals)", "prey", "90 %", "observed"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("theta"));
    // A few measured times are points.
    fs::write(here.join("few.csv"), "prey_1,prey_5,prey_9\n60,70,80\n").unwrap();
    succeed(here, "plot predictive paths.csv --series prey --observed few.csv --out p.svg");
    assert!(!fs::read_to_string(here.join("p.svg")).unwrap().contains("predators"));
    succeed(here, "plot predictive paths.csv --histograms theta_1..theta_4 --out p.svg");
    assert!(fs::read_to_string(here.join("p.svg")).unwrap().contains("theta_4"));
}

#[test]
fn a_model_and_a_simulator_give_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    succeed(here, "simulate two-moons -n 400 --out t.csv");
    let header = fs::read_to_string(here.join("t.csv")).unwrap();
    let names: Vec<&str> = header.lines().next().unwrap().split(',').collect();
    let (x, y) = (names[..2].join(","), [names[2], names[3]]);
    succeed(here, &format!("fit t.csv --target {x} --given rest --quick --epochs 2 --quiet --out m.brenier"));
    let at = format!("{}=0.1,{}=0.2", y[0], y[1]);
    let line = format!("plot predictive --posterior m.brenier --at {at} --simulator two-moons -n 60");
    succeed(here, &format!("{line} --out p.svg"));
    let svg = fs::read_to_string(here.join("p.svg")).unwrap();
    assert!(svg.contains(y[0]) && svg.contains("observed"));
    succeed(here, &format!("{line} --threads 1 --out q.svg"));
    assert_eq!(svg, fs::read_to_string(here.join("q.svg")).unwrap());
    refuse(
        here,
        &line.replace("two-moons", "lotka-volterra").replace("-n 60", "--out r.svg"),
        2,
        &["theta_1"],
    );
    refuse(
        here,
        &format!("plot predictive --posterior m.brenier --at {at} --out r.svg"),
        2,
        &["--simulator"],
    );
}

#[test]
fn curves_come_from_tables_and_training_logs() {
    let folder = common::folder();
    let here = folder.path();
    succeed(
        here,
        "fit data.csv --target x1,x2 --given y1,y2 --quick --epochs 3 --quiet --log run.jsonl --out m.brenier",
    );
    succeed(here, "plot curves run.jsonl --x step --y train_nll,valid_nll --y-name NLL --out p.svg");
    let svg = fs::read_to_string(here.join("p.svg")).unwrap();
    assert!(svg.contains("valid_nll") && svg.contains("NLL"));
    refuse(here, "plot curves run.jsonl --x step --y nll --out q.svg", 2, &["run.jsonl", "nll", "valid_nll"]);
    let block = |number: u32| format!("{{\"event\": \"block\", \"number\": {number}}}\n");
    let steps = ["{\"step\": 10, \"valid_nll\": 7}\n", "{\"step\": 20, \"valid_nll\": 3}\n"].concat();
    fs::write(here.join("second.jsonl"), block(1) + &steps).unwrap();
    let first = "{\"step\": 900, \"valid_nll\": 50}\n".to_owned();
    fs::write(here.join("joint.jsonl"), block(1) + &first + &block(2) + &steps).unwrap();
    succeed(here, "plot curves second.jsonl --x step --y valid_nll --out second.svg");
    let joint = run(here, "plot curves joint.jsonl --x step --y valid_nll --out joint.svg");
    assert!(stderr(&joint).contains("last block"), "{}", stderr(&joint));
    let picture = |name: &str| fs::read_to_string(here.join(name)).unwrap();
    assert_eq!(picture("joint.svg"), picture("second.svg"));
    fs::write(here.join("e.csv"), "n,error,sd\n1,0.3,0.1\n2,0.1,0.02\n4,0.02,0.03\n").unwrap();
    let line =
        "plot curves e.csv --x n --y error --error sd --log-x --log-y --x-limits 0.5,8 --line target=0.05";
    succeed(here, &format!("{line} --out e.svg"));
    assert!(fs::read_to_string(here.join("e.svg")).unwrap().contains("target"));
}
