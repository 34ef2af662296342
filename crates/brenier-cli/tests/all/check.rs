//! `brenier check`, `calibrate` and `report` as a user runs them, and the page in a browser.

#![allow(clippy::unwrap_used)]

use crate::common;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::{SMALL, folder, refuse, run, stderr, succeed, table};

/// A small model and a held-out table of other rows.
fn with_model() -> tempfile::TempDir {
    let folder = folder();
    let all = table(700, 1.0);
    let mut lines = all.lines();
    let header = lines.next().unwrap();
    let held_out: Vec<&str> = lines.skip(400).collect();
    fs::write(folder.path().join("held.csv"), format!("{header}\n{}\n", held_out.join("\n"))).unwrap();
    succeed(folder.path(), &format!("fit data.csv {SMALL} --out m.brenier"));
    folder
}

#[test]
fn a_check_prints_its_verdict_first_and_tells_it_by_the_exit_code() {
    let folder = with_model();
    let here = folder.path();
    let text = succeed(here, "check m.brenier held.csv --draws 99 --json c.json");
    assert!(text.starts_with("VERDICT: "), "{text}");
    for word in ["TARP at predicted points", "x1", "mean NLL, standardised", "90 % hold"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
    let found: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(here.join("c.json")).unwrap()).unwrap();
    assert_eq!(found["held_out"]["rows"], 300);
    assert_eq!(found["calibration"]["draws"], 99);
    let code = match found["verdict"]["trust"].as_str().unwrap() {
        "trustworthy" => 0,
        "care" => 3,
        _ => 4,
    };
    assert_eq!(run(here, "check m.brenier held.csv --draws 99 --strict").status.code(), Some(code));
    // Standard output is the same document, for any number of threads.
    let json = succeed(here, "check m.brenier held.csv --draws 99 --json - --threads 1");
    assert_eq!(json, fs::read_to_string(here.join("c.json")).unwrap());
    // The very table it was fitted to.
    let same = succeed(here, "check m.brenier data.csv --draws 50");
    assert!(same.contains("the one the model was fitted to"), "{same}");
    // Another seed beside it.
    succeed(here, &format!("fit data.csv {} --out n.brenier", SMALL.replace("--seed 3", "--seed 4")));
    let both = succeed(here, "check m.brenier held.csv --draws 50 --with n.brenier");
    assert!(both.contains("n.brenier (seed 4)"), "{both}");
    // A model of other columns is not the table's fault.
    succeed(
        here,
        "fit data.csv --method gaussian --target x1 --given y1..y2 --joint --quiet --out j.brenier",
    );
    let other = "check m.brenier held.csv --against j.brenier";
    refuse(here, other, 2, &["against", "j.brenier is a model of x1"]);
    assert!(!stderr(&run(here, other)).contains("held.csv"));
    let joint = succeed(here, "check j.brenier held.csv --draws 50");
    let last = joint.trim_end().lines().last().unwrap();
    assert!(last.contains("Gaussian") && last.ends_with(", target given the rest"), "{joint}");
    assert!(joint.contains("closed form") && !joint.contains("network"), "{joint}");
}

