// SPDX-License-Identifier: Apache-2.0
//! DHCP clients and relay agents.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boot_server::dhcp4::{
    Dhcp4Interface, Dhcp4Listener, Dhcp4Outcome, Dhcp4Settings, Dhcp4Subnet, DhcpLeases4,
};
use boot_server::{BootEventDetail, DhcpLeaseFile, DhcpMode, HardwareAddress, dhcp6};
use dhcp_codec::v4::{Dhcp4MessageType, Dhcp4Packet, option_code};

use super::lab::{NetworkLab, RecordedEvents, RunningServer, SERVER, ready, services};

/// Returns a server and a client namespace, connected by a cable.
pub(crate) fn lab() -> NetworkLab {
    let lab = NetworkLab::new(&["server", "client"]);
    lab.cable(("server", "s0"), ("client", "c0"));
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    lab
}

pub(crate) fn subnet(first: u8, last: u8) -> Dhcp4Subnet {
    let mut subnet = Dhcp4Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 24, DhcpMode::Discover);
    subnet.ranges = vec![(Ipv4Addr::new(10, 77, 0, first), Ipv4Addr::new(10, 77, 0, last))];
    subnet.gateway = Some(SERVER);
    subnet.dns = vec![SERVER];
    subnet
}

pub(crate) fn serve(
    lab: &NetworkLab,
    subnets: Vec<Dhcp4Subnet>,
    events: &Arc<RecordedEvents>,
) -> RunningServer {
    let interface = Dhcp4Interface { name: "s0".into(), address: SERVER };
    let settings =
        Dhcp4Settings { interfaces: vec![interface], subnets, ..Dhcp4Settings::default() };
    let services = services(events);
    let store = DhcpLeaseFile::new(lab.directory.path().join("leases"));
    lab.serve("server", move || {
        let leases = DhcpLeases4::load(Box::new(store)).unwrap();
        Dhcp4Listener::bind(settings, leases, services).unwrap().run()
    })
}

/// Runs udhcpc with these arguments and returns its lease as `name=value` lines.
pub(crate) fn udhcpc(lab: &NetworkLab, arguments: &[&str]) -> Option<String> {
    let lease = lab.directory.path().join("lease");
    let _ = std::fs::remove_file(&lease);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/real_clients/dump_lease.sh");
    let common = ["udhcpc", "-i", "c0", "-f", "-n", "-q", "-t", "3", "-T", "1", "-s", script];
    let _ = lab.run("client", &[&common[..], arguments].concat());
    std::fs::read_to_string(lease).ok()
}

pub(crate) fn value<'a>(lease: &'a str, name: &str) -> Option<&'a str> {
    lease.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

/// Waits up to five seconds for a matching line in a file.
fn wait_for_line(path: &Path, matches: impl Fn(&str) -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if std::fs::read_to_string(path).unwrap_or_default().lines().any(&matches) {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
}

#[test]
fn udhcpc_gets_an_address_and_its_boot_file_and_keeps_them_over_a_restart() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let mut lab = lab();
    lab.spawn("server", &["sh", "-c", "exec ip monitor neigh > neighbours"]);
    let events = Arc::new(RecordedEvents::default());
    let firmware =
        ["-x", "0x5d:0007", "-V", "PXEClient:Arch:00007", "-O", "bootfile", "-O", "tftp"];
    let server = serve(&lab, vec![subnet(100, 200)], &events);
    let lease = udhcpc(&lab, &firmware).expect("a lease");
    assert_eq!(value(&lease, "boot_file"), Some("snponly.efi"), "{lease}");
    assert_eq!(value(&lease, "siaddr"), Some("10.77.0.1"));
    assert_eq!(value(&lease, "router"), Some("10.77.0.1"));
    assert_eq!(value(&lease, "subnet"), Some("255.255.255.0"));
    let address = value(&lease, "ip").unwrap().to_owned();
    // The reply was unicast: the server added the address to the neighbour table and removed it again.
    let is_entry = |line: &str| line.contains(&address) && line.contains("lladdr");
    let noticed = wait_for_line(&lab.directory.path().join("neighbours"), is_entry);
    assert!(noticed, "{address} was broadcast to");
    let (_, left) = lab.run("server", &["ip", "neigh", "show", &address]);
    assert!(!left.contains("STALE"), "{left}");
    drop(server);
    let _server = serve(&lab, vec![subnet(100, 200)], &events);
    // Broadcast replies this time, with the user class of iPXE.
    let again = udhcpc(&lab, &["-B", "-x", "0x4d:69505845", "-O", "bootfile"]).expect("a lease");
    assert_eq!(value(&again, "ip"), Some(&*address));
    assert_eq!(value(&again, "boot_file"), Some("http://10.77.0.1/boot.ipxe"));
    let is_lease = |what: &BootEventDetail| {
        matches!(what, BootEventDetail::Dhcp4 { outcome: Dhcp4Outcome::Leased(_), .. })
    };
    assert_eq!(events.count(is_lease), 2);
}

