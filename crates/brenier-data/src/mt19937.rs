//! NumPy's legacy random numbers, as far as scikit-learn's splits need them: MT19937 and its shuffle.
//!
//! Published experiments name their splits by a seed of this generator, so it is written out here and frozen. Nothing
//! else in the crate draws from it.

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// Matsumoto and Nishimura's Mersenne Twister, seeded as `numpy.random.RandomState(seed)` seeds it.
pub(super) struct Mt19937 {
    state: [u32; WORDS],
    next: usize,
}

impl Mt19937 {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for i in 1..WORDS {
            let before = state[i - 1];
            state[i] = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: WORDS }
    }

    /// The next 32 bits.
    pub(super) fn next_u32(&mut self) -> u32 {
        if self.next == WORDS {
            for i in 0..WORDS {
                let mixed = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % WORDS] & 0x7fff_ffff);
                let twist = if mixed & 1 == 0 { 0 } else { 0x9908_b0df };
                self.state[i] = self.state[(i + SHIFT) % WORDS] ^ (mixed >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A whole number from 0 to `most`, both included: words cut to the bits of `most` until one is not above it.
    fn up_to(&mut self, most: u32) -> u32 {
        let mask = u32::MAX.checked_shr(most.leading_zeros()).unwrap_or(0);
        loop {
            let word = self.next_u32() & mask;
            if word <= most {
                return word;
            }
        }
    }

    /// `RandomState.permutation(count)`: 0, …, count − 1, shuffled from the last place down.
    pub(super) fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for i in (1..count).rev() {
            order.swap(i as usize, self.up_to(i) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words() {
        // The reference program's seed 5489: the 10 000th word is named in the C++ standard.
        let mut generator = Mt19937::new(5489);
        assert_eq!(generator.next_u32(), 3_499_211_612);
        for _ in 0..9998 {
            generator.next_u32();
        }
        assert_eq!(generator.next_u32(), 4_123_659_995);
    }

    #[test]
    fn known_permutation() {
        // numpy.random.RandomState(42).permutation(10)
        assert_eq!(Mt19937::new(42).permutation(10), [8, 1, 5, 0, 7, 2, 9, 4, 3, 6]);
        assert_eq!(Mt19937::new(42).permutation(1), [0]);
        assert!(Mt19937::new(42).permutation(0).is_empty());
    }
}
