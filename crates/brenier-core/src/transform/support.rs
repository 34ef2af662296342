//! Where a column's values may lie, and the smooth bijection from there to the whole line.
//!
//! With W = high − low or ln(high/low), a link ℓ from (0, 1) to the line, F = ℓ⁻¹ and f = F':
//!
//! | support | u(x) | log du/dx as a function of u | its derivative |
//! |---|---|---|---|
//! | real | x | 0 | 0 |
//! | log | ln x | −u | −1 |
//! | interval | ℓ((x − low)/W) | −ln W − ln f(u) | −(ln f)'(u) |
//! | log-interval | ℓ(ln(x/low)/W) | −ln W − ln f(u) − ln x(u) | −(ln f)'(u) − W f(u) |
//!
//! **The link.** New fits have one that is straight inside and bends where the last tenth before each bound begins: with Φ the
//! standard normal distribution, τ = 1/5, s = 2τ/√(2π) and b = (1 − τ)/s, the part of (0, 1) between u > 0 and its nearer end is
//!
//! ½ − su/2 for u ≤ b,   τΦ(b − u) beyond,   so that f = s/2 and (s/2) exp(−(u − b)²/2).
//!
//! Inside, a posterior that only moves with y, as for a parameter of place under a flat prior, keeps its shape, and its map the same
//! shape everywhere. At the bound, a density that behaves like a power p^(a−1) of the distance to it, a = 1 where it is cut off there,
//! has in u the tail exp(−au²/2) of a Gaussian. Maps to a Gaussian are affine far out, so such tails cost them nothing. Some model
//! files have ℓ = Φ⁻¹, which has these tails and bends everywhere: −ln f = u²/2 + ½ ln 2π. Older ones name no link and have
//! logits, whose tail exp(−a|u|) no affine map makes Gaussian: −ln f = |u| + 2 ln(1 + exp(−|u|)), its derivative tanh(u/2).
//!
//! All is measured from the nearer bound: no difference of nearly equal numbers, however far in the tail.

use super::exact;
use crate::kernel::{Real, special};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The values a column may take.
///
/// Written as text everywhere (command line, TOML, model file): `real`, `log`, `interval(0,1)`,
/// `log-interval(1e-3,10)`. Reading checks the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Support {
    /// Any finite number: u = x.
    #[default]
    Real,
    /// Positive numbers: u = ln x.
    Log,
    /// low < x < high: u = ℓ((x − low)/(high − low)) with a link ℓ that is straight inside and has Gaussian tails.
    Interval {
        /// The lower bound, not itself a value.
        low: f64,
        /// The upper bound, not itself a value.
        high: f64,
    },
    /// 0 < low < x < high, even on the log scale: u = ℓ(ln(x/low)/ln(high/low)).
    LogInterval {
        /// The lower bound, positive, not itself a value.
        low: f64,
        /// The upper bound, not itself a value.
        high: f64,
    },
}

/// The bijection from (0, 1) to the whole line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Link {
    /// logit, of model files that name none.
    #[default]
    Logit,
    /// Φ⁻¹.
    Probit,
    /// Straight inside with Gaussian tails, of all new fits.
    Straight,
}

/// τ: the parts of (0, 1) where the straight link bends are τ/2 at each end.
const BENT: f64 = 0.2;
/// s = 2τ/√(2π).
const SLOPE: f64 = 2.0 * BENT * 0.398_942_280_401_432_7;
/// b = (1 − τ)/s, where it begins to bend.
const BEND: f64 = (1.0 - BENT) / SLOPE;

/// Beyond, every tail is 0 in double precision; squares stay finite.
const FAR: f64 = 1e100;

impl Link {
    /// Whether files need not name it.
    pub(super) fn is_logit(&self) -> bool {
        *self == Self::Logit
    }

