// SPDX-License-Identifier: Apache-2.0
//! The cache of connections: one per BMC and login, cached_addresses with its session.
//!
//! BMCs allow few sessions, so each one is deleted when its connection is evicted, when the last node
//! that uses it changes its credentials, and when Ferrite stops.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use drivers::{BmcCallLog, BmcLimits, BmcSessions, DriverError, DriverTarget};
use node_model::{NodeId, redact_boot_keys};
use redfish::{
    ExchangeObserver, RedfishClient, RedfishEndpoint, RedfishExchange, RedfishRetryPolicy,
    RedfishTimeouts,
};
use tokio::task::JoinSet;

use super::access::RedfishAccess;
use super::bmc::{RedfishBmc, explain};
use super::quirks::QuirkCatalog;
use super::settings::RedfishSettings;

/// Number of BMCs that are logged out of concurrently when Ferrite stops.
const MAX_CONCURRENT_LOGOUTS: usize = 256;
/// Timeout of one logout when Ferrite stops.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of all logouts together. The BMC expires the remaining sessions itself.
const LOGOUT_ALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of all Redfish interfaces.
pub(crate) struct RedfishConnections {
    pub(super) settings: RedfishSettings,
    pub(super) quirks: QuirkCatalog,
    limits: Arc<BmcLimits>,
    open: Mutex<OpenRedfishConnections>,
}

#[derive(Default)]
struct OpenRedfishConnections {
    /// Connections by BMC address; nearly always one per address.
    bmcs: HashMap<String, Vec<CachedRedfishConnection>>,
    /// Number of connections.
    count: usize,
    /// Incremented at each use; the connection with the lowest `last_used` is evicted first.
    clock: u64,
}

/// A connection for one endpoint. Different credentials or certificate settings get a connection of
/// their own: a changed password must be tried, and a wrong one must not reuse a session that was
/// opened with the right one.
struct CachedRedfishConnection {
    client: RedfishClient,
    last_used: u64,
    /// The nodes that use it, sorted.
    nodes: Vec<NodeId>,
}

impl RedfishConnections {
    pub(super) fn new(
        settings: RedfishSettings,
        quirks: QuirkCatalog,
        turns: Arc<BmcLimits>,
    ) -> Self {
        Self { settings, quirks, limits: turns, open: Mutex::default() }
    }

    /// Validates address and credentials. Sends no request.
    pub(super) fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        RedfishAccess::read(target.driver_info, &self.settings).map(drop)
    }

    /// Returns the BMC of the machine for the operation `what` (a verb and its object, for messages).
    pub(super) fn bmc(
        &self,
        target: &DriverTarget<'_>,
        what: impl Into<String>,
    ) -> Result<RedfishBmc, DriverError> {
        let access = RedfishAccess::read(target.driver_info, &self.settings)?;
        let what = what.into();
        let client = self
            .client(&access.endpoint, target.node.id)
            .map_err(|error| explain(error, &access.endpoint.address, &what))?;
        let client = match target.call_log {
            None => client,
            Some(log) => client.observed(Arc::new(CallLogObserver(Arc::clone(log)))),
        };
        Ok(RedfishBmc::new(client, access, what))
    }

    fn client(
        &self,
        endpoint: &RedfishEndpoint,
        node: NodeId,
    ) -> Result<RedfishClient, redfish::RedfishError> {
        let mut open = self.open();
        open.clock += 1;
        let now = open.clock;
        if let Some(connection) = open.find(endpoint) {
            connection.last_used = now;
            if connection.nodes.binary_search(&node).is_ok() {
                return Ok(connection.client.clone());
            }
        }
        // The node is new or its credentials have changed.
        open.release(&endpoint.address, node);
        let client = match open.find(endpoint) {
            Some(connection) => {
                let at = connection.nodes.partition_point(|known| *known < node);
                connection.nodes.insert(at, node);
                return Ok(connection.client.clone());
            }
            None => self.connect(endpoint.clone())?,
        };
        if open.count >= self.settings.connection_cache_size.max(1) {
            open.close_least_recently_used();
        }
        open.add(CachedRedfishConnection {
            client: client.clone(),
            last_used: now,
            nodes: vec![node],
        });
        Ok(client)
    }

    fn connect(&self, endpoint: RedfishEndpoint) -> Result<RedfishClient, redfish::RedfishError> {
        let (host, port) = endpoint.host_and_port();
        let permits = self.limits.semaphore(host, port);
        let timeouts = RedfishTimeouts {
            connect: Duration::from_secs(self.settings.connect_timeout.max(1)),
            request: Duration::from_secs(self.settings.read_timeout.max(1)),
        };
        let after_rejection = Duration::from_secs(self.settings.rejected_password_pause);
        let retry_policy = RedfishRetryPolicy { after_rejection, ..RedfishRetryPolicy::default() };
        Ok(RedfishClient::new(endpoint, timeouts, permits)?.with_retry_policy(retry_policy))
    }

    fn open(&self) -> MutexGuard<'_, OpenRedfishConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl BmcSessions for RedfishConnections {
    /// Logs out of all BMCs, within [`LOGOUT_ALL_TIMEOUT`].
    async fn close(&self) {
        let all = std::mem::take(&mut *self.open());
        let mut clients = all.bmcs.into_values().flatten().map(|connection| connection.client);
        let closing = async {
            let mut logouts = JoinSet::new();
            loop {
                for client in clients.by_ref().take(MAX_CONCURRENT_LOGOUTS - logouts.len()) {
                    logouts.spawn(async move {
                        tokio::time::timeout(LOGOUT_TIMEOUT, client.close()).await.ok();
                    });
                }
                if logouts.join_next().await.is_none() {
                    return;
                }
            }
        };
        if tokio::time::timeout(LOGOUT_ALL_TIMEOUT, closing).await.is_err() {
            tracing::info!("logout from BMCs timed out");
        }
    }

    fn release(&self, node: NodeId) {
        let mut open = self.open();
        let used = open.bmcs.iter().filter(|(_, connections)| {
            connections.iter().any(|connection| connection.nodes.binary_search(&node).is_ok())
        });
        let addresses: Vec<String> = used.map(|(address, _)| address.clone()).collect();
        for address in addresses {
            open.release(&address, node);
        }
    }
}

