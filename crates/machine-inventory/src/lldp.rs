// SPDX-License-Identifier: Apache-2.0
//! Listens for the switches: LLDP frames on all network cards at once.
//!
//! Some cards (Intel's 700 series among them) handle LLDP in their own firmware and never show it to
//! the kernel; nothing is heard there unless that is turned off. The cards must be up.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::addresses::Links;
use crate::kernel::PacketSocket;

const LLDP: u16 = 0x88cc;

/// The groups a switch may send to: the nearest bridge, the nearest that is no relay, the nearest that
/// customers see.
const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x03],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00],
];

/// Cables get their carrier some seconds after the card is up, so that is looked at anew.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

const LONGEST_FRAME: usize = 9216;

/// What was heard on each card.
pub type Heard = BTreeMap<String, Vec<(u8, String)>>;

/// Listens for at most this time; [`Listener`] says the rest.
pub fn listen(interfaces: &[String], time: Duration) -> Heard {
    Listener::open(interfaces).hear(time)
}

/// An open ear at some network cards. From when it is opened the kernel keeps what arrives.
pub struct Listener {
    waiting: Vec<(String, PacketSocket)>,
    heard: Heard,
}

impl Listener {
    /// Opens it at these cards. One that is not there, or may not be listened on (this needs
    /// `CAP_NET_RAW`), stays silent.
    pub fn open(interfaces: &[String]) -> Self {
        let links = Links::of_route();
        let waiting = interfaces.iter().filter_map(|name| {
            let socket = PacketSocket::open(links.get(name).index?, LLDP, &GROUPS).ok()?;
            Some((name.clone(), socket))
        });
        Self {
            waiting: waiting.collect(),
            heard: interfaces.iter().map(|name| (name.clone(), Vec::new())).collect(),
        }
    }

    /// Listens for at most this time, and no longer than until every card that has a carrier has been
    /// heard once (if none has, the time is waited out: one may come). Gives the records of the first
    /// frame on each card, as their type and value in hexadecimal; an empty list for a card on which
    /// there was none.
    pub fn hear(mut self, time: Duration) -> Heard {
        let start = Instant::now();
        let mut buffer = vec![0; LONGEST_FRAME];
        while !self.waiting.is_empty() {
            let Some(left) = time.checked_sub(start.elapsed()) else { break };
            if !self.wait(left.min(LOOK_AGAIN)) {
                break;
            }
            self.receive(&mut buffer);
            let links = Links::of_route();
            let any_heard = self.heard.values().any(|records| !records.is_empty());
            if any_heard && !self.waiting.iter().any(|(name, _)| links.get(name).has_carrier) {
                break;
            }
        }
        self.heard
    }

    /// Waits until something arrives or the time is over; says no if it cannot.
    fn wait(&self, time: Duration) -> bool {
        let Ok(time) = Timespec::try_from(time) else { return false };
        let sockets = self.waiting.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN));
        let mut sockets: Vec<_> = sockets.collect();
        matches!(poll(&mut sockets, Some(&time)), Ok(_) | Err(rustix::io::Errno::INTR))
    }

    /// Takes what has arrived; a card that has been heard is not waited for any more.
    fn receive(&mut self, buffer: &mut [u8]) {
        self.waiting.retain(|(name, socket)| match socket.receive(buffer) {
            Ok(Some(frame)) => {
                let records = records(frame);
                let is_lldp = !records.is_empty();
                if is_lldp {
                    self.heard.insert(name.clone(), records);
                }
                !is_lldp
            }
            Ok(None) => true,
            // A card that went down tells so once and may come back.
            Err(error) => error.raw_os_error() == Some(libc::ENETDOWN),
        });
    }
}

/// The records of a frame up to its end, the one that marks the end included. One that is cut off ends
/// them too.
fn records(mut frame: &[u8]) -> Vec<(u8, String)> {
    const END: u8 = 0;
    let mut records = Vec::new();
    while let [first, second, rest @ ..] = frame {
        // Seven bits of type, nine of length.
        let kind = first >> 1;
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let Some(value) = rest.get(..length) else { break };
        frame = &rest[length..];
        let mut hex = String::with_capacity(length * 2);
        for byte in value {
            let _ = write!(hex, "{byte:02x}");
        }
        records.push((kind, hex));
        if kind == END {
            break;
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_to_the_end_and_padding_is_not() {
        let frame = [0x02, 2, 4, 9, 0x04, 1, 7, 0x06, 2, 0, 120, 0, 0, 0, 0, 0, 0];
        let expected = [(1, "0409"), (2, "07"), (3, "0078"), (0, "")];
        assert_eq!(records(&frame), expected.map(|(kind, hex)| (kind, hex.to_owned())));
        let mut long = vec![0xfe | 1, 0xff];
        long.extend([0xaa; 511]);
        assert_eq!(records(&long), [(127, "aa".repeat(511))]);
        assert_eq!(records(&long[..100]), [], "cut off");
    }

    #[test]
    fn cards_that_are_not_there_are_silent() {
        let heard = listen(&["nosuch0".to_owned()], Duration::from_secs(60));
        assert_eq!(heard, BTreeMap::from([("nosuch0".to_owned(), Vec::new())]));
    }

    proptest::proptest! {
        #[test]
        fn no_frame_makes_it_panic(frame: Vec<u8>) {
            let _ = records(&frame);
        }
    }
}
