//! Priors against their closed forms, and mistakes in prior files.

#![allow(clippy::unwrap_used)]

use rand::RngExt;

use super::*;
use crate::simulate::Streams;

const ALL: &str = r#"
    [[prior]]
    name = "a"
    kind = "uniform"
    low = -1
    high = 3.0
    [[prior]]
    name = "b"
    kind = "log-uniform"
    low = 0.1
    high = 10.0
    [[prior]]
    name = "c"
    kind = "normal"
    mean = 2.0
    sd = 0.5
    [[prior]]
    names = ["d", "e"]
    kind = "multivariate-normal"
    mean = [1.0, -1.0]
    covariance = [[2.0, 0.6], [0.6, 1.0]]
    [[prior]]
    kind = "table"
    file = "samples.csv"
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("samples.csv"), "f,g\n1,10\n2,20\n3,30\n").unwrap();
    folder
}

fn parse(text: &str) -> Result<Prior> {
    let folder = folder();
    let path = folder.path().join("prior.toml");
    std::fs::write(&path, text).unwrap();
    Prior::read(&path)
}

#[test]
fn draws_have_the_declared_moments() {
    let prior = parse(ALL).unwrap();
    assert_eq!(prior.names(), ["a", "b", "c", "d", "e", "f", "g"]);
    assert!(!prior.has_density());
    let count = 40_000;
    let mut rng = Streams::new(3, 0).get(0);
    let (mut theta, mut u) = ([0.0; 7], [0.0; 7]);
    let (mut mean, mut square, mut cross) = ([0.0; 7], [0.0; 7], 0.0);
    for _ in 0..count {
        prior.draw(&mut rng, &mut theta);
        prior.to_coordinates(&theta, &mut u);
        assert_eq!(theta[6], 10.0 * theta[5]);
        for i in 0..7 {
            mean[i] += u[i] / f64::from(count);
            square[i] += u[i] * u[i] / f64::from(count);
        }
        cross += u[3] * u[4] / f64::from(count);
    }
    let log_range = 100_f64.ln();
    let means = [1.0, 0.0, 2.0, 1.0, -1.0, 2.0, 20.0];
    let variances = [16.0 / 12.0, log_range * log_range / 12.0, 0.25, 2.0, 1.0, 2.0 / 3.0, 200.0 / 3.0];
    for i in 0..7 {
        let (sd, variance) = (f64::sqrt(variances[i]), square[i] - mean[i] * mean[i]);
        assert!((mean[i] - means[i]).abs() < 5.0 * sd / f64::from(count).sqrt(), "mean {i}: {}", mean[i]);
        assert!((variance / variances[i] - 1.0).abs() < 0.05, "variance {i}: {variance}");
    }
    assert!((cross - mean[3] * mean[4] - 0.6).abs() < 0.05);
}

#[test]
fn densities_integrate_to_one_and_vanish_outside() {
    let prior = parse(&ALL.replace("samples.csv", "")[..ALL.rfind("[[prior]]").unwrap()]).unwrap();
    assert!(prior.has_density());
    // By importance sampling in a box that holds nearly everything.
    let mut rng = Streams::new(5, 0).get(0);
    let bounds = [(-1.5, 3.5), (-2.5, 2.5), (0.0, 4.0), (-6.0, 8.0), (-6.0, 4.0)];
    let volume: f64 = bounds.iter().map(|(low, high)| high - low).product();
    let count = 400_000;
    let sum: f64 = (0..count)
        .map(|_| {
            let u = bounds.map(|(low, high)| low + (high - low) * rng.random::<f64>());
            prior.log_density(&u).exp()
        })
        .sum();
    assert!((sum * volume / f64::from(count) - 1.0).abs() < 0.05, "{}", sum * volume / f64::from(count));
    let theta = [0.5, 2.0, 2.0, 1.0, -1.0];
    let mut u = [0.0; 5];
    prior.to_coordinates(&theta, &mut u);
    assert!(prior.log_density(&u).is_finite());
    let mut back = [0.0; 5];
    prior.at_coordinates(&u, &mut back);
    assert!(theta.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-12));
    for (i, out) in [(0, 3.1), (0, -1.1), (1, 2.31), (1, -2.31)] {
        let mut outside = u;
        outside[i] = out;
        assert_eq!(prior.log_density(&outside), f64::NEG_INFINITY);
    }
}

