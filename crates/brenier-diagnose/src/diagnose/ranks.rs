//! Whether ranks are uniform: the test behind every check of calibration, with its picture.
//!
//! If the truth is one more draw of the same distribution, its rank among D draws is uniform on 0, …, D, and of N
//! independent pairs the number with rank below t is Binomial(N, z), z = t/(D + 1). Along t these counts are a
//! Markov chain, so the probability that they stay inside any corridor is a finite sum; [`Corridor`] evaluates it
//! by walking the chain. Following Säilynoja, Bürkner and Vehtari (2022) the corridor is that of pointwise
//! binomial intervals of one common level γ, with γ set so that the whole walk stays inside with probability 1 − α.
//! No simulation is involved: bands and p-values are exact.

use serde::Serialize;

use super::special::LogFactorials;
use crate::{Error, Result};

/// Places at which the distribution of the ranks is looked at, at most.
const MAX_POINTS: usize = 100;
/// Probabilities of single steps below this are left out.
const NEGLIGIBLE: f64 = 1e-18;

/// Ranks of true values among draws, one for each of N independent pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranks {
    ranks: Vec<u32>,
    draws: u32,
}

/// Shape of a histogram of ranks, beside what uniform ranks would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankHistogram {
    /// Upper ends of the bins, as parts of all ranks; the last is one.
    pub ends: Vec<f64>,
    /// Ranks in each bin.
    pub counts: Vec<u32>,
    /// Counts that all bins keep to with the probability asked for, by Bonferroni's bound: lower ends.
    pub low: Vec<u32>,
    /// Upper ends.
    pub high: Vec<u32>,
}

/// How uniform ranks are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Uniformity {
    /// The probability of a walk that leaves a corridor as wide as this one did, if the ranks are uniform; exact.
    pub band_p_value: f64,
    /// √N · mean of the first Legendre polynomial of the ranks, N(0, 1) if they are uniform: above zero when the
    /// truth ranks high too often.
    pub bias: f64,
    /// The same with the second polynomial: above zero when the truth stands at either end too often, below when it
    /// stands in the middle too often.
    pub spread: f64,
    /// P(χ²₂ ≥ bias² + spread²): Neyman's smooth test of order two.
    pub smooth_p_value: f64,
    /// Both together: twice the smaller of the two p-values, at most one.
    pub p_value: f64,
}

/// A corridor for the counts of uniform ranks, the same for all quantities of one run.
#[derive(Clone, Debug)]
pub struct Corridor {
    pairs: usize,
    draws: u32,
    /// Ranks below these are counted.
    thresholds: Vec<u32>,
    /// Distribution functions of the counts around their middle.
    marginals: Vec<Marginal>,
    /// Lowest and highest count inside, point by point.
    band: Vec<(usize, usize)>,
}

/// P(B ≤ k) and P(B ≥ k) for k = first, first + 1, …; farther out both tails are negligible.
#[derive(Clone, Debug)]
struct Marginal {
    first: usize,
    below: Vec<f64>,
    above: Vec<f64>,
}

impl Marginal {
    fn new(pairs: usize, chance: f64, logs: &LogFactorials) -> Self {
        let (mean, deviation) = (pairs as f64 * chance, (pairs as f64 * chance * (1.0 - chance)).sqrt());
        let reach = 10.0 * deviation + 20.0;
        let first = (mean - reach).max(0.0) as usize;
        let last = ((mean + reach) as usize).min(pairs);
        let (log_chance, log_other) = (chance.ln(), (-chance).ln_1p());
        let mass: Vec<f64> =
            (first..=last).map(|k| logs.log_binomial(k, pairs, log_chance, log_other).exp()).collect();
        let running = |mass: &mut dyn Iterator<Item = &f64>| {
            let mut sum = 0.0;
            mass.map(|p| {
                sum += p;
                sum
            })
            .collect::<Vec<f64>>()
        };
        let below = running(&mut mass.iter());
        let mut above = running(&mut mass.iter().rev());
        above.reverse();
        Self { first, below, above }
    }

