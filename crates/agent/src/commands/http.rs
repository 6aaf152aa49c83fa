// SPDX-License-Identifier: Apache-2.0
//! The HTTP server of the command API, with the paths and responses of ironic-python-agent.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use agent_protocol::{AgentCommand, AgentFault, CommandList};
use bytes::Bytes;
use connection_limits::{ConnectionLimits, ConnectionSlot, ConnectionTable};
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
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::command_log::CommandFailure;
use super::extensions::{CommandExecution, RejectedCommand, execute_command};
use crate::VERSION;
use crate::agent::{AgentPhase, RamdiskAgent};

/// Commands may contain config drives in base64.
const MAX_COMMAND_SIZE: usize = 100 << 20;
/// More than a server needs; bounds memory. A new connection closes one that waits for a request, so
/// that clients without the token cannot lock the server out.
const CONNECTION_LIMITS: ConnectionLimits =
    ConnectionLimits { total: 64, reserved: 16, per_client: 16 };
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

type HttpResponse = Response<Full<Bytes>>;

/// The listening socket of the command API.
pub struct CommandListener {
    socket: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
}

impl CommandListener {
    /// Starts to listen, by default on all IPv4 and IPv6 addresses.
    ///
    /// # Errors
    /// If the port is in use.
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

    /// Returns the port, which the kernel chooses if 0 was given.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |address| address.port())
    }
}

/// Serves commands until the serving phase ends.
pub async fn serve(agent: Arc<RamdiskAgent>, listener: CommandListener) {
    let mut phase = agent.phase();
    let connections = ConnectionTable::new(CONNECTION_LIMITS);
    let acceptor = listener.tls.map(TlsAcceptor::from);
    loop {
        let accepted = tokio::select! {
            accepted = listener.socket.accept() => accepted,
            _ = phase.wait_for(|phase| *phase != AgentPhase::Serving) => return,
        };
        let Ok((stream, client)) = accepted else {
            // Out of file descriptors: wait until some are closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(slot) = connections.admit(client.ip(), Instant::now()) else { continue };
        let (agent, acceptor, slot) = (Arc::clone(&agent), acceptor.clone(), Arc::new(slot));
        tokio::spawn(async move {
            let closing = Arc::clone(&slot);
            tokio::select! {
                () = serve_client(agent, stream, acceptor, slot) => {}
                () = closing.closing() => tracing::debug!(%client, "connection closed for others"),
            }
        });
    }
}

async fn serve_client(
    agent: Arc<RamdiskAgent>,
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    slot: Arc<ConnectionSlot>,
) {
    match acceptor {
        None => serve_connection(agent, stream, false, slot).await,
        Some(acceptor) => {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => serve_connection(agent, stream, true, slot).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            }
        }
    }
}

async fn serve_connection(
    agent: Arc<RamdiskAgent>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    secure: bool,
    slot: Arc<ConnectionSlot>,
) {
    let service = service_fn(move |request| {
        let (agent, slot) = (Arc::clone(&agent), Arc::clone(&slot));
        async move {
            // False if the connection is being closed: then the response is not sent.
            let is_open = slot.start_work();
            let response = handle_request(&agent, request, secure, &slot).await;
            if is_open {
                slot.finish_work();
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(60))
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection failed");
    }
}

async fn handle_request(
    agent: &Arc<RamdiskAgent>,
    request: Request<Incoming>,
    secure: bool,
    slot: &ConnectionSlot,
) -> HttpResponse {
    let path = request.uri().path().to_owned();
    // The version prefix is optional.
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
            json_response(
                StatusCode::OK,
                &if versioned { version_root(&root) } else { root_page(&root) },
            )
        }
        (Method::GET, "/status") => {
            let started = agent.started_at.duration_since(SystemTime::UNIX_EPOCH);
            let started = started.map_or(0.0, |time| time.as_secs_f64());
            json_response(StatusCode::OK, &json!({"started_at": started, "version": VERSION}))
        }
        (_, rest) if rest == "/commands" || rest.starts_with("/commands/") => {
            let given = query_parameter(&query, "agent_token");
            if !token_matches(agent.token().as_deref(), given.as_deref()) {
                return fault_response(
                    StatusCode::UNAUTHORIZED,
                    "the agent token is missing or wrong",
                );
            }
            slot.mark_known(Instant::now());
            let id = rest.trim_start_matches("/commands").trim_matches('/').to_owned();
            handle_commands(agent, request, &id, &query).await
        }
        _ => fault_response(StatusCode::NOT_FOUND, "unknown path"),
    }
}

