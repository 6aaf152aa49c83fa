// SPDX-License-Identifier: Apache-2.0
//! The kernel's IPv4 neighbour table, for unicasts to clients that do not use their address yet and so do
//! not reply to ARP.
//!
//! An alternative is to write whole Ethernet frames to a packet socket. This way the kernel adds headers
//! and checksums, for one netlink message (`RTM_NEWNEIGH`). It needs `CAP_NET_ADMIN`; without it the
//! caller broadcasts.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// A netlink connection to the neighbour table.
#[derive(Debug)]
pub(crate) struct NeighbourTable {
    /// Locked from a request to its acknowledgement.
    socket: Mutex<OwnedFd>,
}

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_CREATE_REPLACE: u16 = 0x400 | 0x100;
/// Usable now and verified by ARP soon: once the client uses the address, it replies itself.
const NUD_STALE: u16 = 0x04;
const AF_INET: u8 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NLMSG_ERROR: u16 = 2;

impl NeighbourTable {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        Ok(Self { socket: Mutex::new(socket) })
    }

    /// Maps `address` to `mac` on the interface with this index.
    pub(crate) fn insert(&self, interface: u32, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
        self.send_request(&request(RTM_NEWNEIGH, interface, address, Some(mac)))
    }

    /// Removes an address. The table holds only 1024 entries by default and would fill up with clients
    /// that got a reply within the last seconds and with probed addresses. When it is full, even
    /// broadcasts fail.
    pub(crate) fn remove(&self, interface: u32, address: Ipv4Addr) {
        if let Err(error) = self.send_request(&request(RTM_DELNEIGH, interface, address, None)) {
            tracing::debug!(%address, %error, "removing a neighbour entry failed");
        }
    }

    fn send_request(&self, request: &[u8]) -> io::Result<()> {
        let kernel = SocketAddrNetlink::new(0, 0);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        sendto(&*socket, request, SendFlags::empty(), &kernel)?;
        // The kernel handles the request during the send, so the acknowledgement is already there.
        let mut reply = [0_u8; 1024];
        let (length, _) = recv(&*socket, &mut reply[..], RecvFlags::DONTWAIT)?;
        let Some(reply) = reply.get(..length).filter(|bytes| bytes.len() >= 20) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let message_type = u16::from_ne_bytes([reply[4], reply[5]]);
        let code = i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
        if message_type == NLMSG_ERROR && code != 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
        Ok(())
    }
}

/// Encodes a netlink header, a neighbour message and its attributes, in native byte order.
fn request(message_type: u16, interface: u32, address: Ipv4Addr, mac: Option<[u8; 6]>) -> Vec<u8> {
    let length: u32 = 16 + 12 + 8 + if mac.is_some() { 12 } else { 0 };
    let flags = NLM_F_REQUEST | NLM_F_ACK | if mac.is_some() { NLM_F_CREATE_REPLACE } else { 0 };
    let mut out = Vec::with_capacity(length as usize);
    out.extend(length.to_ne_bytes());
    out.extend(message_type.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]); // sequence number and port ID
    out.extend([AF_INET, 0, 0, 0]);
    out.extend(interface.to_ne_bytes());
    out.extend(NUD_STALE.to_ne_bytes());
    out.extend([0, 0]);
    out.extend(8_u16.to_ne_bytes());
    out.extend(NDA_DST.to_ne_bytes());
    out.extend(address.octets());
    if let Some(mac) = mac {
        out.extend(10_u16.to_ne_bytes());
        out.extend(NDA_LLADDR.to_ne_bytes());
        out.extend(mac);
        out.extend([0, 0]); // padding to a multiple of four
    }
    out
}
