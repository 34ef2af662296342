//! The pilot search: the same figures for any number of threads, nothing repeated after a stop, and honest reporting.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;

use brenier::data::{Split, Table};
use brenier::map::{Method, MethodSettings};
use brenier::train::TrainSettings;
use brenier::tune::{SearchSpace, TuneEvent, TuneOutcome, TuneSettings, search};
use brenier::{Event, FitSettings, Posterior, Result, Run, StopToken};

const SPACE: &str = "[network]\nfeature_width = [4, 8]\ncontext_width = \"halvings\"\ndepth = [1, 2]\n\
                     [train]\nbatch_size = [16, 32]\nlearning_rate = { log_uniform = [1e-3, 1e-1] }\n";

fn base() -> FitSettings {
    FitSettings {
        target: Some("x1,x2".parse().unwrap()),
        given: Some("y".parse().unwrap()),
        seed: 5,
        train: TrainSettings { epochs: 6, validate_every: 5, ..Default::default() },
        ..Default::default()
    }
}

fn tune() -> TuneSettings {
    TuneSettings {
        trials: Some(8),
        pilot_epochs: Some(4),
        finalists: Some(2),
        repeats: Some(2),
        exact: false,
        ..TuneSettings::default()
    }
}

struct Problem {
    table: Table,
    split: Split,
    base: FitSettings,
    space: SearchSpace,
    tune: TuneSettings,
}

impl Problem {
    fn new() -> Self {
        Self {
            table: brenier::example::simulate(300, 1),
            split: Split::random(300, 0.2, 0.2, 1).unwrap(),
            base: base(),
            space: SearchSpace::from_toml(SPACE).unwrap(),
            tune: tune(),
        }
    }

    /// Runs the search in `folder`; stops after `events` trainings.
    fn run(
        &self,
        folder: &Path,
        threads: usize,
        events: usize,
        minutes: Option<f64>,
    ) -> Result<(TuneOutcome, usize)> {
        let stop = StopToken::new();
        if events == 0 {
            stop.stop();
        }
        let mut count = 0;
        let mut observer = |event: &Event| {
            if matches!(event.get(), Some(TuneEvent::Pilot(_) | TuneEvent::Final(_))) {
                count += 1;
                if count >= events {
                    stop.stop();
                }
            }
            Ok(())
        };
        let run = Run::observed(&mut observer).stop(&stop);
        let tune = TuneSettings { minutes, ..self.tune.clone() };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let search = || search(&self.table, &self.split, &self.base, &self.space, &tune, folder, run);
        let outcome = pool.install(search)?;
        Ok((outcome, count))
    }
}

/// Everything but the times.
fn figures(outcome: &TuneOutcome) -> (Vec<String>, Vec<String>, Vec<u8>) {
    let pilots =
        outcome.pilots.iter().map(|p| format!("{} {} {} {:?}", p.trial, p.rung, p.steps, p.valid_nll));
    let finals = outcome.finals.iter().map(|f| {
        format!("{} {} {} {:?} {:?} {:?}", f.trial, f.seed, f.steps, f.stop, f.valid_nll, f.test_nll)
    });
    (pilots.collect(), finals.collect(), bytes(outcome.best.as_ref().unwrap()))
}

fn bytes(model: &Posterior) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    model.save(file.path()).unwrap();
    std::fs::read(file.path()).unwrap()
}

#[test]
fn the_figures_depend_neither_on_threads_nor_on_interruptions() {
    let problem = Problem::new();
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let (whole, trainings) = problem.run(folders[0].path(), 1, usize::MAX, None).unwrap();
    assert!(whole.complete);
    let (other, _) = problem.run(folders[1].path(), 3, usize::MAX, None).unwrap();
    assert_eq!(figures(&whole), figures(&other));

    // Stopped after every few trainings and taken up again.
    let (mut done, mut runs) = (0, 0);
    let resumed = loop {
        let (outcome, count) = problem.run(folders[2].path(), 2, 5, None).unwrap();
        (done, runs) = (done + count, runs + 1);
        if outcome.complete {
            break outcome;
        }
        assert!(runs < 20);
    };
    assert_eq!(figures(&whole), figures(&resumed));
    assert!(runs > 2);
    // Full trainings cut short by a stop are reported, and reported again when they end; nothing else is done twice.
    assert!(
        (trainings..=trainings + runs).contains(&done),
        "{done} trainings in {runs} runs, {trainings} in one"
    );
    // A search that is over has nothing left to do.
    let (again, count) = problem.run(folders[2].path(), 2, usize::MAX, None).unwrap();
    assert_eq!((count, figures(&again)), (0, figures(&whole)));
    // Only journal and models stay behind.
    let mut left: Vec<String> = std::fs::read_dir(folders[2].path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".brenier"))
        .collect();
    left.sort();
    assert_eq!(left, ["journal.jsonl"]);
}

