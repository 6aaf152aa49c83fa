// SPDX-License-Identifier: Apache-2.0
//! Registration: creates or updates the node and verifies its BMC.

use std::net::IpAddr;

use kube_resources::hosts::bare_metal_host::{AutomatedCleaningMode, HostBootMode};
use kube_resources::hosts::bmc_address::BmcType;
use kube_resources::hosts::ironic_payloads::FieldChanges;
use kube_resources::hosts::ironic_payloads::capabilities::properties_capabilities;
use kube_resources::hosts::ironic_payloads::deploy_ramdisk::deploy_ramdisk;
use kube_resources::hosts::ironic_payloads::image::image_changes;
use serde_json::{Map, Value, json};

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::{
    BmcAccess, BmcAddressChange, BmcAddressCheck, ManagedHost, RegistrationAttempt,
    RegistrationRequest,
};
use super::calls::IronicCalls;
use super::lookup::node_name;
use super::node::{NodeResponse, NodeState};
use super::patch::NodePatch;
use super::{DISABLE_POWER_OFF, present};

/// Interface of drivers without their own inspection.
pub(super) const AGENT_INSPECT_INTERFACE: &str = "agent";
/// Deploy interface of a system that another tool installed: it needs no image.
const FOREIGN_SYSTEM_DEPLOY_INTERFACE: &str = "custom-agent";

