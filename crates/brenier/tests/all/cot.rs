//! Properties of the flow: derivatives by Taylor remainders, order of the scheme, inverse, determinants, threads.
#![allow(clippy::unwrap_used)]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use brenier::map::cot::{CotMap, CotSettings, CotShape};
use brenier::map::{ConditionalMap, Constraint, Method, Trainable};
use brenier::train::{Adam, AdamSettings, StepRandom, Stop, TrainEvent};
use brenier::{Event, FitSettings, Journal, Observer, Run, StopToken, example, fit};

fn normals(count: usize, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| scale * rng.sample::<f64, _>(StandardNormal)).collect()
}

fn settings(steps: usize) -> CotSettings {
    CotSettings {
        time_steps: steps,
        evaluation_steps: steps,
        alpha_transport: 0.4,
        alpha_hjb: 0.8,
        ..CotSettings::default()
    }
}

fn example(target: usize, given: usize, width: usize, depth: usize, steps: usize) -> CotMap<f64> {
    example_of(CotShape::new(target, given, width, depth), steps)
}

/// Random parameters everywhere, b and c included.
fn example_of(shape: CotShape, steps: usize) -> CotMap<f64> {
    let mut map = CotMap::<f64>::initial(shape, settings(steps), 7).unwrap();
    let noise = normals(map.parameters().len(), 0.15, 8);
    for (parameter, noise) in map.parameters_mut().iter_mut().zip(noise) {
        *parameter = 0.6 * *parameter + noise;
    }
    map
}

fn objective(map: &CotMap<f64>, x: &[f64], y: &[f64]) -> f64 {
    let rows = x.len() / map.target_dim();
    let mut workspace = map.workspace(rows);
    let (batch_x, batch_y) = map.load(&mut workspace, rows);
    batch_x.copy_from_slice(x);
    batch_y.copy_from_slice(y);
    map.adjoints(&mut workspace).unwrap()
}

fn gradients(map: &CotMap<f64>, x: &[f64], y: &[f64]) -> (f64, Vec<f64>, Vec<f64>) {
    let rows = x.len() / map.target_dim();
    let mut workspace = map.workspace(rows);
    let (batch_x, batch_y) = map.load(&mut workspace, rows);
    batch_x.copy_from_slice(x);
    batch_y.copy_from_slice(y);
    let value = map.adjoints(&mut workspace).unwrap();
    let (mut theta, mut target) = (vec![f64::NAN; map.parameters().len()], vec![f64::NAN; x.len()]);
    for (index, block) in map.blocks(&workspace).iter().enumerate() {
        map.block_gradient(&workspace, index, &mut theta[block.range.clone()]);
    }
    map.target_gradient(&workspace, &mut target);
    (value, theta, target)
}

/// log₂ of the ratio of |f(ε) − f(0) − ε f'(0)| at ε and ε/2, for two halvings.
///
/// ε is small, because the HJB penalty has a kink that no trajectory should cross on the way.
fn remainder_slopes(value: f64, slope: f64, along: impl Fn(f64) -> f64) -> [f64; 2] {
    let remainder = |epsilon: f64| (along(epsilon) - value - epsilon * slope).abs();
    let [r0, r1, r2] = [1e-4, 5e-5, 2.5e-5].map(remainder);
    [(r0 / r1).log2(), (r1 / r2).log2()]
}

