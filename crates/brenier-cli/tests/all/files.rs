//! No command overwrites what it reads, or writes one file twice, whatever the file is called.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{SMALL, folder, listing, refuse, succeed};

/// Everything in a folder, to the byte.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    listing(folder)
        .into_iter()
        .filter(|path| path.is_file())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn an_output_that_is_an_input_or_another_output_is_refused_by_every_command() {
    let folder = folder();
    let here = folder.path();
    // What the files hold does not matter: nothing is read before.
    for name in
        ["m.brenier", "o.parquet", "o.csv", "p.csv", "s.toml", "sim.py", "run.jsonl", "t.csv.failed.csv"]
    {
        fs::write(here.join(name), name).unwrap();
    }
    fs::write(here.join("prior.toml"), "[[prior]]\nkind = \"table\"\nfile = \"p.csv\"\n").unwrap();
    fs::create_dir(here.join("lv")).unwrap();
    fs::write(here.join("lv/observed.csv"), "y\n1\n").unwrap();
    fs::create_dir(here.join("n.brenier.tune")).unwrap();
    fs::write(here.join("n.brenier.tune/valid.csv"), "y\n1\n").unwrap();
    let before = contents(here);
    let program = "--command ./sim.py --prior prior.toml -n 5";
    for (line, words) in [
        ("fit m.brenier --target x1 --out m.brenier", ["--out", "TABLE"]),
        ("fit data.csv --target x1 --config m.brenier --out m.brenier", ["--out", "--config"]),
        ("fit data.csv --target x1 --test ./m.brenier --out m.brenier", ["--out", "--test"]),
        ("fit data.csv --target x1 --log data.csv --out m.brenier", ["--log data.csv", "TABLE data.csv"]),
        ("fit data.csv --target x1 --log new --out new", ["--log new", "--out new"]),
        ("fit data.csv --target x1 --log n.brenier.checkpoint --out n.brenier", ["--log", "--out"]),
        ("fit n.checkpoint.old --target x1 --out n", ["n.checkpoint.old", "--out n"]),
        ("tune data.csv --target x1 --space s.toml --out s.toml/../s.toml", ["--out", "model"]),
        ("tune m.brenier --target x1 --out m.brenier", ["--out", "TABLE"]),
        ("tune data.csv --target x1 --valid n.brenier --out n.brenier", ["--out", "--valid"]),
        ("tune data.csv --target x1 --valid n.brenier.tune/valid.csv --out n.brenier", ["--out", "--valid"]),
        ("sample m.brenier --given o.parquet --out o.parquet", ["--out", "o.parquet"]),
        ("sample o.csv --at y1=1 --out o.csv", ["--out", "MODEL"]),
        ("density m.brenier o.csv --out o.csv", ["--out", "TABLE"]),
        ("mode m.brenier --given o.csv --out o.csv", ["--out", "o.csv"]),
        ("check m.brenier o.parquet --json=m.brenier", ["--json", "models"]),
        ("check m.brenier o.parquet --json=o.parquet", ["--json", "TABLE"]),
        ("check m.brenier o.csv --with p.csv --json=p.csv", ["--json", "--against"]),
        ("check m.brenier o.csv --command ./sim.py --json=sim.py", ["--json", "--command"]),
        ("report m.brenier o.csv --out o.csv", ["--out", "TABLE"]),
        ("report m.brenier o.csv --given p.csv --out p.csv", ["--out", "p.csv"]),
        ("calibrate o.csv p.csv --target x --json=p.csv", ["--json", "DRAWS"]),
        ("calibrate o.csv p.csv --target x --json=o.csv", ["--json", "PAIRS"]),
        ("compare o.csv p.csv --plot p.csv", ["--plot", "B p.csv"]),
        ("plot pairs o.csv p.csv --out p.csv", ["--out", "TABLE"]),
        ("plot pairs o.csv --truth p.csv --out p.csv", ["--out", "--truth"]),
        ("plot predictive o.csv --observed p.csv --out p.csv", ["--out", "--observed"]),
        ("plot curves run.jsonl --x a --y b --out run.jsonl", ["--out", "TABLE"]),
        ("data prepare o.csv --out ./o.csv", ["--out", "TABLE"]),
        ("data split o.csv --rows o.csv", ["--assignment", "TABLE"]),
        ("data split o.csv --rows o-valid.csv", ["--assignment", "o-valid.csv"]),
        ("data split q-train.csv --out-prefix q", ["--out-prefix", "TABLE"]),
        ("simulate two-moons --parameters o.csv --out o.csv", ["--out", "--parameters"]),
        ("simulate two-moons --parameters t.csv.failed.csv --out t.csv", ["--out t.csv", "--parameters"]),
        ("simulate --merge o.csv p.csv --out p.csv", ["--out", "--merge"]),
        (&format!("simulate {program} --out prior.toml"), ["--out", "--prior"]),
        (&format!("simulate {program} --out p.csv"), ["--out", "--prior prior.toml"]),
        (&format!("simulate {program} --out sim.py"), ["--out", "--command"]),
        ("abc two-moons --observed o.csv --tolerance 1 --out o.csv", ["--out", "--observed"]),
        ("abc two-moons --observed o.csv --scale p.csv --tolerance 1 --out p.csv", ["--out", "--scale"]),
        (
            "abc two-moons --observed o.csv --tolerance 1 --config s.toml --log s.toml --out t.csv",
            ["--log", "--config"],
        ),
        (
            "abc two-moons --observed o.csv --tolerance 1 --log t.csv.checkpoint.pilot --out t.csv",
            ["--log", "--out"],
        ),
        ("reproduce lotka-volterra --observed lv/observed.csv,o.csv --out lv", ["--observed", "--out"]),
    ] {
        refuse(here, line, 2, &words);
        assert_eq!(contents(here), before, "{line}");
    }
}

