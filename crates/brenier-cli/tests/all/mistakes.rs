//! Bad input: one sentence that names the place, the documented exit code, and no file half written.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;

use crate::common::{SMALL, folder, numbers, refuse, run, stderr, stdout, succeed, table};

#[test]
fn tables_that_cannot_be_used() {
    let folder = folder();
    let here = folder.path();
    let good = table(60, 1.0);
    let lines: Vec<&str> = good.lines().collect();
    let with = |row: usize, text: &str| {
        let mut lines = lines.clone();
        lines[row] = text;
        lines.join("\n") + "\n"
    };
    let constant: String = lines
        .iter()
        .enumerate()
        .map(
            |(i, l)| {
                if i == 0 { format!("{l}\n") } else { format!("{},1.5\n", l.rsplit_once(',').unwrap().0) }
            },
        )
        .collect();
    let doubled: String = lines
        .iter()
        .map(|l| {
            format!(
                "{},{}\n",
                l.rsplit_once(',').unwrap().0,
                l.rsplit(',').nth(1).unwrap().replace("x1", "x2")
            )
        })
        .collect();
    let cases: [(&str, String, &[&str]); 8] = [
        ("text.csv", with(3, "3,0.1,0.2,high,0.4"), &["text.csv", "row 3", "x1", "high"]),
        ("nan.csv", with(4, "4,0.1,0.2,NaN,0.4"), &["nan.csv", "row 4", "x1", "--drop-missing"]),
        ("ragged.csv", with(5, "5,0.1,0.2"), &["ragged.csv", "row 5"]),
        ("constant.csv", constant, &["x2", "constant"]),
        ("doubled.csv", doubled, &["x1", "x2", "equal"]),
        ("short.csv", lines[..2].join("\n"), &["1 row"]),
        ("empty.csv", String::new(), &["empty.csv", "empty"]),
        ("names.csv", with(0, "id,y1,y2,x1,x1"), &["names.csv", "x1"]),
    ];
    for (name, text, words) in cases {
        fs::write(here.join(name), text).unwrap();
        refuse(here, &format!("fit {name} {SMALL} --out m.brenier"), 2, words);
    }
    succeed(here, &format!("fit nan.csv {SMALL} --drop-missing --out dropped.brenier"));
    refuse(here, "fit data.csv --target x1,z9 --given y1 --out m.brenier", 2, &["z9", "x1"]);
    refuse(here, "fit data.csv --target x1 --given x1 --out m.brenier", 2, &["x1", "both"]);
    refuse(here, "fit data.csv --given y1 --out m.brenier", 2, &["target"]);
    refuse(here, "fit none.csv --target x1 --out m.brenier", 2, &["none.csv"]);
    refuse(here, "fit data.csv --target x1 --support x1=log --out m.brenier", 2, &["x1", "row", "log"]);
    refuse(here, "fit data.csv --target x1 --support z=log --out m.brenier", 2, &["z"]);
    refuse(here, "fit data.csv --target x1 --given y1 --asinh z --out m.brenier", 2, &["--asinh", "z"]);
    refuse(here, "fit data.csv --target x1 --given y1 --asinh x1 --out m.brenier", 2, &["--asinh", "x1"]);
    refuse(
        here,
        "fit data.csv --target x1 --given y1,y2 --asinh y1 --pca 1 --out m.brenier",
        2,
        &["--asinh", "leave one"],
    );
    let exchangeable = "fit data.csv --target x1 --given y1,y2 --out m.brenier --exchangeable";
    refuse(here, &format!("{exchangeable} y1,y2:3"), 2, &["exchangeable", "2 columns cannot hold 3 points"]);
    refuse(here, &format!("{exchangeable} x1,y1:2"), 2, &["exchangeable", "x1"]);
    let output = run(here, &format!("{exchangeable} y1,y2"));
    assert!(output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains("y1..y8:4"));
    refuse(
        here,
        &format!("fit data.csv {SMALL} --method auto --out m.brenier"),
        2,
        &["--feature-width", "auto"],
    );
    refuse(here, "fit data.csv --target x1 --learning-rate 0 --out m.brenier", 2, &["--learning-rate"]);
    refuse(here, "fit data.csv --target x1 --feature-width 0 --out m.brenier", 2, &["--feature-width"]);
    refuse(
        here,
        "fit data.csv --target x1 --checkpoint-seconds -1 --out m.brenier",
        2,
        &["checkpoint-seconds"],
    );
    fs::write(here.join("t.xlsx"), "x").unwrap();
    refuse(here, "fit t.xlsx --target x1 --out m.brenier", 2, &["t.xlsx", ".parquet"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    fs::create_dir(here.join("dir")).unwrap();
    let fit = format!("fit data.csv {SMALL}");
    refuse(here, &format!("{fit} --out nowhere/m.brenier"), 2, &["nowhere"]);
    refuse(here, &format!("{fit} --out dir"), 2, &["dir", "folder"]);
    refuse(here, &format!("{fit} --out data.csv/m.brenier"), 2, &["data.csv"]);
    refuse(here, &format!("{fit} --out n.brenier --log nowhere/l.jsonl"), 2, &["nowhere/l.jsonl"]);
    refuse(here, "sample m.brenier --at y1=0,y2=0 --out nowhere/d.csv", 2, &["nowhere"]);
    refuse(here, "sample m.brenier --at y1=0,y2=0 --out d.xlsx", 2, &["d.xlsx"]);
    refuse(here, "density m.brenier data.csv --out dir", 2, &["dir"]);
    refuse(here, "demo --out data.csv", 2, &["data.csv"]);
}

#[test]
fn models_that_are_none() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    let bytes = fs::read(here.join("m.brenier")).unwrap();
    fs::write(here.join("cut.brenier"), &bytes[..bytes.len() / 2]).unwrap();
    fs::write(here.join("head.brenier"), &bytes[..20]).unwrap();
    let mut flipped = bytes.clone();
    let last = flipped.len() - 5;
    flipped[last] ^= 1;
    fs::write(here.join("flipped.brenier"), flipped).unwrap();
    fs::write(here.join("empty.brenier"), "").unwrap();
    for file in
        ["cut.brenier", "head.brenier", "flipped.brenier", "empty.brenier", "data.csv", "none.brenier", "."]
    {
        refuse(here, &format!("info {file}"), 2, &[file]);
        refuse(here, &format!("sample {file} --at y1=0,y2=0"), 2, &[file]);
        refuse(here, &format!("density {file} data.csv"), 2, &[file]);
        refuse(here, &format!("mode {file} --at y1=0,y2=0"), 2, &[file]);
    }
}

#[test]
fn observations_that_do_not_fit() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    for command in ["sample", "mode"] {
        let refuse =
            |line: &str, words: &[&str]| refuse(here, &format!("{command} m.brenier {line}"), 2, words);
        refuse("", &["y1, y2", "--at"]);
        refuse("--at y1=1", &["y2"]);
        refuse("--at y1=1,y2=2,y3=3", &["y3", "y1, y2"]);
        refuse("--at y1=1,y2=2,y1=3", &["y1", "twice"]);
        refuse("--at y1=1,y2=low", &["y2", "low"]);
        refuse("--at y1=1,y2=inf", &["y2", "finite"]);
        refuse("--at y1", &["name=value"]);
        refuse("--observed none.csv", &["none.csv"]);
        fs::write(here.join("obs.csv"), "y1,z\n1,2\n").unwrap();
        refuse("--observed obs.csv", &["obs.csv", "y2"]);
        fs::write(here.join("obs.csv"), "y1,y2\n1,2\n3,\n").unwrap();
        refuse("--observed obs.csv", &["obs.csv", "row 2", "y2", "fill it in"]);
    }
    refuse(here, "sample m.brenier --at y1=0,y2=0 -n 0", 2, &["-n"]);
    refuse(here, "sample m.brenier --at y1=0,y2=0 --tolerance 2", 2, &["tolerance"]);
    refuse(here, "mode m.brenier --at y1=0,y2=0 --starts 0", 2, &["starts"]);

    // Far outside the data: draws that satisfy the equation, or a sentence; never a panic.
    for far in ["1e3", "-1e6", "1e30", "1e300"] {
        let output = run(here, &format!("sample m.brenier --at y1={far},y2=0 -n 20"));
        match output.status.code() {
            Some(0) => assert!(
                numbers(&String::from_utf8(output.stdout).unwrap()).iter().flatten().all(|v| v.is_finite())
            ),
            Some(1 | 2) => {
                let text = stderr(&output);
                let (warnings, rest): (Vec<&str>, Vec<&str>) = text
                    .lines()
                    .partition(|line| line.starts_with("warning: observation 1 lies farther out"));
                assert!(warnings.len() == 1 && rest.len() == 1, "{far}: {text}");
                assert!(rest[0].starts_with("error: "), "{far}: {text}");
                assert!(!text.contains("mistake in brenier"), "{far}: {text}");
            }
            other => panic!("{far}: {other:?}"),
        }
        let output = run(here, &format!("mode m.brenier --at y1={far},y2=0"));
        assert!(!stderr(&output).contains("mistake in brenier"), "{far}: {}", stderr(&output));
    }
}

