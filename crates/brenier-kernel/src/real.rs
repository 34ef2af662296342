//! The two floating-point types the maps are generic over, with elementary functions that vectorise.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, MatMut, MatRef, Par};

/// `f32` (training) or `f64` (densities, polishing, tests).
///
/// [`exp_vec`](Real::exp_vec) and [`log1p_unit`](Real::log1p_unit) are branch-free polynomials, so that a plain
/// loop over a slice inside [`vectorised`](crate::vectorised) becomes SIMD code; they are accurate to two units
/// in the last place on their stated domains.
pub trait Real:
    faer::traits::RealField
    + super::Lane
    + Copy
    + Default
    + Debug
    + Display
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Half the spacing of the numbers at 1.
    const UNIT_ROUNDOFF: f64;
    /// Densities below this count as zero: products of two of them are still normal numbers. Subnormal ones are
    /// very slow on some processors.
    const NEGLIGIBLE: Self;
    /// The nearest value to `value`.
    fn from_f64(value: f64) -> Self;
    /// The same value in double precision.
    fn to_f64(self) -> f64;
    /// `self · a + b` with one rounding.
    fn fma(self, a: Self, b: Self) -> Self;
    /// |self|.
    fn magnitude(self) -> Self;
    /// The larger of the two; `other` where `self` is NaN.
    fn at_least(self, other: Self) -> Self;
    /// √self.
    fn square_root(self) -> Self;
    /// Neither infinite nor NaN.
    fn finite(self) -> bool;
    /// exp(self) for self ≤ 0 (clamped below where the result would leave the normal range).
    fn exp_vec(self) -> Self;
    /// log(1 + self) for 0 ≤ self ≤ 1.
    fn log1p_unit(self) -> Self;
    /// log(self) for positive normal numbers, to two units in the last place of max(1, |log self|); NaN for what is not finite.
    fn ln_vec(self) -> Self;
    /// tanh(self), to six units in the last place of 1; NaN stays NaN.
    fn tanh_vec(self) -> Self;
    /// dst ← lhs · rhs, or dst + lhs · rhs, on one thread.
    fn matmul(dst: MatMut<'_, Self>, accum: Accum, lhs: MatRef<'_, Self>, rhs: MatRef<'_, Self>);
    /// The lower triangle of weight · lhs · rhs, a square matrix, on one thread.
    fn lower_matmul(
        dst: MatMut<'_, Self>,
        accum: Accum,
        lhs: MatRef<'_, Self>,
        rhs: MatRef<'_, Self>,
        weight: Self,
    );
    /// e^{t²/2} ∫_t^∞ φ(s) ds for t = self ≥ 0, φ the standard normal density.
    fn scaled_normal_tail(self) -> Self;
}

/// Horner's scheme, highest coefficient first.
macro_rules! horner {
    ($x:expr; $first:expr $(, $rest:expr)*) => {{
        let x = $x;
        let sum: Self = $first;
        $( let sum = sum.mul_add(x, $rest); )*
        sum
    }};
}

/// (m, log c) with 1 + x = c (1 + m), c = 1 or √2, so that 0 ≤ m ≤ √2 − 1.
#[inline(always)]
fn halve_octave(x: f64) -> (f64, f64) {
    const ROOT: f64 = std::f64::consts::SQRT_2;
    let upper = x > ROOT - 1.0;
    let m = if upper { (x - (ROOT - 1.0)) * (1.0 / ROOT) } else { x };
    (m, if upper { 0.5 * std::f64::consts::LN_2 } else { 0.0 })
}

