// SPDX-License-Identifier: Apache-2.0
//! A small HTTP endpoint to look at a fleet and to make things go wrong while it runs.
//!
//! `GET /machines` and `GET /machines/7` show, `GET /faults` lists rules, `POST /faults` adds one
//! (as a JSON object, or as one line of text), `DELETE /faults` removes all. Who reaches it may do
//! all that: it is for the machine the simulation runs on.

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
use crate::fleet::Fleet;
use crate::listener::{self, Closed, Outcome};
use crate::{Faults, SimulatedMachine};

const LARGEST_BODY: usize = 64 * 1024;

/// The running endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct Control {
    address: SocketAddr,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("the control endpoint cannot listen on {address}")]
pub struct ControlError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

struct Subject {
    machines: Vec<SimulatedMachine>,
    faults: Faults,
}

impl Control {
    /// Starts the endpoint of a fleet.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(address: SocketAddr, fleet: &Fleet) -> Result<Self, ControlError> {
        let failed = |source| ControlError { address, source };
        let listener = listener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let subject = Arc::new(Subject {
            machines: fleet.machines().collect(),
            faults: fleet.faults().clone(),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listener::run(listener, None, stopped, move |request| {
            handle(Arc::clone(&subject), request)
        }));
        Ok(Self { address, task, _stop: stop })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(subject: Arc<Subject>, request: Request<Incoming>) -> Outcome {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Closed)?.to_bytes();
    let path = head.uri.path().trim_end_matches('/');
    let (status, body) = match (path, &head.method) {
        ("/machines", &Method::GET) => {
            (StatusCode::OK, Value::Array(subject.machines.iter().map(describe).collect()))
        }
        ("/faults", &Method::GET) => (StatusCode::OK, rules(&subject.faults)),
        ("/faults", &Method::POST) => add(&subject, &body),
        ("/faults", &Method::DELETE) => {
            subject.faults.clear();
            (StatusCode::OK, rules(&subject.faults))
        }
        (other, &Method::GET) => one(&subject, other),
        (_, _) => (StatusCode::METHOD_NOT_ALLOWED, json!({"error": "no such method here"})),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

fn one(subject: &Subject, path: &str) -> (StatusCode, Value) {
    let index = path.strip_prefix("/machines/").and_then(|index| index.parse::<usize>().ok());
    match index.and_then(|index| subject.machines.get(index)) {
        Some(machine) => (StatusCode::OK, describe(machine)),
        None => (
            StatusCode::NOT_FOUND,
            json!({"error": "there are /machines, /machines/NUMBER and /faults"}),
        ),
    }
}

fn add(subject: &Subject, body: &[u8]) -> (StatusCode, Value) {
    let text = String::from_utf8_lossy(body);
    let rule = if text.trim_start().starts_with('{') {
        serde_json::from_str::<FaultRule>(&text).map_err(|error| error.to_string())
    } else {
        text.parse::<FaultRule>().map_err(|error| error.to_string())
    };
    match (rule, subject.machines.first()) {
        (Ok(rule), Some(machine)) => {
            subject.faults.add(rule, machine.0.now());
            (StatusCode::CREATED, rules(&subject.faults))
        }
        (Ok(_), None) => (StatusCode::CONFLICT, json!({"error": "there are no machines"})),
        (Err(error), _) => (StatusCode::BAD_REQUEST, json!({"error": error})),
    }
}

fn rules(faults: &Faults) -> Value {
    let rules = faults.rules().into_iter();
    rules.map(|(rule, struck)| json!({"rule": rule, "struck": struck})).collect()
}

fn describe(machine: &SimulatedMachine) -> Value {
    let agent = machine.agent();
    machine.with(|state, now| {
        json!({
            "index": machine.index(),
            "url": machine.url(),
            "personality": state.personality().name,
            "power": state.power_state().name(),
            "booted": state.booted(),
            "runs": state.runs(),
            "disk": state.disk(),
            "steps": state.all_carried_out(),
            "agent": agent.map(|agent| json!({"node": agent.node(), "heartbeats": agent.heartbeats()})),
            "virtual_media": state.media(),
            "bmc_answers": state.bmc_answers(now),
        })
    })
}
