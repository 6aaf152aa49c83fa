// SPDX-License-Identifier: Apache-2.0
//! Clients on a link with packet loss in both directions.

use std::sync::Arc;

use super::dhcp::{serve, subnet, udhcpc, value};
use super::lab::{NetworkLab, RecordedEvents, ready};
use super::tftp;

/// Returns a server and a client namespace, between which every `nth` packet is lost. The loss is not random,
/// so that the tests are deterministic.
fn lab(nth: u32) -> NetworkLab {
    let lab = NetworkLab::new(&["server", "wire", "client"]);
    lab.cable(("server", "s0"), ("wire", "w0"));
    lab.cable(("wire", "w1"), ("client", "c0"));
    lab.ip("wire", &["link", "add", "b0", "type", "bridge"]);
    for port in ["w0", "w1"] {
        lab.ip("wire", &["link", "set", port, "master", "b0"]);
    }
    lab.ip("wire", &["link", "set", "b0", "up"]);
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    // nftables instead of netem, which few kernels of virtual machines have.
    let rules = format!(
        "add table netdev loss; \
         add chain netdev loss in {{ type filter hook ingress devices = {{ w0, w1 }} priority 0; }}; \
         add rule netdev loss in numgen inc mod {nth} 0 drop"
    );
    let (succeeded, output) = lab.run("wire", &["nft", &rules]);
    assert!(succeeded, "{output}");
    lab
}

#[test]
fn a_client_gets_its_lease_with_20_percent_loss() {
    if !ready(&["udhcpc", "nft", "ip"]) {
        return;
    }
    let lab = lab(5);
    let _server = serve(&lab, vec![subnet(100, 200)], &Arc::new(RecordedEvents::default()));
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let lease = udhcpc(&lab, &["-t", "20"]).expect("a lease");
        addresses.push(value(&lease, "ip").unwrap().to_owned());
    }
    // Repeated requests lead to the same lease.
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

fn check_transfer(program: &str, arguments: &[&str]) {
    if !ready(&[program, "nft", "ip"]) {
        return;
    }
    let lab = lab(10);
    lab.ip("client", &["addr", "add", "10.77.0.2/24", "dev", "c0"]);
    let _server =
        tftp::serve(&lab, "10.77.0.1:69", "s0", 200_123, &Arc::new(RecordedEvents::default()));
    let (_, output) = lab.run("client", &[&[program], arguments].concat());
    let fetched = std::fs::read(lab.directory.path().join("fetched")).unwrap_or_default();
    let original = std::fs::read(lab.directory.path().join("root/kernel")).unwrap();
    assert!(fetched == original, "{} bytes of {}; {output}", fetched.len(), original.len());
}

#[test]
fn tftp_hpa_fetches_a_file_with_10_percent_loss() {
    check_transfer("tftp", &["-m", "binary", "10.77.0.1", "-c", "get", "kernel", "fetched"]);
}

#[test]
fn curl_fetches_a_file_with_10_percent_loss() {
    check_transfer("curl", &["-sS", "-o", "fetched", "tftp://10.77.0.1/kernel"]);
}
