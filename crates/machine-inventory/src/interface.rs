// SPDX-License-Identifier: Apache-2.0
//! Network interfaces.
//!
//! Reported are interfaces with a `device` link in sysfs, and bonds and VLANs once they are created.
//! `biosdevname` is composed from SMBIOS on-board devices and slots by the rules of the program of that
//! name (`em1`, `p2p1`); virtual machines have none.

use std::path::Path;

use agent_protocol::InventoryInterface;

use crate::kernel_files::KernelFiles;
use crate::links::{NetworkLink, NetworkLinks};
use crate::smbios::Smbios;

/// The only InfiniBand vendor that IPA supports.
const MELLANOX: &str = "0x15b3";
const INFINIBAND_ADDRESS_LENGTH: usize = 20;
const CLIENT_ID_PREFIX: &str = "ff:00:00:00:00:00:02:00:00:02:c9:00:";

pub(crate) fn list(
    files: &KernelFiles,
    links: &NetworkLinks,
    smbios: &Smbios,
) -> Vec<InventoryInterface> {
    let names = files.file_names("sys/class/net");
    let empty_smbios = Smbios::default();
    let smbios = if is_virtual(files) { &empty_smbios } else { smbios };
    names
        .into_iter()
        .filter(|name| is_reported(files, name))
        .filter_map(|name| {
            let link = links.get(&name);
            read(files, name, &link, smbios)
        })
        .collect()
}

fn is_reported(files: &KernelFiles, name: &str) -> bool {
    let directory = Path::new("sys/class/net").join(name);
    is_vlan(name)
        || files.exists(directory.join("device"))
        || files.exists(directory.join("bonding"))
}

/// Whether a hypervisor is present; then SMBIOS slots do not describe real hardware.
fn is_virtual(files: &KernelFiles) -> bool {
    let info = files.bytes("proc/cpuinfo", 16 * 1024).unwrap_or_default();
    info.windows(12).any(|window| window == b" hypervisor ")
}

/// VLANs are recognised by their usual name: `eth0.100`.
fn is_vlan(name: &str) -> bool {
    name.split_once('.')
        .is_some_and(|(_, id)| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns `None` if the interface has no MAC address, or one that starts with `fa`: in-band links to a
/// BMC have those, and IPA omits them so that they do not become ports.
fn read(
    files: &KernelFiles,
    name: String,
    link: &NetworkLink,
    smbios: &Smbios,
) -> Option<InventoryInterface> {
    let directory = Path::new("sys/class/net").join(&name);
    let attribute = |attribute: &str| files.text(directory.join(attribute));
    let address = match &link.permanent_mac {
        Some(mac) => format_mac(mac),
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
    let pci_address = files.link_target_name(directory.join("device"));
    let speed =
        files.number::<u64>(directory.join("speed")).filter(|s| (1..10_000_000).contains(s));
    Some(InventoryInterface {
        mac_address,
        ipv4_address: link.ipv4.map(|address| address.to_string()),
        ipv6_address: link.ipv6.map(|address| match address.is_unicast_link_local() {
            // A link-local address is ambiguous without its interface.
            true => format!("{address}%{name}"),
            false => address.to_string(),
        }),
        // Reading `carrier` fails while the interface is down.
        has_carrier: attribute("carrier").as_deref() == Some("1"),
        lldp: None,
        vendor,
        product: attribute("device/device"),
        client_id,
        biosdevname: bios_device_name(files, &directory, smbios),
        speed_mbps: link.max_speed_mbps.or(speed),
        pci_address,
        driver: files.link_target_name(directory.join("device/driver")),
        name,
    })
}

fn format_mac(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Returns the Ethernet-style MAC and the DHCP client ID (RFC 4390) of an InfiniBand interface, both
/// derived from the last eight bytes of its address.
fn infiniband(address: &str, vendor: Option<&str>) -> Option<(String, String)> {
    let bytes: Vec<&str> = address.split(':').collect();
    if vendor != Some(MELLANOX) || bytes.len() != INFINIBAND_ADDRESS_LENGTH {
        return None;
    }
    let guid = &bytes[12..];
    let mac = [&guid[..3], &guid[5..]].concat().join(":");
    Some((mac, format!("{CLIENT_ID_PREFIX}{}", guid.join(":"))))
}

/// Returns `em1` for the first on-board NIC, `p2p1` for the first port in slot 2.
fn bios_device_name(files: &KernelFiles, directory: &Path, smbios: &Smbios) -> Option<String> {
    const ON_BOARD: u8 = 41;
    const SLOT: u8 = 9;
    let device = files.canonical(directory.join("device"))?;
    let address = PciAddress::parse(device.file_name()?.to_str()?)?;
    let port = files.number::<u32>(directory.join("dev_port")).unwrap_or(0);

    let on_board = smbios.structures_of_type(ON_BOARD).find(|structure| {
        // Bit 7 is "enabled", the others are the device type: 5 is Ethernet.
        structure.byte(5).is_some_and(|kind| kind & 0x7f == 5)
            && PciAddress::from_smbios(structure, 7) == Some(address)
    });
    if let Some(index) = on_board.and_then(|structure| structure.byte(6)) {
        return Some(format!("em{}", u32::from(index).checked_add(port)?));
    }
    // The NIC is behind the slot: its bus is the slot's, its function may differ.
    let slot = smbios.structures_of_type(SLOT).find(|structure| {
        PciAddress::from_smbios(structure, 0x0d)
            .is_some_and(|slot| (slot.domain, slot.bus) == (address.domain, address.bus))
    });
    let number = slot?.word(9).filter(|number| *number > 0)?;
    Some(format!("p{number}p{}", u32::from(address.function) + port + 1))
}

/// PCI address of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// Parses `0000:18:00.0`.
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

    /// Reads an SMBIOS address: two bytes of domain, one of bus, one of device and function.
    fn from_smbios(structure: &crate::smbios::SmbiosStructure<'_>, at: usize) -> Option<Self> {
        let (domain, bus) = (structure.word(at)?, structure.byte(at + 2)?);
        let both = structure.byte(at + 3)?;
        // Bus 0xff: not a PCI device.
        (bus != 0xff).then_some(Self { domain, bus, device: both >> 3, function: both & 7 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_vlans_by_name() {
        for (name, expected) in
            [("eth0.100", true), ("eth0", false), ("eth0.", false), ("eth0.x1", false)]
        {
            assert_eq!(is_vlan(name), expected, "{name}");
        }
    }

    #[test]
    fn derives_ethernet_mac_of_infiniband() {
        let address = "a0:00:00:27:fe:80:00:00:00:00:00:00:7c:fe:90:03:00:29:26:52";
        let (mac, client_id) = infiniband(address, Some(MELLANOX)).unwrap();
        assert_eq!(mac, "7c:fe:90:29:26:52");
        assert_eq!(client_id, "ff:00:00:00:00:00:02:00:00:02:c9:00:7c:fe:90:03:00:29:26:52");
        assert_eq!(infiniband(address, Some("0x8086")), None);
        assert_eq!(infiniband("7c:fe:90:29:26:52", Some(MELLANOX)), None);
    }
}
