// SPDX-License-Identifier: Apache-2.0
//! The context of a request for handlers: the machine, path parameters and body.

use http::{HeaderName, StatusCode};
use node_model::Timestamp;
use serde_json::{Map, Value};

use super::document::ResourceDocument;
use super::error_response::RedfishErrorResponse;
use super::resource_kind::ResourceKind;
use super::service_state::RedfishServiceState;
use crate::machine::{BmcTaskId, MachineModel};
use crate::personality::Personality;

/// Path of the service root.
pub(super) const ROOT: &str = "/redfish/v1";

/// A request, with the state that a handler may read or change.
pub(super) struct RequestContext<'a> {
    pub(super) machine: &'a mut MachineModel,
    pub(super) service: &'a mut RedfishServiceState,
    pub(super) now: Timestamp,
    /// The path without a trailing slash.
    pub(super) path: &'a str,
    pub(super) params: Vec<(&'a str, &'a str)>,
    pub(super) body: Map<String, Value>,
    /// Fault: power requests succeed without an effect.
    pub(super) power_stuck: bool,
    /// The credentials of the BMC.
    pub(super) credentials: &'a crate::BmcCredentials,
}

/// Response to a request that changes a resource.
#[derive(Debug)]
pub(super) struct ChangeResponse {
    pub(super) status: StatusCode,
    pub(super) body: Option<Value>,
    pub(super) location: Option<String>,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// Returns the path of a machine's only system.
pub(crate) fn system_path(machine: &MachineModel) -> String {
    format!("{ROOT}/Systems/{}", expand_id_template(machine, &machine.personality().ids.system))
}

impl ChangeResponse {
    pub(super) fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, location: None, headers: Vec::new() }
    }

    pub(super) fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, body: Some(body), location: None, headers: Vec::new() }
    }

    pub(super) fn created(location: String, body: Value) -> Self {
        Self {
            status: StatusCode::CREATED,
            body: Some(body),
            location: Some(location),
            headers: Vec::new(),
        }
    }
}

impl<'a> RequestContext<'a> {
    /// Returns a path parameter, or an empty string.
    pub(super) fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }

    pub(super) fn personality(&self) -> &Personality {
        self.machine.personality()
    }

    pub(super) fn has_resource(&self, kind: ResourceKind) -> bool {
        self.personality().has_resource(kind)
    }

    /// Returns the serial number of the machine.
    pub(super) fn serial(&self) -> String {
        self.machine.identity().serial(&self.personality().ids.serial_prefix)
    }

    pub(super) fn system_id(&self) -> String {
        expand_id_template(self.machine, &self.personality().ids.system)
    }

    pub(super) fn manager_id(&self) -> String {
        expand_id_template(self.machine, &self.personality().ids.manager)
    }

    pub(super) fn chassis_id(&self) -> String {
        expand_id_template(self.machine, &self.personality().ids.chassis)
    }

    pub(super) fn system_path(&self) -> String {
        system_path(self.machine)
    }

    pub(super) fn manager_path(&self) -> String {
        format!("{ROOT}/Managers/{}", self.manager_id())
    }

    pub(super) fn chassis_path(&self) -> String {
        format!("{ROOT}/Chassis/{}", self.chassis_id())
    }

    pub(super) fn task_path(id: BmcTaskId) -> String {
        format!("{ROOT}/TaskService/Tasks/{id}")
    }

    /// Adds links to those resources that this BMC has, each at `parent/name`.
    pub(super) fn link_existing(
        &self,
        document: &mut ResourceDocument,
        parent: &str,
        resources: &[(&str, ResourceKind)],
    ) {
        for (name, kind) in resources {
            if self.has_resource(*kind) {
                document.link(name, format!("{parent}/{name}"));
            }
        }
    }

    pub(super) fn not_found(&self) -> RedfishErrorResponse {
        RedfishErrorResponse::not_found(self.path)
    }

    /// Returns a string property of the body; `None` if it is absent or null.
    pub(super) fn string_property(&self, name: &str) -> Result<Option<&str>, RedfishErrorResponse> {
        match self.body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(RedfishErrorResponse::property_type(name, other)),
        }
    }

    /// Returns a boolean property of the body; `None` if it is absent or null.
    pub(super) fn bool_property(&self, name: &str) -> Result<Option<bool>, RedfishErrorResponse> {
        match self.body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(RedfishErrorResponse::property_type(name, other)),
        }
    }

    /// Fails if the body has a property that is not in `known`. Annotations are accepted.
    pub(super) fn reject_unknown_properties(
        &self,
        known: &[&str],
    ) -> Result<(), RedfishErrorResponse> {
        let is_known = |name: &str| known.contains(&name) || name.starts_with('@');
        match self.body.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(RedfishErrorResponse::property_unknown(name)),
        }
    }
}

/// Replaces `{uuid}` and `{serial}` by the machine's.
fn expand_id_template(machine: &MachineModel, template: &str) -> String {
    let mut name = template.to_owned();
    if name.contains("{uuid}") {
        name = name.replace("{uuid}", &machine.identity().uuid());
    }
    if name.contains("{serial}") {
        let serial = machine.identity().serial(&machine.personality().ids.serial_prefix);
        name = name.replace("{serial}", &serial);
    }
    name
}
