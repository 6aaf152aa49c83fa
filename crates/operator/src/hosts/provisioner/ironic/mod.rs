// SPDX-License-Identifier: Apache-2.0
//! The provisioner for any Ironic: Ferrite or another implementation.
//!
//! Requests and values are those of Metal3's operator, so that nodes which it registered can be
//! taken over. One file per group of verbs.

mod adoption;
mod calls;
mod capacity;
mod deployment;
mod deprovisioning;
mod event_subscriptions;
mod firmware;
mod inspection;
mod lookup;
mod machine_check;
mod node;
mod node_changes;
mod patch;
mod ports;
mod power;
mod preparation;
mod registration;
mod removal;
mod servicing;
mod settings;
#[cfg(test)]
mod tests;
mod transport;
mod verb_set;
mod virtual_media;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use self::calls::IronicCalls;
use self::capacity::CapacityCache;
use self::node_changes::NodeChangeFeed;
use self::virtual_media::AcceptedMediaRequests;
use super::outcome::{ProvisionerFailureKind, VerbOutcome, VerbStop};

pub use settings::{IronicProvisionerSettings, IronicProvisionerSettingsError};
pub use transport::{IronicTransport, IronicTransportError};

/// The oldest microversion with all that registration and deployment need.
const OLDEST_MICROVERSION: u16 = 89;
/// Reads the attached virtual media.
const VIRTUAL_MEDIA_STATUS: u16 = 93;
/// `disable_power_off` of a node.
const DISABLE_POWER_OFF: u16 = 95;
/// Aborts a deployment that waits for the ramdisk.
const DEPLOYMENT_ABORT: u16 = 110;

/// The provisioner for any Ironic.
pub struct IronicProvisioner {
    transport: Arc<dyn IronicTransport>,
    settings: IronicProvisionerSettings,
    /// The newest microversion of the server; 0 until it is known.
    newest_version: AtomicU16,
    capacity: CapacityCache,
    changes: NodeChangeFeed,
    media: AcceptedMediaRequests,
}

impl IronicProvisioner {
    /// Creates a provisioner. Sends no request yet.
    #[must_use]
    pub fn new(transport: Arc<dyn IronicTransport>, settings: IronicProvisionerSettings) -> Self {
        let (newest_version, capacity) = (AtomicU16::new(0), CapacityCache::default());
        let (changes, media) = (NodeChangeFeed::default(), AcceptedMediaRequests::default());
        Self { transport, settings, newest_version, capacity, changes, media }
    }

    /// The newest microversion of the server. Fails if it is too old or has no driver, which means
    /// that no conductor is running.
    async fn microversion(&self) -> VerbOutcome<u16> {
        let known = self.newest_version.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let not_ready = |message: String| VerbStop::NotReady { message };
        let get = |path| self.transport.request(ironic_client::Method::GET, path, None);
        let root = get("/v1").await.map_err(|error| not_ready(error.message))?;
        let newest =
            root["version"]["version"].as_str().and_then(ironic_client::Microversion::parse);
        let Some(ironic_client::Microversion(newest)) = newest else {
            return Err(not_ready("the service does not state its API version".to_owned()));
        };
        if newest < OLDEST_MICROVERSION {
            return Err(not_ready(format!(
                "the service supports API version 1.{newest}, but 1.{OLDEST_MICROVERSION} is needed; \
                 upgrade it"
            )));
        }
        let drivers = get("/v1/drivers").await.map_err(|error| not_ready(error.message))?;
        if drivers["drivers"].as_array().is_none_or(Vec::is_empty) {
            return Err(not_ready("the service has no driver yet".to_owned()));
        }
        self.newest_version.store(newest, Ordering::Relaxed);
        Ok(newest)
    }

    /// The calls of one verb, whose failures are of the given kind.
    async fn calls(&self, kind: ProvisionerFailureKind) -> VerbOutcome<IronicCalls<'_>> {
        let version = self.microversion().await?;
        Ok(IronicCalls { transport: &*self.transport, settings: &self.settings, version, kind })
    }

    /// After an outage the server may be another version.
    fn forget_version(&self) {
        self.newest_version.store(0, Ordering::Relaxed);
    }
}

/// A value that is absent or null is `None`.
fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}
