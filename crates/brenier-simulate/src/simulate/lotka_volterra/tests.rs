//! Tests of `lotka_volterra`.

use super::*;
use crate::simulate::Streams;

const NEVER: u32 = u32::MAX;

/// Prey alone, rate λ each: a Yule process with mean y₀ e^{λt} and variance y₀ e^{λt} (e^{λt} − 1).
#[test]
fn pure_birth_grows_as_its_mean_and_variance_say() {
    let (rate, start, count) = (0.1, 5, 4000);
    let streams = Streams::new(1, 0);
    let paths: Vec<Path> = (0..count)
        .map(|i| path_from(&[0.0, 0.0, rate, 0.0], [0, start], NEVER, &mut streams.get(i)).unwrap())
        .collect();
    for k in [0, 1, 50, 149] {
        let growth = (rate * k as f64 * INTERVAL).exp();
        let (mean, variance) = (f64::from(start) * growth, f64::from(start) * growth * (growth - 1.0));
        let got = paths.iter().map(|path| path.prey[k]).sum::<f64>() / count as f64;
        let spread = paths.iter().map(|path| (path.prey[k] - mean).powi(2)).sum::<f64>() / count as f64;
        assert!((got - mean).abs() <= 4.0 * (variance / count as f64).sqrt(), "{k}: {got} {mean}");
        assert!((spread - variance).abs() <= 0.12 * variance, "{k}: {spread} {variance}");
    }
    // Growth until the end of the time, not of the records.
    assert!(paths.iter().all(|path| path.reactions >= (path.prey[149] as u32 - start)));
}

/// Predators alone die independently: binomial with probability e^{−θ₂ t}.
#[test]
fn pure_death_is_binomial() {
    let (rate, start, count) = (0.1, 50, 4000);
    let streams = Streams::new(2, 0);
    let paths: Vec<Path> = (0..count)
        .map(|i| path_from(&[0.0, rate, 0.0, 0.0], [start, 0], NEVER, &mut streams.get(i)).unwrap())
        .collect();
    for k in [1, 20, 100, 149] {
        let alive = (-rate * k as f64 * INTERVAL).exp();
        let (mean, variance) = (f64::from(start) * alive, f64::from(start) * alive * (1.0 - alive));
        let got = paths.iter().map(|path| path.predators[k]).sum::<f64>() / count as f64;
        let spread = paths.iter().map(|path| (path.predators[k] - mean).powi(2)).sum::<f64>() / count as f64;
        assert!((got - mean).abs() <= 4.0 * (variance / count as f64).sqrt(), "{k}: {got} {mean}");
        assert!((spread - variance).abs() <= 0.12 * variance, "{k}: {spread} {variance}");
    }
}

/// dp/dt of the master equation on a grid of states (x, y), p row by row in x; jumps off the grid are kept out.
fn master(theta: &[f64; 4], p: &[f64], size: [usize; 2]) -> Vec<f64> {
    let mut rate = vec![0.0; p.len()];
    for x in 0..size[0] {
        for y in 0..size[1] {
            let here = x * size[1] + y;
            let (a, b) = (x as f64, y as f64);
            let mut flow = |to: Option<usize>, strength: f64| {
                if let Some(to) = to {
                    rate[here] -= strength * p[here];
                    rate[to] += strength * p[here];
                }
            };
            flow((x + 1 < size[0]).then(|| here + size[1]), theta[0] * a * b);
            flow((x > 0).then(|| here - size[1]), theta[1] * a);
            flow((y + 1 < size[1]).then(|| here + 1), theta[2] * b);
            flow((y > 0).then(|| here - 1), theta[3] * a * b);
        }
    }
    rate
}

