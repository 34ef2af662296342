//! Weighted particles: moments, effective number, resampling, and the kernel that moves and weighs them.

use rand::RngExt;
use rayon::prelude::*;

use crate::data::Table;
use crate::kernel::spd::{self, SpdScratch};
use crate::simulate::{Prior, Stream, correlated};
use crate::{Error, Result};

/// Weighted particles, in the prior's coordinates.
#[derive(Clone, Debug, PartialEq)]
pub struct Population {
    /// Coordinates per particle.
    pub dim: usize,
    /// Coordinates, particle by particle; see [`Prior::to_coordinates`](crate::simulate::Prior::to_coordinates).
    pub coordinates: Vec<f64>,
    /// Weights; they sum to 1.
    pub weights: Vec<f64>,
    /// Distances of the particles' simulations from the observation.
    pub distances: Vec<f64>,
}

impl Population {
    /// How many particles there are.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty()
    }

    /// Effective number of particles, 1/Σw².
    pub fn effective(&self) -> f64 {
        1.0 / self.weights.iter().map(|w| w * w).sum::<f64>()
    }

    /// Weighted mean of each coordinate.
    pub fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.dim];
        for (u, w) in self.coordinates.chunks_exact(self.dim).zip(&self.weights) {
            mean.iter_mut().zip(u).for_each(|(mean, u)| *mean += w * u);
        }
        mean
    }

    /// Weighted covariance Σ w (u − ū)(u − ū)ᵀ, column by column.
    pub fn covariance(&self) -> Vec<f64> {
        let (n, mean) = (self.dim, self.mean());
        let mut covariance = vec![0.0; n * n];
        for (u, w) in self.coordinates.chunks_exact(n).zip(&self.weights) {
            for j in 0..n {
                for i in 0..n {
                    covariance[i + j * n] += w * (u[i] - mean[i]) * (u[j] - mean[j]);
                }
            }
        }
        covariance
    }

    /// Weighted standard deviation of each coordinate.
    pub fn sd(&self) -> Vec<f64> {
        let covariance = self.covariance();
        (0..self.dim).map(|i| covariance[i * (self.dim + 1)].max(0.0).sqrt()).collect()
    }

    /// The smallest distance d such that particles within d have at least the part `q` of the weight.
    pub fn distance_quantile(&self, q: f64) -> f64 {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_by(|&a, &b| self.distances[a].total_cmp(&self.distances[b]).then(a.cmp(&b)));
        let mut sum = 0.0;
        for &i in &order {
            sum += self.weights[i];
            if sum >= q {
                return self.distances[i];
            }
        }
        order.last().map_or(f64::NAN, |&last| self.distances[last])
    }

    /// Systematic resampling: every particle floor or ceil of N w times, equal weights after it.
    pub(super) fn resample(&mut self, rng: &mut Stream) {
        let n = self.len();
        let offset: f64 = rng.random();
        let mut chosen = Vec::with_capacity(n);
        let (mut sum, mut i) = (self.weights[0], 0);
        for k in 0..n {
            let point = (k as f64 + offset) / n as f64;
            while point >= sum && i + 1 < n {
                i += 1;
                sum += self.weights[i];
            }
            chosen.push(i);
        }
        let d = self.dim;
        self.coordinates =
            chosen.iter().flat_map(|&i| &self.coordinates[i * d..(i + 1) * d]).copied().collect();
        self.distances = chosen.iter().map(|&i| self.distances[i]).collect();
        self.weights = vec![1.0 / n as f64; n];
    }

    /// A table of the parameters in the user's units with columns `weight` and `distance`.
    pub fn to_table(&self, prior: &Prior) -> Result<Table> {
        let mut names = prior.names().to_vec();
        for extra in ["weight", "distance"] {
            let mut name = extra.to_owned();
            while names.contains(&name) {
                name.push('_');
            }
            names.push(name);
        }
        let mut values = Vec::with_capacity(self.len() * names.len());
        let mut theta = vec![0.0; prior.dim()];
        for (i, u) in self.coordinates.chunks_exact(self.dim).enumerate() {
            prior.at_coordinates(u, &mut theta);
            values.extend_from_slice(&theta);
            values.extend([self.weights[i], self.distances[i]]);
        }
        Table::new(names, values)
    }
}

/// Gaussian moves with `factor` times a population's covariance.
pub(super) struct Kernel<'a> {
    population: &'a Population,
    /// Cholesky factor L, column-major.
    root: Vec<f64>,
    /// L⁻¹ u of every particle.
    whitened: Vec<f64>,
    /// Running sums of the weights.
    cumulative: Vec<f64>,
}

impl<'a> Kernel<'a> {
    pub(super) fn new(population: &'a Population, factor: f64) -> Result<Self> {
        let n = population.dim;
        let covariance: Vec<f64> = population.covariance().iter().map(|c| factor * c).collect();
        let mut scratch = SpdScratch::new(n);
        let mut root = covariance.clone();
        // Particles on a line or a plane: widen it a little.
        let mut jitter = 0.0;
        while spd::cholesky(&mut root, &mut scratch).is_none() {
            jitter = if jitter == 0.0 { 1e-10 } else { 100.0 * jitter };
            if jitter > 1e-3 {
                return Err(Error::Numerical(
                    "the particles' covariance is singular: too few of them are different; ask for more particles"
                        .into(),
                ));
            }
            root.copy_from_slice(&covariance);
            let most = (0..n).map(|i| covariance[i * (n + 1)]).fold(f64::MIN_POSITIVE, f64::max);
            (0..n).for_each(|i| root[i * (n + 1)] += jitter * most);
        }
        let mut whitened = population.coordinates.clone();
        whitened.chunks_exact_mut(n).for_each(|u| whiten(&root, u));
        let cumulative = population
            .weights
            .iter()
            .scan(0.0, |sum, w| {
                *sum += w;
                Some(*sum)
            })
            .collect();
        Ok(Self { population, root, whitened, cumulative })
    }

