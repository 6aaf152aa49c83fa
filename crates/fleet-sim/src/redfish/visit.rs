// SPDX-License-Identifier: Apache-2.0
//! A request as a handler sees it: the machine, the parameters of the path, the body.

use http::{HeaderName, StatusCode};
use node_model::Timestamp;
use serde_json::{Map, Value};

use super::document::Document;
use super::kind::Kind;
use super::refusal::Refusal;
use super::service::Service;
use crate::machine::{Machine, TaskId};
use crate::personality::Personality;

/// Where everything is.
pub(super) const ROOT: &str = "/redfish/v1";

/// A request, with everything a handler may look at or change.
pub(super) struct Visit<'a> {
    pub(super) machine: &'a mut Machine,
    pub(super) service: &'a mut Service,
    pub(super) now: Timestamp,
    /// The path without a slash at its end.
    pub(super) path: &'a str,
    pub(super) params: Vec<(&'a str, &'a str)>,
    pub(super) body: Map<String, Value>,
    /// Whether the power is to stay as it is, whatever is asked.
    pub(super) power_is_stuck: bool,
    /// Who may enter.
    pub(super) credentials: &'a crate::Credentials,
}

/// What a handler answers.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) body: Option<Value>,
    pub(super) location: Option<String>,
    pub(super) headers: Vec<(HeaderName, String)>,
}

/// The path of a machine's only system.
pub(crate) fn system_path(machine: &Machine) -> String {
    format!("{ROOT}/Systems/{}", named(machine, &machine.personality().ids.system))
}

impl Reply {
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

impl<'a> Visit<'a> {
    /// A parameter of the path.
    pub(super) fn param(&self, name: &str) -> &'a str {
        self.params.iter().find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }

    pub(super) fn personality(&self) -> &Personality {
        self.machine.personality()
    }

    pub(super) fn has(&self, kind: Kind) -> bool {
        self.personality().has(kind)
    }

    /// The serial number of the machine.
    pub(super) fn serial(&self) -> String {
        self.machine.identity().serial(&self.personality().ids.serial_prefix)
    }

    pub(super) fn system_id(&self) -> String {
        named(self.machine, &self.personality().ids.system)
    }

    pub(super) fn manager_id(&self) -> String {
        named(self.machine, &self.personality().ids.manager)
    }

    pub(super) fn chassis_id(&self) -> String {
        named(self.machine, &self.personality().ids.chassis)
    }

    pub(super) fn system(&self) -> String {
        system_path(self.machine)
    }

    pub(super) fn manager(&self) -> String {
        format!("{ROOT}/Managers/{}", self.manager_id())
    }

    pub(super) fn chassis(&self) -> String {
        format!("{ROOT}/Chassis/{}", self.chassis_id())
    }

    pub(super) fn task_path(id: TaskId) -> String {
        format!("{ROOT}/TaskService/Tasks/{id}")
    }

    /// Links from a document to what this BMC has, each `/name` under `front`.
    pub(super) fn link_those_there(
        &self,
        document: &mut Document,
        front: &str,
        those: &[(&str, Kind)],
    ) {
        for (name, kind) in those {
            if self.has(*kind) {
                document.link(name, format!("{front}/{name}"));
            }
        }
    }

    pub(super) fn not_found(&self) -> Refusal {
        Refusal::not_found(self.path)
    }

    /// A text of the body; `None` if it is not there or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self.body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Refusal::property_type(name, other)),
        }
    }

    /// A yes or no of the body.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(Refusal::property_type(name, other)),
        }
    }

    /// Refuses what is in the body and is none of `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        let is_known = |name: &str| known.contains(&name) || name.starts_with('@');
        match self.body.keys().find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(Refusal::property_unknown(name)),
        }
    }
}

/// The name with the machine's own numbers in it.
fn named(machine: &Machine, template: &str) -> String {
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
