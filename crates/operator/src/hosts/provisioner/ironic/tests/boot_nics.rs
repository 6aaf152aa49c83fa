// SPDX-License-Identifier: Apache-2.0
//! Changed boot NICs, and inspections that wait for the agent of another machine.

use std::sync::Arc;
use std::time::Duration;

use kube_resources::hosts::annotations::{ACCEPT_REPLACED_MACHINE, RETRY_NOW};
use serde_json::{Value, json};

use super::recording::{Recording, fixture, show};
use crate::hosts::decide::tests::lab::HostLab;
use crate::hosts::provisioner::{HostProvisioner, RegistrationRequest};

/// A host whose inspection waits for an agent, and the service with its node.
fn waiting_inspection(boot_mac: &str) -> (HostLab, Arc<Recording>) {
    let port = json!({"ports": [{"uuid": "p1", "address": "52:54:00:00:00:01"}]});
    let node = json!({"provision_state": "inspect wait", "power_state": "power off"});
    let ports = ("GET /v1/ports?node_uuid=n1&fields=uuid,address", port);
    let service = fixture(Some(node), &[ports]);
    let spec = json!({ "bootMACAddress": boot_mac });
    let mut lab = HostLab::new(Arc::new(service.provisioner), spec);
    lab.host.metadata.finalizers = Some(vec!["baremetalhost.metal3.io".to_owned()]);
    lab.host.status = serde_json::from_value(json!({"operationalStatus": "OK",
        "triedCredentials": {"credentials": {"name": "bmc", "namespace": "lab"},
            "credentialsVersion": "1"},
        "provisioning": {"state": "inspecting", "ID": "n1"}}))
    .unwrap();
    (lab, service.recording)
}

/// The targets of the provision state and the ports that were requested.
fn requested(recording: &Recording) -> Vec<String> {
    let changes = recording.changes.lock().unwrap();
    let show = |(line, body): &(String, Value)| match line.as_str() {
        "POST /v1/ports" => Some(format!("port {}", body["address"].as_str().unwrap())),
        "PUT NODE/states/provision" => Some(body["target"].as_str().unwrap().to_owned()),
        _ => None,
    };
    changes.iter().filter_map(show).collect()
}

#[tokio::test]
async fn another_boot_mac_address_starts_the_inspection_again() {
    for is_accepted in [false, true] {
        let (mut lab, recording) = waiting_inspection("52:54:00:00:00:02");
        if is_accepted {
            lab.annotate(ACCEPT_REPLACED_MACHINE, "");
        }
        lab.pass().await;
        assert_eq!(requested(&recording), ["abort"], "{is_accepted}");
        *recording.node.lock().unwrap().as_mut().unwrap() = json!({"uuid": "n1",
            "name": "lab~host-1", "driver": "redfish", "automated_clean": true,
            "driver_info": {"redfish_address": "https://192.0.2.1", "redfish_username": "admin",
                "redfish_system_id": "/redfish/v1/Systems/1"},
            "provision_state": "inspect failed", "last_error": "the inspection was aborted"});
        lab.now += Duration::from_secs(10);
        lab.pass().await;
        let expected = ["abort", "port 52:54:00:00:00:02", "inspect"];
        assert_eq!(requested(&recording), expected, "{is_accepted}");
    }
    // Nothing is aborted for a known address.
    let (mut lab, recording) = waiting_inspection("52:54:00:00:00:01");
    lab.pass().await;
    assert_eq!(requested(&recording), [""; 0]);
}

#[tokio::test]
async fn retry_now_starts_a_waiting_inspection_again() {
    let (mut lab, recording) = waiting_inspection("52:54:00:00:00:01");
    lab.annotate(RETRY_NOW, "");
    lab.pass().await;
    assert_eq!(requested(&recording), ["abort"]);
    assert!(!lab.has_annotation(RETRY_NOW));
    lab.now += Duration::from_secs(10);
    lab.pass().await;
    assert_eq!(requested(&recording), ["abort"], "once");
    {
        let mut node = recording.node.lock().unwrap();
        let node = node.as_mut().unwrap();
        node["provision_state"] = json!("inspect failed");
        node["last_error"] = json!("Inspection was aborted by request.");
    }
    lab.now += Duration::from_secs(10);
    lab.pass().await;
    assert_eq!(requested(&recording), ["abort", "inspect"]);
}

#[tokio::test]
async fn a_deletion_aborts_a_waiting_inspection_at_once() {
    for mac in ["52:54:00:00:00:01", "52:54:00:00:00:02"] {
        let (mut lab, recording) = waiting_inspection(mac);
        // The ports of a machine that was replaced cannot be changed now.
        lab.host.status.as_mut().unwrap().conditions = serde_json::from_value(json!([{
            "type": "BMCAddressVerified", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-11-17T10:00:00Z"}]))
        .unwrap();
        lab.delete();
        lab.pass().await;
        assert_eq!(lab.state(), "powering off before delete");
        assert_eq!(requested(&recording), ["abort"], "{mac}");
    }
}

#[tokio::test]
async fn the_boot_nic_of_a_replaced_machine_is_rejected() {
    let (old, new) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
    let expected = "failed spec.bootMACAddress 52:54:00:00:00:01 is a NIC of the replaced machine";
    for (state, boot, found, outcome) in [
        ("available", old, json!({"mac_addresses": [new]}), expected),
        // It is inspected only after its image was removed.
        ("active", old, json!({"mac_addresses": [new]}), "done"),
        ("available", old, json!({"mac_addresses": [new, old]}), "done"),
        ("available", new, json!({"mac_addresses": [new]}), "done"),
        // It is a NIC that the BMC may not list.
        ("available", "52:54:00:00:00:03", json!({"mac_addresses": [new]}), "done"),
        ("available", old, json!({"mac_addresses": []}), "done"),
        ("available", old, json!(404), "done"),
        ("available", old, json!(504), "done"),
    ] {
        let identity = ("POST /v1/ferrite/bmc-identity", found.clone());
        let mut service = fixture(Some(json!({ "provision_state": state })), &[identity]);
        service.set_address("redfish-virtualmedia://192.0.2.9/redfish/v1/Systems/1");
        service.host.boot_mac_address = Some(boot.to_owned());
        let request = RegistrationRequest {
            accepts_replaced_machine: true,
            has_other_nics: true,
            nic_mac_addresses: vec![old.to_owned()],
            ..Default::default()
        };
        let attempt = service.provisioner.register(&service.host, &request).await;
        let shown = show(&attempt.node_id);
        assert!(shown.starts_with(outcome), "{boot} {found}: {shown}");
        let is_patched = service.changes().iter().any(|change| change.contains("redfish_address"));
        assert_eq!(is_patched, outcome == "done", "{boot} {found}");
    }
}
