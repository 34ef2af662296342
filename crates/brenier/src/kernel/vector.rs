//! Loops over slices that the maps are made of: written plainly, compiled for the widest SIMD at hand.

use super::Real;

/// Runs `op` compiled for the best instruction set of this machine.
///
/// Everything called inside must be `#[inline(always)]`: it is then recompiled, and its plain loops
/// vectorised, for each instruction set that `pulp` knows.
#[inline(always)]
pub(crate) fn vectorised<R>(op: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(op)
}

/// Independent partial sums in a dot product: enough for two AVX-512 or four AVX2 single-precision registers.
const LANES: usize = 32;

/// Σᵢ aᵢ bᵢ, in a fixed order of summation.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
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
pub(crate) fn dot2<T: Real>(a: &[T], b: &[T], c: &[T]) -> (T, T) {
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

/// Pairwise sum of a power-of-two number of lanes.
#[inline(always)]
pub(crate) fn fold<T: Real, const N: usize>(mut sums: [T; N]) -> T {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// y ← y + α x.
#[inline(always)]
pub(crate) fn axpy<T: Real>(alpha: T, x: &[T], y: &mut [T]) {
    debug_assert_eq!(x.len(), y.len());
    for (y, &x) in y.iter_mut().zip(x) {
        *y = x.fma(alpha, *y);
    }
}

/// Runs a block for every group of lanes of `0..length`: `LANES` = 16 at a time, then one by one.
///
/// A block that keeps its sums in `[T; LANES]` keeps them in registers, however many columns it walks over.
macro_rules! sweep {
    ($length:expr, |$at:ident, $lanes:ident| $body:block) => {{
        let length: usize = $length;
        let mut $at = 0;
        {
            const $lanes: usize = 16;
            while $at + $lanes <= length {
                $body
                $at += $lanes;
            }
        }
        const $lanes: usize = 1;
        while $at < length {
            $body
            $at += $lanes;
        }
    }};
}
pub(crate) use sweep;

/// `N` entries from `at` on.
#[inline(always)]
pub(crate) fn lanes<T, const N: usize>(values: &[T], at: usize) -> &[T; N] {
    values[at..].first_chunk().expect("lanes within the slice")
}

/// `N` entries from `at` on, to write to.
#[inline(always)]
pub(crate) fn lanes_mut<T, const N: usize>(values: &mut [T], at: usize) -> &mut [T; N] {
    values[at..].first_chunk_mut().expect("lanes within the slice")
}

/// softplus(s) = log(1 + eˢ) and its derivative, the sigmoid, from one exponential.
///
/// With e = exp(−|s|): softplus = max(s, 0) + log(1 + e), σ' = 1/(1 + e) for s ≥ 0 and e/(1 + e) below;
/// σ'' = σ'(1 − σ') and σ''' = σ''(1 − 2σ') need nothing more.
#[inline(always)]
pub(crate) fn softplus<T: Real>(s: T) -> (T, T) {
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
pub(crate) fn log_cosh<T: Real>(s: T) -> (T, T) {
    let magnitude = s.magnitude();
    let e = (-(magnitude + magnitude)).exp_vec();
    let slope = (T::ONE - e) / (T::ONE + e);
    let negative_or_nan = if s < T::ZERO { -slope } else { s };
    (magnitude + e.log1p_unit(), if s >= T::ZERO { slope } else { negative_or_nan })
}

/// 1/(1 + e⁻ˢ), softplus's derivative alone.
#[inline(always)]
pub(crate) fn logistic<T: Real>(s: T) -> T {
    let e = (-s.magnitude()).exp_vec();
    let inverse = T::ONE / (T::ONE + e);
    if s >= T::ZERO { inverse } else { e * inverse }
}

/// ELU(s): s above zero, eˢ − 1 below. Its derivative is 1 above and ELU + 1 below.
#[inline(always)]
pub(crate) fn elu<T: Real>(s: T) -> T {
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
    fn elu_matches_its_definition() {
        for i in -100..=100 {
            let s = f64::from(i) / 7.0;
            let exact = if s > 0.0 { s } else { s.exp_m1() };
            assert!((elu(s) - exact).abs() < 1e-15);
        }
    }
}
