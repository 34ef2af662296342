//! The yardstick where the answer is known: an affine model, a model with a known marginal, and waves on few modes.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::simulate::shallow_water::{ShallowWater, blocks};
use crate::simulate::{LinearGaussian, Simulator, Streams};

/// y = Aθ + b in three parameters; `bend` adds its multiple of θ₁² to the last output.
struct Toy {
    bend: f64,
}

const MATRIX: [[f64; 3]; 4] = [[1.0, 0.5, 0.0], [-0.3, 0.8, 0.4], [0.2, -1.0, 1.0], [0.0, 0.3, -0.6]];

impl Forward for Toy {
    fn dim(&self) -> usize {
        3
    }

    fn outputs(&self) -> usize {
        4
    }

    fn evaluate(&self, points: &[f64], out: &mut [f64]) {
        for (theta, out) in points.chunks_exact(3).zip(out.chunks_exact_mut(4)) {
            for (out, row) in out.iter_mut().zip(&MATRIX) {
                *out = row.iter().zip(theta).map(|(a, t)| a * t).sum();
            }
            out[3] += self.bend * theta[0] * theta[0];
        }
    }
}

const OBSERVED: [f64; 4] = [0.7, -1.2, 2.0, 0.3];

/// Where the model is linear, Laplace's approximation is the posterior, and the chains and integrals agree with it.
#[test]
fn a_linear_model_has_its_closed_form_posterior() {
    let identity = |n: usize| -> Vec<Vec<f64>> {
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
    };
    let matrix = MATRIX.iter().map(|row| row.to_vec()).collect();
    let model = LinearGaussian::new(vec![0.0; 3], identity(3), matrix, identity(4)).unwrap();
    let exact = model.posterior(&OBSERVED);
    let toy = Toy { bend: 0.0 };
    let laplace = Laplace::find(&toy, &OBSERVED, &[3.0, -2.0, 1.0], &NewtonSettings::default()).unwrap();
    assert!(laplace.converged && laplace.steps <= 3);
    let covariance = laplace.covariance();
    for i in 0..3 {
        assert!((laplace.mode[i] - exact.mean[i]).abs() < 1e-8);
        for j in 0..3 {
            assert!((covariance[i + 3 * j] - exact.covariance[i][j]).abs() < 1e-8);
        }
    }
    // Density of the first two by the closed form of two dimensions.
    let point = [0.4, -0.1];
    let (a, b, d) = (exact.covariance[0][0], exact.covariance[0][1], exact.covariance[1][1]);
    let (u, v) = (point[0] - exact.mean[0], point[1] - exact.mean[1]);
    let det = a * d - b * b;
    let expected =
        -0.5 * (d * u * u - 2.0 * b * u * v + a * v * v) / det - 0.5 * det.ln() - std::f64::consts::TAU.ln();
    assert!((laplace.marginal_log_density(&point) - expected).abs() < 1e-7);
    let (estimate, constant) = marginal_log_density(&toy, &OBSERVED, &laplace, &point, 100, 1);
    assert!((estimate.log - expected).abs() < 1e-6, "{estimate:?} {expected}");
    assert!(estimate.effective > 0.999 && constant.effective > 0.999);
    let settings = ChainSettings { chains: 8, steps: 3000, step: 1.0, ..Default::default() };
    let chains = sample(&toy, &OBSERVED, &laplace, &settings).unwrap();
    assert!(chains.acceptance > 0.999 && chains.largest_r_hat < 1.01, "{chains:?}");
    let (mean, spread) = chains.moments();
    for i in 0..3 {
        assert!((mean[i] - exact.mean[i]).abs() < 0.03);
        assert!((spread[i + 3 * i] - exact.covariance[i][i]).abs() < 0.03);
    }
}

/// Where it is not, chains and integrals agree with a sum over a grid, and Laplace's approximation does not.
#[test]
fn a_bent_model_has_the_posterior_of_the_grid() {
    let toy = Toy { bend: 1.5 };
    let laplace = Laplace::find(&toy, &OBSERVED, &[0.1, 0.0, 0.0], &NewtonSettings::default()).unwrap();
    let (cells, low, step) = (81, -4.0, 0.1);
    let node = |i: usize| low + step * i as f64;
    let mut marginal = vec![0.0; cells];
    for i in 0..cells {
        let points: Vec<f64> =
            (0..cells * cells).flat_map(|jk| [node(i), node(jk / cells), node(jk % cells)]).collect();
        marginal[i] = toy.potentials(&OBSERVED, &points).iter().map(|phi| (-phi).exp()).sum::<f64>();
    }
    let total: f64 = marginal.iter().sum::<f64>() * step;
    let mean = (0..cells).map(|i| node(i) * marginal[i]).sum::<f64>() * step / total;
    let variance = (0..cells).map(|i| (node(i) - mean).powi(2) * marginal[i]).sum::<f64>() * step / total;
    let chains = sample(
        &toy,
        &OBSERVED,
        &laplace,
        &ChainSettings { chains: 16, steps: 4000, burn_in: 500, step: 0.9, seed: 2 },
    )
    .unwrap();
    assert!(
        chains.acceptance < 0.95 && chains.largest_r_hat < 1.05,
        "{} {}",
        chains.acceptance,
        chains.largest_r_hat
    );
    let (got, spread) = chains.moments();
    assert!(
        (got[0] - mean).abs() < 0.03 && (spread[0] / variance - 1.0).abs() < 0.08,
        "{got:?} {mean} {variance}"
    );
    let place = 44;
    let expected = (marginal[place] / total).ln();
    let (estimate, _) = marginal_log_density(&toy, &OBSERVED, &laplace, &[node(place)], 40_000, 3);
    assert!((estimate.log - expected).abs() < 0.05, "{estimate:?} {expected}");
    assert!((laplace.marginal_log_density(&[node(place)]) - expected).abs() > 0.05);
}

/// The likelihood of a projection onto all directions of a few surfaces is that of their components.
#[test]
fn a_projected_likelihood_sees_projected_features() {
    let mut centred = vec![0.0; 2 * INTERIOR];
    blocks::centred_surfaces(&blocks::draw_depths(8, 0..2), &mut centred);
    let projection = Projection::of_columns(2, &centred).unwrap();
    let likelihood = WaveLikelihood::new(3).unwrap().projected(&projection);
    let theta = [0.5, -0.2, 0.1];
    let mut depths = vec![0.0; CELLS];
    depth::of_modes(&theta, &mut depths);
    let mut psi = vec![0.0; FEATURES];
    let model = ShallowWater::default().noise_free();
    model.simulate(&depths, &mut Streams::new(4, 0).get(0), &mut psi).unwrap();
    let mut predicted = vec![0.0; 2];
    likelihood.evaluate(&theta, &mut predicted);
    for (a, b) in likelihood.observation(&psi).unwrap().iter().zip(&predicted) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}
