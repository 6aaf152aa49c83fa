// SPDX-License-Identifier: Apache-2.0
//! Settings of inspection. The defaults are Ironic's, except that values set by an operator are kept.

use node_model::{AgentLogLimits, InspectionRule};
use serde::{Deserialize, Serialize};

use crate::hooks::Hook;
use crate::{IpNetwork, ParseNetworkError};

/// Settings of the hooks and rules.
#[derive(Clone, PartialEq, Debug)]
pub struct InspectionSettings {
    /// Hooks in the order they run.
    pub hooks: Vec<Hook>,
    /// The NICs for which ports are created.
    pub add_ports: AddPorts,
    /// The existing ports that are kept.
    pub keep_ports: KeepPorts,
    /// Whether `pxe_enabled` of existing ports is set according to the NIC the machine booted from.
    pub update_pxe_enabled: bool,
    /// Whether 1 GiB of the root disk is subtracted from `local_gb`, for partitioning.
    pub disk_partitioning_spacing: bool,
    /// Whether hooks overwrite existing values of a node's properties and ports. Rules always do:
    /// operators write them.
    pub existing_properties: ExistingProperties,
    /// CPU flags and the capability that each sets, in order of writing.
    pub cpu_capabilities: Vec<(String, String)>,
    /// Whether extra hardware data with one invalid record are rejected completely.
    pub extra_hardware_strict: bool,
    /// PCI devices to count in capabilities.
    pub pci_device_alias: Vec<PciAlias>,
    /// PCI devices that are accelerators.
    pub known_accelerators: Vec<KnownAccelerator>,
    /// Physical networks by IP network; the first match is used.
    pub physical_network_cidr_map: Vec<PhysicalNetwork>,
    /// The rules for which secrets in the report are masked.
    pub mask_secrets: MaskSecrets,
    /// Rules from the configuration, which exist without a database record.
    pub built_in_rules: Vec<InspectionRule>,
    /// How unknown machines are enrolled; `None` only records them.
    pub auto_discovery: Option<AutoDiscovery>,
    /// URL prefixes that the rule action `api-call` may request.
    pub api_call_allowed: Vec<String>,
    /// When the ramdisk's logs are stored.
    pub collect_logs: CollectLogs,
    /// Limits for stored ramdisk logs.
    pub log_limits: AgentLogLimits,
}

/// Attributes of automatically enrolled nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AutoDiscovery {
    /// The driver.
    pub driver: String,
    /// The conductor group.
    pub conductor_group: String,
    /// The resource class.
    pub resource_class: Option<String>,
}

/// When the ramdisk's logs are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectLogs {
    /// After every operation.
    Always,
    /// When an operation failed.
    OnFailure,
    /// Never.
    Never,
}

/// The NICs for which ports are created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddPorts {
    /// All NICs.
    All,
    /// NICs that had an IP address while the ramdisk ran.
    Active,
    /// The NIC the machine booted from; all if that is unknown.
    Pxe,
    /// No NICs.
    Disabled,
}

/// The existing ports that are kept after inspection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepPorts {
    /// All ports.
    All,
    /// Ports whose NIC is in the report.
    Present,
    /// Ports whose NIC is selected by `add_ports`.
    Added,
}

/// What a hook does with a value that is already set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExistingProperties {
    /// Overwrite it, as Ironic does.
    Overwrite,
    /// Keep it, unless the last inspection derived it: an unauthenticated ramdisk cannot change
    /// values set by an operator.
    Keep,
}

/// The rules for which the values of `password`, `auth_token` and `bmc_password` are masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskSecrets {
    /// All rules.
    Always,
    /// Rules that are not marked sensitive.
    Sensitive,
    /// No rules.
    Never,
}

/// A PCI device to count in a capability.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciAlias {
    /// Four hexadecimal digits.
    pub vendor_id: String,
    /// Four hexadecimal digits.
    pub product_id: String,
    /// The capability that receives the count.
    pub name: String,
}

/// A PCI device that is an accelerator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownAccelerator {
    /// Four hexadecimal digits.
    pub vendor_id: String,
    /// Four hexadecimal digits.
    pub device_id: String,
    /// `GPU`, `FPGA`, …
    #[serde(rename = "type")]
    pub accelerator_type: String,
    /// The model name.
    pub device_info: String,
}

/// A physical network and its IP network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhysicalNetwork {
    /// The IP network.
    pub network: IpNetwork,
    /// The name of the physical network.
    pub name: String,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectionSettingsError {
    /// Unknown hook.
    #[error("there is no inspection hook {name:?}; the hooks are {}", Hook::names())]
    UnknownHook {
        /// The configured name.
        name: String,
    },
    /// A hook requires another one before it.
    #[error("inspection hook {hook} requires {requires} before it in the list of hooks")]
    HookOrder {
        /// The hook.
        hook: Hook,
        /// The missing hook.
        requires: Hook,
    },
    /// Not `network:name`.
    #[error("{entry:?} is not a network and a name such as 10.10.10.0/24:physnet_a")]
    PhysicalNetwork {
        /// The configured text.
        entry: String,
        /// Why the network is invalid, if there is a colon.
        #[source]
        source: Option<ParseNetworkError>,
    },
}

