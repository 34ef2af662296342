//! What every method of the list promises, checked on a model that was fitted with it.

use std::path::Path;

use brenier::data::Table;
use brenier::map::method::Problem;
use brenier::map::{Method, MethodSettings, SampleSettings};
use brenier::train::{Stop, TrainSettings};
use brenier::{Event, FitSettings, Journal, ModeSettings, Observer, Posterior, Run, StopToken, demo, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Every method of the list, small, with both flows of neural posterior estimation and both Gaussians.
fn small() -> Vec<MethodSettings> {
    let mut all = Vec::new();
    for &method in Method::ALL {
        let mut settings = method.defaults();
        for (name, value) in [("feature_width", 12), ("hidden_width", 12), ("max_terms", 12)] {
            settings = settings.with(name, value).unwrap_or(settings);
        }
        all.extend(settings.with("flow", "maf").ok());
        all.extend(settings.with("covariance", "log-affine").ok());
        all.push(settings);
    }
    all
}

fn quick(method: &MethodSettings, target: &str, given: &str) -> FitSettings {
    FitSettings {
        method: method.clone(),
        target: Some(target.parse().unwrap()),
        given: Some(given.parse().unwrap()),
        train: TrainSettings { epochs: 3, ..Default::default() },
        seed: 3,
        ..Default::default()
    }
}

fn fitted(table: Table, method: Method, joint: bool) -> Posterior {
    let method = method.defaults();
    let method = method.with("feature_width", 12).unwrap_or(method);
    let settings = FitSettings { joint, ..quick(&method, "x1,x2", "y") };
    fit(&table, &settings, Run::silent()).unwrap().posterior
}

/// Rows of standardised (x, y) close to where data are.
fn rows(model: &Posterior, count: usize) -> (Vec<f64>, Vec<f64>) {
    let (n, m) = (model.map().target_dim(), model.map().given_dim());
    let wave = |i: usize| (1.7 * i as f64).sin();
    ((0..count * n).map(wave).collect(), (0..count * m).map(|i| 0.8 * wave(3 * i + 1)).collect())
}

#[test]
fn every_method_keeps_what_a_map_promises() {
    for &method in Method::ALL {
        let model = fitted(demo::simulate(600, 0), method, false);
        let map = model.map();
        let (x, y) = rows(&model, 20);
        let (n, name) = (map.target_dim(), method.name());
        assert_eq!((n, map.given_dim()), (2, 1));

        // log π = −½‖z‖² − (n/2) log 2π + log |det ∂z/∂x|.
        let (mut z, mut log_det, mut density) = (vec![0.0; 40], vec![0.0; 20], vec![0.0; 20]);
        map.double().forward(&x, &y, &mut z, &mut log_det).unwrap();
        map.double().log_density(&x, &y, &mut density).unwrap();
        for row in 0..20 {
            let square: f64 = z[row * n..(row + 1) * n].iter().map(|z| z * z).sum();
            let expected = log_det[row] - 0.5 * square - n as f64 * 0.5 * (2.0 * std::f64::consts::PI).ln();
            assert!((density[row] - expected).abs() < 1e-9, "{name}: {} {expected}", density[row]);
        }

        // The gradient in x.
        let (mut again, mut gradient) = (vec![0.0; 20], vec![0.0; 40]);
        map.double().log_density_gradient(&x, &y, &mut again, &mut gradient).unwrap();
        for j in 0..n {
            let moved = |h: f64| {
                let mut x = x.clone();
                x.iter_mut().skip(j).step_by(n).for_each(|x| *x += h);
                let mut density = vec![0.0; 20];
                map.double().log_density(&x, &y, &mut density).unwrap();
                density
            };
            for (row, (up, down)) in moved(1e-5).iter().zip(&moved(-1e-5)).enumerate() {
                assert!((density[row] - again[row]).abs() < 1e-9, "{name}");
                let slope = (up - down) / 2e-5;
                let exact = gradient[row * n + j];
                assert!((slope - exact).abs() < 1e-5 * (1.0 + exact.abs()), "{name}: {slope} {exact}");
            }
        }

        // Draws invert the map, at observations by index and in any order.
        let observation: Vec<u32> = (0..20).map(|row| 19 - row).collect();
        let reordered: Vec<f64> = observation.iter().map(|&row| y[row as usize]).collect();
        let settings = SampleSettings { residuals: true, ..Default::default() };
        let (drawn, inversion) = map.draw(&z, &y, &observation, &settings).unwrap();
        let mut back = vec![0.0; 40];
        map.double().forward(&drawn, &reordered, &mut back, &mut log_det).unwrap();
        let worst = z.iter().zip(&back).fold(0.0, |worst: f64, (z, back)| worst.max((z - back).abs()));
        assert!(worst < 1e-4, "{name}: {worst}");
        assert!(inversion.unsolved.is_empty() && inversion.residuals.len() == 20, "{name}");
        assert!(inversion.residuals.iter().all(|&residual| residual < 1e-4), "{name}");
        let quick = map.log_density_at(&drawn, &y, &observation).unwrap();
        map.double().log_density(&drawn, &reordered, &mut density).unwrap();
        for (quick, exact) in quick.iter().zip(&density) {
            assert!((quick - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{name}: {quick} {exact}");
        }

        // It is one to one, has something to say, and knows its parameters.
        let certificate = map.certify(&x, &y).unwrap();
        assert!(certificate.smallest > 0.0 && certificate.largest < 1e3, "{name}: {certificate:?}");
        assert!(certificate.bound.is_none_or(|bound| bound > 0.0 && bound <= certificate.smallest));
        assert!(certificate.log_det_error.is_none_or(|error| error < 1e-3), "{name}: {certificate:?}");
        assert!(!map.describe().is_empty());
        let count: usize = map.single().tensors().iter().map(|spec| spec.indices().count()).sum();
        assert!(count > 0 && count <= map.parameters(), "{name}");
        let resolved = &model.header().settings.method;
        let counted = resolved.spec().parameters(2, 1).unwrap();
        match resolved.spec().grows() {
            false => assert_eq!(counted, map.parameters(), "{name}"),
            true => assert!(counted >= map.parameters(), "{name}"),
        }
        let mut unchanged = resolved.clone();
        let problem = Problem { target: 2, given: 1, rows: 100_000 };
        unchanged.spec_mut().resolve(problem, &mut TrainSettings::default());
        assert_eq!(&unchanged, resolved, "{name}: every choice was made");

        // Settings of draws that mean nothing to it are refused.
        let means = |settings: SampleSettings| map.draw(&z, &y, &observation, &settings).is_ok();
        let steps = SampleSettings { steps: Some(8), ..Default::default() };
        let tolerance = SampleSettings { tolerance: Some(1e-4), ..Default::default() };
        assert_eq!(means(steps), map.takes_steps(), "{name}");
        assert_eq!(means(tolerance), map.tolerance(&tolerance).is_some(), "{name}");
    }
}

#[test]
fn every_method_is_saved_loaded_and_used_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for &method in Method::ALL {
        for joint in [false, true] {
            let name = method.name();
            let model = fitted(demo::simulate(300, 1), method, joint);
            let path = folder.path().join("model.brenier");
            model.save(&path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let loaded = Posterior::load(&path).unwrap();
            loaded.save(&path).unwrap();
            assert_eq!(bytes, std::fs::read(&path).unwrap(), "{name}");
            assert_eq!((loaded.method(), loaded.parameters()), (method, model.parameters()));
            let settings = SampleSettings::default();
            let draws = |model: &Posterior| model.sample(&[0.3, -0.4], 2, 50, 1, &settings).unwrap().values;
            assert_eq!(draws(&model), draws(&loaded), "{name}");
            let density = |model: &Posterior| model.log_density(&[0.1, 0.2], &[0.3]).unwrap();
            assert_eq!(density(&model), density(&loaded), "{name}");
            let mode = |model: &Posterior| model.mode(&[0.3], 1, 0, &ModeSettings::default()).unwrap();
            assert_eq!(mode(&model), mode(&loaded), "{name}");
            if joint {
                let both = |model: &Posterior| model.sample_joint(20, 1, &settings).unwrap();
                assert_eq!(both(&model), both(&loaded), "{name}");
            }
        }
    }
}

#[test]
fn every_method_gives_the_same_bits_for_any_number_of_threads() {
    let table = demo::simulate(300, 2);
    for method in small() {
        for (joint, members) in [(false, None), (true, None), (false, Some(3))] {
            let settings = FitSettings { joint, members, ..quick(&method, "x1,x2", "y") };
            let outputs = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let model = fit(&table, &settings, Run::silent()).unwrap().posterior;
                    let draws = model.sample(&[0.3, -0.4], 2, 300, 1, &SampleSettings::default()).unwrap();
                    let density = model.log_density(&draws.values[..200], &[0.3; 100]).unwrap();
                    (model.to_bytes().unwrap(), draws.values, density)
                })
            };
            let one = outputs(1);
            for threads in [2, 4] {
                assert!(outputs(threads) == one, "{method:?}, joint {joint}, members {members:?}, {threads}");
            }
        }
    }
}

