// SPDX-License-Identifier: Apache-2.0
//! UEFI device paths: encodes the path of a file on a partition, and formats paths as text.

use uuid::Uuid;

use super::{EfiSystemPartition, PartitionIdentity};

const END: [u8; 4] = [0x7f, 0xff, 4, 0];

/// Encodes the short-form path of a file; firmware finds the disk by the partition's identity.
pub(super) fn file_path(partition: &EfiSystemPartition, file: &str) -> Vec<u8> {
    let mut path = vec![4, 1, 42, 0];
    path.extend(partition.number.to_le_bytes());
    path.extend(partition.first_lba.to_le_bytes());
    path.extend(partition.sectors.to_le_bytes());
    match partition.identity {
        PartitionIdentity::Guid(guid) => {
            path.extend(guid.to_bytes_le());
            path.extend([2, 2]);
        }
        PartitionIdentity::Signature(signature) => {
            path.extend(signature.to_le_bytes());
            path.extend([0; 12]);
            path.extend([1, 1]);
        }
    }
    let name: Vec<u8> = file.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    path.extend([4, 4]);
    path.extend(u16::try_from(name.len() + 4).unwrap_or(u16::MAX).to_le_bytes());
    path.extend(name);
    path.extend(END);
    path
}

/// Formats a path similarly to `efibootmgr -v`.
pub(super) fn text(mut path: &[u8]) -> String {
    let mut parts = Vec::new();
    while path.len() >= 4 && path[0] != 0x7f {
        let length = usize::from(u16::from_le_bytes([path[2], path[3]]));
        let Some(node) = path.get(..length).filter(|node| node.len() >= 4) else { break };
        parts.push(node_text(node[0], node[1], &node[4..]));
        path = &path[length..];
    }
    parts.join("/")
}

fn node_text(node_type: u8, subtype: u8, data: &[u8]) -> String {
    let u16_at = |at: usize| data.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    let guid = |at: usize| {
        let bytes = data.get(at..at + 16).and_then(|bytes| bytes.try_into().ok());
        Uuid::from_bytes_le(bytes.unwrap_or_default())
    };
    match (node_type, subtype) {
        (1, 1) => format!("Pci({:#x},{:#x})", u16_at(0) >> 8, u16_at(0) & 0xff),
        (1, 4) => format!("VenHw({})", guid(0)),
        // ACPI IDs of PCI and PCI Express root bridges.
        (2, 1) if matches!(u32_at(0), 0x0a03_41d0 | 0x0a08_41d0) => {
            format!("PciRoot({:#x})", u32_at(4))
        }
        (2, 1) => format!("Acpi({:#x},{:#x})", u32_at(0), u32_at(4)),
        (3, 2) => format!("SCSI({},{})", u16_at(0), u16_at(2)),
        (3, 5) => format!("USB({},{})", u16_at(0) & 0xff, u16_at(0) >> 8),
        (3, 10) => format!("VenMsg({})", guid(0)),
        (3, 11) => {
            let digits: String = data.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            format!("MAC({digits},0)")
        }
        (3, 12) => "IPv4()".to_owned(),
        (3, 13) => "IPv6()".to_owned(),
        (3, 15) => "UsbClass()".to_owned(),
        (3, 18) => format!("SATA({},{},{})", u16_at(0), u16_at(2), u16_at(4)),
        (3, 23) => format!("NVMe({:#x})", u32_at(0)),
        (3, 24) => format!("Uri({})", String::from_utf8_lossy(data)),
        (4, 1) => {
            let identity = match data.get(37) {
                Some(2) => format!("GPT,{}", guid(20)),
                Some(_) | None => format!("MBR,{:#x}", u32_at(20)),
            };
            format!("HD({},{identity},{:#x},{:#x})", u32_at(0), u64_at(4), u64_at(12))
        }
        (4, 2) => format!("CDROM({:#x})", u32_at(0)),
        (4, 3) => format!("VenMedia({})", guid(0)),
        (4, 4) => {
            let units = (0..data.len() / 2).map(|index| u16_at(2 * index));
            let units = units.take_while(|unit| *unit != 0);
            let name: String = char::decode_utf16(units).map(|it| it.unwrap_or('?')).collect();
            format!("File({name})")
        }
        (4, 6) => format!("FvFile({})", guid(0)),
        (4, 7) => format!("FvVol({})", guid(0)),
        (5, 1) => format!("BBS({})", u16_at(0)),
        _ => format!("Path({node_type},{subtype})"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn encodes_mbr_partition() {
        let partition = EfiSystemPartition {
            number: 2,
            first_lba: 4096,
            sectors: 8192,
            identity: PartitionIdentity::Signature(0x1234_abcd),
        };
        let path = file_path(&partition, r"\a");
        assert_eq!(path.len(), 42 + 10 + 4);
        assert_eq!(text(&path), r"HD(2,MBR,0x1234abcd,0x1000,0x2000)/File(\a)");
    }

    proptest! {
        #[test]
        fn never_panics(path in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = text(&path);
        }
    }
}
