// SPDX-License-Identifier: Apache-2.0
//! Which packets of a session have been seen, so that none counts twice.

/// The sequence numbers seen: the highest and the 32 before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    highest: u32,
    /// Bit `n` stands for `highest - 1 - n`.
    before: u32,
}

impl Window {
    /// Whether a packet with this number is new; it is not afterwards. A packet from before the
    /// window counts as seen. A leap ahead is taken: the number is signed, and BMCs leap.
    pub(crate) fn accepts(&mut self, sequence: u32) -> bool {
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            self.before = self.before.checked_shl(ahead).unwrap_or(0);
            // The highest so far moves into the bits, unless there was none.
            if self.highest != 0 {
                self.before |= 1u32.checked_shl(ahead - 1).unwrap_or(0);
            }
            self.highest = sequence;
            return true;
        }
        let Some(behind) = (self.highest - sequence).checked_sub(1) else { return false };
        let Some(bit) = 1u32.checked_shl(behind) else { return false };
        let new = self.before & bit == 0 && sequence != 0;
        self.before |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn in_order_twice_and_late() {
        let mut window = Window::default();
        let seen = [1, 1, 2, 5, 4, 4, 3, 40, 8, 7, 8, 1_000, 40, 0];
        let new: Vec<_> = seen.iter().map(|sequence| window.accepts(*sequence)).collect();
        let wanted = [
            true, false, true, true, true, false, true, true, true, false, false, true, false,
            false,
        ];
        assert_eq!(new, wanted);
    }

    proptest! {
        #[test]
        fn nothing_counts_twice(sequences in proptest::collection::vec(0u32..80, 0..200)) {
            let mut window = Window::default();
            let mut seen = HashSet::new();
            let mut highest = 0;
            for sequence in sequences {
                let new = window.accepts(sequence);
                let first = seen.insert(sequence);
                let within = sequence > highest || highest - sequence <= 32;
                prop_assert_eq!(new, first && within && sequence != 0);
                highest = highest.max(sequence);
            }
        }
    }
}
