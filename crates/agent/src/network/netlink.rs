// SPDX-License-Identifier: Apache-2.0
//! Tells the kernel about links, addresses and routes over rtnetlink: the few messages needed here,
//! written and read by hand.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const NEW_ROUTE: u16 = 24;
const ERROR: u16 = 2;

const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
const REPLACE: u16 = 0x100;
const EXCLUSIVE: u16 = 0x200;
const CREATE: u16 = 0x400;

const LINK_UP: u32 = 1;
const NESTED: u16 = 0x8000;

/// A connection to the kernel's routing.
pub struct Kernel {
    socket: OwnedFd,
    sequence: u32,
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where it leads: a network and the length of its prefix; length 0 is everywhere.
    pub destination: (IpAddr, u8),
    /// Through whom; none if the network is on the link itself.
    pub gateway: Option<IpAddr>,
    /// Routes with smaller numbers are preferred.
    pub metric: u32,
}

impl Kernel {
    /// Opens a connection.
    ///
    /// # Errors
    /// If the kernel does not let us.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Switches a link on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.ask(NEW_LINK, 0, &link(index, LINK_UP, LINK_UP).0)
    }

    /// Switches a link off.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_down(&mut self, index: u32) -> io::Result<()> {
        self.ask(NEW_LINK, 0, &link(index, 0, LINK_UP).0)
    }

    /// Sets the largest packet.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        self.ask(NEW_LINK, 0, &link(index, 0, 0).number(4, mtu).0)
    }

    /// Sets the hardware address.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_hardware_address(&mut self, index: u32, address: [u8; 6]) -> io::Result<()> {
        self.ask(NEW_LINK, 0, &link(index, 0, 0).attribute(1, &address).0)
    }

    /// Makes a link a part of a bond.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_master(&mut self, index: u32, master: u32) -> io::Result<()> {
        self.ask(NEW_LINK, 0, &link(index, 0, 0).number(10, master).0)
    }

    /// Makes a VLAN on a link.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_vlan(&mut self, name: &str, parent: u32, id: u16) -> io::Result<()> {
        let data = Body::default().attribute(1, &id.to_ne_bytes());
        let kind = Body::default().text(1, "vlan").attribute(2 | NESTED, &data.0);
        let message = link(0, 0, 0).text(3, name).number(5, parent).attribute(18 | NESTED, &kind.0);
        self.ask(NEW_LINK, CREATE | EXCLUSIVE, &message.0)
    }

    /// Makes a bond. The mode is the kernel's number for it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_bond(&mut self, name: &str, mode: u8, monitor_ms: u32) -> io::Result<()> {
        let data = Body::default().attribute(1, &[mode]).number(3, monitor_ms);
        let kind = Body::default().text(1, "bond").attribute(2 | NESTED, &data.0);
        let message = link(0, 0, 0).text(3, name).attribute(18 | NESTED, &kind.0);
        self.ask(NEW_LINK, CREATE | EXCLUSIVE, &message.0)
    }

    /// Gives a link an address, or renews it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = address_message(index, address, prefix);
        if let IpAddr::V4(address) = address {
            let host = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
            let broadcast = Ipv4Addr::from(u32::from(address) | host);
            message = message.attribute(4, &broadcast.octets());
        }
        self.ask(NEW_ADDRESS, CREATE | REPLACE, &message.0)
    }

    /// Takes an address away.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.ask(DELETE_ADDRESS, 0, &address_message(index, address, prefix).0)
    }

    /// Adds or replaces a route through a link.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn add_route(&mut self, index: u32, route: &Route) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BOOT: u8 = 3;
        const LINK: u8 = 253;
        const UNIVERSE: u8 = 0;
        const UNICAST: u8 = 1;
        const ON_LINK: u32 = 4;
        let (network, prefix) = route.destination;
        let scope = if route.gateway.is_some() { UNIVERSE } else { LINK };
        // A gateway outside the link's own network is taken at its word, as clouds need it.
        let flags = if route.gateway.is_some() && network.is_ipv4() { ON_LINK } else { 0 };
        let mut head = vec![family(network), prefix, 0, 0, MAIN_TABLE, BOOT, scope, UNICAST];
        head.extend(flags.to_ne_bytes());
        let mut message = Body(head);
        if prefix > 0 {
            message = message.attribute(1, &octets(network));
        }
        if let Some(gateway) = route.gateway {
            message = message.attribute(5, &octets(gateway));
        }
        message = message.number(4, index).number(6, route.metric);
        self.ask(NEW_ROUTE, CREATE | REPLACE, &message.0)
    }

    /// Whether the routers on each link manage addresses, and whether they have other settings, by
    /// the links' numbers.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn router_flags(&mut self) -> io::Result<Vec<(u32, bool, bool)>> {
        const GET_LINK: u16 = 18;
        const DUMP: u16 = 0x300;
        const DONE: u16 = 3;
        let mut head = vec![AddressFamily::INET6.as_raw() as u8];
        head.resize(16, 0);
        self.send(GET_LINK, REQUEST | DUMP, &head)?;
        let mut found = Vec::new();
        let mut answer = vec![0; 32 << 10];
        loop {
            let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            let mut rest = &answer[..length];
            while let Some((kind, message, after)) = split_message(rest) {
                match kind {
                    NEW_LINK => found.extend(flags_of_routers(message)),
                    DONE | ERROR => return Ok(found),
                    _ => {}
                }
                rest = after;
            }
            if length == 0 {
                return Ok(found);
            }
        }
    }

    /// Sends a message and reads whether it was obeyed.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, REQUEST | ACKNOWLEDGE | flags, body)?;
        let mut answer = [0; 4096];
        loop {
            let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            if let Some(code) = outcome(&answer[..length.min(4096)], self.sequence) {
                return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        let length = u32::try_from(16 + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(body);
        send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }
}

/// A socket that becomes readable whenever something about links, addresses or routes changes.
///
/// # Errors
/// If the kernel does not let us.
pub fn changes() -> io::Result<OwnedFd> {
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

/// A message after its header.
#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }
}

fn link(index: u32, flags: u32, changed: u32) -> Body {
    let mut head = vec![0; 4];
    head.extend(index.to_ne_bytes());
    head.extend(flags.to_ne_bytes());
    head.extend(changed.to_ne_bytes());
    Body(head)
}

fn address_message(index: u32, address: IpAddr, prefix: u8) -> Body {
    let mut head = vec![family(address), prefix, 0, 0];
    head.extend(index.to_ne_bytes());
    let value = octets(address);
    // 1 is the address of the other end, which is the same on everything but a point-to-point link.
    Body(head).attribute(2, &value).attribute(1, &value)
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

/// The kernel's verdict on a request, zero or a negative error, if these messages have it.
fn outcome(mut messages: &[u8], sequence: u32) -> Option<i32> {
    while let Some((kind, message, rest)) = split_message(messages) {
        if kind == ERROR && number(messages, 8) == Some(sequence) {
            return number(message, 0).map(u32::cast_signed);
        }
        messages = rest;
    }
    None
}

/// The kind of the first message, what is after its header, and the messages after it.
fn split_message(messages: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = number(messages, 0)? as usize;
    let kind = u16::from_ne_bytes([*messages.get(4)?, *messages.get(5)?]);
    let body = messages.get(16..length)?;
    let rest = messages.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, rest))
}

