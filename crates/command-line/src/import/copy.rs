// SPDX-License-Identifier: Apache-2.0
//! What of a machine, its ports and the like can be taken over, and making it so.

use ironic_client::{Api, Method, Query, segment};
use serde_json::{Map, Value, json};

use super::detail;
use crate::assignments::pointer;
use crate::desk::Desk;
use crate::failure::Failure;

/// What APIs show in the place of secrets.
const MASK: &str = "******";

const NODE_FIELDS: &[&str] = &[
    "uuid",
    "name",
    "driver",
    "driver_info",
    "properties",
    "extra",
    "resource_class",
    "owner",
    "lessee",
    "description",
    "conductor_group",
    "automated_clean",
    "network_data",
    "shard",
    "retired",
    "retired_reason",
    "disable_power_off",
    "instance_info",
    "instance_uuid",
    "bios_interface",
    "boot_interface",
    "console_interface",
    "deploy_interface",
    "firmware_interface",
    "inspect_interface",
    "management_interface",
    "network_interface",
    "power_interface",
    "raid_interface",
    "rescue_interface",
    "storage_interface",
    "vendor_interface",
];
/// What belongs to things that are not taken over.
const LEFT_OUT: &[&str] = &["chassis_uuid", "parent_node"];
const PORT_FIELDS: &[&str] = &[
    "uuid",
    "node_uuid",
    "address",
    "pxe_enabled",
    "local_link_connection",
    "portgroup_uuid",
    "physical_network",
    "extra",
    "is_smartnic",
    "name",
    "description",
];
const GROUP_FIELDS: &[&str] = &[
    "uuid",
    "node_uuid",
    "name",
    "address",
    "mode",
    "properties",
    "extra",
    "standalone_ports_supported",
];

/// Steps and rules: where they are, what a list of them is called, and their fields.
const RECIPES: &[(&str, &str, &[&str])] = &[
    ("/v1/deploy_templates", "deploy_templates", &["uuid", "name", "steps", "extra"]),
    (
        "/v1/runbooks",
        "runbooks",
        &["uuid", "name", "steps", "extra", "owner", "public", "disable_ramdisk", "description"],
    ),
    (
        "/v1/inspection_rules",
        "inspection_rules",
        &["uuid", "description", "priority", "phase", "conditions", "actions", "sensitive"],
    ),
];

/// Where a machine ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It was not managed there, and is not here.
    Enrol,
    Manage,
    /// There is an instance on it.
    Adopt,
    /// Something is being done to it over there.
    LeaveAlone,
}

/// A machine as it is to be.
pub(super) struct Plan {
    /// What it is created with.
    pub(super) node: Value,
    /// Its state on the other side.
    pub(super) there: String,
    pub(super) fate: Fate,
    traits: Vec<Value>,
    groups: Vec<Value>,
    pub(super) ports: Vec<Value>,
    /// Secrets that nobody gave.
    pub(super) needs: Vec<String>,
    maintenance: Option<String>,
    /// What keeps somebody from taking the instance down, as changes; a machine in use can have it.
    protection: Vec<Value>,
    /// Fields that say something there, and are not taken over.
    pub(super) left_out: Vec<&'static str>,
}

impl Fate {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Enrol => "enroll",
            Self::Manage => "manageable",
            Self::Adopt => "active",
            Self::LeaveAlone => "",
        }
    }
}

