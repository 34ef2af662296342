//! Densities on grids: Gaussian kernel estimates, highest-density levels and contour lines.
//!
//! Estimates are binned first (each sample shares its weight linearly between its neighbouring grid points), so
//! their cost hardly depends on the number of samples, and the result not at all on threads or hashing.

mod bandwidth;
mod weighted;

pub use bandwidth::{plug_in_bandwidth, silverman_bandwidth};
pub(super) use weighted::quantiles;
use weighted::{correlation, effective_count, total, weight};

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

    /// The axis with `steps` more at either end, but not more than `most` times its own points.
    fn widened(&self, steps: f64, most: usize) -> Self {
        let more = (steps.ceil() as usize).min(most * self.count);
        let (low, high) = (self.at(-(more as f64)), self.at((self.count - 1 + more) as f64));
        Self { low, high, count: self.count + 2 * more }
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

    /// For each of `masses` in (0, 1), the level above which the field holds that part of the points (`xs`, `ys`); points
    /// outside the axes do not count.
    pub fn levels_at(&self, xs: &[f64], ys: &[f64], weights: Option<&[f64]>, masses: &[f64]) -> Vec<f64> {
        let (mut heights, mut shares) = (Vec::with_capacity(xs.len()), Vec::new());
        for (i, (&a, &b)) in xs.iter().zip(ys).enumerate() {
            if let Some(height) = self.at(a, b) {
                heights.push(height);
                shares.extend(weights.map(|weights| weights[i]));
            }
        }
        let shares = weights.map(|_| shares.as_slice());
        if heights.is_empty() || shares.is_some_and(|shares| shares.iter().all(|share| *share == 0.0)) {
            return vec![f64::INFINITY; masses.len()];
        }
        // A little lower, so that the points of equal height belong to the region.
        masses.iter().map(|mass| quantiles(&heights, shares, [1.0 - mass])[0] * (1.0 - 1e-9)).collect()
    }

    /// The value at a point between the grid's, from its four neighbours; none outside the axes.
    fn at(&self, x: f64, y: f64) -> Option<f64> {
        let ((column, right), (row, up)) = (self.x.share(x)?, self.y.share(y)?);
        let line = |row: usize| {
            let corner = row * self.x.count + column;
            (1.0 - right) * self.values[corner] + right * self.values[corner + 1]
        };
        Some((1.0 - up) * line(row) + up * line(row + 1))
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

/// Samples of one quantity with the bandwidth that their density is estimated with.
#[derive(Clone, Debug)]
pub struct Smoothed<'a> {
    samples: &'a [f64],
    weights: Option<&'a [f64]>,
    bounds: [f64; 2],
    bandwidth: f64,
}

impl<'a> Smoothed<'a> {
    /// Chooses the bandwidth by [`plug_in_bandwidth`].
    ///
    /// Weights, where given, are not negative and need not be normalised. At `bounds` (infinite where there are none)
    /// the estimates reflect what the kernel would carry across them, and beyond they are zero.
    pub fn new(samples: &'a [f64], weights: Option<&'a [f64]>, bounds: [f64; 2]) -> Self {
        Self { samples, weights, bounds, bandwidth: plug_in_bandwidth(samples, weights, bounds) }
    }

    /// The samples.
    pub fn samples(&self) -> &'a [f64] {
        self.samples
    }

    /// The weights of the samples.
    pub fn weights(&self) -> Option<&'a [f64]> {
        self.weights
    }

    /// Between what the density is not zero.
    pub fn bounds(&self) -> [f64; 2] {
        self.bounds
    }

    /// The standard deviation of the kernel in one dimension.
    pub fn bandwidth(&self) -> f64 {
        self.bandwidth
    }

    /// A Gaussian kernel estimate at the points of `axis`.
    ///
    /// The bandwidth is never below the step of the axis, so that constant samples give a narrow, finite peak.
    pub fn density(&self, axis: Axis) -> Vec<f64> {
        let width = (self.bandwidth / axis.step()).max(1.0);
        let wide = axis.widened(6.0 * width, 2);
        let mut masses = vec![0.0; wide.count];
        for (i, &sample) in self.samples.iter().enumerate() {
            let weight = weight(self.weights, i);
            for (below, part) in self.images(sample).filter_map(|image| wide.share(image)) {
                masses[below] += weight * (1.0 - part);
                masses[below + 1] += weight * part;
            }
        }
        let scale = (2.0 * std::f64::consts::PI).sqrt() * width * axis.step();
        let norm = 1.0 / (scale * total(self.samples.len(), self.weights));
        let kernel: Vec<f64> =
            (0..wide.count).map(|distance| norm * (-0.5 * (distance as f64 / width).powi(2)).exp()).collect();
        let pad = (wide.count - axis.count) / 2;
        (0..axis.count)
            .map(|i| match self.allows(axis.at(i as f64)) {
                true => masses.iter().enumerate().map(|(j, mass)| mass * kernel[(i + pad).abs_diff(j)]).sum(),
                false => 0.0,
            })
            .collect()
    }

    /// A Gaussian kernel estimate of the joint density with `other`, whose kernel has the samples' correlation.
    ///
    /// What is best for n pairs shrinks as n^(-1/6), for n numbers as n^(-1/5): along each axis the bandwidth is that of
    /// one dimension times n^(1/30) / 1.06, which for a Gaussian gives σ n^(-1/6). It is never below the step of the axis.
    /// The weights are those of `self`.
    pub fn joint(&self, other: &Smoothed<'_>, x: Axis, y: Axis) -> Field {
        assert_eq!(self.samples.len(), other.samples.len(), "pairs have two members");
        let (xs, ys, weights) = (self.samples, other.samples, self.weights);
        let [wide, high] = [(self, x), (other, y)].map(|(one, axis)| {
            // In units of grid steps.
            let count = effective_count(xs.len(), weights);
            (one.bandwidth * count.powf(1.0 / 30.0) / 1.06 / axis.step()).max(1.0)
        });
        let (over, up) = (x.widened(4.0 * wide, 1), y.widened(4.0 * high, 1));
        let mut masses = vec![0.0; over.count * up.count];
        for (i, (&a, &b)) in xs.iter().zip(ys).enumerate() {
            let weight = weight(weights, i);
            for (row, above) in other.images(b).filter_map(|image| up.share(image)) {
                for (column, right) in self.images(a).filter_map(|image| over.share(image)) {
                    let corner = row * over.count + column;
                    masses[corner] += weight * (1.0 - right) * (1.0 - above);
                    masses[corner + 1] += weight * right * (1.0 - above);
                    masses[corner + over.count] += weight * (1.0 - right) * above;
                    masses[corner + over.count + 1] += weight * right * above;
                }
            }
        }
        let rho = correlation(xs, ys, weights).clamp(-0.9, 0.9);
        let area = wide * x.step() * high * y.step() * (1.0 - rho * rho).sqrt();
        let norm = 1.0 / (2.0 * std::f64::consts::PI * area * total(xs.len(), weights));

        // The kernel exp(-½ q), q = (u² - 2ρuv + v²) / (1 - ρ²), is negligible beyond four bandwidths.
        let (reach_x, reach_y) = ((4.0 * wide).ceil() as usize, (4.0 * high).ceil() as usize);
        let (reach_x, reach_y) = (reach_x.min(over.count), reach_y.min(up.count));
        let side = 2 * reach_x + 1;
        let mut kernel = vec![0.0; side * (2 * reach_y + 1)];
        for (k, value) in kernel.iter_mut().enumerate() {
            let u = (k % side) as f64 / wide - reach_x as f64 / wide;
            let v = (k / side) as f64 / high - reach_y as f64 / high;
            *value = norm * (-0.5 * (u * u - 2.0 * rho * u * v + v * v) / (1.0 - rho * rho)).exp();
        }

        let mut values = vec![0.0; x.count * y.count];
        let (pad_x, pad_y) = ((over.count - x.count) / 2, (up.count - y.count) / 2);
        for (point, &mass) in masses.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            // Places in the wider grid; those of the narrower one begin at the pads.
            let (column, row) = (point % over.count, point / over.count);
            let (left, right) = (column.saturating_sub(reach_x).max(pad_x), column + reach_x + 1);
            let right = right.min(pad_x + x.count);
            let (from, to) = (row.saturating_sub(reach_y).max(pad_y), row + reach_y + 1);
            for to in from..to.min(pad_y + y.count) {
                let Some(length) = right.checked_sub(left) else { break };
                let line = (to + reach_y - row) * side + reach_x + left - column;
                let start = (to - pad_y) * x.count + left - pad_x;
                let into = &mut values[start..start + length];
                into.iter_mut().zip(&kernel[line..line + length]).for_each(|(value, k)| *value += mass * k);
            }
        }
        for (point, value) in values.iter_mut().enumerate() {
            let (column, row) = (point % x.count, point / x.count);
            if !(self.allows(x.at(column as f64)) && other.allows(y.at(row as f64))) {
                *value = 0.0;
            }
        }
        Field { x, y, values }
    }

    fn allows(&self, value: f64) -> bool {
        (self.bounds[0]..=self.bounds[1]).contains(&value)
    }

    /// A sample and its mirror images in the bounds.
    fn images(&self, sample: f64) -> impl Iterator<Item = f64> {
        let mirrored = self.bounds.into_iter().filter(|bound| bound.is_finite());
        std::iter::once(sample).chain(mirrored.map(move |bound| 2.0 * bound - sample))
    }
}

