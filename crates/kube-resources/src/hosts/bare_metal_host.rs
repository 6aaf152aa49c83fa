// SPDX-License-Identifier: Apache-2.0
//! `BareMetalHost`: a physical machine, how to reach its BMC, and what to install on it.

use k8s_openapi::api::core::v1::{ObjectReference, SecretReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::annotations::{INSPECT, INSPECT_DISABLED};
use super::host_image::{CustomDeploy, HostImage};
use super::host_status::BareMetalHostStatus;
use super::raid::{DiskHints, HostRaid};
use crate::kind::namespaced_kind;
use crate::optional::{is_false, non_empty, null_is_default};
use crate::text_enum::text_enum;

namespaced_kind! {
    /// A physical machine.
    pub struct BareMetalHost in "metal3.io" / "v1alpha1", plural "baremetalhosts" {
        spec: BareMetalHostSpec,
        status: BareMetalHostStatus,
    }
}

/// Requested state of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BareMetalHostSpec {
    /// Whether the host should be powered on.
    pub online: bool,
    /// Access to the BMC. A host without it is only recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bmc: Option<BmcDetails>,
    /// CPU architecture, such as `x86_64`. Inspection sets it if it is missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub architecture: Option<String>,
    /// What automated cleaning removes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub automated_cleaning_mode: Option<AutomatedCleaningMode>,
    /// MAC address of the NIC that boots the ramdisk.
    #[serde(
        rename = "bootMACAddress",
        skip_serializing_if = "Option::is_none",
        deserialize_with = "non_empty"
    )]
    pub boot_mac_address: Option<String>,
    /// Firmware mode; UEFI if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub boot_mode: Option<HostBootMode>,
    /// The object that uses the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer_ref: Option<ObjectReference>,
    /// Deployment by a step of a site-specific ramdisk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_deploy: Option<CustomDeploy>,
    /// Free text.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub description: Option<String>,
    /// Reboot the host where it would be powered off.
    #[serde(skip_serializing_if = "is_false")]
    pub disable_power_off: bool,
    /// The system was installed by other means; only power is managed.
    #[serde(skip_serializing_if = "is_false")]
    pub externally_provisioned: bool,
    /// Removed in Metal3; validation rejects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<LegacyFirmwareConfig>,
    /// Deprecated name of a set of root device hints.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub hardware_profile: Option<String>,
    /// The image to deploy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<HostImage>,
    /// How the hardware is inspected.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub inspection_mode: Option<HostInspectionMode>,
    /// Secret with additional metadata for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<SecretReference>,
    /// Secret with the network configuration for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_data: Option<SecretReference>,
    /// Secret with the user data for the config drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<SecretReference>,
    /// Secret with the network configuration of the ramdisk.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub preprovisioning_network_data_name: Option<String>,
    /// RAID volumes to create.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<HostRaid>,
    /// Properties of the disk to install on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device_hints: Option<DiskHints>,
    /// Stored, and not used.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub taints: Vec<HostTaint>,
}

/// Access to a BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BmcDetails {
    /// URL of the BMC; see [`super::bmc_address`].
    pub address: String,
    /// Secret with `username` and `password`.
    pub credentials_name: String,
    /// Accept any certificate of the BMC.
    #[serde(skip_serializing_if = "is_false")]
    pub disable_certificate_verification: bool,
}

text_enum! {
    /// What automated cleaning removes from the disks.
    pub enum AutomatedCleaningMode {
        /// Partition tables and signatures.
        Metadata = "metadata",
        /// Nothing.
        Disabled = "disabled",
    }
}

text_enum! {
    /// Firmware mode in which a host boots.
    pub enum HostBootMode {
        /// UEFI without Secure Boot.
        Uefi = "UEFI",
        /// UEFI with Secure Boot after deployment.
        UefiSecureBoot = "UEFISecureBoot",
        /// BIOS.
        Legacy = "legacy",
    }
}

text_enum! {
    /// How the hardware is inspected.
    pub enum HostInspectionMode {
        /// Not at all.
        Disabled = "disabled",
        /// By the agent in the ramdisk.
        Agent = "agent",
    }
}

/// BIOS settings with common names, which no driver supports any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LegacyFirmwareConfig {
    /// Several threads per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simultaneous_multithreading_enabled: Option<bool>,
    /// Virtual functions of PCI Express devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov_enabled: Option<bool>,
    /// Hardware virtualisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtualization_enabled: Option<bool>,
}

/// A taint for the Kubernetes node on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostTaint {
    /// What happens to pods that do not tolerate it.
    pub effect: String,
    /// Key.
    pub key: String,
    /// When it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub value: Option<String>,
}

impl BareMetalHost {
    /// The requested firmware mode, or the default.
    #[must_use]
    pub fn boot_mode(&self) -> HostBootMode {
        self.spec.boot_mode.clone().unwrap_or(HostBootMode::Uefi)
    }

    /// Whether inspection is disabled, by the field or by the older annotation.
    #[must_use]
    pub fn is_inspection_disabled(&self) -> bool {
        self.spec.inspection_mode == Some(HostInspectionMode::Disabled)
            || self.annotation(INSPECT) == Some(INSPECT_DISABLED)
    }

    /// Whether an address or a Secret is given for the BMC.
    #[must_use]
    pub fn has_bmc_details(&self) -> bool {
        let bmc = self.spec.bmc.as_ref();
        bmc.is_some_and(|bmc| !bmc.address.is_empty() || !bmc.credentials_name.is_empty())
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn host(value: serde_json::Value) -> BareMetalHost {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn empty_texts_are_not_set() {
        let host = host(json!({"spec": {"online": true, "architecture": "", "bootMode": ""}}));
        assert_eq!(host.spec.architecture, None);
        assert_eq!(host.boot_mode(), HostBootMode::Uefi);
    }

    #[test]
    fn values_of_other_versions_are_kept() {
        let host = host(json!({"spec": {"online": true, "inspectionMode": "fast"}}));
        assert_eq!(host.spec.inspection_mode, Some(HostInspectionMode::Other("fast".into())));
    }

    #[test]
    fn inspection_is_disabled_by_the_field_or_the_annotation() {
        let annotated = |value: &str| {
            host(json!({"metadata": {"annotations": {"inspect.metal3.io": value}}, "spec": {}}))
        };
        let by_field = host(json!({"spec": {"inspectionMode": "disabled"}}));
        assert!(by_field.is_inspection_disabled());
        assert!(annotated("disabled").is_inspection_disabled());
        assert!(!annotated("").is_inspection_disabled());
        assert!(!host(json!({})).is_inspection_disabled());
    }

    #[test]
    fn a_host_with_empty_bmc_fields_has_no_bmc_details() {
        let bmc = |address: &str, name: &str| {
            host(json!({"spec": {"bmc": {"address": address, "credentialsName": name}}}))
        };
        assert!(!host(json!({"spec": {}})).has_bmc_details());
        assert!(!bmc("", "").has_bmc_details());
        assert!(bmc("", "secret").has_bmc_details());
        assert!(bmc("ipmi://192.0.2.1", "").has_bmc_details());
    }
}
