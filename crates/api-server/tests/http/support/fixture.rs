// SPDX-License-Identifier: Apache-2.0
//! A server on a free port with additional test routes, and a client for raw requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_server::{
    ApiConfig, ApiError, ApiRequest, ApiResponse, ApiRoute, ApiServer, ApiServerHandle, App,
    AppParts, BodyLimit, Metrics, RouteAccess, TooOld, WEB_UI_ROUTES, handler,
};
use authentication::Authenticator;
use conductor::{Conductor, ConductorSettings};
use driver_set::{DriverSettings, build_registry};
use http::Method;
use node_model::{Actor, ConductorInfo, Node, NodeId, Stage, Step, Timestamp, Work, WorkKind};
use store::{Store, StoreClock, StoreSettings};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The header line for the newest version.
pub(crate) const LATEST: &str = "X-OpenStack-Ironic-API-Version: latest\r\n";
/// The constant time of the tests' clock.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);
/// Long enough for a loaded machine, short enough to detect a hang.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) static TEST_ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/probe/{name}", "Show the request", handler!(show)),
    ApiRoute::new(Method::POST, "/v1/probe/{name}", "Show the body's size", handler!(measure)),
    ApiRoute::new(Method::PUT, "/v1/probe/{name}", "Show a large body's size", handler!(measure))
        .body_limit(BodyLimit::Provision),
    ApiRoute::get("/v1/probe/{name}/panic", "Panic", handler!(panic)).access(RouteAccess::Public),
    ApiRoute::get("/v1/young", "Of version 1.50", handler!(show)).since(50),
    ApiRoute::new(Method::POST, "/v1/young", "Of version 1.50", handler!(show))
        .since(50)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(Method::PUT, "/v1/young", "Of version 1.50", handler!(show))
        .since(50)
        .too_old(TooOld::NotAcceptable),
];

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let text = format!(
        "{} {:?} {:?} {} {:?}",
        request.version,
        request.param("name"),
        request.query,
        request.base_url,
        request.caller.name()
    );
    Ok(ApiResponse::ok(serde_json::Value::from(text).to_string().into_bytes()))
}

async fn measure(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(request.body.len().to_string().into_bytes()))
}

async fn panic(_request: ApiRequest) -> Result<ApiResponse, ApiError> {
    panic!("test panic")
}

/// A running server with its database and conductor.
pub(crate) struct Fixture {
    pub(crate) server: ApiServerHandle,
    pub(crate) store: Store,
    pub(crate) conductor: Conductor,
    data: TempDir,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ApiConfig)) -> Self {
        Self::build(change, |_| {}).await
    }

    /// A server whose conductor has other settings.
    pub(crate) async fn with_conductor(change: impl FnOnce(&mut ConductorSettings)) -> Self {
        Self::build(|_| {}, change).await
    }

    async fn build(
        change: impl FnOnce(&mut ApiConfig),
        change_conductor: impl FnOnce(&mut ConductorSettings),
    ) -> Self {
        let mut config = ApiConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            allowed_hosts: ["api.example", "api", "x"].map(str::to_owned).to_vec(),
            ..ApiConfig::default()
        };
        change(&mut config);
        let data = tempfile::tempdir().unwrap();
        let clock: StoreClock = Arc::new(|| NOW);
        let store = Store::open_with_clock(&StoreSettings::in_dir(data.path()), Arc::clone(&clock))
            .unwrap();
        let (authenticator, _) =
            Authenticator::open(&config.auth, store.clone(), Arc::clone(&clock)).await.unwrap();
        let conductor = ConductorInfo {
            hostname: "conductor-1".to_owned(),
            run: None,
            version: None,
            conductor_group: String::new(),
            drivers: vec!["fake-hardware".to_owned()],
            created_at: NOW,
            updated_at: NOW,
            online: true,
        };
        store.write(move |writer| writer.record_conductor_heartbeat(&conductor)).await.unwrap();
        let mut settings = conductor_settings();
        change_conductor(&mut settings);
        let idle = conductor_with(settings, store.clone(), Arc::clone(&clock));
        let app = App::new(AppParts {
            config,
            store: store.clone(),
            storage: store::StorageMonitor::new(store.clone(), data.path().to_owned()),
            conductor: idle.clone(),
            clock,
            authenticator,
            policy: access_policy::Policy::with_overrides(None).unwrap(),
            metrics: Metrics::new(),
            boot: None,
            more_routes: WEB_UI_ROUTES.iter().copied().chain([TEST_ROUTES]).collect(),
        })
        .unwrap();
        let server = ApiServer::bind(app).unwrap().spawn().unwrap();
        Self { server, store, conductor: idle, data }
    }

    /// Opens the same database as another process would.
    pub(crate) fn open_again(&self) -> Store {
        Store::open_with_clock(&StoreSettings::in_dir(self.data.path()), Arc::new(|| NOW)).unwrap()
    }

    /// Inserts a node after applying `change`.
    pub(crate) async fn node(&self, name: &str, change: impl FnOnce(&mut Node)) -> NodeId {
        let mut node = Node::new(NodeId::random(), "fake-hardware", NOW);
        node.name = Some(name.to_owned());
        change(&mut node);
        let id = node.id;
        self.store.write(move |writer| writer.insert(&node)).await.unwrap();
        id
    }

    /// Sends a JSON request at the newest version.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: serde_json::Value,
    ) -> RawResponse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, LATEST, body.as_bytes()).await
    }

    /// Sends a request without a body.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> RawResponse {
        self.send("GET", path, headers, b"").await
    }

    /// Sends a request on a new connection. `headers` are complete lines.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> RawResponse {
        let length = if body.is_empty() && method == "GET" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: api.example:6385\r\n{length}{headers}Connection: close\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        RawResponse::parse(&exchange(self.server.address(), &request).await)
    }
}

