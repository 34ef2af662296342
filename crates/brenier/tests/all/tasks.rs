//! The benchmark tasks and simulators: draws from the exact posteriors agree with quadrature, with other samplers and with
//! identities of the posterior.

use brenier::simulate::lotka_volterra::LotkaVolterra;
use brenier::simulate::shallow_water::exact::{
    ChainSettings, Laplace, NewtonSettings, WaveLikelihood, depth_moments, relative_error, sample,
};
use brenier::simulate::shallow_water::{ShallowWater, depth};
use brenier::simulate::tasks::{BernoulliGlm, GaussianMixture, Sir, Slcp, Task, tempered_draws};
use brenier::simulate::{Attempt, Simulator, Streams, TwoMoons};

/// Compares draws with quadrature of prior times likelihood: the probabilities of 40 × 40 boxes that cover the posterior at
/// y, by a χ² statistic. `cells` is the number of quadrature cells in each direction, a multiple of 40, `count` that of draws.
fn assert_probabilities(
    task: &dyn Task,
    y: &[f64],
    low: [f64; 2],
    high: [f64; 2],
    (cells, count): (usize, usize),
) {
    const BOXES: usize = 40;
    let draws = task.posterior_draws(y, count, 5).unwrap();
    let width = [0, 1].map(|j| (high[j] - low[j]) / cells as f64);
    let (mut exact, mut found) = ([0.0; BOXES * BOXES], [0.0; BOXES * BOXES]);
    let mut u = [0.0; 2];
    for i in 0..cells {
        for j in 0..cells {
            let at = |j: usize, i: usize| low[j] + (i as f64 + 0.5) * width[j];
            let theta = [at(0, i), at(1, j)];
            task.prior().to_coordinates(&theta, &mut u);
            let jacobian: f64 = u.iter().zip(&theta).map(|(u, t)| if u == t { 0.0 } else { -t.ln() }).sum();
            let density = task.prior().log_density(&u) + jacobian + task.log_likelihood(&theta, y);
            exact[i * BOXES / cells * BOXES + j * BOXES / cells] += density.exp();
        }
    }
    let whole: f64 = exact.iter().sum();
    for theta in draws.chunks_exact(2) {
        let place = [0, 1].map(|j| (theta[j] - low[j]) / (high[j] - low[j]) * BOXES as f64);
        if place.iter().all(|place| (0.0..BOXES as f64).contains(place)) {
            found[place[0] as usize * BOXES + place[1] as usize] += 1.0;
        }
    }
    let inside: f64 = found.iter().sum();
    assert!(inside > 0.999 * count as f64, "only {inside} draws lie where the density was integrated");
    let (mut chi_square, mut boxes) = (0.0, 0.0);
    let mut rare = (0.0, 0.0);
    for (exact, found) in exact.iter().zip(found) {
        let expected = exact / whole * inside;
        if expected >= 5.0 {
            chi_square += (found - expected).powi(2) / expected;
            boxes += 1.0;
        } else {
            rare = (rare.0 + expected, rare.1 + found);
        }
    }
    assert!(boxes > 8.0, "the posterior fills {boxes} boxes only");
    let normal = (chi_square - boxes) / (2.0 * boxes).sqrt();
    assert!(normal.abs() < 4.5, "χ² = {chi_square} in {boxes} boxes");
    assert!((rare.0 - rare.1).abs() < 5.0 * rare.0.sqrt() + 5.0, "{rare:?}");
}

#[test]
fn draws_of_two_moons_have_the_probabilities_of_the_density() {
    let task = TwoMoons::default();
    for y in [[0.0, 0.0], [-0.3, 0.4], [0.25, -0.1], [-1.0, 0.05]] {
        assert_probabilities(&task, &y, [-1.0, -1.0], [1.0, 1.0], (1600, 20_000));
    }
}

/// Inside the square, at its corner and outside it.
#[test]
fn draws_of_a_mixture_have_the_probabilities_of_the_density() {
    let task = GaussianMixture::default();
    for (y, low, high) in [
        ([3.0, -4.0], [-1.0, -8.0], [7.0, 0.0]),
        ([9.95, -9.9], [6.0, -10.0], [10.0, -6.0]),
        ([10.8, 2.0], [6.0, -2.0], [10.0, 6.0]),
    ] {
        assert_probabilities(&task, &y, low, high, (800, 20_000));
    }
}

/// A well observed epidemic, by quadrature.
#[test]
fn draws_of_epidemics_have_the_probabilities_of_the_density() {
    let y = [0.0, 0.0, 3.0, 60.0, 240.0, 110.0, 22.0, 4.0, 0.0, 0.0];
    assert_probabilities(&Sir::default(), &y, [0.3, 0.09], [0.42, 0.16], (160, 6000));
}