/// Without a budget wide networks go first among the pilots and in the last round of seeds, the best first before that.
#[test]
fn long_trainings_go_first_where_all_are_run() {
    let mut problem = Problem::new();
    problem.tune = TuneSettings { exact: true, finalists: Some(6), ..tune() };
    problem.space = SearchSpace::from_toml("network.feature_width = { uniform = [4, 40] }").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = problem.run(folder.path(), 1, usize::MAX, None).unwrap();
    let width = |trial: usize| match &outcome.trials[trial].method {
        MethodSettings::PcpMap(method) => method.feature_width.unwrap(),
        other => panic!("{other:?}"),
    };
    let journal = std::fs::read_to_string(folder.path().join("journal.jsonl")).unwrap();
    let trials = |kind: &str| -> Vec<usize> {
        let entries = journal.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        entries
            .filter(|entry| entry["entry"] == kind)
            .map(|entry| entry["trial"].as_u64().unwrap() as usize)
            .collect()
    };
    let widest_first = |trials: &[usize]| trials.is_sorted_by(|&a, &b| width(a) >= width(b));
    let (pilots, finals) = (trials("pilot"), trials("final"));
    assert!(pilots.len() == 8 && widest_first(&pilots), "{pilots:?}");
    assert!(finals.len() == 12 && widest_first(&finals[6..]), "{finals:?}");
    let loss = |trial: usize| outcome.pilots.iter().find(|pilot| pilot.trial == trial).unwrap().valid_nll;
    assert!(
        finals[..6].is_sorted_by(|&a, &b| loss(a) <= loss(b)) && !widest_first(&finals[..6]),
        "{finals:?}"
    );
}

#[test]
fn halving_keeps_the_better_half_and_the_protocol_keeps_all() {
    let mut problem = Problem::new();
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
    let mut rungs: BTreeMap<usize, Vec<(f64, usize)>> = BTreeMap::new();
    for pilot in &outcome.pilots {
        rungs.entry(pilot.rung).or_default().push((pilot.valid_nll.unwrap(), pilot.trial));
    }
    assert_eq!(rungs.values().map(Vec::len).collect::<Vec<_>>(), [8, 4, 2, 2]);
    for rung in 0..3 {
        let mut ranked = rungs[&rung].clone();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best: Vec<usize> = ranked[..rungs[&(rung + 1)].len()].iter().map(|pair| pair.1).collect();
        best.sort_unstable();
        assert_eq!(best, rungs[&(rung + 1)].iter().map(|pair| pair.1).collect::<Vec<_>>());
    }
    // A pilot that climbed the ladder rung by rung is where one that ran through is.
    problem.tune.exact = true;
    let folder = tempfile::tempdir().unwrap();
    let (exact, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
    assert_eq!(exact.pilots.len(), 8);
    for pilot in outcome.pilots.iter().filter(|pilot| pilot.rung == 3) {
        let through = exact.pilots.iter().find(|other| other.trial == pilot.trial).unwrap();
        assert_eq!((through.steps, through.valid_nll), (pilot.steps, pilot.valid_nll));
    }
    assert_eq!(exact.finals.len(), 4);
}

#[test]
fn finals_are_sorted_by_validation_and_scored_on_the_test_rows() {
    let problem = Problem::new();
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
    assert!(outcome.finals.is_sorted_by(|a, b| a.valid_nll <= b.valid_nll));
    let best = outcome.best.as_ref().unwrap();
    assert_eq!(Some(best.info().training.best_valid_nll), outcome.finals[0].valid_nll);
    assert_eq!(best.info().seed, outcome.finals[0].seed);
    let test = problem.table.select_rows(&problem.split.test);
    let pick = |names: &[&str]| -> Vec<f64> {
        let columns: Vec<usize> = names.iter().map(|name| test.column(name).unwrap()).collect();
        test.select_columns(&columns).into_values()
    };
    let nll = best.log_density(&pick(&["x1", "x2"]), &pick(&["y"])).unwrap().mean_nll().1;
    assert_eq!(outcome.finals[0].test_nll, Some(nll));
    let [low, median, high] = outcome.spread(|training| training.test_nll).unwrap();
    assert!(low <= median && median <= high);

    let csv = outcome.to_csv();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + outcome.pilots.len() + outcome.finals.len());
    for name in
        ["valid_nll", "test_nll", "seconds", "epochs", "train.learning_rate", "method.depth", "method.name"]
    {
        assert!(lines[0].split(',').any(|own| own == name), "{name}: {}", lines[0]);
    }
}

