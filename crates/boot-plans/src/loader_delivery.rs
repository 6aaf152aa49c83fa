// SPDX-License-Identifier: Apache-2.0
//! Which clients get the secrets of a boot plan with the script of a MAC address.
//!
//! Firmware loads scripts without authentication, by MAC address. A script with the agent token is
//! delivered only to the address that this process leased to a NIC of the node. Other clients get the
//! script without the token, or none if the key of the plan leads to the token.

use std::net::IpAddr;

use node_model::{BootPlan, BootPort, BootProof, BootPurpose, NodeId, Secret};

use crate::boot_service::has_own_image;
use crate::services::BootServices;

/// What a client gets of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoaderDelivery {
    /// The script with its secrets.
    Complete,
    /// The script without the token: the agent has to prove its boot with its address.
    WithoutSecrets,
    /// Nothing.
    Withheld,
}

impl BootServices {
    /// Returns what `client` gets of the plan. `None` is a client whose address is unknown.
    pub(crate) async fn loader_delivery(
        &self,
        port: &BootPort,
        plan: &BootPlan,
        client: Option<IpAddr>,
    ) -> Result<LoaderDelivery, store::StoreError> {
        if let Some(client) = client
            && self.is_machine_of(port, client).await?
        {
            self.record_token_delivery(plan, client).await?;
            return Ok(LoaderDelivery::Complete);
        }
        // The key of the plan is in every script.
        let key_leads_to_token = plan.purpose == BootPurpose::Installer
            || (has_own_image(plan.method) && plan.token().is_some());
        Ok(match (key_leads_to_token, self.0.required_proof) {
            (false, _) => LoaderDelivery::WithoutSecrets,
            (true, BootProof::None) => LoaderDelivery::Complete,
            (true, BootProof::Lease | BootProof::Secret) => LoaderDelivery::Withheld,
        })
    }

    /// Whether `client` holds a lease for a NIC of the same node.
    async fn is_machine_of(
        &self,
        port: &BootPort,
        client: IpAddr,
    ) -> Result<bool, store::StoreError> {
        let Some(mac) = self.lease_holder(client).await? else { return Ok(false) };
        if mac == port.mac {
            return Ok(true);
        }
        let found = self.boot_port(&mac).await?;
        Ok(found.is_some_and(|other| other.node_id == port.node_id))
    }

    /// Records that the machine got the token of its plan, and its address. A lookup does not issue
    /// another token then.
    async fn record_token_delivery(
        &self,
        plan: &BootPlan,
        client: IpAddr,
    ) -> Result<(), store::StoreError> {
        let Some(token) = plan.token() else { return Ok(()) };
        let (id, client): (NodeId, _) = (plan.node_id, client.to_canonical());
        let known = self.0.store.read(move |reader| reader.get(id)).await?;
        let is_recorded = known.is_some_and(|node| {
            node.agent.has_token
                && node.agent.token_pregenerated
                && node.agent.address == Some(client)
        });
        if is_recorded {
            return Ok(());
        }
        let (token, key) = (Secret::new(token.to_owned()), plan.key.clone());
        self.0
            .store
            .write(move |tx| {
                // A plan that was replaced in the meantime has another token.
                let plan = tx.boot_plan(id)?;
                let node = tx.get(id)?;
                let (Some(_), Some(mut node)) = (plan.filter(|plan| plan.key == key), node) else {
                    return Ok(());
                };
                let mut secrets = tx.reveal(&node)?;
                if secrets.agent_token.as_ref() != Some(&token) {
                    // Another client got a token by a lookup before the machine loaded its script.
                    secrets.agent_token = Some(token.clone());
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.replace(tx.now());
                }
                node.agent.address = Some(client);
                node.agent.proof = node.agent.proof.max(Some(BootProof::Lease));
                tx.save(&mut node)
            })
            .await
    }
}
