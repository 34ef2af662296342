//! Golden values, Taylor remainders, the contract of a map, and what training promises.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde_json::Value;

use super::basis::Bounds;
use super::objective::{Objective, Rules};
use super::terms::{Expansion, Layout, MultiIndex, Scratch, Size};
use super::{AtmMap, AtmSettings};
use crate::map::method::{MethodSpec, Training};
use crate::map::{ConditionalMap, SampleSettings, TransportMap};
use crate::train::{Dataset, Outcome, Stop, TrainSettings};
use crate::{Event, Journal, Observer, Run, StopToken};

fn normals(rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
    (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

fn flat(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap()],
    }
}

fn assert_close(what: &str, got: &[f64], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    let scale = expected.iter().fold(1e-300_f64, |scale, value| scale.max(value.abs()));
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 1e-10 * scale, "{what}[{i}]: got {got}, expected {expected}");
    }
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// The components as terms and coefficients, read back from a map's tensors.
fn expansions(map: &AtmMap<f64>) -> Vec<Expansion> {
    let tensors = map.tensors();
    let values = |name: String| -> Vec<f64> {
        let tensor = tensors.iter().find(|tensor| tensor.name == name);
        tensor.map_or(Vec::new(), |tensor| tensor.indices().map(|place| map.parameters[place]).collect())
    };
    (1..=map.layout.target)
        .map(|k| {
            let coefficients = values(format!("c.{k}"));
            let mut terms = vec![MultiIndex::new(); coefficients.len()];
            for pair in values(format!("alpha.{k}")).chunks_exact(3) {
                terms[pair[0] as usize].push((pair[1] as u32, pair[2] as u32));
            }
            Expansion { terms, coefficients }
        })
        .collect()
}

/// From the package that builds the unit tests.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../brenier-core/tests/fixtures");

fn fixtures() -> Vec<(String, Value)> {
    let folder = std::env::var_os("BRENIER_FIXTURES")
        .map_or_else(|| PathBuf::from(FIXTURES), PathBuf::from)
        .join("atm");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let fixture = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        all.push((path.file_name().unwrap().to_string_lossy().into_owned(), fixture));
    }
    assert!(!all.is_empty());
    all
}

#[test]
fn every_golden_value_is_reproduced() {
    for (name, fixture) in fixtures() {
        let [n, m] = ["n", "m"].map(|key| fixture[key].as_u64().unwrap() as usize);
        let sizes = flat(&fixture["params"]["sizes"]);
        let sizes =
            sizes.chunks_exact(2).map(|size| Size { terms: size[0] as usize, pairs: size[1] as usize });
        let layout = Layout { target: n, given: m, sizes: sizes.collect() };
        let zeros = vec![0.0; layout.parameters()];
        let mut map = AtmMap::<f64>::from_parameters(layout, zeros).unwrap();
        assert_eq!(map.tensors().len(), fixture["params"].as_object().unwrap().len(), "{name}");
        for spec in map.tensors() {
            let values = flat(&fixture["params"][&spec.name]);
            assert_eq!(values.len(), spec.indices().count(), "{name}: {}", spec.name);
            for (index, value) in spec.indices().zip(values) {
                map.parameters_mut()[index] = value;
            }
        }
        let (x, y) = (flat(&fixture["x"]), flat(&fixture["y"]));
        let rows = x.len() / n;
        let (mut z, mut log_det, mut density) = (vec![0.0; x.len()], vec![0.0; rows], vec![0.0; rows]);
        map.forward(&x, &y, &mut z, &mut log_det).unwrap();
        assert_close(&format!("{name}: z"), &z, &flat(&fixture["z"]));
        assert_close(&format!("{name}: log det"), &log_det, &flat(&fixture["log_det"]));
        map.log_density(&x, &y, &mut density).unwrap();
        assert_close(&format!("{name}: log density"), &density, &flat(&fixture["log_density"]));
        let mut gradient = vec![0.0; x.len()];
        map.log_density_gradient(&x, &y, &mut density, &mut gradient).unwrap();
        assert_close(&format!("{name}: log density again"), &density, &flat(&fixture["log_density"]));
        assert_close(&format!("{name}: gradient in x"), &gradient, &flat(&fixture["gradient_x"]));

        let (components, bounds) = map.decode().unwrap();
        let mut log_slopes = Vec::new();
        for row in 0..rows {
            let inputs = [&y[row * m..(row + 1) * m], &x[row * n..(row + 1) * n]].concat();
            for (k, component) in components.iter().enumerate() {
                let value = component.line(&inputs, &bounds, &mut Scratch::default()).at(inputs[m + k]);
                log_slopes.push(value.slope.ln());
            }
        }
        assert_close(&format!("{name}: log slopes"), &log_slopes, &flat(&fixture["log_slopes"]));

        // What training minimises, with quadrature to rounding.
        let data = Dataset { target: n, given: m, x: single(&x), y: single(&y), fresh: None };
        let (all, rules): (Vec<u32>, Rules) = ((0..rows as u32).collect(), Rules::new());
        for (k, expansion) in expansions(&map).iter().enumerate() {
            let mut objective = Objective::new(&data, &all, m + k, &bounds, &rules, 1e-13);
            expansion.terms.iter().for_each(|term| objective.push(term));
            let expected = fixture["losses"][k].as_f64().unwrap();
            let value = objective.value(&expansion.coefficients);
            assert_close(&format!("{name}: loss {k}"), &[value], &[expected]);
            let mut gradient = vec![0.0; expansion.terms.len()];
            let value = objective.value_and_gradient(&expansion.coefficients, &mut gradient);
            assert_close(&format!("{name}: loss {k} again"), &[value], &[expected]);
            let expected = flat(&fixture["gradients"][format!("c.{}", k + 1)]);
            assert_close(&format!("{name}: gradient of c.{}", k + 1), &gradient, &expected);
            let survey = objective.survey(&expansion.coefficients);
            assert_close(&format!("{name}: surveyed gradient"), &objective.gradient(&survey), &expected);
        }
    }
}

