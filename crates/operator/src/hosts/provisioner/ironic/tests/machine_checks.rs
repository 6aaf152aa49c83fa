// SPDX-License-Identifier: Apache-2.0
//! Hosts whose node the service lost: the machine behind the address is compared with the inspected one.

use serde_json::json;

use super::recording::{fixture, show};
use crate::hosts::provisioner::{HostProvisioner, RegistrationRequest};

/// The service lost its database. Until then it kept the old address of a host whose new one was rejected.
#[tokio::test]
async fn a_node_is_created_again_only_for_the_inspected_machine() {
    let (known, other) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
    let found = |mac: &str| json!({"serial_number": "A1", "mac_addresses": [mac]});
    let inspected =
        RegistrationRequest { nic_mac_addresses: vec![known.to_owned()], ..Default::default() };
    let accepts = RegistrationRequest { accepts_replaced_machine: true, ..inspected.clone() };
    let replaced = RegistrationRequest { has_other_nics: true, ..inspected.clone() };
    let new = RegistrationRequest::default();
    for (request, response, expected) in [
        (&inspected, found(known), "started"),
        (&inspected, found(other), "failed spec.bmc.address leads to another machine"),
        (&accepts, found(other), "started"),
        (&replaced, found(other), "started"),
        (&new, found(other), "started"),
        // The BMC lists no NICs.
        (&inspected, json!({}), "started"),
        // Another Ironic.
        (&inspected, json!(404), "started"),
        (&inspected, json!(504), "failed the machine at spec.bmc.address cannot be identified"),
    ] {
        let service = fixture(None, &[("POST /v1/ferrite/bmc-identity", response.clone())]);
        let attempt = service.provisioner.register(&service.host, request).await;
        let shown = show(&attempt.node_id);
        assert!(shown.starts_with(expected), "{request:?} {response}: {shown}");
        let is_created = service.changes().iter().any(|line| line.starts_with("POST /v1/nodes"));
        assert_eq!(is_created, expected == "started", "{request:?} {response}");
        let is_accepted = attempt.address_change.is_some();
        assert_eq!(is_accepted, request.accepts_replaced_machine, "{request:?}");
    }
}