/// The estimate of [`Smoothed::density`] for samples without bounds.
pub fn kernel_density(samples: &[f64], weights: Option<&[f64]>, axis: Axis) -> Vec<f64> {
    Smoothed::new(samples, weights, UNBOUNDED).density(axis)
}

/// The estimate of [`Smoothed::joint`] for pairs without bounds.
pub fn kernel_density_2d(xs: &[f64], ys: &[f64], weights: Option<&[f64]>, x: Axis, y: Axis) -> Field {
    Smoothed::new(xs, weights, UNBOUNDED).joint(&Smoothed::new(ys, weights, UNBOUNDED), x, y)
}

/// No bounds.
pub const UNBOUNDED: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

#[cfg(test)]
mod tests {
    use super::weighted::moment;
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

    /// Pairs around (±4, ±4) with standard deviation 0.3.
    fn four_modes(n: usize) -> [Vec<f64>; 2] {
        let noise = normal_scores(2 * n);
        let side = |i: usize, k: f64| if ((i + 1) as f64 * k.sqrt()).fract() < 0.5 { -4.0 } else { 4.0 };
        [(0, 31.0), (n, 37.0)].map(|(from, k)| (0..n).map(|i| side(i, k) + 0.3 * noise[from + i]).collect())
    }

    #[test]
    fn modes_that_lie_apart_are_not_smeared() {
        for n in [500, 2000] {
            let [xs, ys] = four_modes(n);
            let [x, y] = [&xs, &ys].map(|values| Smoothed::new(values, None, UNBOUNDED));
            for bandwidth in [x.bandwidth(), y.bandwidth()] {
                assert!((0.04..0.2).contains(&bandwidth), "{bandwidth} of {n}");
            }
            let axis = Axis { low: -5.5, high: 5.5, count: 96 };
            let field = x.joint(&y, axis, axis);
            for mass in [0.5, 0.9] {
                let level = field.levels_at(&xs, &ys, None, &[mass])[0];
                let held = xs.iter().zip(&ys).filter(|(x, y)| field.at(**x, **y) >= Some(level)).count();
                assert!((held as f64 / n as f64 - mass).abs() < 0.02, "{held} of {n} for {mass}");
                // The region is about as large as that of four Gaussians, widened by the grid and the kernel.
                let cells = field.values.iter().filter(|value| **value >= level).count() as f64;
                let exact = 4.0 * std::f64::consts::PI * 0.09 * -2.0 * (1.0_f64 - mass).ln();
                let area = cells * axis.step() * axis.step() / exact;
                assert!((0.7..1.6).contains(&area), "{area} times the area for {mass}");
                assert_eq!(field.contours(level).iter().filter(|line| line.points.len() > 12).count(), 4);
            }
        }
    }

