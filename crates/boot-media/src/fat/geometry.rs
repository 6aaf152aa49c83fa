// SPDX-License-Identifier: Apache-2.0
//! FAT type and geometry of a volume, and its boot sectors and allocation table.

use super::directory::{FlatFolder, FlatTree};
use super::{ClusterRun, SECTOR};
use crate::Content;

/// Minimum number of clusters of FAT16. The margin avoids numbers that drivers interpret differently.
const MIN_FAT16_CLUSTERS: u32 = 4085 + 16;
const MAX_FAT12_CLUSTERS: u32 = 4084;
const MAX_FAT16_CLUSTERS: u32 = 65_524 - 16;
const MIN_FAT32_CLUSTERS: u32 = 65_525 + 16;
const MAX_FAT32_CLUSTERS: u32 = 0x0FFF_FFF0;
/// Sectors per cluster: with 2 KiB the smallest FAT16 volume has 8 MiB, less than a kernel with a ramdisk.
const MIN_FITTING_CLUSTER_SECTORS: u32 = 4;
const MAX_CLUSTER_SECTORS: u32 = 64;
/// The volume ID in the boot sector; constant, so that the same files give the same bytes.
const VOLUME_ID: u32 = 0x4645_5252;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FatKind {
    Fat12,
    Fat16,
    Fat32,
}

/// The contents of a volume.
pub(super) struct VolumeContents<'a> {
    pub(super) tree: &'a FlatTree<'a>,
    pub(super) files: &'a [Content],
}

/// Sizes in sectors and clusters.
#[derive(Debug, Clone)]
pub(super) struct FatGeometry {
    pub(super) kind: FatKind,
    pub(super) clusters: u32,
    sectors_per_cluster: u32,
    reserved_sectors: u32,
    table_sectors: u32,
    /// Zero for FAT32, whose root is an ordinary folder.
    root_entries: u32,
    total_sectors: u32,
}

// === impl Kind ===

impl FatKind {
    fn reserved_sectors(self) -> u32 {
        match self {
            FatKind::Fat12 | FatKind::Fat16 => 1,
            FatKind::Fat32 => 32,
        }
    }

    fn table_sectors(self, clusters: u32) -> u32 {
        let entries = u64::from(clusters) + 2;
        let bytes = match self {
            FatKind::Fat12 => (entries * 3).div_ceil(2),
            FatKind::Fat16 => entries * 2,
            FatKind::Fat32 => entries * 4,
        };
        u32::try_from(bytes.div_ceil(SECTOR)).expect("clusters are counted with 28 bits")
    }
}

// === impl Geometry ===

impl FatGeometry {
    /// Returns a volume that fits the contents: FAT16 if possible, since all firmware reads it, with the
    /// largest clusters that FAT16 allows, since its tables are in memory for each node.
    pub(super) fn fitting(demand: &VolumeContents<'_>) -> Option<FatGeometry> {
        let mut sectors_per_cluster = MAX_CLUSTER_SECTORS;
        while sectors_per_cluster >= MIN_FITTING_CLUSTER_SECTORS {
            let draft = FatGeometry::draft(FatKind::Fat16, sectors_per_cluster, demand, 512);
            match draft.needed_clusters(demand) {
                Some(MIN_FAT16_CLUSTERS..=MAX_FAT16_CLUSTERS) => break,
                Some(0..MIN_FAT16_CLUSTERS) => sectors_per_cluster /= 2,
                Some(_) | None => return FatGeometry::fitting_fat32(demand),
            }
        }
        let sectors_per_cluster = sectors_per_cluster.max(MIN_FITTING_CLUSTER_SECTORS);
        let draft = FatGeometry::draft(FatKind::Fat16, sectors_per_cluster, demand, 512);
        let needed = draft.needed_clusters(demand)?;
        draft.with_clusters(needed.max(MIN_FAT16_CLUSTERS))
    }

    /// Returns a volume of a given size with the smallest possible clusters.
    pub(super) fn with_size(demand: &VolumeContents<'_>, size: u64) -> Option<FatGeometry> {
        if !size.is_multiple_of(SECTOR) {
            return None;
        }
        let total = u32::try_from(size / SECTOR).ok()?;
        let root_entries = if is_floppy(total) { 224 } else { 512 };
        let mut sectors_per_cluster = 1;
        while sectors_per_cluster <= MAX_CLUSTER_SECTORS {
            for (kind, range) in [
                (FatKind::Fat12, 1..=MAX_FAT12_CLUSTERS),
                (FatKind::Fat16, MIN_FAT16_CLUSTERS..=MAX_FAT16_CLUSTERS),
            ] {
                let draft = FatGeometry::draft(kind, sectors_per_cluster, demand, root_entries);
                let filled =
                    draft.fill_size(total).filter(|filled| range.contains(&filled.clusters));
                if let Some(geometry) = filled {
                    return (draft.needed_clusters(demand)? <= geometry.clusters)
                        .then_some(geometry);
                }
            }
            sectors_per_cluster *= 2;
        }
        None
    }