#[test]
fn sends_no_reply_on_an_interface_that_is_not_configured() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    lab.cable(("server", "s1"), ("client", "c1"));
    lab.ip("server", &["addr", "add", "10.77.1.1/24", "dev", "s1"]);
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![subnet(100, 200)], &events);
    assert_eq!(udhcpc(&lab, &["-i", "c1"]), None);
    assert_eq!(events.count(|_| true), 0);
    assert!(udhcpc(&lab, &[]).is_some());
}

#[test]
fn an_address_in_use_is_not_offered() {
    if !ready(&["udhcpc", "ip"]) {
        return;
    }
    let lab = lab();
    // The client namespace uses .100 without a lease.
    lab.ip("client", &["addr", "add", "10.77.0.100/24", "dev", "c0"]);
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![subnet(100, 101)], &events);
    let lease = udhcpc(&lab, &["-r", "10.77.0.100"]).expect("a lease");
    assert_eq!(value(&lease, "ip"), Some("10.77.0.101"));
}

#[test]
fn dhclient_gets_an_address() {
    if !ready(&["dhclient", "ip"]) {
        return;
    }
    let lab = lab();
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![subnet(100, 200)], &events);
    std::fs::write(lab.directory.path().join("leases.client"), "").unwrap();
    let common = ["dhclient", "-1", "-d", "-v", "-sf", "/bin/true", "-lf", "leases.client"];
    let rest = ["-pf", "client.pid", "-cf", "/dev/null", "c0"];
    // -d keeps it in the foreground, so it has to be killed. A busy machine needs more time.
    let mut output = String::new();
    for seconds in ["6", "12", "24"] {
        let arguments = [&["timeout", seconds], &common[..], &rest].concat();
        output = lab.run("client", &arguments).1;
        if output.contains("bound to") {
            break;
        }
    }
    assert!(output.contains("bound to 10.77.0.1"), "{output}");
    let leases = std::fs::read_to_string(lab.directory.path().join("leases.client")).unwrap();
    assert!(leases.contains("option routers 10.77.0.1;"), "{leases}");
}

#[test]
fn dhcpcd_gets_an_address() {
    if !ready(&["dhcpcd", "ip"]) {
        return;
    }
    let lab = lab();
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![subnet(100, 200)], &events);
    let arguments = ["timeout", "8", "dhcpcd", "-4", "-T", "-d", "-A", "-f", "/dev/null", "c0"];
    let (_, output) = lab.run("client", &arguments);
    assert!(
        output.contains("offered 10.77.0.") || output.contains("new_ip_address='10.77.0."),
        "{output}"
    );
}

/// Checks that a machine behind this relay agent gets an address of its own subnet.
fn check_relay(relay: &[&str]) {
    if !ready(&["udhcpc", relay[0], "ip"]) {
        return;
    }
    let mut lab = NetworkLab::new(&["server", "relay", "client"]);
    lab.cable(("server", "s0"), ("relay", "r0"));
    lab.cable(("relay", "r1"), ("client", "c0"));
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    lab.ip("relay", &["addr", "add", "10.77.0.2/24", "dev", "r0"]);
    lab.ip("relay", &["addr", "add", "10.88.0.1/24", "dev", "r1"]);
    lab.ip("server", &["route", "add", "10.88.0.0/24", "via", "10.77.0.2"]);
    lab.spawn("relay", relay);
    let mut far = Dhcp4Subnet::new(Ipv4Addr::new(10, 88, 0, 0), 24, DhcpMode::Discover);
    far.ranges = vec![(Ipv4Addr::new(10, 88, 0, 50), Ipv4Addr::new(10, 88, 0, 60))];
    let events = Arc::new(RecordedEvents::default());
    let _server = serve(&lab, vec![subnet(100, 200), far], &events);
    let lease = udhcpc(&lab, &["-t", "8"]).expect("a lease");
    let given: Ipv4Addr = value(&lease, "ip").unwrap().parse().unwrap();
    assert!((50..=60).contains(&given.octets()[3]) && given.octets()[1] == 88, "{given}");
}