macro_rules! shared {
    ($real:ty) => {
        const ZERO: Self = 0.0;
        const UNIT_ROUNDOFF: f64 = 0.5 * <$real>::EPSILON as f64;
        const ONE: Self = 1.0;
        #[inline(always)]
        fn from_f64(value: f64) -> Self {
            value as $real
        }
        #[inline(always)]
        fn to_f64(self) -> f64 {
            f64::from(self)
        }
        #[inline(always)]
        fn fma(self, a: Self, b: Self) -> Self {
            self.mul_add(a, b)
        }
        #[inline(always)]
        fn magnitude(self) -> Self {
            self.abs()
        }
        #[inline(always)]
        fn at_least(self, other: Self) -> Self {
            if self > other { self } else { other }
        }
        #[inline(always)]
        fn square_root(self) -> Self {
            self.sqrt()
        }
        #[inline(always)]
        fn finite(self) -> bool {
            self.is_finite()
        }
        // Not generic and not inlined: compiled here and nowhere else.
        fn matmul(dst: MatMut<'_, Self>, accum: Accum, lhs: MatRef<'_, Self>, rhs: MatRef<'_, Self>) {
            matmul(dst, accum, lhs, rhs, 1.0, Par::Seq);
        }
        fn lower_matmul(
            dst: MatMut<'_, Self>,
            accum: Accum,
            lhs: MatRef<'_, Self>,
            rhs: MatRef<'_, Self>,
            weight: Self,
        ) {
            triangular::matmul(
                dst,
                BlockStructure::TriangularLower,
                accum,
                lhs,
                BlockStructure::Rectangular,
                rhs,
                BlockStructure::Rectangular,
                weight,
                Par::Seq,
            );
        }
    };
}

impl Real for f32 {
    shared!(f32);
    const NEGLIGIBLE: Self = 1e-18;

    #[inline(always)]
    fn exp_vec(self) -> Self {
        // exp(x) = 2ⁿ exp(r), n = round(x / log 2), |r| ≤ ½ log 2; adding 1.5·2²³ rounds to an integer.
        const ROUND: f32 = 12_582_912.0;
        const HIGH: f32 = 0.693_145_75;
        const LOW: f32 = 1.428_606_8e-6;
        let x = self.at_least(-87.0);
        let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = n.mul_add(-LOW, n.mul_add(-HIGH, x));
        let series = horner!(r; 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0);
        let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
        series * f32::from_bits(exponent)
    }

    #[inline(always)]
    fn log1p_unit(self) -> Self {
        // x P(x), P fitted to log(1 + x)/x in Chebyshev polynomials of [0, 1]; in Estrin's order, whose chain is short.
        let x = self;
        let (x2, x4) = (x * x, (x * x) * (x * x));
        let low = x2.mul_add(x.mul_add(-0.248_443_7, 0.333_192_7), x.mul_add(-0.499_995_02, 1.0));
        let high = x2.mul_add(x.mul_add(-0.029_588_507, 0.078_361_67), x.mul_add(-0.136_747_7, 0.191_114_3));
        x * x4.mul_add(x4.mul_add(0.005_253_458, high), low)
    }

    #[inline(always)]
    fn ln_vec(self) -> Self {
        // x = 2ⁿ (1 + m), 0 ≤ m < 1.
        let bits = self.to_bits();
        let exponent = (bits >> 23) as i32 - 127;
        let m = f32::from_bits((bits & 0x007f_ffff) | 0x3f80_0000) - 1.0;
        (exponent as f32).mul_add(std::f32::consts::LN_2, m.log1p_unit()) + 0.0 * self
    }

    #[inline(always)]
    fn tanh_vec(self) -> Self {
        // x P(x²)/Q(x²), fitted to tanh on [0, 9] in relative error; beyond, tanh is 1 to half a unit.
        const END: f32 = 9.0;
        let below = if self > END { END } else { self };
        let x = if below < -END { -END } else { below };
        let u = x * x;
        let p = horner!(u; 1.335_434_6e-8, 2.060_884_8e-5, 3.495_573_8e-3, 0.133_810_13, 1.0);
        let q = horner!(u; 7.776_427e-7, 3.285_611_5e-4, 2.587_692_8e-2, 0.467_143_3, 1.0);
        let tanh = x * p / q;
        let below = if tanh > 1.0 { 1.0 } else { tanh };
        if below < -1.0 { -1.0 } else { below }
    }

