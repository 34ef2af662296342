//! Tests of `run`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::simulate::{LinearGaussian, Prior, TwoMoons};
use crate::{Journal as Plan, StopToken};
use rand::RngExt;

fn go<S: Simulator>(
    simulator: &S,
    rows: u64,
    shard: Option<&str>,
    stop: &StopToken,
    journal: Option<Plan>,
) -> Result<Outcome> {
    let settings = SimulateSettings { rows, seed: 7, shard: shard.map(|text| text.parse().unwrap()) };
    run(simulator, &settings, None, Run::silent().stop(stop).journal(journal))
}

fn complete(outcome: Outcome) -> Simulated {
    match outcome {
        Outcome::Complete(simulated) => simulated,
        Outcome::Interrupted { .. } => panic!("not complete"),
    }
}

#[test]
fn rows_do_not_depend_on_threads_or_shards() {
    let never = StopToken::new();
    let model = LinearGaussian::default();
    let whole = complete(go(&model, 1000, None, &never, None).unwrap()).table;
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(whole, complete(pool.install(|| go(&model, 1000, None, &never, None)).unwrap()).table);
    }
    let parts: Vec<_> = ["1/3", "2/3", "3/3"]
        .iter()
        .map(|&shard| (shard.into(), complete(go(&model, 1000, Some(shard), &never, None).unwrap()).table))
        .collect();
    assert_eq!(parts.iter().map(|(_, table)| table.rows()).collect::<Vec<_>>(), [333, 333, 334]);
    let (merged, warnings) = merge(parts.clone()).unwrap();
    assert_eq!(merged, whole);
    assert!(warnings.is_empty());
    // The same part twice, a part of another table, and overlapping parts.
    let twice = vec![parts[0].clone(), parts[0].clone()];
    assert!(merge(twice).unwrap_err().to_string().contains("same part"));
    let other = complete(go(&TwoMoons::default(), 10, None, &never, None).unwrap()).table;
    let mixed = vec![parts[0].clone(), ("moons.csv".into(), other)];
    assert!(merge(mixed).unwrap_err().to_string().contains("only parts of one table"));
    let half = complete(go(&model, 1000, Some("1/2"), &never, None).unwrap()).table;
    let (_, warnings) = merge(vec![parts[0].clone(), ("half".into(), half)]).unwrap();
    assert!(warnings[0].contains("333 rows occur in two tables"), "{warnings:?}");
}

/// A model that abandons half of its draws, fails on some rows and stops the run at a given call.
struct Moody<'a> {
    inner: TwoMoons,
    outputs: Vec<String>,
    calls: AtomicU64,
    stop_at: u64,
    stop: &'a StopToken,
}

impl<'a> Moody<'a> {
    fn new(stop_at: u64, stop: &'a StopToken) -> Self {
        Self {
            inner: TwoMoons::default(),
            outputs: vec!["y".into()],
            calls: AtomicU64::new(0),
            stop_at,
            stop,
        }
    }
}

impl Simulator for Moody<'_> {
    fn identity(&self) -> String {
        "moody".into()
    }
    fn prior(&self) -> &Prior {
        self.inner.prior()
    }
    fn output_names(&self) -> &[String] {
        &self.outputs
    }
    fn block_rows(&self) -> usize {
        8
    }
    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.stop_at {
            self.stop.stop();
        }
        if theta[0] < 0.0 {
            return Ok(Attempt::Abandoned);
        }
        if theta[1] > 0.9 {
            return Ok(Attempt::Failed(format!("theta_2 = {}", theta[1])));
        }
        outputs[0] = theta[0] + rng.random::<f64>();
        Ok(Attempt::Done)
    }
}

