// SPDX-License-Identifier: Apache-2.0
//! The IPMI service of a simulated BMC: RMCP+ access to the same machine as over Redfish.
//!
//! [`ipmi::BmcResponder`] implements the sessions. Each BMC has one UDP socket and one task, which
//! sleeps until a datagram arrives or its serial console has output.

mod chassis;
mod commands;
mod console;
mod sensors;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;

use crate::simulated_bmc::SimulatedBmc;
use server::IpmiServer;

/// Binds the UDP socket of a BMC.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Serves IPMI for a BMC. Never returns.
pub(crate) async fn run(socket: UdpSocket, bmc: Arc<SimulatedBmc>) {
    let mut server = IpmiServer::new(Arc::new(socket), bmc);
    loop {
        server.serve().await;
    }
}