#[test]
fn taylor_remainders_of_the_objective_are_quadratic() {
    let none: &[usize] = &[];
    for (target, given, depth, embedding) in [
        (2, 3, 2, none),
        (3, 2, 3, none),
        (1, 4, 4, none),
        (2, 0, 3, none),
        (2, 7, 2, &[5, 6, 3]),
        (2, 3, 3, &[4]),
    ] {
        let map = example_of(CotShape::new(target, given, 11, depth).with_embedding(embedding.to_vec()), 3);
        let rows = 19;
        let (x, y) = (normals(rows * target, 1.0, 1), normals(rows * given, 1.0, 2));
        let (value, theta, x_bar) = gradients(&map, &x, &y);
        // Each tensor on its own, so that no small one hides behind a large one.
        for spec in map.tensors().iter().filter(|spec| spec.name != "c") {
            let direction = normals(spec.indices().count(), 1.0, 3);
            let slope: f64 = spec.indices().zip(&direction).map(|(index, d)| theta[index] * d).sum();
            let slopes = remainder_slopes(value, slope, |epsilon| {
                let mut moved = map.clone();
                for (index, d) in spec.indices().zip(&direction) {
                    moved.parameters_mut()[index] += epsilon * d;
                }
                objective(&moved, &x, &y)
            });
            for slope in slopes {
                assert!((slope - 2.0).abs() < 0.15, "depth {depth}, {}: {slopes:?}", spec.name);
            }
        }
        let direction = normals(x.len(), 1.0, 4);
        let slope: f64 = x_bar.iter().zip(&direction).map(|(g, d)| g * d).sum();
        let slopes = remainder_slopes(value, slope, |epsilon| {
            let moved: Vec<f64> = x.iter().zip(&direction).map(|(x, d)| x + epsilon * d).collect();
            objective(&map, &moved, &y)
        });
        for slope in slopes {
            assert!((slope - 2.0).abs() < 0.15, "depth {depth}, x: {slopes:?}");
        }
    }
}

#[test]
fn taylor_remainders_of_the_warm_loss_are_quadratic() {
    let none: &[usize] = &[];
    for (target, given, depth, embedding) in
        [(1, 4, 2, none), (3, 2, 3, none), (2, 0, 4, none), (1, 7, 3, &[5, 6, 3]), (3, 3, 2, &[4])]
    {
        let map = example_of(CotShape::new(target, given, 11, depth).with_embedding(embedding.to_vec()), 3);
        // More than one shard, the last one not full.
        let rows = 37;
        let (x, y) = (normals(rows * target, 1.0, 1), normals(rows * given, 1.0, 2));
        let (t, z): (Vec<f64>, _) =
            ((0..rows).map(|b| b as f64 / (rows - 1) as f64).collect(), normals(rows * target, 1.0, 5));
        let loss = |map: &CotMap<f64>| {
            let mut workspace = map.workspace(rows);
            let (batch_x, batch_y) = map.load(&mut workspace, rows);
            batch_x.copy_from_slice(&x);
            batch_y.copy_from_slice(&y);
            (map.warm_adjoints_at(&mut workspace, &t, &z).unwrap(), workspace)
        };
        let (value, workspace) = loss(&map);
        // By its definition, from the potential's gradient row by row.
        let mut mean = 0.0;
        for b in 0..rows {
            let own = b * target..(b + 1) * target;
            let miss: Vec<f64> = x[own.clone()].iter().zip(&z[own]).map(|(x, z)| z - x).collect();
            let moved: Vec<f64> =
                x[b * target..].iter().zip(&miss).map(|(x, miss)| x + t[b] * miss).collect();
            let gradient = map.potential(t[b], &moved, &y[b * given..(b + 1) * given]).unwrap().1;
            let squares = gradient[1..].iter().zip(&miss).map(|(g, miss)| (g + miss) * (g + miss));
            mean += 0.5 * squares.sum::<f64>() / rows as f64;
        }
        assert!((value - mean).abs() < 1e-12 * mean, "{value} and {mean}");
        let mut theta = vec![f64::NAN; map.parameters().len()];
        for (index, block) in map.blocks(&workspace).iter().enumerate() {
            map.block_gradient(&workspace, index, &mut theta[block.range.clone()]);
        }
        for spec in map.tensors() {
            let direction = normals(spec.indices().count(), 1.0, 3);
            let slope: f64 = spec.indices().zip(&direction).map(|(index, d)| theta[index] * d).sum();
            let along = |epsilon: f64| {
                let mut moved = map.clone();
                for (index, d) in spec.indices().zip(&direction) {
                    moved.parameters_mut()[index] += epsilon * d;
                }
                loss(&moved).0
            };
            if spec.name == "c" {
                assert_eq!((slope, along(1.0)), (0.0, value));
                continue;
            }
            // The loss has no kink: larger steps than for the objective.
            let remainder = |epsilon: f64| (along(epsilon) - value - epsilon * slope).abs();
            let [r0, r1, r2] = [1e-2, 5e-3, 2.5e-3].map(remainder);
            for order in [(r0 / r1).log2(), (r1 / r2).log2()] {
                assert!((order - 2.0).abs() < 0.15, "n {target}, depth {depth}, {}: {order}", spec.name);
            }
        }
    }
}

