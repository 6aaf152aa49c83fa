// SPDX-License-Identifier: Apache-2.0
//! Finds the node of a host by UUID, name or MAC address.

use ironic_client::QueryString;
use serde_json::Value;

use super::super::outcome::VerbOutcome;
use super::super::requests::ManagedHost;
use super::calls::IronicCalls;
use super::node::NodeResponse;

/// A port of a node.
pub(super) struct NodePort {
    pub(super) uuid: String,
    /// MAC address in lower case.
    pub(super) address: String,
}

/// Name of the node of a host.
pub(super) fn node_name(host: &ManagedHost) -> String {
    format!("{}~{}", host.namespace, host.name)
}

/// Whether the name of a node is that of another host. A node without such a name may have been renamed
/// by an administrator.
fn is_of_another_host(node: &NodeResponse, host: &ManagedHost) -> bool {
    node.name.as_ref().is_some_and(|name| name.contains('~') && *name != node_name(host))
}

impl IronicCalls<'_> {
    /// The node of a host, also if the host does not know its UUID; `None` if there is none.
    pub(super) async fn existing_node(
        &self,
        host: &ManagedHost,
    ) -> VerbOutcome<Option<NodeResponse>> {
        if let Some(node) = self.own_node(host).await? {
            return Ok(Some(node));
        }
        // Old versions of Metal3 named nodes without the namespace.
        if let Some(node) = self.find_node(&host.name).await? {
            return Ok(Some(node));
        }
        match &host.boot_mac_address {
            Some(mac) => self.node_with_mac(host, mac).await,
            None => Ok(None),
        }
    }

    /// The node with the UUID or the name of the host. A UUID of another host's node is ignored: users
    /// can write it with the status annotation.
    pub(super) async fn own_node(&self, host: &ManagedHost) -> VerbOutcome<Option<NodeResponse>> {
        if let Some(id) = &host.node_id
            && let Some(node) = self.find_node(id).await?
            && !is_of_another_host(&node, host)
        {
            return Ok(Some(node));
        }
        self.find_node(&node_name(host)).await
    }

    async fn node_with_mac(
        &self,
        host: &ManagedHost,
        mac: &str,
    ) -> VerbOutcome<Option<NodeResponse>> {
        let Some(id) = self.owner_of_mac(mac).await? else { return Ok(None) };
        let Some(node) = self.find_node(&id).await? else { return Ok(None) };
        // A node without a name was created by discovery. One with another name belongs to a host.
        match &node.name {
            Some(name) if *name != node_name(host) => Err(self.failed(format!(
                "MAC address {mac} conflicts with node {name}; correct spec.bootMACAddress or delete \
                 that node"
            ))),
            Some(_) | None => Ok(Some(node)),
        }
    }

    /// UUID of the node that has a port with this MAC address.
    pub(super) async fn owner_of_mac(&self, mac: &str) -> VerbOutcome<Option<String>> {
        let query = QueryString::new()
            .with("address", &mac.to_ascii_lowercase())
            .with("fields", "node_uuid,uuid,address");
        let ports = self.get(&query.append_to("/v1/ports")).await?;
        Ok(ports["ports"][0]["node_uuid"].as_str().map(str::to_owned))
    }

    /// The ports of a node.
    pub(super) async fn ports(&self, node: &NodeResponse) -> VerbOutcome<Vec<NodePort>> {
        let query = QueryString::new().with("node_uuid", &node.uuid).with("fields", "uuid,address");
        let ports = self.get(&query.append_to("/v1/ports")).await?;
        let ports = ports["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let port = |port: &Value| {
            let uuid = port["uuid"].as_str().unwrap_or_default().to_owned();
            Some(NodePort { uuid, address: port["address"].as_str()?.to_ascii_lowercase() })
        };
        Ok(ports.iter().filter_map(port).collect())
    }
}
