// SPDX-License-Identifier: Apache-2.0
//! The DHCPv4 server's sockets, and how its replies leave.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::Settings;
use super::leases::Leases;
use super::packet::{MessageType, Packet};
use super::reply::{Answer, Reply, To, Verdict};
use super::server::{Port, Received, Server};
use crate::icmp::Prober;
use crate::interface::{self, BindError};
use crate::neighbour::Neighbours;
use crate::serving::{self, Incoming, Link, ListenError, Queue, Services, Version};
use crate::{HardwareAddress, Mode, Sighting, What};

/// How long an address is watched before it is offered. Firmware gives up after four seconds at the
/// earliest, and a machine on the same segment answers within milliseconds.
const PROBE_TIME: Duration = Duration::from_millis(400);
const DHCP_PORT: u16 = 67;
const PXE_PORT: u16 = 4011;

/// A DHCPv4 server that listens.
pub struct Listener {
    server: Server,
    leases: Leases,
    services: Services,
    links: Vec<Link>,
    wires: Wires,
}

impl Listener {
    /// Begins to listen on every interface whose own network is not off.
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
            let ports: &[u16] = match settings.mode_of(served) {
                Mode::Off => &[],
                Mode::Proxy => &[DHCP_PORT, PXE_PORT],
                Mode::Reserve | Mode::Discover if settings.has_distant_proxy() => {
                    &[DHCP_PORT, PXE_PORT]
                }
                Mode::Reserve | Mode::Discover => &[DHCP_PORT],
            };
            let open = |port: u16| -> Result<Link, BindError> {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
                let socket = interface::udp_for_broadcast(any, &served.name)?;
                Link::new(&served.name, port, socket)
            };
            for port in ports {
                let interface = &served.name;
                let link = open(*port)
                    .map_err(|source| ListenError { interface: interface.clone(), source })?;
                links.push(link);
            }
        }
        let wires = Wires::open(&links);
        Ok(Self { server: Server::new(settings), leases, services, links, wires })
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        let queue = Queue::new();
        let plans = self.services.plans.clone();
        let mut tasks = JoinSet::new();
        for prober in self.wires.probers.values() {
            let prober = prober.clone();
            tasks.spawn(async move { prober.listen().await });
        }
        let version4 = Version4 {
            server: self.server,
            services: self.services,
            wires: Arc::new(self.wires),
            queue: queue.sender.clone(),
            tasks,
        };
        serving::serve(version4, self.leases, self.links, plans, queue).await;
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

struct Version4 {
    server: Server,
    services: Services,
    wires: Arc<Wires>,
    /// Where a packet goes again when the address that was to be offered turned out to be in use.
    queue: mpsc::Sender<Incoming<Asked>>,
    /// Who hears the answers of probes, and the probes that are going on.
    tasks: JoinSet<()>,
}

/// Ways to machines that do not have their addresses yet. The server works without them: then replies
/// are broadcast, and addresses are offered without a look at who uses them.
struct Wires {
    neighbours: Option<Neighbours>,
    /// By the number of the interface.
    probers: HashMap<u32, Arc<Prober>>,
}

struct Asked {
    from: SocketAddrV4,
    packet: Packet,
    /// The address that was to be offered, and answers.
    occupied: Option<Ipv4Addr>,
}

impl Version for Version4 {
    type Message = Asked;
    type Answer = Answer;
    type Leases = Leases;

    fn decode(bytes: &[u8], from: SocketAddr) -> Result<Asked, String> {
        let SocketAddr::V4(from) = from else { return Err("the sender has no v4 address".into()) };
        let packet = Packet::decode(bytes).map_err(|error| error.to_string())?;
        Ok(Asked { from, packet, occupied: None })
    }

    fn card(&self, incoming: &Incoming<Asked>) -> Option<HardwareAddress> {
        let card = incoming.message.packet.hardware;
        (!self.server.settings().ignored.contains(&card)).then_some(card)
    }

    fn answer(&mut self, incoming: &Incoming<Asked>, leases: &mut Leases) -> Answer {
        let now = (self.services.clock)();
        if let Some(address) = incoming.message.occupied {
            leases.conflict(address, now);
        }
        let received = Received {
            interface: &incoming.link.name,
            port: if incoming.link.port == PXE_PORT { Port::Pxe } else { Port::Dhcp },
            from: incoming.message.from,
            now,
        };
        let packet = &incoming.message.packet;
        self.server.answer(packet, &received, leases, &*self.services.plans)
    }

