// SPDX-License-Identifier: Apache-2.0
//! Sockets that belong to one interface.
//!
//! `SO_BINDTODEVICE` is what keeps a server off the networks it was not told of: the kernel delivers
//! nothing to the socket that came in elsewhere, and sends nothing from it elsewhere.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

/// A socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// There is no such interface, or it may not be used.
    #[error(
        "interface {name} cannot be used; is it there, and may this program bind to it (CAP_NET_RAW)"
    )]
    Interface {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The address or port cannot be had.
    #[error("{address} cannot be had; is another server using it")]
    Address {
        /// The address and port.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something else.
    #[error("a socket cannot be made")]
    Socket(#[source] io::Error),
}

/// A UDP socket on `address`, for one interface if one is named.
pub(crate) fn udp(address: SocketAddr, interface: Option<&str>) -> Result<UdpSocket, BindError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(BindError::Socket)?;
    if let Some(name) = interface {
        bind_to_device(&socket, name)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(BindError::Socket)?;
    }
    finish(socket, address)
}

/// A UDP socket for all that comes in by one interface, and that can broadcast there.
pub(crate) fn udp_for_broadcast(address: SocketAddr, name: &str) -> Result<UdpSocket, BindError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(BindError::Socket)?;
    bind_to_device(&socket, name)?;
    socket.set_broadcast(true).map_err(BindError::Socket)?;
    make_room(&socket);
    finish(socket, address)
}

/// A v6 UDP socket on one interface that hears what is sent to `group`.
pub(crate) fn udp_in_group(
    address: SocketAddr,
    name: &str,
    group: Ipv6Addr,
) -> Result<UdpSocket, BindError> {
    let socket =
        Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).map_err(BindError::Socket)?;
    bind_to_device(&socket, name)?;
    socket.set_only_v6(true).map_err(BindError::Socket)?;
    make_room(&socket);
    let index = index(name)?;
    socket
        .join_multicast_v6(&group, index)
        .map_err(|source| BindError::Interface { name: name.to_owned(), source })?;
    finish(socket, address)
}

/// A UDP socket on one interface that hears what is sent to `group`, on a port that all programs of
/// this machine share, and that sends as those in the group expect.
pub(crate) fn udp_in_shared_group(
    port: u16,
    name: &str,
    group: IpAddr,
) -> Result<UdpSocket, BindError> {
    /// Packets that went through a router have less.
    const HOPS: u32 = 255;
    let any: IpAddr = match group {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let address = SocketAddr::new(any, port);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(BindError::Socket)?;
    bind_to_device(&socket, name)?;
    let index = index(name)?;
    let join = || {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        match group {
            IpAddr::V4(group) => {
                let here = InterfaceIndexOrAddress::Index(index);
                socket.join_multicast_v4_n(&group, &here)?;
                socket.set_multicast_ttl_v4(HOPS)
            }
            IpAddr::V6(group) => {
                socket.set_only_v6(true)?;
                socket.join_multicast_v6(&group, index)?;
                socket.set_multicast_if_v6(index)?;
                socket.set_multicast_hops_v6(HOPS)
            }
        }
    };
    join().map_err(|source| BindError::Interface { name: name.to_owned(), source })?;
    finish(socket, address)
}

/// A TCP socket that listens on `address`, for one interface if one is named.
pub(crate) fn tcp(address: SocketAddr, interface: Option<&str>) -> Result<TcpListener, BindError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .map_err(BindError::Socket)?;
    if let Some(name) = interface {
        bind_to_device(&socket, name)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(BindError::Socket)?;
    }
    let fail = |source| BindError::Address { address, source };
    // Connections of a server that ended a moment ago must not keep the next one from starting; a
    // second server that listens is refused all the same.
    socket.set_reuse_address(true).map_err(fail)?;
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&address.into()).map_err(fail)?;
    // A rack that is switched on at once connects within a second.
    socket.listen(4096).map_err(fail)?;
    TcpListener::from_std(socket.into()).map_err(fail)
}

/// Makes room for all that comes in while something else is done: racks that are switched on at once
/// send thousands of packets within a second, and Linux's ordinary limit holds about a hundred.
pub(crate) fn make_room(socket: impl AsFd) {
    const BYTES: usize = 4 << 20;
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BYTES);
    // Only an administrator may go past the limit; others have what it allows, and packets that
    // do not fit are sent again.
    if forced.is_err()
        && let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, BYTES)
    {
        tracing::debug!(%error, "a socket keeps its small buffer");
    }
}

/// The kernel's number of an interface.
pub(crate) fn index(name: &str) -> Result<u32, BindError> {
    let number = udp_for_questions()
        .and_then(|socket| Ok(rustix::net::netdevice::name_to_index(&socket, name)?));
    number.map_err(|source| BindError::Interface { name: name.to_owned(), source })
}

fn udp_for_questions() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

fn bind_to_device(socket: &Socket, name: &str) -> Result<(), BindError> {
    socket
        .bind_device(Some(name.as_bytes()))
        .map_err(|source| BindError::Interface { name: name.to_owned(), source })
}

fn finish(socket: Socket, address: SocketAddr) -> Result<UdpSocket, BindError> {
    let fail = |source| BindError::Address { address, source };
    // No `SO_REUSEADDR`: sockets of different devices may share a port without it, and a second
    // server on the same interface must be an error and not a silent thief of packets.
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&address.into()).map_err(fail)?;
    UdpSocket::from_std(socket.into()).map_err(fail)
}
