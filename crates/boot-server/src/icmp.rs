// SPDX-License-Identifier: Apache-2.0
//! Finds out whether somebody already uses an address, by an echo request.
//!
//! A kernel that gets the request answers it, or its ARP entry fails; a machine that drops echo
//! requests is not found. Clients find those themselves by ARP and decline the address.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

/// Whether `address` answers within `wait` on the interface. An error to ask counts as no answer: a
/// server that may not send echo requests still gives addresses.
pub(crate) async fn is_in_use(address: Ipv4Addr, interface: &str, wait: Duration) -> bool {
    let answered = async {
        let socket = open(address, interface)?;
        socket.send(&echo_request()).await?;
        let mut buffer = [0; 256];
        loop {
            let length = socket.recv(&mut buffer).await?;
            if is_echo_reply(&buffer[..length]) {
                return io::Result::Ok(());
            }
        }
    };
    match tokio::time::timeout(wait, answered).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            // "No route to host" is what a free address looks like after ARP failed.
            tracing::debug!(%address, %error, "conflict probe");
            false
        }
        Err(_) => false,
    }
}

fn open(address: Ipv4Addr, interface: &str) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    socket.bind_device(Some(interface.as_bytes()))?;
    socket.set_nonblocking(true)?;
    // A connected socket hears only this address.
    socket.connect(&SocketAddrV4::new(address, 0).into())?;
    UdpSocket::from_std(socket.into())
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