    async fn finish(&mut self, incoming: Incoming<Asked>, mut answer: Answer, is_durable: bool) {
        if !is_durable && matches!(answer.verdict, Verdict::Leased(_)) {
            answer.verdict = Verdict::NotRecorded;
            answer.nothing_to_load = false;
            answer.reply = None;
        }
        self.tell(&incoming, &answer);
        if let Some(reply) = answer.reply {
            self.send(incoming, reply).await;
        }
    }
}

impl Version4 {
    async fn send(&mut self, incoming: Incoming<Asked>, reply: Reply) {
        let prober = self.wires.probers.get(&incoming.link.index);
        if let (Some(address), Some(prober)) = (reply.probe, prober) {
            while self.tasks.try_join_next().is_some() {}
            let (wires, prober, queue) = (self.wires.clone(), prober.clone(), self.queue.clone());
            self.tasks.spawn(async move {
                probe(address, &prober, incoming, &reply, &wires, queue).await;
            });
            return;
        }
        self.wires.send(&incoming, &reply).await;
    }

    fn tell(&self, incoming: &Incoming<Asked>, answer: &Answer) {
        let packet = &incoming.message.packet;
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
            nothing_to_load: answer.nothing_to_load,
            subject: None,
            what: What::Dhcp4 {
                asked: packet.message_type().unwrap_or(MessageType::Discover),
                verdict: answer.verdict,
                boot_file: answer.boot_file.clone(),
            },
        });
    }
}

impl Wires {
    fn open(links: &[Link]) -> Self {
        let neighbours = Neighbours::open()
            .inspect_err(|error| tracing::warn!(%error, "DHCP replies will be broadcast"))
            .ok();
        let mut probers = HashMap::new();
        for link in links {
            match Prober::open(&link.name) {
                Ok(prober) => {
                    probers.insert(link.index, Arc::new(prober));
                }
                Err(error) => {
                    let interface = &link.name;
                    tracing::warn!(%interface, %error, "addresses are offered without probing them");
                }
            }
        }
        Self { neighbours, probers }
    }

    async fn send(&self, incoming: &Incoming<Asked>, reply: &Reply) {
        let index = incoming.link.index;
        if let To::NewAddress { address, hardware } = reply.to
            && let Some(card) = hardware.mac()
            && let Some(neighbours) = &self.neighbours
            && neighbours.set(index, address, card).is_ok()
        {
            send(incoming, &reply.packet, SocketAddrV4::new(address, 68)).await;
            neighbours.forget(index, address);
        } else {
            send(incoming, &reply.packet, plain_destination(reply.to)).await;
        }
    }
}

/// Sends the offer unless somebody answers at the address; then the packet is answered again.
async fn probe(
    address: Ipv4Addr,
    prober: &Prober,
    mut incoming: Incoming<Asked>,
    reply: &Reply,
    wires: &Wires,
    queue: mpsc::Sender<Incoming<Asked>>,
) {
    let is_in_use = prober.is_in_use(address, PROBE_TIME).await;
    if is_in_use == Some(true) {
        incoming.message.occupied = Some(address);
        // A full queue only means that the client has to ask again, and the address is probed again.
        let _ = queue.try_send(incoming);
        return;
    }
    if let (Some(_), Some(neighbours)) = (is_in_use, &wires.neighbours) {
        neighbours.forget(incoming.link.index, address);
    }
    wires.send(&incoming, reply).await;
}

async fn send(asked: &Incoming<Asked>, reply: &Packet, to: SocketAddrV4) {
    let bytes = reply.encode(asked.message.packet.largest_reply());
    let Err(error) = asked.link.socket.send_to(&bytes, to).await else { return };
    let interface = &asked.link.name;
    if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
        // More than a thousand machines on one segment are more than Linux is set up for.
        tracing::warn!(
            %interface, %to,
            "a DHCP reply was not sent: the kernel's table of neighbours is full; raise \
             net.ipv4.neigh.default.gc_thresh3"
        );
    } else {
        tracing::warn!(%interface, %to, %error, "a DHCP reply was not sent");
    }
}

fn plain_destination(to: To) -> SocketAddrV4 {
    match to {
        To::Address(address) => address,
        To::Broadcast | To::NewAddress { .. } => SocketAddrV4::new(Ipv4Addr::BROADCAST, 68),
    }
}
