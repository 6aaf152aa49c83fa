// SPDX-License-Identifier: Apache-2.0
//! A blocking HTTP/1.1 client for one server: one connection, one request at a time.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// Longest line of a response head that is believed.
const LONGEST_LINE: u64 = 64 * 1024;

/// Talks to one server, over one connection that is kept open between requests.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    /// Header lines sent with every request.
    headers: String,
    patience: Duration,
    keeps_connection: bool,
    connection: Option<BufReader<TcpStream>>,
    request: Vec<u8>,
}

/// What the server said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body, without transfer coding.
    pub body: Vec<u8>,
}

impl Client {
    /// A client of the Ironic API at `address`, asking for its newest version.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            headers: "X-OpenStack-Ironic-API-Version: latest\r\n".to_owned(),
            patience: Duration::from_secs(30),
            keeps_connection: true,
            connection: None,
            request: Vec::new(),
        }
    }

    /// Asks for another microversion (`1.11`).
    #[must_use]
    pub fn speaking(mut self, version: &str) -> Self {
        self.headers = format!("X-OpenStack-Ironic-API-Version: {version}\r\n");
        self
    }

    /// Sends another header with every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// Opens a new connection for every request, as agents do.
    #[must_use]
    pub fn reconnecting(mut self) -> Self {
        self.keeps_connection = false;
        self
    }

    /// Gives up on connecting, sending and on silence after this long.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends a request with a JSON body, or none, and reads the whole answer.
    ///
    /// # Errors
    /// When the server cannot be reached, breaks off, or answers something that is not HTTP.
    pub fn send(&mut self, method: &str, path: &str, body: Option<&[u8]>) -> io::Result<Answer> {
        self.write_request(method, path, body);
        let was_open = self.connection.is_some();
        let answer = match self.exchange(method) {
            // The server may have closed a connection that was idle; that is no answer to this.
            Err(error) if was_open && is_closed(&error) => {
                self.connection = None;
                self.exchange(method)
            }
            outcome => outcome,
        };
        let closes = answer.as_ref().map_or(true, |answer| {
            answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
        });
        if closes || !self.keeps_connection {
            self.connection = None;
        }
        answer
    }

    /// Sends a request with a JSON value, or none.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> io::Result<Answer> {
        let body = body.map(Value::to_string);
        self.send(method, path, body.as_deref().map(str::as_bytes))
    }

    fn write_request(&mut self, method: &str, path: &str, body: Option<&[u8]>) {
        self.request.clear();
        let connection = if self.keeps_connection { "keep-alive" } else { "close" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: application/json\r\nConnection: {connection}\r\n{}",
            self.address, self.headers
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

    fn exchange(&mut self, method: &str) -> io::Result<Answer> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(connect(self.address, self.patience)?),
        };
        connection.get_mut().write_all(&self.request)?;
        read_answer(connection, method)
    }
}

impl Answer {
    /// The first header of that name, given in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(BufReader::with_capacity(64 * 1024, stream))
}

/// Whether the connection ended before a byte of the answer came.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
    )
}

fn read_answer(connection: &mut impl BufRead, method: &str) -> io::Result<Answer> {
    let status_line = read_line(connection)?;
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| malformed(format!("not a status line: {status_line}")))?;
    let mut headers = Vec::new();
    loop {
        // The head was begun, so from here on an end is a broken answer and no stale connection.
        let line = read_line(connection)
            .map_err(|error| malformed(format!("head breaks off: {error}")))?;
        if line.is_empty() {
            break;
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| malformed(format!("not a header: {line}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if method != "HEAD" && status != 204 && status != 304 {
        answer.body = read_body(connection, &answer)
            .map_err(|error| malformed(format!("body breaks off: {error}")))?;
    }
    Ok(answer)
}

fn read_body(connection: &mut impl BufRead, answer: &Answer) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if answer.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
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
    match answer.header("content-length") {
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
    connection.take(LONGEST_LINE).read_line(&mut line)?;
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
        match read_answer(&mut Cursor::new(text.as_bytes()), "GET") {
            Ok(answer) => Ok((answer.status, answer.text())),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn answers_are_read_in_every_framing() {
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
                Err("body breaks off: unexpected end of file"),
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
    fn a_connection_closed_while_idle_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for body in ["a", "b"] {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                while !read_line(&mut stream).unwrap().is_empty() {}
                write!(stream.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}")
                    .unwrap();
                // Dropped here: closed without having said so.
            }
        });
        let mut client = Client::new(address);
        assert_eq!(client.send("GET", "/", None).unwrap().text(), "a");
        assert_eq!(client.send("GET", "/", None).unwrap().text(), "b");
        server.join().unwrap();
    }
}
