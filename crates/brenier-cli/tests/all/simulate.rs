//! `simulate` and `abc` from outside: tables, users' programs that misbehave, kills and resumption, refusals.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::common::{brenier, listing, numbers, refuse, signal, stderr, succeed, wait_until};
use tempfile::TempDir;

/// The example in the repository.
fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/epidemic").join(file)
}

/// A prior of two parameters and a program that adds them up; `body` handles a request with seed, a and b at hand.
fn program(body: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let prior = "[[prior]]\nname = \"a\"\nkind = \"uniform\"\nlow = 0\nhigh = 1\n\
                 [[prior]]\nname = \"b\"\nkind = \"normal\"\nmean = 0\nsd = 1\n";
    fs::write(folder.path().join("prior.toml"), prior).unwrap();
    let text = format!(
        "import os, sys, time\n\
         for line in sys.stdin:\n\
         \x20   word, *fields = line.split()\n\
         \x20   if word == 'brenier':\n\
         \x20       print('outputs sum seed', flush=True)\n\
         \x20       continue\n\
         \x20   seed, a, b = int(fields[0]), float(fields[1]), float(fields[2])\n\
         {}\n\
         \x20   print('done', repr(a + b), seed % 1000, flush=True)\n",
        body.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    );
    fs::write(folder.path().join("sim.py"), text).unwrap();
    folder
}

/// The arguments of a run of the program in the folder.
fn arguments(rest: &str) -> Vec<String> {
    let mut words: Vec<String> =
        ["simulate", "--command", "python3 sim.py", "--prior", "prior.toml"].map(str::to_owned).into();
    words.extend(rest.split_whitespace().map(str::to_owned));
    words
}

fn spawn(folder: &Path, rest: &str) -> Child {
    brenier(folder).args(arguments(rest)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), stderr(&output))
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

/// A line of the program that makes every worker wait after `rows` rows until there is a file called go.
fn wait_for_go(rows: usize) -> String {
    format!(
        "count = globals().get('count', 0) + 1\n\
         while count > {rows} and not os.path.exists('go'): time.sleep(0.005)"
    )
}

/// Processes alive whose parent is `parent`, from /proc.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = text.rsplit_once(')').map(|(_, after)| after.to_owned()).unwrap_or_default();
        let mut fields = after.split_whitespace();
        let (state, own) = (fields.next(), fields.next());
        if own == Some(&parent.to_string()) && state != Some("Z") {
            found.push(id);
        }
    }
    found
}

#[test]
fn built_in_models_give_the_same_rows_on_any_number_of_threads_and_in_shards() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for model in ["lotka-volterra", "linear-gaussian", "two-moons"] {
        succeed(here, &format!("simulate {model} -n 600 --seed 3 --quiet --out whole.csv"));
        succeed(here, &format!("simulate {model} -n 600 --seed 3 --quiet --threads 1 --out one.csv"));
        let whole = fs::read_to_string(here.join("whole.csv")).unwrap();
        assert_eq!(whole, fs::read_to_string(here.join("one.csv")).unwrap());
        assert_eq!(numbers(&whole).len(), 600);
        for shard in 1..=3 {
            succeed(
                here,
                &format!("simulate {model} -n 600 --seed 3 --quiet --shard {shard}/3 --out {shard}.parquet"),
            );
        }
        succeed(here, "simulate --merge 1.parquet 2.parquet 3.parquet --quiet --out merged.csv");
        assert_eq!(whole, fs::read_to_string(here.join("merged.csv")).unwrap());
        refuse(here, "simulate --merge 1.parquet 1.parquet --out twice.csv", 2, &["1.parquet", "same part"]);
    }
    refuse(here, "simulate --merge 1.parquet absent.csv --out x.csv", 2, &["absent.csv"]);
    let stdout = succeed(here, "simulate lotka-volterra -n 2 --out -");
    assert!(stdout.starts_with("theta_1,theta_2,theta_3,theta_4,mean_predators,mean_prey"), "{stdout}");
    // Paths at given parameters, for predictive checks.
    fs::write(
        here.join("draws.csv"),
        "theta_4,theta_1,theta_2,theta_3\n0.01,0.01,0.5,1\n0.02,0.02,0.02,0.02\n",
    )
    .unwrap();
    succeed(here, "simulate lotka-volterra-paths --parameters draws.csv --quiet --out paths.csv");
    let paths = numbers(&fs::read_to_string(here.join("paths.csv")).unwrap());
    assert_eq!((paths.len(), paths[0].len()), (2, 304));
    assert_eq!(paths[0][..4], [0.01, 0.5, 1.0, 0.01]);
    assert_eq!((paths[0][4], paths[0][154]), (50.0, 100.0));
}

