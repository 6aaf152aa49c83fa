// SPDX-License-Identifier: Apache-2.0
//! Verifies that a new BMC address leads to the machine of the node, before the node gets the address.

use ironic_client::{Method, percent_encode};
use kube_resources::hosts::annotations::ACCEPT_REPLACED_MACHINE;
use serde_json::json;

use super::super::outcome::{ProvisionerFailureKind, VerbOutcome, VerbStop};
use super::super::requests::{BmcAccess, BmcAddressCheck, ManagedHost, RegistrationRequest};
use super::calls::IronicCalls;
use super::node::{NodeResponse, NodeState};
use super::transport::IronicTransportError;
use crate::hosts::decide::{
    HostIdentity, IdentityComparison, address_rejection, compare_identities,
};

/// What the rejection of an address means for a registered host, and for one whose node the service lost.
const OLD_ADDRESS_KEPT: &str = "the host keeps its old address";
const NODE_NOT_CREATED: &str = "its node is not created again";

impl IronicCalls<'_> {
    /// Compares the machine of the node with the one behind the new address. Only Ferrite can read which
    /// machine that is; another Ironic gets the address unverified, as from Metal3.
    pub(super) async fn check_machine(
        &self,
        node: &NodeResponse,
        host: &ManagedHost,
        bmc: &BmcAccess,
        request: &RegistrationRequest,
    ) -> VerbOutcome<BmcAddressCheck> {
        if request.accepts_replaced_machine {
            self.check_boot_nic(node, host, bmc, request).await?;
            return Ok(BmcAddressCheck::Accepted);
        }
        let found = match self.identify_or_fail(bmc, OLD_ADDRESS_KEPT).await? {
            Ok(found) => found,
            Err(reason) => return Ok(BmcAddressCheck::NotVerified { reason }),
        };
        match compare_identities(&known_identity(node, host, request), &found) {
            IdentityComparison::Same(identity) => Ok(BmcAddressCheck::SameMachine { identity }),
            other @ (IdentityComparison::Different { .. } | IdentityComparison::Unknown) => {
                let message = address_rejection(&other, OLD_ADDRESS_KEPT).unwrap_or_default();
                Err(VerbStop::failed(ProvisionerFailureKind::Identity, message))
            }
        }
    }

    /// Compares the machine behind the address with the one that was inspected, before its node is created
    /// again. The service lost the node, and the address may have been changed or rejected meanwhile. Only
    /// MAC addresses are compared: BMCs and operating systems report different serial numbers.
    pub(super) async fn check_inspected_machine(
        &self,
        bmc: &BmcAccess,
        request: &RegistrationRequest,
    ) -> VerbOutcome<Option<BmcAddressCheck>> {
        let inspected = &request.nic_mac_addresses;
        if inspected.is_empty() || request.has_other_nics || request.is_accepted_machine_unread {
            return Ok(None);
        }
        if request.accepts_replaced_machine {
            return Ok(Some(BmcAddressCheck::Accepted));
        }
        let Ok(found) = self.identify_or_fail(bmc, NODE_NOT_CREATED).await? else {
            return Ok(None);
        };
        let identity = |mac_addresses: &[String]| HostIdentity {
            mac_addresses: mac_addresses.to_vec(),
            ..HostIdentity::default()
        };
        match compare_identities(&identity(inspected), &identity(&found.mac_addresses)) {
            IdentityComparison::Same(_) | IdentityComparison::Unknown => Ok(None),
            other @ IdentityComparison::Different { .. } => {
                let message = address_rejection(&other, NODE_NOT_CREATED).unwrap_or_default();
                Err(VerbStop::failed(ProvisionerFailureKind::Identity, message))
            }
        }
    }

    /// What identifies the machine behind an address, or why the service cannot identify machines. Fails if the
    /// BMC does not respond or rejects the credentials.
    async fn identify_or_fail(
        &self,
        bmc: &BmcAccess,
        consequence: &str,
    ) -> VerbOutcome<Result<HostIdentity, String>> {
        match self.identify(bmc).await {
            Ok(found) => Ok(Ok(found)),
            Err(error) if matches!(error.status, Some(403..=405)) => {
                Ok(Err(format!("the service cannot identify machines: {}", error.message)))
            }
            Err(error) if matches!(error.status, Some(400 | 502 | 504)) => {
                Err(self.failed(format!(
                    "the machine at spec.bmc.address cannot be identified, and {consequence}: {}",
                    error.message
                )))
            }
            Err(error) => Err(self.stop(error)),
        }
    }

    /// What identifies the machine behind an address. Only Ferrite has this route.
    async fn identify(&self, bmc: &BmcAccess) -> Result<HostIdentity, IronicTransportError> {
        let body = json!({"driver": bmc.address.bmc_type.driver, "driver_info": bmc.driver_info()});
        let path = "/v1/ferrite/bmc-identity";
        let found = self.transport.request(Method::POST, path, Some(&body)).await?;
        Ok(serde_json::from_value(found).unwrap_or_default())
    }

    /// Fails if the boot NIC is one of the replaced machine and not one of the accepted machine: its agent would
    /// never be recognised. That is not certain if the BMC does not respond or lists no NICs.
    /// A provisioned host is inspected later.
    pub(super) async fn check_boot_nic(
        &self,
        node: &NodeResponse,
        host: &ManagedHost,
        bmc: &BmcAccess,
        request: &RegistrationRequest,
    ) -> VerbOutcome<()> {
        let Some(boot) = host.boot_mac_address.as_deref() else { return Ok(()) };
        let contain_boot = |macs: &[String]| macs.iter().any(|mac| mac.eq_ignore_ascii_case(boot));
        let is_provisioned = node.provision_state == NodeState::Active;
        if is_provisioned || !contain_boot(&request.nic_mac_addresses) {
            return Ok(());
        }
        let Ok(found) = self.identify(bmc).await else { return Ok(()) };
        if found.mac_addresses.is_empty() || contain_boot(&found.mac_addresses) {
            return Ok(());
        }
        Err(self.failed(format!(
            "spec.bootMACAddress {boot} is a NIC of the replaced machine, and the accepted machine has the NICs {}; \
             set it to the MAC address of the boot NIC, with the annotation {ACCEPT_REPLACED_MACHINE} in the \
             same change",
            found.mac_addresses.join(", ")
        )))
    }

    /// Lets Ferrite read again which machine the node is. A failure leaves what it knows. Another
    /// Ironic does not know the machine and need not read it.
    pub(super) async fn probe(&self, node: &NodeResponse) -> VerbOutcome<()> {
        let path = format!("/v1/ferrite/nodes/{}/bmc", percent_encode(&node.uuid));
        match self.transport.request(Method::POST, &path, None).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.status, Some(403..=405)) => Ok(()),
            Err(error) if matches!(error.status, None | Some(409)) => Err(self.stop(error)),
            Err(error) => Err(self.failed(format!(
                "the machine at the new spec.bmc.address cannot be read: {}",
                error.message
            ))),
        }
    }
}

/// What the service and the inspection know about the machine.
fn known_identity(
    node: &NodeResponse,
    host: &ManagedHost,
    request: &RegistrationRequest,
) -> HostIdentity {
    let probed = node.driver_internal_info.get("bmc");
    // It describes the machine before the accepted one.
    let probed = probed.filter(|_| !request.is_accepted_machine_unread);
    let probed = probed.cloned().unwrap_or_default();
    let mut identity: HostIdentity = serde_json::from_value(probed).unwrap_or_default();
    identity.mac_addresses.clone_from(&request.nic_mac_addresses);
    identity.mac_addresses.extend(host.boot_mac_address.clone());
    identity
}
