// SPDX-License-Identifier: Apache-2.0
//! Changes of the BMC address of hosts, with a real service and simulated machines.

use kube_resources::hosts::annotations::{ACCEPT_REPLACED_MACHINE, FORCE_DELETE, INSPECT};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::hardware_data::HardwareData;
use operator::hosts::decide::BMC_ADDRESS_VERIFIED;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::hosts_lab::{error_of, is_on, state_of};
use crate::hosts_service_lab::ServiceLab;

const SCHEME: &str = "redfish-virtualmedia";

/// Status, reason and message of the condition.
fn verified(host: &BareMetalHost) -> (String, String, String) {
    let mut conditions = host.status.iter().flat_map(|status| &status.conditions);
    let found = conditions.find(|condition| condition.type_ == BMC_ADDRESS_VERIFIED).cloned();
    found.map(|found| (found.status, found.reason, found.message)).unwrap_or_default()
}

/// Another address of the BMC of machine 0.
async fn second_address(lab: &ServiceLab) -> String {
    let bmc = lab.machine(0).address();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect(bmc).await {
                    // Either side may close the connection.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    lab.address(0, SCHEME).replace(&bmc.to_string(), &address.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_bmc_address_is_verified() {
    let Some(lab) = ServiceLab::start("bmc-address", 2).await else { return };
    let (first, second) = (lab.address(0, SCHEME), second_address(&lab).await);
    let set = async |address: &str| {
        lab.hosts.edit("a", json!({"bmc": {"address": address}})).await;
    };
    let node_has = async |address: &str| {
        let node = lab.node("a").await;
        let known = node["driver_info"]["redfish_address"].as_str().unwrap().to_owned();
        let known = known.trim_start_matches("http://").to_owned();
        assert!(address.contains(&known), "{address} {known}");
    };
    lab.create("a", 0, SCHEME, json!({})).await;
    let is_settled = |host: &BareMetalHost, state: &str| {
        state_of(host) == state && is_on(host) && error_of(host).is_empty()
    };
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;

    // Another address of the same machine.
    set(&second).await;
    let host = lab.hosts.until("a", "verified", |host| verified(host).1 == "SameMachine").await;
    assert!(verified(&host).2.contains("serial number"), "{:?}", verified(&host));
    node_has(&second).await;

    // Another machine: the host keeps its address and works again once it is restored.
    set(&lab.address(1, SCHEME)).await;
    let host = lab.hosts.until("a", "rejected", |host| verified(host).0 == "False").await;
    assert!(error_of(&host).contains("leads to another machine: expected "), "{}", error_of(&host));
    assert_eq!(verified(&host).1, "DifferentMachine");
    node_has(&second).await;
    set(&second).await;
    lab.hosts.until("a", "restored", |host| verified(host).1 == "Unchanged").await;

    // During a deployment.
    lab.hosts.edit("a", lab.image("image.raw")).await;
    lab.hosts.until("a", "provisioning", |host| state_of(host) == "provisioning").await;
    set(&first).await;
    lab.hosts.until("a", "verified", |host| verified(host).1 == "SameMachine").await;
    lab.hosts.until("a", "provisioned", |host| is_settled(host, "provisioned")).await;
    node_has(&first).await;

    // The user states that the machine was replaced.
    set(&lab.address(1, SCHEME)).await;
    lab.hosts.until("a", "rejected", |host| verified(host).0 == "False").await;
    lab.hosts.annotate("a", ACCEPT_REPLACED_MACHINE, json!("")).await;
    let accepted = |host: &BareMetalHost| {
        verified(host).1 == "Accepted"
            && error_of(host).is_empty()
            && host.annotation(ACCEPT_REPLACED_MACHINE).is_none()
    };
    lab.hosts.until("a", "accepted", accepted).await;
    node_has(&lab.address(1, SCHEME)).await;
    // The image stays, and the machine is inspected once the image is removed.
    let host = lab.hosts.until("a", "request", |host| host.annotation(INSPECT).is_some()).await;
    assert_eq!(state_of(&host), "provisioned");
    // The agent of the other machine would not be recognised by its NICs, so nothing is erased.
    lab.hosts.annotate("a", FORCE_DELETE, json!("")).await;
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_machine_is_inspected_and_provisioned() {
    let Some(lab) = ServiceLab::start("replaced-machine", 2).await else { return };
    let is_settled = |host: &BareMetalHost, state: &str| {
        state_of(host) == state && is_on(host) && error_of(host).is_empty()
    };
    let serial_number = async || {
        let hardware = lab.hosts.namespace.api::<HardwareData>().get("a").await.unwrap();
        let hardware = hardware.spec.hardware.unwrap();
        hardware.system_vendor.serial_number.unwrap()
    };
    lab.create("a", 0, SCHEME, json!({})).await;
    lab.hosts.until("a", "available", |host| is_settled(host, "available")).await;
    let first = serial_number().await;

    let mac = lab.machine(1).macs().first().unwrap().to_string();
    let patch = json!({
        "metadata": {"annotations": {ACCEPT_REPLACED_MACHINE: ""}},
        "spec": {"bmc": {"address": lab.address(1, SCHEME)}, "bootMACAddress": mac},
    });
    lab.hosts.patch("a", patch).await;
    let is_inspected = |host: &BareMetalHost| {
        let hardware = host.status.as_ref().and_then(|status| status.hardware.as_ref());
        let vendor = hardware.map(|hardware| &hardware.system_vendor);
        is_settled(host, "available")
            && host.annotation(INSPECT).is_none()
            && vendor.is_some_and(|vendor| vendor.serial_number.as_ref() != Some(&first))
    };
    let host = lab.hosts.until("a", "inspection of the new machine", is_inspected).await;
    assert_eq!(verified(&host).1, "AcceptedAndInspected");
    assert_eq!(host.annotation(ACCEPT_REPLACED_MACHINE), None);
    assert_ne!(serial_number().await, first);
    let addresses = lab.port_addresses("a").await;
    let old = lab.machine(0).macs();
    assert!(addresses.contains(&mac.to_ascii_lowercase()), "{addresses:?}");
    assert!(old.iter().all(|mac| !addresses.contains(&mac.to_string())), "{addresses:?} {old:?}");

    lab.hosts.edit("a", lab.image("image.raw")).await;
    lab.hosts.until("a", "provisioned", |host| is_settled(host, "provisioned")).await;
    lab.hosts.delete("a").await;
    lab.hosts.until_gone("a").await;
    lab.end().await;
}
