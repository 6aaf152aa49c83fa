// SPDX-License-Identifier: Apache-2.0
//! What clients do to a recording: no sockets here.

use std::collections::BTreeMap;

use http::{HeaderName, StatusCode, header};
use redfish::recording::{Recorded, Recording};
use serde_json::{Map, Value, json};

use super::{Request, Told};

const ROOT: &str = "/redfish/v1";
/// How many requests are remembered: a client that goes on for ever must not fill the memory.
const REQUESTS_KEPT: usize = 10_000;
/// Fields of requests that are not remembered.
const SECRETS: &[&str] = &["Password", "NewPassword", "OldPassword", "HttpHeaders"];

/// The recording, with everything that was changed since.
#[derive(Debug)]
pub(super) struct Changed {
    resources: BTreeMap<String, Recorded>,
    /// Whose action a path is: the resource and the action's name.
    actions: BTreeMap<String, (String, String)>,
    /// Which resource the settings at a path are for.
    settings_of: BTreeMap<String, String>,
    /// Settings that wait for a reset.
    pending: Vec<(String, Map<String, Value>)>,
    made: u32,
    pub(super) requests: Vec<Request>,
}

impl Changed {
    /// The recording unchanged; none if it has no service root.
    pub(super) fn new(recording: Recording) -> Option<Self> {
        let resources = recording.resources;
        resources.get(ROOT)?;
        let (mut actions, mut settings_of) = (BTreeMap::new(), BTreeMap::new());
        for (path, recorded) in &resources {
            collect_actions(path, recorded.body.get("Actions"), &mut actions);
            let settings = recorded.body.pointer("/@Redfish.Settings/SettingsObject/@odata.id");
            if let Some(settings) = settings.and_then(Value::as_str) {
                settings_of.insert(trimmed(settings).to_owned(), path.clone());
            }
        }
        let (pending, requests) = (Vec::new(), Vec::new());
        Some(Self { resources, actions, settings_of, pending, made: 0, requests })
    }

    /// The body of a resource.
    pub(super) fn read(&self, path: &str) -> Option<&Value> {
        self.resources.get(trimmed(path)).map(|recorded| &recorded.body)
    }

