//! Statistical claims against problems whose answers are known in closed form.
#![allow(clippy::unwrap_used, missing_docs)]

use brenier::data::Table;
use brenier::map::{Method, MethodSettings, Reference, SampleSettings};
use brenier::simulate::{Outcome, SimulateSettings, Streams, TwoMoons, run};
use brenier::train::{Schedule, Stop, TrainSettings};
use brenier::{FitSettings, ModeSettings, Posterior, Run, fit};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{StandardNormal, StudentT};

/// What cannot learn any distribution, and what the linear problem (and the mixture, CP-Flow) judges alone, to keep these short.
const LEFT_OUT: [Method; 4] = [Method::Gaussian, Method::FlowMatching, Method::Atm, Method::CpFlow];

/// The methods that learn every problem here: a new one is among them.
fn methods() -> impl Iterator<Item = Method> {
    Method::ALL.iter().copied().filter(|method| !LEFT_OUT.contains(method))
}

/// Networks that are large enough for these problems, and no larger.
fn small(method: Method, width: usize) -> MethodSettings {
    let settings = method.defaults();
    match method {
        Method::CotFlow => settings.with("feature_width", width).unwrap().with("time_steps", 4).unwrap(),
        Method::Npe => settings.with("hidden_width", 32).unwrap().with("transforms", 3).unwrap(),
        _ => settings.clone().with("feature_width", width).unwrap_or(settings),
    }
}

fn settings(method: Method, target: &str, given: &str) -> FitSettings {
    FitSettings {
        method: small(method, 32),
        target: Some(target.parse().unwrap()),
        given: Some(given.parse().unwrap()),
        // A flow's step costs ten times as much: fewer of them, at a faster rate that falls sooner.
        train: match method {
            Method::CotFlow => TrainSettings {
                batch_size: Some(128),
                learning_rate: Some(0.01),
                schedule: Some(Schedule::Cosine),
                validate_every: 100,
                max_valid_rows: 500,
                max_steps: Some(900),
                epochs: 100,
                ..Default::default()
            },
            Method::Npe => TrainSettings {
                batch_size: Some(128),
                schedule: Some(Schedule::Cosine),
                epochs: 20,
                ..Default::default()
            },
            // Its default number of steps for these rows would be three times as many.
            Method::FlowMatching => {
                TrainSettings { batch_size: Some(512), max_steps: Some(4000), ..Default::default() }
            }
            _ => {
                TrainSettings { batch_size: Some(128), patience: Some(10), epochs: 60, ..Default::default() }
            }
        },
        ..Default::default()
    }
}