    #[inline(always)]
    fn scaled_normal_tail(self) -> Self {
        // P(u)/(1 + 1.5t) in u = (t − 3.5)/(t + 3.5), which carries [0, ∞) to [−1, 1); P by Chebyshev interpolation.
        let p = horner!((self - 3.5) / (self + 3.5);
            0.000_223_068_71, 9.203_411e-5, -0.002_220_889_6, 0.001_138_133_6, 0.016_304_804,
            -0.054_935_507, 0.087_899_156, -0.061_745_074, -0.052_999_396, 0.664_657_2);
        p / self.mul_add(1.5, 1.0)
    }
}

impl Real for f64 {
    shared!(f64);
    const NEGLIGIBLE: Self = 1e-150;

    #[inline(always)]
    fn exp_vec(self) -> Self {
        const ROUND: f64 = 6_755_399_441_055_744.0;
        const HIGH: f64 = 6.931_471_803_691_238e-1;
        const LOW: f64 = 1.908_214_929_270_587_7e-10;
        let x = self.at_least(-708.0);
        let shifted = x.mul_add(std::f64::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = n.mul_add(-LOW, n.mul_add(-HIGH, x));
        let series = horner!(r;
            1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0, 1.0 / 362_880.0,
            1.0 / 40_320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0);
        let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023) << 52;
        series * f64::from_bits(exponent)
    }

    #[inline(always)]
    fn log1p_unit(self) -> Self {
        // 2 artanh(m / (2 + m)) after taking out √2 from the upper half.
        let (m, shift) = halve_octave(self);
        let u = m / (2.0 + m);
        let tail = horner!(u * u;
            1.0 / 23.0, 1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0,
            1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0);
        (2.0 * u).mul_add(tail, shift)
    }

