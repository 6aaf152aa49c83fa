// SPDX-License-Identifier: Apache-2.0
//! One connection per BMC, kept with its session for as long as it is used now and then.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redfish::{Client, Endpoint, Exchange, Observer, Timeouts, Trust};

use super::access::Access;
use super::bmc::Bmc;
use super::quirks::QuirkBook;
use super::settings::RedfishSettings;
use crate::turns::Turns;
use crate::{CallLog, Error, Target};

/// The connections of all Redfish interfaces.
pub(super) struct Connections {
    pub(super) settings: RedfishSettings,
    pub(super) quirks: QuirkBook,
    turns: Arc<Turns>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    clients: HashMap<Key, Used>,
    /// Counts uses: the entry with the lowest count is the longest unused.
    clock: u64,
}

struct Used {
    client: Client,
    at: u64,
}

/// What makes two connections the same. The password is part of it: a changed one must be tried,
/// and a wrong one must not profit from a session opened with the right one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    address: String,
    root: String,
    username: Option<String>,
    password: Option<String>,
    basic: bool,
    trust: Option<PathBuf>,
    checked: bool,
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
            .client(access.endpoint.clone())
            .map_err(|error| Error::invalid("driver_info", format!("cannot {what}: {error}")))?;
        let client = match target.calls {
            None => client,
            Some(log) => client.observed(Arc::new(Journal(Arc::clone(log)))),
        };
        Ok(Bmc::new(client, access, what, target))
    }

    fn client(&self, endpoint: Endpoint) -> Result<Client, redfish::Error> {
        let key = Key::of(&endpoint);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clock += 1;
        let now = open.clock;
        if let Some(used) = open.clients.get_mut(&key) {
            used.at = now;
            return Ok(used.client.clone());
        }
        let turns = self.turns.of(&endpoint.address);
        let timeouts = Timeouts {
            connect: Duration::from_secs(self.settings.connect_timeout.max(1)),
            request: Duration::from_secs(self.settings.read_timeout.max(1)),
        };
        let client = Client::new(endpoint, timeouts, turns)?;
        if open.clients.len() >= self.settings.connection_cache_size.max(1) {
            open.close_the_longest_unused();
        }
        open.clients.insert(key, Used { client: client.clone(), at: now });
        Ok(client)
    }
}

impl Open {
    fn close_the_longest_unused(&mut self) {
        let oldest = self.clients.iter().min_by_key(|(_, used)| used.at);
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
        if let Some(used) = self.clients.remove(&key) {
            // Signing out frees one of the few sessions a BMC has; if that fails it times out.
            tokio::spawn(async move { used.client.close().await });
        }
    }
}

impl Key {
    fn of(endpoint: &Endpoint) -> Self {
        let (trust, checked) = match &endpoint.trust {
            Trust::System => (None, true),
            Trust::File(path) => (Some(path.clone()), true),
            Trust::Nobody => (None, false),
        };
        Self {
            address: endpoint.address.clone(),
            root: endpoint.root.clone(),
            username: endpoint.username.clone(),
            password: endpoint.password.clone(),
            basic: endpoint.auth == redfish::Auth::Basic,
            trust,
            checked,
        }
    }
}

/// Tells each exchange to the log of the action it belongs to.
struct Journal(Arc<CallLog>);

impl Observer for Journal {
    fn exchanged(&self, exchange: &Exchange<'_>) {
        let result = match exchange.result {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.0.add(format!("{} {}", exchange.method, exchange.path), result, exchange.took);
    }
}
