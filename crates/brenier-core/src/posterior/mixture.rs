//! The map of a posterior, or the maps of an ensemble: density Σ_k w_k π_k(x | y), draws from members by weight.

use std::sync::Arc;

use crate::Result;
use crate::map::{ConditionalMap, Inversion, SampleSettings, TransportMap};

/// One map, or several with weights that sum to one.
#[derive(Clone, Debug)]
pub(crate) struct Mixture {
    maps: Vec<Arc<dyn TransportMap>>,
    weights: Vec<f64>,
}

/// log Σ_k w_k e^{l_k}.
fn log_sum(weights: &[f64], logs: impl Iterator<Item = f64> + Clone) -> f64 {
    let most = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    if !most.is_finite() {
        return most;
    }
    most + weights.iter().zip(logs).map(|(weight, log)| weight * (log - most).exp()).sum::<f64>().ln()
}

impl Mixture {
    pub(crate) fn new(maps: Vec<Arc<dyn TransportMap>>, weights: Vec<f64>) -> Self {
        Self { maps, weights }
    }

    /// The maps.
    pub(crate) fn maps(&self) -> impl ExactSizeIterator<Item = &dyn TransportMap> {
        self.maps.iter().map(|map| &**map)
    }

    /// The first map, of which there is always one.
    pub(crate) fn first(&self) -> &dyn TransportMap {
        &*self.maps[0]
    }

    pub(crate) fn weights(&self) -> &[f64] {
        &self.weights
    }

    pub(crate) fn is_single(&self) -> bool {
        self.maps.len() == 1
    }

    /// The log density of every row under the mixture, from those of each member.
    fn together(&self, each: &[Vec<f64>], out: &mut [f64]) {
        for (row, out) in out.iter_mut().enumerate() {
            *out = log_sum(&self.weights, each.iter().map(|density| density[row]));
        }
    }

    /// log π(x | y) of every row, under each member.
    pub(crate) fn log_densities(&self, x: &[f64], y: &[f64], rows: usize) -> Result<Vec<Vec<f64>>> {
        let one = |map: &dyn ConditionalMap<f64>| {
            let mut density = vec![0.0; rows];
            map.log_density(x, y, &mut density).map(|()| density)
        };
        self.maps().map(|map| one(map.double())).collect()
    }

    /// log π(x | y) of every row.
    pub(crate) fn log_density(&self, x: &[f64], y: &[f64], out: &mut [f64]) -> Result<()> {
        if self.is_single() {
            return self.first().double().log_density(x, y, out);
        }
        let each = self.log_densities(x, y, out.len())?;
        self.together(&each, out);
        Ok(())
    }

    /// log π(x | y) of every row and its gradient in x: Σ_k r_k ∇ log π_k with r_k = w_k π_k / π.
    pub(crate) fn log_density_gradient(
        &self,
        x: &[f64],
        y: &[f64],
        out: &mut [f64],
        gradient: &mut [f64],
    ) -> Result<()> {
        if self.is_single() {
            return self.first().double().log_density_gradient(x, y, out, gradient);
        }
        let n = self.first().target_dim();
        let mut each = Vec::with_capacity(self.maps.len());
        let mut slopes = Vec::with_capacity(self.maps.len());
        for map in self.maps() {
            let (mut density, mut slope) = (vec![0.0; out.len()], vec![0.0; gradient.len()]);
            map.double().log_density_gradient(x, y, &mut density, &mut slope)?;
            each.push(density);
            slopes.push(slope);
        }
        self.together(&each, out);
        gradient.fill(0.0);
        for ((weight, density), slope) in self.weights.iter().zip(&each).zip(&slopes) {
            for (row, total) in out.iter().enumerate() {
                let part = weight * (density[row] - total).exp();
                for j in row * n..(row + 1) * n {
                    gradient[j] += part * slope[j];
                }
            }
        }
        Ok(())
    }

    /// As [`TransportMap::log_density_at`].
    pub(crate) fn log_density_at(&self, x: &[f64], given: &[f64], observation: &[u32]) -> Result<Vec<f64>> {
        if self.is_single() {
            return self.first().log_density_at(x, given, observation);
        }
        let each: Vec<Vec<f64>> =
            self.maps().map(|map| map.log_density_at(x, given, observation)).collect::<Result<_>>()?;
        let mut out = vec![0.0; observation.len()];
        self.together(&each, &mut out);
        Ok(out)
    }

    /// The member that draws row `row`: the one whose part of [0, 1), as long as its weight, holds the row's number.
    pub(crate) fn member(&self, choice: &[f64], row: usize) -> usize {
        if self.is_single() {
            return 0;
        }
        let mut above = 0.0;
        let within = |weight: &f64| {
            above += weight;
            choice[row] < above
        };
        let last = self.maps.len() - 1;
        self.weights[..last].iter().position(within).unwrap_or(last)
    }

    /// As [`TransportMap::draw`], each row by the member that a number in [0, 1) from `choice` picks.
    pub(crate) fn draw(
        &self,
        z: &[f64],
        choice: &[f64],
        given: &[f64],
        observation: &[u32],
        settings: &SampleSettings,
    ) -> Result<(Vec<f64>, Inversion)> {
        if self.is_single() {
            return self.first().draw(z, given, observation, settings);
        }
        let n = self.first().target_dim();
        let mut x = vec![0.0; z.len()];
        let count = observation.len();
        let mut all =
            Inversion { iterations: vec![0; count], residuals: vec![0.0; count], unsolved: Vec::new() };
        for (number, map) in self.maps().enumerate() {
            let rows: Vec<usize> = (0..count).filter(|&row| self.member(choice, row) == number).collect();
            let own_z: Vec<f64> = rows.iter().flat_map(|&row| &z[row * n..(row + 1) * n]).copied().collect();
            let own: Vec<u32> = rows.iter().map(|&row| observation[row]).collect();
            let (drawn, inversion) = map.draw(&own_z, given, &own, settings)?;
            for (place, &row) in rows.iter().enumerate() {
                x[row * n..(row + 1) * n].copy_from_slice(&drawn[place * n..(place + 1) * n]);
                all.iterations[row] = inversion.iterations[place];
                match inversion.residuals.get(place) {
                    Some(residual) => all.residuals[row] = *residual,
                    None => all.residuals.clear(),
                }
            }
            all.unsolved.extend(inversion.unsolved.iter().map(|&place| rows[place as usize] as u32));
        }
        all.unsolved.sort_unstable();
        Ok((x, all))
    }
}

#[cfg(test)]
mod tests {
    use super::log_sum;

    #[test]
    fn sums_of_very_small_densities_are_exact() {
        let weights = [0.25, 0.75];
        let logs = [-2000.0, -2001.0];
        let expected = -2000.0 + (0.25 + 0.75 * (-1.0_f64).exp()).ln();
        assert!((log_sum(&weights, logs.into_iter()) - expected).abs() < 1e-12);
        assert_eq!(log_sum(&weights, [f64::NEG_INFINITY; 2].into_iter()), f64::NEG_INFINITY);
    }
}
