// SPDX-License-Identifier: Apache-2.0
//! What the machine boots from: the override, the boot mode, and the log of what it did boot.

use node_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Machine, MediaKind, Power, Refused};
use crate::personality::LoneTarget;

/// How many boots are remembered.
const BOOTS_KEPT: usize = 16;

/// Where to boot from, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BootTarget {
    /// No override.
    None,
    /// The network.
    Pxe,
    /// A floppy disk.
    Floppy,
    /// A CD or DVD.
    Cd,
    /// A USB device.
    Usb,
    /// A CD on USB, which is what some makers call virtual media.
    UsbCd,
    /// A hard disk.
    Hdd,
    /// The setup of the firmware.
    BiosSetup,
    /// The maker's utilities.
    Utilities,
    /// The maker's diagnostics.
    Diags,
    /// A URL, loaded by the firmware.
    UefiHttp,
    /// The UEFI shell.
    UefiShell,
}

/// How long an override holds, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Override {
    /// Not at all.
    Disabled,
    /// For the next boot.
    Once,
    /// Until it is changed.
    Continuous,
}

/// The kind of firmware interface that boots, with Redfish's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootMode {
    /// As PCs did.
    Legacy,
    /// UEFI.
    #[serde(rename = "UEFI")]
    Uefi,
}

/// The boot settings a BMC keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSettings {
    /// Where to boot from.
    pub target: BootTarget,
    /// For how long.
    pub enabled: Override,
    /// In which mode.
    pub mode: BootMode,
    /// What `UefiHttp` loads; without it the firmware asks DHCP.
    pub http_uri: Option<Box<str>>,
}

/// Changes to the boot settings; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct BootChange {
    /// Where to boot from.
    pub target: Option<BootTarget>,
    /// For how long.
    pub enabled: Option<Override>,
    /// In which mode.
    pub mode: Option<BootMode>,
    /// What `UefiHttp` loads; `Some(None)` forgets it.
    pub http_uri: Option<Option<Box<str>>>,
}

/// What the machine did boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Boot {
    /// When the firmware handed over.
    pub at: Timestamp,
    /// The device.
    pub from: BootTarget,
    /// The medium or URL, where there is one.
    pub image: Option<Box<str>>,
    /// The mode.
    pub mode: BootMode,
    /// Whether signatures were checked.
    pub secure: bool,
}

impl BootTarget {
    /// All of them, in the order BMCs list them.
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

    /// Redfish's name.
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

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|target| target.name() == name)
    }
}

impl Override {
    /// Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Once => "Once",
            Self::Continuous => "Continuous",
        }
    }

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Disabled, Self::Once, Self::Continuous].into_iter().find(|it| it.name() == name)
    }
}

impl BootMode {
    /// Redfish's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "Legacy",
            Self::Uefi => "UEFI",
        }
    }

    /// The one with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Legacy, Self::Uefi].into_iter().find(|mode| mode.name() == name)
    }
}

impl Default for BootSettings {
    fn default() -> Self {
        Self {
            target: BootTarget::None,
            enabled: Override::Disabled,
            mode: BootMode::Uefi,
            http_uri: None,
        }
    }
}

impl Machine {
    /// The boot settings as the BMC shows them.
    #[must_use]
    pub fn boot_settings(&self) -> &BootSettings {
        &self.boot
    }

