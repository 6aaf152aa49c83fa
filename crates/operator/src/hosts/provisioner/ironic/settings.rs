// SPDX-License-Identifier: Apache-2.0
//! Configuration of the provisioner, and Metal3's environment variables for it.

use http::Uri;
use kube_resources::hosts::ironic_payloads::deploy_ramdisk::{DefaultRamdisk, DefaultRamdiskError};
use kube_resources::hosts::ironic_payloads::image::BootDevicePersistence;

/// Provisioning operations at the same time, unless configured.
const DEFAULT_PROVISIONING_LIMIT: usize = 20;
/// Values of `force_persistent_boot_device`.
const PERSISTENCE_VALUES: [&str; 3] = ["Default", "Always", "Never"];

/// Configuration of the provisioner.
#[derive(Clone, Debug)]
pub struct IronicProvisionerSettings {
    /// Ramdisks for hosts without their own.
    pub ramdisk: DefaultRamdisk,
    /// Values of `force_persistent_boot_device`.
    pub boot_device_persistence: BootDevicePersistence,
    /// How many hosts that boot over the network may be inspected, deployed or cleaned at once.
    pub provisioning_limit: usize,
    /// URL from which BMCs with an IPv6 address get images; `None` if all BMCs use the same URL.
    pub external_url_v6: Option<String>,
    /// Whether there is no provisioning network, so that hosts which need one are rejected.
    pub is_provisioning_network_disabled: bool,
}

impl Default for IronicProvisionerSettings {
    fn default() -> Self {
        Self {
            ramdisk: DefaultRamdisk::default(),
            boot_device_persistence: BootDevicePersistence::default(),
            provisioning_limit: DEFAULT_PROVISIONING_LIMIT,
            external_url_v6: None,
            is_provisioning_network_disabled: false,
        }
    }
}

/// A variable of the environment has no usable value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IronicProvisionerSettingsError {
    /// The variables of ramdisks.
    #[error(transparent)]
    Ramdisk(#[from] DefaultRamdiskError),
    /// Another variable.
    #[error("{variable} is {value:?}; {expected}")]
    InvalidVariable {
        /// Name of the variable.
        variable: String,
        /// Its value.
        value: String,
        /// What to set.
        expected: &'static str,
    },
}

impl IronicProvisionerSettings {
    /// Reads Metal3's variables. Unknown and empty ones are ignored.
    pub fn from_variables(
        variables: impl IntoIterator<Item = (String, String)>,
        is_ramdisk_built_per_host: bool,
    ) -> Result<Self, IronicProvisionerSettingsError> {
        let variables: Vec<(String, String)> =
            variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let mut settings = Self {
            ramdisk: DefaultRamdisk::from_variables(
                variables.iter().cloned(),
                is_ramdisk_built_per_host,
            )?,
            ..Self::default()
        };
        for (name, value) in variables {
            let checked = match name.as_str() {
                "PROVISIONING_LIMIT" => settings.set_limit(&value),
                "LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE" => {
                    persistence(&value, &mut settings.boot_device_persistence.live_iso)
                }
                "DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE" => {
                    persistence(&value, &mut settings.boot_device_persistence.direct)
                }
                "IRONIC_EXTERNAL_URL_V6" => settings.set_external_url(&value),
                "PROVISIONING_NETWORK_DISABLED" => {
                    let is_disabled = value.eq_ignore_ascii_case("true");
                    settings.is_provisioning_network_disabled = is_disabled;
                    Ok(())
                }
                _ => Ok(()),
            };
            checked.map_err(|expected| IronicProvisionerSettingsError::InvalidVariable {
                variable: name,
                value,
                expected,
            })?;
        }
        Ok(settings)
    }

    fn set_limit(&mut self, value: &str) -> Result<(), &'static str> {
        self.provisioning_limit = value.parse().map_err(|_| "use a number of hosts")?;
        Ok(())
    }

    fn set_external_url(&mut self, value: &str) -> Result<(), &'static str> {
        let is_url = value.parse::<Uri>().is_ok_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
        });
        if !is_url {
            return Err("use a URL such as http://[2001:db8::1]:6180");
        }
        self.external_url_v6 = Some(value.to_owned());
        Ok(())
    }
}

fn persistence(value: &str, setting: &mut Option<String>) -> Result<(), &'static str> {
    if !PERSISTENCE_VALUES.contains(&value) {
        return Err("use Default, Always or Never");
    }
    *setting = Some(value.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<IronicProvisionerSettings, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        IronicProvisionerSettings::from_variables(pairs, false).map_err(|error| error.to_string())
    }

    #[test]
    fn metal3_variables_are_read() {
        let settings = read(&[
            ("PROVISIONING_LIMIT", "7"),
            ("LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE", "Never"),
            ("DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE", "Always"),
            ("IRONIC_EXTERNAL_URL_V6", "http://[2001:db8::1]:6180"),
            ("PROVISIONING_NETWORK_DISABLED", "True"),
            ("DEPLOY_KERNEL_BY_ARCH", "aarch64:http://k"),
            ("DEPLOY_RAMDISK_BY_ARCH", "aarch64:http://r"),
            ("PATH", "/bin"),
        ])
        .unwrap();
        assert_eq!(settings.provisioning_limit, 7);
        assert_eq!(settings.boot_device_persistence.live_iso.as_deref(), Some("Never"));
        assert_eq!(settings.boot_device_persistence.direct.as_deref(), Some("Always"));
        assert_eq!(settings.external_url_v6.as_deref(), Some("http://[2001:db8::1]:6180"));
        assert!(settings.is_provisioning_network_disabled);
        assert!(settings.ramdisk.by_architecture.contains_key("aarch64"));
        let settings = read(&[("PROVISIONING_LIMIT", "")]).unwrap();
        assert_eq!(settings.provisioning_limit, DEFAULT_PROVISIONING_LIMIT);
        assert!(!settings.is_provisioning_network_disabled);
    }

    #[test]
    fn errors_name_the_variable() {
        for (name, value) in [
            ("PROVISIONING_LIMIT", "many"),
            ("LIVE_ISO_FORCE_PERSISTENT_BOOT_DEVICE", "never"),
            ("DIRECT_DEPLOY_FORCE_PERSISTENT_BOOT_DEVICE", "yes"),
            ("IRONIC_EXTERNAL_URL_V6", "2001:db8::1"),
            ("DEPLOY_KERNEL_URL", "http://k"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }
}
