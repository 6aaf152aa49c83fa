// SPDX-License-Identifier: Apache-2.0
//! The sockets of the DHCPv6 server.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use dhcp_codec::v6::{ALL_SERVERS_AND_RELAYS, RelayedDhcp6Message, SERVER_PORT};

use super::config::{Dhcp6Interface, Dhcp6Settings};
use super::exchange::Dhcp6PacketInfo;
use super::leases::DhcpLeases6;
use super::outcome::{Dhcp6Outcome, Dhcp6Response};
use super::server::Dhcp6Server;
use crate::dhcp_loop::{
    self, DhcpCommit, DhcpProtocol, DhcpQueue, DhcpSocket, IncomingDhcpMessage,
};
use crate::sockets::{self, SocketBindError};
use crate::{
    BootEvent, BootEventDetail, BootSnapshot, DhcpListenError, DhcpMode, DhcpServices,
    HardwareAddress,
};

/// A DHCPv6 server with bound sockets.
pub struct Dhcp6Listener {
    server: Dhcp6Server,
    leases: DhcpLeases6,
    services: DhcpServices,
    sockets: Vec<DhcpSocket>,
}

impl Dhcp6Listener {
    /// Binds a socket on every interface whose subnet is not [off](DhcpMode::Off).
    ///
    /// # Errors
    /// If a socket cannot be bound.
    pub fn bind(
        settings: Dhcp6Settings,
        leases: DhcpLeases6,
        services: DhcpServices,
    ) -> Result<Self, DhcpListenError> {
        let mut sockets = Vec::new();
        let is_on = |it: &&Dhcp6Interface| settings.interface_mode(it) != DhcpMode::Off;
        for interface in settings.interfaces.iter().filter(is_on) {
            let open = || -> Result<DhcpSocket, SocketBindError> {
                let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, SERVER_PORT));
                let socket =
                    sockets::udp_multicast_v6(any, &interface.name, ALL_SERVERS_AND_RELAYS)?;
                DhcpSocket::new(&interface.name, SERVER_PORT, socket)
            };
            let socket = open()
                .map_err(|source| DhcpListenError { interface: interface.name.clone(), source })?;
            sockets.push(socket);
        }
        Ok(Self { server: Dhcp6Server::new(settings), leases, services, sockets })
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        let directory = self.services.directory.clone();
        let protocol = Dhcp6Protocol { server: self.server, services: self.services };
        dhcp_loop::serve(protocol, self.leases, self.sockets, directory, DhcpQueue::new()).await;
    }
}

impl std::fmt::Debug for Dhcp6Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dhcp6Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

struct Dhcp6Protocol {
    server: Dhcp6Server,
    services: DhcpServices,
}

struct ReceivedDhcp6Message {
    from: SocketAddrV6,
    relayed: RelayedDhcp6Message,
}

impl DhcpProtocol for Dhcp6Protocol {
    type Message = ReceivedDhcp6Message;
    type DhcpResponse = Dhcp6Response;
    type Leases = DhcpLeases6;

    fn decode(bytes: &[u8], from: SocketAddr) -> Result<ReceivedDhcp6Message, String> {
        let SocketAddr::V6(from) = from else {
            return Err("the sender has no IPv6 address".into());
        };
        let relayed = RelayedDhcp6Message::decode(bytes).map_err(|error| error.to_string())?;
        Ok(ReceivedDhcp6Message { from, relayed })
    }

    fn hardware_address(
        &self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp6Message>,
    ) -> Option<HardwareAddress> {
        let ReceivedDhcp6Message { from, relayed } = &incoming.message;
        self.server.client_hardware(relayed, *from.ip())
    }

    fn handle(
        &mut self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp6Message>,
        leases: &mut DhcpLeases6,
        snapshot: &dyn BootSnapshot,
    ) -> Dhcp6Response {
        let ReceivedDhcp6Message { from, relayed } = &incoming.message;
        let now = (self.services.clock)();
        let info = Dhcp6PacketInfo { interface: &incoming.socket.name, from: *from, now };
        self.server.handle(relayed, &info, leases, snapshot)
    }

    async fn deliver(
        &mut self,
        incoming: IncomingDhcpMessage<ReceivedDhcp6Message>,
        mut response: Dhcp6Response,
        commit: &DhcpCommit,
    ) {
        if let Dhcp6Outcome::Leased(address) = response.outcome
            && !commit.is_durable(address.into())
        {
            response.outcome = Dhcp6Outcome::LeaseNotStored;
            response.no_loadable_boot_file = false;
            response.reply = None;
        }
        self.record_event(&incoming, &response);
        if let Some(reply) = response.reply
            && let Err(error) = incoming.socket.socket.send_to(&reply.bytes, reply.to).await
        {
            let interface = &incoming.socket.name;
            tracing::warn!(%interface, to = %reply.to, %error, "sending a DHCPv6 reply failed");
        }
    }
}

impl Dhcp6Protocol {
    fn record_event(
        &self,
        incoming: &IncomingDhcpMessage<ReceivedDhcp6Message>,
        response: &Dhcp6Response,
    ) {
        let ReceivedDhcp6Message { from, relayed } = &incoming.message;
        let assigned = response.assigned_address();
        let address = assigned.unwrap_or(*from.ip());
        self.services.events.record(BootEvent {
            at: (self.services.clock)(),
            interface: incoming.socket.name.clone(),
            hardware: response.hardware,
            address: Some(address.into()),
            architecture: response.architecture,
            stage: Some(response.stage),
            is_known: response.is_known,
            no_loadable_boot_file: response.no_loadable_boot_file,
            machine: None,
            detail: BootEventDetail::Dhcp6 {
                message_type: relayed.message.message_type,
                outcome: response.outcome,
                boot_url: response.boot_url.clone(),
            },
        });
    }
}
