// SPDX-License-Identifier: Apache-2.0
//! Sockets that are bound to one interface.
//!
//! `SO_BINDTODEVICE` keeps the servers off networks that are not configured: the kernel delivers only
//! packets that arrive on the interface, and sends only through it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::net::{TcpListener, UdpSocket};

/// A socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketBindError {
    /// The interface does not exist or may not be used.
    #[error(
        "cannot use interface {name}; check that it exists and that the process has CAP_NET_RAW"
    )]
    Interface {
        /// The name of the interface.
        name: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The address cannot be bound.
    #[error("cannot bind {address}; check whether another server uses it")]
    Address {
        /// The address and port.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another socket operation failed.
    #[error("cannot open a socket")]
    Socket(#[source] io::Error),
}

/// Opens a UDP socket on `address`, bound to `interface` if it is given.
pub(crate) fn udp(
    address: SocketAddr,
    interface: Option<&str>,
) -> Result<UdpSocket, SocketBindError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(SocketBindError::Socket)?;
    if let Some(name) = interface {
        bind_to_device(&socket, name)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(SocketBindError::Socket)?;
    }
    bind_udp(socket, address)
}

/// Opens a UDP socket that is bound to an interface and can send broadcasts.
pub(crate) fn udp_for_broadcast(
    address: SocketAddr,
    name: &str,
) -> Result<UdpSocket, SocketBindError> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(SocketBindError::Socket)?;
    bind_to_device(&socket, name)?;
    socket.set_broadcast(true).map_err(SocketBindError::Socket)?;
    enlarge_receive_buffer(&socket);
    bind_udp(socket, address)
}

/// Opens an IPv6 UDP socket that is bound to an interface and joined to a multicast group.
pub(crate) fn udp_multicast_v6(
    address: SocketAddr,
    name: &str,
    group: Ipv6Addr,
) -> Result<UdpSocket, SocketBindError> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))
        .map_err(SocketBindError::Socket)?;
    bind_to_device(&socket, name)?;
    socket.set_only_v6(true).map_err(SocketBindError::Socket)?;
    enlarge_receive_buffer(&socket);
    let index = interface_index(name)?;
    socket
        .join_multicast_v6(&group, index)
        .map_err(|source| SocketBindError::Interface { name: name.to_owned(), source })?;
    bind_udp(socket, address)
}

/// Opens a UDP socket that is bound to an interface and joined to a multicast group, on a port that
/// several programs share. Sends with the hop limit that mDNS requires.
pub(crate) fn udp_shared_multicast(
    port: u16,
    name: &str,
    group: IpAddr,
) -> Result<UdpSocket, SocketBindError> {
    /// Receivers drop packets with a lower value, because a router forwarded them.
    const HOP_LIMIT: u32 = 255;
    let any: IpAddr = match group {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let address = SocketAddr::new(any, port);
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
        .map_err(SocketBindError::Socket)?;
    bind_to_device(&socket, name)?;
    let index = interface_index(name)?;
    let join = || {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        match group {
            IpAddr::V4(group) => {
                let here = InterfaceIndexOrAddress::Index(index);
                socket.join_multicast_v4_n(&group, &here)?;
                socket.set_multicast_ttl_v4(HOP_LIMIT)
            }
            IpAddr::V6(group) => {
                socket.set_only_v6(true)?;
                socket.join_multicast_v6(&group, index)?;
                socket.set_multicast_if_v6(index)?;
                socket.set_multicast_hops_v6(HOP_LIMIT)
            }
        }
    };
    join().map_err(|source| SocketBindError::Interface { name: name.to_owned(), source })?;
    bind_udp(socket, address)
}

/// Opens a listening TCP socket on `address`, bound to `interface` if it is given.
pub(crate) fn tcp(
    address: SocketAddr,
    interface: Option<&str>,
) -> Result<TcpListener, SocketBindError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))
        .map_err(SocketBindError::Socket)?;
    if let Some(name) = interface {
        bind_to_device(&socket, name)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true).map_err(SocketBindError::Socket)?;
    }
    let fail = |source| SocketBindError::Address { address, source };
    // Lingering connections of a previous process must not prevent a restart. A second listener is
    // still rejected.
    socket.set_reuse_address(true).map_err(fail)?;
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&address.into()).map_err(fail)?;
    // The machines of a rack that is powered on connect within a second.
    socket.listen(4096).map_err(fail)?;
    TcpListener::from_std(socket.into()).map_err(fail)
}

/// Enlarges the receive buffer to 4 MiB. Racks that are powered on at once send thousands of packets within
/// a second, and Linux's default buffer holds about a hundred.
pub(crate) fn enlarge_receive_buffer(socket: impl AsFd) {
    const BYTES: usize = 4 << 20;
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, BYTES);
    // Only a privileged process may exceed the system limit. Without the privilege packets that do not
    // fit are dropped, and clients send them again.
    if forced.is_err()
        && let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, BYTES)
    {
        tracing::debug!(%error, "enlarging a receive buffer failed");
    }
}

/// Returns the index of an interface.
pub(crate) fn interface_index(name: &str) -> Result<u32, SocketBindError> {
    let index = control_socket()
        .and_then(|socket| Ok(rustix::net::netdevice::name_to_index(&socket, name)?));
    index.map_err(|source| SocketBindError::Interface { name: name.to_owned(), source })
}

fn control_socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
}

fn bind_to_device(socket: &Socket, name: &str) -> Result<(), SocketBindError> {
    socket
        .bind_device(Some(name.as_bytes()))
        .map_err(|source| SocketBindError::Interface { name: name.to_owned(), source })
}

fn bind_udp(socket: Socket, address: SocketAddr) -> Result<UdpSocket, SocketBindError> {
    let fail = |source| SocketBindError::Address { address, source };
    // No `SO_REUSEADDR`: sockets of different interfaces can share a port without it, and a second server
    // on the same interface must fail instead of taking packets.
    socket.set_nonblocking(true).map_err(fail)?;
    socket.bind(&address.into()).map_err(fail)?;
    UdpSocket::from_std(socket.into()).map_err(fail)
}
