// SPDX-License-Identifier: Apache-2.0
//! Blocking netlink requests: sends a request, receives all reply messages and parses their attributes.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

/// `NLM_F_REQUEST`: one object.
pub const REQUEST: u16 = 0x1;
/// `NLM_F_REQUEST | NLM_F_DUMP`: all objects.
pub const DUMP: u16 = 0x1 | 0x300;
/// `NLM_F_ACK`: acknowledge a request that has no other reply.
pub const ACKNOWLEDGE: u16 = 0x4;

const DONE: u16 = 3;
const ERROR: u16 = 2;
const MULTIPART: u16 = 0x2;
const HEADER: usize = 16;
/// The two highest bits of an attribute type are flags.
const ATTRIBUTE_TYPE_MASK: u16 = 0x3fff;
/// The kernel sends no larger datagram.
const MAX_DATAGRAM_LENGTH: usize = 64 * 1024;
/// Bound on the number of datagrams of one reply.
const MAX_DATAGRAMS: usize = 4096;

/// A socket of one netlink family.
pub struct Netlink {
    socket: OwnedFd,
    sequence: Cell<u32>,
}

impl Netlink {
    /// Opens `NETLINK_ROUTE`: links and addresses.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn route() -> io::Result<Self> {
        // Protocol zero.
        Self::open(None)
    }

    /// Opens `NETLINK_GENERIC`: families by name, such as `ethtool`.
    ///
    /// # Errors
    /// If the kernel rejects the request.
    pub fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
        Ok(Self { socket, sequence: Cell::new(0) })
    }

    /// Sends a request and passes the body of every reply message to `on_message`.
    ///
    /// # Errors
    /// If the kernel returns an error, or does not reply within two seconds.
    pub fn request(
        &self,
        message_type: u16,
        flags: u16,
        body: &[u8],
        mut on_message: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut message = Vec::with_capacity(HEADER + body.len());
        let length = u32::try_from(HEADER + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        message.extend(length.to_ne_bytes());
        message.extend(message_type.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        message.extend(sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes()); // sender
        message.extend(body);
        sendto(&self.socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

        let mut datagram = vec![0_u8; MAX_DATAGRAM_LENGTH];
        for _ in 0..MAX_DATAGRAMS {
            let (length, _) = recv(&self.socket, &mut datagram[..], RecvFlags::empty())?;
            let datagram = datagram.get(..length).unwrap_or_default();
            if process_datagram(datagram, sequence, &mut on_message)? {
                return Ok(());
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Passes the messages of a datagram to `on_message`; returns whether it was the last. Replies to
/// earlier requests, which have another sequence number, are ignored.
fn process_datagram(
    mut datagram: &[u8],
    sequence: u32,
    on_message: &mut impl FnMut(&[u8]),
) -> io::Result<bool> {
    while let Some(header) = datagram.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let message_type = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        let Some(body) = datagram.get(HEADER..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if u32::from_ne_bytes([header[8], header[9], header[10], header[11]]) != sequence {
            datagram = datagram.get(aligned(length)..).unwrap_or_default();
            continue;
        }
        match message_type {
            DONE => return Ok(true),
            ERROR => {
                let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                return Ok(true);
            }
            _ => on_message(body),
        }
        if flags & MULTIPART == 0 {
            return Ok(true);
        }
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// Iterates over attributes: type and value. Ends at the first truncated one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let attribute_type = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((attribute_type, value))
    })
}

/// Returns the value of the first attribute of a type.
#[must_use]
pub fn attribute(bytes: &[u8], attribute_type: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(other, _)| *other == attribute_type).map(|(_, value)| value)
}

/// Appends an attribute.
pub fn push_attribute(out: &mut Vec<u8>, attribute_type: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(attribute_type.to_ne_bytes());
    out.extend(value);
    out.resize(aligned(out.len()), 0);
}

/// Returns a NUL-terminated string.
#[must_use]
pub fn text_attribute(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8(value[..end].to_vec()).ok()
}

fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_at_truncated_attribute() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3, b"eth0\0");
        push_attribute(&mut bytes, 0x8000 | 1, &[1, 2]);
        let all: Vec<_> = attributes(&bytes)
            .map(|(attribute_type, value)| (attribute_type, value.to_vec()))
            .collect();
        assert_eq!(all, [(3, b"eth0\0".to_vec()), (1, vec![1, 2])]);
        assert_eq!(attribute(&bytes, 3).and_then(text_attribute).as_deref(), Some("eth0"));
        assert_eq!(attributes(&bytes[..bytes.len() - 3]).count(), 1);
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0, "a zero length must not loop");
    }

    #[test]
    fn ignores_replies_to_earlier_requests() {
        let message = |message_type: u16, sequence: u32, value: i32| {
            let mut bytes = 20_u32.to_ne_bytes().to_vec();
            bytes.extend(message_type.to_ne_bytes());
            bytes.extend([0, 0]);
            bytes.extend(sequence.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(value.to_ne_bytes());
            bytes
        };
        let datagram = [message(ERROR, 6, 0), message(ERROR, 7, -17)].concat();
        let process = |bytes: &[u8], sequence| process_datagram(bytes, sequence, &mut |_| {});
        assert_eq!(process(&datagram, 7).unwrap_err().raw_os_error(), Some(17));
        assert!(process(&datagram, 6).unwrap());
        assert!(!process(&datagram, 8).unwrap());
        process(&datagram[..18], 6).unwrap_err();
    }

    proptest::proptest! {
        #[test]
        fn never_panics(bytes: Vec<u8>) {
            let _ = process_datagram(&bytes, 0, &mut |body| { let _ = attributes(body).count(); });
        }
    }
}