#[test]
fn mistakes_name_the_parameter() {
    for (text, says) in [
        ("", "missing field `prior`"),
        ("prior = []", "names no parameter"),
        ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=1\nhigh=0", "a: low = 1 must lie below high = 0"),
        ("[[prior]]\nname=\"a\"\nkind=\"log-uniform\"\nlow=0\nhigh=1", "must be positive"),
        ("[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=0", "sd = 0 must be positive"),
        ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=0\nhigh=inf", "finite"),
        ("[[prior]]\nname=\"a b\"\nkind=\"uniform\"\nlow=0\nhigh=1", "white space"),
        ("[[prior]]\nname=\"a\"\nkind=\"gamme\"", "line 3: unknown variant"),
        ("[[prior]]\nname=\"a\"\nkind=\"uniform\"\nlow=0\nhigh=1\nlower=3", "lower"),
        (
            "[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=1\n[[prior]]\nname=\"a\"\nkind=\"normal\"\nmean=0\nsd=1",
            "declared twice",
        ),
        (
            "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0,0]\ncovariance=[[1,2],[2,1]]",
            "positive definite",
        ),
        (
            "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0,0]\ncovariance=[[1,0.5],[0.4,1]]",
            "symmetric",
        ),
        (
            "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"multivariate-normal\"\nmean=[0]\ncovariance=[[1,0],[0,1]]",
            "2 names need 2 means",
        ),
        ("[[prior]]\nname=\"a\"\nkind=\"beta\"\nalpha=0\nbeta=1", "a: alpha = 0 must be positive"),
        ("[[prior]]\nname=\"a\"\nkind=\"gamma\"\nshape=-1\nscale=1", "a: shape = -1 must be positive"),
        ("[[prior]]\nname=\"a\"\nkind=\"gamma\"\nshape=1", "a: give either scale or rate"),
        ("[[prior]]\nname=\"a\"\nkind=\"gamma\"\nshape=1\nscale=1\nrate=1", "a: give either scale or rate"),
        ("[[prior]]\nname=\"a\"\nkind=\"exponential\"\nrate=0", "a: rate = 0 must be positive"),
        (
            "[[prior]]\nname=\"a\"\nkind=\"log-normal\"\nlog_mean=0\nlog_sd=nan",
            "a: log_sd = NaN must be finite",
        ),
        ("[[prior]]\nname=\"a\"\nkind=\"half-normal\"\nsd=-2", "a: sd = -2 must be positive"),
        (
            "[[prior]]\nname=\"a\"\nkind=\"truncated-normal\"\nmean=0\nsd=1",
            "a: a truncated-normal prior needs low",
        ),
        (
            "[[prior]]\nname=\"a\"\nkind=\"truncated-normal\"\nmean=0\nsd=1\nlow=2\nhigh=2",
            "a: low = 2 must lie below high = 2",
        ),
        (
            "[[prior]]\nname=\"a\"\nkind=\"truncated-normal\"\nmean=0\nsd=1\nlow=99",
            "a: the bounds lie so far",
        ),
        ("[[prior]]\nname=\"a\"\nkind=\"student-t\"\ndf=0", "a: df = 0 must be positive"),
        (
            "[[prior]]\nname=\"a\"\nkind=\"integer-uniform\"\nlow=3\nhigh=2",
            "a: low = 3 must not lie above high = 2",
        ),
        (
            "[[prior]]\nname=\"a\"\nkind=\"integer-uniform\"\nlow=0.5\nhigh=2",
            "invalid type: floating point `0.5`",
        ),
        ("[[prior]]\nnames=[\"a\"]\nkind=\"dirichlet\"\nconcentration=[1]", "needs two names or more"),
        (
            "[[prior]]\nnames=[\"a\",\"b\"]\nkind=\"dirichlet\"\nconcentration=[1,0]",
            "a, b: concentration = 0 must be positive",
        ),
        ("[[prior]]\nkind=\"table\"\nfile=\"none.csv\"", "none.csv"),
        ("[[prior]]\nkind=\"table\"\nfile=\"samples.csv\"\ncolumns=\"z\"", "z"),
    ] {
        let message = parse(text).unwrap_err().to_string();
        assert!(message.contains(says), "{text}\n{message}");
        assert!(message.contains("prior.toml") || message.contains("csv"), "{message}");
    }
}

