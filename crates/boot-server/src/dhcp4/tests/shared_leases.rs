// SPDX-License-Identifier: Apache-2.0
//! Two DHCPv4 servers with one lease store: an address is never assigned to two clients.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use dhcp_codec::v4::Dhcp4MessageType;
use node_model::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{DhcpLeaseRecord, DhcpLeaseStore, DhcpLeaseStoreError};

/// A store of several processes, with a manual clock.
#[derive(Clone, Default)]
struct SharedTestLeases {
    shared: Arc<Mutex<(Timestamp, BTreeMap<IpAddr, DhcpLeaseRecord>)>>,
    pending: Vec<DhcpLeaseRecord>,
}

impl DhcpLeaseStore for SharedTestLeases {
    fn load(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        self.changes()
    }

    fn record(&mut self, record: DhcpLeaseRecord) {
        self.pending.push(record);
    }

    fn purge(&mut self, _is_obsolete: &dyn Fn(&DhcpLeaseRecord) -> bool) {}

    fn commit(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        let mut shared = self.shared.lock().unwrap();
        let now = shared.0;
        let mut conflicts = Vec::new();
        for record in self.pending.drain(..) {
            match shared.1.get(&record.address) {
                Some(other) if other.client != record.client && other.expires_at > now => {
                    conflicts.push(other.clone());
                }
                Some(_) | None => {
                    shared.1.insert(record.address, record);
                }
            }
        }
        Ok(conflicts)
    }

    fn is_stale(&self) -> bool {
        true
    }

    fn changes(&mut self) -> Result<Vec<DhcpLeaseRecord>, DhcpLeaseStoreError> {
        Ok(self.shared.lock().unwrap().1.values().cloned().collect())
    }
}

/// Two servers, of which each gets every packet that a client broadcasts.
struct ServerPair {
    servers: [TestDhcp4Server; 2],
    store: SharedTestLeases,
}

impl ServerPair {
    fn new() -> Self {
        let store = SharedTestLeases::default();
        let server = || {
            let mut server = TestDhcp4Server::new(DhcpMode::All);
            server.leases = DhcpLeases4::load(Box::new(store.clone())).unwrap();
            server
        };
        let pair = Self { servers: [server(), server()], store: store.clone() };
        store.shared.lock().unwrap().0 = pair.servers[0].now;
        pair
    }

    /// Sends a packet to one server. Returns the outcome as the client sees it: a lease that the store rejects
    /// is not assigned.
    fn send(&mut self, to: usize, packet: &Dhcp4Packet) -> Dhcp4Outcome {
        let server = &mut self.servers[to];
        let from = SocketAddrV4::new(packet.client_address, 68);
        let info =
            Dhcp4PacketInfo { interface: "eth1", port: Dhcp4Port::Dhcp, from, now: server.now };
        let response = server.core.handle(packet, &info, &mut server.leases, &FakeFleet4);
        let conflicts = server.leases.commit().unwrap();
        let is_lost = |address: Ipv4Addr| conflicts.contains(&address.into());
        if matches!(response.outcome, Dhcp4Outcome::Leased(address) if is_lost(address)) {
            return Dhcp4Outcome::LeaseNotStored;
        }
        response.outcome
    }

    fn refresh(&mut self, server: usize) {
        self.servers[server].leases.refresh().unwrap();
    }

    fn advance(&mut self, seconds: u64) {
        for server in &mut self.servers {
            server.now = server.now.plus(Duration::from_secs(seconds));
        }
        self.store.shared.lock().unwrap().0 = self.servers[0].now;
    }
}

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

#[test]
fn an_address_of_another_server_is_refused() {
    let mut pair = ServerPair::new();
    assert_eq!(pair.send(0, &request(NETBOOT, ADDRESS)), Dhcp4Outcome::Leased(ADDRESS));
    // The second server does not know the lease yet; its commit does.
    assert_eq!(pair.send(1, &request(UNKNOWN, ADDRESS)), Dhcp4Outcome::LeaseNotStored);
    assert_eq!(pair.send(1, &request(UNKNOWN, ADDRESS)), Dhcp4Outcome::Refused(ADDRESS));
    // The holder renews with the second server when the first one is gone.
    assert_eq!(pair.send(1, &request(NETBOOT, ADDRESS)), Dhcp4Outcome::Leased(ADDRESS));
    let Dhcp4Outcome::Offered(other) = pair.send(1, &packet(UNKNOWN, Dhcp4MessageType::Discover))
    else {
        panic!("no offer");
    };
    assert_ne!(other, ADDRESS);
}

