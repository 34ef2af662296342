//! Two samples compared: classifiers, kernels, transport distances and rank statistics keep their levels and see what differs.

use brenier::diagnose::{
    Bandwidth, C2stSettings, CompareSettings, Corridor, MmdTestSettings, Ranks, Sample, SlicedSettings, c2st,
    c2st_until, compare, compare_until, mmd, mmd_test, mmd_test_until, mmd_until, sliced_wasserstein,
    sliced_wasserstein_until,
};
use brenier::statistics::random::{below, stream};
use brenier::{Error, Result, StopToken};
use rand::RngExt;
use rand_distr::StandardNormal;

/// Normal numbers, row by row.
fn normal(rows: usize, dim: usize, shift: f64, scale: f64, seed: u64) -> Vec<f64> {
    let mut rng = stream(seed, 9);
    (0..rows * dim).map(|_| shift + scale * rng.sample::<f64, _>(StandardNormal)).collect()
}

fn accuracy(a: &Sample<'_>, b: &Sample<'_>) -> f64 {
    c2st(a, b, &C2stSettings::default()).unwrap().accuracy
}

/// Two N(0, 1)ᵈ apart by δ in every column: the best accuracy is Φ(δ√d / 2) = 0.6915 for δ√d = 1.
#[test]
fn a_shift_is_told_as_well_as_it_can_be() {
    let (a, b) = (normal(1000, 2, 0.0, 1.0, 1), normal(1000, 2, 0.5_f64.sqrt(), 1.0, 2));
    let (p, q) = (Sample::new(&a, 2).unwrap(), Sample::new(&b, 2).unwrap());
    let found = c2st(&p, &q, &C2stSettings::default()).unwrap();
    assert!((found.accuracy - 0.6915).abs() < 0.04, "{found:?}");
    assert!(found.p_value < 1e-6 && found.folds.len() == 5, "{found:?}");
    // Units do not matter, unequal sizes hardly.
    let far: Vec<f64> = [&a, &b].map(|s| s.iter().map(|x| 1e30 * x + 1e31).collect::<Vec<_>>()).concat();
    let (far_p, far_q) = far.split_at(a.len());
    let far = accuracy(&Sample::new(far_p, 2).unwrap(), &Sample::new(far_q, 2).unwrap());
    assert!((far - found.accuracy).abs() < 0.02, "{far} {found:?}");
    let fewer = Sample::new(&b[..1000], 2).unwrap();
    assert!((accuracy(&p, &fewer) - 0.6915).abs() < 0.06);
}

/// N(0.7, 1) weighted by exp(−0.7 x) is N(0, 1) again.
#[test]
fn weights_make_another_sample_equal() {
    let (a, b) = (normal(1500, 1, 0.0, 1.0, 3), normal(1500, 1, 0.7, 1.0, 4));
    let weights: Vec<f64> = b.iter().map(|x| (-0.7 * x).exp()).collect();
    let (p, q) = (Sample::new(&a, 1).unwrap(), Sample::new(&b, 1).unwrap());
    assert!(accuracy(&p, &q) > 0.6);
    let weighted = c2st(&p, &q.with_weights(&weights).unwrap(), &C2stSettings::default()).unwrap();
    assert!((weighted.accuracy - 0.5).abs() < 0.03, "{weighted:?}");
}

#[test]
fn extremes_end_in_a_number_or_a_sentence() {
    let one = [1.0; 10];
    let other = [2.0; 10];
    let (p, q) = (Sample::new(&one, 1).unwrap(), Sample::new(&other, 1).unwrap());
    assert!(accuracy(&p, &q) > 0.99);
    assert!((accuracy(&p, &p) - 0.5).abs() < 0.31);
    let huge = [1e300, -1e300, 1e300, -1e300, 0.0, 1.0];
    assert!(accuracy(&Sample::new(&huge, 1).unwrap(), &q).is_finite());
    assert!(accuracy(&q, &Sample::new(&huge, 1).unwrap()).is_finite());
    let few = Sample::new(&one[..3], 1).unwrap();
    let text = c2st(&few, &q, &C2stSettings::default()).unwrap_err().to_string();
    assert!(text.contains("at least 5") && text.contains("got 3"), "{text}");
}