    /// 2 min(P(B ≤ k), P(B ≥ k)): the level of the widest pointwise interval that leaves k out.
    fn level(&self, count: usize) -> f64 {
        let inside = count.checked_sub(self.first).filter(|&i| i < self.below.len());
        inside.map_or(0.0, |i| 2.0 * self.below[i].min(self.above[i]))
    }

    /// The counts whose level is above `level`; one at least, the middle.
    fn interval(&self, level: f64) -> (usize, usize) {
        let low = self.below.partition_point(|&p| 2.0 * p <= level);
        let high = self.above.partition_point(|&p| 2.0 * p > level);
        let low = low.min(self.below.len() - 1);
        (self.first + low, self.first + high.max(low + 1) - 1)
    }
}

impl Corridor {
    /// The corridor that the ranks of `pairs` pairs among `draws` draws leave with probability at most `level`.
    pub fn new(pairs: usize, draws: u32, level: f64) -> Result<Self> {
        if pairs == 0 || draws == 0 || draws == u32::MAX {
            return Err(Error::Shape {
                what: "ranks to test",
                expected: "at least one pair and one draw".to_owned(),
                got: format!("{pairs} pairs and {draws} draws"),
            });
        }
        if !(level > 0.0 && level < 1.0) {
            return Err(Error::setting("level", format!("must be above 0 and below 1, not {level}")));
        }
        let points = MAX_POINTS.min(draws as usize).min(pairs.max(10));
        let all = u64::from(draws) + 1;
        let threshold = |k: usize| {
            let parts = points as u64 + 1;
            ((k as u64 * all + parts / 2) / parts) as u32
        };
        let mut thresholds: Vec<u32> = (1..=points).map(threshold).collect();
        thresholds.retain(|&t| t > 0 && u64::from(t) < all);
        thresholds.dedup();
        let logs = LogFactorials::up_to(pairs);
        let marginals =
            thresholds.iter().map(|&t| Marginal::new(pairs, f64::from(t) / all as f64, &logs)).collect();
        let mut corridor = Self { pairs, draws, thresholds, marginals, band: Vec::new() };
        // The largest γ whose corridor holds the whole walk with probability 1 − level: at least level / points.
        let (mut low, mut high) = ((level / corridor.thresholds.len() as f64).ln(), level.ln());
        for _ in 0..30 {
            let middle = 0.5 * (low + high);
            if corridor.stays_inside(&corridor.intervals(middle.exp())) >= 1.0 - level {
                low = middle;
            } else {
                high = middle;
            }
        }
        corridor.band = corridor.intervals(low.exp());
        Ok(corridor)
    }

    fn intervals(&self, level: f64) -> Vec<(usize, usize)> {
        self.marginals.iter().map(|marginal| marginal.interval(level)).collect()
    }

    fn chance(&self, point: usize) -> f64 {
        f64::from(self.thresholds[point]) / (f64::from(self.draws) + 1.0)
    }

    /// The probability that uniform ranks keep every count within its interval.
    ///
    /// Of the N − c ranks not below one threshold, each is below the next with probability q, independently.
    fn stays_inside(&self, intervals: &[(usize, usize)]) -> f64 {
        let mut before = (0, vec![1.0]);
        let mut reached = 0.0;
        for (point, &(low, high)) in intervals.iter().enumerate() {
            let chance = self.chance(point);
            let q = (chance - reached) / (1.0 - reached);
            reached = chance;
            let mut now = vec![0.0; high - low + 1];
            for (i, &weight) in before.1.iter().enumerate() {
                if weight < NEGLIGIBLE {
                    continue;
                }
                let count = before.0 + i;
                add_binomial(self.pairs - count, q, weight, |step, mass| {
                    if let Some(slot) = (count + step).checked_sub(low).and_then(|i| now.get_mut(i)) {
                        *slot += mass;
                    }
                });
            }
            before = (low, now);
        }
        before.1.iter().sum::<f64>().min(1.0)
    }

    /// z at which the ranks are looked at.
    pub fn points(&self) -> Vec<f64> {
        (0..self.thresholds.len()).map(|point| self.chance(point)).collect()
    }

