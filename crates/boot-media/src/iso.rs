// SPDX-License-Identifier: Apache-2.0
//! ISO 9660 images with Rock Ridge and Joliet names, and optionally with an El Torito entry for UEFI.
//!
//! The order on the medium is: system area (with a partition table if bootable, so that the image also
//! boots from a USB stick), volume descriptors, path tables, folders, boot catalogue, files, EFI system
//! partition.

mod descriptor;
mod el_torito;
mod hierarchy;
mod record;

use crate::{Content, ContentSegment, FileTree, MediaPathError};
use descriptor::{IsoVolume, IsoVolumeKind, VolumeTexts};
use hierarchy::{IsoHierarchy, IsoNaming, PathTableByteOrder};

/// Bytes per sector.
pub(crate) const SECTOR: u64 = 2048;
/// Maximum length of a label.
pub const MAX_LABEL_LENGTH: usize = 32;
/// Maximum length of a publisher: the limit of a Joliet descriptor, so that both descriptors are equal.
pub const MAX_PUBLISHER_LENGTH: usize = 64;
/// The path of the EFI system partition as a file.
pub const ESP_PATH: &str = "boot/efiboot.img";

const DEFAULT_PUBLISHER: &str = "FERRITE";
const SYSTEM_AREA_SECTORS: u64 = 16;

/// The description of an ISO image.
#[derive(Debug, Clone)]
pub struct IsoImage {
    label: String,
    publisher: String,
    files: FileTree,
    esp: Option<Content>,
}

/// Why an image cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsoError {
    /// The label is empty, too long or not plain ASCII.
    #[error(
        "{label:?} cannot be the label of an ISO: it must be of 1 to {MAX_LABEL_LENGTH} printable ASCII characters"
    )]
    Label {
        /// The label.
        label: String,
    },
    /// The publisher is empty, too long or not plain ASCII.
    #[error(
        "{publisher:?} cannot be the publisher of an ISO: it must be of 1 to {MAX_PUBLISHER_LENGTH} printable ASCII characters"
    )]
    Publisher {
        /// The publisher.
        publisher: String,
    },
    /// A path is invalid in ISO 9660.
    #[error("a file cannot be stored on the ISO")]
    Path(#[from] MediaPathError),
    /// A file of 4 GiB or more.
    #[error("a file of {size} bytes is too large for an ISO (4 GiB); use a smaller ramdisk")]
    FileTooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// The files are too many or too large.
    #[error("the files are too many or too large together for an ISO")]
    TooLarge,
}

/// The location of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IsoExtent {
    sector: u32,
    /// The size in bytes.
    size: u32,
}

impl IsoImage {
    /// Returns an image with these files that is not bootable.
    pub fn new(label: &str, files: FileTree) -> IsoImage {
        IsoImage {
            label: label.to_owned(),
            publisher: DEFAULT_PUBLISHER.to_owned(),
            files,
            esp: None,
        }
    }

    /// Sets the publisher, by which a ramdisk distinguishes its own medium from another with the same
    /// label.
    pub fn published_by(mut self, publisher: &str) -> IsoImage {
        publisher.clone_into(&mut self.publisher);
        self
    }

    /// Makes the image bootable on UEFI firmware: `esp` is a FAT volume with the boot loader, such as
    /// `EFI/BOOT/BOOTX64.EFI`.
    pub fn bootable(mut self, esp: Content) -> IsoImage {
        self.esp = Some(esp);
        self
    }

    /// Builds the image.
    pub fn layout(mut self) -> Result<Content, IsoError> {
        if !is_printable_ascii(&self.label, MAX_LABEL_LENGTH) {
            return Err(IsoError::Label { label: self.label });
        }
        if !is_printable_ascii(&self.publisher, MAX_PUBLISHER_LENGTH) {
            return Err(IsoError::Publisher { publisher: self.publisher });
        }
        if let Some(esp) = &self.esp {
            // The partition must be last on the medium: for a partition of more than 32 MiB,
            // firmware assumes that it extends to the end (see el_torito).
            self.files.insert(ESP_PATH, esp.clone())?;
        }
        let plan = IsoLayout::new(&self)?;
        let mut image = plan.head(&self);
        for file in self.files.files() {
            image.append(file);
            image.pad_to_multiple(SECTOR);
        }
        Ok(image)
    }
}

