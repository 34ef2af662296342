//! Posteriors that are known, the same bits on any number of threads and after interruptions, refusals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brenier::abc::{AbcMethod, AbcOutcome, AbcSettings, AbcStop, remove_journal, run};
use brenier::simulate::{Attempt, LinearGaussian, Prior, PriorBlock, Simulator, Stream, Streams, TwoMoons};
use brenier::{Journal, Result, Run, StopToken, Table};

fn go<S: Simulator>(simulator: &S, observed: &[f64], settings: &AbcSettings) -> Result<AbcOutcome> {
    run(simulator, observed, settings, None, Run::silent())
}

/// The posterior of y = Aθ + noise within the tolerance: nearly that at y, widened by about ε² in y.
#[test]
fn the_linear_gaussian_posterior_is_found() {
    let model = LinearGaussian::default();
    let observed = [1.4, -0.5, -2.0, 0.7];
    let exact = model.posterior(&observed);
    for (settings, slack) in [
        (AbcSettings { tolerance: Some(0.25), particles: 2000, seed: 1, ..Default::default() }, 0.12),
        (
            AbcSettings {
                tolerance: Some(0.25),
                decay: Some(0.7),
                particles: 2000,
                seed: 2,
                ..Default::default()
            },
            0.12,
        ),
        (
            AbcSettings {
                method: AbcMethod::Rejection,
                tolerance: Some(0.35),
                particles: 500,
                seed: 3,
                ..Default::default()
            },
            0.2,
        ),
        (
            AbcSettings {
                method: AbcMethod::Rejection,
                max_simulations: Some(200_000),
                particles: 500,
                seed: 4,
                ..Default::default()
            },
            0.2,
        ),
    ] {
        let outcome = go(&model, &observed, &settings).unwrap();
        assert_eq!(outcome.stop, AbcStop::Finished);
        let population = outcome.population.unwrap();
        assert_eq!(population.len(), settings.particles);
        let last = outcome.rounds.last().unwrap();
        assert!(population.distances.iter().all(|distance| *distance <= last.tolerance));
        assert!((population.weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        for i in 0..3 {
            let sd = exact.covariance[i][i].sqrt();
            let (mean, spread) = (population.mean()[i], population.sd()[i]);
            assert!((mean - exact.mean[i]).abs() < slack * sd, "{settings:?} {i}: {mean} {}", exact.mean[i]);
            assert!((spread / sd - 1.0).abs() < slack, "{settings:?} {i}: {spread} {sd}");
        }
    }
}

/// Both crescents, each with half of the weight, at the right places.
#[test]
fn two_moons_are_found() {
    let model = TwoMoons::default();
    let observed = [0.1, -0.2];
    let settings = AbcSettings { tolerance: Some(0.03), particles: 1500, seed: 5, ..Default::default() };
    let population = go(&model, &observed, &settings).unwrap().population.unwrap();
    let streams = Streams::new(9, 0);
    let exact: Vec<[f64; 2]> =
        (0..4000).map(|i| model.posterior_draw(observed, &mut streams.get(i)).unwrap()).collect();
    let features = |u: &[f64]| {
        let (sum, difference) = ((u[0] + u[1]).abs(), u[1] - u[0]);
        [f64::from(u8::from(u[0] + u[1] > 0.0)), sum, sum * sum, difference, difference * difference]
    };
    for f in 0..5 {
        let mean = exact.iter().map(|u| features(u)[f]).sum::<f64>() / 4000.0;
        let variance = exact.iter().map(|u| (features(u)[f] - mean).powi(2)).sum::<f64>() / 4000.0;
        let got: f64 = population
            .coordinates
            .chunks_exact(2)
            .zip(&population.weights)
            .map(|(u, w)| w * features(u)[f])
            .sum();
        assert!((got - mean).abs() < 0.12 * variance.sqrt(), "{f}: {got} {mean} {variance}");
    }
}

/// Weights must undo the kernel: with outputs that say nothing the posterior is the prior, to its very edges.
#[test]
fn without_information_the_prior_comes_back() {
    struct Noise(Prior, Vec<String>);
    impl Simulator for Noise {
        fn identity(&self) -> String {
            "noise".into()
        }
        fn prior(&self) -> &Prior {
            &self.0
        }
        fn output_names(&self) -> &[String] {
            &self.1
        }
        fn simulate(&self, _: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
            outputs[0] = rand::RngExt::random::<f64>(rng);
            Ok(Attempt::Done)
        }
    }
    let blocks = [
        PriorBlock::LogUniform { name: "a".into(), low: 0.1, high: 10.0 },
        PriorBlock::Normal { name: "b".into(), mean: 3.0, sd: 0.5 },
    ];
    let model = Noise(Prior::new(&blocks, "".as_ref()).unwrap(), vec!["y".into()]);
    let settings = AbcSettings { tolerance: Some(0.1), particles: 3000, pilot: 3000, ..Default::default() };
    let outcome = go(&model, &[0.5], &settings).unwrap();
    assert!(outcome.rounds.len() > 3);
    let population = outcome.population.unwrap();
    let (mean, sd) = (population.mean(), population.sd());
    let flat = 100_f64.ln() / 12_f64.sqrt();
    assert!(mean[0].abs() < 0.1 * flat && (sd[0] / flat - 1.0).abs() < 0.06, "{mean:?} {sd:?}");
    assert!((mean[1] - 3.0).abs() < 0.05 && (sd[1] / 0.5 - 1.0).abs() < 0.08, "{mean:?} {sd:?}");
    // Uniform up to its bounds: a tenth of the weight in each tenth.
    let mut parts = [0.0; 10];
    for (u, w) in population.coordinates.chunks_exact(2).zip(&population.weights) {
        parts[(((u[0] / 10_f64.ln() + 1.0) * 5.0) as usize).min(9)] += w;
    }
    assert!(parts.iter().all(|part| (part - 0.1_f64).abs() < 0.03), "{parts:?}");
}

/// Stops the run after some simulations.
struct Stopping<'a> {
    inner: TwoMoons,
    calls: AtomicU64,
    stop_at: u64,
    stop: &'a StopToken,
}

fn stopping(stop_at: u64, stop: &StopToken) -> Stopping<'_> {
    Stopping { inner: TwoMoons::default(), calls: AtomicU64::new(0), stop_at, stop }
}

