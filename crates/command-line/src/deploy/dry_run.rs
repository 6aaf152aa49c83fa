// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy --dry-run`: what would be done, to which machines, and why not to the others.

use std::collections::{BTreeSet, HashMap};

use ironic_client::{Method, Query};
use serde_json::{Map, Value, json};

use super::reservation::Wanted;
use super::{DeployArguments, checks};
use crate::config_drive::Drive;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::node::verbs::Verb;
use crate::output::name_of;
use crate::selection::{self, Chosen, Filters};

const FIELDS: &str = "uuid,name,provision_state,target_provision_state,maintenance,\
    maintenance_reason,instance_uuid,power_state,resource_class,traits,deploy_interface";
/// What must work whatever is deployed; the others depend on the image.
const NEEDED: [&str; 2] = ["power", "management"];
/// So many machines that fit are checked, and so many that do not are told.
const MOST: usize = 50;

/// Shows what would be done. That it cannot be done is a failure.
pub(super) async fn show(
    desk: &Desk,
    arguments: &DeployArguments,
    wanted: &[Wanted],
    instance: &Map<String, Value>,
    drive: &Drive,
) -> Result<(), Failure> {
    let class = &arguments.resource_class;
    let candidates = selection::names(&arguments.candidates)?;
    let nodes = selection::rows(&desk.api, &candidates, &Filters::default(), Some(FIELDS)).await?;
    let in_question: Vec<&Value> = nodes
        .iter()
        .filter(|node| !candidates.is_empty() || node["resource_class"] == class.as_str())
        .collect();
    let could: Vec<&Value> = in_question
        .iter()
        .copied()
        .filter(|node| reasons(node, class, &arguments.traits).is_empty())
        .collect();
    let complaints = complaints(desk, &could, instance).await?;
    let (mut fitting, mut others, mut more) = (Vec::new(), Map::new(), 0);
    for node in in_question {
        let mut reasons = reasons(node, class, &arguments.traits);
        reasons.extend(complaints.get(uuid_of(node)).cloned());
        match (reasons.is_empty(), others.len() < MOST) {
            (true, _) => fitting.push(name_of(node)),
            (false, true) => {
                others.insert(name_of(node).to_owned(), json!(reasons.join("; ")));
            }
            (false, false) => more += 1,
        }
    }
    let hostnames: Vec<&str> = wanted.iter().filter_map(|it| it.hostname.as_deref()).collect();
    let mut plan = json!({
        "machines_wanted": wanted.len(),
        "machines_that_fit": fitting,
        "machines_that_do_not_fit": others,
        "hostnames": hostnames,
        "instance_info": instance,
        "config_drive": drive.of("…", "…", hostnames.first().copied()),
    });
    if more > 0 {
        plan["more_that_do_not_fit"] = json!(more);
    }
    desk.screen.print(&arguments.output.output.single(&plan, desk.screen));
    let query = Query::new().with("fields", "name");
    let allocations = desk.api.list("/v1/allocations", "allocations", &query).await?;
    if let Some(taken) =
        hostnames.iter().find(|name| allocations.iter().any(|it| it["name"] == **name))
    {
        return Err(Failure::Refused(format!(
            "there is an allocation called {taken:?} already: `ferrite allocation show {taken}`"
        )));
    }
    let classes: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node["resource_class"].as_str()).collect();
    if candidates.is_empty() && !classes.contains(class.as_str()) {
        let classes = classes.into_iter().collect::<Vec<_>>().join(", ");
        let told = format!("no machine has the resource class {class:?}; there are {classes}");
        return Err(Failure::Refused(told));
    }
    match (fitting.len(), wanted.len()) {
        (fit, wanted) if fit >= wanted => Ok(()),
        (1, wanted) => Err(Failure::Refused(format!("1 machine fits, and {wanted} are wanted"))),
        (fit, 1) => Err(Failure::Refused(format!("{fit} machines fit, and 1 is wanted"))),
        (fit, wanted) => {
            Err(Failure::Refused(format!("{fit} machines fit, and {wanted} are wanted")))
        }
    }
}

/// Why a machine would not be picked.
fn reasons(node: &Value, class: &str, traits: &[String]) -> Vec<String> {
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
        reasons.push(format!("is kept for {instance}"));
    }
    let has = |name: &String| {
        node["traits"].as_array().is_some_and(|traits| traits.iter().any(|it| it == name))
    };
    let lacks: Vec<&str> = traits.iter().filter(|it| !has(it)).map(String::as_str).collect();
    if !lacks.is_empty() {
        reasons.push(format!("lacks {}", lacks.join(", ")));
    }
    // Such a machine is never picked.
    if text("power_state").is_none() {
        reasons.push("nobody knows whether it is on or off".to_owned());
    }
    reasons
}

