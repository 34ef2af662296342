//! Densities on grids: Gaussian kernel estimates, highest-density levels and contour lines.
//!
//! Estimates are binned first (each sample shares its weight linearly between its neighbouring grid points), so
//! their cost hardly depends on the number of samples, and the result not at all on threads or hashing.

use crate::statistics::quantile;

/// `count` equally spaced points from `low` to `high`, both included; `count` is at least 2.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The first point.
    pub low: f64,
    /// The last point, above `low`.
    pub high: f64,
    /// The number of points.
    pub count: usize,
}

impl Axis {
    /// The distance between neighbours.
    pub fn step(&self) -> f64 {
        (self.high - self.low) / (self.count - 1) as f64
    }

    /// The point at the (possibly fractional) index `position`.
    pub fn at(&self, position: f64) -> f64 {
        self.low + position * self.step()
    }

    /// The neighbours of `value` and the weight of the upper one; none outside the axis.
    fn share(&self, value: f64) -> Option<(usize, f64)> {
        let position = (value - self.low) / self.step();
        if !(0.0..=(self.count - 1) as f64).contains(&position) {
            return None;
        }
        let below = (position as usize).min(self.count - 2);
        Some((below, position - below as f64))
    }
}

/// Values on the product of two axes: `values[row * x.count + column]` belongs to `(x[column], y[row])`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Row by row, the lowest `y` first.
    pub values: Vec<f64>,
}

/// A contour line.
#[derive(Clone, Debug, PartialEq)]
pub struct Contour {
    /// The corners, in order; the first is not repeated at the end.
    pub points: Vec<[f64; 2]>,
    /// Whether the last point connects to the first.
    pub closed: bool,
}

impl Field {
    /// Evaluates `function(x, y)` on the product of the axes.
    pub fn tabulate(x: Axis, y: Axis, function: impl Fn(f64, f64) -> f64) -> Self {
        let mut values = Vec::with_capacity(x.count * y.count);
        for row in 0..y.count {
            for column in 0..x.count {
                values.push(function(x.at(column as f64), y.at(row as f64)));
            }
        }
        Self { x, y, values }
    }

    /// For each of `masses` in (0, 1), the level above which this density holds that part of its total mass.
    ///
    /// The region {density ≥ level} is the smallest of that mass. Values that are not positive are left out.
    pub fn highest_density_levels(&self, masses: &[f64]) -> Vec<f64> {
        let mut sorted: Vec<f64> =
            self.values.iter().copied().filter(|v| *v > 0.0 && v.is_finite()).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let total: f64 = sorted.iter().sum();
        masses
            .iter()
            .map(|mass| {
                let mut reached = 0.0;
                let level = sorted.iter().find(|&&value| {
                    reached += value;
                    reached >= mass * total
                });
                level.or(sorted.last()).copied().unwrap_or(f64::INFINITY)
            })
            .collect()
    }