impl Simulator for Stopping<'_> {
    fn identity(&self) -> String {
        self.inner.identity()
    }
    fn prior(&self) -> &Prior {
        self.inner.prior()
    }
    fn output_names(&self) -> &[String] {
        self.inner.output_names()
    }
    fn simulate(&self, theta: &[f64], rng: &mut Stream, outputs: &mut [f64]) -> Result<Attempt> {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.stop_at {
            self.stop.stop();
        }
        if theta[0] > 0.8 {
            return Ok(Attempt::Abandoned);
        }
        self.inner.simulate(theta, rng, outputs)
    }
}

#[test]
fn threads_and_interruptions_do_not_change_a_bit() {
    let observed = [0.1, -0.2];
    let folder = tempfile::tempdir().unwrap();
    for method in [AbcMethod::Smc, AbcMethod::Rejection] {
        let settings = AbcSettings {
            method,
            tolerance: Some(0.1),
            particles: 300,
            pilot: 1000,
            resample_below: 1.0,
            seed: 6,
            ..Default::default()
        };
        let stop = StopToken::new();
        let mut outcomes = Vec::new();
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            outcomes.push(pool.install(|| go(&stopping(0, &stop), &observed, &settings)).unwrap());
        }
        let whole = &outcomes[0];
        assert!(whole.abandoned > 0);
        if method == AbcMethod::Smc {
            assert!(whole.rounds.iter().any(|round| round.resampled), "{:?}", whole.rounds);
        }
        for other in &outcomes[1..] {
            assert_eq!(other.population, whole.population);
            assert_eq!(other.rounds, whole.rounds);
        }
        // Interrupted in the pilot, then repeatedly, each time resumed.
        let path = folder.path().join(format!("{method:?}.checkpoint"));
        let plan = Journal { path, every: Duration::ZERO, resume: true, keep: false };
        let mut interruptions = 0;
        let resumed = loop {
            let stop = StopToken::new();
            let model = stopping(700 + 1500 * interruptions, &stop);
            let surrounding = Run::silent().stop(&stop).journal(plan.clone());
            let outcome = run(&model, &observed, &settings, None, surrounding).unwrap();
            if outcome.stop == AbcStop::Finished {
                break outcome;
            }
            assert_eq!(outcome.stop, AbcStop::Interrupted);
            interruptions += 1;
        };
        assert!(interruptions >= 2, "{interruptions}");
        assert_eq!(resumed.population, whole.population);
        assert_eq!(resumed.rounds, whole.rounds);
        assert_eq!(resumed.simulations, whole.simulations);
        // The checkpoint of another observation is refused.
        let surrounding = Run::silent().journal(plan.clone());
        let error =
            run(&stopping(0, &stop), &[0.1, -0.3], &settings, None, surrounding).unwrap_err().to_string();
        assert!(error.contains("other settings or other data"), "{error}");
        remove_journal(&plan);
        assert!(!plan.path.exists());
    }
}

