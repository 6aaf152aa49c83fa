// SPDX-License-Identifier: Apache-2.0
//! Resolves the host names of BMCs.
//!
//! A ramdisk reports the IP address of its BMC. To find the node by it, host names are resolved when an
//! inspection is requested, and the addresses are stored on the node until the next inspection.

use std::net::IpAddr;
use std::time::Duration;

use inspection::lookup::node_bmc_addresses;
use node_model::Node;
use serde_json::Value;

/// The key of `driver_internal_info` with the addresses, as in Ironic.
const ADDRESSES_KEY: &str = "lookup_bmc_addresses";

/// The timeout per name: the client waits for the response.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

/// The maximum number of stored addresses.
const MAX_ADDRESSES: usize = 32;

/// The names and addresses of a node's BMC, with the addresses of the names. A name that cannot be
/// resolved does not prevent the inspection.
pub(crate) async fn resolve(node: &Node) -> Vec<String> {
    let mut addresses = node_bmc_addresses(node);
    let names: Vec<String> =
        addresses.iter().filter(|text| text.parse::<IpAddr>().is_err()).cloned().collect();
    for name in names {
        let resolved =
            tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name.as_str(), 0)));
        match resolved.await {
            Ok(Ok(resolved)) => {
                for address in resolved.map(|address| address.ip().to_canonical()) {
                    let text = address.to_string();
                    if !address.is_loopback() && !addresses.contains(&text) {
                        addresses.push(text);
                    }
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(node = %node.id, bmc = name, %error, "BMC host name could not be resolved");
            }
            Err(_) => {
                tracing::warn!(node = %node.id, bmc = name, timeout = ?RESOLVE_TIMEOUT, "BMC host name could not be resolved in time");
            }
        }
    }
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// Stores the addresses on the node.
pub(crate) fn store(node: &mut Node, addresses: &[String]) {
    node.driver_internal_info.edit(|info| {
        if addresses.is_empty() {
            info.remove(ADDRESSES_KEY);
        } else {
            info.insert(
                ADDRESSES_KEY.to_owned(),
                addresses.iter().cloned().map(Value::from).collect(),
            );
        }
    });
}

/// The addresses of a node's BMC: the stored and the current ones.
pub(crate) fn known(node: &Node) -> Vec<String> {
    let mut addresses = node_bmc_addresses(node);
    if let Some(Value::Array(stored)) = node.driver_internal_info.get(ADDRESSES_KEY) {
        addresses.extend(stored.iter().filter_map(Value::as_str).map(str::to_owned));
    }
    addresses
}

#[cfg(test)]
mod tests {
    use node_model::{NodeId, Timestamp};
    use serde_json::json;

    use super::*;

    fn node(driver_info: Value) -> Node {
        let mut node = Node::new(NodeId::random(), "ipmi", Timestamp(0));
        node.driver_info = driver_info.as_object().unwrap().clone().into();
        node
    }

    #[tokio::test]
    async fn resolves_names_and_ignores_loopback() {
        let mut node = node(json!({
            "ipmi_address": "10.0.0.5", "redfish_address": "https://localhost:8000",
            "other_address": "no-such-name.invalid",
        }));
        let resolved = resolve(&node).await;
        assert_eq!(resolved, ["10.0.0.5", "no-such-name.invalid"]);
        store(&mut node, &["192.0.2.7".to_owned()]);
        assert!(known(&node).contains(&"192.0.2.7".to_owned()));
        store(&mut node, &[]);
        assert_eq!(known(&node), resolved);
    }
}