#[test]
fn interrupted_runs_resume_to_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let never = StopToken::new();
    let whole = complete(go(&Moody::new(0, &never), 500, None, &never, None).unwrap());
    assert!(whole.abandoned > 350 && whole.abandoned < 650, "{}", whole.abandoned);
    assert!((10..50).contains(&whole.failures.len()), "{}", whole.failures.len());
    assert_eq!(whole.table.rows() + whole.failures.len(), 500);
    assert!(whole.table.iter().all(|row| row[0] >= 0.0 && row[1] <= 0.9));
    assert!(
        whole.failures.iter().all(|failure| failure.reason == format!("theta_2 = {}", failure.parameters[1]))
    );

    let path = folder.path().join("journal");
    let plan = Plan::at(&path);
    let mut last = 0;
    for stop_at in [90, 200, 150] {
        let stop = StopToken::new();
        let outcome = go(&Moody::new(stop_at, &stop), 500, None, &stop, Some(plan.clone())).unwrap();
        let Outcome::Interrupted { done, rows } = outcome else { panic!("it should have stopped") };
        assert_eq!(rows, 500);
        assert!(done > last && done < 500, "{done} after {last}");
        last = done;
        // A kill in the middle of a write leaves half a record.
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    }
    let again = complete(go(&Moody::new(0, &never), 500, None, &never, Some(plan.clone())).unwrap());
    assert_eq!(again.table, whole.table);
    assert_eq!(again.failures, whole.failures);
    assert_eq!(again.abandoned, whole.abandoned);
    // A journal of other settings is refused.
    let error = go(&Moody::new(0, &never), 501, None, &never, Some(plan)).unwrap_err().to_string();
    assert!(error.contains("other settings"), "{error}");
}

#[test]
fn given_parameters_replace_the_prior() {
    let never = StopToken::new();
    let model = Moody::new(0, &never);
    let names = vec!["theta_1".to_owned(), "theta_2".to_owned()];
    let parameters = Table::new(names, vec![0.5, 0.1, -0.5, 0.1, 0.25, 0.95]).unwrap();
    let how = SimulateSettings::default();
    let simulated = complete(run(&model, &how, Some(&parameters), Run::silent()).unwrap());
    assert_eq!(simulated.table.rows(), 1);
    assert_eq!(&simulated.table.row(0)[..2], [0.5, 0.1]);
    let rows: Vec<u64> = simulated.failures.iter().map(|failure| failure.row).collect();
    assert_eq!(rows, [1, 2]);
    assert!(simulated.failures[0].reason.contains("abandoned it 1000 times"));
}

/// The first 40 draws are hopeless: a table would be given up after 20 of them, a predictive is not.
#[test]
fn a_predictive_outlives_hopeless_draws() {
    let never = StopToken::new();
    let model = Moody::new(0, &never);
    let names = vec!["theta_1".to_owned(), "theta_2".to_owned()];
    let values = (0..50).flat_map(|row| [if row < 40 { -0.5 } else { 0.5 }, 0.1]).collect();
    let parameters = Table::new(names, values).unwrap();
    // However many threads there are, and though the last rows succeed first.
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let given_up = pool.install(|| {
            run(&model, &SimulateSettings::default(), Some(&parameters), Run::silent())
                .unwrap_err()
                .to_string()
        });
        let expected = "all of the first 20 rows failed, row 20 because: the model abandoned it 1000 times";
        assert!(given_up.contains(expected), "{threads} threads: {given_up}");
    }
    model.calls.store(0, Ordering::Relaxed);
    let simulated = complete(run_predictive(&model, &parameters, 0, Run::silent()).unwrap());
    assert_eq!((simulated.table.rows(), simulated.failures.len()), (10, 40));
    assert!(simulated.failures[0].reason.contains("abandoned it 20 times"), "{:?}", simulated.failures[0]);
    assert_eq!(model.calls.load(Ordering::Relaxed), 40 * 20 + 10);
}

#[test]
fn shards_are_checked() {
    for text in ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", ""] {
        assert!(text.parse::<Shard>().unwrap_err().to_string().contains("is not a part"), "{text}");
    }
    let shard: Shard = "2/3".parse().unwrap();
    assert_eq!(shard.range(u64::MAX), 6148914691236517205..12297829382473034410);
    let never = StopToken::new();
    let none = go(&TwoMoons::default(), 2, Some("1/3"), &never, None).unwrap_err().to_string();
    assert!(none.contains("at least 1"), "{none}");
}
