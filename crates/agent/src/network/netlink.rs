// SPDX-License-Identifier: Apache-2.0
//! Configures links, addresses and routes over rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use machine_inventory::netlink::{self, ACKNOWLEDGE, Netlink, push_attribute};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;

const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const LINK_UP: u32 = 1;
const NESTED: u16 = 0x8000;
/// The length of `struct ifinfomsg`.
const LINK_HEADER: usize = 16;

/// A socket for configuration requests.
pub struct RtNetlink(Netlink);

/// A route of the kernel's main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRoute {
    /// The destination network and its prefix length; length 0 is the default route.
    pub destination: (IpAddr, u8),
    /// The gateway; `None` if the network is directly connected.
    pub gateway: Option<IpAddr>,
    /// Routes with a lower metric are preferred.
    pub metric: u32,
}

impl RtNetlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn open() -> io::Result<Self> {
        Netlink::route().map(Self)
    }

    /// Enables a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.request(NEW_LINK, 0, &link_message(index, LINK_UP, LINK_UP).0)
    }

    /// Disables a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        self.request(NEW_LINK, 0, &link_message(index, 0, LINK_UP).0)
    }

    /// Sets the MTU of a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.request(NEW_LINK, 0, &link_message(index, 0, 0).number(4, mtu).0)
    }

    /// Sets the MAC address of a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        self.request(NEW_LINK, 0, &link_message(index, 0, 0).attribute(1, &mac).0)
    }

    /// Adds a link to a bond.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn set_master(&mut self, index: u32, master: u32) -> io::Result<()> {
        self.request(NEW_LINK, 0, &link_message(index, 0, 0).number(10, master).0)
    }

    /// Creates a VLAN interface.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn add_vlan(&mut self, name: &str, parent: u32, id: u16) -> io::Result<()> {
        let data = MessageBody::default().attribute(1, &id.to_ne_bytes());
        let info = MessageBody::default().text(1, "vlan").attribute(2 | NESTED, &data.0);
        let message =
            link_message(0, 0, 0).text(3, name).number(5, parent).attribute(18 | NESTED, &info.0);
        self.request(NEW_LINK, CREATE | EXCLUSIVE, &message.0)
    }

    /// Creates a bond. `mode` is the kernel's number of the bond mode.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn add_bond(&mut self, name: &str, mode: u8, monitor_ms: u32) -> io::Result<()> {
        let data = MessageBody::default().attribute(1, &[mode]).number(3, monitor_ms);
        let info = MessageBody::default().text(1, "bond").attribute(2 | NESTED, &data.0);
        let message = link_message(0, 0, 0).text(3, name).attribute(18 | NESTED, &info.0);
        self.request(NEW_LINK, CREATE | EXCLUSIVE, &message.0)
    }

    /// Adds or updates an address of a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = address_message(index, address, prefix);
        if let IpAddr::V4(address) = address {
            let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            let broadcast = Ipv4Addr::from(u32::from(address) | host);
            message = message.attribute(4, &broadcast.octets());
        }
        self.request(NEW_ADDRESS, CREATE | REPLACE, &message.0)
    }

    /// Removes an address from a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn remove_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.request(DELETE_ADDRESS, 0, &address_message(index, address, prefix).0)
    }

    /// Adds or replaces a route through a link.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn add_route(&mut self, index: u32, route: &KernelRoute) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BOOT: u8 = 3;
        const LINK: u8 = 253;
        const UNIVERSE: u8 = 0;
        const UNICAST: u8 = 1;
        const ON_LINK: u32 = 4;
        let (network, prefix) = route.destination;
        let scope = if route.gateway.is_some() { UNIVERSE } else { LINK };
        // Allows a gateway outside of the link's network, as some clouds use.
        let flags = if route.gateway.is_some() && network.is_ipv4() { ON_LINK } else { 0 };
        let mut head = vec![family(network), prefix, 0, 0, MAIN_TABLE, BOOT, scope, UNICAST];
        head.extend(flags.to_ne_bytes());
        let mut message = MessageBody(head);
        if prefix > 0 {
            message = message.attribute(1, &octets(network));
        }
        if let Some(gateway) = route.gateway {
            message = message.attribute(5, &octets(gateway));
        }
        message = message.number(4, index).number(6, route.metric);
        self.request(NEW_ROUTE, CREATE | REPLACE, &message.0)
    }

    /// Returns, by link index, the flags "managed" (use DHCPv6 for addresses) and "other" (use it for
    /// other settings) of router advertisements.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn router_flags(&mut self) -> io::Result<Vec<(u32, bool, bool)>> {
        let mut head = vec![AddressFamily::INET6.as_raw() as u8];
        head.resize(LINK_HEADER, 0);
        let mut links = Vec::new();
        self.0.request(GET_LINK, netlink::DUMP, &head, |message| {
            links.extend(parse_router_flags(message));
        })?;
        Ok(links)
    }

    /// Sends a request and waits for its acknowledgement.
    fn request(&mut self, message_type: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.0.request(message_type, netlink::REQUEST | ACKNOWLEDGE | flags, body, |_| {})
    }
}

