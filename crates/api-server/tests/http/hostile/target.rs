// SPDX-License-Identifier: Apache-2.0
//! The server that is thrown at: one of everything stored, every route known from the crate's own
//! table, and a client that hears an answer even while it is still talking.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_server::{ApiConfig, openapi};
use node_model::{
    Allocation, AllocationState, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup,
    ProvisionState, Runbook, VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value, json};
use store::{Query, Reader, Writer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::examples::{example_of, segment_of};
use crate::fixture::{Fixture, LATEST, Response};

/// Long enough for a loaded machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one request is made of.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Whole lines.
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
}

/// How the end of a body is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    Length,
    Chunks,
}

impl Request {
    /// At the newest version.
    pub(crate) fn new(method: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: LATEST.into(),
            body: body.into(),
            framing: Framing::Length,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: api\r\n", self.method, self.path);
        match self.framing {
            Framing::Length => {
                let _ = write!(bytes, "Content-Length: {}\r\n", self.body.len());
            }
            Framing::Chunks => bytes.push_str("Transfer-Encoding: chunked\r\n"),
        }
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(b"Connection: close\r\n");
        bytes.extend_from_slice(&self.headers);
        bytes.extend_from_slice(b"\r\n");
        match self.framing {
            Framing::Length => bytes.extend_from_slice(&self.body),
            Framing::Chunks => {
                for chunk in self.body.chunks(10_000) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
        }
        bytes
    }

    fn summary(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let body: String = body.chars().take(300).collect();
        let headers = String::from_utf8_lossy(&self.headers);
        format!("{} {} [{}] {body}", self.method, self.path, headers.trim())
    }
}

/// A route of the table, as the document tells of it.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) method: String,
    /// With `{names}`.
    pub(crate) template: String,
    /// The names of the parameters of its query.
    pub(crate) query: Vec<String>,
    /// The schema of its body, if the document has one.
    pub(crate) schema: Option<String>,
}

impl Route {
    /// Its path, leading to what is stored.
    pub(crate) fn path(&self) -> String {
        self.path_with(|name| segment_of(name).to_owned())
    }

    /// Its path with each `{name}` replaced.
    pub(crate) fn path_with(&self, segment: impl Fn(&str) -> String) -> String {
        let segments = self.template.split('/').map(|part| {
            match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(name) => segment(name),
                None => part.to_owned(),
            }
        });
        segments.collect::<Vec<_>>().join("/")
    }

    /// The names of its variable segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.template.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// A body it takes; none if it takes no body.
    pub(crate) fn example(&self) -> Option<Value> {
        example_of(&self.method, &self.template)
    }

    pub(crate) fn request(&self, body: impl Into<Vec<u8>>) -> Request {
        // Without a method in the query, nobody would look at the body.
        let query = match self.template.ends_with("/vendor_passthru") {
            true => format!("?method={}", segment_of("method")),
            false => String::new(),
        };
        Request::new(&self.method, &format!("{}{query}", self.path()), body)
    }
}

/// The server, what it keeps, and what it kept before the last request.
pub(crate) struct Target {
    runtime: Runtime,
    api: Fixture,
    pub(crate) routes: Vec<Route>,
    document: Value,
    stored: Arc<Everything>,
    seen: RefCell<String>,
}