fn fitted(table: Table, settings: &FitSettings) -> Posterior {
    fit(&table, settings, Run::silent()).unwrap().posterior
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Two crescents, which draws of both maps must share evenly and at the right places.
#[test]
fn two_moons_are_found_by_both_maps() {
    let model = TwoMoons::default();
    let wanted = SimulateSettings { rows: 20_000, seed: 1, ..Default::default() };
    let Outcome::Complete(simulated) = run(&model, &wanted, None, Run::silent()).unwrap() else {
        unreachable!()
    };
    let (observed, count) = ([0.1, -0.2], 4000);
    let streams = Streams::new(9, 0);
    let exact: Vec<f64> =
        (0..count).flat_map(|i| model.posterior_draw(observed, &mut streams.get(i)).unwrap()).collect();
    // Which crescent, and where across and along it. The crescents are thin: maps of this size blur them across.
    let features = |u: &[f64]| {
        let (sum, difference) = (u[0] + u[1], u[1] - u[0]);
        [f64::from(u8::from(sum > 0.0)), sum.abs(), difference]
    };
    let moments = |draws: &[f64], f: usize| {
        let mean = draws.chunks_exact(2).map(|u| features(u)[f]).sum::<f64>() / count as f64;
        let square = draws.chunks_exact(2).map(|u| (features(u)[f] - mean).powi(2)).sum::<f64>();
        (mean, (square / count as f64).sqrt())
    };
    for method in methods() {
        let mut settings = settings(method, "theta_1,theta_2", "y_1,y_2");
        settings.train.schedule = Some(Schedule::Cosine);
        match method {
            Method::CotFlow => settings.train.max_steps = Some(2000),
            Method::Npe => {}
            _ => settings.method = settings.method.with("feature_width", 64).unwrap(),
        }
        settings.train.epochs = 20;
        let posterior = fitted(simulated.table.clone(), &settings);
        let draws =
            posterior.sample(&observed, 1, count as usize, 3, &SampleSettings::default()).unwrap().values;
        for f in 0..3 {
            let ((mean, sd), (true_mean, true_sd)) = (moments(&draws, f), moments(&exact, f));
            assert!((mean - true_mean).abs() < 0.4 * true_sd, "{method:?} {f}: {mean} {true_mean}");
            assert!((0.8..1.8).contains(&(sd / true_sd)), "{method:?} {f}: {sd} {true_sd}");
        }
    }
}

/// x ~ N(0, I₂), y = A x + noise: the posterior is Gaussian with known mean and covariance.
#[test]
fn the_linear_gaussian_posterior_is_recovered() {
    let (a, noise) = ([[1.0, 0.5], [-0.3, 0.8], [0.2, -1.0]], 0.7);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut simulate = |rows: usize| {
        let mut values = Vec::new();
        for _ in 0..rows {
            let x: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
            values.extend(x.map(|x| 3.0 + 2.0 * x));
            for row in a {
                values.push(row[0] * x[0] + row[1] * x[1] + noise * rng.sample::<f64, _>(StandardNormal));
            }
        }
        values
    };
    let table = Table::new(names(&["x1", "x2", "y1", "y2", "y3"]), simulate(20_000)).unwrap();
    let test = Table::new(names(&["x1", "x2", "y1", "y2", "y3"]), simulate(5000)).unwrap();
    let (x, y): (Vec<&[f64]>, Vec<&[f64]>) = test.values().chunks_exact(5).map(|row| row.split_at(2)).unzip();
    // Half the logarithm of the determinant of 2πe times the covariance.
    let exact = 1.0 + std::f64::consts::TAU.ln() + 0.5 * (16.0 / precision(a, noise).3).ln();
    for &method in Method::ALL {
        let mut settings = settings(method, "x1,x2", "y1..y3");
        if method == Method::CotFlow {
            // Penalties make draws too wide.
            settings.method =
                settings.method.with("alpha_transport", 0.001).unwrap().with("alpha_hjb", 0.01).unwrap();
            settings.train.max_steps = Some(3000);
        }
        if method == Method::Npe {
            // The density of a spline flow has kinks, where its modes may lie: judged by its likelihood alone.
            let posterior = fitted(table.clone(), &settings);
            let (nll, _) = posterior.log_density(&x.concat(), &y.concat()).unwrap().mean_nll();
            assert!((nll - exact).abs() < 0.05, "spline flow: NLL {nll}, exact {exact}");
            settings.method = settings.method.with("flow", "maf").unwrap();
        }
        let posterior = fitted(table.clone(), &settings);
        let (nll, _) = posterior.log_density(&x.concat(), &y.concat()).unwrap().mean_nll();
        assert!((nll - exact).abs() < 0.05, "{method:?}: NLL {nll}, exact {exact}");
        check_linear_gaussian(&posterior, a, noise);
    }
}

/// The entries and the determinant of I + AᵀA/σ².
fn precision(a: [[f64; 2]; 3], noise: f64) -> (f64, f64, f64, f64) {
    let dot = |i: usize, j: usize| a.iter().map(|row| row[i] * row[j]).sum::<f64>() / (noise * noise);
    let (p11, p12, p22) = (1.0 + dot(0, 0), dot(0, 1), 1.0 + dot(1, 1));
    (p11, p12, p22, p11 * p22 - p12 * p12)
}

fn check_linear_gaussian(posterior: &Posterior, a: [[f64; 2]; 3], noise: f64) {
    let method = posterior.method();
    // Precision P = I + AᵀA/σ², mean P⁻¹Aᵀy/σ², then scaled by 2 and shifted by 3.
    let (p11, p12, p22, det) = precision(a, noise);
    let covariance = [4.0 * p22 / det, -4.0 * p12 / det, 4.0 * p11 / det];
    for y in [[0.0, 0.0, 0.0], [1.2, -0.4, 0.5], [-1.0, 0.8, -1.3]] {
        let t = [0, 1].map(|j| a.iter().zip(&y).map(|(row, y)| row[j] * y).sum::<f64>() / (noise * noise));
        let mean = [3.0 + 2.0 * (p22 * t[0] - p12 * t[1]) / det, 3.0 + 2.0 * (p11 * t[1] - p12 * t[0]) / det];
        let count = 20_000;
        let draws = posterior.sample(&y, 1, count, 5, &SampleSettings::default()).unwrap();
        let average = [0, 1].map(|j| draws.values.chunks_exact(2).map(|x| x[j]).sum::<f64>() / count as f64);
        let moment = |i: usize, j: usize| {
            let rows = draws.values.chunks_exact(2);
            rows.map(|x| (x[i] - average[i]) * (x[j] - average[j])).sum::<f64>() / count as f64
        };
        let got = [moment(0, 0), moment(0, 1), moment(1, 1)];
        for (j, &got) in average.iter().enumerate() {
            assert!((got - mean[j]).abs() < 0.12, "{method:?}, y = {y:?}: mean {average:?}, exact {mean:?}");
        }
        for (got, exact) in got.iter().zip(&covariance) {
            let scale = (covariance[0] * covariance[2]).sqrt();
            assert!(
                (got - exact).abs() < 0.1 * scale,
                "{method:?}, y = {y:?}: covariance {got} against {exact}"
            );
        }
        // The mode of a Gaussian is its mean, and its density there is known.
        let mode = &posterior.mode(&y, 1, 0, &ModeSettings::default()).unwrap()[0];
        for (got, exact) in mode.point.iter().zip(&mean) {
            assert!(
                (got - exact).abs() < 0.2,
                "{method:?}, y = {y:?}: mode {:?}, exact {mean:?}",
                mode.point
            );
        }
        let peak = -(std::f64::consts::TAU.ln() + 0.5 * (16.0 / det).ln());
        assert!((mode.log_density - peak).abs() < 0.15, "{} against {peak}", mode.log_density);
        assert!(mode.gradient < 1e-5 && mode.agreeing >= 1);
    }
}

/// Two correlated Gaussians whose means and weights move with y.
struct Mixture;

impl Mixture {
    fn parts(y: f64) -> [(f64, [f64; 2], f64); 2] {
        let weight = 0.35 + 0.3 / (1.0 + (-2.0 * y).exp());
        [(weight, [1.2 * y, 1.0], 0.7), (1.0 - weight, [-1.0, -y], -0.5)]
    }

    fn draw(y: f64, rng: &mut ChaCha8Rng) -> [f64; 2] {
        let parts = Self::parts(y);
        let (_, mean, correlation) = parts[usize::from(rng.random::<f64>() > parts[0].0)];
        let (a, b): (f64, f64) = (rng.sample(StandardNormal), rng.sample(StandardNormal));
        [mean[0] + 0.6 * a, mean[1] + 0.6 * (correlation * a + (1.0 - correlation * correlation).sqrt() * b)]
    }

    fn log_density(x: [f64; 2], y: f64) -> f64 {
        let density: f64 = Self::parts(y)
            .iter()
            .map(|(weight, mean, r)| {
                let (u, v) = ((x[0] - mean[0]) / 0.6, (x[1] - mean[1]) / 0.6);
                let square = (u * u - 2.0 * r * u * v + v * v) / (1.0 - r * r);
                weight * (-0.5 * square).exp() / (std::f64::consts::TAU * 0.36 * (1.0 - r * r).sqrt())
            })
            .sum();
        density.ln()
    }
}

#[test]
fn a_conditional_mixture_is_learned_to_five_hundredths_of_a_nat() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut simulate = |rows: usize| {
        let mut values = Vec::new();
        for _ in 0..rows {
            let y = 3.0 * rng.random::<f64>() - 1.5;
            values.extend(Mixture::draw(y, &mut rng));
            values.push(y);
        }
        values
    };
    let table = Table::new(names(&["x1", "x2", "y"]), simulate(20_000)).unwrap();
    let held_out = simulate(6000);
    let (mut x, mut y, mut exact) = (Vec::new(), Vec::new(), 0.0);
    for row in held_out.chunks_exact(3) {
        x.extend(&row[..2]);
        y.push(row[2]);
        exact -= Mixture::log_density([row[0], row[1]], row[2]) / 6000.0;
    }
    for method in methods().chain([Method::CpFlow]) {
        let settings = FitSettings { method: small(method, 48), ..settings(method, "x1,x2", "y") };
        let posterior = fitted(table.clone(), &settings);
        let (user, _) = posterior.log_density(&x, &y).unwrap().mean_nll();
        // The excess is a Kullback–Leibler divergence: positive up to sampling noise, and small.
        assert!(user - exact < 0.05 && user - exact > -0.01, "{method:?}: NLL {user}, exact {exact}");
    }
}

