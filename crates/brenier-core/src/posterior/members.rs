//! Ensembles: what is known of each member, and how far members disagree.

use serde::{Deserialize, Serialize};

use super::{At, Posterior, TrainingSummary, repeated};
use crate::Result;
use crate::map::{SampleSettings, TransportMap};
use crate::train::Stop;

/// Draws of each member by which disagreement is measured.
const DRAWS: usize = 200;
/// Observations between two looks at a stop token.
const AT_ONCE: usize = 256;

/// A member of an ensemble.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its weight in the mixture; the weights sum to 1.
    pub weight: f64,
    /// Seed of its initial weights and batches.
    pub seed: u64,
    /// How its training went.
    pub training: TrainingSummary,
}

impl Member {
    /// The trainings of all members in one: the first, with the mean of the validation losses. `unfinished` says why not all of
    /// the fit came to its end.
    pub(crate) fn together(members: &[Member], unfinished: Option<Stop>) -> TrainingSummary {
        let mut training = members[0].training.clone();
        training.stop = unfinished.unwrap_or(training.stop);
        if members.len() > 1 {
            let losses = members.iter().map(|member| member.weight * member.training.best_valid_nll);
            training.best_valid_nll = losses.sum();
        }
        training
    }
}

impl Posterior {
    /// The members, where the model is an ensemble; empty for a single map.
    pub fn members(&self) -> &[Member] {
        &self.header.members
    }

    /// The maps: one, or those of an ensemble's members.
    pub fn maps(&self) -> impl ExactSizeIterator<Item = &dyn TransportMap> {
        self.mixture.maps()
    }

    /// How far the members of an ensemble disagree at each of `observations` rows of `given`: the Jensen–Shannon
    /// divergence Σ_k w_k E_{π_k}\[log π_k − log π\] in nats, between 0 (all alike) and log of the number of members (no overlap).
    /// Zeros for a single map.
    pub fn disagreement(&self, given: &[f64], observations: usize, seed: u64) -> Result<Vec<f64>> {
        self.at_rows(given, observations).seed(seed).disagreement()
    }
}

impl At<'_> {
    /// How far the members of an ensemble disagree at each observation; see [`Posterior::disagreement`].
    pub fn disagreement(&self) -> Result<Vec<f64>> {
        let posterior = self.posterior;
        let given = posterior.transform_given(&self.given, self.observations)?;
        let mut found = vec![0.0; self.observations];
        if posterior.mixture.is_single() {
            return Ok(found);
        }
        let k = posterior.header.given_transform.output_dim();
        let settings = SampleSettings { skip_unsolved: true, ..SampleSettings::default() };
        for (place, found) in found.chunks_mut(AT_ONCE).enumerate() {
            let first = place * AT_ONCE;
            let given = &given[first * k..(first + found.len()) * k];
            let normals = posterior.normals_from(first, found.len(), DRAWS, self.seed);
            let observation = repeated(found.len(), DRAWS);
            for (map, weight) in posterior.mixture.maps().zip(posterior.mixture.weights()) {
                self.stop.go_on()?;
                let mut z = normals.clone();
                posterior.stretch(&mut z, first, DRAWS, self.seed, |_| map.reference());
                let (x, _) = map.draw(&z, given, &observation, &settings)?;
                let own = map.log_density_at(&x, given, &observation)?;
                let all = posterior.mixture.log_density_at(&x, given, &observation)?;
                for (row, (own, all)) in own.iter().zip(&all).enumerate() {
                    found[row / DRAWS] += weight * (own - all) / DRAWS as f64;
                }
            }
        }
        Ok(found.into_iter().map(|divergence| divergence.max(0.0)).collect())
    }
}
