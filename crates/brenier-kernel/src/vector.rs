//! Loops over slices that the maps are made of: written plainly, compiled for the widest SIMD at hand.

use pulp::NullaryFnOnce;

use super::Real;

/// Runs `op` compiled for the best instruction set of this machine.
///
/// Everything called inside must be `#[inline(always)]`: it is then recompiled, and its plain loops
/// vectorised, for each instruction set that `pulp` knows.
#[inline(always)]
pub fn vectorised<R>(op: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(op)
}

/// The same for an operation that is too long for a closure to be inlined: a type of its own whose `call` is
/// `#[inline(always)]`.
#[inline(always)]
pub fn vectorised_operation<R>(op: impl NullaryFnOnce<Output = R>) -> R {
    pulp::Arch::new().dispatch(op)
}

/// Independent partial sums in a dot product: enough for two AVX-512 or four AVX2 single-precision registers.
const LANES: usize = 32;

/// Σᵢ aᵢ bᵢ, in a fixed order of summation.
#[inline(always)]
pub fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    debug_assert_eq!(a.len(), b.len());
    let mut sums = [T::ZERO; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let mut tail = T::ZERO;
    for (&x, &y) in a_chunks.remainder().iter().zip(b_chunks.remainder()) {
        tail = x.fma(y, tail);
    }
    for (x, y) in a_chunks.zip(b_chunks) {
        for i in 0..LANES {
            sums[i] = x[i].fma(y[i], sums[i]);
        }
    }
    fold(sums) + tail
}

/// Σᵢ aᵢ bᵢ and Σᵢ aᵢ cᵢ in one walk over `a`.
#[inline(always)]
pub fn dot2<T: Real>(a: &[T], b: &[T], c: &[T]) -> (T, T) {
    debug_assert!(a.len() == b.len() && a.len() == c.len());
    const HALF: usize = LANES / 2;
    let (mut first, mut second) = ([T::ZERO; HALF], [T::ZERO; HALF]);
    let (a_chunks, b_chunks, c_chunks) = (a.chunks_exact(HALF), b.chunks_exact(HALF), c.chunks_exact(HALF));
    let (mut tail_b, mut tail_c) = (T::ZERO, T::ZERO);
    for ((&x, &y), &z) in a_chunks.remainder().iter().zip(b_chunks.remainder()).zip(c_chunks.remainder()) {
        tail_b = x.fma(y, tail_b);
        tail_c = x.fma(z, tail_c);
    }
    for ((x, y), z) in a_chunks.zip(b_chunks).zip(c_chunks) {
        for i in 0..HALF {
            first[i] = x[i].fma(y[i], first[i]);
            second[i] = x[i].fma(z[i], second[i]);
        }
    }
    (fold(first) + tail_b, fold(second) + tail_c)
}

/// Pairwise sum of 8, 16 or 32 lanes.
///
/// The lanes are hidden from the optimiser first: it would otherwise group the loop that filled them by the last,
/// narrow levels of this tree, and work on two lanes at a time. Every level is an array of its own, so that levels stay in
/// registers: one that is summed in place goes through memory, and every load waits for a store of another width.
#[inline(always)]
pub fn fold<T: Real, const N: usize>(sums: [T; N]) -> T {
    const { assert!(N == 8 || N == 16 || N == 32) };
    let sums = std::hint::black_box(sums);
    let eight: [T; 8] = match N {
        32 => halved(&halved::<T, 16>(&sums)),
        16 => halved(&sums),
        _ => std::array::from_fn(|lane| sums[lane]),
    };
    let two: [T; 2] = halved(&halved::<T, 4>(&eight));
    two[0] + two[1]
}

/// The first M numbers plus the next M.
#[inline(always)]
fn halved<T: Real, const M: usize>(sums: &[T]) -> [T; M] {
    std::array::from_fn(|lane| sums[lane] + sums[lane + M])
}

/// y ← y + α x.
#[inline(always)]
pub fn axpy<T: Real>(alpha: T, x: &[T], y: &mut [T]) {
    debug_assert_eq!(x.len(), y.len());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.fma(alpha, *y);
    }
}

/// y ← y + Σ_j α_j x_j over the columns x_j of a matrix, four at a time.
#[inline(always)]
pub fn axpy_columns<T: Real>(alpha: &[T], x: &[T], y: &mut [T]) {
    let w = y.len();
    debug_assert_eq!(x.len(), alpha.len() * w);
    let (fours, ones) = (alpha.chunks_exact(4), alpha.chunks_exact(4).remainder());
    let (four_columns, one_columns) = x.split_at((alpha.len() - ones.len()) * w);
    for (alpha, x) in fours.zip(four_columns.chunks_exact(4 * w)) {
        let (a, b, c, d) = (&x[..w], &x[w..2 * w], &x[2 * w..3 * w], &x[3 * w..4 * w]);
        for i in 0..w {
            let low = b[i].fma(alpha[1], a[i].fma(alpha[0], y[i]));
            y[i] = d[i].fma(alpha[3], c[i].fma(alpha[2], low));
        }
    }
    for (&alpha, x) in ones.iter().zip(one_columns.chunks_exact(w)) {
        axpy(alpha, x, y);
    }
}

