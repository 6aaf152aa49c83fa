// SPDX-License-Identifier: Apache-2.0
//! An agent's life against a server that says what Ironic says: lookup, heartbeats, commands over
//! TLS with the agent's own certificate, and the end.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent::init::Devices;
use agent::parameters::Parameters;
use agent::run::{Machine, run};
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

/// A server that knows one node, and tells the test what it hears.
struct FakeServer {
    url: String,
    heard: mpsc::UnboundedReceiver<(String, Value)>,
}

impl FakeServer {
    async fn start(token: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, heard) = mpsc::unbounded_channel();
        let busy = Arc::new(Mutex::new(true));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tell, busy) = (tell.clone(), Arc::clone(&busy));
                let service = service_fn(move |request| {
                    answer(request, token, tell.clone(), Arc::clone(&busy))
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { url, heard }
    }

    /// The next request to a path that begins so.
    async fn next(&mut self, prefix: &str) -> Value {
        loop {
            let heard = tokio::time::timeout(Duration::from_secs(30), self.heard.recv()).await;
            let (path, body) = heard.expect("nothing came in time").expect("the server lives");
            if path.starts_with(prefix) {
                return body;
            }
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    token: &str,
    tell: mpsc::UnboundedSender<(String, Value)>,
    busy: Arc<Mutex<bool>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path_and_query().unwrap().to_string();
    let version = request.headers().get("x-openstack-ironic-api-version").cloned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (status, said) = match path.split(['?', '/']).nth(2) {
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
            // The first finds the node locked, as happens with Ironic.
            let busy = std::mem::take(&mut *busy.lock().unwrap());
            (
                if busy { 409 } else { 202 },
                json!({"error_message": {"faultstring": "Node is locked"}}),
            )
        }
        Some("ferrite") => (202, json!({})),
        Some(_) => (404, json!({})),
    };
    tell.send((path, serde_json::from_slice(&body).unwrap_or_default())).unwrap();
    let mut answer = Response::new(Full::new(Bytes::from(said.to_string())));
    *answer.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
    Ok(answer)
}

fn parameters(url: &str) -> Parameters {
    Parameters::from_command_line(&format!(
        "ipa-api-url={url} ipa-listen-port=0 ipa-advertise-host=127.0.0.1 ipa-listen-host=127.0.0.1"
    ))
}

/// The agent's command API as a server sees it.
struct Commander {
    client: reqwest::Client,
    url: String,
}

impl Commander {
    /// Trusts the certificate of a heartbeat, and nothing else.
    fn of(heartbeat: &Value) -> Self {
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
        self.read(self.client.post(url).body(body)).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.read(self.client.get(format!("{}{path}", self.url))).await
    }

    async fn read(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
    }
}

#[tokio::test]
async fn an_agent_lives_with_a_server() {
    let mut server = FakeServer::start(TOKEN).await;
    let life = tokio::spawn(run(
        parameters(&server.url),
        Machine::Others,
        Devices::of_others(),
        Vec::new(),
    ));
    server.next("/v1/lookup?addresses=").await;
    let refused = server.next("/v1/heartbeat/").await;
    let heartbeat = server.next("/v1/heartbeat/").await;
    assert_eq!(refused, heartbeat, "a heartbeat the server did not take comes again");
    assert_eq!(heartbeat["agent_token"], TOKEN);
    let agent = Commander::of(&heartbeat);

    let (status, said) = agent.get("/v1/status").await;
    assert_eq!((status, &said["version"]), (200, &json!(agent::VERSION)));
    let (status, said) = agent.get("/v1/commands/?agent_token=wrong").await;
    assert_eq!((status, &said["faultcode"]), (401, &json!("Client")));
    let (status, _) = agent.get(&format!("/commands/?agent_token={TOKEN}")).await;
    assert_eq!(status, 200);

    let node = json!({"uuid": NODE, "driver_internal_info": {}});
    let (status, said) =
        agent.post("deploy.get_deploy_steps", json!({"node": node, "ports": []}), true).await;
    assert_eq!((status, &said["command_status"]), (200, &json!("SUCCEEDED")));
    let steps =
        said["command_result"]["deploy_steps"]["GenericHardwareManager"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["step"] == "write_image"));
    let versions = said["command_result"]["hardware_manager_version"].clone();
    assert_eq!(versions["ferrite"], agent::VERSION);

    let (status, said) = agent.post("nowhere.x", json!({}), false).await;
    assert_eq!((status, &said["faultcode"]), (404, &json!("Client")));
    for (name, params) in [
        ("standby", json!({})),
        ("standby.fly", json!({})),
        ("clean.execute_clean_step", json!({})),
    ] {
        assert_eq!(agent.post(name, params, false).await.0, 400, "{name}");
    }

    let order = json!({"node": node, "ports": [], "step": {"step": "fly"}, "clean_version": {"other": "1"}});
    let (_, said) = agent.post("clean.execute_clean_step", order, true).await;
    assert_eq!(said["command_status"], "CLEAN_VERSION_MISMATCH");
    server.next("/v1/heartbeat/").await;
    let order =
        json!({"node": node, "ports": [], "step": {"step": "fly"}, "clean_version": versions});
    let (_, said) = agent.post("clean.execute_clean_step", order, true).await;
    assert_eq!(said["command_status"], "FAILED");
    assert_eq!(said["command_error"]["type"], "CleaningError");
    server.next("/v1/heartbeat/").await;
    let order = json!({"node": node, "ports": [], "step": {"step": "erase_devices"}, "clean_version": versions});
    let (_, said) = agent.post("clean.execute_clean_step", order, true).await;
    assert_eq!(said["command_status"], "FAILED", "this is not its machine");

    let (_, said) = agent.post("log.collect_system_logs", json!({}), true).await;
    assert!(said["command_result"]["system_logs"].as_str().unwrap().len() > 100);
    let (_, said) = agent.get(&format!("/v1/commands/?agent_token={TOKEN}")).await;
    let names: Vec<_> = said["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["command_name"].clone())
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
    tokio::time::timeout(Duration::from_secs(30), life).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn what_an_agent_says_goes_home() {
    agent::logs::start(None, false);
    let mut server = FakeServer::start(TOKEN).await;
    let mut told = parameters(&server.url);
    let path = format!("/v1/ferrite/agents/{NODE}/log");
    told.insert("ferrite-log-url", &format!("{}{path}", server.url));
    let life = tokio::spawn(run(told, Machine::Others, Devices::of_others(), Vec::new()));
    let mut text = String::new();
    let mut expected = 0;
    // It begins with what was said before anybody knew the machine, and goes on from there.
    while !(text.contains("the agent starts") && text.contains("commands are taken")) {
        let sent = server.next(&path).await;
        assert_eq!((&sent["agent_token"], &sent["first"]), (&json!(TOKEN), &json!(expected)));
        for line in sent["lines"].as_array().unwrap() {
            text.push_str(line.as_str().unwrap());
            expected += 1;
        }
        assert!(!text.contains(TOKEN) && !text.contains('\n'), "{text}");
    }
    life.abort();
}

#[tokio::test]
async fn an_agent_whose_token_somebody_else_has_shuts_itself_off() {
    let mut server = FakeServer::start("******").await;
    run(parameters(&server.url), Machine::Others, Devices::of_others(), Vec::new()).await.unwrap();
    server.next("/v1/lookup").await;
    assert!(server.heard.try_recv().is_err(), "nothing was said after the lookup");
}
