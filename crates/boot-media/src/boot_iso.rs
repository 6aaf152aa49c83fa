// SPDX-License-Identifier: Apache-2.0
//! The ISO that a machine boots as virtual media: a unified kernel image in an EFI system partition, and
//! files for the ramdisk.

use crate::fat::{self, FatError};
use crate::iso::{IsoError, IsoImage};
use crate::uki::EfiArchitecture;
use crate::{Content, FileTree, MediaPathError};

/// The label of a boot ISO with OpenStack metadata, where the agent reads network data.
pub const LABEL_WITH_METADATA: &str = "config-2";
/// The label of a boot ISO without metadata.
pub const LABEL_PLAIN: &str = "VMEDIA_BOOT_ISO";
/// The path of the network data for a machine without DHCP.
pub const NETWORK_DATA_PATH: &str = "openstack/latest/network_data.json";

const ESP_LABEL: &str = "ESP";
const METADATA_FOLDER: &str = "openstack";

/// The parts of a boot ISO.
#[derive(Debug, Clone)]
pub struct BootIso<'a> {
    /// The unified kernel image.
    pub image: &'a Content,
    /// The architecture of the image.
    pub architecture: EfiArchitecture,
    /// Files for the ramdisk.
    pub files: FileTree,
    /// The publisher, which the ramdisk compares with its kernel parameter `ir_pub_id` when more
    /// than one medium is labelled `config-2`.
    pub publisher: Option<&'a str>,
}

/// Why a boot ISO cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BootIsoError {
    /// The EFI system partition failed.
    #[error("cannot build the EFI system partition of the boot ISO")]
    Partition(#[from] FatError),
    /// The path in the partition is invalid. Cannot happen with the built-in paths.
    #[error("the path of the image in the EFI system partition is invalid")]
    Path(#[from] MediaPathError),
    /// The ISO image failed.
    #[error("cannot build the boot ISO")]
    Iso(#[from] IsoError),
}

/// Builds the EFI system partition, which also boots from a USB stick or a disk.
pub fn system_partition(
    image: &Content,
    architecture: EfiArchitecture,
) -> Result<Content, BootIsoError> {
    let mut files = FileTree::new();
    files.insert(architecture.removable_path(), image.clone())?;
    Ok(fat::layout(ESP_LABEL, &files, fat::FatSize::Fitting)?)
}

impl BootIso<'_> {
    /// Builds the ISO. It is labelled `config-2` if the files contain a folder `openstack`.
    pub fn layout(self) -> Result<Content, BootIsoError> {
        let has_metadata = self.files.root().entries.contains_key(METADATA_FOLDER);
        let label = if has_metadata { LABEL_WITH_METADATA } else { LABEL_PLAIN };
        let partition = system_partition(self.image, self.architecture)?;
        let mut iso = IsoImage::new(label, self.files).bootable(partition);
        if let Some(publisher) = self.publisher {
            iso = iso.published_by(publisher);
        }
        Ok(iso.layout()?)
    }
}
