// SPDX-License-Identifier: Apache-2.0
//! Plans and performs the import of a node with its ports, and of templates.

use std::collections::HashMap;

use ironic_client::{Api, Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use super::detail;
use crate::assignments::json_pointer;
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::display_name;
use crate::runbook_traits;

/// What APIs return in place of secrets.
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
/// Fields that refer to resources that are not imported.
const SKIPPED_FIELDS: &[&str] = &["chassis_uuid", "parent_node"];
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

/// Deploy templates, runbooks and inspection rules: path, list key and imported fields.
const TEMPLATE_RESOURCES: &[(&str, &str, &[&str])] = &[
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

/// Prefix of the maintenance reason that an import sets at the source.
pub(super) const TAKEN_OVER_PREFIX: &str = "taken over by";
/// Prefix of the maintenance reason that an import sets at the destination.
const IMPORTED_PREFIX: &str = "imported from";

/// The final state of an imported node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ImportTarget {
    /// `enroll`: the source does not manage it either.
    Enrol,
    Manage,
    /// `active`: it has an instance.
    Adopt,
    /// Not imported: an operation is running at the source.
    Skip,
}

/// What is imported of a node.
pub(super) struct ImportPlan {
    /// The request body that creates it.
    pub(super) node: Value,
    /// Its provision state at the source.
    pub(super) source_state: String,
    pub(super) target: ImportTarget,
    traits: Vec<Value>,
    groups: Vec<Value>,
    pub(super) ports: Vec<Value>,
    /// Keys of masked secrets that the secrets file does not contain.
    pub(super) missing_secrets: Vec<String>,
    /// Whether the other server leaves it alone.
    pub(super) is_in_maintenance_at_source: bool,
    /// Reason of its maintenance at the source, unless an import caused it.
    maintenance: Option<String>,
    /// JSON patch that sets `protected`, which only active nodes can have.
    protection: Vec<Value>,
    /// Fields with a value at the source that are not imported.
    pub(super) skipped_fields: Vec<&'static str>,
}

impl ImportTarget {
    pub(super) fn state(self) -> &'static str {
        match self {
            Self::Enrol => "enroll",
            Self::Manage => "manageable",
            Self::Adopt => "active",
            Self::Skip => "",
        }
    }
}

/// Resources grouped by node UUID.
pub(super) struct ResourcesByNode<'a>(HashMap<&'a str, Vec<&'a Value>>);

impl<'a> ResourcesByNode<'a> {
    pub(super) fn group(resources: &'a [Value]) -> Self {
        let mut by_node: HashMap<&str, Vec<&Value>> = HashMap::new();
        for resource in resources {
            let uuid = resource["node_uuid"].as_str().unwrap_or_default();
            by_node.entry(uuid).or_default().push(resource);
        }
        Self(by_node)
    }

    /// The given fields of the resources of a node.
    fn for_node(&self, node: &Value, fields: &[&str]) -> Vec<Value> {
        let resources = node["uuid"].as_str().and_then(|uuid| self.0.get(uuid));
        let copy = |resource: &&Value| Value::Object(copy_fields(resource, fields));
        resources.into_iter().flatten().map(copy).collect()
    }
}

