// SPDX-License-Identifier: Apache-2.0
//! Boot loaders (iPXE, PXELINUX, GRUB) and the stub of unified kernel images, from Debian packages or
//! from configured directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use boot_media::Content;
use boot_media::uki::UkiStub;
use boot_server::FirmwareArchitecture;
use bytes::Bytes;
use node_model::BootMethod;
use sha2::{Digest as _, Sha256};

use crate::settings::BootServiceSettings;

/// Boot loaders: requested name, paths in Debian, and Debian package.
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

/// The path of the stub in Debian.
const DEFAULT_STUB_PATH: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";

/// The file that firmware loads first, by boot method and architecture.
const FIRST_STAGES: &[(BootMethod, FirmwareArchitecture, &str)] = &[
    (BootMethod::Ipxe, FirmwareArchitecture::Bios, "undionly.kpxe"),
    (BootMethod::Ipxe, FirmwareArchitecture::UefiX64, "snponly.efi"),
    (BootMethod::Ipxe, FirmwareArchitecture::UefiArm64, "snponly-arm64.efi"),
    (BootMethod::Pxe, FirmwareArchitecture::Bios, "pxelinux.0"),
    (BootMethod::Pxe, FirmwareArchitecture::UefiX64, "bootx64.efi"),
    (BootMethod::Pxe, FirmwareArchitecture::UefiArm64, "bootaa64.efi"),
    (BootMethod::HttpIpxe, FirmwareArchitecture::UefiX64, "snponly.efi"),
    (BootMethod::HttpIpxe, FirmwareArchitecture::UefiArm64, "snponly-arm64.efi"),
];

/// The boot loaders on this host.
#[derive(Debug)]
pub(crate) struct BootLoaders {
    folders: Vec<PathBuf>,
    stub: PathBuf,
}

/// Why the UEFI stub cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UefiStubError {
    #[error(
        "the UEFI stub {} cannot be read; install Debian's package systemd-boot-efi, or configure \
         boot.uefi_stub", path.display()
    )]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a UEFI stub", path.display())]
    Parse { path: PathBuf, source: boot_media::uki::UkiStubError },
}

impl BootLoaders {
    pub(crate) fn new(settings: &BootServiceSettings) -> Self {
        Self {
            folders: settings.loader_dirs.clone(),
            stub: settings.uefi_stub.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_STUB_PATH)),
        }
    }

    /// Returns the name of the file that firmware of this architecture loads first, if there is one.
    pub(crate) fn first_stage(
        method: BootMethod,
        architecture: FirmwareArchitecture,
    ) -> Option<Arc<str>> {
        let mut rows = FIRST_STAGES.iter();
        let row = rows.find(|row| row.0 == method && row.1 == architecture)?;
        Some(Arc::from(row.2))
    }

    /// Opens the boot loader called `name`. Only names of the table are served, so that no other file of
    /// this host can be read.
    pub(crate) fn open(&self, name: &str) -> Option<Content> {
        let (name, paths, package) = PROGRAMS.iter().find(|(known, ..)| *known == name)?;
        let configured = self.folders.iter().map(|folder| folder.join(name));
        let content =
            configured.chain(paths.iter().map(PathBuf::from)).find_map(|path| open(&path));
        if content.is_none() {
            tracing::warn!(
                file = name,
                debian_package = package,
                "requested boot loader is not installed; install the package or set boot.loader_dirs"
            );
        }
        content
    }

    /// Returns the stub and a digest of its bytes. It is read again for each plan, since packages are
    /// upgraded.
    pub(crate) fn stub(&self) -> Result<(UkiStub, String), UefiStubError> {
        let path = &self.stub;
        let bytes =
            fs::read(path).map_err(|source| UefiStubError::Read { path: path.clone(), source })?;
        let digest = hex::encode(&Sha256::digest(&bytes)[..8]);
        let stub = UkiStub::parse(&Bytes::from(bytes))
            .map_err(|source| UefiStubError::Parse { path: path.clone(), source })?;
        Ok((stub, digest))
    }
}

fn open(path: &Path) -> Option<Content> {
    Content::open(path).ok()
}
