// SPDX-License-Identifier: Apache-2.0
//! What an image is, by its bytes and not by its name.
//!
//! Tools that write disks choose how to read an image by what it looks like, and somebody who can
//! make one thing look like another can make them read files they should not. So an image must be
//! exactly one thing, must be what it was declared to be, and must be of an allowed kind.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// As much of an image's beginning as tells what it is: the sector with an ISO's descriptor is the
/// farthest in.
const HEAD: usize = 0x9000;

/// The last bytes of an image: where a VHD of fixed size has its footer.
const TAIL: usize = 512;

/// What an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Nothing with a known beginning: a partition, a kernel, anything.
    Raw,
    /// A raw disk with a GPT partition table.
    Gpt,
    /// A raw disk with an MBR partition table.
    Mbr,
    /// QEMU's.
    Qcow2,
    /// QEMU's for a while.
    Qed,
    /// A CD, also when it has a partition table as well (hybrid).
    Iso,
    /// VMware's.
    Vmdk,
    /// VirtualBox's.
    Vdi,
    /// Old Hyper-V's.
    Vhd,
    /// Hyper-V's.
    Vhdx,
    /// An encrypted volume.
    Luks,
    /// A compressed read-only file system.
    Squashfs,
    /// Something compressed.
    Compressed(Compression),
}

/// How something is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// By gzip.
    Gzip,
    /// By xz.
    Xz,
    /// By zstd.
    Zstd,
    /// By bzip2, which is recognised and not read.
    Bzip2,
    /// By lz4, which is recognised and not read.
    Lz4,
}

/// Why an image is refused for what it is.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FormatError {
    /// The name of a format is not known.
    #[error("image format {name:?} is not known: use raw, qcow2 or iso")]
    Unknown {
        /// What was given.
        name: String,
    },
    /// It is two things at once.
    #[error(
        "the image looks like {first} and like {second} at once, which no honest image does; make it again"
    )]
    Ambiguous {
        /// One.
        first: Format,
        /// The other.
        second: Format,
    },
    /// It is not what it was declared to be.
    #[error(
        "the image was declared to be {declared} and is {detected}: correct the declaration, or the address"
    )]
    Mismatch {
        /// What was said.
        declared: Format,
        /// What it is.
        detected: Format,
    },
    /// It is of a kind that is not allowed.
    #[error(
        "images of format {detected} are not allowed here: convert it (`qemu-img convert -O qcow2`), or allow the format in the configuration"
    )]
    NotPermitted {
        /// What it is.
        detected: Format,
    },
}

/// What begins like this at this offset is of this format.
const BEGINNINGS: [(usize, &[u8], Format); 19] = [
    (0, b"QFI\xfb", Format::Qcow2),
    (0, b"QED\0", Format::Qed),
    (0, b"KDMV", Format::Vmdk),
    (0, b"COWD", Format::Vmdk),
    (0, b"# Disk DescriptorFile", Format::Vmdk),
    (0x40, b"\x7f\x10\xda\xbe", Format::Vdi),
    (0, b"conectix", Format::Vhd),
    (0, b"vhdxfile", Format::Vhdx),
    (0, b"LUKS\xba\xbe", Format::Luks),
    (0, b"hsqs", Format::Squashfs),
    (0, b"sqsh", Format::Squashfs),
    (0x8001, b"CD001", Format::Iso),
    (0x8001, b"BEA01", Format::Iso),
    (0, b"\x1f\x8b\x08", Format::Compressed(Compression::Gzip)),
    (0, b"\xfd7zXZ\0", Format::Compressed(Compression::Xz)),
    (0, b"\x28\xb5\x2f\xfd", Format::Compressed(Compression::Zstd)),
    (0, b"BZh", Format::Compressed(Compression::Bzip2)),
    (0, b"\x04\x22\x4d\x18", Format::Compressed(Compression::Lz4)),
    (0, b"\x02\x21\x4c\x18", Format::Compressed(Compression::Lz4)),
];