#[test]
fn a_killed_simulation_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let line = "simulate lotka-volterra -n 40000 --seed 5 --quiet --out";
    succeed(here, &format!("{line} whole.parquet"));
    let (table, partial) = (here.join("parts.parquet"), here.join("parts.parquet.partial"));
    let mut kills = 0;
    while kills < 2 {
        let before = size(&partial);
        let mut child =
            brenier(here).args(format!("{line} parts.parquet --resume").split_whitespace()).spawn().unwrap();
        wait_until(|| size(&partial) > before + 100_000 || child.try_wait().unwrap().is_some());
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        match table.exists() {
            true => fs::remove_file(&table).unwrap(), // too late to mean anything: once more
            false => kills += 1,
        }
    }
    refuse(
        here,
        "simulate lotka-volterra -n 40001 --seed 5 --resume --out parts.parquet",
        2,
        &["other settings"],
    );
    succeed(here, &format!("{line} parts.parquet --resume"));
    assert_eq!(fs::read(here.join("whole.parquet")).unwrap(), fs::read(here.join("parts.parquet")).unwrap());
    assert_eq!(listing(here).len(), 2);
}

#[test]
fn ctrl_c_keeps_the_rows() {
    let folder = program(&wait_for_go(60));
    let here = folder.path();
    for name in ["-INT", "-TERM"] {
        let before = size(&here.join("t.csv.partial"));
        let child = spawn(here, "-n 400 --threads 2 --out t.csv --resume");
        wait_until(|| size(&here.join("t.csv.partial")) > before + 2000);
        signal(name, child.id());
        let (code, text) = finish(child);
        assert_eq!(code, Some(130), "{text}");
        assert!(text.contains("of 400 rows") && text.contains("--resume"), "{text}");
        assert!(!here.join("t.csv").exists() && !here.join("t.csv.lock").exists());
    }
    fs::write(here.join("go"), "").unwrap();
    let (code, text) = finish(spawn(here, "-n 400 --threads 2 --out t.csv --resume"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("continuing after"), "{text}");
    let rows = numbers(&fs::read_to_string(here.join("t.csv")).unwrap());
    assert_eq!(rows.len(), 400);
    assert!(rows.iter().all(|row| row[2] == row[0] + row[1]));
    // The same rows as in one go on another number of workers.
    let (code, _) = finish(spawn(here, "-n 400 --threads 3 --out again.csv"));
    assert_eq!(code, Some(0));
    assert_eq!(fs::read(here.join("t.csv")).unwrap(), fs::read(here.join("again.csv")).unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn killing_a_worker_loses_no_row() {
    let folder = program(&wait_for_go(50));
    let here = folder.path();
    let child = spawn(here, "-n 300 --threads 2 --out t.csv");
    let partial = here.join("t.csv.partial");
    // Two workers with their rows done, each replaced by one that does some more: at most 250 rows.
    for step in 1..=3 {
        wait_until(|| size(&partial) > step * 700);
        // A worker that was listed may be gone by the time it is killed.
        let kill = |worker: u32| {
            let mut command = std::process::Command::new("kill");
            command.args(["-KILL", &worker.to_string()]).status().unwrap().success()
        };
        wait_until(|| children(child.id()).into_iter().any(kill));
    }
    fs::write(here.join("go"), "").unwrap();
    let (code, text) = finish(child);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("replaced"), "{text}");
    let (code, _) = finish(spawn(here, "-n 300 --threads 1 --out calm.csv"));
    assert_eq!(code, Some(0));
    assert_eq!(fs::read(here.join("t.csv")).unwrap(), fs::read(here.join("calm.csv")).unwrap());
    assert!(!here.join("t.csv.failed.csv").exists());
}

#[test]
fn failed_rows_are_recorded_and_can_be_tried_again() {
    let folder = program(
        "if 0.1 < a < 0.2: os._exit(3)\n\
         if 0.2 < a < 0.3: print('fail it, is \"too\" small', flush=True); continue\n\
         if 0.3 < a < 0.4: print('abandon', flush=True); continue\n\
         if 0.4 < a < 0.5: print('done nan 1', flush=True); continue\n\
         if 0.5 < a < 0.55: print('hello there', flush=True); continue",
    );
    let here = folder.path();
    let (code, text) = finish(spawn(here, "-n 60 --threads 4 --retries 1 --seed 2 --out t.csv"));
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("failed") && text.contains("t.csv.failed.csv") && text.contains("replaced"),
        "{text}"
    );
    let rows = numbers(&fs::read_to_string(here.join("t.csv")).unwrap());
    assert!(rows.iter().all(|row| row[0] > 0.55 || row[0] < 0.1), "{rows:?}");
    let failed = fs::read_to_string(here.join("t.csv.failed.csv")).unwrap();
    let lines: Vec<&str> = failed.lines().skip(1).collect();
    assert_eq!(rows.len() + lines.len(), 60);
    for (low, high, says) in [
        (0.1, 0.2, "the program ended with exit status: 3"),
        (0.2, 0.3, "it, is \"\"too\"\" small"),
        (0.4, 0.5, "the output sum is NaN"),
        (0.5, 0.55, "answered \"\"hello there\"\""),
    ] {
        let a = |line: &&&str| line.split(',').nth(1).unwrap().parse::<f64>().unwrap();
        let own: Vec<_> = lines.iter().filter(|line| (low..high).contains(&a(line))).collect();
        assert!(!own.is_empty() && own.iter().all(|line| line.contains(says)), "{says}: {own:?}");
    }
    // The list of failures is itself a table of parameters.
    let healthy = program("");
    fs::copy(here.join("t.csv.failed.csv"), healthy.path().join("again.csv")).unwrap();
    let (code, text) = finish(spawn(healthy.path(), "--parameters again.csv --out mended.csv"));
    assert_eq!(code, Some(0), "{text}");
    let mended = numbers(&fs::read_to_string(healthy.path().join("mended.csv")).unwrap());
    assert_eq!(mended.len(), lines.len());
}

#[test]
fn the_python_example_goes_from_program_to_posterior() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for file in ["sim.py", "prior.toml", "observed.csv"] {
        fs::copy(example(file), here.join(file)).unwrap();
    }
    let output =
        brenier(here).args(arguments("-n 400 --timeout 600 --quiet --out sims.csv")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    succeed(
        here,
        "fit sims.csv --target contact,duration --given attack_rate..last_day --support contact=log-interval(0.1,2) \
         --support duration=interval(1.5,10) --feature-width 16 --epochs 30 --quiet --out m.brenier",
    );
    let draws = numbers(&succeed(here, "sample m.brenier --observed observed.csv -n 200"));
    assert!(draws.iter().all(|row| (0.1..2.0).contains(&row[0]) && (1.5..10.0).contains(&row[1])));
    let mut words =
        arguments("--observed observed.csv --particles 40 --pilot 100 --tolerance 1.2 --quiet --out p.csv");
    words[0] = "abc".into();
    let output = brenier(here).args(&words).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let particles = numbers(&fs::read_to_string(here.join("p.csv")).unwrap());
    assert_eq!(particles.len(), 40);
    assert!((particles.iter().map(|row| row[2]).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(particles.iter().all(|row| row[3] <= 1.2 && (0.1..=2.0).contains(&row[0])));
}

#[test]
fn programs_that_cannot_work_are_refused_in_words() {
    let folder = program("print('fail always', flush=True); continue");
    let here = folder.path();
    let refused = |command: &str, prior: &str, rest: &str, words: &[&str]| {
        let before = listing(here);
        let output = brenier(here)
            .args(["simulate", "--command", command, "--prior", prior, "--out", "t.csv"])
            .args(rest.split_whitespace())
            .output()
            .unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{command}: {text}");
        assert_eq!(listing(here), before, "{command}");
    };
    refused("python3 sim.py", "prior.toml", "-n 100", &["all of the first", "always"]);
    refused("no-such-program", "prior.toml", "-n 10", &["no-such-program", "cannot start"]);
    refused("false", "prior.toml", "-n 10", &["ended before it said its outputs"]);
    refused("echo hello", "prior.toml", "-n 10", &["outputs NAME", "hello"]);
    refused("python3 absent.py", "prior.toml", "-n 10", &["absent.py"]);
    refused("python3 'sim.py", "prior.toml", "-n 10", &["quote"]);
    refused("python3 sim.py", "none.toml", "-n 10", &["none.toml"]);
    refused("python3 sim.py", "prior.toml", "-n 0", &["-n"]);
    refused("python3 sim.py", "prior.toml", "", &["-n"]);
    refused("python3 sim.py", "prior.toml", "-n 10 --timeout 0", &["--timeout"]);
    refused("python3 sim.py", "prior.toml", "-n 10 --start-timeout 0", &["--start-timeout"]);
    // Neither of these ever answers.
    let hint = "does the program flush its output?";
    refused("sleep 1000", "prior.toml", "-n 10 --timeout 0.1", &["greeting within 0.1 s", hint]);
    let mute = "sh -c 'read x; echo outputs s; while read x; do :; done'";
    let limits = "-n 20 --timeout 0.1 --start-timeout 600";
    refused(mute, "prior.toml", limits, &["all of the first", "no answer within 0.1 s", hint]);
    fs::write(here.join("bad.toml"), "[[prior]]\nname = \"a\"\nkind = \"uniform\"\nlow = 2\nhigh = 1\n")
        .unwrap();
    refused("python3 sim.py", "bad.toml", "-n 10", &["bad.toml", "a: low = 2 must lie below high = 1"]);
    refuse(here, "simulate -n 10 --out t.csv", 2, &["name a model"]);
    refuse(here, "simulate two-moons -n 10 --out t.xyz", 2, &["t.xyz"]);
    refuse(here, "simulate two-moons -n 10 --out nowhere/t.csv", 2, &["nowhere"]);
    fs::write(here.join("p.csv"), "theta_1,other\n1,2\n").unwrap();
    refuse(here, "simulate two-moons --parameters p.csv --out t.csv", 2, &["p.csv", "theta_2"]);
}

#[test]
fn abc_is_the_same_on_any_number_of_threads_and_after_interruptions() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("o.csv"), "y_2,y_1\n-0.2,0.1\n0.3,0.2\n").unwrap();
    let line =
        "abc two-moons --observed o.csv --row 1 --particles 300 --pilot 1000 --tolerance 0.02 --seed 4";
    let text = succeed(here, &format!("{line} --log rounds.jsonl --out whole.csv"));
    assert!(text.contains("theta_1") && text.contains("tolerance    0.0200"), "{text}");
    let log = fs::read_to_string(here.join("rounds.jsonl")).unwrap();
    assert!(log.lines().count() > 3 && log.contains("\"event\":\"round\""), "{log}");
    succeed(here, &format!("{line} --quiet --threads 1 --out one.csv"));
    let whole = fs::read(here.join("whole.csv")).unwrap();
    assert_eq!(whole, fs::read(here.join("one.csv")).unwrap());
    // A budget ends it with the last round; resumed without, it ends in the same bits.
    let text = succeed(here, &format!("{line} --simulations 20000 --out parts.csv"));
    assert!(text.contains("simulations were used up") && text.contains("--resume"), "{text}");
    assert_ne!(whole, fs::read(here.join("parts.csv")).unwrap());
    succeed(here, &format!("{line} --quiet --resume --out parts.csv"));
    assert_eq!(whole, fs::read(here.join("parts.csv")).unwrap());
    assert!(!here.join("parts.csv.checkpoint").exists());

    refuse(here, "abc two-moons --observed o.csv --tolerance 1 --out x.csv", 2, &["o.csv", "--row"]);
    refuse(here, "abc two-moons --observed o.csv --row 3 --tolerance 1 --out x.csv", 2, &["--row 3"]);
    refuse(here, "abc two-moons --observed o.csv --row 1 --out x.csv", 2, &["say when to end"]);
    refuse(
        here,
        "abc lotka-volterra --observed o.csv --row 1 --tolerance 1 --out x.csv",
        2,
        &["mean_predators"],
    );
    refuse(here, "abc two-moons --observed o.csv --row 1 --tolerance -1 --out x.csv", 2, &["tolerance"]);
    fs::write(here.join("abc.toml"), "particles = 100\ntolerances = 1\n").unwrap();
    refuse(
        here,
        "abc two-moons --observed o.csv --row 1 --config abc.toml --out x.csv",
        2,
        &["abc.toml, line 2"],
    );
    fs::write(here.join("samples.csv"), "a\n1\n2\n").unwrap();
    fs::write(here.join("table.toml"), "[[prior]]\nkind = \"table\"\nfile = \"samples.csv\"\n").unwrap();
    fs::write(
        here.join("echo.py"),
        "import sys\nfor l in sys.stdin: print('outputs y' if l[0] == 'b' else 'done 1', flush=True)\n",
    )
    .unwrap();
    fs::write(here.join("y.csv"), "y\n1\n").unwrap();
    let output = brenier(here)
        .args(["abc", "--command", "python3 echo.py", "--prior", "table.toml", "--observed", "y.csv"])
        .args(["--tolerance", "1", "--out", "x.csv"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use rejection"), "{}", stderr(&output));
}

/// A built-in model with a prior other than its own, in `simulate` and `abc`.
#[test]
fn a_built_in_model_takes_another_prior() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let block =
        |name: &str| format!("[[prior]]\nname = \"{name}\"\nkind = \"uniform\"\nlow = 0.1\nhigh = 0.2\n");
    fs::write(here.join("box.toml"), block("theta_1") + &block("theta_2")).unwrap();
    succeed(here, "simulate two-moons --prior box.toml -n 400 --out near.csv --quiet");
    let rows = numbers(&fs::read_to_string(here.join("near.csv")).unwrap());
    assert_eq!(rows.len(), 400);
    assert!(rows.iter().all(|row| row[..2].iter().all(|theta| (0.1..=0.2).contains(theta))));
    fs::write(here.join("o.csv"), "y_1,y_2\n0.1,0.05\n").unwrap();
    succeed(
        here,
        "abc two-moons --prior box.toml --observed o.csv --tolerance 1 --particles 50 --out particles.csv --quiet",
    );
    let rows = numbers(&fs::read_to_string(here.join("particles.csv")).unwrap());
    assert!(rows.iter().all(|row| row[..2].iter().all(|theta| (0.1..=0.2).contains(theta))));
    fs::write(here.join("half.toml"), block("theta_1")).unwrap();
    let missing = ["prior", "parameter 2 of the model is \"theta_2\""];
    refuse(here, "simulate two-moons --prior half.toml -n 5 --out x.csv", 2, &missing);
    refuse(here, "simulate --prior box.toml -n 5 --out x.csv", 2, &["name a model"]);
    refuse(
        here,
        "simulate two-moons --prior box.toml -n 5 --out box.toml",
        2,
        &["--out", "--prior box.toml"],
    );
}
