//! From a table to a model and back: every command on a small problem.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use brenier::Posterior;
use brenier::map::Method;

use crate::common::{SMALL, brenier, folder, listing, numbers, refuse, run, stderr, stdout, succeed};

#[test]
fn fit_sample_density_mode_and_info_agree_with_each_other() {
    let folder = folder();
    let here = folder.path();
    let small = SMALL.replace("--quiet", "");
    let summary =
        succeed(here, &format!("fit data.csv {small} --test data.csv --log log.jsonl --out m.brenier"));
    for words in [
        "x1, x2",
        "y1, y2",
        "360 trained on, 40 held out",
        "standardised",
        "your units",
        "m.brenier",
        "test table",
    ] {
        assert!(summary.contains(words), "{words}\n{summary}");
    }
    assert!(!here.join("m.brenier.checkpoint").exists());
    let log: Vec<serde_json::Value> = fs::read_to_string(here.join("log.jsonl"))
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(log.first().unwrap()["event"], "started");
    assert_eq!(log.last().unwrap()["event"], "finished");
    assert!(log.iter().all(|event| event["seconds"].as_f64().unwrap() >= 0.0));

    // One observation: no observation column; the same as the first of several.
    let one = succeed(here, "sample m.brenier --at y2=0.5,y1=-0.25 -n 7 --seed 5");
    assert!(one.starts_with("x1,x2\n"), "{one}");
    fs::write(here.join("obs.csv"), "y2,other,y1\n0.5,9,-0.25\n0,9,1\n").unwrap();
    let several = succeed(
        here,
        "sample m.brenier --observed obs.csv -n 7 --seed 5 --with log-density,residual,iterations",
    );
    assert!(several.starts_with("observation,x1,x2,residual,iterations,log_density\n"), "{several}");
    let (one, several) = (numbers(&one), numbers(&several));
    assert_eq!((one.len(), several.len()), (7, 14));
    for (alone, beside) in one.iter().zip(&several) {
        assert!((alone[0] - beside[1]).abs() < 1e-5 && (alone[1] - beside[2]).abs() < 1e-5);
        assert_eq!(beside[0], 1.0);
        assert!(beside[3] <= 1e-6 && beside[4] >= 1.0);
    }
    let by_lbfgs =
        numbers(&succeed(here, "sample m.brenier --at y2=0.5,y1=-0.25 -n 7 --seed 5 --solver lbfgs"));
    for (newton, lbfgs) in one.iter().zip(&by_lbfgs) {
        assert!((newton[0] - lbfgs[0]).abs() < 1e-4, "{newton:?} {lbfgs:?}");
    }

    // The density of a draw is the one that sample reports.
    let rows: String = several
        .iter()
        .map(|r| {
            format!(
                "{},{},{},{}\n",
                r[1],
                r[2],
                if r[0] == 1.0 { -0.25 } else { 1.0 },
                if r[0] == 1.0 { 0.5 } else { 0.0 }
            )
        })
        .collect();
    fs::write(here.join("draws.csv"), format!("x1,x2,y1,y2\n{rows}")).unwrap();
    let figures = succeed(here, "density m.brenier draws.csv --out densities.csv");
    assert!(figures.contains("rows                     14"), "{figures}");
    let densities = numbers(&fs::read_to_string(here.join("densities.csv")).unwrap());
    for (draw, density) in several.iter().zip(&densities) {
        assert!((draw[5] - density[0]).abs() < 1e-9, "{draw:?} {density:?}");
    }

    // No draw is higher than the mode.
    let text = succeed(here, "mode m.brenier --observed obs.csv");
    assert!(text.contains("observation 2") && text.contains("starts agree"), "{text}");
    succeed(here, "mode m.brenier --observed obs.csv --out modes.csv");
    let modes = numbers(&fs::read_to_string(here.join("modes.csv")).unwrap());
    assert!(several.iter().all(|draw| draw[5] <= modes[draw[0] as usize - 1][3] + 1e-9));

    let info = succeed(here, "info m.brenier");
    assert!(info.contains("pcp-map") && info.contains("seed            3"), "{info}");
    let json: serde_json::Value = serde_json::from_str(&succeed(here, "info m.brenier --json")).unwrap();
    assert_eq!(json["target_names"][1], "x2");
    assert_eq!(json["seed"], 3);
}

