// SPDX-License-Identifier: Apache-2.0
//! A server of a few lines for tests, which answers what the test wants.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ironic_client::{Api, Target};
use serde_json::Value;

use crate::desk::Desk;
use crate::screen::Screen;

/// One request.
pub(crate) struct Asked {
    /// Method and path: `GET /v1/nodes`.
    pub(crate) line: String,
    /// The version of the API it is made in.
    pub(crate) version: String,
    pub(crate) body: Value,
}

/// What becomes of a request.
pub(crate) enum Answer {
    Json(u16, Value),
    /// It is in a newer dialect than the server's, which is this.
    TooNew(&'static str),
    /// The connection ends.
    Lost,
    /// Nothing, for ever.
    Silence,
}

/// Everything a server was asked, in lines.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A server, as the desk of its user and what it was asked.
pub(crate) fn server(answer: impl FnMut(&Asked) -> Answer + Send + 'static) -> (Desk, Log) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let log = Log::default();
    let asked = log.clone();
    std::thread::spawn(move || serve(&listener, &asked, answer));
    let api = Api::new(Target::at(&url, None, None, "a test").unwrap()).unwrap();
    (Desk { api: Arc::new(api), screen: Screen::plain() }, log)
}

/// A server that is not there any more.
pub(crate) fn nobody() -> Desk {
    let url = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let api = Api::new(Target::at(&url, None, None, "a test").unwrap()).unwrap();
    Desk { api: Arc::new(api), screen: Screen::plain() }
}

fn serve(listener: &TcpListener, log: &Log, mut answer: impl FnMut(&Asked) -> Answer) {
    let mut kept = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let Some(asked) = read(&stream) else { continue };
        log.lock().unwrap().push(asked.line.clone());
        let (status, header, body) = match answer(&asked) {
            Answer::Lost => continue,
            Answer::Silence => {
                kept.push(stream);
                continue;
            }
            Answer::TooNew(newest) => {
                let header = format!("X-OpenStack-Ironic-API-Maximum-Version: {newest}\r\n");
                (406, header, String::new())
            }
            Answer::Json(status, Value::Null) => (status, String::new(), String::new()),
            Answer::Json(status, body) => (status, String::new(), body.to_string()),
        };
        let text = format!(
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n{header}\r\n{body}",
            body.len()
        );
        // The other side may be gone.
        let _ = stream.write_all(text.as_bytes());
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
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
    Some(Asked { line, version, body: serde_json::from_slice(&body).unwrap_or_default() })
}
