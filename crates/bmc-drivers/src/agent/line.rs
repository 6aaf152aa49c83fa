// SPDX-License-Identifier: Apache-2.0
//! The line to an agent: one command over HTTP and what it says about it.
//!
//! An agent makes a certificate for itself and sends it with its first call, which only the holder
//! of the node's token can make. So that very certificate is what is trusted, and nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_protocol::{Command, CommandError, CommandList, CommandReport, CommandStatus, Fault};
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::settings::AgentSettings;
use super::trust;
use crate::{Error, Target};

/// The longest answer that is read: an archive of logs, and much air. Everything that an agent was
/// told comes with the archives it sent, and with the config drives of its steps.
const LONGEST_ANSWER: usize = 64 << 20;
/// The longest answer to what takes but a moment, except an archive: lists of steps are the longest.
const LONGEST_SHORT_ANSWER: usize = 1 << 20;
/// The most characters of an agent's words that are kept. They end up in the node's last error, in
/// its history and on its timeline.
const LONGEST_WORDS: usize = 4000;
/// The command whose answer is an archive.
pub(super) const COLLECT_LOGS: &str = "log.collect_system_logs";

/// Speaks to agents.
pub(super) struct AgentLine {
    plain: reqwest::Client,
    ca_file: Option<PathBuf>,
    timeout: Duration,
}

/// What became of a command that was sent.
pub(super) enum Sent {
    /// The agent took it.
    Report(Box<CommandReport>),
    /// It is busy with another.
    Busy(String),
}

