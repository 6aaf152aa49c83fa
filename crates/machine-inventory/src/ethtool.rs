// SPDX-License-Identifier: Apache-2.0
//! How fast network cards can be, from the kernel's `ethtool` family of netlink.
//!
//! The stock agent reports what `lshw` calls the capacity: the fastest of the modes the card supports,
//! whether or not the cable carries it. Kernels before 5.6 have no such family; there the speed of the
//! moment is all there is.

use std::collections::BTreeMap;

use crate::netlink::{self, Netlink};

const CONTROL_FAMILY: u16 = 16;
const CONTROL_GET_FAMILY: u8 = 3;
const CONTROL_FAMILY_ID: u16 = 1;
const CONTROL_FAMILY_NAME: u16 = 2;
const GENERIC_HEADER: usize = 4;

const LINK_MODES_GET: u8 = 4;
const MODES_HEADER: u16 = 1;
const MODES_OURS: u16 = 3;
/// An attribute that holds attributes must say so.
const NESTED: u16 = 0x8000;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Bits as words instead of a list of names.
const COMPACT: u32 = 1;
const BITSET_MASK: u16 = 5;

/// The fastest speed of every card that tells, in Mbit/s.
pub(crate) fn fastest_speeds() -> BTreeMap<String, u64> {
    let mut speeds = BTreeMap::new();
    let Ok(generic) = Netlink::generic() else { return speeds };

    let mut question = vec![CONTROL_GET_FAMILY, 1, 0, 0];
    netlink::push_attribute(&mut question, CONTROL_FAMILY_NAME, b"ethtool\0");
    let mut family = None;
    let _ = generic.ask(CONTROL_FAMILY, netlink::ONE, &question, |message| {
        let attributes = message.get(GENERIC_HEADER..).unwrap_or_default();
        family = netlink::attribute(attributes, CONTROL_FAMILY_ID)
            .and_then(|id| id.first_chunk())
            .map(|id| u16::from_ne_bytes(*id));
    });
    let Some(family) = family else { return speeds };

    let mut header = Vec::new();
    netlink::push_attribute(&mut header, HEADER_FLAGS, &COMPACT.to_ne_bytes());
    let mut question = vec![LINK_MODES_GET, 1, 0, 0];
    netlink::push_attribute(&mut question, NESTED | MODES_HEADER, &header);
    let _ = generic.ask(family, netlink::ALL, &question, |message| {
        if let Some((name, fastest)) = fastest_of(message) {
            speeds.insert(name, fastest);
        }
    });
    speeds
}

fn fastest_of(message: &[u8]) -> Option<(String, u64)> {
    let attributes = message.get(GENERIC_HEADER..)?;
    let header = netlink::attribute(attributes, MODES_HEADER)?;
    let name = netlink::attribute(header, HEADER_NAME).and_then(netlink::text)?;
    let ours = netlink::attribute(attributes, MODES_OURS)?;
    let supported = netlink::attribute(ours, BITSET_MASK)?;
    fastest_mode(supported).map(|fastest| (name, fastest))
}

/// The fastest of the modes whose bits are set, in words of 32 bits.
fn fastest_mode(supported: &[u8]) -> Option<u64> {
    let words = supported.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
    let bits = words.enumerate().flat_map(|(at, word)| {
        (0..32_usize).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 32 + bit)
    });
    bits.filter_map(speed_of_mode).max()
}

/// Mbit/s of a link mode, by the kernel's numbers for them (`ethtool_link_mode_bit_indices`).
/// Numbers between are no speeds but ports and pause frames, or newer than this table.
fn speed_of_mode(mode: usize) -> Option<u64> {
    const SPEEDS: [(std::ops::RangeInclusive<usize>, u64); 29] = [
        (0..=1, 10),
        (2..=3, 100),
        (4..=5, 1_000),
        (12..=12, 10_000),
        (15..=15, 2_500),
        (17..=17, 1_000),
        (18..=20, 10_000),
        (21..=22, 20_000),
        (23..=26, 40_000),
        (27..=30, 56_000),
        (31..=33, 25_000),
        (34..=35, 50_000),
        (36..=39, 100_000),
        (40..=40, 50_000),
        (41..=41, 1_000),
        (42..=46, 10_000),
        (47..=47, 2_500),
        (48..=48, 5_000),
        (52..=56, 50_000),
        (57..=61, 100_000),
        (62..=66, 200_000),
        (67..=67, 100),
        (68..=68, 1_000),
        (69..=73, 400_000),
        (75..=79, 100_000),
        (80..=84, 200_000),
        (85..=89, 400_000),
        (90..=91, 100),
        (93..=98, 800_000),
    ];
    SPEEDS.iter().find(|(modes, _)| modes.contains(&mode)).map(|(_, speed)| *speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_supported_mode_counts() {
        let bits = |modes: &[usize]| {
            let mut words = [0_u32; 3];
            for mode in modes {
                words[mode / 32] |= 1 << (mode % 32);
            }
            words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>()
        };
        assert_eq!(fastest_mode(&bits(&[0, 1, 2, 3, 5, 6, 7])), Some(1_000));
        assert_eq!(fastest_mode(&bits(&[17, 42, 32, 13])), Some(25_000));
        assert_eq!(fastest_mode(&bits(&[6, 7, 13])), None, "ports are no speed");
        assert_eq!(fastest_mode(&[]), None);
    }
}
