// SPDX-License-Identifier: Apache-2.0
//! HTTP endpoint to query a running fleet and to change its fault rules.
//!
//! `GET /machines` and `GET /machines/7` return machines, `GET /faults` lists the rules,
//! `POST /faults` adds one (a JSON object or one line of text), `DELETE /faults` removes all. There
//! is no authentication: listen on loopback only.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::faults::FaultRule;
use crate::fleet::SimulatedFleet;
use crate::listener::{self, ConnectionClosed, HandlerResult};
use crate::{FaultRules, SimulatedMachine};

const MAX_BODY_BYTES: usize = 64 * 1024;

/// The running control endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct ControlServer {
    address: SocketAddr,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

/// The control endpoint could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the control endpoint cannot listen on {address}; choose another address or port")]
pub struct ControlError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

struct ControlledFleet {
    machines: Vec<SimulatedMachine>,
    faults: FaultRules,
}

impl ControlServer {
    /// Starts the control endpoint of a fleet.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn start(address: SocketAddr, fleet: &SimulatedFleet) -> Result<Self, ControlError> {
        let failed = |source| ControlError { address, source };
        let listener = listener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let controlled = Arc::new(ControlledFleet {
            machines: fleet.machines().collect(),
            faults: fleet.faults().clone(),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listener::run(listener, None, stopped, move |request| {
            handle(Arc::clone(&controlled), request)
        }));
        Ok(Self { address, task, _stop: stop })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(controlled: Arc<ControlledFleet>, request: Request<Incoming>) -> HandlerResult {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map_err(|_| ConnectionClosed)?
        .to_bytes();
    let path = head.uri.path().trim_end_matches('/');
    let (status, body) = match (path, &head.method) {
        ("/machines", &Method::GET) => {
            (StatusCode::OK, Value::Array(controlled.machines.iter().map(machine_json).collect()))
        }
        ("/faults", &Method::GET) => (StatusCode::OK, fault_rules_json(&controlled.faults)),
        ("/faults", &Method::POST) => add_fault_rule(&controlled, &body),
        ("/faults", &Method::DELETE) => {
            controlled.faults.clear();
            (StatusCode::OK, fault_rules_json(&controlled.faults))
        }
        (other, &Method::GET) => show_machine(&controlled, other),
        (_, _) => (StatusCode::METHOD_NOT_ALLOWED, json!({"error": "method not allowed"})),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn show_machine(controlled: &ControlledFleet, path: &str) -> (StatusCode, Value) {
    let index = path.strip_prefix("/machines/").and_then(|index| index.parse::<usize>().ok());
    match index.and_then(|index| controlled.machines.get(index)) {
        Some(machine) => (StatusCode::OK, machine_json(machine)),
        None => (
            StatusCode::NOT_FOUND,
            json!({"error": "not found; use /machines, /machines/NUMBER or /faults"}),
        ),
    }
}

fn add_fault_rule(controlled: &ControlledFleet, body: &[u8]) -> (StatusCode, Value) {
    let text = String::from_utf8_lossy(body);
    let rule = if text.trim_start().starts_with('{') {
        serde_json::from_str::<FaultRule>(&text).map_err(|error| error.to_string())
    } else {
        text.parse::<FaultRule>().map_err(|error| error.to_string())
    };
    match (rule, controlled.machines.first()) {
        (Ok(rule), Some(machine)) => {
            controlled.faults.add(rule, machine.0.now());
            (StatusCode::CREATED, fault_rules_json(&controlled.faults))
        }
        (Ok(_), None) => (StatusCode::CONFLICT, json!({"error": "the fleet has no machines"})),
        (Err(error), _) => (StatusCode::BAD_REQUEST, json!({"error": error})),
    }
}

fn fault_rules_json(faults: &FaultRules) -> Value {
    let rules = faults.rules().into_iter();
    rules.map(|(rule, fired)| json!({"rule": rule, "applied": fired})).collect()
}

fn machine_json(machine: &SimulatedMachine) -> Value {
    let agent = machine.agent();
    machine.with_model(|state, now| {
        json!({
            "index": machine.index(),
            "url": machine.url(),
            "personality": state.personality().name,
            "power": state.power_state().name(),
            "booted": state.current_boot(),
            "running": state.running_software(),
            "disk": state.disk_image(),
            "steps": state.completed_steps(),
            "agent": agent.map(|agent| json!({"node": agent.node(), "heartbeats": agent.heartbeat_count()})),
            "virtual_media": state.inserted_media(),
            "bmc_reachable": state.bmc_is_reachable(now),
        })
    })
}