#[test]
fn released_and_declined_addresses_are_known_after_a_refresh() {
    let mut pair = ServerPair::new();
    assert_eq!(pair.send(0, &request(NETBOOT, ADDRESS)), Dhcp4Outcome::Leased(ADDRESS));
    pair.refresh(1);
    assert_eq!(pair.send(1, &request(UNKNOWN, ADDRESS)), Dhcp4Outcome::Refused(ADDRESS));
    let mut release = packet(NETBOOT, Dhcp4MessageType::Release);
    release.client_address = ADDRESS;
    assert_eq!(pair.send(0, &release), Dhcp4Outcome::Released(ADDRESS));
    pair.refresh(1);
    assert_eq!(pair.send(1, &request(UNKNOWN, ADDRESS)), Dhcp4Outcome::Leased(ADDRESS));
    let mut decline = packet(UNKNOWN, Dhcp4MessageType::Decline);
    decline.options.set_addresses(option_code::REQUESTED_ADDRESS, &[ADDRESS]);
    assert_eq!(pair.send(1, &decline), Dhcp4Outcome::Declined(ADDRESS));
    pair.refresh(0);
    assert_eq!(pair.send(0, &request(NETBOOT, ADDRESS)), Dhcp4Outcome::Refused(ADDRESS));
    pair.advance(3601);
    assert_eq!(pair.send(0, &request(NETBOOT, ADDRESS)), Dhcp4Outcome::Leased(ADDRESS));
}

#[derive(Debug, Clone)]
enum PairStep {
    Discover { server: usize, client: u8 },
    Request { server: usize, client: u8, last: u8 },
    Release { server: usize, client: u8, last: u8 },
    Decline { server: usize, client: u8, last: u8 },
    Refresh { server: usize },
    Wait { seconds: u64 },
}

fn pair_steps() -> impl Strategy<Value = PairStep> {
    let (server, client, last) = (0..2_usize, 10..16_u8, 100..104_u8);
    prop_oneof![
        1 => (server.clone(), client.clone())
            .prop_map(|(server, client)| PairStep::Discover { server, client }),
        4 => (server.clone(), client.clone(), last.clone())
            .prop_map(|(server, client, last)| PairStep::Request { server, client, last }),
        1 => (server.clone(), client.clone(), last.clone())
            .prop_map(|(server, client, last)| PairStep::Release { server, client, last }),
        1 => (server.clone(), client, last)
            .prop_map(|(server, client, last)| PairStep::Decline { server, client, last }),
        1 => server.prop_map(|server| PairStep::Refresh { server }),
        1 => (1..700_u64).prop_map(|seconds| PairStep::Wait { seconds }),
    ]
}

proptest! {
    #[test]
    fn no_address_has_two_holders_on_two_servers(
        steps in prop::collection::vec(pair_steps(), 1..120)
    ) {
        let mut pair = ServerPair::new();
        let mut held: HashMap<Ipv4Addr, (u8, Timestamp)> = HashMap::new();
        for step in steps {
            let address = |last: u8| Ipv4Addr::new(192, 0, 2, last);
            match step {
                PairStep::Discover { server, client } => {
                    pair.send(server, &packet(client, Dhcp4MessageType::Discover));
                }
                PairStep::Request { server, client, last } => {
                    let address = address(last);
                    let outcome = pair.send(server, &request(client, address));
                    if outcome == Dhcp4Outcome::Leased(address) {
                        let now = pair.servers[0].now;
                        let other = held.get(&address).filter(|(_, until)| *until > now);
                        prop_assert!(
                            other.is_none_or(|(holder, _)| *holder == client),
                            "{} is leased to {:?} and {}", address, other, client
                        );
                        held.insert(address, (client, now.plus(Duration::from_secs(600))));
                    }
                }
                PairStep::Release { server, client, last } => {
                    let mut release = packet(client, Dhcp4MessageType::Release);
                    release.client_address = address(last);
                    // A client releases only what it holds, with the server that knows the lease.
                    if held.get(&address(last)).is_some_and(|(holder, _)| *holder == client)
                        && pair.send(server, &release) == Dhcp4Outcome::Released(address(last))
                    {
                        held.remove(&address(last));
                    }
                }
                PairStep::Decline { server, client, last } => {
                    let mut decline = packet(client, Dhcp4MessageType::Decline);
                    decline.options.set_addresses(option_code::REQUESTED_ADDRESS, &[address(last)]);
                    if pair.send(server, &decline) == Dhcp4Outcome::Declined(address(last)) {
                        held.remove(&address(last));
                    }
                }
                PairStep::Refresh { server } => pair.refresh(server),
                PairStep::Wait { seconds } => pair.advance(seconds),
            }
        }
    }
}