    /// u of the point whose distances from both ends have the ratio `below` : `above`, their sum being `width`.
    fn forward(self, below: f64, above: f64, width: f64) -> f64 {
        match self {
            Self::Logit => log_of_ratio(below, above),
            Self::Probit => {
                let tail = (below.min(above) / width).max(f64::from_bits(1));
                let u = special::normal_tail_inverse(tail);
                if below < above { -u } else { u }
            }
            Self::Straight => {
                let tail = (below.min(above) / width).max(f64::from_bits(1));
                let u = match tail < 0.5 * BENT {
                    // Below the least number there is nothing that a division could give.
                    true => BEND + special::normal_tail_inverse((tail / BENT).max(f64::from_bits(1))),
                    false => (1.0 - 2.0 * tail) / SLOPE,
                };
                if below < above { -u } else { u }
            }
        }
    }

    /// The part of (0, 1) between u and its nearer end, to full relative accuracy.
    fn tail(self, u: f64) -> f64 {
        match self {
            Self::Logit => {
                let e = (-u.abs()).exp();
                e / (1.0 + e)
            }
            Self::Probit => {
                let z = u.abs().min(FAR);
                (-0.5 * z * z).exp() * z.scaled_normal_tail()
            }
            Self::Straight => match past_bend(u) {
                0.0 => 0.5 - 0.5 * SLOPE * u.abs(),
                z => BENT * ((-0.5 * z * z).exp() * z.scaled_normal_tail()),
            },
        }
    }

    /// −ln of the density dp/du.
    fn log_steepness(self, u: f64) -> f64 {
        match self {
            Self::Logit => u.abs() + 2.0 * (-u.abs()).exp().ln_1p(),
            Self::Probit => {
                let z = u.clamp(-FAR, FAR);
                0.5 * z * z + crate::map::HALF_LOG_TWO_PI
            }
            Self::Straight => {
                let z = past_bend(u);
                0.5 * z * z - (0.5 * SLOPE).ln()
            }
        }
    }

    /// d/du of [`log_steepness`](Self::log_steepness).
    fn steepness_slope(self, u: f64) -> f64 {
        match self {
            Self::Logit => (0.5 * u).tanh(),
            Self::Probit => u.clamp(-FAR, FAR),
            Self::Straight => past_bend(u).copysign(u),
        }
    }

    /// dp/du.
    fn density(self, u: f64) -> f64 {
        (-self.log_steepness(u)).exp()
    }
}

/// How far |u| lies beyond the bend of the straight link; 0 before it, NaN for NaN.
fn past_bend(u: f64) -> f64 {
    let z = u.clamp(-FAR, FAR).abs() - BEND;
    if z < 0.0 { 0.0 } else { z }
}

/// ln(upper/lower) for 0 < lower ≤ upper, accurate also when the two nearly agree.
fn log_ratio(upper: f64, lower: f64) -> f64 {
    let excess = (upper - lower) / lower;
    if excess.is_finite() { excess.ln_1p() } else { upper.ln() - lower.ln() }
}

/// ln(a/b) for positive a, b, also where a/b leaves the range of normal numbers.
fn log_of_ratio(a: f64, b: f64) -> f64 {
    let ratio = a / b;
    if ratio.is_normal() { ratio.ln() } else { a.ln() - b.ln() }
}

/// x·eʸ where eʸ alone may leave the range of numbers and x·eʸ does not.
fn times_exp(x: f64, y: f64) -> f64 {
    if y.abs() < 1.0 {
        return x + x * y.exp_m1();
    }
    let factor = y.exp();
    if factor.is_normal() {
        x * factor
    } else {
        let root = (0.5 * y).exp();
        (x * root) * root
    }
}