#[cfg(unix)]
#[test]
fn links_are_seen_through() {
    use std::os::unix::fs::symlink;
    let folder = folder();
    let here = folder.path();
    fs::create_dir(here.join("sub")).unwrap();
    symlink(".", here.join("sub/up")).unwrap();
    symlink("data.csv", here.join("soft.csv")).unwrap();
    fs::hard_link(here.join("data.csv"), here.join("hard.csv")).unwrap();
    symlink("new.csv", here.join("dangling.csv")).unwrap();
    let absolute = here.join("data.csv");
    let before = contents(here);
    for (line, words) in [
        ("data prepare data.csv --out soft.csv", ["--out soft.csv", "TABLE data.csv"]),
        ("data prepare soft.csv --out data.csv", ["--out data.csv", "TABLE soft.csv"]),
        ("data prepare hard.csv --out data.csv", ["--out data.csv", "TABLE hard.csv"]),
        ("data prepare sub/../data.csv --out hard.csv", ["--out", "TABLE"]),
        (&format!("data prepare data.csv --out {}", absolute.display()), ["--out", "TABLE"]),
        (
            "abc two-moons --observed data.csv --tolerance 1 --log new.csv --out dangling.csv",
            ["--log", "--out"],
        ),
        (
            "abc two-moons --observed data.csv --tolerance 1 --log sub/up/x.csv --out sub/x.csv",
            ["--log", "--out"],
        ),
    ] {
        refuse(here, line, 2, &words);
        assert_eq!(contents(here), before, "{line}");
    }
    // Devices and the standard streams hold nothing that could be lost.
    succeed(here, "data prepare data.csv --out -");
    succeed(here, &format!("fit data.csv {SMALL} --test data.csv --log /dev/null --out /dev/null"));
    // A link to somewhere else is an ordinary output.
    succeed(here, "data prepare data.csv --out dangling.csv");
}

#[test]
fn models_are_not_named_like_tables_and_do_not_go_to_standard_output() {
    let folder = folder();
    let here = folder.path();
    for command in ["fit", "tune"] {
        for name in [
            "m.csv",
            "m.parquet",
            "M.CSV",
            "m.tsv",
            "m.txt",
            "m.npy",
            "m.json",
            "m.html",
            "m.svg",
            "m.csv.gz",
        ] {
            let line = format!("{command} data.csv --target x1 --given y1 --out {name}");
            refuse(here, &line, 2, &["--out", name, ".brenier"]);
        }
        let line = format!("{command} data.csv --target x1 --given y1 --out -");
        refuse(here, &line, 2, &["--out -", "standard output"]);
    }
    succeed(here, &format!("fit data.csv {SMALL} --out m.v2"));
    assert!(here.join("m.v2").exists());
}
