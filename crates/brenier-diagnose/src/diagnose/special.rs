//! The few distribution functions that the tests need: normal tails and binomial probabilities.

pub(super) use crate::kernel::special::normal_tail;

/// log k! for all k up to a largest one.
#[derive(Clone, Debug)]
pub(super) struct LogFactorials(Vec<f64>);

impl LogFactorials {
    pub(super) fn up_to(largest: usize) -> Self {
        let mut sum = 0.0;
        let logs = (1..=largest).map(|k| {
            sum += (k as f64).ln();
            sum
        });
        Self(std::iter::once(0.0).chain(logs).collect())
    }

    /// log P(B = k) for B ~ Binomial(trials, chance), 0 < chance < 1 given by its logarithm and that of 1 − chance.
    pub(super) fn log_binomial(&self, k: usize, trials: usize, log_chance: f64, log_other: f64) -> f64 {
        let rest = trials - k;
        self.0[trials] - self.0[k] - self.0[rest] + k as f64 * log_chance + rest as f64 * log_other
    }
}

/// P(B ≥ count) for B ~ Binomial(trials, chance), 0 < chance < 1.
pub(crate) fn binomial_tail(count: usize, trials: usize, chance: f64) -> f64 {
    let logs = LogFactorials::up_to(trials);
    let (log_chance, log_other) = (chance.ln(), (-chance).ln_1p());
    (count..=trials).map(|k| logs.log_binomial(k, trials, log_chance, log_other).exp()).sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_tails_can_be_counted_by_hand() {
        assert!((binomial_tail(0, 5, 0.3) - 1.0).abs() < 1e-14);
        assert!((binomial_tail(2, 3, 0.5) - 0.5).abs() < 1e-14);
        assert!((binomial_tail(3, 3, 0.1) - 1e-3).abs() < 1e-15);
        assert_eq!(binomial_tail(1, 0, 0.5), 0.0);
    }

    #[test]
    fn binomial_probabilities_sum_to_one() {
        let logs = LogFactorials::up_to(500);
        for (trials, chance) in [(1, 0.3), (10, 0.5), (500, 0.01)] {
            let chance: f64 = chance;
            let (log_chance, log_other) = (chance.ln(), (-chance).ln_1p());
            let probabilities: Vec<f64> =
                (0..=trials).map(|k| logs.log_binomial(k, trials, log_chance, log_other).exp()).collect();
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let mean: f64 = probabilities.iter().enumerate().map(|(k, p)| k as f64 * p).sum();
            assert!((mean - trials as f64 * chance).abs() < 1e-10);
        }
    }
}
