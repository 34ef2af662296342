//! SIGKILL at random moments in every long command, then `--resume` until it ends: the same bytes as in one go, and
//! nothing left over. `BRENIER_KILLS=100` asks for that many kills, `BRENIER_KILL_SEED` for other moments; see
//! docs/reliability.md.

#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{brenier, stderr, table};
use serde_json::Value;

/// A command that is killed and resumed; it writes into the folder it is run in.
struct Case {
    command: String,
    /// Files the command reads.
    inputs: Vec<(&'static str, String)>,
}

/// A fit of about a second.
const FIT: &str = "fit data.csv --target x1,x2 --given y1,y2 --feature-width 32 --epochs 200 --validate-every 20 \
                   --patience 1000 --checkpoint-seconds 0 --out m.brenier";

const PRIOR: &str = "[[prior]]\nname = \"a\"\nkind = \"uniform\"\nlow = 0\nhigh = 1\n\
                     [[prior]]\nname = \"b\"\nkind = \"normal\"\nmean = 0\nsd = 1\n";

const PROGRAM: &str = "import sys, time
for line in sys.stdin:
    word, *fields = line.split()
    if word == 'brenier':
        print('outputs sum seed', flush=True)
        continue
    seed, a, b = int(fields[0]), float(fields[1]), float(fields[2])
    time.sleep(0.001)
    if seed % 50 == 0:
        print('fail unlucky', flush=True)
    else:
        print('done', repr(a + b), seed % 1000, flush=True)
";

fn fit(more: &str) -> Case {
    Case { command: format!("{FIT} {more}"), inputs: vec![("data.csv", table(400, 1.0))] }
}

#[test]
fn fit_pcp_map() {
    campaign("fit", fit(""));
}

#[test]
fn fit_cot_flow() {
    let fewer = FIT.replace("--epochs 200", "--epochs 40 --evaluation-steps 8");
    campaign("fit --method cot-flow", Case { command: format!("{fewer} --method cot-flow"), ..fit("") });
}

#[test]
fn fit_npe() {
    let fewer = FIT.replace("--feature-width 32 --epochs 200", "--hidden-width 16 --epochs 100");
    campaign("fit --method npe", Case { command: format!("{fewer} --method npe"), ..fit("") });
}

#[test]
fn fit_cp_flow() {
    let fewer = FIT.replace("--feature-width 32 --epochs 200", "--feature-width 16 --epochs 60");
    campaign("fit --method cp-flow", Case { command: format!("{fewer} --method cp-flow"), ..fit("") });
}

#[test]
fn fit_atm() {
    let other =
        FIT.replace("--feature-width 32 --epochs 200 --validate-every 20 --patience 1000", "--patience 4");
    campaign("fit --method atm", Case { command: format!("{other} --method atm --joint"), ..fit("") });
}

/// Both blocks of a joint fit: the first one's final state is kept while the second is trained.
#[test]
fn fit_joint() {
    campaign("fit --joint", fit("--joint"));
}

/// Noise that every step draws anew.
#[test]
fn fit_noise() {
    campaign("fit --noise", fit("--noise 0.3"));
}

/// The trials of a choice and the members of its ensemble.
#[test]
fn fit_auto() {
    let plain = FIT.replace("--feature-width 32 ", "").replace("--epochs 200", "--epochs 20");
    campaign("fit --method auto", Case { command: format!("{plain} --method auto"), ..fit("") });
}

#[test]
fn tune() {
    let space = "[network]\nfeature_width = [4, 8]\n[train]\nlearning_rate = [0.01, 0.02, 0.005]\n";
    let command = "tune data.csv --target x1,x2 --given y1..y2 --space space.toml --trials 5 --pilot-epochs 3 \
                   --finalists 2 --repeats 2 --epochs 60 --validate-every 5 --seed 3 --out m.brenier";
    let inputs = vec![("data.csv", table(400, 1.0)), ("space.toml", space.into())];
    campaign("tune", Case { command: command.into(), inputs });
}

#[test]
fn simulate() {
    let command = "simulate lotka-volterra -n 30000 --seed 5 --out t.parquet";
    campaign("simulate", Case { command: command.into(), inputs: Vec::new() });
}

#[test]
fn simulate_a_program() {
    let command = "simulate --command python3\u{a0}sim.py --prior prior.toml -n 600 --threads 2 --out t.csv";
    let inputs = vec![("prior.toml", PRIOR.into()), ("sim.py", PROGRAM.into())];
    campaign("simulate --command", Case { command: command.into(), inputs });
}

#[test]
fn abc() {
    let command =
        "abc two-moons --observed o.csv --particles 400 --pilot 2000 --tolerance 0.03 --seed 4 --out p.csv";
    let inputs = vec![("o.csv", "y_2,y_1\n-0.2,0.1\n".into())];
    campaign("abc", Case { command: command.into(), inputs });
}

#[test]
fn reproduce_lotka_volterra() {
    // Both methods and SMC-ABC take a minute: only in a campaign.
    let more = if kills().is_some() { "--tolerance 4" } else { "--no-abc --method cot-flow" };
    let command =
        format!("reproduce lotka-volterra --rows 600 --epochs 1 --posterior-draws 200 {more} --out lv");
    campaign("reproduce lotka-volterra", Case { command, inputs: Vec::new() });
}

#[test]
fn reproduce_shallow_water() {
    let command = "reproduce shallow-water --rows 300 --components 12 --modes 2 --method fresh --test-rows 20 --rank-draws 20 \
                   --exact-rows 0 --epochs 3 --out sw";
    campaign("reproduce shallow-water", Case { command: command.into(), inputs: Vec::new() });
}

/// Needs the published table: `brenier data fetch uci --dir DIR`, then `BRENIER_UCI_DIR=DIR`.
#[test]
fn reproduce_uci() {
    let Some(folder) = std::env::var_os("BRENIER_UCI_DIR") else { return };
    let yacht = fs::read_to_string(Path::new(&folder).join("yacht.csv")).unwrap();
    let command = "reproduce uci --dataset yacht --data-dir . --method pcp-map --trials 3 --finalists 1 \
                   --repeats 1 --out uci";
    campaign("reproduce uci", Case { command: command.into(), inputs: vec![("yacht.csv", yacht)] });
}

/// Kills asked for in all; none in an ordinary run of the tests.
fn kills() -> Option<usize> {
    std::env::var("BRENIER_KILLS").ok().map(|text| text.parse().unwrap())
}

/// Tests above, among which the kills are divided.
const COMMANDS: usize = 14;

/// When a kill comes.
enum Moment {
    /// After this part of the time that the whole command takes.
    Part(f64),
    /// When files have appeared, vanished or changed their names this many times.
    Change(usize),
}

struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn moment(&mut self) -> Moment {
        match self.uniform() {
            which if which < 0.4 => Moment::Part(self.uniform()),
            which if which < 0.5 => Moment::Part(0.9 + 0.2 * self.uniform()),
            _ => Moment::Change(1 + (self.uniform().powi(2) * 60.0) as usize),
        }
    }
}

