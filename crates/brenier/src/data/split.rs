//! Dealing rows into training, validation and test parts, the same way for the same seed on every machine.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Error, Result};

/// Three disjoint parts that together hold every row; the indices of each part ascend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Rows to learn from; never empty.
    pub train: Vec<u32>,
    /// Rows that decide when to stop and which settings to keep.
    pub valid: Vec<u32>,
    /// Rows that judge the result and decide nothing.
    pub test: Vec<u32>,
}

impl Split {
    /// Deals `rows` rows at random. A fraction above zero gets at least one row, and one row at least is left
    /// for training.
    pub fn random(rows: usize, valid_fraction: f64, test_fraction: f64, seed: u64) -> Result<Split> {
        for (name, fraction) in [("valid_fraction", valid_fraction), ("test_fraction", test_fraction)] {
            if !(0.0..1.0).contains(&fraction) {
                return Err(Error::setting(name, format!("must be at least 0 and below 1, not {fraction}")));
            }
        }
        if valid_fraction + test_fraction >= 1.0 {
            let sum = valid_fraction + test_fraction;
            return Err(Error::setting(
                "valid_fraction",
                format!("together with test_fraction it is {sum}, which leaves no rows to train on"),
            ));
        }
        let count = u32::try_from(rows).map_err(|_| Error::Shape {
            what: "rows to split",
            expected: format!("at most {}", u32::MAX),
            got: rows.to_string(),
        })?;
        let share = |fraction: f64| match fraction {
            0.0 => 0,
            _ => ((fraction * rows as f64).round() as usize).max(1),
        };
        let (mut valid, mut test) = (share(valid_fraction), share(test_fraction));
        let needed = 1 + usize::from(valid > 0) + usize::from(test > 0);
        if rows < needed {
            return Err(Error::Shape {
                what: "rows to split",
                expected: format!("at least {needed}, one for each part"),
                got: rows.to_string(),
            });
        }
        while valid + test >= rows {
            // Rounding up took the last training row: the larger part gives one back.
            *(if valid > test { &mut valid } else { &mut test }) -= 1;
        }

        let mut order: Vec<u32> = (0..count).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Fisher–Yates, written out so that an update of `rand` cannot change anyone's split. The index
        // ⌊u (i+1) / 2⁶⁴⌋ is biased by less than 2⁻³² for tables this size.
        for i in (1..rows).rev() {
            let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
            order.swap(i, j as usize);
        }
        let mut train = order.split_off(valid + test);
        let mut test = order.split_off(valid);
        let mut valid = order;
        for part in [&mut train, &mut valid, &mut test] {
            part.sort_unstable();
            part.shrink_to_fit();
        }
        Ok(Split { train, valid, test })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_same_seed_gives_the_same_split_for_ever() {
        let split = Split::random(12, 0.25, 0.25, 7).unwrap();
        assert_eq!(split, Split::random(12, 0.25, 0.25, 7).unwrap());
        assert_ne!(split, Split::random(12, 0.25, 0.25, 8).unwrap());
        // Frozen: a model trained years ago must find its test rows again.
        assert_eq!(split.valid, [3, 5, 8]);
        assert_eq!(split.test, [0, 9, 10]);
    }

    #[test]
    fn too_few_rows_and_bad_fractions_are_errors() {
        let problem = |rows, valid, test| Split::random(rows, valid, test, 1).unwrap_err().to_string();
        assert_eq!(problem(0, 0.0, 0.0), "rows to split: expected at least 1, one for each part, got 0");
        assert_eq!(problem(1, 0.1, 0.0), "rows to split: expected at least 2, one for each part, got 1");
        assert_eq!(problem(2, 0.1, 0.1), "rows to split: expected at least 3, one for each part, got 2");
        assert!(problem(9, -0.1, 0.0).starts_with("setting valid_fraction: must be at least 0"));
        assert!(problem(9, 0.1, f64::NAN).starts_with("setting test_fraction: must be at least 0"));
        assert!(problem(9, 0.5, 0.5).contains("leaves no rows to train on"));
        assert_eq!(Split::random(1, 0.0, 0.0, 1).unwrap().train, [0]);
    }

    #[test]
    fn every_row_is_equally_likely_in_each_part() {
        let mut hits = [0_u32; 10];
        for seed in 0..2000 {
            Split::random(10, 0.2, 0.1, seed).unwrap().valid.iter().for_each(|&i| hits[i as usize] += 1);
        }
        // Binomial(2000, 0.2): mean 400, standard deviation 18.
        assert!(hits.iter().all(|&count| count.abs_diff(400) < 90), "{hits:?}");
    }

    proptest! {
        #[test]
        fn parts_are_disjoint_and_complete(rows in 3_usize..300, valid in 0.0..0.5, test in 0.0..0.5, seed: u64) {
            let split = Split::random(rows, valid, test, seed).unwrap();
            prop_assert!(!split.train.is_empty());
            prop_assert!((split.valid.len() as f64 - valid * rows as f64).abs() <= 1.5);
            let mut all = [split.train, split.valid, split.test].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..rows as u32).collect::<Vec<_>>());
        }
    }
}
