//! What every method of the list promises, checked on a model that was fitted with it.

use std::path::Path;

use brenier::data::Table;
use brenier::map::method::Problem;
use brenier::map::{Method, MethodSettings, Reference, SampleSettings, TransportMap};
use brenier::map::{Precision, Solver};
use brenier::train::{Stop, TrainSettings};
use brenier::{Event, FitSettings, Journal, ModeSettings, Observer, Posterior, Run, StopToken, example, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

/// Every method of the list, small, with both flows of neural posterior estimation, both Gaussians and both references.
fn small() -> Vec<MethodSettings> {
    let mut all = Vec::new();
    for &method in Method::ALL {
        let mut settings = method.defaults();
        for (name, value) in [("feature_width", 12), ("hidden_width", 12), ("max_terms", 12)] {
            settings = settings.with(name, value).unwrap_or(settings);
        }
        all.extend(settings.with("flow", "maf").ok());
        all.extend(settings.with("covariance", "log-affine").ok());
        all.extend(settings.with("reference", "heavy-tailed").ok());
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

fn fitted(table: &Table, settings: &FitSettings) -> Posterior {
    fit(table, settings, Run::silent()).unwrap().posterior
}

/// Rows of standardised (x, y) close to where data are.
fn rows(map: &dyn TransportMap, count: usize) -> (Vec<f64>, Vec<f64>) {
    let wave = |i: usize| (1.7 * i as f64).sin();
    let x = (0..count * map.target_dim()).map(wave);
    (x.collect(), (0..count * map.given_dim()).map(|i| 0.8 * wave(3 * i + 1)).collect())
}

/// z and log |det ∂z/∂x| in double precision.
fn forward(map: &dyn TransportMap, x: &[f64], y: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; x.len() / map.target_dim()]);
    map.double().forward(x, y, &mut z, &mut log_det).unwrap();
    (z, log_det)
}

fn log_density(map: &dyn TransportMap, x: &[f64], y: &[f64]) -> Vec<f64> {
    let mut density = vec![0.0; x.len() / map.target_dim()];
    map.double().log_density(x, y, &mut density).unwrap();
    density
}

/// `values` with h added to every row's column.
fn moved(values: &[f64], columns: usize, column: usize, h: f64) -> Vec<f64> {
    let mut values = values.to_vec();
    values.iter_mut().skip(column).step_by(columns).for_each(|value| *value += h);
    values
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(
        0.0,
        |worst, (a, b)| if (a - b).abs() <= worst || worst.is_nan() { worst } else { (a - b).abs() },
    )
}

const ROWS: usize = 20;

#[test]
fn every_method_keeps_what_a_map_promises() {
    let table = example::simulate(300, 0);
    for method in small() {
        let conditional = quick(&method, "x1,x2", "y");
        let unconditional = FitSettings { given: None, ..conditional.clone() };
        for (settings, given) in [(&conditional, 1), (&unconditional, 0)] {
            let model = fitted(&table, settings);
            let name = format!("{:?}, {given} given columns", model.info().settings.method);
            let map = model.map();
            assert_eq!((map.target_dim(), map.given_dim()), (2, given), "{name}");
            densities_and_gradients_agree(&name, map);
            draws_invert_the_map(&name, map);
            both_precisions_agree(&name, map);
            certificates_and_descriptions_hold(&name, map);
            sizes_and_costs_are_known(&name, &model);
            settings_of_draws_mean_something_or_are_refused(&name, map);
        }
    }
}

fn densities_and_gradients_agree(name: &str, map: &dyn TransportMap) {
    let n = map.target_dim();
    let (x, y) = rows(map, ROWS);
    let ((z, log_det), density) = (forward(map, &x, &y), log_density(map, &x, &y));
    // log π = log ϱ(z) + log |det ∂z/∂x|.
    let (pi, half) = (std::f64::consts::PI, 0.5 * n as f64);
    for row in 0..ROWS {
        let square: f64 = z[row * n..(row + 1) * n].iter().map(|z| z * z).sum();
        let reference = match map.reference() {
            // Γ((ν + 2)/2) = ν/2 · Γ(ν/2), so that both densities are 1/2π at 0.
            Reference::HeavyTailed { share, degrees } if n == 2 => {
                let student = (1.0 + square / degrees).powf(-0.5 * degrees - 1.0);
                ((1.0 - share) * (-0.5 * square).exp() + share * student).ln() - (2.0 * pi).ln()
            }
            Reference::Gaussian => -0.5 * square - half * (2.0 * pi).ln(),
            other => panic!("{name}: {other:?}"),
        };
        let expected = log_det[row] + reference;
        assert!((density[row] - expected).abs() < 1e-9, "{name}: {} {expected}", density[row]);
    }
    // The gradient in x.
    let (mut again, mut gradient) = (vec![0.0; ROWS], vec![0.0; ROWS * n]);
    map.double().log_density_gradient(&x, &y, &mut again, &mut gradient).unwrap();
    assert!(largest_difference(&density, &again) < 1e-9, "{name}");
    for j in 0..n {
        let [up, down] = [1e-5, -1e-5].map(|h| log_density(map, &moved(&x, n, j, h), &y));
        for row in 0..ROWS {
            let (slope, exact) = ((up[row] - down[row]) / 2e-5, gradient[row * n + j]);
            assert!((slope - exact).abs() < 1e-5 * (1.0 + exact.abs()), "{name}: {slope} {exact}");
        }
    }
}

/// At observations by index and in any order; whether rows that cannot be solved may be skipped makes no difference here.
fn draws_invert_the_map(name: &str, map: &dyn TransportMap) {
    let m = map.given_dim();
    let (x, y) = rows(map, ROWS);
    let (z, _) = forward(map, &x, &y);
    let observation: Vec<u32> = (0..ROWS as u32).rev().collect();
    let reordered: Vec<f64> =
        observation.iter().flat_map(|&row| &y[row as usize * m..(row as usize + 1) * m]).copied().collect();
    let settings = SampleSettings { residuals: true, ..Default::default() };
    let (drawn, inversion) = map.draw(&z, &y, &observation, &settings).unwrap();
    let missed = largest_difference(&z, &forward(map, &drawn, &reordered).0);
    assert!(missed < 1e-4, "{name}: {missed}");
    assert!(inversion.unsolved.is_empty() && inversion.iterations.len() == ROWS, "{name}");
    assert_eq!(inversion.residuals.len(), ROWS, "{name}");
    assert!(inversion.residuals.iter().all(|&residual| residual < 1e-4), "{name}");
    assert_eq!(map.attempt(&z, &y, &observation, &settings).unwrap(), (drawn.clone(), inversion), "{name}");
    // A row that cannot be computed is marked, and the others are as they were.
    let (n, mut far) = (map.target_dim(), z.clone());
    far[..n].fill(1e60);
    let (attempted, inversion) = map.attempt(&far, &y, &observation, &settings).unwrap();
    assert!(inversion.unsolved.iter().all(|&row| row == 0), "{name}: {:?}", inversion.unsolved);
    assert_eq!(inversion.residuals.len(), ROWS, "{name}");
    assert!(!inversion.unsolved.is_empty() || attempted[..n].iter().all(|x| x.is_finite()), "{name}");
    assert!(largest_difference(&attempted[n..], &drawn[n..]) < 1e-5, "{name}");
    if let Err(error) = map.draw(&far, &y, &observation, &settings) {
        assert!(!inversion.unsolved.is_empty() && !error.to_string().contains('\n'), "{name}: {error}");
    }
    let quick = map.log_density_at(&drawn, &y, &observation).unwrap();
    for (quick, exact) in quick.iter().zip(&log_density(map, &drawn, &reordered)) {
        assert!((quick - exact).abs() < 1e-3 * (1.0 + exact.abs()), "{name}: {quick} {exact}");
    }
}

/// The same parameters, hence the same map up to rounding.
fn both_precisions_agree(name: &str, map: &dyn TransportMap) {
    let (single, double) = (map.single(), map.double());
    assert_eq!(single.tensors(), double.tensors(), "{name}");
    let widened: Vec<f64> = single.parameters().iter().map(|&value| f64::from(value)).collect();
    assert_eq!(widened, double.parameters(), "{name}");
    let (x, y) = rows(map, ROWS);
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<f32>>();
    let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; ROWS]);
    single.forward(&narrow(&x), &narrow(&y), &mut z, &mut log_det).unwrap();
    let z: Vec<f64> = z.into_iter().map(f64::from).collect();
    let (exact, exact_log_det) = forward(map, &x, &y);
    assert!(largest_difference(&z, &exact) < 1e-3, "{name}: {z:?} {exact:?}");
    assert!(largest_difference(&log_det, &exact_log_det) < 1e-3, "{name}: {log_det:?} {exact_log_det:?}");
}

