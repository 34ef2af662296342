//! Monotone rational-quadratic splines on [−B, B], the identity outside, for many rows side by side.
//!
//! Raw numbers (a₁ … a_K, b₁ … b_K, c₁ … c_{K−1}) make widths W_j = 2B(ε + (1 − Kε) softmax(a/√h)_j), heights H_j likewise
//! from b, and slopes d_j = softplus(c_j) + ε at the inner knots, ε = 10⁻³; at ±B the slope is 1. In the bin k of x, with its
//! left knot (X, Y), θ = (x − X)/W_k, S = H_k/W_k, q = θ(1 − θ) and slopes d₀, d₁ at its ends,
//!
//! N = H_k (Sθ² + d₀q),   D = S + (d₀ + d₁ − 2S) q,   v = Y + N/D,   ∂v/∂x = S²E/D²,   E = d₁θ² + 2Sq + d₀(1 − θ)².
//!
//! Every loop runs over the rows of a chunk, so that all of it is SIMD code; bins are found by selection.

use super::LEAST;
use super::lanes::{LANES, Lanes, read, write};
use super::shape::NpeShape;
use crate::kernel::{Real, softplus};

/// Columns that the way forward leaves for the way back: θ, W, H, d₀, d₁, the slopes of softplus at both, k.
pub(super) const PICKED: usize = 8;

/// What all splines of a flow share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spline<T> {
    bins: usize,
    /// B.
    bound: T,
    /// 1/√h.
    scale: T,
    /// 2Bε.
    least: T,
    /// 2B(1 − Kε).
    free: T,
}

/// One bin of every row of a chunk.
struct Bin<T> {
    left: Lanes<T>,
    size: Lanes<T>,
}

/// Value, slope and the parts that adjoints need, of one chunk.
struct Shape<T> {
    numerator: Lanes<T>,
    denominator: Lanes<T>,
    steep: Lanes<T>,
    secant: Lanes<T>,
}

impl<T: Real> Spline<T> {
    pub(super) fn new(shape: &NpeShape) -> Self {
        let reach = 2.0 * shape.tail_bound;
        Self {
            bins: shape.bins,
            bound: T::from_f64(shape.tail_bound),
            scale: T::from_f64(1.0 / (shape.hidden_width as f64).sqrt()),
            least: T::from_f64(reach * LEAST),
            free: T::from_f64(reach * shape.free_part()),
        }
    }

    /// v of every x, log ∂v/∂x added to `log`. Raw widths and heights become probabilities; `picked` is filled.
    #[inline(always)]
    pub(super) fn forward(
        &self,
        raw: &mut [T],
        stride: usize,
        rows: usize,
        x: &[T],
        v: &mut [T],
        picked: &mut [T],
        log: &mut [T],
    ) {
        for start in (0..rows).step_by(LANES) {
            let x = read(x, start);
            let mut index = [T::ZERO; LANES];
            let across = self.bin::<true>(raw, 0, stride, start, &x, &mut index);
            let up = self.bin::<false>(raw, self.bins, stride, start, &x, &mut index);
            let (slopes, bends) = self.slopes(raw, stride, start, &index);
            let mut theta = [T::ZERO; LANES];
            for l in 0..LANES {
                theta[l] = (x[l] - across.left[l]) / across.size[l];
            }
            let shape = shape(&theta, &across.size, &up.size, &slopes);
            let mut value = [T::ZERO; LANES];
            let mut growth = read(log, start);
            for l in 0..LANES {
                let inside = x[l].magnitude() <= self.bound;
                let inner = up.left[l] + shape.numerator[l] / shape.denominator[l];
                value[l] = if inside { inner } else { x[l] };
                let slope = shape.steep[l] / (shape.denominator[l] * shape.denominator[l]);
                growth[l] += if inside { slope.ln_vec() } else { T::ZERO };
                index[l] = if inside { index[l] } else { -T::ONE };
            }
            write(v, start, &value);
            write(log, start, &growth);
            let columns =
                [&theta, &across.size, &up.size, &slopes[0], &slopes[1], &bends[0], &bends[1], &index];
            for (column, values) in columns.into_iter().enumerate() {
                write(&mut picked[column * stride..], start, values);
            }
        }
    }