    /// For each z the lowest and highest F(z) − z inside, F the part of the ranks below.
    pub fn band(&self) -> Vec<(f64, f64)> {
        let part = |count: usize, point: usize| count as f64 / self.pairs as f64 - self.chance(point);
        self.band.iter().enumerate().map(|(i, &(low, high))| (part(low, i), part(high, i))).collect()
    }

    /// F(z) − z of `ranks` at every z.
    pub fn difference(&self, ranks: &Ranks) -> Result<Vec<f64>> {
        let counts = self.counts(ranks)?;
        let part = |(i, &count): (usize, &usize)| count as f64 / self.pairs as f64 - self.chance(i);
        Ok(counts.iter().enumerate().map(part).collect())
    }

    /// How many ranks lie below each threshold.
    fn counts(&self, ranks: &Ranks) -> Result<Vec<usize>> {
        if (ranks.ranks.len(), ranks.draws) != (self.pairs, self.draws) {
            return Err(Error::Shape {
                what: "ranks to test",
                expected: format!("{} pairs and {} draws", self.pairs, self.draws),
                got: format!("{} pairs and {} draws", ranks.ranks.len(), ranks.draws),
            });
        }
        let mut sorted = ranks.ranks.clone();
        sorted.sort_unstable();
        Ok(self.thresholds.iter().map(|&t| sorted.partition_point(|&rank| rank < t)).collect())
    }

    /// Tests `ranks` against the corridor and by their first two moments.
    pub fn test(&self, ranks: &Ranks) -> Result<Uniformity> {
        let counts = self.counts(ranks)?;
        let levels = counts.iter().zip(&self.marginals).map(|(&count, marginal)| marginal.level(count));
        let lowest = levels.fold(1.0, f64::min);
        // P(lowest level of uniform ranks ≤ ours); the sum over points bounds it where 1 − p has no digits left.
        let bound = lowest * self.thresholds.len() as f64;
        let band_p_value = (1.0 - self.stays_inside(&self.intervals(lowest))).clamp(0.0, bound.min(1.0));
        let [bias, spread] = ranks.scores();
        let smooth_p_value = (-0.5 * (bias * bias + spread * spread)).exp();
        let p_value = (2.0 * band_p_value.min(smooth_p_value)).min(1.0);
        Ok(Uniformity { band_p_value, bias, spread, smooth_p_value, p_value })
    }
}

/// Calls `add(k, weight · P(B = k))` for B ~ Binomial(trials, q) where it matters, from the mode outwards.
fn add_binomial(trials: usize, q: f64, weight: f64, mut add: impl FnMut(usize, f64)) {
    if trials == 0 || q <= 0.0 {
        return add(0, weight);
    }
    let mode = (((trials + 1) as f64 * q) as usize).min(trials);
    // Relative to the mode, then divided by their sum: no factorials, no underflow.
    let odds = q / (1.0 - q);
    let up = |k: usize| (trials - k) as f64 / (k + 1) as f64 * odds;
    let mut sum = 1.0;
    let (mut low, mut high) = (mode, mode);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut mass = 1.0;
    while high < trials {
        mass *= up(high);
        if mass < NEGLIGIBLE {
            break;
        }
        high += 1;
        sum += mass;
        right.push(mass);
    }
    mass = 1.0;
    while low > 0 {
        mass /= up(low - 1);
        if mass < NEGLIGIBLE {
            break;
        }
        low -= 1;
        sum += mass;
        left.push(mass);
    }
    let scale = weight / sum;
    add(mode, scale);
    right.iter().enumerate().for_each(|(i, mass)| add(mode + 1 + i, scale * mass));
    left.iter().enumerate().for_each(|(i, mass)| add(mode - 1 - i, scale * mass));
}

impl Ranks {
    /// Ranks among `draws` draws each: numbers from 0 to `draws`.
    pub fn new(ranks: Vec<u32>, draws: u32) -> Result<Self> {
        if ranks.is_empty() || draws == 0 || draws == u32::MAX {
            return Err(Error::Shape {
                what: "ranks",
                expected: "at least one rank among at least one draw".to_owned(),
                got: format!("{} ranks among {draws} draws", ranks.len()),
            });
        }
        if let Some(pair) = ranks.iter().position(|&rank| rank > draws) {
            return Err(Error::Domain(format!(
                "the rank of pair {} is {}: among {draws} draws it is at most {draws}",
                pair + 1,
                ranks[pair]
            )));
        }
        Ok(Self { ranks, draws })
    }

