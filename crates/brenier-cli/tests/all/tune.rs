//! `brenier tune`: a search from the command line, killed and taken up again, and what it refuses.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Stdio;

use crate::common::{brenier, folder, refuse, run, stderr, succeed, table, wait_until};

const SPACE: &str = "[network]\nfeature_width = [4, 8]\n[train]\nlearning_rate = [0.01, 0.02, 0.005]\n";
const SEARCH: &str = "tune data.csv --target x1,x2 --given y1..y2 --space space.toml --trials 5 --pilot-epochs 3 \
                      --finalists 2 --repeats 2 --epochs 30 --validate-every 5 --seed 3";

#[test]
fn a_search_reports_and_saves_the_best_model() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("space.toml"), SPACE).unwrap();
    fs::write(here.join("test.csv"), table(50, 1.0)).unwrap();
    let text = succeed(here, &format!("{SEARCH} --test test.csv --out m.brenier"));
    for words in ["5 pilots, 4 full trainings", "median", "test NLL", "feature_width = ", "m.brenier"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let results = fs::read_to_string(here.join("m.brenier.tune/results.csv")).unwrap();
    assert_eq!(results.lines().filter(|line| line.starts_with("final,")).count(), 4);
    assert!(succeed(here, "info m.brenier").contains("x1"));
    // The model is the one of the best full training, to the bit.
    let best = results.lines().find(|line| line.starts_with("final,")).unwrap();
    let cells: Vec<&str> = best.split(',').collect();
    let name = format!("m.brenier.tune/final-{:04}-{}.brenier", cells[1].parse::<u32>().unwrap(), cells[3]);
    assert_eq!(fs::read(here.join("m.brenier")).unwrap(), fs::read(here.join(name)).unwrap());

    // Without --resume an earlier search is set aside, with it there is nothing left to do.
    let again = run(here, &format!("{SEARCH} --out m.brenier --quiet"));
    assert!(stderr(&again).contains("m.brenier.tune.old1"), "{}", stderr(&again));
    let resumed = run(here, &format!("{SEARCH} --out m.brenier --resume"));
    assert!(
        stderr(&resumed).contains("full trainings: 4, 4 of them finished earlier"),
        "{}",
        stderr(&resumed)
    );
    let other = SEARCH.replace("--seed 3", "--seed 4");
    refuse(here, &format!("{other} --out m.brenier --resume"), 2, &["journal", "--resume"]);
}

#[test]
fn a_killed_search_goes_on_to_the_same_model() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("space.toml"), SPACE).unwrap();
    succeed(here, &format!("{SEARCH} --out whole.brenier --quiet"));
    let journal = here.join("cut.brenier.tune/journal.jsonl");
    for lines in [3, 9, 12] {
        let line = format!("{SEARCH} --out cut.brenier --quiet --resume --threads 1");
        let mut child = brenier(here).args(line.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
        let written = || fs::read_to_string(&journal).is_ok_and(|text| text.lines().count() >= lines);
        wait_until(|| written() || child.try_wait().unwrap().is_some());
        let _ = child.kill();
        child.wait().unwrap();
    }
    succeed(here, &format!("{SEARCH} --out cut.brenier --quiet --resume"));
    assert_eq!(fs::read(here.join("whole.brenier")).unwrap(), fs::read(here.join("cut.brenier")).unwrap());
}

#[test]
fn spaces_are_printed_and_mistakes_refused() {
    let folder = folder();
    let here = folder.path();
    let space = succeed(here, "tune --method cot-flow --space uci --print-space");
    assert!(space.contains("exp_uniform = [-1, 3]") && space.contains("time_steps = [8, 16]"), "{space}");
    fs::write(here.join("space.toml"), "[train]\nbatches = [3]\n").unwrap();
    let line = "tune data.csv --target x1 --given y1 --out m.brenier";
    refuse(here, &format!("{line} --space space.toml"), 2, &["space", "batches"]);
    refuse(here, &format!("{line} --space big"), 2, &["big", "default, uci, paper"]);
    refuse(here, &format!("{line} --space none.toml"), 2, &["none.toml"]);
    refuse(here, &format!("{line} --trials 2 --finalists 3"), 2, &["finalists"]);
    refuse(here, &format!("{line} --test none.csv"), 2, &["none.csv"]);
    refuse(here, &format!("{line} --minutes 0"), 2, &["minutes"]);
    refuse(here, "tune data.csv --given y1 --out m.brenier", 2, &["target"]);
    refuse(here, "tune data.csv --target x1 --out nowhere/m.brenier", 2, &["nowhere"]);
}