fn campaign(name: &str, case: Case) {
    // Experiments take long: one kill will do in an ordinary run.
    let ordinary = if case.command.starts_with("reproduce") { 1 } else { 2 };
    let asked = kills().map_or(ordinary, |kills| kills.div_ceil(COMMANDS));
    let seed = std::env::var("BRENIER_KILL_SEED").map_or(1, |text| text.parse().unwrap());
    let mut noise =
        Noise(name.bytes().fold(seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())));
    let whole = case.folder();
    let started = Instant::now();
    case.finish(whole.path(), "");
    let time = started.elapsed();
    let expected = contents(whole.path());

    let (mut killed, mut rounds) = (0, 0);
    // A command may end before its kill; an ordinary run of the tests takes what comes.
    while killed < asked && (kills().is_some() || rounds < asked) {
        let folder = case.folder();
        let here = folder.path();
        let mut story = String::new();
        for _ in 0..1 + (noise.uniform() * 3.0) as usize {
            if !case.kill(here, &noise.moment(), time, &mut story) {
                break;
            }
            killed += 1;
            if killed == asked {
                break;
            }
        }
        case.finish(here, "--resume");
        let got = contents(here);
        let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&got), names(&expected), "{name} {story}");
        for (path, bytes) in &expected {
            assert!(got[path] == *bytes, "{name}: {} differs {story}", path.display());
        }
        rounds += 1;
    }
    println!("{name}: {killed} kills, {rounds} times resumed to the same bytes");
}

