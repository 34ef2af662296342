//! A cell with a known answer, the experiment on cells of few rows, and stops.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::data::uci_sets;
use crate::experiment;
use crate::map::Method;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// y ~ N(3, 2²) and x | y ~ N(5 y, 4²): in units of the columns' deviations the NLL is known.
fn cell(joint: bool, method: impl Into<Variant>, protocol: &UciSettings) -> UciReproduction {
    let rows = 400;
    let mut set = uci_sets()[0].clone();
    (set.joint, set.rows, set.targets) = (joint, rows, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let values = (0..rows)
        .flat_map(|_| {
            let y = 3.0 + 2.0 * rng.sample::<f64, _>(StandardNormal);
            [y, 5.0 * y + 4.0 * rng.sample::<f64, _>(StandardNormal)]
        })
        .collect();
    let table = Table::new(vec!["y".into(), "x".into()], values).unwrap();
    UciReproduction::with_table(&set, &method.into(), table, protocol).unwrap()
}

fn run(cell: &UciReproduction, folder: &Path, threads: usize) -> UciResult {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| cell.run(folder, Run::silent())).unwrap().0
}

#[test]
fn a_cell_is_scored_in_published_units_and_any_row_comes_out_again() {
    let protocol =
        UciSettings { trials: Some(2), finalists: Some(1), repeats: Some(2), folds: 3, ..Default::default() };
    for joint in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut cell = cell(joint, Method::PcpMap, &protocol);
        cell.base.train.epochs = 25;
        let result = run(&cell, &folder.path().join("a"), 2);
        assert!(result.complete);
        assert_eq!(result.scores.len(), 2);
        let truth = truth(joint);
        let chosen = &result.scores[0];
        assert!((chosen.nll - truth).abs() < 0.5, "{} {truth}", chosen.nll);
        // The truth is a conditional Gaussian.
        let baseline = chosen.baseline.unwrap();
        assert!((baseline - truth).abs() < 0.5, "{baseline} {truth}");
        // N draws of a right map have MMD² = 2(1 − E k)/N on average, k the kernel between a draw and the row it is
        // paired with (x at the same y, with σ² = 16/116 each) or any other ((x, y), two correlated columns).
        let floor = |kernel: f64, rows: f64| (2.0 * (1.0 - kernel) / rows).sqrt();
        let at_rows = floor((1.0 + 2.0 * 16.0 / 116.0_f64).sqrt().recip(), 40.0);
        let near = |(squared, root): (f64, f64), floor: f64| {
            assert!((root.powi(2) - squared).abs() < 1e-12);
            assert!((0.5 * floor..2.0 * floor).contains(&root), "{root} {floor}");
        };
        near(chosen.mmd, at_rows);
        assert_eq!((chosen.joint_mmd.is_some(), chosen.training_mmd.is_some()), (joint, joint));
        // E k = det(I + 2Σ)^(-1/2), Σ the columns' correlation, whose square is 100/116.
        let kernel = (9.0 - 4.0 * 100.0 / 116.0_f64).sqrt().recip();
        chosen.joint_mmd.into_iter().for_each(|mmd| near(mmd, floor(kernel, 40.0)));
        chosen.training_mmd.into_iter().for_each(|mmd| near(mmd, floor(kernel, 320.0)));
        let folds = result.folds.as_ref().unwrap();
        assert!((folds.mean - truth).abs() < 0.5 && folds.standard_error > 0.0);

        // Again from the folder, and from nothing on one thread: the same figures.
        assert_eq!(run(&cell, &folder.path().join("a"), 2), result);
        let again = run(&cell, &folder.path().join("b"), 1);
        let bits = |result: &UciResult| -> Vec<u64> {
            let scores = result.scores.iter().flat_map(|score| [score.nll, score.mmd.0]);
            scores.chain(result.folds.as_ref().unwrap().nll.clone()).map(f64::to_bits).collect()
        };
        assert_eq!(bits(&again), bits(&result));
        let (trial, repeat) = (chosen.training.trial, chosen.training.repeat);
        let (_, alone) = cell.one(trial, repeat, &StopToken::new()).unwrap();
        assert_eq!(alone.nll.to_bits(), chosen.nll.to_bits());
        assert_eq!(alone.mmd, chosen.mmd);
        assert_eq!(alone.training_mmd, chosen.training_mmd);
        let mut table = UciTable::default();
        table.put(result);
        let text = table.document().to_text();
        assert!(
            text.contains("| parkinsons, PCP-Map | ") && text.contains("1.59 ± 0.08 / 1.96 ± 0.08"),
            "{text}"
        );
        let beside = format!("| conditional Gaussian, beside every map | {baseline:.2} | –");
        assert!(text.contains(&beside), "{beside}: {text}");
    }
}