/// y ← Σ_j u_j ⊙ v_j over the columns of two matrices, four at a time.
#[inline(always)]
pub fn row_dots<T: Real>(u: &[T], v: &[T], y: &mut [T]) {
    let w = y.len();
    debug_assert_eq!(u.len(), v.len());
    y.fill(T::ZERO);
    let (u_fours, v_fours) = (u.chunks_exact(4 * w), v.chunks_exact(4 * w));
    let (u_ones, v_ones) = (u_fours.remainder().chunks_exact(w), v_fours.remainder().chunks_exact(w));
    for (u, v) in u_fours.zip(v_fours) {
        let (u, v) = (&u[..4 * w], &v[..4 * w]);
        let ((a, b), (c, d)) = ((&u[..w], &u[w..2 * w]), (&u[2 * w..3 * w], &u[3 * w..4 * w]));
        let ((e, f), (g, h)) = ((&v[..w], &v[w..2 * w]), (&v[2 * w..3 * w], &v[3 * w..4 * w]));
        for i in 0..w {
            let low = b[i].fma(f[i], a[i].fma(e[i], y[i]));
            y[i] = d[i].fma(h[i], c[i].fma(g[i], low));
        }
    }
    for (u, v) in u_ones.zip(v_ones) {
        for ((y, &u), &v) in y.iter_mut().zip(u).zip(v) {
            *y = u.fma(v, *y);
        }
    }
}

/// softplus(s) = log(1 + eˢ) and its derivative, the sigmoid, from one exponential.
///
/// With e = exp(−|s|): softplus = max(s, 0) + log(1 + e), σ' = 1/(1 + e) for s ≥ 0 and e/(1 + e) below;
/// σ'' = σ'(1 − σ') and σ''' = σ''(1 − 2σ') need nothing more.
#[inline(always)]
pub fn softplus<T: Real>(s: T) -> (T, T) {
    let e = (-s.magnitude()).exp_vec();
    let inverse = T::ONE / (T::ONE + e);
    let value = s.at_least(T::ZERO) + e.log1p_unit();
    (value, if s >= T::ZERO { inverse } else { e * inverse })
}

/// log(2 cosh s) and its derivative tanh s, from one exponential.
///
/// With e = exp(−2|s|): σ = |s| + log(1 + e), σ' = sign(s)(1 − e)/(1 + e); σ'' = 1 − σ'² and σ''' = −2σ'σ'' need
/// nothing more. NaN stays NaN in both.
#[inline(always)]
pub fn log_cosh<T: Real>(s: T) -> (T, T) {
    let magnitude = s.magnitude();
    let e = (-(magnitude + magnitude)).exp_vec();
    let slope = (T::ONE - e) / (T::ONE + e);
    let negative_or_nan = if s < T::ZERO { -slope } else { s };
    (magnitude + e.log1p_unit(), if s >= T::ZERO { slope } else { negative_or_nan })
}

/// The Gaussian softplus ψ(s) = sΦ(s) + φ(s) − φ(0) with ψ' = Φ and ψ'' = φ, the standard normal distribution and density.
///
/// The third derivative −sφ needs nothing more.
#[inline(always)]
pub fn gaussian_softplus<T: Real>(s: T) -> (T, T, T) {
    const PEAK: f64 = 0.398_942_280_401_432_7;
    let t = s.magnitude();
    let e = (-(t * t * T::from_f64(0.5))).exp_vec();
    let e = if e < T::NEGLIGIBLE { T::ZERO } else { e };
    let tail = e * t.scaled_normal_tail();
    let (first, second) = (if s >= T::ZERO { T::ONE - tail } else { tail }, e * T::from_f64(PEAK));
    (s.fma(first, second - T::from_f64(PEAK)), first, second)
}

/// 1/(1 + e⁻ˢ), softplus's derivative alone.
#[inline(always)]
pub fn logistic<T: Real>(s: T) -> T {
    let e = (-s.magnitude()).exp_vec();
    let inverse = T::ONE / (T::ONE + e);
    if s >= T::ZERO { inverse } else { e * inverse }
}