    #[inline(always)]
    fn ln_vec(self) -> Self {
        // As above; a float made of 2⁵² and the exponent's bits turns them into a number without an integer conversion.
        const SHIFT: u64 = 0x4330_0000_0000_0000;
        let bits = self.to_bits();
        let exponent = f64::from_bits((bits >> 52) | SHIFT) - (f64::from_bits(SHIFT) + 1023.0);
        let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) | 0x3ff0_0000_0000_0000) - 1.0;
        exponent.mul_add(std::f64::consts::LN_2, m.log1p_unit()) + 0.0 * self
    }

    #[inline(always)]
    fn tanh_vec(self) -> Self {
        let e = (-2.0 * self.abs()).exp_vec();
        let slope = (1.0 - e) / (1.0 + e);
        let negative_or_nan = if self < 0.0 { -slope } else { self };
        if self >= 0.0 { slope } else { negative_or_nan }
    }

    #[inline(always)]
    fn scaled_normal_tail(self) -> Self {
        // P(u)/(1 + 1.5t) in u = (t − 5.0)/(t + 5.0), which carries [0, ∞) to [−1, 1); P by Chebyshev interpolation.
        let p = horner!((self - 5.0) / (self + 5.0);
            -3.604_068_174_321_396e-10, 3.523_239_847_987_629_5e-9, 4.735_096_110_334_784e-9, -4.075_511_623_945_333e-8,
            -3.428_797_195_630_597e-8, 3.017_695_935_524_561_6e-7, 1.536_175_301_026_007e-7, -2.071_851_398_238_192_5e-6,
            2.317_968_718_515_335e-7, 1.421_834_340_245_024_4e-5, -1.816_626_544_882_032e-5, -8.088_956_156_522_075e-5,
            0.000_303_714_934_355_934_65, -5.545_163_093_318_502e-5, -0.002_623_883_881_432_572_4, 0.010_972_423_270_872_64,
            -0.027_251_308_379_490_906, 0.048_512_395_101_790_805, -0.063_529_240_591_525_4, 0.055_445_467_210_199_11,
            -0.011_488_853_304_056_535, -0.065_599_645_119_010_88, 0.653_814_092_287_553_5);
        p / self.mul_add(1.5, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_and_logarithm_are_accurate_to_two_ulps() {
        for i in 0..=200_000 {
            let t = f64::from(i) / 200_000.0;
            let x = -700.0 * t;
            assert!((x.exp_vec() / x.exp() - 1.0).abs() < 5e-16, "exp({x})");
            let x32 = (-86.0 * t) as f32;
            let exact = f64::from(x32).exp();
            assert!((f64::from(x32.exp_vec()) / exact - 1.0).abs() < 2.4e-7, "exp({x32})");
            assert!((t.log1p_unit() - t.ln_1p()).abs() <= 5e-16 * t.ln_1p(), "log1p({t})");
            let t32 = t as f32;
            let exact = f64::from(t32).ln_1p();
            assert!((f64::from(t32.log1p_unit()) - exact).abs() <= 2.4e-7 * exact, "log1p({t32})");
        }
    }

    #[test]
    fn logarithms_are_accurate() {
        for i in -4000..=4000 {
            let x = (f64::from(i) / 100.0).exp();
            assert!((x.ln_vec() - x.ln()).abs() <= 5e-16 * x.ln().abs().max(1.0), "log({x})");
            let x32 = x as f32;
            let exact = f64::from(x32).ln();
            assert!((f64::from(x32.ln_vec()) - exact).abs() <= 2.4e-7 * exact.abs().max(1.0), "log({x32})");
        }
        assert!(f32::NAN.ln_vec().is_nan() && f64::INFINITY.ln_vec().is_nan());
    }

    #[test]
    fn hyperbolic_tangents_are_accurate() {
        for i in -200_000..=200_000 {
            let x = f64::from(i) / 10_000.0;
            assert!((x.tanh_vec() - x.tanh()).abs() < 4e-16, "tanh({x})");
            let x = x as f32;
            let (got, exact) = (f64::from(x.tanh_vec()), f64::from(x).tanh());
            assert!((got - exact).abs() <= 4e-7 * exact.abs() && got.abs() <= 1.0, "tanh({x}) = {got}");
        }
        assert!((f32::INFINITY.tanh_vec() - 1.0).abs() < 4e-7);
        assert_eq!(f32::NEG_INFINITY.tanh_vec(), -f32::INFINITY.tanh_vec());
        assert_eq!((f64::INFINITY.tanh_vec(), f64::NEG_INFINITY.tanh_vec()), (1.0, -1.0));
        assert!(f32::NAN.tanh_vec().is_nan() && f64::NAN.tanh_vec().is_nan());
    }

    #[test]
    fn scaled_normal_tails_are_accurate() {
        for i in 0..=100_000 {
            let t = f64::from(i) / 5000.0;
            let exact = crate::special::normal_tail(t) * (0.5 * t * t).exp();
            assert!((t.scaled_normal_tail() / exact - 1.0).abs() < 2e-13, "tail({t})");
            let t = t as f32;
            let exact = f64::from(t).scaled_normal_tail();
            assert!((f64::from(t.scaled_normal_tail()) / exact - 1.0).abs() < 4e-7, "tail({t})");
        }
        assert!((1e30_f32.scaled_normal_tail() * 1e30).is_finite());
    }

    #[test]
    fn extremes_stay_finite() {
        assert!((-1e30_f32).exp_vec() >= 0.0 && (-1e30_f32).exp_vec() < 1e-37);
        assert!((-1e300_f64).exp_vec() >= 0.0 && (-1e300_f64).exp_vec() < 1e-300);
        assert_eq!(0.0_f32.exp_vec(), 1.0);
        assert_eq!(0.0_f64.exp_vec(), 1.0);
    }
}
