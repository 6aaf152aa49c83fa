// SPDX-License-Identifier: Apache-2.0
//! The sockets of the DHCPv4 server, and the delivery of its replies.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use dhcp_codec::v4::{CLIENT_PORT, Dhcp4MessageType, Dhcp4Packet, SERVER_PORT};
use node_model::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::config::Dhcp4Settings;
use super::exchange::{Dhcp4PacketInfo, Dhcp4Port};
use super::leases::DhcpLeases4;
use super::outcome::{Dhcp4Destination, Dhcp4Outcome, Dhcp4Reply, Dhcp4Response};
use super::server::Dhcp4Server;
use crate::conflict_probe::ConflictProber;
use crate::dhcp_loop::{
    self, DhcpCommit, DhcpProtocol, DhcpQueue, DhcpSocket, IncomingDhcpMessage,
};
use crate::neighbour_table::NeighbourTable;
use crate::sockets::{self, SocketBindError};
use crate::{
    BootEvent, BootEventDetail, BootSnapshot, DhcpListenError, DhcpMode, DhcpServices,
    HardwareAddress,
};

/// How long an address is probed before it is offered. Firmware gives up after four seconds at the
/// earliest, and a host on the same segment replies within milliseconds.
const PROBE_TIMEOUT: Duration = Duration::from_millis(400);
const PXE_PORT: u16 = 4011;
/// The time between two warnings that an interface has no addresses left.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A DHCPv4 server with bound sockets.
pub struct Dhcp4Listener {
    server: Dhcp4Server,
    leases: DhcpLeases4,
    services: DhcpServices,
    sockets: Vec<DhcpSocket>,
    reply_sender: Dhcp4ReplySender,
}

impl Dhcp4Listener {
    /// Binds sockets on every interface whose subnet is not [off](DhcpMode::Off).
    ///
    /// # Errors
    /// If a socket cannot be bound.
    pub fn bind(
        settings: Dhcp4Settings,
        leases: DhcpLeases4,
        services: DhcpServices,
    ) -> Result<Self, DhcpListenError> {
        let mut sockets = Vec::new();
        for interface in &settings.interfaces {
            let ports: &[u16] = match settings.interface_mode(interface) {
                DhcpMode::Off => &[],
                DhcpMode::Proxy => &[SERVER_PORT, PXE_PORT],
                DhcpMode::Reserve | DhcpMode::Discover | DhcpMode::All
                    if settings.has_relayed_proxy_subnet() =>
                {
                    &[SERVER_PORT, PXE_PORT]
                }
                DhcpMode::Reserve | DhcpMode::Discover | DhcpMode::All => &[SERVER_PORT],
            };
            let name = &interface.name;
            let open = |port: u16| -> Result<DhcpSocket, SocketBindError> {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
                DhcpSocket::new(name, port, sockets::udp_for_broadcast(any, name)?)
            };
            for port in ports {
                let socket = open(*port)
                    .map_err(|source| DhcpListenError { interface: name.clone(), source })?;
                sockets.push(socket);
            }
        }
        let reply_sender = Dhcp4ReplySender::open(&sockets);
        Ok(Self { server: Dhcp4Server::new(settings), leases, services, sockets, reply_sender })
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        let queue = DhcpQueue::new();
        let directory = self.services.directory.clone();
        let mut tasks = JoinSet::new();
        for prober in self.reply_sender.probers.values() {
            let prober = prober.clone();
            tasks.spawn(async move { prober.listen().await });
        }
        let protocol = Dhcp4Protocol {
            server: self.server,
            services: self.services,
            reply_sender: Arc::new(self.reply_sender),
            queue: queue.sender.clone(),
            tasks,
            warned_at: HashMap::new(),
        };
        dhcp_loop::serve(protocol, self.leases, self.sockets, directory, queue).await;
    }
}

impl std::fmt::Debug for Dhcp4Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dhcp4Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

struct Dhcp4Protocol {
    server: Dhcp4Server,
    services: DhcpServices,
    reply_sender: Arc<Dhcp4ReplySender>,
    /// Takes a packet again whose offered address turned out to be in use.
    queue: mpsc::Sender<IncomingDhcpMessage<ReceivedDhcp4Packet>>,
    /// The running probes, and the tasks that receive their replies.
    tasks: JoinSet<()>,
    /// When it was last logged that an interface has no addresses left.
    warned_at: HashMap<(Arc<str>, Dhcp4Outcome), Timestamp>,
}