#[test]
fn every_output_format_holds_the_same_draws() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    let csv = succeed(here, "sample m.brenier --at y1=0,y2=0 -n 50 --out -");
    // Read back through a fit of the draws themselves: the hash of the table covers names and values.
    let hash = |file: &str, columns: &str| {
        let small = "--feature-width 2 --epochs 1 --quiet --out u.brenier";
        succeed(here, &format!("fit {file} --target {columns} {small}"));
        let json: serde_json::Value = serde_json::from_str(&succeed(here, "info u.brenier --json")).unwrap();
        json["data_sha256"].as_str().unwrap().to_owned()
    };
    for name in ["d.csv", "d.parquet", "d.npy", "d.npz"] {
        succeed(here, &format!("sample m.brenier --at y1=0,y2=0 -n 50 --out {name}"));
    }
    assert_eq!(fs::read_to_string(here.join("d.csv")).unwrap(), csv);
    let expected = hash("d.csv", "x1,x2");
    assert_eq!(hash("d.parquet", "x1,x2"), expected);
    assert_eq!(hash("d.npz", "x1,x2"), expected);
    fs::write(here.join("renamed.csv"), csv.replace("x1,x2", "c1,c2")).unwrap();
    assert_eq!(hash("d.npy", "c1,c2"), hash("renamed.csv", "c1,c2"));

    // Nameless arrays serve as observations in the model's order.
    fs::write(here.join("obs.csv"), csv.replace("x1,x2", "y1,y2")).unwrap();
    let named = succeed(here, "sample m.brenier --observed obs.csv -n 3");
    assert_eq!(named, succeed(here, "sample m.brenier --observed d.npy -n 3"));
}

#[test]
fn an_unconditional_fit_needs_no_observation() {
    let folder = folder();
    let here = folder.path();
    succeed(here, "fit data.csv --target x1,x2 --feature-width 8 --epochs 2 --quiet --out m.brenier");
    assert_eq!(numbers(&succeed(here, "sample m.brenier -n 4")).len(), 4);
    succeed(here, "density m.brenier data.csv");
    succeed(here, "mode m.brenier");
    assert!(succeed(here, "info m.brenier").contains("unconditional"));
    refuse(here, "sample m.brenier --at y1=1", 2, &["unconditional"]);
}

#[test]
fn positions_ranges_and_supports_mean_the_columns_of_the_table() {
    let folder = folder();
    let here = folder.path();
    succeed(
        here,
        "fit data.csv --target #-2..#-1 --given #2..#3 --support x1=interval(-9,9) --feature-width 4 --epochs 1 --quiet --out m.brenier",
    );
    let info = succeed(here, "info m.brenier");
    assert!(
        info.contains("x1, x2") && info.contains("y1, y2") && info.contains("x1=interval(-9,9)"),
        "{info}"
    );
    succeed(
        here,
        "fit data.csv --target x1,x2 --given rest --pca 2 --scaling robust --feature-width 4 --epochs 1 --quiet --out p.brenier",
    );
    assert!(succeed(here, "info p.brenier").contains("2 of 3 components"));
}