/// Opens a socket that becomes readable when links, addresses or routes change.
///
/// # Errors
/// If the kernel rejects the request.
pub fn open_change_socket() -> io::Result<OwnedFd> {
    const LINKS: u32 = 1;
    const ADDRESSES_4: u32 = 0x10;
    const ADDRESSES_6: u32 = 0x100;
    const ROUTES_6: u32 = 0x400;
    const ROUTERS_6: u32 = 0x800;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    let groups = LINKS | ADDRESSES_4 | ADDRESSES_6 | ROUTES_6 | ROUTERS_6;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// The body of a message: a fixed header and attributes.
#[derive(Default)]
struct MessageBody(Vec<u8>);

impl MessageBody {
    fn attribute(mut self, attribute_type: u16, value: &[u8]) -> Self {
        push_attribute(&mut self.0, attribute_type, value);
        self
    }

    fn number(self, attribute_type: u16, value: u32) -> Self {
        self.attribute(attribute_type, &value.to_ne_bytes())
    }

    fn text(self, attribute_type: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(attribute_type, &bytes)
    }
}

fn link_message(index: u32, flags: u32, changed: u32) -> MessageBody {
    let mut head = vec![0; 4];
    head.extend(index.to_ne_bytes());
    head.extend(flags.to_ne_bytes());
    head.extend(changed.to_ne_bytes());
    MessageBody(head)
}

fn address_message(index: u32, address: IpAddr, prefix: u8) -> MessageBody {
    let mut head = vec![family(address), prefix, 0, 0];
    head.extend(index.to_ne_bytes());
    let value = octets(address);
    // 1 is the peer address, which differs only on point-to-point links.
    MessageBody(head).attribute(2, &value).attribute(1, &value)
}

fn family(address: IpAddr) -> u8 {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    family.as_raw() as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Parses the index of a link and its router flags.
fn parse_router_flags(message: &[u8]) -> Option<(u32, bool, bool)> {
    const PROTOCOL: u16 = 12;
    const FLAGS: u16 = 1;
    const MANAGED: u32 = 0x40;
    const OTHER: u32 = 0x80;
    let index = number(message.get(4..)?)?;
    let protocol = netlink::attribute(message.get(LINK_HEADER..)?, PROTOCOL)?;
    let flags = number(netlink::attribute(protocol, FLAGS)?)?;
    Some((index, flags & MANAGED != 0, flags & OTHER != 0))
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_responds_to_requests() {
        let mut netlink = RtNetlink::open().unwrap();
        // The kernel rejects a link that does not exist.
        let error = netlink.set_up(0x7fff_0000).unwrap_err();
        assert!(error.raw_os_error().is_some(), "{error}");
        // Every machine has a loopback interface, which has no router.
        assert!(netlink.router_flags().unwrap().contains(&(1, false, false)));
    }
}