/// It is one to one, says what it is, and its paths and inputs are those of its points.
fn certificates_and_descriptions_hold(name: &str, map: &dyn TransportMap) {
    let (n, m) = (map.target_dim(), map.given_dim());
    let (x, y) = rows(map, ROWS);
    let (z, _) = forward(map, &x, &y);
    let certificate = map.certify(&x, &y).unwrap();
    assert!(certificate.smallest > 0.0 && certificate.largest < 1e3, "{name}: {certificate:?}");
    assert!(certificate.bound.is_none_or(|bound| bound > 0.0 && bound <= certificate.smallest), "{name}");
    assert!(certificate.log_det_error.is_none_or(|error| error < 1e-3), "{name}: {certificate:?}");

    let about = [vec![("network", map.describe())], map.details()].concat();
    for (heading, text) in about {
        // `info` prints headings in a column of 16.
        assert!(!heading.is_empty() && heading.len() < 16 && !text.is_empty(), "{name}: {heading}");
        assert!(!text.contains('\n') && !text.ends_with('.'), "{name}: {text}");
    }
    if let Some(paths) = map.paths() {
        assert!(map.takes_steps() && paths.evaluation_steps() > 0, "{name}");
        let mut end = vec![0.0; x.len()];
        let costs = paths.costs(&x, &y, paths.evaluation_steps(), &mut end).unwrap();
        assert!(largest_difference(&end, &z) < 1e-12, "{name}");
        assert!(costs.hjb.len() == ROWS && costs.hjb.iter().all(|&cost| cost >= 0.0), "{name}");
        // No path is cheaper than the straight one at constant speed.
        for (row, cost) in costs.transport.iter().enumerate() {
            let pairs = x[row * n..(row + 1) * n].iter().zip(&z[row * n..(row + 1) * n]);
            let straight = 0.5 * pairs.map(|(x, z)| (x - z).powi(2)).sum::<f64>();
            assert!(*cost >= straight - 1e-9, "{name}: {cost} {straight}");
        }
    }
    for (k, places) in map.inputs().into_iter().flatten().enumerate() {
        for place in 0..m + n {
            let (x, y) = match place < m {
                true => (x.clone(), moved(&y, m, place, 0.1)),
                false => (moved(&x, n, place - m, 0.1), y.clone()),
            };
            let other = forward(map, &x, &y).0;
            let changed = (0..ROWS).any(|row| z[row * n + k] != other[row * n + k]);
            let named = place == m + k || places.contains(&place);
            assert_eq!(changed, named, "{name}: component {k}, place {place}");
        }
    }
}

