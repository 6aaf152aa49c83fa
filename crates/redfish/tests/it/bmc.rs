// SPDX-License-Identifier: Apache-2.0
//! A BMC for tests: a function from request to answer, over a real socket.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use redfish::{Client, Endpoint, Patience, Timeouts};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What the BMC was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What it answers: a status, headers and a body.
pub(crate) struct Say(pub(crate) u16, pub(crate) Vec<(&'static str, String)>, pub(crate) Vec<u8>);

impl Say {
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

type Behaviour = dyn Fn(&Asked) -> Say + Send + Sync;

/// A BMC that is listening.
pub(crate) struct Bmc {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
}

impl Bmc {
    pub(crate) async fn start(behaviour: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let log = Arc::clone(&asked);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(socket, Arc::clone(&behaviour), Arc::clone(&log)));
            }
        });
        Self { address, asked, connections }
    }

    /// The same over TLS with this certificate.
    pub(crate) async fn start_tls(tls: tokio_rustls::TlsAcceptor) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let behaviour: Arc<Behaviour> =
            Arc::new(|_: &Asked| Say::json(200, &serde_json::json!({"Id": "root"})));
        let log = Arc::clone(&asked);
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
        Self { address, asked, connections }
    }

    /// A client that waits for nothing.
    pub(crate) fn client(&self) -> Client {
        client(Endpoint::parse(&self.address).unwrap())
    }

    pub(crate) fn client_as(&self, username: &str, password: &str) -> Client {
        client(Endpoint::parse(&self.address).unwrap().with_login(username, password))
    }

    /// Everything it was asked so far, and forgets it.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// The same, only method and path.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().iter().map(Asked::line).collect()
    }

    /// How many connections it took.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn client(endpoint: Endpoint) -> Client {
    let none = Patience {
        pauses: [Duration::ZERO; 2],
        longest: Duration::ZERO,
        after_rejection: Duration::ZERO,
    };
    Client::new(endpoint, Timeouts::default(), Arc::new(Semaphore::new(1))).unwrap().patient(none)
}

async fn serve(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    behaviour: Arc<Behaviour>,
    log: Arc<Mutex<Vec<Asked>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (behaviour, log) = (Arc::clone(&behaviour), Arc::clone(&log));
        async move {
            let asked = read(request).await;
            log.lock().unwrap().push(asked.clone());
            let Say(status, headers, body) = behaviour(&asked);
            let mut answer = Response::builder().status(status);
            for (name, value) in headers {
                answer = answer.header(name, value);
            }
            Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(body))).unwrap())
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

async fn read(request: Request<Incoming>) -> Asked {
    let headers = request.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    let method = request.method().to_string();
    let path = request.uri().to_string();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Asked { method, path, headers, body: serde_json::from_slice(&body).unwrap_or_default() }
}
