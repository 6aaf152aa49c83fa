// SPDX-License-Identifier: Apache-2.0
//! The DHCPv6 server's sockets, and how its replies leave.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

use super::config::{Interface, Settings};
use super::leases::Leases;
use super::message::Relayed;
use super::server::{Answer, Received, Server, Verdict};
use crate::interface::{self, BindError};
use crate::serving::{self, Incoming, Link, ListenError, Queue, Services, Version};
use crate::{HardwareAddress, Mode, Sighting, What};

const PORT: u16 = 547;
/// All servers and relays of a segment.
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// A DHCPv6 server that listens.
pub struct Listener {
    server: Server,
    leases: Leases,
    services: Services,
    links: Vec<Link>,
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
        let is_on = |served: &&Interface| settings.mode_of(served) != Mode::Off;
        for served in settings.interfaces.iter().filter(is_on) {
            let open = || -> Result<Link, BindError> {
                let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
                let socket = interface::udp_in_group(any, &served.name, GROUP)?;
                Link::new(&served.name, PORT, socket)
            };
            let link =
                open().map_err(|source| ListenError { interface: served.name.clone(), source })?;
            links.push(link);
        }
        Ok(Self { server: Server::new(settings), leases, services, links })
    }

    /// Serves until it is dropped.
    pub async fn run(self) {
        let plans = self.services.plans.clone();
        let version6 = Version6 { server: self.server, services: self.services };
        serving::serve(version6, self.leases, self.links, plans, Queue::new()).await;
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("server", &self.server).finish_non_exhaustive()
    }
}

struct Version6 {
    server: Server,
    services: Services,
}

struct Asked {
    from: SocketAddrV6,
    relayed: Relayed,
}

impl Version for Version6 {
    type Message = Asked;
    type Answer = Answer;
    type Leases = Leases;

    fn decode(bytes: &[u8], from: SocketAddr) -> Result<Asked, String> {
        let SocketAddr::V6(from) = from else { return Err("the sender has no v6 address".into()) };
        let relayed = Relayed::decode(bytes).map_err(|error| error.to_string())?;
        Ok(Asked { from, relayed })
    }

    fn card(&self, incoming: &Incoming<Asked>) -> Option<HardwareAddress> {
        let Asked { from, relayed } = &incoming.message;
        self.server.card(relayed, *from.ip())
    }

    fn answer(&mut self, incoming: &Incoming<Asked>, leases: &mut Leases) -> Answer {
        let Asked { from, relayed } = &incoming.message;
        let now = (self.services.clock)();
        let received = Received { interface: &incoming.link.name, from: *from, now };
        self.server.answer(relayed, &received, leases, &*self.services.plans)
    }

    async fn finish(&mut self, incoming: Incoming<Asked>, mut answer: Answer, is_durable: bool) {
        if !is_durable && matches!(answer.verdict, Verdict::Leased(_)) {
            answer.verdict = Verdict::NotRecorded;
            answer.nothing_to_load = false;
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

impl Version6 {
    fn tell(&self, incoming: &Incoming<Asked>, answer: &Answer) {
        let Asked { from, relayed } = &incoming.message;
        let given = if let Verdict::Advertised(address) | Verdict::Leased(address) = answer.verdict
        {
            address
        } else {
            *from.ip()
        };
        self.services.sightings.seen(Sighting {
            at: (self.services.clock)(),
            interface: incoming.link.name.clone(),
            hardware: answer.hardware,
            address: Some(given.into()),
            architecture: answer.architecture,
            stage: Some(answer.stage),
            known: answer.known,
            nothing_to_load: answer.nothing_to_load,
            subject: None,
            what: What::Dhcp6 {
                asked: relayed.message.kind,
                verdict: answer.verdict,
                boot_url: answer.boot_url.clone(),
            },
        });
    }
}
