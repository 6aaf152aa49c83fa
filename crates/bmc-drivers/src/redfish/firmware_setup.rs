// SPDX-License-Identifier: Apache-2.0
//! Boot mode and secure boot: changes of the firmware's setup, which some machines make at once and
//! others when they start next.
//!
//! A machine of the second kind is rebooted, so that what was asked for is there when the call
//! returns; afterwards it is on or off as it was before.

use std::time::Duration;

use node_model::{PowerState, PowerTarget};
use redfish::Resource;
use serde_json::json;

use super::bmc::Bmc;
use super::boot_settings;
use super::connections::Connections;
use crate::pace::Pace;
use crate::{BootMode, Error, NodeChanges, Target};

/// What the firmware's setup is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// This boot mode.
    BootMode(BootMode),
    /// Secure boot on or off.
    SecureBoot(bool),
}

/// Whether secure boot is on; none if the machine has no such thing, or does not tell.
pub(super) async fn secure_boot(bmc: &Bmc, system: &Resource) -> Result<Option<bool>, Error> {
    let resource = bmc.follow(system, "/SecureBoot").await?;
    Ok(resource.and_then(|resource| resource.flag("/SecureBootEnable")))
}

/// Changes the boot mode. None if the machine's is not to be changed, nor read.
pub(super) async fn set_boot_mode(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    mode: BootMode,
) -> Result<Option<NodeChanges>, Error> {
    let system = bmc.system().await?;
    let before = boot_settings::mode(&system);
    let done = NodeChanges { boot_mode: Some(mode.as_str().to_owned()), ..NodeChanges::none() };
    if before == Some(mode) {
        return Ok(Some(done));
    }
    match boot_settings::set_mode(connections, bmc, target, &system, mode).await {
        Ok(()) if before.is_none() => Ok(Some(done)),
        Ok(()) => {
            let applied = see_applied(connections, bmc, target, Wanted::BootMode(mode)).await?;
            Ok(Some(applied.and(done)))
        }
        Err(Error::Failed { .. }) if before.is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Switches secure boot. None if the machine has no such thing.
pub(super) async fn set_secure_boot(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    on: bool,
) -> Result<Option<NodeChanges>, Error> {
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
    let applied = see_applied(connections, bmc, target, Wanted::SecureBoot(on)).await?;
    Ok(Some(applied.and(done)))
}

/// Waits until the change is there, rebooting the machine if it is not there at once.
async fn see_applied(
    connections: &Connections,
    bmc: &Bmc,
    target: &Target<'_>,
    wanted: Wanted,
) -> Result<NodeChanges, Error> {
    if wanted.is_there(bmc).await? {
        return Ok(NodeChanges::none());
    }
    let power = target.driver.power();
    let before = power.get(target).await?;
    let mut changes = power.set(target, PowerTarget::Reboot, None).await?;
    let limit = Duration::from_secs(connections.settings.boot_mode_config_timeout);
    let mut pace = Pace::within(limit);
    loop {
        // A BMC may stop answering while the firmware changes its setup.
        let look = wanted.is_there(bmc).await;
        match look {
            Ok(true) => break,
            Ok(false) | Err(Error::Unreachable { .. } | Error::Failed { .. }) => {}
            Err(error) => return Err(error),
        }
        if limit.is_zero() {
            break;
        }
        if !pace.pause().await {
            // The machine was rebooted for it: this is no silence to answer by trying again.
            let seen = look.map_or_else(|error| format!(" ({error})"), |_| String::new());
            return Err(bmc.failed(format!(
                "the BMC took the change, and {} s after the reboot it is still not there{seen}; \
                 look at the machine's screen, or allow more time with boot_mode_config_timeout",
                limit.as_secs()
            )));
        }
    }
    if before == Some(PowerState::Off) {
        changes = changes.and(power.set(target, PowerTarget::Off, None).await?);
    }
    Ok(changes)
}

impl Wanted {
    async fn is_there(self, bmc: &Bmc) -> Result<bool, Error> {
        let system = bmc.system().await?;
        Ok(match self {
            Self::BootMode(mode) => boot_settings::mode(&system) == Some(mode),
            Self::SecureBoot(on) => secure_boot(bmc, &system).await? == Some(on),
        })
    }
}

/// What is done to the keys of secure boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyReset {
    /// The maker's keys, and no others.
    ToDefault,
    /// No keys at all.
    DeleteAll,
}

/// Resets the keys of secure boot. None if the machine has no such thing.
pub(super) async fn reset_keys(bmc: &Bmc, how: KeyReset) -> Result<Option<()>, Error> {
    const PARAMETER: &str = "ResetKeysType";
    let system = bmc.system().await?;
    let Some(resource) = bmc.follow(&system, "/SecureBoot").await? else { return Ok(None) };
    let Some(action) = resource.action("SecureBoot.ResetKeys") else { return Ok(None) };
    let kind = match how {
        KeyReset::ToDefault => "ResetAllKeysToDefault",
        KeyReset::DeleteAll => "DeleteAllKeys",
    };
    if !action.allows(PARAMETER, kind) {
        let known = action.allowable.get(PARAMETER).map(|known| known.join(", "));
        return Err(bmc.failed(format!(
            "the BMC has no '{kind}' for its keys; it has: {}",
            known.unwrap_or_default()
        )));
    }
    bmc.post(&action.target, &json!({ PARAMETER: kind })).await?;
    Ok(Some(()))
}