/// What is to become of a machine.
pub(super) fn plan(node: &Value, ports: &[Value], groups: &[Value], secrets: &Value) -> Plan {
    let mut body = only(node, NODE_FIELDS);
    let there = node["provision_state"].as_str().unwrap_or_default();
    let fate = match there {
        "enroll" | "verifying" => Fate::Enrol,
        "active" | "rescue" | "rescue failed" | "unrescue failed" | "service failed" => Fate::Adopt,
        _ if there.ends_with("ing")
            || there.contains("wait")
            || there.contains("hold")
            || node["target_provision_state"].is_string() && !there.ends_with("failed") =>
        {
            Fate::LeaveAlone
        }
        _ => Fate::Manage,
    };
    let mut needs = Vec::new();
    let given = |key: &str| {
        let of = |name: &Value| name.as_str().map(|name| &secrets[name][key]);
        [of(&node["name"]), of(&node["uuid"]), Some(&secrets["*"][key])]
            .into_iter()
            .flatten()
            .find(|secret| !secret.is_null())
            .cloned()
    };
    if let Some(Value::Object(info)) = body.get_mut("driver_info") {
        info.retain(|key, value| {
            if value != MASK {
                return true;
            }
            match given(key) {
                Some(secret) => {
                    *value = secret;
                    true
                }
                None => {
                    needs.push(key.clone());
                    false
                }
            }
        });
    }
    if let Some(Value::Object(info)) = body.get_mut("instance_info") {
        // The instance runs: what it was made with is not needed any more.
        info.retain(|_, value| value != MASK);
    }
    if fate != Fate::Adopt {
        body.remove("instance_info");
        body.remove("instance_uuid");
    }
    let of_node = |things: &[Value], fields: &[&str]| -> Vec<Value> {
        let own = things.iter().filter(|thing| thing["node_uuid"] == node["uuid"]);
        own.map(|thing| Value::Object(only(thing, fields))).collect()
    };
    let reason = node["maintenance_reason"].as_str().unwrap_or("imported in maintenance");
    Plan {
        node: Value::Object(body),
        there: there.to_owned(),
        fate,
        traits: node["traits"].as_array().cloned().unwrap_or_default(),
        groups: of_node(groups, GROUP_FIELDS),
        ports: of_node(ports, PORT_FIELDS),
        needs,
        maintenance: (node["maintenance"] == true).then(|| reason.to_owned()),
        protection: ["protected", "protected_reason"]
            .into_iter()
            .filter(|_| node["protected"] == true)
            .filter(|field| !node[*field].is_null())
            .map(|field| json!({ "op": "add", "path": pointer(field), "value": node[field] }))
            .collect(),
        left_out: LEFT_OUT.iter().copied().filter(|field| node[*field].is_string()).collect(),
    }
}

impl Plan {
    /// Makes the machine and what belongs to it, as far as it is not there; says its state.
    pub(super) async fn made(&mut self, api: &Api) -> Result<String, Failure> {
        let uuid = self.node["uuid"].as_str().unwrap_or_default().to_owned();
        let path = format!("/v1/nodes/{}", segment(&uuid));
        let node = match api.find(&path).await? {
            Some(node) => {
                self.add_secrets(api, &path, &node).await?;
                node
            }
            None => api.send(Method::POST, "/v1/nodes", Some(&self.node)).await?,
        };
        if !self.traits.is_empty() {
            let body = json!({ "traits": self.traits });
            api.send(Method::PUT, &format!("{path}/traits"), Some(&body)).await?;
        }
        for (place, things) in [("/v1/portgroups", &self.groups), ("/v1/ports", &self.ports)] {
            for thing in things {
                ensure(api, place, thing).await?;
            }
        }
        if let Some(reason) = &self.maintenance {
            let body = json!({ "reason": reason });
            api.send(Method::PUT, &format!("{path}/maintenance"), Some(&body)).await?;
        }
        Ok(node["provision_state"].as_str().unwrap_or("enroll").to_owned())
    }

    /// Protects the machine as it was, which only one in use can be.
    pub(super) async fn protect(&self, api: &Api) -> Result<(), Failure> {
        if !self.protection.is_empty() {
            let uuid = self.node["uuid"].as_str().unwrap_or_default();
            api.patch(&format!("/v1/nodes/{}", segment(uuid)), &self.protection).await?;
        }
        Ok(())
    }

    /// Gives a machine of an earlier run what it lacks of `driver_info`.
    async fn add_secrets(&mut self, api: &Api, path: &str, there: &Value) -> Result<(), Failure> {
        let lacks = |key: &String| there["driver_info"][key].is_null();
        self.needs.retain(lacks);
        let info = self.node["driver_info"].as_object();
        let operations: Vec<Value> = info
            .into_iter()
            .flatten()
            .filter(|(key, _)| lacks(key))
            .map(|(key, value)| {
                let path = pointer(&format!("driver_info.{key}"));
                json!({ "op": "add", "path": path, "value": value })
            })
            .collect();
        if !operations.is_empty() {
            api.patch(path, &operations).await?;
        }
        Ok(())
    }
}

