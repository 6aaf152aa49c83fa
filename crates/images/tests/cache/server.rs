// SPDX-License-Identifier: Apache-2.0
//! An HTTP server that sends exactly the bytes a test specifies, also invalid ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct TestServerRequest {
    /// Path and query.
    pub path: String,
    /// Headers by lower-case name.
    pub headers: HashMap<String, String>,
}

/// A response.
pub(crate) enum ServerReply {
    /// Sends these bytes and closes the connection.
    Bytes(Vec<u8>),
    /// Sends these bytes and keeps the connection open.
    Silence(Vec<u8>),
}

/// A running server; ends when dropped.
pub(crate) struct ImageTestServer {
    pub url: String,
    pub requests: Arc<Mutex<Vec<TestServerRequest>>>,
    task: JoinHandle<()>,
}

impl TestServerRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The first byte of the requested range.
    pub(crate) fn range(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

impl ImageTestServer {
    pub(crate) async fn start(
        respond: impl Fn(&TestServerRequest) -> ServerReply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (respond, log) = (Arc::new(respond), Arc::clone(&requests));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&respond), Arc::clone(&log)));
            }
        });
        Self { url, requests, task }
    }

    /// Starts a server with these files only.
    pub(crate) async fn with_files(files: Vec<(&'static str, Vec<u8>)>) -> Self {
        Self::start(move |request| {
            let found = files.iter().find(|(path, _)| *path == request.path);
            found.map_or_else(|| status("404 Not Found"), |(_, content)| ok(content, ""))
        })
        .await
    }

    pub(crate) fn request_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

impl Drop for ImageTestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// 200 with these headers, each ended by `\r\n`.
pub(crate) fn ok(content: &[u8], headers: &str) -> ServerReply {
    ServerReply::Bytes(http_response("200 OK", headers, content.len(), content))
}

pub(crate) fn status(status: &str) -> ServerReply {
    ServerReply::Bytes(http_response(status, "", 0, b""))
}

/// A response whose body may be shorter than its `Content-Length`.
pub(crate) fn http_response(status: &str, headers: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

async fn serve(
    mut stream: TcpStream,
    respond: Arc<impl Fn(&TestServerRequest) -> ServerReply>,
    log: Arc<Mutex<Vec<TestServerRequest>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let request = TestServerRequest { path, headers };
    log.lock().unwrap().push(request.clone());
    let reply = respond(&request);
    match reply {
        ServerReply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            // Waits until the client closes the connection; otherwise sent data may be lost.
            while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {}
        }
        ServerReply::Silence(bytes) => {
            let _ = stream.write_all(&bytes).await;
            std::future::pending::<()>().await;
        }
    }
}