/// Stops a fit after so many steps.
struct StopAfter(u64, StopToken);

impl Observer for StopAfter {
    fn event(&mut self, _: &Event) -> brenier::Result<()> {
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        if step >= self.0 {
            self.1.stop();
        }
    }
}

#[test]
fn every_method_that_is_stopped_resumes_to_the_same_bits() {
    let (table, folder) = (demo::simulate(500, 2), tempfile::tempdir().unwrap());
    for method in small() {
        let mut settings = quick(&method, "x1,x2", "y");
        settings.train.validate_every = 5;
        let whole = fit(&table, &settings, Run::silent()).unwrap().posterior;
        if whole.header().training.stop == Stop::ClosedForm {
            continue;
        }
        let mut stops = 0;
        for steps in [1, 7] {
            let path = folder.path().join(format!("{}-{steps}.checkpoint", method.method().name()));
            let token = StopToken::new();
            let mut observer = StopAfter(steps, token.clone());
            let run = Run::observed(&mut observer).stop(&token).journal(Journal::at(&path));
            // A map that was never validated is no result, but its state is kept.
            let stopped = fit(&table, &settings, run);
            stops += usize::from(path.exists());
            drop(stopped);
            let again = fit(&table, &settings, Run::silent().journal(Journal::at(&path))).unwrap().posterior;
            assert!(again.to_bytes().unwrap() == whole.to_bytes().unwrap(), "{method:?} after {steps}");
            let _ = std::fs::remove_file(&path);
        }
        assert!(stops > 0, "{method:?} was never stopped");
    }
}

