// SPDX-License-Identifier: Apache-2.0
//! A recording of a real BMC, served as if it were that BMC.
//!
//! It shows what was recorded to whoever asks, with any credentials. What clients change is
//! remembered over the recording: patches, power, virtual media, new and deleted members of
//! collections. Everything that was asked of it can be read by a test.

mod changes;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use redfish::recording::Recording;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::listener::{self, Closed, Outcome};
use changes::Changed;

const LARGEST_BODY: usize = 1024 * 1024;

/// A recording being served. Dropping it stops it.
#[derive(Debug)]
pub struct Replay {
    address: SocketAddr,
    changed: Arc<Mutex<Changed>>,
    task: JoinHandle<()>,
    _stop: watch::Sender<bool>,
}

/// Something that was asked of the BMC, other than to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body; null if there was none.
    pub body: Value,
    /// What was answered.
    pub status: u16,
}

/// Why a recording is not served.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The address cannot be listened on.
    #[error("the recording cannot be served on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is nothing to begin with.
    #[error("the recording has no service root at /redfish/v1")]
    NoRoot,
}

/// What is answered.
#[derive(Debug, PartialEq)]
struct Told {
    status: StatusCode,
    headers: Vec<(HeaderName, String)>,
    body: Value,
}

impl Replay {
    /// Serves a recording. To be called within a tokio runtime.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the recording has no service root.
    pub fn start(recording: Recording, address: SocketAddr) -> Result<Self, ReplayError> {
        let changed = Changed::new(recording).ok_or(ReplayError::NoRoot)?;
        let failed = |source| ReplayError::Listen { address, source };
        let listener = listener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let changed = Arc::new(Mutex::new(changed));
        let served = Arc::clone(&changed);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listener::run(listener, None, stopped, move |request| {
            handle(Arc::clone(&served), request)
        }));
        Ok(Self { address, changed, task, _stop: stop })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the BMC.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked so far, other than to be read; passwords are left out.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.changed).requests.clone()
    }

    /// A resource as it is shown now.
    #[must_use]
    pub fn resource(&self, path: &str) -> Option<Value> {
        lock(&self.changed).read(path).cloned()
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn handle(changed: Arc<Mutex<Changed>>, request: HttpRequest<Incoming>) -> Outcome {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| Closed)?.to_bytes();
    let path = head.uri.path();
    let told = match head.method {
        Method::GET | Method::HEAD => lock(&changed).show(path),
        _ => match parsed(&body) {
            Some(body) => lock(&changed).change(head.method.as_str(), path, body),
            None => Told::new(StatusCode::BAD_REQUEST),
        },
    };
    Ok(told.into_response(head.method == Method::HEAD))
}

fn parsed(body: &[u8]) -> Option<Value> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Some(Value::Null);
    }
    serde_json::from_slice(body).ok()
}

fn lock(changed: &Mutex<Changed>) -> MutexGuard<'_, Changed> {
    changed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
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
