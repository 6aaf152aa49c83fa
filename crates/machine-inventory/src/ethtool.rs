// SPDX-License-Identifier: Apache-2.0
//! Supported speeds of NICs, from the kernel's `ethtool` netlink family.
//!
//! IPA reports what `lshw` calls the capacity: the fastest supported mode, regardless of the current
//! link. Kernels before 5.6 lack this family; there only the current speed is available.

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
/// Flag of attributes that contain attributes (`NLA_F_NESTED`).
const NESTED: u16 = 0x8000;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// Requests bit sets as words instead of lists of names (`ETHTOOL_FLAG_COMPACT_BITSETS`).
const COMPACT: u32 = 1;
const BITSET_MASK: u16 = 5;

/// Returns the highest supported speed of every NIC that reports one, in Mbit/s.
pub(crate) fn max_link_speeds() -> BTreeMap<String, u64> {
    let mut speeds = BTreeMap::new();
    let Ok(generic) = Netlink::generic() else { return speeds };

    let mut request = vec![CONTROL_GET_FAMILY, 1, 0, 0];
    netlink::push_attribute(&mut request, CONTROL_FAMILY_NAME, b"ethtool\0");
    let mut family = None;
    let _ = generic.request(CONTROL_FAMILY, netlink::REQUEST, &request, |message| {
        let attributes = message.get(GENERIC_HEADER..).unwrap_or_default();
        family = netlink::attribute(attributes, CONTROL_FAMILY_ID)
            .and_then(|id| id.first_chunk())
            .map(|id| u16::from_ne_bytes(*id));
    });
    let Some(family) = family else { return speeds };

    let mut header = Vec::new();
    netlink::push_attribute(&mut header, HEADER_FLAGS, &COMPACT.to_ne_bytes());
    let mut request = vec![LINK_MODES_GET, 1, 0, 0];
    netlink::push_attribute(&mut request, NESTED | MODES_HEADER, &header);
    let _ = generic.request(family, netlink::DUMP, &request, |message| {
        if let Some((name, max_speed_mbps)) = parse_link_modes(message) {
            speeds.insert(name, max_speed_mbps);
        }
    });
    speeds
}

fn parse_link_modes(message: &[u8]) -> Option<(String, u64)> {
    let attributes = message.get(GENERIC_HEADER..)?;
    let header = netlink::attribute(attributes, MODES_HEADER)?;
    let name = netlink::attribute(header, HEADER_NAME).and_then(netlink::text_attribute)?;
    let ours = netlink::attribute(attributes, MODES_OURS)?;
    let supported = netlink::attribute(ours, BITSET_MASK)?;
    max_mode_speed(supported).map(|max_speed_mbps| (name, max_speed_mbps))
}

/// Returns the highest speed of the modes set in a bit set of 32-bit words.
fn max_mode_speed(supported: &[u8]) -> Option<u64> {
    let words = supported.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
    let bits = words.enumerate().flat_map(|(at, word)| {
        (0..32_usize).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 32 + bit)
    });
    bits.filter_map(link_mode_speed).max()
}

/// Returns the speed in Mbit/s of a link mode, numbered as in `ethtool_link_mode_bit_indices`. Numbers
/// not listed are port types and pause modes, or newer than this table.
fn link_mode_speed(mode: usize) -> Option<u64> {
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
    fn returns_fastest_supported_mode() {
        let bits = |modes: &[usize]| {
            let mut words = [0_u32; 3];
            for mode in modes {
                words[mode / 32] |= 1 << (mode % 32);
            }
            words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>()
        };
        assert_eq!(max_mode_speed(&bits(&[0, 1, 2, 3, 5, 6, 7])), Some(1_000));
        assert_eq!(max_mode_speed(&bits(&[17, 42, 32, 13])), Some(25_000));
        assert_eq!(max_mode_speed(&bits(&[6, 7, 13])), None, "port types have no speed");
        assert_eq!(max_mode_speed(&[]), None);
    }
}
