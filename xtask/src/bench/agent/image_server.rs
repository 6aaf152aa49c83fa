// SPDX-License-Identifier: Apache-2.0
//! Serves one file over HTTP, from the memory of the host, as the source of all writers.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;

/// Serves `file` on a free port of `address` until xtask exits; returns its URL.
pub(crate) fn serve(address: &str, file: &Path) -> Result<String> {
    let listener = TcpListener::bind((address, 0))?;
    let url = format!("http://{}/image", listener.local_addr()?);
    let file = file.to_owned();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let file = file.clone();
            // Machines may be powered off during a download.
            thread::spawn(move || respond(connection, file).ok());
        }
    });
    Ok(url)
}

fn respond(connection: TcpStream, file: PathBuf) -> io::Result<()> {
    let mut request = BufReader::new(connection);
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    let mut connection = request.into_inner();
    write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    if first.starts_with("GET") {
        // The kernel copies the data, so that serving needs little processor time.
        io::copy(&mut file, &mut connection)?;
    }
    Ok(())
}