    /// The lines on which the field, interpolated linearly along the edges of its cells, equals `level`.
    ///
    /// Marching squares: in a cell with two opposite corners above, the mean of the corners decides which of them
    /// belong together. Values that are not numbers count as below.
    pub fn contours(&self, level: f64) -> Vec<Contour> {
        let (columns, rows) = (self.x.count, self.y.count);
        let value = |column: usize, row: usize| self.values[row * columns + column];
        // Edges have numbers: first those from a point to its right, then those from a point upwards.
        let across = |column: usize, row: usize| row * columns + column;
        let upward = |column: usize, row: usize| columns * rows + row * columns + column;
        // A line crosses an edge once and each cell beside it joins it to at most one other edge.
        let mut joined = vec![[usize::MAX; 2]; 2 * columns * rows];
        let mut join = |a: usize, b: usize| {
            for (from, to) in [(a, b), (b, a)] {
                let slot = usize::from(joined[from][0] != usize::MAX);
                joined[from][slot] = to;
            }
        };
        for row in 0..rows - 1 {
            for column in 0..columns - 1 {
                let corners = [
                    value(column, row),
                    value(column + 1, row),
                    value(column + 1, row + 1),
                    value(column, row + 1),
                ];
                // Edge i lies between corner i and corner i + 1.
                let edges = [
                    across(column, row),
                    upward(column + 1, row),
                    across(column, row + 1),
                    upward(column, row),
                ];
                let above = corners.map(|v| v >= level);
                let crossed: Vec<usize> = (0..4).filter(|&i| above[i] != above[(i + 1) % 4]).collect();
                match crossed[..] {
                    [a, b] => join(edges[a], edges[b]),
                    [_, _, _, _] => {
                        let middle_above = corners.iter().sum::<f64>() / 4.0 >= level;
                        // Corners 0 and 2 meet in the middle, so 1 and 3 are cut off; or the other way round.
                        if above[0] == middle_above {
                            join(edges[0], edges[1]);
                            join(edges[2], edges[3]);
                        } else {
                            join(edges[3], edges[0]);
                            join(edges[1], edges[2]);
                        }
                    }
                    _ => {}
                }
            }
        }

        let crossing = |edge: usize| {
            let vertical = edge >= columns * rows;
            let point = edge % (columns * rows);
            let (column, row) = (point % columns, point / columns);
            let (a, b) =
                (value(column, row), value(column + usize::from(!vertical), row + usize::from(vertical)));
            let part = (level - a) / (b - a);
            let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.5 };
            let (dx, dy) = if vertical { (0.0, part) } else { (part, 0.0) };
            [self.x.at(column as f64 + dx), self.y.at(row as f64 + dy)]
        };
        // Open lines begin at an edge with one neighbour; what is then left is closed.
        let mut lines = Vec::new();
        let mut seen = vec![false; joined.len()];
        for closed in [false, true] {
            for start in 0..joined.len() {
                let [first, second] = joined[start];
                if seen[start] || first == usize::MAX || (second == usize::MAX) == closed {
                    continue;
                }
                let mut points = Vec::new();
                let mut next = Some(start);
                while let Some(edge) = next {
                    seen[edge] = true;
                    points.push(crossing(edge));
                    next = joined[edge].into_iter().find(|&e| e != usize::MAX && !seen[e]);
                }
                lines.push(Contour { points, closed });
            }
        }
        lines
    }
}

/// Silverman's bandwidth 0.9 min(σ, IQR / 1.34) n^(-1/5); zero when all samples are equal.
///
/// With weights, σ and the quartiles are weighted and n is the effective number (Σ w)² / Σ w².
pub fn silverman_bandwidth(samples: &[f64], weights: Option<&[f64]>) -> f64 {
    robust_spread(samples, weights) * 0.9 * effective_count(samples.len(), weights).powf(-0.2)
}

/// A Gaussian kernel estimate at the points of `axis`, with Silverman's bandwidth.
///
/// Weights, where given, are not negative and need not be normalised. The bandwidth is never below the step of the
/// axis, so that constant samples give a narrow, finite peak.
pub fn kernel_density(samples: &[f64], weights: Option<&[f64]>, axis: Axis) -> Vec<f64> {
    let bandwidth = silverman_bandwidth(samples, weights).max(axis.step());
    let mut masses = vec![0.0; axis.count];
    for (i, &sample) in samples.iter().enumerate() {
        if let Some((below, part)) = axis.share(sample) {
            let weight = weight(weights, i);
            masses[below] += weight * (1.0 - part);
            masses[below + 1] += weight * part;
        }
    }
    let width = bandwidth / axis.step();
    let norm = 1.0 / ((2.0 * std::f64::consts::PI).sqrt() * bandwidth * total(samples.len(), weights));
    let kernel: Vec<f64> =
        (0..axis.count).map(|distance| norm * (-0.5 * (distance as f64 / width).powi(2)).exp()).collect();
    (0..axis.count)
        .map(|i| masses.iter().enumerate().map(|(j, mass)| mass * kernel[i.abs_diff(j)]).sum())
        .collect()
}