#[test]
fn members_of_every_method_are_mixed() {
    let table = demo::simulate(300, 4);
    for method in small() {
        let settings = FitSettings { members: Some(2), ..quick(&method, "x1,x2", "y") };
        let model = fit(&table, &settings, Run::silent()).unwrap().posterior;
        let x = model.sample(&[0.2], 1, 40, 1, &SampleSettings::default()).unwrap().values;
        let mixed = model.log_density(&x, &[0.2; 40]).unwrap().standardised;
        let loaded = Posterior::from_bytes(&model.to_bytes().unwrap()).unwrap();
        assert_eq!(loaded.log_density(&x, &[0.2; 40]).unwrap().standardised, mixed, "{method:?}");
        assert!(mixed.iter().all(|density| density.is_finite()), "{method:?}");
    }
}

/// One target column, of a given column that never changes and of one that hardly does.
#[test]
fn every_method_takes_one_target_and_constant_columns() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let rows = 300;
    let values = (0..rows)
        .flat_map(|row| {
            let [y, e]: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
            [y + 0.3 * e, y, 7.0, f64::from(u8::from(row == 17))]
        })
        .collect();
    let names = ["x", "y", "constant", "nearly"].map(str::to_owned).to_vec();
    let table = Table::new(names, values).unwrap();
    for method in small() {
        let model = fit(&table, &quick(&method, "x", "y,constant,nearly"), Run::silent()).unwrap().posterior;
        let given = [0.5, 7.0, 0.0];
        let draws = model.sample(&given, 1, 200, 1, &SampleSettings::default()).unwrap().values;
        assert!(draws.len() == 200 && draws.iter().all(|x| x.is_finite()), "{method:?}");
        // The density integrates to one, wherever training has got to.
        let (count, reach) = (4000, 40.0);
        let x: Vec<f64> = (0..count).map(|i| reach * ((i as f64 + 0.5) / count as f64 - 0.5)).collect();
        let density = model.log_density(&x, &given.repeat(count)).unwrap().user;
        let total: f64 = density.iter().map(|d| d.exp() * reach / count as f64).sum();
        assert!((total - 1.0).abs() < 0.02, "{method:?}: {total}");
    }
}

