//! `brenier data`: columns dropped, rows split, and downloads that fail as they should.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use crate::common::{folder, listing, numbers, refuse, run, stderr, stdout, succeed, table};

#[test]
fn prepare_leaves_out_named_and_repeating_columns() {
    let folder = folder();
    let here = folder.path();
    let text = "name,a,b,c\nx,1,2,5\ny,2,4.1,-1\nz,4,8,0\n";
    fs::write(here.join("t.csv"), text).unwrap();
    let line = "data prepare t.csv --drop name --max-correlation 0.98";
    assert_eq!(succeed(here, line), "b,c\n2,5\n4.1,-1\n8,0\n");
    let output = run(here, &format!("{line} --out kept.parquet"));
    assert!(stderr(&output).contains("left out: a"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty() && here.join("kept.parquet").exists());
    assert_eq!(succeed(here, "data prepare t.csv --drop #1,#-1"), "a,b\n1,2\n2,4.1\n4,8\n");
    refuse(here, "data prepare t.csv", 2, &["t.csv", "name", "not a number"]);
    refuse(here, "data prepare t.csv --drop nam", 2, &["did you mean \"name\""]);
    refuse(here, "data prepare t.csv --drop name..c", 2, &["--drop leaves no column"]);
    refuse(here, "data prepare t.csv --drop name --max-correlation 2", 2, &["--max-correlation"]);
    refuse(here, "data prepare t.csv --drop name --out nowhere/t.csv", 2, &["nowhere"]);
    fs::write(here.join("gap.csv"), "a,b\n1,\n2,3\n").unwrap();
    refuse(here, "data prepare gap.csv", 2, &["row 1", "b"]);
    assert_eq!(succeed(here, "data prepare gap.csv --drop-missing"), "a,b\n2,3\n");
}

#[test]
fn split_deals_every_row_once() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("t.csv"), table(30, 1.0)).unwrap();
    let text = succeed(here, "data split t.csv --protocol sklearn --seed 42 --rows rows.csv");
    assert!(text.contains("train        24 rows") && text.contains("t-test.csv"), "{text}");
    let ids = |name: &str| -> Vec<u32> {
        numbers(&fs::read_to_string(here.join(name)).unwrap()).iter().map(|row| row[0] as u32).collect()
    };
    // numpy.random.RandomState(42).permutation(30) begins so; ids count from 1.
    assert_eq!(ids("t-test.csv"), [28, 16, 24]);
    let mut all = [ids("t-train.csv"), ids("t-valid.csv"), ids("t-test.csv")].concat();
    let rows = fs::read_to_string(here.join("rows.csv")).unwrap();
    assert!(rows.starts_with("row,set\n") && rows.contains("\n27,test\n15,test\n23,test\n"), "{rows}");
    all.sort_unstable();
    assert_eq!(all, (1..=30).collect::<Vec<_>>());

    fs::create_dir(here.join("parts")).unwrap();
    succeed(here, "data split t.csv --test-fraction 0 --out-format npz --out-prefix parts/p");
    assert_eq!(listing(&here.join("parts")).len(), 2);
    // A folder is made where there is none, but not for nothing.
    succeed(here, "data split t.csv --out-prefix new/er/p");
    assert_eq!(listing(&here.join("new/er")).len(), 3);
    refuse(here, "data split none.csv --out-prefix nowhere/p", 2, &["none.csv"]);
    refuse(here, "data split t.csv --out-prefix t.csv/p", 2, &["t.csv"]);
    refuse(here, "data split t.csv --valid-fraction 0.6 --test-fraction 0.5", 2, &["no rows to train on"]);
    refuse(here, "data split t.csv --protocol sklearn --seed 4294967296", 2, &["seed"]);
    fs::write(here.join("one.csv"), "a\n1\n").unwrap();
    refuse(here, "data split one.csv", 2, &["at least 3", "got 1"]);
    // Advice that these commands can follow.
    fs::write(here.join("text.csv"), "a,sex\n1,f\n2,m\n3,f\n").unwrap();
    for (line, advice) in [
        ("data split text.csv", "leave the column out first with brenier data prepare --drop"),
        ("data prepare text.csv", "or leave the column out with --drop"),
    ] {
        refuse(here, line, 2, &["text.csv", "sex", advice]);
        assert!(!stderr(&run(here, line)).contains("--categorical"), "{line}");
    }
    assert_eq!(succeed(here, "data prepare text.csv --drop sex"), "a\n1\n2\n3\n");
}

/// Found by fuzzing: the panic of Parquet's decoder was reported as a mistake of ours, before the error of the file.
#[test]
fn a_file_on_which_its_decoder_panics_is_damaged() {
    let folder = folder();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../brenier-data/tests/hostile/decoder-panic.parquet");
    fs::copy(file, folder.path().join("t.parquet")).unwrap();
    refuse(folder.path(), "data prepare t.parquet --out x.csv", 2, &["t.parquet", "damaged"]);
}

#[test]
fn a_download_that_is_not_the_table_leaves_no_file() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mirror = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let body = "1 2 3 4 5 6 7\n";
            let answer = match head[0].contains(".zip") {
                true => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
                false => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let folder = folder();
    let here = folder.path();
    fs::create_dir(here.join("uci")).unwrap();
    let line = format!("data fetch uci --dir uci --dataset yacht --mirror {mirror}");
    refuse(here, &line, 1, &["yacht", "1 rows of 7 columns (308 and 7", "SHA-256", "404", "--mirror"]);
    assert!(listing(&here.join("uci")).is_empty());
    refuse(here, "data fetch uci --dir uci --dataset boat", 2, &["boat", "yacht"]);
    refuse(here, "data fetch uci --dir data.csv", 2, &["data.csv"]);
    fs::write(here.join("uci/yacht.csv"), "a,b\n1,2\n").unwrap();
    refuse(here, &line, 2, &["yacht.csv", "not the published table", "move it away"]);
}