#[test]
fn without_time_there_is_a_model_all_the_same() {
    let problem = Problem::new();
    let folder = tempfile::tempdir().unwrap();
    let (outcome, _) = problem.run(folder.path(), 2, usize::MAX, Some(1e-9)).unwrap();
    assert!(!outcome.complete && outcome.best.is_some() && outcome.pilots.is_empty());
    // With more time it ends as it would have without the stop.
    let (later, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
    let whole = tempfile::tempdir().unwrap();
    let (whole, _) = problem.run(whole.path(), 2, usize::MAX, Some(1e5)).unwrap();
    assert_eq!(figures(&later), figures(&whole));
}

#[test]
fn joint_maps_and_flows_are_searched_too() {
    for (method, joint) in [(Method::PcpMap, true), (Method::CotFlow, false), (Method::CotFlow, true)] {
        let mut problem = Problem::new();
        problem.base.method = method.defaults();
        problem.base.joint = joint;
        problem.base.train.epochs = 3;
        problem.tune = TuneSettings { trials: Some(3), finalists: Some(1), repeats: Some(1), ..tune() };
        if method == Method::CotFlow {
            let text = "[network]\nfeature_width = [4, 8]\n[flow]\ntime_steps = [2]\nevaluation_steps = 4\n\
                        penalties = { authors = [-1, 3] }\n";
            problem.space = SearchSpace::from_toml(text).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let (outcome, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
        let best = outcome.best.unwrap();
        let losses = [Some(&best), best.marginal()];
        let sum: f64 = losses.into_iter().flatten().map(|block| block.info().training.best_valid_nll).sum();
        assert_eq!(outcome.finals[0].valid_nll, Some(sum));
        assert_eq!(best.marginal().is_some(), joint);
        assert!(outcome.complete && outcome.finals[0].test_nll.unwrap().is_finite());
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "journal and one model");
    }
}

/// The default space of every method, its sizes as small as they go.
#[test]
fn every_method_is_searched_to_its_end() {
    const SIZES: [(&str, usize); 5] =
        [("feature_width", 4), ("hidden_width", 4), ("max_terms", 4), ("transforms", 2), ("time_steps", 2)];
    for &method in Method::ALL {
        let mut problem = Problem::new();
        problem.base.method = method.defaults();
        let mut space = SearchSpace::from_toml(SearchSpace::preset("default", method).unwrap()).unwrap();
        for (name, size) in SIZES {
            problem.base.method = problem.base.method.with(name, size).unwrap_or(problem.base.method);
            space = space.without(&format!("method.{name}"));
        }
        // Halvings are those of a feature width that is drawn.
        problem.space = space.without("method.context_width");
        problem.base.train.epochs = 2;
        problem.tune = TuneSettings {
            trials: Some(2),
            pilot_epochs: Some(1),
            finalists: Some(1),
            repeats: Some(1),
            ..tune()
        };
        let folder = tempfile::tempdir().unwrap();
        let (outcome, _) = problem.run(folder.path(), 2, usize::MAX, None).unwrap();
        assert!(outcome.complete && outcome.trials.len() == 2, "{method:?}");
        assert!(outcome.trials.iter().all(|trial| trial.method.method() == method), "{method:?}");
        assert_ne!(outcome.trials[0], outcome.trials[1], "{method:?}: something was drawn");
        let (best, last) = (outcome.best.unwrap(), &outcome.finals[0]);
        assert_eq!(best.method(), method);
        assert_eq!(last.valid_nll, Some(best.info().training.best_valid_nll), "{method:?}");
        assert!(last.test_nll.unwrap().is_finite(), "{method:?}");
    }
}

#[test]
fn mistakes_are_errors_before_anything_is_trained() {
    let mut problem = Problem::new();
    let folder = tempfile::tempdir().unwrap();
    let text = |problem: &Problem| problem.run(folder.path(), 1, usize::MAX, None).err().unwrap().to_string();
    problem.tune.finalists = Some(9);
    assert!(text(&problem).contains("9 cannot be chosen from 8 trials"));
    problem.tune.finalists = Some(0);
    assert!(text(&problem).contains("finalists"));
    problem.tune = tune();
    problem.base.target = None;
    assert!(text(&problem).contains("target"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // A column that cannot be learned shows in the first training, and leaves nothing behind either.
    let mut problem = Problem::new();
    let constant = problem.table.iter().flat_map(|row| [1.0, row[1], row[2]]).collect();
    problem.table = Table::new(["x1", "x2", "y"].map(String::from).to_vec(), constant).unwrap();
    let fresh = folder.path().join("fresh");
    assert!(problem.run(&fresh, 2, usize::MAX, None).err().unwrap().to_string().contains("constant"));
    assert!(!fresh.exists());
    // Another search's journal is not taken up.
    let mut problem = Problem::new();
    problem.run(folder.path(), 2, 1, None).unwrap();
    problem.base.seed += 1;
    assert!(text(&problem).contains("a search with other settings or other data"));
}