/// The paths that need the token.
async fn handle_commands(
    agent: &Arc<RamdiskAgent>,
    request: Request<Incoming>,
    id: &str,
    query: &str,
) -> HttpResponse {
    let wait = query_parameter(query, "wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
    match (request.method().clone(), id) {
        (Method::GET, "") => {
            json_response(StatusCode::OK, &CommandList { commands: agent.command_log.all() })
        }
        (Method::GET, id) => {
            let report = if wait {
                agent.command_log.wait_for_end(id).await
            } else {
                agent.command_log.get(id)
            };
            match report {
                Some(report) => json_response(StatusCode::OK, &report),
                None => fault_response(StatusCode::NOT_FOUND, &format!("unknown command id {id}")),
            }
        }
        (Method::POST, "") => {
            let body = match Limited::new(request.into_body(), MAX_COMMAND_SIZE).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    return fault_response(
                        StatusCode::PAYLOAD_TOO_LARGE,
                        &format!("cannot read the command: {error}"),
                    );
                }
            };
            match serde_json::from_slice(&body) {
                Ok(command) => {
                    drop(body);
                    run_command(agent, command, wait).await
                }
                Err(error) => fault_response(
                    StatusCode::BAD_REQUEST,
                    &format!("a command must be {{\"name\": string, \"params\": object}}: {error}"),
                ),
            }
        }
        _ => fault_response(StatusCode::METHOD_NOT_ALLOWED, "use GET or POST"),
    }
}

/// Records a command, starts it, and returns its report.
async fn run_command(agent: &Arc<RamdiskAgent>, command: AgentCommand, wait: bool) -> HttpResponse {
    let short =
        command.name.split_once('.').map_or(command.name.as_str(), |(_, name)| name).to_owned();
    tracing::info!(command = command.name, "command received");
    let id = match agent.command_log.begin(&short) {
        Ok(id) => id,
        Err(running) => {
            return fault_response(
                StatusCode::CONFLICT,
                &format!("Agent is busy: executing command {running}"),
            );
        }
    };
    // On a task of its own, so that it continues if the client disconnects, and a panic becomes an
    // error report.
    let started = tokio::spawn(start_command(Arc::clone(agent), id.clone(), short, command)).await;
    let rejection = match started {
        Ok(Ok(())) => None,
        Ok(Err(rejection)) => Some(rejection),
        Err(error) => {
            agent.command_log.end(&id, Err(task_failure(&error)));
            None
        }
    };
    if let Some(rejection) = rejection {
        agent.command_log.remove(&id);
        return match rejection {
            RejectedCommand::UnknownExtension(name) => {
                fault_response(StatusCode::NOT_FOUND, &format!("unknown extension {name}"))
            }
            RejectedCommand::Invalid(reason) => fault_response(StatusCode::BAD_REQUEST, &reason),
        };
    }
    let report =
        if wait { agent.command_log.wait_for_end(&id).await } else { agent.command_log.get(&id) };
    report.map_or_else(
        || fault_response(StatusCode::INTERNAL_SERVER_ERROR, "the command was lost"),
        |report| json_response(StatusCode::OK, &report),
    )
}

