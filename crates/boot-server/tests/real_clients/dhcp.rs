// SPDX-License-Identifier: Apache-2.0
//! DHCP clients and relay agents.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boot_server::dhcp4::{
    self, Interface, Leases, Listener, MessageType, Options, Packet, Settings, Subnet, Verdict,
    code,
};
use boot_server::{FileLeaseBook, HardwareAddress, Mode, What, dhcp6};

use super::lab::{Lab, SERVER, Seen, Serving, ready, services};

/// A server's and a client's space with a cable between, the server's end with its address.
pub(crate) fn lab() -> Lab {
    let lab = Lab::new(&["server", "client"]);
    lab.cable(("server", "s0"), ("client", "c0"));
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    lab
}

pub(crate) fn subnet(first: u8, last: u8) -> Subnet {
    let mut subnet = Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 24, Mode::Discover);
    subnet.ranges = vec![(Ipv4Addr::new(10, 77, 0, first), Ipv4Addr::new(10, 77, 0, last))];
    subnet.gateway = Some(SERVER);
    subnet.dns = vec![SERVER];
    subnet
}

pub(crate) fn serve(lab: &Lab, subnets: Vec<Subnet>, seen: &Arc<Seen>) -> Serving {
    let interface = Interface { name: "s0".into(), address: SERVER };
    let settings = Settings { interfaces: vec![interface], subnets, ..Settings::default() };
    let services = services(seen);
    let book = FileLeaseBook::new(lab.folder.path().join("leases"));
    lab.serve("server", move || {
        let leases = Leases::load(Box::new(book)).unwrap();
        Listener::bind(settings, leases, services).unwrap().run()
    })
}

/// What a udhcpc that asks like 64-bit UEFI firmware is told, as `name=value` lines.
pub(crate) fn udhcpc(lab: &Lab, arguments: &[&str]) -> Option<String> {
    let told = lab.folder.path().join("told");
    let _ = std::fs::remove_file(&told);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_clients/told.sh");
    let common = ["udhcpc", "-i", "c0", "-f", "-n", "-q", "-t", "3", "-T", "1", "-s", script];
    let _ = lab.run("client", &[&common[..], arguments].concat());
    std::fs::read_to_string(told).ok()
}

pub(crate) fn value<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Whether such a line comes to be in the file within some seconds.
fn wait_for_line(path: &Path, is_it: impl Fn(&str) -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if std::fs::read_to_string(path).unwrap_or_default().lines().any(&is_it) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

#[test]
fn udhcpc_gets_an_address_and_its_boot_file_and_keeps_it_over_a_restart() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let mut lab = lab();
    lab.spawn("server", &["sh", "-c", "exec ip monitor neigh > neighbours"]);
    let seen = Arc::new(Seen::default());
    let firmware =
        ["-x", "0x5d:0007", "-V", "PXEClient:Arch:00007", "-O", "bootfile", "-O", "tftp"];
    let serving = serve(&lab, vec![subnet(100, 200)], &seen);
    let told = udhcpc(&lab, &firmware).expect("a lease");
    assert_eq!(value(&told, "boot_file"), Some("snponly.efi"), "{told}");
    assert_eq!(value(&told, "siaddr"), Some("10.77.0.1"));
    assert_eq!(value(&told, "router"), Some("10.77.0.1"));
    assert_eq!(value(&told, "subnet"), Some("255.255.255.0"));
    let address = value(&told, "ip").unwrap().to_owned();
    // The reply went to the card alone: the kernel was told where the new address is, and to forget
    // it again, because its table is small.
    let is_told = |line: &str| line.contains(&address) && line.contains("lladdr");
    let noticed = wait_for_line(&lab.folder.path().join("neighbours"), is_told);
    assert!(noticed, "{address} was broadcast to");
    let (_, left) = lab.run("server", &["ip", "neigh", "show", &address]);
    assert!(!left.contains("STALE"), "{left}");
    drop(serving);
    let _serving = serve(&lab, vec![subnet(100, 200)], &seen);
    // Broadcast replies this time, and iPXE's mark.
    let again = udhcpc(&lab, &["-B", "-x", "0x4d:69505845", "-O", "bootfile"]).expect("a lease");
    assert_eq!(value(&again, "ip"), Some(&*address));
    assert_eq!(value(&again, "boot_file"), Some("http://10.77.0.1/boot.ipxe"));
    let is_lease = |what: &What| matches!(what, What::Dhcp4 { verdict: Verdict::Leased(_), .. });
    assert_eq!(seen.count(is_lease), 2);
}

