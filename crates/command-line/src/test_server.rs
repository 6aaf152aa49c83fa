// SPDX-License-Identifier: Apache-2.0
//! A minimal HTTP server for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ironic_client::{Api, ApiTarget};
use serde_json::Value;

use crate::context::CliContext;
use crate::screen::Screen;

/// A received request.
pub(crate) struct TestRequest {
    /// Method and path: `GET /v1/nodes`.
    pub(crate) line: String,
    /// The requested microversion.
    pub(crate) version: String,
    pub(crate) body: Value,
}

/// How the server responds to a request.
pub(crate) enum TestResponse {
    Json(u16, Value),
    /// 406: the server supports microversions up to this one.
    OlderVersion(&'static str),
    /// Closes the connection without a response.
    Disconnect,
    /// Never responds.
    Hang,
}

/// The lines of all received requests.
pub(crate) type RequestLog = Arc<Mutex<Vec<String>>>;

/// Starts a server. Returns the context of a client and the request log.
pub(crate) fn start_server(
    respond: impl FnMut(&TestRequest) -> TestResponse + Send + 'static,
) -> (CliContext, RequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = RequestLog::default();
    let requests = log.clone();
    std::thread::spawn(move || serve(&listener, &requests, respond));
    let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
    (CliContext { api: Arc::new(api), screen: Screen::plain() }, log)
}

/// The context of a server that has stopped.
pub(crate) fn unreachable_server() -> CliContext {
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let api = Api::new(ApiTarget::at(&url, None, None, "a test").unwrap()).unwrap();
    CliContext { api: Arc::new(api), screen: Screen::plain() }
}

fn serve(
    listener: &TcpListener,
    log: &RequestLog,
    mut respond: impl FnMut(&TestRequest) -> TestResponse,
) {
    let mut hanging = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let Some(request) = read_request(&stream) else { continue };
        log.lock().unwrap().push(request.line.clone());
        let (status, header, body) = match respond(&request) {
            TestResponse::Disconnect => continue,
            TestResponse::Hang => {
                hanging.push(stream);
                continue;
            }
            TestResponse::OlderVersion(newest) => {
                let header = format!("X-OpenStack-Ironic-API-Maximum-Version: {newest}\r\n");
                (406, header, String::new())
            }
            TestResponse::Json(status, Value::Null) => (status, String::new(), String::new()),
            TestResponse::Json(status, body) => (status, String::new(), body.to_string()),
        };
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{header}\r\n{body}",
            body.len()
        );
        // The client may have disconnected.
        let _ = stream.write_all(text.as_bytes());
    }
}

fn read_request(stream: &TcpStream) -> Option<TestRequest> {
    let mut reader = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let line = head.first()?.trim_end_matches(" HTTP/1.1").to_owned();
    let header = |name: &str| {
        let fits = |line: &&String| line.to_lowercase().starts_with(name);
        let found = head.iter().find(fits).and_then(|line| line.split_once(':'));
        found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let mut body = vec![0; header("content-length:").parse().unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let version = header("x-openstack-ironic-api-version:");
    Some(TestRequest { line, version, body: serde_json::from_slice(&body).unwrap_or_default() })
}
