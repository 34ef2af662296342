//! What is particular to CP-Flow: normalisation by the first batch, the stochastic log-determinant, certificates, blocks.

use brenier::map::cpflow::{CpFlowInverter, CpFlowMap, CpFlowShape, LogDet};
use brenier::map::{ConditionalMap, SampleSettings, Trainable, TransportMap};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

fn normals(rng: &mut ChaCha8Rng, count: usize) -> Vec<f64> {
    (0..count).map(|_| rng.sample(StandardNormal)).collect()
}

fn shape(target: usize, given: usize, width: usize, depth: usize, blocks: usize) -> CpFlowShape {
    CpFlowShape { target, given, width, depth, blocks }
}

/// A map that a skewed batch has normalised, with that batch.
fn normalised(shape: CpFlowShape, rows: usize, seed: u64) -> (CpFlowMap<f64>, Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut map = CpFlowMap::initial(shape, seed).unwrap();
    let x: Vec<f64> = normals(&mut rng, rows * shape.target).iter().map(|x| 3.0 + x + 0.3 * x * x).collect();
    let y = normals(&mut rng, rows * shape.given);
    map.normalise(&x, &y).unwrap();
    (map, x, y)
}

fn run<T: brenier::Real>(map: &CpFlowMap<T>, x: &[f64], y: &[f64]) -> (f64, f64, Vec<f64>) {
    let rows = x.len() / map.target_dim();
    let mut workspace = map.workspace(rows);
    let (batch_x, batch_y) = map.load(&mut workspace, rows);
    batch_x.iter_mut().zip(x).chain(batch_y.iter_mut().zip(y)).for_each(|(slot, &v)| *slot = T::from_f64(v));
    let exact = map.loss(&mut workspace).unwrap();
    let loss = map.adjoints(&mut workspace).unwrap();
    let mut gradient = vec![T::ZERO; map.parameters().len()];
    for (index, block) in map.blocks(&workspace).iter().enumerate() {
        map.block_gradient(&workspace, index, &mut gradient[block.range.clone()]);
    }
    (exact, loss, gradient.into_iter().map(|g| g.to_f64()).collect())
}

#[test]
fn the_first_batch_is_standard_after_normalisation() {
    for shape in [shape(1, 2, 8, 2, 1), shape(3, 0, 12, 3, 1), shape(2, 4, 10, 2, 2)] {
        let (map, x, y) = normalised(shape, 60, 1);
        let (mut z, mut log_det) = (vec![0.0; x.len()], vec![0.0; 60]);
        map.forward(&x, &y, &mut z, &mut log_det).unwrap();
        for j in 0..shape.target {
            let column = || z.iter().skip(j).step_by(shape.target);
            let mean = column().sum::<f64>() / 60.0;
            let variance = column().map(|z| (z - mean).powi(2)).sum::<f64>() / 60.0;
            // The factor has 0.001 added to what would make the deviation 1.
            assert!(
                mean.abs() < 1e-9 && (variance.sqrt() - 1.0).abs() < 5e-3,
                "{shape:?}: {mean} {variance}"
            );
        }
    }
}

#[test]
fn a_single_row_or_a_constant_column_leaves_a_usable_map() {
    let shape = shape(2, 2, 6, 2, 1);
    let mut map = CpFlowMap::<f64>::initial(shape, 3).unwrap();
    map.normalise(&[0.5, -1.0], &[0.2, 0.2]).unwrap();
    let (mut z, mut log_det) = ([0.0; 2], [0.0]);
    map.forward(&[0.7, -0.5], &[0.1, 0.4], &mut z, &mut log_det).unwrap();
    assert!(z.iter().all(|z| z.abs() < 100.0) && log_det[0].abs() < 20.0, "{z:?} {log_det:?}");
}

