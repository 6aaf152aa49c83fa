// SPDX-License-Identifier: Apache-2.0
//! The addresses of the machine's own BMC, asked over the IPMI device of the kernel.

use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::kernel::IpmiDevice;
use crate::tree::Tree;

/// The addresses of a BMC. All are missing where the kernel has no IPMI device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bmc {
    /// IPv4; `0.0.0.0` if the BMC has none.
    pub v4: Option<String>,
    /// IPv6; `::/0` if the BMC has none.
    pub v6: Option<String>,
    /// Hardware address of the card its address is on.
    pub mac: Option<String>,
}

/// A BMC answers in milliseconds; one that does not for this long is hung, and is not asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Channels of other numbers are the IPMB, the system interface and reserved ones.
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;

/// Finds the addresses, if the kernel has an IPMI device.
pub(crate) fn detect(tree: &Tree) -> Bmc {
    let Some(device) = device(tree) else { return Bmc::default() };
    let found =
        OpenOptions::new().read(true).write(true).open(tree.path(device)).and_then(|file| {
            let mut device = IpmiDevice::new(file);
            ask(&mut |function, command, data| device.request(function, command, data, PATIENCE))
        });
    found.unwrap_or_else(|_| Found::default()).into_bmc()
}

fn device(tree: &Tree) -> Option<String> {
    let plain = tree.names("dev").into_iter().filter(|name| name.starts_with("ipmi"));
    let plain = plain.map(|name| format!("dev/{name}"));
    let inside = ["dev/ipmi", "dev/ipmidev"].into_iter().flat_map(|folder| {
        tree.names(folder).into_iter().map(move |name| format!("{folder}/{name}"))
    });
    plain.chain(inside).find(|path| tree.is_character_device(path))
}

/// Sends a network function, a command and data; gives the completion code and what follows it.
type Ask<'a> = &'a mut dyn FnMut(u8, u8, &[u8]) -> io::Result<Vec<u8>>;

#[derive(Default)]
struct Found {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    mac: Option<[u8; 6]>,
}

impl Found {
    fn into_bmc(self) -> Bmc {
        let mac = self.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        Bmc {
            v4: Some(self.v4.unwrap_or(Ipv4Addr::UNSPECIFIED).to_string()),
            v6: Some(self.v6.map_or_else(|| "::/0".to_owned(), |address| address.to_string())),
            mac,
        }
    }
}

/// Goes through the channels until all is known. An error is one of the device, not of a command.
fn ask(ask: Ask<'_>) -> io::Result<Found> {
    let mut found = Found::default();
    for channel in CHANNELS {
        if !is_lan(ask, channel)? {
            continue;
        }
        let v4 = parameter(ask, channel, Parameter::ADDRESS, 0)?
            .and_then(|data| data.first_chunk().copied())
            .map(Ipv4Addr::from)
            .filter(|address| !address.is_unspecified());
        let v6 = v6_addresses(ask, channel)?;
        let global = v6.iter().find(|address| !address.is_unicast_link_local()).copied();
        let mac = parameter(ask, channel, Parameter::MAC, 0)?
            .and_then(|data| data.first_chunk::<6>().copied())
            .filter(|mac| *mac != [0; 6]);
        // A channel without an address is not the one the BMC is reached at.
        if found.mac.is_none() && (v4.is_some() || global.is_some()) {
            found.mac = mac;
        }
        found.v4 = found.v4.or(v4);
        found.v6 = found.v6.or(v6.first().copied());
        if found.v4.is_some() && found.v6.is_some() && found.mac.is_some() {
            break;
        }
    }
    Ok(found)
}

/// Numbers of LAN configuration parameters.
struct Parameter;

impl Parameter {
    const ADDRESS: u8 = 3;
    const MAC: u8 = 5;
    const V6_ENABLES: u8 = 51;
    const V6_STATUS: u8 = 55;
    const V6_STATIC: u8 = 56;
    const V6_DYNAMIC: u8 = 59;
}

const APPLICATION: u8 = 0x06;
const TRANSPORT: u8 = 0x0c;
const GET_CHANNEL_INFO: u8 = 0x42;
const GET_LAN_PARAMETER: u8 = 0x02;
const COMPLETED: u8 = 0;

fn is_lan(ask: Ask<'_>, channel: u8) -> io::Result<bool> {
    const LAN: u8 = 4;
    const OTHER_LAN: u8 = 6;
    let answer = ask(APPLICATION, GET_CHANNEL_INFO, &[channel])?;
    Ok(answer.first() == Some(&COMPLETED)
        && answer.get(2).is_some_and(|medium| matches!(medium & 0x7f, LAN | OTHER_LAN)))
}

/// A parameter's data, without completion code and revision; nothing if the BMC has no such.
fn parameter(ask: Ask<'_>, channel: u8, number: u8, set: u8) -> io::Result<Option<Vec<u8>>> {
    let answer = ask(TRANSPORT, GET_LAN_PARAMETER, &[channel, number, set, 0])?;
    let data = answer.get(2..).filter(|_| answer.first() == Some(&COMPLETED));
    Ok(data.map(<[u8]>::to_vec))
}

