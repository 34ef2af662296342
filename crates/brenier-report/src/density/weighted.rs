//! Quantiles, moments and numbers of samples with weights.

use crate::statistics::quantile;

/// The quantiles of `values` at `levels`; with weights, the cumulative weight is taken as reached half at a sample and
/// interpolated between, so that samples of weight zero do not count.
pub(crate) fn quantiles<const N: usize>(
    values: &[f64],
    weights: Option<&[f64]>,
    levels: [f64; N],
) -> [f64; N] {
    let Some(weights) = weights else {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        return levels.map(|level| quantile(&sorted, level));
    };
    let mut pairs: Vec<(f64, f64)> =
        values.iter().copied().zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0.0).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = pairs.iter().map(|(_, weight)| weight).sum();
    let mut reached = 0.0;
    let places: Vec<f64> = pairs
        .iter()
        .map(|(_, weight)| {
            reached += weight;
            (reached - 0.5 * weight) / total
        })
        .collect();
    levels.map(|level| match places.partition_point(|&place| place < level) {
        0 => pairs[0].0,
        after if after == pairs.len() => pairs[after - 1].0,
        after => {
            let (low, high) = (pairs[after - 1].0, pairs[after].0);
            let part = (level - places[after - 1]) / (places[after] - places[after - 1]);
            low + part * (high - low)
        }
    })
}

pub(super) fn weight(weights: Option<&[f64]>, i: usize) -> f64 {
    weights.map_or(1.0, |weights| weights[i])
}

/// The sum of the weights; at least 1 without any.
pub(super) fn total(count: usize, weights: Option<&[f64]>) -> f64 {
    weights.map_or(count.max(1) as f64, |weights| weights.iter().sum())
}

/// Kish's effective number of samples, (Σ w)² / Σ w²; at least 1.
pub(super) fn effective_count(count: usize, weights: Option<&[f64]>) -> f64 {
    let effective = weights.map_or(count as f64, |weights| {
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let relative = weights.iter().map(|weight| weight / largest);
        relative.clone().sum::<f64>().powi(2) / relative.map(|w| w * w).sum::<f64>()
    });
    effective.max(1.0)
}

/// The effective number of samples, but not more than there are different ones with a weight.
pub(super) fn distinct_count(samples: &[f64], weights: Option<&[f64]>) -> f64 {
    let counted = samples.iter().enumerate().filter(|(i, _)| weight(weights, *i) > 0.0);
    let mut sorted: Vec<f64> = counted.map(|(_, sample)| *sample).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    effective_count(samples.len(), weights).min(sorted.len() as f64).max(1.0)
}

/// min(σ, IQR / 1.34), or σ when half the samples or more are equal.
pub(super) fn robust_spread(samples: &[f64], weights: Option<&[f64]>) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let deviation = moment(samples, samples, weights).sqrt();
    let [lower, upper] = quantiles(samples, weights, [0.25, 0.75]);
    let quartiles = (upper - lower) / 1.34;
    if quartiles > 0.0 { deviation.min(quartiles) } else { deviation }
}

/// The covariance, Σ w (x - x̄)(y - ȳ) / Σ w · n / (n - 1) with the effective n; zero for a single sample.
pub(super) fn moment(xs: &[f64], ys: &[f64], weights: Option<&[f64]>) -> f64 {
    let total = total(xs.len(), weights);
    let mean = |values: &[f64]| {
        values.iter().enumerate().map(|(i, value)| weight(weights, i) * value).sum::<f64>() / total
    };
    let (mean_x, mean_y) = (mean(xs), mean(ys));
    let products =
        xs.iter().zip(ys).enumerate().map(|(i, (a, b))| weight(weights, i) * (a - mean_x) * (b - mean_y));
    let count = effective_count(xs.len(), weights);
    if count > 1.0 { products.sum::<f64>() / total * count / (count - 1.0) } else { 0.0 }
}

/// Zero where it is not defined.
pub(super) fn correlation(xs: &[f64], ys: &[f64], weights: Option<&[f64]>) -> f64 {
    if effective_count(xs.len(), weights) < 3.0 {
        return 0.0;
    }
    let rho = moment(xs, ys, weights) / (moment(xs, xs, weights) * moment(ys, ys, weights)).sqrt();
    if rho.is_finite() { rho } else { 0.0 }
}