    pub(super) fn cluster_size(&self) -> u64 {
        u64::from(self.sectors_per_cluster) * SECTOR
    }

    pub(super) fn total_size(&self) -> u64 {
        u64::from(self.total_sectors) * SECTOR
    }

    /// Returns the size of the fixed root directory of FAT12 and FAT16.
    pub(super) fn fixed_root_size(&self) -> u64 {
        u64::from(self.root_entries) * 32
    }

    /// Returns the number of clusters for a size below 4 GiB.
    pub(super) fn clusters_of(&self, size: u64) -> u32 {
        u32::try_from(size.div_ceil(self.cluster_size())).expect("a file is smaller than 4 GiB")
    }

    pub(super) fn folder_clusters(&self, index: usize, folder: &FlatFolder<'_>) -> u32 {
        if index == 0 && self.kind != FatKind::Fat32 { 0 } else { self.clusters_of(folder.size()) }
    }

    /// Returns the boot sector, for FAT32 with the FSInfo sector and the backup; `next_free` is the first
    /// unused cluster.
    pub(super) fn boot_sectors(&self, label: &[u8; 11], next_free: u32) -> Vec<u8> {
        let mut sectors = vec![0; self.reserved_sectors as usize * SECTOR as usize];
        let boot = self.boot_sector(label);
        sectors[..512].copy_from_slice(&boot);
        if self.kind == FatKind::Fat32 {
            let mut info = [0; 512];
            put(&mut info, 0, b"RRaA");
            put(&mut info, 484, b"rrAa");
            put(&mut info, 488, &(self.clusters + 2 - next_free).to_le_bytes());
            put(&mut info, 492, &next_free.min(self.clusters + 1).to_le_bytes());
            put(&mut info, 510, &[0x55, 0xAA]);
            put(&mut sectors, 512, &info);
            put(&mut sectors, 6 * 512, &boot);
            put(&mut sectors, 7 * 512, &info);
        }
        sectors
    }

