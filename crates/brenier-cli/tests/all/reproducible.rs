//! The same bits on every number of threads, and after kills and interruptions.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use crate::common;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{SMALL, brenier, folder, run, signal, stderr, stdout, succeed, wait_until};

#[test]
fn runs_and_threads_do_not_change_a_bit() {
    let folder = folder();
    let here = folder.path();
    let mut models = Vec::new();
    let mut draws = Vec::new();
    for method in ["", "--method cot-flow", "--method cot-flow --embedding 8,5 --joint"] {
        models.clear();
        draws.clear();
        for threads in ["", "--threads 1", "--threads 2", "--threads 4", ""] {
            succeed(here, &format!("fit data.csv {SMALL} {method} {threads} --out m.brenier"));
            models.push(fs::read(here.join("m.brenier")).unwrap());
            draws.push(succeed(here, &format!("sample m.brenier --at y1=0.5,y2=0.5 -n 200 {threads}")));
        }
        assert!(models.iter().all(|model| model == &models[0]), "{method}");
        assert!(draws.iter().all(|text| text == &draws[0]), "{method}");
        assert_ne!(draws[0], succeed(here, "sample m.brenier --at y1=0.5,y2=0.5 -n 200 --seed 1"));
    }
}

/// A fit of about a second.
const LONG: &str = "--target x1,x2 --given y1,y2 --feature-width 32 --weight-average 0.9 --epochs 300 --validate-every 20 \
                    --patience 1000 --quiet --checkpoint-seconds 0";

#[test]
fn a_killed_fit_resumes_to_the_same_bits() {
    kill_and_resume(LONG);
}

#[test]
fn a_killed_fit_on_a_cosine_resumes_to_the_same_bits() {
    kill_and_resume(&format!("{LONG} --schedule cosine"));
}

#[test]
fn a_killed_flow_resumes_to_the_same_bits() {
    let fewer = LONG.replace("--epochs 300", "--epochs 60 --evaluation-steps 8");
    kill_and_resume(&format!("{fewer} --method cot-flow"));
}

/// Both blocks of a joint fit: the first one's final state is kept while the second is trained.
#[test]
fn a_killed_joint_fit_resumes_to_the_same_bits() {
    kill_and_resume(&format!("{LONG} --joint"));
}

fn kill_and_resume(fit: &str) {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {fit} --out whole.brenier"));
    // Moments that differ from run to run of the tests.
    let mut noise = u64::from(std::process::id());
    let model = here.join("parts.brenier");
    let checkpoint = here.join("parts.brenier.checkpoint");
    let given = here.join("parts.brenier.checkpoint.given");
    let mut kills = 0;
    while kills < 3 {
        noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut child = brenier(here)
            .args(format!("fit data.csv {fit} --resume --out parts.brenier").split_whitespace())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until(|| checkpoint.exists() || given.exists() || child.try_wait().unwrap().is_some());
        std::thread::sleep(Duration::from_millis(noise >> 57)); // up to 127
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        match model.exists() {
            true => fs::remove_file(&model).unwrap(), // too late to mean anything: once more
            false => kills += 1,
        }
    }
    succeed(here, &format!("fit data.csv {fit} --resume --out parts.brenier"));
    assert_eq!(fs::read(here.join("whole.brenier")).unwrap(), fs::read(here.join("parts.brenier")).unwrap());
    assert!(!checkpoint.exists() && !given.exists());
}

#[test]
fn ctrl_c_saves_the_best_model_and_resume_goes_on() {
    let folder = folder();
    let here = folder.path();
    let line = LONG.replace("--quiet", "").replace("--epochs 300", "--epochs 100000");
    let child = brenier(here)
        .args(format!("fit data.csv {line} --out m.brenier").split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let checkpoint = here.join("m.brenier.checkpoint");
    wait_until(|| checkpoint.exists());
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("it was stopped") && text.contains("--resume"), "{text}");
    assert!(stderr(&output).contains("the best model so far will be saved"));
    assert!(checkpoint.exists());
    assert!(succeed(here, "info m.brenier").contains("interrupted"));

    // Going on, and a time budget that ends it again.
    let again = succeed(here, &format!("fit data.csv {line} --out m.brenier --resume --minutes 0.01"));
    assert!(again.contains("the time was used up"), "{again}");
    assert!(checkpoint.exists());
    // A checkpoint of other settings is refused, and set aside without --resume.
    let other = line.replace("--epochs 100000", "--epochs 2");
    common::refuse(
        here,
        &format!("fit data.csv {other} --out m.brenier --resume"),
        2,
        &["checkpoint", "other settings"],
    );
    succeed(here, &format!("fit data.csv {other} --out m.brenier"));
    assert!(!checkpoint.exists() && here.join("m.brenier.checkpoint.old").exists());
}

