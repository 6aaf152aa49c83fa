// SPDX-License-Identifier: Apache-2.0
//! Tells the kernel which card an address is at, so that a packet reaches a machine that does not have
//! the address yet and would not answer ARP for it.
//!
//! The alternative is to write whole Ethernet frames to a packet socket; this leaves headers and
//! checksums to the kernel and needs one netlink message (`RTM_NEWNEIGH`). It needs `CAP_NET_ADMIN`;
//! where it fails the caller broadcasts instead.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// A way to the kernel's table of neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    socket: OwnedFd,
}

const NEW_NEIGHBOUR: u16 = 28;
/// Request, acknowledge, create, replace.
const FLAGS: u16 = 0x1 | 0x4 | 0x400 | 0x100;
/// Usable now, and asked for again soon: once the machine has its address it answers for itself.
const STALE: u16 = 0x04;
const FAMILY_V4: u8 = 2;
const ATTRIBUTE_ADDRESS: u16 = 1;
const ATTRIBUTE_CARD: u16 = 2;
const ERROR: u16 = 2;

impl Neighbours {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // Protocol zero of netlink is routing, addresses and neighbours.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket })
    }

    /// Says that `address` is at `card` on the interface of that number.
    pub(crate) fn set(&self, interface: u32, address: Ipv4Addr, card: [u8; 6]) -> io::Result<()> {
        let request = request(interface, address, card);
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        // The kernel does it during the send, so the answer is already there.
        let mut answer = [0_u8; 1024];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        let Some(answer) = answer.get(..length).filter(|bytes| bytes.len() >= 20) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        if kind == ERROR && code != 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
        Ok(())
    }
}

/// A netlink header, a neighbour message and two attributes, in the machine's own byte order.
fn request(interface: u32, address: Ipv4Addr, card: [u8; 6]) -> Vec<u8> {
    const LENGTH: u32 = 16 + 12 + 8 + 12;
    let mut out = Vec::with_capacity(LENGTH as usize);
    out.extend(LENGTH.to_ne_bytes());
    out.extend(NEW_NEIGHBOUR.to_ne_bytes());
    out.extend(FLAGS.to_ne_bytes());
    out.extend([0; 8]); // sequence and sender
    out.extend([FAMILY_V4, 0, 0, 0]);
    out.extend(interface.to_ne_bytes());
    out.extend(STALE.to_ne_bytes());
    out.extend([0, 0]);
    out.extend(8_u16.to_ne_bytes());
    out.extend(ATTRIBUTE_ADDRESS.to_ne_bytes());
    out.extend(address.octets());
    out.extend(10_u16.to_ne_bytes());
    out.extend(ATTRIBUTE_CARD.to_ne_bytes());
    out.extend(card);
    out.extend([0, 0]); // to a multiple of four
    out
}
