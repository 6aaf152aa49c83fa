// SPDX-License-Identifier: Apache-2.0
//! The provisioning network: addresses by interface, and DHCP of one and of two servers, with udhcpc as client.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ServerProcess};

use crate::test_database::{EndToEndDatabase, SERVER_VARIABLES};
use crate::test_namespaces::{TestNamespaces, can_use_namespaces};
use crate::test_process::{TestHome, ferrite, output_of};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const SERVER_MAC: &str = "02:fe:00:00:00:01";
/// Settings with the address of the interface, for one server or several.
const SETTINGS: &str = r#"
[api]
listen = "{provisioning_host}:6385"
auth = "none"
tls.mode = "off"
[boot]
listen = ["{provisioning_host}:6180"]
[[dhcp.networks]]
interface = "{provisioning_interface}"
address = "{provisioning_address}/{provisioning_prefix}"
mode = "all"
ranges = ["10.88.0.100-10.88.0.119"]
"#;

fn serve_command(home: &TestHome, settings: &str) -> Command {
    let config = home.path("ferrite.toml");
    std::fs::write(&config, settings).unwrap();
    let mut command = ferrite();
    command.arg("serve").arg("--config").arg(config).arg("--data-dir").arg(home.path("data"));
    command
}

/// Runs udhcpc on an interface of the clients' namespace. Returns the address and the server that it prints.
fn udhcpc(namespaces: &TestNamespaces, interface: &str, more: &[&str]) -> (String, String) {
    let common =
        ["udhcpc", "-i", interface, "-f", "-n", "-q", "-t", "10", "-T", "1", "-s", "/bin/true"];
    let (_, output) = namespaces.run("clients", &[&common, more].concat());
    let words: Vec<&str> = output.split([' ', ',', '\n']).collect();
    let after = |word: &str| {
        let found = words.iter().position(|other| *other == word);
        found.and_then(|index| words.get(index + 2)).map(|text| (*text).to_owned())
    };
    match (after("lease"), after("obtained")) {
        (Some(address), Some(server)) => (address, server),
        _ => panic!("{interface} got no lease: {output}"),
    }
}

#[test]
fn addresses_are_found_by_mac_address_when_they_appear() {
    if !can_use_namespaces(&["ip", "udhcpc", "curl"]) {
        return;
    }
    let namespaces = TestNamespaces::new(&["server", "clients"]);
    namespaces.cable(("server", "s0"), ("clients", "c0"));
    namespaces.ip("server", &["link", "set", "s0", "address", SERVER_MAC]);
    let home = TestHome::new();
    let settings = format!("[provisioning]\nmac_addresses = [\"{SERVER_MAC}\"]\n{SETTINGS}");
    let mut command = namespaces.wrap("server", &serve_command(&home, &settings));
    let server = std::thread::scope(|scope| {
        let starting = scope.spawn(|| ServerProcess::start(&mut command, &home.path("log")));
        // The address comes later, as that of keepalived.
        let deadline = Instant::now() + TIMEOUT;
        while !home.log().contains("waiting for the provisioning address") {
            assert!(Instant::now() < deadline && !starting.is_finished(), "{}", home.log());
            std::thread::sleep(POLL_INTERVAL);
        }
        namespaces.ip("server", &["addr", "add", "10.88.0.1/24", "dev", "s0"]);
        starting.join().unwrap().unwrap_or_else(|error| panic!("{error}"))
    });
    assert_eq!(server.url(), "http://10.88.0.1:6385");
    let (address, from) = udhcpc(&namespaces, "c0", &[]);
    assert!(address.starts_with("10.88.0.1"), "{address}");
    assert_eq!(from, "10.88.0.1", "an unknown machine gets an address");
    namespaces.ip("clients", &["addr", "add", &format!("{address}/24"), "dev", "c0"]);
    for url in ["http://10.88.0.1:6385/v1", "http://10.88.0.1:6180/boot.ipxe"] {
        let (ok, output) = namespaces.run("clients", &["curl", "--fail", "--silent", url]);
        assert!(ok, "{url}: {output}");
    }
    // Not on other addresses.
    let (ok, _) = namespaces.run("server", &["curl", "--silent", "http://127.0.0.1:6385/v1"]);
    assert!(!ok, "the API listens on loopback");
}

#[test]
fn a_missing_interface_is_reported_with_those_of_the_host() {
    let home = TestHome::new();
    let settings = format!("[provisioning]\ninterface = \"nowhere0\"\ntimeout = 1\n{SETTINGS}");
    let output = output_of(&mut serve_command(&home, &settings));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("this host does not have the interface nowhere0"), "{error}");
    assert!(error.contains("interfaces of this host: lo"), "{error}");
    assert!(!home.path("data").exists(), "the data directory was created");
    // Without the section the placeholders have no value.
    let output = output_of(&mut serve_command(&home, SETTINGS));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("set provisioning.interface"), "{error}");
}

