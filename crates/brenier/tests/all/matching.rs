//! What the contract test does not see: known fields, the regression's own minimum, steps of the integration.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use brenier::map::matching::{MatchingMap, MatchingSettings, MatchingShape};
use brenier::map::{ConditionalMap, Trainable};
use brenier::train::{Adam, StepRandom};

fn shape(target: usize, given: usize) -> MatchingShape {
    MatchingShape { target, given, width: 24, blocks: 2, embedding: Vec::new() }
}

fn random_map(shape: MatchingShape, steps: usize, size: f64) -> MatchingMap<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let settings = MatchingSettings { evaluation_steps: steps };
    let mut map = MatchingMap::initial(shape, settings, 1).expect("a sound shape");
    for parameter in map.parameters_mut() {
        *parameter += size * rng.sample::<f64, _>(StandardNormal);
    }
    map
}

#[test]
fn the_map_starts_as_the_identity() {
    let map = MatchingMap::<f64>::initial(shape(3, 2), MatchingSettings::default(), 0).expect("a map");
    let (x, y) = ([0.3, -1.0, 2.0], [0.5, -0.5]);
    let (mut z, mut log_det) = ([0.0; 3], [1.0]);
    map.forward(&x, &y, &mut z, &mut log_det).expect("finite");
    assert!(z == x && log_det[0] == 0.0);
}

/// v = d alone: every point moves by d, whatever the times of the steps.
#[test]
fn a_constant_field_moves_every_point_by_itself() {
    let mut map = MatchingMap::<f64>::initial(shape(2, 1), MatchingSettings::default(), 0).expect("a map");
    let place = map.tensors().into_iter().find(|spec| spec.name == "d").expect("a bias").offset;
    map.parameters_mut()[place..place + 2].copy_from_slice(&[0.25, -2.0]);
    let (mut z, mut log_det) = ([0.0; 2], [1.0]);
    map.forward(&[1.0, 1.0], &[0.3], &mut z, &mut log_det).expect("finite");
    assert!((z[0] - 1.25).abs() < 1e-14 && (z[1] + 1.0).abs() < 1e-14 && log_det[0] == 0.0);
    let back = map.draw(&z, &[0.3], &[0], 5).expect("finite");
    assert!(back.iter().all(|x| (x - 1.0).abs() < 1e-14));
}

/// The error of z falls with the fourth power of the number of steps.
#[test]
fn trajectories_converge_in_the_fourth_order() {
    let (x, y) = ([0.4, -0.7], [0.2, 1.0]);
    let end = |steps: usize| {
        let map = random_map(shape(2, 2), steps, 0.2);
        let (mut z, mut log_det) = ([0.0; 2], [0.0]);
        map.forward(&x, &y, &mut z, &mut log_det).expect("finite");
        [z[0], z[1], log_det[0]]
    };
    let exact = end(512);
    let miss = |steps: usize| {
        end(steps).iter().zip(&exact).map(|(got, exact)| (got - exact).abs()).fold(0.0, f64::max)
    };
    let order = (miss(16) / miss(32)).log2();
    assert!((3.5..4.6).contains(&order), "order {order}");
}

/// The least loss is reached by E[z − x | x_t]: for x ~ N(μ(y), s²) it is known.
#[test]
fn regression_finds_the_field_of_a_gaussian() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut map = MatchingMap::<f32>::initial(shape(1, 1), MatchingSettings::default(), 2).expect("a map");
    let (rows, sd) = (128, 0.5_f64);
    let mut workspace = map.workspace(rows);
    let mut adam = Adam::new(map.parameters().len(), Default::default());
    for step in 1..=1500_u64 {
        let (x, y) = map.load(&mut workspace, rows);
        for (x, y) in x.iter_mut().zip(y) {
            let given: f64 = rng.sample(StandardNormal);
            *y = given as f32;
            *x = (0.8 * given + sd * rng.sample::<f64, _>(StandardNormal)) as f32;
        }
        map.begin_step(&mut workspace, StepRandom { seed: 5, step });
        map.adjoints(&mut workspace).expect("finite");
        adam.step(&mut map, &workspace, if step < 1000 { 3e-3 } else { 5e-4 });
    }
    for (t, x, y) in [(0.2, 0.9, 0.7), (0.5, -0.4, -0.5), (0.8, 0.6, 0.2)] {
        let (mean, variance) = (0.8 * y, sd * sd);
        let total = (1.0 - t) * (1.0 - t) * variance + t * t;
        let exact = -mean + (t - (1.0 - t) * variance) * (x - (1.0 - t) * mean) / total;
        let got = map.field(t, &[x as f32], &[y as f32]).expect("finite")[0];
        assert!((f64::from(got) - exact).abs() < 0.12, "t = {t}: {got} instead of {exact}");
    }
    let mut density = [0.0];
    let (x, y) = (0.5_f64, 0.4_f64);
    map.log_density(&[x as f32], &[y as f32], &mut density).expect("finite");
    let exact = -0.5 * ((x - 0.8 * y) / sd).powi(2) - sd.ln() - brenier::map::HALF_LOG_TWO_PI;
    assert!((density[0] - exact).abs() < 0.1, "{} instead of {exact}", density[0]);
}