/// Sends replies to clients that do not use their address yet. Without the neighbour table replies are
/// broadcast; without a prober addresses are offered without a probe.
struct Dhcp4ReplySender {
    neighbours: Option<NeighbourTable>,
    /// By interface index.
    probers: HashMap<u32, Arc<ConflictProber>>,
}

struct ReceivedDhcp4Packet {
    from: SocketAddrV4,
    packet: Dhcp4Packet,
    /// The address that was to be offered and is in use by another host.
    address_in_use: Option<Ipv4Addr>,
}

impl DhcpProtocol for Dhcp4Protocol {
    type Message = ReceivedDhcp4Packet;
    type DhcpResponse = Dhcp4Response;
    type Leases = DhcpLeases4;

    fn decode(bytes: &[u8], from: SocketAddr) -> Result<ReceivedDhcp4Packet, String> {
        let SocketAddr::V4(from) = from else {
            return Err("the sender has no IPv4 address".into());
        };
        let packet = Dhcp4Packet::decode(bytes).map_err(|error| error.to_string())?;
        Ok(ReceivedDhcp4Packet { from, packet, address_in_use: None })
    }

    fn hardware_address(
        &self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>,
    ) -> Option<HardwareAddress> {
        let hardware = incoming.message.packet.hardware;
        (!self.server.settings().ignored.contains(&hardware)).then_some(hardware)
    }

    fn handle(
        &mut self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>,
        leases: &mut DhcpLeases4,
        snapshot: &dyn BootSnapshot,
    ) -> Dhcp4Response {
        let now = (self.services.clock)();
        if let Some(address) = incoming.message.address_in_use {
            leases.report_conflict(address, now);
        }
        let is_pxe = incoming.socket.port == PXE_PORT;
        let info = Dhcp4PacketInfo {
            interface: &incoming.socket.name,
            port: if is_pxe { Dhcp4Port::Pxe } else { Dhcp4Port::Dhcp },
            from: incoming.message.from,
            now,
        };
        self.server.handle(&incoming.message.packet, &info, leases, snapshot)
    }

    async fn deliver(
        &mut self,
        incoming: IncomingDhcpMessage<ReceivedDhcp4Packet>,
        mut response: Dhcp4Response,
        commit: &DhcpCommit,
    ) {
        if let Dhcp4Outcome::Leased(address) = response.outcome
            && !commit.is_durable(address.into())
        {
            response.outcome = Dhcp4Outcome::LeaseNotStored;
            response.no_loadable_boot_file = false;
            response.reply = None;
        }
        self.record_event(&incoming, &response);
        self.warn_if_exhausted(&incoming, response.outcome);
        if let Some(reply) = response.reply {
            self.send(incoming, reply).await;
        }
    }
}

impl Dhcp4Protocol {
    async fn send(
        &mut self,
        incoming: IncomingDhcpMessage<ReceivedDhcp4Packet>,
        reply: Dhcp4Reply,
    ) {
        let sender = self.reply_sender.clone();
        let prober = sender.probers.get(&incoming.socket.index).cloned();
        if let (Some(address), Some(prober)) = (reply.probe, prober) {
            while self.tasks.try_join_next().is_some() {}
            let queue = self.queue.clone();
            self.tasks.spawn(async move {
                probe_and_send(address, &prober, incoming, &reply, &sender, queue).await;
            });
            return;
        }
        sender.send(&incoming, &reply).await;
    }

    /// Logs that a machine gets no address, at most once per minute and interface.
    fn warn_if_exhausted(
        &mut self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>,
        outcome: Dhcp4Outcome,
    ) {
        let is_unknown = outcome == Dhcp4Outcome::UnknownShareUsed;
        if !is_unknown && outcome != Dhcp4Outcome::NoFreeAddress {
            return;
        }
        let now = (self.services.clock)();
        let interface = &incoming.socket.name;
        let warned_at = self.warned_at.entry((interface.clone(), outcome)).or_insert(Timestamp(0));
        if now.since(*warned_at) < WARNING_INTERVAL {
            return;
        }
        *warned_at = now;
        let hardware = incoming.message.packet.hardware;
        if is_unknown {
            tracing::warn!(
                %interface, %hardware,
                "unknown machines hold all DHCP addresses that they may; enrol them, or look for a host \
                 that invents machines"
            );
        } else {
            tracing::warn!(%interface, %hardware, "no free DHCP address; enlarge the ranges");
        }
    }