/// What an agent is asked.
#[derive(Clone, Copy)]
enum Request<'a> {
    /// All it was told.
    List,
    /// What became of one command.
    One(&'a str),
    /// To carry out a command; whether the answer comes when it is over.
    Do(&'a Command, bool),
}

const LOOKING: &str = "ask the agent what it does";

impl AgentLine {
    pub(super) fn new(settings: &AgentSettings) -> Result<Self, reqwest::Error> {
        let timeout = Duration::from_secs(settings.command_timeout.max(1));
        Ok(Self { plain: builder(timeout).build()?, ca_file: settings.verify_ca.clone(), timeout })
    }

    /// Everything the agent was told since it started, oldest first.
    pub(super) async fn commands(&self, target: &Target<'_>) -> Result<Vec<CommandReport>, Error> {
        let (status, body) = self.exchange(target, LOOKING, Request::List).await?;
        if status != StatusCode::OK {
            return Err(refused(LOOKING, status, &body));
        }
        let list: CommandList = read(LOOKING, &body)?;
        Ok(list.commands.into_iter().map(in_short).collect())
    }

    /// How far one command has come; none if the agent was never told it.
    pub(super) async fn command(
        &self,
        target: &Target<'_>,
        id: &str,
    ) -> Result<Option<CommandReport>, Error> {
        let (status, body) = self.exchange(target, LOOKING, Request::One(id)).await?;
        match status {
            StatusCode::OK => Ok(Some(in_short(read(LOOKING, &body)?))),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(refused(LOOKING, status, &body)),
        }
    }

    /// Sends a command. With `wait` the answer comes when it is over.
    pub(super) async fn send(
        &self,
        target: &Target<'_>,
        command: &Command,
        wait: bool,
    ) -> Result<Sent, Error> {
        let what = format!("have the agent carry out {}", command.name);
        let (status, body) = self.exchange(target, &what, Request::Do(command, wait)).await?;
        if status == StatusCode::OK {
            return read(&what, &body).map(|report| Sent::Report(Box::new(in_short(report))));
        }
        let fault = fault(&body);
        if status == StatusCode::CONFLICT || fault.as_ref().is_some_and(Fault::is_busy) {
            let why = fault.map(|fault| fault.faultstring).unwrap_or_default();
            return Ok(Sent::Busy(why));
        }
        Err(refused(&what, status, &body))
    }

    /// Has the agent carry out what takes but a moment, and answers the result.
    pub(super) async fn ask(
        &self,
        target: &Target<'_>,
        name: &str,
        params: Map<String, Value>,
    ) -> Result<Value, Error> {
        let what = || format!("have the agent carry out {name}");
        match self.send(target, &Command { name: name.to_owned(), params }, true).await? {
            Sent::Report(report) if report.command_status == CommandStatus::Succeeded => {
                Ok(report.command_result.unwrap_or_default())
            }
            Sent::Report(report) => {
                let why = match &report.command_error {
                    Some(error) => error.text().to_owned(),
                    None => "it did not say why".to_owned(),
                };
                Err(Error::failed(what(), why))
            }
            // It is there and will have time: as good as not having answered yet.
            Sent::Busy(why) => Err(Error::AgentSilent {
                address: address(target).to_owned(),
                what: what(),
                source: Some(why.into()),
            }),
        }
    }

    /// One request and its answer, told to the timeline.
    async fn exchange(
        &self,
        target: &Target<'_>,
        what: &str,
        request: Request<'_>,
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let began = Instant::now();
        let done = self.request(target, what, request).await;
        if let Some(calls) = target.calls {
            let asked = match request {
                Request::List => "agent: GET commands".to_owned(),
                Request::One(id) => format!("agent: GET commands/{id}"),
                Request::Do(command, _) => match step_of(command) {
                    Some(step) => format!("agent: {} ({step})", command.name),
                    None => format!("agent: {}", command.name),
                },
            };
            let result = match &done {
                Ok((status, _)) => status.as_u16().to_string(),
                Err(Error::AgentSilent { .. }) => "no answer".to_owned(),
                Err(error) => error.to_string(),
            };
            calls.add(asked, result, began.elapsed());
        }
        done
    }

    async fn request(
        &self,
        target: &Target<'_>,
        what: &str,
        request: Request<'_>,
    ) -> Result<(StatusCode, Vec<u8>), Error> {
        let address = address(target);
        let client = self.client(target, what)?;
        let token = target.agent_token.map(|token| token.reveal().as_str()).unwrap_or_default();
        let one = if let Request::One(id) = request { id } else { "" };
        let url = format!("{}/v1/commands/{one}", address.trim_end_matches('/'));
        let mut url = reqwest::Url::parse(&url).map_err(|_| {
            Error::failed(what, format!("'{address}' is not where an agent can be"))
        })?;
        url.query_pairs_mut().append_pair("agent_token", token);
        let longest = match request {
            Request::Do(command, true) if command.name != COLLECT_LOGS => LONGEST_SHORT_ANSWER,
            Request::List | Request::One(_) | Request::Do(..) => LONGEST_ANSWER,
        };
        let request = match request {
            Request::List | Request::One(_) => client.get(url),
            Request::Do(command, wait) => {
                url.query_pairs_mut().append_pair("wait", if wait { "true" } else { "false" });
                client.post(url).json(command)
            }
        };
        let silent = |error: reqwest::Error| {
            // The URL has the token in it.
            let error = error.without_url();
            if trust::is_another_certificate(&error) {
                return restarted(what);
            }
            Error::AgentSilent {
                address: address.to_owned(),
                what: what.to_owned(),
                source: Some(error.into()),
            }
        };
        let mut answer = request.send().await.map_err(silent)?;
        let status = answer.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(restarted(what));
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(silent)? {
            if body.len() + chunk.len() > longest {
                return Err(Error::failed(what, "the agent's answer is too long to be one"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    fn client(&self, target: &Target<'_>, what: &str) -> Result<reqwest::Client, Error> {
        if !address(target).starts_with("https:") {
            return Ok(self.plain.clone());
        }
        let config = match &target.node.agent.verify_ca {
            Some(certificate) => trust::only(certificate),
            None => trust::authorities(self.ca_file.as_deref()),
        };
        let config = config.map_err(|why| Error::failed(what, why))?;
        let built = builder(self.timeout).tls_backend_preconfigured(config).build();
        built.map_err(|error| Error::failed(what, error.to_string()))
    }
}

impl std::fmt::Debug for AgentLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentLine").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Agents are near: no proxies, no redirects, and connections are not worth keeping between steps.
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
        .tls_backend_preconfigured(Arc::unwrap_or_clone(trust::nobody()))
}

/// Where the agent is; empty if none has called.
fn address<'a>(target: &Target<'a>) -> &'a str {
    target.node.agent.url.as_deref().unwrap_or_default()
}

/// The step that a command is about.
fn step_of(command: &Command) -> Option<&str> {
    command.params.get("step")?.get("step")?.as_str()
}

/// What answers is not the agent that we gave work to.
fn restarted(what: &str) -> Error {
    Error::failed(
        what,
        "another agent answers than the one that was given work: the machine was restarted in the \
         middle of it (a power cut, a crash, or somebody at its BMC); try the whole again",
    )
}

fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::failed(what, format!("its answer makes no sense: {error}")))
}

fn refused(what: &str, status: StatusCode, body: &[u8]) -> Error {
    let text = match fault(body) {
        Some(fault) => fault.faultstring,
        None => String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(),
    };
    Error::failed(what, format!("the agent answered {}: {text}", status.as_u16()))
}

/// What an agent says instead of an answer.
fn fault(body: &[u8]) -> Option<Fault> {
    let fault = serde_json::from_slice::<Fault>(body).ok()?;
    Some(Fault { faultstring: shortened(fault.faultstring), ..fault })
}

/// A report whose words are not longer than anybody reads.
fn in_short(mut report: CommandReport) -> CommandReport {
    report.command_error = report.command_error.map(|error| CommandError {
        kind: shortened(error.kind),
        code: error.code,
        message: error.message.map(shortened),
        details: error.details.map(shortened),
    });
    // Some agents put the reason here.
    if let Some(Value::String(words)) = &mut report.command_result {
        *words = shortened(std::mem::take(words));
    }
    report
}

/// The beginning, which says what failed, and the end, where programs say why.
fn shortened(words: String) -> String {
    let end = LONGEST_WORDS / 4;
    if words.len() <= LONGEST_WORDS || words.chars().count() <= LONGEST_WORDS {
        return words;
    }
    let place = |index: usize| words.char_indices().nth(index).map_or(words.len(), |(at, _)| at);
    let from = words.char_indices().rev().nth(end - 1).map_or(0, |(at, _)| at);
    format!("{} […] {}", &words[..place(LONGEST_WORDS - end)], &words[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_up_to_a_length() {
        let sayings = ["", "short", &"ä".repeat(LONGEST_WORDS)];
        for words in sayings {
            assert_eq!(shortened(words.to_owned()), words);
        }
        let long = format!("begins{}ends", "ä".repeat(1 << 20));
        let report = CommandReport {
            id: "1".to_owned(),
            command_name: "execute_deploy_step".to_owned(),
            command_status: CommandStatus::Failed,
            command_error: Some(CommandError { details: Some(long.clone()), ..Default::default() }),
            command_result: Some(Value::String(long.clone())),
        };
        let report = in_short(report);
        let kept = report.command_error.expect("it is there").text().to_owned();
        assert!(kept.starts_with("begins") && kept.ends_with("ends"), "{kept}");
        assert_eq!(kept.chars().count(), LONGEST_WORDS + " […] ".chars().count());
        assert_eq!(report.command_result, Some(Value::String(kept)));
        let body = serde_json::json!({"faultcode": "Server", "faultstring": long}).to_string();
        let error = refused("do it", StatusCode::INTERNAL_SERVER_ERROR, body.as_bytes());
        assert!(error.to_string().len() < 3 * LONGEST_WORDS, "{}", error.to_string().len());
    }
}