impl Support {
    /// Checks the bounds: finite, low < high with a number between them, positive for a log scale.
    pub fn validate(&self) -> Result<()> {
        let (low, high) = match *self {
            Self::Real | Self::Log => return Ok(()),
            Self::Interval { low, high } | Self::LogInterval { low, high } => (low, high),
        };
        let refuse = |problem: &str| Err(Error::setting("support", format!("{self}: {problem}")));
        if !(low.is_finite() && high.is_finite()) {
            return refuse("the bounds must be finite; use log for positive values without upper bound");
        }
        if low >= high {
            return refuse("the lower bound must lie below the upper one");
        }
        if matches!(self, Self::LogInterval { .. }) && low <= 0.0 {
            return refuse("the bounds must be positive; use interval(low,high) for bounds that are not");
        }
        if low.next_up() >= high {
            return refuse("there is no number between the bounds; widen them");
        }
        if !(high - low).is_finite() {
            return refuse("the bounds are too far apart; use real");
        }
        Ok(())
    }

    /// The link of new fits; columns without bounds need none.
    pub(super) fn link(&self) -> Link {
        match self {
            Self::Real | Self::Log => Link::default(),
            Self::Interval { .. } | Self::LogInterval { .. } => Link::Straight,
        }
    }

    /// u(x), or nothing when x lies outside the support.
    pub(super) fn forward(&self, x: f64, link: Link) -> Option<f64> {
        match *self {
            Self::Real => x.is_finite().then_some(x),
            Self::Log => (x > 0.0 && x.is_finite()).then(|| x.ln()),
            Self::Interval { low, high } => {
                (low < x && x < high).then(|| link.forward(x - low, high - x, high - low))
            }
            Self::LogInterval { low, high } => (low < x && x < high)
                .then(|| link.forward(log_ratio(x, low), log_ratio(high, x), log_ratio(high, low))),
        }
    }

    /// x(u), strictly inside the support and finite for every u, infinite ones included; NaN stays NaN.
    pub(super) fn inverse(&self, u: f64, link: Link) -> f64 {
        let tail = || if u.is_nan() { u } else { link.tail(u) };
        match *self {
            Self::Real => u.clamp(-f64::MAX, f64::MAX),
            Self::Log => u.exp().clamp(0.0_f64.next_up(), f64::MAX),
            Self::Interval { low, high } => {
                let step = (high - low) * tail();
                // Measured from the nearer bound, so that no digits of the tail are lost.
                let x = if u <= 0.0 { low + step } else { high - step };
                x.clamp(low.next_up(), high.next_down())
            }
            Self::LogInterval { low, high } => {
                let step = log_ratio(high, low) * tail();
                let x = if u <= 0.0 { times_exp(low, step) } else { times_exp(high, -step) };
                x.clamp(low.next_up(), high.next_down())
            }
        }
    }

    /// log du/dx at x(u).
    pub(super) fn log_det(&self, u: f64, link: Link) -> f64 {
        match *self {
            Self::Real => 0.0,
            Self::Log => -u,
            Self::Interval { low, high } => link.log_steepness(u) - (high - low).ln(),
            Self::LogInterval { low, high } => {
                let width = log_ratio(high, low);
                let step = width * link.tail(u);
                let log_x = if u <= 0.0 { low.ln() + step } else { high.ln() - step };
                link.log_steepness(u) - width.ln() - log_x
            }
        }
    }

    /// d/du of [`log_det`](Self::log_det).
    pub(super) fn log_det_slope(&self, u: f64, link: Link) -> f64 {
        match *self {
            Self::Real => 0.0,
            Self::Log => -1.0,
            Self::Interval { .. } => link.steepness_slope(u),
            Self::LogInterval { low, high } => {
                link.steepness_slope(u) - log_ratio(high, low) * link.density(u)
            }
        }
    }

    /// Whether x is a bound, where there is no density.
    pub(super) fn is_bound(&self, x: f64) -> bool {
        match *self {
            Self::Real => false,
            Self::Log => x == 0.0,
            Self::Interval { low, high } | Self::LogInterval { low, high } => x == low || x == high,
        }
    }

