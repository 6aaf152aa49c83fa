// SPDX-License-Identifier: Apache-2.0
//! Questions to the kernel over netlink: a request, all parts of its answer, and their attributes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto,
    socket_with,
};

/// Ask for one thing.
pub(crate) const ONE: u16 = 0x1;
/// Ask for all there are.
pub(crate) const ALL: u16 = 0x1 | 0x300;

const DONE: u16 = 3;
const ERROR: u16 = 2;
const MULTIPART: u16 = 0x2;
const HEADER: usize = 16;
/// The two highest bits of an attribute's type say how it is made, not what it is.
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// The kernel's own parts are at most this long.
const LONGEST_PART: usize = 64 * 1024;
/// More parts than this is not an answer of any machine.
const MOST_PARTS: usize = 4096;

/// A way to one of the kernel's netlink families.
pub(crate) struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Links and addresses.
    pub(crate) fn route() -> io::Result<Self> {
        // Protocol zero.
        Self::open(None)
    }

    /// The families with names, `ethtool` among them.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::open(Some(netlink::GENERIC))
    }

    fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
        Ok(Self { socket })
    }

    /// Sends a request and hands every message of the answer, without its netlink header, to `each`.
    pub(crate) fn ask(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut request = Vec::with_capacity(HEADER + body.len());
        let length = u32::try_from(HEADER + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend([0; 8]); // sequence and sender
        request.extend(body);
        sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

        let mut part = vec![0_u8; LONGEST_PART];
        for _ in 0..MOST_PARTS {
            let (length, _) = recv(&self.socket, &mut part[..], RecvFlags::empty())?;
            if walk(part.get(..length).unwrap_or_default(), &mut each)? {
                return Ok(());
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Hands over the messages of a part; says whether it was the last.
fn walk(mut part: &[u8], each: &mut impl FnMut(&[u8])) -> io::Result<bool> {
    while let Some(header) = part.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let flags = u16::from_ne_bytes([header[6], header[7]]);
        let Some(body) = part.get(HEADER..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                if code != 0 {
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
                return Ok(true);
            }
            _ => each(body),
        }
        if flags & MULTIPART == 0 {
            return Ok(true);
        }
        part = part.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

/// The attributes in a message: type and value. Ends at the first that is cut off.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a type.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// Writes an attribute.
pub(crate) fn push_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(aligned(out.len()), 0);
}

/// A text that ends with a zero byte.
pub(crate) fn text(value: &[u8]) -> Option<String> {
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
    fn attributes_end_where_they_are_cut_off() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3, b"eth0\0");
        push_attribute(&mut bytes, 0x8000 | 1, &[1, 2]);
        let all: Vec<_> = attributes(&bytes).map(|(kind, value)| (kind, value.to_vec())).collect();
        assert_eq!(all, [(3, b"eth0\0".to_vec()), (1, vec![1, 2])]);
        assert_eq!(attribute(&bytes, 3).and_then(text).as_deref(), Some("eth0"));
        assert_eq!(attributes(&bytes[..bytes.len() - 3]).count(), 1);
        assert_eq!(attributes(&[0, 0, 1, 0]).count(), 0, "a length of nothing must not loop");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = walk(&bytes, &mut |body| { let _ = attributes(body).count(); });
        }
    }
}
