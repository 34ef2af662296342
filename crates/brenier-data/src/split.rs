//! Dealing rows into training, validation and test parts, the same way for the same seed on every machine.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::mt19937::Mt19937;
use crate::{Error, Result};

/// Three disjoint parts that together hold every row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Rows to learn from; never empty.
    pub train: Vec<u32>,
    /// Rows that decide when to stop and which settings to keep.
    pub valid: Vec<u32>,
    /// Rows that judge the result and decide nothing.
    pub test: Vec<u32>,
}

/// Which random numbers split the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SplitProtocol {
    /// [`Split::random`].
    #[default]
    Brenier,
    /// [`Split::sklearn`].
    Sklearn,
}

impl Split {
    /// Splits `rows` rows as `protocol` does.
    pub fn by(
        protocol: SplitProtocol,
        rows: usize,
        valid_fraction: f64,
        test_fraction: f64,
        seed: u64,
    ) -> Result<Split> {
        match protocol {
            SplitProtocol::Brenier => Split::random(rows, valid_fraction, test_fraction, seed),
            SplitProtocol::Sklearn => Split::sklearn(rows, valid_fraction, test_fraction, seed),
        }
    }

    /// Splits `rows` rows at random; the indices of each part ascend. A fraction above zero gets at least one row,
    /// and one row at least is left for training.
    pub fn random(rows: usize, valid_fraction: f64, test_fraction: f64, seed: u64) -> Result<Split> {
        let count = check(rows, valid_fraction, test_fraction)?;
        let share = |fraction: f64| match fraction {
            0.0 => 0,
            _ => ((fraction * rows as f64).round() as usize).max(1),
        };
        let (mut valid, mut test) = (share(valid_fraction), share(test_fraction));
        while valid + test >= rows {
            // Rounding up took the last training row: the larger part gives one back.
            *(if valid > test { &mut valid } else { &mut test }) -= 1;
        }

        let mut order = permutation(count, seed);
        let mut train = order.split_off(valid + test);
        let mut test = order.split_off(valid);
        let mut valid = order;
        for part in [&mut train, &mut valid, &mut test] {
            part.sort_unstable();
            part.shrink_to_fit();
        }
        Ok(Split { train, valid, test })
    }

    /// `folds` splits whose test parts are disjoint and together hold every row; of the other rows of each, as many
    /// as a test part has are for validation.
    pub fn folds(rows: usize, folds: usize, seed: u64) -> Result<Vec<Split>> {
        if folds < 3 || rows < folds {
            return Err(Error::setting(
                "folds",
                format!("{folds} parts of {rows} rows: 3 parts at the least"),
            ));
        }
        let order = permutation(check(rows, 0.0, 0.0)?, seed);
        let part = |fold: usize| {
            let fold = fold % folds;
            let mut part = order[fold * rows / folds..(fold + 1) * rows / folds].to_vec();
            part.sort_unstable();
            part
        };
        Ok((0..folds)
            .map(|fold| {
                let mut train: Vec<u32> = (2..folds).flat_map(|further| part(fold + further)).collect();
                train.sort_unstable();
                Split { train, valid: part(fold + 1), test: part(fold) }
            })
            .collect())
    }

    /// Splits `rows` rows as scikit-learn's `train_test_split(…, random_state=seed)` does when applied twice, both
    /// times with the same seed: ⌈`test_fraction` · rows⌉ test rows first, then ⌈`valid_fraction` · rows⌉ validation
    /// rows from the rest. The parts are in the order drawn. A fraction of zero leaves its call out.
    pub fn sklearn(rows: usize, valid_fraction: f64, test_fraction: f64, seed: u64) -> Result<Split> {
        check(rows, valid_fraction, test_fraction)?;
        let seed = u32::try_from(seed).map_err(|_| {
            Error::setting(
                "seed",
                format!("scikit-learn's split takes a seed of at most {}, not {seed}", u32::MAX),
            )
        })?;
        let share = |fraction: f64| (fraction * rows as f64).ceil() as usize;
        let (valid, test) = (share(valid_fraction), share(test_fraction));
        if valid + test >= rows {
            return Err(Error::Shape {
                what: "rows to split",
                expected: format!("more than {valid} for validation and {test} for the test"),
                got: rows.to_string(),
            });
        }
        let mut train: Vec<u32> = (0..rows as u32).collect();
        let mut take = |count: usize| {
            if count == 0 {
                return Vec::new(); // scikit-learn refuses an empty part: the call is left out
            }
            let order = Mt19937::new(seed).permutation(train.len() as u32);
            let mut drawn: Vec<u32> = order.into_iter().map(|place| train[place as usize]).collect();
            train = drawn.split_off(count);
            drawn
        };
        let test = take(test);
        let valid = take(valid);
        Ok(Split { train, valid, test })
    }
}