/// A block of TOML with its closed-form mean and variance, and θ below which lies the probability given.
struct Known {
    block: &'static str,
    mean: f64,
    variance: f64,
    quantile: (f64, f64),
    support: Support,
}

fn known() -> Vec<Known> {
    let tail = crate::kernel::special::normal_tail;
    let density = |z: f64| (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    // Mean and variance of a standard normal variable between a and b.
    let cut = |a: f64, b: f64| {
        let mass = tail(a) - tail(b);
        let mean = (density(a) - density(b)) / mass;
        let end = |z: f64| if z.is_finite() { z * density(z) } else { 0.0 };
        (mean, 1.0 + (end(a) - end(b)) / mass - mean * mean)
    };
    let (middle, far, narrow) = (cut(-0.5, 2.0), cut(3.0, f64::INFINITY), cut(1.0, 1.2));
    let half = (2.0 / std::f64::consts::PI).sqrt();
    let log_normal = 0.3_f64;
    vec![
        Known {
            block: "kind = 'beta'\nalpha = 2\nbeta = 3",
            mean: 0.4,
            variance: 0.04,
            // P(θ < ½) = P(at least 2 of 4 coins are heads).
            quantile: (0.5, 11.0 / 16.0),
            support: Support::Interval { low: 0.0, high: 1.0 },
        },
        Known {
            block: "kind = 'beta'\nalpha = 0.5\nbeta = 0.5",
            mean: 0.5,
            variance: 0.125,
            quantile: (0.25, 1.0 / 3.0),
            support: Support::Interval { low: 0.0, high: 1.0 },
        },
        Known {
            block: "kind = 'gamma'\nshape = 3\nscale = 2",
            mean: 6.0,
            variance: 12.0,
            quantile: (2.0, 1.0 - 2.5 * (-1.0_f64).exp()),
            support: Support::Log,
        },
        Known {
            block: "kind = 'gamma'\nshape = 0.5\nrate = 0.5",
            mean: 1.0,
            variance: 2.0,
            // The square of a standard normal variable.
            quantile: (1.0, 1.0 - 2.0 * tail(1.0)),
            support: Support::Log,
        },
        Known {
            block: "kind = 'exponential'\nrate = 4",
            mean: 0.25,
            variance: 0.0625,
            quantile: (0.25, 1.0 - (-1.0_f64).exp()),
            support: Support::Log,
        },
        Known {
            block: "kind = 'exponential'\nmean = 3",
            mean: 3.0,
            variance: 9.0,
            quantile: (3.0 * std::f64::consts::LN_2, 0.5),
            support: Support::Log,
        },
        Known {
            block: "kind = 'log-normal'\nlog_mean = 1\nlog_sd = 0.3",
            mean: (1.0 + 0.5 * log_normal * log_normal).exp(),
            variance: (log_normal * log_normal).exp_m1() * (2.0 + log_normal * log_normal).exp(),
            quantile: (1.0_f64.exp(), 0.5),
            support: Support::Log,
        },
        Known {
            block: "kind = 'half-normal'\nsd = 2",
            mean: 2.0 * half,
            variance: 4.0 * (1.0 - half * half),
            quantile: (2.0, 1.0 - 2.0 * tail(1.0)),
            support: Support::Log,
        },
        Known {
            block: "kind = 'truncated-normal'\nmean = 1\nsd = 2\nlow = 0\nhigh = 5",
            mean: 1.0 + 2.0 * middle.0,
            variance: 4.0 * middle.1,
            quantile: (1.0, (tail(-0.5) - 0.5) / (tail(-0.5) - tail(2.0))),
            support: Support::Interval { low: 0.0, high: 5.0 },
        },
        Known {
            block: "kind = 'truncated-normal'\nmean = 0\nsd = 1\nhigh = -3",
            mean: -far.0,
            variance: far.1,
            quantile: (-3.5, tail(3.5) / tail(3.0)),
            support: Support::Real,
        },
        Known {
            block: "kind = 'truncated-normal'\nmean = -3\nsd = 1\nlow = 0",
            mean: far.0 - 3.0,
            variance: far.1,
            quantile: (0.5, 1.0 - tail(3.5) / tail(3.0)),
            support: Support::Log,
        },
        Known {
            block: "kind = 'truncated-normal'\nmean = 0\nsd = 1\nlow = 1\nhigh = 1.2",
            mean: narrow.0,
            variance: narrow.1,
            quantile: (1.1, (tail(1.0) - tail(1.1)) / (tail(1.0) - tail(1.2))),
            support: Support::Interval { low: 1.0, high: 1.2 },
        },
        Known {
            block: "kind = 'student-t'\ndf = 9\nlocation = 1\nscale = 2",
            mean: 1.0,
            variance: 4.0 * 9.0 / 7.0,
            quantile: (1.0, 0.5),
            support: Support::Real,
        },
        Known {
            block: "kind = 'integer-uniform'\nlow = -1\nhigh = 4",
            mean: 1.5,
            variance: 35.0 / 12.0,
            quantile: (0.5, 1.0 / 3.0),
            support: Support::Interval { low: -1.5, high: 4.5 },
        },
    ]
}

#[test]
fn draws_have_the_moments_and_quantiles_of_the_closed_forms() {
    for Known { block, mean, variance, quantile, support } in known() {
        let prior = parse(&format!("[[prior]]\nname = 'a'\n{block}")).unwrap();
        assert!(prior.has_density());
        assert_eq!(prior.supports(), [support], "{block}");
        let (count, mut rng) = (100_000, Streams::new(7, 0).get(0));
        let mut theta = [0.0];
        let draws: Vec<f64> = (0..count)
            .map(|_| {
                prior.draw(&mut rng, &mut theta);
                let mut u = [0.0];
                prior.to_coordinates(&theta, &mut u);
                assert!(prior.log_density(&u).is_finite(), "{block}: {theta:?}");
                theta[0]
            })
            .collect();
        let n = f64::from(count);
        let average = draws.iter().sum::<f64>() / n;
        assert!((average - mean).abs() < 5.0 * (variance / n).sqrt(), "{block}: mean {average}, not {mean}");
        let squares: Vec<f64> = draws.iter().map(|x| (x - mean) * (x - mean)).collect();
        let spread = squares.iter().sum::<f64>() / n;
        let error = (squares.iter().map(|s| (s - spread) * (s - spread)).sum::<f64>() / n / n).sqrt();
        assert!((spread - variance).abs() < 6.0 * error, "{block}: variance {spread}, not {variance}");
        let (at, part) = quantile;
        let below = draws.iter().filter(|&&x| x < at).count() as f64 / n;
        let error = (part * (1.0 - part) / n).sqrt();
        assert!((below - part).abs() < 5.0 * error, "{block}: {below} below {at}, not {part}");
        // The same stream gives the same draws.
        let mut again = Streams::new(7, 0).get(0);
        prior.draw(&mut again, &mut theta);
        assert_eq!(theta[0].to_bits(), draws[0].to_bits());
    }
}

#[test]
fn every_density_integrates_to_one_and_has_the_moments() {
    for Known { block, mean, .. } in known() {
        let prior = parse(&format!("[[prior]]\nname = 'a'\n{block}")).unwrap();
        // Over all real numbers u = x / (1 − x²), at the midpoints of a fine grid of x.
        let steps = 200_000;
        let (mut whole, mut first) = (0.0, 0.0);
        for i in 0..steps {
            let x = (2.0 * (f64::from(i) + 0.5) / f64::from(steps)) - 1.0;
            let scale = 1.0 - x * x;
            let u = x / scale;
            let weight = (1.0 + x * x) / (scale * scale) * 2.0 / f64::from(steps);
            let density = prior.log_density(&[u]).exp() * weight;
            if density > 0.0 {
                let mut theta = [0.0];
                prior.at_coordinates(&[u], &mut theta);
                whole += density;
                first += density * theta[0];
            }
        }
        // Beta(½, ½) has poles at its ends; a truncated density jumps at its bound, where the sum may miss half a cell:
        // of a width of 2e-4 and a height of 3.3 at most.
        let margin = match block {
            block if block.contains("0.5\nbeta") => 1e-2,
            block if block.contains("truncated") => 4e-4,
            _ => 1e-4,
        };
        assert!((whole - 1.0).abs() < margin, "{block}: {whole}");
        assert!((first - mean).abs() < margin * (1.0 + mean.abs()), "{block}: mean {first}, not {mean}");
    }
}

#[test]
fn a_simplex_has_its_moments_and_a_density_on_all_but_the_last() {
    let text = "[[prior]]\nkind = 'dirichlet'\nnames = ['a', 'b', 'c']\nconcentration = [2, 0.7, 3]\n\
                [[prior]]\nkind = 'normal'\nname = 'd'\nmean = 0\nsd = 1";
    let prior = parse(text).unwrap();
    assert_eq!((prior.dim(), prior.coordinates()), (4, 3));
    assert_eq!(prior.coordinate_names(), ["a", "b", "d"]);
    let (count, mut rng) = (60_000, Streams::new(9, 0).get(0));
    let (mut theta, mut u, mut back) = ([0.0; 4], [0.0; 3], [0.0; 4]);
    let mut sums = [0.0; 4];
    for _ in 0..count {
        prior.draw(&mut rng, &mut theta);
        assert!((theta[..3].iter().sum::<f64>() - 1.0).abs() < 1e-14);
        prior.to_coordinates(&theta, &mut u);
        prior.at_coordinates(&u, &mut back);
        assert!(theta.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-14));
        sums.iter_mut().zip(&theta).for_each(|(sum, value)| *sum += value / f64::from(count));
    }
    for (sum, alpha) in sums.iter().zip([2.0, 0.7, 3.0]) {
        let mean: f64 = alpha / 5.7;
        let sd = (mean * (1.0 - mean) / 6.7).sqrt();
        assert!((sum - mean).abs() < 5.0 * sd / f64::from(count).sqrt(), "{sum} is not {mean}");
    }
    // Over the triangle a + b < 1, at d = 0, where the normal density is 1/√(2π).
    let (steps, mut whole) = (500, 0.0);
    for i in 0..steps {
        for j in 0..steps {
            let (a, b) = ((f64::from(i) + 0.5) / f64::from(steps), (f64::from(j) + 0.5) / f64::from(steps));
            whole += prior.log_density(&[a, b, 0.0]).exp() / f64::from(steps * steps);
        }
    }
    assert!((whole * std::f64::consts::TAU.sqrt() - 1.0).abs() < 2e-2, "{whole}");
    assert_eq!(prior.log_density(&[0.6, 0.5, 0.0]), f64::NEG_INFINITY);
    assert_eq!(prior.log_density(&[-0.1, 0.5, 0.0]), f64::NEG_INFINITY);
    // Tiny concentrations do not make everything zero.
    let text = "[[prior]]\nkind = 'dirichlet'\nnames = ['a', 'b']\nconcentration = [1e-4, 1e-4]";
    let prior = parse(text).unwrap();
    for _ in 0..100 {
        let mut theta = [0.0; 2];
        prior.draw(&mut rng, &mut theta);
        assert!(theta.iter().all(|value| *value > 0.0 && *value < 1.0), "{theta:?}");
    }
}

#[test]
fn integers_are_drawn_as_such_and_proposals_are_rounded() {
    let prior = parse("[[prior]]\nname = 'k'\nkind = 'integer-uniform'\nlow = 2\nhigh = 4").unwrap();
    let mut rng = Streams::new(1, 0).get(0);
    let mut seen = [0; 5];
    for _ in 0..3000 {
        let mut theta = [0.0];
        prior.draw(&mut rng, &mut theta);
        seen[theta[0] as usize] += 1;
        assert_eq!(theta[0].fract(), 0.0);
    }
    assert!(seen[..2] == [0, 0] && seen[2..].iter().all(|&count| count > 800), "{seen:?}");
    for (u, k) in [(1.6, 2.0), (2.4, 2.0), (3.5, 4.0), (4.5, 4.0)] {
        let mut theta = [0.0];
        prior.at_coordinates(&[u], &mut theta);
        assert_eq!(theta[0], k);
    }
    assert_eq!(prior.log_density(&[4.6]), f64::NEG_INFINITY);
}
