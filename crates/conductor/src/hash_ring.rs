// SPDX-License-Identifier: Apache-2.0
//! Assigns nodes to conductors by rendezvous hashing.

use std::time::Duration;

use node_model::{ConductorInfo, Node, NodeId};
use store::StoreReader;

use crate::ConductorSettings;

/// The conductors that share the database and have renewed their registration recently.
pub(crate) fn alive_conductors(
    reader: &mut StoreReader<'_>,
    settings: &ConductorSettings,
) -> Result<Vec<ConductorInfo>, store::StoreError> {
    let timeout = Duration::from_secs(settings.heartbeat_timeout);
    let now = reader.now();
    let mut conductors = reader.conductors()?;
    conductors.retain(|known| known.online && now.since(known.updated_at) <= timeout);
    Ok(conductors)
}

/// The conductor that monitors a node: of those in its group and with its driver, the one with the
/// highest hash of host name and node id. Every process computes the same result, and a conductor
/// that comes or leaves moves only its own share of nodes. Returns `None` if no conductor fits.
#[must_use]
pub fn conductor_of<'a>(
    node: &Node,
    conductors: impl IntoIterator<Item = &'a ConductorInfo>,
) -> Option<&'a str> {
    conductors
        .into_iter()
        .filter(|conductor| {
            conductor.conductor_group == node.conductor_group
                && conductor.drivers.contains(&node.driver)
        })
        .map(|conductor| conductor.hostname.as_str())
        .max_by_key(|hostname| weight(hostname, node.id))
}

/// FNV-1a over host name and node id, with a final multiplication so that similar names spread.
fn weight(hostname: &str, node: NodeId) -> u64 {
    let bytes = hostname.bytes().chain(node.0.into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use node_model::Timestamp;

    use super::*;

    fn conductor(hostname: &str, drivers: &[&str]) -> ConductorInfo {
        ConductorInfo {
            hostname: hostname.to_owned(),
            run: None,
            version: None,
            conductor_group: String::new(),
            drivers: drivers.iter().map(|driver| (*driver).to_owned()).collect(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            online: true,
        }
    }

    #[test]
    fn spreads_nodes_evenly_and_moves_only_those_of_a_leaving_conductor() {
        let three: Vec<_> =
            ["a", "b", "c"].iter().map(|name| conductor(name, &["fake-hardware"])).collect();
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..3000 {
            let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
            let owner = conductor_of(&node, &three).unwrap();
            *counts.entry(owner).or_insert(0) += 1;
            if owner != "c" {
                assert_eq!(conductor_of(&node, &three[..2]), Some(owner));
            }
        }
        assert!(counts.values().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn returns_none_if_no_conductor_has_the_driver() {
        let node = Node::new(NodeId::random(), "redfish", Timestamp(0));
        assert_eq!(conductor_of(&node, &[conductor("a", &["fake-hardware"])]), None);
    }
}