    #[test]
    fn the_bandwidth_of_a_gaussian_is_near_the_best() {
        for n in [300, 3000] {
            let samples = normal_scores(n);
            let best = 1.06 * moment(&samples, &samples, None).sqrt() * (n as f64).powf(-0.2);
            let found = plug_in_bandwidth(&samples, None, UNBOUNDED) / best;
            assert!((0.75..1.1).contains(&found), "{found} of {n}");
            // Units do not matter; equal numbers do not make it smaller.
            let scaled: Vec<f64> = samples.iter().map(|v| 1.7e9 + 100.0 * v).collect();
            let other = plug_in_bandwidth(&scaled, None, UNBOUNDED) / (100.0 * best);
            assert!((other / found - 1.0).abs() < 0.02, "{other} {found}");
            let rounded: Vec<f64> = samples.iter().map(|v| (5.0 * v).round() / 5.0).collect();
            let other = plug_in_bandwidth(&rounded, None, UNBOUNDED) / best;
            assert!((0.75..1.3).contains(&other), "{other} of {n} rounded");
        }
        // As many as they weigh.
        let mut samples = normal_scores(600);
        let weights: Vec<f64> = (0..600).map(|i| if i < 300 { 1.0 } else { 0.0 }).collect();
        samples[300..].iter_mut().for_each(|v| *v += 50.0);
        let weighted = plug_in_bandwidth(&samples, Some(&weights), UNBOUNDED);
        assert!((weighted / plug_in_bandwidth(&samples[..300], None, UNBOUNDED) - 1.0).abs() < 0.02);
    }

