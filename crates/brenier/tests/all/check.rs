//! The verdict on models: right ones pass, faults are named, and the page about them holds.

#![allow(clippy::unwrap_used)]

use brenier::check::{
    Advice, Against, Check, CheckSettings, GapSource, Predictive, Severity, Topic, Trust, check,
};
use brenier::data::{Pick, Selection, Table};
use brenier::map::pcp::PcpSettings;
use brenier::map::{Method, SampleSettings};
use brenier::report::{ObservationView, Picture, Piece, ReportPage, Section};
use brenier::simulate::{
    Attempt, LinearGaussian, Outcome, Prior, SimulateSettings, Simulator, Stream, TwoMoons, run,
};
use brenier::statistics::Estimate;
use brenier::store::{self, Tensor};
use brenier::train::TrainSettings;
use brenier::{FitSettings, Posterior, Run, example, fit, fit_split};

fn columns(names: &[&str]) -> Option<Selection> {
    Some(Selection::Columns(names.iter().map(|name| Pick::Name((*name).to_owned())).collect()))
}

fn fitted(table: Table, target: &[&str], given: &[&str], epochs: u32, settings: FitSettings) -> Posterior {
    let settings = FitSettings {
        target: columns(target),
        given: if given.is_empty() { None } else { columns(given) },
        train: TrainSettings { epochs, batch_size: Some(64), ..settings.train.clone() },
        ..settings
    };
    fit(&table, &settings, Run::silent()).unwrap().posterior
}

fn small() -> FitSettings {
    let method = PcpSettings {
        feature_width: Some(24),
        context_width: Some(24),
        depth: Some(2),
        ..PcpSettings::default()
    };
    FitSettings { method: method.into(), ..FitSettings::default() }
}

fn demo_model() -> Posterior {
    fitted(example::simulate(4000, 0), &["x1", "x2"], &["y"], 25, small())
}

fn quick() -> CheckSettings {
    CheckSettings { pairs: 600, draws: Some(99), predictive_observations: 30, ..CheckSettings::default() }
}

fn judged(model: &Posterior, table: &Table, settings: &CheckSettings) -> Check {
    check(model, table, settings, Against::default(), Run::silent()).unwrap()
}

fn changed(table: &Table, change: impl Fn(usize, &mut [f64])) -> Table {
    let mut values = table.values().to_vec();
    values.chunks_exact_mut(table.columns()).enumerate().for_each(|(row, values)| change(row, values));
    Table::new(table.names().to_vec(), values).unwrap()
}

#[test]
fn a_learned_map_is_certified_and_faults_are_named() {
    let model = demo_model();
    let held_out = example::simulate(1500, 1);
    let found = judged(&model, &held_out, &quick());
    assert_ne!(found.verdict.trust, Trust::Untrustworthy, "{:#?}", found.verdict);
    let certificates = &found.certificates;
    let (spectrum, bound) = (certificates.spectrum, certificates.spectrum.bound.unwrap());
    assert!(
        bound > 0.0 && spectrum.smallest >= bound && spectrum.largest > spectrum.smallest,
        "{spectrum:?}"
    );
    assert_eq!((certificates.inversions.draws, certificates.inversions.unsolved), (600 * 99, 0));
    assert!(certificates.inversions.worst_residual <= 1e-6);
    assert!(certificates.round_trip.worst < 1e-5, "{:?}", certificates.round_trip);
    assert_eq!(certificates.normalisation.len(), 3);
    for integral in &certificates.normalisation {
        assert!((integral.integral - 1.0).abs() < 1e-3 && integral.resolution < 1e-3, "{integral:?}");
    }
    assert_eq!(found.calibration.checks.len(), 5);
    assert!(found.calibration.explained.is_some() && found.outliers.as_ref().unwrap().extreme < 10);
    let likelihood = &found.likelihood;
    assert_eq!((likelihood.rows, likelihood.failed), (1500, 0));
    let exact: f64 =
        held_out.iter().map(|row| -example::log_density([row[1], row[2]], row[0])).sum::<f64>() / 1500.0;
    let own = likelihood.target.user;
    assert!(own.mean > exact - 3.0 * own.standard_error && own.mean < exact + 0.3, "{own:?} {exact}");
    assert!(!found.held_out.trained_on);

    // The same bits for any number of threads.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let again = alone.install(|| judged(&model, &held_out, &quick()));
    let text = |found: &Check| serde_json::to_string(found).unwrap();
    assert_eq!(text(&found), text(&again));

    // Parameters moved by half a standard deviation; pairs torn apart; too few pairs; the training table itself.
    let moved = judged(&model, &changed(&held_out, |_, row| row[1] += 0.5), &quick());
    assert_eq!(moved.verdict.trust, Trust::Untrustworthy);
    let first = &moved.verdict.findings[0];
    assert!(first.topic == Topic::Calibration && first.severity == Severity::Bad, "{first:?}");
    assert!(
        moved.verdict.findings.iter().any(|f| f.text.contains("\"x1\" is not calibrated (draws too low)"))
    );
    let torn = judged(
        &model,
        &changed(&held_out, |row, values| {
            values[0] = held_out.value((row + 7) % held_out.rows(), 0);
        }),
        &quick(),
    );
    assert_eq!(torn.verdict.trust, Trust::Untrustworthy, "{:#?}", torn.verdict);
    let few = judged(&model, &example::simulate(60, 2), &quick());
    assert_ne!(few.verdict.trust, Trust::Trustworthy);
    assert!(few.verdict.findings.iter().any(|f| f.text.contains("only 60 pairs")));
    let same = judged(&model, &example::simulate(4000, 0), &quick());
    assert!(same.held_out.trained_on && same.verdict.findings[0].topic == Topic::Data, "{:#?}", same.verdict);
}