impl Target {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ApiConfig)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let document = openapi();
        let routes = routes(&document);
        let (api, stored) = runtime.block_on(async {
            let api = Fixture::with(change).await;
            fill(&api, &routes).await;
            let stored = quiet(&api).await;
            (api, Arc::new(stored))
        });
        let target =
            Self { runtime, api, routes, document, stored, seen: RefCell::new(String::new()) };
        target.seen.replace(target.dump());
        target
    }

    /// The routes whose bodies mean something.
    pub(crate) fn with_bodies(&self) -> impl Iterator<Item = (&Route, Value)> {
        self.routes.iter().filter_map(|route| Some((route, route.example()?)))
    }

    /// The fields of a schema of the document.
    pub(crate) fn fields(&self, schema: &str) -> &Map<String, Value> {
        let found = &self.document["components"]["schemas"][schema]["properties"];
        found.as_object().expect("the schema has properties")
    }

    /// Sends one request and checks what holds for all of them: it is answered, not with a failure
    /// of the server, and what is refused says why and leaves no trace.
    pub(crate) fn check(&self, request: &Request) -> Result<Response, String> {
        let address = self.api.server.address();
        let bytes = request.bytes();
        let answer = self.runtime.block_on(async {
            let talk = talk(address, &bytes);
            tokio::time::timeout(PATIENCE, talk).await.unwrap_or(Err("no answer in time".into()))
        });
        let wrong = |what: String| format!("{what}: {}", request.summary());
        let response = answer.map_err(wrong)?;
        let now = self.dump();
        let changed = *self.seen.borrow() != now;
        if changed {
            self.restore();
        }
        match response.status {
            200..300 => Ok(response),
            400..500 if changed => {
                Err(wrong(format!("refused with {} and stored something", response.status)))
            }
            400..500 if request.method != "HEAD" && words(&response).is_empty() => {
                Err(wrong(format!("refused without a reason: {}", response.body)))
            }
            400..500 => Ok(response),
            status => Err(wrong(format!("{status} {}", response.body))),
        }
    }

    /// Sends a request that must be refused with 400 in words that name `field`.
    pub(crate) fn refused_for(&self, field: &str, request: &Request) -> Result<(), String> {
        let response = self.check(request)?;
        let words = words(&response);
        if !(400..500).contains(&response.status) {
            return Err(format!("{} instead of a refusal: {}", response.status, request.summary()));
        }
        if words.contains(field) {
            return Ok(());
        }
        Err(format!("{} does not name {field}: {words}: {}", response.status, request.summary()))
    }

    fn dump(&self) -> String {
        let stored = self.runtime.block_on(quiet(&self.api));
        let journal = *self.api.store.journal_position().borrow();
        format!("{journal} {stored:?}")
    }

    fn restore(&self) {
        let stored = Arc::clone(&self.stored);
        let write = self.api.store.write(move |writer| {
            Everything::clear(writer)?;
            stored.insert(writer)
        });
        self.runtime.block_on(write).unwrap();
        self.seen.replace(self.dump());
    }
}

/// Collects what went wrong, so that one run tells everything.
#[derive(Default)]
pub(crate) struct Failures(Vec<String>);

impl Failures {
    pub(crate) fn note<T>(&mut self, outcome: Result<T, String>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(problem) => {
                self.0.push(problem);
                None
            }
        }
    }

    pub(crate) fn assert_none(&self) {
        let shown: Vec<&str> = self.0.iter().take(60).map(String::as_str).collect();
        assert!(self.0.is_empty(), "{} failures:\n{}", self.0.len(), shown.join("\n"));
    }
}

/// Why a request was refused, whichever form the refusal has.
pub(crate) fn words(response: &Response) -> String {
    let message = response.message();
    if !message.is_empty() {
        return message;
    }
    // The router says what Ironic's says: nothing but the title.
    let inner = response.json()["error_message"].as_str().map(serde_json::from_str::<Value>);
    inner.and_then(|inner| Some(inner.ok()?["title"].as_str()?.to_owned())).unwrap_or_default()
}

macro_rules! everything {
    ($($kinds:ident: $kind:ty;)*) => {
        /// Every record.
        #[derive(Debug)]
        struct Everything { $($kinds: Vec<$kind>,)* }

        impl Everything {
            fn read(reader: &mut Reader<'_>) -> Result<Self, store::Error> {
                Ok(Self { $($kinds: reader.collect(&Query::<$kind>::default())?,)* })
            }

            /// Adds all records: those that others refer to come first.
            fn insert(&self, writer: &mut Writer<'_>) -> Result<(), store::Error> {
                $(for record in &self.$kinds { writer.insert(record)?; })*
                Ok(())
            }

            fn clear(writer: &mut Writer<'_>) -> Result<(), store::Error> {
                // Removing a node removes what is in it.
                for node in writer.collect(&Query::<Node>::default())? {
                    writer.delete(node.id)?;
                }
                $(for record in writer.collect(&Query::<$kind>::default())? {
                    writer.delete(record.id)?;
                })*
                Ok(())
            }
        }
    };
}

