//! The frame with a toy: resumed to the same document, refusals, and what a kill leaves behind.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::data::Table;
use crate::{Error, FitSettings, StopToken, fit};

/// Counts up to ten in its second step, with its state in the journal.
#[derive(Default)]
struct Toy {
    seed: u64,
    width: u64,
    /// Where the second step is stopped.
    stop_at: Option<(u64, StopToken)>,
    /// How often each of the steps was taken: first, second, table, artifact.
    taken: [AtomicUsize; 4],
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Number {
    number: u64,
}

impl Toy {
    fn take(&self, which: usize) {
        self.taken[which].fetch_add(1, Ordering::Relaxed);
    }

    fn taken(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|which| self.taken[which].load(Ordering::Relaxed))
    }

    fn count(&self, part: &mut Part<'_>) -> Result<Option<Number>> {
        self.take(1);
        let run = part.run();
        let state = run.plan().unwrap().path.clone();
        let mut number = fs::read_to_string(&state).map_or(0, |text| text.parse().unwrap());
        while number < 10 {
            if let Some((_, token)) = self.stop_at.as_ref().filter(|(at, _)| *at == number) {
                token.stop();
            }
            if run.is_stopped() {
                return Ok(None);
            }
            number += 1;
            fs::write(&state, number.to_string()).unwrap();
            fs::write(part_of(&state), "a part of the state").unwrap();
        }
        Ok(Some(Number { number }))
    }
}

fn part_of(state: &Path) -> std::path::PathBuf {
    folder::beside(state, ".part")
}

fn numbers(values: &[f64]) -> Table {
    Table::new(vec!["n".into()], values.to_vec()).unwrap()
}

impl Experiment for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn plan(&self) -> Vec<(&'static str, Value)> {
        vec![("seed", json!(self.seed)), ("width", json!(self.width))]
    }

    fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
        let first = bench.step("first", "the first step", |_| {
            self.take(0);
            Ok(Some(Number { number: self.seed }))
        })?;
        let second = bench.step("second", "the second step", |part| self.count(part))?;
        let table = bench.table("numbers", "a table", |_| {
            self.take(2);
            Ok(Some(numbers(&[1.0, 2.0])))
        })?;
        let (other, about) = bench.artifact::<Table, _>("other.csv", "another table", |_| {
            self.take(3);
            Ok(Some((numbers(&[0.1]), Number { number: 7 })))
        })?;
        bench.picture("square", SQUARE)?;
        let row = [first.result.number, second.result.number, about.result.number].map(|n| n.to_string());
        let values = format!("{:?} {:?}", table.row(1), other.row(0));
        Ok(Document::new("A toy")
            .text(values)
            .table(ResultTable::new(["first", "second", "about"]).aligned("lr").row(row))
            .picture("square", "A square: it has four sides"))
    }
}

const SQUARE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"10\" height=\"10\" viewBox=\"0 0 10 10\">\
                      <rect width=\"8\" height=\"8\" fill=\"#0072B2\"/></svg>";

/// The files of a folder with what they hold, less the times.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| {
            let mut bytes = fs::read(&path).unwrap();
            if let Ok(Value::Object(mut object)) = serde_json::from_slice::<Value>(&bytes) {
                object.remove("seconds");
                bytes = Value::Object(object).to_string().into_bytes();
            }
            (path.file_name().unwrap().to_string_lossy().into_owned(), bytes)
        })
        .collect();
    files.sort();
    files
}

fn silently(toy: &Toy, folder: &Path, resume: bool) -> Result<Document> {
    run(toy, folder, resume, Run::silent())
}

