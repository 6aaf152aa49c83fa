// SPDX-License-Identifier: Apache-2.0
//! The ISO a machine boots as virtual media: one unified kernel image in an EFI system partition,
//! and files for the ramdisk to find.

use crate::fat::{self, FatError};
use crate::iso::{Iso, IsoError};
use crate::uki::Architecture;
use crate::{Content, FileTree, PathError};

/// The label of a boot ISO that carries OpenStack metadata, where the agent looks for network data.
pub const LABEL_WITH_METADATA: &str = "config-2";
/// The label of a boot ISO that carries none.
pub const LABEL_PLAIN: &str = "VMEDIA_BOOT_ISO";
/// Where network data goes for a machine without DHCP.
pub const NETWORK_DATA_PATH: &str = "openstack/latest/network_data.json";

const ESP_LABEL: &str = "ESP";
const METADATA_FOLDER: &str = "openstack";

/// What goes onto a boot ISO.
#[derive(Debug, Clone)]
pub struct BootIso<'a> {
    /// The unified kernel image.
    pub image: &'a Content,
    /// The processor it is for.
    pub architecture: Architecture,
    /// What the ramdisk shall find on the medium.
    pub files: FileTree,
    /// The publisher, which the ramdisk compares with its kernel parameter `ir_pub_id` when more
    /// than one medium is labelled `config-2`.
    pub publisher: Option<&'a str>,
}

/// Why a boot ISO could not be laid out.
#[derive(Debug, thiserror::Error)]
pub enum BootIsoError {
    /// The EFI system partition failed.
    #[error("could not lay out the EFI system partition of the boot ISO")]
    Partition(#[from] FatError),
    /// Its one path failed; cannot happen with the paths we have.
    #[error("could not name the image in the EFI system partition")]
    Path(#[from] PathError),
    /// The image around it failed.
    #[error("could not lay out the boot ISO")]
    Iso(#[from] IsoError),
}

/// The EFI system partition alone: also what a USB stick or a plain disk boots.
pub fn system_partition(
    image: &Content,
    architecture: Architecture,
) -> Result<Content, BootIsoError> {
    let mut files = FileTree::new();
    files.insert(architecture.removable_path(), image.clone())?;
    Ok(fat::layout(ESP_LABEL, &files, fat::Size::Fitting)?)
}

impl BootIso<'_> {
    /// Lays out the ISO. Its label follows from whether there is an `openstack` folder among the
    /// files.
    pub fn layout(self) -> Result<Content, BootIsoError> {
        let has_metadata = self.files.root().entries.contains_key(METADATA_FOLDER);
        let label = if has_metadata { LABEL_WITH_METADATA } else { LABEL_PLAIN };
        let partition = system_partition(self.image, self.architecture)?;
        let mut iso = Iso::new(label, self.files).bootable(partition);
        if let Some(publisher) = self.publisher {
            iso = iso.published_by(publisher);
        }
        Ok(iso.layout()?)
    }
}
