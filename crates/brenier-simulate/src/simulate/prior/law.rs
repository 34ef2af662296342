//! Distributions of one parameter: checked, drawn from, evaluated in their coordinate.

use std::f64::consts::{LN_2, PI, TAU};

use rand::RngExt;
use rand_distr::{Distribution, Exp1, StandardNormal, StudentT};

use super::PriorBlock;
use super::part::{BELOW_ONE, log_gamma_variable};
use crate::kernel::special::{log_gamma, normal_tail};
use crate::simulate::Stream;
use crate::transform::Support;

/// Integers beyond this have no neighbours among the doubles.
const LARGEST_INTEGER: i64 = 1 << 53;
/// A truncation that leaves less of a normal distribution than this is refused.
const LEAST_PROBABILITY: f64 = 1e-290;

#[derive(Clone, Debug)]
pub(super) enum Law {
    Uniform {
        low: f64,
        high: f64,
    },
    /// Bounds of ln θ.
    LogUniform {
        low: f64,
        high: f64,
    },
    Normal {
        mean: f64,
        sd: f64,
    },
    /// Of ln θ.
    LogNormal {
        mean: f64,
        sd: f64,
    },
    HalfNormal {
        sd: f64,
    },
    /// Between bounds, which may be infinite; with the log of the probability between them.
    TruncatedNormal {
        mean: f64,
        sd: f64,
        low: f64,
        high: f64,
        log_probability: f64,
    },
    StudentT {
        df: f64,
        location: f64,
        scale: f64,
        t: StudentT<f64>,
        log_constant: f64,
    },
    Exponential {
        mean: f64,
    },
    Gamma {
        shape: f64,
        scale: f64,
        log_constant: f64,
    },
    Beta {
        alpha: f64,
        beta: f64,
        log_constant: f64,
    },
    Integers {
        low: i64,
        high: i64,
    },
}

impl Law {
    /// The law of a block of one parameter, with its name, or what is wrong with it; none for other blocks.
    pub(super) fn of(block: &PriorBlock) -> Option<(&String, Result<Law, String>)> {
        Some(match block {
            PriorBlock::Uniform { name, low, high } => (name, Law::uniform(*low, *high, false)),
            PriorBlock::LogUniform { name, low, high } => (name, Law::uniform(*low, *high, true)),
            PriorBlock::Normal { name, mean, sd } => {
                let checked = finite("mean", *mean).and_then(|()| positive("sd", *sd));
                (name, checked.map(|()| Law::Normal { mean: *mean, sd: *sd }))
            }
            PriorBlock::LogNormal { name, log_mean, log_sd } => {
                let checked = finite("log_mean", *log_mean).and_then(|()| positive("log_sd", *log_sd));
                (name, checked.map(|()| Law::LogNormal { mean: *log_mean, sd: *log_sd }))
            }
            PriorBlock::HalfNormal { name, sd } => {
                (name, positive("sd", *sd).map(|()| Law::HalfNormal { sd: *sd }))
            }
            PriorBlock::TruncatedNormal { name, mean, sd, low, high } => {
                (name, Law::truncated(*mean, *sd, *low, *high))
            }
            PriorBlock::StudentT { name, df, location, scale } => {
                (name, Law::student(*df, *location, *scale))
            }
            PriorBlock::Exponential { name, rate, mean } => {
                let mean = one_of_two(("mean", *mean), ("rate", *rate));
                (name, mean.map(|mean| Law::Exponential { mean }))
            }
            PriorBlock::Gamma { name, shape, scale, rate } => {
                let scale =
                    positive("shape", *shape).and_then(|()| one_of_two(("scale", *scale), ("rate", *rate)));
                let law = |scale: f64| Law::Gamma {
                    shape: *shape,
                    scale,
                    log_constant: -log_gamma(*shape) - shape * scale.ln(),
                };
                (name, scale.map(law))
            }
            PriorBlock::Beta { name, alpha, beta } => {
                let checked = positive("alpha", *alpha).and_then(|()| positive("beta", *beta));
                let log_constant = log_gamma(alpha + beta) - log_gamma(*alpha) - log_gamma(*beta);
                (name, checked.map(|()| Law::Beta { alpha: *alpha, beta: *beta, log_constant }))
            }
            PriorBlock::IntegerUniform { name, low, high } => (name, Law::integers(*low, *high)),
            PriorBlock::MultivariateNormal { .. }
            | PriorBlock::Dirichlet { .. }
            | PriorBlock::Table { .. } => return None,
        })
    }

    fn uniform(low: f64, high: f64, log: bool) -> Result<Law, String> {
        finite("low", low)?;
        finite("high", high)?;
        if low >= high {
            return Err(format!("low = {low} must lie below high = {high}"));
        }
        if log && low <= 0.0 {
            return Err(format!("low = {low} must be positive for a log-uniform prior"));
        }
        if !(high - low).is_finite() {
            return Err("the bounds are too far apart".into());
        }
        Ok(match log {
            true => Law::LogUniform { low: low.ln(), high: high.ln() },
            false => Law::Uniform { low, high },
        })
    }