    /// The bound that x, which lies inside, has reached as nearly as the digits of a number can tell: within 2⁻⁵² of the
    /// interval's width or of the bound itself; for positive numbers without bounds, where numbers begin and end.
    pub(crate) fn reached(&self, x: f64) -> Option<String> {
        let near = |bound: f64, width: f64| (x - bound).abs() <= f64::EPSILON * width.max(bound.abs());
        let (low, high, width) = match *self {
            Self::Real => return None,
            Self::Log if x < f64::MIN_POSITIVE => return Some("0".to_owned()),
            Self::Log => return (x >= f64::MAX).then(|| "infinity".to_owned()),
            Self::Interval { low, high } => (low, high, high - low),
            Self::LogInterval { low, high } => (low, high, 0.0),
        };
        [low, high].into_iter().find(|&bound| near(bound, width)).map(exact::text)
    }

    /// Why [`forward`](Self::forward) refused x, and what to do about it.
    pub(super) fn refusal(&self, x: f64) -> String {
        if x.is_nan() {
            return "is not a number: remove the row or fill in the value".to_owned();
        }
        match *self {
            Self::Real => return "is not finite: remove the row".to_owned(),
            Self::Log => {
                return "is not a finite positive number, as the support log demands: correct it, or declare \
                        another support"
                    .to_owned();
            }
            Self::Interval { .. } | Self::LogInterval { .. } => {}
        }
        if self.is_bound(x) {
            format!(
                "lies exactly on a bound of {self}, where the density is not defined: widen the bounds slightly"
            )
        } else {
            format!("lies outside {self}: correct it, or widen the bounds")
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Real => f.write_str("real"),
            Self::Log => f.write_str("log"),
            Self::Interval { low, high } => write!(f, "interval({},{})", exact::text(low), exact::text(high)),
            Self::LogInterval { low, high } => {
                write!(f, "log-interval({},{})", exact::text(low), exact::text(high))
            }
        }
    }
}

impl FromStr for Support {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |problem: String| Error::setting("support", problem);
        let unknown = || {
            refuse(format!("{text:?} is not one of real, log, interval(low,high), log-interval(low,high)"))
        };
        let trimmed = text.trim();
        let (kind, bounds) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((kind, rest)) => (kind.trim_end(), Some(rest.strip_suffix(')').ok_or_else(unknown)?)),
        };
        let support = match (kind, bounds) {
            ("real", None) => Self::Real,
            ("log", None) => Self::Log,
            ("interval" | "log-interval", None) => {
                return Err(refuse(format!("{kind} needs its two bounds, as in {kind}(0.5,2)")));
            }
            ("interval" | "log-interval", Some(bounds)) => {
                let number = |text: &str| {
                    text.trim()
                        .parse::<f64>()
                        .map_err(|_| refuse(format!("{trimmed}: the bound {text:?} is not a number")))
                };
                let (low, high) = bounds.split_once(',').ok_or_else(|| {
                    refuse(format!("{trimmed}: give two bounds with a comma between, as in {kind}(0.5,2)"))
                })?;
                let (low, high) = (number(low)?, number(high)?);
                if kind == "interval" {
                    Self::Interval { low, high }
                } else {
                    Self::LogInterval { low, high }
                }
            }
            _ => return Err(unknown()),
        };
        support.validate()?;
        Ok(support)
    }
}