/// A Gaussian kernel estimate of the joint density of pairs, whose kernel has the samples' correlation.
///
/// Bandwidths follow Silverman's rule in two dimensions, min(σ, IQR / 1.34) n^(-1/6) along each axis, and are
/// never below the steps of the axes. Weights are taken as in [`kernel_density`].
pub fn kernel_density_2d(xs: &[f64], ys: &[f64], weights: Option<&[f64]>, x: Axis, y: Axis) -> Field {
    assert_eq!(xs.len(), ys.len(), "pairs have two members");
    let mut masses = vec![0.0; x.count * y.count];
    for (i, (&a, &b)) in xs.iter().zip(ys).enumerate() {
        if let (Some((column, right)), Some((row, up))) = (x.share(a), y.share(b)) {
            let corner = row * x.count + column;
            let weight = weight(weights, i);
            masses[corner] += weight * (1.0 - right) * (1.0 - up);
            masses[corner + 1] += weight * right * (1.0 - up);
            masses[corner + x.count] += weight * (1.0 - right) * up;
            masses[corner + x.count + 1] += weight * right * up;
        }
    }
    let shrink = effective_count(xs.len(), weights).powf(-1.0 / 6.0);
    // In units of grid steps.
    let wide = (robust_spread(xs, weights) * shrink / x.step()).max(1.0);
    let high = (robust_spread(ys, weights) * shrink / y.step()).max(1.0);
    let rho = correlation(xs, ys, weights).clamp(-0.9, 0.9);
    let area = wide * x.step() * high * y.step() * (1.0 - rho * rho).sqrt();
    let norm = 1.0 / (2.0 * std::f64::consts::PI * area * total(xs.len(), weights));

    // The kernel exp(-½ q), q = (u² - 2ρuv + v²) / (1 - ρ²), is negligible beyond four bandwidths.
    let (reach_x, reach_y) = ((4.0 * wide).ceil() as usize, (4.0 * high).ceil() as usize);
    let side = 2 * reach_x + 1;
    let mut kernel = vec![0.0; side * (2 * reach_y + 1)];
    for (k, value) in kernel.iter_mut().enumerate() {
        let u = (k % side) as f64 / wide - reach_x as f64 / wide;
        let v = (k / side) as f64 / high - reach_y as f64 / high;
        *value = norm * (-0.5 * (u * u - 2.0 * rho * u * v + v * v) / (1.0 - rho * rho)).exp();
    }

    let mut values = vec![0.0; masses.len()];
    for (point, &mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        let (column, row) = (point % x.count, point / x.count);
        let (left, right) = (column.saturating_sub(reach_x), (column + reach_x).min(x.count - 1));
        for to in row.saturating_sub(reach_y)..=(row + reach_y).min(y.count - 1) {
            let line = (to + reach_y - row) * side + reach_x + left - column;
            let from = &kernel[line..line + right - left + 1];
            let into = &mut values[to * x.count + left..=to * x.count + right];
            into.iter_mut().zip(from).for_each(|(value, k)| *value += mass * k);
        }
    }
    Field { x, y, values }
}

