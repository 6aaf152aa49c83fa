// SPDX-License-Identifier: Apache-2.0
//! Cache of IPMI clients, one per BMC, with their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drivers::{BmcLimits, DriverError, DriverTarget};
use ipmi::{
    BridgeRoute, CipherSuite, IpmiClient, IpmiCredentials, IpmiEndpoint, IpmiPrivilege,
    IpmiTimeouts,
};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::access::IpmiAccess;
use super::bmc::IpmiBmc;
use super::settings::IpmiSettings;

/// The clients of all IPMI interfaces.
pub(super) struct IpmiConnections {
    pub(super) settings: IpmiSettings,
    limits: Arc<BmcLimits>,
    open: Mutex<OpenIpmiClients>,
}

struct OpenIpmiClients {
    clients: HashMap<IpmiClientKey, CachedIpmiClient>,
    /// Number of uses so far; the client with the lowest `last_used` is evicted first.
    uses: u64,
    /// When to close idle sessions next.
    next_idle_check: Instant,
}

struct CachedIpmiClient {
    client: Arc<IpmiClient>,
    last_used: u64,
}

/// Identifies a connection. Contains the credentials, so that changed ones are verified, and wrong ones
/// cannot use a session opened with the right ones.
#[derive(PartialEq, Eq, Hash, Clone)]
struct IpmiClientKey {
    address: String,
    port: u16,
    credentials: IpmiCredentials,
    privilege: IpmiPrivilege,
    suite: Option<CipherSuite>,
    bridging: Option<BridgeRoute>,
}

/// Interval of closing idle sessions. Each holds a socket.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(20);

impl IpmiConnections {
    pub(super) fn new(settings: IpmiSettings, limits: Arc<BmcLimits>) -> Self {
        let open =
            OpenIpmiClients { clients: HashMap::new(), uses: 0, next_idle_check: Instant::now() };
        Self { settings, limits, open: Mutex::new(open) }
    }

    /// Checks the node's `driver_info`. Sends no request.
    pub(super) fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        self.access(target).map(drop)
    }

    /// Parses address, credentials and options of the machine's BMC.
    pub(super) fn access(&self, target: &DriverTarget<'_>) -> Result<IpmiAccess, DriverError> {
        IpmiAccess::parse(target.driver_info, &self.settings)
    }

    /// The machine's BMC for the operation `what` (a verb and its object, for error messages).
    pub(super) fn bmc(
        &self,
        target: &DriverTarget<'_>,
        what: &'static str,
    ) -> Result<IpmiBmc, DriverError> {
        let access = self.access(target)?;
        let client = self.client(&access.endpoint);
        Ok(IpmiBmc::new(client, access, what, target.call_log.map(Arc::clone)))
    }

    /// The timeouts of requests.
    pub(super) fn timeouts(&self) -> IpmiTimeouts {
        let total = Duration::from_secs(self.settings.command_retry_timeout.max(1));
        IpmiTimeouts { total, ..IpmiTimeouts::default() }
    }

    /// The semaphore that limits requests to the BMC last_used `endpoint`.
    pub(super) fn semaphore(&self, endpoint: &IpmiEndpoint) -> Arc<Semaphore> {
        let port = Some(endpoint.port).filter(|port| *port != ipmi::PORT);
        self.limits.semaphore(&endpoint.address, port)
    }

    fn client(&self, endpoint: &IpmiEndpoint) -> Arc<IpmiClient> {
        let key = IpmiClientKey::from_endpoint(endpoint);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.close_idle_sessions();
        open.uses += 1;
        let now = open.uses;
        if let Some(cached) = open.clients.get_mut(&key) {
            cached.last_used = now;
            return Arc::clone(&cached.client);
        }
        let semaphore = self.semaphore(endpoint);
        let client = Arc::new(IpmiClient::new(endpoint.clone(), self.timeouts(), semaphore));
        if open.clients.len() >= self.settings.connection_cache_size.max(1) {
            open.evict_least_recently_used();
        }
        open.clients.insert(key, CachedIpmiClient { client: Arc::clone(&client), last_used: now });
        client
    }
}

impl OpenIpmiClients {
    /// Closes sessions that BMCs have dropped by now. Clients without a session stay: they are small and
    /// cache the BMC's cipher suite and sensors.
    fn close_idle_sessions(&mut self) {
        let now = Instant::now();
        if now < self.next_idle_check {
            return;
        }
        self.next_idle_check = now + IDLE_CHECK_INTERVAL;
        for cached in self.clients.values() {
            cached.client.close_if_idle();
        }
    }

    /// The session of the removed client ends when its last user drops it.
    fn evict_least_recently_used(&mut self) {
        let oldest = self.clients.iter().min_by_key(|(_, cached)| cached.last_used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.clients.remove(&key);
        }
    }
}

impl IpmiClientKey {
    fn from_endpoint(endpoint: &IpmiEndpoint) -> Self {
        Self {
            address: endpoint.address.clone(),
            port: endpoint.port,
            credentials: endpoint.credentials.clone(),
            privilege: endpoint.privilege,
            suite: endpoint.cipher_suite,
            bridging: endpoint.bridging,
        }
    }
}
