//! Rows near those of a table: training that sees the neighbourhood of every simulation instead of the simulation alone.
//!
//! A network f imitates the simulator, y ≈ f(x) ([`Surrogate`]). In every step, row i moves to a place nearby, towards the place of a random
//! row j,
//!
//! x' = m + √(1 − h²) (x_i − m) + h (x_j − m),   y' = y_i + f(x') − f(x_i),
//!
//! where m is the mean of x and h the spread, which falls with the step size, so that a training ends with the rows as they are.
//! Mean and covariance of x stay as they are, and the distribution too where it is Gaussian. What f does not explain of y_i, noise
//! included, moves along, so that errors of f count by their change between x_i and x' alone. A map that would overfit the
//! simulations of a table then learns how the posterior changes between them.

use rand::RngExt;

use super::{Dataset, StepRandom};
use crate::map::Surrogate;

/// A trained surrogate, and what it leaves unexplained of every row.
#[derive(Debug)]
pub struct Nearby {
    surrogate: Surrogate<f32>,
    /// y − f(x) of all rows of the data, without noise that steps add.
    left: Vec<f32>,
    /// Rows that others move towards.
    rows: Vec<u32>,
    /// m.
    mean: Vec<f32>,
    /// h at the start of a training.
    spread: f64,
}

impl Nearby {
    /// With a surrogate that was trained on `rows` of the data.
    pub(crate) fn new(surrogate: Surrogate<f32>, data: &Dataset, rows: &[u32], spread: f64) -> Self {
        let n = data.target;
        let mut left = data.plain_given().to_vec();
        surrogate.subtract(&data.x, &mut left);
        let mut mean = vec![0.0; n];
        for &row in rows {
            let x = &data.x[row as usize * n..][..n];
            mean.iter_mut().zip(x).for_each(|(mean, &x)| *mean += f64::from(x) / rows.len() as f64);
        }
        Self {
            surrogate,
            left,
            rows: rows.to_vec(),
            mean: mean.into_iter().map(|mean| mean as f32).collect(),
            spread,
        }
    }

    /// The part of the variance of y over `rows` that the surrogate explains.
    pub(crate) fn explained(&self, data: &Dataset, rows: &[u32]) -> f64 {
        let (m, y) = (data.given, data.plain_given());
        let sum = |values: &[f32], centre: &[f64]| -> f64 {
            let row = |&row: &u32| values[row as usize * m..][..m].iter().zip(centre);
            rows.iter().flat_map(row).map(|(&value, centre)| (f64::from(value) - centre).powi(2)).sum()
        };
        let mut mean = vec![0.0; m];
        for &row in rows {
            let y = &y[row as usize * m..][..m];
            mean.iter_mut().zip(y).for_each(|(mean, &y)| *mean += f64::from(y) / rows.len() as f64);
        }
        1.0 - sum(&self.left, &vec![0.0; m]) / sum(y, &mean)
    }

