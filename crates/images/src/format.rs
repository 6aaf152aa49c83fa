// SPDX-License-Identifier: Apache-2.0
//! Detects the format of an image from its content.
//!
//! Tools that write disks detect the format of an image themselves, and an image that looks like another
//! format can make them read other files. So an image must match exactly one format, match its declared
//! format, and have a permitted format.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at the start of an image that are needed to detect its format: the descriptor of an ISO is the
/// farthest signature.
const HEAD_BYTES: usize = 0x9000;

/// Bytes at the end of an image that are needed: a VHD of fixed size has a footer there.
const TAIL_BYTES: usize = 512;

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFormat {
    /// No known signature: a partition, a kernel or other data.
    Raw,
    /// A raw disk with a GPT partition table.
    Gpt,
    /// A raw disk with an MBR partition table.
    Mbr,
    /// qcow2 of QEMU.
    Qcow2,
    /// QED, an obsolete format of QEMU.
    Qed,
    /// A CD, with or without a partition table (hybrid).
    Iso,
    /// VMDK of VMware.
    Vmdk,
    /// VDI of VirtualBox.
    Vdi,
    /// VHD of older Hyper-V versions.
    Vhd,
    /// VHDX of Hyper-V.
    Vhdx,
    /// An encrypted volume.
    Luks,
    /// A compressed read-only file system.
    Squashfs,
    /// Compressed data.
    Compressed(Compression),
}

/// A compression format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// gzip.
    Gzip,
    /// xz.
    Xz,
    /// zstd.
    Zstd,
    /// bzip2, which is detected but not supported.
    Bzip2,
    /// lz4, which is detected but not supported.
    Lz4,
}

/// Why an image is rejected because of its format.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    /// The name of the format is unknown.
    #[error("image format {name:?} is not known: use raw, qcow2 or iso")]
    Unknown {
        /// The name.
        name: String,
    },
    /// It matches two formats.
    #[error(
        "the image matches the formats {first} and {second}, so its format is ambiguous: create the image again"
    )]
    Ambiguous {
        /// The first format.
        first: ImageFormat,
        /// The second format.
        second: ImageFormat,
    },
    /// The detected format differs from the declared one.
    #[error(
        "the image was declared to be {declared} and is {detected}: correct the declaration, or the address"
    )]
    Mismatch {
        /// The declared format.
        declared: ImageFormat,
        /// The detected format.
        detected: ImageFormat,
    },
    /// The format is not permitted.
    #[error(
        "images of format {detected} are not allowed here: convert it (`qemu-img convert -O qcow2`), or allow the format in the configuration"
    )]
    NotPermitted {
        /// The detected format.
        detected: ImageFormat,
    },
}

/// Offset and bytes of each format's signature.
const MAGIC_NUMBERS: [(usize, &[u8], ImageFormat); 19] = [
    (0, b"QFI\xfb", ImageFormat::Qcow2),
    (0, b"QED\0", ImageFormat::Qed),
    (0, b"KDMV", ImageFormat::Vmdk),
    (0, b"COWD", ImageFormat::Vmdk),
    (0, b"# Disk DescriptorFile", ImageFormat::Vmdk),
    (0x40, b"\x7f\x10\xda\xbe", ImageFormat::Vdi),
    (0, b"conectix", ImageFormat::Vhd),
    (0, b"vhdxfile", ImageFormat::Vhdx),
    (0, b"LUKS\xba\xbe", ImageFormat::Luks),
    (0, b"hsqs", ImageFormat::Squashfs),
    (0, b"sqsh", ImageFormat::Squashfs),
    (0x8001, b"CD001", ImageFormat::Iso),
    (0x8001, b"BEA01", ImageFormat::Iso),
    (0, b"\x1f\x8b\x08", ImageFormat::Compressed(Compression::Gzip)),
    (0, b"\xfd7zXZ\0", ImageFormat::Compressed(Compression::Xz)),
    (0, b"\x28\xb5\x2f\xfd", ImageFormat::Compressed(Compression::Zstd)),
    (0, b"BZh", ImageFormat::Compressed(Compression::Bzip2)),
    (0, b"\x04\x22\x4d\x18", ImageFormat::Compressed(Compression::Lz4)),
    (0, b"\x02\x21\x4c\x18", ImageFormat::Compressed(Compression::Lz4)),
];

