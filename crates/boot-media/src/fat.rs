// SPDX-License-Identifier: Apache-2.0
//! Read-only FAT volumes: the ESP of a boot ISO and small removable volumes.
//!
//! All files are contiguous: a volume consists of a head (boot sector, tables, folders) and the contents
//! of the files, each padded to whole clusters.

mod directory;
mod geometry;

use bytes::Bytes;

use crate::{Content, ContentSegment, FileTree};
use directory::FlatTree;
use geometry::FatGeometry;

/// Bytes per sector.
pub(crate) const SECTOR: u64 = 512;
/// Maximum length of a label in characters.
pub const MAX_LABEL_LENGTH: usize = 11;

/// The size of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FatSize {
    /// The smallest size that fits the files.
    Fitting,
    /// This many bytes, a multiple of 512.
    Exact(u64),
}

/// Why a volume cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FatError {
    /// The label is empty, too long or not plain ASCII.
    #[error(
        "{label:?} cannot be a FAT label: it must be of 1 to {MAX_LABEL_LENGTH} printable ASCII characters"
    )]
    Label {
        /// The label.
        label: String,
    },
    /// A file of 4 GiB or more.
    #[error("a file of {size} bytes is too large for a FAT volume (4 GiB); use a smaller ramdisk")]
    FileTooLarge {
        /// Its size in bytes.
        size: u64,
    },
    /// The files are too many or too large for a FAT volume.
    #[error("the files are too large together for a FAT volume")]
    TooLarge,
    /// The files do not fit the requested size.
    #[error("the files do not fit a volume of {size} bytes; request a larger one")]
    DoesNotFit {
        /// The requested size.
        size: u64,
    },
}

/// Builds a volume.
pub fn layout(label: &str, files: &FileTree, size: FatSize) -> Result<Content, FatError> {
    let label = padded_label(label)?;
    if let Some(file) = files.files().iter().find(|file| file.length() > u64::from(u32::MAX)) {
        return Err(FatError::FileTooLarge { size: file.length() });
    }
    let tree = FlatTree::new(files);
    let demand = geometry::VolumeContents { tree: &tree, files: files.files() };
    let geometry = match size {
        FatSize::Fitting => FatGeometry::fitting(&demand).ok_or(FatError::TooLarge)?,
        FatSize::Exact(size) => {
            FatGeometry::with_size(&demand, size).ok_or(FatError::DoesNotFit { size })?
        }
    };
    Ok(assemble(&label, &tree, files, &geometry))
}

/// The clusters of one folder or file.
#[derive(Debug, Clone, Copy)]
struct ClusterRun {
    first: u32,
    count: u32,
}

fn assemble(
    label: &[u8; 11],
    tree: &FlatTree<'_>,
    files: &FileTree,
    geometry: &FatGeometry,
) -> Content {
    let mut next = 2;
    let mut take = |count: u32| {
        let run = ClusterRun { first: if count == 0 { 0 } else { next }, count };
        next += count;
        run
    };
    // The root of FAT12 and FAT16 is outside the clusters. Its number is 0, which `..` entries contain.
    let folders: Vec<ClusterRun> = tree
        .folders
        .iter()
        .enumerate()
        .map(|(i, f)| take(geometry.folder_clusters(i, f)))
        .collect();
    let contents: Vec<ClusterRun> =
        files.files().iter().map(|file| take(geometry.clusters_of(file.length()))).collect();

    let mut volume = Content::from(geometry.boot_sectors(label, next));
    let table = Bytes::from(geometry.table(folders.iter().chain(&contents)));
    volume.push(ContentSegment::Bytes(table.clone()));
    volume.push(ContentSegment::Bytes(table));
    for (index, run) in folders.iter().enumerate() {
        let entries = tree.folder_entries(index, label, &folders, &contents, files.files());
        let in_clusters = u64::from(run.count) * geometry.cluster_size();
        let room = if index == 0 { in_clusters + geometry.fixed_root_size() } else { in_clusters };
        let unused = room - entries.len() as u64;
        volume.push(ContentSegment::Bytes(entries.into()));
        volume.push(ContentSegment::Zeros(unused));
    }
    for file in files.files() {
        volume.append(file);
        // The head is not a multiple of clusters, so padding is relative to the start of each file.
        let tail = file.length().next_multiple_of(geometry.cluster_size()) - file.length();
        volume.push(ContentSegment::Zeros(tail));
    }
    let rest = geometry.total_size() - volume.length();
    volume.push(ContentSegment::Zeros(rest));
    volume
}

fn padded_label(label: &str) -> Result<[u8; 11], FatError> {
    let printable = label.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if label.is_empty() || label.len() > MAX_LABEL_LENGTH || !printable {
        return Err(FatError::Label { label: label.to_owned() });
    }
    let mut padded = [b' '; 11];
    padded[..label.len()].copy_from_slice(label.as_bytes());
    Ok(padded)
}

#[cfg(test)]
mod tests;
