//! Calibration of any program's draws: are intervals of 90 % right nine times in ten?
//!
//! `cargo run --release -p brenier --example calibrate_draws`

#![allow(clippy::print_stdout)]

use brenier::diagnose::{CalibrationSettings, PairDraws, Pairs, calibrate};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn main() -> brenier::Result<()> {
    // x ~ N(0, 1), y = x + N(0, 1): the posterior is N(y/2, 1/2). One program knows it, another is too sure of itself.
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut normal = move || rng.sample::<f64, _>(rand_distr::StandardNormal);
    let truth: Vec<f64> = (0..400).map(|_| normal()).collect();
    let seen: Vec<f64> = truth.iter().map(|x| x + normal()).collect();
    let settings = CalibrationSettings { draws: 200, ..Default::default() };
    for (name, spread) in [("right", 0.5_f64.sqrt()), ("too narrow", 0.4)] {
        let found = calibrate(&Pairs::new(&truth, 1, &seen, 1)?, &settings, |pairs| {
            let one = |pair: usize| -> Vec<f64> {
                (0..200).map(|_| 0.5 * seen[pair] + spread * normal()).collect()
            };
            Ok(PairDraws { draws: pairs.flat_map(one).collect(), log_densities: None })
        })?;
        println!("{name}: {}", if found.passes() { "no miscalibration detected" } else { "miscalibrated" });
        assert_eq!(found.passes(), name == "right");
    }
    Ok(())
}

#[test]
fn runs() {
    main().expect("the example runs");
}
