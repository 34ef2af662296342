//! The varying spread: Taylor remainders of its loss, where its Newton steps end, and parameters that are known.
#![allow(clippy::unwrap_used)]

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

use super::fit::{Rows, Spread, fit};
use super::{Covariance, Layout};

fn normals(rng: &mut ChaCha8Rng, count: usize, scale: f64) -> Vec<f64> {
    (0..count).map(|_| scale * rng.sample::<f64, _>(StandardNormal)).collect()
}

#[test]
fn taylor_remainders_of_the_spreads_loss_fall_cubically() {
    for seed in 0..5 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (rows, given) = (60, 3);
        let (along, y) = (normals(&mut rng, rows, 0.8), normals(&mut rng, rows * given, 1.0));
        let spread = Spread { along: &along, y: &y, given };
        let w = normals(&mut rng, given + 1, 0.3);
        // Mostly along the constant, so that the cubic term cannot vanish by chance.
        let mut direction = normals(&mut rng, given, 0.2);
        direction.push(1.0);
        let (gradient, hessian) = spread.derivatives(&w);
        let linear: f64 = (0..=given).map(|j| gradient[(j, 0)] * direction[j]).sum();
        let place = |i: usize, j: usize| hessian[(i.max(j), i.min(j))];
        let square: f64 = (0..=given)
            .flat_map(|i| (0..=given).map(move |j| (i, j)))
            .map(|(i, j)| place(i, j) * direction[i] * direction[j])
            .sum();
        let remainder = |h: f64| {
            let moved: Vec<f64> = w.iter().zip(&direction).map(|(w, d)| w + h * d).collect();
            (spread.loss(&moved) - spread.loss(&w) - h * linear - 0.5 * h * h * square).abs()
        };
        for h in [2e-2, 1e-2] {
            let order = (remainder(h) / remainder(0.5 * h)).log2();
            assert!((order - 3.0).abs() < 0.15, "seed {seed}: order {order}");
        }
    }
}

/// x = A y + b + V diag(e^{c + C y}) e with e ~ N(0, I).
#[test]
fn the_parameters_of_a_log_affine_spread_are_found() {
    let mean = [[0.8, -0.3], [0.2, 0.5]];
    let shift = [0.4, -0.6];
    let axes = [[0.5_f64.cos(), -(0.5_f64.sin())], [0.5_f64.sin(), 0.5_f64.cos()]];
    // The axis of the smaller variance comes first, as eigenvalues do.
    let (level, growth) = ([-1.2, 0.1], [[0.4, -0.2], [-0.3, 0.25]]);
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut simulate = |count: usize| {
        let y = normals(&mut rng, 2 * count, 1.0);
        let x = y.chunks_exact(2).flat_map(|y| {
            let along: [f64; 2] = std::array::from_fn(|k| {
                (level[k] + growth[k][0] * y[0] + growth[k][1] * y[1]).exp()
                    * rng.sample::<f64, _>(StandardNormal)
            });
            [0, 1].map(|i| {
                mean[i][0] * y[0]
                    + mean[i][1] * y[1]
                    + shift[i]
                    + axes[i][0] * along[0]
                    + axes[i][1] * along[1]
            })
        });
        Rows { x: x.collect(), y, count }
    };
    let (train, valid) = (simulate(10_000), simulate(2_000));
    let (map, _) = fit(Layout::new(2, 2, Covariance::LogAffine), &train, &valid).unwrap();
    let parts = map.parts();
    let fitted = parts.growth.unwrap();
    for k in 0..2 {
        let cosine = axes[0][k] * parts.axes[2 * k] + axes[1][k] * parts.axes[2 * k + 1];
        assert!(cosine.abs() > 0.999, "axis {k}: {:?}", parts.axes);
        assert!((parts.shift[k] - shift[k]).abs() < 0.06, "b: {:?}", parts.shift);
        assert!((parts.spread[k] - level[k]).abs() < 0.05, "c: {:?}", parts.spread);
        for j in 0..2 {
            assert!((parts.mean[k + 2 * j] - mean[k][j]).abs() < 0.06, "A: {:?}", parts.mean);
            assert!((fitted[k + 2 * j] - growth[k][j]).abs() < 0.05, "C: {fitted:?}");
        }
    }
    // What a constant spread misses: with y ~ N(0, I), Σ |C_k|² = 0.35 nats.
    let (constant, _) = fit(Layout::new(2, 2, Covariance::Constant), &train, &valid).unwrap();
    assert!(valid.nll(&constant).unwrap() - valid.nll(&map).unwrap() > 0.25);

    // Newton's steps have ended where the loss has no slope, from near and from afar.
    let along: Vec<f64> = train.x.iter().step_by(2).copied().collect();
    let spread = Spread { along: &along, y: &train.y, given: 2 };
    for variance in [1.0, 1e-3, 1e3] {
        let (gradient, _) = spread.derivatives(&spread.minimise(variance));
        assert!((0..3).all(|j| gradient[(j, 0)].abs() < 1e-6), "from {variance}: {gradient:?}");
    }
}
