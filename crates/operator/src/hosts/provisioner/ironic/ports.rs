// SPDX-License-Identifier: Apache-2.0
//! Ports of a node: the boot NIC and the NICs that inspection found.

use ironic_client::percent_encode;
use serde_json::json;

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{ManagedHost, RegistrationRequest};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};

impl IronicCalls<'_> {
    /// Creates the ports that are missing, and removes those of a machine that was replaced.
    pub(super) async fn ensure_ports(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
        node: &NodeResponse,
    ) -> VerbOutcome<()> {
        if request.leaves_ports {
            return Ok(());
        }
        if request.has_other_nics {
            return self.replace_ports(host, node).await;
        }
        let boot = host.boot_mac_address.as_deref().map(str::to_ascii_lowercase);
        let mut wanted: Vec<String> =
            request.nic_mac_addresses.iter().map(|mac| mac.to_ascii_lowercase()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|mac| Some(mac) != boot.as_ref());
        let is_inspected =
            matches!(node.provision_state, NodeState::Inspecting | NodeState::InspectWait);
        let needs_check = match is_inspected {
            true => boot.is_some(),
            false => boot.is_some() || !wanted.is_empty(),
        };
        if !needs_check || !(is_inspected || node.provision_state.accepts_ports()) {
            return Ok(());
        }
        let existing = self.ports(node).await?;
        let existing: Vec<&String> = existing.iter().map(|port| &port.address).collect();
        let missing = boot.filter(|mac| !existing.contains(&mac));
        if is_inspected {
            return match missing {
                Some(_) => Err(self.end_inspection(node).await),
                None => Ok(()),
            };
        }
        if let Some(boot) = missing {
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

    /// Removes all ports but that of the boot NIC. The inspection finds the other NICs.
    async fn replace_ports(&self, host: &ManagedHost, node: &NodeResponse) -> VerbOutcome<()> {
        let boot = host.boot_mac_address.as_deref().map(str::to_ascii_lowercase);
        let existing = self.ports(node).await?;
        let (kept, removed): (Vec<_>, Vec<_>) =
            existing.into_iter().partition(|port| Some(&port.address) == boot.as_ref());
        let missing = boot.filter(|_| kept.is_empty());
        if missing.is_none() && removed.is_empty() {
            return Ok(());
        }
        if node.provision_state == NodeState::Other {
            return Err(self.wrong_state(node, "the replacement of the ports"));
        }
        if missing.is_some() && node.provision_state == NodeState::InspectWait {
            return Err(self.end_inspection(node).await);
        }
        if !node.provision_state.accepts_ports() {
            return Err(VerbStop::running(ProvisionerWaitReason::StateChange, node.step()));
        }
        if let Some(boot) = missing {
            self.create_boot_port(node, &boot).await?;
        }
        for port in removed {
            let path = format!("/v1/ports/{}", percent_encode(&port.uuid));
            match self.delete_request(&path, None).await {
                Ok(()) => {}
                Err(error) if error.status == Some(404) => {}
                // The service keeps a port that a running system uses.
                Err(error)
                    if error.status == Some(409) && node.provision_state == NodeState::Active => {}
                Err(error) => return Err(self.stop(error)),
            }
        }
        Ok(())
    }

    /// Ends an inspection that waits for an agent with another MAC address. It starts again after the
    /// registration.
    async fn end_inspection(&self, node: &NodeResponse) -> VerbStop {
        if node.provision_state == NodeState::InspectWait {
            return self.abort(node).await;
        }
        node.running(ProvisionerWaitReason::StateChange)
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