/// x | y ~ N(μ(y), Σ) with correlated columns: in standardised coordinates the optimal map onto N(0, I) is
/// Σ^(−1/2)(x − μ(y)) with the symmetric root, for both methods; a triangular root would be another map.
#[test]
fn both_methods_find_the_optimal_map_between_gaussians() {
    let (deviations, correlation) = ([0.5, 0.8], 0.75);
    let mean = |y: f64| [0.6 * y, -0.4 * y];
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut simulate = |rows: usize| -> Vec<f64> {
        (0..rows)
            .flat_map(|_| {
                let [y, a, b]: [f64; 3] = std::array::from_fn(|_| rng.sample(StandardNormal));
                let b = correlation * a + (1.0_f64 - correlation * correlation).sqrt() * b;
                let mu = mean(y);
                [mu[0] + deviations[0] * a, mu[1] + deviations[1] * b, y]
            })
            .collect()
    };
    let table = Table::new(names(&["x1", "x2", "y"]), simulate(10_000)).unwrap();
    let test = simulate(500);
    // What standardisation makes of Σ, and its inverse symmetric root by the formula for 2 × 2 matrices:
    // √S = (S + √det S · I)/√(tr S + 2√det S).
    let scale = [0.36 + 0.25, 0.16 + 0.64_f64].map(f64::sqrt);
    let s11 = (deviations[0] / scale[0]).powi(2);
    let s22 = (deviations[1] / scale[1]).powi(2);
    let s12 = correlation * deviations[0] * deviations[1] / (scale[0] * scale[1]);
    let root_det = (s11 * s22 - s12 * s12).sqrt();
    let factor = (s11 + s22 + 2.0 * root_det).sqrt();
    let (r11, r12, r22) = ((s11 + root_det) / factor, s12 / factor, (s22 + root_det) / factor);
    let det = r11 * r22 - r12 * r12;
    let mut images = Vec::new();
    // The methods of the paper look for the optimal map.
    for method in Method::published() {
        let posterior = fitted(table.clone(), &settings(method, "x1,x2", "y"));
        let header = posterior.info();
        let (mut square, mut all) = (0.0, Vec::new());
        for row in test.chunks_exact(3) {
            let (mut x, mut y, mut z) = ([0.0; 2], [0.0], [0.0; 2]);
            header.target_transform.forward(&row[..2], &mut x).unwrap();
            header.given_transform.forward(&row[2..], &mut y).unwrap();
            posterior.map().double().forward(&x, &y, &mut z, &mut [0.0]).unwrap();
            let mu = mean(row[2]);
            let (u, v) = ((row[0] - mu[0]) / scale[0], (row[1] - mu[1]) / scale[1]);
            let exact = [(r22 * u - r12 * v) / det, (r11 * v - r12 * u) / det];
            square += (z[0] - exact[0]).powi(2) + (z[1] - exact[1]).powi(2);
            all.extend(z);
        }
        let rms = (square / 1000.0).sqrt();
        assert!(rms < 0.1, "{method:?}: {rms} away from the optimal map");
        images.push(all);
    }
    let apart = images[0].iter().zip(&images[1]).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 1000.0;
    assert!(apart.sqrt() < 0.1, "the methods differ by {}", apart.sqrt());
}

