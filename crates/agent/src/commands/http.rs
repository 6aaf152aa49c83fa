// SPDX-License-Identifier: Apache-2.0
//! The HTTP side of the command API, by ironic-python-agent's paths and answers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use agent_protocol::{Command, CommandList, Fault};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::extensions::{Refusal, Told, carry_out};
use super::journal::Failed;
use crate::VERSION;
use crate::agent::{Agent, Phase};

/// Config drives come inside commands, in base64.
const LARGEST_COMMAND: usize = 100 << 20;
/// More than a server needs, and little enough to stay small.
const MOST_CONNECTIONS: usize = 16;
const HANDSHAKE: Duration = Duration::from_secs(20);

type Answer = Response<Full<Bytes>>;

/// Where commands are taken.
pub struct Listener {
    socket: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl Listener {
    /// Starts listening, on all addresses of both kinds if none is given.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn open(
        host: Option<IpAddr>,
        port: u16,
        tls: Option<Arc<rustls::ServerConfig>>,
    ) -> std::io::Result<Self> {
        let host = host.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let socket = listen(SocketAddr::new(host, port)).or_else(|error| match host {
            // A kernel without IPv6.
            IpAddr::V6(any) if any.is_unspecified() => {
                listen(SocketAddr::from(([0, 0, 0, 0], port)))
            }
            IpAddr::V6(_) | IpAddr::V4(_) => Err(error),
        })?;
        Ok(Self { socket, tls })
    }

    /// The port, which the kernel chose if it was zero.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |address| address.port())
    }
}

/// Takes commands until the agent stops serving.
pub async fn serve(agent: Arc<Agent>, listener: Listener) {
    let mut phase = agent.phase();
    let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let acceptor = listener.tls.map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors; some will be closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (agent, acceptor) = (Arc::clone(&agent), acceptor.clone());
        tokio::spawn(async move {
            let secure = acceptor.is_some();
            match acceptor {
                None => talk(agent, stream, secure).await,
                Some(acceptor) => {
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        Ok(Ok(stream)) => talk(agent, stream, secure).await,
                        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                        Err(_) => tracing::debug!("a TLS handshake took too long"),
                    }
                }
            }
            drop(permit);
        });
    }
}

