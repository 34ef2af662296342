//! What only the flows themselves can tell: masks, order of variables, exact inverses, spline bounds.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::{Activation, FlowKind, Front, NpeMap, NpeShape};
use crate::map::{ConditionalMap, Trainable};

fn normals(rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
    (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

/// A flow with every parameter far from its start.
fn random_map(flow: FlowKind, target: usize, given: usize, seed: u64) -> NpeMap<f64> {
    shaken(NpeShape { hidden_width: 11, transforms: 3, ..NpeShape::new(flow, target, given) }, seed)
}

/// A flow of this shape with every parameter far from its start.
fn shaken(shape: NpeShape, seed: u64) -> NpeMap<f64> {
    let mut map = NpeMap::initial(shape, seed).expect("a valid shape");
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 100);
    for parameter in map.parameters_mut() {
        *parameter += 0.3 * rng.sample::<f64, _>(StandardNormal);
    }
    map
}

#[test]
fn masked_weights_change_nothing_and_have_no_gradient() {
    let map = random_map(FlowKind::Maf, 4, 2, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let (x, y) = (normals(&mut rng, 40), normals(&mut rng, 20));
    let mut workspace = map.workspace(10);
    let (batch_x, batch_y) = map.load(&mut workspace, 10);
    batch_x.copy_from_slice(&x);
    batch_y.copy_from_slice(&y);
    let loss = map.adjoints(&mut workspace).expect("a finite loss");
    let mut gradient = vec![f64::NAN; map.parameters().len()];
    for (index, block) in map.blocks(&workspace).iter().enumerate() {
        map.block_gradient(&workspace, index, &mut gradient[block.range.clone()]);
    }
    let mut moved = map.clone();
    let mut masked = 0;
    for (parameter, &gradient) in moved.parameters.iter_mut().zip(&gradient) {
        if gradient == 0.0 {
            *parameter += 1.0;
            masked += 1;
        }
    }
    // Degrees 1, 2, 3 of 11 units are 4, 4, 3: masked are 0+4+8+11 weights on inputs, 4·7+4·3 = 40 in each hidden layer …
    // outputs of degree 1, …, 4 read 0, 4, 8, 11 units.
    let each = (4 + 8 + 11) + 2 * (4 * 4 + 3 * 8) + 2 * (11 + 7 + 3);
    assert_eq!(masked, 3 * each);
    let (batch_x, batch_y) = moved.load(&mut workspace, 10);
    batch_x.copy_from_slice(&x);
    batch_y.copy_from_slice(&y);
    assert_eq!(loss, moved.adjoints(&mut workspace).expect("a finite loss"));
}

#[test]
fn one_autoregressive_transform_is_triangular() {
    let shape = NpeShape { hidden_width: 9, transforms: 1, ..NpeShape::new(FlowKind::Maf, 4, 2) };
    let map = NpeMap::<f64>::initial(shape, 3).expect("a valid shape");
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (x, y) = (normals(&mut rng, 4), normals(&mut rng, 2));
    let image = |x: &[f64]| {
        let (mut z, mut log_det) = ([0.0; 4], [0.0]);
        map.forward(x, &y, &mut z, &mut log_det).expect("finite");
        z
    };
    let base = image(&x);
    // Output i changes with input j exactly for j ≤ i, so that the numbers of changed outputs are 4, 3, 2, 1.
    for j in 0..4 {
        let mut moved = x.clone();
        moved[j] += 0.5;
        let changed = image(&moved).iter().zip(&base).filter(|(a, b)| a != b).count();
        assert_eq!(changed, 4 - j);
    }
}

#[test]
fn draws_return_exactly_also_far_outside_the_splines() {
    for (flow, n, m) in [
        (FlowKind::Maf, 1, 3),
        (FlowKind::Maf, 5, 2),
        (FlowKind::Nsf, 1, 3),
        (FlowKind::Nsf, 2, 0),
        (FlowKind::Nsf, 5, 2),
    ] {
        let map = random_map(flow, n, m, 7);
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let rows = 150;
        // Near the bounds ±3 of the splines, at them, and far beyond.
        let mut z = normals(&mut rng, rows * n);
        for (i, z) in z.iter_mut().enumerate() {
            *z = match i % 5 {
                0 => 3.0 * z.signum(),
                1 => 3.0 + 1e-9 * *z,
                2 => 40.0 * *z,
                _ => 2.0 * *z,
            };
        }
        let given = normals(&mut rng, 3 * m);
        let observation: Vec<u32> = (0..rows as u32).map(|row| (row / 7) % 3).collect();
        let x = map.draw(&z, &given, &observation).expect("sizes fit");
        let (back, density) = map.forward_at(&x, &given, &observation).expect("sizes fit");
        for (back, z) in back.iter().zip(&z) {
            assert!((back - z).abs() < 1e-9 * (1.0 + z.abs()), "{flow:?} {n} {m}: {back} {z}");
        }
        // And the densities are those of the plain way.
        let y: Vec<f64> =
            observation.iter().flat_map(|&o| given[o as usize * m..(o as usize + 1) * m].to_vec()).collect();
        let mut plain = vec![0.0; rows];
        map.log_density(&x, &y, &mut plain).expect("finite");
        for (at, plain) in density.iter().zip(&plain) {
            assert!((at - plain).abs() < 1e-9 * (1.0 + plain.abs()));
        }
    }
}

#[test]
fn a_lone_coordinate_makes_the_autoregressive_flow_a_gaussian() {
    let map = random_map(FlowKind::Maf, 1, 2, 5);
    let image = |x: f64| {
        let (mut z, mut log_det) = ([0.0], [0.0]);
        map.forward(&[x], &[0.3, -0.7], &mut z, &mut log_det).expect("finite");
        (z[0], log_det[0])
    };
    let ((a, slope), (b, other), (c, _)) = (image(-1.0), image(0.5), image(2.0));
    assert!((b - a - (c - b)).abs() < 1e-12 && (slope - other).abs() < 1e-13);
    assert!(((b - a) / 1.5 - slope.exp()).abs() < 1e-12);
}

/// Along a random direction in the parameters, or in x, the loss leaves its tangent by a remainder that falls with the square of the step.
#[test]
fn gradients_with_a_front_and_any_activation_pass_taylors_test() {
    for (flow, activation, front) in [
        (FlowKind::Maf, Activation::Elu, Front::Affine),
        (FlowKind::Nsf, Activation::Tanh, Front::Affine),
        (FlowKind::Maf, Activation::Relu, Front::Affine),
        (FlowKind::Maf, Activation::Tanh, Front::Autoregressive),
        (FlowKind::Nsf, Activation::Elu, Front::Autoregressive),
    ] {
        let shape = NpeShape {
            hidden_width: 8,
            transforms: 2,
            embedding: vec![7, 6, 5],
            embedding_activation: activation,
            front,
            front_width: 6,
            ..NpeShape::new(flow, 4, 3)
        };
        let map = shaken(shape, 21);
        let (rows, mut rng) = (10, ChaCha8Rng::seed_from_u64(22));
        let (x, y) = (normals(&mut rng, 4 * rows), normals(&mut rng, 3 * rows));
        let mut workspace = map.workspace(rows);
        let mut loss = |map: &NpeMap<f64>, x: &[f64], gradient: Option<&mut [f64]>| {
            let (batch_x, batch_y) = map.load(&mut workspace, rows);
            batch_x.copy_from_slice(x);
            batch_y.copy_from_slice(&y);
            let loss = map.adjoints(&mut workspace).expect("a finite loss");
            if let Some(gradient) = gradient {
                for (index, block) in map.blocks(&workspace).iter().enumerate() {
                    map.block_gradient(&workspace, index, &mut gradient[block.range.clone()]);
                }
            }
            loss
        };
        let mut gradient = vec![f64::NAN; map.parameters().len()];
        let base = loss(&map, &x, Some(&mut gradient));
        let mut direction = normals(&mut rng, gradient.len());
        // The rotation of an autoregressive front stays as it is.
        for spec in map.tensors().iter().filter(|spec| spec.name == "Q") {
            spec.indices().for_each(|at| direction[at] = 0.0);
        }
        let slope: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
        let (mut density, mut x_gradient) = (vec![0.0; rows], vec![0.0; 4 * rows]);
        map.log_density_gradient(&x, &y, &mut density, &mut x_gradient).expect("finite");
        let x_direction = normals(&mut rng, x.len());
        let along: f64 = x_gradient.iter().zip(&x_direction).map(|(g, d)| g * d).sum();
        let x_slope = -along / rows as f64;
        let mut remainders = |step: f64| {
            let mut moved = map.clone();
            moved.parameters.iter_mut().zip(&direction).for_each(|(p, d)| *p += step * d);
            let moved_x: Vec<f64> = x.iter().zip(&x_direction).map(|(x, d)| x + step * d).collect();
            [
                (loss(&moved, &x, None) - base - step * slope).abs(),
                (loss(&map, &moved_x, None) - base - step * x_slope).abs(),
            ]
        };
        let (coarse, fine) = (remainders(1e-5), remainders(5e-6));
        for (coarse, fine) in coarse.iter().zip(fine) {
            let ratio = coarse / fine;
            assert!((3.7..4.3).contains(&ratio), "{flow:?} {activation:?}: {coarse} {fine}");
        }
    }
}

/// A front is the affine map u = (I + N) D (x − μ) before the transforms: draws return, and one whose columns are set by hand adds
/// what the formula says to a flow without it.
#[test]
fn a_front_is_the_affine_map_of_its_columns() {
    let plain = NpeShape { hidden_width: 9, transforms: 2, ..NpeShape::new(FlowKind::Maf, 3, 2) };
    let fronted = NpeShape { front: Front::Affine, ..plain.clone() };
    let inner = shaken(plain, 11);
    let mut map = shaken(fronted, 12);
    for spec in map.tensors() {
        let place: Vec<usize> = spec.indices().collect();
        match spec.name.as_str() {
            // μ, t with ℓ = 8 tanh(t/8), then N_10, N_20, N_21.
            "cf" => {
                let columns = [0.5, -1.0, 2.0, 0.7, -0.4, 1.1, 0.3, -0.6, 0.9];
                place.iter().zip(columns).for_each(|(&at, value)| map.parameters[at] = value);
            }
            "Cf" => place.iter().for_each(|&at| map.parameters[at] = 0.0),
            name => {
                let own = inner.tensors().into_iter().find(|own| own.name == name).expect("the same tensor");
                place
                    .iter()
                    .zip(own.indices())
                    .for_each(|(&at, from)| map.parameters[at] = inner.parameters[from]);
            }
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(13);
    let (x, y) = (normals(&mut rng, 3), normals(&mut rng, 2));
    let log: Vec<f64> = [0.7, -0.4, 1.1].iter().map(|t: &f64| 8.0 * (t / 8.0).tanh()).collect();
    let w: Vec<f64> = (0..3).map(|j| log[j].exp() * (x[j] - [0.5, -1.0, 2.0][j])).collect();
    let u = [w[0], w[1] + 0.3 * w[0], w[2] - 0.6 * w[0] + 0.9 * w[1]];
    let image = |map: &NpeMap<f64>, x: &[f64]| {
        let (mut z, mut log_det) = ([0.0; 3], [0.0]);
        map.forward(x, &y, &mut z, &mut log_det).expect("finite");
        (z, log_det[0])
    };
    let ((z, det), (inner_z, inner_det)) = (image(&map, &x), image(&inner, &u));
    for (a, b) in z.iter().zip(&inner_z) {
        assert!((a - b).abs() < 1e-12 * (1.0 + b.abs()), "{a} {b}");
    }
    assert!((det - inner_det - log.iter().sum::<f64>()).abs() < 1e-12);
    let back = map.draw(&z, &y, &[0]).expect("sizes fit");
    for (a, b) in back.iter().zip(&x) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}

/// Coordinate k of an autoregressive front reads r_1, …, r_k alone, log det is that of the triangle, and draws return.
#[test]
fn an_autoregressive_front_is_triangular_after_its_rotation() {
    let (n, m) = (4, 3);
    let shape = NpeShape {
        hidden_width: 5,
        transforms: 1,
        front: Front::Autoregressive,
        front_width: 7,
        ..NpeShape::new(FlowKind::Maf, n, m)
    };
    let mut map = shaken(shape, 31);
    // A rotation in two planes, and a flow that scales all coordinates alike and permutes them.
    let (c, s) = (0.6, 0.8);
    let q = [[c, s, 0.0, 0.0], [-s, c, 0.0, 0.0], [0.0, 0.0, s, -c], [0.0, 0.0, c, s]];
    map.set_order(&q.concat());
    for spec in map.tensors() {
        if ["W3.0", "b3.0"].contains(&spec.name.as_str()) {
            spec.indices().for_each(|at| map.parameters[at] = 0.0);
        }
    }
    let mut rng = ChaCha8Rng::seed_from_u64(32);
    let (r, y) = (normals(&mut rng, n), normals(&mut rng, m));
    let turned = |r: &[f64]| -> Vec<f64> { (0..n).map(|j| (0..n).map(|k| q[k][j] * r[k]).sum()).collect() };
    let image = |r: &[f64]| {
        let (mut z, mut log_det) = ([0.0; 4], [0.0]);
        map.forward(&turned(r), &y, &mut z, &mut log_det).expect("finite");
        (z, log_det[0])
    };
    let (base, log_det) = image(&r);
    let order: Vec<usize> = map.permutations().next().expect("one transform").to_vec();
    let mut slopes = 0.0;
    for j in 0..n {
        let step = 1e-6;
        let mut moved = r.clone();
        moved[j] += step;
        let (there, _) = image(&moved);
        for (to, &k) in order.iter().enumerate() {
            let slope = (there[to] - base[to]) / step;
            assert_eq!(slope.abs() < 1e-8, k < j, "coordinate {k} along {j}: {slope}");
            if k == j {
                slopes += slope.ln();
            }
        }
    }
    assert!((slopes - log_det).abs() < 1e-5, "{slopes} {log_det}");
    let back = map.draw(&base, &y, &[0]).expect("sizes fit");
    for (a, b) in back.iter().zip(turned(&r)) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}

#[test]
fn contexts_of_many_observations_are_those_of_few() {
    let map = random_map(FlowKind::Nsf, 3, 2, 6);
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (rows, n, m) = (200, 3, 2);
    let (z, given) = (normals(&mut rng, rows * n), normals(&mut rng, rows * m));
    let all: Vec<u32> = (0..rows as u32).collect();
    let together = map.draw(&z, &given, &all).expect("sizes fit");
    for row in [0, 63, 64, 199] {
        let alone =
            map.draw(&z[row * n..(row + 1) * n], &given[row * m..(row + 1) * m], &[0]).expect("sizes fit");
        for (a, b) in alone.iter().zip(&together[row * n..]) {
            assert!((a - b).abs() < 1e-12);
        }
    }
}