#[test]
fn potential_derivatives_agree_with_differences_at_every_depth() {
    for depth in [2, 3, 5] {
        let map = example(3, 2, 9, depth, 2);
        let (x, y) = (normals(3, 1.0, 1), normals(2, 1.0, 2));
        let (_, gradient, laplacian) = map.potential(0.3, &x, &y).unwrap();
        let at = |t: f64, x: &[f64], y: &[f64]| map.potential(t, x, y).unwrap().0[0];
        let step = 1e-4;
        let mut trace = 0.0;
        for j in 0..6 {
            let moved = |by: f64| {
                let (mut t, mut x, mut y) = (0.3, x.clone(), y.clone());
                match j {
                    0 => t += by,
                    1..=3 => x[j - 1] += by,
                    _ => y[j - 4] += by,
                }
                at(t, &x, &y)
            };
            let (above, below, here) = (moved(step), moved(-step), moved(0.0));
            assert!((gradient[j] - (above - below) / (2.0 * step)).abs() < 1e-6, "∂Φ/∂q{j} at depth {depth}");
            if (1..=3).contains(&j) {
                trace += (above - 2.0 * here + below) / (step * step);
            }
        }
        assert!((laplacian[0] - trace).abs() < 1e-5, "ΔΦ at depth {depth}: {} and {trace}", laplacian[0]);
    }
}

#[test]
fn kept_and_recomputed_activations_give_the_same_bits() {
    for depth in [2, 3] {
        let map = example(3, 2, 10, depth, 4);
        let (x, y) = (normals(41 * 3, 1.0, 1), normals(41 * 2, 1.0, 2));
        let [kept, again] = [usize::MAX, 0].map(|activation_bytes| {
            let settings = CotSettings { activation_bytes, ..map.settings() };
            gradients(&map.clone().with_settings(settings).unwrap(), &x, &y)
        });
        assert_eq!(kept, again);
    }
}

#[test]
fn single_precision_follows_double() {
    for embedding in [vec![], vec![20, 9, 6]] {
        single_follows_double(&example_of(CotShape::new(4, 5, 40, 3).with_embedding(embedding), 8));
    }
}

fn single_follows_double(map: &CotMap<f64>) {
    let (x, y) = (normals(50 * 4, 1.0, 1), normals(50 * 5, 1.0, 2));
    let (value, theta, _) = gradients(map, &x, &y);
    let single = map.cast::<f32>();
    let mut workspace = single.workspace(50);
    let (batch_x, batch_y) = single.load(&mut workspace, 50);
    for (single, double) in batch_x.iter_mut().chain(batch_y).zip(x.iter().chain(&y)) {
        *single = *double as f32;
    }
    let got = single.adjoints(&mut workspace).unwrap();
    assert!((got - value).abs() < 1e-5 * value.abs(), "{got} and {value}");
    let mut gradient = vec![f32::NAN; theta.len()];
    for (index, block) in single.blocks(&workspace).iter().enumerate() {
        single.block_gradient(&workspace, index, &mut gradient[block.range.clone()]);
    }
    let norm = theta.iter().map(|g| g * g).sum::<f64>().sqrt();
    let miss = gradient.iter().zip(&theta).map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
    assert!(miss < 1e-4 * norm, "‖error‖ {miss}, ‖gradient‖ {norm}");
}

#[test]
fn the_scheme_has_order_four() {
    let map = example(2, 2, 12, 3, 1);
    let (x, y) = (normals(2, 1.0, 1), normals(2, 1.0, 2));
    let end = |steps: usize| {
        let (mut z, mut log_det) = ([0.0; 2], [0.0]);
        let costs = map.forward_with_costs(&x, &y, steps, &mut z, &mut log_det).unwrap();
        [z[0], z[1], log_det[0], costs.transport[0]]
    };
    let exact = end(1024);
    let error = |steps: usize| {
        let got = end(steps);
        got.iter().zip(&exact).map(|(got, exact)| (got - exact) * (got - exact)).sum::<f64>().sqrt()
    };
    for steps in [16, 32] {
        let order = (error(steps) / error(2 * steps)).log2();
        assert!((order - 4.0).abs() < 0.3, "order {order} from {steps} steps");
    }
}

