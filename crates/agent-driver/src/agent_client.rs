// SPDX-License-Identifier: Apache-2.0
//! HTTP client for agents: sends commands and returns their reports.
//!
//! An agent generates a certificate and sends it with its first heartbeat, which requires the node's
//! token. Only that certificate is trusted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_protocol::{
    AgentCommand, AgentCommandError, AgentFault, CommandList, CommandReport, CommandStatus,
};
use drivers::{DriverError, DriverTarget};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::agent_tls;
use super::settings::AgentSettings;

/// Limit of a response: a log archive and a margin. The list of commands contains the archives that
/// the agent sent and the config drives of its steps.
const MAX_RESPONSE_BYTES: usize = 64 << 20;
/// Limit of the response to a synchronous command other than log collection: a list of steps.
const MAX_SYNC_RESPONSE_BYTES: usize = 1 << 20;
/// Limit of an agent's error text, in characters. It is stored in the node's last error, history and
/// timeline.
const MAX_ERROR_CHARS: usize = 4000;
/// The command that returns a log archive.
pub(super) const COLLECT_LOGS: &str = "log.collect_system_logs";

/// Sends commands to agents.
pub(super) struct AgentClient {
    http_client: reqwest::Client,
    ca_file: Option<PathBuf>,
    timeout: Duration,
}

/// The reply to a command.
pub(super) enum AgentCommandReply {
    /// The agent accepted the command.
    Report(Box<CommandReport>),
    /// The agent runs another command.
    Busy(String),
}