/// A fit that has begun and would not end by itself, validating every `steps` steps; the words of `around` start it.
fn endless(here: &Path, around: &[&str], steps: usize) -> Child {
    let line = LONG.replace("--epochs 300", "--epochs 1000000");
    let line = line.replace("--validate-every 20", &format!("--validate-every {steps}"));
    let mut words: Vec<&str> = around.to_vec();
    words.push(env!("CARGO_BIN_EXE_brenier"));
    let log = here.join("run.jsonl");
    let _ = fs::remove_file(&log);
    let mut child = Command::new(words[0])
        .current_dir(here)
        .args(&words[1..])
        .args(format!("fit data.csv {line} --log run.jsonl --resume --out m.brenier").split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = || fs::read_to_string(&log).is_ok_and(|text| text.contains("started"));
    wait_until(|| started() || child.try_wait().unwrap().is_some());
    child
}

#[test]
fn a_fit_stopped_before_its_first_validation_leaves_the_old_model_alone() {
    let folder = folder();
    let here = folder.path();
    for old in [None, Some("an older model")] {
        if let Some(text) = old {
            fs::write(here.join("m.brenier"), text).unwrap();
        }
        let child = endless(here, &[], 1_000_000_000);
        signal("-INT", child.id());
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(130), "{text}");
        assert!(text.contains("before the first validation") && text.contains("--resume"), "{text}");
        assert!(output.stdout.is_empty());
        assert_eq!(fs::read_to_string(here.join("m.brenier")).ok().as_deref(), old);
        assert!(here.join("m.brenier.checkpoint").exists() && !here.join("m.brenier.lock").exists());
    }
}

/// On one thread the first member is trained first: it is all that a stop can keep.
#[test]
fn ctrl_c_keeps_the_members_that_were_validated() {
    let folder = folder();
    let here = folder.path();
    let fit = |every: usize| {
        let line = LONG.replace("--quiet", "").replace("--epochs 300", "--epochs 100000");
        let line = line.replace("--validate-every 20", &format!("--validate-every {every}"));
        let line =
            format!("fit data.csv {line} --members 3 --threads 1 --log run.jsonl --resume --out m.brenier");
        let _ = fs::remove_file(here.join("run.jsonl"));
        brenier(here)
            .args(line.split_whitespace())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let logged =
        |word: &str| fs::read_to_string(here.join("run.jsonl")).is_ok_and(|text| text.contains(word));

    let child = fit(1_000_000_000);
    wait_until(|| logged("members"));
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("m.brenier.checkpoint.member-1 (and 2 more)"), "{text}");
    assert!(text.contains("--resume to continue") && !here.join("m.brenier").exists(), "{text}");
    for member in 1..=3 {
        fs::remove_file(here.join(format!("m.brenier.checkpoint.member-{member}"))).unwrap();
    }

    let child = fit(20);
    wait_until(|| logged("part-validated"));
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("it was stopped") && text.contains("m.brenier.checkpoint.member-1"), "{text}");
    assert!(text.contains("--resume to continue"), "{text}");
    let info = succeed(here, "info m.brenier");
    assert!(info.contains("interrupted") && !info.contains("members  "), "{info}");
    // States are taken up where --resume asks for it, and set aside where it does not.
    let line = LONG.replace("--quiet", "").replace("--epochs 300", "--epochs 1");
    let again = common::run(here, &format!("fit data.csv {line} --members 3 --out m.brenier"));
    assert!(stderr(&again).contains("m.brenier.checkpoint.member-1 (and 2 more)"), "{}", stderr(&again));
    assert!(here.join("m.brenier.checkpoint.member-3.old").exists());
    assert!(succeed(here, "info m.brenier").contains("members         3,"));
}

/// Both come in pairs: from `timeout`, and from a terminal that is closed. The second must not abort anything.
#[test]
fn sigterm_and_sighup_end_a_fit_as_the_first_ctrl_c_does() {
    // These tests may themselves run under nohup.
    let heard = [
        "python3",
        "-c",
        "import os, signal as s, sys; s.signal(s.SIGHUP, s.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])",
    ];
    for name in ["-TERM", "-HUP"] {
        let folder = folder();
        let here = folder.path();
        let child = endless(here, &heard, 20);
        wait_until(|| here.join("m.brenier.checkpoint").exists());
        signal(name, child.id());
        signal(name, child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(succeed(here, "info m.brenier").contains("interrupted"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nohup_keeps_its_meaning() {
    let folder = folder();
    let here = folder.path();
    let child = endless(here, &["nohup"], 20);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "{status}");
    signal("-TERM", child.id());
    child.wait_with_output().unwrap();
}

#[test]
fn two_fits_with_one_output_do_not_run_at_once() {
    let folder = folder();
    let here = folder.path();
    let mut child = endless(here, &[], 20);
    for line in [
        format!("fit data.csv {SMALL} --out m.brenier"),
        format!("tune data.csv {SMALL} --trials 2 --finalists 1 --out ./m.brenier"),
    ] {
        let output = run(here, &line);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("m.brenier") && text.contains(&format!("process {}", child.id())), "{text}");
    }
    succeed(here, &format!("fit data.csv {SMALL} --out n.brenier"));
    // A kill leaves the file behind, but nobody holds it.
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    assert!(!here.join("m.brenier.lock").exists());
}