impl fmt::Debug for RedfishConnections {
    /// Prints only the number of connections: they hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").field("open", &self.open().count).finish_non_exhaustive()
    }
}

impl OpenRedfishConnections {
    fn find(&mut self, endpoint: &RedfishEndpoint) -> Option<&mut CachedRedfishConnection> {
        let connections_here = self.bmcs.get_mut(&endpoint.address)?;
        connections_here.iter_mut().find(|connection| connection.is_for(endpoint))
    }

    fn add(&mut self, connection: CachedRedfishConnection) {
        let address = connection.client.endpoint().address.clone();
        self.bmcs.entry(address).or_default().push(connection);
        self.count += 1;
    }

    /// Removes the node from the connections to this address and closes those without nodes.
    fn release(&mut self, address: &str, node: NodeId) {
        self.close(address, |connection| {
            let Ok(at) = connection.nodes.binary_search(&node) else { return false };
            connection.nodes.remove(at);
            connection.nodes.is_empty()
        });
    }

    fn close_least_recently_used(&mut self) {
        let oldest = self.bmcs.values().flatten().min_by_key(|connection| connection.last_used);
        let Some(oldest) = oldest else { return };
        let (address, at) = (oldest.client.endpoint().address.clone(), oldest.last_used);
        self.close(&address, |connection| connection.last_used == at);
    }

    /// Closes the connections to `address` for which `is_over` is true.
    fn close(&mut self, address: &str, is_over: impl FnMut(&mut CachedRedfishConnection) -> bool) {
        let Some(connections_here) = self.bmcs.get_mut(address) else { return };
        for connection in connections_here.extract_if(.., is_over) {
            self.count -= 1;
            // The logout runs in the background; if it fails, the session expires on the BMC.
            tokio::spawn(async move { connection.client.close().await });
        }
        if connections_here.is_empty() {
            self.bmcs.remove(address);
        }
    }
}

impl CachedRedfishConnection {
    fn is_for(&self, endpoint: &RedfishEndpoint) -> bool {
        self.client.endpoint() == endpoint
    }
}

/// Adds each HTTP exchange to the call log of the driver call.
struct CallLogObserver(Arc<BmcCallLog>);

impl ExchangeObserver for CallLogObserver {
    fn exchanged(&self, exchange: &RedfishExchange<'_>) {
        let result = match exchange.result {
            Ok(status) => status.to_string(),
            // A BMC may repeat the boot URL it was sent.
            Err(error) => redact_boot_keys(&error.to_string()),
        };
        let path = exchange.path.split('?').next().unwrap_or_default();
        self.0.add(format!("{} {path}", exchange.method), result, exchange.took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reuses_connections_and_evicts_the_least_recently_used() {
        let settings = RedfishSettings { connection_cache_size: 2, ..RedfishSettings::default() };
        let quirks = QuirkCatalog::load(None).unwrap();
        let connections = RedfishConnections::new(settings, quirks, Arc::new(BmcLimits::new(1)));
        let node = NodeId::random();
        let at = |address: &str| RedfishEndpoint::parse(address).unwrap();
        let cached_addresses = |connections: &RedfishConnections| {
            let open = connections.open();
            let mut addresses: Vec<String> = open.bmcs.keys().cloned().collect();
            addresses.sort();
            assert_eq!(open.bmcs.values().map(Vec::len).sum::<usize>(), open.count);
            addresses.join(" ")
        };
        for address in ["http://a", "http://b", "http://a", "http://c", "http://c"] {
            connections.client(&at(address), node).unwrap();
        }
        assert_eq!(cached_addresses(&connections), "http://a http://c");
        // The same node with other credentials replaces its connection.
        connections.client(&at("http://a").with_login("me", "secret"), node).unwrap();
        assert_eq!(cached_addresses(&connections), "http://a http://c");
        assert_eq!(connections.open().count, 2);
        // A connection is closed when the last node that uses it is gone.
        let other = NodeId::random();
        connections.client(&at("http://c"), other).unwrap();
        connections.release(node);
        assert_eq!(cached_addresses(&connections), "http://c");
        connections.release(other);
        assert_eq!(cached_addresses(&connections), "");
        connections.client(&at("http://a"), node).unwrap();
        connections.close().await;
        assert_eq!(cached_addresses(&connections), "");
    }
}
