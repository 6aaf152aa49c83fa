// SPDX-License-Identifier: Apache-2.0
//! Which node a report is about.
//!
//! The caller asks the database for nodes by the addresses named here, and [`choose`] decides. A
//! wrong answer would write one machine's hardware into another's node, so whatever is ambiguous
//! is refused. The ramdisk is told the same in every case: only the log learns why.

use node_model::{Mac, Node, NodeId, ProvisionState};
use serde_json::Value;

use crate::Report;
use crate::address::{is_loopback, is_unspecified, parse_address};

/// A node that the database found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which.
    pub id: NodeId,
    /// Where it stands; only a node in `inspect wait` can be chosen.
    pub state: ProvisionState,
}

/// Why no node was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoMatch {
    /// Nobody knows this machine. The only case in which it may be enrolled as a new one.
    #[error(
        "no node has these MAC or BMC addresses; enroll the machine, or create ports with its MAC addresses"
    )]
    Unknown,
    /// It says that it is a node which does not exist.
    #[error("it says it is node {0}, which does not exist; boot it anew")]
    NoSuchNode(NodeId),
    /// Its MAC addresses belong to several nodes.
    #[error("its MAC addresses belong to several nodes ({}); delete the ports that are on the wrong one", list(.0))]
    SeveralByMac(Vec<NodeId>),
    /// Its MAC addresses belong to another node than the one it says it is.
    #[error(
        "it says it is node {named}, but its MAC addresses belong to node {by_mac}; check the ports of both"
    )]
    NamedOther {
        /// Which it says.
        named: NodeId,
        /// Whose addresses it has.
        by_mac: NodeId,
    },
    /// The node is not being inspected.
    #[error(
        "node {node} is in state {state}, not waiting for inspection data; start inspection first"
    )]
    NotWaiting {
        /// The node.
        node: NodeId,
        /// Where it stands.
        state: ProvisionState,
    },
    /// Its BMC address belongs to other nodes than its MAC addresses.
    #[error("its MAC addresses belong to node {node}, but its BMC address to {}; check ports and driver_info", list(.by_bmc))]
    BmcOfOther {
        /// Whose MAC addresses it has.
        node: NodeId,
        /// Whose BMC address it has.
        by_bmc: Vec<NodeId>,
    },
    /// Several nodes share its BMC address and no port tells them apart.
    #[error("several nodes ({}) have its BMC address; create ports with its MAC addresses", list(.0))]
    SeveralByBmc(Vec<NodeId>),
}

/// The valid hardware addresses of the report, without repetitions: ports with these are wanted.
#[must_use]
pub fn candidate_macs(report: &Report) -> Vec<Mac> {
    let mut macs = Vec::new();
    for mac in report.interfaces().filter_map(|interface| interface.mac_address.parse().ok()) {
        if !macs.contains(&mac) {
            macs.push(mac);
        }
    }
    macs
}

/// The addresses of the BMC according to the report, in their normal form.
#[must_use]
pub fn bmc_addresses(report: &Report) -> Vec<String> {
    ["bmc_address", "bmc_v6address"]
        .iter()
        .filter_map(|key| report.inventory().get(*key)?.as_str())
        .filter(|address| !address.is_empty() && !is_unspecified(address))
        .map(normal_form)
        .collect()
}

