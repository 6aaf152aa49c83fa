// SPDX-License-Identifier: Apache-2.0
//! Boot settings, the choice of the boot device, and the boot history.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MachineError, MachineModel, MediaKind, PowerPhase};
use crate::personality::TargetWithoutEnabledRule;

/// Number of boots in the history.
const MAX_BOOT_HISTORY: usize = 16;

/// Redfish's `BootSourceOverrideTarget`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootTarget {
    /// No override.
    None,
    /// Network, by PXE.
    Pxe,
    /// A floppy disk.
    Floppy,
    /// A CD or DVD.
    Cd,
    /// A USB device.
    Usb,
    /// A CD on USB, which some vendors use for virtual media.
    UsbCd,
    /// A hard disk.
    Hdd,
    /// The firmware setup.
    BiosSetup,
    /// The vendor's utilities.
    Utilities,
    /// The vendor's diagnostics.
    Diags,
    /// UEFI HTTP boot.
    UefiHttp,
    /// The UEFI shell.
    UefiShell,
}

/// Redfish's `BootSourceOverrideEnabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootOverride {
    /// No override.
    Disabled,
    /// Only for the next boot.
    Once,
    /// Until it is changed.
    Continuous,
}

/// Redfish's `BootSourceOverrideMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootMode {
    /// Legacy BIOS.
    Legacy,
    /// UEFI.
    #[serde(rename = "UEFI")]
    Uefi,
}

/// The boot settings stored by the BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSettings {
    /// The boot target.
    pub target: BootTarget,
    /// How long the override applies.
    pub enabled: BootOverride,
    /// The boot mode.
    pub mode: BootMode,
    /// The URL for `UefiHttp`; without it the firmware gets one from DHCP.
    pub http_uri: Option<Box<str>>,
}

/// Changes to the boot settings. `None` keeps the current value.
#[derive(Clone, Debug, Default)]
pub struct BootChange {
    /// The boot target.
    pub target: Option<BootTarget>,
    /// How long the override applies.
    pub enabled: Option<BootOverride>,
    /// The boot mode.
    pub mode: Option<BootMode>,
    /// The URL for `UefiHttp`; `Some(None)` removes it.
    pub http_uri: Option<Option<Box<str>>>,
}

/// One boot of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BootRecord {
    /// When POST ended.
    pub at: Timestamp,
    /// The boot device.
    pub from: BootTarget,
    /// The URL of the virtual media or of UEFI HTTP boot.
    pub image: Option<Box<str>>,
    /// The boot mode.
    pub mode: BootMode,
    /// Whether signatures were verified.
    pub secure: bool,
}

impl BootTarget {
    /// All targets, in the order in which BMCs list them.
    pub const ALL: &[Self] = &[
        Self::None,
        Self::Pxe,
        Self::Floppy,
        Self::Cd,
        Self::Usb,
        Self::UsbCd,
        Self::Hdd,
        Self::BiosSetup,
        Self::Utilities,
        Self::Diags,
        Self::UefiHttp,
        Self::UefiShell,
    ];

    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Pxe => "Pxe",
            Self::Floppy => "Floppy",
            Self::Cd => "Cd",
            Self::Usb => "Usb",
            Self::UsbCd => "UsbCd",
            Self::Hdd => "Hdd",
            Self::BiosSetup => "BiosSetup",
            Self::Utilities => "Utilities",
            Self::Diags => "Diags",
            Self::UefiHttp => "UefiHttp",
            Self::UefiShell => "UefiShell",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|target| target.name() == name)
    }
}

impl BootOverride {
    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Once => "Once",
            Self::Continuous => "Continuous",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Disabled, Self::Once, Self::Continuous].into_iter().find(|it| it.name() == name)
    }
}

impl BootMode {
    /// Returns Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "Legacy",
            Self::Uefi => "UEFI",
        }
    }

    /// Parses Redfish's name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Legacy, Self::Uefi].into_iter().find(|mode| mode.name() == name)
    }
}

impl Default for BootSettings {
    fn default() -> Self {
        Self {
            target: BootTarget::None,
            enabled: BootOverride::Disabled,
            mode: BootMode::Uefi,
            http_uri: None,
        }
    }
}

impl MachineModel {
    /// Returns the boot settings that the BMC shows.
    #[must_use]
    pub fn boot_settings(&self) -> &BootSettings {
        &self.boot_settings
    }

