// SPDX-License-Identifier: Apache-2.0
//! A machine that is kept for us, and how it is given back.

use std::time::Duration;

use ironic_client::{Api, Method, Query, segment};
use serde_json::{Map, Value, json};

use super::checks;
use crate::assignments::pointer;
use crate::desk::Desk;
use crate::failure::Failure;
use crate::selection::{self, Chosen};

const PAUSE: Duration = Duration::from_millis(300);
/// What APIs show in the place of secrets.
const MASK: &str = "******";
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
    /// What `instance_info` was before we changed it.
    before: Option<Value>,
}

impl Reservation {
    pub(super) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            uuid: uuid::Uuid::new_v4().to_string(),
            is_asked: false,
            chosen: None,
            cards: Vec::new(),
            before: None,
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
        let mut allocation = self.posted(&desk.api, &body).await?;
        while allocation["state"] == "allocating" {
            tokio::time::sleep(PAUSE).await;
            allocation = desk.api.get(&self.path()).await?;
        }
        let Some(node) = allocation["node_uuid"].as_str() else {
            let why = allocation["last_error"].as_str().unwrap_or("the server does not say why");
            return Err(Failure::Refused(format!(
                "no machine could be picked: {why}; the same with --dry-run says of each machine why"
            )));
        };
        let node = selection::one(&desk.api, node, Some(selection::FIELDS)).await?;
        self.chosen = Some(Chosen::of(node));
        Ok(())
    }

    /// The allocation. If the answer to the request for it is lost, it may be there all the same.
    async fn posted(&self, api: &Api, body: &Value) -> Result<Value, Failure> {
        let error = match api.send(Method::POST, "/v1/allocations", Some(body)).await {
            Ok(allocation) => return Ok(allocation),
            Err(error) => error,
        };
        if !error.is_unanswered() {
            return Err(error.into());
        }
        match api.find(&self.path()).await? {
            Some(allocation) => Ok(allocation),
            None => Ok(api.send(Method::POST, "/v1/allocations", Some(body)).await?),
        }
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
        let query = Query::new().with("fields", "instance_info");
        let mut node = api.get(&query.on(&chosen.path())).await?;
        self.before = Some(node["instance_info"].take());
        api.patch(&chosen.path(), &operations).await?;
        let checks = api.get(&format!("{}/validate", chosen.path())).await?;
        let wrong = NEEDED.iter().find(|interface| checks[interface]["result"] == false);
        if let Some(interface) = wrong {
            let why = checks[interface]["reason"].as_str().unwrap_or("it does not say why");
            let label = &chosen.label;
            let hint = checks::hint(why, instance);
            return Err(Failure::Refused(format!(
                "{label} cannot be deployed, its {interface} interface says: {why}{hint}"
            )));
        }
        let query = Query::new().with("node", &chosen.uuid).with("fields", "address");
        let ports = api.list("/v1/ports", "ports", &query).await?;
        self.cards =
            ports.iter().filter_map(|port| Some(port["address"].as_str()?.to_owned())).collect();
        Ok(())
    }

    /// Gives the machine back as it was.
    pub(super) async fn undo(
        &self,
        api: &Api,
        instance: &Map<String, Value>,
    ) -> Result<(), Failure> {
        if let (Some(chosen), Some(before)) = (&self.chosen, &self.before) {
            let query = Query::new().with("fields", "instance_info");
            let node = api.get(&query.on(&chosen.path())).await?;
            let named = (!instance.contains_key("display_name")).then_some("display_name");
            let keys = instance.keys().map(String::as_str).chain(named);
            let operations = restoration(before, &node["instance_info"], keys);
            if !operations.is_empty() {
                api.patch(&chosen.path(), &operations).await?;
            }
        }
        if self.is_asked {
            match api.send(Method::DELETE, &self.path(), None).await {
                Ok(_) => {}
                // It never was.
                Err(error) if error.status() == Some(404) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// How it is given back by hand.
    pub(super) fn way_back(&self) -> String {
        format!("ferrite allocation delete {}", self.uuid)
    }

    /// What it is called as long as nobody knows which machine it is.
    pub(super) fn label(&self) -> &str {
        let chosen = self.chosen.as_ref().map(|chosen| chosen.label.as_str());
        chosen.or(self.hostname()).unwrap_or(&self.uuid)
    }
}

/// What makes these keys of `instance_info` what they were.
fn restoration<'a>(before: &Value, now: &Value, keys: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let operation = |key: &str| {
        let path = pointer(&format!("instance_info.{key}"));
        match (before.get(key), now.get(key)) {
            (before, now) if before == now => None,
            // A secret is not shown, so that it cannot be put back.
            (Some(Value::String(mask)), _) if mask == MASK => None,
            (Some(value), _) => Some(json!({ "op": "add", "path": path, "value": value })),
            (None, _) => Some(json!({ "op": "remove", "path": path })),
        }
    };
    keys.filter_map(operation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_put_back() {
        let before = json!({"image_source": "old", "same": 1, "other": 2, "image_password": MASK});
        let now = json!({
            "image_source": "new", "same": 1, "other": 3, "image_password": MASK,
            "display_name": "web",
        });
        let keys = ["image_source", "same", "image_checksum", "image_password", "display_name"];
        assert_eq!(
            restoration(&before, &now, keys.into_iter()),
            [
                json!({"op": "add", "path": "/instance_info/image_source", "value": "old"}),
                json!({"op": "remove", "path": "/instance_info/display_name"}),
            ]
        );
    }
}