    /// Rows near those of `index`, at this part of the spread, before noise.
    pub(super) fn gather(
        &self,
        data: &Dataset,
        index: &[u32],
        part: f64,
        random: StepRandom,
        x: &mut [f32],
        y: &mut [f32],
    ) {
        let n = data.target;
        data.copy(index, &self.left, x, y);
        let (x, y) = (&mut x[..index.len() * n], &mut y[..index.len() * data.given]);
        let (mut rng, h) = (random.moves(), part * self.spread);
        let (own, other) = ((1.0 - h * h).max(0.0).sqrt() as f32, h as f32);
        for x in x.chunks_exact_mut(n) {
            let towards = self.rows[rng.random_range(0..self.rows.len())] as usize;
            let towards = &data.x[towards * n..][..n];
            for ((x, &towards), &mean) in x.iter_mut().zip(towards).zip(&self.mean) {
                *x = mean + own * (*x - mean) + other * (towards - mean);
            }
        }
        self.surrogate.add(x, y);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::StandardNormal;

    use super::*;

    /// Rows of a simulator whose outputs are those of a given surrogate, with an error that stays with each row.
    fn rows(count: usize) -> (Surrogate<f32>, Dataset, Vec<f32>) {
        let surrogate = Surrogate::initial(2, &[8], 3, 5).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut normals =
            |count: usize| -> Vec<f32> { (0..count).map(|_| rng.sample(StandardNormal)).collect() };
        let mut x = normals(2 * count);
        // Correlated, and not centred.
        x.chunks_exact_mut(2).for_each(|x| (x[0], x[1]) = (x[0] + 1.0, 0.6 * x[0] + 0.8 * x[1] - 2.0));
        let errors = normals(3 * count);
        let mut y = errors.clone();
        surrogate.add(&x, &mut y);
        (surrogate, Dataset { target: 2, given: 3, x, y, fresh: None }, errors)
    }

    #[test]
    fn moved_rows_keep_their_errors_and_the_moments_of_all() {
        let count = 20_000;
        let (surrogate, data, errors) = rows(count);
        let all: Vec<u32> = (0..count as u32).collect();
        let check = surrogate.clone();
        let nearby = Nearby::new(surrogate, &data, &all, 0.3);
        let (mut x, mut y) = (vec![0.0; 2 * count], vec![0.0; 3 * count]);
        nearby.gather(&data, &all, 1.0, StepRandom { seed: 3, step: 7 }, &mut x, &mut y);
        check.subtract(&x, &mut y);
        assert!(y.iter().zip(&errors).all(|(a, b)| (a - b).abs() < 1e-4));
        let moments = |x: &[f32]| -> [f64; 5] {
            let mean = |of: &dyn Fn(f64, f64) -> f64| {
                x.chunks_exact(2).map(|x| of(x[0].into(), x[1].into())).sum::<f64>() / count as f64
            };
            let (a, b) = (mean(&|a, _| a), mean(&|_, b| b));
            [
                a,
                b,
                mean(&|x, _| (x - a).powi(2)),
                mean(&|_, y| (y - b).powi(2)),
                mean(&|x, y| (x - a) * (y - b)),
            ]
        };
        for (before, after) in moments(&data.x).into_iter().zip(moments(&x)) {
            assert!((before - after).abs() < 0.04, "{before} {after}");
        }
        let moved = x.iter().zip(&data.x).filter(|(a, b)| (*a - *b).abs() > 0.01).count();
        assert!(moved > 3 * count / 2, "{moved}");
        // The same step moves the same rows to the same places, another one to others.
        let again = |step| {
            let (mut x, mut y) = (vec![0.0; 20], vec![0.0; 30]);
            nearby.gather(&data, &all[..10], 1.0, StepRandom { seed: 3, step }, &mut x, &mut y);
            x
        };
        assert_eq!(again(7), x[..20]);
        assert_ne!(again(8), again(7));
        // At the end of a training rows are where they are.
        nearby.gather(&data, &all, 0.0, StepRandom { seed: 3, step: 7 }, &mut x, &mut y);
        assert!(x.iter().zip(&data.x).all(|(a, b)| (a - b).abs() < 1e-5));
        assert!(y.iter().zip(&data.y).all(|(a, b)| (a - b).abs() < 1e-4));
    }

    #[test]
    fn what_is_explained_is_a_part_of_the_variance() {
        let (surrogate, data, errors) = rows(2000);
        let all: Vec<u32> = (0..2000).collect();
        let other = Surrogate::initial(2, &[4], 3, 99).unwrap();
        let explained = Nearby::new(surrogate, &data, &all, 0.1).explained(&data, &all);
        let of_errors: f64 = errors.iter().map(|&e| f64::from(e).powi(2)).sum::<f64>() / 2000.0;
        let total: f64 = (0..3)
            .map(|j| {
                let column = || data.y.iter().skip(j).step_by(3).map(|&y| f64::from(y));
                let mean = column().sum::<f64>() / 2000.0;
                column().map(|y| (y - mean).powi(2)).sum::<f64>() / 2000.0
            })
            .sum();
        assert!((explained - (1.0 - of_errors / total)).abs() < 1e-4);
        assert!(Nearby::new(other, &data, &all, 0.1).explained(&data, &all) < explained);
    }
}
