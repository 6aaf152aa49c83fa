// SPDX-License-Identifier: Apache-2.0
//! The agent against a server that responds like Ironic: lookup, heartbeats, commands over TLS with the
//! agent's own certificate, log streaming and lockdown.

#![expect(clippy::unwrap_used, reason = "a failure fails the test")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::init::DeviceMonitor;
use agent::parameters::BootParameters;
use agent::run::{RunEnvironment, run};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const NODE: &str = "c2f5cbb5-a2e2-4f1f-8d0c-4f3ad1d1c5f3";
const TOKEN: &str = "a-token-of-more-than-thirty-two-characters";

/// A server with one node, which forwards all requests to the test.
struct FakeIronicServer {
    url: String,
    requests: mpsc::UnboundedReceiver<(String, Value)>,
}

impl FakeIronicServer {
    async fn start(token: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let busy = Arc::new(Mutex::new(true));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, busy) = (sender.clone(), Arc::clone(&busy));
                let service = service_fn(move |request| {
                    respond(request, token, sender.clone(), Arc::clone(&busy))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { url, requests }
    }

    /// Returns the body of the next request to a path with this prefix.
    async fn next(&mut self, prefix: &str) -> Value {
        loop {
            let request = tokio::time::timeout(Duration::from_secs(30), self.requests.recv()).await;
            let (path, body) = request.expect("no request in time").expect("server is running");
            if path.starts_with(prefix) {
                return body;
            }
        }
    }
}

async fn respond(
    request: Request<Incoming>,
    token: &str,
    sender: mpsc::UnboundedSender<(String, Value)>,
    busy: Arc<Mutex<bool>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let version = request.headers().get("x-openstack-ironic-api-version").cloned();
    let secret = request.headers().get(agent_protocol::BOOT_SECRET_HEADER);
    let secret = secret.map(|secret| secret.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if path.starts_with("/v1/lookup") {
        body = json!({ "boot_secret": secret });
    }
    let (status, response) = match path.split(['?', '/']).nth(2) {
        None => (200, json!({"default_version": {"version": "1.95"}})),
        Some("lookup") => {
            assert_eq!(version.unwrap(), "1.62");
            (
                200,
                json!({
                    "node": {"uuid": NODE, "driver_internal_info": {}},
                    "config": {"heartbeat_timeout": 300, "agent_token": token, "agent_token_required": true},
                }),
            )
        }
        Some("heartbeat") => {
            assert_eq!(version.unwrap(), "1.68");
            // The node is locked at first, as happens with Ironic.
            let busy = std::mem::take(&mut *busy.lock().unwrap());
            (
                if busy { 409 } else { 202 },
                json!({"error_message": {"faultstring": "Node is locked"}}),
            )
        }
        Some("ferrite") => (202, json!({})),
        Some(_) => (404, json!({})),
    };
    sender.send((path, body)).unwrap();
    let mut response = Response::new(Full::new(Bytes::from(response.to_string())));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
    Ok(response)
}

fn parameters(url: &str) -> BootParameters {
    BootParameters::from_command_line(&format!(
        "ipa-api-url={url} ipa-listen-port=0 ipa-advertise-host=127.0.0.1 ipa-listen-host=127.0.0.1"
    ))
}

/// A client of the agent's command API.
struct CommandApiClient {
    client: reqwest::Client,
    url: String,
}

impl CommandApiClient {
    /// Trusts only the certificate of the heartbeat.
    fn from_heartbeat(heartbeat: &Value) -> Self {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let pem = heartbeat["agent_verify_ca"].as_str().unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let client =
            reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build().unwrap();
        Self { client, url: heartbeat["callback_url"].as_str().unwrap().to_owned() }
    }

    async fn post(&self, name: &str, params: Value, wait: bool) -> (u16, Value) {
        let url = format!("{}/v1/commands/?wait={wait}&agent_token={TOKEN}", self.url);
        let body = json!({"name": name, "params": params}).to_string();
        self.send(self.client.post(url).body(body)).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.send(self.client.get(format!("{}{path}", self.url))).await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
    }
}

#[tokio::test]
async fn serves_commands_of_a_server() {
    let mut server = FakeIronicServer::start(TOKEN).await;
    let task = tokio::spawn(run(
        parameters(&server.url),
        RunEnvironment::HostProcess,
        DeviceMonitor::unmanaged(),
        Vec::new(),
    ));
    server.next("/v1/lookup?addresses=").await;
    let rejected = server.next("/v1/heartbeat/").await;
    let heartbeat = server.next("/v1/heartbeat/").await;
    assert_eq!(rejected, heartbeat, "a rejected heartbeat is repeated");
    assert_eq!(heartbeat["agent_token"], TOKEN);
    let agent = CommandApiClient::from_heartbeat(&heartbeat);

    let (status, response) = agent.get("/v1/status").await;
    assert_eq!((status, &response["version"]), (200, &json!(agent::VERSION)));
    let (status, response) = agent.get("/v1/commands/?agent_token=wrong").await;
    assert_eq!((status, &response["faultcode"]), (401, &json!("Client")));
    let (status, _) = agent.get(&format!("/commands/?agent_token={TOKEN}")).await;
    assert_eq!(status, 200);

    let node = json!({"uuid": NODE, "driver_internal_info": {}});
    let (status, response) =
        agent.post("deploy.get_deploy_steps", json!({"node": node, "ports": []}), true).await;
    assert_eq!((status, &response["command_status"]), (200, &json!("SUCCEEDED")));
    let steps =
        response["command_result"]["deploy_steps"]["GenericHardwareManager"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["step"] == "write_image"));
    let versions = response["command_result"]["hardware_manager_version"].clone();
    assert_eq!(versions["ferrite"], agent::VERSION);

    let (status, response) = agent.post("nowhere.x", json!({}), false).await;
    assert_eq!((status, &response["faultcode"]), (404, &json!("Client")));
    for (name, params) in [
        ("standby", json!({})),
        ("standby.fly", json!({})),
        ("clean.execute_clean_step", json!({})),
    ] {
        assert_eq!(agent.post(name, params, false).await.0, 400, "{name}");
    }

    let request = json!({"node": node, "ports": [], "step": {"step": "fly"}, "clean_version": {"other": "1"}});
    let (_, response) = agent.post("clean.execute_clean_step", request, true).await;
    assert_eq!(response["command_status"], "CLEAN_VERSION_MISMATCH");
    server.next("/v1/heartbeat/").await;
    let request =
        json!({"node": node, "ports": [], "step": {"step": "fly"}, "clean_version": versions});
    let (_, response) = agent.post("clean.execute_clean_step", request, true).await;
    assert_eq!(response["command_status"], "FAILED");
    assert_eq!(response["command_error"]["type"], "CleaningError");
    server.next("/v1/heartbeat/").await;
    let request = json!({"node": node, "ports": [], "step": {"step": "erase_devices"}, "clean_version": versions});
    let (_, response) = agent.post("clean.execute_clean_step", request, true).await;
    assert_eq!(response["command_status"], "FAILED", "a host process may not modify disks");

    let (_, response) = agent.post("log.collect_system_logs", json!({}), true).await;
    assert!(response["command_result"]["system_logs"].as_str().unwrap().len() > 100);
    let (_, response) = agent.get(&format!("/v1/commands/?agent_token={TOKEN}")).await;
    let names: Vec<_> = response["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["command_name"].clone())
        .collect();
    assert_eq!(
        names,
        [
            "get_deploy_steps",
            "execute_clean_step",
            "execute_clean_step",
            "execute_clean_step",
            "collect_system_logs"
        ]
    );

    let (status, _) = agent.post("system.lockdown", json!({}), true).await;
    assert_eq!(status, 200);
    tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn streams_log_lines_to_the_server() {
    agent::logs::start(None, false);
    let mut server = FakeIronicServer::start(TOKEN).await;
    let mut parameters = parameters(&server.url);
    let path = format!("/v1/ferrite/agents/{NODE}/log");
    parameters.insert("ferrite-log-url", &format!("{}{path}", server.url));
    let task = tokio::spawn(run(
        parameters,
        RunEnvironment::HostProcess,
        DeviceMonitor::unmanaged(),
        Vec::new(),
    ));
    let mut text = String::new();
    let mut expected = 0;
    // The stream starts with the lines before the lookup.
    while !(text.contains("agent started") && text.contains("command API started")) {
        let sent = server.next(&path).await;
        assert_eq!((&sent["agent_token"], &sent["first"]), (&json!(TOKEN), &json!(expected)));
        for line in sent["lines"].as_array().unwrap() {
            text.push_str(line.as_str().unwrap());
            expected += 1;
        }
        assert!(!text.contains(TOKEN) && !text.contains('\n'), "{text}");
    }
    task.abort();
}

#[tokio::test]
async fn locks_down_if_the_token_was_already_issued() {
    let mut server = FakeIronicServer::start("******").await;
    run(
        parameters(&server.url),
        RunEnvironment::HostProcess,
        DeviceMonitor::unmanaged(),
        Vec::new(),
    )
    .await
    .unwrap();
    server.next("/v1/lookup").await;
    assert!(server.requests.try_recv().is_err(), "no request after the lookup");
}

/// The token in the kernel parameters proves the boot: the server does not send it.
#[tokio::test]
async fn sends_the_token_of_the_kernel_parameters_with_the_lookup() {
    let mut server = FakeIronicServer::start("******").await;
    let mut parameters = parameters(&server.url);
    parameters.insert("ipa-agent-token", TOKEN);
    let devices = DeviceMonitor::unmanaged();
    let task = tokio::spawn(run(parameters, RunEnvironment::HostProcess, devices, Vec::new()));
    assert_eq!(server.next("/v1/lookup").await["boot_secret"], TOKEN);
    assert_eq!(server.next("/v1/heartbeat/").await["agent_token"], TOKEN);
    task.abort();
}

/// L5 of the security review: idle connections of other clients locked the server out.
#[tokio::test]
async fn idle_connections_do_not_lock_the_server_out() {
    let mut server = FakeIronicServer::start(TOKEN).await;
    let devices = DeviceMonitor::unmanaged();
    let parameters = parameters(&server.url);
    let task = tokio::spawn(run(parameters, RunEnvironment::HostProcess, devices, Vec::new()));
    let heartbeat = server.next("/v1/heartbeat/").await;
    let agent = CommandApiClient::from_heartbeat(&heartbeat);
    let address = agent.url.trim_start_matches("https://").to_owned();
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(tokio::net::TcpStream::connect(&address).await.unwrap());
    }
    let (status, _) = agent.get(&format!("/v1/commands/?agent_token={TOKEN}")).await;
    assert_eq!(status, 200);
    task.abort();
}
