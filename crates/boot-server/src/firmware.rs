// SPDX-License-Identifier: Apache-2.0
//! The program that sends a DHCP request, and the boot loader that it can load.
//!
//! DHCP clients send their architecture as a number (option 93 in DHCPv4, 61 in DHCPv6; the IANA registry
//! of processor architecture types). The vendor class (`PXEClient`, `HTTPClient`) and iPXE's own options
//! identify the program.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A processor architecture and firmware type, from the IANA number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FirmwareArchitecture {
    /// A PC BIOS.
    Bios,
    /// 32-bit x86 UEFI.
    UefiX86,
    /// 64-bit x86 UEFI.
    UefiX64,
    /// 32-bit ARM UEFI.
    UefiArm32,
    /// 64-bit ARM UEFI.
    UefiArm64,
    /// 64-bit RISC-V UEFI.
    UefiRiscv64,
    /// Another number of the registry.
    Other(u16),
}

/// The program that sends a request, in the order of a network boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BootStage {
    /// PXE firmware of a NIC, which loads by TFTP.
    Pxe,
    /// UEFI firmware that loads by HTTP.
    HttpBoot,
    /// iPXE, which loads a script.
    Ipxe,
    /// An operating system, which needs an address and no boot file.
    System,
}

/// The boot loader that firmware loads by TFTP, by architecture. A boot plan can name another file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstStageLoaders(BTreeMap<FirmwareArchitecture, Arc<str>>);

/// The IANA number, its meaning, and whether the firmware boots by HTTP. Both 7 and 9 are in use for
/// x86-64, because RFC 4578 is ambiguous.
const IANA_NUMBERS: &[(u16, FirmwareArchitecture, bool)] = &[
    (0, FirmwareArchitecture::Bios, false),
    (6, FirmwareArchitecture::UefiX86, false),
    (7, FirmwareArchitecture::UefiX64, false),
    (9, FirmwareArchitecture::UefiX64, false),
    (10, FirmwareArchitecture::UefiArm32, false),
    (11, FirmwareArchitecture::UefiArm64, false),
    (15, FirmwareArchitecture::UefiX86, true),
    (16, FirmwareArchitecture::UefiX64, true),
    (18, FirmwareArchitecture::UefiArm32, true),
    (19, FirmwareArchitecture::UefiArm64, true),
    (20, FirmwareArchitecture::Bios, true),
    (27, FirmwareArchitecture::UefiRiscv64, false),
    (28, FirmwareArchitecture::UefiRiscv64, true),
];

impl FirmwareArchitecture {
    /// Returns the architecture with this number.
    #[must_use]
    pub fn from_number(number: u16) -> Self {
        IANA_NUMBERS
            .iter()
            .find(|(known, ..)| *known == number)
            .map_or(Self::Other(number), |(_, architecture, _)| *architecture)
    }

    /// Returns whether firmware with this number boots by HTTP.
    #[must_use]
    pub fn number_is_http_boot(number: u16) -> bool {
        IANA_NUMBERS.iter().any(|(known, _, http)| *known == number && *http)
    }
}

impl BootStage {
    /// Returns the program with this vendor class, iPXE options and architecture number.
    #[must_use]
    pub fn detect(vendor_class: &[u8], is_ipxe: bool, architecture: Option<u16>) -> Self {
        let http = vendor_class.starts_with(b"HTTPClient")
            || architecture.is_some_and(FirmwareArchitecture::number_is_http_boot);
        if is_ipxe {
            Self::Ipxe
        } else if http {
            Self::HttpBoot
        } else if vendor_class.starts_with(b"PXEClient") || architecture.is_some() {
            Self::Pxe
        } else {
            Self::System
        }
    }
}

impl FirstStageLoaders {
    /// Returns a table of these files.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (FirmwareArchitecture, Arc<str>)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Returns the file for `architecture`.
    #[must_use]
    pub fn get(&self, architecture: FirmwareArchitecture) -> Option<&Arc<str>> {
        self.0.get(&architecture)
    }
}

impl Default for FirstStageLoaders {
    /// Returns the iPXE builds by the names that Debian and Ironic use.
    fn default() -> Self {
        Self::new([
            (FirmwareArchitecture::Bios, Arc::from("undionly.kpxe")),
            (FirmwareArchitecture::UefiX64, Arc::from("snponly.efi")),
            (FirmwareArchitecture::UefiArm64, Arc::from("snponly-arm64.efi")),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_the_boot_stage() {
        let table: &[(&[u8], bool, Option<u16>, BootStage)] = &[
            (b"PXEClient:Arch:00000:UNDI:002001", false, Some(0), BootStage::Pxe),
            (b"PXEClient:Arch:00007:UNDI:003000", true, Some(7), BootStage::Ipxe),
            (b"HTTPClient:Arch:00016:UNDI:003001", false, Some(16), BootStage::HttpBoot),
            (b"", false, Some(16), BootStage::HttpBoot),
            (b"", false, Some(7), BootStage::Pxe),
            (b"udhcp 1.35", false, None, BootStage::System),
        ];
        for (vendor_class, is_ipxe, architecture, expected) in table {
            assert_eq!(BootStage::detect(vendor_class, *is_ipxe, *architecture), *expected);
        }
    }

    #[test]
    fn both_numbers_of_x86_64_uefi_are_equal() {
        assert_eq!(FirmwareArchitecture::from_number(7), FirmwareArchitecture::from_number(9));
        assert_eq!(FirmwareArchitecture::from_number(999), FirmwareArchitecture::Other(999));
    }
}
