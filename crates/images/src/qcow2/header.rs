// SPDX-License-Identifier: Apache-2.0
//! The header of a qcow2 image, and its validation.

use std::io;

/// Length of the header in version 2, and its minimum in version 3.
const V2_LENGTH: usize = 72;
const V3_LENGTH: usize = 104;

/// The largest L1 table that QEMU accepts.
const MAX_L1_BYTES: u64 = 32 << 20;

/// Bits of incompatible features.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Types of header extensions.
const EXTENSION_END: u32 = 0;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;

/// The validated header of a qcow2 image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qcow2Header {
    /// 2 or 3.
    pub version: u32,
    /// The size of the disk in bytes.
    pub virtual_size: u64,
    /// Whether clusters are compressed with zstd; otherwise with zlib.
    pub zstd: bool,
    /// The number of bits of an offset within a cluster.
    pub cluster_bits: u32,
    /// The offset of the L1 table.
    pub l1_offset: u64,
    /// The number of its entries.
    pub l1_entries: u64,
}

/// Why a qcow2 image is rejected.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// The image is invalid.
    #[error("the qcow2 image is damaged: {what}; create it again (`qemu-img check` shows details)")]
    Damaged {
        /// The problem.
        what: &'static str,
    },
    /// It references another file.
    #[error(
        "the qcow2 image has {what}, and images that reference other files are rejected: convert it with `qemu-img convert -O qcow2`"
    )]
    ReferencesFile {
        /// The kind of reference.
        what: &'static str,
    },
    /// It uses an unsupported feature.
    #[error(
        "the qcow2 image has {what}, which is not supported: convert it with `qemu-img convert -O qcow2`"
    )]
    Unsupported {
        /// The feature.
        what: String,
    },
    /// The disk exceeds the size limit.
    #[error(
        "the disk in the qcow2 image has {virtual_size} bytes and at most {limit} are allowed: raise images.largest_disk, or images.largest_expansion if the file is small, or make a smaller image"
    )]
    TooLarge {
        /// The size in bytes.
        virtual_size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// It cannot be read.
    #[error("the qcow2 image cannot be read")]
    Read(#[source] io::Error),
}

impl Qcow2Header {
    /// Parses and validates a header. `head` is the first cluster, or the first 64 KiB; `limit` is the size
    /// limit of the disk.
    pub fn parse(head: &[u8], limit: u64) -> Result<Self, Qcow2Error> {
        let damaged = |what: &'static str| Qcow2Error::Damaged { what };
        if head.len() < V2_LENGTH || !head.starts_with(b"QFI\xfb") {
            return Err(damaged("it has no header"));
        }
        let version = u32_at(head, 4);
        let cluster_bits = u32_at(head, 20);
        let virtual_size = u64_at(head, 24);
        if !matches!(version, 2 | 3) {
            return Err(Qcow2Error::Unsupported { what: format!("version {version}") });
        }
        if u64_at(head, 8) != 0 || u32_at(head, 16) != 0 {
            return Err(Qcow2Error::ReferencesFile { what: "a backing file" });
        }
        if u32_at(head, 32) != 0 {
            return Err(Qcow2Error::Unsupported { what: "encryption".to_owned() });
        }
        // QEMU supports 512 B to 2 MiB.
        if !(9..=21).contains(&cluster_bits) {
            return Err(damaged("its clusters have an impossible size"));
        }
        if virtual_size > limit {
            return Err(Qcow2Error::TooLarge { virtual_size, limit });
        }
        let (length, features) = match version {
            2 => (V2_LENGTH, 0),
            _ => parse_version_3(head)?,
        };
        check_features(features)?;
        check_extensions(head.get(length..).unwrap_or_default())?;
        let zstd = features & COMPRESSION_TYPE != 0 && is_zstd_compressed(head, length)?;

        let l1_entries = u64::from(u32_at(head, 36));
        let l1_offset = u64_at(head, 40);
        // An L2 table is one cluster of 8-byte entries, one per cluster.
        let covered = 1_u64 << (2 * cluster_bits - 3);
        if l1_entries * 8 > MAX_L1_BYTES || l1_entries < virtual_size.div_ceil(covered) {
            return Err(damaged("its L1 table has an invalid length"));
        }
        if !l1_offset.is_multiple_of(8) {
            return Err(damaged("its L1 table is not aligned"));
        }
        Ok(Self { version, virtual_size, zstd, cluster_bits, l1_offset, l1_entries })
    }
}

/// Returns the length of a version 3 header, and its incompatible features.
fn parse_version_3(head: &[u8]) -> Result<(usize, u64), Qcow2Error> {
    let damaged = |what: &'static str| Qcow2Error::Damaged { what };
    if head.len() < V3_LENGTH {
        return Err(damaged("its header is cut short"));
    }
    let length = u32_at(head, 100) as usize;
    if length < V3_LENGTH || length > head.len() || !length.is_multiple_of(8) {
        return Err(damaged("its header has an impossible length"));
    }
    Ok((length, u64_at(head, 72)))
}

fn check_features(features: u64) -> Result<(), Qcow2Error> {
    if features & EXTERNAL_DATA != 0 {
        return Err(Qcow2Error::ReferencesFile { what: "an external data file" });
    }
    if features & CORRUPT != 0 {
        return Err(Qcow2Error::Damaged { what: "it is marked as corrupt" });
    }
    if features & EXTENDED_L2 != 0 {
        return Err(Qcow2Error::Unsupported { what: "subclusters (extended_l2)".to_owned() });
    }
    // Dirty: the reference counts may be wrong; reading does not use them.
    let unknown = features & !(DIRTY | COMPRESSION_TYPE);
    if unknown != 0 {
        let what = format!("incompatible features {unknown:#x}");
        return Err(Qcow2Error::Unsupported { what });
    }
    Ok(())
}

/// Returns whether clusters are compressed with zstd.
fn is_zstd_compressed(head: &[u8], length: usize) -> Result<bool, Qcow2Error> {
    let known = if length > V3_LENGTH { head.get(V3_LENGTH).copied() } else { None };
    match known {
        Some(1) => Ok(true),
        Some(0) | None => Ok(false),
        Some(other) => Err(Qcow2Error::Unsupported { what: format!("compression type {other}") }),
    }
}

/// Rejects a header extension with the name of an external data file.
fn check_extensions(mut rest: &[u8]) -> Result<(), Qcow2Error> {
    while rest.len() >= 8 {
        let (kind, length) = (u32_at(rest, 0), u32_at(rest, 4) as usize);
        match kind {
            EXTENSION_END => return Ok(()),
            EXTENSION_DATA_FILE => {
                return Err(Qcow2Error::ReferencesFile { what: "an external data file" });
            }
            _ => {}
        }
        let padded = length.next_multiple_of(8);
        match rest.get(8..).and_then(|rest| rest.get(padded..)) {
            Some(next) => rest = next,
            None => return Err(Qcow2Error::Damaged { what: "a header extension is cut short" }),
        }
    }
    Ok(())
}

/// Reads a big-endian number; the offset must be within the header.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}
