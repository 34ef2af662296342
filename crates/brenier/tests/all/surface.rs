//! The library as a user meets it: fits in one sentence, prepared tables, ensembles, named draws, densities, bytes.

use std::time::Duration;

use brenier::check::Check;
use brenier::data::Table;
use brenier::map::{Method, SampleSettings};
use brenier::simulate::{Prior, Program, Simulator};
use brenier::train::{Stop, TrainEvent, TrainSettings};
use brenier::transform::Support;
use brenier::{
    Draws, Error, Event, Fit, FitSettings, Fitted, Journal, Observer, Posterior, Prepared, Run, StopToken,
    example, fit_split,
};
use rand::RngExt;

fn quick(method: Method) -> FitSettings {
    FitSettings {
        method: method.defaults().with("feature_width", 8).unwrap_or(method.defaults()),
        target: Some("x1,x2".parse().unwrap()),
        given: Some("y".parse().unwrap()),
        train: TrainSettings { epochs: 3, ..Default::default() },
        ..Default::default()
    }
}

/// Up to the tolerance to which draws are solved.
fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

fn run(prepared: &Prepared, settings: &FitSettings, journal: Option<Journal>) -> Fitted {
    prepared.fit(settings, Run::silent().journal(journal)).unwrap()
}

#[test]
fn a_fit_is_a_sentence_and_draws_know_their_names() {
    let pairs = example::simulate(500, 0);
    let posterior = Fit::of("x1,x2").given("rest").quick().seed(1).epochs(3).run(&pairs).unwrap();
    let draws = posterior.at(&[0.4]).unwrap().seed(2).sample(300).unwrap();
    assert_eq!((draws.names(), draws.len()), (posterior.target_names(), 300));
    let column = draws.column("x2").unwrap();
    assert!(draws.rows().zip(&column).all(|(row, value)| row[1] == *value));
    assert!(draws.column("x3").is_err());
    let (low, high) = (draws.quantile(0.05), draws.quantile(0.95));
    assert!(low[0] < high[0] && low[1] < high[1]);
    let text = draws.to_string();
    for word in ["mean", "sd", "5 %", "95 %", "x1", "x2"] {
        assert!(text.contains(word), "{text}");
    }
    // Observations by the columns of a table, several at once.
    let observed = Table::new(vec!["z".into(), "y".into()], vec![9.0, 0.4, 9.0, -0.2]).unwrap();
    let both = posterior.at(&observed).unwrap().seed(2).sample(300).unwrap();
    assert!(close(&both.values[..600], &draws.values));
    assert!(both.to_string().contains("observation 2"));
    assert!(posterior.at(&[1.0, 2.0, 3.0][..0]).is_err());
    let other = Table::new(vec!["z".into()], vec![9.0]).unwrap();
    assert!(posterior.at(&other).unwrap_err().to_string().contains("\"y\""));
    assert!(Fit::of("x1,").given("rest").run(&pairs).is_err());
    assert!(Fit::of("x1").support("x1", Support::Log).given("y").run(&pairs).is_err(), "x1 is negative");
}