/// The entropy of N(0, 4²) in units of the deviation of x, √(10² + 4²), and where y is estimated too that of a standard normal.
fn truth(joint: bool) -> f64 {
    let entropy = 0.5 * (std::f64::consts::TAU.ln() + 1.0);
    entropy + (4.0 / 116.0_f64.sqrt()).ln() + if joint { entropy } else { 0.0 }
}

#[test]
fn adaptive_transport_maps_are_cross_validated_in_ten_parts_without_a_search() {
    for joint in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let cell = cell(joint, Method::Atm, &UciSettings::default());
        let result = run(&cell, &folder.path().join("a"), 2);
        assert!(result.complete && result.pilots == 1 && result.scores.len() == 1);
        let folds = result.folds.as_ref().unwrap();
        assert!(folds.nll.len() == 10 && folds.dropped == 0);
        assert!((folds.mean - truth(joint)).abs() < 3.0 * folds.standard_error + 0.02, "{folds:?}");
        assert_eq!(run(&cell, &folder.path().join("a"), 1), result);
        let mut table = UciTable::default();
        table.put(result);
        let text = table.document().to_text();
        assert!(text.contains("published, 10 folds | 2.80 ± 0.20 | 11.00 ± 0.10"), "{text}");
        assert!(text.contains("cross-validated | "), "{text}");
    }
}

#[test]
fn flows_are_rows_of_their_own() {
    let protocol =
        UciSettings { trials: Some(2), finalists: Some(1), repeats: Some(1), ..Default::default() };
    let mut table = UciTable::default();
    for name in ["npe:flow=nsf", "npe:flow=maf", "cp-flow", "gaussian"] {
        let folder = tempfile::tempdir().unwrap();
        let mut cell = cell(false, name.parse::<Variant>().unwrap(), &protocol);
        cell.base.train.epochs = 25;
        let result = run(&cell, &folder.path().join("a"), 2);
        assert_eq!((result.method.to_string().as_str(), result.scores.len()), (name, 1));
        assert!((result.scores[0].nll - truth(false)).abs() < 0.5, "{name}: {}", result.scores[0].nll);
        let mut value = serde_json::to_value(&result).unwrap();
        assert_eq!(serde_json::from_value::<UciResult>(value.clone()).unwrap(), result);
        assert_eq!(result.baseline().is_none(), name == "gaussian");
        // Results of earlier versions know nothing of the conditional Gaussian.
        value["scores"][0].as_object_mut().unwrap().remove("baseline");
        assert_eq!(serde_json::from_value::<UciResult>(value).unwrap().baseline(), None);
        table.put(result);
    }
    let text = table.document().to_text();
    for title in
        ["NPE, flow maf, chosen", "NPE, flow nsf, chosen", "CP-Flow, chosen", "parkinsons, NPE, flow maf |"]
    {
        assert!(text.contains(title), "{title}: {text}");
    }
}

