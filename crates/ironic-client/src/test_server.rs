// SPDX-License-Identifier: Apache-2.0
//! A minimal HTTP server for tests of the client.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crate::api::Api;
use crate::target::ApiTarget;

/// A request that the server received. Header names are in lower case.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Method and path, such as `GET /v1/nodes?limit=1000`.
    pub(crate) line: String,
    headers: Vec<String>,
    pub(crate) body: String,
}

impl ReceivedRequest {
    /// Returns the value of a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        let prefix = format!("{name}: ");
        self.headers.iter().find_map(|header| header.strip_prefix(&prefix)).unwrap_or_default()
    }

    /// Reads a request; `None` if the client closed the connection without one.
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut lines = lines.into_iter();
        let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            format!("{}: {value}", name.to_lowercase())
        });
        let mut request = Self { line, headers: headers.collect(), body: String::new() };
        let length = request.header("content-length").parse().unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        request.body = String::from_utf8(body).unwrap();
        Some(request)
    }
}

/// A server that responds with the status, header lines and body that a function returns.
pub(crate) struct TestServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl TestServer {
    /// Starts a server; `respond` gets the request and the base URL of the server.
    pub(crate) fn start(
        respond: impl Fn(&ReceivedRequest, &str) -> (u16, &'static str, String) + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (log, base) = (Arc::clone(&requests), url.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some(request) = ReceivedRequest::read(&stream) else { continue };
                log.lock().unwrap().push(request.clone());
                let (status, headers, body) = respond(&request, &base);
                let head = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
                    body.len()
                );
                stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(body.as_bytes()))
                    .unwrap();
            }
        });
        Self { url, requests }
    }

    /// A client of this server without credentials.
    pub(crate) fn api(&self) -> Api {
        Api::new(ApiTarget::at(&self.url, None, None, "a test").unwrap()).unwrap()
    }

    /// All requests received so far.
    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The lines of all requests received so far.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|request| request.line.clone()).collect()
    }
}