#[test]
fn a_settings_file_and_flags_give_the_same_model() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --batch-size 32 --out flags.brenier"));
    fs::write(
        here.join("fit.toml"),
        "target = \"x1,x2\"\ngiven = \"y1..y2\"\nseed = 9\n[network]\nfeature_width = 8\n\
         [train]\nepochs = 4\nvalidate_every = 4\nbatch_size = 32\n",
    )
    .unwrap();
    succeed(here, "fit data.csv --config fit.toml --seed 3 --quiet --out toml.brenier");
    assert_eq!(fs::read(here.join("flags.brenier")).unwrap(), fs::read(here.join("toml.brenier")).unwrap());

    fs::write(here.join("bad.toml"), "seed = 1\n[train]\nepoch = 4\n").unwrap();
    refuse(here, "fit data.csv --config bad.toml --out m.brenier", 2, &["bad.toml", "line 3", "epoch"]);
    fs::write(here.join("bad.toml"), "target = \"x1\"\n[train]\nepochs = \"many\"\n").unwrap();
    refuse(here, "fit data.csv --config bad.toml --out m.brenier", 2, &["bad.toml", "line 3", "epochs"]);
    refuse(here, "fit data.csv --config none.toml --out m.brenier", 2, &["none.toml"]);
    fs::write(here.join("bad.toml"), "target = \"x1\"\n[train]\nlearning_rate = -1.0\n").unwrap();
    refuse(here, "fit data.csv --config bad.toml --out m.brenier", 2, &["learning_rate", "-1"]);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    let mut child = brenier(here)
        .args(["sample", "m.brenier", "--at", "y1=0,y2=0", "-n", "50000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 5];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap(); // dropped: the pipe closes
    assert_eq!(&first, b"x1,x2");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn help_version_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let help = succeed(here, "--help");
    assert!(help.contains("Exit codes:") && help.contains("130"), "{help}");
    for command in [
        "fit",
        "sample",
        "density",
        "mode",
        "straightness",
        "compare",
        "tune",
        "data",
        "simulate",
        "abc",
        "info",
        "reproduce",
        "check",
        "report",
        "plot",
        "demo",
        "completions",
    ] {
        assert!(help.contains(command));
        succeed(here, &format!("{command} --help"));
    }
    assert!(succeed(here, "--version").starts_with("brenier "));
    assert!(succeed(here, "completions bash").contains("brenier"));
    let alone = run(here, "");
    assert!((stdout(&alone) + &stderr(&alone)).contains("Usage"));
    assert!(listing(here).is_empty());
}

#[test]
fn the_demo_writes_its_files_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let text = succeed(here, "demo --rows 3000 --epochs 4 --out d");
    assert!(text.contains("MAP") && text.contains("Can it be trusted?"), "{text}");
    let names: Vec<String> = listing(&here.join("d"))
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let expected = [
        "held-out.parquet",
        "model.brenier",
        "observed.csv",
        "pairs-1.svg",
        "pairs-2.svg",
        "predictive-1.svg",
        "predictive-2.svg",
        "report.html",
        "samples.csv",
        "simulations.parquet",
    ];
    assert_eq!(names, expected);
    assert_eq!(listing(here).len(), 1);
    let page = std::fs::read_to_string(here.join("d/report.html")).unwrap();
    for part in ["Rates of a predator–prey process", "Observed path 2", "brenier demo"] {
        assert!(page.contains(part), "{part}");
    }
    let draws = succeed(here, "sample d/model.brenier --observed d/observed.csv -n 5");
    assert!(draws.starts_with("observation,theta_1") && draws.lines().count() == 11, "{draws}");
    let few = run(here, "demo --rows 5 --out x");
    assert!(few.status.code() == Some(2) && stderr(&few).contains("--rows"));
}

