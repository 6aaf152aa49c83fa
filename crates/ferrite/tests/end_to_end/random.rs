// SPDX-License-Identifier: Apache-2.0
//! Random numbers that can be repeated: the seed is printed, and can be given.

use std::time::SystemTime;

/// SplitMix64: small, and random enough to pick moments and nodes.
pub(crate) struct Random(u64);

impl Random {
    /// From `FERRITE_TEST_SEED` if it is set, otherwise from the clock. Says which.
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
