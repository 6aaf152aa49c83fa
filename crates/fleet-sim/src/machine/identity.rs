// SPDX-License-Identifier: Apache-2.0
//! Serial number, UUID, MACs and other values that identify a simulated machine.
//!
//! All are derived from the machine's index and the fleet's seed, so nothing is stored and a
//! restarted fleet has the same machines.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use node_model::Mac;

/// Identifies one machine of one fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineIdentity {
    /// The index in the fleet, from 0.
    pub index: u32,
    /// The fleet's seed; it determines serial numbers, UUIDs and MACs.
    pub seed: u64,
}

/// Hash input that separates the values derived for one machine.
#[derive(Clone, Copy)]
enum HashPurpose {
    UuidHigh = 1,
    UuidLow,
    Serial,
    Part,
    Jitter,
    Reading,
    Token,
}

impl MachineIdentity {
    /// Returns the machine's UUID, a valid version 4 UUID.
    #[must_use]
    pub fn uuid(self) -> String {
        let high = (self.derived_number(HashPurpose::UuidHigh, 0) & !0xf000) | 0x4000;
        let low = (self.derived_number(HashPurpose::UuidLow, 0) & (u64::MAX >> 2)) | (1 << 63);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Returns the serial number: the vendor's prefix, the index, and three characters of the seed.
    #[must_use]
    pub fn serial(self, prefix: &str) -> String {
        let mut text = prefix.to_owned();
        push_base36(&mut text, u64::from(self.index), 4);
        push_base36(&mut text, self.derived_number(HashPurpose::Serial, 0), 3);
        text
    }

    /// Returns the serial number of a part, such as drive 3.
    #[must_use]
    pub fn part_serial(self, part: u32) -> String {
        let mut text = String::from("P");
        push_base36(&mut text, self.derived_number(HashPurpose::Part, part), 9);
        text
    }

    /// Returns the MAC of a NIC port, unique in the fleet. `nic` 255 is the BMC's own port.
    #[must_use]
    pub fn mac(self, nic: u8) -> Mac {
        let [_, high, middle, low] = self.index.to_be_bytes();
        let [.., seed] = self.seed.to_be_bytes();
        let text = format!("02:{seed:02x}:{high:02x}:{middle:02x}:{low:02x}:{nic:02x}");
        text.parse().expect("six pairs of hexadecimal digits")
    }

    /// Returns the address of the first NIC, in 10.0.0.0/8. The last number is never 0 or 255, which are the
    /// network and the broadcast address of a /24 network.
    #[must_use]
    pub fn ipv4_address(self) -> Ipv4Addr {
        const HOSTS_PER_NETWORK: u32 = 254;
        let [_, _, high, middle] = (self.index / HOSTS_PER_NETWORK).to_be_bytes();
        let [.., low] = (self.index % HOSTS_PER_NETWORK + 1).to_be_bytes();
        Ipv4Addr::new(10, high, middle, low)
    }

    /// Returns a factor from 0.8 to 1.2 that differs between machines, so that they do not act in
    /// lockstep.
    #[must_use]
    pub fn jitter(self, what: u32) -> f64 {
        0.8 + 0.4 * fraction(self.derived_number(HashPurpose::Jitter, what))
    }

    /// Returns a number from 0 to 1 that differs in each time step: the variation of a sensor
    /// reading.
    pub(super) fn noise(self, sensor: u32, step: u64) -> f64 {
        fraction(mix(self.derived_number(HashPurpose::Reading, sensor) ^ step))
    }

    /// Returns a session token. It is predictable, which is acceptable for a simulation.
    pub(crate) fn session_token(self, session: u32) -> String {
        let first = self.derived_number(HashPurpose::Token, session);
        format!("{first:016x}{:016x}", mix(first))
    }

    fn derived_number(self, purpose: HashPurpose, which: u32) -> u64 {
        let input = (u64::from(self.index) << 32) | (u64::from(which) << 8) | purpose as u64;
        mix(mix(self.seed).wrapping_add(input))
    }
}

/// Hashes a number (the finaliser of SplitMix64).
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Maps the upper 32 bits to a number from 0 to 1.
pub(crate) fn fraction(number: u64) -> f64 {
    f64::from(u32::try_from(number >> 32).expect("a shifted u64 fits 32 bits"))
        / f64::from(u32::MAX)
}

fn push_base36(text: &mut String, mut number: u64, digits: u32) {
    for _ in 0..digits {
        let digit = u32::try_from(number % 36).expect("less than 36");
        let digit = char::from_digit(digit, 36).expect("less than 36");
        write!(text, "{}", digit.to_ascii_uppercase()).expect("writing to a string cannot fail");
        number /= 36;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn identities_are_unique_and_reproducible() {
        let mut seen = HashSet::new();
        for index in 0..3_000 {
            let machine = MachineIdentity { index, seed: 7 };
            assert!(seen.insert(machine.uuid()));
            assert!(seen.insert(machine.serial("S")));
            assert!(seen.insert(machine.mac(0).as_str().to_owned()));
            assert!(seen.insert(machine.mac(1).as_str().to_owned()));
            assert_eq!(machine.uuid(), MachineIdentity { index, seed: 7 }.uuid());
            assert!((0.8..=1.2).contains(&machine.jitter(1)));
        }
        assert_ne!(
            MachineIdentity { index: 0, seed: 7 }.uuid(),
            MachineIdentity { index: 0, seed: 8 }.uuid()
        );
    }

    #[test]
    fn addresses_are_those_of_hosts() {
        let address = |index| MachineIdentity { index, seed: 0 }.ipv4_address().to_string();
        let addresses = [0, 253, 254, 65_023, 65_024].map(address);
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.254", "10.0.1.1", "10.0.255.254", "10.1.0.1"]);
    }

    #[test]
    fn identifiers_are_well_formed() {
        let machine = MachineIdentity { index: 70_000, seed: 0 };
        let uuid = machine.uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
        assert_eq!(machine.mac(1).as_str(), "02:00:01:11:70:01");
        assert_eq!(machine.serial("CZ").len(), 9);
    }
}
