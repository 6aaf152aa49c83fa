// SPDX-License-Identifier: Apache-2.0
//! A blocking HTTP/1.1 client for one server: one connection, one request at a time.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

/// The longest line of a response head that is accepted, in bytes.
const MAX_HEAD_LINE: u64 = 64 * 1024;

/// Client for one server, over one connection that is kept open between requests.
#[derive(Debug)]
pub struct ProbeClient {
    address: ProbeAddress,
    /// Header lines sent with every request.
    headers: String,
    timeout: Duration,
    keep_alive: bool,
    tls: Option<Arc<dyn ProbeTls>>,
    connection: Option<BufReader<ProbeStream>>,
    request: Vec<u8>,
}

/// Starts TLS on connections. Implemented by the caller, so that this crate needs no TLS library.
pub trait ProbeTls: std::fmt::Debug + Send + Sync {
    /// Starts TLS on a new connection.
    ///
    /// # Errors
    /// When TLS cannot be started.
    fn start(&self, stream: TcpStream) -> io::Result<Box<dyn ProbeTlsStream>>;
}

/// A connection with TLS.
pub trait ProbeTlsStream: Read + Write + std::fmt::Debug + Send {}

impl<S: Read + Write + std::fmt::Debug + Send> ProbeTlsStream for S {}

#[derive(Debug)]
enum ProbeAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
enum ProbeStream {
    Tcp(TcpStream),
    Tls(Box<dyn ProbeTlsStream>),
    Unix(UnixStream),
}

/// A complete HTTP response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeResponse {
    /// The status code.
    pub status: u16,
    /// Header names in lower case, with their values, in the order received.
    pub headers: Vec<(String, String)>,
    /// The decoded body, without transfer coding.
    pub body: Vec<u8>,
}

impl ProbeClient {
    /// Creates a client of the Ironic API at `address` that requests the newest microversion.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self::at(ProbeAddress::Tcp(address))
    }

    /// Creates a client of the Ironic API on a Unix socket.
    #[must_use]
    pub fn on_socket(path: &Path) -> Self {
        Self::at(ProbeAddress::Unix(path.to_owned()))
    }

    fn at(address: ProbeAddress) -> Self {
        Self {
            address,
            headers: "X-OpenStack-Ironic-API-Version: latest\r\n".to_owned(),
            timeout: Duration::from_secs(30),
            keep_alive: true,
            tls: None,
            connection: None,
            request: Vec::new(),
        }
    }

    /// Requests another microversion, such as `1.11`. Drops headers added before.
    #[must_use]
    pub fn with_microversion(mut self, version: &str) -> Self {
        self.headers = format!("X-OpenStack-Ironic-API-Version: {version}\r\n");
        self
    }

    /// Adds a header to every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Uses TLS for every connection.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<dyn ProbeTls>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Opens a new connection for every request, as agents do.
    #[must_use]
    pub fn without_keep_alive(mut self) -> Self {
        self.keep_alive = false;
        self
    }

    /// Sets the timeout for connecting, for each write and for each read. Default: 30 seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends a request with an optional JSON body and reads the complete response.
    ///
    /// # Errors
    /// When the server is unreachable, closes the connection early, or does not send valid HTTP.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> io::Result<ProbeResponse> {
        self.build_request(method, path, body);
        let was_open = self.connection.is_some();
        let response = match self.exchange(method) {
            // The server may have closed the idle connection, so retry on a new one.
            Err(error) if was_open && is_connection_closed(&error) => {
                self.connection = None;
                self.exchange(method)
            }
            outcome => outcome,
        };
        let closes = response.as_ref().map_or(true, |response| {
            response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
        });
        if closes || !self.keep_alive {
            self.connection = None;
        }
        response
    }

    /// Sends a request with an optional JSON value.
    ///
    /// # Errors
    /// As [`ProbeClient::send`].
    pub fn send_json(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> io::Result<ProbeResponse> {
        let body = body.map(Value::to_string);
        self.send(method, path, body.as_deref().map(str::as_bytes))
    }

    fn build_request(&mut self, method: &str, path: &str, body: Option<&[u8]>) {
        self.request.clear();
        let connection = if self.keep_alive { "keep-alive" } else { "close" };
        let host = match &self.address {
            ProbeAddress::Tcp(address) => address.to_string(),
            ProbeAddress::Unix(_) => "localhost".to_owned(),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nConnection: {connection}\r\n{}",
            host, self.headers
        );
        self.request.extend_from_slice(head.as_bytes());
        match body {
            Some(body) => {
                let entity = format!(
                    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                self.request.extend_from_slice(entity.as_bytes());
                self.request.extend_from_slice(body);
            }
            None if method == "GET" || method == "HEAD" => self.request.extend_from_slice(b"\r\n"),
            None => self.request.extend_from_slice(b"Content-Length: 0\r\n\r\n"),
        }
    }

    fn exchange(&mut self, method: &str) -> io::Result<ProbeResponse> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(&self.address, self.tls.as_deref(), self.timeout)?),
        };
        connection.get_mut().write_all(&self.request)?;
        read_response(connection, method)
    }
}

