//! The exponential moving average of the weights: what noisy steps scatter around, validated beside the weights themselves.

use crate::parallel::each;

/// Entries that one task averages.
const CHUNK: usize = 1 << 16;

/// θ̃ ← dθ̃ + (1 − d)θ after every step, with d = min(decay, t/(t + 9)) at step t, so that the start is soon forgotten.
///
/// What training keeps a weight in (non-negative numbers, an interval) is convex: the average stays in it too.
#[derive(Clone, Debug)]
pub(super) struct Average {
    decay: f64,
    /// The averaged weights; empty where none are wanted.
    pub(super) weights: Vec<f32>,
}

impl Average {
    /// An average that starts at `weights`; none for a decay of 0.
    pub(super) fn new(decay: f64, weights: &[f32]) -> Self {
        Self { decay, weights: if decay > 0.0 { weights.to_vec() } else { Vec::new() } }
    }

    /// Whether there is anything to average.
    pub(super) fn is_wanted(&self) -> bool {
        self.decay > 0.0
    }

    /// Takes in the weights after step number `step`, from 1, since the average was started.
    pub(super) fn follow(&mut self, weights: &[f32], step: u64) {
        let step = step as f64;
        let share = (1.0 - self.decay.min(step / (step + 9.0))) as f32;
        let one = |(average, weights): (&mut [f32], &[f32])| {
            for (average, &weight) in average.iter_mut().zip(weights) {
                *average += share * (weight - *average);
            }
        };
        match self.weights.len() > CHUNK {
            true => each(self.weights.chunks_mut(CHUNK).zip(weights.chunks(CHUNK)), |_, both| one(both)),
            false => one((&mut self.weights, weights)),
        }
    }

    /// Starts again at `weights`.
    pub(super) fn restart(&mut self, weights: &[f32]) {
        if self.is_wanted() {
            self.weights.copy_from_slice(weights);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Average;

    #[test]
    fn an_average_forgets_its_start_and_lags_behind() {
        let mut average = Average::new(0.9, &[5.0, 5.0]);
        for step in 1..=200 {
            average.follow(&[1.0, step as f32], step);
        }
        assert!((average.weights[0] - 1.0).abs() < 1e-6, "{average:?}");
        // A ramp is followed at a distance of d/(1 − d) steps.
        assert!((average.weights[1] - 191.0).abs() < 1e-3, "{average:?}");
        average.restart(&[2.0, 3.0]);
        assert_eq!(average.weights, [2.0, 3.0]);
        assert!(Average::new(0.0, &[1.0]).weights.is_empty());
    }
}
