// SPDX-License-Identifier: Apache-2.0
//! ProxyDHCP: the site's DHCP server (dnsmasq) assigns addresses, this server sends boot information on ports
//! 67 and 4011.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use boot_server::dhcp4::{Dhcp4Outcome, Dhcp4Subnet};
use boot_server::{BootEventDetail, DhcpMode};
use dhcp_codec::v4::{Dhcp4MessageType, Dhcp4Packet, MIN_MAX_MESSAGE_BYTES, option_code};

use super::dhcp::{pxe_discover, serve, udhcpc, value};
use super::lab::{NetworkLab, RecordedEvents, SERVER, ready};

const SITE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const MAC: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// Returns a segment with the site's server (dnsmasq) and a namespace for this server, joined by a bridge in
/// the client namespace.
fn lab() -> NetworkLab {
    let mut lab = NetworkLab::new(&["server", "site", "client"]);
    lab.ip("client", &["link", "add", "c0", "type", "bridge"]);
    lab.cable(("server", "s0"), ("client", "p0"));
    lab.cable(("site", "d0"), ("client", "p1"));
    for port in ["p0", "p1"] {
        lab.ip("client", &["link", "set", port, "master", "c0"]);
    }
    lab.ip("client", &["link", "set", "c0", "up"]);
    lab.ip("client", &["route", "add", "255.255.255.255/32", "dev", "c0"]);
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    lab.ip("site", &["addr", "add", "10.77.0.9/24", "dev", "d0"]);
    let quiet = ["dnsmasq", "-k", "-p", "0", "--conf-file=/dev/null", "--pid-file", "--no-ping"];
    let leases = ["--dhcp-leasefile=site.leases", "--dhcp-range=10.77.0.20,10.77.0.30,1h"];
    lab.spawn("site", &[&quiet[..], &leases].concat());
    lab
}

/// Returns the subnet in proxy mode.
fn proxy_subnet() -> Dhcp4Subnet {
    Dhcp4Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 24, DhcpMode::Proxy)
}

/// Opens a DHCP client socket.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68))).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Sends a message repeatedly until the replies are sufficient. dnsmasq takes a while to start.
fn exchange(
    message: &Dhcp4Packet,
    to: SocketAddr,
    enough: impl Fn(&[Dhcp4Packet]) -> bool,
) -> Vec<Dhcp4Packet> {
    let socket = socket();
    let mut replies = Vec::new();
    let mut buffer = [0; 2000];
    for _ in 0..15 {
        socket.send_to(&message.encode(MIN_MAX_MESSAGE_BYTES), to).unwrap();
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            replies.extend(Dhcp4Packet::decode(&buffer[..length]));
        }
        if enough(&replies) {
            break;
        }
    }
    replies
}

fn broadcast_address() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::BROADCAST, 67))
}

#[test]
fn firmware_gets_its_address_from_the_site_and_its_boot_file_from_the_proxy() {
    if !ready(&["dnsmasq", "ip"]) {
        return;
    }
    let lab = lab();
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![proxy_subnet()], &events);

    let has_address = |packet: &Dhcp4Packet| !packet.your_address.is_unspecified();
    let offers = lab.inside("client", move || {
        exchange(&pxe_discover(MAC), broadcast_address(), |offers| {
            offers.iter().any(has_address) && !offers.iter().all(has_address)
        })
    });
    let offers = offers.join().unwrap();
    let site = offers.iter().find(|offer| has_address(offer)).expect("an address");
    assert_eq!(site.options.get_address(option_code::SERVER_ID), Some(SITE));
    assert_eq!(site.file, b"");
    let proxy = offers.iter().find(|offer| !has_address(offer)).expect("a proxy offer");
    assert_eq!(proxy.options.get_address(option_code::SERVER_ID), Some(SERVER));
    assert_eq!(proxy.options.get(option_code::VENDOR_CLASS), Some(&b"PXEClient"[..]));
    assert_eq!(proxy.file, b"snponly.efi");

    // The client requests the address from the site; the proxy does not reply.
    let address = site.your_address;
    let mut request = pxe_discover(MAC);
    request.options.set(option_code::MESSAGE_TYPE, [Dhcp4MessageType::Request.number()]);
    request.options.set_addresses(option_code::REQUESTED_ADDRESS, &[address]);
    request.options.set_addresses(option_code::SERVER_ID, &[SITE]);
    let replies = lab.inside("client", move || {
        exchange(&request, broadcast_address(), |replies| replies.iter().any(has_address))
    });
    let replies = replies.join().unwrap();
    let message_types: Vec<_> = replies.iter().map(Dhcp4Packet::message_type).collect();
    assert_eq!(message_types, [Some(Dhcp4MessageType::Ack)]);
    assert_eq!(replies[0].your_address, address);
    assert_eq!(replies[0].options.get_address(option_code::SERVER_ID), Some(SITE));

    // Then firmware sends a request to the proxy on port 4011, from its new address.
    lab.ip("client", &["addr", "add", &format!("{address}/24"), "dev", "c0"]);
    let mut request = pxe_discover(MAC);
    request.broadcast = false;
    request.client_address = address;
    request.options.set(option_code::MESSAGE_TYPE, [Dhcp4MessageType::Request.number()]);
    let replies = lab.inside("client", move || {
        exchange(&request, SocketAddr::from((SERVER, 4011)), |replies| !replies.is_empty())
    });
    let replies = replies.join().unwrap();
    let boot = replies.first().expect("a reply on port 4011");
    assert_eq!(boot.message_type(), Some(Dhcp4MessageType::Ack));
    assert_eq!((boot.your_address, boot.client_address), (Ipv4Addr::UNSPECIFIED, address));
    assert_eq!((boot.next_server, &*boot.file), (SERVER, &b"snponly.efi"[..]));
    assert_eq!(boot.options.get_address(option_code::SERVER_ID), Some(SERVER));
}

#[test]
fn an_operating_system_gets_no_reply_from_the_proxy() {
    if !ready(&["dnsmasq", "udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![proxy_subnet()], &events);
    let lease = udhcpc(&lab, &["-t", "10", "-O", "bootfile"]).expect("a lease");
    assert_eq!(value(&lease, "serverid"), Some("10.77.0.9"), "{lease}");
    assert_eq!(value(&lease, "boot_file"), None, "{lease}");
    let outcomes = |expected: Dhcp4Outcome| {
        events.count(
            |detail| matches!(detail, BootEventDetail::Dhcp4 { outcome, .. } if *outcome == expected),
        )
    };
    assert!(outcomes(Dhcp4Outcome::NotNetboot) > 0);
    assert_eq!(outcomes(Dhcp4Outcome::ProxyReplied), 0);
}