#[test]
fn a_classifier_gives_the_same_bits_on_any_number_of_threads() {
    let (a, b) = (normal(300, 2, 0.0, 1.0, 5), normal(300, 2, 0.2, 1.0, 6));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let (p, q) = (Sample::new(&a, 2).unwrap(), Sample::new(&b, 2).unwrap());
        pool.install(|| c2st(&p, &q, &C2stSettings::default()).unwrap())
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn kernels_give_the_same_bits_on_any_number_of_threads() {
    let (a, b) = (normal(3000, 2, 0.0, 1.0, 1), normal(2000, 2, 0.1, 1.0, 2));
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (p, q) = (Sample::new(&a, 2).unwrap(), Sample::new(&b, 2).unwrap());
            let settings = MmdTestSettings { max_rows: 300, permutations: 99, ..Default::default() };
            (mmd(&p, &q, Bandwidth::Median).unwrap(), mmd_test(&p, &q, &settings).unwrap())
        })
    };
    assert_eq!(run(1), run(3));
}

/// False alarms of a 5 % test over 200 repetitions: 10 expected, standard deviation 3.1.
#[test]
fn the_kernel_test_keeps_its_level_and_sees_a_shift() {
    let mut alarms = [0; 3];
    for repetition in 0..200 {
        let a = normal(60, 2, 0.0, 1.0, 3 * repetition);
        let b = normal(80, 2, 0.0, 1.0, 3 * repetition + 1);
        let shifted = normal(80, 2, 0.6, 1.0, 3 * repetition + 2);
        // Draws from N(0, 1) as a weighted sample of N(0.3, 1): w = exp(−0.3 x + const).
        let tilted = normal(80, 2, 0.3, 1.0, 3 * repetition + 1);
        let weights: Vec<f64> = tilted.chunks_exact(2).map(|row| (-0.3 * (row[0] + row[1])).exp()).collect();
        let p = Sample::new(&a, 2).unwrap();
        let settings = MmdTestSettings {
            permutations: 199,
            bandwidth: Bandwidth::Median,
            seed: repetition,
            ..Default::default()
        };
        let others = [
            Sample::new(&b, 2).unwrap(),
            Sample::new(&tilted, 2).unwrap().with_weights(&weights).unwrap(),
            Sample::new(&shifted, 2).unwrap(),
        ];
        for (alarms, q) in alarms.iter_mut().zip(&others) {
            *alarms += u32::from(mmd_test(&p, q, &settings).unwrap().p_value <= 0.05);
        }
    }
    assert!((3..=19).contains(&alarms[0]), "{alarms:?}");
    assert!((2..=22).contains(&alarms[1]), "{alarms:?}");
    assert!(alarms[2] > 180, "{alarms:?}");
}

/// A shift by s moves every projection by s·direction: SW₂² = ‖s‖²/d exactly, in the mean over directions.
#[test]
fn a_shift_has_its_exact_distance() {
    let a = normal(500, 3, 0.0, 1.0, 1);
    let b: Vec<f64> = a.iter().map(|x| x + 2.0).collect();
    let (p, q) = (Sample::new(&a, 3).unwrap(), Sample::new(&b, 3).unwrap());
    let settings = SlicedSettings { directions: 2000, ..Default::default() };
    let found = sliced_wasserstein(&p, &q, &settings).unwrap();
    assert!((found.distance - 2.0).abs() < 4.0 * found.standard_error, "{found:?}");
    assert!(found.standard_error < 0.03, "{found:?}");
    assert_eq!(found, sliced_wasserstein(&q, &p, &settings).unwrap());
}

/// W₂ between N(0, 1) and N(0, 4) is 1.
#[test]
fn a_wider_normal_is_one_away() {
    let (a, b) = (normal(20_000, 2, 0.0, 1.0, 2), normal(10_000, 2, 0.0, 2.0, 3));
    let (p, q) = (Sample::new(&a, 2).unwrap(), Sample::new(&b, 2).unwrap());
    let found = sliced_wasserstein(&p, &q, &SlicedSettings::default()).unwrap();
    assert!((found.distance - 1.0).abs() < 0.03, "{found:?}");
    assert!(sliced_wasserstein(&p, &q, &SlicedSettings { order: 0.5, ..Default::default() }).is_err());
}