#[test]
fn predictives_and_other_fits_take_part() {
    let model = LinearGaussian::default();
    let simulate = |rows, seed| {
        let settings = SimulateSettings { rows, seed, ..SimulateSettings::default() };
        match run(&model, &settings, None, Run::silent()).unwrap() {
            Outcome::Complete(simulated) => simulated.table,
            Outcome::Interrupted { .. } => unreachable!(),
        }
    };
    let (target, given) = (["theta_1", "theta_2", "theta_3"], ["y_1", "y_2", "y_3", "y_4"]);
    let train = simulate(3000, 0);
    let own = fitted(train.clone(), &target, &given, 15, small());
    let others =
        [("other".to_owned(), fitted(train, &target, &given, 15, FitSettings { seed: 1, ..small() }))];
    let held_out = simulate(500, 1);
    let against = Against { simulator: Some(&model), others: &others };
    let found = check(&own, &held_out, &quick(), against, Run::silent()).unwrap();
    assert_ne!(found.verdict.trust, Trust::Untrustworthy, "{:#?}", found.verdict);
    let predictive = found.predictive.as_ref().unwrap();
    assert_eq!((predictive.observations, predictive.rows.len(), predictive.outputs.len()), (30, 30, 4));
    assert!(predictive.outputs.iter().all(|output| output.adjusted_p_value > 0.05), "{predictive:?}");
    let member = &found.members[0];
    assert!(member.seed == 1 && member.c2st < 0.7, "{member:?}");
    assert!(member.distance < 0.4 && member.chance_distance < 0.1, "{member:?}");
    assert!(member.nll_difference.mean.abs() < 0.1);
    assert!(matches!(
        found.learning.advice,
        Advice::MoreTraining | Advice::MoreSimulations | Advice::Neither
    ));
    let gap = found.learning.gap.unwrap();
    assert!(gap.source == GapSource::SavedModel && found.learning.last_gain.is_some());

    // Outputs far from what the posterior can make lie outside every predictive.
    let strange: Vec<f64> = [[9.0, -9.0, 9.0, 9.0]; 3].concat();
    let at = Predictive::at(&own, &strange, &model, &quick(), Run::silent()).unwrap();
    assert!(at.rows.iter().all(|row| row.p_values.iter().any(|&p| p < 0.05)), "{at:?}");

    // Mistakes come before the work.
    let with = |simulator: &dyn Simulator| {
        let against = Against { simulator: Some(simulator), others: &[] };
        check(&own, &held_out, &quick(), against, Run::silent()).unwrap_err().to_string()
    };
    assert!(with(&TwoMoons::default()).contains("\"y_3\""));
    let others = [("demo".to_owned(), fitted(example::simulate(200, 0), &["x1"], &["y"], 1, small()))];
    let against = Against { simulator: None, others: &others };
    let text = check(&own, &held_out, &quick(), against, Run::silent()).unwrap_err().to_string();
    assert!(text.contains("demo is a model of x1 given y"), "{text}");
}

/// The linear Gaussian model, which fails where θ₁ lies above a limit.
struct Fragile {
    inner: LinearGaussian,
    limit: f64,
}

