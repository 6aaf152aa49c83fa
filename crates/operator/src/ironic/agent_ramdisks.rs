// SPDX-License-Identifier: Apache-2.0
//! Version and checksum of the ramdisks of an installation, read from its API for the status.
//!
//! A failed reading is logged and tried again; it never changes the condition `Ready`.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ironic_client::Method;
use kube::api::DynamicObject;
use kube_resources::ironic::service::{AgentRamdiskStatus, IronicStatus};
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::warn;

use super::controller::IronicReconciler;
use crate::hosts::provisioner::ironic::IronicTransport as _;
use crate::ironic_connection::{InstalledIronic, IronicConnection, IronicLocation};
use crate::object_loop::ObjectReconciler as _;
use crate::object_patches::ObjectPatches;
use crate::reconcile_loop::RESYNC;

/// Time after which ramdisks are read again.
const REFRESH: Duration = RESYNC;
/// Time after which they are read again if the service has not read one of them yet.
const INCOMPLETE_REFRESH: Duration = Duration::from_secs(60);
/// Longest wait for the response, which holds up the pass.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest number of ramdisks in a status. There is one per architecture.
const MAX_RAMDISKS: usize = 16;
/// Largest length of a text in a status.
const MAX_TEXT: usize = 256;

/// What is kept about the ramdisks of an installation.
pub(super) struct RamdiskReader {
    connection: Arc<IronicConnection>,
    /// When they have to be read.
    due_at: Instant,
}

impl IronicReconciler {
    /// Reads the ramdisks when the installation is ready next. Pods of another version may have others.
    pub(super) fn expire_ramdisks(&self, object: &DynamicObject) {
        let mut readers = self.ramdisks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = readers.get_mut(uid(object)) {
            reader.due_at = Instant::now();
        }
    }

    /// Closes the connection to an installation that is deleted.
    pub(super) fn forget_ramdisks(&self, object: &DynamicObject) {
        let mut readers = self.ramdisks.lock().unwrap_or_else(PoisonError::into_inner);
        readers.remove(uid(object));
    }

    /// Writes the ramdisks of a ready installation into its status, if they are due and changed. Returns the
    /// time until they are due.
    pub(super) async fn refresh_ramdisks(&self, object: &DynamicObject) -> Duration {
        let (connection, wait) = self.ramdisk_reader(object);
        if !wait.is_zero() {
            return wait;
        }
        let request = connection.request(Method::GET, "/v1/ferrite/ramdisks", None);
        let outcome = match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(response)) => ramdisk_statuses(response),
            Ok(Err(error)) => Err(error.message),
            Err(_) => Err(format!("no response within {TIMEOUT:?}")),
        };
        let wait = next_reading(&outcome);
        let written = match outcome {
            Ok(ramdisks) => self.write_ramdisks(object, &ramdisks).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            warn!(
                namespace = object.metadata.namespace.as_deref(),
                name = object.metadata.name.as_deref(),
                error,
                retry_in = ?wait,
                "ramdisks of the installation cannot be read"
            );
        }
        let mut readers = self.ramdisks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = readers.get_mut(uid(object)) {
            reader.due_at = Instant::now() + wait;
        }
        wait
    }

    /// The connection to an installation, and the time until its ramdisks are due.
    fn ramdisk_reader(&self, object: &DynamicObject) -> (Arc<IronicConnection>, Duration) {
        let mut readers = self.ramdisks.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = readers.entry(uid(object).to_owned()).or_insert_with(|| {
            let namespace = object.metadata.namespace.clone().unwrap_or_default();
            let name = object.metadata.name.clone().unwrap_or_default();
            let location = IronicLocation::Installed(InstalledIronic {
                object: Some((namespace, name)),
                cluster_domain: self.settings.cluster_domain.clone(),
            });
            let connection = Arc::new(IronicConnection::new(location, &self.context));
            RamdiskReader { connection, due_at: Instant::now() }
        });
        let wait = reader.due_at.saturating_duration_since(Instant::now());
        (Arc::clone(&reader.connection), wait)
    }

    async fn write_ramdisks(
        &self,
        object: &DynamicObject,
        ramdisks: &[AgentRamdiskStatus],
    ) -> Result<(), String> {
        let stored = self.stored(object).await.map_err(|obstacle| obstacle.text)?;
        let Some(stored) = stored else { return Ok(()) };
        let current: IronicStatus =
            serde_json::from_value(stored.data["status"].clone()).unwrap_or_default();
        if current.agent_ramdisks == ramdisks {
            return Ok(());
        }
        let patches = ObjectPatches::new(self.context.client.clone(), &self.resource(), object);
        let patched = patches.patch_status(&json!({"agentRamdisks": ramdisks})).await;
        patched.map_err(|obstacle| obstacle.text)
    }
}

fn uid(object: &DynamicObject) -> &str {
    object.metadata.uid.as_deref().unwrap_or_default()
}

