//! Special functions in double precision: normal tails and their inverse, the logarithm of the gamma function and its slope.

use crate::Real;

/// ∫_z^∞ exp(−t²/2) dt / √(2π), to about 14 digits relative to its size.
pub fn normal_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    // Below, ½ − Σ loses no more than a digit by cancellation; above, a hundred terms of the fraction are more than enough.
    if z < 1.8 {
        // Φ(z) − ½ = φ(z) Σ z²ᵏ⁺¹ / (1·3·…·(2k+1)).
        let (mut term, mut sum, mut odd) = (z, z, 1.0);
        while term > 1e-17 * sum {
            odd += 2.0;
            term *= z * z / odd;
            sum += term;
        }
        return 0.5 - density * sum;
    }
    // Mills' ratio by its continued fraction 1/(z + 1/(z + 2/(z + 3/(z + …)))), from the far end.
    let mut fraction = z;
    for k in (1..=100).rev() {
        fraction = z + f64::from(k) / fraction;
    }
    density / fraction
}

/// The z ≥ 0 whose [`normal_tail`] is `tail`, for 0 < tail ≤ ½; 0 for larger tails.
///
/// Newton's and Halley's method on ln tail(z) − ln tail = f: with Mills' ratio m, f' = −1/m and f''/f' = 1/m − z.
pub fn normal_tail_inverse(tail: f64) -> f64 {
    if tail >= 0.5 {
        return 0.0;
    }
    let log = tail.ln();
    // A rational function of √(−2 ln tail), right to 5·10⁻⁴ (Abramowitz and Stegun, 26.2.23).
    let t = (-2.0 * log).sqrt();
    let start = t
        - ((0.010_328 * t + 0.802_853) * t + 2.515_517)
            / (((0.001_308 * t + 0.189_269) * t + 1.432_788) * t + 1.0);
    let mut z = start.max(0.0);
    for _ in 0..2 {
        let scaled = z.scaled_normal_tail();
        let miss = scaled.ln() - 0.5 * z * z - log;
        let mills = std::f64::consts::TAU.sqrt() * scaled;
        let step = miss * mills;
        z = (z + step / (1.0 + 0.5 * step * (1.0 / mills - z))).max(0.0);
    }
    z
}

/// ln Γ(x) for x > 0, by Lanczos' approximation (g = 7, nine terms), to about 14 digits.
pub fn log_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        // Γ(x) Γ(1 − x) = π / sin πx.
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - log_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let sum: f64 = TERMS[0] + (1..9).map(|k| TERMS[k] / (x + k as f64)).sum::<f64>();
    let t = x + 7.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// ψ(x) = d ln Γ(x)/dx for x > 0, to about 14 digits.
///
/// ψ(x) = ψ(x + 1) − 1/x up to x ≥ 10, and from there ln x − 1/(2x) − Σ_k B_2k/(2k x²ᵏ).
pub fn digamma(x: f64) -> f64 {
    /// B_2k/(2k), k = 1 … 7.
    const TERMS: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += 1.0 / x;
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = TERMS.iter().rev().fold(0.0, |sum, term| (sum + term) * square);
    x.ln() - 0.5 / x - series - below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_tails_match_tables() {
        for (z, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457_05),
            (1.959_963_984_540_054, 0.025),
            (2.5, 6.209_665_325_776_139e-3),
            (3.0, 1.349_898_031_630_094_6e-3),
            (6.0, 9.865_876_450_377e-10),
            (-1.0, 0.841_344_746_068_543),
        ] {
            assert!((normal_tail(z) / tail - 1.0).abs() < 1e-13, "{z}: {}", normal_tail(z));
        }
        // The series and the fraction meet.
        let (below, above) = (normal_tail(1.8 - 1e-15), normal_tail(1.8));
        assert!((below / above - 1.0).abs() < 3e-14, "{below} {above}");
    }

    #[test]
    fn tails_come_back_from_their_inverse() {
        for i in 0..=3800 {
            let z = f64::from(i) / 100.0;
            let back = normal_tail_inverse(normal_tail(z));
            // Near ½ the spacing of tails decides, far out that of numbers below the normal ones.
            let slack = if z < 37.5 { 1e-13 * z.max(1.0) } else { 1e-3 };
            assert!((back - z).abs() < slack, "{z}: {back}");
        }
        assert_eq!(normal_tail_inverse(0.5), 0.0);
        assert!((normal_tail_inverse(5e-324) - 38.46).abs() < 0.02);
    }

    #[test]
    fn log_gamma_matches_factorials_and_halves() {
        let mut factorial = 0.0;
        for n in 1..100 {
            assert!((log_gamma(f64::from(n)) - factorial).abs() < 1e-13 * factorial.max(1.0), "{n}");
            factorial += f64::from(n).ln();
        }
        assert!((log_gamma(0.5) - 0.5 * std::f64::consts::PI.ln()).abs() < 1e-14);
        assert!((log_gamma(1e-10) - 1e10_f64.ln()).abs() < 1e-9);
        for x in [0.1, 0.3, 0.77, 4.2, 33.3] {
            assert!(
                (log_gamma(x + 1.0) - log_gamma(x) - f64::ln(x)).abs() < 1e-13 * x.max(1.0) * 10.0,
                "{x}"
            );
        }
    }

    #[test]
    fn digamma_matches_known_values_and_the_slope_of_log_gamma() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        assert!((digamma(1.0) + EULER).abs() < 1e-14);
        assert!((digamma(0.5) + EULER + 4.0_f64.ln()).abs() < 1e-14);
        // Both sides of where the series begins.
        let harmonic: f64 = (1..10).map(|k| 1.0 / f64::from(k)).sum();
        assert!((digamma(10.0) - harmonic + EULER).abs() < 1e-14);
        assert!((digamma(9.999_999) - digamma(10.0) + 1.05e-7).abs() < 1e-9);
        for x in [0.3, 2.2, 7.5, 41.0, 900.0] {
            let step = 1e-4 * x;
            let slope = (log_gamma(x + step) - log_gamma(x - step)) / (2.0 * step);
            assert!((digamma(x) - slope).abs() < 1e-7 * digamma(x).abs(), "{x}");
        }
    }
}
