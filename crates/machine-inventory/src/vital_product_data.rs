// SPDX-License-Identifier: Apache-2.0
//! What SCSI and ATA disks say of themselves on their pages of vital product data, which the kernel
//! keeps a copy of in sysfs.
//!
//! ATA disks behind the kernel's SCSI layer show only 16 characters of their model as an attribute; the
//! whole of it, and their serial number, is in the identifiers on page 0x83.

use std::fmt::Write;
use std::path::Path;

use crate::tree::{Tree, printable, single_blanks};

/// A page's length is two bytes, so none is longer.
const LONGEST_PAGE: u64 = 64 * 1024 + 4;
const PAGE_HEADER: usize = 4;

/// What the pages say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VitalProductData {
    /// The unit's serial number, from page 0x80.
    pub(crate) serial: Option<String>,
    /// The world-wide name in hexadecimal without `0x`: 16 digits, or 32 with the vendor's extension.
    pub(crate) wwn: Option<String>,
    /// What ATA disks have: the whole model and the serial number.
    pub(crate) ata: Option<AtaIdentity>,
}

/// An ATA disk's names for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AtaIdentity {
    pub(crate) model: String,
    pub(crate) serial: String,
}

impl VitalProductData {
    /// Reads the pages of the device in that folder.
    pub(crate) fn read(tree: &Tree, device: &Path) -> Self {
        let page = |name| tree.bytes(device.join(name), LONGEST_PAGE).unwrap_or_default();
        let serial = printable(page("vpd_pg80").get(PAGE_HEADER..).unwrap_or_default());
        let mut data = Self { serial: Some(serial).filter(|s| !s.is_empty()), ..Self::default() };
        data.add_identifiers(&page("vpd_pg83"));
        data
    }

    /// Goes through the identifiers on page 0x83.
    fn add_identifiers(&mut self, page: &[u8]) {
        const BINARY: u8 = 1;
        const OF_THE_UNIT: u8 = 0;
        const T10_VENDOR: u8 = 1;
        const NAA: u8 = 3;
        let mut rest = page.get(PAGE_HEADER..).unwrap_or_default();
        while let [codes, kinds, _, length, after @ ..] = rest {
            let Some(value) = after.get(..usize::from(*length)) else { return };
            rest = &after[value.len()..];
            let association = (kinds >> 4) & 3;
            if association != OF_THE_UNIT {
                continue;
            }
            match kinds & 0xf {
                NAA if codes & 0xf == BINARY => self.add_wwn(value),
                T10_VENDOR => self.ata = self.ata.take().or_else(|| ata_identity(value)),
                _ => {}
            }
        }
    }

    /// Takes a name of 8 or 16 bytes; a longer one is worth more, as it is for udev.
    fn add_wwn(&mut self, value: &[u8]) {
        if !matches!(value.len(), 8 | 16) || value.iter().all(|byte| *byte == 0) {
            return;
        }
        let mut name = String::with_capacity(value.len() * 2);
        for byte in value {
            let _ = write!(name, "{byte:02x}");
        }
        if self.wwn.as_ref().is_none_or(|known| known.len() < name.len()) {
            self.wwn = Some(name);
        }
    }
}

/// The kernel's ATA layer writes eight characters of vendor, forty of model, twenty of serial number.
fn ata_identity(value: &[u8]) -> Option<AtaIdentity> {
    let rest = value.strip_prefix(b"ATA     ")?;
    let (model, serial) = rest.split_at_checked(40)?;
    let identity =
        AtaIdentity { model: single_blanks(&printable(model)), serial: printable(serial) };
    (!identity.model.is_empty()).then_some(identity)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Page 0x83 with these identifiers: code set, kind with association, value.
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

    /// What the kernel's ATA layer makes up for a disk.
    pub(crate) fn ata_page_83(model: &str, serial: &str, wwn: &[u8; 8]) -> Vec<u8> {
        let identity = format!("ATA     {model:<40}{serial:>20}");
        page_83(&[(2, 0, serial.as_bytes()), (2, 1, identity.as_bytes()), (1, 3, wwn)])
    }

    #[test]
    fn an_ata_disk_tells_its_whole_model() {
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
    fn a_volume_has_a_name_of_sixteen_bytes_and_its_port_does_not_count() {
        let port = [0x50, 0, 0, 0, 0, 0, 0, 1];
        let unit = [0x60, 5, 8, 0xb1, 0, 0x1c, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let mut data = VitalProductData::default();
        data.add_identifiers(&page_83(&[(1, 0x13, &port), (1, 3, &unit), (1, 3, &[0; 8])]));
        assert_eq!(data.wwn.as_deref(), Some("600508b1001c0102030405060708090a"));
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(page: Vec<u8>) {
            VitalProductData::default().add_identifiers(&page);
        }
    }
}
