// SPDX-License-Identifier: Apache-2.0
//! Where the BMCs are that operators know by name.
//!
//! A ramdisk tells the number of its BMC. So that a node is found by it, names are looked up when
//! inspection is asked for, and what they stand for is kept with the node until it is asked again.

use std::net::IpAddr;
use std::time::Duration;

use inspection::lookup::lookup_addresses;
use node_model::Node;
use serde_json::Value;

/// The key of `driver_internal_info` under which the addresses are kept; Ironic's.
const KEPT: &str = "lookup_bmc_addresses";

/// How long a name may take to be looked up: whoever asked waits for it.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most addresses that are kept.
const MOST: usize = 32;

/// The addresses of a node's BMC, names as they are and what they stand for. A name that cannot be
/// looked up stands for itself only: that is no reason to refuse an inspection.
pub(crate) async fn resolve(node: &Node) -> Vec<String> {
    let mut addresses = lookup_addresses(node);
    let names: Vec<String> =
        addresses.iter().filter(|text| text.parse::<IpAddr>().is_err()).cloned().collect();
    for name in names {
        let found = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((name.as_str(), 0)));
        match found.await {
            Ok(Ok(found)) => {
                for address in found.map(|address| address.ip().to_canonical()) {
                    let text = address.to_string();
                    if !address.is_loopback() && !addresses.contains(&text) {
                        addresses.push(text);
                    }
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(node = %node.id, name, %error, "the name of a BMC cannot be looked up");
            }
            Err(_) => {
                tracing::warn!(node = %node.id, name, "the name of a BMC takes too long to look up");
            }
        }
    }
    addresses.truncate(MOST);
    addresses
}

/// Keeps the addresses with the node.
pub(crate) fn keep(node: &mut Node, addresses: &[String]) {
    node.driver_internal_info.edit(|info| {
        if addresses.is_empty() {
            info.remove(KEPT);
        } else {
            info.insert(KEPT.to_owned(), addresses.iter().cloned().map(Value::from).collect());
        }
    });
}

/// The addresses a node's BMC is known by: those that were kept, and those it has now.
pub(crate) fn known(node: &Node) -> Vec<String> {
    let mut addresses = lookup_addresses(node);
    if let Some(Value::Array(kept)) = node.driver_internal_info.get(KEPT) {
        addresses.extend(kept.iter().filter_map(Value::as_str).map(str::to_owned));
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
    async fn numbers_stay_and_loopback_says_nothing() {
        let mut node = node(json!({
            "ipmi_address": "10.0.0.5", "redfish_address": "https://localhost:8000",
            "other_address": "no-such-name.invalid",
        }));
        let found = resolve(&node).await;
        assert_eq!(found, ["10.0.0.5", "no-such-name.invalid"]);
        keep(&mut node, &["192.0.2.7".to_owned()]);
        assert!(known(&node).contains(&"192.0.2.7".to_owned()));
        keep(&mut node, &[]);
        assert_eq!(known(&node), found);
    }
}