/// A map with random coefficients: three variables given two, every component with products and higher degrees.
fn random_map(seed: u64) -> AtmMap<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (n, m) = (3, 2);
    let bounds: Vec<Bounds> = (0..n + m)
        .map(|_| Bounds { low: -0.7 - rng.random::<f64>(), high: 0.7 + rng.random::<f64>() })
        .collect();
    let components: Vec<Expansion> = (0..n as u32)
        .map(|k| {
            let own = m as u32 + k;
            let mut terms: Vec<MultiIndex> = vec![vec![], vec![(own, 1)], vec![(own, 2)], vec![(own, 3)]];
            for column in 0..own {
                terms.extend([vec![(column, 1)], vec![(column, 2)], vec![(column, 1), (own, 1)]]);
            }
            terms.push(vec![(0, 1), (1, 1)]);
            let coefficients = terms.iter().map(|_| 0.5 * rng.sample::<f64, _>(StandardNormal)).collect();
            Expansion { terms, coefficients }
        })
        .collect();
    AtmMap::from_components(m, &bounds, &components)
}

/// Least-squares slope of log remainder against log step.
fn order(steps: &[f64], remainders: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        steps.iter().zip(remainders).map(|(h, r)| (h.ln(), r.max(1e-300).ln())).collect();
    let n = points.len() as f64;
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let covariance: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    covariance / points.iter().map(|p| (p.0 - mx).powi(2)).sum::<f64>()
}

#[test]
fn taylor_remainders_of_the_loss_fall_quadratically_in_the_coefficients() {
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(10 + seed);
        let map = random_map(seed);
        let bounds = map.decode().unwrap().1;
        // More than one block, the last one partial.
        let rows = 150;
        let data = Dataset {
            target: 3,
            given: 2,
            x: single(&normals(&mut rng, 3 * rows)),
            y: single(&normals(&mut rng, 2 * rows)),
            fresh: None,
        };
        let (all, rules): (Vec<u32>, Rules) = ((0..rows as u32).collect(), Rules::new());
        for (k, expansion) in expansions(&map).iter().enumerate() {
            // A quadrature as coarse as in training, fixed by the first pass: the gradient is exact for it too.
            let mut objective = Objective::new(&data, &all, 2 + k, &bounds, &rules, 1e-3);
            expansion.terms.iter().for_each(|term| objective.push(term));
            objective.value(&expansion.coefficients);
            let mut gradient = vec![0.0; expansion.terms.len()];
            let value = objective.value_and_gradient(&expansion.coefficients, &mut gradient);
            let direction = normals(&mut rng, gradient.len());
            let linear: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let steps = [1e-4, 5e-5, 2.5e-5, 1.25e-5];
            let mut unused = gradient.clone();
            let remainders = steps.map(|h| {
                let moved: Vec<f64> =
                    expansion.coefficients.iter().zip(&direction).map(|(c, d)| c + h * d).collect();
                (objective.value_and_gradient(&moved, &mut unused) - value - h * linear).abs()
            });
            let order = order(&steps, &remainders);
            assert!((order - 2.0).abs() < 0.1, "component {k}: order {order}, remainders {remainders:?}");
        }
    }
}