#[test]
fn a_run_stopped_in_its_second_step_is_resumed_to_the_same_document_and_files() {
    let place = tempfile::tempdir().unwrap();
    let (whole, cut) = (place.path().join("whole"), place.path().join("deep/cut"));
    let mut steps = Vec::new();
    let mut observer = |event: &brenier_core::Event| {
        if let Some(ExperimentEvent::Step { name, .. }) = event.get() {
            steps.push(name.clone());
        }
        Ok(())
    };
    let document = run(&Toy::default(), &whole, false, Run::observed(&mut observer)).unwrap();
    assert_eq!(steps, ["first", "second", "numbers.parquet", "other.csv"]);

    let token = StopToken::new();
    let toy = Toy { stop_at: Some((4, token.clone())), ..Default::default() };
    let error = run(&toy, &cut, false, Run::silent().stop(&token)).unwrap_err();
    assert!(matches!(&error, Error::Stopped(text) if text.contains("`resume`")), "{error}");
    assert_eq!(fs::read_to_string(cut.join("second.checkpoint")).unwrap(), "4");
    assert!(!cut.join("results.md").exists());
    // Asked to stop from the beginning, it takes no further step.
    let stopped = run(&toy, &cut, true, Run::silent().stop(&token)).unwrap_err();
    assert!(matches!(stopped, Error::Stopped(_)));
    assert_eq!(toy.taken(), [1, 1, 0, 0]);

    let toy = Toy::default();
    assert_eq!(silently(&toy, &cut, true).unwrap(), document);
    assert_eq!(toy.taken(), [0, 1, 1, 1]);
    assert_eq!(contents(&cut), contents(&whole));
    let names: Vec<String> = contents(&cut).into_iter().map(|(name, _)| name).collect();
    let expected = [
        "first.json",
        "numbers.parquet",
        "other.csv",
        "other.csv.json",
        "results.html",
        "results.json",
        "results.md",
        "run.json",
        "second.json",
        "square.png",
        "square.svg",
    ];
    assert_eq!(names, expected);
    // A time that was not measured as a whole is none.
    let clock = |folder: &Path| {
        let step: Step<Number> = folder::kept(&folder.join("second.json")).unwrap();
        (step.seconds.is_some(), step.clock())
    };
    assert!(clock(&whole).0 && clock(&whole).1.ends_with(" s"));
    assert_eq!(clock(&cut), (false, "interrupted, not timed".to_owned()));
    // Nothing is left to do.
    assert_eq!(silently(&toy, &cut, true).unwrap(), document);
    assert_eq!(toy.taken(), [0, 1, 1, 1]);
}