fn sizes_and_costs_are_known(name: &str, model: &Posterior) {
    let (map, resolved) = (model.map(), &model.info().settings.method);
    let (n, m) = (map.target_dim(), map.given_dim());
    let count: usize = map.single().tensors().iter().map(|spec| spec.indices().count()).sum();
    assert!(count > 0 && count <= map.parameters(), "{name}");
    let counted = resolved.spec().parameters(n, m).unwrap();
    match resolved.spec().grows() {
        false => assert_eq!(counted, map.parameters(), "{name}"),
        true => assert!(counted >= map.parameters(), "{name}"),
    }
    let mut unchanged = resolved.clone();
    let problem = Problem { target: n, given: m, rows: 100_000, joint: false };
    unchanged.spec_mut().resolve(problem, &mut TrainSettings::default());
    assert_eq!(&unchanged, resolved, "{name}: every choice was made");

    // An epoch costs more with more columns, and with more of whatever a method has more or less of.
    let cost = |method: &MethodSettings, n, m| method.spec().cost(n, m).unwrap();
    let own = cost(resolved, n, m);
    assert!(own > 0 && cost(resolved, n + 1, m) > own, "{name}");
    let values = serde_json::to_value(resolved).unwrap();
    for size in ["feature_width", "hidden_width", "max_terms", "time_steps"] {
        if let Some(value) = values[size].as_u64() {
            let larger = resolved.with(size, 2 * value).unwrap();
            assert!(cost(&larger, n, m) > own, "{name}: {size}");
        }
    }
}

