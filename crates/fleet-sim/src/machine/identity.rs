// SPDX-License-Identifier: Apache-2.0
//! What tells one simulated machine from another: serial number, UUID, MACs.
//!
//! All of it is computed from the machine's index and the fleet's seed, so nothing is stored and the
//! same fleet comes up again with the same machines.

use std::fmt::Write as _;

use node_model::Mac;

/// Which machine of which fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The place in the fleet, from 0.
    pub index: u32,
    /// The fleet's seed: other seeds give other serial numbers, UUIDs and MACs.
    pub seed: u64,
}

/// Keeps the different numbers of one machine apart.
#[derive(Clone, Copy)]
enum Purpose {
    UuidHigh = 1,
    UuidLow,
    Serial,
    Part,
    Jitter,
    Reading,
    Token,
}

impl Identity {
    /// The machine's UUID, well formed as a random one.
    #[must_use]
    pub fn uuid(self) -> String {
        let high = (self.number(Purpose::UuidHigh, 0) & !0xf000) | 0x4000;
        let low = (self.number(Purpose::UuidLow, 0) & (u64::MAX >> 2)) | (1 << 63);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// The serial number: the maker's prefix, the index, and three characters of the seed.
    #[must_use]
    pub fn serial(self, prefix: &str) -> String {
        let mut text = prefix.to_owned();
        push_base36(&mut text, u64::from(self.index), 4);
        push_base36(&mut text, self.number(Purpose::Serial, 0), 3);
        text
    }

    /// The serial number of a part, such as drive 3.
    #[must_use]
    pub fn part_serial(self, part: u32) -> String {
        let mut text = String::from("P");
        push_base36(&mut text, self.number(Purpose::Part, part), 9);
        text
    }

    /// The address of network card `card`; no two of a fleet are the same. `card` 255 is the BMC's.
    #[must_use]
    pub fn mac(self, card: u8) -> Mac {
        let [_, high, middle, low] = self.index.to_be_bytes();
        let [.., seed] = self.seed.to_be_bytes();
        let text = format!("02:{seed:02x}:{high:02x}:{middle:02x}:{low:02x}:{card:02x}");
        text.parse().expect("six pairs of hexadecimal digits")
    }

    /// Between 0.8 and 1.2, different from machine to machine: no two rooms of servers march in step.
    #[must_use]
    pub fn jitter(self, what: u32) -> f64 {
        0.8 + 0.4 * fraction(self.number(Purpose::Jitter, what))
    }

    /// Between 0 and 1, different from moment to moment: what a sensor's reading varies by.
    pub(super) fn noise(self, sensor: u32, step: u64) -> f64 {
        fraction(mix(self.number(Purpose::Reading, sensor) ^ step))
    }

    /// A session token. Nobody's secrets are behind it.
    pub(crate) fn token(self, session: u32) -> String {
        let first = self.number(Purpose::Token, session);
        format!("{first:016x}{:016x}", mix(first))
    }

    fn number(self, purpose: Purpose, which: u32) -> u64 {
        let place = (u64::from(self.index) << 32) | (u64::from(which) << 8) | purpose as u64;
        mix(mix(self.seed).wrapping_add(place))
    }
}

/// Spreads the bits of a number over the whole word (the finaliser of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The upper bits as a number from 0 up to 1.
pub(crate) fn fraction(number: u64) -> f64 {
    f64::from(u32::try_from(number >> 32).expect("32 bits are left")) / f64::from(u32::MAX)
}

fn push_base36(text: &mut String, mut number: u64, digits: u32) {
    for _ in 0..digits {
        let digit = u32::try_from(number % 36).expect("less than 36");
        let digit = char::from_digit(digit, 36).expect("less than 36");
        write!(text, "{}", digit.to_ascii_uppercase()).expect("a string takes everything");
        number /= 36;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn machines_differ_and_come_back_the_same() {
        let mut seen = HashSet::new();
        for index in 0..3_000 {
            let machine = Identity { index, seed: 7 };
            assert!(seen.insert(machine.uuid()));
            assert!(seen.insert(machine.serial("S")));
            assert!(seen.insert(machine.mac(0).as_str().to_owned()));
            assert!(seen.insert(machine.mac(1).as_str().to_owned()));
            assert_eq!(machine.uuid(), Identity { index, seed: 7 }.uuid());
            assert!((0.8..=1.2).contains(&machine.jitter(1)));
        }
        assert_ne!(Identity { index: 0, seed: 7 }.uuid(), Identity { index: 0, seed: 8 }.uuid());
    }

    #[test]
    fn they_are_well_formed() {
        let machine = Identity { index: 70_000, seed: 0 };
        let uuid = machine.uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        assert_eq!(machine.mac(1).as_str(), "02:00:01:11:70:01");
        assert_eq!(machine.serial("CZ").len(), 9);
    }
}
