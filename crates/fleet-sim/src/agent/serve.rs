// SPDX-License-Identifier: Apache-2.0
//! The commands API of agents: one listener for all, with the machine's number in front of the path.

use std::future::pending;
use std::sync::Arc;

use agent_protocol::{Command, CommandList, CommandReport, CommandStatus, Fault};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;

use super::work::{self, Order};
use super::{Agent, Site};
use crate::bmc::Bmc;
use crate::faults::End;
use crate::listener::{Closed, Outcome};

/// A config drive comes with the command that writes it.
const LARGEST_BODY: usize = 128 << 20;

/// The machines of a fleet, for their agents to be found.
pub(crate) struct Agents {
    pub(crate) bmcs: Vec<Arc<Bmc>>,
    pub(crate) site: Arc<Site>,
}

/// A request that is not for this agent as it is now.
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

/// Answers a request to an agent. Where there is none, nobody answers.
pub(crate) async fn handle(agents: Arc<Agents>, request: Request<Incoming>) -> Outcome {
    let (head, body) = request.into_parts();
    let mut path = head.uri.path().trim_start_matches('/').splitn(2, '/');
    let index = path.next().and_then(|index| index.parse::<usize>().ok());
    let Some(bmc) = index.and_then(|index| agents.bmcs.get(index)) else { return Err(Closed) };
    let rest = path.next().unwrap_or_default().trim_matches('/');
    let agent = bmc.agent().filter(|agent| agent.away(bmc.now()).is_none()).ok_or(Closed)?;
    let faulted = format!("/agent/{rest}");
    let verdict = bmc.shared.faults.verdict(bmc.index, head.method.as_str(), &faulted, bmc.now());
    if !verdict.delay.is_zero() {
        tokio::time::sleep(verdict.delay).await;
    }
    match verdict.end {
        None => {}
        Some(End::Hang) => return pending().await,
        Some(End::Drop | End::Restart(_)) => return Err(Closed),
        Some(End::Status { code, .. }) => return Ok(refused(&Refused::new(code, "as ruled"))),
    }
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Closed)?.to_bytes();
    match route(bmc, &agents.site, &agent, &head, rest, &body).await {
        Ok(answer) => Ok(answer),
        Err(Unanswered::Refused(why)) => Ok(refused(&why)),
        Err(Unanswered::Gone) => Err(Closed),
    }
}

/// Why there is no good answer.
enum Unanswered {
    Refused(Refused),
    /// The agent ended meanwhile.
    Gone,
}

impl From<Refused> for Unanswered {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

async fn route(
    bmc: &Arc<Bmc>,
    site: &Arc<Site>,
    agent: &Arc<Agent>,
    head: &Parts,
    rest: &str,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, Unanswered> {
    // Every path is there without the version, too.
    let path = rest.strip_prefix("v1").unwrap_or(rest).trim_matches('/');
    let query = head.uri.query().unwrap_or_default();
    let waits = value(query, "wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
    if path.starts_with("commands") {
        let memory = agent.memory();
        if memory.token.is_none() || value(query, "agent_token") != memory.token.as_deref() {
            return Err(Refused::new(StatusCode::UNAUTHORIZED, "Token invalid.").into());
        }
    }
    match (path, &head.method) {
        ("", &Method::GET) => Ok(answer(
            StatusCode::OK,
            &json!({"name": "OpenStack Ironic Python Agent API", "description": "simulated",
                "versions": [{"id": "v1"}], "default_version": {"id": "v1"}}),
        )),
        ("status", &Method::GET) => {
            let started_at =
                bmc.with(|machine, _| machine.booted().map(|boot| boot.at.0 / 1_000_000));
            Ok(answer(
                StatusCode::OK,
                &json!({"started_at": started_at, "version": super::VERSION}),
            ))
        }
        ("commands", &Method::GET) => {
            let commands = agent.memory().commands.clone();
            Ok(answer(StatusCode::OK, &CommandList { commands }))
        }
        ("commands", &Method::POST) => {
            let command: Command = serde_json::from_slice(body)
                .map_err(|error| Refused::new(StatusCode::BAD_REQUEST, error.to_string()))?;
            let order = Order::parse(command, site.config.is_ours)?;
            let waits = waits || !order.takes_time();
            let id = work::begin(bmc, site, agent, order)?;
            report(agent, &id, waits).await
        }
        (other, &Method::GET) => match other.strip_prefix("commands/") {
            Some(id) => report(agent, id, waits).await,
            None => Err(Refused::new(StatusCode::NOT_FOUND, "there is nothing here").into()),
        },
        (_, _) => Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "no such method here").into()),
    }
}

/// How far a command has come; at its end, if that is waited for.
async fn report(agent: &Agent, id: &str, waits: bool) -> Result<Response<Full<Bytes>>, Unanswered> {
    let mut news = agent.news.subscribe();
    loop {
        let ended = news.borrow_and_update().ended;
        let report = find(agent, id)?;
        if !waits || report.command_status != CommandStatus::Running {
            return Ok(answer(StatusCode::OK, &report));
        }
        if ended || news.changed().await.is_err() {
            return Err(Unanswered::Gone);
        }
    }
}

fn find(agent: &Agent, id: &str) -> Result<CommandReport, Refused> {
    let memory = agent.memory();
    let report = memory.commands.iter().find(|report| report.id == id);
    let missing = || Refused::new(StatusCode::NOT_FOUND, format!("there is no command {id}"));
    report.cloned().ok_or_else(missing)
}

/// A parameter of the query, as it is written: tokens and flags need no decoding.
fn value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|it| it.1)
}

fn answer(status: StatusCode, body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(body).expect("what agents say is JSON");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn refused(refused: &Refused) -> Response<Full<Bytes>> {
    let whose = if refused.status.is_client_error() { "Client" } else { "Server" };
    let fault = Fault { faultcode: whose.to_owned(), faultstring: refused.why.clone() };
    answer(refused.status, &fault)
}
