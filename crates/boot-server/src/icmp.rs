// SPDX-License-Identifier: Apache-2.0
//! Finds out whether somebody already uses an address, by an echo request.
//!
//! A kernel that gets the request answers it, or its ARP entry fails; a machine that drops echo
//! requests is not found. Clients find those themselves by ARP and decline the address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// Addresses watched at a time. Each is an entry in the kernel's table of neighbours, which holds a
/// thousand.
const MOST: usize = 256;

/// Asks addresses on one interface.
pub(crate) struct Prober {
    socket: UdpSocket,
    /// Who waits for which address: more than one when a client asks twice in short time.
    asked: Mutex<HashMap<Ipv4Addr, Vec<oneshot::Sender<()>>>>,
}

impl Prober {
    /// Opens the one socket all requests of an interface go through.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, asked: Mutex::default() })
    }

    /// Hears answers until it is dropped.
    pub(crate) async fn listen(&self) {
        let mut buffer = [0; 256];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => {
                    if let IpAddr::V4(address) = from.ip()
                        && is_echo_reply(&buffer[..length])
                    {
                        for waiting in self.asked().remove(&address).unwrap_or_default() {
                            let _too_late = waiting.send(());
                        }
                    }
                }
                // "No route to host" is what a free address looks like after ARP failed.
                Err(error) => tracing::debug!(%error, "conflict probe"),
            }
        }
    }

    /// Whether `address` answers within `wait`; none if it was not asked, because the system does not
    /// let us or because too many are being asked: a server that cannot probe still gives addresses.
    pub(crate) async fn is_in_use(&self, address: Ipv4Addr, wait: Duration) -> Option<bool> {
        let (answered, answer) = oneshot::channel();
        {
            let mut asked = self.asked();
            if asked.len() >= MOST {
                return None;
            }
            asked.entry(address).or_default().push(answered);
        }
        let to = SocketAddrV4::new(address, 0);
        let outcome = match self.socket.send_to(&echo_request(), to).await {
            Ok(_) => Some(matches!(tokio::time::timeout(wait, answer).await, Ok(Ok(())))),
            Err(error) => {
                tracing::debug!(%address, %error, "conflict probe");
                drop(answer);
                None
            }
        };
        let mut asked = self.asked();
        if let Some(waiting) = asked.get_mut(&address) {
            waiting.retain(|one| !one.is_closed());
            if waiting.is_empty() {
                asked.remove(&address);
            }
        }
        outcome
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Vec<oneshot::Sender<()>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn echo_request() -> [u8; 8] {
    // Type 8, code 0, checksum, identifier 0xfe17, sequence 1.
    let mut message = [8, 0, 0, 0, 0xfe, 0x17, 0, 1];
    let sum: u32 = message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(folded as u16);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// A raw socket gives the IP header too.
fn is_echo_reply(packet: &[u8]) -> bool {
    let Some(first) = packet.first() else { return false };
    let header = usize::from(first & 0x0f) * 4;
    packet.get(header) == Some(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_makes_the_sum_all_ones() {
        let message = echo_request();
        let sum: u32 =
            message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
