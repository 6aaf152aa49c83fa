// SPDX-License-Identifier: Apache-2.0
//! The container that assigns virtual addresses.

use kube_resources::ironic::address_range::CidrNetwork;
use kube_resources::ironic::service::IronicSpec;
use serde_json::{Value, json};

use super::DesiredInput;

/// Name of the container, as in Metal3's operator.
pub(super) const KEEPALIVED_CONTAINER: &str = "keepalived";
/// User and group of Metal3's image.
const USER: i64 = 65532;

/// The container, if virtual addresses are enabled.
pub(super) fn container(input: &DesiredInput<'_>) -> Option<Value> {
    let spec = &input.ironic.spec;
    let environment = environment(spec)?;
    let image = spec.images.keepalived.as_deref().unwrap_or(&input.settings.keepalived_image);
    Some(json!({
        "name": KEEPALIVED_CONTAINER,
        "image": image,
        "env": environment,
        "securityContext": {
            "runAsUser": USER,
            "runAsGroup": USER,
            "privileged": false,
            // The program has file capabilities.
            "allowPrivilegeEscalation": true,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_BROADCAST", "NET_RAW"]},
        },
    }))
}

fn environment(spec: &IronicSpec) -> Option<Value> {
    let networking = &spec.networking;
    let (address, interface) = (networking.ip_address.as_ref()?, networking.interface.as_ref()?);
    if networking.ip_address_manager.is_some() {
        return Some(json!([
            {"name": "PROVISIONING_IP", "value": address},
            {"name": "PROVISIONING_INTERFACE", "value": interface},
        ]));
    }
    let keepalived = networking.keepalived.as_ref().filter(|keepalived| keepalived.enabled)?;
    // With the prefix of the network DHCP finds the network of the address.
    let network = networking.dhcp.as_ref().and_then(|dhcp| dhcp.network_cidr.as_deref());
    let prefix = network.and_then(CidrNetwork::parse).map(|network| i32::from(network.prefix));
    let entry = |address: &str, interface: &str, prefix: Option<i32>| {
        let prefix = prefix.map(|prefix| format!(",{prefix}")).unwrap_or_default();
        format!("{address},{interface}{prefix}")
    };
    let more = keepalived
        .additional_vips
        .iter()
        .map(|more| entry(&more.ip_address, &more.interface, more.prefix));
    let all: Vec<String> = std::iter::once(entry(address, interface, prefix)).chain(more).collect();
    Some(json!([{"name": "KEEPALIVED_VIRTUAL_IPS", "value": all.join(" ")}]))
}
