// SPDX-License-Identifier: Apache-2.0
//! A local HTTP server for tests of identity services. It responds with the results of a function.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct ServiceRequest {
    /// Method and path, such as `GET /keys`.
    pub(crate) line: String,
    /// The header lines in lower case.
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// Status, header lines and body.
pub(crate) type ServiceResponse = (u16, String, Value);

/// A server. It ends when it is dropped.
pub(crate) struct TestService {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ServiceRequest>>>,
    task: JoinHandle<()>,
}

impl TestService {
    /// Starts a server on a free port. The function gets the URL of the server, too.
    pub(crate) async fn start<F>(respond: F) -> Self
    where
        F: Fn(&str, &ServiceRequest) -> ServiceResponse + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<ServiceRequest>>>::default();
        let (respond, seen, own_url) = (Arc::new(respond), Arc::clone(&requests), url.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (respond, seen) = (Arc::clone(&respond), Arc::clone(&seen));
                let url = own_url.clone();
                tokio::spawn(async move {
                    let mut stream = stream;
                    let Some(request) = read(&mut stream).await else { return };
                    seen.lock().unwrap().push(request.clone());
                    let (status, headers, body) = respond(&url, &request);
                    let body = body.to_string();
                    let head = format!(
                        "HTTP/1.1 {status} Status\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                });
            }
        });
        Self { url, requests, task }
    }

    /// The number of requests whose first line starts with `line`.
    pub(crate) fn count(&self, line: &str) -> usize {
        self.requests().iter().filter(|request| request.line.starts_with(line)).count()
    }

    pub(crate) fn requests(&self) -> Vec<ServiceRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Option<ServiceRequest> {
    let mut data = Vec::new();
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|count| *count > 0)?;
        data.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&data).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
        let headers = headers.to_ascii_lowercase();
        let length = headers.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            let line = first.trim_end_matches(" HTTP/1.1").to_owned();
            return Some(ServiceRequest { line, headers, body: body.to_owned() });
        }
    }
}