    /// Returns one copy of the allocation table. Each run is a chain of consecutive clusters.
    pub(super) fn table<'a>(&self, runs: impl Iterator<Item = &'a ClusterRun>) -> Vec<u8> {
        let mut table = vec![0; self.table_sectors as usize * SECTOR as usize];
        let mut set = |cluster: u32, value: u32| match self.kind {
            FatKind::Fat12 => {
                // Two entries share three bytes.
                let at = cluster as usize * 3 / 2;
                let [low, high, ..] = if cluster.is_multiple_of(2) {
                    (value & 0xFFF).to_le_bytes()
                } else {
                    ((value & 0xFFF) << 4).to_le_bytes()
                };
                table[at] |= low;
                table[at + 1] |= high;
            }
            FatKind::Fat16 => put(&mut table, cluster as usize * 2, &(value as u16).to_le_bytes()),
            FatKind::Fat32 => {
                put(&mut table, cluster as usize * 4, &(value & 0x0FFF_FFFF).to_le_bytes());
            }
        };
        set(0, 0xFFFF_FF00 | u32::from(self.media()));
        set(1, u32::MAX);
        for run in runs {
            for cluster in run.first..run.first + run.count {
                let last = cluster + 1 == run.first + run.count;
                set(cluster, if last { u32::MAX } else { cluster + 1 });
            }
        }
        table
    }

    fn fitting_fat32(demand: &VolumeContents<'_>) -> Option<FatGeometry> {
        let draft = FatGeometry::draft(FatKind::Fat32, MAX_CLUSTER_SECTORS, demand, 0);
        let needed = draft.needed_clusters(demand)?;
        draft.with_clusters(needed.max(MIN_FAT32_CLUSTERS))
    }

    fn draft(
        kind: FatKind,
        sectors_per_cluster: u32,
        demand: &VolumeContents<'_>,
        least_root: u32,
    ) -> FatGeometry {
        let root_entries = match kind {
            FatKind::Fat12 | FatKind::Fat16 => {
                let entries =
                    u32::try_from(demand.tree.folders[0].size() / 32).unwrap_or(u32::MAX / 2);
                entries.next_multiple_of(16).max(least_root)
            }
            FatKind::Fat32 => 0,
        };
        FatGeometry {
            kind,
            clusters: 0,
            sectors_per_cluster,
            reserved_sectors: kind.reserved_sectors(),
            table_sectors: 0,
            root_entries,
            total_sectors: 0,
        }
    }

    /// Returns the number of clusters for the contents; `None` if no volume has that many.
    fn needed_clusters(&self, demand: &VolumeContents<'_>) -> Option<u32> {
        let folders = demand.tree.folders.iter().enumerate();
        let folders = folders.map(|(index, folder)| u64::from(self.folder_clusters(index, folder)));
        let files = demand.files.iter().map(|file| u64::from(self.clusters_of(file.length())));
        let needed = u32::try_from(folders.chain(files).sum::<u64>()).ok()?;
        (needed <= MAX_FAT32_CLUSTERS && self.root_entries <= u32::from(u16::MAX)).then_some(needed)
    }

    fn with_clusters(mut self, clusters: u32) -> Option<FatGeometry> {
        self.clusters = clusters;
        self.table_sectors = self.kind.table_sectors(clusters);
        let total = self.sectors_before_clusters()
            + u64::from(clusters) * u64::from(self.sectors_per_cluster);
        self.total_sectors = u32::try_from(total).ok()?;
        Some(self)
    }

    /// Returns the number of clusters that fit a given size. The table size is increased until it covers the
    /// remaining space.
    fn fill_size(&self, total_sectors: u32) -> Option<FatGeometry> {
        let mut geometry = FatGeometry { total_sectors, ..self.clone() };
        loop {
            let left = u64::from(total_sectors).checked_sub(geometry.sectors_before_clusters())?;
            let clusters = left / u64::from(geometry.sectors_per_cluster);
            geometry.clusters =
                u32::try_from(clusters).ok().filter(|c| *c <= MAX_FAT32_CLUSTERS)?;
            let wanted = geometry.kind.table_sectors(geometry.clusters);
            if wanted <= geometry.table_sectors {
                return Some(geometry);
            }
            geometry.table_sectors = wanted;
        }
    }

    fn sectors_before_clusters(&self) -> u64 {
        u64::from(self.reserved_sectors)
            + 2 * u64::from(self.table_sectors)
            + u64::from(self.root_entries) * 32 / SECTOR
    }

    fn media(&self) -> u8 {
        if is_floppy(self.total_sectors) { 0xF0 } else { 0xF8 }
    }

    fn boot_sector(&self, label: &[u8; 11]) -> [u8; 512] {
        let mut boot = [0; 512];
        let (heads, sectors_per_track) =
            if is_floppy(self.total_sectors) { (2, 18) } else { (64, 32) };
        put(&mut boot, 0, &[0xEB, 0x3C, 0x90]);
        put(&mut boot, 3, b"FERRITE ");
        put(&mut boot, 11, &512_u16.to_le_bytes());
        boot[13] = self.sectors_per_cluster as u8;
        put(&mut boot, 14, &(self.reserved_sectors as u16).to_le_bytes());
        boot[16] = 2;
        put(&mut boot, 17, &(self.root_entries as u16).to_le_bytes());
        match u16::try_from(self.total_sectors).ok().filter(|_| self.kind != FatKind::Fat32) {
            Some(total) => put(&mut boot, 19, &total.to_le_bytes()),
            None => put(&mut boot, 32, &self.total_sectors.to_le_bytes()),
        }
        boot[21] = self.media();
        put(&mut boot, 24, &u16::to_le_bytes(sectors_per_track));
        put(&mut boot, 26, &u16::to_le_bytes(heads));
        let (tail, name) = match self.kind {
            FatKind::Fat12 => (36, b"FAT12   "),
            FatKind::Fat16 => (36, b"FAT16   "),
            FatKind::Fat32 => (64, b"FAT32   "),
        };
        match self.kind {
            FatKind::Fat12 | FatKind::Fat16 => {
                put(&mut boot, 22, &(self.table_sectors as u16).to_le_bytes());
            }
            FatKind::Fat32 => {
                boot[1] = 0x58;
                put(&mut boot, 36, &self.table_sectors.to_le_bytes());
                put(&mut boot, 44, &2_u32.to_le_bytes());
                put(&mut boot, 48, &1_u16.to_le_bytes());
                put(&mut boot, 50, &6_u16.to_le_bytes());
            }
        }
        boot[tail] = 0x80;
        boot[tail + 2] = 0x29;
        put(&mut boot, tail + 3, &VOLUME_ID.to_le_bytes());
        put(&mut boot, tail + 7, label);
        put(&mut boot, tail + 18, name);
        put(&mut boot, 510, &[0x55, 0xAA]);
        boot
    }
}

/// Returns whether this is a floppy of 1440 KiB.
fn is_floppy(total_sectors: u32) -> bool {
    total_sectors == 2880
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
