// SPDX-License-Identifier: Apache-2.0
//! The boot structures of an image: the El Torito catalogue for CDs, the partition table for USB sticks.

use super::{IsoExtent, SECTOR};

const PLATFORM_EFI: u8 = 0xEF;
const PARTITION_ESP: u8 = 0xEF;
const BOOTABLE: u8 = 0x88;

/// The boot catalogue: one entry, the EFI system partition.
pub(super) fn catalogue(esp: IsoExtent) -> [u8; 64] {
    let mut catalogue = [0; 64];
    catalogue[0] = 1;
    catalogue[1] = PLATFORM_EFI;
    catalogue[30..32].copy_from_slice(&[0x55, 0xAA]);
    let sum = catalogue[..32]
        .chunks_exact(2)
        .fold(0_u16, |sum, pair| sum.wrapping_add(u16::from_le_bytes([pair[0], pair[1]])));
    catalogue[28..30].copy_from_slice(&sum.wrapping_neg().to_le_bytes());

    // The count has 16 bits: 32 MiB. Zero means "to the end of the medium" (UEFI, El Torito
    // chapter), which is correct because the partition is last. Tested with OVMF 2022.11 only, which
    // also boots with a count that is too small.
    let count = u16::try_from(esp.size.div_ceil(512)).unwrap_or(0);
    catalogue[32] = BOOTABLE;
    catalogue[38..40].copy_from_slice(&count.to_le_bytes());
    catalogue[40..44].copy_from_slice(&esp.sector.to_le_bytes());
    catalogue
}

/// Returns a master boot record with the EFI system partition as its only partition.
pub(super) fn partition_table(esp: IsoExtent) -> Vec<u8> {
    let mut record = vec![0; 512];
    // The CHS fields cannot represent the offset; these values mean that the LBA fields apply.
    let beyond = [0xFE, 0xFF, 0xFF];
    record[447..450].copy_from_slice(&beyond);
    record[450] = PARTITION_ESP;
    record[451..454].copy_from_slice(&beyond);
    // Only an image of more than 2 TiB would overflow; a file has at most 4 GiB.
    let start = esp.sector.saturating_mul((SECTOR / 512) as u32);
    record[454..458].copy_from_slice(&start.to_le_bytes());
    record[458..462].copy_from_slice(&esp.size.div_ceil(512).to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xAA]);
    record
}