#[test]
fn draws_return_to_where_they_came_from() {
    for given in [0, 3] {
        let map = example(3, given, 16, 2, 64);
        let (rows, observations) = (150, 4);
        let y = normals(observations * given, 1.0, 2);
        let z = normals(rows * 3, 1.0, 1);
        let observation: Vec<u32> = (0..rows).map(|row| (row % observations) as u32).collect();
        let (x, inversion) = map.sample(&z, &y, &observation, 64).unwrap();
        let spread: Vec<f64> =
            observation.iter().flat_map(|&o| y[o as usize * given..][..given].to_vec()).collect();
        let (mut back, mut log_det) = (vec![0.0; z.len()], vec![0.0; rows]);
        map.forward(&x, &spread, &mut back, &mut log_det).unwrap();
        for ((got, z), row) in back.iter().zip(&z).zip((0..rows).flat_map(|row| [row; 3])) {
            assert!((got - z).abs() < 1e-6, "row {row}: {got} and {z}");
            assert!((got - z).abs() <= inversion.residuals[row] + 1e-12);
        }
        assert!(inversion.residuals.iter().all(|&residual| residual < 1e-6));
        // And from x to z to x.
        let (again, _) = map.sample(&back, &y, &observation, 64).unwrap();
        assert!(again.iter().zip(&x).all(|(again, x)| (again - x).abs() < 1e-6));
    }
}

#[test]
fn training_gives_the_same_bits_for_any_number_of_threads() {
    for embedding in [vec![], vec![9, 8, 5]] {
        same_bits_for_any_number_of_threads(CotShape::new(3, 4, 33, 3).with_embedding(embedding));
    }
}

/// Three warm steps, then two of the likelihood.
fn same_bits_for_any_number_of_threads(shape: CotShape) {
    let train = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let settings = CotSettings { warm_steps: 3, ..settings(3) };
            let mut map = CotMap::<f32>::initial(shape.clone(), settings, 5).unwrap();
            let mut workspace = map.workspace(90);
            let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
            let mut losses = Vec::new();
            for step in 0..5 {
                let (x, y) = map.load(&mut workspace, 90 - step as usize);
                for (value, normal) in x.iter_mut().chain(y).zip(normals(90 * 7, 1.0, step)) {
                    *value = normal as f32;
                }
                map.begin_step(&mut workspace, StepRandom { seed: 3, step: step + 1 });
                losses.push(map.adjoints(&mut workspace).unwrap().to_bits());
                adam.step(&mut map, &workspace, 1e-2);
                losses.push(map.loss(&mut workspace).unwrap().to_bits());
            }
            let bits: Vec<u32> = map.parameters().iter().map(|value| value.to_bits()).collect();
            (losses, bits)
        })
    };
    let one = train(1);
    assert_eq!(one, train(2));
    assert_eq!(one, train(4));
}

/// Stops a fit after this many steps, and keeps the events.
struct Watch {
    stop_after: u64,
    token: StopToken,
    told: Vec<TrainEvent>,
}

impl Observer for Watch {
    fn event(&mut self, event: &Event) -> brenier::Result<()> {
        self.told.extend(event.get::<TrainEvent>().cloned());
        Ok(())
    }

    fn stepped(&mut self, step: u64) {
        if step >= self.stop_after {
            self.token.stop();
        }
    }
}

fn watch(stop_after: u64) -> Watch {
    Watch { stop_after, token: StopToken::new(), told: Vec::new() }
}

/// A small fit with 30 warm steps, whose epochs have 9 steps.
fn warm_fit() -> FitSettings {
    let method = Method::CotFlow.defaults();
    let method = [("feature_width", 12), ("time_steps", 2), ("evaluation_steps", 4), ("warm_steps", 30)]
        .into_iter()
        .fold(method, |method, (name, value)| method.with(name, value).unwrap());
    let mut settings = FitSettings {
        method,
        target: Some("x1,x2".parse().unwrap()),
        given: Some("y".parse().unwrap()),
        ..FitSettings::default()
    };
    settings.train.batch_size = Some(50);
    settings.train.weight_average = Some(0.9);
    (settings.train.epochs, settings.train.validate_every) = (3, 4);
    settings
}