#[test]
fn mistakes_are_sentences_and_leave_nothing() {
    let folder = with_model();
    let here = folder.path();
    fs::write(here.join("short.csv"), "y1,y2,x1\n1,2,3\n").unwrap();
    fs::write(here.join("text.csv"), "y1,y2,x1,x2\n0.1,0.2,0.3,0.4\n0.1,0.2,high,0.4\n").unwrap();
    fs::write(here.join("one.csv"), "y1,y2,x1,x2\n0.1,0.2,0.3,0.4\n").unwrap();
    fs::write(here.join("empty.csv"), "y1,y2,x1,x2\n").unwrap();
    refuse(here, "check m.brenier none.csv", 2, &["none.csv"]);
    refuse(here, "check none.brenier held.csv", 2, &["none.brenier"]);
    refuse(here, "check m.brenier short.csv", 2, &["short.csv", "x2"]);
    refuse(here, "check m.brenier text.csv", 2, &["text.csv", "row 2", "high"]);
    refuse(here, "check m.brenier one.csv", 2, &["one.csv", "1 row"]);
    refuse(here, "check m.brenier empty.csv", 2, &["empty.csv"]);
    refuse(here, "check m.brenier held.csv --pairs 1", 2, &["pairs"]);
    refuse(here, "check m.brenier held.csv --draws 1", 2, &["draws"]);
    refuse(here, "check m.brenier held.csv --json nowhere/c.json", 2, &["nowhere"]);
    refuse(here, "check m.brenier held.csv --simulator two-moons", 2, &["simulator", "theta_1"]);
    refuse(here, "check m.brenier held.csv --command false", 2, &["command", "ended"]);
    refuse(here, "report m.brenier held.csv --out nowhere/r.html", 2, &["nowhere"]);
    refuse(here, "report m.brenier held.csv --out r.html --row 301", 2, &["--row 301", "300"]);
    refuse(here, "report m.brenier held.csv --out r.html --at y1=0", 2, &["y2"]);
    refuse(here, "report m.brenier held.csv --out r.html --at y1=0,y2=0 --row 1", 2, &["--row"]);
    refuse(here, "report m.brenier held.csv --out r.html --observed held.csv", 2, &["20"]);
}

#[test]
fn density_and_check_name_the_row_that_dominates_the_mean() {
    let folder = folder();
    let here = folder.path();
    succeed(here, &format!("fit data.csv {SMALL} --out m.brenier"));
    let plain = succeed(here, "density m.brenier data.csv");
    assert!(!plain.contains("median") && !plain.contains("dominates"), "{plain}");
    let data = fs::read_to_string(here.join("data.csv")).unwrap();
    let header: Vec<&str> = data.lines().next().unwrap().split(',').collect();
    let place = header.iter().position(|name| *name == "x1").unwrap();
    let odd: String = data
        .lines()
        .enumerate()
        .map(|(line, text)| {
            let mut cells: Vec<String> = text.split(',').map(str::to_owned).collect();
            if line == 3 {
                cells[place] = "60".to_owned();
            }
            cells.join(",") + "\n"
        })
        .collect();
    fs::write(here.join("odd.csv"), odd).unwrap();
    let figures = succeed(here, "density m.brenier odd.csv");
    assert!(
        figures.contains("median NLL, your units") && figures.contains("row 3 as read dominates"),
        "{figures}"
    );
    let checked = succeed(here, "check m.brenier odd.csv --draws 50 --pairs 100");
    assert!(checked.contains("row 3 as read dominates") && checked.contains(", median "), "{checked}");
}

/// Pairs x ~ N(0, 1), y = x + noise, and draws: right ones, and ones that are too narrow.
fn pairs_and_draws(width: f64) -> (String, String) {
    let mut state = 77_u64;
    let mut normal = || {
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
    };
    let (mut pairs, mut draws) = (String::from("x,y,log_q\n"), String::from("observation,x,log_q\n"));
    for pair in 1..=400 {
        let x = normal();
        let y = x + normal();
        let log_q = |x: f64| -((x - 0.5 * y) / width).powi(2);
        writeln!(pairs, "{x},{y},{}", log_q(x)).unwrap();
        for _ in 0..50 {
            let x = 0.5 * y + width * 0.5_f64.sqrt() * normal();
            writeln!(draws, "{pair},{x},{}", log_q(x)).unwrap();
        }
    }
    (pairs, draws)
}

