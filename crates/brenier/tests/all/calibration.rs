//! Calibration by ranks: the exact posterior passes at the nominal rate, faults are refused and named.

use brenier::Result;
use brenier::diagnose::{Calibration, CalibrationSettings, PairDraws, Pairs, Quantity, calibrate};
use brenier::statistics::random::stream;
use rand::RngExt;
use rand_distr::StandardNormal;

/// x ~ N(0, I₂), y = x + ε with ε ~ N(0, I₂): the posterior is N(y/2, I/2).
fn linear_gaussian(count: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = stream(seed, 1);
    let x: Vec<f64> = (0..2 * count).map(|_| rng.sample(StandardNormal)).collect();
    let y = x.iter().map(|x| x + rng.sample::<f64, _>(StandardNormal)).collect();
    (x, y)
}

/// Draws from N(use·y/2 + shift, variance·I) with their densities.
fn judge(count: usize, draws: usize, part: f64, shift: f64, variance: f64, seed: u64) -> Calibration {
    let (x, y) = linear_gaussian(count, seed);
    let pairs = Pairs::new(&x, 2, &y, 2).unwrap();
    let settings = CalibrationSettings { draws, seed, ..Default::default() };
    calibrate(&pairs, &settings, |range| {
        let mut rng = stream(seed, 2 + range.start as u64);
        let mut drawn = PairDraws::default();
        let (mut at_truth, mut at_draws) = (Vec::new(), Vec::new());
        for pair in range {
            let mean = [0, 1].map(|j| part * 0.5 * y[2 * pair + j] + shift);
            let density =
                |x: &[f64]| -((x[0] - mean[0]).powi(2) + (x[1] - mean[1]).powi(2)) / (2.0 * variance);
            at_truth.push(density(&x[2 * pair..2 * pair + 2]));
            for _ in 0..draws {
                let x = mean.map(|mean| mean + variance.sqrt() * rng.sample::<f64, _>(StandardNormal));
                at_draws.push(density(&x));
                drawn.draws.extend(x);
            }
        }
        drawn.log_densities = Some((at_truth, at_draws));
        Ok(drawn)
    })
    .unwrap()
}

fn p_value(found: &Calibration, quantity: Quantity) -> f64 {
    found.checks.iter().find(|check| check.quantity == quantity).unwrap().uniformity.p_value
}

/// 5 % of calibrated methods are refused: of 200, 10 with standard deviation 3.1, and Holm's and Bonferroni's
/// bounds make it fewer. Every check alone, by its band and by its moments, keeps the level too.
#[test]
fn the_exact_posterior_passes_at_the_nominal_rate() {
    let mut refused = 0;
    let mut alarms = vec![[0; 2]; 5];
    for seed in 0..200 {
        let found = judge(200, 50, 1.0, 0.0, 0.5, seed);
        refused += u32::from(!found.passes());
        assert_eq!(found.checks.len(), 5);
        for (alarms, check) in alarms.iter_mut().zip(&found.checks) {
            alarms[0] += u32::from(check.uniformity.band_p_value <= 0.05);
            alarms[1] += u32::from(check.uniformity.smooth_p_value <= 0.05);
        }
        assert!(found.explained.unwrap() > 0.3);
    }
    assert!((1..=18).contains(&refused), "{refused} {alarms:?}");
    assert!(alarms.iter().flatten().all(|count| (1..=21).contains(count)), "{alarms:?}");
}

/// With few pairs too: the points that distances are measured to must not know which of the D + 1 is the truth. With a box of
/// the truths alone, TARP refused 20 % of tables of 2 pairs and 8 % of those of 3 at 0.01. Of 400, 4 with standard deviation
/// 2 are expected.
#[test]
fn few_pairs_refuse_the_exact_posterior_no_oftener() {
    for count in [2, 3, 5, 10, 20] {
        let (mut refused, mut tarp) = (0, 0);
        for seed in 0..400 {
            let found = judge(count, 50, 1.0, 0.0, 0.5, 1000 + seed);
            refused += u32::from(found.p_value() <= 0.01);
            tarp += u32::from(p_value(&found, Quantity::Tarp) <= 0.01);
        }
        assert!(refused <= 10 && tarp <= 10, "{count} pairs: {refused} refused, {tarp} by TARP");
    }
}

