// SPDX-License-Identifier: Apache-2.0
//! What makes an image boot: the El Torito catalogue for CDs and a partition table for USB sticks.

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
    // chapter), which is right because the partition is the last thing on it. OVMF 2022.11 boots
    // with zero and with a count that is too small; we have seen no other firmware yet.
    let count = u16::try_from(esp.size.div_ceil(512)).unwrap_or(0);
    catalogue[32] = BOOTABLE;
    catalogue[38..40].copy_from_slice(&count.to_le_bytes());
    catalogue[40..44].copy_from_slice(&esp.sector.to_le_bytes());
    catalogue
}

/// A master boot record whose one partition is the EFI system partition.
pub(super) fn partition_table(esp: IsoExtent) -> Vec<u8> {
    let mut record = vec![0; 512];
    // Cylinders, heads and sectors do not reach that far; these values say "look at the numbers
    // behind".
    let beyond = [0xFE, 0xFF, 0xFF];
    record[447..450].copy_from_slice(&beyond);
    record[450] = PARTITION_ESP;
    record[451..454].copy_from_slice(&beyond);
    // An image past 2 TiB would overflow; files are bounded to 4 GiB each long before.
    let start = esp.sector.saturating_mul((SECTOR / 512) as u32);
    record[454..458].copy_from_slice(&start.to_le_bytes());
    record[458..462].copy_from_slice(&esp.size.div_ceil(512).to_le_bytes());
    record[510..].copy_from_slice(&[0x55, 0xAA]);
    record
}
