// SPDX-License-Identifier: Apache-2.0
//! What of a machine, its ports and the like can be taken over, and making it so.

use std::collections::HashMap;

use ironic_client::{Api, Method, Query, segment};
use serde_json::{Map, Value, json};

use super::detail;
use crate::assignments::pointer;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::runbook_traits;

/// What APIs show in the place of secrets.
pub(super) const MASK: &str = "******";

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

/// What the reason of a maintenance begins with that the other server has because of us.
pub(super) const TAKEN_OVER: &str = "taken over by";
/// What the reason of a maintenance begins with that we have because of the other server.
const IMPORTED: &str = "imported from";

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
    /// Whether the other server leaves it alone.
    pub(super) is_let_go: bool,
    /// Why it is in maintenance over there, if it is for another reason than ours.
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

/// Things by the machine that they belong to.
pub(super) struct Belongings<'a>(HashMap<&'a str, Vec<&'a Value>>);

impl<'a> Belongings<'a> {
    pub(super) fn of(things: &'a [Value]) -> Self {
        let mut by_node: HashMap<&str, Vec<&Value>> = HashMap::new();
        for thing in things {
            by_node.entry(thing["node_uuid"].as_str().unwrap_or_default()).or_default().push(thing);
        }
        Self(by_node)
    }

    /// These fields of those of a machine.
    fn of_node(&self, node: &Value, fields: &[&str]) -> Vec<Value> {
        let own = node["uuid"].as_str().and_then(|uuid| self.0.get(uuid));
        own.into_iter().flatten().map(|thing| Value::Object(only(thing, fields))).collect()
    }
}