#[test]
fn a_warm_start_comes_before_the_epochs_and_is_told() {
    let table = example::simulate(500, 2);
    let run = |settings: &FitSettings| {
        let mut watch = watch(u64::MAX);
        let posterior = fit(&table, settings, Run::observed(&mut watch)).unwrap().posterior;
        (posterior, watch.told)
    };
    let mut settings = warm_fit();
    let (posterior, told) = run(&settings);
    let training = &posterior.info().training;
    assert_eq!((training.stop, training.steps), (Stop::Epochs, 30 + 3 * 9));
    let warmed = |told: &[TrainEvent]| {
        told.iter().position(|event| matches!(event, TrainEvent::Warmed { step: 30, .. }))
    };
    let place = warmed(&told).unwrap();
    // No loss of a warm step is reported or kept as one of the likelihood's, and the step size starts again at a fifth.
    let before = |event: &TrainEvent| matches!(event, TrainEvent::Validated(_));
    assert!(!told[..place].iter().any(before) && told[place..].iter().any(before));
    let first = posterior.history().first().unwrap();
    assert!(first.step > 30 && first.epoch < 1.0 && first.learning_rate <= 0.2 * 0.005, "{first:?}");
    assert!(matches!(told[0], TrainEvent::Started { max_steps: 57, .. }), "{:?}", told[0]);
    // The budget of steps holds for both kinds, and may end with the warm start or within it.
    for (most, warm) in [(40, true), (30, true), (12, false)] {
        settings.train.max_steps = Some(most);
        let (posterior, told) = run(&settings);
        let training = &posterior.info().training;
        assert_eq!((training.stop, training.steps, warmed(&told).is_some()), (Stop::Steps, most, warm));
    }
}

#[test]
fn a_warm_start_that_is_stopped_resumes_to_the_same_bits() {
    let (table, settings, folder) = (example::simulate(500, 2), warm_fit(), tempfile::tempdir().unwrap());
    let whole = fit(&table, &settings, Run::silent()).unwrap().posterior.to_bytes().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let alone = pool.install(|| fit(&table, &settings, Run::silent()).unwrap().posterior.to_bytes().unwrap());
    assert!(alone == whole, "threads");
    // Within the warm start, at its end, and after it.
    for steps in [1, 17, 29, 30, 31, 40] {
        let path = folder.path().join(format!("{steps}.checkpoint"));
        let mut watch = watch(steps);
        let token = watch.token.clone();
        let run = Run::observed(&mut watch).stop(&token).journal(Journal::at(&path));
        drop(fit(&table, &settings, run));
        assert!(path.exists(), "stopped after {steps} steps");
        let again = fit(&table, &settings, Run::silent().journal(Journal::at(&path))).unwrap().posterior;
        assert!(again.to_bytes().unwrap() == whole, "resumed after {steps} steps");
    }
}

/// The least loss is reached by −∇ₓΦ = E[z − x | x_t, y]: for x ~ N(μ(y), s²) it is known.
#[test]
fn warm_steps_find_the_flow_of_a_gaussian() {
    const STEPS: u64 = 3000;
    let settings = CotSettings { warm_steps: u64::MAX, ..CotSettings::default() };
    let mut map = CotMap::<f32>::initial(CotShape::new(1, 1, 24, 2), settings, 2).unwrap();
    let (rows, sd) = (128, 0.5_f64);
    let mut workspace = map.workspace(rows);
    let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
    for step in 1..=STEPS {
        let (x, y) = map.load(&mut workspace, rows);
        let drawn = normals(2 * rows, 1.0, 1000 + step);
        for ((x, y), pair) in x.iter_mut().zip(y).zip(drawn.chunks_exact(2)) {
            (*x, *y) = ((0.8 * pair[0] + sd * pair[1]) as f32, pair[0] as f32);
        }
        map.begin_step(&mut workspace, StepRandom { seed: 5, step });
        map.adjoints(&mut workspace).unwrap();
        adam.step(&mut map, &workspace, 0.01 * (1.0 - step as f64 / STEPS as f64));
    }
    // The mean square of the error over rows as in training, as a part of that of the flow itself.
    let (mut error, mut size) = (0.0, 0.0);
    for (row, drawn) in normals(3 * 500, 1.0, 9).chunks_exact(3).enumerate() {
        let (t, y) = ((row as f64 + 0.5) / 500.0, drawn[0]);
        let (mean, variance) = (0.8 * y, sd * sd);
        let x = (1.0 - t) * (mean + sd * drawn[1]) + t * drawn[2];
        let total = (1.0 - t) * (1.0 - t) * variance + t * t;
        let exact = -mean + (t - (1.0 - t) * variance) * (x - (1.0 - t) * mean) / total;
        let got = -map.potential(t as f32, &[x as f32], &[y as f32]).unwrap().1[1];
        error += (f64::from(got) - exact).powi(2);
        size += exact * exact;
    }
    assert!(error < 0.01 * size, "{error} of {size}");
    // The density, by what is lost per row.
    let mut lost = 0.0;
    for drawn in normals(2 * 500, 1.0, 11).chunks_exact(2) {
        let (x, y, mut density) = (0.8 * drawn[0] + sd * drawn[1], drawn[0], [0.0]);
        map.log_density(&[x as f32], &[y as f32], &mut density).unwrap();
        lost += (-0.5 * drawn[1] * drawn[1] - sd.ln() - brenier::map::HALF_LOG_TWO_PI - density[0]) / 500.0;
    }
    assert!((-0.01..0.03).contains(&lost), "{lost} nats");
}