/// A request to an agent.
#[derive(Clone, Copy)]
enum AgentRequest<'a> {
    /// Lists all commands.
    ListCommands,
    /// Returns the report of one command.
    GetCommand(&'a str),
    /// Runs a command; whether the response is sent when it ends.
    RunCommand(&'a AgentCommand, bool),
}

const QUERY_ACTION: &str = "query the commands of the agent";

impl AgentClient {
    pub(super) fn new(settings: &AgentSettings) -> Result<Self, reqwest::Error> {
        let timeout = Duration::from_secs(settings.command_timeout.max(1));
        Ok(Self {
            http_client: builder(timeout).build()?,
            ca_file: settings.verify_ca.clone(),
            timeout,
        })
    }

    /// All commands since the agent started, oldest first.
    pub(super) async fn commands(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Vec<CommandReport>, DriverError> {
        let (status, body) =
            self.exchange(target, QUERY_ACTION, AgentRequest::ListCommands).await?;
        if status != StatusCode::OK {
            return Err(request_failed(QUERY_ACTION, status, &body));
        }
        let list: CommandList = parse_response(QUERY_ACTION, &body)?;
        Ok(list.commands.into_iter().map(truncate_report).collect())
    }

    /// The report of one command; `None` if the agent does not know it.
    pub(super) async fn command(
        &self,
        target: &DriverTarget<'_>,
        id: &str,
    ) -> Result<Option<CommandReport>, DriverError> {
        let (status, body) =
            self.exchange(target, QUERY_ACTION, AgentRequest::GetCommand(id)).await?;
        match status {
            StatusCode::OK => Ok(Some(truncate_report(parse_response(QUERY_ACTION, &body)?))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(request_failed(QUERY_ACTION, status, &body)),
        }
    }

    /// Sends a command. With `wait` the response is sent when the command ends.
    pub(super) async fn send(
        &self,
        target: &DriverTarget<'_>,
        command: &AgentCommand,
        wait: bool,
    ) -> Result<AgentCommandReply, DriverError> {
        let what = format!("have the agent carry out {}", command.name);
        let (status, body) =
            self.exchange(target, &what, AgentRequest::RunCommand(command, wait)).await?;
        if status == StatusCode::OK {
            return parse_response(&what, &body)
                .map(|report| AgentCommandReply::Report(Box::new(truncate_report(report))));
        }
        let fault = parse_fault(&body);
        if status == StatusCode::CONFLICT || fault.as_ref().is_some_and(AgentFault::is_busy) {
            let why = fault.map(|fault| fault.faultstring).unwrap_or_default();
            return Ok(AgentCommandReply::Busy(why));
        }
        Err(request_failed(&what, status, &body))
    }

    /// Runs a short command and returns its result.
    pub(super) async fn run_sync(
        &self,
        target: &DriverTarget<'_>,
        name: &str,
        params: Map<String, Value>,
    ) -> Result<Value, DriverError> {
        let what = || format!("have the agent carry out {name}");
        match self.send(target, &AgentCommand { name: name.to_owned(), params }, true).await? {
            AgentCommandReply::Report(report)
                if report.command_status == CommandStatus::Succeeded =>
            {
                Ok(report.command_result.unwrap_or_default())
            }
            AgentCommandReply::Report(report) => {
                let why = match &report.command_error {
                    Some(error) => error.text().to_owned(),
                    None => "the agent reported no reason".to_owned(),
                };
                Err(DriverError::failed(what(), why))
            }
            // The agent runs and will accept commands later, so the error is transient.
            AgentCommandReply::Busy(why) => Err(DriverError::AgentUnreachable {
                address: address(target).to_owned(),
                what: what(),
                source: Some(why.into()),
            }),
        }
    }

    /// Sends a request and adds it to the call log.
    async fn exchange(
        &self,
        target: &DriverTarget<'_>,
        what: &str,
        request: AgentRequest<'_>,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let started = Instant::now();
        let response = self.request(target, what, request).await;
        if let Some(call_log) = target.call_log {
            let request_text = match request {
                AgentRequest::ListCommands => "agent: GET commands".to_owned(),
                AgentRequest::GetCommand(id) => format!("agent: GET commands/{id}"),
                AgentRequest::RunCommand(command, _) => match step_name(command) {
                    Some(step) => format!("agent: {} ({step})", command.name),
                    None => format!("agent: {}", command.name),
                },
            };
            let result = match &response {
                Ok((status, _)) => status.as_u16().to_string(),
                Err(DriverError::AgentUnreachable { .. }) => "no response".to_owned(),
                Err(error) => error.to_string(),
            };
            call_log.add(request_text, result, started.elapsed());
        }
        response
    }

    async fn request(
        &self,
        target: &DriverTarget<'_>,
        what: &str,
        request: AgentRequest<'_>,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let address = address(target);
        let client = self.client(target, what)?;
        let token = target.agent_token.map(|token| token.reveal().as_str()).unwrap_or_default();
        let command_id = if let AgentRequest::GetCommand(id) = request { id } else { "" };
        let url = format!("{}/v1/commands/{command_id}", address.trim_end_matches('/'));
        let mut url = reqwest::Url::parse(&url).map_err(|_| {
            DriverError::failed(what, format!("'{address}' is not a valid agent URL"))
        })?;
        url.query_pairs_mut().append_pair("agent_token", token);
        let max_bytes = match request {
            AgentRequest::RunCommand(command, true) if command.name != COLLECT_LOGS => {
                MAX_SYNC_RESPONSE_BYTES
            }
            AgentRequest::ListCommands
            | AgentRequest::GetCommand(_)
            | AgentRequest::RunCommand(..) => MAX_RESPONSE_BYTES,
        };
        let request = match request {
            AgentRequest::ListCommands | AgentRequest::GetCommand(_) => client.get(url),
            AgentRequest::RunCommand(command, wait) => {
                url.query_pairs_mut().append_pair("wait", if wait { "true" } else { "false" });
                client.post(url).json(command)
            }
        };
        let unreachable = |error: reqwest::Error| {
            // The URL contains the token.
            let error = error.without_url();
            if server_trust::is_pin_mismatch(&error) {
                return agent_restarted(what);
            }
            DriverError::AgentUnreachable {
                address: address.to_owned(),
                what: what.to_owned(),
                source: Some(error.into()),
            }
        };
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(agent_restarted(what));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > max_bytes {
                return Err(DriverError::failed(what, "the agent's response is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    fn client(
        &self,
        target: &DriverTarget<'_>,
        what: &str,
    ) -> Result<reqwest::Client, DriverError> {
        if !address(target).starts_with("https:") {
            return Ok(self.http_client.clone());
        }
        let certificate = target.node.agent.verify_ca.as_deref();
        let config = agent_tls::config(certificate, self.ca_file.as_deref());
        let config = config.map_err(|why| DriverError::failed(what, why))?;
        let built = builder(self.timeout).tls_backend_preconfigured(config).build();
        built.map_err(|error| DriverError::failed(what, error.to_string()))
    }
}

impl std::fmt::Debug for AgentClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentClient").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// No proxies and no redirects, because agents are on the local network; connections are not reused.
fn builder(timeout: Duration) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .tcp_nodelay(true)
        .http1_only()
        .pool_max_idle_per_host(0)
        .connect_timeout(timeout.min(Duration::from_secs(10)))
        .timeout(timeout)
        .tls_backend_preconfigured(Arc::unwrap_or_clone(agent_tls::no_tls()))
}

/// The agent's URL; empty if no agent sent a heartbeat.
fn address<'a>(target: &DriverTarget<'a>) -> &'a str {
    target.node.agent.url.as_deref().unwrap_or_default()
}

/// The name of the step that a command runs.
fn step_name(command: &AgentCommand) -> Option<&str> {
    command.params.get("step")?.get("step")?.as_str()
}

/// The error if another agent responds than the one that got the commands.
fn agent_restarted(what: &str) -> DriverError {
    DriverError::failed(
        what,
        "another agent responds: the machine was restarted during the job (a power failure, a crash, \
         or a reset through its BMC); retry the job",
    )
}

fn parse_response<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, DriverError> {
    serde_json::from_slice(body)
        .map_err(|error| DriverError::failed(what, format!("the response is invalid: {error}")))
}

fn request_failed(what: &str, status: StatusCode, body: &[u8]) -> DriverError {
    let text = match parse_fault(body) {
        Some(fault) => fault.faultstring,
        None => String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(),
    };
    DriverError::failed(
        what,
        format!("the agent responded with status {}: {text}", status.as_u16()),
    )
}

/// Parses an agent's error response.
fn parse_fault(body: &[u8]) -> Option<AgentFault> {
    let fault = serde_json::from_slice::<AgentFault>(body).ok()?;
    Some(AgentFault { faultstring: truncate_middle(fault.faultstring), ..fault })
}

/// Truncates the error texts of a report.
fn truncate_report(mut report: CommandReport) -> CommandReport {
    report.command_error = report.command_error.map(|error| AgentCommandError {
        kind: truncate_middle(error.kind),
        code: error.code,
        message: error.message.map(truncate_middle),
        details: error.details.map(truncate_middle),
    });
    // Some agents return the reason here.
    if let Some(Value::String(text)) = &mut report.command_result {
        *text = truncate_middle(std::mem::take(text));
    }
    report
}

/// Keeps the beginning, which names the failure, and the end, where programs print the reason.
fn truncate_middle(text: String) -> String {
    let tail = MAX_ERROR_CHARS / 4;
    if text.len() <= MAX_ERROR_CHARS || text.chars().count() <= MAX_ERROR_CHARS {
        return text;
    }
    let byte_offset =
        |index: usize| text.char_indices().nth(index).map_or(text.len(), |(at, _)| at);
    let from = text.char_indices().rev().nth(tail - 1).map_or(0, |(at, _)| at);
    format!("{} […] {}", &text[..byte_offset(MAX_ERROR_CHARS - tail)], &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_long_error_texts() {
        let texts = ["", "short", &"ä".repeat(MAX_ERROR_CHARS)];
        for text in texts {
            assert_eq!(truncate_middle(text.to_owned()), text);
        }
        let long = format!("begins{}ends", "ä".repeat(1 << 20));
        let report = CommandReport {
            id: "1".to_owned(),
            command_name: "execute_deploy_step".to_owned(),
            command_status: CommandStatus::Failed,
            command_error: Some(AgentCommandError {
                details: Some(long.clone()),
                ..Default::default()
            }),
            command_result: Some(Value::String(long.clone())),
        };
        let report = truncate_report(report);
        let truncated = report.command_error.expect("it is there").text().to_owned();
        assert!(truncated.starts_with("begins") && truncated.ends_with("ends"), "{truncated}");
        assert_eq!(truncated.chars().count(), MAX_ERROR_CHARS + " […] ".chars().count());
        assert_eq!(report.command_result, Some(Value::String(truncated)));
        let body = serde_json::json!({"faultcode": "Server", "faultstring": long}).to_string();
        let error = request_failed("do it", StatusCode::INTERNAL_SERVER_ERROR, body.as_bytes());
        assert!(error.to_string().len() < 3 * MAX_ERROR_CHARS, "{}", error.to_string().len());
    }
}
