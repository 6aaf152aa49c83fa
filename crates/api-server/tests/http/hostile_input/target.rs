// SPDX-License-Identifier: Apache-2.0
//! The server under test with one record of every resource, all routes from the OpenAPI document, and a
//! client that receives a response while it is still sending.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api_server::{ApiConfig, openapi};
use node_model::{
    Allocation, AllocationState, ApiToken, Chassis, DeployTemplate, Deployment, InspectionRule,
    Node, Port, Portgroup, Project, ProjectQuota, ProvisionState, Runbook, UserAccount,
    VolumeConnector, VolumeTarget,
};
use serde_json::{Map, Value, json};
use store::{ResourceQuery, StoreError, StoreReader, StoreWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::examples::{example_body, path_param};
use crate::support::fixture::{Fixture, LATEST, RawResponse};

/// Long enough for a loaded machine, short enough to detect a hang.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct HostileRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Complete lines.
    pub(crate) headers: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: BodyFraming,
}

/// How the length of the body is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BodyFraming {
    Length,
    Chunks,
}

impl HostileRequest {
    /// A request at the newest version.
    pub(crate) fn new(method: &str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: LATEST.into(),
            body: body.into(),
            framing: BodyFraming::Length,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.1\r\nHost: api\r\n", self.method, self.path);
        match self.framing {
            BodyFraming::Length => {
                let _ = write!(bytes, "Content-Length: {}\r\n", self.body.len());
            }
            BodyFraming::Chunks => bytes.push_str("Transfer-Encoding: chunked\r\n"),
        }
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(b"Connection: close\r\n");
        bytes.extend_from_slice(&self.headers);
        bytes.extend_from_slice(b"\r\n");
        match self.framing {
            BodyFraming::Length => bytes.extend_from_slice(&self.body),
            BodyFraming::Chunks => {
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

/// A route of the OpenAPI document.
#[derive(Clone, Debug)]
pub(crate) struct DocumentedRoute {
    pub(crate) method: String,
    /// With `{names}`.
    pub(crate) template: String,
    /// Names of query parameters.
    pub(crate) query: Vec<String>,
    /// The schema of its body, if there is one.
    pub(crate) schema: Option<String>,
}

impl DocumentedRoute {
    /// Its path, with the parameters of stored records.
    pub(crate) fn path(&self) -> String {
        self.path_with(|name| path_param(name).to_owned())
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

    /// The names of its path parameters.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &str> {
        self.template.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// A valid body; `None` if it has no body.
    pub(crate) fn example(&self) -> Option<Value> {
        example_body(&self.method, &self.template)
    }

    pub(crate) fn request(&self, body: impl Into<Vec<u8>>) -> HostileRequest {
        // Without a method in the query, the body is not read.
        let query = match self.template.ends_with("/vendor_passthru") {
            true => format!("?method={}", path_param("method")),
            false => String::new(),
        };
        HostileRequest::new(&self.method, &format!("{}{query}", self.path()), body)
    }
}

/// The server, its initial records, and a dump of its current ones.
pub(crate) struct HostileTarget {
    runtime: Runtime,
    api: Fixture,
    pub(crate) routes: Vec<DocumentedRoute>,
    document: Value,
    initial: Arc<AllRecords>,
    last_dump: RefCell<String>,
}

impl HostileTarget {
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
        let (api, initial) = runtime.block_on(async {
            let api = Fixture::with(change).await;
            insert_examples(&api, &routes).await;
            let initial = read_when_settled(&api).await;
            (api, Arc::new(initial))
        });
        let last_dump = RefCell::new(String::new());
        let target = Self { runtime, api, routes, document, initial, last_dump };
        target.last_dump.replace(target.dump());
        target
    }

    /// The routes with a body, and a valid body for each.
    pub(crate) fn with_bodies(&self) -> impl Iterator<Item = (&DocumentedRoute, Value)> {
        self.routes.iter().filter_map(|route| Some((route, route.example()?)))
    }

    /// The fields of a schema.
    pub(crate) fn fields(&self, schema: &str) -> &Map<String, Value> {
        let found = &self.document["components"]["schemas"][schema]["properties"];
        found.as_object().expect("a schema with properties")
    }

    /// Sends a request and checks what all responses have in common: a status below 500; if rejected, a
    /// message and no change.
    pub(crate) fn check(&self, request: &HostileRequest) -> Result<RawResponse, String> {
        let address = self.api.server.address();
        let bytes = request.bytes();
        let outcome = self.runtime.block_on(async {
            let exchange = send_and_receive(address, &bytes);
            tokio::time::timeout(TIMEOUT, exchange).await.unwrap_or(Err("timeout".into()))
        });
        let failure = |what: String| format!("{what}: {}", request.summary());
        let response = outcome.map_err(failure)?;
        let now = self.dump();
        let changed = *self.last_dump.borrow() != now;
        if changed {
            self.restore();
        }
        match response.status {
            200..300 => Ok(response),
            400..500 if changed => {
                Err(failure(format!("rejected with {}, but something was stored", response.status)))
            }
            400..500 if request.method != "HEAD" && error_message(&response).is_empty() => {
                Err(failure(format!("rejected without a message: {}", response.body)))
            }
            400..500 => Ok(response),
            status => Err(failure(format!("{status} {}", response.body))),
        }
    }

    /// Sends a request that must be rejected with a message that contains `field`.
    pub(crate) fn check_rejected(
        &self,
        field: &str,
        request: &HostileRequest,
    ) -> Result<(), String> {
        let response = self.check(request)?;
        let message = error_message(&response);
        if !(400..500).contains(&response.status) {
            return Err(format!("{} instead of an error: {}", response.status, request.summary()));
        }
        if message.contains(field) {
            return Ok(());
        }
        Err(format!("{} without {field}: {message}: {}", response.status, request.summary()))
    }

    fn dump(&self) -> String {
        let stored = self.runtime.block_on(read_when_settled(&self.api));
        let journal = *self.api.store.journal_position().borrow();
        format!("{journal} {stored:?}")
    }

    fn restore(&self) {
        let initial = Arc::clone(&self.initial);
        let write = self.api.store.write(move |writer| {
            AllRecords::clear(writer)?;
            initial.insert(writer)
        });
        self.runtime.block_on(write).unwrap();
        self.last_dump.replace(self.dump());
    }
}

/// Collects failures, so that one run reports all of them.
#[derive(Default)]
pub(crate) struct Failures(Vec<String>);

impl Failures {
    pub(crate) fn record<T>(&mut self, outcome: Result<T, String>) -> Option<T> {
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

/// The message of an error, in any of Ironic's formats.
pub(crate) fn error_message(response: &RawResponse) -> String {
    let message = response.message();
    if !message.is_empty() {
        return message;
    }
    // As in Ironic, errors of the router have only a title.
    let inner = response.json()["error_message"].as_str().map(serde_json::from_str::<Value>);
    inner.and_then(|inner| Some(inner.ok()?["title"].as_str()?.to_owned())).unwrap_or_default()
}

macro_rules! all_records {
    ($($records:ident: $record:ty;)*) => {
        /// All records.
        #[derive(Debug)]
        struct AllRecords { $($records: Vec<$record>,)* }

        impl AllRecords {
            fn read(reader: &mut StoreReader<'_>) -> Result<Self, StoreError> {
                Ok(Self { $($records: reader.collect(&ResourceQuery::<$record>::default())?,)* })
            }

            /// Inserts all records, referenced ones first.
            fn insert(&self, writer: &mut StoreWriter<'_>) -> Result<(), StoreError> {
                $(for record in &self.$records { writer.insert(record)?; })*
                Ok(())
            }

            fn clear(writer: &mut StoreWriter<'_>) -> Result<(), StoreError> {
                // Deleting a node deletes its resources.
                for node in writer.collect(&ResourceQuery::<Node>::default())? {
                    writer.delete(node.id)?;
                }
                $(for record in writer.collect(&ResourceQuery::<$record>::default())? {
                    writer.delete(record.id)?;
                })*
                Ok(())
            }
        }
    };
}

all_records! {
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
    projects: Project;
    users: UserAccount;
    tokens: ApiToken;
    deployments: Deployment;
    quotas: ProjectQuota;
}

fn routes(document: &Value) -> Vec<DocumentedRoute> {
    let paths = document["paths"].as_object().unwrap();
    let mut routes = Vec::new();
    for (template, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_query = parameters.filter(|parameter| parameter["in"] == "query");
            let query = in_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned());
            let body = &operation["requestBody"]["content"]["application/json"]["schema"]["$ref"];
            let schema =
                body.as_str().and_then(|reference| Some(reference.rsplit_once('/')?.1.to_owned()));
            routes.push(DocumentedRoute {
                method: method.to_ascii_uppercase(),
                template: template.clone(),
                query: query.collect(),
                schema,
            });
        }
    }
    assert!(routes.len() > 100, "the document contains all routes");
    routes
}

/// Creates one record of every resource through the API, with the ids of `path_param`.
async fn insert_examples(api: &Fixture, routes: &[DocumentedRoute]) {
    let enrolled = |node: &mut Node| node.provision_state = ProvisionState::Enroll;
    api.node("another", enrolled).await;
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
        "/v1/ferrite/projects",
        "/v1/ferrite/users",
    ] {
        let one = routes.iter().find(|route| {
            let inner = route.template.strip_prefix(collection);
            inner.is_some_and(|rest| rest.starts_with("/{") && rest.matches('/').count() == 1)
        });
        let name = one.unwrap().segments().next().unwrap();
        let mut body = example_body("POST", collection).unwrap();
        let ident = path_param(name);
        let key = if uuid::Uuid::try_parse(ident).is_ok() { "uuid" } else { "name" };
        // Unique values of the examples stay unused, for the tests.
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
        let response = api.request("POST", collection, body).await;
        assert_eq!(response.status, 201, "{collection}: {}", response.message());
    }
}

/// All records, as soon as no allocation is searching for a node. Nothing processes deployments here, so
/// their allocations search for ever.
async fn read_when_settled(api: &Fixture) -> AllRecords {
    let read = async {
        loop {
            let stored = api.store.read(AllRecords::read).await.unwrap();
            let is_settled = |allocation: &Allocation| {
                let of = |deployment: &Deployment| deployment.allocation_id() == allocation.id;
                allocation.state != AllocationState::Allocating || stored.deployments.iter().any(of)
            };
            if stored.allocations.iter().all(is_settled) {
                return stored;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, read).await.expect("all allocations end")
}

/// Sends and receives concurrently, so that a response before the end of the request is received.
async fn send_and_receive(address: SocketAddr, bytes: &[u8]) -> Result<RawResponse, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    let (read, mut write) = stream.into_split();
    let sending = async {
        let _ = write.write_all(bytes).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        response = receive(read) => response,
        () = sending => Err("sending does not end".to_owned()),
    }
}

async fn receive(mut read: impl AsyncRead + Unpin) -> Result<RawResponse, String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("\r\n\r\n") {
            let response = RawResponse::parse(&bytes);
            let is_stream = response.header("content-type") == Some("text/event-stream");
            if is_stream && response.status == 200 {
                return Ok(response);
            }
        }
        match read.read_buf(&mut bytes).await {
            Ok(0) if bytes.is_empty() => return Err("no response".to_owned()),
            Ok(0) => return Ok(RawResponse::parse(&bytes)),
            Ok(_) => {}
            Err(error) => return Err(format!("{error} after {} bytes", bytes.len())),
        }
    }
}
