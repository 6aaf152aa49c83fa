// SPDX-License-Identifier: Apache-2.0
//! Finds the node that a report belongs to.
//!
//! The caller reads the nodes that have the report's addresses, and [`choose_node`] decides. A wrong
//! match would store one machine's hardware in another's node, so ambiguous reports are rejected.
//! The ramdisk receives the same response in every case; the reason is only logged.

use node_model::{Mac, Node, NodeId, ProvisionState};
use serde_json::Value;

use crate::HardwareReport;
use crate::address::{is_loopback, is_unspecified, parse_address};

/// A node that matches by id, MAC address or BMC address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupCandidate {
    /// The node.
    pub id: NodeId,
    /// Its state; only nodes in `inspect wait` can be chosen.
    pub state: ProvisionState,
}

/// The reason why no node was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No node matches. Only in this case the machine may be enrolled.
    #[error(
        "no node has these MAC or BMC addresses; enroll the machine, or create ports with its MAC addresses"
    )]
    Unknown,
    /// The node named in the report does not exist.
    #[error("the report names node {0}, which does not exist; boot the machine again")]
    NoSuchNode(NodeId),
    /// The MAC addresses belong to several nodes.
    #[error("its MAC addresses belong to several nodes ({}); delete the ports that are on the wrong one", join_node_ids(.0))]
    AmbiguousMac(Vec<NodeId>),
    /// The MAC addresses belong to another node than the one named in the report.
    #[error(
        "the report names node {named}, but its MAC addresses belong to node {by_mac}; check the ports of both"
    )]
    MacOfOtherNode {
        /// The node named in the report.
        named: NodeId,
        /// The node that has the MAC addresses.
        by_mac: NodeId,
    },
    /// The node is not being inspected.
    #[error(
        "node {node} is in state {state}, not waiting for inspection data; start inspection first"
    )]
    NotWaiting {
        /// The node.
        node: NodeId,
        /// Its state.
        state: ProvisionState,
    },
    /// The BMC address belongs to other nodes than the MAC addresses.
    #[error("its MAC addresses belong to node {node}, but its BMC address to {}; check ports and driver_info", join_node_ids(.by_bmc))]
    BmcOfOtherNode {
        /// The node that has the MAC addresses.
        node: NodeId,
        /// The nodes that have the BMC address.
        by_bmc: Vec<NodeId>,
    },
    /// Several nodes have the BMC address and no port distinguishes them.
    #[error("several nodes ({}) have its BMC address; create ports with its MAC addresses", join_node_ids(.0))]
    AmbiguousBmc(Vec<NodeId>),
}

/// Returns the valid MAC addresses of the report, without duplicates.
#[must_use]
pub fn candidate_macs(report: &HardwareReport) -> Vec<Mac> {
    let mut macs = Vec::new();
    for mac in report.interfaces().filter_map(|interface| interface.mac_address.parse().ok()) {
        if !macs.contains(&mac) {
            macs.push(mac);
        }
    }
    macs
}

/// Returns the BMC addresses of the report, normalized.
#[must_use]
pub fn bmc_addresses(report: &HardwareReport) -> Vec<String> {
    ["bmc_address", "bmc_v6address"]
        .iter()
        .filter_map(|key| report.inventory().get(*key)?.as_str())
        .filter(|address| !address.is_empty() && !is_unspecified(address))
        .map(normalize_host)
        .collect()
}

