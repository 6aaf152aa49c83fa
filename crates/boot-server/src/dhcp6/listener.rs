// SPDX-License-Identifier: Apache-2.0
//! The DHCPv6 server's sockets, made like those of v4: one owner of the leases, one flush per batch.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::Settings;
use super::leases::Leases;
use super::message::Relayed;
use super::server::{Answer, Received, Server, Verdict};
use crate::dhcp4::Services;
use crate::interface::{self, BindError};
use crate::lease_book::flush;
use crate::{Mode, Sighting, What};

const QUEUE: usize = 4096;
const BATCH: usize = 256;
/// All servers and relays of a segment.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// A DHCPv6 server that listens.
pub struct Listener {
    server: Server,
    leases: Leases,
    services: Services,
    links: Vec<Arc<Link>>,
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("DHCPv6 cannot listen on {interface}")]
pub struct ListenError {
    interface: Arc<str>,
    #[source]
    source: BindError,
}

struct Link {
    name: Arc<str>,
    socket: UdpSocket,
}

struct Incoming {
    link: Arc<Link>,
    from: SocketAddrV6,
    relayed: Relayed,
}

impl Listener {
    /// Begins to listen on every interface that is not off.
    ///
    /// # Errors
    /// If one cannot be had.
    pub fn bind(
        settings: Settings,
        leases: Leases,
        services: Services,
    ) -> Result<Self, ListenError> {
        let mut links = Vec::new();
        for served in settings.interfaces.iter().filter(|served| served.mode != Mode::Off) {
            let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 547));
            let socket = interface::udp_in_group(any, &served.name, GROUP)
                .map_err(|source| ListenError { interface: served.name.clone(), source })?;
            links.push(Arc::new(Link { name: served.name.clone(), socket }));
        }
        Ok(Self { server: Server::new(settings), leases, services, links })
    }

    /// Serves until it is dropped.
    pub async fn run(mut self) {
        let (sender, mut incoming) = mpsc::channel(QUEUE);
        let mut readers = JoinSet::new();
        for link in &self.links {
            readers.spawn(read(link.clone(), sender.clone()));
        }
        drop(sender);
        let mut batch = Vec::with_capacity(BATCH);
        while incoming.recv_many(&mut batch, BATCH).await > 0 {
            let mut answers = Vec::with_capacity(batch.len());
            for incoming in batch.drain(..) {
                let answer = self.answer(&incoming);
                answers.push((incoming, answer));
            }
            let mut durable = true;
            if self.leases.needs_commit() {
                (self.leases, durable) = flush(self.leases, Leases::commit).await;
            }
            for (incoming, mut answer) in answers {
                if !durable && matches!(answer.verdict, Verdict::Leased(_)) {
                    answer.verdict = Verdict::NotRecorded;
                    answer.reply = None;
                }
                self.tell(&incoming, &answer);
                if let Some(reply) = answer.reply
                    && let Err(error) = incoming.link.socket.send_to(&reply.bytes, reply.to).await
                {
                    let interface = &incoming.link.name;
                    tracing::warn!(%interface, to = %reply.to, %error, "a DHCPv6 reply was not sent");
                }
            }
        }
    }

    fn answer(&mut self, incoming: &Incoming) -> Answer {
        let now = (self.services.clock)();
        let received = Received { interface: &incoming.link.name, from: incoming.from, now };
        self.server.answer(&incoming.relayed, &received, &mut self.leases, &*self.services.plans)
    }

    fn tell(&self, incoming: &Incoming, answer: &Answer) {
        let given = if let Verdict::Advertised(address) | Verdict::Leased(address) = answer.verdict
        {
            address
        } else {
            *incoming.from.ip()
        };
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: incoming.link.name.clone(),
            hardware: answer.hardware,
            address: Some(given.into()),
            architecture: answer.architecture,
            stage: Some(answer.stage),
            known: answer.known,
            what: What::Dhcp6 {
                asked: incoming.relayed.message.kind,
                verdict: answer.verdict,
                boot_url: answer.boot_url.clone(),
            },
        });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

async fn read(link: Arc<Link>, messages: mpsc::Sender<Incoming>) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from) = match link.socket.recv_from(&mut buffer).await {
            Ok((length, SocketAddr::V6(from))) => (length, from),
            Ok((_, SocketAddr::V4(_))) => continue,
            Err(error) => {
                tracing::debug!(interface = %link.name, %error, "DHCPv6 receive");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let relayed = match Relayed::decode(&buffer[..length]) {
            Ok(relayed) => relayed,
            Err(error) => {
                tracing::debug!(interface = %link.name, %from, %error, "no DHCPv6 message");
                continue;
            }
        };
        let incoming = Incoming { link: link.clone(), from, relayed };
        if let Err(mpsc::error::TrySendError::Closed(_)) = messages.try_send(incoming) {
            return;
        }
    }
}