async fn talk(
    agent: Arc<Agent>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    secure: bool,
) {
    let service = service_fn(move |request| {
        let agent = Arc::clone(&agent);
        async move { Ok::<_, std::convert::Infallible>(answer(&agent, request, secure).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(agent: &Arc<Agent>, request: Request<Incoming>, secure: bool) -> Answer {
    let path = request.uri().path().to_owned();
    // The version may be left out.
    let rest = path.strip_prefix("/v1").filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let versioned = rest.is_some();
    let rest = rest.unwrap_or(&path);
    let query = request.uri().query().unwrap_or_default().to_owned();
    let method = request.method().clone();
    match (method, rest) {
        (Method::GET, "/" | "") => {
            let host = request.headers().get(HOST).and_then(|value| value.to_str().ok());
            let scheme = if secure { "https" } else { "http" };
            let root = format!("{scheme}://{}", host.unwrap_or("localhost"));
            as_json(StatusCode::OK, &if versioned { version_root(&root) } else { root_page(&root) })
        }
        (Method::GET, "/status") => {
            let started = agent.started_at.duration_since(SystemTime::UNIX_EPOCH);
            let started = started.map_or(0.0, |time| time.as_secs_f64());
            as_json(StatusCode::OK, &json!({"started_at": started, "version": VERSION}))
        }
        (_, rest) if rest == "/commands" || rest.starts_with("/commands/") => {
            let given = parameter(&query, "agent_token");
            if !may(agent.token().as_deref(), given.as_deref()) {
                return fault(StatusCode::UNAUTHORIZED, "the agent token is missing or wrong");
            }
            let id = rest.trim_start_matches("/commands").trim_matches('/').to_owned();
            commands(agent, request, &id, &query).await
        }
        _ => fault(StatusCode::NOT_FOUND, "there is nothing here"),
    }
}

/// The routes that need the token.
async fn commands(agent: &Arc<Agent>, request: Request<Incoming>, id: &str, query: &str) -> Answer {
    let wait = parameter(query, "wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
    match (request.method().clone(), id) {
        (Method::GET, "") => {
            as_json(StatusCode::OK, &CommandList { commands: agent.journal.all() })
        }
        (Method::GET, id) => {
            let report = if wait { agent.journal.ended(id).await } else { agent.journal.get(id) };
            match report {
                Some(report) => as_json(StatusCode::OK, &report),
                None => fault(StatusCode::NOT_FOUND, &format!("there is no command {id}")),
            }
        }
        (Method::POST, "") => {
            let body = match Limited::new(request.into_body(), LARGEST_COMMAND).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    return fault(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        &format!("the command cannot be read: {error}"),
                    );
                }
            };
            match serde_json::from_slice(&body) {
                Ok(command) => {
                    drop(body);
                    run(agent, command, wait).await
                }
                Err(error) => fault(
                    StatusCode::BAD_REQUEST,
                    &format!("a command is {{\"name\": text, \"params\": object}}: {error}"),
                ),
            }
        }
        _ => fault(StatusCode::METHOD_NOT_ALLOWED, "commands are posted"),
    }
}

/// Enters a command, starts it, and says what came of it so far.
async fn run(agent: &Arc<Agent>, command: Command, wait: bool) -> Answer {
    let short =
        command.name.split_once('.').map_or(command.name.as_str(), |(_, name)| name).to_owned();
    tracing::info!(command = command.name, "a command came");
    let id = match agent.journal.begin(&short) {
        Ok(id) => id,
        Err(running) => {
            return fault(
                StatusCode::CONFLICT,
                &format!("Agent is busy: executing command {running}"),
            );
        }
    };
    // A task of its own: whoever asked may hang up before it is over, and a panic is an answer
    // rather than silence.
    let started = tokio::spawn(start(Arc::clone(agent), id.clone(), short, command)).await;
    let refusal = match started {
        Ok(Ok(())) => None,
        Ok(Err(refusal)) => Some(refusal),
        Err(error) => {
            agent.journal.end(&id, Err(broke_off(&error)));
            None
        }
    };
    if let Some(refusal) = refusal {
        agent.journal.withdraw(&id);
        return match refusal {
            Refusal::UnknownExtension(name) => {
                fault(StatusCode::NOT_FOUND, &format!("there is no extension {name}"))
            }
            Refusal::Invalid(why) => fault(StatusCode::BAD_REQUEST, &why),
        };
    }
    let report = if wait { agent.journal.ended(&id).await } else { agent.journal.get(&id) };
    report.map_or_else(
        || fault(StatusCode::INTERNAL_SERVER_ERROR, "the command is lost"),
        |report| as_json(StatusCode::OK, &report),
    )
}

/// Carries a command out, or starts one that takes long, and enters how it ended.
async fn start(
    agent: Arc<Agent>,
    id: String,
    name: String,
    command: Command,
) -> Result<(), Refusal> {
    match carry_out(&agent, command).await? {
        Told::Now(outcome) => {
            if let Err(error) = &outcome {
                tracing::error!(command = name, error = error.text(), "a command failed");
            }
            agent.journal.end(&id, outcome);
        }
        Told::Later(work) => {
            tokio::spawn(async move {
                let outcome =
                    tokio::spawn(work).await.unwrap_or_else(|error| Err(broke_off(&error)));
                match &outcome {
                    Ok(_) => tracing::info!(command = name, "a command succeeded"),
                    Err(error) => {
                        tracing::error!(command = name, error = error.text(), "a command failed");
                    }
                }
                agent.journal.end(&id, outcome);
                agent.journal.note_ended();
                agent.beat.notify_one();
            });
        }
    }
    Ok(())
}

fn broke_off(error: &tokio::task::JoinError) -> Failed {
    super::extensions::failed("CommandExecutionError", error.to_string())
}

/// Whether the token that was given is the right one, found out in the same time for every wrong
/// one.
fn may(token: Option<&str>, given: Option<&str>) -> bool {
    let (Some(token), Some(given)) = (token, given) else { return false };
    let (token, given) = (token.as_bytes(), given.as_bytes());
    let difference = token.iter().zip(given).fold(0, |all, (one, other)| all | (one ^ other));
    token.len() == given.len() && difference == 0
}

/// A parameter of a query, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            (byte, _) => {
                bytes.push(if byte == b'+' { b' ' } else { byte });
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn version(root: &str) -> Value {
    json!({
        "id": "v1",
        "links": [
            {"href": format!("{root}/v1"), "rel": "self"},
            {"href": "https://docs.openstack.org/ironic-python-agent/", "rel": "describedby", "type": "text/html"},
        ],
    })
}

fn root_page(root: &str) -> Value {
    json!({
        "name": "Ferrite agent API",
        "description": "The agent that works on this machine for its bare metal service",
        "versions": [version(root)],
        "default_version": version(root),
    })
}

fn version_root(root: &str) -> Value {
    let mut page = version(root);
    let links = |name: &str| {
        json!([
            {"href": format!("{root}/v1/{name}"), "rel": "self"},
            {"href": format!("{root}/{name}"), "rel": "bookmark"},
        ])
    };
    page["commands"] = links("commands");
    page["status"] = links("status");
    page["media_types"] = json!([{
        "base": "application/json",
        "type": "application/vnd.openstack.ironic-python-agent.v1+json",
    }]);
    page
}

fn fault(status: StatusCode, text: &str) -> Answer {
    let side = if status.is_server_error() { "Server" } else { "Client" };
    let fault = Fault { faultcode: side.to_owned(), faultstring: text.to_owned() };
    as_json(status, &fault)
}

fn as_json(status: StatusCode, value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value).expect("names, numbers and texts are JSON");
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(64)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::managers::Managers;

    #[tokio::test]
    async fn a_command_goes_on_when_whoever_sent_it_hangs_up() {
        let agent = crate::testing::agent(Managers::of(Vec::new()));
        let node = json!({"node": {}, "ports": []});
        let command = json!({"name": "clean.get_clean_steps", "params": node});
        let command = serde_json::from_value(command).expect("a command");
        {
            let mut asked = pin!(run(&agent, command, true));
            let first = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(first.is_pending(), "it cannot be over yet");
        }
        let id = agent.journal.all()[0].id.clone();
        let ended = agent.journal.ended(&id).await.expect("it is known");
        assert_ne!(ended.command_status, agent_protocol::CommandStatus::Running);
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(may(Some("abc"), Some("abc")));
        for wrong in [None, Some(""), Some("ab"), Some("abcd"), Some("abd")] {
            assert!(!may(Some("abc"), wrong));
        }
        assert!(!may(None, Some("")));
        assert!(!may(None, None));
    }

    #[test]
    fn queries_are_decoded() {
        let query = "wait=true&agent_token=a%2Bb%3D%zz&x";
        assert_eq!(parameter(query, "agent_token").as_deref(), Some("a+b=%zz"));
        assert_eq!(parameter(query, "x").as_deref(), Some(""));
        assert_eq!(parameter(query, "token"), None);
    }
}