/// Where the ridge matters, against tempering, which knows nothing of Wishart distributions.
#[test]
fn draws_agree_with_those_of_another_sampler() {
    let task = Slcp::default();
    let theta: [f64; 5] = [0.5, -1.0, 0.04, 1.2, 0.5];
    let mut y = [0.0; 8];
    task.simulate(&theta, &mut Streams::new(5, 0).get(0), &mut y).unwrap();
    let count = 4000;
    let own = task.posterior_draws(&y, count, 1).unwrap();
    let other = tempered_draws(&task, &y, count, 2).unwrap();
    for j in 0..5 {
        let moments = |draws: &[f64]| {
            let column: Vec<f64> = draws.iter().skip(j).step_by(5).map(|t| t.abs()).collect();
            let mean = column.iter().sum::<f64>() / count as f64;
            let square = column.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / count as f64;
            (mean, square.sqrt())
        };
        let ((a, sd), (b, other_sd)) = (moments(&own), moments(&other));
        assert!((a - b).abs() < 0.1 * sd, "{j}: {a} and {b}, sd {sd}");
        assert!((sd / other_sd - 1.0).abs() < 0.1, "{j}: {sd} and {other_sd}");
    }
    for j in 2..4 {
        let positive = own.iter().skip(j).step_by(5).filter(|t| **t > 0.0).count() as f64;
        assert!((positive / count as f64 - 0.5).abs() < 0.04, "{positive}");
    }
}

/// Over pairs (θ, y) of the model, θ and a posterior draw at y have the same distribution given y.
#[test]
fn draws_of_a_glm_are_exchangeable_with_the_parameters() {
    let task = BernoulliGlm::summaries();
    let (streams, rows) = (Streams::new(8, 0), 600);
    let (mut theta, mut y) = ([0.0; 10], [0.0; 10]);
    let mut sums = [[0.0; 2]; 3 * 10];
    for row in 0..rows {
        let mut rng = streams.get(row);
        task.prior().draw(&mut rng, &mut theta);
        task.simulate(&theta, &mut rng, &mut y).unwrap();
        let other = task.posterior_draws(&y, 1, row).unwrap();
        for j in 0..10 {
            let of = |t: &[f64]| [t[j], t[j] * t[j], t[j] * y[j] / 10.0];
            for (k, (a, b)) in of(&theta).into_iter().zip(of(&other)).enumerate() {
                let sum = &mut sums[3 * j + k];
                *sum = [sum[0] + (a - b), sum[1] + (a - b) * (a - b)];
            }
        }
    }
    for [sum, square] in sums {
        assert!(sum.abs() < 4.5 * square.sqrt(), "{sum} {square}");
    }
}

/// Stein's identity with the score s: E s = 0 and E θᵢ sᵢ = −1 under the posterior.
#[test]
fn draws_of_a_glm_satisfy_the_posteriors_own_identities() {
    let task = BernoulliGlm::summaries();
    let mut rng = Streams::new(3, 0).get(5);
    let (mut theta, mut y) = ([0.0; 10], [0.0; 10]);
    task.prior().draw(&mut rng, &mut theta);
    task.simulate(&theta, &mut rng, &mut y).unwrap();
    let count = 4000;
    let draws = task.posterior_draws(&y, count, 1).unwrap();
    for j in 0..10 {
        let (mut first, mut second) = ([0.0; 2], [0.0; 2]);
        for theta in draws.chunks_exact(10) {
            let at = |shift: f64| {
                let mut moved = theta.to_vec();
                moved[j] += shift;
                task.prior().log_density(&moved) + task.log_likelihood(&moved, &y)
            };
            let score = (at(1e-4) - at(-1e-4)) / 2e-4;
            let product = theta[j] * score + 1.0;
            first = [first[0] + score, first[1] + score * score];
            second = [second[0] + product, second[1] + product * product];
        }
        for [sum, square] in [first, second] {
            assert!(sum.abs() < 4.5 * square.sqrt(), "{j}: {} ± {}", sum, square.sqrt());
        }
    }
}

