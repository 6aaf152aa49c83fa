// SPDX-License-Identifier: Apache-2.0
//! Clients on a cable that loses packets in both directions.

use std::sync::Arc;

use super::dhcp::{serve, subnet, udhcpc, value};
use super::lab::{Lab, Seen, ready};
use super::tftp;

/// Server and client with every `nth` packet lost on the way, whichever way it goes. Not at random: a
/// test must not fail because of bad luck.
fn lab(nth: u32) -> Lab {
    let lab = Lab::new(&["server", "wire", "client"]);
    lab.cable(("server", "s0"), ("wire", "w0"));
    lab.cable(("wire", "w1"), ("client", "c0"));
    lab.ip("wire", &["link", "add", "b0", "type", "bridge"]);
    for port in ["w0", "w1"] {
        lab.ip("wire", &["link", "set", port, "master", "b0"]);
    }
    lab.ip("wire", &["link", "set", "b0", "up"]);
    lab.ip("server", &["addr", "add", "10.77.0.1/24", "dev", "s0"]);
    // Not netem: few kernels of virtual machines have it, and all have nftables.
    let rules = format!(
        "add table netdev loss; \
         add chain netdev loss in {{ type filter hook ingress devices = {{ w0, w1 }} priority 0; }}; \
         add rule netdev loss in numgen inc mod {nth} 0 drop"
    );
    let (succeeded, said) = lab.run("wire", &["nft", &rules]);
    assert!(succeeded, "{said}");
    lab
}

#[test]
fn a_client_gets_its_lease_when_a_fifth_of_all_packets_is_lost() {
    if !ready(&["udhcpc", "nft", "ip"]) {
        return;
    }
    let lab = lab(5);
    let _serving = serve(&lab, vec![subnet(100, 200)], &Arc::new(Seen::default()));
    let mut addresses = Vec::new();
    for _ in 0..3 {
        let told = udhcpc(&lab, &["-t", "20"]).expect("a lease");
        addresses.push(value(&told, "ip").unwrap().to_owned());
    }
    // What was lost is asked for again, and leads to the same lease.
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "{addresses:?}");
}

fn check_transfer(program: &str, arguments: &[&str]) {
    if !ready(&[program, "nft", "ip"]) {
        return;
    }
    let lab = lab(10);
    lab.ip("client", &["addr", "add", "10.77.0.2/24", "dev", "c0"]);
    let _serving = tftp::serve(&lab, "10.77.0.1:69", "s0", 200_123, &Arc::new(Seen::default()));
    let (_, said) = lab.run("client", &[&[program], arguments].concat());
    let fetched = std::fs::read(lab.folder.path().join("fetched")).unwrap_or_default();
    let original = std::fs::read(lab.folder.path().join("root/kernel")).unwrap();
    assert!(fetched == original, "{} bytes of {}; {said}", fetched.len(), original.len());
}

#[test]
fn tftp_hpa_fetches_a_file_when_a_tenth_of_all_packets_is_lost() {
    check_transfer("tftp", &["-m", "binary", "10.77.0.1", "-c", "get", "kernel", "fetched"]);
}

#[test]
fn curl_fetches_a_file_when_a_tenth_of_all_packets_is_lost() {
    check_transfer("curl", &["-sS", "-o", "fetched", "tftp://10.77.0.1/kernel"]);
}