impl Case {
    fn folder(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in &self.inputs {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    /// The words of the command; a no-break space stands for one inside a word.
    fn words(&self, more: &str) -> Vec<String> {
        let words = self.command.split_ascii_whitespace().chain(more.split_ascii_whitespace());
        words.chain(["--quiet"]).map(|word| word.replace('\u{a0}', " ")).collect()
    }

    fn finish(&self, folder: &Path, more: &str) {
        let output = brenier(folder).args(self.words(more)).output().unwrap();
        assert!(output.status.success(), "{}\n{}", self.command, stderr(&output));
    }

    /// Kills a resumed run; false when it had ended.
    fn kill(&self, folder: &Path, moment: &Moment, time: Duration, story: &mut String) -> bool {
        let mut child = brenier(folder)
            .args(self.words("--resume"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        let mut seen = names(folder);
        let mut changes = 0;
        loop {
            let due = match *moment {
                Moment::Part(part) => started.elapsed() >= time.mul_f64(part),
                Moment::Change(wanted) => {
                    let now = names(folder);
                    changes += usize::from(now != seen);
                    seen = now;
                    changes >= wanted
                }
            };
            if due || child.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        let _ = child.kill(); // SIGKILL
        let killed = child.wait().unwrap().code().is_none();
        let left: Vec<_> = names(folder).into_iter().map(|path| path.display().to_string()).collect();
        story.push_str(&format!("\nkilled {killed} after {:?} with {}", started.elapsed(), left.join(" ")));
        killed
    }
}

/// The files below `folder`, relative to it.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        // A folder may be gone by now.
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => found.push(entry.path().strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

/// The files below `folder` with what they hold, less the times that things took.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| {
        let bytes = fs::read(folder.join(&path)).unwrap();
        let text = || String::from_utf8(bytes.clone()).unwrap();
        let bytes = match path.extension().and_then(|extension| extension.to_str()) {
            // Rendered from results.json, with times in the text.
            Some("md" | "html") => Vec::new(),
            Some("json") => untimed_json(&text()).into_bytes(),
            Some("jsonl") => {
                // In the order in which the threads happened to end.
                let mut lines: Vec<String> = text().lines().map(untimed_json).collect();
                lines.sort();
                lines.join("\n").into_bytes()
            }
            Some("csv") => untimed_csv(&text()).into_bytes(),
            _ => bytes,
        };
        (path, bytes)
    };
    names(folder).into_iter().map(read).collect()
}

fn untimed_json(text: &str) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| !key.contains("seconds"));
                map.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_str(text).unwrap();
    strip(&mut value);
    value.to_string()
}

/// Text without its column `seconds`.
fn untimed_csv(text: &str) -> String {
    let Some(place) = text.lines().next().and_then(|line| line.split(',').position(|name| name == "seconds"))
    else {
        return text.to_owned();
    };
    let without = |line: &str| {
        let cells = line.split(',').enumerate().filter(|(column, _)| *column != place);
        cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
    };
    text.lines().map(without).collect::<Vec<_>>().join("\n")
}