everything! {
    chassis: Chassis;
    nodes: Node;
    portgroups: Portgroup;
    ports: Port;
    connectors: VolumeConnector;
    targets: VolumeTarget;
    allocations: Allocation;
    templates: DeployTemplate;
    runbooks: Runbook;
    rules: InspectionRule;
}

fn routes(document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().unwrap();
    let mut routes = Vec::new();
    for (template, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_query = parameters.filter(|parameter| parameter["in"] == "query");
            let query = in_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned());
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let schema = body.as_str().and_then(|place| Some(place.rsplit_once('/')?.1.to_owned()));
            routes.push(Route {
                method: method.to_ascii_uppercase(),
                template: template.clone(),
                query: query.collect(),
                schema,
            });
        }
    }
    assert!(routes.len() > 100, "the document has the routes");
    routes
}

/// Stores one of everything, by the API, under the ids that paths lead to.
async fn fill(api: &Fixture, routes: &[Route]) {
    let another = |node: &mut Node| node.provision_state = ProvisionState::Enroll;
    api.node("another", another).await;
    for collection in [
        "/v1/chassis",
        "/v1/nodes",
        "/v1/portgroups",
        "/v1/ports",
        "/v1/volume/connectors",
        "/v1/volume/targets",
        "/v1/deploy_templates",
        "/v1/runbooks",
        "/v1/inspection_rules",
        "/v1/allocations",
    ] {
        let one = routes.iter().find(|route| {
            let inner = route.template.strip_prefix(collection);
            inner.is_some_and(|rest| rest.starts_with("/{") && rest.matches('/').count() == 1)
        });
        let name = one.unwrap().segments().next().unwrap();
        let mut body = example_of("POST", collection).unwrap();
        let ident = segment_of(name);
        let key = if uuid::Uuid::try_parse(ident).is_ok() { "uuid" } else { "name" };
        // What must be unique is left for the tests to use.
        for (field, value) in [
            ("name", json!("CUSTOM_STORED")),
            ("address", json!("52:54:00:00:00:99")),
            ("connector_id", json!("stored")),
            ("boot_index", json!(7)),
        ] {
            if !body[field].is_null() {
                body[field] = value;
            }
        }
        body[key] = json!(ident);
        let response = api.ask("POST", collection, body).await;
        assert_eq!(response.status, 201, "{collection}: {}", response.message());
    }
}

/// Everything stored, once no allocation looks for a machine any more.
async fn quiet(api: &Fixture) -> Everything {
    loop {
        let stored = api.store.read(Everything::read).await.unwrap();
        if stored.allocations.iter().all(|one| one.state != AllocationState::Allocating) {
            return stored;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sends while it listens, so that an answer before the end of the request is heard.
async fn talk(address: SocketAddr, bytes: &[u8]) -> Result<Response, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (read, mut write) = stream.into_split();
    let sending = async {
        let _ = write.write_all(bytes).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = hear(read) => answer,
        () = sending => Err("sending never ends".to_owned()),
    }
}

async fn hear(mut read: impl AsyncRead + Unpin) -> Result<Response, String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\r\n\r\n") {
            let response = Response::parse(&bytes);
            let endless = response.header("content-type") == Some("text/event-stream");
            if endless && response.status == 200 {
                return Ok(response);
            }
        }
        match read.read_buf(&mut bytes).await {
            Ok(0) if bytes.is_empty() => return Err("no answer".to_owned()),
            Ok(0) => return Ok(Response::parse(&bytes)),
            Ok(_) => {}
            Err(error) => return Err(format!("{error} after {} bytes", bytes.len())),
        }
    }
}