/// Plans the import of a node.
pub(super) fn plan_import(
    node: &Value,
    ports: &ResourcesByNode<'_>,
    groups: &ResourcesByNode<'_>,
    secrets: &Value,
) -> ImportPlan {
    let mut body = copy_fields(node, NODE_FIELDS);
    let source = node["provision_state"].as_str().unwrap_or_default();
    let target = match source {
        "enroll" | "verifying" => ImportTarget::Enrol,
        "active" | "rescue" | "rescue failed" | "unrescue failed" | "service failed" => {
            ImportTarget::Adopt
        }
        _ if source.ends_with("ing")
            || source.contains("wait")
            || source.contains("hold")
            || node["target_provision_state"].is_string() && !source.ends_with("failed") =>
        {
            ImportTarget::Skip
        }
        _ => ImportTarget::Manage,
    };
    let mut needs = Vec::new();
    let find_secret = |key: &str| {
        let secret_of = |name: &Value| name.as_str().map(|name| &secrets[name][key]);
        [secret_of(&node["name"]), secret_of(&node["uuid"]), Some(&secrets["*"][key])]
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
            match find_secret(key) {
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
        // A running instance does not need the secrets it was deployed with.
        info.retain(|_, value| value != MASK);
    }
    if target != ImportTarget::Adopt {
        body.remove("instance_info");
        body.remove("instance_uuid");
    }
    let reason = node["maintenance_reason"].as_str().unwrap_or("imported in maintenance");
    ImportPlan {
        node: Value::Object(body),
        source_state: source.to_owned(),
        target,
        traits: node["traits"].as_array().cloned().unwrap_or_default(),
        groups: groups.for_node(node, GROUP_FIELDS),
        ports: ports.for_node(node, PORT_FIELDS),
        missing_secrets: needs,
        is_in_maintenance_at_source: node["maintenance"] == true,
        maintenance: (node["maintenance"] == true && !reason.starts_with(TAKEN_OVER_PREFIX))
            .then(|| reason.to_owned()),
        protection: ["protected", "protected_reason"]
            .into_iter()
            .filter(|_| node["protected"] == true)
            .filter(|field| !node[*field].is_null())
            .map(|field| json!({ "op": "add", "path": json_pointer(field), "value": node[field] }))
            .collect(),
        skipped_fields: SKIPPED_FIELDS
            .iter()
            .copied()
            .filter(|field| node[*field].is_string())
            .collect(),
    }
}

impl ImportPlan {
    /// Creates the node, its traits and ports as far as they are missing; returns its provision state. The
    /// node is created in maintenance: the source must not find its machine changed.
    pub(super) async fn create(&mut self, api: &Api, from: &str) -> Result<String, CliError> {
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
        // A node in `enroll` may have been created by an interrupted run.
        let is_fresh = known.is_none() || state == "enroll";
        let has_text = |field: &str| node[field].as_str().is_some_and(|text| !text.is_empty());
        if is_fresh && node["maintenance"] == true && !has_text("maintenance_reason") {
            let reason = self.maintenance.clone().unwrap_or_else(|| maintenance_reason(from));
            let body = json!({ "reason": reason });
            api.send(Method::PUT, &format!("{path}/maintenance"), Some(&body)).await?;
        }
        let has_traits = node["traits"].as_array().is_some_and(|traits| !traits.is_empty());
        if is_fresh && !has_traits && !self.traits.is_empty() {
            let body = json!({ "traits": self.traits });
            api.send(Method::PUT, &format!("{path}/traits"), Some(&body)).await?;
        }
        for (path, resources) in [("/v1/portgroups", &self.groups), ("/v1/ports", &self.ports)] {
            for resource in resources {
                create_if_missing(api, path, resource).await?;
            }
        }
        Ok(state.to_owned())
    }

    /// Sets `protected` as at the source; only active nodes can have it.
    pub(super) async fn protect(&self, api: &Api) -> Result<(), CliError> {
        if !self.protection.is_empty() {
            api.patch(&self.path(), &self.protection).await?;
        }
        Ok(())
    }

    fn path(&self) -> String {
        format!("/v1/nodes/{}", percent_encode(self.node["uuid"].as_str().unwrap_or_default()))
    }

    /// Puts the node into maintenance at the source.
    pub(super) async fn set_source_maintenance(
        &self,
        source: &Api,
        to: &str,
    ) -> Result<(), CliError> {
        let node = source.get(&self.path()).await?;
        if node["maintenance"] != true {
            let body = json!({ "reason": format!("{TAKEN_OVER_PREFIX} {to}") });
            source.send(Method::PUT, &format!("{}/maintenance", self.path()), Some(&body)).await?;
        }
        Ok(())
    }

    /// Ends the maintenance that the import set at the destination.
    pub(super) async fn clear_import_maintenance(&self, destination: &Api) -> Result<(), CliError> {
        let node = destination.get(&self.path()).await?;
        let reason = node["maintenance_reason"].as_str().unwrap_or_default();
        if node["maintenance"] == true && reason.starts_with(IMPORTED_PREFIX) {
            destination.send(Method::DELETE, &format!("{}/maintenance", self.path()), None).await?;
        }
        Ok(())
    }

    /// Adds missing `driver_info` keys to a node of an earlier run.
    async fn add_secrets(&mut self, api: &Api, path: &str, source: &Value) -> Result<(), CliError> {
        let lacks = |key: &String| source["driver_info"][key].is_null();
        self.missing_secrets.retain(lacks);
        let info = self.node["driver_info"].as_object();
        let operations: Vec<Value> = info
            .into_iter()
            .flatten()
            .filter(|(key, _)| lacks(key))
            .map(|(key, value)| {
                let path = json_pointer(&format!("driver_info.{key}"));
                json!({ "op": "add", "path": path, "value": value })
            })
            .collect();
        if !operations.is_empty() {
            api.patch(path, &operations).await?;
        }
        Ok(())
    }
}

/// The maintenance reason of a node that the source still manages.
fn maintenance_reason(from: &str) -> String {
    format!(
        "{IMPORTED_PREFIX} {from}, which still manages it: put it into maintenance source or stop that \
         server, then end the maintenance destination"
    )
}

/// Whether both are the same record, which means that source and destination are the same server.
pub(super) fn is_same_record(source: &Value, destination: &Value) -> bool {
    ["uuid", "created_at", "updated_at", "provision_updated_at"]
        .iter()
        .all(|field| source[field] == destination[field])
        && source["created_at"].is_string()
}

/// Imports deploy templates, runbooks and inspection rules.
pub(super) async fn import_templates(
    source: &CliContext,
    destination: &CliContext,
) -> Result<(), CliError> {
    for (path, list, fields) in TEMPLATE_RESOURCES {
        let found = match source.api.list(path, list, &detail()).await {
            Ok(found) => found,
            // An older Ironic does not have them.
            Err(error) if matches!(error.status(), Some(404 | 406)) => continue,
            Err(error) => return Err(error.into()),
        };
        let known = destination.api.list(path, list, &QueryString::new()).await?;
        for resource in &found {
            let is_same = |it: &&Value| {
                it["uuid"] == resource["uuid"]
                    || (it["name"].is_string() && it["name"] == resource["name"])
            };
            if known.iter().any(|it| is_same(&it)) {
                continue;
            }
            let mut body = copy_fields(resource, fields);
            for step in body.get_mut("steps").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(step) = step.as_object_mut() {
                    step.retain(|_, value| !value.is_null());
                }
            }
            if *list == "runbooks" {
                // Before runbooks had traits, the name was the trait.
                let name_as_trait = || json!([resource["name"]]);
                let traits = resource.get("traits").cloned().unwrap_or_else(name_as_trait);
                body.insert(runbook_traits::TRAITS_FIELD.to_owned(), traits);
                runbook_traits::create(&destination.api, path, body).await?;
            } else {
                destination.api.send(Method::POST, path, Some(&Value::Object(body))).await?;
            }
            destination.screen.note(&format!("{path}: imported {}", display_name(resource)));
        }
    }
    Ok(())
}