    fn truncated(mean: f64, sd: f64, low: Option<f64>, high: Option<f64>) -> Result<Law, String> {
        finite("mean", mean)?;
        positive("sd", sd)?;
        low.map_or(Ok(()), |low| finite("low", low))?;
        high.map_or(Ok(()), |high| finite("high", high))?;
        if low.is_none() && high.is_none() {
            return Err("a truncated-normal prior needs low, high or both".into());
        }
        let standard = |bound: f64| (bound - mean) / sd;
        let a = low.map_or(f64::NEG_INFINITY, standard);
        let b = high.map_or(f64::INFINITY, standard);
        if a >= b {
            let text = |bound: Option<f64>| bound.map_or("none".to_owned(), |bound| bound.to_string());
            return Err(format!("low = {} must lie below high = {}", text(low), text(high)));
        }
        // By the tails on the side of the bounds, so that no digits cancel; by the midpoint where they nearly meet.
        let probability = match (a, b) {
            _ if (b - a) * a.abs().max(b.abs()).max(1.0) < 1e-5 => {
                (-0.125 * (a + b) * (a + b)).exp() / TAU.sqrt() * (b - a)
            }
            _ if a >= 0.0 => normal_tail(a) - normal_tail(b),
            _ if b <= 0.0 => normal_tail(-b) - normal_tail(-a),
            _ => 1.0 - normal_tail(-a) - normal_tail(b),
        };
        if !(probability > LEAST_PROBABILITY) {
            return Err(
                "the bounds lie so far from the mean that nothing of the normal distribution is left".into(),
            );
        }
        let (low, high) = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
        Ok(Law::TruncatedNormal { mean, sd, low, high, log_probability: probability.ln() })
    }

    fn student(df: f64, location: f64, scale: f64) -> Result<Law, String> {
        positive("df", df)?;
        finite("location", location)?;
        positive("scale", scale)?;
        let t = StudentT::new(df).map_err(|error| format!("df = {df}: {error}"))?;
        let log_constant =
            log_gamma(0.5 * (df + 1.0)) - log_gamma(0.5 * df) - 0.5 * (df * PI).ln() - scale.ln();
        Ok(Law::StudentT { df, location, scale, t, log_constant })
    }

    fn integers(low: i64, high: i64) -> Result<Law, String> {
        if low > high {
            return Err(format!("low = {low} must not lie above high = {high}"));
        }
        if low < -LARGEST_INTEGER / 4 || high > LARGEST_INTEGER / 4 {
            return Err(format!("low = {low} and high = {high} must lie within ±2^51"));
        }
        Ok(Law::Integers { low, high })
    }

    /// Whether the coordinate is ln θ.
    pub(super) fn is_log(&self) -> bool {
        matches!(self, Law::LogUniform { .. } | Law::LogNormal { .. } | Law::Gamma { .. })
    }

    /// θ at the coordinate u.
    pub(super) fn parameter(&self, u: f64) -> f64 {
        match self {
            Law::Integers { low, high } => u.round().clamp(*low as f64, *high as f64),
            _ if self.is_log() => u.exp(),
            _ => u,
        }
    }

    pub(super) fn draw(&self, rng: &mut Stream) -> f64 {
        match *self {
            Law::Uniform { low, high } => low + (high - low) * rng.random::<f64>(),
            Law::LogUniform { low, high } => (low + (high - low) * rng.random::<f64>()).exp(),
            Law::Normal { mean, sd } => mean + sd * rng.sample::<f64, _>(StandardNormal),
            Law::LogNormal { mean, sd } => (mean + sd * rng.sample::<f64, _>(StandardNormal)).exp(),
            Law::HalfNormal { sd } => {
                (sd * rng.sample::<f64, _>(StandardNormal)).abs().max(f64::MIN_POSITIVE)
            }
            Law::TruncatedNormal { mean, sd, low, high, .. } => {
                let z = truncated_normal(rng, (low - mean) / sd, (high - mean) / sd);
                (mean + sd * z).clamp(low, high)
            }
            Law::StudentT { location, scale, t, .. } => location + scale * t.sample(rng),
            Law::Exponential { mean } => (mean * rng.sample::<f64, _>(Exp1)).max(f64::MIN_POSITIVE),
            Law::Gamma { shape, scale, .. } => {
                (log_gamma_variable(rng, shape) + scale.ln()).exp().max(f64::MIN_POSITIVE)
            }
            Law::Beta { alpha, beta, .. } => {
                // X/(X + Y) of gamma variables, from their logarithms.
                let (x, y) = (log_gamma_variable(rng, alpha), log_gamma_variable(rng, beta));
                (1.0 / (1.0 + (y - x).exp())).clamp(f64::MIN_POSITIVE, BELOW_ONE)
            }
            Law::Integers { low, high } => {
                let count = (high - low + 1) as f64;
                low as f64 + (rng.random::<f64>() * count).floor().min(count - 1.0)
            }
        }
    }

