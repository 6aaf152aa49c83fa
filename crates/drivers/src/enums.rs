// SPDX-License-Identifier: Apache-2.0
//! Enums for interface calls, spelled as in the Ironic API.

use node_model::{BootPurpose, named_enum};

named_enum! {
    /// Where a machine boots from.
    BootDevice {
        /// The network, by PXE.
        Pxe = "pxe",
        /// The first disk.
        Disk = "disk",
        /// A CD, real or virtual.
        Cdrom = "cdrom",
        /// The firmware's setup page.
        Bios = "bios",
        /// The operating system's safe mode.
        Safe = "safe",
        /// A WAN boot server.
        Wanboot = "wanboot",
        /// An iSCSI volume.
        Iscsiboot = "iscsiboot",
        /// A floppy, real or virtual.
        Floppy = "floppy",
        /// The network, by UEFI HTTP.
        UefiHttp = "uefihttp",
    }

    /// How the firmware boots.
    BootMode {
        /// Legacy BIOS.
        Bios = "bios",
        /// UEFI.
        Uefi = "uefi",
    }

    /// What a ramdisk is booted for.
    RamdiskMode {
        /// Deployment, cleaning and service.
        Deploy = "deploy",
        /// Inspection.
        Inspection = "inspection",
        /// Rescue.
        Rescue = "rescue",
        /// An installer. It is no agent: it only reports its progress.
        Installer = "installer",
    }
}

impl RamdiskMode {
    /// The corresponding purpose of a boot plan.
    #[must_use]
    pub const fn purpose(self) -> BootPurpose {
        match self {
            Self::Deploy => BootPurpose::DeployRamdisk,
            Self::Inspection => BootPurpose::InspectionRamdisk,
            Self::Rescue => BootPurpose::RescueRamdisk,
            Self::Installer => BootPurpose::Installer,
        }
    }
}