impl Simulator for Fragile {
    fn identity(&self) -> String {
        "fragile".to_owned()
    }
    fn prior(&self) -> &Prior {
        self.inner.prior()
    }
    fn output_names(&self) -> &[String] {
        self.inner.output_names()
    }
    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> brenier::Result<Attempt> {
        match theta[0] > self.limit {
            true => Ok(Attempt::Failed("it broke".to_owned())),
            false => self.inner.simulate(theta, rng, outputs),
        }
    }
}

#[test]
fn failed_predictive_simulations_are_a_finding_and_not_the_end() {
    let simulate = |rows, seed| {
        let settings = SimulateSettings { rows, seed, ..SimulateSettings::default() };
        match run(&LinearGaussian::default(), &settings, None, Run::silent()).unwrap() {
            Outcome::Complete(simulated) => simulated.table,
            Outcome::Interrupted { .. } => unreachable!(),
        }
    };
    let method = Method::Gaussian.defaults();
    let settings = FitSettings { method, ..FitSettings::default() };
    let (target, given) = (["theta_1", "theta_2", "theta_3"], ["y_1", "y_2", "y_3", "y_4"]);
    let model = fitted(simulate(2000, 0), &target, &given, 1, settings);
    let held_out = simulate(300, 1);
    let found = |limit: f64| {
        let fragile = Fragile { inner: LinearGaussian::default(), limit };
        let against = Against { simulator: Some(&fragile), others: &[] };
        let settings = CheckSettings { predictive_draws: 40, ..quick() };
        let found = check(&model, &held_out, &settings, against, Run::silent()).unwrap();
        let findings = found.verdict.findings.into_iter().filter(|f| f.topic == Topic::Predictive);
        (found.predictive.unwrap(), findings.collect::<Vec<_>>())
    };
    let (predictive, findings) = found(f64::NEG_INFINITY);
    assert_eq!((predictive.observations, predictive.left_out, predictive.failed), (0, 30, 1200));
    assert!(findings.iter().all(|f| f.severity == Severity::Care), "{findings:?}");
    let text = "1200 of 1200 simulations from the posterior failed; 30 of 30 observations";
    assert!(findings.iter().any(|f| f.text.starts_with(text) && f.text.contains("it broke")), "{findings:?}");
    let (predictive, findings) = found(0.0);
    assert!(predictive.observations > 2 && predictive.left_out > 5, "{predictive:?}");
    let text = format!("{} of 1200 simulations from the posterior failed", predictive.failed);
    assert!(
        findings.iter().any(|f| f.text.starts_with(&text) && f.severity == Severity::Care),
        "{findings:?}"
    );
    let (predictive, findings) = found(f64::INFINITY);
    assert_eq!((predictive.failed, findings.len()), (0, 1));
}

#[test]
fn flows_and_joint_models_are_checked_too() {
    let method = Method::CotFlow.defaults().with("feature_width", 12).unwrap();
    let flow = FitSettings { method, joint: true, ..FitSettings::default() };
    let model = fitted(example::simulate(1500, 0), &["x1", "x2"], &["y"], 4, flow);
    let settings = CheckSettings { pairs: 100, draws: Some(30), ..CheckSettings::default() };
    let found = judged(&model, &example::simulate(300, 1), &settings);
    let certificates = &found.certificates;
    assert!(certificates.spectrum.bound.is_none() && certificates.spectrum.smallest > 0.0);
    assert!(certificates.spectrum.log_det_error.unwrap() < 0.01, "{:?}", certificates.spectrum);
    assert!(certificates.round_trip.rms < 1e-3, "{:?}", certificates.round_trip);
    let paths = certificates.paths.unwrap();
    assert!(paths.cost_ratio >= 0.99 && paths.cost_ratio < 3.0 && paths.step_error < 0.02, "{paths:?}");
    for integral in &certificates.normalisation {
        assert!((integral.integral - 1.0).abs() < 0.01, "{integral:?}");
    }
    let marginal = found.marginal_calibration.as_ref().unwrap();
    assert_eq!((marginal.pairs, marginal.checks.len()), (100, 3));
    let (joint, target, given) =
        (found.likelihood.joint.unwrap(), found.likelihood.target, found.likelihood.given.unwrap());
    let sum = target.user.mean + given.user.mean;
    assert!((joint.user.mean - sum).abs() < 1e-9);
    // The flow's own NLL, without the penalties of its training loss.
    assert!(found.learning.gap.unwrap().mean.abs() < 0.3 && found.subject.joint);
    let html = ReportPage::new("Flow", &model, &found).to_html().unwrap();
    assert!(html.contains("Paths of the flow") && html.contains("map of the given columns alone"));
}