    /// Changes the boot settings, all or none.
    ///
    /// # Errors
    /// When this kind of BMC does not take them, or not while the firmware starts.
    pub fn set_boot(&mut self, change: BootChange, now: Timestamp) -> Result<(), Refused> {
        self.advance(now);
        let rules = &self.personality.boot;
        if !rules.during_post && matches!(self.power, Power::Post { .. }) {
            return Err(Refused::DuringPost);
        }
        if let Some(target) = change.target
            && target != BootTarget::None
            && !rules.targets.contains(&target)
        {
            return Err(Refused::NotInList {
                property: "BootSourceOverrideTarget",
                value: target.name().to_owned(),
            });
        }
        if change.enabled == Some(Override::Continuous) && !rules.continuous {
            return Err(Refused::NotInList {
                property: "BootSourceOverrideEnabled",
                value: Override::Continuous.name().to_owned(),
            });
        }
        if change.mode.is_some_and(|mode| mode != self.boot.mode) && !rules.mode_changes {
            return Err(Refused::NotWritable { property: "BootSourceOverrideMode" });
        }
        if matches!(change.http_uri, Some(Some(_))) && !rules.http_uri {
            return Err(Refused::NotWritable { property: "HttpBootUri" });
        }
        let lone_target = rules.lone_target;
        let settings = &mut self.boot;
        settings.target = change.target.unwrap_or(settings.target);
        settings.mode = change.mode.unwrap_or(settings.mode);
        if let Some(uri) = change.http_uri {
            settings.http_uri = uri;
        }
        settings.enabled = match (change.enabled, change.target, lone_target) {
            (Some(enabled), _, _) => enabled,
            (None, Some(_), LoneTarget::Once) => Override::Once,
            (None, Some(_), LoneTarget::Forgotten) => Override::Disabled,
            (None, Some(_), LoneTarget::Kept) | (None, None, _) => settings.enabled,
        };
        if settings.target == BootTarget::None {
            settings.enabled = Override::Disabled;
        } else if change.enabled == Some(Override::Disabled) {
            settings.target = BootTarget::None;
        }
        Ok(())
    }

    /// What was booted, the newest last.
    #[must_use]
    pub fn boots(&self) -> &[Boot] {
        &self.boots
    }

    /// What runs now, if anything does.
    #[must_use]
    pub fn booted(&self) -> Option<&Boot> {
        match self.power {
            Power::Running | Power::ShuttingDown { .. } => self.boots.last(),
            Power::Off
            | Power::TurningOn { .. }
            | Power::Post { .. }
            | Power::TurningOff { .. } => None,
        }
    }

    /// Chooses a boot device as firmware does: the override if it can be booted, else the disk.
    pub(super) fn boot_something(&mut self, at: Timestamp) {
        let wanted = match self.boot.enabled {
            Override::Disabled => BootTarget::None,
            Override::Once | Override::Continuous => self.boot.target,
        };
        let (from, image) = self.bootable(wanted).unwrap_or((BootTarget::Hdd, None));
        if self.boot.enabled == Override::Once {
            self.boot.enabled = Override::Disabled;
            self.boot.target = BootTarget::None;
        }
        if self.boots.len() == BOOTS_KEPT {
            self.boots.remove(0);
        }
        let (mode, secure) = (self.boot.mode, self.secure_boot.current);
        self.boots.push(Boot { at, from, image, mode, secure });
        self.software.booted();
    }

    fn bootable(&self, wanted: BootTarget) -> Option<(BootTarget, Option<Box<str>>)> {
        let medium = |kinds: &[MediaKind]| self.medium_of(kinds).map(|media| media.image.clone());
        match wanted {
            BootTarget::None => None,
            BootTarget::Cd | BootTarget::UsbCd => {
                Some((wanted, Some(medium(&[MediaKind::Cd, MediaKind::Dvd])?)))
            }
            BootTarget::Floppy => Some((wanted, Some(medium(&[MediaKind::Floppy])?))),
            BootTarget::Usb => {
                Some((wanted, Some(medium(&[MediaKind::UsbStick, MediaKind::Floppy])?)))
            }
            BootTarget::UefiHttp => Some((wanted, self.boot.http_uri.clone())),
            BootTarget::Pxe
            | BootTarget::Hdd
            | BootTarget::BiosSetup
            | BootTarget::Utilities
            | BootTarget::Diags
            | BootTarget::UefiShell => Some((wanted, None)),
        }
    }
}