/// The published observations must be ordinary draws at their parameters.
#[test]
fn published_observations_are_unremarkable() {
    let model = LotkaVolterra::default();
    let cases = [
        (
            [0.01, 0.5, 1.0, 0.01],
            [
                28.886666666666667,
                9.14,
                8.203119820275296,
                6.873302264934192,
                0.9988166865376336,
                0.9790397835236928,
                0.9668411507834976,
                0.895913541661916,
                0.5278054027304466,
            ],
        ),
        (
            [0.02; 4],
            [
                115.69333333333333,
                2.3466666666666667,
                5.650097863308985,
                4.944399253975897,
                0.9330758436036537,
                0.8652644907101258,
                0.736647768581715,
                0.5061329588692244,
                -0.38603302157400426,
            ],
        ),
    ];
    for (theta, observed) in cases {
        let streams = Streams::new(4, 0);
        let mut draws: Vec<[f64; 9]> = Vec::new();
        for row in 0.. {
            let mut summaries = [0.0; 9];
            if model.simulate(&theta, &mut streams.get(row), &mut summaries).unwrap() == Attempt::Done {
                draws.push(summaries);
            }
            if draws.len() == 2000 {
                break;
            }
        }
        let count = draws.len() as f64;
        let mut scale = [0.0; 9];
        for i in 0..9 {
            let below = draws.iter().filter(|draw| draw[i] < observed[i]).count() as f64 / count;
            assert!((0.001..0.999).contains(&below), "{theta:?} {}: {below}", model.output_names()[i]);
            let mean = draws.iter().map(|draw| draw[i]).sum::<f64>() / count;
            scale[i] = (draws.iter().map(|draw| (draw[i] - mean).powi(2)).sum::<f64>() / count).sqrt();
        }
        // All together: the observation lies no farther from its tenth neighbour than draws do.
        let tenth = |point: &[f64; 9]| {
            let mut distances: Vec<f64> = draws
                .iter()
                .map(|draw| (0..9).map(|i| ((draw[i] - point[i]) / scale[i]).powi(2)).sum())
                .collect();
            *distances.select_nth_unstable_by(10, f64::total_cmp).1
        };
        let own = tenth(&observed);
        let nearer = draws.iter().filter(|draw| tenth(draw) < own).count() as f64 / count;
        assert!(nearer < 0.99, "{theta:?}: nearer to the others than {nearer} of the draws");
    }
}

#[test]
fn about_an_eighth_of_the_prior_draws_is_abandoned() {
    let model = LotkaVolterra::default();
    let streams = Streams::new(5, 0);
    let (mut theta, mut summaries) = ([0.0; 4], [0.0; 9]);
    let count = 5000;
    let abandoned = (0..count)
        .filter(|&row| {
            let mut rng = streams.get(row);
            model.prior().draw(&mut rng, &mut theta);
            model.simulate(&theta, &mut rng, &mut summaries).unwrap() == Attempt::Abandoned
        })
        .count();
    let part = abandoned as f64 / count as f64;
    assert!((part - 0.123).abs() < 0.015, "{part}");
}

/// Waves on a few modes: the mode is near the truth, the misfit as large as the noise, and the sampler agrees.
#[test]
fn the_posterior_of_a_basin_is_found_and_the_sampler_agrees() {
    let modes = 6;
    let likelihood = WaveLikelihood::new(modes).unwrap();
    let truth = [0.3, -0.5, 0.8, 0.2, -0.9, 0.4];
    let mut depths = vec![0.0; 100];
    depth::of_modes(&truth, &mut depths);
    let mut y = vec![0.0; 20_000];
    ShallowWater::default().simulate(&depths, &mut Streams::new(4, 0).get(0), &mut y).unwrap();
    let seen = likelihood.observation(&y).unwrap();
    let laplace = Laplace::find(&likelihood, &seen, &truth, &NewtonSettings::default()).unwrap();
    assert!(laplace.converged);
    // χ² in 100 × 98 directions.
    assert!((laplace.misfit - 9800.0).abs() < 5.0 * 140.0, "{}", laplace.misfit);
    let distance = laplace.squared_distance(&truth);
    assert!(distance < 30.0, "{distance}");
    let chains = sample(
        &likelihood,
        &seen,
        &laplace,
        &ChainSettings { chains: 8, steps: 60, burn_in: 10, step: 0.8, seed: 1 },
    )
    .unwrap();
    assert!(chains.acceptance > 0.5, "{}", chains.acceptance);
    let (mean, spread) = chains.moments();
    let covariance = laplace.covariance();
    for k in 0..modes {
        let sd = covariance[k + k * modes].sqrt();
        assert!((mean[k] - laplace.mode[k]).abs() < sd, "{k}");
        assert!((spread[k + k * modes].sqrt() / sd - 1.0).abs() < 0.5, "{k}");
    }
    let (centre, sd) = depth_moments(&laplace.mode, &covariance);
    assert!(relative_error(&centre, &depths) < 0.02);
    assert!(sd.iter().all(|sd| *sd > 0.0 && *sd < 0.5), "{sd:?}");
}
