// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 server's sockets.
//!
//! One task per socket reads packets; one task owns the leases, answers whatever is waiting, makes the
//! leases durable once for all of it, and only then sends. While the disk is busy packets gather, and
//! the next flush serves them all.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::Settings;
use super::leases::Leases;
use super::packet::{MessageType, Packet};
use super::reply::{Answer, Reply, To, Verdict};
use super::server::{Port, Received, Server};
use crate::interface::{self, BindError};
use crate::lease_book::flush;
use crate::neighbour::Neighbours;
use crate::{Mode, Plans, Sighting, Sightings, What, icmp};

/// Packets that may wait to be answered. Beyond that they are dropped, and clients ask again.
const QUEUE: usize = 4096;
/// Packets answered per flush to disk.
const BATCH: usize = 256;
/// How long an address is watched before it is offered. Firmware gives up after four seconds at the
/// earliest, and a machine on the same segment answers within milliseconds.
const PROBE_TIME: Duration = Duration::from_millis(400);

/// What the server works with.
#[derive(Clone)]
pub struct Services {
    /// What machines should boot.
    pub plans: Arc<dyn Plans>,
    /// Who is told of exchanges.
    pub sightings: Arc<dyn Sightings>,
    /// The time of day.
    pub clock: fn() -> Timestamp,
}

/// A DHCPv4 server that listens.
pub struct Listener {
    server: Server,
    leases: Leases,
    services: Services,
    links: Vec<Arc<Link>>,
    neighbours: Option<Neighbours>,
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("DHCP cannot listen on {interface}")]
pub struct ListenError {
    interface: Arc<str>,
    #[source]
    source: BindError,
}

/// One socket.
struct Link {
    name: Arc<str>,
    index: u32,
    port: Port,
    socket: UdpSocket,
}

enum Event {
    Packet(Incoming),
    /// The address that was to be offered answers.
    Occupied(Ipv4Addr, Incoming),
}

struct Incoming {
    link: Arc<Link>,
    from: SocketAddrV4,
    packet: Packet,
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
        for served in &settings.interfaces {
            let ports: &[(Port, u16)] = match served.mode {
                Mode::Off => &[],
                Mode::Proxy => &[(Port::Dhcp, 67), (Port::Pxe, 4011)],
                Mode::Reserve | Mode::Discover => &[(Port::Dhcp, 67)],
            };
            for (port, number) in ports {
                let link = Link::open(&served.name, *port, *number)
                    .map_err(|source| ListenError { interface: served.name.clone(), source })?;
                links.push(Arc::new(link));
            }
        }
        let neighbours = Neighbours::open()
            .inspect_err(|error| tracing::warn!(%error, "DHCP replies will be broadcast"))
            .ok();
        Ok(Self { server: Server::new(settings), leases, services, links, neighbours })
    }

    /// Serves until it is dropped.
    pub async fn run(mut self) {
        let (sender, mut events) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        for link in &self.links {
            tasks.spawn(read(link.clone(), sender.clone()));
        }
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            while tasks.try_join_next().is_some() {}
            if events.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
            let mut answers = Vec::with_capacity(batch.len());
            for event in batch.drain(..) {
                answers.push(self.answer(event));
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
                if let Some(reply) = answer.reply {
                    self.send(incoming, reply, &sender, &mut tasks).await;
                }
            }
        }
    }

    fn answer(&mut self, event: Event) -> (Incoming, Answer) {
        let now = (self.services.clock)();
        let incoming = match event {
            Event::Packet(incoming) => incoming,
            Event::Occupied(address, incoming) => {
                self.leases.conflict(address, now);
                incoming
            }
        };
        let received = Received {
            interface: &incoming.link.name,
            port: incoming.link.port,
            from: incoming.from,
            now,
        };
        let answer = self.server.answer(
            &incoming.packet,
            &received,
            &mut self.leases,
            &*self.services.plans,
        );
        (incoming, answer)
    }

    async fn send(
        &self,
        incoming: Incoming,
        reply: Reply,
        sender: &mpsc::Sender<Event>,
        tasks: &mut JoinSet<()>,
    ) {
        if let To::NewAddress { address, hardware } = reply.to
            && reply.probe.is_none()
            && let Some(card) = hardware.mac()
            && let Some(neighbours) = &self.neighbours
            && neighbours.set(incoming.link.index, address, card).is_ok()
        {
            let to = SocketAddrV4::new(address, 68);
            return incoming.link.send(&incoming.packet, &reply.packet, to).await;
        }
        let Some(probe) = reply.probe else {
            let to = plain_destination(reply.to);
            return incoming.link.send(&incoming.packet, &reply.packet, to).await;
        };
        let sender = sender.clone();
        tasks.spawn(async move {
            if icmp::is_in_use(probe, &incoming.link.name, PROBE_TIME).await {
                // A full queue only means that the client has to ask again.
                let _ = sender.try_send(Event::Occupied(probe, incoming));
            } else {
                // The probe left a failed entry in the table of neighbours; an offer to a new address
                // is broadcast rather than sent after it.
                let to = plain_destination(reply.to);
                incoming.link.send(&incoming.packet, &reply.packet, to).await;
            }
        });
    }

    fn tell(&self, incoming: &Incoming, answer: &Answer) {
        let packet = &incoming.packet;
        let given = answer.reply.as_ref().map(|reply| reply.packet.your_address);
        let given = given.filter(|address| !address.is_unspecified());
        let given = given.unwrap_or(packet.client_address);
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: incoming.link.name.clone(),
            hardware: Some(packet.hardware),
            address: (!given.is_unspecified()).then_some(given.into()),
            architecture: answer.architecture,
            stage: Some(answer.stage),
            known: answer.known,
            what: What::Dhcp4 {
                asked: packet.message_type().unwrap_or(MessageType::Discover),
                verdict: answer.verdict,
                boot_file: answer.boot_file.clone(),
            },
        });
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Link {
    fn open(name: &Arc<str>, port: Port, number: u16) -> Result<Self, BindError> {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, number));
        let socket = interface::udp_for_broadcast(address, name)?;
        Ok(Self { name: name.clone(), index: interface::index(name)?, port, socket })
    }

    async fn send(&self, asked: &Packet, reply: &Packet, to: SocketAddrV4) {
        let bytes = reply.encode(asked.largest_reply());
        if let Err(error) = self.socket.send_to(&bytes, to).await {
            tracing::warn!(interface = %self.name, %to, %error, "a DHCP reply was not sent");
        }
    }
}

fn plain_destination(to: To) -> SocketAddrV4 {
    match to {
        To::Address(address) => address,
        To::Broadcast | To::NewAddress { .. } => SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
    }
}

async fn read(link: Arc<Link>, events: mpsc::Sender<Event>) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from) = match link.socket.recv_from(&mut buffer).await {
            Ok((length, SocketAddr::V4(from))) => (length, from),
            Ok((_, SocketAddr::V6(_))) => continue,
            Err(error) => {
                tracing::debug!(interface = %link.name, %error, "DHCP receive");
                // An interface that is down reports it again and again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let packet = match Packet::decode(&buffer[..length]) {
            Ok(packet) => packet,
            Err(error) => {
                tracing::debug!(interface = %link.name, %from, %error, "no DHCP message");
                continue;
            }
        };
        let event = Event::Packet(Incoming { link: link.clone(), from, packet });
        if let Err(mpsc::error::TrySendError::Closed(_)) = events.try_send(event) {
            return;
        }
    }
}