/// A machine resolves the name of the server and, through the resolvers of the host, all others. The upstream
/// resolver is dnsmasq.
#[test]
fn machines_resolve_names_through_the_server() {
    if !can_use_namespaces(&["ip", "udhcpc", "dnsmasq", "busybox"]) {
        return;
    }
    let namespaces = TestNamespaces::new(&["server", "clients"]);
    namespaces.cable(("server", "s0"), ("clients", "c0"));
    namespaces.ip("server", &["addr", "add", "10.88.0.1/24", "dev", "s0"]);
    let mut resolver = Command::new("dnsmasq");
    resolver.args([
        "--keep-in-foreground",
        "--no-resolv",
        "--no-hosts",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--port=5353",
        "--listen-address=127.0.0.1",
        "--bind-interfaces",
        "--address=/outside.example/203.0.113.9",
    ]);
    let mut resolver = namespaces.wrap("server", &resolver).spawn().unwrap();
    let home = TestHome::new();
    let settings = format!(
        "[provisioning]\ninterface = \"s0\"\n{SETTINGS}serve_dns = true\n\
         [dns]\nresolvers = [\"127.0.0.1:5353\"]\nnames = [\"boot.lab.example\"]\n"
    );
    let mut command = namespaces.wrap("server", &serve_command(&home, &settings));
    let _server = ServerProcess::start(&mut command, &home.path("log"))
        .unwrap_or_else(|error| panic!("{error}"));
    let script = home.path("lease.sh");
    std::fs::write(&script, "#!/bin/sh\necho \"dns=$dns\"\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = script.display().to_string();
    let (_, lease) = namespaces.run(
        "clients",
        &["udhcpc", "-i", "c0", "-f", "-n", "-q", "-t", "10", "-T", "1", "-s", &script],
    );
    assert!(lease.contains("dns=10.88.0.1"), "{lease}");
    namespaces.ip("clients", &["addr", "add", "10.88.0.100/24", "dev", "c0"]);
    for (name, expected) in [("boot.lab.example", "10.88.0.1"), ("outside.example", "203.0.113.9")]
    {
        let (_, output) =
            namespaces.run("clients", &["busybox", "nslookup", "-type=a", name, "10.88.0.1"]);
        let addresses: Vec<&str> =
            output.lines().filter_map(|line| line.strip_prefix("Address: ")).collect();
        assert!(addresses.contains(&expected), "{name}: {output}");
    }
    // A host outside the network gets no response.
    namespaces.ip("clients", &["addr", "add", "198.51.100.7/32", "dev", "c0"]);
    namespaces.ip("server", &["route", "add", "198.51.100.7/32", "dev", "s0"]);
    namespaces.ip("clients", &["addr", "del", "10.88.0.100/24", "dev", "c0"]);
    namespaces.ip("clients", &["route", "add", "10.88.0.1/32", "dev", "c0"]);
    let (found, output) = namespaces.run(
        "clients",
        &["timeout", "2", "busybox", "nslookup", "-type=a", "boot.lab.example", "10.88.0.1"],
    );
    assert!(!found, "{output}");
    resolver.kill().unwrap();
    resolver.wait().unwrap();
}

/// Two servers on one network and one database: clients get different addresses, and keep them when the server
/// that assigned them is killed.
#[test]
fn two_servers_share_dhcp_leases() {
    const CLIENTS: u8 = 8;
    if !can_use_namespaces(&["ip", "udhcpc"]) {
        return;
    }
    for variable in SERVER_VARIABLES {
        let Some(database) = EndToEndDatabase::create(variable) else { continue };
        let namespaces = TestNamespaces::new(&["one", "two", "clients"]);
        namespaces.ip("clients", &["link", "add", "br0", "type", "bridge"]);
        namespaces.ip("clients", &["link", "set", "br0", "up"]);
        let in_bridge = |interface: &str| {
            namespaces.ip("clients", &["link", "set", interface, "master", "br0"]);
        };
        for (number, name) in ["one", "two"].iter().enumerate() {
            let port = format!("p{number}");
            namespaces.cable((name, "s0"), ("clients", &port));
            in_bridge(&port);
            let address = format!("10.88.0.{}/24", number + 1);
            namespaces.ip(name, &["addr", "add", &address, "dev", "s0"]);
        }
        let clients: Vec<String> = (0..CLIENTS).map(|number| format!("c{number}")).collect();
        for (number, client) in clients.iter().enumerate() {
            let port = format!("b{number}");
            namespaces.cable(("clients", client), ("clients", &port));
            in_bridge(&port);
        }
        let homes = [TestHome::new(), TestHome::new()];
        let key = output_of(ferrite().args(["secrets", "new-key"])).stdout;
        let start = |number: usize, name: &str| {
            let settings = format!("[provisioning]\ninterface = \"s0\"\n{SETTINGS}");
            let url = database.forwarded(|server| namespaces.forward_to(name, server));
            let mut command = serve_command(&homes[number], &settings);
            command.env("FERRITE_DATABASE__URL", url);
            command.env("FERRITE_CONDUCTOR__HOST", name);
            command.env("FERRITE_SECRETS__KEY_VARIABLE", "TEST_KEYS");
            command.env("TEST_KEYS", String::from_utf8(key.clone()).unwrap().trim());
            let mut command = namespaces.wrap(name, &command);
            ServerProcess::start(&mut command, &homes[number].path("log"))
                .unwrap_or_else(|error| panic!("{error}"))
        };
        let (one, _two) = (start(0, "one"), start(1, "two"));

        let leases: Vec<(String, String)> = std::thread::scope(|scope| {
            let running: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| udhcpc(&namespaces, client, &[])))
                .collect();
            running.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let addresses: BTreeSet<&str> = leases.iter().map(|(address, _)| &**address).collect();
        assert_eq!(addresses.len(), clients.len(), "{variable}: {leases:?}");

        // Both servers list all leases, whichever assigned them.
        for home in &homes {
            let mut client = ProbeClient::on_socket(&home.path("data/ferrite.sock"));
            let listed = client.send("GET", "/v1/ferrite/dhcp", None).unwrap().json();
            let listed: BTreeSet<&str> = listed["leases"]
                .as_array()
                .unwrap()
                .iter()
                .map(|lease| lease["address"].as_str().unwrap())
                .collect();
            assert_eq!(listed, addresses, "{variable}");
        }

        one.kill().unwrap();
        for (client, (address, _)) in clients.iter().zip(&leases) {
            let again = udhcpc(&namespaces, client, &["-r", address]);
            assert_eq!(again, (address.clone(), "10.88.0.2".to_owned()), "{variable} {client}");
        }
    }
}
