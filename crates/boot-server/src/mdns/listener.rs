// SPDX-License-Identifier: Apache-2.0
//! The mDNS sockets: one per interface and IP version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{MdnsService, PORT};
use crate::sockets::{self, SocketBindError};

const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// The interval between the two announcements at start, of which one may get lost.
const ANNOUNCEMENT_INTERVAL: Duration = Duration::from_secs(1);
const ANNOUNCEMENTS: u32 = 2;
/// The number of responses per second and socket. Clients repeat queries without a response.
const MAX_RESPONSES_PER_SECOND: u32 = 50;
const RECEIVE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// mDNS cannot listen on an interface.
#[derive(Debug, thiserror::Error)]
#[error("mDNS cannot listen on {interface}")]
pub struct MdnsListenError {
    interface: String,
    #[source]
    source: SocketBindError,
}

/// An mDNS responder with bound sockets.
pub struct MdnsListener {
    sockets: Vec<(Arc<str>, UdpSocket, SocketAddr)>,
}

impl MdnsListener {
    /// Binds sockets on these interfaces. IPv6 is skipped where it is not available.
    ///
    /// # Errors
    /// If an interface cannot be used.
    pub fn bind(interfaces: &[String]) -> Result<Self, MdnsListenError> {
        let mut sockets = Vec::new();
        for interface in interfaces {
            let name: Arc<str> = interface.as_str().into();
            let ipv4 = sockets::udp_shared_multicast(PORT, interface, IpAddr::V4(GROUP4))
                .map_err(|source| MdnsListenError { interface: interface.clone(), source })?;
            sockets.push((Arc::clone(&name), ipv4, SocketAddr::from((GROUP4, PORT))));
            match sockets::udp_shared_multicast(PORT, interface, IpAddr::V6(GROUP6)) {
                Ok(ipv6) => sockets.push((name, ipv6, SocketAddr::from((GROUP6, PORT)))),
                Err(error) => tracing::debug!(interface, %error, "mDNS over IPv6 unavailable"),
            }
        }
        Ok(Self { sockets })
    }

    /// Responds until the future is dropped.
    pub async fn run(self, service: MdnsService) {
        let service = Arc::new(service);
        let mut tasks = JoinSet::new();
        for (name, socket, group) in self.sockets {
            tasks.spawn(serve(name, socket, group, Arc::clone(&service)));
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn serve(name: Arc<str>, socket: UdpSocket, group: SocketAddr, service: Arc<MdnsService>) {
    let announcement = service.announcement();
    let mut announcements_left = if announcement.is_some() { ANNOUNCEMENTS } else { 0 };
    let mut announcement_timer = tokio::time::interval(ANNOUNCEMENT_INTERVAL);
    let mut message = vec![0; 9000];
    let mut second = Instant::now();
    let mut responses = 0;
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut message) => received,
            _ = announcement_timer.tick(), if announcements_left > 0 => {
                send(&name, &socket, announcement.as_deref().unwrap_or_default(), group).await;
                announcements_left -= 1;
                continue;
            }
        };
        let (length, from) = match received {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(interface = &*name, %error, "mDNS receive failed");
                tokio::time::sleep(RECEIVE_RETRY_INTERVAL).await;
                continue;
            }
        };
        let Some(response) = service.respond(&message[..length], from) else { continue };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, responses) = (Instant::now(), 0);
        }
        responses += 1;
        if responses <= MAX_RESPONSES_PER_SECOND {
            let to = response.unicast_to.unwrap_or(group);
            send(&name, &socket, &response.message, to).await;
        }
    }
}

async fn send(name: &str, socket: &UdpSocket, message: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(message, to).await {
        tracing::debug!(interface = name, %to, %error, "mDNS send failed");
    }
}