/// ELU(s): s above zero, eˢ − 1 below. Its derivative is 1 above and ELU + 1 below.
#[inline(always)]
pub fn elu<T: Real>(s: T) -> T {
    let below = if s < T::ZERO { s } else { T::ZERO };
    if s > T::ZERO { s } else { below.exp_vec() - T::ONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_match_the_plain_sum_at_every_length() {
        for n in 0..100 {
            let a: Vec<f64> = (0..n).map(|i| f64::from(i).sin()).collect();
            let b: Vec<f64> = (0..n).map(|i| f64::from(i).cos()).collect();
            let plain: f64 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - plain).abs() < 1e-13);
            let (ab, aa) = dot2(&a, &b, &a);
            assert!((ab - plain).abs() < 1e-13);
            assert!((aa - a.iter().map(|x| x * x).sum::<f64>()).abs() < 1e-12);
        }
    }

    #[test]
    fn sums_over_columns_match_the_plain_sums() {
        let w = 21;
        for n in 0..10 {
            let (u, v): (Vec<f64>, Vec<f64>) = (0..n * w)
                .map(|i| {
                    let i = i as f64;
                    (i.sin(), (2.0 * i).cos())
                })
                .unzip();
            let alpha: Vec<f64> = (0..n).map(|j| (j as f64 + 0.3).sin()).collect();
            let (mut sums, mut dots) = (vec![0.5; w], vec![0.5; w]);
            axpy_columns(&alpha, &u, &mut sums);
            row_dots(&u, &v, &mut dots);
            for i in 0..w {
                let sum: f64 = (0..n).map(|j| alpha[j] * u[j * w + i]).sum();
                let dot: f64 = (0..n).map(|j| u[j * w + i] * v[j * w + i]).sum();
                assert!((sums[i] - 0.5 - sum).abs() < 1e-14 && (dots[i] - dot).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn softplus_and_its_derivatives() {
        for i in -400..=400 {
            let s = f64::from(i) / 10.0;
            let (value, slope) = softplus(s);
            assert!((value - (s.max(0.0) + (-s.abs()).exp().ln_1p())).abs() < 1e-15 * value.max(1.0));
            assert!((slope - 1.0 / (1.0 + (-s).exp())).abs() < 1e-15);
            assert_eq!(slope, logistic(s));
            let h = 1e-5;
            let numeric = (softplus(s + h).0 - softplus(s - h).0) / (2.0 * h);
            assert!((slope - numeric).abs() < 1e-9);
        }
        assert_eq!(softplus(1e30_f32), (1e30, 1.0));
        assert!(softplus(-1e30_f32).0 < 1e-30);
    }

    #[test]
    fn log_cosh_and_its_derivatives() {
        for i in -400..=400 {
            let s = f64::from(i) / 16.0;
            let (value, slope) = log_cosh(s);
            let exact = s.abs() + (-2.0 * s.abs()).exp().ln_1p();
            assert!((value - exact).abs() < 1e-15 * value.max(1.0), "log 2cosh({s})");
            assert!((slope - s.tanh()).abs() < 4e-16, "tanh({s})");
            let (value, slope) = log_cosh(s as f32);
            assert!((f64::from(value) - exact).abs() < 3e-7 * exact.max(1.0));
            assert!((f64::from(slope) - s.tanh()).abs() < 2e-7);
            let h = 1e-5;
            let numeric = (log_cosh(s + h).0 - log_cosh(s - h).0) / (2.0 * h);
            assert!((log_cosh(s).1 - numeric).abs() < 1e-9);
        }
        assert_eq!(log_cosh(1e30_f32), (1e30, 1.0));
        assert_eq!(log_cosh(-1e300_f64), (1e300, -1.0));
        assert!(log_cosh(f32::NAN).0.is_nan() && log_cosh(f32::NAN).1.is_nan());
    }

    #[test]
    fn the_gaussian_softplus_and_its_derivatives() {
        for i in -400..=400 {
            let s = f64::from(i) / 40.0;
            let (value, first, second) = gaussian_softplus(s);
            let exact = 1.0 - crate::special::normal_tail(s);
            assert!((first - exact).abs() < 1e-15, "{s}: {first} {exact}");
            let h = 1e-4;
            let (up, down) = (gaussian_softplus(s + h), gaussian_softplus(s - h));
            assert!(((up.0 - down.0) / (2.0 * h) - first).abs() < 1e-8);
            assert!(((up.1 - down.1) / (2.0 * h) - second).abs() < 1e-8);
            assert!(((up.2 - down.2) / (2.0 * h) + s * second).abs() < 1e-8);
            let single = gaussian_softplus(s as f32);
            assert!((f64::from(single.0) - value).abs() < 2e-6 && (f64::from(single.1) - first).abs() < 3e-7);
        }
        assert_eq!(gaussian_softplus(0.0_f64).0, 0.0);
        assert_eq!(gaussian_softplus(1e18_f32).1, 1.0);
        // Far out the derivatives are zero: products with subnormal numbers are very slow.
        for s in [-20.0_f32, -13.5, 13.5, 20.0] {
            let (_, first, second) = gaussian_softplus(s);
            assert_eq!((first, second), (if s > 0.0 { 1.0 } else { 0.0 }, 0.0));
        }
    }

    #[test]
    fn elu_matches_its_definition() {
        for i in -100..=100 {
            let s = f64::from(i) / 7.0;
            let exact = if s > 0.0 { s } else { s.exp_m1() };
            assert!((elu(s) - exact).abs() < 1e-15);
        }
    }
}
