// SPDX-License-Identifier: Apache-2.0
//! The IPMI face of a simulated BMC: the same machine as behind Redfish, over RMCP+.
//!
//! Sessions are [`ipmi::Responder`]'s. Each BMC has one UDP socket and one task, which sleeps
//! until a datagram comes or its serial console has something to print.

mod chassis;
mod commands;
mod console;
mod face;
mod sensors;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use crate::bmc::Bmc;
use face::Face;

/// Opens the socket of a BMC.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Serves a BMC for as long as it is not dropped.
pub(crate) async fn run(socket: UdpSocket, bmc: Arc<Bmc>) {
    let mut face = Face::new(Arc::new(socket), bmc);
    loop {
        face.serve().await;
    }
}