#[test]
fn outside_of_a_support_the_density_is_zero_and_gradients_are_in_the_users_units() {
    let source = example::simulate(500, 0);
    let values =
        source.iter().flat_map(|row| [row[0].exp(), 1.0 / (1.0 + (-row[1]).exp()), row[2]]).collect();
    let pairs = Table::new(vec!["rate".into(), "share".into(), "y".into()], values).unwrap();
    let settings = FitSettings {
        target: Some("rate,share".parse().unwrap()),
        support: vec!["rate=log".parse().unwrap(), "share=interval(0,1)".parse().unwrap()],
        ..quick(Method::PcpMap)
    };
    let posterior = Fit::with_settings(settings).run(&pairs).unwrap();
    let at = posterior.at(&[0.3]).unwrap();
    let found = at.log_density(&[-1.0, 0.5, 1.0, 0.5, 1.0, 1.5]).unwrap();
    assert_eq!(found.user[0], f64::NEG_INFINITY);
    assert!(found.user[1].is_finite() && found.standardised[1].is_finite());
    assert_eq!(found.user[2], f64::NEG_INFINITY);
    assert!(at.log_density(&[f64::NAN, 0.5]).is_err());
    let x = [0.8, 0.35];
    let (density, gradient) = at.log_density_gradient(&x).unwrap();
    assert!((density[0] - at.log_density(&x).unwrap().user[0]).abs() < 1e-12);
    for j in 0..2 {
        let moved = |h: f64| {
            let mut x = x;
            x[j] += h;
            at.log_density(&x).unwrap().user[0]
        };
        let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        assert!((slope - gradient[j]).abs() < 1e-5 * (1.0 + slope.abs()), "{slope} {}", gradient[j]);
    }
    let (density, gradient) = at.log_density_gradient(&[-1.0, 0.5]).unwrap();
    assert!(density[0] == f64::NEG_INFINITY && gradient[0].is_nan());
}

/// Nothing said: trials choose, and the model says so. A method, its settings or `quick`: one training of it.
#[test]
fn trials_choose_where_no_method_is_named() {
    let table = example::simulate(200, 0);
    let chosen = Fit::of("x1,x2").given("y").epochs(1).run(&table).unwrap();
    let choice = chosen.info().choice.as_ref().unwrap();
    assert_eq!(chosen.info().settings.method, choice.trials[choice.chosen].method);
    for fit in [
        Fit::of("x1,x2").quick(),
        Fit::of("x1,x2").method(Method::PcpMap),
        Fit::of("x1,x2").method_settings(Method::PcpMap.defaults()),
    ] {
        let plain = fit.given("y").epochs(1).run(&table).unwrap();
        assert!(plain.info().choice.is_none() && plain.method() == Method::PcpMap);
    }
}

/// x | y ~ N(½ log y, ½²) is linear in log y, and nearly hidden in y itself: a linear map finds it where it sees y on an asinh scale.
#[test]
fn columns_that_span_orders_of_magnitude_are_seen_on_an_asinh_scale() {
    let mut rng = brenier::statistics::random::stream(7, 0);
    let mut normal = || -> f64 { rng.sample(rand_distr::StandardNormal) };
    let values: Vec<f64> = (0..3000)
        .flat_map(|_| {
            let log = 3.0 * normal();
            [0.5 * log + 0.5 * normal(), log.exp()]
        })
        .collect();
    let pairs = Table::new(vec!["x".into(), "y".into()], values).unwrap();
    let fit = |asinh: &str| {
        let fit = Fit::of("x").given("y").method(Method::Gaussian).asinh(asinh);
        fit.run(&pairs).unwrap()
    };
    let nll = |posterior: &Posterior| posterior.info().training.best_valid_nll;
    let (found, plain) = (fit("auto"), fit("none"));
    let entropy = 0.5 * (std::f64::consts::TAU.ln() + 1.0) + (0.5_f64 / 2.5_f64.sqrt()).ln();
    assert!((nll(&found) - entropy).abs() < 0.2, "{} {entropy}", nll(&found));
    assert!(nll(&plain) > nll(&found) + 0.5, "{} {}", nll(&plain), nll(&found));
    assert_eq!(fit("y").info().given_transform, found.info().given_transform);
    let listed: Vec<(&str, bool)> = found.info().given_transform.asinh().collect();
    assert_eq!(listed, [("y", false)]);
    assert!(found.description().contains(&("asinh", "y".to_owned())));
    // The file knows the scale, and observations of any size have an answer.
    let again = Posterior::from_bytes(&found.to_bytes().unwrap()).unwrap();
    for y in [0.0, 1e-300, 3.0, 1e12, -5.0, f64::MAX] {
        let draws = |posterior: &Posterior| posterior.at(&[y]).unwrap().sample(5).unwrap();
        assert_eq!(draws(&found), draws(&again), "{y}");
    }
    let draws = found.at(&[100.0]).unwrap().sample(4000).unwrap();
    let mean = brenier::statistics::mean(&draws.rows().map(|row| row[0]).collect::<Vec<_>>());
    assert!((mean - 0.5 * 100.0_f64.ln()).abs() < 0.1, "{mean}");
    let error = Fit::of("x").given("y").asinh("z").run(&pairs).unwrap_err().to_string();
    assert!(error.contains("asinh") && error.contains('z'), "{error}");
}