    /// From v̄ (in `bar`, which becomes x̄) and the adjoint `weight` of log ∂v/∂x, the adjoints of the raw numbers in place
    /// of what [`forward`](Self::forward) left in `raw`.
    ///
    /// With N̄ = v̄/D, D̄ = −v̄N/D² − 2w/D and Ē = w/E:  q̄ = D̄(d₀ + d₁ − 2S) + N̄Hd₀ + 2SĒ,
    /// θ̄ = 2N̄HSθ + 2Ē(d₁θ − d₀(1 − θ)) + q̄(1 − 2θ),   S̄ = D̄(1 − 2q) + N̄Hθ² + 2w/S + 2Ēq,
    /// d̄₀ = (D̄ + N̄H)q + Ē(1 − θ)²,   d̄₁ = D̄q + Ēθ²,   H̄ = N̄N/H + S̄/W,   W̄ = −(S̄S + θ̄θ)/W,   x̄ = θ̄/W = −X̄,   Ȳ = v̄.
    #[inline(always)]
    pub(super) fn backward(
        &self,
        raw: &mut [T],
        stride: usize,
        rows: usize,
        picked: &[T],
        bar: &mut [T],
        weight: T,
    ) {
        let two = T::from_f64(2.0);
        for start in (0..rows).step_by(LANES) {
            let [theta, width, height, low, high, low_bend, high_bend, index]: [Lanes<T>; PICKED] =
                std::array::from_fn(|column| read(&picked[column * stride..], start));
            let v_bar = read(bar, start);
            let shape = shape(&theta, &width, &height, &[low, high]);
            let [
                mut x_bar,
                mut width_bar,
                mut height_bar,
                mut low_bar,
                mut high_bar,
                mut left_bar,
                mut floor_bar,
            ] = [[T::ZERO; LANES]; 7];
            for l in 0..LANES {
                let inside = index[l] >= T::ZERO;
                let (t, s, h, d) = (theta[l], shape.secant[l], height[l], shape.denominator[l]);
                let q = t * (T::ONE - t);
                let e = shape.steep[l] / (s * s);
                let inverse = T::ONE / d;
                let n_bar = v_bar[l] * inverse;
                let d_bar = -(n_bar * shape.numerator[l] * inverse + two * weight * inverse);
                let e_bar = weight / e;
                let rest = low[l] + high[l] - two * s;
                let q_bar = d_bar * rest + n_bar * h * low[l] + two * s * e_bar;
                let t_bar = two * n_bar * h * s * t
                    + two * e_bar * (high[l] * t - low[l] * (T::ONE - t))
                    + q_bar * (T::ONE - two * t);
                let s_bar =
                    d_bar * (T::ONE - two * q) + n_bar * h * t * t + two * weight / s + two * e_bar * q;
                let per_width = T::ONE / width[l];
                let pick = |value: T| if inside { value } else { T::ZERO };
                low_bar[l] =
                    pick(((d_bar + n_bar * h) * q + e_bar * (T::ONE - t) * (T::ONE - t)) * low_bend[l]);
                high_bar[l] = pick((d_bar * q + e_bar * t * t) * high_bend[l]);
                height_bar[l] = pick(n_bar * shape.numerator[l] / h + s_bar * per_width);
                width_bar[l] = pick(-(s_bar * s + t_bar * t) * per_width);
                left_bar[l] = pick(-(t_bar * per_width));
                floor_bar[l] = pick(v_bar[l]);
                x_bar[l] = if inside { t_bar * per_width } else { v_bar[l] };
            }
            write(bar, start, &x_bar);
            self.bin_adjoint(raw, 0, stride, start, &index, &left_bar, &width_bar);
            self.bin_adjoint(raw, self.bins, stride, start, &index, &floor_bar, &height_bar);
            for j in 0..self.bins - 1 {
                let (here, above) = (T::from_f64(j as f64), T::from_f64((j + 1) as f64));
                let mut total = [T::ZERO; LANES];
                for l in 0..LANES {
                    total[l] = if index[l] == above { low_bar[l] } else { T::ZERO };
                    total[l] += if index[l] == here { high_bar[l] } else { T::ZERO };
                }
                write(&mut raw[(2 * self.bins + j) * stride..], start, &total);
            }
        }
    }