#[test]
fn nobody_is_answered_on_an_interface_that_was_not_named() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    lab.cable(("server", "s1"), ("client", "c1"));
    lab.ip("server", &["addr", "add", "10.77.1.1/24", "dev", "s1"]);
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![subnet(100, 200)], &seen);
    assert_eq!(udhcpc(&lab, &["-i", "c1"]), None);
    assert_eq!(seen.count(|_| true), 0);
    assert!(udhcpc(&lab, &[]).is_some());
}

#[test]
fn an_address_somebody_uses_is_not_offered() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    // The client's own space answers for .100, which no lease is known of.
    lab.ip("client", &["addr", "add", "10.77.0.100/24", "dev", "c0"]);
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![subnet(100, 101)], &seen);
    let told = udhcpc(&lab, &["-r", "10.77.0.100"]).expect("a lease");
    assert_eq!(value(&told, "ip"), Some("10.77.0.101"));
}

#[test]
fn dhclient_gets_an_address() {
    if !ready(&["dhclient", "ip"]) {
        return;
    }
    let lab = lab();
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![subnet(100, 200)], &seen);
    std::fs::write(lab.folder.path().join("leases.client"), "").unwrap();
    let common = ["dhclient", "-1", "-d", "-v", "-sf", "/bin/true", "-lf", "leases.client"];
    let rest = ["-pf", "client.pid", "-cf", "/dev/null", "c0"];
    // -d keeps it in the foreground, so it has to be ended; on a busy machine it needs more time.
    let mut words = String::new();
    for seconds in ["6", "12", "24"] {
        let arguments = [&["timeout", seconds], &common[..], &rest].concat();
        words = lab.run("client", &arguments).1;
        if words.contains("bound to") {
            break;
        }
    }
    assert!(words.contains("bound to 10.77.0.1"), "{words}");
    let leases = std::fs::read_to_string(lab.folder.path().join("leases.client")).unwrap();
    assert!(leases.contains("option routers 10.77.0.1;"), "{leases}");
}

#[test]
fn dhcpcd_gets_an_address() {
    if !ready(&["dhcpcd", "ip"]) {
        return;
    }
    let lab = lab();
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![subnet(100, 200)], &seen);
    let arguments = ["timeout", "8", "dhcpcd", "-4", "-T", "-d", "-A", "-f", "/dev/null", "c0"];
    let (_, words) = lab.run("client", &arguments);
    assert!(
        words.contains("offered 10.77.0.") || words.contains("new_ip_address='10.77.0."),
        "{words}"
    );
}

/// A machine behind this relay agent gets an address of its own network.
fn check_relay(relay: &[&str]) {
    if !ready(&["udhcpc", relay[0], "ip"]) {
        return;
    }
    let mut lab = Lab::new(&["server", "relay", "client"]);
    lab.cable(("server", "s0"), ("relay", "r0"));
    lab.cable(("relay", "r1"), ("client", "c0"));
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    lab.ip("relay", &["addr", "add", "10.77.0.2/24", "dev", "r0"]);
    lab.ip("relay", &["addr", "add", "10.88.0.1/24", "dev", "r1"]);
    lab.ip("server", &["route", "add", "10.88.0.0/24", "via", "10.77.0.2"]);
    lab.spawn("relay", relay);
    let mut far = Subnet::new(Ipv4Addr::new(10, 88, 0, 0), 24, Mode::Discover);
    far.ranges = vec![(Ipv4Addr::new(10, 88, 0, 50), Ipv4Addr::new(10, 88, 0, 60))];
    let seen = Arc::new(Seen::default());
    let _serving = serve(&lab, vec![subnet(100, 200), far], &seen);
    let told = udhcpc(&lab, &["-t", "8"]).expect("a lease");
    let given: Ipv4Addr = value(&told, "ip").unwrap().parse().unwrap();
    assert!((50..=60).contains(&given.octets()[3]) && given.octets()[1] == 88, "{given}");
}