#[test]
fn models_go_to_bytes_and_back() {
    let posterior = Fit::of("x1,x2").given("y").quick().epochs(2).run(&example::simulate(300, 0)).unwrap();
    let bytes = posterior.to_bytes().unwrap();
    let again = Posterior::from_bytes(&bytes).unwrap();
    assert_eq!(again.to_bytes().unwrap(), bytes);
    let draws = |posterior: &Posterior| posterior.at(&[0.1]).unwrap().sample(20).unwrap();
    assert_eq!(draws(&posterior), draws(&again));
    assert!(Posterior::from_bytes(&bytes[..bytes.len() - 1]).is_err());
}

#[test]
fn a_stop_token_ends_a_fit_from_elsewhere() {
    struct Stopper(StopToken);
    impl Observer for Stopper {
        fn event(&mut self, _event: &Event) -> brenier::Result<()> {
            Ok(())
        }
        fn stepped(&mut self, step: u64) {
            if step == 3 {
                self.0.stop();
            }
        }
    }
    let stop = StopToken::new();
    let mut stopper = Stopper(stop.clone());
    let fit = Fit::of("x1,x2").given("y").quick().stop(&stop).observer(&mut stopper);
    let fitted = fit.run_fully(&example::simulate(500, 0)).unwrap();
    assert!(stop.is_stopped() && !fitted.validated);
    assert_eq!(fitted.posterior.info().training.steps, 3);
}

/// What a program with threads hands from one to another.
#[test]
fn what_is_kept_can_go_to_other_threads() {
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<Posterior>();
    sendable::<Prepared>();
    sendable::<StopToken>();
    sendable::<Program>();
    sendable::<Prior>();
    sendable::<Check>();
    sendable::<Draws>();
    sendable::<Error>();
    sendable::<Journal>();
    sendable::<Box<dyn Simulator>>();
}

/// From another thread, in the middle of a call that would take hours, and before it.
#[test]
fn a_stop_token_ends_long_calls_of_a_posterior() {
    let joint =
        Fit::of("x1,x2").given("y").quick().epochs(1).joint().run(&example::simulate(300, 0)).unwrap();
    let stop = StopToken::new();
    let at = joint.at(&vec![0.1; 20_000]).unwrap().stop(&stop);
    let ended = std::thread::scope(|scope| {
        let call = scope.spawn(|| at.summarise(200_000));
        std::thread::sleep(Duration::from_millis(100));
        stop.stop();
        call.join().unwrap()
    });
    assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
    assert!(matches!(at.sample(1), Err(Error::Stopped(_))));
    assert!(matches!(at.mode(), Err(Error::Stopped(_))));
    let together = joint.sample_joint_until(10, 0, &SampleSettings::default(), &stop);
    assert!(matches!(together, Err(Error::Stopped(_))));
    assert!(matches!(at.log_density(&vec![0.1; 40_000]), Err(Error::Stopped(_))));
    assert!(matches!(at.log_density_gradient(&vec![0.1; 40_000]), Err(Error::Stopped(_))));
    assert!(matches!(joint.log_density_joint_until(&[0.1, 0.2], &[0.3], &stop), Err(Error::Stopped(_))));
    stop.set(false);
    let draws = |at: brenier::At<'_>| at.sample(20).unwrap();
    assert_eq!(draws(joint.at(&[0.1]).unwrap().stop(&stop)), draws(joint.at(&[0.1]).unwrap()));
}