/// Three columns from a mixture of two Gaussians, learned as (x1, x2 | y) and y.
#[test]
fn a_joint_map_learns_a_three_dimensional_mixture() {
    let parts = [(0.4, [1.0, 0.5, -1.2], [0.5, 0.7, 0.6]), (0.6, [-0.8, -0.5, 0.9], [0.6, 0.4, 0.7])];
    let log_density = |x: &[f64]| -> f64 {
        let density = parts.iter().map(|(weight, mean, deviation)| {
            let bells = (0..3).map(|j| {
                let u: f64 = (x[j] - mean[j]) / deviation[j];
                (-0.5 * u * u).exp() / (deviation[j] * std::f64::consts::TAU.sqrt())
            });
            weight * bells.product::<f64>()
        });
        density.sum::<f64>().ln()
    };
    let mut rng = ChaCha8Rng::seed_from_u64(12);
    let mut simulate = |rows: usize| -> Vec<f64> {
        (0..rows)
            .flat_map(|_| {
                let (_, mean, deviation) = parts[usize::from(rng.random::<f64>() > 0.4)];
                [0, 1, 2].map(|j| mean[j] + deviation[j] * rng.sample::<f64, _>(StandardNormal))
            })
            .collect()
    };
    let table = Table::new(names(&["x1", "x2", "y"]), simulate(10_000)).unwrap();
    let test = simulate(4000);
    let exact = -test.chunks_exact(3).map(log_density).sum::<f64>() / 4000.0;
    let (x, y): (Vec<[f64; 2]>, Vec<f64>) =
        test.chunks_exact(3).map(|row| ([row[0], row[1]], row[2])).unzip();
    for method in methods() {
        let settings = FitSettings { joint: true, ..settings(method, "x1,x2", "y") };
        let posterior = fitted(table.clone(), &settings);
        let joint = posterior.log_density_joint(x.as_flattened(), &y).unwrap().joint();
        let (user, _) = joint.mean_nll();
        assert!(user - exact < 0.05 && user - exact > -0.02, "{method:?}: NLL {user}, exact {exact}");
        // The midpoint rule over a box that holds all but a millionth of the mass.
        let (count, reach) = (32, 4.0);
        let points: Vec<f64> =
            (0..count).map(|i| reach * (2.0 * (f64::from(i) + 0.5) / f64::from(count) - 1.0)).collect();
        let mut integral = 0.0;
        for &y in &points {
            let plane: Vec<f64> =
                points.iter().flat_map(|&a| points.iter().flat_map(move |&b| [a, b])).collect();
            let rows = plane.len() / 2;
            let density = posterior.log_density_joint(&plane, &vec![y; rows]).unwrap().joint().user;
            integral +=
                density.iter().map(|d| d.exp()).sum::<f64>() * (2.0 * reach / f64::from(count)).powi(3);
        }
        assert!((integral - 1.0).abs() < 5e-3, "{method:?}: the joint density integrates to {integral}");
        let draws = posterior.sample_joint(4_000, 3, &SampleSettings::default()).unwrap();
        let low = draws.given.iter().filter(|&&y| y < -0.2).count() as f64 / 4_000.0;
        let truth = test.chunks_exact(3).filter(|row| row[2] < -0.2).count() as f64 / 4000.0;
        assert!(
            (low - truth).abs() < 0.04,
            "{method:?}: {low} of the joint draws have y < -0.2, {truth} should"
        );
    }
}

