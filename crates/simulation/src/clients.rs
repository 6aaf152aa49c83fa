// SPDX-License-Identifier: Apache-2.0
//! The clients: they request jobs, change a value of each node, and compare all responses with the history.

use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use node_model::{NodeId, ProvisionState};
use serde_json::{Value, json};

use crate::driver;
use crate::history::is_at_rest;
use crate::process::{ClientResponse, SimulatedProcess};
use crate::world::{REPLICAS, World, WorldState};

/// How long a client waits for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// What a client does with its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientRole {
    /// Creates the node and requests jobs.
    Operator,
    /// Changes and reads a value.
    Editor,
}

/// A client that works on one node.
pub(crate) struct Client {
    role: ClientRole,
    node: NodeId,
    number: usize,
    next_at: Duration,
    pending: Option<SentRequest>,
    is_created: bool,
    /// What to request next, from the last read.
    next_verb: Option<&'static str>,
    next_value: i64,
    /// Requests whose result the client does not know.
    unknown_verbs: Vec<&'static str>,
    unknown_values: Vec<i64>,
    refused_values: Vec<i64>,
}

struct SentRequest {
    request: ClientRequest,
    sent_at: Duration,
    position: u64,
    response: ClientResponse,
    loses_response: bool,
    replica: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientRequest {
    Create,
    Read,
    Provision(&'static str),
    Power(&'static str),
    Write(i64),
}

impl ClientRequest {
    fn http(self, node: NodeId, number: usize) -> (&'static str, String, Value) {
        let path = format!("/v1/nodes/{node}");
        match self {
            Self::Create => {
                let body = json!({
                    "uuid": node.to_string(), "name": format!("node-{number}"), "driver": driver::NAME,
                });
                ("POST", "/v1/nodes".to_owned(), body)
            }
            Self::Read => ("GET", path, Value::Null),
            Self::Provision(verb) => {
                ("PUT", format!("{path}/states/provision"), json!({ "target": verb }))
            }
            Self::Power(target) => {
                ("PUT", format!("{path}/states/power"), json!({ "target": target }))
            }
            Self::Write(value) => {
                let patch = json!([{ "op": "add", "path": "/extra/value", "value": value }]);
                ("PATCH", path, patch)
            }
        }
    }
}

/// How a request ended, as the client sees it.
enum ClientResult {
    Response(u16, Value),
    /// The connection broke, or there was no response in time.
    Unknown,
}

impl Client {
    /// The clients of a node.
    pub(crate) fn pair(node: NodeId, number: usize) -> [Self; 2] {
        [ClientRole::Operator, ClientRole::Editor].map(|role| Self {
            role,
            node,
            number,
            next_at: Duration::from_millis(300 * number as u64),
            pending: None,
            is_created: false,
            next_verb: None,
            next_value: 0,
            unknown_verbs: Vec::new(),
            unknown_values: Vec::new(),
            refused_values: Vec::new(),
        })
    }

    /// Whether it waits for no response.
    pub(crate) const fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Takes responses and sends requests. With `is_ending`, it begins nothing new.
    pub(crate) fn run(
        &mut self,
        world: &World,
        processes: &[Option<SimulatedProcess>; REPLICAS],
        now: Duration,
        is_ending: bool,
    ) {
        if let Some(pending) = self.pending.take() {
            match Self::result(&pending, now) {
                Some(result) => self.finish(world, pending, result, now),
                None => {
                    self.pending = Some(pending);
                    return;
                }
            }
        }
        let must_create = self.role == ClientRole::Operator && !self.is_created;
        if now < self.next_at || (is_ending && !must_create) {
            return;
        }
        if self.role == ClientRole::Editor && world.lock().history.current(self.node).is_none() {
            return;
        }
        let mut state = world.at(now);
        let replica = state.random.index(REPLICAS);
        let request = self.choose(&mut state);
        let delays = (state.random.millis(0, 30), state.random.millis(0, 30));
        let loses_response = state.loses_messages && state.random.happens(30);
        let pause = match self.role {
            ClientRole::Operator => state.random.millis(50, 700),
            ClientRole::Editor => state.random.millis(500, 6000),
        };
        let position = state.history.next_position();
        drop(state);
        self.next_at = now + pause;
        let Some(process) = &processes[replica] else { return };
        let (method, path, body) = request.http(self.node, self.number);
        let Some(response) = process.request(method, &path, &body, delays) else { return };
        if request != ClientRequest::Read {
            let text = format!("client requests {request:?} of node {} at {replica}", self.number);
            world.at(now).record(&text);
        }
        self.pending = Some(SentRequest {
            request,
            sent_at: now,
            position,
            response,
            loses_response,
            replica,
        });
    }

    fn choose(&mut self, state: &mut WorldState) -> ClientRequest {
        if self.role == ClientRole::Editor {
            if state.random.happens(500) {
                return ClientRequest::Read;
            }
            self.next_value += 1;
            return ClientRequest::Write(self.next_value);
        }
        if !self.is_created {
            return ClientRequest::Create;
        }
        match self.next_verb.take() {
            Some(_) if state.random.happens(100) => {
                let targets = ["power on", "power off", "rebooting"];
                ClientRequest::Power(targets[state.random.index(targets.len())])
            }
            Some(verb) => ClientRequest::Provision(verb),
            None => ClientRequest::Read,
        }
    }

    fn result(pending: &SentRequest, now: Duration) -> Option<ClientResult> {
        match pending.response.try_recv() {
            Ok(_) if pending.loses_response => Some(ClientResult::Unknown),
            Ok((status, body)) => Some(ClientResult::Response(status, body)),
            Err(TryRecvError::Disconnected) => Some(ClientResult::Unknown),
            Err(TryRecvError::Empty) if now > pending.sent_at + RESPONSE_TIMEOUT => {
                Some(ClientResult::Unknown)
            }
            Err(TryRecvError::Empty) => None,
        }
    }

    fn finish(&mut self, world: &World, pending: SentRequest, result: ClientResult, now: Duration) {
        let mut state = world.at(now);
        let SentRequest { request, position, replica, .. } = pending;
        let (status, body) = match &result {
            ClientResult::Response(status, body) => (*status, body),
            ClientResult::Unknown => (0, &Value::Null),
        };
        if request != ClientRequest::Read || status != 200 {
            state.record(&format!(
                "client gets {status} from {replica} for {request:?} of node {}",
                self.number
            ));
        }
        let within = (position, state.history.next_position());
        // The state of the node is read before the next request.
        self.next_verb = None;
        match request {
            ClientRequest::Create => {
                // After a lost response the name is in use.
                self.is_created = matches!(status, 201 | 409);
            }
            ClientRequest::Read if status == 200 => self.check_read(&mut state, within, body),
            ClientRequest::Read | ClientRequest::Power(_) => {}
            ClientRequest::Provision(verb) => self.check_verb(&mut state, within, verb, status),
            ClientRequest::Write(value) => self.check_write(&mut state, within, value, status),
        }
    }

    fn check_read(&mut self, state: &mut WorldState, within: (u64, u64), body: &Value) {
        let read = body["provision_state"].as_str().unwrap_or_default();
        let value = body["extra"]["value"].as_i64();
        // Ironic's name of the state is null.
        let stored = if body["provision_state"].is_null() { "available" } else { read };
        if !state.history.was_current(self.node, within, stored, value) {
            state.violation(format!(
                "a read of node {} returns '{stored}' with value {value:?}, which was not current \
                 between request and response",
                self.number
            ));
        }
        let Ok(read) = stored.parse::<ProvisionState>() else { return };
        if is_at_rest(read) && body["reservation"].is_null() {
            self.next_verb = Some(next_verb(state, read));
        }
    }

    fn check_verb(
        &mut self,
        state: &mut WorldState,
        within: (u64, u64),
        verb: &'static str,
        status: u16,
    ) {
        let is_started = state.history.match_start(self.node, within, verb);
        match status {
            202 if !is_started => state.violation(format!(
                "'{verb}' of node {} was accepted, and the job was not stored",
                self.number
            )),
            202 => {}
            // After a server error, the request may have been carried out or not.
            0 | 500.. if is_started => {}
            0 | 500.. => self.unknown_verbs.push(verb),
            _ if is_started => state.violation(format!(
                "'{verb}' of node {} was refused with {status}, and carried out",
                self.number
            )),
            _ => {}
        }
    }

    fn check_write(
        &mut self,
        state: &mut WorldState,
        (from, until): (u64, u64),
        value: i64,
        status: u16,
    ) {
        match status {
            200 => {
                let writes = state.history.writes_of(self.node, value);
                if writes.len() != 1 || writes[0] < from || writes[0] > until {
                    state.violation(format!(
                        "value {value} of node {} was confirmed, and stored {} times in time",
                        self.number,
                        writes.iter().filter(|at| (from..=until).contains(at)).count()
                    ));
                }
            }
            0 | 500.. => self.unknown_values.push(value),
            _ => self.refused_values.push(value),
        }
    }

    /// The rules that can be checked only at the end.
    pub(crate) fn check_end(&self, state: &mut WorldState) {
        let number = self.number;
        for value in &self.refused_values {
            if !state.history.writes_of(self.node, *value).is_empty() {
                state.violation(format!("value {value} of node {number} was refused, and stored"));
            }
        }
        for value in 1..=self.next_value {
            if state.history.writes_of(self.node, value).len() > 1 {
                state.violation(format!("value {value} of node {number} was stored twice"));
            }
        }
        if self.role != ClientRole::Operator {
            return;
        }
        let mut unknown = self.unknown_verbs.clone();
        for (before, after) in state.history.unmatched_starts(self.node) {
            let explained =
                unknown.iter().position(|verb| crate::history::starts_with(verb, before, after));
            match explained {
                Some(index) => drop(unknown.remove(index)),
                None => state.violation(format!(
                    "node {number} went from '{before}' to '{after}' without a request"
                )),
            }
        }
    }
}

/// What may be requested in each state. Some have more than one entry, to be more frequent.
const VERBS: &[(ProvisionState, &[&str])] = &[
    (ProvisionState::Enroll, &["manage"]),
    (ProvisionState::Manageable, &["provide", "provide", "inspect"]),
    (ProvisionState::Available, &["active", "active", "active", "manage"]),
    (ProvisionState::Active, &["deleted", "deleted", "rebuild"]),
    (ProvisionState::DeployFail, &["active", "deleted"]),
    (ProvisionState::Error, &["deleted"]),
];

fn next_verb(state: &mut WorldState, current: ProvisionState) -> &'static str {
    let row = VERBS.iter().find(|(known, _)| *known == current);
    let verbs = row.map_or(&["manage"][..], |(_, verbs)| verbs);
    verbs[state.random.index(verbs.len())]
}