impl Format {
    /// The format of this name, as Ironic's `disk_format` has them.
    pub fn named(name: &str) -> Result<Self, FormatError> {
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

    /// What an image is that begins and ends like this. `head` should have its first 36 KiB and
    /// `tail` its last 512 bytes, or all there is.
    pub fn detect(head: &[u8], tail: &[u8]) -> Result<Self, FormatError> {
        let mut found = None;
        for (offset, magic, format) in BEGINNINGS {
            if head.get(offset..).is_some_and(|rest| rest.starts_with(magic)) {
                found = one_of(found, format)?;
            }
        }
        if tail.len() == TAIL && tail.starts_with(b"conectix") {
            found = one_of(found, Self::Vhd)?;
        }
        let partitioned = partition_table(head);
        match (found, partitioned) {
            (None, None) => Ok(Self::Raw),
            (None, Some(table)) => Ok(table),
            // Both at once is how every ISO is made that also boots from a USB stick; a fixed VHD
            // is a raw disk with a footer.
            (Some(format @ (Self::Iso | Self::Vhd)), Some(_)) | (Some(format), None) => Ok(format),
            (Some(format), Some(table)) => {
                Err(FormatError::Ambiguous { first: format, second: table })
            }
        }
    }

    /// What a file is.
    pub(crate) fn of_file(file: &File) -> io::Result<Result<Self, FormatError>> {
        let length = file.metadata()?.len();
        let mut head = vec![0; HEAD.min(usize::try_from(length).unwrap_or(HEAD))];
        file.read_exact_at(&mut head, 0)?;
        let mut tail = [0; TAIL];
        let Some(start) = length.checked_sub(TAIL as u64) else {
            return Ok(Self::detect(&head, &[]));
        };
        file.read_exact_at(&mut tail, start)?;
        Ok(Self::detect(&head, &tail))
    }

    /// Refuses an image that is not what it was declared to be, or not of a permitted format.
    /// A raw image may have a partition table or none, and what is compressed is judged by what
    /// comes out.
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

    /// Whether its bytes go to a disk as they are.
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

    /// Its name, as Ironic's `disk_format` has it where it has one.
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

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn one_of(found: Option<Format>, format: Format) -> Result<Option<Format>, FormatError> {
    match found {
        Some(first) if first != format => Err(FormatError::Ambiguous { first, second: format }),
        Some(_) | None => Ok(Some(format)),
    }
}

/// A partition table at the beginning of a disk. The boot sector of a FAT partition ends like an
/// MBR's too, so the partitions must make sense.
fn partition_table(head: &[u8]) -> Option<Format> {
    let sector = head.get(..512)?;
    let gpt_at =
        |offset: usize| head.get(offset..).is_some_and(|rest| rest.starts_with(b"EFI PART"));
    if !sector.ends_with(b"\x55\xaa") {
        return None;
    }
    if gpt_at(512) || gpt_at(4096) {
        return Some(Format::Gpt);
    }
    let entries = || sector[446..510].chunks_exact(16);
    let sensible = entries().all(|entry| matches!(entry[0], 0 | 0x80));
    let used = entries().any(|entry| entry[4] != 0 && entry[12..16] != [0; 4]);
    (sensible && used).then_some(Format::Mbr)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BEGINNINGS, Compression, Format, FormatError};

    fn beginning(format: Format) -> Vec<u8> {
        let (offset, magic, _) = BEGINNINGS.into_iter().find(|(_, _, it)| *it == format).unwrap();
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
    fn each_beginning_is_known() {
        for (_, _, format) in BEGINNINGS {
            assert_eq!(Format::detect(&beginning(format), &[]), Ok(format));
        }
        assert_eq!(Format::detect(&[], &[]), Ok(Format::Raw));
        assert_eq!(Format::detect(&[0; 4096], &[0; 512]), Ok(Format::Raw));
        let mbr = with_mbr(vec![0; 0x9000]);
        assert_eq!(Format::detect(&mbr, &[]), Ok(Format::Mbr));
        let mut gpt = mbr.clone();
        gpt[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(Format::detect(&gpt, &[]), Ok(Format::Gpt));
        let mut footer = vec![0; 512];
        footer[..8].copy_from_slice(b"conectix");
        assert_eq!(Format::detect(&mbr, &footer), Ok(Format::Vhd));
        // A FAT boot sector's code lies where the partitions would be.
        let mut fat = vec![0xf4; 512];
        fat[510..].copy_from_slice(b"\x55\xaa");
        assert_eq!(Format::detect(&fat, &[]), Ok(Format::Raw));
    }

    #[test]
    fn nothing_is_two_things() {
        assert_eq!(Format::detect(&with_mbr(beginning(Format::Iso)), &[]), Ok(Format::Iso));
        let mut two = beginning(Format::Iso);
        two[..4].copy_from_slice(b"QFI\xfb");
        assert!(matches!(Format::detect(&two, &[]), Err(FormatError::Ambiguous { .. })));
        let two = with_mbr(beginning(Format::Qcow2));
        assert!(matches!(Format::detect(&two, &[]), Err(FormatError::Ambiguous { .. })));
    }

    #[test]
    fn declared_and_permitted() {
        let usual = [Format::Raw, Format::Qcow2, Format::Iso];
        assert!(Format::Gpt.check(Some(Format::Raw), &usual).is_ok());
        assert!(Format::Qcow2.check(None, &usual).is_ok());
        assert!(matches!(
            Format::Qcow2.check(Some(Format::Raw), &usual),
            Err(FormatError::Mismatch { .. })
        ));
        assert!(matches!(
            Format::Raw.check(Some(Format::Qcow2), &usual),
            Err(FormatError::Mismatch { .. })
        ));
        for refused in [Format::Vmdk, Format::Vhd, Format::Compressed(Compression::Gzip)] {
            assert!(matches!(refused.check(None, &usual), Err(FormatError::NotPermitted { .. })));
        }
        for (_, _, format) in BEGINNINGS {
            if !matches!(format, Format::Compressed(_)) {
                assert_eq!(Format::named(format.name()), Ok(format));
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(
            head in proptest::collection::vec(any::<u8>(), 0..2048),
            tail in proptest::collection::vec(any::<u8>(), 0..=512),
        ) {
            let _ = Format::detect(&head, &tail);
        }
    }
}