    /// Changes the boot settings. Either all changes are applied or none.
    ///
    /// # Errors
    /// When the personality does not support a value, or does not permit changes during POST.
    pub fn set_boot(&mut self, change: BootChange, now: Timestamp) -> Result<(), MachineError> {
        self.advance(now);
        let rules = &self.personality.boot;
        if !rules.changes_during_post && matches!(self.power, PowerPhase::Post { .. }) {
            return Err(MachineError::DuringPost);
        }
        if let Some(target) = change.target
            && target != BootTarget::None
            && !rules.targets.contains(&target)
        {
            return Err(MachineError::NotInList {
                property: "BootSourceOverrideTarget",
                value: target.name().to_owned(),
            });
        }
        if change.enabled == Some(BootOverride::Continuous) && !rules.supports_continuous {
            return Err(MachineError::NotInList {
                property: "BootSourceOverrideEnabled",
                value: BootOverride::Continuous.name().to_owned(),
            });
        }
        if change.mode.is_some_and(|mode| mode != self.boot_settings.mode)
            && !rules.supports_mode_changes
        {
            return Err(MachineError::NotWritable { property: "BootSourceOverrideMode" });
        }
        if matches!(change.http_uri, Some(Some(_))) && !rules.supports_http_uri {
            return Err(MachineError::NotWritable { property: "HttpBootUri" });
        }
        let target_without_enabled = rules.target_without_enabled;
        self.boots_virtual_cd &= change.target.is_none();
        let settings = &mut self.boot_settings;
        settings.target = change.target.unwrap_or(settings.target);
        settings.mode = change.mode.unwrap_or(settings.mode);
        if let Some(uri) = change.http_uri {
            settings.http_uri = uri;
        }
        settings.enabled = match (change.enabled, change.target, target_without_enabled) {
            (Some(enabled), _, _) => enabled,
            (None, Some(_), TargetWithoutEnabledRule::Once) => BootOverride::Once,
            (None, Some(_), TargetWithoutEnabledRule::Disable) => BootOverride::Disabled,
            (None, Some(_), TargetWithoutEnabledRule::Keep) | (None, None, _) => settings.enabled,
        };
        if settings.target == BootTarget::None {
            settings.enabled = BootOverride::Disabled;
        } else if change.enabled == Some(BootOverride::Disabled) {
            settings.target = BootTarget::None;
        }
        Ok(())
    }

    /// Returns the most recent boots, newest last.
    #[must_use]
    pub fn boot_history(&self) -> &[BootRecord] {
        &self.boot_history
    }

    /// Returns the boot of the running software, or `None` if none is running.
    #[must_use]
    pub fn current_boot(&self) -> Option<&BootRecord> {
        match self.power {
            PowerPhase::Running | PowerPhase::ShuttingDown { .. } => self.boot_history.last(),
            PowerPhase::Off
            | PowerPhase::TurningOn { .. }
            | PowerPhase::Post { .. }
            | PowerPhase::TurningOff { .. } => None,
        }
    }

    /// Boots the override target if it is bootable, otherwise the disk.
    pub(super) fn boot_next_device(&mut self, at: Timestamp) {
        let target = match self.boot_settings.enabled {
            BootOverride::Disabled => BootTarget::None,
            BootOverride::Once | BootOverride::Continuous => self.boot_settings.target,
        };
        let (from, image) = self.resolve_boot_device(target).unwrap_or((BootTarget::Hdd, None));
        if self.boot_settings.enabled == BootOverride::Once {
            self.boot_settings.enabled = BootOverride::Disabled;
            self.boot_settings.target = BootTarget::None;
        }
        if self.boot_history.len() == MAX_BOOT_HISTORY {
            self.boot_history.remove(0);
        }
        let (mode, secure) = (self.boot_settings.mode, self.secure_boot.current);
        self.boot_history.push(BootRecord { at, from, image, mode, secure });
        self.software.record_boot();
    }

    /// Selects the virtual CD as boot device, as an imported system configuration does.
    pub(super) fn select_virtual_cd(&mut self, once: bool) {
        self.boots_virtual_cd = true;
        self.boot_settings.target = BootTarget::Cd;
        self.boot_settings.enabled =
            if once { BootOverride::Once } else { BootOverride::Continuous };
    }

    /// Whether the boot target `Cd` is a drive in the machine, which is empty.
    fn cd_is_physical(&self) -> bool {
        let rules = self.personality.idrac.as_ref();
        rules.is_some_and(|rules| rules.cd_is_physical) && !self.boots_virtual_cd
    }

    fn resolve_boot_device(&self, target: BootTarget) -> Option<(BootTarget, Option<Box<str>>)> {
        let medium =
            |kinds: &[MediaKind]| self.inserted_medium(kinds).map(|media| media.image.clone());
        match target {
            BootTarget::None => None,
            BootTarget::Cd if self.cd_is_physical() => None,
            BootTarget::Cd | BootTarget::UsbCd => {
                Some((target, Some(medium(&[MediaKind::Cd, MediaKind::Dvd])?)))
            }
            BootTarget::Floppy => Some((target, Some(medium(&[MediaKind::Floppy])?))),
            BootTarget::Usb => {
                Some((target, Some(medium(&[MediaKind::UsbStick, MediaKind::Floppy])?)))
            }
            BootTarget::UefiHttp => Some((target, self.boot_settings.http_uri.clone())),
            BootTarget::Pxe
            | BootTarget::Hdd
            | BootTarget::BiosSetup
            | BootTarget::Utilities
            | BootTarget::Diags
            | BootTarget::UefiShell => Some((target, None)),
        }
    }
}
