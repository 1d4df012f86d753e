//! The one source of chance: a small generator whose whole state comes from a seed.

/// xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
///
/// Our own, because a run must replay bit for bit for years and distributions of general-purpose crates
/// change between versions. Not for keys.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator for `seed`; nearby seeds give unrelated sequences.
    pub fn new(seed: u64) -> Self {
        let mut z = seed;
        let state = core::array::from_fn(|_| {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        });
        Self { state }
    }

    /// An independent generator for the part called `label` of this generator's owner.
    pub fn fork(&self, label: u64) -> Self {
        Self::new(self.state[0] ^ label.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)` with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `[0, bound)`; zero when `bound` is zero. The bias of at most `bound / 2^64` is accepted.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.unit() < p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut rng = Rng::new(1);
        let first: [u64; 3] = core::array::from_fn(|_| rng.next_u64());
        assert_eq!(first, [0xcfc5_d07f_6f03_c29b, 0xbf42_4132_963f_e08d, 0x19a3_7d57_57aa_f520]);
    }

    #[test]
    fn one_in_a_hundred_is_one_in_a_hundred() {
        let mut rng = Rng::new(7);
        let hits = (0..1_000_000).filter(|_| rng.chance(0.01)).count();
        assert!((9_700..10_300).contains(&hits), "{hits}");
    }
}