#[test]
fn taylor_remainders_of_the_log_density_fall_quadratically_in_x() {
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(20 + seed);
        let map = random_map(seed);
        let (x, y, rows) = (normals(&mut rng, 12), normals(&mut rng, 8), 4);
        let (mut value, mut gradient) = (vec![0.0; rows], vec![0.0; 12]);
        map.log_density_gradient(&x, &y, &mut value, &mut gradient).unwrap();
        let direction = normals(&mut rng, 12);
        for row in 0..rows {
            let linear: f64 = (row * 3..(row + 1) * 3).map(|i| gradient[i] * direction[i]).sum();
            let steps = [1e-3, 5e-4, 2.5e-4, 1.25e-4];
            let remainders = steps.map(|h| {
                let moved: Vec<f64> = x.iter().zip(&direction).map(|(x, d)| x + h * d).collect();
                let mut density = vec![0.0; rows];
                map.log_density(&moved, &y, &mut density).unwrap();
                (density[row] - value[row] - h * linear).abs()
            });
            let order = order(&steps, &remainders);
            assert!((order - 2.0).abs() < 0.2, "seed {seed}, row {row}: order {order}, {remainders:?}");
        }
    }
}

#[test]
fn draws_return_to_where_they_came_from_even_far_out() {
    for seed in 0..5 {
        let map = random_map(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(30 + seed);
        let trained = super::method::trained(map.cast()).unwrap();
        let mut z = normals(&mut rng, 300);
        // The last variable far out; where one before it is, the next may have a density as flat as can be.
        z.iter_mut().skip(152).step_by(3).for_each(|z| *z *= 1e4);
        let (y, observation) = (normals(&mut rng, 200), (0..100).collect::<Vec<u32>>());
        let settings = SampleSettings { residuals: true, ..Default::default() };
        let (x, inversion) = trained.draw(&z, &y, &observation, &settings).unwrap();
        let (mut back, mut log_det) = (vec![0.0; 300], vec![0.0; 100]);
        trained.double().forward(&x, &y, &mut back, &mut log_det).unwrap();
        for (back, z) in back.iter().zip(&z) {
            assert!((back - z).abs() < 1e-11 * (1.0 + z.abs()), "{back} {z}");
        }
        assert!(inversion.unsolved.is_empty() && inversion.iterations.iter().all(|&count| count < 60));
        // The determinant is that of a dense Jacobian.
        for row in 0..10 {
            let (x, y) = (&x[row * 3..(row + 1) * 3], &y[row * 2..(row + 1) * 2]);
            let at = |j: usize, h: f64| {
                let (mut moved, mut z) = (x.to_vec(), vec![0.0; 3]);
                moved[j] += h;
                trained.double().forward(&moved, y, &mut z, &mut [0.0]).unwrap();
                z
            };
            let jacobian =
                crate::kernel::Mat::from_fn(3, 3, |i, j| (at(j, 1e-5)[i] - at(j, -1e-5)[i]) / 2e-5);
            let dense = crate::kernel::dense::determinant(jacobian.as_ref());
            assert!(
                dense > 0.0 && (dense.ln() - log_det[row]).abs() < 1e-5,
                "{} {}",
                dense.ln(),
                log_det[row]
            );
        }
    }
}

/// x₁ | y and x₂ | x₁, y drawn by inverting a map of few terms.
fn truth() -> AtmMap<f64> {
    let bounds = vec![Bounds { low: -2.4, high: 2.4 }; 3];
    let first = Expansion {
        terms: vec![vec![], vec![(1, 1)], vec![(0, 1)], vec![(0, 2)], vec![(1, 2)], vec![(1, 3)]],
        coefficients: vec![0.2, 0.4, -0.6, 0.5, 0.1, 0.25],
    };
    let second = Expansion {
        terms: vec![vec![], vec![(2, 1)], vec![(1, 1)], vec![(1, 2)], vec![(1, 1), (2, 1)]],
        coefficients: vec![0.0, 0.6, -0.5, 0.7, 0.4],
    };
    AtmMap::from_components(1, &bounds, &[first, second])
}

fn simulated(rows: usize, seed: u64) -> Dataset {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (z, y) = (normals(&mut rng, 2 * rows), normals(&mut rng, rows));
    let trained = super::method::trained(truth().cast()).unwrap();
    let observation: Vec<u32> = (0..rows as u32).collect();
    let x = trained.draw(&z, &y, &observation, &SampleSettings::default()).unwrap().0;
    Dataset { target: 2, given: 1, x: single(&x), y: single(&y), fresh: None }
}

fn grown(
    data: &Dataset,
    settings: &AtmSettings,
    mut run: Run<'_>,
) -> (std::sync::Arc<dyn TransportMap>, Outcome) {
    let rows = (data.y.len() / data.given) as u32;
    let (train_rows, valid_rows): (Vec<u32>, Vec<u32>) = (0..rows).partition(|row| row % 10 > 0);
    let journal = run.plan().cloned();
    let trained = settings.train(Training {
        data,
        nearby: None,
        train_rows: &train_rows,
        valid_rows: &valid_rows,
        settings: &TrainSettings { patience: Some(5), ..Default::default() },
        seed: 3,
        identity: "a test",
        run: run.part(journal),
    });
    trained.unwrap()
}

#[test]
fn a_polynomial_truth_is_recovered() {
    let data = simulated(4000, 1);
    let (map, outcome) = grown(&data, &AtmSettings::default(), Run::silent());
    assert_eq!(outcome.stop, Stop::Converged);
    let test = simulated(20_000, 2);
    let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<f64>>();
    let (x, y) = (wide(&test.x), wide(&test.y));
    let nll = |map: &dyn ConditionalMap<f64>| {
        let mut density = vec![0.0; y.len()];
        map.log_density(&x, &y, &mut density).unwrap();
        -density.iter().sum::<f64>() / y.len() as f64
    };
    let (got, exact) = (nll(map.double()), nll(&truth()));
    // The excess is a Kullback–Leibler divergence: positive up to sampling noise, and small.
    assert!(got - exact < 0.02 && got - exact > -0.005, "{got} {exact}");
    // x₂ does not depend on y given x₁: the map says so.
    assert_eq!(map.inputs().unwrap(), [vec![0], vec![1]], "{}", map.describe());
}

fn bits(map: &dyn TransportMap) -> Vec<u32> {
    map.single().parameters().iter().map(|value| value.to_bits()).collect()
}

#[test]
fn training_gives_the_same_bits_for_any_number_of_threads() {
    let data = simulated(400, 4);
    let settings = AtmSettings { max_terms: 12, folds: 3 };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bits(&*grown(&data, &settings, Run::silent()).0))
    };
    let one = run(1);
    assert!(one == run(2) && one == run(4));
}