/// The location of all parts, computed before anything is written.
struct IsoLayout {
    /// The primary tree and the Joliet tree, with the locations of their parts.
    trees: [IsoHierarchy; 2],
    volumes: [IsoVolume; 2],
    catalogue: Option<u32>,
    files: Vec<IsoExtent>,
    /// Number of sectors before the first file.
    head_sectors: u32,
}

impl IsoLayout {
    fn new(iso: &IsoImage) -> Result<IsoLayout, IsoError> {
        let trees = [
            IsoHierarchy::new(&iso.files, IsoNaming::RockRidge).ok_or(IsoError::TooLarge)?,
            IsoHierarchy::new(&iso.files, IsoNaming::Joliet).ok_or(IsoError::TooLarge)?,
        ];
        // Two volume descriptors, the terminator and the boot record.
        let descriptors = if iso.esp.is_some() { 4 } else { 3 };
        let mut next = SectorAllocator { sector: SYSTEM_AREA_SECTORS + descriptors };
        let mut volumes = [IsoVolume::default(), IsoVolume::default()];
        for (tree, volume) in trees.iter().zip(&mut volumes) {
            volume.path_table_size = tree.path_table_size();
            volume.path_table_little = next.allocate(u64::from(volume.path_table_size))?.sector;
            volume.path_table_big = next.allocate(u64::from(volume.path_table_size))?.sector;
        }
        for (tree, volume) in trees.iter().zip(&mut volumes) {
            let sizes = tree.folder_sizes();
            volume.folders = sizes.map(|size| next.allocate(size)).collect::<Result<_, _>>()?;
        }
        let catalogue = match iso.esp {
            Some(_) => Some(next.allocate(SECTOR)?.sector),
            None => None,
        };
        let head_sectors = next.sector()?;
        let files = iso.files.files().iter().map(|file| next.allocate(file.length()));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        for volume in &mut volumes {
            volume.total_sectors = next.sector()?;
        }
        Ok(IsoLayout { trees, volumes, catalogue, files, head_sectors })
    }

    /// Returns everything before the first file.
    fn head(&self, iso: &IsoImage) -> Content {
        let esp = self.catalogue.and_then(|_| self.files.last().copied());
        let system_area = SYSTEM_AREA_SECTORS * SECTOR;
        let mut content = Content::from(esp.map(el_torito::partition_table).unwrap_or_default());
        content.push(ContentSegment::Zeros(system_area - content.length()));

        let mut head = Vec::new();
        let [primary, joliet] = &self.volumes;
        let texts = VolumeTexts { label: &iso.label, publisher: &iso.publisher };
        head.extend_from_slice(&descriptor::volume(IsoVolumeKind::Primary, &texts, primary));
        if let Some(catalogue) = self.catalogue {
            // El Torito requires the boot record in sector 17.
            head.extend_from_slice(&descriptor::boot_record(catalogue));
        }
        head.extend_from_slice(&descriptor::volume(IsoVolumeKind::Joliet, &texts, joliet));
        head.extend_from_slice(&descriptor::terminator());

        for (tree, volume) in self.trees.iter().zip(&self.volumes) {
            for order in [PathTableByteOrder::Little, PathTableByteOrder::Big] {
                tree.write_path_table(&mut head, &volume.folders, order);
                pad_to_sector(&mut head);
            }
        }
        for (tree, volume) in self.trees.iter().zip(&self.volumes) {
            tree.write_folders(&mut head, &volume.folders, &self.files);
        }
        if let Some(esp) = esp {
            head.extend_from_slice(&el_torito::catalogue(esp));
            pad_to_sector(&mut head);
        }
        content.push(ContentSegment::Bytes(head.into()));
        debug_assert_eq!(content.length(), u64::from(self.head_sectors) * SECTOR);
        content
    }
}

/// Allocates whole sectors.
struct SectorAllocator {
    sector: u64,
}

impl SectorAllocator {
    fn allocate(&mut self, size: u64) -> Result<IsoExtent, IsoError> {
        let sector = self.sector()?;
        let narrow = u32::try_from(size).map_err(|_| IsoError::FileTooLarge { size })?;
        self.sector += size.div_ceil(SECTOR);
        Ok(IsoExtent { sector, size: narrow })
    }

    fn sector(&self) -> Result<u32, IsoError> {
        u32::try_from(self.sector).map_err(|_| IsoError::TooLarge)
    }
}

fn is_printable_ascii(text: &str, longest: usize) -> bool {
    let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    printable && (1..=longest).contains(&text.len())
}

fn pad_to_sector(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
}

#[cfg(test)]
mod tests;