/// Creates a resource unless it exists.
async fn create_if_missing(api: &Api, path: &str, resource: &Value) -> Result<(), CliError> {
    let uuid = resource["uuid"].as_str().unwrap_or_default();
    if api.find(&format!("{path}/{}", percent_encode(uuid))).await?.is_none() {
        api.send(Method::POST, path, Some(resource)).await?;
    }
    Ok(())
}

/// Copies the given fields, without null and empty values.
fn copy_fields(resource: &Value, fields: &[&str]) -> Map<String, Value> {
    let copied = fields.iter().filter_map(|field| {
        let value = &resource[*field];
        let has_content = match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            Value::Object(members) => !members.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
        };
        has_content.then(|| ((*field).to_owned(), value.clone()))
    });
    copied.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestResponse, start_server};

    fn no_resources() -> ResourcesByNode<'static> {
        ResourcesByNode::group(&[])
    }

    /// Imports a node while `known` exists at the destination and requests that start with `breaks_at` fail.
    /// Returns the requests and the first body that was sent.
    async fn import_requests(
        known: Option<Value>,
        breaks_at: &'static str,
    ) -> (Vec<String>, Value) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (context, log) = start_server(move |request| {
            match request.line.split(' ').next() {
                _ if request.line.starts_with(breaks_at) => return TestResponse::Disconnect,
                Some("GET") => {}
                _ => sender.send(request.body.clone()).unwrap(),
            }
            match (&*request.line, &known) {
                ("GET /v1/nodes/u", Some(known)) => TestResponse::Json(200, known.clone()),
                ("GET /v1/nodes/u", None) => {
                    TestResponse::Json(404, json!({"error_message": "none"}))
                }
                ("POST /v1/nodes", _) => TestResponse::Json(201, request.body.clone()),
                _ => TestResponse::Json(202, Value::Null),
            }
        });
        let mut plan =
            plan_import(&node("manageable"), &no_resources(), &no_resources(), &json!({}));
        let created = plan.create(&context.api, "http://old").await;
        assert_eq!(created.is_err(), breaks_at != "never");
        let log = log.lock().unwrap().clone();
        (log, receiver.try_recv().unwrap_or_default())
    }

    #[tokio::test]
    async fn creates_nodes_in_maintenance() {
        let (requests, body) = import_requests(None, "PUT /v1/nodes/u/maintenance").await;
        assert_eq!(requests[1], "POST /v1/nodes");
        assert_eq!((&body["name"], &body["maintenance"]), (&json!("n"), &json!(true)));
        // A second run after the interruption sets the reason and continues.
        let half = json!({"provision_state": "enroll", "maintenance": true, "traits": [],
                          "driver_info": {"redfish_address": "h"}});
        let (requests, reason) = import_requests(Some(half.clone()), "never").await;
        let expected = ["GET /v1/nodes/u", "PUT /v1/nodes/u/maintenance", "PUT /v1/nodes/u/traits"];
        assert_eq!(requests, expected);
        assert!(reason["reason"].as_str().unwrap().starts_with("imported from http://old"));
        // Changes made at the destination since then are kept.
        for (field, value) in [("provision_state", "manageable"), ("maintenance_reason", "fan")] {
            let mut ours = half.clone();
            ours[field] = json!(value);
            ours["traits"] = json!(["B"]);
            assert_eq!(import_requests(Some(ours), "never").await.0, ["GET /v1/nodes/u"]);
        }
    }

    /// Without traits a runbook cannot run on any node.
    #[tokio::test]
    async fn imports_runbooks_with_their_traits() {
        let (source, _) = start_server(|request| match request.line.split('?').next() {
            Some("GET /v1/runbooks") => TestResponse::Json(
                200,
                json!({"runbooks": [
                    {"uuid": "u1", "name": "update", "steps": [], "traits": ["CUSTOM_UPDATE"]},
                    {"uuid": "u2", "name": "CUSTOM_OLD", "steps": []},
                ]}),
            ),
            Some(line) => TestResponse::Json(200, json!({ line.rsplit('/').next().unwrap(): [] })),
            None => TestResponse::Disconnect,
        });
        let (sender, receiver) = std::sync::mpsc::channel();
        let (destination, _) = start_server(move |request| {
            let name = request.line.split('?').next().unwrap().rsplit('/').next().unwrap();
            match request.line.split(' ').next() {
                Some("GET") => TestResponse::Json(200, json!({ name: [] })),
                Some("POST") => TestResponse::Json(201, request.body.clone()),
                _ => {
                    sender.send(format!("{} {}", request.line, request.body["traits"][0])).unwrap();
                    TestResponse::Json(204, Value::Null)
                }
            }
        });
        import_templates(&source, &destination).await.unwrap();
        let expected = [
            r#"PUT /v1/runbooks/u1/traits "CUSTOM_UPDATE""#,
            r#"PUT /v1/runbooks/u2/traits "CUSTOM_OLD""#,
        ];
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), expected);
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
    fn fills_in_secrets_and_reports_missing_ones() {
        let ports = [
            json!({"uuid": "p", "node_uuid": "u", "address": "a"}),
            json!({"uuid": "q", "node_uuid": "other", "address": "b"}),
        ];
        let secrets = json!({"*": {"redfish_password": "all"}, "n": {"redfish_password": "own"}});
        let ports = ResourcesByNode::group(&ports);
        let plan = plan_import(&node("available"), &ports, &no_resources(), &secrets);
        assert_eq!(plan.missing_secrets, ["snmp_key"]);
        assert_eq!(
            plan.node,
            json!({"uuid": "u", "name": "n", "driver": "redfish",
                   "driver_info": {"redfish_address": "h", "redfish_password": "own"}})
        );
        assert_eq!((plan.target, plan.ports.len()), (ImportTarget::Manage, 1));
    }

    #[test]
    fn keeps_maintenance_unless_an_import_caused_it() {
        for (reason, expected) in
            [("fan", Some("fan")), ("taken over by http://new", None), ("", Some(""))]
        {
            let mut node = node("manageable");
            node["maintenance"] = json!(true);
            node["maintenance_reason"] = json!(reason);
            let plan = plan_import(&node, &no_resources(), &no_resources(), &json!({}));
            assert_eq!(plan.maintenance.as_deref(), expected);
        }
    }

    #[test]
    fn compares_records_by_their_timestamps() {
        let one = json!({"uuid": "u", "created_at": "1", "updated_at": null});
        let later = json!({"uuid": "u", "created_at": "2", "updated_at": null});
        assert!(is_same_record(&one, &one));
        assert!(!is_same_record(&one, &later));
        assert!(!is_same_record(&json!({"uuid": "u"}), &json!({"uuid": "u"})));
    }

    #[test]
    fn adopts_only_nodes_with_an_instance() {
        for (state, target) in [
            ("enroll", ImportTarget::Enrol),
            ("manageable", ImportTarget::Manage),
            ("available", ImportTarget::Manage),
            ("clean failed", ImportTarget::Manage),
            ("deploy failed", ImportTarget::Manage),
            ("deploying", ImportTarget::Skip),
            ("wait call-back", ImportTarget::Skip),
            ("clean hold", ImportTarget::Skip),
            ("active", ImportTarget::Adopt),
            ("rescue", ImportTarget::Adopt),
            ("service failed", ImportTarget::Adopt),
        ] {
            let mut node = node(state);
            // A reserved node has no instance yet.
            node["instance_uuid"] = json!("i");
            let plan = plan_import(&node, &no_resources(), &no_resources(), &json!({}));
            assert_eq!(plan.target, target, "{state}");
            assert_eq!(plan.node["instance_info"].is_object(), target == ImportTarget::Adopt);
        }
    }
}
