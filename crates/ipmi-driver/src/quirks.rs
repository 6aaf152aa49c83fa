// SPDX-License-Identifier: Apache-2.0
//! Vendor deviations from IPMI, as data: so far only boot device numbers.

use drivers::{BootDevice, BootMode};

/// The vendor-specific number of a boot device; `None` if the standard one applies.
pub(super) fn vendor_boot_number(
    vendor: &str,
    mode: BootMode,
    device: BootDevice,
) -> Option<ipmi::IpmiBootDevice> {
    let vendor_rows = BOOT_DEVICE_QUIRKS.iter().filter(|row| row.matches_vendor(vendor));
    let mut matching = vendor_rows.filter(|row| row.mode == mode && row.device == device);
    matching.next().map(|row| row.number)
}

/// The vendor-specific meaning of a boot device number; `None` if the standard one applies.
pub(super) fn vendor_boot_device(vendor: &str, number: ipmi::IpmiBootDevice) -> Option<BootDevice> {
    let mut vendor_rows = BOOT_DEVICE_QUIRKS.iter().filter(|row| row.matches_vendor(vendor));
    vendor_rows.find(|row| row.number == number).map(|row| row.device)
}

/// A boot device with a vendor-specific number.
struct BootDeviceQuirk {
    /// Parts of the vendor's name in lower case; one match is enough.
    vendor: &'static [&'static str],
    mode: BootMode,
    device: BootDevice,
    number: ipmi::IpmiBootDevice,
}

const BOOT_DEVICE_QUIRKS: &[BootDeviceQuirk] = &[
    // The standard number boots the disk in legacy BIOS mode
    // (https://www.supermicro.com/support/faqs/faq.cfm?faq=25559).
    BootDeviceQuirk {
        vendor: &["supermicro", "super micro"],
        mode: BootMode::Uefi,
        device: BootDevice::Disk,
        number: ipmi::IpmiBootDevice::REMOTE_MEDIA,
    },
];

impl BootDeviceQuirk {
    fn matches_vendor(&self, vendor: &str) -> bool {
        let vendor = vendor.to_ascii_lowercase();
        self.vendor.iter().any(|part| vendor.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supermicro_uses_remote_media_for_uefi_disk() {
        let remote = Some(ipmi::IpmiBootDevice::REMOTE_MEDIA);
        for (vendor, mode, device, number) in [
            ("Supermicro", BootMode::Uefi, BootDevice::Disk, remote),
            ("Super Micro Computer Inc.", BootMode::Uefi, BootDevice::Disk, remote),
            ("Supermicro", BootMode::Bios, BootDevice::Disk, None),
            ("Supermicro", BootMode::Uefi, BootDevice::Pxe, None),
            ("dell inc.", BootMode::Uefi, BootDevice::Disk, None),
            ("", BootMode::Uefi, BootDevice::Disk, None),
        ] {
            assert_eq!(vendor_boot_number(vendor, mode, device), number, "{vendor} {device}");
        }
        let remote = ipmi::IpmiBootDevice::REMOTE_MEDIA;
        assert_eq!(vendor_boot_device("supermicro", remote), Some(BootDevice::Disk));
        assert_eq!(vendor_boot_device("supermicro", ipmi::IpmiBootDevice::PXE), None);
        assert_eq!(vendor_boot_device("lenovo", remote), None);
    }
}