#[test]
fn equal_samples_pass_and_others_do_not_in_any_units() {
    let mut rng = stream(4, 1);
    let mut normal = |rows: usize, shift: f64| -> Vec<f64> {
        (0..2 * rows).map(|_| shift + rng.sample::<f64, _>(StandardNormal)).collect()
    };
    let (a, b, shifted) = (normal(300, 0.0), normal(250, 0.0), normal(250, 0.7));
    let settings = CompareSettings { permutations: 199, directions: 50, ..Default::default() };
    for unit in [1e-20, 1e20] {
        let scaled = |values: &[f64]| values.iter().map(|x| unit * x).collect::<Vec<_>>();
        let run = |a: &[f64], b: &[f64]| {
            let (a, b) = (scaled(a), scaled(b));
            compare(&Sample::new(&a, 2).unwrap(), &Sample::new(&b, 2).unwrap(), &settings).unwrap()
        };
        let same = run(&a, &b);
        assert!(same.p_value() > 0.05, "{unit}: {same:?}");
        let other = run(&a, &shifted);
        assert!(other.p_value() < 0.02, "{unit}: {other:?}");
        assert!((other.columns[0].shift.unwrap() - 0.7).abs() < 0.3);
        assert!((other.columns[1].wasserstein / unit - 0.7).abs() < 0.3);
        assert!((other.sliced_wasserstein.distance - 0.7).abs() < 0.3);
    }
}

/// Every part by itself, and from another thread in the middle of a long one.
#[test]
fn a_stop_ends_every_comparison() {
    let mut rng = stream(5, 1);
    let values: Vec<f64> = (0..40_000).map(|_| rng.sample(StandardNormal)).collect();
    let (p, q) = values.split_at(20_000);
    let (p, q) = (Sample::new(p, 2).unwrap(), Sample::new(q, 2).unwrap());
    let stop = StopToken::new();
    let long = CompareSettings { directions: usize::MAX >> 16, ..Default::default() };
    let ended = std::thread::scope(|scope| {
        let call = scope.spawn(|| compare_until(&p, &q, &long, &stop));
        std::thread::sleep(std::time::Duration::from_millis(100));
        stop.stop();
        call.join().unwrap()
    });
    assert!(matches!(ended, Err(Error::Stopped(_))), "{ended:?}");
    let stopped = |ended: Result<()>| matches!(ended, Err(Error::Stopped(_)));
    assert!(stopped(c2st_until(&p, &q, &C2stSettings::default(), &stop).map(drop)));
    assert!(stopped(mmd_test_until(&p, &q, &MmdTestSettings::default(), &stop).map(drop)));
    assert!(stopped(mmd_until(&p, &q, Bandwidth::Median, &stop).map(drop)));
    assert!(stopped(sliced_wasserstein_until(&p, &q, &SlicedSettings::default(), &stop).map(drop)));
}

/// Over 1000 repetitions a 5 % test rejects 50 times, standard deviation 7; and p-values are never too small.
#[test]
fn uniform_ranks_pass_at_the_nominal_rate() {
    let corridor = Corridor::new(300, 99, 0.05).unwrap();
    let band = corridor.band();
    let (mut outside, mut by_band, mut by_moments, mut by_both) = (0, 0, 0, 0);
    for seed in 0..1000 {
        let ranks = {
            let mut rng = stream(seed, 3);
            Ranks::new((0..300).map(|_| below(100, &mut rng) as u32).collect(), 99).unwrap()
        };
        let test = corridor.test(&ranks).unwrap();
        let difference = corridor.difference(&ranks).unwrap();
        let leaves = difference.iter().zip(&band).any(|(d, b)| *d < b.0 - 1e-12 || *d > b.1 + 1e-12);
        assert_eq!(leaves, test.band_p_value <= 0.05, "{seed}: {test:?}");
        outside += u32::from(leaves);
        by_band += u32::from(test.band_p_value <= 0.05);
        by_moments += u32::from(test.smooth_p_value <= 0.05);
        by_both += u32::from(test.p_value <= 0.05);
    }
    for count in [outside, by_band, by_moments] {
        assert!((28..=72).contains(&count), "{outside} {by_band} {by_moments} {by_both}");
    }
    assert!((15..=72).contains(&by_both), "{by_both}");
}