#[test]
fn network_weights_stay_in_their_box_and_training_learns() {
    let mut map = CotMap::<f32>::initial(CotShape::new(1, 1, 16, 2), settings(4), 5).unwrap();
    let mut workspace = map.workspace(64);
    let (x, y) = map.load(&mut workspace, 64);
    for ((x, y), pair) in x.iter_mut().zip(y).zip(normals(128, 1.0, 3).chunks_exact(2)) {
        (*x, *y) = ((0.3 * pair[0] + pair[1]) as f32, pair[1] as f32);
    }
    let start = map.loss(&mut workspace).unwrap();
    let mut adam = Adam::new(map.parameters().len(), AdamSettings::default());
    for _ in 0..60 {
        map.adjoints(&mut workspace).unwrap();
        adam.step(&mut map, &workspace, 0.2);
    }
    let end = map.loss(&mut workspace).unwrap();
    assert!(end < start - 0.5 && end.is_finite(), "{start} to {end}");
    let mut at_the_wall = 0;
    for spec in map.tensors() {
        let boxed = !matches!(spec.name.as_str(), "A" | "b" | "c");
        assert_eq!(spec.constraint, if boxed { Constraint::Within(1.5) } else { Constraint::Free });
        if boxed {
            let values = spec.indices().map(|index| map.parameters()[index].abs());
            at_the_wall += values.inspect(|&v| assert!(v <= 1.5)).filter(|&v| v == 1.5).count();
        }
    }
    assert!(at_the_wall > 0, "the projection was never needed: the test shows nothing");
}

#[test]
fn blocks_tile_the_parameter_vector() {
    for (given, width, embedding) in [(0, 5, vec![]), (700, 130, vec![]), (700, 13, vec![140, 30, 7])] {
        let shape = CotShape::new(2, given, width, 3).with_embedding(embedding);
        let map = CotMap::<f32>::initial(shape, settings(1), 0).unwrap();
        let workspace = map.workspace(3);
        let mut next = 0;
        for block in map.blocks(&workspace) {
            assert_eq!(block.range.start, next);
            assert!(!block.range.is_empty());
            next = block.range.end;
        }
        assert_eq!(next, map.parameters().len());
    }
}