/// Two cells of the same figures under other names, in a folder that is filled by several runs.
#[test]
fn a_folder_keeps_the_results_of_other_cells_of_the_same_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let protocol =
        UciSettings { trials: Some(1), finalists: Some(1), repeats: Some(1), ..Default::default() };
    let experiment = |dataset: &'static str, method: Method, protocol: &UciSettings| {
        let mut cell = cell(true, method, protocol);
        (cell.set.name, cell.base.train.epochs) = (dataset, 2);
        UciExperiment::of(vec![(format!("{dataset}-{}", method.name()), cell)], protocol)
    };
    let run = |dataset, method, protocol: &UciSettings, resume| {
        experiment::run(&experiment(dataset, method, protocol), path, resume, Run::silent())
    };
    run("yacht", Method::PcpMap, &protocol, false).unwrap();
    run("parkinsons", Method::CotFlow, &protocol, false).unwrap();
    let folds = UciSettings { folds: 3, ..protocol.clone() };
    let document = run("parkinsons", Method::PcpMap, &folds, false).unwrap();
    assert_eq!(document.warnings, Vec::<String>::new());
    let text = std::fs::read_to_string(path.join("results.md")).unwrap();
    assert_eq!(text, document.to_markdown());
    assert!(text.contains("3 folds"), "{text}");
    let names: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let cells = ["parkinsons, PCP-Map", "yacht, PCP-Map", "parkinsons, COT-Flow"];
    assert!(names.ends_with(&[&["NLL"][..], &cells, &["root MMD ×10⁻²"], &cells].concat()), "{names:?}");
    let scores = std::fs::read_to_string(path.join("parkinsons-pcp-map/scores.csv")).unwrap();
    assert!(scores.starts_with("trial,repeat,seed,valid_nll,test_nll,") && scores.lines().count() == 2);

    // A cell that is there is neither repeated without `resume` nor trained again with it.
    let again = run("parkinsons", Method::PcpMap, &folds, false).unwrap_err().to_string();
    assert!(again.contains("parkinsons-pcp-map holds an earlier run: add `resume`"), "{again}");
    let model =
        |path: &Path| std::fs::metadata(path.join("fold-0-of-3.brenier")).unwrap().modified().unwrap();
    let trained = model(&path.join("parkinsons-pcp-map"));
    assert_eq!(run("parkinsons", Method::PcpMap, &folds, true).unwrap(), document);
    assert_eq!(model(&path.join("parkinsons-pcp-map")), trained);

    let seed = UciSettings { seed: 1, ..protocol.clone() };
    let error = run("energy", Method::PcpMap, &seed, true).unwrap_err().to_string();
    assert!(error.contains("another `seed`"), "{error}");
    // Folders of version 0.1 have no plan of their own, but their results do.
    std::fs::remove_file(path.join("run.json")).unwrap();
    let error = run("energy", Method::PcpMap, &seed, true).unwrap_err().to_string();
    assert!(error.contains("another protocol or seed"), "{error}");
    assert_eq!(run("parkinsons", Method::PcpMap, &folds, true).unwrap(), document);
    std::fs::write(path.join("results.json"), "{}").unwrap();
    let error = run("parkinsons", Method::PcpMap, &protocol, true).unwrap_err().to_string();
    assert!(error.contains("results.json"), "{error}");
}

