// SPDX-License-Identifier: Apache-2.0
//! Boot mode and secure boot: changes of the firmware setup, which some machines apply at once and
//! others at the next boot.
//!
//! A machine of the second kind is rebooted, so that the change is in effect when the call returns.
//! Afterwards its power state is as before.

use std::time::Duration;

use drivers::{BootMode, DriverError, DriverTarget, NodeChanges, PollTimer};
use node_model::{PowerState, PowerTarget};
use redfish::RedfishResource;
use serde_json::json;

use super::bmc::RedfishBmc;
use super::boot_settings;
use super::connections::RedfishConnections;

/// A requested change of the firmware setup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FirmwareSetupChange {
    /// The boot mode.
    BootMode(BootMode),
    /// Secure boot on or off.
    SecureBoot(bool),
}

/// Whether secure boot is enabled; `None` if the machine does not have or report it.
pub(super) async fn secure_boot(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Option<bool>, DriverError> {
    let resource = bmc.follow(system, "/SecureBoot").await?;
    Ok(resource.and_then(|resource| resource.flag("/SecureBootEnable")))
}

/// Sets the boot mode. Returns `None` if it can be neither read nor set.
pub(super) async fn set_boot_mode(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    mode: BootMode,
) -> Result<Option<NodeChanges>, DriverError> {
    let system = bmc.system().await?;
    let before = boot_settings::mode(&system);
    let done = NodeChanges { boot_mode: Some(mode.as_str().to_owned()), ..NodeChanges::none() };
    if before == Some(mode) {
        return Ok(Some(done));
    }
    match boot_settings::set_mode(connections, bmc, target, &system, mode).await {
        Ok(()) if before.is_none() => Ok(Some(done)),
        Ok(()) => {
            let applied =
                wait_until_applied(connections, bmc, target, FirmwareSetupChange::BootMode(mode))
                    .await?;
            Ok(Some(applied.and(done)))
        }
        Err(DriverError::Failed { .. }) if before.is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Enables or disables secure boot. Returns `None` if the machine does not have it.
pub(super) async fn set_secure_boot(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    on: bool,
) -> Result<Option<NodeChanges>, DriverError> {
    let system = bmc.system().await?;
    let Some(resource) = bmc.follow(&system, "/SecureBoot").await? else { return Ok(None) };
    let done = NodeChanges { secure_boot: Some(on), ..NodeChanges::none() };
    if resource.flag("/SecureBootEnable") == Some(on) {
        return Ok(Some(done));
    }
    if boot_settings::mode(&system) == Some(BootMode::Bios) {
        return Err(bmc.failed("the boot mode is bios; set it to uefi first"));
    }
    bmc.patch(&resource, &json!({ "SecureBootEnable": on })).await?;
    let applied =
        wait_until_applied(connections, bmc, target, FirmwareSetupChange::SecureBoot(on)).await?;
    Ok(Some(applied.and(done)))
}

/// Waits until the change is in effect; reboots the machine if it is not applied at once.
async fn wait_until_applied(
    connections: &RedfishConnections,
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    wanted: FirmwareSetupChange,
) -> Result<NodeChanges, DriverError> {
    if wanted.is_applied(bmc).await? {
        return Ok(NodeChanges::none());
    }
    let power = target.driver.power();
    let before = power.get(target).await?;
    let mut changes = power.set(target, PowerTarget::Reboot, None).await?;
    let limit = Duration::from_secs(connections.settings.boot_mode_config_timeout);
    let mut timer = PollTimer::with_timeout(limit);
    loop {
        // A BMC may be unreachable while the firmware changes its setup.
        let applied_now = wanted.is_applied(bmc).await;
        match applied_now {
            Ok(true) => break,
            Ok(false) | Err(DriverError::BmcUnreachable { .. } | DriverError::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
        if limit.is_zero() {
            break;
        }
        if !timer.wait().await {
            // The machine was rebooted already, so the error must not be transient: no retry.
            let detail = applied_now.map_or_else(|error| format!(" ({error})"), |_| String::new());
            return Err(bmc.failed(format!(
                "the BMC accepted the change, and it is not in effect {} s after the reboot{detail}; \
                 check the console of the machine, or increase boot_mode_config_timeout",
                limit.as_secs()
            )));
        }
    }
    if before == Some(PowerState::Off) {
        changes = changes.and(power.set(target, PowerTarget::Off, None).await?);
    }
    Ok(changes)
}

impl FirmwareSetupChange {
    async fn is_applied(self, bmc: &RedfishBmc) -> Result<bool, DriverError> {
        let system = bmc.system().await?;
        Ok(match self {
            Self::BootMode(mode) => boot_settings::mode(&system) == Some(mode),
            Self::SecureBoot(on) => secure_boot(bmc, &system).await? == Some(on),
        })
    }
}

/// A reset of the secure boot keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SecureBootKeyReset {
    /// To the vendor's default keys.
    ToDefault,
    /// To no keys.
    DeleteAll,
}

/// Resets the secure boot keys. Returns `None` if the machine does not support it.
pub(super) async fn reset_keys(
    bmc: &RedfishBmc,
    how: SecureBootKeyReset,
) -> Result<Option<()>, DriverError> {
    const PARAMETER: &str = "ResetKeysType";
    let system = bmc.system().await?;
    let Some(resource) = bmc.follow(&system, "/SecureBoot").await? else { return Ok(None) };
    let Some(action) = resource.action("SecureBoot.ResetKeys") else { return Ok(None) };
    let kind = match how {
        SecureBootKeyReset::ToDefault => "ResetAllKeysToDefault",
        SecureBootKeyReset::DeleteAll => "DeleteAllKeys",
    };
    if !action.allows(PARAMETER, kind) {
        let known = action.allowable.get(PARAMETER).map(|known| known.join(", "));
        return Err(bmc.failed(format!(
            "the BMC does not support the key reset '{kind}'; it supports: {}",
            known.unwrap_or_default()
        )));
    }
    bmc.post(&action.target, &json!({ PARAMETER: kind })).await?;
    Ok(Some(()))
}