impl TryFrom<String> for Support {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Support> for String {
    fn from(support: Support) -> Self {
        support.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INTERVAL: Support = Support::Interval { low: -2.0, high: 5.0 };
    const LOG_INTERVAL: Support = Support::LogInterval { low: 1e-3, high: 10.0 };

    fn bounds(support: Support) -> (f64, f64) {
        match support {
            Support::Real => (f64::NEG_INFINITY, f64::INFINITY),
            Support::Log => (0.0, f64::INFINITY),
            Support::Interval { low, high } | Support::LogInterval { low, high } => (low, high),
        }
    }

    /// Supports at the edges of the number range: one number inside, subnormal width, enormous width.
    fn hard_supports() -> Vec<Support> {
        let one = 1.0_f64;
        vec![
            Support::Real,
            Support::Log,
            INTERVAL,
            LOG_INTERVAL,
            Support::Interval { low: 0.0, high: 1e-323 },
            Support::Interval { low: -0.0, high: 5e-320 },
            Support::Interval { low: one, high: one.next_up().next_up() },
            Support::Interval { low: -8e307, high: 8e307 },
            Support::Interval { low: 0.0, high: f64::MAX },
            Support::Interval { low: 1e16, high: 1e16 + 6.0 },
            Support::LogInterval { low: one, high: one.next_up().next_up() },
            Support::LogInterval { low: 5e-324, high: f64::MAX },
            Support::LogInterval { low: 5e-324, high: 5e-320 },
            Support::LogInterval { low: 1e-300, high: 1e300 },
        ]
    }

    const LINKS: [Link; 3] = [Link::Logit, Link::Probit, Link::Straight];

    #[test]
    fn inverse_stays_inside_whatever_the_input() {
        let inputs =
            [0.0, 1e-300, 1.0, 36.0, 37.0, 40.0, 709.0, 745.0, 746.0, 1e3, 1e16, 1e308, f64::INFINITY];
        for (support, link) in
            hard_supports().into_iter().flat_map(|support| LINKS.map(|link| (support, link)))
        {
            support.validate().expect("valid");
            let (low, high) = bounds(support);
            for u in inputs.into_iter().flat_map(|u| [u, -u]) {
                let x = support.inverse(u, link);
                assert!(low < x && x < high && x.is_finite(), "{support} at {u}: {x}");
                let back = support.forward(x, link).expect("inside");
                assert!(back.is_finite(), "{support} at {u}: forward gives {back}");
                assert!(support.log_det_slope(u, link).is_finite());
            }
            assert!(support.inverse(f64::NAN, link).is_nan());
        }
    }

    #[test]
    fn inverse_is_monotone_and_accurate_over_an_enormous_range() {
        let support = Support::LogInterval { low: 5e-324, high: f64::MAX };
        for link in LINKS {
            let mut last = 0.0;
            for step in -500..500 {
                let u = f64::from(step) / 100.0;
                let x = support.inverse(u, link);
                assert!(x >= last, "at {u}");
                last = x;
                if x.is_normal() {
                    let back = support.forward(x, link).expect("inside");
                    assert!((back - u).abs() < 1e-10, "{link:?} at {u}: {back}");
                }
            }
        }
    }

    #[test]
    fn tails_keep_their_digits() {
        // x is 1e-200 above the lower bound 0: logit = ln(1e-200) to full accuracy.
        let unit = Support::Interval { low: 0.0, high: 1.0 };
        let u = unit.forward(1e-200, Link::Logit).expect("inside");
        assert!((u - 1e-200_f64.ln()).abs() < 1e-12);
        assert!((unit.inverse(u, Link::Logit) / 1e-200 - 1.0).abs() < 1e-12);
        // log du/dx = ln(1/(x(1−x))) = 200 ln 10.
        assert!((unit.log_det(u, Link::Logit) - 200.0 * 10.0_f64.ln()).abs() < 1e-12);
        assert_eq!(unit.log_det(1e4, Link::Logit), 1e4);
        // Φ(−30.2056…) = 1e-200, and −ln φ = u²/2 + ½ ln 2π.
        let u = unit.forward(1e-200, Link::Probit).expect("inside");
        assert!((u + 30.205_594_179_579_64).abs() < 1e-10, "{u}");
        assert!((unit.inverse(u, Link::Probit) / 1e-200 - 1.0).abs() < 1e-11);
        assert!((unit.log_det(u, Link::Probit) - (0.5 * u * u + 0.918_938_533_204_672_7)).abs() < 1e-12);
        // 1e-200 = τΦ(b − |u|), and inside the link is a straight line.
        let u = unit.forward(1e-200, Link::Straight).expect("inside");
        assert!((unit.inverse(u, Link::Straight) / 1e-200 - 1.0).abs() < 1e-11);
        let (low, middle) = (unit.forward(0.2, Link::Straight), unit.forward(0.5, Link::Straight));
        assert!((low.expect("inside") + 0.6 / SLOPE).abs() < 1e-14 && middle == Some(0.0));
    }

    proptest! {
        #[test]
        fn round_trip_and_log_det(u in -30.0..30.0_f64, which in 0..4_usize, link in 0..3_usize) {
            let support = [Support::Real, Support::Log, INTERVAL, LOG_INTERVAL][which];
            let link = LINKS[link];
            // Gaussian tails reach the last number inside the bounds much sooner.
            let u = match link {
                Link::Probit if which > 1 => 0.2 * u,
                Link::Straight if which > 1 => 0.35 * u,
                _ => u,
            };
            let x = support.inverse(u, link);
            // Close to the bound −2 or 5 the spacing of x limits what can come back.
            let (low, high) = bounds(support);
            let distance = (x - low).min(high - x);
            let slack = 1e-12 * (1.0 + u.abs()) + 4.0 * f64::EPSILON * x.abs() / distance;
            let back = support.forward(x, link).expect("inside");
            prop_assert!((back - u).abs() <= slack, "{support}: {u} came back as {back}");
        }

        #[test]
        fn log_det_agrees_with_differences(u in -4.0..4.0_f64, which in 0..4_usize, link in 0..3_usize) {
            let support = [Support::Real, Support::Log, INTERVAL, LOG_INTERVAL][which];
            let (link, h) = (LINKS[link], 1e-5);
            // Beyond the bend too; at the bend itself the slope has a kink.
            let u = if link == Link::Straight { 2.0 * u } else { u };
            prop_assume!((u.abs() - BEND).abs() > 2.0 * h);
            // log du/dx = −log dx/du.
            let dx = (support.inverse(u + h, link) - support.inverse(u - h, link)) / (2.0 * h);
            prop_assert!((support.log_det(u, link) + dx.ln()).abs() < 1e-6, "{support} at {u}");
            let slope = (support.log_det(u + h, link) - support.log_det(u - h, link)) / (2.0 * h);
            prop_assert!((support.log_det_slope(u, link) - slope).abs() < 1e-7, "{support} at {u}");
        }

        #[test]
        fn text_round_trip_keeps_every_bit(a: u64, b: u64) {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            let support = Support::Interval { low: a.min(b), high: a.max(b) };
            prop_assume!(support.validate().is_ok());
            let json = serde_json::to_string(&support).expect("writes");
            let back: Support = serde_json::from_str(&json).expect("reads");
            let (low, high) = bounds(support);
            let (low_back, high_back) = bounds(back);
            prop_assert_eq!((low.to_bits(), high.to_bits()), (low_back.to_bits(), high_back.to_bits()));
        }

        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = text.parse::<Support>();
        }
    }

    #[test]
    fn text_forms() {
        for text in ["real", "log", "interval(0,1)", "interval(-1e-7,0.5)", "log-interval(0.001,10)"] {
            assert_eq!(text.parse::<Support>().expect(text).to_string(), text);
        }
        assert_eq!(" log-interval( 1e-3 , 10 ) ".parse::<Support>().expect("spaces"), LOG_INTERVAL);
        for (text, says) in [
            ("interval(1,0)", "below"),
            ("interval(1,1)", "below"),
            ("interval(0,inf)", "finite"),
            ("interval(nan,1)", "finite"),
            ("interval(0,x)", "not a number"),
            ("interval(0)", "comma"),
            ("interval", "needs its two bounds"),
            ("interval(0,1", "not one of"),
            ("interval(0,5e-324)", "no number between"),
            ("interval(-1e308,1e308)", "too far apart"),
            ("log-interval(0,1)", "positive"),
            ("logit", "not one of"),
            ("log(1,2)", "not one of"),
            ("", "not one of"),
        ] {
            let message = text.parse::<Support>().expect_err(text).to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
