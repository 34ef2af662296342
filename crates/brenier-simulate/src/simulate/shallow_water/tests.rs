//! The simulator against golden values of the published Fortran program, and what must hold for any depths.

#![allow(clippy::unwrap_used)]

use serde::Deserialize;

use super::features::{FEATURES, centre_in_time, features, gain, to_surface};
use super::kernel::{self, AMPLITUDES, CELLS, Field, HOURS};
use super::projection::{INSIDE, INTERIOR, interior};
use super::*;
use crate::simulate::Streams;

#[derive(Deserialize)]
struct Golden {
    names: Vec<String>,
    hours: Vec<usize>,
    velocity_hours: Vec<usize>,
    features: Vec<usize>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    depth: Vec<f64>,
    jacobi: Vec<f64>,
    exact: Vec<f64>,
    single: Vec<f64>,
    velocity: Vec<f64>,
    psi: Vec<f64>,
    sum_of_squares: f64,
    psi_sum_of_squares: f64,
}

const PUBLISHED: Solver = Solver::Jacobi { tolerance: 1e-6 };

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden.json")).unwrap()
}

/// The largest difference between some hours of a surface and golden values.
fn difference(surface: &[f64], hours: &[usize], expected: &[f64]) -> f64 {
    let rows = hours.iter().flat_map(|hour| &surface[hour * CELLS..][..CELLS]);
    assert_eq!(hours.len() * CELLS, expected.len());
    rows.zip(expected).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

fn profile(f: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..CELLS).map(f).collect()
}

#[test]
fn the_published_iteration_matches_the_golden_surfaces() {
    let golden = golden();
    let depths: Vec<f64> = golden.cases.iter().flat_map(|case| case.depth.clone()).collect();
    let all = surfaces(&depths, PUBLISHED).unwrap();
    for ((name, case), surface) in golden.names.iter().zip(&golden.cases).zip(all.chunks_exact(AMPLITUDES)) {
        assert!(difference(surface, &golden.hours, &case.jacobi) < 1e-12, "{name}");
        let squares: f64 = surface.iter().map(|z| z * z).sum();
        assert!((squares - case.sum_of_squares).abs() < 1e-12, "{name}: {squares}");
        let mut psi = vec![0.0; FEATURES];
        features(surface, &mut psi);
        for (&index, expected) in golden.features.iter().zip(&case.psi) {
            assert!(
                (psi[index] - expected).abs() < 1e-10,
                "{name}, feature {index}: {} {expected}",
                psi[index]
            );
        }
        let squares: f64 = psi.iter().map(|y| y * y).sum();
        assert!((squares / case.psi_sum_of_squares - 1.0).abs() < 1e-12, "{name}");
    }
}

#[test]
fn the_velocity_of_the_published_iteration_matches_too() {
    let golden = golden();
    let mut field: Box<Field<f64, 6>> = Box::new([[0.0; 6]; CELLS]);
    for (lane, case) in golden.cases.iter().enumerate() {
        (0..CELLS).for_each(|cell| field[cell][lane] = case.depth[cell]);
    }
    kernel::run(&field, PUBLISHED, |hour, _, velocity| {
        let Some(place) = golden.velocity_hours.iter().position(|&own| own == hour) else { return };
        for (lane, case) in golden.cases.iter().enumerate() {
            for cell in 0..CELLS {
                let expected = case.velocity[place * CELLS + cell];
                assert!((velocity[cell][lane] - expected).abs() < 1e-12, "{hour} {cell}");
            }
        }
    });
}

#[test]
fn the_exact_solve_matches_in_double_and_single_precision() {
    let golden = golden();
    for (name, case) in golden.names.iter().zip(&golden.cases) {
        let surface = surfaces(&case.depth, Solver::Exact).unwrap();
        assert!(difference(&surface, &golden.hours, &case.exact) < 1e-10, "{name}");
        // The published program is in single precision and stops at 1e-6.
        assert!(difference(&surface, &[22], &case.single) < 2e-5, "{name}");
        let mut centred = vec![0.0; INTERIOR];
        blocks::centred_surfaces(&case.depth, &mut centred);
        let mut expected = interior(&surface);
        centre_in_time(&mut expected, INSIDE);
        let most = centred.iter().zip(&expected).fold(0.0_f64, |m, (a, b)| m.max((f64::from(*a) - b).abs()));
        assert!(most < 2e-6, "{name}: {most}");
    }
}