    /// A weighted draw, moved; drawn again, both, while it is outside the prior. `false` after too many.
    pub(super) fn propose(&self, prior: &Prior, rng: &mut Stream, u: &mut [f64]) -> bool {
        let n = self.population.dim;
        for _ in 0..10_000 {
            let point = rng.random::<f64>() * self.cumulative[self.cumulative.len() - 1];
            let ancestor =
                self.cumulative.partition_point(|&sum| sum <= point).min(self.population.len() - 1);
            let centre = &self.population.coordinates[ancestor * n..(ancestor + 1) * n];
            correlated(rng, centre, &self.root, u);
            if prior.log_density(u) > f64::NEG_INFINITY {
                return true;
            }
        }
        false
    }

    /// Importance weights π(u)/Σ_a w_a K(u | u_a) of particles, scaled to sum to 1.
    pub(super) fn weights(&self, prior: &Prior, coordinates: &[f64]) -> Vec<f64> {
        let n = self.population.dim;
        let logs: Vec<f64> = coordinates
            .par_chunks_exact(n)
            .map(|u| {
                let mut white = u.to_vec();
                whiten(&self.root, &mut white);
                let exponents: Vec<f64> = self
                    .whitened
                    .chunks_exact(n)
                    .map(|a| -0.5 * a.iter().zip(&white).map(|(a, b)| (a - b) * (a - b)).sum::<f64>())
                    .collect();
                let most = exponents.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 =
                    exponents.iter().zip(&self.population.weights).map(|(e, w)| w * (e - most).exp()).sum();
                prior.log_density(u) - most - sum.ln()
            })
            .collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> = logs.iter().map(|log| (log - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
        weights
    }
}

/// u ← L⁻¹ u.
fn whiten(root: &[f64], u: &mut [f64]) {
    let n = u.len();
    for j in 0..n {
        u[j] /= root[j + j * n];
        let z = u[j];
        for i in j + 1..n {
            u[i] -= root[i + j * n] * z;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::simulate::{Simulator, Streams, TwoMoons};

    fn population() -> Population {
        Population {
            dim: 2,
            coordinates: vec![0.0, 0.0, 0.5, 0.1, -0.2, 0.4, 0.9, -0.8],
            weights: vec![0.1, 0.2, 0.3, 0.4],
            distances: vec![4.0, 3.0, 2.0, 1.0],
        }
    }

    #[test]
    fn moments_and_quantiles_are_weighted() {
        let population = population();
        assert!((population.mean()[0] - (0.1 - 0.06 + 0.36)).abs() < 1e-15);
        let variance = population.covariance()[0];
        assert!((variance - (0.2 * 0.25 + 0.3 * 0.04 + 0.4 * 0.81 - 0.16)).abs() < 1e-15, "{variance}");
        assert!((population.effective() - 1.0 / 0.3).abs() < 1e-12);
        assert_eq!(population.distance_quantile(0.4), 1.0);
        assert_eq!(population.distance_quantile(0.5), 2.0);
        assert_eq!(population.distance_quantile(0.95), 4.0);
    }

    #[test]
    fn resampling_keeps_expected_numbers() {
        let streams = Streams::new(1, 0);
        let mut counts = [0.0; 4];
        for i in 0..2000 {
            let mut resampled = population();
            resampled.resample(&mut streams.get(i));
            assert_eq!(resampled.weights, [0.25; 4]);
            for d in resampled.distances {
                counts[(4.0 - d) as usize] += 1.0 / 2000.0;
            }
        }
        for (count, weight) in counts.iter().zip([0.1, 0.2, 0.3, 0.4_f64]) {
            assert!((count - 4.0 * weight).abs() < 0.05, "{counts:?}");
        }
    }

    /// Proposals of the kernel with its weights estimate integrals against the (uniform) prior.
    #[test]
    fn proposals_with_weights_are_the_prior() {
        let model = TwoMoons::default();
        let population = population();
        let kernel = Kernel::new(&population, 6.0).unwrap();
        let streams = Streams::new(2, 0);
        let mut coordinates = vec![0.0; 2 * 20_000];
        for (i, u) in coordinates.chunks_exact_mut(2).enumerate() {
            assert!(kernel.propose(model.prior(), &mut streams.get(i as u64), u));
            assert!(u.iter().all(|u| u.abs() <= 1.0));
        }
        let weights = kernel.weights(model.prior(), &coordinates);
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let mean = |f: &dyn Fn(&[f64]) -> f64| -> f64 {
            coordinates.chunks_exact(2).zip(&weights).map(|(u, w)| w * f(u)).sum()
        };
        for (got, exact) in [
            (mean(&|u| u[0]), 0.0),
            (mean(&|u| u[1]), 0.0),
            (mean(&|u| u[0] * u[0]), 1.0 / 3.0),
            (mean(&|u| u[0] * u[1]), 0.0),
        ] {
            assert!((got - exact).abs() < 0.06, "{got} {exact}");
        }
    }
}
