// SPDX-License-Identifier: Apache-2.0
//! SCSI vital product data (VPD) pages of SCSI and ATA disks, from the kernel's copies in sysfs.
//!
//! For ATA disks the SCSI layer's `model` attribute has only 16 characters; the full model and the
//! serial number are in the T10 vendor identifier on page 0x83.

use std::path::Path;

use crate::kernel_files::{KernelFiles, collapse_whitespace, printable};

/// The length field of a page has two bytes.
const MAX_PAGE_LENGTH: u64 = 64 * 1024 + 4;
const PAGE_HEADER: usize = 4;

/// Decoded VPD pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VitalProductData {
    /// Unit serial number, from page 0x80.
    pub(crate) serial: Option<String>,
    /// WWN in hexadecimal without `0x`: 16 digits, or 32 with the vendor extension.
    pub(crate) wwn: Option<String>,
    /// Full model and serial number of an ATA disk.
    pub(crate) ata: Option<AtaIdentity>,
}

/// Model and serial number of an ATA disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtaIdentity {
    pub(crate) model: String,
    pub(crate) serial: String,
}

impl VitalProductData {
    /// Reads the pages of a device directory.
    pub(crate) fn read(files: &KernelFiles, device: &Path) -> Self {
        let page = |name| files.bytes(device.join(name), MAX_PAGE_LENGTH).unwrap_or_default();
        let serial = printable(page("vpd_pg80").get(PAGE_HEADER..).unwrap_or_default());
        let mut data = Self { serial: Some(serial).filter(|s| !s.is_empty()), ..Self::default() };
        data.add_identifiers(&page("vpd_pg83"));
        data
    }

    /// Parses the designators on page 0x83.
    fn add_identifiers(&mut self, page: &[u8]) {
        const BINARY: u8 = 1;
        const LOGICAL_UNIT: u8 = 0;
        const T10_VENDOR: u8 = 1;
        const NAA: u8 = 3;
        let mut rest = page.get(PAGE_HEADER..).unwrap_or_default();
        while let [codes, kinds, _, length, after @ ..] = rest {
            let Some(value) = after.get(..usize::from(*length)) else { return };
            rest = &after[value.len()..];
            let association = (kinds >> 4) & 3;
            if association != LOGICAL_UNIT {
                continue;
            }
            match kinds & 0xf {
                NAA if codes & 0xf == BINARY => self.add_wwn(value),
                T10_VENDOR => self.ata = self.ata.take().or_else(|| ata_identity(value)),
                _ => {}
            }
        }
    }

    /// Stores a NAA identifier of 8 or 16 bytes; a longer one replaces a shorter one, as in udev.
    fn add_wwn(&mut self, value: &[u8]) {
        if !matches!(value.len(), 8 | 16) || value.iter().all(|byte| *byte == 0) {
            return;
        }
        let name = hex::encode(value);
        if self.wwn.as_ref().is_none_or(|known| known.len() < name.len()) {
            self.wwn = Some(name);
        }
    }
}

/// libata writes eight characters of vendor, forty of model and twenty of serial number.
fn ata_identity(value: &[u8]) -> Option<AtaIdentity> {
    let rest = value.strip_prefix(b"ATA     ")?;
    let (model, serial) = rest.split_at_checked(40)?;
    let identity =
        AtaIdentity { model: collapse_whitespace(&printable(model)), serial: printable(serial) };
    (!identity.model.is_empty()).then_some(identity)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Builds page 0x83 with these designators: code set, type with association, value.
    pub(crate) fn page_83(identifiers: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (codes, kinds, value) in identifiers {
            body.extend([*codes, *kinds, 0, u8::try_from(value.len()).unwrap()]);
            body.extend(*value);
        }
        page(0x83, &body)
    }

    pub(crate) fn page(number: u8, body: &[u8]) -> Vec<u8> {
        let mut page = vec![0, number];
        page.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        page.extend(body);
        page
    }

    /// Builds page 0x83 as libata does for a disk.
    pub(crate) fn ata_page_83(model: &str, serial: &str, wwn: &[u8; 8]) -> Vec<u8> {
        let identity = format!("ATA     {model:<40}{serial:>20}");
        page_83(&[(2, 0, serial.as_bytes()), (2, 1, identity.as_bytes()), (1, 3, wwn)])
    }

    #[test]
    fn reads_full_model_of_ata_disk() {
        let mut data = VitalProductData::default();
        data.add_identifiers(&ata_page_83(
            "SAMSUNG MZ7LH480HAHQ-00005",
            "S45PNA0M123456",
            &[0x50, 0x02, 0x53, 0x8e, 0x00, 0x12, 0x34, 0x56],
        ));
        assert_eq!(data.wwn.as_deref(), Some("5002538e00123456"));
        let ata = data.ata.unwrap();
        assert_eq!(
            (ata.model.as_str(), ata.serial.as_str()),
            ("SAMSUNG MZ7LH480HAHQ-00005", "S45PNA0M123456")
        );
    }

    #[test]
    fn prefers_sixteen_byte_wwn_and_ignores_target_port() {
        let port = [0x50, 0, 0, 0, 0, 0, 0, 1];
        let unit = [0x60, 5, 8, 0xb1, 0, 0x1c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let mut data = VitalProductData::default();
        data.add_identifiers(&page_83(&[(1, 0x13, &port), (1, 3, &unit), (1, 3, &[0; 8])]));
        assert_eq!(data.wwn.as_deref(), Some("600508b1001c0102030405060708090a"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(page: Vec<u8>) {
            VitalProductData::default().add_identifiers(&page);
        }
    }
}
