//! The distribution of z that a map carries every posterior to: a Gaussian, or one with heavy tails.

use rand::{Rng, RngExt};
use rand_distr::{ChiSquared, Distribution};
use serde::{Deserialize, Serialize};

use super::HALF_LOG_TWO_PI;
use crate::kernel::Real;
use crate::kernel::special::{digamma, log_gamma};

/// The family of a reference, as in settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ReferenceKind {
    /// The standard Gaussian N(0, I).
    #[default]
    Gaussian,
    /// N(0, I), mixed with a share of Student's t; share and degrees of freedom are learned.
    HeavyTailed,
}

impl ReferenceKind {
    /// The names of all, as in a settings file.
    pub const NAMES: [&'static str; 2] = ["gaussian", "heavy-tailed"];
}

/// The distribution of z.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reference {
    /// N(0, I).
    Gaussian,
    /// (1 − ε)·N(0, I) + ε·t_ν with the isotropic Student's t, of which a draw is √(ν/χ²_ν)·N(0, I).
    HeavyTailed {
        /// 0 < ε < 1, the share of Student's t.
        share: f64,
        /// ν > 0, its degrees of freedom.
        degrees: f64,
    },
}

impl Reference {
    /// Turns a row z ~ N(0, I) into one of this distribution; what it takes for that comes from `rng`.
    pub fn stretch(self, rng: &mut impl Rng, z: &mut [f64]) {
        if let Self::HeavyTailed { share, degrees } = self
            && rng.random::<f64>() < share
        {
            let square = ChiSquared::new(degrees).expect("ν > 0").sample(rng);
            let factor = (degrees / square).sqrt();
            z.iter_mut().for_each(|z| *z *= factor);
        }
    }

    /// −log of its density at points z of n entries.
    pub(crate) fn cost(self, n: usize) -> Cost {
        let n = n as f64;
        let tail = match self {
            Self::Gaussian => None,
            Self::HeavyTailed { share, degrees } => {
                let (half, all) = (0.5 * degrees, 0.5 * (degrees + n));
                Some(Tail {
                    share,
                    degrees,
                    order: all,
                    constant: n * HALF_LOG_TWO_PI + log_gamma(half) - log_gamma(all) + 0.5 * n * half.ln(),
                    slope: 0.5 * (digamma(half) - digamma(all) + n / degrees),
                })
            }
        };
        Cost { constant: n * HALF_LOG_TWO_PI, tail }
    }
}

/// −log of the density of a reference, ρ, as a function of z: that of the Gaussian,
///
/// γ = ½‖z‖² + (n/2) log 2π,
///
/// or, with that of Student's t, τ = (ν + n)/2·log(1 + ‖z‖²/ν) + log Γ(ν/2) − log Γ((ν + n)/2) + (n/2) log νπ,
///
/// −log((1 − ε)e^−γ + ε e^−τ).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// γ(0).
    constant: f64,
    tail: Option<Tail>,
}

/// The share of Student's t.
#[derive(Clone, Copy, Debug)]
struct Tail {
    share: f64,
    degrees: f64,
    /// (ν + n)/2.
    order: f64,
    /// τ(0).
    constant: f64,
    /// Its derivative in ν.
    slope: f64,
}

impl Tail {
    /// τ where ‖z‖² = `square`.
    fn cost(&self, square: f64) -> f64 {
        self.order * (square / self.degrees).ln_1p() + self.constant
    }

    /// log((1 − ε)e^−γ + ε e^−τ), and the part of the second term.
    fn mixed(&self, gaussian: f64, square: f64) -> (f64, f64) {
        let (a, b) = ((-self.share).ln_1p() - gaussian, self.share.ln() - self.cost(square));
        let most = a.max(b);
        if most == f64::NEG_INFINITY {
            return (most, 1.0);
        }
        let sum = most + ((a - most).exp() + (b - most).exp()).ln();
        (sum, (b - sum).exp())
    }
}

impl Cost {
    /// ρ(z).
    pub(crate) fn at<T: Real>(&self, z: &[T]) -> f64 {
        let square = square(z);
        let gaussian = 0.5 * square + self.constant;
        self.tail.map_or(gaussian, |tail| -tail.mixed(gaussian, square).0)
    }

    /// Puts ∂ρ/∂z in the place of z and returns ∂ρ/∂(log ε/(1 − ε)) and ∂ρ/∂ν; zeros for a Gaussian.
    ///
    /// With r the part of Student's t in the density at z,
    ///
    /// ∂ρ/∂z = (1 − r + r(ν + n)/(ν + ‖z‖²)) z,   ∂ρ/∂(log ε/(1 − ε)) = ε − r,   ∂ρ/∂ν = r ∂τ/∂ν,
    /// ∂τ/∂ν = ½ log(1 + ‖z‖²/ν) − (ν + n)/2·‖z‖²/(ν(ν + ‖z‖²)) + ∂τ(0)/∂ν.
    pub(crate) fn pull<T: Real>(&self, z: &mut [T]) -> [f64; 2] {
        let Some(tail) = self.tail else { return [0.0; 2] };
        let (square, degrees) = (square(z), tail.degrees);
        let (_, part) = tail.mixed(0.5 * square + self.constant, square);
        let pull = 2.0 * tail.order / (degrees + square);
        let factor = 1.0 - part + part * pull;
        z.iter_mut().for_each(|z| *z = T::from_f64(factor * z.to_f64()));
        let slope = 0.5 * ((square / degrees).ln_1p() - pull * square / degrees) + tail.slope;
        [tail.share - part, part * slope]
    }
}

