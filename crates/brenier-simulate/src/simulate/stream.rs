//! Random streams: one of its own for every row of a table and every proposal of a search, whatever thread runs it.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The generator a simulator draws from.
///
/// xoshiro256++ costs a nanosecond a number, a quarter of ChaCha8; its 256-bit state comes from ChaCha8 under the
/// run's seed and the row's number, so the streams of two rows have nothing to do with one another.
pub type Stream = Xoshiro256PlusPlus;

/// The streams of one purpose under one seed.
#[derive(Clone, Debug)]
pub struct Streams(ChaCha8Rng);

impl Streams {
    /// Streams for `purpose`, so that, say, a pilot run and round 3 of a search share no numbers.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut root = ChaCha8Rng::seed_from_u64(seed);
        root.set_stream(purpose);
        let mut key = [0; 32];
        root.fill_bytes(&mut key);
        Self(ChaCha8Rng::from_seed(key))
    }

    /// The stream number `index`.
    pub fn get(&self, index: u64) -> Stream {
        let mut source = self.0.clone();
        source.set_stream(index);
        let mut state = [0; 32];
        source.fill_bytes(&mut state);
        Stream::from_seed(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_purpose_and_index_and_by_nothing_else() {
        let first = |seed, purpose, index| Streams::new(seed, purpose).get(index).next_u64();
        assert_eq!(first(1, 2, 3), first(1, 2, 3));
        let numbers = [first(1, 2, 3), first(0, 2, 3), first(1, 0, 3), first(1, 2, 0), first(1, 3, 2)];
        for (i, a) in numbers.iter().enumerate() {
            assert!(numbers[i + 1..].iter().all(|b| a != b), "{numbers:?}");
        }
    }
}