/// What is to become of a machine.
pub(super) fn plan(
    node: &Value,
    ports: &Belongings<'_>,
    groups: &Belongings<'_>,
    secrets: &Value,
) -> Plan {
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
    let reason = node["maintenance_reason"].as_str().unwrap_or("imported in maintenance");
    Plan {
        node: Value::Object(body),
        there: there.to_owned(),
        fate,
        traits: node["traits"].as_array().cloned().unwrap_or_default(),
        groups: groups.of_node(node, GROUP_FIELDS),
        ports: ports.of_node(node, PORT_FIELDS),
        needs,
        is_let_go: node["maintenance"] == true,
        maintenance: (node["maintenance"] == true && !reason.starts_with(TAKEN_OVER))
            .then(|| reason.to_owned()),
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
    /// Makes the machine and what belongs to it, as far as it is not there; says its state. It is in
    /// maintenance from its first moment on: the other server must not find its machine changed.
    pub(super) async fn made(&mut self, api: &Api, from: &str) -> Result<String, Failure> {
        let path = self.path();
        let known = api.find(&path).await?;
        let node = match &known {
            Some(node) => {
                self.add_secrets(api, &path, node).await?;
                node.clone()
            }
            None => {
                let mut body = self.node.clone();
                body["maintenance"] = json!(true);
                api.send(Method::POST, "/v1/nodes", Some(&body)).await?
            }
        };
        let state = node["provision_state"].as_str().unwrap_or("enroll");
        // What a run that broke off left undone: nobody has done anything with the machine yet.
        let is_fresh = known.is_none() || state == "enroll";
        let says = |field: &str| node[field].as_str().is_some_and(|text| !text.is_empty());
        if is_fresh && node["maintenance"] == true && !says("maintenance_reason") {
            let reason = self.maintenance.clone().unwrap_or_else(|| imported(from));
            let body = json!({ "reason": reason });
            api.send(Method::PUT, &format!("{path}/maintenance"), Some(&body)).await?;
        }
        let has_traits = node["traits"].as_array().is_some_and(|traits| !traits.is_empty());
        if is_fresh && !has_traits && !self.traits.is_empty() {
            let body = json!({ "traits": self.traits });
            api.send(Method::PUT, &format!("{path}/traits"), Some(&body)).await?;
        }
        for (place, things) in [("/v1/portgroups", &self.groups), ("/v1/ports", &self.ports)] {
            for thing in things {
                ensure(api, place, thing).await?;
            }
        }
        Ok(state.to_owned())
    }

    /// Protects the machine as it was, which only one in use can be.
    pub(super) async fn protect(&self, api: &Api) -> Result<(), Failure> {
        if !self.protection.is_empty() {
            api.patch(&self.path(), &self.protection).await?;
        }
        Ok(())
    }

    fn path(&self) -> String {
        format!("/v1/nodes/{}", segment(self.node["uuid"].as_str().unwrap_or_default()))
    }

    /// Makes the other server leave the machine alone.
    pub(super) async fn release(&self, there: &Api, to: &str) -> Result<(), Failure> {
        let node = there.get(&self.path()).await?;
        if node["maintenance"] != true {
            let body = json!({ "reason": format!("{TAKEN_OVER} {to}") });
            there.send(Method::PUT, &format!("{}/maintenance", self.path()), Some(&body)).await?;
        }
        Ok(())
    }

    /// Lifts the maintenance that the machine has here because of the import.
    pub(super) async fn lift(&self, here: &Api) -> Result<(), Failure> {
        let node = here.get(&self.path()).await?;
        let reason = node["maintenance_reason"].as_str().unwrap_or_default();
        if node["maintenance"] == true && reason.starts_with(IMPORTED) {
            here.send(Method::DELETE, &format!("{}/maintenance", self.path()), None).await?;
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

/// Why a machine is in maintenance that another server looks after.
fn imported(from: &str) -> String {
    format!(
        "{IMPORTED} {from}, which looks after it, too: put it into maintenance there or stop that server, \
         then end the maintenance here"
    )
}

/// Whether a machine of the other server is the very one that this server has: then there is no other
/// server.
pub(super) fn is_same(there: &Value, here: &Value) -> bool {
    ["uuid", "created_at", "updated_at", "provision_updated_at"]
        .iter()
        .all(|field| there[field] == here[field])
        && there["created_at"].is_string()
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
            if *list == "runbooks" {
                // Where runbooks have no traits yet, their names are.
                let of_old = || json!([thing["name"]]);
                let traits = thing.get("traits").cloned().unwrap_or_else(of_old);
                body.insert(runbook_traits::FIELD.to_owned(), traits);
                runbook_traits::create(&here.api, place, body).await?;
            } else {
                here.api.send(Method::POST, place, Some(&Value::Object(body))).await?;
            }
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
    use crate::test_server::{Answer, server};

    fn nothing() -> Belongings<'static> {
        Belongings::of(&[])
    }

    /// What is asked for on the way from a machine that is here to one that is taken over; `known` is what
    /// is here.
    async fn asked_for(known: Option<Value>, breaks_at: &'static str) -> (Vec<String>, Value) {
        let (tell, told) = std::sync::mpsc::channel();
        let (desk, log) = server(move |asked| {
            match asked.line.split(' ').next() {
                _ if asked.line.starts_with(breaks_at) => return Answer::Lost,
                Some("GET") => {}
                _ => tell.send(asked.body.clone()).unwrap(),
            }
            match (&*asked.line, &known) {
                ("GET /v1/nodes/u", Some(known)) => Answer::Json(200, known.clone()),
                ("GET /v1/nodes/u", None) => Answer::Json(404, json!({"error_message": "none"})),
                ("POST /v1/nodes", _) => Answer::Json(201, asked.body.clone()),
                _ => Answer::Json(202, Value::Null),
            }
        });
        let mut plan = plan(&node("manageable"), &nothing(), &nothing(), &json!({}));
        let made = plan.made(&desk.api, "http://old").await;
        assert_eq!(made.is_err(), breaks_at != "never");
        let log = log.lock().unwrap().clone();
        (log, told.try_recv().unwrap_or_default())
    }

    #[tokio::test]
    async fn a_machine_is_in_maintenance_from_its_first_moment_on() {
        let (asked, made) = asked_for(None, "PUT /v1/nodes/u/maintenance").await;
        assert_eq!(asked[1], "POST /v1/nodes");
        assert_eq!((&made["name"], &made["maintenance"]), (&json!("n"), &json!(true)));
        // The same again after that broke off says why it is in maintenance, and goes on.
        let half = json!({"provision_state": "enroll", "maintenance": true, "traits": [],
                          "driver_info": {"redfish_address": "h"}});
        let (asked, reason) = asked_for(Some(half.clone()), "never").await;
        let expected = ["GET /v1/nodes/u", "PUT /v1/nodes/u/maintenance", "PUT /v1/nodes/u/traits"];
        assert_eq!(asked, expected);
        assert!(reason["reason"].as_str().unwrap().starts_with("imported from http://old"));
        // What somebody decided here since then stays as it is.
        for (field, value) in [("provision_state", "manageable"), ("maintenance_reason", "fan")] {
            let mut ours = half.clone();
            ours[field] = json!(value);
            ours["traits"] = json!(["B"]);
            assert_eq!(asked_for(Some(ours), "never").await.0, ["GET /v1/nodes/u"]);
        }
    }

    /// Without its traits nobody could use a runbook here.
    #[tokio::test]
    async fn runbooks_come_with_their_traits() {
        let (there, _) = server(|asked| match asked.line.split('?').next() {
            Some("GET /v1/runbooks") => Answer::Json(
                200,
                json!({"runbooks": [
                    {"uuid": "u1", "name": "update", "steps": [], "traits": ["CUSTOM_UPDATE"]},
                    {"uuid": "u2", "name": "CUSTOM_OLD", "steps": []},
                ]}),
            ),
            Some(line) => Answer::Json(200, json!({ line.rsplit('/').next().unwrap(): [] })),
            None => Answer::Lost,
        });
        let (tell, told) = std::sync::mpsc::channel();
        let (here, _) = server(move |asked| {
            let name = asked.line.split('?').next().unwrap().rsplit('/').next().unwrap();
            match asked.line.split(' ').next() {
                Some("GET") => Answer::Json(200, json!({ name: [] })),
                Some("POST") => Answer::Json(201, asked.body.clone()),
                _ => {
                    tell.send(format!("{} {}", asked.line, asked.body["traits"][0])).unwrap();
                    Answer::Json(204, Value::Null)
                }
            }
        });
        recipes(&there, &here).await.unwrap();
        let expected = [
            r#"PUT /v1/runbooks/u1/traits "CUSTOM_UPDATE""#,
            r#"PUT /v1/runbooks/u2/traits "CUSTOM_OLD""#,
        ];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }

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
        let plan = plan(&node("available"), &Belongings::of(&ports), &nothing(), &secrets);
        assert_eq!(plan.needs, ["snmp_key"]);
        assert_eq!(
            plan.node,
            json!({"uuid": "u", "name": "n", "driver": "redfish",
                   "driver_info": {"redfish_address": "h", "redfish_password": "own"}})
        );
        assert_eq!((plan.fate, plan.ports.len()), (Fate::Manage, 1));
    }

    #[test]
    fn maintenance_comes_along_unless_it_is_ours() {
        for (reason, expected) in
            [("fan", Some("fan")), ("taken over by http://new", None), ("", Some(""))]
        {
            let mut node = node("manageable");
            node["maintenance"] = json!(true);
            node["maintenance_reason"] = json!(reason);
            let plan = plan(&node, &nothing(), &nothing(), &json!({}));
            assert_eq!(plan.maintenance.as_deref(), expected);
        }
    }

    #[test]
    fn a_machine_is_known_by_its_moments() {
        let one = json!({"uuid": "u", "created_at": "1", "updated_at": null});
        let later = json!({"uuid": "u", "created_at": "2", "updated_at": null});
        assert!(is_same(&one, &one));
        assert!(!is_same(&one, &later));
        assert!(!is_same(&json!({"uuid": "u"}), &json!({"uuid": "u"})));
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
            let plan = plan(&node, &nothing(), &nothing(), &json!({}));
            assert_eq!(plan.fate, fate, "{state}");
            assert_eq!(plan.node["instance_info"].is_object(), fate == Fate::Adopt);
        }
    }
}