#[test]
fn lotka_volterra_is_reproduced_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let command =
        "reproduce lotka-volterra --rows 600 --epochs 1 --tolerance 4 --posterior-draws 200 --out lv";
    let text = succeed(here, command);
    for part in ["| COT-Flow | 600 |", "SMC-ABC, ε = 4", "Observation 2", "tolerance 1e-6", "n_t = 32"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for file in ["accuracy.png", "pairs-pcp-map-600-1.svg", "predictive-cot-flow-600-2.png", "abc-2.csv"] {
        assert!(here.join("lv").join(file).exists(), "{file}");
    }
    refuse(here, command, 2, &["--resume"]);
    // Models and particles are taken up; the figures that do not measure time are the same.
    let model = std::fs::read(here.join("lv/pcp-map-600.brenier")).unwrap();
    let again = succeed(here, &format!("{command} --resume"));
    let before = |text: &str| text.split("200 draws").next().map(str::to_owned);
    assert_eq!(before(&again), before(&text));
    assert_eq!(std::fs::read(here.join("lv/pcp-map-600.brenier")).unwrap(), model);
    // What belongs to another run is not taken up.
    refuse(here, &format!("{command} --resume --seed 7"), 2, &["another --seed"]);
    refuse(here, &format!("{} --resume", command.replace("--epochs 1", "--epochs 2")), 2, &["--epochs"]);
    // What the folder holds of its own would be overwritten; copies serve as those of another program.
    for name in ["abc-1.csv", "abc-2.csv", "observed.csv"] {
        std::fs::copy(here.join("lv").join(name), here.join(name)).unwrap();
    }
    let particles = "--particles abc-1.csv,abc-2.csv";
    refuse(here, &format!("{command} --resume {particles}"), 2, &["--observed"]);
    refuse(here, &format!("{command} --resume --observed observed.csv"), 2, &["--observed takes 2 files"]);
    refuse(
        here,
        &format!("{command} --resume --observed observed.csv,observed.csv"),
        2,
        &["observed.csv", "2 rows instead of one"],
    );
    refuse(here, "reproduce uci --dataset boston --out u", 2, &["boston", "parkinsons"]);
    refuse(here, "reproduce uci --data-dir nowhere --out u", 2, &["parkinsons.csv"]);
    let half = run(here, "reproduce uci --row 3 --out u");
    assert!(half.status.code() == Some(2) && stderr(&half).contains("11/1"));
    assert!(!here.join("u").exists());
}

