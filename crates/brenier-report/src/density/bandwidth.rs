//! Bandwidths of kernel estimates, from samples alone.

use super::weighted::{distinct_count, effective_count, moment, quantiles, robust_spread, weight};

/// Silverman's bandwidth 0.9 min(σ, IQR / 1.34) n^(-1/5); zero when all samples are equal.
///
/// With weights, σ and the quartiles are weighted and n is the effective number (Σ w)² / Σ w².
pub fn silverman_bandwidth(samples: &[f64], weights: Option<&[f64]>) -> f64 {
    robust_spread(samples, weights) * 0.9 * effective_count(samples.len(), weights).powf(-0.2)
}

/// Bins of the transform behind [`plug_in_bandwidth`].
const BINS: usize = 1024;

/// The bandwidth of Botev, Grotowski and Kroese (2010), "improved Sheather–Jones"; zero when all samples are equal.
///
/// Silverman's rule takes the spread of all samples for that of one bump, so it smears modes that lie apart. Here the
/// roughness ‖f″‖² is estimated from the samples' cosine transform, at a bandwidth that follows from ‖f‴‖², and so on
/// for five stages; the answer is the smallest h that the chain gives back. Equal samples count once, so that
/// rounded numbers do not become spikes. Silverman's rule is left for fewer than ten of them, and where there is no such h.
pub fn plug_in_bandwidth(samples: &[f64], weights: Option<&[f64]>, bounds: [f64; 2]) -> f64 {
    let reference = silverman_bandwidth(samples, weights);
    let count = distinct_count(samples, weights);
    if count < 10.0 {
        return reference;
    }
    let [first, last] = quantiles(samples, weights, [0.001, 0.999]);
    let margin = 0.1 * (last - first);
    if !(margin > 0.0 && margin.is_finite()) {
        return reference;
    }
    let between = |margin: f64| {
        let ends = [(first - margin).max(bounds[0]), (last + margin).min(bounds[1])];
        fixed_point(samples, weights, ends, count)
    };
    let Some(found) = between(margin) else { return reference };
    // Where the samples end abruptly without a bound, the jump asks for far less than what lies inside: of that twice is
    // enough to keep the inside calm.
    let inside = between(0.0).unwrap_or(reference).clamp(found, 2.0 * found);
    // Poles ask for less than shows anything else; Terrell's is the most that any density of this spread asks for.
    let effective = effective_count(samples.len(), weights);
    let most = 1.144 * moment(samples, samples, weights).sqrt() * effective.powf(-0.2);
    inside.max(0.1 * reference).min(most)
}

/// The smallest bandwidth that [`chained`] gives back, from the samples between `low` and `high`, where their transform
/// reflects.
fn fixed_point(samples: &[f64], weights: Option<&[f64]>, [low, high]: [f64; 2], count: f64) -> Option<f64> {
    let range = high - low;
    let mut masses = vec![0.0; BINS];
    for (i, &sample) in samples.iter().enumerate() {
        let place = (sample - low) / range;
        if (0.0..=1.0).contains(&place) {
            masses[((place * BINS as f64) as usize).min(BINS - 1)] += weight(weights, i);
        }
    }
    let squares = cosine_squares(&masses);
    // t = (h / range)²; until the root the chain gives back more than it gets.
    let above = |h: f64| h * h > chained(&squares, count, h * h);
    let mut to = 0.5 / BINS as f64;
    while !above(to) {
        to *= 1.1;
        if to > 0.3 {
            return None;
        }
    }
    let mut from = to / 1.1;
    for _ in 0..20 {
        let middle = (from * to).sqrt();
        *(if above(middle) { &mut to } else { &mut from }) = middle;
    }
    Some(to * range)
}

/// (Σⱼ pⱼ cos(πk(j + ½)/N))² for k = 1, 2, …, where pⱼ is the part of `masses` in bin j of N.
fn cosine_squares(masses: &[f64]) -> Vec<f64> {
    let (bins, total) = (masses.len(), masses.iter().sum::<f64>());
    let cosines: Vec<f64> =
        (0..4 * bins).map(|i| (std::f64::consts::PI * i as f64 / (2 * bins) as f64).cos()).collect();
    (1..bins)
        .map(|k| {
            let terms = masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0);
            let sum: f64 = terms.map(|(j, mass)| mass * cosines[k * (2 * j + 1) % (4 * bins)]).sum();
            (sum / total).powi(2)
        })
        .collect()
}

/// The squared bandwidth that t as that of the first pilot, of ‖f⁽⁷⁾‖², leads to, both relative to the range.
fn chained(squares: &[f64], count: f64, t: f64) -> f64 {
    use std::f64::consts::PI;
    // ‖f⁽ˢ⁾‖² after smoothing with bandwidth √t.
    let roughness = |s: i32, t: f64| {
        let terms = squares.iter().enumerate().map(|(i, square)| ((i + 1) as f64 * PI, square));
        let seen = terms.take_while(|(k, _)| k * k * t < 100.0);
        2.0 * seen.map(|(k, square)| k.powi(2 * s) * square * (-k * k * t).exp()).sum::<f64>()
    };
    let mut f = roughness(7, t);
    for s in (2..=6).rev() {
        let moments: f64 = (1..=s).map(|i| f64::from(2 * i - 1)).product();
        let constant = (1.0 + 0.5_f64.powf(f64::from(s) + 0.5)) / 3.0;
        let pilot = 2.0 * constant * moments / ((2.0 * PI).sqrt() * count * f);
        f = roughness(s, pilot.powf(2.0 / (3.0 + 2.0 * f64::from(s))));
    }
    (2.0 * count * PI.sqrt() * f).powf(-0.4)
}