/// The numbers below `count` in random order.
fn permutation(count: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // Fisher–Yates, written out so that an update of `rand` cannot change anyone's split. The index
    // ⌊u (i+1) / 2⁶⁴⌋ is biased by less than 2⁻³² for tables this size.
    for i in (1..order.len()).rev() {
        let j = (u128::from(rng.next_u64()) * (i as u128 + 1)) >> 64;
        order.swap(i, j as usize);
    }
    order
}

/// The number of rows, if they suffice for the parts that the fractions ask for.
fn check(rows: usize, valid_fraction: f64, test_fraction: f64) -> Result<u32> {
    for (name, fraction) in [("valid_fraction", valid_fraction), ("test_fraction", test_fraction)] {
        if !(0.0..1.0).contains(&fraction) {
            return Err(Error::setting(name, format!("must be at least 0 and below 1, not {fraction}")));
        }
    }
    if valid_fraction + test_fraction >= 1.0 {
        let sum = valid_fraction + test_fraction;
        return Err(Error::setting(
            "valid_fraction",
            format!("together with `test_fraction` it is {sum}, which leaves no rows to train on"),
        ));
    }
    let count = u32::try_from(rows).map_err(|_| Error::Shape {
        what: "rows to split",
        expected: format!("at most {}", u32::MAX),
        got: rows.to_string(),
    })?;
    let needed = 1 + usize::from(valid_fraction > 0.0) + usize::from(test_fraction > 0.0);
    if rows < needed {
        return Err(Error::Shape {
            what: "rows to split",
            expected: format!("at least {needed}, one for each part"),
            got: rows.to_string(),
        });
    }
    Ok(count)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};

    /// Rows; sizes of the parts; first test row; SHA-256 of all indices, train, valid and test in the order drawn,
    /// as little-endian 32-bit words.
    const PUBLISHED: [(usize, [usize; 3], u32, &str); 6] = [
        (5875, [4699, 588, 588], 5366, "4a7fbcf6a832225ec1678e45af7b926c458c09dc762ba3bd358e3ab1e79734ce"),
        (4898, [3918, 490, 490], 4656, "d5f89c8493e1ab5165e1898f84383503ddaa8e6d5d0a67d0d2f3f0f3e812802b"),
        (1599, [1279, 160, 160], 803, "14c94b7d89666bf0d341b4ccf3b45b5745791592a32278ccf6db5bae6871cf66"),
        (1030, [824, 103, 103], 31, "efd589688408fca57fd2425ea0f0d162f6dc4eca22311a8d137674d7099a4603"),
        (768, [614, 77, 77], 668, "78e56139670f06416edb0ee38dd1680c605844721a9bda9b6babfd49e85c18c5"),
        (308, [246, 31, 31], 288, "f23d416203f877492b0a9212fe4ac9dc87e20e6fa450cef6351614f602f34a47"),
    ];

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

    #[test]
    fn the_published_uci_splits_come_out() {
        for (rows, sizes, first, hash) in PUBLISHED {
            let split = Split::sklearn(rows, 0.1, 0.1, 42).unwrap();
            assert_eq!([split.train.len(), split.valid.len(), split.test.len()], sizes);
            assert_eq!(split.test[0], first);
            let all = [split.train, split.valid, split.test].concat();
            let bytes: Vec<u8> = all.iter().flat_map(|row| row.to_le_bytes()).collect();
            assert_eq!(super::super::table::hexadecimal(&Sha256::digest(bytes)), hash, "{rows} rows");
        }
    }

    #[test]
    fn sklearn_parts_may_be_empty_and_bad_requests_are_errors() {
        let split = Split::sklearn(10, 0.0, 0.3, 42).unwrap();
        assert_eq!((split.test, split.valid.len()), (vec![8, 1, 5], 0));
        assert_eq!(split.train, [0, 7, 2, 9, 4, 3, 6]);
        assert_eq!(Split::sklearn(3, 0.0, 0.0, 1).unwrap().train, [0, 1, 2]);
        let problem =
            |rows, valid, test, seed| Split::sklearn(rows, valid, test, seed).unwrap_err().to_string();
        assert!(problem(9, 0.1, 0.1, 1 << 32).starts_with("setting seed: scikit-learn's split takes"));
        assert!(problem(4, 0.3, 0.3, 1).contains("more than 2 for validation and 2 for the test, got 4"));
        assert!(problem(2, 0.1, 0.1, 1).contains("at least 3"));
    }

    proptest! {
        #[test]
        fn folds_test_every_row_once(rows in 3_usize..200, folds in 3_usize..12, seed: u64) {
            prop_assume!(rows >= folds);
            let splits = Split::folds(rows, folds, seed).unwrap();
            let mut tested: Vec<u32> = splits.iter().flat_map(|split| split.test.clone()).collect();
            tested.sort_unstable();
            prop_assert_eq!(tested, (0..rows as u32).collect::<Vec<_>>());
            for split in splits {
                let mut all = [split.train, split.valid, split.test].concat();
                all.sort_unstable();
                prop_assert_eq!(all, (0..rows as u32).collect::<Vec<_>>());
            }
        }

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
