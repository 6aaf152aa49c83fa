// SPDX-License-Identifier: Apache-2.0
//! Ports of a node: the boot NIC and the NICs that inspection found.

use serde_json::json;

use super::super::outcome::{VerbOutcome, VerbStop};
use super::super::requests::{ManagedHost, RegistrationRequest};
use super::calls::IronicCalls;
use super::node::NodeResponse;

impl IronicCalls<'_> {
    /// Creates the ports that are missing.
    pub(super) async fn ensure_ports(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
        node: &NodeResponse,
    ) -> VerbOutcome<()> {
        let boot = host.boot_mac_address.as_deref().map(str::to_ascii_lowercase);
        let mut wanted: Vec<String> =
            request.nic_mac_addresses.iter().map(|mac| mac.to_ascii_lowercase()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|mac| Some(mac) != boot.as_ref());
        if !node.provision_state.accepts_ports() || (boot.is_none() && wanted.is_empty()) {
            return Ok(());
        }
        let existing = self.port_addresses(node).await?;
        if let Some(boot) = boot.filter(|mac| !existing.contains(mac)) {
            self.create_boot_port(node, &boot).await?;
        }
        for mac in wanted.iter().filter(|mac| !existing.contains(mac)) {
            // Bonds and SR-IOV can make an address appear twice; only the boot NIC is required.
            match self.create_port(node, mac, false).await {
                Ok(()) | Err(VerbStop::Busy { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn create_boot_port(&self, node: &NodeResponse, mac: &str) -> VerbOutcome<()> {
        match self.create_port(node, mac, true).await {
            Err(VerbStop::Busy { reason }) => match self.owner_of_mac(mac).await? {
                Some(owner) if owner == node.uuid => Ok(()),
                Some(owner) => Err(self.failed(format!(
                    "MAC address {mac} is used by node {owner}; correct spec.bootMACAddress or delete \
                     that node"
                ))),
                None => Err(VerbStop::Busy { reason }),
            },
            other => other,
        }
    }

    async fn create_port(&self, node: &NodeResponse, mac: &str, is_boot: bool) -> VerbOutcome<()> {
        let body = json!({"node_uuid": node.uuid, "address": mac, "pxe_enabled": is_boot});
        self.post("/v1/ports", &body).await.map(|_| ())
    }
}
