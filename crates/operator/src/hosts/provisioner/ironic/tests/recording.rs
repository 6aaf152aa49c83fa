// SPDX-License-Identifier: Apache-2.0
//! A service that responds with one node and recorded responses, and records what changes it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ironic_client::Method;
use kube_resources::hosts::bmc_address::{BmcAddress, HostBmcCredentials};
use serde_json::{Value, json};

use super::super::{
    IronicProvisioner, IronicProvisionerSettings, IronicTransport, IronicTransportError,
};
use crate::hosts::provisioner::{BmcAccess, ManagedHost, VerbOutcome, VerbStop};

/// Responds with the node, and with recorded responses to other requests.
pub(super) struct Recording {
    pub(super) node: Mutex<Option<Value>>,
    /// Responses by method and path; a number is an error status.
    responses: BTreeMap<&'static str, Value>,
    /// Requests that change something.
    pub(super) changes: Mutex<Vec<(String, Value)>>,
}

#[async_trait]
impl IronicTransport for Recording {
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        let line = format!("{method} {path}");
        // Requests that only Ferrite knows change nothing that others have.
        let is_ferrite = path.starts_with("/v1/ferrite/");
        if method != Method::GET && !is_ferrite {
            let body = body.cloned().unwrap_or_default();
            self.changes.lock().unwrap().push((line.replace("/v1/nodes/n1", "NODE"), body));
        }
        let error = |status: u64| IronicTransportError {
            status: u16::try_from(status).ok(),
            message: format!("status {status}"),
        };
        if let Some(response) = self.responses.get(line.replace("/v1/nodes/n1", "NODE").as_str()) {
            return match response.as_u64() {
                Some(status) => Err(error(status)),
                None => Ok(response.clone()),
            };
        }
        let node = self.node.lock().unwrap().clone();
        match line.as_str() {
            "GET /v1" => Ok(json!({"version": {"id": "v1", "version": "1.110"}})),
            "GET /v1/drivers" => Ok(json!({"drivers": [{"name": "redfish"}]})),
            line if line.starts_with("GET /v1/ports") => Ok(json!({"ports": []})),
            line if line.starts_with("GET /v1/nodes/n1") && !line.ends_with("n1") => {
                Err(error(404))
            }
            "GET /v1/nodes/n1" | "PATCH /v1/nodes/n1" => node.ok_or_else(|| error(404)),
            line if line.starts_with("GET /v1/nodes/") => Err(error(404)),
            _ if is_ferrite => Err(error(404)),
            "POST /v1/nodes" => {
                let mut node = body.cloned().unwrap();
                node["uuid"] = json!("n1");
                node["provision_state"] = json!("enroll");
                *self.node.lock().unwrap() = Some(node.clone());
                Ok(node)
            }
            _ => Ok(Value::Null),
        }
    }
}

/// A provisioner whose service is a recording, and a host.
pub(super) struct RecordedService {
    pub(super) recording: Arc<Recording>,
    pub(super) provisioner: IronicProvisioner,
    pub(super) host: ManagedHost,
}

/// A service with at most one node, of which only the given fields differ from those of a new one.
/// A response that is a number is an error status.
pub(super) fn fixture(node: Option<Value>, responses: &[(&'static str, Value)]) -> RecordedService {
    with_settings(node, responses, IronicProvisionerSettings::default())
}

/// Like [`fixture`], with a configured provisioner.
pub(super) fn with_settings(
    node: Option<Value>,
    responses: &[(&'static str, Value)],
    settings: IronicProvisionerSettings,
) -> RecordedService {
    let node = node.map(|fields| {
        let mut node = json!({
            "uuid": "n1", "name": "lab~host-1", "driver": "redfish", "automated_clean": true,
            "driver_info": {"redfish_address": "https://192.0.2.1", "redfish_username": "admin",
                "redfish_password": "******", "redfish_system_id": "/redfish/v1/Systems/1"},
            "properties": {"capabilities": "boot_mode:uefi"}, "inspect_interface": "agent",
        });
        node.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        node
    });
    let recording = Arc::new(Recording {
        node: Mutex::new(node),
        responses: responses.iter().cloned().collect(),
        changes: Mutex::default(),
    });
    let provisioner = IronicProvisioner::new(Arc::<Recording>::clone(&recording), settings);
    let credentials =
        HostBmcCredentials { username: "admin".to_owned(), password: "secret".to_owned() };
    let host = ManagedHost {
        namespace: "lab".to_owned(),
        name: "host-1".to_owned(),
        uid: "u1".to_owned(),
        node_id: Some("n1".to_owned()),
        boot_mac_address: None,
        bmc: Some(BmcAccess {
            address: BmcAddress::parse("redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1")
                .unwrap(),
            credentials: Arc::new(credentials),
            disable_certificate_verification: false,
        }),
        disable_power_off: false,
    };
    RecordedService { recording, provisioner, host }
}

impl RecordedService {
    /// Requests that changed something, with the essential part of their bodies.
    pub(super) fn changes(&self) -> Vec<String> {
        let changes = self.recording.changes.lock().unwrap();
        let show = |(line, body): &(String, Value)| match body {
            Value::Object(body) if body.contains_key("target") => {
                format!("{line} {}", body["target"].as_str().unwrap())
            }
            Value::Array(operations) => {
                let paths: Vec<&str> = operations
                    .iter()
                    .map(|operation| operation["path"].as_str().unwrap())
                    .collect();
                format!("{line} {}", paths.join(" "))
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => line.clone(),
        };
        changes.iter().map(show).collect()
    }

    /// The body of the only request with this method and path.
    pub(super) fn body(&self, line: &str) -> Value {
        let changes = self.recording.changes.lock().unwrap();
        let bodies: Vec<&Value> =
            changes.iter().filter(|(sent, _)| sent == line).map(|(_, body)| body).collect();
        assert_eq!(bodies.len(), 1, "{line}: {changes:?}");
        bodies[0].clone()
    }

    /// The values that the only patch of the node sets, by path. Removed fields are null.
    pub(super) fn patched(&self) -> Value {
        let patch = self.body("PATCH NODE");
        let fields = patch.as_array().unwrap().iter().map(|operation| {
            let path = operation["path"].as_str().unwrap().trim_start_matches('/');
            (path.to_owned(), operation["value"].clone())
        });
        Value::Object(fields.collect())
    }

    pub(super) fn set_address(&mut self, address: &str) {
        self.host.bmc.as_mut().unwrap().address = BmcAddress::parse(address).unwrap();
    }
}

/// Outcome as text.
pub(super) fn show<T>(outcome: &VerbOutcome<T>) -> String {
    match outcome {
        Ok(_) => "done".to_owned(),
        Err(VerbStop::InProgress(wait)) => {
            format!("{}{}", if wait.is_changed { "started " } else { "" }, wait.reason.as_str())
        }
        Err(VerbStop::Failed(failure)) => format!("failed {}", failure.message),
        Err(VerbStop::NeedsRegistration) => "needs registration".to_owned(),
        Err(VerbStop::NotReady { message }) => format!("not ready {message}"),
        Err(VerbStop::MissingInput { message }) => format!("missing {message}"),
        Err(VerbStop::Busy { reason }) => format!("busy {reason}"),
    }
}
