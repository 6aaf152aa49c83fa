// SPDX-License-Identifier: Apache-2.0
//! The network cards.
//!
//! Cards are what has a `device` link in sysfs; bonds and VLANs count too once somebody has made them.
//! The firmware's name (`biosdevname`) is made from its list of on-board devices and slots by the
//! convention of the program of that name (`em1`, `p2p1`); virtual machines have none.

use std::path::Path;

use agent_protocol::Interface;

use crate::addresses::{Link, Links};
use crate::smbios::Smbios;
use crate::tree::Tree;

/// The vendor whose InfiniBand cards the stock agent knows.
const MELLANOX: &str = "0x15b3";
const INFINIBAND_ADDRESS: usize = 20;
const CLIENT_ID_PREFIX: &str = "ff:00:00:00:00:00:02:00:00:02:c9:00:";

pub(crate) fn list(tree: &Tree, links: &Links, smbios: &Smbios) -> Vec<Interface> {
    let names = tree.names("sys/class/net");
    let no_names = Smbios::default();
    let smbios = if is_virtual(tree) { &no_names } else { smbios };
    names
        .into_iter()
        .filter(|name| is_card(tree, name))
        .filter_map(|name| {
            let link = links.get(&name);
            read(tree, name, &link, smbios)
        })
        .collect()
}

fn is_card(tree: &Tree, name: &str) -> bool {
    let folder = Path::new("sys/class/net").join(name);
    is_vlan(name) || tree.exists(folder.join("device")) || tree.exists(folder.join("bonding"))
}

/// Whether a hypervisor runs this machine: then the firmware's names mean nothing.
fn is_virtual(tree: &Tree) -> bool {
    let info = tree.bytes("proc/cpuinfo", 16 * 1024).unwrap_or_default();
    info.windows(12).any(|window| window == b" hypervisor ")
}

/// VLANs are recognised by the name they are usually given: `eth0.100`.
fn is_vlan(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(_, id)| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Nothing if the card has no hardware address, or one that begins with `fa`: that is how in-band
/// connections to a BMC look, and the stock agent leaves them out lest they be taken for ports.
fn read(tree: &Tree, name: String, link: &Link, smbios: &Smbios) -> Option<Interface> {
    let folder = Path::new("sys/class/net").join(&name);
    let attribute = |attribute: &str| tree.text(folder.join(attribute));
    let address = match &link.permanent_mac {
        Some(mac) => colons(mac),
        None => attribute("address")?.to_ascii_lowercase(),
    };
    if address.starts_with("fa:") || address.is_empty() {
        return None;
    }
    let vendor = attribute("device/vendor");
    let (mac_address, client_id) = match infiniband(&address, vendor.as_deref()) {
        Some((mac, client_id)) => (mac, Some(client_id)),
        None => (address, None),
    };
    let pci_address = tree.link_name(folder.join("device"));
    let speed = tree.number::<u64>(folder.join("speed")).filter(|s| (1..10_000_000).contains(s));
    Some(Interface {
        mac_address,
        ipv4_address: link.ipv4.map(|address| address.to_string()),
        ipv6_address: link.ipv6.map(|address| match address.is_unicast_link_local() {
            // Such an address means nothing without the card it is on.
            true => format!("{address}%{name}"),
            false => address.to_string(),
        }),
        // Reading it fails while the card is down.
        has_carrier: attribute("carrier").as_deref() == Some("1"),
        lldp: None,
        vendor,
        product: attribute("device/device"),
        client_id,
        biosdevname: firmware_name(tree, &folder, smbios),
        speed_mbps: link.fastest.or(speed),
        pci_address,
        driver: tree.link_name(folder.join("device/driver")),
        name,
    })
}

fn colons(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The Ethernet-like address and the DHCP client id (RFC 4390) of an InfiniBand card, both made from
/// the last eight bytes of its address.
fn infiniband(address: &str, vendor: Option<&str>) -> Option<(String, String)> {
    let bytes: Vec<&str> = address.split(':').collect();
    if vendor != Some(MELLANOX) || bytes.len() != INFINIBAND_ADDRESS {
        return None;
    }
    let guid = &bytes[12..];
    let mac = [&guid[..3], &guid[5..]].concat().join(":");
    Some((mac, format!("{CLIENT_ID_PREFIX}{}", guid.join(":"))))
}

/// `em1` for the first on-board card, `p2p1` for the first port in slot 2.
fn firmware_name(tree: &Tree, folder: &Path, smbios: &Smbios) -> Option<String> {
    const ON_BOARD: u8 = 41;
    const SLOT: u8 = 9;
    let device = tree.resolved(folder.join("device"))?;
    let address = PciAddress::parse(device.file_name()?.to_str()?)?;
    let port = tree.number::<u32>(folder.join("dev_port")).unwrap_or(0);

    let on_board = smbios.of_kind(ON_BOARD).find(|structure| {
        // The highest bit says whether it is enabled, the others the kind: 5 is Ethernet.
        structure.byte(5).is_some_and(|kind| kind & 0x7f == 5)
            && PciAddress::of(structure, 7) == Some(address)
    });
    if let Some(index) = on_board.and_then(|structure| structure.byte(6)) {
        return Some(format!("em{}", u32::from(index).checked_add(port)?));
    }
    // A card in a slot is behind it, so its function differs and its bus is the slot's.
    let slot = smbios.of_kind(SLOT).find(|structure| {
        PciAddress::of(structure, 0x0d)
            .is_some_and(|slot| (slot.domain, slot.bus) == (address.domain, address.bus))
    });
    let number = slot?.word(9).filter(|number| *number > 0)?;
    Some(format!("p{number}p{}", u32::from(address.function) + port + 1))
}

/// Where a device is on the PCI bus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// `0000:18:00.0`
    fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.rsplit_once('.')?;
        let mut parts = rest.split(':');
        let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            domain: u16::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            device: u8::from_str_radix(device, 16).ok()?,
            function: u8::from_str_radix(function, 16).ok()?,
        })
    }

    /// As SMBIOS writes it: two bytes of domain, one of bus, one of device and function.
    fn of(structure: &crate::smbios::Structure<'_>, at: usize) -> Option<Self> {
        let (domain, bus) = (structure.word(at)?, structure.byte(at + 2)?);
        let both = structure.byte(at + 3)?;
        // All ones: there is no such device.
        (bus != 0xff).then_some(Self { domain, bus, device: both >> 3, function: both & 7 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_known_by_name() {
        for (name, expected) in
            [("eth0.100", true), ("eth0", false), ("eth0.", false), ("eth0.x1", false)]
        {
            assert_eq!(is_vlan(name), expected, "{name}");
        }
    }

    #[test]
    fn infiniband_cards_get_an_ethernet_address() {
        let address = "a0:00:00:27:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52";
        let (mac, client_id) = infiniband(address, Some(MELLANOX)).unwrap();
        assert_eq!(mac, "7c:fe:90:29:26:52");
        assert_eq!(client_id, "ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52");
        assert_eq!(infiniband(address, Some("0x8086")), None);
        assert_eq!(infiniband("7c:fe:90:29:26:52", Some(MELLANOX)), None);
    }
}