/// The response of the API.
#[derive(Deserialize)]
struct RamdiskList {
    ramdisks: Vec<ListedRamdisk>,
}

#[derive(Deserialize)]
struct ListedRamdisk {
    architecture: Option<String>,
    version: Option<String>,
    ramdisk: ListedImage,
}

#[derive(Deserialize)]
struct ListedImage {
    sha256: Option<String>,
}

/// The ramdisks for the status, by architecture. Fails if the response is not one of the service.
fn ramdisk_statuses(response: Value) -> Result<Vec<AgentRamdiskStatus>, String> {
    let list: RamdiskList =
        serde_json::from_value(response).map_err(|error| format!("invalid response: {error}"))?;
    if list.ramdisks.len() > MAX_RAMDISKS {
        return Err(format!("invalid response: {} ramdisks", list.ramdisks.len()));
    }
    let mut statuses: Vec<AgentRamdiskStatus> = Vec::new();
    for listed in list.ramdisks {
        let status = AgentRamdiskStatus {
            architecture: listed.architecture.unwrap_or_default(),
            checksum: listed.ramdisk.sha256.map(|sha256| format!("sha256:{sha256}")),
            version: listed.version,
        };
        let texts = [Some(&status.architecture), status.checksum.as_ref(), status.version.as_ref()];
        if texts.into_iter().flatten().any(|text| text.len() > MAX_TEXT) {
            return Err("invalid response: a text is too long".to_owned());
        }
        // The architecture is the key of the list.
        if statuses.iter().any(|other| other.architecture == status.architecture) {
            return Err(format!(
                "invalid response: two ramdisks for the architecture {:?}",
                status.architecture
            ));
        }
        statuses.push(status);
    }
    statuses.sort_by(|a, b| a.architecture.cmp(&b.architecture));
    Ok(statuses)
}

/// The time after which ramdisks are read again.
fn next_reading(outcome: &Result<Vec<AgentRamdiskStatus>, String>) -> Duration {
    match outcome {
        Ok(ramdisks) if ramdisks.iter().any(|it| it.checksum.is_none()) => INCOMPLETE_REFRESH,
        Ok(_) | Err(_) => REFRESH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(sha256: Option<&str>) -> Value {
        json!({"source": "file:///images/i", "sha256": sha256, "size": sha256.map(|_| 1)})
    }

    fn row(architecture: Option<&str>, version: Option<&str>, sha256: Option<&str>) -> Value {
        json!({
            "architecture": architecture, "version": version, "kernel": image(Some("aa")),
            "ramdisk": image(sha256), "checked_at": null, "changed_at": null, "error": null,
        })
    }

    fn status(architecture: &str, checksum: Option<&str>, version: Option<&str>) -> Value {
        let mut status = json!({"architecture": architecture});
        if let Some(checksum) = checksum {
            status["checksum"] = json!(checksum);
        }
        if let Some(version) = version {
            status["version"] = json!(version);
        }
        status
    }

    #[test]
    fn responses_become_statuses() {
        for (rows, expected, refresh) in [
            (json!([]), json!([]), REFRESH),
            (
                json!([row(None, Some("0.1"), Some("b0")), row(Some("aarch64"), None, Some("c0"))]),
                json!([
                    status("", Some("sha256:b0"), Some("0.1")),
                    status("aarch64", Some("sha256:c0"), None)
                ]),
                REFRESH,
            ),
            (
                json!([row(Some("x86_64"), None, None), row(Some("aarch64"), None, Some("c0"))]),
                json!([status("aarch64", Some("sha256:c0"), None), status("x86_64", None, None)]),
                INCOMPLETE_REFRESH,
            ),
        ] {
            let outcome = ramdisk_statuses(json!({"ramdisks": rows}));
            assert_eq!(next_reading(&outcome), refresh);
            assert_eq!(serde_json::to_value(outcome.unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn other_responses_are_rejected() {
        let long = "x".repeat(MAX_TEXT + 1);
        let many: Vec<Value> =
            (0..=MAX_RAMDISKS).map(|index| row(Some(&index.to_string()), None, None)).collect();
        for (response, expected) in [
            (Value::Null, "invalid response: invalid type: null"),
            (json!({"nodes": []}), "invalid response: missing field `ramdisks`"),
            (json!({"ramdisks": [{"architecture": 1}]}), "invalid response: invalid type: integer"),
            (json!({"ramdisks": [row(Some(&long), None, None)]}), "a text is too long"),
            (
                json!({"ramdisks": [row(None, None, None), row(Some(""), None, None)]}),
                "two ramdisks for the architecture \"\"",
            ),
            (json!({"ramdisks": many}), "17 ramdisks"),
        ] {
            let outcome = ramdisk_statuses(response);
            assert_eq!(next_reading(&outcome), REFRESH);
            let error = outcome.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