/// More rows than are scored between two looks at a token: every row has the density that it has in other company.
#[test]
fn densities_of_many_rows_are_those_of_few() {
    for method in [Method::PcpMap, Method::Npe, Method::CotFlow, Method::Gaussian] {
        let settings = quick(method);
        let posterior = Fit::with_settings(settings).run(&example::simulate(300, 0)).unwrap();
        let table = example::simulate(500, 1);
        let (x, y): (Vec<f64>, Vec<f64>) = (
            table.iter().flat_map(|row| [row[0], row[1]]).collect(),
            table.iter().map(|row| row[2]).collect(),
        );
        let few = posterior.log_density_gradient(&x, &y).unwrap();
        let many = posterior.log_density_gradient(&x.repeat(66), &y.repeat(66)).unwrap();
        assert_eq!(many.0[..500], few.0, "{method:?}");
        assert_eq!(many.0[32_500..], few.0, "{method:?}");
        assert_eq!(many.1[65_000..], few.1, "{method:?}");
        let densities = posterior.log_density(&x.repeat(66), &y.repeat(66)).unwrap();
        assert_eq!(densities.user[32_500..], posterior.log_density(&x, &y).unwrap().user, "{method:?}");
    }
}

/// More draws than are made between two looks at a token: the first of them are those of a shorter call.
#[test]
fn draws_of_a_long_call_are_those_of_a_short_one() {
    let posterior = Fit::of("x1,x2").given("y").quick().epochs(1).run(&example::simulate(300, 0)).unwrap();
    let draws = |each: usize| posterior.at(&[0.1, -0.4, 0.3]).unwrap().seed(3).sample(each).unwrap();
    let (long, short) = (draws(20_000), draws(10_000));
    assert_eq!((long.len(), long.iterations.len(), long.residuals.len()), (60_000, 60_000, 60_000));
    assert_eq!((long.observation[19_999], long.observation[20_000], long.observation[59_999]), (0, 1, 2));
    for (long, short) in long.values.chunks_exact(40_000).zip(short.values.chunks_exact(20_000)) {
        assert!(close(&long[..20_000], short));
    }
}

/// Fault (a): a row outside the split is not even looked at.
#[test]
fn rows_outside_of_the_split_may_violate_a_support() {
    let mut values: Vec<f64> =
        example::simulate(200, 0).iter().flat_map(|row| [row[0].exp(), row[2]]).collect();
    values.extend([-5.0, 0.0]);
    let table = Table::new(vec!["x".into(), "y".into()], values).unwrap();
    let settings = FitSettings {
        target: Some("x".parse().unwrap()),
        support: vec!["x=log".parse().unwrap()],
        ..quick(Method::PcpMap)
    };
    let fit = |valid: &[u32]| {
        let train: Vec<u32> = (0..150).collect();
        fit_split(&table, &train, valid, &settings, Run::silent())
    };
    assert!(fit(&(150..200).collect::<Vec<u32>>()).is_ok());
    let error = fit(&(150..201).collect::<Vec<u32>>()).err().unwrap().to_string();
    assert!(error.contains("row 201"), "{error}");
}

/// Fault (b): a checkpoint of another split is refused.
#[test]
fn a_checkpoint_belongs_to_its_split() {
    let table = example::simulate(300, 0);
    let folder = tempfile::tempdir().unwrap();
    let settings = quick(Method::PcpMap);
    let plan =
        |resume: bool| Journal { path: folder.path().join("c"), every: Duration::ZERO, resume, keep: true };
    let split = |first: u32| -> (Vec<u32>, Vec<u32>) { (0..300).partition(|row| row % 10 != first) };
    let (train, valid) = split(0);
    let prepared = Prepared::with_split(&table, &train, &valid, &settings).unwrap();
    let first = run(&prepared, &settings, Some(plan(false))).posterior;
    let again = run(&prepared, &settings, Some(plan(true))).posterior;
    assert_eq!(first.to_bytes().unwrap(), again.to_bytes().unwrap());
    let (train, valid) = split(1);
    let other = Prepared::with_split(&table, &train, &valid, &settings).unwrap();
    let error = other.fit(&settings, Run::silent().journal(plan(true))).err().unwrap().to_string();
    assert!(error.contains("other settings or other data"), "{error}");
}

