//! Wasserstein distances on the line, and their mean over directions: the sliced Wasserstein distance.
//!
//! On the line the optimal transport of order p matches quantiles, W_p^p = ∫₀¹ |F⁻¹(u) − G⁻¹(u)|ᵖ du, an exact sum
//! for weighted samples after sorting. In more columns SW_p^p is the mean of W_p^p between the projections on
//! random directions of unit length (Bonneel et al. 2015).

use rand::RngExt;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Sample;
use super::sample::check_same_columns;
use crate::statistics::Estimate;
use crate::statistics::random::stream;
use crate::{Error, Result, StopToken};

/// How [`sliced_wasserstein`] is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlicedSettings {
    /// Random directions; one suffices, and is all that is used, for one column.
    pub directions: usize,
    /// The order p ≥ 1.
    pub order: f64,
    /// Seed of the directions.
    pub seed: u64,
}

impl Default for SlicedSettings {
    fn default() -> Self {
        Self { directions: 200, order: 2.0, seed: 0 }
    }
}

/// The outcome of [`sliced_wasserstein`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SlicedWasserstein {
    /// SW_p, in the units of the columns.
    pub distance: f64,
    /// Its standard error for the choice of directions.
    pub standard_error: f64,
}

/// W_p between column `column` of two samples.
pub fn wasserstein(p: &Sample<'_>, q: &Sample<'_>, column: usize, order: f64) -> Result<f64> {
    check_same_columns(p, q)?;
    check_order(order)?;
    let mut direction = vec![0.0; p.dim()];
    direction[column] = 1.0;
    let power = transport(&projected(p, &direction), &projected(q, &direction), order);
    Ok(power.powf(1.0 / order))
}

/// The sliced Wasserstein distance of all columns.
pub fn sliced_wasserstein(
    p: &Sample<'_>,
    q: &Sample<'_>,
    settings: &SlicedSettings,
) -> Result<SlicedWasserstein> {
    sliced_wasserstein_until(p, q, settings, &StopToken::new())
}

/// The same, which `stop` ends in [`Error::Stopped`].
pub fn sliced_wasserstein_until(
    p: &Sample<'_>,
    q: &Sample<'_>,
    settings: &SlicedSettings,
    stop: &StopToken,
) -> Result<SlicedWasserstein> {
    check_same_columns(p, q)?;
    check_order(settings.order)?;
    if settings.directions == 0 {
        return Err(Error::setting("directions", "must be at least 1, not 0"));
    }
    let dim = p.dim();
    let directions = if dim == 1 { 1 } else { settings.directions };
    let powers: Vec<f64> = (0..directions)
        .into_par_iter()
        .map(|index| {
            stop.go_on()?;
            let mut rng = stream(settings.seed, index as u64);
            let mut direction: Vec<f64> = (0..dim).map(|_| rng.sample(StandardNormal)).collect();
            let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
            direction.iter_mut().for_each(|x| *x /= length);
            Ok(transport(&projected(p, &direction), &projected(q, &direction), settings.order))
        })
        .collect::<Result<_>>()?;
    let Estimate { mean, standard_error: error, .. } = Estimate::of(&powers);
    let distance = mean.powf(1.0 / settings.order);
    // d(mean^{1/p}) = mean^{1/p} / (p mean) d(mean).
    let standard_error = if mean > 0.0 { distance / (settings.order * mean) * error } else { 0.0 };
    Ok(SlicedWasserstein { distance, standard_error })
}

fn check_order(order: f64) -> Result<()> {
    if order >= 1.0 && order.is_finite() {
        return Ok(());
    }
    Err(Error::setting("order", format!("must be at least 1, not {order}")))
}

/// Values of x·direction in ascending order, each with its weight.
fn projected(sample: &Sample<'_>, direction: &[f64]) -> Vec<(f64, f64)> {
    let value = |i: usize| sample.row(i).iter().zip(direction).map(|(x, d)| x * d).sum::<f64>();
    let mut line: Vec<(f64, f64)> = (0..sample.rows()).map(|i| (value(i), sample.weight(i))).collect();
    line.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    line
}

/// ∫ |F⁻¹(u) − G⁻¹(u)|ᵖ du: both quantile functions are steps, walked side by side.
fn transport(a: &[(f64, f64)], b: &[(f64, f64)], order: f64) -> f64 {
    let cost = |distance: f64| match order {
        2.0 => distance * distance,
        1.0 => distance,
        _ => distance.powf(order),
    };
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    let (mut left, mut right) = (a[0].1, b[0].1);
    loop {
        let moved = left.min(right);
        sum += moved * cost((a[i].0 - b[j].0).abs());
        left -= moved;
        right -= moved;
        // One of them is used up; at the very end rounding may leave crumbs, which the last row keeps.
        if left <= right {
            i += 1;
            if i == a.len() {
                return sum;
            }
            left += a[i].1;
            if right <= 0.0 && j + 1 < b.len() {
                j += 1;
                right += b[j].1;
            }
        } else {
            j += 1;
            if j == b.len() {
                return sum;
            }
            right += b[j].1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn on_the_line_it_is_the_sum_over_matched_quantiles() {
        let (a, b) = ([3.0, 0.0, 1.0], [5.0, 6.0, 8.0]);
        let (p, q) = (Sample::new(&a, 1).unwrap(), Sample::new(&b, 1).unwrap());
        assert!((wasserstein(&p, &q, 0, 1.0).unwrap() - 5.0).abs() < 1e-14);
        assert!((wasserstein(&p, &q, 0, 2.0).unwrap() - 25.0_f64.sqrt()).abs() < 1e-14);
        // {0, 1} against {0, 0, 3}: quantiles differ by 0 on (0, ½), 1 on (½, ⅔), 2 on (⅔, 1).
        let (a, b) = ([0.0, 1.0], [0.0, 3.0, 0.0]);
        let (p, q) = (Sample::new(&a, 1).unwrap(), Sample::new(&b, 1).unwrap());
        let exact = 1.0 / 6.0 + 2.0 / 3.0;
        assert!((wasserstein(&p, &q, 0, 1.0).unwrap() - exact).abs() < 1e-14);
        assert!((wasserstein(&q, &p, 0, 1.0).unwrap() - exact).abs() < 1e-14);
        let double = Sample::new(&[0.0, 3.0], 1).unwrap().with_weights(&[2.0, 1.0]).unwrap();
        assert!((wasserstein(&p, &double, 0, 1.0).unwrap() - exact).abs() < 1e-14);
        assert_eq!(wasserstein(&double, &double, 0, 3.0).unwrap(), 0.0);
    }
}
