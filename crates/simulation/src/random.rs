// SPDX-License-Identifier: Apache-2.0
//! Numbers that are determined by a seed.

use std::time::Duration;

/// A sequence of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct SimulationRandom(u64);

impl SimulationRandom {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// An index of a list with `length` elements.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length.max(1) as u64)).unwrap_or(0)
    }

    /// Whether an event with this probability happens.
    pub(crate) fn happens(&mut self, per_thousand: u64) -> bool {
        self.below(1000) < per_thousand
    }

    /// A time between the two numbers of milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}