/// Fault (c): columns that were not selected do not change what the model was trained on.
#[test]
fn the_hash_of_the_data_is_that_of_the_selected_columns() {
    let table = example::simulate(100, 0);
    let names = ["noise", "y", "x2", "x1"].map(str::to_owned).to_vec();
    let values = table.iter().flat_map(|row| [7.0, row[0], row[2], row[1]]).collect();
    let wider = Table::new(names, values).unwrap();
    let hash = |table: &Table| {
        let fitted =
            run(&Prepared::new(table, &quick(Method::Gaussian)).unwrap(), &quick(Method::Gaussian), None);
        fitted.posterior.info().data_sha256.clone()
    };
    assert_eq!(hash(&table), hash(&wider));
}

/// Faults (d) and (e): foreign settings are refused before a table is read.
#[test]
fn settings_are_checked_without_a_table() {
    for text in [
        "[method]\ntime_steps = 4",
        "[method]\nname = \"gaussian\"\ndepth = 2",
        "members = 0",
        "bootstrap = true",
    ] {
        let refused = match toml::from_str::<FitSettings>(text) {
            Err(_) => true,
            Ok(settings) => settings.validate().is_err(),
        };
        assert!(refused, "{text}");
    }
    assert!(quick(Method::CotFlow).validate().is_ok());
}

#[test]
fn a_prepared_table_serves_many_trainings_of_the_same_columns() {
    let table = example::simulate(300, 0);
    let settings = quick(Method::PcpMap);
    let prepared = Prepared::new(&table, &settings).unwrap();
    let direct = Fit::with_settings(settings.clone()).run(&table).unwrap();
    assert_eq!(run(&prepared, &settings, None).posterior.to_bytes().unwrap(), direct.to_bytes().unwrap());
    let flow = FitSettings { method: quick(Method::CotFlow).method, ..settings.clone() };
    assert!(prepared.serves(&flow));
    assert_eq!(run(&prepared, &flow, None).posterior.method(), Method::CotFlow);
    let other = FitSettings { scaling: "robust".parse().unwrap(), ..settings };
    assert!(!prepared.serves(&other));
}

#[test]
fn every_model_knows_what_the_baseline_scores() {
    let table = example::simulate(600, 0);
    let model = Fit::with_settings(quick(Method::PcpMap)).run(&table).unwrap();
    let gaussian = Fit::with_settings(quick(Method::Gaussian)).run(&table).unwrap();
    let baseline = model.info().baseline.as_ref().unwrap();
    assert_eq!(baseline.method.method(), Method::Gaussian);
    assert_eq!(baseline.valid_nll, gaussian.info().training.best_valid_nll);
    assert!(gaussian.info().baseline.is_none());
}