impl ImageFormat {
    /// Parses the name of a format, as in Ironic's `disk_format`.
    pub fn from_name(name: &str) -> Result<Self, FormatError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "raw" | "ami" => Ok(Self::Raw),
            "gpt" => Ok(Self::Gpt),
            "mbr" => Ok(Self::Mbr),
            "qcow2" => Ok(Self::Qcow2),
            "qed" => Ok(Self::Qed),
            "iso" => Ok(Self::Iso),
            "vmdk" => Ok(Self::Vmdk),
            "vdi" => Ok(Self::Vdi),
            "vhd" | "vpc" => Ok(Self::Vhd),
            "vhdx" => Ok(Self::Vhdx),
            "luks" => Ok(Self::Luks),
            "squashfs" => Ok(Self::Squashfs),
            _ => Err(FormatError::Unknown { name: name.to_owned() }),
        }
    }

    /// Detects the format from the start and the end of an image. `head` is its first 36 KiB and `tail` its
    /// last 512 bytes, or all of it if it is shorter.
    pub fn detect(head: &[u8], tail: &[u8]) -> Result<Self, FormatError> {
        let mut found = None;
        for (offset, magic, format) in MAGIC_NUMBERS {
            if head.get(offset..).is_some_and(|rest| rest.starts_with(magic)) {
                found = require_single_format(found, format)?;
            }
        }
        if tail.len() == TAIL_BYTES && tail.starts_with(b"conectix") {
            found = require_single_format(found, Self::Vhd)?;
        }
        let partitioned = partition_table(head);
        match (found, partitioned) {
            (None, None) => Ok(Self::Raw),
            (None, Some(table)) => Ok(table),
            // An ISO that also boots from a USB stick has a partition table; a VHD of fixed size is a
            // raw disk with a footer.
            (Some(format @ (Self::Iso | Self::Vhd)), Some(_)) | (Some(format), None) => Ok(format),
            (Some(format), Some(table)) => {
                Err(FormatError::Ambiguous { first: format, second: table })
            }
        }
    }

    /// Detects the format of a file.
    pub(crate) fn detect_file(file: &File) -> io::Result<Result<Self, FormatError>> {
        let length = file.metadata()?.len();
        let mut head = vec![0; HEAD_BYTES.min(usize::try_from(length).unwrap_or(HEAD_BYTES))];
        file.read_exact_at(&mut head, 0)?;
        let mut tail = [0; TAIL_BYTES];
        let Some(start) = length.checked_sub(TAIL_BYTES as u64) else {
            return Ok(Self::detect(&head, &[]));
        };
        file.read_exact_at(&mut tail, start)?;
        Ok(Self::detect(&head, &tail))
    }

    /// Rejects an image whose format is not the declared one or is not permitted. A raw image may have a
    /// partition table. Compressed data are checked after decompression.
    pub fn check(self, declared: Option<Self>, permitted: &[Self]) -> Result<(), FormatError> {
        if let Some(declared) = declared
            && declared != self
            && !(declared == Self::Raw && self.is_raw())
        {
            return Err(FormatError::Mismatch { declared, detected: self });
        }
        let raw_permitted = self.is_raw() && permitted.contains(&Self::Raw);
        if permitted.contains(&self) || raw_permitted {
            return Ok(());
        }
        Err(FormatError::NotPermitted { detected: self })
    }

    /// Returns whether the bytes can be written to a disk without conversion.
    pub fn is_raw(self) -> bool {
        match self {
            Self::Raw | Self::Gpt | Self::Mbr => true,
            Self::Qcow2
            | Self::Qed
            | Self::Iso
            | Self::Vmdk
            | Self::Vdi
            | Self::Vhd
            | Self::Vhdx
            | Self::Luks
            | Self::Squashfs
            | Self::Compressed(_) => false,
        }
    }

    /// Returns its name, which is that of Ironic's `disk_format` if there is one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
            Self::Qcow2 => "qcow2",
            Self::Qed => "qed",
            Self::Iso => "iso",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
            Self::Luks => "luks",
            Self::Squashfs => "squashfs",
            Self::Compressed(Compression::Gzip) => "gzip",
            Self::Compressed(Compression::Xz) => "xz",
            Self::Compressed(Compression::Zstd) => "zstd",
            Self::Compressed(Compression::Bzip2) => "bzip2",
            Self::Compressed(Compression::Lz4) => "lz4",
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn require_single_format(
    found: Option<ImageFormat>,
    format: ImageFormat,
) -> Result<Option<ImageFormat>, FormatError> {
    match found {
        Some(first) if first != format => Err(FormatError::Ambiguous { first, second: format }),
        Some(_) | None => Ok(Some(format)),
    }
}