impl ProbeResponse {
    /// Returns the first header of that name. `name` must be lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns the body as JSON, or null if it is not valid JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns the body as text, with invalid UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn connect(
    address: &ProbeAddress,
    tls: Option<&dyn ProbeTls>,
    timeout: Duration,
) -> io::Result<BufReader<ProbeStream>> {
    let stream = match address {
        ProbeAddress::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, timeout)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            match tls {
                Some(tls) => ProbeStream::Tls(tls.start(stream)?),
                None => ProbeStream::Tcp(stream),
            }
        }
        ProbeAddress::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            ProbeStream::Unix(stream)
        }
    };
    Ok(BufReader::with_capacity(64 * 1024, stream))
}

impl Read for ProbeStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for ProbeStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}

/// Whether the connection was closed before the first byte of the response.
fn is_connection_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
    )
}

fn read_response(connection: &mut impl BufRead, method: &str) -> io::Result<ProbeResponse> {
    let status_line = read_line(connection)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| malformed(format!("not a status line: {status_line}")))?;
    let mut headers = Vec::new();
    loop {
        // The head has started, so an early end is a malformed response, not a stale connection.
        let line =
            read_line(connection).map_err(|error| malformed(format!("truncated head: {error}")))?;
        if line.is_empty() {
            break;
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| malformed(format!("not a header: {line}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut response = ProbeResponse { status, headers, body: Vec::new() };
    if method != "HEAD" && status != 204 && status != 304 {
        response.body = read_body(connection, &response)
            .map_err(|error| malformed(format!("truncated body: {error}")))?;
    }
    Ok(response)
}

fn read_body(connection: &mut impl BufRead, response: &ProbeResponse) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if response
        .header("transfer-encoding")
        .is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
    {
        loop {
            let size = read_line(connection)?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = u64::from_str_radix(size, 16)
                .map_err(|_| malformed(format!("not a chunk size: {size}")))?;
            read_exactly(connection, size, &mut body)?;
            read_line(connection)?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    match response.header("content-length") {
        Some(length) => {
            let length =
                length.parse().map_err(|_| malformed(format!("not a length: {length}")))?;
            read_exactly(connection, length, &mut body)?;
        }
        None => {
            connection.read_to_end(&mut body)?;
        }
    }
    Ok(body)
}

fn read_exactly(connection: &mut impl BufRead, length: u64, body: &mut Vec<u8>) -> io::Result<()> {
    let read = connection.take(length).read_to_end(body)?;
    if u64::try_from(read) == Ok(length) { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn read_line(connection: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    connection.take(MAX_HEAD_LINE).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(whole) => Ok(whole.trim_end_matches('\r').to_owned()),
        None => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn malformed(what: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;
    use std::net::TcpListener;
    use std::thread;

    fn read(text: &str) -> Result<(u16, String), String> {
        match read_response(&mut Cursor::new(text.as_bytes()), "GET") {
            Ok(response) => Ok((response.status, response.text())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn reads_responses_in_every_framing() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more", Ok((200, "hi"))),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n1;x\r\n!\r\n0\r\n\r\n",
                Ok((200, "hi!")),
            ),
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, ""))),
            ("HTTP/1.1 200 OK\r\n\r\nto the end", Ok((200, "to the end"))),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi",
                Err("truncated body: unexpected end of file"),
            ),
            ("SSH-2.0\r\n", Err("not a status line: SSH-2.0")),
            ("", Err("unexpected end of file")),
        ] {
            let expected =
                expected.map(|(status, body)| (status, body.to_owned())).map_err(str::to_owned);
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn reconnects_if_the_idle_connection_was_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for body in ["a", "b"] {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                while !read_line(&mut stream).unwrap().is_empty() {}
                write!(stream.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}")
                    .unwrap();
                // The stream is dropped here, without a `Connection: close` header.
            }
        });
        let mut client = ProbeClient::new(address);
        assert_eq!(client.send("GET", "/", None).unwrap().text(), "a");
        assert_eq!(client.send("GET", "/", None).unwrap().text(), "b");
        server.join().unwrap();
    }
}