/// Values far outside the training data: an answer or one sentence, never a panic, a hang or a draw that is no number.
#[test]
fn far_inputs_end_in_an_answer_or_a_sentence() {
    let table = demo::simulate(300, 5);
    for method in small() {
        let model = fit(&table, &quick(&method, "x1,x2", "y"), Run::silent()).unwrap().posterior;
        for far in [30.0, 1e4, -1e8, 1e20, 1e300, -f64::MAX] {
            match model.sample(&[far], 1, 20, 1, &SampleSettings::default()) {
                Ok(draws) => assert!(draws.values.iter().all(|x| x.is_finite()), "{method:?} {far}"),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
            for (x, y) in [([far, 0.0], 0.1), ([0.1, far], 0.1), ([0.1, 0.2], far)] {
                match model.log_density(&x, &[y]) {
                    Ok(density) => assert!(density.user[0] < 50.0, "{method:?} {far}: {}", density.user[0]),
                    Err(error) => assert!(error.to_string().contains("row 1"), "{method:?} {far}: {error}"),
                }
            }
        }
        for far in [1e10, 1e300] {
            match model.map().log_density_at(&[0.1, 0.2], &[far], &[0]) {
                Ok(density) => assert!(!density[0].is_nan(), "{method:?} {far}"),
                Err(error) => assert!(error.to_string().contains("row 1"), "{method:?} {far}: {error}"),
            }
        }
        for wrong in [f64::NAN, f64::INFINITY] {
            assert!(model.sample(&[wrong], 1, 5, 1, &SampleSettings::default()).is_err(), "{method:?}");
            assert!(model.log_density(&[0.1, wrong], &[0.1]).is_err(), "{method:?}");
        }
    }
}

/// Models of Brenier 0.1 and what it drew from them: theta_1, theta_2, log density.
#[test]
fn models_of_version_1_load_and_give_the_same_draws() {
    let y = [2.2724203545588777, -0.7863958459153001, -2.6006641642637662, -0.08673237453624494];
    for (name, given) in [("pcp-map", y.to_vec()), ("cot-flow", [&[-1.0622360506440782][..], &y].concat())] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1");
        let model = Posterior::load(folder.join(format!("{name}.brenier"))).unwrap();
        assert_eq!(model.method().name(), name);
        assert_eq!(model.marginal().is_some(), name == "pcp-map");
        let draws = model.sample(&given, 1, 3, 1, &SampleSettings::default()).unwrap().values;
        let written = std::fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
        for (line, draw) in written.lines().skip(1).zip(draws.chunks_exact(2)) {
            let numbers: Vec<f64> = line.split(',').skip(1).map(|cell| cell.parse().unwrap()).collect();
            let density = model.log_density(draw, &given).unwrap().user[0];
            for (got, exact) in draw.iter().chain([&density]).zip(&numbers) {
                assert!((got - exact).abs() < 1e-5, "{name}: {got} {exact}");
            }
        }
    }
}
