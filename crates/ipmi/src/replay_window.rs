// SPDX-License-Identifier: Apache-2.0
//! Detects duplicate packets of a session.

/// The highest received sequence number and the 32 before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplayWindow {
    highest: u32,
    /// Bit `n` is the number `highest - 1 - n`.
    before: u32,
}

impl ReplayWindow {
    /// Records a sequence number; returns whether it is new. Numbers before the window count as seen. A
    /// jump ahead is accepted: the number is signed, and BMCs do jump.
    pub(crate) fn accepts(&mut self, sequence: u32) -> bool {
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            self.before = self.before.checked_shl(ahead).unwrap_or(0);
            // The previous highest number moves into the bits, unless there was none.
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
    fn accepts_each_number_once_and_in_any_order() {
        let mut window = ReplayWindow::default();
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
        fn never_accepts_a_number_twice(sequences in proptest::collection::vec(0u32..80, 0..200)) {
            let mut window = ReplayWindow::default();
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
