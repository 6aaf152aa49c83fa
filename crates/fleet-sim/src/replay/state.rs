// SPDX-License-Identifier: Apache-2.0
//! A recording with the changes by clients, without sockets.

use std::collections::BTreeMap;

use http::{HeaderName, StatusCode, header};
use redfish::recording::{BmcRecording, RecordedResponse};
use serde_json::{Map, Value, json};

use super::{ReplayResponse, ReplayedRequest};

const ROOT: &str = "/redfish/v1";
/// Limit of stored requests, to bound memory.
const MAX_REQUESTS: usize = 10_000;
/// Properties that are removed from stored requests.
const SECRET_PROPERTIES: &[&str] = &["Password", "NewPassword", "OldPassword", "HttpHeaders"];

/// The recording with all changes.
#[derive(Debug)]
pub(super) struct ReplayState {
    resources: BTreeMap<String, RecordedResponse>,
    /// Action targets, each with its resource and the name of the action.
    actions: BTreeMap<String, (String, String)>,
    /// Settings resources, each with the resource that they configure.
    settings_of: BTreeMap<String, String>,
    /// Settings that the next reset applies.
    pending: Vec<(String, Map<String, Value>)>,
    created_count: u32,
    pub(super) requests: Vec<ReplayedRequest>,
}

impl ReplayState {
    /// Creates the initial state. Returns `None` if the recording has no service root.
    pub(super) fn new(recording: BmcRecording) -> Option<Self> {
        let resources = recording.resources;
        resources.get(ROOT)?;
        let (mut actions, mut settings_of) = (BTreeMap::new(), BTreeMap::new());
        for (path, recorded) in &resources {
            collect_actions(path, recorded.body.get("Actions"), &mut actions);
            let settings = recorded.body.pointer("/@Redfish.Settings/SettingsObject/@odata.id");
            if let Some(settings) = settings.and_then(Value::as_str) {
                settings_of.insert(without_trailing_slash(settings).to_owned(), path.clone());
            }
        }
        let (pending, requests) = (Vec::new(), Vec::new());
        Some(Self { resources, actions, settings_of, pending, created_count: 0, requests })
    }

    /// Returns the body of a resource.
    pub(super) fn body(&self, path: &str) -> Option<&Value> {
        self.resources.get(without_trailing_slash(path)).map(|recorded| &recorded.body)
    }

    /// Handles GET and HEAD.
    pub(super) fn handle_read(&self, path: &str) -> ReplayResponse {
        let Some(recorded) = self.resources.get(without_trailing_slash(path)) else {
            return ReplayResponse::new(StatusCode::NOT_FOUND);
        };
        let headers = recorded
            .headers
            .iter()
            .filter_map(|(name, value)| Some((HeaderName::try_from(name).ok()?, value.clone())));
        ReplayResponse {
            status: StatusCode::from_u16(recorded.status).unwrap_or(StatusCode::OK),
            headers: headers.collect(),
            body: recorded.body.clone(),
        }
    }

    /// Handles and stores any other request.
    pub(super) fn handle_change(
        &mut self,
        method: &str,
        path: &str,
        body: Value,
    ) -> ReplayResponse {
        let path = without_trailing_slash(path);
        let response = match method {
            "POST" if self.is_session_collection(path) => self.create_session(path),
            "DELETE" if self.is_session(path) => ReplayResponse::new(StatusCode::NO_CONTENT),
            "POST" => self.post(path, &body),
            "PATCH" | "PUT" => self.patch(path, &body),
            "DELETE" => self.delete(path),
            _ => ReplayResponse::new(StatusCode::METHOD_NOT_ALLOWED),
        };
        if self.requests.len() < MAX_REQUESTS {
            self.requests.push(ReplayedRequest {
                method: method.to_owned(),
                path: path.to_owned(),
                body: without_secrets(body),
                status: response.status.as_u16(),
            });
        }
        response
    }