    fn record_event(
        &self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>,
        response: &Dhcp4Response,
    ) {
        let packet = &incoming.message.packet;
        let assigned = response.reply.as_ref().map(|reply| reply.packet.your_address);
        let assigned = assigned.filter(|address| !address.is_unspecified());
        let address = assigned.unwrap_or(packet.client_address);
        self.services.events.record(BootEvent {
            at: (self.services.clock)(),
            interface: incoming.socket.name.clone(),
            hardware: Some(packet.hardware),
            address: (!address.is_unspecified()).then_some(address.into()),
            architecture: response.architecture,
            stage: Some(response.stage),
            is_known: response.is_known,
            no_loadable_boot_file: response.no_loadable_boot_file,
            machine: None,
            detail: BootEventDetail::Dhcp4 {
                message_type: packet.message_type().unwrap_or(Dhcp4MessageType::Discover),
                outcome: response.outcome,
                boot_file: response.boot_file.clone(),
            },
        });
    }
}

impl Dhcp4ReplySender {
    fn open(sockets: &[DhcpSocket]) -> Self {
        let neighbours = NeighbourTable::open()
            .inspect_err(|error| {
                tracing::warn!(%error, "neighbour table unavailable, DHCP replies will be broadcast");
            })
            .ok();
        let mut probers = HashMap::new();
        for socket in sockets {
            match ConflictProber::open(&socket.name) {
                Ok(prober) => {
                    probers.insert(socket.index, Arc::new(prober));
                }
                Err(error) => {
                    let interface = &socket.name;
                    tracing::warn!(
                        %interface, %error,
                        "conflict probes unavailable, addresses will be offered without a probe"
                    );
                }
            }
        }
        Self { neighbours, probers }
    }

    async fn send(&self, incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>, reply: &Dhcp4Reply) {
        let index = incoming.socket.index;
        if let Dhcp4Destination::NewAddress { address, hardware } = reply.to
            && let Some(mac) = hardware.mac()
            && let Some(neighbours) = &self.neighbours
            && neighbours.insert(index, address, mac).is_ok()
        {
            let to = SocketAddrV4::new(address, CLIENT_PORT);
            send_packet(incoming, &reply.packet, to).await;
            neighbours.remove(index, address);
        } else {
            send_packet(incoming, &reply.packet, socket_destination(reply.to)).await;
        }
    }
}

/// Sends the offer unless a host uses the address. In that case the packet is handled again.
async fn probe_and_send(
    address: Ipv4Addr,
    prober: &ConflictProber,
    mut incoming: IncomingDhcpMessage<ReceivedDhcp4Packet>,
    reply: &Dhcp4Reply,
    reply_sender: &Dhcp4ReplySender,
    queue: mpsc::Sender<IncomingDhcpMessage<ReceivedDhcp4Packet>>,
) {
    let is_in_use = prober.is_in_use(address, PROBE_TIMEOUT).await;
    if is_in_use == Some(true) {
        incoming.message.address_in_use = Some(address);
        // If the queue is full, the client sends its packet again, and the address is probed again.
        let _ = queue.try_send(incoming);
        return;
    }
    if let (Some(_), Some(neighbours)) = (is_in_use, &reply_sender.neighbours) {
        neighbours.remove(incoming.socket.index, address);
    }
    reply_sender.send(&incoming, reply).await;
}

async fn send_packet(
    incoming: &IncomingDhcpMessage<ReceivedDhcp4Packet>,
    reply: &Dhcp4Packet,
    to: SocketAddrV4,
) {
    let bytes = reply.encode(incoming.message.packet.max_reply_bytes());
    let Err(error) = incoming.socket.socket.send_to(&bytes, to).await else { return };
    let interface = &incoming.socket.name;
    if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) {
        // The kernel's default holds 1024 neighbours.
        tracing::warn!(
            %interface, %to,
            "sending a DHCP reply failed: the kernel's neighbour table is full; raise \
             net.ipv4.neigh.default.gc_thresh3"
        );
    } else {
        tracing::warn!(%interface, %to, %error, "sending a DHCP reply failed");
    }
}

fn socket_destination(to: Dhcp4Destination) -> SocketAddrV4 {
    match to {
        Dhcp4Destination::Address(address) => address,
        Dhcp4Destination::Broadcast | Dhcp4Destination::NewAddress { .. } => {
            SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
        }
    }
}
