// SPDX-License-Identifier: Apache-2.0
//! Racks that are switched on at the same moment: every machine gets an address, its first stage by
//! TFTP, asks again as iPXE, and fetches its script, kernel and ramdisk by HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::dhcp::{Program, Segment};
use crate::http::Connection;
use crate::load::{self, Outcome};
use crate::tftp::{self, Fetch};

/// Boots machines `first` and on, all at once.
pub(crate) async fn load(first: u32, count: u32, with_http: bool) -> Result<Outcome> {
    let segment = Arc::new(Segment::open()?);
    let listening = segment.clone().listen();
    let outcome = load::drive(count, count, move |number| {
        let segment = segment.clone();
        async move { boot(&segment, first + number, with_http).await }
    })
    .await;
    listening.abort();
    Ok(outcome)
}

async fn boot(segment: &Segment, number: u32, with_http: bool) -> Result<u64> {
    let lease = segment.lease(number, Program::Firmware).await.context("firmware")?;
    let first_stage = Fetch {
        server: SocketAddr::from((lease.next_server, 69)),
        file: lease.boot_file,
        block: 1468,
        window: 1,
    };
    let mut bytes = tftp::fetch(&first_stage, lease.address.into()).await.context("first stage")?;
    let lease = segment.lease(number, Program::Ipxe).await.context("iPXE")?;
    if !with_http {
        return Ok(bytes);
    }
    let (server, script) = parts(&lease.boot_file)
        .with_context(|| format!("`{}` is not a script's URL", lease.boot_file))?;
    let mut connection = Connection::open(server, lease.address.into()).await?;
    for path in [&*script, "/kernel", "/ramdisk"] {
        bytes += connection.get(path).await.with_context(|| path.to_owned())?;
    }
    Ok(bytes)
}

/// The server and the path of `http://192.0.2.1/path`.
fn parts(url: &str) -> Option<(SocketAddr, String)> {
    let (host, path) = url.strip_prefix("http://")?.split_once('/')?;
    Some((SocketAddr::new(host.parse().ok()?, 80), format!("/{path}")))
}