#[test]
fn the_relay_agent_of_dnsmasq_works() {
    let quiet = ["dnsmasq", "-k", "-p", "0", "--conf-file=/dev/null", "--pid-file"];
    check_relay(&[&quiet[..], &["--dhcp-relay=10.88.0.1,10.77.0.1"]].concat());
}

#[test]
fn the_relay_agent_of_isc_works_and_gets_its_own_option_back() {
    // With -a it adds option 82, and drops replies that do not bring it back.
    let arguments = ["-4", "-d", "-q", "-a", "-iu", "r0", "-id", "r1", "--no-pid", "10.77.0.1"];
    check_relay(&[&["dhcrelay"], &arguments[..]].concat());
}

/// What 64-bit UEFI firmware with this card says first.
pub(crate) fn pxe_discover(card: [u8; 6]) -> Packet {
    let mut options = Options::default();
    options.set(code::MESSAGE_TYPE, [MessageType::Discover.number()]);
    options.set(code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003000");
    options.set(code::ARCHITECTURE, 7_u16.to_be_bytes());
    Packet {
        is_request: true,
        hops: 0,
        transaction: 0x1234,
        seconds: 0,
        broadcast: true,
        client_address: Ipv4Addr::UNSPECIFIED,
        your_address: Ipv4Addr::UNSPECIFIED,
        next_server: Ipv4Addr::UNSPECIFIED,
        relay: Ipv4Addr::UNSPECIFIED,
        hardware: HardwareAddress::ethernet(card),
        file: Vec::new(),
        options,
    }
}

#[test]
fn dhclient_gets_a_v6_address_and_the_boot_url() {
    if !ready(&["dhclient", "ip"]) {
        return;
    }
    let lab = lab();
    lab.ip("server", &["addr", "add", "2001:db8:77::1/64", "dev", "s0", "nodad"]);
    // Link-local addresses must not wait for duplicate detection.
    for (space, link, address) in [("server", "s0", "fe80::1/64"), ("client", "c0", "fe80::2/64")] {
        lab.ip(space, &["addr", "add", address, "dev", link, "nodad"]);
    }
    let seen = Arc::new(Seen::default());
    let mut subnet = dhcp6::Subnet::new("2001:db8:77::".parse().unwrap(), 64, Mode::Discover);
    subnet.range = Some(("2001:db8:77::100".parse().unwrap(), "2001:db8:77::1ff".parse().unwrap()));
    subnet.dns = vec!["2001:db8:77::1".parse().unwrap()];
    let settings = dhcp6::Settings {
        duid: vec![0, 3, 0, 1, 2, 0, 0, 0, 0, 1],
        interfaces: vec![dhcp6::Interface {
            name: "s0".into(),
            address: "2001:db8:77::1".parse().unwrap(),
        }],
        subnets: vec![subnet],
        ignored: Default::default(),
        first_stages: Default::default(),
    };
    let services: dhcp4::Services = services(&seen);
    let book = FileLeaseBook::new(lab.folder.path().join("leases6"));
    let _serving = lab.serve("server", move || {
        let leases = dhcp6::Leases::load(Box::new(book)).unwrap();
        dhcp6::Listener::bind(settings, leases, services).unwrap().run()
    });
    std::fs::write(lab.folder.path().join("leases.client"), "").unwrap();
    std::fs::write(
        lab.folder.path().join("client.conf"),
        "option dhcp6.arch code 61 = unsigned integer 16;\n\
         option dhcp6.bootfile-url code 59 = text;\n\
         send dhcp6.arch 7;\nalso request dhcp6.bootfile-url;\n",
    )
    .unwrap();
    let common = ["timeout", "8", "dhclient", "-6", "-1", "-d", "-v", "-sf", "/bin/true"];
    let rest = ["-lf", "leases.client", "-pf", "client.pid", "-cf", "client.conf", "c0"];
    let (_, words) = lab.run("client", &[&common[..], &rest].concat());
    let leases = std::fs::read_to_string(lab.folder.path().join("leases.client"));
    let leases = leases.unwrap_or_default();
    assert!(leases.contains("iaaddr 2001:db8:77::1"), "{leases}\n{words}");
    assert!(leases.contains("tftp://[2001:db8:77::1]/snponly.efi"), "{leases}\n{words}");
}