#[test]
fn budgets_end_a_run_with_the_last_round() {
    let settings =
        AbcSettings { max_simulations: Some(8000), particles: 500, pilot: 1000, ..Default::default() };
    let outcome = go(&TwoMoons::default(), &[0.1, -0.2], &settings).unwrap();
    assert_eq!(outcome.stop, AbcStop::Simulations);
    assert!(outcome.simulations >= 8000 && outcome.simulations < 20_000, "{}", outcome.simulations);
    assert!(outcome.rounds.len() >= 2);
    assert_eq!(outcome.population.unwrap().len(), 500);
    let settings = AbcSettings { minutes: Some(1e-9), ..settings };
    let outcome = go(&TwoMoons::default(), &[0.1, -0.2], &settings).unwrap();
    assert_eq!(outcome.stop, AbcStop::Minutes);
}

#[test]
fn bad_settings_are_refused() {
    let good = AbcSettings { tolerance: Some(0.5), particles: 50, pilot: 100, ..Default::default() };
    let refused =
        |settings: AbcSettings| go(&TwoMoons::default(), &[0.1, -0.2], &settings).unwrap_err().to_string();
    for (settings, says) in [
        (AbcSettings::default(), "say when to end"),
        (AbcSettings { method: AbcMethod::Rejection, minutes: Some(1.0), ..Default::default() }, "nearest"),
        (AbcSettings { particles: 1, ..good.clone() }, "particles"),
        (AbcSettings { tolerance: Some(0.0), ..good.clone() }, "tolerance"),
        (AbcSettings { quantile: 1.0, ..good.clone() }, "quantile"),
        (AbcSettings { decay: Some(1.0), ..good.clone() }, "decay"),
        (AbcSettings { pilot: 1, ..good.clone() }, "pilot"),
    ] {
        let message = refused(settings);
        assert!(message.contains(says), "{message}");
    }
    let error = go(&TwoMoons::default(), &[0.1], &good).unwrap_err().to_string();
    assert!(error.contains("2 finite numbers"), "{error}");
    let error = go(&TwoMoons::default(), &[0.1, f64::NAN], &good).unwrap_err().to_string();
    assert!(error.contains("2 finite numbers"), "{error}");
    // Scales from a table instead of a pilot; a constant output is left out and told.
    let scale = Table::new(vec!["y_1".into(), "y_2".into()], vec![1.0, 1.0, 2.0, 1.0]).unwrap();
    let outcome = run(&TwoMoons::default(), &[0.1, -0.2], &good, Some(&scale), Run::silent()).unwrap();
    assert_eq!(outcome.scale, [0.5, 0.0]);
    assert!(outcome.warnings[0].contains("y_2"), "{:?}", outcome.warnings);
}