impl IronicCalls<'_> {
    pub(super) async fn register(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
    ) -> RegistrationAttempt {
        let mut address_change = None;
        let node_id = self.register_node(host, request, &mut address_change).await;
        RegistrationAttempt { node_id, address_change }
    }

    /// Sets `address_change` as soon as the node has a new address.
    async fn register_node(
        &self,
        host: &ManagedHost,
        request: &RegistrationRequest,
        address_change: &mut Option<BmcAddressChange>,
    ) -> VerbOutcome<String> {
        let Some(bmc) = &host.bmc else {
            return Err(self.failed("the BMC details are not complete; set spec.bmc"));
        };
        self.check_support(host, bmc.address.bmc_type, request)?;
        let mut existing = self.existing_node(host).await?;
        if let Some(node) = existing.as_ref().filter(|_| request.is_new_host)
            && self.remove_leftover(host, node).await?
        {
            existing = None;
        }
        let address_check = match &existing {
            Some(node) if node.is_verified() && is_address_changed(node, bmc) => {
                Some(self.check_machine(node, host, bmc, request).await?)
            }
            Some(_) => None,
            None => self.check_inspected_machine(bmc, request).await?,
        };
        if let Some(node) = existing.as_ref().filter(|_| request.is_accepted_machine_unread)
            && address_check.is_none()
        {
            self.check_boot_nic(node, host, bmc, request).await?;
        }
        let external_url = self.external_url(bmc).await;
        let (node, is_new) = match existing {
            Some(node) => (node, false),
            None => {
                let node = self.new_node(host, bmc, request, &external_url);
                (self.create_node(&node).await?, true)
            }
        };
        let mut patch = NodePatch::default();
        let is_access_changed =
            !is_new && change_access(&mut patch, &node, bmc, request.credentials_changed);
        let ramdisk = self.ramdisk(bmc, request, &node);
        if node.provision_state.accepts_changes() {
            patch.set_text("/name", node.name.as_deref(), &node_name(host));
            if let Some(changes) = &ramdisk {
                patch.change_members("/driver_info", &node.driver_info, changes);
            }
            external_url.change(&mut patch, &node);
            self.change_settings(&mut patch, &node, host, request);
        }
        let node = self.patch(node, patch).await?;
        let unread = request.is_accepted_machine_unread.then_some(BmcAddressCheck::Accepted);
        if let Some(check) = address_check.or(unread) {
            // The machine of a node that is not verified yet is read by its verification.
            let probed = if node.is_verified() { self.probe(&node).await } else { Ok(()) };
            let probe_failure = probed.as_ref().err().map(VerbStop::to_string);
            let is_accepted = check == BmcAddressCheck::Accepted;
            *address_change = Some(BmcAddressChange { check, probe_failure });
            // Without its identity, the next change of the address could not be verified.
            if is_accepted {
                probed?;
            }
        }
        self.ensure_ports(host, request, &node).await?;
        let node_id = self.verify(node, request, is_access_changed).await?;
        if ramdisk.is_none() && self.settings.ramdisk.is_built_per_host && request.needs_ramdisk {
            return Err(VerbStop::running(ProvisionerWaitReason::RamdiskImage, None));
        }
        Ok(node_id)
    }

    /// Whether BMC type and service support what the host needs.
    fn check_support(
        &self,
        host: &ManagedHost,
        bmc_type: &BmcType,
        request: &RegistrationRequest,
    ) -> VerbOutcome<()> {
        let scheme = bmc_type.scheme;
        if request.boot_mode == Some(HostBootMode::UefiSecureBoot) && !bmc_type.supports_secure_boot
        {
            return Err(self.failed(format!(
                "BMCs of the type {scheme} cannot switch Secure Boot; change spec.bootMode or use a \
                 Redfish address"
            )));
        }
        if bmc_type.needs_provisioning_network && self.settings.is_provisioning_network_disabled {
            return Err(self.failed(format!(
                "hosts with BMCs of the type {scheme} boot over a provisioning network, which is \
                 disabled; use virtual media"
            )));
        }
        if bmc_type.needs_boot_mac && host.boot_mac_address.is_none() {
            return Err(
                self.failed(format!("BMCs of the type {scheme} need spec.bootMACAddress; set it"))
            );
        }
        // Powering off such a host by mistake may need a visit to it.
        if host.disable_power_off && self.version < DISABLE_POWER_OFF {
            return Err(self.failed(format!(
                "the service cannot prevent that the host is powered off; API version \
                 1.{DISABLE_POWER_OFF} is needed for spec.disablePowerOff"
            )));
        }
        Ok(())
    }

    fn new_node(
        &self,
        host: &ManagedHost,
        bmc: &BmcAccess,
        request: &RegistrationRequest,
        external_url: &ExternalHttpUrl,
    ) -> Value {
        let mut driver_info = bmc.driver_info();
        if let ExternalHttpUrl::Set(url) = external_url {
            driver_info.insert(ExternalHttpUrl::FIELD.to_owned(), json!(url));
        }
        let mut node = Map::from_iter([
            ("driver".to_owned(), json!(bmc.address.bmc_type.driver)),
            ("name".to_owned(), json!(node_name(host))),
            ("driver_info".to_owned(), Value::Object(driver_info)),
        ]);
        let interfaces = interfaces(bmc.address.bmc_type);
        let given = interfaces.into_iter().filter_map(|(field, name)| Some((field, name?)));
        node.extend(given.map(|(field, name)| (field.to_owned(), json!(name))));
        node.insert("inspect_interface".to_owned(), json!(AGENT_INSPECT_INTERFACE));
        if host.disable_power_off {
            node.insert("disable_power_off".to_owned(), json!(true));
        }
        let capabilities = properties_capabilities(None, &boot_mode(request.boot_mode.as_ref()));
        let mut properties = Map::from_iter([("capabilities".to_owned(), json!(capabilities))]);
        if let Some(architecture) = &request.architecture {
            properties.insert("cpu_arch".to_owned(), json!(architecture));
        }
        node.insert("properties".to_owned(), Value::Object(properties));
        Value::Object(node)
    }

    /// The ramdisk for the architecture of the host, which inspection finds if it is not given.
    fn ramdisk(
        &self,
        bmc: &BmcAccess,
        request: &RegistrationRequest,
        node: &NodeResponse,
    ) -> Option<FieldChanges> {
        let inspected = node.properties.get("cpu_arch").and_then(Value::as_str);
        let architecture = request.architecture.as_deref().or(inspected);
        let built = request.ramdisk.as_ref();
        deploy_ramdisk(bmc.address.bmc_type, built, &self.settings.ramdisk, architecture)
    }

    /// The URL from which the BMC gets images.
    async fn external_url(&self, bmc: &BmcAccess) -> ExternalHttpUrl {
        let Some(url) = &self.settings.external_url_v6 else { return ExternalHttpUrl::Unchanged };
        let host = bmc.address.host.as_str();
        let address = match host.parse::<IpAddr>() {
            Ok(address) => Some(address),
            Err(_) => {
                let found = tokio::net::lookup_host((host, 0)).await;
                found.ok().and_then(|mut addresses| addresses.next()).map(|found| found.ip())
            }
        };
        match address {
            Some(IpAddr::V6(_)) => ExternalHttpUrl::Set(url.clone()),
            Some(IpAddr::V4(_)) => ExternalHttpUrl::Removed,
            None => ExternalHttpUrl::Unchanged,
        }
    }

    fn change_settings(
        &self,
        patch: &mut NodePatch,
        node: &NodeResponse,
        host: &ManagedHost,
        request: &RegistrationRequest,
    ) {
        if self.version >= DISABLE_POWER_OFF
            && node.disable_power_off.unwrap_or(false) != host.disable_power_off
        {
            patch.set("/disable_power_off", None, json!(host.disable_power_off));
        }
        change_cleaning(patch, node, request.automated_cleaning.as_ref());
        change_hardware_properties(
            patch,
            node,
            request.boot_mode.as_ref(),
            request.architecture.as_deref(),
        );
        // A ramdisk that is built for the host contains its network configuration.
        if let Some(network_data) = &request.ramdisk_network_data
            && !self.settings.ramdisk.is_built_per_host
            && node.network_data != *network_data
        {
            patch.set("/network_data", None, Value::Object(network_data.clone()));
        }
        // A node that is adopted needs to know what runs on it.
        let is_unadopted =
            matches!(node.provision_state, NodeState::Enroll | NodeState::Manageable);
        if is_unadopted && (request.current_image.is_some() || request.runs_foreign_system) {
            let changes = image_changes(
                request.current_image.as_ref(),
                request.current_custom_deploy.as_ref(),
                None,
                &self.settings.boot_device_persistence,
            );
            patch.change_members("/instance_info", &node.instance_info, &changes.instance_info);
            let foreign =
                request.current_image.is_none().then_some(FOREIGN_SYSTEM_DEPLOY_INTERFACE);
            if let Some(interface) = changes.deploy_interface.or(foreign) {
                patch.set_text("/deploy_interface", node.deploy_interface.as_deref(), interface);
            }
            patch.set_text("/instance_uuid", node.instance_uuid.as_deref(), &host.uid);
        }
    }

    /// Moves a new node to `manageable`, which checks the BMC.
    async fn verify(
        &self,
        node: NodeResponse,
        request: &RegistrationRequest,
        is_access_changed: bool,
    ) -> VerbOutcome<String> {
        let verifying = ProvisionerWaitReason::Verifying;
        match node.provision_state {
            NodeState::Enroll => {
                let has_failed = node.last_error.as_deref().is_some_and(|error| !error.is_empty());
                let is_retried = request.credentials_changed || request.restart_on_failure;
                if has_failed && !is_retried && !is_access_changed {
                    return Err(self.failed(node.error_text("verification of the BMC")));
                }
                if node.target_provision_state.as_deref() == Some("manageable") {
                    return Err(node.running(verifying));
                }
                Err(self.request_target(&node, "manage", verifying).await)
            }
            NodeState::Verifying => Err(node.running(verifying)),
            NodeState::Manageable
            | NodeState::Available
            | NodeState::Active
            | NodeState::DeployWait
            | NodeState::Deploying
            | NodeState::DeployFailed
            | NodeState::Deleting
            | NodeState::Cleaning
            | NodeState::CleanWait
            | NodeState::CleanFailed
            | NodeState::Error
            | NodeState::Inspecting
            | NodeState::InspectWait
            | NodeState::InspectFailed
            | NodeState::Adopting
            | NodeState::AdoptFailed
            | NodeState::Servicing
            | NodeState::ServiceWait
            | NodeState::ServiceFailed
            | NodeState::Other => {
                // A retry has to check again what failed before.
                if is_access_changed || request.restart_on_failure {
                    self.check_access(&node).await?;
                }
                Ok(node.uuid)
            }
        }
    }

    /// Reads a value from the BMC, so that its address and password are known to work. The service
    /// itself would notice only at the next change of the power state.
    async fn check_access(&self, node: &NodeResponse) -> VerbOutcome<()> {
        match self.get(&format!("{}/management/boot_device", node.path())).await {
            // The driver cannot read it; this is no error of the address.
            Ok(_) | Err(VerbStop::Failed(_) | VerbStop::Busy { .. }) => Ok(()),
            Err(VerbStop::NotReady { message }) => Err(self.failed(format!(
                "the BMC does not respond with the address and credentials of this host: {message}"
            ))),
            Err(other) => Err(other),
        }
    }
}

