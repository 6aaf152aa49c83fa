// SPDX-License-Identifier: Apache-2.0
//! Waits at start until this host has its address on the provisioning network, and notices when the address
//! changes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};

use crate::config::{Config, ConfigSource, ProvisioningAddress, ProvisioningSection};
use crate::network_interfaces::{HostInterface, host_interfaces};

/// Time between two queries of the interfaces at start.
const START_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two queries while the server runs.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// The number of queries that must find another address before the server stops.
const CHECKS_BEFORE_STOP: u32 = 6;

/// Returns the configuration with this host's address on the provisioning network. Waits for the address; fails
/// if it does not appear in time. Returns `config` if no provisioning network is configured.
pub(crate) fn resolve(source: &ConfigSource, config: Config) -> anyhow::Result<Config> {
    if !config.provisioning.is_set() {
        return Ok(config);
    }
    let found = wait_for_address(&config.provisioning)?;
    tracing::info!(
        interface = found.interface,
        address = %found.address,
        prefix = found.prefix,
        "provisioning address found"
    );
    source.config(Some(found))
}

fn wait_for_address(section: &ProvisioningSection) -> anyhow::Result<ProvisioningAddress> {
    let timeout = Duration::from_secs(section.timeout);
    let started = Instant::now();
    let mut last_reason = String::new();
    loop {
        let interfaces = host_interfaces().context("cannot list the network interfaces")?;
        let reason = match section.find(&interfaces) {
            Ok(found) => return Ok(found),
            Err(reason) => reason,
        };
        if started.elapsed() >= timeout {
            bail!("{}", timeout_error(&reason, section.timeout, &interfaces));
        }
        if reason != last_reason {
            tracing::info!(
                reason,
                timeout = section.timeout,
                "waiting for the provisioning address"
            );
            last_reason = reason;
        }
        std::thread::sleep(START_INTERVAL);
    }
}

fn timeout_error(reason: &str, timeout: u64, interfaces: &[HostInterface]) -> String {
    let found: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
    format!(
        "no address on the provisioning network within {timeout} seconds (provisioning.timeout): {reason}; \
         correct provisioning.interface, mac_addresses, address or network; interfaces of this host: {}",
        found.join(", ")
    )
}

/// Waits until another address has replaced the one that the server uses. While there is none, the server
/// keeps running, because the address may return.
pub(crate) async fn wait_for_replacement(config: &Config) -> anyhow::Error {
    let Some(used) = &config.provisioning_address else {
        return std::future::pending().await;
    };
    let (mut is_missing, mut changed) = (false, 0);
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let interfaces = match host_interfaces() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                tracing::warn!(%error, "cannot list the network interfaces");
                continue;
            }
        };
        match address_state(used, &config.provisioning, &interfaces) {
            ProvisioningAddressState::Present => {
                if is_missing {
                    tracing::info!(address = %used.address, "provisioning address is present again");
                }
                (is_missing, changed) = (false, 0);
            }
            ProvisioningAddressState::Missing => {
                if !is_missing {
                    tracing::warn!(
                        interface = used.interface,
                        address = %used.address,
                        "provisioning address is missing; machines cannot reach this server"
                    );
                }
                (is_missing, changed) = (true, 0);
            }
            ProvisioningAddressState::Replaced(other) => {
                changed += 1;
                if changed >= CHECKS_BEFORE_STOP {
                    return anyhow!(
                        "the provisioning address {} on {} was replaced by {} on {}; start again to use it",
                        used.address,
                        used.interface,
                        other.address,
                        other.interface
                    );
                }
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ProvisioningAddressState {
    Present,
    Missing,
    Replaced(ProvisioningAddress),
}

fn address_state(
    used: &ProvisioningAddress,
    section: &ProvisioningSection,
    interfaces: &[HostInterface],
) -> ProvisioningAddressState {
    let is_present = interfaces.iter().any(|interface| {
        interface.name == used.interface
            && interface.addresses.iter().any(|own| own.address == used.address)
    });
    match section.find(interfaces) {
        _ if is_present => ProvisioningAddressState::Present,
        Ok(other) => ProvisioningAddressState::Replaced(other),
        Err(_) => ProvisioningAddressState::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_interfaces::InterfaceAddress;

    fn eth1(addresses: &[&str]) -> Vec<HostInterface> {
        let addresses = addresses
            .iter()
            .map(|text| InterfaceAddress { address: text.parse().unwrap(), prefix: 24 })
            .collect();
        let (name, is_up) = ("eth1".to_owned(), true);
        vec![HostInterface { name, is_up, addresses, ..HostInterface::default() }]
    }

    #[test]
    fn replaced_and_missing_addresses_are_distinguished() {
        let section: ProvisioningSection = toml::from_str("interface = \"eth1\"").unwrap();
        let used = section.find(&eth1(&["10.0.0.1"])).unwrap();
        let state = |addresses: &[&str]| address_state(&used, &section, &eth1(addresses));
        assert_eq!(state(&["10.0.0.2", "10.0.0.1"]), ProvisioningAddressState::Present);
        assert_eq!(state(&[]), ProvisioningAddressState::Missing);
        let other = section.find(&eth1(&["10.0.0.2"])).unwrap();
        assert_eq!(state(&["10.0.0.2"]), ProvisioningAddressState::Replaced(other));
    }

    #[test]
    fn the_error_lists_the_interfaces() {
        let section: ProvisioningSection =
            toml::from_str("interface = \"missing0\"\ntimeout = 0").unwrap();
        let error = wait_for_address(&section).unwrap_err().to_string();
        assert!(error.contains("this host does not have the interface missing0"), "{error}");
        assert!(error.contains("interfaces of this host: lo"), "{error}");
    }
}