/// Stops a training after some of its jobs.
struct StopAfter(u64, StopToken);

impl Observer for StopAfter {
    fn event(&mut self, _event: &Event) -> crate::Result<()> {
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        if step >= self.0 {
            self.1.stop();
        }
    }
}

#[test]
fn a_stopped_training_has_a_map_and_is_resumed_to_the_same_bits() {
    let data = simulated(400, 5);
    let settings = AtmSettings { max_terms: 12, folds: 3 };
    let whole = bits(&*grown(&data, &settings, Run::silent()).0);
    let folder = tempfile::tempdir().unwrap();
    for jobs in [1, 4, 7] {
        let path = folder.path().join(format!("{jobs}.checkpoint"));
        let token = StopToken::new();
        let mut observer = StopAfter(jobs, token.clone());
        let run = Run::observed(&mut observer).stop(&token).journal(Journal::at(&path));
        let (map, outcome) = grown(&data, &settings, run);
        assert!(outcome.stop == Stop::Interrupted || jobs == 7, "{:?}", outcome.stop);
        assert!(outcome.best_valid_nll.is_finite() && map.parameters() > 0);
        let (map, outcome) = grown(&data, &settings, Run::silent().journal(Journal::at(&path)));
        assert_eq!(outcome.stop, Stop::Converged);
        assert_eq!(bits(&*map), whole);
    }
    // Another training's journal is refused.
    let other = AtmSettings { max_terms: 12, folds: 4 };
    let journal = Journal::at(folder.path().join("1.checkpoint"));
    let rows: Vec<u32> = (0..400).collect();
    let error = other.train(Training {
        data: &data,
        nearby: None,
        train_rows: &rows[..300],
        valid_rows: &rows[300..],
        settings: &TrainSettings::default(),
        seed: 3,
        identity: "a test",
        run: Run::silent().journal(journal),
    });
    assert!(error.err().unwrap().to_string().contains("other settings"));
}

#[test]
fn damaged_parameters_are_refused() {
    let map = random_map(1);
    let spoiled = |name: &str, place: usize, value: f64| {
        let mut map = map.clone();
        let tensors = map.tensors();
        let spec = tensors.iter().find(|spec| spec.name == name).unwrap();
        let place = spec.indices().nth(place).unwrap();
        map.parameters_mut()[place] = value;
        map.decode().err().map(|error| error.to_string())
    };
    assert!(spoiled("c.1", 0, 7.0).is_none());
    assert!(spoiled("alpha.1", 0, 1e6).unwrap().contains("whole number"));
    assert!(spoiled("alpha.1", 1, 5.0).unwrap().contains("whole number"));
    assert!(spoiled("alpha.1", 2, 0.5).unwrap().contains("whole number"));
    assert!(spoiled("alpha.2", 2, -1.0).unwrap().contains("whole number"));
    assert!(spoiled("quantiles", 0, 9.0).unwrap().contains("quantiles"));
    let layout = Layout::empty(1, 0);
    assert!(layout.sizes_in(&[5.0, 3.0], 4).is_err() && layout.sizes_in(&[5.0, 30.0], 9).is_err());
    assert_eq!(layout.sizes_in(&[5.0, 3.0], 9).unwrap(), [Size { terms: 5, pairs: 3 }]);
}
