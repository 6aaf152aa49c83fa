// SPDX-License-Identifier: Apache-2.0
//! One connection per BMC, kept with its session for as long as it is used now and then.
//!
//! BMCs have few sessions to give, so each is given back: when its connection makes room for
//! another, when the last node that used it signs in otherwise, and when Ferrite stops.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{NodeId, without_keys};
use redfish::{Client, Endpoint, Exchange, Observer, Patience, Timeouts};
use tokio::task::JoinSet;

use super::access::Access;
use super::bmc::{Bmc, explain};
use super::quirks::QuirkBook;
use super::settings::RedfishSettings;
use crate::turns::Turns;
use crate::{CallLog, Error, Target};

/// How many BMCs are signed out of at once when Ferrite stops.
const CLOSED_AT_ONCE: usize = 256;
/// How long signing out of one BMC may take then.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);
/// How long signing out of all of them may take. Sessions that are left end by themselves in time.
const CLOSE_ALL_PATIENCE: Duration = Duration::from_secs(10);

/// The connections of all Redfish interfaces.
pub(crate) struct Connections {
    pub(super) settings: RedfishSettings,
    pub(super) quirks: QuirkBook,
    turns: Arc<Turns>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The connections to each address: nearly always one.
    bmcs: HashMap<String, Vec<Used>>,
    /// How many there are in all.
    count: usize,
    /// Counts uses: the connection with the lowest count is the longest unused.
    clock: u64,
}

/// A connection. Another password, user or demand on its certificate makes another connection: a
/// changed password must be tried, and a wrong one must not profit from a session opened with the
/// right one.
struct Used {
    client: Client,
    at: u64,
    /// The nodes that sign in this way, sorted.
    nodes: Vec<NodeId>,
}

impl Connections {
    pub(super) fn new(settings: RedfishSettings, quirks: QuirkBook, turns: Arc<Turns>) -> Self {
        Self { settings, quirks, turns, open: Mutex::default() }
    }

    /// Reads where the machine's BMC is; asks nobody.
    pub(super) fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        Access::read(target.driver_info, &self.settings).map(drop)
    }

    /// The machine's BMC, to do `what` (a verb and its object, for error messages).
    pub(super) fn bmc(&self, target: &Target<'_>, what: impl Into<String>) -> Result<Bmc, Error> {
        let access = Access::read(target.driver_info, &self.settings)?;
        let what = what.into();
        let client = self
            .client(&access.endpoint, target.node.id)
            .map_err(|error| explain(error, &access.endpoint.address, &what))?;
        let client = match target.calls {
            None => client,
            Some(log) => client.observed(Arc::new(Journal(Arc::clone(log)))),
        };
        Ok(Bmc::new(client, access, what))
    }

    /// Signs out of all BMCs, as far as they answer in time.
    pub(crate) async fn close(&self) {
        let all = std::mem::take(&mut *self.open());
        let mut clients = all.bmcs.into_values().flatten().map(|used| used.client);
        let closing = async {
            let mut leaving = JoinSet::new();
            loop {
                for client in clients.by_ref().take(CLOSED_AT_ONCE - leaving.len()) {
                    leaving.spawn(async move {
                        tokio::time::timeout(CLOSE_PATIENCE, client.close()).await.ok();
                    });
                }
                if leaving.join_next().await.is_none() {
                    return;
                }
            }
        };
        if tokio::time::timeout(CLOSE_ALL_PATIENCE, closing).await.is_err() {
            tracing::info!("not all BMCs could be signed out of in time");
        }
    }

    fn client(&self, endpoint: &Endpoint, node: NodeId) -> Result<Client, redfish::Error> {
        let mut open = self.open();
        open.clock += 1;
        let now = open.clock;
        if let Some(used) = open.find(endpoint) {
            used.at = now;
            if used.nodes.binary_search(&node).is_ok() {
                return Ok(used.client.clone());
            }
        }
        // The node is new here or signs in otherwise than before.
        open.leave(&endpoint.address, node);
        let client = match open.find(endpoint) {
            Some(used) => {
                let at = used.nodes.partition_point(|known| *known < node);
                used.nodes.insert(at, node);
                return Ok(used.client.clone());
            }
            None => self.connect(endpoint.clone())?,
        };
        if open.count >= self.settings.connection_cache_size.max(1) {
            open.close_the_longest_unused();
        }
        open.add(Used { client: client.clone(), at: now, nodes: vec![node] });
        Ok(client)
    }

    fn connect(&self, endpoint: Endpoint) -> Result<Client, redfish::Error> {
        let (host, port) = endpoint.host_and_port();
        let turns = self.turns.of(host, port);
        let timeouts = Timeouts {
            connect: Duration::from_secs(self.settings.connect_timeout.max(1)),
            request: Duration::from_secs(self.settings.read_timeout.max(1)),
        };
        let after_rejection = Duration::from_secs(self.settings.rejected_password_pause);
        let patience = Patience { after_rejection, ..Patience::default() };
        Ok(Client::new(endpoint, timeouts, turns)?.patient(patience))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connections {
    /// Only how many there are: they hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("open", &self.open().count).finish_non_exhaustive()
    }
}

