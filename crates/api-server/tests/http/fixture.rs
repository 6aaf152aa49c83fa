// SPDX-License-Identifier: Apache-2.0
//! A server on a free port with a few routes of its own, and a client that shows raw responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_server::{
    Access, ApiConfig, App, AppParts, Authenticator, BodyLimit, Call, Metrics, PAGE_ROUTES,
    Refusal, Reply, Route, Server, ServerHandle, TooOld, handler,
};
use conductor::{Conductor, DriverSettings, Registry};
use http::Method;
use node_model::{
    Actor, ConductorInfo, JsonObject, Node, NodeId, Stage, Step, Timestamp, Work, WorkKind,
};
use store::{Clock, Settings, Store};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The header line that asks for the newest version.
pub(crate) const LATEST: &str = "X-OpenStack-Ironic-API-Version: latest\r\n";
/// The tests' clock stands still.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);
/// Long enough for a loaded machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) static TEST_ROUTES: &[Route] = &[
    Route::get("/v1/probe/{name}", "Show the call", handler!(show)),
    Route::new(Method::POST, "/v1/probe/{name}", "Show the body's size", handler!(measure)),
    Route::new(Method::PUT, "/v1/probe/{name}", "Show a large body's size", handler!(measure))
        .body_limit(BodyLimit::Provision),
    Route::get("/v1/probe/{name}/panic", "Panic", handler!(panic)).access(Access::Public),
    Route::get("/v1/young", "Of version 1.50", handler!(show)).since(50),
    Route::new(Method::POST, "/v1/young", "Of version 1.50", handler!(show))
        .since(50)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::PUT, "/v1/young", "Of version 1.50", handler!(show))
        .since(50)
        .too_old(TooOld::NotAcceptable),
];

async fn show(call: Call) -> Result<Reply, Refusal> {
    let text = format!(
        "{} {:?} {:?} {} {:?}",
        call.version,
        call.param("name"),
        call.query,
        call.base_url,
        call.identity.name()
    );
    Ok(Reply::ok(serde_json::Value::from(text).to_string().into_bytes()))
}

async fn measure(call: Call) -> Result<Reply, Refusal> {
    Ok(Reply::ok(call.body.len().to_string().into_bytes()))
}

async fn panic(_call: Call) -> Result<Reply, Refusal> {
    panic!("a handler can be wrong")
}

/// A running server and what it needs to go on running.
pub(crate) struct Fixture {
    pub(crate) server: ServerHandle,
    pub(crate) store: Store,
    pub(crate) conductor: Conductor,
    data: TempDir,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut ApiConfig)) -> Self {
        let mut config = ApiConfig { listen: ([127, 0, 0, 1], 0).into(), ..ApiConfig::default() };
        change(&mut config);
        let (authenticator, _) = Authenticator::new(&config.auth).unwrap();
        let data = tempfile::tempdir().unwrap();
        let clock: Clock = Arc::new(|| NOW);
        let store = Store::open(&Settings::in_dir(data.path()), Arc::clone(&clock)).unwrap();
        let conductor = ConductorInfo {
            hostname: "conductor-1".to_owned(),
            run: None,
            conductor_group: String::new(),
            drivers: vec!["fake-hardware".to_owned()],
            created_at: NOW,
            updated_at: NOW,
            online: true,
        };
        store.write(move |writer| writer.heartbeat_conductor(&conductor)).await.unwrap();
        let resting = resting_conductor(store.clone(), Arc::clone(&clock));
        let app = App::new(AppParts {
            config,
            store: store.clone(),
            conductor: resting.clone(),
            clock,
            authenticator,
            metrics: Metrics::new(),
            boot: None,
            more_routes: PAGE_ROUTES.iter().copied().chain([TEST_ROUTES]).collect(),
        })
        .unwrap();
        let server = Server::bind(app).unwrap().spawn().unwrap();
        Self { server, store, conductor: resting, data }
    }

    /// What another process sees that opens the same database.
    pub(crate) fn open_again(&self) -> Store {
        Store::open(&Settings::in_dir(self.data.path()), Arc::new(|| NOW)).unwrap()
    }

    /// Stores a node, changed as `change` says.
    pub(crate) async fn node(&self, name: &str, change: impl FnOnce(&mut Node)) -> NodeId {
        let mut node = Node::new(NodeId::random(), "fake-hardware", NOW);
        node.name = Some(name.to_owned());
        change(&mut node);
        let id = node.id;
        self.store.write(move |writer| writer.insert(&node)).await.unwrap();
        id
    }

    /// Sends JSON at the newest version.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: serde_json::Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, LATEST, body.as_bytes()).await
    }

    /// Sends a request without a body.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> Response {
        self.send("GET", path, headers, b"").await
    }

    /// Sends a request on a connection of its own. `headers` are whole lines.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Response {
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
        Response::parse(&exchange(self.server.address(), &request).await)
    }
}

/// A job that is under way and waits for the agent.
pub(crate) fn waiting(kind: WorkKind, steps: Vec<Step>) -> Work {
    Work {
        id: NodeId::random().0,
        kind,
        stage: Stage::Run,
        steps,
        cursor: 0,
        awaiting: true,
        heard: false,
        requested_steps: Vec::new(),
        disable_ramdisk: false,
        started_at: NOW,
        since: NOW,
        asked_by: Actor::Conductor { hostname: "somewhere".to_owned() },
        notes: JsonObject::empty(),
        retry: None,
    }
}

/// A conductor over `store` with fake hardware that answers and does not work by itself.
pub(crate) fn resting_conductor(store: Store, clock: Clock) -> Conductor {
    Conductor::new(
        store,
        Registry::new(&DriverSettings::default(), std::sync::Arc::new(conductor::NoBootServices))
            .unwrap(),
        "conductor.example".to_owned(),
        // What is locked in a test stays locked: nobody has to wait to see that.
        conductor::Settings { node_locked_timeout: 0, ..conductor::Settings::default() },
        lifecycle::Settings::default(),
        inspection::Settings::default(),
        clock,
    )
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let talk = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may answer and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    tokio::time::timeout(PATIENCE, talk).await.expect("the server answers and closes")
}

/// A response, taken apart.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
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

    /// The message, whichever form the refusal has.
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

    /// `version minimum maximum`, as far as the headers are there.
    pub(crate) fn versions(&self) -> String {
        ["", "Minimum-", "Maximum-"]
            .map(|which| format!("X-OpenStack-Ironic-API-{which}Version"))
            .map(|name| self.header(&name).unwrap_or("-").to_owned())
            .join(" ")
    }
}
