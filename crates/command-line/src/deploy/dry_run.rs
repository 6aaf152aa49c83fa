// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy --dry-run`: shows which machines could be deployed and why the others could not.

use std::collections::{BTreeSet, HashMap};

use ironic_client::{Method, QueryString};
use serde_json::{Map, Value, json};

use super::reservation::AllocationRequest;
use super::{DeployArguments, checks};
use crate::cli_error::CliError;
use crate::config_drive::ConfigDriveContent;
use crate::context::CliContext;
use crate::node::verbs::Verb;
use crate::output::display_name;
use crate::selection::{self, NodeFilters, SelectedNode};

const FIELDS: &str = "uuid,name,provision_state,target_provision_state,maintenance,\
    maintenance_reason,instance_uuid,power_state,resource_class,traits,deploy_interface";
/// Interfaces that every deployment needs; the others depend on the image.
const REQUIRED_INTERFACES: [&str; 2] = ["power", "management"];
/// Limit for matching machines that are validated, and for listed machines that do not match.
const MAX_LISTED_NODES: usize = 50;

/// Prints the plan. Fails if the deployment is not possible.
pub(super) async fn show(
    context: &CliContext,
    arguments: &DeployArguments,
    requests: &[AllocationRequest],
    instance: &Map<String, Value>,
    drive: &ConfigDriveContent,
) -> Result<(), CliError> {
    let class = &arguments.resource_class;
    let candidates = selection::expand_names(&arguments.candidates)?;
    let nodes =
        selection::find_nodes(&context.api, &candidates, &NodeFilters::default(), Some(FIELDS))
            .await?;
    let considered: Vec<&Value> = nodes
        .iter()
        .filter(|node| !candidates.is_empty() || node["resource_class"] == class.as_str())
        .collect();
    let matching: Vec<&Value> = considered
        .iter()
        .copied()
        .filter(|node| mismatch_reasons(node, class, &arguments.traits).is_empty())
        .collect();
    let objections = server_objections(context, &matching, instance).await?;
    let (mut fitting, mut others, mut more) = (Vec::new(), Map::new(), 0);
    for node in considered {
        let mut reasons = mismatch_reasons(node, class, &arguments.traits);
        reasons.extend(objections.get(uuid_of(node)).cloned());
        match (reasons.is_empty(), others.len() < MAX_LISTED_NODES) {
            (true, _) => fitting.push(display_name(node)),
            (false, true) => {
                others.insert(display_name(node).to_owned(), json!(reasons.join("; ")));
            }
            (false, false) => more += 1,
        }
    }
    let hostnames: Vec<&str> = requests.iter().filter_map(|it| it.hostname.as_deref()).collect();
    let mut plan = json!({
        "machines_wanted": requests.len(),
        "machines_that_fit": fitting,
        "machines_that_do_not_fit": others,
        "hostnames": hostnames,
        "instance_info": instance,
        "config_drive": drive.build("…", "…", hostnames.first().copied()),
    });
    if more > 0 {
        plan["more_that_do_not_fit"] = json!(more);
    }
    context.screen.print(&arguments.output.output.format_single(&plan, context.screen));
    let query = QueryString::new().with("fields", "name");
    let allocations = context.api.list("/v1/allocations", "allocations", &query).await?;
    if let Some(taken) =
        hostnames.iter().find(|name| allocations.iter().any(|it| it["name"] == **name))
    {
        return Err(CliError::Rejected(format!(
            "an allocation named {taken:?} exists: `ferrite allocation show {taken}`"
        )));
    }
    let classes: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node["resource_class"].as_str()).collect();
    if candidates.is_empty() && !classes.contains(class.as_str()) {
        let classes = classes.into_iter().collect::<Vec<_>>().join(", ");
        let existing = if classes.is_empty() { "none" } else { &classes };
        let message = format!("no machine has the resource class {class:?}; existing: {existing}");
        return Err(CliError::Rejected(message));
    }
    match (fitting.len(), requests.len()) {
        (fitting, requested) if fitting >= requested => Ok(()),
        (fitting, requested) => Err(CliError::Rejected(format!(
            "{requested} machines requested, but only {fitting} can be deployed"
        ))),
    }
}

/// Returns why the allocation would not select a node.
fn mismatch_reasons(node: &Value, class: &str, traits: &[String]) -> Vec<String> {
    let text = |field: &str| node[field].as_str().filter(|text| !text.is_empty());
    let mut reasons = Vec::new();
    if text("resource_class") != Some(class) {
        let other = text("resource_class").unwrap_or("none");
        reasons.push(format!("its resource class is {other}"));
    }
    let state = text("provision_state").unwrap_or_default();
    if state != "available" {
        reasons.push(format!("is {state}"));
    }
    if node["maintenance"] == true {
        let why = text("maintenance_reason").map(|why| format!(" ({why})")).unwrap_or_default();
        reasons.push(format!("is in maintenance{why}"));
    }
    if let Some(instance) = text("instance_uuid") {
        reasons.push(format!("is reserved for the instance {instance}"));
    }
    let has = |name: &String| {
        node["traits"].as_array().is_some_and(|traits| traits.iter().any(|it| it == name))
    };
    let lacks: Vec<&str> = traits.iter().filter(|it| !has(it)).map(String::as_str).collect();
    if !lacks.is_empty() {
        reasons.push(format!("lacks {}", lacks.join(", ")));
    }
    // Nodes without a known power state are not allocated.
    if text("power_state").is_none() {
        reasons.push("its power state is unknown".to_owned());
    }
    reasons
}

