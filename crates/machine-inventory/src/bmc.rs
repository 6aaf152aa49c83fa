// SPDX-License-Identifier: Apache-2.0
//! Addresses of the machine's own BMC, queried over the kernel's IPMI device.

use std::fs::OpenOptions;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::kernel_files::KernelFiles;
use crate::syscalls::IpmiDevice;

/// Addresses of a BMC; all are `None` if the kernel has no IPMI device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BmcAddresses {
    /// IPv4 address; `0.0.0.0` if the BMC has none.
    pub ipv4: Option<String>,
    /// IPv6 address; `::/0` if the BMC has none.
    pub ipv6: Option<String>,
    /// MAC address of the channel that has the address.
    pub mac: Option<String>,
}

/// A BMC responds in milliseconds. After this time it is considered hung and is not queried again.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The remaining channel numbers are IPMB, system interface and reserved.
const CHANNELS: std::ops::RangeInclusive<u8> = 1..=11;

/// Queries the addresses if the kernel has an IPMI device.
pub(crate) fn detect(files: &KernelFiles) -> BmcAddresses {
    let Some(device) = find_device(files) else { return BmcAddresses::default() };
    let found =
        OpenOptions::new().read(true).write(true).open(files.absolute(device)).and_then(|file| {
            let mut device = IpmiDevice::new(file);
            query_addresses(&mut |function, command, data| {
                device.request(function, command, data, RESPONSE_TIMEOUT)
            })
        });
    found.unwrap_or_else(|_| DetectedAddresses::default()).into_bmc_addresses()
}

fn find_device(files: &KernelFiles) -> Option<String> {
    let top_level = files.file_names("dev").into_iter().filter(|name| name.starts_with("ipmi"));
    let top_level = top_level.map(|name| format!("dev/{name}"));
    let nested = ["dev/ipmi", "dev/ipmidev"].into_iter().flat_map(|directory| {
        files.file_names(directory).into_iter().map(move |name| format!("{directory}/{name}"))
    });
    top_level.chain(nested).find(|path| files.is_character_device(path))
}

/// Sends network function, command and data; returns the completion code and the response data.
type SendIpmiRequest<'a> = &'a mut dyn FnMut(u8, u8, &[u8]) -> io::Result<Vec<u8>>;

#[derive(Default)]
struct DetectedAddresses {
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    mac: Option<[u8; 6]>,
}

impl DetectedAddresses {
    fn into_bmc_addresses(self) -> BmcAddresses {
        let mac = self.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
        BmcAddresses {
            ipv4: Some(self.ipv4.unwrap_or(Ipv4Addr::UNSPECIFIED).to_string()),
            ipv6: Some(self.ipv6.map_or_else(|| "::/0".to_owned(), |address| address.to_string())),
            mac,
        }
    }
}

/// Queries the channels until all addresses are known. Fails only on device errors.
fn query_addresses(send: SendIpmiRequest<'_>) -> io::Result<DetectedAddresses> {
    let mut found = DetectedAddresses::default();
    for channel in CHANNELS {
        if !is_lan(send, channel)? {
            continue;
        }
        let ipv4 = lan_parameter(send, channel, LanParameter::ADDRESS, 0)?
            .and_then(|data| data.first_chunk().copied())
            .map(Ipv4Addr::from)
            .filter(|address| !address.is_unspecified());
        let ipv6 = ipv6_addresses(send, channel)?;
        let global = ipv6.iter().find(|address| !address.is_unicast_link_local()).copied();
        let mac = lan_parameter(send, channel, LanParameter::MAC, 0)?
            .and_then(|data| data.first_chunk::<6>().copied())
            .filter(|mac| *mac != [0; 6]);
        // A channel without an address is not the one the BMC is reached at.
        if found.mac.is_none() && (ipv4.is_some() || global.is_some()) {
            found.mac = mac;
        }
        found.ipv4 = found.ipv4.or(ipv4);
        found.ipv6 = found.ipv6.or(ipv6.first().copied());
        if found.ipv4.is_some() && found.ipv6.is_some() && found.mac.is_some() {
            break;
        }
    }
    Ok(found)
}

/// LAN configuration parameter numbers.
struct LanParameter;