/// ‖z‖² in double precision.
fn square<T: Real>(z: &[T]) -> f64 {
    z.iter().map(|z| z.to_f64() * z.to_f64()).sum()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    /// ∫ density over the line, and over the plane by rings, with r = tan(πs/2) for the heavy tail.
    #[test]
    fn densities_integrate_to_one() {
        let heavy = |share, degrees| Reference::HeavyTailed { share, degrees };
        for reference in [Reference::Gaussian, heavy(0.3, 1.3), heavy(0.9, 40.0)] {
            for n in [1, 2] {
                let (cost, count) = (reference.cost(n), 200_000);
                let ring = |index: usize| {
                    let angle = std::f64::consts::FRAC_PI_2 * (index as f64 + 0.5) / count as f64;
                    let (r, stretch) = (angle.tan(), 1.0 / angle.cos().powi(2));
                    let around = if n == 1 { 2.0 } else { std::f64::consts::TAU * r };
                    let mut z = vec![0.0; n];
                    z[0] = r;
                    around * stretch * (-cost.at(&z)).exp() * std::f64::consts::FRAC_PI_2 / count as f64
                };
                let mass: f64 = (0..count).map(ring).sum();
                assert!((mass - 1.0).abs() < 1e-6, "{reference:?} {n}: {mass}");
            }
        }
    }

    #[test]
    fn derivatives_are_those_of_the_cost() {
        let step = 1e-5;
        // logit ε and ν.
        let cost = |[logit, degrees]: [f64; 2]| {
            Reference::HeavyTailed { share: 1.0 / (1.0 + (-logit).exp()), degrees }.cost(3)
        };
        for (z, at) in [([0.7, -2.0, 0.4], [-1.2, 3.4]), ([30.0, -4.0, 9.0], [-5.0, 2.1])] {
            let mut pulled = z;
            let slopes = cost(at).pull(&mut pulled);
            for j in 0..2 {
                let moved = |by: f64| {
                    let mut at = at;
                    at[j] += by;
                    cost(at).at(&z)
                };
                let difference = (moved(step) - moved(-step)) / (2.0 * step);
                assert!((slopes[j] - difference).abs() < 1e-8, "{j}: {} {difference}", slopes[j]);
            }
            for j in 0..3 {
                let moved = |by: f64| {
                    let mut z = z;
                    z[j] += by;
                    cost(at).at(&z)
                };
                let difference = (moved(step) - moved(-step)) / (2.0 * step);
                assert!((pulled[j] - difference).abs() < 1e-8, "{j}");
            }
        }
        let mut z = [0.7, -2.0, 0.4];
        assert_eq!(Reference::Gaussian.cost(3).pull(&mut z), [0.0; 2]);
        assert_eq!(z, [0.7, -2.0, 0.4]);
    }

    /// Near the middle a small share costs little, and far out it saves nearly all.
    #[test]
    fn a_far_point_costs_a_logarithm_of_its_distance() {
        let (heavy, gaussian) =
            (Reference::HeavyTailed { share: 1e-3, degrees: 3.0 }.cost(6), Reference::Gaussian.cost(6));
        let near = [0.3, -1.1, 2.0, 0.0, 0.5, 0.1];
        assert!((heavy.at(&near) - gaussian.at(&near)).abs() < 1.01e-3);
        let far = [100.0, 50.0, 0.0, 0.0, 10.0, 0.0];
        assert!(gaussian.at(&far) > 6000.0 && heavy.at(&far) < 50.0, "{}", heavy.at(&far));
        assert!(heavy.at(&[1e18_f32; 6]).is_finite());
        assert_eq!(heavy.at(&[1e200; 6]), f64::INFINITY);
    }

    /// For n = 2 the parts beyond r are e^(−r²/2) and (1 + r²/ν)^(−ν/2).
    #[test]
    fn stretched_normals_have_the_distribution() {
        let (share, degrees, count) = (0.4, 2.5, 40_000);
        let reference = Reference::HeavyTailed { share, degrees };
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let radii: Vec<f64> = (0..count)
            .map(|_| {
                let mut z: [f64; 2] = [rng.sample(StandardNormal), rng.sample(StandardNormal)];
                reference.stretch(&mut rng, &mut z);
                z[0].hypot(z[1])
            })
            .collect();
        for r in [0.3_f64, 1.0, 2.0, 5.0, 20.0] {
            let part = radii.iter().filter(|&&radius| radius > r).count() as f64 / f64::from(count);
            let tail = (1.0 + r * r / degrees).powf(-0.5 * degrees);
            let exact = (1.0 - share) * (-0.5 * r * r).exp() + share * tail;
            let deviation = (exact * (1.0 - exact) / f64::from(count)).sqrt();
            assert!((part - exact).abs() < 4.0 * deviation, "{r}: {part} {exact}");
        }
        let mut z = [0.5, 0.25];
        Reference::Gaussian.stretch(&mut rng, &mut z);
        assert_eq!(z, [0.5, 0.25]);
    }
}