impl Open {
    fn find(&mut self, endpoint: &Endpoint) -> Option<&mut Used> {
        let here = self.bmcs.get_mut(&endpoint.address)?;
        here.iter_mut().find(|used| used.is_for(endpoint))
    }

    fn add(&mut self, used: Used) {
        let address = used.client.endpoint().address.clone();
        self.bmcs.entry(address).or_default().push(used);
        self.count += 1;
    }

    /// The node no longer uses the connections it has to this address.
    fn leave(&mut self, address: &str, node: NodeId) {
        self.close(address, |used| {
            let Ok(at) = used.nodes.binary_search(&node) else { return false };
            used.nodes.remove(at);
            used.nodes.is_empty()
        });
    }

    fn close_the_longest_unused(&mut self) {
        let oldest = self.bmcs.values().flatten().min_by_key(|used| used.at);
        let Some(oldest) = oldest else { return };
        let (address, at) = (oldest.client.endpoint().address.clone(), oldest.at);
        self.close(&address, |used| used.at == at);
    }

    /// Closes those connections to an address that are not needed any more.
    fn close(&mut self, address: &str, is_over: impl FnMut(&mut Used) -> bool) {
        let Some(here) = self.bmcs.get_mut(address) else { return };
        for used in here.extract_if(.., is_over) {
            self.count -= 1;
            // Signing out frees one of the few sessions a BMC has; if that fails it times out.
            tokio::spawn(async move { used.client.close().await });
        }
        if here.is_empty() {
            self.bmcs.remove(address);
        }
    }
}

impl Used {
    fn is_for(&self, endpoint: &Endpoint) -> bool {
        self.client.endpoint() == endpoint
    }
}

/// Tells each exchange to the log of the action it belongs to.
struct Journal(Arc<CallLog>);

impl Observer for Journal {
    fn exchanged(&self, exchange: &Exchange<'_>) {
        let result = match exchange.result {
            Ok(status) => status.to_string(),
            // A BMC may repeat the URL of what it was told to boot.
            Err(error) => without_keys(&error.to_string()),
        };
        let path = exchange.path.split('?').next().unwrap_or_default();
        self.0.add(format!("{} {path}", exchange.method), result, exchange.took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_found_again_and_the_longest_unused_makes_room() {
        let settings = RedfishSettings { connection_cache_size: 2, ..RedfishSettings::default() };
        let quirks = QuirkBook::load(None).unwrap();
        let connections = Connections::new(settings, quirks, Arc::new(Turns::new(1)));
        let node = NodeId::random();
        let at = |address: &str| Endpoint::parse(address).unwrap();
        let kept = |connections: &Connections| {
            let open = connections.open();
            let mut addresses: Vec<String> = open.bmcs.keys().cloned().collect();
            addresses.sort();
            assert_eq!(open.bmcs.values().map(Vec::len).sum::<usize>(), open.count);
            addresses.join(" ")
        };
        for address in ["http://a", "http://b", "http://a", "http://c", "http://c"] {
            connections.client(&at(address), node).unwrap();
        }
        assert_eq!(kept(&connections), "http://a http://c");
        // The same node, signing in otherwise: nobody is left who signs in as before.
        connections.client(&at("http://a").with_login("me", "secret"), node).unwrap();
        assert_eq!(kept(&connections), "http://a http://c");
        assert_eq!(connections.open().count, 2);
        connections.close().await;
        assert_eq!(kept(&connections), "");
    }
}