    fn post(&mut self, path: &str, body: &Value) -> ReplayResponse {
        if let Some((owner, action)) = self.actions.get(path).cloned() {
            return self.run_action(&owner, &action, body);
        }
        let is_collection = self.body(path).is_some_and(|body| body.get("Members").is_some());
        if is_collection {
            self.add_member(path, body)
        } else {
            ReplayResponse::new(StatusCode::NOT_FOUND)
        }
    }

    fn run_action(&mut self, owner: &str, action: &str, body: &Value) -> ReplayResponse {
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
                ReplayResponse::new(StatusCode::NO_CONTENT)
            }
            "#VirtualMedia.EjectMedia" => {
                self.merge(
                    owner,
                    &json!({
                        "Image": null, "ImageName": null, "Inserted": false,
                        "ConnectedVia": "NotConnected",
                    }),
                );
                ReplayResponse::new(StatusCode::NO_CONTENT)
            }
            "#UpdateService.SimpleUpdate" => self.finished_task(),
            _ => ReplayResponse::new(StatusCode::NO_CONTENT),
        }
    }

    fn reset(&mut self, system: &str, body: &Value) -> ReplayResponse {
        let reset_type = body.get("ResetType").and_then(Value::as_str).unwrap_or_default();
        let allowed = self.body(system).and_then(|body| {
            let action = body.get("Actions")?.get("#ComputerSystem.Reset")?;
            action.get("ResetType@Redfish.AllowableValues")?.as_array()
        });
        if allowed.is_some_and(|allowed| !allowed.iter().any(|value| value == reset_type)) {
            return ReplayResponse::new(StatusCode::BAD_REQUEST);
        }
        let is_on = self.body(system).is_some_and(|body| body["PowerState"] == "On");
        let on = match reset_type {
            "On" | "ForceOn" | "ForceRestart" | "GracefulRestart" | "PowerCycle" => true,
            "ForceOff" | "GracefulShutdown" => false,
            "PushPowerButton" => !is_on,
            "Nmi" => return ReplayResponse::new(StatusCode::NO_CONTENT),
            _ => return ReplayResponse::new(StatusCode::BAD_REQUEST),
        };
        self.merge(system, &json!({"PowerState": if on { "On" } else { "Off" }}));
        if on {
            self.apply_boot(system);
        }
        ReplayResponse::new(StatusCode::NO_CONTENT)
    }

    /// Applies pending settings, and ends a `Once` boot override.
    fn apply_boot(&mut self, system: &str) {
        for (owner, fields) in std::mem::take(&mut self.pending) {
            self.merge(&owner, &Value::Object(fields));
        }
        let enabled =
            self.body(system).and_then(|body| body.get("Boot")?.get("BootSourceOverrideEnabled"));
        if enabled.is_some_and(|enabled| enabled == "Once") {
            let boot = json!({"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"});
            self.merge(system, &json!({"Boot": boot}));
        }
    }

    fn patch(&mut self, path: &str, body: &Value) -> ReplayResponse {
        let Value::Object(fields) = body else {
            return ReplayResponse::new(StatusCode::BAD_REQUEST);
        };
        if !self.resources.contains_key(path) {
            return ReplayResponse::new(StatusCode::NOT_FOUND);
        }
        let fields: Map<String, Value> =
            fields.iter().filter(|(name, _)| !name.starts_with('@')).map(cloned).collect();
        if let Some(owner) = self.settings_of.get(path) {
            self.pending.push((owner.clone(), fields.clone()));
        }
        self.merge(path, &Value::Object(fields));
        let body = self.body(path).cloned().unwrap_or_default();
        ReplayResponse { status: StatusCode::OK, headers: Vec::new(), body }
    }

    fn delete(&mut self, path: &str) -> ReplayResponse {
        if self.resources.remove(path).is_none() {
            return ReplayResponse::new(StatusCode::NOT_FOUND);
        }
        let collection = path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        self.change_members(&collection, |members| {
            members.retain(|member| {
                member.get("@odata.id").and_then(Value::as_str).map(without_trailing_slash)
                    != Some(path)
            });
        });
        ReplayResponse::new(StatusCode::NO_CONTENT)
    }

    fn add_member(&mut self, collection: &str, body: &Value) -> ReplayResponse {
        let (id, path) = self.allocate_path(collection);
        let mut member = body.clone();
        if let Some(fields) = member.as_object_mut() {
            for secret in SECRET_PROPERTIES {
                fields.remove(*secret);
            }
            fields.insert("@odata.id".to_owned(), path.clone().into());
            fields.insert("Id".to_owned(), id.clone().into());
            fields.entry("Name").or_insert(id.into());
        }
        self.insert_resource(&path, member.clone());
        self.change_members(collection, |members| members.push(json!({"@odata.id": path})));
        let headers = vec![(header::LOCATION, path)];
        ReplayResponse { status: StatusCode::CREATED, headers, body: member }
    }

    /// Creates a completed task.
    fn finished_task(&mut self) -> ReplayResponse {
        let (id, path) = self.allocate_path("/redfish/v1/TaskService/Tasks");
        let task = json!({
            "@odata.id": path, "@odata.type": "#Task.v1_7_3.Task", "Id": id, "Name": "Task",
            "TaskState": "Completed", "TaskStatus": "OK", "PercentComplete": 100, "Messages": [],
        });
        self.insert_resource(&path, task.clone());
        ReplayResponse {
            status: StatusCode::ACCEPTED,
            headers: vec![(header::LOCATION, path)],
            body: task,
        }
    }

    fn create_session(&mut self, sessions: &str) -> ReplayResponse {
        let (id, path) = self.allocate_path(sessions);
        let body = json!({"@odata.id": path, "Id": id, "Name": "User Session"});
        let token = (HeaderName::from_static("x-auth-token"), format!("replayed-{id}"));
        ReplayResponse {
            status: StatusCode::CREATED,
            headers: vec![(header::LOCATION, path), token],
            body,
        }
    }

    fn allocate_path(&mut self, collection: &str) -> (String, String) {
        self.created_count = self.created_count.wrapping_add(1);
        let id = format!("replayed-{}", self.created_count);
        let path = format!("{collection}/{id}");
        (id, path)
    }

    fn insert_resource(&mut self, path: &str, body: Value) {
        let recorded = RecordedResponse { status: 200, headers: BTreeMap::new(), body };
        self.resources.insert(path.to_owned(), recorded);
    }

    fn merge(&mut self, path: &str, fields: &Value) {
        if let Some(recorded) = self.resources.get_mut(path) {
            merge(&mut recorded.body, fields);
            // The recorded ETag no longer matches the body.
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

    fn is_session_collection(&self, path: &str) -> bool {
        let linked = self.body(ROOT).and_then(|root| root.pointer("/Links/Sessions/@odata.id"));
        linked.and_then(Value::as_str).map(without_trailing_slash) == Some(path)
            || path.ends_with("/SessionService/Sessions")
    }

    fn is_session(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(parent, _)| self.is_session_collection(parent))
    }
}

/// Collects the actions of a resource, including OEM actions.
fn collect_actions(
    owner: &str,
    actions: Option<&Value>,
    into: &mut BTreeMap<String, (String, String)>,
) {
    let Some(Value::Object(actions)) = actions else { return };
    for (name, action) in actions {
        match action.get("target").and_then(Value::as_str) {
            Some(target) => {
                into.insert(
                    without_trailing_slash(target).to_owned(),
                    (owner.to_owned(), name.clone()),
                );
            }
            None => collect_actions(owner, Some(action), into),
        }
    }
}

/// Merges objects recursively; replaces all other values.
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
        for secret in SECRET_PROPERTIES {
            fields.remove(*secret);
        }
    }
    body
}

fn without_trailing_slash(path: &str) -> &str {
    path.trim_end_matches('/')
}

fn cloned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}