/// x = y + ½ Student's t with 3 degrees of freedom: a reference with heavy tails finds the density and the tails of the draws.
#[test]
fn heavy_tails_are_found() {
    const DEGREES: f64 = 3.0;
    let noise = StudentT::new(DEGREES).unwrap();
    let rows = |count: usize, seed: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let row = |_| {
            let y: f64 = rng.sample(StandardNormal);
            [y + 0.5 * rng.sample(noise), y]
        };
        (0..count).flat_map(row).collect::<Vec<f64>>()
    };
    let table = Table::new(names(&["x", "y"]), rows(8_000, 4)).unwrap();
    let mut settings = settings(Method::PcpMap, "x", "y");
    settings.method = settings.method.with("reference", "heavy-tailed").unwrap();
    settings.train.schedule = Some(Schedule::Cosine);
    settings.train.epochs = 25;
    let posterior = fitted(table, &settings);
    let Reference::HeavyTailed { share, degrees } = posterior.map().reference() else { panic!("a Gaussian") };
    // Where the map bends, share and ν are those of the far tail alone.
    assert!(share > 0.02 && (1.5..4.5).contains(&degrees), "{share} with {degrees} degrees of freedom");
    // log density of ½ t₃: log(2 · 2/(√3 π)) − 2 log(1 + (2x)²/3).
    let exact = |x: f64| {
        (4.0 / (DEGREES.sqrt() * std::f64::consts::PI)).ln() - 2.0 * ((2.0 * x).powi(2) / DEGREES).ln_1p()
    };
    let test = rows(10_000, 5);
    let (x, y): (Vec<f64>, Vec<f64>) = test.chunks_exact(2).map(|row| (row[0], row[1])).unzip();
    let density = posterior.log_density(&x, &y).unwrap().user;
    let excess = (0..x.len()).map(|row| exact(x[row] - y[row]) - density[row]).sum::<f64>() / x.len() as f64;
    assert!((-0.005..0.03).contains(&excess), "{excess} nats above the exact density");
    let lowest = density.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(lowest > -25.0, "the worst of the rows has {lowest}");
    // The part of the draws beyond t: ½ − (arctan(s) + s/(1 + s²))/π with s = 2t/√3, on both sides.
    let (at, count) = (0.7, 20_000);
    let draws = posterior.sample(&[at], 1, count, 6, &SampleSettings::default()).unwrap().values;
    for t in [0.2, 0.5, 1.0, 2.0, 4.0] {
        let s = 2.0 * t / DEGREES.sqrt();
        let beyond = 1.0 - 2.0 * (s.atan() + s / (1.0 + s * s)) / std::f64::consts::PI;
        let part = draws.iter().filter(|&&x| (x - at).abs() > t).count() as f64 / count as f64;
        assert!((part / beyond - 1.0).abs() < 0.4 && (part - beyond).abs() < 0.02, "{t}: {part} {beyond}");
    }
}

