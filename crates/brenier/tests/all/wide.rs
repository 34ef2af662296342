//! Many noisy given columns: declared noise, jitter and the supervised reduction, on problems with known answers.

use std::time::Duration;

use brenier::data::Table;
use brenier::map::Method;
use brenier::train::{Schedule, TrainEvent, TrainSettings};
use brenier::{Event, FitSettings, Journal, Posterior, Run, StopToken, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const COLUMNS: usize = 300;
const NOISE: f64 = 0.3;

/// x ~ N(0, I₂), y(t) = x₁ sin 6t + x₂ cos 9t at 300 times in [0, 1], with noise or without.
fn waves(rows: usize, noise: f64, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut values = Vec::with_capacity(rows * (COLUMNS + 2));
    for _ in 0..rows {
        let x: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
        values.extend(x);
        for column in 0..COLUMNS {
            let t = column as f64 / (COLUMNS - 1) as f64;
            let e: f64 = rng.sample(StandardNormal);
            values.push(x[0] * (6.0 * t).sin() + x[1] * (9.0 * t).cos() + noise * e);
        }
    }
    let names = ["x1", "x2"].map(str::to_owned).into_iter().chain((1..=COLUMNS).map(|j| format!("y{j}")));
    Table::new(names.collect(), values).unwrap()
}

/// Mean NLL of the exact posterior, the same for every y: ½ log det(2πe (I + BᵀB/σ²)⁻¹).
fn exact_nll() -> f64 {
    let mut precision = [[1.0, 0.0], [0.0, 1.0]];
    for column in 0..COLUMNS {
        let t = column as f64 / (COLUMNS - 1) as f64;
        let b = [(6.0 * t).sin(), (9.0 * t).cos()];
        for i in 0..2 {
            for j in 0..2 {
                precision[i][j] += b[i] * b[j] / (NOISE * NOISE);
            }
        }
    }
    let det = precision[0][0] * precision[1][1] - precision[0][1] * precision[1][0];
    (std::f64::consts::TAU * std::f64::consts::E).ln() - 0.5 * det.ln()
}

fn settings(method: Method) -> FitSettings {
    FitSettings {
        target: Some("x1,x2".parse().unwrap()),
        given: Some("rest".parse().unwrap()),
        method: method.defaults(),
        train: TrainSettings {
            batch_size: Some(128),
            schedule: Some(Schedule::Cosine),
            epochs: 40,
            ..TrainSettings::default()
        },
        ..FitSettings::default()
    }
}

/// Mean NLL of fresh noisy rows, in the units of x.
fn test_nll(model: &Posterior) -> f64 {
    let test = waves(2000, NOISE, 99);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for row in test.iter() {
        x.extend_from_slice(&row[..2]);
        y.extend_from_slice(&row[2..]);
    }
    model.log_density(&x, &y).unwrap().mean_nll().0
}

fn trained(table: &Table, settings: &FitSettings) -> Posterior {
    fit(table, settings, Run::silent()).unwrap().posterior
}

#[test]
fn a_reduction_finds_two_signals_in_three_hundred_noisy_columns() {
    let exact = exact_nll();
    assert!((exact + 4.42).abs() < 0.05, "{exact}");
    let reduced = FitSettings { reduce: Some(20), ..settings(Method::PcpMap) };
    let model = trained(&waves(5000, NOISE, 1), &reduced);
    let reduction = model.info().given_transform.reduction().unwrap();
    assert!(reduction.correlations()[1] > 0.98, "{:?}", reduction.correlations());
    let nll = test_nll(&model);
    assert!(nll < exact + 0.2 && nll > exact - 0.1, "{nll} {exact}");
    // The file keeps it.
    let again = Posterior::from_bytes(&model.to_bytes().unwrap()).unwrap();
    assert_eq!(test_nll(&again), nll);
}

#[test]
fn fresh_noise_on_noise_free_columns_learns_the_noisy_posterior() {
    let exact = exact_nll();
    let table = waves(1500, 0.0, 2);
    for reduce in [None, Some(20)] {
        let mut own = FitSettings { reduce, ..settings(Method::PcpMap) };
        (own.train.batch_size, own.train.epochs) = (Some(64), 100);
        let noisy = FitSettings { noise: noise_of("0.3"), ..own.clone() };
        let model = trained(&table, &noisy);
        let nll = test_nll(&model);
        // 1350 different rows leave both short of the optimum.
        let bound = if reduce.is_some() { 0.45 } else { 0.75 };
        assert!(nll < exact + bound && nll > exact - 0.1, "{reduce:?}: {nll} {exact}");
        // Validation rows have noise, too: their loss is not that of a target known exactly.
        let header = model.info();
        let valid = header.training.best_valid_nll - header.target_transform.linear_scale_log_det();
        assert!((valid - nll).abs() < 0.3, "{valid} {nll}");
        assert_eq!(header.settings.noise.to_string(), "rest=0.3");
    }
}

/// One rule of noise.
fn noise_of(rule: &str) -> brenier::transform::NoiseSettings {
    brenier::transform::NoiseSettings { rules: vec![rule.parse().unwrap()] }
}

#[test]
fn jitter_keeps_a_map_from_learning_the_noise_by_heart() {
    let table = waves(600, NOISE, 3);
    let plain = settings(Method::PcpMap);
    let jittered = FitSettings { jitter: noise_of("0.6"), ..plain.clone() };
    let gap = |model: &Posterior| {
        let scores = model.info().training.scores.clone().unwrap();
        scores.valid.nll.mean - scores.train.nll.mean
    };
    let (plain, jittered) = (trained(&table, &plain), trained(&table, &jittered));
    assert!(gap(&jittered) < gap(&plain), "{} {}", gap(&jittered), gap(&plain));
    assert!(test_nll(&jittered) < test_nll(&plain) + 0.05, "{} {}", test_nll(&jittered), test_nll(&plain));
}

#[test]
fn fresh_noise_has_the_same_bits_on_any_threads_and_after_a_resume() {
    let table = waves(400, 0.0, 4);
    let mut own = FitSettings { noise: noise_of("0.3"), ..settings(Method::PcpMap) };
    (own.train.epochs, own.train.validate_every) = (6, 3);
    let whole = trained(&table, &own).to_bytes().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(pool.install(|| trained(&table, &own).to_bytes().unwrap()) == whole, "threads");
    let folder = tempfile::tempdir().unwrap();
    let journal =
        |resume| Journal { path: folder.path().join("c"), every: Duration::ZERO, resume, keep: false };
    let stop = StopToken::new();
    let mut validations = 0;
    let mut observer = |event: &Event| {
        if let Some(TrainEvent::Validated(_)) = event.get() {
            validations += 1;
            stop.set(validations == 2);
        }
        Ok(())
    };
    let cut = fit(&table, &own, Run::observed(&mut observer).stop(&stop).journal(journal(false))).unwrap();
    assert!(cut.posterior.info().training.stop.is_resumable());
    let resumed = fit(&table, &own, Run::silent().journal(journal(true))).unwrap();
    assert!(resumed.posterior.to_bytes().unwrap() == whole, "resume");
    // Another seed has other noise, and a step that is not noisy other weights.
    let plain = FitSettings { noise: Default::default(), ..own.clone() };
    assert!(trained(&table, &plain).to_bytes().unwrap() != whole);
}

/// With a surrogate of one narrow hidden layer.
fn with_surrogate(spread: f64, epochs: Option<u32>, settings: FitSettings) -> FitSettings {
    FitSettings { surrogate: Some(spread), surrogate_widths: vec![32], surrogate_epochs: epochs, ..settings }
}

#[test]
fn rows_moved_with_a_surrogate_keep_a_map_from_overfitting_few_simulations() {
    let exact = exact_nll();
    let table = waves(400, 0.0, 6);
    let mut plain = FitSettings { noise: noise_of("0.3"), ..settings(Method::PcpMap) };
    (plain.train.batch_size, plain.train.epochs) = (Some(64), 60);
    let moved = with_surrogate(0.5, None, plain.clone());
    let (plain, moved) = (trained(&table, &plain), trained(&table, &moved));
    let (without, with) = (test_nll(&plain), test_nll(&moved));
    assert!(with < without - 0.2 && with > exact - 0.1, "{with}, without {without}, exact {exact}");
    let lines = moved.description();
    assert!(format!("{lines:?}").contains("rows moved by 0.5"), "{lines:?}");
}

#[test]
fn a_surrogate_has_the_same_bits_on_any_threads_and_after_a_resume() {
    let table = waves(300, 0.0, 7);
    let noisy = FitSettings { noise: noise_of("0.3"), members: Some(2), ..settings(Method::PcpMap) };
    let mut own = with_surrogate(0.2, Some(60), noisy);
    (own.train.epochs, own.train.validate_every, own.train.valid_fraction) = (6, 3, 0.2);
    let whole = trained(&table, &own).to_bytes().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert!(pool.install(|| trained(&table, &own).to_bytes().unwrap()) == whole, "threads");
    // Cut short while the surrogate is learned, and again in its members.
    let folder = tempfile::tempdir().unwrap();
    let journal =
        |resume| Journal { path: folder.path().join("c"), every: Duration::ZERO, resume, keep: false };
    let cut = |resume: bool, in_members: bool| {
        let (stop, mut members) = (StopToken::new(), false);
        let mut observer = |event: &Event| {
            match event.get() {
                Some(TrainEvent::Members { .. }) => members = true,
                Some(TrainEvent::Validated(_)) => stop.set(!in_members),
                Some(TrainEvent::PartValidated { .. }) => stop.set(members),
                _ => {}
            }
            Ok(())
        };
        let run = Run::observed(&mut observer).stop(&stop).journal(journal(resume));
        fit(&table, &own, run).unwrap().posterior
    };
    for (resume, in_members) in [(false, false), (true, true)] {
        assert!(cut(resume, in_members).info().training.stop.is_resumable(), "{in_members}");
    }
    let resumed = fit(&table, &own, Run::silent().journal(journal(true))).unwrap();
    assert!(resumed.posterior.to_bytes().unwrap() == whole, "resume");
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
    // A spread of its own, other weights.
    let other = FitSettings { surrogate: Some(0.3), ..own };
    assert!(trained(&table, &other).to_bytes().unwrap() != whole);
}

#[test]
fn what_does_not_go_with_a_surrogate_is_refused() {
    let table = waves(200, 0.0, 8);
    let problem = |change: fn(&mut FitSettings)| {
        let mut settings = with_surrogate(0.1, Some(1), settings(Method::PcpMap));
        change(&mut settings);
        match fit(&table, &settings, Run::silent()) {
            Ok(_) => panic!("should be refused"),
            Err(error) => error.to_string(),
        }
    };
    type Change = fn(&mut FitSettings);
    let changes: [(&str, Change); 8] = [
        ("trained by steps", |settings| settings.method = Method::Gaussian.defaults()),
        ("trained by steps", |settings| settings.method = Method::Atm.defaults()),
        ("joint", |settings| settings.joint = true),
        ("by name", |settings| settings.auto = true),
        ("given columns", |settings| {
            (settings.given, settings.target) = (None, Some("x1,x2".parse().unwrap()));
            settings.noise = Default::default();
        }),
        ("above 0", |settings| settings.surrogate = Some(0.0)),
        ("surrogate_widths", |settings| settings.surrogate_widths = vec![0]),
        ("surrogate_epochs", |settings| settings.surrogate_epochs = Some(0)),
    ];
    for (part, change) in changes {
        let text = problem(change);
        assert!(text.contains("surrogate") && text.contains(part), "{part}: {text}");
    }
}

#[test]
fn mistakes_are_one_sentence() {
    let table = waves(200, NOISE, 5);
    let problem = |settings: FitSettings| match fit(&table, &settings, Run::silent()) {
        Ok(_) => panic!("should be refused"),
        Err(error) => error.to_string(),
    };
    let own = || settings(Method::Gaussian);
    assert!(
        problem(FitSettings { noise: noise_of("x1=1"), ..own() }).contains("\"x1\" is not a given column")
    );
    assert!(problem(FitSettings { noise: noise_of("1"), joint: true, ..own() }).contains("joint"));
    assert!(problem(FitSettings { reduce: Some(0), ..own() }).contains("reduce"));
    let both = FitSettings { reduce: Some(3), pca: Some("2".parse().unwrap()), ..own() };
    assert!(problem(both).contains("`pca`"));
    let log = FitSettings {
        noise: noise_of("y1=1"),
        support: vec!["y1=interval(-100,100)".parse().unwrap()],
        ..own()
    };
    assert!(problem(log).contains("real columns only"));
}