#[test]
fn wrong_posteriors_are_refused() {
    let narrow = judge(4000, 100, 1.0, 0.0, 0.4, 1);
    assert!(!narrow.passes());
    assert!(p_value(&narrow, Quantity::Parameter(0)) < 0.01);
    assert!(p_value(&narrow, Quantity::Density) < 0.01);
    assert_eq!(narrow.checks[0].reading(), "draws too narrow");
    assert!(narrow.checks[2].reading().starts_with("overconfident"));
    let wide = judge(4000, 100, 1.0, 0.0, 0.6, 2);
    assert!(!wide.passes());
    assert_eq!(wide.checks[1].reading(), "draws too wide");
    let shifted = judge(2000, 100, 1.0, 0.1, 0.5, 3);
    assert!(!shifted.passes());
    assert_eq!(shifted.checks[0].reading(), "draws too high");
    // The prior: every check but the last must let it pass, and the last must not.
    let prior = judge(1000, 100, 0.0, 0.0, 1.0, 4);
    assert!(p_value(&prior, Quantity::Parameter(0)) > 0.01 && p_value(&prior, Quantity::Density) > 0.01);
    assert!(p_value(&prior, Quantity::Tarp) > 0.01);
    assert!(p_value(&prior, Quantity::Predicted) < 1e-6 && !prior.passes());
    assert!(prior.checks[4].reading().contains("not used"));
}

#[test]
fn chunks_and_threads_change_nothing() {
    let (x, y) = linear_gaussian(300, 5);
    let draws: Vec<f64> = (0..300 * 20 * 2).map(|i| (f64::from(i) * 0.7).sin()).collect();
    let settings = CalibrationSettings { draws: 20, ..Default::default() };
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            calibrate(&Pairs::new(&x, 2, &y, 2).unwrap(), &settings, |range| {
                let draws = draws[range.start * 40..range.end * 40].to_vec();
                Ok(PairDraws { draws, log_densities: None })
            })
            .unwrap()
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn ties_are_broken_evenly_and_mistakes_named() {
    // Truth and draws all zero: ranks must still be uniform.
    let zeros = vec![0.0; 2000];
    let settings = CalibrationSettings { draws: 10, ..Default::default() };
    let pairs = Pairs::new(&zeros, 1, &[], 0).unwrap();
    let found = calibrate(&pairs, &settings, |range| {
        Ok(PairDraws { draws: vec![0.0; 10 * range.len()], log_densities: None })
    })
    .unwrap();
    assert!(found.passes() && found.checks.len() == 2 && found.explained.is_none());
    let text = |result: Result<Calibration>| result.unwrap_err().to_string();
    let short = calibrate(&pairs, &settings, |_| Ok(PairDraws::default()));
    assert!(text(short).contains("draws for held-out pairs"));
    let nan = calibrate(&pairs, &settings, |range| {
        Ok(PairDraws { draws: vec![f64::NAN; 10 * range.len()], log_densities: None })
    });
    assert!(text(nan).contains("pair 1 is NaN"));
    assert!(Pairs::new(&zeros, 1, &[1.0], 1).is_err());
    assert!(Pairs::new(&[f64::NAN], 1, &[], 0).unwrap_err().to_string().contains("pair 1"));
}

#[test]
fn many_given_columns_still_show_a_method_that_ignores_them() {
    let (x, _) = linear_gaussian(1000, 6);
    let mut rng = stream(6, 3);
    let y: Vec<f64> = x
        .chunks_exact(2)
        .flat_map(|x| (0..100).map(|k| x[k % 2] * (k as f64 * 0.3).cos()).collect::<Vec<_>>())
        .map(|clean| clean + 0.3 * rng.sample::<f64, _>(StandardNormal))
        .collect();
    let settings = CalibrationSettings { draws: 50, ..Default::default() };
    let found = calibrate(&Pairs::new(&x, 2, &y, 100).unwrap(), &settings, |range| {
        let mut rng = stream(7, range.start as u64);
        let draws = (0..range.len() * 100).map(|_| rng.sample(StandardNormal)).collect();
        Ok(PairDraws { draws, log_densities: None })
    })
    .unwrap();
    assert!(found.explained.unwrap() > 0.9, "{:?}", found.explained);
    assert!(!found.passes() && p_value(&found, Quantity::Parameter(1)) > 0.01);
}