/// A few individuals: the distribution of (X, Y) against the master equation, integrated by Runge–Kutta, by χ².
#[test]
fn few_individuals_follow_the_master_equation() {
    let (theta, start, size) = ([0.02, 0.5, 0.1, 0.08], [3, 4], [20, 40]);
    let count = 20_000_u32;
    let streams = Streams::new(3, 0);
    let paths: Vec<Path> = (0..count)
        .map(|i| path_from(&theta, start, NEVER, &mut streams.get(u64::from(i))).unwrap())
        .collect();
    let mut p = vec![0.0; size[0] * size[1]];
    p[start[0] as usize * size[1] + start[1] as usize] = 1.0;
    let step = 0.02;
    for k in 1..=20 {
        for _ in 0..10 {
            let add = |p: &[f64], rate: &[f64], h: f64| -> Vec<f64> {
                p.iter().zip(rate).map(|(p, rate)| p + h * rate).collect()
            };
            let k1 = master(&theta, &p, size);
            let k2 = master(&theta, &add(&p, &k1, step / 2.0), size);
            let k3 = master(&theta, &add(&p, &k2, step / 2.0), size);
            let k4 = master(&theta, &add(&p, &k3, step), size);
            for i in 0..p.len() {
                p[i] += step / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
            }
        }
        if ![1, 5, 20].contains(&k) {
            continue;
        }
        let mut seen = vec![0.0; p.len()];
        for path in &paths {
            let (x, y) = (path.predators[k] as usize, path.prey[k] as usize);
            seen[x.min(size[0] - 1) * size[1] + y.min(size[1] - 1)] += 1.0;
        }
        let (mut statistic, mut cells, mut rare) = (0.0, 0.0_f64, [0.0; 2]);
        for (seen, p) in seen.iter().zip(&p) {
            let expected = p * f64::from(count);
            if expected >= 8.0 {
                statistic += (seen - expected).powi(2) / expected;
                cells += 1.0;
            } else {
                rare = [rare[0] + seen, rare[1] + expected];
            }
        }
        statistic += (rare[0] - rare[1]).powi(2) / rare[1];
        // χ² with `cells` degrees of freedom: mean `cells`, variance 2 `cells`.
        assert!(cells > 3.0 && statistic < cells + 5.0 * (2.0 * cells).sqrt(), "{k}: {statistic} {cells}");
    }
}

#[test]
fn a_path_does_not_depend_on_its_neighbours() {
    let model = LotkaVolterra::default();
    let streams = Streams::new(6, 0);
    let count = 60;
    let mut rngs: Vec<Stream> = (0..count).map(|i| streams.get(i)).collect();
    let mut thetas = vec![0.0; 4 * count as usize];
    for (theta, rng) in thetas.chunks_exact_mut(4).zip(&mut rngs) {
        model.prior().draw(rng, theta);
    }
    let mut together = vec![0.0; 9 * count as usize];
    let attempts = model.simulate_many(&thetas, &mut rngs.clone(), &mut together).unwrap();
    assert!(attempts.contains(&Attempt::Abandoned) && attempts.contains(&Attempt::Done));
    for (i, rng) in rngs.iter_mut().enumerate() {
        let mut alone = [0.0; 9];
        let attempt = model.simulate(&thetas[4 * i..4 * i + 4], rng, &mut alone).unwrap();
        assert_eq!(attempt, attempts[i]);
        assert_eq!(alone, together[9 * i..9 * i + 9]);
    }
}

#[test]
fn the_logarithm_is_accurate() {
    let least = 0.5 * f64::EPSILON;
    for w in [least, 3.0 * least, 1e-9, 0.1, 0.499999, 0.5, 0.7, 0.75, 0.999, 1.0 - f64::EPSILON, 1.0 - least]
    {
        assert!((log_of_unit(w) - w.ln()).abs() <= 4e-16 * w.ln().abs().max(1.0), "{w}");
    }
}

/// The summaries of a short pair of series, by hand.
#[test]
fn summaries_of_a_known_series() {
    let mut got = [0.0; 9];
    assert!(summarise(&[1.0, 2.0, 3.0, 6.0], &[2.0, 0.0, 0.0, 2.0], &mut got));
    // Centred: (−2, −1, 0, 3), variance 14/4; (1, −1, −1, 1), variance 1.
    let expected = [
        3.0,
        1.0,
        4.5_f64.ln(),
        2.0_f64.ln(),
        (2.0 + 0.0 + 0.0) / 3.5 / 3.0,
        (0.0 - 3.0) / 3.5 / 3.0,
        (-1.0 + 1.0 - 1.0) / 3.0,
        (-1.0 - 1.0) / 3.0,
        (-2.0 + 1.0 + 0.0 + 3.0) / 4.0 / 3.5_f64.sqrt(),
    ];
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < 1e-14, "{got} {expected}");
    }
    assert!(!summarise(&[1.0, 1.0], &[1.0, 2.0], &mut got));
    assert!(!summarise(&[1.0, 2.0], &[0.0, 0.0], &mut got));
}
