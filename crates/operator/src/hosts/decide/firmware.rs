// SPDX-License-Identifier: Apache-2.0
//! Which BIOS settings, firmware and other settings of a host have to be applied.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::firmware::{CHANGE_DETECTED, SETTINGS_APPLIED, VALID};
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_update_policy::FirmwareChangeTime;
use kube_resources::hosts::ironic_payloads::root_device::profile_hints;
use kube_resources::hosts::raid::DiskHints;

use super::super::provisioner::FirmwareChanges;
use super::inputs::{HostView, SettingsVersion};

/// The profile that Metal3's operator uses for hosts without one.
const METAL3_PROFILE: &str = "unknown";

/// Requested changes of firmware.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FirmwareRequest {
    /// The objects were not compared with the hardware yet.
    NotRead,
    /// Nothing to do.
    Unchanged,
    /// Changes.
    Changed(FirmwareChanges),
}

/// Root device hints of a host: its own, or those of its deprecated profile.
///
/// Metal3 uses the profile `unknown`, which is `/dev/sda`, for every host without hints; here the
/// service chooses the disk.
#[must_use]
pub fn effective_root_device_hints(host: &BareMetalHost) -> Option<DiskHints> {
    let profile = || host.spec.hardware_profile.as_deref().and_then(profile_hints);
    host.spec.root_device_hints.clone().or_else(profile)
}

/// Whether RAID or root device hints differ from what was applied.
pub(super) fn are_host_settings_changed(view: &HostView<'_>) -> bool {
    let applied = &view.status.provisioning;
    let is_raid_changed = view.host.spec.raid.is_some() && view.host.spec.raid != applied.raid;
    let hints = effective_root_device_hints(view.host);
    // A host without hints that Metal3's operator prepared stays available.
    let is_metal3_default =
        hints.is_none() && applied.root_device_hints == profile_hints(METAL3_PROFILE);
    is_raid_changed || (hints != applied.root_device_hints && !is_metal3_default)
}

/// Changes before provisioning.
pub(super) fn preparing_request(view: &HostView<'_>) -> FirmwareRequest {
    requested(view, true, true)
}

/// Changes at a reboot of a provisioned host. The policy has to allow them.
pub(super) fn servicing_request(view: &HostView<'_>) -> FirmwareRequest {
    let Some(policy) = &view.companions.update_policy else { return FirmwareRequest::Unchanged };
    let at_reboot = |time: &Option<FirmwareChangeTime>| *time == Some(FirmwareChangeTime::OnReboot);
    requested(view, at_reboot(&policy.firmware_settings), at_reboot(&policy.firmware_updates))
}

/// What preparation applies; nothing if there is no request.
#[must_use]
pub fn preparing_firmware(view: &HostView<'_>) -> FirmwareChanges {
    preparing_request(view).changes()
}

/// What servicing applies; nothing if there is no request or it was withdrawn.
#[must_use]
pub fn servicing_firmware(view: &HostView<'_>) -> FirmwareChanges {
    servicing_request(view).changes()
}

impl FirmwareRequest {
    fn changes(self) -> FirmwareChanges {
        match self {
            Self::Changed(changes) => changes,
            Self::NotRead | Self::Unchanged => FirmwareChanges::default(),
        }
    }
}

fn requested(view: &HostView<'_>, uses_settings: bool, uses_updates: bool) -> FirmwareRequest {
    let mut changes = FirmwareChanges::default();
    if let Some(settings) = view.companions.firmware_settings.as_ref().filter(|_| uses_settings) {
        let status = settings.status.clone().unwrap_or_default();
        match is_changed(&status.conditions, settings.metadata.generation) {
            None if settings.spec.settings.is_empty() => {}
            None => return FirmwareRequest::NotRead,
            Some(true) if !is_applied(view, settings) => {
                changes.settings.clone_from(&settings.spec.settings);
                changes.current_settings = Some(status.settings);
            }
            Some(_) => {}
        }
    }
    if let Some(components) = view.companions.firmware_components.as_ref().filter(|_| uses_updates)
    {
        let status = components.status.clone().unwrap_or_default();
        match is_changed(&status.conditions, components.metadata.generation) {
            None if components.spec.updates.is_empty() => {}
            None => return FirmwareRequest::NotRead,
            Some(true) if components.spec.updates != status.updates => {
                changes.updates.clone_from(&components.spec.updates);
            }
            Some(_) => {}
        }
    }
    match changes == FirmwareChanges::default() {
        true => FirmwareRequest::Unchanged,
        false => FirmwareRequest::Changed(changes),
    }
}

/// Whether a valid change was found; `None` if this generation was not looked at yet.
fn is_changed(conditions: &[Condition], generation: Option<i64>) -> Option<bool> {
    let find = |name: &str| {
        let mut found = conditions.iter().filter(|condition| condition.type_ == name);
        found.find(|condition| condition.observed_generation == generation)
    };
    let (changed, valid) = (find(CHANGE_DETECTED)?, find(VALID)?);
    Some(changed.status == "True" && valid.status == "True")
}

/// Whether this generation was applied. Some BMCs store other values than the requested ones, or change
/// them later; applying them again would not end.
fn is_applied(view: &HostView<'_>, settings: &HostFirmwareSettings) -> bool {
    let Some(version) = SettingsVersion::of(settings) else { return false };
    let mut conditions = settings.status.iter().flat_map(|status| &status.conditions);
    let is_recorded = conditions.any(|condition| {
        condition.type_ == SETTINGS_APPLIED
            && condition.observed_generation == Some(version.generation)
    });
    is_recorded || view.memory.applied_settings.as_ref() == Some(&version)
}

/// The BIOS settings that a request applies.
pub(super) fn settings_version(
    view: &HostView<'_>,
    request: &FirmwareRequest,
) -> Option<SettingsVersion> {
    let settings = view.companions.firmware_settings.as_ref()?;
    match request {
        FirmwareRequest::Changed(changes) if !changes.settings.is_empty() => {
            SettingsVersion::of(settings)
        }
        FirmwareRequest::Changed(_) | FirmwareRequest::Unchanged | FirmwareRequest::NotRead => None,
    }
}
