// SPDX-License-Identifier: Apache-2.0
//! What an operator can choose about inspection. The defaults are Ironic's, except that what an
//! operator said about a node is kept.

use node_model::{InspectionRule, KeptLogs};
use serde::{Deserialize, Serialize};

use crate::hooks::Hook;
use crate::{Network, ParseNetworkError};

/// Settings of the hooks and rules.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Hooks in the order they run.
    pub hooks: Vec<Hook>,
    /// For which network cards ports are created.
    pub add_ports: AddPorts,
    /// Which existing ports stay.
    pub keep_ports: KeepPorts,
    /// Whether `pxe_enabled` of existing ports follows what the machine really booted from.
    pub update_pxe_enabled: bool,
    /// Whether a GiB of the root disk is left out of `local_gb`, for partitioning.
    pub disk_partitioning_spacing: bool,
    /// Whether hooks replace what is already set of a node's properties and of its ports. Rules,
    /// which an operator wrote, always do.
    pub existing_properties: ExistingProperties,
    /// CPU flags and the capability each sets, in the order in which they are written.
    pub cpu_capabilities: Vec<(String, String)>,
    /// Whether extra hardware data with one bad record is refused as a whole.
    pub extra_hardware_strict: bool,
    /// PCI devices that are counted in capabilities.
    pub pci_device_alias: Vec<PciAlias>,
    /// PCI devices that are accelerators.
    pub known_accelerators: Vec<KnownAccelerator>,
    /// Which physical network an address belongs to; the first match counts.
    pub physical_network_cidr_map: Vec<PhysicalNetwork>,
    /// From which rules secrets in the report are hidden.
    pub mask_secrets: MaskSecrets,
    /// Rules that are there without anybody having created them.
    pub built_in_rules: Vec<InspectionRule>,
    /// What becomes of machines that nobody enrolled; none leaves them strangers.
    pub auto_discovery: Option<AutoDiscovery>,
    /// The beginnings of the addresses that the rule action `api-call` may ask.
    pub api_call_allowed: Vec<String>,
    /// When the ramdisk's logs are kept.
    pub collect_logs: CollectLogs,
    /// How much of the ramdisk's logs is kept.
    pub kept_logs: KeptLogs,
}

/// How machines are enrolled that nobody enrolled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AutoDiscovery {
    /// The driver of the new node.
    pub driver: String,
    /// Its conductor group.
    pub conductor_group: String,
    /// Its resource class.
    pub resource_class: Option<String>,
}

/// When the ramdisk's logs are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectLogs {
    /// After every operation.
    Always,
    /// When an operation failed.
    OnFailure,
    /// Not at all.
    Never,
}

/// For which network cards ports are created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddPorts {
    /// For all.
    All,
    /// For those that had an IP address while the ramdisk ran.
    Active,
    /// For the one the machine booted from; for all if that is not known.
    Pxe,
    /// For none.
    Disabled,
}

/// Which existing ports stay after inspection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepPorts {
    /// All.
    All,
    /// Those whose card is in the report.
    Present,
    /// Those for which a port would have been created.
    Added,
}

/// What happens to a property that is already set when a hook finds a value for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExistingProperties {
    /// It is replaced, as in Ironic.
    Overwrite,
    /// It stays, unless it is still what the last inspection found: a ramdisk that nobody
    /// authenticated cannot change what an operator said.
    Keep,
}

/// From which rules the values of `password`, `auth_token` and `bmc_password` are hidden.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MaskSecrets {
    /// From all.
    Always,
    /// From those that are not marked sensitive.
    Sensitive,
    /// From none.
    Never,
}

/// A PCI device that is counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciAlias {
    /// Four hexadecimal digits.
    pub vendor_id: String,
    /// Four hexadecimal digits.
    pub product_id: String,
    /// The capability that gets the count.
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
    pub kind: String,
    /// Its name.
    pub device_info: String,
}

/// The addresses of a physical network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PhysicalNetwork {
    /// Its addresses.
    pub network: Network,
    /// Its name.
    pub name: String,
}

/// A setting cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is no such hook.
    #[error("there is no inspection hook {name:?}; the hooks are {}", Hook::names())]
    UnknownHook {
        /// What was written.
        name: String,
    },
    /// A hook needs another one before it.
    #[error("inspection hook {hook} needs {needs} somewhere before it in the list of hooks")]
    HookOrder {
        /// The hook.
        hook: Hook,
        /// What it needs.
        needs: Hook,
    },
    /// No colon between network and name.
    #[error("{entry:?} is not a network and a name such as 10.10.10.0/24:physnet_a")]
    PhysicalNetwork {
        /// What was written.
        entry: String,
        /// What is wrong with the network, if it was found.
        #[source]
        source: Option<ParseNetworkError>,
    },
}

impl Default for Settings {
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
            kept_logs: KeptLogs::default(),
        }
    }
}

impl std::str::FromStr for PhysicalNetwork {
    type Err = SettingsError;

    /// Takes `network:name`.
    fn from_str(entry: &str) -> Result<Self, SettingsError> {
        let refused = |source| SettingsError::PhysicalNetwork { entry: entry.to_owned(), source };
        let (network, name) = entry.rsplit_once(':').ok_or_else(|| refused(None))?;
        let network = network.parse().map_err(|error| refused(Some(error)))?;
        Ok(Self { network, name: name.to_owned() })
    }
}

/// Reads a list of hooks such as `$default_hooks,parse-lldp`, and checks that each has what it
/// needs before it.
///
/// # Errors
/// If a name is unknown or the order is wrong.
pub fn parse_hooks(list: &str) -> Result<Vec<Hook>, SettingsError> {
    let mut hooks = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if name == "$default_hooks" {
            hooks.extend_from_slice(Hook::DEFAULT);
        } else {
            let unknown = || SettingsError::UnknownHook { name: name.to_owned() };
            hooks.push(name.parse().map_err(|()| unknown())?);
        }
    }
    for (position, hook) in hooks.iter().enumerate() {
        if let Some(needs) = hook.needs().iter().find(|needs| !hooks[..position].contains(needs)) {
            return Err(SettingsError::HookOrder { hook: *hook, needs: *needs });
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
        kind: "GPU".to_owned(),
        device_info: format!("NVIDIA Corporation {model}"),
    })
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_lists() {
        let hooks = parse_hooks("$default_hooks, parse-lldp,local-link-connection").unwrap();
        assert_eq!(hooks.len(), 6);
        assert_eq!(hooks[4], Hook::ParseLldp);
        assert_eq!(
            parse_hooks("ports,validate-interfaces").unwrap_err().to_string(),
            "inspection hook ports needs validate-interfaces somewhere before it in the list of hooks"
        );
        let unknown = parse_hooks("lldp_basic").unwrap_err().to_string();
        assert!(
            unknown.starts_with("there is no inspection hook \"lldp_basic\"; the hooks are "),
            "{unknown}"
        );
    }

    #[test]
    fn physical_networks() {
        let v6: PhysicalNetwork = "2001:db8::/64:physnet_b".parse().unwrap();
        assert_eq!(
            (v6.network.to_string().as_str(), v6.name.as_str()),
            ("2001:db8::/64", "physnet_b")
        );
        assert!("10.0.0.0".parse::<PhysicalNetwork>().is_err());
        assert!("10.0.0.0/99:a".parse::<PhysicalNetwork>().is_err());
    }
}