    #[test]
    fn no_density_crosses_a_bound() {
        // Uniform between 0 and 1: without reflection it falls to one half at the ends.
        let xs: Vec<f64> = (0..2000).map(|i| (f64::from(i) * 0.618_033_988_749).fract()).collect();
        let ys: Vec<f64> = (0..2000).map(|i| (f64::from(i) * 0.754_877_666_247).fract()).collect();
        let axis = Axis { low: -0.2, high: 1.2, count: 141 };
        let [x, y] = [&xs, &ys].map(|values| Smoothed::new(values, None, [0.0, 1.0]));
        let inside = |i: usize| (20..=120).contains(&i);
        for (i, value) in x.density(axis).into_iter().enumerate() {
            let expected = if inside(i) { 1.0 } else { 0.0 };
            // The bounds themselves are points of the grid but for rounding.
            assert!(i == 20 || i == 120 || (value - expected).abs() < 0.1, "{value} at {i}");
        }
        let field = x.joint(&y, axis, axis);
        for (point, value) in field.values.iter().enumerate() {
            let (column, row) = (point % axis.count, point / axis.count);
            let outside = |i: usize| !(20..=120).contains(&i);
            assert!(!(outside(column) || outside(row)) || *value == 0.0, "{value} at {column}, {row}");
            let within = |i: usize| (21..120).contains(&i);
            assert!(!(within(column) && within(row)) || (0.7..1.3).contains(value), "{value}");
        }
        let one_side = Smoothed::new(&xs, None, [0.0, f64::INFINITY]).density(axis);
        assert!(one_side[19] == 0.0 && one_side[21] > 0.9 && one_side[119] < 0.9);
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
