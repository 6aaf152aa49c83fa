// SPDX-License-Identifier: Apache-2.0
//! Serves the recording of a real BMC.
//!
//! Any credentials are accepted. Changes by clients apply on top of the recording: PATCH, power,
//! virtual media, new and deleted members of collections. Tests can read all change requests.

mod state;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use redfish::recording::BmcRecording;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::listener::{self, ConnectionClosed, HandlerResult};
use state::ReplayState;

const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A recording that is being served. Dropping it stops the server.
#[derive(Debug)]
pub struct Replay {
    address: SocketAddr,
    state: Arc<Mutex<ReplayState>>,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

/// A request other than GET and HEAD.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedRequest {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body; null if empty.
    pub body: Value,
    /// The status of the response.
    pub status: u16,
}

/// The reason why a recording cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The address cannot be bound.
    #[error("the recording cannot be served on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The recording is incomplete.
    #[error("the recording has no service root at /redfish/v1")]
    NoRoot,
}

/// A response.
#[derive(Debug, PartialEq)]
struct ReplayResponse {
    status: StatusCode,
    headers: Vec<(HeaderName, String)>,
    body: Value,
}

impl Replay {
    /// Serves a recording. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be bound, or the recording has no service root.
    pub fn start(recording: BmcRecording, address: SocketAddr) -> Result<Self, ReplayError> {
        let state = ReplayState::new(recording).ok_or(ReplayError::NoRoot)?;
        let failed = |source| ReplayError::Listen { address, source };
        let listener = listener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let state = Arc::new(Mutex::new(state));
        let served = Arc::clone(&state);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listener::run(listener, None, stopped, move |request| {
            handle(Arc::clone(&served), request)
        }));
        Ok(Self { address, state, task, _stop: stop })
    }

    /// Returns the address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the BMC.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests other than GET and HEAD, without passwords.
    #[must_use]
    pub fn requests(&self) -> Vec<ReplayedRequest> {
        lock(&self.state).requests.clone()
    }

    /// Returns the current body of a resource.
    #[must_use]
    pub fn resource(&self, path: &str) -> Option<Value> {
        lock(&self.state).body(path).cloned()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(state: Arc<Mutex<ReplayState>>, request: HttpRequest<Incoming>) -> HandlerResult {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .map_err(|_| ConnectionClosed)?
        .to_bytes();
    let path = head.uri.path();
    let response = match head.method {
        Method::GET | Method::HEAD => lock(&state).handle_read(path),
        _ => match parse_body(&body) {
            Some(body) => lock(&state).handle_change(head.method.as_str(), path, body),
            None => ReplayResponse::new(StatusCode::BAD_REQUEST),
        },
    };
    Ok(response.into_response(head.method == Method::HEAD))
}

fn parse_body(body: &[u8]) -> Option<Value> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Some(Value::Null);
    }
    serde_json::from_slice(body).ok()
}

fn lock(state: &Mutex<ReplayState>) -> MutexGuard<'_, ReplayState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplayResponse {
    fn new(status: StatusCode) -> Self {
        Self { status, headers: Vec::new(), body: Value::Null }
    }

    fn into_response(self, is_head: bool) -> Response<Full<Bytes>> {
        let body = if is_head || self.body.is_null() {
            Bytes::new()
        } else {
            Bytes::from(self.body.to_string())
        };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        }
        response
    }
}