/// Takes over deploy templates, runbooks and inspection rules.
pub(super) async fn recipes(there: &Desk, here: &Desk) -> Result<(), Failure> {
    for (place, list, fields) in RECIPES {
        let found = match there.api.list(place, list, &detail()).await {
            Ok(found) => found,
            // An older Ironic has none.
            Err(error) if matches!(error.status(), Some(404 | 406)) => continue,
            Err(error) => return Err(error.into()),
        };
        let known = here.api.list(place, list, &Query::new()).await?;
        for thing in &found {
            let is_same = |it: &&Value| {
                it["uuid"] == thing["uuid"]
                    || (it["name"].is_string() && it["name"] == thing["name"])
            };
            if known.iter().any(|it| is_same(&it)) {
                continue;
            }
            let mut body = only(thing, fields);
            for step in body.get_mut("steps").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(step) = step.as_object_mut() {
                    step.retain(|_, value| !value.is_null());
                }
            }
            here.api.send(Method::POST, place, Some(&Value::Object(body))).await?;
            here.screen.note(&format!("{place}: took over {}", crate::output::name_of(thing)));
        }
    }
    Ok(())
}

/// Creates a thing unless it is there.
async fn ensure(api: &Api, place: &str, thing: &Value) -> Result<(), Failure> {
    let uuid = thing["uuid"].as_str().unwrap_or_default();
    if api.find(&format!("{place}/{}", segment(uuid))).await?.is_none() {
        api.send(Method::POST, place, Some(thing)).await?;
    }
    Ok(())
}

/// These fields, without those that say nothing.
fn only(thing: &Value, fields: &[&str]) -> Map<String, Value> {
    let said = fields.iter().filter_map(|field| {
        let value = &thing[*field];
        let says_something = match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
        };
        says_something.then(|| ((*field).to_owned(), value.clone()))
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(state: &str) -> Value {
        json!({
            "uuid": "u", "name": "n", "driver": "redfish", "provision_state": state, "owner": null,
            "driver_info": {"redfish_address": "h", "redfish_password": MASK, "snmp_key": MASK},
            "instance_info": {"image_source": "i"}, "reservation": "x", "maintenance": false,
            "traits": ["A"],
        })
    }

    #[test]
    fn secrets_are_filled_in_or_asked_for() {
        let ports = [
            json!({"uuid": "p", "node_uuid": "u", "address": "a"}),
            json!({"uuid": "q", "node_uuid": "other", "address": "b"}),
        ];
        let secrets = json!({"*": {"redfish_password": "all"}, "n": {"redfish_password": "own"}});
        let plan = plan(&node("available"), &ports, &[], &secrets);
        assert_eq!(plan.needs, ["snmp_key"]);
        assert_eq!(
            plan.node,
            json!({"uuid": "u", "name": "n", "driver": "redfish",
                   "driver_info": {"redfish_address": "h", "redfish_password": "own"}})
        );
        assert_eq!((plan.fate, plan.ports.len()), (Fate::Manage, 1));
    }

    #[test]
    fn only_machines_in_use_are_adopted() {
        for (state, fate) in [
            ("enroll", Fate::Enrol),
            ("manageable", Fate::Manage),
            ("available", Fate::Manage),
            ("clean failed", Fate::Manage),
            ("deploy failed", Fate::Manage),
            ("deploying", Fate::LeaveAlone),
            ("wait call-back", Fate::LeaveAlone),
            ("clean hold", Fate::LeaveAlone),
            ("active", Fate::Adopt),
            ("rescue", Fate::Adopt),
            ("service failed", Fate::Adopt),
        ] {
            let mut node = node(state);
            // Reserved is not in use.
            node["instance_uuid"] = json!("i");
            let plan = plan(&node, &[], &[], &json!({}));
            assert_eq!(plan.fate, fate, "{state}");
            assert_eq!(plan.node["instance_info"].is_object(), fate == Fate::Adopt);
        }
    }
}