/// Executes a command, or starts an asynchronous one, and records its result.
async fn start_command(
    agent: Arc<RamdiskAgent>,
    id: String,
    name: String,
    command: AgentCommand,
) -> Result<(), RejectedCommand> {
    match execute_command(&agent, command).await? {
        CommandExecution::Finished(outcome) => {
            if let Err(error) = &outcome {
                tracing::error!(command = name, error = error.text(), "command failed");
            }
            agent.command_log.end(&id, outcome);
        }
        CommandExecution::Running(work) => {
            tokio::spawn(async move {
                let outcome =
                    tokio::spawn(work).await.unwrap_or_else(|error| Err(task_failure(&error)));
                match &outcome {
                    Ok(_) => tracing::info!(command = name, "command succeeded"),
                    Err(error) => {
                        tracing::error!(command = name, error = error.text(), "command failed");
                    }
                }
                agent.command_log.end(&id, outcome);
                agent.command_log.mark_async_end();
                agent.heartbeat_now.notify_one();
            });
        }
    }
    Ok(())
}

fn task_failure(error: &tokio::task::JoinError) -> CommandFailure {
    super::extensions::command_failure("CommandExecutionError", error.to_string())
}

/// Compares tokens in constant time.
fn token_matches(token: Option<&str>, given: Option<&str>) -> bool {
    let (Some(token), Some(given)) = (token, given) else { return false };
    let (token, given) = (token.as_bytes(), given.as_bytes());
    let difference = token.iter().zip(given).fold(0, |all, (one, other)| all | (one ^ other));
    token.len() == given.len() && difference == 0
}

/// Returns a decoded query parameter.
fn query_parameter(query: &str, name: &str) -> Option<String> {
    let url = reqwest::Url::parse(&format!("http://agent/?{query}")).ok()?;
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn version_links(root: &str) -> Value {
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
        "description": "Executes commands of the bare metal service on this machine",
        "versions": [version_links(root)],
        "default_version": version_links(root),
    })
}

fn version_root(root: &str) -> Value {
    let mut page = version_links(root);
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

fn fault_response(status: StatusCode, text: &str) -> HttpResponse {
    let side = if status.is_server_error() { "Server" } else { "Client" };
    let fault = AgentFault { faultcode: side.to_owned(), faultstring: text.to_owned() };
    json_response(status, &fault)
}

fn json_response(status: StatusCode, value: &impl Serialize) -> HttpResponse {
    let body = serde_json::to_vec(value).expect("serializable to JSON");
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
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
    use crate::managers::HardwareManagers;

    #[tokio::test]
    async fn command_continues_after_client_disconnects() {
        let agent = crate::testing::test_agent(HardwareManagers::new(Vec::new()));
        let node = json!({"node": {}, "ports": []});
        let command = json!({"name": "clean.get_clean_steps", "params": node});
        let command = serde_json::from_value(command).expect("valid command");
        {
            let mut call = pin!(run_command(&agent, command, true));
            let first = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(first.is_pending(), "the command ended too early");
        }
        let id = agent.command_log.all()[0].id.clone();
        let ended = agent.command_log.wait_for_end(&id).await.expect("known command");
        assert_ne!(ended.command_status, agent_protocol::CommandStatus::Running);
    }

    #[test]
    fn compares_complete_tokens() {
        assert!(token_matches(Some("abc"), Some("abc")));
        for wrong in [None, Some(""), Some("ab"), Some("abcd"), Some("abd")] {
            assert!(!token_matches(Some("abc"), wrong));
        }
        assert!(!token_matches(None, Some("")));
        assert!(!token_matches(None, None));
    }

    #[test]
    fn decodes_query_parameters() {
        let query = "wait=true&agent_token=a%2Bb%3D%zz&x";
        assert_eq!(query_parameter(query, "agent_token").as_deref(), Some("a+b=%zz"));
        assert_eq!(query_parameter(query, "x").as_deref(), Some(""));
        assert_eq!(query_parameter(query, "token"), None);
    }
}