    /// Log density of the coordinate u; −∞ outside the bounds.
    pub(super) fn log_density(&self, u: f64) -> f64 {
        let half_log_tau = 0.5 * TAU.ln();
        let normal = |z: f64, sd: f64| -0.5 * z * z - sd.ln() - half_log_tau;
        let inside = |inside: bool, density: f64| if inside { density } else { f64::NEG_INFINITY };
        match *self {
            Law::Uniform { low, high } | Law::LogUniform { low, high } => {
                inside((low..=high).contains(&u), -(high - low).ln())
            }
            Law::Normal { mean, sd } | Law::LogNormal { mean, sd } => normal((u - mean) / sd, sd),
            Law::HalfNormal { sd } => inside(u > 0.0, normal(u / sd, sd) + LN_2),
            Law::TruncatedNormal { mean, sd, low, high, log_probability } => {
                inside((low..=high).contains(&u), normal((u - mean) / sd, sd) - log_probability)
            }
            Law::StudentT { df, location, scale, log_constant, .. } => {
                let z = (u - location) / scale;
                log_constant - 0.5 * (df + 1.0) * (z * z / df).ln_1p()
            }
            Law::Exponential { mean } => inside(u > 0.0, -u / mean - mean.ln()),
            // Of ln θ: the factor θ of the change of variable is in the power.
            Law::Gamma { shape, scale, log_constant } => log_constant + shape * u - u.exp() / scale,
            Law::Beta { alpha, beta, log_constant } => inside(
                u > 0.0 && u < 1.0,
                log_constant + (alpha - 1.0) * u.ln() + (beta - 1.0) * (-u).ln_1p(),
            ),
            // Every integer owns the real numbers that are rounded to it.
            Law::Integers { low, high } => {
                inside(u >= low as f64 - 0.5 && u <= high as f64 + 0.5, -((high - low + 1) as f64).ln())
            }
        }
    }

    /// The support of a map that never draws outside the prior.
    pub(super) fn support(&self) -> Support {
        match *self {
            Law::Uniform { low, high } => Support::Interval { low, high },
            Law::LogUniform { low, high } => Support::LogInterval { low: low.exp(), high: high.exp() },
            Law::LogNormal { .. } | Law::HalfNormal { .. } | Law::Exponential { .. } | Law::Gamma { .. } => {
                Support::Log
            }
            Law::Beta { .. } => Support::Interval { low: 0.0, high: 1.0 },
            Law::TruncatedNormal { low, high, .. } => match (low, high) {
                _ if low.is_finite() && high.is_finite() => Support::Interval { low, high },
                _ if low == 0.0 => Support::Log,
                _ => Support::Real,
            },
            Law::Integers { low, high } => {
                Support::Interval { low: low as f64 - 0.5, high: high as f64 + 0.5 }
            }
            Law::Normal { .. } | Law::StudentT { .. } => Support::Real,
        }
    }
}

fn finite(key: &str, value: f64) -> Result<(), String> {
    if value.is_finite() { Ok(()) } else { Err(format!("{key} = {value} must be finite")) }
}

fn positive(key: &str, value: f64) -> Result<(), String> {
    finite(key, value)?;
    if value > 0.0 { Ok(()) } else { Err(format!("{key} = {value} must be positive")) }
}

/// A scale that is given itself or by its inverse, but not by both.
fn one_of_two(itself: (&str, Option<f64>), inverse: (&str, Option<f64>)) -> Result<f64, String> {
    match (itself.1, inverse.1) {
        (Some(value), None) => positive(itself.0, value).map(|()| value),
        (None, Some(value)) => {
            positive(inverse.0, value)?;
            let value = 1.0 / value;
            if value.is_finite() { Ok(value) } else { Err(format!("{} is too small", inverse.0)) }
        }
        _ => Err(format!("give either {} or {}", itself.0, inverse.0)),
    }
}

/// A standard normal variable between a and b (Robert 1995): plain rejection where the bounds hold a good part of
/// the distribution, an exponential proposal in a tail, a uniform one between bounds that are close together.
fn truncated_normal(rng: &mut Stream, a: f64, b: f64) -> f64 {
    if b < -a {
        // The mirror image has the lower bound nearer to the centre.
        return -truncated_normal(rng, -b, -a);
    }
    // Now a + b ≥ 0, so that what is likeliest lies at max(a, 0).
    let peak = a.max(0.0);
    // The exponential proposal of the best rate for a tail that begins at a > 0.
    let rate = 0.5 * (a + (a * a + 4.0).sqrt());
    loop {
        let (z, log_accept) = if b - peak < 1.0 / rate.max(1.0) && b - a < 2.0 {
            let z = a + (b - a) * rng.random::<f64>();
            (z, 0.5 * (peak * peak - z * z))
        } else if a > 0.4 {
            let z = a + rng.sample::<f64, _>(Exp1) / rate;
            (z, -0.5 * (z - rate) * (z - rate))
        } else {
            (rng.sample::<f64, _>(StandardNormal), 0.0)
        };
        let chance: f64 = rng.random();
        if z >= a && z <= b && chance <= log_accept.exp() {
            return z;
        }
    }
}