#[test]
fn the_folder_of_another_run_is_refused_in_a_sentence_and_stays_as_it_is() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    silently(&Toy::default(), &folder, false).unwrap();
    let before = contents(&folder);
    let refused = |toy: &Toy, resume: bool| silently(toy, &folder, resume).unwrap_err().to_string();
    let name = folder.display();
    assert_eq!(
        refused(&Toy::default(), false),
        format!("{name} holds an earlier run: add `resume` to continue it, or choose another `out`")
    );
    assert_eq!(
        refused(&Toy { seed: 1, ..Default::default() }, true),
        format!("{name} holds a run with another `seed`: repeat it, or choose another `out`")
    );
    assert_eq!(
        refused(&Toy { seed: 1, width: 2, ..Default::default() }, true),
        format!("{name} holds a run with another `seed` and `width`: repeat them, or choose another `out`")
    );
    assert_eq!(contents(&folder), before);
    let record = folder.join("run.json");
    fs::write(&record, r#"{"experiment": "yoyo", "seed": 0, "width": 0}"#).unwrap();
    assert!(refused(&Toy::default(), true).contains("holds a run of yoyo"));
    fs::write(&record, "{").unwrap();
    assert!(refused(&Toy::default(), true).contains("run.json that cannot be read"));
    // Version 0.1 did not write the experiment's name.
    fs::write(&record, r#"{"seed": 0, "width": 0}"#).unwrap();
    silently(&Toy::default(), &folder, true).unwrap();
    assert_eq!(contents(&folder), before);
}

#[test]
fn what_a_kill_left_half_done_is_done_again_and_nothing_is_left_over() {
    let place = tempfile::tempdir().unwrap();
    let (whole, killed) = (place.path().join("whole"), place.path().join("killed"));
    let document = silently(&Toy::default(), &whole, false).unwrap();
    silently(&Toy::default(), &killed, false).unwrap();
    let at = |name: &str| killed.join(name);
    // Half a result, a result whose state was not removed yet, half a table, and a table without its result.
    fs::write(at("first.json"), "{\"seconds\":").unwrap();
    fs::write(at("second.checkpoint"), "10").unwrap();
    fs::write(at(".brenier-second.checkpoint.part.tmp"), "half").unwrap();
    fs::remove_file(at("numbers.parquet")).unwrap();
    fs::write(at(".brenier-numbers.parquet.tmp"), "half").unwrap();
    fs::remove_file(at("other.csv.json")).unwrap();
    let toy = Toy::default();
    assert_eq!(silently(&toy, &killed, true).unwrap(), document);
    assert_eq!(toy.taken(), [1, 0, 1, 1]);
    assert_eq!(contents(&killed), contents(&whole));
    // A table whose result is there but which is not itself.
    fs::remove_file(at("other.csv")).unwrap();
    assert_eq!(silently(&toy, &killed, true).unwrap(), document);
    assert_eq!(toy.taken(), [1, 0, 1, 2]);
    assert_eq!(contents(&killed), contents(&whole));
}

/// A training that was stopped is no model; it is continued to the same bytes.
#[test]
fn a_model_is_kept_when_its_training_has_ended() {
    struct Learning;

    impl Experiment for Learning {
        fn name(&self) -> &'static str {
            "learning"
        }

        fn plan(&self) -> Vec<(&'static str, Value)> {
            Vec::new()
        }

        fn run(&self, bench: &mut Workbench<'_>) -> Result<Document> {
            let mut settings = FitSettings {
                target: Some("x1,x2".parse()?),
                given: Some("y".parse()?),
                ..Default::default()
            };
            settings.method = settings.method.with("feature_width", 8)?;
            settings.train.epochs = 4;
            let (model, step) = match bench.kept_model("map")? {
                Some(kept) => kept,
                None => {
                    let table = bench
                        .table("pairs", "pairs", |_| Ok(Some(brenier_core::example::simulate(300, 1))))?;
                    bench.model("map", "a map", |run| fit(&table, &settings, run))?
                }
            };
            assert_eq!(model.info().training.steps, step.result.steps);
            Ok(Document::new("A map").text(step.result.steps.to_string()))
        }
    }

    let place = tempfile::tempdir().unwrap();
    let (whole, cut) = (place.path().join("whole"), place.path().join("cut"));
    let document = run(&Learning, &whole, false, Run::silent()).unwrap();
    let token = StopToken::new();
    let stopping = token.clone();
    let mut observer = move |event: &brenier_core::Event| {
        if let Some(crate::train::TrainEvent::Started { .. }) = event.get() {
            stopping.stop();
        }
        Ok(())
    };
    let error = run(&Learning, &cut, false, Run::observed(&mut observer).stop(&token)).unwrap_err();
    assert!(matches!(error, Error::Stopped(_)), "{error}");
    assert!(cut.join("map.brenier.checkpoint").exists() && !cut.join("map.brenier").exists());
    assert_eq!(run(&Learning, &cut, true, Run::silent()).unwrap(), document);
    assert_eq!(contents(&cut), contents(&whole));
    let model = fs::metadata(cut.join("map.brenier")).unwrap().modified().unwrap();
    fs::remove_file(cut.join("pairs.parquet")).unwrap();
    run(&Learning, &cut, true, Run::silent()).unwrap();
    assert_eq!(fs::metadata(cut.join("map.brenier")).unwrap().modified().unwrap(), model);
    assert!(!cut.join("pairs.parquet").exists());
}

#[test]
fn a_document_renders_itself() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("square.svg"), SQUARE).unwrap();
    let table = ResultTable::new(["", "p | q"]).aligned("lr").row(["a\nb", ""]);
    let document =
        Document::new("Title").text("Before:").table(table.clone()).picture("square", "Square: [4]");
    let text = "Before:\n\n| | p \\| q |\n|---|---:|\n| a b | |\n";
    assert_eq!(document.to_text(), text);
    assert_eq!(document.to_markdown(), format!("# Title\n\n{text}\n![Square: 4](square.svg)\n"));
    let own: Value = serde_json::from_str(&document.to_json()).unwrap();
    assert_eq!(own["blocks"][1]["table"]["rows"][0][0], "a\nb");
    let figures = document.clone().figures(&json!({ "nll": [0.5] }));
    assert_eq!(serde_json::from_str::<Value>(&figures.to_json()).unwrap(), json!({ "nll": [0.5] }));
    let page = document.to_html(place.path()).unwrap();
    for part in
        ["<h1>Title</h1>", "Before:</p>", "<th scope=\"col\">p | q</th>", "<title id=\"p1t\">Square</title>"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    let missing = document.picture("circle", "Circle").to_html(place.path()).unwrap_err().to_string();
    assert!(missing.contains("circle.svg"), "{missing}");
}
