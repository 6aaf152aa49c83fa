// SPDX-License-Identifier: Apache-2.0
//! Boots machines concurrently: each gets an address, loads its boot loader by TFTP, requests an address
//! again as iPXE, and fetches script, kernel and ramdisk by HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::dhcp::{DhcpClientProgram, DhcpClients};
use crate::http::BenchHttpConnection;
use crate::load::{self, LoadResult};
use crate::tftp::{self, TftpFetch};

/// Boots `count` machines concurrently.
pub(crate) async fn load(first: u32, count: u32, with_http: bool) -> Result<LoadResult> {
    let clients = Arc::new(DhcpClients::open()?);
    let receiver = clients.clone().receive();
    let result = load::run(count, count, move |number| {
        let clients = clients.clone();
        async move { boot(&clients, first + number, with_http).await }
    })
    .await;
    receiver.abort();
    Ok(result)
}

async fn boot(clients: &DhcpClients, number: u32, with_http: bool) -> Result<u64> {
    let lease = clients.lease(number, DhcpClientProgram::Firmware).await.context("firmware")?;
    let boot_loader = TftpFetch {
        server: SocketAddr::from((lease.next_server, 69)),
        file: lease.boot_file,
        block: 1468,
        window: 1,
    };
    let mut bytes = tftp::fetch(&boot_loader, lease.address.into()).await.context("boot loader")?;
    let lease = clients.lease(number, DhcpClientProgram::Ipxe).await.context("iPXE")?;
    if !with_http {
        return Ok(bytes);
    }
    let (server, script) = split_url(&lease.boot_file)
        .with_context(|| format!("`{}` is not the URL of a script", lease.boot_file))?;
    let mut connection = BenchHttpConnection::open(server, lease.address.into()).await?;
    for path in [&*script, "/kernel", "/ramdisk"] {
        bytes += connection.get(path).await.with_context(|| path.to_owned())?;
    }
    Ok(bytes)
}

/// Splits `http://192.0.2.1/path` into server and path.
fn split_url(url: &str) -> Option<(SocketAddr, String)> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    Some((SocketAddr::new(host.parse().ok()?, 80), format!("/{path}")))
}