/// Detects a partition table at the start of a disk. The boot sector of a FAT partition has the same
/// signature as an MBR, so the partition entries must be plausible.
fn partition_table(head: &[u8]) -> Option<ImageFormat> {
    let sector = head.get(..512)?;
    let gpt_at =
        |offset: usize| head.get(offset..).is_some_and(|rest| rest.starts_with(b"EFI PART"));
    if !sector.ends_with(b"\x55\xaa") {
        return None;
    }
    if gpt_at(512) || gpt_at(4096) {
        return Some(ImageFormat::Gpt);
    }
    let entries = || sector[446..510].chunks_exact(16);
    let sensible = entries().all(|entry| matches!(entry[0], 0 | 0x80));
    let used = entries().any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    (sensible && used).then_some(ImageFormat::Mbr)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Compression, FormatError, ImageFormat, MAGIC_NUMBERS};

    fn beginning(format: ImageFormat) -> Vec<u8> {
        let (offset, magic, _) =
            MAGIC_NUMBERS.into_iter().find(|(_, _, it)| *it == format).unwrap();
        let mut head = vec![0; 0x9000];
        head[offset..offset + magic.len()].copy_from_slice(magic);
        head
    }

    fn with_mbr(mut head: Vec<u8>) -> Vec<u8> {
        head[446..462].copy_from_slice(&[0x80, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        head[510..512].copy_from_slice(b"\x55\xaa");
        head
    }

    #[test]
    fn detects_formats() {
        for (_, _, format) in MAGIC_NUMBERS {
            assert_eq!(ImageFormat::detect(&beginning(format), &[]), Ok(format));
        }
        assert_eq!(ImageFormat::detect(&[], &[]), Ok(ImageFormat::Raw));
        assert_eq!(ImageFormat::detect(&[0; 4096], &[0; 512]), Ok(ImageFormat::Raw));
        let mbr = with_mbr(vec![0; 0x9000]);
        assert_eq!(ImageFormat::detect(&mbr, &[]), Ok(ImageFormat::Mbr));
        let mut gpt = mbr.clone();
        gpt[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(ImageFormat::detect(&gpt, &[]), Ok(ImageFormat::Gpt));
        let mut footer = vec![0; 512];
        footer[..8].copy_from_slice(b"conectix");
        assert_eq!(ImageFormat::detect(&mbr, &footer), Ok(ImageFormat::Vhd));
        // The code of a FAT boot sector is at the offset of the partition entries.
        let mut fat = vec![0xf4; 512];
        fat[510..].copy_from_slice(b"\x55\xaa");
        assert_eq!(ImageFormat::detect(&fat, &[]), Ok(ImageFormat::Raw));
    }

    #[test]
    fn rejects_ambiguous_formats() {
        assert_eq!(
            ImageFormat::detect(&with_mbr(beginning(ImageFormat::Iso)), &[]),
            Ok(ImageFormat::Iso)
        );
        let mut two = beginning(ImageFormat::Iso);
        two[..4].copy_from_slice(b"QFI\xfb");
        assert!(matches!(ImageFormat::detect(&two, &[]), Err(FormatError::Ambiguous { .. })));
        let two = with_mbr(beginning(ImageFormat::Qcow2));
        assert!(matches!(ImageFormat::detect(&two, &[]), Err(FormatError::Ambiguous { .. })));
    }

    #[test]
    fn checks_declared_and_permitted_formats() {
        let usual = [ImageFormat::Raw, ImageFormat::Qcow2, ImageFormat::Iso];
        assert!(ImageFormat::Gpt.check(Some(ImageFormat::Raw), &usual).is_ok());
        assert!(ImageFormat::Qcow2.check(None, &usual).is_ok());
        assert!(matches!(
            ImageFormat::Qcow2.check(Some(ImageFormat::Raw), &usual),
            Err(FormatError::Mismatch { .. })
        ));
        assert!(matches!(
            ImageFormat::Raw.check(Some(ImageFormat::Qcow2), &usual),
            Err(FormatError::Mismatch { .. })
        ));
        for refused in
            [ImageFormat::Vmdk, ImageFormat::Vhd, ImageFormat::Compressed(Compression::Gzip)]
        {
            assert!(matches!(refused.check(None, &usual), Err(FormatError::NotPermitted { .. })));
        }
        for (_, _, format) in MAGIC_NUMBERS {
            if !matches!(format, ImageFormat::Compressed(_)) {
                assert_eq!(ImageFormat::from_name(format.name()), Ok(format));
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            head in proptest::collection::vec(any::<u8>(), 0..2048),
            tail in proptest::collection::vec(any::<u8>(), 0..=512),
        ) {
            let _ = ImageFormat::detect(&head, &tail);
        }
    }
}