    /// The answer to being read.
    pub(super) fn show(&self, path: &str) -> Told {
        let Some(recorded) = self.resources.get(trimmed(path)) else {
            return Told::new(StatusCode::NOT_FOUND);
        };
        let headers = recorded
            .headers
            .iter()
            .filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, value.clone())));
        Told {
            status: StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::OK),
            headers: headers.collect(),
            body: recorded.body.clone(),
        }
    }

    /// The answer to being changed, which is remembered.
    pub(super) fn change(&mut self, method: &str, path: &str, body: Value) -> Told {
        let path = trimmed(path);
        let told = match method {
            "POST" if self.is_sessions(path) => self.sign_in(path),
            "DELETE" if self.is_session(path) => Told::new(StatusCode::NO_CONTENT),
            "POST" => self.post(path, &body),
            "PATCH" | "PUT" => self.patch(path, &body),
            "DELETE" => self.delete(path),
            _ => Told::new(StatusCode::METHOD_NOT_ALLOWED),
        };
        if self.requests.len() < REQUESTS_KEPT {
            self.requests.push(Request {
                method: method.to_owned(),
                path: path.to_owned(),
                body: without_secrets(body),
                status: told.status.as_u16(),
            });
        }
        told
    }

    fn post(&mut self, path: &str, body: &Value) -> Told {
        if let Some((owner, action)) = self.actions.get(path).cloned() {
            return self.act(&owner, &action, body);
        }
        let is_collection = self.read(path).is_some_and(|body| body.get("Members").is_some());
        if is_collection { self.add_member(path, body) } else { Told::new(StatusCode::NOT_FOUND) }
    }

    fn act(&mut self, owner: &str, action: &str, body: &Value) -> Told {
        match action {
            "#ComputerSystem.Reset" => self.reset(owner, body),
            "#VirtualMedia.InsertMedia" => {
                let image = body.get("Image").cloned().unwrap_or_default();
                let is_inserted = body.get("Inserted").and_then(Value::as_bool).unwrap_or(true);
                self.merge(
                    owner,
                    &json!({
                        "Image": image, "Inserted": is_inserted, "ConnectedVia": "URI",
                    }),
                );
                Told::new(StatusCode::NO_CONTENT)
            }
            "#VirtualMedia.EjectMedia" => {
                self.merge(
                    owner,
                    &json!({
                        "Image": null, "ImageName": null, "Inserted": false,
                        "ConnectedVia": "NotConnected",
                    }),
                );
                Told::new(StatusCode::NO_CONTENT)
            }
            "#UpdateService.SimpleUpdate" => self.finished_task(),
            _ => Told::new(StatusCode::NO_CONTENT),
        }
    }

    fn reset(&mut self, system: &str, body: &Value) -> Told {
        let asked = body.get("ResetType").and_then(Value::as_str).unwrap_or_default();
        let allowed = self.read(system).and_then(|body| {
            let action = body.get("Actions")?.get("#ComputerSystem.Reset")?;
            action.get("ResetType@Redfish.AllowableValues")?.as_array()
        });
        if allowed.is_some_and(|allowed| !allowed.iter().any(|value| value == asked)) {
            return Told::new(StatusCode::BAD_REQUEST);
        }
        let is_on = self.read(system).is_some_and(|body| body["PowerState"] == "On");
        let on = match asked {
            "On" | "ForceOn" | "ForceRestart" | "GracefulRestart" | "PowerCycle" => true,
            "ForceOff" | "GracefulShutdown" => false,
            "PushPowerButton" => !is_on,
            "Nmi" => return Told::new(StatusCode::NO_CONTENT),
            _ => return Told::new(StatusCode::BAD_REQUEST),
        };
        self.merge(system, &json!({"PowerState": if on { "On" } else { "Off" }}));
        if on {
            self.boot(system);
        }
        Told::new(StatusCode::NO_CONTENT)
    }

    /// Settings that waited are applied, and an override for one boot is used up.
    fn boot(&mut self, system: &str) {
        for (owner, fields) in std::mem::take(&mut self.pending) {
            self.merge(&owner, &Value::Object(fields));
        }
        let enabled =
            self.read(system).and_then(|body| body.get("Boot")?.get("BootSourceOverrideEnabled"));
        if enabled.is_some_and(|enabled| enabled == "Once") {
            let boot = json!({"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"});
            self.merge(system, &json!({"Boot": boot}));
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> Told {
        let Value::Object(fields) = body else { return Told::new(StatusCode::BAD_REQUEST) };
        if !self.resources.contains_key(path) {
            return Told::new(StatusCode::NOT_FOUND);
        }
        let fields: Map<String, Value> =
            fields.iter().filter(|(name, _)| !name.starts_with('@')).map(cloned).collect();
        if let Some(owner) = self.settings_of.get(path) {
            self.pending.push((owner.clone(), fields.clone()));
        }
        self.merge(path, &Value::Object(fields));
        let body = self.read(path).cloned().unwrap_or_default();
        Told { status: StatusCode::OK, headers: Vec::new(), body }
    }

    fn delete(&mut self, path: &str) -> Told {
        if self.resources.remove(path).is_none() {
            return Told::new(StatusCode::NOT_FOUND);
        }
        let collection = path.rsplit_once('/').map_or("", |(front, _)| front).to_owned();
        self.change_members(&collection, |members| {
            members.retain(|member| {
                member.get("@odata.id").and_then(Value::as_str).map(trimmed) != Some(path)
            });
        });
        Told::new(StatusCode::NO_CONTENT)
    }

    fn add_member(&mut self, collection: &str, body: &Value) -> Told {
        let (id, path) = self.new_path(collection);
        let mut member = body.clone();
        if let Some(fields) = member.as_object_mut() {
            for secret in SECRETS {
                fields.remove(*secret);
            }
            fields.insert("@odata.id".to_owned(), path.clone().into());
            fields.insert("Id".to_owned(), id.clone().into());
            fields.entry("Name").or_insert(id.into());
        }
        self.put(&path, member.clone());
        self.change_members(collection, |members| members.push(json!({"@odata.id": path})));
        let headers = vec![(header::LOCATION, path)];
        Told { status: StatusCode::CREATED, headers, body: member }
    }

    /// A task that was over before it began, to be watched by whoever waits for it.
    fn finished_task(&mut self) -> Told {
        let (id, path) = self.new_path("/redfish/v1/TaskService/Tasks");
        let task = json!({
            "@odata.id": path, "@odata.type": "#Task.v1_7_3.Task", "Id": id, "Name": "Task",
            "TaskState": "Completed", "TaskStatus": "OK", "PercentComplete": 100, "Messages": [],
        });
        self.put(&path, task.clone());
        Told { status: StatusCode::ACCEPTED, headers: vec![(header::LOCATION, path)], body: task }
    }

    fn sign_in(&mut self, sessions: &str) -> Told {
        let (id, path) = self.new_path(sessions);
        let body = json!({"@odata.id": path, "Id": id, "Name": "User Session"});
        let token = (HeaderName::from_static("x-auth-token"), format!("replayed-{id}"));
        Told { status: StatusCode::CREATED, headers: vec![(header::LOCATION, path), token], body }
    }

    fn new_path(&mut self, collection: &str) -> (String, String) {
        self.made = self.made.wrapping_add(1);
        let id = format!("replayed-{}", self.made);
        let path = format!("{collection}/{id}");
        (id, path)
    }

    fn put(&mut self, path: &str, body: Value) {
        let recorded = Recorded { status: 200, headers: BTreeMap::new(), body };
        self.resources.insert(path.to_owned(), recorded);
    }

    fn merge(&mut self, path: &str, fields: &Value) {
        if let Some(recorded) = self.resources.get_mut(path) {
            merge(&mut recorded.body, fields);
            // What was recorded is no longer what it names.
            recorded.headers.remove("etag");
        }
    }

    fn change_members(&mut self, collection: &str, change: impl FnOnce(&mut Vec<Value>)) {
        let Some(recorded) = self.resources.get_mut(collection) else { return };
        let Some(Value::Array(members)) = recorded.body.get_mut("Members") else { return };
        change(members);
        let count = members.len();
        merge(&mut recorded.body, &json!({"Members@odata.count": count}));
        recorded.headers.remove("etag");
    }

    fn is_sessions(&self, path: &str) -> bool {
        let linked = self.read(ROOT).and_then(|root| root.pointer("/Links/Sessions/@odata.id"));
        linked.and_then(Value::as_str).map(trimmed) == Some(path)
            || path.ends_with("/SessionService/Sessions")
    }

    fn is_session(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(front, _)| self.is_sessions(front))
    }
}

/// The actions of a resource, and those of its maker.
fn collect_actions(
    owner: &str,
    actions: Option<&Value>,
    into: &mut BTreeMap<String, (String, String)>,
) {
    let Some(Value::Object(actions)) = actions else { return };
    for (name, action) in actions {
        match action.get("target").and_then(Value::as_str) {
            Some(target) => {
                into.insert(trimmed(target).to_owned(), (owner.to_owned(), name.clone()));
            }
            None => collect_actions(owner, Some(action), into),
        }
    }
}

/// Objects are merged, everything else is replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn without_secrets(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        for secret in SECRETS {
            fields.remove(*secret);
        }
    }
    body
}

fn trimmed(path: &str) -> &str {
    path.trim_end_matches('/')
}

fn cloned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}
