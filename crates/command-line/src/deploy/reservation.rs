// SPDX-License-Identifier: Apache-2.0
//! A machine that is kept for us, and how it is given back.

use std::time::Duration;

use ironic_client::{Api, Method, Query, segment};
use serde_json::{Map, Value, json};

use crate::assignments::pointer;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::selection::{self, Chosen};

const PAUSE: Duration = Duration::from_millis(300);
/// Without these a deployment cannot work; what other interfaces lack may not matter.
const NEEDED: [&str; 4] = ["boot", "deploy", "management", "power"];

/// A machine that is wanted.
pub(super) struct Wanted {
    pub(super) hostname: Option<String>,
    pub(super) resource_class: String,
    pub(super) traits: Vec<String>,
    pub(super) candidates: Vec<String>,
}

/// A machine that is kept for us, or is about to be.
pub(super) struct Reservation {
    wanted: Wanted,
    /// Of the allocation; ours, so that it is known before the API is asked.
    pub(super) uuid: String,
    /// Whether the API was asked.
    is_asked: bool,
    pub(super) chosen: Option<Chosen>,
    /// The addresses of the machine's cards.
    pub(super) cards: Vec<String>,
    is_changed: bool,
}

impl Reservation {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            uuid: uuid::Uuid::new_v4().to_string(),
            is_asked: false,
            chosen: None,
            cards: Vec::new(),
            is_changed: false,
        }
    }

    pub(super) fn hostname(&self) -> Option<&str> {
        self.wanted.hostname.as_deref()
    }

    fn path(&self) -> String {
        format!("/v1/allocations/{}", segment(&self.uuid))
    }

    /// Asks for the machine and waits until one was picked.
    pub(super) async fn make(&mut self, desk: &Desk) -> Result<(), Failure> {
        let wanted = &self.wanted;
        let mut body = json!({ "uuid": self.uuid, "resource_class": wanted.resource_class });
        if let Some(hostname) = &wanted.hostname {
            body["name"] = json!(hostname);
        }
        if !wanted.traits.is_empty() {
            body["traits"] = json!(wanted.traits);
        }
        if !wanted.candidates.is_empty() {
            body["candidate_nodes"] = json!(wanted.candidates);
        }
        self.is_asked = true;
        let mut allocation = desk.api.send(Method::POST, "/v1/allocations", Some(&body)).await?;
        while allocation["state"] == "allocating" {
            tokio::time::sleep(PAUSE).await;
            allocation = desk.api.get(&self.path()).await?;
        }
        let Some(node) = allocation["node_uuid"].as_str() else {
            let why = allocation["last_error"].as_str().unwrap_or("the server does not say why");
            let class = &wanted.resource_class;
            return Err(Failure::Refused(format!(
                "no machine could be picked: {why}; `ferrite node list --resource-class {class} --state \
                 available` shows those that are free"
            )));
        };
        let node = selection::one(&desk.api, node, Some(selection::FIELDS)).await?;
        self.chosen = Some(Chosen::of(node));
        Ok(())
    }

    /// Tells the machine's record what to deploy, and checks that it can be.
    pub(super) async fn prepare(
        &mut self,
        api: &Api,
        instance: &Map<String, Value>,
    ) -> Result<(), Failure> {
        let Some(chosen) = &self.chosen else { return Ok(()) };
        let set = |(key, value): (&String, &Value)| json!({ "op": "add", "path": pointer(&format!("instance_info.{key}")), "value": value });
        let mut operations: Vec<Value> = instance.iter().map(set).collect();
        if let Some(hostname) = &self.wanted.hostname {
            let path = pointer("instance_info.display_name");
            operations.push(json!({ "op": "add", "path": path, "value": hostname }));
        }
        self.is_changed = true;
        api.patch(&chosen.path(), &operations).await?;
        let checks = api.get(&format!("{}/validate", chosen.path())).await?;
        let wrong = NEEDED.iter().find(|interface| checks[interface]["result"] == false);
        if let Some(interface) = wrong {
            let why = checks[interface]["reason"].as_str().unwrap_or("it does not say why");
            let label = &chosen.label;
            return Err(Failure::Refused(format!(
                "{label} cannot be deployed, its {interface} interface says: {why}"
            )));
        }
        let query = Query::new().with("node", &chosen.uuid).with("fields", "address");
        let ports = api.list("/v1/ports", "ports", &query).await?;
        self.cards =
            ports.iter().filter_map(|port| Some(port["address"].as_str()?.to_owned())).collect();
        Ok(())
    }

    /// Gives the machine back as it was. What fails here has been told of in another way already.
    pub(super) async fn undo(&self, api: &Api, instance: &Map<String, Value>) {
        if let Some(chosen) = self.chosen.as_ref().filter(|_| self.is_changed) {
            let keys = instance.keys().map(String::as_str);
            let hostname = self.wanted.hostname.as_ref().map(|_| "display_name");
            for key in keys.chain(hostname) {
                let path = pointer(&format!("instance_info.{key}"));
                let _ = api.patch(&chosen.path(), &[json!({ "op": "remove", "path": path })]).await;
            }
        }
        if self.is_asked {
            let _ = api.send(Method::DELETE, &self.path(), None).await;
        }
    }
}
