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
use std::sync::{Mutex, PoisonError};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// A way to the kernel's table of neighbours.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// Held from a request to its answer.
    socket: Mutex<OwnedFd>,
}

const NEW_NEIGHBOUR: u16 = 28;
const FORGET_NEIGHBOUR: u16 = 29;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE_OR_REPLACE: u16 = 0x400 | 0x100;
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
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Says that `address` is at `card` on the interface of that number.
    pub(crate) fn set(&self, interface: u32, address: Ipv4Addr, card: [u8; 6]) -> io::Result<()> {
        self.tell(&request(NEW_NEIGHBOUR, interface, address, Some(card)))
    }

    /// Makes room in the table, which is small (1024 entries) and would otherwise be full of machines
    /// that got a reply in the last seconds, and of addresses that were only probed. When it is full
    /// not even a broadcast leaves.
    pub(crate) fn forget(&self, interface: u32, address: Ipv4Addr) {
        if let Err(error) = self.tell(&request(FORGET_NEIGHBOUR, interface, address, None)) {
            tracing::debug!(%address, %error, "a neighbour was not forgotten");
        }
    }

    fn tell(&self, request: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        sendto(&*socket, request, SendFlags::empty(), &kernel)?;
        // The kernel does it during the send, so the answer is already there.
        let mut answer = [0_u8; 1024];
        let (length, _) = recv(&*socket, &mut answer[..], RecvFlags::DONTWAIT)?;
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

/// A netlink header, a neighbour message and its attributes, in the machine's own byte order.
fn request(kind: u16, interface: u32, address: Ipv4Addr, card: Option<[u8; 6]>) -> Vec<u8> {
    let length: u32 = 16 + 12 + 8 + if card.is_some() { 12 } else { 0 };
    let flags = REQUEST | ACKNOWLEDGE | if card.is_some() { CREATE_OR_REPLACE } else { 0 };
    let mut out = Vec::with_capacity(length as usize);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]); // sequence and sender
    out.extend([FAMILY_V4, 0, 0, 0]);
    out.extend(interface.to_ne_bytes());
    out.extend(STALE.to_ne_bytes());
    out.extend([0, 0]);
    out.extend(8_u16.to_ne_bytes());
    out.extend(ATTRIBUTE_ADDRESS.to_ne_bytes());
    out.extend(address.octets());
    if let Some(card) = card {
        out.extend(10_u16.to_ne_bytes());
        out.extend(ATTRIBUTE_CARD.to_ne_bytes());
        out.extend(card);
        out.extend([0, 0]); // to a multiple of four
    }
    out
}