/// The number of a link and what its routers say.
fn flags_of_routers(message: &[u8]) -> Option<(u32, bool, bool)> {
    const PROTOCOL: u16 = 12;
    const FLAGS: u16 = 1;
    const MANAGED: u32 = 0x40;
    const OTHER: u32 = 0x80;
    let index = number(message, 4)?;
    let protocol = attribute(message.get(16..)?, PROTOCOL)?;
    let flags = number(attribute(protocol, FLAGS)?, 0)?;
    Some((index, flags & MANAGED != 0, flags & OTHER != 0))
}

fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes([*attributes.first()?, *attributes.get(1)?]));
        let kind = u16::from_ne_bytes([*attributes.get(2)?, *attributes.get(3)?]);
        let value = attributes.get(4..length)?;
        if kind & !NESTED == wanted {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn number(bytes: &[u8], from: usize) -> Option<u32> {
    bytes.get(from..from + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_found_among_other_messages() {
        let message = |kind: u16, sequence: u32, value: i32| {
            let mut bytes = 20_u32.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0, 0]);
            bytes.extend(sequence.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(value.to_ne_bytes());
            bytes
        };
        let both = [message(16, 7, 1), message(ERROR, 7, -17)].concat();
        assert_eq!(outcome(&both, 7), Some(-17));
        assert_eq!(outcome(&both, 8), None);
        assert_eq!(outcome(&both[..18], 7), None);
    }

    #[test]
    fn the_kernel_answers() {
        let mut kernel = Kernel::open().unwrap();
        // There is no such link, which is the kernel's own answer.
        let refused = kernel.set_up(0x7fff_0000).unwrap_err();
        assert!(refused.raw_os_error().is_some(), "{refused}");
        // Every machine has a loopback interface, and no router is on it.
        assert!(kernel.router_flags().unwrap().contains(&(1, false, false)));
    }
}