/// The active IPv6 addresses: those it got by itself before those it was given.
fn v6_addresses(ask: Ask<'_>, channel: u8) -> io::Result<Vec<Ipv6Addr>> {
    const V4_ONLY: u8 = 0;
    /// More than any BMC has; each is one question.
    const MOST: u8 = 16;
    let enables = parameter(ask, channel, Parameter::V6_ENABLES, 0)?;
    if enables.and_then(|data| data.first().copied()).unwrap_or(V4_ONLY) == V4_ONLY {
        return Ok(Vec::new());
    }
    let status = parameter(ask, channel, Parameter::V6_STATUS, 0)?.unwrap_or_default();
    let count = |at: usize| status.get(at).copied().unwrap_or(1).min(MOST);
    let kinds = [
        (Parameter::V6_DYNAMIC, count(1), is_dynamic as fn(u8) -> bool),
        (Parameter::V6_STATIC, count(0), is_enabled as fn(u8) -> bool),
    ];
    let mut addresses = Vec::new();
    for (kind, count, counts) in kinds {
        for set in 0..count {
            let data = parameter(ask, channel, kind, set)?.unwrap_or_default();
            addresses.extend(v6_address(&data, counts));
        }
    }
    Ok(addresses)
}

fn is_dynamic(source: u8) -> bool {
    const SLAAC: u8 = 1;
    const DHCP: u8 = 2;
    matches!(source & 0xf, SLAAC | DHCP)
}

fn is_enabled(source: u8) -> bool {
    source & 0x80 != 0
}

/// Set number, source, address, prefix length, state.
fn v6_address(data: &[u8], counts: fn(u8) -> bool) -> Option<Ipv6Addr> {
    const ACTIVE: u8 = 0;
    let source = *data.get(1)?;
    let address = Ipv6Addr::from(*data.get(2..)?.first_chunk::<16>()?);
    let state = *data.get(19)?;
    (state == ACTIVE && counts(source) && !address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, set and value of a parameter.
    type Set<'s> = (u8, u8, &'s [u8]);

    /// A BMC whose LAN channels have these parameters.
    fn check(channels: &[(u8, &[Set<'_>])], expected: [&str; 3]) {
        let mut asked = |function: u8, command: u8, data: &[u8]| {
            let Some((_, parameters)) = channels.iter().find(|(number, _)| *number == data[0])
            else {
                return Ok(vec![0xcc]);
            };
            Ok(match (function, command) {
                (APPLICATION, GET_CHANNEL_INFO) => vec![0, data[0], 4, 1, 0],
                (TRANSPORT, GET_LAN_PARAMETER) => parameters
                    .iter()
                    .find(|(number, set, _)| (*number, *set) == (data[1], data[2]))
                    .map_or(vec![0x80], |(_, _, value)| [&[0, 0x11], *value].concat()),
                _ => vec![0xc1],
            })
        };
        let bmc = ask(&mut asked).unwrap().into_bmc();
        let shown = [bmc.v4, bmc.v6, bmc.mac].map(|field| field.unwrap_or_default());
        assert_eq!(shown, expected);
    }

    fn address(source: u8, address: &str, state: u8) -> Vec<u8> {
        let address: Ipv6Addr = address.parse().unwrap();
        [&[0, source], &address.octets()[..], &[64, state]].concat()
    }

    const MAC: Set<'_> = (5, 0, &[0xd0, 0x94, 0x66, 0, 0, 1]);

    #[test]
    fn a_bmc_with_one_card() {
        check(&[(1, &[(3, 0, &[10, 0, 0, 5]), MAC])], ["10.0.0.5", "::/0", "d0:94:66:00:00:01"]);
    }

    #[test]
    fn the_channel_that_has_an_address_counts() {
        check(
            &[
                (1, &[(3, 0, &[0, 0, 0, 0]), (5, 0, &[2, 0, 0, 0, 0, 9])]),
                (8, &[(3, 0, &[192, 0, 2, 7]), MAC]),
            ],
            ["192.0.2.7", "::/0", "d0:94:66:00:00:01"],
        );
    }

    #[test]
    fn a_bmc_with_nothing_but_ipv6() {
        let (linked, global) = (address(0x80, "fe80::1", 0), address(0x82, "2001:db8::5", 0));
        check(
            &[(1, &[(51, 0, &[1]), (55, 0, &[1, 1, 0]), (59, 0, &global), (56, 0, &linked), MAC])],
            ["0.0.0.0", "2001:db8::5", "d0:94:66:00:00:01"],
        );
    }

    #[test]
    fn addresses_that_are_off_or_pending_do_not_count() {
        let (off, pending) = (address(0x00, "2001:db8::1", 0), address(0x82, "2001:db8::2", 3));
        check(
            &[(1, &[(51, 0, &[2]), (55, 0, &[1, 1, 0]), (56, 0, &off), (59, 0, &pending), MAC])],
            ["0.0.0.0", "::/0", ""],
        );
    }

    #[test]
    fn a_bmc_with_no_lan() {
        check(&[], ["0.0.0.0", "::/0", ""]);
    }
}
