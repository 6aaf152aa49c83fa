// SPDX-License-Identifier: Apache-2.0
//! What kind of program asks for an address, and which first stage such a program can run.
//!
//! DHCP tells the processor and firmware by a number (option 93 for v4, 61 for v6; the IANA registry of
//! processor architecture types), and the program by its vendor class (`PXEClient`, `HTTPClient`) or by
//! iPXE's own marks.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A processor and firmware pair, from the IANA number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Architecture {
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

/// How far a machine is on its way from power-on to a running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A network card's firmware that loads its first stage by TFTP.
    Pxe,
    /// UEFI firmware that loads its first stage by HTTP.
    HttpBoot,
    /// iPXE, which runs scripts.
    Ipxe,
    /// A running system; it wants an address and nothing to boot.
    System,
}

/// The file each architecture's firmware loads first by TFTP, unless a plan names another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstStages(BTreeMap<Architecture, Arc<str>>);

/// IANA number, what it means, and whether the firmware asks for HTTP. Numbers 7 and 9 are both in
/// use for x86-64: firmware writers read RFC 4578 both ways.
const NUMBERS: &[(u16, Architecture, bool)] = &[
    (0, Architecture::Bios, false),
    (6, Architecture::UefiX86, false),
    (7, Architecture::UefiX64, false),
    (9, Architecture::UefiX64, false),
    (10, Architecture::UefiArm32, false),
    (11, Architecture::UefiArm64, false),
    (15, Architecture::UefiX86, true),
    (16, Architecture::UefiX64, true),
    (18, Architecture::UefiArm32, true),
    (19, Architecture::UefiArm64, true),
    (20, Architecture::Bios, true),
    (27, Architecture::UefiRiscv64, false),
    (28, Architecture::UefiRiscv64, true),
];

impl Architecture {
    /// What the number means.
    #[must_use]
    pub fn from_number(number: u16) -> Self {
        NUMBERS
            .iter()
            .find(|(known, ..)| *known == number)
            .map_or(Self::Other(number), |(_, architecture, _)| *architecture)
    }

    /// Whether firmware with this number loads by HTTP.
    #[must_use]
    pub fn number_means_http(number: u16) -> bool {
        NUMBERS.iter().any(|(known, _, http)| *known == number && *http)
    }
}

impl Stage {
    /// The stage of a client with this vendor class, these marks of iPXE and these architecture numbers.
    #[must_use]
    pub fn of(vendor_class: &[u8], is_ipxe: bool, architecture: Option<u16>) -> Self {
        let http = vendor_class.starts_with(b"HTTPClient")
            || architecture.is_some_and(Architecture::number_means_http);
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

impl FirstStages {
    /// These files.
    #[must_use]
    pub fn new(files: impl IntoIterator<Item = (Architecture, Arc<str>)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// The file for `architecture`, if there is one.
    #[must_use]
    pub fn get(&self, architecture: Architecture) -> Option<&Arc<str>> {
        self.0.get(&architecture)
    }
}

impl Default for FirstStages {
    /// The iPXE builds by the names Debian and Ironic give them.
    fn default() -> Self {
        Self::new([
            (Architecture::Bios, Arc::from("undionly.kpxe")),
            (Architecture::UefiX64, Arc::from("snponly.efi")),
            (Architecture::UefiArm64, Arc::from("snponly-arm64.efi")),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_follow_from_the_marks() {
        let table: &[(&[u8], bool, Option<u16>, Stage)] = &[
            (b"PXEClient:Arch:00000:UNDI:002001", false, Some(0), Stage::Pxe),
            (b"PXEClient:Arch:00007:UNDI:003000", true, Some(7), Stage::Ipxe),
            (b"HTTPClient:Arch:00016:UNDI:003001", false, Some(16), Stage::HttpBoot),
            (b"", false, Some(16), Stage::HttpBoot),
            (b"", false, Some(7), Stage::Pxe),
            (b"udhcp 1.35", false, None, Stage::System),
        ];
        for (vendor_class, is_ipxe, architecture, expected) in table {
            assert_eq!(Stage::of(vendor_class, *is_ipxe, *architecture), *expected);
        }
    }

    #[test]
    fn both_numbers_of_64_bit_uefi_mean_the_same() {
        assert_eq!(Architecture::from_number(7), Architecture::from_number(9));
        assert_eq!(Architecture::from_number(999), Architecture::Other(999));
    }
}
