// SPDX-License-Identifier: Apache-2.0
//! ProxyDHCP: the site's own server gives addresses, ours says what to boot, on ports 67 and 4011.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use boot_server::dhcp4::{MessageType, Packet, Subnet, Verdict, code};
use boot_server::{Mode, What};

use super::dhcp::{pxe_discover, serve, udhcpc, value};
use super::lab::{Lab, SERVER, Seen, ready};

const SITE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const CARD: [u8; 6] = [0x52, 0x54, 0, 1, 2, 3];

/// A segment with the site's server (dnsmasq) and room for ours, joined by a bridge in the client's
/// space.
fn lab() -> Lab {
    let mut lab = Lab::new(&["server", "site", "client"]);
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

/// The segment, as one where another server gives the addresses.
fn beside_the_site() -> Subnet {
    Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 24, Mode::Proxy)
}

/// Firmware's socket.
fn socket() -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68))).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Says it, again if need be (dnsmasq takes a moment to listen), until the answers are enough.
fn ask(message: &Packet, to: SocketAddr, enough: impl Fn(&[Packet]) -> bool) -> Vec<Packet> {
    let socket = socket();
    let mut answers = Vec::new();
    let mut buffer = [0; 2000];
    for _ in 0..15 {
        socket.send_to(&message.encode(548), to).unwrap();
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            answers.extend(Packet::decode(&buffer[..length]));
        }
        if enough(&answers) {
            break;
        }
    }
    answers
}

fn everybody() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::BROADCAST, 67))
}

#[test]
fn firmware_gets_its_address_from_the_site_and_its_boot_file_from_the_proxy() {
    if !ready(&["dnsmasq", "ip"]) {
        return;
    }
    let lab = lab();
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![beside_the_site()], &seen);

    let has_address = |packet: &Packet| !packet.your_address.is_unspecified();
    let offers = lab.inside("client", move || {
        ask(&pxe_discover(CARD), everybody(), |offers| {
            offers.iter().any(has_address) && !offers.iter().all(has_address)
        })
    });
    let offers = offers.join().unwrap();
    let site = offers.iter().find(|offer| has_address(offer)).expect("an address");
    assert_eq!(site.options.address(code::SERVER_ID), Some(SITE));
    assert_eq!(site.file, b"");
    let proxy = offers.iter().find(|offer| !has_address(offer)).expect("a proxy offer");
    assert_eq!(proxy.options.address(code::SERVER_ID), Some(SERVER));
    assert_eq!(proxy.options.get(code::VENDOR_CLASS), Some(&b"PXEClient"[..]));
    assert_eq!(proxy.file, b"snponly.efi");

    // The address is asked of the site, and the proxy keeps out of it.
    let address = site.your_address;
    let mut request = pxe_discover(CARD);
    request.options.set(code::MESSAGE_TYPE, [MessageType::Request.number()]);
    request.options.set_addresses(code::REQUESTED_ADDRESS, &[address]);
    request.options.set_addresses(code::SERVER_ID, &[SITE]);
    let answers = lab.inside("client", move || {
        ask(&request, everybody(), |answers| answers.iter().any(has_address))
    });
    let answers = answers.join().unwrap();
    let said: Vec<_> = answers.iter().map(Packet::message_type).collect();
    assert_eq!(said, [Some(MessageType::Ack)]);
    assert_eq!(answers[0].your_address, address);
    assert_eq!(answers[0].options.address(code::SERVER_ID), Some(SITE));

    // Then firmware asks the proxy alone, on the port of boot servers, from its new address.
    lab.ip("client", &["addr", "add", &format!("{address}/24"), "dev", "c0"]);
    let mut request = pxe_discover(CARD);
    request.broadcast = false;
    request.client_address = address;
    request.options.set(code::MESSAGE_TYPE, [MessageType::Request.number()]);
    let answers = lab.inside("client", move || {
        ask(&request, SocketAddr::from((SERVER, 4011)), |answers| !answers.is_empty())
    });
    let answers = answers.join().unwrap();
    let boot = answers.first().expect("an answer on port 4011");
    assert_eq!(boot.message_type(), Some(MessageType::Ack));
    assert_eq!((boot.your_address, boot.client_address), (Ipv4Addr::UNSPECIFIED, address));
    assert_eq!((boot.next_server, &*boot.file), (SERVER, &b"snponly.efi"[..]));
    assert_eq!(boot.options.address(code::SERVER_ID), Some(SERVER));
}

#[test]
fn a_system_that_is_not_booting_is_left_to_the_site() {
    if !ready(&["dnsmasq", "udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![beside_the_site()], &seen);
    let told = udhcpc(&lab, &["-t", "10", "-O", "bootfile"]).expect("a lease");
    assert_eq!(value(&told, "serverid"), Some("10.77.0.9"), "{told}");
    assert_eq!(value(&told, "boot_file"), None, "{told}");
    let verdicts = |wanted: Verdict| {
        seen.count(|what| matches!(what, What::Dhcp4 { verdict, .. } if *verdict == wanted))
    };
    assert!(verdicts(Verdict::NotBooting) > 0);
    assert_eq!(verdicts(Verdict::ProxyAnswered), 0);
}
