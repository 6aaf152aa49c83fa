// SPDX-License-Identifier: Apache-2.0
//! What some makers' machines do otherwise under IPMI, as data.
//!
//! A row says whose machines, in which case, and what is different. All that is known so far are
//! numbers of boot devices.

use crate::{BootDevice, BootMode};

/// The number for a boot device on a machine of `vendor`, where it is not the usual one.
pub(super) fn boot_number(
    vendor: &str,
    mode: BootMode,
    device: BootDevice,
) -> Option<ipmi::BootDevice> {
    let of_vendor = BOOT_NUMBERS.iter().filter(|row| row.is_about(vendor));
    let mut fitting = of_vendor.filter(|row| row.mode == mode && row.device == device);
    fitting.next().map(|row| row.number)
}

/// What a number means on a machine of `vendor`, where it is not the usual thing.
pub(super) fn boot_device(vendor: &str, number: ipmi::BootDevice) -> Option<BootDevice> {
    let mut of_vendor = BOOT_NUMBERS.iter().filter(|row| row.is_about(vendor));
    of_vendor.find(|row| row.number == number).map(|row| row.device)
}

/// A boot device with a number of its own.
struct BootNumber {
    /// Words in a vendor's name, in lower case; one is enough.
    vendor: &'static [&'static str],
    mode: BootMode,
    device: BootDevice,
    number: ipmi::BootDevice,
}

const BOOT_NUMBERS: &[BootNumber] = &[
    // With the usual number the disk is booted the BIOS way
    // (https://www.supermicro.com/support/faqs/faq.cfm?faq=25559).
    BootNumber {
        vendor: &["supermicro", "super micro"],
        mode: BootMode::Uefi,
        device: BootDevice::Disk,
        number: ipmi::BootDevice::REMOTE_MEDIA,
    },
];

impl BootNumber {
    fn is_about(&self, vendor: &str) -> bool {
        let vendor = vendor.to_ascii_lowercase();
        self.vendor.iter().any(|word| vendor.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_boot_devices() {
        let remote = Some(ipmi::BootDevice::REMOTE_MEDIA);
        for (vendor, mode, device, number) in [
            ("Supermicro", BootMode::Uefi, BootDevice::Disk, remote),
            ("Super Micro Computer Inc.", BootMode::Uefi, BootDevice::Disk, remote),
            ("Supermicro", BootMode::Bios, BootDevice::Disk, None),
            ("Supermicro", BootMode::Uefi, BootDevice::Pxe, None),
            ("dell inc.", BootMode::Uefi, BootDevice::Disk, None),
            ("", BootMode::Uefi, BootDevice::Disk, None),
        ] {
            assert_eq!(boot_number(vendor, mode, device), number, "{vendor} {device}");
        }
        let remote = ipmi::BootDevice::REMOTE_MEDIA;
        assert_eq!(boot_device("supermicro", remote), Some(BootDevice::Disk));
        assert_eq!(boot_device("supermicro", ipmi::BootDevice::PXE), None);
        assert_eq!(boot_device("lenovo", remote), None);
    }
}