#[test]
fn huge_and_tiny_units_work() {
    let folder = folder();
    let here = folder.path();
    let draws = |name: &str, scale: f64| {
        fs::write(here.join(name), table(400, scale)).unwrap();
        succeed(here, &format!("fit {name} {SMALL} --out m.brenier"));
        succeed(here, &format!("density m.brenier {name}"));
        let at = 0.5 * scale;
        numbers(&succeed(here, &format!("sample m.brenier --at y1={at:e},y2={at:e} -n 20")))
    };
    let plain = draws("plain.csv", 1.0);
    for scale in [1e30, 1e-30] {
        for (row, plain) in draws("scaled.csv", scale).iter().zip(&plain) {
            for (value, plain) in row.iter().zip(plain) {
                assert!(
                    (value / scale - plain).abs() < 0.05 * (1.0 + plain.abs()),
                    "{scale}: {value} {plain}"
                );
            }
        }
    }
}

#[test]
fn tables_without_a_density_are_warned_of_before_the_training() {
    let folder = folder();
    let here = folder.path();
    let mut table = String::from("stars,rain,x,y\n");
    for row in 0..200_u32 {
        let noise = f64::from(row.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        let rain = if row % 4 == 0 { 0.0 } else { noise + 0.1 };
        writeln!(table, "{},{rain},{},{}", row % 5, noise + 0.01 * f64::from(row % 17), noise * noise)
            .unwrap();
    }
    fs::write(here.join("t.csv"), &table).unwrap();
    let fit =
        |what: &str| run(here, &format!("fit t.csv {what} --feature-width 4 --epochs 1 --out m.brenier"));
    let said = fit("--target stars,rain --given y");
    let text = stderr(&said);
    assert!(said.status.success() && stdout(&said).contains("m.brenier"), "{text}");
    assert!(text.contains("\"stars\" has only 5 distinct values in 200 rows"), "{text}");
    assert!(text.contains("\"rain\" is exactly 0 in 50 of 200 rows (25 %)"), "{text}");
    assert!(text.find("warning:").unwrap() < text.find("training ").unwrap(), "{text}");
    assert_eq!(text.matches("warning:").count(), 2, "{text}");
    // The same columns may be given, and an ordinary target is not warned of.
    let plain = stderr(&fit("--target x --given stars,rain,y --quiet"));
    assert_eq!(plain, "");
    let short: String = table.lines().take(31).map(|line| format!("{line}\n")).collect();
    fs::write(here.join("t.csv"), short).unwrap();
    let few = stderr(&fit("--target x --given y --quiet"));
    assert!(few.contains("warning: only 30 rows (27 to train on, 3 to validate with)"), "{few}");

    // Many given columns.
    let names: Vec<String> = (0..120).map(|j| format!("s{j}")).collect();
    let mut wide = format!("x,{}\n", names.join(","));
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    for _ in 0..150 {
        let cells: Vec<String> = (0..121).map(|_| noise().to_string()).collect();
        writeln!(wide, "{}", cells.join(",")).unwrap();
    }
    fs::write(here.join("t.csv"), wide).unwrap();
    let wide = stderr(&fit("--target x --given rest --quiet"));
    assert!(wide.contains("120 given columns for 150 rows") && wide.contains("--pca 0.99"), "{wide}");
    assert_eq!(stderr(&fit("--target x --given rest --pca 5 --quiet")), "");
}

#[test]
fn a_settings_file_that_is_not_text_is_a_mistake_of_the_user() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("fit.toml"), [0x50, 0x41, 0x52, 0x31, 0xff, 0xfe, 0x00]).unwrap();
    let line = format!("fit data.csv {SMALL} --config fit.toml --out m.brenier");
    refuse(here, &line, 2, &["fit.toml", "not text", "TOML"]);
}
