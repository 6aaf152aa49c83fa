// SPDX-License-Identifier: Apache-2.0
//! Requests to a provisioner and what it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_resources::hosts::annotations::HostRebootMode;
use kube_resources::hosts::bare_metal_host::{AutomatedCleaningMode, HostBootMode};
use kube_resources::hosts::bmc_address::{BmcAddress, HostBmcCredentials};
use kube_resources::hosts::firmware_schema::BiosSettingSchema;
use kube_resources::hosts::host_firmware_components::FirmwareComponentUpdate;
use kube_resources::hosts::host_image::{CustomDeploy, HostImage};
use kube_resources::hosts::preprovisioning_image::PreprovisioningImageStatus;
use kube_resources::hosts::raid::{DiskHints, HostRaid};
use serde_json::{Map, Value};

use super::outcome::VerbOutcome;

/// Identity of a host and access to its BMC.
#[derive(Clone, Debug, Default)]
pub struct ManagedHost {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// Identifier at the service; `None` until registration.
    pub node_id: Option<String>,
    /// MAC address of the boot NIC.
    pub boot_mac_address: Option<String>,
    /// Access to the BMC; `None` if it is not (or no longer) known.
    pub bmc: Option<BmcAccess>,
    /// Whether the host is rebooted where it would be powered off.
    pub disable_power_off: bool,
}

/// Access to a BMC.
#[derive(Clone)]
pub struct BmcAccess {
    /// Address.
    pub address: BmcAddress,
    /// User name and password.
    pub credentials: Arc<HostBmcCredentials>,
    /// Accept any certificate.
    pub disable_certificate_verification: bool,
}

impl fmt::Debug for BmcAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("BmcAccess").field("address", &self.address).finish_non_exhaustive()
    }
}

impl BmcAccess {
    /// The fields of `driver_info` that select and open the BMC.
    #[must_use]
    pub fn driver_info(&self) -> Map<String, Value> {
        self.address.driver_info(&self.credentials, self.disable_certificate_verification)
    }
}

/// Settings of a registered host.
#[derive(Clone, Debug, Default)]
pub struct RegistrationRequest {
    /// Firmware mode.
    pub boot_mode: Option<HostBootMode>,
    /// CPU architecture.
    pub architecture: Option<String>,
    /// What automated cleaning removes.
    pub automated_cleaning: Option<AutomatedCleaningMode>,
    /// MAC addresses that inspection found.
    pub nic_mac_addresses: Vec<String>,
    /// The image that runs on the host, if any.
    pub current_image: Option<HostImage>,
    /// The custom deployment that was used, if any.
    pub current_custom_deploy: Option<CustomDeploy>,
    /// Whether a system that the service did not install runs on the host.
    pub runs_foreign_system: bool,
    /// Accept another machine behind a changed BMC address.
    pub accepts_replaced_machine: bool,
    /// The NICs that inspection found are those of a machine that was replaced.
    pub has_other_nics: bool,
    /// The host is deleted and needs no ports any more.
    pub leaves_ports: bool,
    /// The machine that was accepted last has not been read yet.
    pub is_accepted_machine_unread: bool,
    /// The credentials differ from those that were tried last.
    pub credentials_changed: bool,
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
    /// Whether the host boots a ramdisk in its state.
    pub needs_ramdisk: bool,
    /// Whether the host was never registered and runs no system. A node with its name is then that of
    /// an earlier host which was deleted.
    pub is_new_host: bool,
    /// The ramdisk that was built for the host.
    pub ramdisk: Option<PreprovisioningImageStatus>,
    /// Network configuration of the ramdisk.
    pub ramdisk_network_data: Option<Map<String, Value>>,
}

/// What a call of `register` led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationAttempt {
    /// Identifier at the service, or why the registration has not ended.
    pub node_id: VerbOutcome<String>,
    /// The change of the BMC address by this call, which is not repeated if the registration ends in a
    /// later call.
    pub address_change: Option<BmcAddressChange>,
}

impl From<VerbOutcome<String>> for RegistrationAttempt {
    fn from(node_id: VerbOutcome<String>) -> Self {
        Self { node_id, address_change: None }
    }
}

/// A changed BMC address, which the service uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BmcAddressChange {
    /// Why it was accepted.
    pub check: BmcAddressCheck,
    /// Why the machine was not read afterwards. The service has the details of the earlier one.
    pub probe_failure: Option<String>,
}

/// Why a changed BMC address was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BmcAddressCheck {
    /// It leads to the registered machine.
    SameMachine {
        /// The values that were compared.
        identity: String,
    },
    /// The user accepted the machine.
    Accepted,
    /// The service cannot identify machines.
    NotVerified {
        /// Why.
        reason: String,
    },
}

