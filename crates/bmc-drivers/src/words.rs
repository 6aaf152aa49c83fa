// SPDX-License-Identifier: Apache-2.0
//! The words that interfaces are called with, spelt as Ironic's clients spell them.

use node_model::{BootPurpose, named};

named! {
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

    /// What an indicator belongs to.
    IndicatorComponent {
        /// The chassis.
        Chassis = "chassis",
        /// The machine itself.
        System = "system",
        /// A disk.
        Disk = "disk",
        /// A power supply.
        Power = "power",
        /// A network card.
        Nic = "nic",
    }

    /// What an indicator shows.
    IndicatorState {
        /// Dark.
        Off = "off",
        /// Lit.
        On = "on",
        /// Blinking.
        Blinking = "blinking",
        /// The BMC cannot say.
        Unknown = "unknown",
    }

    /// A kind of virtual medium.
    MediaDevice {
        /// A CD or DVD.
        Cdrom = "cdrom",
        /// A disk or USB stick.
        Disk = "disk",
        /// A floppy.
        Floppy = "floppy",
    }

    /// The HTTP methods a vendor method may be called with.
    HttpMethod {
        /// GET.
        Get = "GET",
        /// POST.
        Post = "POST",
        /// PUT.
        Put = "PUT",
        /// PATCH.
        Patch = "PATCH",
        /// DELETE.
        Delete = "DELETE",
    }

    /// What a ramdisk is booted for.
    RamdiskMode {
        /// Deployment, cleaning and service.
        Deploy = "deploy",
        /// Inspection.
        Inspection = "inspection",
        /// Rescue.
        Rescue = "rescue",
        /// An installer, which is no agent: it only says how far it has come.
        Installer = "installer",
    }

    /// What a sensor measures, as metrics group it.
    SensorKind {
        /// A fan's speed.
        Fan = "Fan",
        /// A temperature.
        Temperature = "Temperature",
        /// A power supply or a voltage.
        Power = "Power",
        /// A disk.
        Drive = "Drive",
    }
}

impl RamdiskMode {
    /// The same, as boot plans say it.
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
