// SPDX-License-Identifier: Apache-2.0
//! The sockets of multicast DNS: one for each interface and version of IP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Offer, PORT};
use crate::interface::{self, BindError};

const GROUP4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const GROUP6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb);
/// What is said at the start is said again after this: the first may get lost.
const AGAIN: Duration = Duration::from_secs(1);
/// Answers in one second by one socket; whoever asks in vain asks again.
const MOST_PER_SECOND: u32 = 50;

/// Multicast DNS cannot be spoken.
#[derive(Debug, thiserror::Error)]
#[error("multicast DNS cannot be spoken on {interface}")]
pub struct ListenError {
    interface: String,
    #[source]
    source: BindError,
}

/// Listens on the interfaces, and does not answer yet.
pub struct Listener {
    sockets: Vec<(Arc<str>, UdpSocket, SocketAddr)>,
}

impl Listener {
    /// Begins to listen on the interfaces of these names. IPv6 is spoken where there is any.
    ///
    /// # Errors
    /// If an interface cannot be used.
    pub fn bind(interfaces: &[String]) -> Result<Self, ListenError> {
        let mut sockets = Vec::new();
        for name in interfaces {
            let shared: Arc<str> = name.as_str().into();
            let four = interface::udp_in_shared_group(PORT, name, IpAddr::V4(GROUP4))
                .map_err(|source| ListenError { interface: name.clone(), source })?;
            sockets.push((Arc::clone(&shared), four, SocketAddr::from((GROUP4, PORT))));
            match interface::udp_in_shared_group(PORT, name, IpAddr::V6(GROUP6)) {
                Ok(six) => sockets.push((shared, six, SocketAddr::from((GROUP6, PORT)))),
                Err(error) => tracing::debug!(interface = name, %error, "no mDNS over IPv6"),
            }
        }
        Ok(Self { sockets })
    }

    /// Answers until it is dropped.
    pub async fn run(self, offer: Offer) {
        let offer = Arc::new(offer);
        let mut tasks = JoinSet::new();
        for (name, socket, group) in self.sockets {
            tasks.spawn(serve(name, socket, group, Arc::clone(&offer)));
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn serve(name: Arc<str>, socket: UdpSocket, group: SocketAddr, offer: Arc<Offer>) {
    let announcement = offer.announcement();
    let mut announced_at = None;
    let mut message = vec![0; 9000];
    let mut second = Instant::now();
    let mut answers = 0;
    loop {
        let again = match announced_at {
            None => Some(Instant::now()),
            Some((at, 1)) => Some(at + AGAIN),
            Some(_) => None,
        };
        let announce = async {
            match again {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            received = socket.recv_from(&mut message) => received,
            () = announce => {
                send(&name, &socket, &announcement, group).await;
                let times = announced_at.map_or(1, |(_, times)| times + 1);
                announced_at = Some((Instant::now(), times));
                continue;
            }
        };
        let (length, from) = match received {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(interface = &*name, %error, "mDNS cannot be heard");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let Some(answer) = offer.answer(&message[..length], from) else { continue };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, answers) = (Instant::now(), 0);
        }
        answers += 1;
        if answers <= MOST_PER_SECOND {
            send(&name, &socket, &answer.message, answer.only_to.unwrap_or(group)).await;
        }
    }
}

async fn send(name: &str, socket: &UdpSocket, message: &[u8], to: SocketAddr) {
    if let Err(error) = socket.send_to(message, to).await {
        tracing::debug!(interface = name, %to, %error, "an mDNS message could not be sent");
    }
}