#[test]
fn draws_of_any_program_are_judged() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, width) in [("right", 1.0), ("narrow", 0.6)] {
        let (pairs, draws) = pairs_and_draws(width);
        fs::write(here.join(format!("{name}_pairs.csv")), pairs).unwrap();
        fs::write(here.join(format!("{name}.csv")), draws).unwrap();
    }
    let with = "--target x --given y --log-density log_q --strict";
    let right = succeed(here, &format!("calibrate right_pairs.csv right.csv {with}"));
    assert!(right.contains("No check speaks against") && right.contains("expected coverage"), "{right}");
    let narrow = run(here, &format!("calibrate narrow_pairs.csv narrow.csv {with} --json n.json"));
    assert_eq!(narrow.status.code(), Some(3), "{}", stderr(&narrow));
    assert!(
        common::stdout(&narrow).contains("NOT CALIBRATED") && common::stdout(&narrow).contains("too narrow")
    );
    assert!(fs::read_to_string(here.join("n.json")).unwrap().contains("\"passes\": false"));
    let blind = succeed(here, "calibrate right_pairs.csv right.csv --target x");
    assert!(blind.contains("ignore the given values"), "{blind}");
    fs::write(here.join("uneven.csv"), "observation,x\n1,0\n1,0\n2,0\n").unwrap();
    fs::write(here.join("two.csv"), "x,y\n0,0\n1,1\n").unwrap();
    refuse(here, "calibrate two.csv uneven.csv --target x", 2, &["uneven.csv", "pair 2"]);
    refuse(here, "calibrate two.csv right.csv --target x", 2, &["right.csv", "observation is 3"]);
    refuse(here, "calibrate two.csv two.csv --target x", 2, &["two.csv", "observation"]);
    refuse(here, "calibrate two.csv uneven.csv --target z", 2, &["z"]);
}

#[test]
fn the_page_says_what_its_mode_is_and_fits_its_words_to_the_model() {
    let folder = folder();
    let here = folder.path();
    let mut text = String::from("p,y\n");
    for i in 0..400 {
        let y = (f64::from(i) * 0.618).fract();
        writeln!(text, "{:.6},{y:.6}", 0.02 + 0.9 * (0.7 * y + 0.3 * (f64::from(i) * 0.755).fract()))
            .unwrap();
    }
    fs::write(here.join("p.csv"), text).unwrap();
    let page = |fit: &str| {
        succeed(here, &format!("fit p.csv --method gaussian {fit} --out g.brenier"));
        run(here, "report g.brenier p.csv --draws 99 --out g.html");
        fs::read_to_string(here.join("g.html")).unwrap()
    };
    let plain = page("--target p --given y");
    assert!(plain.contains("A conditional Gaussian of one parameter") && plain.contains("posterior draws"));
    assert!(plain.contains("is the point of highest density.") && plain.contains(">MAP<"));
    let bounded = page("--target p --given y --support p=interval(0,1)");
    assert!(bounded.contains("bounded columns stretched to the whole line"));
    assert!(bounded.contains(">MAP on the map&#39;s scale<"));
    let unconditional = page("--target p,y");
    assert!(unconditional.contains("A Gaussian of 2 quantities") && unconditional.contains(">a Gaussian<"));
    assert!(!unconditional.contains("posterior draws"));
}

/// The page of `brenier report` in headless Chromium: no console messages, no requests beyond the file, words for every
/// picture. Skipped, with a message, where there is no Chromium, unless BRENIER_REQUIRE_CHROMIUM is set.
#[test]
fn the_page_opens_in_a_browser_without_a_murmur() {
    let folder = with_model();
    let here = folder.path();
    fs::write(here.join("observed.csv"), "y1,y2,x1,x2\n0.1,0.2,0.3,0.4\n-0.5,0.3,-0.2,0.1\n").unwrap();
    let said = succeed(
        here,
        "report m.brenier held.csv --draws 99 --observed observed.csv --title A<b>title --out r.html",
    );
    assert!(said.contains("r.html"), "{said}");
    let page = fs::read_to_string(here.join("r.html")).unwrap();
    assert!(page.contains("A&lt;b&gt;title") && page.contains("the truth"));
    let Some(seen) = chromium::visit(&here.join("r.html")) else { return };
    assert_eq!(seen.console, Vec::<String>::new());
    assert_eq!(seen.requests, Vec::<String>::new());
    let words = |name: &str| seen.dom.matches(name).count();
    assert!(words("<svg") >= 8, "{}", seen.dom.len());
    assert_eq!(words("<svg"), words("role=\"img\""));
    assert_eq!(words("<svg"), words("</title><desc"), "every picture has a title");
    assert_eq!(words("<img"), 0);
    // The checker itself must see what is wrong with a page that murmurs and asks for things.
    fs::write(
        here.join("bad.html"),
        "<!DOCTYPE html><title>bad</title><script>console.error('oh');\
         fetch('http://127.0.0.1:9/x').catch(() => 0)</script><p>x</p>",
    )
    .unwrap();
    let bad = chromium::visit(&here.join("bad.html")).unwrap();
    assert!(bad.console.iter().any(|line| line.contains("oh")), "{:?}", bad.console);
    assert!(bad.requests.iter().any(|url| url.contains("127.0.0.1:9")), "{:?}", bad.requests);
}