impl LanParameter {
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

fn is_lan(send: SendIpmiRequest<'_>, channel: u8) -> io::Result<bool> {
    const LAN: u8 = 4;
    const OTHER_LAN: u8 = 6;
    let response = send(APPLICATION, GET_CHANNEL_INFO, &[channel])?;
    Ok(response.first() == Some(&COMPLETED)
        && response.get(2).is_some_and(|medium| matches!(medium & 0x7f, LAN | OTHER_LAN)))
}

/// Returns a parameter's data without completion code and revision; `None` if unsupported.
fn lan_parameter(
    send: SendIpmiRequest<'_>,
    channel: u8,
    number: u8,
    set: u8,
) -> io::Result<Option<Vec<u8>>> {
    let response = send(TRANSPORT, GET_LAN_PARAMETER, &[channel, number, set, 0])?;
    let data = response.get(2..).filter(|_| response.first() == Some(&COMPLETED));
    Ok(data.map(<[u8]>::to_vec))
}

/// Returns the active IPv6 addresses: dynamic ones before static ones.
fn ipv6_addresses(send: SendIpmiRequest<'_>, channel: u8) -> io::Result<Vec<Ipv6Addr>> {
    const V4_ONLY: u8 = 0;
    /// Bound on queries; each address takes one.
    const MAX_ADDRESSES: u8 = 16;
    let enables = lan_parameter(send, channel, LanParameter::V6_ENABLES, 0)?;
    if enables.and_then(|data| data.first().copied()).unwrap_or(V4_ONLY) == V4_ONLY {
        return Ok(Vec::new());
    }
    let status = lan_parameter(send, channel, LanParameter::V6_STATUS, 0)?.unwrap_or_default();
    let count = |at: usize| status.get(at).copied().unwrap_or(1).min(MAX_ADDRESSES);
    let address_parameters = [
        (LanParameter::V6_DYNAMIC, count(1), is_dynamic as fn(u8) -> bool),
        (LanParameter::V6_STATIC, count(0), is_enabled as fn(u8) -> bool),
    ];
    let mut addresses = Vec::new();
    for (parameter, count, is_usable) in address_parameters {
        for set in 0..count {
            let data = lan_parameter(send, channel, parameter, set)?.unwrap_or_default();
            addresses.extend(parse_ipv6_address(&data, is_usable));
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

/// Parses set selector, source, address, prefix length and status.
fn parse_ipv6_address(data: &[u8], is_usable: fn(u8) -> bool) -> Option<Ipv6Addr> {
    const ACTIVE: u8 = 0;
    let source = *data.get(1)?;
    let address = Ipv6Addr::from(*data.get(2..)?.first_chunk::<16>()?);
    let state = *data.get(19)?;
    (state == ACTIVE && is_usable(source) && !address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number, set selector and value of a LAN parameter.
    type LanParameterValue<'s> = (u8, u8, &'s [u8]);

    /// Checks the addresses found on a BMC whose LAN channels have these parameters.
    fn check_addresses(channels: &[(u8, &[LanParameterValue<'_>])], expected: [&str; 3]) {
        let mut simulated_bmc = |function: u8, command: u8, data: &[u8]| {
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
        let bmc = query_addresses(&mut simulated_bmc).unwrap().into_bmc_addresses();
        let shown = [bmc.ipv4, bmc.ipv6, bmc.mac].map(|field| field.unwrap_or_default());
        assert_eq!(shown, expected);
    }

    fn address(source: u8, address: &str, state: u8) -> Vec<u8> {
        let address: Ipv6Addr = address.parse().unwrap();
        [&[0, source], &address.octets()[..], &[64, state]].concat()
    }

    const MAC_PARAMETER: LanParameterValue<'_> = (5, 0, &[0xd0, 0x94, 0x66, 0, 0, 1]);

    #[test]
    fn reports_addresses_of_single_lan_channel() {
        check_addresses(
            &[(1, &[(3, 0, &[10, 0, 0, 5]), MAC_PARAMETER])],
            ["10.0.0.5", "::/0", "d0:94:66:00:00:01"],
        );
    }

    #[test]
    fn uses_first_channel_with_address() {
        check_addresses(
            &[
                (1, &[(3, 0, &[0, 0, 0, 0]), (5, 0, &[2, 0, 0, 0, 0, 9])]),
                (8, &[(3, 0, &[192, 0, 2, 7]), MAC_PARAMETER]),
            ],
            ["192.0.2.7", "::/0", "d0:94:66:00:00:01"],
        );
    }

    #[test]
    fn reports_ipv6_only_bmc() {
        let (link_local, global) = (address(0x80, "fe80::1", 0), address(0x82, "2001:db8::5", 0));
        check_addresses(
            &[(
                1,
                &[
                    (51, 0, &[1]),
                    (55, 0, &[1, 1, 0]),
                    (59, 0, &global),
                    (56, 0, &link_local),
                    MAC_PARAMETER,
                ],
            )],
            ["0.0.0.0", "2001:db8::5", "d0:94:66:00:00:01"],
        );
    }

    #[test]
    fn ignores_disabled_and_pending_addresses() {
        let (off, pending) = (address(0x00, "2001:db8::1", 0), address(0x82, "2001:db8::2", 3));
        check_addresses(
            &[(
                1,
                &[
                    (51, 0, &[2]),
                    (55, 0, &[1, 1, 0]),
                    (56, 0, &off),
                    (59, 0, &pending),
                    MAC_PARAMETER,
                ],
            )],
            ["0.0.0.0", "::/0", ""],
        );
    }

    #[test]
    fn reports_unspecified_addresses_without_lan_channel() {
        check_addresses(&[], ["0.0.0.0", "::/0", ""]);
    }
}