/// Returns why the server would reject the deployment, by node UUID. Ferrite explains all nodes; with
/// another Ironic some nodes are validated, as far as this is possible before `instance_info` is set.
async fn server_objections(
    context: &CliContext,
    nodes: &[&Value],
    instance: &Map<String, Value>,
) -> Result<HashMap<String, String>, CliError> {
    let mut objections = HashMap::new();
    if nodes.is_empty() {
        return Ok(objections);
    }
    let uuids: Vec<&str> = nodes.iter().map(|node| uuid_of(node)).collect();
    let body = json!({
        "target": Verb::Deploy.target(), "nodes": uuids, "instance_info": instance,
    });
    match context.api.send(Method::POST, "/v1/ferrite/explain", Some(&body)).await {
        Ok(explained) => {
            for rejected in explained["rejected"].as_array().into_iter().flatten() {
                let why = rejected["reason"].as_str().unwrap_or("the server gives no reason");
                // The node is named in another column.
                let why = why.strip_prefix("node …: ").unwrap_or(why);
                let why = format!("{why}{}", checks::checksum_hint(why, instance));
                for uuid in rejected["nodes"].as_array().into_iter().flatten() {
                    let uuid = uuid.as_str().unwrap_or_default().to_owned();
                    objections.insert(uuid, why.clone());
                }
            }
            return Ok(objections);
        }
        Err(error) if error.status() == Some(404) => {}
        Err(error) => return Err(error.into()),
    }
    for (index, node) in nodes.iter().enumerate() {
        let needs_checksum = node["deploy_interface"] == "direct";
        let objection = match checks::lacks_checksum(instance) && needs_checksum {
            true => Some("an image from a web server needs a --checksum".to_owned()),
            false if index < MAX_LISTED_NODES => validation_error(context, node).await?,
            false => None,
        };
        if let Some(objection) = objection {
            objections.insert(uuid_of(node).to_owned(), objection);
        }
    }
    Ok(objections)
}

fn uuid_of(node: &Value) -> &str {
    node["uuid"].as_str().unwrap_or_default()
}

/// Validates the interfaces that every deployment needs.
async fn validation_error(context: &CliContext, node: &Value) -> Result<Option<String>, CliError> {
    let selected = SelectedNode::new(node.clone());
    let checks = context.api.get(&format!("{}/validate", selected.path())).await?;
    let failed = REQUIRED_INTERFACES.iter().find(|interface| checks[interface]["result"] == false);
    Ok(failed.map(|interface| {
        let why = checks[interface]["reason"].as_str().unwrap_or("the server gives no reason");
        format!("validation of its {interface} interface failed: {why}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestResponse, start_server};

    #[tokio::test]
    async fn reports_objections_of_the_server() {
        let nodes = [
            json!({"uuid": "u1", "deploy_interface": "direct"}),
            json!({"uuid": "u2", "deploy_interface": "ramdisk"}),
        ];
        let nodes: Vec<&Value> = nodes.iter().collect();
        let instance = json!({"image_source": "http://images/a"});
        let instance = instance.as_object().unwrap();
        let (ferrite, _) = start_server(|request| {
            assert_eq!(request.line, "POST /v1/ferrite/explain");
            let is_complete = request.body["target"] == "active"
                && request.body["instance_info"]["image_source"] == "http://images/a"
                && request.body["nodes"] == json!(["u1", "u2"]);
            let rejected = json!([{"reason": "node …: it has no checksum", "nodes": ["u1"]}]);
            let status = if is_complete { 200 } else { 400 };
            TestResponse::Json(status, json!({"plans": [], "rejected": rejected}))
        });
        let (ironic, _) = start_server(|request| match request.line.contains("/v1/ferrite/") {
            true => TestResponse::Json(404, json!({"error_message": "no such path"})),
            false => TestResponse::Json(200, json!({"power": {"result": true}})),
        });
        for (context, expected) in [
            (&ferrite, "it has no checksum; give it with --checksum"),
            (&ironic, "an image from a web server needs a --checksum"),
        ] {
            let objections = server_objections(context, &nodes, instance).await.unwrap();
            assert_eq!(objections, HashMap::from([("u1".to_owned(), expected.to_owned())]));
        }
    }

    #[test]
    fn reports_why_a_node_does_not_match() {
        let good = json!({
            "provision_state": "available", "maintenance": false, "instance_uuid": null,
            "power_state": "power off", "resource_class": "big", "traits": ["CUSTOM_A"],
        });
        let traits = ["CUSTOM_A".to_owned()];
        assert!(mismatch_reasons(&good, "big", &traits).is_empty());
        for (field, value, reason) in [
            ("provision_state", json!("active"), "is active"),
            ("maintenance", json!(true), "is in maintenance"),
            ("instance_uuid", json!("i"), "is reserved for the instance i"),
            ("power_state", json!(null), "its power state is unknown"),
            ("resource_class", json!("small"), "its resource class is small"),
            ("resource_class", json!(null), "its resource class is none"),
            ("traits", json!(["CUSTOM_B"]), "lacks CUSTOM_A"),
        ] {
            let mut node = good.clone();
            node[field] = value;
            assert_eq!(mismatch_reasons(&node, "big", &traits), [reason]);
        }
    }
}
