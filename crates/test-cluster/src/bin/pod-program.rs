// SPDX-License-Identifier: Apache-2.0
//! The program of pods in the tests of this crate: an HTTP server on the given port that returns files
//! by their absolute path, and the host name at `/name`.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let port = port.ok_or_else(|| io::Error::other("the first argument is a port"))?;
    for connection in TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?.incoming() {
        // The next client matters more than this one.
        let _client_left = respond(connection?);
    }
    Ok(())
}

fn respond(mut connection: TcpStream) -> io::Result<()> {
    let mut request = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default();
    let content = match path {
        "/name" => fs::read("/proc/sys/kernel/hostname"),
        path => fs::read(path),
    };
    let (status, body) = match content {
        Ok(body) => ("200 OK", body),
        Err(error) => ("404 Not Found", error.to_string().into_bytes()),
    };
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len())?;
    connection.write_all(b"Connection: close\r\n\r\n")?;
    connection.write_all(&body)
}