/// A stopped experiment shows what there is, and is resumed to the same table.
#[test]
fn an_experiment_stopped_before_its_folds_is_resumed_to_the_same_table() {
    let place = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole", "cut"].map(|name| place.path().join(name));
    let protocol =
        UciSettings { trials: Some(1), finalists: Some(1), repeats: Some(1), folds: 3, ..Default::default() };
    let cells = ["a", "b"].map(|name| {
        let mut cell = cell(false, Method::PcpMap, &protocol);
        (cell.set.name, cell.base.train.epochs) = (if name == "a" { "parkinsons" } else { "yacht" }, 2);
        (name.to_owned(), cell)
    });
    let experiment = UciExperiment::of(cells.into(), &protocol);
    let stop = StopToken::new();
    stop.stop();
    let error = experiment::run(&experiment, &cut, false, Run::silent().stop(&stop)).unwrap_err();
    assert!(matches!(error, Error::Stopped(_)), "{error}");
    assert!(!cut.join("a").exists() && !cut.join("results.md").exists());

    let stop = StopToken::new();
    let stopping = stop.clone();
    let mut observer = move |event: &brenier_core::Event| {
        if let Some(UciEvent::Folds { .. }) = event.get() {
            stopping.stop();
        }
        Ok(())
    };
    let error =
        experiment::run(&experiment, &cut, false, Run::observed(&mut observer).stop(&stop)).unwrap_err();
    assert!(matches!(&error, Error::Stopped(text) if text.contains("`resume`")), "{error}");
    let table = || std::fs::read_to_string(cut.join("results.md")).unwrap();
    assert!(table().contains("parkinsons, PCP-Map (unfinished) |") && !table().contains("yacht, PCP-Map"));
    assert!(cut.join("a/scores.csv").exists() && !cut.join("a/cell-3-folds.json").exists());

    experiment::run(&experiment, &cut, true, Run::silent()).unwrap();
    let document = experiment::run(&experiment, &whole, false, Run::silent()).unwrap();
    assert_eq!(table(), document.to_markdown());
    let timed = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("a/cell-3-folds.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["seconds"].is_number()
    };
    assert_eq!((timed(&whole), timed(&cut)), (true, false));
    // What is kept is not scored again; the models are not even looked at.
    std::fs::remove_file(whole.join("a/fold-0-of-3.brenier")).unwrap();
    assert_eq!(experiment::run(&experiment, &whole, true, Run::silent()).unwrap(), document);
    assert!(!whole.join("a/fold-0-of-3.brenier").exists());
}

/// Earlier versions kept results in the table alone, and models in the folders of the cells.
#[test]
fn a_folder_of_an_earlier_version_is_taken_up() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let protocol =
        UciSettings { trials: Some(1), finalists: Some(1), repeats: Some(1), ..Default::default() };
    let experiment = |name: &str, dataset: &'static str| {
        let mut cell = cell(false, Method::PcpMap, &protocol);
        (cell.set.name, cell.base.train.epochs) = (dataset, 2);
        UciExperiment::of(vec![(name.to_owned(), cell)], &protocol)
    };
    experiment::run(&experiment("a", "parkinsons"), path, false, Run::silent()).unwrap();
    let document = experiment::run(&experiment("b", "yacht"), path, false, Run::silent()).unwrap();
    let models = || {
        let names = std::fs::read_dir(path.join("b")).unwrap().map(|entry| entry.unwrap());
        let models = names.filter(|entry| entry.path().extension().is_some_and(|ending| ending == "brenier"));
        models.map(|entry| entry.metadata().unwrap().modified().unwrap()).collect::<Vec<_>>()
    };
    let trained = models();
    for name in ["a", "b"] {
        std::fs::remove_file(path.join(name).join("cell.json")).unwrap();
    }
    // The cell that is asked for is scored again and kept, the other stays in the table.
    let again = experiment::run(&experiment("b", "yacht"), path, true, Run::silent()).unwrap();
    assert_eq!((again, models()), (document, trained));
    assert!(path.join("b/cell.json").exists() && !path.join("a/cell.json").exists());
}

#[test]
fn a_run_told_to_stop_says_that_it_is_not_complete() {
    let folder = tempfile::tempdir().unwrap();
    let cell = cell(false, Method::CotFlow, &UciSettings::default());
    let stop = StopToken::new();
    stop.stop();
    let path = folder.path().join("a");
    let result = cell.run(&path, Run::silent().stop(&stop)).unwrap().0;
    assert!(!result.complete && result.scores.is_empty());
    let mut table = UciTable::default();
    table.put(result);
    assert!(table.document().to_text().contains("COT-Flow (unfinished) | – |"));
}

#[test]
fn wrong_folds_are_refused() {
    let table = Table::new(vec!["y".into(), "x".into()], vec![0.0; 4]).unwrap();
    let protocol = UciSettings { folds: 2, ..Default::default() };
    let error =
        UciReproduction::with_table(&uci_sets()[5], &Method::PcpMap.into(), table, &protocol).err().unwrap();
    assert!(error.to_string().contains("between 3 and 30"), "{error}");
}