/// A running job that waits for the agent.
pub(crate) fn waiting_work(kind: WorkKind, steps: Vec<Step>) -> Work {
    let requested_by = Actor::Conductor { hostname: "other-conductor".to_owned() };
    let work = Work::new(NodeId::random().0, kind, requested_by, NOW);
    Work { stage: Stage::Run, steps, awaiting: true, ..work }
}

/// A conductor with fake hardware that serves requests but is not started.
pub(crate) fn idle_conductor(store: Store, clock: StoreClock) -> Conductor {
    conductor_with(conductor_settings(), store, clock)
}

/// Agents of tests have no boot proof, and documentation addresses in their URLs. Locks in tests are
/// permanent: do not wait for them.
fn conductor_settings() -> ConductorSettings {
    ConductorSettings {
        node_locked_timeout: 0,
        agent_boot_proof: node_model::BootProof::None,
        check_agent_address: false,
        ..ConductorSettings::default()
    }
}

fn conductor_with(settings: ConductorSettings, store: Store, clock: StoreClock) -> Conductor {
    Conductor::new(conductor::ConductorParts {
        store,
        registry: build_registry(
            &DriverSettings::default(),
            std::sync::Arc::new(drivers::ExternalBootService),
        )
        .unwrap(),
        hostname: "conductor.example".to_owned(),
        settings,
        rules: lifecycle::LifecycleSettings::default(),
        inspection: inspection::InspectionSettings::default(),
        clock,
    })
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response).await;
        response
    };
    tokio::time::timeout(TIMEOUT, exchange).await.expect("the server responds and closes")
}

/// A parsed response.
#[derive(Debug)]
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawResponse {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The message of an error, in any of Ironic's formats.
    pub(crate) fn message(&self) -> String {
        let outer: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        let inner = match outer["error_message"].as_str() {
            Some(text) => serde_json::from_str(text).unwrap_or_default(),
            None => outer,
        };
        [&inner["faultstring"], &inner["description"], &inner["error"]["message"]]
            .iter()
            .find_map(|text| text.as_str())
            .unwrap_or_default()
            .to_owned()
    }

    /// `version minimum maximum`; `-` for missing headers.
    pub(crate) fn versions(&self) -> String {
        ["", "Minimum-", "Maximum-"]
            .map(|which| format!("X-OpenStack-Ironic-API-{which}Version"))
            .map(|name| self.header(&name).unwrap_or("-").to_owned())
            .join(" ")
    }
}