/// Rows that differ by rounding alone get probes of their own: the mean of their estimates comes close to the exact values.
#[test]
fn the_stochastic_log_determinant_and_its_gradient_are_unbiased() {
    let shape = shape(4, 2, 9, 2, 1);
    let (map, x, y) = normalised(shape, 40, 5);
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let copies = 6000;
    let many_x: Vec<f64> =
        (0..copies).flat_map(|_| x[..4].to_vec()).map(|x| x + 1e-9 * rng.random::<f64>()).collect();
    let many_y: Vec<f64> = (0..copies).flat_map(|_| y[..2].to_vec()).collect();
    let (exact, also_exact, gradient) = run(&map, &many_x, &many_y);
    let (value, estimate, estimated) = run(&map.clone().with_log_det(LogDet::Stochastic), &many_x, &many_y);
    assert_eq!(exact, value, "the loss of a validation is exact");
    assert_eq!(exact, also_exact);
    assert!(estimate != exact && (estimate - exact).abs() < 0.05, "{estimate} {exact}");
    let size = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let apart: Vec<f64> = estimated.iter().zip(&gradient).map(|(a, b)| a - b).collect();
    assert!(size(&apart) < 0.05 * size(&gradient), "{} of {}", size(&apart), size(&gradient));
    // One row alone is off by much more: that is the noise that training has to average out.
    let (one, single, _) = run(&map.with_log_det(LogDet::Stochastic), &many_x[..4], &many_y[..2]);
    assert!((single - one).abs() > 1e-4, "{single} {one}");
}

#[test]
fn stochastic_training_gives_the_same_bits_for_any_number_of_threads() {
    let (map, x, y) = normalised(shape(3, 2, 12, 3, 1), 150, 7);
    let map: CpFlowMap<f32> = map.cast::<f32>().with_log_det(LogDet::Stochastic);
    let bits = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&map, &x, &y).2.iter().map(|g| g.to_bits()).collect::<Vec<_>>())
    };
    assert!(bits(1) == bits(2));
}

/// ∂z/∂x of a single block has real positive eigenvalues, the product of which is its determinant.
#[test]
fn certificates_agree_with_log_determinants() {
    let (map, x, y) = normalised(shape(1, 2, 8, 2, 1), 50, 8);
    let trained = CpFlowInverter::new(&map.cast());
    let certificate = trained.certify(&x, &y).unwrap();
    let (mut z, mut log_det) = (vec![0.0; 50], vec![0.0; 50]);
    trained.double().forward(&x, &y, &mut z, &mut log_det).unwrap();
    let (low, high) = log_det.iter().fold((f64::MAX, f64::MIN), |(low, high), d| (low.min(*d), high.max(*d)));
    assert!((certificate.smallest.ln() - low).abs() < 1e-9 && (certificate.largest.ln() - high).abs() < 1e-9);
    assert!(certificate.bound.unwrap() > 0.0 && certificate.bound.unwrap() <= certificate.smallest);
    // Several blocks have no bound, and say what they are.
    let (map, x, y) = normalised(shape(2, 2, 8, 2, 2), 50, 9);
    let trained = CpFlowInverter::new(&map.cast());
    let certificate = trained.certify(&x, &y).unwrap();
    assert!(certificate.bound.is_none() && certificate.smallest > 0.0);
    assert!(trained.describe().contains("not a Brenier map"), "{}", trained.describe());
}

#[test]
fn an_absurd_observation_ends_in_an_answer_or_an_error_not_a_hang() {
    for blocks in [1, 2] {
        let (map, _, _) = normalised(shape(2, 3, 8, 2, blocks), 50, 10);
        let trained = CpFlowInverter::new(&map.cast());
        for scale in [1e3, 1e8, 1e20, 1e300] {
            let result = trained.draw(&[0.5; 2], &[scale; 3], &[0], &SampleSettings::default());
            if let Ok((x, inversion)) = result {
                assert!(x.iter().all(|x| x.is_finite()) && inversion.residuals[0] <= 1e-6);
            }
        }
    }
}
