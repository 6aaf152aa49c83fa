// SPDX-License-Identifier: Apache-2.0
//! Detects with ICMP echo requests whether a host already uses an address.
//!
//! A host that drops echo requests is not detected; clients detect it by ARP and decline the address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// The number of concurrent probes. Each uses an entry of the kernel's neighbour table, which holds 1024.
const MAX_PROBES: usize = 256;

/// Probes addresses on one interface.
pub(crate) struct ConflictProber {
    socket: UdpSocket,
    /// The waiting probes by address; several if a client repeats its request quickly.
    waiting: Mutex<HashMap<Ipv4Addr, Vec<oneshot::Sender<()>>>>,
}

impl ConflictProber {
    /// Opens the raw socket that all probes of an interface share.
    pub(crate) fn open(interface: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UdpSocket::from_std(socket.into())?, waiting: Mutex::default() })
    }

    /// Receives echo replies until the future is dropped.
    pub(crate) async fn listen(&self) {
        let mut buffer = [0; 256];
        loop {
            match self.socket.recv_from(&mut buffer).await {
                Ok((length, from)) => {
                    if let IpAddr::V4(address) = from.ip()
                        && is_echo_reply(&buffer[..length])
                    {
                        for probe in self.waiting().remove(&address).unwrap_or_default() {
                            let _cancelled = probe.send(());
                        }
                    }
                }
                // "No route to host" is the normal result for a free address after ARP failed.
                Err(error) => tracing::debug!(%error, "conflict probe receive failed"),
            }
        }
    }

    /// Returns whether a host at `address` replies within `timeout`. Returns `None` if the address could
    /// not be probed, because sending failed or too many probes are running.
    pub(crate) async fn is_in_use(&self, address: Ipv4Addr, timeout: Duration) -> Option<bool> {
        let (sender, reply) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= MAX_PROBES {
                return None;
            }
            waiting.entry(address).or_default().push(sender);
        }
        let to = SocketAddrV4::new(address, 0);
        let outcome = match self.socket.send_to(&echo_request(), to).await {
            Ok(_) => Some(matches!(tokio::time::timeout(timeout, reply).await, Ok(Ok(())))),
            Err(error) => {
                tracing::debug!(%address, %error, "conflict probe send failed");
                drop(reply);
                None
            }
        };
        let mut waiting = self.waiting();
        if let Some(probes) = waiting.get_mut(&address) {
            probes.retain(|probe| !probe.is_closed());
            if probes.is_empty() {
                waiting.remove(&address);
            }
        }
        outcome
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Vec<oneshot::Sender<()>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Returns whether a packet from a raw socket, which includes the IP header, is an echo reply.
fn is_echo_reply(packet: &[u8]) -> bool {
    let Some(first) = packet.first() else { return false };
    let header = usize::from(first & 0x0f) * 4;
    packet.get(header) == Some(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_request_has_a_valid_checksum() {
        let message = echo_request();
        let sum: u32 =
            message.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }
}