/// Bounded and positive targets: draws stay inside, and the density integrates to one in the user's units.
#[test]
fn bounded_targets_are_respected_and_their_density_integrates_to_one() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut values = Vec::new();
    for _ in 0..6_000 {
        let y: f64 = rng.sample(StandardNormal);
        let u = 0.8 * y + 0.7 * rng.sample::<f64, _>(StandardNormal);
        values.extend([2.0 + 3.0 / (1.0 + (-u).exp()), y]);
    }
    let table = Table::new(names(&["p", "y"]), values).unwrap();
    let mut settings = settings(Method::PcpMap, "p", "y");
    settings.support = vec!["p=interval(2,5)".parse().unwrap()];
    settings.train.epochs = 15;
    let posterior = fitted(table, &settings);
    for y in [-2.0, 0.0, 1.5, 6.0] {
        let draws = posterior.sample(&[y], 1, 5_000, 1, &SampleSettings::default()).unwrap();
        assert!(draws.values.iter().all(|&p| p > 2.0 && p < 5.0), "y = {y}");
        // Midpoint rule in p = 2 + 3 logistic(u), which resolves the edges.
        let (count, reach) = (4_000, 40.0);
        let points: Vec<f64> =
            (0..count).map(|i| reach * (2.0 * (f64::from(i) + 0.5) / f64::from(count) - 1.0)).collect();
        let inside: Vec<(f64, f64)> = points
            .iter()
            .map(|u| 1.0 / (1.0 + (-u).exp()))
            .map(|s| (2.0 + 3.0 * s, 3.0 * s * (1.0 - s)))
            .filter(|(p, _)| *p > 2.0 && *p < 5.0)
            .collect();
        let p: Vec<f64> = inside.iter().map(|(p, _)| *p).collect();
        let density = posterior.log_density(&p, &vec![y; p.len()]).unwrap().user;
        let step = 2.0 * reach / f64::from(count);
        let integral: f64 = density.iter().zip(&inside).map(|(d, (_, slope))| d.exp() * slope * step).sum();
        assert!((integral - 1.0).abs() < 1e-3, "y = {y}: the density integrates to {integral}");
    }
    // Outside its support a value has no density, and the error names the place.
    assert_eq!(posterior.log_density(&[5.5], &[0.0]).unwrap().user, [f64::NEG_INFINITY]);
    let error = posterior.check_target(&[5.5]).unwrap_err().to_string();
    assert!(error.contains("row 1") && error.contains('p') && error.contains("5.5"), "{error}");
}

