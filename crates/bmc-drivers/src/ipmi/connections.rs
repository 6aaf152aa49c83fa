// SPDX-License-Identifier: Apache-2.0
//! One client per BMC, kept with its session for as long as it is used now and then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipmi::{Bridging, CipherSuite, Client, Credentials, Endpoint, Privilege, Timeouts};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::access::Access;
use super::bmc::Bmc;
use super::settings::IpmiSettings;
use crate::turns::Turns;
use crate::{Error, Target};

/// The clients of all IPMI interfaces.
pub(super) struct Connections {
    pub(super) settings: IpmiSettings,
    turns: Arc<Turns>,
    open: Mutex<Open>,
}

struct Open {
    clients: HashMap<Key, Used>,
    /// Counts uses: the entry with the lowest count is the longest unused.
    clock: u64,
    /// When to look for sessions that nobody needs any more.
    sweep_at: Instant,
}

struct Used {
    client: Arc<Client>,
    at: u64,
}

/// What makes two connections the same. The password is part of it: a changed one must be tried,
/// and a wrong one must not profit from a session opened with the right one.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    address: String,
    port: u16,
    credentials: Credentials,
    privilege: Privilege,
    suite: Option<CipherSuite>,
    bridging: Option<Bridging>,
}

/// How often sessions that nobody needs are looked for. Each holds a socket.
const SWEEP: Duration = Duration::from_secs(20);

impl Connections {
    pub(super) fn new(settings: IpmiSettings, turns: Arc<Turns>) -> Self {
        let open = Open { clients: HashMap::new(), clock: 0, sweep_at: Instant::now() };
        Self { settings, turns, open: Mutex::new(open) }
    }

    /// Reads where the machine's BMC is; asks nobody.
    pub(super) fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        self.access(target).map(drop)
    }

    /// Where the machine's BMC is and how to enter it.
    pub(super) fn access(&self, target: &Target<'_>) -> Result<Access, Error> {
        Access::read(target.driver_info, &self.settings)
    }

    /// The machine's BMC, to do `what` (a verb and its object, for error messages).
    pub(super) fn bmc(&self, target: &Target<'_>, what: &'static str) -> Result<Bmc, Error> {
        let access = self.access(target)?;
        let client = self.client(&access.endpoint);
        Ok(Bmc::new(client, access, what, target.calls.map(Arc::clone)))
    }

    /// How long requests may take.
    pub(super) fn timeouts(&self) -> Timeouts {
        let total = Duration::from_secs(self.settings.command_retry_timeout.max(1));
        Timeouts { total, ..Timeouts::default() }
    }

    /// The line to stand in for the BMC at `endpoint`.
    pub(super) fn turns(&self, endpoint: &Endpoint) -> Arc<Semaphore> {
        let port = Some(endpoint.port).filter(|port| *port != ipmi::PORT);
        self.turns.of(&endpoint.address, port)
    }

    fn client(&self, endpoint: &Endpoint) -> Arc<Client> {
        let key = Key::of(endpoint);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.sweep();
        open.clock += 1;
        let now = open.clock;
        if let Some(used) = open.clients.get_mut(&key) {
            used.at = now;
            return Arc::clone(&used.client);
        }
        let turns = self.turns(endpoint);
        let client = Arc::new(Client::new(endpoint.clone(), self.timeouts(), turns));
        if open.clients.len() >= self.settings.connection_cache_size.max(1) {
            open.forget_the_longest_unused();
        }
        open.clients.insert(key, Used { client: Arc::clone(&client), at: now });
        client
    }
}

impl Open {
    /// Closes the sessions that BMCs have forgotten by now. A client without a session is kept: it
    /// is small, and knows the BMC's cipher suite and sensors.
    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP;
        for used in self.clients.values() {
            used.client.close_if_idle();
        }
    }

    /// The client's session ends with its last user.
    fn forget_the_longest_unused(&mut self) {
        let oldest = self.clients.iter().min_by_key(|(_, used)| used.at);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.clients.remove(&key);
        }
    }
}

impl Key {
    fn of(endpoint: &Endpoint) -> Self {
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