#[test]
fn shapes_and_settings_out_of_range_are_refused() {
    let good = CotShape::new(2, 3, 8, 2);
    good.validate().unwrap();
    assert_eq!((good.rank, CotShape::new(4, 9, 8, 2).rank), (6, 10));
    for bad in [
        CotShape { target: 0, ..good.clone() },
        CotShape { width: 0, ..good.clone() },
        CotShape { depth: 1, ..good.clone() },
        CotShape { depth: usize::MAX, ..good.clone() },
        CotShape { rank: 0, ..good.clone() },
        CotShape { rank: 7, ..good.clone() },
        CotShape { width: 1 << 16, ..good.clone() },
        CotShape { given: usize::MAX, ..good.clone() },
        CotShape::new(usize::MAX, usize::MAX, usize::MAX, 2),
        CotShape::new(2, 0, 8, 2).with_embedding(vec![4, 3]),
        good.clone().with_embedding(vec![4, 0]),
        good.clone().with_embedding(vec![1 << 20, 1 << 20]),
        good.clone().with_embedding(vec![usize::MAX]),
    ] {
        assert!(bad.validate().is_err(), "{bad:?}");
    }
    let fine = CotSettings::default();
    for bad in [
        CotSettings { time_steps: 0, ..fine },
        CotSettings { evaluation_steps: usize::MAX, ..fine },
        CotSettings { alpha_hjb: -1.0, ..fine },
        CotSettings { alpha_transport: f64::NAN, ..fine },
    ] {
        assert!(CotMap::<f64>::initial(good.clone(), bad, 0).is_err(), "{bad:?}");
    }
    let map = example(2, 3, 8, 2, 2);
    assert!(map.forward(&[0.0; 3], &[0.0; 3], &mut [0.0; 3], &mut [0.0]).is_err());
    assert!(map.forward(&[0.0; 2], &[0.0; 3], &mut [0.0; 4], &mut [0.0]).is_err());
    assert!(map.sample(&[0.0; 2], &[0.0; 3], &[1], 4).is_err());
    let error = map.forward(&[0.0, 0.0, 0.0, f64::NAN], &[0.0; 6], &mut [0.0; 4], &mut [0.0; 2]).unwrap_err();
    assert!(error.to_string().starts_with("row 2:"), "{error}");
}

/// e of one row by the formula, from the tensors by name.
fn embed(map: &CotMap<f64>, y: &[f64], layers: usize) -> Vec<f64> {
    let tensors = map.tensors();
    let values = |name: String| -> Vec<f64> {
        let spec = tensors.iter().find(|spec| spec.name == name).unwrap();
        spec.indices().map(|index| map.parameters()[index]).collect()
    };
    let mut a = y.to_vec();
    for l in 1..=layers {
        let (weight, bias) = (values(format!("E{l}")), values(format!("d{l}")));
        let s = weight.chunks_exact(a.len()).zip(bias).map(|(row, bias)| {
            let s = row.iter().zip(&a).map(|(e, a)| e * a).sum::<f64>() + bias;
            if l < layers { s.tanh() } else { s }
        });
        a = s.collect();
    }
    a
}

#[test]
fn an_embedded_flow_is_the_flow_of_its_embedding() {
    let shape = CotShape::new(3, 8, 12, 2).with_embedding(vec![7, 6, 4]);
    let map = example_of(shape.clone(), 5);
    assert_eq!((shape.features(), map.given_dim()), (4, 8));
    let plain = CotShape { given: 4, embedding: Vec::new(), ..shape };
    let parameters = map.parameters()[..plain.parameters()].to_vec();
    let plain = CotMap::from_parameters(plain, map.settings(), parameters).unwrap();
    let rows = 70;
    let (x, y) = (normals(rows * 3, 1.0, 1), normals(rows * 8, 1.0, 2));
    let e: Vec<f64> = y.chunks_exact(8).flat_map(|y| embed(&map, y, 3)).collect();
    let forward = |map: &CotMap<f64>, given: &[f64]| {
        let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; rows]);
        map.forward(&x, given, &mut z, &mut log_det).unwrap();
        z.extend(log_det);
        z
    };
    let observation: Vec<u32> = (0..rows as u32).collect();
    let pairs = [
        (forward(&map, &y), forward(&plain, &e)),
        (map.draw(&x, &y, &observation, 5).unwrap(), plain.draw(&x, &e, &observation, 5).unwrap()),
        (map.potential(0.3, &x, &y).unwrap().1, plain.potential(0.3, &x, &e).unwrap().1),
    ];
    for (got, expected) in pairs {
        assert_eq!(got.len(), expected.len());
        assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12 * b.abs().max(1.0)));
    }
}

#[test]
fn shapes_without_an_embedding_read_and_write_as_before() {
    let text = r#"{"target":2,"given":3,"width":8,"depth":2,"rank":6}"#;
    let shape: CotShape = serde_json::from_str(text).unwrap();
    assert_eq!(shape, CotShape::new(2, 3, 8, 2));
    assert_eq!(serde_json::to_string(&shape).unwrap(), text);
    let embedded = shape.with_embedding(vec![5, 4]);
    let again: CotShape = serde_json::from_str(&serde_json::to_string(&embedded).unwrap()).unwrap();
    assert_eq!(again, embedded);
}