#[test]
fn an_unconditional_map_learns_a_density_without_given_columns() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let values: Vec<f64> = (0..5_000)
        .map(|_| {
            let side = if rng.random::<f64>() < 0.4 { -2.0 } else { 1.5 };
            side + 0.5 * rng.sample::<f64, _>(StandardNormal)
        })
        .collect();
    let exact = |x: f64| {
        let bell =
            |mean: f64| (-0.5 * ((x - mean) / 0.5).powi(2)).exp() / (0.5 * std::f64::consts::TAU.sqrt());
        (0.4 * bell(-2.0) + 0.6 * bell(1.5)).ln()
    };
    let truth = -values.iter().map(|&x| exact(x)).sum::<f64>() / 5_000.0;
    let mut settings = settings(Method::PcpMap, "x", "x");
    settings.given = None;
    let posterior = fitted(Table::new(names(&["x"]), values.clone()).unwrap(), &settings);
    let (user, _) = posterior.log_density(&values, &[]).unwrap().mean_nll();
    assert!((user - truth).abs() < 0.06, "NLL {user}, exact {truth}");
    let draws = posterior.sample(&[], 1, 10_000, 3, &SampleSettings::default()).unwrap();
    let left = draws.values.iter().filter(|&&x| x < 0.0).count() as f64 / 10_000.0;
    assert!((left - 0.4).abs() < 0.05, "{left} of the draws lie left of zero, 0.4 should");
}

/// λ ½ (1 + cos πt) over all epochs, whatever a plateau would have made of so little patience.
#[test]
fn a_cosine_lowers_the_rate_over_all_epochs() {
    let mut settings = settings(Method::PcpMap, "x1,x2", "y");
    settings.train = TrainSettings {
        schedule: Some(Schedule::Cosine),
        learning_rate: Some(0.02),
        epochs: 6,
        validate_every: 3,
        patience: Some(1),
        max_drops: Some(1),
        ..Default::default()
    };
    let posterior = fitted(brenier::example::simulate(600, 1), &settings);
    assert_eq!(posterior.info().training.stop, Stop::Epochs);
    let history = posterior.history();
    assert!(history.len() > 10 && history.iter().all(|p| p.drops == 0));
    assert!(history.windows(2).all(|pair| pair[1].learning_rate < pair[0].learning_rate));
    for p in history {
        let rate = 0.01 * (1.0 + (std::f64::consts::PI * p.epoch / 6.0).cos());
        assert!((p.learning_rate - rate).abs() < 1e-12, "{p:?}");
    }
    assert!(history.last().unwrap().learning_rate < 0.001);
}

#[test]
fn a_saved_model_samples_the_same_bits() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let values: Vec<f64> = (0..900).map(|_| rng.sample(StandardNormal)).collect();
    let table = Table::new(names(&["x", "a", "b"]), values).unwrap();
    let mut settings = settings(Method::PcpMap, "x", "a,b");
    settings.train.epochs = 3;
    settings.pca = Some("1".parse().unwrap());
    let posterior = fitted(table, &settings);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.brenier");
    posterior.save(&path).unwrap();
    let again = Posterior::load(&path).unwrap();
    let sample = |posterior: &Posterior| {
        let draws = posterior.sample(&[0.3, -1.0], 1, 50, 9, &SampleSettings::default()).unwrap();
        draws.values.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(sample(&posterior), sample(&again));
    let bytes = std::fs::read(&path).unwrap();
    again.save(&path).unwrap();
    assert_eq!(bytes, std::fs::read(&path).unwrap());
}
