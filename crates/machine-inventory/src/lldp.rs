// SPDX-License-Identifier: Apache-2.0
//! Receives LLDP frames on several network interfaces at once.
//!
//! Some NICs (Intel's 700 series among them) process LLDP in firmware and do not pass it to the kernel;
//! nothing is received there unless that is disabled. The interfaces must be up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::links::NetworkLinks;
use crate::syscalls::PacketSocket;

const ETHERTYPE_LLDP: u16 = 0x88cc;

/// Destination addresses of LLDP: nearest bridge, nearest non-TPMR bridge, nearest customer bridge.
const MULTICAST_GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x03],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00],
];

/// A link gets its carrier some seconds after the interface is up, so the carrier is polled.
const CARRIER_POLL_INTERVAL: Duration = Duration::from_secs(1);

const MAX_FRAME_LENGTH: usize = 9216;

/// LLDP TLVs (type and value in hexadecimal) by interface.
pub type LldpNeighbours = BTreeMap<String, Vec<(u8, String)>>;

/// Opens a [`LldpListener`] and collects for at most `timeout`.
pub fn listen(interfaces: &[String], timeout: Duration) -> LldpNeighbours {
    LldpListener::open(interfaces).collect(timeout)
}

/// Sockets that receive LLDP. The kernel queues frames from the time they are opened.
pub struct LldpListener {
    pending: Vec<(String, PacketSocket)>,
    neighbours: LldpNeighbours,
}

impl LldpListener {
    /// Opens sockets on these interfaces. Missing interfaces and those that cannot be opened (this needs
    /// `CAP_NET_RAW`) are skipped.
    pub fn open(interfaces: &[String]) -> Self {
        let links = NetworkLinks::query_without_speeds();
        let pending = interfaces.iter().filter_map(|name| {
            let socket =
                PacketSocket::open(links.get(name).index?, ETHERTYPE_LLDP, &MULTICAST_GROUPS)
                    .ok()?;
            Some((name.clone(), socket))
        });
        Self {
            pending: pending.collect(),
            neighbours: interfaces.iter().map(|name| (name.clone(), Vec::new())).collect(),
        }
    }

    /// Returns the TLVs of the first frame on each interface; an empty list if there was none. Waits at
    /// most `timeout`, and only until every interface with a carrier has received a frame. Without any
    /// frame the whole timeout is used, because a carrier may still come up.
    pub fn collect(mut self, timeout: Duration) -> LldpNeighbours {
        let start = Instant::now();
        let mut buffer = vec![0; MAX_FRAME_LENGTH];
        while !self.pending.is_empty() {
            let Some(left) = timeout.checked_sub(start.elapsed()) else { break };
            if !self.wait(left.min(CARRIER_POLL_INTERVAL)) {
                break;
            }
            self.receive(&mut buffer);
            let links = NetworkLinks::query_without_speeds();
            let any_received = self.neighbours.values().any(|tlvs| !tlvs.is_empty());
            if any_received && !self.pending.iter().any(|(name, _)| links.get(name).has_carrier) {
                break;
            }
        }
        self.neighbours
    }

    /// Waits until a frame arrives or the timeout expires; returns `false` if polling fails.
    fn wait(&self, timeout: Duration) -> bool {
        let Ok(timeout) = Timespec::try_from(timeout) else { return false };
        let sockets = self.pending.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN));
        let mut sockets: Vec<_> = sockets.collect();
        matches!(poll(&mut sockets, Some(&timeout)), Ok(_) | Err(rustix::io::Errno::INTR))
    }

    /// Reads received frames and removes their interfaces from `pending`.
    fn receive(&mut self, buffer: &mut [u8]) {
        self.pending.retain(|(name, socket)| match socket.receive(buffer) {
            Ok(Some(frame)) => {
                let tlvs = parse_tlvs(frame);
                let is_lldp = !tlvs.is_empty();
                if is_lldp {
                    self.neighbours.insert(name.clone(), tlvs);
                }
                !is_lldp
            }
            Ok(None) => true,
            // An interface that goes down reports ENETDOWN once and may come back.
            Err(error) => error.raw_os_error() == Some(libc::ENETDOWN),
        });
    }
}

/// Parses the TLVs of a frame up to and including the end marker, or up to a truncated one.
fn parse_tlvs(mut frame: &[u8]) -> Vec<(u8, String)> {
    const END: u8 = 0;
    let mut tlvs = Vec::new();
    while let [first, second, rest @ ..] = frame {
        // Seven bits of type, nine of length.
        let tlv_type = first >> 1;
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let Some(value) = rest.get(..length) else { break };
        frame = &rest[length..];
        tlvs.push((tlv_type, hex::encode(value)));
        if tlv_type == END {
            break;
        }
    }
    tlvs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_tlvs_up_to_end_and_ignores_padding() {
        let frame = [0x02, 2, 4, 9, 0x04, 1, 7, 0x06, 2, 0, 120, 0, 0, 0, 0, 0, 0];
        let expected = [(1, "0409"), (2, "07"), (3, "0078"), (0, "")];
        assert_eq!(parse_tlvs(&frame), expected.map(|(tlv_type, hex)| (tlv_type, hex.to_owned())));
        let mut long = vec![0xfe | 1, 0xff];
        long.extend([0xaa; 511]);
        assert_eq!(parse_tlvs(&long), [(127, "aa".repeat(511))]);
        assert_eq!(parse_tlvs(&long[..100]), [], "cut off");
    }

    #[test]
    fn missing_interface_has_no_tlvs() {
        let neighbours = listen(&["nosuch0".to_owned()], Duration::from_secs(60));
        assert_eq!(neighbours, BTreeMap::from([("nosuch0".to_owned(), Vec::new())]));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(frame: Vec<u8>) {
            let _ = parse_tlvs(&frame);
        }
    }
}
