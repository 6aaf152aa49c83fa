// SPDX-License-Identifier: Apache-2.0
//! One file over HTTP, from the host's memory: the same source for everybody who writes it to a disk.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Result;

/// Serves `file` on a port of `address` as long as we live; says where.
pub(crate) fn serve(address: &str, file: &Path) -> Result<String> {
    let listener = TcpListener::bind((address, 0))?;
    let url = format!("http://{}/image", listener.local_addr()?);
    let file = file.to_owned();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let file = file.clone();
            // A machine that is switched off in the middle is no error of ours.
            thread::spawn(move || answer(connection, file).ok());
        }
    });
    Ok(url)
}

fn answer(connection: TcpStream, file: PathBuf) -> io::Result<()> {
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
        // The kernel copies it, so that serving costs next to nothing.
        io::copy(&mut file, &mut connection)?;
    }
    Ok(())
}
