//! Random streams and random orders whose bits do not depend on the version of a library.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// 0, 1, …, `count` − 1 in random order: Fisher–Yates, written out so that an update of `rand` changes no result.
pub fn shuffled(count: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(count).expect("fewer than 2³² rows")).collect();
    for i in (1..count).rev() {
        order.swap(i, below(i + 1, rng));
    }
    order
}

/// A random whole number below `end`.
pub fn below(end: usize, rng: &mut ChaCha8Rng) -> usize {
    ((u128::from(rng.next_u64()) * end as u128) >> 64) as usize
}

/// A stream of random numbers of its own for task `stream` of the run with `seed`.
pub fn stream(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    rng
}