/// Ctrl-C in a step of an experiment: its own exit code, a sentence, and a state from which it continues.
#[cfg(unix)]
#[test]
fn an_interrupted_reproduction_says_how_to_continue() {
    use crate::common::{signal, wait_until};
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let line = "reproduce lotka-volterra --no-abc --method pcp-map --epochs 1 --posterior-draws 200 --out lv";
    let child = brenier(here)
        .args(format!("{line} --rows 2000000").split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let state = here.join("lv/train-2000000.parquet.checkpoint");
    wait_until(|| state.exists());
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("2000000 simulations:"), "{text}");
    assert!(text.contains("stopped; re-run the same command with --resume to continue"), "{text}");
    assert!(
        state.exists() && !here.join("lv/results.md").exists() && !here.join("lv/.brenier.lock").exists()
    );
    // Another size of table may be asked for when the run is resumed.
    let text = succeed(here, &format!("{line} --rows 600 --resume"));
    assert!(text.contains("| PCP-Map | 600 |"), "{text}");
    let page = std::fs::read_to_string(here.join("lv/results.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("maps against SMC-ABC"));
}

/// Ctrl-C in commands that have no result before their end: a sentence, an exit code, and no file.
#[cfg(target_os = "linux")]
#[test]
fn interrupted_draws_comparisons_and_checks_leave_nothing() {
    use crate::common::{signal, wait_until};
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    succeed(here, "sample m.brenier --observed data.csv -n 100 --out long.csv --quiet");
    let data = fs::read_to_string(here.join("data.csv")).unwrap();
    let (header, rows) = data.split_once('\n').unwrap();
    let times = 200_000 / rows.lines().count();
    fs::write(here.join("many.csv"), format!("{header}\n{}", rows.repeat(times))).unwrap();
    let draws = (0..200_000).map(|row| format!("{},{row}.0,{row}.5\n", row / 1000 + 1)).collect::<String>();
    fs::write(here.join("draws.csv"), format!("observation,x1,x2\n{draws}")).unwrap();
    let truth = (0..200).map(|row| format!("{row}.0,{row}.5\n")).collect::<String>();
    fs::write(here.join("truth.csv"), format!("x1,x2\n{truth}")).unwrap();
    let before = listing(here);
    for line in [
        "density m.brenier many.csv --out=d.csv",
        "calibrate truth.csv draws.csv --target x1,x2 --json=r.json",
        "sample m.brenier --observed data.csv -n 100000 --summary=s.csv",
        "compare long.csv long.csv --json=c.json",
        "check m.brenier data.csv --draws 100000 --json=k.json",
    ] {
        let child = brenier(here)
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Until the program watches for SIGINT, the second bit of the signals caught.
        let status = format!("/proc/{}/status", child.id());
        let caught = |text: &str| {
            let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(mask.trim(), 16).ok()
        };
        wait_until(|| {
            fs::read_to_string(&status).ok().and_then(|text| caught(&text)).is_some_and(|m| m & 2 != 0)
        });
        signal("-INT", child.id());
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{line}: {text}");
        assert!(text.contains("stopped before there was a result"), "{line}: {text}");
        assert_eq!(listing(here), before, "{line}");
    }
}

#[test]
fn a_flow_goes_through_every_command() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --method cot-flow --out f.brenier"));
    let info = succeed(here, "info f.brenier");
    assert!(info.contains("cot-flow") && info.contains("32 in use"), "{info}");
    let with = "sample f.brenier --at y1=0,y2=0 -n 40 --steps 4 --with residual,iterations,log-density";
    let draws = succeed(here, with);
    assert!(draws.starts_with("x1,x2,residual,iterations,log_density"), "{draws}");
    assert!(draws.lines().nth(1).unwrap().split(',').nth(3) == Some("4"), "{draws}");
    succeed(here, "density f.brenier data.csv");
    succeed(here, "mode f.brenier --at y1=0,y2=0");
    let straight = succeed(here, "straightness f.brenier --at y1=0,y2=0 -n 50");
    assert!(straight.contains("straight-line cost") && straight.contains("steps are enough"), "{straight}");
    succeed(here, &format!("fit data.csv {SMALL} --method cot-flow --authors-alphas 20,4 --out a.brenier"));
    assert!(succeed(here, "info a.brenier").contains("transport 0.05, HJB 0.2"));
    // What belongs to one method is refused for the other, and said so.
    refuse(here, "sample f.brenier --at y1=0,y2=0 --tolerance 1e-8", 2, &["tolerance", "COT-Flow"]);
    refuse(here, "sample f.brenier --at y1=0,y2=0 --steps 0", 2, &["steps"]);
    refuse(here, &format!("fit data.csv {SMALL} --time-steps 4 --out x.brenier"), 2, &["cot-flow"]);
    refuse(
        here,
        &format!("fit data.csv {SMALL} --method cot-flow --context-width 4 --out x.brenier"),
        2,
        &["--context-width", "pcp-map"],
    );
    succeed(here, &format!("fit data.csv {SMALL} --out p.brenier"));
    refuse(here, "sample p.brenier --at y1=0,y2=0 --steps 4", 2, &["steps", "PCP-Map"]);
    refuse(here, "straightness p.brenier --at y1=0,y2=0", 2, &["PCP-Map"]);
}

#[test]
fn a_joint_model_draws_and_scores_all_columns() {
    let folder = folder();
    let here = folder.path();
    let aloud = SMALL.replace(" --quiet", "");
    let fitted = run(here, &format!("fit data.csv {aloud} --joint --out j.brenier"));
    let told = stderr(&fitted);
    assert!(fitted.status.success() && told.contains("block 1 of 2: y1, y2\n"), "{told}");
    assert!(told.contains("block 2 of 2: x1, x2 given the rest\n"), "{told}");
    let draws = succeed(here, "sample j.brenier -n 30 --with log-density");
    assert!(draws.starts_with("x1,x2,y1,y2,log_density"), "{draws}");
    assert_eq!(draws.lines().count(), 31);
    assert!(succeed(here, "sample j.brenier --at y1=0,y2=0 -n 3").starts_with("x1,x2\n"));
    succeed(here, "density j.brenier data.csv --out d.csv");
    let table = fs::read_to_string(here.join("d.csv")).unwrap();
    let row: Vec<f64> = table.lines().nth(1).unwrap().split(',').map(|cell| cell.parse().unwrap()).collect();
    assert!((row[0] - row[2] - row[3]).abs() < 1e-12, "{row:?}");
    assert!(succeed(here, "info j.brenier").contains("joint model"));
    refuse(here, "fit data.csv --target x1 --joint --out x.brenier", 2, &["joint", "given"]);
}

#[test]
fn observations_unlike_the_training_data_are_warned_of() {
    let folder = folder();
    let here = folder.path();
    for method in ["pcp-map", "cot-flow"] {
        succeed(here, &format!("fit data.csv {SMALL} --method {method} --out m.brenier"));
        let near = run(here, "sample m.brenier --at y1=0.1,y2=0 -n 5 --with support-percentile");
        assert_eq!((near.status.code(), stderr(&near).as_str()), (Some(0), ""));
        let percentile: f64 =
            stdout(&near).lines().nth(1).unwrap().rsplit(',').next().unwrap().parse().unwrap();
        assert!((0.0..0.99).contains(&percentile), "{percentile}");
        for command in ["sample m.brenier --at y1=0.1,y2=25 -n 5", "mode m.brenier --at y1=0.1,y2=25"] {
            let far = run(here, command);
            let text = stderr(&far);
            assert!(text.contains("observation 1") && text.contains("y2") && text.contains("extrapolation"));
        }
    }
    fs::write(here.join("far.csv"), "x1,x2,y1,y2\n0,0,40,0\n0,0,0,-40\n").unwrap();
    let far = run(here, "density m.brenier far.csv");
    assert!(stderr(&far).contains("2 of 2 rows"), "{}", stderr(&far));
}

/// Nothing said: trials choose. A method or a setting of one, here or in a settings file, and --quick: they do not.
#[test]
fn trials_choose_where_no_method_is_named() {
    let folder = folder();
    let here = folder.path();
    let columns = "--target x1,x2 --given y1..y2 --epochs 1";
    let fitted = run(here, &format!("fit data.csv {columns} --out a.brenier"));
    assert!(stderr(&fitted).contains("chosen: "), "{}", stderr(&fitted));
    assert!(succeed(here, "info a.brenier").contains("chosen  "));
    fs::write(here.join("fit.toml"), "target = \"x1,x2\"\ngiven = \"y1..y2\"\n[train]\nepochs = 1\n")
        .unwrap();
    succeed(here, "fit data.csv --config fit.toml --quiet --out b.brenier");
    assert_eq!(fs::read(here.join("a.brenier")).unwrap(), fs::read(here.join("b.brenier")).unwrap());
    succeed(here, &format!("fit data.csv {columns} --method pcp-map --quiet --out plain.brenier"));
    assert!(!succeed(here, "info plain.brenier").contains("chosen  "));
    for quick in [format!("{columns} --quick"), "--config fit.toml --quick".to_owned()] {
        succeed(here, &format!("fit data.csv {quick} --quiet --out quick.brenier"));
        assert_eq!(
            fs::read(here.join("quick.brenier")).unwrap(),
            fs::read(here.join("plain.brenier")).unwrap()
        );
    }
    succeed(here, &format!("fit data.csv {columns} --depth 3 --quiet --out deep.brenier"));
    assert!(succeed(here, "info deep.brenier").contains("depth 3"));
    let both = run(here, &format!("fit data.csv {columns} --quick --method npe --out x.brenier"));
    assert!(both.status.code() == Some(2) && stderr(&both).contains("--quick"), "{}", stderr(&both));
}

#[test]
fn an_ensemble_and_the_gaussian_go_through_every_command() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --members 3 --out e.brenier"));
    assert!(!here.join("e.brenier.checkpoint.member-1").exists());
    assert!(succeed(here, "info e.brenier").contains("members         3, validation NLL"));
    let draws = succeed(here, "sample e.brenier --at y1=0,y2=0 -n 3 --with disagreement");
    assert!(draws.starts_with("x1,x2,disagreement"), "{draws}");
    let report = succeed(here, "check e.brenier data.csv --pairs 50 --draws 50");
    assert!(report.contains("the 3 members of the ensemble disagree by"), "{report}");
    assert!(report.contains("a conditional Gaussian"), "{report}");
    succeed(here, "mode e.brenier --at y1=0,y2=0");
    succeed(here, "density e.brenier data.csv");
    refuse(here, &format!("fit data.csv {SMALL} --bootstrap --out x.brenier"), 2, &["bootstrap", "members"]);

    let gaussian = "--target x1,x2 --given y1..y2 --method gaussian";
    succeed(here, &format!("fit data.csv {gaussian} --covariance log-affine --joint --out g.brenier"));
    assert!(succeed(here, "info g.brenier").contains("log-affine covariance"));
    succeed(here, "sample g.brenier --at y1=0,y2=0 -n 3 --summary");
    succeed(here, "check g.brenier data.csv --pairs 50 --draws 50");
    succeed(here, "report g.brenier data.csv --out g.html");
    succeed(here, "mode g.brenier --at y1=0,y2=0");
    succeed(here, &format!("tune data.csv {gaussian} --trials 2 --finalists 1 --repeats 1 --out t.brenier"));
    refuse(here, "sample g.brenier --at y1=0,y2=0 --solver lbfgs", 2, &["solver", "conditional Gaussian"]);
    refuse(here, "sample g.brenier --at y1=0,y2=0 --with disagreement", 2, &["--members"]);
    refuse(here, &format!("fit data.csv {gaussian} --depth 3 --out x.brenier"), 2, &["depth", "pcp-map"]);
}