#[test]
fn the_single_precision_iteration_matches_the_published_program() {
    let golden = golden();
    for (name, case) in golden.names.iter().zip(&golden.cases) {
        let mut field: Box<Field<f32, 1>> = Box::new([[0.0]; CELLS]);
        (0..CELLS).for_each(|cell| field[cell][0] = case.depth[cell] as f32);
        kernel::run(&field, PUBLISHED, |hour, surface, _| {
            if hour == 22 {
                for cell in 0..CELLS {
                    let (got, expected) = (f64::from(surface[cell][0]), case.single[cell]);
                    assert!((got - expected).abs() < 1e-6, "{name} {cell}: {got} {expected}");
                }
            }
        });
    }
}

/// Hour by hour, the water that was raised is all there, walls and dry cells have none.
#[test]
fn mass_is_conserved_and_dry_cells_stay_dry() {
    let cases = [
        profile(|_| 10.0),
        profile(|i| 5.0 + 4.8 * (std::f64::consts::TAU * i as f64 / 99.0).cos()),
        profile(|i| if (40..45).contains(&i) { -1.0 } else { 8.0 }),
        profile(|i| if i == 3 { 0.1 } else { 12.0 }),
        profile(|i| if i % 2 == 0 { 0.11 } else { 20.0 }),
    ];
    for (number, depth) in cases.iter().enumerate() {
        let surface = surfaces(depth, Solver::Exact).unwrap();
        for (hour, row) in surface.chunks_exact(CELLS).enumerate() {
            assert!(row.iter().all(|z| z.is_finite()));
            let sum: f64 = row.iter().sum();
            assert!((sum - 0.1).abs() < 1e-13, "case {number}, hour {hour}: {sum}");
            for cell in 0..CELLS {
                if depth[cell] <= 0.1 || cell == 0 || cell == CELLS - 1 {
                    assert_eq!(row[cell], 0.0, "case {number}, hour {hour}, cell {cell}");
                }
            }
        }
    }
    // Nothing passes a wall.
    let behind = surfaces(&cases[2], Solver::Exact).unwrap();
    assert!(behind.chunks_exact(CELLS).all(|row| row[45..].iter().all(|&z| z == 0.0)));
    // A dry second cell shows the disturbance at hour 0 alone.
    let dry = surfaces(&profile(|i| if i == 1 { 0.0 } else { 10.0 }), Solver::Exact).unwrap();
    assert_eq!(dry[1], 0.1);
    assert!(dry[CELLS..].iter().all(|&z| z == 0.0));
}

#[test]
fn a_basin_does_not_depend_on_its_neighbours() {
    let depths = blocks::draw_depths(3, 0..37);
    let together = surfaces(&depths, Solver::Exact).unwrap();
    let mut single = vec![0.0; 37 * INTERIOR];
    blocks::centred_surfaces(&depths, &mut single);
    for row in [0, 8, 16, 36] {
        let depth = &depths[row * CELLS..][..CELLS];
        assert_eq!(surfaces(depth, Solver::Exact).unwrap(), together[row * AMPLITUDES..][..AMPLITUDES]);
        let mut alone = vec![0.0; INTERIOR];
        blocks::centred_surfaces(depth, &mut alone);
        assert_eq!(alone, single[row * INTERIOR..][..INTERIOR]);
    }
}

