// SPDX-License-Identifier: Apache-2.0
//! The programs that firmware loads first: iPXE, PXELINUX and GRUB, and the stub of unified kernel
//! images. They come from Debian's packages or from configured folders; none is ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boot_media::Content;
use boot_media::uki::Stub;
use boot_server::Architecture;
use bytes::Bytes;
use node_model::BootWay;
use sha2::{Digest as _, Sha256};

use crate::hex::hex;
use crate::settings::Settings;

/// A program by the name that clients ask for, where Debian keeps it, and in which package.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("undionly.kpxe", &["/usr/lib/ipxe/undionly.kpxe"], "ipxe"),
    ("ipxe.pxe", &["/usr/lib/ipxe/ipxe.pxe"], "ipxe"),
    ("snponly.efi", &["/usr/lib/ipxe/snponly.efi", "/usr/lib/ipxe/ipxe.efi"], "ipxe"),
    ("ipxe.efi", &["/usr/lib/ipxe/ipxe.efi"], "ipxe"),
    (
        "snponly-arm64.efi",
        &["/usr/lib/ipxe/snponly-arm64.efi", "/usr/lib/ipxe/ipxe-arm64.efi"],
        "ipxe",
    ),
    ("pxelinux.0", &["/usr/lib/PXELINUX/pxelinux.0"], "pxelinux"),
    ("ldlinux.c32", &["/usr/lib/syslinux/modules/bios/ldlinux.c32"], "syslinux-common"),
    (
        "bootx64.efi",
        &["/usr/lib/shim/shimx64.efi.signed", "/usr/lib/shim/shimx64.efi"],
        "shim-signed",
    ),
    (
        "grubx64.efi",
        &["/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"],
        "grub-efi-amd64-signed",
    ),
    ("bootaa64.efi", &["/usr/lib/shim/shimaa64.efi.signed"], "shim-signed"),
    (
        "grubaa64.efi",
        &["/usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed"],
        "grub-efi-arm64-signed",
    ),
];

/// Where Debian keeps the stub.
const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// What firmware loads first, by way and architecture.
const FIRST: &[(BootWay, Architecture, &str)] = &[
    (BootWay::Ipxe, Architecture::Bios, "undionly.kpxe"),
    (BootWay::Ipxe, Architecture::UefiX64, "snponly.efi"),
    (BootWay::Ipxe, Architecture::UefiArm64, "snponly-arm64.efi"),
    (BootWay::Pxe, Architecture::Bios, "pxelinux.0"),
    (BootWay::Pxe, Architecture::UefiX64, "bootx64.efi"),
    (BootWay::Pxe, Architecture::UefiArm64, "bootaa64.efi"),
    (BootWay::HttpIpxe, Architecture::UefiX64, "snponly.efi"),
    (BootWay::HttpIpxe, Architecture::UefiArm64, "snponly-arm64.efi"),
];

/// The programs on this machine.
#[derive(Debug)]
pub(crate) struct Loaders {
    folders: Vec<PathBuf>,
    stub: PathBuf,
}

/// Why there is no stub.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StubMissing {
    #[error(
        "the UEFI stub {} cannot be read; install Debian's package systemd-boot-efi, or configure \
         boot.uefi_stub", path.display()
    )]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a UEFI stub", path.display())]
    Parse { path: PathBuf, source: boot_media::uki::StubError },
}

impl Loaders {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            folders: settings.loader_dirs.clone(),
            stub: settings.uefi_stub.clone().unwrap_or_else(|| PathBuf::from(STUB)),
        }
    }

    /// The name of what firmware of this kind loads first, if there is something for it.
    pub(crate) fn first(way: BootWay, architecture: Architecture) -> Option<Arc<str>> {
        let mut rows = FIRST.iter();
        let row = rows.find(|(of, on, _)| *of == way && *on == architecture)?;
        Some(Arc::from(row.2))
    }

    /// The program called `name`. Only names from the table are looked for, so that no other file of
    /// this machine can be had.
    pub(crate) fn open(&self, name: &str) -> Option<Content> {
        let (name, places, package) = PROGRAMS.iter().find(|(known, ..)| *known == name)?;
        let own = self.folders.iter().map(|folder| folder.join(name));
        let found = own.chain(places.iter().map(PathBuf::from)).find_map(|path| open(&path));
        if found.is_none() {
            tracing::warn!(
                program = name,
                "a machine asks for a boot program that is not here; install Debian's package \
                 {package}, or put it into one of boot.loader_dirs"
            );
        }
        found
    }

    /// The stub, and a name for exactly its bytes. Read anew each time it is asked for, which is
    /// once per plan: packages are upgraded.
    pub(crate) fn stub(&self) -> Result<(Stub, String), StubMissing> {
        let path = &self.stub;
        let bytes =
            fs::read(path).map_err(|source| StubMissing::Read { path: path.clone(), source })?;
        let name = hex(&Sha256::digest(&bytes)[..8]);
        let stub = Stub::parse(&Bytes::from(bytes))
            .map_err(|source| StubMissing::Parse { path: path.clone(), source })?;
        Ok((stub, name))
    }
}

fn open(path: &Path) -> Option<Content> {
    Content::open(path).ok()
}
