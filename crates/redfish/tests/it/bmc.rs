// SPDX-License-Identifier: Apache-2.0
//! A BMC for tests: a function from request to response, over a real socket.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use redfish::{RedfishClient, RedfishEndpoint, RedfishRetryPolicy, RedfishTimeouts};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A request to the BMC.
#[derive(Debug, Clone)]
pub(crate) struct BmcTestRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl BmcTestRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A response: status, headers and body.
pub(crate) struct BmcTestResponse(
    pub(crate) u16,
    pub(crate) Vec<(&'static str, String)>,
    pub(crate) Vec<u8>,
);

impl BmcTestResponse {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self(status, vec![], body.to_string().into_bytes())
    }

    pub(crate) fn nothing(status: u16) -> Self {
        Self(status, vec![], Vec::new())
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.1.push((name, value.to_owned()));
        self
    }
}

type Behaviour = dyn Fn(&BmcTestRequest) -> BmcTestResponse + Send + Sync;

/// A listening BMC.
pub(crate) struct ScriptedBmc {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<BmcTestRequest>>>,
    connections: Arc<AtomicUsize>,
}

impl ScriptedBmc {
    pub(crate) async fn start(
        behaviour: impl Fn(&BmcTestRequest) -> BmcTestResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let log = Arc::clone(&requests);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(socket, Arc::clone(&behaviour), Arc::clone(&log)));
            }
        });
        Self { address, requests, connections }
    }

    /// Starts a BMC with TLS and this certificate.
    pub(crate) async fn start_tls(tls: tokio_rustls::TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> = Arc::new(|_: &BmcTestRequest| {
            BmcTestResponse::json(200, &serde_json::json!({"Id": "root"}))
        });
        let log = Arc::clone(&requests);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, behaviour, log) = (tls.clone(), Arc::clone(&behaviour), Arc::clone(&log));
                tokio::spawn(async move {
                    if let Ok(socket) = tls.accept(socket).await {
                        serve(socket, behaviour, log).await;
                    }
                });
            }
        });
        Self { address, requests, connections }
    }

    /// A client without retry delays.
    pub(crate) fn client(&self) -> RedfishClient {
        client(RedfishEndpoint::parse(&self.address).unwrap())
    }

    pub(crate) fn client_as(&self, username: &str, password: &str) -> RedfishClient {
        client(RedfishEndpoint::parse(&self.address).unwrap().with_login(username, password))
    }

    /// Takes the requests received so far.
    pub(crate) fn take_requests(&self) -> Vec<BmcTestRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    /// Takes method and path of the requests received so far.
    pub(crate) fn take_request_lines(&self) -> Vec<String> {
        self.take_requests().iter().map(BmcTestRequest::line).collect()
    }

    /// The number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn client(endpoint: RedfishEndpoint) -> RedfishClient {
    let none = RedfishRetryPolicy {
        pauses: [Duration::ZERO; 2],
        longest: Duration::ZERO,
        after_rejection: Duration::ZERO,
    };
    RedfishClient::new(endpoint, RedfishTimeouts::default(), Arc::new(Semaphore::new(1)))
        .unwrap()
        .with_retry_policy(none)
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    behaviour: Arc<Behaviour>,
    log: Arc<Mutex<Vec<BmcTestRequest>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (behaviour, log) = (Arc::clone(&behaviour), Arc::clone(&log));
        async move {
            let request = read(request).await;
            log.lock().unwrap().push(request.clone());
            let BmcTestResponse(status, headers, body) = behaviour(&request);
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok::<_, Infallible>(response.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

async fn read(request: Request<Incoming>) -> BmcTestRequest {
    let headers = request.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let method = request.method().to_string();
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    BmcTestRequest {
        method,
        path,
        headers,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }
}