    /// The ranks, pair by pair.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The number of draws each truth was ranked among.
    pub fn draws(&self) -> u32 {
        self.draws
    }

    /// √N · mean of the Legendre polynomials u and u² − E u² of the centred rank, each divided by its standard
    /// deviation under uniform ranks on this very grid.
    fn scores(&self) -> [f64; 2] {
        let all = f64::from(self.draws) + 1.0;
        let centred = |rank: f64| (2.0 * rank + 1.0) / all - 1.0;
        // Moments of the centred rank c on its grid, m = draws + 1: E c² = (1 − m⁻²)/3, and E c⁴ likewise.
        let inverse = 1.0 / (all * all);
        let second = (1.0 - inverse) / 3.0;
        let fourth = (1.0 - inverse) * (3.0 - 7.0 * inverse) / 15.0;
        let (first_scale, second_scale) = (second.sqrt(), (fourth - second * second).sqrt());
        let (mut bias, mut spread) = (0.0, 0.0);
        for &rank in &self.ranks {
            let c = centred(f64::from(rank));
            bias += c;
            spread += c * c - second;
        }
        let root = (self.ranks.len() as f64).sqrt();
        let scaled = |sum: f64, scale: f64| if scale > 0.0 { sum / (scale * root) } else { 0.0 };
        [scaled(bias, first_scale), scaled(spread, second_scale)]
    }

    /// A histogram of at most `bins` bins of as equal numbers of ranks as can be, with a band of level `level`.
    pub fn histogram(&self, bins: usize, level: f64) -> RankHistogram {
        let all = u64::from(self.draws) + 1;
        let bins = (bins as u64).clamp(1, all);
        let ends: Vec<u64> = (1..=bins).map(|k| k * all / bins).collect();
        let mut counts = vec![0; bins as usize];
        for &rank in &self.ranks {
            counts[ends.partition_point(|&end| end <= u64::from(rank))] += 1;
        }
        let logs = LogFactorials::up_to(self.ranks.len());
        let mut start = 0;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for &end in &ends {
            let chance = (end - start) as f64 / all as f64;
            start = end;
            let (lowest, highest) = if chance < 1.0 {
                Marginal::new(self.ranks.len(), chance, &logs).interval(level / bins as f64)
            } else {
                (self.ranks.len(), self.ranks.len())
            };
            low.push(lowest as u32);
            high.push(highest as u32);
        }
        RankHistogram { ends: ends.iter().map(|&end| end as f64 / all as f64).collect(), counts, low, high }
    }
}