#[test]
fn works_with_the_relay_agent_of_dnsmasq() {
    let quiet = ["dnsmasq", "-k", "-p", "0", "--conf-file=/dev/null", "--pid-file"];
    check_relay(&[&quiet[..], &["--dhcp-relay=10.88.0.1,10.77.0.1"]].concat());
}

#[test]
fn works_with_the_relay_agent_of_isc_and_echoes_its_option() {
    // With -a it adds option 82 and drops replies without it.
    let arguments = ["-4", "-d", "-q", "-a", "-iu", "r0", "-id", "r1", "--no-pid", "10.77.0.1"];
    check_relay(&[&["dhcrelay"], &arguments[..]].concat());
}

/// Returns the DHCPDISCOVER of 64-bit UEFI firmware with this MAC address.
pub(crate) fn pxe_discover(mac: [u8; 6]) -> Dhcp4Packet {
    let hardware = HardwareAddress::ethernet(mac);
    let mut packet = Dhcp4Packet::request(Dhcp4MessageType::Discover, 0x1234, hardware);
    packet.broadcast = true;
    packet.options.set(option_code::VENDOR_CLASS, "PXEClient:Arch:00007:UNDI:003000");
    packet.options.set(option_code::ARCHITECTURE, 7_u16.to_be_bytes());
    packet
}

#[test]
fn dhclient_gets_a_v6_address_and_the_boot_url() {
    if !ready(&["dhclient", "ip"]) {
        return;
    }
    let lab = lab();
    lab.ip("server", &["addr", "add", "2001:db8:77::1/64", "dev", "s0", "nodad"]);
    // Link-local addresses must not wait for duplicate detection.
    for (namespace, link, address) in
        [("server", "s0", "fe80::1/64"), ("client", "c0", "fe80::2/64")]
    {
        lab.ip(namespace, &["addr", "add", address, "dev", link, "nodad"]);
    }
    let events = Arc::new(RecordedEvents::default());
    let mut subnet =
        dhcp6::Dhcp6Subnet::new("2001:db8:77::".parse().unwrap(), 64, DhcpMode::Discover);
    subnet.range = Some(("2001:db8:77::100".parse().unwrap(), "2001:db8:77::1ff".parse().unwrap()));
    subnet.dns = vec!["2001:db8:77::1".parse().unwrap()];
    let settings = dhcp6::Dhcp6Settings {
        duid: vec![0, 3, 0, 1, 2, 0, 0, 0, 0, 1],
        interfaces: vec![dhcp6::Dhcp6Interface {
            name: "s0".into(),
            address: "2001:db8:77::1".parse().unwrap(),
        }],
        subnets: vec![subnet],
        ignored: Default::default(),
        first_stage_loaders: Default::default(),
    };
    let services = services(&events);
    let store = DhcpLeaseFile::new(lab.directory.path().join("leases6"));
    let _server = lab.serve("server", move || {
        let leases = dhcp6::DhcpLeases6::load(Box::new(store)).unwrap();
        dhcp6::Dhcp6Listener::bind(settings, leases, services).unwrap().run()
    });
    std::fs::write(lab.directory.path().join("leases.client"), "").unwrap();
    std::fs::write(
        lab.directory.path().join("client.conf"),
        "option dhcp6.arch code 61 = unsigned integer 16;\n\
         option dhcp6.bootfile-url code 59 = text;\n\
         send dhcp6.arch 7;\nalso request dhcp6.bootfile-url;\n",
    )
    .unwrap();
    let common = ["timeout", "8", "dhclient", "-6", "-1", "-d", "-v", "-sf", "/bin/true"];
    let rest = ["-lf", "leases.client", "-pf", "client.pid", "-cf", "client.conf", "c0"];
    let (_, output) = lab.run("client", &[&common[..], &rest].concat());
    let leases = std::fs::read_to_string(lab.directory.path().join("leases.client"));
    let leases = leases.unwrap_or_default();
    assert!(leases.contains("iaaddr 2001:db8:77::1"), "{leases}\n{output}");
    assert!(leases.contains("tftp://[2001:db8:77::1]/snponly.efi"), "{leases}\n{output}");
}