/// One description for both, of every method: with an embedding where it has one.
#[test]
fn info_and_the_page_print_every_line_of_a_description() {
    let folder = folder();
    let here = folder.path();
    for &method in Method::ALL {
        let name = method.name();
        let mut fit =
            format!("fit data.csv --target x1,x2 --given y1..y2 --method {name} --epochs 1 --quiet");
        for (setting, value) in [
            ("feature_width", "8"),
            ("hidden_width", "8"),
            ("max_terms", "8"),
            ("evaluation_steps", "2"),
            ("embedding", "3,2"),
        ] {
            if method.info().settings.iter().any(|own| own.name == setting) {
                fit = format!("{fit} --{} {value}", setting.replace('_', "-"));
            }
        }
        succeed(here, &format!("{fit} --out {name}.brenier"));
        let description = Posterior::load(here.join(format!("{name}.brenier"))).unwrap().description();
        let info = succeed(here, &format!("info {name}.brenier"));
        succeed(here, &format!("report {name}.brenier data.csv --pairs 50 --draws 50 --out {name}.html"));
        let page = fs::read_to_string(here.join(format!("{name}.html"))).unwrap();
        for (heading, text) in &description {
            assert!(info.contains(&format!("{heading:16}{text}\n")), "{name}, {heading}: {info}");
            let text =
                text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
            let heading = heading[..1].to_uppercase() + &heading[1..];
            let row = format!("<th scope=\"row\">{heading}</th><td>{text}</td>");
            assert!(page.contains(&row), "{name}: no {row}");
        }
        assert_eq!(info.lines().count(), description.len(), "{name}: {info}");
        let texts = |wanted: &str| {
            let of = |(heading, text): &(&str, String)| (*heading == wanted).then(|| text.clone());
            description.iter().filter_map(of).collect::<Vec<String>>()
        };
        let embeds = method.info().settings.iter().any(|own| own.name == "embedding");
        assert_eq!(texts("network")[0].contains("embedding"), embeds, "{name}: {info}");
        if method == Method::Atm {
            let used = texts("depends on");
            assert!(
                used.len() == 2 && used[0].starts_with("x1: ") && used[1].starts_with("x2: "),
                "{used:?}"
            );
        }
    }
}