/// A visit of headless Chromium.
mod chromium {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;
    use std::time::{Duration, Instant};

    pub(super) struct Seen {
        /// Lines that the page wrote to the console.
        pub(super) console: Vec<String>,
        /// Addresses asked for over any network.
        pub(super) requests: Vec<String>,
        /// The document after loading.
        pub(super) dom: String,
    }

    fn program() -> Option<String> {
        let named = std::env::var("BRENIER_CHROMIUM").ok();
        let names =
            named.into_iter().chain(["chromium", "chromium-browser", "google-chrome"].map(str::to_owned));
        names.into_iter().find(|name| {
            let answer = Command::new(name).arg("--version").output();
            answer.is_ok_and(|output| output.status.success())
        })
    }

    /// What the page does, or nothing where there is no browser and none is required.
    pub(super) fn visit(page: &Path) -> Option<Seen> {
        let Some(program) = program() else {
            let required = std::env::var_os("BRENIER_REQUIRE_CHROMIUM").is_some();
            assert!(!required, "BRENIER_REQUIRE_CHROMIUM is set, but there is no chromium to run");
            // Past the harness, which keeps what a passing test prints to itself.
            let message = b"skipped: there is no chromium, so the page was not opened in a browser\n";
            std::io::stderr().write_all(message).unwrap();
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let (log, out) = (profile.path().join("net.json"), profile.path().join("dom.html"));
        let mut browser = Command::new(program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-extensions", "--disable-default-apps", "--no-pings", "--disable-dev-shm-usage"])
            // The browser's own housekeeping finds nobody; what a page asks for is still in the log.
            .arg("--host-resolver-rules=MAP * ~NOTFOUND")
            .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.path().join("user").display()))
            .arg(format!("--log-net-log={}", log.display()))
            .arg(format!("file://{}", page.canonicalize().unwrap().display()))
            .stdout(fs::File::create(&out).unwrap())
            .stderr(fs::File::create(profile.path().join("log.txt")).unwrap())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let status = loop {
            if let Some(status) = browser.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > Duration::from_secs(120) {
                browser.kill().unwrap();
                panic!("chromium did not come back in two minutes");
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(status.success(), "chromium: {status}");
        let text = fs::read_to_string(profile.path().join("log.txt")).unwrap_or_default();
        let console = text.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
        let net = fs::read_to_string(&log).unwrap_or_default();
        Some(Seen { console, requests: requests(&net, page), dom: fs::read_to_string(&out).unwrap() })
    }

    /// Addresses in the net log that a page could have asked for; the browser's own housekeeping names itself.
    fn requests(net: &str, page: &Path) -> Vec<String> {
        let own = format!("file://{}", page.canonicalize().unwrap().display());
        let mut found = Vec::new();
        for line in net.lines().filter(|line| line.contains("\"initiator\"")) {
            let field = |name: &str| {
                let rest = line.split_once(&format!("\"{name}\":\""))?.1;
                rest.split_once('"').map(|(value, _)| value.to_owned())
            };
            let (Some(url), Some(initiator)) = (field("url"), field("initiator")) else { continue };
            // A request of the page has an origin ("null" for a file); those of the browser have none.
            if initiator != "not an origin" && url != own {
                found.push(url);
            }
        }
        found
    }
}
