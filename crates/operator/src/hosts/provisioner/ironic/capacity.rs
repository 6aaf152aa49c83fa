// SPDX-License-Identifier: Apache-2.0
//! How many operations may run at once. The nodes are listed at most once per period, however many
//! hosts need it.

use std::collections::BTreeSet;
use std::time::Duration;

use ironic_client::QueryString;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::outcome::VerbOutcome;
use super::super::requests::ManagedHost;
use super::calls::IronicCalls;
use super::node::NodeResponse;

/// How long a list of busy nodes is used.
const PERIOD: Duration = Duration::from_secs(10);
const PAGE_LIMIT: &str = "1000";

/// Nodes that use the provisioning network.
#[derive(Default)]
pub(super) struct CapacityCache {
    listed: Mutex<Option<BusyNodes>>,
}

struct BusyNodes {
    read_at: Instant,
    /// UUIDs of busy nodes, and of those that were admitted since.
    uuids: BTreeSet<String>,
}

impl CapacityCache {
    /// Whether an operation may start on the host. If so, it is counted.
    pub(super) async fn admits(
        &self,
        calls: &IronicCalls<'_>,
        host: &ManagedHost,
    ) -> VerbOutcome<bool> {
        let boots_over_network =
            host.bmc.as_ref().is_none_or(|bmc| !bmc.address.bmc_type.boots_iso);
        let Some(id) = host.node_id.as_ref().filter(|_| boots_over_network) else {
            return Ok(true);
        };
        let mut listed = self.listed.lock().await;
        let is_current = listed.as_ref().is_some_and(|nodes| nodes.read_at.elapsed() < PERIOD);
        if !is_current {
            *listed = Some(BusyNodes { read_at: Instant::now(), uuids: busy_nodes(calls).await? });
        }
        let Some(nodes) = listed.as_mut() else { return Ok(true) };
        let is_admitted =
            nodes.uuids.contains(id) || nodes.uuids.len() < calls.settings.provisioning_limit;
        if is_admitted {
            nodes.uuids.insert(id.clone());
        }
        Ok(is_admitted)
    }
}

async fn busy_nodes(calls: &IronicCalls<'_>) -> VerbOutcome<BTreeSet<String>> {
    let mut busy = BTreeSet::new();
    let first = QueryString::new()
        .with("fields", "uuid,name,provision_state,boot_interface")
        .with("limit", PAGE_LIMIT);
    let mut query = first.clone();
    loop {
        let page = calls.get(&query.append_to("/v1/nodes")).await?;
        let nodes = page["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let parsed = nodes.iter().filter_map(NodeResponse::parse);
        let is_busy = |node: &NodeResponse| {
            node.provision_state.uses_ramdisk()
                && !node.boot_interface.as_deref().is_some_and(boots_iso)
        };
        busy.extend(parsed.filter(is_busy).map(|node| node.uuid));
        let last = nodes.last().and_then(|node| node["uuid"].as_str());
        match (page["next"].as_str(), last) {
            (Some(_), Some(last)) => query = first.clone().with("marker", last),
            _ => return Ok(busy),
        }
    }
}

/// Whether a boot interface needs no provisioning network.
fn boots_iso(boot_interface: &str) -> bool {
    boot_interface.contains("virtual-media") || boot_interface == "redfish-https"
}

impl NodeResponse {
    fn parse(node: &Value) -> Option<Self> {
        serde_json::from_value(node.clone()).ok()
    }
}