    /// x of every v, by the quadratic equation of its bin and a Newton step that removes what rounding left.
    ///
    /// With u = v − Y and r = d₀ + d₁ − 2S:  aθ² + bθ + c = 0,   a = H(S − d₀) + ur,   b = Hd₀ − ur,   c = −Su, whose root in
    /// \[0, 1\] is 2c/(−b − √(b² − 4ac)), free of cancellation since b > 0 there.
    #[inline(always)]
    pub(super) fn inverse(&self, raw: &mut [T], stride: usize, rows: usize, v: &[T], x: &mut [T]) {
        let (two, four) = (T::from_f64(2.0), T::from_f64(4.0));
        for start in (0..rows).step_by(LANES) {
            let v = read(v, start);
            let mut index = [T::ZERO; LANES];
            let up = self.bin::<true>(raw, self.bins, stride, start, &v, &mut index);
            let across = self.bin::<false>(raw, 0, stride, start, &v, &mut index);
            let (slopes, _) = self.slopes(raw, stride, start, &index);
            let mut theta = [T::ZERO; LANES];
            for l in 0..LANES {
                let (h, s) = (up.size[l], up.size[l] / across.size[l]);
                let (low, high) = (slopes[0][l], slopes[1][l]);
                let u = v[l] - up.left[l];
                let rest = u * (low + high - two * s);
                let (a, b, c) = (h * (s - low) + rest, h * low - rest, -(s * u));
                let root = (b * b - four * a * c).at_least(T::ZERO).square_root();
                theta[l] = unit(two * c / -(b + root));
            }
            for _ in 0..2 {
                let shape = shape(&theta, &across.size, &up.size, &slopes);
                for l in 0..LANES {
                    let d = shape.denominator[l];
                    let miss = up.left[l] + shape.numerator[l] / d - v[l];
                    let step = miss * d * d / (shape.steep[l] * across.size[l]);
                    theta[l] = unit(theta[l] - step);
                }
            }
            let mut value = [T::ZERO; LANES];
            for l in 0..LANES {
                let inside = v[l].magnitude() <= self.bound;
                let inner = theta[l].fma(across.size[l], across.left[l]);
                value[l] = if inside { inner } else { v[l] };
            }
            write(x, start, &value);
        }
    }

    /// The bin of `value` among the K columns from `first` on (and its number in `index`), or where not `SEARCH` the bin of
    /// that number. The columns become probabilities.
    #[inline(always)]
    fn bin<const SEARCH: bool>(
        &self,
        raw: &mut [T],
        first: usize,
        stride: usize,
        start: usize,
        value: &Lanes<T>,
        index: &mut Lanes<T>,
    ) -> Bin<T> {
        let columns = &mut raw[first * stride..(first + self.bins) * stride];
        let mut most: Lanes<T> = read(columns, start);
        for column in columns.chunks_exact(stride).skip(1) {
            let column: Lanes<T> = read(column, start);
            for l in 0..LANES {
                most[l] = column[l].at_least(most[l]);
            }
        }
        let mut sum = [T::ZERO; LANES];
        for column in columns.chunks_exact_mut(stride) {
            let mut values: Lanes<T> = read(column, start);
            for l in 0..LANES {
                values[l] = ((values[l] - most[l]) * self.scale).exp_vec();
                sum[l] += values[l];
            }
            write(column, start, &values);
        }
        let mut per_sum = [T::ZERO; LANES];
        for l in 0..LANES {
            per_sum[l] = T::ONE / sum[l];
        }
        let mut knot = [-self.bound; LANES];
        let mut bin = Bin { left: knot, size: [T::ONE; LANES] };
        for (j, column) in columns.chunks_exact_mut(stride).enumerate() {
            let number = T::from_f64(j as f64);
            let mut part: Lanes<T> = read(column, start);
            for l in 0..LANES {
                part[l] *= per_sum[l];
                let size = part[l].fma(self.free, self.least);
                let here = if SEARCH { j == 0 || value[l] >= knot[l] } else { index[l] >= number };
                bin.left[l] = if here { knot[l] } else { bin.left[l] };
                bin.size[l] = if here { size } else { bin.size[l] };
                if SEARCH {
                    index[l] = if here { number } else { index[l] };
                }
                knot[l] += size;
            }
            write(column, start, &part);
        }
        bin
    }