/// The features against the sum that defines them, and the two ways to project: by the features and by the isometry.
#[test]
fn features_are_an_isometry_of_the_time_centred_surface() {
    let depths = blocks::draw_depths(1, 0..2);
    let all = surfaces(&depths, Solver::Exact).unwrap();
    let surface = &all[AMPLITUDES..];
    let mut psi = vec![0.0; FEATURES];
    features(surface, &mut psi);
    for (k, l) in [(1, 0), (1, 1), (50, 50), (51, 50), (100, 99), (37, 73)] {
        let (mut re, mut im) = (0.0, 0.0);
        for t in 0..HOURS {
            for s in 0..CELLS {
                let angle = -std::f64::consts::TAU * ((k * t) as f64 / 101.0 + (l * s) as f64 / 100.0);
                re += surface[t * CELLS + s] * angle.cos();
                im += surface[t * CELLS + s] * angle.sin();
            }
        }
        let place = (k - 1) * CELLS + l;
        assert!((psi[place] - re).abs() < 1e-12 && (psi[FEATURES / 2 + place] - im).abs() < 1e-12, "{k} {l}");
    }
    let mut centred = surface.to_vec();
    centre_in_time(&mut centred, CELLS);
    let mut back = vec![0.0; AMPLITUDES];
    to_surface(&psi, &mut back);
    for (a, b) in back.iter().zip(&centred) {
        assert!((a - gain() * b).abs() < 1e-12, "{a} {b}");
    }
    // Any projection, with and without the features.
    let mut rng = Streams::new(5, 0).get(0);
    let matrix: Vec<f32> = (0..3 * INTERIOR).map(|_| rng.sample::<f32, _>(StandardNormal)).collect();
    let mut columns = vec![0.0; 3 * INTERIOR];
    for (i, row) in matrix.chunks_exact(3).enumerate() {
        (0..3).for_each(|k| columns[k * INTERIOR + i] = row[k]);
    }
    let projection = Projection::of_columns(3, &columns).unwrap();
    assert_eq!(projection.matrix(), matrix);
    let (mut direct, mut through) = ([0.0; 3], [0.0; 3]);
    projection.apply(surface, &mut direct);
    projection.of_features(&psi, &mut through);
    let mut block = vec![0.0; 6];
    let mut single = vec![0.0; 2 * INTERIOR];
    blocks::centred_surfaces(&depths, &mut single);
    projection.apply_block(&single, &mut block);
    for k in 0..3 {
        assert!((direct[k] - through[k]).abs() < 1e-9, "{direct:?} {through:?}");
        assert!((direct[k] - f64::from(block[3 + k])).abs() < 2e-3, "{direct:?} {block:?}");
    }
}

#[test]
fn the_prior_has_its_covariance() {
    let modes = depth::deviations();
    assert!(modes.iter().all(|deviation| *deviation > 0.0) && modes.is_sorted_by(|a, b| a > b));
    for (k, expected) in [361.410_993_291, 321.026_989_027, 263.658_880_338].into_iter().enumerate() {
        assert!((modes[k].powi(2) - expected).abs() < 1e-8);
    }
    for i in 0..CELLS {
        for j in 0..CELLS {
            let sum: f64 = (0..depth::MODES)
                .map(|k| modes[k].powi(2) * depth::direction(k)[i] * depth::direction(k)[j])
                .sum();
            let apart = i as f64 - j as f64;
            assert!((sum - 15.0 * (-apart * apart / 200.0).exp()).abs() < 1e-10, "{i} {j}");
        }
    }
    // Fractions of the variance, and the published units.
    let total = 1500.0;
    let explained: f64 = modes[..14].iter().map(|d| d * d).sum::<f64>() / total;
    assert!((explained - 0.999893).abs() < 1e-6, "{explained}");
    assert!((depth::published_log_scale(14) - 3.424).abs() < 1e-3);
    // Coordinates and back.
    let prior = depth::prior();
    let mut x = vec![0.0; CELLS];
    prior.draw(&mut Streams::new(1, 0).get(0), &mut x);
    let (mut u, mut back) = (vec![0.0; prior.coordinates()], vec![0.0; CELLS]);
    prior.to_coordinates(&x, &mut u);
    prior.at_coordinates(&u, &mut back);
    assert!(x.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12));
    let mut theta = vec![0.0; depth::MODES];
    depth::to_modes(&x, &mut theta);
    assert!(theta.iter().zip(&u).all(|(a, b)| (a - b).abs() < 1e-5), "{theta:?} {u:?}");
}

#[test]
fn rows_of_the_simulator_are_features_with_noise() {
    let model = ShallowWater::default();
    assert_eq!(model.output_names().len(), FEATURES);
    let streams = Streams::new(2, 0);
    let mut x = vec![0.0; CELLS];
    let mut rng = streams.get(0);
    model.prior().draw(&mut rng, &mut x);
    assert_eq!(x, blocks::draw_depths(2, 0..1));
    let (mut y, mut psi) = (vec![0.0; FEATURES], vec![0.0; FEATURES]);
    assert_eq!(model.simulate(&x, &mut rng, &mut y).unwrap(), Attempt::Done);
    let silent = ShallowWater::default().noise_free();
    assert_ne!(silent.identity(), model.identity());
    silent.simulate(&x, &mut rng, &mut psi).unwrap();
    let squares: f64 = y.iter().zip(&psi).map(|(y, psi)| ((y - psi) / NOISE).powi(2)).sum();
    // χ² with 20 000 degrees of freedom.
    assert!((squares - 2e4).abs() < 4.0 * 4e4_f64.sqrt(), "{squares}");
}