#[test]
fn odd_tables_and_settings_are_sentences() {
    let model = fitted(example::simulate(200, 0), &["x1", "x2"], &["y"], 1, small());
    let refuse = |table: &Table, settings: &CheckSettings, words: &str| {
        let error =
            check(&model, table, settings, Against::default(), Run::silent()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let table = example::simulate(50, 1);
    let quick = quick();
    refuse(&table.select_columns(&[0, 1]), &quick, "no column \"x2\"");
    refuse(&table.select_rows(&[3]), &quick, "1 row");
    refuse(
        &changed(&table, |row, values| values[2] = if row == 4 { f64::NAN } else { 0.0 }),
        &quick,
        "row 5, column",
    );
    refuse(&table, &CheckSettings { pairs: 1, ..quick.clone() }, "pairs");
    refuse(&table, &CheckSettings { draws: Some(3), ..quick.clone() }, "draws");
    refuse(&table, &CheckSettings { level: 1.0, ..quick.clone() }, "level");
    // Far outside everything: a finding or a sentence, never a panic.
    let few = table.select_rows(&[0, 1, 2, 3, 4, 5, 6, 7]);
    let far = changed(&few, |_, values| values.iter_mut().for_each(|value| *value *= 1e6));
    match check(&model, &far, &quick, Against::default(), Run::silent()) {
        Ok(found) => assert_eq!(found.verdict.trust, Trust::Untrustworthy),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let constant = changed(&table, |_, values| values.copy_from_slice(&[0.1, 0.2, 0.3]));
    assert_ne!(judged(&model, &constant, &quick).verdict.trust, Trust::Trustworthy);
}

#[test]
fn the_page_escapes_names_and_gives_every_picture_words() {
    let table = example::simulate(600, 0);
    let evil = ["y\"><script>alert(1)</script>", "x<1>&", "x'2'"];
    let named = |table: &Table| {
        Table::new(evil.iter().map(|&name| name.to_owned()).collect(), table.values().to_vec()).unwrap()
    };
    let model = fitted(named(&table), &evil[1..], &evil[..1], 2, small());
    let settings = CheckSettings { pairs: 60, draws: Some(30), ..CheckSettings::default() };
    let found = judged(&model, &named(&example::simulate(80, 1)), &settings);
    let draws = model.sample(&[0.5], 1, 200, 0, &SampleSettings::default()).unwrap().values;
    let view = ObservationView {
        name: "<b>observed</b>".to_owned(),
        given: vec![0.5],
        draws,
        truth: Some(vec![0.0, 0.1]),
        ..ObservationView::default()
    };
    let own = Section {
        title: "My <section>".to_owned(),
        blocks: vec![
            Piece::Text("<i>text</i>".to_owned()),
            Piece::Picture(Picture {
                svg: "<svg width=\"10\" height=\"10\" viewBox=\"0 0 10 10\"></svg>".to_owned(),
                title: "<svg onload=1>".to_owned(),
                caption: "a caption".to_owned(),
            }),
        ],
    };
    let page = || {
        ReportPage::new("</title><script>", &model, &found)
            .introduction("<p>")
            .observation(view.clone())
            .section(own.clone())
            .command("brenier '<x>'")
            .source("Table", "<file>")
            .to_html()
            .unwrap()
    };
    let html = page();
    assert_eq!(html, page());
    for markup in ["<script", "<b>observed", "<i>text", "<svg onload", "<x>", "<file>", "x<1>"] {
        assert!(!html.contains(markup), "{markup}");
    }
    let count = |what: &str| html.matches(what).count();
    assert!(count("<svg") >= 7);
    assert_eq!(count("<svg"), count("role=\"img\""));
    assert_eq!(count("<svg"), count("<title id=\"p"));
    assert_eq!(count("<svg"), count("<desc id=\"p"));
    assert!(html.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    // Nothing is loaded: the only addresses are the page's own places and the name of SVG.
    assert_eq!(count("http"), count("http://www.w3.org/2000/svg") + count("http-equiv"));
    assert_eq!(count("src="), 0);
    assert!(count("<table") == count("class=\"caption\"") && count("<h2") >= 6);
}

/// A wide map that overfits few rows: the training rows, the validation rows, and the model.
fn overfitted() -> (Table, Vec<u32>, Vec<u32>, Posterior) {
    let table = example::simulate(130, 0);
    let (train, valid): (Vec<u32>, Vec<u32>) = (0..130).partition(|row| row % 4 != 0);
    let settings = FitSettings {
        target: columns(&["x1", "x2"]),
        given: columns(&["y"]),
        method: Method::PcpMap.defaults().with("feature_width", 48).unwrap(),
        // Validated so seldom that the best weights are well past the best.
        train: TrainSettings {
            epochs: 120,
            validate_every: 100,
            batch_size: Some(32),
            ..TrainSettings::default()
        },
        ..FitSettings::default()
    };
    let model = fit_split(&table, &train, &valid, &settings, Run::silent()).unwrap().posterior;
    (table, train, valid, model)
}

#[test]
fn the_gap_is_that_of_the_saved_model() {
    let (table, train, valid, model) = overfitted();
    // The very rows, scored through the public door with the weights that the model holds.
    let score = |rows: &[u32]| {
        let picked = table.select_rows(rows);
        let side = |columns: &[usize]| picked.select_columns(columns).into_values();
        let densities = model.log_density(&side(&[1, 2]), &side(&[0])).unwrap();
        Estimate::of(&densities.standardised.iter().map(|d| -d).collect::<Vec<_>>())
    };
    let (train_nll, valid_nll) = (score(&train), score(&valid));
    let scores = model.info().training.scores.clone().unwrap();
    assert_eq!((scores.train.rows, scores.valid.rows, scores.train.failed), (train.len(), valid.len(), 0));
    for (stored, truth) in [(&scores.train.nll, &train_nll), (&scores.valid.nll, &valid_nll)] {
        assert!((stored.mean - truth.mean).abs() < 1e-3, "{stored:?} {truth:?}");
        assert!((stored.median - truth.median).abs() < 1e-3, "{stored:?} {truth:?}");
    }
    assert!((scores.valid.nll.mean - model.info().training.best_valid_nll).abs() < 1e-3);

    let held_out = example::simulate(300, 1);
    let settings = CheckSettings { pairs: 50, draws: Some(20), ..CheckSettings::default() };
    let found = judged(&model, &held_out, &settings);
    let gap = found.learning.gap.unwrap();
    assert_eq!(gap.source, GapSource::SavedModel);
    assert!((gap.mean - (valid_nll.robust_mean() - train_nll.robust_mean())).abs() < 2e-3, "{gap:?}");
    assert!((gap.median.unwrap() - (valid_nll.median - train_nll.median)).abs() < 2e-3, "{gap:?}");
    let chance = valid_nll.robust_error().hypot(train_nll.robust_error());
    assert!((found.learning.noise - chance).abs() < 1e-3, "{:?}", found.learning);

    // A model of an older version has no scores: the gap is the estimate from the last steps.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.brenier");
    model.save(&path).unwrap();
    let (mut header, tensors): (serde_json::Value, Vec<Tensor>) = store::read(&path).unwrap();
    assert!(header["training"].as_object_mut().unwrap().remove("scores").is_some());
    store::write(&path, &header, &tensors).unwrap();
    let old = judged(&Posterior::load(&path).unwrap(), &held_out, &settings);
    assert_eq!(old.learning.gap.unwrap().source, GapSource::LastSteps);
    assert_eq!(old.verdict.trust, found.verdict.trust);
}

#[test]
fn a_row_that_dominates_the_mean_is_named_and_changes_no_verdict() {
    let model = fitted(example::simulate(1500, 0), &["x1", "x2"], &["y"], 10, small());
    let held_out = example::simulate(600, 1);
    let settings = CheckSettings { pairs: 300, draws: Some(50), ..CheckSettings::default() };
    let plain = judged(&model, &held_out, &settings);
    assert!(plain.likelihood.target.standardised.carrier.is_none());
    // One absurd value among 600.
    let odd = changed(&held_out, |row, values| values[1] = if row == 5 { 60.0 } else { values[1] });
    let found = judged(&model, &odd, &settings);
    let (own, clean) = (found.likelihood.target.standardised, plain.likelihood.target.standardised);
    let carrier = own.carrier.unwrap();
    assert!(carrier.row == 5 && own.mean > clean.mean + 0.1, "{own:?}");
    assert!(
        (own.median - clean.median).abs() < 0.02 && (own.robust_mean() - clean.mean).abs() < 0.05,
        "{own:?}"
    );
    let note =
        found.verdict.findings.iter().find(|f| f.text.contains("dominates the mean held-out NLL")).unwrap();
    assert!(note.severity == Severity::Note && note.text.contains("row 6 as read"), "{note:?}");
    assert!(!found.verdict.findings.iter().any(|f| f.text.contains("another distribution")));
    let html = ReportPage::new("Odd", &model, &found).to_html().unwrap();
    assert!(html.contains("(median ") && html.contains("Row 6 as read"));
    assert!(!ReportPage::new("Plain", &model, &plain).to_html().unwrap().contains("(median "));
}