    /// Slopes at both ends of the bins `index`, and the slopes of softplus that made them (0 at ±B).
    #[inline(always)]
    fn slopes(
        &self,
        raw: &[T],
        stride: usize,
        start: usize,
        index: &Lanes<T>,
    ) -> ([Lanes<T>; 2], [Lanes<T>; 2]) {
        let mut logits = [[T::ZERO; LANES]; 2];
        for j in 0..self.bins - 1 {
            let (here, above) = (T::from_f64(j as f64), T::from_f64((j + 1) as f64));
            let column: Lanes<T> = read(&raw[(2 * self.bins + j) * stride..], start);
            for l in 0..LANES {
                logits[0][l] = if index[l] == above { column[l] } else { logits[0][l] };
                logits[1][l] = if index[l] == here { column[l] } else { logits[1][l] };
            }
        }
        let (mut slopes, mut bends) = ([[T::ONE; LANES]; 2], [[T::ZERO; LANES]; 2]);
        let edges = [T::ZERO, T::from_f64((self.bins - 1) as f64)];
        for end in 0..2 {
            for l in 0..LANES {
                let (value, bend) = softplus(logits[end][l]);
                let inner = index[l] != edges[end];
                slopes[end][l] = if inner { value + T::from_f64(LEAST) } else { T::ONE };
                bends[end][l] = if inner { bend } else { T::ZERO };
            }
        }
        (slopes, bends)
    }

    /// The adjoints of the raw sizes of K columns of probabilities, in their place: `left` goes to all bins before `index`,
    /// `size` to the bin itself; ā_j = p_j (p̄_j − Σ p_i p̄_i)/√h.
    #[inline(always)]
    fn bin_adjoint(
        &self,
        raw: &mut [T],
        first: usize,
        stride: usize,
        start: usize,
        index: &Lanes<T>,
        left: &Lanes<T>,
        size: &Lanes<T>,
    ) {
        let columns = &mut raw[first * stride..(first + self.bins) * stride];
        let mut mean = [T::ZERO; LANES];
        for (j, column) in columns.chunks_exact(stride).enumerate() {
            let (number, part): (T, Lanes<T>) = (T::from_f64(j as f64), read(column, start));
            for l in 0..LANES {
                mean[l] = part[l].fma(share(number, index[l], left[l], size[l]), mean[l]);
            }
        }
        let factor = self.free * self.scale;
        for (j, column) in columns.chunks_exact_mut(stride).enumerate() {
            let (number, mut part): (T, Lanes<T>) = (T::from_f64(j as f64), read(column, start));
            for l in 0..LANES {
                part[l] *= factor * (share(number, index[l], left[l], size[l]) - mean[l]);
            }
            write(column, start, &part);
        }
    }
}

/// What bin `number` gets of the adjoints of the bin `index`.
#[inline(always)]
fn share<T: Real>(number: T, index: T, left: T, size: T) -> T {
    let before = if number < index { left } else { T::ZERO };
    if number == index { size } else { before }
}

/// N, D, S²E and S.
#[inline(always)]
fn shape<T: Real>(theta: &Lanes<T>, width: &Lanes<T>, height: &Lanes<T>, slopes: &[Lanes<T>; 2]) -> Shape<T> {
    let mut shape = Shape {
        numerator: [T::ZERO; LANES],
        denominator: [T::ZERO; LANES],
        steep: [T::ZERO; LANES],
        secant: [T::ZERO; LANES],
    };
    let two = T::from_f64(2.0);
    for l in 0..LANES {
        let (t, s, low, high) = (theta[l], height[l] / width[l], slopes[0][l], slopes[1][l]);
        let q = t * (T::ONE - t);
        shape.numerator[l] = height[l] * (s * t * t + low * q);
        shape.denominator[l] = s + (low + high - two * s) * q;
        let rest = T::ONE - t;
        shape.steep[l] = s * s * (high * t * t + two * s * q + low * rest * rest);
        shape.secant[l] = s;
    }
    shape
}

/// The nearest number in [0, 1]; NaN stays NaN.
#[inline(always)]
fn unit<T: Real>(value: T) -> T {
    let above = if value < T::ZERO { T::ZERO } else { value };
    if above > T::ONE { T::ONE } else { above }
}