fn settings_of_draws_mean_something_or_are_refused(name: &str, map: &dyn TransportMap) {
    let (x, y) = rows(map, ROWS);
    let (z, _) = forward(map, &x, &y);
    let observation: Vec<u32> = (0..ROWS as u32).collect();
    let default = SampleSettings::default();
    let fields = [
        ("steps", SampleSettings { steps: Some(8), ..default }),
        ("accuracy", SampleSettings { accuracy: Some(1e-2), ..default }),
        ("tolerance", SampleSettings { tolerance: Some(1e-4), ..default }),
        ("solver", SampleSettings { solver: Some(Solver::Lbfgs), ..default }),
        ("max_iterations", SampleSettings { max_iterations: Some(400), ..default }),
        ("precision", SampleSettings { precision: Some(Precision::Double), ..default }),
    ];
    // A new field has to be added above; the flags that every method takes are not refused.
    let serde_json::Value::Object(all) = serde_json::to_value(default).unwrap() else { unreachable!() };
    let flags = ["residuals", "skip_unsolved"];
    assert_eq!(all.len(), fields.len() + flags.len());
    let mut taken = Vec::new();
    for (field, settings) in fields {
        assert!(all.contains_key(field), "{field}");
        match map.draw(&z, &y, &observation, &settings) {
            Ok((drawn, _)) => {
                assert!(drawn.iter().all(|x| x.is_finite()), "{name}: {field}");
                taken.push(field);
            }
            Err(error) => assert!(error.to_string().contains(field), "{name}: {error}"),
        }
    }
    assert_eq!(taken.contains(&"steps"), map.takes_steps(), "{name}");
    assert_eq!(taken.contains(&"accuracy"), map.takes_steps(), "{name}");
    assert_eq!(taken.contains(&"tolerance"), map.tolerance(&default).is_some(), "{name}");
    // Settings of an iterative solver come together, and with a tolerance to solve to; a precision is also one of steps.
    let solver = ["solver", "max_iterations"].map(|field| taken.contains(&field));
    assert!(
        solver == [false; 2] || (solver == [true; 2] && taken.contains(&"tolerance")),
        "{name}: {taken:?}"
    );
    assert_eq!(taken.contains(&"precision"), solver[0] || map.takes_steps(), "{name}");
}

#[test]
fn every_method_is_saved_loaded_and_used_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let table = example::simulate(300, 1);
    for method in small() {
        for joint in [false, true] {
            let name = format!("{method:?}, joint {joint}");
            let model = fitted(&table, &FitSettings { joint, ..quick(&method, "x1,x2", "y") });
            let path = folder.path().join("model.brenier");
            model.save(&path).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            let loaded = Posterior::load(&path).unwrap();
            loaded.save(&path).unwrap();
            assert_eq!(bytes, std::fs::read(&path).unwrap(), "{name}");
            assert_eq!((loaded.method(), loaded.parameters()), (method.method(), model.parameters()));
            assert_eq!(loaded.description(), model.description(), "{name}");
            assert_eq!(loaded.map().inputs(), model.map().inputs(), "{name}");
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
    let table = example::simulate(300, 2);
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

/// Stops a fit after this many steps.
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
    let (table, folder) = (example::simulate(500, 2), tempfile::tempdir().unwrap());
    for method in small() {
        let mut settings = quick(&method, "x1,x2", "y");
        settings.train.validate_every = 5;
        let whole = fit(&table, &settings, Run::silent()).unwrap().posterior;
        if whole.info().training.stop == Stop::ClosedForm {
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
    let table = example::simulate(300, 4);
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
    let table = example::simulate(300, 5);
    for method in small() {
        let model = fit(&table, &quick(&method, "x1,x2", "y"), Run::silent()).unwrap().posterior;
        for far in [30.0, 1e4, -1e8, 1e20, 1e300, -f64::MAX] {
            match model.sample(&[far], 1, 20, 1, &SampleSettings::default()) {
                Ok(draws) => assert!(draws.values.iter().all(|x| x.is_finite()), "{method:?} {far}"),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
            // Draws that are left out are counted, whether or not residuals were asked for.
            for residuals in [false, true] {
                let settings = SampleSettings { skip_unsolved: true, residuals, ..Default::default() };
                match model.sample(&[far], 1, 20, 1, &settings) {
                    Ok(draws) => {
                        assert_eq!(draws.observation.len() + draws.unsolved.len(), 20, "{method:?} {far}");
                        assert!(draws.values.iter().all(|x| x.is_finite()), "{method:?} {far}");
                    }
                    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
                }
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