/// What to do with the field of a node for the URL from which the BMC gets images.
enum ExternalHttpUrl {
    Set(String),
    Removed,
    /// The URL is not configured, or the address of the BMC is not known now.
    Unchanged,
}

impl ExternalHttpUrl {
    const FIELD: &str = "external_http_url";

    fn change(&self, patch: &mut NodePatch, node: &NodeResponse) {
        let current = node.driver_info.get(Self::FIELD);
        let path = format!("/driver_info/{}", Self::FIELD);
        match self {
            Self::Set(url) => patch.set(&path, current, json!(url)),
            Self::Removed => patch.remove(&path, present(current).is_some()),
            Self::Unchanged => {}
        }
    }
}

/// Whether driver or address of the BMC differ from those of the node.
fn is_address_changed(node: &NodeResponse, bmc: &BmcAccess) -> bool {
    let wanted = bmc.driver_info();
    let differs = |key: &str| wanted.get(key) != node.driver_info.get(key);
    let driver = bmc.address.bmc_type.driver;
    node.driver.as_deref().is_some_and(|current| current != driver)
        || ["redfish_address", "redfish_system_id", "ipmi_address", "ipmi_port"]
            .into_iter()
            .any(differs)
}

/// Driver, interfaces and the fields of `driver_info` for the BMC. Returns whether they change.
fn change_access(
    patch: &mut NodePatch,
    node: &NodeResponse,
    bmc: &BmcAccess,
    are_credentials_changed: bool,
) -> bool {
    let wanted = bmc.driver_info();
    // The API masks passwords.
    let is_password = |key: &str| key.ends_with("_password");
    let is_obsolete = |key: &str| {
        (key.starts_with("ipmi_") || key.starts_with("redfish_")) && !wanted.contains_key(key)
    };
    let is_equal = wanted
        .iter()
        .filter(|(key, _)| !is_password(key))
        .all(|(key, value)| node.driver_info.get(key) == Some(value))
        && !node.driver_info.keys().any(|key| is_obsolete(key));
    let driver = bmc.address.bmc_type.driver;
    let is_driver_changed = node.driver.as_deref().is_some_and(|current| current != driver);
    if is_equal && !are_credentials_changed && !is_driver_changed {
        return false;
    }
    if is_driver_changed {
        patch.set_text("/driver", node.driver.as_deref(), driver);
        for (field, name) in interfaces(bmc.address.bmc_type) {
            match name {
                Some(name) => patch.set(&format!("/{field}"), None, json!(name)),
                None => patch.remove(&format!("/{field}"), true),
            }
        }
    }
    for key in node.driver_info.keys().filter(|key| is_obsolete(key)) {
        patch.remove(&format!("/driver_info/{key}"), true);
    }
    for (key, value) in &wanted {
        let current = node.driver_info.get(key).filter(|_| !is_password(key));
        patch.set(&format!("/driver_info/{key}"), current, value.clone());
    }
    true
}

