//! Ensembles: what is known of each member, and how far members disagree.

use serde::{Deserialize, Serialize};

use super::{Posterior, TrainingSummary, repeated};
use crate::Result;
use crate::map::{SampleSettings, TransportMap};
use crate::train::Stop;

/// Draws of each member by which disagreement is measured.
const DRAWS: usize = 200;

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
        let given = self.transform_given(given, observations)?;
        self.disagreement_standardised(&given, observations, seed)
    }

    /// The same at transformed `given` values.
    pub(crate) fn disagreement_standardised(
        &self,
        given: &[f64],
        observations: usize,
        seed: u64,
    ) -> Result<Vec<f64>> {
        let mut found = vec![0.0; observations];
        if self.mixture.is_single() {
            return Ok(found);
        }
        let z = self.reference(observations, DRAWS, seed);
        let observation = repeated(observations, DRAWS);
        let settings = SampleSettings { skip_unsolved: true, ..SampleSettings::default() };
        for (map, weight) in self.mixture.maps().zip(self.mixture.weights()) {
            let (x, _) = map.draw(&z, given, &observation, &settings)?;
            let own = map.log_density_at(&x, given, &observation)?;
            let all = self.mixture.log_density_at(&x, given, &observation)?;
            for (row, (own, all)) in own.iter().zip(&all).enumerate() {
                found[row / DRAWS] += weight * (own - all) / DRAWS as f64;
            }
        }
        Ok(found.into_iter().map(|divergence| divergence.max(0.0)).collect())
    }
}