/// How to inspect.
#[derive(Clone, Debug, Default)]
pub struct InspectionRequest {
    /// Firmware mode.
    pub boot_mode: Option<HostBootMode>,
    /// CPU architecture.
    pub architecture: Option<String>,
    /// Query the BMC instead of booting a ramdisk.
    pub is_fast: bool,
    /// Ignore an earlier result.
    pub refresh: bool,
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
    /// Abort a running inspection and start again.
    pub is_forced: bool,
}

/// How to adopt.
#[derive(Clone, Debug, Default)]
pub struct AdoptionRequest {
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
}

/// Requested BIOS settings and firmware.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirmwareChanges {
    /// Requested BIOS settings.
    pub settings: BTreeMap<String, IntOrString>,
    /// Current BIOS settings; `None` if they are not known, and then none is changed.
    pub current_settings: Option<BTreeMap<String, String>>,
    /// Firmware to install.
    pub updates: Vec<FirmwareComponentUpdate>,
}

/// What to apply before provisioning.
#[derive(Clone, Debug, Default)]
pub struct PreparationRequest {
    /// Requested volumes.
    pub raid: Option<HostRaid>,
    /// Volumes that were created last.
    pub applied_raid: Option<HostRaid>,
    /// Whether the host has root device hints.
    pub has_root_device_hints: bool,
    /// BIOS settings and firmware.
    pub firmware: FirmwareChanges,
    /// Whether the changes have not been started yet.
    pub is_start: bool,
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
}

/// What to apply to a provisioned host.
#[derive(Clone, Debug, Default)]
pub struct ServicingRequest {
    /// BIOS settings and firmware; nothing if the request was withdrawn.
    pub firmware: FirmwareChanges,
    /// Whether the changes have not been started yet.
    pub is_start: bool,
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
}

/// What to deploy.
#[derive(Clone, Debug, Default)]
pub struct HostDeployRequest {
    /// The image.
    pub image: Option<HostImage>,
    /// Credentials for an OCI registry.
    pub pull_secret: Option<PullSecret>,
    /// Custom deployment.
    pub custom_deploy: Option<CustomDeploy>,
    /// Config drive.
    pub config_drive: Option<Value>,
    /// Hints for the root device.
    pub root_device_hints: Option<DiskHints>,
    /// Firmware mode.
    pub boot_mode: Option<HostBootMode>,
    /// What automated cleaning removes.
    pub automated_cleaning: Option<AutomatedCleaningMode>,
    /// Abort a running deployment and start again.
    pub is_forced: bool,
    /// Try again although cleaning before the deployment failed.
    pub restart_on_failure: bool,
}

/// `user:password` for an OCI registry.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSecret(pub String);

impl fmt::Debug for PullSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("***")
    }
}

/// How to remove an image.
#[derive(Clone, Debug, Default)]
pub struct DeprovisionRequest {
    /// What automated cleaning removes.
    pub automated_cleaning: Option<AutomatedCleaningMode>,
    /// Try again although the last attempt failed.
    pub restart_on_failure: bool,
}

/// How to power off.
#[derive(Clone, Debug)]
pub struct PowerOffRequest {
    /// Hard or soft.
    pub mode: HostRebootMode,
    /// Ignore an earlier power failure.
    pub is_forced: bool,
    /// Which operations are aborted before.
    pub aborts: AbortScope,
}

/// Which operations are aborted before a node is powered off or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbortScope {
    /// None.
    Nothing,
    /// Those that wait for the ramdisk, except automated cleaning, which erases the data of the last
    /// user.
    AllButErasure,
    /// Those that wait for the ramdisk.
    Everything,
    /// The same. A node whose operation cannot be aborted is removed all the same, unless it is locked.
    Forced,
}

/// Power state, power failure and health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostObservation {
    /// Whether the host is powered on; `None` if the service does not know.
    pub powered_on: Option<bool>,
    /// Whether the service cannot reach the BMC any more.
    pub has_power_failure: bool,
    /// Health that the BMC reports; `None` if it does not.
    pub health: Option<HostHealth>,
}

/// Health of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostHealth {
    /// No fault.
    Ok,
    /// A fault that needs attention.
    Warning,
    /// A fault that needs immediate attention.
    Critical,
}

/// BIOS settings of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirmwareSettingsReading {
    /// Values by name.
    pub settings: BTreeMap<String, String>,
    /// Types and limits by name, if requested.
    pub schema: Option<BTreeMap<String, BiosSettingSchema>>,
}

/// A subscription to events of a BMC.
#[derive(Clone, Debug, Default)]
pub struct BmcEventRequest {
    /// URL that receives the events.
    pub destination: String,
    /// Text that is part of every event.
    pub context: Option<String>,
    /// Headers of the requests to the destination.
    pub http_headers: BTreeMap<String, String>,
    /// Subscriptions of other objects, which are not used for this request.
    pub used_ids: BTreeSet<String>,
}