#[test]
fn an_ensemble_is_a_mixture_of_its_members() {
    let table = example::simulate(600, 0);
    for (method, bootstrap) in [(Method::PcpMap, false), (Method::CotFlow, true), (Method::Gaussian, false)] {
        let settings = FitSettings { members: Some(3), bootstrap, ..quick(method) };
        let model = Fit::with_settings(settings.clone()).run(&table).unwrap();
        assert_eq!((model.members().len(), model.maps().len()), (3, 3));
        // Density: the mean of the members' densities, in standardised units; its gradient by differences.
        let at = model.at(&[0.2]).unwrap();
        let x = [0.3, -0.1];
        let mut standardised = x;
        model.info().target_transform.forward(&x, &mut standardised).unwrap();
        let mut given = [0.0];
        model.info().given_transform.forward(&[0.2], &mut given).unwrap();
        let densities = model.maps().map(|map| {
            let mut density = [0.0];
            map.double().log_density(&standardised, &given, &mut density).unwrap();
            density[0].exp()
        });
        let mean = densities.sum::<f64>() / 3.0;
        let found = at.log_density(&x).unwrap();
        assert!((found.standardised[0] - mean.ln()).abs() < 1e-9);
        let (_, gradient) = at.log_density_gradient(&x).unwrap();
        for j in 0..2 {
            let moved = |h: f64| {
                let mut x = x;
                x[j] += h;
                at.log_density(&x).unwrap().user[0]
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((slope - gradient[j]).abs() < 1e-4 * (1.0 + slope.abs()), "{slope} {}", gradient[j]);
        }
        // Draws come from all members, and do not depend on other observations.
        let draws = at.sample(600).unwrap();
        let two = model.at(&[0.2, 0.9]).unwrap().sample(600).unwrap();
        assert!(close(&draws.values, &two.values[..1200]));
        let z_of = |map: &dyn brenier::map::TransportMap, row: &[f64]| {
            let mut x = [0.0; 2];
            model.info().target_transform.forward(row, &mut x).unwrap();
            let (mut z, mut log_det) = ([0.0; 2], [0.0]);
            map.double().forward(&x, &given, &mut z, &mut log_det).unwrap();
            z
        };
        let single = Fit::with_settings(FitSettings { members: None, bootstrap: false, ..settings.clone() });
        let reference = single.run(&table).unwrap().at(&[0.2]).unwrap().sample(600).unwrap();
        assert_eq!(reference.len(), draws.len());
        let first = model.maps().next().unwrap();
        let spread: f64 = draws.rows().map(|row| z_of(first, row)[0].powi(2)).sum::<f64>() / 600.0;
        assert!((0.5..2.0).contains(&spread), "{spread}");
        // Members agree or not, within bounds; a single map cannot disagree.
        let disagreement = model.disagreement(&[0.2, 5.0], 2, 0).unwrap();
        assert!(
            disagreement.iter().all(|&nats| (0.0..3.0_f64.ln() + 0.1).contains(&nats)),
            "{disagreement:?}"
        );
        assert!(disagreement[0] > 0.0);
        // Saved, loaded, and trained again on one thread: the same bits.
        let bytes = model.to_bytes().unwrap();
        assert_eq!(Posterior::from_bytes(&bytes).unwrap().to_bytes().unwrap(), bytes);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let again = pool.install(|| Fit::with_settings(settings).run(&table).unwrap());
        assert_eq!(again.to_bytes().unwrap(), bytes);
        let mode = at.mode().unwrap();
        assert!(mode[0].log_density >= found.user[0]);
        assert!(at.settings(SampleSettings { residuals: true, ..Default::default() }).sample(5).is_ok());
    }
}

#[test]
fn every_row_trains_all_members_but_one() {
    // With folds the validation rows of all members are all rows, each once.
    let table = example::simulate(103, 0);
    let settings = FitSettings { members: Some(5), ..quick(Method::Gaussian) };
    let model = Fit::with_settings(settings).run(&table).unwrap();
    let rows = |of: fn(&brenier::TrainingSummary) -> usize| -> usize {
        model.members().iter().map(|member| of(&member.training)).sum()
    };
    assert_eq!((rows(|training| training.valid_rows), rows(|training| training.train_rows)), (103, 4 * 103));
}

/// Interrupted and resumed, an ensemble ends in the same bits, and nothing is left over.
#[test]
fn an_ensemble_is_resumed_to_the_same_bits() {
    struct Stopper(StopToken);
    impl Observer for Stopper {
        fn event(&mut self, event: &Event) -> brenier::Result<()> {
            if matches!(event.get(), Some(TrainEvent::Member { .. })) {
                self.0.stop();
            }
            Ok(())
        }
    }
    let table = example::simulate(400, 0);
    let settings = FitSettings { members: Some(4), joint: true, ..quick(Method::PcpMap) };
    let whole = Fit::with_settings(settings.clone()).run(&table).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plan = Journal { path: folder.path().join("c"), every: Duration::ZERO, resume: true, keep: false };
    let stop = StopToken::new();
    let mut stopper = Stopper(stop.clone());
    let fit = Fit::with_settings(settings.clone()).stop(&stop).observer(&mut stopper);
    let cut = fit.journal(plan.clone()).run(&table).unwrap();
    assert!(cut.to_bytes().unwrap() != whole.to_bytes().unwrap());
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 0);
    let resumed = Fit::with_settings(settings).journal(plan).run(&table).unwrap();
    assert_eq!(resumed.to_bytes().unwrap(), whole.to_bytes().unwrap());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What members report comes to the run's observer while they train, on the thread of the call, and changes nothing.
#[test]
fn members_are_observed_while_they_train() {
    let table = example::simulate(400, 0);
    let settings = FitSettings { members: Some(3), ..quick(Method::PcpMap) };
    let here = std::thread::current().id();
    let mut seen = vec![0; 3];
    let mut last = 0.0;
    let mut observer = |event: &Event| {
        assert_eq!(std::thread::current().id(), here);
        if let Some(TrainEvent::PartValidated { number, of: 3, done, progress }) = event.get() {
            assert!(*done >= last && *done <= 1.0 && progress.valid_nll.is_finite());
            (seen[number - 1], last) = (progress.step, *done);
        }
        Ok(())
    };
    let observed = Fit::with_settings(settings.clone()).observer(&mut observer).run(&table).unwrap();
    assert!(seen.iter().all(|step| *step > 0), "{seen:?}");
    let silent = Fit::with_settings(settings.clone()).run(&table).unwrap();
    assert_eq!(observed.to_bytes().unwrap(), silent.to_bytes().unwrap());
    let mut failing = |event: &Event| match event.get() {
        Some(TrainEvent::PartValidated { .. }) => Err(brenier::Error::Numerical("enough".to_owned())),
        _ => Ok(()),
    };
    let error = Fit::with_settings(settings).observer(&mut failing).run(&table).unwrap_err().to_string();
    assert!(error.contains("enough"), "{error}");
}

/// A stop leaves the members that were validated, as an ensemble of their own.
#[test]
fn a_stop_keeps_the_members_that_were_validated() {
    let table = example::simulate(400, 0);
    let mut settings = FitSettings { members: Some(4), ..quick(Method::PcpMap) };
    (settings.train.epochs, settings.train.patience) = (400, Some(1000));
    let stop = StopToken::new();
    let mut observer = |event: &Event| {
        if matches!(event.get(), Some(TrainEvent::PartValidated { number: 2, .. })) {
            stop.stop();
        }
        Ok(())
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let fit = Fit::with_settings(settings).stop(&stop).observer(&mut observer);
    let fitted = pool.install(|| fit.run_fully(&table)).unwrap();
    let header = fitted.posterior.info();
    assert!(fitted.validated && header.training.stop == Stop::Interrupted);
    assert_eq!(header.members.iter().map(|member| member.weight).collect::<Vec<_>>(), [0.5, 0.5]);
    assert_eq!(header.members[0].training.stop, Stop::Epochs);
    let kept = Posterior::from_bytes(&fitted.posterior.to_bytes().unwrap()).unwrap();
    assert_eq!(kept.members().len(), 2);
}

/// An observer that fails ends the fit with its own error.
#[test]
fn an_observer_may_fail() {
    let mut observer = |event: &Event| match event.get() {
        Some(TrainEvent::Validated(_)) => Err(brenier::Error::Numerical("enough".to_owned())),
        _ => Ok(()),
    };
    let fit = Fit::of("x1,x2").given("y").quick().epochs(20).observer(&mut observer);
    let error = fit.run(&example::simulate(500, 0)).unwrap_err().to_string();
    assert!(error.contains("enough"), "{error}");
}