/// Interfaces that a BMC type selects; `None` is the driver's default.
fn interfaces(bmc_type: &'static BmcType) -> [(&'static str, Option<&'static str>); 7] {
    [
        ("bios_interface", bmc_type.bios_interface),
        ("boot_interface", Some(bmc_type.boot_interface)),
        ("firmware_interface", bmc_type.firmware_interface),
        ("management_interface", bmc_type.management_interface),
        ("power_interface", bmc_type.power_interface),
        ("raid_interface", Some(bmc_type.raid_interface)),
        ("vendor_interface", bmc_type.vendor_interface),
    ]
}

pub(super) fn boot_mode(requested: Option<&HostBootMode>) -> HostBootMode {
    requested.cloned().unwrap_or(HostBootMode::Uefi)
}

/// Sets `automated_clean`.
pub(super) fn change_cleaning(
    patch: &mut NodePatch,
    node: &NodeResponse,
    mode: Option<&AutomatedCleaningMode>,
) {
    let is_wanted = mode != Some(&AutomatedCleaningMode::Disabled);
    if node.automated_clean != Some(is_wanted) {
        patch.set("/automated_clean", None, json!(is_wanted));
    }
}

/// Sets boot mode and architecture.
pub(super) fn change_hardware_properties(
    patch: &mut NodePatch,
    node: &NodeResponse,
    mode: Option<&HostBootMode>,
    architecture: Option<&str>,
) {
    let current = node.properties.get("capabilities");
    let capabilities = properties_capabilities(current, &boot_mode(mode));
    patch.set("/properties/capabilities", current, json!(capabilities));
    if let Some(architecture) = architecture {
        let current = node.properties.get("cpu_arch");
        patch.set("/properties/cpu_arch", current, json!(architecture));
    }
}
