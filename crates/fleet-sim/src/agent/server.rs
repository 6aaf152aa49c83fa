// SPDX-License-Identifier: Apache-2.0
//! The command API of agents: one listener for all. The token of a request identifies the machine.

use std::future::pending;
use std::sync::Arc;

use agent_protocol::{AgentCommand, AgentFault, CommandList, CommandReport, CommandStatus};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;

use super::commands::{self, SimulatedCommand};
use super::{AgentContext, SimulatedAgent};
use crate::faults::RequestTermination;
use crate::listener::{ConnectionClosed, HandlerResult};
use crate::simulated_bmc::SimulatedBmc;

/// Limit for request bodies; commands may contain a config drive.
const MAX_BODY_BYTES: usize = 128 << 20;

/// All machines of a fleet, to find their agents by token.
pub(crate) struct AgentDirectory {
    pub(crate) bmcs: Vec<Arc<SimulatedBmc>>,
    pub(crate) context: Arc<AgentContext>,
}

/// An error response to a request.
pub(super) struct CommandRejection {
    pub(super) status: StatusCode,
    pub(super) reason: String,
}

impl CommandRejection {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// Handles a request to an agent. Closes the connection if the machine with the token runs no agent.
pub(crate) async fn handle(
    agents: Arc<AgentDirectory>,
    request: Request<Incoming>,
) -> HandlerResult {
    let (head, body) = request.into_parts();
    let token = query_parameter(head.uri.query().unwrap_or_default(), "agent_token");
    let index = token.and_then(|token| agents.context.machine_with_token(token));
    let Some(bmc) = index.and_then(|index| agents.bmcs.get(usize::try_from(index).ok()?)) else {
        let rejection = CommandRejection::new(StatusCode::UNAUTHORIZED, "Token invalid.");
        return Ok(rejection_response(&rejection));
    };
    let rest = head.uri.path().trim_matches('/');
    let agent = bmc
        .agent()
        .filter(|agent| agent.network_down_for(bmc.now()).is_none())
        .ok_or(ConnectionClosed)?;
    let fault_path = format!("/agent/{rest}");
    let faults = bmc.fleet.faults.evaluate(bmc.index, head.method.as_str(), &fault_path, bmc.now());
    if !faults.delay.is_zero() {
        tokio::time::sleep(faults.delay).await;
    }
    match faults.termination {
        None => {}
        Some(RequestTermination::Hang) => return pending().await,
        Some(RequestTermination::Drop | RequestTermination::RestartBmc(_)) => {
            return Err(ConnectionClosed);
        }
        Some(RequestTermination::Status { code, .. }) => {
            return Ok(rejection_response(&CommandRejection::new(
                code,
                "injected by a fault rule",
            )));
        }
    }
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map_err(|_| ConnectionClosed)?
        .to_bytes();
    match route(bmc, &agents.context, &agent, &head, rest, &body).await {
        Ok(response) => Ok(response),
        Err(ServeError::Rejected(rejection)) => Ok(rejection_response(&rejection)),
        Err(ServeError::AgentEnded) => Err(ConnectionClosed),
    }
}

/// The reason why a request has no regular response.
enum ServeError {
    Rejected(CommandRejection),
    /// The agent ended while the request was waiting.
    AgentEnded,
}

impl From<CommandRejection> for ServeError {
    fn from(rejection: CommandRejection) -> Self {
        Self::Rejected(rejection)
    }
}

async fn route(
    bmc: &Arc<SimulatedBmc>,
    context: &Arc<AgentContext>,
    agent: &Arc<SimulatedAgent>,
    head: &Parts,
    rest: &str,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, ServeError> {
    // Every path also exists without the version.
    let path = rest.strip_prefix("v1").unwrap_or(rest).trim_matches('/');
    let query = head.uri.query().unwrap_or_default();
    let wait = query_parameter(query, "wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
    if path.starts_with("commands") {
        let state = agent.state();
        if state.token.is_none() || query_parameter(query, "agent_token") != state.token.as_deref()
        {
            return Err(CommandRejection::new(StatusCode::UNAUTHORIZED, "Token invalid.").into());
        }
    }
    match (path, &head.method) {
        ("", &Method::GET) => Ok(json_response(
            StatusCode::OK,
            &json!({"name": "OpenStack Ironic Python Agent API", "description": "simulated",
                "versions": [{"id": "v1"}], "default_version": {"id": "v1"}}),
        )),
        ("status", &Method::GET) => {
            let started_at = bmc
                .with_model(|machine, _| machine.current_boot().map(|boot| boot.at.0 / 1_000_000));
            Ok(json_response(
                StatusCode::OK,
                &json!({"started_at": started_at, "version": super::AGENT_VERSION}),
            ))
        }
        ("commands", &Method::GET) => {
            let commands = agent.state().commands.clone();
            Ok(json_response(StatusCode::OK, &CommandList { commands }))
        }
        ("commands", &Method::POST) => {
            let command: AgentCommand = serde_json::from_slice(body).map_err(|error| {
                CommandRejection::new(StatusCode::BAD_REQUEST, error.to_string())
            })?;
            let command = SimulatedCommand::parse(command, context.config.is_ferrite_agent)?;
            let wait = wait || !command.is_async();
            let id = commands::start_command(bmc, context, agent, command)?;
            command_response(agent, &id, wait).await
        }
        (other, &Method::GET) => match other.strip_prefix("commands/") {
            Some(id) => command_response(agent, id, wait).await,
            None => Err(CommandRejection::new(StatusCode::NOT_FOUND, "path not found").into()),
        },
        (_, _) => {
            Err(CommandRejection::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").into())
        }
    }
}

/// Returns the report of a command, with `wait` after the command has finished.
async fn command_response(
    agent: &SimulatedAgent,
    id: &str,
    wait: bool,
) -> Result<Response<Full<Bytes>>, ServeError> {
    let mut progress = agent.progress.subscribe();
    loop {
        let ended = progress.borrow_and_update().ended;
        let report = find_command(agent, id)?;
        if !wait || report.command_status != CommandStatus::Running {
            return Ok(json_response(StatusCode::OK, &report));
        }
        if ended || progress.changed().await.is_err() {
            return Err(ServeError::AgentEnded);
        }
    }
}

fn find_command(agent: &SimulatedAgent, id: &str) -> Result<CommandReport, CommandRejection> {
    let state = agent.state();
    let report = state.commands.iter().find(|report| report.id == id);
    let missing = || CommandRejection::new(StatusCode::NOT_FOUND, format!("unknown command {id}"));
    report.cloned().ok_or_else(missing)
}

/// Returns a query parameter without percent-decoding, which tokens and flags do not need.
fn query_parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|it| it.1)
}

fn json_response(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("agent responses serialise to JSON");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn rejection_response(rejection: &CommandRejection) -> Response<Full<Bytes>> {
    let faultcode = if rejection.status.is_client_error() { "Client" } else { "Server" };
    let fault =
        AgentFault { faultcode: faultcode.to_owned(), faultstring: rejection.reason.clone() };
    json_response(rejection.status, &fault)
}