/// What the server would say of machines that were asked to deploy this, by UUID. A Ferrite tells of all
/// of them; of another some are checked, as far as that goes before they are told what to deploy.
async fn complaints(
    desk: &Desk,
    nodes: &[&Value],
    instance: &Map<String, Value>,
) -> Result<HashMap<String, String>, Failure> {
    let mut complaints = HashMap::new();
    if nodes.is_empty() {
        return Ok(complaints);
    }
    let uuids: Vec<&str> = nodes.iter().map(|node| uuid_of(node)).collect();
    let body = json!({
        "target": Verb::Deploy.target(), "nodes": uuids, "instance_info": instance,
    });
    match desk.api.send(Method::POST, "/v1/ferrite/explain", Some(&body)).await {
        Ok(explained) => {
            for refused in explained["refused"].as_array().into_iter().flatten() {
                let why = refused["why"].as_str().unwrap_or("it does not say why");
                // Which machine it is about stands beside it.
                let why = why.strip_prefix("node …: ").unwrap_or(why);
                let why = format!("{why}{}", checks::hint(why, instance));
                for uuid in refused["nodes"].as_array().into_iter().flatten() {
                    let uuid = uuid.as_str().unwrap_or_default().to_owned();
                    complaints.insert(uuid, why.clone());
                }
            }
            return Ok(complaints);
        }
        Err(error) if error.status() == Some(404) => {}
        Err(error) => return Err(error.into()),
    }
    for (place, node) in nodes.iter().enumerate() {
        let needs_checksum = node["deploy_interface"] == "direct";
        let complaint = match checks::lacks_checksum(instance) && needs_checksum {
            true => Some("an image from a web server needs its --checksum".to_owned()),
            false if place < MOST => complaint(desk, node).await?,
            false => None,
        };
        if let Some(complaint) = complaint {
            complaints.insert(uuid_of(node).to_owned(), complaint);
        }
    }
    Ok(complaints)
}

fn uuid_of(node: &Value) -> &str {
    node["uuid"].as_str().unwrap_or_default()
}

/// What the server finds wrong with a machine whatever is deployed.
async fn complaint(desk: &Desk, node: &Value) -> Result<Option<String>, Failure> {
    let chosen = Chosen::of(node.clone());
    let checks = desk.api.get(&format!("{}/validate", chosen.path())).await?;
    let wrong = NEEDED.iter().find(|interface| checks[interface]["result"] == false);
    Ok(wrong.map(|interface| {
        let why = checks[interface]["reason"].as_str().unwrap_or("it does not say why");
        format!("its {interface} interface says: {why}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{Answer, server};

    /// What deploying would be refused for, showing what it would do says before.
    #[tokio::test]
    async fn an_image_that_would_be_refused_is_refused_here() {
        let nodes = [
            json!({"uuid": "u1", "deploy_interface": "direct"}),
            json!({"uuid": "u2", "deploy_interface": "ramdisk"}),
        ];
        let nodes: Vec<&Value> = nodes.iter().collect();
        let instance = json!({"image_source": "http://images/a"});
        let instance = instance.as_object().unwrap();
        let (ferrite, _) = server(|asked| {
            assert_eq!(asked.line, "POST /v1/ferrite/explain");
            let is_whole = asked.body["target"] == "active"
                && asked.body["instance_info"]["image_source"] == "http://images/a"
                && asked.body["nodes"] == json!(["u1", "u2"]);
            let refused = json!([{"why": "node …: it has no checksum", "nodes": ["u1"]}]);
            Answer::Json(if is_whole { 200 } else { 400 }, json!({"plans": [], "refused": refused}))
        });
        let (ironic, _) = server(|asked| match asked.line.contains("/v1/ferrite/") {
            true => Answer::Json(404, json!({"error_message": "no such path"})),
            false => Answer::Json(200, json!({"power": {"result": true}})),
        });
        for (desk, expected) in [
            (&ferrite, "it has no checksum; --checksum gives it one"),
            (&ironic, "an image from a web server needs its --checksum"),
        ] {
            let complaints = complaints(desk, &nodes, instance).await.unwrap();
            assert_eq!(complaints, HashMap::from([("u1".to_owned(), expected.to_owned())]));
        }
    }

    #[test]
    fn each_machine_is_told_why_it_does_not_fit() {
        let good = json!({
            "provision_state": "available", "maintenance": false, "instance_uuid": null,
            "power_state": "power off", "resource_class": "big", "traits": ["CUSTOM_A"],
        });
        let traits = ["CUSTOM_A".to_owned()];
        assert!(reasons(&good, "big", &traits).is_empty());
        for (field, value, reason) in [
            ("provision_state", json!("active"), "is active"),
            ("maintenance", json!(true), "is in maintenance"),
            ("instance_uuid", json!("i"), "is kept for i"),
            ("power_state", json!(null), "nobody knows whether it is on or off"),
            ("resource_class", json!("small"), "its resource class is small"),
            ("resource_class", json!(null), "its resource class is none"),
            ("traits", json!(["CUSTOM_B"]), "lacks CUSTOM_A"),
        ] {
            let mut node = good.clone();
            node[field] = value;
            assert_eq!(reasons(&node, "big", &traits), [reason]);
        }
    }
}