/// The addresses under which a node's BMC is known: every member of `driver_info` that ends in
/// `_address`, host part only, in normal form. Names are not resolved here; the caller adds what
/// they resolve to. Loopback says nothing, and neither does an IPMI address that leads to the
/// machine over a bridge.
#[must_use]
pub fn lookup_addresses(node: &Node) -> Vec<String> {
    let driver_info = node.driver_info.parse();
    let bridged =
        matches!(driver_info.get("ipmi_bridging").and_then(Value::as_str), Some("single" | "dual"));
    let mut addresses = Vec::new();
    for (key, value) in &driver_info {
        let Some(value) = value.as_str().filter(|_| key.ends_with("_address")) else { continue };
        let host = host_of(value);
        if host.is_empty() || is_loopback(host) || (bridged && key.starts_with("ipmi_")) {
            continue;
        }
        let address = normal_form(host);
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// Decides which node the report is about: the one it names, the one with its MAC addresses, or
/// the one with its BMC address, as long as these agree.
///
/// # Errors
/// If there is none, or more than one could be meant.
pub fn choose(
    named: Option<Candidate>,
    by_mac: &[Candidate],
    by_bmc: &[Candidate],
) -> Result<NodeId, NoMatch> {
    let by_mac = distinct(by_mac);
    let mut known = named;
    match by_mac.as_slice() {
        [] => {}
        [one] => {
            if let Some(named) = named.filter(|named| named.id != one.id) {
                return Err(NoMatch::NamedOther { named: named.id, by_mac: one.id });
            }
            known = Some(*one);
        }
        several => return Err(NoMatch::SeveralByMac(several.iter().map(|node| node.id).collect())),
    }
    if let Some(node) = known.filter(|node| node.state != ProvisionState::InspectWait) {
        return Err(NoMatch::NotWaiting { node: node.id, state: node.state });
    }

    // The BMC is compared even when the node is known already: a node enrolled with the BMC
    // address of another would otherwise be given that machine's hardware.
    let mut by_bmc: Vec<NodeId> = distinct(by_bmc)
        .iter()
        .filter(|node| node.state == ProvisionState::InspectWait)
        .map(|node| node.id)
        .collect();
    match known {
        Some(node) if by_bmc.is_empty() || by_bmc.contains(&node.id) => Ok(node.id),
        Some(node) => Err(NoMatch::BmcOfOther { node: node.id, by_bmc }),
        None if by_bmc.len() > 1 => Err(NoMatch::SeveralByBmc(by_bmc)),
        None => by_bmc.pop().ok_or(NoMatch::Unknown),
    }
}

/// The host of `https://user@[fe80::1]:443/path`, of `[fe80::1]` and of a bare address.
fn host_of(address: &str) -> &str {
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

fn normal_form(host: &str) -> String {
    parse_address(host).map_or_else(|| host.to_ascii_lowercase(), |address| address.to_string())
}

fn distinct(candidates: &[Candidate]) -> Vec<Candidate> {
    let mut distinct: Vec<Candidate> = Vec::new();
    for candidate in candidates {
        if distinct.iter().all(|known| known.id != candidate.id) {
            distinct.push(*candidate);
        }
    }
    distinct
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use node_model::Timestamp;

    use super::*;

    fn node(number: u128, state: ProvisionState) -> Candidate {
        Candidate { id: NodeId(uuid::Uuid::from_u128(number)), state }
    }

    /// A name, the node the report names, nodes by MAC, nodes by BMC, and the choice.
    type Choice<'a> =
        (&'a str, Option<Candidate>, &'a [Candidate], &'a [Candidate], Result<NodeId, NoMatch>);

    #[test]
    fn choices() {
        use ProvisionState::{InspectWait as Wait, Manageable};
        let (a, b, idle) = (node(1, Wait), node(2, Wait), node(3, Manageable));
        let cases: [Choice<'_>; 14] = [
            ("nothing known", None, &[], &[], Err(NoMatch::Unknown)),
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
                Err(NoMatch::SeveralByBmc(vec![a.id, b.id])),
            ),
            (
                "bmc of other",
                None,
                &[a],
                &[b],
                Err(NoMatch::BmcOfOther { node: a.id, by_bmc: vec![b.id] }),
            ),
            ("macs of two", None, &[a, b], &[], Err(NoMatch::SeveralByMac(vec![a.id, b.id]))),
            (
                "not waiting",
                None,
                &[idle],
                &[],
                Err(NoMatch::NotWaiting { node: idle.id, state: Manageable }),
            ),
            ("bmc of idle node is nobody's", None, &[], &[idle], Err(NoMatch::Unknown)),
            ("named", Some(a), &[], &[], Ok(a.id)),
            (
                "named other",
                Some(a),
                &[b],
                &[],
                Err(NoMatch::NamedOther { named: a.id, by_mac: b.id }),
            ),
            (
                "named, idle",
                Some(idle),
                &[],
                &[],
                Err(NoMatch::NotWaiting { node: idle.id, state: Manageable }),
            ),
        ];
        for (name, named, by_mac, by_bmc, expected) in cases {
            assert_eq!(choose(named, by_mac, by_bmc), expected, "{name}");
        }
    }

    #[test]
    fn addresses_of_a_node() {
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
            assert_eq!(lookup_addresses(&node), expected, "{driver_info}");
        }
    }

    #[test]
    fn addresses_of_a_report() {
        let body = r#"{"inventory":{"bmc_address":"0.0.0.0","bmc_v6address":"2001:DB8::1",
            "interfaces":[{"mac_address":"52-54-00-AA-BB-01"},{"mac_address":"52:54:00:aa:bb:01"},{"mac_address":"?"}]}}"#;
        let report = Report::parse(body.as_bytes()).unwrap();
        assert_eq!(bmc_addresses(&report), ["2001:db8::1"]);
        assert_eq!(candidate_macs(&report), ["52:54:00:aa:bb:01".parse().unwrap()]);
    }
}