/// Returns the BMC addresses of a node: the host part of every member of `driver_info` that ends
/// in `_address`, normalized. Names are not resolved; the caller does that. Loopback addresses and
/// bridged IPMI addresses are ignored: they do not identify the machine.
#[must_use]
pub fn node_bmc_addresses(node: &Node) -> Vec<String> {
    let driver_info = node.driver_info.parse();
    let bridged =
        matches!(driver_info.get("ipmi_bridging").and_then(Value::as_str), Some("single" | "dual"));
    let mut addresses = Vec::new();
    for (key, value) in &driver_info {
        let Some(value) = value.as_str().filter(|_| key.ends_with("_address")) else { continue };
        let host = host_part(value);
        if host.is_empty() || is_loopback(host) || (bridged && key.starts_with("ipmi_")) {
            continue;
        }
        let address = normalize_host(host);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Chooses the node of a report: the one it names, the one with its MAC addresses, or the one with
/// its BMC address, if these agree.
///
/// # Errors
/// If no node or more than one node matches.
pub fn choose_node(
    named: Option<LookupCandidate>,
    by_mac: &[LookupCandidate],
    by_bmc: &[LookupCandidate],
) -> Result<NodeId, LookupError> {
    let by_mac = distinct(by_mac);
    let mut chosen = named;
    match by_mac.as_slice() {
        [] => {}
        [one] => {
            if let Some(named) = named.filter(|named| named.id != one.id) {
                return Err(LookupError::MacOfOtherNode { named: named.id, by_mac: one.id });
            }
            chosen = Some(*one);
        }
        several => {
            return Err(LookupError::AmbiguousMac(several.iter().map(|node| node.id).collect()));
        }
    }
    if let Some(node) = chosen.filter(|node| node.state != ProvisionState::InspectWait) {
        return Err(LookupError::NotWaiting { node: node.id, state: node.state });
    }

    // The BMC address is compared even if the node is already known: a node enrolled with another
    // machine's BMC address would otherwise receive that machine's hardware.
    let mut by_bmc: Vec<NodeId> = distinct(by_bmc)
        .iter()
        .filter(|node| node.state == ProvisionState::InspectWait)
        .map(|node| node.id)
        .collect();
    match chosen {
        Some(node) if by_bmc.is_empty() || by_bmc.contains(&node.id) => Ok(node.id),
        Some(node) => Err(LookupError::BmcOfOtherNode { node: node.id, by_bmc }),
        None if by_bmc.len() > 1 => Err(LookupError::AmbiguousBmc(by_bmc)),
        None => by_bmc.pop().ok_or(LookupError::Unknown),
    }
}

/// Returns the host of `https://user@[fe80::1]:443/path`, of `[fe80::1]` and of a bare address.
fn host_part(address: &str) -> &str {
    let Some((_, rest)) = address.split_once("//") else {
        return address.trim_matches(['[', ']']);
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let host = authority.rsplit('@').next().unwrap_or(authority);
    match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or(bracketed),
        None => host.split(':').next().unwrap_or(host),
    }
}

fn normalize_host(host: &str) -> String {
    parse_address(host).map_or_else(|| host.to_ascii_lowercase(), |address| address.to_string())
}

fn distinct(candidates: &[LookupCandidate]) -> Vec<LookupCandidate> {
    let mut distinct: Vec<LookupCandidate> = Vec::new();
    for candidate in candidates {
        if distinct.iter().all(|known| known.id != candidate.id) {
            distinct.push(*candidate);
        }
    }
    distinct
}

fn join_node_ids(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use node_model::Timestamp;

    use super::*;

    fn node(number: u128, state: ProvisionState) -> LookupCandidate {
        LookupCandidate { id: NodeId(uuid::Uuid::from_u128(number)), state }
    }

    /// Name of the case, named node, nodes by MAC, nodes by BMC, expected result.
    type ChoiceCase<'a> = (
        &'a str,
        Option<LookupCandidate>,
        &'a [LookupCandidate],
        &'a [LookupCandidate],
        Result<NodeId, LookupError>,
    );

    #[test]
    fn chooses_node_only_if_ids_and_addresses_agree() {
        use ProvisionState::{InspectWait as Wait, Manageable};
        let (a, b, idle) = (node(1, Wait), node(2, Wait), node(3, Manageable));
        let cases: [ChoiceCase<'_>; 14] = [
            ("nothing known", None, &[], &[], Err(LookupError::Unknown)),
            ("by mac", None, &[a], &[], Ok(a.id)),
            ("several ports of one node", None, &[a, a], &[], Ok(a.id)),
            ("by bmc", None, &[], &[b], Ok(b.id)),
            ("mac and bmc agree", None, &[a], &[a], Ok(a.id)),
            ("shared bmc, mac decides", None, &[a], &[b, a], Ok(a.id)),
            (
                "shared bmc, no mac",
                None,
                &[],
                &[a, b],
                Err(LookupError::AmbiguousBmc(vec![a.id, b.id])),
            ),
            (
                "bmc of other",
                None,
                &[a],
                &[b],
                Err(LookupError::BmcOfOtherNode { node: a.id, by_bmc: vec![b.id] }),
            ),
            ("macs of two", None, &[a, b], &[], Err(LookupError::AmbiguousMac(vec![a.id, b.id]))),
            (
                "not waiting",
                None,
                &[idle],
                &[],
                Err(LookupError::NotWaiting { node: idle.id, state: Manageable }),
            ),
            ("bmc of idle node is ignored", None, &[], &[idle], Err(LookupError::Unknown)),
            ("named", Some(a), &[], &[], Ok(a.id)),
            (
                "named other",
                Some(a),
                &[b],
                &[],
                Err(LookupError::MacOfOtherNode { named: a.id, by_mac: b.id }),
            ),
            (
                "named, idle",
                Some(idle),
                &[],
                &[],
                Err(LookupError::NotWaiting { node: idle.id, state: Manageable }),
            ),
        ];
        for (name, named, by_mac, by_bmc, expected) in cases {
            assert_eq!(choose_node(named, by_mac, by_bmc), expected, "{name}");
        }
    }

    #[test]
    fn extracts_bmc_addresses_from_driver_info() {
        for (driver_info, expected) in [
            (r#"{"ipmi_address":"10.0.0.5","ipmi_port":"623"}"#, vec!["10.0.0.5"]),
            (r#"{"redfish_address":"https://BMC-1.example:8443/redfish"}"#, vec!["bmc-1.example"]),
            (r#"{"redfish_address":"https://[2001:DB8:0::5]:443"}"#, vec!["2001:db8::5"]),
            (r#"{"x_address":"[fe80::1]"}"#, vec!["fe80::1"]),
            (r#"{"ipmi_address":"127.0.0.1","redfish_address":"http://localhost:8000"}"#, vec![]),
            (r#"{"ipmi_address":"10.0.0.5","ipmi_bridging":"single"}"#, vec![]),
            (r#"{"ipmi_address":7,"address":"10.0.0.6"}"#, vec![]),
        ] {
            let mut node = Node::new(NodeId::random(), "ipmi", Timestamp(0));
            node.driver_info = node_model::JsonObject::from_stored(driver_info);
            assert_eq!(node_bmc_addresses(&node), expected, "{driver_info}");
        }
    }

    #[test]
    fn extracts_addresses_from_report() {
        let body = r#"{"inventory":{"bmc_address":"0.0.0.0","bmc_v6address":"2001:DB8::1",
            "interfaces":[{"mac_address":"52-54-00-AA-BB-01"},{"mac_address":"52:54:00:aa:bb:01"},{"mac_address":"?"}]}}"#;
        let report = HardwareReport::parse(body.as_bytes()).unwrap();
        assert_eq!(bmc_addresses(&report), ["2001:db8::1"]);
        assert_eq!(candidate_macs(&report), ["52:54:00:aa:bb:01".parse().unwrap()]);
    }
}