/// The quantiles of `values` at `levels`; with weights, the cumulative weight is taken as reached half at a sample and
/// interpolated between, so that samples of weight zero do not count.
pub(super) fn quantiles<const N: usize>(
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

fn weight(weights: Option<&[f64]>, i: usize) -> f64 {
    weights.map_or(1.0, |weights| weights[i])
}

/// The sum of the weights; at least 1 without any.
fn total(count: usize, weights: Option<&[f64]>) -> f64 {
    weights.map_or(count.max(1) as f64, |weights| weights.iter().sum())
}

/// Kish's effective number of samples, (Σ w)² / Σ w²; at least 1.
fn effective_count(count: usize, weights: Option<&[f64]>) -> f64 {
    let effective = weights.map_or(count as f64, |weights| {
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let relative = weights.iter().map(|weight| weight / largest);
        relative.clone().sum::<f64>().powi(2) / relative.map(|w| w * w).sum::<f64>()
    });
    effective.max(1.0)
}

/// min(σ, IQR / 1.34), or σ when half the samples or more are equal.
fn robust_spread(samples: &[f64], weights: Option<&[f64]>) -> f64 {
    if samples.len() < 2 {
        return 0.0;
    }
    let deviation = moment(samples, samples, weights).sqrt();
    let [lower, upper] = quantiles(samples, weights, [0.25, 0.75]);
    let quartiles = (upper - lower) / 1.34;
    if quartiles > 0.0 { deviation.min(quartiles) } else { deviation }
}

/// The covariance, Σ w (x - x̄)(y - ȳ) / Σ w · n / (n - 1) with the effective n; zero for a single sample.
fn moment(xs: &[f64], ys: &[f64], weights: Option<&[f64]>) -> f64 {
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
fn correlation(xs: &[f64], ys: &[f64], weights: Option<&[f64]>) -> f64 {
    if effective_count(xs.len(), weights) < 3.0 {
        return 0.0;
    }
    let rho = moment(xs, ys, weights) / (moment(xs, xs, weights) * moment(ys, ys, weights)).sqrt();
    if rho.is_finite() { rho } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nearly normal: sums of twelve equidistributed sequences.
    fn normal_scores(n: usize) -> Vec<f64> {
        (0..n)
            .map(|i| {
                (1..=12).map(|k| ((i + 1) as f64 * (k as f64 * 2.0 + 0.5).sqrt()).fract()).sum::<f64>() - 6.0
            })
            .collect()
    }

    #[test]
    fn a_kernel_estimate_integrates_to_one() {
        let samples = normal_scores(3000);
        let axis = Axis { low: -7.0, high: 7.0, count: 400 };
        let density = kernel_density(&samples, None, axis);
        let mass: f64 = density.iter().sum::<f64>() * axis.step();
        assert!((mass - 1.0).abs() < 1e-6, "{mass}");
        // Near the mode of a standard normal, lowered a little by smoothing.
        let peak = density.iter().copied().fold(0.0, f64::max);
        assert!((peak - 0.399).abs() < 0.04, "{peak}");
    }

    #[test]
    fn a_joint_estimate_integrates_to_one() {
        let xs = normal_scores(2000);
        let ys: Vec<f64> = xs.iter().zip(normal_scores(4000).iter().skip(2000)).map(|(x, e)| x + e).collect();
        let (x, y) = (Axis { low: -8.0, high: 8.0, count: 120 }, Axis { low: -10.0, high: 10.0, count: 100 });
        let field = kernel_density_2d(&xs, &ys, None, x, y);
        let mass = field.values.iter().sum::<f64>() * x.step() * y.step();
        assert!((mass - 1.0).abs() < 1e-3, "{mass}");
    }

    #[test]
    fn weights_count_as_so_many_samples() {
        // Every sample repeated 0 to 3 times, and the same written as weights.
        let (xs, noise) = (normal_scores(600), normal_scores(1300));
        let ys: Vec<f64> = xs.iter().zip(&noise[600..]).map(|(x, e)| 0.5 * x + e).collect();
        let weights: Vec<f64> = (0..600).map(|i| f64::from(i % 4)).collect();
        let repeated = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(&weights).flat_map(|(&v, &w)| vec![v; w as usize]).collect()
        };
        let axis = Axis { low: -5.0, high: 5.0, count: 101 };
        let close = |a: &[f64], b: &[f64]| {
            let peak = a.iter().copied().fold(0.0, f64::max);
            a.iter().zip(b).map(|(a, b)| (a - b).abs() / peak).fold(0.0, f64::max)
        };
        // They differ by the bandwidth alone: effective numbers are smaller than those of repeated samples.
        let weighted = kernel_density(&xs, Some(&weights), axis);
        let difference = close(&weighted, &kernel_density(&repeated(&xs), None, axis));
        assert!(difference < 0.04, "{difference}");
        assert!(close(&weighted, &kernel_density(&xs, None, axis)) > 2.0 * difference);
        let field = kernel_density_2d(&xs, &ys, Some(&weights), axis, axis);
        let mass = field.values.iter().sum::<f64>() * axis.step() * axis.step();
        assert!((mass - 1.0).abs() < 2e-3, "{mass}");
        let expected = kernel_density_2d(&repeated(&xs), &repeated(&ys), None, axis, axis);
        assert!(close(&expected.values, &field.values) < 0.08);
        // Equal weights, of any size, change nothing.
        let equal = kernel_density(&xs, Some(&[1e-3; 600]), axis);
        assert!(close(&kernel_density(&xs, None, axis), &equal) < 1e-3);
    }

    #[test]
    fn samples_without_weight_do_not_count() {
        let mut xs = normal_scores(500);
        let mut weights = vec![2.0; 500];
        let axis = Axis { low: -100.0, high: 100.0, count: 2001 };
        let (before, ends) =
            (kernel_density(&xs, Some(&weights), axis), quantiles(&xs, Some(&weights), [0.0, 1.0]));
        xs.extend([90.0; 300]);
        weights.extend([0.0; 300]);
        let after = kernel_density(&xs, Some(&weights), axis);
        assert!(before.iter().zip(&after).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_eq!(quantiles(&xs, Some(&weights), [0.0, 1.0]), ends);
        assert_eq!(quantiles(&[1.0, 2.0, 3.0], Some(&[1.0, 0.0, 1.0]), [0.5]), [2.0]);
        assert_eq!(quantiles(&[4.0, 1.0], Some(&[0.0, 5.0]), [0.0, 0.5, 1.0]), [1.0; 3]);
    }

    #[test]
    fn constant_and_single_samples_give_finite_peaks() {
        let axis = Axis { low: -1.0, high: 1.0, count: 101 };
        for samples in [vec![0.25], vec![0.25; 50]] {
            let density = kernel_density(&samples, None, axis);
            assert!((density.iter().sum::<f64>() * axis.step() - 1.0).abs() < 1e-3);
            let field = kernel_density_2d(&samples, &samples, None, axis, axis);
            assert!(field.values.iter().all(|v| v.is_finite()));
            assert_eq!(field.contours(field.highest_density_levels(&[0.9])[0]).len(), 1);
        }
    }

    #[test]
    fn contours_of_a_cone_are_closed_circles() {
        let axis = Axis { low: -2.0, high: 2.0, count: 81 };
        let field = Field::tabulate(axis, axis, |x, y| -(x * x + y * y).sqrt());
        for radius in [0.5f64, 1.0, 1.7] {
            let lines = field.contours(-radius);
            assert_eq!(lines.len(), 1);
            assert!(lines[0].closed);
            for [x, y] in &lines[0].points {
                assert!((x.hypot(*y) - radius).abs() < 2e-3);
            }
            // In order around the circle: the polygon has the circle's length.
            let points = &lines[0].points;
            let length: f64 = (0..points.len())
                .map(|i| (points[i], points[(i + 1) % points.len()]))
                .map(|([a, b], [c, d])| (a - c).hypot(b - d))
                .sum();
            assert!((length / (2.0 * std::f64::consts::PI * radius) - 1.0).abs() < 5e-3, "{length}");
        }
    }

    #[test]
    fn contours_open_at_the_border_and_separate_at_saddles() {
        let axis = Axis { low: -1.0, high: 1.0, count: 21 };
        let slope = Field::tabulate(axis, axis, |x, _| x).contours(0.03);
        assert_eq!(slope.len(), 1);
        assert!(!slope[0].closed);
        assert_eq!(slope[0].points.len(), 21);
        assert!(slope[0].points.iter().all(|p| (p[0] - 0.03).abs() < 1e-12));
        let saddle = Field::tabulate(axis, axis, |x, y| x * y).contours(0.001);
        assert_eq!(saddle.len(), 2);
        let two = Field::tabulate(axis, axis, |x, y| (-20.0 * ((x.abs() - 0.5).powi(2) + y * y)).exp());
        let two = two.contours(0.5);
        assert_eq!(two.iter().filter(|c| c.closed).count(), 2);
    }

    #[test]
    fn fields_with_holes_do_not_spread_them() {
        let axis = Axis { low: -1.0, high: 1.0, count: 30 };
        let field = Field::tabulate(axis, axis, |x, y| if x > 0.0 { f64::NEG_INFINITY } else { y });
        let field_nan = Field::tabulate(axis, axis, |x, y| if x > 0.0 { f64::NAN } else { y });
        for field in [field, field_nan] {
            let lines = field.contours(0.1);
            assert!(!lines.is_empty());
            assert!(lines.iter().flat_map(|c| &c.points).flatten().all(|v| v.is_finite()));
        }
    }

    #[test]
    fn highest_density_levels_of_a_normal_are_known() {
        let axis = Axis { low: -6.0, high: 6.0, count: 301 };
        let field = Field::tabulate(axis, axis, |x, y| (-0.5 * (x * x + y * y)).exp());
        // In two dimensions the region of mass p is bounded by density (1 - p) times the maximum.
        for (level, mass) in field.highest_density_levels(&[0.5, 0.9]).into_iter().zip([0.5, 0.9]) {
            assert!((level - (1.0 - mass)).abs() < 2e-3, "{level}");
        }
    }
}
