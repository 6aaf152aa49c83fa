// SPDX-License-Identifier: Apache-2.0
//! Reproducible random numbers: the seed is printed and can be set.

use std::time::SystemTime;

/// SplitMix64, which is random enough to choose delays and nodes.
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Uses `FERRITE_TEST_SEED` or the clock as seed, and prints it.
    pub(crate) fn seeded() -> Self {
        let seed = match std::env::var("FERRITE_TEST_SEED") {
            Ok(seed) => seed.parse().expect("FERRITE_TEST_SEED is a number"),
            Err(_) => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
                u64::from(now.subsec_nanos()) ^ now.as_secs() << 20
            }
        };
        println!("FERRITE_TEST_SEED={seed}");
        Self(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}