/// Holm's step-down correction: p-values that may be compared with one level however many tests there are.
///
/// The i-th smallest of k is multiplied by k − i + 1, and none may fall below a smaller one's.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut least = 0.0_f64;
    for (place, &index) in order.iter().enumerate() {
        least = least.max(p_values[index] * (p_values.len() - place) as f64).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::statistics::random::{below, stream};

    fn uniform(pairs: usize, draws: u32, seed: u64) -> Ranks {
        let mut rng = stream(seed, 3);
        let ranks = (0..pairs).map(|_| below(draws as usize + 1, &mut rng) as u32).collect();
        Ranks::new(ranks, draws).unwrap()
    }

    /// With one threshold and few pairs the corridor is a binomial interval that can be counted by hand.
    #[test]
    fn one_point_is_a_binomial_test() {
        // Ranks 0 or 1, ten pairs: counts below 1 are Binomial(10, ½); P(0, 1, 9, 10) = 22/1024, P(2, 8) = 90/1024.
        let corridor = Corridor::new(10, 1, 0.05).unwrap();
        assert_eq!(corridor.band, [(2, 8)]);
        let ranks = Ranks::new([vec![0; 9], vec![1; 1]].concat(), 1).unwrap();
        assert!((corridor.test(&ranks).unwrap().band_p_value - 22.0 / 1024.0).abs() < 1e-12);
    }

    /// Two thresholds against the sum over all outcomes of five pairs with three ranks.
    #[test]
    fn the_walk_is_the_sum_over_all_outcomes() {
        let corridor = Corridor::new(5, 2, 0.1).unwrap();
        let intervals = [(0, 3), (2, 4)];
        let mut inside = 0;
        for code in 0..3_usize.pow(5) {
            let ranks: Vec<usize> = (0..5).map(|i| code / 3_usize.pow(i) % 3).collect();
            let count = |t: usize| ranks.iter().filter(|&&rank| rank < t).count();
            inside += usize::from((0..=3).contains(&count(1)) && (2..=4).contains(&count(2)));
        }
        let exact = inside as f64 / 243.0;
        assert!((corridor.stays_inside(&intervals) - exact).abs() < 1e-13);
    }

    #[test]
    fn scores_have_unit_variance_on_coarse_grids() {
        for draws in [1, 2, 5, 100] {
            let grid = Ranks::new((0..=draws).collect(), draws).unwrap();
            let all = f64::from(draws) + 1.0;
            // Each rank once: the means vanish, and single ranks give the variances.
            let [bias, spread] = grid.scores();
            assert!(bias.abs() < 1e-12 && spread.abs() < 1e-12);
            let single = |rank| Ranks::new(vec![rank], draws).unwrap().scores();
            let squares =
                |which: usize| (0..=draws).map(|rank| single(rank)[which].powi(2)).sum::<f64>() / all;
            assert!((squares(0) - 1.0).abs() < 1e-10);
            assert!(draws == 1 || (squares(1) - 1.0).abs() < 1e-9, "{draws}: {}", squares(1));
        }
    }

    #[test]
    fn faults_are_seen_and_named_by_sign() {
        let corridor = Corridor::new(1000, 100, 0.05).unwrap();
        let test = |shape: &dyn Fn(f64) -> f64| {
            let mut rng = stream(5, 5);
            let ranks = (0..1000)
                .map(|_| (101.0 * shape((below(1 << 30, &mut rng) as f64) / f64::from(1 << 30))) as u32);
            corridor.test(&Ranks::new(ranks.collect(), 100).unwrap()).unwrap()
        };
        let high = test(&|u| u.powf(0.8));
        assert!(high.p_value < 0.01 && high.bias > 3.0, "{high:?}");
        let ends = test(&|u| 0.5 - 0.5 * (std::f64::consts::PI * u).cos());
        assert!(ends.p_value < 1e-6 && ends.spread > 3.0 && ends.bias.abs() < 3.0, "{ends:?}");
        let tail = test(&|u| if u < 0.025 { 0.0 } else { u });
        assert!(tail.band_p_value < 0.05 && tail.smooth_p_value > 0.05, "{tail:?}");
    }

    #[test]
    fn histograms_count_every_rank_once() {
        let ranks = uniform(1000, 99, 4);
        let histogram = ranks.histogram(20, 0.05);
        assert_eq!(histogram.counts.iter().sum::<u32>(), 1000);
        assert_eq!(histogram.ends.last(), Some(&1.0));
        for i in 0..20 {
            assert!((histogram.low[i]..=histogram.high[i]).contains(&histogram.counts[i]));
            assert!(histogram.low[i] > 20 && histogram.high[i] < 80);
        }
        // Fewer ranks than bins, and one bin for all.
        assert_eq!(Ranks::new(vec![0, 1, 2], 2).unwrap().histogram(10, 0.05).counts, [1, 1, 1]);
        assert_eq!(ranks.histogram(1, 0.05).counts, [1000]);
    }

    #[test]
    fn holm_multiplies_and_keeps_the_order() {
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.5]);
        for (value, expected) in adjusted.iter().zip([0.09, 0.04, 0.09, 0.5]) {
            assert!((value - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn bad_ranks_are_named() {
        assert!(Ranks::new(vec![3, 11], 10).unwrap_err().to_string().contains("pair 2 is 11"));
        assert!(Ranks::new(vec![], 10).is_err());
        assert!(Corridor::new(10, 10, 1.5).unwrap_err().to_string().contains("level"));
        let corridor = Corridor::new(10, 10, 0.05).unwrap();
        assert!(corridor.test(&uniform(11, 10, 1)).is_err());
    }
}
