//! `brenier compare` on good and odd tables.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;

use crate::common::{refuse, run, stderr, succeed};

/// Rows of two columns, roughly normal, moved by `shift`; a third column holds weights.
fn draws(rows: usize, shift: f64, seed: u64) -> String {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut text = String::from("x1,x2,weight\n");
    for _ in 0..rows {
        let mut sum = || (0..4).map(|_| uniform()).sum::<f64>() - 2.0;
        let (x1, x2) = (sum() + shift, sum());
        writeln!(text, "{x1},{x2},{}", (-3.0 * shift * x1).exp()).unwrap();
    }
    text
}

#[test]
fn like_tables_pass_unlike_ones_do_not_and_weights_count() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a.csv"), draws(400, 0.0, 1)).unwrap();
    fs::write(here.join("b.csv"), draws(300, 0.0, 2)).unwrap();
    fs::write(here.join("c.csv"), draws(300, 0.5, 3)).unwrap();
    let same = succeed(here, "compare a.csv b.csv --columns x1,x2 --plot pairs.svg");
    assert!(same.contains("No difference found"), "{same}");
    assert!(fs::read_to_string(here.join("pairs.svg")).unwrap().contains("a.csv"));
    let other = succeed(here, "compare a.csv c.csv --columns x1,x2");
    assert!(other.contains("The samples differ"), "{other}");
    // Weights bring the mean of c.csv back; the column is no quantity then.
    let json = succeed(here, "compare a.csv c.csv --weights-b weight --columns x1,x2 --json");
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["columns"], serde_json::json!(["x1", "x2"]));
    assert!(found["comparison"]["effective_rows"][1].as_f64().unwrap() < 299.0);
    assert!(found["comparison"]["columns"][0]["shift"].as_f64().unwrap().abs() < 0.3, "{json}");
    assert_eq!(
        json,
        succeed(here, "compare a.csv c.csv --weights-b weight --columns x1,x2 --json --threads 1")
    );
}

#[test]
fn columns_that_only_one_table_has_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a.csv"), "x,extra\n1,2\n2,3\n3,1\n4,4\n5,9\n6,1\n").unwrap();
    fs::write(here.join("b.csv"), "other,x\n1,2\n2,3\n3,1\n4,4\n5,9\n6,1\n").unwrap();
    let output = run(here, "compare a.csv b.csv");
    assert!(output.status.success());
    let text = stderr(&output);
    assert!(
        text.contains("a.csv") && text.contains("extra") && text.contains("b.csv") && text.contains("other")
    );
}

#[test]
fn mistakes_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a.csv"), draws(50, 0.0, 1)).unwrap();
    fs::write(here.join("z.csv"), "z\n1\n2\n").unwrap();
    fs::write(here.join("few.csv"), "x1,x2\n1,2\n").unwrap();
    fs::write(here.join("text.csv"), "x1,x2\n1,2\n3,high\n").unwrap();
    fs::write(here.join("minus.csv"), "x1,x2,weight\n1,2,1\n3,4,-1\n1,1,1\n2,2,2\n3,3,3\n").unwrap();
    refuse(here, "compare a.csv none.csv", 2, &["none.csv"]);
    refuse(here, "compare a.csv -", 2, &["standard input"]);
    refuse(here, "compare a.csv z.csv", 2, &["share no column"]);
    refuse(here, "compare a.csv z.csv --columns x1", 2, &["z.csv", "x1"]);
    refuse(here, "compare a.csv few.csv --columns x1,x2", 2, &["few.csv", "1 row", "at least 5"]);
    refuse(here, "compare a.csv text.csv --columns x1,x2", 2, &["text.csv", "row 2", "high"]);
    refuse(here, "compare a.csv minus.csv --weights weight", 2, &["minus.csv", "row 2", "negative"]);
    refuse(here, "compare a.csv a.csv --columns x1,weight --weights weight", 2, &["weight", "--columns"]);
    refuse(here, "compare a.csv a.csv --weights w", 2, &["a.csv", "\"w\""]);
    refuse(here, "compare a.csv a.csv --permutations 0", 2, &["permutations"]);
    refuse(here, "compare a.csv a.csv --plot nowhere/p.svg", 2, &["nowhere"]);
    assert_eq!(run(here, "compare a.csv a.csv --bandwidth 0").status.code(), Some(2));
}