impl Default for InspectionSettings {
    fn default() -> Self {
        let cpu_flags = [
            ("vmx", "cpu_vt"),
            ("svm", "cpu_vt"),
            ("aes", "cpu_aes"),
            ("pse", "cpu_hugepages"),
            ("pdpe1gb", "cpu_hugepages_1g"),
            ("smx", "cpu_txt"),
        ];
        Self {
            hooks: Hook::DEFAULT.to_vec(),
            add_ports: AddPorts::Pxe,
            keep_ports: KeepPorts::All,
            update_pxe_enabled: true,
            disk_partitioning_spacing: true,
            existing_properties: ExistingProperties::Keep,
            cpu_capabilities: cpu_flags
                .map(|(flag, name)| (flag.to_owned(), name.to_owned()))
                .to_vec(),
            extra_hardware_strict: false,
            pci_device_alias: Vec::new(),
            known_accelerators: nvidia_accelerators(),
            physical_network_cidr_map: Vec::new(),
            mask_secrets: MaskSecrets::Always,
            built_in_rules: Vec::new(),
            auto_discovery: None,
            api_call_allowed: Vec::new(),
            collect_logs: CollectLogs::OnFailure,
            log_limits: AgentLogLimits::default(),
        }
    }
}

impl std::str::FromStr for PhysicalNetwork {
    type Err = InspectionSettingsError;

    /// Parses `network:name`.
    fn from_str(entry: &str) -> Result<Self, InspectionSettingsError> {
        let invalid =
            |source| InspectionSettingsError::PhysicalNetwork { entry: entry.to_owned(), source };
        let (network, name) = entry.rsplit_once(':').ok_or_else(|| invalid(None))?;
        let network = network.parse().map_err(|error| invalid(Some(error)))?;
        Ok(Self { network, name: name.to_owned() })
    }
}

/// Parses a list of hooks such as `$default_hooks,parse-lldp`, and checks that the required hooks
/// of each precede it.
///
/// # Errors
/// If a name is unknown or the order is wrong.
pub fn parse_hooks(list: &str) -> Result<Vec<Hook>, InspectionSettingsError> {
    let mut hooks = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if name == "$default_hooks" {
            hooks.extend_from_slice(Hook::DEFAULT);
        } else {
            let unknown = || InspectionSettingsError::UnknownHook { name: name.to_owned() };
            hooks.push(name.parse().map_err(|()| unknown())?);
        }
    }
    for (position, hook) in hooks.iter().enumerate() {
        let missing = hook.requires().iter().find(|required| !hooks[..position].contains(required));
        if let Some(requires) = missing {
            return Err(InspectionSettingsError::HookOrder { hook: *hook, requires: *requires });
        }
    }
    Ok(hooks)
}

fn nvidia_accelerators() -> Vec<KnownAccelerator> {
    [
        ("1eb8", "Tesla T4"),
        ("1df6", "GV100GL"),
        ("2236", "A10"),
        ("2235", "A40"),
        ("26b9", "L40S"),
        ("26ba", "L20"),
    ]
    .map(|(device_id, model)| KnownAccelerator {
        vendor_id: "10de".to_owned(),
        device_id: device_id.to_owned(),
        accelerator_type: "GPU".to_owned(),
        device_info: format!("NVIDIA Corporation {model}"),
    })
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_hook_lists_and_checks_order() {
        let hooks = parse_hooks("$default_hooks, parse-lldp,local-link-connection").unwrap();
        assert_eq!(hooks.len(), 6);
        assert_eq!(hooks[4], Hook::ParseLldp);
        assert_eq!(
            parse_hooks("ports,validate-interfaces").unwrap_err().to_string(),
            "inspection hook ports requires validate-interfaces before it in the list of hooks"
        );
        let unknown = parse_hooks("lldp_basic").unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no inspection hook \"lldp_basic\"; the hooks are "),
            "{unknown}"
        );
    }

    #[test]
    fn parses_physical_networks() {
        let v6: PhysicalNetwork = "2001:db8::/64:physnet_b".parse().unwrap();
        assert_eq!(
            (v6.network.to_string().as_str(), v6.name.as_str()),
            ("2001:db8::/64", "physnet_b")
        );
        assert!("10.0.0.0".parse::<PhysicalNetwork>().is_err());
        assert!("10.0.0.0/99:a".parse::<PhysicalNetwork>().is_err());
    }
}
